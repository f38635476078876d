"""The joint exponential mechanism: k labels in order, drawn as one answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dptopk._internal.rounding import smaller_of
from dptopk.costs import BoundedRange
from dptopk.histogram.histogram import Histogram
from dptopk.mechanisms.joint_selection import JointSelection
from dptopk.mechanisms.samplers.level_set_sampling import Ranked, draw_answer, uniform_distinct
from dptopk.mechanisms.samplers.random import Bits
from dptopk.mechanisms.samplers.simulation import Draw, Scene, at_once


@dataclass(frozen=True, kw_only=True)
class JointTopK(JointSelection):
    """k labels in order, drawn at once: P(s) ∝ exp(-epsilon·gap(s) / (2·linf)), gap(s) = max_i (h_(i) - h_{s_i}).

    Charge: 1 × BoundedRange(epsilon). Neighbours: add or remove one user, who moves counts in one direction by at most
    linf each; l0 does not matter. The one best sequence has, instead of the gap 0 of the paper, minus the smallest
    difference between successive counts among the k + 1 largest: more accurate at the same price.

    Args:
        k: how many labels, at least 1.
        epsilon: ε of the whole answer.

    Source: Gillenwater-Joseph-Muñoz-Ribero 2022; the range 2·linf and the best sequence: docs/notes/mechanisms.md,
    "Whole answers"; the sampler, beside that of Wu-Zhang 2024: docs/notes/exact-sampling.md.

    >>> from dptopk import Sensitivity
    >>> print(JointTopK(k=10, epsilon=0.5).charge(Sensitivity()))
    BR(0.5)
    """

    cost: ClassVar[type[BoundedRange]] = BoundedRange

    def simulate(self, scene: Scene) -> Draw:
        """By its own draws, of slacks that are rounded."""
        answers = Sequences(Ranked(scene.histogram.counts, 0), self.k)
        return at_once(answers, self.epsilon / (2 * scene.sensitivity.linf))

    def rows(self, histogram: Histogram, bits: Bits) -> list[int]:
        """Draw k rows, the best first."""
        ranked = Ranked(histogram.counts, histogram.absent)
        rate = smaller_of(self.epsilon) / (2 * histogram.sensitivity.linf)
        return ranked.rows(draw_answer(Sequences(ranked, self.k), rate, bits))


class Sequences:
    """Sequences of k ranks and their gaps.

    A sequence has a gap of at most g >= 0 when its i-th rank is among the n_i(g) labels whose counts are at least
    h_(i) - g. These sets grow with i, so there are Π (n_i - (i - 1)) such sequences.
    """

    def __init__(self, ranked: Ranked, k: int) -> None:
        top = ranked.top(min(k + 1, ranked.size))
        self._ranked = ranked
        self._top = top[:k]
        steps = top[:-1] - top[1:]
        self.lowest = -int(steps.min()) if steps.size else 0
        self.highest = int(top[0]) - ranked.count(ranked.size - 1)

    def _within(self, slack: int) -> list[int]:
        if slack < 0:
            return list(range(1, self._top.size + 1))
        return self._ranked.at_least(self._top - slack).tolist()

    def size(self, slack: int) -> int:
        """Return the exact number of sequences with a gap of at most ``slack``."""
        return math.prod(end - place for place, end in enumerate(self._within(slack)))

    def log_size(self, slacks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The logarithm of that, about right."""
        ends = self._ranked.at_least(self._top - np.maximum(slacks, 0)[:, None])
        logs: npt.NDArray[np.float64] = np.log(ends - np.arange(self._top.size)).sum(axis=1)
        return np.where(slacks < 0, 0.0, logs)

    def draw(self, slack: int, bits: Bits) -> list[int]:
        """One of them, uniformly."""
        return uniform_distinct(0, self._within(slack), bits)

    def gap(self, answer: list[int]) -> int:
        """The largest shortfall of a place; for the one best sequence, minus its smallest step."""
        shortfall = max(int(best) - self._ranked.count(rank) for best, rank in zip(self._top, answer, strict=True))
        return shortfall if shortfall > 0 else self.lowest  # where several are best, lowest is 0
