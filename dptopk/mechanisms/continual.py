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
from dptopk.histogram.histogram import Histogram, Sensitivity, descending
from dptopk.histogram.labels import as_labels, from_plain, identity
from dptopk.mechanisms.mechanism import LARGEST_SCALE, add_remove, copies, finite_l0
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
# A sum of all days, with their weights, stays below this, and with its noise within 64 bits: a
# day's count enters as at most this, over the largest sum of weights. Cutting moves two
# neighbouring counts no farther apart.
LARGEST_SUM = 2**62
# Totals of labels that one user-day alone has are sums of a few thousand terms; floats are off by
# less than this, and by less than 1e-9 of the noise.
SUM_ROUNDING = 1e-3
# No normal variable is ever as large: all of them together are, with a probability below FAR_MASS.
FAR = 40.0
FAR_MASS = 1e-300
# Labels of which sums are added up at a time.
_BLOCK = 2**15


@dataclass(frozen=True, kw_only=True)
class ContinualTopK:
    """The k labels with the largest noisy totals of the days so far, on each of ``days`` days, with
    these totals.

    Charge, once for all days: GaussianDP, all days of one user together, + δ in a private domain. A
    user adds on a day at most l0 labels by at most linf each, on at most ``days_per_user`` days
    that are at least ``days_apart`` apart; the caller sees to it. Neighbours: add or remove one
    such user. What is asked, and what users do, on the days may depend on earlier answers. A user
    of more days costs *more* than that many times one day, because shifts add up inside a
    measurement before they are squared.

    Args:
        k: labels in each answer.
        days: how many days, from 1 to 4000; fixed beforehand.
        sigma: scale of the noise of one measurement, in units of linf, where the squared shifts of
            a user sum to 1.
        delta: bounds the probability that a label is ever shown which only one user has; needed for
            private labels.
        factorisation: "optimal" (least noise; up to 1000 days, 60 where users have several),
            "square_root" (close to it), "tree" (binary), "daily" (each day measured once, and added
            up).
        days_per_user: on how many days one user adds something at most; None = all.
        days_apart: the smallest distance of two such days, 1 for days in a row.
        error: what "optimal" and "square_root" make small: the noise of the worst total, or in the
            mean.

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
        """All days together, of the worst days that one user may have: an upper bound.

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
        touched = copies(add_remove(sensitivity), labels)
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
        mu = math.sqrt(read_up(squares)) * dominating_mu(scale) * (1 + 1e-15)
        costs: dict[Cost, int] = {GaussianDP(mu): 1} if mu else {}
        return Charge(costs, delta=self._failure(sensitivity, user), adaptive=self.days > 1)

    @cached_property
    def participation(self) -> Participation:
        """On which days one user may be active."""
        return Participation.of(self.days, self.days_per_user, self.days_apart)

    def _scale(self, sensitivity: Sensitivity) -> float:
        return sensitivity.linf * self.sigma * self.measurements.unit

    def _failure(self, sensitivity: Sensitivity, user: Participation) -> float:
        """Bounds the probability that a label is ever shown which only one user has; ``delta`` for
        its own users.
        """
        if not self.delta or user == self.participation:
            return self.delta
        spread, rounding = self.total_noise(sensitivity)
        far = sensitivity.linf * user.active
        beyond = (self._thresholds(sensitivity) - rounding - far) / spread
        passes = _normal_tail(beyond) + (user.active - 1) * _normal_tail(beyond + far / spread)
        l0 = finite_l0(sensitivity, "for private labels")
        delta = float(passes.sum() * l0 * (1 + 1e-9) + FAR_MASS)
        if delta >= 1 or beyond.min() < 0:
            raise InvalidParameter(
                f"days_per_user={user.most} is too large for thresholds that are made for "
                f"{self.participation.most}: plan the mechanism with this days_per_user"
            )
        return delta

    @property
    def measurements(self) -> Factorisation:
        """Return what is measured on each day."""
        return self.__dict__.get("_measured") or factorise(
            self.factorisation, self.participation, self.error
        )

    def measured_by(self, strategy: Sequence[Sequence[int]], unit: int) -> ContinualTopK:
        """The same mechanism with the measurements that a state has: another version's solver may
        find others.

        Raises:
            InvalidParameter: where it is not "optimal", for another unit than its own (the noise
                would have another scale), and for measurements that move by more than the unit.
        """
        weights = np.array(strategy, dtype=np.int64)
        user = self.participation
        own = self.factorisation == "optimal" and unit == unit_of(user)
        if not own or weights.shape != (self.days, self.days) or user.energy(weights) > unit**2:
            raise InvalidParameter("state: its measurements are not those of such a mechanism")
        copy = replace(self)
        copy.__dict__["_measured"] = triangular(weights, unit)
        return copy

    def noise_std(self, sensitivity: Sensitivity, day: int | None = None) -> float:
        """Upper bound on the standard deviation of a total's noise before rounding: on a day, or
        the worst one.
        """
        spread = self.measurements.spread * (add_remove(sensitivity).linf * self.sigma)
        return float(spread.max() if day is None else spread[self._at(day)])

    def total_noise(self, sensitivity: Sensitivity) -> tuple[Array, Array]:
        """The normal noise next to that of each day's total, and how far off: standard deviations
        and distances.

        Let N be discrete Gaussian noise of scale s, Z standard normal with Z <= c_k where N <= k:
        both quantiles. Then (k - 1/2)/s <= c_(k-1) and c_k <= (k + 1/2) μ' (docs/notes/filters.md):
        |N - s Z| <= 1/2 + (s μ' - 1)(|s Z| + 1)
        """
        scale = self._scale(sensitivity)
        off = 0.5 + (scale * dominating_mu(scale) - 1) * (FAR * scale + 1)
        plan = self.measurements
        return plan.spread * (sensitivity.linf * self.sigma), plan.weights * off + SUM_ROUNDING

    def _thresholds(self, sensitivity: Sensitivity) -> Array:
        """Return ``threshold`` for all days, shape (days,); its docstring has the inequality."""
        if not self.delta:
            raise InvalidParameter("delta must be above 0 for private labels")
        spread, rounding = self.total_noise(sensitivity)
        l0 = finite_l0(sensitivity, "for private labels")
        # On one day, for each of l0 labels: what the user's totals may pass with together.
        allowed = (self.delta - FAR_MASS) / (l0 * self.days) / (1 + 1e-9)
        if allowed < FAR_MASS:
            raise InvalidParameter(f"delta={self.delta} is too small")
        active = self.participation.active
        largest = sensitivity.linf * active
        # A total of ``largest`` takes one share, and a - 1 totals of 0 the others. These pass with
        # at most the chance that they have at the lowest threshold there could be.
        zeros = (active - 1) * _normal_tail(_normal_point(allowed) + largest / spread)
        one = np.maximum(allowed - zeros, allowed / active)  # at least an equal part
        return np.asarray(np.ceil(largest + rounding + spread * _normal_point(one)))

    def threshold(self, sensitivity: Sensitivity, day: int) -> int:
        """The count that a total must exceed for a private label to be shown on that day, from 1
        on.

        On each day no label that one user alone has passes, but with probability δ/days. By then
        the user has had a days, at most l0·a labels, and totals c of at most a·linf each, l0·a·linf
        together. Each passes with probability at most Q((T - c)/spread), Q the normal tail beyond
        (``total_noise``), convex in c: all of them together with at most l0 times (that of a·linf,
        and a - 1 times that of 0). T solves this from above.
        """
        return int(self._thresholds(sensitivity)[self._at(day)])

    def stream(
        self,
        sensitivity: Sensitivity,
        *,
        labels: Sequence[Any] | None = None,
        rng: np.random.Generator | None = None,
    ) -> Stream:
        """Begin: no day has come yet. Spend ``charge`` before the first answer.

        Args:
            sensitivity: of one user-day.
            labels: the public labels; None = labels are private, and come with the days.
            rng: None for cryptographically secure noise.

        Raises:
            InvalidParameter: for private labels without delta or with l0 = None, repeated labels,
            too large a sigma.
        """
        names = None if labels is None else as_labels(labels).tolist()
        self.charge(sensitivity, labels=None if names is None else len(names))
        if names is None:
            self.threshold(sensitivity, 1)
        elif self.delta:
            raise InvalidParameter(
                "delta must be 0 where the labels are public: nothing is compared with a threshold"
            )
        return Stream(self, sensitivity, public=names is not None, names=names or [], rng=rng)

    def _at(self, day: int) -> int:
        if not 1 <= validate.count(day=day) <= self.days:
            raise InvalidParameter(f"day={day} must be from 1 to {self.days}")
        return day - 1


def _normal_tail(x: Array) -> Array:
    """Upper bound on P[Z > x], x >= 0."""
    from scipy.special import ndtr

    tail: Array = ndtr(-np.asarray(x)) * (1 + 1e-12)
    return tail


def _normal_point(probability: float | Array) -> Array:
    """Upper bound on the x >= 0 beyond which a standard normal variable is with this
    probability.
    """
    from scipy.special import ndtri

    point: Array = np.maximum(-ndtri(probability), 0.0) * (1 + 1e-12) + 1e-12
    return point


@dataclass(eq=False)
class Stream:
    """The state between days; it is private, and must be stored like the data (``to_dict``). Made
    by ``stream``.

    Several threads may ask, one after the other. It cannot be pickled or copied deeply: a second
    stream would answer the same days again.

    Attributes:
        mechanism, sensitivity: what runs.
        public: whether the labels were given beforehand.
        names: labels that have come so far, or all of a public domain.
        rng: None for secure noise.
        day: days answered.
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
        """The charge of all days together; the first answer carries it, the others carry none."""
        return self.mechanism.charge(
            self.sensitivity, labels=len(self.names) if self.public else None
        )

    @property
    def _plan(self) -> Factorisation:
        return self.mechanism.measurements

    def release(self, histogram: Histogram) -> Release:
        """The next day's answer: the top k of the totals up to and with this day.

        Args:
            histogram: the counts of this day alone, whole, with a sensitivity that the stream's
                covers; in a public domain labels without a row have count 0, and others are
                refused. Counts of all days so far would let one user-day enter again on every later
                day, which is not charged and cannot be seen here; the same ``Histogram`` twice is
                refused.

        Returns:
            Release: at most k labels in the order of their noisy totals; in a private domain those
            above the threshold.

        Raises:
            InvalidParameter: when the histogram does not fit, or all days have been answered.

        Whatever is raised, nothing has changed: the day can be asked for again, and counts once.
        """
        with self._turn:
            self._check(histogram)
            labels = len(self.names)
            before = self.day
            try:
                self._add(histogram)
                return self._answer(histogram)
            except BaseException:
                self.day = before
                del self._days[before:]
                del self.names[labels:]
                for key in [key for key, row in self._rows.items() if row >= labels]:
                    del self._rows[key]
                raise

    def _add(self, histogram: Histogram) -> None:
        """One day more. What was there before is not changed, so that the day can be taken back."""
        first = len(self.names)
        rows, counts = self._placed(histogram)
        most = LARGEST_SUM // self._plan.heaviest
        names = self.names[first:]
        day = StreamDay.of(histogram.identity, names, rows, np.minimum(counts, most), {})
        self._days.append(day)
        measured = dict[int, Ints]()
        for measurement in np.flatnonzero(self._plan.measured_on < self.day).tolist():
            if names:
                measured[measurement] = self._noise(len(names))
        for measurement in np.flatnonzero(self._plan.measured_on == self.day).tolist():
            noise = self._noise(len(self.names))
            measured[measurement] = self._sum(measurement) + noise
        self._days[-1] = StreamDay.of(day.histogram_identity, names, rows, day.counts, measured)
        self.day += 1

    def _check(self, histogram: Histogram) -> None:
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

    def _placed(self, histogram: Histogram) -> tuple[Ints, Ints]:
        """The places of the day's labels with a count, those that came first among them, and these
        counts.
        """
        counts = histogram.counts
        if self.public and _are_the_same(_texts_or_integers(histogram.labels), self._labels):
            rows = np.flatnonzero(counts)
            return rows, counts[rows]
        keys = list(map(identity, histogram.labels.tolist()))
        if not self.public:
            labels = histogram.labels.tolist()
            came = zip(keys, labels, counts.tolist(), strict=True)
            self._arrived([label for key, label, n in came if n and key not in self._rows])
        elif not self._rows.keys() >= set(keys):
            raise InvalidParameter(_OUTSIDE)
        # A label without a count may have no place yet.
        places = np.array([self._rows.get(key, -1) for key in keys], dtype=np.int64)
        there = counts != 0
        return places[there], counts[there]

    @cached_property
    def _labels(self) -> Array | None:
        """The labels of a public domain as an array that is compared quickly."""
        return _texts_or_integers(as_labels(self.names))

    def _arrived(self, new: list[Any]) -> None:
        """Give labels that come with this day for the first time their places."""
        if not new:
            return
        as_labels(self.names + new)  # refuses what cannot be ordered
        for name in new:
            self._rows[identity(name)] = len(self.names)
            self.names.append(name)

    def _sum(self, measurement: int) -> Ints:
        """A measurement of all labels before its noise: touched labels of the days in it alone are
        looked at.
        """
        total = np.zeros(len(self.names), dtype=np.int64)
        weights = self._plan.strategy[measurement].tolist()
        whole = list[tuple[np.int64, Ints]]()  # days on which the first labels all have a count
        for day, weight in zip(self._days, weights, strict=False):
            if isinstance(day.rows, slice) and weight:
                whole.append((np.int64(weight), day.counts))
            elif weight:  # a day's labels are distinct
                total[day.rows] += weight * day.counts.astype(np.int64)
        for block in _blocks(total.size):
            _add_up(total[block], [(weight, [counts]) for weight, counts in whole], block.start)
        return total

    def _numbers(self, measurement: int) -> list[Ints]:
        """Return what was measured of all labels, in the order of their places: of those of a day,
        and of each later day's new ones.
        """
        return [day.measured[measurement] for day in self._days if measurement in day.measured]

    def _noise(self, size: int) -> Ints:
        """Noise of measurements; each measurement of each label is given its own, once."""
        scale = self.sensitivity.linf * self.mechanism.sigma * self._plan.unit
        if size:
            return gaussian_law(scale).sample(size, random_bits(self.rng))
        return np.empty(0, dtype=np.int64)

    def _answer(self, histogram: Histogram) -> Release:
        """Post-processing of what has been measured so far."""
        totals = self._totals()
        values = np.rint(totals).astype(np.int64)
        places = np.arange(values.size)
        if not self.public:
            places = np.flatnonzero(totals > self.mechanism.threshold(self.sensitivity, self.day))
            values = values[places]
        cut = len(values) > self.mechanism.k
        if cut:  # what is below the k-th value need not be sorted
            place = len(values) - self.mechanism.k
            top = values >= np.partition(values, place)[place]
            values = values[top]
            places = places[top]
        shown_names = map(self.names.__getitem__, places.tolist())
        names = np.fromiter(shown_names, dtype=object, count=places.size)
        best = descending(values, names)[: self.mechanism.k]
        charge = self.charge
        note = f"day {self.day} of {self.mechanism.days}"
        if self.day > 1:
            charge = Charge({})
            note += ", paid for with the first answer"
        return Release.drawn(
            histogram.with_sensitivity(self.sensitivity),
            self.rng,
            labels=tuple(names[best].tolist()),
            counts=values[best],
            charge=charge,
            note=note,
            mechanism=self.mechanism,
            measurement=self._measurement(cut),
        )

    def _totals(self) -> Array:
        """Return the noisy totals; each depends only on its own label's measurements.

        A matrix product would add the terms of a row in an order that depends on how many rows
        there are, and so on labels that are not shown: a total next to a half would be rounded by
        whether another label has come.
        """
        factors = self._plan.totals[self.day - 1]
        rows = np.flatnonzero(factors * (self._plan.measured_on < self.day)).tolist()
        measured = [(factors[row], self._numbers(row)) for row in rows]
        totals = np.zeros(len(self.names))
        for block in _blocks(totals.size):
            _add_up(totals[block], measured, block.start)
        return totals

    def _measurement(self, cut: bool) -> Measurement | None:
        """For intervals; none for private labels, since the law of what passed is known from one
        side only.
        """
        spread, rounding = (
            float(each[self.day - 1]) for each in self.mechanism.total_noise(self.sensitivity)
        )
        if not self.public or rounding >= 0.25:
            return None
        # A total off by more than c + 1/2 is so by more than (c + 1/2) (1 - 2 rounding) of its
        # normal noise.
        noise = RoundedNormalNoise(spread / (1 - 2 * rounding))
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
        """The state before the first day, as plain values: it stays the same on all days.

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
    def resumed(
        cls,
        header: Mapping[str, Any],
        days: Iterable[StreamDay],
        mechanism: ContinualTopK,
        sensitivity: Sensitivity,
        rng: Rng = None,
    ) -> Stream:
        """The stream of a ``header`` and of the ``last_day`` after each of its days, to go on with.

        A state must not be gone on from twice: two answers for one day would have noise of their
        own.

        Raises:
            InvalidParameter: where the state is not of such a stream.
        """
        try:
            public = bool(header["public"])
            names = [from_plain(name) for name in header["names"]]
            if header.get("weights") is not None:  # earlier states had none
                mechanism = mechanism.measured_by(header["weights"], int(header["unit"]))
            kept = list(days)
            names += [name for day in kept for name in day.names]
            stream = cls(mechanism, sensitivity, public, names, rng, len(kept))
            terms_of_stream = (str(mechanism), str(sensitivity), stream._digest)
            found = (header["mechanism"], header["sensitivity"], header["strategy"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidParameter("state: not one that to_dict wrote") from error
        stream._days = kept
        if found != terms_of_stream or not stream._is_whole():
            raise InvalidParameter(
                "state: of another mechanism, or of a machine that factorises it otherwise"
            )
        return stream

    def _is_whole(self) -> bool:
        """Whether the days have the numbers of all labels, and no others."""
        labels = len(self.names)
        if len(self._rows) != labels or self.day > self.mechanism.days:
            return False
        for measurement, on in enumerate(self._plan.measured_on.tolist()):
            numbers = self._numbers(measurement)
            size = sum(each.size for each in numbers)
            if size != (labels if on < self.day else 0):
                return False
        return all(_is_within(day, labels) for day in self._days)

    def to_dict(self) -> dict[str, Any]:
        """The state as plain values, for JSON: *private*, it holds counts and noise.

        Raises:
            InvalidParameter: for a label of a type of the caller's own.
        """
        days = [[day.places.tolist(), day.counts.tolist()] for day in self._days]
        measured = [
            [number for numbers in self._numbers(row) for number in numbers.tolist()]
            for row in np.flatnonzero(self._plan.measured_on < self.day).tolist()
        ]
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
        """The stream that ``to_dict`` wrote, to go on with the next day.

        A state must not be gone on from twice: two answers for one day would have noise of their
        own.

        Raises:
            InvalidParameter: where the state is not of such a stream.
        """
        try:
            header = dict(plain)
            public = bool(plain["public"])
            if plain.get("weights") is not None:
                measurements = mechanism.measured_by(
                    plain["weights"], int(plain["unit"])
                ).measurements
            else:
                measurements = mechanism.measurements
            days = _days_of(plain, measurements.measured_on)
            if not public and days:  # which of the days a label came on does not matter
                header["names"] = []
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidParameter("state: not one that to_dict wrote") from error
        return cls.resumed(header, days, mechanism, sensitivity, rng)

    @property
    def _digest(self) -> str:
        return hashlib.sha256(self._plan.strategy.tobytes()).hexdigest()


_OUTSIDE = "histogram must have the stream's public domain, and no label outside of it"


def _blocks(labels: int) -> Iterator[slice]:
    """Parts of the labels, each small enough to stay in a processor's cache."""
    for start in range(0, labels, _BLOCK):
        yield slice(start, min(start + _BLOCK, labels))


def _add_up(block: Array, terms: Iterable[tuple[np.generic, Sequence[Ints]]], start: int) -> None:
    """Add terms to the sums of the labels from ``start`` on, one after the other.

    Args:
        block: the sums, changed in place.
        terms: a factor, and the numbers of all labels in parts; labels beyond them add nothing.
        start: place of the block's first label.
    """
    term = np.empty(block.size, dtype=block.dtype)
    for factor, parts in terms:
        first = -start
        for numbers in parts:
            low, high = max(first, 0), min(first + numbers.size, block.size)
            if low < high:
                np.multiply(numbers[low - first : high - first], factor, out=term[low:high])
            first += numbers.size
        block[: max(first, 0)] += term[: max(first, 0)]


def _texts_or_integers(labels: Array) -> Array | None:
    """Labels that are texts or 64-bit integers throughout, as an array of such; None for others."""
    if labels.dtype != object:
        return labels
    if set(map(type, labels)) != {str}:
        return None
    try:
        return np.array(labels, dtype=np.dtypes.StringDType())
    except UnicodeEncodeError:  # half of a surrogate pair
        return None


def _are_the_same(labels: Array | None, others: Array | None) -> bool:
    """Whether labels are the same ones in the same order; False where that is not seen at once."""
    if labels is None or others is None or labels.dtype != others.dtype:
        return False
    return labels.shape == others.shape and bool((labels == others).all())


def _is_within(day: StreamDay, labels: int) -> bool:
    """Whether the counts of a day are of labels that are there."""
    if isinstance(day.rows, slice):
        return day.counts.size <= labels
    places = day.rows
    if places.size != day.counts.size:
        return False
    return not places.size or bool(places.min() >= 0 and places.max() < labels)


def _days_of(plain: Mapping[str, Any], measured_on: Array) -> list[StreamDay]:
    """The days of a state as plain values; all labels of a private domain are those of its first
    day.
    """
    count = int(plain["day"])
    names = [from_plain(name) for name in plain["names"]]
    done = np.flatnonzero(measured_on < count).tolist()
    numbers = dict(zip(done, plain["measured"], strict=True))
    days = list[StreamDay]()
    for histogram_identity, (rows, counts) in zip(plain["given"], plain["days"], strict=True):
        new = names if not days and not plain["public"] else []
        measured = {
            place: _integers(numbers[place])
            for place in np.flatnonzero(measured_on == len(days)).tolist()
        }
        days.append(
            StreamDay.of(str(histogram_identity), new, _integers(rows), _integers(counts), measured)
        )
    if len(days) != count:
        raise ValueError("the days are not as many as the state says")
    return days


def _integers(values: Sequence[int]) -> Array:
    return np.array(values, dtype=np.int64)
