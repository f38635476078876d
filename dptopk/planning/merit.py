"""Figures of merit of a design, computed from its mechanisms before any data is seen; all in counts, less is better."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dptopk.mechanisms.base import Mechanism
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS
from dptopk.planning.request import Request
from dptopk.planning.shape import Outcome

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
        outcome: on the shape that was given, or the means on those of ``request.mixture``; None without any.
    """

    total: float
    words: str
    noise_std: float | None
    threshold: int | None
    appears_at: int | None
    swapped: float | None
    outcome: Outcome | None


def merit_of(request: Request, mechanisms: tuple[Mechanism, ...], draws: int = BLOCK_DRAWS) -> Merit:
    """The merit of mechanisms for a request, as plan_topk states it; on shapes from at least that many draws.

    Without draws, on several shapes, it is the product of the noise on a count and of where a label appears: an
    estimate that compares divisions of the budget within a design.
    """
    sensitivity, first, last = request.sensitivity, mechanisms[0], mechanisms[-1]
    noise = last.count_noise(sensitivity, labels=request.k) if request.counted else None
    threshold, appears = first.threshold_offset(sensitivity), first.appears_at(sensitivity, probability=0.5)
    played = request.shape if draws else None
    if played is not None:
        seen = played.outcome(mechanisms, request.k, sensitivity, request.counted, draws)
        words = "the error of a shown count and the count missed, per row" if request.counted else "the count missed"
        return Merit(seen.loss, words, noise, threshold, appears, swapped(request, first), seen)
    parts = {} if noise is None else {"the noise on a count": noise}
    if appears is not None:
        parts["the count (above the floor) at which a label appears"] = float(appears)
    if not parts:
        parts["the noise that selects labels"] = first.selection_noise(sensitivity)
    total = sum(parts.values()) if request.shape is None else math.prod(parts.values())
    return Merit(total, " plus ".join(parts), noise, threshold, appears, swapped(request, first), None)


def swapped(request: Request, first: Mechanism) -> float | None:
    """The chance that the noise that places labels puts the label of rank 2k before that of rank k."""
    k = request.k
    counts = REFERENCE / np.arange(1, 2 * k + 1) if request.shape is None else request.shape.counts
    gap = float(counts[k - 1] - counts[2 * k - 1]) if len(counts) >= 2 * k else float(counts[min(k, len(counts)) - 1])
    return first.swap_chance(request.sensitivity, gap)
