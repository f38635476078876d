"""CNS 2026, Figure 1: two privacy regions and their mixture in equal parts."""

from __future__ import annotations

from dptopk.accounting.published.cadir_najib_shkel.tradeoff import PiecewiseLinear, mix
from dptopk.experiments import regions_plot, style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table

TITLE = "Mixture of two privacy regions"
SOURCE = "Cadir-Najib-Shkel 2026, Figure 1"
SETTING = "f_{1.3, 0} and f_{0.5, 0.2}, each picked with probability 1/2."

PAIRS = ((1.3, 0.0), (0.5, 0.2))  # (ε, δ)
MIXTURE = "mixture, α = 1/2"


def compute(_settings: RunSettings) -> Table:
    """Return the vertices of the boundaries of the two regions and of their mixture."""
    import pandas as pd

    curves = {}
    for epsilon, delta in PAIRS:
        label = f"ε = {epsilon:g}, δ = {delta:g}"
        curves[label] = PiecewiseLinear.from_constraints([(epsilon, delta)])
    curves[MIXTURE] = mix(list(curves.values()), [0.5, 0.5])
    return pd.DataFrame(regions_plot.rows(curves))


def plot(data: Table) -> Figure:
    """Plot the three boundaries."""
    figure, axes = style.figure(width=4.4, height=4.4)
    regions_plot.boundaries(axes, data)
    axes.legend(loc="upper right")
    return figure


def compare(data: Table) -> list[Comparison]:
    """Check the two statements under the figure: neither the mixture nor the union of the two
    regions includes the other.
    """
    import numpy as np

    t = np.linspace(0, 1, 1001)
    curves = regions_plot.type_2_errors(data, t)
    mixture = curves.pop(MIXTURE)
    union = np.minimum(*curves.values())
    excess = (union - mixture).max()
    shortfall = (mixture - union).max()
    return [
        Comparison(
            "mixture includes the union",
            "not always",
            f"misses it by up to {shortfall:.3f}",
            bool(shortfall > 0),
        ),
        Comparison(
            "union includes the mixture",
            "not always",
            f"passes it by up to {excess:.3f}",
            bool(excess > 0),
        ),
    ]
