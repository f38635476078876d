"""Certificates: files from which an auditor can check an ε without this package (checker/check_certificate.py).

A certificate holds the product of pairs of docs/setwise.md, Theorem C, in a form that is dear to make and cheap to
check: for n bounded ranges ε the value functions of a group of m of them on a grid of ε/N, one array a step, and the
group to the power n/m; every other cost is named, for the checker knows its profile. Nothing here needs to be
rigorous: plain floats propose node values, moved up by more than their rounding, and an ε, moved up by more than its
own; the checker proves both in interval arithmetic. A group of m in place of n costs some ε (m = 250: about 0.3%).
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dptopk import _validate as validate
from dptopk.accounting.bounds import Certificate, split_failure
from dptopk.accounting.curves import EPS, Floats
from dptopk.accounting.gaussian.discrete import discrete_gaussian_delta
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.accounting.pld.laws import by_squaring
from dptopk.accounting.renyi.concentrated import zcdp_curve
from dptopk.accounting.setwise import guesses
from dptopk.costs import ZCDP, ApproxDP, BoundedRange, Charge, Cost, DiscreteGaussianDP, GaussianDP, PureDP
from dptopk.errors import NotCertified

__all__ = ["certify"]

FORMAT = 1
LARGEST_EPSILON = 50.0  # of one cost
SMALLEST_DELTA = 1e-11  # below, the float products that propose ε lose their digits


def certify(charge: Charge, *, delta: float) -> Certificate:
    """A certificate that a charge, spent in any order and adaptively, is (ε, δ)-DP.

    Args:
        charge: of PureDP, ApproxDP, BoundedRange, GaussianDP, DiscreteGaussianDP and ZCDP costs.
        delta: in [1e-11, 1).

    Returns:
        A certificate of an upper bound ε, up to about half a percent above that of ``compose``.

    Raises:
        NotCertified: for other costs, or a δ outside this range or within 1e-11 of the charge's own failures.
    """
    validate.instance(Charge, charge=charge)
    delta = validate.probability(delta=delta)
    rest, failure = split_failure(charge)
    left = (delta - charge.delta - failure) / (1 - failure) if failure < 1 else 0.0
    if left < SMALLEST_DELTA:
        raise NotCertified(f"delta must leave {SMALLEST_DELTA:g} beside the charge's own failures")
    factors = _factors(rest, left)
    if not factors:
        return _file(charge, 0.0, delta, [], 1.0, 1)
    step, width = _lattice(factors, left)
    product = _product(factors, step, width)
    epsilon = _epsilon(*product, step, left * (1 - guesses.ROOM))
    return _file(charge, epsilon, delta, factors, step, width)


@dataclass
class _Factor:
    """One kind of cost: what the file says of it, its profile in x, and about its loss's mean and variance."""

    entry: dict[str, Any]
    profile: Callable[[Floats], Floats]
    power: int
    mean: float
    variance: float


def _factors(charge: Charge, delta: float) -> list[_Factor]:
    zcdp = [(cost, times) for cost, times in charge if isinstance(cost, ZCDP)]
    found = [_factor(cost, times, delta) for cost, times in charge if not isinstance(cost, ZCDP)]
    if zcdp:
        xi, rho = (math.fsum(getattr(c, name) * n for c, n in zcdp) * (1 + 1e-15) for name in ("xi", "rho"))
        entry = {"kind": "ZCDP", "count": 1, "xi": xi, "rho": rho}  # one statement for all of them
        curve = zcdp_curve(rho, xi)
        found.append(_Factor(entry, _symmetric(curve.delta), 1, xi + rho, 2 * rho))
    return found


def _factor(cost: Cost, times: int, delta: float) -> _Factor:
    if isinstance(cost, BoundedRange | PureDP) and cost.epsilon > LARGEST_EPSILON:
        raise NotCertified(f"certificates take ε up to {LARGEST_EPSILON:g}")
    if isinstance(cost, BoundedRange):
        return _range(cost.epsilon, times, delta)
    entry: dict[str, Any] = {"count": times}
    if isinstance(cost, PureDP):
        mean = cost.epsilon * math.tanh(cost.epsilon / 2)
        entry |= {"kind": "DP", "epsilon": cost.epsilon}
        return _Factor(entry, partial(_response, cost.epsilon), times, mean, cost.epsilon**2 - mean**2)
    if isinstance(cost, GaussianDP):
        entry |= {"kind": "GDP", "mu": cost.mu}
        profile = _symmetric(lambda x: gaussian_delta(x, cost.mu))
        return _Factor(entry, profile, times, cost.mu**2 / 2, cost.mu**2)
    if isinstance(cost, DiscreteGaussianDP):
        entry |= {"kind": "DGauss", "scale": cost.scale, "shift": cost.shift}
        mu = cost.shift / cost.scale
        profile = _symmetric(lambda x: discrete_gaussian_delta(x, cost.scale, cost.shift))
        return _Factor(entry, profile, times, mu**2 / 2, mu**2)
    raise NotCertified(f"certificates do not take {type(cost).__name__}")


def _response(epsilon: float, x: Floats) -> Floats:
    """The profile of randomised response."""
    return np.maximum((math.exp(epsilon) - np.exp(np.minimum(x, 700))) / (1 + math.exp(epsilon)), _empty(x))


def _empty(x: Floats) -> Floats:
    """The profile of nothing, (1 - e^x)_+."""
    return np.maximum(-np.expm1(np.minimum(x, 0.0)), 0.0)


def _symmetric(profile: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """A profile known for x >= 0, of a pair that is as hard to tell apart when swapped."""

    def everywhere(x: Floats) -> Floats:
        value = profile(np.abs(x))
        return np.where(x >= 0, value, -np.expm1(np.minimum(x, 0)) + np.exp(np.minimum(x, 0)) * value)

    return everywhere


def _range(epsilon: float, times: int, delta: float) -> _Factor:
    """A group of bounded ranges: value functions step by step, on the grid of ε/CERTIFIED_STEPS."""
    size = min(times, guesses.CERTIFIED_GROUP)
    power = -(-times // size)
    steps = guesses.CERTIFIED_STEPS
    h, y = epsilon / steps, epsilon / math.expm1(epsilon)
    mean, spread = y - 1 - math.log(y), epsilon / 2
    reach = _reach(delta / power)
    low = min(k * mean - guesses.CERTIFIED_LEFT * spread * math.sqrt(k) for k in range(size + 1))
    high = size * mean + reach * spread * math.sqrt(size)
    first, last = math.floor(low / h) - steps, math.ceil(high / h) + steps
    x: Floats = np.arange(first, last + 1, dtype=np.float64) * h
    values = [np.where(x <= 0, _empty(x) * (1 + 1e-13) + 2e-15, 0.0)]
    for _ in range(size):
        values.append(_step(values[-1], epsilon, first))
    u = np.exp(x)
    slope_left, after = (values[-1][0] - 1) / u[0], values[-1]

    def profile(at: Floats) -> Floats:
        v = np.exp(np.minimum(at, 700))
        return np.where(v < u[0], 1 + slope_left * v, np.interp(v, u, after))

    entry = {
        "kind": "BR",
        "epsilon": epsilon,
        "count": times,
        "size": size,
        "power": power,
        "steps": steps,
    }
    entry |= {"first": first, "values": base64.b64encode(zlib.compress(np.array(values).tobytes(), 9)).decode()}
    return _Factor(entry, profile, power, size * mean, size * spread**2)


def _step(values: Floats, epsilon: float, first: int) -> Floats:
    """The bounded-range step of the chords through the values: the largest chord of ratio e^ε, cell by cell."""
    n = guesses.CERTIFIED_STEPS
    h, size, ratio = epsilon / n, len(values), math.exp(epsilon)
    u = np.exp(np.arange(first - n, first + size + n) * h)
    mid = u[n : n + size]
    heights = np.concatenate([1 + (values[0] - 1) / mid[0] * u[:n], values, np.full(n, values[-1])])
    slope = np.diff(heights) / np.diff(u)
    offset = heights[:-1] - slope * u[:-1]
    best, steepest = _empty(np.log(mid)), np.zeros(size)
    for c in range(n):
        # The rounding of a slope is EPS/h of it: it counts u times, over e^ε - 1.
        steepest = np.maximum(steepest, -slope[c : c + size] * u[c + 1 : c + 1 + size])
        a, b, g, d = (
            offset[c : c + size],
            slope[c : c + size],
            offset[c + n : c + n + size],
            slope[c + n : c + n + size],
        )
        x, y = u[c : c + size], u[c + 1 : c + 1 + size]
        p, q, t = (d - b) * ratio, (a - g) * mid, ratio * a - b * mid - g + d * ratio * mid
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.clip(np.where((p > 0) & (q > 0), np.sqrt(q / p), x), x, y)
        best = np.maximum(best, np.max([t - p * s - q / s for s in (x, y, inner)], axis=0) / (ratio - 1))
    lifted: Floats = best + guesses.LIFT * EPS * (heights[:size] + steepest) / (h * (ratio - 1)) + guesses.LIFT_LEAST
    return lifted


def _reach(delta: float) -> float:
    return math.sqrt(guesses.CERTIFIED_REACH**2 + 2 * max(0.0, math.log(1e-6 / delta)))


def _lattice(factors: list[_Factor], delta: float) -> tuple[float, int]:
    """Step of the common lattice, and how many places are kept."""
    spread = math.sqrt(math.fsum(f.power * f.variance for f in factors))
    window = (_reach(delta) + guesses.CERTIFIED_LEFT + 3) * spread
    ranges = [f.entry["epsilon"] / guesses.CERTIFIED_STEPS for f in factors if f.entry["kind"] == "BR"]
    finest = min([*ranges, *(f.entry["epsilon"] / 4 for f in factors if f.entry["kind"] == "DP"), spread / 200])
    step = max(finest, window / guesses.PLACES)
    for f in factors:
        wide = (_reach(delta) + 2) * math.sqrt(f.variance) + abs(f.mean)
        if f.entry["kind"] == "DP":
            wide = f.entry["epsilon"] + step
        f.entry |= {"low": -math.ceil(wide / step) - 1, "high": math.ceil(wide / step) + 1}
    return step, math.ceil(window / step) + max(f.entry["high"] - f.entry["low"] for f in factors)


def _product(factors: list[_Factor], step: float, width: int) -> tuple[Floats, int, float]:
    """Masses, index of the first, and mass at infinity, of the product of all pairs."""
    total: tuple[Floats, int, float] = (np.ones(1), 0, 0.0)
    for f in factors:
        total = _times(total, by_squaring(partial(_times, width=width), _pair(f, step), f.power), width)
    return total


def _pair(f: _Factor, step: float) -> tuple[Floats, int, float]:
    """Masses from the slopes of the chords; as the checker forms them."""
    low, high = f.entry["low"], f.entry["high"]
    x = np.arange(low, high + 1) * step
    u, h = np.exp(x), np.minimum(f.profile(x), 1.0)
    slopes = np.concatenate([[(h[0] - 1) / u[0]], np.diff(h) / np.diff(u), [0.0]])
    return np.maximum(np.diff(slopes), 0.0) * u, low, float(h[-1])


def _times(one: tuple[Floats, int, float], other: tuple[Floats, int, float], width: int) -> tuple[Floats, int, float]:
    """As the checker multiplies: what is beyond the width moves up or, where it is small, to infinity."""
    from scipy.signal import fftconvolve

    masses = np.maximum(fftconvolve(one[0], other[0]), 0.0)
    drop = max(0, len(masses) - width)
    while drop and masses[-drop:].sum() > 2.0**-60:
        drop //= 2
    infinite, masses = one[2] + other[2] + masses[len(masses) - drop :].sum(), masses[: len(masses) - drop]
    drop = max(0, len(masses) - width)
    masses = np.concatenate([[masses[: drop + 1].sum()], masses[drop + 1 :]])
    return masses, one[1] + other[1] + drop, float(infinite)


def _epsilon(masses: Floats, first: int, infinite: float, step: float, delta: float) -> float:
    """The smallest ε at which the product's δ fits, by bisection, moved up."""
    losses = (first + np.arange(len(masses))) * step

    def fits(x: float) -> bool:
        return infinite + float(masses @ np.maximum(-np.expm1(np.minimum(x - losses, 0.0)), 0.0)) <= delta

    low, high = 0.0, float(losses[-1])
    if not fits(high):
        raise NotCertified("the proposed window is too narrow for this delta")
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high * (1 + 1e-9)


def _file(charge: Charge, epsilon: float, delta: float, factors: list[_Factor], step: float, width: int) -> Certificate:
    failures = [[cost.delta, times] for cost, times in charge if isinstance(cost, ApproxDP)]
    content = {
        "format": FORMAT,
        "charge": str(charge),
        "epsilon": epsilon,
        "delta": delta,
        "bad": charge.delta,
        "failures": failures,
        "step": step,
        "width": width,
        "factors": [f.entry for f in factors],
    }
    return Certificate(str(charge), epsilon, delta, json.dumps(content))
