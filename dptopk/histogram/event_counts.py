"""The histogram of events together with one that finds their labels, under a cap on labels per user."""

from __future__ import annotations

from dptopk.histogram.histogram import Histogram, Sensitivity

WEIGHT = 100  # of a user's only label; of d labels each has isqrt(WEIGHT² // d)


class EventCounts(Histogram):
    """Two histograms of the same events: without a cap (l0 = None), and under a cap.

    Attributes:
        under_cap: the histogram of the events of at most l0 labels of each user, or the sums of their users' weights;
            which labels of a user, is decided by this user's own rows (docs/notes/two-phases.md).
    """

    under_cap: Histogram

    @classmethod
    def beside(cls, everything: Histogram, under_cap: Histogram) -> EventCounts:
        """The two histograms as one; both of the same users' events, whole and private."""
        made = cls(everything.labels, everything.counts, sensitivity=everything.sensitivity, capped=everything.capped)
        made.__dict__["under_cap"] = under_cap
        return made


def finding_sensitivity(labels_per_user: int, per_label_cap: int, *, weights: bool) -> Sensitivity:
    """That of the histogram that finds labels."""
    if weights:
        return Sensitivity(linf=WEIGHT, l0=labels_per_user, l2=WEIGHT)
    return Sensitivity(linf=per_label_cap, l0=labels_per_user)
