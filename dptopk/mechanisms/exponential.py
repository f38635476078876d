"""The exponential mechanism: one label, more likely the higher its utility."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptopk import _validate as validate
from dptopk.costs import BoundedRange, Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram, Sensitivity
from dptopk.mechanisms.base import add_remove, known, normalise
from dptopk.release import Release

__all__ = ["Exponential"]

# Real utilities are rounded down to at least this many steps per range.
STEPS_PER_RANGE = 2**24
# Labels more than this many steps below the best count as this far below: e^{-ε·2^23} times as likely, or less.
DEEPEST = 2**48


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
        normalise(
            self,
            epsilon=validate.positive(epsilon=self.epsilon),
            utility_range=validate.positive(utility_range=self.utility_range),
        )

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:  # noqa: ARG002
        """Exactly BR(ε); ``labels`` makes no difference because no counts are released."""
        add_remove(sensitivity)
        return Charge({BoundedRange(self.epsilon): 1})

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
            utilities: shape (domain_size,), finite: one for each label. They are rounded down to a grid of
                at most utility_range/2^24; the probabilities then use a range larger by two grid steps, which keeps
                the charge. The caller vouches for ``utility_range``.

        Raises:
            InvalidParameter: for a private, incomplete or empty histogram; when counts are the utilities and
                utility_range is below linf; for utilities of another length or not finite.
        """
        from dptopk.mechanisms.random import random_bits
        from dptopk.mechanisms.selection import gumbel_top_k

        known(histogram, self)
        if histogram.domain_size == 0:
            raise InvalidParameter("histogram has no labels to choose from")
        charge = self.charge(histogram.sensitivity)
        if utilities is None:
            if self.utility_range < histogram.sensitivity.linf:
                raise InvalidParameter(f"utility_range={self.utility_range} is below linf, by which counts can move")
            scores, scale, absent = histogram.counts, self.utility_range, histogram.absent
        else:
            scores, scale = self._steps(utilities, histogram.domain_size)
            absent = 0
        rate = math.nextafter(self.epsilon / scale, 0.0)
        chosen = gumbel_top_k(scores, 1, epsilon=rate, linf=1, bits=random_bits(rng), absent=absent)
        return Release(
            labels=tuple(histogram.label_at(int(index)) for index in chosen.indices),
            counts=None,
            charge=charge,
            mechanism=self,
            sensitivity=histogram.sensitivity,
            seeded=rng is not None,
            source=histogram.identity,
        )

    def _steps(
        self, utilities: Sequence[float] | np.ndarray[Any, Any], size: int
    ) -> tuple[np.ndarray[Any, Any], float]:
        """The utilities as whole steps above the deepest one that counts, int64 in [0, 2^48], and their range.

        The step is a power of two, so that dividing by it is exact. Rounding down changes the difference of two
        labels' changes by less than two steps; cutting distances from the best label off at a depth only moves their
        changes towards 0, which widens no range that holds 0 (as that of the distances does).
        """
        values = np.asarray(utilities, dtype=np.float64)
        if values.shape != (size,):
            raise InvalidParameter(f"utilities must have one value for each of the {size} labels")
        step = 2.0 ** (math.frexp(self.utility_range / STEPS_PER_RANGE)[1] - 1)
        with np.errstate(over="ignore"):
            steps = np.floor(values / step)
        if not np.isfinite(steps).all():
            raise InvalidParameter("utilities must be finite, and not astronomically larger than utility_range")
        below = np.minimum(steps.max() - steps, DEEPEST)
        return (DEEPEST - below).astype(np.int64), self.utility_range / step + 2
