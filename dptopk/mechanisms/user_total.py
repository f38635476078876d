"""Caps on what one user adds to all counts together: ``Sensitivity(l1=t)``.

A user adds v_1, v_2, ... to different counts, at most τ to each and t to all. Statements and
proofs: docs/notes/mechanisms.md, "A cap on a user's total".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dptopk._internal.rounding import read_up
from dptopk._internal.tails import union
from dptopk.histogram.histogram import Sensitivity

# Up to this τ all parts of a split are looked at, beyond it the chord of the largest and the
# smallest.
LISTED_PARTS = 64
# Deviations of a sum of losses that matter at δ of about 1e-6.
DEVIATIONS = 4.75


def binds(sensitivity: Sensitivity, touched: int) -> bool:
    """Whether the cap on a user's total says more of that number of counts than linf does."""
    return sensitivity.total(touched) < sensitivity.linf * touched


def as_one(sensitivity: Sensitivity, touched: int, epsilon: float) -> bool:
    """Whether one Laplace cost of a move by the user's total is less than ``touched`` costs of
    moves by linf.

    Both are valid. One cost has the smaller pure ε; many small ones add up more slowly. The
    comparison is an estimate of ε at a δ of 1e-6.

    Args:
        sensitivity: the histogram's.
        touched: how many counts one user touches.
        epsilon: ε of a move by linf.
    """
    if not binds(sensitivity, touched):
        return False
    together = epsilon * sensitivity.total(touched) / sensitivity.linf
    mean_loss = touched * (epsilon + math.expm1(-epsilon))
    apart = mean_loss + DEVIATIONS * epsilon * math.sqrt(touched)
    return together <= min(apart, touched * epsilon)


def move_norm(sensitivity: Sensitivity, touched: int) -> float:
    """Upper bound on the Euclidean norm of what one user adds to a number of counts."""
    return math.sqrt(read_up(Fraction(sensitivity.squares(touched)))) * (1 + 1e-15)


def shown_once(shown: Callable[[int], float], sensitivity: Sensitivity, labels: int) -> float:
    """Upper bound on P[some label is shown] over all splits of a user's total over own labels.

    With h = -ln(1 - shown) that is 1 - e^{-f}, f the largest Σ h(v_i) with v_i from 1 to τ, at most
    ``labels`` of them, Σ v_i <= t. h is convex, so that of m labels all but one have 1 or τ; and
    m - (τ - 1) labels with one τ more change the sum by a constant, so that m is as large or as
    small as it can be, up to τ - 1.

    Args:
        shown: the chance with which a label of count v is shown, v from 1 to linf; convex in v,
            independent of other labels.
        sensitivity: the histogram's.
        labels: how many labels one user has at most.
    """
    largest = shown(sensitivity.linf)
    if not binds(sensitivity, labels) or largest >= 1:
        return union(largest, labels)
    tau = sensitivity.linf
    total = sensitivity.total(labels)
    if tau <= LISTED_PARTS:
        chances = np.array([shown(v) for v in range(1, tau + 1)])
        most = _listed(-np.log1p(-chances), total, labels)
    else:
        most = _chord(-math.log1p(-shown(1)), -math.log1p(-largest), tau, total, labels)
    return min(-math.expm1(-most) * (1 + 1e-12), 1.0)


def _listed(h: np.ndarray[tuple[int], np.dtype[np.float64]], total: int, labels: int) -> float:
    """The largest sum of h over splits; ``h[v - 1]`` is h(v)."""
    tau = len(h)
    fewest = -(-total // tau)
    most = min(labels, total)
    near_fewest = range(fewest, min(fewest + tau, most + 1))
    near_most = range(max(most - tau, fewest), most + 1)
    return max(_of_labels(h, total, m) for m in {*near_fewest, *near_most})


def _of_labels(h: np.ndarray[tuple[int], np.dtype[np.float64]], total: int, m: int) -> float:
    """The largest sum over splits into m parts: as many τ as fit beside ones, and one between."""
    tau = len(h)
    if m * tau <= total:
        return m * float(h[-1])
    whole, rest = divmod(total - m, tau - 1)
    return whole * float(h[-1]) + float(h[rest]) + (m - whole - 1) * float(h[0])


def _chord(smallest: float, largest: float, tau: int, total: int, labels: int) -> float:
    """Upper bound on that sum by the chord of h between 1 and τ, above h as h is convex.

    On the chord the sum is linear in the number of labels, which is from total/τ to the smaller of
    ``labels`` and the total.
    """
    slope = (largest - smallest) / (tau - 1)
    most = min(labels, total)
    of_most = most * smallest + (total - most) * slope
    return max(total / tau * largest, of_most) * (1 + 1e-12)
