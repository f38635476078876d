"""Running totals of a filter: exact sums of prices, failure masses, and the accepted costs themselves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from dptopk.budgets.account import Record, cost_of
from dptopk.costs import Charge, Cost
from dptopk.errors import InvalidParameter


@dataclass(frozen=True)
class Priced:
    """The sums that a charge takes at recorded prices.

    Attributes:
        sums: the sum of its prices on each metric.
        unpriced: how many of its costs have no price there.
        failures: its own delta and the failure masses of its costs.
    """

    sums: dict[str, Fraction]
    unpriced: dict[str, int]
    failures: Fraction

    @classmethod
    def of(cls, charge: Charge, record: Record, metrics: Mapping[str, Callable[[float], Fraction]]) -> Priced:
        """By the prices of a record, one for each metric (with how it reads a number) and the failure mass after them.

        Raises:
            InvalidParameter: when the record holds no prices for these costs.
        """
        sums, failures = dict.fromkeys(metrics, Fraction(0)), Fraction(charge.delta)
        unpriced = dict.fromkeys(sums, 0)
        try:
            for cost, times in charge:
                *prices, failure = record["prices"][str(cost)]
                failures += times * Fraction(_amount(failure))
                for name, price in zip(sums, prices, strict=True):
                    if price is None:
                        unpriced[name] += times
                    else:
                        sums[name] += times * metrics[name](_amount(price))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InvalidParameter("the record of this charge does not fit a filter") from None
        return cls(sums, unpriced, failures)


@dataclass
class RunningTotals:
    """Totals of the accepted charges.

    Attributes:
        sums: of prices on each metric.
        unpriced: how many costs ran that have no price there: while there are any, that metric covers nothing more.
        failures: masses of failure and deltas, which never come back.
        spent: the costs.
        delta: the deltas of charges.
        adaptive: whether a charge was adaptive inside.
    """

    sums: dict[str, Fraction]
    unpriced: dict[str, int]
    failures: Fraction = Fraction(0)
    spent: Counter[Cost] = field(default_factory=Counter)
    delta: Fraction = Fraction(0)
    adaptive: bool = False

    @classmethod
    def empty(cls, metrics: Iterable[str]) -> RunningTotals:
        """Nothing ran."""
        sums = dict.fromkeys(metrics, Fraction(0))
        return cls(sums, dict.fromkeys(sums, 0))

    def add(self, charge: Charge, taken: Priced) -> None:
        """Add a charge."""
        self._move(charge, taken, 1)
        self.failures += taken.failures
        self.delta += Fraction(charge.delta)
        self.adaptive |= charge.adaptive

    def ran(self, charge: Charge) -> bool:
        """Whether each cost of the charge was accepted at least that often."""
        return all(self.spent[cost] >= times for cost, times in charge)

    def take_off(self, charge: Charge, taken: Priced) -> None:
        """Take off costs that never ran; failure masses and deltas stay.

        Raises:
            InvalidParameter: when they are not in the sums.
        """
        sums, unpriced = taken.sums, taken.unpriced
        more = any(sums[name] > self.sums[name] or unpriced[name] > self.unpriced[name] for name in sums)
        if more or not self.ran(charge):
            raise InvalidParameter(f"charge to refund was not spent: {charge}")
        self._move(charge, taken, -1)

    def _move(self, charge: Charge, taken: Priced, sign: int) -> None:
        for name in self.sums:
            self.sums[name] += sign * taken.sums[name]
            self.unpriced[name] += sign * taken.unpriced[name]
        for cost, times in charge:
            self.spent[cost] += sign * times

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
        names = list(metrics)
        return cls(
            sums={name: Fraction(state["sums"][name]) for name in names},
            unpriced={name: state["unpriced"][name] for name in names},
            failures=Fraction(state["failures"]),
            spent=Counter({cost_of(cost): times for cost, times in state["spent"].items()}),
            delta=Fraction(state["delta"]),
            adaptive=state["adaptive"],
        )


def _amount(price: float) -> float:
    """A recorded price, checked.

    Raises:
        ValueError: when it is no finite number of at least 0.
    """
    if type(price) not in {int, float} or not 0 <= price < math.inf:
        raise ValueError("a price is a number of at least 0")
    return price
