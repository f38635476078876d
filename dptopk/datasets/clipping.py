"""The histogram of the number of labels per user, to choose a cap Δ at a small cost.

Counts of capped data are lower than the true ones, and by how much is itself private. Every user is
in one bin, by the number of that user's labels, so that the histogram of the bins has l0 = linf = 1
and noise on it costs one PureDP.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dptopk._internal import validate
from dptopk.datasets.backends.base import hide_data_of_errors, import_of_extra
from dptopk.datasets.backends.opening import Engine, selected_events
from dptopk.datasets.bounding import amounts
from dptopk.datasets.bounds import Bounds
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Array, Histogram, Sensitivity
from dptopk.release.release import Release

if TYPE_CHECKING:
    from dptopk.datasets.backends.inputs import Condition, EventTable

# A user with n labels is in the first bin whose end is at least n, or in a further bin beyond the
# last end. Further bins, of users with very many labels, would hold little but noise, and that
# noise would be multiplied by many labels.
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
    """Return the number of users by their number of labels, before any cap, as a public-domain
    histogram.

    Args:
        table: events, as in events_histogram.
        user: the column of the protected users.
        item: the column of the labels.
        weight: the column of what an event adds, as in events_histogram.
        where: a condition on events, as in events_histogram.
        engine: the engine, as in events_histogram.
        table_name: the table in a database file, as in events_histogram.

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
    ibis = import_of_extra("ibis", extra="data")
    bounds = Bounds(labels_per_user=None)
    with selected_events(table, where, engine, table_name, user=user, item=item, weight=weight) as (
        source,
        events,
    ):
        pairs = amounts(events, bounds)
        users = pairs.group_by("user").agg(labels=pairs.count())
        # The index of a user's bin is the number of ends below the user's number of labels.
        bin_index = sum(ibis.ifelse(users.labels > end, 1, 0) for end in ENDS)
        users_with_bin = users.mutate(place=bin_index)
        users_by_bin = users_with_bin.group_by("place").agg(users=users_with_bin.count())
        rows = hide_data_of_errors(
            "table", "the engine could not run the query", partial(source.run, users_by_bin)
        )
    counts = np.zeros(len(ENDS) + 1, dtype=np.int64)
    counts[rows["place"].to_numpy()] = rows["users"].to_numpy()
    return Histogram(_bin_names(), counts, sensitivity=Sensitivity(linf=1, l0=1), domain="public")


def _bin_names() -> list[str]:
    """Return the labels of the bins: "1", "2", ..., "7-8", ..., "65 or more"."""
    names = []
    start = 1
    for end in ENDS:
        names.append(str(end) if start == end else f"{start}-{end}")
        start = end + 1
    return [*names, f"{start} or more"]


@dataclass(frozen=True)
class ClippingLoss:
    """Estimates of what a cap of Δ labels per user cuts off, from counts with noise.

    Attributes:
        labels_per_user: the cap Δ.
        users: the estimated share of the users who have more than Δ labels.
        pairs: the estimated share of all pairs of a user and a label that the cap cuts off, by
            which an average count is too low. Users beyond the last bin are taken to have one label
            more than its end; if there are such users, the true share is larger.
        error: about two standard deviations of ``pairs`` by the noise alone; 1.0 if there are too
            few users to tell.
    """

    labels_per_user: int
    users: float
    pairs: float
    error: float


@dataclass(frozen=True, eq=False)
class _BinMeans:
    """Means over a user of each bin, under a cap; all float64, shape (bins,).

    Attributes:
        share_above: the share of users above the cap.
        labels_above: the mean number of a user's labels beyond the cap.
        labels: the mean number of labels.
    """

    share_above: Array
    labels_above: Array
    labels: Array

    @classmethod
    def of(cls, cap: int) -> _BinMeans:
        """Return the means under a cap; the users of a bin are taken to be spread evenly over its
        numbers of labels.
        """
        starts = [1, *(end + 1 for end in ENDS)]
        # The last bin has no end: its users are counted at its start.
        ends = [*ENDS, ENDS[-1] + 1]
        bins = [np.arange(start, end + 1) for start, end in zip(starts, ends, strict=True)]
        return cls(
            share_above=np.array([(labels > cap).mean() for labels in bins]),
            labels_above=np.array([np.maximum(labels - cap, 0).mean() for labels in bins]),
            labels=np.array([labels.mean() for labels in bins]),
        )


def clipping_loss(answer: Release, labels_per_user: int) -> ClippingLoss:
    """Return an estimate of what a cap would cut off, from a released users_by_labels histogram; it
    costs nothing more.

    Args:
        answer: a release of the whole histogram of users_by_labels, with counts.
        labels_per_user: the cap Δ to judge, at least 1.

    Raises:
        InvalidParameter: when the release is not one of that histogram, or the cap is no integer of
            at least 1.
    """
    cap = validate.count(labels_per_user=labels_per_user)
    counts, noise_std = _released_bins(answer)
    means = _BinMeans.of(cap)
    users = counts.sum()
    pairs = counts @ means.labels
    # Noise may make sums negative, and may move shares out of [0, 1].
    if users <= 0 or pairs <= 0:
        return ClippingLoss(cap, 0.0, 0.0, 1.0)
    users_above = min(max(float(counts @ means.share_above / users), 0.0), 1.0)
    share = min(max(float(counts @ means.labels_above / pairs), 0.0), 1.0)
    # The delta method for a ratio: the deviation of lost - share * pairs, over pairs.
    deviation = noise_std * float(np.linalg.norm(means.labels_above - share * means.labels))
    return ClippingLoss(cap, users_above, share, min(2 * deviation / float(pairs), 1.0))


def _released_bins(answer: Release) -> tuple[Array, float]:
    """Return the released number of users in each bin of users_by_labels, in their order, and the
    standard deviation of the noise on each.

    Raises:
        InvalidParameter: when the release is not one of all counts of that histogram.
    """
    names = _bin_names()
    if (
        answer.counts is None
        or answer.measurement is None
        or sorted(map(str, answer.labels)) != sorted(names)
    ):
        raise InvalidParameter("answer must be a release of all counts of users_by_labels")
    count_of_bin = dict(zip(answer.labels, answer.counts.tolist(), strict=True))
    counts = np.array([count_of_bin[name] for name in names], dtype=float)
    return counts, answer.measurement.noise.std
