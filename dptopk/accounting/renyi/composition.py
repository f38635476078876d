"""Composition by Rényi curves: log-MGFs of the losses are summed and converted to (ε, δ) at the best order.

For a fixed order λ = α - 1 > 0 let h_i(λ) bound ln E[e^{λ L_i}] given everything before, whichever mechanism with
cost i is chosen. Then E[exp(λ Σ L_i - Σ h_i(λ))] <= 1 by induction over the rounds, and Σ h_i is known beforehand
even when the analyst picks the order set-wise. So h = Σ h_i bounds the log-MGF of the whole loss, and by CKS20
(Proposition 12)

    δ <= exp(g(λ) - λ ε),   g(λ) = h(λ) + λ ln λ - (1+λ) ln(1+λ),

for every λ: Chernoff's bound with a smaller g. As any λ will do, the minimisation over λ needs no certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from dptopk.accounting.bounds import bound
from dptopk.accounting.conversions import implied
from dptopk.accounting.curves import Curve, Floats, outward
from dptopk.accounting.pld.constraints import NUDGE, mixture
from dptopk.accounting.pure_dp.homogeneous import pure_epsilons
from dptopk.accounting.renyi.log_mgf import LOG_MGF_ERROR, ChernoffCurve, bounded_range_log_mgf, pure_dp_log_mgf
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, Cost, DiscreteGaussianDP, GaussianDP, MultiDP, PureDP, sum_up
from dptopk.errors import NotApplicable

__all__ = ["log_mgf", "pure_sum", "renyi", "renyi_curve"]

LogMGF = Callable[[Floats], Floats]

# Costs that are known by a quadratic bound on their log-MGF.
_QUADRATIC = (GaussianDP, DiscreteGaussianDP, ZCDP, CDP)


def renyi_curve(log_mgf: LogMGF, epsilon_max: float = np.inf) -> ChernoffCurve:
    """The (ε, δ) curve of a mechanism whose loss has log-MGF at most ``log_mgf`` (CKS20, Proposition 12).

    Args:
        log_mgf: upper bound on ln E[e^{λL}] = λ D_{1+λ} to a relative ``LOG_MGF_ERROR``, elementwise in λ > 0.
        epsilon_max: an ε from which on δ = 0; inf when there is none.

    Returns:
        An upper bound in both directions, each minimised over the order by itself.
    """

    def exponent(lam: Floats) -> Floats:
        h = log_mgf(lam)
        gain = lam * np.log1p(1 / lam) + np.log1p(lam)
        return h - gain + 8 * LOG_MGF_ERROR * (h + gain)  # the curve's own allowance is relative to the difference

    return ChernoffCurve(exponent, epsilon_max)


def _quadratic(cost: Cost) -> tuple[float, float]:
    """(a, b) of a cost whose log-MGF is at most aλ + bλ²: (ξ + ρ, ρ) of a zCDP cost, (μ, τ²/2) of a CDP cost."""
    if isinstance(cost, CDP):
        return cost.mu, math.nextafter(cost.tau * cost.tau / 2 * (1 + 1e-15), math.inf)
    zcdp = implied(cost).exact_zcdp
    if zcdp is None:
        raise NotApplicable(f"{type(cost).__name__} has no Rényi curve")
    xi, rho = zcdp(cost)
    return sum_up([xi, rho]), rho


def _summed(times: Mapping[float, int], one: Callable[[Floats, Floats], Floats]) -> LogMGF:
    """Σ times[ε] one(ε, λ), in blocks so that memory stays small."""
    epsilons, counts = np.array(list(times)), np.array(list(times.values()), dtype=float)

    def total(lam: Floats) -> Floats:
        flat = lam.reshape(1, -1)
        block = max(1, 2**18 // flat.size)
        values = np.zeros(flat.shape[1])
        for start in range(0, len(epsilons), block):
            rows = slice(start, start + block)
            values = values + counts[rows] @ one(epsilons[rows, None], flat)
        return values.reshape(lam.shape)

    return total


def mixture_log_mgf(cost: MultiDP, lam: Floats) -> Floats:
    """Log-MGF of the worst case of several (ε_i, δ_i), the smallest δ 0: a mixture of randomised responses."""
    worst = mixture(cost, nudge=NUDGE)
    curves = np.stack([pure_dp_log_mgf(epsilon, lam) for epsilon in worst.epsilons])
    weights = np.array(worst.weights).reshape(-1, *[1] * lam.ndim)
    top = np.maximum(curves.max(axis=0), 1.0)
    with np.errstate(under="ignore"):
        large = top + np.log((weights * np.exp(curves - top)).sum(axis=0))
    small = np.log1p((weights * np.expm1(np.minimum(curves, 1.0))).sum(axis=0))  # no cancellation near 0
    values: Floats = np.where(curves.max(axis=0) < 1, small, large)
    return values


def log_mgf(charge: Charge) -> LogMGF:
    """Upper bound on ln E[e^{λL}] for the whole loss of a charge without failure mass, as a function of λ > 0."""
    parts: list[LogMGF] = []
    for cost_type, one in ((PureDP, pure_dp_log_mgf), (BoundedRange, bounded_range_log_mgf)):
        epsilons = {cost.epsilon: times for cost, times in charge.of(cost_type).items()}
        if epsilons:
            parts.append(_summed(epsilons, one))
    several = charge.of(MultiDP)
    quadratics = [(_quadratic(cost), times) for cost, times in charge.of(*_QUADRATIC).items()]
    linear = sum_up([float(outward(a * times)) for (a, _), times in quadratics])
    square = sum_up([float(outward(b * times)) for (_, b), times in quadratics])
    # A sum of n positive terms errs by n units of roundoff.
    slack = 1 + 2e-16 * len(charge.costs)

    def total(lam: Floats) -> Floats:
        values = lam * (linear + square * lam)
        for part in parts:
            values = values + part(lam)
        for cost, times in several.items():
            values = values + times * mixture_log_mgf(cost, lam)
        return values * slack

    return total


def pure_sum(charge: Charge) -> float:
    """Sum of the ε's when every cost implies pure DP, else inf."""
    try:
        return sum_up(pure_epsilons(charge))
    except NotApplicable:
        return math.inf


@bound(
    "renyi",
    source="Rényi curves of DDR Theorem 5 and randomised response, summed; CKS20 Prop. 12",
    takes=(PureDP, BoundedRange, MultiDP, *_QUADRATIC),
    valid_through=lambda charge: "filter" if all(isinstance(cost, ZCDP) for cost in charge.costs) else "setwise",
)
def renyi(charge: Charge) -> Curve:
    """Each cost's own Rényi curve, summed at each order; never worse than zcdp_tight."""
    return renyi_curve(log_mgf(charge), pure_sum(charge))
