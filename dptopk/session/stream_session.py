"""A top k every day inside a budget: the whole charge is spent first, then each day is answered
once.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dptopk._internal import validate
from dptopk.budgets.parallel import Parallel
from dptopk.costs import Charge, GaussianDP
from dptopk.datasets.store import EventsStore
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import from_plain
from dptopk.mechanisms.continual import ContinualTopK
from dptopk.mechanisms.stream_state import Stream
from dptopk.release.release import Release
from dptopk.session.budget_backend import LedgerBudget
from dptopk.session.stream_calendar import (
    LATE as LATE,  # noqa: PLC0414 - the commands import it from here
    Calendar as Calendar,  # noqa: PLC0414 - the same
)
from dptopk.session.stream_file import StreamFile, Turn
from dptopk.session.stream_terms import (
    charged_terms,
    mechanism_in,
    refuse_other_terms,
    stream_key,
    terms_of_stream,
)

if TYPE_CHECKING:
    from numpy.random import Generator

    from dptopk.ledger.ledger import Ledger


class StreamSession:
    """A stream whose whole charge has been spent; ``Session.stream`` and ``StreamSession.open``
    make it.

    A day's answer and the state after it are written durably before the ledger has the answer, and
    the ledger has it before the caller does. So noise is drawn once for each day, whatever fails in
    between: a day that was asked before gives the same answer again, and a day that was cut off
    gives the answer that was written, or was never drawn.

    Attributes:
        name: the name of the stream.
        mechanism: the mechanism that answers the days.
        sensitivity: the caps on what one user adds on one day.
        calendar: the dates of its days.
        rng: a seeded generator; None: cryptographically secure noise.
        wait: the function that is called after a day's noise is drawn, before the ledger has the
            answer and the day can be seen; a service waits in it for the next of the times at which
            it sends answers. None: nothing is called.
    """

    def __init__(self, book: LedgerBudget, file: StreamFile, terms: dict[str, Any]) -> None:
        self.name: str = terms["stream"]
        self.mechanism = mechanism_in(terms)
        self.sensitivity = Sensitivity(**terms["sensitivity"])
        self.calendar = Calendar(**terms["calendar"])
        self.rng: Generator | None = None
        self.wait: Callable[[], None] | None = None
        self._book = book
        self._file = file
        self._pid = os.getpid()
        self._latest = _NO_STATE

    @classmethod
    def open(cls, ledger: Ledger, path: str | Path) -> StreamSession:
        """Return the stream of a file, to go on with; nothing is charged.

        Raises:
            InvalidParameter: when the file is not of a stream that this ledger has.
            LedgerError: when it cannot be read.
        """
        file = StreamFile(path)
        with file.turn() as turn:
            terms = turn.terms()
        if terms is None:
            raise InvalidParameter(f"path: {str(path)!r} is not the file of a stream")
        day_shape = Histogram({}, sensitivity=Sensitivity(**terms["sensitivity"]))
        book = LedgerBudget(
            ledger, terms["dataset"], terms["analyst"], day_shape, None, None, seeded=False
        )
        if charged_terms(book, terms["stream"]) != terms:
            raise InvalidParameter(f"path: this ledger has no such stream {terms['stream']!r}")
        return cls(book, file, terms)

    @classmethod
    def begin(
        cls,
        book: LedgerBudget,
        day_shape: Histogram,
        name: str,
        mechanism: ContinualTopK,
        path: str | Path,
        calendar: Calendar,
    ) -> StreamSession:
        """Charge a stream and make its file, or open the stream that was charged before on the same
        terms.

        Args:
            book: the account that pays.
            day_shape: a histogram with the sensitivity and the domain of a day's.
            name: the stream's name.
            mechanism: the mechanism that answers the days.
            path: the stream's file.
            calendar: the dates of the days.

        Raises:
            BudgetExceeded: if it does not fit; nothing was charged.
            InvalidParameter, LedgerError: as ``Session.stream``.
        """
        validate.text(name=name)  # refuses what is no text
        terms = terms_of_stream(name, mechanism, day_shape, calendar) | book.owner
        public_labels = day_shape.labels.tolist() if day_shape.domain == "public" else None
        # The state before day 1: a mechanism that cannot run fails here, before it is charged.
        start = mechanism.stream(day_shape.sensitivity, labels=public_labels)
        if isinstance(book.account(), Parallel):
            raise InvalidParameter(
                "name: streams cannot have segments, since users may change segments between days"
            )
        days_per_user = mechanism.days_per_user or mechanism.days
        all_days_protected = mechanism.days_apart == 1 and days_per_user >= mechanism.days
        if book.unit is None and not all_days_protected:
            raise InvalidParameter(
                "unit: this stream protects some days of a user, not all; state the data set's "
                "unit, such as 'user-day', that says so, or plan with days_per_user=days",
                parameter="unit",
            )
        file = StreamFile(path, create=True)
        with file.turn() as turn:
            refuse_other_terms(terms, turn.terms(), "path: the file's stream")
        if charged_terms(book, name) is None:
            book.charge(start.charge, "", f"stream {name!r}", once=stream_key(name), stream=terms)
        # Another process may have charged the name first, with other terms.
        refuse_other_terms(terms, charged_terms(book, name), "name: the stream")
        with file.turn() as turn:
            if turn.terms() is None:
                turn.begin(terms, start.header())
        return cls(book, file, terms)

    def answer(
        self, day: int | str | date, data: Histogram | EventsStore, *, partition: str | None = None
    ) -> Release:
        """Return the answer of a day: drawn if it is the next one, repeated if it was answered.

        Args:
            day: the day's number from 1, or its date. A day that was answered gives that answer,
                whatever ``data`` holds now.
            data: the counts of this day alone; or a store of events made with ``partitions=True``,
                if users may be active on days in a row.
            partition: the name of the data; default: the day's date or number. One that an earlier
                day had is refused. Of a store, the version under which the day was appended.

        Raises:
            InvalidParameter: for a day after the next one (a day without data has an empty
                histogram), a partition that was counted before, or data that do not fit; nothing
                has changed.
            LedgerError: when the file is an old copy, the budget was renewed, or a database refuses
                (then ask again).
        """
        number = self.calendar.number(day)
        latest = None
        with self._open_turn() as turn:
            if turn.answer(number) is None:
                name = self.calendar.name(number) if partition is None else partition
                latest = self._answer_next_day(turn, number, data, name)
        if latest is not None:  # set after the transaction: the file has the day now
            self._latest = latest
        return cast("Release", self.stored(number))  # never None: the day was answered

    def stored(self, day: int | str | date) -> Release | None:
        """Return the answer of a day that was answered before, or None; nothing is drawn."""
        with self._open_turn() as turn:
            answer = turn.answer(self.calendar.number(day))
        if answer is None:
            return None
        return replace(Release.from_dict(answer), mechanism=self.mechanism)

    def answered(self) -> dict[int, str]:
        """Return the days that were answered, in order: number -> name of its data."""
        with self._open_turn() as turn:
            return {day: partition for day, (partition, _) in turn.days().items()}

    def public_labels(self) -> list[Any] | None:
        """Return the labels of a public domain, in their order; None if labels are private."""
        with self._open_turn() as turn:
            header = turn.header()
        if header["public"]:
            return [from_plain(name) for name in header["names"]]
        return None

    @contextmanager
    def _open_turn(self) -> Iterator[Turn]:
        """Open a transaction on the file, in which the file and the ledger have the answers of the
        same days.

        A day that the file has and the ledger does not, because a process was cut off in between,
        is recorded in the ledger first.

        Raises:
            InvalidParameter: in a forked process.
            LedgerError: if the ledger has a day that the file lacks, since the file is then an old
                copy.
        """
        if os.getpid() != self._pid:
            raise InvalidParameter("a stream cannot be used in a forked process; open it there")
        with self._file.turn() as turn:
            days = turn.days()
            if self._book.asked(stream_key(self.name, len(days) + 1)) is not None:
                raise LedgerError(
                    f"the ledger has the answer of day {len(days) + 1} of the stream "
                    f"{self.name!r}, its file lacks it: put the newest file back; an old copy "
                    "would draw the noise of that day anew"
                )
            # Days are recorded in order, so that all days before a recorded one are recorded too.
            for day in reversed(days):
                _, token = days[day]
                if self._record_answer(day, token, turn):
                    break
            yield turn

    def _record_answer(self, day: int, token: str, turn: Turn) -> bool:
        """Record the answer of a day in the ledger, unless it has it; return whether it had it.

        Args:
            day: the day's number.
            token: the token that this copy of the file has for the day.
            turn: the transaction on the file.

        Raises:
            LedgerError: if another copy of the file has answered the day.
        """
        key = stream_key(self.name, day)
        receipt = None
        spend = self._book.asked(key)
        if spend is None or not spend.released:
            # Here, since another process may find the day in the file at once, and record it.
            if self.wait is not None:
                self.wait()
            free = Charge(neighbours=self.sensitivity.neighbours)
            receipt = self._book.charge(
                free, "", f"stream {self.name!r}, day {day}", once=key, token=token
            )
            spend = self._book.asked(key)
        if spend is None or spend.mechanism.get("token") != token:
            raise LedgerError(
                f"another copy of the file of the stream {self.name!r} has answered day {day}: "
                f"use it"
            )
        if receipt is None:
            return True
        answer = Release.from_dict(turn.answer(day) or {})  # never {}: the file has the day
        self._book.finalize(receipt, replace(answer, charge=receipt.charge))
        return False

    def _state(self, turn: Turn) -> Stream:
        """Return the state of the mechanism after the last day.

        It is the one in this process's memory if it is of the last day in the file; else the
        file's. A file of an earlier version is rewritten.
        """
        latest = self._latest
        self._latest = _NO_STATE  # a day that fails may leave the state half changed
        days = turn.days()
        token = ""  # before the first day
        if days:
            _, token = days[len(days)]
        if latest.stream is not None and latest.token == token:
            latest.stream.rng = self.rng
            return latest.stream
        header = turn.header()
        if "measured" not in header:
            return Stream.from_days(
                header, turn.states(), self.mechanism, self.sensitivity, self.rng
            )
        restored = Stream.from_dict(header, self.mechanism, self.sensitivity, self.rng)
        turn.rewrite(restored.header(), restored.days)
        return restored

    def _answer_next_day(
        self, turn: Turn, number: int, data: Histogram | EventsStore, partition: str
    ) -> _Latest:
        """Answer the next day, write the answer and what the day adds to the state to the file, and
        return the state after it.

        Args:
            turn: the transaction on the file.
            number: the day's number, from 1.
            data: the day's counts, or a store with a partition for each day.
            partition: the name of the day's data.

        Raises:
            InvalidParameter: for another day than the next, a name of data that is no text, data
                that were counted before, or a store without the cap on days that the stream needs.
            LedgerError: where the stream's budget was renewed, or what its file measures costs more
                than was charged.
        """
        self._refuse_day(turn.days(), number, partition)
        spend = self._book.asked(stream_key(self.name))
        if spend is None or not spend.current:
            raise LedgerError(
                "the budget charged for this stream was renewed: create another stream"
            )
        if isinstance(data, EventsStore):
            self._check_store(data)
            data = data.histogram(partition=partition)
        stream = self._state(turn)
        # A file written by another version may hold measurements that its solver found after the
        # charge. The factor allows for rounding in the text of the charge.
        charged = _largest_mu(spend.charge) * (1 + 1e-9)
        if stream.mechanism is not self.mechanism and _largest_mu(stream.charge) > charged:
            raise LedgerError(
                "the measurements in the stream's file cost more than was charged: create "
                "another stream"
            )
        release = stream.release(data)
        token = secrets.token_hex(16)
        turn.append(number, partition, token, release.to_dict(), stream.last_day)
        return _Latest(token, stream)

    def _refuse_day(self, days: dict[int, tuple[str, str]], number: int, partition: str) -> None:
        """Refuse a day that is not the next one, and data that were counted before.

        Args:
            days: the days that were answered: number -> (name of its data, token).
            number: the day's number, from 1.
            partition: the name of the day's data.

        Raises:
            InvalidParameter: naming the next day, or the day on which the data were counted.
        """
        next_number = len(days) + 1
        if number != next_number:
            next_day = self.calendar.name(next_number)
            raise InvalidParameter(
                f"day={number}: the next day to be answered is day {next_number} ({next_day}); for "
                "a day without data give an empty histogram"
            )
        validate.text(partition=partition)  # refuses what is no text
        for same_day, (name, _) in days.items():
            if name == partition:
                raise InvalidParameter(
                    f"partition: {partition!r} was counted on day {same_day}, and counts only once"
                )

    def _check_store(self, store: EventsStore) -> None:
        """Refuse a store that does not limit on how many days a user counts as this stream needs.

        A user who is active on one day only is protected whatever the store does, and so is one who
        may be active on all days.

        Raises:
            InvalidParameter: with the number of days that the store must limit users to.
        """
        user_days = self.mechanism.participation
        if user_days.apart > 1:
            raise InvalidParameter(
                "data: a store of events does not keep the days of a user apart, as "
                f"days_apart={user_days.apart} needs it; give the day's histogram"
            )
        needs_cap = 1 < user_days.most < user_days.days
        days_in_store = store.days_per_user or user_days.days  # None: a user may count on all
        if needs_cap and days_in_store > user_days.most:
            raise InvalidParameter(
                f"data: {user_days.most} days of a user are protected; make a store of "
                f"days_per_user={user_days.most}"
            )


@dataclass(frozen=True)
class _Latest:
    """The state of a stream in the memory of this process.

    Attributes:
        token: the token of the last day that the state holds; "" before the first day.
        stream: the state; None: it is not in memory, and is read from the file.
    """

    token: str
    stream: Stream | None


_NO_STATE = _Latest("", None)


def _largest_mu(charge: Charge) -> float:
    """Return the largest μ of the Gaussian costs (``GaussianDP``) in a charge; 0 if there are
    none.
    """
    return max((cost.mu for cost in charge.of(GaussianDP)), default=0.0)
