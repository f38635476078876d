"""The top k of data that grow day by day: one charge for all days."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dptopk._internal import validate
from dptopk.costs import ZCDP, Charge, Cost, DiscreteGaussianDP
from dptopk.costs.rounding import read_up
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity, descending
from dptopk.histogram.labels import as_labels, from_plain, identity, to_plain
from dptopk.mechanisms.base import LARGEST_SCALE, add_remove, finite_l0
from dptopk.mechanisms.laplace import copies
from dptopk.mechanisms.samplers.factorisation import FACTORISATIONS, Factorisation, Kind, factorise
from dptopk.mechanisms.samplers.noise import discrete_gaussian
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.release.intervals import CountNoise, Measurement
from dptopk.release.release import Release

LARGEST_DAYS = 4000
# A day's count enters as at most this, so that a sum of 4000 days with weights up to 32 stays within 64 bits. Cutting
# moves two neighbouring counts no farther apart.
LARGEST_DAILY = 2**44
# Totals of labels that one user-day alone has are sums of a few thousand terms; floats are off by less than this, and
# by less than 1e-9 of the noise.
SUM_ROUNDING = 1e-3


@dataclass(frozen=True, kw_only=True)
class ContinualTopK:
    """The k labels with the largest noisy totals of the days so far, on each of ``days`` days, with these totals.

    Charge, once for all days: min(l0, labels) × (discrete Gaussians of scale linf·sigma·unit, one for each measurement
    that a day enters, shifted by linf times its weight in it), + δ in a private domain. A *user-day* is protected: what
    one user adds on one day, at most l0 labels by at most linf each. Neighbours: add or remove one user-day. What is
    asked on the days may depend on earlier answers. A user of n days costs *more* than n user-days, because shifts
    add up inside a measurement before they are squared: ``days_per_user`` protects up to n days of a user, by a zCDP
    cost that holds for users who react to earlier answers too. The caller sees to it that no user has more days.

    Args:
        k: labels in each answer.
        days: how many days, from 1 to 4000; fixed beforehand.
        sigma: scale of the noise of one measurement, in units of linf.
        delta: bounds the probability that a label is ever shown which only one user-day has; needed for private labels.
        factorisation: "square_root" (least noise), "tree" (binary), "daily" (each day measured once, and added up).
        days_per_user: on how many days one user adds something at most; all of them are protected together.
        days_apart: the smallest distance of two such days, 1 for days in a row.

    Source: docs/notes/continual.md. Binary tree: Dwork-Naor-Pitassi-Rothblum 2010, Chan-Shi-Song 2011; square root:
    Fichtenberger-Henzinger-Upadhyay 2023; unknown domains under continual observation: Rivera Cardoso-Rogers 2022.

    >>> print(ContinualTopK(k=3, days=30, sigma=5.0, factorisation="tree").charge(Sensitivity(l0=2)))
    10*DGauss(5.0, 1) [adaptive]
    """

    k: int
    days: int
    sigma: float
    delta: float = 0.0
    factorisation: Kind = "square_root"
    days_per_user: int = 1
    days_apart: int = 1

    def __post_init__(self) -> None:
        validate.parameters(self, delta=validate.probability)
        validate.member(tuple(FACTORISATIONS), factorisation=self.factorisation)
        if self.days > LARGEST_DAYS:
            raise InvalidParameter(f"days={self.days} is too large: at most {LARGEST_DAYS}")

    def charge(
        self,
        sensitivity: Sensitivity,
        *,
        labels: int | None = None,
        days_per_user: int | None = None,
        days_apart: int | None = None,
    ) -> Charge:
        """All days together, of the worst days that one user may have.

        One day: exact up to rounding up the weights of days that enter fewer measurements. Several: an upper bound,
        ρ = copies · linf² · (largest sum of squared shifts) / (2 scale²) of zCDP, since each discrete Gaussian is
        shift²/(2 scale²)-zCDP whatever the answers before it made the user do (Canonne-Kamath-Steinke 2020;
        adaptively chosen shifts: Feldman-Zrnic 2021); the sum is that of ``Factorisation.energy``. Where each
        measurement holds one day, it is the one-day charge for each.

        Args:
            sensitivity: of one user-day.
            labels: size of the public domain; needed where l0 is None.
            days_per_user: days of one user that are protected together; None = the mechanism's.
            days_apart: the smallest distance of two of them; None = the mechanism's.

        Raises:
            InvalidParameter: where neither l0 nor ``labels`` is known, the noise is too large for 64 bits, or the
                thresholds of private labels promise nothing for a user of that many days.
        """
        touched, linf = copies(add_remove(sensitivity), labels), sensitivity.linf
        scale = linf * self.sigma * self.measurements.unit
        if scale > LARGEST_SCALE:
            raise InvalidParameter(f"sigma={self.sigma} is too large: integer noise of scale {scale:g} leaves 64 bits")
        apart = self.days_apart if days_apart is None else validate.count(days_apart=days_apart)
        wanted = self.days_per_user if days_per_user is None else validate.count(days_per_user=days_per_user)
        active = int(self._active(wanted, apart)[-1])
        costs: dict[Cost, int]
        if active == 1 or self.measurements.alone:
            shifts = self.measurements.shifts.items()
            costs = {DiscreteGaussianDP(scale, linf * weight): touched * active * n for weight, n in shifts}
        else:
            squares = touched * linf**2 * self.measurements.energy(active, apart)
            costs = {ZCDP(read_up(squares / (2 * Fraction(scale) ** 2))): 1} if squares else {}
        return Charge(costs, delta=self._failure(sensitivity, wanted, apart), adaptive=self.days > 1)

    def _active(self, days_per_user: int, days_apart: int) -> np.ndarray[Any, Any]:
        """On how many days a user can have been active by each day, shape (days,)."""
        found: np.ndarray[Any, Any] = np.arange(self.days) // min(days_apart, self.days) + 1
        return found.clip(max=min(days_per_user, self.days))

    def _failure(self, sensitivity: Sensitivity, days_per_user: int, days_apart: int) -> float:
        """Bounds the probability that a label is ever shown which only the days of one user have."""
        if not self.delta or (days_per_user, days_apart) == (self.days_per_user, self.days_apart):
            return self.delta
        active = self._active(days_per_user, days_apart)
        thresholds = np.array([self.threshold(sensitivity, day) for day in range(1, self.days + 1)])
        beyond = np.maximum(thresholds - SUM_ROUNDING - sensitivity.linf * active, 0)
        passes = np.exp(-((beyond / self.measurements.scales(sensitivity.linf * self.sigma)) ** 2) / 2).sum()
        delta = float(passes * active[-1] * finite_l0(sensitivity, "for private labels") * (1 + 1e-9))
        if delta >= 1:
            raise InvalidParameter(
                f"days_per_user={days_per_user} is too large for thresholds that are made for "
                f"{self.days_per_user}: plan the mechanism with this days_per_user"
            )
        return delta

    @property
    def measurements(self) -> Factorisation:
        """What is measured on which day."""
        return factorise(self.factorisation, self.days)

    def noise_std(self, sensitivity: Sensitivity, day: int | None = None) -> float:
        """Upper bound on the standard deviation of a total's noise before rounding: on a day, or the worst one."""
        spread = self.measurements.scales(add_remove(sensitivity).linf * self.sigma)
        return float(spread.max() if day is None else spread[self._at(day)])

    def threshold(self, sensitivity: Sensitivity, day: int) -> int:
        """The count that a total must exceed for a private label to be shown on that day, from 1 on.

        a·linf + z·s for the day's noise, a sum of discrete Gaussians and so s²-subgaussian (Canonne-Kamath-Steinke
        2020), a the days that one user can have had by then, A by the last day: each of l0·A labels passes on each of
        the days with probability at most exp(-z²/2) = δ/(l0·A·days).
        """
        if not self.delta:
            raise InvalidParameter("delta must be above 0 for private labels")
        l0 = finite_l0(sensitivity, "for private labels")
        active = self._active(self.days_per_user, self.days_apart)
        z = math.sqrt(2 * math.log(l0 * int(active[-1]) * self.days / self.delta)) * (1 + 1e-9)
        spread = float(self.measurements.scales(sensitivity.linf * self.sigma)[self._at(day)])
        return math.ceil(sensitivity.linf * int(active[day - 1]) + z * spread + SUM_ROUNDING)

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
            InvalidParameter: for private labels without delta or with l0 = None, repeated labels, too large a sigma.
        """
        names = None if labels is None else as_labels(labels).tolist()
        self.charge(sensitivity, labels=None if names is None else len(names))
        if names is None:
            self.threshold(sensitivity, 1)
        elif self.delta:
            raise InvalidParameter("delta must be 0 where the labels are public: nothing is compared with a threshold")
        return Stream(self, sensitivity, public=names is not None, names=names or [], rng=rng)

    def _at(self, day: int) -> int:
        if not 1 <= validate.count(day=day) <= self.days:
            raise InvalidParameter(f"day={day} must be from 1 to {self.days}")
        return day - 1


@dataclass(eq=False)
class Stream:
    """The state between days: private, like the data, and to be kept like them (``to_dict``). Made by ``stream``.

    Several threads may ask, one after the other. It cannot be pickled or copied deeply: a second stream would answer
    the same days again.

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
    _given: frozenset[str] = field(init=False, repr=False, default=frozenset())
    _sums: np.ndarray[Any, Any] = field(init=False, repr=False)
    _rows: dict[Any, int] = field(init=False, repr=False)
    _turn: Any = field(init=False, repr=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._sums = np.zeros((len(self.names), len(self._plan.measured_on)), dtype=np.int64)
        self._rows = {identity(name): row for row, name in enumerate(self.names)}

    @property
    def charge(self) -> Charge:
        """What all days cost together; the first answer carries it, the others nothing."""
        return self.mechanism.charge(self.sensitivity, labels=len(self.names) if self.public else None)

    @property
    def _plan(self) -> Factorisation:
        return self.mechanism.measurements

    def release(self, histogram: Histogram) -> Release:
        """The next day's answer: the top k of the totals up to and with this day.

        Args:
            histogram: the counts of this day alone, whole, with a sensitivity that the stream's covers; in a public
                domain labels without a row have count 0, and others are refused. Counts of all days so far would let
                one user-day enter again on every later day, which is not charged and cannot be seen here; the same
                ``Histogram`` twice is refused.

        Returns:
            Release: at most k labels in the order of their noisy totals; in a private domain those above the threshold.

        Raises:
            InvalidParameter: when the histogram does not fit, or all days have been answered.

        Whatever is raised, nothing has changed: the day can be asked for again, and counts once.
        """
        with self._turn:
            counts, state = self._checked(histogram), (self.names, self._rows, self._sums, self.day, self._given)
            try:
                self._add(counts)
                self._given |= {histogram.identity}
                return self._answer(histogram)
            except BaseException:
                self.names, self._rows, self._sums, self.day, self._given = state
                raise

    def _add(self, counts: Mapping[Any, tuple[Any, int]]) -> None:
        """One day more. What the attributes held before is not changed in place."""
        before, first = self.day, len(self._sums)
        self._arrived(counts)
        self._sums += self._of_day(counts)[:, None] * self._plan.strategy[:, before]
        self._measure(np.flatnonzero(self._plan.measured_on == before), 0)
        self._measure(np.flatnonzero(self._plan.measured_on < before), first)  # of labels that are new today
        self.day += 1

    def _checked(self, histogram: Histogram) -> dict[Any, tuple[Any, int]]:
        validate.instance(Histogram, histogram=histogram)
        if self.day == self.mechanism.days:
            raise InvalidParameter(f"days: all {self.mechanism.days} have been answered")
        if not self.sensitivity.covers(histogram.sensitivity):
            raise InvalidParameter(
                f"histogram has the sensitivity {histogram.sensitivity}, the stream {self.sensitivity}"
            )
        if histogram.identity in self._given:
            raise InvalidParameter("histogram: this one was given as an earlier day; a user-day may enter once")
        if not histogram.complete:
            raise InvalidParameter("complete: a day's histogram must be whole")
        counts = {
            identity(label): (label, int(count))
            for label, count in zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True)
        }
        if self.public and (histogram.domain != "public" or not counts.keys() <= self._rows.keys()):
            raise InvalidParameter("histogram must have the stream's public domain, and no label outside of it")
        return counts

    def _arrived(self, counts: Mapping[Any, tuple[Any, int]]) -> None:
        """Room for labels that come with this day for the first time, in sums of our own."""
        new = [(key, label) for key, (label, count) in counts.items() if count and key not in self._rows]
        self._rows = self._rows | {key: len(self.names) + place for place, (key, _) in enumerate(new)}
        self.names = as_labels(self.names + [label for _, label in new]).tolist()  # all that came can be ordered
        self._sums = np.concatenate([self._sums, np.zeros((len(new), self._sums.shape[1]), dtype=np.int64)])

    def _of_day(self, counts: Mapping[Any, tuple[Any, int]]) -> np.ndarray[Any, Any]:
        day = np.zeros(len(self.names), dtype=np.int64)
        for key, (_, count) in counts.items():
            if count:
                day[self._rows[key]] = min(count, LARGEST_DAILY)
        return day

    def _measure(self, rows: np.ndarray[Any, Any], first: int) -> None:
        """Add noise to these sums of the labels from ``first`` on; once for each sum of each label."""
        size = (len(self._sums) - first) * len(rows)
        if size:
            scale = self.sensitivity.linf * self.mechanism.sigma * self._plan.unit
            noise = discrete_gaussian(scale, size, random_bits(self.rng))
            self._sums[first:, rows] += noise.reshape(-1, len(rows))

    def _answer(self, histogram: Histogram) -> Release:
        """Post-processing of what has been measured so far."""
        totals = self._totals()
        values, names = np.rint(totals).astype(np.int64), np.fromiter(self.names, dtype=object, count=len(self.names))
        if not self.public:
            passed = totals > self.mechanism.threshold(self.sensitivity, self.day)
            values, names = values[passed], names[passed]
        best = descending(values, names)[: self.mechanism.k]
        return Release.drawn(
            histogram.with_sensitivity(self.sensitivity),
            self.rng,
            labels=tuple(names[best].tolist()),
            counts=values[best],
            charge=self.charge if self.day == 1 else Charge({}),
            mechanism=self.mechanism,
            measurement=self._measurement(len(values) > len(best)),
            note=f"day {self.day} of {self.mechanism.days}"
            + ("" if self.day == 1 else ", paid for with the first answer"),
        )

    def _totals(self) -> np.ndarray[Any, Any]:
        """The noisy totals, each a function of its own label's measurements alone.

        A matrix product would add the terms of a row in an order that depends on how many rows there are, and so on
        labels that are not shown: a total next to a half would be rounded by whether another label has come.
        """
        factors = self._plan.totals[self.day - 1]
        totals = np.zeros(len(self._sums))
        for row in np.flatnonzero(factors * (self._plan.measured_on < self.day)).tolist():
            totals += self._sums[:, row] * factors[row]
        return totals

    def _measurement(self, cut: bool) -> Measurement | None:
        """For intervals; none for private labels, since the law of what passed is known from one side only."""
        if not self.public:
            return None
        noise = CountNoise("subgaussian", self.mechanism.noise_std(self.sensitivity, self.day))
        return Measurement(noise, len(self.names), whole=True, cut=cut)

    def to_dict(self) -> dict[str, Any]:
        """The state as plain values, for JSON: *private*, it holds counts and noise.

        Raises:
            InvalidParameter: for a label of a type that ``to_plain`` knows as text alone: read again it would be
                another label, with counts of its own. Like the state, that it is raised is for who keeps the data.
        """
        if any(identity(from_plain(to_plain(name))) != identity(name) for name in self.names):
            raise InvalidParameter("labels: one is of a type of your own, which no state can hold; use texts or tuples")
        return {
            "mechanism": str(self.mechanism),
            "sensitivity": str(self.sensitivity),
            "day": self.day,
            "public": self.public,
            "names": [to_plain(name) for name in self.names],
            "sums": self._sums.tolist(),
            "given": sorted(self._given),
        }

    @classmethod
    def from_dict(
        cls,
        plain: Mapping[str, Any],
        mechanism: ContinualTopK,
        sensitivity: Sensitivity,
        rng: np.random.Generator | None = None,
    ) -> Stream:
        """The stream that ``to_dict`` wrote, to go on with the next day.

        A state must not be gone on from twice: two answers for one day would have noise of their own.

        Raises:
            InvalidParameter: where the state is not of such a stream.
        """
        try:
            names, sums = [from_plain(name) for name in plain["names"]], np.array(plain["sums"], dtype=np.int64)
            stream = cls(mechanism, sensitivity, bool(plain["public"]), names, rng, int(plain["day"]))
            stream._given = frozenset(map(str, plain["given"]))
            fits = sums.size == stream._sums.size and 0 <= stream.day <= mechanism.days
            fits = fits and len(stream._rows) == len(names)
            fits = fits and (plain["mechanism"], plain["sensitivity"]) == (str(mechanism), str(sensitivity))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidParameter("state: not one that to_dict wrote") from error
        if not fits:
            raise InvalidParameter("state: of another mechanism")
        stream._sums = sums.reshape(stream._sums.shape)
        return stream
