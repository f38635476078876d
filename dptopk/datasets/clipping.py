"""Histogram of the number of labels per user, to choose a cap Δ at a small cost.

Counts of capped data are lower than the true ones, and by how much is itself private. Every user is
in one bin, by how many labels that user has; so the histogram of the bins has l0 = linf = 1, and
noise on it costs one PureDP.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dptopk._internal import validate
from dptopk.datasets.backends.base import imported, without_data
from dptopk.datasets.backends.opening import Engine, selected
from dptopk.datasets.bounding import Bounds, amounts
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Array, Histogram, Sensitivity
from dptopk.release.release import Release

if TYPE_CHECKING:
    from dptopk.datasets.backends.inputs import Condition, EventTable

# A user with n labels is in the first bin whose end is at least n, or in one more beyond the last.
# Bins of users with very many labels would be mostly noise, times many labels.
ENDS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64)


def users_by_labels(
    table: EventTable,
    *,
    user: str,
    item: str,
    weight: str | None = None,
    where: Condition = None,
    engine: Engine | None = None,
    table_name: str | None = None,
) -> Histogram:
    """Count users by their number of labels, before any cap: a public-domain histogram for a
    counting mechanism.

    Args:
        table: events, as in events_histogram.
        user: column of whom the privacy is for.
        item: column of the labels.
        weight: as in events_histogram.
        where: as in events_histogram.
        engine: as in events_histogram.
        table_name: as in events_histogram.

    Returns:
        A Histogram with the labels "1", "2", ..., "7-8", ..., "65 or more" and Sensitivity(linf=1,
        l0=1): adding or removing a user moves one count by one. Ask it with KnownLaplace(epsilon),
        and read the answer with clipping_loss.

    Raises:
        InvalidParameter: as events_histogram.

    >>> import pandas as pd
    >>> events = pd.DataFrame({"who": ["a", "a", "a", "b"], "what": ["x", "y", "x", "x"]})
    >>> histogram = users_by_labels(events, user="who", item="what")
    >>> dict(zip(histogram.labels.tolist(), histogram.counts.tolist()))["2"]
    1
    """
    ibis = imported("ibis", extra="data")
    bounds = Bounds(labels_per_user=None)
    with selected(table, where, engine, table_name, user=user, item=item, weight=weight) as (
        source,
        events,
    ):
        pairs = amounts(events, bounds)
        users = pairs.group_by("user").agg(labels=pairs.count())
        place = sum(ibis.ifelse(users.labels > end, 1, 0) for end in ENDS)
        placed = users.mutate(place=place)
        counted = placed.group_by("place").agg(users=placed.count())
        rows = without_data(
            "table", "the engine could not run the query", partial(source.run, counted)
        )
    counts = np.zeros(len(ENDS) + 1, dtype=np.int64)
    counts[rows["place"].to_numpy()] = rows["users"].to_numpy()
    return Histogram(_names(), counts, sensitivity=Sensitivity(linf=1, l0=1), domain="public")


def _names() -> list[str]:
    """The labels of the bins."""
    starts = [1, *(end + 1 for end in ENDS[:-1])]
    inner = [
        str(end) if start == end else f"{start}-{end}"
        for start, end in zip(starts, ENDS, strict=True)
    ]
    return [*inner, f"{ENDS[-1] + 1} or more"]


@dataclass(frozen=True)
class ClippingLoss:
    """Estimates of what a cap of Δ labels per user cuts off, with about two standard deviations of
    the noise.

    Attributes:
        labels_per_user: the cap Δ.
        users: share of the users who have more than Δ labels.
        pairs: share of all pairs of a user and a label that the cap cuts off: by so much an average
            count is too low. Users beyond the last bin are taken to have one label more than its
            end: where there are such, it is more.
        error: of ``pairs``, from the noise alone; 1.0 where there are too few users to tell.
    """

    labels_per_user: int
    users: float
    pairs: float
    error: float


def _means_of_bins(cap: int) -> tuple[Array, Array, Array]:
    """For a user of each bin: the share of those above the cap, and the means of labels above it
    and of all labels. Users of a bin are spread evenly over its numbers of labels.
    """
    starts = [1, *(end + 1 for end in ENDS)]
    ends = [*ENDS, ENDS[-1] + 1]
    spread = [np.arange(start, end + 1) for start, end in zip(starts, ends, strict=True)]
    over = np.array([(labels > cap).mean() for labels in spread])
    lost = np.array([np.maximum(labels - cap, 0).mean() for labels in spread])
    have = np.array([labels.mean() for labels in spread])
    return over, lost, have


def clipping_loss(answer: Release, labels_per_user: int) -> ClippingLoss:
    """Estimate what a cap would cut off, from a released users_by_labels histogram; free
    post-processing.

    Args:
        answer: a release of the whole histogram of users_by_labels, with counts.
        labels_per_user: the cap Δ to judge, at least 1.

    Raises:
        InvalidParameter: when the release is not one of that histogram.
    """
    cap = validate.count(labels_per_user=labels_per_user)
    names = _names()
    if (
        answer.counts is None
        or answer.measurement is None
        or sorted(map(str, answer.labels)) != sorted(names)
    ):
        raise InvalidParameter("answer must be a release of all counts of users_by_labels")
    released = dict(zip(answer.labels, answer.counts.tolist(), strict=True))
    counts = np.array([released[name] for name in names], dtype=float)
    over, lost, have = _means_of_bins(cap)
    users = counts.sum()
    total = counts @ have
    if users <= 0 or total <= 0:
        return ClippingLoss(cap, 0.0, 0.0, 1.0)
    share = min(max(float(counts @ lost / total), 0.0), 1.0)
    noise = answer.measurement.noise.std * float(np.linalg.norm(lost - share * have))
    return ClippingLoss(
        cap,
        min(max(float(counts @ over / users), 0.0), 1.0),
        share,
        min(2 * noise / float(total), 1.0),
    )
