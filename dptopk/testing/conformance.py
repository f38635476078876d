"""A mechanism beside its own statements: what a test of a new one calls, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dptopk._internal import validate
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.testing import draws, statements
from dptopk.testing.mismatches import LABELS, Mismatch, Mismatches, Subject

# Of counts under two caps, and of sums of weights.
SENSITIVITIES = (
    Sensitivity(l0=1),
    Sensitivity(linf=2, l0=3),
    Sensitivity(linf=100, l0=4, l2=100),
)
CHECKS: tuple[Callable[[Subject], Mismatches], ...] = (
    statements.derived,
    statements.round_trips,
    statements.charges,
    statements.listed,
    statements.scaling,
    statements.refusals,
    draws.measured,
    draws.simulated,
    draws.appearing,
    draws.swapped,
)


@dataclass(frozen=True)
class ConformanceReport:
    """The result of a check of a mechanism.

    Attributes:
        mechanism: as text.
        sensitivities: under which it was checked; it refuses the others.
        findings: the statements that are not true, without repetitions.
    """

    mechanism: str
    sensitivities: tuple[Sensitivity, ...]
    findings: tuple[Mismatch, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def names(self) -> set[str]:
        """The statements that are not true."""
        return {finding.statement for finding in self.findings}

    def require(self) -> None:
        """Raise an AssertionError with all findings, where there are some."""
        if self.findings:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        lines = [f"  {finding}" for finding in self.findings] or ["  all statements hold"]
        return "\n".join([self.mechanism, *lines])


def check_mechanism(
    mechanism: Mechanism,
    *,
    sensitivities: Sequence[Sensitivity] | None = None,
    draws: int = 1500,
    seed: int = 0,
) -> ConformanceReport:
    """Compare what a mechanism states of itself with its releases, and its statements with each
    other.

    Compared are: the charge, with the exact law on all neighbouring histograms of a small world
    where that can be listed (of the mechanism ``scaled`` to less noise, if need be), with the
    charge of releases, and under a wider sensitivity; ``measurement`` with the noise of releases
    (deviation, tails, intervals); ``simulate``, ``appears_at`` and ``swap_chance`` with releases;
    ``scaled``; round trips; and what ``check`` refuses with what ``release`` refuses. That no
    finding comes up is evidence, no proof: draws see errors of some per cent, and a law that cannot
    be listed is not compared with its charge.

    Args:
        mechanism: any; it need not be registered.
        sensitivities: under which it is checked; None: one label of one user, two counts on each of
            three labels, and sums of weights, those of them that it accepts.
        draws: releases of an estimate.
        seed: of all draws: the same report every time.

    Raises:
        InvalidParameter: where the mechanism refuses all sensitivities.

    >>> from dptopk import KnownLaplace
    >>> print(check_mechanism(KnownLaplace(epsilon=0.8), draws=300))
    KnownLaplace(epsilon=0.8)
      all statements hold
    """
    validate.instance(Mechanism, mechanism=mechanism)
    number = validate.count(draws=draws, at_least=100)
    tried = SENSITIVITIES if sensitivities is None else tuple(sensitivities)
    sensitivities_accepted = tuple(each for each in tried if _accepted(mechanism, each))
    if not sensitivities_accepted:
        raise InvalidParameter("sensitivities: the mechanism refuses all of them")
    found: dict[str, Mismatch] = {}
    for sensitivity in sensitivities_accepted:
        subject = Subject(mechanism, sensitivity, number, seed)
        for check in CHECKS:
            for finding in check(subject):
                found.setdefault(finding.statement, finding)
    return ConformanceReport(str(mechanism), sensitivities_accepted, tuple(found.values()))


def _accepted(mechanism: Mechanism, sensitivity: Sensitivity) -> bool:
    """Whether the mechanism has a charge there."""
    try:
        mechanism.charge(sensitivity, labels=LABELS)
    except InvalidParameter:
        return False
    return True
