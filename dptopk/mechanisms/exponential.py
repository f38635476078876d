"""The exponential mechanism: one label, more likely the higher its utility."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dptopk import _validate as validate
from dptopk.costs import BoundedRange, Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram, Sensitivity
from dptopk.mechanisms.base import add_remove, known
from dptopk.release import Release

__all__ = ["Exponential"]


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """One label y, drawn with P(y) ∝ exp(epsilon · u(y) / utility_range).

    Charge: 1 × BoundedRange(epsilon). Neighbours: add or remove one user.

    Args:
        epsilon: ε of the selection.
        utility_range: the most by which the changes of two labels' utilities, caused by one user, can differ (not
            twice the sensitivity of one utility). For counts it is linf, because all counts move in one direction.

    Source: Dong-Durfee-Rogers 2020, §2.1 (range in place of twice the sensitivity).

    >>> print(Exponential(epsilon=0.5, utility_range=1.0).charge(Sensitivity()))
    BR(0.5)
    """

    epsilon: float
    utility_range: float

    def __post_init__(self) -> None:
        validate.assign(
            self,
            epsilon=validate.positive(epsilon=self.epsilon),
            utility_range=validate.positive(utility_range=self.utility_range),
        )

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:  # noqa: ARG002
        """Exactly BR(ε); ``labels`` makes no difference because no counts are released."""
        add_remove(sensitivity)
        return Charge({BoundedRange(self.epsilon): 1})

    def check(self, histogram: Histogram, *, utilities: Sequence[float] | np.ndarray[Any, Any] | None = None) -> None:
        """Raise whatever ``release`` would raise for these arguments; nothing is drawn."""
        known(histogram, self)
        if histogram.domain_size == 0:
            raise InvalidParameter("histogram has no labels to choose from")
        self.charge(histogram.sensitivity)
        if utilities is not None:
            self._checked(utilities, histogram.domain_size)
        elif self.utility_range < histogram.sensitivity.linf:
            raise InvalidParameter(f"utility_range={self.utility_range} is below linf, by which counts can move")

    def release(
        self,
        histogram: Histogram,
        rng: np.random.Generator | None = None,
        *,
        utilities: Sequence[float] | np.ndarray[Any, Any] | None = None,
    ) -> Release:
        """Draw one label of a public, complete histogram.

        Args:
            histogram: its labels are the choices; its counts are the utilities unless ``utilities`` are given.
            rng: a generator for tests and experiments (the release says so); None = a secure source.
            utilities: real numbers, shape (domain_size,): one for each label, in the order of the rows. The law is
                exact for these very floats; the caller vouches that the range of their changes, with the rounding
                of whatever computed them, is at most ``utility_range``.

        Raises:
            InvalidParameter: for a private, incomplete or empty histogram; when counts are the utilities and
                utility_range is below linf; for utilities of another length or not finite.
        """
        from dptopk.mechanisms.random import random_bits
        from dptopk.mechanisms.selection import exponential_choice, gumbel_top_k

        self.check(histogram, utilities=utilities)
        charge = self.charge(histogram.sensitivity)
        bits = random_bits(rng)
        if utilities is not None:
            rate = Fraction(self.epsilon) / Fraction(self.utility_range)
            chosen = exponential_choice(self._checked(utilities, histogram.domain_size), rate=rate, bits=bits)
        else:
            epsilon = math.nextafter(self.epsilon / self.utility_range, 0.0)  # of one step of a count; rounded down
            drawn = gumbel_top_k(histogram.counts, 1, epsilon=epsilon, linf=1, bits=bits, absent=histogram.absent)
            chosen = int(drawn.indices[0])
        return Release.drawn(
            histogram,
            rng,
            labels=(histogram.label_at(chosen),),
            charge=charge,
            mechanism=self,
        )

    @staticmethod
    def _checked(utilities: Sequence[float] | np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
        try:
            values = np.asarray(utilities, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):  # whose messages quote the value
            raise InvalidParameter("utilities must be real numbers") from None
        if values.shape != (size,):
            raise InvalidParameter(f"utilities must have one value for each of the {size} labels")
        if not np.isfinite(values).all():
            raise InvalidParameter("utilities must be finite: one is NaN or infinite")
        return values
