"""Statements of DuckDB, whose SQL is compiled once in a process.

Ibis takes some 0.1 s to compile a large expression, in which DuckDB counts 10^6 events. So the
events of a question are a view, and what is kept is a table, each with a name that is the same in
the next question: equal expressions have equal SQL, whatever connection they run on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from dptopk._internal.lru import LRUCache
from dptopk.datasets.backends.stored_rows import KEPT, SCHEMA, TABLES

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends.duckdb import Backend as DuckDBConnection

StreamResult = TypeVar("StreamResult")
# A question has some five statements.
_COMPILED = LRUCache[str](128)


@dataclass
class Statements:
    """The way to run expressions on a connection to DuckDB; its methods are those that an OpenTable
    hands on.

    Attributes:
        connection: an Ibis connection of our own.
        views: the names of the views of events that were made on it.
    """

    connection: DuckDBConnection
    views: list[str] = field(default_factory=list)

    def view(self, events: ir.Table) -> ir.Table:
        """Return the events as a view, whose rows are read when a statement reads them."""
        import ibis

        name = f"dptopk_selected_{len(self.views)}"
        self.connection.create_view(name, events)
        self.views.append(name)
        return ibis.table(events.schema(), name=name)

    def load(self, name: str, rows: pa.Table) -> ir.Table:
        """Return an Arrow table as one of this name, instead of an earlier one."""
        import ibis

        self.connection.con.register(name, rows)
        return ibis.table(ibis.schema(rows.schema), name=name)

    def run(self, expression: ir.Table) -> pa.Table:
        """Return the rows of an expression."""
        query = self._sql_of(expression)
        if query is None:
            return self.connection.to_pyarrow(expression)
        # DuckDB's types may be wider than those that Ibis states, as of sums.
        kinds = expression.schema().to_pyarrow()
        return self.connection.con.sql(query).to_arrow_table().cast(kinds)

    def stream(
        self, expression: ir.Table, take: Callable[[pa.RecordBatchReader], StreamResult]
    ) -> StreamResult:
        """Return what ``take`` returns for the rows of an expression, which it gets as a stream.

        A query gives its rows as it finds them; a result would be there twice, in DuckDB and in
        Arrow.
        """
        import pyarrow as pa

        query = self._sql_of(expression)
        if query is None:
            self.connection.create_view("dptopk_rows", expression, overwrite=True)
            query = "FROM dptopk_rows"
        return take(pa.RecordBatchReader.from_stream(self.connection.con.sql(query)))

    def keep(self, name: str, expression: ir.Table) -> ir.Table:
        """Store the rows of an expression in a table of the connection's own, and return that
        table.
        """
        import ibis

        query = self._sql_of(expression)
        if query is None:
            return keep_table(self.connection, name, expression)
        type_name_of = self.connection.compiler.type_mapper.to_string
        schema = expression.schema()
        column_list = ", ".join(
            f'"{column}" {type_name_of(kind)}' for column, kind in schema.items()
        )
        run = self.connection.con.execute
        run(f"CREATE OR REPLACE TABLE {TABLES}.{name} ({column_list})").fetchall()
        run(f"INSERT INTO {TABLES}.{name} {query}").fetchall()
        return ibis.table(schema, name=name, catalog=KEPT, database=SCHEMA)

    def _sql_of(self, expression: ir.Table) -> str | None:
        """Return the SQL of an expression of views and tables that were made here; None for any
        other expression, which holds a connection or data.
        """
        import ibis.expr.operations as ops

        operation = expression.op()
        if operation.find((ops.DatabaseTable, ops.InMemoryTable)):
            return None
        return _COMPILED.get(operation, lambda: self.connection.compile(expression))


def keep_table(connection: DuckDBConnection, name: str, expression: ir.Table) -> ir.Table:
    """Store the rows of an expression in a table of the connection's own, and return that table."""
    attach_own_database(connection)
    connection.con.execute(f"DROP TABLE IF EXISTS {TABLES}.{name}").fetchall()
    return connection.create_table(name, expression, database=TABLES)


def attach_own_database(connection: DuckDBConnection) -> None:
    """Let the connection have its database of tables of our own, in memory."""
    connection.con.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {KEPT} (COMPRESS)").fetchall()
