"""Relations of DuckDB's Python API: read by one statement on their own connection, if their SQL
looks at one row at a time and fails for no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from dptopk.datasets.backends.base import ALIKE, hide_data_of_errors, import_of_extra
from dptopk.datasets.backends.extremes import planned_without_extremes, statements_beside
from dptopk.datasets.backends.quoting import quote_name, text_literal
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyRelation
    from sqlglot import exp

_NAME = "dptopk_relation"
_ALLOWED = (
    "table: a relation of DuckDB may pick, rename and TRY_CAST columns of tables and frames, keep "
    "rows that hold comparisons of one column, under its name in a table, with constants (a text "
    "must be a value of the column's type, a number stands beside numbers alone), and be a UNION "
    "ALL of such"
)
# What each part of a query may hold. Every other part is refused, also those of a later SQL.
_PARTS: dict[str, set[str]] = {
    "Alias": {"this", "alias"},
    "And": {"this", "expression"},
    "Between": {"this", "low", "high"},
    "Boolean": {"this"},
    "CTE": {"this", "alias"},
    "Column": {"this", "table"},
    "DataType": {"this", "expressions"},
    "DataTypeParam": {"this"},
    "EQ": {"this", "expression"},
    "From": {"this"},
    "GT": {"this", "expression"},
    "GTE": {"this", "expression"},
    "Identifier": {"this", "quoted"},
    "In": {"this", "expressions"},
    "Is": {"this", "expression"},
    "LT": {"this", "expression"},
    "LTE": {"this", "expression"},
    "Literal": {"this", "is_string"},
    "NEQ": {"this", "expression"},
    "Neg": {"this"},
    "Not": {"this"},
    "Null": set(),
    "Or": {"this", "expression"},
    "Paren": {"this"},
    "Select": {"expressions", "from", "from_", "where", "with", "with_"},
    "Star": set(),
    "Subquery": {"this", "alias"},
    "Table": {"this", "db", "catalog", "alias"},
    "TableAlias": {"this"},
    "TryCast": {"this", "to", "safe"},
    "Union": {"this", "expression", "with", "with_"},
    "Where": {"this"},
    "With": {"expressions"},
}
# The parts of a condition: those that join conditions, and those that compare.
_JOINING = ("And", "Or", "Not", "Paren", "Where")
_COMPARING = ("EQ", "NEQ", "GT", "GTE", "LT", "LTE", "In", "Between")
_CONDITIONS = (*_JOINING, *_COMPARING, "Is", "Boolean")
# A name that ends so is a file, whose rows the rules for files would read in another way.
_FILES = (".parquet", ".pq", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".gz", ".zst", ".xlsx")
# Columns of these types are compared with any number without a conversion that may fail.
_NUMBERS = {
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("FLOAT", "DOUBLE"),
}

# A type of decimals as DuckDB writes it: its digits, and how many of them are after the point.
_DECIMAL = re.compile("DECIMAL[(]([0-9]+),([0-9]+)[)]")
_DIGITS = 38  # of the longest decimals of DuckDB
_CONSTANT_DIGITS = 18  # on either side of the point of a constant that is let in
# A constant number that is let in: with few digits, or with an exponent.
_SHORT = re.compile(f"[0-9]{{0,{_CONSTANT_DIGITS}}}([.][0-9]{{0,{_CONSTANT_DIGITS}}})?|.+[eE].+")


def from_relation(relation: DuckDBPyRelation, names: Sequence[str]) -> pa.RecordBatchReader:
    """Return these columns of a relation, which one statement reads.

    Raises:
        InvalidParameter: when its SQL may look at several rows, reads files or may fail for a
            value, or a column takes different texts for equal.
    """
    pyarrow = import_of_extra("pyarrow", extra="data")
    query = hide_data_of_errors("table", "the relation has no SQL", relation.sql_query)
    _refuse_across_rows(query, relation)
    types = dict(zip(relation.columns, map(str, relation.types), strict=True))
    columns = relation.project(", ".join(_in_arrow(name, types[name]) for name in names))
    for name, kind in zip(columns.columns, map(str, columns.types), strict=True):
        if kind.startswith("VARCHAR"):
            _refuse_collation(columns, name)

    execute = statements_beside(relation)

    def batches() -> Iterator[pa.RecordBatch]:
        """Yield the rows, a batch at a time."""
        plan = partial(pyarrow.RecordBatchReader.from_stream, columns)
        with planned_without_extremes(execute, plan) as reader:
            try:
                yield from reader
            finally:  # the connection runs no other statement before
                reader.close()

    def run() -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        with planned_without_extremes(execute, columns.limit(0).to_arrow_table) as no_rows:
            return pyarrow.RecordBatchReader.from_batches(no_rows.schema, batches())

    return hide_data_of_errors("table", "the relation cannot be run", run)


def _in_arrow(name: str, kind: str) -> str:
    """Return the SQL of a column in a type that Arrow data can hold: DuckDB hands the largest
    integers of 128 bits without a sign over as negative ones.

    Args:
        name: the name of the column.
        kind: its type, as DuckDB writes it.
    """
    quoted = quote_name(name)
    if kind != "UHUGEINT":
        return quoted
    return f"TRY_CAST({quoted} AS HUGEINT) AS {quoted}"


@dataclass(frozen=True)
class _Columns:
    """The columns of a relation that a condition may compare with constants.

    Attributes:
        relation: the relation, on whose connection types and constants are tried.
        types: name of a column, in lower case -> its types in the result and the tables.
    """

    relation: DuckDBPyRelation
    types: Mapping[str, set[str]]

    def types_of(self, column: exp.Expression) -> set[str]:
        """Return the types of a column or TRY_CAST; none where they are not known, as of a name
        that the query gives.
        """
        if type(column).__name__ == "TryCast":
            kind = column.args["to"].sql("duckdb")
            return set(map(str, self._select_value(f"CAST(NULL AS {kind})").types))
        return self.types.get(column.name.casefold(), set())

    def can_hold(self, constant: exp.Expression, kind: str) -> bool:
        """Return whether a constant becomes a value of a type; one that does not fails where there
        is a row, and not where there is none.
        """
        try:
            self._select_value(f"CAST({constant.sql('duckdb')} AS {kind})").fetchall()
        except Exception:  # noqa: BLE001 - DuckDB has many errors for a bad cast
            return False
        return True

    def _select_value(self, value: str) -> DuckDBPyRelation:
        """Return the relation with one row of this value, an expression of SQL."""
        return cast("DuckDBPyRelation", self.relation.query(_NAME, f"SELECT {value}"))


def _column_types(
    relation: DuckDBPyRelation, tables: Iterable[exp.Expression]
) -> dict[str, set[str]]:
    """Return the types of columns, by their names in lower case, in the result and in each table
    that has them.

    A table that is not known, as a frame, has the types of the result where it is the only one;
    beside another table none is known, since the result's may be wider than its own.

    Args:
        relation: the relation.
        tables: the tables that its query names.
    """
    table_of_name = {table.sql("duckdb"): table for table in tables}
    sources = [_table_relation(relation, table) for table in table_of_name.values()]
    present_sources = [source for source in sources if source is not None]
    types = dict[str, set[str]]()
    if len(present_sources) < len(sources):
        if len(sources) > 1:
            return types
        present_sources = []
    for source in (relation, *present_sources):
        for name, kind in zip(source.columns, map(str, source.types), strict=True):
            types.setdefault(name.casefold(), set()).add(kind)
    return types


def _table_relation(relation: DuckDBPyRelation, table: exp.Expression) -> DuckDBPyRelation | None:
    """Return a table of the relation's connection, by its name; None where it is not known there,
    as of a frame.
    """
    table_without_alias = table.copy()
    table_without_alias.set("alias", None)
    name = table_without_alias.sql("duckdb")
    try:
        return relation.query(_NAME, f"SELECT * FROM {name}")  # noqa: S608
    except Exception:  # noqa: BLE001 - DuckDB has many errors for what is no table
        return None


def _refuse_collation(relation: DuckDBPyRelation, name: str) -> None:
    """Refuse a column in which different texts are equal: they would be several users here. No row
    is read: the largest of none is NULL, and is compared as values of the column are.

    Raises:
        InvalidParameter: naming the column.
    """
    largest = f"(SELECT max({quote_name(name)}) FROM {_NAME} WHERE false)"  # noqa: S608
    comparisons = [
        f"coalesce({largest}, {text_literal(first)}) = {text_literal(second)}"
        for first, second in ALIKE
    ]
    query = f"SELECT {', '.join(comparisons)}"
    answer = hide_data_of_errors(
        "table", "the engine could not compare texts", lambda: relation.query(_NAME, query)
    )
    if answer is None or any(answer.fetchall()[0]):  # a query always has an answer
        raise InvalidParameter(
            f"table: the column {name!r} has a collation; give an Ibis table of its connection"
        )


def _refuse_across_rows(query: str, relation: DuckDBPyRelation) -> None:
    """Refuse a query of which a result row may depend on several rows, or which may fail for a
    value.

    Raises:
        InvalidParameter: naming the part of the query.
    """
    sqlglot = import_of_extra("sqlglot", extra="data")
    statements = hide_data_of_errors(
        "table",
        "the relation's SQL cannot be parsed",
        lambda: sqlglot.parse(query, dialect="duckdb"),
    )
    if len(statements) != 1 or statements[0] is None:
        raise InvalidParameter(f"{_ALLOWED}; its SQL is not one query")
    nodes = list(statements[0].walk())
    columns = _columns_of_tables(relation, nodes)
    for node in nodes:
        if not _is_allowed(node, columns):
            raise InvalidParameter(f"{_ALLOWED}; {type(node).__name__} may not be in it so")


def _columns_of_tables(relation: DuckDBPyRelation, nodes: Sequence[exp.Expression]) -> _Columns:
    """Return the columns of the tables that a relation's query names, with their types.

    Args:
        relation: the relation.
        nodes: all parts of its query.
    """
    renamed = {node.alias.casefold() for node in nodes if type(node).__name__ == "Alias"}
    subqueries = {node.alias.casefold() for node in nodes if type(node).__name__ == "CTE"}
    named = [node for node in nodes if type(node).__name__ == "Table" and _is_named(node)]
    tables = [table for table in named if table.name.casefold() not in subqueries]
    types = _column_types(relation, tables)
    # The types of a name that the query gives are not those of the table's column of that name.
    return _Columns(relation, {name: types[name] for name in types.keys() - renamed})


def _is_allowed(node: exp.Expression, columns: _Columns) -> bool:
    """Return whether a part of a query looks at one row only, and fails for no row.

    Args:
        node: the part; its own parts are judged by themselves.
        columns: the columns that the query names, with their types.
    """
    kind = type(node).__name__
    present = {name for name, value in node.args.items() if value}
    if kind not in _PARTS or not present <= _PARTS[kind]:
        return False
    if kind in _COMPARING:
        return _compares_without_failing(node, columns)
    check = _CHECKS.get(kind)
    return check is None or check(node)


def _class_names(node: exp.Expression) -> list[str]:
    """Return the class names of the expressions in an expression, in their order."""
    return [type(inner).__name__ for inner in node.iter_expressions()]


def _joins_conditions(node: exp.Expression) -> bool:
    """Return whether a condition is made of conditions, of which none converts a column to a truth
    value.
    """
    return set(_class_names(node)) <= set(_CONDITIONS)


def _is_named(table: exp.Expression) -> bool:
    """Return whether a table is known to the connection by its name, and is no function and no
    file.
    """
    name = table.name.casefold()
    is_identifier = type(table.this).__name__ == "Identifier"
    return is_identifier and "/" not in name and not name.endswith(_FILES)


def _picks_columns(select: exp.Expression) -> bool:
    """Return whether a projection only picks columns of the table."""
    kinds = {type(expression).__name__ for expression in select.expressions}
    return kinds <= {"Column", "Star", "TryCast", "Alias"}


def _is_of_column(node: exp.Expression) -> bool:
    """Return whether an alias or a TRY_CAST is that of a column, or of a TRY_CAST of one."""
    return _class_names(node)[0] in ("Column", "TryCast")


def _compares_without_failing(node: exp.Expression, columns: _Columns) -> bool:
    """Return whether one column is compared with constants, without a conversion that can fail.

    Beside a text DuckDB converts the text, which must be a value of the column's type. Beside a
    number it may convert the column: this never fails for numbers alone.

    Args:
        node: the comparison.
        columns: the columns that the query names.
    """
    column, *constants = node.iter_expressions()
    kinds = {_constant_kind(constant) for constant in constants}
    if type(column).__name__ not in ("Column", "TryCast"):
        return False
    types = columns.types_of(column)
    if not types:
        return False
    if kinds == {"text"}:
        return all(columns.can_hold(constant, kind) for constant in constants for kind in types)
    if kinds != {"number"} or not all(map(_is_short, constants)):
        return False
    return all(map(_is_number, types))


def _is_short(constant: exp.Expression) -> bool:
    """Return whether a constant number has few digits on either side of the point, or an exponent,
    with which it is a floating-point number.
    """
    return bool(_SHORT.fullmatch(constant.sql("duckdb").lstrip("-")))


def _is_number(kind: str) -> bool:
    """Return whether a type is one of numbers that DuckDB compares with any short constant."""
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        return kind in _NUMBERS
    places = int(decimal[2])
    whole_digits = int(decimal[1]) - places
    # DuckDB compares in a decimal type with the most digits on either side of the point.
    return max(whole_digits, _CONSTANT_DIGITS) + max(places, _CONSTANT_DIGITS) <= _DIGITS


def _constant_kind(node: exp.Expression) -> str:
    """Return the kind of a constant: text, number or other."""
    literal = node.this if type(node).__name__ == "Neg" else node
    if type(literal).__name__ != "Literal":
        return "other"
    if literal.is_string:
        return "text"
    return "number"


# A part of a query -> what must hold for it, beyond the arguments of _PARTS.
_CHECKS: dict[str, Callable[[exp.Expression], bool]] = {
    **dict.fromkeys(_JOINING, _joins_conditions),
    **dict.fromkeys(("Alias", "TryCast"), _is_of_column),
    "Is": lambda node: _class_names(node) == ["Column", "Null"],
    "Select": _picks_columns,
    "Table": _is_named,
}
