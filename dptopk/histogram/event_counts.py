"""The histogram of events together with one that finds their labels, under a cap on labels per
user.
"""

from __future__ import annotations

from typing import Any

from dptopk.histogram.histogram import Histogram, Sensitivity

WEIGHT = 100  # of a user's only label; of d labels each has isqrt(WEIGHT² // d)
# The profile of users: in a cell are those who have more labels than its number, and not more than
# the next one.
CELLS = (0, 1, 2, 5, 10, 20, 60, 250)
NARROW = (5, 10, 20, 60)  # the caps of further counts beside a profile


class EventCounts(Histogram):
    """Two histograms of the same events: without a cap (l0 = None), and under a cap.

    Attributes:
        under_cap: the histogram of the events of at most l0 labels of each user, or the sums of
            their users' weights; which labels of a user, is decided by this user's own rows
            (docs/notes/two-phases.md).
        profile: how many users are in each of CELLS, by their number of labels; None where it was
            not asked for.
        narrow: beside a profile: cap -> the counts of the events under that cap, of the same
            labels, in integers as narrow as hold them; ``under(cap).counts`` has 64 bits, for
            arithmetic.
    """

    under_cap: Histogram
    profile: Histogram | None = None
    narrow: dict[int, Any]

    @classmethod
    def beside(
        cls,
        everything: Histogram,
        under_cap: Histogram,
        profile: Histogram | None = None,
        narrow: dict[int, Any] | None = None,
    ) -> EventCounts:
        """These histograms as one: of the same users' events, whole and, but for a profile,
        private.
        """
        histogram = cls.__new__(cls)
        histogram.__dict__.update(
            everything.__dict__, under_cap=under_cap, profile=profile, narrow=narrow or {}
        )
        return histogram

    def under(self, cap: int) -> Histogram:
        """The histogram of the events under one of the narrow caps."""
        return self.recounted(self.narrow[cap], Sensitivity(l0=cap))


def finding_sensitivity(labels_per_user: int, per_label_cap: int, *, weights: bool) -> Sensitivity:
    """The sensitivity of the histogram that finds labels."""
    if weights:
        return Sensitivity(linf=WEIGHT, l0=labels_per_user, l2=WEIGHT)
    return Sensitivity(linf=per_label_cap, l0=labels_per_user)
