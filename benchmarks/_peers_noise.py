"""A million draws of integer noise: dptopk, NumPy, OpenDP, diffprivlib."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import _peers
import numpy as np

from dptopk.mechanisms.noise import discrete_gaussian, discrete_laplace
from dptopk.mechanisms.random import random_bits

DRAWS = 1_000_000
PEER_DRAWS = {"opendp": 50_000, "diffprivlib": 5_000}  # scaled up: a draw costs the same however many there are


def ours(law: str, scale: float, draws: int, secure: bool) -> Callable[[], Any]:
    bits = random_bits(None if secure else np.random.default_rng(1))
    if law == "Laplace":
        return lambda: discrete_laplace(1 / scale, 1, draws, bits)
    return lambda: discrete_gaussian(scale, draws, bits)


def numpys(law: str, scale: float, draws: int) -> Callable[[], Any]:
    rng = np.random.default_rng(1)
    draw = rng.laplace if law == "Laplace" else rng.normal
    return lambda: np.rint(draw(scale=scale, size=draws)).astype(np.int64)


def opendps(law: str, scale: float, draws: int) -> Callable[[], Any]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    metric = dp.l1_distance(T=int) if law == "Laplace" else dp.l2_distance(T=float)
    make = dp.m.make_laplace if law == "Laplace" else dp.m.make_gaussian
    measurement, zeros = make(dp.vector_domain(dp.atom_domain(T=int)), metric, scale), [0] * draws
    return lambda: measurement(zeros)


def diffprivlibs(law: str, scale: float, draws: int) -> Callable[[], Any]:
    from diffprivlib import mechanisms

    if law == "Laplace":
        one = mechanisms.Geometric(epsilon=1 / scale, sensitivity=1)
    else:
        one = mechanisms.GaussianDiscrete(epsilon=3 / scale, delta=1e-3, sensitivity=1)  # about this scale
    return lambda: [one.randomise(0) for _ in range(draws)]


def section(smoke: bool) -> str:
    draws = DRAWS // 10 if smoke else DRAWS
    peers = [(n, f) for n, f in (("opendp", opendps), ("diffprivlib", diffprivlibs)) if _peers.missing(n) is None]
    rows = []
    for law in ("Laplace", "Gaussian"):
        for scale in (10.0, 1000.0):
            runs = [ours(law, scale, draws, secure=True), ours(law, scale, draws, secure=False)]
            times = [_peers.median_seconds(run) for run in [*runs, numpys(law, scale, draws)]]
            for name, make in peers:
                few = PEER_DRAWS[name]
                times.append(_peers.median_seconds(make(law, scale, few), 3) * draws / few)
            ratio = [f"{times[3] / times[0]:,.0f}"] if peers else []
            rows.append([f"{law}, scale {scale:g}", *map(_peers.seconds, times), *ratio])
    header = ["law", "dptopk (secure)", "dptopk (NumPy generator)", "NumPy (rounded floats)", *(n for n, _ in peers)]
    return _peers.table(header + ([f"{peers[0][0]} / dptopk (secure)"] if peers else []), rows)
