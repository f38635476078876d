"""Budget: a total (ε, δ) that is not to be exceeded."""

from __future__ import annotations

from dataclasses import dataclass

from dptopk import _validate as validate

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True)
class Budget:
    """A total guarantee: everything together stays (epsilon, delta)-DP.

    Args:
        epsilon: the total ε, finite and above 0.
        delta: the total δ, in [0, 1).

    Raises:
        InvalidParameter: on values outside these ranges.

    >>> Budget(2, 1e-6)
    Budget(epsilon=2.0, delta=1e-06)
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        epsilon, delta = validate.positive(epsilon=self.epsilon), validate.probability(delta=self.delta)
        validate.assign(self, epsilon=epsilon, delta=delta)
