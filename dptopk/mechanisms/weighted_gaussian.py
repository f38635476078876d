"""Labels of an unknown domain by noisy sums of weights, in which a user with many labels adds
little to each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.tails import gaussian_tail, gaussian_tails, smallest_offset, unions
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.costs import Charge, GaussianDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity, descending_order
from dptopk.mechanisms.gaussian import KnownGaussian
from dptopk.mechanisms.mechanism import LARGEST_SCALE, LabelsOnly
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.mechanisms.samplers.simulation import Draw, SimulationInput, largest_above
from dptopk.mechanisms.thresholds import FromData, is_above_threshold
from dptopk.release.release import Release

# The threshold is computed over all weights up to this one, one by one.
LARGEST_WEIGHT = 10**4


@dataclass(frozen=True, kw_only=True)
class WeightedGaussian(FromData, LabelsOnly):
    """The labels whose sums of weights, with discrete Gaussian noise, exceed a threshold, in the
    order of these sums.

    Charge: one GaussianDP and ``delta``. Needs the whole histogram, with finite l0 and l2 of its
    sensitivity: a user of d labels, at most l0, adds at most isqrt(l2² // d) to each. Neighbours:
    add or remove one user.

    Args:
        sigma: scale of the noise in units of l2.
        delta: bounds the probability that a label is shown which one user alone has; in (0, 1).

    Source: weighted Gaussian (Gopi et al. 2020; Dick-Joseph-Raman 2026), here on integers. A user
    moves the sums by a vector a with Σ a² <= l2²; noise of scale s moved by one is dominated by a
    Gaussian of some μ' (docs/notes/filters.md), moved by a_i by one of a_i μ', so that all labels
    together cost at most l2 μ'. The threshold T is the smallest with P[one of d noises > T -
    isqrt(l2² // d)] <= delta for every d <= l0: neither d = 1 nor d = l0 is always the worst.

    >>> mechanism = WeightedGaussian(sigma=10.0, delta=1e-6)
    >>> weighted = Sensitivity(linf=100, l0=100, l2=100)
    >>> print(mechanism.charge(weighted), mechanism.threshold_offset(weighted))
    GDP(0.10000000833334184) + delta(1e-06) 5622
    """

    sigma: float
    delta: float
    noise_grows_with = ("sigma",)

    def scale(self, sensitivity: Sensitivity) -> float:
        """Return the scale l2·sigma of the noise, the one number that sampler, threshold and
        charge use.

        Raises:
            InvalidParameter: where l0 or l2 is None, for other neighbours than add_remove, or a
                scale that is too large.
        """
        l2 = validate.instance(Sensitivity, sensitivity=sensitivity).l2
        if l2 is None or sensitivity.l0 is None:
            raise InvalidParameter("l2 and l0 must be finite to find labels by weights")
        if sensitivity.neighbours != "add_remove":
            raise InvalidParameter(f"neighbours={sensitivity.neighbours!r} is not supported")
        if l2 > LARGEST_WEIGHT or l2 * self.sigma > LARGEST_SCALE:
            raise InvalidParameter(
                f"l2 must be at most {LARGEST_WEIGHT}, and the scale l2*sigma at most 2^48"
            )
        return l2 * self.sigma

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return one GaussianDP + δ; ``labels`` makes no difference because no counts are
        released.
        """
        self.threshold_offset(sensitivity)  # refuses what has no threshold
        scale = self.scale(sensitivity)
        assert sensitivity.l2 is not None  # noqa: S101 - ``scale`` refuses it
        mu = dominating_mu(scale, sensitivity.l2)
        return Charge({GaussianDP(mu): 1}, delta=self.delta)

    def threshold_offset(self, sensitivity: Sensitivity) -> int:
        """Return the threshold T that a noisy sum must exceed."""
        scale = self.scale(sensitivity)
        l2 = sensitivity.l2
        l0 = sensitivity.l0
        assert l2 is not None  # noqa: S101 - ``scale`` refuses it
        assert l0 is not None  # noqa: S101 - ``scale`` refuses it
        return _smallest_threshold(scale, l2, l0, self.delta)

    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the noise on a sum."""
        return self.scale(sensitivity)

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = CONFIDENCE) -> int:
        """Return the smallest sum at which a label is shown with at least this probability, in (0,
        1).

        Raises:
            InvalidParameter: for a probability outside (0, 1), and as ``threshold_offset``.
        """
        probability = validate.probability(allow_zero=False, probability=probability)
        scale = self.scale(sensitivity)
        c = smallest_offset(lambda c: gaussian_tail(scale, c), 1 - probability, "probability")
        # A sum of T + 1 + c is hidden if its noise is below -c.
        return self.threshold_offset(sensitivity) + 1 + c

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of the k labels with the largest noisy sums above the
        threshold.
        """
        noise = inputs.noise("normal", self.scale(inputs.sensitivity))
        return largest_above(inputs, noise, None, self.threshold_offset(inputs.sensitivity))

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Release the labels above the threshold, in the order of their noisy sums, ties in label
        order; there may be none.

        Args:
            histogram: of sums of weights; rows of 0 are not present and are ignored.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.

        Raises:
            InvalidParameter: when rows were cut off, or as ``charge``, before anything is drawn.
        """
        present = self.slots(histogram)
        sensitivity = histogram.sensitivity
        charge = self.charge(sensitivity)
        offset = self.threshold_offset(sensitivity)
        # At linf = 1 the scale is sigma.
        gaussian = KnownGaussian(sigma=self.scale(sensitivity))
        noise = gaussian.draw_noise(Sensitivity(), len(present.counts), random_bits(rng))
        shown = is_above_threshold(present.counts, noise, 0, 0, offset)
        values = (present.counts + noise)[shown]
        labels = present.labels[shown]
        order = descending_order(values, labels)
        return Release.of_draw(
            histogram, rng, labels=tuple(labels[order].tolist()), charge=charge, mechanism=self
        )


@lru_cache(maxsize=256)
def _smallest_threshold(scale: float, l2: int, l0: int, delta: float) -> int:
    """Return the smallest T that one of a user's own labels passes with probability at most delta,
    whatever their number up to l0.

    Args:
        scale: the standard deviation of the noise on a sum.
        l2: the weight of a user's only label; the squares of all weights of a user sum to l2².
        l0: the most labels of one user.
        delta: the probability for all of them together.
    """
    # Of all numbers of labels with the same weight the largest is the worst.
    least_weight = max(math.isqrt(l2 * l2 // l0), 1)
    weights = np.arange(l2, least_weight - 1, -1)
    labels = np.minimum(l0, l2 * l2 // weights**2)

    def chance_to_pass(T: int) -> float:
        """Return an upper bound on the probability that one of a user's own labels passes T, for
        the worst number of labels.
        """
        # P[noise > T - weight] for the weights l2, l2 - 1, ...
        chances = gaussian_tails(scale, T - l2, len(weights))
        return float(unions(chances, labels).max())

    return smallest_offset(chance_to_pass, delta, "delta", l2)
