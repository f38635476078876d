"""The top k of data that grow day by day: one charge for all days."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, NamedTuple, get_args

import numpy as np

from dptopk._internal import validate
from dptopk._internal.rounding import read_up
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.costs import Charge, Cost, GaussianDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.histogram.labels import as_labels
from dptopk.mechanisms.mechanism import (
    LARGEST_SCALE,
    finite_l0,
    require_add_remove,
    touched_counts,
)
from dptopk.mechanisms.samplers.factorisation import (
    FACTORISATIONS,
    Factorisation,
    Kind,
    factorisation_of,
    factorise,
    unit_of,
)
from dptopk.mechanisms.samplers.participation import Error, Participation
from dptopk.mechanisms.samplers.random import Array
from dptopk.mechanisms.stream_state import Stream

LARGEST_DAYS = 4000
# Bounds the rounding error, in counts, of a total that is a sum of at most 4000 floats, for a label
# that one user alone has; it is also less than 1e-9 of the noise.
SUM_ROUNDING = 1e-3
# That any of the normal variables of a stream exceeds FAR has a probability below FAR_MASS.
FAR = 40.0
FAR_MASS = 1e-300
MU_ROUNDING = 1e-15  # relative, of a root and two products
SUM_OF_TAILS_ROUNDING = 1e-9  # relative, of a sum of at most 4000 probabilities
NORMAL_ERROR = 1e-12  # of SciPy's normal tail and its quantile, with a wide margin


class TotalNoise(NamedTuple):
    """Normal noise that stands for the noise on the totals of each day; in counts, float64, shape
    (days,) both.

    Attributes:
        deviations: its standard deviations.
        distances: how far it can be from the true noise. That any distance of any day is larger has
            a probability below FAR_MASS.
    """

    deviations: Array
    distances: Array


@dataclass(frozen=True, kw_only=True)
class ContinualTopK:
    """The k labels with the largest noisy totals of the days so far, on each of ``days`` days, with
    these totals.

    Charge, once for all days: GaussianDP for all days of one user together, + δ in a private
    domain. A user adds on a day at most l0 labels by at most linf each, on at most
    ``days_per_user`` days that are at least ``days_apart`` apart; the caller ensures this.
    Neighbours: add or remove one such user. Questions and data of later days may depend on earlier
    answers. A user of n days costs *more* than n times one day, because shifts add up inside a
    measurement before they are squared.

    Args:
        k: labels in each answer.
        days: how many days, from 1 to 4000; fixed beforehand.
        sigma: scale of the noise of one measurement, in units of linf, where the squared shifts of
            a user sum to 1.
        delta: bounds the probability that a label is ever shown which only one user has; above 0
            for private labels, and 0 for public ones.
        factorisation: "optimal" (least noise; up to 1000 days, 60 where users have several),
            "square_root" (close to it), "tree" (binary), "daily" (each day measured once, and added
            up).
        days_per_user: on how many days one user adds something at most; None = all.
        days_apart: the smallest distance of two such days, 1 for days in a row.
        error: what "optimal" and "square_root" minimise: the noise of the worst day's total
            ("max"), or its root mean square over all days.

    Raises:
        InvalidParameter: for numbers outside their ranges, and an unknown factorisation or error.

    Source: docs/notes/continual.md. Binary tree: Dwork-Naor-Pitassi-Rothblum 2010, Chan-Shi-Song
    2011; square root: Fichtenberger-Henzinger-Upadhyay 2023; users of several days: Choquette-Choo
    et al. 2023; users who react to Gaussian noise: Smith-Thakurta 2022; unknown domains under
    continual observation: Rivera Cardoso-Rogers 2022.

    >>> print(ContinualTopK(k=3, days=30, sigma=5.0,
    ...     factorisation="daily").charge(Sensitivity(l0=1)))
    GDP(0.2000000006357835) [adaptive]
    """

    k: int
    days: int
    sigma: float
    delta: float = 0.0
    factorisation: Kind = "square_root"
    days_per_user: int | None = 1
    days_apart: int = 1
    error: Error = "max"

    def __post_init__(self) -> None:
        validate.parameters(
            self, delta=validate.probability, days=partial(validate.count, at_most=LARGEST_DAYS)
        )
        validate.member(tuple(FACTORISATIONS), factorisation=self.factorisation)
        validate.member(get_args(Error), error=self.error)

    def charge(
        self,
        sensitivity: Sensitivity,
        *,
        labels: int | None = None,
        days_per_user: int | None = None,
        days_apart: int | None = None,
    ) -> Charge:
        """Return an upper bound on the cost of all days together, for the worst days on which one
        user may be active.

        μ² = μ'² · Σ (squared shifts of all measurements of all labels): noise of this scale on a
        number that is shifted by one is dominated by a Gaussian cost of some μ'
        (docs/notes/filters.md), and Gaussian costs chosen as one goes cost what their squares sum
        to (Smith-Thakurta 2022). One label's sum, for moves of 1, is ``Participation.energy``; the
        moves of a user-day's labels multiply it by their sum of squares.

        Args:
            sensitivity: of one user-day.
            labels: size of the public domain; needed where l0 is None.
            days_per_user: days of one user that are protected together; None = the mechanism's.
            days_apart: the smallest distance of two of them; None = the mechanism's.

        Raises:
            InvalidParameter: where neither l0 nor ``labels`` is known, the noise is too large for
                64 bits, or the thresholds of private labels promise nothing for a user of that many
                days.
        """
        touched = touched_counts(require_add_remove(sensitivity), labels)
        scale = self._scale(sensitivity)
        if scale > LARGEST_SCALE:
            raise InvalidParameter(
                f"sigma={self.sigma} is too large: integer noise of scale {scale:g} leaves 64 bits"
            )
        if days_per_user is None:
            most = self.days_per_user
        else:
            most = validate.count(days_per_user=days_per_user)
        if days_apart is None:
            apart = self.days_apart
        else:
            apart = validate.count(days_apart=days_apart)
        user = Participation.of(self.days, most, apart)
        # On two days a user may move different labels: the products of the moves of each label on
        # the two days sum to at most the larger sum of squares of a day.
        squares = sensitivity.squares(touched) * Fraction(self.measurements.energy(user))
        mu = math.sqrt(read_up(squares)) * dominating_mu(scale) * (1 + MU_ROUNDING)
        costs: dict[Cost, int] = {GaussianDP(mu): 1} if mu else {}
        return Charge(
            costs, delta=self._failure_of_private_labels(sensitivity, user), adaptive=self.days > 1
        )

    @cached_property
    def participation(self) -> Participation:
        """Return on which days one user may be active."""
        return Participation.of(self.days, self.days_per_user, self.days_apart)

    def _scale(self, sensitivity: Sensitivity) -> float:
        """Return the scale of the integer noise of a measurement; a measurement is a sum of counts
        with integer weights, of which ``measurements.unit`` stands for 1.
        """
        return sensitivity.linf * self.sigma * self.measurements.unit

    def _failure_of_private_labels(self, sensitivity: Sensitivity, user: Participation) -> float:
        """Return an upper bound on the probability that a label that one user alone has is ever
        shown; 0 for public labels.

        It is ``delta`` for users of the mechanism's own ``participation``, for whom the thresholds
        were made; for another ``user`` it is computed from these thresholds.

        Args:
            sensitivity: of one user-day.
            user: the days on which the user may be active.

        Raises:
            InvalidParameter: where such a user alone can reach a threshold, or the bound is 1 or
                more.
        """
        if not self.delta or user == self.participation:
            return self.delta
        deviations, distances = self.total_noise(sensitivity)
        # On each day, the largest total that such a user alone can give a label; and how far the
        # threshold is above it, in standard deviations of the noise.
        largest = sensitivity.linf * user.most_active_days
        margin = (self._thresholds(sensitivity) - distances - largest) / deviations
        # As in ``threshold``, with a = ``user.most_active_days``: one total of a·linf and a - 1
        # totals of 0 are the worst split, because the normal tail is convex where no margin is
        # below 0.
        tail_of_largest = _normal_tail(margin)
        tails_of_zeros = (user.most_active_days - 1) * _normal_tail(margin + largest / deviations)
        l0 = finite_l0(sensitivity, "for private labels")
        tails = (tail_of_largest + tails_of_zeros).sum() * l0
        delta = float(tails * (1 + SUM_OF_TAILS_ROUNDING) + FAR_MASS)
        # A bound of 1 promises nothing, and with a margin below 0 it is not proven.
        if delta >= 1 or margin.min() < 0:
            raise InvalidParameter(
                f"a user with days_per_user={user.most} and days_apart={user.apart} adds too much "
                f"for thresholds that are made for days_per_user={self.participation.most} and "
                f"days_apart={self.participation.apart}: plan the mechanism with these numbers"
            )
        return delta

    @property
    def measurements(self) -> Factorisation:
        """Return the measurements of each day, and how totals are computed from them."""
        # ``with_measurements`` stores them beside the fields: they are no parameter of the
        # mechanism.
        stored: Factorisation | None = self.__dict__.get("_measured")
        if stored is not None:
            return stored
        return factorise(self.factorisation, self.participation, self.error)

    def with_measurements(self, strategy: Sequence[Sequence[int]], unit: int) -> ContinualTopK:
        """Return a copy of the mechanism with these measurements, those of a stored state, because
        the solver of another version may find others.

        Args:
            strategy: integer weights, a row for each measurement and a column for each day.
            unit: the unit of the weights, and of the noise.

        Raises:
            InvalidParameter: for a factorisation that is not "optimal", for another unit than the
                mechanism's own (the noise would have another scale), and for measurements that one
                user moves by more than the unit.
        """
        weights = np.array(strategy, dtype=np.int64)
        if not self._covers_weights(weights, unit):
            raise InvalidParameter("state: its measurements are not those of such a mechanism")
        copy = replace(self)
        copy.__dict__["_measured"] = factorisation_of(weights, unit)
        return copy

    def _covers_weights(self, weights: Array, unit: int) -> bool:
        """Return whether measurements with these weights, shape (rows, days), could be those of
        this mechanism, so that its charge covers them.
        """
        user = self.participation
        if self.factorisation != "optimal" or unit != unit_of(user):
            return False
        if weights.shape != (self.days, self.days):
            return False
        return user.energy(weights) <= unit**2

    def noise_std(self, sensitivity: Sensitivity, day: int | None = None) -> float:
        """Return an upper bound on the standard deviation, in counts, of the noise of a total
        before it is rounded: of the given day, or of the noisiest one.

        Args:
            sensitivity: of one user-day.
            day: from 1 to ``days``; None: the noisiest one.

        Raises:
            InvalidParameter: for other neighbours than add_remove, or a day that there is not.
        """
        spread = self.measurements.spread * (require_add_remove(sensitivity).linf * self.sigma)
        if day is None:
            return float(spread.max())
        return float(spread[self._day_index(day)])

    def total_noise(self, sensitivity: Sensitivity) -> TotalNoise:
        """Return the normal noise that approximates the noise of each day's total, and how far the
        two can be from each other.

        Let N be the discrete Gaussian noise of one measurement, of scale s, and Z the standard
        normal variable of the same quantile: with cut points c_k, Z <= c_k if and only if N <= k.
        Then (k - 1/2)/s <= c_(k-1) and c_k <= (k + 1/2) μ', with the μ' of ``charge``
        (docs/notes/filters.md), so that |N - s Z| <= 1/2 + (s μ' - 1)(|s Z| + 1). A total is a
        weighted sum of measurements, and so is its normal noise.
        """
        scale = self._scale(sensitivity)
        largest_difference = 0.5 + (scale * dominating_mu(scale) - 1) * (FAR * scale + 1)
        factorisation = self.measurements
        deviations = factorisation.spread * (sensitivity.linf * self.sigma)
        distances = factorisation.sums_of_weights * largest_difference + SUM_ROUNDING
        return TotalNoise(deviations, distances)

    def _thresholds(self, sensitivity: Sensitivity) -> Array:
        """Return the thresholds of all days, whole numbers as floats, shape (days,); ``threshold``
        states the inequality that they solve.

        Raises:
            InvalidParameter: without δ or a finite l0, or for a δ that is too small.
        """
        if not self.delta:
            raise InvalidParameter("delta must be above 0 for private labels")
        deviations, distances = self.total_noise(sensitivity)
        l0 = finite_l0(sensitivity, "for private labels")
        # The probability with which the user's totals may pass together, on one day, for each of
        # l0 labels.
        allowed = (self.delta - FAR_MASS) / (l0 * self.days) / (1 + SUM_OF_TAILS_ROUNDING)
        if allowed < FAR_MASS:
            raise InvalidParameter(f"delta={self.delta} is too small")
        active = self.participation.most_active_days
        largest = sensitivity.linf * active
        # The probability is shared by a total of ``largest`` and a - 1 totals of 0. The latter need
        # the most at the lowest threshold, that at which the first total alone has all of it. Where
        # that leaves the first total less than 1/a, it is given 1/a: the other totals, which are
        # smaller, then pass with at most as much each.
        lowest_margin = _normal_quantile(allowed)
        tails_of_zeros = (active - 1) * _normal_tail(lowest_margin + largest / deviations)
        tail_of_largest = np.maximum(allowed - tails_of_zeros, allowed / active)
        margin = deviations * _normal_quantile(tail_of_largest)
        return np.asarray(np.ceil(largest + distances + margin))

    def threshold(self, sensitivity: Sensitivity, day: int) -> int:
        """Return the count that a total must exceed for a private label to be shown on a day; days
        are numbered from 1.

        On each day the labels that one user alone has pass with probability at most δ/days
        together. By then the user has been active on at most a days, has at most l0·a labels, and
        totals c of at most a·linf each, l0·a·linf together. Each passes with probability at most
        Q((T - distance - c)/deviation), where Q is the normal tail and the other two are those of
        ``total_noise``. That is convex in c, so that some pass with a probability of at most l0
        times the sum of that of one total of a·linf and those of a - 1 totals of 0. T is a whole
        number at which this is at most δ/days, close to the smallest one.

        Args:
            sensitivity: of one user-day.
            day: from 1 to ``days``.

        Raises:
            InvalidParameter: for a day that there is not; without δ or a finite l0, or for a δ that
                is too small.
        """
        return int(self._thresholds(sensitivity)[self._day_index(day)])

    def stream(
        self,
        sensitivity: Sensitivity,
        *,
        labels: Sequence[Any] | None = None,
        rng: np.random.Generator | None = None,
    ) -> Stream:
        """Return a new stream, before its first day. Spend ``charge`` before the first answer.

        Args:
            sensitivity: of one user-day.
            labels: the public labels; None = labels are private and come from the data of each day.
            rng: None for cryptographically secure noise.

        Raises:
            InvalidParameter: for private labels without delta or with l0 = None, repeated labels,
                too large a sigma.
        """
        names = None if labels is None else as_labels(labels).tolist()
        # Refuses a sensitivity that is not covered, and a sigma that is too large.
        self.charge(sensitivity, labels=None if names is None else len(names))
        if names is None:
            self.threshold(sensitivity, 1)  # refuses private labels without a threshold
        elif self.delta:
            raise InvalidParameter(
                "delta must be 0 where the labels are public: nothing is compared with a threshold"
            )
        return Stream(self, sensitivity, public=names is not None, names=names or [], rng=rng)

    def _day_index(self, day: int) -> int:
        """Return the index, from 0, of a day that is numbered from 1.

        Raises:
            InvalidParameter: for a day that there is not.
        """
        if not 1 <= validate.count(day=day) <= self.days:
            raise InvalidParameter(f"day={day} must be from 1 to {self.days}")
        return day - 1


def _normal_tail(x: Array) -> Array:
    """Return an upper bound on P[Z > x] for x >= 0 and Z standard normal, elementwise."""
    from scipy.special import ndtr

    tail: Array = ndtr(-np.asarray(x)) * (1 + NORMAL_ERROR)
    return tail


def _normal_quantile(probability: float | Array) -> Array:
    """Return an upper bound on the least x >= 0 with P[Z > x] <= ``probability``, Z standard
    normal, elementwise.
    """
    from scipy.special import ndtri

    quantile: Array = np.maximum(-ndtri(probability), 0.0) * (1 + NORMAL_ERROR) + NORMAL_ERROR
    return quantile
