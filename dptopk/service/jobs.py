"""The status of each question, visible to every worker, and its cancellation before it is charged.

A job is a row, one for each key of an analyst; all workers that are asked under a key share its
row. MOVES says from which stages a row can move to another, and each move is one conditional
update. A worker charges only after it has moved the row to "charging", and no move leads back from
there to "reading", the only stage that can be called off. So a question that is "cancelled" was not
charged and never will be: its key is used up. Only the ledger says whether a question was charged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import sqlalchemy as sa

from dptopk.errors import DptopkError, LedgerError
from dptopk.service.tables import Tables

PROGRESS_SECONDS = 0.2  # progress is written at most so often
HEARTBEAT_SECONDS = 5.0  # a worker writes so often that it still answers a question
LOST_SECONDS = 60.0  # a worker that has not written for so long counts as killed
# A finished job is deleted after a day. A job that was called off stays, as its key is used up.
KEPT_SECONDS = 86_400.0
SWEEP_SECONDS = 3600.0  # a worker deletes finished jobs at most so often

# The stages of a job that is being answered, and of one that has ended without being called off.
BEING_ANSWERED = ("reading", "charging")
ENDED = ("failed", "done")
NOT_CALLED_OFF = (*BEING_ANSWERED, *ENDED)
# A stage -> the stages from which a job can move to it.
MOVES = {
    "reading": ("reading",),
    "charging": NOT_CALLED_OFF,
    "cancelled": ("reading",),
    "failed": BEING_ANSWERED,
    "done": NOT_CALLED_OFF,
}


class JobColumns(TypedDict, total=False):
    """The columns of a job's row that change; see ``Job``."""

    stage: str
    done: int
    total: int
    code: str
    message: str


# What a job that begins, or begins again, has in its other columns.
FRESH: JobColumns = {"done": 0, "total": 0, "code": "", "message": ""}


class Cancelled(DptopkError):
    """The question was called off before it was charged."""


@dataclass(frozen=True)
class Job:
    """The status of a question.

    Attributes:
        id: the job's name, as ``answering.job_of`` makes it.
        analyst: the name of the analyst who asks.
        dataset: the name of the data set.
        stage: "reading" (the data), "charging" (it may be charged at any moment, or is; a failed
            job that is asked again begins here), "done", "cancelled" or "failed".
        done: how many passes over the data are done.
        total: how many passes there are.
        code: the type of the error of a failed job.
        message: the message of that error.
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
    def has_ended(self) -> bool:
        """Return whether the job has ended."""
        return self.stage in {"done", "cancelled", "failed"}


class Jobs:
    """The jobs of all workers, in a table.

    Args:
        tables: the tables of the service.
        visible: whether progress is written. It is not if answers are sent on a schedule, which
            hides how long reading the data took.
        clock: a function that returns seconds by a clock that all workers share.
    """

    def __init__(
        self, tables: Tables, *, visible: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self._tables = tables
        self._visible = visible
        self._clock = clock
        self._written_at: dict[str, float] = {}  # job -> when its progress was last written
        self._swept = 0.0

    def start(
        self,
        ident: str,
        analyst: str,
        dataset: str,
        *,
        charged: bool = False,
        cancellable: bool = True,
    ) -> None:
        """Write that a worker begins to answer a question, for the first time or again.

        Several workers may answer one question, and a failed one can be asked again. Every
        SWEEP_SECONDS finished jobs are deleted on the way.

        Args:
            ident: the name of the job.
            analyst: the name of the analyst who asks.
            dataset: the name of the data set.
            charged: whether the question was charged before, and so can no longer be called off.
            cancellable: whether a question that was not charged can be called off.

        Raises:
            Cancelled: when the question was called off.
            LedgerError: when the row of an earlier beginning was deleted meanwhile, or nothing can
                be written now.
        """
        table = Tables.jobs
        now = self._clock()
        if not 0.0 <= now - self._swept <= SWEEP_SECONDS:  # below 0: the clock was set back
            is_old = table.c.updated < now - KEPT_SECONDS
            self._tables.change(sa.delete(table).where(is_old & _is_in_stages(ENDED)))
            self._swept = now
        stage = "reading" if cancellable and not charged else "charging"
        row = {"id": ident, "analyst": analyst, "dataset": dataset, "stage": stage, "updated": now}
        try:
            self._tables.change(sa.insert(table).values(row | FRESH))
        except sa.exc.IntegrityError:  # the job was begun before, by this worker or another
            self._begin_again(ident, charged=charged, cancellable=cancellable)

    def _begin_again(self, ident: str, *, charged: bool, cancellable: bool) -> None:
        """Write that a job whose row is there already begins again.

        Args:
            ident: the name of the job.
            charged: whether the question was charged before, and so can no longer be called off.
            cancellable: whether a question that was not charged can be called off.

        Raises:
            Cancelled: when the question was called off.
            LedgerError: when the row was deleted meanwhile.
        """
        if charged:  # whatever its stage was: what was charged is answered
            self._update(Tables.jobs.c.id == ident, FRESH | {"stage": "charging"})
            return
        if cancellable and self._move(ident, "reading"):
            return
        # It is being charged, was charged or failed: it begins again at "charging".
        moved = self._move(ident, "charging", FRESH)
        self._refuse_unmoved(ident, moved)

    def progress(self, ident: str, done: int, total: int) -> None:
        """Write how many passes over the data are done, at most every PROGRESS_SECONDS.

        Args:
            ident: the name of the job.
            done: how many passes are done.
            total: how many passes there are.

        Raises:
            Cancelled: when the job was called off.
        """
        now = self._clock()
        since_written = now - self._written_at.get(ident, -math.inf)
        is_recent = 0.0 <= since_written < PROGRESS_SECONDS  # below 0: the clock was set back
        if is_recent and done < total:  # the last pass is always written
            return
        self._written_at[ident] = now
        # Where progress is hidden only the time is written, which shows that the worker lives.
        columns: JobColumns = {}
        if self._visible:
            columns = {"done": done, "total": total}
        not_called_off = (Tables.jobs.c.id == ident) & _is_in_stages(NOT_CALLED_OFF)
        self._refuse_unmoved(ident, self._update(not_called_off, columns))

    def begin_charging(self, ident: str) -> None:
        """Write that a job may be charged from now on, so that it can no longer be called off.

        Raises:
            Cancelled: when it was called off before.
            LedgerError: when the job is gone.
        """
        self._refuse_unmoved(ident, self._move(ident, "charging"))

    def end_statement(self, ident: str, stage: str, code: str = "", message: str = "") -> sa.Update:
        """Return the statement, not yet run, that ends a job as ``stage``, "done" or "failed".

        It changes no row if the job may not move there: one that another worker has ended as "done"
        does not become "failed" (MOVES). The time at which this worker last wrote the job's
        progress is forgotten at once.

        Args:
            ident: the name of the job.
            stage: "done" or "failed".
            code: the type of the error, of a failed job.
            message: the message of that error.
        """
        self._written_at.pop(ident, None)
        return self._move_statement(ident, stage, {"code": code, "message": message})

    def cancel(self, ident: str) -> bool:
        """Call a job off, unless it may have been charged; return whether it is called off.

        Raises:
            LedgerError: when nothing can be written now; the job goes on.
        """
        statement = self._move_statement(ident, "cancelled", {})
        return bool(self._tables.change(statement, durable=True))

    def beat(self, idents: Sequence[str]) -> None:
        """Write that a worker still answers these jobs."""
        self._update(Tables.jobs.c.id.in_(idents) & _is_in_stages(BEING_ANSWERED), {})

    def _move(self, ident: str, stage: str, values: JobColumns | None = None) -> bool:
        """Move a job to a stage and set further columns; return False if no move leads there from
        its stage.

        Args:
            ident: the name of the job.
            stage: the stage that it moves to.
            values: further columns to set; None: none.
        """
        return bool(self._tables.change(self._move_statement(ident, stage, values or {})))

    def _move_statement(self, ident: str, stage: str, values: JobColumns) -> sa.Update:
        """Return the statement of ``_move``, which changes no row if no move leads to the stage.

        Args:
            ident: the name of the job.
            stage: the stage that it moves to, a key of MOVES.
            values: further columns to set.
        """
        may_move = (Tables.jobs.c.id == ident) & _is_in_stages(MOVES[stage])
        return self._update_statement(may_move, values | {"stage": stage})

    def _update(self, where: sa.ColumnElement[bool], values: JobColumns) -> bool:
        """Set columns, and the time, of the rows that meet a condition; return whether there are
        any.

        Args:
            where: the condition on the rows of the jobs.
            values: the columns to set.
        """
        return bool(self._tables.change(self._update_statement(where, values)))

    def _update_statement(self, where: sa.ColumnElement[bool], values: JobColumns) -> sa.Update:
        """Return the statement that writes values, and the time, to the jobs for which ``where``
        holds.
        """
        update = sa.update(Tables.jobs).where(where)
        return update.values(values | {"updated": self._clock()})

    def _refuse_unmoved(self, ident: str, moved: bool) -> None:
        """Raise the error that explains why a job could not be moved; do nothing if it was.

        Raises:
            Cancelled: the job was called off.
            LedgerError: the job is gone.
        """
        if moved:
            return
        job = self.find(ident)
        if job is not None and job.stage == "cancelled":
            raise Cancelled(
                "the question was called off and never charged; to ask it again take a new key"
            )
        raise LedgerError("the job is gone; ask again with the same key")

    def find(self, ident: str) -> Job | None:
        """Return the status of a job, None if there is none; a job whose worker was killed shows as
        failed.
        """
        rows = self._tables.rows(sa.select(Tables.jobs).filter_by(id=ident))
        if not rows:
            return None
        row = dict(rows[0]._mapping)  # noqa: SLF001
        if row["stage"] in BEING_ANSWERED and row["updated"] < self._clock() - LOST_SECONDS:
            row |= {
                "stage": "failed",
                "code": "interrupted",
                "message": "interrupted; ask again with the same key",
            }
        row.pop("updated")
        return Job(**row)

    def count_running(self) -> int:
        """Return how many jobs are being answered by any worker."""
        alive = _is_in_stages(BEING_ANSWERED) & (
            Tables.jobs.c.updated >= self._clock() - LOST_SECONDS
        )
        counted = sa.select(sa.func.count()).select_from(Tables.jobs).where(alive)
        ((number,),) = self._tables.rows(counted)
        return int(number)


def _is_in_stages(stages: Sequence[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a job's stage is one of these."""
    return Tables.jobs.c.stage.in_(stages)
