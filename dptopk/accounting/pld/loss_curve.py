"""The privacy curve of a discrete privacy loss distribution: both directions in closed form, with
certified rounding.

Let the loss take the values x_0 < x_1 < ... with masses p_j. The privacy profile δ(x) = Σ_j p_j (1
- e^{x - x_j})_+ is linear in e^x between the losses. With the suffix sums

    G_j = Σ_{l >= j} p_l e^{x_j - x_l},        D_j = δ(x_j) = Σ_{m > j} (1 - e^{x_{m-1} - x_m}) G_m

it is δ(x) = D_j + (1 - e^{x - x_j}) G_j for x_{j-1} <= x <= x_j. Every term is positive: nothing
cancels, however small the losses, and either direction is one search among the D_j. All sums are
kept as logarithms, with a running bound on their relative error (the weighted mean of the terms'
errors, plus each addition's own).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal.rounding import EPS, Floats, exp_up, outward
from dptopk.accounting.curves import Answer, Curve, Query


class _SuffixSums(NamedTuple):
    """The sums of the module docstring, from which δ follows at every ε; all of shape (n,).

    Attributes:
        losses: x_j, ascending, those below 0 left out.
        log_g: ln G_j.
        log_d: ln D_j, the logarithm of δ(x_j).
        error: bounds on the absolute errors of both logarithms.
    """

    losses: Floats
    log_g: Floats
    log_d: Floats
    error: Floats


class LossCurve(Curve):
    """The privacy profile of a finite loss distribution.

    Args:
        losses: shape (n,), n >= 1, ascending, finite.
        log_masses: shape (n,), logarithms of the masses, finite.
        log_error: bound on the absolute error of ``log_masses``, a number or shape (n,).
        loss_error: bound on the absolute error of ``losses``.
        tail: mass at +inf, added to every δ.
        epsilon_max: an ε from which on δ is at most the tail; default: the largest loss.
        exact: whether the distribution is a worst case that some mechanism attains: then δ moved
            inward is a proven lower bound, and ``answer`` reports it.
    """

    def __init__(
        self,
        losses: Floats,
        log_masses: Floats,
        *,
        log_error: float | Floats = 0.0,
        loss_error: float = 0.0,
        tail: float = 0.0,
        epsilon_max: float | None = None,
        exact: bool = False,
    ) -> None:
        """Store the law; its sums are computed when they are first needed."""
        self._losses = losses
        self._log_masses = log_masses
        self._log_error = log_error
        # The error of a loss, and of a difference of a loss and an ε.
        self._shift = loss_error + 4 * EPS * float(np.abs(losses).max())
        self._tail = tail
        if epsilon_max is None:
            epsilon_max = max(float(losses[-1]) + self._shift, 0.0)
        self._epsilon_max = epsilon_max
        self._exact = exact

    @cached_property
    def _sums(self) -> _SuffixSums:
        """Return the suffix sums of the losses that matter, computed when this is first called."""
        # Losses below 0 by more than their error do not matter at any ε >= 0.
        from_0_on = slice(int(np.searchsorted(self._losses, -2 * self._shift)), None)
        x = self._losses[from_0_on]
        log_p = self._log_masses[from_0_on]
        if x.size == 0:
            return _SuffixSums(x, x, x, x)
        error = self._log_error
        if isinstance(error, np.ndarray):
            error = error[from_0_on]
        log_q = log_p - x
        sums, error = _suffix_log_sums(log_q, error + EPS * (np.abs(log_q) + np.abs(log_p) + 1))
        log_g = sums + x
        error = error + EPS * (np.abs(sums) + np.abs(log_g))
        log_d = np.full(x.shape, -np.inf)
        if x.size > 1:
            # Equal losses (gap 0) get a gap that is too small to change a sum.
            log_steps = _log_below_1(-np.maximum(np.diff(x), 1e-300))
            steps = log_steps + log_g[1:]
            rounding = EPS * (np.abs(log_steps) + np.abs(steps) + 4)
            log_d[:-1], error_d = _suffix_log_sums(steps, error[1:] + rounding)
            error = np.maximum(error, np.append(error_d, 0.0))
        return _SuffixSums(x, log_g, log_d, error)

    def _log_delta(self, epsilon: Floats, side: int) -> Floats:
        """Return a bound on ln(δ - tail) at each ε: an upper one (``side`` = 1) or a lower one
        (``side`` = -1).
        """
        x, log_g, log_d, error = self._sums
        moved = epsilon - side * self._shift  # to the left, where δ is larger, for an upper bound
        if x.size == 0:
            return np.full(moved.shape, -np.inf)
        j = np.minimum(np.searchsorted(x, moved, side="right"), x.size - 1)
        with np.errstate(divide="ignore"):
            chord = _log_below_1(np.minimum(moved - x[j], 0.0))
        value = np.logaddexp(log_d[j], log_g[j] + chord)
        # What is left to round: this addition, the chord, and the exponential that the caller
        # takes.
        finite = np.where(value > -np.inf, value, 0.0)
        value = value + side * (error[j] + 4 * EPS * (np.abs(finite) + 2))
        return np.where(epsilon >= self._epsilon_max, -np.inf, np.minimum(value, 0.0))

    def _delta(self, epsilon: ArrayLike, side: int) -> Floats:
        """Return a bound on δ at each ε: an upper one (``side`` = 1) or a lower one without the
        tail (``side`` = -1).
        """
        x = np.asarray(epsilon, dtype=float)
        log_delta = self._log_delta(x.ravel(), side)
        if side < 0:
            with np.errstate(under="ignore"):
                # The exponential alone: the error of its argument is in ``_log_delta``.
                return (np.exp(log_delta) * (1 - 8 * EPS)).reshape(x.shape)
        return np.minimum(outward(exp_up(log_delta) + self._tail), 1.0).reshape(x.shape)

    def _epsilon(self, delta: ArrayLike, side: int) -> Floats:
        """Return a bound on the smallest ε with δ(ε) <= ``delta``, for each δ: an upper one
        (``side`` = 1) or a lower one (``side`` = -1).
        """
        target = np.asarray(delta, dtype=float).ravel()
        if side > 0:
            target = self._without_tail(target)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_target = np.log(np.maximum(target, 0.0))
            # Moved by more than its rounding: down for a larger ε, up for a smaller one.
            log_target = log_target - side * 4 * EPS * (1 + np.abs(log_target))
            log_target = np.where(target > 0, log_target, -np.inf)
            epsilons = np.maximum(self._crossings(log_target, side) + side * self._shift, 0.0)
        epsilons = np.minimum(epsilons, self._epsilon_max)
        # δ = 0 is reached at the largest loss, and a δ that does not exceed the tail nowhere.
        epsilons = np.where(target == 0, self._epsilon_max, epsilons)
        epsilons = np.where(target < 0, np.inf, epsilons)
        return epsilons.reshape(np.shape(delta))

    def _without_tail(self, delta: Floats) -> Floats:
        """Return δ - tail for each δ, rounded down; -1 where δ does not exceed a tail, so that no ε
        is large enough. Without a tail δ = 0 stays 0: it is reached at the largest loss.
        """
        delta_left = np.where(delta > self._tail, np.nextafter(delta - self._tail, 0), -1.0)
        if self._tail:
            return delta_left
        return np.maximum(delta_left, 0.0)

    def _crossings(self, log_delta: Floats, side: int) -> Floats:
        """Return the ε at which the curve without its tail, moved up (``side`` = 1) or down (-1) by
        its error, falls to each δ; the errors of the losses are left to the caller.

        Args:
            log_delta: ln δ of each δ, shape (n,).
            side: 1 or -1.
        """
        x, log_g, log_d, error = self._sums
        if x.size == 0:
            return np.zeros(log_delta.shape)
        # Monotone again after the error is added; the last entry, δ = 0, ends every search.
        log_d = np.maximum.accumulate((log_d + side * error)[::-1])[::-1]
        j = np.searchsorted(-log_d, -log_delta)
        j = np.minimum(j, x.size - 1)
        # e^{x - x_j} = 1 - (δ - D_j) / G_j
        log_difference = log_delta + _log_below_1(np.minimum(log_d[j] - log_delta, 0.0))
        ratio = np.exp(np.minimum(log_difference - (log_g[j] + side * error[j]), 0.0))
        crossings = x[j] + np.log1p(-np.where(np.isnan(ratio), 0.0, ratio))
        previous = np.where(j > 0, x[np.maximum(j - 1, 0)], -np.inf)
        return np.clip(crossings, previous, x[j])

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Return an upper bound on δ for every ε; a positive δ never underflows to 0."""
        return self._delta(epsilon, 1)

    def epsilon(self, delta: ArrayLike) -> Floats:
        """Return an upper bound on ε for every δ; inf for a δ below the tail's mass."""
        # 4 EPS are for the last sums, of a loss, a logarithm and the shift.
        bounded: Floats = outward(self._epsilon(delta, 1), 4 * EPS)
        if not self._tail:  # δ = 0 from there on
            return np.minimum(bounded, self._epsilon_max)
        return bounded

    def delta_lower(self, epsilon: ArrayLike) -> Floats:
        """Return a lower bound on the δ of this loss distribution, without its tail, for
        every ε.
        """
        return self._delta(epsilon, -1)

    def epsilon_lower(self, delta: ArrayLike) -> Floats:
        """Return a lower bound on the ε of this loss distribution, without its tail, for
        every δ.
        """
        return np.maximum(self._epsilon(delta, -1) * (1 - 4 * EPS), 0.0)

    def answer(self, query: Query) -> Answer:
        """Return the upper bound on the answer and, for an exact curve, the lower one."""
        upper = Curve.answer(self, query)
        if not self._exact:
            return upper
        if query.epsilon is not None:
            lower = float(self.delta_lower(query.epsilon))
        else:
            lower = float(self.epsilon_lower(query.delta_below))
        return Answer(upper.value, min(lower, upper.value))


def _log_below_1(exponent: Floats) -> Floats:
    """Return ln(1 - e^x) for every x <= 0."""
    return np.log(-np.expm1(exponent))


def _suffix_log_sums(log_terms: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Return ln Σ_{m >= j} e^{t_m} for every j, and bounds on the absolute errors of these
    logarithms.

    Adding a term rounds by at most EPS (|sum| + 4) in the logarithm. An error of relative size e in
    a part of a sum is an error of that part's share times e in the whole, so the errors, weighted
    by their parts, sum the same way.

    Args:
        log_terms: t_m.
        errors: bounds on the errors of t_m, shape as ``log_terms``.
    """
    sums = np.logaddexp.accumulate(log_terms[::-1])[::-1]
    log_rounding = np.log(EPS * (np.abs(sums) + 4))
    weighted = np.logaddexp(log_terms + np.log(errors), sums + log_rounding)
    total = np.logaddexp.accumulate(weighted[::-1])[::-1]
    # A hundredth covers the rounding of the error bounds themselves; e^700 is a float.
    return sums, 1.01 * np.exp(np.minimum(total - sums, 700.0))
