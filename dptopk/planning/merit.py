"""Figures of merit of a design, computed from its mechanisms before any data is seen; all in counts, less is better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dptopk.histogram import Sensitivity
from dptopk.mechanisms import Centred, CountMLE, KnownGaussian, KnownLaplace
from dptopk.mechanisms.base import Noisy, Thresholded
from dptopk.planning.request import Request
from dptopk.planning.shape import Outcome

__all__ = ["Merit", "half_width", "merit_of"]


@dataclass(frozen=True)
class Merit:
    """What a design delivers.

    Attributes:
        total: what is compared.
        words: what ``total`` is.
        noise_std: standard deviation of the noise on a released count; None where none is released.
        threshold: how far above the floor a noisy count must be; None in a public domain.
        appears_at: how far above the floor a label appears with probability 1/2; None in a public domain.
        outcome: on the shape that was given; None without one.
    """

    total: float
    words: str
    noise_std: float | None
    threshold: int | None
    appears_at: int | None
    outcome: Outcome | None


def merit_of(request: Request, mechanisms: tuple[Any, ...]) -> Merit:
    """The merit of mechanisms for a request: stated in plan_topk."""
    sensitivity, first, last = request.sensitivity, mechanisms[0], mechanisms[-1]
    noise = float(last.noise_std(sensitivity)) if request.counted else None
    threshold = appears = None
    if isinstance(first, Thresholded):
        threshold = first.threshold_offset(sensitivity)
        appears = first.appears_at(sensitivity, probability=0.5)
    if request.shape is not None:
        seen = request.shape.outcome(mechanisms, request.k, sensitivity, request.counted)
        words = "the error of a shown count and the count missed, per row" if request.counted else "the count missed"
        return Merit(seen.loss, words, noise, threshold, appears, seen)
    parts = {} if noise is None else {"the noise on a count": noise}
    if appears is not None:
        parts["the count above the floor at which a label appears"] = float(appears)
    if not parts:
        parts["the noise that selects labels"] = selection_noise(first, sensitivity)
    return Merit(sum(parts.values()), " and ".join(parts), noise, threshold, appears, None)


def selection_noise(mechanism: Any, sensitivity: Sensitivity) -> float:
    """Standard deviation of the noise that decides which labels are chosen."""
    if isinstance(mechanism, Noisy):
        return float(mechanism.noise_std(sensitivity))
    return math.pi / math.sqrt(6) * sensitivity.linf / float(mechanism.epsilon)  # that of Gumbel noise


def half_width(mechanism: Any, sensitivity: Sensitivity) -> float:
    """95% of the noise on a count is within ± this, by the law of the noise alone."""
    noise = mechanism.noise if isinstance(mechanism, CountMLE) else mechanism
    if not isinstance(noise, Centred | KnownLaplace | KnownGaussian):  # a threshold over noise of the same law
        sigma = getattr(noise, "sigma", None)
        noise = KnownLaplace(epsilon=noise.epsilon) if sigma is None else KnownGaussian(sigma=sigma)
    return float(noise.half_width(sensitivity, confidence=0.95))
