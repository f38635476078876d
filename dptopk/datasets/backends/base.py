"""Interface of an engine to the bounding of events: a table, execution of expressions, and what
Ibis lacks.

All queries are Ibis expressions. What an engine does in its own way is a Backend, written as data
in its own file; what all of them must have in common is the contract (contract.py), which a backend
passes before it is let in.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np

from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from types import ModuleType

    import ibis.expr.operations as ops
    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends import BaseBackend

    from dptopk.datasets.backends.inputs import Constant, IbisType
    from dptopk.histogram.stored_labels import StoredLabels

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
_LOG = logging.getLogger(__name__)
# Rows that are Python objects at one time.
BATCH = 2**16
# The number of events that are looked at to choose between query plans. If the share of different
# ones among them is below REPEATED, they are made distinct first.
SAMPLE = 2**16
REPEATED = 2 / 3

# Pairs of texts that a collation may take for equal: they differ in case, an accent, two spellings
# of one letter, a character that is not printed, and a space at the end.
ALIKE = (("a", "A"), ("a", "á"), ("é", "e\u0301"), ("a", "a\x01"), ("a", "a "))


def nan_of_ibis(column: ir.FloatingColumn) -> ir.BooleanValue:
    """Return whether each number of a floating-point column is NaN, asked in the way of Ibis."""
    return column.isnan()


def digits_of_ibis(text: ir.StringValue) -> ir.StringValue:
    """Return the SHA-256 of a text in UTF-8 as hexadecimal digits, for the engines on which Ibis
    has it.
    """
    return text.hexdigest("sha256")


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The operations that an engine does differently from the Ibis defaults.

    Args:
        name: the name of the Ibis backend, such as "postgres".
        encode: the function of Ibis columns that returns the bytes of a text in UTF-8; None: text
            is ordered, compared and hashed by its bytes always, under whatever settings.
        decode: the function that returns the text of such bytes; None where ``encode`` is.
        mix: the function that returns a 64-bit hash of one to three columns or literals, text,
            bytes or integers, as an integer column; None: the SHA-256 is used instead, as with
            ``portable=True``.
        hashable: the function of a text column that returns the text as ``mix`` hashes it faster
            than its bytes; it is given to ``mix`` instead of the bytes of ``encode``. None: bytes
            are hashed.
        digest: the function that returns the hexadecimal digits of the SHA-256 of a text.
        keep: the function of a connection, a name and an expression that returns a temporary table
            of this name with the expression's rows, instead of an earlier one. It is for engines on
            which several statements are faster than one: 64-bit codes that no two texts share stand
            for the texts of users and labels. None: a histogram is always one statement.
        bytewise: whether texts of which no two different ones are equal are sorted by their bytes,
            as fast as those.
        peers: whether rank and dense_rank give equal rows one place; else pairs are grouped before
            they are ranked.
        unhashed: the function that returns a constant of a type that can be sorted and not hashed:
            DISTINCT of rows with it sorts them, in the order in which they are ranked next. None:
            repeated events are ranked too, with equal places.
        full: the function that returns whether an error of the engine says that its memory is too
            small; a query of fewer users may then fit.
        nan: the function that returns whether a floating-point column is NaN. An engine that reads
            files may answer isnan by statistics of the file, which leave NaN out; it then needs
            another form.
        decimals: the most digits of a decimal number; None: any number. Beyond it a comparison
            fails for a value.
        decimal_or_null: the function that returns a decimal column with NULL for numbers of more
            digits than its type has, which files and Arrow data may hold. None: the engine fails on
            none of them.
        total: the function that takes an operation on one row which may fail for a value of it,
            such as a cast (an Ibis node), and returns an expression that gives NULL instead, or
            None where there is none. None: such operations of a caller are refused.
        refuses_late: whether the engine finds that it lacks an operation for texts of some
            collation only when a row holds a text; each is then tried on made-up texts first.

    >>> Backend(name="duckdb").peers
    True
    """

    name: str
    encode: Callable[[ir.StringValue], ir.BinaryValue] | None = None
    decode: Callable[[ir.BinaryValue], ir.StringValue] | None = None
    mix: Callable[..., ir.IntegerValue] | None = None
    hashable: Callable[[ir.StringValue], ir.StringValue] | None = None
    digest: Callable[[ir.StringValue], ir.StringValue] = digits_of_ibis
    keep: Callable[[BaseBackend, str, ir.Table], ir.Table] | None = None
    bytewise: bool = False
    peers: bool = True
    unhashed: Callable[[], ir.Value] | None = None
    full: Callable[[Exception], bool] = lambda _: False
    nan: Callable[[ir.FloatingColumn], ir.BooleanValue] = nan_of_ibis
    decimals: int | None = None
    decimal_or_null: Callable[[ir.DecimalColumn], ir.DecimalColumn] | None = None
    total: Callable[[ops.Value], ir.Value | None] | None = None
    refuses_late: bool = False

    def __post_init__(self) -> None:
        if (self.encode is None) != (self.decode is None):
            raise InvalidParameter("encode and decode go together: text to its bytes, and back")
        if self.keep is not None and self.mix is None:
            raise InvalidParameter("keep: codes need a hash of the engine's own, mix")


class RowStream(Protocol):
    """A function that runs an expression, and hands its rows on as they come."""

    def __call__(
        self, expression: ir.Table, take: Callable[[pa.RecordBatchReader], Result]
    ) -> Result:
        """Return what ``take`` returns for the rows of the expression."""
        ...


class HeldCounts(Protocol):
    """Counts by label that the engine holds, computed once."""

    def __len__(self) -> int:
        """Return the number of labels."""
        ...

    def columns(self) -> dict[str, Array]:
        """Return all labels (``item``) and their counts, in any order."""
        ...

    def totals(self, names: Sequence[str]) -> dict[str, Array]:
        """Return the sums of columns over all labels, each of shape (1,)."""
        ...

    def in_order(self, names: Sequence[str]) -> UnreadColumns:
        """Return the labels and these counts in the order of a histogram: by falling counts, ties
        by label.

        Args:
            names: the names of the counts; "count", by which they are ordered, is one of them.
        """
        ...


class CountsAndLabels(NamedTuple):
    """Counts by label, and the labels where these stay in the engine.

    Attributes:
        columns: the sums by name, each of shape (rows,), and the column item where labels is None.
        labels: the labels of the rows, which are read when they are asked for; None: they are the
            column item.
    """

    columns: dict[str, Array]
    labels: StoredLabels | None


class UnreadColumns(Protocol):
    """Counts in the order of a histogram, whose labels are read when they are asked for."""

    def columns(self, sums: Sequence[str]) -> CountsAndLabels:
        """Return the columns ``sums`` as arrays, shape (rows,) each, and the labels of the rows,
        which are read when they are asked for.
        """
        ...


class UnreadRows(UnreadColumns, Protocol):
    """Counts in a table of the engine's own, in the order of a histogram, beside further tables
    from which it was made.
    """

    def compress(self) -> None:
        """Let the engine hold its tables in less memory."""
        ...

    def forget(self) -> None:
        """Drop the tables that are not needed any more."""
        ...


@dataclass(frozen=True)
class OpenTable:
    """An Ibis table and the way to run expressions on it.

    Attributes:
        table: the events, one row an event.
        run: the function that returns the rows of an Ibis expression as a pyarrow.Table.
        distinct: whether no two events are of one user and one label, so that repeated ones need
            not be looked for.
        stream: the function that hands the rows of an Ibis expression, as a
            pyarrow.RecordBatchReader, to a function and returns its result: nothing else is in
            memory. None: ``run`` is used.
        backend: what its engine does in its own way.
        passes: into how many parts the users are split, one query each, so that a query fits in
            memory; None: one, and more where the engine says that its memory is full.
        close: the function that gives back what was opened for this table; it is called on leaving
            a ``with`` block.
        collated: whether its text may have a collation, in which different texts are equal.
        keep: the function that puts the rows of an expression into a temporary table of a name and
            returns that; None: the rows may change between two statements, and a histogram is one
            statement.
        store: the function that returns the rows of tables that ``keep`` made, by their names;
            labels stay there until they are shown. None: labels are read with the counts.
        count: the function that runs an expression of counts by label once, and returns what the
            engine then holds, of which few or all rows can be read; None if the engine holds
            nothing, as where there is no such function.
        view: the function that returns the events that a question reads as a table of a name that
            is the same in the next question; None: the SQL of expressions is not remembered.
        load: the function that returns a pyarrow.Table as an engine's table of a name; None: rows
            cannot be handed back, or ``stream`` may not keep to their order.
        together: the function that returns an expression with a column ``user`` with each user's
            rows in one place, where that saves the engine later shuffles.
    """

    table: ir.Table
    run: Callable[[ir.Table], pa.Table]
    backend: Backend
    passes: int | None = None
    close: Callable[[], None] = lambda: None
    collated: bool = True
    keep: Callable[[str, ir.Table], ir.Table] | None = None
    together: Callable[[ir.Table], ir.Table] = lambda events: events
    stream: RowStream | None = None
    distinct: bool = False
    store: Callable[..., UnreadRows] | None = None
    count: Callable[[ir.Table], HeldCounts | None] | None = None
    view: Callable[[ir.Table], ir.Table] | None = None
    load: Callable[[str, pa.Table], ir.Table] | None = None

    def __enter__(self) -> OpenTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def columns(self, expression: ir.Table) -> dict[str, Array]:
        """Run an expression, and return its columns by name, as arrays."""
        if self.stream is not None:
            return self.stream(expression, arrays_of)
        return arrays_of(self.run(expression).to_reader())

    def exact_text(self, column: ir.Column) -> ir.Column:
        """Return a column, with text as its bytes on an engine where "A" and "a" might be equal:
        otherwise the label that is shown would be the spelling of one user.
        """
        if self.collated and column.type().is_string():
            encode = self.backend.encode
        else:
            encode = None
        if encode is None:
            return column
        return encode(column)

    def equates_texts(self, name: str) -> bool:
        """Return whether a column can treat different texts as equal, as under a collation; no row
        is read.

        The largest of no rows is NULL, so that a pair of texts is compared, but as values of this
        column are. Every collation of the engines that takes different texts for one does so for
        one of these pairs.
        """
        import ibis

        if not self.collated or not self.table[name].type().is_string():
            return False
        no_rows = self.table.filter(ibis.literal(False))
        aggregates = {
            f"p{place}": ibis.coalesce(no_rows[name].max(), first) == second
            for place, (first, second) in enumerate(ALIKE)
        }
        answer = hide_data_of_errors(
            "table",
            "the engine could not compare texts",
            lambda: self.run(no_rows.agg(**aggregates)),
        )
        # NULL for a comparison says nothing, and counts as equal.
        return any(value is None or value for value in answer.to_pylist()[0].values())

    def user_column(self, name: str, column: ir.Column) -> ir.Column:
        """Return a column of users in which two rows are equal where the engine takes their texts
        for one user.

        Under a collation each user is the first, by its bytes, of the texts that are equal there.
        """
        if not self.equates_texts(name):
            if self.backend.bytewise:
                return column
            return self.exact_text(column)
        exact = self.exact_text(column)
        return exact.first().over(group_by=column, order_by=exact)

    def is_one_of(self, column: ir.Column, values: Sequence[Constant]) -> ir.BooleanValue:
        """Return whether a column holds one of some values of its type; texts are compared by their
        bytes.
        """
        import ibis

        exact = self.exact_text(column)
        if exact is column:  # it is compared by its bytes as it is
            return column.isin(values)
        return exact.isin([self.exact_text(ibis.literal(value)) for value in values])

    def text(self, column: ir.Column) -> ir.StringValue:
        """Return as text a column that ``exact_text`` may have made bytes."""
        if column.type().is_binary() and self.backend.decode is not None:
            return self.backend.decode(column)
        return column.cast("string")

    def mix(self, *columns: ir.Value) -> ir.IntegerValue:
        """Return a 64-bit hash of some columns or literals, by the engine's own fast function,
        which may change with the version of the engine.

        Raises:
            InvalidParameter: if the engine has none.
        """
        if self.backend.mix is None:
            raise InvalidParameter(f"the backend {self.backend.name!r} has no hash function")
        return self.backend.mix(*columns)


def arrays_of(batches: pa.RecordBatchReader) -> dict[str, Array]:
    """Return the columns of a pyarrow.RecordBatchReader as arrays, in the smallest types that hold
    them: most labels take 16 bytes.

    Arrow's own conversions to NumPy, and its empty arrays, load pandas, which takes 35 MiB while
    the engine holds the rows.
    """
    parts = {field.name: [_no_values(field.type)] for field in batches.schema}
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH):
            for name, column in zip(parts, batch.slice(start, BATCH).columns, strict=True):
                parts[name].append(_array(column))
    return {name: _concatenate(parts.pop(name)) for name in list(parts)}


def _concatenate(parts: list[Array]) -> Array:
    """Return the parts as one array; the list is emptied meanwhile, which saves memory."""
    size = sum(map(len, parts))
    whole = np.empty(size, dtype=np.result_type(*parts))
    end = whole.size
    while parts:
        last = parts.pop()
        whole[end - len(last) : end] = last
        end -= len(last)
    return whole


def _no_values(kind: pa.DataType) -> Array:
    """Return an empty array for a column of this type of Arrow's, to which arrays of ``_array`` can
    be appended.
    """
    import pyarrow as pa

    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return np.empty(0, dtype=np.uint8)  # the smallest type, so that the others' type decides
    return np.empty(0, dtype=np.dtypes.StringDType())


def _array(column: pa.Array) -> Array:
    """Return an Arrow column as a numpy array; bytes become text, which they hold in UTF-8."""
    import pyarrow as pa

    if pa.types.is_decimal(column.type):  # as DuckDB gives sums
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        array: Array = np.from_dlpack(column)
        smallest_type = np.min_scalar_type(array.max(initial=0))
        # Beside negative numbers of another part, unsigned ones of 64 bits would all become
        # floating-point numbers.
        if array.min(initial=0) < 0 or smallest_type.itemsize == 8:
            return array
        return array.astype(smallest_type)
    texts = column.cast(pa.string()).to_pylist()
    return np.array(texts, dtype=np.dtypes.StringDType())


@cache
def builtin(
    name: str, argument_types: tuple[IbisType, ...], value_type: IbisType
) -> Callable[..., ir.Value]:
    """Return a function of Ibis columns that calls a function which the engine has by this name.

    Args:
        name: the name of the function in the engine's SQL.
        argument_types: the Ibis types of its arguments.
        value_type: the Ibis type of its value.
    """
    import ibis

    # Ibis takes the name and the number of arguments of a function, whose body never runs.
    def stub(*_: Any) -> None: ...

    parameters = [
        Parameter(f"a{place}", Parameter.POSITIONAL_OR_KEYWORD)
        for place in range(len(argument_types))
    ]
    stub.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return ibis.udf.scalar.builtin(stub, name=name, signature=(argument_types, value_type))


class MemoryFull(InvalidParameter):
    """The engine's memory is too small for a query; one of fewer users may fit."""


def hide_data_of_errors(
    argument: str,
    what: str,
    action: Callable[[], Result],
    *,
    full: Callable[[Exception], bool] = lambda _: False,
) -> Result:
    """Run an action of an engine; any error of its becomes InvalidParameter, since engines quote
    rows in messages.

    It is a function and no context manager, so that the engine's error is not kept as the context
    of ours either.

    Args:
        argument: the argument that the message names.
        what: what failed, in words.
        action: the call to the engine.
        full: whether an error says that the engine's memory is too small.

    Raises:
        MemoryFull: if ``full`` says so.
        InvalidParameter: for any other error of the engine.
    """
    try:
        return action()
    except (InvalidParameter, ImportError):
        raise
    except Exception as error:  # noqa: BLE001 - an engine may raise anything
        reason = _missing_operation(error)
        kind = InvalidParameter
        if full(error):
            reason = "; its memory is too small"
            kind = MemoryFull
    raise kind(f"{argument}: {what}{reason}")


def _missing_operation(error: Exception) -> str:
    """Return the end of a message: the names of the operations that the engine lacks, if this is an
    error of Ibis that names them; else "". The type of the error is logged.
    """
    _LOG.info("the engine raised %s", type(error).__name__)
    if type(error).__module__ != "ibis.common.exceptions":
        return ""
    import ibis.expr.operations as ops

    # Only names of Ibis's own operations are repeated: other words may be data.
    operations = dict.fromkeys(
        word for word in re.findall(r"\w+", str(error)) if word[:1].isupper() and hasattr(ops, word)
    )
    if operations:
        return f": it has no {'/'.join(operations)}"
    return ""


def import_of_extra(module: str, *, extra: str) -> ModuleType:
    """Return a module of an optional dependency.

    Args:
        module: its name, such as "ibis".
        extra: the extra of dptopk that installs it.

    Raises:
        ImportError: when it is not installed; the message says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"events need {package}: pip install 'dptopk[{extra}]'") from error
