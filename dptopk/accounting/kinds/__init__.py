"""What the accounting knows about each type of cost, one module a type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.kinds.registry import (
        Kind as Kind,
        kind_of as kind_of,
        kinds as kinds,
        register as register,
        types_with as types_with,
    )
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".registry": "Kind kind_of kinds register types_with",
        },
    )
