"""The types of what the log holds as JSON: the terms of a budget, the state of a data set.

Each type has one writer and one reader, which its description names. To add, remove or rename a
part here changes the format of the log (``entries.FORMAT``) or the layout of its snapshots
(``replay.LAYOUT``).
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from dptopk.budgets.account_base import Record


class RecordedBound(TypedDict):
    """The guarantee that was computed when a budget was made: the fields of a ``Bound``.

    Written by ``_recorded_bound`` and read by ``_restored_bound``, both in ``budget_terms``.
    """

    epsilon: float
    delta: float
    lower: float | None
    name: str
    source: str
    note: str


class DeclaredSegments(TypedDict):
    """Disjoint segments of a data set; written by ``declared_segments``.

    Attributes:
        by: the column by whose value a unit is in a segment, such as "region".
        names: the values of that column, one for each segment.
    """

    by: str
    names: list[str]


class RecordedTerms(TypedDict, total=False):
    """The terms of a budget: of a registration, a filter, or shares, perhaps for each segment by
    itself. Written by ``budget_terms_of`` and ``terms_by_segment``, read by ``account_of``.

    Attributes:
        registered: registered costs, as the text of a charge; with ``delta`` and ``guarantee``.
        delta: the δ at which the guarantee of registered costs, or of all shares, is stated.
        guarantee: that guarantee; left out if its ε is infinite.
        budget: the total of a filter, as ``Budget.terms`` writes it; with ``filter``.
        filter: all that defines the filter, as ``Filter.terms`` writes it.
        shares: analyst -> the terms of that analyst's share; with ``delta`` and ``guarantee``.
        segments: the segments, each of which has an account with the other terms by itself.
    """

    registered: str
    delta: float
    guarantee: RecordedBound
    budget: list[Any]
    filter: Record
    shares: dict[str, RecordedTerms]
    segments: DeclaredSegments


class RecordedTotal(TypedDict):
    """The sum of charges of one analyst: ``Total.state`` and ``Total.of_state``.

    ``costs`` has the text of each cost, ``delta`` is the text of a fraction.
    """

    costs: dict[str, int]
    delta: str
    adaptive: bool
    queries: int


class RecordedDataset(TypedDict):
    """The state of a data set: ``DatasetState.state`` and ``DatasetState.of_state``.

    What does not have the name of its attribute there:

    Attributes:
        versioned: ``version_entry``.
        renewed: ``renewal_entry``.
        kind: ``last_question_kind``.
        now: ``totals_since_renewal``.
        ever: ``totals_ever``.
        seen: ``shown_since_renewal``.
        account: what the account has spent, as ``Account.state`` writes it.
        limits: analyst -> the terms of the limit, and what its account has spent.
        limited: ``limit_entries``.
    """

    unit: str
    version: str
    terms: RecordedTerms
    renewals: int
    versioned: int
    renewed: int
    segments: DeclaredSegments | None
    closed: list[str]
    kind: Record | None
    now: dict[str, RecordedTotal]
    ever: dict[str, RecordedTotal]
    seen: dict[str, RecordedTotal]
    sensitivity: Record
    account: Record
    limits: dict[str, tuple[RecordedTerms, Record]]
    limited: dict[str, int]


class StartingPoint(TypedDict):
    """What an account of disjoint segments starts from in a new version of the data;
    ``DatasetState.starting_points`` writes it and ``restart`` reads it.

    Attributes:
        charge: what the account has spent before, as the text of a charge.
        record: for registered costs: what an unspent account takes for ``charge``.
        state: for a filter: the state that it goes on from; then there is no ``record``.
    """

    charge: str
    record: NotRequired[Record]
    state: NotRequired[Record]


class FirstEntryBody(TypedDict, total=False):
    """The body of the first entry of a ledger; ``Ledger`` and ``migrate`` write it.

    Attributes:
        format: the format of the log (``entries.FORMAT``).
        id: the identity of the ledger, which no other has; the first ledgers had none.
        keyed: whether the chain of hashes has a secret key.
        test: whether the ledger is for tests, and takes answers with a fixed seed.
        migrated: for a ledger that a migration made: the format and the head of the former one,
            and the same of the one before that ("format", "head", "before").
    """

    format: int
    id: str
    keyed: bool
    test: bool
    migrated: Record


class HeadPlace(TypedDict):
    """The place of a ledger's head, without its address, which may hold a password; the method
    ``place`` of a ``HeadStorage`` writes it.

    Attributes:
        kind: "file" or "database".
        name: the name of the file without its folder, or the kind of database.
    """

    kind: str
    name: str


class RecordedHead(TypedDict):
    """The end of a log: ``asdict`` of a ``Head``, read by ``Head.of``."""

    seq: int
    hash: str
    ledger: str | None


class RecordedLedger(TypedDict):
    """The state of a ledger: ``LedgerState.state`` and ``LedgerState.restore``.

    What does not have the name of its attribute there:

    Attributes:
        layout: the version of this JSON (``replay.LAYOUT``).
        index: ``index.chains``.
        replaced: number and hash of each head that was given up, and the number of the entry that
            did so.
        witness: ``head_place``.
        witnessed: ``last_confirmed``.
    """

    layout: int
    about: FirstEntryBody
    datasets: dict[str, RecordedDataset]
    index: dict[str, str]
    replaced: list[tuple[int, str, int]]
    witness: HeadPlace | None
    witnessed: int
    retired: RecordedHead | None
