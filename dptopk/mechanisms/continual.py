"""The top k of data that grow day by day: one charge for all days."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, get_args

import numpy as np

from dptopk._internal import validate
from dptopk._internal.rounding import read_up
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.costs import Charge, Cost, GaussianDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity, descending_order
from dptopk.histogram.labels import as_labels, from_plain, identity
from dptopk.mechanisms.mechanism import LARGEST_SCALE, finite_l0, require_add_remove, touched_counts
from dptopk.mechanisms.samplers.factorisation import (
    FACTORISATIONS,
    Factorisation,
    Kind,
    factorise,
    triangular,
    unit_of,
)
from dptopk.mechanisms.samplers.noise import gaussian_law
from dptopk.mechanisms.samplers.participation import Error, Participation
from dptopk.mechanisms.samplers.random import Array, Ints, Rng, random_bits
from dptopk.mechanisms.stream_day import StreamDay, plain_names
from dptopk.release.intervals import Measurement
from dptopk.release.noise_laws import RoundedNormalNoise
from dptopk.release.release import Release

LARGEST_DAYS = 4000
# A weighted sum of all days stays below this, and with its noise within 64 bits: a day's count is
# cut at this, divided by the largest sum of weights. Cutting never moves two neighbouring counts
# farther apart.
LARGEST_SUM = 2**62
# Bounds the rounding error, in counts, of a total that is a sum of at most 4000 floats, for a label
# that one user alone has; it is also less than 1e-9 of the noise.
SUM_ROUNDING = 1e-3
# That any of the normal variables of a stream exceeds FAR has a probability below FAR_MASS.
FAR = 40.0
FAR_MASS = 1e-300
MU_ROUNDING = 1e-15  # relative, of a root and two products
SUM_OF_TAILS_ROUNDING = 1e-9  # relative, of a sum of at most 4000 probabilities
NORMAL_ERROR = 1e-12  # of SciPy's normal tail and its quantile, with a wide margin
# The largest distance to normal noise at which intervals are stated: beyond, they would be wider by
# more than a factor of 2.
LARGEST_DISTANCE = 0.25
# Sums of this many labels are computed at a time, so that they stay in a processor's cache.
_BLOCK = 2**15


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

        μ = μ'(scale) · linf · sqrt(copies · largest sum of squared shifts): discrete noise is
        dominated by Gaussian noise of μ' (docs/notes/filters.md), and Gaussian costs chosen as one
        goes cost what their squares sum to (Smith-Thakurta 2022); the sum is that of
        ``Participation.energy``.

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
        # Of two days i and j the moves of all labels have a product of at most the larger square.
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
        """Return the scale of the integer noise of a measurement, in its own units."""
        return sensitivity.linf * self.sigma * self.measurements.unit

    def _failure_of_private_labels(self, sensitivity: Sensitivity, user: Participation) -> float:
        """Return an upper bound on the probability that a label that one user alone has is ever
        shown.

        It is ``delta`` for users of the mechanism's own ``participation``, for whom the thresholds
        were made; for another ``user`` it is computed from these thresholds.

        Raises:
            InvalidParameter: where such a user alone can reach a threshold, or the bound is 1 or
                more.
        """
        if not self.delta or user == self.participation:
            return self.delta
        spread, rounding = self.total_noise(sensitivity)
        # On each day, the largest total that such a user alone can give a label; and how far the
        # threshold is above it, in standard deviations of the noise.
        largest = sensitivity.linf * user.most_active_days
        margin = (self._thresholds(sensitivity) - rounding - largest) / spread
        # As in ``threshold``, with a = ``user.most_active_days``: one total of a·linf and a - 1
        # totals of 0 are the worst split, because the normal tail is convex where no margin is
        # below 0.
        tail_of_largest = _normal_tail(margin)
        tails_of_zeros = (user.most_active_days - 1) * _normal_tail(margin + largest / spread)
        l0 = finite_l0(sensitivity, "for private labels")
        tails = (tail_of_largest + tails_of_zeros).sum() * l0
        delta = float(tails * (1 + SUM_OF_TAILS_ROUNDING) + FAR_MASS)
        # A bound of 1 promises nothing, and with a margin below 0 it is not proven.
        if delta >= 1 or margin.min() < 0:
            raise InvalidParameter(
                f"days_per_user={user.most} is too large for thresholds that are made for "
                f"{self.participation.most}: plan the mechanism with this days_per_user"
            )
        return delta

    @property
    def measurements(self) -> Factorisation:
        """Return the measurements of each day, and how totals are computed from them."""
        # ``measured_by`` puts it beside the fields: it is no parameter of the mechanism.
        stored: Factorisation | None = self.__dict__.get("_measured")
        if stored is not None:
            return stored
        return factorise(self.factorisation, self.participation, self.error)

    def measured_by(self, strategy: Sequence[Sequence[int]], unit: int) -> ContinualTopK:
        """Return a copy of the mechanism with the measurements of a stored state, because the
        solver of another version may find others.

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
        copy.__dict__["_measured"] = triangular(weights, unit)
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

        Raises:
            InvalidParameter: for other neighbours than add_remove, or a day that there is not.
        """
        spread = self.measurements.spread * (require_add_remove(sensitivity).linf * self.sigma)
        if day is None:
            return float(spread.max())
        return float(spread[self._day_index(day)])

    def total_noise(self, sensitivity: Sensitivity) -> tuple[Array, Array]:
        """Return the normal noise that approximates the noise of each day's total, and the largest
        distance between the two.

        Let N be discrete Gaussian noise of scale s and Z the standard normal variable of the same
        quantile: Z <= c_k if and only if N <= k. Then (k - 1/2)/s <= c_(k-1) and c_k <= (k + 1/2)
        μ' (docs/notes/filters.md), so that |N - s Z| <= 1/2 + (s μ' - 1)(|s Z| + 1).

        Returns:
            The standard deviations of the normal noise and the distances, in counts, float64,
            shape (days,) each. That a distance is exceeded has a probability below FAR_MASS.
        """
        scale = self._scale(sensitivity)
        largest_difference = 0.5 + (scale * dominating_mu(scale) - 1) * (FAR * scale + 1)
        factorisation = self.measurements
        deviations = factorisation.spread * (sensitivity.linf * self.sigma)
        distances = factorisation.weights * largest_difference + SUM_ROUNDING
        return deviations, distances

    def _thresholds(self, sensitivity: Sensitivity) -> Array:
        """Return the thresholds of all days, shape (days,); ``threshold`` states the inequality
        that they solve.

        Raises:
            InvalidParameter: without δ or a finite l0, or for a δ that is too small.
        """
        if not self.delta:
            raise InvalidParameter("delta must be above 0 for private labels")
        spread, rounding = self.total_noise(sensitivity)
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
        tails_of_zeros = (active - 1) * _normal_tail(_normal_quantile(allowed) + largest / spread)
        tail_of_largest = np.maximum(allowed - tails_of_zeros, allowed / active)
        return np.asarray(np.ceil(largest + rounding + spread * _normal_quantile(tail_of_largest)))

    def threshold(self, sensitivity: Sensitivity, day: int) -> int:
        """Return the count that a total must exceed for a private label to be shown on a day; days
        are numbered from 1.

        On each day the labels that one user alone has pass with probability at most δ/days
        together. By then the user has been active on a days, has at most l0·a labels, and totals c
        of at most a·linf each, l0·a·linf together. Each passes with probability at most
        Q((T - c)/spread), where Q is the normal tail with the distance of ``total_noise``. Q is
        convex in c, so that all pass with at most l0 times (the probability of one total of
        a·linf and of a - 1 totals of 0). T is at least the solution of this inequality.

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
    """Return an upper bound on the x >= 0 with P[Z > x] = ``probability``, Z standard normal,
    elementwise; 0 above probability 1/2.
    """
    from scipy.special import ndtri

    quantile: Array = np.maximum(-ndtri(probability), 0.0) * (1 + NORMAL_ERROR) + NORMAL_ERROR
    return quantile


@dataclass(eq=False)
class Stream:
    """The state of a ``ContinualTopK`` between days, made by ``ContinualTopK.stream``.

    It is private and must be stored like the data (``to_dict``). Several threads may call
    ``release``; they take turns. A stream cannot be pickled or copied deeply, because a second
    stream would answer the same days again.

    Attributes:
        mechanism: the mechanism that is run.
        sensitivity: the sensitivity of one user-day.
        public: whether the labels were given beforehand.
        names: the labels that have occurred so far, or all labels of a public domain; the place of
            a label is its index in this list.
        rng: None for cryptographically secure noise.
        day: the number of days answered.
    """

    mechanism: ContinualTopK
    sensitivity: Sensitivity
    public: bool
    names: list[Any] = field(repr=False)
    rng: np.random.Generator | None = field(repr=False)
    day: int = 0
    _days: list[StreamDay] = field(init=False, repr=False, default_factory=list)
    _rows: dict[Any, int] = field(init=False, repr=False)
    _turn: threading.Lock = field(init=False, repr=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._rows = {identity(name): row for row, name in enumerate(self.names)}

    @property
    def charge(self) -> Charge:
        """Return the charge of all days together; the first answer states it, the others state
        none.
        """
        labels = len(self.names) if self.public else None
        return self.mechanism.charge(self.sensitivity, labels=labels)

    @property
    def _plan(self) -> Factorisation:
        """Return what is measured on each day, and how totals are computed from it."""
        return self.mechanism.measurements

    def release(self, histogram: Histogram) -> Release:
        """Release the next day's answer: the top k of the totals up to and including this day.

        Args:
            histogram: the complete counts of this day alone, with a sensitivity that the stream's
                covers. In a public domain labels without a row have count 0, and labels outside of
                it are refused. Never give the counts of all days so far: one user-day would enter
                again on every later day, which is not charged and cannot be detected here. The same
                ``Histogram`` twice is refused.

        Returns:
            Release: at most k labels in the order of their noisy totals; in a private domain those
            above the threshold.

        Raises:
            InvalidParameter: when the histogram does not fit, or all days have been answered.

        Whatever is raised, the stream is as before: the day can be answered again and counts once.
        """
        with self._turn:
            self._check(histogram)
            labels = len(self.names)
            before = self.day
            try:
                self._add_day(histogram)
                return self._answer_of_day(histogram)
            except BaseException:
                self.day = before
                del self._days[before:]
                del self.names[labels:]
                self._rows = {key: row for key, row in self._rows.items() if row < labels}
                raise

    def _add_day(self, histogram: Histogram) -> None:
        """Add one day: its counts and the measurements made on it.

        What the earlier days hold is not changed, so that the day can be removed again.
        """
        first_new = len(self.names)
        rows, counts = self._places_and_counts(histogram)
        largest_count = LARGEST_SUM // self._plan.heaviest
        names = self.names[first_new:]
        # The weighted sums below take the counts from ``_days``: so the day is added without its
        # measurements first, and then with them.
        day = StreamDay.of(histogram.identity, names, rows, np.minimum(counts, largest_count), {})
        self._days.append(day)
        measured = dict[int, Ints]()
        # In an earlier measurement new labels have the sum 0, and get its noise now.
        for measurement in np.flatnonzero(self._plan.measured_on < self.day).tolist():
            if names:
                measured[measurement] = self._measurement_noise(len(names))
        for measurement in np.flatnonzero(self._plan.measured_on == self.day).tolist():
            noise = self._measurement_noise(len(self.names))
            measured[measurement] = self._weighted_sum(measurement) + noise
        self._days[-1] = StreamDay.of(day.histogram_identity, names, rows, day.counts, measured)
        self.day += 1

    def _check(self, histogram: Histogram) -> None:
        """Refuse a histogram that is not the complete histogram of a new day of this stream.

        Raises:
            InvalidParameter: naming what does not fit.
        """
        validate.instance(Histogram, histogram=histogram)
        if self.day == self.mechanism.days:
            raise InvalidParameter(f"days: all {self.mechanism.days} have been answered")
        sensitivity = histogram.sensitivity
        if not self.sensitivity.covers(sensitivity):
            raise InvalidParameter(
                f"histogram has the sensitivity {sensitivity}, the stream {self.sensitivity}"
            )
        if any(day.histogram_identity == histogram.identity for day in self._days):
            raise InvalidParameter(
                "histogram: this one was given as an earlier day; a user-day may enter once"
            )
        if not histogram.complete:
            raise InvalidParameter("complete: a day's histogram must be whole")
        if self.public and histogram.domain != "public":
            raise InvalidParameter(_OUTSIDE)

    def _places_and_counts(self, histogram: Histogram) -> tuple[Ints, Ints]:
        """Return the places of the day's labels with a count above 0, and these counts, shape (n,)
        both; private labels that are new get their places here.

        Raises:
            InvalidParameter: for a label outside the public ones.
        """
        counts = histogram.counts
        if self.public and _same_labels(_texts_or_integers(histogram.labels), self._labels):
            rows = np.flatnonzero(counts)
            return rows, counts[rows]
        keys = list(map(identity, histogram.labels.tolist()))
        if not self.public:
            labels = histogram.labels.tolist()
            entries = zip(keys, labels, counts.tolist(), strict=True)
            self._append_labels([label for key, label, n in entries if n and key not in self._rows])
        elif not self._rows.keys() >= set(keys):
            raise InvalidParameter(_OUTSIDE)
        # A label whose count is 0 may have no place.
        places = np.array([self._rows.get(key, -1) for key in keys], dtype=np.int64)
        present = counts != 0
        return places[present], counts[present]

    @cached_property
    def _labels(self) -> Array | None:
        """Return the labels of a public domain as an array of one type; None if their types
        differ.
        """
        return _texts_or_integers(as_labels(self.names))

    def _append_labels(self, new_labels: list[Any]) -> None:
        """Append labels that occur on this day for the first time to ``names``."""
        if not new_labels:
            return
        as_labels(self.names + new_labels)  # refuses what cannot be ordered
        for name in new_labels:
            self._rows[identity(name)] = len(self.names)
            self.names.append(name)

    def _weighted_sum(self, measurement: int) -> Ints:
        """Return the weighted sum of the days' counts that a measurement takes of each label,
        without noise, int64, shape (labels,).
        """
        total = np.zeros(len(self.names), dtype=np.int64)
        weights = self._plan.strategy[measurement].tolist()
        # The days on which the first n labels all have a count; their sums are contiguous.
        contiguous = list[tuple[np.int64, Sequence[Ints]]]()
        # The weights are those of all days, of which some are still to come.
        for day, weight in zip(self._days, weights, strict=False):
            if not weight:
                continue
            if isinstance(day.rows, slice):
                contiguous.append((np.int64(weight), [day.counts]))
            else:  # a day's labels are distinct, so that each is added once
                total[day.rows] += weight * day.counts.astype(np.int64)
        for block in _blocks(total.size):
            _add_terms(total[block], contiguous, block.start)
        return total

    def _noisy_parts(self, measurement: int) -> list[Ints]:
        """Return the noisy numbers of a measurement in parts: those of all labels up to its day,
        then those of each later day's new labels, in the order of their places.
        """
        return [day.measured[measurement] for day in self._days if measurement in day.measured]

    def _measurement_noise(self, size: int) -> Ints:
        """Draw the noise of one measurement of ``size`` labels, int64, shape (size,).

        Every measurement of every label gets its noise once, on the day when both exist.
        """
        scale = self.sensitivity.linf * self.mechanism.sigma * self._plan.unit
        if size:
            return gaussian_law(scale).sample(size, random_bits(self.rng))
        return np.empty(0, dtype=np.int64)

    def _answer_of_day(self, histogram: Histogram) -> Release:
        """Return the answer of the current day, by post-processing of all measurements."""
        totals = self._totals()
        values = np.rint(totals).astype(np.int64)
        places = np.arange(values.size)
        if not self.public:
            threshold = self.mechanism.threshold(self.sensitivity, self.day)
            places = np.flatnonzero(totals > threshold)
            values = values[places]
        cut = len(values) > self.mechanism.k
        if cut:  # labels below the k-th value need not be sorted
            reaches = _reaches_kth_largest(values, self.mechanism.k)
            values = values[reaches]
            places = places[reaches]
        candidates = map(self.names.__getitem__, places.tolist())
        names = np.fromiter(candidates, dtype=object, count=places.size)
        best = descending_order(values, names)[: self.mechanism.k]
        note = f"day {self.day} of {self.mechanism.days}"
        if self.day > 1:
            note += ", paid for with the first answer"
        return Release.drawn(
            histogram.with_sensitivity(self.sensitivity),
            self.rng,
            labels=tuple(names[best].tolist()),
            counts=values[best],
            charge=self.charge if self.day == 1 else Charge({}),
            note=note,
            mechanism=self.mechanism,
            measurement=self._measurement(cut),
        )

    def _totals(self) -> Array:
        """Return the noisy total of each label, float64, shape (labels,).

        Each total depends only on the measurements of its own label. A matrix product would not do:
        it adds the terms of a row in an order that depends on the number of rows, so that rounding
        a total could reveal whether another label, which is not shown, has occurred.
        """
        factors = self._plan.totals[self.day - 1]
        used = (factors != 0) & (self._plan.measured_on < self.day)
        rows = np.flatnonzero(used).tolist()
        measured = [(factors[row], self._noisy_parts(row)) for row in rows]
        totals = np.zeros(len(self.names))
        for block in _blocks(totals.size):
            _add_terms(totals[block], measured, block.start)
        return totals

    def _measurement(self, cut: bool) -> Measurement | None:
        """Return the law of the noise of the current day's totals, for intervals.

        None is returned for private labels, whose law after the threshold is only bounded from one
        side, and where the distance to normal noise is LARGEST_DISTANCE or more. ``cut`` says that
        labels below the k-th are missing.
        """
        spreads, distances = self.mechanism.total_noise(self.sensitivity)
        spread = float(spreads[self.day - 1])
        distance = float(distances[self.day - 1])
        if not self.public or distance >= LARGEST_DISTANCE:
            return None
        # If a rounded total is off by more than c, its normal noise exceeds c + 1/2 - distance,
        # which is at least (c + 1/2) (1 - 2 distance).
        noise = RoundedNormalNoise(spread / (1 - 2 * distance))
        return Measurement(noise, len(self.names), whole=True, cut=cut)

    @property
    def days(self) -> Sequence[StreamDay]:
        """Return what each day has added to the state; private, like the data."""
        return tuple(self._days)

    @property
    def last_day(self) -> StreamDay:
        """Return what the last day has added to the state; private, like the data."""
        return self._days[-1]

    def header(self) -> dict[str, Any]:
        """Return the part of the state that stays the same on all days, as plain values; the key
        "strategy" holds a hash of the measurements, "weights" the measurements themselves where
        only a solver could find them again.

        Raises:
            InvalidParameter: for a public label of a type of the caller's own.
        """
        weights = None
        if self.mechanism.factorisation == "optimal":
            weights = self._plan.strategy.tolist()
        return {
            "mechanism": str(self.mechanism),
            "sensitivity": str(self.sensitivity),
            "public": self.public,
            "names": plain_names(self.names) if self.public else [],
            "strategy": self._digest,
            "weights": weights,
            "unit": self._plan.unit,
        }

    @classmethod
    def from_days(
        cls,
        header: Mapping[str, Any],
        days: Iterable[StreamDay],
        mechanism: ContinualTopK,
        sensitivity: Sensitivity,
        rng: Rng = None,
    ) -> Stream:
        """Return a stream that continues after the given days.

        Continue from a state only once: a second stream would answer the same day again, with
        independent noise that is not paid for.

        Args:
            header: the ``header`` of the stream.
            days: its ``last_day`` after each day, in order.
            mechanism: the mechanism of the stream.
            sensitivity: the sensitivity of the stream.
            rng: None for cryptographically secure noise.

        Raises:
            InvalidParameter: where the state is not of such a stream.
        """
        try:
            public = bool(header["public"])
            names = [from_plain(name) for name in header["names"]]
            if header.get("weights") is not None:  # earlier states had none
                mechanism = mechanism.measured_by(header["weights"], int(header["unit"]))
            earlier_days = list(days)
            for day in earlier_days:
                names.extend(day.names)
            stream = cls(mechanism, sensitivity, public, names, rng, len(earlier_days))
            own_terms = (str(mechanism), str(sensitivity), stream._digest)
            stored_terms = (header["mechanism"], header["sensitivity"], header["strategy"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidParameter("state: not one that to_dict wrote") from error
        stream._days = earlier_days
        if stored_terms != own_terms or not stream._is_complete():
            raise InvalidParameter(
                "state: of another mechanism, or of a machine that factorises it otherwise"
            )
        return stream

    def _is_complete(self) -> bool:
        """Return whether the days hold a number for each label and each measurement made so far,
        and nothing else.
        """
        labels = len(self.names)
        if len(self._rows) != labels or self.day > self.mechanism.days:
            return False
        for measurement, measured_on in enumerate(self._plan.measured_on.tolist()):
            expected = labels if measured_on < self.day else 0
            size = sum(part.size for part in self._noisy_parts(measurement))
            if size != expected:
                return False
        return all(_places_are_below(day, labels) for day in self._days)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain values for JSON; it is *private*: it holds counts and noise.

        Raises:
            InvalidParameter: for a label of a type of the caller's own.
        """
        days = [[day.places.tolist(), day.counts.tolist()] for day in self._days]
        measured: list[list[int]] = []
        for measurement in np.flatnonzero(self._plan.measured_on < self.day).tolist():
            numbers: list[int] = []  # of all labels, in the order of their places
            for part in self._noisy_parts(measurement):
                numbers.extend(part.tolist())
            measured.append(numbers)
        return self.header() | {
            "day": self.day,
            "names": plain_names(self.names),
            "days": days,
            "measured": measured,
            "given": [day.histogram_identity for day in self._days],
        }

    @classmethod
    def from_dict(
        cls,
        plain: Mapping[str, Any],
        mechanism: ContinualTopK,
        sensitivity: Sensitivity,
        rng: Rng = None,
    ) -> Stream:
        """Return the stream that ``to_dict`` wrote, ready for the next day.

        Continue from a state only once: a second stream would answer the same day again, with
        independent noise that is not paid for.

        Raises:
            InvalidParameter: where the state is not of such a stream.
        """
        try:
            header = dict(plain)
            public = bool(plain["public"])
            with_measurements = mechanism
            if plain.get("weights") is not None:
                with_measurements = mechanism.measured_by(plain["weights"], int(plain["unit"]))
            days = _days_from_plain(plain, with_measurements.measurements.measured_on)
            if not public and days:  # ``from_days`` takes private labels from the days
                header["names"] = []
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise InvalidParameter("state: not one that to_dict wrote") from error
        return cls.from_days(header, days, mechanism, sensitivity, rng)

    @property
    def _digest(self) -> str:
        """Return a hash of the measurements, by which a stored state is recognised."""
        return hashlib.sha256(self._plan.strategy.tobytes()).hexdigest()


_OUTSIDE = "histogram must have the stream's public domain, and no label outside of it"


def _reaches_kth_largest(values: Ints, k: int) -> Array:
    """Return which values are at least the k-th largest of them, bool, shape (n,); k <= n."""
    place = len(values) - k
    kth_value = np.partition(values, place)[place]
    reaches: Array = values >= kth_value
    return reaches


def _blocks(labels: int) -> Iterator[slice]:
    """Yield slices that cover ``labels`` labels, each small enough for a processor's cache."""
    for start in range(0, labels, _BLOCK):
        yield slice(start, min(start + _BLOCK, labels))


def _add_terms(
    block: Array, terms: Iterable[tuple[np.generic, Sequence[Ints]]], start: int
) -> None:
    """Add terms, one after the other, to the sums of the labels of a block.

    The order of the terms does not depend on the blocks, so that neither does the rounding of a
    sum.

    Args:
        block: the sums of the labels from ``start`` on, shape (n,), changed in place.
        terms: a term is a factor and, in consecutive parts, the numbers of the labels from place 0
            on; labels beyond the last part add nothing.
        start: the place of the block's first label.
    """
    term = np.empty(block.size, dtype=block.dtype)
    for factor, parts in terms:
        part_start = -start  # index in the block of the part's first label
        for numbers in parts:
            low = max(part_start, 0)
            high = min(part_start + numbers.size, block.size)
            if low < high:
                np.multiply(
                    numbers[low - part_start : high - part_start], factor, out=term[low:high]
                )
            part_start += numbers.size
        block[: max(part_start, 0)] += term[: max(part_start, 0)]


def _texts_or_integers(labels: Array) -> Array | None:
    """Return labels that are all texts, or all 64-bit integers, as an array of that type; None for
    other labels.
    """
    if labels.dtype != object:
        return labels
    if set(map(type, labels)) != {str}:
        return None
    try:
        return np.array(labels, dtype=np.dtypes.StringDType())
    except UnicodeEncodeError:  # half of a surrogate pair
        return None


def _same_labels(labels: Array | None, others: Array | None) -> bool:
    """Return whether two arrays hold the same labels in the same order; False also where one is
    None or their types differ.
    """
    if labels is None or others is None or labels.dtype != others.dtype:
        return False
    return labels.shape == others.shape and bool((labels == others).all())


def _places_are_below(day: StreamDay, labels: int) -> bool:
    """Return whether all places of a day's counts are below ``labels``, the number of labels."""
    if isinstance(day.rows, slice):
        return day.counts.size <= labels
    places = day.rows
    if places.size != day.counts.size:
        return False
    if not places.size:
        return True
    return bool(places.min() >= 0) and bool(places.max() < labels)


def _days_from_plain(plain: Mapping[str, Any], measured_on: Array) -> list[StreamDay]:
    """Return the days of a state that ``Stream.to_dict`` wrote.

    The state does not say on which day a private label came; all are given to the first day, which
    makes no difference to later answers.

    Args:
        plain: the state.
        measured_on: the index of the day on which each measurement is made, shape (measurements,).

    Raises:
        ValueError: when the state has another number of days than it says.
    """
    count = int(plain["day"])
    names = list(map(from_plain, plain["names"]))
    finished = np.flatnonzero(measured_on < count).tolist()
    # The noisy numbers of all labels, by the number of a measurement.
    numbers = dict(zip(finished, map(_int64_array, plain["measured"]), strict=True))
    days = list[StreamDay]()
    for histogram_identity, (rows, counts) in zip(plain["given"], plain["days"], strict=True):
        new_names: list[Any] = []
        if not days and not plain["public"]:
            new_names = names
        on_this_day = np.flatnonzero(measured_on == len(days))
        measured = {key: numbers[key] for key in on_this_day.tolist()}
        days.append(
            StreamDay.of(
                str(histogram_identity),
                new_names,
                _int64_array(rows),
                _int64_array(counts),
                measured,
            )
        )
    if len(days) != count:
        raise ValueError("the days are not as many as the state says")
    return days


def _int64_array(values: Sequence[int]) -> Array:
    """Return the values as int64, shape (n,)."""
    return np.array(values, dtype=np.int64)
