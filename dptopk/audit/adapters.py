"""Mechanisms of this and other libraries as functions from a histogram to an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from dptopk._internal.choices import Domain
from dptopk.audit.worlds import Counts
from dptopk.errors import DptopkError, InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity

Answer = TypeVar("Answer")
AnswerOut_co = TypeVar("AnswerOut_co", covariant=True)
# A hash map of counts, or the vector of the counts of a public domain.
MeasuredInput = Counts | list[int]


class Releasing(Protocol[AnswerOut_co]):
    """A mechanism that has the method ``release``, as those of this library have."""

    def release(self, histogram: Histogram, /) -> AnswerOut_co:
        """Draw one answer."""
        ...


@contextmanager
def hide_data_in_errors(mechanism: Any) -> Iterator[None]:
    """Run what stands in the ``with`` block; replace the errors of a mechanism's own code by one
    that shows its name and the type of the error, and no data.

    Raises:
        InvalidParameter: instead of any error that is not one of dptopk's.
    """
    try:
        yield
    except DptopkError:
        raise
    except (Exception, SystemExit) as error:
        name = getattr(mechanism, "__name__", type(mechanism).__name__)
        raise InvalidParameter(
            f"mechanism: {name} raised {type(error).__name__} on a small histogram"
        ) from error


@dataclass(frozen=True)
class _MechanismOfCounts(Generic[Answer]):
    """A mechanism of this library as a function from counts to an answer.

    Attributes:
        mechanism: the mechanism that is called.
        sensitivity: the sensitivity of the histograms that it is called on.
        domain: whether the labels of these histograms are "private" or "public".
    """

    mechanism: Releasing[Answer]
    sensitivity: Sensitivity
    domain: Domain

    def __call__(self, counts: Counts) -> Answer:
        """Draw one answer on the counts."""
        return self.mechanism.release(self.histogram(counts))

    def many(self, counts: Counts, draws: int) -> Iterable[Answer]:
        """Yield ``draws`` answers on one histogram, which is built once."""
        histogram = self.histogram(counts)
        return (self.mechanism.release(histogram) for _ in range(draws))

    def histogram(self, counts: Counts) -> Histogram:
        """Return the counts as a Histogram with the sensitivity and the domain."""
        return Histogram(
            list(counts), list(counts.values()), sensitivity=self.sensitivity, domain=self.domain
        )


def from_mechanism(
    mechanism: Releasing[Answer], sensitivity: Sensitivity, *, domain: Domain = "private"
) -> _MechanismOfCounts[Answer]:
    """Return a mechanism of dptopk as a function from a dict of counts to an answer; its claim is
    ``mechanism.charge(sensitivity)``.

    Args:
        mechanism: anything with ``release(histogram)``.
        sensitivity: the sensitivity of the histograms it is run on.
        domain: "private" or "public", as for Histogram; a public world lists labels with count 0.
    """
    return _MechanismOfCounts(mechanism, sensitivity, domain)


def from_opendp(
    measurement: Callable[[MeasuredInput], Answer], *, vector: bool = False
) -> Callable[[Counts], Answer]:
    """Return a measurement of OpenDP as a function from a dict of counts to an answer.

    Args:
        measurement: takes a hash map of counts, or a vector of counts.
        vector: whether it takes the vector of the counts of a public domain.
    """
    return partial(_measurement_answer, measurement, vector)


def _measurement_answer(
    measurement: Callable[[MeasuredInput], Answer], vector: bool, counts: Counts
) -> Answer:
    """Return the measurement's answer on these counts.

    Args:
        measurement: the measurement of OpenDP.
        vector: whether it takes the list of the counts, without labels, rather than the dict.
        counts: the counts of all labels of the domain.
    """
    if vector:
        return measurement(list(counts.values()))
    return measurement(dict(counts))
