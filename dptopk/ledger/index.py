"""The lookup of keys, releases and stored answers: rows that lead from names to entries.

A charge is found by its key, a release by its charge, a stored answer by its question, a reuse by
whom it was shown to. The rows lie beside the log and could be lost while every hash of the log is
right: a key would then be charged again, and get another answer. So names are divided into buckets,
and the state of the ledger holds a chained hash of each bucket's rows: a row that is missing,
changed or added is found whenever its bucket is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dptopk._internal.json_text import fingerprint
from dptopk.ledger.entries import GENESIS, Entry, digest

DIGITS = 3  # the hexadecimal digits of a name that are its bucket: there are 4096 buckets

Place = tuple[int, str]  # the number of an entry, and a name that leads to it


def name_of(kind: str, *found_by: str | int) -> str:
    """Return the name that leads to an entry, a hash.

    Args:
        kind: "once", "release", "answer" or "seen".
        found_by: what the entry is found by, such as data set, analyst and key.
    """
    return fingerprint([kind, *found_by])


def bucket_of(name: str) -> str:
    """Return the bucket of a name."""
    return name[:DIGITS]


def chain_hash_of(places: Iterable[Place], previous_hash: str = GENESIS) -> str:
    """Return the hash of a chain of rows that continues the hash ``previous_hash``."""
    for seq, name in places:
        previous_hash = digest(None, f"{previous_hash} {seq} {name}")
    return previous_hash


class Index:
    """The hash of each bucket's rows, after the entries that were added.

    Attributes:
        chains: bucket -> hash.
    """

    def __init__(self) -> None:
        self.chains: dict[str, str] = {}

    def add(self, entry: Entry) -> list[Place]:
        """Add the rows that lead to an entry to the hashes, and return these rows, in order."""
        places = sorted((entry.seq, name) for name in self._names(entry))
        for seq, name in places:
            bucket = bucket_of(name)
            previous_hash = self.chains.get(bucket, GENESIS)
            self.chains[bucket] = chain_hash_of([(seq, name)], previous_hash)
        return places

    def _names(self, entry: Entry) -> Iterator[str]:
        """Yield the names that lead to an entry; most kinds of entries have none."""
        body = entry.body
        if entry.kind == "charge" and body.get("once"):
            yield name_of("once", entry.dataset, entry.analyst, body["once"])
        elif entry.kind == "release":
            yield name_of("release", body["charge"])
            if body["query"] and body["answer"] is not None:
                yield name_of("answer", entry.dataset, body["query"])
        elif entry.kind == "reuse":
            yield name_of("seen", entry.dataset, entry.analyst, body["answer"])
