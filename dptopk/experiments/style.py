"""The common style of all figures: sizes, colours that colour-blind readers can tell apart, and
dashes that show where curves coincide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    # A label, x and y.
    Series: TypeAlias = tuple[str, pd.Series | NDArray[np.float64], pd.Series | NDArray[np.float64]]

# Okabe-Ito, without the yellow that is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
# The lengths of the dashes and gaps of each line style; () is a solid line.
DASH_LENGTHS: tuple[tuple[float, ...], ...] = (
    (), (5, 1.5), (1, 1), (4, 1, 1, 1), (7, 2), (2, 1), (3, 3), (1, 2),
)  # fmt: skip
_RC: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "svg.hashsalt": "dptopk",
    "figure.dpi": 100,
    "savefig.dpi": 160,
}


def figure(
    rows: int = 1, columns: int = 1, *, width: float = 7.2, height: float = 4.2
) -> tuple[Figure, Any]:
    """Make a figure with ``rows`` x ``columns`` axes in the common style; sizes are in inches.

    Args:
        rows: the number of rows of axes.
        columns: the number of columns of axes.
        width: the width in inches.
        height: the height in inches.

    Returns:
        The figure, and its axes as matplotlib's ``subplots`` returns them.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update(_RC)
    canvas = Figure(figsize=(width, height), layout="constrained")
    return canvas, canvas.subplots(rows, columns)


def lines(
    axes: Axes,
    series: Iterable[Series],
    *,
    marker: str | None = None,
    markersize: float | None = None,
    alpha: float | None = None,
) -> None:
    """Plot series, each with a different colour and dash, later ones thinner.

    Where curves coincide, the earlier one remains visible through the dashes of the later one.

    Args:
        axes: where they are plotted.
        series: (label, x, y) of each curve.
        marker: as matplotlib takes it; None: points have no marker.
        markersize: in points; None: matplotlib's own.
        alpha: how opaque the lines are, in [0, 1]; None: fully.
    """
    for number, (label, x, y) in enumerate(series):
        lengths = DASH_LENGTHS[number % len(DASH_LENGTHS)]
        axes.plot(
            x,
            y,
            label=label,
            color=COLOURS[number % len(COLOURS)],
            linestyle=(0, lengths) if lengths else "-",
            linewidth=max(2.4 - 0.2 * number, 1.2),
            marker=marker,
            markersize=markersize,
            alpha=alpha,
        )


def curves(data: pd.DataFrame, names: Iterable[str], x: str, y: str) -> list[Series]:
    """Return the series of a long table: for each name, the columns x and y of the rows that have
    this name in the column "curve".

    Args:
        data: the table.
        names: the names of the curves, in the order of the series.
        x: the name of the column of abscissas.
        y: the name of the column of ordinates.
    """
    rows_of_curve = {str(name): rows for name, rows in data.groupby("curve")}
    return [(name, rows_of_curve[name][x], rows_of_curve[name][y]) for name in names]


def series_of_columns(data: pd.DataFrame, names: Iterable[str], x: str) -> list[Series]:
    """Return the series of a wide table: for each name, the column x and the column of this
    name.

    Args:
        data: the table.
        names: the names of the columns, in the order of the series.
        x: the name of the column of abscissas.
    """
    return [(name, data[x], data[name]) for name in names]


def panels(
    parts: Sequence[tuple[str, Iterable[Series]]],
    *,
    width: float,
    height: float,
    xlabel: str,
    ylabel: str = "",
    yscale: str = "linear",
) -> tuple[Figure, Any]:
    """Make a figure of panels side by side; return it with its axes.

    Args:
        parts: the title and the series of each panel.
        width: of the figure, in inches.
        height: of the figure, in inches.
        xlabel: the label of the x axis of all panels.
        ylabel: that of the y axis.
        yscale: the scale of the y axis of all panels, "linear" or "log".
    """
    canvas, axes_of_parts = figure(1, len(parts), width=width, height=height)
    for axes, (title, series) in zip(axes_of_parts, parts, strict=True):
        lines(axes, series)
        axes.set(title=title, xlabel=xlabel, ylabel=ylabel, yscale=yscale)
    return canvas, axes_of_parts


def epsilon_panels(
    data: pd.DataFrame, names: Sequence[str], *, width: float, height: float
) -> tuple[Figure, Any]:
    """Plot the named curves of ε_g at δ = 1e-6 against the number k of mechanisms, a panel for each
    ε; return the figure with its axes.

    Args:
        data: a table with the columns epsilon, k, curve and epsilon_global.
        names: the curves.
        width: of the figure, in inches.
        height: of the figure, in inches.
    """
    parts = []
    for epsilon, rows in data.groupby("epsilon"):
        series = curves(rows, names, "k", "epsilon_global")
        parts.append((f"ε = {epsilon:g}, δ = 1e-6", series))
    return panels(parts, width=width, height=height, xlabel="number of mechanisms k", ylabel="ε_g")


def legend_beside(axes: Axes) -> None:
    """Add a legend to the right of the axes, where it covers nothing."""
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def legend_below(canvas: Figure, axes: Axes, *, columns: int) -> None:
    """Add one legend under all panels, with the curves of one of them.

    Args:
        canvas: the figure.
        axes: the panel whose curves it names.
        columns: how many columns the legend has.
    """
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=columns)


def mark(axes: Axes, text: str, at: tuple[float, float], to: tuple[float, float]) -> None:
    """Draw a text beside a point of the figure, with a line to it.

    Args:
        axes: where it is drawn.
        text: the text.
        at: the point that it is about, (x, y) in data coordinates.
        to: the point where the text stands, (x, y) in data coordinates.
    """
    arrow = {"arrowstyle": "-", "color": "#7F7F7F", "linewidth": 0.8}
    axes.annotate(text, xy=at, xytext=to, arrowprops=arrow, fontsize=8, ha="center", va="center")
