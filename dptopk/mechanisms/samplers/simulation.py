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
# Slacks less likely than e^-40 are left out.
LARGEST_SLACK = 40.0


class StandardNoise:
    """Seeded standard noise that is the same for every design, so that designs are compared on the
    same draws.

    Args:
        labels: how many counts are noised; blocks have one more column, for the floor.
        of: a purpose; noise of different purposes is independent.
    """

    kinds = ("normal", "laplace", "exponential", "gumbel", "uniform")

    def __init__(self, labels: int, of: str = "") -> None:
        self._purpose = tuple(of.encode())
        self._shape = (BLOCK_DRAWS, labels + 1)
        self._first: dict[str, Array] = {}
        self._measured: dict[tuple[str, int, int], Array] = {}

    def block(self, kind: str, number: int) -> Array:
        """Return the noise of a block of draws, float64, shape (BLOCK_DRAWS, labels + 1).

        For "laplace" it is a pair of such arrays of exponential variables, whose difference is
        Laplace noise.

        Args:
            kind: one of ``kinds``.
            number: that of the block, from 0; the same block has the same noise each time.
        """
        if number == 0 and kind in self._first:  # the block that every design draws is stored
            return self._first[kind]
        rng = np.random.default_rng([self.kinds.index(kind), number, *self._purpose])
        pair = kind == "laplace"
        if pair:
            noise: Array = rng.exponential(size=(2, *self._shape))
        else:
            # The other kinds are named as the generator's own methods.
            noise = getattr(rng, kind)(size=self._shape)
        if number == 0:
            self._first[kind] = noise
        return noise

    def noise_of_measurement(self, kind: str, k: int, draw: int) -> Array:
        """Return noise of variance 1 on k counts, and last a value for noise that all counts
        share; float64, shape (k + 1,). ``draw`` is the number of the draw.

        Args:
            kind: one of ``StandardNoise.kinds``.
            k: how many counts there are.
            draw: the number of the draw, from 0; the same draw has the same noise each time.
        """
        number, row = divmod(draw, BLOCK_DRAWS)
        if (kind, k, number) not in self._measured:
            rng = np.random.default_rng([k, number])
            scale = math.sqrt(2) if kind == "laplace" else 1.0  # the deviation of what is drawn
            drawn: Array = getattr(rng, kind)(size=(BLOCK_DRAWS, k + 1))
            self._measured[kind, k, number] = drawn / scale
        noise: Array = self._measured[kind, k, number][row]
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
        """Return standard noise of one of ``StandardNoise.kinds``, times a scale in counts."""
        return lambda number: self.standard.block(kind, number) * scale


def generator_of_block(purpose: str, number: int) -> np.random.Generator:
    """Return a generator for a block of draws that is independent for each purpose, so that a
    random choice does not depend on the noise of the answer.
    """
    # The 4 is arbitrary; another number would draw all predictions anew.
    return np.random.default_rng([4, *purpose.encode(), number])


def k_largest(values: Array, k: int) -> tuple[Array, Array]:
    """Return the ranks and values of the k largest values of each draw, the largest first; the
    rank is -1 where the value is -inf.

    Args:
        values: shape (draws, n).
        k: how many to choose.
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
    """Return simulated draws of whole answers with probability about ∝ e^{-rate·gap}.

    A slack and then an answer within it are drawn as in ``level_set_sampling``, but slacks are
    rounded up to one of MOST_SLACKS values.
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
    """Return the last slack of each block of slacks, and the probability of the block, shape (n,)
    both; every answer of a block is given the slack of its end.
    """
    low = answers.lowest
    high = answers.highest
    (log_answers,) = answers.log_size(np.array([high])).tolist()
    # However many answers there are, slacks from here on have a weight below e^-40.
    far = min(high, low + int((log_answers + LARGEST_SLACK) / rate) + 1)
    spread = np.linspace(low, far, MOST_SLACKS).astype(np.int64)
    # A slack of -1 is an end too: up to it only the best answer fits.
    ends = np.unique(np.concatenate([spread, [min(-1, far)]]))
    ends = ends[ends >= low]
    firsts = np.concatenate([[low], ends[:-1] + 1])
    with np.errstate(divide="ignore"):
        log_share = np.log(-np.expm1(-rate * (ends - firsts + 1)))
    log_share[-1] = 0.0  # the last block has no end
    log_weights = answers.log_size(ends) - rate * (firsts - low) + log_share
    chances = np.exp(log_weights - log_weights.max())
    return ends, chances / chances.sum()
