"""PostgreSQL, 11 or later: Ibis tables of its connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import Backend, builtin
from dptopk.datasets.backends.quoting import quote_name
from dptopk.datasets.backends.total import (
    cast_of_numbers,
    is_extraction,
    null_by_zero,
    null_where_unfit,
    replacement_in,
    rounding_below_limit,
)
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.operations as ops
    import ibis.expr.types as ir


def _encode(text: ir.StringValue) -> ir.BinaryValue:
    """Return the bytes of a text in UTF-8, by PostgreSQL's function."""
    return builtin("convert_to", ("string", "string"), "binary")(text, "UTF8")


def _decode(data: ir.BinaryValue) -> ir.StringValue:
    """Return the text of bytes in UTF-8, by PostgreSQL's function."""
    return builtin("convert_from", ("binary", "string"), "string")(data, "UTF8")


def _in_default_collation(text: ir.StringValue) -> ir.StringValue:
    """Return a text in the collation of the database, which hashes it by its bytes; two copies of
    it take less time than its bytes in UTF-8 and back.
    """
    written = builtin("textout", ("string",), "string")(text)
    return builtin("textin", ("string",), "string")(written)


def _mix(*columns: ir.Value) -> ir.IntegerValue:
    """Return a 64-bit hash of some columns: the hashes of texts and of the halves of integers, each
    of which is the seed of the next.

    PostgreSQL has no hash of several values or of bytes, and its hash of 64-bit integers folds them
    to 32 bits first.
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


def _empty_word_list() -> ir.StringValue:
    """Return an empty list of words (tsvector), which PostgreSQL can sort and not hash, made when
    the query is planned. With it DISTINCT sorts rows; without it, it would hash them and sort them
    afterwards.
    """
    return builtin("tsvectorin", ("string",), "string")("")


def _digest(text: ir.StringValue) -> ir.StringValue:
    """Return the SHA-256 of a text in UTF-8 as hexadecimal digits."""
    hashed = builtin("sha256", ("binary",), "binary")(_encode(text))
    return builtin("encode", ("binary", "string"), "string")(hashed, "hex")


def _null_on_overflow(operation: ops.NumericBinary) -> ir.NumericValue | None:
    """Return a sum, difference or product of integers with NULL where it does not fit the type;
    None for other numbers.

    It is computed with decimals, which have as many digits as it takes.
    """
    kind = operation.dtype
    if not kind.is_integer():
        return None
    wide = {
        name: getattr(operation, name).to_expr().cast("decimal").op() for name in ("left", "right")
    }
    result = operation.copy(**wide).to_expr()
    fits = result.between(kind.bounds.lower, kind.bounds.upper)
    return fits.ifelse(result, None).cast(kind)


def _null_where_infinite(operation: ops.Value) -> ir.Value:
    """Return a field of a time, such as its year, with NULL for infinite times, whose fields are
    infinite as well.
    """
    return null_where_unfit(operation, builtin("isfinite", (operation.args[0].dtype,), "boolean"))


def with_types_of_ibis(table: ir.Table) -> ir.Table:
    """Return the table with its enums as text, and object identifiers as integers, for which Ibis
    takes them. Which columns are such is read from the catalogue, not from rows.

    A domain keeps its type, and with it whatever it takes for equal.

    Raises:
        InvalidParameter: for a database in another encoding than UTF-8.
    """
    import ibis.expr.operations as ops

    _refuse_other_encodings(table)
    schema = table.schema()
    # Ibis states these types for enums and object identifiers.
    doubtful = [name for name, kind in schema.items() if kind.is_string() or kind.is_int64()]
    if not doubtful:
        return table
    others = _enums_and_identifiers(table, doubtful)
    # Ibis would leave out a cast to the type that it states, written as ``table[name].cast``.
    converted = {name: ops.Cast(table[name], schema[name]).to_expr() for name in others}
    if converted:
        return table.mutate(**converted)
    return table


def _refuse_other_encodings(table: ir.Table) -> None:
    """Refuse a table of a database that is not in UTF-8: some texts of other encodings have no
    bytes in UTF-8, and one of them would refuse every question.

    Raises:
        InvalidParameter: naming the encoding.
    """
    with table.get_backend().begin() as cursor:
        cursor.execute("SHOW server_encoding")
        (encoding,) = cursor.fetchone()
    if encoding != "UTF8":
        raise InvalidParameter(
            f"table: the database stores text in {encoding}; copy the table to one in UTF8, or to "
            f"a Parquet file"
        )


def _enums_and_identifiers(table: ir.Table, columns: list[str]) -> list[str]:
    """Return which of some columns of a table are enums or object identifiers, by name; no row is
    read.
    """
    connection = table.get_backend()
    types = ", ".join(f"pg_typeof(events.{quote_name(name)})::oid" for name in columns)
    # The other columns may be of types that Ibis cannot write, such as points without PostGIS.
    query = connection.compile(table.select(columns))
    # One row of NULLs, which have the types of the columns.
    row_of_nulls = f"(SELECT 1) AS nothing LEFT JOIN ({query}) AS events ON false"
    with connection.begin() as cursor:
        cursor.execute(f"SELECT {types} FROM {row_of_nulls}")  # noqa: S608
        type_of_column = dict(zip(columns, cursor.fetchone(), strict=True))
        all_types = ", ".join(str(int(oid)) for oid in type_of_column.values())
        others = "SELECT oid FROM pg_type WHERE (typtype = 'e' OR typname = 'oid')"
        cursor.execute(f"{others} AND oid IN ({all_types})")
        other_types = {oid for (oid,) in cursor.fetchall()}
    return [name for name, oid in type_of_column.items() if oid in other_types]


# An operation that may fail -> what is written instead of it (``replacement_in``).
_TOTAL: dict[str, Callable[..., ir.Value | None]] = {
    "Cast": cast_of_numbers,
    "TryCast": cast_of_numbers,
    "Add": _null_on_overflow,
    "Subtract": _null_on_overflow,
    "Multiply": _null_on_overflow,
    "Divide": null_by_zero,
    "Modulus": null_by_zero,
    "Floor": rounding_below_limit,
    "Ceil": rounding_below_limit,
    "Round": rounding_below_limit,
}


def _total(operation: ops.Value) -> ir.Value | None:
    """Return an equal operation that gives NULL where this one would fail, or where a field of a
    time would be infinite; None if none is known, so that the operation is refused.
    """
    if is_extraction(operation):
        return _null_where_infinite(operation)
    return replacement_in(_TOTAL, operation)


POSTGRES = Backend(
    name="postgres",
    encode=_encode,
    decode=_decode,
    mix=_mix,
    hashable=_in_default_collation,
    digest=_digest,
    unhashed=_empty_word_list,
    total=_total,
    refuses_late=True,
)
