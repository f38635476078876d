"""Grid steps for the recursion: every ε a whole number of steps, rounded outward exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise import tuning

State = tuple[int, ...]


def common_grid(
    epsilons: tuple[float, ...], counts: State, steps: int, *, upper: bool
) -> tuple[State, float]:
    """A grid step for several ε's, and how many steps each takes: N h >= ε (upper) or N h <= ε
    (lower), exactly.

    Among the grids with ``steps`` to ``2 steps`` for the largest ε, the one that changes Σ ε²
    least.
    """
    largest = max(epsilons)
    if len(epsilons) == 1:
        return (steps,), _exact_step(epsilons, (steps,), largest / steps, upper=upper)
    best = steps + int(np.argmin(_changes(epsilons, counts, steps, tuning.GRID_CELL, upper=upper)))
    each = tuple(int(n) for n in _rounded(np.array(epsilons) / largest * best, upper=upper))
    return each, _exact_step(epsilons, each, largest / best, upper=upper)


@lru_cache(maxsize=8192)  # a partition asks for the same groups and steps again and again
def rounding_noise(
    epsilons: tuple[float, ...], counts: State, steps: int, cell: float, *, upper: bool = True
) -> float:
    """Approximate variance that ``common_grid`` adds to the loss: ε's rounded outward, and ``cell``
    h² per step.
    """
    if len(epsilons) == 1:
        return cell * (epsilons[0] / steps) ** 2 * counts[0]
    return float(_changes(epsilons, counts, steps, cell, upper=upper).min())


def _rounded(multiples: Floats, *, upper: bool) -> Floats:
    if upper:
        return np.ceil(multiples - 1e-9)
    return np.floor(multiples + 1e-9)


def _changes(
    epsilons: tuple[float, ...], counts: State, steps: int, cell: float, *, upper: bool
) -> Floats:
    """By how much grids of ``steps`` to ``2 steps`` change the variance Σ ε²/4, interpolation
    included, about.
    """
    each = np.array(epsilons)
    many = np.array(counts, dtype=float)
    h = each.max() / np.arange(steps, 2 * steps + 1)[:, None]
    moved = h * _rounded(each / h, upper=upper)
    return (np.abs(moved**2 - each**2) / 4 + cell * h**2) @ many


def _exact_step(epsilons: tuple[float, ...], steps: State, h: float, *, upper: bool) -> float:
    """The float closest to h with N h >= ε (upper) or N h <= ε (lower) for every ε and its N,
    exactly.
    """
    for epsilon, N in zip(epsilons, steps, strict=True):
        while upper and Fraction(h) * N < Fraction(epsilon):
            h = math.nextafter(h, math.inf)
        while not upper and Fraction(h) * N > Fraction(epsilon):
            h = math.nextafter(h, 0.0)
    return h
