"""A privacy filter: costs chosen freely, one after the other, until a budget is used up
(interaction model M4).

A filter sums up prices (``filter_metrics``) and accepts a charge while the sum stays within a
capacity that was fixed before the first answer, *or* while the (ε, δ) of all charges add up to at
most the budget (``adding_up``). With δ = 0 the prices are the ε's, and nothing else is added up.

Masses of failure (the δ of a charge, and those inside ApproxDP and MultiDP costs) and the δ's of
statements add up in a part of δ of their own. How δ is divided is fixed at creation or, where
nothing was said of it, by the first charge, which no answer has had a part in
(docs/notes/filters.md). (Feldman-Zrnic 2021, Lécuyer 2021; with failures Cesar-Rogers 2022, Lemma
3.4, and Whitehouse et al. 2023.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from dptopk._internal import validate
from dptopk._internal.choices import NEIGHBOURS, Effort, Neighbours
from dptopk._internal.formatting import format_lower, format_upper
from dptopk._internal.rounding import round_down, smaller_of
from dptopk._internal.search import bisect, bracket, first_true
from dptopk.accounting import bounds
from dptopk.accounting.registry import split_failure
from dptopk.accounting.work import within
from dptopk.budgets.account_base import LARGEST_FIT, Account, Record, cost_of
from dptopk.budgets.adding_up import Entering, Sums, float_left, statement_of
from dptopk.budgets.filter_metrics import (
    Metric,
    Price,
    Pure,
    Renyi,
    Variance,
    Zcdp,
    metric_of,
)
from dptopk.budgets.filter_options import FilterMethod, FilterOptions
from dptopk.budgets.running_totals import RunningTotals, prices_of
from dptopk.costs import ZCDP, ApproxDP, Budget, Charge, Cost, PureDP, sum_up
from dptopk.errors import BudgetExceeded, DptopkError, IncompatibleCosts, InvalidParameter

# By how much, relatively, a recorded price may be below today's: another processor may round a
# price otherwise, by far less.
PRICE_TOLERANCE = 1e-9
# The same of the ε of a statement, which ``compose`` brackets to its ``rtol`` of 1e-3.
STATEMENT_TOLERANCE = 1e-3
# ``fits`` counts at most this many runs of equal charges, each entered in another way than the one
# before; where there are more, its answer is smaller than what fits.
MOST_RUNS = 100
# The largest ε that ``pure_left`` looks for, far above any budget of use; and the halvings of its
# bracket, which ends at the side that fits: the answer is a relative 2^-40 too small at most.
LARGEST_PURE = 1e6
PURE_HALVINGS = 40


class Filter(Account):
    """A fully adaptive filter for a budget.

    What ``quote`` returns, and a ledger records with a charge, is a dictionary with these entries:
    "prices": cost as text -> its price on each metric (None: it has none there), and last its mass
    of failure; "stated": the "epsilon" and "delta" of a statement about the whole charge, which
    then holds the prices; "left": true if the charge closes the sum of ε's; "whole": the one
    (ε, δ) cost as which the charge is entered in place of its own costs; "split": the terms of the
    filter that a first charge chose.

    Args:
        budget: the total (ε, δ), or ρ: then prices are the ρ's of zCDP, and all together is ρ-zCDP
            but for failures.
        method: "renyi" (any cost with a Rényi bound), "ranges" (``ranges`` and ``costs`` say what;
            tightest), "gaussian" (Gaussians, also discrete, and pure costs; tighter for those),
            "variance" (any costs with a zCDP constant or a Gaussian that covers them; tightest for
            many small ones); None: "ranges" where they are given, else whichever of "renyi" and
            "variance" holds more charges like the first, for good. Charges whose ε's and δ's add up
            to at most the budget are taken besides by each.
        ranges: the ε's of bounded-range costs that may be chosen freely; a cost between two of them
            takes the larger.
        costs: other costs that may be chosen freely besides, of any class with a Rényi curve and no
            failure mass; a cost that is not named takes the cheapest that covers it.
        order: λ > 0, Rényi order minus 1, fixed for good; None: the best for zCDP costs.
        failure_delta: the part of δ set aside for the deltas of charges, of ApproxDP and MultiDP
            costs and of statements, in [0, budget.delta]; None: half of it or, where this and the
            method are left open and half of it does not cover the first charge, as much as that
            charge needs.
        neighbours: the neighbour relation of all charges.
        terms: what ``terms`` gave for such a filter: nothing is computed anew.
        effort, max_seconds: how much work, and as a guard how much time, the capacity of declared
            costs may take; cut by the guard it is sound, smaller, and not reproducible.

    Raises:
        InvalidParameter: on arguments out of range, options that do not go together, or a budget
            too small for the order.

    >>> from dptopk.costs import BoundedRange, Budget
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
        """Validate the budget and the options, and compute the capacities unless ``terms`` states
        them; a first charge may still choose the method and the division of δ.
        """
        super().__init__()
        self.budget = validate.instance(Budget, budget=budget)
        self.neighbours: Neighbours = validate.member(NEIGHBOURS, neighbours=neighbours)
        self.delta = budget.delta
        failure_part = self.delta / 2 if failure_delta is None else failure_delta
        self.failure_delta = validate.probability(failure_delta=failure_part)
        if self.failure_delta > self.delta:
            raise InvalidParameter(
                f"failure_delta must be at most the budget's delta {self.delta}, got {failure_part}"
            )
        options = FilterOptions.of(method, ranges, costs, order, effort)
        # The first charge chooses the method where nothing was said of it, and divides δ where
        # nothing was said of that either.
        said_of_method = (method, order, ranges, costs, budget.rho)
        method_is_open = all(option is None for option in said_of_method)
        division_is_open = method_is_open and failure_delta is None and budget.delta > 0
        self._first_chooses_method = method_is_open
        self._first_divides_delta = division_is_open
        # The terms of the filter that the first charge chose; None: it chose none.
        self._chosen_terms: Record | None = None
        self._begun = False  # whether anything was charged
        self._charges_as_whole = 0  # the number of charges that were entered as one cost
        if terms is None:
            with within(max_seconds):
                self._begin_sums(options.metrics(budget, self.failure_delta))
        else:
            self._first_divides_delta = terms.get("open", False)
            self._first_chooses_method = terms.get("undecided", False)  # not in older ledgers
            self._begin_sums([metric_of(metric) for metric in terms["meters"]])

    def _begin_sums(self, metrics: Sequence[Metric]) -> None:
        """Begin to sum up prices on these metrics, with nothing spent.

        Args:
            metrics: the filter's own metric and, where ε's are added up too, that of ε's after it.

        Raises:
            InvalidParameter: where there is none.
        """
        if not metrics:
            raise InvalidParameter("the terms of a filter name no method")
        self._metrics = {metric.name: metric for metric in metrics}
        orders = [metric.order for metric in metrics if isinstance(metric, Renyi)]
        self.order = orders[0] if orders else None
        self._totals = RunningTotals.of(Charge(), {}, self._metrics)
        self._prices: dict[Cost, tuple[Price | None, ...]] = {}

    def terms(self) -> Record:
        """Return all that defines this filter, as JSON; ``of_terms`` makes an equal one without
        computing anything anew.
        """
        terms: Record = {
            "budget": self.budget.terms(),
            "failure_delta": self.failure_delta,
            "neighbours": self.neighbours,
            # The metrics, by the name that ledgers have for them.
            "meters": [metric.terms for metric in self._metrics.values()],
        }
        if self._first_divides_delta:
            terms["open"] = True
        if self._first_chooses_method:
            terms["undecided"] = True
        return terms

    @classmethod
    def of_terms(cls, terms: Record) -> Filter:
        """Return the filter that ``terms`` described, with nothing spent."""
        return cls(
            Budget.of_terms(terms["budget"]),
            failure_delta=terms["failure_delta"],
            neighbours=terms["neighbours"],
            terms=terms,
        )

    def copy_of_terms(self) -> Filter:
        """Return a filter of the same terms that has spent as much, for trials: what is spent of it
        is spent nowhere else.
        """
        with self._locked_in_own_process():
            copy = Filter.of_terms(self.terms())
            copy.restore(self.state())
            copy._prices = dict(self._prices)  # noqa: SLF001
        return copy

    def price(self, cost: Cost) -> tuple[Price | None, ...]:
        """Return the price of one cost on each metric, and last its mass of failure; all are
        rounded up, and computed once.

        Returns:
            As many prices as there are metrics, in their order (None: no price there), and the
            mass.

        Raises:
            IncompatibleCosts: when it has no price on any metric.
        """
        if cost not in self._prices:
            failure_free, failure = split_failure(Charge({cost: 1}))
            refusals: list[IncompatibleCosts] = []
            prices: list[Price | None] = []
            for metric in self._metrics.values():
                try:
                    # A cost that is all failure mass takes nothing else.
                    prices.append(metric.price(failure_free) if failure_free.costs else 0.0)
                except IncompatibleCosts as reason:
                    refusals.append(reason)
                    prices.append(None)
            if len(refusals) == len(prices):
                raise refusals[0]
            self._prices[cost] = (*prices, float(failure))
        return self._prices[cost]

    def totals_of_prices(self, charge: Charge) -> RunningTotals:
        """Return the totals of a charge by the prices of its costs, whether the filter has room for
        it or not.

        Args:
            charge: costs, each with a price on some metric.

        Raises:
            IncompatibleCosts: when a cost has no price on any metric.
        """
        prices = {str(cost): list(self.price(cost)) for cost, _ in charge}
        return RunningTotals.of(charge, {"prices": prices}, self._metrics)

    # What is accepted

    def quote(self, charge: Charge, stated: Budget | None = None) -> Record:
        """Return the prices of the charge's costs, the statement about it if its ε is added to the
        others', and the division of δ if it is the first charge.

        Args:
            charge: what is to be spent.
            stated: the (ε, δ) that the question states for all of its charge together.

        Raises:
            BudgetExceeded: when it is not covered.
            IncompatibleCosts: when the charge has no price here, or is for other neighbours.
            InvalidParameter: for what is no Charge, and in another process.
        """
        validate.instance(Charge, charge=charge)
        self._require_same_neighbours(charge)
        stated = self._statement_in_epsilon(stated)
        if stated is not None and not self._at_most_total(stated):
            raise self._refusal(charge, stated)
        with self._locked_in_own_process():
            record = self._record_of(charge, stated)
            if record is None:
                raise self._refusal(charge, stated)
        return record

    def quote_past(self, charge: Charge) -> Record:
        """Return the prices of a charge that sums up many answers of the past.

        It was chosen adaptively, so no statement can be made about it as a whole: it enters by the
        prices of its costs alone, and closes the sum of ε's unless its costs are pure.

        Raises:
            BudgetExceeded: when it is not covered.
            IncompatibleCosts: when the charge has no price here, or is for other neighbours.
            InvalidParameter: for what is no Charge, and in another process.
        """
        validate.instance(Charge, charge=charge)
        self._require_same_neighbours(charge)
        with self._locked_in_own_process():
            prices = self._prices_of_costs(charge)
            if prices is None:
                raise self._missing_price_error(charge)
            record = Entering(charge, self._sums(), prices).record_by_prices()
        if record is None:
            raise self._refusal(charge, None)
        return record

    def _require_same_neighbours(self, charge: Charge) -> None:
        """Refuse a charge for other neighbours than the budget's.

        Raises:
            IncompatibleCosts: for such a charge.
        """
        if charge.neighbours != self.neighbours:
            raise IncompatibleCosts(
                f"the budget is for {self.neighbours}, the charge for {charge.neighbours}"
            )

    def _statement_in_epsilon(self, stated: Budget | None) -> Budget | None:
        """Return what a question states, if it can be added up: (ε, δ), for a budget in ε; else
        None.
        """
        if stated is None or stated.rho is not None or self.budget.rho is not None:
            return None
        return stated

    def _at_most_total(self, stated: Budget) -> bool:
        """Return whether a question asks for no more than the total: one of more is refused,
        whatever its costs are worth at another δ.
        """
        return stated.epsilon <= self.budget.epsilon and stated.delta <= self.budget.delta

    def _best_record(self, charge: Charge, stated: Budget | None) -> Record | None:
        """Return the record of the best way to enter a charge by this filter's present terms; None
        where no way is covered.
        """
        return self._best_record_after(self._sums(), charge, stated)

    def _best_record_after(
        self, sums: Sums, charge: Charge, stated: Budget | None
    ) -> Record | None:
        """Return what ``_best_record`` would return if these were the filter's sums.

        Args:
            sums: the sums before the charge.
            charge: what is to be spent.
            stated: the (ε, δ) that the question states; None: none was stated.
        """
        prices = self._prices_of_costs(charge)
        best_way = next(Entering(charge, sums, prices).ways(stated), None)
        if best_way is not None:
            return best_way.record
        return self._record_as_whole(charge, stated, sums, prices)

    def _record_of(self, charge: Charge, stated: Budget | None) -> Record | None:
        """Return the record of a charge: of a first one by what it chooses, of others by the best
        way to enter them. None where no way is covered.
        """
        return (
            self._record_by_variance(charge, stated)
            or self._best_record(charge, stated)
            or self._record_by_other_division(charge, stated)
        )

    def _record_by_variance(self, charge: Charge, stated: Budget | None) -> Record | None:
        """Return the record of a first charge that chooses the method "variance" in place of
        "renyi"; None where it does not.

        A filter that accepted whatever either method admits could be worth twice the δ at which
        they convert to ε. So one of them is chosen before any answer: the one in which more charges
        like the first fit.
        """
        own_metric = next(iter(self._metrics.values()))
        if not self._first_chooses_method or self._begun:
            return None
        # With ε's alone there is no δ to convert at; a charge of nothing says nothing.
        if own_metric.name == Pure.name or not charge:
            return None
        epsilon = round_down(smaller_of(self.budget.epsilon))
        delta_to_convert = round_down(Fraction(self.delta) - Fraction(self.failure_delta))
        if Variance.at(epsilon, delta_to_convert).multiple(charge) <= own_metric.multiple(charge):
            return None
        filter_by_variance = Filter(
            self.budget,
            method="variance",
            failure_delta=self.failure_delta,
            neighbours=self.neighbours,
        )
        record = filter_by_variance._best_record(charge, stated)
        if record is None:
            return None
        return record | {"split": filter_by_variance.terms()}

    def _sums(self) -> Sums:
        """Return the sums of all charges so far, with what they are compared with."""
        return Sums(self._metrics, self._totals, Fraction(self.failure_delta))

    def _prices_of_costs(self, charge: Charge) -> Record | None:
        """Return the prices of the costs of a charge, as a record holds them; None where one of
        them has no price.
        """
        try:
            return {str(cost): list(self.price(cost)) for cost, _ in charge}
        except IncompatibleCosts:
            return None

    def _record_as_whole(
        self, charge: Charge, stated: Budget | None, sums: Sums, prices: Record | None
    ) -> Record | None:
        """Return the record of a charge that is entered as one (ε, δ) cost, if one of its costs has
        no price on the filter's own metric; None if all have, or there is no room for it so.

        Args:
            charge: the most that the question can cost.
            stated: the (ε, δ) that the question states; None: none was stated.
            sums: the filter's sums before the charge.
            prices: the prices of each cost, as a record holds them; None: one of them has no price.
        """
        if prices is not None:
            # The filter's own metric is the first; that of ε's may be the second.
            own_prices = [own_price for own_price, *_ in prices.values()]
            if None not in own_prices:
                return None
        for statement in Entering(charge, sums, None).statements(stated, covered=False):
            whole = Charge({statement: 1})
            record = {"whole": str(statement), "prices": self._prices_of_costs(whole)}
            if sums.covers(RunningTotals.of(whole, record, self._metrics)):
                return record
        return None

    def _record_by_other_division(self, charge: Charge, stated: Budget | None) -> Record | None:
        """Return the record of a first charge for which more than half of δ is set aside for
        failures: what its own failures need, the δ that it states, or all of δ. None where that
        does not help, or was not left open.
        """
        if not self._first_divides_delta or self._begun:
            return None
        _, failure = split_failure(charge, summed=True)
        needed_delta = sum_up([charge.delta, failure])
        stated_delta = self.delta if stated is None else stated.delta
        for failure_delta in (needed_delta, stated_delta, self.delta):
            # Only parts that are larger than this filter's are tried.
            if not self.failure_delta < failure_delta <= self.delta:
                continue
            other_filter = Filter(
                self.budget, failure_delta=failure_delta, neighbours=self.neighbours
            )
            record = other_filter._record_by_variance(charge, stated) or other_filter._best_record(
                charge, stated
            )
            if record is not None:
                return {"split": other_filter.terms()} | record
        return None

    def _refusal(self, charge: Charge, stated: Budget | None) -> DptopkError:
        """Return the error that says why a charge is not accepted, in the terms of who asked.

        Args:
            charge: the charge that no way of accounting covers.
            stated: the (ε, δ) that the question states for it; None: none was stated.
        """
        total = self.budget
        failures_left = self._sums().failures_left
        if stated is not None and stated.epsilon > total.epsilon:
            reason = f"epsilon {stated.epsilon:.6g} is more than the total of {total.epsilon:.6g}"
            return BudgetExceeded(charge, self.remaining(), reason)
        if stated is not None and stated.delta > total.delta:
            reason = f"delta {stated.delta:.6g} is more than the total of {total.delta:.6g}"
            return BudgetExceeded(charge, self.remaining(), reason)
        delta_needed = Entering(charge, self._sums(), None).failures
        if delta_needed > failures_left:
            delta_left = format_lower(float(failures_left))
            reason = (
                f"its delta {format_upper(float(delta_needed))} is more than the {delta_left} left "
                f"of the {self.failure_delta:.6g} set aside for the deltas of questions "
                "(failure_delta)"
            )
            return BudgetExceeded(charge, self.remaining(), reason)
        if self._prices_of_costs(charge) is None and not self.failure_delta:
            return self._missing_price_error(charge)
        if stated is not None:
            reason = f"epsilon {stated.epsilon:.6g} at delta {stated.delta:.6g} does not fit"
            return BudgetExceeded(charge, self.remaining(), reason)
        used = "epsilon" if total.rho is None else "rho"
        return BudgetExceeded(
            charge,
            self.remaining(),
            f"the {used} is used up: what fits, whatever the question, is {self.remaining()}",
        )

    def _missing_price_error(self, charge: Charge) -> IncompatibleCosts:
        """Return the error that says why one of the costs has no price here."""
        for cost, _ in charge:
            try:
                self.price(cost)
            except IncompatibleCosts as reason:
                return reason
        return IncompatibleCosts(f"{charge} has no price here")

    def fits(self, charge: Charge, stated: Budget | None = None) -> int:
        """Return how many more times a charge fits, one after the other, at most 2^30.

        The charges are entered in runs of the same way, each as long as that way stays the best.
        """
        if not charge:
            return LARGEST_FIT
        if self.closed or charge.neighbours != self.neighbours:
            return 0
        stated = self._statement_in_epsilon(stated)
        if stated is not None and not self._at_most_total(stated):
            return 0
        trial = self.copy_of_terms()
        entered = 0
        for _ in range(MOST_RUNS):
            run = trial._spend_run(charge, stated, LARGEST_FIT - entered)  # noqa: SLF001
            entered += run
            if not run or entered == LARGEST_FIT:
                break
        return entered

    def _spend_run(self, charge: Charge, stated: Budget | None, most: int) -> int:
        """Spend a charge as often as it is entered in the same way, at most ``most`` times; return
        the number of times, 0 if it does not fit. It is called on a copy of the account.

        A first charge that chooses the terms is a run of its own.

        Args:
            charge: what is spent.
            stated: the (ε, δ) that the question states for it; None: none was stated.
            most: at least 1.
        """
        record = self._record_of(charge, stated)
        if record is None:
            return 0
        self.apply(charge, record)
        if "split" in record:
            return 1
        totals = RunningTotals.of(_entered_costs(charge, record), record, self._metrics)

        def is_entered_otherwise(times: int) -> bool:
            """Return whether the charge would be entered in another way, or not at all, after
            ``times`` more of it.
            """
            later_totals = self._totals.copy()
            later_totals.add(totals, times)
            later_sums = replace(self._sums(), totals=later_totals)
            return self._best_record_after(later_sums, charge, stated) != record

        further_times = first_true(is_entered_otherwise, 0, most - 1)
        self._totals.add(totals, further_times)
        return further_times + 1

    def apply(self, charge: Charge, record: Record) -> None:
        """Add the prices of a record to the sums; see ``Account.apply``.

        Args:
            charge: what is spent.
            record: what ``quote`` returned for it.

        Raises:
            BudgetExceeded: when they do not fit; then nothing is spent.
            IncompatibleCosts: when the charge is for other neighbours.
            InvalidParameter: when the record is not one for this charge.
        """
        self._require_same_neighbours(charge)
        with self._locked_in_own_process():
            if "split" in record:
                self._apply_divided(charge, record)
                return
            totals = RunningTotals.of(_entered_costs(charge, record), record, self._metrics)
            if not replace(self._sums(), recorded=True).covers(totals):
                raise BudgetExceeded(charge, self.remaining(), f"what fits is {self.remaining()}")
            self._totals.add(totals)
            if charge:
                self._begun = True
            if "whole" in record:
                self._charges_as_whole += 1

    def _apply_divided(self, charge: Charge, record: Record) -> None:
        """Take over the division of δ and the method that the first charge chose, with that charge.

        Args:
            charge: the charge that chose.
            record: what ``quote`` said of it; under "split" the terms of the filter that it chose.

        Raises:
            InvalidParameter: for a later charge, another total, a choice that was not open, and for
                what are no terms of a filter.
        """
        try:
            chosen_filter = Filter.of_terms(record["split"])
        except InvalidParameter:  # a ValueError, which says what is wrong
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidParameter("the record of this charge does not fit a filter") from error
        same_total = (
            chosen_filter.budget == self.budget and chosen_filter.failure_delta <= self.delta
        )
        may_choose = self._first_divides_delta or (
            self._first_chooses_method and chosen_filter.failure_delta == self.failure_delta
        )
        if not may_choose or self._begun or not same_total:
            raise InvalidParameter(
                "the record of this charge divides delta again, after the first charge"
            )
        chosen_filter.apply(
            charge, {name: value for name, value in record.items() if name != "split"}
        )
        self.restore(chosen_filter.state() | {"split": record["split"]})

    # What comes back

    def quote_refund(self, charge: Charge, record: Record | None = None) -> Record:
        """Return the prices at which costs that never ran come back; failure masses, deltas and
        statements stay spent.

        It is sound because the filter's argument counts what ran: a cost that never ran is a round
        that never was. A statement is about the whole charge, so no part of it comes back.

        Args:
            charge: the costs that never ran, with delta 0.
            record: the record of the spend that they were part of; None: it is not known.

        Raises:
            InvalidParameter: when this was not spent, or delta is not 0.
        """
        if not isinstance(charge, Charge) or charge.delta:
            raise InvalidParameter(
                "charge to refund must be a Charge with delta 0: a delta is never refunded"
            )
        with self._locked_in_own_process():
            if record is None:
                # Which spend it was is not known. If any was entered as a whole nothing comes back;
                # if any was entered by a statement, instead of its ε's, no ε does.
                entered_as_whole = self._charges_as_whole > 0
                epsilon_stays_spent = self._totals.statements > 0
            else:
                entered_as_whole = "whole" in record
                epsilon_stays_spent = "stated" in record or "left" in record
            if entered_as_whole or not self._totals.contains_costs(charge):
                raise InvalidParameter(
                    f"charge to refund was not spent, or was spent as a whole: {charge}"
                )
            recorded = {} if record is None else prices_of(record)
            names = list(self._metrics)
            prices: dict[str, list[Price | None]] = {}
            for cost, _ in charge:
                prices_of_cost = list(recorded.get(str(cost)) or self.price(cost))
                if epsilon_stays_spent:  # prices are in the order of the metrics
                    prices_of_cost[names.index(Pure.name)] = 0.0
                prices[str(cost)] = prices_of_cost
            return {"prices": prices}

    def revert(self, charge: Charge, record: Record) -> None:
        """Take the prices of a record of ``quote_refund`` off the sums again.

        Args:
            charge: the costs that never ran.
            record: what ``quote_refund`` returned for them.

        Raises:
            InvalidParameter: when the costs are not in the sums at these prices.
        """
        with self._locked_in_own_process():
            self._totals.subtract(charge, RunningTotals.of(charge, record, self._metrics))

    # Records and states

    def disagreement(self, charge: Charge, record: Record) -> str:
        """Return, in words, which recorded prices are below the present ones by more than rounding,
        and which statement would not be made today; '' where there is none.
        """
        differences = _statement_differences(charge, record)
        priced_by = Filter.of_terms(record["split"]) if "split" in record else self
        for cost, _ in _entered_costs(charge, record):
            recorded_prices = prices_of(record)[str(cost)]
            try:
                prices: tuple[Price | None, ...] = priced_by.price(cost)
            except IncompatibleCosts:
                prices = (None,) * len(recorded_prices)
            pairs = zip(recorded_prices, prices, strict=True)
            if not all(_is_price_covered(then, now) for then, now in pairs):
                differences.append(f"{cost}: {recorded_prices} then, {list(prices)} now")
        if differences:
            return f"charge {charge} was priced " + "; ".join(differences)
        return ""

    def state(self) -> Record:
        """Return sums, failures and what was spent, exactly, as JSON; ``restore`` reads it."""
        with self._locked_in_own_process():
            return self._totals.state() | {
                "begun": self._begun,
                "wholes": self._charges_as_whole,
                "split": self._chosen_terms,
            }

    def state_covering(self, others: Sequence[Filter]) -> Record | None:
        """Return the least state in which a filter has spent at least as much as this one, and as
        each of some others of the same terms; None where they divide δ in different ways.

        A sum of ε's that is closed in one of them is closed, and what statements took of δ_f stays
        taken: no charge is entered anew after answers were seen.
        """
        filters = [self, *others]
        states = [account.state() for account in filters]
        chosen_terms = [state["split"] for state in states if state["begun"]]
        if any(terms != chosen_terms[0] for terms in chosen_terms):
            return None
        # Filters that nothing was spent of may have other metrics, and change no maximum.
        begun = [account for account in filters if account._begun] or [self]  # noqa: SLF001
        totals_of_each = [account._totals for account in begun]  # noqa: SLF001
        totals = RunningTotals.upper_envelope(totals_of_each)
        return totals.state() | {
            "begun": bool(chosen_terms),
            "wholes": max(state["wholes"] for state in states),
            "split": next(iter(chosen_terms), None),
        }

    def restore(self, state: Record) -> None:
        """Take over what ``state`` returned of a filter of the same terms; what was spent before is
        forgotten.
        """
        with self._locked_in_own_process():
            chosen_terms = state.get("split")
            self._chosen_terms = chosen_terms
            if chosen_terms is not None:
                self.failure_delta = chosen_terms["failure_delta"]
                self._begin_sums([metric_of(metric) for metric in chosen_terms["meters"]])
            # Older states have neither; their filters do not divide δ again.
            self._begun = state.get("begun", True)
            self._charges_as_whole = state.get("wholes", 0)
            self._totals = RunningTotals.of_state(state, self._metrics)

    # Numbers

    def epsilon(self) -> float:
        """Return the guarantee that holds at every moment, at the budget's δ: the budget's ε, or an
        upper bound on the ε that its ρ is worth.
        """
        if self.budget.rho is None:
            return self.budget.epsilon
        return bounds.compose(self.group(), delta=self.budget.delta).epsilon

    def spent(self) -> Charge:
        """Return what has been charged, less refunds."""
        totals = self._totals
        return Charge(
            +totals.spent,  # without zeros
            delta=float(totals.delta),
            adaptive=totals.adaptive,
            neighbours=self.neighbours,
        )

    @property
    def share_left(self) -> float:
        """Return the share of the capacity for prices that is left, in [0, 1], on the metric with
        the largest such share.
        """
        sums = self._sums()
        shares = []
        for name, metric in self._metrics.items():
            shares.append(sums.capacity_left(name) / metric.capacity)
        return float(max(shares))

    def share(self) -> float:
        """Return the share of the budget that was spent, in [0, 1]: of ε by the reading; of ρ
        exactly, for a budget in ρ without a δ, which has no finite ε.
        """
        if self.budget.rho is None or math.isfinite(self.epsilon()):
            return super().share()
        return 1.0 - float_left(self._sums(), Zcdp.name) / self.budget.rho

    def shares(self) -> dict[str, float]:
        """Return the used shares by name, in [0, 1]: "epsilon" by the reading, or "rho", and
        "failure delta", of the part of δ that is set aside for failures.
        """
        shares = {"epsilon" if math.isfinite(self.epsilon()) else "rho": self.share()}
        if self.failure_delta:
            used = self._totals.failures / Fraction(self.failure_delta)
            shares["failure delta"] = float(used)
        return shares

    def remaining(self) -> str:
        """Return in words what ε and δ a question may still have, whatever its costs, to be
        accepted.
        """
        epsilon = format_lower(self.pure_left(), 4)
        delta = format_lower(round_down(self._sums().failures_left), 4)
        if self.budget.rho is None:
            return f"epsilon up to {epsilon}, with delta up to {delta}"
        rho = format_lower(float_left(self._sums(), Zcdp.name), 4)
        return f"rho up to {rho}, such as epsilon up to {epsilon}, with delta up to {delta}"

    def added_left(self) -> float:
        """Return how much the sum of ε's leaves of the budget's ε, rounded down; 0 where that sum
        is closed.
        """
        sums = self._sums()
        if sums.epsilon_sum_is_open:
            return float_left(sums, Pure.name)
        return 0.0

    def pure_left(self) -> float:
        """Return the largest ε, rounded down, of a pure cost that is accepted now."""
        # Not by the metric Pure itself, which does not know whether its sum of ε's is closed.
        largest = self.added_left()
        for metric in self._metrics.values():
            if metric.name != Pure.name:
                largest = max(largest, self._largest_pure(metric))
        return largest

    def growth(self, charge: Charge) -> float:
        """Return an estimate of the factor by which the ε of a question with this charge may grow,
        or must shrink, to be accepted; a search begins with it.

        Args:
            charge: the charge of the question at its present ε.

        Returns:
            A factor of at least 0; the charge that fits is found by trying.
        """
        sums = self._sums()
        factors = [0.0]
        with suppress(IncompatibleCosts):
            totals = self.totals_of_prices(charge)
            for name, price in totals.sums.items():
                if name != Pure.name and price and not totals.unpriced[name]:
                    # Prices grow with the square of ε.
                    factors.append(math.sqrt(max(float_left(sums, name) / float(price), 0.0)))
        # The ε's of statements grow about with ε itself.
        statement = Entering(charge, sums, None).statement(sums.failures_left)
        if statement is not None and statement.epsilon and sums.epsilon_sum_is_open:
            factors.append(float_left(sums, Pure.name) / statement.epsilon)
        return max(factors)

    def _largest_pure(self, metric: Metric) -> float:
        """Return the largest ε, rounded down, of a pure cost for which a metric has room, at most
        LARGEST_PURE.
        """
        totals = self._totals
        spent = totals.sums[metric.name]
        if totals.unpriced[metric.name]:
            return 0.0

        def fits(epsilon: float) -> bool:
            """Return whether the metric has room for a pure cost of this ε."""
            cost = PureDP(epsilon)
            try:
                prices = spent + metric.read(metric.price(Charge({cost: 1})))
            except IncompatibleCosts:
                return False
            used = metric.used(prices, totals.spent, {cost: 1})
            return used <= metric.capacity * (1 - metric.margin)

        # Powers of 2 from 1 on are tried.
        low, high = bracket(fits, 1.0, least=1.0, most=LARGEST_PURE)
        if high <= 1:  # not even 1 fits: the largest is between 0 and 1
            low = 0.0
        largest, _ = bisect(fits, low, high, halvings=PURE_HALVINGS)
        return largest

    def group(self) -> Charge:
        """Return a charge that covers all that the filter ever lets through, as one interaction
        with the guarantee of the budget: (ε, δ)-DP, or ρ-zCDP with the failures.
        """
        budget = self.budget
        if budget.rho is not None:
            return Charge(
                {ZCDP(budget.rho): 1}, delta=self.failure_delta, neighbours=self.neighbours
            )
        return Charge({ApproxDP(budget.epsilon, budget.delta): 1}, neighbours=self.neighbours)

    def __repr__(self) -> str:
        """Return the budget and what remains of it."""
        return f"Filter({self.budget}, remaining={self.remaining()})"


def _entered_costs(charge: Charge, record: Record) -> Charge:
    """Return the costs that a record enters for a charge: one (ε, δ) cost for all of it, or its
    own.
    """
    if "whole" in record:
        return Charge({cost_of(record["whole"]): 1})
    return charge


def _statement_differences(charge: Charge, record: Record) -> list[str]:
    """Return, in words, which statement in a record would not be made today: its ε is below the
    present bound by more than STATEMENT_TOLERANCE.

    Args:
        charge: the charge that the statement is about.
        record: its record, perhaps without a statement.
    """
    differences = []
    whole = cost_of(record["whole"]) if "whole" in record else None
    for statement in (whole, statement_of(record)):
        if isinstance(statement, ApproxDP):
            now = bounds.compose(charge, delta=statement.delta, lower=False).epsilon
            if now > statement.epsilon * (1 + STATEMENT_TOLERANCE):
                differences.append(f"{statement}: epsilon {now} now")
    return differences


def _is_price_covered(then: Price | None, now: Price | None) -> bool:
    """Return whether a recorded price is at least the present one, up to rounding: a price may have
    fallen since, by a theorem that came later.
    """
    if then is None or now is None:
        return then is now
    return Fraction(then) >= Fraction(now) * (1 - PRICE_TOLERANCE)
