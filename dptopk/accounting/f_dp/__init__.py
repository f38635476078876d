"""Trade-off functions, privacy regions and several (ε, δ) constraints at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.f_dp.multi_dp import (
        composition_law as composition_law,
        discrete_pair as discrete_pair,
        multi_dp_bracket as multi_dp_bracket,
        multi_dp_delta as multi_dp_delta,
    )
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".multi_dp": "composition_law discrete_pair multi_dp_bracket multi_dp_delta",
        },
    )
