"""The protocol of all mechanisms, what they ask of a sensitivity and of a histogram before anything
is charged, and the base of those that release labels without counts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.formatting import numbered
from dptopk._internal.rounding import ceil_digits, floor_digits
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.samplers.random import Array
from dptopk.mechanisms.samplers.simulation import Draw, SimulationInput
from dptopk.release.release import Release, fields_to_json

# In counts: predicted selections have at least this much noise, so that no gap is divided by 0.
LEAST_NOISE = 1e-3
# In counts. Noise of a larger scale could leave the 64-bit integers with a probability that is not
# absurdly small.
LARGEST_SCALE = 2.0**48

# As many labels of a public domain as a program may name one by one: each takes about 200 bytes and
# 2 µs, so that all take 2 GB and 20 seconds.
LARGEST_NAMING = 10**7


class Mechanism(ABC):
    """All that a session, a plan, the service, a ledger and an audit ask of a mechanism, a frozen
    dataclass.

    One user changes at most ``l0`` counts, in one direction, each by at most ``linf`` (τ in
    formulas), all together by at most ``l1`` (``Sensitivity``). The labels of a *public* domain are
    known to everybody. Those of a *private* one come from the data: there a label is shown only if
    its noisy count exceeds the *floor*, which is the count of a fixed rank or 0, by an offset.

    A new one says what it costs (``charge``), what it refuses (``check``), what it answers
    (``release``), how it does in a plan (``simulate``), and what its answer is worth
    (``selection_noise``, ``count_noise``, ``appears_at``). One line makes it known by its name:
    ``dptopk.mechanisms.named.register``.

    Its parameters are validated when it is made: one out of range raises InvalidParameter. A method
    whose answer depends on the sensitivity raises it for one that the mechanism does not cover, and
    for parameters with which its noise cannot be drawn or its threshold cannot be stated.
    """

    #: Whether it may show more than k labels, all of which are counted before the k largest remain.
    open_ended: ClassVar[bool] = False
    #: Whether the charge for fewer labels than were asked for may be larger (see ``Box``).
    fewer_cost_more: ClassVar[bool] = False
    #: The parameters to which noise is inverse, and those to which it is proportional.
    noise_falls_with: ClassVar[tuple[str, ...]] = ()
    noise_grows_with: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        validate.parameters(self)

    @abstractmethod
    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return the most that a release can cost, known before any data is seen.

        Args:
            sensitivity: the histogram's.
            labels: how many labels' counts are released; None where that is not known.

        Raises:
            InvalidParameter: for a sensitivity that the mechanism does not cover, and where the
                charge depends on ``labels`` and they are not given.
        """

    @abstractmethod
    def check(self, histogram: Histogram, *_: Any, **options: Any) -> None:
        """Raise the error that ``release`` would raise for these arguments, without drawing
        noise.
        """

    @abstractmethod
    def release(
        self, histogram: Histogram, rng: np.random.Generator | None = None, *_: Any, **options: Any
    ) -> Release:
        """Draw the answer; the charge of the release is the part of ``charge`` that was used."""

    @abstractmethod
    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of labels from known counts in floating point: for plans, never
        for releases.

        Args:
            inputs: the known counts, k, the sensitivity and the standard noise to scale.

        Returns:
            A function that takes the number of a block of draws and returns two arrays of shape
            (draws, k): the ranks of the chosen labels (-1: none) and their noisy counts, float64
            (0 where the mechanism releases none).
        """

    @abstractmethod
    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation, in counts, of the noise that decides which labels are
        chosen; inf where it depends on the counts.
        """

    @abstractmethod
    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float | None:
        """Return the standard deviation of the noise on a released count; None for a mechanism
        that releases no counts.

        ``labels`` is the number of labels that are counted together.
        """

    @abstractmethod
    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int | None:
        """Return by how many counts a label must exceed the floor to appear with at least this
        probability; None in a public domain, where no label is hidden.

        The floor is the count of rank ``floor_rank``, or 0 where that is None; the probability is
        in (0, 1).
        """

    def count_width(
        self, sensitivity: Sensitivity, *, labels: int | None = None, confidence: float = CONFIDENCE
    ) -> float | None:
        """Return a width w such that the noise of one released count is within ±w with at least
        this confidence; None for a mechanism that releases no counts.

        This default follows from Chebyshev's inequality; mechanisms with a known law of noise
        return a smaller width. The count must not have been selected by the same noise.

        Args:
            sensitivity: the histogram's.
            labels: how many labels are counted together, for noise that depends on it.
            confidence: in (0, 1).

        Raises:
            InvalidParameter: for a confidence outside its range.
        """
        confidence = validate.probability(allow_zero=False, confidence=confidence)
        deviation = self.count_noise(sensitivity, labels=labels)
        if deviation is None:
            return None
        return deviation / math.sqrt(1 - confidence)

    def chance_to_exceed(self, sensitivity: Sensitivity, noise: float, gaps: Array) -> Array:
        """Return, for plans, an estimate of the probability that the noise by which labels are
        selected exceeds each gap; this default takes the noise for normal.

        Args:
            sensitivity: that of the histogram.
            noise: ``selection_noise`` at this sensitivity, in counts.
            gaps: in counts, of any shape and either sign.

        Returns:
            The probabilities, float64, in the shape of ``gaps``.
        """
        from scipy.special import ndtr

        deviation = max(noise, LEAST_NOISE)
        chances: Array = ndtr(-gaps / deviation)  # P[noise > gap] = Φ(-gap / deviation)
        return chances

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float | None:
        """Return the probability that a label is ranked below one whose count is lower by ``gap``,
        in counts, or an upper bound on it; None if no formula is known, as in this default.
        """
        return None

    def threshold_offset(self, sensitivity: Sensitivity) -> int | None:
        """Return the threshold as a distance above the floor, in counts: a noisy count must exceed
        the floor by more than this to be shown; None if there is no threshold.
        """
        require_add_remove(sensitivity)
        return None

    @property
    def floor_rank(self) -> int | None:
        """Return the rank of the count that labels are compared with, which is the last count that
        is used; None for a mechanism that uses all counts.
        """
        return None

    def release_options(
        self, released: Release, charge: Charge, sensitivity: Sensitivity, *, average: bool
    ) -> dict[str, Any]:
        """Return the keyword options of ``release`` for counting the labels of a selection; those
        of this default measure each count once.

        Args:
            released: the release that selected the labels.
            charge: the most that the release of counts may cost.
            sensitivity: the histogram's.
            average: whether to measure repeatedly for as long as ``charge`` pays for it.
        """
        return {"labels": released}

    def recount_error(self, true: Array, shown: Array, inputs: SimulationInput) -> Array:
        """Return the simulated sum of squared errors of the counts measured after a selection.

        Args:
            true: true counts of the selected labels, shape (draws, k); this default does not need
                them, as its error is that of the noise alone.
            shown: whether a label was selected at each place, bool, of the same shape.
            inputs: the known counts, k, the sensitivity and the standard noise.

        Returns:
            An estimate for each draw, float64, shape (draws,).

        Raises:
            InvalidParameter: where no counts are released.
        """
        deviation = self.count_noise(inputs.sensitivity, labels=inputs.k)
        if deviation is None:
            raise InvalidParameter(f"{type(self).__name__} releases no counts")
        # The expected square of each error is the variance of the noise.
        errors: Array = shown.sum(axis=1) * deviation**2
        return errors

    def scaled(self, factor: float) -> Self:
        """Return the mechanism with its noise divided by ``factor``; δ and d_bar stay.

        The new parameters are rounded to six digits, to the side that costs less.

        Raises:
            InvalidParameter: for a mechanism that does not say which parameters scale its noise.
        """
        if not (self.noise_falls_with or self.noise_grows_with):
            name = type(self).__name__
            raise InvalidParameter(f"mechanism: {name} does not say how its noise is scaled")
        scaled: dict[str, float] = {}
        for name in self.noise_falls_with:
            scaled[name] = floor_digits(getattr(self, name) * factor)
        for name in self.noise_grows_with:
            scaled[name] = ceil_digits(getattr(self, name) / factor)
        return replace(self, **scaled)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """Return the mechanism's name and parameters as JSON can hold them;
        ``dptopk.mechanisms.named.mechanism_of`` reads them back.
        """
        plain: dict[str, Any] = fields_to_json(self)
        return plain

    @classmethod
    def from_dict(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the mechanism with these parameters, those of ``to_dict`` without the name.

        Raises:
            InvalidParameter: for parameters that the class does not take, that are missing, or
                whose values are out of range.
        """
        all_fields = fields(cls)  # type: ignore[arg-type]
        fields_of_class = {field.name: field for field in all_fields if field.init}
        if not parameters.keys() <= fields_of_class.keys():
            raise InvalidParameter(
                f"mechanism: {cls.__name__} takes {', '.join(sorted(fields_of_class))}"
            )
        needed = {name for name, field in fields_of_class.items() if _has_no_default(field)}
        missing = sorted(needed - parameters.keys())
        if missing:
            raise InvalidParameter(f"mechanism: {cls.__name__} needs {', '.join(missing)} too")
        return cls(**parameters)


def _has_no_default(field: Field[Any]) -> bool:
    """Return whether a field of a dataclass must be given."""
    return field.default is MISSING and field.default_factory is MISSING


class LabelsOnly(Mechanism):
    """Base of the mechanisms that release labels without counts, from a public domain unless they
    override ``appears_at``.
    """

    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return infinity, because the noise depends on the counts."""
        require_add_remove(sensitivity)
        return math.inf

    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float | None:
        """Return None, because no counts are released."""
        require_add_remove(sensitivity)
        return None

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int | None:
        """Return None, because every label may be drawn, whatever its count."""
        require_add_remove(sensitivity)
        return None


def require_add_remove(sensitivity: Sensitivity) -> Sensitivity:
    """Return the sensitivity, if it is one for which the charges of this package are proven.

    Raises:
        InvalidParameter: for neighbours="replace_one": the user who leaves and the user who comes
            move counts in opposite directions, which neither the bounded-range argument nor the
            slot lemma allows; for sums of weights, which are no counts.
    """
    if validate.instance(Sensitivity, sensitivity=sensitivity).neighbours != "add_remove":
        raise InvalidParameter(
            f"neighbours={sensitivity.neighbours!r} is not supported: charges hold for "
            f"'add_remove'. To replace a user "
            "is to remove one and to add one: take half the budget, and its guarantee for "
            "groups of two"
        )
    if sensitivity.l2 is not None:
        raise InvalidParameter(
            "l2: sums of weights find labels, by WeightedGaussian, and are never shown as counts"
        )
    return sensitivity


def finite_l0(sensitivity: Sensitivity, needed: str = "for noise on the whole histogram") -> int:
    """Return l0, the most labels that one user touches, for charges that are unbounded without it.

    Args:
        sensitivity: the histogram's.
        needed: the end of the message of the error, which says what l0 is needed for.

    Raises:
        InvalidParameter: when l0 is None, and as ``require_add_remove``.
    """
    l0 = require_add_remove(sensitivity).l0
    if l0 is None:
        raise InvalidParameter(f"l0 must be finite {needed}")
    return l0


def require_public(histogram: Histogram, mechanism: str, k: int = 0) -> Histogram:
    """Return the histogram, if it is public and complete and k of its labels can be drawn.

    Args:
        histogram: the histogram.
        mechanism: the name of the mechanism that needs it, for messages.
        k: how many labels are drawn, from 0.

    Raises:
        InvalidParameter: for a private or an incomplete histogram, naming the property, never the
            data; for a k above the number of labels, or too large to be drawn in memory.
    """
    validate.instance(Histogram, histogram=histogram)
    if histogram.domain != "public":
        raise InvalidParameter(
            f"domain: {mechanism} needs a public domain, the labels of this histogram are private"
        )
    if not histogram.complete:
        raise InvalidParameter(
            f"complete: {mechanism} needs the whole histogram, this one was cut to its top rows"
        )
    if k > histogram.domain_size:
        labels = numbered(histogram.domain_size, "label")
        raise InvalidParameter(f"k={k} is more than the {labels} of the public domain")
    validate.count(k=k, at_least=0, at_most=LARGEST_NAMING)  # refuses what memory cannot hold
    return histogram


def touched_counts(sensitivity: Sensitivity, labels: int | None) -> int:
    """Return how many of the counted labels one user can touch: min(l0, labels), where None is
    no limit.

    Raises:
        InvalidParameter: when both are None, or ``labels`` is no number of labels.
    """
    if labels is not None:
        labels = validate.count(labels=labels, at_least=0)
    touched = sensitivity.touched(labels)
    if touched is None:
        raise InvalidParameter(
            "labels must be given (how many labels are counted) when the sensitivity has l0=None"
        )
    return touched
