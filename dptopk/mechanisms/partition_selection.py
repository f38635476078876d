"""Private selection of labels without counts: one coin per label, with the largest probability its
count allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.rounding import round_down, smaller_of
from dptopk.accounting.renyi.best_coin import best_coin
from dptopk.accounting.renyi.coin_chances import CHANCE_ROUNDING, Chances, coin_chances
from dptopk.costs import ApproxDP, Charge, LabelCoinsDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.mechanism import LabelsOnly, finite_l0
from dptopk.mechanisms.public_selection import NOTE_OF_A_SET, in_label_order
from dptopk.mechanisms.samplers.exact import bernoulli
from dptopk.mechanisms.samplers.random import Array, Bits, Bools, Ints, random_bits
from dptopk.mechanisms.samplers.simulation import (
    BLOCK_DRAWS,
    Draw,
    SimulationInput,
    generator_of_block,
)
from dptopk.mechanisms.thresholds import FromData
from dptopk.release.release import Release

# Parts of a smaller δ would be subnormal floats, whose rounding is no small share of them.
LEAST_DELTA = 1e-300


@dataclass(frozen=True, kw_only=True)
class PartitionSelection(FromData, LabelsOnly):
    """The set of labels that many users have: a biased coin for each present label decides whether
    it is shown; needs the whole histogram.

    It releases no counts and no order, so that more labels appear. A label with τ users or less is
    shown with the chance q, and every τ more raise its chance as far as (epsilon, delta) allows.
    Charge: ApproxDP(epsilon, delta) for l0 = 1, where this coin is optimal; else one LabelCoinsDP,
    which composes to at most (epsilon, delta). l0 must be finite. Neighbours: add or
    remove one user. Whether the histogram is whole is a fact about how it was made, not one to be
    read off the data.

    Args:
        epsilon, delta: of the whole answer; delta in [1e-300, 1/2).

    Source: l0 = 1: Desfontaines et al. 2022, Theorem 1. l0 > 1: coins of one Rényi order
    (Harrison-Manurangsi 2026), charged by a game over the levels of all labels of a user:
    docs/notes/partition-selection.md.

    >>> mechanism = PartitionSelection(epsilon=1.0, delta=1e-6)
    >>> [mechanism.appears_at(Sensitivity(l0=l0), probability=0.5) for l0 in (1, 5, 10)]
    [14, 38, 47]
    """

    epsilon: float
    delta: float
    open_ended = True
    noise_falls_with = ("epsilon",)

    def __post_init__(self) -> None:
        validate.parameters(self)
        if not LEAST_DELTA <= self.delta < 0.5:
            raise InvalidParameter(
                f"delta must be at least {LEAST_DELTA} and below 1/2, got {self.delta}"
            )

    def cost_of_coins(self, sensitivity: Sensitivity) -> LabelCoinsDP | None:
        """Return the cost of the coins of a user's l0 labels; None for l0 = 1, which has an
        optimal coin of its own that costs ApproxDP(epsilon, delta).

        Raises:
            InvalidParameter: when l0 is None, or no coin for l0 labels fits (epsilon, delta).
        """
        labels = finite_l0(sensitivity, "to show labels by coins")
        if labels > 1:
            return best_coin(self.epsilon, self.delta, labels)
        return None

    def chances(self, sensitivity: Sensitivity) -> Chances:
        """Return the chances to be shown and to be hidden for the levels 0, 1, ...; a label of
        count c has the level ⌈c/τ⌉, and the last level stands for all above it.

        Raises:
            InvalidParameter: as ``cost_of_coins`` does, or for a coin of too many levels.
        """
        coin = self.cost_of_coins(sensitivity)
        if coin is None:  # the optimal coin for one label has the Rényi order ∞, where ε bounds it
            epsilon = round_down(smaller_of(self.epsilon))
            chance_at_level_1 = self.delta * (1 - CHANCE_ROUNDING)
            return coin_chances(math.inf, epsilon, chance_at_level_1)
        return coin_chances(coin.order, coin.divergence, coin.first)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return one ApproxDP or one LabelCoinsDP; ``labels`` makes no difference because no
        counts are released.

        Raises:
            InvalidParameter: as ``cost_of_coins`` does.
        """
        self.chances(sensitivity)  # refuses a coin of too many levels
        coin = self.cost_of_coins(sensitivity)
        if coin is None:
            return Charge({ApproxDP(self.epsilon, self.delta): 1})
        return Charge({coin: 1})

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = CONFIDENCE) -> int:
        """Return the smallest count at which a label is shown with at least this probability, in
        (0, 1).

        Raises:
            InvalidParameter: for a probability outside (0, 1), and as ``chances``.
        """
        probability = validate.probability(allow_zero=False, probability=probability)
        # The first level with such a chance; the last level is shown for certain.
        level = int(np.argmax(self.chances(sensitivity).shown >= probability))
        return (level - 1) * sensitivity.linf + 1

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the coins, and of the labels that they show select the k with the largest noisy
        counts, or any k if no counts are released.
        """
        counts = inputs.counts
        noise = inputs.shown_by
        true_counts = inputs.histogram.counts

        def draw(number: int) -> tuple[Array, Array]:
            """Return the chosen ranks, -1 for none, and the values by which they were chosen, for a
            block of draws.
            """
            rng = generator_of_block("tossed", number)
            bits = random_bits(rng)
            tosses = [
                self.toss_coins(inputs.sensitivity, true_counts, bits) for _ in range(BLOCK_DRAWS)
            ]
            shown = np.array(tosses)
            if noise is None:  # any k of the labels shown: those with the largest random numbers
                values = rng.random(shown.shape)
            else:
                values = counts + noise(number)[:, : len(counts)]
            values = np.where(shown, values, -np.inf)
            order = np.argsort(-values, axis=1)[:, : min(inputs.k, len(counts))]
            is_shown = np.take_along_axis(shown, order, axis=1)
            return np.where(is_shown, order, -1), np.take_along_axis(values, order, axis=1)

        return draw

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Release the labels that their coins show, in label order; there may be none.

        Args:
            histogram: rows with count 0 are not present and are ignored.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.

        Raises:
            InvalidParameter: when rows were cut off, or as ``cost_of_coins`` does, before anything
                is drawn.
        """
        present = self.slots(histogram)
        charge = self.charge(histogram.sensitivity)
        shown = self.toss_coins(histogram.sensitivity, present.counts, random_bits(rng))
        labels = in_label_order(tuple(present.labels[shown].tolist()))
        return Release.of_draw(
            histogram, rng, labels=labels, charge=charge, mechanism=self, note=NOTE_OF_A_SET
        )

    def toss_coins(self, sensitivity: Sensitivity, counts: Ints, bits: Bits) -> Bools:
        """Draw which labels are shown, given their counts; both have the shape (n,). The law is
        exact.

        Args:
            sensitivity: the histogram's.
            counts: true counts of the present labels, shape (n,).
            bits: the source of words.
        """
        chances = self.chances(sensitivity)
        last_level = len(chances.shown) - 1
        level = np.minimum(-(-counts // sensitivity.linf), last_level)  # ⌈c/τ⌉, or the last one
        # The rarer outcome is drawn, whose float is the more precise one.
        shown_is_likelier = chances.shown[level] > chances.hidden[level]
        rare_chance = np.where(shown_is_likelier, chances.hidden[level], chances.shown[level])
        is_rare = bernoulli(rare_chance, bits)
        return np.where(shown_is_likelier, ~is_rare, is_rare)
