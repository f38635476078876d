"""Counts of private labels with box noise over a noisy floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dptopk.costs import Charge
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.box import Box, box_cost
from dptopk.mechanisms.samplers.random import Array, Bits
from dptopk.mechanisms.samplers.simulation import Noise, SimulationInput
from dptopk.mechanisms.thresholds import NoisyFloorMechanism, moving_slots


@dataclass(frozen=True, kw_only=True)
class UnknownBox(NoisyFloorMechanism):
    """The d_bar largest counts and h_(d_bar+1) + box noise; released if above the noisy floor by
    more than linf + c.

    Charge: the charge of Box for d_bar + 1 counts, + δ, for any l0. Neighbours: add or remove one
    user.

    Args:
        d_bar: how many labels take part; a fixed number, not one that depends on the data.
        epsilon: ε of all counts together.
        delta: bounds the probability that a label is released that only one of two neighbours can
            release.

    Source: docs/notes/box.md, with the slot lemma (docs/notes/mechanisms.md). The δ charged is the
    one asked for.

    >>> print(UnknownBox(d_bar=50, epsilon=1.0, delta=1e-6).threshold_offset(Sensitivity()))
    86
    """

    d_bar: int
    epsilon: float
    delta: float
    noise_falls_with = ("epsilon",)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return one cost for the d_bar slots and the floor, + δ; ``labels`` makes no difference
        because d_bar fixes the number of counts.

        For linf > 1 the slot of a displaced label and the floor share a move of linf, but box noise
        rounds the two shares to its steps separately, so that one count more than ``moving_slots``
        moves, at most all d_bar + 1.
        """
        self.threshold_offset(sensitivity)  # refuses what has no threshold
        counts = self.floor_rank  # the slots and the floor
        moved = moving_slots(sensitivity, self.d_bar)
        if sensitivity.linf > 1:
            moved = min(moved + 1, counts)
        return Charge({box_cost(self.epsilon, counts, moved): 1}, delta=self.delta)

    @cached_property
    def counting(self) -> Box:
        """Return the mechanism for known domains that has this noise."""
        return Box(epsilon=self.epsilon)

    def noise_offset(self, sensitivity: Sensitivity, special: int) -> int:
        """Return the smallest integer c with P[max of ``special`` noises - the floor's noise > c]
        <= delta.
        """
        return self.counting.law(sensitivity, self.floor_rank).floor_offset(special, self.delta)

    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Simulate the noise of d_bar + 1 counts that are measured together, whatever ``labels``
        is.
        """
        return self.counting.float_noise(inputs, self.floor_rank)

    def threshold_tail(self, sensitivity: Sensitivity) -> Callable[[int], float]:
        """Return a function of c >= 0: an upper bound on P[N1 - N2 > c] for the noises of floor
        and count; in the difference the corner of the box cancels.
        """
        return self.counting.law(sensitivity, self.floor_rank).difference

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Array:
        """Draw the noise of ``size`` of the d_bar + 1 counts, int64, shape (size,); the law is
        that of d_bar + 1 counts even if fewer labels are present.

        Args:
            sensitivity: the histogram's.
            size: how many counts get noise.
            bits: the source of words.
        """
        return self.counting.draw_noise_of_part(sensitivity, size, self.floor_rank, bits)
