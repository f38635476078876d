"""A privacy filter: costs chosen freely, one after the other, until a budget is used up (interaction model M4).

A filter sums up prices (``metrics``) and accepts a cost while the sum stays within a capacity that was fixed before the
first answer. With δ = 0 the prices are the ε's. Otherwise a charge is accepted while the Rényi sum is within its
capacity *or* the sum of pure ε's is within ε: plays of the second kind never have a loss above ε, so they add nothing
to δ(ε), and the union costs nothing.

Masses of failure (the δ of a charge, and those inside ApproxDP and MultiDP costs) add up in a part of δ of their own.
A charge that does not fit by its costs is entered as a whole, as the one (ε, δ) cost that it is. How δ is divided is
fixed at creation or, where nothing was said of it, by the first charge, which no answer has had a part in
(docs/notes/filters.md).
(Feldman-Zrnic 2021, Lécuyer 2021; with failures Cesar-Rogers 2022, Lemma 3.4, and Whitehouse et al. 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Literal

from dptopk._internal import validate
from dptopk._internal.choices import EFFORTS, NEIGHBOURS, Effort, Neighbours
from dptopk._internal.formatting import format_lower
from dptopk._internal.rounding import decimal, round_down, smaller_of
from dptopk._internal.search import bisect, bracket
from dptopk.accounting import bounds
from dptopk.accounting.cost_models.registry import cost_model_of
from dptopk.accounting.registry import Bound, split_failure
from dptopk.accounting.work import within
from dptopk.budgets.account import Account, Record, Summary, cost_of
from dptopk.budgets.filter_metrics import Gaussian, Metric, Pure, Ranges, Renyi, Zcdp, metric_of
from dptopk.budgets.running_totals import Priced, RunningTotals
from dptopk.costs import ZCDP, ApproxDP, BoundedRange, Budget, Charge, Cost, PureDP, sum_up
from dptopk.errors import BudgetExceeded, DptopkError, IncompatibleCosts, InvalidParameter

FilterMethod = Literal["renyi", "ranges", "gaussian"]
METHODS: tuple[FilterMethod, ...] = ("renyi", "ranges", "gaussian")
PRICE_TOLERANCE = 1e-9  # relative difference of a recorded price from today's that is rounding
WHOLE_TOLERANCE = 1e-3  # of the ε of a charge entered as a whole: the width at which ``compose`` may stop


class Filter(Account):
    """A fully adaptive filter for a budget.

    Args:
        budget: the total (ε, δ), or ρ: then prices are the ρ's of zCDP, and all together is ρ-zCDP but for failures.
        method: "renyi" (any cost with a Rényi bound), "ranges" (``ranges`` and ``costs`` say what; tightest),
            "gaussian" (Gaussians, also discrete, and pure costs; tighter for those); None: "ranges" where they are
            given, else "renyi". Pure costs whose ε's add up to at most the budget's ε are taken besides by each.
        ranges: the ε's of bounded-range costs that may be chosen freely; a cost between two of them takes the larger.
        costs: other costs that may be chosen freely besides, of any class with a Rényi curve and no failure mass; a
            cost that is not named takes the cheapest that covers it.
        order: λ > 0, Rényi order minus 1, fixed for good; None: the best for zCDP costs.
        failure_delta: the part of δ set aside for the deltas of charges and of ApproxDP and MultiDP costs, in
            [0, budget.delta]; None: half of it or, where this and the method are left open and half of it does not
            cover the first charge, as much as that charge needs.
        neighbours: the neighbour relation of all charges.
        terms: what ``terms`` gave for such a filter: nothing is computed anew.
        effort, max_seconds: how much work, and as a guard how much time, the capacity of declared costs may take; cut
            by the guard it is sound, smaller, and not reproducible.

    Raises:
        InvalidParameter: on arguments out of range, or a budget too small for the order.

    >>> from dptopk.costs import Budget
    >>> from dptopk.costs import BoundedRange
    >>> budget = Filter(Budget(1.0, 1e-6))
    >>> _ = budget.spend(Charge({BoundedRange(0.1): 10}, delta=1e-8))
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
        terms: Record | None = None,
        effort: Effort = "normal",
        max_seconds: float | None = None,
    ) -> None:
        super().__init__()
        self.budget = validate.instance(Budget, budget=budget)
        self.neighbours: Neighbours = validate.member(NEIGHBOURS, neighbours=neighbours)
        self.failure_delta = validate.probability(
            failure_delta=budget.delta / 2 if failure_delta is None else failure_delta
        )
        if self.failure_delta > budget.delta:
            raise InvalidParameter(
                f"failure_delta must be at most the budget's delta {budget.delta}, got {failure_delta}"
            )
        declared = None if ranges is None and costs is None else _declared(ranges or (), costs or ())
        self._open = method is None is order and declared is None is failure_delta is budget.rho and budget.delta > 0
        if method is None:
            method = "renyi" if declared is None else "ranges"
        method = validate.member(METHODS, method=method)
        if (declared is not None) != (method == "ranges") or (order is not None and method != "renyi"):
            raise InvalidParameter(f"method {method!r} cannot be combined with these options: ranges, costs, order")
        validate.member(EFFORTS, effort=effort)
        self._split: Record | None = None  # the terms of the filter that the first charge chose
        self._begun, self._wholes = False, 0  # whether anything was charged, and how many charges as a whole
        if terms is None:
            with within(max_seconds):
                self._use(self._chosen(method, order, declared, effort))
        else:
            self._open = terms.get("open", False)
            self._use([metric_of(metric) for metric in terms["meters"]])

    def _use(self, metrics: Sequence[Metric]) -> None:
        """Sum up by these metrics from here on, from nothing."""
        self._metrics = list(metrics)
        self.order = next((metric.order for metric in self._metrics if isinstance(metric, Renyi)), None)
        self._names = {metric.name: metric.read for metric in self._metrics}
        self._totals = RunningTotals.empty(self._names)
        self._prices: dict[Cost, tuple[float | None, ...]] = {}

    def _chosen(
        self, method: FilterMethod, order: float | None, declared: list[Cost] | None, effort: Effort
    ) -> list[Metric]:
        """The metrics for the budget: the first is the one that the budget is meant for."""
        if self.budget.rho is not None:
            if method != "renyi" or order is not None:
                raise InvalidParameter("a budget in rho has one method only; omit method, ranges, costs and order")
            return [Zcdp(self.budget.rho)]
        pure = Pure(self.budget.epsilon)
        exact = Fraction(self.budget.delta) - Fraction(self.failure_delta)
        if not exact > 0:
            return [pure]
        epsilon, delta = round_down(smaller_of(self.budget.epsilon)), round_down(exact)
        chosen: Metric
        if declared is not None:
            chosen = Ranges.at(epsilon, delta, declared, effort)
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
            "budget": self.budget.terms(),
            "failure_delta": self.failure_delta,
            "neighbours": self.neighbours,
            "meters": [metric.terms() for metric in self._metrics],
            **({"open": True} if self._open else {}),
        }

    @classmethod
    def of_terms(cls, terms: Record) -> Filter:
        """The filter that ``terms`` described, nothing spent."""
        return cls(
            Budget.of_terms(terms["budget"]),
            failure_delta=terms["failure_delta"],
            neighbours=terms["neighbours"],
            terms=terms,
        )

    def price(self, cost: Cost) -> tuple[float | None, ...]:
        """Return the price of one cost on each metric (None: no price there) and its failure mass, rounded up.

        Raises:
            IncompatibleCosts: when it has no price on any metric.
        """
        if cost not in self._prices:
            rest, failure = split_failure(Charge({cost: 1}))
            refusal: IncompatibleCosts | None = None
            prices: list[float | None] = []
            for metric in self._metrics:
                try:
                    prices.append(metric.price(rest) if rest.costs else 0.0)
                except IncompatibleCosts as reason:
                    refusal = refusal or reason
                    prices.append(None)
            if refusal is not None and not any(price is not None for price in prices):
                raise refusal
            self._prices[cost] = (*prices, float(failure))
        return self._prices[cost]

    def quote(self, charge: Charge) -> Record:
        """The prices of the charge's costs, or of the whole; with the division of δ that a first charge needs.

        Raises:
            BudgetExceeded: when it is not covered.
            IncompatibleCosts: when the charge has no price here, or is for other neighbours.
        """
        validate.instance(Charge, charge=charge)
        if charge.neighbours != self.neighbours:
            raise IncompatibleCosts(f"the budget is for {self.neighbours}, the charge for {charge.neighbours}")
        with self._here():
            try:
                return self._quoted(charge)
            except (BudgetExceeded, IncompatibleCosts):
                for failure_delta in self._other_divisions(charge):
                    other = Filter(self.budget, failure_delta=failure_delta, neighbours=self.neighbours)
                    with suppress(BudgetExceeded, IncompatibleCosts):
                        return other.quote(charge) | {"split": other.terms()}
                raise

    def _other_divisions(self, charge: Charge) -> list[float]:
        """The failure_delta's that a first charge may choose instead: what it needs, or all of δ."""
        if not self._open or self._begun:
            return []
        needed = sum_up([charge.delta, split_failure(charge, summed=True)[1]])
        return [each for each in (needed, self.budget.delta) if self.failure_delta < each <= self.budget.delta]

    def _quoted(self, charge: Charge) -> Record:
        """The record of a charge by its costs or, where these are not covered, of the whole."""
        try:
            record: Record = {"prices": {str(cost): list(self.price(cost)) for cost, _ in charge}}
            self._check(charge, Priced.of(charge, record, self._names))
        except (BudgetExceeded, IncompatibleCosts) as refused:
            whole = self._whole(charge)
            if whole is None:
                if self._split is None or isinstance(refused, BudgetExceeded):
                    raise
                raise BudgetExceeded(charge, self.remaining(), f"what fits is {self.remaining()}") from None
            record = {"whole": str(whole), "prices": {str(whole): list(self.price(whole))}}
            entered = Charge({whole: 1})
            with suppress(BudgetExceeded, IncompatibleCosts):
                self._check(entered, Priced.of(entered, record, self._names))
                return record
            raise
        return record

    def _whole(self, charge: Charge) -> ApproxDP | None:
        """One (ε, δ) cost that all of a charge is together, its δ all that is left for failures; None: none known."""
        room = round_down(Fraction(self.failure_delta) - self._totals.failures)
        if self.budget.rho is not None or not room > 0 or not charge.costs:
            return None
        found = bounds.compose(charge, delta=room, lower=False)
        epsilon = found.epsilon
        if epsilon < math.inf and decimal(epsilon) < Fraction(epsilon) and found.name != "basic":
            epsilon = math.nextafter(epsilon, math.inf)  # the bound is on the float, and a cost is its decimal
        return ApproxDP(epsilon, room) if epsilon < math.inf else None

    def _check(self, charge: Charge, taken: Priced) -> None:
        """Refuse a charge that no metric covers, or whose failure masses are not covered.

        Raises:
            BudgetExceeded: saying what is missing.
        """
        if self._covered(taken):
            return
        if self._totals.failures + taken.failures > Fraction(self.failure_delta):
            left = float(Fraction(self.failure_delta) - self._totals.failures)
            short = f"{float(taken.failures):.6g} asked for, {left:.6g} left"
            aside = f"{self.failure_delta:.6g} set aside (failure_delta)"
            raise BudgetExceeded(charge, self.remaining(), f"the failure delta is used up: {short} of the {aside}")
        total = "epsilon" if self.budget.rho is None else "rho"
        raise BudgetExceeded(charge, self.remaining(), f"the {total} is used up: what fits is {self.remaining()}")

    def _covered(self, taken: Priced) -> bool:
        within = self._totals.failures + taken.failures <= Fraction(self.failure_delta)
        return within and any(self._covers(metric, taken) for metric in self._metrics)

    def _covers(self, metric: Metric, taken: Priced) -> bool:
        name, spent = metric.name, self._totals
        all_priced = not spent.unpriced[name] + taken.unpriced[name]
        return all_priced and spent.sums[name] + taken.sums[name] <= metric.capacity

    def _fits(self, charge: Charge, repetitions: int) -> bool:
        """Whether n of the charge fit by their costs; a single one may also fit as a whole."""
        try:
            if repetitions == 1:
                return self.can_spend(charge)
            one = Priced.of(charge, {"prices": {str(cost): list(self.price(cost)) for cost, _ in charge}}, self._names)
            sums = {name: repetitions * total for name, total in one.sums.items()}
            unpriced = {name: repetitions * times for name, times in one.unpriced.items()}
        except DptopkError:
            return False
        return self._covered(Priced(sums, unpriced, repetitions * one.failures))  # a refusal in words takes far longer

    def _delta_fits(self, charge: Charge, repetitions: int) -> bool:
        failures = sum(
            (times * Fraction(self.price(cost)[-1] or 0.0) for cost, times in charge), Fraction(charge.delta)
        )
        return self._totals.failures + repetitions * failures <= Fraction(self.failure_delta)

    def apply(self, charge: Charge, record: Record) -> None:
        """Add the prices of a record to the sums; see ``Account.apply``."""
        with self._here():
            if "split" in record:
                other = self._chosen_by(record)
                other.apply(charge, {name: value for name, value in record.items() if name != "split"})
                self.restore(other.state() | {"split": record["split"]})
                return
            entered = Charge({cost_of(record["whole"]): 1}) if "whole" in record else charge
            taken = Priced.of(entered, record, self._names)
            self._check(entered, taken)
            self._totals.add(entered, taken)
            self._begun |= bool(charge)
            self._wholes += "whole" in record

    def _chosen_by(self, record: Record) -> Filter:
        """The filter that a record was made by: this one, or another division of δ, chosen by the first charge.

        Raises:
            InvalidParameter: for a choice that was not open.
        """
        if "split" not in record:
            return self
        other = Filter.of_terms(record["split"])
        if not self._open or self._begun or other.budget != self.budget or other.failure_delta > self.budget.delta:
            raise InvalidParameter("the record of this charge divides delta again, after the first charge")
        return other

    def quote_refund(self, charge: Charge, record: Record | None = None) -> Record:
        """The prices at which costs that never ran come back; failure masses and deltas stay spent.

        Sound because the filter's argument counts what ran: a cost that never ran is a round that never was.

        Raises:
            InvalidParameter: when this was not spent, or delta is not 0.
        """
        if not isinstance(charge, Charge) or charge.delta:
            raise InvalidParameter("charge to refund must be a Charge with delta 0: a delta is never refunded")
        with self._here():
            of_whole = self._wholes > 0 if record is None else "whole" in record
            if of_whole or not self._totals.ran(charge):
                raise InvalidParameter(f"charge to refund was not spent, or was spent as a whole: {charge}")
            known = {} if record is None else record["prices"]
            return {"prices": {str(cost): known.get(str(cost)) or list(self.price(cost)) for cost, _ in charge}}

    def revert(self, charge: Charge, record: Record) -> None:
        """Take prices off the sums again."""
        with self._here():
            self._totals.take_off(charge, Priced.of(charge, record, self._names))

    def disagreement(self, charge: Charge, record: Record) -> str:
        """Name the recorded prices that differ from the present ones by more than rounding."""
        different = []
        priced_by = Filter.of_terms(record["split"]) if "split" in record else self
        whole = cost_of(record["whole"]) if "whole" in record else None
        if isinstance(whole, ApproxDP):
            now = bounds.compose(charge, delta=whole.delta, lower=False).epsilon
            if now > whole.epsilon * (1 + WHOLE_TOLERANCE):
                different.append(f"{whole}: epsilon {now} now")
            charge = Charge({whole: 1})
        for cost, _ in charge:
            then = record["prices"][str(cost)]
            try:
                prices: tuple[float | None, ...] = priced_by.price(cost)
            except IncompatibleCosts:
                prices = (None,) * len(then)
            if any(not _close(a, b) for a, b in zip(then, prices, strict=True)):
                different.append(f"{cost}: {then} then, {list(prices)} now")
        return f"charge {charge} was priced " + "; ".join(different) if different else ""

    def state(self) -> Record:
        """Sums, failures and what was spent, exactly."""
        with self._here():
            return self._totals.state() | {"begun": self._begun, "wholes": self._wholes, "split": self._split}

    def restore(self, state: Record) -> None:
        """Take over a state of a filter of the same terms."""
        with self._here():
            self._split = split = state.get("split")
            if split is not None:
                self.failure_delta = split["failure_delta"]
                self._use([metric_of(metric) for metric in split["meters"]])
            self._begun, self._wholes = state.get("begun", True), state.get("wholes", 0)
            self._totals = RunningTotals.restored(state, self._names)

    def epsilon(self) -> float:
        """The budget's ε, or what its ρ is worth: the guarantee at every moment, at the budget's δ."""
        if self.budget.rho is None:
            return self.budget.epsilon
        return bounds.compose(self.group(), delta=self.budget.delta).epsilon

    def spent(self) -> Charge:
        """Return what has been charged, less refunds."""
        totals = self._totals
        return Charge(+totals.spent, delta=float(totals.delta), adaptive=totals.adaptive, neighbours=self.neighbours)

    def odometer(self) -> Bound:
        """A reading of what was spent so far, at the budget's δ. NOT a guarantee: only ``epsilon()`` is."""
        return bounds.compose(self.spent(), delta=self.budget.delta)

    def summary(self) -> Summary:
        """The account in numbers."""
        reading = self.odometer().epsilon if self._totals.spent else 0.0
        used = {"budget": 1 - self.share_left}
        if self.failure_delta:
            used["failure delta"] = float(self._totals.failures / Fraction(self.failure_delta))
        total = self.epsilon()
        return Summary(min(reading, total), total, self.budget.delta, max(used.values()), used, self)

    @property
    def share_left(self) -> float:
        """Return the remaining share of the budget, in [0, 1], on the metric with the most left."""
        left = [
            1 - self._totals.sums[metric.name] / metric.capacity
            if not self._totals.unpriced[metric.name]
            else Fraction(0)
            for metric in self._metrics
        ]
        return float(max(Fraction(0), *left))

    def shares(self) -> dict[str, float]:
        """Return the used share of the budget, in [0, 1], under the name "budget"."""
        return {"budget": 1 - self.share_left}

    def remaining(self) -> str:
        """Describe what is left."""
        left = round_down(Fraction(self.failure_delta) - self._totals.failures)
        epsilon, delta = format_lower(self.epsilon_left(), 4), format_lower(left, 4)
        rho = "" if self.budget.rho is None else f"rho up to {format_lower(self._room(self._metrics[0]), 4)}, such as "
        return f"{rho}epsilon up to {epsilon}, with delta up to {delta}"

    def _room(self, metric: Metric) -> float:
        """Return what is left on a metric, as a number that the metric does not read as more."""
        if self._totals.unpriced[metric.name]:
            return 0.0
        exact = max(metric.capacity - self._totals.sums[metric.name], Fraction(0))
        left = float(exact)
        return left if metric.read(left) <= exact else math.nextafter(left, 0.0)

    def epsilon_left(self, spent: float = 0.0) -> float:  # noqa: ARG002 - one signature
        """The largest ε, rounded down, of a pure cost that is accepted now."""
        return max(self._largest_pure(metric) for metric in self._metrics)

    def _largest_pure(self, metric: Metric) -> float:
        room = self._room(metric)
        if isinstance(metric, Pure):
            return room

        def fits(epsilon: float) -> bool:
            try:
                return metric.read(metric.price(Charge({PureDP(epsilon): 1}))) <= metric.read(room)
            except IncompatibleCosts:
                return False

        low, high = bracket(fits, 1.0, least=1.0, most=1e6)
        return bisect(fits, low if high > 1 else 0.0, high, halvings=40)[0]

    def group(self) -> Charge:
        """One (ε, δ) cost: all that a filter lets through is one interaction with that guarantee."""
        budget = self.budget
        if budget.rho is not None:
            return Charge({ZCDP(budget.rho): 1}, delta=self.failure_delta, neighbours=self.neighbours)
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
        if split_failure(Charge({cost: 1})) != (Charge({cost: 1}), 0.0) or cost_model_of(cost).log_mgf is None:
            raise InvalidParameter(f"costs: {cost} has failure mass or no Rényi curve, so it has no price")
    others = {cost for cost in costs if not isinstance(cost, BoundedRange)}
    declared = [*map(BoundedRange, sorted(kinds, reverse=True)), *sorted(others, key=str)]
    if not declared:
        raise InvalidParameter("ranges must name at least one range, or costs one cost")
    return declared


def _close(then: float | None, now: float | None) -> bool:
    if then is None or now is None:
        return then is now
    return abs(then - now) <= PRICE_TOLERANCE * max(then, now)
