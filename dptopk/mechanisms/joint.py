"""The joint exponential mechanism: k labels in order, drawn as one answer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptopk.mechanisms.joint_selection import JointExponential
from dptopk.mechanisms.samplers.level_set_sampling import Ranked, uniform_distinct
from dptopk.mechanisms.samplers.random import Bits, Floats, Ints


class Sequences:
    """The sequences of k ranks and their gaps: the largest h_(i) - h_{s_i} over the places i, where
    h_(i) is the i-th largest count and h_{s_i} that of the rank which the sequence has in place i.

    A sequence s has a gap of at most g >= 0 when its i-th rank is among the n_i(g) labels whose
    counts are at least h_(i) - g. These sets grow with i, so there are Π (n_i - (i - 1)) such
    sequences.

    Args:
        ranked: the counts by rank, from 0.
        k: how many ranks a sequence has.

    Attributes:
        lowest: the gap of the best sequence, the ranks 0 to k - 1: minus the least difference of
            successive counts among the top k + 1, so below 0 where it is the only best one.
        highest: the largest gap.
    """

    def __init__(self, ranked: Ranked, k: int) -> None:
        top = ranked.top(min(k + 1, ranked.size))
        self._ranked = ranked
        self._top = top[:k]
        steps = top[:-1] - top[1:]
        self.lowest = -int(steps.min()) if steps.size else 0
        self.highest = int(top[0]) - ranked.count(ranked.size - 1)

    def _candidates_of_places(self, slack: int) -> list[int]:
        """Return n_1, ..., n_k: how many ranks each place can have at a gap of at most
        ``slack``.
        """
        if slack < 0:  # of the best sequence alone, in which place i has the i-th rank
            return list(range(1, self._top.size + 1))
        return self._ranked.number_at_least(self._top - slack).tolist()

    def size(self, slack: int) -> int:
        """Return the exact number of sequences with a gap of at most ``slack``, which is at least
        ``lowest``.
        """
        # Of the candidates of a place, which contain those of the places before it, each of these
        # places has taken one.
        candidates = enumerate(self._candidates_of_places(slack))
        return math.prod(number - places_before for places_before, number in candidates)

    def log_size(self, slacks: Ints) -> Floats:
        """Return the logarithm of ``size`` for each slack, in floating point, shape of
        ``slacks``.
        """
        candidates = self._ranked.number_at_least(self._top - np.maximum(slacks, 0)[:, None])
        choices_by_place = candidates - np.arange(self._top.size)
        logs: Floats = np.log(choices_by_place).sum(axis=1)
        return np.where(slacks < 0, 0.0, logs)  # below 0 there is one sequence

    def draw(self, slack: int, bits: Bits) -> list[int]:
        """Draw one of the sequences with a gap of at most ``slack``, uniformly."""
        return uniform_distinct(0, self._candidates_of_places(slack), bits)

    def gap(self, answer: list[int]) -> int:
        """Return the largest shortfall h_(i) - h_{s_i} of a place; where there is none, which is so
        for the best sequences alone, ``lowest``.
        """
        places = zip(self._top.tolist(), answer, strict=True)
        shortfall = max(best - self._ranked.count(rank) for best, rank in places)
        if shortfall > 0:
            return shortfall
        return self.lowest  # where several sequences are best, ``lowest`` is 0


@dataclass(frozen=True, kw_only=True)
class JointTopK(JointExponential):
    """k labels in order, drawn at once: P(s) ∝ exp(-epsilon·gap(s) / (2·linf)), gap(s) = max_i
    (h_(i) - h_{s_i}).

    Charge: 1 × BoundedRange(epsilon). Neighbours: add or remove one user, who moves counts in one
    direction by at most linf each; l0 does not matter. The one best sequence has, instead of the
    gap 0 of the paper, minus the smallest difference between successive counts among the k + 1
    largest: more accurate at the same price.

    Args:
        k: how many labels, at least 1.
        epsilon: ε of the whole answer.

    Source: Gillenwater-Joseph-Muñoz-Ribero 2022; the range 2·linf and the best sequence:
    docs/notes/mechanisms.md, "Whole answers"; the sampler, beside that of Wu-Zhang 2024:
    docs/notes/exact-sampling.md.

    >>> from dptopk import Sensitivity
    >>> print(JointTopK(k=10, epsilon=0.5).charge(Sensitivity()))
    BR(0.5)
    """

    answers = Sequences
