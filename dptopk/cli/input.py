"""How the command line reads data: a table of counts, or raw events whose contributions are bounded on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptopk._choices import Domain
from dptopk.datasets import events_histogram, read_counts, read_labels
from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram, Sensitivity
from dptopk.mechanisms.base import Thresholded

if TYPE_CHECKING:
    from dptopk.planning import Plan

__all__ = ["Source"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file, and what its columns mean.

    Attributes:
        path: a table of counts (label, count), or of events (user, item) when user and item are given.
        label, count: columns of a table of counts.
        separator, encoding: of a text file of counts.
        where: conditions "column=value" that rows must meet.
        user, item: columns of a table of events.
        known_domain: whether the labels in the file are public.
        domain: a text file of public labels, or None.
        memory_limit: of the embedded engine, such as "4GB", or None.
        passes: parts of the users that the engine looks at one after the other, or None.
    """

    path: Path
    label: str = "label"
    count: str = "count"
    separator: str | None = None
    encoding: str = "utf-8"
    where: Sequence[str] = ()
    user: str | None = None
    item: str | None = None
    known_domain: bool = False
    domain: Path | None = None
    memory_limit: str | None = None
    passes: int | None = None

    def __post_init__(self) -> None:
        if (self.user is None) != (self.item is None):
            raise InvalidParameter("--user-col and --item-col go together: a table of events needs both")
        if self.user is None and (self.memory_limit is not None or self.passes is not None):
            raise InvalidParameter("--memory-limit and --passes are for events; add --user-col and --item-col")
        if self.user is not None and (self.separator is not None or self.encoding != "utf-8"):
            raise InvalidParameter("--sep and --encoding are for tables of counts; events are read as UTF-8")
        if self.user is not None and (self.label, self.count) != ("label", "count"):
            raise InvalidParameter("--label-col and --count-col are for tables of counts; events have --item-col")

    @property
    def conditions(self) -> dict[str, str]:
        """The conditions on rows: column -> value."""
        pairs = [condition.partition("=") for condition in self.where]
        if any(not column or not equals for column, equals, _ in pairs):
            raise InvalidParameter("--where takes COLUMN=VALUE")
        if len({column for column, _, _ in pairs}) < len(pairs):
            raise InvalidParameter("--where: a column is named twice, and no row can meet both")
        return {column: value for column, _, value in pairs}

    @property
    def kind(self) -> Domain:
        """Whether the labels are "public" or "private"."""
        return "public" if self.known_domain or self.domain is not None else "private"

    def read(self, plan: Plan) -> Histogram:
        """The histogram that a plan runs on: of a private domain no more rows than the plan looks at."""
        labels = None if self.domain is None else read_labels(self.domain)
        if self.user is None:
            frame = read_counts(
                self.path,
                label=self.label,
                count=self.count,
                separator=self.separator,
                encoding=self.encoding,
                where=self.conditions,
            )
            sensitivity = plan.sensitivity
            whole = Histogram.from_pandas(
                frame, label="label", count="count", sensitivity=sensitivity, domain=self.kind
            )
        else:
            whole = self._events(plan)
            if self.kind == "private":
                return whole
        return _public(whole, labels, plan.sensitivity) if self.kind == "public" else whole

    def _events(self, plan: Plan) -> Histogram:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from dptopk.datasets import DuckDB

        options: dict[str, Any] = {"where": self.conditions or None}
        if self.memory_limit is not None or self.passes is not None:
            options["engine"] = DuckDB(memory_limit=self.memory_limit, passes=self.passes or 1)
        first = plan.phases[0].mechanism
        if isinstance(first, Thresholded) and first.d_bar is not None:
            options["top"] = first.d_bar + 1
        columns = (TextColumn("bounding contributions"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task("events", total=None)
            histogram: Histogram = events_histogram(
                self.path,
                user=str(self.user),
                item=str(self.item),
                labels_per_user=plan.sensitivity.l0,
                per_label_cap=plan.sensitivity.linf,
                progress=lambda done, total: bars.update(task, completed=done, total=total),
                **options,
            )
        return histogram


def _public(whole: Histogram, labels: list[str] | None, sensitivity: Sensitivity) -> Histogram:
    """The same counts over public labels: those of the file, or those that are listed (0 for the absent ones)."""
    if labels is None:
        return Histogram(whole.labels, whole.counts, sensitivity=sensitivity, domain="public")
    names: list[Any] = list(labels)
    if len(whole) and whole.labels.dtype.kind in "iu":  # a column of integers: the file's labels are text
        try:
            names = [int(label) for label in labels]
        except ValueError:
            raise InvalidParameter("domain: the labels must be integers, as the column is") from None
    rows = whole.positions(names)
    counts = whole.counts[rows] if len(whole) else rows * 0
    counts[rows < 0] = 0
    return Histogram(names, counts, sensitivity=sensitivity, domain="public")
