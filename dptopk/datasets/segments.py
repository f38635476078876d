"""One query for the histograms of many public segments, and what releases on them cost a single
user together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk.budgets.parallel import segments_charge
from dptopk.costs import Charge
from dptopk.datasets.backends.base import Array, OpenTable, without_data
from dptopk.datasets.backends.opening import Engine, selected
from dptopk.datasets.bounding import (
    COUNT,
    Bounds,
    Contribute,
    Progress,
    contributions,
    counts_with_and_without_cap,
    hash_ranks,
    label_counts,
)
from dptopk.datasets.columns import fitting
from dptopk.datasets.events import to_histogram
from dptopk.datasets.two_counts import beside, sums_of
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import EventCounts
from dptopk.histogram.histogram import Histogram

if TYPE_CHECKING:
    import ibis.expr.types as ir
    from numpy.typing import NDArray

    from dptopk.datasets.backends.inputs import Condition, EventTable


@dataclass(frozen=True, eq=False)
class Segments(Mapping[Any, Histogram]):
    """A histogram for each segment, in the order of the public list, and in how many of them one
    user can be.

    Attributes:
        histograms: segment -> Histogram, whose Sensitivity is what one user can do *in that
            segment*.
        segments_per_user: s, the most segments in which one user counts; enforced.
        by: what they are segments by, such as the name of the column; a ledger knows its segments
            by that name.
    """

    histograms: Mapping[Any, Histogram]
    segments_per_user: int
    by: str = ""

    def __getitem__(self, segment: Hashable) -> Histogram:
        return self.histograms[segment]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.histograms)

    def __len__(self) -> int:
        return len(self.histograms)

    def charge(self, charges: Charge | Mapping[Any, Charge]) -> Charge:
        """Return a charge that covers one release in each segment; see segments_charge.

        Args:
            charges: the charge of each segment's release, or one charge that all of them share.
        """
        if isinstance(charges, Charge):
            each = dict.fromkeys(self, charges)
        else:
            each = dict(charges)
        if set(each) - set(self):
            raise InvalidParameter("charges: one of the segments is not in the list")
        return segments_charge(list(each.values()), segments_per_user=self.segments_per_user)


def segment_histograms(  # noqa: PLR0913
    table: EventTable,
    *,
    user: str,
    item: str,
    segment: str,
    segments: Sequence[Hashable],
    labels_per_user: int | None,
    segments_per_user: int | None = None,
    count_capped: bool = True,
    weights: bool = False,
    profile: bool = False,
    per_label_cap: int = 1,
    top: int | None = None,
    weight: str | None = None,
    where: Condition = None,
    choose: str = "hash",
    key: str = "",
    portable: bool = False,
    engine: Engine | None = None,
    table_name: str | None = None,
    progress: Progress | None = None,
) -> Segments:
    """The histogram of every segment of a public list, in one query, with every user's contribution
    bounded.

    Args:
        table: events, as in events_histogram.
        user: column of whom the privacy is for.
        item: column of the labels.
        segment: column that says which segment an event belongs to.
        segments: the public list; events of other segments are dropped, and a segment without
            events has an empty histogram.
        labels_per_user: Δ, the most labels of one user that count *in each segment*.
        segments_per_user: s, the most segments in which one user counts, chosen by a keyed hash;
            None = all of them. With s = 1 releases on different segments compose in parallel.
        count_capped: False: EventCounts for two phases, in which Δ is the cap for finding labels;
            no ``top``.
        weights: of these, as in event_counts.
        profile: of these, as in event_counts; in each segment.
        per_label_cap: τ, the most that one user adds to one label of one segment.
        top: rows to bring back for each segment; None = all.
        weight: as in events_histogram.
        where: as in events_histogram; it goes to the engine.
        choose: which labels count for a user with more than Δ of them in a segment: "hash",
            "random" or "top".
        key: varies the choice of labels and segments.
        portable: as in events_histogram.
        engine: as in events_histogram.
        table_name: as in events_histogram.
        progress: as in events_histogram.

    Returns:
        Segments: a mapping from segment to Histogram, with ``charge`` for what the releases cost
        together.

    Raises:
        InvalidParameter: as events_histogram, and for a list that is empty, repeats itself or does
        not fit the column.

    >>> import pandas as pd
    >>> from dptopk import BoundedRange
    >>> events = pd.DataFrame({"who": ["a", "a", "b"], "what": ["x", "y", "x"], "where":
    ...     ["north", "south", "north"]})
    >>> found = segment_histograms(
    ...     events, user="who", item="what", segment="where", segments=["north", "south",
    ...     "west"], labels_per_user=2
    ... )
    >>> {name: dict(zip(h.labels.tolist(), h.counts.tolist())) for name, h in found.items()}
    {'north': {'x': 2}, 'south': {'y': 1}, 'west': {}}
    >>> print(found.charge(Charge({BoundedRange(0.1): 5}, adaptive=True)))
    15*BR(0.1) [adaptive]
    """
    bounds = Bounds(
        labels_per_user=labels_per_user,
        per_label_cap=per_label_cap,
        choose=choose,
        key=key,
        portable=portable,
    )
    listed = _listed(segments)
    if segments_per_user is None:
        s = len(listed)
    else:
        s = validate.count(segments_per_user=segments_per_user)
    if top is not None:
        top = validate.count(top=top)
    if not count_capped and (labels_per_user is None or top is not None):
        raise InvalidParameter("count_capped=False: labels_per_user must be a number, and top None")
    if weights and (count_capped or per_label_cap != 1):
        raise InvalidParameter("weights: with count_capped=False and per_label_cap=1")
    if count_capped:
        counting = _Counting(COUNT, contributions, partial(to_histogram, bounds=bounds, top=top))
    else:
        counting = _Counting(
            sums_of(weights=weights, profile=profile),
            partial(counts_with_and_without_cap, weights=weights, profile=profile),
            partial(
                beside,
                under=bounds,
                weights=weights,
                clipped=weight is not None or per_label_cap > 1,
            ),
        )
    with selected(
        table, where, engine, table_name, user=user, item=item, weight=weight, segment=segment
    ) as (source, events):
        column = _segment_column(source, events, listed)
        contribute = partial(
            _contributions,
            bounds=bounds,
            each=counting.contribute,
            names=column.names,
            s=None if s >= len(listed) else s,
        )
        counted = label_counts(
            source,
            _numbered(events.filter(column.kept), column.names),
            contribute,
            bounds,
            top=top,
            within=("segment",),
            sums=counting.sums,
            progress=progress,
        )
    rows = _in_parts(counted, column.places(counted["segment"]), len(listed))
    histograms = dict(zip(listed, map(counting.histogram, rows), strict=True))
    return Segments(histograms, min(s, len(listed)), by=segment)


@dataclass(frozen=True)
class _Counting:
    """What is summed up of a user's labels, and what becomes of the sums of one segment."""

    sums: Mapping[str, str]
    contribute: Contribute
    histogram: Callable[[dict[str, Array]], Histogram | EventCounts]


def _in_parts(
    counted: Mapping[str, Array], places: NDArray[np.int64], parts: int
) -> Iterator[dict[str, Array]]:
    """The rows of each segment, in the order of the list."""
    for place in range(parts):
        rows = places == place
        yield {name: values[rows] for name, values in counted.items()}


@dataclass(frozen=True)
class _SegmentColumn:
    """The list of segments as values of their column.

    Attributes:
        fitted: the segments, as the column holds them, in the order of the list.
        kept: whether an event is in one of them.
        names: the table of the segments and their places (``_numbers``); None where events keep the
            segment itself.
    """

    fitted: list[Any]
    kept: ir.BooleanValue
    names: ir.Table | None

    def places(self, segments: Array) -> NDArray[np.int64]:
        """The place in the list of each segment that was brought back, or -1."""
        values = self.fitted if self.names is None else range(len(self.fitted))
        places = {value: place for place, value in enumerate(values)}
        # Compared as Python does: NumPy ends a text at a NUL.
        return np.array([places.get(value, -1) for value in segments.tolist()], dtype=np.int64)


def _segment_column(source: OpenTable, events: ir.Table, listed: list[Any]) -> _SegmentColumn:
    """The segments of the list fitted to the column; refuses what does not fit, and repetitions."""
    if events.segment.type().is_binary():
        named = source.text(events.segment)
    else:
        named = events.segment
    fitted = [fitting(name, named.type(), "segments: one of them") for name in listed]
    if len(set(fitted)) < len(fitted):
        raise InvalidParameter("segments: two of them are the same value of the column")
    kept = without_data(
        "segments", "they do not fit the column", lambda: source.among(named, fitted)
    )
    return _SegmentColumn(fitted, kept, _numbers(source, events, fitted))


def _listed(segments: Sequence[Hashable]) -> list[Any]:
    if isinstance(segments, str) or not isinstance(segments, Sequence) or not segments:
        raise InvalidParameter("segments must be a list of at least one segment")
    if len(set(segments)) < len(segments):
        raise InvalidParameter("segments must be distinct")
    return list(segments)


def _numbers(source: OpenTable, events: ir.Table, names: Sequence[Any]) -> ir.Table | None:
    """A table of the segments and their places in the list, where grouping by integers is faster
    than by texts.
    """
    import ibis
    import pyarrow as pa

    if events.segment.type().is_integer() or source.backend.keep is None:
        return None
    is_binary = events.segment.type().is_binary()
    exact = [name.encode() if is_binary else name for name in names]
    return ibis.memtable(
        pa.table({"segment_name": exact, "place": pa.array(range(len(exact)), pa.int32())})
    )


def _numbered(events: ir.Table, names: ir.Table | None) -> ir.Table:
    """The events with the place of their segment in the list instead of its name."""
    if names is None:
        return events
    joined = events.join(names, events.segment == names.segment_name)
    return joined.drop("segment", "segment_name").rename(segment="place")


def _contributions(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    each: Contribute,
    names: ir.Table | None,
    s: int | None,
) -> ir.Table:
    """Return what each user adds to each label of each segment, in at most s segments, chosen by
    that user alone.
    """
    import ibis

    if s is not None:
        visits = events.select("user", "segment").distinct()
        if names is not None:
            visits = visits.join(names, visits.segment == names.place)
        name = visits.segment if names is None else visits.segment_name
        place = ibis.row_number().over(
            group_by=visits.user, order_by=hash_ranks(source, visits.user, name, bounds)
        )  # from 0
        placed = visits.mutate(place=place)
        kept = placed.filter(placed.place < s)
        events = events.semi_join(kept, ["user", "segment"])
    return each(source, events, bounds, within=("segment",))
