"""DDR 2020, Figure 2: the functions U(λ) >= ln E e^{λL} that lie behind the composition bounds, at
ε = 1.
"""

from __future__ import annotations

import numpy as np

from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, claim

TITLE = "Moment generating functions behind the composition bounds"
SOURCE = "Dong-Durfee-Rogers 2020, Figure 2"
SETTING = "ε = 1. A smaller U gives a smaller ε_g: ln δ = min over λ of -λ ε_g + Σ U(λ)."

EPSILON = 1.0
CURVES = ("Improved DRV10", "DR19", "KL-improved DR19", "General MGF")


def compute(settings: RunSettings) -> Table:
    """Return the four functions for λ in (0, 10], a column each; the first three are quadratic,
    mean·λ + variance·λ²/2.
    """
    import pandas as pd

    from dptopk.accounting.cost_models.conversions import max_kl
    from dptopk.accounting.pld.log_mgf import bounded_range_log_mgf

    lam = np.linspace(0, 10, 21 if settings.quick else 201)[1:]
    epsilon_squared = EPSILON**2
    means_and_variances = {
        "Improved DRV10": (epsilon_squared / 2, epsilon_squared),
        "DR19": (epsilon_squared / 2, epsilon_squared / 4),
        "KL-improved DR19": (max_kl(EPSILON), epsilon_squared / 4),
    }
    columns = {"lambda": lam}
    for name, (mean, variance) in means_and_variances.items():
        columns[name] = mean * lam + variance * lam**2 / 2
    columns["General MGF"] = bounded_range_log_mgf(EPSILON, lam)
    return pd.DataFrame(columns)


def plot(data: Table) -> Figure:
    """Plot all curves for λ up to 10 and, in a second panel, up to 2."""
    parts = []
    for top in (10, 2):
        series = style.series_of_columns(data[data["lambda"] <= top], CURVES, "lambda")
        parts.append((f"ε = 1, λ up to {top}", series))
    figure, panels = style.panels(parts, width=9, height=3.9, xlabel="λ", ylabel="U(λ)")
    style.legend_beside(panels[-1])
    return figure


def compare(data: Table) -> list[Comparison]:
    """Check that each function is smaller, hence tighter, than the one before."""
    values = data[list(CURVES)].to_numpy()
    distance = data["lambda"] - 2
    two = data.iloc[distance.abs().argmin()]
    others = values[:, :-1].min(axis=1)
    smallest = (others > values[:, -1]).all()
    *_, following, last = CURVES
    at_two = f"at λ = 2 it is {two[last]:.5f}, the next one {two[following]:.5f}"
    steps = np.diff(values, axis=1)
    return [
        claim("each is below the one before", "proved", (steps < 0).all()),
        claim("General MGF is the smallest of all", "“the smallest U among all”", smallest, at_two),
    ]
