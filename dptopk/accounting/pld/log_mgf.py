"""Logarithms of moment generating functions of the privacy loss, accurate to a few ulps, and the
Chernoff curve.

For a loss L under P (theory: the first of the two neighbours) the two worst cases have closed forms
in S(x) = ln(sinh(x)/x) and C(x) = ln cosh(x), with b = ε/2:

    ε-DP:  ln E e^{λL} = C((2λ+1) b) - C(b)
    ε-BR:  sup over t of ln E e^{λL} = λ [S((λ+1) b) - S(λb)] + [S((λ+1) b) - S(b)]

The second is DDR's h_ε(λ) (Theorem 5) with its supremum solved: put t = b + s, then
E e^{λL} = e^{λs} [sinh((λ+1) b) - e^s sinh(λb)] / sinh(b), largest at e^s = λ sinh((λ+1) b) /
((λ+1) sinh(λb)). Both are sums of non-negative increments of S and C: nothing cancels for small ε,
and e^{ελ} is never formed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal.rounding import Floats, exp_up, outward
from dptopk.accounting.curves import Curve
from dptopk.accounting.pld.constraints import PERTURBATION, worst_case
from dptopk.costs import MultiDP, sum_up

LogMGF = Callable[[Floats], Floats]

# Bound on the relative error of the two log-MGFs: about twenty roundings, checked against 50 digits
# in the tests.
LOG_MGF_ERROR = 1e-14

# Of more different costs than this, a best order is looked for on fewer and smaller grids: to about
# 1e-4 of the bound.
MANY_ADDENDS = 1000
GRIDS = (64, *[24] * 7)
FEW_GRIDS = (64, *[8] * 4)

# Products of very small ε's underflow by less than this, which vanishes beside any normal float.
_LEAST = 1e-322

# Taylor coefficients in x² of sinh(x)/x - 1 and of cosh(x) - sinh(x)/x, divided by x²; both to an
# ulp on [0, 1].
_SINHC = [1 / factorial(2 * j + 1) for j in range(1, 10)]
_LANGEVIN = [2 * j / factorial(2 * j + 1) for j in range(1, 10)]


def pure_dp_log_mgf(epsilon: ArrayLike, order: ArrayLike) -> Floats:
    """Log-MGF ln E e^{λL} of randomised response, the largest among all ε-DP mechanisms.

    Args:
        epsilon: ε > 0, any shape.
        order: λ >= 0, broadcast against ``epsilon``.

    Returns:
        The exact value to a relative ``LOG_MGF_ERROR``; divided by λ it is the Rényi divergence of
        order λ + 1.

    >>> float(pure_dp_log_mgf(1.0, 1.0).round(6))
    0.735326
    """
    epsilons = np.asarray(epsilon, float)
    b, step = np.broadcast_arrays(epsilons / 2, epsilons * np.asarray(order, float))
    h = np.minimum(step, 1.0)
    rise = 2 * np.sinh(h / 2) ** 2 + np.tanh(b) * np.sinh(h)
    near = np.log1p(rise) + _LEAST
    log_after = np.log1p(np.exp(-2 * (b + step)))
    far = step + log_after - np.log1p(np.exp(-2 * b))
    return np.where(step < 1, near, far)


def bounded_range_log_mgf(epsilon: ArrayLike, order: ArrayLike) -> Floats:
    """h_ε(λ), the largest ln E e^{λL} among all ε-BR mechanisms (DDR Theorem 5), in closed form.

    Args:
        epsilon: ε > 0, any shape.
        order: λ > 0, broadcast against ``epsilon``.

    Returns:
        The exact value to a relative ``LOG_MGF_ERROR``; divided by λ it is the Rényi divergence of
        order λ + 1.

    >>> float(bounded_range_log_mgf(1.0, 2.0).round(5))
    0.68675
    """
    lam = np.asarray(order, float)
    b = np.asarray(epsilon, float) / 2
    b, lam, shift = np.broadcast_arrays(b, lam, lam * b)
    return lam * _log_sinhc_rise(shift, b) + _log_sinhc_rise(b, shift)


def _log_sinhc_rise(start: Floats, step: Floats) -> Floats:
    """S(start + step) - S(start) for S(x) = ln(sinh(x)/x), to a few ulps, for start, step > 0."""
    h = np.minimum(step, 1.0)
    # sinh(u+h) u / (sinh(u) (u+h)) - 1 with every term positive.
    share = h / np.maximum(start + h, np.nextafter(0, 1))
    hyperbolic = 2 * np.sinh(h / 2) ** 2 + _langevin(start) * np.sinh(h)
    rise = (1 - share) * hyperbolic + share * h**2 * _series(_SINHC, h)
    near = np.log1p(rise) + _LEAST
    u = np.maximum(start, 1.0)
    w = np.maximum(step, 1.0)
    log_after = np.log1p(-np.exp(-2 * (u + w)))
    far = w - np.log1p(w / u) + log_after - np.log1p(-np.exp(-2 * u))
    from_small = _log_sinhc(start + w) - _log_sinhc(np.minimum(start, 1.0))
    far = np.where(start < 1, from_small, far)
    return np.where(step < 1, near, far)


def _langevin(x: Floats) -> Floats:
    """coth(x) - 1/x."""
    small = np.minimum(x, 1.0)
    large = np.maximum(x, 1.0)
    near = small * _series(_LANGEVIN, small) / (1 + small**2 * _series(_SINHC, small))
    return np.where(x < 1, near, 1 / np.tanh(large) - 1 / large)


def _log_sinhc(x: Floats) -> Floats:
    """ln(sinh(x)/x)."""
    small = np.minimum(x, 1.0)
    large = np.maximum(x, 1.0)
    near = np.log1p(small**2 * _series(_SINHC, small))
    far = large - np.log(2 * large) + np.log1p(-np.exp(-2 * large))
    return np.where(x < 1, near, far)


def _series(coefficients: Sequence[float], x: Floats) -> Floats:
    """Σ coefficients[j] x^{2j} by Horner's rule."""
    total = np.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * x**2 + coefficient
    return total


def mixture_log_mgf(cost: MultiDP, lam: Floats) -> Floats:
    """Log-MGF of the worst case of several (ε_i, δ_i), the smallest δ 0: a mixture of randomised
    responses.
    """
    worst = worst_case(cost, PERTURBATION)
    epsilons, weights = (
        np.array(part).reshape(-1, *[1] * lam.ndim) for part in (worst.epsilons, worst.weights)
    )
    curves = pure_dp_log_mgf(epsilons, lam)
    top = np.maximum(curves.max(axis=0), 1.0)
    with np.errstate(under="ignore"):
        large = top + np.log((weights * np.exp(curves - top)).sum(axis=0))
    excess = weights * np.expm1(np.minimum(curves, 1.0))
    small = np.log1p(excess.sum(axis=0))  # no cancellation near 0
    return np.where(curves.max(axis=0) < 1, small, large)


def summed_log_mgf(times: Mapping[float, int], one: Callable[[Floats, Floats], Floats]) -> LogMGF:
    """Σ times[ε] one(ε, λ) as a function of λ, in blocks so that memory stays small."""
    epsilons = np.array(list(times))
    counts = np.array(list(times.values()), dtype=float)

    def total(lam: Floats) -> Floats:
        flat = lam.reshape(1, -1)
        block = max(1, 2**18 // flat.size)
        values = np.zeros(flat.shape[1])
        for start in range(0, len(epsilons), block):
            rows = slice(start, start + block)
            values = values + counts[rows] @ one(epsilons[rows, None], flat)
        return values.reshape(lam.shape)

    return total


def each_log_mgf(one: Callable[[Any, Floats], Floats]) -> Callable[[Mapping[Any, int]], LogMGF]:
    """For costs with log-MGFs of at most ``one(cost, λ)``: their sum, with counts."""
    return lambda costs: (
        lambda lam: sum((times * one(cost, lam) for cost, times in costs.items()), 0.0 * lam)
    )


def quadratic_log_mgf(
    coefficients: Callable[[Any], tuple[float, float]],
) -> Callable[[Mapping[Any, int]], LogMGF]:
    """For costs with log-MGFs of at most aλ + bλ², (a, b) the ``coefficients`` of a cost: their
    sum, with counts.

    A product is rounded to the nearest float and then moved up, a sum is exact and rounded up.
    """

    def of(costs: Mapping[Any, int]) -> LogMGF:
        pairs = [(*coefficients(cost), times) for cost, times in costs.items()]
        linear = sum_up([float(outward(a * times)) for a, _, times in pairs])
        square = sum_up([float(outward(b * times)) for _, b, times in pairs])
        return lambda lam: lam * (linear + square * lam)

    return of


def zcdp_log_mgf(
    zcdp: Callable[[Any], tuple[float, float]],
) -> Callable[[Mapping[Any, int]], LogMGF]:
    """Bound the log moment generating function of (ξ, ρ)-zCDP costs: λ D_{1+λ} <= λ (ξ + ρ (1 +
    λ)).
    """
    return quadratic_log_mgf(lambda cost: (sum_up(list(zcdp(cost))), zcdp(cost)[1]))


@dataclass(frozen=True)
class ChernoffCurve(Curve):
    """δ(x) = inf over λ of e^{g(λ) - λx} and its inverse ε(δ) = inf over λ of (g(λ) + ln(1/δ)) / λ.

    Every λ > 0 gives a valid bound, so the search for the best one needs no proof; what it finds is
    rounded outward.

    Args:
        log_mgf: g(λ), an upper bound on ln E e^{λL} of the whole composition up to a relative
            ``LOG_MGF_ERROR``; elementwise for an array of any shape.
        epsilon_max: an ε from which on δ = 0.
        different: how many different costs log_mgf sums up, where they may be many.
    """

    log_mgf: Callable[[Floats], Floats]
    epsilon_max: float = np.inf
    different: int = 0

    @property
    def _grids(self) -> Sequence[int]:
        if self.different > MANY_ADDENDS:
            return FEW_GRIDS
        return GRIDS

    def log_delta(self, epsilon: Floats) -> Floats:
        """Upper bound on ln δ (at most 0), for a one-dimensional array."""
        x = epsilon[:, None]
        found = _smallest(
            lambda lam: (1 + 2 * LOG_MGF_ERROR) * self.log_mgf(lam) - (1 - 1e-15) * lam * x,
            len(epsilon),
            self._grids,
        )
        return np.where(epsilon >= self.epsilon_max, -np.inf, np.minimum(found, 0.0))

    def _deltas(self, epsilon: Floats) -> Floats:
        """A positive δ never underflows to 0."""
        logs = np.maximum(self.log_delta(epsilon), -1e300)
        return exp_up(np.where(epsilon < self.epsilon_max, logs, -np.inf))

    def _epsilons(self, delta: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            log_inverse = -np.log(delta)[:, None]
        found = _smallest(
            lambda lam: (self.log_mgf(lam) + log_inverse) / lam, delta.size, self._grids
        )
        found = np.where(np.isnan(found), np.inf, np.maximum(found, 0.0))
        return np.minimum(outward(found, 2 * LOG_MGF_ERROR), self.epsilon_max)


def _smallest(
    objective: Callable[[Floats], Floats], size: int, grids: Sequence[int] = GRIDS
) -> Floats:
    """Smallest value found of unimodal functions of λ > 0, one a row, by zooming in on logarithmic
    grids.
    """
    low = np.full(size, -30.0)  # ln λ
    high = np.full(size, 45.0)
    best = np.full(size, np.inf)
    rows = np.arange(size)
    for points in grids:
        grid = np.linspace(low, high, points, axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            values = objective(np.exp(grid))
        values = np.where(np.isnan(values), np.inf, values)
        at = values.argmin(axis=1)
        best = np.minimum(best, values[rows, at])
        low = grid[rows, np.maximum(at - 1, 0)]
        high = grid[rows, np.minimum(at + 1, points - 1)]
    return best
