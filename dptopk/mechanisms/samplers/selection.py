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
Statement and proof: docs/notes/exact-sampling.md. The running time depends on the counts; whoever
can measure it learns something that is not accounted for.
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
    above,
    exact_level,
)
from dptopk.mechanisms.samplers.listing import peeled
from dptopk.mechanisms.samplers.random import Array, Bits, Bools, Ints

Real = Fraction | float
_BATCH = 64  # mean number of rings in a batch of a crowd
_SAMPLE = 1 << 16
_LEAST_RATE = Fraction(1, 10**290)  # smaller rates are not floats of full precision
_LARGEST_RATE = Fraction(sys.float_info.max)


@dataclass(frozen=True)
class Selection:
    """The result of a selection.

    Attributes:
        indices: int64, the labels in the order in which they were selected.
        stopped: whether the stop element was selected (after all of ``indices``).
    """

    indices: Ints
    stopped: bool


class _Thinned:
    """Labels whose rates are at most e^{rate·top}, explored from the earliest ring on."""

    def __init__(self, size: int, offset: int, values: Array | None, top: Level) -> None:
        self.size = size
        self.offset = offset
        self.values = values  # None: every member has the value ``top``
        self.top = top
        self.batches = 0

    def explore(self, race: Race, need: int, origin: Level, least: float) -> Arrivals | None:
        """Return more rings, or None if no unexplored one can have a score above ``least``."""
        more = 1 + 2 * need // _BATCH
        if self.batches:
            head = self._head(race, origin)
            # Unexplored rings have an E above the argument.
            tail = -math.log(self.batches * _BATCH / self.size)
            rounding = SCORE_ROUNDING * (2 + abs(head) + abs(tail))
            if head + tail + rounding < least:
                return None
            nearer = math.exp(min(head - least + 0.01, 700.0))
            enough = self.size / _BATCH * nearer + 1
            more = int(min(enough, 2.0 * self.batches + 1))
        return self._next(more, race, origin)

    def _head(self, race: Race, origin: Level) -> float:
        """The score of a ring at time 1, relative to the origin: from LOWEST to its opposite."""
        below = race.rate * (exact_level(origin) - exact_level(self.top))
        return max(-float(min(below, -Fraction(LOWEST))), LOWEST)

    def _next(self, batches: int, race: Race, origin: Level) -> Arrivals:
        """Return the rings of the next batches, each covering 64/size of the envelope clocks'
        standard time.
        """
        start = Fraction(self.batches * _BATCH, self.size)
        width = Fraction(batches * _BATCH, self.size)
        self.batches += batches
        rings = int(_poisson_batch().draw(batches, race.bits).sum())
        labels = race.bits.below(self.size, rings)
        if self.values is not None:
            labels = labels[self.values[labels] <= self.top]  # the others are watched
            labels = labels[self._thin(self.values[labels], race)]
        return race.time_block(labels + self.offset, self.top, start, width, origin)

    def _thin(self, levels: Array, race: Race) -> Bools:
        """Thin the envelope: keep each ring with probability e^{-rate (top - level)}."""
        with np.errstate(over="ignore"):
            x = float(race.rate) * above(self.top, levels)
        top = exact_level(self.top)
        return bernoulli_exp(x, lambda i: race.rate * (top - exact_level(levels[i])), race.bits)


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


def _explicit_labels(values: Array, need: int, bits: Bits) -> tuple[Ints | None, _Thinned | None]:
    """Return the labels that are watched one by one, and the crowd of all others; None for all,
    none.

    Any split gives the same law. About m = sqrt(2·n·need) labels are watched: of m labels at or
    above the crowd's top, the first ``need`` ring before time need/m or so, and until then the
    crowd's envelope rings n·need/m times.
    """
    n = values.size
    m = max(4 * need, math.isqrt(2 * n * need))
    if 4 * m >= n:
        return None, None
    sample = values if n <= 4 * _SAMPLE else values[bits.below(n, _SAMPLE)]
    place = sample.size - max(1, m * sample.size // n)
    cut = np.partition(sample, place)[place]
    return np.flatnonzero(values > cut).astype(np.int64, copy=False), _Thinned(n, 0, values, cut)


def _select(values: Array, need: int, race: Race, absent: int) -> Ints:
    """Return the labels of the first ``need`` clocks, in order; -1 is the stop element."""
    if race.bits.listing:
        return _listed(values, need, race, absent)
    explicit, thinned = _explicit_labels(values, need, race.bits)
    thinned_groups = [thinned] if thinned else []
    few = absent if absent <= 4 * need + 1024 else 0
    if absent > few:
        thinned_groups.append(_Thinned(absent, values.size, None, values.dtype.type(0)))
    levels = values if explicit is None else values[explicit]
    origin = _origin(levels, need, few, thinned_groups)
    unlisted = values.size + np.arange(few)
    least, arrivals = _watched(race, (levels, explicit, unlisted), need, origin)
    arrivals, found = _explored(race, thinned_groups, (least, arrivals), need, origin)
    return _first(race, arrivals, found, need)


def _watched(
    race: Race, labels: tuple[Array, Ints | None, Ints], need: int, origin: Level
) -> tuple[float, Arrivals]:
    """Return a score that ``need`` of the labels with clocks of their own reach, and the clocks
    that may reach it.
    """
    levels, explicit, unlisted = labels
    least = -math.inf
    arrivals = race.clocks(np.empty(0, np.int64), levels[:0], origin)
    for some, heights in _entries(levels, explicit, unlisted, race, max(need, _SAMPLE)):
        reaching = _reaching(race.clocks(some, heights, origin), least)
        least, arrivals, _ = _prune(Arrivals.join(arrivals, reaching), None, need)
    return least, arrivals


def _explored(
    race: Race,
    thinned_groups: list[_Thinned],
    known: tuple[float, Arrivals],
    need: int,
    origin: Level,
) -> tuple[Arrivals, Arrivals | None]:
    """Explore the crowds until no ring to come can be among the first ``need``: of the watched
    labels, then of the crowds, the rings that may be.
    """
    least, arrivals = known
    found: Arrivals | None = None
    while thinned_groups:
        rings = [crowd.explore(race, need, origin, least) for crowd in thinned_groups]
        paired = zip(thinned_groups, rings, strict=True)
        thinned_groups = [crowd for crowd, ring in paired if ring is not None]
        new = [ring for ring in rings if ring is not None]
        if new:
            earlier = [found] if found else []
            least, arrivals, found = _prune(arrivals, Arrivals.join(*earlier, *new), need)
    return arrivals, found


def _listed(values: Array, need: int, race: Race, absent: int) -> Ints:
    """Return it as `_select`, one order of the clocks after the other."""
    heights = [Fraction(value) for value in values.tolist()] + [Fraction(0)] * absent
    end = len(heights)
    if race.stop is not None:
        heights.append(race.stop)
    chosen = np.array(peeled(heights, race.rate, need, end, race.bits), dtype=np.int64)
    return np.where(chosen == end, STOP, chosen)


def _origin(levels: Array, need: int, few: int, thinned_groups: list[_Thinned]) -> Level:
    """Return the level that scores are taken relative to: about that of the last label that is
    selected.

    Any would give the same law. Errors of scores grow with the distance from it; so they are small
    where it is decided who is still selected, and how far the crowds, which lie no higher, have to
    be explored.
    """
    pool = np.concatenate((levels, np.zeros(min(few, need), levels.dtype)))
    tops: list[Level] = [thinned.top for thinned in thinned_groups]
    if pool.size >= need or (pool.size and not tops):
        last = max(pool.size - need, 0)
        tops.append(np.partition(pool, last)[last])
    return max(tops, default=0)


def _entries(
    levels: Array, explicit: Ints | None, few: Ints, race: Race, step: int
) -> Iterator[tuple[Ints, Array]]:
    """Yield labels with clocks of their own and their levels: unlisted ones, the stop element,
    parts of the watched.
    """
    extra = np.append(few, STOP) if race.stop is not None else few
    yield extra, np.zeros(extra.size, levels.dtype)
    for begin in range(0, levels.size, step):
        part = levels[begin : begin + step]
        if explicit is None:
            yield np.arange(begin, begin + part.size), part
        else:
            yield explicit[begin : begin + step], part


def _prune(
    arrivals: Arrivals, found: Arrivals | None, need: int
) -> tuple[float, Arrivals, Arrivals | None]:
    """Return a score that ``need`` different labels certainly reach (or -inf), and the rings that
    may reach it.

    The labels in ``arrivals`` differ; those ``found`` in crowds may have rung repeatedly.
    """
    certain = arrivals.score - arrivals.doubt
    if found is not None:
        # Of a label's rings the one with the largest certain score stands for it.
        least_scores = found.score - found.doubt
        order = np.argsort(found.doubt - found.score)
        _, earliest = np.unique(found.labels[order], return_index=True)
        certain = np.concatenate((certain, least_scores[order[earliest]]))
    if certain.size < need:
        return -math.inf, arrivals, found
    if certain.size == need:
        return float(certain.min()), arrivals, found
    place = certain.size - need
    least = float(np.partition(certain, place)[place])
    reaching = _reaching(found, least) if found else None
    return least, _reaching(arrivals, least), reaching


def _reaching(arrivals: Arrivals, least: float) -> Arrivals:
    return arrivals.take(arrivals.score + arrivals.doubt >= least)


def _first(race: Race, arrivals: Arrivals, found: Arrivals | None, need: int) -> Ints:
    """Return the first ``need`` different labels, in the exact order of the rings."""
    own = arrivals.labels.size
    arrivals = Arrivals.join(arrivals, found) if found else arrivals
    order = race.exact_order(arrivals)
    labels = arrivals.labels[order]
    # Only the first ring of a crowd's label counts; later ones repeat it.
    crowded = np.flatnonzero(order >= own)
    _, earliest = np.unique(labels[crowded], return_index=True)
    kept = order < own
    kept[crowded[earliest]] = True
    return labels[kept][:need]


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
    """Select k labels as Gumbel top-k does: k times one of the rest, with probability ∝
    e^{epsilon·count/linf}.

    Args:
        counts: int64, shape (n,), or floats for real-valued utilities.
        k: number of selections, at least 1; at most n + absent, unless there is a stop element.
        epsilon: of one selection, greater than 0; the smaller of the float and its decimal is used.
        linf: how far one user moves a count, above 0; the larger of the float and its decimal is
            used.
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
    values = _as_values(counts=counts)
    k = _validate.count(k=k)
    absent = _validate.count(absent=absent, at_least=0, at_most=_validate.LARGEST)
    rate = selection_rate(epsilon, linf)
    if stop is not None:
        stop = stop if isinstance(stop, Fraction) else Fraction(_validate.finite(stop=stop))
    available = values.size + absent + (stop is not None)
    if stop is None and k > available:
        raise InvalidParameter(f"k must be at most the number of labels, got {k}")
    labels = _select(values, min(k, available), Race(rate, stop, bits), absent)
    where = np.flatnonzero(labels == STOP)
    if where.size:
        return Selection(labels[: where[0]], True)
    return Selection(labels, False)


def selection_rate(epsilon: float, step: float) -> Fraction:
    """The rate epsilon / step at which log-probabilities grow with the counts or utilities, at most
    the exact one.

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
    """Return an index drawn with probability ∝ e^{rate·utility}: the exponential mechanism, its law
    exact.

    Args:
        utilities: finite numbers, shape (n,), n at least 1.
        rate: epsilon divided by the range of the utility (DDR §2.1), greater than 0; a Fraction is
            taken exactly.
        bits: source of random words.
    """
    values = _as_values(utilities=utilities)
    if values.size == 0:
        raise InvalidParameter("utilities must not be empty")
    _validate.positive(rate=rate)
    if rate < _LEAST_RATE:
        raise InvalidParameter(f"rate must be at least 1e-290, got {rate}")
    return int(_select(values, 1, Race(Fraction(rate), None, bits), 0)[0])


def _as_values(**arguments: npt.ArrayLike) -> Array:
    """Return the one argument as a contiguous array of int64 or, for real numbers, float64."""
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
