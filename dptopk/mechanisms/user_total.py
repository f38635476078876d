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

# Up to this τ the sum is maximised over all sizes of the parts of a split; above it, it is bounded
# by the chord between the smallest and the largest part.
LISTED_PARTS = 64
# The normal quantile of 1 - 1e-6: the deviations of a sum of losses that matter at that δ.
DEVIATIONS = 4.75
# Relative, each above the rounding it covers: of a square root, and of a sum of up to LISTED_PARTS
# terms and the exponential of it.
ROOT_ROUNDING = 1e-15
SUM_ROUNDING = 1e-12


def cap_binds(sensitivity: Sensitivity, touched: int) -> bool:
    """Return whether the cap on a user's total is below linf times the number of counts that the
    user touches, so that it makes a difference.
    """
    return sensitivity.total(touched) < sensitivity.linf * touched


def one_cost_is_less(sensitivity: Sensitivity, touched: int, epsilon: float) -> bool:
    """Return whether one Laplace cost of a move by the user's total is likely to be less than
    ``touched`` costs of moves by linf.

    Both are valid. One cost has the smaller pure ε; many small ones add up more slowly. The
    comparison is an estimate of ε at a δ of 1e-6.

    Args:
        sensitivity: the histogram's.
        touched: how many counts one user touches.
        epsilon: ε of a move by linf.
    """
    if not cap_binds(sensitivity, touched):
        return False
    joint_epsilon = epsilon * sensitivity.total(touched) / sensitivity.linf
    # The loss of Laplace noise that is moved by ε scales is from -ε to ε, so that its deviation is
    # at most ε; its mean is ε - 1 + e^{-ε}.
    mean_loss = touched * (epsilon + math.expm1(-epsilon))
    separate_epsilon = mean_loss + DEVIATIONS * epsilon * math.sqrt(touched)
    return joint_epsilon <= min(separate_epsilon, touched * epsilon)


def move_norm(sensitivity: Sensitivity, touched: int) -> float:
    """Return an upper bound on the Euclidean norm of one user's contribution to ``touched``
    counts.
    """
    # The root of a number that is rounded up is off by half an ulp.
    return math.sqrt(read_up(Fraction(sensitivity.squares(touched)))) * (1 + ROOT_ROUNDING)


def chance_to_show_any(
    shown: Callable[[int], float], sensitivity: Sensitivity, labels: int
) -> float:
    """Return an upper bound on P[some label is shown], over all ways in which a user splits the
    total over labels that nobody else has.

    A user gives counts v_1, v_2, ... to at most ``labels`` labels, each from 1 to linf, together at
    most the total. No label is shown with probability Π (1 - shown(v_i)) = e^{-Σ h(v_i)}, where
    h(v) = -ln(1 - shown(v)); so the answer is 1 - e^{-f} with f the largest Σ h(v_i). For linf up
    to LISTED_PARTS that sum is maximised (``_largest_sum``), else it is bounded (``_chord_bound``).

    Args:
        shown: the chance with which a label of count v is shown, v from 1 to linf; convex in v,
            independent of other labels.
        sensitivity: the histogram's.
        labels: how many labels one user has at most.
    """
    largest = shown(sensitivity.linf)
    if not cap_binds(sensitivity, labels) or largest >= 1:
        return union(largest, labels)
    tau = sensitivity.linf
    total = sensitivity.total(labels)
    if tau <= LISTED_PARTS:
        chances = np.array([shown(v) for v in range(1, tau + 1)])
        largest_sum = _largest_sum(-np.log1p(-chances), total, labels)
    else:
        h_one = -math.log1p(-shown(1))
        h_tau = -math.log1p(-largest)
        largest_sum = _chord_bound(h_one, h_tau, tau, total, labels)
    return min(-math.expm1(-largest_sum) * (1 + SUM_ROUNDING), 1.0)


def _largest_sum(h: np.ndarray[tuple[int], np.dtype[np.float64]], total: int, labels: int) -> float:
    """Return the largest Σ h(v_i) over splits of ``total`` into at most ``labels`` parts v_i from 1
    to τ; ``h[v - 1]`` is h(v).

    As h is convex, m parts do best if all but one of them are 1 or τ. With τ - 1 parts fewer, τ
    parts of 1 become one part of τ, which changes the sum by h(τ) - τ h(1) whatever m is. So it
    pays to go on in one direction: only numbers of parts within τ of the fewest or of the most
    possible are tried.

    Args:
        h: convex, shape (τ,).
        total: the sum of the parts.
        labels: the most parts; at least total/τ.
    """
    tau = len(h)
    fewest_parts = -(-total // tau)
    most_parts = min(labels, total)
    near_fewest = range(fewest_parts, min(fewest_parts + tau, most_parts + 1))
    near_most = range(max(most_parts - tau, fewest_parts), most_parts + 1)
    return max(_largest_sum_of(m, h, total) for m in {*near_fewest, *near_most})


def _largest_sum_of(m: int, h: np.ndarray[tuple[int], np.dtype[np.float64]], total: int) -> float:
    """Return the largest Σ h(v_i) over splits of ``total`` into m parts v_i from 1 to τ.

    As h is convex, it is attained by as many parts of τ as possible, at most one part in between,
    and ones.

    Args:
        m: the number of parts, from total/τ to ``total``.
        h: as for ``_largest_sum``.
        total: the sum of the parts.
    """
    tau = len(h)
    if m * tau <= total:  # all parts can be τ
        return m * float(h[-1])
    # Each part has 1; what is left of the total fills one part after the other.
    full_parts, excess = divmod(total - m, tau - 1)
    return full_parts * float(h[-1]) + float(h[excess]) + (m - full_parts - 1) * float(h[0])


def _chord_bound(h_one: float, h_tau: float, tau: int, total: int, labels: int) -> float:
    """Return an upper bound on the largest Σ h(v_i) over splits of ``total``, by the chord between
    h(1) and h(τ), which is above h because h is convex.

    On the chord, h(v) = h(1) + slope·(v - 1), m parts of sum ``total`` have the sum m h(1) + slope
    (total - m). That is linear in m, which is from total/τ to the smaller of ``labels`` and the
    total; so it is largest at one of these ends.

    Args:
        h_one: h(1), or an upper bound on it.
        h_tau: h(τ), or an upper bound on it.
        tau: τ, the most that the user adds to one label, at least 2.
        total: what the user adds to all labels together.
        labels: the most labels of the user.
    """
    slope = (h_tau - h_one) / (tau - 1)
    most_labels = min(labels, total)
    at_most_labels = most_labels * h_one + (total - most_labels) * slope
    return max(total / tau * h_tau, at_most_labels) * (1 + SUM_ROUNDING)
