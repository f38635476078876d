"""The histogram of events together with that of the same events under a cap on labels per user."""

from __future__ import annotations

from dptopk.histogram.histogram import Histogram


class EventCounts(Histogram):
    """The histogram of all events (l0 = None) and, beside it, that of the same events under a cap.

    Attributes:
        under_cap: the histogram of the events of at most l0 labels of each user; which labels of a user, is decided by
            this user's own rows (docs/notes/two-phases.md).
    """

    under_cap: Histogram

    @classmethod
    def beside(cls, everything: Histogram, under_cap: Histogram) -> EventCounts:
        """The two histograms as one; both of the same users' events, whole and private."""
        made = cls(everything.labels, everything.counts, sensitivity=everything.sensitivity, capped=everything.capped)
        made.__dict__["under_cap"] = under_cap
        return made
