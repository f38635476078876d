"""The state of a continual top k between days, and the answer of each day."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity, descending_order
from dptopk.histogram.labels import as_labels, from_plain, identity
from dptopk.mechanisms.block_sums import Term, add_terms, blocks
from dptopk.mechanisms.samplers.factorisation import Factorisation
from dptopk.mechanisms.samplers.noise import gaussian_law
from dptopk.mechanisms.samplers.random import Array, Ints, Rng, random_bits
from dptopk.mechanisms.stream_day import StreamDay, plain_names
from dptopk.release.intervals import Measurement
from dptopk.release.noise_laws import RoundedNormalNoise
from dptopk.release.release import Release

if TYPE_CHECKING:
    from dptopk.mechanisms.continual import ContinualTopK

# A day's count is cut at this over the largest sum of weights of a measurement. So a weighted sum
# of all days stays below it, and with its noise within 64 bits. Cutting never moves two
# neighbouring counts farther apart.
LARGEST_SUM = 2**62
# The largest distance to normal noise at which intervals are stated: beyond, they would be wider by
# more than a factor of 2.
LARGEST_DISTANCE = 0.25


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
        day: the number of days answered; while a day is answered, from when its counts have been
            added on, that day is included.
    """

    mechanism: ContinualTopK
    sensitivity: Sensitivity
    public: bool
    names: list[Any] = field(repr=False)
    rng: np.random.Generator | None = field(repr=False)
    day: int = 0
    _days: list[StreamDay] = field(init=False, repr=False, default_factory=list)
    # The place of each label, by its identity.
    _places: dict[Any, int] = field(init=False, repr=False)
    _turn: threading.Lock = field(init=False, repr=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._places = {identity(name): place for place, name in enumerate(self.names)}

    @property
    def charge(self) -> Charge:
        """Return the charge of all days together; the first answer states it, the others state
        none.
        """
        labels = len(self.names) if self.public else None
        return self.mechanism.charge(self.sensitivity, labels=labels)

    @property
    def _factorisation(self) -> Factorisation:
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
                earlier = {key: place for key, place in self._places.items() if place < labels}
                self._places = earlier
                raise

    def _add_day(self, histogram: Histogram) -> None:
        """Add one day: its counts and the measurements made on it.

        What the earlier days hold is not changed, so that the day can be removed again.
        """
        first_new = len(self.names)
        places, counts = self._add_labels(histogram)
        new_names = self.names[first_new:]
        largest_count = LARGEST_SUM // self._factorisation.largest_weight_sum
        cut_counts = np.minimum(counts, largest_count)
        # The weighted sums below take the counts from ``_days``: so the day is added without its
        # measurements first, and then with them.
        day = StreamDay.of(histogram.identity, new_names, places, cut_counts, {})
        self._days.append(day)
        measured = dict[int, Ints]()
        # In an earlier measurement new labels have the sum 0, and get its noise now.
        for measurement in np.flatnonzero(self._factorisation.measured_on < self.day).tolist():
            if new_names:
                measured[measurement] = self._measurement_noise(len(new_names))
        for measurement in np.flatnonzero(self._factorisation.measured_on == self.day).tolist():
            noise = self._measurement_noise(len(self.names))
            measured[measurement] = self._weighted_sum(measurement) + noise
        self._days[-1] = StreamDay.of(
            day.histogram_identity, new_names, places, day.counts, measured
        )
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

    def _add_labels(self, histogram: Histogram) -> tuple[Ints, Ints]:
        """Append the private labels that occur on this day for the first time to ``names``; return
        the places of all of the day's labels with a count above 0, and these counts, int64, shape
        (n,) both.

        Raises:
            InvalidParameter: for a label outside the public ones.
        """
        counts = histogram.counts
        if self.public and _same_labels(_texts_or_integers(histogram.labels), self._labels):
            places = np.flatnonzero(counts)
            return places, counts[places]
        keys = list(map(identity, histogram.labels.tolist()))
        if not self.public:
            labels = histogram.labels.tolist()
            entries = zip(keys, labels, counts.tolist(), strict=True)
            self._append_labels(
                [label for key, label, count in entries if count and key not in self._places]
            )
        elif not self._places.keys() >= set(keys):
            raise InvalidParameter(_OUTSIDE)
        # A label whose count is 0 may have no place.
        places = np.array([self._places.get(key, -1) for key in keys], dtype=np.int64)
        present = counts != 0
        return places[present], counts[present]

    @cached_property
    def _labels(self) -> Array | None:
        """Return the labels of a public domain as an array of one type; None if their types
        differ.
        """
        return _texts_or_integers(as_labels(self.names))

    def _append_labels(self, new_labels: list[Any]) -> None:
        """Append labels to ``names``, and give each its place.

        Raises:
            InvalidParameter: for a label that cannot be ordered among the others.
        """
        if not new_labels:
            return
        as_labels(self.names + new_labels)  # refuses what cannot be ordered
        for name in new_labels:
            self._places[identity(name)] = len(self.names)
            self.names.append(name)

    def _weighted_sum(self, measurement: int) -> Ints:
        """Return the weighted sum of the days' counts that a measurement takes of each label,
        without noise, int64, shape (labels,).
        """
        total = np.zeros(len(self.names), dtype=np.int64)
        weights = self._factorisation.strategy[measurement].tolist()
        # The days on which the labels with a count are the first n ones; block by block, these are
        # added in less time.
        terms_of_first_labels: list[Term] = []
        # The weights are those of all days, of which some are still to come.
        for day, weight in zip(self._days, weights, strict=False):
            if not weight:
                continue
            if isinstance(day.rows, slice):
                terms_of_first_labels.append(Term(np.int64(weight), [day.counts]))
            else:  # a day's labels are distinct, so that each is added once
                total[day.rows] += weight * day.counts.astype(np.int64)
        for block in blocks(total.size):
            add_terms(total[block], terms_of_first_labels, block.start)
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
        scale = self.sensitivity.linf * self.mechanism.sigma * self._factorisation.unit
        if size:
            return gaussian_law(scale).sample(size, random_bits(self.rng))
        return np.empty(0, dtype=np.int64)

    def _answer_of_day(self, histogram: Histogram) -> Release:
        """Return the answer of the day that was added last, by post-processing of all
        measurements.
        """
        totals = self._totals()
        values = np.rint(totals).astype(np.int64)
        places = np.arange(values.size)
        if not self.public:
            threshold = self.mechanism.threshold(self.sensitivity, self.day)
            places = np.flatnonzero(totals > threshold)
            values = values[places]
        cut = places.size > self.mechanism.k
        if cut:  # labels below the k-th value need not be sorted
            may_be_shown = _reaches_kth_largest(values, self.mechanism.k)
            values = values[may_be_shown]
            places = places[may_be_shown]
        candidates = map(self.names.__getitem__, places.tolist())
        names = np.fromiter(candidates, dtype=object, count=places.size)
        best = descending_order(values, names)[: self.mechanism.k]
        note = f"day {self.day} of {self.mechanism.days}"
        if self.day > 1:
            note += ", paid for with the first answer"
        return Release.of_draw(
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
        factors = self._factorisation.totals[self.day - 1]
        used = (factors != 0) & (self._factorisation.measured_on < self.day)
        measurements = np.flatnonzero(used).tolist()
        terms = [Term(factors[number], self._noisy_parts(number)) for number in measurements]
        totals = np.zeros(len(self.names))
        for block in blocks(totals.size):
            add_terms(totals[block], terms, block.start)
        return totals

    def _measurement(self, cut: bool) -> Measurement | None:
        """Return the law of the noise of the current day's totals, for intervals.

        None is returned for private labels, whose law after the threshold is only bounded from one
        side, and where the distance to normal noise is LARGEST_DISTANCE or more.

        Args:
            cut: whether there are more than k labels, of which those below the k-th are left out.
        """
        noise_of_days = self.mechanism.total_noise(self.sensitivity)
        deviation = float(noise_of_days.deviations[self.day - 1])
        distance = float(noise_of_days.distances[self.day - 1])
        if not self.public or distance >= LARGEST_DISTANCE:
            return None
        # If a rounded total is off by more than c, its normal noise exceeds c + 1/2 - distance,
        # which is at least (c + 1/2) (1 - 2 distance).
        noise = RoundedNormalNoise(deviation / (1 - 2 * distance))
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
        """Return the part of the state that stays the same on all days, as plain values.

        The mechanism and the sensitivity are in it as texts, to be compared; "names" has the labels
        of a public domain, and is empty otherwise. "strategy" is a hash of the measurements,
        "weights" has the measurements themselves where only a solver could find them again, and
        "unit" is their unit (``Factorisation``).

        Raises:
            InvalidParameter: for a public label of a type of the caller's own.
        """
        weights = None
        if self.mechanism.factorisation == "optimal":
            weights = self._factorisation.strategy.tolist()
        return {
            "mechanism": str(self.mechanism),
            "sensitivity": str(self.sensitivity),
            "public": self.public,
            "names": plain_names(self.names) if self.public else [],
            "strategy": self._digest,
            "weights": weights,
            "unit": self._factorisation.unit,
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
                mechanism = mechanism.with_measurements(header["weights"], int(header["unit"]))
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
        # Two labels that are the same would have one place.
        if len(self._places) != labels or self.day > self.mechanism.days:
            return False
        for measurement, measured_on in enumerate(self._factorisation.measured_on.tolist()):
            expected = labels if measured_on < self.day else 0
            size = sum(part.size for part in self._noisy_parts(measurement))
            if size != expected:
                return False
        return all(_places_are_below(day, labels) for day in self._days)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain values for JSON; it is *private*: it holds counts and noise.

        Beside the ``header`` it has "day", the number of days answered; "names", all labels in
        order of their places; and for each day "given", the identity of its histogram, and "days",
        the places and the counts of its labels. "measured" has, for each measurement made so far,
        the noisy numbers of all labels.

        Raises:
            InvalidParameter: for a label of a type of the caller's own.
        """
        days = [[day.places.tolist(), day.counts.tolist()] for day in self._days]
        measured: list[list[int]] = []
        for measurement in np.flatnonzero(self._factorisation.measured_on < self.day).tolist():
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

        Args:
            plain: what ``to_dict`` returned.
            mechanism: the mechanism of the stream.
            sensitivity: the sensitivity of the stream.
            rng: None for cryptographically secure noise.

        Raises:
            InvalidParameter: where the state is not of such a stream.
        """
        try:
            header = dict(plain)
            public = bool(plain["public"])
            with_measurements = mechanism
            if plain.get("weights") is not None:
                with_measurements = mechanism.with_measurements(
                    plain["weights"], int(plain["unit"])
                )
            days = _days_from_plain(plain, with_measurements.measurements.measured_on)
            if not public and days:  # ``from_days`` takes private labels from the days
                header["names"] = []
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise InvalidParameter("state: not one that to_dict wrote") from error
        return cls.from_days(header, days, mechanism, sensitivity, rng)

    @property
    def _digest(self) -> str:
        """Return a hash of the measurements' weights (SHA-256, hexadecimal), by which a stored
        state is recognised.
        """
        return hashlib.sha256(self._factorisation.strategy.tobytes()).hexdigest()


_OUTSIDE = "histogram must have the stream's public domain, and no label outside of it"


def _reaches_kth_largest(values: Ints, k: int) -> Array:
    """Return which values are at least the k-th largest of them, bool, shape (n,); k <= n."""
    place = len(values) - k
    kth_value = np.partition(values, place)[place]
    reaches: Array = values >= kth_value
    return reaches


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
