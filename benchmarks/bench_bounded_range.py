"""Non-adaptive optima of bounded range: how the time grows with k, beside the formulas as they are
printed.

Naive: DDR Theorem 3 and CR Theorem 3 term by term for every candidate t, vectorised with numpy over
the terms of one candidate, which is O(k²) and O(k³) work. Ours: one δ at ε_g, and one ε at δ = 1e-6
(a root of the same function). Ratios are taken within one run, so that the speed of the machine
cancels.

Run: python benchmarks/bench_bounded_range.py
"""

import time
from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from dptopk.accounting.bounded_range.nonadaptive import (
    br_nonadaptive_delta,
    br_nonadaptive_epsilon,
    candidates,
)
from dptopk.accounting.bounded_range.nonadaptive_with_dp import (
    br_dp_nonadaptive_delta,
    br_dp_nonadaptive_epsilon,
)

EPSILON = 0.1
DELTA = 1e-6


def timed(run: Callable[[], float], seconds: float = 0.5) -> tuple[float, float]:
    """The result, and the best time in milliseconds over about ``seconds``."""
    best, result, begin = float("inf"), 0.0, time.perf_counter()
    while best == float("inf") or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        result = float(run())
        best = min(best, time.perf_counter() - start)
    return result, 1e3 * best


def log_choose(n: int) -> np.ndarray:
    i = np.arange(n + 1)
    return gammaln(n + 1) - gammaln(i + 1) - gammaln(n - i + 1)


def naive_bounded_range(epsilon: float, k: int, x: float) -> float:
    """DDR Theorem 3 as printed."""
    return naive_mixed(epsilon, k, 0, x)


def naive_mixed(epsilon: float, ranged: int, pure: int, x: float) -> float:
    """CR Theorem 3 as printed."""
    i, j = np.arange(ranged + 1)[:, None], np.arange(pure + 1)
    up = 1 / (1 + np.exp(-epsilon))
    log_weights = (
        log_choose(ranged)[:, None] + log_choose(pure) + (pure - j) * np.log(up) + j * np.log1p(-up)
    )
    best = 0.0
    for index in range(ranged + 2 * pure + 1):
        t = np.clip((x + epsilon * (index + 1 - pure)) / (ranged + 1), 0, epsilon)
        q = np.clip(np.expm1(t - epsilon) / np.expm1(-epsilon), 1e-300, 1 - 1e-16)
        law = np.exp(log_weights + (ranged - i) * np.log(q) + i * np.log1p(-q))
        gain = -np.expm1(np.minimum(x - epsilon * (pure - 2 * j - i) - t * ranged, 0))
        best = max(best, float((law * gain).sum()))
    return best


def row(
    k: int,
    naive_ms: float | None,
    delta_ms: float,
    epsilon_ms: float,
    before: float | None,
    more: str,
) -> str:
    naive = f"{naive_ms:10.2f} {naive_ms / delta_ms:8.1f}" if naive_ms else f"{'-':>10} {'-':>8}"
    growth = f"{epsilon_ms / before:8.2f}" if before else f"{'-':>8}"
    return f"{k:>9} {naive} {delta_ms:9.2f} {epsilon_ms:9.2f} {growth} {more:>12}"


def main() -> None:
    head = f"{'k':>9} {'naive ms':>10} {'naive/δ':>8} {'δ ms':>9} {'ε ms':>9} {'growth':>8}"
    print(f"{EPSILON}-BR, DDR Theorem 3\n{head} {'candidates':>12}")
    before = None
    for k in (100, 1000, 3000, 10_000, 100_000, 1_000_000):
        epsilon, epsilon_ms = timed(lambda k=k: br_nonadaptive_epsilon(EPSILON, k, delta=DELTA))
        delta, delta_ms = timed(
            lambda k=k, x=epsilon: br_nonadaptive_delta(EPSILON, k, at_epsilon=x)
        )
        naive_ms = None
        if k <= 3000:
            naive, naive_ms = timed(lambda k=k, x=epsilon: naive_bounded_range(EPSILON, k, x))
            assert abs(naive / delta - 1) < 1e-6, (naive, delta)
        kept = f"{len(candidates(EPSILON, k, at_epsilon=epsilon))} of {k + 1}"
        print(row(k, naive_ms, delta_ms, epsilon_ms, before, kept))
        before = epsilon_ms
    print(f"\nhalf {EPSILON}-BR, half {EPSILON}-DP, CR Theorem 3\n{head}")
    before = None
    for k in (20, 60, 200, 1000, 2000):
        pure = k // 2
        epsilon, epsilon_ms = timed(
            lambda k=k, m=pure: br_dp_nonadaptive_epsilon(EPSILON, k - m, m, delta=DELTA)
        )
        delta, delta_ms = timed(
            lambda k=k, m=pure, x=epsilon: br_dp_nonadaptive_delta(EPSILON, k - m, m, at_epsilon=x)
        )
        naive_ms = None
        if k <= 200:
            naive, naive_ms = timed(
                lambda k=k, m=pure, x=epsilon: naive_mixed(EPSILON, k - m, m, x)
            )
            assert abs(naive / delta - 1) < 1e-6, (naive, delta)
        print(row(k, naive_ms, delta_ms, epsilon_ms, before, ""))
        before = epsilon_ms


if __name__ == "__main__":
    main()
