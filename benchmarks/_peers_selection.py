"""The top 25 of d counts: dptopk, NumPy, OpenDP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import _peers
import numpy as np
from bench_selection import plain

from dptopk.mechanisms.samplers.random import random_bits
from dptopk.mechanisms.samplers.selection import gumbel_top_k

K, EPSILON = 25, 0.1
# Counts of d labels, and the most labels that OpenDP is timed on: beyond, its time is extrapolated
# in proportion.
SHAPES: dict[str, tuple[Callable[[int], np.ndarray], int]] = {
    "10⁶ / rank": (lambda d: 10**6 // np.arange(1, d + 1), 10**5),
    "uniform in 0…999": (lambda d: np.random.default_rng(2).integers(0, 1000, d), 10**6),
}


def ours(counts: np.ndarray, absent: int = 0) -> Callable[[], Any]:
    bits = random_bits()
    return lambda: gumbel_top_k(counts, K, epsilon=EPSILON, linf=1, bits=bits, absent=absent)


def numpys(counts: np.ndarray) -> Callable[[], Any]:
    return plain(counts, K, EPSILON)


def opendps(counts: np.ndarray) -> Callable[[], Any]:
    """Noisy top-k of counts that move in one direction; its input is a list of integers."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    metric = dp.linf_distance(T=int, monotonic=True)
    measurement = dp.m.make_noisy_top_k(
        domain, metric, dp.zero_concentrated_divergence(), k=K, scale=1 / EPSILON
    )
    listed = counts.tolist()
    return lambda: measurement(listed)


MEMORY = """
import gc, sys; sys.path.insert(0, {here!r})
import _peers_selection as selection
counts = next(iter(selection.SHAPES.values()))[0]({d})
gc.collect()
run = selection.{who}(counts)
"""


def section(smoke: bool, here: str) -> str:
    sizes = (10**4, 10**5) if smoke else (10**4, 10**5, 10**6, 10**7)
    peer = _peers.missing("opendp") is None
    rows = [
        row for shape in SHAPES for row in rows_of(shape, sizes, 10**4 if smoke else 10**7, peer)
    ]
    listed = next(iter(SHAPES.values()))[0](10**5)
    unlisted = _peers.median_seconds(ours(listed, absent=10**12))
    rows.append(["10⁶ / rank", "10⁵ listed, 10¹² absent", _peers.seconds(unlisted), "–", "–", "–"])
    header = [
        "counts",
        "labels",
        "dptopk (exact, secure)",
        "NumPy (floats, not secure)",
        "OpenDP",
        "OpenDP / dptopk",
    ]
    growth = {"dptopk": (10**6, "ours"), "NumPy": (10**6, "numpys")} | (
        {"OpenDP": (10**4, "opendps")} if peer else {}
    )
    memory = []
    for name, (size, who) in growth.items():
        grown = _peers.peak_growth(MEMORY.format(here=here, d=size, who=who))
        memory.append([name, f"{size:,}", "–" if grown is None else f"{grown:.1f} MiB"])
    header_of_memory = ["memory beyond the counts", "labels", "growth of the peak"]
    return f"{_peers.table(header, rows)}\n\n{_peers.table(header_of_memory, memory)}"


def rows_of(shape: str, sizes: tuple[int, ...], cap: int, peer: bool) -> list[list[str]]:
    make, largest = SHAPES[shape]
    rows, per_label = [], None
    for d in sizes:
        counts = make(d)
        mine, plainly = (
            _peers.median_seconds(ours(counts)),
            _peers.median_seconds(numpys(counts), 3),
        )
        theirs, mark = None, ""
        if peer and d <= min(largest, cap):
            theirs = _peers.median_seconds(opendps(counts), 3)
            per_label = theirs / d
        elif per_label is not None:
            theirs, mark = per_label * d, " (extrapolated)"
        ratio = "–" if theirs is None else f"{theirs / mine:,.0f}"
        rows.append(
            [
                shape,
                f"{d:,}",
                *map(_peers.seconds, (mine, plainly)),
                _peers.seconds(theirs) + mark,
                ratio,
            ]
        )
    return rows
