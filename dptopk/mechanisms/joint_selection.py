"""Common base of mechanisms that draw a whole answer at once: refusals, the charge, and the release."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dptopk._internal.rounding import smaller_of
from dptopk.costs import BoundedRange, Charge, PureDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import label_order
from dptopk.mechanisms.base import LabelsOnly, add_remove, drawn_labels, known
from dptopk.mechanisms.samplers.random import Bits, random_bits
from dptopk.release.release import Release

LEAST_RATE = Fraction(1, 10**280)  # smaller rates are not floats of full precision; scores of inverse ones overflow


@dataclass(frozen=True, kw_only=True)
class JointSelection(LabelsOnly):
    """Base of the mechanisms that draw k labels of a public domain at once, at one price.

    Args:
        k: how many labels, at least 1.
        epsilon: ε of the whole answer.
    """

    k: int
    epsilon: float

    #: Whether rows come in the order of the answer; a set is shown in label order, which tells nothing.
    ordered: ClassVar[bool] = True
    #: The class of privacy loss that the answer's law is proven to belong to.
    cost: ClassVar[type[BoundedRange] | type[PureDP]] = PureDP

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """One cost of ε; ``labels`` makes no difference because no counts are released."""
        add_remove(sensitivity)
        return Charge({self.cost(self.epsilon): 1})

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing noise."""
        check_public(histogram, self, self.k)
        self.charge(histogram.sensitivity)

    @abstractmethod
    def rows(self, histogram: Histogram, bits: Bits) -> list[int]:
        """Draw k rows; unlisted labels have the rows n, n + 1, ..."""

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Draw the answer from a public, complete histogram; unlisted labels take part with count 0.

        Args:
            histogram: its counts are the scores.
            rng: a generator for tests and experiments (the release says so); None = a secure source.

        Raises:
            InvalidParameter: for a private or incomplete histogram, or k above the size of the domain.
        """
        self.check(histogram)
        charge, bits = self.charge(histogram.sensitivity), random_bits(rng)
        labels = drawn_labels(histogram, np.array(self.rows(histogram, bits), dtype=np.int64), bits)
        return Release.drawn(
            histogram,
            rng,
            labels=labels if self.ordered else in_label_order(labels),
            charge=charge,
            mechanism=self,
            note="" if self.ordered else "a set, in label order: ranks mean nothing",
        )


def check_public(histogram: Histogram, mechanism: Any, k: int) -> None:
    """Refuse a histogram that is private, incomplete, or has fewer than k labels; a tiny or a huge epsilon."""
    known(histogram, mechanism, k)
    if not LEAST_RATE <= smaller_of(mechanism.epsilon) / (k * histogram.sensitivity.linf) <= 1 / LEAST_RATE:
        raise InvalidParameter(f"epsilon={mechanism.epsilon}: epsilon / (k·linf) must be from 1e-280 to 1e280")


def pure_share(epsilon: float, k: int) -> float:
    """An ε that k selections can have so that their plain sum stays below ``epsilon``, with some ulps to spare."""
    return epsilon / k * (1 - 2.0**-50)


def composed_share(charge: Callable[[float], Charge], epsilon: float, delta: float, plain: float) -> float:
    """The largest ε found with which ``charge`` costs at most (epsilon, delta) by its Rényi curves; or ``plain``."""
    from dptopk.accounting.calibration import calibrate
    from dptopk.costs import Budget

    try:
        return max(calibrate(charge, Budget(epsilon, delta), bound="renyi"), plain)
    except InvalidParameter:  # a budget too small to search in
        return plain


def in_label_order(labels: Sequence[Any]) -> tuple[Any, ...]:
    """The labels of a set, in an order that the data do not touch."""
    array = np.fromiter(labels, dtype=object, count=len(labels))
    return tuple(labels[i] for i in label_order(array))
