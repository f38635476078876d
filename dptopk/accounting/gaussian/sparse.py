"""The largest δ of a histogram of private labels with discrete Gaussian noise over a fixed
threshold.

One user touches at most n labels, j of them with counts of others and m = n - j alone. The j pairs
are those of the discrete Gaussian; a label that is the user's own is hidden with probability h = 1
- q, where q = P[noise > threshold - shift], and hidden for sure without them. With D_j the δ of j
discrete Gaussians,

    add:    1 - h^m + h^m D_j(x + m |ln h|),        remove:    D_j(x - m |ln h|),

and the mechanism's δ at x is the largest over j and both directions. The proof is in
docs/notes/sparse-gaussian.md.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dptopk._internal.rounding import Floats, outward
from dptopk._internal.tails import gaussian_tail
from dptopk.accounting.cost_models.pure_dp import stated_model
from dptopk.accounting.curves import Curve
from dptopk.accounting.gaussian.discrete import discrete_gaussian_curve
from dptopk.costs import Cost, DiscreteGaussianDP, SparseGaussianDP
from dptopk.errors import InvalidParameter

# Of more labels than this, splits are looked at in ranges of j, each at its worse ends; but the
# last few one by one.
MOST_SPLITS = 24
LAST_SPLITS = 6
# Sums of discrete Gaussians wider than this are bounded by the continuous one: their δ's differ by
# about width^-2.
LISTED_SCALE = 400.0
# ln δ falls by about this between two of the statements; its chord is too large by a share of
# (STEP²)/8.
LOG_DELTA_STEP = 0.03
# At most this many statements below ε = μ²/2, where the noise is as good as none.
MOST_BEFORE_MEAN = 1000
SMALLEST_DELTA = 1e-40  # statements go down to about this δ, unless 1 - h^n is larger
FLAT = 1e-9  # relative: where δ is this close to its last value the curve is flat


def sparse_gaussian_delta(
    epsilon: Floats, scale: float, shift: int, threshold: int, labels: int
) -> Floats:
    """Return an upper bound on δ at every ε >= 0 of an array; it is exact but for its rounding
    while labels <= MOST_SPLITS.

    Args:
        epsilon: shape (n,).
        scale: of the noise, absolute.
        shift: the most that one user moves a count.
        threshold: counts are shown above it; at least ``shift``.
        labels: how many counts one user moves at most.

    Raises:
        InvalidParameter: where the discrete Gaussian is too narrow for that many labels.

    >>> float(sparse_gaussian_delta(np.array([1.0]), 9.45, 1, 49, 5)[0].round(10))
    9.927e-07
    """
    log_hidden = math.log1p(-gaussian_tail(scale, threshold - shift))
    # Where j = 0 the user's own labels are all there is: δ = 1 - h^n at every ε.
    worst = np.full(epsilon.shape, -math.expm1(labels * log_hidden))
    previous_j = 0
    for j in _bounded_splits(labels):
        # All splits with previous_j < j' <= j at once: at most j labels of others, and at most m of
        # the user's own; δ grows in both.
        m = labels - previous_j - 1
        previous_j = j
        curve = discrete_gaussian_curve(scale, shift, j, listed=LISTED_SCALE)
        worst = np.maximum(worst, _delta_of_split(epsilon, curve, m * log_hidden))
    return np.minimum(outward(worst), 1.0)


def _delta_of_split(epsilon: Floats, curve: Curve, log_hidden: float) -> Floats:
    """Return δ of one split at every ε, the larger one of the two formulas of the module docstring,
    for a user who is added and for one who is removed.

    Args:
        epsilon: shape (n,).
        curve: D_j, of the labels that others have too.
        log_hidden: m ln h, the logarithm of the chance that all of the user's own labels are
            hidden.
    """
    moved_left = epsilon + log_hidden
    on_right, on_left = curve.delta(np.stack([epsilon - log_hidden, np.abs(moved_left)]))
    added = -math.expm1(log_hidden) + math.exp(log_hidden) * on_right
    # δ(y) = 1 - e^y + e^y δ(-y) for y < 0: one discrete Gaussian is the other's mirror image.
    before_zero = np.minimum(moved_left, 0.0)
    removed = np.exp(before_zero) * on_left - np.expm1(before_zero)
    larger: Floats = np.maximum(added, removed)
    return larger


def _bounded_splits(labels: int) -> list[int]:
    """Return the numbers j >= 1, rising to ``labels``, at which a split is bounded: j of the labels
    are counted for others too. The split with none is bounded apart.
    """
    if labels <= MOST_SPLITS:
        return list(range(1, labels + 1))
    last = labels - LAST_SPLITS  # above 2^53 no float may stand for more labels than there are
    evenly = np.linspace(1, float(last), MOST_SPLITS - LAST_SPLITS).tolist()
    ranges = {min(round(j), last) for j in evenly}
    return sorted({*ranges, *range(labels - LAST_SPLITS, labels + 1)})


@lru_cache(maxsize=512)
def sparse_gaussian_statements(
    scale: float, shift: int, threshold: int, labels: int
) -> tuple[tuple[float, float], ...]:
    """Return several hundred (ε, δ), by falling ε, for all of which the mechanism is (ε, δ)-DP; the
    chords between them are above its curve by a share of about LOG_DELTA_STEP²/8.

    Args:
        scale: of the noise, absolute.
        shift: the most that one user moves a count.
        threshold: counts are shown above it; at least ``shift``.
        labels: how many counts one user moves at most.

    Raises:
        InvalidParameter: for noise so narrow that ε would overflow, or as
            ``sparse_gaussian_delta``.
    """
    mu = shift * math.sqrt(labels) / scale
    log_hidden = math.log1p(-gaussian_tail(scale, threshold - shift))
    floor = max(-math.expm1(labels * log_hidden), SMALLEST_DELTA)
    # δ is about e^{-z²/2} at ε = μ²/2 + μz, or less: these are the z², up to where it is e times
    # below the floor.
    squares = np.arange(0.0, -2 * math.log(floor) + 2, 2 * LOG_DELTA_STEP)
    if not math.isfinite(mu * mu):
        raise InvalidParameter(
            f"sigma is too small for l0 = {labels}: no finite epsilon bounds the loss"
        )
    mean = mu * mu / 2
    below_mean = np.linspace(0.0, mean, min(math.ceil(mu), MOST_BEFORE_MEAN) + 1)[:-1]
    epsilons = np.concatenate([below_mean, mean + mu * np.sqrt(squares)])
    deltas = sparse_gaussian_delta(epsilons, scale, shift, threshold, labels)
    # Where δ has come down to its last value, larger ε's say no more.
    last = int(np.argmax(deltas <= deltas[-1] * (1 + FLAT))) + 1
    return tuple(zip(epsilons[:last].tolist(), deltas[:last].tolist(), strict=True))[::-1]


def _statements(cost: SparseGaussianDP) -> tuple[tuple[float, float], ...]:
    """Return the statements of a cost with δ < 1: with little noise δ rounds up to 1 at small ε.

    Raises:
        InvalidParameter: where none is left.
    """
    statements = sparse_gaussian_statements(cost.scale, cost.shift, cost.threshold, cost.labels)
    informative = [(epsilon, delta) for epsilon, delta in statements if delta < 1]
    if not informative:
        raise InvalidParameter(
            f"{cost} promises nothing: a label that one user alone has is almost always shown; "
            f"give a higher threshold"
        )
    return tuple(informative)


def _covers(token: SparseGaussianDP, cost: Cost) -> bool:
    """Return whether the cost has the same noise as the token, with at most as many labels, moves
    at most as large, and a threshold at least as far above the move; or is one count of the same
    noise.
    """
    if isinstance(cost, DiscreteGaussianDP):
        return cost.scale == token.scale and cost.shift <= token.shift
    return (
        isinstance(cost, SparseGaussianDP)
        and cost.scale == token.scale
        and cost.shift <= token.shift
        and cost.labels <= token.labels
        and cost.threshold - cost.shift >= token.threshold - token.shift
    )


MODELS = (
    stated_model(
        SparseGaussianDP,
        _statements,
        _covers,
        no_counterpart="thresholded counts have no counterpart",
    ),
)
