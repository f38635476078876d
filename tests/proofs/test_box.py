"""Box noise: the exact law, and the exact divergence of every move beside the charge; mutants are
caught.
"""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest

from dptopk import Box, Sensitivity
from dptopk.histogram.histogram import descending_order
from dptopk.mechanisms import UnknownBox
from dptopk.mechanisms.box import box_cost, loss_chance
from dptopk.mechanisms.thresholds import is_above_threshold

from .harness import World, encode, hockey_stick, laws, seen_by

EPSILONS = (0.0, 0.3, 0.7, 1.0, 1.5, 2.0)
TOLERANCE = 1e-7


@cache
def side_law(power, rate, tiny=1e-10):
    """P(m) ∝ m^power e^{-rate m}, m = 1, 2, ..., by plain sums."""
    m = np.arange(1, math.ceil((power + 60) / rate) + 60, dtype=float)
    weights = np.exp(power * np.log(m) - rate * m)
    weights /= weights.sum()
    return weights[: int(np.flatnonzero(np.cumsum(weights[::-1])[::-1] > tiny)[-1]) + 1]


@cache
def box_law(k, epsilon, step=1, power=None, tiny=1e-10):
    """The law of (U_1 - M, ..., U_k - M) on a cube, by summing over n and M."""
    sides = side_law(k + 1 if power is None else power, epsilon, tiny)
    radius = step * len(sides)
    law = np.zeros((2 * radius - 1,) * k)
    for m, mass in enumerate(sides, 1):
        n = step * m
        for corner in range(n):
            law[(slice(radius - 1 - corner, radius - 1 - corner + n),) * k] += mass / n ** (k + 1)
    return law


def hull(k, radius):
    """|z| = max(0, max z) - min(0, min z) on the cube."""
    grids = np.meshgrid(*[np.arange(-radius, radius + 1)] * k, indexing="ij")
    z = np.stack([*grids, np.zeros_like(grids[0])])
    return z.max(axis=0) - z.min(axis=0)


@pytest.mark.parametrize(("k", "epsilon"), [(1, 0.7), (2, 0.5), (2, 2.0), (3, 2.0), (4, 5.0)])
def test_the_two_lines_draw_the_law_of_the_norm(k, epsilon):
    law = box_law(k, epsilon)
    wanted = np.exp(-epsilon * hull(k, law.shape[0] // 2))
    assert law == pytest.approx(wanted / wanted.sum(), abs=1e-9)
    wrong = box_law(k, epsilon, power=k)  # n^k in the place of n^{k+1}
    center = (len(wrong) // 2,) * k
    assert abs(wrong[center] - law[(len(law) // 2,) * k]) > 1e-3


def moves(k, linf, l0):
    return [
        v for v in itertools.product(range(linf + 1), repeat=k) if 0 < np.count_nonzero(v) <= l0
    ]


def divergences(law, v):
    """Hockey-stick divergences of the law and itself moved by v, the larger direction, at each
    ε.
    """
    still = np.pad(law, [(0, step) for step in v])
    moved = np.pad(law, [(step, 0) for step in v])
    pairs = ((still, moved), (moved, still))
    return np.array(
        [max(np.maximum(p - math.exp(e) * q, 0).sum() for p, q in pairs) for e in EPSILONS]
    )


def promised(cost):
    """δ of the pair with losses ±ε of the masses p and e^{-ε}p, else 0; of randomised response for
    PureDP.
    """
    epsilon = getattr(cost, "epsilon", None) or cost.constraints[0][0]
    total = math.tanh(epsilon / 2) if hasattr(cost, "epsilon") else cost.constraints[1][1]
    p = total / -math.expm1(-epsilon)
    rest = max(1 - p - p * math.exp(-epsilon), 0.0)
    atoms = ((epsilon, p), (0.0, rest), (-epsilon, p * math.exp(-epsilon)))
    return np.array(
        [sum(mass * max(-math.expm1(e - loss), 0) for loss, mass in atoms) for e in EPSILONS]
    )


def cost_of(k, epsilon, sensitivity):
    ((cost, times),) = Box(epsilon=epsilon).charge(sensitivity, labels=k).costs.items()
    assert times == 1
    return cost


CASES = [
    (k, epsilon, linf, l0)
    for k, epsilon, linf in [
        (1, 0.7, 1),
        (2, 0.7, 1),
        (3, 1.2, 1),
        (4, 5.0, 1),
        (1, 1.0, 3),
        (2, 1.2, 3),
        (3, 3.0, 2),
    ]
    for l0 in (1, 2, None)
]


@pytest.mark.parametrize(("k", "epsilon", "linf", "l0"), CASES)
def test_no_move_costs_more_than_the_charge(k, epsilon, linf, l0):
    sensitivity = Sensitivity(linf=linf, l0=l0)
    law, bound = box_law(k, epsilon, linf), promised(cost_of(k, epsilon, sensitivity))
    worst = np.max([divergences(law, v) for v in moves(k, linf, l0 or k)], axis=0)
    assert (worst <= bound + TOLERANCE).all()
    if linf == 1:
        assert worst == pytest.approx(bound, abs=TOLERANCE)  # attained


@pytest.mark.parametrize(
    ("k", "epsilon", "l0"), [(2, 0.7, None), (3, 1.2, None), (3, 1.2, 1), (4, 5.0, None)]
)
def test_a_smaller_chance_is_caught(k, epsilon, l0):
    """A second δ a hundredth smaller; the pair of four counts more; one label touched too few."""
    cost = cost_of(k, epsilon, Sensitivity(l0=l0))
    worst = np.max([divergences(box_law(k, epsilon), v) for v in moves(k, 1, l0 or k)], axis=0)
    ((_, zero), (_, second)) = cost.constraints
    assert (
        worst
        > promised(replace(cost, constraints=((epsilon, zero), (0.0, 0.99 * second)))) + TOLERANCE
    ).any()
    moved = min(l0 or k, (k + 1) // 2)
    assert (worst > promised(box_cost(epsilon, k + 4, moved)) + TOLERANCE).any()
    if moved > 1:
        assert (worst > promised(box_cost(epsilon, k, moved - 1)) + TOLERANCE).any()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_law_of_another_power_or_rate_is_caught(k):
    epsilon = 1.2
    bound = promised(cost_of(k, epsilon, Sensitivity()))
    for law in (box_law(k, epsilon, power=k), box_law(k, 1.02 * epsilon)):
        worst = np.max([divergences(law, v) for v in moves(k, 1, k)], axis=0)
        assert (worst > bound + 1e-5).any()


def test_the_chance_in_rationals_and_where_it_is_largest():
    """p(s) for q = 1/2 from truncated sums of rationals, for all s: largest in the middle, and the
    bound is above.
    """
    q, length = Fraction(1, 2), 160
    for values in range(2, 9):
        z = (1 - q) ** 2 / q * sum(n**values * q**n for n in range(1, length))
        exact = [
            sum(
                q**L * ((L + 1) ** s - L**s) * ((L + 1) ** (values - s) - L ** (values - s))
                for L in range(length)
            )
            / z
            for s in range(1, values)
        ]
        assert max(exact) == exact[values // 2 - 1]
        assert exact == exact[::-1]
        bounds = [loss_chance(math.log(2), values, s) for s in range(1, values)]
        assert all(
            p <= bound <= p * (1 + 1e-9) for p, bound in zip(map(float, exact), bounds, strict=True)
        )


@pytest.mark.parametrize(
    ("values", "epsilon"),
    [(4, 1e-6), (26, 1e-4), (1001, 1e-6), (1001, 1.0), (1001, 50.0), (3, 50.0)],
)
def test_the_chance_at_extremes(values, epsilon):
    """Between its limit for small ε, that of orders of continuous values, and 1; a bound by a sum
    of another kind.
    """
    s = values // 2
    found = loss_chance(epsilon, values, s)
    assert s * (values - s) / (values * (values - 1)) <= found <= 1
    if epsilon >= 1:
        L = np.arange(1, 60 * values, dtype=float)
        down = [np.log(-np.expm1(-part * np.log1p(1 / L))) for part in (s, values - s)]
        logs = values * np.log1p(L) - epsilon * L + sum(down)
        n = np.arange(1, 60 * values, dtype=float)
        sides = values * np.log(n) - epsilon * n
        z = 2 * math.log(-math.expm1(-epsilon)) + epsilon + np.logaddexp.reduce(sides)
        exact = np.exp(np.logaddexp(np.logaddexp.reduce(logs), 0.0) - z)
        assert exact <= found <= exact * (1 + 1e-5)
    else:
        assert found <= s * (values - s) / (values * (values - 1)) * (1 + epsilon) + 1e-5


@pytest.mark.parametrize(
    ("values", "moved", "epsilon"),
    [(2000, 1000, 1400.0), (2900, 1000, 2100.0), (1801, 900, 1250.0), (2000, 7, 1400.0)]
    + [(20000, 10000, epsilon) for epsilon in (1500.0, 3000.0, 6087.0, 1e5)],
)
def test_the_chance_where_the_side_has_one_or_two_values(values, moved, epsilon):
    """The terms may fall from 0 on, where ε is above 12 sqrt(values): those before the first that
    was summed were taken to be smaller, so that the chance was near 0 in place of 1.
    """
    log = mpmath.log
    with mpmath.workdps(60):
        places = range(1, math.ceil(3 * values / epsilon) + 60)
        terms = [mpmath.mpf(1)]  # of L = 0
        for L in places:
            growth = log(L + 1) - log(L)
            parts = [log(-mpmath.expm1(-part * growth)) for part in (moved, values - moved)]
            terms.append(mpmath.exp(values * log(L + 1) - epsilon * L + sum(parts)))
        sides = [mpmath.exp(values * log(n) - epsilon * n) for n in places]
        factor = mpmath.expm1(-epsilon) ** 2 * mpmath.exp(epsilon)
        exact = mpmath.fsum(terms) / (factor * mpmath.fsum(sides))
    found = loss_chance(epsilon, values, moved)
    assert float(exact) * (1 - 1e-12) <= found <= float(exact) * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-7, 1e-4, 0.3])
def test_the_chance_of_two_of_three_counts_in_closed_form(epsilon):
    """[(L+1)^2 - L^2]^2 = 4L^2 + 4L + 1, and polylogarithms at 50 digits."""
    with mpmath.workdps(50):
        q = mpmath.exp(-mpmath.mpf(epsilon))
        total = 4 * mpmath.polylog(-2, q) + 4 * mpmath.polylog(-1, q) + 1 / (1 - q)
        exact = total / ((1 - q) ** 2 / q * mpmath.polylog(-4, q))
    assert float(exact) <= loss_chance(epsilon, 4, 2) <= float(exact) * (1 + 1e-5)


# --- on the slots of an unknown domain


def floor_law(mechanism, histogram, law):
    """The law of the table that is released: as ThresholdedMechanism.release, on every noise of a
    cube.
    """
    seen = seen_by(mechanism, histogram)
    size, radius = len(seen.counts), law.shape[0] // 2
    # Slots that no label fills: their noise is not looked at.
    law = law.sum(axis=tuple(range(size, mechanism.d_bar)))
    noise = np.stack(np.indices(law.shape).reshape(law.ndim, -1), axis=-1) - radius
    mass = law.ravel()
    some = mass > 0
    noise, mass = noise[some], mass[some]
    kept = is_above_threshold(
        seen.counts,
        noise[:, :-1],
        seen.floor,
        noise[:, -1:],
        mechanism.threshold_offset(histogram.sensitivity),
    )
    codes = encode(seen.counts + noise[:, :-1], kept, seen.labels, descending_order)
    outcomes, place = np.unique(codes, return_inverse=True)
    return outcomes, np.bincount(place, weights=mass)


class _TooLow(UnknownBox):
    """A threshold that is one too low: what must be caught."""

    def noise_offset(self, sensitivity, special):
        return super().noise_offset(sensitivity, special) - 1


def excess(mechanism, sensitivity):
    law = box_law(mechanism.d_bar + 1, mechanism.epsilon, sensitivity.linf, tiny=1e-9)
    offset, linf = mechanism.threshold_offset(sensitivity), sensitivity.linf
    world = World(3, (0, 1, linf + 1, offset + linf), sensitivity)
    charge = mechanism.charge(sensitivity)
    ((cost, _),) = charge.costs.items()
    found = hockey_stick(
        laws(world, lambda h: floor_law(mechanism, h, law)), world.neighbours(), EPSILONS
    )
    return found - promised(cost) - charge.delta


FLOORS = [
    (1, 1.2, 1, None),
    (1, 1.2, 1, 1),
    (1, 1.5, 2, 1),
    (1, 1.5, 2, None),
    (2, 3.0, 1, 1),
    (2, 3.0, 1, None),
]


@pytest.mark.parametrize(("d_bar", "epsilon", "linf", "l0"), FLOORS)
def test_over_a_noisy_floor(d_bar, epsilon, linf, l0):
    sensitivity = Sensitivity(linf=linf, l0=l0)
    for delta in (0.03, 0.1):
        assert (
            excess(UnknownBox(d_bar=d_bar, epsilon=epsilon, delta=delta), sensitivity).max() <= 1e-6
        )


def test_the_threshold_is_needed():
    """δ at ε, where the losses of the noise end, is the chance of a special slot: one lower is
    above it.
    """
    sensitivity = Sensitivity(l0=1)
    offset = UnknownBox(d_bar=1, epsilon=1.2, delta=0.1).threshold_offset(sensitivity)
    tail = UnknownBox(d_bar=1, epsilon=1.2, delta=0.1).threshold_tail(sensitivity)(offset - 1)
    exactly = UnknownBox(d_bar=1, epsilon=1.2, delta=tail * (1 + 1e-6))
    assert exactly.threshold_offset(sensitivity) == offset
    assert excess(exactly, sensitivity).max() <= 1e-6
    assert excess(_TooLow(d_bar=1, epsilon=1.2, delta=tail), sensitivity).max() > 1e-3
