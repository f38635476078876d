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

DDR is Dong-Durfee-Rogers 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polyval
from numpy.typing import ArrayLike

from dptopk._internal.rounding import Floats, exp_up, outward
from dptopk._internal.sums import weighted
from dptopk.accounting.curves import Curve
from dptopk.accounting.pld.constraints import PERTURBATION, worst_case
from dptopk.costs import Cost, MultiDP, sum_up

LogMGF = Callable[[Floats], Floats]

# Bound on the relative error of the two log-MGFs: about twenty roundings, checked against 50 digits
# in the tests.
LOG_MGF_ERROR = 1e-14

# Of more different costs than this, a best order is looked for on fewer and smaller grids: to about
# 1e-4 of the bound.
MANY_ADDENDS = 1000
BLOCK = 2**18  # values that are computed at once, 2 MB
GRIDS = (64, *[24] * 7)
FEW_GRIDS = (64, *[8] * 4)

# Products of very small ε's underflow by less than this, which vanishes beside any normal float.
_LEAST = 1e-322
# ln λ between which the best λ of a Chernoff bound is looked for: e^-30 to e^45.
SMALLEST_LOG_ORDER = -30.0
LARGEST_LOG_ORDER = 45.0
PRODUCT_ROUNDING = 1e-15  # of λ x

# Taylor coefficients in x² of sinh(x)/x - 1 and of cosh(x) - sinh(x)/x, divided by x²; both to an
# ulp on [0, 1].
_SINHC = [1 / factorial(2 * j + 1) for j in range(1, 10)]
_LANGEVIN = [2 * j / factorial(2 * j + 1) for j in range(1, 10)]


def pure_dp_log_mgf(epsilon: ArrayLike, order: ArrayLike) -> Floats:
    """Return the log-MGF ln E e^{λL} of randomised response, the largest among all ε-DP mechanisms.

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
    increase_by_small_step = 2 * np.sinh(h / 2) ** 2 + np.tanh(b) * np.sinh(h)
    for_small_step = np.log1p(increase_by_small_step) + _LEAST
    log_after = np.log1p(np.exp(-2 * (b + step)))
    for_large_step = step + log_after - np.log1p(np.exp(-2 * b))
    return np.where(step < 1, for_small_step, for_large_step)


def bounded_range_log_mgf(epsilon: ArrayLike, order: ArrayLike) -> Floats:
    """Return h_ε(λ), the largest ln E e^{λL} among all ε-BR mechanisms (DDR Theorem 5), in closed
    form.

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
    """Return S(start + step) - S(start) for S(x) = ln(sinh(x)/x), to a few ulps, for start, step >
    0.
    """
    is_small = step < 1
    if not is_small.any():
        return _rise_by_large_step(start, step)
    h = np.minimum(step, 1.0)
    # sinh(u+h) u / (sinh(u) (u+h)) - 1 with every term positive; both u and h may have underflowed
    # to 0.
    share = h / np.maximum(start + h, np.nextafter(0, 1))
    hyperbolic = 2 * np.sinh(h / 2) ** 2 + _langevin(start) * np.sinh(h)
    rise = (1 - share) * hyperbolic + share * h**2 * polyval(h**2, _SINHC)
    for_small_step = np.log1p(rise) + _LEAST
    if is_small.all():
        return for_small_step
    for_large_step = _rise_by_large_step(start, np.maximum(step, 1.0))
    return np.where(is_small, for_small_step, for_large_step)


def _rise_by_large_step(start: Floats, step: Floats) -> Floats:
    """Return ``_log_sinhc_rise`` for steps of at least 1: from the closed form of S, or from its
    series where the start is below 1.
    """
    u = np.maximum(start, 1.0)
    log_after = np.log1p(-np.exp(-2 * (u + step)))
    from_large = step - np.log1p(step / u) + log_after - np.log1p(-np.exp(-2 * u))
    is_small = start < 1
    if not is_small.any():
        return from_large
    from_small = _log_sinhc(start + step) - _log_sinhc(np.minimum(start, 1.0))
    return np.where(is_small, from_small, from_large)


def _langevin(x: Floats) -> Floats:
    """Return coth(x) - 1/x, to a few ulps."""
    small = np.minimum(x, 1.0)
    large = np.maximum(x, 1.0)
    square = small**2
    for_small_x = small * polyval(square, _LANGEVIN) / (1 + square * polyval(square, _SINHC))
    return np.where(x < 1, for_small_x, 1 / np.tanh(large) - 1 / large)


def _log_sinhc(x: Floats) -> Floats:
    """Return S(x) = ln(sinh(x)/x), to a few ulps."""
    small = np.minimum(x, 1.0)
    large = np.maximum(x, 1.0)
    square = small**2
    for_small_x = np.log1p(square * polyval(square, _SINHC))
    for_large_x = large - np.log(2 * large) + np.log1p(-np.exp(-2 * large))
    return np.where(x < 1, for_small_x, for_large_x)


def mixture_log_mgf(cost: MultiDP, lam: Floats) -> Floats:
    """Return the log-MGF at each λ of the worst case of several (ε_i, δ_i) of which the smallest δ
    is 0: a mixture of randomised responses.
    """
    worst = worst_case(cost, PERTURBATION)
    # A mixture's E e^{λL} is the mean of its parts': ln Σ w e^g, shifted by the largest g where
    # that is large. Rows are ε's, of a shape that is broadcast against λ.
    column = (-1, *[1] * lam.ndim)
    epsilons = np.array(worst.epsilons).reshape(column)
    weights = np.array(worst.weights).reshape(column)
    curves = pure_dp_log_mgf(epsilons, lam)
    top = np.maximum(curves.max(axis=0), 1.0)
    with np.errstate(under="ignore"):
        for_large = top + np.log((weights * np.exp(curves - top)).sum(axis=0))
    excess = weights * np.expm1(np.minimum(curves, 1.0))
    for_small = np.log1p(excess.sum(axis=0))  # no cancellation near 0
    return np.where(curves.max(axis=0) < 1, for_small, for_large)


def summed_log_mgf(
    counts_by_epsilon: Mapping[float, int], log_mgf_of: Callable[[Floats, Floats], Floats]
) -> LogMGF:
    """Return Σ n f(ε, λ) as a function of λ, computed in blocks so that memory stays small.

    Args:
        counts_by_epsilon: n for each ε.
        log_mgf_of: f, which takes a column of ε's and a row of λ's.
    """
    epsilons = np.array(list(counts_by_epsilon))
    counts = np.array(list(counts_by_epsilon.values()), dtype=float)

    def total(lam: Floats) -> Floats:
        """Return the sum at each λ."""
        flat = lam.reshape(1, -1)
        block = max(1, BLOCK // flat.size)
        values = np.zeros(flat.shape[1])
        for start in range(0, len(epsilons), block):
            rows = slice(start, start + block)
            values = values + weighted(log_mgf_of(epsilons[rows, None], flat).T, counts[rows])
        return values.reshape(lam.shape)

    return total


def each_log_mgf(
    log_mgf_of: Callable[[Any, Floats], Floats],
) -> Callable[[Mapping[Any, int]], LogMGF]:
    """Return the function that maps costs with counts to the sum of their log-MGFs.

    Args:
        log_mgf_of: maps a cost and λ's to an upper bound on its log-MGF.
    """

    def of_costs(costs: Mapping[Any, int]) -> LogMGF:
        """Return the sum of the log-MGFs of these costs."""

        def total(lam: Floats) -> Floats:
            """Return the sum at each λ."""
            values = 0.0 * lam
            for cost, times in costs.items():
                values = values + times * log_mgf_of(cost, lam)
            return values

        return total

    return of_costs


def quadratic_log_mgf(
    coefficients: Callable[[Any], tuple[float, float]],
) -> Callable[[Mapping[Any, int]], LogMGF]:
    """Return the function that maps costs with counts to the sum of their log-MGFs, each at most aλ
    + bλ².

    A product is rounded to the nearest float and then moved up, a sum is exact and rounded up.

    Args:
        coefficients: maps a cost to (a, b).
    """

    def of_costs(costs: Mapping[Any, int]) -> LogMGF:
        """Return the sum of the log-MGFs of these costs."""
        linear_terms = []
        square_terms = []
        for cost, times in costs.items():
            a, b = coefficients(cost)
            linear_terms.append(float(outward(a * times)))
            square_terms.append(float(outward(b * times)))
        linear = sum_up(linear_terms)
        square = sum_up(square_terms)
        return lambda lam: lam * (linear + square * lam)

    return of_costs


def zcdp_log_mgf(
    zcdp: Callable[[Any], tuple[float, float]],
) -> Callable[[Mapping[Any, int]], LogMGF]:
    """Return the function that maps (ξ, ρ)-zCDP costs with counts to the sum of their log-MGFs,
    each at most λ (ξ + ρ (1 + λ)).

    Args:
        zcdp: maps a cost to (ξ, ρ).
    """

    def coefficients(cost: Cost) -> tuple[float, float]:
        """Return ξ + ρ, rounded up, and ρ."""
        xi, rho = zcdp(cost)
        return sum_up([xi, rho]), rho

    return quadratic_log_mgf(coefficients)


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
        """Return the numbers of points of the grids on which the best λ is looked for, one after
        another.
        """
        if self.different > MANY_ADDENDS:
            return FEW_GRIDS
        return GRIDS

    def log_delta(self, epsilon: Floats) -> Floats:
        """Return an upper bound on ln δ (at most 0) for each ε of a one-dimensional array."""
        x = epsilon[:, None]
        logs = _smallest_values(
            lambda lam: (
                (1 + 2 * LOG_MGF_ERROR) * self.log_mgf(lam) - (1 - PRODUCT_ROUNDING) * lam * x
            ),
            len(epsilon),
            self._grids,
        )
        return np.where(epsilon >= self.epsilon_max, -np.inf, np.minimum(logs, 0.0))

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return upper bounds on δ; a positive δ never underflows to 0."""
        logs = np.maximum(self.log_delta(epsilon), -1e300)  # ``exp_up`` makes 0 of -inf alone
        return exp_up(np.where(epsilon < self.epsilon_max, logs, -np.inf))

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε."""
        with np.errstate(divide="ignore"):
            log_inverse = -np.log(delta)[:, None]
        epsilons = _smallest_values(
            lambda lam: (self.log_mgf(lam) + log_inverse) / lam, delta.size, self._grids
        )
        epsilons = np.where(np.isnan(epsilons), np.inf, np.maximum(epsilons, 0.0))
        return np.minimum(outward(epsilons, 2 * LOG_MGF_ERROR), self.epsilon_max)


def _smallest_values(
    objective: Callable[[Floats], Floats], size: int, grids: Sequence[int] = GRIDS
) -> Floats:
    """Return the smallest value found of several unimodal functions of λ > 0, by zooming in on
    logarithmic grids.

    Args:
        objective: maps λ's, a row for each function or one row for all of them, to values with a
            row for each function.
        size: the number of functions.
        grids: the number of points of each grid, coarse to fine.
    """
    # ln λ; the first grid is the same for all functions, so that g(λ) is computed once there.
    low = np.full(1, SMALLEST_LOG_ORDER)
    high = np.full(1, LARGEST_LOG_ORDER)
    best = np.full(size, np.inf)
    rows = np.arange(size)
    for points in grids:
        grid = np.linspace(low, high, points, axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            values = objective(np.exp(grid))
        values = np.where(np.isnan(values), np.inf, values)
        places = values.argmin(axis=1)
        best = np.minimum(best, values[rows, places])
        # The next grid spans the neighbours of the smallest value.
        grid = np.broadcast_to(grid, values.shape)
        low = grid[rows, np.maximum(places - 1, 0)]
        high = grid[rows, np.minimum(places + 1, points - 1)]
    return best
