"""Find where a monotone condition changes, by bisection.

The answer is always a pair of ends, or an end, at which the condition was tried: a bound takes the
end at which it was seen to hold, and never a point between. Each function assumes that the
condition changes once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def first_true(holds: Callable[[int], bool], low: int, most: int | None = None) -> int:
    """Return the first integer from ``low`` on at which the condition holds; ``most``, untried,
    where it holds at none before.

    Steps from ``low`` double until it holds, so that the work grows with the logarithm of the
    distance.

    Args:
        holds: the condition; False up to some integer, and True from then on.
        low: the first integer that is tried.
        most: the largest answer; None: the condition holds somewhere.

    >>> first_true(lambda n: n * n >= 50, 1), first_true(lambda n: n * n >= 50, 1, 5)
    (8, 5)
    """
    end = math.inf if most is None else most
    largest_false = low - 1
    high = low
    step = 1
    while high < end and not holds(high):
        largest_false = high
        high = high + step
        step = 2 * step
    if most is not None:
        high = min(high, most)
    while high - largest_false > 1:
        middle = (largest_false + high) // 2
        if holds(middle):
            high = middle
        else:
            largest_false = middle
    return high


def bracket(
    below: Callable[[float], bool],
    start: float,
    factor: float = 2.0,
    *,
    least: float = 0.0,
    most: float = math.inf,
) -> tuple[float, float]:
    """Return neighbours ``low`` and ``high`` of the row start · factor^i with ``below(low)`` and
    not ``below(high)``.

    A ``low`` of at most ``least`` and a ``high`` of at least ``most`` are not tried.

    Args:
        below: the condition, which holds up to some point, and not beyond.
        start: the first point, above 0.
        factor: the ratio of neighbours in the row, above 1.
        least: where the condition is taken to hold untried.
        most: where it is taken not to hold, untried.

    >>> bracket(lambda x: x < 5, 1.0), bracket(lambda x: x < 5, 40.0), bracket(lambda x: x < 5,
    ...     40.0, least=20.0)
    ((4.0, 8.0), (2.5, 5.0), (20.0, 40.0))
    """
    low = start
    high = start
    while high < most and below(high):
        low = high
        high = high * factor
    if low < high:  # ``below`` held at ``low``
        return low, high
    low = high / factor
    while low > least and not below(low):
        high = low
        low = low / factor
    return low, high


def bisect(
    below: Callable[[float], bool],
    low: float,
    high: float,
    *,
    halvings: int = 200,
    rtol: float = 0.0,
    geometric: bool = False,
) -> tuple[float, float]:
    """Return the ends of a range that was halved until it is as narrow as asked: ``low`` rises to
    where ``below`` holds.

    Args:
        below: holds up to some point of the range, and not beyond.
        low: the left end, where the condition holds, or the caller knows what an untried end means.
        high: the right end, where it does not hold.
        halvings: at most this many.
        rtol: stop once ``high - low`` is at most this share of ``high``.
        geometric: halve on the logarithmic scale.

    >>> bisect(lambda x: x * x < 2, 1.0, 2.0, halvings=3), bisect(lambda x: x < 3, 1.0, 4.0,
    ...     rtol=0.5, geometric=True)
    ((1.375, 1.5), (2.0, 4.0))
    """
    for _ in range(halvings):
        middle = math.sqrt(low * high) if geometric else (low + high) / 2
        is_narrow = high - low <= rtol * high
        no_float_between = not low < middle < high
        if is_narrow or no_float_between:
            break
        if below(middle):
            low = middle
        else:
            high = middle
    return low, high


def bisect_each(
    below: Callable[[Floats], NDArray[np.bool_]], low: Floats, high: Floats, *, halvings: int = 100
) -> tuple[Floats, Floats]:
    """Bisect many ranges at once, and return their ends.

    Args:
        below: evaluates the conditions of all ranges together.
        low: the left ends, where the conditions hold.
        high: the right ends, where they do not.
        halvings: the number of steps.
    """
    for _ in range(halvings):
        middle = (low + high) / 2
        holds = below(middle)
        low = np.where(holds, middle, low)
        high = np.where(holds, high, middle)
    return low, high


def cross_each(
    excess: Callable[[Floats], Floats],
    low: Floats,
    high: Floats,
    start: Floats,
    scale: Floats | float,
    *,
    close: float = 1e-6,
    most_steps: int = 80,
) -> Floats:
    """Return about where each of many falling functions is 0, inside its range; where it is 0
    nowhere there, an end.

    The steps are secants inside a bracket, and its middle where these lead outside it. Every fourth
    step takes the middle too, because secants may move one end of the bracket only.

    Args:
        excess: evaluates all functions together; logarithms of what falls about as e^(-x/scale)
            need few steps.
        low: the left ends of the ranges.
        high: the right ends.
        start: the first points, inside the ranges.
        scale: about by how much x grows where a value falls by 1; above 0.
        close: the search ends where every value is within this of 0, or its bracket narrower than
            this share of ``scale``.
        most_steps: at most this many; a quarter of them halve the bracket.

    >>> cross_each(lambda x: -np.log(x / [2.0, 3.0]), np.ones(2), np.full(2, 9.0), np.ones(2), 1.0
    ...     ).round(4).tolist()
    [2.0, 3.0]
    """
    point = start
    value = excess(point)
    slope = np.broadcast_to(-1.0 / np.asarray(scale), point.shape)
    for step in range(most_steps):
        low = np.where(value > 0, point, low)
        high = np.where(value > 0, high, point)
        done = (np.abs(value) <= close) | (high - low <= close * scale)
        if done.all():
            break
        secant = point - value / slope
        usable = (low < secant) & (secant < high) & (step % 4 != 3)
        tried = np.where(usable, secant, (low + high) / 2)
        following = np.where(done, point, tried)
        following_value = excess(following)
        slope = _falling_slope(following - point, following_value - value, slope)
        point = following
        value = following_value
    return point


def _falling_slope(run: Floats, rise: Floats, before: Floats) -> Floats:
    """Return rise over run, or the slope from before where that is not falling or where nothing was
    moved.

    Args:
        run: by how much each point was moved.
        rise: by how much each value changed.
        before: the slopes that are known.
    """
    slope = rise / np.where(run == 0, 1.0, run)
    return np.where(slope < 0, slope, before)
