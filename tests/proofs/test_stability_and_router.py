"""Stability and the router: exact laws on small worlds, every neighbour; thresholds one lower are
caught.
"""

import itertools
import math
from functools import cache

import numpy as np
import pytest

from dptopk import (
    BoundedRange,
    CanonicalTopK,
    Charge,
    Histogram,
    JointTopK,
    OneShotTopK,
    RoutedTopK,
    Sensitivity,
    compose,
)
from dptopk.mechanisms import StabilityTopK, router, stability
from dptopk.mechanisms.laplace import KnownLaplace
from dptopk.mechanisms.samplers import advantage, selection
from dptopk.mechanisms.samplers.level_set_sampling import Ranked

from .harness import World, hockey_stick
from .paths import law_of, paths
from .test_whole_answers import neighbours, one_shot_law

COSTLY = {"k": 2, "epsilon": 3.0, "delta": 0.2}


def matrix_of(world, law):
    """Laws of all histograms as rows, over the outcomes that occur."""
    each = [law(world.histogram(counts)) for counts in world.counts]
    outcomes = sorted({outcome for one in each for outcome in one})
    return np.array([[one.get(outcome, 0.0) for outcome in outcomes] for one in each]), outcomes


@pytest.fixture
def stability_law(monkeypatch):
    """The law of labels with the size of the exact set: every draw is answered in every way."""

    def law(mechanism, histogram):
        falling = np.sort(histogram.counts)[::-1]
        gaps = falling[:-1] - falling[1:]

        def run(choose):
            def select(counts, k, *, epsilon, linf, bits, absent=0):
                left = list(range(len(counts)))
                weights = np.exp(epsilon / linf * (np.asarray(counts) - max(counts)))
                return selection.Selection(
                    np.array([left.pop(choose(weights[left])) for _ in range(k)]), False
                )

            def noise(self, sensitivity, size, bits):
                q, values = math.exp(-self.epsilon / sensitivity.linf), np.arange(-60, 61)
                # Only whether a gap passes matters: one value for each run that no gap of this
                # world tells apart.
                run_of = np.searchsorted(np.sort(mechanism.threshold(sensitivity) - gaps), values)
                runs, firsts = np.unique(run_of, return_index=True)
                return values[
                    firsts[[choose([(q ** np.abs(values[run_of == run])).sum() for run in runs])]]
                ]

            monkeypatch.setattr(stability, "gumbel_top_k", select)
            monkeypatch.setattr(KnownLaplace, "draw_noise", noise)
            release = mechanism.release(histogram)
            return release.note, *release.labels

        return law_of(run)

    return law


@pytest.mark.slow
@pytest.mark.parametrize("sensitivity", [Sensitivity(), Sensitivity(linf=2)], ids=str)
def test_stability_stays_within_its_charge(stability_law, sensitivity):
    mechanism = StabilityTopK(**COSTLY)
    level = mechanism.threshold(sensitivity)
    world = World(3, (0, sensitivity.linf, level + 1), sensitivity, "public")
    matrix, _ = matrix_of(world, lambda histogram: stability_law(mechanism, histogram))
    charge = mechanism.charge(sensitivity)
    surely = sum(cost.epsilon * times for cost, times in charge.costs.items())
    found = hockey_stick(matrix, neighbours(world), [surely, mechanism.epsilon])
    assert found[0] <= charge.delta + 1e-9
    assert found[1] <= mechanism.delta + 1e-9
    assert compose(charge, delta=mechanism.delta).epsilon <= mechanism.epsilon
    # A threshold that is lower, as without the linf by which a gap may move, releases unstable sets
    # too often.

    class Lower(StabilityTopK):
        def threshold(self, sensitivity):
            return super().threshold(sensitivity) - sensitivity.linf - 1

    matrix, _ = matrix_of(world, lambda histogram: stability_law(Lower(**COSTLY), histogram))
    assert hockey_stick(matrix, neighbours(world), [surely])[0] > found[0]


def test_stability_is_charged_for_what_it_peeled():
    far = Histogram(None, [10**6, 10**6 - 9, 5, 4])
    mechanism = StabilityTopK(k=2, epsilon=1.0, delta=1e-6)
    release = mechanism.release(far, np.random.default_rng(0))
    assert set(release.labels) == {0, 1}
    assert sum(release.charge.costs.values()) == 2  # the choice and the test
    assert sum(mechanism.charge(Sensitivity()).costs.values()) == 4


def test_utilities_of_sizes_move_by_at_most_linf():
    for gaps, move in itertools.product(
        itertools.product(range(5), repeat=3), itertools.product((-1, 0, 1), repeat=3)
    ):
        one, other = (stability.utilities(np.array(g), 2) for g in (gaps, np.add(gaps, move)))
        assert np.abs(one - other).max() <= 1


def sequence_law(counts, k, rate):
    """Of `KnownGumbel`: k selections in order, each by an exponential mechanism."""
    law = {}
    weights = np.exp(rate * (np.asarray(counts, dtype=float) - max(counts)))
    for answer in itertools.permutations(range(len(counts)), k):
        left, chance = weights.sum(), 1.0
        for label in answer:
            chance, left = chance * weights[label] / left, left - weights[label]
        law[answer] = chance
    return law


def whole_law(mechanism, counts, linf):
    """Of `CanonicalTopK` or `JointTopK`: e^{-ε gap / 2 linf}, the gap by its definition."""
    law, ranked = {}, sorted(counts, reverse=True)
    steps = np.subtract(ranked[:-1], ranked[1:])
    among = itertools.permutations if isinstance(mechanism, JointTopK) else itertools.combinations
    for answer in among(range(len(counts)), mechanism.k):
        if isinstance(mechanism, JointTopK):
            gap = max(ranked[i] - counts[label] for i, label in enumerate(answer))
            gap = gap if gap > 0 else -min(steps[: mechanism.k])
        else:
            outside = [count for label, count in enumerate(counts) if label not in answer]
            gap = max(outside) - min(counts[label] for label in answer)
        law[answer] = math.exp(-mechanism.epsilon * gap / (2 * linf))
    total = sum(law.values())
    return {answer: weight / total for answer, weight in law.items()}


def at_once(mechanism, histogram, pitch):
    """P[drawn at once] by the router's own decision; ``pitch`` multiplies its margin."""
    chances = {}

    class Answered:
        def __init__(self, weights):
            near, far = weights(120)
            chances[0], chances[1] = near / (near + far), far / (near + far)

        def draw(self, size, bits):
            return np.array([self.side])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(router, "Cells", Answered)
        margin = pitch * mechanism.margin(histogram)
        patch.setattr(type(mechanism), "margin", lambda *_: margin)
        sides = []
        for side in (0, 1):
            Answered.side = side
            sides.append(mechanism._draw_choice(histogram, None))
    assert sides[0] != sides[1]
    return chances[0] if sides[0] else chances[1]


@cache
def falling_law(mechanism, counts, sensitivity, pitch):
    """The law of (which mechanism drew, its answer) for counts in falling order."""
    chance = at_once(mechanism, Histogram(None, counts, sensitivity=sensitivity), pitch)
    peeling, linf = mechanism.peeling, sensitivity.linf
    if isinstance(peeling, OneShotTopK):
        peeled = one_shot_law(counts, mechanism.k, peeling.epsilon / (mechanism.k * linf))
    else:
        peeled = sequence_law(counts, mechanism.k, peeling.epsilon / linf)
    drawn = whole_law(mechanism.at_once, counts, linf)
    return {("whole", answer): chance * mass for answer, mass in drawn.items()} | {
        ("peeled", answer): (1 - chance) * mass for answer, mass in peeled.items()
    }


def routed(mechanism, world, pitch=1.0):
    """Laws of all histograms of a world as rows, and the outcomes."""
    sets = isinstance(mechanism.at_once, CanonicalTopK)

    def law(counts):
        order = np.argsort(-counts, kind="stable").tolist()
        falling = tuple(counts[order].tolist())
        renamed = {}
        for (by, answer), mass in falling_law(mechanism, falling, world.sensitivity, pitch).items():
            labels = tuple(order[label] for label in answer)
            renamed[by, tuple(sorted(labels)) if sets and by == "whole" else labels] = mass
        return renamed

    each = [law(counts) for counts in world.counts]
    outcomes = sorted(each[0])
    return np.array([[one[outcome] for outcome in outcomes] for one in each]), outcomes


ROUTED = [
    (4, 2, (0, 1, 6, 7), Sensitivity()),
    (4, 2, (0, 2, 3, 5), Sensitivity(linf=2)),
    (5, 3, (0, 1, 4), Sensitivity()),
    (6, 2, (0, 1), Sensitivity()),
    (6, 3, (0, 1), Sensitivity(l0=1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True], ids=["set", "ordered"])
@pytest.mark.parametrize(("labels", "k", "levels", "sensitivity"), ROUTED, ids=str)
def test_the_margin_moves_by_at_most_its_range(labels, k, levels, sensitivity, ordered):
    world = World(labels, levels, sensitivity, "public")
    pairs = neighbours(world)
    for delta in (0.0, 1e-3):
        mechanism = RoutedTopK(k=k, epsilon=4.0, delta=delta, ordered=ordered)
        falling, place = np.unique(-np.sort(-world.counts, axis=1), axis=0, return_inverse=True)
        each = [
            mechanism.margin(Histogram(None, counts, sensitivity=sensitivity)) for counts in falling
        ]
        margins = np.array(each)[place.ravel()]
        moves = np.abs(margins[pairs[:, 1]] - margins[pairs[:, 0]])
        assert 0.2 * mechanism.answer_epsilon < moves.max() <= mechanism.statistic_range


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "delta", "ordered"),
    [
        (1, 0.0, False),
        (1, 0.0, True),
        (1, 0.05, True),
        (2, 0.0, False),
        (3, 0.05, False),
        (3, 0.0, True),
        (4, 0.0, False),
    ],
)
def test_the_router_stays_within_its_charge(world, delta, ordered):
    """Every answer by either mechanism, every neighbour: (ε, δ) in all, and the choice by itself
    costs its share.
    """
    labels, k, levels, sensitivity = ROUTED[world]
    mechanism = RoutedTopK(k=k, epsilon=2.0, delta=delta, ordered=ordered)
    world = World(labels, levels, sensitivity, "public")
    pairs = neighbours(world)
    matrix, outcomes = routed(mechanism, world)
    assert matrix.sum(axis=1) == pytest.approx(1)
    found = hockey_stick(matrix, pairs, [mechanism.epsilon, 0.3 * mechanism.answer_epsilon])
    assert found[0] <= delta + 1e-9
    assert found[1] > 0
    whole = np.array([outcome[0] == "whole" for outcome in outcomes])
    choice = np.log(np.stack([matrix[:, whole].sum(axis=1), matrix[:, ~whole].sum(axis=1)]))
    moves = choice[:, pairs[:, 1]] - choice[:, pairs[:, 0]]
    assert np.abs(moves).max() <= mechanism.choice_epsilon
    if delta:
        assert (
            np.ptp(moves, axis=0).max() <= mechanism.choice_epsilon
        )  # bounded range, as it is charged within (ε, δ)


@pytest.mark.slow
@pytest.mark.parametrize("inclusion", [advantage.one_shot_inclusion, advantage.gumbel_inclusion])
def test_larger_histograms_move_the_advantage_by_at_most_one(inclusion):
    """Moves of blocks of ranks, which change the odds most, and of random labels; the whole step is
    attained.
    """
    rng, linf, moves = np.random.default_rng(5), 3, []
    shapes = (
        1e4 / np.arange(1, 301) ** 1.3,
        np.repeat(np.arange(60, 0, -1) * 9.0, 5),
        rng.integers(0, 90, 300),
    )
    for shape, k in itertools.product(shapes, (1, 12, 40)):
        counts = np.sort(shape.astype(np.int64))[::-1] * linf

        def statistic(counts, k=k):
            return advantage.advantage(
                Ranked(counts, 0),
                k,
                linf=linf,
                epsilon=0.8,
                scale=0.7 * k,
                inclusion=inclusion,
                most=1e6,
            )

        start = statistic(counts)
        blocks = [np.sort(rng.integers(0, min(3 * k + 3, 300) + 1, 4)) for _ in range(4)]
        users = [
            np.bincount(np.concatenate((range(a, b), range(c, d))).astype(int), minlength=300) > 0
            for a, b, c, d in blocks
        ]
        users += [np.arange(300) < k, np.arange(300) >= k, rng.random(300) < 0.3]
        moves += [abs(statistic(counts + linf * user) - start) for user in users]
    assert 1 - 1e-6 < max(moves) < 1 + 1e-6


@pytest.mark.slow
def test_routers_that_lose_more_are_caught():
    """A margin 40 times as large for the same noise; a whole answer, a peeled one at twice their
    rates.
    """
    labels, k, levels, sensitivity = ROUTED[1]
    world = World(labels, levels, sensitivity, "public")
    pairs = neighbours(world)

    class Doubled(RoutedTopK):
        @property
        def at_once(self):
            return CanonicalTopK(k=self.k, epsilon=2 * self.answer_epsilon)

    class Peeled(RoutedTopK):
        @property
        def peeling(self):
            return OneShotTopK(k=self.k, epsilon=2 * self.answer_epsilon)

    for cls, pitch in ((RoutedTopK, 1.0), (RoutedTopK, 40.0), (Doubled, 1.0), (Peeled, 1.0)):
        mechanism = cls(k=k, epsilon=2.0)
        matrix, _ = routed(mechanism, world, pitch)
        assert (hockey_stick(matrix, pairs, [2.0])[0] > 1e-6) == (
            cls is not RoutedTopK or pitch > 1
        )


@pytest.mark.slow
def test_a_statistic_at_twice_the_rate_would_be_caught():
    """The odds are those of the mechanism's own rate; those of another one move by more."""
    world = World(4, (0, 1, 6, 7), Sensitivity(), "public")
    pairs = neighbours(world)

    def moves(odds_rate):
        def statistic(counts):
            ranked = Ranked(counts.astype(np.int64), 0)
            grid = advantage._rank_grid(4, 2)
            heights = lambda ranks: ranked.counts_of(ranks).astype(float)  # noqa: E731
            odds = advantage._largest_odds(grid, heights, 2, odds_rate)
            shifts = advantage._needed_shifts(
                grid, heights(grid.ranks), 2, 0.5, advantage.one_shot_inclusion
            )
            return odds[np.isfinite(odds)], shifts[np.isfinite(shifts)]

        found = [statistic(counts) for counts in world.counts]
        return [
            np.abs(part[pairs[:, 1]] - part[pairs[:, 0]]).max()
            for part in map(np.array, zip(*found, strict=True))
        ]

    assert moves(1.0)[0] <= 2.0 < moves(2.0)[0]
    assert moves(1.0)[1] == pytest.approx(1.0)  # attained: counts may rise by linf, the others not


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_charge_of_the_router_covers_either_answer(delta):
    mechanism = RoutedTopK(k=20, epsilon=1.0, delta=delta)
    assert compose(mechanism.charge(Sensitivity()), delta=delta).epsilon <= 1.0
    assert mechanism.choice_epsilon + mechanism.answer_epsilon <= 1.0
    assert (
        compose(mechanism.at_once.charge(Sensitivity()), delta=0).epsilon
        <= mechanism.answer_epsilon
    )
    ((cost, times),) = mechanism.peeling.charge(Sensitivity()).costs.items()
    if delta:
        both = Charge({BoundedRange(mechanism.choice_epsilon): 1, cost: times}, adaptive=True)
        assert compose(both, delta=delta).epsilon <= 1.0 + 1e-3
    else:
        assert (str(cost), times) == (f"DP({mechanism.answer_epsilon})", 1)


@pytest.mark.slow
def test_the_router_finds_the_side_where_it_is_plain():
    """Steps that are wide for a whole answer, but not for peeling, are drawn at once; close counts
    are peeled.
    """
    steps = Histogram(None, np.arange(3000, 0, -1) * 12)
    close = Histogram(None, np.arange(10_000) // 20)
    mechanism, rng = RoutedTopK(k=200, epsilon=1.0), np.random.default_rng(2)
    assert {mechanism.release(steps, rng).note for _ in range(5)} == {
        "drawn by CanonicalTopK: a set, in label order: ranks mean nothing"
    }
    assert set(mechanism.release(steps, rng).labels) == set(range(200))
    notes = [mechanism.release(close, rng).note for _ in range(30)]
    assert notes.count("drawn by OneShotTopK") > 20


def test_the_statistic_is_what_it_estimates():
    """D against the exact odds of all sets; s against the chances of peeling, by simulation."""
    counts, k = np.array([40, 31, 22, 20, 19, 9, 8, 8, 3, 1]), 3
    ranked = Ranked(counts, 0)
    grid = advantage._rank_grid(10, k)
    heights = lambda ranks: ranked.counts_of(ranks).astype(float)  # noqa: E731
    law = whole_law(CanonicalTopK(k=k, epsilon=0.3), counts.tolist(), 1)
    odds = advantage._largest_odds(grid, heights, k, 0.15)
    best = law[0, 1, 2]
    assert odds[-1] == pytest.approx(math.log(best / (1 - best)))
    shifts = advantage._needed_shifts(
        grid, heights(grid.ranks), k, k / 0.3, advantage.one_shot_inclusion
    )
    rng = np.random.default_rng(0)
    for level, shift in list(zip(grid.levels, shifts, strict=True))[:2]:
        raised = counts + np.where(np.arange(10) < k, shift, 0)
        drawn = np.argsort(-(raised + rng.exponential(k / 0.3, (20_000, 10))), axis=1)[:, :k]
        assert (drawn < k).sum(axis=1).mean() == pytest.approx(level, abs=0.2)


def test_paths_enumerates_everything():
    law = dict(paths(lambda choose: (choose([1, 0, 3]), choose([1, 1]))))
    assert law == {(0, 0): 0.125, (0, 1): 0.125, (2, 0): 0.375, (2, 1): 0.375}
