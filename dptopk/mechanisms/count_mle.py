"""Counts of labels that were discovered in an order, fitted to that order: CountMLE."""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.search import first_true
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.centred import Centred
from dptopk.mechanisms.gaussian import KnownGaussian
from dptopk.mechanisms.laplace import KnownLaplace
from dptopk.mechanisms.mechanism import Labels, Mechanism, Rows, rows_to_count
from dptopk.mechanisms.samplers.random import Array
from dptopk.mechanisms.samplers.simulation import Draw, SimulationInput
from dptopk.release.release import Release


@dataclass(frozen=True, kw_only=True)
class CountMLE(Mechanism):
    """Noisy counts of ranked labels, drawn towards the counts x_1 >= x_2 >= ... >= 0 that are the
    most likely.

    The ranking was drawn with noise, so the order may be wrong. With y the noisy counts and f their
    isotonic fit, the release is y + w (f - y) with w in [0, 1] from y and f alone: the fit counts
    for much where it is near the noisy counts and for little where it is far. Over Gaussian noise
    the expected squared error is below that of y for *every* order, right or wrong
    (docs/notes/mechanisms.md, "Counts of ranked labels"; for discrete noise up to what it differs
    from the continuous one). ``shrink=False`` releases f itself, as published; that is better only
    where the order is right.

    Charge: that of the noise on as many labels; all else is post-processing.

    Args:
        noise: KnownGaussian(...), KnownLaplace(...) or Centred(...).
        shrink: False = the published fit: least squares over Gaussian noise, least absolute
            deviations over Laplace noise (of all optima the one nearest to the noisy counts in
            squares).

    Source: Cesar-Rogers 2022, §6.1; isotonic regression clipped at 0 solves its program exactly.
    Shrinkage towards a
    cone: Kuriki-Takemura 2000, Amirdjanova-Woodroofe 2004, with Stein's w = min(1, (k - b - 2)_+
    variance / |f - y|²), b the number of the fit's blocks above 0.

    >>> print(CountMLE(noise=KnownGaussian(sigma=5.0)).charge(Sensitivity(l0=4), labels=10))
    4*DGauss(5.0, 1)
    """

    noise: KnownGaussian | KnownLaplace | Centred
    shrink: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.noise, KnownGaussian | KnownLaplace | Centred):
            raise InvalidParameter(
                f"noise must be a mechanism for counts of known labels, got "
                f"{type(self.noise).__name__}"
            )
        validate.instance(bool, shrink=self.shrink)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """The charge of the noise; ``labels`` = how many labels the ranking has, needed where l0 is
        None.
        """
        return self.noise.charge(sensitivity, labels=labels)

    def repeated(self, sensitivity: Sensitivity, labels: int, passes: int) -> Charge:
        """Return the charge of a release with n passes."""
        return self.noise.repeated(sensitivity, labels, passes)

    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float:
        """Return the value of the noise, before the fit."""
        return self.noise.count_noise(sensitivity, labels=labels)

    def count_width(
        self, sensitivity: Sensitivity, *, labels: int | None = None, confidence: float = CONFIDENCE
    ) -> float:
        """Return the value of the noise, before the fit."""
        return self.noise.count_width(sensitivity, labels=labels, confidence=confidence)

    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the selection noise of the counts before the fit."""
        return self.noise.selection_noise(sensitivity)

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int | None:
        """None: all labels of the ranking are counted."""
        return self.noise.appears_at(sensitivity, probability=probability)

    def fit(self, measured: Array, sensitivity: Sensitivity, passes: int = 1) -> Array:
        """The counts released for noisy counts in the order of the ranking, float64, shape (n,).

        ``passes``: how many measurements the noisy counts are the mean of.
        """
        if not self.shrink or not len(measured):
            return self._published(measured)
        fitted, weight = self._target(measured, sensitivity, passes)
        return measured + weight * (fitted - measured)

    def error(self, measured: Array, sensitivity: Sensitivity) -> float:
        """An estimate of the root mean square error of ``fit(measured)``, from what was released:
        costs nothing.

        Args:
            measured: the noisy counts in the order of the ranking (Release.measured).
            sensitivity: the histogram's.

        Returns:
            Stein's unbiased estimate (over continuous Gaussian noise; else an estimate), not below
            the error that is left where the order is right, sqrt(blocks/k) of the noise. Of the
            published fit (shrink=False) as well.
        """
        k = len(measured)
        if k == 0:
            return 0.0
        fitted, weight = self._target(measured, sensitivity)
        weight = weight if self.shrink else 1.0
        own, shared = self.variances(sensitivity)
        blocks = _blocks(fitted, clip=shared == 0)
        square = float(((fitted - measured) ** 2).sum())
        shrunk = own * (k - weight * max(k - blocks - 2, 0))
        whole = square + own * (2 * blocks - k)
        risk = shrunk if weight < 1 else whole
        return math.sqrt(max(risk, own * blocks) / k + shared)

    def _target(
        self, measured: Array, sensitivity: Sensitivity, passes: int = 1
    ) -> tuple[Array, float]:
        """The isotonic fit and the weight w. A noise that all counts share moves the fit as it
        moves them.
        """
        own, shared = self.variances(sensitivity)
        own /= passes
        fitted = isotonic_least_squares(measured, clip=shared == 0)
        blocks = _blocks(fitted, clip=shared == 0)
        spare = max(len(measured) - blocks - 2, 0) * own
        square = float(((fitted - measured) ** 2).sum())
        if square <= spare:
            return fitted, 1.0
        return fitted, spare / square

    def variances(self, sensitivity: Sensitivity) -> tuple[float, float]:
        """Variance of the noise that each count has for itself, and of the noise that all share."""
        noise = self.noise.noise_of(sensitivity, None)
        return noise.own_std**2, noise.shared_std**2

    def _published(self, measured: Array) -> Array:
        if isinstance(self.noise, Centred):
            return isotonic_least_squares(measured, clip=False)
        if isinstance(self.noise, KnownGaussian):
            return isotonic_least_squares(measured)
        return isotonic_median(measured)

    def simulate(self, scene: SimulationInput) -> Draw:
        """Refused: the ranking is given."""
        raise InvalidParameter("CountMLE selects no labels: it counts those of a ranking")

    def recount_error(self, true: Array, shown: Array, scene: SimulationInput) -> Array:
        """Return the error of fitted counts, measured as often as the charge of k counts allows."""
        k = scene.k
        sensitivity = scene.sensitivity
        kind = "laplace" if isinstance(self.noise, KnownLaplace) else "normal"
        charge = self.charge(sensitivity, labels=k)
        squares = np.zeros(len(true))
        for draw, (counts, there) in enumerate(zip(true, shown, strict=True)):
            noise = scene.standard.measured(kind, k, draw)
            truth = counts[there]
            passes = self.passes(charge, sensitivity, len(truth))
            squares[draw] = self._square_error(truth, noise, sensitivity, passes)
        return squares

    def _square_error(
        self, truth: Array, noise: Array, sensitivity: Sensitivity, passes: int
    ) -> float:
        """The square error of the fit to counts with noise of variance 1; the last is shared."""
        own, shared = self.variances(sensitivity)
        scale = math.sqrt(own) / math.sqrt(passes)
        measured = truth + scale * noise[: len(truth)] + math.sqrt(shared) * noise[-1]
        fitted = self.fit(measured, sensitivity, passes)
        return float(((fitted - truth) ** 2).sum())

    def passes(self, charge: Charge, sensitivity: Sensitivity, rows: int) -> int:
        """Return how often n rows can be counted for at most this charge."""
        if rows:
            return _passes(self, charge, sensitivity, rows)
        return 1

    def release_options(
        self, released: Release, charge: Charge, sensitivity: Sensitivity, *, average: bool
    ) -> dict[str, Any]:
        """The ranking, and how often to count it."""
        passes = self.passes(charge, sensitivity, len(released)) if average else 1
        return {"ranking": released, "passes": passes}

    def scaled(self, factor: float) -> Self:
        """The same fit of counts with scaled noise."""
        return replace(self, noise=self.noise.scaled(factor))

    def check(self, histogram: Histogram, *, ranking: Labels) -> None:
        """Raise the error that ``release`` would raise for these arguments, without drawing
        noise.
        """
        self.charge(histogram.sensitivity, labels=len(self._rows(histogram, ranking)))

    def _rows(self, histogram: Histogram, ranking: Labels) -> Rows:
        """The rows in the order of the ranking; never in the histogram's own order, which may be
        that of the counts.
        """
        if ranking is None:
            raise InvalidParameter("ranking must be a Release or a sequence of labels, got None")
        return rows_to_count(histogram, ranking, self)

    def release(
        self,
        histogram: Histogram,
        rng: np.random.Generator | None = None,
        *,
        ranking: Labels,
        passes: int = 1,
    ) -> Release:
        """Fitted counts, real numbers, rows in the order of the ranking.

        Args:
            histogram: a public or a complete histogram, or the very histogram that ``ranking`` was
                released from.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.
            ranking: a Release, or labels in descending order that are public or were released
                before; a label without a row has count 0.
            passes: measure that many times, at a larger charge, and release the mean: of Centred
                noise only Z is drawn again. Intervals are those of the first measurement.

        Raises:
            InvalidParameter: before anything is drawn.
        """
        rows = self._rows(histogram, ranking)
        sensitivity = histogram.sensitivity
        passes = validate.count(passes=passes)
        charge = self.repeated(sensitivity, len(rows), passes)
        written = replace(self, noise=self.noise.resolved(sensitivity, len(rows)))
        measured, mean = written.noise.measure_again(sensitivity, rows, rng, passes)
        return Release.drawn(
            histogram,
            rng,
            charge=charge,
            mechanism=written,
            labels=tuple(rows.labels.tolist()),
            measured=measured,
            counts=written.fit(mean, sensitivity, passes),
            measurement=written.noise.measurement(sensitivity, len(rows), whole=False),
            note=f"counts are means of {passes} measurements" if passes > 1 else "",
        )


def isotonic_least_squares(values: Array, *, clip: bool = True) -> Array:
    """The least-squares fit over x_1 >= x_2 >= ... >= 0, exact, linear time, float64, shape (n,);
    clip=False: any sign.

    >>> isotonic_least_squares(np.array([3, 5, -2])).tolist()
    [4.0, 4.0, 0.0]
    """
    from scipy.optimize import isotonic_regression

    if len(values) == 0:
        return np.empty(0)
    # The bound x >= 0 only clips: the unbounded fit's blocks above 0 keep their means.
    fitted: Array = isotonic_regression(np.asarray(values, dtype=np.float64), increasing=False).x
    if clip:
        return np.maximum(fitted, 0.0)
    return fitted


def _blocks(fitted: Array, *, clip: bool) -> int:
    """The dimension of the face that a falling fit lies in: its different values, of a clipped fit
    those above 0.
    """
    values = fitted[fitted > 0] if clip else fitted
    if not len(values):
        return 0
    steps = np.count_nonzero(values[1:] != values[:-1])
    return int(steps) + 1


def isotonic_median(values: Array) -> Array:
    """A least-absolute-deviations fit over x_1 >= x_2 >= ... >= 0, float64, shape (n,).

    Of the optima it is the one with the least squared distance to ``values``: the limit, for a
    vanishing weight on the squares, of a strictly convex isotonic fit. Its pool-adjacent-violators
    blocks take the value that minimises absolute, then squared deviations: the mean clipped to the
    interval of medians.

    >>> isotonic_median(np.array([3, 5, -2])).tolist()
    [4.0, 4.0, 0.0]
    """
    blocks: list[tuple[float, int, list[int]]] = []  # value, sum, sorted members
    for value in np.asarray(values).tolist():
        block = (float(value), value, [value])
        while blocks and blocks[-1][0] <= block[0]:
            block = _pool(blocks.pop(), block)
        blocks.append(block)
    sizes = [len(members) for _, _, members in blocks]
    fitted = np.repeat([value for value, _, _ in blocks], sizes)
    return np.maximum(fitted.astype(np.float64), 0.0)


def _pool(
    left: tuple[float, int, list[int]], right: tuple[float, int, list[int]]
) -> tuple[float, int, list[int]]:
    small, large = sorted((left[2], right[2]), key=len)
    if len(small) < 8:
        for member in small:
            insort(large, member)
    else:
        large = sorted(large + small)
    total = left[1] + right[1]
    n = len(large)
    low = large[(n - 1) // 2]
    high = large[n // 2]
    value = min(max(total / n, float(low)), float(high))
    return value, total, large


@lru_cache(maxsize=4096)
def _passes(mechanism: CountMLE, charge: Charge, sensitivity: Sensitivity, rows: int) -> int:
    def too_many(passes: int) -> bool:
        return not charge.includes(mechanism.repeated(sensitivity, rows, passes))

    return first_true(too_many, 2) - 1
