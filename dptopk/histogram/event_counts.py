"""Two histograms of the same events: one of all events, and one under a cap on labels per user,
which finds the labels.
"""

from __future__ import annotations

from typing import Any

from dptopk.histogram.histogram import Histogram, Sensitivity

# The weight of a user's only label; each of d labels has the weight isqrt(WEIGHT² // d).
WEIGHT = 100
# The profile of users by their number of labels: a cell has those with more labels than its number
# and at most the next number.
CELLS = (0, 1, 2, 5, 10, 20, 60, 250)
# The caps at which counts are taken when there is a profile, from which one is chosen later.
NARROW = (5, 10, 20, 60)


class EventCounts(Histogram):
    """Two histograms of the same events: without a cap (l0 = None), and under a cap.

    Attributes:
        under_cap: the histogram of the events of at most l0 labels of each user, or the sums of
            their users' weights. Which labels of a user remain depends on this user's own rows
            alone (docs/notes/two-phases.md).
        profile: how many users are in each of CELLS, by their number of labels; None if it was not
            requested.
        narrow: with a profile, by cap: the counts of the same labels under that cap, in the
            narrowest integers that hold them; ``under(cap).counts`` has 64 bits, for arithmetic.
    """

    under_cap: Histogram
    profile: Histogram | None = None
    narrow: dict[int, Any]

    @classmethod
    def of_histograms(
        cls,
        everything: Histogram,
        under_cap: Histogram,
        profile: Histogram | None = None,
        narrow: dict[int, Any] | None = None,
    ) -> EventCounts:
        """Return these histograms as one; they must be of the same users' events and complete, and
        have private labels, except for the profile.

        Args:
            everything: the histogram of all events.
            under_cap: the one that finds labels.
            profile: how many users are in each of CELLS; None: it was not requested.
            narrow: by cap: the counts of the labels of ``everything`` under that cap, shape (n,);
                None: there is no profile.
        """
        histogram = cls.__new__(cls)
        histogram.__dict__.update(
            everything.__dict__, under_cap=under_cap, profile=profile, narrow=narrow or {}
        )
        return histogram

    def under(self, cap: int) -> Histogram:
        """Return the histogram of the events under one of the caps of ``narrow``, in which a user
        adds at most 1 to a label, as wherever there is a profile; labels with a count of 0 are left
        out.
        """
        return self.with_counts(self.narrow[cap], Sensitivity(l0=cap))


def finding_sensitivity(labels_per_user: int, per_label_cap: int, *, weights: bool) -> Sensitivity:
    """Return the sensitivity of the histogram that finds labels: of counts under caps, or of sums
    of weights.

    Args:
        labels_per_user: the cap on a user's labels.
        per_label_cap: the most that one user adds to a count.
        weights: whether labels are found by sums of weights, which a user adds once to a label.
    """
    if weights:
        return Sensitivity(linf=WEIGHT, l0=labels_per_user, l2=WEIGHT)
    return Sensitivity(linf=per_label_cap, l0=labels_per_user)
