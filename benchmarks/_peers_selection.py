"""The top 25 of d counts: dptopk, NumPy, OpenDP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import _peers
import numpy as np

from dptopk.mechanisms.random import random_bits
from dptopk.mechanisms.selection import gumbel_top_k

K, EPSILON = 25, 0.1
PEER_SIZES = (10**4, 10**5)  # OpenDP takes a minute for a million: there its time is extrapolated from these


def counts_of(d: int) -> np.ndarray:
    return np.random.default_rng(2).zipf(1.5, d).clip(max=10**6)


def ours(counts: np.ndarray, absent: int = 0) -> Callable[[], Any]:
    bits = random_bits()
    return lambda: gumbel_top_k(counts, K, epsilon=EPSILON, linf=1, bits=bits, absent=absent)


def numpys(counts: np.ndarray) -> Callable[[], Any]:
    """As it is usually written: float noise, neither exact nor secure."""
    rng = np.random.default_rng(1)

    def run() -> np.ndarray:
        noisy = EPSILON * counts + rng.gumbel(size=counts.size)
        top = np.argpartition(-noisy, K - 1)[:K]
        return top[np.argsort(-noisy[top])]

    return run


def opendps(counts: np.ndarray) -> Callable[[], Any]:
    """Noisy top-k of counts that move in one direction; its input is a list of integers."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    metric = dp.linf_distance(T=int, monotonic=True)
    measurement = dp.m.make_noisy_top_k(domain, metric, dp.zero_concentrated_divergence(), k=K, scale=1 / EPSILON)
    listed = counts.tolist()
    return lambda: measurement(listed)


MEMORY = """
import sys; sys.path.insert(0, {here!r})
import _peers_selection as selection
import gc
counts = selection.counts_of({d})
gc.collect()
run = selection.{who}(counts)
"""


def section(smoke: bool, here: str) -> str:
    sizes = (10**4, 10**5) if smoke else (10**4, 10**5, 10**6, 10**7)
    peer = _peers.missing("opendp") is None
    measured = {}
    if peer:
        for d in PEER_SIZES[:1] if smoke else PEER_SIZES:
            measured[d] = _peers.median_seconds(opendps(counts_of(d)), 3)
    rows = []
    for d in sizes:
        counts = counts_of(d)
        mine, plain = _peers.median_seconds(ours(counts)), _peers.median_seconds(numpys(counts), 3)
        theirs, mark = measured.get(d), ""
        if theirs is None and measured:
            largest = max(measured)
            theirs, mark = measured[largest] * d / largest, " (extrapolated)"
        ratio = "–" if theirs is None else f"{theirs / mine:,.0f}"
        rows.append([f"{d:,}", *map(_peers.seconds, (mine, plain)), _peers.seconds(theirs) + mark, ratio])
    counts = counts_of(10**5)
    unlisted = _peers.median_seconds(ours(counts, absent=10**12))
    rows.append(["10⁵ listed and 10¹² absent", _peers.seconds(unlisted), "–", "–", "–"])
    header = ["labels", "dptopk (exact, secure)", "NumPy (floats, not secure)", "OpenDP", "OpenDP / dptopk"]
    lines = [_peers.table(header, rows), ""]
    d = 10**5 if smoke else 10**6
    growth = {"dptopk": (d, "ours"), "NumPy": (d, "numpys")} | ({"OpenDP": (10**5, "opendps")} if peer else {})
    memory = []
    for name, (size, who) in growth.items():
        grown = _peers.peak_growth(MEMORY.format(here=here, d=size, who=who))
        memory.append([name, f"{size:,}", "–" if grown is None else f"{grown:.1f} MiB"])
    lines.append(_peers.table(["memory beyond the counts", "labels", "growth of the peak"], memory))
    return "\n".join(lines)
