"""What is left of a budget, as people need to know it: the largest ε at which a question like the
last one is accepted now.

There is one such function, ``epsilon_left``: sessions, the ledger's commands, the service and its
page all call it. It makes plans of that kind of question and asks the account itself whether it
accepts them, so the number is what the next question meets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self

from dptopk.budgets.account_base import Account
from dptopk.budgets.filter import Filter
from dptopk.budgets.parallel import Parallel
from dptopk.budgets.registered_account import Accountant
from dptopk.budgets.shares import Shares
from dptopk.costs import ApproxDP, Budget, Charge, MultiDP
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.planning.choose import plan
from dptopk.planning.protocol import Plan, Step
from dptopk.planning.topk_plan import TopKPlan
from dptopk.question import Events, Facts, Question, any_plan
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator

# The number is below the largest ε by at most this share of the total; chosen by hand.
RESOLUTION = 1 / 400
# The largest ε that is tried where the total has no finite ε.
LARGEST_EPSILON = 100.0
# The width at which a search ends is the first share of the ε that is left, where that is less than
# the resolution; but never less than the second share of the resolution, since plans of tiny ε take
# seconds. Both were chosen by hand.
FINER = 1 / 20
FINEST = 1 / 32
# How many plans the secant rule, which begins the search, makes at most.
MOST_ESTIMATES = 5
# The slopes over ε of how much more than ε is estimated to fit: the first is that of an estimate
# which does not change with ε; none is taken to be above the second, so that steps stay finite.
FIRST_SLOPE = -1.0
LARGEST_SLOPE = -0.2
# The question that is assumed before any was asked: its k, and its share of the total δ.
USUAL_K = 10
USUAL_DELTA = 1 / 10
# The fields of a question that do not say of which kind it is, or that no record can hold.
NOT_OF_A_KIND = {"epsilon", "rho", "accuracy", "where", "segments", "like", "max_seconds"}


@dataclass(frozen=True)
class Kind:
    """A kind of question: all but its ε, and the public facts that its plans depend on.

    Attributes:
        question: the question; its total ε or ρ does not matter.
        facts: the public facts about the data.
        in_steps: whether a look is charged before the plan that it leads to, as in a session; else
            both are charged at once.
    """

    question: Question
    facts: Facts
    in_steps: bool = True

    def plain(self) -> dict[str, Any]:
        """Return the kind as plain values, for the record of a charge; ``of`` reads them."""
        fields = ("k", "delta", *self.question.stated())
        stated = {name: getattr(self.question, name) for name in fields}
        facts = asdict(replace(self.facts, covers=any_plan))
        del facts["covers"]
        return {
            "question": {name: stated[name] for name in stated if name not in NOT_OF_A_KIND},
            "facts": facts,
            "in_steps": self.in_steps,
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Self:
        """Return the kind from what ``plain`` wrote.

        Raises:
            InvalidParameter: when this version has no such kind.
        """
        try:
            facts = dict(plain["facts"])
            sensitivity = Sensitivity(**facts.pop("sensitivity"))
            events = facts.pop("events")
            facts_of_plan = Facts(
                sensitivity=sensitivity,
                events=None if events is None else Events(**events),
                **facts,
            )
            return cls(Question(**plain["question"]), facts_of_plan, bool(plain["in_steps"]))
        except (KeyError, TypeError, ValueError):
            raise InvalidParameter("the record of a question is of no kind known here") from None

    @classmethod
    def usual(cls, account: Account, facts: Facts) -> Self:
        """Return the kind of question that is assumed before any was asked: the top 10, at a tenth
        of δ.
        """
        return cls(Question(k=USUAL_K, delta=account.delta * USUAL_DELTA), facts)

    def is_payable(self, candidate: TopKPlan, account: Account) -> bool:
        """Return whether an account pays for a plan of this kind as it is now; nothing is spent."""
        trial = Trial(account)
        if self.in_steps:
            return candidate.payable(trial)
        return trial.covers(candidate)

    def __str__(self) -> str:
        words = f"the top {self.question.k} at delta {self.question.delta or 0.0:.4g}"
        if self.question.counts == "none":
            return f"{words}, without counts"
        return words


def kind_of(record: dict[str, Any] | None, account: Account, sensitivity: Sensitivity) -> Kind:
    """Return the kind of the last question, from its record; the usual kind without a record, or
    with one of another version.

    Args:
        record: what ``Kind.plain`` wrote, or None.
        account: whose δ the usual kind has a tenth of.
        sensitivity: of the data that the usual kind is about.
    """
    if record is not None:
        try:
            return Kind.of(record)
        except InvalidParameter:
            pass
    return Kind.usual(account, Facts(sensitivity=sensitivity))


def accepts(account: Account, charge: Charge, stated: Budget | None) -> bool:
    """Return whether an account pays for a charge; False too where the charge is stated for other
    neighbours, or has no price there. ``stated``: as for ``Account.quote``.
    """
    try:
        return account.can_spend(charge, stated)
    except IncompatibleCosts:
        return False


def covers_in_turn(account: Account, first: Plan, *others: Plan) -> bool:
    """Return whether an account, as it is now, pays for these plans one after the other; nothing is
    spent.

    Each plan is charged to a copy of the account before the next one is tried: what a filter
    accepts depends on how earlier charges were entered, and what a registration accepts on the
    tokens that they used.
    """
    if not accepts(account, first.charge, first.stated):
        return False
    if not others:
        return True
    after_first = account.copy_of_terms()
    with suppress(BudgetExceeded):  # another thread may have spent from the account meanwhile
        after_first.spend(first.charge, stated=first.stated)
        return covers_in_turn(after_first, *others)
    return False


@dataclass(frozen=True)
class Trial:
    """The Paying of a trial: an account that is asked what it covers, from which nothing is spent,
    and for which no answers are stored.

    Attributes:
        account: whose budget it is.
    """

    account: Account

    def covers(self, *plans: Plan) -> bool:
        """Return whether the account pays for these plans, one after the other."""
        return covers_in_turn(self.account, *plans)

    def has(self, step: Step) -> bool:  # noqa: ARG002
        """Return False: no answer is stored."""
        return False

    def known(self, step: Step) -> Release | None:  # noqa: ARG002
        """Return None: no answer is stored."""
        return None

    def answer(self, step: Step, rng: Generator | None) -> Release:
        """Raise NotImplementedError: this is never called, since nothing is drawn."""
        raise NotImplementedError(step)

    def refuse(self, *charges: Charge) -> Exception:
        """Return the refusal of these charges."""
        return BudgetExceeded(Charge.join(*charges), self.account.remaining())


@dataclass
class _LargestEpsilon:
    """The search for the largest ε of a kind that an account accepts.

    Attributes:
        account: whose budget it is.
        kind: the kind of question.
        total: the largest ε that is tried.
        low: the largest ε tried so far that is accepted; 0 before one was.
        high: the smallest ε tried so far that is not accepted, inf before the search; ``low`` and
            ``high`` are the bracket of the search.
        plans: the plans that were made, by their ε; None for an ε without a plan.
    """

    account: Account
    kind: Kind
    total: float
    low: float = 0.0
    high: float = math.inf
    plans: dict[float, TopKPlan | None] = field(default_factory=dict)

    def narrow_at(self, epsilon: float) -> bool:
        """Make one side of the bracket this ε, and return whether the question would be accepted at
        it.
        """
        fits = self._fits(epsilon)
        if fits:
            self.low = max(self.low, epsilon)
        else:
            self.high = min(self.high, epsilon)
        return fits

    def _fits(self, epsilon: float) -> bool:
        """Return whether the question would be accepted at this ε; the bracket stays the same."""
        candidate = self.plan_at(epsilon)
        return candidate is not None and self.kind.is_payable(candidate, self.account)

    def plan_at(self, epsilon: float) -> TopKPlan | None:
        """Return the plan at this ε; None if there is none."""
        if epsilon not in self.plans:
            budget = Budget(epsilon, self.kind.question.delta or 0.0)
            facts = replace(self.kind.facts, covers=self._is_covered)
            try:
                self.plans[epsilon] = plan(self.kind.question.with_total(budget), facts)
            except (InvalidParameter, BudgetExceeded, IncompatibleCosts):
                self.plans[epsilon] = None
        return self.plans[epsilon]

    def _is_covered(self, candidate: Plan) -> bool:
        """Return whether a plan counts as paid for where ``plan`` decides between plans.

        Where a look is charged before the plan that it leads to, it is what the account covers now.
        Where both are charged at once it is what was registered, spent or not, and everything for
        another account: so the choice does not depend on what was asked before.
        """
        if self.kind.in_steps:
            return Trial(self.account).covers(candidate)
        if isinstance(self.account, Accountant):
            unspent = Accountant(self.account.registered, self.account.delta)
            return Trial(unspent).covers(candidate)
        return True

    def run(self) -> float:
        """Search, and return the largest ε found that fits, which is at most RESOLUTION of the
        total below the largest one; 0 where none fits.
        """
        self.high = self.total
        if self._fits(self.total):
            return self.total
        if self._never_fits():
            return 0.0
        if isinstance(self.account, Filter):
            self._bracket_by_estimates()
        self._bisect_bracket()
        return self.low

    def _resolution_at(self, epsilon: float) -> float:
        """Return the width of the bracket at which the search for an ε of this size ends: less
        where little is left.
        """
        widest = RESOLUTION * self.total
        return max(min(widest, FINER * epsilon), FINEST * widest)

    def _bracket_by_estimates(self) -> None:
        """Narrow the bracket from where the largest ε is expected, in steps that double."""
        crossing = self._epsilon_by_secants()
        if crossing is None:
            return
        guess = self._first_guess(crossing)
        if self.low < guess < self.high:
            self.narrow_at(guess)
        # From the largest ε that was accepted upwards; where none was, downwards from the smallest
        # one that was not.
        if self.low > 0:
            start = self.low
            step = self._resolution_at(start)
            while start + step < self.high and self.narrow_at(start + step):
                step *= 2
        elif self.high < self.total:
            start = self.high
            step = self._resolution_at(start)
            while start - step > 0 and not self.narrow_at(start - step):
                step *= 2

    def _first_guess(self, crossing: float) -> float:
        """Return the ε that is tried first: a little less than the estimate of the largest one that
        fits, so that it is likely to be accepted; or the ε that a filter accepts by adding up ε's,
        where that is more.

        Args:
            crossing: the estimate of the largest ε that fits, by the secant rule.
        """
        likely = crossing - self._resolution_at(crossing) / 4
        if isinstance(self.account, Filter):  # only filters are searched so
            return max(likely, min(self.account.added_left(), self.total))
        return likely

    def _epsilon_by_secants(self) -> float | None:
        """Return an estimate, by the secant rule, of the largest ε that fits: the root of
        ``_estimated_excess``; None if there is no estimate.

        The rule begins at the total, whose plan was made before. A plan that is within the
        resolution of the root is tested at once, and so becomes one side of the bracket; within
        half of it the root is known well enough to look for the other side.
        """
        epsilon = self.total
        excess = self._estimated_excess(epsilon)
        if excess is None:
            return None
        slope = FIRST_SLOPE
        for _ in range(MOST_ESTIMATES):
            following = epsilon - excess / slope
            if not 0 < following < self.total:
                break
            following_excess = self._estimated_excess(following)
            if following_excess is None:
                break
            if following != epsilon:  # else the slope stays: it would be 0/0
                slope = min((following_excess - excess) / (following - epsilon), LARGEST_SLOPE)
            epsilon = following
            excess = following_excess
            distance = abs(excess / slope)
            if distance <= self._resolution_at(epsilon):
                self.narrow_at(epsilon)
            if distance <= self._resolution_at(epsilon) / 2:
                break
        return epsilon - excess / slope

    def _estimated_excess(self, epsilon: float) -> float | None:
        """Return by how much the ε that a filter is estimated to accept is above this one, by the
        charge of the plan at this ε: below 0 where this ε is too large. None where there is no plan
        or, of an account that is no filter, no estimate.
        """
        candidate = self.plan_at(epsilon)
        if candidate is None or not isinstance(self.account, Filter):
            return None
        return epsilon * self.account.growth(candidate.charge) - epsilon

    def _never_fits(self) -> bool:
        """Return whether no question of this kind fits, whatever its ε.

        The failures of a plan are a part of its δ that changes little with ε: at every ε they are
        taken to be at least half of those at the total. No question fits if the account does not
        even pay for such failures by themselves.
        """
        candidate = self.plan_at(self.total)
        if candidate is None:
            return False
        # The δ of an ApproxDP counts as failures too.
        failures = candidate.charge.delta + sum(
            cost.delta for cost in candidate.charge.of(ApproxDP)
        )
        if failures == 0:
            return False
        if isinstance(self.account, Accountant):
            # Failures are paid by a registered δ, or by tokens that have some.
            left = self.account.remaining()
            return left.delta == 0 and not left.of(ApproxDP, MultiDP)
        half = Charge(delta=failures / 2, neighbours=candidate.charge.neighbours)
        return not accepts(self.account, half, None)

    def _bisect_bracket(self) -> None:
        """Halve the bracket until it is as narrow as ``_wanted_width`` says."""
        while self.high - self.low > self._wanted_width():
            self.narrow_at((self.low + self.high) / 2)

    def _wanted_width(self) -> float:
        """Return the width at which the bracket is narrow enough: less where little is left.

        As long as no ε was accepted it is not less: plans of tiny ε take seconds, and would only
        show that nothing is left.
        """
        if self.low > 0:
            return self._resolution_at(self.low)
        return RESOLUTION * self.total


def epsilon_left(account: Account, kind: Kind) -> float:
    """Return the largest ε at which a question of this kind is accepted now, found with the
    account's own test; at most 1/400 of the total below it, and never above what is accepted (the
    answer is an ε that was accepted, or 0).

    With segments it is the least of these, with shares the largest. Where no question of this kind
    can be planned at all, a filter says what it leaves for a pure cost, and other accounts 0. Of an
    account that is closed nothing is left.
    """
    if account.closed:
        return 0.0
    if isinstance(account, Shares):
        return max(epsilon_left(part, kind) for part in account.parts.values())
    if isinstance(account, Parallel):
        distinct = {json.dumps(part.state()): part for part in account.parts.values()}
        return min(epsilon_left(part, kind) for part in distinct.values())
    total = account.epsilon()
    search = _LargestEpsilon(account, kind, total if math.isfinite(total) else LARGEST_EPSILON)
    largest_epsilon = search.run()
    plannable = any(candidate is not None for candidate in search.plans.values())
    if not plannable and isinstance(account, Filter):
        return account.pure_left()
    return largest_epsilon


def least_left(accounts: Collection[Account], kind: Kind) -> tuple[Account, float]:
    """Return the account, of several that have to pay for a question, with the least left for it,
    and its ``epsilon_left``; the first of these if there are several.
    """
    left_of_each = [(epsilon_left(account, kind), account) for account in accounts]
    least, account = min(left_of_each, key=itemgetter(0))
    return account, least
