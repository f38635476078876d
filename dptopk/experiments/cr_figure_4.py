"""CR 2022, Figure 4: one release of Laplace or Gaussian counts of the same standard deviation,
against Δ.
"""

from __future__ import annotations

import math
from itertools import product

from dptopk.experiments import noise_comparison as noise
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, claim, table_of

TITLE = "Laplace against Gaussian noise of equal variance, one release"
SOURCE = "Cesar-Rogers 2022, Figure 4"
SETTING = (
    "δ = 1e-6, τ = 1, σ = √2/ε. Lemma 6.2, Lemma 6.1 (Balle-Wang), Lemma 6.3. The paper "
    "does not print ε."
)

EPSILONS = (0.1, 1.0)  # of the Laplace noise
CURVES = [noise.LAPLACE, noise.ANALYTIC, noise.CONCENTRATED]


def _row_at(point: tuple[float, int]) -> tuple[float, ...]:
    """Return the row of one point: ε, Δ, and ε_g by the three bounds.

    Args:
        point: the ε of the Laplace noise, and Δ.
    """
    epsilon, touched = point
    return (
        epsilon,
        touched,
        noise.laplace_epsilon(epsilon, touched),
        noise.exact_gaussian_epsilon(epsilon, touched),
        noise.zcdp_gaussian_epsilon(epsilon, touched),
    )


def compute(settings: RunSettings) -> Table:
    """Return ε_g by the three bounds for each ε of the Laplace noise and each Δ up to 100."""
    numbers = range(1, 101, 11 if settings.quick else 1)
    points = list(product(EPSILONS, numbers))
    return table_of(_row_at, points, settings, ["epsilon", "l0", *CURVES])


def plot(data: Table) -> Figure:
    """Plot ε_g against Δ, a panel for each ε."""
    return noise.plot(data, "l0", CURVES, "Δ, how many counts one user touches", columns=4)


def compare(data: Table) -> list[Comparison]:
    """Check that Laplace noise is better at small Δ and Gaussian noise at large Δ, and that the
    zCDP bound is above the exact one.
    """
    lines = []
    for epsilon, part in data.groupby("epsilon"):
        crossing = noise.crossing(part["l0"], part[noise.LAPLACE], part[noise.ANALYTIC])
        tighter = part.iloc[0][noise.LAPLACE] < part.iloc[0][noise.ANALYTIC]
        above = (part[noise.CONCENTRATED] > part[noise.ANALYTIC]).all()
        lines += [
            claim(f"ε = {epsilon:g}: Laplace wins at small Δ", "shown", tighter),
            claim(
                f"ε = {epsilon:g}: Gaussian wins as Δ grows",
                "shown",
                not math.isnan(crossing),
                f"from Δ = {crossing:.0f} on",
            ),
            claim(f"ε = {epsilon:g}: zCDP is above the optimal Gaussian", "shown", above),
        ]
    return lines
