"""Exact and fast selection: the law of Gumbel top-k, in about one pass over the counts.

Adding Gumbel noise to r·h_i and sorting is a race: label i's clock rings at T_i = E_i e^{-r h_i} with E_i standard
exponential, and the k first clocks are selected (r = epsilon / linf). Few labels can be among them. A label with a
high count is *watched*: its E_i is drawn outright. The others form a *crowd* whose envelope rate e^{r·top} bounds each
of theirs: rings of the crowd come from one Poisson process, each ring names a uniform member, and is kept with
probability e^{-r (top - h_i)} (thinning). Only the early part of that process can matter; it is explored from the
start until it is later than the k-th ring known so far. Labels that are not listed at all (count 0) are a crowd of
their own, however many they are.

All comparisons that decide the outcome are exact: every clock is an interval around a float, and clocks whose intervals
overlap are compared with more random bits and more digits until they differ. Statement and proof:
docs/exact-sampling.md. The running time depends on the counts; whoever can measure it learns something that is not
accounted for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cache, cmp_to_key
from typing import Any

import numpy as np
import numpy.typing as npt

from dptopk import _validate
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.exact import Cells, bernoulli_exp, precise
from dptopk.mechanisms.random import Bits

__all__ = ["Selection", "exponential_choice", "gumbel_top_k"]

_STOP = -1  # the label of the stop element
_BATCH = 64  # mean number of rings in a batch of a crowd
_SAMPLE = 1 << 16
_ROUNDING = 2.0**-48  # relative error of a logarithm and the few operations around it, with much to spare
_LOWEST = -1e300  # scores below it are not told apart by floats, but exactly


@dataclass(frozen=True)
class Selection:
    """What a selection brought.

    Attributes:
        indices: int64, the labels in the order in which they were selected.
        stopped: whether the stop element was selected (after all of ``indices``).
    """

    indices: npt.NDArray[np.int64]
    stopped: bool


@dataclass
class _Clock:
    """One ring, known by an interval that shrinks as more of its random bits are read.

    Its score is rate·level - ln E, with E = -ln U (start is None) or E = start + width·U, and U uniform in [0, 1).
    """

    level: Fraction
    word: int
    start: Fraction | None
    width: Fraction
    known: int = 64

    def bounds(self, rate: Fraction, bits: Bits) -> tuple[Decimal, Decimal]:
        """Return decimals between which the score lies, given the bits read so far."""
        while self.word == 0:
            self.read(bits)
        with precise(self.known + 60):  # U's bounds have fewer digits than that: they are exact
            ends = [Decimal(self.word + i) / (1 << self.known) for i in (0, 1)]
            if self.start is None:
                low, high = (-u.ln() for u in reversed(ends))
            else:
                low, high = (_decimal(self.start) + _decimal(self.width) * u for u in ends)
            base = _decimal(rate * self.level)
            # Every operation errs by a relative 10^-(known + 60), which the bits unread exceed by far.
            slack = (1 + abs(base)) * Decimal(10) ** -(self.known + 30)
            return base - high.ln() - slack, base - low.ln() + slack if low else Decimal("Infinity")

    def read(self, bits: Bits) -> None:
        """Read 64 more bits."""
        self.word, self.known = bits.more(self.word), self.known + 64

    def rings_before(self, other: _Clock, rate: Fraction, bits: Bits) -> int:
        """Compare exactly: -1 if this clock rings first, 1 if the other one does."""
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


@dataclass
class _Rings:
    """Rings that share one law of E; the exact scores, less rate·origin, lie within ``doubt`` of ``score``."""

    labels: npt.NDArray[np.int64]
    levels: Any  # an array, or one level for all
    words: npt.NDArray[np.uint64]
    start: Fraction | None
    width: Fraction
    score: npt.NDArray[np.float64] = field(init=False)
    doubt: npt.NDArray[np.float64] = field(init=False)

    def measure(self, rate: Fraction, origin: Any) -> _Rings:
        """Compute the scores and how far they can be from the truth; the origin is at least every level in an array."""
        head = np.clip(-float(rate) * _above(origin, self.levels), _LOWEST, -_LOWEST)
        word = self.words.astype(np.float64)
        with np.errstate(divide="ignore"):
            if self.start is None:
                rest = (~self.words).astype(np.float64)  # 2^64 (1 - U) lies in [rest, rest + 1]
                e = np.where(word < 2.0**63, -np.log(word * 2.0**-64), -np.log1p(-rest * 2.0**-64))
                known = np.minimum(word, rest)
            else:
                e = float(self.start) + float(self.width) * (word * 2.0**-64)
                known = word + 2.0**64 * float(self.start / self.width)
            tail = -np.log(e)
        # The unread bits can change E by a relative 3/known. A ring with hardly a significant bit may be anywhere.
        vague = known < 1024
        self.score = np.where(vague, 0.0, head + tail)
        rounding = _ROUNDING * (2 + np.abs(head) + np.abs(tail))
        self.doubt = np.where(vague, np.inf, 4 / np.maximum(known, 1) + rounding)
        return self

    def take(self, chosen: npt.NDArray[Any]) -> _Rings:
        """Return the chosen rings."""
        levels = self.levels[chosen] if isinstance(self.levels, np.ndarray) else self.levels
        part = _Rings(self.labels[chosen], levels, self.words[chosen], self.start, self.width)
        part.score, part.doubt = self.score[chosen], self.doubt[chosen]
        return part

    def clock(self, i: int) -> _Clock:
        """Return the i-th ring for exact comparisons."""
        level = self.levels[i] if isinstance(self.levels, np.ndarray) else self.levels
        return _Clock(_exact(level), int(self.words[i]), self.start, self.width)


def _exact(level: Any) -> Fraction:
    return Fraction(level.item() if isinstance(level, np.generic) else level)


def _above(top: Any, levels: Any) -> Any:
    """Return top - levels as floats, within two units in the last place; an array of levels must not exceed top."""
    if not isinstance(levels, np.ndarray):
        return float(_exact(top) - _exact(levels))
    if levels.dtype.kind == "f":
        return float(top) - levels
    # Differences of int64 numbers fit uint64, where subtraction modulo 2^64 is exact.
    return (np.uint64(int(top) % (1 << 64)) - levels.view(np.uint64)).astype(np.float64)


class _Crowd:
    """Labels whose rates are at most e^{rate·top}, explored from the earliest ring on."""

    def __init__(self, size: int, offset: int, values: npt.NDArray[Any] | None, top: Any) -> None:
        self.size = size
        self.offset = offset
        self.values = values  # None: every member has the value ``top``
        self.top = top
        self.batches = 0

    def explore(self, need: int, rate: Fraction, origin: Any, least: float, bits: Bits) -> _Rings | None:
        """Return more rings, or None if no unexplored one can have a score above ``least``."""
        head = max(-float(rate) * float(_above(origin, self.top)), _LOWEST)
        more = 1 + need // (_BATCH // 2)
        if self.batches:
            tail = -math.log(
                self.batches * _BATCH / self.size
            )  # an unexplored ring has E above the logarithm's argument
            if head + tail + _ROUNDING * (2 + abs(head) + abs(tail)) < least:
                return None
            enough = self.size / _BATCH * math.exp(min(head - least + 0.01, 700.0)) + 1
            more = int(min(enough, 2.0 * self.batches + 1))
        return self._next(more, rate, bits).measure(rate, origin)

    def _next(self, batches: int, rate: Fraction, bits: Bits) -> _Rings:
        """Return the rings of the next batches, each covering 64/size of the envelope clocks' standard time."""
        start, width = (Fraction(b * _BATCH, self.size) for b in (self.batches, batches))
        self.batches += batches
        labels = bits.below(self.size, int(_poisson_batch().draw(batches, bits).sum()))
        if self.values is not None:
            labels = labels[self.values[labels] <= self.top]  # the others are watched
            levels = self.values[labels]

            def exact(i: int) -> Fraction:
                return rate * (_exact(self.top) - _exact(levels[i]))

            labels = labels[bernoulli_exp(float(rate) * _above(self.top, levels), exact, bits)]
        return _Rings(labels + self.offset, self.top, bits.uint64(labels.size), start, width)


@cache
def _poisson_batch() -> Cells:
    """Poisson(64): weights 64^j/j!, relative to the largest."""

    def weights(bits: int) -> list[int]:
        units: list[int] = []
        weight = Fraction(math.factorial(_BATCH), _BATCH**_BATCH)
        # From 2·64 on the weights at least halve: all that is left is at most twice the next one.
        while len(units) <= 2 * _BATCH or 2 * weight * (1 << bits) > 1:
            units.append(int(weight * (1 << bits)))
            weight *= Fraction(_BATCH, len(units))
        return units

    return Cells(weights)


def _watch(values: npt.NDArray[Any], need: int, bits: Bits) -> tuple[npt.NDArray[np.int64], _Crowd | None]:
    """Return the labels that are watched one by one, and the crowd of all others.

    Any split gives the same law. About m = sqrt(2·n·need) labels are watched: of m labels at or above the crowd's top
    the first
    ``need`` ring before time need/m or so, when about n·need/m rings of the crowd's envelope have to be looked at.
    """
    n = values.size
    m = max(4 * need, math.isqrt(2 * n * need))
    if 2 * m >= n:
        return np.arange(n, dtype=np.int64), None
    sample = values if n <= 4 * _SAMPLE else values[bits.below(n, _SAMPLE)]
    place = sample.size - max(1, m * sample.size // n)
    cut = np.partition(sample, place)[place]
    return np.flatnonzero(values > cut).astype(np.int64, copy=False), _Crowd(n, 0, values, cut)


def _select(
    values: npt.NDArray[Any], need: int, rate: Fraction, bits: Bits, absent: int, stop: Fraction | None
) -> npt.NDArray[np.int64]:
    """Return the labels of the first ``need`` clocks, in order; -1 is the stop element."""
    watched, crowd = _watch(values, need, bits)
    crowds = [crowd] if crowd else []
    rings = [_Rings(watched, values[watched], bits.uint64(watched.size), None, Fraction(1))]
    one_by_one = absent <= 4 * need + 1024
    if absent and one_by_one:
        unlisted = values.size + np.arange(absent, dtype=np.int64)
        rings.append(_Rings(unlisted, 0, bits.uint64(absent), None, Fraction(1)))
    elif absent:
        crowds.append(_Crowd(absent, values.size, None, 0))
    if stop is not None:
        rings.append(_Rings(np.array([_STOP]), stop, bits.uint64(1), None, Fraction(1)))
    # Scores are taken relative to the highest value; the stop element may lie above it.
    tops = [part.levels.max() for part in rings if isinstance(part.levels, np.ndarray) and part.labels.size]
    origin = max([*tops, *(c.top for c in crowds), *([0] if absent else [])], key=_exact, default=stop)
    for part in rings:
        part.measure(rate, origin)
    least, rings = _prune(rings, need)
    while crowds:
        found = [c.explore(need, rate, origin, least, bits) for c in crowds]
        crowds = [c for c, ring in zip(crowds, found, strict=True) if ring is not None]
        least, rings = _prune([*rings, *(ring for ring in found if ring is not None)], need)
    return _first(rings, need, rate, bits)


def _prune(rings: list[_Rings], need: int) -> tuple[float, list[_Rings]]:
    """Return a score that ``need`` different labels surely reach (or -inf), and the rings that may reach it."""
    labels = np.concatenate([part.labels for part in rings])
    surely = np.concatenate([part.score - part.doubt for part in rings])
    order = np.argsort(-surely)
    _, earliest = np.unique(labels[order], return_index=True)
    if earliest.size < need:
        return -math.inf, rings
    least = float(surely[order][np.partition(earliest, need - 1)[need - 1]])
    return least, [part.take(part.score + part.doubt >= least) for part in rings]


def _first(rings: list[_Rings], need: int, rate: Fraction, bits: Bits) -> npt.NDArray[np.int64]:
    """Return the first ``need`` different labels, in the exact order of the rings."""
    labels = np.concatenate([part.labels for part in rings])
    score = np.concatenate([part.score for part in rings])
    doubt = np.concatenate([part.doubt for part in rings])
    order = np.argsort(-score)
    low, high = (score - doubt)[order], (score + doubt)[order]
    # A run ends where every earlier ring is surely before every later one.
    ends = np.minimum.accumulate(low)[:-1] > np.maximum.accumulate(high[::-1])[::-1][1:]
    borders = np.concatenate(([0], np.flatnonzero(ends) + 1, [order.size]))
    owner = [(part, i) for part in rings for i in range(part.labels.size)] if not ends.all() else []
    for b in np.flatnonzero(np.diff(borders) > 1):
        run = slice(borders[b], borders[b + 1])
        clocks = {int(j): owner[j][0].clock(owner[j][1]) for j in order[run]}

        def earlier(one: int, two: int, clocks: dict[int, _Clock] = clocks) -> int:
            return clocks[one].rings_before(clocks[two], rate, bits)

        order[run] = sorted(clocks, key=cmp_to_key(earlier))
    _, earliest = np.unique(labels[order], return_index=True)
    return labels[order][np.sort(earliest)[:need]]


def gumbel_top_k(
    counts: npt.ArrayLike,
    k: int,
    *,
    epsilon: float,
    linf: int,
    bits: Bits,
    absent: int = 0,
    stop: Fraction | float | None = None,
) -> Selection:
    """Select k labels as Gumbel top-k does: k times one of the rest, with probability ∝ e^{epsilon·count/linf}.

    Args:
        counts: int64, shape (n,), or floats for real-valued utilities.
        k: number of selections, at least 1; at most n + absent, unless there is a stop element.
        epsilon: of one selection, greater than 0; its exact value as a float is used.
        linf: how far one user moves a count, at least 1.
        bits: source of random words (`random_bits`).
        absent: how many more labels there are with count 0; they have the indices n, ..., n + absent - 1.
        stop: score of a stop element on the scale of the counts (exact as a Fraction), or None. The selection ends
            when it
            is drawn; being drawn counts as one of the k selections.

    Returns:
        Selection; its law is exactly that of the peeling exponential mechanism. The time is about one pass over the
        counts
        plus that for sqrt(n·k) draws.

    Raises:
        InvalidParameter: an argument is out of its range.

    Source: docs/exact-sampling.md.

    >>> from dptopk.mechanisms.random import random_bits
    >>> gumbel_top_k([5, 900, 40, 70], 2, epsilon=1.0, linf=1, bits=random_bits()).indices
    array([1, 3])
    """
    values = _as_values(counts=counts)
    k, absent = _validate.count(k=k), _validate.count(absent=absent, at_least=0)
    rate = Fraction(_validate.positive(epsilon=epsilon)) / _validate.count(linf=linf)
    if stop is not None:
        stop = stop if isinstance(stop, Fraction) else Fraction(_validate.finite(stop=stop))
    available = values.size + absent + (stop is not None)
    if stop is None and k > available:
        raise InvalidParameter(f"k must be at most the number of labels, got {k}")
    labels = _select(values, min(k, available), rate, bits, absent, stop)
    where = np.flatnonzero(labels == _STOP)
    return Selection(labels[: where[0]], True) if where.size else Selection(labels, False)


def exponential_choice(utilities: npt.ArrayLike, *, rate: float | Fraction, bits: Bits) -> int:
    """Return an index drawn with probability ∝ e^{rate·utility}: the exponential mechanism, its law exact.

    Args:
        utilities: finite numbers, shape (n,), n at least 1.
        rate: epsilon divided by the range of the utility (DDR §2.1), greater than 0; a Fraction is taken exactly.
        bits: source of random words.
    """
    values = _as_values(utilities=utilities)
    if values.size == 0:
        raise InvalidParameter("utilities must not be empty")
    _validate.positive(rate=rate)
    return int(_select(values, 1, Fraction(rate), bits, 0, None)[0])


def _as_values(**arguments: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the one argument as a contiguous array of int64 or, for real numbers, float64."""
    ((name, given),) = arguments.items()
    values = np.ascontiguousarray(given)
    if values.ndim != 1 or (values.dtype.kind not in "iuf" and values.size):
        raise InvalidParameter(f"{name} must be a one-dimensional array of numbers")
    if values.dtype == np.uint64 and values.size and values.max() >= 1 << 63:
        raise InvalidParameter(f"{name} must fit 64-bit signed integers")
    if values.dtype.kind == "f" and values.size:
        if not np.isfinite(values).all():
            raise InvalidParameter(f"{name} must be finite")
        return values.astype(np.float64, copy=False)
    return values.astype(np.int64, copy=False)
