"""δ(ε) of charges by brute force from the worst-case pairs: an oracle that shares no code with the
accounting.
"""

from __future__ import annotations

import math

import numpy as np

from dptopk.costs import (
    ZCDP,
    BoundedRange,
    DiscreteGaussianDP,
    DiscreteLaplaceDP,
    ExponentialClockDP,
    GaussianDP,
    PureDP,
    SparseGaussianDP,
)


def delta_of(charge, epsilon):
    """The smallest δ that the charge promises at ε (ZCDP: an upper bound on it); takes one kind of
    cost at a time.
    """
    if epsilon == math.inf and not any(isinstance(cost, SparseGaussianDP) for cost in charge.costs):
        return (
            charge.delta
            if all(
                isinstance(cost, PureDP | BoundedRange | DiscreteLaplaceDP | ExponentialClockDP)
                for cost in charge.costs
            )
            else math.nan
        )
    if not charge.costs:
        return charge.delta
    ((cost, times),) = charge.costs.items()
    return charge.delta + ORACLES[type(cost)](cost, times, epsilon)


def _pure(cost, times, epsilon):
    """Kairouz-Oh-Viswanath: ``times`` copies of randomised response."""
    p = 1 / (1 + math.exp(-cost.epsilon))
    terms = (
        math.comb(times, i)
        * p**i
        * (1 - p) ** (times - i)
        * -math.expm1(epsilon - (2 * i - times) * cost.epsilon)
        for i in range(times + 1)
        if (2 * i - times) * cost.epsilon > epsilon
    )
    return math.fsum(terms)


def _bounded_range(cost, times, epsilon):
    """The adaptive recursion over the adversary's t, on a fine grid of t (the step is far below the
    tolerance).
    """
    t = np.linspace(0, cost.epsilon, 401)
    q = np.expm1(t - cost.epsilon) / math.expm1(-cost.epsilon)

    def value(x, left):
        if left == 0:
            return np.maximum(-np.expm1(x), 0.0)
        x = np.asarray(x)[..., None]
        return (q * value(x - t, left - 1) + (1 - q) * value(x + cost.epsilon - t, left - 1)).max(
            axis=-1
        )

    return float(value(np.float64(epsilon), times))


def _discrete_gaussian(cost, times, epsilon):
    """The loss is linear in the sum of the noise, whose law is a convolution."""
    reach = math.ceil(12 * cost.scale) + cost.shift + 1
    n = np.arange(-reach, reach + 1)
    one = np.exp(-((n / cost.scale) ** 2) / 2)
    one /= one.sum()
    total, sums = np.array([1.0]), 0
    for _ in range(times):
        total, sums = np.convolve(total, one), sums + reach
    # Under P the noise has mean 0, under Q mean -shift: loss = (2·shift·S + times·shift²)/(2
    # scale²).
    s = np.arange(-sums, sums + 1)
    loss = (2 * cost.shift * s + times * cost.shift**2) / (2 * cost.scale**2)
    return float((total * np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0)).sum())


def _sparse_gaussian(cost, times, epsilon):
    """The pairs of every split of the labels, as lists of outcomes; the larger of adding and
    removing.
    """
    assert times == 1
    reach = math.ceil(12 * cost.scale) + cost.shift + 1
    n = np.arange(-reach, reach + 1)
    one = np.exp(-((n / cost.scale) ** 2) / 2)
    one /= one.sum()
    shown = one[n + cost.shift > cost.threshold].sum()
    worst = 0.0
    for own in range(cost.labels + 1):
        shared = cost.labels - own
        total, sums = np.array([1.0]), 0
        for _ in range(shared):
            total, sums = np.convolve(total, one), sums + reach
        s = np.arange(-sums, sums + 1)
        ratio = (
            np.exp((2 * cost.shift * s - shared * cost.shift**2) / (2 * cost.scale**2))
            if shared
            else np.ones(1)
        )
        hidden = (1 - shown) ** own
        with_user = (
            total * ratio * hidden
        )  # the sum of the noise of the shared labels, the own ones hidden
        if epsilon == math.inf:
            worst = max(worst, 1 - hidden)
            continue
        added = np.maximum(with_user - math.exp(epsilon) * total, 0).sum() + 1 - hidden
        removed = np.maximum(total - math.exp(epsilon) * with_user, 0).sum()
        worst = max(worst, float(added), float(removed))
    return float(worst)


def _discrete_laplace(cost, times, epsilon):
    """The losses (|n - shift| - |n|)/scale of the noise n, listed for all copies."""
    n = np.arange(-math.ceil(45 * cost.scale), math.ceil(45 * cost.scale) + cost.shift + 1)
    mass = np.exp(-np.abs(n) / cost.scale)
    mass /= mass.sum()
    places = np.abs(n - cost.shift) - np.abs(n) + cost.shift
    one, total = np.bincount(places, weights=mass), np.array([1.0])
    for _ in range(times):
        total = np.convolve(total, one)
    loss = (np.arange(len(total)) - times * cost.shift) / cost.scale
    return float((total * np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0)).sum())


def _clock(cost, times, epsilon):
    """Losses of the symmetric pair on a fine grid, rounded to the nearest point (the error is below
    the tolerances).
    """
    kappa = 1 / math.expm1(cost.epsilon)
    share = math.exp(-kappa * math.log1p(1 / kappa)) * kappa  # κ(κ+1)A
    step = 0.005 / kappa
    loss = np.arange(-8000, 8001) * step
    one = share * step * np.exp(-np.where(loss > 0, kappa, kappa + 1) * np.abs(loss))
    one[8000] = 0
    one[8000] = 1 - one.sum()
    # The n-fold sum by a Fourier transform; what is tiny is not asked for.
    length = 2 ** math.ceil(math.log2(len(one) * times))
    total = np.fft.irfft(np.fft.rfft(one, length) ** times, length)[: times * 16000 + 1]
    loss = (np.arange(len(total)) - 8000 * times) * step
    return float((total * np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0)).sum())


def _concentrated(cost, times, epsilon):
    """Canonne-Kamath-Steinke 2020, Proposition 12: the best order on a grid (any order gives a
    valid bound).
    """
    order = 1 + np.geomspace(1e-3, 1e3, 4000)
    logs = (
        (order - 1) * (times * cost.rho * order - epsilon)
        - np.log(order - 1)
        + order * np.log1p(-1 / order)
    )
    return float(min(1.0, np.exp(logs.min())))


def _gaussian(cost, times, epsilon):
    """Balle-Wang: normal laws whose means are μ apart; copies add up in squares."""
    mu = cost.mu * math.sqrt(times)
    tails = [math.erfc((epsilon / mu + half * mu) / math.sqrt(2)) / 2 for half in (-0.5, 0.5)]
    return tails[0] - math.exp(epsilon) * tails[1]


ORACLES = {
    GaussianDP: _gaussian,
    PureDP: _pure,
    BoundedRange: _bounded_range,
    DiscreteGaussianDP: _discrete_gaussian,
    DiscreteLaplaceDP: _discrete_laplace,
    SparseGaussianDP: _sparse_gaussian,
    ExponentialClockDP: _clock,
    ZCDP: _concentrated,
}
