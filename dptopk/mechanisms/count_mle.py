"""Counts of labels that were discovered in an order, fitted to that order: CountMLE."""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.search import first_true
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.centred import Centred
from dptopk.mechanisms.counting_mechanism import Labels, Rows, rows_to_count
from dptopk.mechanisms.gaussian import KnownGaussian
from dptopk.mechanisms.laplace import KnownLaplace
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.mechanisms.samplers.random import Array
from dptopk.mechanisms.samplers.simulation import Draw, SimulationInput
from dptopk.release.release import Release


class Variances(NamedTuple):
    """Variances of the noise on counts of one measurement, in squared counts.

    Attributes:
        own: of the noise that each count has by itself.
        shared: of the noise that all counts share; 0 if there is none.
    """

    own: float
    shared: float


@dataclass(frozen=True, kw_only=True)
class CountMLE(Mechanism):
    """Noisy counts of ranked labels, moved towards the most likely counts x_1 >= x_2 >= ... >= 0.

    The ranking was drawn with noise, so the order may be wrong. With y the noisy counts and f their
    isotonic fit, the release is y + w (f - y) with w in [0, 1] from y and f alone: the fit counts
    for much where it is near the noisy counts and for little where it is far. Over Gaussian noise
    the expected squared error is below that of y for *every* order, right or wrong
    (docs/notes/mechanisms.md, "Counts of ranked labels"; for discrete noise up to what it differs
    from the continuous one). ``shrink=False`` releases f itself, as published; that is better only
    where the order is right.

    Charge: the charge of ``noise`` on the labels of the ranking; all else is post-processing.

    Args:
        noise: KnownGaussian(...), KnownLaplace(...) or Centred(...).
        shrink: False = the published fit: least squares over Gaussian noise, least absolute
            deviations over Laplace noise (of all optima the one nearest to the noisy counts in
            squares).

    Source: Cesar-Rogers 2022, §6.1; isotonic regression clipped at 0 solves its program exactly.
    Shrinkage towards a cone: Kuriki-Takemura 2000, Amirdjanova-Woodroofe 2004, with Stein's w =
    min(1, (k - b - 2)_+ variance / |f - y|²), k the number of labels and b that of the fit's blocks
    above 0.

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
        """Return the charge of the noise; ``labels`` is the number of labels in the ranking, which
        must be given where l0 is None.
        """
        return self.noise.charge(sensitivity, labels=labels)

    def charge_of_passes(self, sensitivity: Sensitivity, labels: int, passes: int) -> Charge:
        """Return the charge of measuring the counts of the same labels ``passes`` times.

        Args:
            sensitivity: the histogram's.
            labels: how many labels are counted.
            passes: how many times, at least 1.
        """
        return self.noise.charge_of_passes(sensitivity, labels, passes)

    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float:
        """Return the standard deviation of the noise on one count, before the fit."""
        return self.noise.count_noise(sensitivity, labels=labels)

    def count_width(
        self, sensitivity: Sensitivity, *, labels: int | None = None, confidence: float = CONFIDENCE
    ) -> float:
        """Return the half-width of the noise on one count, before the fit."""
        return self.noise.count_width(sensitivity, labels=labels, confidence=confidence)

    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the noise on one count, before the fit."""
        return self.noise.selection_noise(sensitivity)

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int | None:
        """Return None, because all labels of the ranking are counted and none is hidden."""
        return self.noise.appears_at(sensitivity, probability=probability)

    def fit(self, measured: Array, sensitivity: Sensitivity, passes: int = 1) -> Array:
        """Return the counts to release, float64, shape (n,).

        Args:
            measured: noisy counts in the order of the ranking, shape (n,).
            sensitivity: the histogram's.
            passes: how many measurements ``measured`` is the mean of.

        Raises:
            InvalidParameter: as ``variances`` does.
        """
        if not self.shrink or not len(measured):
            return self._published_fit(measured)
        fitted, weight = self._fit_and_weight(measured, sensitivity, passes)
        return measured + weight * (fitted - measured)

    def error(self, measured: Array, sensitivity: Sensitivity) -> float:
        """Return an estimate of the root mean square error of a count of ``fit(measured)``,
        computed from what was released, at no privacy cost.

        Args:
            measured: the noisy counts in the order of the ranking (Release.measured), shape (k,).
            sensitivity: the histogram's.

        Returns:
            The root of Stein's estimate of the mean square error, which is unbiased for continuous
            Gaussian noise, with either value of ``shrink``. The estimate is raised to at least
            b/k times the variance of the noise, the error that remains where the order is right,
            with the k and b of the class docstring. 0 for no counts.

        Raises:
            InvalidParameter: as ``variances`` does.
        """
        k = len(measured)
        if k == 0:
            return 0.0
        fitted, weight = self._fit_and_weight(measured, sensitivity)
        if not self.shrink:
            weight = 1.0
        variances = self.variances(sensitivity)
        blocks = _number_of_blocks(fitted, clip=variances.shared == 0)
        square = float(((fitted - measured) ** 2).sum())
        # Stein's estimate of the sum of squared errors of the own noise after the fit, which is
        # y + w (f - y) with w < 1, or f itself.
        if weight < 1:
            risk = variances.own * (k - weight * max(k - blocks - 2, 0))
        else:
            risk = square + variances.own * (2 * blocks - k)
        least_risk = variances.own * blocks
        return math.sqrt(max(risk, least_risk) / k + variances.shared)

    def _fit_and_weight(
        self, measured: Array, sensitivity: Sensitivity, passes: int = 1
    ) -> tuple[Array, float]:
        """Return the isotonic fit f, float64, shape (n,), and the weight w in [0, 1], as the class
        docstring defines them.

        Noise that all counts share moves the fit as much as the counts, so that w depends on the
        own noise alone; where there is shared noise, the fit is not clipped at 0.

        Args:
            measured: the noisy counts in the order of the ranking, shape (n,).
            sensitivity: the histogram's.
            passes: of how many measurements ``measured`` is the mean.
        """
        variances = self.variances(sensitivity)
        own_variance = variances.own / passes
        clip = variances.shared == 0
        fitted = isotonic_least_squares(measured, clip=clip)
        blocks = _number_of_blocks(fitted, clip=clip)
        # w = min(1, (k - b - 2)_+ variance / |f - y|²), as the class says.
        numerator = max(len(measured) - blocks - 2, 0) * own_variance
        square = float(((fitted - measured) ** 2).sum())
        if square <= numerator:
            return fitted, 1.0
        return fitted, numerator / square

    def variances(self, sensitivity: Sensitivity) -> Variances:
        """Return the variance of each count's own noise, and the variance of the noise that all
        counts share (0 if there is none), of one measurement, in squared counts.

        Raises:
            InvalidParameter: where ``noise`` is a ``Centred`` whose common noise is not given: it
                depends on how many labels are counted.
        """
        noise = self.noise.noise_of(sensitivity, None)
        return Variances(noise.own_std**2, noise.shared_std**2)

    def _published_fit(self, measured: Array) -> Array:
        """Return the fit of maximum likelihood, without shrinkage, float64, shape (n,)."""
        if isinstance(self.noise, Centred):  # one noise moves all counts alike, perhaps below 0
            return isotonic_least_squares(measured, clip=False)
        if isinstance(self.noise, KnownGaussian):
            return isotonic_least_squares(measured)
        return isotonic_median(measured)

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Refuse to simulate a selection, because the ranking is an input.

        Raises:
            InvalidParameter: always.
        """
        raise InvalidParameter("CountMLE selects no labels: it counts those of a ranking")

    def recount_error(self, true: Array, shown: Array, inputs: SimulationInput) -> Array:
        """Return the simulated sum of squared errors of the fitted counts, measured as often as
        the charge of k counts allows, float64, shape (draws,).

        Args:
            true: true counts of the selected labels, shape (draws, k).
            shown: whether a label was selected at each place, bool, of the same shape.
            inputs: the known counts, k, the sensitivity and the standard noise.
        """
        k = inputs.k
        sensitivity = inputs.sensitivity
        kind = "laplace" if isinstance(self.noise, KnownLaplace) else "normal"
        charge = self.charge(sensitivity, labels=k)
        squares = np.zeros(len(true))
        for draw, (counts, is_shown) in enumerate(zip(true, shown, strict=True)):
            noise = inputs.standard.noise_of_measurement(kind, k, draw)
            truth = counts[is_shown]
            passes = self.passes(charge, sensitivity, len(truth))
            squares[draw] = self._square_error(truth, noise, sensitivity, passes)
        return squares

    def _square_error(
        self, truth: Array, noise: Array, sensitivity: Sensitivity, passes: int
    ) -> float:
        """Return the sum of squared errors of the fit to one draw of noisy counts.

        Args:
            truth: the true counts, shape (n,).
            noise: standard noise of variance 1: each count's own, in order, and last the value
                that all counts share; at least n + 1 values.
            sensitivity: the histogram's.
            passes: how many measurements are averaged.
        """
        variances = self.variances(sensitivity)
        own_noise = math.sqrt(variances.own) / math.sqrt(passes) * noise[: len(truth)]
        measured = truth + own_noise + math.sqrt(variances.shared) * noise[-1]
        fitted = self.fit(measured, sensitivity, passes)
        return float(((fitted - truth) ** 2).sum())

    def passes(self, charge: Charge, sensitivity: Sensitivity, rows: int) -> int:
        """Return how many times ``rows`` counts can be measured for at most this charge; at least
        once.

        Args:
            charge: what may be spent on the counts.
            sensitivity: the histogram's.
            rows: how many labels are counted.
        """
        if rows:
            return _most_passes(self, charge, sensitivity, rows)
        return 1

    def release_options(
        self, released: Release, charge: Charge, sensitivity: Sensitivity, *, average: bool
    ) -> dict[str, Any]:
        """Return the options ``ranking`` and ``passes`` of ``release``.

        With ``average`` the counts are measured as often as ``charge`` allows, else once.

        Args:
            released: the release that selected the labels.
            charge: the most that the release of counts may cost.
            sensitivity: the histogram's.
            average: whether to measure as often as ``charge`` allows.
        """
        passes = self.passes(charge, sensitivity, len(released)) if average else 1
        return {"ranking": released, "passes": passes}

    def scaled(self, factor: float) -> Self:
        """Return the mechanism with its noise divided by ``factor`` and the same fit."""
        return replace(self, noise=self.noise.scaled(factor))

    def check(self, histogram: Histogram, *, ranking: Labels) -> None:
        """Raise the error that ``release`` would raise for these arguments, without drawing
        noise.
        """
        rows = self._rows(histogram, ranking)
        # Refuses a sensitivity that is not covered, and more labels than the noise is for.
        self.charge(histogram.sensitivity, labels=len(rows))

    def _rows(self, histogram: Histogram, ranking: Labels) -> Rows:
        """Return the rows to count, in the order of the ranking.

        The order of the histogram is never used: it may be that of the true counts.

        Raises:
            InvalidParameter: for no ranking, or one of labels whose counts are unknown or may not
                be looked at.
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
        """Release fitted counts, real numbers, with the rows in the order of the ranking.

        Args:
            histogram: a public or a complete histogram, or the very histogram that ``ranking`` was
                released from.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.
            ranking: a Release, or labels in descending order that are public or were released
                before; a label without a row has count 0.
            passes: how many measurements to average, at a larger charge; of Centred noise only Z
                is drawn again. Intervals are those of the first measurement.

        Raises:
            InvalidParameter: for no ranking, labels whose counts are unknown or may not be looked
                at, passes below 1, or a sensitivity that ``noise`` does not cover; before anything
                is drawn.
        """
        rows = self._rows(histogram, ranking)
        sensitivity = histogram.sensitivity
        passes = validate.count(passes=passes)
        charge = self.charge_of_passes(sensitivity, len(rows), passes)
        note = f"counts are means of {passes} measurements" if passes > 1 else ""
        # The copy states the law of noise whose default depends on the number of labels.
        recorded = replace(self, noise=self.noise.as_recorded(sensitivity, len(rows)))
        repeated = recorded.noise.measure_repeatedly(sensitivity, rows, rng, passes)
        return Release.of_draw(
            histogram,
            rng,
            charge=charge,
            mechanism=recorded,
            labels=tuple(rows.labels.tolist()),
            measured=repeated.first,
            counts=recorded.fit(repeated.mean, sensitivity, passes),
            measurement=recorded.noise.measurement(sensitivity, len(rows), whole=False),
            note=note,
        )


def isotonic_least_squares(values: Array, *, clip: bool = True) -> Array:
    """Return the least-squares fit to ``values`` over x_1 >= x_2 >= ... >= 0, float64, shape (n,).

    It takes linear time and is exact up to rounding. ``clip=False`` drops the condition x >= 0.

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


def _number_of_blocks(fitted: Array, *, clip: bool) -> int:
    """Return the number of different values in a non-increasing fit, of a fit that was clipped at 0
    those above 0: b in the class docstring of CountMLE.

    It is the number of dimensions in which a fit with the same blocks can vary.
    """
    values = fitted[fitted > 0] if clip else fitted
    if not len(values):
        return 0
    steps = np.count_nonzero(values[1:] != values[:-1])
    return int(steps) + 1


def isotonic_median(values: Array) -> Array:
    """Return the least-absolute-deviations fit to ``values`` over x_1 >= x_2 >= ... >= 0, float64,
    shape (n,).

    Of the optima it is the one with the least squared distance to ``values``: the limit, for a
    vanishing weight on the squares, of a strictly convex isotonic fit. That is computed by pooling
    adjacent violators: each value begins as a block, and as long as a block is not above the next
    one, the two are merged. The value of a block minimises its absolute, then its squared
    deviations: it is the mean, clipped to the interval of medians.

    >>> isotonic_median(np.array([3, 5, -2])).tolist()
    [4.0, 4.0, 0.0]
    """
    blocks: list[_FittedBlock] = []
    for value in np.asarray(values).tolist():
        block = _FittedBlock(float(value), value, [value])
        while blocks and blocks[-1].value <= block.value:
            block = _merged_block(blocks.pop(), block)
        blocks.append(block)
    sizes = [len(block.members) for block in blocks]
    fitted = np.repeat([block.value for block in blocks], sizes)
    # As for least squares, the bound x >= 0 only clips.
    return np.maximum(fitted.astype(np.float64), 0.0)


class _FittedBlock(NamedTuple):
    """A block of successive counts that ``isotonic_median`` gives one value.

    Attributes:
        value: the fitted value.
        total: the sum of the members.
        members: the noisy counts of the block, sorted.
    """

    value: float
    total: int
    members: list[int]


def _merged_block(before: _FittedBlock, after: _FittedBlock) -> _FittedBlock:
    """Return two neighbouring blocks as one; its value is the mean, clipped to the interval of
    medians. The lists of members may be changed: neither block may be used afterwards.
    """
    total = before.total + after.total
    members = _merged_members(before.members, after.members)
    n = len(members)
    low_median = members[(n - 1) // 2]
    high_median = members[n // 2]
    value = min(max(total / n, float(low_median)), float(high_median))
    return _FittedBlock(value, total, members)


def _merged_members(first: list[int], second: list[int]) -> list[int]:
    """Return the members of two sorted lists, sorted; the longer list may be changed in place."""
    small, large = sorted((first, second), key=len)
    if len(small) >= _FEW_INSERTIONS:
        return sorted(large + small)
    for member in small:
        insort(large, member)
    return large


_FEW_INSERTIONS = 8  # fewer insertions than this are faster than a sort


@lru_cache(maxsize=4096)
def _most_passes(mechanism: CountMLE, charge: Charge, sensitivity: Sensitivity, rows: int) -> int:
    """Return the largest number of passes over ``rows`` >= 1 counts that ``charge`` includes, at
    least 1.

    Args:
        mechanism: the one that counts.
        charge: what may be spent on the counts; it includes one pass.
        sensitivity: the histogram's.
        rows: how many labels are counted.
    """

    def too_many(passes: int) -> bool:
        """Return whether the charge does not include this many passes."""
        return not charge.includes(mechanism.charge_of_passes(sensitivity, rows, passes))

    return first_true(too_many, 2) - 1
