"""Bases of the mechanisms that add integer noise to counts, and the rows that they count."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk.costs import Charge, Cost
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity, descending_order
from dptopk.histogram.labels import labels_as_list
from dptopk.histogram.stored_labels import StoredLabels
from dptopk.mechanisms.mechanism import (
    LARGEST_NAMING,
    Mechanism,
    require_add_remove,
    require_public,
    touched_counts,
)
from dptopk.mechanisms.samplers.noise import NoiseSampler
from dptopk.mechanisms.samplers.random import Array, Bits, Ints, Rng, random_bits
from dptopk.mechanisms.samplers.simulation import Draw, Noise, SimulationInput, noisy_largest
from dptopk.release.intervals import Measurement
from dptopk.release.noise_laws import IndependentNoiseLaw
from dptopk.release.release import Release

Labels = Release | Sequence[Any]

# All labels of a public domain are counted one by one up to this many (up to LARGEST_NAMING where a
# function names them): their counts take 800 MB. Beyond, labels= must name a few.
LARGEST_LISTING = 10**8


@dataclass(frozen=True)
class Rows:
    """The labels whose counts are measured, shape (n,), and their true counts, int64, shape
    (n,).
    """

    labels: Array
    counts: Array

    def __len__(self) -> int:
        return len(self.counts)


class Repeated(NamedTuple):
    """Counts that were measured several times.

    Attributes:
        first: the first measurement, shape (n,).
        mean: the mean of all measurements, float64, shape (n,).
    """

    first: Array
    mean: Array


def rows_to_count(histogram: Histogram, labels: Labels | None, mechanism: Mechanism) -> Rows:
    """Return the rows that a counting mechanism measures: all of a public domain, or those of the
    given labels.

    Args:
        histogram: must be public and complete when ``labels`` is None.
        labels: labels that are public or were released before, or a Release. A label without a row
            has count 0; in an incomplete histogram a missing row is not a 0, so there only a
            Release made on it is taken.
        mechanism: for the name in messages.

    Raises:
        InvalidParameter: where the counts of these labels are unknown, or where counting them
            would reveal which labels are present.
    """
    if labels is None:
        size = require_public(histogram, type(mechanism).__name__).domain_size
        most = LARGEST_LISTING if histogram.listed else LARGEST_NAMING
        if size > most:
            raise InvalidParameter(
                f"domain_size={size} is too large to count every label; give labels="
            )
        return Rows(*histogram.whole_domain())
    validate.instance(Histogram, histogram=histogram)
    is_own_release = isinstance(labels, Release) and labels.made_on(histogram)
    names = list(labels.labels) if isinstance(labels, Release) else labels_as_list(labels)
    if not histogram.complete and not is_own_release:
        raise InvalidParameter(
            "labels: on an incomplete histogram they must be a Release made on that very histogram"
        )
    if histogram.has_label_outside(names):
        raise InvalidParameter("labels: one of them is not in the public domain")
    return Rows(np.fromiter(names, dtype=object, count=len(names)), histogram.count_of(names))


class CountingMechanism(Mechanism):
    """Base of the mechanisms that add integer noise to counts of known labels.

    ``measurement`` is the one statement of the noise. Deviations and widths follow from it and are
    final; ``dptopk.testing.check_mechanism`` compares it with what is drawn.
    """

    #: Whether its counts can be fitted to the order of a selection, by CountMLE.
    fitted: ClassVar[bool] = True

    @abstractmethod
    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Array:
        """Draw the noise of ``size`` counts, int64, shape (size,): in whole counts, or in steps of
        1/divisor where ``measurement`` states a divisor.

        Args:
            sensitivity: the histogram's.
            size: how many counts get noise.
            bits: the source of words.
        """

    @abstractmethod
    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Return the noise on the counts of ``labels`` labels for a simulation, in floating
        point: a function of the number of a block of draws, from 0, that returns the noise in
        counts, shape (draws, len(inputs.counts) + 1), the last column for a floor.

        Args:
            inputs: the known counts and the standard noise to scale.
            labels: how many labels are counted together, for noise that depends on it.
        """

    @abstractmethod
    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """Return the law of the noise on the counts of a number of labels.

        Args:
            sensitivity: that of the histogram.
            labels: how many labels are counted together.
            whole: whether these are all labels of the domain, not some that were named.
        """

    def assumed_labels(self) -> int:
        """Return the number of labels to assume where none is given: one, because this noise does
        not depend on it.

        Raises:
            InvalidParameter: for a mechanism whose noise depends on that number.
        """
        return 1

    @final
    def noise_of(self, sensitivity: Sensitivity, labels: int | None) -> Measurement:
        """Return ``measurement`` for this number of labels, at least one; for None, the number
        is that of ``assumed_labels``.
        """
        if labels is None:
            number = self.assumed_labels()
        else:
            number = max(labels, 1)
        return self.measurement(require_add_remove(sensitivity), number, whole=False)

    @final
    def noise_std(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float:
        """Return the standard deviation of the noise on one count.

        ``labels`` is the number of labels counted together, for noise that depends on it.

        Raises:
            InvalidParameter: as for ``half_width``.
        """
        return self.noise_of(sensitivity, labels).std

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of the k labels with the largest noisy counts."""
        return noisy_largest(inputs, self.float_noise(inputs, len(inputs.counts)))

    @final
    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the noise on a count."""
        return self.noise_std(sensitivity)

    @final
    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float:
        """Return the standard deviation of the noise on one count, as ``noise_std`` states it."""
        return self.noise_std(sensitivity, labels=labels)

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int | None:
        """Return None, because every label is counted and none is hidden."""
        require_add_remove(sensitivity)
        return None

    @final
    def count_width(
        self, sensitivity: Sensitivity, *, labels: int | None = None, confidence: float = CONFIDENCE
    ) -> float:
        """Return the half-width of the noise on one count, as ``half_width`` states it."""
        return self.half_width(sensitivity, confidence=confidence, labels=labels)

    @final
    def half_width(
        self, sensitivity: Sensitivity, *, confidence: float = CONFIDENCE, labels: int | None = None
    ) -> float:
        """Return the smallest proven w with P[|noise| <= w] >= confidence, for one count that is
        always released.

        Args:
            sensitivity: the histogram's.
            confidence: in (0, 1).
            labels: the number of labels counted together, for noise that depends on it.

        Returns:
            w in counts, a multiple of the step in which counts are measured. For independent noise
            it is exact up to a relative error of the tail below 1e-6, which only widens it.

        Raises:
            InvalidParameter: for a confidence outside its range, a sensitivity that the mechanism
                does not cover, or ``labels`` left out for noise that depends on it.
        """
        confidence = validate.probability(allow_zero=False, confidence=confidence)
        noise = self.noise_of(sensitivity, labels)
        # The interval is for one row that was fixed beforehand, not for the widest of several.
        steps = noise.half_width(1 - confidence, "row", 1)
        if noise.divisor == 1:  # an integer stays one
            return steps
        return steps / noise.divisor

    def check(self, histogram: Histogram, *, labels: Labels | None = None) -> None:
        """Raise the error that ``release`` would raise for these arguments, without drawing
        noise.
        """
        rows = rows_to_count(histogram, labels, self)
        # Refuses a sensitivity that is not covered, and more labels than the noise is for.
        self.charge(histogram.sensitivity, labels=len(rows))

    def release(
        self,
        histogram: Histogram,
        rng: np.random.Generator | None = None,
        *,
        labels: Labels | None = None,
    ) -> Release:
        """Release noisy counts; rows come in the order of the released values, ties in label
        order.

        Args:
            histogram: must be public and complete, unless ``labels`` are given.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.
            labels: the only labels to count; they are public or were released before. None: all.

        Raises:
            InvalidParameter: before anything is drawn; see rows_to_count and ``charge``.
        """
        rows = rows_to_count(histogram, labels, self)
        sensitivity = histogram.sensitivity
        charge = self.charge(sensitivity, labels=len(rows))
        return ordered_release(
            self.measure(sensitivity, rows, rng),
            rows.labels,
            histogram,
            rng,
            charge=charge,
            mechanism=self.as_recorded(sensitivity, len(rows)),
            measurement=self.measurement(sensitivity, len(rows), whole=labels is None),
        )

    def as_recorded(self, sensitivity: Sensitivity, labels: int) -> Self:
        """Return the mechanism as a release of ``labels`` labels records it: with the values of
        those parameters whose default depends on that number; this base has none.

        Args:
            sensitivity: the histogram's.
            labels: how many labels are counted.
        """
        return self

    def charge_of_passes(self, sensitivity: Sensitivity, labels: int, passes: int) -> Charge:
        """Return the charge of measuring the counts of the same labels ``passes`` times.

        Args:
            sensitivity: the histogram's.
            labels: how many labels are counted.
            passes: how many times, at least 1.
        """
        return self.charge(sensitivity, labels=labels).times(passes)

    def measure_repeatedly(
        self, sensitivity: Sensitivity, rows: Rows, rng: Rng, passes: int
    ) -> Repeated:
        """Measure the rows' counts ``passes`` times.

        Args:
            sensitivity: the histogram's.
            rows: the labels and their true counts, n of them.
            rng: None for cryptographically secure noise.
            passes: how many measurements there are, at least 1.
        """
        measurements = [self.measure(sensitivity, rows, rng) for _ in range(passes)]
        return Repeated(measurements[0], np.mean(measurements, axis=0))

    def measure(self, sensitivity: Sensitivity, rows: Rows, rng: Rng) -> Array:
        """Return the rows' counts with noise added, in the order of the rows, int64, shape (n,).

        Args:
            sensitivity: the histogram's.
            rows: the labels and their true counts, n of them.
            rng: None for cryptographically secure noise.

        Raises:
            InvalidParameter: for a sensitivity that the mechanism does not cover, or noise that
                leaves 64 bits.
        """
        return rows.counts + self.draw_noise(sensitivity, len(rows), random_bits(rng))


class IndependentNoise(CountingMechanism):
    """Base of the counting mechanisms whose noises are independent and have the same law."""

    @abstractmethod
    def law(self, sensitivity: Sensitivity) -> IndependentNoiseLaw:
        """Return the law of the noise on each count.

        Raises:
            InvalidParameter: when noise could leave the 64-bit integers.
        """

    @abstractmethod
    def cost(self, sensitivity: Sensitivity, shift: int | None = None) -> Cost:
        """Return the cost of one noisy count that one user moves by at most ``shift``; None means
        linf.
        """

    @abstractmethod
    def costs(self, sensitivity: Sensitivity, touched: int) -> Mapping[Cost, int]:
        """Return the costs, with their multiplicities, of the counts that one user moves.

        Args:
            sensitivity: its ``linf`` bounds the move of each count, its ``l1`` the sum of all.
            touched: how many counts one user moves at most.
        """

    @abstractmethod
    def sampler(self, sensitivity: Sensitivity, bound: int | None = None) -> NoiseSampler:
        """Return the exact sampler of ``law``, conditioned on [-bound, bound] if a bound is
        given.
        """

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return one cost for each of the min(l0, labels) counts that one user can move.

        Where ``l1`` caps a user's total below linf times that number, one cost of the total may
        take their place.

        Raises:
            InvalidParameter: when both l0 and ``labels``, the number of labels counted, are None.
        """
        touched = touched_counts(require_add_remove(sensitivity), labels)
        return Charge(self.costs(sensitivity, touched))

    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """Return ``law`` as that of each count, whatever the number of labels.

        Args:
            sensitivity: the histogram's.
            labels: how many labels are counted together.
            whole: whether these are all labels of the domain.
        """
        return Measurement(self.law(sensitivity), labels, whole=whole)

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Ints:
        """Draw independent noise, int64, shape (size,).

        Args:
            sensitivity: the histogram's.
            size: how many counts get noise.
            bits: the source of words.
        """
        return self.sampler(sensitivity).sample(size, bits)

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float:
        """Return an upper bound on the probability that a label is ranked below one whose count is
        lower by ``gap``, in counts: that the difference of the two noises is at least the gap, or
        at least 1 for a gap below 1.
        """
        # The difference is an integer: it is at least the gap if it exceeds ceil(gap) - 1.
        return self.law(sensitivity).difference(max(math.ceil(gap) - 1, 0))


def ordered_release(
    values: Array,
    labels: Array | StoredLabels,
    histogram: Histogram,
    rng: Rng,
    *,
    charge: Charge,
    mechanism: Mechanism,
    measurement: Measurement,
) -> Release:
    """Return a release of the values and their labels, in descending order of the values; ties
    are in label order.

    Args:
        values: the noisy counts, shape (n,).
        labels: their labels, shape (n,).
        histogram: that they were measured on.
        rng: the source of the noise, of which the release says whether it was secure.
        charge: what the release costs.
        mechanism: as the release records it.
        measurement: the law of the noise.
    """
    order = descending_order(values, labels)
    return Release.of_draw(
        histogram,
        rng,
        labels=tuple(labels[order].tolist()),
        counts=values[order],
        charge=charge,
        mechanism=mechanism,
        measurement=measurement,
    )
