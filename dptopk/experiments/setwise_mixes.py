"""Mixes of BR, DP and Gaussian costs in any order: the optimum compared with the published set-wise
bounds.
"""

from __future__ import annotations

import numpy as np

from dptopk.accounting.bounds import compose
from dptopk.costs import Charge
from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, claim, table_of

TITLE = "Registered mixes of costs, picked in any order"
SOURCE = "dptopk; Cesar-Rogers 2022, Lemmas 3.3 and 3.4"
SETTING = "Mixes of ε-BR, ε-DP, Gaussian and discrete Gaussian costs, δ = 1e-6, set-wise adaptive."

MIXES = (
    "100*BR(0.1)",
    "50*BR(0.1) + 50*DP(0.1)",
    "20*BR(0.1) + 20*BR(0.05) + 5*DP(0.2)",
    "50*BR(0.1) + GDP(0.5)",
    "10*BR(0.5) + 5*DP(0.3)",
    "200*BR(0.05) + 20*DP(0.1) + GDP(0.5)",
    "25*DP(0.1) + 25*DGauss(20.0, 1)",
)
BOUNDS = {
    "setwise_cdp": "CR Lemma 3.3 (CDP)",
    "setwise_zcdp": "CR Lemma 3.4 (zCDP)",
    "zcdp_tight": "zCDP, exact constants",
    "renyi": "Rényi curves",
}
OPTIMUM = "optimum (upper end of the bracket)"


def bounds_of(text: str) -> dict[str, object]:
    """Return the row of a charge, given as text: its ε at δ = 1e-6 under each bound, and a lower
    and an upper bound on the optimum.
    """
    charge = Charge.parse(text)
    row: dict[str, object] = {"charge": text}
    for bound in BOUNDS:
        row[bound] = compose(charge, delta=1e-6, bound=bound).epsilon
    optimum = compose(charge, delta=1e-6, bound="optimal_setwise")
    row["lower"] = optimum.lower
    row["optimal_setwise"] = optimum.epsilon
    return row


def compute(settings: RunSettings) -> Table:
    """Return ε at δ = 1e-6 of each mix under each bound, and the bracket of the optimum."""
    mixes = MIXES[:2] if settings.quick else MIXES
    return table_of(bounds_of, mixes, settings)


def plot(data: Table) -> Figure:
    """Plot each bound divided by the lower bound on the optimum, a line for each mix."""
    figure, axes = style.figure(width=9.5, height=0.55 * len(data) + 1.4)
    place = np.arange(len(data))[::-1]
    markers = zip(BOUNDS.items(), style.COLOURS, "osD^", strict=False)
    for (bound, label), colour, marker in markers:
        axes.plot(
            data[bound] / data["lower"],
            place,
            marker,
            color=colour,
            label=label,
            markersize=6,
            fillstyle="none",
        )
    axes.plot(
        data["optimal_setwise"] / data["lower"],
        place,
        "|",
        color="black",
        markersize=14,
        label=OPTIMUM,
    )
    labels = [f"{row.charge}\nε = {row.optimal_setwise:.3f}" for row in data.itertuples()]
    axes.set_yticks(place, labels)
    axes.set(
        xlabel="ε over the proven lower bound on the optimum, δ = 1e-6",
        ylim=(-0.5, len(data) - 0.5),
    )
    style.legend_beside(axes)
    return figure


def compare(data: Table) -> list[Comparison]:
    """Check that the published bounds are upper bounds; report how far they exceed the optimum."""
    lines = []
    for bound, label in BOUNDS.items():
        excess = data[bound] / data["optimal_setwise"] - 1
        spread = f"{excess.min():.1%} to {excess.max():.1%} above the optimum"
        holds = (data[bound] >= data["lower"]).all()
        lines.append(claim(f"{label} is an upper bound", "proved", holds, spread))
    width = (data["optimal_setwise"] / data["lower"] - 1).max()
    return [*lines, Comparison("bracket of the optimum", "", f"at most {width:.2%} wide")]
