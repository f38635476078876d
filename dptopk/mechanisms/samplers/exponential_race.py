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
# Bounds the relative error of a logarithm and the few operations around it, with much to spare.
SCORE_ROUNDING = 2.0**-48
_CHUNK = 1 << 16  # clocks whose scores are computed at a time, to bound the memory
# A clock whose time has fewer units than this in its last known bit, ten significant bits, may ring
# at any time, as far as floats can tell.
_FEWEST_UNITS = 1024
# Decimal digits that scores are computed to beyond two for each known bit, and the smaller number
# of those to which a score is trusted.
_GUARD_DIGITS = 60
_TRUSTED_DIGITS = 30


@dataclass
class Arrivals:
    """Clocks of a race, and how far their scores are known; all arrays have the shape (n,).

    A clock has the score rate·level - ln E (see the module's text); the clock with the largest
    score rings first. Exact scores, less rate·origin for some level ``origin`` that the race
    chooses, lie within ``doubt`` of ``score``.

    Attributes:
        labels: the index of each clock's label, STOP for the stop element; int64.
        levels: the counts or utilities of the labels, int64 or float64; meaningless for the stop
            element.
        words: the first 64 bits of U, uint64.
        slabs: which law E has, int32: 0 for E = -ln U, others are the numbers of slabs of time.
        score, doubt: float64.
    """

    labels: Ints
    levels: Array
    words: Words
    slabs: npt.NDArray[np.int32]
    score: Floats
    doubt: Floats

    def take(self, chosen: Array) -> Arrivals:
        """Return the clocks at these positions, or those that a mask selects."""
        return Arrivals(*(column[chosen] for column in self.columns()))

    def columns(self) -> list[Array]:
        """Return the six arrays in the order of the attributes."""
        return [getattr(self, field.name) for field in fields(self)]

    @staticmethod
    def join(*parts: Arrivals) -> Arrivals:
        """Return the clocks of all parts, one part after the other."""
        columns = zip(*(part.columns() for part in parts), strict=True)
        return Arrivals(*(np.concatenate(column) for column in columns))


@dataclass
class ArrivalTime:
    """One clock for exact comparisons: the interval of its score shrinks as more bits of U are
    read.

    Attributes:
        level: the count or utility of its label.
        word: the first ``known`` bits of U, as an integer.
        start: begin of the slab of time of a ring, or None for E = -ln U.
        width: length of that slab.
        known: how many bits of U have been read.
    """

    level: Fraction
    word: int
    start: Fraction | None
    width: Fraction
    known: int = 64

    def bounds(self, rate: Fraction, bits: Bits) -> tuple[Decimal, Decimal]:
        """Return a lower and an upper bound on the score, given the bits of U read so far, and at
        least so many that they are not all 0.
        """
        while self.word == 0:  # -ln U would have no upper bound
            self.read(bits)
        # Leading zeros of a time cost digits; a time is at least width·2^-known.
        zeros = 0
        if self.start is not None:
            zeros = len(str(self.width.denominator))
        # The bounds of U have fewer digits than this, so that they are exact.
        with precise(2 * self.known + _GUARD_DIGITS + zeros):
            unit = Decimal(1 << self.known)
            ends = [Decimal(self.word) / unit, Decimal(self.word + 1) / unit]
            low, high = self.times(ends)
            base = _decimal(rate * self.level)
            # An operation with p digits errs by a relative 10^(1 - p) at most, p being at least
            # 2·known + _GUARD_DIGITS, and a logarithm near 0 loses no more than ``known`` digits:
            # the slack is far above both.
            slack = (1 + abs(base)) * Decimal(10) ** -(self.known + _TRUSTED_DIGITS)
            least = base - high.ln() - slack
            if low:
                return least, base - low.ln() + slack
            return least, Decimal("Infinity")  # the time may be 0

    def times(self, ends: list[Decimal]) -> list[Decimal]:
        """Return a lower and an upper bound on E, the time at which a clock of rate 1 rings, to the
        precision of the current decimal context.

        Args:
            ends: a lower and an upper bound on U.
        """
        if self.start is None:
            return [-u.ln() for u in reversed(ends)]
        return [_decimal(self.start) + _decimal(self.width) * u for u in ends]

    def read(self, bits: Bits) -> None:
        """Read 64 more bits of U."""
        self.word = bits.append_bits(self.word)
        self.known = self.known + 64

    def compare(self, other: ArrivalTime, rate: Fraction, bits: Bits) -> int:
        """Return -1 if this clock rings before the other one, else 1; bits of both are read until
        that is certain.
        """
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
    """Return a fraction as a decimal, to the precision of the current context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def exact_level(level: Level) -> Fraction:
    """Return a number, possibly a NumPy scalar, as a fraction."""
    if isinstance(level, np.generic):
        return Fraction(level.item())
    return Fraction(level)


def differences_from(top: Level, levels: Array) -> Floats:
    """Return top - levels, of either sign, float64, shape (n,), within two units in the last
    place, also where the difference exceeds 64 bits.

    Args:
        top: an integer where the levels are integers.
        levels: int64 or float64, shape (n,).
    """
    if levels.dtype.kind == "f":
        return float(top) - levels
    # The larger of two int64 numbers less the smaller fits uint64, where subtraction modulo 2^64 is
    # exact.
    top_word = np.uint64(int(top) % (1 << 64))
    differences = (top_word - levels.view(np.uint64)).astype(np.float64)
    is_higher = levels > top
    if is_higher.any():
        excess = levels[is_higher].view(np.uint64) - top_word
        differences[is_higher] = -excess.astype(np.float64)
    return differences


class Race:
    """What the clocks of one selection share: the rate, the stop element, the source of randomness
    and the slabs of time; it draws clocks and puts them in order.

    Args:
        rate: epsilon / linf, by which scores grow with levels.
        stop: the level of the stop element, or None.
        bits: source of random words.
    """

    def __init__(self, rate: Fraction, stop: Fraction | None, bits: Bits) -> None:
        self.rate = rate
        self.stop = stop
        self.bits = bits
        # The begin and the length of each slab of time; the first entry stands for E = -ln U.
        self._slabs: list[tuple[Fraction | None, Fraction]] = [(None, Fraction(0))]

    def clocks(self, labels: Ints, levels: Array, origin: Level) -> Arrivals:
        """Draw an independent clock for every label.

        Args:
            labels: int64, shape (n,).
            levels: their counts or utilities, shape (n,).
            origin: the level that scores are computed relative to.
        """
        return self._scored_clocks(labels, levels, self.bits.uint64(labels.size), 0, origin)

    def rings_in_slab(
        self, labels: Ints, level: Level, start: Fraction, width: Fraction, origin: Level
    ) -> Arrivals:
        """Draw a ring of each label at a uniform time in [start, start + width], measured in the
        time of clocks of the given level.

        Args:
            labels: int64, shape (n,); a label may occur more than once.
            level: the level whose clocks have this time.
            start: begin of the slab of time.
            width: length of the slab.
            origin: the level that scores are computed relative to.
        """
        self._slabs.append((start, width))
        levels = np.full(labels.size, level)
        words = self.bits.uint64(labels.size)
        return self._scored_clocks(labels, levels, words, len(self._slabs) - 1, origin)

    def _scored_clocks(
        self, labels: Ints, levels: Array, words: Array, slab: int, origin: Level
    ) -> Arrivals:
        """Return clocks with these first bits of U, all of one slab, with their scores.

        Args:
            labels: int64, shape (n,).
            levels: their counts or utilities, shape (n,).
            words: the first 64 bits of U, shape (n,).
            slab: the number of their slab of time, 0 for clocks with E = -ln U.
            origin: the level that scores are computed relative to.
        """
        score, doubt = np.empty((2, labels.size))
        slabs = np.full(labels.size, slab, np.int32)
        arrivals = Arrivals(labels, levels, words, slabs, score, doubt)
        self._compute_scores(arrivals, origin)
        return arrivals

    def _compute_scores(self, arrivals: Arrivals, origin: Level) -> None:
        """Set ``score`` and ``doubt`` of the clocks, for scores relative to the origin.

        The nearer a level is to the origin, the smaller is the doubt.

        Args:
            arrivals: the clocks, changed in place.
            origin: the level that scores are computed relative to.
        """
        for begin in range(0, arrivals.labels.size, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            level_scores = self._level_scores(arrivals.labels[part], arrivals.levels[part], origin)
            slabs = arrivals.slabs[part]
            numbers = [int(slabs[0])]
            is_one_slab = bool((slabs == slabs[0]).all())
            if not is_one_slab:
                numbers = np.unique(slabs).tolist()
            for slab in numbers:
                # A part has nearly always one slab: then nothing is copied by a mask.
                chosen = slice(None) if is_one_slab else slabs == slab
                words = arrivals.words[part][chosen]
                score, doubt = self._scores(level_scores[chosen], words, *self._slabs[slab])
                arrivals.score[part][chosen] = score
                arrivals.doubt[part][chosen] = doubt

    def _level_scores(self, labels: Ints, levels: Array, origin: Level) -> Floats:
        """Return rate·(level - origin) for each label, cut to [LOWEST, -LOWEST], shape (n,); of the
        stop element by its exact level, which is not in ``levels``.

        Args:
            labels: int64, shape (n,).
            levels: their counts or utilities, shape (n,).
            origin: the level that scores are relative to.
        """
        with np.errstate(over="ignore"):
            level_scores = -float(self.rate) * differences_from(origin, levels)
        if self.stop is not None:
            level_scores[labels == STOP] = self._stop_score(origin)
        return np.clip(level_scores, LOWEST, -LOWEST, out=level_scores)

    def _stop_score(self, origin: Level) -> float:
        """Return rate·(level of the stop element - origin), between -1e300 and 1e300; 0 stands for
        the level if there is no stop element.
        """
        largest = Fraction(10**300)
        level = Fraction(0) if self.stop is None else self.stop
        exact = self.rate * (level - exact_level(origin))
        return float(max(min(exact, largest), -largest))

    def _scores(
        self, level_scores: Floats, words: Words, start: Fraction | None, width: Fraction
    ) -> tuple[Floats, Floats]:
        """Return the scores of clocks of one slab and their doubts, shape (n,) each; a doubt of inf
        where so little is known of E that floats say nothing.

        Args:
            level_scores: rate·(level - origin), shape (n,).
            words: the first 64 bits of U, shape (n,).
            start: begin of the slab of time, or None for E = -ln U.
            width: length of that slab.
        """
        units, time_scores = self._time_scores(words, start, width)
        is_vague = units < _FEWEST_UNITS
        rounding = SCORE_ROUNDING * (2 + np.abs(level_scores) + np.abs(time_scores))
        # The unread bits can change E by a relative 3/units; at least 1, so that none is divided
        # by 0.
        doubt = 4 / np.maximum(units, 1) + rounding
        score = level_scores + time_scores
        return np.where(is_vague, 0.0, score), np.where(is_vague, np.inf, doubt)

    def _time_scores(
        self, words: Words, start: Fraction | None, width: Fraction
    ) -> tuple[Floats, Floats]:
        """Return, for clocks whose U is known to 64 bits, a lower bound on E in units of its last
        known bit, and -ln E as a float, shape (n,) each.

        The more units E has, the less can the unread bits change it, relative to its size.

        Args:
            words: the first 64 bits of U, shape (n,).
            start: begin of the slab of time, or None for E = -ln U.
            width: length of that slab.
        """
        word = words.astype(np.float64)
        with np.errstate(divide="ignore"):
            if start is None:
                # 2^64 (1 - U) lies in [complement, complement + 1].
                complement = (~words).astype(np.float64)
                # -ln U, by U itself where it is small and by 1 - U where it is large.
                by_word = -np.log(word * 2.0**-64)
                by_complement = -np.log1p(-complement * 2.0**-64)
                time = np.where(word < 2.0**63, by_word, by_complement)
                units = np.minimum(word, complement)
            else:
                time = float(start) + float(width) * (word * 2.0**-64)
                units = word + 2.0**64 * float(start / width)
            return units, -np.log(time)

    def exact_order(self, arrivals: Arrivals, origin: Level | None = None) -> Ints:
        """Return the positions of the clocks in the order in which they ring, exactly; int64, shape
        (n,).

        The clocks are sorted by their floats and cut into runs, within which the intervals score ±
        doubt overlap. A run is ordered again by scores relative to its own highest level, or, where
        they were relative to that already, with more bits of U.

        Args:
            arrivals: the clocks.
            origin: the level that the scores were computed relative to, if it is the highest level
                of these clocks already; None otherwise.
        """
        order = np.argsort(-arrivals.score)
        low = (arrivals.score - arrivals.doubt)[order]
        high = (arrivals.score + arrivals.doubt)[order]
        # A run ends where every earlier clock certainly rings before every later one; runs of one
        # clock are in order.
        least_so_far = np.minimum.accumulate(low)
        most_to_come = np.maximum.accumulate(high[::-1])[::-1]
        ends = np.flatnonzero(least_so_far[:-1] > most_to_come[1:])
        borders = np.concatenate(([0], ends + 1, [order.size]))
        for b in np.flatnonzero(np.diff(borders) > 1):
            run = order[borders[b] : borders[b + 1]]  # a view: what is written to it is in order
            clocks = arrivals.take(run)
            levels = clocks.levels[clocks.labels != STOP]
            highest = levels.max()
            if origin is None or exact_level(highest) != exact_level(origin):
                # Relative to the run's own highest level, scores are small and so are their
                # rounding errors.
                self._compute_scores(clocks, highest)
                run[:] = run[self.exact_order(clocks, highest)]
            else:
                run[:] = run[self._order_by_more_bits(clocks)]
        return order

    def _order_by_more_bits(self, arrivals: Arrivals) -> list[int]:
        """Return the positions of the clocks in the order in which they ring, compared one by one
        with as many bits as that takes.
        """
        clocks = [self._exact_clock(arrivals, i) for i in range(arrivals.labels.size)]

        def compare(i: int, j: int) -> int:
            """Return -1 if clock i rings before clock j, else 1."""
            return clocks[i].compare(clocks[j], self.rate, self.bits)

        return sorted(range(len(clocks)), key=cmp_to_key(compare))

    def _exact_clock(self, arrivals: Arrivals, i: int) -> ArrivalTime:
        """Return the i-th clock for exact comparisons."""
        if self.stop is not None and arrivals.labels[i] == STOP:
            level = self.stop
        else:
            level = exact_level(arrivals.levels[i])
        start, width = self._slabs[int(arrivals.slabs[i])]
        return ArrivalTime(level, int(arrivals.words[i]), start, width)
