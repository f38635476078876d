"""PostgreSQL, 11 or later: Ibis tables of its connections."""

from __future__ import annotations

from typing import Any

from dptopk.datasets.backends.base import Backend, builtin


def _encode(text: Any) -> Any:
    return builtin("convert_to", ("string", "string"), "binary")(text, "UTF8")


def _decode(data: Any) -> Any:
    return builtin("convert_from", ("binary", "string"), "string")(data, "UTF8")


def _mix(*columns: Any) -> Any:
    """The hashes of the texts, chained by their seeds.

    PostgreSQL has no hash of several values or of bytes, and its hash of 64-bit integers folds them to 32 bits first.
    """
    import ibis

    mixed = ibis.literal(0, "int64")
    for column in columns:
        text = _decode(column) if column.type().is_binary() else column.cast("string")
        mixed = builtin("hashtextextended", ("string", "int64"), "int64")(text, mixed)
    return mixed


def _digest(text: Any) -> Any:
    hashed = builtin("sha256", ("binary",), "binary")(_encode(text))
    return builtin("encode", ("binary", "string"), "string")(hashed, "hex")


POSTGRES = Backend(name="postgres", encode=_encode, decode=_decode, mix=_mix, digest=_digest)
