"""What mechanisms ask of a sensitivity and of a histogram, refused before anything is charged."""

from __future__ import annotations

from dptopk._internal import validate
from dptopk._internal.formatting import numbered
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity

# In counts. Noise of a larger scale could leave the 64-bit integers with a probability that is not
# absurdly small.
LARGEST_SCALE = 2.0**48

# As many labels of a public domain as a program may name one by one: each takes about 200 bytes and
# 2 µs, so that all take 2 GB and 20 seconds.
LARGEST_NAMING = 10**7


def require_add_remove(sensitivity: Sensitivity) -> Sensitivity:
    """Return the sensitivity, if it is one for which the charges of this package are proven.

    Raises:
        InvalidParameter: for neighbours="replace_one": the user who leaves and the user who comes
            move counts in opposite directions, which neither the bounded-range argument nor the
            slot lemma allows; for sums of weights, which are no counts.
    """
    if validate.instance(Sensitivity, sensitivity=sensitivity).neighbours != "add_remove":
        raise InvalidParameter(
            f"neighbours={sensitivity.neighbours!r} is not supported: charges hold for "
            f"'add_remove'. To replace a user "
            "is to remove one and to add one: take half the budget, and its guarantee for "
            "groups of two"
        )
    if sensitivity.l2 is not None:
        raise InvalidParameter(
            "l2: sums of weights find labels, by WeightedGaussian, and are never shown as counts"
        )
    return sensitivity


def finite_l0(sensitivity: Sensitivity, needed: str = "for noise on the whole histogram") -> int:
    """Return l0 of an ``add_remove`` sensitivity, for charges that are unbounded without it.

    Raises:
        InvalidParameter: when l0 is None; ``needed`` is the end of the message, "for ...".
    """
    l0 = require_add_remove(sensitivity).l0
    if l0 is None:
        raise InvalidParameter(f"l0 must be finite {needed}")
    return l0


def require_public(histogram: Histogram, mechanism: str, k: int = 0) -> Histogram:
    """Return the histogram, if it is public and complete and k of its labels can be drawn.

    Args:
        histogram: the histogram.
        mechanism: the name of the mechanism that needs it, for messages.
        k: how many labels are drawn, from 0.

    Raises:
        InvalidParameter: for a private or an incomplete histogram, naming the property, never the
            data; for a k above the number of labels, or too large to be drawn in memory.
    """
    validate.instance(Histogram, histogram=histogram)
    if histogram.domain != "public":
        raise InvalidParameter(
            f"domain: {mechanism} needs a public domain, the labels of this histogram are private"
        )
    if not histogram.complete:
        raise InvalidParameter(
            f"complete: {mechanism} needs the whole histogram, this one was cut to its top rows"
        )
    if k > histogram.domain_size:
        labels = numbered(histogram.domain_size, "label")
        raise InvalidParameter(f"k={k} is more than the {labels} of the public domain")
    validate.count(k=k, at_least=0, at_most=LARGEST_NAMING)  # refuses what memory cannot hold
    return histogram


def touched_counts(sensitivity: Sensitivity, labels: int | None) -> int:
    """Return how many of the counted labels one user can touch: min(l0, labels), where None is
    no limit.

    Raises:
        InvalidParameter: when both are None, or ``labels`` is no number of labels.
    """
    if labels is not None:
        labels = validate.count(labels=labels, at_least=0)
    touched = sensitivity.touched(labels)
    if touched is None:
        raise InvalidParameter(
            "labels must be given (how many labels are counted) when the sensitivity has l0=None"
        )
    return touched
