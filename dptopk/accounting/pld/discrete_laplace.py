"""The pair of the discrete Laplace law, P[n] ∝ e^{-|n|h} with h = 1/scale, and its copy moved by an
integer a.

The loss is (a - 2j)h for j = 0..a: the ends j = 0 and j = a gather everything beyond them. With φ =
(λ + 1/2) h

    E e^{λL} = e^{-ah/2} [cosh(aφ) + sinh(aφ) tanh(h/2) / tanh(φ)],
    E L      = (ε - 1 + e^{-ε}) + (1 - e^{-ε}) (1 - h / sinh h),       ε = ah,

and E L is the smallest ρ for which the pair is ρ-zCDP. The pair dominates every mechanism whose
laws for data at distances 0, 1, ..., a are such that neighbouring ones are h-DP: smaller moves,
wider noise, moves that are split over several values. Statements and proofs are in
docs/notes/discrete-laplace.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dptopk._internal.rounding import EPS, Floats, square_up
from dptopk.accounting.pld.loss_components import Grid, LossComponent, sum_of_copies
from dptopk.accounting.pld.pairs import Pairs, pair_of

# Atoms of one pair that are listed: LISTED for one copy, LISTED / sqrt(count) but no fewer than
# FEWEST for several. Wider shifts are taken in larger steps, which changes the variance of the loss
# by a share of about 1 / atoms².
LISTED = 4096
FEWEST = 64
# Below this ε its square is rounded absolutely; there ε²/2, rounded up, is above both means: E L is
# at most ε²/2 - ε³/6 + ε⁴/24 + ε h²/6 with h <= ε, and ε tanh(ε/2) where h = ε.
EXACT_BELOW = 1e-140
SERIES_BELOW = 0.5  # an ε below which ε - 1 + e^{-ε} cancels; 13 terms are exact to roundoff there


def mean_loss(scale: float, shift: int) -> float:
    """Return E L, the smallest ρ for which the pair is ρ-zCDP, rounded up.

    It is a sum of positive terms, each known to a few ulps, and 16 ulps are added.

    >>> round(mean_loss(2.0, 1), 9), round(0.5 * math.tanh(0.25), 9)
    (0.122459331, 0.122459331)
    """
    h = 1 / scale
    epsilon = shift / scale
    if epsilon < EXACT_BELOW:
        return square_up(shift, 2, scale)
    convex = continuous_mean_loss(epsilon)
    if h < 1:
        # 1 - h / sinh(h) would cancel: by the series of sinh.
        terms = [h ** (2 * j) / math.factorial(2 * j + 1) for j in range(1, 10)]
        excess = math.fsum(terms)  # sinh(h)/h - 1
        lattice = excess / (1 + excess)  # 1 - h / sinh(h)
    else:
        lattice = 1 - h * math.exp(-h) * 2 / -math.expm1(-2 * h)  # sinh(h) = (1 - e^{-2h}) e^h / 2
    mean = convex - math.expm1(-epsilon) * lattice
    return mean * (1 + 16 * EPS)


def continuous_mean_loss(epsilon: float) -> float:
    """Return ε - 1 + e^{-ε}, the mean loss of continuous Laplace noise, to a few ulps."""
    if epsilon >= SERIES_BELOW:
        return epsilon - 1 + math.exp(-epsilon)
    # Taylor's series: the terms alternate and fall, so that ending it with a positive one makes it
    # too large.
    return math.fsum((-1) ** j * epsilon**j / math.factorial(j) for j in range(2, 15))


def discrete_laplace_log_mgf(scale: float, shift: int, lam: Floats) -> Floats:
    """Return an upper bound on ln E e^{λL} at each λ > 0: the closed form moved up by its rounding,
    or λ(1+λ) E L if that is less.

    With aφ - ah/2 = λε in front nothing overflows, and what is left lies in [-ln 2 - h/2, 0].

    Args:
        scale: of the noise.
        shift: a, the integer by which a user moves the count.
        lam: λ, any shape.
    """
    h = 1 / scale
    epsilon = shift / scale
    phi = (lam + 0.5) * h
    with np.errstate(under="ignore"):
        w = np.exp(-2 * shift * phi)
    # ln of [cosh(aφ) + sinh(aφ) tanh(h/2)/tanh(φ)] e^{-aφ}: positive terms, some ten roundings.
    remainder = np.log((1 + w) / 2 + (1 - w) / 2 * (math.tanh(h / 2) / np.tanh(phi)))
    slack = 16 * EPS * (1 + np.abs(remainder))
    closed = lam * epsilon * (1 + 8 * EPS) + remainder + slack
    mean = mean_loss(scale, shift) * (1 + 8 * EPS)  # for the roundings of the product below
    return np.minimum(closed, lam * (1 + lam) * mean)


@dataclass(frozen=True)
class DiscreteLaplace(LossComponent):
    """n copies of the pair of discrete Laplace noise; with J the sum of the j's of the module
    docstring the loss is (n a - 2J) h.

    Attributes:
        scale: 1/h, of the noise.
        shift: a, the integer by which a user moves the count.
        count: n.
    """

    scale: float
    shift: int
    count: int

    def log_mgf(self, tilt: float) -> float:
        """Return ln E e^{θL} of all copies at θ = ``tilt``."""
        log_mgf_of_one = discrete_laplace_log_mgf(self.scale, self.shift, np.array([tilt]))
        return self.count * float(log_mgf_of_one[0])

    def spread(self) -> float:
        """Return twice the mean loss of all copies, about their variance."""
        return 2 * self.count * mean_loss(self.scale, self.shift)

    @property
    def exact(self) -> bool:
        """Return whether the pair is listed in full, in steps of 1."""
        return self._values_per_step == 1

    @property
    def _values_per_step(self) -> int:
        """Return m, the number of values of j that are gathered in one step, so that not too many
        atoms are listed.
        """
        return math.ceil(self.shift / max(LISTED / math.sqrt(self.count), FEWEST))

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return one pair for all copies, whose shifts are taken in steps of ``_values_per_step``;
        where that is 1, nothing is lost: the copies are multiplied on the lattice of the j's.

        Args:
            grid: the grid on which the pair will be composed with others, and the side.
        """
        m = self._values_per_step
        # A move by a, in steps of m: by no less from above, by no more from below.
        steps = -(-self.shift // m) if grid.side > 0 else self.shift // m
        copies = replace(_pair_by_steps(self.scale, steps, m, grid.side), count=self.count)
        spacing = 2 * m / self.scale
        offset = self.count * steps * m / self.scale
        return [sum_of_copies(copies, spacing, offset, grid)]


def _pair_by_steps(scale: float, steps: int, m: int, side: int) -> Pairs:
    """Return the pair of noise that is moved by several steps of m: the losses (steps - 2i) mh, i =
    0..steps, which are given as the integers -i.

    From above (side = 1) it is the pair of noise of scale / m that is moved by 1 as many times: a
    step of m is taken for one that is mh-DP. From below it is that of an observer who sees only in
    which block the outcome lies, j <= 0, 1 <= j <= m, m + 1 <= j <= 2m, ...; the losses in block i
    are at least (steps - 2i) mh. With m = 1 both are the pair itself.

    Args:
        scale: 1/h, of the noise.
        steps: the number of steps.
        m: the length of a step.
        side: 1 for a pair that dominates the noise, -1 for one that the noise dominates.
    """
    h = 1 / scale
    i = np.arange(steps + 1.0)
    # Block i >= 1 begins at the distance starts[i] from the centre of the noise, in units of its
    # scale. Beyond that distance lies the mass e^-starts / (1 + e^-first_step), of which the last
    # block has all, and the others the share 1 - e^{-mh}, as they end after m outcomes. Block 0 has
    # the mass 1 / (1 + e^-first_step) of all outcomes up to 0.
    if side > 0:
        first_step = m * h
    else:
        first_step = h
    starts = np.maximum(i - 1, 0.0) * (m * h) + first_step
    log_masses = -starts - math.log1p(math.exp(-first_step))
    log_masses[1:-1] += math.log(-math.expm1(-m * h))
    log_masses[0] += first_step
    # Of a sum of four logarithms, none much larger than the sum itself.
    log_error = 4 * EPS * (float(np.abs(log_masses).max()) + 8)
    return pair_of(-i, log_masses, log_error=log_error)
