"""Long work: where each question stands, for every worker to see, and how to call it off before it is charged.

A job is a row: reading -> charging -> done, or cancelled, or failed. "reading" becomes "charging" and "cancelled" by
one conditional update each, so exactly one of them happens.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from dptopk.errors import DptopkError
from dptopk.service.tables import Tables

__all__ = ["Cancelled", "Job", "Jobs"]

EVERY = 0.2  # seconds between two lines of progress
KEPT = 86_400.0  # seconds that a finished job stays


class Cancelled(DptopkError):
    """The question was called off before it was charged."""


@dataclass(frozen=True)
class Job:
    """Where a question stands.

    Attributes:
        stage: "reading" (the data), "charging" (and drawing), "done", "cancelled" or "failed".
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
        """Whether nothing more will happen."""
        return self.stage in {"done", "cancelled", "failed"}


class Jobs:
    """The jobs of all workers, in a table.

    Args:
        tables: of the service.
        visible: whether progress is written down; where answers keep to a schedule, how long the data took is hidden.
    """

    def __init__(self, tables: Tables, *, visible: bool = True) -> None:
        self._tables = tables
        self._visible = visible
        self._shown: dict[str, float] = {}
        self._swept = 0.0

    def start(self, ident: str, analyst: str, dataset: str) -> None:
        """A job begins, or begins again after a failure."""
        table, now = Tables.jobs, time.time()
        fresh = {"stage": "reading", "done": 0, "total": 0, "code": "", "message": "", "updated": now}
        again = sa.update(table).where(table.c.id == ident).values(**fresh)
        if now - self._swept > KEPT / 24:
            self._tables.change(sa.delete(table).where(table.c.updated < now - KEPT))
            self._swept = now
        try:
            self._tables.change(sa.insert(table).values(id=ident, analyst=analyst, dataset=dataset, **fresh))
        except sa.exc.IntegrityError:  # it was begun before, by this worker or another
            self._tables.change(again)

    def progress(self, ident: str, done: int, total: int) -> None:
        """Note progress, not too often.

        Raises:
            Cancelled: when the job was called off.
        """
        if time.monotonic() - self._shown.get(ident, -EVERY) < EVERY and done < total:
            return
        self._shown[ident] = time.monotonic()
        self._reading(ident, **({"done": done, "total": total} if self._visible else {}))

    def charging(self, ident: str) -> None:
        """From here on the job cannot be cancelled.

        Raises:
            Cancelled: when it was before.
        """
        self._shown.pop(ident, None)
        self._reading(ident, stage="charging")

    def _reading(self, ident: str, **values: Any) -> None:
        table = Tables.jobs
        mine = (table.c.id == ident) & table.c.stage.in_(("reading", "charging"))
        if not self._tables.change(sa.update(table).where(mine).values(updated=time.time(), **values)):
            raise Cancelled("the question was called off; nothing was charged")

    def end(self, ident: str, stage: str, code: str = "", message: str = "") -> None:
        """A job is over."""
        self._shown.pop(ident, None)
        table = Tables.jobs
        values = {"stage": stage, "code": code, "message": message, "updated": time.time()}
        self._tables.change(sa.update(table).where(table.c.id == ident).values(**values))

    def cancel(self, ident: str) -> bool:
        """Call a job off, unless it has come to the charge; whether it was called off."""
        table = Tables.jobs
        mine = (table.c.id == ident) & (table.c.stage == "reading")
        return bool(self._tables.change(sa.update(table).where(mine).values(stage="cancelled", updated=time.time())))

    def find(self, ident: str) -> Job | None:
        """Where a job stands."""
        table = Tables.jobs
        rows = self._tables.rows(sa.select(table).where(table.c.id == ident))
        if not rows:
            return None
        row = dict(rows[0]._mapping)  # noqa: SLF001 - SQLAlchemy's public name
        row.pop("updated")
        return Job(**row)

    def running(self) -> int:
        """How many jobs are not over."""
        table = Tables.jobs
        query = sa.select(sa.func.count()).select_from(table).where(table.c.stage.in_(("reading", "charging")))
        return int(self._tables.rows(query)[0][0])
