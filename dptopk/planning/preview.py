"""The numbers that a plan guarantees or predicts, before any data is seen."""

from __future__ import annotations

from dataclasses import dataclass

from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.release.release import Release

# Made-up counts are at least the first number and differ by the second one: far above every
# threshold, and much further apart than noise moves them.
LARGE = 2**40
APART = 2**30


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A plan in numbers; None where a number does not apply.

    Attributes:
        noise_std: standard deviation of the noise on a count, in counts.
        half_width: 95% of the noise on a count is within ± this.
        error_bar: half the width of the intervals that the answer will show, for all rows at once.
        threshold: the count, or the lead over ``above_rank``, that a noisy count must exceed for
            its label to be released.
        appears_at: the count, or the lead, at which a label appears with probability 1/2; where
            labels are found by weights, a number of users who have no other label.
        above_rank: the rank of the count that thresholds are counted from.
        appearing: in words, from which count on a label appears; "" in a public domain.
        k: how many labels are asked for.
        warnings: what is doubtful about the budget.
        explanation: the plan in words.
        epsilon, delta, bound: the guarantee, and the name of its bound; None where it depends on
            the δ at which it is stated.
    """

    noise_std: float | None
    half_width: float | None
    threshold: int | None
    appears_at: int | None
    above_rank: int | None
    appearing: str = ""
    error_bar: float | None = None
    k: int | None = None
    warnings: tuple[str, ...] = ()
    explanation: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    bound: str | None = None


def large_counts(k: int, sensitivity: Sensitivity) -> Histogram:
    """Return made-up data of k private labels with large counts that are far apart: a plan is run
    on it to see how wide the intervals of its answers are.
    """
    counts = [LARGE + (k - place) * APART for place in range(k)]
    labels = [str(place) for place in range(k)]
    return Histogram(labels, counts, sensitivity=sensitivity)


def bar_of(release: Release) -> float | None:
    """Return half the width of the widest interval of an answer, in counts; None where it has none.

    Where more than k labels pass a threshold the intervals of the k that are shown are a little
    wider, since the others competed with them.
    """
    try:
        table = release.intervals()
    except InvalidParameter:  # of a mechanism without intervals
        return None
    if len(table):
        return float((table["high"] - table["low"]).max()) / 2
    return None
