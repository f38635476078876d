"""Loaders, shipped counts, generators and contribution bounding; no privacy logic.

Every name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public name -> the module (one idea each) that defines it.
_HOME_OF = {
    "Bounds": "bounding",
    "DuckDB": "engines",
    "Spark": "engines",
    "events_histogram": "events",
    "make_events": "synthetic",
    "macbeth": "words",
    "macbeth_counts": "words",
    "read_counts": "counts_file",
    "Segments": "segments",
    "Truth": "synthetic",
    "segment_histograms": "segments",
    "segments_charge": "segments",
    "read_labels": "counts_file",
}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dptopk.datasets' has no attribute {name!r}")
    value = getattr(import_module(f"dptopk.datasets.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
