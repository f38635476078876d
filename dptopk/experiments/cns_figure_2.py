"""CNS 2026, Figure 2: k mechanisms with two constraints each: the exact region and two earlier
bounds.
"""

from __future__ import annotations

import numpy as np

from dptopk.accounting.published.cadir_najib_shkel.regions import (
    composition_region,
    separate_region,
    total_variation_region,
)
from dptopk.experiments import regions_plot
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table

TITLE = "Composition of mechanisms with two constraints"
SOURCE = "Cadir-Najib-Shkel 2026, Figure 2"
SETTING = "ε = (0.3, 0.15), δ = (0, 0.02), k in {3, 20}."

FIRST = (0.3, 0.0)  # (ε, δ)
SECOND = (0.15, 0.02)
KS = (3, 20)
ROUNDING = 1e-12  # of an error probability
LABELS = ("exact (Theorems 2, 3)", "total variation (Remark 2)", "separately (Remark 1)")


def compute(_settings: RunSettings) -> Table:
    """Return the vertices of the boundaries of the three regions for each k."""
    import pandas as pd

    rows = []
    for k in KS:
        exact = composition_region((FIRST, SECOND), k)
        variation = total_variation_region(FIRST, SECOND, k)
        separate = separate_region((FIRST, SECOND), k)
        regions = (exact, variation, separate)
        curves = {label: region.tradeoff for label, region in zip(LABELS, regions, strict=True)}
        rows += regions_plot.rows(curves, k=k)
    return pd.DataFrame(rows)


def plot(data: Table) -> Figure:
    """Plot the boundaries, a panel for each k."""
    return regions_plot.panels(data, KS)


def compare(data: Table) -> list[Comparison]:
    """Check that the regions are nested and that the gap between them grows with k."""
    lines = []
    gaps = []
    in_words = []
    for k in KS:
        are_nested, to_separate, to_variation = _nesting(data[data["k"] == k])
        verdict = "holds" if are_nested else "fails"
        lines.append(Comparison(f"k = {k}: exact inside both", "proved", verdict, are_nested))
        gaps.append((to_separate, to_variation))
        in_words.append(f"k = {k}: {to_separate:.3f} and {to_variation:.3f}")
    grows = (np.diff(gaps, axis=0) > 0).all()  # each of both gaps, from one k to the next
    quantity = "largest gap to Remarks 1 and 2"
    paper = "“rapidly worsen” with k"
    return [*lines, Comparison(quantity, paper, ", ".join(in_words), bool(grows))]


def _nesting(data: Table) -> tuple[bool, float, float]:
    """Return whether the three regions are nested, and how far apart they are.

    Args:
        data: the boundaries for one k, a row a point.

    Returns:
        Whether they are nested; the largest gap, in type II error, from the exact region to the
        separate one; and that to the total-variation one.
    """
    curves = regions_plot.type_2_errors(data, np.linspace(0, 1, 2001))
    exact, variation, separate = (curves[label] for label in LABELS)
    # A region is the smaller, the larger the type II errors of its boundary are.
    is_inside_variation = exact >= variation - ROUNDING
    is_inside_separate = variation >= separate - ROUNDING
    are_nested = bool(is_inside_variation.all() and is_inside_separate.all())
    return are_nested, (exact - separate).max(), (exact - variation).max()
