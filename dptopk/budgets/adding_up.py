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
# A way to enter a charge: its record, and its totals by that record.
Way = tuple[Record, RunningTotals]


@dataclass(frozen=True)
class Sums:
    """The sums of a filter at one moment, and whether they cover a charge.

    Attributes:
        metrics: of the filter, by name.
        totals: of all charges so far.
        failure_delta: δ_f, the part of δ for failures and statements.
        recorded: whether the charge was accepted before, perhaps on another processor: then the
            margins of the metrics are there for rounding.
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
    def adds_up(self) -> bool:
        """Return whether the sum of ε's is open: every charge that ran is in it, and it is not
        above its capacity.
        """
        return (
            PURE in self.metrics
            and not self.totals.left_sum
            and not self.totals.unpriced[PURE]
            and self.totals.sums[PURE] <= self.metrics[PURE].capacity
        )

    def _fits_metric(self, name: str, request: RunningTotals) -> bool:
        """Return whether a charge with these totals stays within the capacity of one metric."""
        totals = self.totals
        if totals.unpriced[name] or request.unpriced[name]:
            return False
        metric = self.metrics[name]
        prices = totals.sums[name] + request.sums[name]
        margin = 0 if self.recorded else metric.margin
        return metric.used(prices, totals.spent, request.spent) <= metric.capacity * (1 - margin)

    def capacity_left(self, name: str) -> Fraction:
        """Return the part of a metric's capacity that is left; 0 where it covers nothing more."""
        metric = self.metrics[name]
        if self.totals.unpriced[name]:
            return Fraction(0)
        used = metric.used(self.totals.sums[name], self.totals.spent)
        return max(metric.capacity - used, Fraction(0))

    def fits_sum(self, request: RunningTotals) -> bool:
        """Return whether a charge with these totals stays within the sum of ε's."""
        return (
            self.adds_up
            and not request.left_sum
            and request.failures <= self.failures_left
            and self._fits_metric(PURE, request)
        )

    def fits_by_prices(self, request: RunningTotals) -> bool:
        """Return whether a charge with these totals stays within the filter's own sum, the one
        besides that of ε's; a filter has one at most, since two could be worth twice the δ.
        """
        if request.failures > self.failures_left:
            return False
        return any(self._fits_metric(name, request) for name in self.metrics if name != PURE)

    def covers(self, request: RunningTotals) -> bool:
        """Return whether a charge with these totals stays within one of the sums."""
        return self.fits_by_prices(request) or self.fits_sum(request)


@dataclass(frozen=True)
class Entering:
    """The ways to enter one charge into a filter.

    Attributes:
        charge: the most that the question can cost.
        sums: the filter's, before the charge.
        prices: of each cost, as a record holds them; None: one of them has no price.
    """

    charge: Charge
    sums: Sums
    prices: Record | None

    def records(self, stated: Budget | None) -> Iterator[Way]:
        """Yield the ways that are covered, the best first, each as a record with its totals.

        Args:
            stated: the (ε, δ) that the question states for its charge; None: none was stated.
        """
        by_prices = self._way_by_prices()
        covered = False
        if by_prices is not None:
            _, request = by_prices
            covered = self.sums.fits_by_prices(request)
        if self.sums.adds_up:
            for record, request in self._ways_in_sum(by_prices, stated, covered=covered):
                if self.sums.fits_sum(request):
                    yield record, request
        if by_prices is not None and covered:
            yield self._closing_way(*by_prices)

    def record_by_prices(self) -> Record | None:
        """Return the record of the charge by the prices of its costs, without a statement; None
        where it is not covered.
        """
        by_prices = self._way_by_prices()
        if by_prices is None:
            return None
        record, request = self._closing_way(*by_prices)
        if self.sums.covers(request):
            return record
        return None

    def _way_by_prices(self) -> Way | None:
        """Return the way by the prices of the costs; None where a cost has no price."""
        if self.prices is None:
            return None
        record = {"prices": self.prices}
        return record, self._totals_of(record)

    def _totals_of(self, record: Record) -> RunningTotals:
        """Return the totals of the charge by a record."""
        return RunningTotals.of(self.charge, record, self.sums.metrics)

    def _closing_way(self, record: Record, request: RunningTotals) -> Way:
        """Return the way by prices as it is entered: with the mark that closes the sum of ε's,
        where that is open and a cost has no ε.
        """
        if PURE not in self.sums.metrics or self.sums.totals.left_sum or not request.unpriced[PURE]:
            return record, request
        record = record | {"left": True}
        return record, self._totals_of(record)

    def _ways_in_sum(
        self,
        by_prices: Way | None,
        stated: Budget | None,
        *,
        covered: bool,
    ) -> Iterator[Way]:
        """Yield the ways to enter the charge in the sum of ε's: by the ε's of its costs, and by
        statements.

        Args:
            by_prices: the way by the prices of its costs; None: a cost has no price.
            stated: the (ε, δ) that the question states; None: none was stated.
            covered: whether the charge is covered by its prices.
        """
        pure_way = None
        if by_prices is not None:
            _, request = by_prices
            if not request.unpriced[PURE]:  # every cost has an ε
                pure_way = by_prices
            if pure_way is not None and self._is_at_most_stated(request, stated):
                yield pure_way
                # It takes no more ε than was stated, and δ is not spent on a statement of less.
                if covered:
                    return
        for statement in self.statements(stated, covered=covered):
            # A record holds prices; a charge with a cost that has none is entered as one (ε, δ)
            # cost, by ``Filter._record_as_whole``.
            if self.prices is not None:
                record = {"stated": statement_record(statement) | {"prices": self.prices}}
                yield record, self._totals_of(record)
        if pure_way is not None:
            yield pure_way

    def _is_at_most_stated(self, totals: RunningTotals, stated: Budget | None) -> bool:
        """Return whether the ε's of the costs add up to at most the ε that was stated."""
        if stated is None:
            return True
        return totals.sums[PURE] <= self.sums.metrics[PURE].read(stated.epsilon)

    @property
    def failures(self) -> Fraction:
        """Return an upper bound on the masses of failure of the charge and its δ together."""
        _, failure = split_failure(self.charge, summed=True)
        return Fraction(failure) + Fraction(self.charge.delta)

    def statements(self, stated: Budget | None, *, covered: bool) -> Iterator[ApproxDP]:
        """Yield statements about all of the charge, the first choice first; each contains its
        failures.

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
        """Return an (ε, δ) that all of the charge together satisfies at this δ; None where there is
        no finite ε.

        The failures are taken off first: P - e, with e of mass f, satisfies the costs without them,
        and these are worth at most δ - f at ε. So the part of P that is left out for the statement
        contains e, as the proof needs. More work is done where the first bound is above the ε that
        was ``stated``.
        """
        delta_down = round_down(delta)
        delta_of_costs = Fraction(delta_down) - self.failures
        if not delta_of_costs > 0 or not delta_down < 1:
            return None
        bound = bounds.compose(
            self._failure_free, delta=round_down(delta_of_costs), lower=False, effort="quick"
        )
        if stated is not None and bound.epsilon > stated.epsilon:
            bound = bounds.compose(
                self._failure_free, delta=round_down(delta_of_costs), lower=False
            )
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
        if not self.sums.adds_up:
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
        """Return the charge without failures and δ."""
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
        pool = self.sums.failure_delta
        extra_left = MOST_EXTRA * pool - self.sums.totals.extra
        if stated is None:
            wanted = SHARE_WITHOUT_STATEMENT * pool
            statement = self.statement(self.failures + wanted)
            epsilon = Fraction(0) if statement is None else Fraction(statement.epsilon)
        else:
            wanted = Fraction(stated.delta) - self.failures
            epsilon = Fraction(stated.epsilon)
        return min(wanted, self._largest_extra(epsilon), extra_left)


def float_left(sums: Sums, name: str) -> float:
    """Return the largest float that a metric does not read as more than its capacity that is left.

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
