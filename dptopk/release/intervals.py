"""Confidence intervals and rank ranges of released counts that hold after any selection.

They are post-processing of a release and of the parameters of its mechanism, at no privacy cost.
Proofs: docs/notes/intervals.md.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import tails, validate
from dptopk._internal.choices import INTERVALS, Intervals
from dptopk._internal.search import first_true
from dptopk.errors import InvalidParameter
from dptopk.release.conditional import PassedCount, level_of_each
from dptopk.release.noise_laws import NoiseLaw, law_of

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, Any]
# Where counts share a common noise, intervals with a false coverage rate give this part of the rate
# to it. Any part is valid; the common noise is one, while each row's level is divided by the number
# of counts, so that most of the rate is for the rows.
COMMON_SHARE = 0.25
# The part of the error probability for the event that some noise is far out. Any part is valid; the
# width for that event only says how many values are near, and need not be narrow.
FAR_SHARE = 0.1
# The number of distances below the least value shown at which values are counted. They grow by
# factors of 2^(1/4) from one standard deviation on, hence up to about 300 deviations.
NEAR_STEPS = 34
# The law of the common noise is cut into this many cells, and bounded at the worse end of each:
# more cells make the bound tighter.
INTEGRATION_CELLS = 64


@dataclass(frozen=True)
class Measurement:
    """The measurement of a release: everything that intervals need apart from the counts.

    A released count is true count + (N + Y)/divisor, N its own noise, Y the common noise, if any;
    N and Y are integers. Widths are in *steps* of 1/divisor, as the noises are.

    Attributes:
        noise: the law of each count's own noise N.
        counted: upper bound on the number of counts that were given noise; None = their number is
            private and has no bound.
        whole: whether the counts that were given noise are those of the whole domain, or its
            largest.
        threshold: the distance above the floor (above 0 where the floor is not noisy) that a value
            had to exceed to be released; None = every value was released.
        noisy_floor: whether the floor, the largest count without a slot, was given noise of the
            same law.
        cut: whether only the largest of the released values remain.
        passed: upper bound on the number of values that could have been among the remaining ones,
            whatever their noise; None if ``cut`` is False, or where ``counted`` says enough.
        common: the law of Y, drawn once for all counts; None = 0.
        divisor: the number by which the noise is divided.
        at_threshold: the probability with which a value of exactly the threshold was released.
        near: pairs (distance in counts, number): how many of all values are at most this distance
            below the least one shown. It is known where the rows are the largest of all values and
            their number was fixed beforehand, and empty otherwise; over a noisy floor it is known
            up to the distance of the least value that passed. With it, intervals need to allow only
            for the noise of the values that are near.
    """

    noise: NoiseLaw
    counted: int | None
    whole: bool = False
    threshold: int | None = None
    noisy_floor: bool = False
    cut: bool = False
    passed: int | None = None
    common: NoiseLaw | None = None
    divisor: int = 1
    at_threshold: float = 0.0
    near: tuple[tuple[int, int], ...] = ()

    @property
    def selected(self) -> bool:
        """Return whether rows were selected by these same noisy values."""
        return self.cut or self.threshold is not None

    def truncated(self, values: Array, rows: int, *, planned: bool) -> Measurement:
        """Return the measurement of an answer of which only the first rows remain: with ``cut``,
        ``passed`` and ``near`` set accordingly.

        If the noise is bounded and the number of rows was planned, a value further than 4·bound
        below the last one shown could not have been shown, since another draw moves both values by
        at most 2·bound (docs/notes/intervals.md, "Counts that passed"): such values are not counted
        in ``passed``.

        Args:
            values: all released values, the largest first, shape (n,).
            rows: how many rows remain.
            planned: whether that number was fixed before the values were drawn.
        """
        bound = self.noise.bound if planned else None
        if bound is None:
            reachable = len(values)
        else:
            least = values[:rows].min(initial=2**62)  # no value is larger
            reachable = int((values >= least - 4 * bound).sum())
        if reachable < len(values):
            passed = reachable
        else:
            passed = self.passed or len(values)
        near = self._numbers_by_distance(values, rows) if planned and rows else ()
        return replace(self, cut=True, passed=passed, near=near)

    def _numbers_by_distance(self, values: Array, rows: int) -> tuple[tuple[int, int], ...]:
        """Return the field ``near`` for the first rows of all values, for NEAR_STEPS distances.

        It is empty where the law of intervals that uses it does not apply: with common, bounded or
        fractional noise, over a fixed threshold, or if values were left out before. Values that did
        not pass a noisy floor are below all that did: so, up to the distance of the least value
        that passed, none of them is near; only such distances are returned there.

        Args:
            values: all noisy values that were released, the largest first, shape (n,).
            rows: how many of them are shown.
        """
        other_noise = self.common is not None or self.noise.bound is not None
        fixed_threshold = self.threshold is not None and not self.noisy_floor
        if other_noise or fixed_threshold or self.cut or self.divisor != 1:
            return ()
        complete = self.counted == len(values)
        if self.counted is None or not (complete or self.noisy_floor):
            return ()
        least = int(values[:rows].min())
        distances_of_values = np.sort(least - values)
        distances = [math.ceil(self.noise.std * 2 ** (step / 4)) for step in range(NEAR_STEPS)]
        if not complete:
            farthest = distances_of_values[-1]
            distances = [distance for distance in distances if distance <= farthest]
        numbers = np.searchsorted(distances_of_values, distances, side="right").tolist()
        return tuple(zip(distances, numbers, strict=True))

    def _number_of_candidates(self, far_width: int) -> int:
        """Return an upper bound on the number of values that are at most 4·``far_width`` below the
        least one shown: the number that ``near`` has for the smallest distance that is no less; the
        number of all values where every distance of ``near`` is less.
        """
        numbers = [number for distance, number in self.near if distance >= 4 * far_width]
        return min(numbers, default=self.counted or 0)

    def _local_width(self, alpha: float, kind: Intervals, rows: int) -> int:
        """Return the half-width of intervals that allow for the noise only of the values that can
        be among the largest, the candidates (locally simultaneous inference;
        docs/notes/intervals.md).

        With probability 1 - FAR_SHARE·alpha all noises are within some w (``far_width``). Then the
        rows shown belong to a set of labels that is fixed before the noise, and all of its values
        are within 4w of the least one shown. Where that gives no smaller width, the one for all
        noises at once is returned.

        Args:
            alpha: the error probability.
            kind: "simultaneous" or "fcr".
            rows: how many rows are shown.
        """
        counted = self.counted or 0  # for the type checker: where ``near`` is known, so is this
        far_alpha = alpha * FAR_SHARE
        far_width = smallest_width(self.noise, counted, far_alpha)
        candidates = max(self._number_of_candidates(far_width), rows)
        width_for_all = smallest_width(self.noise, self._number_of_noises, alpha)
        if kind == "fcr":
            row_level = (alpha - far_alpha) * max(rows, 1) / candidates
            candidate_width = smallest_width(self.noise, 1, min(row_level, 1.0))
            return min(candidate_width, self._false_coverage_width(alpha, rows), width_for_all)
        if not self.noise.independent:
            return min(smallest_width(self.noise, candidates, alpha - far_alpha), width_for_all)

        def miss_probability(w: int) -> float:
            """Return P[a candidate's noise exceeds w, or that of another label ``far_width``], of
            independent noises; candidates beyond ``far_width`` count in any case.
            """
            other_probability = 0.0
            if candidates < counted:
                other_probability = self.noise.miss_probability(counted - candidates, far_width)
            candidate_probability = self.noise.miss_probability(candidates, min(w, far_width))
            return 1 - (1 - other_probability) * (1 - candidate_probability)

        smallest = first_true(lambda w: miss_probability(w) <= alpha, 0, far_width)
        return min(smallest, far_width)

    @property
    def needs_conditional_law(self) -> bool:
        """Return whether intervals are those of ``conditional``: by the law of a count given that
        it passed a fixed threshold, because the number of noisy counts is private.
        """
        return self.counted is None and self.threshold is not None and self.noise.precise

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Measurement:
        """Return the measurement that ``to_dict`` wrote.

        Raises:
            InvalidParameter: for a law of noise that is not known here.
            KeyError, TypeError: for fields that ``to_dict`` did not write.
        """
        values = dict(plain)
        values["noise"] = law_of(plain["noise"])
        if plain["common"]:
            values["common"] = law_of(plain["common"])
        pairs = plain.get("near", ())
        values["near"] = tuple((int(distance), int(number)) for distance, number in pairs)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON holds them, for a stored answer."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        common = None if self.common is None else self.common.to_dict()
        near = [list(pair) for pair in self.near]
        return {**values, "noise": self.noise.to_dict(), "common": common, "near": near}

    @property
    def std(self) -> float:
        """Return the standard deviation of the noise on a count, (N + Y)/divisor, before any
        selection by it.
        """
        if self.common is None:
            return self.own_std
        return math.hypot(self.own_std, self.shared_std)

    @property
    def own_std(self) -> float:
        """Return the standard deviation of N/divisor, each count's own noise."""
        return self.noise.std / self.divisor

    @property
    def shared_std(self) -> float:
        """Return the standard deviation of Y/divisor, the noise that all counts share; 0 if there
        is none.
        """
        if self.common is None:
            return 0.0
        return self.common.std / self.divisor

    def half_width(self, alpha: float, kind: Intervals, rows: int) -> int:
        """Return the smallest proven half-width w of the intervals, in steps of 1/divisor; all rows
        of an answer have the same.

        It is that for the values which can be among those shown, where ``near`` tells how many
        these are; for the false coverage rate that of Benjamini-Yekutieli; for a single row that of
        one noise; else that of all noises at once.

        Args:
            alpha: the error probability, in the sense of ``kind``; in (0, 1).
            kind: as in Release.intervals.
            rows: how many rows are shown.

        Raises:
            InvalidParameter: where no interval of that kind holds.
        """
        if kind == "row" and self.selected and self.noise.bound is None:
            condition = (
                "labels that were not chosen by these counts, and these rows were kept "
                "because their counts were large"
            )
            raise InvalidParameter(
                f"kind='row' holds for {condition}; use kind='simultaneous' or kind='fcr'"
            )
        if kind == "fcr" and self.threshold is not None and not self.noise.independent:
            # The false coverage rate is not proven where the number of rows depends on noises that
            # depend on each other.
            kind = "simultaneous"
        # How many rows pass a floor depends on the noise, and then no local rate is proven.
        rate_by_floor = kind == "fcr" and self.noisy_floor
        if self.near and kind != "row" and not rate_by_floor:
            return self._local_width(alpha, kind, rows)
        if self.counted is None or (kind == "row" and self.selected):
            # Bounded noise is never beyond its bound: a width that holds at every confidence and
            # for every kind.
            if self.noise.bound is None:
                raise InvalidParameter("the number of noisy counts is not known")
            return self.noise.bound
        if kind == "fcr" and self.selected:
            return self._false_coverage_width(alpha, rows)
        number = self._number_of_noises if kind == "simultaneous" else 1
        return smallest_width(self.noise, number, alpha, self.common)

    def rank_width(self, alpha: float) -> int:
        """Return the smallest w, in steps of 1/divisor, for which it is proven that with
        probability 1 - alpha no two noises of counts and floor differ by more than 2w. So a true
        count whose value is larger by more than 2w is larger; Y moves no rank.

        Raises:
            InvalidParameter: where the number of noises has no bound, nor has the noise.
        """
        if self.counted is None:
            if self.noise.bound is None:
                raise InvalidParameter("the number of noisy counts is not known")
            return int(self.noise.bound)
        return smallest_spread(self.noise, self._number_of_noises, alpha)

    @property
    def _number_of_noises(self) -> int:
        """Return how many noises N were drawn, for the counts and perhaps the floor, where the
        number of counts is known.
        """
        counted = self.counted or 0  # for the type checker: it is not None here
        return counted + 1 if self.noisy_floor else counted

    def _false_coverage_width(self, alpha: float, rows: int) -> int:
        """Return the half-width of intervals with a false coverage rate of at most alpha
        (Benjamini-Yekutieli 2005): each row has the level alpha·rows/counted, given the floor's
        noise and the common noise.

        Args:
            alpha: the false coverage rate, of which the common noise gets COMMON_SHARE.
            rows: how many rows are shown.
        """
        common_share = COMMON_SHARE if self.common is not None else 0.0
        counted = max(self.counted or 1, 1)  # for the type checker: it is not None here
        share_shown = min(max(rows, 1) / counted, 1.0)
        row_level = (1 - common_share) * alpha * share_shown
        own_width = smallest_width(self.noise, 1, row_level)
        if self.common is None:
            return own_width
        return own_width + smallest_width(self.common, 1, common_share * alpha)


@lru_cache(maxsize=256)
def smallest_width(noise: NoiseLaw, n: int, alpha: float, common: NoiseLaw | None = None) -> int:
    """Return the smallest w for which P[some |N_i + Y| > w, i = 1..n] is proven to be at most
    alpha.

    Args:
        noise: the law of each N_i.
        n: how many noises there are.
        alpha: the error probability, in (0, 1).
        common: the law of Y; None: Y = 0.

    >>> from dptopk.release.noise_laws import GaussianNoise
    >>> smallest_width(GaussianNoise(10.0), 1, 0.05)
    20
    >>> smallest_width(GaussianNoise(10.0), 101, 0.05)
    35
    """
    if n == 0:
        return 0
    miss_probability = partial(_miss_probability, noise, common=common)
    return tails.smallest_offset(lambda w: miss_probability(n, w), alpha, "confidence")


@lru_cache(maxsize=256)
def smallest_spread(noise: NoiseLaw, n: int, alpha: float) -> int:
    """Return the smallest w for which P[some |N_i - N_j| > 2w, i, j = 1..n] is proven to be at most
    alpha; for ranks, which a common noise does not move.

    Args:
        noise: the law of each N_i.
        n: how many noises there are.
        alpha: the error probability, in (0, 1).
    """
    if n == 0:
        return 0
    return tails.smallest_offset(lambda w: noise.spread_probability(n, w), alpha, "confidence")


def _miss_probability(noise: NoiseLaw, n: int, w: int, *, common: NoiseLaw | None) -> float:
    """Return an upper bound on P[some |N_i + Y| > w, i = 1..n], Y = 0 if ``common`` is None.

    Given |Y| = y that is 1 - (1 - P[|N + y| > w])^n, and it rises with y (the law of N is symmetric
    and falls on both sides). So on each cell of |Y| it is at most its value at the far end. The sum
    over cells is computed by parts: the increase of these values times P[|Y| > start of the cell].

    Args:
        noise: the law of each N_i.
        n: how many there are, at least 1.
        w: at least 0.
        common: the law of Y; None: there is none.
    """
    if common is None:
        return noise.miss_probability(n, w)
    if n == 1:
        bound_for_one = noise.sum_miss_probability(common, w)
        if bound_for_one is not None:  # by the law of the sum, which is closer than the cells
            return bound_for_one
    ends = sorted({w * cell // INTEGRATION_CELLS for cell in range(INTEGRATION_CELLS + 1)})
    probability = 0.0
    given_previous = 0.0  # the probability given |Y| in the cell before, at most
    for start, end in zip([-1, *ends[:-1]], ends, strict=True):  # cells (start, end]
        one_noise = min(noise.tail(w - end) + noise.tail(w + end), 1.0)
        given_cell = max(given_previous, tails.union(one_noise, n))
        tail_probability = 1.0 if start < 0 else _two_sided_tail(common, start)
        probability += (given_cell - given_previous) * tail_probability
        given_previous = given_cell
    beyond_cells = (1.0 - given_previous) * _two_sided_tail(common, w)
    return min(probability + beyond_cells, 1.0)


def _two_sided_tail(law: NoiseLaw, c: int) -> float:
    """Return an upper bound on P[|N| > c], c >= 0, for a symmetric law."""
    return min(2 * law.tail(c), 1.0)


def ranked_labels(labels: Sequence[Hashable]) -> dict[str, Array | pd.Series]:
    """Return the columns "rank", from 1, and "label" of a table of an answer."""
    import pandas as pd

    return {
        "rank": np.arange(1, len(labels) + 1),
        "label": pd.Series(labels, dtype=object),
    }


def interval_table(
    labels: Sequence[Hashable],
    values: Array,
    measurement: Measurement,
    confidence: float,
    kind: str,
) -> pd.DataFrame:
    """Return the table of ``Release.intervals``.

    Args:
        labels: the released labels in their order, as many as values.
        values: the released values before any fit, shape (rows,).
        measurement: how they were measured.
        confidence: as in Release.intervals.
        kind: as in Release.intervals.

    Raises:
        InvalidParameter: for a confidence outside (0, 1) or an unknown kind, and as
            ``Measurement.half_width``.
    """
    import pandas as pd

    confidence = validate.probability(allow_zero=False, confidence=confidence)
    interval_kind = validate.member(INTERVALS, kind=kind)
    alpha = math.nextafter(1 - confidence, 0.0)  # rounded down, which can only widen intervals
    steps, rounding = _in_steps(values, measurement.divisor)
    if measurement.needs_conditional_law:
        low, high = _conditional_intervals(steps, measurement, alpha, interval_kind)
        ranks = _conditional_ranks(steps, measurement, alpha)
    else:
        width = measurement.half_width(alpha, interval_kind, len(values)) + rounding
        low, high = _count_bounds(steps, width, measurement.divisor)
        ranks = _rank_bounds(steps, measurement, alpha, rounding)
    answer = pd.DataFrame(
        {
            **ranked_labels(labels),
            "low": low,
            "high": high,
            "rank_low": ranks.lowest,
            "rank_high": ranks.highest,
        }
    )
    answer.attrs.update({"confidence": confidence, "kind": interval_kind, "ranks": ranks.among})
    return answer


@dataclass(frozen=True, eq=False)
class _RankRanges:
    """The ranks that the true counts of some rows can have.

    Attributes:
        lowest: the lowest rank of each row, from 1, int64, shape (rows,).
        highest: the highest one, int64, shape (rows,).
        among: "domain" if they are ranks in the whole domain, which is so if that is proven for
            every row, else "rows", among those shown.
    """

    lowest: Array
    highest: Array
    among: str


def _law_of_passing(measurement: Measurement) -> PassedCount:
    """Return the conditional law of a count that passed a fixed threshold."""
    threshold = int(measurement.threshold or 0)  # for the type checker: there is one
    return PassedCount(threshold, measurement.noise.tail, measurement.at_threshold)


def _conditional_intervals(
    values: Array, measurement: Measurement, alpha: float, kind: Intervals
) -> tuple[Array, Array]:
    """Return the low and the high ends of the intervals of counts that passed a fixed threshold, by
    their conditional law, int64, shape (rows,) both.

    Args:
        values: the released values, integers, shape (rows,).
        measurement: how they were measured.
        alpha: the error probability.
        kind: as in Release.intervals.

    Raises:
        InvalidParameter: for kind="row" where only the largest values remain, unless the noise is
            bounded.
    """
    passed = measurement.passed or len(values)
    if kind == "row" and measurement.cut:
        if measurement.noise.bound is None:
            raise InvalidParameter(
                "kind='row': of the labels that passed, these are the largest; use kind='fcr'"
            )
        kind = "simultaneous"
    row_level = _row_level(kind, alpha, len(values), passed)
    return _law_of_passing(measurement).intervals(values, row_level)


def _conditional_ranks(values: Array, measurement: Measurement, alpha: float) -> _RankRanges:
    """Return the ranks that counts which passed a fixed threshold can have, by joint intervals of
    their conditional law.

    Args:
        values: the released values, integers, shape (rows,).
        measurement: how they were measured.
        alpha: the error probability of all ranks together.
    """
    passed = measurement.passed or len(values)
    lowest, highest = _law_of_passing(measurement).intervals(values, level_of_each(alpha, passed))
    # The joint intervals hold together: where one is entirely above another, so is its true count.
    above = (lowest[None, :] > highest[:, None]).sum(axis=1)
    perhaps_above = (highest[None, :] >= lowest[:, None]).sum(axis=1)
    among = "domain" if _are_above_hidden(lowest, values, measurement) else "rows"
    return _RankRanges(1 + above, perhaps_above, among)


def _row_level(kind: Intervals, alpha: float, rows: int, passed: int) -> float:
    """Return the error probability of each row's interval, where ``rows`` of ``passed`` counts are
    shown; ``alpha`` is that of all of them, in the sense of ``kind``.

    Args:
        kind: as in Release.intervals.
        alpha: in (0, 1).
        rows: how many rows are shown.
        passed: how many counts passed, those rows among them.
    """
    if kind == "simultaneous":
        return level_of_each(alpha, passed)
    if kind == "fcr":  # Benjamini-Yekutieli: of m counts that passed R are shown, at level αR/m
        return alpha * rows / max(passed, 1)
    return alpha


def _are_above_hidden(lowest: Array, values: Array, measurement: Measurement) -> bool:
    """Return whether every true count of the rows is certainly above all true counts that are not
    shown; this takes bounded noise.

    A count that is not shown has a noisy value of at most the threshold, or of at most the least
    value shown where only the largest are.

    Args:
        lowest: the lower ends of the rows' joint intervals, shape (rows,).
        values: their noisy values, shape (rows,).
        measurement: how they were measured.
    """
    bound = measurement.noise.bound
    if bound is None or not measurement.whole or not len(values):
        return False
    if measurement.cut:
        largest_hidden = int(values.min(initial=2**62))
    else:  # for the type checker: there is a threshold
        largest_hidden = int(measurement.threshold or 0)
    return bool(lowest.min() > largest_hidden + bound)


def _in_steps(values: Array, divisor: int) -> tuple[Array, int]:
    """Return the values as integers in steps of 1/divisor, shape (rows,), and an upper bound on
    the number of steps by which floats of that size were rounded.

    The integers are int64, or Python integers beyond 2^62.
    """
    if divisor == 1:
        return np.asarray(values).astype(np.int64), 0
    # Each value is a whole number of steps over the divisor, as the nearest float. In spacings of
    # floats of the size of a product, that is off by at most one, and the product and its rounding
    # by a half each: together by two.
    steps = np.asarray(values, dtype=np.float64) * divisor
    largest = float(np.abs(steps).max(initial=0.0))
    if largest <= 2**50:  # the nearest integer is the exact one
        return np.rint(steps).astype(np.int64), 0
    if largest < 2.0**62:
        return np.rint(steps).astype(np.int64), math.ceil(2 * np.spacing(largest))
    integers = np.array([int(step) for step in steps.tolist()], dtype=object)
    return integers, math.ceil(2 * np.spacing(largest))


def _count_bounds(steps: Array, width: int, divisor: int) -> tuple[Array, Array]:
    """Return the smallest and the largest integer, at least 0, within width/divisor of each value,
    int64, shape (rows,) both; exact, by integer arithmetic.

    Args:
        steps: the values in steps of 1/divisor, integers, shape (rows,).
        width: the half-width in the same steps.
        divisor: how many steps make one.
    """
    low = -((width - steps) // divisor)
    high = (steps + width) // divisor
    low = np.maximum(low, 0).astype(np.int64)
    return low, np.maximum(high, 0).astype(np.int64)


def _rank_bounds(
    steps: Array, measurement: Measurement, alpha: float, rounding: int
) -> _RankRanges:
    """Return the lowest and the highest rank that each true count can have, under any rule for
    ties; all hold together with probability 1 - alpha.

    Args:
        steps: the values in steps of 1/divisor, integers, shape (rows,).
        measurement: how they were measured.
        alpha: the error probability.
        rounding: upper bound on the rounding of the values, in steps.

    Raises:
        InvalidParameter: as ``Measurement.rank_width``.
    """
    width = measurement.rank_width(alpha) + rounding
    ordered = np.sort(steps)
    # A row is certainly above row i if value - w > value_i + w, and perhaps not below it if value +
    # w >= value_i - w; the latter holds for i itself.
    above = len(steps) - np.searchsorted(ordered, steps + 2 * width, side="right")
    perhaps_above = len(steps) - np.searchsorted(ordered, steps - 2 * width, side="left")
    if measurement.whole and len(steps):
        hidden = _number_hidden_above(steps, measurement, width)
        if hidden is not None:
            return _RankRanges(1 + above, perhaps_above + hidden, "domain")
    return _RankRanges(1 + above, perhaps_above, "rows")


def _number_hidden_above(steps: Array, measurement: Measurement, width: int) -> Array | None:
    """Return an upper bound on the number of labels that are not shown and whose true count is at
    least that of each row, int64, shape (rows,); None if no bound is proven.

    Args:
        steps: the values shown, in steps of 1/divisor, integers, shape (rows,), at least one.
        measurement: how they were measured.
        width: upper bound on every noise, in the same steps.
    """
    if not measurement.selected:
        return np.zeros(len(steps), dtype=np.int64)
    lowest_counts = steps - width
    largest_hidden = _largest_value_not_shown(steps, measurement) + width
    may_reach = max(largest_hidden, 0) >= lowest_counts
    if measurement.counted is None:  # how many labels are hidden has no bound
        if may_reach.any():
            return None
        return np.zeros(len(steps), dtype=np.int64)
    if measurement.noisy_floor:
        # How many labels have no slot has no bound either. Their counts are at most the floor, and
        # floor + its noise + threshold < the least value shown.
        threshold = measurement.divisor * int(measurement.threshold or 0)
        largest_floor = int(steps.min()) - 1 - threshold + width
        if (max(largest_floor, 0) >= lowest_counts).any():
            return None
    counted = min(measurement.counted, 2**62)  # no domain is larger
    return np.where(may_reach, counted - len(steps), 0)


def _largest_value_not_shown(steps: Array, measurement: Measurement) -> int:
    """Return an upper bound on the values that were measured but are not shown, in steps of
    1/divisor.

    It is the threshold where everything above a fixed one is shown. Where only the largest values
    remain, or the floor has noise, it is the least value shown.

    Args:
        steps: the values shown, in steps of 1/divisor, integers, shape (rows,), at least one.
        measurement: how they were measured; rows were selected by these values.
    """
    has_fixed_floor = measurement.threshold is not None and not measurement.noisy_floor
    if has_fixed_floor and not measurement.cut:
        return measurement.divisor * int(measurement.threshold or 0)  # or 0: for the type checker
    return int(steps.min())
