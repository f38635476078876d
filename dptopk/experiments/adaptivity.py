"""The cost of adaptivity: the adaptive optimum for k bounded-range mechanisms compared with the
batch optimum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.accounting.bounds import compose
from dptopk.costs import BoundedRange, Charge
from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, claim, table_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "What adaptivity is worth"
SOURCE = "dptopk; conjecture of Dong-Durfee-Rogers 2020, Sections 3.3 and 8"
SETTING = (
    "k × ε-BR: the optimum when each mechanism may depend on earlier answers, over the optimum "
    "when all are chosen in advance. The bands are proven brackets."
)

COUNTS = {  # ε -> the numbers k of mechanisms
    0.1: (8, 10, 13, 18, 25, 35, 50, 75, 100, 150, 200, 300, 500, 1000),
    1.0: (9, 10, 12, 15, 25, 40, 70, 100),
}
DELTA = 1e-6
SMALL_GAP = 0.02  # the relative gap up to which it is taken for "quite small"
# Smaller gaps are taken for these, since they may be 0: on a logarithmic axis, and in a geometric
# mean.
LEAST_GAP_SHOWN = 1e-5
LEAST_GAP = 1e-9


def row_of_gaps(point: tuple[float, int]) -> dict[str, float | None]:
    """Return a row on k mechanisms that are ε-BR each.

    It has the ε_g of the batch optimum at δ = 1e-6, exact; a lower and an upper bound on the
    adaptive optimum's ε_g; and a lower and an upper bound on the adaptive optimum's δ at the batch
    optimum's ε_g, divided by 1e-6 (DDR Section 3.3).

    Args:
        point: ε and k.
    """
    epsilon, k = point
    charge = Charge({BoundedRange(epsilon): k})
    batch = compose(charge, delta=DELTA, bound="br_nonadaptive", interaction="batch").epsilon
    adaptive = compose(charge, delta=DELTA, bound="optimal_setwise", rtol=2e-4, effort="thorough")
    at_batch = compose(charge, epsilon=batch, bound="optimal_setwise", rtol=2e-3, effort="thorough")
    row: dict[str, float | None] = {
        "k": k,
        "epsilon_batch": batch,
        "epsilon_lower": adaptive.lower,
        "epsilon_upper": adaptive.epsilon,
    }
    # No lower bound is known where ``lower`` is None.
    row["ratio_lower"] = (at_batch.lower or 0.0) / DELTA
    row["ratio_upper"] = at_batch.delta / DELTA
    row["epsilon"] = epsilon
    return row


def compute(settings: RunSettings) -> Table:
    """Return brackets of the relative gap in ε_g and in δ for each ε and k, a row each."""
    counts_of_epsilon = {0.1: (10, 30, 100), 1.0: (10, 25)} if settings.quick else COUNTS
    points: list[tuple[float, int]] = []
    for epsilon, counts in counts_of_epsilon.items():
        points += [(epsilon, k) for k in counts]
    data = table_of(row_of_gaps, points, settings)
    for side in ("lower", "upper"):
        ratio = data[f"epsilon_{side}"] / data["epsilon_batch"]
        data[f"epsilon_gap_{side}"] = ratio - 1
        data[f"delta_gap_{side}"] = data[f"ratio_{side}"] - 1
    return data


def plot(data: Table) -> Figure:
    """Plot the brackets of the gap against k, in ε_g on the left and in δ on the right."""
    figure, panels = style.figure(1, 2, width=9.5, height=3.9)
    quantities = (("epsilon", "in ε_g at δ = 1e-6"), ("delta", "in δ at the same ε_g"))
    for axes, (quantity, title) in zip(panels, quantities, strict=True):
        for colour, (epsilon, part) in zip(style.COLOURS, data.groupby("epsilon"), strict=False):
            _bracket(axes, part, quantity, f"ε = {epsilon:g}", colour)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="number of mechanisms k",
            ylabel="relative gap, percent",
        )
        axes.set(title=f"adaptive above batch optimum, {title}")
    panels[0].legend()
    return figure


def _bracket(axes: Axes, part: Table, quantity: str, label: str, colour: str) -> None:
    """Draw the brackets of one gap against k, in percent: the band and its upper end.

    Args:
        axes: the axes to draw on.
        part: the rows of one ε.
        quantity: what the gap is in, "epsilon" or "delta".
        label: the name of the curve in the legend.
        colour: its colour.
    """
    low = 100 * part[f"{quantity}_gap_lower"].clip(lower=LEAST_GAP_SHOWN)
    high = 100 * part[f"{quantity}_gap_upper"].clip(lower=LEAST_GAP_SHOWN)
    axes.fill_between(part["k"], low, high, color=colour, alpha=0.35, linewidth=0)
    axes.plot(part["k"], high, color=colour, marker="o", markersize=3, label=label, linewidth=1.2)


def _middles(part: Table) -> Floats:
    """Return the geometric mean of each bracket of the gap in δ, shape (rows,)."""
    squares = part["delta_gap_lower"].clip(lower=LEAST_GAP) * part["delta_gap_upper"]
    return np.sqrt(squares.to_numpy())


def compare(data: Table) -> list[Comparison]:
    """Compare the adaptive gap in ε_g and in δ with what DDR prove, believe and conjecture of
    it.
    """
    lines = []
    for epsilon, part in data.groupby("epsilon"):
        last = part.iloc[-1]
        worst = part.loc[part["epsilon_gap_upper"].idxmax()]
        largest = f"{worst['epsilon_gap_upper']:.2%} in ε_g at k = {worst['k']:.0f}"
        worst_in_delta = part.loc[part["delta_gap_upper"].idxmax()]
        largest += f", {worst_in_delta['delta_gap_upper']:.0%} in δ"
        largest += f" at k = {worst_in_delta['k']:.0f}"
        bracket = f"{last['epsilon_gap_lower']:.3%} to {last['epsilon_gap_upper']:.3%} in ε_g"
        lines += [
            claim(
                f"ε = {epsilon:g}: the gap is quite small",
                "believed",
                worst["epsilon_gap_upper"] < SMALL_GAP,
                largest,
            ),
            claim(
                f"ε = {epsilon:g}: adaptivity does gain",
                "proved",
                (part["delta_gap_lower"] > 0).any(),
            ),
            Comparison(
                f"ε = {epsilon:g}: the gap at k = {last['k']:.0f}",
                "conjectured to vanish as k grows",
                bracket,
            ),
        ]
    # The smallest ε has the largest numbers of mechanisms.
    middles = _middles(data[data["epsilon"] == data["epsilon"].min()])
    gap_at_largest_k = middles[-1]
    largest_gap = middles.max()
    is_smaller = gap_at_largest_k < largest_gap
    measured = f"{largest_gap:.1%} to {gap_at_largest_k:.1%}"
    quantity = "the gap in δ is smaller at the largest k than at its peak"
    return [*lines, claim(quantity, "conjectured", is_smaller, measured)]
