"""Rényi curves: log-MGFs, concentrated DP, and their conversions to (ε, δ)."""

from dptopk.accounting.renyi.concentrated import (
    cdp_epsilon as cdp_epsilon,
    zcdp_epsilon as zcdp_epsilon,
    zcdp_rho as zcdp_rho,
)
