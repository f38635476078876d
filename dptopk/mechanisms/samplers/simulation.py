"""Vectorised simulation, in floating point, of selections from known counts: for plans, never for
releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.samplers.level_set_sampling import Answers
from dptopk.mechanisms.samplers.random import Array, random_bits

if TYPE_CHECKING:
    from dptopk.release.release import Release

# Takes the number of a block of draws; returns the ranks of the labels chosen in each draw (-1:
# none) and their noisy counts, both of shape (BLOCK_DRAWS, k).
Draw = Callable[[int], tuple[Array, Array]]
# Takes the number of a block of draws; returns the noise on all counts, and last on the floor, in
# each draw: shape (BLOCK_DRAWS, labels + 1).
Noise = Callable[[int], Array]

BLOCK_DRAWS = 64
# Slacks of whole answers are rounded up to one of this many values.
MOST_SLACKS = 8192
# Slacks with a weight below e^-40 are left out.
NEGLIGIBLE_EXPONENT = 40.0


class StandardNoise:
    """Seeded standard noise that is the same for every design, so that designs are compared on the
    same draws. It is drawn in blocks of BLOCK_DRAWS draws, which are numbered from 0.

    Args:
        labels: how many counts are noised; blocks have one more column, for the floor.
        of: a purpose; noise of different purposes is independent.
    """

    #: The kinds of noise, named as the methods of NumPy's generator that draw them. A seed contains
    #: the place of the kind in this list, so that a new one has to be appended.
    kinds = ("normal", "laplace", "exponential", "gumbel", "uniform")

    def __init__(self, labels: int, of: str = "") -> None:
        self._purpose = tuple(of.encode())
        self._shape = (BLOCK_DRAWS, labels + 1)
        # The noise of the first block, by its kind: that is the block which every design draws.
        self._first_blocks: dict[str, Array] = {}
        # Noise of ``noise_of_measurement``, by kind, number of counts and number of the block.
        self._measurements: dict[tuple[str, int, int], Array] = {}

    def block(self, kind: str, number: int) -> Array:
        """Return the noise of a block of draws, float64, shape (BLOCK_DRAWS, labels + 1).

        Args:
            kind: "normal", "exponential", "gumbel" or "uniform"; Laplace noise comes from
                ``exponential_pairs``.
            number: that of the block, from 0; the same block has the same noise each time.
        """
        if number == 0 and kind in self._first_blocks:
            return self._first_blocks[kind]
        noise: Array = getattr(self._generator(kind, number), kind)(size=self._shape)
        if number == 0:
            self._first_blocks[kind] = noise
        return noise

    def exponential_pairs(self, number: int) -> Array:
        """Return two exponential variables of scale 1 for each count of a block of draws, float64,
        shape (2, BLOCK_DRAWS, labels + 1).

        The difference of the two is Laplace noise; if both are scaled and then rounded down, it is
        discrete Laplace noise. ``number`` is that of the block, as for ``block``.
        """
        kind = "laplace"
        if number == 0 and kind in self._first_blocks:
            return self._first_blocks[kind]
        pairs: Array = self._generator(kind, number).exponential(size=(2, *self._shape))
        if number == 0:
            self._first_blocks[kind] = pairs
        return pairs

    def _generator(self, kind: str, number: int) -> np.random.Generator:
        """Return the generator that draws a block of one of ``kinds``, always in the same state."""
        return np.random.default_rng([self.kinds.index(kind), number, *self._purpose])

    def noise_of_measurement(self, kind: str, k: int, draw: int) -> Array:
        """Return noise of variance 1 on k counts, and last a value for noise that all counts
        share; float64, shape (k + 1,).

        Args:
            kind: "normal" or "laplace".
            k: how many counts there are.
            draw: the number of the draw, from 0; the same draw has the same noise each time.
        """
        number, row = divmod(draw, BLOCK_DRAWS)
        if (kind, k, number) not in self._measurements:
            rng = np.random.default_rng([k, number])
            # NumPy draws Laplace noise of scale 1, hence of variance 2.
            deviation = math.sqrt(2) if kind == "laplace" else 1.0
            drawn: Array = getattr(rng, kind)(size=(BLOCK_DRAWS, k + 1))
            self._measurements[kind, k, number] = drawn / deviation
        noise: Array = self._measurements[kind, k, number][row]
        return noise


@dataclass(frozen=True, eq=False)
class SimulationInput:
    """The public counts and sizes on which a mechanism is simulated.

    Attributes:
        k: how many labels are asked for.
        counts: in falling order, float64, shape (n,).
        sensitivity: how far one user moves the counts.
        standard: standard noise, the same for all designs.
        shown_by: for a mechanism that may show more than k labels: the noise on their counts, by
            which the k largest are chosen; None if their counts are not released.
    """

    k: int
    counts: Array
    sensitivity: Sensitivity
    standard: StandardNoise
    shown_by: Noise | None = None

    @cached_property
    def histogram(self) -> Histogram:
        """Return the counts, rounded to integers, as a histogram of a public domain; its labels
        are the ranks from 0.
        """
        counts = np.rint(self.counts).astype(np.int64)
        return Histogram(None, counts, sensitivity=self.sensitivity, domain="public")

    def noise(self, kind: str, scale: float) -> Noise:
        """Return the noise of ``StandardNoise.block`` times a scale in counts, as a function of
        the number of a block of draws.
        """
        return lambda number: self.standard.block(kind, number) * scale


def generator_of_block(purpose: str, number: int) -> np.random.Generator:
    """Return a generator for a block of draws that is independent for each purpose, so that a
    random choice does not depend on the noise of the answer. The same arguments give the same
    draws.
    """
    # The 4 is arbitrary; another number would draw all predictions anew.
    return np.random.default_rng([4, *purpose.encode(), number])


def k_largest(values: Array, k: int) -> tuple[Array, Array]:
    """Return the ranks and values of the k largest values of each draw, the largest first; the
    rank is -1 where the value is -inf.

    Args:
        values: shape (draws, n), n at least 1.
        k: how many to choose; where it is more than n, all n are.

    Returns:
        The ranks, which are the places in ``values``, and the values, shape (draws, min(k, n)).
    """
    number = min(k, values.shape[1])
    unordered = np.argpartition(-values, number - 1, axis=1)[:, :number]
    # The order of selection, to which counts are fitted.
    order = np.argsort(-np.take_along_axis(values, unordered, axis=1), axis=1)
    chosen = np.take_along_axis(unordered, order, axis=1)
    chosen_values = np.take_along_axis(values, chosen, axis=1)
    return np.where(np.isfinite(chosen_values), chosen, -1), chosen_values


def noisy_largest(inputs: SimulationInput, noise: Noise) -> Draw:
    """Return the simulated selection of the k labels with the largest noisy counts."""
    labels = len(inputs.counts)

    def draw(number: int) -> tuple[Array, Array]:
        """Return the chosen ranks and their noisy counts for a block of draws."""
        drawn = noise(number)[:, :labels]
        return k_largest(inputs.counts + drawn, inputs.k)

    return draw


def largest_above(
    inputs: SimulationInput,
    noise: Noise,
    floor_rank: int | None,
    offset: int,
    at_threshold: float = 0.0,
) -> Draw:
    """Return the simulated selection of the k largest noisy counts of present labels that exceed
    the floor by more than an offset.

    Args:
        inputs: k and the counts.
        noise: the noise on the counts and, last, on the floor.
        floor_rank: the rank of the count that is the floor; None: the floor is 0, without noise.
        offset: how far above the floor the threshold is.
        at_threshold: the probability with which a count of exactly the threshold passes.
    """
    counts = inputs.counts
    slots = len(counts) if floor_rank is None else min(floor_rank - 1, len(counts))
    floor = counts[slots] if slots < len(counts) else 0.0
    present = counts[:slots] > 0

    def draw(number: int) -> tuple[Array, Array]:
        """Return the chosen ranks and their noisy counts for a block of draws."""
        drawn = noise(number)
        values = counts[:slots] + drawn[:, :slots]
        floor_noise = 0.0 if floor_rank is None else drawn[:, -1:]
        above = values - floor - floor_noise - offset
        passed = above > 0
        if at_threshold:
            coins = generator_of_block("at threshold", number).random(above.shape)
            passed |= (above == 0) & (coins < at_threshold)
        return k_largest(np.where(passed & present, values, -np.inf), inputs.k)

    return draw


class HistogramMechanism(Protocol):
    """A mechanism as far as simulations call it."""

    def release(self, histogram: Histogram, rng: np.random.Generator, /) -> Release:
        """Draw one answer from the histogram."""


def seeded_releases(mechanism: HistogramMechanism, inputs: SimulationInput) -> Draw:
    """Return simulated selections that are seeded releases of the mechanism itself, for a public
    domain of ranks.

    Args:
        mechanism: one that always releases k labels, and no counts.
        inputs: the histogram of ranks.
    """

    @lru_cache(maxsize=1)  # releases are slow, and a block may be asked for again
    def draw(number: int) -> tuple[Array, Array]:
        """Return the released ranks, and zeros for counts, for a block of draws."""
        rng = generator_of_block("released", number)
        answers = [mechanism.release(inputs.histogram, rng) for _ in range(BLOCK_DRAWS)]
        chosen = np.array([answer.labels for answer in answers], dtype=np.int64)
        return chosen, np.zeros(chosen.shape)

    return draw


def draws_of_answers(answers: Answers, rate: float) -> Draw:
    """Return simulated draws of whole answers with probability about ∝ e^{-rate·gap}, where the gap
    of an answer, a whole number, says how much worse it is than the best one.

    As in ``level_set_sampling`` a slack is drawn first, and then one of the answers whose gap is at
    most the slack, uniformly; but here slacks are rounded up to one of about MOST_SLACKS values.

    Args:
        answers: the possible answers by their gaps.
        rate: what a gap is multiplied by; above 0.
    """
    ends, chances = _slack_blocks(answers, rate)

    def draw(number: int) -> tuple[Array, Array]:
        """Return the chosen ranks, and zeros for counts, for a block of draws."""
        rng = generator_of_block("at once", number)
        bits = random_bits(rng)
        slacks = rng.choice(ends, size=BLOCK_DRAWS, p=chances)
        chosen = np.array([answers.draw(int(slack), bits) for slack in slacks])
        return chosen, np.zeros(chosen.shape)

    return draw


def _slack_blocks(answers: Answers, rate: float) -> tuple[Array, Array]:
    """Cut the slacks into blocks of successive ones; return the last slack of each block, and the
    probability of the block, shape (n,) both, the latter summing to 1.

    A slack g has a weight of N(g) e^{-rate·g}, where N(g) is the number of answers with a gap of
    at most g. A block first..last has N(last) times the sum of e^{-rate·g} over its slacks, as if
    all of them were rounded up to ``last``.

    Args:
        answers: the possible answers by their gaps.
        rate: what a gap is multiplied by; above 0.
    """
    lowest = answers.lowest
    (log_answers,) = answers.log_size(np.array([answers.highest])).tolist()
    # However many answers there are, slacks from here on have a weight below e^-40.
    farthest = lowest + int((log_answers + NEGLIGIBLE_EXPONENT) / rate) + 1
    last_slack = min(answers.highest, farthest)
    evenly_spaced = np.linspace(lowest, last_slack, MOST_SLACKS).astype(np.int64)
    # A block ends at a slack of -1 too: up to it only the best answer fits.
    ends = np.unique(np.concatenate([evenly_spaced, [min(-1, last_slack)]]))
    ends = ends[ends >= lowest]
    firsts = np.concatenate([[lowest], ends[:-1] + 1])
    # But for a constant the sum of e^{-rate·g} over first..last is e^{-rate·first} times the share
    # 1 - e^{-rate·(last - first + 1)}, which is 1 for the last block, as that has no end.
    with np.errstate(divide="ignore"):
        log_share = np.log(-np.expm1(-rate * (ends - firsts + 1)))
    log_share[-1] = 0.0
    log_weights = answers.log_size(ends) - rate * (firsts - lowest) + log_share
    weights = np.exp(log_weights - log_weights.max())
    return ends, weights / weights.sum()
