"""The types of what the log holds as JSON: the terms of a budget, the state of a data set.

Each type has one writer and one reader, which its description names. To add, remove or rename a
part here changes the format of the log (``entries.FORMAT``) or the layout of its snapshots
(``replay.LAYOUT``).
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from dptopk.budgets.account_base import Record


class RecordedBound(TypedDict):
    """A guarantee that was computed when a budget was made; both ways in ``budget_terms``."""

    epsilon: float
    delta: float
    lower: float | None
    name: str
    source: str
    note: str


class Declared(TypedDict):
    """Disjoint segments: what they are by, and their names; written by ``segments_of``."""

    by: str
    names: list[str]


class RecordedTerms(TypedDict, total=False):
    """The terms of a budget: of a registration, a filter, or shares, perhaps for each segment by
    itself. Written by ``shared_terms_of`` and ``terms_by_segment``, read by ``account_of``.
    """

    registered: str
    delta: float
    guarantee: RecordedBound
    budget: list[Any]  # as ``Budget.terms`` writes it
    filter: Record
    shares: dict[str, RecordedTerms]
    segments: Declared


class RecordedTotal(TypedDict):
    """The sum of charges of one analyst: ``Total.state`` and ``Total.of_state``."""

    costs: dict[str, int]
    delta: str
    adaptive: bool
    queries: int


class RecordedData(TypedDict):
    """The state of a data set: ``DatasetState.state`` and ``DatasetState.of_state``."""

    unit: str
    version: str
    terms: RecordedTerms
    renewals: int
    versioned: int
    renewed: int
    segments: Declared | None
    closed: list[str]
    kind: Record | None
    now: dict[str, RecordedTotal]
    ever: dict[str, RecordedTotal]
    seen: dict[str, RecordedTotal]
    sensitivity: Record
    account: Record
    limits: dict[str, tuple[RecordedTerms, Record]]
    limited: dict[str, int]


class Merged(TypedDict):
    """The state that an account of disjoint segments goes on from; ``DatasetState.merged`` writes
    it and ``merge`` reads it.
    """

    charge: str
    record: NotRequired[Record]
    state: NotRequired[Record]


class About(TypedDict, total=False):
    """The first entry of a ledger; ``Ledger`` and ``migrate`` write it."""

    format: int
    id: str
    keyed: bool
    test: bool
    migrated: Record


class HeadPlace(TypedDict):
    """The place of a ledger's head, without an address; ``heads`` calls it ``place``."""

    kind: str
    name: str


class RecordedHead(TypedDict):
    """The end of a log: ``asdict`` of a ``Head``, read by ``Head.of``."""

    seq: int
    hash: str
    ledger: str | None


class RecordedLedger(TypedDict):
    """The state of a ledger: ``LedgerState.state`` and ``LedgerState.restore``."""

    layout: int
    about: About
    datasets: dict[str, RecordedData]
    index: dict[str, str]
    replaced: list[tuple[int, str, int]]
    witness: HeadPlace | None
    witnessed: int
    retired: RecordedHead | None
