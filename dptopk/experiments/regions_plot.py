"""Data frames and plots of the boundaries of privacy regions, which are curves of error pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.accounting.published.cadir_najib_shkel.tradeoff import PiecewiseLinear, TradeoffFunction
from dptopk.experiments import style
from dptopk.experiments.experiment import Figure, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTH = np.linspace(0, 1, 201)  # type I errors of a smooth boundary


def rows(curves: Mapping[str, TradeoffFunction], **columns: Any) -> list[dict[str, Any]]:
    """Return a row for each point of each lower boundary: its vertices, or 201 points of a smooth
    one.

    Args:
        curves: label -> the trade-off function of the boundary.
        columns: further columns, which every row has.
    """
    points = []
    for label, tradeoff in curves.items():
        if isinstance(tradeoff, PiecewiseLinear):
            all_type_1, all_type_2 = tradeoff.vertices()
        else:
            all_type_1 = SMOOTH
            all_type_2 = tradeoff(SMOOTH)
        errors = zip(all_type_1.tolist(), all_type_2.tolist(), strict=True)
        for type_1, type_2 in errors:
            point = {"curve": label, "type_1": type_1, "type_2": type_2}
            points.append(columns | point)
    return points


def type_2_errors(data: Table, type_1_errors: Floats) -> dict[str, Floats]:
    """Return the type II errors of each curve at these type I errors, by linear interpolation, each
    of their shape.

    Args:
        data: the boundaries, a row a point.
        type_1_errors: in [0, 1].
    """
    errors: dict[str, Floats] = {}
    for label, points in data.groupby("curve"):
        errors[str(label)] = np.interp(type_1_errors, points["type_1"], points["type_2"])
    return errors


def boundaries(axes: Axes, data: Table) -> None:
    """Draw the lower boundaries of regions (columns curve, type_1, type_2), and the diagonal of
    blind guesses above them.

    Args:
        axes: where they are drawn.
        data: the boundaries, a row a point.
    """
    groups = data.groupby("curve", sort=False)
    style.lines(axes, [(str(label), part["type_1"], part["type_2"]) for label, part in groups])
    axes.plot([0, 1], [1, 0], color="#7F7F7F", linewidth=0.8)
    axes.set(xlabel="type I error", ylabel="type II error", xlim=(0, 1), ylim=(0, 1), box_aspect=1)


def panels(data: Table, ks: Sequence[int], tops: Sequence[float] | None = None) -> Figure:
    """Return a figure with a panel of boundaries for every value of the column k.

    Args:
        data: the boundaries, a row a point.
        ks: the values of k, in the order of the panels.
        tops: the largest error that each panel shows; None: 1.
    """
    number = len(ks)
    figure, axes = style.figure(1, number, width=4.2 * number, height=4.4)
    tops_of_panels = tops or [1.0] * number
    for panel, k, top in zip(np.atleast_1d(axes), ks, tops_of_panels, strict=True):
        boundaries(panel, data[data["k"] == k])
        panel.set(title=f"k = {k}", xlim=(0, top), ylim=(0, top))
    np.atleast_1d(axes)[-1].legend(loc="upper right")  # above the diagonal nothing is drawn
    return figure
