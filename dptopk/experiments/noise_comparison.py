"""The ε of Laplace and Gaussian noise of the same standard deviation, for CR 2022, Figures 4 and 5.

In all functions ``epsilon`` is that of the Laplace noise Lap(1/ε), ``touched`` is how many counts
one user can change by 1, and the result is ε_g at δ = 1e-6.
"""

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


def laplace_epsilon(epsilon: float, touched: int) -> float:
    """Return ε_g of Laplace noise on ``touched`` counts, by CR Lemma 6.2."""
    return float(optimal_dp_epsilon(epsilon, touched, delta=DELTA))


def zcdp_gaussian_epsilon(epsilon: float, touched: int) -> float:
    """Return ε_g of Gaussian noise on ``touched`` counts with the variance 2/ε² of Lap(1/ε), by CR
    Lemma 6.3 (zCDP).
    """
    rho = touched * epsilon**2 / 4  # touched / (2 σ²) with σ² = 2/ε²
    return float(zcdp_epsilon(rho, delta=DELTA))


def exact_gaussian_epsilon(epsilon: float, touched: int) -> float:
    """Return the exact ε_g of Gaussian noise on ``touched`` counts with the variance 2/ε² of
    Lap(1/ε), by CR Lemma 6.1; it is also that of a composition, because Gaussians compose to a
    Gaussian.
    """
    mu = math.sqrt(touched / 2) * epsilon  # √touched / σ with σ = √2/ε
    return float(gaussian_epsilon(mu, delta=DELTA))


def composed_gaussian_epsilon(epsilon: float, touched: int, count: int, splits: int) -> float:
    """Return ε_g of several Gaussian mechanisms, each taken as (ε', δ')-DP by CR Lemma 6.1, by the
    optimal composition, at the best of a few values of δ'.

    Args:
        epsilon: that of Laplace noise of the same variance.
        touched: how many counts one user can change by 1 in each.
        count: how many mechanisms there are.
        splits: how many values of δ' are tried.
    """
    mu = math.sqrt(touched / 2) * epsilon  # as in ``exact_gaussian_epsilon``
    # The δ' add up to less than δ: what they leave is for the composition.
    deltas = np.geomspace(1e-4, 0.999, splits) * DELTA / count
    pairs = zip(gaussian_epsilon(mu, delta=deltas).tolist(), deltas.tolist(), strict=True)
    charges = [Charge({ApproxDP(*pair): count}) for pair in pairs]
    return min(compose(charge, delta=DELTA, bound="optimal_dp").epsilon for charge in charges)


def crossing(x: pd.Series, curve: pd.Series, reference: pd.Series) -> float:
    """Return the smallest x at which a curve is above a reference curve; NaN if it never is.

    Args:
        x: the abscissas, shape (points,).
        curve: the values of the curve, shape (points,).
        reference: those of the reference, shape (points,).
    """
    above = x[(curve > reference).to_numpy()]
    if len(above):
        return float(above.min())
    return math.nan


def plot(data: Table, x: str, names: list[str], label: str, *, columns: int) -> Figure:
    """Plot ε_g of some curves against a column, a panel for each ε, with a legend below.

    Args:
        data: a wide table, with a column epsilon and one for each curve.
        x: the column of abscissas.
        names: the columns of the curves.
        label: the label of the x axis.
        columns: how many columns the legend has.
    """
    parts = []
    for epsilon, part in data.groupby("epsilon"):
        deviation = math.sqrt(2) / epsilon
        title = f"Lap(1/ε) with ε = {epsilon:g}; standard deviation {deviation:.3g}"
        parts.append((title, style.series_of_columns(part, names, x)))
    figure, axes = style.panels(
        parts, width=9.5, height=3.9, xlabel=label, ylabel="ε_g at δ = 1e-6"
    )
    style.legend_below(figure, axes[0], columns=columns)
    return figure
