"""What a refused question could have been: the ε that fits, the noise that costs less, and whether
a registration in advance would have covered it.

All of it follows from the costs of the question and of what was charged before. Nothing is read,
nothing is spent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace

from dptopk._internal.choices import Counts
from dptopk._internal.formatting import format_lower, format_upper
from dptopk.accounting import bounds
from dptopk.budgets.account_base import Account
from dptopk.budgets.filter import Filter
from dptopk.budgets.parallel import Parallel
from dptopk.budgets.registered_account import Accountant
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter
from dptopk.planning.choose import plan
from dptopk.planning.gauge import Kind, least_left
from dptopk.planning.topk_plan import TopKPlan
from dptopk.question import any_plan

# Of each type of account, the noise on counts that may cost less there: tried where the question
# left the noise open or named another.
OTHER_NOISE: dict[type[Account], tuple[Counts, ...]] = {
    Filter: ("gaussian",),
    Accountant: ("gaussian", "laplace", "box"),
}


def refusal_with_advice(
    refused: BudgetExceeded, accounts: Collection[Account], kind: Kind
) -> BudgetExceeded:
    """Return the refusal of a question, with what would fit of its kind, and the noise or the
    registration that costs less.

    Args:
        refused: the refusal by one of the accounts.
        accounts: all that have to pay.
        kind: the kind of the question, with its total.
    """
    account, largest_epsilon = least_left(accounts, kind)
    refusing_account = _refusing_account(refused.requested, account)
    alternatives = _alternatives(refused.requested, accounts, refusing_account, kind)
    sentences = [refused.reason, _fitting_epsilon_in_words(largest_epsilon, kind), *alternatives]
    reason = "; ".join(filter(None, sentences))
    return BudgetExceeded(refused.requested, refused.remaining, reason)


def _fitting_epsilon_in_words(largest_epsilon: float, kind: Kind) -> str:
    """Return in words the largest ε that fits of this kind.

    The plans of two totals may consist of different mechanisms, so that the one with the smaller ε
    may not fit where the other does. Then the words say so: "what fits is up to 0.7151" beside a
    refused 0.7001 would read as an error.

    Args:
        largest_epsilon: the largest ε that fits, rounded down; 0: none does.
        kind: of the question that was refused.
    """
    delta = kind.question.delta or 0.0
    if not largest_epsilon > 0:
        return f"what fits of this kind at delta {delta:.6g} is nothing"
    limit = format_lower(largest_epsilon, 4)
    fits = f"what fits of this kind is epsilon up to {limit} at delta {delta:.6g}"
    epsilon = kind.question.epsilon
    if epsilon is not None and epsilon <= largest_epsilon:
        return f"{fits}, though not every smaller one, as plans of other totals cost otherwise"
    return fits


def _refusing_account(charge: Charge, account: Account) -> Account:
    """Return the account itself; of an account of segments that of the first one which refuses the
    charge.
    """
    if not isinstance(account, Parallel):
        return account
    refusing_parts = (part for part in account.parts.values() if not part.can_spend(charge))
    return next(refusing_parts, account)


def _alternatives(
    requested: Charge, accounts: Collection[Account], refusing_account: Account, kind: Kind
) -> Iterator[str]:
    """Yield, in words, what costs less than the question as it was asked; nothing where it asks for
    more than the total.

    Args:
        requested: the charge of the question.
        accounts: all that have to pay.
        refusing_account: the one of them that refuses the charge.
        kind: of the question.
    """
    epsilon = kind.question.epsilon
    if epsilon is None or epsilon > refusing_account.epsilon():
        return
    cheaper: list[TopKPlan] = []
    for counts in OTHER_NOISE.get(type(refusing_account), ()):
        other = _plan_with_noise(counts, kind)
        if other is None or other.charge == requested:
            continue
        cheaper.append(other)
        if all(kind.is_payable(other, account) for account in accounts):
            yield f'with counts="{counts}" this question fits now'
            break
    if isinstance(refusing_account, Filter):
        yield from _sentence_on_registration(refusing_account, requested, cheaper)


def _plan_with_noise(counts: Counts, kind: Kind) -> TopKPlan | None:
    """Return the plan of this question with other noise on its counts; None where the answer shows
    no counts, the question names that noise already, or no plan can have it.
    """
    question = kind.question
    if question.counts in {"none", counts}:
        return None
    with suppress(InvalidParameter, IncompatibleCosts, BudgetExceeded):
        other = replace(question, counts=counts)
        return plan(other, replace(kind.facts, covers=any_plan))
    return None


def _sentence_on_registration(
    account: Filter, requested: Charge, cheaper: list[TopKPlan]
) -> Iterator[str]:
    """Yield one sentence if all that was charged and this question would be within the total, had
    it been registered in advance; with other noise on the counts if not as it was asked.

    Args:
        account: the filter that refuses the question.
        requested: the charge of the question.
        cheaper: the plans of the question with other noise, of which a filter's is Gaussian.
    """
    charges = [("", requested)]
    charges += [(" with Gaussian noise", other.charge) for other in cheaper]
    for noise, charge in charges:
        together = Charge.join(account.spent(), charge)
        bound = bounds.compose(together, delta=account.delta, lower=False, effort="quick")
        if bound.epsilon <= account.epsilon():
            total = f"({format_upper(bound.epsilon, 4)}, {account.delta:.6g})"
            yield (
                f"registered in advance{noise}, this question and all that was charged would fit: "
                f"together they are {total}"
            )
            return
