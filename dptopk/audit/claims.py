"""Claims about a mechanism: points (ε, δ) of its privacy profile, and the bounded range of its
losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptopk.accounting.bounds import compose
from dptopk.costs import BoundedRange, Budget, Charge
from dptopk.errors import InvalidParameter

POINTS = 6  # of the profile of a charge that are tested
FAILURES_AT = 100.0  # an ε at which the failures of a charge are what is left of its δ


@dataclass(frozen=True)
class Claim:
    """Statements that an audit tries to refute.

    Attributes:
        points: pairs (ε, δ): P(S) <= e^ε Q(S) + δ for every event S and both orders of the
            neighbours.
        loss_range: when not None, also that ln P(S)/Q(S) - ln P(S')/Q(S') <= loss_range for all
            events S, S'.
        text: the claim as a reader knows it.
    """

    points: tuple[tuple[float, float], ...]
    loss_range: float | None
    text: str

    @classmethod
    def of(cls, claim: Charge | Budget) -> Claim:
        """The claim that a mechanism costs a charge, or is (ε, δ)-DP.

        Args:
            claim: a Budget(ε, δ), or a Charge: then its profile is taken at a few ε by ``compose``
                (an upper bound, so that a refutation refutes the charge), and one bounded range
                alone is also tested as such.

        >>> Claim.of(Budget(1.0, 1e-6)).points
        ((1.0, 1e-06),)
        """
        if isinstance(claim, Budget):
            return cls(
                ((claim.epsilon, claim.delta),), None, f"({claim.epsilon:g}, {claim.delta:g})-DP"
            )
        if not isinstance(claim, Charge):
            raise InvalidParameter(
                f"claim must be a Charge or a Budget, got {type(claim).__name__}"
            )
        points = tuple(
            (epsilon, compose(claim, epsilon=epsilon).delta) for epsilon in _epsilons(claim)
        )
        return cls(points, _range(claim), str(claim))


def _epsilons(charge: Charge) -> list[float]:
    """0 and a few ε up to where the profile has come down to the failures that no ε ends."""
    failures = compose(charge, epsilon=FAILURES_AT).delta
    most = compose(charge, delta=min(failures + 1e-9, 0.5)).epsilon
    if not 0 < most < float("inf"):
        return [0.0]
    return [float(x) for x in np.linspace(0.0, most, POINTS)]


def _range(charge: Charge) -> float | None:
    """ε of a charge that is one bounded range and nothing else."""
    cost = next(iter(charge.costs), None)
    alone = charge.count == 1 and charge.delta == 0
    if alone and isinstance(cost, BoundedRange):
        return cost.epsilon
    return None
