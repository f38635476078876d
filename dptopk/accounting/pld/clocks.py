"""The pair of an exponential clock whose rate one user changes by a factor in [1, e^ε], made
symmetric.

Write κ = 1/(e^ε - 1). Exp(1) against Exp(e^ε) has the profile δ(x) = A e^{-κx} for x >= -ε, and

    A = e^{-κ ln(1 + 1/κ)} / (κ + 1),    B = (2κ + 1) A < 1;

in the other order it is smaller for x > 0. The pair with A e^{-κx}, x >= 0, in both orders has the
loss 0 with probability 1 - B, and under P the density κ(κ+1) A e^{-κl} for l > 0, κ(κ+1) A
e^{-(κ+1)|l|} for l < 0; so

    E e^{λL} = 1 + B s/(1-s),   s = λ(1+λ) / (κ(κ+1)),   λ < κ,   and inf from λ = κ on.

It falls in κ at every x, so that a κ that is rounded down is an upper bound. Statements and proofs:
docs/notes/clocks.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dptopk._internal.rounding import EPS, Floats
from dptopk.accounting.pld.lattice import MOST_PLACES
from dptopk.accounting.pld.loss_components import Grid, LossComponent, Roundings
from dptopk.accounting.pld.pairs import Pairs, pair_of

# κ lies between these: beyond them κ(κ+1), or its inverse, is no float.
LARGEST_EPSILON = 650.0
LARGEST_KAPPA = 1e290
# Tilted mass that is cut off at either end is at most e^{-LOG_CUT_MASS}.
LOG_CUT_MASS = 30.0
# A guess at how long the two laws of one clock take.
WORK_PER_CLOCK = 0.015


def decay(epsilon: float, side: int = 1) -> float:
    """Return κ = 1/(e^ε - 1) of a clock, the rate at which its profile decays.

    Args:
        epsilon: ε > 0. Above 650 κ becomes 0, or from below the κ of 650, as κ falls with ε; below
            1e-290 it is cut to 1e290, for which no grid is made.
        side: 1 for a κ that is rounded down, which gives an upper bound on δ; -1 for one that is
            rounded up.

    >>> round(decay(1.0), 6)
    0.581977
    """
    if epsilon > LARGEST_EPSILON and side > 0:
        return 0.0
    epsilon = min(epsilon, LARGEST_EPSILON)
    if epsilon > 1 / LARGEST_KAPPA:
        inverse = math.exp(-epsilon) / -math.expm1(-epsilon)
    else:
        inverse = LARGEST_KAPPA
    # The two exponentials move by ε EPS with the rounding of ε, and round like the other steps.
    return min(inverse * (1 - side * (8 + epsilon) * EPS), LARGEST_KAPPA)


def _log_a_times_kappa_plus_1(kappa: float) -> float:
    """Return ln((κ+1) A) = -κ ln(1 + 1/κ), in [-1, 0), with A of the module docstring."""
    return -kappa * math.log1p(1 / kappa)


def clock_log_mgf(epsilon: float, lam: Floats) -> Floats:
    """Return an upper bound on ln E e^{λL} at each λ > 0, above it by rounding only; inf from κ on.

    With κ as it is computed, 1 - s = (κ-λ)(κ+1+λ)/(κ(κ+1)) has no cancellation but that of two
    exact numbers.
    """
    kappa = decay(epsilon)
    if kappa == 0.0:
        return np.full_like(lam, math.inf)
    # B = (2κ + 1) A, the probability of a loss other than 0; (κ + 1) A is known by its logarithm.
    not_zero = (1 + kappa / (kappa + 1)) * math.exp(_log_a_times_kappa_plus_1(kappa))
    # Where λ >= κ a smaller λ is put in, and the value is not used.
    below_kappa = np.minimum(lam, kappa * (1 - EPS))
    s = below_kappa / kappa * ((1 + below_kappa) / (kappa + 1))
    one_minus_s = (kappa - below_kappa) / kappa * ((kappa + 1 + below_kappa) / (kappa + 1))
    # Some fifteen operations on positive numbers, none of which cancels.
    values = np.log1p(not_zero * (s / one_minus_s)) * (1 + 16 * EPS)
    return np.where(lam < kappa, values, math.inf)


@dataclass(frozen=True)
class ExponentialClock(LossComponent):
    """n copies of the pair of a clock; on a grid its law is a two-sided geometric one, from above
    and from below.

    From above it is the pair whose profile equals the clock's at the points of the grid and goes
    along chords in e^x between them. From below the observer is told only the cell of an outcome,
    one around loss 0 and then cells of a width w, placed so that their losses are multiples of w:
    post-processing. Both are off to second order in the step.

    Attributes:
        epsilon: ε of a clock.
        count: n.
    """

    epsilon: float
    count: int

    def log_mgf(self, tilt: float) -> float:
        """Return ln E e^{θL} of all copies at θ = ``tilt``; inf from κ on."""
        return self.count * float(clock_log_mgf(self.epsilon, np.array([tilt]))[0])

    @property
    def exact(self) -> bool:
        """Return False: the law is a density, of which the grid holds an approximation."""
        return False

    def work(self) -> float:
        """Return the work, in seconds, of a law of some thousand places from above and
        from below.
        """
        return WORK_PER_CLOCK

    def spread(self) -> float:
        """Return E L² of all copies, 2A κ(κ+1) (1/κ³ + 1/(κ+1)³) each."""
        kappa = decay(self.epsilon)
        if kappa == 0.0:
            return math.inf
        # 2 (κ+1) A (1/κ² + κ/(κ+1)³), so that no power of κ overflows.
        a_times_kappa_plus_1 = math.exp(_log_a_times_kappa_plus_1(kappa))
        of_negative_losses = (kappa / (kappa + 1)) / (kappa + 1) / (kappa + 1)
        return self.count * 2 * a_times_kappa_plus_1 * (1 / kappa / kappa + of_negative_losses)

    def roundings(self) -> Roundings:
        """Return the numbers of pairs whose losses are moved: every copy from above, none from
        below, where cells are laid so that their losses are on the grid.
        """
        return Roundings(self.count, 0)

    def factors(self) -> int:
        """Return 1: all copies are one law to a power."""
        return 1

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return the pair on the grid, without cells whose tilted mass is negligible.

        Raises:
            OverflowError: when the tilt is not below κ, or the grid is too fine to reach far
                enough.
        """
        kappa = decay(self.epsilon, grid.side)
        if not grid.tilt < kappa:
            raise OverflowError("a tilt at which the clock has no moment")
        width = grid.step if grid.side > 0 else grid.step * _steps_per_cell(grid.step * kappa)
        j = _places_on_one_side((kappa - grid.tilt) * width)
        farthest = float(j[-1])
        if grid.side > 0:
            log_scale = _log_scale_above(kappa, width)
        else:
            log_scale = _log_scale_below(kappa, width)
        losses = np.concatenate([-width * j[::-1], [0.0], width * j])
        log_masses = _log_geometric_masses(log_scale, kappa, width, j)
        # The products κwj are known to their own roundoff, ``log_scale`` to some ulps, and of an ε
        # that is rounded κ moves by ε EPS; from below also c, times κ.
        size = abs(log_scale) + (kappa + 1) * width * farthest + self.epsilon
        if grid.side < 0:
            size += 8 * kappa
        pair = pair_of(losses, log_masses, self.count, log_error=EPS * (8 * size + 64))
        # The two ends, what 0 has of them, and the rounding of the sum of all masses.
        missing = 3 * math.exp(-LOG_CUT_MASS) + 64 * EPS * j.size
        return [replace(pair, error=missing, loss_error=4 * EPS * width * farthest)]


def _places_on_one_side(decay_of_place: float) -> Floats:
    """Return 1, 2, ..., up to the place beyond which the tilted mass of a clock is at most
    e^{-LOG_CUT_MASS}.

    Args:
        decay_of_place: by how much the logarithm of the tilted masses falls from place to place,
            (κ-θ)w.

    Raises:
        OverflowError: for too many places.
    """
    reach = LOG_CUT_MASS / decay_of_place + 2  # two more places cover the rounding
    # There are as many places on the other side: the clock has at most half of a product's.
    if not reach < MOST_PLACES / 4:
        raise OverflowError(f"a clock of more than {MOST_PLACES} places")
    return np.arange(1.0, math.ceil(reach) + 1)


def _log_geometric_masses(log_scale: float, kappa: float, width: float, j: Floats) -> Floats:
    """Return the logarithms of the masses at -jw, ..., 0, ..., jw.

    They are G e^{-κjw} at jw and G e^{-(κ+1)jw} at -jw; 0 has the rest of the probability, less
    what is beyond the last place.

    Args:
        log_scale: ln G.
        kappa: κ.
        width: w.
        j: 1, 2, ..., the last place.
    """
    log_up = log_scale - kappa * width * j
    log_down = log_up - width * j
    beside_zero = np.exp(log_up).sum() + np.exp(log_down).sum()
    at_zero = 1.0 - float(beside_zero)
    # The geometric series beyond the last place, at most that of jw and that of -jw.
    farthest = float(j[-1])
    mass_at_last = math.exp(log_scale - kappa * width * farthest) / -math.expm1(-kappa * width)
    mass_beyond = mass_at_last * (1 + math.exp(-width * farthest))
    at_zero = max(at_zero - mass_beyond, 0.0)
    with np.errstate(divide="ignore"):
        return np.concatenate([log_down[::-1], [np.log(at_zero)], log_up])


def _steps_per_cell(step: float) -> int:
    """Return the number of steps in a cell of the law from below.

    Any number is sound. A cell is about sqrt(0.05 step) wide: as steps are halved, cells shrink by
    sqrt(2), so that their error, of second order, falls with the step; wider cells mean fewer
    places.

    Args:
        step: the step in units of 1/κ.
    """
    return max(1, math.floor(math.sqrt(0.05 / step)))


def _log_scale_above(kappa: float, h: float) -> float:
    """Return ln G for the law from above, whose masses at jh are G e^{-κjh} and at -jh G
    e^{-(κ+1)jh}: G = A (1-e^{-κh})(e^{(κ+1)h}-1)/(e^h-1).

    It is the law whose profile joins the clock's at the points of the grid by chords
    (docs/notes/clocks.md); all factors are positive, so that nothing cancels.

    Args:
        kappa: κ.
        h: the step of the grid.
    """
    log_a = _log_a_times_kappa_plus_1(kappa) - math.log1p(kappa)
    ratio = math.expm1(-(kappa + 1) * h) / math.expm1(-h)
    return log_a + math.log(-math.expm1(-kappa * h)) + kappa * h + math.log(ratio)


def _log_scale_below(kappa: float, w: float) -> float:
    """Return ln G for the law from below, whose cells [a + (j-1)w, a + jw], a = w - c, have the
    loss jw.

    e^c = (1-e^{-κw})/κ · (κ+1)/(1-e^{-(κ+1)w}); the mass of cell j is (κ+1) A e^{-κ(a + (j-1)w)} (1
    - e^{-κw}).

    Args:
        kappa: κ.
        w: the width of a cell.
    """
    ratio = math.expm1(-kappa * w) / math.expm1(-(kappa + 1) * w)
    c = math.log(ratio) + math.log1p(1 / kappa)
    return _log_a_times_kappa_plus_1(kappa) + kappa * c + math.log(-math.expm1(-kappa * w))
