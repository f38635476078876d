"""Mixtures of hypothesis tests: test i is drawn with a known probability α_i, and the observer sees which one it is.

The trade-off function of the mixture is the infimal convolution of the scaled ones (Lemma 1), hence convex conjugates
add: f_m* = Σ α_i f_i*. The conjugate of a piecewise linear f has its kinks at the slopes of f, and jumps there by the
widths of the segments. So adding conjugates means to merge the lists of (slope, width), and to conjugate back means to
lay the segments, each scaled by α_i, end to end by rising slope: O(n log n) for n pieces in all. For regions this is
the Minkowski sum Σ α_i F_i (Corollary 1).

Source: Cadir-Najib-Shkel 2025, Lemma 1, Corollary 1, Lemma 2, Propositions 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dptopk import _validate as validate
from dptopk.accounting.curves import Floats
from dptopk.accounting.tradeoff import PiecewiseLinear
from dptopk.errors import InvalidParameter

__all__ = ["conjugate", "mix"]


def mix(functions: Sequence[PiecewiseLinear], weights: Sequence[float]) -> PiecewiseLinear:
    """The trade-off function of the mixture that picks test i with probability ``weights[i]``; exact to rounding.

    Args:
        functions: the trade-off functions f_i.
        weights: α_i >= 0, adding up to 1 (to 1e-9).

    Raises:
        InvalidParameter: when the weights do not match or do not add up to 1.

    >>> steep, flat = (PiecewiseLinear.from_constraints([pair]) for pair in ((1.3, 0.0), (0.5, 0.2)))
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


def conjugate(function: PiecewiseLinear, slope: ArrayLike) -> Floats:
    """The convex conjugate f*(s) = max over t in [0, 1] of s t - f(t), for every s of an array of any shape.

    The maximum is at a vertex: the one between the segments of slopes below and above s (Proposition 4).
    """
    s = np.asarray(slope, dtype=float)
    type_1, type_2 = function.vertices()
    slopes = -np.exp(-function.losses[function.p > 0])  # rising
    at = np.searchsorted(slopes, s)
    values: Floats = s * type_1[at] - type_2[at]
    return values
