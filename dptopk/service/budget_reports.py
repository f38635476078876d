"""The ledger as the service sees it: what each analyst asked and got, and what stays."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypedDict

from dptopk._internal.json_text import canonical_json
from dptopk._internal.lru import LRUCache
from dptopk.budgets.account_base import Account
from dptopk.budgets.parallel import Parallel
from dptopk.budgets.shares import RESERVE
from dptopk.costs import Budget, Charge
from dptopk.errors import BudgetExceeded, DptopkError
from dptopk.ledger.dataset import DatasetState
from dptopk.ledger.entries import Entry
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.names import canonical
from dptopk.ledger.spends import Spend
from dptopk.planning.gauge import Kind, epsilon_left, kind_of

CACHED_PAGES = 512  # pages of the books
RECENT_CHARGES = 20  # charges among which earlier kinds of questions are looked for
MOST_SPENDING_POINTS = 100  # of the line of spending over time


@dataclass(frozen=True)
class Further:
    """A further question, as a budget sees it.

    Attributes:
        charge: what it would spend.
        stated: the (ε, δ) that it states for all of its charge.
        kind: all of a top-k question but its ε, to say which ε would fit; None: of another one.
    """

    charge: Charge
    stated: Budget | None = None
    kind: Kind | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Return what its effect on a budget is a function of."""
        kind = "" if self.kind is None else canonical_json(self.kind.plain())
        return str(self.charge), str(self.stated), kind

    def after(self, account: Account) -> AfterQuestion:
        """Return what it would leave, and how often it fits; the account is a copy and is spent,
        unless it refuses.
        """
        fits = account.fits(self.charge, self.stated)
        refused = ""
        why = ""
        largest = None
        try:
            account.spend(self.charge, stated=self.stated)
        except DptopkError as error:
            refused = str(error)
            why = getattr(error, "reason", "")
            if self.kind is not None:
                largest = epsilon_left(account, self.kind)
        return {
            "fits": fits,
            "refused": refused,
            "why": why,
            "largest_epsilon": largest,
            "share_after": account.share(),
            "shares_after": account.shares(),
        }


class AfterQuestion(TypedDict):
    """The budget that a further question would leave.

    Attributes:
        fits: how many times it fits.
        refused, why: the refusal, and what is missing; empty where it fits.
        largest_epsilon: where it does not fit, the largest ε at which one of its kind does.
        share_after, shares_after: used shares with it.
    """

    fits: int
    refused: str
    why: str
    largest_epsilon: float | None
    share_after: float
    shares_after: dict[str, float]


class SpendingPoint(TypedDict, total=False):
    """A charge, and the used share of the budget after it."""

    entry: int
    at: str
    analyst: str
    share: float


class SpendingPage(TypedDict):
    """The report for the owner of a data set.

    Attributes:
        over_time: entry, time, analyst and used share of each charge since the last renewal.
        analysts: of each, how many questions, and what they were charged.
        limits: used share of each limit or part.
        renewals: how many there were.
        shares: used shares of the data set's budget.
        lifetime: what was charged since the data set was made.
    """

    over_time: list[SpendingPoint]
    analysts: dict[str, dict[str, Any]]
    limits: dict[str, float]
    renewals: int
    shares: dict[str, float]
    lifetime: str


class SpendingLine:
    """The share of a data set's budget that was used after each charge since the last renewal.

    Entries are followed once, by what they recorded; only new ones are read for the next look.

    Args:
        state: of the data set, as of now.
    """

    def __init__(self, state: DatasetState) -> None:
        self._replayed = state.unspent()
        self._dataset = state.name
        self.renewed = state.renewed
        self.last = state.renewed
        self._shown_from = 0
        self.points: deque[SpendingPoint] = deque(maxlen=MOST_SPENDING_POINTS)

    def follow(self, entries: Iterable[Entry], latest: int) -> None:
        """Go on with the entries after the last one, up to ``latest``; a reading takes time, and is
        taken at the latest entries alone.
        """
        self._shown_from = latest - 4 * MOST_SPENDING_POINTS
        for entry in entries:
            self.last = entry.seq
            if entry.dataset != self._dataset:
                continue
            # written under other rules: the account's own share is shown beside the line
            with suppress(DptopkError, KeyError):
                self._follow(entry)

    def _follow(self, entry: Entry) -> None:
        body = entry.body
        if "merged" in body:  # users may have moved between segments
            self._replayed.merge(self._replayed.merged())
        elif entry.kind == "charge":
            charge = Charge.parse(body["charge"])
            self._account(entry).apply(charge, body["records"]["dataset"])
            self.points.append({"entry": entry.seq, "at": entry.at, "analyst": entry.analyst})
            self._show()
        elif entry.kind == "release" and "dataset" in body["returned"]:
            unused = Charge.parse(body["unused"])
            self._account(entry).revert(unused, body["returned"]["dataset"])
            if self.points and self.points[-1]["entry"] == body["charge"]:
                self._show()

    def _account(self, entry: Entry) -> Account:
        return self._replayed.accounts(entry.analyst, entry.body.get("segments"))["dataset"]

    def _show(self) -> None:
        if self.last > self._shown_from:
            self.points[-1]["share"] = self._replayed.account.share()


class BudgetReports:
    """Reads of the ledger; what is a function of its last entry is computed once.

    Args:
        ledger: open.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._pages: LRUCache[Any] = LRUCache(CACHED_PAGES)
        self._lines: dict[str, SpendingLine] = {}  # by data set
        self._lock = threading.Lock()

    def _now(self, make: Callable[[], Any], *key: Hashable) -> Any:
        """A page of the books as of the ledger's last entry: made once for each entry."""
        return self._pages.get((self.ledger.head()["hash"], *key), make)

    def balance(
        self,
        dataset: str,
        analyst: str,
        further: Further | None = None,
        *,
        segments: tuple[str, ...] | None = None,
    ) -> dict[str, Any]:
        """The budgets that an analyst's question must fit, each before and after a further charge.

        Args:
            dataset: whose.
            analyst: who would ask.
            further: what would be spent; the data set is charged nothing here.
            segments: declared ones that would pay; None: all data.

        Returns:
            "total": of the data set. "mine": the share or the limit that was allotted to the
            analyst; ``owner`` says whose it is: an analyst without a share draws on the reserve.
        """
        name = canonical(analyst)
        key = ("balance", dataset, name, segments, None if further is None else further.key)
        return self._now(lambda: self._balance(dataset, name, further, segments), *key)

    def _balance(
        self, dataset: str, name: str, further: Further | None, segments: tuple[str, ...] | None
    ) -> dict[str, Any]:
        state = self.ledger.state(dataset)  # a copy: what is spent on it is spent nowhere else
        kind = kind_of(state.kind, state.account, state.sensitivity)
        parts = state.terms.get("shares")
        if parts is None:
            account = _of(state.account, segments)
            balance = {"total": self._page(account, kind, further, dataset, segments)}
            for owner, held in state.limits_of(name, segments).items():
                page = self._page(held, kind, further, dataset, owner, segments)
                balance["mine"] = {"owner": name} | page
            return balance
        owner = name if name in parts else RESERVE
        total = self._page(state.account, kind, None, dataset)
        if owner not in parts:
            return {"total": total, "mine": _no_share(name)}
        own = _of(state.account.account(name), segments)
        page = self._page(own, kind, further, dataset, owner, segments)
        return {"total": total, "mine": {"owner": owner} | page}

    def budget(self, dataset: str, analyst: str, *, everyone: bool = False) -> dict[str, Any]:
        """The balance, what the analyst was charged, and how often earlier kinds of questions still
        fit.

        Args:
            dataset: whose.
            analyst: for whom.
            everyone: whether questions of others are named too.
        """
        return self._now(
            lambda: self._budget(dataset, analyst, everyone), "budget", dataset, analyst, everyone
        )

    def _budget(self, dataset: str, analyst: str, everyone: bool) -> dict[str, Any]:
        kinds: dict[str, Spend] = {}
        whose = None if everyone else analyst
        for spend in self.ledger.recent(
            dataset, analyst=whose, at_most=RECENT_CHARGES, outcomes=False
        ):
            if spend.charge:  # a day of a stream costs nothing
                kinds.setdefault(str(spend.mechanism.get("text", "")), spend)
        state = self.ledger.state(dataset)

        def fitting(spend: Spend) -> int:
            try:
                accounts = state.accounts(analyst, spend.segments).values()
            except BudgetExceeded:  # no share and no reserve
                return 0
            return min(account.fits(spend.charge, spend.stated) for account in accounts)

        fits = [
            {"question": spend.mechanism.get("question"), "text": text, "fits": fitting(spend)}
            for text, spend in list(kinds.items())[4::-1]
        ]
        spent = str(state.spent(analyst=analyst))
        return self.balance(dataset, analyst) | {"spent_by_me": spent, "fits": fits}

    def _page(
        self, account: Account, kind: Kind, further: Further | None, *whose: Hashable
    ) -> dict[str, Any]:
        """One budget in numbers; ``whose``: tells it from others."""
        now = account.summary()
        return {
            "epsilon": now.epsilon_total,
            "epsilon_spent": now.epsilon_spent,
            "epsilon_left": self._now(lambda: epsilon_left(account, kind), "left", *whose),
            "question": str(kind),
            "delta": now.delta,
            "share": now.share,
            "shares": now.shares,
            "remaining": str(account.remaining()),
            **({} if further is None else further.after(account)),
        }

    def spending(self, dataset: str) -> SpendingPage:
        """For who owns the data: the share of the budget used after each charge, and what each
        analyst spent.
        """
        page: SpendingPage = self._now(lambda: self._spending(dataset), "spending", dataset)
        return page

    def _spending(self, dataset: str) -> SpendingPage:
        state = self.ledger.state(dataset)
        with self._lock:
            line = self._lines.get(dataset)
            if line is None or line.renewed != state.renewed:
                line = self._lines[dataset] = SpendingLine(state)
            line.follow(self.ledger.entries(line.last), self.ledger.head()["seq"])
            points = [point for point in line.points if "share" in point]
        people = {
            name: {"queries": total.queries, "spent": str(state.spent(analyst=name))}
            for name, total in state.now.items()
        }
        limits = {name: held.share() for name, (_, held) in state.limits.items()}
        if "shares" in state.terms:
            limits |= state.account.shares()
        return {
            "over_time": points,
            "analysts": people,
            "limits": limits,
            "renewals": state.renewals,
            "shares": state.account.shares(),
            "lifetime": str(state.spent(lifetime=True)),
        }

    def shares(self, dataset: str) -> dict[str, float]:
        """Return the used shares of a data set's budget."""
        return self.ledger.state(dataset).account.shares()

    def version(self, dataset: str) -> str:
        """The data version that the ledger says."""

        def read() -> str:
            return str(self.ledger.state(dataset).version)

        version: str = self._now(read, "version", dataset)
        return version


def _no_share(analyst: str) -> dict[str, Any]:
    """The part of an analyst for whom nothing was set aside."""
    nothing = "there is neither a share of this analyst nor a reserve"
    return {
        "owner": analyst,
        "epsilon": 0.0,
        "epsilon_spent": 0.0,
        "epsilon_left": 0.0,
        "delta": 0.0,
        "share": 1.0,
        "shares": {},
        "remaining": f"nothing: {nothing}",
        "refused": nothing,
        "why": nothing,
        "largest_epsilon": 0.0,
        "fits": 0,
        "share_after": 1.0,
        "shares_after": {},
    }


def _of(account: Account, segments: tuple[str, ...] | None) -> Account:
    """The account of these segments; None: of all data."""
    if segments is not None and isinstance(account, Parallel):
        return account.only(*segments)
    return account
