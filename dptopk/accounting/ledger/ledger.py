"""The ledger: no answer without a durable charge.

Everything that happens to a budget is an entry of one append-only, hash-chained log (``store``). What is spent and what
remains is the fold of the log (``state``) into the same accounts that work without a ledger; a snapshot of it, whose
hash is an entry of the log, saves reading all of it again.

Order of a spend: inside one transaction that holds the write lock, read what others appended, check the budgets, append
the charge, read it back, commit durably; only then may noise be drawn. After the answer a ``release`` entry marks it as
given and returns unused costs (never δ). A process killed at any instant therefore leaves charged >= released.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, Unpack

from dptopk import _validate as validate
from dptopk.accounting.accounts.account import Summary
from dptopk.accounting.budget import Budget
from dptopk.accounting.ledger.dataset import DatasetState
from dptopk.accounting.ledger.entries import FORMAT, Entry, normal
from dptopk.accounting.ledger.heads import Head
from dptopk.accounting.ledger.journal import Journal, answer_pointer, once_pointer, release_pointer, seen_pointer
from dptopk.accounting.ledger.names import analyst_name, canonical, plain_text
from dptopk.accounting.ledger.spends import Receipt, Spend
from dptopk.accounting.ledger.state import LedgerState
from dptopk.accounting.ledger.store import Store, Transaction
from dptopk.accounting.ledger.terms import Free, account_of, by_segment, segments_of, shares_of, terms_of
from dptopk.accounting.ledger.verify import Inspection, inspect, is_part
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.histogram import Sensitivity

__all__ = ["Ledger"]


class Ledger:
    """Budgets of datasets, and every charge against them, in a durable database.

    Args:
        url: path of a SQLite file, or the URL of a PostgreSQL database.
        key: secret text or bytes; then the chain is an HMAC that only holders of the key can extend or forge.
        test: marks a *new* ledger as one for tests; only such a ledger takes releases made with a fixed seed.
        read_only: open for ``show``, ``verify`` and ``export`` alone: nothing is written, not even beside the file.
        create: make a ledger where there is none; False: refuse, so that a mistyped path is no new budget.
        head: an exported head that the log must still hold.
        head_file: a file, best on another disk, that the head is written to after each commit, and that the log is
            checked against when it is opened.
        network: open a SQLite file also on a network file system, whose locks may not hold.

    Raises:
        LedgerError: when the database cannot be opened, is not a ledger, was written with another key, or lacks what a
            head says it held.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        key: str | bytes | None = None,
        test: bool = False,
        read_only: bool = False,
        create: bool = True,
        head: Mapping[str, Any] | None = None,
        head_file: str | Path | None = None,
        network: bool = False,
    ) -> None:
        heads = [] if head is None else [Head.of(head)]
        self._store = Store(url, key=_secret(key), read_only=read_only, create=create, network=network)
        self._journal = Journal(self._store, None if head_file is None else Path(head_file))
        first = {"format": FORMAT, "id": uuid.uuid4().hex, "keyed": self._store.key is not None, "test": test}
        try:
            self._journal.open(first if create and not read_only else None, heads)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing

    def create_dataset(
        self,
        name: str,
        *,
        registered: Charge | None = None,
        budget: Budget | None = None,
        delta: float | None = None,
        shares: Mapping[str, Charge | Budget] | None = None,
        segments: Mapping[str, Sequence[str]] | None = None,
        sensitivity: Sensitivity = Sensitivity(),  # noqa: B008 - immutable
        unit: str = "user",
        version: str = "1",
        **free: Unpack[Free],
    ) -> None:
        """Open the account of a dataset.

        Args:
            name: not used before in this ledger.
            registered: a set-wise registration: these costs, in any order; ``delta`` is the δ it is reported at.
            budget: instead of a registration: a fully adaptive filter on a total (ε, δ).
            delta: with ``registered``: the δ at which the guarantee is stated.
            shares: instead of both, with ``delta``: a registration (Charge) or a filter (Budget) for each analyst, all
                fixed now; whoever is not named draws on the share "reserve". The guarantee is for all of them together.
            segments: such as {"region": ["eu", "us"]}: one unit's data lie in at most one of them, by nature, not
                because a query keeps it so. Then each has the whole budget, and pays for what is asked of it and of
                all data.
            sensitivity: what one unit can move in this data, and the neighbour relation.
            unit: the privacy unit in words, such as "member".
            version: of the data.
            free: with ``budget``: ranges, costs and failure_delta, as ``Filter`` takes them (docs/filters.md).

        Raises:
            InvalidParameter: on bad arguments or a name that exists.
        """
        terms = _whole(registered, budget, delta, shares, free)
        plain_text(name=name), plain_text(unit=unit), plain_text(version=version)
        validate.instance(Sensitivity, sensitivity=sensitivity)
        declared = segments_of(segments)
        if declared and sensitivity.neighbours != "add_remove":
            raise InvalidParameter("segments: a user who is replaced may be in two of them; they are for add_remove")
        about = {"unit": unit, "version": version, "sensitivity": asdict(sensitivity)}
        body = normal(dataset={"terms": by_segment(terms, declared), "segments": declared, **about})
        with self._journal.write() as log:
            if name in self._now.datasets:
                raise InvalidParameter(f"name: the dataset {name!r} exists already")
            self._journal.append(log, "dataset", name, "", body)

    def set_limit(
        self,
        dataset: str,
        analyst: str,
        *,
        registered: Charge | None = None,
        budget: Budget | None = None,
        delta: float | None = None,
        **free: Unpack[Free],
    ) -> None:
        """Limit one analyst inside a dataset's budget; arguments as for ``create_dataset``.

        What the analyst has spent before counts, and what the analyst was shown of others' answers.
        """
        analyst, terms = analyst_name(analyst), terms_of(registered, budget, delta, free)
        with self._journal.write() as log:
            state = self._now.dataset(dataset)
            shown, terms = state.shown(analyst), by_segment(terms, state.segments)
            try:
                record = account_of(terms).quote(shown)
            except BudgetExceeded:
                raise InvalidParameter(f"the analyst {analyst!r} has already spent more than this limit") from None
            body = {"terms": terms, "charge": str(shown), "record": record}
            self._journal.append(log, "limit", dataset, analyst, normal(limit=body))

    def set_version(self, dataset: str, version: str) -> None:
        """Record that the data changed; budgets and spending go on, since the same users may be in the new data.

        Users may be in other segments than before: the accounts of all segments go on from one charge that covers what
        any of them has spent.

        Raises:
            InvalidParameter: when that does not fit into one account: then only a renewal helps.
        """
        plain_text(version=version)
        with self._journal.write() as log:
            try:
                merged = self._now.dataset(dataset).merged()
            except BudgetExceeded:
                raise InvalidParameter(
                    "version: users may have moved between segments, and what these have spent is too much for one"
                ) from None
            body = {"version": version, "merged": merged} if merged else {"version": version}
            self._journal.append(log, "version", dataset, "", normal(version=body))

    def renew(
        self,
        dataset: str,
        *,
        reason: str,
        registered: Charge | None = None,
        budget: Budget | None = None,
        delta: float | None = None,
        shares: Mapping[str, Charge | Budget] | None = None,
        **free: Unpack[Free],
    ) -> None:
        """Open a new budget on the same dataset: an explicit, recorded act, no reset; the lifetime spend goes on.

        Arguments as for ``create_dataset``. Shares are renewed all at once: one that was renewed by itself, after
        answers, would be a choice between games.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidParameter("reason must say why the budget is renewed")
        terms = _whole(registered, budget, delta, shares, free)
        with self._journal.write() as log:
            terms = by_segment(terms, self._now.dataset(dataset).segments)
            body = normal(renewal={"terms": terms, "reason": reason})
            self._journal.append(log, "renewal", dataset, "", body)

    def rekey(self, key: str | bytes) -> None:
        """Give a keyed chain another secret: every entry is hashed anew, in one transaction, after all were verified.

        One entry more says so, with the head that there was. Heads exported before fit no longer: export a new one.
        Whoever has the ledger open with the old secret is refused from here on, as are copies made before.

        Raises:
            InvalidParameter: for a ledger without a key, or the key that it has.
            LedgerError: when the log is not whole; nothing was changed.
        """
        secret = _secret(key)
        if self._store.key is None or secret is None:
            raise InvalidParameter("key: this ledger was made without one, and stays so")
        if secret == self._store.key:
            raise InvalidParameter("key: it is the one that the ledger has")
        self._journal.rekey(secret)

    def charge(  # noqa: PLR0913 - what an entry says
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
    ) -> Receipt:
        """Check the budgets and write a charge durably; when this returns, noise may be drawn.

        Args:
            dataset: a name that was created.
            analyst: any name; an analyst is registered on first use.
            charge: the most that the answer can cost.
            sensitivity: what the charge was computed for; it must cover the dataset's.
            mechanism: name and parameters, for the record.
            query: fingerprint under which a stored answer can be found again.
            version: of the data that will be asked; when given it must be the dataset's. Needed with ``segments``: in
                the next version a user may be in another of them, whose account has not paid for this one's answer.
            unit: when given it must be the dataset's.
            seeded: the noise will come from a fixed seed: refused unless the ledger is marked as a test one.
            once: a key of the analyst's for this charge: where it was charged before, that charge's receipt comes
                back and nothing is written, so that a caller who lost the answer can ask again; see ``asked``.
            segments: declared ones that the question is about, each of which pays; None: all data.

        Raises:
            BudgetExceeded: nothing was written.
            InvalidParameter: when the charge does not fit the dataset; nothing was written.
            LedgerError: when the database refuses; nothing may be released. Where it failed while it committed, the
                charge may have been written all the same, and then stays.
        """
        validate.instance(Charge, charge=charge)
        analyst, described = analyst_name(analyst), normal(mechanism=mechanism)
        if not isinstance(query, str):
            raise InvalidParameter(f"query must be text, got {type(query).__name__}")
        if not isinstance(once, str):
            raise InvalidParameter(f"once must be text, got {type(once).__name__}")
        if segments is not None and version is None:
            raise InvalidParameter("version is needed with segments: of the next one users may be in other segments")
        if seeded and not self.test:
            raise LedgerError("a release with a fixed seed may be written only to a ledger marked as a test one")
        body = {"charge": str(charge), "mechanism": described, "query": query, "seeded": bool(seeded)}
        with self._journal.write() as log:
            state = self._now.dataset(dataset)
            before = self._charged_once(log, dataset, analyst, once)
            if before is not None:
                if "segments" in before.body and before.seq < state.versioned:
                    raise InvalidParameter(
                        "version: under this key segments of older data were charged; take a new key"
                    )
                return Receipt(before.seq, dataset, analyst, Charge.parse(before.body["charge"]))
            state.check_fit(charge, sensitivity, version, unit)
            body["records"] = state.records(state.accounts(analyst, segments), charge)
            body |= {} if segments is None else {"segments": list(segments)}
            body |= {"once": once} if once else {}
            entry = self._journal.append(log, "charge", dataset, analyst, normal(charge=body))
            if once:
                log.point(once_pointer(dataset, analyst, once), entry.seq)
        return Receipt(entry.seq, dataset, analyst, charge)

    def settle(self, receipt: Receipt, used: Charge, *, answer: Mapping[str, Any] | None = None) -> None:
        """Mark a charge as released, and return the costs that were not used (never δ).

        Args:
            receipt: of the charge.
            used: what the release says it has cost: a part of what was charged.
            answer: the release as a JSON-safe dictionary, to be given again free of charge if asked for.

        Raises:
            InvalidParameter: when the charge was settled before or is not here, when ``used`` is not a part of it, or
                when JSON cannot hold the answer. The charge then stays in full.
        """
        validate.instance(Charge, used=used)
        stored = None if answer is None else normal(answer=answer)
        with self._journal.write() as log:
            state = self._now.dataset(receipt.dataset)
            charged = log.entry(receipt.seq)
            mine = charged is not None and (charged.kind, charged.dataset) == ("charge", receipt.dataset)
            if charged is None or not mine or log.pointed(release_pointer(receipt.seq)) is not None:
                raise InvalidParameter("receipt: this charge was settled before, or is not in this ledger")
            charge = Charge.parse(charged.body["charge"])
            if not is_part(used, charge):
                raise InvalidParameter(f"used: {used} is not a part of the charge {charge}")
            unused = charge.minus(used)
            body = {"charge": receipt.seq, "used": str(used), "unused": str(unused), "answer": stored, "returned": {}}
            body |= _segments_of(charged)
            if unused and receipt.seq > max(state.renewed, state.versioned if state.segments else 0):
                body["returned"] = state.returns(charged, unused)
            entry = self._journal.append(log, "release", receipt.dataset, charged.analyst, normal(release=body))
            log.point(release_pointer(receipt.seq), entry.seq)
            if stored is not None and charged.body["query"]:
                log.point(answer_pointer(receipt.dataset, charged.body["query"]), entry.seq)

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
        """Show an analyst the stored answer to a question, if there is one on the same data version.

        The data set is charged nothing. The analyst's limit is charged what the answer has cost, once, unless the
        analyst has paid for it: a limit bounds what the analyst learns, whoever asked first.

        Raises:
            BudgetExceeded: when the analyst's limit does not cover the answer; nothing was shown.
            InvalidParameter: when sensitivity, version or unit are given and are not the dataset's, as for ``charge``.
        """
        analyst = analyst_name(analyst)
        with self._journal.write() as log:
            state = self._now.dataset(dataset)
            state.check_fit(Charge(neighbours=state.sensitivity.neighbours), sensitivity, version, unit)
            found = self._answer(log, state, query)
            if found is None:
                return None
            charged, release = found
            seen = seen_pointer(dataset, analyst, release.seq)
            if canonical(charged.analyst) != analyst and log.pointed(seen) is None:
                cost = Charge.parse(release.body["used"])
                about = _segments_of(charged)
                records = state.records(state.limits_of(analyst, about.get("segments")), cost)
                body = normal(reuse={"answer": release.seq, "charge": str(cost), "records": records, **about})
                log.point(seen, self._journal.append(log, "reuse", dataset, analyst, body).seq)
        return dict(release.body["answer"])

    # Reading

    @property
    def _now(self) -> LedgerState:
        return self._journal.state

    @property
    def test(self) -> bool:
        """Whether this ledger was marked as one for tests when it was made."""
        return bool(self._now.about.get("test"))

    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets."""
        self._journal.refresh()
        return tuple(self._now.datasets)

    def state(self, dataset: str) -> DatasetState:
        """All that the log says about a dataset, now: a copy, whose accounts spend nothing."""
        with self._store.lock:
            self._journal.refresh()
            return self._now.dataset(dataset).copy()

    def spent(self, name: str, *, analyst: str | None = None, lifetime: bool = False) -> Charge:
        """What a dataset has been charged since its last renewal (or ever), net of refunds."""
        with self._store.lock:
            self._journal.refresh()
            return self._now.dataset(name).spent(analyst=analyst, lifetime=lifetime)

    def remaining(self, name: str) -> Charge | str:
        """What remains of a dataset's budget, as its accountant says it."""
        return self.state(name).account.remaining()

    def summary(self, name: str, *, analyst: str | None = None) -> Summary:
        """A dataset's budget in numbers, or an analyst's share or limit (InvalidParameter when there is neither)."""
        state = self.state(name)
        if analyst is None:
            return state.account.summary()
        own = state.account.account(analyst_name(analyst))
        if own is not state.account:
            return own.summary()
        limits = state.limits_of(analyst_name(analyst))
        if not limits:
            raise InvalidParameter(f"analyst: {analyst!r} has no limit in {name!r}")
        return next(iter(limits.values())).summary()

    def stored_answer(self, dataset: str, query: str) -> dict[str, Any] | None:
        """The stored release of an identical query on the same data version, if there is one; nobody is charged."""
        with self._store.lock:
            self._journal.refresh()
            with self._store.transaction() as log:
                found = self._answer(log, self._now.dataset(dataset), query)
        return None if found is None else dict(found[1].body["answer"])

    def _answer(self, log: Transaction, state: DatasetState, query: str) -> tuple[Entry, Entry] | None:
        """The charge and the release of a stored answer, both as the chain holds them."""
        seq = log.pointed(answer_pointer(state.name, query)) if query and log.has_tables() else None
        release = None if seq is None else log.entry(seq)
        if release is None or release.kind != "release" or release.body.get("answer") is None:
            return None
        charged = log.entry(int(release.body["charge"]))
        if charged is None or charged.dataset != state.name or charged.body.get("query") != query:
            return None
        if charged.seq < state.versioned or not (self._journal.genuine(charged) and self._journal.genuine(release)):
            return None
        return charged, release

    def asked(self, dataset: str, analyst: str, once: str) -> Spend | None:
        """The charge that an analyst made under a key, and what became of it; None when there is none."""
        analyst = analyst_name(analyst)
        with self._store.lock:
            self._journal.refresh()
            renewed = self._now.dataset(dataset).renewed
            with self._store.transaction() as log:
                charged = self._charged_once(log, dataset, analyst, once)
                if charged is None:
                    return None
                seq = log.pointed(release_pointer(charged.seq))
                release = None if seq is None else log.entry(seq)
        spend = Spend.charged(charged, renewed=renewed)
        return spend if release is None else spend.released_by(release)

    def answer(self, spend: Spend) -> dict[str, Any] | None:
        """The answer that was stored with a charge, if one was; nobody is charged."""
        with self._store.lock, self._store.transaction() as log:
            release = None if spend.answer is None else log.entry(spend.answer)
        if release is None or release.kind != "release" or release.body["charge"] != spend.seq:
            return None
        if not self._journal.genuine(release):
            raise LedgerError(f"entry {release.seq} has a wrong hash: it was changed, or the key is another")
        return dict(release.body["answer"])

    def _charged_once(self, log: Transaction, dataset: str, analyst: str, once: str) -> Entry | None:
        """The charge under a key, as the chain holds it."""
        seq = log.pointed(once_pointer(dataset, analyst, once)) if once and log.has_tables() else None
        entry = None if seq is None else log.entry(seq)
        if entry is None or entry.kind != "charge" or (entry.dataset, entry.analyst) != (dataset, analyst):
            return None
        return entry if entry.body.get("once") == once and self._journal.genuine(entry) else None

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """All entries after a number, in order; no lock is held between them."""
        return self._store.entries(after)

    def history(self, dataset: str, *, after: int = 0) -> list[Spend]:
        """The charges of a dataset after an entry, in order, and what became of each."""
        self._journal.refresh()
        renewed, spends = self._now.dataset(dataset).renewed, dict[int, Spend]()
        for entry in self._store.entries(after):
            if entry.dataset != dataset:
                continue
            if entry.kind == "charge":
                spends[entry.seq] = Spend.charged(entry, renewed=renewed)
            elif entry.kind == "release" and entry.body["charge"] in spends:
                spends[entry.body["charge"]] = spends[entry.body["charge"]].released_by(entry)
        return list(spends.values())

    def head(self) -> dict[str, Any]:
        """The last sequence number and hash: keep it elsewhere, and a log whose tail was cut off is found out."""
        self._journal.refresh()
        return self._journal.head()

    def inspect(self, *, head: Mapping[str, Any] | None = None) -> Inspection:
        """Fold the whole log from its first entry and ask for every decision again: problems and warnings."""
        return inspect(self._store.entries(), self._store.key, None if head is None else Head.of(head))[0]

    def check(self, *, head: Mapping[str, Any] | None = None) -> list[str]:
        """Everything that is wrong with the log: broken chain, gaps, an impossible history, a missing tail."""
        return list(self.inspect(head=head).problems)

    def verify(self, *, head: Mapping[str, Any] | None = None) -> bool:
        """Whether ``check`` finds nothing."""
        return not self.check(head=head)

    @staticmethod
    def inspect_file(
        url: str | Path, *, key: str | bytes | None = None, head: Mapping[str, Any] | None = None
    ) -> Inspection:
        """What ``inspect`` finds in a ledger that may be too damaged to be opened."""
        known = None if head is None else Head.of(head)
        store = Store(url, key=_secret(key), read_only=True, create=False)
        try:
            return inspect(store.entries(), store.key, known)[0]
        finally:
            store.close()

    def backup(self, path: str | Path) -> None:
        """Copy a SQLite ledger, whole and as of one moment, while it is in use, into a file that is not there yet."""
        self._store.backup(Path(path))

    def close(self) -> None:
        """Close the connections."""
        self._store.close()


def _secret(key: str | bytes | None) -> bytes | None:
    secret = key.encode() if isinstance(key, str) else key
    if secret is not None and not secret:
        raise InvalidParameter("key must not be empty")
    return secret


def _whole(
    registered: Charge | None,
    budget: Budget | None,
    delta: float | None,
    shares: Mapping[str, Charge | Budget] | None,
    free: Free,
) -> dict[str, Any]:
    """The terms of a dataset's budget."""
    if shares is None:
        return terms_of(registered, budget, delta, free)
    if (
        delta is None
        or registered is not None
        or budget is not None
        or any(value is not None for value in free.values())
    ):
        raise InvalidParameter("give exactly one of registered, budget and shares; with shares also delta")
    return shares_of(shares, delta)


def _segments_of(charged: Entry) -> dict[str, Any]:
    """What a charge says of segments, for the entries that follow from it."""
    return {name: charged.body[name] for name in ("segments",) if name in charged.body}
