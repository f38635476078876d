"""A question of a session: a mechanism or plan on a histogram, with its cost known before noise is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal.json_text import fingerprint
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter, ReleaseWithheld
from dptopk.histogram.histogram import Histogram
from dptopk.histogram.labels import listed, to_plain
from dptopk.mechanisms.base import Mechanism
from dptopk.planning import Plan
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True)
class PreparedQuery:
    """A question, its histogram, and its maximum cost; ``of`` makes one that fits.

    Attributes:
        mechanism: one of ``dptopk.mechanisms``, or a Plan.
        histogram: what is asked about.
        options: for the mechanism's release, read once into objects of our own.
        average: of a Plan: spend what is left over on better counts (``Plan.release``).
        charge: what is to be charged before anything is drawn.
    """

    mechanism: Mechanism | Plan
    histogram: Histogram
    options: Mapping[str, Any]
    average: bool
    charge: Charge

    @classmethod
    def of(
        cls, mechanism: Mechanism | Plan, histogram: Histogram, options: Mapping[str, Any], *, average: bool = False
    ) -> PreparedQuery:
        """The question, once it is sure that it fits the histogram; nothing is drawn.

        Raises:
            InvalidParameter: when it does not.
        """
        if average and not isinstance(mechanism, Plan):
            raise InvalidParameter("average: only the counts of a Plan can be averaged")
        _takes(mechanism, options)
        options = {name: _once(name, value) for name, value in options.items()}
        return cls(mechanism, histogram, options, average, _charge(mechanism, histogram, options))

    @property
    def what(self) -> str:
        """The question in words: its mechanisms."""
        return mechanisms_of(self.mechanism) + (" (averaged)" if self.average else "")

    def fingerprint(self, source: str | None) -> str:
        """A hash of everything that defines a question, apart from the data; '' for a question that is made of data.

        Utilities are computed from the data: whether they equal those of an earlier question must not show in what is
        written down, nor in whether a stored answer comes again free of charge. For the same reason the histogram
        stands here as what was stated about it and where it comes from (``source``; None: this very histogram), not as
        what it holds.
        """
        if self.options.get("utilities") is not None:
            return ""
        histogram, plan = self.histogram, self.mechanism
        planned = plan.asked if isinstance(plan, Plan) else []
        named = {name: [to_plain(label) for label in _names(value)] for name, value in self.options.items()}
        size = histogram.domain_size if histogram.domain == "public" else None
        about = [str(histogram.sensitivity), histogram.domain, size, histogram.complete, histogram.limit]
        origin = ["source", source] if source else ["histogram", histogram.identity]
        parts = [self.what, str(self.charge), planned, named, about, origin]
        return fingerprint(parts)

    def draw(self, rng: Generator | None) -> Release:
        """Draw the answer; call it when the charge has been paid.

        Raises:
            ReleaseWithheld: when it costs more than ``charge``; then it is lost.
        """
        if isinstance(self.mechanism, Plan):
            release = self.mechanism.release(self.histogram, rng, average=self.average)
        else:
            release = self.mechanism.release(self.histogram, rng, **self.options)
        if not self.charge.includes(release.charge):
            raise ReleaseWithheld(self.charge, release.charge)
        return release


def mechanisms_of(mechanism: Mechanism | Plan) -> str:
    """The mechanisms of a question, in the order in which they run."""
    parts = mechanism.mechanisms if isinstance(mechanism, Plan) else (mechanism,)
    return " then ".join(str(part) for part in parts)


def _charge(mechanism: Mechanism | Plan, histogram: Histogram, options: Mapping[str, Any]) -> Charge:
    """The most that the question can cost, once it is sure that it fits."""
    if isinstance(mechanism, Plan):
        mechanism.check(histogram)
        return mechanism.charge
    named = options.get("labels", options.get("ranking"))
    public = histogram.domain_size if histogram.domain == "public" else None
    charge = mechanism.charge(histogram.sensitivity, labels=public if named is None else len(named))
    mechanism.check(histogram, **options)
    return charge


def _takes(mechanism: Mechanism | Plan, options: Mapping[str, Any]) -> None:
    """Refuse options that ``check`` of the mechanism does not take, and ask for those that it needs."""
    if not isinstance(mechanism, Plan | Mechanism):
        raise InvalidParameter("mechanism must be one of dptopk.mechanisms, or a Plan")
    parameters = list(signature(mechanism.check).parameters.values())
    known = {one.name: one for one in parameters if one.kind is one.KEYWORD_ONLY}
    name = type(mechanism).__name__
    for option in options:
        if option not in known and not any(one.kind is one.VAR_KEYWORD for one in parameters):
            raise InvalidParameter(f"{name} takes {' and '.join(known) or 'no further options'}, not {option}")
    for needed, one in known.items():
        if one.default is one.empty and needed not in options:
            raise InvalidParameter(f"{needed} must be given for {name}")


def _names(value: Any) -> Any:
    return value.labels if isinstance(value, Release) else () if value is None else value


def _once(name: str, value: Any) -> Any:
    """An option read once, into an object of our own: what is charged, checked, measured and written is the same."""
    if value is None or isinstance(value, Release):
        return value
    if name == "utilities":
        return np.array(value, dtype=object if getattr(value, "dtype", None) is None else None)
    return listed(value)
