"""Privacy losses of others as costs: pairs of laws, and distributions of dp-accounting.

A mechanism that is (ε_i, δ_i)-DP for many ε_i at once is a ``MultiDP`` cost: its worst case is the
largest profile through these points, a mixture of randomised responses that dominates in both
directions (docs/notes/regions.md). A profile with corners, of a law with finitely many losses, is
that of its corners; between the points of any other the chords are above it, as profiles are convex
in e^ε. So a profile that is known from above at some ε's is a cost, composed with all others by
``compose``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dptopk._internal import validate
from dptopk._internal.rounding import EPS, Floats
from dptopk.costs import MultiDP
from dptopk.errors import InvalidParameter

POINTS = 400  # the number of ε's at which a profile is stated, unless another is asked for
MOST_POINTS = 100_000  # that may be asked for
SUM_ERROR = 1e-9  # by which probabilities may miss 1
NEGLIGIBLE = 1e-20  # a δ: beyond, a profile ends with this much mass of infinite loss
LARGEST_LOSS = 500.0
# Of a sum of probabilities, relative and absolute: what is known of others is rounded outward.
ROUNDING = 1e-12
FLOAT_ERROR = 1e-16
HALVINGS = 60  # of the range of ε's, down to its rounding


class DeltaByEpsilon(Protocol):
    """The part of ``dp_accounting.pld.PrivacyLossDistribution`` that is used here."""

    def get_delta_for_epsilon(self, epsilon: NDArray[np.float64]) -> ArrayLike:
        """Return the larger δ of both directions at each ε, from above."""
        ...


def from_pair(p: ArrayLike, q: ArrayLike, *, points: int = POINTS) -> MultiDP:
    """Return the cost of a mechanism whose answers have these laws on two neighbouring data sets.

    The pair must be the worst one: of a mechanism with several pairs of neighbours, one that
    dominates all of them, the other direction counted by itself. Then the cost is exact where there
    are at most ``points`` different losses, and else an upper bound.

    Args:
        p: shape (n,), probabilities of the n outcomes on one data set, >= 0, sum 1 to within 1e-9;
            what is missing counts as an answer that gives everything away.
        q: shape (n,), on the other.
        points: the largest number of ε's in the cost, at least 2.

    Returns:
        MultiDP: the (ε, δ) of both directions together. No δ is 0, also where all losses are
        finite: rounding is up to 1e-15 at each.

    Raises:
        InvalidParameter: on negative or non-finite probabilities, other sums, unequal shapes, two
            equal laws, which cost nothing, or points below 2.

    >>> from dptopk import Charge, compose
    >>> cost = from_pair([0.75, 0.25], [0.25, 0.75])  # randomised response of ln 3
    >>> round(compose(Charge({cost: 10}), delta=1e-6).epsilon, 3)
    10.986
    """
    points = validate.count(at_least=2, at_most=MOST_POINTS, points=points)
    first = _checked_law("p", p)
    second = _checked_law("q", q)
    if first.shape != second.shape:
        raise InvalidParameter(f"p and q must have one length, got {len(first)} and {len(second)}")
    if np.array_equal(first, second):
        raise InvalidParameter("p and q are equal: such a mechanism costs nothing")

    # One rounding, of the difference itself.
    missing = max(math.fsum([1.0, *(-law).tolist()]) for law in (first, second))

    def delta(x: Floats) -> Floats:
        """Return the larger δ of both directions at each ε, rounded up but for a few EPS of δ."""
        # Differences cancel at a corner. There e^x is off by EPS, and its product with a
        # probability by half an EPS, as is that of e^x with this factor: 2 EPS of what they are
        # subtracted from. At ε = 0 nothing is off.
        ratios = np.where(x > 0, np.exp(x) * (1 - 2 * EPS), 1.0)[:, None]
        forth = np.maximum(first - ratios * second, 0.0).sum(axis=1)
        back = np.maximum(second - ratios * first, 0.0).sum(axis=1)
        return np.maximum(forth, back) + max(missing, 0.0)

    return from_profile(delta, _corners_of_pair(first, second, points))


def _corners_of_pair(first: Floats, second: Floats, points: int) -> Floats:
    """Return the ε's, rising from 0, at which the profile of a pair of laws has corners: the sizes
    of its finite losses; of more than ``points`` some that are evenly spread among them.

    Args:
        first: the one law, probabilities.
        second: the other.
        points: how many ε's are returned at most.
    """
    in_both = (first > 0) & (second > 0)
    losses = np.abs(np.log(first[in_both] / second[in_both]))
    corners = np.unique(np.append(losses[losses <= LARGEST_LOSS], 0.0))
    if len(corners) > points:
        places = np.linspace(0, len(corners) - 1, points).round().astype(int)
        corners = corners[places]
    # A corner that is rounded down would be no corner; one float more is the same bound. At 0 there
    # is nothing to round.
    return np.where(corners > 0, np.nextafter(corners, np.inf), 0.0)


def from_pld(pld: DeltaByEpsilon, *, points: int = POINTS) -> MultiDP:
    """Return the cost of a mechanism with a privacy loss distribution of dp-accounting.

    Args:
        pld: of one mechanism or of a composition, estimated pessimistically; its δ's are rounded
            outward by a relative 1e-12, and its floating-point error beyond that is its own.
        points: the largest number of ε's in the cost, at least 2; chords between them are above
            the profile.

    Returns:
        MultiDP: an upper bound on the distribution's profile, in both directions.

    Raises:
        InvalidParameter: when its δ's are no profile (outside [0, 1], rising), or 1 at every ε, and
            on points below 2.

    >>> from dp_accounting.pld import privacy_loss_distribution
    >>> laplace = privacy_loss_distribution.from_laplace_mechanism(10.0)
    >>> from dptopk import Charge, compose
    >>> round(compose(Charge({from_pld(laplace): 10}), delta=1e-6).epsilon, 2)
    1.0
    """
    points = validate.count(at_least=2, at_most=MOST_POINTS, points=points)

    def delta(x: Floats) -> Floats:
        """Return the distribution's δ at each ε."""
        return np.asarray(pld.get_delta_for_epsilon(x), dtype=float)

    return from_profile(delta, evenly_spaced_epsilons(delta, points))


def from_profile(
    delta: Callable[[Floats], Floats], epsilons: Floats, *, zero_from: float | None = None
) -> MultiDP:
    """Return the cost of a mechanism whose δ at some ε's is known from above.

    Args:
        delta: maps ε's to upper bounds on δ, the larger of both directions.
        epsilons: the ε's, in any order.
        zero_from: an ε at which δ is known to be 0, not only to rounding; None: none is known.

    Returns:
        MultiDP: an upper bound on the profile. Every δ is raised by FLOAT_ERROR and is not 0, but
        that at ``zero_from``.

    Raises:
        InvalidParameter: when the δ's are not in [0, 1], rise, or are all 1.
    """
    x = np.unique(epsilons)
    values = delta(x)
    if not (np.isfinite(values) & (values >= 0) & (values <= 1 + SUM_ERROR)).all():
        raise InvalidParameter("the δ's of a profile must be in [0, 1]")
    if (np.diff(values) > SUM_ERROR).any():
        raise InvalidParameter("the δ's of a profile must not rise")
    raised = np.minimum(values * (1 + ROUNDING) + FLOAT_ERROR, 1.0)
    falling = np.maximum.accumulate(raised[::-1])[::-1]
    informative = falling < 1
    if not informative.any():
        raise InvalidParameter("a mechanism with δ = 1 at every ε has no cost")
    pairs = list(zip(x[informative].tolist(), falling[informative].tolist(), strict=True))
    if zero_from is not None:
        pairs.append((zero_from, 0.0))
    return MultiDP(tuple(pairs))


def evenly_spaced_epsilons(delta: Callable[[Floats], Floats], points: int) -> Floats:
    """Return evenly spaced ε's from 0 to about the ε at which a profile has come down to
    ``NEGLIGIBLE``, or to its value at ``LARGEST_LOSS`` where that is larger.

    Args:
        delta: maps ε's to δ's.
        points: how many ε's are returned, at least 2.

    Raises:
        InvalidParameter: for δ's that rise, or are no numbers.
    """
    first, last = delta(np.array([0.0, LARGEST_LOSS])).tolist()
    if not last <= first + SUM_ERROR:
        raise InvalidParameter("the δ's of a profile must be numbers that do not rise")
    floor = max(last * (1 + ROUNDING), NEGLIGIBLE)  # ``last`` is what it never falls below
    low = 0.0
    high = LARGEST_LOSS
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float(delta(np.array([middle]))[0]) > floor:
            low = middle
        else:
            high = middle
    return np.linspace(0.0, high, points)


def _checked_law(name: str, law_values: ArrayLike) -> Floats:
    """Return the probabilities as an array, checked; ``name`` is that of the argument.

    Raises:
        InvalidParameter: for no probabilities, a negative one, another shape, or another sum than
            1.
    """
    law = np.asarray(validate.nonnegatives(**{name: law_values}), dtype=float)
    if law.ndim != 1 or not law.size:
        raise InvalidParameter(f"{name} must be one-dimensional and not empty")
    total = math.fsum(law.tolist())
    if abs(total - 1) > SUM_ERROR:
        raise InvalidParameter(f"{name} must have the sum 1, got {total!r}")
    return law
