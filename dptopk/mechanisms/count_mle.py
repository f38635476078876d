"""Counts of labels that were discovered in an order, fitted to that order: CountMLE."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram, Sensitivity
from dptopk.mechanisms.base import Rows, rows_to_count
from dptopk.mechanisms.gaussian import KnownGaussian
from dptopk.mechanisms.laplace import KnownLaplace
from dptopk.release import Release

__all__ = ["CountMLE", "isotonic_least_squares", "isotonic_median"]


@dataclass(frozen=True, kw_only=True)
class CountMLE:
    """Noisy counts of ranked labels, then the most likely counts x_1 >= x_2 >= ... >= 0.

    Charge: that of the noise on as many labels; the fit is post-processing. Over Gaussian noise the fit is least
    squares, over Laplace noise least absolute deviations (of all optima the one nearest to the noisy counts in
    squares).

    Args:
        noise: KnownGaussian(...) or KnownLaplace(...).

    Source: Cesar-Rogers 2022, §6.1. Isotonic regression clipped at 0 solves its program exactly.

    >>> print(CountMLE(noise=KnownGaussian(sigma=5.0)).charge(Sensitivity(l0=4), labels=10))
    4*DGauss(5.0, 1)
    """

    noise: KnownGaussian | KnownLaplace

    def __post_init__(self) -> None:
        if not isinstance(self.noise, KnownGaussian | KnownLaplace):
            raise InvalidParameter(f"noise must be KnownGaussian or KnownLaplace, got {type(self.noise).__name__}")

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """The charge of the noise; ``labels`` = how many labels the ranking has, needed where l0 is None."""
        return self.noise.charge(sensitivity, labels=labels)

    def noise_std(self, sensitivity: Sensitivity) -> float:
        """Standard deviation of the noise on one count, before the fit."""
        return self.noise.noise_std(sensitivity)

    def half_width(self, sensitivity: Sensitivity, *, confidence: float = 0.95) -> int:
        """Half-width of an exact confidence interval around the noisy count, before the fit."""
        return self.noise.half_width(sensitivity, confidence=confidence)

    def check(self, histogram: Histogram, *, ranking: Release | Sequence[Any]) -> None:
        """Raise whatever ``release`` would raise for these arguments; nothing is drawn."""
        self.charge(histogram.sensitivity, labels=len(self._rows(histogram, ranking)))

    def _rows(self, histogram: Histogram, ranking: Release | Sequence[Any]) -> Rows:
        """The rows in the order of the ranking; never in the histogram's own order, which may be that of the counts."""
        if ranking is None:
            raise InvalidParameter("ranking must be a Release or a sequence of labels, got None")
        return rows_to_count(histogram, ranking, self)

    def release(
        self,
        histogram: Histogram,
        rng: np.random.Generator | None = None,
        *,
        ranking: Release | Sequence[Any],
    ) -> Release:
        """Fitted counts, real numbers >= 0, rows in the order of the ranking.

        Args:
            histogram: a public or a complete histogram, or the very histogram that ``ranking`` was released from.
            rng: a generator for tests and experiments (the release says so); None = a secure source.
            ranking: a Release, or labels in descending order that are public or were released before; a label without
                a row has count 0.

        Raises:
            InvalidParameter: before anything is drawn.
        """
        rows = self._rows(histogram, ranking)
        charge = self.charge(histogram.sensitivity, labels=len(rows))
        measured = self.noise.measure(histogram.sensitivity, rows, rng)
        fit = isotonic_least_squares if isinstance(self.noise, KnownGaussian) else isotonic_median
        return Release.drawn(
            histogram,
            rng,
            labels=tuple(rows.labels.tolist()),
            counts=fit(measured),
            charge=charge,
            mechanism=self,
            measured=measured,
            measurement=self.noise.measurement(histogram.sensitivity, len(rows), whole=False),
        )


def isotonic_least_squares(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The least-squares fit over x_1 >= x_2 >= ... >= 0, exact, linear time, float64, shape (n,).

    >>> isotonic_least_squares(np.array([3, 5, -2])).tolist()
    [4.0, 4.0, 0.0]
    """
    from scipy.optimize import isotonic_regression

    if len(values) == 0:
        return np.empty(0)
    # The bound x >= 0 only clips: the unbounded fit's blocks above 0 keep their means.
    fitted: np.ndarray[Any, Any] = isotonic_regression(np.asarray(values, dtype=np.float64), increasing=False).x
    clipped: np.ndarray[Any, Any] = np.maximum(fitted, 0.0)
    return clipped


def isotonic_median(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A least-absolute-deviations fit over x_1 >= x_2 >= ... >= 0, float64, shape (n,).

    Of the optima it is the one with the least squared distance to ``values``: the limit, for a vanishing weight on
    the squares, of a strictly convex isotonic fit. Its pool-adjacent-violators blocks take the value that minimises
    absolute, then squared deviations: the mean clipped to the interval of medians.

    >>> isotonic_median(np.array([3, 5, -2])).tolist()
    [4.0, 4.0, 0.0]
    """
    blocks: list[tuple[float, int, list[int]]] = []  # value, sum, sorted members
    for value in np.asarray(values).tolist():
        block = (float(value), value, [value])
        while blocks and blocks[-1][0] <= block[0]:
            block = _pool(blocks.pop(), block)
        blocks.append(block)
    fitted = np.repeat([value for value, _, _ in blocks], [len(members) for _, _, members in blocks])
    return np.maximum(fitted.astype(np.float64), 0.0)


def _pool(left: tuple[float, int, list[int]], right: tuple[float, int, list[int]]) -> tuple[float, int, list[int]]:
    small, large = sorted((left[2], right[2]), key=len)
    if len(small) < 8:
        for member in small:
            insort(large, member)
    else:
        large = sorted(large + small)
    total, n = left[1] + right[1], len(large)
    low, high = large[(n - 1) // 2], large[n // 2]
    return min(max(total / n, float(low)), float(high)), total, large
