"""Worlds of small tables of events, on which a plan is attested together with the code that reads
events.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dptopk._internal import validate
from dptopk.audit.worlds import LETTERS
from dptopk.datasets.events import events_histogram
from dptopk.datasets.two_counts import event_counts
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.planning.protocol import Reading, reading_of

MOST_TABLES = 4096  # the engine reads each of them
Table = tuple[int, ...]  # how many rows each user has with each label, user by user


@dataclass(frozen=True)
class EventsWorld:
    """All tables of the rows of a few users; two are neighbours if one lacks all rows of one user.

    Each table is read by the library's own code (``event_counts`` or ``events_histogram``), so that
    the caps are a part of what is attested. Which labels of a user count under a cap depends on
    ``key`` and on this user's rows alone; a claim has to hold for every key.

    Attributes:
        sensitivity: the caps under which a mechanism's histogram is read; a plan states its own.
        users: the number of users who may have rows.
        labels: the number of labels that may occur, from 1 to 26.
        rows: the most rows of one user with one label.
        key: a text that decides which labels of a user count under a cap.
    """

    sensitivity: Sensitivity = field(default_factory=lambda: Sensitivity(l0=1))
    users: int = 2
    labels: int = 2
    rows: int = 1
    key: str = ""

    # Labels are found in the rows.
    public = False

    def __post_init__(self) -> None:
        """Refuse numbers out of their ranges, and a sensitivity of sums of weights.

        Raises:
            InvalidParameter: naming the argument.
        """
        validate.count(labels=self.labels, at_most=len(LETTERS))
        validate.count(users=self.users, at_most=len(LETTERS))
        validate.count(rows=self.rows)
        if self.sensitivity.l2 is not None:
            raise InvalidParameter("sensitivity: events are read under caps, not under an l2")

    def levels(self) -> list[int]:
        """Return the possible numbers of rows of one user with one label."""
        return list(range(self.rows + 1))

    def histograms(self) -> list[Table]:
        """Return all tables.

        Raises:
            InvalidParameter: where there are too many of them.
        """
        cells = self.users * self.labels
        if len(self.levels()) ** cells > MOST_TABLES:
            raise InvalidParameter(
                f"users={self.users}, labels={self.labels}, rows={self.rows} give more than "
                f"{MOST_TABLES} tables; take fewer"
            )
        return list(itertools.product(self.levels(), repeat=cells))

    def neighbours(self) -> list[tuple[Table, Table]]:
        """Return all pairs of tables that differ by all rows of one user: (without, with)."""
        pairs = itertools.product(self.histograms(), range(self.users))
        present = ((table, user) for table, user in pairs if any(table[self._rows_of_user(user)]))
        return [(self._table_without_user(table, user), table) for table, user in present]

    def _rows_of_user(self, user: int) -> slice:
        """Return the part of a table that has the numbers of a user's rows."""
        return slice(user * self.labels, (user + 1) * self.labels)

    def _table_without_user(self, table: Table, user: int) -> Table:
        """Return a table without the rows of a user."""
        rows_of_user = self._rows_of_user(user)
        zeros = (0,) * self.labels
        return (*table[: rows_of_user.start], *zeros, *table[rows_of_user.stop :])

    def histogram_reader(self, mechanism: object) -> Callable[[Table], Histogram]:
        """Return the function with which an attestation reads a table of events into the Histogram
        that a plan or mechanism needs.

        Args:
            mechanism: the mechanism or plan that is attested.

        Raises:
            InvalidParameter: for a plan whose way is chosen by looks at users and counts.
        """
        reading = reading_of(mechanism, self.sensitivity)
        if reading.finding is not None and reading.finding.profile:
            raise InvalidParameter(
                "mechanism: the noise of its looks, for 1 and 3 per cent of ε, has too many values "
                "to be listed; state find=, share= or labels_per_user=, and it takes no look"
            )

        def read(table: Table) -> Histogram:
            """Return the histogram of a table."""
            return self._histogram_of_events(self._events_of_table(table), reading)

        return read

    def _histogram_of_events(self, events: pd.DataFrame, reading: Reading) -> Histogram:
        """Return the histogram of events, or both histograms for a reading in two phases."""
        capped = reading.sensitivity
        if reading.finding is None:
            return events_histogram(
                events,
                user="user",
                item="item",
                labels_per_user=capped.l0,
                per_label_cap=capped.linf,
                total_per_user=capped.l1,
                key=self.key,
            )
        return event_counts(
            events,
            user="user",
            item="item",
            labels_per_user=reading.finding.labels_per_user,
            weights=reading.finding.weights,
            per_label_cap=capped.linf,
            key=self.key,
        )

    def _events_of_table(self, table: Table) -> pd.DataFrame:
        """Return a table as events, with the columns user and item."""
        rows = list(self._rows_of_table(table))
        return pd.DataFrame(rows, columns=["user", "item"], dtype="str")

    def _rows_of_table(self, table: Table) -> Iterator[tuple[str, str]]:
        """Yield the rows (user, label) of a table."""
        places = itertools.product(range(self.users), range(self.labels))
        for (user, label), times in zip(places, table, strict=True):
            for _ in range(times):
                yield f"user {user}", LETTERS[label]

    def size_in_words(self) -> str:
        """Return the numbers of tables and pairs in words."""
        tables = len(self.histograms())
        pairs = len(self.neighbours())
        users = f"{self.users} users with {self.labels} labels"
        return f"{tables} tables of events of {users}, {pairs} pairs of neighbours"

    def fields_of_file(self) -> dict[str, Any]:
        """Return the fields of an attestation's file that say which tables are enumerated."""
        return {
            "format": "dptopk attestation 2",
            "users": self.users,
            "labels": self.labels,
            "levels": self.levels(),
            "key": self.key,
            "caps": str(self.sensitivity),
        }
