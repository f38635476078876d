"""The total of all labels that an answer did not show, as a histogram of one row."""

from __future__ import annotations

from dptopk._internal import validate
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.mechanism import finite_l0
from dptopk.release.release import Release


def total_of_other_labels(histogram: Histogram, shown: Release, name: str) -> Histogram:
    """Return the total of all counts that an answer did not show, which one user moves by at most
    τΔ.

    Args:
        histogram: all counts, exact.
        shown: the answer, whose labels are public now.
        name: the label of the row.

    Raises:
        InvalidParameter: where Δ is unrestricted, or the histogram was cut to its top rows.
    """
    labels_per_user = finite_l0(histogram.sensitivity, "for the total of all other labels")
    if not histogram.complete:
        raise InvalidParameter("complete: the total of all other labels needs the whole histogram")
    counts_shown = histogram.count_of(list(shown.labels))
    # Python's integers do not overflow.
    total = sum(histogram.counts.tolist()) - sum(counts_shown.tolist())
    # A minimum with a constant moves by no more than the total does.
    total = min(total, validate.LARGEST - 1)
    sensitivity = Sensitivity(linf=histogram.sensitivity.linf * labels_per_user, l0=1)
    return Histogram(
        [name], [total], sensitivity=sensitivity, domain="public", capped=histogram.capped
    )
