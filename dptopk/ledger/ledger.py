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

from collections.abc import Mapping, Sequence
from typing import Any

from dptopk._internal import validate
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.administration import LedgerAdministration
from dptopk.ledger.dataset import DatasetState
from dptopk.ledger.entries import Entry, normal_form
from dptopk.ledger.names import analyst_name
from dptopk.ledger.spends import Receipt, stated_budget
from dptopk.ledger.transaction import Transaction
from dptopk.ledger.verify import is_part


class Ledger(LedgerAdministration):
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
        # These calls refuse other types.
        validate.instance(Charge, charge=charge)
        validate.instance(str, query=query)
        validate.instance(str, once=once)
        analyst = analyst_name(analyst)
        body = {
            "charge": str(charge),
            "mechanism": normal_form(mechanism=mechanism),
            "query": query,
            "seeded": bool(seeded),
        }
        if segments is not None and version is None:
            raise InvalidParameter(
                "version must be given with segments: in the next one users may have moved"
            )
        if seeded and not self.test:
            raise LedgerError(
                "a release with a fixed seed (rng, --seed) is only for a ledger that was made "
                "for tests"
            )
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
            entry = self._journal.append(
                log, "charge", normal_form(charge=body), dataset=dataset, analyst=analyst
            )
        return Receipt(entry.seq, dataset, analyst, charge)

    def finalize(
        self, receipt: Receipt, used: Charge, *, answer: Mapping[str, Any] | None = None
    ) -> None:
        """Mark a charge as released, and give the costs that were not used (never δ) back to the
        accounts that paid them.

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
                log,
                "release",
                normal_form(release=body),
                dataset=receipt.dataset,
                analyst=charged.analyst,
            )

    def _open_charge(self, log: Transaction, receipt: Receipt) -> Entry:
        """Return the entry of a receipt's charge, which was not released yet, with a checked hash.

        Args:
            log: a transaction on the log.
            receipt: the receipt of the charge.

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
        self._journal.refuse_wrong_hash(charged)
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
                body = normal_form(reuse=_reuse_body(state, analyst, charged, release))
                self._journal.append(log, "reuse", body, dataset=dataset, analyst=analyst)
        return dict(release.body["answer"])


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
    if "segments" in charged.body and charged.seq < state.version_entry:
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
