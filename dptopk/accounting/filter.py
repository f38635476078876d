"""A privacy filter: costs chosen freely, one after the other, until a budget is used up (interaction model M4).

Fix one order λ > 0 and let h_c(λ) bound ln E[e^{λL}] of any mechanism with cost c, whatever came before. While the
sum of h_c over what was run stays at most B, exp(λ Σ L - Σ h) is a supermartingale also when each next cost depends on
all answers, so E[e^{λ Σ L}] <= e^B, and by CKS20 (Proposition 12) the whole is (ε, δ)-DP when

    B = λε + λ ln(1 + 1/λ) + ln(1 + λ) - ln(1/δ).

The order must be fixed beforehand. The default is the best one for a budget of zCDP costs; there the filter is the
cap on Σ ρ. (Feldman-Zrnic 2021 and Lécuyer 2021 prove such filters; with masses of failure, which add up, see
Cesar-Rogers 2022, Lemma 3.4, and Whitehouse et al. 2023.)
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np

from dptopk import _validate as validate
from dptopk._choices import NEIGHBOURS, Neighbours
from dptopk.accounting.bounds import split_failure
from dptopk.accounting.budget import Budget
from dptopk.accounting.pure_dp.homogeneous import pure_epsilons
from dptopk.accounting.renyi.composition import log_mgf
from dptopk.accounting.renyi.log_mgf import LOG_MGF_ERROR
from dptopk.costs import Charge, Cost
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter, NotApplicable

__all__ = ["Filter"]


class Filter:
    """A fully adaptive filter for a budget: a Rényi budget at one order, or the sum of the ε's where δ is 0.

    Args:
        budget: the total (ε, δ).
        order: λ > 0, Rényi order minus 1, fixed for good; None: the best for zCDP costs.
        failure_delta: the part of δ set aside for the deltas of charges and of ApproxDP and MultiDP costs, in
            [0, budget.delta); None: half of it.
        neighbours: the neighbour relation of all charges.

    Raises:
        InvalidParameter: on arguments out of range, or a budget too small for the order.

    >>> from dptopk.accounting.budget import Budget
    >>> from dptopk.costs import BoundedRange
    >>> budget = Filter(Budget(1.0, 1e-6))
    >>> budget.spend(Charge({BoundedRange(0.1): 10}, delta=1e-8))
    >>> budget.can_spend(Charge({BoundedRange(0.1): 10_000}))
    False
    """

    def __init__(
        self,
        budget: Budget,
        *,
        order: float | None = None,
        failure_delta: float | None = None,
        neighbours: Neighbours = "add_remove",
    ) -> None:
        self.budget = validate.instance(Budget, budget=budget)
        self.neighbours: Neighbours = validate.member(NEIGHBOURS, neighbours=neighbours)
        self.failure_delta = validate.probability(
            failure_delta=budget.delta / 2 if failure_delta is None else failure_delta
        )
        if self.failure_delta > 0 and self.failure_delta >= budget.delta:
            raise InvalidParameter(
                f"failure_delta must be below the budget's delta {budget.delta}, got {failure_delta}"
            )
        self.order: float | None = None
        capacity = budget.epsilon
        if budget.delta > 0:
            log_inverse = -math.log((budget.delta - self.failure_delta) * (1 - 2**-52))
            best = _best_order(budget.epsilon, log_inverse)
            self.order = best if order is None else validate.positive(order=order)
            capacity = _capacity(budget.epsilon, log_inverse, self.order)
        if capacity <= 0:
            raise InvalidParameter(f"budget {budget} leaves nothing at order {self.order}")
        self._capacity = self._left = Fraction(capacity)
        self._failures_left = Fraction(self.failure_delta)
        self._prices: dict[Cost, tuple[Fraction, Fraction]] = {}
        self._spent: Counter[Cost] = Counter()

    def price(self, cost: Cost) -> tuple[Fraction, Fraction]:
        """What one cost takes: its ln E[e^{λL}] (or its ε, where δ is 0) and its failure mass; both rounded up.

        Raises:
            IncompatibleCosts: when the cost has no such price: no pure DP where the budget's δ is 0.
        """
        if cost not in self._prices:
            rest, failure = split_failure(Charge({cost: 1}))
            self._prices[cost] = Fraction(self._exponent(rest)), Fraction(failure)
        return self._prices[cost]

    def _exponent(self, rest: Charge) -> float:
        if not rest.costs:
            return 0.0
        if self.order is None:
            try:
                return math.fsum(pure_epsilons(rest))
            except NotApplicable as reason:
                raise IncompatibleCosts(f"a budget with delta 0 takes pure DP only: {reason}") from None
        value = float(log_mgf(rest)(np.array([self.order]))[0]) * (1 + 4 * LOG_MGF_ERROR)
        if not math.isfinite(value):
            raise IncompatibleCosts(f"no Rényi bound for {rest}")
        return value

    def _total(self, charge: Charge) -> tuple[Fraction, Fraction]:
        validate.instance(Charge, charge=charge)
        if charge.neighbours != self.neighbours:
            raise IncompatibleCosts(f"the budget is for {self.neighbours}, the charge for {charge.neighbours}")
        exponent, failure = Fraction(0), Fraction(charge.delta)
        for cost, times in charge:
            each = self.price(cost)
            exponent += times * each[0]
            failure += times * each[1]
        return exponent, failure

    def can_spend(self, charge: Charge) -> bool:
        """Whether ``spend`` would accept the charge."""
        exponent, failure = self._total(charge)
        return exponent <= self._left and failure <= self._failures_left

    def spend(self, charge: Charge) -> None:
        """Take a charge off the budget; call it before the mechanism runs.

        Raises:
            BudgetExceeded: when the budget does not cover it; then nothing is spent.
            IncompatibleCosts: when the charge has no price here, or is for other neighbours.
        """
        exponent, failure = self._total(charge)
        if exponent > self._left or failure > self._failures_left:
            what = "epsilon" if exponent > self._left else "failure delta"
            raise BudgetExceeded(charge, self.remaining(), f"the {what} is used up")
        self._left -= exponent
        self._failures_left -= failure
        self._spent.update(dict(charge.costs))

    def refund(self, charge: Charge) -> None:
        """Give back costs that were spent but never ran; failure masses and deltas stay spent.

        Sound because the filter's argument counts what ran: a cost that never ran is a round that never was.

        Raises:
            InvalidParameter: when this was not spent, or delta is not 0; then nothing is given back.
        """
        if not isinstance(charge, Charge) or charge.delta:
            raise InvalidParameter("charge to refund must be a Charge with delta 0: a delta is never refunded")
        if any(self._spent[cost] < times for cost, times in charge):
            raise InvalidParameter(f"charge to refund was not spent: {charge}")
        self._left += self._total(charge)[0]
        self._spent.subtract(dict(charge.costs))

    def epsilon(self) -> float:
        """The budget's ε: the guarantee at every moment, at the budget's δ."""
        return self.budget.epsilon

    @property
    def share_left(self) -> float:
        """What is left of the budget, as a share in [0, 1] of the sum that the filter bounds."""
        return float(self._left / self._capacity)

    def shares(self) -> dict[str, float]:
        """What is used of the budget, as a share in [0, 1] under the name "budget"."""
        return {"budget": 1 - self.share_left}

    def remaining(self) -> str:
        """What is left, in words."""
        what = "the sum of epsilons" if self.order is None else f"the Rényi budget at order {1 + self.order:.4g}"
        return f"{self.share_left:.2%} of {what} and {float(self._failures_left):.3g} of delta for failures"

    def __repr__(self) -> str:
        return f"Filter({self.budget}, remaining={self.remaining()})"


def _capacity(epsilon: float, log_inverse_delta: float, order: float) -> float:
    """B, rounded down."""
    terms = (order * epsilon, order * math.log1p(1 / order), math.log1p(order), -log_inverse_delta)
    return math.fsum(terms) - 1e-15 * math.fsum(abs(term) for term in terms)


def _best_order(epsilon: float, log_inverse_delta: float) -> float:
    """The order with the largest B for its price of zCDP, λ(1 + λ) (any order is sound)."""
    low, high = -20.0, 40.0
    for _ in range(6):
        grid = np.linspace(low, high, 60)
        worth = [_capacity(epsilon, log_inverse_delta, o) / (o * (1 + o)) for o in np.exp(grid)]
        at = int(np.argmax(worth))
        low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, 59)])
    return math.exp((low + high) / 2)
