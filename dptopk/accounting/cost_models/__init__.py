"""What the accounting knows about each type of cost, one module a type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.cost_models.registry import (
        CostModel as CostModel,
        cost_model_of as cost_model_of,
        cost_models as cost_models,
        register as register,
        types_with as types_with,
    )
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".registry": "CostModel cost_model_of cost_models register types_with",
        },
    )
