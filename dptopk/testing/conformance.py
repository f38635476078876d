"""The check that a mechanism does what it states; a test of a new mechanism calls it once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dptopk._internal import validate
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.testing import draws as draw_checks, statement_checks
from dptopk.testing.mismatches import LABELS, Mismatch, Mismatches, Subject

# The default sensitivities: of counts under two pairs of caps, and of sums of weights.
SENSITIVITIES = (
    Sensitivity(l0=1),
    Sensitivity(linf=2, l0=3),
    Sensitivity(linf=100, l0=4, l2=100),
)
CHECKS: tuple[Callable[[Subject], Mismatches], ...] = (
    statement_checks.check_derived_values,
    statement_checks.check_round_trips,
    statement_checks.check_charges,
    statement_checks.check_listed_law,
    statement_checks.check_scaling,
    statement_checks.check_refusals,
    draw_checks.check_measurement,
    draw_checks.check_simulation,
    draw_checks.check_appearance,
    draw_checks.check_swaps,
)


@dataclass(frozen=True)
class ConformanceReport:
    """The result of a check of a mechanism.

    Attributes:
        mechanism: the mechanism as text.
        sensitivities: the sensitivities under which it was checked; it refuses the others.
        findings: the false statements, without repetitions.
    """

    mechanism: str
    sensitivities: tuple[Sensitivity, ...]
    findings: tuple[Mismatch, ...]

    @property
    def holds(self) -> bool:
        """Return whether no statement was found to be false."""
        return not self.findings

    @property
    def names(self) -> set[str]:
        """Return the names of the false statements."""
        return {finding.statement for finding in self.findings}

    def require(self) -> None:
        """Raise an AssertionError that shows all findings, if there are any."""
        if self.findings:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        """Return the mechanism and its findings, one on each line."""
        lines = [f"  {finding}" for finding in self.findings] or ["  all statements hold"]
        return "\n".join([self.mechanism, *lines])


def check_mechanism(
    mechanism: Mechanism,
    *,
    sensitivities: Sequence[Sensitivity] | None = None,
    draws: int = 1500,
    seed: int = 0,
) -> ConformanceReport:
    """Compare the statements of a mechanism with its releases and with each other.

    The check compares the charge with the exact law on all neighbouring histograms of a small world
    if that can be listed (of the mechanism ``scaled`` to less noise, if necessary), with the charge
    of releases, and with that under a wider sensitivity; ``measurement`` with the noise of releases
    (deviation, tails, intervals); ``simulate``, ``appears_at`` and ``swap_chance`` with releases;
    ``scaled`` with its factor; round trips; and the refusals of ``check`` with those of
    ``release``. A report without findings is evidence, not a proof: draws detect errors of a few
    per cent, and a law that cannot be listed is not compared with its charge.

    Args:
        mechanism: any mechanism; it need not be registered.
        sensitivities: the sensitivities under which it is checked; None: one label of one user, two
            counts on each of three labels, and sums of weights, as far as it accepts them.
        draws: number of releases for an estimate.
        seed: seed of all draws, so that the report is reproducible.

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
    accepted = tuple(sensitivity for sensitivity in tried if _accepts(mechanism, sensitivity))
    if not accepted:
        raise InvalidParameter("sensitivities: the mechanism refuses all of them")
    findings: dict[str, Mismatch] = {}  # the first one of each statement
    for sensitivity in accepted:
        subject = Subject(mechanism, sensitivity, number, seed)
        for check in CHECKS:
            for finding in check(subject):
                findings.setdefault(finding.statement, finding)
    return ConformanceReport(str(mechanism), accepted, tuple(findings.values()))


def _accepts(mechanism: Mechanism, sensitivity: Sensitivity) -> bool:
    """Return whether the mechanism has a charge under a sensitivity."""
    try:
        mechanism.charge(sensitivity, labels=LABELS)  # refuses a sensitivity it does not cover
    except InvalidParameter:
        return False
    return True
