"""How the command line reads data: a table of counts, or raw events whose contributions are bounded on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._choices import Domain
from dptopk.datasets import events_histogram, read_counts, read_labels
from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram
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

    @property
    def token(self) -> str:
        """Names the data without telling anything of it: which file, when it was written, and how it is read.

        A file that was written anew is another source, so that no stored answer is given for it.
        """
        with suppress(OSError):
            written = self.path.stat().st_mtime_ns
            columns = [self.label, self.count, self.separator, self.encoding, self.user, self.item]
            listed = None if self.domain is None else read_labels(self.domain)
            parts = [str(self.path.resolve()), written, columns, self.conditions, self.known_domain, listed]
            return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return str(self.path.resolve())

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
        json_lines = self.user is None and not {".jsonl", ".ndjson", ".json"}.isdisjoint(self.path.suffixes)
        public = "public" if labels is None else _public_names(labels, whole.labels, json_lines=json_lines)
        return Histogram(whole.labels, whole.counts, sensitivity=plan.sensitivity, domain=public, capped=whole.capped)

    def stated(self) -> str:
        """What tells stored answers of one source from those of another: names, columns and times of writing.

        Nothing here is computed from the data: that an answer comes again free of charge must not tell that the data
        are still the same.
        """
        columns = [self.label, self.count, self.user, self.item, self.separator, self.encoding, sorted(self.where)]
        files = [_states(path) for path in (self.path, self.domain) if path is not None]
        return hashlib.sha256(json.dumps([files, columns, self.kind]).encode()).hexdigest()

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


def _public_names(lines: list[str], labels: np.ndarray[Any, Any], *, json_lines: bool) -> list[Any]:
    """The labels that the lines of a domain file stand for: decided by the lines and by the type of the column.

    A text column holds texts, an integer column integers. In JSON lines every label has a type of its own: there a line
    is the integer or the quoted text that it spells in JSON, or else the text itself.
    """
    if json_lines:
        return [_json_label(line) for line in lines]
    if not len(labels) or labels.dtype == object:
        return list(lines)
    try:
        return [int(line) for line in lines]
    except ValueError:
        raise InvalidParameter("--domain: the labels must be integers, as the column is") from None


def _json_label(line: str) -> Any:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    return value if type(value) in {int, str} else line


def _states(path: Path) -> list[list[Any]]:
    """Where a file or folder is, and when it was last written: never what it holds, nor how large it is."""
    files = sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]
    seen = [(str(file.absolute()), file.stat()) for file in files if file.exists()]
    return [[name, about.st_ino, about.st_mtime_ns, about.st_ctime_ns] for name, about in seen]
