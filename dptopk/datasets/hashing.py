"""Hashes that put one user's labels in an order, and 64-bit codes that stand for texts.

A *code* is a 64-bit number that stands for the text of a user or a label while events are counted.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import MemoryFull, OpenTable
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.columns import HASHED
from dptopk.datasets.engine_calls import engine_table, run_query

if TYPE_CHECKING:
    import ibis.expr.types as ir

# How many hexadecimal digits of a digest are used: 48 bits, which the engines hold inline. Equal
# digests are ordered by the item.
DIGITS = 12
# The engine's table of the texts of labels and their codes.
TEXTS_TABLE = "dptopk_names"


def hash_order(
    source: OpenTable, user: ir.Column, item: ir.Column, bounds: Bounds
) -> list[ir.Column]:
    """Return the columns by which one user's items are ordered: a hash of key, user and item, and
    then what distinguishes equal hashes, with the item last.

    The code of a text comes before the text, so that the order is the same if codes stand for the
    texts. There are always at least two columns: DuckDB plans a filter on the place in an order by
    one column more slowly.

    Args:
        source: the table, whose engine hashes.
        user: the column of users.
        item: the column of labels.
        bounds: the bounds, whose key varies the hash and which say whether it is SHA-256.
    """
    if uses_digest(source, bounds):
        return [digest(source, user, item, bounds.key), item]
    if source.backend.keep is None:  # codes never stand for the texts
        return [source.mix(_key_digits(bounds.key), user, item), item]
    item_code = code_of(source, item)
    pair_hash = source.mix(_key_digits(bounds.key), user, item_code)
    if item_code is item:
        return [pair_hash, item]
    return [pair_hash, item_code, item]


def hash_columns(source: OpenTable, events: ir.Table, bounds: Bounds) -> dict[str, ir.Column]:
    """Return the columns of ``hash_order`` before the item, which are to be added to the events:
    the hash of key, user and item and, if codes may stand for texts, the code of the item.

    Args:
        source: the table, whose engine hashes.
        events: the events, or pairs of a user and a label, with the columns user and item; where
            there is a column of texts beside one of them (HASHED), it is hashed instead.
        bounds: the bounds, as for ``hash_order``.

    Returns:
        The columns by the names ``hash0`` and, for the code, ``hash1``, in their order.
    """
    user, item = (
        events[HASHED[role]] if HASHED[role] in events.columns else events[role]
        for role in ("user", "item")
    )
    *hashes, _ = hash_order(source, user, item, bounds)
    return {f"hash{number}": column for number, column in enumerate(hashes)}


def uses_digest(source: OpenTable, bounds: Bounds) -> bool:
    """Return whether the hashes that order labels are SHA-256."""
    return bounds.portable or source.backend.mix is None


def digest(source: OpenTable, user: ir.Column, item: ir.Column, key: str) -> ir.StringValue:
    """Return the first DIGITS hexadecimal digits of the SHA-256 of key | user | item, the same on
    every engine.

    Args:
        source: the table, whose engine computes them.
        user: the column of users.
        item: the column of labels.
        key: the key of the bounds, of any length.
    """
    text = _key_digits(key) + "|" + source.text(user) + "|" + source.text(item)
    return source.backend.digest(text).substr(0, DIGITS)


def _key_digits(key: str) -> ir.StringScalar:
    """Return the first 32 hexadecimal digits of the SHA-256 of the key, as a constant of the
    query; their fixed length separates the key from a user.
    """
    import ibis

    return ibis.literal(sha256(key.encode()).hexdigest()[:32])


def code_of(source: OpenTable, column: ir.Column) -> ir.Column:
    """Return the 64-bit code of a column of users or labels: an integer is its own code, and a text
    has the engine's hash with a salt that never changes.
    """
    import ibis

    if column.type().is_integer():
        return column
    # The salt is the same for users, whose codes are only compared with each other.
    return source.mix(ibis.literal("item"), column)


def text_codes(
    source: OpenTable, events: ir.Table, role: str, *, ordered: bool = False
) -> ir.Table | None:
    """Return the different texts of a column and their 64-bit codes, if codes may stand for them.

    The counts are the same either way: items are ordered by the same codes, and the code of a user
    only says which rows belong together. The texts of other users never enter a choice.

    Args:
        source: the table.
        events: its events.
        role: the column, "user" or "item".
        ordered: whether the texts are numbered in their order, instead of being returned.

    Returns:
        A table with the columns item (the code) and name (the text) or, if ordered, place (the
        index of the text in their order). The texts are then, and for role "item" always, in the
        engine's table TEXTS_TABLE. None if the column is of integers, which need no codes; if the
        rows may change between two statements; if the texts alone fill the memory; or if two of
        them share a code. The texts themselves are grouped then.
    """
    if source.keep is None or events[role].type().is_integer():
        return None
    texts = events.select(name=events[role]).distinct()
    names = texts.mutate(item=code_of(source, texts["name"]))
    try:
        if ordered:  # codes are made again rather than sorted
            stored = engine_table(source, TEXTS_TABLE, texts.order_by("name"))
            place = stored.rowid().cast("int32")
            names = stored.select(item=code_of(source, stored["name"]), place=place)
        elif role == "item":
            names = engine_table(source, TEXTS_TABLE, names)
        aggregates = names.agg(names=names.count(), codes=names.item.nunique())
        (numbers,) = run_query(source, aggregates).to_pylist()
    except MemoryFull:  # a part of the users may still fit
        return None
    if numbers["codes"] == numbers["names"]:
        return names
    return None


def with_user_codes(source: OpenTable, events: ir.Table) -> ir.Table:
    """Return the events with a column ``user_code``, one-to-one with ``user``, if the engine sorts
    such a column faster; else the events as they are.

    A text has its 64-bit code, and an integer becomes one of 32 bits if all users fit into them.
    """
    if source.keep is None:
        return events
    if not events.user.type().is_integer():
        if text_codes(source, events, "user") is None:
            return events
        return events.mutate(user_code=code_of(source, events.user))
    aggregates = events.agg(low=events.user.min(), high=events.user.max())
    (extremes,) = run_query(source, aggregates).to_pylist()
    low = extremes["low"]  # None without any events
    if low is not None and -(2**31) <= low and extremes["high"] < 2**31:
        return events.mutate(user_code=events.user.cast("int32"))
    return events
