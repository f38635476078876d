"""Figures of merit of a design, computed from its mechanisms before any data is seen; all in counts, less is better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptopk._internal.tails import gaussian_difference_tail, laplace_difference_tail
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms import (
    Box,
    Centred,
    CountMLE,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    OneShotTopK,
    PartitionSelection,
    RoutedTopK,
    StabilityTopK,
    UnknownGumbel,
)
from dptopk.mechanisms.base import Appearing, Noisy, Thresholded
from dptopk.mechanisms.whole import WholeAnswer
from dptopk.planning.request import Request
from dptopk.planning.shape import Outcome, noise_std
from dptopk.planning.simulation import BLOCK

# Where no shape is given, chances of a swap are those of counts that fall as this over the rank.
REFERENCE = 1e4


@dataclass(frozen=True)
class Merit:
    """What a design delivers.

    Attributes:
        total: what is compared.
        words: what ``total`` is.
        noise_std: standard deviation of the noise on a released count; None where none is released.
        threshold: how far above the floor a noisy count must be; None in a public domain, and for coins.
        appears_at: how far above the floor a label appears with probability 1/2; None in a public domain.
        swapped: the chance that, of two labels with the counts of rank k and 2k, the one of rank 2k is placed first; on
            the shape that was given, else on REFERENCE / rank. None where it is not known in closed form.
        outcome: on the shape that was given; None without one.
    """

    total: float
    words: str
    noise_std: float | None
    threshold: int | None
    appears_at: int | None
    swapped: float | None
    outcome: Outcome | None


def merit_of(request: Request, mechanisms: tuple[Any, ...], draws: int = BLOCK) -> Merit:
    """The merit of mechanisms for a request: stated in plan_topk; on a shape from at least so many draws."""
    sensitivity, first, last = request.sensitivity, mechanisms[0], mechanisms[-1]
    noise = noise_std(last, sensitivity, request.k) if request.counted else None
    threshold = appears = None
    if isinstance(first, Thresholded):
        threshold = first.threshold_offset(sensitivity)
    if isinstance(first, Appearing):
        appears = first.appears_at(sensitivity, probability=0.5)
    if request.shape is not None:
        seen = request.shape.outcome(mechanisms, request.k, sensitivity, request.counted, draws)
        words = "the error of a shown count and the count missed, per row" if request.counted else "the count missed"
        return Merit(seen.loss, words, noise, threshold, appears, swapped(request, first), seen)
    parts = {} if noise is None else {"the noise on a count": noise}
    if appears is not None:
        parts["the count (above the floor) at which a label appears"] = float(appears)
    if not parts:
        parts["the noise that selects labels"] = selection_noise(first, sensitivity)
    return Merit(sum(parts.values()), " plus ".join(parts), noise, threshold, appears, swapped(request, first), None)


def swapped(request: Request, first: Any) -> float | None:
    """The chance that the noise that places labels puts the label of rank 2k before that of rank k."""
    if isinstance(first, WholeAnswer | RoutedTopK | StabilityTopK | PartitionSelection):
        return None
    linf, k = request.sensitivity.linf, request.k
    counts = REFERENCE / np.arange(1, 2 * k + 1) if request.shape is None else request.shape.counts
    gap = float(counts[k - 1] - counts[2 * k - 1]) if len(counts) >= 2 * k else float(counts[min(k, len(counts)) - 1])
    if isinstance(first, KnownGumbel | UnknownGumbel):  # the difference of two Gumbel variables is logistic
        return 1 / (1 + math.exp(min(first.epsilon * gap / linf, 700.0)))
    steps = max(math.ceil(gap) - 1, 0)
    if hasattr(first, "sigma"):
        return gaussian_difference_tail(first.sigma * linf, steps)
    return laplace_difference_tail(first.epsilon / linf, steps)


def selection_noise(mechanism: Any, sensitivity: Sensitivity) -> float:
    """Standard deviation of the noise that decides which labels are chosen; inf where it depends on the counts."""
    if isinstance(mechanism, OneShotTopK):  # exponential noise
        return mechanism.k * sensitivity.linf / mechanism.epsilon
    if isinstance(mechanism, WholeAnswer | RoutedTopK | StabilityTopK):
        return math.inf
    if isinstance(mechanism, Noisy):
        return float(mechanism.noise_std(sensitivity))
    return math.pi / math.sqrt(6) * sensitivity.linf / float(mechanism.epsilon)  # that of Gumbel noise


def half_width(mechanism: Any, sensitivity: Sensitivity, k: int | None = None) -> float:
    """95% of the noise on a count is within ± this, by the law of the noise alone."""
    noise = mechanism.noise if isinstance(mechanism, CountMLE) else mechanism
    if isinstance(noise, Box):
        return float(noise.half_width(sensitivity, labels=k))
    if not isinstance(noise, Centred | KnownLaplace | KnownGaussian):  # a threshold over noise of the same law
        sigma = getattr(noise, "sigma", None)
        noise = KnownLaplace(epsilon=noise.epsilon) if sigma is None else KnownGaussian(sigma=sigma)
    return float(noise.half_width(sensitivity, confidence=0.95))
