"""Counts of private labels with centred noise over a noisy floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Self

from dptopk._internal import validate
from dptopk.costs import Charge
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.centred import Centred
from dptopk.mechanisms.gaussian import KnownGaussian
from dptopk.mechanisms.laplace import KnownLaplace
from dptopk.mechanisms.mechanism import require_add_remove
from dptopk.mechanisms.samplers.random import Array, Bits
from dptopk.mechanisms.samplers.simulation import Draw, Noise, SimulationInput
from dptopk.mechanisms.thresholds import NoisyFloorMechanism


def slots_and_floor(sensitivity: Sensitivity) -> Sensitivity:
    """Return the sensitivity of the slots and the floor of a histogram: for linf > 1 the slot of a
    displaced label and the floor can share a move of linf, so that l0 + 1 values move.

    Raises:
        InvalidParameter: for other neighbours than add_remove, and for sums of weights.
    """
    l0 = require_add_remove(sensitivity).l0
    if l0 is None or sensitivity.linf == 1:
        return sensitivity
    return replace(sensitivity, l0=l0 + 1)


@dataclass(frozen=True, kw_only=True)
class UnknownCentred(NoisyFloorMechanism):
    """The d_bar largest counts + (Z_i + Y)/b, released if above h_(d_bar+1) + Z_0/b + Y/b + linf +
    c, strictly.

    All counts and the floor share one Y, so that it cancels in the comparison. Charge: the charge
    of Centred for d_bar + 1 counts, + δ; at the centre 1/2 that is d_bar + 1 pairs of Z and one of
    Y at linf, for any l0. Neighbours: add or remove one user.

    Args:
        d_bar: how many labels take part; a fixed number, not one that depends on the data.
        noise: KnownGaussian or KnownLaplace: the law of Z, as in Centred.
        delta: bounds the probability that a label is released that only one of two neighbours can
            release.
        common: the law of Y; None = the best ratio, as in Centred.
        centre: a/b, as in Centred; below 1/2 where a user touches few of d_bar + 1 labels.

    Source: docs/notes/centred.md, "Thresholds", with the slot lemma; on continuous noise
    Lebeda-Retschmeier 2025. The δ charged is the one asked for.

    >>> mechanism = UnknownCentred(d_bar=50, noise=KnownGaussian(sigma=30.0), delta=1e-6)
    >>> mechanism.threshold_offset(Sensitivity())
    118
    """

    d_bar: int
    noise: KnownGaussian | KnownLaplace
    delta: float
    common: KnownGaussian | KnownLaplace | None = None
    centre: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        validate.parameters(self)
        validate.assign(self, centre=self.counting.centre)

    @cached_property
    def counting(self) -> Centred:
        """Return the mechanism for known domains that has this noise."""
        return Centred(noise=self.noise, common=self.common, centre=self.centre)

    @property
    def divisor(self) -> int:
        """Return b of the centre a/b: the noise is drawn in steps of 1/b of a count."""
        return self.counting.centre.denominator

    def sensitivity_of_slots(self, sensitivity: Sensitivity) -> Sensitivity:
        """Return the sensitivity of the slots and the floor, as ``slots_and_floor``."""
        return slots_and_floor(sensitivity)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return the costs of Z for the slots and the floor and of Y, + δ; ``labels`` makes no
        difference.
        """
        self.threshold_offset(sensitivity)  # refuses what has no threshold
        charge_of_noise = self.counting.charge(
            self.sensitivity_of_slots(sensitivity), labels=self.d_bar + 1
        )
        return Charge.join(charge_of_noise, Charge(delta=self.delta))

    def noise_offset(self, sensitivity: Sensitivity, special: int) -> int:
        """Return the smallest integer c with P[max of ``special`` Z - the floor's Z > b·c] <=
        delta.
        """
        steps = self.noise.law(sensitivity).floor_offset(special, self.delta)
        return -(-steps // self.divisor)  # in counts, rounded up

    def threshold_tail(self, sensitivity: Sensitivity) -> Callable[[int], float]:
        """Return a function of c >= 0: an upper bound on the probability that a count which is c +
        1 above the threshold is not released.
        """
        law = self.noise.law(sensitivity)
        divisor = self.divisor
        # It is hidden if Z_0 - Z, in steps of 1/b, is at least b·(c + 1).
        return lambda c: law.difference(divisor * (c + 1) - 1)

    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Simulate Z/b alone; Y does not change what passes and is added afterwards."""
        separate_noise = self.noise.float_noise(inputs, labels)
        return lambda number: separate_noise(number) / self.divisor

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of the k labels with the largest noisy counts above the
        threshold, and their counts with one Y for all.
        """
        draw_by_own_noise = super().simulate(inputs)
        inputs_of_slots = replace(inputs, sensitivity=self.sensitivity_of_slots(inputs.sensitivity))
        common = self.counting.float_common(inputs_of_slots, self.floor_rank)

        def draw(number: int) -> tuple[Array, Array]:
            """Return the chosen ranks and their noisy counts for a block of draws."""
            chosen, values = draw_by_own_noise(number)
            return chosen, values + common(number)

        return draw

    def scaled(self, factor: float) -> Self:
        """Return the mechanism with both noises divided by ``factor``, as ``Mechanism.scaled``
        rounds them.
        """
        common = None if self.common is None else self.common.scaled(factor)
        return replace(self, noise=self.noise.scaled(factor), common=common)

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Array:
        """Draw Z for ``size`` counts, in steps of 1/b, int64, shape (size,).

        Args:
            sensitivity: the histogram's.
            size: how many counts get noise.
            bits: the source of words.
        """
        return self.noise.draw_noise(sensitivity, size, bits)

    def released_values(
        self, sensitivity: Sensitivity, counts: Array, noise: Array, bits: Bits
    ) -> Array:
        """Return the released values of the counts that passed, multiples of 1/b with one draw of
        Y for all, float64, shape (n,).

        Args:
            sensitivity: the histogram's.
            counts: true counts of the labels that passed, shape (n,).
            noise: their Z, in steps of 1/b.
            bits: the source of Y.
        """
        law = self.counting.common_noise(self.sensitivity_of_slots(sensitivity), self.d_bar + 1)
        return self.counting.noisy_counts(counts, noise + law.draw_noise(sensitivity, 1, bits))
