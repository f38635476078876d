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
masses kept are a_i = P[L = x_i] e^{θ x_i - K(θ)}, centred where the question is, so that the
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

import numpy as np

from dptopk._internal.rounding import EPS, Floats
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


@dataclass(frozen=True)
class LossDistribution:
    """A product of pairs on the grid, tilted.

    Attributes:
        step: grid step.
        first: losses are step · (first + i).
        masses: shape (n,): the tilted masses a_i; P[L = x_i] = a_i e^{log_scale - tilt · x_i}.
        tilt, log_scale: θ and K(θ).
        error: bound on Σ |a_i - true a_i|, mass left out or put elsewhere included.
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
        """The grid points, shape (n,)."""
        return self.step * (self.first + np.arange(self.masses.size, dtype=float))

    @property
    def log_masses(self) -> Floats:
        """Ln P[L = x_i] as computed; -inf where the mass is 0. The error comes on top
        (``error``).
        """
        with np.errstate(divide="ignore"):
            return np.log(self.masses) + (self.log_scale - self.tilt * self.losses)

    def pairs(self) -> Pairs:
        """This product as one pair; its errors come along."""
        kept = self.masses > 0
        pair = pair_of(self.losses[kept], self.log_masses[kept], log_error=self.log_error)
        return replace(pair, loss_error=self.shift, error=self.error)

    @cached_property
    def _curve(self) -> LossCurve:
        """The privacy profile of the computed masses, without ``error``."""
        kept = self.masses > 0
        x = self.losses[kept]
        return LossCurve(x, self.log_masses[kept], log_error=self.log_error, loss_error=self.shift)

    def log_unit(self, x: float) -> float:
        """Ln F(x): how much a unit of tilted mass can change δ(x)."""
        return self.log_scale - self.tilt * (x - self.shift) + log_peak(self.tilt) + self.log_error

    def delta(self, epsilon: float, side: int | None = None) -> float:
        """δ at one ε: a bound on that of the exact grid product, upper or lower by ``side`` (None:
        this product's).
        """
        slack = self.error * _exp(self.log_unit(epsilon)) * (1 + 1e-9)
        if (side or self.side) > 0:
            return min(float(self._curve.delta(epsilon)) + slack, 1.0)
        return max(float(self._curve.delta_lower(epsilon)) - slack, 0.0)

    def epsilon(self, delta: float) -> float:
        """The smallest ε with δ(ε) <= delta: a bound on that of the exact product, upper or lower
        by ``side``.
        """
        if self.side > 0:
            # F falls: the slack at the first guess covers that at the larger ε found with it.
            guess = float(self._curve.epsilon(delta))
            slack = self.error * _exp(self.log_unit(guess)) * (1 + 1e-9)
            if delta > slack:
                return float(self._curve.epsilon(delta - slack))
            return math.inf
        # F falls, so at the smaller ε found with the slack it may be larger than at the guess:
        # twice the slack is room for that. Where it is not enough 0 is the bound.
        guess = float(self._curve.epsilon_lower(delta))
        slack = 2 * self.error * _exp(self.log_unit(guess))
        found = float(self._curve.epsilon_lower(min(delta + slack, 1.0)))
        if self.error * _exp(self.log_unit(found)) <= slack * (1 - 1e-9):
            return found
        return 0.0


def _exp(exponent: float) -> float:
    if exponent < 700:
        return math.exp(exponent)
    return math.inf


@dataclass(frozen=True)
class _Placed:
    """Pairs on the grid: tilted masses at integer multiples of the step, each row summing to 1."""

    indices: Indices
    masses: Floats
    count: int
    log_scale: float  # summed over rows, for one copy
    error: float  # of all rows and copies, in total variation of the tilted product
    shift: float  # rounding of the total loss
    noise: float  # Σ E[(grid point - loss)²] of a split, over all rows and copies


@dataclass(frozen=True)
class _Moved:
    """Losses brought onto the grid, before the tilt: each row a pair, each column a grid point.

    ``moves`` are the distances by which the losses were moved, counted by ``_Placed.noise``.
    """

    indices: Floats
    log_masses: Floats
    moves: Floats


def _split(pairs: Pairs, step: float, twist: float) -> _Moved:
    """Every loss divided between its two neighbours.

    Above goes p (1 - e^{-rest}) / (1 - e^{-step}), and below p e^{-rest} (1 - e^{rest - step}) / (1
    - e^{-step}).
    """
    below = np.floor(pairs.losses / step)
    rest = np.clip(pairs.losses - below * step, 0.0, step)
    with np.errstate(divide="ignore"):
        log_whole = np.log(-np.expm1(-step))
        up = pairs.log_masses + np.log(-np.expm1(-rest)) - log_whole
        down = pairs.log_masses - rest + np.log(-np.expm1(rest - step)) - log_whole
    moves = np.hstack([-rest, step - rest])
    indices = np.hstack([below, below + 1])
    return _Moved(indices, np.hstack([down, up]) + twist * moves, moves)


def _place(pairs: Pairs, step: float, tilt: float, side: int, twist: float = 0.0) -> _Placed:
    """Bring losses onto the grid: split (side = 1, see the module docstring) or rounded down (side
    = -1).

    A ``twist`` s multiplies each part of a split by e^{s (grid point - loss)}.
    """
    rounding = pairs.loss_error + 4 * EPS * float(np.abs(pairs.losses).max())
    if side > 0:
        moved = _split(pairs, step, twist)
    else:
        # A loss that misses a grid point from below by rounding alone is taken to be there; the
        # shift pays for it.
        rounding += SNAP * step
        indices = np.floor(pairs.losses / step + SNAP)
        moved = _Moved(indices, pairs.log_masses, np.zeros(1))
    # e^{θL} factors over the parts of L: tilted parts convolve to the tilted product, and log
    # scales add.
    exponents = moved.log_masses + (tilt * step) * moved.indices
    log_mgf = log_sum(exponents)
    masses = np.exp(exponents - log_mgf[:, None])
    finite = np.where(moved.log_masses > -np.inf, moved.log_masses, 0.0)
    largest = float(np.abs(finite).max()) + tilt * step * np.abs(moved.indices).max()
    rows = pairs.count * masses.shape[0]
    exponent_error = EPS * (8 + 4 * largest + masses.shape[1])
    relative = float(np.max(pairs.log_error)) + exponent_error + abs(twist) * rounding
    return _Placed(
        indices=moved.indices.astype(np.int64),
        masses=masses,
        count=pairs.count,
        log_scale=math.fsum(log_mgf),
        error=rows * (relative + pairs.error * math.exp(abs(twist) * step)),
        shift=rows * (rounding + 2 * EPS * step),
        noise=pairs.count * float((masses * moved.moves**2).sum()),
    )


def binned(pairs: Pairs, *, step: float, tilt: float, side: int) -> Pairs:
    """One pair of many losses on the grid: split (side = 1) or rounded down (side = -1), as
    ``product`` does it.

    What is left to place afterwards are losses on the grid, as few as it has points within reach.
    """
    losses = pairs.losses[0]
    first, cell, rest = _cells(losses, step)
    exponents = pairs.log_masses[0] + tilt * losses
    top = float(exponents.max())
    masses = np.exp(exponents - top)  # of the losses where they are, tilted
    if side > 0:
        masses = _split_masses(masses, cell, rest, step, tilt)
    else:
        masses = np.asarray(np.bincount(cell, masses * np.exp(-tilt * rest)), dtype=float)
    kept = np.flatnonzero(masses)
    points = np.asarray((first + kept) * step, dtype=np.float64)
    log_masses = np.log(masses[kept]) + top - tilt * points
    # A loss that is off moves shares between the two ends, as if it had been there: the losses keep
    # their error.
    loss_error = pairs.loss_error + 4 * EPS * float(np.abs(losses).max())
    found = pair_of(points, log_masses, log_error=_binning_error(pairs, cell, tilt))
    return replace(found, loss_error=loss_error, error=pairs.error)


def _cells(losses: Floats, step: float) -> tuple[int, Indices, Floats]:
    """The first grid index, for each loss the number of its cell from there, and how far it lies
    above the point at which the cell begins.
    """
    below = np.floor(losses / step)
    first = int(below.min())
    rest = np.clip(losses - below * step, 0.0, step)
    return first, (below - first).astype(np.int64), rest


def _binning_error(pairs: Pairs, cell: Indices, tilt: float) -> float:
    """Bound on the error of the logarithms of ``binned``, that of the pair included."""
    crowd = float(np.bincount(cell).max())
    farthest = np.abs(pairs.losses[0]).max()
    largest = float(np.abs(pairs.log_masses[0]).max() + tilt * farthest)
    return float(np.max(pairs.log_error)) + EPS * (2 * crowd + 4 * largest + 32)


def _split_masses(masses: Floats, cell: Indices, rest: Floats, step: float, tilt: float) -> Floats:
    """Tilted masses at the grid points, of losses that lie ``rest`` above the point of their cell.

    The split is that of ``_split``; the tilt moves from the loss to the grid point that takes its
    mass.
    """
    whole = -math.expm1(-step)
    share_up = -np.expm1(-rest) / whole
    up = masses * np.exp(tilt * (step - rest)) * share_up
    share_down = -np.expm1(rest - step) / whole
    down = masses * np.exp(-(tilt + 1) * rest) * share_down
    total = np.bincount(cell + 1, up, minlength=int(cell.max()) + 2)
    total += np.bincount(cell, down, minlength=total.size)
    return np.asarray(total, dtype=float)


def product(
    pairs: Sequence[Pairs], *, step: float, tilt: float, side: int, twist: float = 0.0
) -> LossDistribution:
    """The product of all pairs on the grid ``step``·Z, from above (side = 1) or from below (side =
    -1).

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
    placed = [_place(item, step, tilt, side, twist) for item in pairs]
    low, high, aliased = _window(placed)
    if high - low >= MOST_PLACES:
        raise OverflowError(f"a product of more than {MOST_PLACES} places")
    spectrum = CharacteristicFunction(high - low + 1)
    for item in placed:
        spectrum.multiply(item.indices, item.masses, item.count)
    masses, numerical = spectrum.masses(low)
    log_scale = math.fsum(item.count * item.log_scale for item in placed)
    farthest = max(abs(low), abs(high))
    shift = math.fsum(item.shift for item in placed) + 4 * EPS * step * farthest
    return LossDistribution(
        step=step,
        first=low,
        # True masses are at least 0: to cut negative ones moves none of them further from the
        # truth.
        masses=np.maximum(masses, 0.0),
        tilt=tilt,
        log_scale=log_scale,
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
    """
    noise = math.fsum(_place(item, step, tilt, 1).noise for item in pairs)
    twist = max(math.sqrt(2 / max(noise, 1e-300)), 2 * (1 + tilt))
    twist = min(twist, 30 / step)
    if twist <= 1 + tilt:
        return lambda x: math.inf  # noqa: ARG005
    right = product(pairs, step=step, tilt=tilt, side=1, twist=twist)
    left = product(pairs, step=step, tilt=tilt, side=1, twist=-twist)

    def gap(x: float) -> float:
        at = x + right.shift + left.shift
        total = 0.0
        for part, distance, rate in (
            (right, right.losses - at, tilt + twist),
            (left, at - left.losses, twist - tilt - 1),
        ):
            for amount in _decayed(part, distance, rate, tilt * at):
                total += amount
        return total * (1 + 1e-9)

    return gap


def _decayed(
    part: LossDistribution, distance: Floats, rate: float, tilted: float
) -> tuple[float, float]:
    """Σ a e^{-r d} (1 - e^{-d}) over the distances d > 0, times e^{K - ``tilted``}: of the masses
    as computed, and an upper bound on what their error can add.
    """
    near = (distance > 0) & (rate * distance < 745)
    d = distance[near]
    unit = _exp(part.log_scale - tilted + part.log_error)
    gains = np.exp(-rate * d) * -np.expm1(-d)
    sums = float(part.masses[near] @ gains)
    return unit * (sums + 1e-300), unit * part.error * math.exp(log_peak(rate))


@dataclass(frozen=True)
class _IndexSum:
    """The law of the sum of all grid indices, by its moments and its parts moved to their means.

    Attributes:
        least, most: its ends.
        mean, deviation: its moments; the deviation is positive.
        centred: for each pair (count, index - mean, log masses).
    """

    least: int
    most: int
    mean: float
    deviation: float
    centred: list[tuple[int, Floats, Floats]]

    @classmethod
    def of(cls, placed: Sequence[_Placed]) -> _IndexSum:
        means = [(item.masses * item.indices).sum(axis=1) for item in placed]
        variances = []
        centred = []
        with np.errstate(divide="ignore"):
            for item, mean in zip(placed, means, strict=True):
                distances = item.indices - mean[:, None]
                squares = (item.masses * distances**2).sum()
                variances.append(item.count * float(squares))
                centred.append((item.count, distances, np.log(item.masses)))
        return cls(
            least=sum(item.count * int(item.indices.min(axis=1).sum()) for item in placed),
            most=sum(item.count * int(item.indices.max(axis=1).sum()) for item in placed),
            mean=math.fsum(
                item.count * float(mean.sum()) for item, mean in zip(placed, means, strict=True)
            ),
            deviation=math.sqrt(math.fsum(variances)) + 1e-9,
            centred=centred,
        )

    def reach(self, s: float) -> float:
        """A distance c from the mean, to the side of the sign of s, beyond which ALIASED / 2 is
        left: P[sign (S - mean) > c] <= exp(K(s) - |s| c), so the least is (K(s) + ln(2 / ALIASED))
        / |s|.
        """
        cumulant = 0.0
        for count, distances, log_masses in self.centred:
            cumulant += count * math.fsum(log_sum(log_masses + s * distances))
        upper = cumulant * (1 + 1e-9) + 1e-9
        return (upper + math.log(2 / ALIASED)) / abs(s)


def _window(placed: Sequence[_Placed]) -> tuple[int, int, float]:
    """First and last grid index worth keeping, and a bound on the tilted mass outside (Chernoff,
    both sides).
    """
    law = _IndexSum.of(placed)
    below, above = (_least(law.reach, sign / law.deviation) * (1 + 1e-9) + 1 for sign in (-1, 1))
    low = max(law.least, math.floor(law.mean - below))
    high = min(law.most, math.ceil(law.mean + above))
    return low, high, 0.0 if (low, high) == (law.least, law.most) else ALIASED


_SLOPES = np.geomspace(0.3, 30, 24).tolist()
_USUAL = 16  # that of a normal law's least reach, about sqrt(2 ln(2 / ALIASED))


def _least(reach: Callable[[float], float], scale: float) -> float:
    """The least reach among the slopes, times ``scale``: it falls and then rises, and is looked for
    downhill.
    """
    at = _USUAL
    least = reach(_SLOPES[_USUAL] * scale)
    for way in (-1, 1):
        while 0 <= at + way < len(_SLOPES) and (found := reach(_SLOPES[at + way] * scale)) < least:
            at = at + way
            least = found
    return least
