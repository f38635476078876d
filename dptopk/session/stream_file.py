"""This module says what a stream needs from one day to the next, in a file that is as private as
the data.

It holds counts: sums of days that are not measured yet have no noise. So it lies with the data, for
its owner alone, and nothing of it goes into the ledger but released answers, and for each day a
random token that says which copy of the file gave the answer.
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

# The parts of a day (``StreamDay.to_parts``), which are written once.
_PARTS = (
    "CREATE TABLE IF NOT EXISTS parts (day INTEGER, part INTEGER, content BLOB NOT NULL, "
    "PRIMARY KEY (day, part))"
)
_TABLES = (
    _PARTS,
    "CREATE TABLE stream (terms TEXT NOT NULL, state TEXT NOT NULL)",
    (
        "CREATE TABLE days (day INTEGER PRIMARY KEY, partition TEXT NOT NULL UNIQUE, token TEXT "
        "NOT "
        "NULL, answer TEXT)"
    ),
)


class Turn:
    """One transaction on the file of a stream, which nobody else has open meanwhile.

    Args:
        run: runs a statement, with its values, and reads all rows.
    """

    def __init__(self, run: Callable[..., list[tuple[Any, ...]]]) -> None:
        self._run = run

    def terms(self) -> dict[str, Any] | None:
        """Return what the stream was created with; None in a new file.

        Raises:
            InvalidParameter: for a file that holds something else.
        """
        tables = {
            name for (name,) in self._run("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if tables and not {"stream", "days"} <= tables:
            raise InvalidParameter("path: this is not the file of a stream")
        rows = self._run("SELECT terms FROM stream") if tables else []
        if rows:
            return dict(json.loads(rows[0][0]))
        return None

    def begin(self, terms: dict[str, Any], header: dict[str, Any]) -> None:
        """Write the terms and the state before the first day."""
        for statement in _TABLES:
            self._run(statement)
        self._run("INSERT INTO stream VALUES (?, ?)", canonical_json(terms), canonical_json(header))

    def header(self) -> dict[str, Any]:
        """The state before the first day; of a file of an earlier version, after the last one."""
        ((header,),) = self._run("SELECT state FROM stream")
        return dict(json.loads(header))

    def states(self) -> Iterator[StreamDay]:
        """Return what each day has added to the state, in order; one day is in memory at a time."""
        for day in self.days():
            yield StreamDay.from_parts(
                dict(self._run("SELECT part, content FROM parts WHERE day = ?", day))
            )

    def rewrite(self, header: dict[str, Any], days: Sequence[StreamDay]) -> None:
        """Bring a file of an earlier version into today's form."""
        self._run(_PARTS)
        self._run("UPDATE stream SET state = ?", canonical_json(header))
        for number, day in enumerate(days, 1):
            self._add(number, day)

    def _add(self, number: int, day: StreamDay) -> None:
        for part, content in day.to_parts().items():
            self._run("INSERT INTO parts VALUES (?, ?, ?)", number, part, content)

    def days(self) -> dict[int, tuple[str, str]]:
        """The days that were answered, each with the name of its data and its token."""
        rows = self._run("SELECT day, partition, token FROM days ORDER BY day")
        return {day: (partition, token) for day, partition, token in rows}

    def answer(self, day: int) -> dict[str, Any] | None:
        """The answer of a day; None when it was not answered."""
        rows = self._run("SELECT answer FROM days WHERE day = ?", day)
        if rows:
            return dict(json.loads(rows[0][0]))
        return None

    def append(
        self, day: int, partition: str, token: str, answer: dict[str, Any], state: StreamDay
    ) -> None:
        """Write a day's answer together with what it adds to the state."""
        self._run(
            "INSERT INTO days VALUES (?, ?, ?, ?)", day, partition, token, canonical_json(answer)
        )
        self._add(day, state)


class StreamFile:
    """A SQLite file, as durable as a ledger's, and refused where that would be.

    Args:
        path: of the file.
        create: whether to make it where there is none, for its owner alone.

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
        """One transaction: what is written in it is durable when it ends, or, after any error, not
        there at all.
        """
        with self._store.transaction("write") as log:
            yield Turn(log.run)
