"""Confidence intervals and rank ranges of released counts that hold after any selection.

Post-processing of a release and of the parameters of its mechanism: it costs nothing. Proofs:
docs/notes/intervals.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import tails, validate
from dptopk._internal.choices import INTERVALS, Intervals
from dptopk._internal.search import first_true
from dptopk.errors import InvalidParameter
from dptopk.release.conditional import Passed, level
from dptopk.release.noise_laws import NoiseLaw, law_of

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, Any]
# Of the noise that all counts share, intervals with a false coverage rate give this part of the
# rate to it.
COMMON_SHARE = 0.25
# The part of the error probability for noises that are far out, and the distances, a quarter of a
# power of two apart from one deviation on, at which the values near the least one shown are
# counted.
FAR_SHARE = 0.1
NEAR_STEPS = 34
# The law of the shared noise is looked at in this many cells, each at its worse end.
INTEGRATION_CELLS = 64


@dataclass(frozen=True)
class Measurement:
    """The measurement of a release: everything that intervals need apart from the counts.

    A released count is true count + (N + Y)/divisor, N its own noise, Y the common noise, if any.

    Attributes:
        noise: the law of each count's own noise N.
        counted: the most counts that were given noise; None = their number is private and has no
            bound.
        whole: the counts that were given noise are those of the whole domain, or its largest.
        threshold: rows were released only above this distance from the floor (from 0 where the
            floor is not noisy); None = every count was released.
        noisy_floor: the floor, the largest count without a slot, was given noise of the same law.
        cut: only the largest of the released values were kept.
        passed: of how many values these may be the largest, whatever their noise: at most those
            that passed the threshold before that; None where none were cut.
        common: the law of Y, drawn once for all counts; None = 0.
        divisor: of the noise.
        at_threshold: the chance with which a value of exactly the threshold was released.
        near: pairs (distance, number): how many of all values are at most so far below the least
            one shown, where the rows are the largest and their number was fixed beforehand; empty
            where that is not so.
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
        """Whether rows were selected by these same noisy values."""
        return self.cut or self.threshold is not None

    def kept(self, values: Array, rows: int, *, planned: bool) -> Measurement:
        """The measurement when of these released values, the largest first, only the first ``rows``
        are shown.

        Two draws of bounded noise move a value by at most 2·bound: one further than twice that
        below the last one shown is never shown (docs/notes/intervals.md, "Counts that passed"), if
        ``planned``: rows were not chosen by values.
        """
        bound = self.noise.bound if planned else None
        if bound is None:
            near = len(values)
        else:
            least = values[:rows].min(initial=2**62)
            reached = values >= least - 4 * bound
            near = int(reached.sum())
        return replace(
            self,
            cut=True,
            passed=near if near < len(values) else self.passed or len(values),
            near=self._distances(values, rows) if planned and rows else (),
        )

    def _distances(self, values: Array, rows: int) -> tuple[tuple[int, int], ...]:
        """``near`` of the first ``rows`` of all values; empty where a common noise was added, noise
        is cut, or not all values are there.
        """
        if self.common is not None or self.noise.bound is not None:
            return ()
        whole = self.counted == len(values) and not self.selected
        if not whole or self.divisor != 1:
            return ()
        least = int(values[:rows].min())
        below = np.sort(least - values)
        distances = [math.ceil(self.noise.std * 2 ** (step / 4)) for step in range(NEAR_STEPS)]
        numbers = np.searchsorted(below, distances, side="right").tolist()
        return tuple(zip(distances, numbers, strict=True))

    def _candidates(self, within: int) -> int:
        """Upper bound on how many values are at least the least one shown - 4·``within``."""
        enough = [number for distance, number in self.near if distance >= 4 * within]
        return min(enough, default=self.counted or 0)

    def _local(self, alpha: float, kind: Intervals, rows: int) -> int:
        """The width over those values alone that can be among the largest (locally simultaneous
        inference): docs/notes/intervals.md.

        With probability 1 - ν all noises are within w; then the rows shown are among a set that is
        fixed before the noise, and that the values within 4w of the least one shown contain.
        """
        counted = self.counted or 0
        outer = alpha * FAR_SHARE
        within = smallest_width(self.noise, counted, outer)
        number = max(self._candidates(within), rows)
        everywhere = smallest_width(self.noise, counted, alpha)
        if kind == "fcr":
            row_level = (alpha - outer) * max(rows, 1) / number
            local = smallest_width(self.noise, 1, min(row_level, 1.0))
            return min(local, self._false_coverage(alpha, rows), everywhere)
        if not self.noise.independent:
            return min(smallest_width(self.noise, number, alpha - outer), everywhere)

        def missed(w: int) -> float:
            """P[one of the others is beyond w, or one of these beyond its width]."""
            if number < counted:
                others = self.noise.missed(counted - number, within)
            else:
                others = 0.0
            these = self.noise.missed(number, min(w, within))
            return 1 - (1 - others) * (1 - these)

        together = first_true(lambda w: missed(w) <= alpha, 0, within)
        return min(together, within)

    @property
    def by_passing(self) -> bool:
        """Whether intervals use the conditional law of a fixed threshold: noise on a private number
        of counts.
        """
        return self.counted is None and self.threshold is not None and self.noise.precise

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Measurement:
        """The measurement that ``to_dict`` wrote."""
        laws = {name: plain[name] and law_of(plain[name]) for name in ("noise", "common")}
        pairs = plain.get("near", ())
        near = tuple((int(distance), int(number)) for distance, number in pairs)
        return cls(**{**plain, **laws, "near": near})

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON holds it, in a stored answer."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        common = None if self.common is None else self.common.to_dict()
        near = [list(pair) for pair in self.near]
        return {**values, "noise": self.noise.to_dict(), "common": common, "near": near}

    @property
    def std(self) -> float:
        """Standard deviation of the noise on a count, (N + Y)/divisor, before any selection by
        it.
        """
        if self.common is None:
            return self.own_std
        return math.hypot(self.own_std, self.shared_std)

    @property
    def own_std(self) -> float:
        """Standard deviation of N/divisor, the noise that each count has for itself."""
        return self.noise.std / self.divisor

    @property
    def shared_std(self) -> float:
        """Standard deviation of Y/divisor, the noise that all counts share."""
        if self.common is None:
            return 0.0
        return self.common.std / self.divisor

    def half_width(self, alpha: float, kind: Intervals, rows: int) -> int:
        """The smallest proven w: |noise| <= w, in steps of 1/divisor, with the error probability
        alpha of ``kind``.

        Args:
            alpha: in (0, 1).
            kind: as in Release.intervals.
            rows: how many rows are shown.

        Raises:
            InvalidParameter: where no interval of that kind holds.
        """
        if kind == "row" and self.selected and self.noise.bound is None:
            chosen = (
                "labels that were not chosen by these counts, and these rows were kept "
                "because their counts were large"
            )
            raise InvalidParameter(
                f"kind='row' holds for {chosen}; use kind='simultaneous' or kind='fcr'"
            )
        depends = self.threshold is not None and not self.noise.independent
        if kind == "fcr" and depends:
            kind = "simultaneous"  # dependent noise and a number of rows that depends on it
        if self.near and kind != "row":
            return self._local(alpha, kind, rows)
        # Bounded noise is never beyond its bound: a width that holds at every confidence and for
        # every kind.
        bound = self.noise.bound
        if self.counted is None or (kind == "row" and self.selected):
            if bound is None:
                raise InvalidParameter("the number of noisy counts is not known")
            return bound
        if kind == "fcr" and self.selected:
            return self._false_coverage(alpha, rows)
        number = self._together if kind == "simultaneous" else 1
        return smallest_width(self.noise, number, alpha, self.common)

    def rank_width(self, alpha: float) -> int:
        """The smallest proven w with which |N| <= w for all counts and the floor at once; Y moves
        no rank.
        """
        if self.counted is None:
            return int(self.noise.bound or 0)
        return smallest_width(self.noise, self._together, alpha, apart=True)

    @property
    def _together(self) -> int:
        return (self.counted or 0) + self.noisy_floor

    def _false_coverage(self, alpha: float, rows: int) -> int:
        """Benjamini-Yekutieli 2005: each row at level alpha·rows/counted, given the floor's noise
        and the common.
        """
        share = COMMON_SHARE if self.common is not None else 0.0
        among = max(self.counted or 1, 1)
        part = min(max(rows, 1) / among, 1.0)
        row_level = (1 - share) * alpha * part
        own = smallest_width(self.noise, 1, row_level)
        if self.common is None:
            return own
        return own + smallest_width(self.common, 1, share * alpha)


@lru_cache(maxsize=256)
def smallest_width(
    noise: NoiseLaw,
    n: int,
    alpha: float,
    common: NoiseLaw | None = None,
    *,
    apart: bool = False,
) -> int:
    """The smallest w for which P[some |N_i + Y| > w, i = 1..n] is proven to be at most alpha.

    ``apart``: instead that some |N_i - N_j| > 2w, which is all that ranks ask.

    >>> from dptopk.release.noise_laws import GaussianNoise
    >>> smallest_width(GaussianNoise(10.0), 1, 0.05)
    20
    >>> smallest_width(GaussianNoise(10.0), 101, 0.05)
    35
    """
    if n == 0:
        return 0
    missed = noise.apart if apart else partial(_missed, noise, common=common)
    return tails.smallest_offset(lambda w: missed(n, w), alpha, "confidence")


def _missed(noise: NoiseLaw, n: int, w: int, *, common: NoiseLaw | None) -> float:
    """Upper bound on P[some |N_i + Y| > w, i = 1..n].

    Given |Y| = y that is 1 - (1 - P[|N + y| > w])^n, and it rises with y (the law of N is symmetric
    and falls on both sides). So on each cell of |Y| it is at most its value at the far end.
    """
    if common is None:
        return noise.missed(n, w)
    if n == 1 and (summed := noise.sum_missed(common, w)) is not None:
        return summed
    ends = sorted({w * cell // INTEGRATION_CELLS for cell in range(INTEGRATION_CELLS + 1)})
    missed = 0.0
    before = 0.0
    for start, end in zip([-1, *ends[:-1]], ends, strict=True):  # cells (start, end]
        alone = min(noise.tail(w - end) + noise.tail(w + end), 1.0)
        here = max(before, tails.union(alone, n))
        beyond = 1.0 if start < 0 else _either_side(common, start)
        missed += (here - before) * beyond
        before = here
    outside = (1.0 - before) * _either_side(common, w)
    return min(missed + outside, 1.0)


def _either_side(law: NoiseLaw, c: int) -> float:
    """Upper bound on P[|N| > c], c >= 0, of a symmetric law."""
    return min(2 * law.tail(c), 1.0)


def interval_table(
    table: pd.DataFrame, values: Array, measurement: Measurement, confidence: float, kind: str
) -> pd.DataFrame:
    """The rows of Release.intervals.

    Args:
        table: the columns rank and label.
        values: the released values before any fit, shape (rows,).
        measurement: how they were measured.
        confidence: as in Release.intervals.
        kind: as in Release.intervals.
    """
    confidence = validate.probability(allow_zero=False, confidence=confidence)
    chosen = validate.member(INTERVALS, kind=kind)
    alpha = math.nextafter(1 - confidence, 0.0)
    scaled, rounding = _steps(values, measurement.divisor)
    if measurement.by_passing:
        low, high, lowest, highest, among = _of_passed(scaled, measurement, alpha, chosen)
    else:
        width = measurement.half_width(alpha, chosen, len(values)) + rounding
        low, high = _counts(scaled, width, measurement.divisor)
        lowest, highest, among = _ranks(scaled, measurement, alpha, rounding)
    answer = table.assign(low=low, high=high, rank_low=lowest, rank_high=highest)
    answer.attrs.update({"confidence": confidence, "kind": chosen, "ranks": among})
    return answer


def _of_passed(
    values: Array, measurement: Measurement, alpha: float, kind: Intervals
) -> tuple[Array, Array, Array, Array, str]:
    """The ends of intervals and ranks of counts that passed a fixed threshold, and among what
    labels the ranks are.
    """
    passed = measurement.passed or len(values)
    if kind == "row" and measurement.cut:
        if measurement.noise.bound is None:
            raise InvalidParameter(
                "kind='row': of the labels that passed, these are the largest; use kind='fcr'"
            )
        kind = "simultaneous"
    law = Passed(int(measurement.threshold or 0), measurement.noise.tail, measurement.at_threshold)
    together = level(alpha, passed)
    # Benjamini-Yekutieli: of m counts that passed R are shown, each at level αR/m.
    levels = {"simultaneous": together, "row": alpha, "fcr": alpha * len(values) / max(passed, 1)}
    low, high = law.intervals(values, levels[kind])
    lowest, highest = law.intervals(values, together)
    # These intervals hold jointly: where one is entirely above another, so is its true count.
    above = (lowest[None, :] > highest[:, None]).sum(axis=1)
    perhaps = (highest[None, :] >= lowest[:, None]).sum(axis=1)
    among = "domain" if _outrank_the_unseen(lowest, values, measurement) else "rows"
    return low, high, 1 + above, perhaps, among


def _outrank_the_unseen(lowest: Array, values: Array, measurement: Measurement) -> bool:
    """Whether every count shown is above all counts that are not.

    What is not shown was noised to at most the threshold, or the least value shown where only the
    largest are.
    """
    bound = measurement.noise.bound
    if bound is None or not measurement.whole or not len(values):
        return False
    if measurement.cut:
        unseen = int(values.min(initial=2**62))
    else:
        unseen = int(measurement.threshold or 0)
    return bool(lowest.min() > unseen + bound)


def _steps(values: Array, divisor: int) -> tuple[Array, int]:
    """The values in steps of 1/divisor, and by how many steps a float of that size may have rounded
    them.

    As int64; beyond 2^62 as Python integers.
    """
    if divisor == 1:
        return np.asarray(values).astype(np.int64), 0
    steps = np.asarray(values, dtype=np.float64) * divisor
    largest = float(np.abs(steps).max(initial=0.0))
    if largest < 2.0**62:
        rounding = math.ceil(2 * np.spacing(largest)) if largest > 2**50 else 0
        return np.rint(steps).astype(np.int64), rounding
    integers = np.array([int(step) for step in steps.tolist()], dtype=object)
    return integers, math.ceil(2 * np.spacing(largest))


def _counts(exact: Array, width: int, divisor: int) -> tuple[Array, ...]:
    """The whole numbers, at least 0, within width/divisor of a value: integer arithmetic, so
    nothing is rounded in.
    """
    low = -((width - exact) // divisor)
    high = (exact + width) // divisor
    low = np.maximum(low, 0).astype(np.int64)
    return low, np.maximum(high, 0).astype(np.int64)


def _ranks(
    exact: Array, measurement: Measurement, alpha: float, rounding: int
) -> tuple[Array, Array, str]:
    """Return the lowest and highest ranks of the true counts if no noise exceeds its width, under
    any rule for ties.

    In the whole domain where that can be told for every row, else among the rows shown.
    """
    width = measurement.rank_width(alpha) + rounding
    ordered = np.sort(exact)
    # Certainly above i: value - w > value_i + w. Perhaps not below i: value + w >= value_i - w
    # (also i itself).
    above = len(exact) - np.searchsorted(ordered, exact + 2 * width, side="right")
    perhaps = len(exact) - np.searchsorted(ordered, exact - 2 * width, side="left")
    if measurement.whole and len(exact):
        unseen = _unseen(exact, measurement, width)
        if unseen is not None:
            return 1 + above, perhaps + unseen, "domain"
    return 1 + above, perhaps, "rows"


def _unseen(exact: Array, measurement: Measurement, width: int) -> Array | None:
    """Bound the number of hidden labels with at least the count of each row; None if no bound is
    proven.
    """
    if not measurement.selected:
        return np.zeros(len(exact), dtype=np.int64)
    low = exact - width
    least = int(exact.min())
    divisor = measurement.divisor
    # A value that was not shown is at most the least one shown, or, over a fixed floor and uncut,
    # the threshold.
    fixed = measurement.threshold is not None and not measurement.noisy_floor
    if fixed and not measurement.cut:
        most = divisor * int(measurement.threshold or 0) + width
    else:
        most = least + width
    may_reach = max(most, 0) >= low
    if measurement.counted is None:
        if may_reach.any():
            return None
        return np.zeros(len(exact), dtype=np.int64)
    if measurement.noisy_floor:
        # Labels without a slot are at most the floor, and floor + its noise + threshold < the least
        # value shown.
        threshold = divisor * int(measurement.threshold or 0)
        floor = least - 1 - threshold + width
        if (max(floor, 0) >= low).any():
            return None
    there = min(measurement.counted, 2**62)  # no domain is larger
    return np.where(may_reach, there - len(exact), 0)
