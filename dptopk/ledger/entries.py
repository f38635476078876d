"""One entry of the log: its normal form, its text and its hash in the chain.

A body is brought into normal form, as JSON gives it back, before it is hashed: keys are texts,
tuples are lists, NaN and infinities are refused. So an entry is read exactly as it was written.

The chain: hash_n = H(hash_(n-1) ‖ entry_n) with H = SHA-256, or HMAC-SHA-256 when a key is given.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dptopk._internal.json_text import canonical_json
from dptopk.errors import InvalidParameter, LedgerError

# The format of the entries that are written. A change of what an entry holds or means needs another
# number, and an addition to ``earlier_formats`` that reads entries with the number before.
FORMAT = 3
GENESIS = "0" * 64  # stands for the hash before the first entry
# Objects and lists may be nested this deep. Python reads JSON by recursion: a body that is written
# near the limit of that could not be read by a program with more calls under way.
DEEPEST = 100


class LastEntry(NamedTuple):
    """What the next entry of a log continues.

    Attributes:
        seq: the number of the last entry; 0: there is none yet.
        hash: its hash; GENESIS if there is none.
    """

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log.

    Attributes:
        seq: its number, its place in the log; the first entry has 1.
        at: the UTC time at which it was written; nothing is decided by it.
        kind: what happened, such as "charge".
        dataset: the name of the data set; "" if it is about the ledger.
        analyst: the name of the analyst; "" if it is about nobody.
        body: the details, a JSON object.
        previous: the hash of the entry before.
        hash: its own hash.
    """

    seq: int
    at: str
    kind: str
    dataset: str
    analyst: str
    body: dict[str, Any]
    previous: str
    hash: str

    @classmethod
    def read(cls, row: tuple[Any, ...]) -> Entry:
        """Return the entry in a row of the database.

        Raises:
            LedgerError: when the row cannot be one: wrong types, or a body that is no JSON object.
        """
        seq, at, kind, dataset, analyst, text, previous, digest_ = row
        are_texts = all(isinstance(cell, str) for cell in row[1:])
        if type(seq) is not int or not are_texts:
            raise LedgerError("a row of the log has the wrong content: the ledger was damaged")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            raise LedgerError(f"entry {seq} is not readable: the ledger was damaged") from None
        if not isinstance(body, dict):
            raise LedgerError(f"entry {seq} is not readable: the ledger was damaged")
        return cls(seq, at, kind, dataset, analyst, body, previous, digest_)

    def chain_hash(self, key: bytes | None, format_: int = FORMAT) -> str:
        """Return the hash that this entry must have with a key, by the rules of a format.

        Args:
            key: the secret of the hash chain; None: it has none.
            format_: the format of the log where the entry was written.

        Raises:
            LedgerError: when its text cannot be hashed by the rules of format 1.
        """
        fields = [
            self.previous,
            self.seq,
            self.at,
            self.kind,
            self.dataset,
            self.analyst,
            self.body,
        ]
        # Format 1 hashed characters beyond ASCII as they are, which lone surrogates do not survive.
        escapes_non_ascii = format_ > 1
        text = json.dumps(
            fields, sort_keys=True, ensure_ascii=escapes_non_ascii, separators=(",", ":")
        )
        try:
            return digest(key, text)
        except UnicodeEncodeError:
            raise LedgerError(f"entry {self.seq} is not readable: the ledger was damaged") from None


def digest(key: bytes | None, text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal digits, or its HMAC-SHA-256 if there is a key.

    Args:
        key: the secret key; None: there is none.
        text: the text, which is hashed as UTF-8.
    """
    data = text.encode()
    if key:
        return hmac.new(key, data, hashlib.sha256).hexdigest()
    return hashlib.sha256(data).hexdigest()


def normal_form(**bodies: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return the one keyword argument as JSON will give it back: keys as texts, tuples as lists.

    None becomes an empty object.

    Raises:
        InvalidParameter: naming the argument, when it is no mapping, is nested more than DEEPEST
            levels deep, or has what JSON cannot hold: NaN, infinities, other types, keys that
            become the same text.
    """
    ((name, body),) = bodies.items()
    if not isinstance(body, Mapping | None):
        raise InvalidParameter(f"{name} must be a mapping, got {type(body).__name__}")
    try:
        text = json.dumps(dict(body or {}), allow_nan=False)
        normal_body = json.loads(text, object_pairs_hook=_object_of_pairs)
        canonical_json(normal_body)  # refuses what cannot be hashed
        is_too_deep = _is_deeper(normal_body, DEEPEST)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameter(
            f"{name} cannot be written as JSON: {type(error).__name__}"
        ) from None
    if is_too_deep:
        raise InvalidParameter(
            f"{name} cannot be written: it is nested more than {DEEPEST} levels deep"
        )
    return dict(normal_body)


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether objects and lists are nested on more than this many levels."""
    if isinstance(value, dict):
        parts: Iterable[object] = value.values()
    elif isinstance(value, list):
        parts = value
    else:
        return False
    return levels == 0 or any(_is_deeper(part, levels - 1) for part in parts)


def _object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dictionary; two equal keys are refused.

    Raises:
        ValueError: for two equal keys.
    """
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("two keys have the same text")
    return dict(pairs)
