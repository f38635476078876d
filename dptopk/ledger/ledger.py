"""The ledger: no answer without a durable charge.

Everything that happens to a budget is an entry of one append-only, hash-chained log
(``log_store``). What is spent and what is left follows from the entries, which are folded
(``replay``) into the same accounts that work without a ledger. A snapshot of the state, whose hash
is an entry of the log, saves reading the whole log again.

Order of a spend: inside one transaction that holds the write lock, read what others appended, check
the budgets, append the charge, read it back, commit durably; only then may noise be drawn. After
the answer a ``release`` entry marks it as given and returns unused costs (never δ). A process
killed at any instant therefore leaves charged >= released.
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
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.budget_terms import (
    AccountTerms,
    BudgetTerms,
    FilterChoices,
    account_of,
    segments_of,
    shared_terms_of,
    terms_by_segment,
    terms_of,
    with_fixed_division,
)
from dptopk.ledger.dataset import DatasetState
from dptopk.ledger.entries import FORMAT, Entry, normal_form
from dptopk.ledger.heads import Head, HeadFile, HeadTable
from dptopk.ledger.journal import Journal
from dptopk.ledger.keys import secret_of
from dptopk.ledger.log_store import (
    Store,
    accepted_log,
    head_of,
    ledger_file,
    refuse_own_head,
)
from dptopk.ledger.migrate import Migration
from dptopk.ledger.names import analyst_name, plain_text
from dptopk.ledger.reader import Reader
from dptopk.ledger.spends import Receipt, stated_budget
from dptopk.ledger.sqlite import ERRORS
from dptopk.ledger.sqlite_file import LedgerFile
from dptopk.ledger.transaction import Transaction
from dptopk.ledger.verify import inspect, is_part


class Ledger(Reader):
    """Budgets of datasets, and every charge against them, in a durable database.

    Args:
        url: path of a SQLite file, or the URL of a PostgreSQL database.
        key: secret text or bytes; then the chain is an HMAC that only holders of the key can extend
            or forge.
        test: marks a *new* ledger as one for tests; only such a ledger takes releases made with a
            fixed seed.
        read_only: open for ``show``, ``verify`` and ``export`` alone: nothing is written, neither
            to the file nor to its folder.
        create: make a ledger where there is none; False: refuse, so that a mistyped path is no new
            budget.
        head: an exported head that the log must still hold.
        head_file: a file, best on another disk, or the URL of a database, best on another server,
            that the head is written to after each commit, and that the log is checked against when
            it is opened and at every write.
        network: open a SQLite file also on a network file system, whose locks may not hold.
        ahead: whether SQLite commits to a write-ahead log next to the file, with one sync instead
            of five; for a process that stays, such as a service. Copy such a ledger with
            ``backup``: a copy of the file alone is refused.

    Raises:
        InvalidParameter: when ``head_file`` is the ledger itself, or a file that SQLite keeps
            beside it.
        LedgerError: when the database cannot be opened, is not a ledger, was written with another
            key, or lacks what a head says it held.
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
            _complete_file(url, head_of(url, head_file), secret_of(key), network=network)
        store = Store(
            url,
            key=secret_of(key),
            read_only=read_only,
            create=create,
            network=network,
            ahead=ahead,
        )
        witness = None if head_file is None else head_of(url, head_file)
        super().__init__(store, Journal(store, witness))
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
        terms = shared_terms_of(
            registered=registered, budget=budget, delta=delta, shares=shares, **choices
        )
        # These calls refuse texts that cannot be shown, and another type.
        plain_text(name=name)
        plain_text(unit=unit)
        plain_text(version=version)
        validate.instance(Sensitivity, sensitivity=sensitivity)
        declared = segments_of(segments)
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
            self._journal.append(log, "dataset", name, "", body)

    def set_limit(self, dataset: str, analyst: str, **limit: Unpack[AccountTerms]) -> None:
        """Limit one analyst inside a data set's budget; the limit's arguments are as for
        ``create_dataset``.

        What the analyst has spent before counts, and so do others' answers that the analyst was
        shown.

        Raises:
            InvalidParameter: for a name that no analyst may have, a data set that is not there,
                terms that do not fit, or a limit below what was spent.
        """
        analyst = analyst_name(analyst)
        terms = terms_of(**limit)
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
            body = {"terms": terms, "charge": str(learnt), "record": record}
            self._journal.append(log, "limit", dataset, analyst, normal_form(limit=body))

    def set_version(self, dataset: str, version: str) -> None:
        """Record that the data changed; the budget is the same, since the same users may be in the
        new data.

        Users may be in other segments than before: the account of each segment starts from a charge
        that covers what any of them has spent.

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
            self._journal.append(log, "version", dataset, "", normal_form(version=body))

    def renew(self, dataset: str, *, reason: str, **budget: Unpack[BudgetTerms]) -> None:
        """Open a new budget on the same data set, with a reason that the log records.

        The lifetime total goes on. The budget's arguments are as for ``create_dataset``. All shares
        are renewed together: to renew one of them after answers were given would let the analysts
        choose their budget by the answers, which no guarantee covers.

        Raises:
            InvalidParameter: without a reason, for a data set that is not there, or terms that do
                not fit.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidParameter("reason must say why the budget is renewed")
        terms = shared_terms_of(**budget)
        with self._journal.write() as log:
            terms = terms_by_segment(terms, self._now.dataset(dataset).segments)
            body = normal_form(renewal={"terms": terms, "reason": reason})
            self._journal.append(log, "renewal", dataset, "", body)

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
            witness = None if head_file is None else head_of(url, head_file)
            incomplete = isinstance(place, LedgerFile)
            lost = ledger._journal.accept_restore(witness, reason, incomplete=incomplete)
        if lost is None:
            return None
        return asdict(lost)

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
        witness = None if head_file is None else head_of(old, head_file)
        migration = Migration(old, new, key=secret_of(key), witness=witness, network=network)
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
            ledger._journal.set_witness("attach", head_of(url, head_file), reason)

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
            ledger._journal.set_witness("replace", head_of(url, head_file), reason)

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
        self._journal.set_witness("move", head_of(self._store.url, head_file), reason)

    def charge(  # noqa: PLR0913
        self,
        dataset: str,
        analyst: str,
        charge: Charge,
        *,
        sensitivity: Sensitivity | None = None,
        mechanism: Mapping[str, Any] | None = None,
        query: str = "",
        version: str | None = None,
        unit: str | None = None,
        seeded: bool = False,
        once: str = "",
        segments: Sequence[str] | None = None,
        stated: Budget | None = None,
    ) -> Receipt:
        """Check the budgets and write a charge durably; when this returns, noise may be drawn.

        Args:
            dataset: the name of a data set in this ledger.
            analyst: any name; an analyst is registered on first use.
            charge: the most that the answer can cost.
            sensitivity: the caps that the charge was computed for; they must cover the dataset's.
            mechanism: the name and parameters of what runs, for the record.
            query: a fingerprint under which the stored answer can be found again; "": none.
            version: the version of the data that will be read; if given it must be the dataset's.
                It is needed with ``segments``: in the next version a user may be in another one,
                whose account has not paid for this answer.
            unit: the privacy unit; if given it must be the dataset's.
            seeded: whether the noise will come from a fixed seed, which is refused unless the
                ledger is for tests.
            once: a key of the analyst's for this charge; "": none. If it was charged before, that
                charge's receipt is returned and nothing is written, so that a caller who lost the
                answer can ask again; see ``asked``. Refused with other segments.
            segments: the declared segments that the question is about, each of which pays; None:
                all data.
            stated: the (ε, δ) that the question states for its charge, as ``Account.quote`` takes
                it.

        Returns:
            Receipt: the proof of the charge, which ``finalize`` takes.

        Raises:
            BudgetExceeded: nothing was written.
            InvalidParameter: when the charge does not fit the dataset; nothing was written.
            LedgerError: when the database refuses; nothing may be released. Where it failed while
                it committed, the charge may have been written all the same, and then stays.
        """
        validate.instance(Charge, charge=charge)  # refuses other types, as two calls below
        analyst = analyst_name(analyst)
        description = normal_form(mechanism=mechanism)
        validate.instance(str, query=query)
        validate.instance(str, once=once)
        if segments is not None and version is None:
            raise InvalidParameter(
                "version must be given with segments: in the next one users may have moved"
            )
        if seeded and not self.test:
            raise LedgerError(
                "a release with a fixed seed (rng, --seed) is only for a ledger that was made "
                "for tests"
            )
        body = {
            "charge": str(charge),
            "mechanism": description,
            "query": query,
            "seeded": bool(seeded),
        }
        with self._journal.write() as log:
            state = self._now.dataset(dataset)
            earlier_entry = self._charge_of_key(log, dataset, analyst, once)
            if earlier_entry is not None:
                _refuse_other_segments(earlier_entry, segments, state)
                earlier_charge = Charge.parse(earlier_entry.body["charge"])
                return Receipt(earlier_entry.seq, dataset, analyst, earlier_charge)
            state.check_fit(charge, sensitivity, version, unit)
            body["records"] = state.charge_records(
                state.accounts(analyst, segments), charge, stated
            )
            if stated is not None:
                body["stated"] = stated.terms()
            if segments is not None:
                body["segments"] = list(segments)
            if once:
                body["once"] = once
            entry = self._journal.append(log, "charge", dataset, analyst, normal_form(charge=body))
        return Receipt(entry.seq, dataset, analyst, charge)

    def finalize(
        self, receipt: Receipt, used: Charge, *, answer: Mapping[str, Any] | None = None
    ) -> None:
        """Mark a charge as released, and return the costs that were not used (never δ).

        Args:
            receipt: the receipt of the charge.
            used: the part of the charge that the release has used.
            answer: the release as a JSON-safe dictionary, which can be given again free of charge;
                None: it is not stored.

        Raises:
            InvalidParameter: when the charge was settled before or is not here, when ``used`` is
                not a part of it, or when JSON cannot hold the answer. The charge then stays in
                full.
            LedgerError: when the entry of the charge was changed.
        """
        validate.instance(Charge, used=used)  # refuses other types
        stored = None if answer is None else normal_form(answer=answer)
        with self._journal.write() as log:
            state = self._now.dataset(receipt.dataset)
            charged = self._open_charge(log, receipt)
            charge = Charge.parse(charged.body["charge"])
            if not is_part(used, charge):
                raise InvalidParameter(f"used: {used} is not part of the charge {charge}")
            unused = charge.minus(used)
            body = {
                "charge": receipt.seq,
                "used": str(used),
                "unused": str(unused),
                "answer": stored,
                "returned": {},
            }
            body |= {"query": charged.body["query"], **_segments_of(charged)}
            if unused and receipt.seq > state.accounts_since:
                body["returned"] = state.refund_records(charged, unused)
            self._journal.append(
                log, "release", receipt.dataset, charged.analyst, normal_form(release=body)
            )

    def _open_charge(self, log: Transaction, receipt: Receipt) -> Entry:
        """Return the entry of a receipt's charge, which was not released yet, with a checked hash.

        Raises:
            InvalidParameter: when there is no such charge, or it was released.
            LedgerError: when its entry was changed.
        """
        charged = log.entry(receipt.seq)
        if (
            charged is None
            or (charged.kind, charged.dataset) != ("charge", receipt.dataset)
            or self._journal.find(log, "release", receipt.seq) is not None
        ):
            raise InvalidParameter(
                "receipt: this charge was already settled, or is not in this ledger"
            )
        if not self._journal.has_right_hash(charged):
            raise LedgerError(
                f"entry {charged.seq} has a wrong hash: it was changed, or the key is another"
            )
        return charged

    def reuse(
        self,
        dataset: str,
        analyst: str,
        query: str,
        *,
        sensitivity: Sensitivity | None = None,
        version: str | None = None,
        unit: str | None = None,
    ) -> dict[str, Any] | None:
        """Return the stored answer to a question on the same data version, to show it to an
        analyst; None if there is none.

        The data set is charged nothing. The analyst's limit is charged what the answer has cost,
        once, unless the analyst has paid for it: a limit bounds what the analyst learns, whoever
        asked first.

        Args:
            dataset: the name of the data set.
            analyst: the analyst to whom it is shown.
            query: the fingerprint of the question, as for ``charge``.
            sensitivity: the caps that the question assumes, as for ``charge``.
            version: the version of the data, as for ``charge``.
            unit: the privacy unit, as for ``charge``.

        Raises:
            BudgetExceeded: when the analyst's limit does not cover the answer; nothing was shown.
            InvalidParameter: when sensitivity, version or unit are given and are not the dataset's,
                as for ``charge``; for a data set that is not in the ledger.
            LedgerError: when the database refuses, or an entry of the answer was changed.
        """
        analyst = analyst_name(analyst)
        with self._journal.write() as log:
            state = self._now.dataset(dataset)
            nothing = Charge(neighbours=state.sensitivity.neighbours)
            state.check_fit(nothing, sensitivity, version, unit)
            stored = self._stored_entries(log, state, query)
            if stored is None:
                return None
            charged, release = stored
            shown_before = self._journal.find(log, "seen", dataset, analyst, release.seq)
            if charged.analyst != analyst and shown_before is None:
                body = _reuse_body(state, analyst, charged, release)
                self._journal.append(log, "reuse", dataset, analyst, normal_form(reuse=body))
        return dict(release.body["answer"])


def _complete_file(
    url: str | Path | LedgerFile,
    witness: HeadFile | HeadTable,
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
        witness: the place of its head.
        key: the secret of the hash chain; None: it has none.
        network: whether the file may be on a network file system, as for ``Ledger``.
    """
    file = url if isinstance(url, LedgerFile) else ledger_file(str(url), network)
    if file is None or file.without_log or not file.lacks_log():
        return
    head = witness.read()
    if head is None:
        return
    store = Store(replace(file, without_log=True), key=key, read_only=True, create=False)
    try:
        inspection = inspect(store, [head], witness=head)
    finally:
        store.close()
    if not inspection.problems and inspection.entries == head.seq:
        with suppress(*ERRORS):  # in use again: the last one to close it does this
            file.mark_complete()


def _refuse_other_segments(
    charged: Entry, segments: Sequence[str] | None, state: DatasetState
) -> None:
    """Refuse a key under which other segments, or those of an older version, were charged.

    Args:
        charged: the entry of the charge under the key.
        segments: the segments that the question is about now; None: all data.
        state: the state of the data set.

    Raises:
        InvalidParameter: if so.
    """
    asked_segments = None if segments is None else list(segments)
    if charged.body.get("segments") != asked_segments:
        raise InvalidParameter("once: this key was charged for other segments")
    if "segments" in charged.body and charged.seq < state.versioned:
        raise InvalidParameter(
            "version: segments of an older version were charged under this key; use a new key"
        )


def _reuse_body(
    state: DatasetState, analyst: str, charged: Entry, release: Entry
) -> dict[str, object]:
    """Return the body of the entry that charges a stored answer to the limit of an analyst.

    Args:
        state: the state of the data set.
        analyst: the analyst to whom the answer is shown.
        charged: the entry of the answer's charge.
        release: the entry of the answer.

    Raises:
        BudgetExceeded: when the limit does not cover the answer.
    """
    cost = Charge.parse(release.body["used"])
    segments = _segments_of(charged)
    limits = state.limits_of(analyst, segments.get("segments"))
    records = state.charge_records(limits, cost, stated_budget(charged.body))
    return {"answer": release.seq, "charge": str(cost), "records": records, **segments}


def _segments_of(charged: Entry) -> dict[str, Any]:
    """Return the field "segments" of a charge, if it has one, for the entries that follow
    from it.
    """
    if "segments" in charged.body:
        return {"segments": charged.body["segments"]}
    return {}
