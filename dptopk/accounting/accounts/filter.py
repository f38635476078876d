"""A privacy filter: costs chosen freely, one after the other, until a budget is used up (interaction model M4).

A filter sums up prices (``meters``) and accepts a cost while the sum stays within a capacity that was fixed before the
first answer. With δ = 0 the prices are the ε's. Otherwise a charge is accepted while the Rényi sum is within its
capacity *or* the sum of pure ε's is within ε: plays of the second kind never have a loss above ε, so they add nothing
to δ(ε), and the union costs nothing.

Masses of failure (the δ of a charge, and those inside ApproxDP and MultiDP costs) add up in a part of δ of their own.
(Feldman-Zrnic 2021, Lécuyer 2021; with failures Cesar-Rogers 2022, Lemma 3.4, and Whitehouse et al. 2023.)
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from dptopk import _validate as validate
from dptopk._choices import NEIGHBOURS, Neighbours
from dptopk.accounting import bounds
from dptopk.accounting.accounts.account import Account, Record, Summary
from dptopk.accounting.accounts.meters import Gaussian, Meter, Pure, Ranges, Renyi, meter_of
from dptopk.accounting.accounts.tally import Priced, Tally
from dptopk.accounting.bounds import split_failure
from dptopk.accounting.budget import Budget
from dptopk.accounting.kinds.registry import kind_of
from dptopk.costs import ApproxDP, BoundedRange, Charge, Cost
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter

__all__ = ["Filter"]

FilterMethod = Literal["renyi", "ranges", "gaussian"]
METHODS: tuple[FilterMethod, ...] = ("renyi", "ranges", "gaussian")
PRICE_TOLERANCE = 1e-9  # relative difference of a recorded price from today's that is rounding


class Filter(Account):
    """A fully adaptive filter for a budget.

    Args:
        budget: the total (ε, δ).
        method: "renyi" (any cost with a Rényi bound), "ranges" (``ranges`` and ``costs`` say what; tightest),
            "gaussian" (Gaussians, also discrete, and pure costs; tighter for those); None: "ranges" where they are
            given, else "renyi". Pure costs whose ε's add up to at most the budget's ε are taken besides by each.
        ranges: the ε's of bounded-range costs that may be chosen freely; a cost between two of them takes the larger.
        costs: other costs that may be chosen freely besides, of any class with a Rényi curve and no failure mass; a
            cost that is not named takes the cheapest that covers it.
        order: λ > 0, Rényi order minus 1, fixed for good; None: the best for zCDP costs.
        failure_delta: the part of δ set aside for the deltas of charges and of ApproxDP and MultiDP costs, in
            [0, budget.delta); None: half of it.
        neighbours: the neighbour relation of all charges.
        meters: what is summed up, made for this budget and failure_delta; None: chosen here.

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
        method: FilterMethod | None = None,
        ranges: Sequence[float] | None = None,
        costs: Sequence[Cost] | None = None,
        order: float | None = None,
        failure_delta: float | None = None,
        neighbours: Neighbours = "add_remove",
        meters: Sequence[Meter] | None = None,
    ) -> None:
        super().__init__()
        self.budget = validate.instance(Budget, budget=budget)
        self.neighbours: Neighbours = validate.member(NEIGHBOURS, neighbours=neighbours)
        self.failure_delta = validate.probability(
            failure_delta=budget.delta / 2 if failure_delta is None else failure_delta
        )
        if self.failure_delta > 0 and self.failure_delta >= budget.delta:
            raise InvalidParameter(
                f"failure_delta must be below the budget's delta {budget.delta}, got {failure_delta}"
            )
        declared = None if ranges is None and costs is None else _declared(ranges or (), costs or ())
        if method is None:
            method = "renyi" if declared is None else "ranges"
        method = validate.member(METHODS, method=method)
        if (declared is not None) != (method == "ranges") or (order is not None and method != "renyi"):
            raise InvalidParameter(f"method {method!r} does not go with the options given: ranges, costs, order")
        self._meters = self._chosen(method, order, declared) if meters is None else list(meters)
        self.order = next((meter.order for meter in self._meters if isinstance(meter, Renyi)), None)
        self._names = [meter.name for meter in self._meters]
        self._tally = Tally.empty(self._names)
        self._prices: dict[Cost, tuple[float | None, ...]] = {}

    def _chosen(self, method: FilterMethod, order: float | None, declared: list[Cost] | None) -> list[Meter]:
        """The meters for the budget: the first is the one that the budget is meant for."""
        epsilon, delta = self.budget.epsilon, self.budget.delta - self.failure_delta
        pure = Pure(epsilon)
        if not delta > 0:
            return [pure]
        chosen: Meter
        if declared is not None:
            chosen = Ranges.at(epsilon, delta, declared)
        elif method == "gaussian":
            chosen = Gaussian.at(epsilon, delta)
        else:
            chosen = Renyi.at(epsilon, delta, None if order is None else validate.positive(order=order))
        if chosen.capacity <= 0:
            raise InvalidParameter(f"budget {self.budget} leaves nothing for {chosen.what}")
        return [chosen, pure]

    def terms(self) -> Record:
        """All that defines this filter, as JSON; ``of_terms`` makes an equal one without computing anything anew."""
        return {
            "budget": [self.budget.epsilon, self.budget.delta],
            "failure_delta": self.failure_delta,
            "neighbours": self.neighbours,
            "meters": [meter.terms() for meter in self._meters],
        }

    @classmethod
    def of_terms(cls, terms: Record) -> Filter:
        """The filter that ``terms`` described, nothing spent."""
        return cls(
            Budget(*terms["budget"]),
            failure_delta=terms["failure_delta"],
            neighbours=terms["neighbours"],
            meters=[meter_of(meter) for meter in terms["meters"]],
        )

    def price(self, cost: Cost) -> tuple[float | None, ...]:
        """What one cost takes: its price on each meter (None: it has none there) and its failure mass, rounded up.

        Raises:
            IncompatibleCosts: when it has no price on any meter.
        """
        if cost not in self._prices:
            rest, failure = split_failure(Charge({cost: 1}))
            refusal: IncompatibleCosts | None = None
            prices: list[float | None] = []
            for meter in self._meters:
                try:
                    prices.append(meter.price(rest) if rest.costs else 0.0)
                except IncompatibleCosts as reason:
                    refusal = refusal or reason
                    prices.append(None)
            if refusal is not None and not any(price is not None for price in prices):
                raise refusal
            self._prices[cost] = (*prices, float(failure))
        return self._prices[cost]

    def quote(self, charge: Charge) -> Record:
        """The prices of the charge's costs.

        Raises:
            BudgetExceeded: when no meter covers it.
            IncompatibleCosts: when the charge has no price here, or is for other neighbours.
        """
        validate.instance(Charge, charge=charge)
        if charge.neighbours != self.neighbours:
            raise IncompatibleCosts(f"the budget is for {self.neighbours}, the charge for {charge.neighbours}")
        with self._here():
            record = {"prices": {str(cost): list(self.price(cost)) for cost, _ in charge}}
            self._check(charge, Priced.of(charge, record, self._names))
        return record

    def _check(self, charge: Charge, taken: Priced) -> None:
        """Refuse a charge that no meter covers, or whose failure masses are not covered.

        Raises:
            BudgetExceeded: saying what is missing.
        """
        failures = taken.failures + Fraction(charge.delta)
        if self._tally.failures + failures > Fraction(self.failure_delta):
            left = float(Fraction(self.failure_delta) - self._tally.failures)
            short = f"{float(taken.failures) + charge.delta:.6g} asked for, {left:.6g} left"
            aside = f"{self.failure_delta:.6g} set aside (failure_delta)"
            raise BudgetExceeded(charge, self.remaining(), f"the failure delta is used up: {short} of the {aside}")
        if any(self._covers(meter, taken) for meter in self._meters):
            return
        meter = self._meters[0]
        share = min(taken.sums[meter.name] / meter.capacity, Fraction(10**9))  # counts have no bound, floats have
        takes = f"it takes {float(share):.2%} of {meter.what}, {self.share_left:.2%} is left"
        raise BudgetExceeded(charge, self.remaining(), f"the epsilon is used up: {takes}")

    def _covers(self, meter: Meter, taken: Priced) -> bool:
        name, spent = meter.name, self._tally
        all_priced = not spent.unpriced[name] + taken.unpriced[name]
        return all_priced and spent.sums[name] + taken.sums[name] <= meter.capacity

    def _delta_fits(self, charge: Charge, repetitions: int) -> bool:
        failures = sum(
            (times * Fraction(self.price(cost)[-1] or 0.0) for cost, times in charge), Fraction(charge.delta)
        )
        return self._tally.failures + repetitions * failures <= Fraction(self.failure_delta)

    def take(self, charge: Charge, record: Record) -> None:
        """Add the prices of a record to the sums; see ``Account.take``."""
        with self._here():
            taken = Priced.of(charge, record, self._names)
            self._check(charge, taken)
            self._tally.add(charge, taken)

    def quote_refund(self, charge: Charge, record: Record | None = None) -> Record:
        """The prices at which costs that never ran come back; failure masses and deltas stay spent.

        Sound because the filter's argument counts what ran: a cost that never ran is a round that never was.

        Raises:
            InvalidParameter: when this was not spent, or delta is not 0.
        """
        if not isinstance(charge, Charge) or charge.delta:
            raise InvalidParameter("charge to refund must be a Charge with delta 0: a delta is never refunded")
        with self._here():
            if not self._tally.ran(charge):
                raise InvalidParameter(f"charge to refund was not spent: {charge}")
            known = {} if record is None else record["prices"]
            return {"prices": {str(cost): known.get(str(cost)) or list(self.price(cost)) for cost, _ in charge}}

    def give_back(self, charge: Charge, record: Record) -> None:
        """Take prices off the sums again."""
        with self._here():
            self._tally.take_off(charge, Priced.of(charge, record, self._names))

    def disagreement(self, charge: Charge, record: Record) -> str:
        """Which recorded prices differ from today's by more than rounding."""
        different = []
        for cost, _ in charge:
            then = record["prices"][str(cost)]
            try:
                now: tuple[float | None, ...] = self.price(cost)
            except IncompatibleCosts:
                now = (None,) * len(then)
            if any(not _close(a, b) for a, b in zip(then, now, strict=True)):
                different.append(f"{cost}: {then} then, {list(now)} now")
        return f"charge {charge} was priced " + "; ".join(different) if different else ""

    def state(self) -> Record:
        """Sums, failures and what was spent, exactly."""
        with self._here():
            return self._tally.state()

    def restore(self, state: Record) -> None:
        """Take over a state of a filter of the same terms."""
        with self._here():
            self._tally = Tally.restored(state, self._names)

    def epsilon(self) -> float:
        """The budget's ε: the guarantee at every moment, at the budget's δ."""
        return self.budget.epsilon

    def spent(self) -> Charge:
        """What has been spent, as it was charged, refunds taken off."""
        tally = self._tally
        return Charge(+tally.spent, delta=float(tally.delta), adaptive=tally.adaptive, neighbours=self.neighbours)

    def odometer(self) -> bounds.Bound:
        """A reading of what was spent so far, at the budget's δ. NOT a guarantee: only ``epsilon()`` is."""
        return bounds.compose(self.spent(), delta=self.budget.delta)

    def summary(self) -> Summary:
        """The account in numbers."""
        reading = self.odometer().epsilon if self._tally.spent else 0.0
        used = {"budget": 1 - self.share_left}
        if self.failure_delta:
            used["failure delta"] = float(self._tally.failures / Fraction(self.failure_delta))
        total = self.budget.epsilon
        return Summary(min(reading, total), total, self.budget.delta, max(used.values()), used, self)

    @property
    def share_left(self) -> float:
        """What is left of the budget, as a share in [0, 1] of the capacity of the meter with the most left."""
        left = [
            1 - self._tally.sums[meter.name] / meter.capacity if not self._tally.unpriced[meter.name] else Fraction(0)
            for meter in self._meters
        ]
        return float(max(Fraction(0), *left))

    def shares(self) -> dict[str, float]:
        """What is used of the budget, as a share in [0, 1] under the name "budget"."""
        return {"budget": 1 - self.share_left}

    def remaining(self) -> str:
        """What is left, in words."""
        left = float(Fraction(self.failure_delta) - self._tally.failures)
        return f"{self.share_left:.2%} of {self._meters[0].what} and {left:.3g} of delta for failures"

    def group(self) -> Charge:
        """One (ε, δ) cost: all that a filter lets through is one interaction with that guarantee."""
        budget = self.budget
        return Charge({ApproxDP(budget.epsilon, budget.delta): 1}, neighbours=self.neighbours)

    def __repr__(self) -> str:
        return f"Filter({self.budget}, remaining={self.remaining()})"


def _declared(ranges: Sequence[float], costs: Sequence[Cost]) -> list[Cost]:
    """The distinct costs that may be chosen freely, bounded ranges first, from the largest down.

    Raises:
        InvalidParameter: when there are none, or one is no cost.
    """
    if not all(isinstance(cost, Cost) for cost in costs):
        raise InvalidParameter("costs must be a list of costs such as DiscreteGaussianDP(20, 1)")
    kinds = {validate.positive(ranges=each) for each in ranges}
    kinds |= {cost.epsilon for cost in costs if isinstance(cost, BoundedRange)}
    for cost in costs:
        if split_failure(Charge({cost: 1})) != (Charge({cost: 1}), 0.0) or kind_of(cost).log_mgf is None:
            raise InvalidParameter(f"costs: {cost} has failure mass or no Rényi curve, and so no price")
    others = {cost for cost in costs if not isinstance(cost, BoundedRange)}
    declared = [*map(BoundedRange, sorted(kinds, reverse=True)), *sorted(others, key=str)]
    if not declared:
        raise InvalidParameter("ranges must name at least one range, or costs one cost")
    return declared


def _close(then: float | None, now: float | None) -> bool:
    if then is None or now is None:
        return then is now
    return abs(then - now) <= PRICE_TOLERANCE * max(then, now)
