"""Brute force for set-wise games: the recursion itself, over all orders and a grid of t, without
any table.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np


@cache
def brute_force(ranges: tuple[float, ...], pure: tuple[float, ...], x: float, points: int) -> float:
    """The largest δ(x) when the adversary picks any remaining cost in each round, and t among some
    points.
    """
    best = max(-math.expm1(x), 0.0)
    for i, epsilon in enumerate(pure):
        rest = pure[:i] + pure[i + 1 :]
        p = 1 / (1 + math.exp(-epsilon))
        up, down = (brute_force(ranges, rest, round(x + s * epsilon, 12), points) for s in (-1, 1))
        best = max(best, p * up + (1 - p) * down)
    for i, epsilon in enumerate(ranges):
        rest = ranges[:i] + ranges[i + 1 :]
        for t in np.linspace(0, epsilon, points):
            q = -math.expm1(t - epsilon) / -math.expm1(-epsilon)
            up, down = (
                brute_force(rest, pure, round(x + s, 12), points) for s in (-t, epsilon - t)
            )
            best = max(best, q * up + (1 - q) * down)
    return best
