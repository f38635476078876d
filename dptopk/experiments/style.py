"""One look for all figures: sizes, colours that colour-blind readers tell apart, dashes that show
where curves meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe-Ito, without the yellow that is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
DASHES: tuple[Any, ...] = (
    "-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (7, 2)), (0, (2, 1)), (0, (3, 3)), (0,
    (1, 2)),
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
    """A figure with ``rows`` x ``columns`` axes, in the common style; sizes in inches.

    Returns:
        The figure, and its axes as matplotlib's ``subplots`` gives them.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update(_RC)
    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, columns)


def lines(axes: Axes, series: Iterable[tuple[str, Any, Any]], **options: Any) -> None:
    """Plot (label, x, y) series, each with a different colour and dash, later ones thinner.

    Where curves meet, the thin dashes of the later one leave the earlier one to be seen.
    """
    for number, (label, x, y) in enumerate(series):
        look = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}
        axes.plot(
            x, y, label=label, **{"linewidth": max(2.4 - 0.2 * number, 1.2), **look, **options}
        )


def curves(data: Any, names: Iterable[str], x: str, y: str) -> list[tuple[str, Any, Any]]:
    """The series of these names in the column "curve" of a table."""
    parts = {str(name): part for name, part in data.groupby("curve")}
    return [(name, parts[name][x], parts[name][y]) for name in names]


def wide(data: Any, names: Iterable[str], x: str) -> list[tuple[str, Any, Any]]:
    """The series in the columns of these names."""
    return [(name, data[x], data[name]) for name in names]


def panels(
    parts: Sequence[tuple[str, Any]], *, width: float, height: float, **options: Any
) -> tuple[Figure, Any]:
    """A figure of panels side by side, each a title and its series; ``options`` are of all axes."""
    made, places = figure(1, len(parts), width=width, height=height)
    for axes, (title, series) in zip(places, parts, strict=True):
        lines(axes, series)
        axes.set(title=title, **options)
    return made, places


def epsilon_panels(
    data: Any, names: Sequence[str], *, width: float, height: float
) -> tuple[Figure, Any]:
    """Curves of ε_g at δ = 1e-6 against the number of mechanisms, a panel an ε."""
    groups = data.groupby("epsilon")
    parts = [
        (f"ε = {each:g}, δ = 1e-6", curves(part, names, "k", "epsilon_global"))
        for each, part in groups
    ]
    return panels(parts, width=width, height=height, xlabel="number of mechanisms k", ylabel="ε_g")


def legend_beside(axes: Axes, **options: Any) -> None:
    """A legend to the right of the axes, where it covers nothing."""
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), **options)


def legend_below(made: Figure, axes: Axes, *, columns: int) -> None:
    """One legend under all panels, of the curves in one of them."""
    handles, labels = axes.get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=columns)


def mark(axes: Axes, text: str, at: tuple[float, float], to: tuple[float, float]) -> None:
    """Point at (x, y) with a text that stands at another (x, y), in data coordinates."""
    arrow = {"arrowstyle": "-", "color": "#7F7F7F", "linewidth": 0.8}
    axes.annotate(text, xy=at, xytext=to, arrowprops=arrow, fontsize=8, ha="center", va="center")
