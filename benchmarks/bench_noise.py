"""Draws of exact integer noise against NumPy's float noise and OpenDP's exact noise, where it is
installed.

Run as ``python benchmarks/bench_noise.py [draws]``. All ratios come from one run; times are
medians.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import _timing
import numpy as np

from dptopk.mechanisms.samplers.noise import gaussian_law, laplace_law
from dptopk.mechanisms.samplers.random import random_bits

SCALES = [0.5, 10.0, 1000.0, 1e9]
OPENDP_DRAWS = 20_000  # a fraction of the draws: its time per draw does not depend on their number


def ours(kind: str, scale: float, draws: int, rng: np.random.Generator | None) -> Callable[[], Any]:
    """A run with the secure source (None) or a NumPy generator."""
    bits = random_bits(rng)
    if kind == "Laplace":
        return lambda: laplace_law(1.0 / scale, 1).sample(draws, bits)
    return lambda: gaussian_law(scale).sample(draws, bits)


def numpy_floats(kind: str, scale: float, draws: int) -> Callable[[], Any]:
    """A run of NumPy's float noise, rounded to integers; its law is not exact."""
    rng = np.random.default_rng(1)
    draw = rng.laplace if kind == "Laplace" else rng.normal
    return lambda: np.rint(draw(scale=scale, size=draws)).astype(np.int64)


def opendp(kind: str, scale: float, draws: int) -> Callable[[], Any]:
    """A run of OpenDP's discrete noise on a vector of integers."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    metric = dp.l1_distance(T=int) if kind == "Laplace" else dp.l2_distance(T=float)
    make = dp.m.make_laplace if kind == "Laplace" else dp.m.make_gaussian
    measurement = make(dp.vector_domain(dp.atom_domain(T=int)), metric, scale)
    zeros = [0] * draws
    return lambda: measurement(zeros)


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    peer = importlib.util.find_spec("opendp") is not None
    rows = []
    for kind in ("Laplace", "Gaussian"):
        for scale in SCALES:
            secure = _timing.seconds(ours(kind, scale, draws, None))
            seeded = _timing.seconds(ours(kind, scale, draws, np.random.default_rng(1)))
            floats = _timing.seconds(numpy_floats(kind, scale, draws))
            row = [
                f"{kind} {scale:g}",
                *(f"{1e3 * t:.1f}" for t in (secure, seeded, floats)),
                f"{secure / floats:.2f}",
            ]
            if peer:
                theirs = (
                    _timing.seconds(opendp(kind, scale, OPENDP_DRAWS), 3) * draws / OPENDP_DRAWS
                )
                row += [f"{1e3 * theirs:.0f}", f"{theirs / secure:.0f}", f"{theirs / seeded:.0f}"]
            rows.append(row)
    header = ["law, scale", "secure", "seeded", "NumPy floats", "secure / floats"]
    header += ["OpenDP", "OpenDP / secure", "OpenDP / seeded"] if peer else []
    _timing.table(f"Milliseconds for {draws} draws; {_timing.load()}", header, rows)
    setup()


def setup() -> None:
    """The first draw at a scale builds its table."""
    makers = (lambda scale: laplace_law.__wrapped__(1.0 / scale, 1), gaussian_law.__wrapped__)
    rows = [
        [f"{scale:g}", *(f"{1e3 * first_draws(make, scale):.2f}" for make in makers)]
        for scale in SCALES
    ]
    _timing.table(
        "Milliseconds for the first 25 draws at a scale", ["scale", "Laplace", "Gaussian"], rows
    )


def first_draws(make: Callable[[float], Any], scale: float) -> float:
    """Seconds for a new law and its first draws."""
    return _timing.seconds(lambda: make(scale).sample(25, random_bits()))


if __name__ == "__main__":
    main()
