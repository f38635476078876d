"""Events in a warehouse without a driver: a SQL statement counts them there.

Its result, a small table, is read here instead of events. The statement counts the same labels of
each user as ``event_counts`` does with ``portable=True`` and the same key. The choice depends on a
user's own rows and on a key, which is in a table of the owner's and not in the statement.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk.datasets.backends.base import hide_data_of_errors, import_of_extra
from dptopk.datasets.backends.readable import file_of_stored_types, with_readable_values
from dptopk.datasets.hashing import DIGITS
from dptopk.datasets.profile_columns import PROFILE
from dptopk.datasets.text_files import LONGEST_LINE
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from types import ModuleType

    import pandas as pd
    from sqlglot import exp

    from dptopk.datasets.backends.base import Array
    from dptopk.datasets.backends.inputs import EventTable

FORMAT = 1  # of a result, which states it; one of another format is refused


@dataclass(frozen=True)
class Dialect:
    """The SQL of a warehouse.

    Attributes:
        tested: whether the tests run the statement ("run") or only parse it ("compiled, not run").
        sha256: the SHA-256 of the text ``argument`` in UTF-8, as lower-case hexadecimal digits.
    """

    tested: str
    sha256: str


_PARSED = "compiled, not run"
DIALECTS: dict[str, Dialect] = {
    "bigquery": Dialect(_PARSED, "TO_HEX(SHA256(argument))"),
    "clickhouse": Dialect("run", "LOWER(HEX(SHA256(argument)))"),
    "databricks": Dialect(_PARSED, "SHA2(argument, 256)"),
    "duckdb": Dialect("run", "SHA256(argument)"),
    "postgres": Dialect("run", "ENCODE(SHA256(CONVERT_TO(argument, 'UTF8')), 'hex')"),
    "redshift": Dialect(_PARSED, "SHA2(argument, 256)"),
    "snowflake": Dialect(_PARSED, "SHA2(argument, 256)"),
    "spark": Dialect("run", "SHA2(argument, 256)"),
    "trino": Dialect(_PARSED, "LOWER(TO_HEX(SHA256(TO_UTF8(argument))))"),
}
# The columns of a result: what a row is about ("label", "caps" or "key"), its label or text, and
# the sums over the users of that label.
SUMS = ("users", "capped", "weights", *PROFILE)
COLUMNS = ("dptopk_row", "dptopk_label", *SUMS)
# Stands for the dialect's SHA-256 in the statement until that is written for a dialect.
_MARK = "DPTOPK_SHA256"
# The characters of a header line that are looked at; the names of COLUMNS take far fewer.
_LONGEST_HEADER = 2**16
# Names with or without quotes, after those of their schemas.
_PART = r"""(?:[^\W\d][\w$-]*|"[^"]+"|`[^`]+`)"""
_TABLE = re.compile(rf"{_PART}(?:[.]{_PART}){{0,2}}")

_STATEMENT = """
WITH named AS (
  SELECT CAST({user} AS TEXT) AS person, CAST({item} AS TEXT) AS label
  FROM {table} WHERE {user} IS NOT NULL AND {item} IS NOT NULL
), pairs AS (
  SELECT DISTINCT person, label FROM named
), secrets AS (
  SELECT {mark}(MIN(secret)) AS secret FROM {key_table}
), drawn AS (
  SELECT pairs.person, pairs.label, SUBSTRING(
    {mark}(SUBSTRING(secrets.secret, 1, 32) || '|' || pairs.person || '|' || pairs.label),
    1, {digits}) AS lot
  FROM pairs CROSS JOIN secrets
), ranked AS (
  SELECT person, label,
    ROW_NUMBER() OVER (PARTITION BY person ORDER BY lot, label) AS place,
    COUNT(*) OVER (PARTITION BY person) AS labels
  FROM drawn
), weighted AS (
  SELECT label, place, CAST(FLOOR(SQRT(FLOOR(CAST({square} AS DOUBLE) /
    CASE WHEN labels > {cap} THEN {cap} ELSE labels END))) AS BIGINT) AS weight
  FROM ranked
)
SELECT 'label' AS dptopk_row, label AS dptopk_label, {sums} FROM weighted GROUP BY label
UNION ALL SELECT 'caps', '{caps}', {zeros}
UNION ALL SELECT 'key', SUBSTRING({mark}(secrets.secret), 1, {digits}), {zeros} FROM secrets
"""


def events_statement(
    dialect: str,
    *,
    table: str,
    user: str,
    item: str,
    labels_per_user: int = 100,
    key_table: str = "dptopk_key",
) -> str:
    """Return one SQL statement whose result holds all that two phases need of a table of events.

    Args:
        dialect: one of DIALECTS.
        table: the table of events, perhaps with its schema, as the warehouse writes names.
        user: the column of the protected users; text or integers.
        item: the column of the labels; text or integers.
        labels_per_user: Δ, the most labels of one user that count when labels are found.
        key_table: a table with a column ``secret``: a text that decides, together with a user's own
            rows, which labels of that user count when labels are found.

    Raises:
        InvalidParameter: for an unknown dialect, a cap outside 1..10,000, or a name that no table
            or column can have.
        ImportError: when the extra ``data`` is not installed.

    >>> text = events_statement("duckdb", table="clicks", user="member", item="article")
    >>> "COUNT(*) OVER (PARTITION BY person)" in text
    True
    """
    sqlglot = import_of_extra("sqlglot", extra="data")
    validate.member(tuple(DIALECTS), dialect=dialect)  # refuses other dialects
    # Of more labels each would have the weight isqrt(WEIGHT² // d) = 0.
    cap = validate.count(labels_per_user=labels_per_user, at_most=WEIGHT**2)
    caps = {
        "format": FORMAT,
        "labels_per_user": cap,
        "per_label_cap": 1,
        "unit": "user",
        "weights": WEIGHT,
    }
    text = _STATEMENT.format(
        user=_quoted_column(sqlglot, "user", user),
        item=_quoted_column(sqlglot, "item", item),
        table=_quoted_table(sqlglot, dialect, "table", table),
        key_table=_quoted_table(sqlglot, dialect, "key_table", key_table),
        mark=_MARK,
        digits=DIGITS,
        square=WEIGHT**2,
        cap=cap,
        sums=", ".join(f"{value} AS {name}" for name, value in _sums(cap).items()),
        caps=json.dumps(caps),
        zeros=", ".join("0" for _ in SUMS),
    )
    statement = sqlglot.parse_one(text).transform(_with_sha256, sqlglot, dialect)
    return str(statement.sql(dialect, pretty=True))


def _sums(cap: int) -> dict[str, str]:
    """Return name of a sum -> its SQL: the sums over the users of a label, of which ``place``
    counts from 1.

    Args:
        cap: the cap Δ on labels per user.
    """
    sums = {
        "users": "COUNT(*)",
        "capped": f"SUM(CASE WHEN place <= {cap} THEN 1 ELSE 0 END)",
        "weights": f"SUM(CASE WHEN place <= {cap} THEN weight ELSE 0 END)",
    }
    for name, counted in PROFILE.items():
        is_counted = f"place - 1 {counted.sign} {counted.place}"
        sums[name] = f"SUM(CASE WHEN {is_counted} THEN 1 ELSE 0 END)"
    return sums


def _with_sha256(node: exp.Expression, sqlglot: ModuleType, dialect: str) -> exp.Expression:
    """Return the dialect's SHA-256 in the place of a call of ``_MARK``; other nodes as they are.

    Args:
        node: a node of the statement's tree.
        sqlglot: that module, which is imported only where a statement is made.
        dialect: one of DIALECTS.
    """
    if not (isinstance(node, sqlglot.exp.Anonymous) and node.name.upper() == _MARK):
        return node
    (argument,) = node.expressions
    before, _, after = DIALECTS[dialect].sha256.partition("argument")
    # The template is inserted as text: if it was parsed, its functions could be translated from
    # another dialect.
    text = argument.transform(_with_sha256, sqlglot, dialect).sql(dialect)
    return sqlglot.exp.Var(this=f"{before}{text}{after}")


def _quoted_column(sqlglot: ModuleType, argument: str, name: str) -> str:
    """Return the name of a column in quotes; ``argument`` is its name in messages.

    Raises:
        InvalidParameter: naming the argument, if the name is no text.
    """
    validate.text(**{argument: name})  # refuses what is no text
    return str(sqlglot.exp.column(name, quoted=True).sql())


def _quoted_table(sqlglot: ModuleType, dialect: str, argument: str, name: str) -> str:
    """Return the name of a table, perhaps with its schema, with quotes where the dialect needs
    them.

    Args:
        sqlglot: that module, which is imported only where a statement is made.
        dialect: one of DIALECTS, in which the name is written.
        argument: the argument that has the name, for messages.
        name: the name.

    Raises:
        InvalidParameter: naming the argument, if no table can have the name.
    """
    validate.text(**{argument: name})  # refuses what is no text
    if not _TABLE.fullmatch(name):
        raise InvalidParameter(f"{argument}: {name!r} is no name of a table", parameter=argument)
    parsed_name = hide_data_of_errors(
        argument, "it is no name of a table", lambda: sqlglot.exp.to_table(name, dialect=dialect)
    )
    return str(parsed_name.sql())


@dataclass(frozen=True)
class CountedEvents:
    """The result of a statement of ``events_statement``.

    Attributes:
        labels_per_user: the cap Δ that it states.
        columns: the arrays item (the labels), count (their users), capped (their users under the
            cap), weights (the sums of weights under the cap) and those of PROFILE, shape (n,) each.
    """

    labels_per_user: int
    columns: dict[str, Array]


def is_statement_result(names: Iterable[Hashable]) -> bool:
    """Return whether columns with these names are of the result of ``events_statement``, perhaps an
    incomplete one.
    """
    return "dptopk_row" in {str(name).casefold() for name in names}


def is_counted_file(path: Path) -> bool:
    """Return whether a CSV or Parquet file has the columns that ``is_statement_result`` knows, by
    its header or its schema.
    """
    if not path.is_file():
        return False
    if path.suffix.lower() == ".csv":
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            return is_statement_result(next(csv.reader([file.readline(_LONGEST_HEADER)]), []))
    if path.suffix.lower() == ".parquet":
        return is_statement_result(_parquet_columns(path))
    return False


def _parquet_columns(path: Path) -> list[str]:
    """Return the columns of a Parquet file; none if it is damaged, or pyarrow is missing."""
    try:
        from pyarrow.parquet import read_schema

        names: list[str] = read_schema(path).names
    except (ImportError, OSError, ValueError):
        return []
    return names


def read_counted(table: EventTable) -> CountedEvents | None:
    """Return the result of a statement in a CSV or Parquet file or a pandas frame; None for any
    other table.

    Raises:
        InvalidParameter: if it is such a result, but damaged or of another version.
    """
    import pandas as pd

    if isinstance(table, str | Path):
        path = Path(table)
        readers: dict[str, Callable[[Path], Any]] = {
            ".csv": _csv_frame,
            ".parquet": _parquet_frame,
        }
        reader = readers.get(path.suffix.lower())
        if reader is None or not path.is_file():
            return None
        table = hide_data_of_errors("table", "the file could not be read", partial(reader, path))
    if not isinstance(table, pd.DataFrame) or not is_statement_result(table.columns):
        return None
    return counted_events(table)


def _csv_frame(path: Path) -> pd.DataFrame:
    """Return the rows of a CSV file that have a cell for each column; bytes that are no UTF-8 are
    halves of surrogate pairs.

    A row has too few cells where a writer left the end of a line in a label without quotes.
    """
    import pandas as pd

    # The csv module reads cells of 131,072 characters, with one limit for the whole process.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file)
        names = next(reader, [])
        rows = [row for row in reader if len(row) == len(names)]
    return pd.DataFrame(rows, columns=names, dtype=object)


def _parquet_frame(path: Path) -> pd.DataFrame:
    """Return the rows of a Parquet file, with None for each value that DuckDB cannot read."""
    import_of_extra("pyarrow", extra="data")
    with file_of_stored_types(path) as file:
        frame: pd.DataFrame = with_readable_values(file.read()).to_pandas()
    return frame


def _is_label(value: object) -> bool:
    """Return whether a value is a text that UTF-8 can hold."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def counted_events(frame: pd.DataFrame) -> CountedEvents:
    """Return the result of a statement in a pandas frame, after it was checked.

    Raises:
        InvalidParameter: when a column, the row of the caps or that of the key is missing or
            written by another version, or a number is one that the caps do not allow.
    """
    table = frame.rename(columns=str.lower)
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise InvalidParameter(f"table: the counted events lack the columns {', '.join(missing)}")
    cap = _stated_cap(table)
    # A label that nobody can read is left out: it may be one user's.
    rows = table[(table["dptopk_row"] == "label") & table["dptopk_label"].map(_is_label)]
    sums = {name: _whole_counts(rows[name]) for name in SUMS}
    labels = rows["dptopk_label"].astype(str).to_numpy()
    if len(set(labels)) < len(labels):
        raise InvalidParameter("table: a label of the counted events has several rows")
    too_many = np.any(sums["capped"] > sums["users"])
    too_heavy = np.any(sums["weights"] > WEIGHT * sums["capped"])
    if too_many or too_heavy:
        raise InvalidParameter("table: the counted events are above what their caps allow")
    item = np.array(labels.tolist(), dtype=np.dtypes.StringDType())
    return CountedEvents(cap, {"item": item, "count": sums.pop("users"), **sums})


def _stated_cap(table: pd.DataFrame) -> int:
    """Return the cap Δ on labels per user that the rows beside the counts state.

    Raises:
        InvalidParameter: when the row of the caps or that of the key is missing, or written by
            another version, or the cap is no integer of at least 1.
    """
    statement = _only_text(table, "caps", "the statement of caps")
    if not _only_text(table, "key", "the key's own hash"):
        raise InvalidParameter("table: the counted events had no key: its table was empty")
    try:
        caps = json.loads(statement or "")  # no text is no JSON either
    except ValueError:
        caps = None  # refused below
    if not isinstance(caps, dict):
        raise InvalidParameter("table: the statement of caps cannot be read")
    of_this_version = {"format": FORMAT, "per_label_cap": 1, "unit": "user", "weights": WEIGHT}
    if any(caps.get(name) != value for name, value in of_this_version.items()):
        raise InvalidParameter("table: the statement of caps is not one of this version")
    return validate.count(labels_per_user=caps.get("labels_per_user"))


def _only_text(table: pd.DataFrame, row: str, what: str) -> str | None:
    """Return the text in the only row of a kind; None if it is no text.

    Args:
        table: the result.
        row: the kind of row: "caps" or "key".
        what: what that row holds, for messages.

    Raises:
        InvalidParameter: if there is no such row, or several.
    """
    texts = table.loc[table["dptopk_row"] == row, "dptopk_label"]
    if len(texts) != 1:
        raise InvalidParameter(f"table: the counted events need one row with {what}")
    value = texts.iloc[0]
    if isinstance(value, str):
        return value
    return None


def _whole_counts(column: pd.Series[Any]) -> Array:
    """Return a column of counts as integers.

    Raises:
        InvalidParameter: if one is negative, not whole, or 2^53 and larger.
    """
    import pandas as pd

    # What is no number becomes NaN, which is above and below nothing, and so refused.
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    if not np.all((numbers >= 0) & (numbers < 2.0**53) & (numbers == np.floor(numbers))):
        raise InvalidParameter("table: a sum of the counted events is no count")
    return numbers.astype(np.int64)
