"""Several shapes of counts at once, those that a private look leaves open or those of reference,
and the results of designs on them.

The loss of a design on a shape is predicted in closed form: each label is taken to be shown
independently of the others, if its noisy count is above the threshold and above the level that k
labels exceed on average.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from dptopk._internal.search import cross_each
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.planning.shape import Outcome, Shape

Array = np.ndarray[Any, Any]
# Neighbouring ranks are taken together, in about this many groups, as if they had the same count.
# Chosen by hand.
GROUPS = 40
# Levels are looked for within this many deviations of the noise.
FAR = 20.0
# Smaller ratios count as this, so that they have a logarithm.
LEAST_RATIO = 1e-300
# Deviations of noise, in counts, and rows shown count as at least this, so that quotients are
# finite.
LEAST_DEVIATION = 0.1
LEAST_ROWS = 1e-9
# A loss of x times that of the usual plan, with x > 1, counts x^CAUTION times as much: a plan made
# after a look should not lose much more than the plan without one on any likely shape. The power 2
# was measured beside 8 (docs/notes/utility.md, "Caution").
CAUTION = 2
LEAST_USUAL = 1e-3  # a usual loss below this counts as this, so that the quotient is finite
NORMAL_95 = 1.6449  # the quantile of the normal law at 95%
# The shapes of reference, which stand for the counts that nobody knows (docs/notes/utility.md):
# power laws by their first count and exponent; power laws by their count of rank k and exponent;
# and WIDTH times k labels of the count PLATEAU over counts of LOW.
POWERS = ((1e4, 0.5), (1e4, 1.0), (1e4, 1.5), (1e3, 1.5))
AROUND_K = ((300.0, 0.5), (300.0, 1.5))
PLATEAU = 500.0
WIDTH = 3
LOW = 50.0


@dataclass(frozen=True, eq=False)
class Mixture:
    """Several shapes of the counts by rank, of the same number of ranks and equally likely.

    Ranks are in groups; all ranks of a group are taken to have the same count.

    Attributes:
        edges: the last ranks of the groups, after a 0, int64, shape (groups + 1,): group i has the
            ranks from edges[i] + 1 to edges[i + 1].
        counts: the count of each rank of a group on each shape, float64, shape (shapes, groups).
        geometric: whether the mean of the losses on the shapes is the geometric one.
        usual: the loss on each shape of the plan that is made without knowing the shapes, float64,
            shape (shapes,); None: unknown. A loss of x > 1 times that counts x^CAUTION times as
            much.
    """

    edges: Array
    counts: Array
    geometric: bool = False
    usual: Array | None = None

    @classmethod
    def of(
        cls, k: int, length: int, shapes: Callable[[Array], Any], *, geometric: bool = False
    ) -> Mixture:
        """Return the mixture of shapes that are given as functions of the rank.

        Ranks where designs cut the histogram are groups of their own.

        Args:
            k: how many labels are asked for.
            length: how many ranks a shape has.
            shapes: the function from ranks, float64, shape (groups,), to their counts on each
                shape, shape (shapes, groups).
            geometric: as for the class.
        """
        # The ranks k + 1 and 2k + 1 are the floors of the top k and the top 2k; the plateau of
        # ``references`` ends at WIDTH·k.
        cuts = np.array([0, k, k + 1, 2 * k, 2 * k + 1, WIDTH * k, length - 1, length])
        geometric_edges = np.rint(np.geomspace(1, length, GROUPS)).astype(np.int64)
        edges = np.unique(np.append(geometric_edges, cuts))
        edges = edges[edges <= length]
        middles = (edges[:-1] + 1 + edges[1:]) / 2
        counts = np.asarray(shapes(middles), dtype=np.float64)
        return cls(edges, counts, geometric)

    def with_usual(
        self, mechanisms: tuple[Any, ...], k: int, sensitivity: Sensitivity, counted: bool
    ) -> Mixture:
        """Return the mixture with ``usual``: what these mechanisms would lose on each shape;
        arguments as for ``outcome``.
        """
        usual = self.outcome(mechanisms, k, sensitivity, counted)
        return replace(self, usual=usual.on_each)

    @cached_property
    def sizes(self) -> Array:
        """Return how many ranks each group has, shape (groups,)."""
        return np.diff(self.edges)

    def of_top(self, k: int) -> Array:
        """Return how many of the k first ranks are in each group, shape (groups,)."""
        return np.clip(k - self.edges[:-1], 0, self.sizes)

    def group_of(self, rank: int) -> int:
        """Return the index of the group that a rank, counted from 1, is in."""
        return int(np.searchsorted(self.edges, rank)) - 1

    def middle_of_k_and_next(self, counts: Array, k: int) -> Array:
        """Return the mean of the counts of rank k, which is a group of its own, and of the next
        group, shape (n, 1): near the level that k counts exceed.

        Args:
            counts: of each group, shape (n, groups).
            k: how many labels are asked for.
        """
        kth = self.group_of(k)
        mean: Array = counts[:, kth : kth + 2].mean(axis=1, keepdims=True)
        return mean

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Return each shape by itself, for simulations."""
        return tuple(Shape.of(np.repeat(counts, self.sizes)) for counts in self.counts)

    def outcome(
        self, mechanisms: tuple[Any, ...], k: int, sensitivity: Sensitivity, counted: bool
    ) -> Outcome:
        """Return estimates of a design's results, as means over the shapes: in closed form, or
        simulated where a selection depends on the gaps between counts.

        Args:
            mechanisms: those of the design, in the order in which they run.
            k: how many labels are asked for.
            sensitivity: that of the histogram.
            counted: whether the answer shows counts.
        """
        if _is_simulated(mechanisms, sensitivity):
            return self._simulated_outcome(mechanisms, k, sensitivity, counted)
        first = mechanisms[0]
        last = mechanisms[-1]
        # Which of the labels above the threshold are among the k is decided by the noise of the
        # first mechanism; coins alone have no order, so that what comes last decides.
        chooser = last if first.open_ended else first
        noise = chooser.selection_noise(sensitivity)
        median_lead = first.appears_at(sensitivity, probability=0.5)
        lead_of_95 = first.appears_at(sensitivity, probability=0.95)
        if median_lead is None:
            over_threshold = np.ones_like(self.counts)
        else:
            over_threshold = self._chances_over_threshold(first.floor_rank, median_lead, lead_of_95)
        noise_exceeds = partial(chooser.chance_to_exceed, sensitivity, noise)
        shown = self._chances_to_be_shown(over_threshold, noise, noise_exceeds, k)
        count_noise = last.count_noise(sensitivity, labels=k) if counted else 0.0
        return self._outcome_of_chances(shown, k, count_noise)

    def least_loss(
        self, mechanisms: tuple[Mechanism, ...], k: int, sensitivity: Sensitivity, counted: bool
    ) -> float:
        """Return a lower bound of the loss of ``outcome``, whatever labels are shown, in less time;
        0 where the outcome is simulated; arguments as for ``outcome``.

        Where r >= 1 rows are shown, the loss is at least the noise on a count. Where r < 1, it is
        at least r times that noise, plus the mean of the k largest counts less r/k times the
        largest one. This is linear in r, and so least at r = 0 or at r = 1, where it is at least
        the mean of the k largest counts, or the noise.
        """
        if not counted or _is_simulated(mechanisms, sensitivity):
            return 0.0
        count_noise = mechanisms[-1].count_noise(sensitivity, labels=k)
        if not count_noise:  # none is shown, or ε is absurdly large
            return 0.0
        mean_of_top = self.counts @ self.of_top(k) / k
        return self._mean_loss(np.minimum(count_noise, mean_of_top), spare=0.0)

    def _outcome_of_chances(self, shown: Array, k: int, count_noise: float) -> Outcome:
        """Return the mean outcome where labels are shown with these chances.

        Args:
            shown: the chance of each label to be shown, shape (shapes, groups).
            k: how many labels are asked for.
            count_noise: the standard deviation of the noise on a count; 0 where none is shown.
        """
        rows = shown @ self.sizes
        ranks_of_top = self.of_top(k)
        counts_of_top = self.counts @ ranks_of_top
        counts_shown = (shown * self.counts) @ self.sizes
        missed = np.maximum(counts_of_top - counts_shown, 0.0) / k
        recall = shown @ ranks_of_top / k
        return self._mean_outcome(np.full_like(rows, count_noise), missed, recall, rows)

    def _chances_over_threshold(
        self, floor_rank: int | None, median_lead: int, lead_of_95: int
    ) -> Array:
        """Return the chance of each label to be above the threshold, by a normal law through two
        leads, shape (shapes, groups).

        Args:
            floor_rank: the rank whose count is the floor; None: the floor is 0.
            median_lead: the least lead over the floor with which a count is shown with probability
                1/2 or more.
            lead_of_95: the same for a probability of 95%.
        """
        from scipy.special import ndtr

        floor = np.zeros((len(self.counts), 1))
        present = self.counts > 0
        if floor_rank is not None:
            # The group that has the rank; beyond the last one counts are 0.
            group = int(np.searchsorted(self.edges, floor_rank)) - 1
            if group < len(self.sizes):
                floor = self.counts[:, group : group + 1]
            present &= self.edges[1:] < floor_rank
        # A count is a whole number: the lead of probability 1/2 lies about half a count below the
        # least whole one that is shown with probability 1/2 or more.
        margin = self.counts - floor - median_lead + 0.5
        deviation = max((lead_of_95 - median_lead) / NORMAL_95, LEAST_DEVIATION)
        chances: Array = present * ndtr(margin / deviation)
        return chances

    def _chances_to_be_shown(
        self, over_threshold: Array, noise: float, exceeds: Callable[[Array], Array], k: int
    ) -> Array:
        """Return the chance of each label to be shown, shape (shapes, groups): to be above the
        threshold, and among the k largest.

        Args:
            over_threshold: the chance of each to be above the threshold, shape (shapes, groups).
            noise: the standard deviation of the noise by which the k largest are chosen; inf where
                the order does not depend on counts.
            exceeds: the function from gaps to the chance that the noise exceeds each.
            k: how many labels are asked for.
        """
        if math.isinf(noise):
            # Any k of those above the threshold are as likely as any others.
            rows_over_threshold = np.maximum(over_threshold @ self.sizes, LEAST_ROWS)
            share_shown = np.minimum(k / rows_over_threshold, 1.0)
            return over_threshold * share_shown[:, None]

        def shown_above(level: Array) -> Array:
            """Return the chance of each label to be shown where this level decides."""
            return np.minimum(over_threshold, exceeds(level - self.counts))

        def excess(level: Array) -> Array:
            """Return ln(labels shown / k), whose root is looked for, shape (shapes, 1)."""
            number = (shown_above(level) @ self.sizes)[:, None]
            return np.log(np.maximum(number / k, LEAST_RATIO))

        low = np.full((len(over_threshold), 1), -FAR * noise)
        # Where no more than k are above the threshold all of these are shown: a level far below all
        # counts decides.
        more_than_k = (over_threshold @ self.sizes)[:, None] > k
        start = np.where(more_than_k, self.middle_of_k_and_next(self.counts, k), low)
        high = np.where(more_than_k, self.counts[:, :1] + FAR * noise, low)
        # An absurdly large ε leaves no noise that a float can hold.
        scale = max(noise, LEAST_DEVIATION)
        shown: Array = shown_above(cross_each(excess, low, high, start, scale))
        return shown

    def _simulated_outcome(
        self, mechanisms: tuple[Any, ...], k: int, sensitivity: Sensitivity, counted: bool
    ) -> Outcome:
        """Return the same as ``outcome``, from a simulation on each shape; the arguments are those
        of ``outcome``.
        """
        outcomes = [shape.outcome(mechanisms, k, sensitivity, counted) for shape in self.shapes]
        values = [
            (outcome.error, outcome.missed, outcome.recall, outcome.rows) for outcome in outcomes
        ]
        return self._mean_outcome(*np.array(values).T)

    def _mean_outcome(self, error: Array, missed: Array, recall: Array, rows: Array) -> Outcome:
        """Return the means over the shapes of what ``Outcome`` has for one; the mean of the losses
        is ``mixed``.

        Args:
            error: root mean square error of a shown count, shape (shapes,).
            missed: the count missed per row, shape (shapes,).
            recall: the share of the true top k that is shown, shape (shapes,).
            rows: how many labels are shown, shape (shapes,).
        """
        on_each = np.minimum(rows, 1.0) * error + missed
        # Of labels alone less than one count is next to nothing: the geometric mean is taken of one
        # more than each loss.
        spare = 0.0 if error.any() else 1.0
        return Outcome(
            error=float(error.mean()),
            missed=float(missed.mean()),
            recall=float(recall.mean()),
            rows=float(rows.mean()),
            mixed=self._mean_loss(on_each, spare),
            on_each=on_each,
        )

    def _mean_loss(self, losses: Array, spare: float) -> float:
        """Return the mean of the losses on the shapes, each of which is first made larger where it
        exceeds ``usual``.

        Args:
            losses: on each shape, shape (shapes,).
            spare: added to each loss where the mean is geometric, and taken off that mean.
        """
        if self.usual is not None:
            excess = np.maximum(losses / np.maximum(self.usual, LEAST_USUAL), 1.0)
            losses = losses * excess**CAUTION
        if self.geometric:
            return float(np.exp(np.log(losses + spare).mean()) - spare)
        return float(losses.mean())


def _is_simulated(mechanisms: tuple[Mechanism, ...], sensitivity: Sensitivity) -> bool:
    """Return whether a design has to be simulated: which labels it shows depends on the gaps
    between all counts, so that there is no closed form.

    A mechanism says so by an infinite noise of its selection; coins have that too, but a closed
    form for what they show.
    """
    first = mechanisms[0]
    return math.isinf(first.selection_noise(sensitivity)) and not first.open_ended


@lru_cache(maxsize=16)
def references(k: int, length: int) -> Mixture:
    """Return the shapes of reference on ``length`` ranks, on which designs are compared without
    data, by the geometric mean of their losses.
    """

    def counts(rank: Array) -> list[Array]:
        """Return the counts of these ranks on each shape."""
        by_first_count = [first / rank**exponent for first, exponent in POWERS]
        by_kth_count = [at_k * (k / rank) ** exponent for at_k, exponent in AROUND_K]
        return [*by_first_count, *by_kth_count, np.where(rank <= WIDTH * k, PLATEAU, LOW)]

    return Mixture.of(k, length, counts, geometric=True)
