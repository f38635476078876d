"""A store of growing events: bounded counts are updated by reading only the new day.

The store holds, for each user, the Δ labels with the smallest hashes, and what the user has added
to each (up to τ). A new partition is added to these rows, and then again only the Δ smallest stay.
The result is that of reading all events at once: a label's hash is a function of key, user and
label, so a label that is among a user's Δ smallest in the end was among them ever since it first
came, and none of its events was lost; and min(min(a, τ) + b, τ) = min(a + b, τ). It needs the
choice "hash": which labels a user has most often can change with every event. For the same reason a
partition is cut to the Δ smallest hashes of each user in the engine that holds it, if that engine
has the store's hashes.

What a partition added cannot be computed from these rows, so that a store made with
``partitions=True`` also holds the rows of each partition separately: then it gives the histogram of
one day, and grows with the days.

The store is personal data, as the events are: a DuckDB file that only its owner may read.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk._internal.json_text import canonical_json
from dptopk.datasets.backends.base import arrays_of, hide_data_of_errors, import_of_extra
from dptopk.datasets.backends.duckdb_operations import DUCKDB
from dptopk.datasets.backends.opening import Engine, selected_events
from dptopk.datasets.bounding import contributions
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.events import to_histogram
from dptopk.datasets.hashing import DIGITS
from dptopk.datasets.profile_columns import PROFILE
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import WEIGHT
from dptopk.histogram.histogram import Histogram

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from dptopk.datasets.backends.base import OpenTable
    from dptopk.datasets.backends.inputs import Condition, EventTable

# The tables of a store: ``settings`` has one row with all settings as JSON; ``partitions`` has the
# index (place) and the version of each partition; ``kept`` has user, item and amount of all events
# so far, of each user only the labels that count; ``days`` has the same of each partition, if the
# store holds partitions. ``day`` is the partition that is being appended, which is called a day
# below.
FORMAT = 2  # of the file; a store of another format is refused
# DuckDB's type of a label -> its code, as hashing.code_of.
_CODE = {"VARCHAR": "hash(hash('item', item))", "BIGINT": "item", "UBIGINT": "item"}
# Whether the choice is portable -> the order of a user's labels, as hashing.hash_order has it: by
# DuckDB's own hash and then the code, or by SHA-256.
_HASH_ORDER = {
    False: "hash(hash($prefix, user, code)), code, item",
    True: f"substr(sha256($prefix || '|' || user || '|' || item), 1, {DIGITS}), item",
}
# Hashes that show whether DuckDB's hash is the one by which the labels of a store were chosen.
_FINGERPRINT = (
    "SELECT [hash(hash('dptopk', 1, 'a')), hash(hash(hash(hash('item', 'b')), 2::BIGINT))]"
)

# The rows that count: the first labels of each user, of which no amount exceeds the cap.
_CHOSEN = """SELECT user, item, amount FROM (
    SELECT user, item, least(amount, $cap)::BIGINT AS amount,
           row_number() OVER (PARTITION BY user ORDER BY {order}) AS place
    FROM (SELECT *, {code} AS code FROM {rows})
) WHERE place <= $most"""
# The stored rows of the users of a day, together with those of the day.
_MERGED = """CREATE OR REPLACE TEMP TABLE merged AS
    SELECT user, item, sum(amount) AS amount
    FROM (SELECT * FROM kept WHERE user IN (SELECT user FROM day)
          UNION ALL SELECT user, item, amount FROM day)
    GROUP BY user, item"""
_ADD_DAY = "INSERT INTO days SELECT (SELECT count(*) FROM partitions), * FROM ({day}) {fewer}"
# The users of a day who count in fewer days so far. Whether a user does depends on that user's
# events alone.
_FEWER_DAYS = """WHERE user NOT IN (
    SELECT user FROM days WHERE user IN (SELECT user FROM day)
    GROUP BY user HAVING count(DISTINCT place) >= {most})"""

# The sums over the users of each label, of all of their labels and of those under the cap.
_COUNTS_WITH_AND_WITHOUT_CAP = """
SELECT item,
       sum(amount)::BIGINT AS count,
       sum(CASE WHEN place <= $most THEN {each} ELSE 0 END)::BIGINT AS capped{more}
FROM (SELECT item, amount, row_number() OVER (PARTITION BY user ORDER BY {order}) AS place,
             least(count(*) OVER (PARTITION BY user), $most) AS labels
      FROM (SELECT *, {code} AS code FROM kept))
GROUP BY item
"""
_PROFILE = "".join(
    f", count(*) FILTER (place - 1 {counted.sign} {counted.place}) AS {name}"
    for name, counted in PROFILE.items()
)
# isqrt(WEIGHT² // d) of a user with d labels under the cap, as in ``bounding``.
_WEIGHT = f"floor(sqrt(({WEIGHT**2} // labels)::DOUBLE))"


class EventsStore:
    """A file that holds, for each user, the part of all events so far that counts.

    Args:
        path: the path of the store; it is made if it does not exist, and ``user`` is given.
        user: the column of the protected users, in every partition.
        item: the column of the labels.
        labels_per_user: Δ, as in events_histogram; None: all labels count.
        per_label_cap: τ, the most that one user adds to one label.
        weight: the column of what an event adds; None: each adds 1.
        key: text that varies which labels of a user count; with the same key the histogram is that
            of events_histogram.
        portable: whether labels are chosen by SHA-256, as with events_histogram. Otherwise a
            version of DuckDB with another hash refuses the store.
        partitions: whether each partition is also held separately, for ``histogram(partition=)``;
            the file then grows with every partition.
        days_per_user: in how many partitions a user counts: in the first ones with events of that
            user. Later ones leave the user out of ``histogram(partition=)``; a user who was deleted
            counts as a new one. None: in all.

    The columns and bounds cannot be changed after the store was made. Its path alone opens it
    again; other settings are stated together with the columns, and must be those it was made with.

    Raises:
        InvalidParameter: for a file that is no store, settings that differ from those it was made
            with, or settings without the columns.
        ImportError: when the extra ``data`` is not installed.

    >>> import pandas as pd, tempfile
    >>> days = [pd.DataFrame({"who": ["a", "b"], "what": ["x", "x"]}), pd.DataFrame({"who":
    ...     ["a"], "what": ["y"]})]
    >>> with EventsStore(f"{tempfile.mkdtemp()}/e.store", user="who", item="what",
    ...     labels_per_user=2) as store:
    ...     for number, day in enumerate(days):
    ...         store.append(day, version=str(number))
    ...     histogram = store.histogram()
    >>> dict(zip(histogram.labels.tolist(), histogram.counts.tolist()))
    {'x': 2, 'y': 1}
    """

    def __init__(
        self,
        path: str | Path,
        *,
        user: str | None = None,
        item: str | None = None,
        labels_per_user: int | None = None,
        per_label_cap: int = 1,
        weight: str | None = None,
        key: str = "",
        portable: bool = False,
        partitions: bool = False,
        days_per_user: int | None = None,
    ) -> None:
        import_of_extra("duckdb", extra="data")
        self.path = Path(path)
        self._no_store = f"{self.path.name!r} is no store of events"
        stated_settings = _stated_settings(
            user=user,
            item=item,
            weight=weight,
            bounds=Bounds(
                labels_per_user=labels_per_user,
                per_label_cap=per_label_cap,
                key=key,
                portable=portable,
            ),
            of_partitions=_settings_of_partitions(
                partitions=partitions, days_per_user=days_per_user
            ),
        )
        is_new = not self.path.exists()
        if is_new and (user is None or item is None):
            raise InvalidParameter(
                f"path: there is no store {str(path)!r}; name its columns user and item to make one"
            )
        if is_new:
            self._refuse_folder_without_access()
        self._file = self._connection()
        try:
            self._settings = self._settings_of_file(stated_settings)
        except BaseException:
            self._file.close()
            if is_new:
                self.path.unlink(missing_ok=True)
            raise

    def _refuse_folder_without_access(self) -> None:
        """Make the file and remove it again: DuckDB makes it itself, and its error would not be
        Python's own.

        Raises:
            OSError: when the folder cannot be written to.
        """
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR))
        self.path.unlink()

    def _connection(self) -> DuckDBPyConnection:
        """Return a connection to the file, which is made if it does not exist; only its owner may
        read it.

        Raises:
            InvalidParameter: for a file that is no database of DuckDB.
        """
        import duckdb

        # The umask is that of the whole process: meanwhile other threads make private files too.
        umask = os.umask(0o077)
        try:
            return hide_data_of_errors(
                "path", self._no_store, partial(duckdb.connect, str(self.path))
            )
        finally:
            os.umask(umask)

    def _settings_of_file(self, stated_settings: dict[str, Any] | None) -> dict[str, Any]:
        """Return the settings of the store; it is made first if the columns are stated and the
        database has no tables, because it is new or because making it was interrupted.

        Args:
            stated_settings: the settings that are asked for; None: any.

        Raises:
            InvalidParameter: as ``_open``.
        """
        if stated_settings is not None and self._is_empty():
            return self._make(stated_settings)
        return self._open(stated_settings)

    def _is_empty(self) -> bool:
        """Return whether the database has no tables."""
        ((tables,),) = self._file.execute("SELECT count(*) FROM duckdb_tables()").fetchall()
        return bool(tables == 0)

    def _make(self, stated_settings: dict[str, Any]) -> dict[str, Any]:
        """Make the tables of a new store, and return its settings."""
        settings = {"format": FORMAT, "hash": self._hash_fingerprint(), **stated_settings}
        with self._transaction():
            self._file.execute("CREATE TABLE settings (content VARCHAR)")
            self._file.execute("INSERT INTO settings VALUES (?)", [canonical_json(settings)])
            self._file.execute(
                "CREATE TABLE partitions (place BIGINT, version VARCHAR PRIMARY KEY)"
            )
        return settings

    def _open(self, stated_settings: dict[str, Any] | None) -> dict[str, Any]:
        """Return the settings of a store that exists.

        Args:
            stated_settings: the settings that are asked for, which must be the store's; None: any.

        Raises:
            InvalidParameter: for a file that is no store of this version, a store whose labels were
                chosen by another hash than this DuckDB's, and other settings.
        """
        read = partial(self._file.execute, "SELECT content FROM settings")
        ((content,),) = hide_data_of_errors("path", self._no_store, read).fetchall()
        settings: dict[str, Any] = json.loads(content)
        if settings["format"] != FORMAT:
            raise InvalidParameter(
                f"path: the store has format {settings['format']}, this version reads {FORMAT}"
            )
        if not settings["portable"] and settings["hash"] != self._hash_fingerprint():
            raise InvalidParameter(
                "path: the store was made by a version of DuckDB whose hash is another, so a new "
                "day would not fit the earlier ones; use that version, or make the store again, "
                "with portable=True"
            )
        for name, value in (stated_settings or {}).items():
            if settings.get(name) != value:
                raise InvalidParameter(
                    f"{name}: the store was made with {settings.get(name)!r}, got {value!r}"
                )
        return settings

    def _hash_fingerprint(self) -> str:
        """Return a text that distinguishes DuckDB's own hash from others."""
        ((value,),) = self._file.execute(_FINGERPRINT).fetchall()
        return str(value)

    def __enter__(self) -> EventsStore:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def bounds(self) -> Bounds:
        """Return the limits on each user's contribution."""
        chosen = {
            name: self._settings[name]
            for name in ("labels_per_user", "per_label_cap", "key", "portable")
        }
        return Bounds(**chosen)

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the versions of the partitions so far, in the order in which they came."""
        rows = self._file.execute("SELECT version FROM partitions ORDER BY place").fetchall()
        return tuple(version for (version,) in rows)

    def append(
        self,
        partition: EventTable,
        *,
        version: str,
        where: Condition = None,
        engine: Engine | None = None,
    ) -> None:
        """Add the events of one partition, such as a day; all of it or, after any failure, nothing.

        Args:
            partition: events, as the table of events_histogram; no event may be in two partitions.
            version: a name for the data from now on, such as the date, which no earlier partition
                has.
            where: a condition on events, as in events_histogram.
            engine: the engine that reads them, as in events_histogram.

        Raises:
            InvalidParameter: for a version that is there already, and as events_histogram; never
                for a value of the data, except that a column may not be text in one partition and
                integer in another.
        """
        validate.text(version=version)  # refuses what is no text
        if version in self.versions:
            raise InvalidParameter(f"version: {version!r} was appended before")
        columns = {role: self._settings[role] for role in ("user", "item", "weight")}
        # What exceeds τ in a day is cut here; Δ is enforced by ``_add_day``, together with the
        # stored rows.
        with selected_events(partition, where, engine, None, **columns) as (source, events):
            if source.equates_texts(columns["user"]):
                raise InvalidParameter(
                    "user: the column's collation or type takes different texts for equal, and the "
                    "store tells users by their bytes; bring each user to one text in a column "
                    "without a collation first"
                )
            # An engine with the store's hashes sends only the first Δ labels of each user's day.
            same_hashes = self.bounds.portable or source.backend is DUCKDB
            bounds = self.bounds if same_hashes else replace(self.bounds, labels_per_user=None)
            pairs = contributions(source, events, bounds)
            pairs = pairs.select(
                user=_as_text(source, pairs.user),
                item=_as_text(source, pairs.item),
                amount=pairs.value,
            )
            day = hide_data_of_errors(
                "partition", "the engine could not run the query", partial(source.run, pairs)
            )
        schema = day.schema
        kinds = [_duckdb_type(schema.field(name).type) for name in ("user", "item")]
        with self._transaction():
            self._make_or_check_tables(kinds)
            hide_data_of_errors(
                "partition", "the store could not be changed", partial(self._add_day, day, kinds[1])
            )
            self._file.execute(
                "INSERT INTO partitions SELECT count(*), ? FROM partitions", [version]
            )

    def _add_day(self, day: pa.Table, item_kind: str) -> None:
        """Add a day to the stored rows, of which the first Δ labels of each user stay, in the order
        of their hashes.

        Args:
            day: the rows of the day, with the columns user, item and amount.
            item_kind: DuckDB's type of the labels.
        """
        values = {"cap": self.bounds.per_label_cap, **_choice_parameters(self.bounds)}
        order = _HASH_ORDER[self.bounds.portable]
        chosen = partial(_CHOSEN.format, order=order, code=_CODE[item_kind])
        run = self._file.execute
        self._file.register("day", day)
        run(_MERGED)
        run("DELETE FROM kept WHERE user IN (SELECT user FROM day)")
        run(f"INSERT INTO kept {chosen(rows='merged')}", values)
        if self._settings.get("partitions"):
            condition = ""
            if self.days_per_user is not None:
                condition = _FEWER_DAYS.format(most=self.days_per_user)
            run(_ADD_DAY.format(day=chosen(rows="day"), fewer=condition), values)
        self._file.unregister("day")

    def _make_or_check_tables(self, kinds: list[str]) -> None:
        """Make the tables of rows for the first partition; refuse other types in a later one.

        Args:
            kinds: DuckDB's types of user and item.

        Raises:
            InvalidParameter: for other types than those of the first partition.
        """
        stored_kinds = self._stored_types()
        if not stored_kinds:
            user, item = kinds
            columns = f"user {user}, item {item}, amount BIGINT"
            self._file.execute(f"CREATE TABLE kept ({columns})")
            self._file.execute(f"CREATE TABLE days (place BIGINT, {columns})")
        elif stored_kinds[:2] != kinds:
            raise InvalidParameter(
                "partition: user and item must have the same types as before: text, integer, uint64"
            )

    def delete_user(self, user: str | int) -> None:
        """Delete a user's rows: from now on the histogram is that of all partitions without this
        user's events.

        Whether there was such a user is not told. A stored answer about the earlier data is not
        changed.

        Raises:
            InvalidParameter: for a user of another type, or a store that cannot be changed.
        """
        if not isinstance(user, str | int) or isinstance(user, bool):
            raise InvalidParameter(f"user must be text or an integer, got {type(user).__name__}")
        if self.versions:  # before the first partition there are no tables
            tables = ["kept"]
            if self._settings.get("partitions"):
                tables.append("days")
            with self._transaction():
                for table in tables:
                    statement = f"DELETE FROM {table} WHERE user::VARCHAR = ?"  # noqa: S608
                    delete = partial(self._file.execute, statement, [str(user)])
                    hide_data_of_errors("user", "the store could not be changed", delete)

    def histogram(self, *, top: int | None = None, partition: str | None = None) -> Histogram:
        """Return the bounded histogram of all partitions so far, or of one of them.

        It is the one that events_histogram makes of the same events.

        Args:
            top: only this many of the largest counts, as in events_histogram; None: all.
            partition: the version of one partition, for a store made with ``partitions=True``;
                None: all. The bounds hold for each partition separately: a user counts in every
                one, or in ``days_per_user`` of them, and releases on several of them add up.

        Raises:
            InvalidParameter: for a version that was not appended, or a store that does not hold
                partitions.
        """
        if top is not None:
            top = validate.count(top=top)
        if partition is None:
            rows = "kept"
        else:
            rows = f"days WHERE place = {self._partition_index(partition)}"
        if not self.versions:
            return to_histogram(_columns_without_rows("count"), self.bounds, top)
        limit = "" if top is None else f"LIMIT {top}"
        largest_first = f"GROUP BY item ORDER BY count DESC, item {limit}"
        columns = "item, sum(amount)::BIGINT AS count"
        query = f"SELECT {columns} FROM {rows} {largest_first}"  # noqa: S608
        return to_histogram(_arrays_of_result(self._file.sql(query)), self.bounds, top)

    @property
    def days_per_user(self) -> int | None:
        """Return the number of partitions in which a user counts; None: all."""
        limit: int | None = self._settings.get("days_per_user")
        return limit

    @property
    def columns(self) -> tuple[str, str]:
        """Return the columns of users and of labels."""
        return self._settings["user"], self._settings["item"]

    @property
    def clips_amounts(self) -> bool:
        """Return whether amounts at a label are cut at τ; False if every user just counts once."""
        return self._settings["weight"] is not None or self.bounds.per_label_cap > 1

    def counts_with_and_without_cap(
        self, labels_per_user: int, *, weights: bool = False, profile: bool = False
    ) -> tuple[Any, Bounds]:
        """Return the counts of all events and those under a cap on labels, and the bounds with it.

        Args:
            labels_per_user: the cap.
            weights: whether the second ones are sums of weights, as in ``event_counts``.
            profile: whether the columns of PROFILE are added.

        Returns:
            the columns item, count and capped, and the bounds.

        Raises:
            InvalidParameter: when the store was made with a cap: labels above it were not stored.
        """
        bounds = self.bounds
        if bounds.labels_per_user is not None:
            raise InvalidParameter(
                f"table: the store kept at most {bounds.labels_per_user} labels of each user, so "
                "that true counts are not there; make it with labels_per_user=None, or count what "
                "it kept with count_capped=True"
            )
        capped_bounds = replace(bounds, labels_per_user=labels_per_user)
        kinds = self._stored_types()
        if not kinds:
            profile_columns = PROFILE if profile else ()
            return _columns_without_rows("count", "capped", *profile_columns), capped_bounds
        _, item_kind, _ = kinds
        query = _COUNTS_WITH_AND_WITHOUT_CAP.format(
            code=_CODE[item_kind],
            order=_HASH_ORDER[bounds.portable],
            each=_WEIGHT if weights else "amount",
            more=_PROFILE if profile else "",
        )
        result = self._file.sql(query, params=_choice_parameters(capped_bounds))
        return _arrays_of_result(result), capped_bounds

    def _stored_types(self) -> list[str]:
        """Return DuckDB's types of user, item and amount; empty before the first partition."""
        rows = self._file.execute(
            "SELECT data_type FROM information_schema.columns WHERE table_name = 'kept' ORDER "
            "BY ordinal_position"
        ).fetchall()
        return [kind for (kind,) in rows]

    def _partition_index(self, partition: str) -> int:
        """Return the index of a version among the partitions, from 0.

        Raises:
            InvalidParameter: for a store that does not hold partitions, or another version.
        """
        if not self._settings.get("partitions"):
            raise InvalidParameter(
                "partition: the store holds all partitions together; make it with partitions=True"
            )
        if partition not in self.versions:
            raise InvalidParameter(f"partition: {partition!r} was not appended")
        return self.versions.index(partition)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit the changes of the block, or undo them after any error."""
        self._file.begin()
        try:
            yield
        except BaseException:
            self._file.rollback()
            raise
        self._file.commit()


def _stated_settings(
    *,
    user: str | None,
    item: str | None,
    weight: str | None,
    bounds: Bounds,
    of_partitions: dict[str, bool | int],
) -> dict[str, Any] | None:
    """Return the settings that a store is made with, or must have been made with; None where
    nothing is stated but the path, which opens any store.

    Args:
        user: the column of the protected users; None: not stated.
        item: the column of the labels; None: not stated.
        weight: the column of what an event adds; None: not stated, or each adds 1.
        bounds: the limits on each user's contribution.
        of_partitions: the settings of ``_settings_of_partitions``.

    Raises:
        InvalidParameter: for other settings without a column.
    """
    if user is not None or item is not None:
        return {
            "user": user,
            "item": item,
            "weight": weight,
            "labels_per_user": bounds.labels_per_user,
            "per_label_cap": bounds.per_label_cap,
            "key": bounds.key,
            "portable": bounds.portable,
            **of_partitions,
        }
    if weight is not None or bounds != Bounds(labels_per_user=None) or of_partitions:
        raise InvalidParameter(
            "user: the settings of a store are fixed when it is made; state its columns user and "
            "item too, so that they are compared, or the path alone"
        )
    return None


def _settings_of_partitions(
    *, partitions: bool, days_per_user: int | None
) -> dict[str, bool | int]:
    """Return the settings of a store that holds each partition too; an option that was not given is
    left out, so that it is not compared with that of a store which exists.

    Raises:
        InvalidParameter: for ``days_per_user`` below 1 or without ``partitions``.
    """
    settings: dict[str, bool | int] = {}
    if partitions:
        settings["partitions"] = True
    if days_per_user is not None:
        settings["days_per_user"] = validate.count(days_per_user=days_per_user)
        if not partitions:
            raise InvalidParameter(
                "days_per_user: for a store with partitions=True, each of which is a day"
            )
    return settings


def _columns_without_rows(*sums: str) -> dict[str, Any]:
    """Return the columns of a result without rows: item and the sums of these names."""
    return {"item": np.array([], dtype=object)} | dict.fromkeys(sums, np.array([], dtype=np.int64))


def _arrays_of_result(relation: DuckDBPyRelation) -> dict[str, Any]:
    """Return the columns of a result as arrays, by name."""
    import pyarrow as pa

    return arrays_of(pa.RecordBatchReader.from_stream(relation))


def _choice_parameters(bounds: Bounds) -> dict[str, Any]:
    """Return the parameters ``prefix`` and ``most`` of the SQL statements, which choose labels.

    The prefix is that of ``hashing._key_digits``: the choices must be the same.
    """
    most_labels = bounds.labels_per_user
    if most_labels is None:
        most_labels = 2**62  # more than any user has
    return {"prefix": sha256(bounds.key.encode()).hexdigest()[:32], "most": most_labels}


def _as_text(source: OpenTable, column: ir.Column) -> ir.Column:
    """Return a binary column, as which some engines compare texts, as text; another one
    unchanged.
    """
    if column.type().is_binary():
        return source.text(column)
    return column


def _duckdb_type(arrow_type: pa.DataType) -> str:
    """Return DuckDB's type for an Arrow type of users or labels, which by now are integers or
    texts.
    """
    import pyarrow as pa

    if pa.types.is_integer(arrow_type):
        if pa.types.is_uint64(arrow_type):
            return "UBIGINT"
        return "BIGINT"
    return "VARCHAR"
