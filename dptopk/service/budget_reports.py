"""The ledger as the service sees it: what each analyst asked and got, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from typing import Any

from dptopk._internal.json_text import canonical_json
from dptopk._internal.lru import LRUCache
from dptopk.accounting.bounds import compose
from dptopk.budgets.account import Account
from dptopk.budgets.filter import Filter
from dptopk.budgets.parallel import Parallel
from dptopk.budgets.shares import RESERVE
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded, DptopkError
from dptopk.ledger.dataset import owner_of
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.names import canonical
from dptopk.ledger.spends import Spend

CACHED_PAGES = 512  # pages of the books
RECENT_CHARGES = 20  # charges among which earlier kinds of questions are looked for
MOST_SPENDING_POINTS = 1000  # of the line of spending over time


class BudgetReports:
    """Reads of the ledger; what is a function of its last entry is computed once.

    Args:
        ledger: open.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._readings: LRUCache[float] = LRUCache(CACHED_PAGES)
        self._pages: LRUCache[Any] = LRUCache(CACHED_PAGES)

    def _now(self, make: Callable[[], Any], *key: Hashable) -> Any:
        """A page of the books as of the ledger's last entry: made once for each entry."""
        return self._pages.get((self.ledger.head()["hash"], *key), make)

    def balance(
        self, dataset: str, analyst: str, *charges: Charge, segments: tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """The budgets that an analyst's question must fit, each before and after further charges.

        Args:
            dataset: whose.
            analyst: who would ask.
            charges: what would be spent; the data set is charged nothing here.
            segments: declared ones that would pay; None: all data.

        Returns:
            "total": of the data set. "mine": the share or the limit that was allotted to the analyst; ``owner`` says
            whose it is: an analyst without a share draws on the reserve.
        """
        name = canonical(analyst)
        key = ("balance", dataset, name, segments, *map(str, charges))
        return self._now(lambda: self._balance(dataset, name, charges, segments), *key)

    def _balance(
        self, dataset: str, name: str, charges: tuple[Charge, ...], segments: tuple[str, ...] | None
    ) -> dict[str, Any]:
        state = self.ledger.state(dataset)  # a copy: what is spent on it is spent nowhere else
        parts = state.terms.get("shares")
        if parts is None:
            balance = {"total": self._page(_of(state.account, segments), state.terms, charges)}
            limits = {owner_of(who): terms for who, (terms, _) in state.limits.items()}
            for owner, account in state.limits_of(name, segments).items():
                balance["mine"] = {"owner": name} | self._page(account, limits[owner], charges)
            return balance
        owner = name if name in parts else RESERVE
        if owner not in parts:
            return {"total": self._page(state.account, state.terms, ()), "mine": _no_share(name)}
        mine = {"owner": owner} | self._page(_of(state.account.account(name), segments), parts[owner], charges)
        return {"total": self._page(state.account, state.terms, ()), "mine": mine}

    def budget(self, dataset: str, analyst: str, *, everyone: bool = False) -> dict[str, Any]:
        """The balance, what the analyst was charged, and how often earlier kinds of questions still fit.

        Args:
            dataset: whose.
            analyst: for whom.
            everyone: whether questions of others are named too.
        """
        return self._now(lambda: self._budget(dataset, analyst, everyone), "budget", dataset, analyst, everyone)

    def _budget(self, dataset: str, analyst: str, everyone: bool) -> dict[str, Any]:
        kinds: dict[str, Spend] = {}
        whose = None if everyone else analyst
        for spend in self.ledger.recent(dataset, analyst=whose, at_most=RECENT_CHARGES, outcomes=False):
            if spend.charge:  # a day of a stream costs nothing
                kinds.setdefault(str(spend.mechanism.get("text", "")), spend)
        state = self.ledger.state(dataset)

        def fitting(spend: Spend) -> int:
            try:
                accounts = state.accounts(analyst, spend.segments).values()
            except BudgetExceeded:  # no share and no reserve
                return 0
            return min(account.fits(spend.charge) for account in accounts)

        fits = [
            {"question": spend.mechanism.get("question"), "text": text, "fits": fitting(spend)}
            for text, spend in list(kinds.items())[4::-1]
        ]
        spent = str(state.spent(analyst=analyst))
        return self.balance(dataset, analyst) | {"spent_by_me": spent, "fits": fits}

    def _page(self, account: Account, terms: Mapping[str, Any], charges: tuple[Charge, ...]) -> dict[str, Any]:
        """One budget in numbers."""
        shares, spent = _used(account), self._spent(account, terms)
        return {
            "epsilon": account.epsilon(),
            "epsilon_spent": spent,
            "epsilon_left": account.epsilon_left(spent),
            "delta": _delta_of(terms),
            "share": max(shares.values(), default=0.0),
            "shares": shares,
            "remaining": str(account.remaining()),
            **(_after(account, charges) if charges else {}),
        }

    def _spent(self, account: Account, terms: Mapping[str, Any]) -> float:
        """Return an upper bound on the ε spent, computed once for each sum of charges.

        Of a budget of free choice by the bounds for charges that are chosen one after the other: closed forms.
        """
        spent = account.spent()
        key = canonical_json([terms, str(spent)])
        how: dict[str, Any] = {"interaction": "filter"} if "budget" in terms else {"effort": "quick", "lower": False}
        delta = _delta_of(terms)
        known = self._readings.get(key, lambda: compose(spent, delta=delta, **how).epsilon if spent.costs else 0.0)
        return min(known, account.epsilon())

    def spending(self, dataset: str) -> dict[str, Any]:
        """For who owns the data: the share of the budget used after each charge, and what each analyst spent."""
        page: dict[str, Any] = self._now(lambda: self._spending(dataset), "spending", dataset)
        return page

    def _spending(self, dataset: str) -> dict[str, Any]:
        state = self.ledger.state(dataset)
        replayed, line = state.unspent(), []
        steps: dict[int, Spend | None] = {}  # charges, and None where users may have moved between segments
        for entry in self.ledger.entries(state.renewed):
            if entry.dataset == dataset and entry.kind == "charge":
                steps[entry.seq] = Spend.charged(entry)
            elif entry.kind == "release" and (charged := steps.get(entry.body["charge"])) is not None:
                steps[charged.seq] = charged.released_by(entry)
            elif entry.dataset == dataset and "merged" in entry.body:
                steps[entry.seq] = None
        for spend in steps.values():
            try:
                if spend is None:
                    replayed.merge(replayed.merged())
                    continue
                for account in replayed.accounts(spend.analyst, spend.segments).values():
                    account.spend(spend.charge)
            except DptopkError:  # written under other rules; the account's own share is below
                continue
            used = max(_used(replayed.account).values(), default=0.0)
            line.append({"entry": spend.seq, "at": spend.at, "analyst": spend.analyst, "share": used})
        people = {
            name: {"queries": total.queries, "spent": str(state.spent(analyst=name))}
            for name, total in state.now.items()
        }
        limits = {name: max(_used(held).values(), default=0.0) for name, (_, held) in state.limits.items()}
        if "shares" in state.terms:
            limits |= _used(state.account)
        return {
            "over_time": line[-MOST_SPENDING_POINTS:],
            "analysts": people,
            "limits": limits,
            "renewals": state.renewals,
            "shares": _used(state.account),
            "lifetime": str(state.spent(lifetime=True)),
        }

    def shares(self, dataset: str) -> dict[str, float]:
        """Return the used shares of a data set's budget."""
        return _used(self.ledger.state(dataset).account)

    def version(self, dataset: str) -> str:
        """The data version that the ledger says."""
        return str(self._now(lambda: self.ledger.state(dataset).version, "version", dataset))


def _no_share(analyst: str) -> dict[str, Any]:
    """The part of an analyst for whom nothing was set aside."""
    nothing = "there is neither a share of this analyst nor a reserve"
    page: dict[str, Any] = {"owner": analyst, "remaining": f"nothing: {nothing}", "refused": nothing, "fits": 0}
    page |= dict.fromkeys(("epsilon", "epsilon_spent", "epsilon_left", "delta"), 0.0)
    return page | {"share": 1.0, "shares": {}, "share_after": 1.0, "shares_after": {}}


def _after(account: Account, charges: tuple[Charge, ...]) -> Mapping[str, Any]:
    """Return what further charges would leave, and how often the first fits; the account is a copy and is spent."""
    fits, refused = account.fits(charges[0]), ""
    try:
        for charge in charges:
            account.spend(charge)
    except DptopkError as error:
        refused = str(error)
    later = _used(account)
    return {"fits": fits, "refused": refused, "share_after": max(later.values(), default=0.0), "shares_after": later}


def _of(account: Account, segments: tuple[str, ...] | None) -> Account:
    """The account of these segments; None: of all data."""
    return account.only(*segments) if segments is not None and isinstance(account, Parallel) else account


def _used(account: Account) -> dict[str, float]:
    """Return the used share of each kind of budget or segment; for a filter, also of the δ reserved for failures."""
    if isinstance(account, Parallel):
        each = {str(name): _used(part) for name, part in account.parts.items()}
        return next(iter(each.values())) if len(each) == 1 else {name: max(each[name].values()) for name in each}
    shares = dict(account.shares())
    if isinstance(account, Filter) and account.failure_delta:
        shares["failure delta"] = float(Fraction(account.state()["failures"]) / Fraction(account.failure_delta))
    return shares


def _delta_of(terms: Mapping[str, Any]) -> float:
    return float(terms["budget"][1] if "budget" in terms else terms["delta"])
