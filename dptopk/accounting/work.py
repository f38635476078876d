"""Counted work: how far a question is refined depends on the question and the effort, never on a
clock.

Every refinement knows its work before it starts: the node values of a recursion, the places of a
lattice, the losses that are listed, each weighted so that a unit takes about a second of one
processor. A question has one sequence of refinements, coarse ones first, made of one stage for each
effort; a budget of work cuts it at the first refinement that does not fit. So more effort never
gives a worse end, and the same question has the same answer.

A clock is a guard only: inside ``within`` what is finished in time is the answer, and it says that
it was cut.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dptopk._internal import validate
from dptopk._internal.choices import EFFORTS, Effort

# The work of all stages up to that of each effort.
STAGES = dict(zip(EFFORTS, (0.25, 2.5, 25.0), strict=True))
USED_UP = "the work of this effort was used up before the bracket was as narrow as asked"
CUT_BY_TIME = "cut by max_seconds: not reproducible"

_end: ContextVar[float] = ContextVar("end", default=math.inf)


class OutOfTime(Exception):
    """The time of ``within`` is over."""


@dataclass(slots=True)
class Work:
    """The meter of one question.

    Attributes:
        budget: what may be spent, in seconds.
        spent: what was spent, in seconds; inf after the first refinement that did not fit.
    """

    budget: float = STAGES["normal"]
    spent: float = 0.0

    @classmethod
    def of(cls, effort: Effort) -> Work:
        """Return the meter of an effort, with nothing spent.

        Raises:
            InvalidParameter: for another word.
        """
        return cls(STAGES[validate.member(EFFORTS, effort=effort)])

    def take(self, amount: float) -> bool:
        """Spend the work of a refinement, in seconds; return whether it may run.

        It may not where it does not fit into the budget or the time of ``within`` is over. From
        then on ``spent`` is inf, so that no later one runs either.
        """
        spent = self.spent + amount
        fits = spent <= self.budget  # NaN does not fit
        if not fits or late():
            self.spent = math.inf
            return False
        self.spent = spent
        return True

    def stage_rooms(self) -> Iterator[float]:
        """Yield, at the beginning of each stage, the work that is left for it."""
        for limit in STAGES.values():
            yield limit - self.spent

    @property
    def note(self) -> str:
        """Return why there was no more refinement."""
        if late():
            return CUT_BY_TIME
        return USED_UP


@contextmanager
def within(max_seconds: float | None) -> Iterator[None]:
    """Cut everything inside after about ``max_seconds``, or by a limit around it; None sets no
    limit.

    Raises:
        InvalidParameter: for a number that is not above 0.
    """
    if max_seconds is None:
        yield
        return
    token = _end.set(min(_end.get(), time.monotonic() + validate.positive(max_seconds=max_seconds)))
    try:
        yield
    finally:
        _end.reset(token)


def has_time_limit() -> bool:
    """Return whether a time limit may end the computation early."""
    return _end.get() < math.inf


def late() -> bool:
    """Return whether the time limit has passed; without a limit no clock is read."""
    return _end.get() < math.inf and time.monotonic() > _end.get()


def raise_if_late() -> None:
    """End a computation whose result would be discarded, because its time is over.

    Raises:
        OutOfTime: when the time is over.
    """
    end = _end.get()  # not ``late``: this is called for each of many layers
    if end < math.inf and time.monotonic() > end:
        raise OutOfTime
