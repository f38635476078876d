"""One mechanism as a plan: what it costs on the data it is asked of, and the labels it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import labels_as_list, to_plain
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.planning.preview import Preview
from dptopk.planning.protocol import Plan, Reading
from dptopk.planning.topk_plan import words_of_appearing
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True)
class Single(Plan):
    """A plan of one mechanism, with the options of its release; ``of`` makes one.

    Attributes:
        mechanism: what runs.
        options: the options of its release by name (labels, ranking, utilities), copied into
            objects that nobody else changes.
        sensitivity: that of the histogram.
        price: the most that the mechanism costs on it.
    """

    mechanism: Mechanism
    options: Mapping[str, Any]
    sensitivity: Sensitivity
    price: Charge

    kind: ClassVar[str] = "mechanism"
    averages: ClassVar[bool] = False

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        options: Mapping[str, Any],
        sensitivity: Sensitivity,
        domain_size: int | None,
    ) -> Self:
        """Return the plan of a mechanism on a histogram of this sensitivity.

        Args:
            mechanism: one of ``dptopk.mechanisms``, or registered.
            options: for its release: labels, ranking, utilities.
            sensitivity: of the histogram.
            domain_size: the number of public labels; None: labels are private.

        Raises:
            InvalidParameter: for options that the mechanism does not take, or that it needs and
            that are not given.
        """
        if not isinstance(mechanism, Mechanism):
            raise InvalidParameter("mechanism must be one of dptopk.mechanisms, or a Plan")
        _check_options(mechanism, options)
        own_options = {name: _read_once(name, value) for name, value in options.items()}
        number_of_labels = _number_of_named_labels(own_options)
        if number_of_labels is None:
            number_of_labels = domain_size
        price = mechanism.charge(sensitivity, labels=number_of_labels)
        return cls(mechanism, own_options, sensitivity, price)

    @classmethod
    def for_histogram(
        cls, mechanism: Mechanism, data: Histogram, options: Mapping[str, Any]
    ) -> Self:
        """Return the plan of a mechanism on this histogram, by what is public about it.

        Args:
            mechanism: one of ``dptopk.mechanisms``, or registered.
            data: the histogram; no count of it is looked at.
            options: for the release, as for ``of``.

        Raises:
            InvalidParameter: as ``of``.
        """
        size = data.domain_size if data.domain == "public" else None
        return cls.of(mechanism, options, data.sensitivity, size)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Return the one mechanism, as a tuple."""
        return (self.mechanism,)

    @property
    def charge(self) -> Charge:
        """Return the most that an answer costs."""
        return self.price

    @property
    def reading(self) -> Reading:
        """Return that one histogram is read, as a whole."""
        return Reading(self.sensitivity)

    @property
    def identity(self) -> tuple[list[Any], dict[str, list[Any]]] | None:
        """Return the labels that are named, by option; None where utilities are given.

        Utilities are computed from the data: whether they equal those of an earlier question must
        not show in what is written down, nor in whether a stored answer comes again free of charge.
        """
        if self.options.get("utilities") is not None:
            return None
        return [], {name: _plain_labels(value) for name, value in self.options.items()}

    def check(self, data: Histogram, /) -> None:
        """Raise the error that ``release`` would raise, without drawing noise."""
        self.mechanism.check(data, **self.options)

    def draw(
        self,
        data: Histogram,
        rng: Generator | None,
        *,
        average: bool,  # noqa: ARG002
    ) -> Release:
        """Draw the answer, and return it.

        Args:
            data: the histogram, which ``check`` accepts.
            rng: a generator for tests and experiments; None: a secure source.
            average: without effect: there is one phase.
        """
        return self.mechanism.release(data, rng, **self.options)

    def preview(self) -> Preview:
        """Return the noise on a count, for as many counts as labels are named; where none are
        named, for any number of counts. Guarantee and error bars are left out, since they depend on
        a δ and on the data.

        Raises:
            InvalidParameter: where none are named, and the noise depends on their number.
        """
        labels = _number_of_named_labels(self.options)
        mechanism = self.mechanism
        sensitivity = self.sensitivity
        return Preview(
            noise_std=mechanism.count_noise(sensitivity, labels=labels),
            half_width=mechanism.count_width(sensitivity, labels=labels),
            threshold=mechanism.threshold_offset(sensitivity),
            appears_at=mechanism.appears_at(sensitivity, probability=0.5),
            above_rank=mechanism.floor_rank,
            appearing=words_of_appearing(mechanism, sensitivity),
        )

    def record(self) -> dict[str, Any]:
        """Return the text of the plan alone: the question names the mechanism."""
        return {"text": self.text}

    def revived(self, record: Mapping[str, Any]) -> Self:  # noqa: ARG002
        """Return the same plan: it follows from its question alone."""
        return self


def plan_of_mechanism(
    mechanism: Mechanism | Plan, data: Histogram, options: Mapping[str, Any]
) -> Plan:
    """Return the plan of a mechanism with these options; a plan is returned as it is, and takes
    none.

    Raises:
        InvalidParameter: for what is neither, and as ``Single.of``.
    """
    if not isinstance(mechanism, Plan):
        return Single.for_histogram(mechanism, data, options)
    if options:
        raise InvalidParameter(
            f"{type(mechanism).__name__} takes no further options, not {next(iter(options))}"
        )
    return mechanism


def _number_of_named_labels(options: Mapping[str, Any]) -> int | None:
    """Return how many labels the options of a release name; None where they name none."""
    named_labels = options.get("labels", options.get("ranking"))
    if named_labels is None:
        return None
    return len(named_labels)


def _check_options(mechanism: Mechanism, options: Mapping[str, Any]) -> None:
    """Refuse options that ``check`` of the mechanism does not take, and a lack of those that it
    needs.

    Raises:
        InvalidParameter: naming the option.
    """
    parameters = signature(mechanism.check).parameters.values()
    by_name = {
        parameter.name: parameter
        for parameter in parameters
        if parameter.kind is Parameter.KEYWORD_ONLY
    }
    takes_any_name = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
    name = type(mechanism).__name__
    for option in options:
        if option not in by_name and not takes_any_name:
            option_names = " and ".join(by_name) or "no further options"
            raise InvalidParameter(f"{name} takes {option_names}, not {option}")
    for needed, parameter in by_name.items():
        if parameter.default is Parameter.empty and needed not in options:
            raise InvalidParameter(f"{needed} must be given for {name}")


def _plain_labels(value: Any) -> list[Any]:
    """Return labels as a list of plain values, which can be written as JSON."""
    if value is None:
        return []
    labels = value.labels if isinstance(value, Release) else value
    return [to_plain(label) for label in labels]


def _read_once(name: str, value: Any) -> Any:
    """Return a copy of an option, so that what is charged, checked, measured and written is the
    same, even if the value can be read only once or is changed by its owner meanwhile.

    Args:
        name: the option's name; "utilities" are numbers, every other option has labels.
        value: the option's value; None and a Release, which nobody changes, are returned as they
            are.

    Returns:
        A NumPy array of utilities, or a list of labels.
    """
    if value is None or isinstance(value, Release):
        return value
    if name != "utilities":
        return labels_as_list(value)
    if getattr(value, "dtype", None) is not None:
        return np.array(value)
    # Beside floats NumPy would round integers.
    return np.array(value, dtype=object)
