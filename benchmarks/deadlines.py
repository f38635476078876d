"""Whether ``compose`` keeps its time limit: the map of docs/setwise.md and charges made to break it, at four limits.

Run ``make deadlines`` (or ``python benchmarks/deadlines.py --write``) to put the table into docs/limits.md; without
``--write`` it is printed. Each question is asked in a process of its own, forked from one that is warm: what one
computes no other finds in a cache. The clock is that of the processor, one thread: what a machine with nothing else to
do would answer. Over: seconds beyond ``max_seconds``; peak: resident memory; looser: by how much the answer is above
the best one that can be asked for by name in the same time. The same bound, asked twice, may get one refinement further
or not: where an answer is looser, all are asked again, and the least of three tries counts.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from bench_setwise import CHARGES, MANY

from dptopk.accounting.bounds import compose, names
from dptopk.costs import Charge, Cost, PureDP
from dptopk.errors import IncompatibleCosts

PAGE = Path(__file__).parent.parent / "docs" / "limits.md"
BEGIN, END = "<!-- table: make deadlines -->", "<!-- end of table -->"
LIMITS = (0.05, 0.2, 0.5, 2.0)
MOST_OVER, MOST_MEMORY, MOST_LOOSER = 0.3, 1024.0, 1e-6
TRIES = 3
WARM = ("3*BR(0.1) + DP(0.1) + GDP(0.1) + ZCDP(0.01)", "20*DP(0.1) + 20*DP(0.05)", "DGauss(3.0, 1) + DP(0.1)",
        "2*Clock(0.1) + 3*BR(0.2) + 2*BR(0.3)", "2*MultiDP(0.3:0.0, 0.1:0.01)", "DLap(20.0, 3)")  # fmt: skip
EACH = {f"{n} different DP": n for n in (1000, 20_000)}
# (charge, what is asked, interaction)
NASTY = [
    ("GDP(1e-07) + DP(3.0)", {"delta": 1e-9}, "setwise"),
    ("GDP(3e-08) + DP(3.0)", {"delta": 1e-9}, "setwise"),
    ("GDP(1e-06) + DP(3.0)", {"delta": 1e-9}, "setwise"),
    ("DP(1.0) + 60*BR(1e-06)", {"epsilon": 3.7e-7}, "setwise"),
    ("10*DP(1.0) + DP(2.0) + 60*BR(1.7e-07)", {"epsilon": 3.7e-7}, "setwise"),
    *((name, {"delta": 1e-6}, "setwise") for name in EACH),
    ("DGauss(20000.0, 1) + DGauss(30000.0, 1)", {"delta": 1e-6}, "setwise"),
    ("50*DGauss(42000.0, 1) + GDP(0.3) + 100*DGauss(70.0, 3)", {"delta": 1e-6}, "setwise"),
    ("210*MultiDP(0.3:0.0, 0.1:0.01) + 1295*DGauss(982.0, 100) + 2005*DGauss(21980.0, 3)", {"delta": 0.1}, "setwise"),
    ("100*DLap(2000.0, 50) + 50*BR(0.05)", {"delta": 1e-6}, "setwise"),
    ("999999999*BR(0.1)", {"delta": 1e-6}, "setwise"),
    ("999999999*BR(1e-06) + 10*DP(0.1)", {"delta": 1e-6}, "setwise"),
    ("1000000*BR(0.01)", {"delta": 1e-6}, "batch"),
    ("1000000*BR(0.01) + 1000000*BR(0.02)", {"delta": 1e-6}, "batch"),
    ("1000000*BR(0.01) + ZCDP(0.5)", {"delta": 1e-6}, "setwise"),
    ("1000*DP(0.01) + 1000*BR(0.013) + ZCDP(1e-06) + CDP(0.1, 0.2)", {"delta": 1e-6}, "setwise"),
    ("1000000000000*Clock(0.1)", {"delta": 1e-6}, "setwise"),
    ("1000000*Clock(0.001) + 1000*BR(0.01)", {"delta": 1e-6}, "setwise"),
    ("1000000*Clock(0.001)", {"epsilon": 1.0}, "setwise"),
    ("1000000000*DP(0.0001)", {"delta": 1e-6}, "setwise"),
    ("1000000000*DP(0.0001) + 1000000000*DP(0.0003)", {"delta": 1e-6}, "ordered"),
    ("100*BR(0.1)", {"delta": 1e-100}, "setwise"),
    ("1000*BR(0.1)", {"delta": 0.1}, "setwise"),
]  # fmt: skip


def charge_of(name: str) -> Charge:
    if name in EACH:
        costs: dict[Cost, int] = {PureDP(1e-4 * (1 + i / 7)): 1 for i in range(EACH[name])}
        return Charge(costs)
    return Charge.parse(MANY.get(name, name))


class Job(NamedTuple):
    name: str
    question: dict[str, float]
    interaction: str
    limit: float
    bound: str = "best"


def asked(job: Job) -> tuple[float, float, float] | None:
    """(seconds over the limit, MiB, what was answered), or None where the bound does not apply."""
    time.monotonic = time.process_time  # in this process only
    charge = charge_of(job.name)
    began = time.process_time()
    try:
        found = compose(
            charge,
            **job.question,
            interaction=job.interaction,
            bound=job.bound,
            max_seconds=job.limit,  # type: ignore[arg-type]
        )
    except IncompatibleCosts:
        return None
    over = time.process_time() - began - job.limit
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return over, memory, found.delta if "epsilon" in job.question else found.epsilon


class Row(NamedTuple):
    name: str
    limit: float
    over: float
    memory: float
    looser: float

    @property
    def bad(self) -> bool:
        return self.over > MOST_OVER or self.memory > MOST_MEMORY or self.looser > MOST_LOOSER

    def __str__(self) -> str:
        shown = self.name if len(self.name) <= 70 else self.name[:67] + "..."
        return f"| `{shown}` | {self.limit:g} | {self.over:+.2f} | {self.memory:.0f} | {self.looser:.1e} |"


def measured(charges: list[tuple[str, dict[str, float], str]], limits: list[float]) -> Iterator[Row]:
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for (name, question, interaction), limit in ((charge, limit) for charge in charges for limit in limits):
            jobs = [Job(name, question, interaction, limit, bound) for bound in ("best", *names())]
            tries = []
            while len(tries) < TRIES and not any(row.looser <= MOST_LOOSER for row in tries):
                (over, memory, value), *others = pool.map(asked, jobs, chunksize=1)
                best = min((other[2] for other in others if other and other[0] <= MOST_OVER), default=math.inf)
                looser = max(value / best - 1, 0.0) if 0 < best < math.inf else 0.0
                tries.append(Row(name, limit, over, memory, looser))
            yield Row(name, limit, *(max(row[i] for row in tries) for i in (2, 3)), min(row.looser for row in tries))


def table(rows: list[Row]) -> list[str]:
    """A line a limit, then the rows that exceed."""
    lines = ["| limit | questions | over, most | peak MiB, most | looser, most | rows beyond |", "|---" * 6 + "|"]
    for limit in sorted({row.limit for row in rows}):
        some = [row for row in rows if row.limit == limit]
        most = [max(getattr(row, name) for row in some) for name in ("over", "memory", "looser")]
        beyond = sum(row.bad for row in some)
        lines.append(f"| {limit:g} | {len(some)} | {most[0]:+.2f} | {most[1]:.0f} | {most[2]:.1e} | {beyond} |")
    bad = [str(row) for row in rows if row.bad]
    if bad:
        lines += ["", "Beyond:", "", "| charge | limit | over | peak MiB | looser |", "|---" * 5 + "|", *bad]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limits", type=float, nargs="+", default=LIMITS)
    parser.add_argument("--nasty", action="store_true", help="only the charges made to break it")
    parser.add_argument("--from", dest="first", type=int, default=0, help="skip so many charges")
    parser.add_argument("--write", action="store_true", help="write the table into docs/limits.md")
    arguments = parser.parse_args()
    for warm in WARM:
        compose(Charge.parse(warm), delta=1e-6)
    charges = NASTY if arguments.nasty else [*NASTY, *((one, {"delta": 1e-6}, "setwise") for one in CHARGES)]
    rows = []
    for row in measured(charges[arguments.first :], arguments.limits):
        rows.append(row)
        print(f"{row}{'  <--' if row.bad else ''}", flush=True)
    lines = table(rows)
    print("\n".join(lines))
    if arguments.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
