"""Common parts of all mechanisms: refusals, the rows that a counting mechanism counts, and the
release.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any, ClassVar, Self, final

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.formatting import numbered
from dptopk._internal.rounding import ceil_digits, floor_digits
from dptopk.costs import Charge, Cost
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity, descending_order
from dptopk.histogram.labels import identity, label_order, labels_as_list
from dptopk.histogram.stored_labels import StoredLabels
from dptopk.mechanisms.samplers.noise import ExactNoise
from dptopk.mechanisms.samplers.random import Array, Bits, Ints, Rng, random_bits
from dptopk.mechanisms.samplers.simulation import Draw, Noise, SimulationInput, noisy_largest
from dptopk.release.intervals import Measurement
from dptopk.release.noise_laws import IndependentNoiseLaw
from dptopk.release.release import Release, fields_to_json

Labels = Release | Sequence[Any]
# In counts: predicted selections have at least this much noise, so that no gap is divided by 0.
LEAST_NOISE = 1e-3


class Mechanism(ABC):
    """All that a session, a plan, the service, a ledger and an audit ask of a mechanism, a frozen
    dataclass.

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
    #: Whether fewer labels than were asked for may cost more.
    fewer_cost_more: ClassVar[bool] = False
    #: The parameters to which noise is inverse, and those to which it is proportional.
    noise_falls_with: ClassVar[tuple[str, ...]] = ()
    noise_grows_with: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        validate.parameters(self)

    @abstractmethod
    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return the most that a release can cost, known before any data is seen.

        ``labels`` is the number of labels whose counts are released; None if it is not known.
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
        """Return the lead over the floor at which a label appears with at least this probability;
        None in a public domain, where no label is hidden.

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
        """Return an estimate of the probability that the noise by which labels are selected exceeds
        each gap, up to a constant factor; this default takes the noise for normal.

        Args:
            sensitivity: that of the histogram.
            noise: ``selection_noise`` at this sensitivity, in counts.
            gaps: in counts, of any shape.
        """
        from scipy.special import ndtr

        deviation = max(noise, LEAST_NOISE)
        chances: Array = ndtr(-gaps / deviation)  # P[noise > gap] = Φ(-gap / deviation)
        return chances

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float | None:
        """Return the probability that a label is ranked below one whose count is lower by ``gap``;
        None if no formula is known, as in this default.
        """
        return None

    def threshold_offset(self, sensitivity: Sensitivity) -> int | None:
        """Return the lead over the floor that a noisy count must exceed; None if there is no
        threshold.
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
            true: true counts of the selected labels, shape (draws, k).
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


class PublicSelection(LabelsOnly):
    """Base of the mechanisms that draw labels of a public domain at a charge known beforehand."""

    #: How many labels are drawn.
    k: int
    # Whether the rows are a ranking. A set is shown in label order, which reveals nothing of the
    # counts.
    ordered: ClassVar[bool] = True

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing
        noise.
        """
        # Refuses a private or an incomplete histogram, and a k that is too large.
        require_public(histogram, self, self.k)
        self.charge(histogram.sensitivity)  # refuses a sensitivity that is not covered

    @abstractmethod
    def rows(self, histogram: Histogram, bits: Bits) -> Sequence[int] | Ints:
        """Draw the indices of the k selected rows; labels without a row have the indices n, n + 1,
        ..., where n is the number of rows.
        """

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Draw the answer from a public, complete histogram; unlisted labels take part with count
        0.

        Args:
            histogram: its counts are the scores.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.

        Raises:
            InvalidParameter: for a private or incomplete histogram, or k above the size of the
                domain.
        """
        return self._checked_release(histogram, rng)

    def _checked_release(self, histogram: Histogram, rng: Rng, **options: Any) -> Release:
        """Return the release of a drawn answer, after the checks; the options are those that
        ``check`` and ``rows`` both take.
        """
        self.check(histogram, **options)
        charge = self.charge(histogram.sensitivity)
        bits = random_bits(rng)
        rows = np.array(self.rows(histogram, bits, **options), dtype=np.int64)
        labels = drawn_labels(histogram, rows, bits)
        note = ""
        if not self.ordered:
            labels = in_label_order(labels)
            note = NOTE_OF_A_SET
        return Release.drawn(
            histogram, rng, labels=labels, charge=charge, mechanism=self, note=note
        )


NOTE_OF_A_SET = "a set, in label order: ranks mean nothing"


def in_label_order(labels: Sequence[Any]) -> tuple[Any, ...]:
    """Return the labels of a set in an order that does not depend on the counts."""
    array = np.fromiter(labels, dtype=object, count=len(labels))
    return tuple(labels[i] for i in label_order(array))


# In counts. Noise of a larger scale could leave the 64-bit integers with a probability that is not
# absurdly small.
LARGEST_SCALE = 2.0**48
# All labels of a public domain are counted one by one up to this many; beyond, labels= must name a
# few.
LARGEST_LISTING = 10**8
# The same limit where each label needs its name made and looked up, which takes about 200 bytes and
# 2 µs.
LARGEST_NAMING = 10**7


def gumbel_std(scale: float) -> float:
    """Return the standard deviation of Gumbel noise of this scale: π/√6 times the scale."""
    return math.pi / math.sqrt(6) * scale


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
    """Return l0 of an ``add_remove`` sensitivity, for charges that are unbounded without it.

    Raises:
        InvalidParameter: when l0 is None; ``needed`` is the end of the message, "for ...".
    """
    l0 = require_add_remove(sensitivity).l0
    if l0 is None:
        raise InvalidParameter(f"l0 must be finite {needed}")
    return l0


def require_public(histogram: Histogram, mechanism: Mechanism, k: int = 0) -> Histogram:
    """Return the histogram, if it is public and complete and k of its labels can be drawn.

    Raises:
        InvalidParameter: for a private or an incomplete histogram, naming the property, never the
            data; for a k above the number of labels, or too large to be drawn in memory.
    """
    name = type(mechanism).__name__
    validate.instance(Histogram, histogram=histogram)
    if histogram.domain != "public":
        raise InvalidParameter(
            f"domain: {name} needs a public domain, the labels of this histogram are private"
        )
    if not histogram.complete:
        raise InvalidParameter(
            f"complete: {name} needs the whole histogram, this one was cut to its top rows"
        )
    if k > histogram.domain_size:
        labels = numbered(histogram.domain_size, "label")
        raise InvalidParameter(f"k={k} is more than the {labels} of the public domain")
    validate.count(k=k, at_least=0, at_most=LARGEST_NAMING)  # refuses what memory cannot hold
    return histogram


@dataclass(frozen=True)
class Rows:
    """The labels whose counts are measured, shape (n,), and their true counts, int64, shape
    (n,).
    """

    labels: Array
    counts: Array

    def __len__(self) -> int:
        return len(self.counts)


def rows_to_count(histogram: Histogram, labels: Labels | None, mechanism: Mechanism) -> Rows:
    """Return the rows that a counting mechanism measures: all of a public domain, or those of the
    given labels.

    Args:
        histogram: must be public and complete when ``labels`` is None.
        labels: labels that are public or were released before, or a Release. A label without a row
            has count 0; in an incomplete histogram a missing row is not a 0, so there only a
            Release made on it is taken.
        mechanism: for the name in messages.

    Raises:
        InvalidParameter: where the counts of these labels are unknown, or where counting them
            would reveal which labels are present.
    """
    if labels is None:
        size = require_public(histogram, mechanism).domain_size
        most = LARGEST_LISTING if histogram.listed else LARGEST_NAMING
        if size > most:
            raise InvalidParameter(
                f"domain_size={size} is too large to count every label; give labels="
            )
        return Rows(*histogram.whole_domain())
    validate.instance(Histogram, histogram=histogram)
    is_own_release = isinstance(labels, Release) and labels.made_on(histogram)
    names = list(labels.labels) if isinstance(labels, Release) else labels_as_list(labels)
    if not histogram.complete and not is_own_release:
        raise InvalidParameter(
            "labels: on an incomplete histogram they must be a Release made on that very histogram"
        )
    if histogram.has_label_outside(names):
        raise InvalidParameter("labels: one of them is not in the public domain")
    return Rows(np.fromiter(names, dtype=object, count=len(names)), histogram.count_of(names))


def drawn_labels(histogram: Histogram, indices: Array, bits: Bits) -> tuple[Any, ...]:
    """Return the labels of drawn indices, all different; an index of at least n, the number of
    rows, stands for some label without a row.

    Labels without a row are exchangeable: an index from n on is a uniform choice among those not
    drawn before. If the domain is named by a function, that label is drawn here: labels of the
    whole domain are drawn until one has no row. So its name reveals nothing about the other
    labels.

    Args:
        histogram: the one from which they are drawn.
        indices: the drawn indices, shape (k,).
        bits: the source of words.

    Raises:
        InvalidParameter: when the histogram's absent_label does not name domain_size different
            labels, the labels of the rows among them.
    """
    rows = len(histogram)
    missing = int((indices >= rows).sum())
    if histogram.listed or not missing:
        return tuple(histogram.label_at(index) for index in indices.tolist())
    unlisted = iter(_labels_without_row(histogram, missing, bits))
    labels: list[Any] = []
    for index in indices.tolist():
        label = histogram.label_at(index) if index < rows else next(unlisted)
        labels.append(label)
    return tuple(labels)


def _labels_without_row(histogram: Histogram, size: int, bits: Bits) -> list[Any]:
    """Draw ``size`` different labels that have no row, uniformly, by rejection.

    Args:
        histogram: of a public domain named by a function.
        size: how many labels are drawn, from 1 to ``histogram.absent``.
        bits: the source of words.

    Raises:
        InvalidParameter: where absent_label does not keep its promise.
    """
    names: list[Any] = []
    identities = set(map(identity, histogram.labels.tolist()))
    # If absent_label keeps its promise, a try finds the (j + 1)-th label with the probability
    # (absent - j) / domain_size. The sum of the inverses of these is the expected number of tries;
    # an integral bounds it. A hundred times as many tries are exceeded with a probability below
    # e^-90 (a sum of geometric variables: Janson 2018, Theorem 2.1).
    fewest_left = histogram.absent - size + 1
    sum_of_inverses = 1 / fewest_left + math.log(histogram.absent / fewest_left)
    tries = math.ceil(100 * histogram.domain_size * sum_of_inverses)
    while len(names) < size:
        (index,) = bits.below(histogram.domain_size, 1).tolist()
        name = histogram.label_in_domain(index)
        if identity(name) not in identities:
            identities.add(identity(name))
            names.append(name)
            continue
        tries -= 1
        if tries < 0:
            raise InvalidParameter(
                "absent_label must name domain_size different labels, those of the rows among them"
            )
    return names


class CountingMechanism(Mechanism):
    """Base of the mechanisms that add integer noise to counts of known labels.

    ``measurement`` is the one statement of the noise. Deviations and widths follow from it and are
    final; ``dptopk.testing.check_mechanism`` compares it with what is drawn.
    """

    #: Whether its counts can be fitted to the order of a selection, by CountMLE.
    fitted: ClassVar[bool] = True

    @abstractmethod
    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Array:
        """Draw the noise of ``size`` counts, int64, shape (size,)."""

    @abstractmethod
    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Return the noise on the counts of ``labels`` labels for a simulation, in floating
        point: a function of the number of a block of draws.
        """

    @abstractmethod
    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """Return the law of the noise on the counts of a number of labels.

        Args:
            sensitivity: that of the histogram.
            labels: how many labels are counted together.
            whole: whether these are all labels of the domain, not some that were named.
        """

    def assumed_labels(self) -> int:
        """Return the number of labels to assume where none is given: one, because this noise does
        not depend on it.

        Raises:
            InvalidParameter: for a mechanism whose noise depends on that number.
        """
        return 1

    @final
    def noise_of(self, sensitivity: Sensitivity, labels: int | None) -> Measurement:
        """Return ``measurement`` for this number of labels, at least one; for None, the number
        is that of ``assumed_labels``.
        """
        if labels is None:
            number = self.assumed_labels()
        else:
            number = max(labels, 1)
        return self.measurement(require_add_remove(sensitivity), number, whole=False)

    @final
    def noise_std(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float:
        """Return the standard deviation of the noise on one count.

        ``labels`` is the number of labels counted together, for noise that depends on it.

        Raises:
            InvalidParameter: as for ``half_width``.
        """
        return self.noise_of(sensitivity, labels).std

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of the k labels with the largest noisy counts."""
        return noisy_largest(inputs, self.float_noise(inputs, len(inputs.counts)))

    @final
    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the noise on a count."""
        return self.noise_std(sensitivity)

    @final
    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float:
        """Return the standard deviation of the noise on one count, as ``noise_std`` states it."""
        return self.noise_std(sensitivity, labels=labels)

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int | None:
        """Return None, because every label is counted and none is hidden."""
        require_add_remove(sensitivity)
        return None

    @final
    def count_width(
        self, sensitivity: Sensitivity, *, labels: int | None = None, confidence: float = CONFIDENCE
    ) -> float:
        """Return the half-width of the noise on one count, as ``half_width`` states it."""
        return self.half_width(sensitivity, confidence=confidence, labels=labels)

    @final
    def half_width(
        self, sensitivity: Sensitivity, *, confidence: float = CONFIDENCE, labels: int | None = None
    ) -> float:
        """Return the smallest proven w with P[|noise| <= w] >= confidence, for one count that is
        always released.

        Args:
            sensitivity: the histogram's.
            confidence: in (0, 1).
            labels: the number of labels counted together, for noise that depends on it.

        Returns:
            w in counts, a multiple of the step in which counts are measured. For independent noise
            it is exact up to a relative error of the tail below 1e-6, which only widens it.

        Raises:
            InvalidParameter: for a confidence outside its range, a sensitivity that the mechanism
                does not cover, or ``labels`` left out for noise that depends on it.
        """
        confidence = validate.probability(allow_zero=False, confidence=confidence)
        noise = self.noise_of(sensitivity, labels)
        # The interval is for one row that was fixed beforehand, not for the widest of several.
        steps = noise.half_width(1 - confidence, "row", 1)
        if noise.divisor == 1:  # an integer stays one
            return steps
        return steps / noise.divisor

    def check(self, histogram: Histogram, *, labels: Labels | None = None) -> None:
        """Raise the error that ``release`` would raise for these arguments, without drawing
        noise.
        """
        rows = rows_to_count(histogram, labels, self)
        # Refuses a sensitivity that is not covered, and more labels than the noise is for.
        self.charge(histogram.sensitivity, labels=len(rows))

    def release(
        self,
        histogram: Histogram,
        rng: np.random.Generator | None = None,
        *,
        labels: Labels | None = None,
    ) -> Release:
        """Release noisy counts; rows come in the order of the released values, ties in label
        order.

        Args:
            histogram: must be public and complete, unless ``labels`` are given.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.
            labels: the only labels to count; they are public or were released before. None: all.

        Raises:
            InvalidParameter: before anything is drawn; see rows_to_count and ``charge``.
        """
        rows = rows_to_count(histogram, labels, self)
        sensitivity = histogram.sensitivity
        charge = self.charge(sensitivity, labels=len(rows))
        return ordered_release(
            self.measure(sensitivity, rows, rng),
            rows.labels,
            histogram,
            rng,
            charge=charge,
            mechanism=self.as_recorded(sensitivity, len(rows)),
            measurement=self.measurement(sensitivity, len(rows), whole=labels is None),
        )

    def as_recorded(self, sensitivity: Sensitivity, labels: int) -> Self:
        """Return the mechanism as a release of ``labels`` labels records it: with the values of
        those parameters whose default depends on that number; this base has none.
        """
        return self

    def charge_of_passes(self, sensitivity: Sensitivity, labels: int, passes: int) -> Charge:
        """Return the charge of measuring the counts of the same labels ``passes`` times."""
        return self.charge(sensitivity, labels=labels).times(passes)

    def measure_repeatedly(
        self, sensitivity: Sensitivity, rows: Rows, rng: Rng, passes: int
    ) -> tuple[Array, Array]:
        """Measure the rows' counts ``passes`` times; return the first measurement and the mean of
        all, shape (n,) each.
        """
        measurements = [self.measure(sensitivity, rows, rng) for _ in range(passes)]
        return measurements[0], np.mean(measurements, axis=0)

    def measure(self, sensitivity: Sensitivity, rows: Rows, rng: Rng) -> Array:
        """Return the rows' counts with noise added, in the order of the rows, int64, shape (n,)."""
        return rows.counts + self.draw_noise(sensitivity, len(rows), random_bits(rng))


class IndependentNoise(CountingMechanism):
    """Base of the counting mechanisms whose noises are independent and have the same law."""

    @abstractmethod
    def law(self, sensitivity: Sensitivity) -> IndependentNoiseLaw:
        """Return the law of the noise on each count.

        Raises:
            InvalidParameter: when noise could leave the 64-bit integers.
        """

    @abstractmethod
    def cost(self, sensitivity: Sensitivity, shift: int | None = None) -> Cost:
        """Return the cost of one noisy count that one user moves by at most ``shift``; None means
        linf.
        """

    @abstractmethod
    def costs(self, sensitivity: Sensitivity, touched: int) -> Mapping[Cost, int]:
        """Return the costs, with their multiplicities, of the counts that one user moves.

        Args:
            sensitivity: its ``linf`` bounds the move of each count, its ``l1`` the sum of all.
            touched: how many counts one user moves at most.
        """

    @abstractmethod
    def sampler(self, sensitivity: Sensitivity, bound: int | None = None) -> ExactNoise:
        """Return the exact sampler of ``law``, conditioned on [-bound, bound] if a bound is
        given.
        """

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return one cost for each of the min(l0, labels) counts that one user can move.

        Where ``l1`` caps a user's total below linf times that number, one cost of the total may
        take their place.

        Raises:
            InvalidParameter: when both l0 and ``labels``, the number of labels counted, are None.
        """
        touched = touched_counts(require_add_remove(sensitivity), labels)
        return Charge(self.costs(sensitivity, touched))

    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """Return ``law`` as that of each count, whatever the number of labels."""
        return Measurement(self.law(sensitivity), labels, whole=whole)

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Ints:
        """Draw independent noise, int64, shape (size,)."""
        return self.sampler(sensitivity).sample(size, bits)

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float:
        """Return an upper bound on the probability that the difference of two noises is at least
        the gap, in counts; for a gap of at most 1, that it is at least 1.
        """
        # The difference is an integer: it is at least the gap if it exceeds ceil(gap) - 1.
        return self.law(sensitivity).difference(max(math.ceil(gap) - 1, 0))


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


def ordered_release(
    values: Array,
    labels: Array | StoredLabels,
    histogram: Histogram,
    rng: Rng,
    *,
    charge: Charge,
    mechanism: Mechanism,
    measurement: Measurement,
) -> Release:
    """Return a release of the values and their labels, in descending order of the values; ties
    are in label order.

    Args:
        values: the noisy counts, shape (n,).
        labels: their labels, shape (n,).
        histogram: that they were measured on.
        rng: the source of the noise, of which the release says whether it was secure.
        charge: what the release costs.
        mechanism: as the release records it.
        measurement: the law of the noise.
    """
    order = descending_order(values, labels)
    return Release.drawn(
        histogram,
        rng,
        labels=tuple(labels[order].tolist()),
        counts=values[order],
        charge=charge,
        mechanism=mechanism,
        measurement=measurement,
    )
