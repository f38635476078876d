"""Small tables of events and their neighbours: where a plan is attested together with the code that
reads events.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dptopk._internal import validate
from dptopk.audit.worlds import LETTERS, Places
from dptopk.datasets.events import events_histogram
from dptopk.datasets.two_counts import event_counts
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.planning.protocol import Plan, Reading

MOST_TABLES = 4096  # each is read by the engine
Table = Places  # how many rows each user has with each label, user by user


@dataclass(frozen=True)
class EventsWorld:
    """All tables of a few users' rows; two are neighbours where one lacks all rows of one user.

    Each table is read by the library's own code (``event_counts`` or ``events_histogram``), so that
    the caps are a part of what is attested. Which labels of a user count under a cap depends on
    ``key`` and on this user's rows alone; a claim has to hold for every key.

    Attributes:
        sensitivity: the caps under which a mechanism's histogram is read; a plan states its own.
        users: at most this many have rows.
        labels: labels that may occur, at least 1, at most 26.
        rows: the most rows of one user with one label.
        key: varies which labels of a user count under a cap.
    """

    sensitivity: Sensitivity = field(default_factory=lambda: Sensitivity(l0=1))
    users: int = 2
    labels: int = 2
    rows: int = 1
    key: str = ""

    # Labels are found in the rows.
    public = False

    def __post_init__(self) -> None:
        validate.count(labels=self.labels, at_most=len(LETTERS))
        validate.count(users=self.users, at_most=len(LETTERS))
        validate.count(rows=self.rows)
        if self.sensitivity.l2 is not None:
            raise InvalidParameter("sensitivity: events are read under caps, not under an l2")

    def levels(self) -> list[int]:
        """How many rows of one user with one label there may be."""
        return list(range(self.rows + 1))

    def histograms(self) -> list[Table]:
        """All tables.

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
        """All pairs that differ by the rows of one user: (without, with)."""
        pairs = itertools.product(self.histograms(), range(self.users))
        present = ((table, user) for table, user in pairs if any(table[self._places(user)]))
        return [(self._without(table, user), table) for table, user in present]

    def _places(self, user: int) -> slice:
        """Where a table has the rows of a user."""
        return slice(user * self.labels, (user + 1) * self.labels)

    def _without(self, table: Table, user: int) -> Table:
        own = self._places(user)
        nothing = (0,) * self.labels
        return (*table[: own.start], *nothing, *table[own.stop :])

    def reader(self, mechanism: object) -> Callable[[Table], Histogram]:
        """Return what reads a table as this plan, or this mechanism, needs it.

        Raises:
            InvalidParameter: for a plan whose way is chosen by looks at users and counts.
        """
        if isinstance(mechanism, Plan):
            reading = mechanism.reading
        else:
            reading = Reading(self.sensitivity)
        if reading.finding is not None and reading.finding.profile:
            raise InvalidParameter(
                "mechanism: the noise of its looks, for 1 and 3 per cent of ε, has too many values "
                "to be listed; state find=, share= or labels_per_user=, and it takes no look"
            )

        def read(table: Table) -> Histogram:
            return self._read(self._frame(table), reading)

        return read

    def _read(self, events: pd.DataFrame, reading: Reading) -> Histogram:
        """The histogram of a table, or both of them."""
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

    def _frame(self, table: Table) -> pd.DataFrame:
        """The rows of a table."""
        rows = list(self._rows(table))
        return pd.DataFrame(rows, columns=["user", "item"], dtype="str")

    def _rows(self, table: Table) -> Iterator[tuple[str, str]]:
        places = itertools.product(range(self.users), range(self.labels))
        for (user, label), times in zip(places, table, strict=True):
            for _ in range(times):
                yield f"user {user}", LETTERS[label]

    def size(self) -> str:
        """How much is looked at, in words."""
        tables = len(self.histograms())
        pairs = len(self.neighbours())
        whose = f"{self.users} users with {self.labels} labels"
        return f"{tables} tables of events of {whose}, {pairs} pairs of neighbours"

    def stated(self) -> dict[str, Any]:
        """The fields of an attestation's file that say which tables are listed."""
        return {
            "format": "dptopk attestation 2",
            "users": self.users,
            "labels": self.labels,
            "levels": self.levels(),
            "key": self.key,
            "caps": str(self.sensitivity),
        }
