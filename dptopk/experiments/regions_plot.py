"""Privacy regions as curves: data frames of error pairs, and panels that show them."""

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
    """One row a point of each lower boundary: its vertices, or 201 points of a smooth one;
    ``columns`` are repeated.
    """
    found = []
    for label, f in curves.items():
        if isinstance(f, PiecewiseLinear):
            points = f.vertices()
        else:
            points = (SMOOTH, f(SMOOTH))
        errors = zip(points[0].tolist(), points[1].tolist(), strict=True)
        for type_1, type_2 in errors:
            found.append(columns | {"curve": label, "type_1": type_1, "type_2": type_2})
    return found


def at(data: Table, t: Floats) -> dict[str, Floats]:
    """The type II errors of each curve at these type I errors."""
    return {
        str(label): np.interp(t, part["type_1"], part["type_2"])
        for label, part in data.groupby("curve")
    }


def boundaries(axes: Axes, data: Table) -> None:
    """The lower boundaries of regions (columns curve, type_1, type_2) below the diagonal of blind
    guesses.
    """
    groups = data.groupby("curve", sort=False)
    style.lines(axes, [(str(label), part["type_1"], part["type_2"]) for label, part in groups])
    axes.plot([0, 1], [1, 0], color="#7F7F7F", linewidth=0.8)
    axes.set(xlabel="type I error", ylabel="type II error", xlim=(0, 1), ylim=(0, 1), box_aspect=1)


def panels(data: Table, ks: Sequence[int], tops: Sequence[float] | None = None) -> Figure:
    """One panel of boundaries for every value of the column k, of errors up to ``tops`` (1)."""
    number = len(ks)
    figure, axes = style.figure(1, number, width=4.2 * number, height=4.4)
    reaches = tops or [1.0] * number
    for place, k, top in zip(np.atleast_1d(axes), ks, reaches, strict=True):
        boundaries(place, data[data["k"] == k])
        place.set(title=f"k = {k}", xlim=(0, top), ylim=(0, top))
    np.atleast_1d(axes)[-1].legend(loc="upper right")  # above the diagonal nothing is drawn
    return figure
