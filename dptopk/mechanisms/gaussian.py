"""Counts with discrete Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dptopk._internal.tails import (
    density,
    gaussian_difference_tail,
    gaussian_edge_mass,
    gaussian_tail,
    smallest_offset,
    union,
)
from dptopk.costs import Charge, DiscreteGaussianDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.base import LARGEST_SCALE, CountingMechanism, add_remove, finite_l0
from dptopk.mechanisms.laplace import copies
from dptopk.mechanisms.samplers.maxima import gaussian_offset
from dptopk.mechanisms.samplers.noise import discrete_gaussian, truncated_discrete_gaussian
from dptopk.mechanisms.samplers.simulation import Noise, Scene
from dptopk.mechanisms.thresholds import CutMechanism, NoisyFloorMechanism, checked_offset, moving_slots
from dptopk.release.intervals import CountNoise


@dataclass(frozen=True, kw_only=True)
class KnownGaussian(CountingMechanism):
    """Every count + discrete Gaussian noise, P[n] ∝ exp(-n² / (2 (linf·sigma)²)).

    Charge: min(l0, labels) × DiscreteGaussianDP(scale=linf·sigma, shift=linf), the law of the very noise that is
    added. Neighbours: add or remove one user.

    Args:
        sigma: scale of the noise in units of linf.

    Source: Cesar-Rogers 2022, §6, with the noise of Canonne-Kamath-Steinke 2020.

    >>> print(KnownGaussian(sigma=10.0).charge(Sensitivity(linf=2, l0=3)))
    3*DGauss(20.0, 2)
    """

    sigma: float

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """min(l0, labels) discrete Gaussian pairs, exact.

        Raises:
            InvalidParameter: when l0 is None and ``labels``, the number of labels counted, is not given.
        """
        touched = copies(add_remove(sensitivity), labels)
        return Charge({DiscreteGaussianDP(self.scale(sensitivity), sensitivity.linf): touched})

    def scale(self, sensitivity: Sensitivity) -> float:
        """The noise's scale τσ, in counts."""
        return gaussian_scale(self.sigma, sensitivity)

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Any) -> np.ndarray[Any, Any]:
        """Draw discrete Gaussian noise, int64, shape (size,)."""
        return discrete_gaussian(self.scale(sensitivity), size, bits)

    def float_noise(self, scene: Scene, labels: int) -> Noise:
        """Rounded normals."""
        normal = scene.noise("normal", self.scale(scene.sensitivity))
        return lambda number: np.rint(normal(number))

    def law(self, sensitivity: Sensitivity, labels: int) -> CountNoise:
        """The law of the noise on one count."""
        return CountNoise("gaussian", self.scale(sensitivity))

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float:
        """Probability that the difference of two noises is at least the gap."""
        return gaussian_difference_tail(self.sigma * sensitivity.linf, max(math.ceil(gap) - 1, 0))

    def noise_std(self, sensitivity: Sensitivity) -> float:
        """Standard deviation of the noise on one count: linf·sigma, or less where that is below 2."""
        scale = self.scale(add_remove(sensitivity))
        if scale >= 2:
            return scale
        n = np.arange(-60.0, 61.0)
        weights = density(n, scale)
        return float(np.sqrt((weights * n**2).sum() / weights.sum()))


@dataclass(frozen=True, kw_only=True)
class UnknownGaussian(NoisyFloorMechanism):
    """The d_bar largest counts + discrete Gaussian noise, released if above h_(d_bar+1) + linf + c + the same noise.

    Charge, with n = min(l0, d_bar + 1) (l0=None: d_bar + 1): n × DiscreteGaussianDP(linf·sigma, linf) + δ. Neighbours:
    add or remove one user.

    Args:
        d_bar: how many labels take part; a fixed number, not one that depends on the data.
        sigma: scale of the noise in units of linf.
        delta: bounds the probability that a label is released that only one of two neighbours can release.

    Source: the slot lemma (docs/notes/mechanisms.md): c is the smallest integer with
    P[max of m noises - N0 > c] <= delta, m = min(l0, d_bar), from the discrete law. The δ charged is the one asked for.

    >>> print(UnknownGaussian(d_bar=100, sigma=5.0, delta=1e-6).charge(Sensitivity(l0=3)))
    3*DGauss(5.0, 1) + delta(1e-06)
    """

    d_bar: int
    sigma: float
    delta: float

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """One discrete Gaussian pair for each of the n quantities that can move, + δ, for any ``labels``."""
        self.threshold_offset(sensitivity)
        return _pairs(moving_slots(sensitivity, self.d_bar), self.sigma, sensitivity, self.delta)

    @property
    def counting(self) -> KnownGaussian:
        """The mechanism for known domains that has this noise."""
        return KnownGaussian(sigma=self.sigma)

    def noise_offset(self, sensitivity: Sensitivity, special: int) -> int:
        """The smallest integer c with P[max of ``special`` noises - another > c] <= delta."""
        return gaussian_offset(gaussian_scale(self.sigma, sensitivity), special, self.delta)

    def threshold_tail(self, sensitivity: Sensitivity, c: int) -> float:
        """Upper bound on P[N1 - N2 > c]."""
        return gaussian_difference_tail(gaussian_scale(self.sigma, sensitivity), c)


@dataclass(frozen=True, kw_only=True)
class TruncatedGaussian(CutMechanism):
    """Present counts + discrete Gaussian noise cut to [-T, T], released above a threshold new labels rarely pass.

    Whole-histogram form (d_bar=None): every present count is noised and released if above T; charge n ×
    DiscreteGaussianDP(linf·sigma, linf) + δ with n = l0, finite. Form cut at d_bar: the d_bar largest counts *and the
    floor* h_(d_bar+1) are noised, the offset is linf + 2T; the same charge, n = min(l0, d_bar + 1). Neighbours: add or
    remove one user. Whether the histogram is whole is a fact about how it was made, not one to be read off the data.

    Args:
        sigma: scale of the noise before it is cut, in units of linf.
        delta: bounds the mass outside the common support of neighbouring outcomes; in (0, 1).
        d_bar: how many labels take part, or None for the whole-histogram form.

    Source: Cesar-Rogers 2022, §6.2, whose Algorithm 2 is not private as printed (a data-dependent threshold without
    noise): docs/notes/truncated-gaussian-violation.md. T is the smallest integer >= linf with 1 - (1-q)^n <= delta, q
    the mass of the linf outermost points of the discrete law. The δ charged is the one asked for.

    >>> print(TruncatedGaussian(sigma=5.0, delta=1e-6).charge(Sensitivity(l0=2)))
    2*DGauss(5.0, 1) + delta(1e-06)
    """

    sigma: float
    delta: float
    d_bar: int | None = None

    def moving(self, sensitivity: Sensitivity) -> int:
        """Return the number of counts with shift linf that covers everything one user can move.

        Raises:
            InvalidParameter: for the whole histogram when l0 is None, because there is no bound.
        """
        if self.d_bar is not None:
            return moving_slots(add_remove(sensitivity), self.d_bar)
        return finite_l0(sensitivity, "for the whole-histogram form; give d_bar otherwise")

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """One untruncated discrete Gaussian pair per quantity that can move, + δ, for any ``labels``."""
        self.bound(sensitivity)
        return _pairs(self.moving(sensitivity), self.sigma, sensitivity, self.delta)

    def bound(self, sensitivity: Sensitivity) -> int:
        """T: the noise stays in [-T, T]."""
        n, scale = self.moving(sensitivity), gaussian_scale(self.sigma, sensitivity)
        bound = _cut(scale, sensitivity.linf, n, self.delta)
        checked_offset(sensitivity.linf + 2 * bound, "delta")
        return bound

    def threshold_offset(self, sensitivity: Sensitivity) -> int:
        """Return the lead that a noisy count needs over 0 (whole histogram) or the noisy floor (d_bar): T or linf + 2T.

        Whole: a touched label that only one of two neighbours has counts at most linf there, and passes T when its
        noise is one of the linf outermost values: with the probability q that the δ of a touched label pays for.
        """
        bound = self.bound(sensitivity)
        return bound if self.d_bar is None else sensitivity.linf + 2 * bound

    @property
    def counting(self) -> KnownGaussian:
        """The mechanism for known domains that has this noise before it is cut."""
        return KnownGaussian(sigma=self.sigma)

    @property
    def floor_rank(self) -> int | None:
        """The rank after d_bar, in the form that is cut there."""
        return None if self.d_bar is None else self.d_bar + 1

    def threshold_tail(self, sensitivity: Sensitivity, c: int) -> float:
        """Upper bound on P[N1 - N2 > c], or on P[N > c] over a fixed floor: at most the uncut law's, given no cut."""
        bound, scale = self.bound(sensitivity), gaussian_scale(self.sigma, sensitivity)
        noisy = self.d_bar is not None
        if c >= bound * (2 if noisy else 1):
            return 0.0
        uncut = gaussian_difference_tail(scale, c) if noisy else gaussian_tail(scale, c)
        inside = 1 - 2 * gaussian_tail(scale, bound)
        return min(uncut / (inside * inside if noisy else inside), 0.5)

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Any) -> np.ndarray[Any, Any]:
        """Draw truncated discrete Gaussian noise, int64, shape (size,)."""
        scale = gaussian_scale(self.sigma, sensitivity)
        return truncated_discrete_gaussian(scale, self.bound(sensitivity), size, bits)


@lru_cache(maxsize=256)
def _cut(scale: float, linf: int, n: int, delta: float) -> int:
    """The smallest T >= linf with 1 - (1-q)^n <= delta, q the mass of the linf outermost points of noise in [-T, T]."""
    return smallest_offset(lambda T: union(gaussian_edge_mass(scale, linf, T), n), delta, "delta", linf)


def _pairs(n: int, sigma: float, sensitivity: Sensitivity, delta: float) -> Charge:
    """A discrete Gaussian pair at shift linf for each of n groups of quantities that move by at most linf together."""
    return Charge({DiscreteGaussianDP(gaussian_scale(sigma, sensitivity), sensitivity.linf): n}, delta=delta)


def gaussian_scale(sigma: float, sensitivity: Sensitivity) -> float:
    """linf·sigma, the one number that both the sampler and the charge use.

    Raises:
        InvalidParameter: when it is so large that noise could leave the 64-bit integers.
    """
    scale = sensitivity.linf * sigma
    if scale > LARGEST_SCALE:
        raise InvalidParameter(f"sigma={sigma} is too large: noise of scale linf*sigma exceeds 2^48")
    return scale
