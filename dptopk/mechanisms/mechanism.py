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
from dptopk.histogram.histogram import Histogram, Sensitivity, descending
from dptopk.histogram.labels import identity, label_order, listed
from dptopk.histogram.stored_labels import StoredLabels
from dptopk.mechanisms.samplers.noise import ExactNoise
from dptopk.mechanisms.samplers.random import Array, Bits, Ints, Rng, random_bits
from dptopk.mechanisms.samplers.simulation import Draw, Noise, SimulationInput, noisy_largest
from dptopk.release.intervals import Measurement
from dptopk.release.noise_laws import IndependentNoiseLaw
from dptopk.release.release import Release, fields_to_json

Labels = Release | Sequence[Any]
# Selections have at least this much noise where they are predicted.
LEAST_NOISE = 1e-3


class Mechanism(ABC):
    """All that a session, a plan, the service, a ledger and an audit ask of a mechanism, a frozen
    dataclass.

    A new one says what it costs (``charge``), what it refuses (``check``), what it answers
    (``release``), how it does in a plan (``simulate``), and what its answer is worth
    (``selection_noise``, ``count_noise``, ``appears_at``). One line makes it known by its name:
    ``dptopk.mechanisms.named.register``.
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
        """The most that a release can cost; ``labels``: how many labels' counts are released."""

    @abstractmethod
    def check(self, histogram: Histogram, *_: Any, **options: Any) -> None:
        """Raise the error that ``release`` would raise for these arguments, without drawing
        noise.
        """

    @abstractmethod
    def release(
        self, histogram: Histogram, rng: np.random.Generator | None = None, *_: Any, **options: Any
    ) -> Release:
        """Draw the answer; its charge is what was used."""

    @abstractmethod
    def simulate(self, scene: SimulationInput) -> Draw:
        """Simulate the selection of labels from known counts in floating point: for plans, never
        for releases.

        Returns:
            For the number of a block of draws the ranks of the chosen labels (-1: none) and their
            noisy counts, float64 (0 where there are none), shape (draws, k) both.
        """

    @abstractmethod
    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Standard deviation of the noise that decides which labels are chosen; inf where it
        depends on the counts.
        """

    @abstractmethod
    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float | None:
        """Standard deviation of the noise on a released count; None where none is released.

        ``labels``: how many labels are counted together.
        """

    @abstractmethod
    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int | None:
        """The lead over the floor at which a label appears with at least this probability; None in
        a public domain.

        The floor is the count of rank ``floor_rank``, or 0.
        """

    def count_width(
        self, sensitivity: Sensitivity, *, labels: int | None = None, confidence: float = CONFIDENCE
    ) -> float | None:
        """The noise on a released count, apart from any selection by it, is within ± this; by
        Chebyshev's inequality.

        Mechanisms that know more of their noise say less.
        """
        deviation = self.count_noise(sensitivity, labels=labels)
        if deviation is None:
            return None
        return deviation / math.sqrt(1 - confidence)

    def exceeds(self, sensitivity: Sensitivity, gaps: Array) -> Array:
        """About how likely the noise that selects is above each gap, but for a constant; normal if
        nothing is known.
        """
        from scipy.special import ndtr

        chances: Array = ndtr(gaps / -max(self.selection_noise(sensitivity), LEAST_NOISE))
        return chances

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float | None:
        """Probability that a label is ranked below one whose count is lower by ``gap``; None if no
        formula is known.
        """
        return None

    def threshold_offset(self, sensitivity: Sensitivity) -> int | None:
        """Return the lead over the floor that a noisy count needs; None if there is no
        threshold.
        """
        add_remove(sensitivity)
        return None

    @property
    def floor_rank(self) -> int | None:
        """The rank of the count that labels are compared with, the last that is looked at; None for
        all of them.
        """
        return None

    def release_options(
        self, released: Release, charge: Charge, sensitivity: Sensitivity, *, average: bool
    ) -> dict[str, Any]:
        """The options of ``release`` after a selection, for at most ``charge``; ``average``: spend
        what it leaves.
        """
        return {"labels": released}

    def recount_error(self, true: Array, shown: Array, scene: SimulationInput) -> Array:
        """The sum of squared errors of counts measured after a selection, as simulated.

        Args:
            true: counts of the selected labels, shape (draws, k).
            shown: which of them are there, of the same shape.
            scene: of the simulation.

        Returns:
            float64, shape (draws,).
        """
        deviation = self.count_noise(scene.sensitivity, labels=scene.k)
        if deviation is None:
            raise InvalidParameter(f"{type(self).__name__} releases no counts")
        errors: Array = shown.sum(axis=1) * deviation**2
        return errors

    def scaled(self, factor: float) -> Self:
        """The mechanism with its noise divided by ``factor``, to six digits, on the side that costs
        less; δ and the number of rows stay.

        Raises:
            InvalidParameter: for a mechanism that does not say which of its parameters that takes.
        """
        if not self.noise_falls_with + self.noise_grows_with:
            name = type(self).__name__
            raise InvalidParameter(f"mechanism: {name} does not say how its noise is scaled")
        scaled: dict[str, float] = {}
        for name in self.noise_falls_with:
            scaled[name] = floor_digits(getattr(self, name) * factor)
        for name in self.noise_grows_with:
            scaled[name] = ceil_digits(getattr(self, name) / factor)
        return replace(self, **scaled)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """Its name and its parameters as JSON can hold them;
        ``dptopk.mechanisms.named.mechanism_of`` reads it.
        """
        plain: dict[str, Any] = fields_to_json(self)
        return plain

    @classmethod
    def from_dict(cls, parameters: Mapping[str, Any]) -> Self:
        """The mechanism with these parameters, as ``to_dict`` has them but for its name.

        Raises:
            InvalidParameter: on parameters that it does not take.
        """
        fields_of_class = {part.name: part for part in fields(cls) if part.init}  # type: ignore[arg-type]
        if not parameters.keys() <= fields_of_class.keys():
            raise InvalidParameter(
                f"mechanism: {cls.__name__} takes {', '.join(sorted(fields_of_class))}"
            )
        needed = {name for name, part in fields_of_class.items() if _has_no_default(part)}
        if missing := sorted(needed - parameters.keys()):
            raise InvalidParameter(f"mechanism: {cls.__name__} needs {', '.join(missing)} too")
        return cls(**parameters)


def _has_no_default(part: Field[Any]) -> bool:
    return part.default is MISSING and part.default_factory is MISSING


class LabelsOnly(Mechanism):
    """Base of the mechanisms that release no counts; of a public domain, unless ``appears_at`` says
    otherwise.
    """

    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """It depends on the counts."""
        add_remove(sensitivity)
        return math.inf

    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float | None:
        """None: labels only."""
        add_remove(sensitivity)
        return None

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int | None:
        """None: every label may be drawn."""
        add_remove(sensitivity)
        return None


class PublicSelection(LabelsOnly):
    """Base of those that draw labels of a public domain, at a charge that is known before."""

    #: How many labels are drawn.
    k: int
    # : Whether rows come in the order of the answer; a set is shown in label order, which tells
    # nothing.
    ordered: ClassVar[bool] = True

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing
        noise.
        """
        known(histogram, self, self.k)
        self.charge(histogram.sensitivity)

    @abstractmethod
    def rows(self, histogram: Histogram, bits: Bits) -> Sequence[int] | Ints:
        """Draw rows; unlisted labels have the rows n, n + 1, ..."""

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
        return self._drawn(histogram, rng)

    def _drawn(self, histogram: Histogram, rng: Rng, **options: Any) -> Release:
        self.check(histogram, **options)
        charge = self.charge(histogram.sensitivity)
        bits = random_bits(rng)
        rows = np.array(self.rows(histogram, bits, **options), dtype=np.int64)
        labels = drawn_labels(histogram, rows, bits)
        note = ""
        if not self.ordered:
            labels = in_label_order(labels)
            note = A_SET
        return Release.drawn(
            histogram, rng, labels=labels, charge=charge, mechanism=self, note=note
        )


A_SET = "a set, in label order: ranks mean nothing"


def in_label_order(labels: Sequence[Any]) -> tuple[Any, ...]:
    """The labels of a set, in an order that the data do not touch."""
    array = np.fromiter(labels, dtype=object, count=len(labels))
    return tuple(labels[i] for i in label_order(array))


# Noise of a larger scale could leave the 64-bit integers with a probability that is not absurdly
# small.
LARGEST_SCALE = 2.0**48
# All labels of a public domain are counted one by one up to this many; beyond, labels= must name a
# few.
LARGEST_LISTING = 10**8
LARGEST_NAMING = (
    10**7
)  # where each needs its name made and looked up: about 200 bytes and 2 µs a label


def gumbel_std(scale: float) -> float:
    """Standard deviation of Gumbel noise."""
    return math.pi / math.sqrt(6) * scale


def add_remove(sensitivity: Sensitivity) -> Sensitivity:
    """The sensitivity, if it is one that our charges are proven for.

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
    """l0 of such a sensitivity, where there is no bound without one.

    Raises:
        InvalidParameter: when it is None, saying what it is ``needed`` for.
    """
    l0 = add_remove(sensitivity).l0
    if l0 is None:
        raise InvalidParameter(f"l0 must be finite {needed}")
    return l0


def known(histogram: Histogram, mechanism: Mechanism, k: int = 0) -> Histogram:
    """The histogram, if its labels are public, all of them are there, and k can be drawn.

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
    validate.count(k=k, at_least=0, at_most=LARGEST_NAMING)
    return histogram


@dataclass(frozen=True)
class Rows:
    """Labels whose counts are measured, shape (n,), and their true counts, int64, shape (n,)."""

    labels: Array
    counts: Array

    def __len__(self) -> int:
        return len(self.counts)


def rows_to_count(histogram: Histogram, labels: Labels | None, mechanism: Mechanism) -> Rows:
    """The rows that a counting mechanism measures: all of a public domain, or the labels that are
    named.

    Args:
        histogram: public and complete when ``labels`` is None.
        labels: labels that are public or were released before, or a Release. A label without a row
            has count 0; in an incomplete histogram a missing row is not a 0, so there only a
            Release made on it is taken.
        mechanism: for the name in messages.

    Raises:
        InvalidParameter: where the counts of these labels cannot be told, or telling would reveal
        which are present.
    """
    if labels is None:
        if known(histogram, mechanism).domain_size > (
            LARGEST_LISTING if histogram.listed else LARGEST_NAMING
        ):
            size = histogram.domain_size
            raise InvalidParameter(
                f"domain_size={size} is too large to count every label; give labels="
            )
        return Rows(*histogram.whole())
    validate.instance(Histogram, histogram=histogram)
    is_own_release = isinstance(labels, Release) and labels.made_on(histogram)
    names = list(labels.labels) if isinstance(labels, Release) else listed(labels)
    if not histogram.complete and not is_own_release:
        raise InvalidParameter(
            "labels: on an incomplete histogram they must be a Release made on that very histogram"
        )
    if histogram.outside(names):
        raise InvalidParameter("labels: one of them is not in the public domain")
    return Rows(np.fromiter(names, dtype=object, count=len(names)), histogram.count_of(names))


def drawn_labels(histogram: Histogram, indices: Array, bits: Bits) -> tuple[Any, ...]:
    """The labels of drawn indices, all different; from n on, each index stands for some label
    without a row.

    Labels without a row are exchangeable: given which of the draws they are, each is uniform among
    those not drawn before. Where they are not numbered it is drawn here, from the whole domain,
    until it is one that has no row; so its name says nothing about which labels have one, but that
    it has none.

    Raises:
        InvalidParameter: when the histogram's absent_label does not name what it promised to name.
    """
    rows = len(histogram)
    if histogram.listed:
        return tuple(histogram.label_at(index) for index in indices.tolist())
    missing = int((indices >= rows).sum())
    names = iter(_unlisted(histogram, missing, bits) if missing else ())
    return tuple(
        histogram.label_at(index) if index < rows else next(names) for index in indices.tolist()
    )


def _unlisted(histogram: Histogram, size: int, bits: Bits) -> list[Any]:
    names: list[Any] = []
    identities = set(map(identity, histogram.labels.tolist()))
    # In a domain that is as it was promised, all tries fail with a probability below e^-100.
    tries = 100 * (size + histogram.domain_size // (histogram.absent - size + 1))
    while len(names) < size:
        name = histogram.named(int(bits.below(histogram.domain_size, 1)[0]))
        if identity(name) not in identities:
            identities.add(identity(name))
            names.append(name)
        elif (tries := tries - 1) < 0:
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
    def float_noise(self, scene: SimulationInput, labels: int) -> Noise:
        """The noise of a simulation on the counts of that many labels."""

    @abstractmethod
    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """State how a release measures the counts of n labels, or of the whole domain."""

    def labels_unsaid(self) -> int:
        """Return how many labels are counted where nobody said so: one.

        Raises:
            InvalidParameter: where the noise depends on that number.
        """
        return 1

    @final
    def noise_of(self, sensitivity: Sensitivity, labels: int | None) -> Measurement:
        """``measurement`` of that many labels, at least one, or of ``labels_unsaid``."""
        number = self.labels_unsaid() if labels is None else max(labels, 1)
        return self.measurement(add_remove(sensitivity), number, whole=False)

    @final
    def noise_std(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float:
        """Standard deviation of the noise on one count; ``labels``: how many are counted, where it
        depends on that.
        """
        return self.noise_of(sensitivity, labels).std

    def simulate(self, scene: SimulationInput) -> Draw:
        """The k largest noisy counts."""
        return noisy_largest(scene, self.float_noise(scene, len(scene.counts)))

    @final
    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the noise on a count."""
        return self.noise_std(sensitivity)

    @final
    def count_noise(self, sensitivity: Sensitivity, *, labels: int | None = None) -> float:
        """Return ``noise_std``."""
        return self.noise_std(sensitivity, labels=labels)

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int | None:
        """None: every label is counted."""
        add_remove(sensitivity)
        return None

    @final
    def count_width(
        self, sensitivity: Sensitivity, *, labels: int | None = None, confidence: float = CONFIDENCE
    ) -> float:
        """Return ``half_width``."""
        return self.half_width(sensitivity, confidence=confidence, labels=labels)

    @final
    def half_width(
        self, sensitivity: Sensitivity, *, confidence: float = CONFIDENCE, labels: int | None = None
    ) -> float:
        """The smallest proven w with P[|noise| <= w] >= confidence, for one count that is always
        released.

        Args:
            sensitivity: the histogram's.
            confidence: in (0, 1).
            labels: how many labels are counted, where the noise depends on it.

        Returns:
            w, a multiple of the step in which counts are measured; exact for independent noise up
            to a relative error of the tail below 1e-6, which only widens.
        """
        confidence = validate.probability(allow_zero=False, confidence=confidence)
        noise = self.noise_of(sensitivity, labels)
        steps = noise.half_width(1 - confidence, "row", 1)
        if noise.divisor == 1:
            return steps
        return steps / noise.divisor

    def check(self, histogram: Histogram, *, labels: Labels | None = None) -> None:
        """Raise the error that ``release`` would raise for these arguments, without drawing
        noise.
        """
        rows = rows_to_count(histogram, labels, self)
        self.charge(histogram.sensitivity, labels=len(rows))

    def release(
        self,
        histogram: Histogram,
        rng: np.random.Generator | None = None,
        *,
        labels: Labels | None = None,
    ) -> Release:
        """Noisy counts, rows in the order of the released values, ties in label order.

        Args:
            histogram: public and complete, unless ``labels`` are given.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.
            labels: count only these: labels that are public or were released before, or a Release.

        Raises:
            InvalidParameter: before anything is drawn; see rows_to_count and ``charge``.
        """
        rows = rows_to_count(histogram, labels, self)
        sensitivity = histogram.sensitivity
        charge = self.charge(sensitivity, labels=len(rows))
        written = self.resolved(sensitivity, len(rows))
        return ordered_release(
            self.measure(sensitivity, rows, rng),
            rows.labels,
            histogram,
            rng,
            charge=charge,
            mechanism=written,
            measurement=self.measurement(sensitivity, len(rows), whole=labels is None),
        )

    def resolved(self, sensitivity: Sensitivity, labels: int) -> Self:
        """Return the mechanism that a release of n labels names: what depends on their number is
        made explicit.
        """
        return self

    def repeated(self, sensitivity: Sensitivity, labels: int, passes: int) -> Charge:
        """The charge of measuring the same counts several times."""
        return self.charge(sensitivity, labels=labels).times(passes)

    def measure_again(
        self, sensitivity: Sensitivity, rows: Rows, rng: Rng, passes: int
    ) -> tuple[Array, Array]:
        """The first of several measurements of the rows' counts, and the mean of all."""
        each = [self.measure(sensitivity, rows, rng) for _ in range(passes)]
        return each[0], np.mean(each, axis=0)

    def measure(self, sensitivity: Sensitivity, rows: Rows, rng: Rng) -> Array:
        """The rows' counts with noise added, in the order of the rows, int64, shape (n,)."""
        return rows.counts + self.draw_noise(sensitivity, len(rows), random_bits(rng))


class IndependentNoise(CountingMechanism):
    """Base of those whose noises are independent and of one law."""

    @abstractmethod
    def law(self, sensitivity: Sensitivity) -> IndependentNoiseLaw:
        """The law of each count's noise.

        Raises:
            InvalidParameter: when noise could leave the 64-bit integers.
        """

    @abstractmethod
    def cost(self, sensitivity: Sensitivity, shift: int | None = None) -> Cost:
        """The cost of one noise whose integer is moved by at most ``shift``; None: linf."""

    @abstractmethod
    def costs(self, sensitivity: Sensitivity, touched: int) -> Mapping[Cost, int]:
        """The costs of independent noises on counts of which one user touches at most a number.

        ``linf`` bounds the move of each count, ``l1`` that of all together.
        """

    @abstractmethod
    def sampler(self, sensitivity: Sensitivity, bound: int | None = None) -> ExactNoise:
        """Return what draws this very law, cut to [-bound, bound] if there is a bound."""

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """The noise's own pair for each of min(l0, labels) counts; where l1 is less than they can
        move, one cost of the whole move, or the pairs.

        Raises:
            InvalidParameter: when l0 is None and ``labels``, the number of labels counted, is not
            given.
        """
        touched = copies(add_remove(sensitivity), labels)
        return Charge(self.costs(sensitivity, touched))

    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """State ``law``, for any number of labels."""
        return Measurement(self.law(sensitivity), labels, whole=whole)

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Ints:
        """Draw independent noise, int64, shape (size,)."""
        return self.sampler(sensitivity).sample(size, bits)

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float:
        """Probability that the difference of two noises is at least the gap."""
        return self.law(sensitivity).difference(max(math.ceil(gap) - 1, 0))


def copies(sensitivity: Sensitivity, labels: int | None) -> int:
    """min(l0, labels): how many of the counted labels one user can touch.

    Raises:
        InvalidParameter: when neither is known.
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
    """A release of values with their labels, sorted by the values alone (ties in label order)."""
    order = descending(values, labels)
    return Release.drawn(
        histogram,
        rng,
        labels=tuple(labels[order].tolist()),
        counts=values[order],
        charge=charge,
        mechanism=mechanism,
        measurement=measurement,
    )
