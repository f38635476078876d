"""Status of each question, visible to every worker, and its cancellation before it is charged.

A job is a row, one for each key of an analyst; all workers that are asked under a key share its
row. MOVES says from which stages a row comes to another, and each move is one conditional update. A
worker charges only after it has moved the row to "charging", and nothing leads back from there to
"reading", the only stage that can be called off. So what is "cancelled" was not charged, and never
is: its key is used up. Whether a question was charged the ledger alone says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import sqlalchemy as sa

from dptopk.errors import DptopkError, LedgerError
from dptopk.service.tables import Tables

PROGRESS_SECONDS = 0.2  # seconds between two lines of progress
HEARTBEAT_SECONDS = 5.0  # seconds between two signs of life of a job
LOST_SECONDS = 60.0  # seconds without one after which the worker counts as killed
KEPT_SECONDS = 86_400.0  # of a finished job; one that was called off stays, as its key is used up

OPEN = ("reading", "charging")
OVER = ("failed", "done")
NOT_CALLED_OFF = (*OPEN, *OVER)
MOVES = {  # to -> from
    "reading": ("reading",),
    "charging": NOT_CALLED_OFF,
    "cancelled": ("reading",),
    "failed": OPEN,
    "done": NOT_CALLED_OFF,
}


class JobColumns(TypedDict, total=False):
    """Columns of a job's row that change."""

    stage: str
    done: int
    total: int
    code: str
    message: str


FRESH: JobColumns = {"done": 0, "total": 0, "code": "", "message": ""}


class Cancelled(DptopkError):
    """The question was called off before it was charged."""


@dataclass(frozen=True)
class Job:
    """The status of a question.

    Attributes:
        stage: "reading" (the data), "charging" (it may be charged at any moment, or is; what failed
            and is asked again begins here), "done", "cancelled" or "failed".
        done, total: passes over the data.
        code, message: of the error of a failed job.
    """

    id: str
    analyst: str
    dataset: str
    stage: str
    done: int = 0
    total: int = 0
    code: str = ""
    message: str = ""

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.stage in {"done", "cancelled", "failed"}


class Jobs:
    """The jobs of all workers, in a table.

    Args:
        tables: of the service.
        visible: whether progress is written down; where answers keep to a schedule, how long the
            data took is hidden.
        clock: seconds that all workers count alike.
    """

    def __init__(
        self, tables: Tables, *, visible: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self._tables = tables
        self._visible = visible
        self._clock = clock
        self._shown: dict[str, float] = {}
        self._swept = 0.0

    def start(self, ident: str, analyst: str, dataset: str, *, charged: bool = False) -> None:
        """A worker begins with a question: the first one, one more, or again after a failure.

        Args:
            ident: of the job.
            analyst: who asks.
            dataset: of what.
            charged: whether the ledger held the charge before this call: then there is nothing to
                call off.

        Raises:
            Cancelled: when the question was called off.
        """
        table = Tables.jobs
        now = self._clock()
        if now - self._swept > KEPT_SECONDS / 24:
            old = table.c.updated < now - KEPT_SECONDS
            self._tables.change(sa.delete(table).where(old & _among(OVER)))
            self._swept = now
        stage = "charging" if charged else "reading"
        row = {"id": ident, "analyst": analyst, "dataset": dataset, "stage": stage, "updated": now}
        try:
            self._tables.change(sa.insert(table).values(row | FRESH))
        except sa.exc.IntegrityError:  # it was begun before, by this worker or another
            if charged:
                self._update(table.c.id == ident, FRESH | {"stage": stage})
            elif not self._move(ident, "reading"):
                self._must(ident, self._move(ident, "charging", FRESH))

    def progress(self, ident: str, done: int, total: int) -> None:
        """Note progress, not too often.

        Raises:
            Cancelled: when the job was called off.
        """
        now = self._clock()
        if now - self._shown.get(ident, -PROGRESS_SECONDS) < PROGRESS_SECONDS and done < total:
            return
        self._shown[ident] = now
        shown: JobColumns = {}
        if self._visible:
            shown = {"done": done, "total": total}
        alive = (Tables.jobs.c.id == ident) & _among(NOT_CALLED_OFF)
        self._must(ident, self._update(alive, shown))

    def charging(self, ident: str) -> None:
        """From here on the job cannot be cancelled.

        Raises:
            Cancelled: when it was before.
            LedgerError: when the job is gone.
        """
        self._must(ident, self._move(ident, "charging"))

    def end(self, ident: str, stage: str, code: str = "", message: str = "") -> sa.Update:
        """The statement with which a worker ends a job: "done", or "failed" unless another worker
        is done.
        """
        self._shown.pop(ident, None)
        return self._moving(ident, stage, {"code": code, "message": message})

    def cancel(self, ident: str) -> bool:
        """Call a job off, unless it has come to the charge; whether it is called off."""
        return bool(self._tables.change(self._moving(ident, "cancelled", {}), durable=True))

    def beat(self, idents: Sequence[str]) -> None:
        """A sign of life of the jobs that a worker is at."""
        self._update(Tables.jobs.c.id.in_(idents) & _among(OPEN), {})

    def _move(self, ident: str, stage: str, values: JobColumns | None = None) -> bool:
        """Bring a job to a stage, if one may from where it stands; whether it is there."""
        return bool(self._tables.change(self._moving(ident, stage, values or {})))

    def _moving(self, ident: str, stage: str, values: JobColumns) -> sa.Update:
        there = (Tables.jobs.c.id == ident) & _among(MOVES[stage])
        return self._updating(there, values | {"stage": stage})

    def _update(self, where: sa.ColumnElement[bool], values: JobColumns) -> bool:
        return bool(self._tables.change(self._updating(where, values)))

    def _updating(self, where: sa.ColumnElement[bool], values: JobColumns) -> sa.Update:
        changed = sa.update(Tables.jobs).where(where)
        return changed.values(values | {"updated": self._clock()})

    def _must(self, ident: str, moved: bool) -> None:
        if not moved:
            job = self.find(ident)
            if job is not None and job.stage == "cancelled":
                raise Cancelled(
                    "the question was called off and never charged; to ask it again take a new key"
                )
            raise LedgerError("the job is gone; ask again with the same key")

    def find(self, ident: str) -> Job | None:
        """Return the status of a job; a job whose worker was killed has failed."""
        rows = self._tables.rows(sa.select(Tables.jobs).filter_by(id=ident))
        if not rows:
            return None
        row = dict(rows[0]._mapping)  # noqa: SLF001
        if row["stage"] in OPEN and row["updated"] < self._clock() - LOST_SECONDS:
            row |= {
                "stage": "failed",
                "code": "interrupted",
                "message": "interrupted; ask again with the same key",
            }
        row.pop("updated")
        return Job(**row)

    def running(self) -> int:
        """The number of running jobs."""
        alive = _among(OPEN) & (Tables.jobs.c.updated >= self._clock() - LOST_SECONDS)
        counted = sa.select(sa.func.count()).select_from(Tables.jobs).where(alive)
        ((number,),) = self._tables.rows(counted)
        return int(number)


def _among(stages: Sequence[str]) -> sa.ColumnElement[bool]:
    return Tables.jobs.c.stage.in_(stages)
