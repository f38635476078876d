"""The open connections of a worker, and which of them ends where there are too many.

A connection is a stranger's until a request on it shows a valid token. Strangers have fewer places
than there are, so that holders of a token always find one; each address and each analyst has a
limit of its own. Where one more comes, the connection that has been idle longest ends first, and
then the one whose request has been incomplete longest. A connection whose request is complete never
ends for another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class ConnectionPhase(IntEnum):
    """The state of a connection, in the order in which connections end to make room."""

    IDLE = 0  # the last request was answered
    RECEIVING = 1  # a request is incomplete, or an answer is not fetched
    ANSWERING = 2  # a complete request is being answered


class Place(Protocol):
    """A connection as its limits see it.

    Attributes:
        address: of the other end.
        analyst: whose valid token it has shown last; None: a stranger's.
        phase: what it is at.
        since: when it came to this phase, in seconds.
    """

    address: str
    analyst: str | None
    phase: ConnectionPhase
    since: float

    def end(self) -> None:
        """End it now."""


@dataclass(frozen=True)
class ConnectionLimits:
    """The numbers of open connections of one worker.

    Attributes:
        total: of all.
        strangers: of those that have shown no valid token.
        of_address: of strangers from one address.
        of_analyst: of one analyst.
    """

    total: int = 800
    strangers: int = 600
    of_address: int = 256
    of_analyst: int = 100

    @classmethod
    def within(cls, files: int) -> ConnectionLimits:
        """The usual limits, or smaller ones in the same proportion for a process that may open
        fewer than 1,024 files, of which 224 are not for connections.
        """
        total = min(cls.total, max(16, files - 224))
        return cls(
            total=total,
            strangers=cls.strangers * total // cls.total,
            of_address=cls.of_address * total // cls.total,
            of_analyst=cls.of_analyst * total // cls.total,
        )


class Connections:
    """The open connections of a worker; used by its event loop alone.

    Args:
        limits: how many there may be.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._strangers: dict[str, dict[Place, None]] = {}  # by address
        self._known: dict[str, dict[Place, None]] = {}  # by analyst
        self._number_of_strangers = 0
        self._number = 0

    def enter(self, place: Place) -> None:
        """One more connection, of a stranger; another one ends where there is no room, or this
        one.
        """
        self._add(place)
        limits = self._limits
        same_address = self._strangers[place.address]
        if len(same_address) > limits.of_address:
            self._end_one(same_address)
        elif self._number_of_strangers > limits.strangers:
            self._end_one(self._all_strangers())
        elif self._number > limits.total:
            self._end_one_of_all()

    def _end_one_of_all(self) -> None:
        """End a stranger's connection, or where strangers have few one of the analyst who has most:
        whoever comes is a stranger at first.
        """
        analyst = max(self._known, key=lambda name: len(self._known[name]), default="")
        most = self._known.get(analyst, {})
        groups: list[Iterable[Place]] = [self._all_strangers(), most]
        if self._number_of_strangers <= self._limits.strangers // 8:
            groups.reverse()
        for group in groups:
            if self._end_one(group):
                return

    def identify(self, place: Place, analyst: str) -> None:
        """The connection has shown a valid token of an analyst."""
        if place.analyst == analyst:
            return
        self.leave(place)
        place.analyst = analyst
        self._add(place)
        mine = self._known[analyst]
        if len(mine) > self._limits.of_analyst:
            self._end_one(mine)

    def leave(self, place: Place) -> None:
        """One less, if it was there."""
        group, name = self._group(place)
        members = group.get(name, {})
        if place not in members:
            return
        del members[place]
        if not members:
            del group[name]
        self._number -= 1
        self._number_of_strangers -= place.analyst is None

    def _group(self, place: Place) -> tuple[dict[str, dict[Place, None]], str]:
        if place.analyst is None:
            return self._strangers, place.address
        return self._known, place.analyst

    def _add(self, place: Place) -> None:
        group, name = self._group(place)
        group.setdefault(name, {})[place] = None
        self._number += 1
        self._number_of_strangers += place.analyst is None

    def _all_strangers(self) -> Iterable[Place]:
        return (place for group in self._strangers.values() for place in group)

    def _end_one(self, places: Iterable[Place]) -> bool:
        """End the first of these that may end; whether there was one."""
        candidates = [place for place in places if place.phase is not ConnectionPhase.ANSWERING]
        if not candidates:
            return False
        first = min(candidates, key=lambda place: (place.phase, place.since))
        self.leave(first)
        first.end()
        return True
