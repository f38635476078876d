"""The figures of the papers and our own, one figure a file.

``EXPERIMENTS`` maps names to modules; each module has an ``EXPERIMENT``. To add a figure, add a file and a line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS", "load"]

EXPERIMENTS = {
    "ddr-figure-1": "ddr_figure_1",
    "ddr-figure-2": "ddr_figure_2",
    "cr-figure-1": "cr_figure_1",
    "cr-figure-2": "cr_figure_2",
    "cr-figure-3": "cr_figure_3",
    "cr-figure-4": "cr_figure_4",
    "cr-figure-5": "cr_figure_5",
    "cr-figure-6": "cr_figure_6",
    "cr-figure-7": "cr_figure_7",
    "cns-figure-1": "cns_figure_1",
    "cns-figure-2": "cns_figure_2",
    "cns-figure-3": "cns_figure_3",
    "adaptivity": "adaptivity",
    "range-order": "range_order",
    "setwise-mixes": "setwise_mixes",
    "affordable-queries": "affordable_queries",
    "truncated-gaussian": "truncated_gaussian",
    "utility": "utility",
}


def load(name: str) -> Experiment:
    """The experiment of a name.

    Raises:
        InvalidParameter: for an unknown name.
    """
    if name not in EXPERIMENTS:
        raise InvalidParameter(f"experiment must be one of {', '.join(EXPERIMENTS)}; got {name!r}")
    experiment: Experiment = import_module(f"dptopk.experiments.{EXPERIMENTS[name]}").EXPERIMENT
    return experiment
