"""Composition of pure DP side by side: the formula as printed, dp-accounting's PLD, and dptopk, in
one run.

Run: python benchmarks/bench_accounting.py [--large]

Prints ε at δ = 1e-6 (or that a method gives up), the width of the certified bracket, and the best
time of three runs.
"""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
from dp_accounting.pld import common, privacy_loss_distribution as pld

from dptopk.accounting.bounds import compose
from dptopk.costs import Charge, PureDP

DELTA = 1e-6
INTERVAL = 1e-3  # of the PLD's grid; its default of 1e-4 takes longer still
PATIENCE = 60.0  # seconds after which a method is not tried on larger inputs


def printed_homogeneous(counts: Counter[float]) -> float:
    """MV Theorem 1.4 as printed, O(k²), in plain floats: overflows from about k ε = 700 on."""
    ((epsilon, k),) = counts.items()
    best = k * epsilon
    for i in range(k // 2 + 1):
        terms = (
            math.comb(k, j) * (math.exp((k - j) * epsilon) - math.exp((k - 2 * i + j) * epsilon))
            for j in range(i)
        )
        if sum(terms) / (1 + math.exp(epsilon)) ** k > DELTA:
            break
        best = (k - 2 * i) * epsilon
    return best


def printed_heterogeneous(counts: Counter[float]) -> float:
    """MV Theorem 1.5 as printed: all 2^k subsets, then bisection."""
    epsilons = np.array(list(counts.elements()))
    if epsilons.size > 20:
        raise OverflowError(f"2^{epsilons.size} subsets")
    signs = 1 - 2 * (np.arange(2**epsilons.size)[:, None] >> np.arange(epsilons.size) & 1)
    losses = signs @ epsilons
    masses = np.prod(1 / (1 + np.exp(-signs * epsilons)), axis=1)
    low, high = 0.0, float(epsilons.sum())
    for _ in range(50):
        middle = (low + high) / 2
        above = masses @ np.maximum(1 - np.exp(middle - losses), 0) > DELTA
        low, high = (middle, high) if above else (low, middle)
    return high


def by_pld(counts: Counter[float]) -> float:
    total = None
    for epsilon, times in counts.items():
        one = pld.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, 0.0),
            value_discretization_interval=INTERVAL,
        )
        one = one.self_compose(times) if times > 1 else one
        total = one if total is None else total.compose(one)
    return total.get_epsilon_for_delta(DELTA)


def by_dptopk(counts: Counter[float]) -> tuple[float, float]:
    found = compose(
        Charge({PureDP(epsilon): times for epsilon, times in counts.items()}), delta=DELTA
    )
    return found.epsilon, (found.epsilon - (found.lower or 0.0)) / found.epsilon


def timed(run: Callable[[], object]) -> tuple[object, float]:
    best, result = math.inf, None
    for _ in range(3):
        start = time.perf_counter()
        try:
            result = run()
        except (OverflowError, MemoryError) as error:
            return error, math.nan
        best = min(best, time.perf_counter() - start)
        if best > 1:
            break
    return result, best


def cases(large: bool) -> dict[str, list[Counter[float]]]:
    draw = np.random.default_rng(0).uniform
    sizes = (25, 100, 1000, 10_000, *((100_000, 1_000_000) if large else ()))
    return {
        "k equal ε = 0.1": [Counter({0.1: k}) for k in sizes],
        "k/2 of ε = 0.1, k/2 of 0.03": [Counter({0.1: k // 2, 0.03: k // 2}) for k in sizes],
        "k different ε in [0.05, 0.15]": [
            Counter(dict.fromkeys(draw(0.05, 0.15, k).tolist(), 1))
            for k in (10, 18, 100, 1000, *((10_000,) if large else ()))
        ],
    }


def main() -> None:
    for title, inputs in cases("--large" in sys.argv).items():
        printed = printed_homogeneous if len(inputs[0]) == 1 else printed_heterogeneous
        methods = {"as printed": printed, "dp-accounting PLD": by_pld, "dptopk": by_dptopk}
        print(f"\n{title}\n{'k':>9}  {'method':18} {'epsilon':>14} {'bracket':>9} {'seconds':>9}")
        spent = dict.fromkeys(methods, 0.0)
        for counts in inputs:
            for name, run in methods.items():
                if (
                    spent[name] > PATIENCE / 10
                ):  # the next one takes at least ten times as long, or as much again
                    continue
                result, seconds = timed(lambda run=run, counts=counts: run(counts))
                spent[name] = 0.0 if math.isnan(seconds) else seconds
                shown = f"{type(result).__name__:>14}" if isinstance(result, Exception) else ""
                width = ""
                if isinstance(result, tuple):
                    result, relative = result
                    width = f"{relative:9.1e}"
                shown = shown or f"{result:14.6f}"
                print(f"{counts.total():>9}  {name:18} {shown} {width:>9} {seconds:9.4f}")


if __name__ == "__main__":
    main()
