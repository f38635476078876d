"""The file of a stream: what each day adds to the state that the next day needs.

The file is as private as the data. It holds sums of days that are not measured yet, which have no
noise. So it lies with the data, for its owner alone; only released answers go from it into the
ledger and, for each day, a random token that identifies the copy of the file that gave the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dptopk._internal.json_text import canonical_json
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.log_store import Store
from dptopk.ledger.sqlite_file import LedgerFile
from dptopk.mechanisms.stream_day import StreamDay

# The parts of a day (``StreamDay.to_parts``); a part is written once and never changed.
_PARTS = (
    "CREATE TABLE IF NOT EXISTS parts (day INTEGER, part INTEGER, content BLOB NOT NULL, "
    "PRIMARY KEY (day, part))"
)
_TABLES = (
    _PARTS,
    "CREATE TABLE stream (terms TEXT NOT NULL, state TEXT NOT NULL)",
    (
        "CREATE TABLE days (day INTEGER PRIMARY KEY, partition TEXT NOT NULL UNIQUE, "
        "token TEXT NOT NULL, answer TEXT)"
    ),
)


class Turn:
    """One transaction on the file of a stream; no other process can write to it meanwhile.

    Args:
        run: the function that runs a statement with its values and returns all rows.
    """

    def __init__(self, run: Callable[..., list[tuple[Any, ...]]]) -> None:
        self._run = run

    def terms(self) -> dict[str, Any] | None:
        """Return the terms that the stream was created with; None in a new file.

        Raises:
            InvalidParameter: for a file that holds something else.
        """
        names = self._run("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {name for (name,) in names}
        if not tables:
            return None
        if not {"stream", "days"} <= tables:
            raise InvalidParameter("path: this is not the file of a stream")
        return self._json_object("SELECT terms FROM stream")

    def _json_object(self, query: str, *values: object) -> dict[str, Any] | None:
        """Return the JSON object in the first row of a query for one column; None without rows."""
        for (text,) in self._run(query, *values):
            return dict(json.loads(text))
        return None

    def begin(self, terms: dict[str, Any], header: dict[str, Any]) -> None:
        """Make the tables, and write what the stream begins with.

        Args:
            terms: the terms of the stream.
            header: the state before the first day.
        """
        for statement in _TABLES:
            self._run(statement)
        self._run("INSERT INTO stream VALUES (?, ?)", canonical_json(terms), canonical_json(header))

    def header(self) -> dict[str, Any]:
        """Return the state before the first day, as JSON. A file of an earlier version has the
        state after the last day there, which "measured" tells from today's.
        """
        ((header,),) = self._run("SELECT state FROM stream")
        return dict(json.loads(header))

    def states(self) -> Iterator[StreamDay]:
        """Yield what each day has added to the state, in order; one day is in memory at a time."""
        for day in self.days():
            rows = self._run("SELECT part, content FROM parts WHERE day = ?", day)
            yield StreamDay.from_parts(dict(rows))

    def rewrite(self, header: dict[str, Any], days: Sequence[StreamDay]) -> None:
        """Bring a file of an earlier version into today's form.

        Args:
            header: the state before the first day.
            days: what each day adds to it, from day 1 on.
        """
        self._run(_PARTS)
        self._run("UPDATE stream SET state = ?", canonical_json(header))
        for number, day in enumerate(days, 1):
            self._write_parts(number, day)

    def _write_parts(self, number: int, day: StreamDay) -> None:
        """Write what a day adds to the state.

        Args:
            number: the day's number, from 1.
            day: what it adds.
        """
        for part, content in day.to_parts().items():
            self._run("INSERT INTO parts VALUES (?, ?, ?)", number, part, content)

    def days(self) -> dict[int, tuple[str, str]]:
        """Return the days that were answered, in order: number of the day -> (name of its data,
        token of the copy of the file that answered it).
        """
        rows = self._run("SELECT day, partition, token FROM days ORDER BY day")
        return {day: (partition, token) for day, partition, token in rows}

    def answer(self, day: int) -> dict[str, Any] | None:
        """Return the answer of a day; None if it was not answered."""
        return self._json_object("SELECT answer FROM days WHERE day = ?", day)

    def append(
        self, day: int, partition: str, token: str, answer: dict[str, Any], state: StreamDay
    ) -> None:
        """Write the answer of a day together with what the day adds to the state.

        Args:
            day: the day's number, from 1.
            partition: the name of the day's data.
            token: a random text that identifies this copy of the file in the ledger.
            answer: the release as JSON.
            state: what the day adds to the state.
        """
        self._run(
            "INSERT INTO days VALUES (?, ?, ?, ?)", day, partition, token, canonical_json(answer)
        )
        self._write_parts(day, state)


class StreamFile:
    """A SQLite file that is as durable as a ledger's, and refused wherever a ledger's would be.

    Args:
        path: the path of the file.
        create: whether a file that does not exist is made, for its owner alone.

    Raises:
        LedgerError: when it cannot be opened, or lies where locks may not hold.
    """

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        file = LedgerFile.at(path)
        try:
            if create:
                file.make()
            self._store = Store(file.path, create=False)
        except LedgerError as error:
            raise LedgerError(str(error).replace("the ledger", "the file of the stream")) from None

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Open a transaction for a ``with`` block: what is written in it is durable when it ends,
        and after an error nothing of it is there.
        """
        with self._store.transaction("write") as log:
            yield Turn(log.run)
