"""Counts to plan for: public or already released, and what a design would make of them, by
simulation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dptopk.errors import InvalidParameter
from dptopk.histogram.counts import LARGEST_COUNT
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS, Draw, SimulationInput, StandardNoise
from dptopk.release.release import Release

Array = np.ndarray[Any, Any]
# A shape is cut to its largest counts; smaller ones hardly ever come into the top k.
MOST_COUNTS = 5000


@dataclass(frozen=True)
class Outcome:
    """Estimated results of a design on a shape, averaged over simulated draws.

    Attributes:
        error: root mean square error of the counts that are shown; 0 where none are.
        missed: what the true top k hold more than the labels that are shown, per label asked for; a
            row that stays empty misses all of its count.
        recall: share of the true top k among the labels shown.
        rows: how many labels are shown.
        deviation: standard error of the loss, that of the draws.
        mixed: the mean of the losses on several shapes; None for one.
        on_each: the loss on each of several shapes, float64, shape (shapes,); None for one.
    """

    error: float
    missed: float
    recall: float
    rows: float
    deviation: float = 0.0
    mixed: float | None = None
    on_each: Array | None = field(default=None, repr=False, compare=False)

    @property
    def loss(self) -> float:
        """Return the one number by which designs are compared, in counts: the error of a row that
        is shown, and what is missed per label asked for.

        The error counts as often as an answer shows a row, at most once: an answer without rows has
        none.
        """
        if self.mixed is None:
            return min(self.rows, 1.0) * self.error + self.missed
        return self.mixed


@dataclass(frozen=True, eq=False)
class Shape:
    """Counts in falling order, float64, shape (n,)."""

    counts: Array
    _seen: dict[Any, tuple[Draw, list[tuple[Array, Array]]]] = field(
        default_factory=dict, repr=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        return Shape, (self.counts,)  # what was drawn on it is drawn again, alike

    @classmethod
    def of(cls, like: Any) -> Shape:
        """Return the shape of public counts, or of an answer that was released before.

        Args:
            like: a Histogram with a public domain, a Release with counts, or a sequence of counts.
                A Release shows only its top: ranks below it are continued by the power law through
                its middle and last rank.

        Raises:
            InvalidParameter: for a private histogram, whose counts a plan must not depend on.
        """
        if isinstance(like, Histogram):
            if like.domain != "public":
                raise InvalidParameter(
                    "like: a private histogram must not shape a plan; give released or public ones"
                )
            return cls._sorted(like.counts)
        if isinstance(like, Release):
            if like.counts is None or len(like) == 0:
                raise InvalidParameter("like: this release has no counts")
            return cls._sorted(_continued(np.sort(np.maximum(like.counts, 0.0))[::-1]))
        try:
            array = np.asarray(like)
            if array.dtype.kind in "biufO":
                counts = array.astype(np.float64)
            else:
                counts = np.empty(0)
        except (TypeError, ValueError, OverflowError):
            counts = np.empty(0)
        if counts.ndim != 1 or not len(counts) or not (np.abs(counts) < LARGEST_COUNT).all():
            raise InvalidParameter(
                "like must be a public Histogram, a Release with counts, or counts below 2^62"
            )
        return cls._sorted(counts)

    @classmethod
    def _sorted(cls, counts: Array) -> Shape:
        """Return the shape of counts in any order; negative ones count as 0."""
        return cls(
            np.sort(np.maximum(np.asarray(counts, dtype=np.float64), 0.0))[::-1][:MOST_COUNTS]
        )

    @cached_property
    def _standard(self) -> StandardNoise:
        """Return the standard noise with which all designs are simulated."""
        return StandardNoise(len(self.counts))

    def gap(self, k: int) -> float:
        """Return how far the counts of the ranks k and 2k are apart."""
        first, second = np.append(self.counts, np.zeros(2 * k))[
            [min(k, len(self.counts)) - 1, 2 * k - 1]
        ]
        return float(first - second)

    def outcome(
        self,
        mechanisms: tuple[Any, ...],
        k: int,
        sensitivity: Sensitivity,
        counted: bool,
        draws: int = BLOCK_DRAWS,
    ) -> Outcome:
        """Return estimates of a design's results on these counts, from a simulation with fixed
        seeds.

        Args:
            mechanisms: those of the design, in the order in which they run.
            k: how many labels are asked for.
            sensitivity: that of the histogram.
            counted: whether the answer shows counts.
            draws: how many draws are made at least.
        """
        counting = mechanisms[1] if counted and len(mechanisms) > 1 else None
        open_ended = len(mechanisms) > 1 and mechanisms[0].open_ended
        selection = mechanisms if open_ended else mechanisms[:1]
        chosen, values = self._select(selection, k, sensitivity, -(-draws // BLOCK_DRAWS))
        shown = chosen >= 0
        true = np.where(shown, np.append(self.counts, 0.0)[chosen], 0.0)
        top = self.counts[:k]
        rows = shown.sum(axis=1)
        hits = ((chosen < len(top)) & shown).sum(axis=1)
        missed = np.maximum(top.sum() - true.sum(axis=1), 0.0) / k
        squares = np.zeros(len(chosen))
        if counting is not None and not open_ended:
            squares = counting.recount_error(
                true, shown, SimulationInput(k, self.counts, sensitivity, self._standard)
            )
        elif counted:
            squares = np.where(shown, (np.where(shown, values, 0.0) - true) ** 2, 0.0).sum(axis=1)
        return _averages(squares, rows, missed, hits / max(len(top), 1))

    def _select(
        self, mechanisms: tuple[Any, ...], k: int, sensitivity: Sensitivity, blocks: int
    ) -> tuple[Array, Array]:
        """Return for each draw the ranks of the chosen labels (-1: none), and their noisy counts,
        shape (draws, k) both.

        Args:
            mechanisms: those that select; the second shows counts of what the first one finds.
            k: how many labels are asked for.
            sensitivity: that of the histogram.
            blocks: how many blocks of BLOCK_DRAWS draws are made.
        """
        key = (mechanisms, k, sensitivity)
        if key not in self._seen:
            first, *counting = mechanisms
            scene = SimulationInput(k, self.counts, sensitivity, self._standard)
            noise = [one.float_noise(scene, len(self.counts)) for one in counting]
            self._seen[key] = (first.simulate(replace(scene, shown_by=next(iter(noise), None))), [])
        draw, found = self._seen[key]
        found += [draw(number) for number in range(len(found), blocks)]
        chosen, values = zip(*found[:blocks], strict=True)
        return np.concatenate(chosen), np.concatenate(values)


def _averages(squares: Array, rows: Array, missed: Array, recall: Array) -> Outcome:
    """Return the averages over draws.

    Args:
        squares: of each draw the sum of the squared errors of the counts shown, shape (draws,).
        rows: how many labels it shows, shape (draws,).
        missed: as ``Outcome`` has it, shape (draws,).
        recall: as ``Outcome`` has it, shape (draws,).
    """
    error = math.sqrt(squares.sum() / max(rows.sum(), 1))
    sign = -1 if rows.mean() >= 1 else 1
    # What each draw adds to the loss, to the first order.
    influence = missed + (squares + sign * error**2 * rows) / max(
        2 * error * max(rows.mean(), 1), 1e-12
    )
    deviation = float(influence.std() / math.sqrt(len(squares)))
    return Outcome(error, float(missed.mean()), float(recall.mean()), float(rows.mean()), deviation)


def _continued(top: Array) -> Array:
    """Return the counts of a top k, and of the ranks below it up to 10 k + 100, which follow the
    power law through ranks k/2 and k.
    """
    k = len(top)
    half = max(k // 2, 1)
    last = max(top[-1], 0.5)
    if k > half:
        exponent = math.log(max(top[half - 1], last) / last) / math.log(k / half)
    else:
        exponent = 1.0
    lower_counts = last * (k / np.arange(k + 1, 10 * k + 101)) ** max(exponent, 0.1)
    return np.concatenate([top, lower_counts])
