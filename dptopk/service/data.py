"""The private state: histograms, read once for each data version and condition, and never shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptopk._internal.lru import LRUCache
from dptopk.datasets import event_counts, events_histogram, macbeth, read_counts, segment_histograms
from dptopk.errors import DptopkError
from dptopk.histogram.histogram import Histogram
from dptopk.planning.protocol import EventsReading
from dptopk.service.catalog import DatasetSpec, Segmented, refuse_special

if TYPE_CHECKING:
    from dptopk.datasets.backends.opening import Engine

Progress = Callable[[int, int], None]
Read = Mapping[
    str, Histogram
]  # segment -> histogram; "" -> that of everything, where no segments are asked for


class Unreadable(DptopkError):
    """A data set cannot be read now; the reason is for the operator, not for the analyst."""


class Histograms:
    """Histograms of the catalog's data sets, the most recently used ones in memory.

    Args:
        size: how many stay in memory.
    """

    def __init__(self, size: int = 32) -> None:
        self._read: LRUCache[Read] = LRUCache(size)

    def get(
        self,
        spec: DatasetSpec,
        version: str,
        where: Mapping[str, str],
        segmented: Segmented,
        progress: Progress,
    ) -> Read:
        """The histograms of a data version under conditions; two questions at the same time read
        them once.

        Raises:
            Unreadable: when the source cannot be read.
            DptopkError: what ``progress`` raises.
        """
        key = (spec.name, version, tuple(sorted(where.items())), segmented)
        return self._read.get(key, lambda: _read(spec, version, where, segmented, progress))


def _read(
    spec: DatasetSpec,
    version: str,
    where: Mapping[str, str],
    segmented: Segmented,
    progress: Progress,
) -> Read:
    stopped: list[DptopkError] = []

    def step(done: int, total: int) -> None:
        try:
            progress(done, total)
        except DptopkError as error:
            stopped.append(error)
            raise

    step(0, 1)
    try:
        read = _source(spec, version, where, segmented, step)
        if spec.labels is not None:
            read = {name: _public(spec, histogram, spec.labels) for name, histogram in read.items()}
    except Exception as error:  # noqa: BLE001
        if stopped:
            raise stopped[0] from None
        raise Unreadable(
            f"the data of {spec.name!r} cannot be read now ({type(error).__name__})"
        ) from None
    step(1, 1)
    return read


def tried(spec: DatasetSpec, where: Mapping[str, str], segmented: Segmented) -> None:
    """Read the data as a question would, for an operator: errors are raised unchanged."""
    read = _source(spec, spec.version, where, segmented, lambda _done, _total: None)
    if spec.labels is not None:
        for histogram in read.values():
            _public(spec, histogram, spec.labels)


def _public(spec: DatasetSpec, read: Histogram, labels: Sequence[Any]) -> Histogram:
    """The histogram over the public labels."""
    return Histogram(
        read.labels, read.counts, sensitivity=spec.sensitivity, domain=labels, capped=read.capped
    )


def _source(
    spec: DatasetSpec,
    version: str,
    where: Mapping[str, str],
    segmented: Segmented,
    progress: Progress,
) -> Read:
    if spec.source == "macbeth":
        return {"": macbeth(sensitivity=spec.sensitivity)}
    path = spec.source.replace("{version}", version)
    if "://" not in path:
        refuse_special(Path(path))
    if spec.user is None or spec.item is None:
        return _counts(spec, path, where, segmented, progress)
    reading = _EventsReading(spec, spec.user, spec.item, path, where, progress)
    if segmented.values:
        return reading.segments(segmented)
    if segmented.finding is None:
        return {"": reading.capped()}
    return {"": reading.with_and_without_cap(segmented.finding)}


@dataclass(frozen=True)
class _EventsReading:
    """The settings with which the events of a data set are read."""

    spec: DatasetSpec
    user: str
    item: str
    path: str
    where: Mapping[str, str]
    progress: Progress

    @property
    def engine(self) -> Engine | None:
        """Return what reads them; None: what fits the file."""
        if self.spec.engine != "spark":
            return None
        from dptopk.datasets import Spark

        return Spark()

    def capped(self) -> Histogram:
        """The histogram under the catalog's caps."""
        return events_histogram(
            self.path,
            user=self.user,
            item=self.item,
            labels_per_user=self.spec.labels_per_user,
            per_label_cap=self.spec.per_label_cap,
            top=self.spec.top,
            where=dict(self.where) or None,
            engine=self.engine,
            progress=self.progress,
        )

    def with_and_without_cap(self, finding: EventsReading) -> Histogram:
        """All events, and those under the cap of a finding."""
        return event_counts(
            self.path,
            user=self.user,
            item=self.item,
            labels_per_user=finding.labels_per_user,
            weights=finding.weights,
            profile=finding.profile,
            per_label_cap=self.spec.per_label_cap,
            where=dict(self.where) or None,
            engine=self.engine,
            progress=self.progress,
        )

    def segments(self, segmented: Segmented) -> Read:
        """The histogram of each segment, under the catalog's caps or with a finding."""
        finding = segmented.finding
        return segment_histograms(
            self.path,
            user=self.user,
            item=self.item,
            segment=segmented.column,
            segments=segmented.values,
            segments_per_user=segmented.per_user,
            labels_per_user=finding.labels_per_user if finding else self.spec.labels_per_user,
            weights=finding is not None and finding.weights,
            profile=finding is not None and finding.profile,
            count_capped=finding is None,
            per_label_cap=self.spec.per_label_cap,
            top=self.spec.top,
            where=dict(self.where) or None,
            engine=self.engine,
            progress=self.progress,
        )


def _counts(
    spec: DatasetSpec, path: str, where: Mapping[str, str], segmented: Segmented, progress: Progress
) -> Read:
    """Return the rows of a table of counts, separately for each segment."""
    read = {}
    for place, value in enumerate(segmented.values or ("",)):
        progress(place, len(segmented.values) or 1)
        here = dict(where) | ({segmented.column: value} if segmented.values else {})
        frame = read_counts(path, label=spec.label, count=spec.count, where=here)
        read[value] = Histogram.from_pandas(
            frame, label="label", count="count", sensitivity=spec.sensitivity
        )
    return read
