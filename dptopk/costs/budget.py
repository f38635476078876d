"""Budget: a total (ε, δ), or a total ρ, that is not to be exceeded."""

from __future__ import annotations

from dataclasses import dataclass

from dptopk._internal import validate
from dptopk.errors import InvalidParameter


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Budget:
    """A total guarantee: everything together stays (epsilon, delta)-DP, or rho-zCDP but for
    failures.

    Args:
        epsilon: the total ε, finite and above 0.
        delta: the total δ, in [0, 1). With rho: the δ at which ε is reported, half of it for
            failures.
        rho: instead of epsilon: the total ρ of zero-concentrated DP, finite and above 0.

    Raises:
        InvalidParameter: on values outside these ranges, and unless exactly one of epsilon and rho
            is given; also where ``epsilon`` is read of a budget in ρ.

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
        total = {"_epsilon": None if epsilon is None else validate.positive(epsilon=epsilon)}
        total["rho"] = None if rho is None else validate.positive(rho=rho)
        validate.assign(self, delta=validate.probability(delta=delta), **total)

    @property
    def epsilon(self) -> float:
        """The total ε."""
        if self._epsilon is None:
            raise InvalidParameter(
                f"budget must be in epsilon and delta here, got {self}", parameter="budget"
            )
        return self._epsilon

    def terms(self) -> list[float | None]:
        """Return JSON: [ε, δ], or [null, δ, ρ]; ``of_terms`` reads it."""
        if self.rho is None:
            return [self._epsilon, self.delta]
        return [None, self.delta, self.rho]

    @classmethod
    def of_terms(cls, terms: list[float]) -> Budget:
        """The budget that ``terms`` wrote."""
        epsilon, delta, *rho = terms
        return cls(epsilon, delta, rho=rho[0] if rho else None)

    def __repr__(self) -> str:
        total = f"epsilon={self._epsilon}" if self.rho is None else f"rho={self.rho}"
        return f"Budget({total}, delta={self.delta})"
