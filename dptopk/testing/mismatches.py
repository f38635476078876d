"""The findings of a check of a mechanism, and the mechanism under check with its draws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dptopk.costs import Charge
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.release.release import Release

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Mismatches = Iterator["Mismatch"]
# An estimate may be off by this many standard errors: one false alarm in a million comparisons.
STANDARD_ERRORS = 5.0
LABELS = 8  # labels of the histograms that are released
LARGE_COUNT = 10**6  # a count that is far above every threshold
# The numbers of the random streams, one for each check that draws.
CHARGE_STREAM = 1
REFUSAL_STREAM = 2
MEASUREMENT_STREAM = 3
SIMULATION_STREAM = 4
APPEARANCE_STREAM = 5
SWAP_STREAM = 6


@dataclass(frozen=True)
class Mismatch:
    """A statement of a mechanism that is false.

    Attributes:
        statement: the name of the method or of the property.
        stated: the stated value.
        seen: the value that a release, an enumeration or another statement shows.
    """

    statement: str
    stated: str
    seen: str

    def __str__(self) -> str:
        return f"{self.statement}: states {self.stated}, but {self.seen}"


@dataclass(frozen=True)
class Subject:
    """A mechanism under check with one sensitivity and one seed, and the releases that are drawn
    from it.

    Attributes:
        mechanism: the mechanism.
        sensitivity: the sensitivity of the histograms.
        draws: number of releases for an estimate.
        seed: seed of all draws.
    """

    mechanism: Mechanism
    sensitivity: Sensitivity
    draws: int
    seed: int

    @property
    def k(self) -> int:
        """Return how many labels the mechanism selects; 1 if it has no parameter k."""
        return int(getattr(self.mechanism, "k", 1))

    @property
    def has_private_labels(self) -> bool:
        """Return whether labels come from the data; then ``appears_at`` is not None."""
        return self.mechanism.appears_at(self.sensitivity) is not None

    def histogram(self, counts: Array) -> Histogram:
        """Return a complete histogram of the labels "0", "1", ... with these counts."""
        labels = [str(row) for row in range(len(counts))]
        domain = "private" if self.has_private_labels else "public"
        integers = np.asarray(counts, dtype=np.int64)
        return Histogram(labels, integers, sensitivity=self.sensitivity, domain=domain)

    def rng(self, stream: int) -> np.random.Generator:
        """Return a new seeded generator; those of different streams are independent.

        Args:
            stream: a number such as CHARGE_STREAM, one for each check that draws.
        """
        return np.random.default_rng([self.seed, stream])

    def releases(self, counts: Array, stream: int, draws: int | None = None) -> Iterator[Release]:
        """Yield seeded releases on the histogram of the labels "0", "1", ... with these counts.

        A mechanism that counts a given ranking gets the labels in this order.

        Args:
            counts: the true counts, shape (labels,).
            stream: the number of the random stream.
            draws: how many releases; None = ``draws`` of the subject.
        """
        histogram = self.histogram(counts)
        rng = self.rng(stream)
        number = self.draws if draws is None else draws
        charge = self.charge(len(counts))
        ranking = Release(tuple(histogram.labels.tolist()), None, charge, None, self.sensitivity)
        options = self.mechanism.release_options(ranking, charge, self.sensitivity, average=False)
        release = partial(self.mechanism.release, histogram, rng)
        if "ranking" in options:
            release = partial(release, **options)
        for _ in range(number):
            yield release()

    def noise_deviation(self, labels: int) -> float:
        """Return the standard deviation of the noise on ``labels`` counts, or where none are
        released of the noise that selects labels; 1 where that depends on the counts.
        """
        deviation = None
        if self.sensitivity.l2 is None:  # sums of weights are never released
            deviation = self.mechanism.count_noise(self.sensitivity, labels=labels)
        if deviation is None:
            deviation = self.mechanism.selection_noise(self.sensitivity)
        if math.isfinite(deviation):
            return deviation
        return 1.0

    def charge(self, labels: int | None) -> Charge:
        """Return the stated charge for counting ``labels`` labels; None: their number is not
        known.
        """
        return self.mechanism.charge(self.sensitivity, labels=labels)


def standard_error(values: Array) -> float:
    """Return the standard error of the mean of independent values, shape (n,)."""
    return float(np.std(values)) / math.sqrt(max(len(values), 1))


def four_digits(value: float) -> str:
    """Return a number as text with four significant digits."""
    return f"{value:.4g}"
