"""Counts to plan for, public or already released, and the results of designs on them, by
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
# A shape is cut to this many of its largest counts; smaller ones seldom come into the top k. Chosen
# by hand, for the time of simulations.
MOST_COUNTS = 5000
# An answer's counts are continued up to the rank 10 k + 100: lower ones seldom come into the top k.
RANKS_TIMES_K = 10
MORE_RANKS = 100
# A last count below 1/2 counts as this in a continuation, since 0 would have no logarithm.
SMALLEST_LAST = 0.5
# Counts that fall by less than this power of the rank in the answer fall by it afterwards; by hand.
LEAST_EXPONENT = 0.1


@dataclass(frozen=True)
class Outcome:
    """Estimated results of a design on a shape, averaged over simulated draws.

    Attributes:
        error: root mean square error of the counts that are shown; 0 where none are.
        missed: what the true top k hold more than the labels that are shown, per label asked for; a
            row that stays empty misses all of its count.
        recall: share of the true top k among the labels shown.
        rows: how many labels are shown.
        deviation: standard error of a simulated loss, from the number of draws; 0 in closed form.
        mixed: the mean of the losses on several shapes, as ``Mixture`` takes it; None for one
            shape.
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


@dataclass(frozen=True)
class _Simulation:
    """The simulated answers of a design, which are drawn in blocks as more of them are needed.

    Attributes:
        draw_block: returns the block of a number: ranks and values, shape (BLOCK_DRAWS, k) both.
        blocks: those that were drawn, from number 0 on.
    """

    draw_block: Draw
    blocks: list[tuple[Array, Array]] = field(default_factory=list)

    def first_blocks(self, number: int) -> list[tuple[Array, Array]]:
        """Return the first ``number`` blocks; those that are missing are drawn."""
        missing = range(len(self.blocks), number)
        self.blocks.extend(self.draw_block(block) for block in missing)
        return self.blocks[:number]


@dataclass(frozen=True, eq=False)
class Shape:
    """Counts in falling order.

    Attributes:
        counts: float64, shape (n,).
    """

    counts: Array
    # The simulations so far, by a design's selecting mechanisms, k and sensitivity.
    _simulations: dict[Any, _Simulation] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # The blocks are left out: they are drawn again from the same seeds.
        return Shape, (self.counts,)

    @classmethod
    def of(cls, like: Any) -> Shape:
        """Return the shape of public counts, or of an answer that was released before.

        Args:
            like: a Histogram with a public domain, a Release with counts, or a sequence of counts.
                A Release shows only its top: ranks below it are continued by the power law through
                its middle and last rank.

        Raises:
            InvalidParameter: for a private histogram, whose counts a plan must not depend on, for a
                Release without counts, and for what is no sequence of counts.
        """
        if isinstance(like, Histogram):
            if like.domain != "public":
                raise InvalidParameter(
                    "like: a private histogram must not shape a plan; give released or public ones"
                )
            return cls._from_counts(like.counts)
        if isinstance(like, Release):
            if like.counts is None or len(like) == 0:
                raise InvalidParameter("like: this release has no counts")
            top = np.sort(np.maximum(like.counts, 0.0))[::-1]
            return cls._from_counts(_top_and_lower_ranks(top))
        try:
            array = np.asarray(like)
            # Bools, whole numbers, floats and Python's objects; no text, times or complex numbers.
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
        return cls._from_counts(counts)

    @classmethod
    def _from_counts(cls, counts: Array) -> Shape:
        """Return the shape of counts in any order; negative ones count as 0."""
        not_negative = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
        falling = np.sort(not_negative)[::-1]
        return cls(falling[:MOST_COUNTS])

    @cached_property
    def _standard_noise(self) -> StandardNoise:
        """Return the standard noise with which all designs are simulated."""
        return StandardNoise(len(self.counts))

    def gap(self, k: int) -> float:
        """Return how far the counts of the ranks k and 2k are apart; a shape of fewer than k counts
        has its last one for that of rank k.
        """
        padded = np.append(self.counts, np.zeros(2 * k))
        of_rank_k = padded[min(k, len(self.counts)) - 1]
        of_rank_2k = padded[2 * k - 1]
        return float(of_rank_k - of_rank_2k)

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
            draws: how many answers are simulated at least.
        """
        counted_again = len(mechanisms) > 1
        # The counts after coins choose the k that are shown, so that both are simulated together.
        together = counted_again and mechanisms[0].open_ended
        selection = mechanisms if together else mechanisms[:1]
        ranks, values = self._simulated_answers(selection, k, sensitivity, draws)
        shown = ranks >= 0  # a rank of -1 is no label
        true_counts = np.append(self.counts, 0.0)[ranks]  # 0 where no label was chosen
        top = self.counts[:k]
        missed = np.maximum(top.sum() - true_counts.sum(axis=1), 0.0) / k
        hits = ((ranks < len(top)) & shown).sum(axis=1)
        # Of each simulated answer the sum of the squared errors of its counts.
        squares = np.zeros(len(ranks))
        if counted and counted_again and not together:
            simulation = SimulationInput(k, self.counts, sensitivity, self._standard_noise)
            squares = mechanisms[1].recount_error(true_counts, shown, simulation)
        elif counted:
            squares = ((np.where(shown, values, 0.0) - true_counts) ** 2).sum(axis=1)
        return _averaged_outcome(squares, shown.sum(axis=1), missed, hits / max(len(top), 1))

    def _simulated_answers(
        self, mechanisms: tuple[Any, ...], k: int, sensitivity: Sensitivity, draws: int
    ) -> tuple[Array, Array]:
        """Return for each draw the ranks of the chosen labels, from 0 on (-1: none), and their
        noisy counts, shape (draws, k) both.

        Args:
            mechanisms: those that select; the second shows counts of what the first one finds.
            k: how many labels are asked for.
            sensitivity: that of the histogram.
            draws: how many answers are simulated at least; their number is a multiple of
                BLOCK_DRAWS.
        """
        blocks = -(-draws // BLOCK_DRAWS)  # rounded up
        key = (mechanisms, k, sensitivity)
        if key not in self._simulations:
            first, *counting = mechanisms
            simulation = SimulationInput(k, self.counts, sensitivity, self._standard_noise)
            if counting:
                noise = counting[0].float_noise(simulation, len(self.counts))
                simulation = replace(simulation, shown_by=noise)
            self._simulations[key] = _Simulation(first.simulate(simulation))
        ranks, values = zip(*self._simulations[key].first_blocks(blocks), strict=True)
        return np.concatenate(ranks), np.concatenate(values)


def _averaged_outcome(squares: Array, rows: Array, missed: Array, recall: Array) -> Outcome:
    """Return the outcome of a design: averages over simulated draws.

    Args:
        squares: of each draw the sum of the squared errors of the counts shown, shape (draws,).
        rows: how many labels it shows, shape (draws,).
        missed: as ``Outcome`` has it, shape (draws,).
        recall: as ``Outcome`` has it, shape (draws,).
    """
    error = math.sqrt(squares.sum() / max(rows.sum(), 1))
    # What each draw adds to the loss, to the first order: s and r are its squares and rows, S and R
    # the means of these, and ``error`` is √(S/R). Where R >= 1 the loss has √(S/R), of derivative
    # (s - rS/R) / (2R√(S/R)) in the direction (s, r); where R < 1 it has R·√(S/R) = √(SR), of
    # derivative (s + rS/R) / (2√(S/R)).
    mean_rows = rows.mean()
    sign = -1 if mean_rows >= 1 else 1
    # Without any error there is nothing to divide: 0/1e-12.
    divisor = max(2 * error * max(mean_rows, 1), 1e-12)
    influence = missed + (squares + sign * error**2 * rows) / divisor
    deviation = float(influence.std() / math.sqrt(len(squares)))
    return Outcome(error, float(missed.mean()), float(recall.mean()), float(mean_rows), deviation)


def _top_and_lower_ranks(top: Array) -> Array:
    """Return the counts of a top k, followed by those of the lower ranks, which continue the power
    law through the ranks k/2 and k.

    Args:
        top: the k counts in falling order, not negative, shape (k,).
    """
    k = len(top)
    half = max(k // 2, 1)
    last = max(top[-1], SMALLEST_LAST)
    if k > half:
        exponent = math.log(max(top[half - 1], last) / last) / math.log(k / half)
    else:
        exponent = 1.0  # one count tells no exponent: 1/rank is common
    lower_ranks = np.arange(k + 1, RANKS_TIMES_K * k + MORE_RANKS + 1)
    lower_counts = last * (k / lower_ranks) ** max(exponent, LEAST_EXPONENT)
    return np.concatenate([top, lower_counts])
