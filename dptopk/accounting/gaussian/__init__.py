"""Gaussian noise, continuous and discrete: one pair, and its compositions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.gaussian.discrete import (
        LatticeLaw as LatticeLaw,
        discrete_gaussian_curve as discrete_gaussian_curve,
        discrete_gaussian_delta as discrete_gaussian_delta,
        discrete_gaussian_epsilon as discrete_gaussian_epsilon,
        discrete_gaussian_scale as discrete_gaussian_scale,
        lattice_law as lattice_law,
        listed_curve as listed_curve,
    )
    from dptopk.accounting.gaussian.pair import (
        gaussian_curve as gaussian_curve,
        gaussian_delta as gaussian_delta,
        gaussian_epsilon as gaussian_epsilon,
        gaussian_log_delta as gaussian_log_delta,
        gaussian_mu as gaussian_mu,
    )
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".discrete": "LatticeLaw discrete_gaussian_curve discrete_gaussian_delta "
            "discrete_gaussian_epsilon discrete_gaussian_scale lattice_law "
            "listed_curve",
            ".pair": "gaussian_curve gaussian_delta gaussian_epsilon gaussian_log_delta gaussian_mu",
        },
    )
