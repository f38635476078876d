"""One query for the histograms of many public segments, and what releases on them cost a single user together."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dptopk import _validate as validate
from dptopk.accounting.kinds.registry import kind_of
from dptopk.costs import Charge, Cost, sum_up
from dptopk.datasets.bounding import Bounds, Progress, contributions, label_counts, lots
from dptopk.datasets.columns import fitting, needed_columns, select_events
from dptopk.datasets.engines import Engine, Source, open_table, without_data
from dptopk.datasets.events import to_histogram
from dptopk.errors import IncompatibleCosts, InvalidParameter
from dptopk.histogram import Histogram

__all__ = ["Segments", "segment_histograms", "segments_charge"]


@dataclass(frozen=True, eq=False)
class Segments(Mapping[Any, Histogram]):
    """A histogram for each segment, in the order of the public list, and in how many of them one user can be.

    Attributes:
        histograms: segment -> Histogram, whose Sensitivity is what one user can do *in that segment*.
        segments_per_user: s, the most segments in which one user counts; enforced.
    """

    histograms: Mapping[Any, Histogram]
    segments_per_user: int

    def __getitem__(self, segment: Any) -> Histogram:
        return self.histograms[segment]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.histograms)

    def __len__(self) -> int:
        return len(self.histograms)

    def charge(self, charges: Charge | Mapping[Any, Charge]) -> Charge:
        """What one user pays for releases in all segments, each at its own charge; see segments_charge.

        Args:
            charges: the charge of each segment's release, or one charge that all of them share.
        """
        each = dict.fromkeys(self, charges) if isinstance(charges, Charge) else dict(charges)
        if set(each) - set(self):
            raise InvalidParameter("charges: one of the segments is not in the list")
        return segments_charge(list(each.values()), segments_per_user=self.segments_per_user)


def segment_histograms(  # noqa: PLR0913 - those of events_histogram, and three of segments
    table: Any,
    *,
    user: str,
    item: str,
    segment: str,
    segments: Sequence[Hashable],
    labels_per_user: int | None,
    segments_per_user: int | None = None,
    per_label_cap: int = 1,
    top: int | None = None,
    weight: str | None = None,
    where: Any = None,
    choose: str = "hash",
    key: str = "",
    portable: bool = False,
    engine: Engine | None = None,
    table_name: str | None = None,
    progress: Progress | None = None,
) -> Segments:
    """The histogram of every segment of a public list, in one query, with every user's contribution bounded.

    Args:
        table: events, as in events_histogram.
        user: column of whom the privacy is for.
        item: column of the labels.
        segment: column that says which segment an event belongs to.
        segments: the public list; events of other segments are dropped, and a segment without events has an empty
            histogram.
        labels_per_user: Δ, the most labels of one user that count *in each segment*.
        segments_per_user: s, the most segments in which one user counts, chosen by a keyed hash; None = all of them.
            With s = 1 releases on different segments compose in parallel.
        per_label_cap: τ, the most that one user adds to one label of one segment.
        top: rows to bring back for each segment; None = all.
        weight: as in events_histogram.
        where: as in events_histogram; it goes to the engine.
        choose: which labels count for a user with more than Δ of them in a segment: "hash", "random" or "top".
        key: varies the choice of labels and segments.
        portable: as in events_histogram.
        engine: as in events_histogram.
        table_name: as in events_histogram.
        progress: as in events_histogram.

    Returns:
        Segments: a mapping from segment to Histogram, with ``charge`` for what the releases cost together.

    Raises:
        InvalidParameter: as events_histogram, and for a list that is empty, repeats itself or does not fit the column.

    >>> import pandas as pd
    >>> from dptopk import BoundedRange
    >>> events = pd.DataFrame({"who": ["a", "a", "b"], "what": ["x", "y", "x"], "where": ["north", "south", "north"]})
    >>> found = segment_histograms(
    ...     events, user="who", item="what", segment="where", segments=["north", "south", "west"], labels_per_user=2
    ... )
    >>> {name: dict(zip(h.labels.tolist(), h.counts.tolist())) for name, h in found.items()}
    {'north': {'x': 2}, 'south': {'y': 1}, 'west': {}}
    >>> print(found.charge(Charge({BoundedRange(0.1): 5}, adaptive=True)))
    15*BR(0.1) [adaptive]
    """
    bounds = Bounds(
        labels_per_user=labels_per_user, per_label_cap=per_label_cap, choose=choose, key=key, portable=portable
    )
    listed = _listed(segments)
    s = len(listed) if segments_per_user is None else validate.count(segments_per_user=segments_per_user)
    if top is not None:
        top = validate.count(top=top)
    needed = needed_columns(where, user=user, item=item, weight=weight, segment=segment)
    with open_table(table, engine, columns=needed, table_name=table_name) as source:
        events = select_events(source, where, user=user, item=item, weight=weight, segment=segment)
        named = source.text(events.segment) if events.segment.type().is_binary() else events.segment
        fitted = [fitting(name, named.type(), "segments: one of them") for name in listed]
        if len(set(fitted)) < len(fitted):
            raise InvalidParameter("segments: two of them are the same value of the column")
        kept = without_data("segments", "they do not fit the column", lambda: named.isin(fitted))
        contribute = partial(_contributions, bounds=bounds, s=None if s >= len(listed) else s)
        events = events.filter(kept)
        counted = label_counts(source, events, contribute, bounds, top=top, within=("segment",), progress=progress)
    pairs = zip(listed, fitted, strict=True)
    histograms = {name: to_histogram(_rows_of(counted, value), bounds, top) for name, value in pairs}
    return Segments(histograms, min(s, len(listed)))


def segments_charge(charges: Sequence[Charge], *, segments_per_user: int) -> Charge:
    """What one user pays for releases on disjoint segments, when the user counts in at most s of them.

    The releases on segments without the user do not depend on the user, so the loss is that of some s of the charges,
    whichever they are. The answer covers every such choice: for costs of one family, ordered by their parameter, it
    holds as many costs of at least each size as the s segments with the most of them hold together; for others, as
    many of each cost; and the s largest deltas. Equal charges: exactly s of them (s = 1: parallel composition).

    Args:
        charges: one for each segment, fixed before any data is seen.
        segments_per_user: s, at least 1, as enforced by segment_histograms.

    Returns:
        A charge that dominates every choice of s charges: an upper bound, exact when the charges are equal.

    Raises:
        IncompatibleCosts: for different neighbour relations.

    >>> from dptopk import PureDP
    >>> small, large = Charge({PureDP(0.1): 3}), Charge({PureDP(0.2): 2})
    >>> print(segments_charge([small, small, large], segments_per_user=1))
    DP(0.1) + 2*DP(0.2)
    """
    s = validate.count(segments_per_user=segments_per_user)
    if not all(isinstance(charge, Charge) for charge in charges):
        raise InvalidParameter("charges must be a Charge for each segment")
    relations = {charge.neighbours for charge in charges if charge}
    if len(relations) > 1:
        raise IncompatibleCosts(f"segments charged for different neighbours: {', '.join(sorted(relations))}")
    costs: dict[Cost, int] = {}
    for family in _families(charges):
        covered = 0
        for place, cost in enumerate(family):  # from the largest: how many costs of at least this size at once
            sizes = (sum(charge.costs.get(larger, 0) for larger in family[: place + 1]) for charge in charges)
            at_least = sum(sorted(sizes, reverse=True)[:s])
            costs[cost] = at_least - covered
            covered = at_least
    return Charge(
        costs,
        delta=sum_up(sorted((charge.delta for charge in charges), reverse=True)[:s]),
        adaptive=any(charge.adaptive for charge in charges),
        neighbours=next(iter(relations), "add_remove"),
    )


def _families(charges: Sequence[Charge]) -> list[list[Any]]:
    """The distinct costs, in families in which a larger cost is a weaker promise, each from the largest down."""
    families: dict[Any, list[tuple[float, Any]]] = {}
    for cost in {cost for charge in charges for cost in charge.costs}:
        family = kind_of(cost).family
        name, size = family(cost) if family else (cost, 0.0)
        families.setdefault(name, []).append((size, cost))
    return [[cost for _, cost in sorted(family, key=lambda pair: -pair[0])] for family in families.values()]


def _listed(segments: Sequence[Hashable]) -> list[Any]:
    if isinstance(segments, str) or not isinstance(segments, Sequence) or not segments:
        raise InvalidParameter("segments must be a list of at least one segment")
    if len(set(segments)) < len(segments):
        raise InvalidParameter("segments must be distinct")
    return list(segments)


def _contributions(source: Source, events: Any, bounds: Bounds, s: int | None) -> Any:
    """What each user adds to each label of each segment, in at most s segments; the choice looks at that user alone."""
    import ibis

    if s is not None:
        order = lots(source, events.user, events.segment, bounds)
        events = events.mutate(segment_place=ibis.dense_rank().over(group_by=events.user, order_by=order))  # from 0
        events = events.filter(events.segment_place < s)
    return contributions(source, events, bounds, within=("segment",))


def _rows_of(counted: Any, segment: Any) -> Any:
    """The rows of one segment."""
    import pyarrow.compute as pc

    return counted.filter(pc.equal(counted["segment"], segment))
