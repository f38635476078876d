"""Theorems of the papers that the engine has superseded: for the full table, the figures and the tests."""

from dptopk.accounting.published.cesar_rogers import dp_first_delta as dp_first_delta, dp_later_delta as dp_later_delta
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
