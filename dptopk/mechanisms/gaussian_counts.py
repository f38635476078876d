"""Counts of any number of labels for one Gaussian cost that is fixed before that number is
known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dptopk._internal import validate
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.costs import Charge, GaussianDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.centred import Centred
from dptopk.mechanisms.counting_mechanism import CountingMechanism, Rows
from dptopk.mechanisms.gaussian import KnownGaussian
from dptopk.mechanisms.mechanism import LARGEST_SCALE, require_add_remove
from dptopk.mechanisms.samplers.random import Array, Bits, Rng
from dptopk.mechanisms.samplers.simulation import Noise, SimulationInput
from dptopk.release.intervals import Measurement

ROOT_OF_MOST_LABELS = 2.0**24  # noise is drawn for up to 2^48 labels
LARGEST_MU = 1e100  # far below it the noise is 0 already
SUM_ROUNDING = 1e-14  # relative, above the rounding of three operations, 2**-53 each
LEAST_STEP = 1e-12  # by this share at least σ grows from try to try; above its rounding


@dataclass(frozen=True, kw_only=True)
class GaussianCounts(CountingMechanism):
    """Centred discrete Gaussian noise whose scale depends on the number of labels, so that any
    number of counts costs the same mu.

    Charge: GaussianDP(mu), for any number of labels and any l0. So it may be composed with the
    mechanism that finds the labels, although their number is known only afterwards. Neighbours: add
    or remove one user.

    Args:
        mu: μ of the Gaussian cost of all counts together.

    Source: centred noise as in ``Centred``. Discrete noise of scale s is not (1/s)-Gaussian: the d
    noises of d labels and their common one have dominating μ' (docs/notes/filters.md), whose
    squares sum to at most mu² for every d; that pair dominates at all x and in both directions, and
    so stands in the product with what came before (docs/notes/two-phases.md).

    >>> mechanism = GaussianCounts(mu=0.2)
    >>> print(mechanism.charge(Sensitivity()))
    GDP(0.2)
    >>> [round(mechanism.noise_std(Sensitivity(), labels=d), 2) for d in (1, 10, 100)]
    [5.0, 10.41, 27.5]
    """

    mu: float
    noise_falls_with = ("mu",)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return one GaussianDP, the same for every number of ``labels``.

        Raises:
            InvalidParameter: when the noise of one label, or of 2^48 labels, cannot be drawn for
                this mu.
        """
        # The scale on d labels is about linf √d / mu, which the limit bounds for d = 2^48.
        least_mu = require_add_remove(sensitivity).linf * ROOT_OF_MOST_LABELS / LARGEST_SCALE
        if not least_mu <= self.mu <= LARGEST_MU:
            raise InvalidParameter(
                f"mu={self.mu} must be at most 1e100, the noise of 2^48 labels at most 2^48 wide"
            )
        # Refuses a mu for which the noise of one label cannot be drawn; its charge is not used.
        self.noise(sensitivity, 1).charge(sensitivity, labels=1)
        return Charge({GaussianDP(self.mu): 1})

    def noise(self, sensitivity: Sensitivity, labels: int) -> Centred:
        """Return the mechanism that adds the noise to ``labels`` >= 1 counts; it costs at most
        GaussianDP(mu).

        Raises:
            InvalidParameter: for other neighbours than add_remove, or no label.
        """
        return _centred_noise_of_cost(
            self.mu, require_add_remove(sensitivity).linf, validate.count(labels=labels)
        )

    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """Return the law of the noise on ``labels`` counts, as intervals need it; for no label,
        that for one.

        Args:
            sensitivity: the histogram's.
            labels: how many labels are counted together.
            whole: whether these are all labels of the domain.
        """
        return self.noise(sensitivity, max(labels, 1)).measurement(sensitivity, labels, whole=whole)

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Array:
        """Draw the noise of ``size`` counts in steps of 1/2, int64, shape (size,).

        Args:
            sensitivity: the histogram's.
            size: how many counts get noise.
            bits: the source of words.
        """
        return self.noise(sensitivity, max(size, 1)).draw_noise(sensitivity, size, bits)

    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Simulate the noise on ``labels`` counts, as ``Centred.float_noise`` does."""
        return self.noise(inputs.sensitivity, max(labels, 1)).float_noise(inputs, labels)

    def measure(self, sensitivity: Sensitivity, rows: Rows, rng: Rng) -> Array:
        """Return the rows' noisy counts, multiples of 1/2 in the order of the rows, float64, shape
        (n,).

        Args:
            sensitivity: the histogram's.
            rows: the labels and their true counts, n of them.
            rng: None for cryptographically secure noise.
        """
        return self.noise(sensitivity, max(len(rows), 1)).measure(sensitivity, rows, rng)


@lru_cache(maxsize=256)
def _centred_noise_of_cost(mu: float, linf: int, labels: int) -> Centred:
    """Return centred noise whose scales have the best ratio, σ_Z/σ_Y = labels^(1/4), and are
    enlarged until the sum of squares of the dominating μ' of all noises is at most mu².

    Args:
        mu: μ of all noises together.
        linf: how far one user moves a count; the scales are in units of it.
        labels: how many counts get a noise Z, beside the common one Y.
    """
    sensitivity = Sensitivity(linf=linf)
    # Continuous noise would cost (labels + sqrt(labels))/σ² in all, which begins the search.
    sigma = math.sqrt(labels + math.sqrt(labels)) / mu
    total = math.inf
    while total > mu * mu:
        noise = KnownGaussian(sigma=sigma)
        common = KnownGaussian(sigma=sigma / labels**0.25)
        square_of_noise = dominating_mu(noise.spread(sensitivity), linf) ** 2
        square_of_common = dominating_mu(common.spread(sensitivity), linf) ** 2
        total = (labels * square_of_noise + square_of_common) * (1 + SUM_ROUNDING)
        sigma *= max(math.sqrt(total) / mu, 1.0) * (1 + LEAST_STEP)
    return Centred(noise=noise, common=common)
