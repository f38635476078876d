"""This module says what a check of a mechanism finds: a statement, and what was seen instead."""

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
# Standard errors that an estimate may be off: a false alarm in a million comparisons.
ERRORS = 5.0
LABELS = 8
LARGE = 10**6


@dataclass(frozen=True)
class Mismatch:
    """A statement of a mechanism that is not true.

    Attributes:
        statement: the name of the method or of the promise.
        stated: its value.
        seen: what a release, an enumeration or another statement shows.
    """

    statement: str
    stated: str
    seen: str

    def __str__(self) -> str:
        return f"{self.statement}: states {self.stated}, but {self.seen}"


@dataclass(frozen=True)
class Subject:
    """A mechanism under one sensitivity, with the randomness of one check.

    Attributes:
        mechanism: that is checked.
        sensitivity: of the histograms.
        draws: how many releases an estimate is made of.
        seed: of all draws.
    """

    mechanism: Mechanism
    sensitivity: Sensitivity
    draws: int
    seed: int

    @property
    def k(self) -> int:
        """Return how many labels are selected, 1 where that is not said."""
        return int(getattr(self.mechanism, "k", 1))

    @property
    def private(self) -> bool:
        """Whether labels come from the data: then it says at what count they appear."""
        return self.mechanism.appears_at(self.sensitivity) is not None

    def histogram(self, counts: Array) -> Histogram:
        """A whole histogram of labels "0", "1", ... with these counts."""
        labels = [str(row) for row in range(len(counts))]
        domain = "private" if self.private else "public"
        whole = np.asarray(counts, dtype=np.int64)
        return Histogram(labels, whole, sensitivity=self.sensitivity, domain=domain)

    def rng(self, purpose: int) -> np.random.Generator:
        """A stream of its own for each purpose."""
        return np.random.default_rng([self.seed, purpose])

    def releases(self, counts: Array, purpose: int, draws: int | None = None) -> Iterator[Release]:
        """Seeded answers on such a histogram; a mechanism that counts a ranking is given one."""
        histogram = self.histogram(counts)
        rng = self.rng(purpose)
        number = self.draws if draws is None else draws
        charge = self.charge(len(counts))
        ranking = Release(tuple(histogram.labels.tolist()), None, charge, None, self.sensitivity)
        options = self.mechanism.release_options(ranking, charge, self.sensitivity, average=False)
        release = partial(self.mechanism.release, histogram, rng)
        if "ranking" in options:
            release = partial(release, **options)
        for _ in range(number):
            yield release()

    def noise(self, labels: int) -> float:
        """About the deviation of the noise that decides what is shown; 1 where it depends on the
        counts.
        """
        counted = None
        if self.sensitivity.l2 is None:  # sums of weights are never counted
            counted = self.mechanism.count_noise(self.sensitivity, labels=labels)
        if counted is None:
            size = self.mechanism.selection_noise(self.sensitivity)
        else:
            size = counted
        if math.isfinite(size):
            return size
        return 1.0

    def charge(self, labels: int | None) -> Charge:
        """The most that a release of that number of labels can cost."""
        return self.mechanism.charge(self.sensitivity, labels=labels)


def standard_error(values: Array) -> float:
    """The standard error of a mean of independent values."""
    return float(np.std(values)) / math.sqrt(max(len(values), 1))


def shortly(value: float) -> str:
    """A number of a finding."""
    return f"{value:.4g}"
