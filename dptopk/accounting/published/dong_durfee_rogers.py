"""Adaptive composition of ε-BR costs by concentration of the privacy loss (DDR Section 7), also
with different ε's.

Each bound is a function U_ε(λ) >= ln E e^{λL} of one round's loss, given any history (DDR Lemma
7.1); a Chernoff bound on the sum follows. The quadratic ones, U = mean·λ + variance·λ²/2, give ε =
Σ mean + sqrt(2 Σ variance ln(1/δ)):

| bound          | mean       | variance | source                                    |
|----------------|------------|----------|-------------------------------------------|
| improved_drv10 | ε²/2       | ε²       | DDR Section 7, (a) and (b); any ε-DP cost |
| dr19           | ε²/2       | ε²/4     | DDR Section 7, after (b)                  |
| opt_kl         | maxkl(ε)   | ε²/4     | DDR Corollary 3.1                         |
| mgf            | U = h_ε(λ) itself     | DDR Theorem 5                             |

The sum over the rounds does not depend on their order, so all four hold however the analyst picks
the next cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import Floats, outward, sum_times
from dptopk.accounting.cost_models.conversions import max_kl, pure_epsilons
from dptopk.accounting.cost_models.cost_registry import types_with
from dptopk.accounting.curves import EpsilonCurve
from dptopk.accounting.pld.log_mgf import ChernoffCurve, bounded_range_log_mgf, pure_dp_log_mgf
from dptopk.accounting.registry import Builder, bound
from dptopk.costs import BoundedRange, Charge, Cost, sum_up
from dptopk.errors import InvalidParameter

OfEpsilons = Callable[[Floats], Floats]  # maps an array of ε's to one value for each

# Squares of an ε below 1e-146 lose digits or are 0, and some count may be large enough to make up
# for it: rounded up.
SMALLEST_SQUARE = 1e-292
FEW_ROUNDINGS = 1e-15  # relative, of up to four operations on positive numbers


def _square(epsilon: Floats, divisor: int = 1) -> Floats:
    """Return ε² / divisor of each ε, rounded up, also where ε² underflows."""
    return outward(np.maximum(epsilon * epsilon, SMALLEST_SQUARE) / divisor, FEW_ROUNDINGS)


def _max_kl(epsilon: Floats) -> Floats:
    """Return maxkl(ε) of each ε."""
    return np.array([max_kl(size) for size in epsilon.tolist()])


def _register_quadratic_bound(
    name: str, source: str, takes: tuple[type[Any], ...], mean: OfEpsilons, variance: OfEpsilons
) -> Builder:
    """Register the bound ε(δ) = min(Σ ε, Σ mean + sqrt(2 Σ variance ln(1/δ))), and return the
    function that makes its curve for a charge.

    Args:
        name: of the bound.
        source: of the bound.
        takes: the types of cost it takes.
        mean: maps ε's to upper bounds on mean losses.
        variance: maps ε's to upper bounds on the variances of the subgaussian losses.
    """

    @bound(name, source=source, takes=takes, published=True)
    def curve(charge: Charge) -> EpsilonCurve:
        """Return the curve of a charge; the docstring of ``_register_quadratic_bound``
        has the formula.
        """
        epsilons = pure_epsilons(charge)
        sizes = np.array(list(epsilons))
        total = sum_times(zip(mean(sizes).tolist(), epsilons.values(), strict=True))
        spread = sum_times(zip(variance(sizes).tolist(), epsilons.values(), strict=True))
        return EpsilonCurve(
            lambda log_inverse: outward(total + np.sqrt(2 * spread * log_inverse), FEW_ROUNDINGS),
            epsilon_max=sum_up(epsilons),
        )

    return curve


_half_square = partial(_square, divisor=2)
_quarter_square = partial(_square, divisor=4)
_BR = (BoundedRange,)
_PURE = types_with("pure")
_dr19 = _register_quadratic_bound(
    "dr19",
    "Durfee-Rogers 2019, as in Dong-Durfee-Rogers 2020, Section 7",
    _BR,
    _half_square,
    _quarter_square,
)
_drv10_source = "Dwork-Rothblum-Vadhan 2010, as improved in Dong-Durfee-Rogers 2020, Section 7"
_improved_drv10 = _register_quadratic_bound(
    "improved_drv10", _drv10_source, _PURE, _half_square, _square
)
_opt_kl = _register_quadratic_bound(
    "opt_kl", "Dong-Durfee-Rogers 2020, Corollary 3.1", _BR, _max_kl, _quarter_square
)


@bound("mgf", source="Dong-Durfee-Rogers 2020, Theorem 5", takes=_PURE, published=True)
def _mgf(charge: Charge) -> ChernoffCurve:
    """Return the Chernoff curve of the summed log-MGFs: δ(ε) = inf over λ of e^{Σ h(λ) - λε}, where
    h is the log-MGF of a cost's loss.

    The bound ``renyi`` has the same moments, and a better conversion at every order.
    """
    ranges = charge.of(BoundedRange)
    pure = pure_epsilons(Charge({cost: times for cost, times in charge if cost not in ranges}))
    ranged = {cost.epsilon: times for cost, times in ranges.items()}

    def log_mgf(lam: Floats) -> Floats:
        """Return the sum of the log-MGFs of all costs at each λ."""
        total = np.zeros(lam.shape)
        if ranged:
            total = total + _summed_log_mgfs(ranged, bounded_range_log_mgf, lam)
        if pure:
            total = total + _summed_log_mgfs(pure, pure_dp_log_mgf, lam)
        return total

    return ChernoffCurve(
        log_mgf, epsilon_max=sum_up(pure_epsilons(charge)), different=len(charge.costs)
    )


def _summed_log_mgfs(
    counts: Mapping[float, int], log_mgf: Callable[[Floats, Floats], Floats], lam: Floats
) -> Floats:
    """Return Σ n log_mgf(ε, λ) over the ε's with their counts n, at each λ, shape of ``lam``.

    Args:
        counts: n of each ε.
        log_mgf: the log-MGF of one cost, a function of ε and λ that broadcasts.
        lam: λ > 0.
    """
    # The ε's lie along an axis of their own, before those of λ.
    epsilons = np.array(list(counts)).reshape(-1, *[1] * lam.ndim)
    times = np.array(list(counts.values()), float)
    return np.asarray(np.tensordot(times, log_mgf(epsilons, lam), 1))


def _charge_of(epsilon: ArrayLike, count: ArrayLike) -> Charge:
    """Return the BR costs with these ε's and counts, which are broadcast against each other.

    Raises:
        InvalidParameter: for no costs, for an ε or a count that is not positive, or for shapes that
            do not fit each other.
    """
    sizes = validate.nonnegatives(epsilon=epsilon)  # a cost refuses an ε of 0
    try:
        times = np.asarray(count)
    except ValueError:  # lists of unequal length
        raise InvalidParameter("count must be an array of integers") from None
    try:
        epsilons, counts = np.broadcast_arrays(sizes, times)
    except ValueError:
        raise InvalidParameter(
            f"count must fit the shape of epsilon, {sizes.shape}; got the shape {times.shape}"
        ) from None
    costs: Counter[Cost] = Counter()
    for e, n in zip(epsilons.ravel().tolist(), counts.ravel().tolist(), strict=True):
        costs[BoundedRange(e)] += validate.count(count=n)
    if not costs:
        raise InvalidParameter("epsilon and count must hold at least one value")
    return Charge(costs)


def dr19_epsilon(epsilon: ArrayLike, count: ArrayLike, *, delta: ArrayLike) -> Floats:
    """Return ε of adaptively composed BR costs, min(Σε, Σε²/2 + sqrt(½ Σε² ln(1/δ))): an upper
    bound, rounded outward.

    Args:
        epsilon: the ε > 0 of each kind of BR cost, a scalar or an array.
        count: how often each is paid, integers >= 1, broadcast against ``epsilon``.
        delta: δ in [0, 1), any shape: the shape of the result.

    Raises:
        InvalidParameter: on values outside these ranges, or shapes that do not fit each other.

    Source: Durfee-Rogers 2019 as restated in DDR Section 7 (U = ½ε²(λ²/4 + λ)).

    >>> round(float(dr19_epsilon(0.1, 100, delta=1e-6)), 4)
    3.1283
    """
    return _dr19(_charge_of(epsilon, count)).epsilon(validate.probabilities(delta=delta))


def improved_drv10_epsilon(epsilon: ArrayLike, count: ArrayLike, *, delta: ArrayLike) -> Floats:
    """Return ε of adaptively composed ε-DP costs, min(Σε, Σε²/2 + sqrt(2 Σε² ln(1/δ))): an upper
    bound, rounded outward.

    Args:
        epsilon: the ε > 0 of each kind of DP cost, a scalar or an array.
        count: how often each is paid, integers >= 1, broadcast against ``epsilon``.
        delta: δ in [0, 1), any shape: the shape of the result.

    Raises:
        InvalidParameter: on values outside these ranges, or shapes that do not fit each other.

    Source: "Improved DRV10" of DDR Section 7 (U = ½ε²(λ² + λ)).

    >>> round(float(improved_drv10_epsilon(0.1, 100, delta=1e-6)), 4)
    5.7565
    """
    return _improved_drv10(_charge_of(epsilon, count)).epsilon(validate.probabilities(delta=delta))


def opt_kl_epsilon(epsilon: ArrayLike, count: ArrayLike, *, delta: ArrayLike) -> Floats:
    """Return ε of adaptively composed BR costs, min(Σε, Σ maxkl(ε) + sqrt(½ Σε² ln(1/δ))): an upper
    bound, rounded outward.

    Args:
        epsilon: the ε > 0 of each kind of BR cost, a scalar or an array.
        count: how often each is paid, integers >= 1, broadcast against ``epsilon``.
        delta: δ in [0, 1), any shape: the shape of the result.

    Raises:
        InvalidParameter: on values outside these ranges, or shapes that do not fit each other.

    Source: DDR Corollary 3.1.

    >>> round(float(opt_kl_epsilon(0.1, 100, delta=1e-6)), 4)
    2.7532
    """
    return _opt_kl(_charge_of(epsilon, count)).epsilon(validate.probabilities(delta=delta))


def mgf_delta(epsilon: ArrayLike, count: ArrayLike, *, at_epsilon: ArrayLike) -> Floats:
    """Return δ of adaptively composed BR costs, inf over λ of e^{Σ h_ε(λ) - λ ε_g}: an upper bound,
    rounded outward.

    Args:
        epsilon: the ε > 0 of each kind of BR cost, a scalar or an array.
        count: how often each is paid, integers >= 1, broadcast against ``epsilon``.
        at_epsilon: ε_g >= 0, any shape: the shape of the result.

    Raises:
        InvalidParameter: on values outside these ranges, or shapes that do not fit each other.

    Source: DDR Theorem 5, with h_ε(λ) in closed form (``log_mgf``).

    >>> bool(mgf_delta(0.1, 100, at_epsilon=2.7287) < 1e-6)
    True
    """
    return _mgf(_charge_of(epsilon, count)).delta(validate.nonnegatives(at_epsilon=at_epsilon))


def mgf_epsilon(epsilon: ArrayLike, count: ArrayLike, *, delta: ArrayLike) -> Floats:
    """Return ε of adaptively composed BR costs, inf over λ of (Σ h_ε(λ) + ln(1/δ))/λ: an upper
    bound, rounded outward.

    Args:
        epsilon: the ε > 0 of each kind of BR cost, a scalar or an array.
        count: how often each is paid, integers >= 1, broadcast against ``epsilon``.
        delta: δ in [0, 1), any shape: the shape of the result.

    Raises:
        InvalidParameter: on values outside these ranges, or shapes that do not fit each other.

    Source: DDR Theorem 5, solved for ε_g.

    >>> round(float(mgf_epsilon(0.1, 100, delta=1e-6)), 4)
    2.7286
    """
    return _mgf(_charge_of(epsilon, count)).epsilon(validate.probabilities(delta=delta))


def adaptivity_gap(epsilon: float, count: int, *, at_epsilon: float) -> bool | None:
    """Return what DDR prove of an adaptive analyst's gain over independent selections of k ε-BR
    mechanisms: that there is one, that there is none, or neither.

    Args:
        epsilon: ε > 0 of all.
        count: k >= 1.
        at_epsilon: ε_g >= 0.

    Returns:
        True when δ_adaptive > δ_nonadaptive at ε_g is proven: ε_g <= (k-3)ε for k >= 4 (DDR Lemma
        6.6), ε_g < ε/2 for k = 2 (DDR Lemma 6.4). False when equality is: ε_g >= (k-1)ε, or k = 1.
        None where DDR are silent, and at k = 3, where their Theorem 4 as printed claims a gap at
        ε_g = 0: there is none (docs/notes/errata.md). Computed for k from 2 to 4 the gap ends at (k
        - 1 - 1/k)ε, and only k = 3 has no gap at 0.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    >>> [adaptivity_gap(0.1, 10, at_epsilon=x) for x in (0.5, 0.95, 0.8)]
    [True, False, None]
    """
    epsilon = validate.positive(epsilon=epsilon)
    x = validate.nonnegative(at_epsilon=at_epsilon)
    count = validate.count(count=count)
    if x >= (count - 1) * epsilon or count == 1:
        return False
    if count == 2:
        proven = x < epsilon / 2
    else:
        proven = count > 3 and x <= (count - 3) * epsilon
    if proven:
        return True
    return None
