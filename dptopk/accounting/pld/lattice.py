"""Products of privacy loss distributions on a uniform grid: certified from above and from below.

A product of dominating pairs has the privacy profile δ(x) = E[(1 - e^{x - L})_+], with L the sum of
independent losses (docs/theorems.md, Theorem A: adaptive and set-wise compositions cost no more).
Here L is brought onto the grid ``step``·Z:

* from above by splitting each loss atom between its two grid neighbours so that its mass under P
  and under Q stay (the chord of (1 - v u)_+ in u = e^{-loss}): a second-order error;
* from below by taking off a bound on what splitting can have added (``splitting_gap``), of second
  order as well;
* or, for a few pairs, by rounding losses down. Different ε's that lie close together are first
  merged into one pair, by revealing only how many of their answers were true: post-processing,
  hence a lower bound.

The grid distributions are multiplied as characteristic functions after exponential tilting: the
computed masses are a_i = P[L = x_i] e^{θ x_i - K(θ)}, centred where the question is, so that the
smallest δ loses no digits. All errors are gathered in one number, ``error``, a bound on Σ_i |a_i -
computed a_i|: rounding, aliasing (Chernoff bounds), atoms cut off. Mass a anywhere changes δ(x) by
at most a·F(x) with

    F(x) = max_l e^{K - θ l} (1 - e^{x - l}) = e^{K - θ x} (θ / (1 + θ))^θ / (1 + θ),

so that δ(x) computed from the masses is off by at most error·F(x).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dptopk._internal.rounding import EPS, Floats
from dptopk._internal.sums import inner
from dptopk.accounting.pld.characteristic_function import CharacteristicFunction, Indices
from dptopk.accounting.pld.loss_curve import LossCurve
from dptopk.accounting.pld.pairs import Pairs, log_sum, pair_of
from dptopk.accounting.pld.tilt import log_peak

# Bound on the aliased mass of a product, in the tilted measure.
ALIASED = 1e-12
# Losses this close below a grid point, in steps, are moved up to it by a lower bound, which then
# pays for the move.
SNAP = 1e-9
# Places of one product, about 1 GB with all that is made of it; what needs more is left to other
# bounds.
MOST_PLACES = 2**23
# Relative, of sums of errors and of bounds by e^x: far above their rounding.
SUM_SLACK = 1e-9
LARGEST_EXPONENT = 700  # e^709 is the largest float
SMALLEST_EXPONENT = 745  # e^-745 is the smallest float
UNDERFLOW = 1e-300  # above a sum of at most MOST_PLACES masses times what underflows
# The most by which losses are weighted in ``splitting_gap``, as a logarithm per grid step: e^30.
LARGEST_TWIST = 30


@dataclass(frozen=True)
class LossDistribution:
    """A product of pairs on the grid, tilted.

    Attributes:
        step: grid step.
        first: losses are step · (first + i).
        masses: shape (n,): the tilted masses a_i; P[L = x_i] = a_i e^{log_scale - tilt · x_i}.
        tilt, log_scale: θ and K(θ).
        error: bound on Σ |a_i - true a_i|, mass left out or put elsewhere included; inf where a
            step is so wide that none is a float, and then nothing is known of any δ.
        log_error: bound on the error of ``log_scale`` and the exponents.
        shift: bound on the rounding of the losses.
        side: 1 when the exact grid product is an upper bound, -1 when it is a lower bound.
    """

    step: float
    first: int
    masses: Floats
    tilt: float
    log_scale: float
    error: float
    log_error: float
    shift: float
    side: int

    @property
    def losses(self) -> Floats:
        """Return the grid points, shape (n,)."""
        return self.step * (self.first + np.arange(self.masses.size, dtype=float))

    @property
    def log_masses(self) -> Floats:
        """Return ln P[L = x_i] as computed, -inf where the mass is 0; ``error`` bounds how far the
        masses are off.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.masses) + (self.log_scale - self.tilt * self.losses)

    def as_pair(self) -> Pairs:
        """Return this product as one pair, with its three errors."""
        losses, log_masses = self._atoms
        pair = pair_of(losses, log_masses)
        return replace(pair, log_error=self.log_error, loss_error=self.shift, error=self.error)

    @property
    def _atoms(self) -> tuple[Floats, Floats]:
        """Return the losses whose mass is positive, and the logarithms of their masses."""
        positive = self.masses > 0
        return self.losses[positive], self.log_masses[positive]

    @cached_property
    def _curve(self) -> LossCurve:
        """Return the privacy profile of the computed masses, which does not account for
        ``error``.
        """
        losses, log_masses = self._atoms
        return LossCurve(losses, log_masses, log_error=self.log_error, loss_error=self.shift)

    def log_unit(self, x: float) -> float:
        """Return ln F(x), where F(x) is how much a unit of tilted mass can change δ(x), rounded up
        (module docstring).

        Args:
            x: ε.
        """
        return self.log_scale - self.tilt * (x - self.shift) + log_peak(self.tilt) + self.log_error

    def _slack(self, x: float) -> float:
        """Return error·F(x), by which the δ(x) of the computed masses may be off."""
        if self.error == math.inf:  # where F(x) underflows, too
            return math.inf
        return self.error * _exp(self.log_unit(x))

    def delta(self, epsilon: float, side: int | None = None) -> float:
        """Return a bound on the δ of the exact grid product at one ε.

        Args:
            epsilon: ε.
            side: 1 for an upper bound, -1 for a lower one; None: the side of this product.
        """
        slack = self._slack(epsilon) * (1 + SUM_SLACK)
        if side is None:
            side = self.side
        if side > 0:
            return min(float(self._curve.delta(epsilon)) + slack, 1.0)
        return max(float(self._curve.delta_lower(epsilon)) - slack, 0.0)

    def epsilon(self, delta: float) -> float:
        """Return a bound on the smallest ε with δ(ε) <= delta of the exact grid product, an upper
        or a lower one by ``side``.
        """
        if self.side > 0:
            # F falls: the slack at the first guess covers that at the larger ε found with it.
            guess = float(self._curve.epsilon(delta))
            slack = self._slack(guess) * (1 + SUM_SLACK)
            if delta > slack:
                return float(self._curve.epsilon(delta - slack))
            return math.inf
        # F falls, so at the smaller ε found with the slack it may be larger than at the guess:
        # twice the slack is room for that. Where it is not enough 0 is the bound.
        guess = float(self._curve.epsilon_lower(delta))
        slack = 2 * self._slack(guess)
        lower_end = float(self._curve.epsilon_lower(min(delta + slack, 1.0)))
        if self._slack(lower_end) <= slack * (1 - SUM_SLACK) < math.inf:
            return lower_end
        return 0.0


def _exp(exponent: float) -> float:
    """Return e^exponent, or inf where that is beyond the floats."""
    if exponent < LARGEST_EXPONENT:
        return math.exp(exponent)
    return math.inf


@dataclass(frozen=True)
class _GridPairs:
    """Independent pairs on the grid, tilted.

    Attributes:
        indices: shape (rows, atoms), the losses as multiples of the step, a pair a row.
        masses: the tilted masses, each row summing to 1.
        count: how often every row is taken.
        log_scale: K(θ) of one copy, summed over rows.
        error: bound on the error of all rows and copies, in total variation of the tilted product.
        shift: bound on the rounding of the total loss.
        noise: Σ E[(grid point - loss)²] of a split, over all rows and copies, under the tilt: the
            variance that splitting adds to the total loss.
    """

    indices: Indices
    masses: Floats
    count: int
    log_scale: float
    error: float
    shift: float
    noise: float


@dataclass(frozen=True)
class _GridLosses:
    """Losses brought onto the grid, before the tilt: each row a pair, each column a grid point.

    Attributes:
        indices: the losses as multiples of the step, whole numbers.
        log_masses: the logarithms of the masses under P.
        moves: the distances by which the losses were moved up by a split, for
            ``_GridPairs.noise``; 0 where losses are rounded down.
    """

    indices: Floats
    log_masses: Floats
    moves: Floats


def _split_losses(pairs: Pairs, step: float, twist: float) -> _GridLosses:
    """Return every loss divided between its two neighbours on the grid.

    Of a loss d above the lower neighbour, the share (1 - e^{-d}) / (1 - e^{-h}) goes to the upper
    one, and the rest, e^{-d} (1 - e^{d-h}) / (1 - e^{-h}), to the lower one: so the mass under P
    and that under Q, e^{-loss} as much, both stay.

    Args:
        pairs: the losses.
        step: h.
        twist: s; each part is multiplied by e^{s (grid point - loss)}.
    """
    lower_points = np.floor(pairs.losses / step)
    above_point = np.clip(pairs.losses - lower_points * step, 0.0, step)
    with np.errstate(divide="ignore"):
        log_cell_share = np.log(-np.expm1(-step))
        up = pairs.log_masses + np.log(-np.expm1(-above_point)) - log_cell_share
        down = (
            pairs.log_masses - above_point + np.log(-np.expm1(above_point - step)) - log_cell_share
        )
    moves = np.hstack([-above_point, step - above_point])
    indices = np.hstack([lower_points, lower_points + 1])
    return _GridLosses(indices, np.hstack([down, up]) + twist * moves, moves)


def _rounded_down_losses(pairs: Pairs, step: float) -> _GridLosses:
    """Return every loss rounded down to the grid.

    A loss that misses a grid point from below by no more than SNAP steps, as by rounding alone, is
    taken to be there: the caller adds that to the rounding of the losses.
    """
    indices = np.floor(pairs.losses / step + SNAP)
    return _GridLosses(indices, pairs.log_masses, np.zeros(1))


def _grid_pairs(
    pairs: Pairs, step: float, tilt: float, side: int, twist: float = 0.0
) -> _GridPairs:
    """Return pairs whose losses are brought onto the grid, tilted.

    Args:
        pairs: the losses.
        step: the step of the grid.
        tilt: θ.
        side: 1 to split losses (see ``_split_losses``), -1 to round them down.
        twist: s; each part of a split is multiplied by e^{s (grid point - loss)}.
    """
    # A quotient by the step, a product with it and a difference round a loss.
    rounding = pairs.loss_error + 4 * EPS * float(np.abs(pairs.losses).max())
    if side > 0:
        moved = _split_losses(pairs, step, twist)
    else:
        moved = _rounded_down_losses(pairs, step)
        rounding += SNAP * step
    # e^{θL} factors over the parts of L: tilted parts convolve to the tilted product, and log
    # scales add.
    exponents = moved.log_masses + (tilt * step) * moved.indices
    log_mgf = log_sum(exponents)
    masses = np.exp(exponents - log_mgf[:, None])
    finite = np.where(moved.log_masses > -np.inf, moved.log_masses, 0.0)
    largest_exponent = float(np.abs(finite).max()) + tilt * step * np.abs(moved.indices).max()
    rows = pairs.count * masses.shape[0]
    # An exponent takes four operations, the sum of a row one for each atom.
    exponent_error = EPS * (8 + 4 * largest_exponent + masses.shape[1])
    relative = float(np.max(pairs.log_error)) + exponent_error + abs(twist) * rounding
    # A loss L moves to L' by at most a step, which multiplies its mass, tilted and twisted, by at
    # most e^{(θ + |s|) step}. What is left sums to at least its tilted mass if it is split, because
    # E[e^{aE} | L], E = L' - L, is convex in a and 1 at a = -1 and 0; rounded down, to at least
    # e^{-θ step} of it.
    moved_error = 0.0
    if pairs.error:
        moved_error = pairs.error * _exp((tilt + abs(twist)) * step)
    return _GridPairs(
        indices=moved.indices.astype(np.int64),
        masses=masses,
        count=pairs.count,
        log_scale=math.fsum(log_mgf),
        error=rows * (relative + moved_error),
        shift=rows * (rounding + 2 * EPS * step),
        noise=pairs.count * float((masses * moved.moves**2).sum()),
    )


def pair_on_grid(pairs: Pairs, *, step: float, tilt: float, side: int) -> Pairs:
    """Return one pair of many losses with its losses moved onto the grid: split (``side`` = 1) or
    rounded down (-1), as ``product`` does it.

    What comes out has one loss for each grid point that takes any mass, far fewer than went in, so
    that ``product`` is quick.

    Args:
        pairs: a single row.
        step: the step of the grid.
        tilt: θ; masses are added up under the tilt, where none of them may be so small that it
            underflows.
        side: 1 or -1.
    """
    losses = pairs.losses[0]
    cells = _Cells.of(losses, step)
    exponents = pairs.log_masses[0] + tilt * losses
    largest = float(exponents.max())
    masses_of_losses = np.exp(exponents - largest)
    if side > 0:
        masses = cells.split_masses(masses_of_losses, tilt)
    else:
        masses = cells.rounded_down_masses(masses_of_losses, tilt)
    occupied = np.flatnonzero(masses)
    points = np.asarray((cells.first + occupied) * step, dtype=np.float64)
    log_masses = np.log(masses[occupied]) + largest - tilt * points
    # A loss that is off moves shares between the two ends, as if it had been there: the losses keep
    # their error.
    loss_error = pairs.loss_error + 4 * EPS * float(np.abs(losses).max())
    pair = pair_of(points, log_masses, log_error=_binning_error(pairs, cells.cell, tilt))
    return replace(pair, loss_error=loss_error, error=pairs.error)


@dataclass(frozen=True)
class _Cells:
    """Where n losses lie on a grid.

    Attributes:
        step: the distance of two grid points.
        first: the index of the grid point at which the first cell begins.
        cell: shape (n,), the number of each loss's cell, counted from that point.
        above_point: shape (n,), how far each loss lies above the grid point at which its cell
            begins.
    """

    step: float
    first: int
    cell: Indices
    above_point: Floats

    @classmethod
    def of(cls, losses: Floats, step: float) -> _Cells:
        """Return where losses of shape (n,) lie on the grid with this step."""
        lower_points = np.floor(losses / step)
        first = int(lower_points.min())
        above_point = np.clip(losses - lower_points * step, 0.0, step)
        return cls(step, first, (lower_points - first).astype(np.int64), above_point)

    def split_masses(self, masses: Floats, tilt: float) -> Floats:
        """Return the tilted masses at the grid points from ``first`` on, where losses are split as
        in ``_split_losses``.

        The tilt moves from the loss to the grid point that takes its mass.

        Args:
            masses: the tilted masses of the losses.
            tilt: θ.
        """
        cell_share = -math.expm1(-self.step)
        share_up = -np.expm1(-self.above_point) / cell_share
        up = masses * np.exp(tilt * (self.step - self.above_point)) * share_up
        share_down = -np.expm1(self.above_point - self.step) / cell_share
        down = masses * np.exp(-(tilt + 1) * self.above_point) * share_down
        total = np.bincount(self.cell + 1, up, minlength=int(self.cell.max()) + 2)
        total += np.bincount(self.cell, down, minlength=total.size)
        return np.asarray(total, dtype=float)

    def rounded_down_masses(self, masses: Floats, tilt: float) -> Floats:
        """Return the tilted masses at the grid points from ``first`` on, where losses are rounded
        down; arguments as for ``split_masses``.
        """
        moved = masses * np.exp(-tilt * self.above_point)
        return np.asarray(np.bincount(self.cell, moved), dtype=float)


def _binning_error(pairs: Pairs, cell: Indices, tilt: float) -> float:
    """Return a bound on the error of the logarithms of ``pair_on_grid``, that of the pair included.

    A mass is a sum of up to ``crowd`` terms, each of which takes a few exponentials.

    Args:
        pairs: a single row.
        cell: the number of each loss's cell.
        tilt: θ.
    """
    crowd = float(np.bincount(cell).max())
    farthest = np.abs(pairs.losses[0]).max()
    largest = float(np.abs(pairs.log_masses[0]).max() + tilt * farthest)
    return float(np.max(pairs.log_error)) + EPS * (2 * crowd + 4 * largest + 32)


def product(
    pairs: Sequence[Pairs], *, step: float, tilt: float, side: int, twist: float = 0.0
) -> LossDistribution:
    """Return the product of all pairs on the grid ``step``·Z, from above (side = 1) or from below
    (side = -1).

    Args:
        pairs: at least one.
        step: grid step > 0.
        tilt: θ >= 0 of the exponential change of measure; any value is sound, ``best_tilt`` gives a
            sharp one.
        side: 1 or -1.
        twist: s; then the masses are E[e^{s (L' - L)}; L' = x_i], with L' the loss on the grid
            (``splitting_gap``).

    Raises:
        OverflowError: when it would have more than MOST_PLACES places.
    """
    placed = [_grid_pairs(item, step, tilt, side, twist) for item in pairs]
    low, high, aliased = _index_window(placed)
    if high - low >= MOST_PLACES:
        raise OverflowError(f"a product of more than {MOST_PLACES} places")
    spectrum = CharacteristicFunction(high - low + 1)
    for item in placed:
        spectrum.multiply(item.indices, item.masses, item.count)
    masses, numerical = spectrum.masses(low)
    log_scale = math.fsum(item.count * item.log_scale for item in placed)
    farthest = max(abs(low), abs(high))
    # The roundings of the losses, and those of the grid points.
    shift = math.fsum(item.shift for item in placed) + 4 * EPS * step * farthest
    return LossDistribution(
        step=step,
        first=low,
        # True masses are at least 0: to cut negative ones moves none of them further from the
        # truth.
        masses=np.maximum(masses, 0.0),
        tilt=tilt,
        log_scale=log_scale,
        # Errors of factors multiply: 1.1 times their sum covers it while they are below a tenth,
        # and a larger error makes the bound say nothing in any case.
        error=1.1 * (numerical + math.fsum(item.error for item in placed)) + aliased,
        log_error=4 * EPS * (abs(log_scale) + tilt * step * farthest + 8),
        shift=shift,
        side=side,
    )


def splitting_gap(pairs: Sequence[Pairs], *, step: float, tilt: float) -> Callable[[float], float]:
    """Return a function of ε that bounds δ'(ε) - δ(ε), the amount added by splitting, from above.

    With L' the loss on the grid, E = L' - L and u = e^{-L}, E[e^{-L'} | L] = u. So the convex (1 -
    e^x u)_+ gains

        δ'(x) - δ(x) = E[(1 - e^{x - L'})_+; L <= x] + E[(e^{x - L'} - 1)_+; L > x].

    In the first term E >= L' - x, in the second -E >= x - L'. Chernoff: for every s > 0 the
    indicators are at most e^{s (E - (L' - x))} and e^{-s (E - (L' - x))}, and E[e^{±sE}; L' = c]
    are two more products on the same grid. With s about sqrt(2) / std(E) this is some five times
    what splitting adds, and of second order in the step too.

    Args:
        pairs: the pairs of the product.
        step: the step of the grid.
        tilt: θ, under which the product is computed.
    """
    noise = math.fsum(_grid_pairs(item, step, tilt, 1).noise for item in pairs)
    # Larger than 1 + θ, as the sums below need; masses are multiplied by up to e^{s step}, a float.
    # Where no loss moves, noise is 0, and the largest s is taken.
    twist = max(math.sqrt(2 / max(noise, 1e-300)), 2 * (1 + tilt))
    twist = min(twist, LARGEST_TWIST / step)
    if twist <= 1 + tilt:
        return _no_bound
    weighted_up = product(pairs, step=step, tilt=tilt, side=1, twist=twist)
    weighted_down = product(pairs, step=step, tilt=tilt, side=1, twist=-twist)

    def gap(x: float) -> float:
        """Return an upper bound on what splitting adds to δ at ε = x."""
        shifted_x = x + weighted_up.shift + weighted_down.shift
        # The two terms of the docstring: over grid points above x, and over those below.
        first = _decayed_sum(
            weighted_up, weighted_up.losses - shifted_x, tilt + twist, tilt * shifted_x
        )
        second = _decayed_sum(
            weighted_down, shifted_x - weighted_down.losses, twist - tilt - 1, tilt * shifted_x
        )
        total = first.value + first.error + second.value + second.error
        return total * (1 + SUM_SLACK)

    return gap


def _no_bound(x: float) -> float:  # noqa: ARG001 - the argument of ``splitting_gap``'s functions
    """Return inf: the grid is too coarse for a bound on what splitting adds."""
    return math.inf


class _DecayedSum(NamedTuple):
    """A sum over the masses of a law on the grid.

    Attributes:
        value: the sum of the computed masses, rounded up.
        error: what the errors of the masses may add to it; inf where nothing is known of them.
    """

    value: float
    error: float


def _decayed_sum(
    law: LossDistribution, distance: Floats, rate: float, log_factor: float
) -> _DecayedSum:
    """Return the sum of e^{K - f} a e^{-r d} (1 - e^{-d}) over the tilted masses a of a law, at
    distances d > 0.

    Args:
        law: the tilted masses a, and K, its ``log_scale``.
        distance: d of each mass; masses at d <= 0 are left out.
        rate: r, at least 0.
        log_factor: f.
    """
    # Terms that underflow are left out, and covered by UNDERFLOW.
    counted = (distance > 0) & (rate * distance < SMALLEST_EXPONENT)
    d = distance[counted]
    unit = _exp(law.log_scale - log_factor + law.log_error)
    gains = np.exp(-rate * d) * -np.expm1(-d)
    sums = inner(law.masses[counted], gains)
    value = unit * (sums + UNDERFLOW)
    if law.error == math.inf:
        return _DecayedSum(value, math.inf)
    largest_gain = math.exp(log_peak(rate))  # over all d
    return _DecayedSum(value, unit * law.error * largest_gain)


@dataclass(frozen=True)
class _CentredPairs:
    """Placed pairs whose indices are given from the mean of their row.

    Attributes:
        count: how often every row is taken.
        distances: shape (rows, atoms), index less the mean of the row.
        log_masses: the logarithms of the tilted masses, of the same shape.
    """

    count: int
    distances: Floats
    log_masses: Floats


@dataclass(frozen=True)
class _IndexSum:
    """The law of the sum of all grid indices of a product, under the tilt.

    Attributes:
        least, most: the smallest and the largest possible sum.
        mean, deviation: of the sum; the deviation is positive.
        centred: the placed pairs that are summed.
    """

    least: int
    most: int
    mean: float
    deviation: float
    centred: list[_CentredPairs]

    @classmethod
    def of(cls, placed: Sequence[_GridPairs]) -> _IndexSum:
        """Return the law of the sum of all placed pairs, all copies counted."""
        totals = []
        variances = []
        centred = []
        for item in placed:
            means = (item.masses * item.indices).sum(axis=1)
            distances = item.indices - means[:, None]
            squares = (item.masses * distances**2).sum()
            with np.errstate(divide="ignore"):
                log_masses = np.log(item.masses)
            totals.append(item.count * float(means.sum()))
            variances.append(item.count * float(squares))
            centred.append(_CentredPairs(item.count, distances, log_masses))
        return cls(
            least=sum(item.count * int(item.indices.min(axis=1).sum()) for item in placed),
            most=sum(item.count * int(item.indices.max(axis=1).sum()) for item in placed),
            mean=math.fsum(totals),
            deviation=math.sqrt(math.fsum(variances)) + 1e-9,  # positive where all is constant
            centred=centred,
        )

    def reach(self, s: float) -> float:
        """Return a distance from the mean, to the side of the sign of s, beyond which at most
        ALIASED / 2 of the mass lies.

        P[sign (S - mean) > c] <= exp(K(s) - |s| c), so the least such c by this bound is (K(s) +
        ln(2 / ALIASED)) / |s|.
        """
        cumulant = 0.0
        for part in self.centred:
            exponents = part.log_masses + s * part.distances
            cumulant += part.count * math.fsum(log_sum(exponents))
        upper = cumulant * (1 + SUM_SLACK) + SUM_SLACK
        return (upper + math.log(2 / ALIASED)) / abs(s)


def _index_window(placed: Sequence[_GridPairs]) -> tuple[int, int, float]:
    """Return the first and the last grid index that a product is computed at, and a bound on its
    tilted mass outside of them, by Chernoff's inequality on either side; 0 where there is none.

    Args:
        placed: the factors of the product.
    """
    law = _IndexSum.of(placed)
    # SUM_SLACK and one index more cover the rounding of the mean and of the reach.
    reach_below = _least_reach(law.reach, -1 / law.deviation) * (1 + SUM_SLACK) + 1
    reach_above = _least_reach(law.reach, 1 / law.deviation) * (1 + SUM_SLACK) + 1
    low = max(law.least, math.floor(law.mean - reach_below))
    high = min(law.most, math.ceil(law.mean + reach_above))
    if (low, high) == (law.least, law.most):
        return low, high, 0.0
    return low, high, ALIASED


_SLOPES = np.geomspace(0.3, 30, 24).tolist()
# The place of a normal law's best slope, about sqrt(2 ln(2 / ALIASED)), among them.
_USUAL_SLOPE = 16


def _least_reach(reach: Callable[[float], float], scale: float) -> float:
    """Return the least reach at any of the slopes; any of them is a bound.

    The reach falls and then rises, so it is looked for downhill from the usual slope.

    Args:
        reach: maps s, the exponent of a Chernoff bound, to a distance.
        scale: s of slope 1, one over the deviation, with the sign of the side.
    """
    place = _USUAL_SLOPE
    least = reach(_SLOPES[_USUAL_SLOPE] * scale)
    for direction in (-1, 1):
        while 0 <= place + direction < len(_SLOPES):
            neighbour = reach(_SLOPES[place + direction] * scale)
            if not neighbour < least:
                break
            place += direction
            least = neighbour
    return least
