"""Private mechanisms; each states its charge before it sees any data.

Every name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Mechanism -> the module (one family each) that defines it.
_HOME_OF = {
    "CountMLE": "count_mle",
    "Exponential": "exponential",
    "KnownGaussian": "gaussian",
    "KnownGumbel": "gumbel",
    "KnownLaplace": "laplace",
    "TruncatedGaussian": "gaussian",
    "UnknownGaussian": "gaussian",
    "UnknownGumbel": "gumbel",
    "UnknownLaplace": "laplace",
}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dptopk.mechanisms' has no attribute {name!r}")
    value = getattr(import_module(f"dptopk.mechanisms.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
