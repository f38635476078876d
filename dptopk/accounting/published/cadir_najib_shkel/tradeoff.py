"""Trade-off functions f: the least type II error of a test between P and Q at type I error t, and
(ε, δ) from them.

f is convex, falls from f(0) <= 1 to f(1) = 0 and lies below 1 - t; a mechanism is f-DP when telling
neighbours apart is at least as hard as f says. The line of slope -e^ε below f meets t = 0 at 1 -
δ(ε), so that the two views hold the same:

    δ(ε) = 1 - min_t (f(t) + e^ε t)        f(t) = max_ε (1 - δ(ε) - e^ε t).

A piecewise linear f is a finite pair: a segment is an outcome, its width the probability under P
and its drop that under Q (a jump at t = 0 has no width, a flat end no drop). It is kept as this
pair, whose small masses have full relative accuracy; the vertices of the graph are partial sums.

A mixture of tests (test i is drawn with a known probability α_i, and the observer sees which one it
is) has the infimal convolution of the scaled trade-off functions (CNS Lemma 1), so convex
conjugates add, f_m* = Σ α_i f_i*, and with them δ(ε) = 1 + f*(-e^ε). The conjugate of a piecewise
linear f has its kinks at the slopes of f, and jumps there by the widths of the segments. So adding
conjugates means to merge the lists of (slope, width), and to conjugate back means to lay the
segments, each scaled by α_i, end to end by rising slope: O(n log n) for n pieces in all. For
regions this is the Minkowski sum Σ α_i F_i (Corollary 1).

Source: Dong-Roth-Su 2022, Propositions 2.5 and 2.12; Cadir-Najib-Shkel 2026, Section II, Lemma 1,
Corollary 1, Lemma 2, Propositions 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import Floats
from dptopk.accounting.pld.constraints import RandomizedResponseMixture, mixture
from dptopk.costs import MultiDP
from dptopk.errors import InvalidParameter


class TradeoffFunction:
    """A trade-off function on [0, 1]."""

    def __call__(self, type_1: ArrayLike) -> Floats:
        """Return f, the least type II error, at every type I error of an array in [0, 1] of any
        shape.
        """
        raise NotImplementedError

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Return δ(ε) = 1 + f*(-e^ε) of an f-DP mechanism, for every ε >= 0 of an array of any
        shape.
        """
        raise NotImplementedError

    def touch(self, epsilon: ArrayLike) -> Floats:
        """Return a type I error at which a line of slope -e^ε touches f from below, for every ε >=
        0 of an array of any shape.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class PiecewiseLinear(TradeoffFunction):
    """A piecewise linear trade-off function, as the pair of distributions that it is.

    Build it with ``from_masses`` or ``from_constraints``.

    Attributes:
        p: shape (n,), probabilities under P = widths of the segments, from left to right.
        q: shape (n,), probabilities under Q = drops of the segments; q/p falls strictly.

    >>> f = PiecewiseLinear.from_constraints([(1.0, 0.0)])
    >>> f([0.0, 0.1, 1.0]).round(4).tolist()  # 1 - e·t on the left
    [1.0, 0.7282, 0.0]
    """

    p: Floats
    q: Floats

    @classmethod
    def from_masses(cls, p: ArrayLike, q: ArrayLike) -> PiecewiseLinear:
        """Return the trade-off function of two distributions on finitely many outcomes, in any
        order.

        Args:
            p: the probabilities of the outcomes under P.
            q: the probabilities of the outcomes under Q.

        Raises:
            InvalidParameter: unless p and q are non-negative vectors of one length that each add up
                to 1 (to 1e-9).
        """
        widths = validate.nonnegatives(p=p)
        drops = validate.nonnegatives(q=q)
        if widths.ndim != 1 or widths.shape != drops.shape or not len(widths):
            raise InvalidParameter("p and q must be one-dimensional arrays of the same length")
        for name, masses in (("p", widths), ("q", drops)):
            if abs(math.fsum(masses) - 1) > 1e-9:
                raise InvalidParameter(f"{name} must hold probabilities that add up to 1")
        possible = (widths > 0) | (drops > 0)
        widths = widths[possible]
        drops = drops[possible]
        losses = _log_ratio(widths, drops)
        # Outcomes of one loss are one segment; segments come by rising loss.
        distinct, place = np.unique(losses, return_inverse=True)
        widths = np.bincount(place, widths, len(distinct)).astype(float)
        drops = np.bincount(place, drops, len(distinct)).astype(float)
        return cls(widths, drops)

    @classmethod
    def from_mixture(cls, worst: RandomizedResponseMixture) -> PiecewiseLinear:
        """Return the trade-off function of a mixture of randomised responses."""
        losses, p = worst.atoms()
        finite = np.isfinite(losses)
        q_finite = p[finite][::-1]  # symmetric: a loss l under P is as likely as -l under Q
        return cls.from_masses(
            np.append(p, 0.0), np.concatenate([q_finite, np.zeros((~finite).sum()), [worst.atom]])
        )

    @classmethod
    def from_constraints(
        cls, constraints: Iterable[tuple[float, float]] | MultiDP
    ) -> PiecewiseLinear:
        """Return max_i f_{ε_i, δ_i}, the largest f such that every mechanism with all of these (ε,
        δ) constraints is f-DP.

        Raises:
            InvalidParameter: for no constraints, or one outside its ranges.
        """
        return cls.from_mixture(mixture(constraints))

    @property
    def losses(self) -> Floats:
        """Return ln(p/q) of every segment, rising: its slope is -e^-loss. It is -inf at a jump at t
        = 0 and inf at a flat end.
        """
        return _log_ratio(self.p, self.q)

    def vertices(self) -> tuple[Floats, Floats]:
        """Return the vertices of the graph: type I errors, rising from 0 to 1, and f at them."""
        sloped = self.p > 0
        type_1 = np.minimum(np.append(0.0, np.cumsum(self.p[sloped])), 1.0)
        type_1[-1] = 1.0  # the sum of all p but for rounding
        type_2 = np.append(np.cumsum(self.q[sloped][::-1])[::-1], 0.0)
        return type_1, np.minimum(type_2, 1.0)

    def __call__(self, type_1: ArrayLike) -> Floats:
        """Return f at every type I error of an array, by linear interpolation between the
        vertices.
        """
        return np.asarray(np.interp(np.asarray(type_1, dtype=float), *self.vertices()))

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Return δ(ε) = Σ (q - e^ε p)_+ over the segments for every ε of an array, without
        cancellation.
        """
        x = np.asarray(epsilon, dtype=float)
        slopes = -self.losses  # ln(q/p), falling
        flat = x.ravel()
        sums = []
        # The segments before ``last`` are steeper than -e^ε, and gain.
        for value, last in zip(flat, np.searchsorted(self.losses, -flat), strict=True):
            gains = -np.expm1(np.minimum(value - slopes[:last], 0.0))
            sums.append(math.fsum(self.q[:last] * gains))
        return np.minimum(np.array(sums), 1.0).reshape(x.shape)

    def touch(self, epsilon: ArrayLike) -> Floats:
        """Return the type I error of the first vertex from which on no segment is steeper than
        -e^ε, for every ε of an array.
        """
        x = np.asarray(epsilon, dtype=float)
        steeper = np.searchsorted(self.losses[self.p > 0], -x)
        return np.asarray(self.vertices()[0][steeper])

    def constraints(self) -> tuple[tuple[float, float], ...]:
        """Return the (ε, δ) statements, by falling ε, that a symmetric f is equivalent to: one for
        each slope <= -1.

        Segments without width state nothing finite of their own: a jump at 0 shows in every δ.
        """
        slopes = -self.losses[np.isfinite(self.losses)]
        slopes = slopes[slopes >= 0]
        return tuple(zip(slopes.tolist(), self.delta(slopes).tolist(), strict=True))

    def inverse(self) -> PiecewiseLinear:
        """Return f^-1, the trade-off function of the test with P and Q exchanged; f is symmetric
        when it equals its inverse.
        """
        return PiecewiseLinear.from_masses(self.q, self.p)


@dataclass(frozen=True)
class GaussianTradeoff(TradeoffFunction):
    """G_μ = T(N(0, 1), N(μ, 1)), exact; μ > 0 is shift / standard deviation. k-fold composition:
    G_{μ√k}.

    Source: Dong-Roth-Su 2022, Section 2.2.

    >>> float(GaussianTradeoff(1.0).delta(1.0).round(6))
    0.126937
    """

    mu: float

    def __post_init__(self) -> None:
        """Refuse a μ that is not above 0."""
        validate.positive(mu=self.mu)

    def __call__(self, type_1: ArrayLike) -> Floats:
        """Return f(t) = Φ(Φ^-1(1 - t) - μ) at every type I error t of an array."""
        from scipy.special import ndtr, ndtri

        return np.asarray(ndtr(-ndtri(np.asarray(type_1, dtype=float)) - self.mu))

    def touch(self, epsilon: ArrayLike) -> Floats:
        """Return Φ(-ε/μ - μ/2) for every ε of an array: the type I error of the likelihood ratio
        test with threshold e^ε.
        """
        from scipy.special import ndtr

        return np.asarray(ndtr(-np.asarray(epsilon, dtype=float) / self.mu - self.mu / 2))

    @property
    def fixed_point(self) -> float:
        """Return Φ(-μ/2), the c with f(c) = c, where the graph meets the diagonal."""
        return float(self.touch(0.0))

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Return δ(ε) = Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2) for every ε of an array; the difference
        is taken in logarithms.
        """
        from scipy.special import log_ndtr

        x = np.asarray(epsilon, dtype=float)
        log_q = log_ndtr(self.mu / 2 - x / self.mu)
        log_p = log_ndtr(-self.mu / 2 - x / self.mu)
        return np.asarray(np.exp(log_q) * -np.expm1(np.minimum(x + log_p - log_q, 0.0)))


def _log_ratio(p: Floats, q: Floats) -> Floats:
    """Return ln(p/q) of each outcome; inf or -inf where one of the two is 0."""
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(p) - np.log(q)
    return logs


def mix(functions: Sequence[PiecewiseLinear], weights: Sequence[float]) -> PiecewiseLinear:
    """Return the trade-off function of the mixture that picks test i with probability
    ``weights[i]``; exact to rounding.

    Args:
        functions: the trade-off functions f_i.
        weights: α_i >= 0, adding up to 1 (to 1e-9).

    Raises:
        InvalidParameter: when the weights do not match or do not add up to 1.

    >>> steep, flat = (PiecewiseLinear.from_constraints([pair]) for pair in ((1.3, 0.0), (0.5,
    ...     0.2)))
    >>> float(mix([steep, flat], [0.5, 0.5])(0.0).round(12))
    0.9
    """
    if not functions or len(functions) != len(weights):
        raise InvalidParameter("weights must have one entry for each of the functions")
    alphas = [validate.nonnegative(weights=weight) for weight in weights]
    if abs(math.fsum(alphas) - 1) > 1e-9:
        raise InvalidParameter("weights must add up to 1")
    return PiecewiseLinear.from_masses(
        np.concatenate([alpha * f.p for alpha, f in zip(alphas, functions, strict=True)]),
        np.concatenate([alpha * f.q for alpha, f in zip(alphas, functions, strict=True)]),
    )
