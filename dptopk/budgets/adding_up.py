"""Adding up: the second sum of a filter, of the ε's of whole charges (basic composition).

A filter of total (ε, δ) accepts a charge while a sum of its own stays within its capacity (of
Rényi prices, say), *or* while the ε's of all charges so far add up to at most ε. For the second sum
a charge j is entered with one statement (ε_j, δ_j) about all of its costs together. Both sums share
one part δ_f of δ: while the second sum is open a charge takes δ_j of it, which contains its masses
of failure f_j; once a charge ran that is not in the second sum, charges take f_j only, and the
second sum never opens again. Everything together is (ε, δ)-DP, with the capacity of the first sum
as it is without the second (docs/notes/filters.md, Adding up).

Which statement is entered is free, as long as it is decided before the charge runs:

- Costs that are pure as they stand are entered by the sum of their ε's; they need no more of δ than
  their failures, and what did not run of them is refunded in this sum too.
- Other charges are entered by the bound at δ_j that ``compose`` proves for them.
- A charge that the first sum accepts too takes little more of δ than its failures: an *extra* of at
  most x³ δ_f, where x = ε_j/ε, and in all at most ``MOST_EXTRA`` of δ_f. So large questions, of
  which few fit, are added up; many small ones leave δ_f to their failures. The power is the one
  with the least loss in docs/notes/filters.md: with x² 99 questions of 2% of ε become 98.
- A charge that the first sum does not accept is stated at its own δ_j or, where the ε of that is
  not left, at the least δ at which it holds for the ε that is left, if that is at most its own δ_j
  or its failures and x³ δ_f for an x of ε: the last crumb of ε does not take all of δ_f.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dptopk._internal.rounding import decimal, round_down, round_up
from dptopk.accounting import bounds
from dptopk.accounting.registry import split_failure
from dptopk.budgets.account_base import Record
from dptopk.budgets.filter_metrics import Metric
from dptopk.budgets.running_totals import PURE, RunningTotals
from dptopk.costs import ApproxDP, Budget, Charge

# Of the failure part: what statements may take beyond failures.
MOST_EXTRA = Fraction(1, 5)
# Of the failure part, or of what is left of it: what a statement would take beyond failures where
# the question states no δ.
SHARE_WITHOUT_STATEMENT = Fraction(1, 10)


@dataclass(frozen=True)
class Way:
    """A way to enter a charge into a filter.

    Attributes:
        record: what a ledger records of it (``Filter`` explains the entries).
        totals: the totals of the charge by that record.
    """

    record: Record
    totals: RunningTotals


@dataclass(frozen=True)
class Sums:
    """The sums of a filter at one moment, and whether they cover a charge.

    Attributes:
        metrics: the filter's metrics, by name: its own, and that of ε's (PURE).
        totals: the totals of all charges so far.
        failure_delta: δ_f, the part of δ for failures and statements.
        recorded: whether the charge in question was accepted before, perhaps on another processor:
            then the margins of the metrics, which are there for rounding, may be used up.
    """

    metrics: Mapping[str, Metric]
    totals: RunningTotals
    failure_delta: Fraction
    recorded: bool = False

    @property
    def failures_left(self) -> Fraction:
        """Return the part of δ_f that is left."""
        return self.failure_delta - self.totals.failures

    @property
    def epsilon_sum_is_open(self) -> bool:
        """Return whether the sum of ε's is open: every charge that ran is in it, and it is not
        above its capacity.
        """
        return (
            PURE in self.metrics
            and not self.totals.epsilon_sum_closed
            and not self.totals.unpriced[PURE]
            and self.totals.sums[PURE] <= self.metrics[PURE].capacity
        )

    def _fits_metric(self, name: str, charge_totals: RunningTotals) -> bool:
        """Return whether a charge with these totals stays within the capacity of one metric."""
        totals = self.totals
        if totals.unpriced[name] or charge_totals.unpriced[name]:
            return False
        metric = self.metrics[name]
        prices = totals.sums[name] + charge_totals.sums[name]
        margin = 0 if self.recorded else metric.margin
        return metric.used(prices, totals.spent, charge_totals.spent) <= metric.capacity * (
            1 - margin
        )

    def capacity_left(self, name: str) -> Fraction:
        """Return the part of a metric's capacity that is left; 0 where it covers nothing more."""
        metric = self.metrics[name]
        if self.totals.unpriced[name]:
            return Fraction(0)
        used = metric.used(self.totals.sums[name], self.totals.spent)
        return max(metric.capacity - used, Fraction(0))

    def fits_epsilon_sum(self, charge_totals: RunningTotals) -> bool:
        """Return whether the sum of ε's is open and has room for a charge with these totals."""
        return (
            self.epsilon_sum_is_open
            and not charge_totals.epsilon_sum_closed
            and charge_totals.failures <= self.failures_left
            and self._fits_metric(PURE, charge_totals)
        )

    def fits_by_prices(self, charge_totals: RunningTotals) -> bool:
        """Return whether the filter's own sum of prices has room for a charge with these totals.

        It is the sum besides that of ε's. A filter has one at most: two could be worth twice the δ.
        """
        if charge_totals.failures > self.failures_left:
            return False
        return any(self._fits_metric(name, charge_totals) for name in self.metrics if name != PURE)

    def covers(self, charge_totals: RunningTotals) -> bool:
        """Return whether a charge with these totals stays within one of the sums."""
        return self.fits_by_prices(charge_totals) or self.fits_epsilon_sum(charge_totals)


@dataclass(frozen=True)
class Entering:
    """The ways to enter one charge into a filter.

    Attributes:
        charge: the most that the question can cost.
        sums: the filter's sums before the charge.
        prices: the prices of each cost, as a record holds them; None: one of them has no price.
    """

    charge: Charge
    sums: Sums
    prices: Record | None

    def ways(self, stated: Budget | None) -> Iterator[Way]:
        """Yield the ways that are covered, the best first.

        Args:
            stated: the (ε, δ) that the question states for its charge; None: none was stated.
        """
        by_prices = self._way_by_prices()
        covered = by_prices is not None and self.sums.fits_by_prices(by_prices.totals)
        if self.sums.epsilon_sum_is_open:
            for way in self._ways_in_epsilon_sum(by_prices, stated, covered=covered):
                if self.sums.fits_epsilon_sum(way.totals):
                    yield way
        if by_prices is not None and covered:
            yield self._closing_way(by_prices)

    def record_by_prices(self) -> Record | None:
        """Return the record of the charge by the prices of its costs, without a statement; None
        where it is not covered.
        """
        by_prices = self._way_by_prices()
        if by_prices is None:
            return None
        way = self._closing_way(by_prices)
        if self.sums.covers(way.totals):
            return way.record
        return None

    def _way_by_prices(self) -> Way | None:
        """Return the way by the prices of the costs; None where a cost has no price."""
        if self.prices is None:
            return None
        return self._way({"prices": self.prices})

    def _way(self, record: Record) -> Way:
        """Return the way that a record describes."""
        return Way(record, RunningTotals.of(self.charge, record, self.sums.metrics))

    def _closing_way(self, by_prices: Way) -> Way:
        """Return the way by prices as it is entered: with the mark "left", which closes the sum of
        ε's for good, if that sum is not closed yet and a cost has no ε to be added to it.
        """
        if PURE not in self.sums.metrics or self.sums.totals.epsilon_sum_closed:
            return by_prices
        if not by_prices.totals.unpriced[PURE]:
            return by_prices
        return self._way(by_prices.record | {"left": True})

    def _ways_in_epsilon_sum(
        self, by_prices: Way | None, stated: Budget | None, *, covered: bool
    ) -> Iterator[Way]:
        """Yield the ways to enter the charge in the sum of ε's, the best first: by the ε's of its
        costs, and by statements. Whether that sum has room for them is not looked at.

        Args:
            by_prices: the way by the prices of its costs; None: a cost has no price.
            stated: the (ε, δ) that the question states; None: none was stated.
            covered: whether the filter's own sum of prices has room for the charge.
        """
        pure_way = None
        if by_prices is not None and not by_prices.totals.unpriced[PURE]:  # every cost has an ε
            pure_way = by_prices
            if self._is_at_most_stated(by_prices.totals, stated):
                yield by_prices
                # It takes no more ε than was stated, and δ is not spent on a statement of less.
                if covered:
                    return
        for statement in self.statements(stated, covered=covered):
            # A record holds prices; a charge with a cost that has none is entered as one (ε, δ)
            # cost, by ``Filter._record_as_whole``.
            if self.prices is not None:
                yield self._way({"stated": statement_record(statement) | {"prices": self.prices}})
        if pure_way is not None:
            yield pure_way

    def _is_at_most_stated(self, totals: RunningTotals, stated: Budget | None) -> bool:
        """Return whether the ε's of the costs add up to at most the ε that was stated."""
        if stated is None:
            return True
        return totals.sums[PURE] <= self.sums.metrics[PURE].read(stated.epsilon)

    @property
    def failures(self) -> Fraction:
        """Return an upper bound on the sum of the charge's own δ and of the masses of failure of
        its costs.
        """
        _, failure = split_failure(self.charge, summed=True)
        return Fraction(failure) + Fraction(self.charge.delta)

    def statements(self, stated: Budget | None, *, covered: bool) -> Iterator[ApproxDP]:
        """Yield statements about all of the charge, each an (ε, δ) that it satisfies as a whole,
        the first choice first; the δ of each contains its failures.

        Args:
            stated: the (ε, δ) that the question states; None: none was stated.
            covered: whether the charge is covered by its prices, without a statement.
        """
        delta = self._first_delta(stated, covered=covered)
        if self.failures < delta <= self.sums.failures_left:
            first = self.statement(delta, stated)
            if first is not None:
                yield first
        if not covered:  # the last resort: as much of ε as is left
            last = self._statement_of_all_left(stated)
            if last is not None:
                yield last

    def _first_delta(self, stated: Budget | None, *, covered: bool) -> Fraction:
        """Return the δ at which the charge is stated first; it contains its failures unless the
        question states less.

        Args:
            stated: the (ε, δ) that the question states; None: none was stated.
            covered: whether the charge is covered by its prices; then the statement takes only
                ``_delta_beyond_failures`` beyond the failures.
        """
        if covered:
            return self.failures + self._delta_beyond_failures(stated)
        if stated is not None:
            return Fraction(stated.delta)
        spare = self.sums.failures_left - self.failures
        return self.failures + spare * SHARE_WITHOUT_STATEMENT

    def statement(self, delta: Fraction, stated: Budget | None = None) -> ApproxDP | None:
        """Return an (ε, δ) that all of the charge together satisfies at this δ, where ε is an upper
        bound; None where none is finite.

        The failures are taken off first. Let P be the law of the answers, and e the part of it, of
        the mass f of the failures, without which it satisfies the costs. The costs alone have the
        bound ε at δ - f. So the part of P that the statement leaves out contains e, as the proof
        needs (docs/notes/filters.md, Adding up).

        Args:
            delta: δ, of which at most the float below is used.
            stated: the (ε, δ) that the question states: if the first bound is above its ε, more
                work is done for a smaller one.
        """
        delta_down = round_down(delta)
        exact_delta_of_costs = Fraction(delta_down) - self.failures
        if not exact_delta_of_costs > 0 or not delta_down < 1:
            return None
        delta_of_costs = round_down(exact_delta_of_costs)
        bound = bounds.compose(
            self._failure_free, delta=delta_of_costs, lower=False, effort="quick"
        )
        if stated is not None and bound.epsilon > stated.epsilon:
            bound = bounds.compose(self._failure_free, delta=delta_of_costs, lower=False)
        epsilon = bound.epsilon
        if not epsilon < math.inf:
            return None
        # The bound is on the float, and the filter reads its decimal, which must not be less; that
        # of "basic" is a sum of decimals, rounded up as one.
        if decimal(epsilon) < Fraction(epsilon) and bound.name != "basic":
            epsilon = math.nextafter(epsilon, math.inf)
        return ApproxDP(epsilon, delta_down)

    def _statement_of_all_left(self, stated: Budget | None) -> ApproxDP | None:
        """Return the statement at all of the ε that is left, with the least δ at which it holds;
        None where it would take too much of δ.

        It takes of δ what the question states, or x³ δ_f beyond its failures for an x of ε: the
        last crumb of ε is no reason to take all of δ from the questions that come later.
        """
        if not self.sums.epsilon_sum_is_open:
            return None
        epsilon = float_left(self.sums, PURE)
        if not epsilon > 0:
            return None
        bound = bounds.compose(self._failure_free, epsilon=epsilon, lower=False, effort="quick")
        delta = round_up(self.failures + Fraction(bound.delta))
        largest_delta = self.failures + self._largest_extra(Fraction(epsilon))
        if stated is not None:
            largest_delta = max(largest_delta, Fraction(stated.delta))
        if Fraction(delta) <= min(largest_delta, self.sums.failures_left):
            return ApproxDP(epsilon, delta)
        return None

    def _largest_extra(self, epsilon: Fraction) -> Fraction:
        """Return the largest part of δ_f that a statement of this ε may take beyond its failures:
        the cube of its share of the total ε, times δ_f.
        """
        share = epsilon / self.sums.metrics[PURE].capacity
        return share**3 * self.sums.failure_delta

    @property
    def _failure_free(self) -> Charge:
        """Return the charge without its δ and without the masses of failure of its costs."""
        failure_free, _ = split_failure(self.charge)
        return Charge(
            failure_free.costs, adaptive=failure_free.adaptive, neighbours=failure_free.neighbours
        )

    def _delta_beyond_failures(self, stated: Budget | None) -> Fraction:
        """Return the part of δ beyond its failures that a statement takes where the charge is
        covered without it.

        It is what the question states or SHARE_WITHOUT_STATEMENT of δ_f, at most what a statement
        of this ε may take, and at most what is left of MOST_EXTRA.
        """
        failure_delta = self.sums.failure_delta
        extra_left = MOST_EXTRA * failure_delta - self.sums.totals.extra
        if stated is None:
            wanted = SHARE_WITHOUT_STATEMENT * failure_delta
            statement = self.statement(self.failures + wanted)
            epsilon = Fraction(0) if statement is None else Fraction(statement.epsilon)
        else:
            wanted = Fraction(stated.delta) - self.failures
            epsilon = Fraction(stated.epsilon)
        return min(wanted, self._largest_extra(epsilon), extra_left)


def float_left(sums: Sums, name: str) -> float:
    """Return what is left of a metric's capacity, as the largest float that the metric reads as no
    more than that.

    Args:
        sums: the sums of a filter.
        name: the name of the metric.
    """
    metric = sums.metrics[name]
    exact = sums.capacity_left(name)
    rounded = float(exact)
    if metric.read(rounded) <= exact:
        return rounded
    return math.nextafter(rounded, 0.0)


def statement_record(stated: ApproxDP) -> Record:
    """Return a statement as a record holds it."""
    return {"epsilon": stated.epsilon, "delta": stated.delta}


def statement_of(record: Record) -> ApproxDP | None:
    """Return the statement that a record holds, None where it holds none."""
    if "stated" not in record:
        return None
    return ApproxDP(record["stated"]["epsilon"], record["stated"]["delta"])
