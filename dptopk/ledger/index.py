"""Lookup of keys, releases and stored answers in the log: names that lead to entries, hash-chained.

A charge is found by its key, a release by its charge, a stored answer by its question, a reuse by
whom it was shown to. The rows that lead from names to entries lie beside the log and could be lost
with every hash of the log in order: then a key would be charged again, and answered otherwise. So
names fall into buckets, and the state of the ledger holds the hash of the chain of each bucket's
rows: a row that is missing, changed or added is found whenever its bucket is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dptopk._internal.json_text import fingerprint
from dptopk.ledger.entries import GENESIS, Entry, digest

DIGITS = 3  # of a name make its bucket: 4096 buckets

Place = tuple[int, str]  # an entry and a name that leads to it


def name_of(kind: str, *found_by: str | int) -> str:
    """The name of what is found by these: "once", "release", "answer" or "seen", and what it is
    found by.
    """
    return fingerprint([kind, *found_by])


def bucket_of(name: str) -> str:
    """The bucket that a name falls into."""
    return name[:DIGITS]


def chain_of(places: Iterable[Place], before: str = GENESIS) -> str:
    """The hash of a chain of places that continues the hash ``before``."""
    for seq, name in places:
        before = digest(None, f"{before} {seq} {name}")
    return before


class Index:
    """The hash of each bucket's chain, after the entries that were added."""

    def __init__(self) -> None:
        self.chains: dict[str, str] = {}

    def add(self, entry: Entry) -> list[Place]:
        """Chain what leads to an entry; the places, in order."""
        places = sorted((entry.seq, name) for name in self._names(entry))
        for place in places:
            bucket = bucket_of(place[1])
            self.chains[bucket] = chain_of([place], self.chains.get(bucket, GENESIS))
        return places

    def _names(self, entry: Entry) -> Iterator[str]:
        body = entry.body
        if entry.kind == "charge" and body.get("once"):
            yield name_of("once", entry.dataset, entry.analyst, body["once"])
        elif entry.kind == "release":
            yield name_of("release", body["charge"])
            if body["query"] and body["answer"] is not None:
                yield name_of("answer", entry.dataset, body["query"])
        elif entry.kind == "reuse":
            yield name_of("seen", entry.dataset, entry.analyst, body["answer"])
