"""What the owner of the data decides about a ledger: data sets and their budgets, limits, versions,
keys, and where its head is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Unpack

from dptopk._internal import validate
from dptopk.costs import Budget, Charge
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.budget_terms import (
    AccountTerms,
    BudgetTerms,
    FilterChoices,
    account_of,
    account_terms_of,
    budget_terms_of,
    declared_segments,
    terms_by_segment,
    with_fixed_division,
)
from dptopk.ledger.entries import FORMAT, normal_form
from dptopk.ledger.heads import Head, HeadStorage
from dptopk.ledger.journal import Journal
from dptopk.ledger.keys import secret_of
from dptopk.ledger.log_store import (
    Store,
    accepted_log,
    head_storage_of,
    ledger_file,
    refuse_own_head,
)
from dptopk.ledger.migrate import Migration
from dptopk.ledger.names import analyst_name, plain_text
from dptopk.ledger.reader import Reader
from dptopk.ledger.sqlite import ERRORS
from dptopk.ledger.sqlite_file import LedgerFile
from dptopk.ledger.verify import inspect


class LedgerAdministration(Reader):
    """The part of a ledger that its owner uses; ``Ledger`` adds the charges, and its docstring has
    the arguments.
    """

    def __init__(
        self,
        url: str | Path | LedgerFile,
        *,
        key: str | bytes | None = None,
        test: bool = False,
        read_only: bool = False,
        create: bool = True,
        head: Mapping[str, Any] | None = None,
        head_file: str | Path | None = None,
        network: bool = False,
        ahead: bool = False,
    ) -> None:
        heads = [] if head is None else [Head.of(head)]
        refuse_own_head(url, head_file)
        if head_file is not None and not read_only:
            _complete_file(url, head_storage_of(url, head_file), secret_of(key), network=network)
        store = Store(
            url,
            key=secret_of(key),
            read_only=read_only,
            create=create,
            network=network,
            ahead=ahead,
        )
        head_storage = None if head_file is None else head_storage_of(url, head_file)
        super().__init__(store, Journal(store, head_storage))
        first = {
            "format": FORMAT,
            "id": uuid.uuid4().hex,
            "keyed": store.key is not None,
            "test": test,
        }
        try:
            self._journal.open(first if create and not read_only else None, heads)
        except BaseException:
            self.close()
            raise

    def create_dataset(
        self,
        name: str,
        *,
        registered: Charge | None = None,
        budget: Budget | None = None,
        delta: float | None = None,
        shares: Mapping[str, Charge | Budget] | None = None,
        segments: Mapping[str, Sequence[str]] | None = None,
        sensitivity: Sensitivity = Sensitivity(),  # noqa: B008
        unit: str = "user",
        version: str = "1",
        **choices: Unpack[FilterChoices],
    ) -> None:
        """Open the account of a dataset.

        Args:
            name: the name of the data set, which this ledger does not have yet.
            registered: costs that may be spent in any order (set-wise).
            budget: instead of registered costs: a total for a fully adaptive filter.
            delta: with ``registered``: the δ at which the guarantee is stated.
            shares: instead of both, with ``delta``: registered costs (Charge) or a filter (Budget)
                for each analyst. They cannot be changed later. An analyst who is not named uses the
                share "reserve". The guarantee is for all shares together.
            segments: such as {"region": ["eu", "us"]}: all data of one unit lie in one of them, or
                in none; it is not enough that a query uses one segment of each unit. Each segment
                then has the whole budget, and pays for what is asked of it and of all data.
            sensitivity: the most that one unit can change in these data, and the neighbour
                relation.
            unit: the privacy unit in words, such as "member".
            version: the version of the data.
            choices: with ``budget``: ranges, costs and failure_delta, as ``Filter`` takes them
                (docs/notes/filters.md).

        Raises:
            InvalidParameter: on bad arguments or a name that exists.
        """
        terms = budget_terms_of(
            registered=registered, budget=budget, delta=delta, shares=shares, **choices
        )
        # These calls refuse texts that cannot be shown, and another type.
        plain_text(name=name)
        plain_text(unit=unit)
        plain_text(version=version)
        validate.instance(Sensitivity, sensitivity=sensitivity)
        declared = declared_segments(segments)
        if declared and sensitivity.neighbours != "add_remove":
            raise InvalidParameter(
                "segments need add_remove neighbours: a replaced user may be in two segments"
            )
        dataset = {
            "terms": terms_by_segment(terms, declared),
            "segments": declared,
            "unit": unit,
            "version": version,
            "sensitivity": sensitivity.plain(),
        }
        body = normal_form(dataset=dataset)
        with self._journal.write() as log:
            if name in self._now.datasets:
                raise InvalidParameter(f"name: the dataset {name!r} already exists")
            self._journal.append(log, "dataset", body, dataset=name)

    def set_limit(self, dataset: str, analyst: str, **limit: Unpack[AccountTerms]) -> None:
        """Limit what one analyst may learn inside a data set's budget.

        What the analyst has spent before counts, and so do others' answers that the analyst was
        shown.

        Args:
            dataset: the name of the data set.
            analyst: the analyst, in any spelling.
            limit: the terms of the limit: registered with delta, or budget with its choices, as for
                ``create_dataset``.

        Raises:
            InvalidParameter: for a name that no analyst may have, a data set that is not there,
                terms that do not fit, or a limit below what was spent, or without a price for it.
        """
        analyst = analyst_name(analyst)
        terms = account_terms_of(**limit)
        with self._journal.write() as log:
            state = self._now.dataset(dataset)
            learnt = state.learnt_charge(analyst)
            terms = terms_by_segment(terms, state.segments)
            if learnt:  # the limit begins after answers, which must not decide its terms
                terms = with_fixed_division(terms)
            try:
                record = account_of(terms).quote_past(learnt)
            except BudgetExceeded:
                raise InvalidParameter(
                    f"the analyst {analyst!r} has already spent more than this limit"
                ) from None
            except IncompatibleCosts as reason:
                raise InvalidParameter(
                    f"the limit has no price for what the analyst {analyst!r} has already spent: "
                    f"{reason}"
                ) from None
            body = {"terms": terms, "charge": str(learnt), "record": record}
            limit_body = normal_form(limit=body)
            self._journal.append(log, "limit", limit_body, dataset=dataset, analyst=analyst)

    def set_version(self, dataset: str, version: str) -> None:
        """Record that the data changed; the budget is the same, since the same users may be in the
        new data.

        Stored answers of earlier versions are given no more. Users may be in other segments than
        before: the account of each segment starts from a charge that covers what any of them has
        spent.

        Raises:
            InvalidParameter: when that does not fit into one account: then only a renewal helps.
        """
        plain_text(version=version)  # refuses a text that cannot be shown
        with self._journal.write() as log:
            try:
                merged = self._now.dataset(dataset).starting_points()
            except BudgetExceeded:
                raise InvalidParameter(
                    "version: users may have moved between segments, which together spent "
                    "more than one may"
                ) from None
            body: dict[str, object] = {"version": version}
            if merged:
                body["merged"] = merged
            self._journal.append(log, "version", normal_form(version=body), dataset=dataset)

    def renew(self, dataset: str, *, reason: str, **budget: Unpack[BudgetTerms]) -> None:
        """Open a new budget on the same data set, with a reason that the log records.

        The lifetime total goes on. All shares are renewed together: to renew one of them after
        answers were given would let the analysts choose their budget by the answers, which no
        guarantee covers.

        Args:
            dataset: the name of the data set.
            reason: why; the log records it.
            budget: the terms of the new budget: registered, budget or shares, with delta and
                choices, as for ``create_dataset``.

        Raises:
            InvalidParameter: without a reason, for a data set that is not there, or terms that do
                not fit.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidParameter("reason must say why the budget is renewed")
        terms = budget_terms_of(**budget)
        with self._journal.write() as log:
            terms = terms_by_segment(terms, self._now.dataset(dataset).segments)
            body = normal_form(renewal={"terms": terms, "reason": reason})
            self._journal.append(log, "renewal", body, dataset=dataset)

    def rekey(self, key: str | bytes) -> None:
        """Change the secret of the hash chain: all entries are verified, and then hashed again, in
        one transaction.

        A further entry records it, with the head that there was. Heads exported before no longer
        fit: export a new one. Processes that have the ledger open with the old secret are refused
        from now on, and so are copies made before.

        Raises:
            InvalidParameter: for a ledger without a key, or the key that it has.
            LedgerError: when the log is not whole; nothing was changed.
        """
        secret = secret_of(key)
        if self._store.key is None or secret is None:
            raise InvalidParameter(
                "key: this ledger was created without a key, which cannot be added later"
            )
        if secret == self._store.key:
            raise InvalidParameter("key: the new key is the present one")
        self._journal.rekey(secret)

    @classmethod
    def accept_restore(
        cls,
        url: str | Path,
        *,
        reason: str,
        head_file: str | Path | None = None,
        key: str | bytes | None = None,
        network: bool = False,
    ) -> dict[str, Any] | None:
        """Accept a ledger that was restored to an older state, or lost its write-ahead log.

        An entry records it, with the head that is given up. What the lost entries charged is
        unknown, and not counted: unless no answer was given after the copy was made, renew the
        budgets with terms that allow for it. Rows that lead to keys and answers are written again.
        Processes that have the ledger open still refuse it.

        Args:
            url: the path or URL, as for ``Ledger``.
            reason: why the ledger is accepted; the log records it.
            head_file: the place of a head whose entry the log lacks; the log's own head is stored
                there from now on.
            key: the secret, as for ``Ledger``.
            network: whether the file may be on a network file system, as for ``Ledger``.

        Returns:
            The head that was given up; None if there was none.

        Raises:
            InvalidParameter: when nothing is wrong with the ledger, or reason is empty.
            LedgerError: when the log itself is damaged, or the head belongs to another ledger.
        """
        plain_text(reason=reason)  # refuses a text that cannot be shown
        refuse_own_head(url, head_file)
        with (
            accepted_log(url, network) as place,
            cls(place, key=key, create=False, network=network) as ledger,
        ):
            head_storage = None if head_file is None else head_storage_of(url, head_file)
            lacks_log = isinstance(place, LedgerFile)  # as ``accepted_log`` yields it
            lost_head = ledger._journal.accept_restore(head_storage, reason, incomplete=lacks_log)
        if lost_head is None:
            return None
        return asdict(lost_head)

    @staticmethod
    def migrate(
        old: str | Path,
        new: str | Path,
        *,
        key: str | bytes | None = None,
        head_file: str | Path | None = None,
        network: bool = False,
    ) -> dict[str, Any]:
        """Make a ledger of today's format in a new file from one of any format, which is retired.

        Every entry, key, answer and refusal is taken over; the first entry holds the head of the
        old log. From then on the old ledger can be read but not written to. A migration that was
        interrupted is completed by running it again.

        Args:
            old: the path or URL of a ledger of any format that was ever written.
            new: the path of a file that does not exist yet.
            key: the secret of the old chain, and of the new one.
            head_file: where the head of the old ledger is stored; that of the new one is stored
                there from now on.
            network: whether files may be on a network file system, as for ``Ledger``.

        Returns:
            The head of the new ledger.

        Raises:
            InvalidParameter: when the new file is there already.
            LedgerError: when the old ledger is damaged, an old copy, or was migrated elsewhere.
        """
        refuse_own_head(old, head_file)
        refuse_own_head(new, head_file)
        head_storage = None if head_file is None else head_storage_of(old, head_file)
        migration = Migration(
            old, new, key=secret_of(key), head_storage=head_storage, network=network
        )
        return asdict(migration.run())

    @classmethod
    def attach_witness(
        cls,
        url: str | Path,
        head_file: str | Path,
        *,
        reason: str,
        key: str | bytes | None = None,
        network: bool = False,
    ) -> None:
        """Store the head of a ledger that was used without one from now on; an entry records it.

        Args:
            url: the path or URL, as for ``Ledger``.
            head_file: the place of the head, as for ``Ledger``.
            reason: why; the log records it.
            key: the secret, as for ``Ledger``.
            network: whether the file may be on a network file system, as for ``Ledger``.

        Raises:
            InvalidParameter: when the ledger has a head already, reason is empty, or the place is
                in the ledger itself.
            LedgerError: when the log is not whole, or lacks the entry of a head that is there.
        """
        plain_text(reason=reason)  # refuses a text that cannot be shown
        refuse_own_head(url, head_file)
        with cls(url, key=key, create=False, network=network) as ledger:
            ledger._journal.change_head_storage("attach", head_storage_of(url, head_file), reason)

    @classmethod
    def replace_witness(
        cls,
        url: str | Path,
        head_file: str | Path,
        *,
        reason: str,
        key: str | bytes | None = None,
        network: bool = False,
    ) -> None:
        """Store the head of a ledger whose stored head is lost; an entry records it.

        Only somebody who knows that the ledger is the present one may do this: from an old copy,
        everything that was charged later could be spent again. Arguments and errors are as for
        ``attach_witness``.
        """
        plain_text(reason=reason)  # refuses a text that cannot be shown
        refuse_own_head(url, head_file)
        with cls(url, key=key, create=False, network=network) as ledger:
            ledger._journal.change_head_storage("replace", head_storage_of(url, head_file), reason)

    def move_witness(self, head_file: str | Path, *, reason: str) -> None:
        """Store the head of this ledger, which was opened with it, at another place.

        An entry records it. Processes that have the ledger open with the former place are refused
        from now on.

        Args:
            head_file: the new place.
            reason: why; the log records it.

        Raises:
            InvalidParameter: when the ledger has no head, reason is empty, or the place is in the
                ledger itself.
            LedgerError: when the head is not the present one, or cannot be written or removed.
        """
        plain_text(reason=reason)  # refuses a text that cannot be shown
        refuse_own_head(self._store.url, head_file)
        self._journal.change_head_storage(
            "move", head_storage_of(self._store.url, head_file), reason
        )


def _complete_file(
    url: str | Path | LedgerFile,
    head_storage: HeadStorage,
    key: bytes | None,
    *,
    network: bool,
) -> None:
    """Mark a SQLite file that lacks its write-ahead log as complete, if its head names its last
    entry.

    The process that closed it was killed after the log had been taken in and before the mark was
    removed. Had the log held a later entry, that would have been answered only after a later head.

    Args:
        url: the path or URL of the ledger.
        head_storage: the place where its head is stored.
        key: the secret of the hash chain; None: it has none.
        network: whether the file may be on a network file system, as for ``Ledger``.
    """
    file = url if isinstance(url, LedgerFile) else ledger_file(str(url), network)
    if file is None or file.without_log or not file.lacks_log():
        return
    head = head_storage.read()
    if head is None:
        return
    store = Store(replace(file, without_log=True), key=key, read_only=True, create=False)
    try:
        inspection = inspect(store, [head], stored_head=head)
    finally:
        store.close()
    if not inspection.problems and inspection.entries == head.seq:
        with suppress(*ERRORS):  # in use again: the last one to close it does this
            file.mark_complete()
