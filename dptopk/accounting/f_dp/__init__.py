"""Trade-off functions, privacy regions and several (ε, δ) constraints at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.f_dp.approximation import (
        area_between as area_between,
        best_chords as best_chords,
        best_tangents as best_tangents,
        compose_f_dp as compose_f_dp,
        from_above as from_above,
        from_below as from_below,
        proposition_1 as proposition_1,
        spread_out as spread_out,
    )
    from dptopk.accounting.f_dp.multi_dp import (
        composition_law as composition_law,
        discrete_pair as discrete_pair,
        multi_dp_bracket as multi_dp_bracket,
        multi_dp_delta as multi_dp_delta,
    )
    from dptopk.accounting.f_dp.regions import (
        PrivacyRegion as PrivacyRegion,
        composition_region as composition_region,
        double_dp_region as double_dp_region,
        heterogeneous_region as heterogeneous_region,
        mixture_composition as mixture_composition,
        separate_region as separate_region,
        total_variation as total_variation,
        total_variation_region as total_variation_region,
    )
    from dptopk.accounting.f_dp.tradeoff import (
        GaussianTradeoff as GaussianTradeoff,
        LaplaceTradeoff as LaplaceTradeoff,
        PiecewiseLinear as PiecewiseLinear,
        TradeoffFunction as TradeoffFunction,
        conjugate as conjugate,
        dp_tradeoff as dp_tradeoff,
        mix as mix,
    )
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".approximation": (
                "area_between best_chords best_tangents compose_f_dp from_above from_below proposition_1 spread_out"
            ),
            ".multi_dp": "composition_law discrete_pair multi_dp_bracket multi_dp_delta",
            ".regions": (
                "PrivacyRegion composition_region double_dp_region heterogeneous_region mixture_composition "
                "separate_region total_variation total_variation_region"
            ),
            ".tradeoff": "GaussianTradeoff LaplaceTradeoff PiecewiseLinear TradeoffFunction conjugate dp_tradeoff mix",
        },
    )
