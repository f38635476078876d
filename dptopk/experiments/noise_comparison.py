"""ε of Laplace and Gaussian noise of the same standard deviation, for CR 2022, Figures 4 and 5."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dptopk.accounting.bounds import compose
from dptopk.accounting.gaussian.pair import gaussian_epsilon
from dptopk.accounting.pure_dp.homogeneous import optimal_dp_epsilon
from dptopk.accounting.renyi.concentrated import zcdp_epsilon
from dptopk.costs import ApproxDP, Charge
from dptopk.experiments import style
from dptopk.experiments.experiment import Figure, Table

if TYPE_CHECKING:
    import pandas as pd

DELTA = 1e-6
LAPLACE = "Laplace Noise"
ANALYTIC = "Optimal Gaussian with ℓ2-sensitivity"
CONCENTRATED = "Gaussian Noise with zCDP"
EXACT = "Gaussian, exact composition (ours)"


def laplace(epsilon: float, touched: int) -> float:
    """CR Lemma 6.2: noise Lap(1/ε) on counts of which one user can change ``touched``."""
    return float(optimal_dp_epsilon(epsilon, touched, delta=DELTA))


def concentrated(epsilon: float, touched: int) -> float:
    """CR Lemma 6.3 for Gaussian noise with the variance of Lap(1/ε), 2/ε²."""
    return float(zcdp_epsilon(touched * epsilon**2 / 4, delta=DELTA))


def exact(epsilon: float, touched: int) -> float:
    """CR Lemma 6.1 for the same noise; also the exact composition, because Gaussians compose to a
    Gaussian.
    """
    return float(gaussian_epsilon(math.sqrt(touched / 2) * epsilon, delta=DELTA))


def one_by_one(epsilon: float, touched: int, count: int, splits: int) -> float:
    """Lemma 6.1 for each of ``count`` mechanisms at the best δ', then the optimal composition of
    (ε', δ')-DP.
    """
    mu = math.sqrt(touched / 2) * epsilon
    deltas = np.geomspace(1e-4, 0.999, splits) * DELTA / count
    pairs = zip(gaussian_epsilon(mu, delta=deltas).tolist(), deltas.tolist(), strict=True)
    charges = [Charge({ApproxDP(*pair): count}) for pair in pairs]
    return min(compose(charge, delta=DELTA, bound="optimal_dp").epsilon for charge in charges)


def crossing(x: pd.Series, one: pd.Series, other: pd.Series) -> float:
    """The smallest x at which ``one`` is above ``other``, or NaN."""
    above = x[(one > other).to_numpy()]
    if len(above):
        return float(above.min())
    return math.nan


def plot(data: Table, x: str, names: list[str], label: str, *, columns: int) -> Figure:
    """One panel an ε of the Laplace noise; a legend of some columns below."""
    parts = []
    for epsilon, part in data.groupby("epsilon"):
        deviation = math.sqrt(2) / epsilon
        title = f"Lap(1/ε) with ε = {epsilon:g}; standard deviation {deviation:.3g}"
        parts.append((title, style.wide(part, names, x)))
    figure, axes = style.panels(
        parts, width=9.5, height=3.9, xlabel=label, ylabel="ε_g at δ = 1e-6"
    )
    style.legend_below(figure, axes[0], columns=columns)
    return figure
