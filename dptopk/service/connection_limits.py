"""The open connections of a worker, and which of them ends if there are too many.

A connection is a stranger's until a request on it shows a valid token. Strangers may have fewer
connections than there may be in all, so that holders of a token always find room; each address and
each analyst has a limit of its own. If there is one connection too many, the one that has been idle
longest ends first, then the one whose request has been incomplete longest. A connection whose
request is complete never ends for another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

RESERVED_FILES = 224  # of 1,024, which is what most systems allow; 800 are left for connections
LEAST_CONNECTIONS = 16  # so many are allowed, however few files the process may have
FEW_STRANGERS = 1 / 8  # this part of their limit, or less, is few connections of strangers


class ConnectionPhase(IntEnum):
    """The state of a connection, in the order in which connections end to make room."""

    IDLE = 0  # the last request was answered
    RECEIVING = 1  # a request is incomplete, or an answer is not fetched
    ANSWERING = 2  # a complete request is being answered


class CountedConnection(Protocol):
    """A connection, as the count of them needs it; ``connections.LimitedConnection`` is one.

    Attributes:
        address: the address of the other end.
        analyst: the analyst whose valid token it has shown last; None: it is a stranger's.
        phase: what the connection is doing.
        since: when it came to this phase, in seconds.
    """

    address: str
    analyst: str | None
    phase: ConnectionPhase
    since: float

    def end(self) -> None:
        """End the connection now."""


Group = dict[CountedConnection, None]  # a set of connections, in the order in which they came


@dataclass(frozen=True)
class ConnectionLimits:
    """The largest numbers of open connections of one worker.

    Attributes:
        total: all connections.
        strangers: connections that have shown no valid token.
        of_address: strangers' connections from one address.
        of_analyst: connections of one analyst.
    """

    total: int = 800
    strangers: int = 600
    of_address: int = 256
    of_analyst: int = 100

    @classmethod
    def for_files(cls, files: int) -> ConnectionLimits:
        """Return the usual limits or, for a process that may open fewer than 1,024 files, smaller
        ones in the same proportion.

        RESERVED_FILES of them are left for databases and data; even so there are at least
        LEAST_CONNECTIONS.

        Args:
            files: how many files the process may have open.
        """
        total = min(cls.total, max(LEAST_CONNECTIONS, files - RESERVED_FILES))
        return cls(
            total=total,
            strangers=cls.strangers * total // cls.total,
            of_address=cls.of_address * total // cls.total,
            of_analyst=cls.of_analyst * total // cls.total,
        )


class Connections:
    """The open connections of a worker; only the thread of its event loop uses this.

    Args:
        limits: the largest numbers of connections.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._strangers: dict[str, Group] = {}  # by address
        self._known: dict[str, Group] = {}  # by analyst
        self._number_of_strangers = 0
        self._number = 0

    def enter(self, connection: CountedConnection) -> None:
        """Count a new connection, which is a stranger's; if there is no room, another one or this
        one ends.
        """
        self._add(connection)
        limits = self._limits
        same_address = self._strangers[connection.address]
        # There is one connection more than before: to end one is enough for every limit.
        if len(same_address) > limits.of_address:
            self._end_one(same_address)
        elif self._number_of_strangers > limits.strangers:
            self._end_one(self._all_strangers())
        elif self._number > limits.total:
            self._end_one_of_all()

    def _end_one_of_all(self) -> None:
        """End one connection, since there are too many in all; none ends if all are being answered.

        It is a stranger's or, if strangers have few, one of the analyst who has most: an analyst's
        new connection is a stranger's at first, and must find room.
        """
        analyst = max(self._known, key=lambda name: len(self._known[name]), default="")
        connections_of_analyst = self._known.get(analyst, {})
        groups: list[Iterable[CountedConnection]] = [self._all_strangers(), connections_of_analyst]
        if self._number_of_strangers <= self._limits.strangers * FEW_STRANGERS:
            groups.reverse()
        for group in groups:
            if self._end_one(group):
                return

    def identify(self, connection: CountedConnection, analyst: str) -> None:
        """Record that a connection has shown a valid token of an analyst.

        One that was lost while its token was looked up is not counted again.
        """
        if connection.analyst == analyst or not self._is_counted(connection):
            return
        self.leave(connection)
        connection.analyst = analyst
        self._add(connection)
        connections_of_analyst = self._known[analyst]
        if len(connections_of_analyst) > self._limits.of_analyst:
            self._end_one(connections_of_analyst)

    def leave(self, connection: CountedConnection) -> None:
        """Count one connection less, if it was counted."""
        if not self._is_counted(connection):
            return
        groups = self._groups(connection)
        name = _group_name(connection)
        del groups[name][connection]
        if not groups[name]:
            del groups[name]
        self._number -= 1
        if connection.analyst is None:
            self._number_of_strangers -= 1

    def _groups(self, connection: CountedConnection) -> dict[str, Group]:
        """Return the groups of which a connection belongs to one: by address for a stranger's, else
        by analyst.
        """
        if connection.analyst is None:
            return self._strangers
        return self._known

    def _is_counted(self, connection: CountedConnection) -> bool:
        """Return whether a connection is open, as far as the limits know: it has entered, and not
        left.
        """
        group = self._groups(connection).get(_group_name(connection), {})
        return connection in group

    def _add(self, connection: CountedConnection) -> None:
        """Count a connection in its group."""
        group = self._groups(connection).setdefault(_group_name(connection), {})
        group[connection] = None
        self._number += 1
        if connection.analyst is None:
            self._number_of_strangers += 1

    def _all_strangers(self) -> Iterable[CountedConnection]:
        """Return all connections of strangers."""
        return (connection for group in self._strangers.values() for connection in group)

    def _end_one(self, connections: Iterable[CountedConnection]) -> bool:
        """End the connection among these that has waited longest; return False if none may end."""
        candidates = [
            connection
            for connection in connections
            if connection.phase is not ConnectionPhase.ANSWERING
        ]
        if not candidates:
            return False
        # Idle connections end before those of incomplete requests.
        first_to_end = min(candidates, key=lambda connection: (connection.phase, connection.since))
        self.leave(first_to_end)
        first_to_end.end()
        return True


def _group_name(connection: CountedConnection) -> str:
    """Return the name of the group that a connection is counted in: its address, or its analyst."""
    if connection.analyst is None:
        return connection.address
    return connection.analyst
