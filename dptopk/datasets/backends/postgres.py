"""PostgreSQL, 11 or later: Ibis tables of its connections."""

from __future__ import annotations

from typing import Any

from dptopk.datasets.backends.base import Backend, builtin


def _encode(text: Any) -> Any:
    return builtin("convert_to", ("string", "string"), "binary")(text, "UTF8")


def _decode(data: Any) -> Any:
    return builtin("convert_from", ("binary", "string"), "string")(data, "UTF8")


def _mix(*columns: Any) -> Any:
    """The hashes of texts and of the halves of integers, chained by their seeds.

    PostgreSQL has no hash of several values or of bytes, and its hash of 64-bit integers folds them to 32 bits first.
    """
    import ibis

    mixed = ibis.literal(0, "int64")
    for column in columns:
        if column.type().is_integer():
            wide = column.cast("int64")
            for half in (wide >> 32, wide & (2**32 - 1)):
                mixed = builtin("hashint8extended", ("int64", "int64"), "int64")(half, mixed)
        else:
            text = _decode(column) if column.type().is_binary() else column
            mixed = builtin("hashtextextended", ("string", "int64"), "int64")(text, mixed)
    return mixed


def _unhashed() -> Any:
    """The empty list of words, made when the query is planned: else DISTINCT hashes rows, which are then sorted."""
    return builtin("tsvectorin", ("string",), "string")("")


def _digest(text: Any) -> Any:
    hashed = builtin("sha256", ("binary",), "binary")(_encode(text))
    return builtin("encode", ("binary", "string"), "string")(hashed, "hex")


POSTGRES = Backend(name="postgres", encode=_encode, decode=_decode, mix=_mix, digest=_digest, unhashed=_unhashed)
