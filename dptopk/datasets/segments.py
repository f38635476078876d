"""The histograms of many public segments by one query, and what releases on all of them cost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk.budgets.parallel import segments_charge
from dptopk.costs import Charge
from dptopk.datasets.backends.base import Array, OpenTable, hide_data_of_errors
from dptopk.datasets.backends.opening import Engine, selected_events
from dptopk.datasets.bounding import contributions, counts_with_and_without_cap
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.columns import constant_of_type
from dptopk.datasets.counting import ONLY_COUNT, Contribute, Progress, label_counts
from dptopk.datasets.events import to_histogram
from dptopk.datasets.hashing import hash_order
from dptopk.datasets.two_counts import event_counts_of, summed_columns
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import EventCounts
from dptopk.histogram.histogram import Histogram

if TYPE_CHECKING:
    import ibis.expr.types as ir
    from numpy.typing import NDArray

    from dptopk.datasets.backends.inputs import Condition, EventTable


@dataclass(frozen=True, eq=False)
class Segments(Mapping[Any, Histogram]):
    """A histogram for each segment, in the order of the public list.

    Attributes:
        histograms: segment -> Histogram, whose Sensitivity limits one user *in that segment*.
        segments_per_user: s, the most segments in which one user counts.
        by: the name of the column of segments, under which a ledger knows them.
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

        Raises:
            InvalidParameter: for a segment that is not in the list, and as segments_charge.
        """
        if isinstance(charges, Charge):
            charge_of = dict.fromkeys(self, charges)
        else:
            charge_of = dict(charges)
        if set(charge_of) - set(self):
            raise InvalidParameter("charges: one of the segments is not in the list")
        return segments_charge(list(charge_of.values()), segments_per_user=self.segments_per_user)


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
    """Return the histogram of every segment of a public list, by one query, with every user's
    contribution bounded.

    Args:
        table: events, as in events_histogram.
        user: the column of the protected users.
        item: the column of the labels.
        segment: the column that says which segment an event belongs to.
        segments: the public list; events of other segments are dropped, and a segment without
            events has an empty histogram.
        labels_per_user: Δ, the most labels of one user that count *in each segment*.
        segments_per_user: s, the most segments in which one user counts, chosen by a keyed hash;
            None: all of them. With s = 1 releases on different segments compose in parallel.
        count_capped: whether counts are of the capped data. If not, the histograms are EventCounts
            for two phases, in which Δ is the cap for finding labels, and ``top`` must be None.
        weights: for EventCounts: whether labels are found by weights, as in event_counts.
        profile: for EventCounts: whether users of each segment are counted by their number of
            labels, as in event_counts.
        per_label_cap: τ, the most that one user adds to one label of one segment.
        top: only this many of the largest counts of each segment are returned; None: all.
        weight: the column of what an event adds, as in events_histogram.
        where: a condition on events, as in events_histogram.
        choose: which labels count for a user with more than Δ of them in a segment: "hash",
            "random" or "top".
        key: text that varies the choice of labels and segments.
        portable: whether the choice is by SHA-256, as in events_histogram.
        engine: the engine, as in events_histogram.
        table_name: the table in a database file, as in events_histogram.
        progress: a function that is called with (passes done, all passes), as in events_histogram.

    Returns:
        Segments: a mapping from segment to Histogram, with ``charge`` for what the releases cost
        together.

    Raises:
        InvalidParameter: as events_histogram; for a list that is empty, names a segment twice or
            does not fit the column; for a ``where`` with a value of the column of segments; for
            options of EventCounts without count_capped=False.

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
    segment_list = _distinct_segments(segments)
    if isinstance(where, Mapping) and segment in where:
        raise InvalidParameter(
            f"where: the column {segment!r} is that of the segments, which are listed",
            parameter="where",
        )
    if segments_per_user is None:
        most_segments = len(segment_list)
    else:
        most_segments = validate.count(segments_per_user=segments_per_user)
    if top is not None:
        top = validate.count(top=top)
    if count_capped:
        counting = _counting_under_cap(bounds, top, weights=weights, profile=profile)
    else:
        clipped = weight is not None or per_label_cap > 1
        counting = _counting_in_two_phases(
            bounds, top, weights=weights, profile=profile, clipped=clipped
        )
    with selected_events(
        table, where, engine, table_name, user=user, item=item, weight=weight, segment=segment
    ) as (source, events):
        column = _segment_column(source, events, segment_list)
        contribute = partial(
            _contributions_in_segments,
            bounds=bounds,
            contribute=counting.contribute,
            names=column.names,
            most_segments=None if most_segments >= len(segment_list) else most_segments,
        )
        sums = label_counts(
            source,
            _with_segment_indices(events.filter(column.is_listed), column.names),
            contribute,
            bounds,
            top=top,
            within=("segment",),
            sums=counting.sums,
            progress=progress,
        )
    rows = _rows_of_segments(sums, column.places(sums["segment"]), len(segment_list))
    histograms = dict(zip(segment_list, map(counting.histogram, rows), strict=True))
    return Segments(histograms, min(most_segments, len(segment_list)), by=segment)


@dataclass(frozen=True)
class _Counting:
    """How the labels of each segment are counted.

    Attributes:
        sums: name of a sum -> column, as for ``label_counts``.
        contribute: the function that returns what each user adds to each label.
        histogram: the function that makes a histogram of the sums of one segment.
    """

    sums: Mapping[str, str]
    contribute: Contribute
    histogram: Callable[[dict[str, Array]], Histogram | EventCounts]


def _counting_under_cap(
    bounds: Bounds, top: int | None, *, weights: bool, profile: bool
) -> _Counting:
    """Return how the labels of each segment are counted under the bounds, as a histogram.

    Args:
        bounds: the bounds in each segment.
        top: how many of the largest counts are returned; None: all.
        weights: whether the caller has asked for weights, which only EventCounts have.
        profile: whether the caller has asked for a profile, which only EventCounts have.

    Raises:
        InvalidParameter: if the caller has asked for one of them.
    """
    if profile:
        raise InvalidParameter("profile: it needs count_capped=False and weights=True")
    if weights:
        raise InvalidParameter("weights: they need count_capped=False and per_label_cap=1")
    return _Counting(ONLY_COUNT, contributions, partial(to_histogram, bounds=bounds, top=top))


def _counting_in_two_phases(
    bounds: Bounds, top: int | None, *, weights: bool, profile: bool, clipped: bool
) -> _Counting:
    """Return how the labels of each segment are counted without and with a cap on labels, as
    EventCounts.

    Args:
        bounds: the bounds in each segment, with that cap.
        top: how many of the largest counts were asked for; it must be None.
        weights: whether labels are found by sums of weights.
        profile: whether users are counted by their number of labels.
        clipped: whether what one user adds to a label is cut at τ.

    Raises:
        InvalidParameter: for options that do not go together.
    """
    if bounds.labels_per_user is None or top is not None:
        raise InvalidParameter(
            "count_capped=False: labels_per_user must be a number, and top cannot be given"
        )
    if weights and bounds.per_label_cap != 1:
        raise InvalidParameter("weights: they need count_capped=False and per_label_cap=1")
    return _Counting(
        summed_columns(weights=weights, profile=profile),
        partial(counts_with_and_without_cap, weights=weights, profile=profile),
        partial(event_counts_of, bounds=bounds, weights=weights, clipped=clipped),
    )


def _rows_of_segments(
    sums: Mapping[str, Array], places: NDArray[np.int64], segments: int
) -> Iterator[dict[str, Array]]:
    """Yield the rows of each segment, in the order of the list.

    Args:
        sums: the columns of all segments, shape (rows,) each.
        places: the index of each row's segment in the list, shape (rows,).
        segments: the number of segments.
    """
    for place in range(segments):
        rows = places == place
        yield {name: values[rows] for name, values in sums.items()}


@dataclass(frozen=True)
class _SegmentColumn:
    """The list of segments as values of their column.

    Attributes:
        values: the segments as the column holds them, in the order of the list.
        is_listed: the condition that an event is in one of them.
        names: the table of the segments and their indices (``_segment_indices``); None: events are
            grouped by the segment itself.
    """

    values: list[Any]
    is_listed: ir.BooleanValue
    names: ir.Table | None

    def places(self, segments: Array) -> NDArray[np.int64]:
        """Return the index in the list of each segment that the engine returned, shape (rows,); -1
        for a segment that is not in the list.

        Args:
            segments: the column of segments of a result, shape (rows,): values of the column, or
                indices where there is a table ``names``.
        """
        # With a table of names the engine returns indices.
        values = self.values if self.names is None else range(len(self.values))
        places = {value: place for place, value in enumerate(values)}
        # Compared as Python does: NumPy ends a text at a NUL.
        return np.array([places.get(value, -1) for value in segments.tolist()], dtype=np.int64)


def _segment_column(source: OpenTable, events: ir.Table, segment_list: list[Any]) -> _SegmentColumn:
    """Return the list of segments as values of the column.

    Args:
        source: the table.
        events: its events, with the column ``segment``.
        segment_list: the segments as the caller wrote them.

    Raises:
        InvalidParameter: if one does not fit, or two are the same value.
    """
    if events.segment.type().is_binary():
        names_as_text = source.text(events.segment)
    else:
        names_as_text = events.segment
    values = [
        constant_of_type(name, names_as_text.type(), "segments: one of them")
        for name in segment_list
    ]
    if len(set(values)) < len(values):
        raise InvalidParameter("segments: two of them are the same value of the column")
    is_listed = hide_data_of_errors(
        "segments", "they do not fit the column", lambda: source.is_one_of(names_as_text, values)
    )
    return _SegmentColumn(values, is_listed, _segment_indices(source, events, values))


def _distinct_segments(segments: Sequence[Hashable]) -> list[Any]:
    """Return the segments of a sequence as a list.

    Raises:
        InvalidParameter: if it is no sequence, is empty, or names a segment twice.
    """
    if isinstance(segments, str) or not isinstance(segments, Sequence) or not segments:
        raise InvalidParameter("segments must be a list of at least one segment")
    if len(set(segments)) < len(segments):
        raise InvalidParameter("segments must be distinct")
    return list(segments)


def _segment_indices(source: OpenTable, events: ir.Table, names: Sequence[Any]) -> ir.Table | None:
    """Return a table of the segments and their indices in the list; None if events are grouped by
    the segments themselves.

    It is None if the segments are integers, which are sorted as fast as indices, and on an engine
    that stores no tables.

    Args:
        source: the table.
        events: its events, with the column ``segment``.
        names: the segments, as values of the column.
    """
    import ibis
    import pyarrow as pa

    if events.segment.type().is_integer() or source.backend.keep is None:
        return None
    is_binary = events.segment.type().is_binary()
    values = [name.encode() if is_binary else name for name in names]
    indices = pa.array(range(len(values)), pa.int32())
    return ibis.memtable(pa.table({"segment_name": values, "place": indices}))


def _with_segment_indices(events: ir.Table, names: ir.Table | None) -> ir.Table:
    """Return the events with the index of their segment in the list instead of its name; unchanged
    if ``names``, the table of these indices (``_segment_indices``), is None.
    """
    if names is None:
        return events
    joined = events.join(names, events.segment == names.segment_name)
    return joined.drop("segment", "segment_name").rename(segment="place")


def _contributions_in_segments(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    contribute: Contribute,
    names: ir.Table | None,
    most_segments: int | None,
) -> ir.Table:
    """Return what each user adds to each label of each segment, in at most ``most_segments`` of
    them.

    Which segments count depends on the user's own events and the key alone.

    Args:
        source: the table.
        events: its events.
        bounds: the bounds in each segment.
        contribute: the function that enforces them.
        names: the table of the segments and their indices; None: events have the segment itself.
        most_segments: s, the most segments of one user; None: all.
    """
    import ibis

    if most_segments is not None:
        visits = events.select("user", "segment").distinct()
        if names is not None:
            visits = visits.join(names, visits.segment == names.place)
        name = visits.segment if names is None else visits.segment_name
        order = hash_order(source, visits.user, name, bounds)
        place = ibis.row_number().over(group_by=visits.user, order_by=order)  # from 0
        ranked_visits = visits.mutate(place=place)
        counted_visits = ranked_visits.filter(ranked_visits.place < most_segments)
        events = events.semi_join(counted_visits, ["user", "segment"])
    return contribute(source, events, bounds, within=("segment",))
