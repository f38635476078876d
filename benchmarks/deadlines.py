"""Whether ``compose`` keeps its time limit: the map of docs/setwise.md and charges made to break it, at four limits.

Run ``make deadlines`` (or ``python benchmarks/deadlines.py``). Each answer is asked in a process of its own, imports
warm. Over: processor seconds beyond ``max_seconds``, of all threads; peak: resident memory; looser: by how much the
answer is above the best bound that can be asked for by name in the same time. The last line counts what exceeds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

from bench_setwise import CHARGES, MANY

from dptopk.accounting.bounds import compose, names
from dptopk.costs import Charge, Cost, PureDP
from dptopk.errors import IncompatibleCosts

LIMITS = (0.05, 0.2, 0.5, 2.0)
MOST_OVER, MOST_MEMORY, MOST_LOOSER = 0.3, 1024.0, 1e-6
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
    ("100*BR(0.1)", {"delta": 1e-100}, "setwise"),
    ("1000*BR(0.1)", {"delta": 0.1}, "setwise"),
]  # fmt: skip


def charge_of(name: str) -> Charge:
    if name in EACH:
        costs: dict[Cost, int] = {PureDP(1e-4 * (1 + i / 7)): 1 for i in range(EACH[name])}
        return Charge(costs)
    return Charge.parse(MANY.get(name, name))


def asked(job: tuple[str, dict[str, float], str, float]) -> tuple[float, float, float]:
    """(processor seconds over the limit, MiB, how much looser than the best bound by name)."""
    name, question, interaction, limit = job
    charge = charge_of(name)
    for warm in ("3*BR(0.1) + DP(0.1) + GDP(0.1) + ZCDP(0.01)", "20*DP(0.1) + 20*DP(0.05)", "DGauss(3.0, 1) + DP(0.1)"):
        compose(Charge.parse(warm), delta=1e-6)
    began = time.process_time()
    answer = compose(charge, **question, interaction=interaction, max_seconds=limit)  # type: ignore[arg-type]
    over = time.process_time() - began - limit
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    best = float("inf")
    for bound in names():
        began = time.process_time()
        try:
            one = compose(charge, **question, interaction=interaction, bound=bound, max_seconds=limit)  # type: ignore[arg-type]
        except IncompatibleCosts:
            continue
        if time.process_time() - began <= limit + MOST_OVER:
            best = min(best, one.delta if "epsilon" in question else one.epsilon)
    value = answer.delta if "epsilon" in question else answer.epsilon
    return over, memory, value / best - 1 if 0 < best < float("inf") else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limits", type=float, nargs="+", default=LIMITS)
    parser.add_argument("--nasty", action="store_true", help="only the charges made to break it")
    parser.add_argument("--from", dest="first", type=int, default=0, help="skip so many charges")
    arguments = parser.parse_args()
    charges = NASTY if arguments.nasty else [*NASTY, *((one, {"delta": 1e-6}, "setwise") for one in CHARGES)]
    jobs = [(*charge, limit) for charge in charges[arguments.first :] for limit in arguments.limits]
    missed = 0
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for job, (over, memory, looser) in zip(jobs, pool.imap(asked, jobs), strict=True):
            bad = over > MOST_OVER or memory > MOST_MEMORY or looser > MOST_LOOSER
            missed += bad
            mark = "  <--" if bad else ""
            line = f"{job[0]:70.70} {job[3]:5} over {over:6.2f} s  peak {memory:5.0f} MiB  looser {looser:.1e}{mark}"
            print(line, flush=True)
    print(f"{missed} of {len(jobs)} beyond {MOST_OVER} s over, {MOST_MEMORY:.0f} MiB or {MOST_LOOSER} looser")


if __name__ == "__main__":
    main()
