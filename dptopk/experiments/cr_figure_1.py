"""CR 2022, Figure 1: eq. (3) for k mechanisms, m of them ε-DP and the others ε-BR, and the optimal
DP bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dptopk.accounting.bounds import compose
from dptopk.costs import BoundedRange, Charge, PureDP
from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, claim, table_of

TITLE = "Set-wise composition of DP and BR mechanisms by concentration"
SOURCE = "Cesar-Rogers 2022, Figure 1"
SETTING = (
    "k mechanisms, m of them ε-DP and k - m ε-BR, eq. (3). The paper does not print ε and "
    "δ; here δ = 1e-6."
)

DELTA = 1e-6
LARGEST_K = {0.01: 1000, 0.1: 100}  # ε -> the largest number k of mechanisms
# Curve -> which share of the k mechanisms is ε-DP.
SHARES = {"m = k": 1.0, "m = 3k/4": 0.75, "m = k/2": 0.5, "m = k/4": 0.25, "m = 0": 0.0}
OPTIMAL = "optimal DP bound (KOV)"
ALMOST = 0.1  # the relative distance that is taken for "almost the same"


def mix(epsilon: float, k: int, pure: int) -> Charge:
    """Return the charge of ``pure`` mechanisms ε-DP and k - ``pure`` mechanisms ε-BR."""
    return Charge({PureDP(epsilon): pure, BoundedRange(epsilon): k - pure})


def _rows_at(point: tuple[float, int]) -> list[dict[str, Any]]:
    """Return a row for each curve, with its ε_g at δ = 1e-6.

    Args:
        point: ε and k.
    """
    epsilon, k = point
    totals = {}
    for label, share in SHARES.items():
        charge = mix(epsilon, k, round(share * k))
        totals[label] = compose(charge, delta=DELTA, bound="setwise_cdp").epsilon
    totals[OPTIMAL] = compose(mix(epsilon, k, k), delta=DELTA, bound="optimal_dp").epsilon
    return [
        {"epsilon": epsilon, "k": k, "curve": label, "epsilon_global": total}
        for label, total in totals.items()
    ]


def compute(settings: RunSettings) -> Table:
    """Return ε_g for each ε, k and curve; k is a multiple of 4, so that m is whole."""
    number = 5 if settings.quick else 26
    points = []
    for epsilon, most in LARGEST_K.items():
        fourths = np.linspace(4, most, number) // 4
        points += [(epsilon, int(k)) for k in np.unique(fourths * 4)]
    return table_of(_rows_at, points, settings)


def plot(data: Table) -> Figure:
    """Plot ε_g against k, a panel for each ε."""
    figure, panels = style.epsilon_panels(data, (OPTIMAL, *SHARES), width=9.5, height=3.9)
    style.legend_beside(panels[-1])
    return figure


def compare(data: Table) -> list[Comparison]:
    """Check that ε_g falls with m, and that m = k/2 is almost the optimal DP bound."""
    wide = data.pivot_table(index=["epsilon", "k"], columns="curve", values="epsilon_global")
    k = wide.index.get_level_values("k")
    ratio = wide["m = k/2"] / wide[OPTIMAL]
    # k = 4, the smallest, is left out: there eq. (3), a bound by concentration, is twice the sum of
    # all ε, which is about the optimal DP bound.
    excess = ratio[k > k.min()] - 1
    almost = excess.abs().median() < ALMOST
    spread = f"{excess.min():+.1%} to {excess.max():+.1%}"
    measured = f"{spread}, median {excess.median():+.1%}"
    steps = np.diff(wide[list(SHARES)].to_numpy(), axis=1)
    falls = (steps < 0).all()
    return [
        claim("ε_g falls with m, the number of DP mechanisms", "shown", falls),
        claim(
            "m = k/2 by eq. (3) is almost the optimal DP bound",
            "“almost the same”",
            almost,
            measured,
        ),
    ]
