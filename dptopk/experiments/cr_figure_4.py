"""CR 2022, Figure 4: one release of Laplace or Gaussian counts of the same standard deviation, against Δ."""

from __future__ import annotations

import math

from dptopk.experiments import noise_comparison as noise, style
from dptopk.experiments.experiment import Comparison, Figure, Settings, Table, claim

TITLE = "Laplace against Gaussian noise of equal variance, one release"
SOURCE = "Cesar-Rogers 2022, Figure 4"
SETTING = "δ = 1e-6, τ = 1, σ = √2/ε. Lemma 6.2, Lemma 6.1 (Balle-Wang), Lemma 6.3. The paper does not print ε."

EPSILONS = (0.1, 1.0)
CURVES = [noise.LAPLACE, noise.ANALYTIC, noise.CONCENTRATED]


def compute(settings: Settings) -> Table:
    """The three bounds for each ε of the Laplace noise and each Δ up to 100."""
    import pandas as pd

    touched = range(1, 101, 11) if settings.quick else range(1, 101)
    rows = [
        (epsilon, n, noise.laplace(epsilon, n), noise.exact(epsilon, n), noise.concentrated(epsilon, n))
        for epsilon in EPSILONS
        for n in touched
    ]
    return pd.DataFrame(rows, columns=["epsilon", "l0", *CURVES])


def plot(data: Table) -> Figure:
    """One panel an ε."""
    figure, axes = style.figure(1, len(EPSILONS), width=9.5, height=3.9)
    noise.panels(list(axes), data, "l0", CURVES, "Δ, how many counts one user touches")
    style.legend_below(figure, axes[0])
    return figure


def compare(data: Table) -> list[Comparison]:
    """Report which bound is smallest where."""
    lines = []
    for epsilon, part in data.groupby("epsilon"):
        at = noise.crossing(part["l0"], part[noise.LAPLACE], part[noise.ANALYTIC])
        tighter = part.iloc[0][noise.LAPLACE] < part.iloc[0][noise.ANALYTIC]
        lines += [
            claim(f"ε = {epsilon:g}: Laplace wins at small Δ", "shown", tighter),
            claim(f"ε = {epsilon:g}: Gaussian wins as Δ grows", "shown", not math.isnan(at), f"from Δ = {at:.0f} on"),
            claim(
                f"ε = {epsilon:g}: zCDP is above the optimal Gaussian",
                "shown",
                (part[noise.CONCENTRATED] > part[noise.ANALYTIC]).all(),
            ),
        ]
    return lines
