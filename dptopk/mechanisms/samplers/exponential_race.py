"""Exponential clocks that ring in an order known exactly, though each is computed only as a float
and an error bound.

A clock rings at T = E e^{-rate·level}; its *score* is rate·level - ln E, so that the first ring has
the largest score. E is known by the first 64 bits of a uniform U: E = -ln U for a label of its own,
E = start + width·U for a ring in a slab of time. `Arrivals` holds many clocks as arrays.
`exact_order` sorts them: where the floats' intervals overlap, scores are computed again from a
nearer origin, and what is still undecided then is compared with more bits of U and more digits
until it differs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from functools import cmp_to_key

import numpy as np
import numpy.typing as npt

from dptopk.mechanisms.samplers.exact import precise
from dptopk.mechanisms.samplers.random import Array, Bits, Floats, Ints

Words = npt.NDArray[np.uint64]
# A count or utility: as it lies in an array, or an exact number.
Level = Fraction | float | np.int64 | np.float64
STOP = -1  # the label of the stop element, whose level is any rational number
LOWEST = -1e300  # scores below it are told apart exactly, not by floats
SCORE_ROUNDING = (
    2.0**-48
)  # relative error of a logarithm and the few operations around it, with much to spare
_CHUNK = 1 << 16


@dataclass
class Arrivals:
    """Clocks as arrays of one length; each exact score, less rate·origin, lies within ``doubt`` of
    ``score``.

    Attributes:
        labels: int64.
        levels: int64 or float64; meaningless for the stop element.
        words: uint64, the first bits of U.
        time_blocks: int32, which law of E: 0 for -ln U, others are numbered by the race.
        score, doubt: float64.
    """

    labels: Ints
    levels: Array
    words: Words
    time_blocks: npt.NDArray[np.int32]
    score: Floats
    doubt: Floats

    def take(self, chosen: Array) -> Arrivals:
        """Return the chosen clocks."""
        return Arrivals(*(column[chosen] for column in self.columns()))

    def columns(self) -> list[Array]:
        """Return the arrays in the order of the fields."""
        return [getattr(self, field.name) for field in fields(self)]

    @staticmethod
    def join(*parts: Arrivals) -> Arrivals:
        """Return all the clocks."""
        columns = zip(*(part.columns() for part in parts), strict=True)
        return Arrivals(*(np.concatenate(column) for column in columns))


@dataclass
class ArrivalTime:
    """One clock for exact comparisons: an interval that shrinks as more bits of U are read."""

    level: Fraction
    word: int
    start: Fraction | None
    width: Fraction
    known: int = 64

    def bounds(self, rate: Fraction, bits: Bits) -> tuple[Decimal, Decimal]:
        """Return decimals between which the score lies, given the bits read so far."""
        while self.word == 0:
            self.read(bits)
        # Room for the digits by which a time is below 1: it is at least width·2^-known.
        if self.start is not None:
            lost = len(str(self.width.denominator))
        else:
            lost = 0
        with precise(
            2 * self.known + 60 + lost
        ):  # U's bounds have fewer digits than that: they are exact
            unit = Decimal(1 << self.known)
            low, high = self.times([Decimal(word) / unit for word in (self.word, self.word + 1)])
            base = _decimal(rate * self.level)
            # Every operation errs by a relative 10^-(known + 60); the unread bits, by far more.
            slack = (1 + abs(base)) * Decimal(10) ** -(self.known + 30)
            least = base - high.ln() - slack
            if low:
                return least, base - low.ln() + slack
            return least, Decimal("Infinity")

    def times(self, ends: list[Decimal]) -> list[Decimal]:
        """Return the bounds of the time at which a clock of rate 1 rings, for those of U."""
        if self.start is None:
            return [-u.ln() for u in reversed(ends)]
        return [_decimal(self.start) + _decimal(self.width) * u for u in ends]

    def read(self, bits: Bits) -> None:
        """Read 64 more bits."""
        self.word = bits.more(self.word)
        self.known = self.known + 64

    def compare(self, other: ArrivalTime, rate: Fraction, bits: Bits) -> int:
        """Return -1 if this clock rings first and 1 if the other one does."""
        while True:
            low, high = self.bounds(rate, bits)
            other_low, other_high = other.bounds(rate, bits)
            if low > other_high:
                return -1
            if other_low > high:
                return 1
            self.read(bits)
            other.read(bits)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def exact_level(level: Level) -> Fraction:
    """Return a number, possibly a NumPy scalar, as a fraction."""
    if isinstance(level, np.generic):
        return Fraction(level.item())
    return Fraction(level)


def above(top: Level, levels: Array) -> Floats:
    """Return top - levels, of either sign, as floats, within two units in the last place."""
    if levels.dtype.kind == "f":
        return float(top) - levels
    # The larger of two int64 numbers less the smaller fits uint64, where subtraction modulo 2^64 is
    # exact.
    highest = np.uint64(int(top) % (1 << 64))
    gap = (highest - levels.view(np.uint64)).astype(np.float64)
    higher = levels > top
    if higher.any():
        excess = levels[higher].view(np.uint64) - highest
        gap[higher] = -excess.astype(np.float64)
    return gap


class Race:
    """The parameters that all clocks of one selection share."""

    def __init__(self, rate: Fraction, stop: Fraction | None, bits: Bits) -> None:
        self.rate = rate
        self.stop = stop
        self.bits = bits
        self._slabs: list[tuple[Fraction | None, Fraction]] = [(None, Fraction(0))]

    def clocks(self, labels: Ints, levels: Array, origin: Level) -> Arrivals:
        """Return an independent clock for every label."""
        return self._measured(labels, levels, self.bits.uint64(labels.size), 0, origin)

    def time_block(
        self, labels: Ints, level: Level, start: Fraction, width: Fraction, origin: Level
    ) -> Arrivals:
        """Return rings at uniform times within start..start + width, in the time of clocks of the
        given level.
        """
        self._slabs.append((start, width))
        levels = np.full(labels.size, level)
        words = self.bits.uint64(labels.size)
        return self._measured(labels, levels, words, len(self._slabs) - 1, origin)

    def _measured(
        self, labels: Ints, levels: Array, words: Array, time_block: int, origin: Level
    ) -> Arrivals:
        score, doubt = np.empty((2, labels.size))
        time_blocks = np.full(labels.size, time_block, np.int32)
        arrivals = Arrivals(labels, levels, words, time_blocks, score, doubt)
        self._measure(arrivals, origin)
        return arrivals

    def _measure(self, arrivals: Arrivals, origin: Level) -> None:
        """Set score and doubt; levels near the origin have the smallest doubts."""
        for begin in range(0, arrivals.labels.size, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            with np.errstate(over="ignore"):
                head = -float(self.rate) * above(origin, arrivals.levels[part])
            if self.stop is not None:
                head[arrivals.labels[part] == STOP] = self._stop_score(origin)
            np.clip(head, LOWEST, -LOWEST, out=head)
            time_blocks = arrivals.time_blocks[part]
            alone = bool((time_blocks == time_blocks[0]).all())
            kinds = [int(time_blocks[0])] if alone else np.unique(time_blocks).tolist()
            for kind in kinds:
                where = slice(None) if alone else time_blocks == kind
                words = arrivals.words[part][where]
                score, doubt = self._scores(head[where], words, *self._slabs[kind])
                arrivals.score[part][where] = score
                arrivals.doubt[part][where] = doubt

    def _stop_score(self, origin: Level) -> float:
        largest = Fraction(10**300)
        exact = self.rate * ((self.stop or Fraction(0)) - exact_level(origin))
        return float(max(min(exact, largest), -largest))

    def _scores(
        self, head: Floats, words: Words, start: Fraction | None, width: Fraction
    ) -> tuple[Floats, Floats]:
        known, tail = self._tails(words, start, width)
        # The unread bits can change E by a relative 3/known. A clock with hardly a significant bit
        # may ring at any time.
        vague = known < 1024
        rounding = SCORE_ROUNDING * (2 + np.abs(head) + np.abs(tail))
        doubt = 4 / np.maximum(known, 1) + rounding
        return np.where(vague, 0.0, head + tail), np.where(vague, np.inf, doubt)

    def _tails(
        self, words: Words, start: Fraction | None, width: Fraction
    ) -> tuple[Floats, Floats]:
        """Return how many units of its last bit E is above 0, at least, and -ln E."""
        word = words.astype(np.float64)
        with np.errstate(divide="ignore"):
            if start is None:
                rest = (~words).astype(np.float64)  # 2^64 (1 - U) lies in [rest, rest + 1]
                of_small = -np.log(word * 2.0**-64)
                of_large = -np.log1p(-rest * 2.0**-64)
                e = np.where(word < 2.0**63, of_small, of_large)
                known = np.minimum(word, rest)
            else:
                e = float(start) + float(width) * (word * 2.0**-64)
                known = word + 2.0**64 * float(start / width)
            return known, -np.log(e)

    def exact_order(self, arrivals: Arrivals, origin: Level | None = None) -> Ints:
        """Return the positions of the clocks in the order in which they ring; exact.

        ``origin`` is the one that the scores were computed with, if it may be tried no further.
        """
        order = np.argsort(-arrivals.score)
        low = (arrivals.score - arrivals.doubt)[order]
        high = (arrivals.score + arrivals.doubt)[order]
        # A run ends where every earlier clock certainly rings before every later one.
        least_so_far = np.minimum.accumulate(low)
        most_to_come = np.maximum.accumulate(high[::-1])[::-1]
        ends = np.flatnonzero(least_so_far[:-1] > most_to_come[1:])
        borders = np.concatenate(([0], ends + 1, [order.size]))
        for b in np.flatnonzero(np.diff(borders) > 1):
            run = order[borders[b] : borders[b + 1]]
            part = arrivals.take(run)
            named = part.levels[part.labels != STOP]
            nearer = named.max()
            if origin is None or exact_level(nearer) != exact_level(origin):
                # Relative to the run's own highest level, heads are small and so are their rounding
                # errors.
                self._measure(part, nearer)
                run[:] = run[self.exact_order(part, nearer)]
            else:
                run[:] = run[self._by_more_bits(part)]
        return order

    def _by_more_bits(self, arrivals: Arrivals) -> list[int]:
        clocks = [self._clock(arrivals, i) for i in range(arrivals.labels.size)]

        def compare(i: int, j: int) -> int:
            return clocks[i].compare(clocks[j], self.rate, self.bits)

        return sorted(range(len(clocks)), key=cmp_to_key(compare))

    def _clock(self, arrivals: Arrivals, i: int) -> ArrivalTime:
        is_stop = self.stop is not None and arrivals.labels[i] == STOP
        if is_stop and self.stop is not None:
            level = self.stop
        else:
            level = exact_level(arrivals.levels[i])
        start, width = self._slabs[int(arrivals.time_blocks[i])]
        return ArrivalTime(level, int(arrivals.words[i]), start, width)
