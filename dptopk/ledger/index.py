"""The lookup of keys, releases and stored answers: rows that lead from names to entries.

A charge is found by its key, a release by its charge, a stored answer by its question, a reuse by
whom it was shown to. The rows lie beside the log and could be lost while every hash of the log is
right: a key would then be charged again, and get another answer. So names are divided into buckets,
and the state of the ledger holds a chained hash of each bucket's rows: a row that is missing,
changed or added is found whenever its bucket is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dptopk._internal.json_text import fingerprint
from dptopk.ledger.entries import GENESIS, Entry, digest

DIGITS = 3  # the hexadecimal digits of a name that are its bucket: there are 4096 buckets


class LookupRow(NamedTuple):
    """A row that leads from a name to an entry.

    Attributes:
        seq: the number of the entry.
        name: the name, as ``name_of`` returns it.
    """

    seq: int
    name: str


def name_of(kind: str, *found_by: str | int) -> str:
    """Return the name that leads to an entry, a hash.

    Args:
        kind: "once" for a charge, "release", "answer" for the release of a stored answer, or
            "seen" for the showing of a stored answer.
        found_by: what the entry is found by. "once": data set, analyst and key; "release": the
            number of the charge's entry; "answer": data set and the fingerprint of the question;
            "seen": data set, analyst and the number of the answer's entry.
    """
    return fingerprint([kind, *found_by])


def bucket_of(name: str) -> str:
    """Return the bucket of a name: its first hexadecimal digits."""
    return name[:DIGITS]


def chain_hash_of(rows: Iterable[LookupRow], previous_hash: str = GENESIS) -> str:
    """Return the hash of a chain of rows, each of which is hashed with the hash before it.

    Args:
        rows: the rows of one bucket, in order.
        previous_hash: the hash of the rows before these; by default there are none.
    """
    chain_hash = previous_hash
    for seq, name in rows:
        chain_hash = digest(None, f"{chain_hash} {seq} {name}")
    return chain_hash


class Index:
    """The hash of each bucket's rows, after the entries that were added.

    Attributes:
        chains: bucket -> the hash of the chain of its rows (``chain_hash_of``); a bucket without
            rows is left out.
    """

    def __init__(self) -> None:
        self.chains: dict[str, str] = {}

    def add(self, entry: Entry) -> list[LookupRow]:
        """Add the rows that lead to an entry to the hashes, and return these rows, in order."""
        rows = sorted(LookupRow(entry.seq, name) for name in self._names(entry))
        for row in rows:
            bucket = bucket_of(row.name)
            previous_hash = self.chains.get(bucket, GENESIS)
            self.chains[bucket] = chain_hash_of([row], previous_hash)
        return rows

    def _names(self, entry: Entry) -> Iterator[str]:
        """Yield the names that lead to an entry; most kinds of entries have none.

        The four kinds of names are those of ``name_of``.
        """
        body = entry.body
        if entry.kind == "charge" and body.get("once"):
            yield name_of("once", entry.dataset, entry.analyst, body["once"])
        elif entry.kind == "release":
            yield name_of("release", body["charge"])
            if body["query"] and body["answer"] is not None:
                yield name_of("answer", entry.dataset, body["query"])
        elif entry.kind == "reuse":
            yield name_of("seen", entry.dataset, entry.analyst, body["answer"])
