"""Exact and fast selection: the law of Gumbel top-k, in about one pass over the counts.

Adding Gumbel noise to r·h_i and sorting is a race: label i's clock rings at T_i = E_i e^{-r h_i}
with E_i standard exponential, and the k first clocks are selected (r = epsilon / linf). Few labels
can be among them. A label with a high count is *watched*: its E_i is drawn outright. The others
form a *crowd* whose envelope rate e^{r·top} bounds each of theirs: rings of the crowd come from one
Poisson process, each ring names a uniform member, and is kept with probability e^{-r (top - h_i)}
(thinning). Only the early part of that process can matter; it is explored from the start until it
is later than the k-th ring known so far. Labels that are not listed at all (count 0) are a crowd of
their own, however many they are.

All comparisons that decide the outcome are exact: every clock is an interval around a float, and
clocks whose intervals overlap are compared with more random bits and more digits until they differ.
Statement and proof: docs/notes/exact-sampling.md. The running time depends on the counts: an
attacker who can measure it learns something that is not accounted for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt

from dptopk._internal import validate as _validate
from dptopk._internal.rounding import decimal, smaller_of
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.exact import Cells, bernoulli_exp
from dptopk.mechanisms.samplers.exponential_race import (
    LOWEST,
    SCORE_ROUNDING,
    STOP,
    Arrivals,
    Level,
    Race,
    differences_from,
    exact_level,
)
from dptopk.mechanisms.samplers.listing import peel_labels
from dptopk.mechanisms.samplers.random import Array, Bits, Bools, Ints

Real = Fraction | float
# The sizes below decide how much is computed, never the law.
_BATCH = 64  # mean number of rings in a batch of a crowd
# Absent labels that may have clocks of their own, beyond four for each selection; more are a crowd.
_FEW_ABSENT = 1024
# Labels whose counts are sampled to choose the crowd, or are drawn at a time: half a megabyte of
# words, which stays in a processor's cache.
_SAMPLE = 1 << 16
_LEAST_RATE = Fraction(1, 10**290)  # smaller rates are not floats of full precision
_LARGEST_RATE = Fraction(sys.float_info.max)
# Added to the logarithm of a time, more than it is rounded by; a later time only costs more rings.
_LOG_TIME_MARGIN = 0.01
_LARGEST_EXPONENT = 700.0  # e^700 is a float


@dataclass(frozen=True)
class Selection:
    """The result of a selection.

    Attributes:
        indices: int64, the labels in the order in which they were selected.
        stopped: whether the stop element was selected (after all of ``indices``).
    """

    indices: Ints
    stopped: bool


class Crowd:
    """A crowd: labels whose rates are at most e^{rate·top}, whose rings are drawn from the earliest
    on by thinning.

    Attributes:
        size: number of labels in the envelope.
        offset: index of the first of them.
        values: their counts, or None if every one has the count ``top``.
        top: the count of the envelope; labels with a higher count are watched, not in the crowd.
        batches: how many batches of rings have been drawn, 0 at first.
    """

    def __init__(self, size: int, offset: int, values: Array | None, top: Level) -> None:
        self.size = size
        self.offset = offset
        self.values = values
        self.top = top
        self.batches = 0

    def explore(self, race: Race, need: int, origin: Level, least: float) -> Arrivals | None:
        """Draw and return more rings, the earliest that have not been drawn yet; return None if no
        ring that is still to come can have a score above ``least``.

        Args:
            race: the race that the crowd takes part in.
            need: how many labels are to be selected.
            origin: the level that scores are relative to.
            least: a score that ``need`` labels reach.
        """
        next_batches = 1 + 2 * need // _BATCH  # at first, about two rings for each selection
        if self.batches:
            # The score of a ring at the time E is that at time 1, less ln E; rings still to come
            # have an E above batches·64/size.
            at_time_1 = self._score_at_time_1(race, origin)
            minus_log_time = -math.log(self.batches * _BATCH / self.size)
            rounding = SCORE_ROUNDING * (2 + abs(at_time_1) + abs(minus_log_time))
            if at_time_1 + minus_log_time + rounding < least:
                return None
            # Until the time e^{at_time_1 - least} a ring has a score above ``least``, and a little
            # longer for rounding. The number of batches at most triples.
            last_time = math.exp(min(at_time_1 - least + _LOG_TIME_MARGIN, _LARGEST_EXPONENT))
            enough = self.size / _BATCH * last_time + 1
            next_batches = int(min(enough, 2.0 * self.batches + 1))
        return self.draw_batches(next_batches, race, origin)

    def _score_at_time_1(self, race: Race, origin: Level) -> float:
        """Return the score of a ring at time 1, relative to the origin, cut to [LOWEST,
        -LOWEST].
        """
        below = race.rate * (exact_level(origin) - exact_level(self.top))
        return max(-float(min(below, -Fraction(LOWEST))), LOWEST)

    def draw_batches(self, batches: int, race: Race, origin: Level) -> Arrivals:
        """Draw and return the rings of the next batches; a batch is a slab of time in which the
        envelope's ``size`` clocks of equal rate ring 64 times on average.

        Args:
            batches: how many batches are drawn.
            race: the race that the crowd takes part in.
            origin: the level that scores are relative to.
        """
        start = Fraction(self.batches * _BATCH, self.size)
        width = Fraction(batches * _BATCH, self.size)
        self.batches += batches
        rings = int(_poisson_batch().draw(batches, race.bits).sum())
        labels = race.bits.below(self.size, rings)
        if self.values is not None:
            unwatched = self.values[labels] <= self.top
            labels = labels[unwatched]
            accepted = self._accepted_rings(self.values[labels], race)
            labels = labels[accepted]
        return race.rings_in_slab(labels + self.offset, self.top, start, width, origin)

    def _accepted_rings(self, levels: Array, race: Race) -> Bools:
        """Draw which rings of the envelope are rings of their labels: each with probability
        e^{-rate (top - level)}, exactly.
        """
        with np.errstate(over="ignore"):
            x = float(race.rate) * differences_from(self.top, levels)
        top = exact_level(self.top)
        return bernoulli_exp(x, lambda i: race.rate * (top - exact_level(levels[i])), race.bits)


@cache
def _poisson_batch() -> Cells:
    """Return the sampler of the Poisson law with mean 64, by its weights 64^j/j! relative to the
    largest.
    """

    def weights(bits: int) -> list[int]:
        """Return the weights in units of 2**-bits, rounded down."""
        units: list[int] = []
        weight = Fraction(math.factorial(_BATCH), _BATCH**_BATCH)  # of no ring; the largest is 1
        # From 2·64 on the weights at least halve: all that is left is at most twice the next one.
        while len(units) <= 2 * _BATCH or 2 * weight * (1 << bits) > 1:
            units.append(int(weight * (1 << bits)))
            weight *= Fraction(_BATCH, len(units))
        return units

    return Cells(weights)


def _watched_and_crowd(values: Array, need: int, bits: Bits) -> tuple[Ints, Crowd] | None:
    """Return the indices of the labels that are watched one by one, and the crowd of all others;
    None if a crowd would save little, so that all labels are watched.

    Any split gives the same law. About m = sqrt(2·n·need) labels are watched, and at least
    4·need: of m labels at or above the crowd's top, the first ``need`` ring before time need/m or
    so, and until then the crowd's envelope rings n·need/m times.

    Args:
        values: counts or utilities, shape (n,).
        need: how many labels are to be selected.
        bits: the source of the sample from which the split is chosen.
    """
    n = values.size
    m = max(4 * need, math.isqrt(2 * n * need))
    if 4 * m >= n:  # a crowd of the others would save little
        return None
    sample = values if n <= 4 * _SAMPLE else values[bits.below(n, _SAMPLE)]
    place = sample.size - max(1, m * sample.size // n)
    cut = np.partition(sample, place)[place]
    return np.flatnonzero(values > cut).astype(np.int64, copy=False), Crowd(n, 0, values, cut)


def _first_of_race(values: Array, need: int, race: Race, absent: int) -> Ints:
    """Draw the labels of the first ``need`` clocks of a race, in order; int64, shape (need,), STOP
    for the stop element.

    Args:
        values: counts or utilities, shape (n,).
        need: how many labels are to be selected.
        race: rate, stop element and source of randomness.
        absent: how many labels with count 0 have the indices n, n + 1, ...
    """
    if race.bits.listing:
        return _first_of_listed_race(values, need, race, absent)
    watched: Ints | None = None
    levels = values  # of the watched labels
    crowds: list[Crowd] = []
    split = _watched_and_crowd(values, need, race.bits)
    if split is not None:
        watched, crowd = split
        levels = values[watched]
        crowds.append(crowd)
    # A few absent labels have clocks of their own, more of them are a crowd.
    few_absent = absent if absent <= 4 * need + _FEW_ABSENT else 0
    if absent > few_absent:
        crowds.append(Crowd(absent, values.size, None, values.dtype.type(0)))
    origin = _score_origin(levels, need, few_absent, crowds)
    watched_labels = _WatchedLabels(levels, watched, values.size + np.arange(few_absent))
    front = _front_of_watched(race, watched_labels, need, origin)
    front = _front_with_crowds(race, crowds, front, need, origin)
    return first_labels(race, front.clocks, front.crowd_rings, need)


@dataclass(frozen=True)
class _WatchedLabels:
    """The labels with a clock of their own.

    Attributes:
        levels: of the watched labels that have a row, shape (m,).
        rows: their rows, shape (m,); None: 0, 1, ...
        unlisted: the indices of watched labels without a row, whose level is 0.
    """

    levels: Array
    rows: Ints | None
    unlisted: Ints

    def parts(self, race: Race, step: int) -> Iterator[tuple[Ints, Array]]:
        """Yield the indices of the labels and their levels in parts: first the labels without a
        row and the stop element, then the others, ``step`` at a time.

        Args:
            race: it says whether there is a stop element, and knows its level.
            step: how many labels with a row a part has.
        """
        first_part = np.append(self.unlisted, STOP) if race.stop is not None else self.unlisted
        yield first_part, np.zeros(first_part.size, self.levels.dtype)
        for begin in range(0, self.levels.size, step):
            part = self.levels[begin : begin + step]
            if self.rows is None:
                yield np.arange(begin, begin + part.size), part
            else:
                yield self.rows[begin : begin + step], part


@dataclass(frozen=True)
class Front:
    """The clocks and rings that may be among the first ones of a race.

    Attributes:
        least: a score that as many different labels certainly reach as are to be selected; -inf
            where there are fewer.
        clocks: clocks of different labels, which may reach it.
        crowd_rings: rings of crowds that may reach it, in which a label may have rung repeatedly;
            None if there are none.
    """

    least: float
    clocks: Arrivals
    crowd_rings: Arrivals | None = None


def _front_of_watched(race: Race, labels: _WatchedLabels, need: int, origin: Level) -> Front:
    """Draw the clocks of the watched labels; return those that may be among the first ``need``.

    Args:
        race: rate, stop element and source of randomness.
        labels: the labels with a clock of their own.
        need: how many labels are to be selected.
        origin: the level that scores are relative to.
    """
    none_yet = race.clocks(np.empty(0, np.int64), labels.levels[:0], origin)
    front = Front(-math.inf, none_yet)
    for part, levels in labels.parts(race, max(need, _SAMPLE)):
        reaching = _clocks_reaching(race.clocks(part, levels, origin), front.least)
        front = front_of(Arrivals.join(front.clocks, reaching), None, need)
    return front


def _front_with_crowds(
    race: Race, crowds: list[Crowd], watched: Front, need: int, origin: Level
) -> Front:
    """Draw rings of the crowds until none that is still to come can be among the first ``need``;
    return the clocks and rings that may be.

    Args:
        race: rate, stop element and source of randomness.
        crowds: the crowds.
        watched: the clocks of the watched labels.
        need: how many labels are to be selected.
        origin: the level that scores are relative to.
    """
    front = watched
    while crowds:
        rings = [crowd.explore(race, need, origin, front.least) for crowd in crowds]
        paired = zip(crowds, rings, strict=True)
        crowds = [crowd for crowd, ring in paired if ring is not None]
        new_rings = [ring for ring in rings if ring is not None]
        if new_rings:
            earlier = [front.crowd_rings] if front.crowd_rings else []
            front = front_of(front.clocks, Arrivals.join(*earlier, *new_rings), need)
    return front


def _first_of_listed_race(values: Array, need: int, race: Race, absent: int) -> Ints:
    """Return what `_first_of_race` returns, for a source that enumerates outcomes.

    Args:
        values: counts or utilities of the labels with a row, shape (n,).
        need: how many labels are to be selected.
        race: rate, stop element and source of randomness.
        absent: how many labels with count 0 have the indices n, n + 1, ...
    """
    heights = [Fraction(value) for value in values.tolist()] + [Fraction(0)] * absent
    end = len(heights)
    if race.stop is not None:
        heights.append(race.stop)
    chosen = np.array(peel_labels(heights, race.rate, need, end, race.bits), dtype=np.int64)
    return np.where(chosen == end, STOP, chosen)


def _score_origin(levels: Array, need: int, few_absent: int, crowds: list[Crowd]) -> Level:
    """Return the level that scores are computed relative to, about that of the last label that
    will be selected.

    Any level would give the same law. Errors of scores grow with the distance from it; so they are
    small where it is decided which label is the last one selected, and how far the crowds, which
    lie no higher, have to be explored.

    Args:
        levels: of the labels with clocks of their own.
        need: how many labels are selected.
        few_absent: how many unlisted labels, at the level 0, have clocks of their own.
        crowds: the labels that share their clocks.
    """
    pool = np.concatenate((levels, np.zeros(min(few_absent, need), levels.dtype)))
    tops: list[Level] = [crowd.top for crowd in crowds]
    if pool.size >= need or (pool.size and not tops):
        place = max(pool.size - need, 0)
        tops.append(np.partition(pool, place)[place])
    return max(tops, default=0)


def front_of(clocks: Arrivals, crowd_rings: Arrivals | None, need: int) -> Front:
    """Return the clocks and rings that may be among the first ``need`` labels, without the others.

    Args:
        clocks: clocks of different labels.
        crowd_rings: rings of crowds, in which a label may have rung repeatedly; or None.
        need: how many labels are to be selected.
    """
    certain_scores = clocks.score - clocks.doubt
    if crowd_rings is not None:
        # A label is represented by the ring with the largest certain score.
        least_scores = crowd_rings.score - crowd_rings.doubt
        order = np.argsort(-least_scores)
        _, earliest = np.unique(crowd_rings.labels[order], return_index=True)
        certain_scores = np.concatenate((certain_scores, least_scores[order[earliest]]))
    if certain_scores.size < need:
        return Front(-math.inf, clocks, crowd_rings)
    if certain_scores.size == need:
        return Front(float(certain_scores.min()), clocks, crowd_rings)
    place = certain_scores.size - need
    least = float(np.partition(certain_scores, place)[place])
    reaching = _clocks_reaching(crowd_rings, least) if crowd_rings else None
    return Front(least, _clocks_reaching(clocks, least), reaching)


def _clocks_reaching(arrivals: Arrivals, least: float) -> Arrivals:
    """Return the clocks whose score may be at least ``least``."""
    return arrivals.take(arrivals.score + arrivals.doubt >= least)


def first_labels(race: Race, arrivals: Arrivals, crowd_rings: Arrivals | None, need: int) -> Ints:
    """Return the first ``need`` different labels among the clocks and the crowds' rings, in the
    exact order in which they ring; int64, shape (need,).

    Args:
        race: it decides the order.
        arrivals: clocks of different labels, none of which is in a crowd.
        crowd_rings: rings of crowds, in which a label may have rung repeatedly; or None.
        need: how many labels are selected.
    """
    number_of_clocks = arrivals.labels.size  # rings have the places from here on
    arrivals = Arrivals.join(arrivals, crowd_rings) if crowd_rings else arrivals
    order = race.exact_order(arrivals)
    labels = arrivals.labels[order]
    # Only the first ring of a crowd's label counts; later ones repeat it.
    ring_places = np.flatnonzero(order >= number_of_clocks)
    _, earliest = np.unique(labels[ring_places], return_index=True)
    is_first = order < number_of_clocks
    is_first[ring_places[earliest]] = True
    return labels[is_first][:need]


def gumbel_top_k(
    counts: npt.ArrayLike,
    k: int,
    *,
    epsilon: float,
    linf: float,
    bits: Bits,
    absent: int = 0,
    stop: Real | None = None,
) -> Selection:
    """Draw k labels by Gumbel top-k: k times one of the remaining labels, with probability ∝
    e^{epsilon·count/linf}; the law is exact.

    Args:
        counts: int64, shape (n,), or floats for real-valued utilities.
        k: number of selections, at least 1; at most n + absent, unless there is a stop element.
        epsilon: of one selection, greater than 0; the smaller of the float and its decimal is used.
        linf: how far one user moves a count, above 0; the larger of the float and its
            decimal is used.
        bits: source of random words (`random_bits`).
        absent: how many more labels there are with count 0; they have the indices n, ..., n +
            absent - 1.
        stop: score of a stop element on the scale of the counts (exact as a Fraction), or None. The
            selection ends when it is drawn; being drawn counts as one of the k selections.

    Returns:
        Selection; its law is exactly that of the peeling exponential mechanism. The time is about
        one pass over the counts plus that for sqrt(n·k) draws.

    Raises:
        InvalidParameter: an argument is out of its range.

    Source: docs/notes/exact-sampling.md.

    >>> from dptopk.mechanisms.samplers.random import random_bits
    >>> gumbel_top_k([5, 900, 40, 70], 2, epsilon=1.0, linf=1, bits=random_bits()).indices
    array([1, 3])
    """
    values = _value_array(counts=counts)
    k = _validate.count(k=k)
    absent = _validate.count(absent=absent, at_least=0, at_most=_validate.LARGEST)
    rate = selection_rate(epsilon, linf)
    if stop is not None:
        stop = stop if isinstance(stop, Fraction) else Fraction(_validate.finite(stop=stop))
    available = values.size + absent
    if stop is not None:
        available += 1
    elif k > available:
        raise InvalidParameter(f"k must be at most the number of labels, got {k}")
    labels = _first_of_race(values, min(k, available), Race(rate, stop, bits), absent)
    stops = np.flatnonzero(labels == STOP)
    if stops.size:
        return Selection(labels[: stops[0]], True)
    return Selection(labels, False)


def selection_rate(epsilon: float, step: float) -> Fraction:
    """Return the rate epsilon / step at which log-probabilities grow with counts or utilities; it
    is rounded down.

    Of a float and its decimal the smaller is epsilon, the larger is the step
    (docs/notes/notation.md, "Decimals").

    Raises:
        InvalidParameter: when scores would lose digits as floats, or overflow.
    """
    _validate.positive(linf=step)
    largest_step = max(decimal(step), Fraction(step))
    rate = smaller_of(_validate.positive(epsilon=epsilon)) / largest_step
    if not _LEAST_RATE <= rate <= _LARGEST_RATE:
        raise InvalidParameter(
            f"epsilon={epsilon} must be from 1e-290 to 1e308 times {step}, by which counts move"
        )
    return rate


def exponential_choice(utilities: npt.ArrayLike, *, rate: float | Fraction, bits: Bits) -> int:
    """Draw an index with probability ∝ e^{rate·utility}, the exponential mechanism; the law is
    exact.

    Args:
        utilities: finite numbers, shape (n,), n at least 1.
        rate: epsilon divided by the range of the utility (DDR §2.1), greater than 0; a Fraction is
            taken exactly.
        bits: source of random words.

    Raises:
        InvalidParameter: for no utilities, or numbers outside these ranges.
    """
    values = _value_array(utilities=utilities)
    if values.size == 0:
        raise InvalidParameter("utilities must not be empty")
    _validate.positive(rate=rate)
    if rate < _LEAST_RATE:
        raise InvalidParameter(f"rate must be at least 1e-290, got {rate}")
    (index,) = _first_of_race(values, 1, Race(Fraction(rate), None, bits), 0).tolist()
    return int(index)


def _value_array(**arguments: npt.ArrayLike) -> Array:
    """Return the one keyword argument as a contiguous array, shape (n,), of int64 or, for real
    numbers, float64.

    Raises:
        InvalidParameter: for another shape, other types, or values that do not fit.
    """
    ((name, array),) = arguments.items()
    values = np.ascontiguousarray(array)
    if values.ndim != 1 or (values.dtype.kind not in "iuf" and values.size):
        raise InvalidParameter(f"{name} must be a one-dimensional array of numbers")
    if values.dtype == np.uint64 and values.size and values.max() >= 1 << 63:
        raise InvalidParameter(f"{name} must fit 64-bit signed integers")
    if values.dtype.kind == "f" and values.size:
        if not np.isfinite(values).all():
            raise InvalidParameter(f"{name} must be finite")
        return values.astype(np.float64, copy=False)
    return values.astype(np.int64, copy=False)
