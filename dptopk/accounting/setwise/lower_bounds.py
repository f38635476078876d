"""The loss of what a strategy plays first, as atoms from below, for expectations of the value of
what it plays last.

Lower bounds on the conversion of zCDP: laws with two outcomes that satisfy a (ξ, ρ) statement.

P = (p, 1-p) and Q = (p e^{-l}, 1 - p e^{-l}) have D_α(P‖Q), D_α(Q‖P) <= ξ + ρα for every α > 1 if
that holds on a grid of orders with room to spare: D_α rises in α and never exceeds the largest
loss, so between orders α < β it is enough that D_β <= ξ + ρα, and from the order on at which ξ + ρα
reaches the largest loss nothing is left to check. At a given x such a law reaches δ = p (1 -
e^{x-l}).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk._internal.search import bisect
from dptopk.accounting.pld.lattice import product
from dptopk.accounting.pld.loss_components import GaussianLoss, Grid, LossComponent
from dptopk.accounting.pld.pairs import Pairs
from dptopk.accounting.setwise import tuning


@dataclass(frozen=True, slots=True)
class Atoms:
    """A loss distribution as atoms, losses and masses moved down.

    What the atoms carry too much takes at most e^{log_error - order·x} away from δ(x).
    """

    losses: Floats
    masses: Floats
    log_error: float = -math.inf
    order: float = 1.0

    @classmethod
    def of(
        cls, parts: Sequence[LossComponent], grid: Grid, log_chernoff: float, merge: float
    ) -> Atoms:
        """The product of pairs on a grid from below, where the value to come is V(x) <=
        e^{log_chernoff - grid.tilt·x}.

        Atoms less than about ``merge`` apart are then merged.

        A tilted mass a, wherever it is, is worth at most a e^{K - θl} V(x - l) <= a e^{K +
        log_chernoff - θx}.
        """
        pairs = [pair for part in parts for pair in part.pairs(grid)]
        # In logarithms: a million copies of a wide pair have a number of sums that takes long to
        # write down.
        log_sums = math.fsum(_log_sums(pair) for pair in pairs)
        few = log_sums <= math.log(max(tuning.LISTED, 0.5)) + 1e-9
        if few and not any(isinstance(part, GaussianLoss) for part in parts):
            return cls._listed(pairs, grid, log_chernoff)
        law = product(pairs, step=grid.step, tilt=grid.tilt, side=grid.side)
        log_masses = law.log_masses
        kept = law.masses > 0
        masses = np.exp(log_masses[kept] - law.log_error - 64 * ROUNDOFF)
        log_error = math.log(law.error) + law.log_scale + log_chernoff + law.log_error + 1e-9
        return cls(*_merged(law.losses[kept] - law.shift, masses, merge), log_error, law.tilt)

    @classmethod
    def _listed(cls, pairs: Sequence[Pairs], grid: Grid, log_chernoff: float) -> Atoms:
        """All sums of losses of a few small pairs, off any grid."""
        losses = np.zeros(1)
        log_masses = np.zeros(1)
        loss_error = 0.0
        log_error = 0.0
        missing = 0.0
        scale = log_chernoff
        for pair in pairs:
            losses, log_masses = _all_sums(losses, log_masses, pair)
            rounds = pair.count * len(pair.losses)
            largest_loss = float(np.abs(losses).max())
            loss_error += rounds * (pair.loss_error + 4 * ROUNDOFF * largest_loss)
            largest_log = float(np.abs(log_masses).max())
            log_error += rounds * (float(np.max(pair.log_error)) + 4 * ROUNDOFF * (1 + largest_log))
            missing += rounds * pair.error
            scale += pair.log_mgf(grid.tilt)
        masses = np.exp(log_masses - log_error - 64 * ROUNDOFF)
        error = math.log(missing) + scale + log_error + 1e-9 if missing else -math.inf
        return cls(losses - loss_error, masses, error, grid.tilt)

    def error(self, x: Floats) -> Floats:
        """Bound on what the atoms leave out."""
        with np.errstate(over="ignore"):
            bounds: Floats = np.exp(self.log_error - self.order * x)
        return bounds


def _log_sums(pair: Pairs) -> float:
    """The logarithm of how many sums of losses a pair has, all its copies together."""
    return len(pair.losses) * pair.count * math.log(pair.losses.shape[1])


def _all_sums(losses: Floats, log_masses: Floats, pair: Pairs) -> tuple[Floats, Floats]:
    """Every loss plus every sum of losses of a pair, with the products of their masses."""
    for row, row_masses in zip(pair.losses, pair.log_masses, strict=True):
        for _ in range(pair.count):
            losses = np.add.outer(losses, row).ravel()
            log_masses = np.add.outer(log_masses, row_masses).ravel()
    return losses, log_masses


def _merged(losses: Floats, masses: Floats, width: float) -> tuple[Floats, Floats]:
    """Neighbouring outcomes merged into one: post-processing, hence a lower bound, off to second
    order only.

    The merged outcome has mass Σ p under P and Σ p e^{-l} under Q.
    """
    starts = np.flatnonzero(np.diff(np.floor(losses / width), prepend=-np.inf))
    sizes = np.diff(starts, append=len(losses))
    first = losses[starts]
    within = losses - np.repeat(first, sizes)
    total = np.add.reduceat(masses, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        under_q = np.add.reduceat(masses * np.exp(-within), starts)
        shift = -np.log(under_q / total)
    rounding = 8 * ROUNDOFF * (2 + sizes + np.abs(first))
    merged = first + np.where(total > 0, np.maximum(shift, 0.0), 0.0) - rounding
    return merged, total * (1 - rounding)


ROUNDING = (
    1e-11  # of a divergence times its order, absolute and relative; far above that of the formulas
)


def two_outcomes_delta(rho: float, xi: float, x: float) -> float:
    """A lower bound on the largest δ at ε = x of a mechanism that is (ξ, ρ)-zCDP, in both
    directions.

    Args:
        rho: ρ > 0.
        xi: ξ >= 0.
        x: ε >= 0.

    >>> 9.8e-7 < two_outcomes_delta(0.125, 0.0, 2.419) < 1e-6  # CKS20: 1.0e-6
    True
    """
    extra = np.geomspace(0.03, 6.0, tuning.TRIED_LOSSES) * math.sqrt(rho)
    loss = x + extra
    excess = np.maximum(loss - xi - rho, 0.0)
    log_p = -np.maximum(excess**2 / (4 * rho), 1e-3)  # at most about this much
    worth = np.log(-np.expm1(-extra))
    best = -math.inf
    for at in np.argsort(-(log_p + worth)):
        if log_p[at] + worth[at] <= best:
            break
        log_mass = largest_log_mass(rho, xi, float(loss[at]), float(log_p[at]))
        best = max(best, log_mass + float(worth[at]))
    return math.exp(best) * (1 - 1e-12)


def largest_log_mass(rho: float, xi: float, loss: float, log_p: float) -> float:
    """A ln p, not above the one given, with which the law satisfies the statement; -inf if none is
    found.
    """
    orders = _orders(rho, xi, loss)

    def holds(at: float) -> bool:
        return _satisfies(rho, xi, loss, at, orders)

    if holds(log_p):
        return log_p
    least = next((log_p - below for below in range(2, 60, 4) if holds(log_p - below)), -math.inf)
    if least > -math.inf:
        return bisect(holds, least, min(least + 4, log_p), halvings=tuning.HALVINGS)[0]
    return least


def _orders(rho: float, xi: float, loss: float) -> Floats:
    """α - 1 from almost 0 to where ξ + ρα reaches the largest loss; dense where the statement is
    tightest.
    """
    last = max(loss / rho, 4.0) * 1.001
    tightest = max((loss - xi - rho) / (2 * rho), 1e-4)
    low = min(tightest / 1.7, last / 2)
    high = min(tightest * 1.7, last)
    log_ratio = max(math.log(low / 1e-6), 1.0)
    far_below = np.geomspace(1e-6, low, math.ceil(log_ratio / tuning.ORDER_STEP_FAR))
    near = np.geomspace(low, high, math.ceil(math.log(high / low) / tuning.ORDER_STEP_NEAR) + 2)
    far_above = np.geomspace(
        high, last, math.ceil(math.log(last / high) / tuning.ORDER_STEP_FAR) + 2
    )
    return np.unique(np.concatenate([far_below, near, far_above]))


def _satisfies(rho: float, xi: float, loss: float, log_p: float, orders: Floats) -> bool:
    """Whether both divergences are at most ξ + ρα at every order."""
    log_q = log_p - loss
    rest_p = math.log(-math.expm1(log_p))
    rest_q = math.log(-math.expm1(log_q))
    allowed = xi + rho * (1 + np.append(0.0, orders[:-1]))
    largest = max(loss, abs(rest_p - rest_q)) * (1 + ROUNDING)
    if xi + rho * (1 + orders[-1]) < largest:
        return False
    for a, b, rest_a, rest_b in ((log_p, log_q, rest_p, rest_q), (log_q, log_p, rest_q, rest_p)):
        divergence = _divergence(a, b, rest_a, rest_b, orders)
        if (np.minimum(divergence, largest) > allowed).any():
            return False
    return True


def _divergence(a: float, b: float, rest_a: float, rest_b: float, orders: Floats) -> Floats:
    """Rényi divergences of order 1 + ``orders`` between laws with two outcomes, rounded up.

    ``a`` and ``b`` are the logarithms of the masses of the first outcome under either law,
    ``rest_a`` and ``rest_b`` those of the second.
    """
    alpha = 1 + orders
    moments = logsumexp([alpha * a - orders * b, alpha * rest_a - orders * rest_b], axis=0)
    exponents = 1 + np.abs(alpha * a) + np.abs(orders * b)
    divergences: Floats = (moments + ROUNDING * exponents * 1e-3) / orders
    return divergences
