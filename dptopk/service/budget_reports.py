"""What the service reports of the ledger: what was spent, what is left, and what a question
takes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

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
from dptopk.ledger.names import canonical_name
from dptopk.ledger.spends import Spend
from dptopk.planning.gauge import Kind, epsilon_left, kind_of

CACHED_PAGES = 512  # the reports that are cached
RECENT_CHARGES = 20  # the charges among which earlier kinds of questions are looked for
MOST_KINDS = 5  # the most of them that are reported
MOST_SPENDING_POINTS = 100  # the most points of the line of spending over time
# Shares are computed for this many of the last entries for each point: a charge and its release,
# and as many of other data sets. An older charge is in the report without a share.
ENTRIES_PER_POINT = 4


@dataclass(frozen=True)
class FurtherQuestion:
    """A question that was not charged yet, for which a budget may have to pay.

    Attributes:
        charge: the costs that it would spend.
        stated: the (ε, δ) that it states for all of its charge.
        kind: all of a top-k question but its ε, to find the ε that would fit; None for other
            questions.
    """

    charge: Charge
    stated: Budget | None = None
    kind: Kind | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Return the texts that determine what the question does to a budget, for a cache."""
        kind = "" if self.kind is None else canonical_json(self.kind.plain())
        return str(self.charge), str(self.stated), kind

    def apply_to(self, account: Account) -> AfterQuestion:
        """Return what the question would leave of a budget, and how often it fits.

        Args:
            account: a copy of the account that would pay: the question is spent on it, unless it is
                refused.
        """
        fits = account.fits(self.charge, self.stated)
        refusal = ""
        why = ""
        largest_epsilon = None
        try:
            account.spend(self.charge, stated=self.stated)
        except DptopkError as error:
            refusal = str(error)
            why = getattr(error, "reason", "")
            if self.kind is not None:
                largest_epsilon = epsilon_left(account, self.kind)
        return {
            "fits": fits,
            "refused": refusal,
            "why": why,
            "largest_epsilon": largest_epsilon,
            "share_after": account.share(),
            "shares_after": account.shares(),
        }


class AfterQuestion(TypedDict):
    """The budget that a further question would leave.

    Attributes:
        fits: how many times the question fits, one after the other; at most 2^30.
        refused: the message of the refusal; empty if it fits.
        why: what is missing; empty if it fits.
        largest_epsilon: if it does not fit, the largest ε at which a question of its kind does, or
            at most 1/400 of the total below it; None if it fits, or is not a top-k question.
        share_after: the used share of the budget with the question.
        shares_after: the used share of each part of the budget with the question.
    """

    fits: int
    refused: str
    why: str
    largest_epsilon: float | None
    share_after: float
    shares_after: dict[str, float]


class BudgetPage(TypedDict):
    """One budget in numbers.

    Attributes:
        owner: the analyst whose share or limit it is, or the reserve; missing for the budget of a
            data set.
        epsilon: the ε of the whole budget, at ``delta``, which holds now and later.
        epsilon_spent: the ε of what was charged so far, at ``delta``; a reading and no guarantee
            (``Account.reading``).
        epsilon_left: the largest ε at which a question of the kind in ``question`` still fits, or
            at most 1/400 of the total below it.
        question: the kind of question for which ``epsilon_left`` is stated, in words.
        delta: the δ of the budget.
        share: the used share of the budget, from 0 to 1.
        shares: the used share of each part of the budget, such as ε and the δ of failures.
        remaining: what is left, in words.
        fits, refused, why, largest_epsilon, share_after, shares_after: those of ``AfterQuestion``;
            missing where no question is asked about.
    """

    owner: NotRequired[str]
    epsilon: float
    epsilon_spent: float
    epsilon_left: float | None
    question: NotRequired[str]
    delta: float
    share: float
    shares: Mapping[str, float]
    remaining: str
    fits: NotRequired[int]
    refused: NotRequired[str]
    why: NotRequired[str]
    largest_epsilon: NotRequired[float | None]
    share_after: NotRequired[float]
    shares_after: NotRequired[dict[str, float]]


class SpendingPoint(TypedDict, total=False):
    """A charge, and the used share of the budget after it.

    Attributes:
        entry: the charge's number in the ledger.
        at: its time.
        analyst: who was charged.
        share: the used share, from 0 to 1; missing for charges that are too old for it to be
            computed.
    """

    entry: int
    at: str
    analyst: str
    share: float


class SpendingPage(TypedDict):
    """The report for the owner of a data set.

    Attributes:
        over_time: the latest charges since the last renewal, each with the used share after it.
        analysts: for each analyst the number of questions, and what they were charged.
        limits: the used share of each limit or share of an analyst.
        renewals: how many renewals there were.
        shares: the used share of each part of the data set's budget.
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

    Each entry of the ledger is read once: a later call reads only the entries that are new.

    Args:
        state: the present state of the data set.

    Attributes:
        renewed: the number of the entry of the last renewal.
        last: the number of the last entry that was read.
        points: the latest charges, oldest first.
    """

    def __init__(self, state: DatasetState) -> None:
        self._replayed = state.unspent()  # the account, to which the entries are applied again
        self._dataset = state.name
        self.renewed = state.renewal_entry
        self.last = state.renewal_entry
        self._last_without_share = 0  # shares are computed after this entry
        self.points: deque[SpendingPoint] = deque(maxlen=MOST_SPENDING_POINTS)

    def follow(self, entries: Iterable[Entry], latest: int) -> None:
        """Read the entries after the last one.

        Args:
            entries: these entries, in order.
            latest: the number of the ledger's last entry. Shares take time to compute, and are
                computed only for entries close to it.
        """
        self._last_without_share = latest - ENTRIES_PER_POINT * MOST_SPENDING_POINTS
        for entry in entries:
            self.last = entry.seq
            if entry.dataset != self._dataset:
                continue
            # An entry that an earlier version wrote under other rules may not fit, and is left out.
            with suppress(DptopkError, KeyError):
                self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        """Apply an entry to the replayed account and, if it changes what is used, add or update a
        point.

        The items of an entry's body are those of its kind (``ledger.entries``); "dataset" among
        them stands for the data set's own account, beside the limits of analysts.
        """
        body = entry.body
        if "merged" in body:  # a new version of the data: users may be in other segments
            # The entry also has the limits' starting points, which are not replayed here.
            self._replayed.restart(self._replayed.starting_points())
        elif entry.kind == "charge":
            charge = Charge.parse(body["charge"])
            self._account(entry).apply(charge, body["records"]["dataset"])
            self.points.append({"entry": entry.seq, "at": entry.at, "analyst": entry.analyst})
            self._set_share()
        elif entry.kind == "release" and "dataset" in body["returned"]:
            # What an answer did not use is given back.
            unused = Charge.parse(body["unused"])
            self._account(entry).revert(unused, body["returned"]["dataset"])
            if self.points and self.points[-1]["entry"] == body["charge"]:
                self._set_share()

    def _account(self, entry: Entry) -> Account:
        """Return the replayed account that an entry's charge is paid from."""
        return self._replayed.accounts(entry.analyst, entry.body.get("segments"))["dataset"]

    def _set_share(self) -> None:
        """Set the share of the last point to what the replayed account has used, unless so many
        entries follow that the point will not be shown.
        """
        if self.last > self._last_without_share:
            self.points[-1]["share"] = self._replayed.account.share()


class BudgetReports:
    """Reports on the budgets of a ledger; each is computed once for each last entry of the ledger.

    Args:
        ledger: the open ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._pages: LRUCache[Any] = LRUCache(CACHED_PAGES)
        self._lines: dict[str, SpendingLine] = {}  # by data set
        self._lock = threading.Lock()

    def _cached_report(self, compute: Callable[[], Any], *key: Hashable) -> Any:
        """Return a report, which is computed again only when the ledger has a new entry.

        Args:
            compute: the function that computes it.
            key: the words that tell this report from others.
        """
        return self._pages.get((self._head_hash(), *key), compute)

    def _head_hash(self) -> str:
        """Return the hash of the ledger's last entry."""
        head: str = self.ledger.head()["hash"]
        return head

    def balance(
        self,
        dataset: str,
        analyst: str,
        further: FurtherQuestion | None = None,
        *,
        segments: tuple[str, ...] | None = None,
    ) -> dict[str, BudgetPage]:
        """Return the budgets that an analyst's question must fit, before and after the question.

        Args:
            dataset: the name of the data set.
            analyst: the analyst who would ask.
            further: the question that would be charged; nothing is charged here. None: no question.
            segments: the declared segments that would pay; None: all data.

        Returns:
            "total" is the ``BudgetPage`` of the data set. "mine" is that of the share or the limit
            of the analyst, if there is one; its "owner" is the reserve for an analyst without a
            share.
        """
        name = canonical_name(analyst)
        key = ("balance", dataset, name, segments, None if further is None else further.key)
        balance: dict[str, BudgetPage] = self._cached_report(
            lambda: self._balance(dataset, name, further, segments), *key
        )
        return balance

    def _balance(
        self,
        dataset: str,
        name: str,
        further: FurtherQuestion | None,
        segments: tuple[str, ...] | None,
    ) -> dict[str, BudgetPage]:
        """Return the report of ``balance``, computed anew.

        Args:
            dataset: the name of the data set.
            name: the analyst's name as the ledger writes it.
            further: the question that would be charged; None: no question.
            segments: the declared segments that would pay; None: all data.
        """
        # The head is read before the state: a charge in between makes numbers newer than their
        # head, of which nobody asks again. With a later head they would be older than it.
        head = self._head_hash()
        state = self.ledger.state(dataset)  # a copy, on which the question can be tried
        kind = kind_of(state.last_question_kind, state.account, state.sensitivity)
        shares = state.terms.get("shares")
        if shares is None:
            account = _account_of(state.account, segments)
            balance = {"total": self._page(account, kind, further, head, dataset, segments)}
            limit = next(iter(state.limits_of(name, segments).values()), None)
            if limit is not None:
                page = self._page(limit, kind, further, head, dataset, "limit of", name, segments)
                balance["mine"] = {"owner": name, **page}
            return balance
        owner = name if name in shares else RESERVE
        # The question is tried on the share that would pay, and not on all shares together.
        total = self._page(state.account, kind, None, head, dataset)
        if owner not in shares:
            return {"total": total, "mine": _no_share(name)}
        share = _account_of(state.account.account(name), segments)
        page = self._page(share, kind, further, head, dataset, "share of", owner, segments)
        return {"total": total, "mine": {"owner": owner, **page}}

    def budget(self, dataset: str, analyst: str, *, everyone: bool = False) -> dict[str, Any]:
        """Return the balance, what the analyst was charged, and how often earlier kinds of
        questions still fit.

        Args:
            dataset: the name of the data set.
            analyst: the analyst for whom it is.
            everyone: whether earlier questions of others are named too.
        """
        return self._cached_report(
            lambda: self._budget(dataset, analyst, everyone), "budget", dataset, analyst, everyone
        )

    def _budget(self, dataset: str, analyst: str, everyone: bool) -> dict[str, Any]:
        """Return the report of ``budget``, computed anew.

        Args:
            dataset: the name of the data set.
            analyst: the analyst for whom it is.
            everyone: whether earlier questions of others are named too.
        """
        latest_of_kind: dict[str, Spend] = {}  # the newest kind first
        spends = self.ledger.recent(
            dataset,
            analyst=None if everyone else analyst,
            at_most=RECENT_CHARGES,
            outcomes=False,
        )
        for spend in spends:
            if spend.charge:  # a day of a stream costs nothing
                latest_of_kind.setdefault(str(spend.mechanism.get("text", "")), spend)
        state = self.ledger.state(dataset)
        kinds = list(latest_of_kind.items())[:MOST_KINDS]
        fits = [
            {
                "question": spend.mechanism.get("question"),
                "text": text,
                "fits": _times_that_fit(state, analyst, spend),
            }
            for text, spend in reversed(kinds)  # in the order in which they were asked
        ]
        spent = str(state.spent(analyst=analyst))
        return {**self.balance(dataset, analyst), "spent_by_me": spent, "fits": fits}

    def _page(
        self, account: Account, kind: Kind, further: FurtherQuestion | None, *key: Hashable
    ) -> BudgetPage:
        """Return one budget in numbers.

        Args:
            account: a copy of its account, on which the question is tried.
            kind: the kind of question for which epsilon_left is stated.
            further: the question; None: no question.
            key: the words by which ``epsilon_left`` is cached: the head of the ledger before the
                account was read, and the names that tell this budget from others.
        """
        summary = account.summary()
        left = self._pages.get(("left", *key), lambda: epsilon_left(account, kind))
        page: BudgetPage = {
            "epsilon": summary.epsilon_total,
            "epsilon_spent": summary.epsilon_spent,
            "epsilon_left": left,
            "question": str(kind),
            "delta": summary.delta,
            "share": summary.share,
            "shares": summary.shares,
            "remaining": str(account.remaining()),
        }
        if further is None:
            return page
        return {**page, **further.apply_to(account)}

    def spending(self, dataset: str) -> SpendingPage:
        """Return the report on a data set for its owner: what was spent over time, and by whom."""
        page: SpendingPage = self._cached_report(
            lambda: self._spending(dataset), "spending", dataset
        )
        return page

    def _spending(self, dataset: str) -> SpendingPage:
        """Return the report of ``spending``, computed anew; new entries of the ledger are added to
        the data set's line.
        """
        state = self.ledger.state(dataset)
        with self._lock:
            line = self._lines.get(dataset)
            if line is None or line.renewed != state.renewal_entry:
                line = self._lines[dataset] = SpendingLine(state)
            line.follow(self.ledger.entries(line.last), self.ledger.head()["seq"])
            points = [point for point in line.points if "share" in point]
        analysts = {
            name: {"queries": total.queries, "spent": str(state.spent(analyst=name))}
            for name, total in state.totals_since_renewal.items()
        }
        limits = {name: account.share() for name, (_, account) in state.limits.items()}
        if "shares" in state.terms:
            limits |= state.account.shares()
        return {
            "over_time": points,
            "analysts": analysts,
            "limits": limits,
            "renewals": state.renewals,
            "shares": state.account.shares(),
            "lifetime": str(state.spent(lifetime=True)),
        }

    def shares(self, dataset: str) -> dict[str, float]:
        """Return the used share of each part of a data set's budget."""
        return self.ledger.state(dataset).account.shares()

    def version(self, dataset: str) -> str:
        """Return the present version of a data set's data, by the ledger."""

        def read() -> str:
            """Return the version by the ledger's present state."""
            return str(self.ledger.state(dataset).version)

        version: str = self._cached_report(read, "version", dataset)
        return version


def _times_that_fit(state: DatasetState, analyst: str, spend: Spend) -> int:
    """Return how many more times an analyst could ask a question that was charged before.

    Args:
        state: the present state of the data set.
        analyst: the analyst who would ask.
        spend: the earlier charge, which may be another analyst's.
    """
    try:
        accounts = state.accounts(analyst, spend.segments).values()
    except BudgetExceeded:  # there is neither a share of the analyst nor a reserve
        return 0
    return min(account.fits(spend.charge, spend.stated) for account in accounts)


def _no_share(analyst: str) -> BudgetPage:
    """Return the numbers of a budget for an analyst who has no share, when there is no reserve."""
    reason = "there is neither a share of this analyst nor a reserve"
    return {
        "owner": analyst,
        "epsilon": 0.0,
        "epsilon_spent": 0.0,
        "epsilon_left": 0.0,
        "delta": 0.0,
        "share": 1.0,
        "shares": {},
        "remaining": f"nothing: {reason}",
        "refused": reason,
        "why": reason,
        "largest_epsilon": 0.0,
        "fits": 0,
        "share_after": 1.0,
        "shares_after": {},
    }


def _account_of(account: Account, segments: tuple[str, ...] | None) -> Account:
    """Return the account of these segments; the account itself for all data, and where it is not
    divided by segments.

    Args:
        account: the account of the data set, or of a share of it.
        segments: the declared segments that would pay; None: all data.
    """
    if segments is not None and isinstance(account, Parallel):
        return account.only(*segments)
    return account
