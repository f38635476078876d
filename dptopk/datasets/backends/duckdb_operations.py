"""What DuckDB does in its own way: the bytes of texts, hashes, numbers, errors, and operations that
give NULL where they would fail.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import Backend, builtin, import_of_extra
from dptopk.datasets.backends.statements import keep_table
from dptopk.datasets.backends.total import GROWING
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.operations as ops
    import ibis.expr.types as ir


def _encode(text: ir.StringValue) -> ir.BinaryValue:
    """Return the bytes of a text in UTF-8, by DuckDB's function."""
    return builtin("encode", ("string",), "binary")(text)


def _decode(data: ir.BinaryValue) -> ir.StringValue:
    """Return the text of bytes in UTF-8, by DuckDB's function."""
    return builtin("decode", ("binary",), "string")(data)


def hash_of(*columns: ir.Value) -> ir.IntegerValue:
    """Return DuckDB's own 64-bit hash of some columns."""
    types = tuple(column.type() for column in columns)
    return builtin("hash", types, "uint64")(*columns)


def _mix(*columns: ir.Value) -> ir.IntegerValue:
    """Return a 64-bit hash of some columns: DuckDB's hash of their joint hash.

    DuckDB joins the hashes of several values by XOR. Without the second hash the order of two items
    would be decided for all users by one bit of the user's hash: the highest one in which the
    hashes of the items differ.
    """
    return hash_of(hash_of(*columns))


# What DuckDB says where memory is short: of its own limit, and of an address space that is too
# small, in which a page of a Parquet file cannot be decompressed. A damaged page says the latter
# too, and fails with any number of passes.
FULL = ("Out of Memory Error", "ZSTD Decompression failure", "bad_alloc", "Allocation failure")


def is_memory_full(error: Exception) -> bool:
    """Return whether an error says that memory is short; while batches are read, Arrow raises
    errors of its own with DuckDB's text.
    """
    if type(error).__name__ == "OutOfMemoryException" or isinstance(error, MemoryError):
        return True
    return any(text in str(error) for text in FULL)


def _is_nan(column: ir.FloatingColumn) -> ir.BooleanValue:
    """Return whether each number of a column is NaN, asked of it as the element of a list.

    DuckDB answers isnan of a column by the statistics of a Parquet file, which say nothing about
    NaN; of an element of a list there are none.
    """
    import ibis

    return ibis.array([column])[0].isnan()


def _decimal_or_null(column: ir.DecimalColumn) -> ir.DecimalColumn:
    """Return decimals with NULL for those of more digits than their type has, on which a cast or a
    comparison fails.

    Writers of Parquet files and Arrow data need not count digits, and DuckDB itself hands integers
    of 128 bits over as decimals of 38 digits.
    """
    import ibis

    kind = column.type()
    digits = "9" * kind.precision
    whole_digits = kind.precision - kind.scale
    largest = f"{digits[:whole_digits]}.{digits[whole_digits:]}"
    # The constants are of the column's type, so that the comparison converts no value. A long
    # integer would be converted, and has no value that DuckDB fails on.
    is_in_range = column.between(
        ibis.literal(f"-{largest}").cast(kind), ibis.literal(largest).cast(kind)
    )
    is_integer = builtin("typeof", (kind,), "string")(column) == "HUGEINT"
    return ibis.ifelse(ibis.ifelse(is_integer, True, is_in_range), column, ibis.null())


def _total(operation: ops.Value) -> ir.Value | None:
    """Return the operation in DuckDB's TRY, which gives NULL for a row where it fails; None for an
    operation that TRY cannot make safe, so that it is refused: its texts may fill the memory, or
    its error ends the connection.

    The value is cast to the type that Ibis states, by which the next operation is judged. DuckDB's
    own may be another: a day and an interval make a time in DuckDB and a day in Ibis; a choice
    between a UUID and a text is a UUID in DuckDB, for which other texts fail, and a text in Ibis.

    Raises:
        InvalidParameter: for a constant that is no regular expression.
    """
    import ibis.expr.operations as ops

    if type(operation).__name__ in GROWING or _writes_json(operation):
        return None
    _refuse_invalid_pattern(operation)
    expression = operation.to_expr()
    kind = expression.type()
    if kind.is_string() or kind.is_date() or kind.is_timestamp() or kind.is_time():
        expression = ops.Cast(operation, kind).to_expr()
    return builtin("try", (kind,), kind)(expression)


def _writes_json(operation: ops.Value) -> bool:
    """Return whether an operation writes values of other types as JSON. For some times it ends in
    an internal error, which TRY does not catch and which ends the connection.
    """
    import ibis.expr.operations as ops

    is_cast = isinstance(operation, ops.Cast | ops.TryCast)
    return is_cast and operation.to.is_json() and not operation.arg.dtype.is_string()


def _refuse_invalid_pattern(operation: ops.Value) -> None:
    """Refuse a constant that is no regular expression, or no replacement for one, which would give
    NULL for every row.

    Raises:
        InvalidParameter: with the constant, which is the caller's.
    """
    import ibis.expr.operations as ops

    if not isinstance(operation, ops.RegexSearch | ops.RegexExtract | ops.RegexReplace):
        return
    parts = [operation.pattern]
    if isinstance(operation, ops.RegexReplace) and isinstance(operation.replacement, ops.Literal):
        parts.append(operation.replacement)
    # A pattern of a column is judged row by row, and NULL gives NULL: neither is a mistake.
    if any(not isinstance(part, ops.Literal) or part.value is None for part in parts):
        return
    texts = [part.value for part in parts]
    try:
        _replace_in_empty_text(*texts)
    except Exception as error:
        listed = " and ".join(map(repr, texts))
        raise InvalidParameter(f"where: DuckDB takes no regular expression {listed}") from error


@cache
def _replace_in_empty_text(pattern: str, replacement: str = "") -> None:
    """Let DuckDB read a regular expression and a replacement, by using them once."""
    duckdb = import_of_extra("duckdb", extra="data")
    with duckdb.connect() as connection:
        query = "SELECT regexp_replace('', ?, ?)"
        connection.execute(query, [pattern, replacement]).fetchall()


DUCKDB = Backend(
    name="duckdb",
    encode=_encode,
    decode=_decode,
    mix=_mix,
    keep=keep_table,
    full=is_memory_full,
    nan=_is_nan,
    decimals=38,
    decimal_or_null=_decimal_or_null,
    total=_total,
)
