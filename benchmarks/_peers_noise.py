"""A million draws of integer noise: dptopk, NumPy, OpenDP, diffprivlib."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import _peers
import numpy as np
from bench_noise import numpy_floats, opendp, ours

DRAWS = 1_000_000
PEER_DRAWS = {
    "opendp": 50_000,
    "diffprivlib": 5_000,
}  # scaled up: a draw costs the same however many there are


def diffprivlibs(law: str, scale: float, draws: int) -> Callable[[], Any]:
    from diffprivlib import mechanisms

    if law == "Laplace":
        one = mechanisms.Geometric(epsilon=1 / scale, sensitivity=1)
    else:
        one = mechanisms.GaussianDiscrete(
            epsilon=3 / scale, delta=1e-3, sensitivity=1
        )  # about this scale
    return lambda: [one.randomise(0) for _ in range(draws)]


def section(smoke: bool) -> str:
    draws = DRAWS // 10 if smoke else DRAWS
    peers = [
        (n, f)
        for n, f in (("opendp", opendp), ("diffprivlib", diffprivlibs))
        if _peers.missing(n) is None
    ]
    rows = []
    for law in ("Laplace", "Gaussian"):
        for scale in (10.0, 1000.0):
            runs = [
                ours(law, scale, draws, None),
                ours(law, scale, draws, np.random.default_rng(1)),
            ]
            times = [_peers.median_seconds(run) for run in [*runs, numpy_floats(law, scale, draws)]]
            for name, make in peers:
                few = PEER_DRAWS[name]
                times.append(_peers.median_seconds(make(law, scale, few), 3) * draws / few)
            ratio = [f"{times[3] / times[0]:,.0f}"] if peers else []
            rows.append([f"{law}, scale {scale:g}", *map(_peers.seconds, times), *ratio])
    header = [
        "law",
        "dptopk (secure)",
        "dptopk (NumPy generator)",
        "NumPy (rounded floats)",
        *(n for n, _ in peers),
    ]
    return _peers.table(header + ([f"{peers[0][0]} / dptopk (secure)"] if peers else []), rows)
