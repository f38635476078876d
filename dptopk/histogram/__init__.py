"""Histograms with their sensitivity, and the labels and counts in them."""

from dptopk.histogram.histogram import Histogram as Histogram, Sensitivity as Sensitivity
