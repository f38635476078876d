"""Certified brackets of the adaptive optimum: their widths and times, beside the strongest
baselines.

``make measure WHAT=setwise`` prints the table and puts it into docs/notes/setwise.md. Each charge
is asked in a process of its own, so that nothing is in a cache. Time is processor time. At the end
the rows are listed that are above their goal: what prototypes of the same theorems had reached, or
was asked for.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import time
from pathlib import Path

from dptopk._internal.choices import EFFORTS, Effort
from dptopk.accounting.bounds import compose
from dptopk.costs import Charge
from dptopk.errors import IncompatibleCosts

DELTA = 1e-6
PAGE = Path(__file__).parent.parent / "docs" / "notes" / "setwise.md"
BEGIN, END = "<!-- table: make measure WHAT=setwise -->", "<!-- end of table -->"


def times(count: int, ranges: str) -> str:
    return " + ".join(
        f"{count}*BR({epsilon})" if count > 1 else f"BR({epsilon})" for epsilon in ranges.split()
    )


SIX, FOUR, THREE = "0.02 0.03 0.04 0.06 0.08 0.1", "0.03 0.05 0.07 0.1", "0.02 0.05 0.1"
MANY = {
    "12 ranges 0.05, 0.06, ...": times(1, " ".join(str(i / 100) for i in range(5, 17))),
    "20 ranges 0.025, 0.03, ...": times(1, " ".join(str(i / 1000) for i in range(25, 125, 5))),
    "100 ranges 0.02, 0.022, ...": times(1, " ".join(str(i / 1000) for i in range(20, 220, 2))),
}
CHARGES = [
    *(f"{k}*BR(0.1)" for k in (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)),
    *(f"{k}*BR(0.01)" for k in (10_000, 100_000, 1_000_000)),
    *(f"{k}*BR(1.0)" for k in (10, 100, 1000)),
    *(times(k, "0.05 0.1") for k in (10, 50, 100, 300, 500, 1000)),
    times(100, "0.09 0.1"), times(100, "0.1 0.3"), times(100, "0.01 0.1"), ("1000*BR(0.05) + "
                                                                           "10*BR(0.1)"),
    "10*BR(0.05) + 1000*BR(0.1)", times(200, "0.05 0.1 0.2"), times(100, "0.05 0.0731 0.1"),
    *(times(k, THREE) for k in (17, 20, 30, 100)), *(times(k, FOUR) for k in (5, 8, 10, 30, 100)),
    *(times(k, SIX) for k in (3, 5, 10, 30, 100)), *MANY,
    "100*DP(0.1) + 100*BR(0.1)", "1000*DP(0.1) + 1000*BR(0.1)", "10000*DP(0.1) + 10000*BR(0.1)",
    "100*BR(0.1) + GDP(0.5)", "100*BR(0.05) + 100*BR(0.1) + GDP(0.5)", ("300*BR(0.1) + "
                                                                       "25*DGauss(10.0, 1)"),
    "200*BR(0.1) + 100*DP(0.05) + 100*DGauss(30.0, 1)", ("10*DP(0.1) + 300*BR(0.05) + "
                                                        "300*BR(0.1) + GDP(0.5)"),
    "100*BR(0.1) + 10*ADP(0.1, 1e-09)", "100*BR(0.1) + ZCDP(0.05)", "200*BR(0.1) + ZCDP(0.07)",
    "50*DP(0.1) + ZCDP(0.1)", "25*DP(0.2) + ZCDP(0.02)", "GDP(0.5) + ZCDP(0.05)",
    "ZCDP(0.125)", "ZCDP(1.0)", "ZCDP(0.01, xi=0.1)",
]  # fmt: skip


GOALS = {
    "10000*BR(0.1)": 35.59, "30000*BR(0.1)": 77.934, "100000*BR(0.1)": 199.45, "10000*BR(0.01)": 2.2556,
    "100000*BR(0.01)": 8.312, "1000000*BR(0.01)": 35.62, times(500, "0.05 0.1"): 6.33, times(200, "0.05 0.1 0.2"): 8.58,
    "200*BR(0.1) + ZCDP(0.07)": 3.97, "50*DP(0.1) + ZCDP(0.1)": 4.09, times(300, "0.05 0.1"): 4.7125,
    times(100, "0.09 0.1"): 3.1339, times(100, "0.1 0.3"): 8.2857, "1000*BR(0.05) + 10*BR(0.1)": 3.8359,
    times(20, THREE): 1.0793, times(100, THREE): 2.596, times(10, FOUR): 0.90131, times(100, FOUR): 3.1562,
    times(5, SIX): 0.69885, times(30, SIX): 1.8403, "12 ranges 0.05, 0.06, ...": 0.78642,
    "100 ranges 0.02, 0.022, ...": 3.1666, "100*BR(0.05) + 100*BR(0.1) + GDP(0.5)": 3.5372,
    times(100, "0.05 0.1"): 2.5504, times(1000, "0.05 0.1"): 9.4848, times(100, "0.01 0.1"): 2.2639,
    "10*BR(0.05) + 1000*BR(0.1)": 8.3181, times(17, THREE): 0.98837, times(30, THREE): 1.3444,
    times(8, FOUR): 0.79936, times(30, FOUR): 1.6268, times(3, SIX): 0.52968, times(10, SIX): 1.0129,
    times(100, SIX): 3.5795, "20 ranges 0.025, 0.03, ...": 0.71991, "10000*DP(0.1) + "
                                                                    "10000*BR(0.1)": 114.7,
    "10*DP(0.1) + 300*BR(0.05) + 300*BR(0.1) + GDP(0.5)": 5.6416, "100*BR(0.1) + ZCDP(0.05)": 2.8379,
    "GDP(0.5) + ZCDP(0.05)": 2.8375,
}  # fmt: skip


def value(charge: Charge, bound: str) -> str:
    try:
        return f"{compose(charge, delta=DELTA, bound=bound).epsilon:.5g}"
    except IncompatibleCosts:
        return ""


def row(asked: tuple[str, Effort]) -> str:
    name, effort = asked
    charge = Charge.parse(MANY.get(name, name))
    compose(Charge.parse("3*BR(0.1) + DP(0.1) + GDP(0.1)"), delta=DELTA)  # imports
    cpu = time.process_time()
    found = compose(charge, delta=DELTA, bound="optimal_setwise", effort=effort)
    cpu = time.process_time() - cpu
    lower = found.lower or 0.0
    others = " | ".join(value(charge, bound) for bound in ("mgf", "zcdp_tight", "renyi"))
    width = (found.epsilon - lower) / found.epsilon
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"| `{name}` | {others} | {lower:.6g} | {found.epsilon:.6g} | {width:.1e} | "
        f"{cpu:.2f} | {memory:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effort", choices=EFFORTS, default="normal", help="of each answer")
    arguments = parser.parse_args()
    lines = [
        (
            "| charge | mgf | zCDP, exact constants | Rényi curves | lower | optimum, upper | width "
            "| CPU s | MiB |"
        )
    ]
    lines.append("|---" * 9 + "|")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for line in pool.imap(row, [(charge, arguments.effort) for charge in CHARGES]):
            lines.append(line)
            print(line, flush=True)
    for line in lines[2:]:
        name, upper = line.split(" | ")[0][2:].strip("`"), float(line.split(" | ")[5])
        if upper > GOALS.get(name, math.inf) * (1 + 5e-6):
            print(f"above its goal {GOALS[name]}, by {upper / GOALS[name] - 1:.1e}: {name}")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(
        f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
