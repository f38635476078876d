"""Figures of merit of a design, computed from its mechanisms before any data is seen; all in counts, less is better."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dptopk.mechanisms.base import Mechanism
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS
from dptopk.planning.request import Request
from dptopk.planning.shape import Outcome, Shape

# Where no shape is given, chances of a swap are those of counts that fall as this over the rank.
REFERENCE = 1e4


@dataclass(frozen=True)
class Merit:
    """The expected quality of a design.

    Attributes:
        total: what is compared; inf where it depends on gaps between counts that nobody knows.
        words: what ``total`` is.
        noise_std: standard deviation of the noise on a released count; None where none is released.
        threshold: how far above the floor a noisy count must be; None in a public domain, and for coins.
        appears_at: how far above the floor a label appears with probability 1/2; None in a public domain.
        swapped: the chance that, of two labels with the counts of rank k and 2k, the one of rank 2k is placed first; on
            the shape that was given, else on REFERENCE / rank. None where it is not known in closed form.
        outcome: on the shape that was given, else the means on those of ``request.mixture``; None where unknown.
    """

    total: float
    words: str
    noise_std: float | None
    threshold: int | None
    appears_at: int | None
    swapped: float | None
    outcome: Outcome | None


def merit_of(request: Request, mechanisms: tuple[Mechanism, ...], draws: int = BLOCK_DRAWS) -> Merit:
    """The merit of mechanisms for a request, as plan_topk states it; on one shape from at least that many draws."""
    sensitivity, first, last = request.sensitivity, mechanisms[0], mechanisms[-1]
    noise = last.count_noise(sensitivity, labels=request.k) if request.counted else None
    threshold, appears = first.threshold_offset(sensitivity), first.appears_at(sensitivity, probability=0.5)
    words = ("the error of a shown count and " if request.counted else "") + "the count missed, per row"
    asked, seen = (mechanisms, request.k, sensitivity, request.counted), None
    if isinstance(request.shape, Shape):
        seen = request.shape.outcome(*asked, draws)
    elif request.shape is not None or first.open_ended or math.isfinite(first.selection_noise(sensitivity)):
        seen = request.mixture.outcome(*asked)
        words += "" if request.shape is not None else " (the geometric mean over shapes of reference)"
    loss = math.inf if seen is None else seen.loss
    return Merit(loss, words, noise, threshold, appears, swapped(request, first), seen)


def swapped(request: Request, first: Mechanism) -> float | None:
    """The chance that the noise that places labels puts the label of rank 2k before that of rank k."""
    gap = REFERENCE / (2 * request.k) if request.shape is None else request.shape.gap(request.k)
    return first.swap_chance(request.sensitivity, gap)
