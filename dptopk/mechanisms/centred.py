"""Counts whose noise is centred: half of what one user moves is taken up by one noise that all
counts share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

import numpy as np

from dptopk._internal import validate
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.counting_mechanism import CountingMechanism, Repeated, Rows
from dptopk.mechanisms.gaussian import KnownGaussian
from dptopk.mechanisms.laplace import KnownLaplace
from dptopk.mechanisms.mechanism import require_add_remove
from dptopk.mechanisms.samplers.random import Array, Bits, Rng, random_bits
from dptopk.mechanisms.samplers.simulation import Noise, SimulationInput, StandardNoise
from dptopk.release.intervals import Measurement

# The largest b of a centre a/b: a limit on how fine the steps of 1/b are in which noise is drawn;
# ``best_centre`` needs no more than 8.
LARGEST_DENOMINATOR = 1000


@dataclass(frozen=True, kw_only=True)
class Centred(CountingMechanism):
    """Count i + (Z_i + Y)/b with independent integer noises Z_i and one Y for all counts; centre
    a/b, at most 1/2.

    A user who is added moves b·count by anything between 0 and b·linf. Seen from its middle,
    a·linf, that is a move of at most (b-a)·linf to either side, and the middle itself is hidden by
    Y, once for all counts together.

    Charge, for k labels of which one user touches at most t = min(l0, k): t pairs of Z at the shift
    (b-a)·linf, k - t pairs of Z at the shift a·linf, and one pair of Y at the shift a·linf; at the
    centre 1/2 that is k pairs of Z and one of Y at linf, for any l0. For large k the noise on a
    count is half that of independent noise of the same cost. Neighbours: add or remove one user.
    The noise is correlated: every count carries the same Y.

    Args:
        noise: KnownGaussian or KnownLaplace: the law of Z, at the scale it has by itself
            (linf·sigma or linf/epsilon).
        common: the law of Y, of the same class; None = the ratio to ``noise`` with the least noise
            on a count for its cost, given how many labels are counted.
        centre: a/b with 0 < a/b <= 1/2 and b at most 1000; below 1/2 for users who touch few of the
            labels.

    Source: docs/notes/centred.md, for other integer noise and any centre. A shared Laplace draw:
    Lebeda-Tětek 2025.
    Gaussian: Joseph-Yu 2024; Lebeda 2025; discrete Gaussian: Lebeda-Retschmeier 2025 (arXiv
    2412.10357).

    >>> mechanism = Centred(noise=KnownGaussian(sigma=10.0), common=KnownGaussian(sigma=5.0))
    >>> print(mechanism.charge(Sensitivity(), labels=25))
    DGauss(5.0, 1) + 25*DGauss(10.0, 1)
    """

    noise: KnownGaussian | KnownLaplace
    common: KnownGaussian | KnownLaplace | None = None
    centre: Fraction = Fraction(1, 2)

    def __post_init__(self) -> None:
        parts = {"noise": self.noise}
        if self.common is not None:
            parts["common"] = self.common
        for name, part in parts.items():
            if not isinstance(part, KnownGaussian | KnownLaplace):
                raise InvalidParameter(
                    f"{name} must be KnownGaussian or KnownLaplace, got {type(part).__name__}"
                )
        if self.common is not None and type(self.common) is not type(self.noise):
            raise InvalidParameter("common must be of the same kind as noise")
        validate.assign(self, centre=_validated_centre(self.centre))

    def __repr__(self) -> str:
        """Return the text of a dataclass, with the centre as a fraction."""
        return f"Centred(noise={self.noise}, common={self.common}, centre={self.centre})"

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return the costs of the noises Z_i and Y at the largest shifts of what they are added to;
        these dominate every smaller move in both directions.

        Raises:
            InvalidParameter: when ``labels``, the number of labels counted, is not given: every
                counted label costs something; for a sensitivity for which the costs are not proven
                (``require_add_remove``), and noise whose scale cannot be drawn.
        """
        linf = require_add_remove(sensitivity).linf
        if labels is None:
            raise InvalidParameter("labels must be given: how many labels are counted")
        labels = validate.count(labels=labels, at_least=0)
        self.noise.law(sensitivity)  # refuses a scale that cannot be drawn
        if labels == 0:
            return Charge()
        touched = sensitivity.touched(labels)
        shift_of_untouched = self.centre.numerator * linf
        shift_of_touched = (self.centre.denominator - self.centre.numerator) * linf
        common = self.common_noise(sensitivity, labels)
        # A touched count lies up to b·linf from where it was, hence (b-a)·linf from the centre
        # a·linf; an untouched one lies a·linf from it.
        cost_of_touched = Charge({self.noise.cost(sensitivity, shift_of_touched): touched})
        untouched = labels - touched
        cost_of_untouched = Charge({self.noise.cost(sensitivity, shift_of_untouched): untouched})
        cost_of_common = Charge({common.cost(sensitivity, shift_of_untouched): 1})
        return Charge.join(cost_of_touched, cost_of_untouched, cost_of_common)

    def charge_of_passes(self, sensitivity: Sensitivity, labels: int, passes: int) -> Charge:
        """Return the charge of measuring the same counts ``passes`` times with Y drawn once: Z is
        paid for each time, Y once.

        By the proof of docs/notes/centred.md: y_0 + Y is released once, each y_i + Z_i several
        times.

        Args:
            sensitivity: the histogram's.
            labels: how many labels are counted.
            passes: how many times, at least 1.
        """
        once = self.charge(sensitivity, labels=labels)
        if labels == 0:
            return once
        shift_of_common = self.centre.numerator * sensitivity.linf
        cost_of_common = self.common_noise(sensitivity, labels).cost(sensitivity, shift_of_common)
        return once.times(passes).minus(Charge({cost_of_common: passes - 1}))

    def measure_repeatedly(
        self, sensitivity: Sensitivity, rows: Rows, rng: Rng, passes: int
    ) -> Repeated:
        """Measure the rows' counts ``passes`` times, in multiples of 1/b, float64.

        All measurements share one draw of Y, so that only Z averages out.

        Args:
            sensitivity: the histogram's.
            rows: the labels and their true counts, n of them.
            rng: None for cryptographically secure noise.
            passes: how many measurements there are, at least 1.
        """
        bits = random_bits(rng)
        if not len(rows):
            return Repeated(np.empty(0), np.empty(0))
        own_noises = [self.noise.draw_noise(sensitivity, len(rows), bits) for _ in range(passes)]
        common = self.common_noise(sensitivity, len(rows)).draw_noise(sensitivity, 1, bits)
        measurements = [self.noisy_counts(rows.counts, noise + common) for noise in own_noises]
        return Repeated(measurements[0], np.mean(measurements, axis=0))

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Array:
        """Draw Z + Y, in steps of 1/b, int64, shape (size,).

        Args:
            sensitivity: the histogram's.
            size: how many counts get noise.
            bits: the source of words.
        """
        own_noise = self.noise.draw_noise(sensitivity, size, bits)
        return own_noise + self.common_noise(sensitivity, size).draw_noise(sensitivity, 1, bits)

    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Return the simulated (Z_i + Y)/b: its own Z for each count and one Y for all counts of a
        draw.
        """
        own_noise = self.noise.float_noise(inputs, labels)
        common = self.float_common(inputs, labels)
        return lambda number: own_noise(number) / self.centre.denominator + common(number)

    def float_common(self, inputs: SimulationInput, labels: int) -> Noise:
        """Return the simulated Y/b, in counts: a function of the number of a block of draws that
        returns one value for each draw, float64, shape (draws, 1).
        """
        # Blocks for 0 labels have one column, the one that is otherwise for the floor.
        once = replace(inputs, standard=StandardNoise(0, of="common"))
        common = self.common_noise(inputs.sensitivity, labels).float_noise(once, labels)
        return lambda number: common(number) / self.centre.denominator

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float:
        """Return an upper bound on the probability that a label is ranked below one whose count is
        lower by ``gap``; Y cancels in the comparison, so that it depends on Z alone, in steps of
        1/b.
        """
        return self.noise.swap_chance(sensitivity, gap * self.centre.denominator)

    def common_noise(
        self, sensitivity: Sensitivity, labels: int | None
    ) -> KnownGaussian | KnownLaplace:
        """Return the mechanism that states the law of Y when ``labels`` labels are counted.

        Where ``common`` is None, the scale of Y minimises the variance of Z + Y at equal cost
        (Gaussian: in μ², which falls with the square of a scale; Laplace: in ε, which falls with
        the scale). With w the cost of all Z over that of Y if both had the same scale, Y has the
        scale of Z times w^(-1/4), or times w^(-1/3) for Laplace noise.

        Raises:
            InvalidParameter: when both ``common`` and ``labels`` are None.
        """
        if self.common is not None:
            return self.common
        if labels is None:
            raise InvalidParameter(
                "labels must be given: the common noise depends on how many labels are counted"
            )
        touched = sensitivity.touched(validate.count(labels=labels))
        a = self.centre.numerator
        b = self.centre.denominator
        # A touched count is shifted by b - a, an untouched one and Y by a (``charge``).
        if isinstance(self.noise, KnownGaussian):
            weight = (touched * (b - a) ** 2 + (labels - touched) * a**2) / a**2
            return KnownGaussian(sigma=self.noise.sigma / weight**0.25)
        weight = (touched * (b - a) + (labels - touched) * a) / a
        return KnownLaplace(epsilon=self.noise.epsilon * weight ** (1 / 3))

    def as_recorded(self, sensitivity: Sensitivity, labels: int) -> Self:
        """Return the mechanism with ``common`` set to its value for ``labels`` labels; for no
        label, the mechanism as it is.
        """
        if labels:
            return replace(self, common=self.common_noise(sensitivity, labels))
        return self

    def assumed_labels(self) -> int:
        """Return one as the number of labels to assume, if the common noise is given.

        Raises:
            InvalidParameter: if the common noise depends on how many labels are counted.
        """
        self.common_noise(Sensitivity(), None)  # refuses common noise that depends on their number
        return 1

    def scaled(self, factor: float) -> Self:
        """Return the mechanism with both noises divided by ``factor``, as ``Mechanism.scaled``
        rounds them.
        """
        common = None if self.common is None else self.common.scaled(factor)
        return replace(self, noise=self.noise.scaled(factor), common=common)

    def tail(self, sensitivity: Sensitivity, c: float, *, labels: int | None = None) -> float:
        """Return an upper bound on P[|noise of a count| > c]; 1 where no bound is known for the
        sum of the two noises.

        Args:
            sensitivity: the histogram's.
            c: at least 0, in counts.
            labels: how many labels are counted; needed where ``common`` is None.

        Raises:
            InvalidParameter: when both ``common`` and ``labels`` are None.
        """
        steps = math.floor(Fraction(c) * self.centre.denominator)
        common = self.common_noise(sensitivity, labels).law(sensitivity)
        bound = self.noise.law(sensitivity).sum_miss_probability(common, steps)
        if bound is None:
            return 1.0
        return bound

    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """Return the law of the noise, as intervals need it: Z for each of ``labels`` labels, one Y
        common to all, in steps of 1/b.

        Args:
            sensitivity: the histogram's.
            labels: how many labels are counted together.
            whole: whether these are all labels of the domain.
        """
        law = self.noise.law(sensitivity)
        divisor = self.centre.denominator
        common = self.common_noise(sensitivity, labels).law(sensitivity) if labels else None
        return Measurement(law, labels, whole=whole, common=common, divisor=divisor)

    def measure(self, sensitivity: Sensitivity, rows: Rows, rng: Rng) -> Array:
        """Return the noisy counts, multiples of 1/b in the order of the rows, float64, shape
        (n,).

        Args:
            sensitivity: the histogram's.
            rows: the labels and their true counts, n of them.
            rng: None for cryptographically secure noise.
        """
        return self.measure_repeatedly(sensitivity, rows, rng, passes=1).first

    def noisy_counts(self, counts: Array, noise: Array) -> Array:
        """Return counts + noise/b, float64, shape (n,).

        The whole part of noise/b is added as an integer, so that nothing overflows.
        """
        whole_part, remainder = np.divmod(noise, self.centre.denominator)
        return (counts + whole_part) + remainder / self.centre.denominator


def best_centre(labels: int, touched: int, *, largest_denominator: int = 8) -> Fraction:
    """Return the centre with the least Gaussian noise on a count for its cost, among fractions
    with a denominator of at most ``largest_denominator``.

    The noise at unit cost is sqrt(t (1-c)² + (k-t) c²) + c for k = ``labels`` labels of which a
    user touches t = ``touched``. Ties go to the smaller denominator. Where a user touches so few of
    the labels that a centre below 1/8 would be the best, independent noise, at sqrt(t), is as good
    within 4%.

    Args:
        labels: k >= 1, how many labels are counted.
        touched: t in [1, k], how many of them one user touches at most.
        largest_denominator: at least 2.

    >>> best_centre(25, 25), best_centre(100, 25)
    (Fraction(1, 2), Fraction(1, 5))
    """
    centres: set[Fraction] = set()
    for b in range(2, largest_denominator + 1):
        centres.update(Fraction(a, b) for a in range(1, b // 2 + 1))

    def spread(c: Fraction) -> float:
        """Return the noise at unit cost."""
        return math.sqrt(touched * (1 - c) ** 2 + (labels - touched) * c**2) + float(c)

    return min(sorted(centres, key=lambda c: c.denominator), key=spread)


def _validated_centre(value: Fraction | float | str) -> Fraction:
    """Return the centre as a fraction.

    Raises:
        InvalidParameter: when it is not in (0, 1/2] or its denominator is too large.
    """
    try:
        centre = Fraction(value)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        raise InvalidParameter(f"centre must be a fraction such as 1/2, got {value!r}") from None
    if not 0 < centre <= Fraction(1, 2) or centre.denominator > LARGEST_DENOMINATOR:
        raise InvalidParameter(
            f"centre must be in (0, 1/2] with a denominator of at most {LARGEST_DENOMINATOR}, "
            f"got {centre}"
        )
    return centre
