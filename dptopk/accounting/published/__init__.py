"""Theorems of the papers that the engine has superseded: for the full table, the figures and the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.published.cadir_najib_shkel.approximation import (
        area_between as area_between,
        best_chords as best_chords,
        best_tangents as best_tangents,
        compose_f_dp as compose_f_dp,
        from_above as from_above,
        from_below as from_below,
        proposition_1 as proposition_1,
        spread_out as spread_out,
    )
    from dptopk.accounting.published.cadir_najib_shkel.regions import (
        PrivacyRegion as PrivacyRegion,
        composition_region as composition_region,
        double_dp_region as double_dp_region,
        heterogeneous_region as heterogeneous_region,
        mixture_composition as mixture_composition,
        separate_region as separate_region,
        total_variation as total_variation,
        total_variation_region as total_variation_region,
    )
    from dptopk.accounting.published.cadir_najib_shkel.tradeoff import (
        GaussianTradeoff as GaussianTradeoff,
        LaplaceTradeoff as LaplaceTradeoff,
        PiecewiseLinear as PiecewiseLinear,
        TradeoffFunction as TradeoffFunction,
        conjugate as conjugate,
        dp_tradeoff as dp_tradeoff,
        mix as mix,
    )
    from dptopk.accounting.published.cesar_rogers import (
        dp_first_delta as dp_first_delta,
        dp_later_delta as dp_later_delta,
    )
    from dptopk.accounting.published.dong_durfee_rogers import (
        adaptivity_gap as adaptivity_gap,
        dr19_epsilon as dr19_epsilon,
        improved_drv10_epsilon as improved_drv10_epsilon,
        mgf_delta as mgf_delta,
        mgf_epsilon as mgf_epsilon,
        opt_kl_epsilon as opt_kl_epsilon,
    )
    from dptopk.accounting.published.dwork_rothblum_vadhan import (
        advanced_epsilon as advanced_epsilon,
        improved_advanced_epsilon as improved_advanced_epsilon,
    )
    from dptopk.accounting.published.murtagh_vadhan import (
        optimal_dp_approx_epsilon as optimal_dp_approx_epsilon,
        optimal_dp_bracket as optimal_dp_bracket,
        optimal_dp_exact_delta as optimal_dp_exact_delta,
        optimal_dp_exact_epsilon as optimal_dp_exact_epsilon,
    )
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".cadir_najib_shkel.approximation": "area_between best_chords best_tangents compose_f_dp from_above "
            "from_below proposition_1 spread_out",
            ".cadir_najib_shkel.regions": "PrivacyRegion composition_region double_dp_region heterogeneous_region "
            "mixture_composition separate_region total_variation "
            "total_variation_region",
            ".cadir_najib_shkel.tradeoff": "GaussianTradeoff LaplaceTradeoff PiecewiseLinear TradeoffFunction "
            "conjugate dp_tradeoff mix",
            ".cesar_rogers": "dp_first_delta dp_later_delta",
            ".dong_durfee_rogers": "adaptivity_gap dr19_epsilon improved_drv10_epsilon mgf_delta mgf_epsilon "
            "opt_kl_epsilon",
            ".dwork_rothblum_vadhan": "advanced_epsilon improved_advanced_epsilon",
            ".murtagh_vadhan": "optimal_dp_approx_epsilon optimal_dp_bracket optimal_dp_exact_delta "
            "optimal_dp_exact_epsilon",
        },
    )
