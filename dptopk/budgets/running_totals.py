"""Running totals of a filter: exact sums of prices, failure masses, and the accepted costs themselves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dptopk.budgets.account import Record, cost_of
from dptopk.costs import Charge, Cost
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.budgets.filter_metrics import Metric


@dataclass
class RunningTotals:
    """What one charge takes at recorded prices, or all accepted charges together.

    Attributes:
        sums: of prices on each metric.
        unpriced: how many costs have no price there: while any of them ran, that metric covers nothing more.
        failures: masses of failure of costs and deltas of charges, which never come back.
        spent: the costs.
        delta: the deltas of charges.
        adaptive: whether a charge was adaptive inside.
    """

    sums: dict[str, Fraction]
    unpriced: dict[str, int]
    failures: Fraction
    spent: Counter[Cost]
    delta: Fraction
    adaptive: bool = False

    @classmethod
    def of(cls, charge: Charge, record: Record, metrics: Mapping[str, Metric]) -> RunningTotals:
        """By the prices of a record, one for each metric and the failure mass after them.

        Raises:
            InvalidParameter: when the record holds no prices for these costs.
        """
        sums, unpriced = dict.fromkeys(metrics, Fraction(0)), dict.fromkeys(metrics, 0)
        delta = failures = Fraction(charge.delta)
        try:
            for cost, times in charge:
                *prices, failure = record["prices"][str(cost)]
                failures += times * Fraction(_amount(failure))
                for name, price in zip(sums, prices, strict=True):
                    if price is None:
                        unpriced[name] += times
                    else:
                        sums[name] += times * metrics[name].read(_amount(price))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InvalidParameter("the record of this charge does not fit a filter") from None
        return cls(sums, unpriced, failures, Counter(dict(charge.costs)), delta, charge.adaptive)

    def add(self, taken: RunningTotals) -> None:
        """Add a charge."""
        self._move(taken, 1)
        self.failures += taken.failures
        self.delta += taken.delta
        self.adaptive |= taken.adaptive

    def ran(self, charge: Charge) -> bool:
        """Whether each cost of the charge was accepted at least that often."""
        return all(self.spent[cost] >= times for cost, times in charge)

    def take_off(self, charge: Charge, taken: RunningTotals) -> None:
        """Take off costs that never ran; failure masses and deltas stay.

        Raises:
            InvalidParameter: when they are not in the sums.
        """
        sums, unpriced = taken.sums, taken.unpriced
        more = any(sums[name] > self.sums[name] or unpriced[name] > self.unpriced[name] for name in sums)
        if more or not self.ran(charge):
            raise InvalidParameter(f"charge to refund was not spent: {charge}")
        self._move(taken, -1)

    def _move(self, taken: RunningTotals, sign: int) -> None:
        for name in self.sums:
            self.sums[name] += sign * taken.sums[name]
            self.unpriced[name] += sign * taken.unpriced[name]
        self.spent.update({cost: sign * times for cost, times in taken.spent.items()})

    def state(self) -> Record:
        """Return the state as JSON; ``restored`` reads it."""
        return {
            "sums": {name: str(total) for name, total in self.sums.items()},
            "unpriced": dict(self.unpriced),
            "failures": str(self.failures),
            "spent": {str(cost): times for cost, times in self.spent.items() if times},
            "delta": str(self.delta),
            "adaptive": self.adaptive,
        }

    @classmethod
    def restored(cls, state: Record, metrics: Iterable[str]) -> RunningTotals:
        """The totals that ``state`` gave."""
        sums = {name: Fraction(state["sums"][name]) for name in metrics}
        unpriced = {name: state["unpriced"][name] for name in sums}
        spent = Counter({cost_of(cost): times for cost, times in state["spent"].items()})
        return cls(sums, unpriced, Fraction(state["failures"]), spent, Fraction(state["delta"]), state["adaptive"])


def _amount(price: float) -> float:
    """A recorded price, checked.

    Raises:
        ValueError: when it is no finite number of at least 0.
    """
    if type(price) not in {int, float} or not 0 <= price < math.inf:
        raise ValueError("a price is a number of at least 0")
    return price
