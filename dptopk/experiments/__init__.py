"""The figures of the papers and our own, one figure a file.

Each name of ``EXPERIMENTS`` is a module, with ``_`` for ``-``, that has a ``TITLE``, a ``SOURCE``,
a ``SETTING``, and ``compute``, ``plot`` and ``compare`` (see ``Experiment``). To add a figure, add
a file and a name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.experiments.experiment import Experiment

__all__ = ["EXPERIMENTS", "load"]

# In the order of the report.
EXPERIMENTS = (
    "ddr-figure-1", "ddr-figure-2", "cr-figure-1", "cr-figure-2", "cr-figure-3", "cr-figure-4",
    "cr-figure-5", "cr-figure-6", "cr-figure-7", "cns-figure-1", "cns-figure-2", "cns-figure-3",
    "adaptivity", "range-order", "setwise-mixes", "affordable-queries", "truncated-gaussian",
    "utility",
)  # fmt: skip


def load(name: str) -> Experiment:
    """Return the experiment with this name.

    Raises:
        InvalidParameter: for an unknown name.
    """
    if name not in EXPERIMENTS:
        raise InvalidParameter(f"experiment must be one of {', '.join(EXPERIMENTS)}; got {name!r}")
    from dptopk.experiments.experiment import Experiment

    module = import_module(f"dptopk.experiments.{name.replace('-', '_')}")
    return Experiment(
        name,
        module.TITLE,
        module.SOURCE,
        module.SETTING,
        module.compute,
        module.plot,
        module.compare,
    )
