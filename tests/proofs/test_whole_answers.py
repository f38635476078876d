"""Whole answers drawn at once: ranges, laws and costs by enumeration of all answers and all
neighbours.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dptopk import CanonicalTopK, Histogram, JointTopK, OneShotTopK, Sensitivity
from dptopk.mechanisms import canonical, joint_selection, one_shot
from dptopk.mechanisms.canonical import Subsets
from dptopk.mechanisms.joint import Sequences
from dptopk.mechanisms.samplers import level_set_sampling
from dptopk.mechanisms.samplers.level_set_sampling import Ranked, draw_answer, log_odds
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.mechanisms.samplers.uniform_orders import smallest_in_order

from .harness import World, hockey_stick
from .paths import law_of

KINDS = [
    (JointTopK, Sequences, itertools.permutations),
    (CanonicalTopK, Subsets, itertools.combinations),
]
WORLDS = [
    pytest.param(6, 3, (0, 1, 2), Sensitivity(linf=1), marks=pytest.mark.study),
    (4, 2, (0, 1, 2, 3), Sensitivity(linf=1)),
    (4, 2, (0, 1, 2, 4), Sensitivity(linf=2)),
    (4, 3, (0, 1, 3, 4), Sensitivity(linf=3, l0=2)),
]


@pytest.mark.parametrize("absent", [0, 1, 5])
def test_ranked_counts_are_those_of_all_labels(absent):
    """Against a list of every label: those without a row have count 0."""
    counts = np.array([3, 0, 1, 3, 2, 1, 0])
    ranked = Ranked(counts, absent)
    every = [*counts, *[0] * absent]
    descending = sorted(every, reverse=True)
    assert ranked.top(ranked.size).tolist() == descending
    assert [ranked.count(rank) for rank in range(ranked.size)] == descending
    values = np.arange(-1, 5)
    at_least = [sum(count >= value for count in every) for value in values]
    assert ranked.number_at_least(values).tolist() == at_least


def neighbours(world):
    """Rows (smaller, larger) of ``world.counts``, without a walk over all moves."""
    larger = world.counts[None, :, :] - world.counts[:, None, :]
    near = (larger >= 0).all(axis=2) & (larger <= world.sensitivity.linf).all(axis=2)
    touched = (larger > 0).sum(axis=2)
    return np.argwhere(near & (touched > 0) & (touched <= (world.sensitivity.l0 or world.labels)))


def by_rank(ranked, answer):
    """An answer that names rows, as ranks."""
    place = np.argsort(ranked.rows(list(range(ranked.size))))
    return [int(place[row]) for row in answer]


def gaps(answers_of, among, world, k):
    """The gaps of all answers on all histograms, shape (histograms, answers)."""
    every = list(among(range(world.labels), k))
    matrix = []
    for counts in world.counts:
        ranked = Ranked(counts.astype(np.int64), 0)
        answers = answers_of(ranked, k)
        matrix.append([answers.gap(by_rank(ranked, answer)) for answer in every])
    return np.array(matrix)


def test_rows_of_ranks_are_those_of_a_stable_order():
    rng = np.random.default_rng(0)
    for _ in range(200):
        size, absent = int(rng.integers(0, 12)), int(rng.integers(1, 4))
        counts = rng.integers(0, 5, size)
        order = [*np.argsort(-counts, kind="stable").tolist(), *range(size, size + absent)]
        ranks = rng.permutation(size + absent)[: int(rng.integers(0, size + absent + 1))].tolist()
        assert Ranked(counts, absent).rows(ranks) == [order[rank] for rank in ranks]


@pytest.mark.slow
@pytest.mark.parametrize(("labels", "k", "levels", "sensitivity"), WORLDS, ids=str)
@pytest.mark.parametrize(("cls", "answers_of", "among"), KINDS, ids=["joint", "canonical"])
def test_gaps_have_range_two_linf_and_answers_bounded_range(
    cls, answers_of, among, labels, k, levels, sensitivity
):
    world = World(labels, levels, sensitivity, "public")
    matrix, pairs = gaps(answers_of, among, world, k), neighbours(world)
    moves = matrix[pairs[:, 1]] - matrix[pairs[:, 0]]
    assert np.abs(moves).max() == sensitivity.linf
    assert (
        np.ptp(moves, axis=1).max() == 2 * sensitivity.linf
    )  # attained: a smaller divisor would be wrong
    epsilon = 0.9
    rate = epsilon / (2 * sensitivity.linf)
    weights = np.exp(-rate * matrix)
    loss = np.log(weights / weights.sum(axis=1, keepdims=True))
    loss = loss[pairs[:, 1]] - loss[pairs[:, 0]]
    assert np.ptp(loss, axis=1).max() == pytest.approx(epsilon)
    ((cost, times),) = cls(k=k, epsilon=epsilon).charge(sensitivity).costs.items()
    assert (str(cost), times) == ("BR(0.9)", 1)


@pytest.mark.parametrize(("cls", "answers_of", "among"), KINDS, ids=["joint", "canonical"])
def test_a_rate_of_epsilon_by_linf_is_caught(cls, answers_of, among):
    """Twice the rate, as a sensitivity of linf in place of a range of 2·linf would suggest."""
    world = World(4, (0, 1, 2, 3), Sensitivity(), "public")
    matrix, pairs = gaps(answers_of, among, world, 2), neighbours(world)
    for factor, caught in ((0.5, False), (1.0, True)):
        weights = np.exp(-0.9 * factor * matrix)
        law = weights / weights.sum(axis=1, keepdims=True)
        assert (hockey_stick(law, pairs, [0.9])[0] > 1e-3) == caught
    rates = []

    def spy(answers, rate, bits):
        rates.append(rate)
        return list(range(2))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_selection, "draw_answer", spy)
        cls(k=2, epsilon=0.9).release(Histogram(None, [3, 2, 1], sensitivity=Sensitivity(linf=5)))
    assert rates == [Fraction("0.9") / 10]


COUNTS = [
    ([9, 9, 4, 2, 2, 0], 0),
    ([12, 7, 3, 1, 1, 0], 0),
    ([5, 5, 5, 5, 5, 5], 0),
    ([3, 8, 0, 15], 2),
    ([0, 40], 4),
    ([], 6),
]


def all_gaps(answers, among, size, k):
    return {answer: answers.gap(list(answer)) for answer in among(range(size), k)}


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "absent"), COUNTS, ids=str)
@pytest.mark.parametrize(
    ("answers_of", "among"), [kind[1:] for kind in KINDS], ids=["joint", "canonical"]
)
def test_numbers_of_answers_and_uniform_draws(monkeypatch, answers_of, among, counts, absent):
    """N(g) is the number of answers that fit, about its logarithm, and a draw is uniform among
    them: no repetition.
    """
    k, size = 3, len(counts) + absent
    answers = answers_of(Ranked(np.array(counts, dtype=np.int64), absent), k)
    every = all_gaps(answers, among, size, k)
    assert (answers.lowest, answers.highest) == (min(every.values()), max(every.values()))
    levels = sorted({*every.values(), answers.highest + 5})
    for g in levels:
        fit = {answer for answer, gap in every.items() if gap <= g}
        assert answers.size(g) == len(fit)
        assert answers.log_size(np.array([g]))[0] == pytest.approx(math.log(len(fit)), abs=1e-9)

        def draw(choose, g=g):
            for module in (level_set_sampling, canonical):
                monkeypatch.setattr(
                    module, "uniform_below", lambda bound, _: choose(np.ones(bound))
                )
            drawn = answers.draw(g, None)
            return tuple(drawn) if among is itertools.permutations else tuple(sorted(drawn))

        law = law_of(draw)
        assert law.keys() == fit
        assert list(law.values()) == pytest.approx([1 / len(fit)] * len(fit))


@pytest.mark.parametrize(("counts", "absent"), COUNTS, ids=str)
@pytest.mark.parametrize(
    ("answers_of", "among"), [kind[1:] for kind in KINDS], ids=["joint", "canonical"]
)
@pytest.mark.parametrize("rate", [Fraction(1, 20), Fraction(1, 2), Fraction(7, 3)], ids=str)
def test_law_through_blocks_is_exponential(answers_of, among, counts, absent, rate):
    """Blocks, their weights and the acceptance within them, put together, give P ∝ e^{-rate·gap};
    coarse ones too.
    """
    k, size = 3, len(counts) + absent
    answers = answers_of(Ranked(np.array(counts, dtype=np.int64), absent), k)
    every = all_gaps(answers, among, size, k)
    expected = {answer: math.exp(-rate * gap) for answer, gap in every.items()}
    low, high = answers.lowest, answers.highest
    coarse = [(low, high - 1), (high, high)] if low < high else [(low, low)]
    for blocks in (level_set_sampling._seldom_refused_blocks(answers, float(rate)), coarse):
        weights = level_set_sampling._weights_of_blocks(answers, blocks, rate)(160)
        law = dict.fromkeys(every, 0.0)
        for (first, last), weight in zip(blocks, weights, strict=True):
            for answer, gap in every.items():
                if gap <= last:
                    share = (
                        1.0
                        if gap <= first
                        else float(
                            level_set_sampling._chance_in_block(rate, gap - first, last - first + 1)
                        )
                    )
                    law[answer] += weight / 2.0**160 / answers.size(last) * share
        total, whole = sum(law.values()), sum(expected.values())
        for answer in every:
            assert law[answer] / total == pytest.approx(expected[answer] / whole, rel=1e-12)


def chi_square(drawn, law):
    expected = np.array(list(law.values())) * len(drawn)
    observed = np.array([drawn.count(answer) for answer in law])
    assert observed.sum() == len(drawn)
    return ((observed - expected) ** 2 / expected).sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers_of", "among"), [kind[1:] for kind in KINDS], ids=["joint", "canonical"]
)
def test_drawn_answers_follow_the_law_and_not_another_rate(answers_of, among):
    answers, bits = (
        answers_of(Ranked(np.array([4, 3, 1, 0]), 0), 2),
        random_bits(np.random.default_rng(5)),
    )
    every = all_gaps(answers, among, 4, 2)
    drawn = [tuple(draw_answer(answers, Fraction(1, 2), bits)) for _ in range(500)]
    if among is itertools.combinations:
        drawn = [tuple(sorted(answer)) for answer in drawn]
    for rate, fits in ((0.5, True), (1.2, False)):
        weights = {answer: math.exp(-rate * gap) for answer, gap in every.items()}
        law = {answer: weight / sum(weights.values()) for answer, weight in weights.items()}
        assert (
            chi_square(drawn, law) < 40
        ) == fits  # 11 and 5 degrees of freedom: above 40 once in 10^4


def test_a_draw_that_repeats_labels_would_be_caught():
    """Counting sequences without the condition that labels differ gives another number: the
    published fast form's.
    """
    answers = Sequences(Ranked(np.array([5, 5, 5, 5]), 0), 3)
    assert answers.size(0) == 24 != 4**3
    bits = random_bits(np.random.default_rng(0))
    assert all(len(set(answers.draw(0, bits))) == 3 for _ in range(50))


# --- one shot


def one_shot_law(counts, k, rate):
    """The law of the k smallest of independent uniforms on [0, e^{-rate·count}], in order:
    piecewise polynomials.
    """
    ends = np.exp(-rate * np.asarray(counts, dtype=float))
    cuts = np.unique(np.concatenate(([0.0], ends)))
    P = np.polynomial.Polynomial
    law = {}
    for answer in itertools.permutations(range(len(counts)), k):
        # before[j] on the j-th segment: the density of the earlier ones all in order below t
        before = [P([1.0])] * (len(cuts) - 1)
        for place, label in enumerate(answer):
            density = [
                part / ends[label] if high <= ends[label] else P([0.0])
                for part, high in zip(before, cuts[1:], strict=True)
            ]
            if place == k - 1:
                for other in set(range(len(counts))) - set(answer):
                    survives = P([1.0, -1 / ends[other]])
                    density = [
                        part * survives if high <= ends[other] else P([0.0])
                        for part, high in zip(density, cuts[1:], strict=True)
                    ]
            total, before = 0.0, []
            for part, low, high in zip(density, cuts[:-1], cuts[1:], strict=True):
                whole = part.integ(lbnd=low)
                before.append(whole + total)
                total += whole(high)
        law[answer] = total
    return law


def test_the_law_that_is_listed_is_the_law():
    """Fractions within 2^-96, beside floats of another way to the same integral."""
    counts = (3, 0, 1, 1)
    listed = smallest_in_order(counts, Fraction(1, 3), 2)
    law = one_shot_law(counts, 2, 1 / 3)
    assert listed.keys() == law.keys()
    for order, mass in listed.items():
        assert mass / 2.0**96 == pytest.approx(law[order], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("linf", [1, 2])
def test_one_shot_costs_exactly_k_rates(k, linf):
    """ε-DP at rate ε/(k·linf), attained, for every l0; not of bounded range: the charge must be
    PureDP.
    """
    epsilon, levels = 1.0, (0, 1, 2) if k < 3 else (0, linf)
    for labels in {k + 1, 4}:
        world = World(labels, levels, Sensitivity(linf=linf), "public")
        laws = np.array(
            [
                list(one_shot_law(counts, k, epsilon / (k * linf)).values())
                for counts in world.counts
            ]
        )
        assert laws.sum(axis=1) == pytest.approx(1)
        for l0 in (None, 1):
            pairs = neighbours(World(labels, levels, Sensitivity(linf=linf, l0=l0), "public"))
            loss = np.log(laws[pairs[:, 1]]) - np.log(laws[pairs[:, 0]])
            assert np.abs(loss).max() <= epsilon + 1e-9
            if labels == k + 1:  # the one label left out rises: each of the others must surmount it
                assert np.abs(loss).max() == pytest.approx(epsilon)
                assert np.ptp(loss, axis=1).max() > epsilon * 1.2
    assert str(OneShotTopK(k=k, epsilon=epsilon).charge(world.sensitivity)) == "DP(1.0)"


def test_one_shot_noise_of_scale_linf_by_epsilon_is_caught():
    """Noise that would do for one selection, used for k = 2."""
    world = World(3, (0, 1), Sensitivity(), "public")
    laws = np.array([list(one_shot_law(counts, 2, 1.0).values()) for counts in world.counts])
    assert hockey_stick(laws, neighbours(world), [1.0])[0] > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "absent"), [([3, 2, 0], 0), ([2], 2), ([], 3)], ids=str)
def test_one_shot_draws_follow_the_law(monkeypatch, counts, absent):
    """Labels of their own and crowds of unlisted labels; and the rate is ε/(k·linf)."""
    law = one_shot_law([*counts, *[0] * absent], 2, 0.5)
    bits = random_bits(np.random.default_rng(3))
    for few in (one_shot._FEW_UNLISTED, 0):
        monkeypatch.setattr(one_shot, "_FEW_UNLISTED", few)
        array = np.array(counts, dtype=np.int64)
        drawn = [
            tuple(
                one_shot.one_shot_top_k(
                    array, 2, rate=Fraction(1, 2), bits=bits, absent=absent
                ).tolist()
            )
            for _ in range(250)
        ]
        assert chi_square(drawn, law) < 30  # 5 degrees of freedom: above 30 once in 10^5
    wrong = one_shot_law([*counts, *[0] * absent], 2, 1.5)
    assert chi_square(drawn, wrong) > 30 or len(set(counts)) < 2 - (absent > 0)


@pytest.mark.slow
def test_one_shot_comparisons_are_exact():
    """Clocks that floats do not tell apart are compared with more bits: of equal words the next
    ones decide.
    """
    race = one_shot._FlipRace(Fraction(1, 3), None, random_bits(np.random.default_rng(1)))
    words = np.array([1 << 63, 1 << 63, 5], dtype=np.uint64)
    rings = race._scored_clocks(np.arange(3), np.zeros(3, np.int64), words, 0, np.int64(0))
    assert race.exact_order(rings).tolist()[0] == 2
    firsts = [int(race.exact_order(rings)[1]) for _ in range(40)]
    assert 5 < sum(firsts) < 35


# --- the statistic of the router


@pytest.mark.parametrize(
    ("answers_of", "among"), [kind[1:] for kind in KINDS], ids=["joint", "canonical"]
)
@pytest.mark.parametrize("cut", [-3, 0, 2, 7, 100])
def test_log_odds(answers_of, among, cut):
    answers = answers_of(Ranked(np.array([9, 7, 3, 1, 1, 0]), 0), 3)
    gap = np.array(list(all_gaps(answers, among, 6, 3).values()))
    exact = math.log(np.exp(-0.4 * gap).sum() / np.exp(-0.4 * np.maximum(gap, cut)).sum())
    assert log_odds(answers, 0.4, cut, 1e-3) == pytest.approx(exact, abs=1e-3)
