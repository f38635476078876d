"""Time, memory and width of the certified bracket of the adaptive optimum.

Run ``python benchmarks/bench_setwise.py [--long]``; the long run adds k = 10,000 (about a minute).
"""

from __future__ import annotations

import resource
import sys
import time

from dptopk.accounting.accountant import Accountant
from dptopk.accounting.bounds import compose
from dptopk.accounting.budget import Budget
from dptopk.costs import BoundedRange, Charge

CHARGES = [
    "100*BR(0.1)",
    "1000*BR(0.1)",
    "500*BR(0.1) + 500*DP(0.1) + GDP(0.5)",
    "20*BR(0.1) + 20*BR(0.05)",
    "30*BR(0.1) + 5*DGauss(20.0, 1)",
]
DELTA = 1e-6


def report(text: str, max_seconds: float) -> None:
    charge = Charge.parse(text)
    start, cpu = time.perf_counter(), time.process_time()
    found = compose(charge, delta=DELTA, bound="optimal_setwise", max_seconds=max_seconds)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    width = found.epsilon / (found.lower or float("nan")) - 1
    print(f"{text:40} {found.epsilon:10.6f} {width:9.1e} {wall:8.2f} s {cpu:8.2f} s cpu  {found.note}")


def main() -> None:
    compose(Charge.parse("3*BR(0.1) + DP(0.1) + GDP(0.1)"), delta=DELTA)  # imports
    print(f"{'charge':40} {'epsilon':>10} {'width':>9} {'wall':>10} {'cpu':>10}")
    for text in CHARGES + (["10000*BR(0.1)"] if "--long" in sys.argv else []):
        report(text, 120.0)
    budget = Accountant.filter(Budget(3.0, DELTA))
    step = Charge({BoundedRange(0.001): 10}, delta=1e-12)
    budget.spend(step)
    start = time.perf_counter()
    for _ in range(1000):
        budget.spend(step)
    print(f"one filter step: {(time.perf_counter() - start) * 1e3:.1f} µs")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
