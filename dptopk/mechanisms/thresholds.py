"""Unknown domains: the slot lemma, thresholds, and the δ of a label that passes one.

The lemma is proven in docs/notes/mechanisms.md, "Slots".

Labels come from the data, so a label that only one of two neighbouring histograms has must not be
seen. A mechanism looks at the d_bar largest present labels and at the count below them,
h_(d_bar+1), the floor; a label is released only above floor + offset. Between neighbours at most m
= min(l0, d_bar) *special* slots change their label, each at most linf above the floor. All else is
a vector of d_bar counts and the floor that move in one direction, each by at most linf, by at most
l0·linf in sum. What the mechanism costs is what noising that vector costs, plus once the
probability that a special slot is released.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import final

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.rounding import EPS
from dptopk._internal.tails import LARGEST_OFFSET, first_offset, smallest_offset, union
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.stored_labels import StoredLabels
from dptopk.mechanisms.counting_mechanism import (
    CountingMechanism,
    IndependentNoise,
    ordered_release,
)
from dptopk.mechanisms.mechanism import Mechanism, finite_l0, require_add_remove
from dptopk.mechanisms.samplers.exact import bernoulli
from dptopk.mechanisms.samplers.random import Array, Bits, random_bits
from dptopk.mechanisms.samplers.simulation import Draw, Noise, SimulationInput, largest_above
from dptopk.mechanisms.user_total import cap_binds, chance_to_show_any
from dptopk.release.intervals import Measurement
from dptopk.release.noise_laws import IndependentNoiseLaw
from dptopk.release.release import Release

OFFSET_ROUNDING = 1e-12  # relative, for the Gumbel offset, of a quotient and two products


@dataclass(frozen=True)
class Slots:
    """The largest counts of a histogram and the floor they are compared with.

    Attributes:
        labels: shape (n,).
        counts: their true counts, int64, shape (n,).
        floor: the next largest count, or 0.
        noisy_floor: whether the floor is a private count that needs noise.
    """

    labels: Array | StoredLabels
    counts: Array
    floor: int
    noisy_floor: bool = True


def slots(histogram: Histogram, d_bar: int) -> Slots:
    """Return the d_bar largest counts with their labels, ties in label order, and the floor
    h_(d_bar+1), which is 0 if there are at most d_bar labels.

    Raises:
        InvalidParameter: when the histogram was cut to so few rows that h_(d_bar+1) is unknown.
    """
    validate.instance(Histogram, histogram=histogram)
    # The limit of the cut is compared, not the number of rows, which is private: with fewer rows
    # than the limit the histogram has no other labels.
    if histogram.limit is not None and d_bar >= histogram.limit:
        raise InvalidParameter(
            f"d_bar={d_bar} needs more than d_bar rows of an incomplete histogram"
        )
    top = histogram.top_rows(d_bar + 1)
    next_count = histogram.counts[top[d_bar:]]
    floor = int(next_count[0]) if len(next_count) else 0
    top = top[:d_bar]
    return Slots(histogram.unread_labels[top], histogram.counts[top], floor)


def special_slots(sensitivity: Sensitivity, d_bar: int) -> int:
    """Return m = min(l0, d_bar), the number of slots whose label can change between neighbours.

    Ties at the cut are broken by label, so only a label that moved can enter the slots.
    """
    if sensitivity.l0 is None:
        return d_bar
    return min(sensitivity.l0, d_bar)


def moving_slots(sensitivity: Sensitivity, d_bar: int) -> int:
    """Return min(l0, d_bar + 1), the number of noisy counts to pay for so that every move of the
    slots and the floor is covered.

    There are d_bar + 1 quantities. If fewer than l0 of the touched labels are in the new slots,
    they and the floor are at most l0 quantities. Otherwise the floor can only move to the count of
    an untouched displaced label; that label's slot and the floor then move by at most linf
    *together*, hence count as one.
    """
    return special_slots(sensitivity, d_bar + 1)


def is_above_threshold(
    counts: Array, noise: Array, floor: int, floor_noise: Array | int, offset: int
) -> Array:
    """Return which slots are above the threshold: count + noise > floor + floor_noise + offset.

    Args:
        counts: true counts, int64, shape (slots,).
        noise: in counts, int64, shape (..., slots).
        floor: the count that the threshold is above; h_(d_bar+1) or 0.
        floor_noise: shape (..., 1), or 0.
        offset: from ThresholdedMechanism.threshold_offset.

    Returns:
        Booleans, shape (..., slots). Differences are taken first, so that nothing overflows.
    """
    return (counts - floor) + (noise - floor_noise) > offset


def checked_offset(offset: int, name: str) -> int:
    """Return the offset, if counts can be compared with it in 64 bits.

    Raises:
        InvalidParameter: if it is too large; ``name`` is the parameter to blame.
    """
    if offset > LARGEST_OFFSET:
        raise InvalidParameter(
            f"{name} needs a threshold beyond 2^60: it is too small for this noise"
        )
    return offset


def gumbel_offset(epsilon: float, linf: int, special: int, delta: float) -> int:
    """Return the smallest integer c with m/(m + e^{cε/τ}) <= δ, hence c >= (τ/ε) ln(m(1-δ)/δ).

    The m = ``special`` slots whose label can change race with ⊥ alone: their rates sum to at most
    m e^{ε/τ·(floor+τ)} against e^{ε/τ·(floor+τ+c)}. An integer c keeps the score of ⊥ exact for
    every floor, so that it moves exactly as the floor does.

    Args:
        epsilon: ε of a selection.
        linf: τ.
        special: m, at least 1.
        delta: δ in (0, 1).

    Raises:
        InvalidParameter: when c would be beyond 2^60.
    """
    if special * (1 - Fraction(delta)) <= Fraction(delta):
        return 0
    of_slots = math.log(special)
    of_rest = math.log1p(-delta)
    of_delta = math.log(delta)
    # They cancel where δ is about m/(m+1). Each is off by EPS of its size at most, and two sums
    # round by half an EPS of all sizes: two EPS of these together.
    log_odds = of_slots + of_rest - of_delta + 4 * EPS * (of_slots - of_rest - of_delta)
    c = linf / epsilon * log_odds * (1 + OFFSET_ROUNDING)
    if not c < LARGEST_OFFSET:  # also where it is not a number
        raise InvalidParameter(f"delta={delta} needs a threshold beyond 2^60 at epsilon={epsilon}")
    return math.ceil(max(c, 0.0))


def fixed_threshold(
    chance_to_pass: Callable[[int, int], float],
    sensitivity: Sensitivity,
    labels: int,
    delta: float,
) -> int:
    """Return the smallest threshold T >= linf at which some label that only one user has is
    released with probability at most delta, however that user's contribution is split over labels.

    Args:
        chance_to_pass: takes a count v and T; returns the probability that a label with this count,
            which only one user has, is released.
        sensitivity: of the counts.
        labels: how many labels one user has at most.
        delta: in (0, 1).

    Raises:
        InvalidParameter: naming ``delta``, when T would be beyond 2^60.
    """
    linf = sensitivity.linf
    total_is_capped = cap_binds(sensitivity, labels)

    def suffices(T: int) -> bool:
        """Return whether some label is released with probability at most delta at the threshold
        T.
        """
        if total_is_capped:
            return chance_to_show_any(lambda v: chance_to_pass(v, T), sensitivity, labels) <= delta
        return union(chance_to_pass(linf, T), labels) <= delta  # every label may have linf

    return first_offset(suffices, "delta", linf)


@lru_cache(maxsize=1024)
def _bound_of_cut_noise(
    law: IndependentNoiseLaw, sensitivity: Sensitivity, labels: int, delta: float
) -> int:
    """Return the smallest bound T of noise that is cut to [-T, T] and compared with the threshold
    T, at which a user's own labels are released with probability at most delta.

    Args:
        law: the law of the noise before it is cut.
        sensitivity: that of the histogram.
        labels: the most labels that one user alone may have.
        delta: the probability for all of them together.
    """
    return fixed_threshold(law.edge_mass, sensitivity, labels, delta)


class FromData(Mechanism):
    """Base of the mechanisms whose labels come from the data."""

    def slots(self, histogram: Histogram) -> Slots:
        """Return the largest counts and the floor, or all present counts and a floor of 0 where
        ``floor_rank`` is None.

        Raises:
            InvalidParameter: when rows that are needed were cut off.
        """
        if self.floor_rank is not None:
            return slots(histogram, self.floor_rank - 1)
        if not validate.instance(Histogram, histogram=histogram).complete:
            name = type(self).__name__
            raise InvalidParameter(
                f"complete: {name} needs the whole histogram, this one was cut to its top rows"
            )
        labels = histogram.unread_labels
        counts = histogram.counts
        if not counts.all():
            present = np.flatnonzero(counts)
            labels = labels[present]
            counts = counts[present]
        return Slots(labels, counts, floor=0, noisy_floor=False)

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing
        noise.
        """
        self.slots(histogram)  # refuses a histogram without the rows that are needed
        self.charge(histogram.sensitivity)  # refuses a sensitivity that is not covered


class TopSlots(FromData):
    """Base of the mechanisms that use only the d_bar largest counts and the floor."""

    d_bar: int
    delta: float

    @property
    def floor_rank(self) -> int:
        """Return d_bar + 1, the rank of the floor."""
        return self.d_bar + 1

    @abstractmethod
    def noise_offset(self, sensitivity: Sensitivity, special: int) -> int:
        """Return the smallest integer c with P[max of ``special`` noises - the floor's noise > c]
        <= delta.
        """

    def threshold_offset(self, sensitivity: Sensitivity) -> int:
        """Return the lead over the noisy floor that a noisy count must exceed: linf + c."""
        special = special_slots(require_add_remove(sensitivity), self.d_bar)
        return checked_offset(sensitivity.linf + self.noise_offset(sensitivity, special), "delta")


class ThresholdedMechanism(FromData):
    """Base of the mechanisms that add integer noise to the slots and release those above a
    threshold.
    """

    @property
    @abstractmethod
    def counting(self) -> CountingMechanism:
        """Return the mechanism for known domains that has this noise before it is cut."""

    @property
    def divisor(self) -> int:
        """Return b >= 1, such that the noise is drawn as an integer number of steps of 1/b of a
        count.
        """
        return 1

    @abstractmethod
    def threshold_offset(self, sensitivity: Sensitivity) -> int:
        """Return the lead over the noisy floor that a noisy count must exceed to be released; one
        of exactly this lead is released with the probability ``at_threshold``.
        """

    @abstractmethod
    def threshold_tail(self, sensitivity: Sensitivity) -> Callable[[int], float]:
        """Return a function of c >= 0: an upper bound on the probability that the noise of the
        floor exceeds that of a count by more than c.
        """

    def sensitivity_of_slots(self, sensitivity: Sensitivity) -> Sensitivity:
        """Return the sensitivity of the vector that is noised, the slots and the floor;
        ``sensitivity`` is that of the histogram.
        """
        return sensitivity

    @final
    def noise_std(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the noise on one count, before any selection by it; an
        upper bound for noise that is cut.
        """
        return self.counting.noise_std(
            self.sensitivity_of_slots(sensitivity), labels=self.floor_rank
        )

    @final
    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the noise on a count, an upper bound for noise that is
        cut.
        """
        return self.noise_std(sensitivity)

    @final
    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float:
        """Return the standard deviation of the noise on a count, an upper bound for noise that is
        cut; ``labels`` makes no difference because d_bar, or the law alone, fixes the noise.
        """
        return self.noise_std(sensitivity)

    @final
    def count_width(
        self, sensitivity: Sensitivity, *, labels: int | None = None, confidence: float = CONFIDENCE
    ) -> float:
        """Return the half-width of the noise on one count by its law before it is cut; an upper
        bound for cut noise.

        Args:
            sensitivity: the histogram's.
            labels: makes no difference: d_bar, or the law alone, fixes the noise.
            confidence: in (0, 1).
        """
        return self.counting.count_width(
            self.sensitivity_of_slots(sensitivity), labels=self.floor_rank, confidence=confidence
        )

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float | None:
        """Return the probability that, of two labels that both appear, the one with the count
        higher by ``gap`` is ranked second; None if no formula is known.
        """
        return self.counting.swap_chance(sensitivity, gap)

    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Return the noise on all known counts and, in the last column, on the floor, as
        ``CountingMechanism.float_noise`` does.

        Args:
            inputs: the known counts and the standard noise to scale.
            labels: how many counts are measured together, for noise that depends on it.
        """
        return self.counting.float_noise(inputs, labels)

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of the k labels with the largest noisy counts above the
        threshold.
        """
        offset = self.threshold_offset(inputs.sensitivity)
        chance = self.at_threshold(inputs.sensitivity)
        noise = self.float_noise(inputs, len(inputs.counts))
        return largest_above(inputs, noise, self.floor_rank, offset, chance)

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = CONFIDENCE) -> int:
        """Return the lead over the floor at which a true count is released with at least this
        probability.

        Args:
            sensitivity: the histogram's.
            probability: in (0, 1); below 1/2 the answer is that for 1/2.

        Returns:
            The smallest such lead, up to the relative error of ``threshold_tail``, which can only
            make it larger.
        """
        probability = validate.probability(allow_zero=False, probability=probability)
        offset = self.threshold_offset(sensitivity)
        # A count is not released if noise of the floor - noise of the count >= lead - offset, hence
        # > c = lead - offset - 1.
        c = smallest_offset(self.threshold_tail(sensitivity), 1 - probability, "probability")
        return offset + 1 + c

    def at_threshold(self, sensitivity: Sensitivity) -> float:
        """Return the probability, below 1, with which a noisy count of exactly the threshold is
        released although it is not above it.
        """
        return 0.0

    def above_floor(self, noise: Array, floor_noise: Array | int) -> Array:
        """Return by how many counts each noise exceeds that of the floor, rounded up to a whole
        count, int64, shape (n,).

        As counts and offsets are integers, a fraction of a count exceeds one if and only if its
        ceiling does.

        Args:
            noise: in steps of 1/``divisor``, int64, shape (n,).
            floor_noise: in the same steps, shape (1,), or 0.
        """
        return -((floor_noise - noise) // self.divisor)  # the ceiling of (noise - floor_noise)/b

    def released_values(
        self, sensitivity: Sensitivity, counts: Array, noise: Array, bits: Bits
    ) -> Array:
        """Return the released values of the counts that passed, shape (n,).

        Args:
            sensitivity: the histogram's.
            counts: true counts of the labels that passed, shape (n,).
            noise: their noise, shape (n,).
            bits: the source of further noise, which this default does not need.
        """
        return counts + noise

    def measurement(self, sensitivity: Sensitivity) -> Measurement:
        """Return the law of the noise and of the selection: all counts, or the d_bar largest and
        the floor, got the noise of ``counting``, and rows above the threshold were released.
        """
        rank = self.floor_rank
        noise = self.counting.noise_of(self.sensitivity_of_slots(sensitivity), rank)
        counted = None if rank is None else rank - 1
        return replace(
            noise,
            counted=counted,
            whole=True,
            threshold=self.threshold_offset(sensitivity),
            noisy_floor=rank is not None,
            at_threshold=self.at_threshold(sensitivity),
        )

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Array:
        """Draw the noise of ``size`` counts, int64, shape (size,).

        Args:
            sensitivity: the histogram's.
            size: how many counts get noise.
            bits: the source of words.
        """
        return self.counting.draw_noise(sensitivity, size, bits)

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Release the labels above the threshold with their noisy counts, the largest first, ties
        in label order.

        With few labels or small counts the answer is short, even empty, and costs the same.

        Args:
            histogram: rows with count 0 are not present and are ignored.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.

        Raises:
            InvalidParameter: for a histogram that was cut to fewer rows than are needed, and as
                ``charge``; before anything is drawn.
        """
        top = self.slots(histogram)
        bits = random_bits(rng)
        sensitivity = histogram.sensitivity
        charge = self.charge(sensitivity)
        # The floor has the last of the noises; a floor of 0 does not use it.
        drawn = self.draw_noise(sensitivity, len(top.counts) + 1, bits)
        noise = drawn[:-1]
        floor_noise = drawn[-1:] if top.noisy_floor else 0
        passed = self._released_slots(sensitivity, top, self.above_floor(noise, floor_noise), bits)
        return ordered_release(
            self.released_values(sensitivity, top.counts[passed], noise[passed], bits),
            top.labels[passed],
            histogram,
            rng,
            charge=charge,
            mechanism=self,
            measurement=self.measurement(sensitivity),
        )

    def _released_slots(
        self, sensitivity: Sensitivity, top: Slots, noise_above_floor: Array, bits: Bits
    ) -> Array:
        """Return which slots are released, bool, shape (slots,): those above the threshold, and
        those at it by a coin with the probability of ``at_threshold``.

        Args:
            sensitivity: that of the histogram.
            top: the counts of the slots, and the floor.
            noise_above_floor: the noise of each slot less that of the floor, shape (slots,).
            bits: source of random words.
        """
        offset = self.threshold_offset(sensitivity)
        passed = is_above_threshold(top.counts, noise_above_floor, top.floor, 0, offset)
        chance = self.at_threshold(sensitivity)
        if chance:
            reached = is_above_threshold(top.counts, noise_above_floor, top.floor, 0, offset - 1)
            at_threshold = reached & ~passed
            passed |= at_threshold & bernoulli(np.full(at_threshold.size, chance), bits)
        return passed


class IndependentCounts(ThresholdedMechanism):
    """Base of the thresholded mechanisms with independent noises, in which each count that one user
    can move costs what its noise costs.
    """

    delta: float

    @property
    @abstractmethod
    def counting(self) -> IndependentNoise:
        """Return the mechanism for known domains that has this noise before it is cut."""

    def moving_counts(self, sensitivity: Sensitivity) -> int:
        """Return the number of noisy counts to pay for, each moved by at most linf, so that all
        that one user can move is covered.

        Raises:
            InvalidParameter: for the whole histogram when l0 is None, because there is no bound.
        """
        rank = self.floor_rank
        if rank is None:
            return finite_l0(sensitivity)
        return moving_slots(require_add_remove(sensitivity), rank - 1)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return the costs of the noise, as if it were not cut, on the counts that one user can
        move, + δ; ``labels`` makes no difference.

        The slots and the floor together move by at most what the user adds in all (the slot lemma),
        so that a cap on a user's total applies to them too.
        """
        self.threshold_offset(sensitivity)  # refuses what has no threshold
        counts_paid_for = self.moving_counts(sensitivity)
        return Charge(self.counting.costs(sensitivity, counts_paid_for), delta=self.delta)

    def noise_offset(self, sensitivity: Sensitivity, special: int) -> int:
        """Return the smallest integer c with P[max of ``special`` noises - the floor's noise > c]
        <= delta.
        """
        return self.counting.law(sensitivity).floor_offset(special, self.delta)

    def threshold_tail(self, sensitivity: Sensitivity) -> Callable[[int], float]:
        """Return a function of c >= 0: an upper bound on P[N1 - N2 > c] for the noises of floor
        and count, or on P[N > c] over a floor without noise.
        """
        law = self.counting.law(sensitivity)
        if self.floor_rank is None:
            return law.tail
        return law.difference


class CutMechanism(IndependentCounts):
    """Base of the mechanisms whose noise is cut to [-T, T]."""

    def bound(self, sensitivity: Sensitivity) -> int:
        """Return T, such that the noise is cut to [-T, T].

        Raises:
            InvalidParameter: as ``moving_counts`` does; for a δ that is too small for this noise.
        """
        labels = self.moving_counts(sensitivity)
        return _bound_of_cut_noise(self.counting.law(sensitivity), sensitivity, labels, self.delta)

    def threshold_tail(self, sensitivity: Sensitivity) -> Callable[[int], float]:
        """Return a function of c >= 0: an upper bound on P[N1 - N2 > c] for the cut noises of floor
        and count, or on P[N > c] over a floor without noise.

        It is the tail of the uncut law over the probability that no noise is cut.
        """
        bound = self.bound(sensitivity)
        noises = 1 if self.floor_rank is None else 2
        uncut_tail = super().threshold_tail(sensitivity)
        law = self.counting.law(sensitivity)
        chance_uncut = 1 - 2 * law.tail(bound)  # that a noise is within ±bound
        if noises == 2:
            chance_uncut = chance_uncut * chance_uncut

        def tail(c: int) -> float:
            """Return the bound at c >= 0."""
            if c >= bound * noises:
                return 0.0
            # Both laws are symmetric: more than c >= 0 is never likelier than not.
            return min(uncut_tail(c) / chance_uncut, 0.5)

        return tail

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Array:
        """Draw the cut noise of ``size`` counts, int64, shape (size,).

        Args:
            sensitivity: the histogram's.
            size: how many counts get noise.
            bits: the source of words.
        """
        return self.counting.sampler(sensitivity, self.bound(sensitivity)).sample(size, bits)

    @final
    def half_width(self, sensitivity: Sensitivity, *, confidence: float = CONFIDENCE) -> int:
        """Return T for every confidence: a released count is never further from the true one.

        Raises:
            InvalidParameter: for a confidence outside (0, 1), and as ``bound``.
        """
        validate.probability(allow_zero=False, confidence=confidence)
        return self.bound(sensitivity)

    def measurement(self, sensitivity: Sensitivity) -> Measurement:
        """Return what is measured: the counts with cut noise, and the selection by the threshold.

        Raises:
            InvalidParameter: as ``bound``.
        """
        uncut = super().measurement(sensitivity)
        law = replace(self.counting.law(sensitivity), bound=self.bound(sensitivity))
        return replace(uncut, noise=law)

    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Simulate the cut noise by moving what is outside [-T, T] to its ends."""
        uncut = super().float_noise(inputs, labels)
        bound = self.bound(inputs.sensitivity)
        return lambda number: np.clip(uncut(number), -bound, bound)


class NoisyFloorMechanism(TopSlots, ThresholdedMechanism):
    """Base of the mechanisms that noise the d_bar largest counts and the floor alike, by the noise
    of a mechanism for known domains (``counting``).
    """
