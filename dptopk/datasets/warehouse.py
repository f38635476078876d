"""Events of a warehouse that this package has no driver for: one statement counts them there, and
its result, a small table, is read here as events are.

The statement takes of each user what ``event_counts`` takes with ``portable=True`` and the same
key: the caps use a user's own rows and a key that is in a table of the owner's, not in the text.
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
from dptopk.datasets.backends.base import imported, without_data
from dptopk.datasets.bounding import DIGITS, PROFILE
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from types import ModuleType

    import pandas as pd
    from sqlglot import exp

    from dptopk.datasets.backends.base import Array
    from dptopk.datasets.backends.inputs import EventTable

FORMAT = 1
# By dialect, whether the statement is run in the tests or parsed only, and its SHA-256 of a text in
# UTF-8 as lower-case hexadecimal digits.
_PARSED = "compiled, not run"
DIALECTS: dict[str, tuple[str, str]] = {
    "bigquery": (_PARSED, "TO_HEX(SHA256(argument))"),
    "clickhouse": ("run", "LOWER(HEX(SHA256(argument)))"),
    "databricks": (_PARSED, "SHA2(argument, 256)"),
    "duckdb": ("run", "SHA256(argument)"),
    "postgres": ("run", "ENCODE(SHA256(CONVERT_TO(argument, 'UTF8')), 'hex')"),
    "redshift": (_PARSED, "SHA2(argument, 256)"),
    "snowflake": (_PARSED, "SHA2(argument, 256)"),
    "spark": ("run", "SHA2(argument, 256)"),
    "trino": (_PARSED, "LOWER(TO_HEX(SHA256(TO_UTF8(argument))))"),
}
SUMS = ("users", "capped", "weights", *PROFILE)
COLUMNS = ("dptopk_row", "dptopk_label", *SUMS)
_MARK = "DPTOPK_SHA256"
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
    """Return one SQL statement whose result is what two phases need to know of a table of events.

    Args:
        dialect: one of DIALECTS.
        table: the table of events, perhaps with its schema, as the warehouse writes names.
        user: column of whom the privacy is for; text or integers.
        item: column of the labels; text or integers.
        labels_per_user: Δ, the most labels of one user by which labels are found.
        key_table: a table with a column ``secret``: a text that decides, with a user's own rows,
            which labels of that user find labels.

    Raises:
        InvalidParameter: for an unknown dialect or a name that is none.
        ImportError: when the extra ``data`` is not installed.

    >>> text = events_statement("duckdb", table="clicks", user="member", item="article")
    >>> "COUNT(*) OVER (PARTITION BY person)" in text
    True
    """
    sqlglot = imported("sqlglot", extra="data")
    validate.member(tuple(DIALECTS), dialect=dialect)
    cap = validate.count(labels_per_user=labels_per_user, at_most=WEIGHT**2)
    caps = {
        "format": FORMAT,
        "labels_per_user": cap,
        "per_label_cap": 1,
        "unit": "user",
        "weights": WEIGHT,
    }
    text = _STATEMENT.format(
        user=_column(sqlglot, "user", user),
        item=_column(sqlglot, "item", item),
        table=_name(sqlglot, dialect, "table", table),
        key_table=_name(sqlglot, dialect, "key_table", key_table),
        mark=_MARK,
        digits=DIGITS,
        square=WEIGHT**2,
        cap=cap,
        sums=", ".join(f"{value} AS {name}" for name, value in _sums(cap).items()),
        caps=json.dumps(caps),
        zeros=", ".join("0" for _ in SUMS),
    )
    statement = sqlglot.parse_one(text).transform(_hashed, sqlglot, dialect)
    return str(statement.sql(dialect, pretty=True))


def _sums(cap: int) -> dict[str, str]:
    """The sums over the users of a label, by name; places count from 1."""
    found = {
        "users": "COUNT(*)",
        "capped": f"SUM(CASE WHEN place <= {cap} THEN 1 ELSE 0 END)",
        "weights": f"SUM(CASE WHEN place <= {cap} THEN weight ELSE 0 END)",
    }
    for name, (sign, at) in PROFILE.items():
        found[name] = f"SUM(CASE WHEN place - 1 {sign} {at} THEN 1 ELSE 0 END)"
    return found


def _hashed(node: exp.Expression, sqlglot: ModuleType, dialect: str) -> exp.Expression:
    """The dialect's SHA-256 for the mark of one."""
    if not (isinstance(node, sqlglot.exp.Anonymous) and node.name.upper() == _MARK):
        return node
    (argument,) = node.expressions
    _, template = DIALECTS[dialect]
    parts = template.partition("argument")
    # As the dialect writes it: parsed, its functions could get another dialect's meaning.
    written = argument.transform(_hashed, sqlglot, dialect).sql(dialect)
    return sqlglot.exp.Var(this=f"{parts[0]}{written}{parts[2]}")


def _column(sqlglot: ModuleType, argument: str, name: str) -> str:
    validate.text(**{argument: name})
    return str(sqlglot.exp.column(name, quoted=True).sql())


def _name(sqlglot: ModuleType, dialect: str, argument: str, name: str) -> str:
    """A name of a table as one, with its quotes and its schema."""
    validate.text(**{argument: name})
    if not _TABLE.fullmatch(name):
        raise InvalidParameter(f"{argument}: {name!r} is no name of a table", parameter=argument)
    parse = without_data(
        argument, "it is no name of a table", lambda: sqlglot.exp.to_table(name, dialect=dialect)
    )
    return str(parse.sql())


@dataclass(frozen=True)
class CountedEvents:
    """The result of a statement of ``events_statement``.

    Attributes:
        labels_per_user: the cap that it states.
        columns: item, count, capped, weights and those of PROFILE, as arrays.
    """

    labels_per_user: int
    columns: dict[str, Array]


def is_counted(names: Iterable[Hashable]) -> bool:
    """Whether columns of these names are those of a result; a part of them is one to refuse."""
    return "dptopk_row" in {str(name).casefold() for name in names}


def is_counted_file(path: Path) -> bool:
    """Whether a CSV or Parquet file has the columns of a result, by its header or its schema."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ".csv":
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return is_counted(next(csv.reader([file.readline(_LONGEST_HEADER)]), []))
    if path.suffix.lower() == ".parquet":
        return is_counted(_parquet_columns(path))
    return False


def _parquet_columns(path: Path) -> list[str]:
    """The columns of a Parquet file; none of a file that is damaged, or without pyarrow."""
    try:
        from pyarrow.parquet import read_schema

        names: list[str] = read_schema(path).names
    except (ImportError, OSError, ValueError):
        return []
    return names


def read_counted(table: EventTable) -> CountedEvents | None:
    """The result of a statement, from a CSV or Parquet file or a pandas frame; None for a table
    that is none.

    Raises:
        InvalidParameter: as counted_events.
    """
    import pandas as pd

    if isinstance(table, str | Path):
        path = Path(table)
        readers: dict[str, Callable[[Path], Any]] = {
            ".csv": partial(pd.read_csv, dtype=str, keep_default_na=False),
            ".parquet": pd.read_parquet,
        }
        reader = readers.get(path.suffix.lower())
        if reader is None or not path.is_file():
            return None
        table = without_data("table", "the file could not be read", partial(reader, path))
    if not isinstance(table, pd.DataFrame) or not is_counted(table.columns):
        return None
    return counted_events(table)


def counted_events(frame: pd.DataFrame) -> CountedEvents:
    """Check a result, a pandas frame, and take it apart.

    Raises:
        InvalidParameter: when a column, the statement of caps or that of the key is missing or not
        as this version writes it, or a number is none that caps allow.
    """
    table = frame.rename(columns=str.lower)
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise InvalidParameter(f"table: the counted events lack the columns {', '.join(missing)}")
    caps = _only(table, "caps", "the statement of caps")
    if not _only(table, "key", "the key's own hash"):
        raise InvalidParameter("table: the counted events had no key: its table was empty")
    try:
        stated = json.loads(caps or "")
    except ValueError:
        stated = None
    if not isinstance(stated, dict):
        raise InvalidParameter("table: the statement of caps cannot be read")
    known = {"format": FORMAT, "per_label_cap": 1, "unit": "user", "weights": WEIGHT}
    if any(stated.get(name) != value for name, value in known.items()):
        raise InvalidParameter("table: the statement of caps is not one of this version")
    cap = validate.count(labels_per_user=stated.get("labels_per_user"))
    rows = table[table["dptopk_row"] == "label"]
    sums = {name: _whole(rows[name]) for name in SUMS}
    labels = rows["dptopk_label"].astype(str).to_numpy()
    if len(set(labels)) < len(labels):
        raise InvalidParameter("table: a label of the counted events has several rows")
    if np.any(sums["capped"] > sums["users"]) or np.any(sums["weights"] > WEIGHT * sums["capped"]):
        raise InvalidParameter("table: the counted events are above what their caps allow")
    item = np.array(labels.tolist(), dtype=np.dtypes.StringDType())
    return CountedEvents(cap, {"item": item, "count": sums.pop("users"), **sums})


def _only(table: pd.DataFrame, row: str, what: str) -> str | None:
    found = table.loc[table["dptopk_row"] == row, "dptopk_label"]
    if len(found) != 1:
        raise InvalidParameter(f"table: the counted events need one row with {what}")
    value = found.iloc[0]
    return value if isinstance(value, str) else None


def _whole(column: pd.Series[Any]) -> Array:
    """A column of counts as integers."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    if not np.all((numbers >= 0) & (numbers < 2.0**53) & (numbers == np.floor(numbers))):
        raise InvalidParameter("table: a sum of the counted events is no count")
    return numbers.astype(np.int64)
