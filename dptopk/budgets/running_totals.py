"""Running totals of a filter: exact sums of prices, failure masses, and the accepted costs
themselves.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dptopk.budgets.account_base import Record, cost_of
from dptopk.costs import Charge, Cost
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.budgets.filter_metrics import Metric, Price

# Short enough for sums of them to be written: see ``filter_metrics.LARGEST_DENOMINATOR``.
_FRACTION = re.compile(r"[0-9]{1,320}/[1-9][0-9]{0,3}")

PURE = "pure"  # the name of the metric that adds up the ε's


@dataclass
class RunningTotals:
    """The sums for one charge at recorded prices, or for all accepted charges together.

    Attributes:
        sums: metric -> the exact sum of prices on it.
        unpriced: metric -> the number of costs that have no price on it: once any of them ran, that
            metric covers nothing more.
        failures: the part of δ that was taken: masses of failure of costs and deltas of charges, or
            the δ of a statement. It never comes back.
        spent: the costs, with their numbers.
        delta: the sum of the deltas of charges.
        adaptive: whether a charge was adaptive inside.
        extra: the part of ``failures`` that only the statements needed, beyond the masses of
            failure.
        statements: the number of charges that were entered with a statement.
        epsilon_sum_closed: whether the sum of ε's is closed for good, as a charge ran that is not
            in it; of one charge: whether it closes that sum.
    """

    sums: dict[str, Fraction]
    unpriced: dict[str, int]
    failures: Fraction
    spent: Counter[Cost]
    delta: Fraction
    adaptive: bool = False
    extra: Fraction = Fraction(0)
    statements: int = 0
    epsilon_sum_closed: bool = False

    @classmethod
    def of(cls, charge: Charge, record: Record, metrics: Mapping[str, Metric]) -> RunningTotals:
        """Return the totals of one charge by its record.

        Args:
            charge: the charge.
            record: what ``Filter.quote`` said of it: its "prices", for each cost one for each
                metric and then its mass of failure; "left" where it closes the sum of ε's for good;
                "stated" where it is entered by a statement, with ε and δ.
            metrics: the filter's metrics by name, in the order of the prices.

        Raises:
            InvalidParameter: when the record holds no prices for these costs, or a statement that
                does not contain their failures.
        """
        sums = dict.fromkeys(metrics, Fraction(0))
        unpriced = dict.fromkeys(metrics, 0)
        delta = Fraction(charge.delta)
        failures = delta
        try:
            for cost, times in charge:
                *prices, failure = prices_of(record)[str(cost)]
                failures += times * Fraction(_checked_price(failure))
                for name, price in zip(sums, prices, strict=True):
                    if price is None:
                        unpriced[name] += times
                    else:
                        sums[name] += times * metrics[name].read(_checked_price(price))
            totals = cls(
                sums, unpriced, failures, Counter(dict(charge.costs)), delta, charge.adaptive
            )
            totals.epsilon_sum_closed = bool(record.get("left", False))
            if "stated" in record:
                stated = record["stated"]
                totals._enter_statement(stated["epsilon"], stated["delta"], metrics)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InvalidParameter("the record of this charge does not fit a filter") from None
        return totals

    def _enter_statement(self, epsilon: float, delta: float, metrics: Mapping[str, Metric]) -> None:
        """Enter the statement (ε, δ) of a charge in place of the ε's and failures of its costs.

        Args:
            epsilon: ε of the statement.
            delta: δ of the statement.
            metrics: the filter's metrics by name.

        Raises:
            ValueError: when δ is less than the failures, which it contains.
        """
        exact_delta = Fraction(_checked_price(delta))
        if exact_delta < self.failures:
            raise ValueError("a statement contains the failures of its charge")
        self.extra = exact_delta - self.failures
        self.failures = exact_delta
        self.sums[PURE] = metrics[PURE].read(_checked_price(epsilon))
        self.unpriced[PURE] = 0
        self.statements = 1

    def add(self, totals: RunningTotals, times: int = 1) -> None:
        """Add the totals of a charge, ``times`` times, to these."""
        self._add_revocable(totals, times)
        self.failures += times * totals.failures
        self.extra += times * totals.extra
        self.delta += times * totals.delta
        self.statements += times * totals.statements
        self.adaptive |= totals.adaptive
        self.epsilon_sum_closed |= totals.epsilon_sum_closed

    def contains_costs(self, charge: Charge) -> bool:
        """Return whether each cost of the charge was accepted at least that often."""
        return all(self.spent[cost] >= times for cost, times in charge)

    def subtract(self, charge: Charge, totals: RunningTotals) -> None:
        """Take off costs that never ran; failure masses, deltas and statements stay.

        Args:
            charge: the costs.
            totals: their totals at the prices at which they come back.

        Raises:
            InvalidParameter: when they are not in the sums.
        """
        if not self._contains_prices(totals) or not self.contains_costs(charge):
            raise InvalidParameter(f"charge to refund was not spent: {charge}")
        self._add_revocable(totals, -1)

    def _contains_prices(self, totals: RunningTotals) -> bool:
        """Return whether no sum of prices of ``totals`` is above that of these."""
        for name, price in totals.sums.items():
            if price > self.sums[name] or totals.unpriced[name] > self.unpriced[name]:
                return False
        return True

    def _add_revocable(self, totals: RunningTotals, times: int) -> None:
        """Add ``times`` the sums of prices and the numbers of costs, the only totals that a refund
        takes off again; a negative number takes them off.
        """
        for name in self.sums:
            self.sums[name] += times * totals.sums[name]
            self.unpriced[name] += times * totals.unpriced[name]
        self.spent.update({cost: times * number for cost, number in totals.spent.items()})

    def copy(self) -> RunningTotals:
        """Return equal totals that share nothing with these."""
        return replace(
            self, sums=dict(self.sums), unpriced=dict(self.unpriced), spent=Counter(self.spent)
        )

    @classmethod
    def upper_envelope(cls, histories: Sequence[RunningTotals]) -> RunningTotals:
        """Return totals that are at least those of each of several histories on the same metrics.

        Every test of a filter is harder to pass with larger totals, so whoever has one of these
        histories is covered by whatever is accepted after it.
        """
        names = histories[0].sums
        spent = Counter[Cost]()
        for history in histories:
            spent |= history.spent  # of each cost the larger number
        sums = {}
        unpriced = {}
        for name in names:
            sums[name] = max(history.sums[name] for history in histories)
            unpriced[name] = max(history.unpriced[name] for history in histories)
        return cls(
            sums=sums,
            unpriced=unpriced,
            failures=max(history.failures for history in histories),
            spent=spent,
            delta=max(history.delta for history in histories),
            adaptive=any(history.adaptive for history in histories),
            extra=max(history.extra for history in histories),
            statements=max(history.statements for history in histories),
            epsilon_sum_closed=any(history.epsilon_sum_closed for history in histories),
        )

    def state(self) -> Record:
        """Return the totals as JSON, exactly; ``of_state`` reads them."""
        return {
            "sums": {name: str(total) for name, total in self.sums.items()},
            "unpriced": dict(self.unpriced),
            "failures": str(self.failures),
            "spent": {str(cost): times for cost, times in self.spent.items() if times},
            "delta": str(self.delta),
            "adaptive": self.adaptive,
            "extra": str(self.extra),
            "statements": self.statements,
            "left": self.epsilon_sum_closed,
        }

    @classmethod
    def of_state(cls, state: Record, metrics: Iterable[str]) -> RunningTotals:
        """Return the totals that ``state`` gave; states of older versions hold no statements.

        Args:
            state: what ``state`` returned.
            metrics: the names of the filter's metrics.
        """
        names = list(metrics)
        return cls(
            sums={name: Fraction(state["sums"][name]) for name in names},
            unpriced={name: state["unpriced"][name] for name in names},
            failures=Fraction(state["failures"]),
            spent=Counter({cost_of(cost): times for cost, times in state["spent"].items()}),
            delta=Fraction(state["delta"]),
            adaptive=state["adaptive"],
            extra=Fraction(state.get("extra", 0)),
            statements=state.get("statements", 0),
            epsilon_sum_closed=state.get("left", False),
        )


def prices_of(record: Record) -> Record:
    """Return the prices in a record of a filter: cost, as text -> its price on each metric, and
    last its mass of failure.

    Those of a statement stand inside it: a program that knows no statements finds no prices, and
    refuses the record instead of counting less than was taken.

    Raises:
        KeyError, TypeError: when there are none.
    """
    holder = record.get("stated", record)
    prices: Record = holder["prices"]
    return prices


def _checked_price(price: Price) -> Price:
    """Return a recorded price, checked.

    Raises:
        ValueError: when it is no finite number of at least 0.
    """
    if isinstance(price, str):
        if not _FRACTION.fullmatch(price):
            raise ValueError("a price that is a text is a fraction of whole numbers")
        return price
    if type(price) not in {int, float} or not 0 <= price < math.inf:
        raise ValueError("a price is a number of at least 0")
    return price
