"""Two bounded-range mechanisms with different ε: how much it matters which of them comes first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dptopk.accounting.setwise.lower_bounds import LastRanges
from dptopk.accounting.setwise.recursion import Rules, solve_in_order
from dptopk.errors import InvalidParameter
from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, claim, table_of

TITLE = "The order of bounded ranges of different size matters"
SOURCE = "dptopk; question of Cesar-Rogers 2022, Section 7"
SETTING = (
    "One ε-BR mechanism after the other, the second chosen after the answer of the first. "
    "Certified brackets."
)

PAIRS = ((0.5, 1.0), (0.25, 1.0), (0.8, 1.0))  # (smaller ε, larger ε)
COLUMNS = ["small", "large", "x", "rising_lower", "rising_upper", "falling_lower", "falling_upper"]


def delta_in_order(epsilons: Sequence[float], x: float, *, steps: int = 128) -> tuple[float, float]:
    """Return a lower and an upper bound on δ(x) of bounded ranges in a fixed order, where each
    mechanism may depend on the earlier answers.

    Args:
        epsilons: the ε of the mechanisms, all different, first to last.
        x: the ε_g at which δ is bounded.
        steps: about how many steps of the recursion's grid the largest ε has.

    Raises:
        InvalidParameter: for two equal ε.

    >>> low, high = delta_in_order([0.5, 1.0], 0.0)
    >>> round(low, 3), round(high, 3)
    (0.26, 0.26)
    """
    if len(set(epsilons)) != len(epsilons):
        raise InvalidParameter(f"epsilons must be distinct, got {list(epsilons)}")
    at = np.array([x])
    counts = dict.fromkeys(epsilons, 1)
    order = range(len(epsilons))
    lower = solve_in_order(Rules.of(counts, steps, upper=False), order)
    upper = solve_in_order(Rules.of(counts, steps, upper=True), order)
    return float(LastRanges(lower, upper).below(at)[0]), upper.delta(x)


def row_of_bounds(point: tuple[float, float, float]) -> tuple[float, ...]:
    """Return the row ``COLUMNS``: a lower and an upper bound on δ(x) of two ranges in rising order
    of their ε, and in falling order.

    Args:
        point: the smaller ε, the larger ε, and x, the ε_g at which δ is bounded.
    """
    small, large, x = point
    rising_lower, rising_upper = delta_in_order([small, large], x)
    falling_lower, falling_upper = delta_in_order([large, small], x)
    return small, large, x, rising_lower, rising_upper, falling_lower, falling_upper


def compute(settings: RunSettings) -> Table:
    """Return brackets of δ for both orders of each pair, for ε_g from 0 to the sum."""
    steps = 6 if settings.quick else 41
    points = []
    for pair in PAIRS:
        grid = np.linspace(0, sum(pair), steps)[:-1]
        points += [(*pair, x) for x in grid.tolist()]
    return table_of(row_of_bounds, points, settings, COLUMNS)


def plot(data: Table) -> Figure:
    """Plot the difference of δ between the orders on the left, and their ratio on the right, by
    the upper ends of the brackets.
    """
    figure, (left, right) = style.figure(1, 2, width=9.5, height=3.9)
    differences = []
    ratios = []
    for (small, large), part in data.groupby(["small", "large"]):
        rising = part["rising_upper"]
        falling = part["falling_upper"]
        label = f"ε = {small:g} and {large:g}"
        differences.append((label, part["x"], rising - falling))
        ratios.append((label, part["x"], falling / rising))
    style.lines(left, differences)
    left.set(xlabel="ε_g", ylabel="difference of δ", title="δ(smaller first) - δ(larger first)")
    style.lines(right, ratios)
    right.set(xlabel="ε_g", ylabel="ratio of δ", title="δ(larger first) / δ(smaller first)")
    right.legend()
    return figure


def compare(data: Table) -> list[Comparison]:
    """Check that the order provably matters at ε_g = 0, and report up to which ε_g it does."""
    lines = []
    for (small, large), part in data.groupby(["small", "large"]):
        rising = part["rising_lower"]
        falling = part["falling_upper"]
        # The first row of each pair is at ε_g = 0.
        rising_at_0 = rising.iloc[0]
        falling_at_0 = falling.iloc[0]
        measured = f"smaller first {rising_at_0:.4f}, larger first {falling_at_0:.4f}"
        matters = rising_at_0 > falling_at_0
        proven_different = part[rising > falling]
        reach = f"up to ε_g = {proven_different['x'].max():.2f}"
        lines += [
            claim(
                f"ε = {small:g}, {large:g}: the order matters at ε_g = 0",
                "equal ε only",
                matters,
                measured,
            ),
            Comparison(f"ε = {small:g}, {large:g}: proven different", "", reach),
        ]
    return lines
