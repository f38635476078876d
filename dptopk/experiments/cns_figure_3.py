"""CNS 2026, Figure 3: the Gaussian composed through tangents and chords, against the exact
composition.
"""

from __future__ import annotations

import math

import numpy as np

from dptopk.accounting.published.cadir_najib_shkel.approximation import (
    best_chords,
    compose_f_dp,
    proposition_1,
)
from dptopk.accounting.published.cadir_najib_shkel.regions import composition_region
from dptopk.accounting.published.cadir_najib_shkel.tradeoff import (
    GaussianTradeoff,
    PiecewiseLinear,
    TradeoffFunction,
)
from dptopk.experiments import regions_plot
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table

TITLE = "Composition of a Gaussian mechanism through a few constraints"
SOURCE = "Cadir-Najib-Shkel 2026, Figure 3"
SETTING = "μ = 1, k in {3, 10}; two pieces as in the paper, and more."

MU = 1.0
KS = (3, 10)
PIECES = 16  # of our own bounds, from above and below
ROUNDING = 1e-9  # of an error probability, and of its interpolation
EXACT = "exact (μ√k)"
BELOW = "Proposition 1 (two tangents)"
ABOVE = "Proposition 2 (two chords)"
MORE_BELOW = f"{PIECES} tangents (ours)"
MORE_ABOVE = f"{PIECES} chords (ours)"


def compute(settings: RunSettings) -> Table:
    """Return points of the boundaries for each k: the exact one, those by two pieces as in the
    paper, and those by more pieces.
    """
    import pandas as pd

    gaussian = GaussianTradeoff(MU)
    rows = []
    for k in KS:
        curves: dict[str, TradeoffFunction] = {EXACT: GaussianTradeoff(MU * math.sqrt(k))}
        for label, approximation in (
            (BELOW, proposition_1(gaussian)),
            (ABOVE, best_chords(gaussian, 2)),
        ):
            curves[label] = composition_region(approximation.constraints(), k).tradeoff
        curves |= _many_piece_curves(gaussian, k, points=13 if settings.quick else 121)
        rows += regions_plot.rows(curves, k=k)
    return pd.DataFrame(rows)


def _many_piece_curves(
    gaussian: GaussianTradeoff, k: int, points: int
) -> dict[str, TradeoffFunction]:
    """Return our bounds on the k-fold composition from above and below, by their labels.

    Args:
        gaussian: the trade-off function of one mechanism.
        k: how many mechanisms are composed.
        points: at how many values of ε the δ of each bound is computed.
    """
    epsilons = np.linspace(0, 3 * MU * math.sqrt(k), points)
    line_width = 1e-3  # of the figure
    ours = compose_f_dp(gaussian, k, at_epsilon=epsilons, pieces=PIECES, rtol=line_width)
    curves: dict[str, TradeoffFunction] = {}
    for label, deltas in zip((MORE_ABOVE, MORE_BELOW), ours, strict=True):
        pairs = zip(epsilons.tolist(), deltas.tolist(), strict=True)
        constraints = [(epsilon, delta) for epsilon, delta in pairs if delta > 0]
        curves[label] = PiecewiseLinear.from_constraints(constraints)
    return curves


def plot(data: Table) -> Figure:
    """Plot the boundaries, a panel for each k, the second one magnified."""
    return regions_plot.panels(data, KS, (1.0, 0.3))


def compare(data: Table) -> list[Comparison]:
    """Check that the exact curve lies between the approximations; report how far these are apart,
    and the smaller ε of the best lower one.
    """
    lines = []
    for k in KS:
        lines += _distance_lines(data[data["k"] == k], k)
    _, (smaller, _) = proposition_1(GaussianTradeoff(MU)).constraints()
    ours = f"its smaller ε is {smaller:.3f}"
    quantity = "best lower one is total variation (ε = 0)"
    return [*lines, Comparison(quantity, "no", ours, bool(smaller > 0))]


def _distance_lines(data: Table, k: int) -> list[Comparison]:
    """Return two lines for one k: whether the exact curve is between the approximations, and how
    far these are apart.

    Args:
        data: the boundaries for this k, a row a point.
        k: how many mechanisms are composed.
    """
    exact = GaussianTradeoff(MU * math.sqrt(k))
    type_1_errors = np.linspace(0, exact.fixed_point, 2001)
    curves = regions_plot.type_2_errors(data, type_1_errors)
    exact_errors = exact(type_1_errors)
    exact_is_above = curves[BELOW] <= exact_errors + ROUNDING
    exact_is_below = curves[ABOVE] >= exact_errors - ROUNDING
    is_between = bool(exact_is_above.all() and exact_is_below.all())
    width = (curves[ABOVE] - curves[BELOW]).max()
    ours = (curves[MORE_ABOVE] - curves[MORE_BELOW]).max()
    verdict = "holds" if is_between else "fails"
    return [
        Comparison(f"k = {k}: exact in between", "holds", verdict, is_between),
        Comparison(f"k = {k}: largest distance", "“close”", f"{width:.3f}; ours {ours:.3f}"),
    ]
