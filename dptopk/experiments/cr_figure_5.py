"""CR 2022, Figure 5: k releases with Δ = 10 each, Laplace or Gaussian noise of the same standard
deviation.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product

from dptopk.experiments import noise_comparison as noise
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, claim, table_of

TITLE = "Laplace against Gaussian noise of equal variance, several releases"
SOURCE = "Cesar-Rogers 2022, Figure 5"
SETTING = (
    "δ = 1e-6, Δ = 10, τ = 1, σ = √2/ε. The paper composes Lemma 6.1 as (ε', δ')-DP by the optimal "
    "theorem, here at the best δ'; the exact composition of Gaussians, a Gaussian again, is ours."
)

EPSILONS = (0.1, 1.0)
TOUCHED = 10  # Δ, how many counts of each release one user can change
CURVES = [noise.LAPLACE, noise.ANALYTIC, noise.CONCENTRATED, noise.EXACT]


def _row_at(point: tuple[float, int], splits: int) -> tuple[float, ...]:
    """Return the row of one point: ε, k, and ε_g by the four bounds.

    Args:
        point: the ε of the Laplace noise, and the number k of releases.
        splits: how many values of δ' are tried for the paper's composition of Gaussians.
    """
    epsilon, k = point
    all_touched = k * TOUCHED  # k releases cost what one of k times as many counts costs
    return (
        epsilon,
        k,
        noise.laplace_epsilon(epsilon, all_touched),
        noise.composed_gaussian_epsilon(epsilon, TOUCHED, k, splits),
        noise.zcdp_gaussian_epsilon(epsilon, all_touched),
        noise.exact_gaussian_epsilon(epsilon, all_touched),
    )


def compute(settings: RunSettings) -> Table:
    """Return ε_g by the three bounds of the paper and by exact composition, for k = 1..10."""
    releases = (1, 2, 10) if settings.quick else range(1, 11)
    points = list(product(EPSILONS, releases))
    task = partial(_row_at, splits=6 if settings.quick else 40)
    return table_of(task, points, settings, ["epsilon", "k", *CURVES])


def plot(data: Table) -> Figure:
    """Plot ε_g against k, a panel for each ε."""
    return noise.plot(data, "k", CURVES, "number of releases k, each with Δ = 10", columns=2)


def compare(data: Table) -> list[Comparison]:
    """Check the paper's statements, and report what exact composition changes."""
    lines = []
    for epsilon, part in data.groupby("epsilon"):
        several = part[part["k"] > 1]
        best_of_others = several[[noise.LAPLACE, noise.CONCENTRATED]].min(axis=1)
        share_losing = (several[noise.ANALYTIC] > best_of_others).mean()
        measured = f"above another bound at {share_losing:.0%} of k > 1"
        last = several.iloc[-1]
        ratio_to_laplace = last[noise.EXACT] / last[noise.LAPLACE]
        crossing = noise.crossing(part["k"], part[noise.LAPLACE], part[noise.CONCENTRATED])
        first_below = "not up to k = 10" if math.isnan(crossing) else f"from k = {crossing:.0f} on"
        setting = f"ε = {epsilon:g}"
        lines += [
            claim(
                f"{setting}: the best one-shot bound is not the best when composed",
                "shown",
                share_losing > 0.5,  # for most k
                measured,
            ),
            Comparison(
                f"{setting}: zCDP Gaussian below Laplace", "“after a large enough k”", first_below
            ),
            Comparison(
                f"{setting}: exact Gaussian ε_g at k = 10",
                "not shown",
                f"{ratio_to_laplace:.2f} of Laplace's",
            ),
        ]
    return lines
