"""Gumbel top-k: k exponential mechanisms, each on what the earlier ones left, in one race of noisy
counts.

It is also a race of independent exponential clocks, one a label, of which one user changes a few
(docs/notes/clocks.md): the cost is either that of the k selections, or that of the clocks that a
user can change, as ``charge_as`` says before any data is seen.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from functools import partial

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CHARGES, CONFIDENCE, ChargeAs
from dptopk.costs import BoundedRange, Charge, ExponentialClockDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.mechanism import LabelsOnly, require_add_remove
from dptopk.mechanisms.public_selection import PublicSelection
from dptopk.mechanisms.samplers.random import Array, Bits, Ints, random_bits
from dptopk.mechanisms.samplers.selection import gumbel_top_k, selection_rate
from dptopk.mechanisms.samplers.simulation import (
    Draw,
    Noise,
    SimulationInput,
    largest_above,
    noisy_largest,
)
from dptopk.mechanisms.thresholds import TopSlots, gumbel_offset, special_slots
from dptopk.release.release import Release

# At scores this high e^x does not overflow, and 1 - exp(-e^x) is 1 in floating point.
CERTAIN_SCALES = 50.0
LARGEST_EXPONENT = 700.0  # e^709 is the largest float


def gumbel_std(scale: float) -> float:
    """Return the standard deviation of Gumbel noise of this scale: π/√6 times the scale."""
    return math.pi / math.sqrt(6) * scale


class _GumbelSelection(LabelsOnly):
    """Base of KnownGumbel and UnknownGumbel, charged as k selections of epsilon each or as the
    exponential clocks that one user can change.
    """

    k: int
    epsilon: float
    charge_as: ChargeAs
    noise_falls_with = ("epsilon",)

    def __post_init__(self) -> None:
        validate.parameters(self, charge_as=partial(validate.member, CHARGES))

    def __repr__(self) -> str:
        """Return the call that makes this mechanism, without the arguments that have their default
        value.
        """
        arguments = []
        for parameter in fields(self):  # type: ignore[arg-type]
            value = getattr(self, parameter.name)
            if parameter.default is MISSING or value != parameter.default:
                arguments.append(f"{parameter.name}={value!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the Gumbel noise on a count."""
        return gumbel_std(sensitivity.linf / self.epsilon)

    def chance_to_exceed(self, sensitivity: Sensitivity, noise: float, gaps: Array) -> Array:
        """Return the probability that Gumbel noise exceeds each gap: 1 - exp(-exp(-x)) with x =
        epsilon·gap/linf.

        Args:
            sensitivity: the histogram's.
            noise: not used: epsilon states the noise.
            gaps: in counts, of any shape.
        """
        minus_x = gaps * -self.epsilon / sensitivity.linf
        rates = np.exp(np.minimum(minus_x, CERTAIN_SCALES))
        chances: Array = -np.expm1(-rates)
        return chances

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float:
        """Return the probability that a label is selected after one whose count is lower by
        ``gap``: 1/(1 + e^x) with x = epsilon·gap/linf, because the difference of two Gumbel
        variables is logistic.
        """
        x = self.epsilon * gap / sensitivity.linf
        return 1 / (1 + math.exp(min(x, LARGEST_EXPONENT)))

    def float_noise(self, inputs: SimulationInput) -> Noise:
        """Simulate Gumbel noise of the scale linf/epsilon: a function of the number of a block of
        draws.
        """
        return inputs.noise("gumbel", inputs.sensitivity.linf / self.epsilon)

    def _charge_of_race(
        self, linf: int, selections: int, clocks: int | None, delta: float = 0.0
    ) -> Charge:
        """Return the charge of a number of selections or of clocks, as ``charge_as`` says.

        Args:
            linf: how far one user moves a count.
            selections: how many selections are made.
            clocks: how many clocks one user can change; None if that is unbounded.
            delta: mass of bad events to add.

        Raises:
            InvalidParameter: when scores would lose digits as floats, or overflow; for clocks
                whose number is unbounded.
        """
        selection_rate(self.epsilon, linf)  # refuses a rate beyond its range
        if self.charge_as == "bounded_range":
            # Each selection after the first depends on the earlier ones.
            adaptive = self.k > 1
            return Charge({BoundedRange(self.epsilon): selections}, delta=delta, adaptive=adaptive)
        if clocks is None:
            raise InvalidParameter(
                "charge_as='clocks' needs a finite l0: the number of labels that one user touches"
            )
        return Charge({ExponentialClockDP(self.epsilon): clocks}, delta=delta)


@dataclass(frozen=True, kw_only=True, repr=False)
class KnownGumbel(_GumbelSelection, PublicSelection):
    """The k labels with the largest count + Gumbel(linf/epsilon), in that order; labels only.

    Charge: k × BoundedRange(epsilon), adaptive for k > 1 (each selection depends on the earlier
    ones), for any l0; or by clocks l0 × ExponentialClockDP(epsilon), for any k. Neighbours: add or
    remove one user, who moves counts in one direction by at most linf each.

    Args:
        k: how many labels, at least 1.
        epsilon: ε of each selection, not of all.
        charge_as: "bounded_range" or "clocks"; ``plan_topk`` takes what is less.

    Source: Dong-Durfee-Rogers 2020, §2.1; Durfee-Rogers 2019, Lemma 4.2 (Gumbel noise is peeling);
    docs/notes/clocks.md.

    >>> print(KnownGumbel(k=3, epsilon=0.5).charge(Sensitivity()))
    3*BR(0.5) [adaptive]
    >>> print(KnownGumbel(k=300, epsilon=0.05, charge_as="clocks").charge(Sensitivity(l0=2)))
    2*Clock(0.05)
    """

    k: int
    epsilon: float
    charge_as: ChargeAs = "bounded_range"

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return exactly k × BR(ε), or l0 × Clock(ε); ``labels`` makes no difference because no
        counts are released.

        Raises:
            InvalidParameter: for other neighbours than add_remove, and for sums of weights.
        """
        return self._charge_of_race(require_add_remove(sensitivity).linf, self.k, sensitivity.l0)

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of the k labels with the largest count plus Gumbel noise."""
        return noisy_largest(inputs, self.float_noise(inputs))

    def rows(self, histogram: Histogram, bits: Bits) -> Ints:
        """Draw the indices of k rows, in the order of selection."""
        linf = histogram.sensitivity.linf
        absent = histogram.absent
        return gumbel_top_k(
            histogram.counts, self.k, epsilon=self.epsilon, linf=linf, bits=bits, absent=absent
        ).indices


@dataclass(frozen=True, kw_only=True, repr=False)
class UnknownGumbel(TopSlots, _GumbelSelection):
    """Gumbel selection among the d_bar largest present labels and ⊥, until ⊥ is drawn or k labels
    are; labels only.

    ⊥ stands for stopping: it takes part like a label with the count h_(d_bar+1) + linf + c (for c
    see Source). Charge before: k × BoundedRange(epsilon) + δ, adaptive for k > 1. Charge of a
    release: r × BoundedRange(epsilon) + δ, where r counts the selections
    made, that of ⊥ included. By clocks: min(l0, d_bar) × ExponentialClockDP(epsilon) + δ, before
    and after. Neighbours: add or remove one user, who moves counts in one direction by at most linf
    each; l0 may be None.

    Args:
        k: at most how many labels.
        d_bar: how many labels take part, at least k; a fixed number, not one that depends on the
            data.
        epsilon: ε of each selection, not of all.
        delta: bounds the probability that a label is drawn that only one of two neighbours can
            draw; in (0, 1).
        charge_as: "bounded_range" or "clocks"; ``plan_topk`` takes what is less.

    Source: Durfee-Rogers 2019, Algorithm 1, with the threshold of the slot lemma
    (docs/notes/mechanisms.md): c is the smallest integer with m/(m + e^{c·epsilon/linf}) <= delta,
    m = min(l0, d_bar). The δ charged is the one asked for. Clocks: docs/notes/clocks.md.

    >>> mechanism = UnknownGumbel(k=2, d_bar=10, epsilon=0.5, delta=1e-6)
    >>> print(mechanism.charge(Sensitivity()))
    2*BR(0.5) + delta(1e-06) [adaptive]
    >>> mechanism.threshold_offset(Sensitivity(l0=1))
    29
    """

    k: int
    d_bar: int
    epsilon: float
    delta: float
    charge_as: ChargeAs = "bounded_range"

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.count(at_least=self.k, d_bar=self.d_bar)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return k × BR(ε) + δ, the most that a release can cost, or min(l0, d_bar) × Clock(ε) +
        δ; ``labels`` makes no difference because no counts are released.
        """
        self.threshold_offset(sensitivity)  # refuses what has no threshold
        return self._charge_of_release(self.k, sensitivity)

    def _charge_of_release(self, selections: int, sensitivity: Sensitivity) -> Charge:
        """Return the charge of a release that made this many selections, that of ⊥ included."""
        clocks = special_slots(sensitivity, self.d_bar)
        return self._charge_of_race(sensitivity.linf, selections, clocks, self.delta)

    def noise_offset(self, sensitivity: Sensitivity, special: int) -> int:
        """Return the c by which the score of ⊥ exceeds h_(d_bar+1) + linf."""
        return gumbel_offset(self.epsilon, sensitivity.linf, special, self.delta)

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = CONFIDENCE) -> int:
        """Return the smallest lead over h_(d_bar+1), in floating point, at which a label is drawn
        before ⊥ with at least this probability.

        P = 1/(1 + e^{-(ε/τ)(lead - offset)}). It is shown if it also is among the first k.

        Raises:
            InvalidParameter: for a probability outside (0, 1), and as ``threshold_offset``.
        """
        probability = validate.probability(allow_zero=False, probability=probability)
        log_odds = math.log(probability) - math.log1p(-probability)
        offset = self.threshold_offset(sensitivity)
        return offset + math.ceil(sensitivity.linf / self.epsilon * log_odds)

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of the k labels with the largest count plus Gumbel noise, up to
        the draw of ⊥.
        """
        noise = self.float_noise(inputs)
        offset = self.threshold_offset(inputs.sensitivity)
        return largest_above(inputs, noise, self.floor_rank, offset)

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Draw the selections; the answer may be shorter than k, even empty, where labels are few
        or counts small.

        Args:
            histogram: rows with count 0 are not present and are ignored.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.

        Raises:
            InvalidParameter: for an incomplete histogram of at most d_bar rows, and as ``charge``;
                before anything is drawn.
        """
        top = self.slots(histogram)
        sensitivity = histogram.sensitivity
        stop = Fraction(top.floor + self.threshold_offset(sensitivity))
        bits = random_bits(rng)
        linf = sensitivity.linf
        selection = gumbel_top_k(
            top.counts, self.k, epsilon=self.epsilon, linf=linf, bits=bits, stop=stop
        )
        labels = tuple(top.labels[selection.indices].tolist())
        charge = self._charge_of_release(len(labels) + selection.stopped, sensitivity)
        note = "stopped at the threshold" if selection.stopped else ""
        return Release.of_draw(
            histogram, rng, labels=labels, charge=charge, mechanism=self, note=note
        )
