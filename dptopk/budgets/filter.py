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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from dptopk._internal import validate
from dptopk._internal.choices import EFFORTS, NEIGHBOURS, Effort, Neighbours
from dptopk._internal.formatting import format_lower, format_upper
from dptopk._internal.rounding import decimal, round_down, smaller_of
from dptopk._internal.search import bisect, bracket
from dptopk.accounting import bounds
from dptopk.accounting.cost_models.registry import cost_model_of
from dptopk.accounting.registry import split_failure
from dptopk.accounting.work import within
from dptopk.budgets.account import Account, Record, Summary, cost_of
from dptopk.budgets.filter_metrics import Gaussian, Metric, Pure, Ranges, Renyi, Zcdp, metric_of
from dptopk.budgets.running_totals import RunningTotals
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
        self.delta = budget.delta
        aside = self.delta / 2 if failure_delta is None else failure_delta
        self.failure_delta = validate.probability(failure_delta=aside)
        if self.failure_delta > self.delta:
            raise InvalidParameter(f"failure_delta must be at most the budget's delta {self.delta}, got {aside}")
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
        if not metrics:
            raise InvalidParameter("the terms of a filter name no method")
        self._metrics = {metric.name: metric for metric in metrics}
        self.order = next((metric.order for metric in metrics if isinstance(metric, Renyi)), None)
        self._totals = RunningTotals.of(Charge(), {}, self._metrics)
        self._prices: dict[Cost, tuple[float | None, ...]] = {}

    def _chosen(
        self, method: FilterMethod, order: float | None, declared: list[Cost] | None, effort: Effort
    ) -> list[Metric]:
        """The metrics for the budget: the first is the one that the budget is meant for."""
        if self.budget.rho is not None:
            if method != "renyi" or order is not None:
                raise InvalidParameter("a budget in rho has one method only; omit method, ranges, costs and order")
            return [Zcdp(self.budget.rho)]
        pure = Pure(self.budget.epsilon, decimals=True)
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
        meters = [metric.terms for metric in self._metrics.values()]
        terms = {"budget": self.budget.terms(), "failure_delta": self.failure_delta, "neighbours": self.neighbours}
        return terms | {"meters": meters} | ({"open": True} if self._open else {})

    @classmethod
    def of_terms(cls, terms: Record) -> Filter:
        """The filter that ``terms`` described, nothing spent."""
        given = {name: terms[name] for name in ("failure_delta", "neighbours")}
        return cls(Budget.of_terms(terms["budget"]), terms=terms, **given)

    def price(self, cost: Cost) -> tuple[float | None, ...]:
        """Return the price of one cost on each metric (None: no price there) and its failure mass, rounded up.

        Raises:
            IncompatibleCosts: when it has no price on any metric.
        """
        if cost not in self._prices:
            rest, failure = split_failure(Charge({cost: 1}))
            refusals: list[IncompatibleCosts] = []
            prices: list[float | None] = []
            for metric in self._metrics.values():
                try:
                    prices.append(metric.price(rest) if rest.costs else 0.0)
                except IncompatibleCosts as reason:
                    refusals.append(reason)
                    prices.append(None)
            if len(refusals) == len(prices):
                raise refusals[0]
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

    def _priced(self, charge: Charge) -> Record:
        """The prices of the costs of a charge."""
        return {"prices": {str(cost): list(self.price(cost)) for cost, _ in charge}}

    def takes(self, charge: Charge) -> RunningTotals:
        """What a charge takes by the prices of its costs, also where that is not covered.

        Raises:
            IncompatibleCosts: when a cost has no price on any metric.
        """
        return RunningTotals.of(charge, self._priced(charge), self._metrics)

    def _taken(self, charge: Charge, record: Record) -> RunningTotals:
        """What a charge takes by a record of its prices, if that is covered.

        Raises:
            BudgetExceeded: saying what is missing.
        """
        taken, left = RunningTotals.of(charge, record, self._metrics), self._failures_left
        if self._covered(taken):
            return taken
        if taken.failures > left:
            short = f"its delta {format_upper(float(taken.failures))} is more than the {format_lower(float(left))} left"
            aside = f"{self.failure_delta:.6g} set aside for the deltas of questions (failure_delta)"
            raise BudgetExceeded(charge, self.remaining(), f"{short} of the {aside}")
        total = "epsilon" if self.budget.rho is None else "rho"
        raise BudgetExceeded(charge, self.remaining(), f"the {total} is used up: what fits is {self.remaining()}")

    @property
    def _failures_left(self) -> Fraction:
        return Fraction(self.failure_delta) - self._totals.failures

    def _quoted(self, charge: Charge) -> Record:
        """The record of a charge by its costs or, where these are not covered, of the whole."""
        try:
            record = self._priced(charge)
            self._taken(charge, record)
        except (BudgetExceeded, IncompatibleCosts) as refused:
            whole = self._whole(charge)
            if whole is None:
                if self._split is None or isinstance(refused, BudgetExceeded):
                    raise
                raise BudgetExceeded(charge, self.remaining(), f"what fits is {self.remaining()}") from None
            entered = Charge({whole: 1})
            record = {"whole": str(whole)} | self._priced(entered)
            with suppress(BudgetExceeded, IncompatibleCosts):
                self._taken(entered, record)
                return record
            raise
        return record

    def _whole(self, charge: Charge) -> ApproxDP | None:
        """One (ε, δ) cost that all of a charge is together, its δ all that is left for failures; None: none known."""
        room = round_down(self._failures_left)
        if self.budget.rho is not None or not room > 0 or not charge.costs:
            return None
        found = bounds.compose(charge, delta=room, lower=False)
        epsilon = found.epsilon
        if epsilon < math.inf and decimal(epsilon) < Fraction(epsilon) and found.name != "basic":
            epsilon = math.nextafter(epsilon, math.inf)  # the bound is on the float, and a cost is its decimal
        return ApproxDP(epsilon, room) if epsilon < math.inf else None

    def _covered(self, taken: RunningTotals, repetitions: int = 1) -> bool:
        """Whether a charge, n times, is covered by a metric, and its failure masses are."""
        spent, n = self._totals, repetitions
        return n * taken.failures <= self._failures_left and any(
            not (spent.unpriced[name] or taken.unpriced[name])
            and spent.sums[name] + n * taken.sums[name] <= metric.capacity
            for name, metric in self._metrics.items()
        )

    def _fits(self, charge: Charge, repetitions: int) -> bool:
        """Whether n of the charge fit by their costs; a single one may also fit as a whole."""
        try:
            if repetitions == 1:
                return self.can_spend(charge)
            one = self.takes(charge)
        except DptopkError:
            return False
        return self._covered(one, repetitions)  # a refusal in words takes far longer

    def _delta_fits(self, charge: Charge, repetitions: int) -> bool:
        return repetitions * self.takes(charge).failures <= self._failures_left

    def apply(self, charge: Charge, record: Record) -> None:
        """Add the prices of a record to the sums; see ``Account.apply``."""
        with self._here():
            if "split" in record:  # another division of δ, chosen by the first charge
                other = Filter.of_terms(record["split"])
                same = other.budget == self.budget and other.failure_delta <= self.delta
                if not self._open or self._begun or not same:
                    raise InvalidParameter("the record of this charge divides delta again, after the first charge")
                other.apply(charge, {name: value for name, value in record.items() if name != "split"})
                self.restore(other.state() | {"split": record["split"]})
                return
            entered = Charge({cost_of(record["whole"]): 1}) if "whole" in record else charge
            self._totals.add(self._taken(entered, record))
            self._begun |= bool(charge)
            self._wholes += "whole" in record

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
            self._totals.take_off(charge, RunningTotals.of(charge, record, self._metrics))

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
            self._totals = RunningTotals.restored(state, self._metrics)

    def epsilon(self) -> float:
        """The budget's ε, or what its ρ is worth: the guarantee at every moment, at the budget's δ."""
        if self.budget.rho is None:
            return self.budget.epsilon
        return bounds.compose(self.group(), delta=self.budget.delta).epsilon

    def spent(self) -> Charge:
        """Return what has been charged, less refunds."""
        totals = self._totals
        return Charge(+totals.spent, delta=float(totals.delta), adaptive=totals.adaptive, neighbours=self.neighbours)

    def summary(self) -> Summary:
        """The account in numbers; ``shares`` also of the failure delta."""
        now = super().summary()
        if not self.failure_delta:
            return now
        shares = {**now.shares, "failure delta": float(self._totals.failures / Fraction(self.failure_delta))}
        return replace(now, shares=shares, share=max(shares.values()))

    @property
    def share_left(self) -> float:
        """Return the remaining share of the budget, in [0, 1], on the metric with the most left."""
        spent = self._totals
        priced = [(name, metric) for name, metric in self._metrics.items() if not spent.unpriced[name]]
        return float(max([Fraction(0), *(1 - spent.sums[name] / metric.capacity for name, metric in priced)]))

    def shares(self) -> dict[str, float]:
        """Return the used share of the budget, in [0, 1], under the name "budget"."""
        return {"budget": 1 - self.share_left}

    def remaining(self) -> str:
        """Describe what is left."""
        epsilon, delta = format_lower(self.epsilon_left(), 4), format_lower(round_down(self._failures_left), 4)
        rho = "" if self.budget.rho is None else format_lower(self._room(self._metrics[Zcdp.name]), 4)
        return f"{rho and f'rho up to {rho}, such as '}epsilon up to {epsilon}, with delta up to {delta}"

    def _room(self, metric: Metric) -> float:
        """Return what is left on a metric, as a number that the metric does not read as more."""
        if self._totals.unpriced[metric.name]:
            return 0.0
        exact = max(metric.capacity - self._totals.sums[metric.name], Fraction(0))
        left = float(exact)
        return left if metric.read(left) <= exact else math.nextafter(left, 0.0)

    def epsilon_left(self, spent: float = 0.0) -> float:  # noqa: ARG002 - one signature
        """The largest ε, rounded down, of a pure cost that is accepted now."""
        return max(self._largest_pure(metric) for metric in self._metrics.values())

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
    if isinstance(ranges, str | bytes) or not isinstance(ranges, Iterable):
        raise InvalidParameter(f"ranges must be a list of numbers, got {type(ranges).__name__}")
    if not isinstance(costs, Iterable) or not all(isinstance(cost, Cost) for cost in costs):
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
