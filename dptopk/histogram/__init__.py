"""Histograms with their sensitivity, and the labels and counts in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.histogram.histogram import Histogram as Histogram, Sensitivity as Sensitivity
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".histogram": "Histogram Sensitivity",
        },
    )
