"""Names and texts in the quotes of SQL, as DuckDB and PostgreSQL read them."""

from __future__ import annotations


def quote_name(name: str) -> str:
    """Return the name of a column or table in the quotes of SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def text_literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"
