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
from dptopk.experiments.experiment import Comparison, Figure, Settings, Table

TITLE = "Composition of mechanisms with two constraints"
SOURCE = "Cadir-Najib-Shkel 2026, Figure 2"
SETTING = "ε = (0.3, 0.15), δ = (0, 0.02), k in {3, 20}."

FIRST = (0.3, 0.0)
SECOND = (0.15, 0.02)
KS = (3, 20)
LABELS = ("exact (Theorems 2, 3)", "total variation (Remark 2)", "separately (Remark 1)")


def compute(_settings: Settings) -> Table:
    """The vertices of the three boundaries for each k."""
    import pandas as pd

    found = []
    for k in KS:
        regions = [composition_region((FIRST, SECOND), k), total_variation_region(FIRST, SECOND, k)]
        regions += [separate_region((FIRST, SECOND), k)]
        curves = {label: region.tradeoff for label, region in zip(LABELS, regions, strict=True)}
        found += regions_plot.rows(curves, k=k)
    return pd.DataFrame(found)


def plot(data: Table) -> Figure:
    """One panel a k."""
    return regions_plot.panels(data, KS)


def compare(data: Table) -> list[Comparison]:
    """The regions are nested, and the gap grows with k."""
    t = np.linspace(0, 1, 2001)
    found = []
    gaps = {}
    for k in KS:
        part = dict(iter(data[data["k"] == k].groupby("curve")))
        exact, variation, separate = (
            np.interp(t, part[label]["type_1"], part[label]["type_2"]) for label in LABELS
        )
        nested = (exact >= variation - 1e-12).all() and (variation >= separate - 1e-12).all()
        found.append(
            Comparison(
                f"k = {k}: exact inside both",
                "proved",
                "holds" if nested else "fails",
                bool(nested),
            )
        )
        gaps[k] = (exact - separate).max(), (exact - variation).max()
    worse = all(few < many for few, many in zip(gaps[KS[0]], gaps[KS[1]], strict=True))
    ours = ", ".join(f"k = {k}: {gap[0]:.3f} and {gap[1]:.3f}" for k, gap in gaps.items())
    return [
        *found,
        Comparison("largest gap to Remarks 1 and 2", "“rapidly worsen” with k", ours, worse),
    ]
