"""Budget: a total (ε, δ), or a total ρ, that is not to be exceeded."""

from __future__ import annotations

from dataclasses import dataclass

from dptopk._internal import validate
from dptopk.errors import InvalidParameter


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Budget:
    """A total guarantee: all answers together are (epsilon, delta)-DP, or rho-zCDP except for a
    probability of failure.

    Args:
        epsilon: the total ε, finite and above 0.
        delta: the total δ, in [0, 1). With rho: the δ at which ε is reported, of which half is the
            probability of failure.
        rho: instead of epsilon: the total ρ of zero-concentrated DP, finite and above 0.

    Raises:
        InvalidParameter: on values outside these ranges, and unless exactly one of epsilon and rho
            is given; also when the attribute ``epsilon`` of a budget in ρ is read.

    >>> Budget(2, 1e-6), Budget(rho=0.5)
    (Budget(epsilon=2.0, delta=1e-06), Budget(rho=0.5, delta=0.0))
    """

    _epsilon: float | None
    delta: float
    rho: float | None

    def __init__(
        self, epsilon: float | None = None, delta: float = 0.0, *, rho: float | None = None
    ) -> None:
        if (epsilon is None) == (rho is None):
            raise InvalidParameter("a budget has exactly one of epsilon and rho")
        if epsilon is not None:
            epsilon = validate.positive(epsilon=epsilon)
        if rho is not None:
            rho = validate.positive(rho=rho)
        validate.assign(self, delta=validate.probability(delta=delta), _epsilon=epsilon, rho=rho)

    @property
    def epsilon(self) -> float:
        """Return the total ε.

        Raises:
            InvalidParameter: for a budget in ρ.
        """
        if self._epsilon is None:
            raise InvalidParameter(
                f"budget must be in epsilon and delta here, got {self}", parameter="budget"
            )
        return self._epsilon

    def terms(self) -> list[float | None]:
        """Return the budget as JSON holds it: [ε, δ], or [null, δ, ρ]; ``of_terms`` reads it."""
        if self.rho is None:
            return [self._epsilon, self.delta]
        return [None, self.delta, self.rho]

    @classmethod
    def of_terms(cls, terms: list[float]) -> Budget:
        """Return the budget that ``terms`` wrote, from a list of two or three numbers.

        Raises:
            InvalidParameter: for numbers outside their ranges.
        """
        if len(terms) == 2:
            return cls(*terms)
        epsilon, delta, rho = terms
        return cls(epsilon, delta, rho=rho)

    def __repr__(self) -> str:
        """Return the call that makes this budget."""
        total = f"epsilon={self._epsilon}" if self.rho is None else f"rho={self.rho}"
        return f"Budget({total}, delta={self.delta})"
