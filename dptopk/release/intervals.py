"""Confidence intervals and rank ranges of released counts that hold after any selection.

Post-processing of a release and of the parameters of its mechanism: it costs nothing. Proofs: docs/notes/intervals.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dptopk._internal import tails, validate
from dptopk._internal.box_tails import box_side_tail, box_std, box_tail
from dptopk._internal.choices import INTERVALS, Intervals
from dptopk._internal.rounding import tail_up
from dptopk.errors import InvalidParameter
from dptopk.release.conditional import Passed, level

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, Any]
# Of the noise that all counts share, intervals with a false coverage rate give this part of the rate to it.
COMMON_SHARE = 0.25
# The law of the shared noise is looked at in this many cells, each at its worse end.
INTEGRATION_CELLS = 64


@dataclass(frozen=True)
class CountNoise:
    """The law of integer noise, symmetric around 0 and falling on both sides.

    Attributes:
        kind: "laplace", P[n] ∝ exp(-|n|/scale), or "gaussian", P[n] ∝ exp(-n²/(2 scale²)); "normal": real
            noise with tails of at most a normal law's, rounded to the nearest integer;
            "box": U - U_0 of docs/notes/box.md, where the noises of different counts share U_0 and the side n.
        scale: in counts.
        bound: where the law is cut: P[|n| > bound] = 0; None = nowhere.
        power, step: of box noise; n = step·m, P(m) ∝ m^power e^{-m·step/scale}.
    """

    kind: Literal["laplace", "gaussian", "normal", "box"]
    scale: float
    bound: int | None = None
    power: int = 0
    step: int = 1

    @property
    def std_upper(self) -> float:
        """Upper bound on the standard deviation: that of the continuous law is never below; + 1/2 for rounding."""
        if self.kind == "normal":
            return self.scale + 0.5
        if self.kind == "box":
            return box_std(self.power, self.step / self.scale, self.step) * (1 + 1e-9)
        return self.scale * math.sqrt(2) if self.kind == "laplace" else self.scale

    def tail(self, c: int) -> float:
        """Upper bound on P[N > c], c >= 0.

        >>> CountNoise("laplace", 1.0).tail(0) > 0.2689
        True
        """
        if self.bound is not None:
            laplace = self.kind == "laplace"
            edge: Callable[[float, int, int], float] = tails.laplace_edge_mass if laplace else tails.gaussian_edge_mass
            at = 1 / self.scale if laplace else self.scale
            return min(edge(at, self.bound - c, self.bound), 0.5) if c < self.bound else 0.0
        if self.kind == "normal":  # N > c only where the real noise is at least c + 1/2
            return tail_up(math.erfc((c + 0.5) / (self.scale * math.sqrt(2))) / 2)
        if self.kind == "box":
            return box_tail(self.power, self.step / self.scale, self.step, 1, c)
        return tails.laplace_tail(1 / self.scale, c) if self.kind == "laplace" else tails.gaussian_tail(self.scale, c)

    @property
    def precise(self) -> bool:
        """Whether ``tail`` is too large by at most a relative 1e-6."""
        return self.bound is None or self.kind == "laplace" or self.scale <= self.bound <= tails.EDGE_POINTS

    def missed(self, n: int, w: int) -> float:
        """Upper bound on P[some |N_i| > w, i = 1..n]."""
        if self.kind == "box":
            return min(2 * box_tail(self.power, self.step / self.scale, self.step, n, w), 1.0)
        return tails.union(min(2 * self.tail(w), 1.0), n)

    def apart(self, n: int, w: int) -> float:
        """Upper bound on P[some |N_i - N_j| > 2w, i, j = 1..n]; box noises differ by less than the side."""
        if self.kind == "box":
            return box_side_tail(self.power, self.step / self.scale, self.step, 2 * w + 1)
        return self.missed(n, w)


@dataclass(frozen=True)
class Measurement:
    """How the counts of a release were measured: everything that intervals need apart from the counts.

    A released count is true count + (N + Y)/divisor, N its own noise, Y the common noise, if any.

    Attributes:
        noise: the law of each count's own noise N.
        counted: the most counts that were given noise; None = their number is private and has no bound.
        whole: the counts that were given noise are those of the whole domain, or its largest.
        threshold: rows were released only above this distance from the floor (from 0 where the floor is not noisy);
            None = every count was released.
        noisy_floor: the floor, the largest count without a slot, was given noise of the same law.
        cut: only the largest of the released values were kept.
        passed: of how many values these may be the largest, whatever their noise: at most those that passed the
            threshold before that; None where none were cut.
        common: the law of Y, drawn once for all counts; None = 0.
        divisor: of the noise.
        at_threshold: the chance with which a value of exactly the threshold was released.
    """

    noise: CountNoise
    counted: int | None
    whole: bool = False
    threshold: int | None = None
    noisy_floor: bool = False
    cut: bool = False
    passed: int | None = None
    common: CountNoise | None = None
    divisor: int = 1
    at_threshold: float = 0.0

    @property
    def selected(self) -> bool:
        """Whether rows were selected by these same noisy values."""
        return self.cut or self.threshold is not None

    def kept(self, values: Array, rows: int, *, planned: bool) -> Measurement:
        """The measurement when of these released values, the largest first, only the first ``rows`` are shown.

        Two draws of bounded noise move a value by at most 2·bound: one further than twice that below the last one shown
        is never shown (docs/notes/intervals.md, "Counts that passed"), if ``planned``: rows were not chosen by values.
        """
        bound = self.noise.bound if planned else None
        near = len(values) if bound is None else int((values >= values[:rows].min(initial=2**62) - 4 * bound).sum())
        return replace(self, cut=True, passed=near if near < len(values) else self.passed or len(values))

    @property
    def by_passing(self) -> bool:
        """Whether intervals use the conditional law of a fixed threshold: noise on a private number of counts."""
        return self.counted is None and self.threshold is not None and self.noise.precise

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Measurement:
        """The measurement that Release.to_dict wrote."""
        laws = {name: plain[name] and CountNoise(**plain[name]) for name in ("noise", "common")}
        return cls(**{**plain, **laws})

    def half_width(self, alpha: float, kind: Intervals, rows: int) -> int:
        """The smallest proven w: |noise| <= w, in steps of 1/divisor, with the error probability alpha of ``kind``.

        Args:
            alpha: in (0, 1).
            kind: as in Release.intervals.
            rows: how many rows are shown.

        Raises:
            InvalidParameter: where no interval of that kind holds.
        """
        if kind == "row" and self.selected and self.noise.bound is None:
            chosen = (
                "labels that were not chosen by these counts, and these rows were kept because their counts were large"
            )
            raise InvalidParameter(f"kind='row' holds for {chosen}; use kind='simultaneous' or kind='fcr'")
        if kind == "fcr" and self.noise.kind == "box" and self.threshold is not None:
            kind = "simultaneous"  # dependent noise and a number of rows that depends on it
        # Bounded noise is never beyond its bound: a width that holds at every confidence and for every kind.
        bound = self.noise.bound
        if self.counted is None or (kind == "row" and self.selected):
            if bound is None:
                raise InvalidParameter("the number of noisy counts is not known")
            return bound
        if kind == "fcr" and self.selected:
            return self._false_coverage(alpha, rows)
        return smallest_width(self.noise, self._together if kind == "simultaneous" else 1, alpha, self.common)

    def rank_width(self, alpha: float) -> int:
        """The smallest proven w with which |N| <= w for all counts and the floor at once; Y moves no rank."""
        if self.counted is None:
            return int(self.noise.bound or 0)
        return smallest_width(self.noise, self._together, alpha, apart=True)

    @property
    def _together(self) -> int:
        return (self.counted or 0) + self.noisy_floor

    def _false_coverage(self, alpha: float, rows: int) -> int:
        """Benjamini-Yekutieli 2005: each row at level alpha·rows/counted, given the floor's noise and the common."""
        share = COMMON_SHARE if self.common is not None else 0.0
        own = smallest_width(self.noise, 1, (1 - share) * alpha * min(max(rows, 1) / max(self.counted or 1, 1), 1.0))
        return own if self.common is None else own + smallest_width(self.common, 1, share * alpha)


@lru_cache(maxsize=256)
def smallest_width(
    noise: CountNoise, n: int, alpha: float, common: CountNoise | None = None, *, apart: bool = False
) -> int:
    """The smallest w for which P[some |N_i + Y| > w, i = 1..n] is proven to be at most alpha.

    ``apart``: instead that some |N_i - N_j| > 2w, which is all that ranks ask.

    >>> smallest_width(CountNoise("gaussian", 10.0), 1, 0.05), smallest_width(CountNoise("gaussian", 10.0), 101, 0.05)
    (20, 35)
    """
    if n == 0:
        return 0
    missed = noise.apart if apart else partial(_missed, noise, common=common)
    return tails.smallest_offset(lambda w: missed(n, w), alpha, "confidence")


def _missed(noise: CountNoise, n: int, w: int, *, common: CountNoise | None) -> float:
    """Upper bound on P[some |N_i + Y| > w, i = 1..n].

    Given |Y| = y that is 1 - (1 - P[|N + y| > w])^n, and it rises with y (the law of N is symmetric and falls on both
    sides). So on each cell of |Y| it is at most its value at the far end.
    """
    if common is None:
        return noise.missed(n, w)
    ends = sorted({w * cell // INTEGRATION_CELLS for cell in range(INTEGRATION_CELLS + 1)})
    missed, before = 0.0, 0.0
    for start, end in zip([-1, *ends[:-1]], ends, strict=True):  # cells (start, end]
        here = max(before, tails.union(min(noise.tail(w - end) + noise.tail(w + end), 1.0), n))
        missed += (here - before) * (1.0 if start < 0 else min(2 * common.tail(start), 1.0))
        before = here
    return min(missed + (1.0 - before) * min(2 * common.tail(w), 1.0), 1.0)


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
        low, high = _counts(scaled, measurement.half_width(alpha, chosen, len(values)) + rounding, measurement.divisor)
        lowest, highest, among = _ranks(scaled, measurement, alpha, rounding)
    answer = table.assign(low=low, high=high, rank_low=lowest, rank_high=highest)
    answer.attrs.update({"confidence": confidence, "kind": chosen, "ranks": among})
    return answer


def _of_passed(
    values: Array, measurement: Measurement, alpha: float, kind: Intervals
) -> tuple[Array, Array, Array, Array, str]:
    """The ends of intervals and ranks of counts that passed a fixed threshold, and among what labels the ranks are."""
    rows, noise = len(values), measurement.noise
    passed = measurement.passed or rows
    if kind == "row" and measurement.cut:
        if noise.bound is None:
            raise InvalidParameter("kind='row': of the labels that passed, these are the largest; use kind='fcr'")
        kind = "simultaneous"
    law = Passed(int(measurement.threshold or 0), noise.tail, measurement.at_threshold)
    together = level(alpha, passed)
    # Benjamini-Yekutieli: of m counts that passed R are shown, each at level αR/m.
    each = {"simultaneous": together, "row": alpha, "fcr": alpha * rows / max(passed, 1)}[kind]
    low, high = law.intervals(values, each)
    lowest, highest = law.intervals(values, together)
    # These intervals hold jointly: where one is entirely above another, so is its true count.
    above = (lowest[None, :] > highest[:, None]).sum(axis=1)
    perhaps = (highest[None, :] >= lowest[:, None]).sum(axis=1)
    # What is not shown was noised to at most the threshold, or the least value shown where only the largest are.
    unseen = int(values.min(initial=2**62)) if measurement.cut else law.threshold
    in_domain = noise.bound is not None and measurement.whole and rows and lowest.min() > unseen + noise.bound
    return low, high, 1 + above, perhaps, "domain" if in_domain else "rows"


def _steps(values: Array, divisor: int) -> tuple[Array, int]:
    """The values in steps of 1/divisor, and by how many steps a float of that size may have rounded them.

    As int64; beyond 2^62 as Python integers.
    """
    if divisor == 1:
        return np.asarray(values).astype(np.int64), 0
    steps = np.asarray(values, dtype=np.float64) * divisor
    largest = float(np.abs(steps).max(initial=0.0))
    if largest < 2.0**62:
        return np.rint(steps).astype(np.int64), math.ceil(2 * np.spacing(largest)) if largest > 2**50 else 0
    return np.array([int(step) for step in steps.tolist()], dtype=object), math.ceil(2 * np.spacing(largest))


def _counts(exact: Array, width: int, divisor: int) -> tuple[Array, ...]:
    """The whole numbers, at least 0, within width/divisor of a value: integer arithmetic, so nothing is rounded in."""
    low, high = -((width - exact) // divisor), (exact + width) // divisor
    return np.maximum(low, 0).astype(np.int64), np.maximum(high, 0).astype(np.int64)


def _ranks(exact: Array, measurement: Measurement, alpha: float, rounding: int) -> tuple[Array, Array, str]:
    """Return the lowest and highest ranks of the true counts if no noise exceeds its width, under any rule for ties.

    In the whole domain where that can be told for every row, else among the rows shown.
    """
    width = measurement.rank_width(alpha) + rounding
    ordered = np.sort(exact)
    # Certainly above i: value - w > value_i + w. Perhaps not below i: value + w >= value_i - w (also i itself).
    above = len(exact) - np.searchsorted(ordered, exact + 2 * width, side="right")
    perhaps = len(exact) - np.searchsorted(ordered, exact - 2 * width, side="left")
    if measurement.whole and len(exact):
        unseen = _unseen(exact, measurement, width)
        if unseen is not None:
            return 1 + above, perhaps + unseen, "domain"
    return 1 + above, perhaps, "rows"


def _unseen(exact: Array, measurement: Measurement, width: int) -> Array | None:
    """Bound the number of hidden labels with at least the count of each row; None if no bound is proven."""
    if not measurement.selected:
        return np.zeros(len(exact), dtype=np.int64)
    low, least, divisor = exact - width, int(exact.min()), measurement.divisor
    # A value that was not shown is at most the least one shown, or, over a fixed floor and uncut, the threshold.
    fixed = measurement.threshold is not None and not measurement.noisy_floor and not measurement.cut
    most = (divisor * int(measurement.threshold or 0) if fixed else least) + width
    may_reach = max(most, 0) >= low
    if measurement.counted is None:
        return None if may_reach.any() else np.zeros(len(exact), dtype=np.int64)
    if measurement.noisy_floor:
        # Labels without a slot are at most the floor, and floor + its noise + threshold < the least value shown.
        floor = least - 1 - divisor * int(measurement.threshold or 0) + width
        if (max(floor, 0) >= low).any():
            return None
    there = min(measurement.counted, 2**62)  # no domain is larger
    return np.where(may_reach, there - len(exact), 0)
