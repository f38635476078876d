"""Time and width of compositions with several (ε, δ) constraints, and how the f-DP bracket closes;
about 20 s.

python benchmarks/bench_regions.py
"""

from __future__ import annotations

import time

import numpy as np

from dptopk import Charge, MultiDP
from dptopk.accounting.bounds import compose
from dptopk.accounting.published.cadir_najib_shkel.approximation import (
    area_between,
    best_chords,
    best_tangents,
    compose_f_dp,
    proposition_1,
)
from dptopk.accounting.published.cadir_najib_shkel.regions import (
    composition_region,
    separate_region,
    total_variation_region,
)
from dptopk.accounting.published.cadir_najib_shkel.tradeoff import GaussianTradeoff

FIGURE_2 = ((0.3, 0.0), (0.15, 0.02))
TWO = ((0.31234, 0.0), (0.15, 0.02))
FIVE = ((0.5123, 0.0), (0.41123, 0.001), (0.3071, 0.005), (0.20013, 0.02), (0.10077, 0.06))


def compositions() -> None:
    print("composition at delta = 1e-6\nn\tk\trtol\tseconds\tepsilon\trelative width")
    for constraints in (TWO, FIVE):
        for k in (20, 200, 1000, 10_000):
            for rtol in (1e-3, 1e-5):
                start = time.perf_counter()
                found = compose(
                    Charge({MultiDP(constraints): k}), delta=1e-6, bound="multi_dp", rtol=rtol
                )
                seconds = time.perf_counter() - start
                width = 1 - (found.lower or 0.0) / found.epsilon
                print(
                    f"{len(constraints)}\t{k}\t{rtol:g}\t{seconds:.2f}\t{found.epsilon:.8g}\t{width:.1e}"
                )


def figure_2() -> None:
    print("\nsetting of Figure 2\nk\tepsilon\texact\tRemark 1\tRemark 2")
    for k in (3, 20):
        regions = (
            composition_region(FIGURE_2, k),
            separate_region(FIGURE_2, k),
            total_variation_region(*FIGURE_2, k),
        )
        for epsilon in np.array([0.0, 0.05, 0.1, 0.15]) * k:
            print(
                f"{k}\t{epsilon:.2f}\t"
                + "\t".join(f"{float(region.delta(epsilon)):.6g}" for region in regions)
            )


def gaussian() -> None:
    g = GaussianTradeoff(1.0)
    print(
        f"\narea between G_1 and two tangents: printed {area_between(g, proposition_1(g)):.6f}",
        end="",
    )
    print(f", best {area_between(g, best_tangents(g, 2)):.6f}")
    print("k\tpieces\tslopes\tepsilon\tlower\texact\tupper")
    for k, epsilon in ((3, 2.0), (10, 2.0), (10, 8.0)):
        exact = float(GaussianTradeoff(k**0.5).delta(epsilon))
        for pieces in (1, 2, 3, 4, 8, 16, 32, 64):
            for name, slopes in (
                ("least area", None),
                ("evenly spaced", np.linspace(0, 8, pieces + 1)[1:]),
            ):
                lower, upper = compose_f_dp(
                    g, k, at_epsilon=[epsilon], pieces=pieces, slopes=slopes
                )
                print(
                    f"{k}\t{pieces}\t{name}\t{epsilon:g}\t{lower[0]:.6g}\t{exact:.6g}\t{upper[0]:.6g}"
                )
    print("chords\tn² area\ttangents\tn² area")
    for pieces in (2, 8, 32):
        areas = (
            area_between(g, best(g, pieces)) * pieces**2 for best in (best_chords, best_tangents)
        )
        print(pieces, *(f"{area:.5f}" for area in areas), sep="\t")


if __name__ == "__main__":
    compositions()
    figure_2()
    gaussian()
