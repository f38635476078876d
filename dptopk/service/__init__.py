"""The HTTP service: analysts ask, see what it costs, and share a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.service.catalog import Catalog as Catalog, DatasetSpec as DatasetSpec
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(__name__, {".catalog": "Catalog DatasetSpec"})
