"""Optimal composition of pure DP costs with different ε's: exact for few outcomes, approximate for
any number.

Exact computation is #P-complete (Murtagh-Vadhan 2016, Theorem 1.6). With distinct ε's in counts
n_1, n_2, ... the composition has ∏ (n_i + 1) outcomes, instead of 2^k; beyond that a grid brackets
the optimum.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import EPS, Floats
from dptopk.accounting.cost_models.conversions import pure_epsilons
from dptopk.accounting.cost_models.cost_registry import types_with
from dptopk.accounting.cost_models.dominating_pairs import MOST_BINOMIAL_COPIES, BracketCurve
from dptopk.accounting.curves import Curve, DeferredCurve
from dptopk.accounting.pld.binomial import log_response_pmf
from dptopk.accounting.pld.lattice import MOST_PLACES, product
from dptopk.accounting.pld.loss_curve import LossCurve
from dptopk.accounting.pld.pairs import randomised_response
from dptopk.accounting.pld.tilt import best_tilt
from dptopk.accounting.pure_dp.homogeneous import all_pure
from dptopk.accounting.registry import bound
from dptopk.costs import Charge, PureDP, sum_up
from dptopk.errors import InvalidParameter, NotApplicable

# Outcomes that the exact formula lists at most: about a second, and 150 MB.
MOST_TERMS = 2_000_000
# Of costs that only imply ε-DP, for which it is not the optimum: not worth a second.
MOST_TERMS_OF_OTHERS = 50_000
# Above this ε a grid is pointless, because the plain sum is as good; below the other one squares of
# ε's underflow.
LARGEST_GRID_EPSILON = 1e5
SMALLEST_GRID_EPSILON = 1e-100
# Steps of the grid in one ε: the loss of a single cost alone would then take all MOST_PLACES.
MOST_STEPS = MOST_PLACES / 2


def optimal_dp_exact_delta(
    epsilons: Mapping[float, int] | Sequence[float], *, at_epsilon: ArrayLike
) -> Floats:
    """Return the smallest δ such that every adaptive composition of ε_i-DP mechanisms is (ε_g,
    δ)-DP.

    Args:
        epsilons: the ε_i > 0 one by one, or a mapping from ε to its count.
        at_epsilon: ε_g >= 0, an array of any shape.

    Returns:
        δ, of the shape of ``at_epsilon``: exact, rounded up.

    Raises:
        InvalidParameter: on arguments outside their ranges, or more than MOST_TERMS outcomes.

    Source: Murtagh-Vadhan 2016, Theorem 1.5, summed over counts instead of subsets.

    It is (e^1.5 - e^0.2 + e - e^0.7) / ((1 + e^0.5) (1 + e)):

    >>> float(optimal_dp_exact_delta([0.5, 1.0], at_epsilon=0.2))
    0.40257...
    """
    return _product_of_binomials(_validated_counts(epsilons)).delta(
        validate.nonnegatives(at_epsilon=at_epsilon)
    )


def optimal_dp_exact_epsilon(
    epsilons: Mapping[float, int] | Sequence[float], *, delta: ArrayLike
) -> Floats:
    """Return the smallest ε_g such that every adaptive composition of ε_i-DP mechanisms is (ε_g,
    δ)-DP.

    Args:
        epsilons: the ε_i > 0 one by one, or a mapping from ε to its count.
        delta: δ >= 0, an array of any shape.

    Returns:
        ε_g, of the shape of ``delta``: exact, rounded up.

    Raises:
        InvalidParameter: on arguments outside their ranges, or more than MOST_TERMS outcomes.

    Source: as for ``optimal_dp_exact_delta``.

    >>> float(optimal_dp_exact_epsilon({0.5: 1, 1.0: 1}, delta=0.0))
    1.5
    """
    return _product_of_binomials(_validated_counts(epsilons)).epsilon(
        validate.nonnegatives(delta=delta)
    )


def _validated_counts(epsilons: Mapping[float, int] | Sequence[float]) -> dict[float, int]:
    """Return the validated ε's with counts, equal ones added up.

    Raises:
        InvalidParameter: for no ε's, or an ε or a count that is not positive.
    """
    if isinstance(epsilons, Mapping):
        items = list(epsilons.items())
    else:
        items = [(epsilon, 1) for epsilon in epsilons]
    counts: Counter[float] = Counter()
    for epsilon, times in items:
        counts[validate.positive(epsilons=epsilon)] += validate.count(epsilons=times)
    if not counts:
        raise InvalidParameter("epsilons must not be empty")
    return dict(counts)


def number_of_outcomes(counts: Mapping[float, int]) -> int:
    """Return how many outcomes the exact formula lists, ∏ (n_i + 1).

    Args:
        counts: n_i, the number of costs of each ε.
    """
    return math.prod(times + 1 for times in counts.values())


def _product_of_binomials(counts: Mapping[float, int], *, attained: bool = True) -> LossCurve:
    """Return the curve of the product of randomised responses, all outcomes listed: the losses of n
    copies of one ε sum up to (2j - n) ε, j binomial.

    Args:
        counts: the number of costs of each ε.
        attained: whether costs attain this curve, so that it is a lower bound as well.

    Raises:
        InvalidParameter: for more than MOST_TERMS outcomes.
    """
    if number_of_outcomes(counts) > MOST_TERMS:
        raise InvalidParameter(
            f"epsilons must have at most {MOST_TERMS} outcomes, got {number_of_outcomes(counts)}"
        )
    losses = np.zeros(1)
    log_masses = np.zeros(1)
    error = np.zeros(1)
    for epsilon, times in counts.items():
        log_weights, weight_error = log_response_pmf(times, epsilon)
        losses = np.add.outer(losses, np.arange(-times, times + 1, 2) * epsilon).ravel()
        log_masses = np.add.outer(log_masses, log_weights).ravel()
        error = np.add.outer(error, weight_error).ravel()
    order = np.argsort(losses, kind="stable")
    total = sum_up(counts)
    # A logarithm takes a sum for each ε, a loss a product and a sum of at most ``total``; each
    # rounds by half an EPS of its size at most.
    return LossCurve(
        losses[order],
        log_masses[order],
        log_error=(error + len(counts) * EPS * np.abs(log_masses))[order],
        loss_error=2 * len(counts) * EPS * total,
        epsilon_max=total,
        exact=attained,
    )


@bound(
    "optimal_dp_exact",
    source="Murtagh-Vadhan 2016, Theorem 1.5; set-wise by Theorem A (docs/theorems.md)",
    takes=types_with("pure"),
    refines=True,
    published=True,
)
def optimal_dp_exact(charge: Charge) -> Curve:
    """Bound costs of different ε's by their optimal composition, which is the optimum itself when
    every cost is a PureDP cost.

    Raises:
        NotApplicable: for a cost that implies no pure DP, or too many outcomes to list.
    """
    counts = pure_epsilons(charge)
    most = MOST_TERMS if all_pure(charge) else MOST_TERMS_OF_OTHERS
    if number_of_outcomes(counts) > most:
        raise NotApplicable(
            f"more than {most:.0e} outcomes to list; optimal_dp_approx brackets the optimum"
        )
    return DeferredCurve(lambda: _product_of_binomials(counts, attained=all_pure(charge)))


def optimal_dp_approx_epsilon(
    epsilons: Mapping[float, int] | Sequence[float], *, delta: float, eta: float = 0.01
) -> float:
    """Return an upper bound ε* on the optimal ε_g, at most OptComp(ε_1, ..., ε_k, e^{-η/2} δ) + η
    (up to rounding).

    Each ε_i is rounded *up* to a multiple of η/k, and the result composed exactly on that grid. The
    published proof rounds down, which yields a lower bound; with rounding up, Lemma 5.3 gives the
    guarantee stated.

    Args:
        epsilons: the ε_i > 0 one by one, or a mapping from ε to its count.
        delta: in (0, 1).
        eta: η > 0, the additive error in ε_g; time grows like (Σ ε_i) k² / η at worst.

    Returns:
        ε*: an upper bound, with a relative error in δ of about 1e-8 from rounding.

    Raises:
        InvalidParameter: on arguments outside their ranges, and for an η so small that the grid
            would have too many places.

    Source: Murtagh-Vadhan 2016, Theorem 1.7, with the direction of rounding mended.

    >>> 2.07906 < optimal_dp_approx_epsilon([0.1] * 25, delta=1e-6, eta=0.01) < 2.08906
    True
    """
    counts = _validated_counts(epsilons)
    delta = validate.probability(delta=delta, allow_zero=False)
    step = validate.positive(eta=eta) / sum(counts.values())
    too_small = f"eta={eta} is too small: its grid would have too many places"
    if max(counts) > MOST_STEPS * step:
        raise InvalidParameter(too_small)
    rounded: Counter[float] = Counter()
    for epsilon, times in counts.items():
        # Two roundings of the quotient and of the step must not make a node too small.
        node = math.ceil(epsilon / step * (1 + 4 * EPS))
        rounded[node * step] += times
    # One object of pairs holds the ε's that occur equally often.
    by_count: dict[int, list[float]] = {}
    for epsilon, times in rounded.items():
        by_count.setdefault(times, []).append(epsilon)
    pairs = [randomised_response(np.array(group), times) for times, group in by_count.items()]
    try:
        law = product(pairs, step=step, tilt=best_tilt(pairs, delta=delta), side=1)
    except OverflowError:
        raise InvalidParameter(too_small) from None
    return min(law.epsilon(delta), sum_up(counts))


@bound(
    "optimal_dp_approx",
    source="Murtagh-Vadhan 2016, Theorem 1.7, with losses split on the grid (docs/theorems.md, "
    "lattice brackets)",
    takes=types_with("pure"),
    refines=True,
    published=True,
)
def optimal_dp_approx(charge: Charge) -> Curve:
    """Return a certified bracket of the optimal composition of any number of different ε's.

    Losses are split on a grid so that the mass under either distribution stays, an error of second
    order in the step; so a far coarser grid does than for ``optimal_dp_approx_epsilon``
    (docs/theorems.md, lattice brackets).

    Raises:
        NotApplicable: for a cost that implies no pure DP, for ε's too small or too large for a
            grid, or too many copies of one.
    """
    counts = pure_epsilons(charge)
    if max(counts) < SMALLEST_GRID_EPSILON:
        raise NotApplicable("epsilons so small that their squares underflow")
    if max(counts) > LARGEST_GRID_EPSILON:
        raise NotApplicable(
            f"an epsilon above {LARGEST_GRID_EPSILON:.0e}: nothing to gain over the sum"
        )
    if max(counts.values()) > MOST_BINOMIAL_COPIES:
        raise NotApplicable(f"more than {MOST_BINOMIAL_COPIES:.0e} copies of one epsilon")
    pure = Charge({PureDP(epsilon): times for epsilon, times in counts.items()})
    return BracketCurve(pure, sum_up(counts), attained=all_pure(charge))
