"""The histograms of the service's data sets: each is read once for a version and its conditions.

They are private: nothing of them leaves but through a mechanism.
"""

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
from dptopk.service.catalog import SHIPPED, DatasetSpec, SegmentReading, refuse_special

if TYPE_CHECKING:
    from dptopk.datasets.backends.opening import Engine

# It is called with the number of passes over the data that are done, and of all passes.
Progress = Callable[[int, int], None]
# It records that a version's data belong to a data set, and refuses those of another one.
Claim = Callable[[DatasetSpec, str], None]
# Segment -> histogram; a question without segments has one histogram, under the name "".
HistogramOfSegment = Mapping[str, Histogram]


class Unreadable(DptopkError):
    """A data set cannot be read now; the reason is for the operator, not for the analyst."""


class Histograms:
    """The histograms of the catalog's data sets; the most recently used ones stay in memory.

    Args:
        size: how many readings stay in memory.
        datasets: the data sets of the catalog that is served; None: all that are asked about. A
            question that began before the catalog was read again brings a data set of the old one,
            perhaps with another source under the same version: it is read and not stored.
        claim: a function that is called with a data set and a version before that is read, and
            raises an error if it may not be; None: every version may.
    """

    def __init__(
        self,
        size: int = 32,
        *,
        datasets: Mapping[str, DatasetSpec] | None = None,
        claim: Claim | None = None,
    ) -> None:
        self._datasets = datasets
        self._claim = claim
        self._read: LRUCache[HistogramOfSegment] = LRUCache(size)

    def get(
        self,
        spec: DatasetSpec,
        version: str,
        where: Mapping[str, str],
        segment_reading: SegmentReading,
        progress: Progress,
    ) -> HistogramOfSegment:
        """Return the histograms of a version of the data, by segment; two questions at the same
        time read them once.

        Args:
            spec: the data set.
            version: the version of its data.
            where: column -> the value that rows must have.
            segment_reading: the segments, and how the data are read.
            progress: a function that is called with the passes that are done, and all of them.

        Raises:
            Unreadable: when the source cannot be read.
            DptopkError: the error that ``claim`` or ``progress`` raises.
        """

        def reading() -> HistogramOfSegment:
            """Read the version, unless it belongs to another data set."""
            if self._claim is not None:
                self._claim(spec, version)
            return _read(spec, version, where, segment_reading, progress)

        if self._datasets is not None and self._datasets.get(spec.name) is not spec:
            return reading()
        key = (spec.name, version, tuple(sorted(where.items())), segment_reading)
        return self._read.get(key, reading)


def _read(
    spec: DatasetSpec,
    version: str,
    where: Mapping[str, str],
    segment_reading: SegmentReading,
    progress: Progress,
) -> HistogramOfSegment:
    """Read the histograms of a version of the data, over the public labels if there are any.

    The arguments are those of ``Histograms.get``. An error of ``progress`` is raised unchanged; any
    other becomes Unreadable, whose message tells an analyst no more than its type.

    Raises:
        DptopkError: the error that ``progress`` raises.
        Unreadable: for any other error.
    """
    errors_of_progress: list[DptopkError] = []

    def report(done: int, total: int) -> None:
        """Call ``progress``, and remember its error, which is raised unchanged."""
        try:
            progress(done, total)
        except DptopkError as error:
            errors_of_progress.append(error)
            raise

    report(0, 1)  # a question that was called off is not read
    try:
        histograms = _read_source(spec, version, where, segment_reading, report)
        if spec.labels is not None:
            histograms = {
                segment: _over_public_labels(spec, histogram, spec.labels)
                for segment, histogram in histograms.items()
            }
    except Exception as error:  # noqa: BLE001 - a file or an engine may raise anything
        # An engine may have wrapped the error of ``progress`` in one of its own.
        if errors_of_progress:
            raise errors_of_progress[0] from None
        raise Unreadable(
            f"the data of {spec.name!r} cannot be read now ({type(error).__name__})"
        ) from None
    report(1, 1)
    return histograms


def read_once(spec: DatasetSpec, where: Mapping[str, str], segment_reading: SegmentReading) -> None:
    """Read the data as a question would, for an operator: nothing is returned.

    Args:
        spec: the data set, whose first version is read.
        where: column -> the value that rows must have.
        segment_reading: the segments, and how the data are read.

    Raises:
        Exception: any error of a file or an engine, unchanged.
    """
    histograms = _read_source(
        spec, spec.version, where, segment_reading, lambda _done, _total: None
    )
    if spec.labels is not None:
        for histogram in histograms.values():
            _over_public_labels(spec, histogram, spec.labels)  # refuses labels that do not fit


def _over_public_labels(
    spec: DatasetSpec, histogram: Histogram, labels: Sequence[Any]
) -> Histogram:
    """Return the same counts over the public labels: one without rows has the count 0, and labels
    in the data that are not public are left out.

    Args:
        spec: the data set, with the caps.
        histogram: the counts that were read.
        labels: the public labels.

    Raises:
        InvalidParameter: for public labels that are no domain, such as two that are equal.
    """
    return Histogram(
        histogram.labels,
        histogram.counts,
        sensitivity=spec.sensitivity,
        domain=labels,
        capped=histogram.capped,
    )


def _read_source(
    spec: DatasetSpec,
    version: str,
    where: Mapping[str, str],
    segment_reading: SegmentReading,
    progress: Progress,
) -> HistogramOfSegment:
    """Read the histograms of a data set's source: the shipped table, a table of counts, or events.

    The arguments are those of ``Histograms.get``.

    Raises:
        Exception: any error of a file, an engine or ``progress``, unchanged.
    """
    if spec.source == SHIPPED:
        return {"": macbeth(sensitivity=spec.sensitivity)}
    path = spec.path_of(version)
    if "://" not in path:
        refuse_special(Path(path))
    if spec.user is None or spec.item is None:
        return _segment_histograms_of_counts(spec, path, where, segment_reading, progress)
    reading = _EventsReading(spec, spec.user, spec.item, path, where, progress)
    if segment_reading.values:
        return reading.segment_histograms(segment_reading)
    if segment_reading.finding is None:
        return {"": reading.capped_histogram()}
    return {"": reading.counts_with_and_without_cap(segment_reading.finding)}


@dataclass(frozen=True)
class _EventsReading:
    """The settings with which the events of a data set are read.

    Attributes:
        spec: the data set.
        user, item: the columns.
        path: the path or URL of the events.
        where: column -> the value that rows must have.
        progress: a function that is called with the passes that are done, and all of them.
    """

    spec: DatasetSpec
    user: str
    item: str
    path: str
    where: Mapping[str, str]
    progress: Progress

    @property
    def condition(self) -> dict[str, str] | None:
        """Return the condition on events, as the readers of events take it; None: there is none."""
        return dict(self.where) or None

    @property
    def engine(self) -> Engine | None:
        """Return the engine that reads the events; None stands for the one that fits the file."""
        if self.spec.engine != "spark":
            return None
        from dptopk.datasets import Spark

        return Spark()

    def capped_histogram(self) -> Histogram:
        """Return the histogram under the catalog's caps."""
        return events_histogram(
            self.path,
            user=self.user,
            item=self.item,
            labels_per_user=self.spec.labels_per_user,
            per_label_cap=self.spec.per_label_cap,
            top=self.spec.top,
            where=self.condition,
            engine=self.engine,
            progress=self.progress,
        )

    def counts_with_and_without_cap(self, finding: EventsReading) -> Histogram:
        """Return the counts of all events, together with the counts under the cap with which labels
        are found.

        Args:
            finding: the cap, and what else is read to find labels.
        """
        return event_counts(
            self.path,
            user=self.user,
            item=self.item,
            labels_per_user=finding.labels_per_user,
            weights=finding.weights,
            profile=finding.profile,
            per_label_cap=self.spec.per_label_cap,
            where=self.condition,
            engine=self.engine,
            progress=self.progress,
        )

    def segment_histograms(self, segment_reading: SegmentReading) -> HistogramOfSegment:
        """Return the histogram of each segment: under the catalog's caps or, if labels are found
        first, the counts with and without the cap.

        Args:
            segment_reading: the column of the segments, their values, in how many of them one user
                counts, and how labels are found.
        """
        finding = segment_reading.finding
        return segment_histograms(
            self.path,
            user=self.user,
            item=self.item,
            segment=segment_reading.column,
            segments=segment_reading.values,
            segments_per_user=segment_reading.per_user,
            labels_per_user=finding.labels_per_user if finding else self.spec.labels_per_user,
            weights=finding is not None and finding.weights,
            profile=finding is not None and finding.profile,
            count_capped=finding is None,
            per_label_cap=self.spec.per_label_cap,
            top=self.spec.top,
            where=self.condition,
            engine=self.engine,
            progress=self.progress,
        )


def _segment_histograms_of_counts(
    spec: DatasetSpec,
    path: str,
    where: Mapping[str, str],
    segment_reading: SegmentReading,
    progress: Progress,
) -> HistogramOfSegment:
    """Return the histogram of each segment of a table of counts; without segments the histogram of
    all rows is under the name "".

    Args:
        spec: the data set, with the columns and the caps.
        path: the path of the table.
        where: column -> the value that rows must have.
        segment_reading: the column of the segments, and their values.
        progress: a function that is called with the passes that are done, and all of them.

    Raises:
        InvalidParameter: for a table that cannot be read.
        DptopkError: the error that ``progress`` raises.
    """
    histograms = {}
    values = segment_reading.values or ("",)
    for done, value in enumerate(values):
        progress(done, len(values))
        conditions = dict(where)
        if segment_reading.values:
            conditions[segment_reading.column] = value
        frame = read_counts(path, label=spec.label, count=spec.count, where=conditions)
        histograms[value] = Histogram.from_pandas(
            frame, label="label", count="count", sensitivity=spec.sensitivity
        )
    return histograms
