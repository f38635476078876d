"""Loaders, shipped counts, generators and contribution bounding; no privacy logic."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public name -> the module that defines it; modules load when a name is first used.
_HOME_OF = {
    "macbeth": "words",
    "macbeth_counts": "words",
    "read_counts": "counts_file",
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
