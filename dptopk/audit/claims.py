"""Claims about a mechanism: points (ε, δ) of its privacy profile, and the bounded range of its
losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptopk.accounting.bounds import compose
from dptopk.costs import BoundedRange, Budget, Charge
from dptopk.errors import InvalidParameter

POINTS = 6  # how many points of a charge's profile are tested
# A δ this far above the mass of bad events belongs to the largest ε that is tested.
NEGLIGIBLE_DELTA = 1e-9
FAILURES_AT = 100.0  # at this ε, the δ of a charge is little more than its mass of bad events


@dataclass(frozen=True)
class Claim:
    """A privacy claim that an audit tries to refute.

    Attributes:
        points: pairs (ε, δ) with the claim P(S) <= e^ε Q(S) + δ for every event S and both orders
            of the neighbours.
        loss_range: the claim ln P(S)/Q(S) - ln P(S')/Q(S') <= loss_range for all events S, S';
            None if it is not made.
        text: the claim in words.
    """

    points: tuple[tuple[float, float], ...]
    loss_range: float | None
    text: str

    @classmethod
    def of(cls, claim: Charge | Budget) -> Claim:
        """Return the claim that a mechanism costs a charge, or is (ε, δ)-DP.

        Args:
            claim: a Budget(ε, δ) or a Charge. For a Charge, ``compose`` gives δ at a few ε (an
                upper bound, so that a refutation refutes the charge); a single bounded range is
                also tested as a range of losses.

        Raises:
            InvalidParameter: for a claim of another type.

        >>> Claim.of(Budget(1.0, 1e-6)).points
        ((1.0, 1e-06),)
        """
        if isinstance(claim, Budget):
            text = f"({claim.epsilon:g}, {claim.delta:g})-DP"
            return cls(((claim.epsilon, claim.delta),), None, text)
        if not isinstance(claim, Charge):
            raise InvalidParameter(
                f"claim must be a Charge or a Budget, got {type(claim).__name__}"
            )
        points = tuple(_profile_point(claim, epsilon) for epsilon in _tested_epsilons(claim))
        return cls(points, _loss_range(claim), str(claim))


def _profile_point(charge: Charge, epsilon: float) -> tuple[float, float]:
    """Return ε and an upper bound on the δ of a charge at this ε."""
    return epsilon, compose(charge, epsilon=epsilon).delta


def _tested_epsilons(charge: Charge) -> list[float]:
    """Return POINTS values of ε from 0 up to the one at which δ has fallen almost to the mass of
    bad events; only 0 if there is no such ε above it.
    """
    failures = compose(charge, epsilon=FAILURES_AT).delta
    # At a δ of 1 or more there would be no ε to find.
    delta_of_most = min(failures + NEGLIGIBLE_DELTA, 0.5)
    most = compose(charge, delta=delta_of_most).epsilon
    if not 0 < most < float("inf"):
        return [0.0]
    return [float(epsilon) for epsilon in np.linspace(0.0, most, POINTS)]


def _loss_range(charge: Charge) -> float | None:
    """Return ε of a charge that is one BoundedRange(ε) and nothing else; None for others."""
    cost = next(iter(charge.costs), None)
    is_one_cost = charge.count == 1 and charge.delta == 0
    if is_one_cost and isinstance(cost, BoundedRange):
        return cost.epsilon
    return None
