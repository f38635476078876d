"""Plots of an answer: bars of the released counts with their error bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dptopk._internal.formatting import percent, visible
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


# Longer labels are cut, so that the bars keep their place.
LONGEST_LABEL = 32


def plot_counts(rows: pd.DataFrame, axes: Axes | None, *, confidence: float, capped: bool) -> Axes:
    """Draw horizontal bars of the counts, the first row on top, and return the Axes.

    Args:
        rows: the columns label and count, and low and high where there are intervals.
        axes: where to draw; None = a new figure of a fitting height.
        confidence: of the error bars.
        capped: whether the counts are of capped data.

    Raises:
        InvalidParameter: when matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidParameter(
            "plot: drawing needs matplotlib: pip install 'dptopk[plots]'"
        ) from None
    if axes is None:
        height = 1.2 + 0.24 * max(len(rows), 3)  # inches: of title and axis, and of each bar
        figure = Figure(figsize=(7, height), layout="constrained")
        axes = figure.subplots()
    places = np.arange(len(rows))
    counts = rows["count"].to_numpy(dtype=float)
    axes.barh(
        places,
        counts,
        xerr=_error_bars(rows),
        color="#4477aa",
        ecolor="#ee6677",
        capsize=2,
        height=0.7,
    )
    # A dollar sign would start a formula.
    names = [shorten_label(visible(label)).replace("$", r"\$") for label in rows["label"]]
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlim(left=min(0.0, float(counts.min(initial=0.0))))
    axes.set_xlabel("noisy count")
    axes.spines[["top", "right"]].set_visible(False)
    title = f"{percent(confidence)} error bars, all rows at once"
    if capped:
        title += " (capped data)"
    axes.set_title(title, loc="left", fontsize="medium")
    return axes


def _error_bars(rows: pd.DataFrame) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    """Return how far each interval reaches below and above its count, shape (2, rows); None where
    there are no intervals. A fitted count, or one below 0, may lie outside the interval of what was
    measured: the bar on that side has the length 0.
    """
    if "low" not in rows:
        return None
    counts = rows["count"].to_numpy(dtype=float)
    low = rows["low"].to_numpy(dtype=float)
    high = rows["high"].to_numpy(dtype=float)
    return np.maximum([counts - low, high - counts], 0.0)


def shorten_label(label: str) -> str:
    """Return a label of at most LONGEST_LABEL characters: a longer one loses its middle, so that
    labels that begin alike remain different.

    >>> shorten_label("a label of forty characters, number 0001")
    'a label of fort…ers, number 0001'
    """
    if len(label) <= LONGEST_LABEL:
        return label
    end = LONGEST_LABEL // 2
    return f"{label[: LONGEST_LABEL - 1 - end]}…{label[-end:]}"
