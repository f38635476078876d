"""Two bounded-range mechanisms with different ε: what it changes which of them comes first."""

from __future__ import annotations

import numpy as np

from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, Settings, Table, claim, in_parallel
from dptopk.experiments.setwise_data import order_effect

TITLE = "The order of bounded ranges of different size matters"
SOURCE = "dptopk; question of Cesar-Rogers 2022, Section 7"
SETTING = "One ε-BR mechanism after the other, the second chosen after the answer of the first. Certified brackets."

PAIRS = ((0.5, 1.0), (0.25, 1.0), (0.8, 1.0))


def _point(point: tuple[tuple[float, float], float]) -> Table:
    pair, x = point
    return order_effect([pair], [x])


def compute(settings: Settings) -> Table:
    """Brackets of δ for both orders of each pair, ε_g from 0 to the sum."""
    import pandas as pd

    points = [(pair, float(x)) for pair in PAIRS for x in np.linspace(0, sum(pair), 6 if settings.quick else 41)[:-1]]
    return pd.concat(in_parallel(_point, points, settings), ignore_index=True)


def plot(data: Table) -> Figure:
    """The difference on the left, the ratio on the right; upper ends of the brackets."""
    figure, (left, right) = style.figure(1, 2, width=9.5, height=3.9)
    groups = [(f"ε = {small:g} and {large:g}", part) for (small, large), part in data.groupby(["small", "large"])]
    style.lines(left, [(name, part["x"], part["rising_upper"] - part["falling_upper"]) for name, part in groups])
    left.set(xlabel="ε_g", ylabel="difference of δ", title="δ(smaller first) - δ(larger first)")
    style.lines(right, [(name, part["x"], part["falling_upper"] / part["rising_upper"]) for name, part in groups])
    right.set(xlabel="ε_g", ylabel="ratio of δ", title="δ(larger first) / δ(smaller first)")
    right.legend()
    return figure


def compare(data: Table) -> list[Comparison]:
    """The proven difference at ε_g = 0, and how far it reaches."""
    lines = []
    for (small, large), part in data.groupby(["small", "large"]):
        row = part.iloc[0]
        proven = part[part["rising_lower"] > part["falling_upper"]]
        lines += [
            claim(
                f"ε = {small:g}, {large:g}: the order matters at ε_g = 0",
                "equal ε only",
                row["rising_lower"] > row["falling_upper"],
                f"smaller first {row['rising_lower']:.4f}, larger first {row['falling_upper']:.4f}",
            ),
            Comparison(f"ε = {small:g}, {large:g}: proven different", "", f"up to ε_g = {proven['x'].max():.2f}"),
        ]
    return lines
