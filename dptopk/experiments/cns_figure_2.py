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

FIRST = (0.3, 0.0)
SECOND = (0.15, 0.02)
KS = (3, 20)
LABELS = ("exact (Theorems 2, 3)", "total variation (Remark 2)", "separately (Remark 1)")


def compute(_settings: RunSettings) -> Table:
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
    found = []
    gaps = {}
    for k in KS:
        nested, gaps[k] = _nested(data[data["k"] == k])
        verdict = "holds" if nested else "fails"
        found.append(Comparison(f"k = {k}: exact inside both", "proved", verdict, nested))
    few, many = (gaps[k] for k in KS)
    worse = few[0] < many[0] and few[1] < many[1]
    ours = [f"k = {k}: {wide:.3f} and {narrow:.3f}" for k, (wide, narrow) in gaps.items()]
    quantity = "largest gap to Remarks 1 and 2"
    return [*found, Comparison(quantity, "“rapidly worsen” with k", ", ".join(ours), bool(worse))]


def _nested(data: Table) -> tuple[bool, tuple[float, float]]:
    """Whether the three regions are nested, and the largest gaps to the two outer ones."""
    curves = regions_plot.at(data, np.linspace(0, 1, 2001))
    exact, variation, separate = (curves[label] for label in LABELS)
    inner = exact >= variation - 1e-12
    outer = variation >= separate - 1e-12
    gaps = ((exact - separate).max(), (exact - variation).max())
    return bool(inner.all() and outer.all()), gaps
