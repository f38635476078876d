"""Counts of private labels over a fixed threshold, with discrete Gaussian noise, and one exact
charge for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from dptopk._internal.tails import first_offset, gaussian_tail, union
from dptopk.accounting.gaussian.sparse import sparse_gaussian_statements
from dptopk.costs import Charge, SparseGaussianDP
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.gaussian import KnownGaussian
from dptopk.mechanisms.thresholds import IndependentCounts, fixed_threshold
from dptopk.mechanisms.user_total import cap_binds


@dataclass(frozen=True, kw_only=True)
class SparseGaussian(IndependentCounts):
    """Every present count + discrete Gaussian noise, released if above a fixed T; needs the whole
    histogram.

    Charge: one SparseGaussianDP. Its δ covers the noise and the threshold together: it is the
    largest δ over all numbers of labels that the user shares with others, not the sum of two δ. l0
    must be finite. Neighbours: add or remove one user. Whether the histogram is whole is a fact
    about how it was made, not one to be read off the data.

    Args:
        sigma: scale of the noise in units of linf.
        delta: bounds the probability that a label is released which one user alone has; in (0, 1).
            It chooses the threshold and is part of the charge's own δ, not added to it.

    Source: Wilkins-Kifer-Zhang-Karrer 2024 (the Gaussian sparse histogram mechanism), for discrete
    noise and any linf: docs/notes/sparse-gaussian.md. T is the smallest integer >= linf with 1 -
    (1-q)^l0 <= delta, q = P[N > T - linf].

    >>> mechanism = SparseGaussian(sigma=9.45, delta=1e-6)
    >>> print(mechanism.charge(Sensitivity(l0=5)), mechanism.threshold_offset(Sensitivity(l0=5)))
    SGauss(9.45, 1, 49, 5) 49
    """

    sigma: float
    delta: float
    noise_grows_with = ("sigma",)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return one SparseGaussianDP, for any ``labels``; where a user's total is capped, return
        the cost of the noise + δ.

        Raises:
            InvalidParameter: when l0 is None, because there is no bound, or sigma is too small for
                that many labels.
        """
        labels_paid_for = self.moving_counts(sensitivity)
        scale = self.counting.spread(sensitivity)
        if cap_binds(sensitivity, labels_paid_for):
            # The noise of labels that others have too, and once the labels that one user alone has.
            self.threshold_offset(sensitivity)  # refuses what has no threshold
            return Charge(self.counting.costs(sensitivity, labels_paid_for), delta=self.delta)
        cost = SparseGaussianDP(
            scale, sensitivity.linf, self.threshold_offset(sensitivity), labels_paid_for
        )
        # This refuses a sigma that is too small for so many labels; its answer is not used.
        sparse_gaussian_statements(cost.scale, cost.shift, cost.threshold, cost.labels)
        return Charge({cost: 1})

    def threshold_offset(self, sensitivity: Sensitivity) -> int:
        """Return the threshold T that a noisy count must exceed: the smallest from linf on that
        a user's own labels pass with probability at most delta together.

        Raises:
            InvalidParameter: when l0 is None, or T would be beyond the range of counts.
        """
        labels_paid_for = self.moving_counts(sensitivity)
        scale = self.counting.spread(sensitivity)
        if cap_binds(sensitivity, labels_paid_for):
            return _capped_threshold(scale, sensitivity, labels_paid_for, self.delta)
        return sensitivity.linf + _threshold_above_linf(scale, labels_paid_for, self.delta)

    @cached_property
    def counting(self) -> KnownGaussian:
        """Return the mechanism for known domains that has this noise."""
        return KnownGaussian(sigma=self.sigma)


@lru_cache(maxsize=1024)
def _capped_threshold(scale: float, sensitivity: Sensitivity, labels: int, delta: float) -> int:
    """Return the smallest threshold T that a user's own labels pass with probability at most
    delta, however the user's capped total is split over at most ``labels`` labels.

    Args:
        scale: the standard deviation of the noise on a count.
        sensitivity: one with a cap on a user's total.
        labels: the most labels of one user.
        delta: the probability for all of them together.
    """

    def chance_to_pass(count: int, threshold: int) -> float:
        """Return P[count + noise > threshold], rounded up."""
        return gaussian_tail(scale, threshold - count)

    return fixed_threshold(chance_to_pass, sensitivity, labels, delta)


@lru_cache(maxsize=1024)
def _threshold_above_linf(scale: float, labels: int, delta: float) -> int:
    """Return the smallest c >= 0 with P[one of ``labels`` noises > c] <= delta: the part of the
    threshold above linf.

    Args:
        scale: the standard deviation of the noise on a count.
        labels: the most labels of one user.
        delta: the probability for all of them together.
    """
    return first_offset(lambda c: union(gaussian_tail(scale, c), labels) <= delta, "delta")
