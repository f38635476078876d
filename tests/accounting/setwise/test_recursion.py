"""One step of the recursion: bounds on a supremum, checked at 50 digits and against a search of all
cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.pld.loss_components import Grid
from dptopk.accounting.setwise import bellman_step, lower_bounds, tuning
from dptopk.accounting.setwise.bellman_step import lower_step, upper_step
from dptopk.accounting.setwise.lower_bounds import Atoms
from dptopk.accounting.setwise.partition import partition
from dptopk.accounting.setwise.recursion import (
    FLOOR,
    Ladder,
    Layer,
    Rules,
    common_grid,
    rounding_noise,
    solve,
    solve_in_order,
)
from dptopk.accounting.work import OutOfTime, within


def value_of_many(x: np.ndarray) -> np.ndarray:
    """A convex decreasing function of e^x of the right kind: the δ of a Gaussian pair."""
    from scipy.special import ndtr

    mu = 0.7
    return ndtr(mu / 2 - x / mu) - np.exp(x) * ndtr(-mu / 2 - x / mu)


def best_chord(values: np.ndarray, node: int, N: int, h: mpmath.mpf) -> mpmath.mpf:
    """At 50 digits: the largest chord of ratio e^{Nh} over a node, of the function that joins the
    values by chords.
    """
    best = mpmath.mpf(0)
    E = mpmath.exp(N * h)
    for offset in range(1, N + 1):
        i = node - offset  # y = y_i r with u / y_i = ω
        omega = mpmath.exp(offset * h)
        g = mpmath.exp(h) - 1
        near, far = mpmath.mpf(values[i]), mpmath.mpf(values[i + N])
        B, B_far = (mpmath.mpf(values[i + 1]) - near) / g, (mpmath.mpf(values[i + N + 1]) - far) / g
        R, S = (near - B) - (far - B_far), B_far - E * B
        r = mpmath.sqrt(omega * R / S) if R > 0 and S > 0 else mpmath.mpf(1)
        for at in (mpmath.mpf(1), 1 + g, min(max(r, 1), 1 + g)):
            q = (E - omega / at) / (E - 1)
            best = max(best, q * (near + B * (at - 1)) + (1 - q) * (far + B_far * (at - 1)))
    return best


@pytest.mark.parametrize(("epsilon", "N"), [(0.1, 4), (0.5, 10), (2.0, 7), (1e-4, 6)])
def test_one_step_at_fifty_digits(epsilon: float, N: int) -> None:
    (steps,), h = common_grid((epsilon,), (1,), N, upper=True)
    x = np.arange(-30 * N, 31 * N) * h
    values = value_of_many(x)
    got = upper_step(values, steps, h)
    slack = bellman_step.step_slack(N, h, bellman_step.negligible_share(h))
    with mpmath.workdps(50):
        for node in np.linspace(N, len(x) - N - 1, 12).astype(int):
            exact = best_chord(values, int(node), N, mpmath.mpf(h))
            assert exact <= mpmath.mpf(got[node - N])
            assert mpmath.mpf(got[node - N]) <= exact * (1 + 10 * mpmath.mpf(slack))


def all_chords(values: np.ndarray, N: int, h: float) -> np.ndarray:
    """The largest chord over every node, by a look at the ends and the middle of all cells."""
    n, E, g = len(values) - 2 * N, math.exp(N * h), math.exp(h)
    B = np.diff(values) / math.expm1(h)
    best = values[N : N + n].copy()
    for k in range(1, N + 1):
        i, omega = np.arange(n) + N - k, math.exp(k * h)
        R = (values[i] - B[i]) - (values[i + N] - B[i + N])
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = np.sqrt(np.maximum(omega * R, 0.0) / (B[i + N] - E * B[i]))
        for r in (
            np.ones(n),
            np.full(n, g),
            np.clip(np.where(np.isfinite(middle), middle, 1.0), 1.0, g),
        ):
            q = (E - omega / r) / (E - 1)
            chord = q * (values[i] + B[i] * (r - 1)) + (1 - q) * (
                values[i + N] + B[i + N] * (r - 1)
            )
            best = np.maximum(best, chord)
    return best


def mixture(generator: np.random.Generator, x: np.ndarray, spread: float) -> np.ndarray:
    """A mixture of a few [1 - e^{x-l}]_+: convex, with kinks."""
    losses, weights = generator.normal(0, spread, 5), generator.dirichlet(np.ones(5))
    return np.maximum(-np.expm1(np.minimum(x[:, None] - losses, 0.0)), 0.0) @ weights + 1e-12


def rough(generator: np.random.Generator, x: np.ndarray, spread: float) -> np.ndarray:
    """Falling values that are not convex: noise on a mixture, steps, or no shape at all."""
    kind = generator.integers(3)
    if kind == 0:
        return np.sort(generator.random(len(x)))[::-1].copy()
    values = mixture(generator, x, spread)
    if kind == 1:
        values *= 1 + generator.normal(0, 10.0 ** -generator.integers(5, 16), len(x))
    else:
        values[len(x) // 2 :] *= generator.random()
    return np.minimum.accumulate(values)


def worst_of_steps(values: Callable[..., np.ndarray], rounds: int = 150) -> float:
    """The least of step / all chords, less one, over random grids and places."""
    generator = np.random.default_rng(7)
    worst = math.inf
    for _ in range(rounds):
        N, epsilon = int(generator.integers(1, 25)), float(generator.choice([1e-3, 0.1, 1.0, 5.0]))
        h, count = epsilon / N, int(generator.integers(1, 90)) + 2 * N
        data = values(generator, (np.arange(count) - generator.integers(count)) * h, 2 * epsilon)
        worst = min(worst, float((upper_step(data, N, h) / all_chords(data, N, h)).min()) - 1)
    return worst


@pytest.mark.slow
def test_the_nodes_that_are_looked_at_give_what_all_cells_give() -> None:
    assert worst_of_steps(mixture) >= 0
    assert worst_of_steps(rough) >= 0
    generator = np.random.default_rng(11)
    for epsilon in (0.05, 0.3, 1.0):
        N, h = 16, epsilon / 16
        for values in (
            value_of_many(np.arange(-400, 500) * h),
            mixture(generator, np.arange(-60, 70) * h, epsilon),
        ):
            assert upper_step(values, N, h) == pytest.approx(all_chords(values, N, h), rel=1e-9)


@pytest.mark.slow
def test_a_step_that_looks_at_fewer_nodes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: values taken to be convex; cells looked at one node too low."""
    original = bellman_step._Cells.out_of_order
    nothing = np.zeros(0, dtype=np.intp)
    monkeypatch.setattr(
        bellman_step._Cells, "out_of_order", lambda cells, reached: (nothing, nothing)
    )
    assert worst_of_steps(rough) < -1e-6
    monkeypatch.setattr(bellman_step._Cells, "out_of_order", original)

    def lower(cells: bellman_step._Cells, rows: np.ndarray, geometry: Any) -> None:
        initial(cells, rows, geometry)
        cells.first = cells.first - 1

    initial = bellman_step._Cells.__init__
    monkeypatch.setattr(bellman_step._Cells, "__init__", lower)
    assert worst_of_steps(mixture) < -1e-6


def test_a_kink_is_seen_by_every_node_that_can_use_it() -> None:
    """Values with jumps in slope, as at the edge of the band."""
    N, h = 12, 0.02
    x = np.arange(-300, 300) * h
    for place in (-200, -40, 0, 90, 250):
        values = np.minimum(value_of_many(x), 1.0)
        values[: 300 + place] = np.minimum(values[: 300 + place] * 1.5 + 0.1, 1.0)
        got = upper_step(values, N, h)
        with mpmath.workdps(30):
            for node in np.unique(
                np.clip(300 + place + np.array([-30, -12, -5, -1, 0, 1, 5, 12, 30]), N, 600 - N - 1)
            ):
                assert best_chord(values, int(node), N, mpmath.mpf(h)) <= mpmath.mpf(got[node - N])


@settings(max_examples=50, deadline=None)
@given(
    losses=st.lists(st.floats(-2, 2), min_size=1, max_size=6),
    weights=st.lists(st.floats(0.05, 1), min_size=6, max_size=6),
    epsilon=st.sampled_from([0.1, 0.5, 1.5]),
    N=st.integers(2, 12),
)
def test_bounds_of_a_step_bracket_a_fine_search(
    losses: list[float], weights: list[float], epsilon: float, N: int
) -> None:
    """For any mixture of [1 - e^{x-l}]_+ the two steps lie on either side of a search over 400
    values of t.
    """
    mass = np.array(weights[: len(losses)]) / sum(weights[: len(losses)])

    def value(x: np.ndarray) -> np.ndarray:
        return np.maximum(-np.expm1(np.minimum(x[..., None] - np.array(losses), 0.0)), 0.0) @ mass

    h = epsilon / N
    x = np.arange(-4 * N, 4 * N + 1) * h
    above, below = upper_step(value(x), N, h), lower_step(value(x), N, h)
    t = np.linspace(0, epsilon, 401)
    q = -np.expm1(t - epsilon) / -math.expm1(-epsilon)
    inner = x[N:-N, None]
    best = (q * value(inner - t) + (1 - q) * value(inner + epsilon - t)).max(axis=1)
    assert (best <= above * (1 + 1e-12) + 1e-15).all()
    assert (below <= above).all()
    fine = np.linspace(0, epsilon, 8 * N + 1)  # contains the grid multiples
    q = -np.expm1(fine - epsilon) / -math.expm1(-epsilon)
    finer = (q * value(inner - fine) + (1 - q) * value(inner + epsilon - fine)).max(axis=1)
    assert (below <= finer * (1 + 1e-12) + 1e-15).all()
    # A step keeps 1 - u <= H <= 1 and monotony.
    assert (above <= 1 + 1e-12).all()
    assert (np.diff(above) <= 1e-12).all()


def test_the_window_hardly_matters_and_only_widens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow window makes the bounds worse, never wrong; the usual one costs less than 1e-6
    of δ.
    """
    values = []
    for below, stray, reach in (
        (1.0, 1.5, 3.0),
        (3.0, 3.0, 5.0),
        (tuning.BELOW, tuning.STRAY, 7.5),
        (9, 9, 12),
    ):
        monkeypatch.setattr(tuning, "BELOW", below)
        monkeypatch.setattr(tuning, "STRAY", stray)
        above, lower = (
            solve(Rules.of({0.2: 30}, 12, upper=side, reach=reach), (30,)) for side in (1, 0)
        )
        node = math.ceil(1.5 / lower.h)
        values.append((above.above(np.array([1.5]))[0], float(lower.values_between(node, node)[0])))
    assert all(low <= values[-1][0] and values[-1][1] <= high for high, low in values)
    highs, lows = np.array(values).T
    assert highs[2] == pytest.approx(highs[3], rel=1e-6)
    assert lows[2] == pytest.approx(lows[3], rel=1e-6)
    assert highs[0] > highs[3]
    assert lows[0] < lows[3]


def test_what_replaces_the_outside_of_a_window_lies_above() -> None:
    """The chords to H(0) = 1 and to where H vanishes; an end taken too early is seen."""
    rules = Rules.of({0.4: 4}, 10, upper=True, reach=20.0)
    whole = solve(rules, (4,))
    last = whole.first + len(whole.values) - 1
    assert last >= whole.top
    for cut in (5, 25, 40):
        part = Layer(whole.first + cut, whole.values[cut:-cut], whole.top, whole.h, upper=True)
        outside = part.values_between(whole.first, last)
        assert (outside >= whole.values * (1 - 1e-12) - 1e-280).all()
        assert (np.diff(outside) <= 1e-15).all()
        early = Layer(part.first, part.values, last - cut + 2, whole.h, upper=True).values_between(
            whole.first, last
        )
        assert (early < whole.values * (1 - 1e-9)).any()
    assert part.values_between(last - 12, last - 12)[0] < 0.5 * part.values[-1]


@pytest.mark.parametrize(("N", "count"), [(100, 6), (270, 4)])
def test_chords_from_below_are_found_near_the_largest_loss(N: int, count: int) -> None:
    """There the best offset jumps between the nodes that are sampled: a strategy worth nothing came
    of it.
    """
    rules = Rules.of({0.4: 1}, N, upper=False)
    layer, geometry = rules.empty_layer(), bellman_step._geometry(N, rules.h, -1)
    for played in range(1, count + 1):
        window = rules.windows(np.array([[played]]))[0].tolist()
        around, n = layer.values_between(window[0] - N, window[1] + N), window[1] - window[0] + 1
        ends = np.arange(n)[:, None] + N - np.arange(N + 1)
        best = (geometry.near_weights * around[ends] + geometry.far_weights * around[ends + N]).max(
            axis=1
        )
        found = rules.step(layer, 0, window)
        assert found[best > 1e-12] == pytest.approx(best[best > 1e-12], rel=1e-6)
        layer = Layer(window[0], found, played * N, rules.h, upper=False)


def test_several_functions_are_stepped_as_each_is_alone() -> None:
    """Rows with kinks and tails in different places: bounds in any case, and hardly wider than
    alone.
    """
    N, h = 12, 0.02
    x = np.arange(-200, 250) * h
    rows = np.stack(
        [
            np.minimum(value_of_many(x - shift) * scale, 1.0)
            for shift, scale in ((0, 1), (0.7, 1), (-1, 0.5))
        ]
    )
    rows[2] = np.maximum(rows[2], -np.expm1(np.minimum(x, 0.0)))
    above, below = upper_step(rows, N, h), lower_step(rows, N, h)
    for row, high, low in zip(rows, above, below, strict=True):
        assert high == pytest.approx(upper_step(row, N, h), rel=1e-9)
        assert low == pytest.approx(lower_step(row, N, h), rel=1e-6)
        assert (low <= high).all()


def test_multisets_of_one_size_together_are_as_good_as_alone() -> None:
    """Against a recursion state by state, with the windows of each."""
    rules = Rules.of({0.1: 3, 0.16: 2, 0.24: 2}, 12, upper=True)

    def alone(state: tuple[int, ...]) -> Layer:
        if not any(state):
            return rules.empty_layer()
        ((low, high),) = rules.windows(np.array([state])).tolist()
        lesser = [
            (part, (*state[:part], n - 1, *state[part + 1 :])) for part, n in enumerate(state) if n
        ]
        best = np.max([rules.step(kept(left), part, (low, high)) for part, left in lesser], axis=0)
        return Layer(
            low,
            best,
            sum(n * N for n, N in zip(state, rules.steps, strict=True)),
            rules.h,
            upper=True,
        )

    kept = cache(alone)
    together, expected = solve(rules, (3, 2, 2)), kept((3, 2, 2))
    nodes = expected.first, expected.first + len(expected.values) - 1
    assert together.values_between(*nodes)[:-30] == pytest.approx(expected.values[:-30], rel=1e-6)
    assert together.top == expected.top


def further_chords(
    monkeypatch: pytest.MonkeyPatch, rules: Rules, counts: tuple[int, ...]
) -> tuple[int, int]:
    """How many chords a solution looks at besides the usual ones, and in how many cells."""
    tried, looked_at = bellman_step._Cells.out_of_order, [0, 0]

    def counted(cells: Any, reached: Any) -> Any:
        some, offsets = tried(cells, reached)
        looked_at[0] += len(some)
        looked_at[1] += cells.first.size
        return some, offsets

    monkeypatch.setattr(bellman_step._Cells, "out_of_order", counted)
    solve(rules, counts)
    return looked_at[0], looked_at[1]


def test_beyond_the_largest_loss_no_further_chords_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of states share a window; where one of them is 0 it is 0, not what rounding made of it
    in each step.
    """
    ranges = {0.0289: 3, 0.0386: 4, 0.07: 2}
    rules = Rules.of(ranges, 60, upper=True, reach=7.5)
    chords, cells = further_chords(monkeypatch, rules, tuple(ranges.values()))
    assert chords < 0.5 * cells


def test_where_the_value_is_1_no_further_chords_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left of a large range V is 1 but for rounding, over hundreds of nodes: 55 chords a cell
    were looked at.
    """
    ranges = {0.268: 12, 6.45: 2}
    rules = Rules.of(ranges, 300, upper=True, reach=7.5)
    chords, cells = further_chords(monkeypatch, rules, tuple(ranges.values()))
    assert chords < 40 * cells


@pytest.mark.slow
def test_a_ladder_is_the_same_however_it_is_climbed() -> None:
    rules = Rules.of({0.1: 1}, 10, upper=True)
    at_once, in_steps = Ladder(rules), Ladder(rules)
    for n in (3, 70, 66, 100, 97):
        here, there = at_once.value(n), in_steps.value(n)
        assert here.first == there.first
        assert (here.values == there.values).all()
        whole = solve(rules, (n,)).values
        below = (
            np.arange(here.first, here.first + here.values.size) < n * 10
        )  # the largest loss; beyond it is 0
        assert (here.values == whole)[below].all()
        assert (here.values[~below] <= FLOOR * (1 + 1e-8)).all()
        assert (whole[~below] == FLOOR).all()
        at_once = Ladder(rules)


@pytest.mark.parametrize("epsilons", [(0.1,), (0.1, 0.25), (0.1, 0.0999), (0.3, 0.7, 0.71)])
@pytest.mark.parametrize("upper", [True, False])
def test_grids_round_outward_exactly(epsilons: tuple[float, ...], upper: bool) -> None:
    from fractions import Fraction

    steps, h = common_grid(epsilons, (1,) * len(epsilons), 8, upper=upper)
    for epsilon, N in zip(epsilons, steps, strict=True):
        assert (
            (N * Fraction(h) >= Fraction(epsilon))
            if upper
            else (N * Fraction(h) <= Fraction(epsilon))
        )
        assert abs(N * h - epsilon) <= h


@pytest.mark.parametrize("epsilons", [(0.1,), (0.1, 0.25), (0.02, 0.1, 0.0999), (0.3, 0.7, 0.71)])
@pytest.mark.parametrize("upper", [True, False])
def test_the_noise_of_a_grid_is_that_of_the_grid_that_is_taken(
    epsilons: tuple[float, ...], upper: bool
) -> None:
    counts, cell = (3, 1, 2)[: len(epsilons)], tuning.GRID_CELL
    each, h = common_grid(epsilons, counts, 9, upper=upper)
    expected = sum(
        n * (abs((N * h) ** 2 - e * e) / 4 + cell * h * h)
        for e, N, n in zip(epsilons, each, counts, strict=True)
    )
    assert rounding_noise(epsilons, counts, 9, cell, upper=upper) == pytest.approx(
        expected, rel=1e-9
    )


def test_a_hundred_ranges_are_grouped_with_few_questions_none_asked_twice() -> None:
    """Each group with each number of steps once, and few of them: more took seconds, and more than
    there were.
    """
    ranges = {0.02 + 0.002 * i: 1 for i in range(100)}
    rounding_noise.cache_clear()
    for _ in range(2):
        for tolerance in (8e-3, 2e-3, 8e-4):
            assert len(partition(ranges, sum(e * e for e in ranges) / 4, tolerance, 0.2, 3.0)) > 5
    asked = rounding_noise.cache_info()
    assert asked.hits + asked.misses < 1000
    assert asked.hits > asked.misses > 0


class Copies(int):
    """A number that is no exponent: a wide pair's million copies have a number of sums that fills
    the memory.
    """

    def __mul__(self, other: int) -> Copies:
        return Copies(int(self) * int(other))

    __rmul__ = __mul__

    def __rpow__(self, base: int, _: object = None) -> int:
        raise AssertionError(f"{base} to the power of {int(self)}")


def test_the_sums_of_many_copies_are_not_counted_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    multiplied: list[Any] = []

    def product(pairs: Any, **_: Any) -> Any:
        multiplied.append(pairs)
        raise StopAsyncIteration

    monkeypatch.setattr(lower_bounds, "product", product)
    wide = SimpleNamespace(losses=np.zeros((2, 5000)), count=Copies(10**6))
    part: Any = SimpleNamespace(pairs=lambda _: [wide])
    with pytest.raises(StopAsyncIteration):
        Atoms.of([part], Grid(0.1, 1.0, -1), 0.0, 0.1)
    assert multiplied == [[wide]]


def test_the_guard_ends_a_recursion() -> None:
    rules = Rules.of({0.1: 1}, 8, upper=True)
    started = Ladder(rules)
    with within(1e-9):
        for ended in (
            lambda: solve(rules, (50,)),
            lambda: solve_in_order(rules, [0] * 5),
            lambda: started.value(50),
        ):
            with pytest.raises(OutOfTime):
                ended()
    assert (started.value(50).values == solve(rules, (50,)).values).all()


@pytest.mark.parametrize("small", [1e-12, 0.01250000001, 1e-300])
@pytest.mark.parametrize("upper", [True, False])
def test_a_grid_step_fits_every_range_exactly(small, upper):
    """Also a range far below the step, or just above one of its multiples: the step is found at
    once.
    """
    epsilons = (1.0, small)
    steps, h = common_grid(epsilons, (1, 1), 80, upper=upper)
    for epsilon, N in zip(epsilons, steps, strict=True):
        if upper:
            assert Fraction(h) * N >= Fraction(epsilon)
        else:
            assert Fraction(h) * N <= Fraction(epsilon)
    assert h == pytest.approx(1 / max(steps), rel=1e-8)
