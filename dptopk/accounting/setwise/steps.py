"""Grid steps for the recursion: every ε a whole number of steps, rounded outward exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dptopk.accounting.setwise import guesses

__all__ = ["State", "common_grid", "rounding_noise"]

State = tuple[int, ...]


def common_grid(epsilons: tuple[float, ...], counts: State, steps: int, *, upper: bool) -> tuple[State, float]:
    """A grid step for several ε's, and how many steps each takes: N h >= ε (upper) or N h <= ε (lower), exactly.

    Among the grids with ``steps`` to ``2 steps`` for the largest ε, the one that changes Σ ε² least.
    """
    largest = max(epsilons)
    if len(epsilons) == 1:
        return (steps,), _exact_step(epsilons, (steps,), largest / steps, upper=upper)
    best = min(range(steps, 2 * steps + 1), key=lambda n: _change(epsilons, counts, n, upper=upper))
    each = tuple(_rounded(epsilon / largest * best, upper=upper) for epsilon in epsilons)
    return each, _exact_step(epsilons, each, largest / best, upper=upper)


@lru_cache(maxsize=8192)  # a partition asks for the same groups and steps again and again
def rounding_noise(epsilons: tuple[float, ...], counts: State, steps: int, cell: float, *, upper: bool = True) -> float:
    """What ``common_grid`` adds to the variance of the loss, about: ε's rounded outward, and ``cell`` h² a step."""
    if len(epsilons) == 1:
        return _change(epsilons, counts, steps, cell, upper=upper)
    each, largest = np.array(epsilons), max(epsilons)
    step = largest / np.arange(steps, 2 * steps + 1.0)[:, None]
    moved = step * (np.ceil(each / step - 1e-9) if upper else np.floor(each / step + 1e-9))
    return float(((np.abs(moved * moved - each * each) / 4 + cell * step * step) @ np.array(counts, dtype=float)).min())


def _rounded(multiple: float, *, upper: bool) -> int:
    return math.ceil(multiple - 1e-9) if upper else math.floor(multiple + 1e-9)


def _change(
    epsilons: tuple[float, ...], counts: State, n: int, cell: float = guesses.GRID_CELL, *, upper: bool
) -> float:
    """By how much a grid with n steps for the largest ε changes the variance Σ ε²/4, interpolation included, about."""
    step = max(epsilons) / n
    moved = (step * _rounded(epsilon / step, upper=upper) for epsilon in epsilons)
    return math.fsum(
        k * (abs(m * m - e * e) / 4 + cell * step**2) for m, e, k in zip(moved, epsilons, counts, strict=True)
    )


def _exact_step(epsilons: tuple[float, ...], steps: State, h: float, *, upper: bool) -> float:
    """The float closest to h with N h >= ε (upper) or N h <= ε (lower) for every ε and its N, exactly."""
    for epsilon, N in zip(epsilons, steps, strict=True):
        while upper and Fraction(h) * N < Fraction(epsilon):
            h = math.nextafter(h, math.inf)
        while not upper and Fraction(h) * N > Fraction(epsilon):
            h = math.nextafter(h, 0.0)
    return h
