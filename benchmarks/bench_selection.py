"""Exact Gumbel top-k against NumPy's: Gumbel noise on every count, argpartition, sort.

Run as ``python benchmarks/bench_selection.py [labels]``. All ratios come from one run; times are
medians.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import _timing
import numpy as np

from dptopk.mechanisms.samplers.random import random_bits
from dptopk.mechanisms.samplers.selection import gumbel_top_k


def plain(counts: np.ndarray, k: int, epsilon: float) -> Callable[[], Any]:
    """Selection as it is usually written; a float's noise is neither exact nor secure."""
    rng = np.random.default_rng(1)

    def run() -> np.ndarray:
        noisy = epsilon * counts + rng.gumbel(size=counts.size)
        top = np.argpartition(-noisy, k - 1)[:k]
        return top[np.argsort(-noisy[top])]

    return run


def shapes(n: int) -> dict[str, np.ndarray]:
    """Counts with many ties, with few, with none, with nothing else."""
    rng = np.random.default_rng(2)
    return {
        "Zipf 1.2, many ties": np.minimum(rng.zipf(1.2, n), 10**9),
        "Zipf 2, more ties": np.minimum(rng.zipf(2.0, n), 10**9),
        "uniform to 10^9": rng.integers(0, 10**9, n),
        "all equal": np.full(n, 7),
    }


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 10**7
    secure, rows = random_bits(), []
    for name, counts in shapes(n).items():
        for epsilon in (1e-6, 0.1):
            for k in (25, 1000):
                theirs = _timing.seconds(plain(counts, k, epsilon), 3)
                ours = _timing.seconds(
                    lambda c=counts, k=k, e=epsilon: gumbel_top_k(
                        c, k, epsilon=e, linf=1, bits=secure
                    )
                )
                rows.append(
                    [
                        f"{name}, epsilon {epsilon:g}, k {k}",
                        f"{1e3 * ours:.1f}",
                        f"{1e3 * theirs:.0f}",
                        f"{theirs / ours:.1f}",
                    ]
                )
    _timing.table(
        f"Milliseconds for the top k of {n} counts, secure source; {_timing.load()}",
        ["counts", "dptopk", "NumPy", "NumPy / dptopk"],
        rows,
    )
    unlisted(secure)
    memory(n, secure)


def unlisted(secure: Any) -> None:
    """A public domain of 10^12 labels of which 10^5 are listed."""
    counts, rows = np.random.default_rng(3).zipf(1.5, 10**5).clip(max=10**9), []
    for epsilon in (1e-6, 0.1, 5.0):
        for name, listed in (("Zipf", counts), ("all 1", np.ones(10**5, np.int64))):
            time = _timing.seconds(
                lambda c=listed, e=epsilon: gumbel_top_k(
                    c, 25, epsilon=e, linf=1, bits=secure, absent=10**12 - 10**5
                )
            )
            rows.append([f"{name}, epsilon {epsilon:g}", f"{1e3 * time:.2f}"])
    _timing.table(
        "Milliseconds for the top 25 of 10^12 labels, 10^5 of them listed",
        ["counts", "dptopk"],
        rows,
    )


def memory(n: int, secure: Any) -> None:
    """Peak memory beyond the counts, in units of the counts' own."""
    rows = []
    for name, counts in shapes(n).items():
        for k in (25, 1000, n // 10):
            ours = _timing.peak_bytes(
                lambda c=counts, k=k: gumbel_top_k(c, k, epsilon=0.1, linf=1, bits=secure)
            )
            theirs = _timing.peak_bytes(plain(counts, k, 0.1))
            rows.append(
                [f"{name}, k {k}", f"{ours / counts.nbytes:.2f}", f"{theirs / counts.nbytes:.2f}"]
            )
    _timing.table(
        "Peak memory beyond the counts / that of the counts", ["counts", "dptopk", "NumPy"], rows
    )


if __name__ == "__main__":
    main()
