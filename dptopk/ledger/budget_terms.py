"""The terms of a budget as the log holds them: all that defines an account.

The guarantee of registered costs and the capacity of a filter are computed once and stored, so that
another processor, a later version or a busy hour reads the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from dptopk._internal import validate
from dptopk.accounting.registry import Bound
from dptopk.budgets.account_base import Account
from dptopk.budgets.filter import Filter
from dptopk.budgets.parallel import Parallel
from dptopk.budgets.registered_account import Accountant
from dptopk.budgets.shares import Shares
from dptopk.costs import Budget, Charge, Cost
from dptopk.errors import InvalidParameter
from dptopk.ledger.names import analyst_name, plain_text
from dptopk.ledger.recorded import DeclaredSegments, RecordedBound, RecordedTerms


class FilterChoices(TypedDict, total=False):
    """Options of a filter budget, as ``Filter`` takes them; None leaves the choice to the
    filter.
    """

    ranges: Sequence[float] | None
    costs: Sequence[Cost] | None
    failure_delta: float | None


class AccountTerms(FilterChoices, total=False):
    """The terms of one account: exactly one of ``registered``, with ``delta``, and ``budget``."""

    registered: Charge | None
    budget: Budget | None
    delta: float | None


class BudgetTerms(AccountTerms, total=False):
    """The terms of a budget: exactly one of ``registered``, ``budget`` and ``shares``.

    ``delta`` is given with all of them but ``budget``.
    """

    shares: Mapping[str, Charge | Budget] | None


def account_terms_of(
    *,
    registered: Charge | None = None,
    budget: Budget | None = None,
    delta: float | None = None,
    **choices: Unpack[FilterChoices],
) -> RecordedTerms:
    """Return the terms of one account as the log holds them: of registered costs with their δ, or
    of a filter.

    Args:
        registered: costs that may be spent in any order.
        budget: instead, the total of a filter.
        delta: with ``registered``: the δ at which the guarantee is stated.
        choices: with ``budget``: further options of ``Filter``.

    Raises:
        InvalidParameter: unless exactly one of registered (with delta) and budget is given, and
            accountants take it.
    """
    # A caller that no type checker has seen may hand on options of other names.
    known_options = FilterChoices.__annotations__
    stated_options = [name for name, value in choices.items() if value is not None]
    if not set(stated_options) <= known_options.keys():
        raise InvalidParameter(
            f"a budget also takes {', '.join(known_options)}; got {', '.join(stated_options)}"
        )
    if (registered is None) == (budget is None):
        raise InvalidParameter("give exactly one of registered and budget")
    if budget is not None:
        if not isinstance(budget, Budget) or delta is not None:
            raise InvalidParameter("budget must be a Budget, which has its own delta")
        account = Filter(
            budget,
            ranges=choices.get("ranges"),
            costs=choices.get("costs"),
            failure_delta=choices.get("failure_delta"),
        )
        return {"budget": budget.terms(), "filter": account.terms()}
    if stated_options:
        raise InvalidParameter(
            f"{', '.join(stated_options)}: for a budget; registered costs take none of these"
        )
    return _registration_terms(registered, delta)


def _registration_terms(registered: Charge | None, delta: float | None) -> RecordedTerms:
    """Return the terms of registered costs, with the guarantee that is computed for them here.

    Raises:
        InvalidParameter: without a charge or a δ, or when ``Accountant`` refuses them.
    """
    if not isinstance(registered, Charge) or delta is None:
        raise InvalidParameter(
            "registered must be a Charge, with the delta at which its guarantee is stated"
        )
    account = Accountant(registered, delta)
    terms: RecordedTerms = {"registered": str(registered), "delta": account.delta}
    # JSON has no infinity, which ε is if the costs themselves may fail with a chance above δ.
    if math.isfinite(account.guarantee.epsilon):
        terms["guarantee"] = _recorded_bound(account.guarantee)
    return terms


def budget_terms_of(
    *, shares: Mapping[str, Charge | Budget] | None = None, **terms: Unpack[AccountTerms]
) -> RecordedTerms:
    """Return the terms of a data set's budget as the log holds them: those of one account, or those
    of shares, with their δ.

    Args:
        shares: analyst -> registered costs, or the total of a filter; None: there are no shares.
        terms: without shares, the arguments of ``account_terms_of``; with shares only ``delta``, at
            which the guarantee for all of them together is stated.

    Raises:
        InvalidParameter: unless exactly one of registered, budget and shares is given, and
            accountants take it.
    """
    if shares is None:
        return account_terms_of(**terms)
    delta = terms.pop("delta", None)
    if delta is None or any(value is not None for value in terms.values()):
        raise InvalidParameter(
            "give exactly one of registered, budget and shares; with shares also delta"
        )
    return _share_terms(shares, delta)


def _share_terms(shares: Mapping[str, Charge | Budget], delta: float) -> RecordedTerms:
    """Return the terms of several analysts' shares: registered costs, or a filter, for each.

    Args:
        shares: analyst -> registered costs, or the total of a filter.
        delta: the δ at which the guarantee for all shares together is stated.

    Raises:
        InvalidParameter: on shares that are neither, names that are one analyst's, or a total that
            is not finite.
    """
    if not isinstance(shares, Mapping) or not shares:
        raise InvalidParameter("shares must map analysts to a Charge or a Budget each")
    parts: dict[str, RecordedTerms] = {}
    for name, share in shares.items():
        analyst = analyst_name(name)
        if analyst in parts:
            raise InvalidParameter(f"shares: {name!r} is named twice")
        if isinstance(share, Charge):
            parts[analyst] = account_terms_of(registered=share, delta=delta)
        else:
            parts[analyst] = account_terms_of(budget=validate.instance(Budget, shares=share))
    account = Shares({name: account_of(terms) for name, terms in parts.items()}, delta)
    if not math.isfinite(account.epsilon()):
        raise InvalidParameter(
            f"delta {delta} is below the failure masses of the shares: {account.guarantee.note}"
        )
    return {
        "shares": parts,
        "delta": account.delta,
        "guarantee": _recorded_bound(account.guarantee),
    }


def declared_segments(segments: Mapping[str, Sequence[str]] | None) -> DeclaredSegments | None:
    """Return declared segments as the log holds them; None if there are none.

    Args:
        segments: one column -> the names of the segments.

    Raises:
        InvalidParameter: unless it is one column with a list of distinct names.
    """
    if segments is None:
        return None
    if not isinstance(segments, Mapping) or len(segments) != 1:
        raise InvalidParameter(
            "segments must be a column and its names, such as {'region': ['eu', 'us']}"
        )
    ((by, names),) = segments.items()
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    if not is_list or not names or len(set(names)) < len(names):
        raise InvalidParameter("segments must be a list of distinct names, at least one")
    for name in (by, *names):
        plain_text(segments=name)  # refuses a text that cannot be shown
    return {"by": by, "names": list(names)}


def with_fixed_division(terms: RecordedTerms) -> RecordedTerms:
    """Return the terms of a filter whose method and division of δ cannot change any more.

    A new filter may leave both open until its first charge. Here that charge may follow answers,
    and must not decide anything by them. Other terms are returned as they are.
    """
    if "filter" not in terms:
        return terms
    left_open = {"open", "undecided"}  # as ``Filter.terms`` names what the first charge decides
    options = {name: value for name, value in terms["filter"].items() if name not in left_open}
    return terms | {"filter": options}


def terms_by_segment(terms: RecordedTerms, segments: DeclaredSegments | None) -> RecordedTerms:
    """Return the terms of a budget of which each segment has a separate account with the whole
    budget; of shares, there is one for each share and segment.

    Args:
        terms: the terms without segments.
        segments: the declared segments; None: there are none, and the terms stay as they are.
    """
    if segments is None:
        return terms
    # Users may move between segments, so that no segment's first charge may decide about δ.
    terms = with_fixed_division(terms)
    if "shares" in terms:
        parts = {name: terms_by_segment(part, segments) for name, part in terms["shares"].items()}
        return terms | {"shares": parts}
    return terms | {"segments": segments}


def _recorded_bound(bound: Bound) -> RecordedBound:
    """Return a guarantee as the log holds it; ``_restored_bound`` reads it."""
    return {
        "epsilon": bound.epsilon,
        "delta": bound.delta,
        "lower": bound.lower,
        "name": bound.name,
        "source": bound.source,
        "note": bound.note,
    }


def _restored_bound(stored: RecordedBound | None) -> Bound | None:
    """Return the guarantee that ``_recorded_bound`` wrote; None if there is none."""
    if stored is None:
        return None
    # Registered costs may come in any order that answers decide, so that their bound is set-wise;
    # what holds there holds in the weaker interactions too.
    return Bound(**stored, valid_in=("batch", "ordered", "setwise"))


def account_of(terms: RecordedTerms) -> Account:
    """Return an account with these terms on which nothing is spent."""
    if "segments" in terms:
        segment_terms = terms.copy()
        del segment_terms["segments"]
        names = terms["segments"]["names"]
        return Parallel({name: account_of(segment_terms) for name in names})
    if "shares" in terms:
        parts = {name: account_of(part) for name, part in terms["shares"].items()}
        return Shares(parts, terms["delta"], guarantee=_restored_bound(terms.get("guarantee")))
    if "filter" in terms:
        return Filter.of_terms(terms["filter"])
    return Accountant(
        Charge.parse(terms["registered"]),
        terms["delta"],
        guarantee=_restored_bound(terms.get("guarantee")),
    )
