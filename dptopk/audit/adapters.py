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
# A hash map of counts, or the vector of those of a public domain.
MeasuredInput = Counts | list[int]


class Releasing(Protocol[AnswerOut_co]):
    """A mechanism as this library's are asked."""

    def release(self, histogram: Histogram, /) -> AnswerOut_co:
        """One answer."""
        ...


@contextmanager
def only_types_of_errors(mechanism: Any) -> Iterator[None]:
    """Refuse a mechanism whose own code fails: its name and the type of the error, and nothing that
    it saw.

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
class _OurMechanism(Generic[Answer]):
    mechanism: Releasing[Answer]
    sensitivity: Sensitivity
    domain: Domain

    def __call__(self, counts: Counts) -> Answer:
        return self.mechanism.release(self.histogram(counts))

    def many(self, counts: Counts, draws: int) -> Iterable[Answer]:
        """Answers on one histogram, which is made once."""
        histogram = self.histogram(counts)
        return (self.mechanism.release(histogram) for _ in range(draws))

    def histogram(self, counts: Counts) -> Histogram:
        """Return it as the mechanism takes it."""
        return Histogram(
            list(counts), list(counts.values()), sensitivity=self.sensitivity, domain=self.domain
        )


def from_mechanism(
    mechanism: Releasing[Answer], sensitivity: Sensitivity, *, domain: Domain = "private"
) -> _OurMechanism[Answer]:
    """A mechanism of dptopk; its claim is ``mechanism.charge(sensitivity)``.

    Args:
        mechanism: anything with ``release(histogram)``.
        sensitivity: of the histograms it is run on.
        domain: "private" or "public", as for Histogram; a public world lists labels with count 0.
    """
    return _OurMechanism(mechanism, sensitivity, domain)


def from_opendp(
    measurement: Callable[[MeasuredInput], Answer], *, vector: bool = False
) -> Callable[[Counts], Answer]:
    """A measurement of OpenDP on a hash map of counts, or (``vector``) on the vector of counts of a
    public domain.
    """
    return partial(_measurement_answer, measurement, vector)


def _measurement_answer(
    measurement: Callable[[MeasuredInput], Answer], vector: bool, counts: Counts
) -> Answer:
    return measurement(list(counts.values()) if vector else dict(counts))
