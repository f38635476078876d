"""Counts with discrete Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.costs import Cost, DiscreteGaussianDP, GaussianDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.counting_mechanism import IndependentNoise
from dptopk.mechanisms.mechanism import LARGEST_SCALE, finite_l0
from dptopk.mechanisms.samplers.noise import ExactNoise, gaussian_law
from dptopk.mechanisms.samplers.simulation import Noise, SimulationInput
from dptopk.mechanisms.thresholds import (
    CutMechanism,
    IndependentCounts,
    NoisyFloorMechanism,
    checked_offset,
)
from dptopk.mechanisms.user_total import cap_binds, move_norm
from dptopk.release.noise_laws import GaussianNoise


@dataclass(frozen=True, kw_only=True)
class KnownGaussian(IndependentNoise):
    """Every count + discrete Gaussian noise, P[n] ∝ exp(-n² / (2 (linf·sigma)²)).

    Charge: min(l0, labels) × DiscreteGaussianDP(scale=linf·sigma, shift=linf), the law of the very
    noise that is added; or, for a cap l1 on a user's total, one GaussianDP, whose square is
    (l1 // linf) linf² + (l1 mod linf)² times that of a move by one. Neighbours: add or remove one
    user.

    Args:
        sigma: scale of the noise in units of linf.

    Source: Cesar-Rogers 2022, §6, with the noise of Canonne-Kamath-Steinke 2020.

    >>> print(KnownGaussian(sigma=10.0).charge(Sensitivity(linf=2, l0=3)))
    3*DGauss(20.0, 2)
    """

    sigma: float
    noise_grows_with = ("sigma",)

    def cost(self, sensitivity: Sensitivity, shift: int | None = None) -> Cost:
        """Return the cost of discrete Gaussian noise on a count that one user moves by at most
        ``shift``; None means linf.
        """
        shift = sensitivity.linf if shift is None else shift
        return DiscreteGaussianDP(self.spread(sensitivity), shift)

    def costs(self, sensitivity: Sensitivity, touched: int) -> Mapping[Cost, int]:
        """Return one cost for each touched count; or, where a user's total is capped, one Gaussian
        cost of the whole move if that is less.

        A move of this noise by one is dominated by a Gaussian cost of some μ'
        (docs/notes/filters.md), and a move by v by one of v μ'; so all counts together cost at most
        μ' times the Euclidean norm of the move.
        """
        separate_costs: dict[Cost, int] = {self.cost(sensitivity): touched}
        if not cap_binds(sensitivity, touched):
            return separate_costs
        scale = self.spread(sensitivity)
        mu = math.nextafter(dominating_mu(scale) * move_norm(sensitivity, touched), math.inf)
        # Both are valid. The separate costs are about those of Gaussian noise, whose μ² add up to
        # this.
        separate_square = touched * (sensitivity.linf / scale) ** 2
        if mu**2 < separate_square:
            return {GaussianDP(mu): 1}
        return separate_costs

    def spread(self, sensitivity: Sensitivity) -> float:
        """Return the scale linf·sigma in counts, the one number that both the sampler and the
        charge use.

        Raises:
            InvalidParameter: when it is so large that noise could leave the 64-bit integers.
        """
        scale = sensitivity.linf * self.sigma
        if scale > LARGEST_SCALE:
            raise InvalidParameter(
                f"sigma={self.sigma} is too large: noise of scale linf*sigma exceeds 2^48"
            )
        return scale

    def sampler(self, sensitivity: Sensitivity, bound: int | None = None) -> ExactNoise:
        """Return the exact sampler of the discrete Gaussian, conditioned on [-bound, bound] if a
        bound is given.

        Raises:
            InvalidParameter: when noise could leave the 64-bit integers.
        """
        return gaussian_law(self.spread(sensitivity), bound)

    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Simulate the noise by rounded normal variables."""
        normal = inputs.noise("normal", self.spread(inputs.sensitivity))
        return lambda number: np.rint(normal(number))

    def law(self, sensitivity: Sensitivity) -> GaussianNoise:
        """Return the law of discrete Gaussian noise of the scale linf·sigma."""
        return GaussianNoise(self.spread(sensitivity))


@dataclass(frozen=True, kw_only=True)
class UnknownGaussian(IndependentCounts, NoisyFloorMechanism):
    """The d_bar largest counts + discrete Gaussian noise, released if above h_(d_bar+1) + linf + c
    + the same noise.

    Charge, with n = min(l0, d_bar + 1) (l0=None: d_bar + 1): n × DiscreteGaussianDP(linf·sigma,
    linf) + δ. Neighbours: add or remove one user.

    Args:
        d_bar: how many labels take part; a fixed number, not one that depends on the data.
        sigma: scale of the noise in units of linf.
        delta: bounds the probability that a label is released that only one of two neighbours can
            release.

    Source: the slot lemma (docs/notes/mechanisms.md): c is the smallest integer with
    P[max of m noises - N0 > c] <= delta, m = min(l0, d_bar), from the discrete law. The δ charged
    is the one asked for.

    >>> print(UnknownGaussian(d_bar=100, sigma=5.0, delta=1e-6).charge(Sensitivity(l0=3)))
    3*DGauss(5.0, 1) + delta(1e-06)
    """

    d_bar: int
    sigma: float
    delta: float
    noise_grows_with = ("sigma",)

    @cached_property
    def counting(self) -> KnownGaussian:
        """Return the mechanism for known domains that has this noise."""
        return KnownGaussian(sigma=self.sigma)


@dataclass(frozen=True, kw_only=True)
class TruncatedGaussian(CutMechanism):
    """Present counts + discrete Gaussian noise cut to [-T, T], released above a threshold new
    labels rarely pass.

    Whole-histogram form (d_bar=None): every present count is noised and released if above T; charge
    n × DiscreteGaussianDP(linf·sigma, linf) + δ with n = l0, finite. Form cut at d_bar: the d_bar
    largest counts *and the floor* h_(d_bar+1) are noised, the offset is linf + 2T; the same charge,
    n = min(l0, d_bar + 1). Neighbours: add or remove one user. Whether the histogram is whole is a
    fact about how it was made, not one to be read off the data.

    Args:
        sigma: scale of the noise before it is cut, in units of linf.
        delta: bounds the mass outside the common support of neighbouring outcomes; in (0, 1).
        d_bar: how many labels take part, or None for the whole-histogram form.

    Source: Cesar-Rogers 2022, §6.2, whose Algorithm 2 is not private as printed (a data-dependent
    threshold without noise): docs/notes/truncated-gaussian-violation.md. T is the smallest integer
    >= linf with 1 - (1-q)^n <= delta, q the mass of the linf outermost points of the discrete law.
    The δ charged is the one asked for.

    >>> print(TruncatedGaussian(sigma=5.0, delta=1e-6).charge(Sensitivity(l0=2)))
    2*DGauss(5.0, 1) + delta(1e-06)
    """

    sigma: float
    delta: float
    d_bar: int | None = None
    noise_grows_with = ("sigma",)

    def moving_counts(self, sensitivity: Sensitivity) -> int:
        """Return the number of counts with shift linf that covers everything one user can move.

        Raises:
            InvalidParameter: for the whole histogram when l0 is None, because there is no bound.
        """
        if self.d_bar is None:
            return finite_l0(sensitivity, "for the whole-histogram form; give d_bar otherwise")
        return super().moving_counts(sensitivity)

    def bound(self, sensitivity: Sensitivity) -> int:
        """Return T, such that the noise is cut to [-T, T].

        Raises:
            InvalidParameter: for a δ that is too small for this noise.
        """
        bound = super().bound(sensitivity)
        # Refuses a bound whose threshold over a noisy floor could not be compared with counts.
        checked_offset(sensitivity.linf + 2 * bound, "delta")
        return bound

    def threshold_offset(self, sensitivity: Sensitivity) -> int:
        """Return the lead over 0 (whole histogram) or the noisy floor (d_bar) that a noisy count
        must exceed: T or linf + 2T.

        For the whole histogram: a label that only one of two neighbours has counts at most linf
        there. It passes T only if its noise is one of the linf outermost values; that has the
        probability q, which δ pays for.
        """
        bound = self.bound(sensitivity)
        if self.d_bar is None:
            return bound
        return sensitivity.linf + 2 * bound

    @cached_property
    def counting(self) -> KnownGaussian:
        """Return the mechanism for known domains that has this noise before it is cut."""
        return KnownGaussian(sigma=self.sigma)

    @property
    def floor_rank(self) -> int | None:
        """Return d_bar + 1, the rank of the floor; None for the whole-histogram form."""
        if self.d_bar is None:
            return None
        return self.d_bar + 1
