"""Relations of DuckDB's Python API: read by one statement on their own connection, if their SQL
looks at one row at a time and fails for no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import ALIKE, hide_data_of_errors, import_of_extra
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyRelation
    from sqlglot import exp

_NAME = "dptopk_relation"
_ALLOWED = (
    "table: a relation of DuckDB may pick, rename and TRY_CAST columns of tables and frames, keep "
    "rows that hold comparisons of one column with constants (of numbers or TRY_CASTs with "
    "numbers), and be a UNION ALL of such"
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


def from_relation(relation: DuckDBPyRelation, names: Sequence[str]) -> pa.RecordBatchReader:
    """Return these columns of a relation, which one statement reads.

    Raises:
        InvalidParameter: when its SQL may look at several rows, reads files or may fail for a
            value, or a column takes different texts for equal.
    """
    pyarrow = import_of_extra("pyarrow", extra="data")
    query = hide_data_of_errors("table", "the relation has no SQL", relation.sql_query)
    _refuse_across_rows(query, relation)
    chosen = relation.project(", ".join(map(_quoted, names)))
    for name, kind in zip(chosen.columns, map(str, chosen.types), strict=True):
        if kind.startswith("VARCHAR"):
            _refuse_collation(chosen, name)
    return hide_data_of_errors(
        "table",
        "the relation cannot be run",
        lambda: pyarrow.RecordBatchReader.from_stream(chosen),
    )


def _number_columns(relation: DuckDBPyRelation, tables: Iterable[exp.Expression]) -> set[str]:
    """Return the names, in lower case, of the columns that are of numbers in the result and in each
    table that has them; of the result alone where a table is not known.
    """
    sources = [_table_relation(relation, table) for table in tables]
    relations = [source for source in sources if source is not None]
    if len(relations) < len(sources):
        relations = []
    numbers = set[str]()
    other_columns = set[str]()
    for source in (relation, *relations):
        for name, kind in zip(source.columns, map(str, source.types), strict=True):
            if kind in _NUMBERS:
                numbers.add(name.casefold())
            else:
                other_columns.add(name.casefold())
    return numbers - other_columns


def _table_relation(relation: DuckDBPyRelation, table: exp.Expression) -> DuckDBPyRelation | None:
    """Return a table of the relation's connection, by its name; None where it is not known there,
    as of a frame.
    """
    table_without_alias = table.copy()
    table_without_alias.set("alias", None)
    name = table_without_alias.sql("duckdb")
    try:
        return relation.query(_NAME, f"SELECT * FROM {name}")  # noqa: S608
    except Exception:  # noqa: BLE001
        return None


def _refuse_collation(relation: DuckDBPyRelation, name: str) -> None:
    """Refuse a column in which different texts are equal: they would be several users here. No row
    is read: the largest of none is NULL, and is compared as values of the column are.
    """
    largest = f"(SELECT max({_quoted(name)}) FROM {_NAME} WHERE false)"  # noqa: S608
    comparisons = [f"coalesce({largest}, {_text(one)}) = {_text(other)}" for one, other in ALIKE]
    query = f"SELECT {', '.join(comparisons)}"
    answer = hide_data_of_errors(
        "table", "the engine could not compare texts", lambda: relation.query(_NAME, query)
    )
    if answer is None or any(answer.fetchall()[0]):
        raise InvalidParameter(
            f"table: the column {name!r} has a collation; give an Ibis table of its connection"
        )


def _refuse_across_rows(query: str, relation: DuckDBPyRelation) -> None:
    """Refuse a query of which a result row may depend on several rows, or which may fail for a
    value.
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
    renamed = {node.alias.casefold() for node in nodes if type(node).__name__ == "Alias"}
    parts = {node.alias.casefold() for node in nodes if type(node).__name__ == "CTE"}
    named_tables = [node for node in nodes if type(node).__name__ == "Table" and _is_named(node)]
    tables = [table for table in named_tables if table.name.casefold() not in parts]
    numbers = _number_columns(relation, tables) - renamed
    for node in nodes:
        if not _is_allowed(node, numbers):
            raise InvalidParameter(f"{_ALLOWED}; {type(node).__name__} may not be in it so")


def _is_allowed(node: exp.Expression, numbers: set[str]) -> bool:
    """Return whether a part of a query looks at one row only, and has a value for every row;
    ``numbers`` are the columns of numbers.
    """
    kind = type(node).__name__
    present = {name for name, value in node.args.items() if value}
    if kind not in _PARTS or not present <= _PARTS[kind]:
        return False
    if kind in _COMPARING:
        return _compares_without_failing(node, numbers)
    check = _CHECKS.get(kind)
    return check is None or check(node)


def _class_names(node: exp.Expression) -> list[str]:
    """Return the class names of the parts of an expression, in their order."""
    return [type(part).__name__ for part in node.iter_expressions()]


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


def _is_column(node: exp.Expression) -> bool:
    """Return whether an expression is a column."""
    return _class_names(node)[0] in ("Column", "TryCast")


def _compares_without_failing(node: exp.Expression, numbers: set[str]) -> bool:
    """Return whether one column is compared with constants, without a conversion of its values that
    can fail.

    TRY_CAST gives NULL for a value that it cannot convert. Other columns must be numbers, or be
    compared with texts alone, as DuckDB would convert texts to the type of a number.
    """
    column, *constants = node.iter_expressions()
    kinds = {_constant(constant) for constant in constants}
    if len(kinds) != 1 or "other" in kinds:
        return False
    if type(column).__name__ == "TryCast":
        return True
    is_number = column.name.casefold() in numbers
    return type(column).__name__ == "Column" and (is_number or kinds == {"text"})


def _constant(node: exp.Expression) -> str:
    """Return the kind of a constant: text, number or other."""
    literal = node.this if type(node).__name__ == "Neg" else node
    if type(literal).__name__ != "Literal":
        return "other"
    return "text" if literal.is_string else "number"


def _quoted(name: str) -> str:
    """Return a name in the quotes of SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _text(value: str) -> str:
    """Return a text as a literal of SQL."""
    escaped = value.replace("'", "''")
    return f"'{escaped}'"


_CHECKS: dict[str, Callable[[exp.Expression], bool]] = {
    **dict.fromkeys(_JOINING, _joins_conditions),
    **dict.fromkeys(("Alias", "TryCast"), _is_column),
    "Is": lambda node: _class_names(node) == ["Column", "Null"],
    "Select": _picks_columns,
    "Table": _is_named,
}
