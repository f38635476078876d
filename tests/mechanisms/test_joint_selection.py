"""Whole answers: refusals, extremes, sessions; distinct labels always."""

import importlib.util
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from dptopk import (
    Accountant,
    Budget,
    CanonicalTopK,
    Histogram,
    InvalidParameter,
    JointTopK,
    OneShotTopK,
    RoutedTopK,
    Sensitivity,
    Session,
    compose,
)
from dptopk.mechanisms import StabilityTopK

PURE = [JointTopK, CanonicalTopK, OneShotTopK, RoutedTopK]
DELTA = [lambda **kw: StabilityTopK(**kw, delta=1e-6), lambda **kw: RoutedTopK(**kw, delta=1e-6)]
ALL = [*PURE, *DELTA, lambda **kw: RoutedTopK(**kw, ordered=True)]


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize(
    "histogram",
    [
        Histogram(None, np.full(40, 7)),
        Histogram(None, [], domain_size=10**18),
        Histogram(None, [2**62 - 1, 3, 2**61, 0, 1, 2]),
        Histogram(None, np.arange(30) ** 3, sensitivity=Sensitivity(linf=10**9)),
        Histogram([f"label {i}" for i in range(12)], np.arange(12) * 10**6, domain="public"),
    ],
    ids=["ties", "empty", "huge", "coarse", "texts"],
)
def test_k_distinct_labels_whatever_the_counts(make, histogram):
    for epsilon in (1.0,) if make in DELTA else (1e-12, 1.0, 1e3):
        release = make(k=5, epsilon=epsilon).release(histogram, np.random.default_rng(1))
        assert len(set(release.labels)) == len(release) == 5
        assert release.counts is None
        assert release.seeded


@pytest.mark.parametrize("make", ALL)
def test_the_whole_domain_and_one_label(make):
    for size in (1, 3):
        release = make(k=size, epsilon=1.0).release(Histogram(None, [5, 0, 9][:size]))
        assert sorted(release.labels) == list(range(size))


def test_sets_come_in_label_order():
    """An order by count would tell more than the set."""
    histogram = Histogram(["c", "b", "a", "z"], [10**6, 2 * 10**6, 3 * 10**6, 0], domain="public")
    for mechanism in (
        CanonicalTopK(k=3, epsilon=50.0),
        StabilityTopK(k=3, epsilon=50.0, delta=1e-6),
    ):
        release = mechanism.release(histogram)
        assert release.labels == ("a", "b", "c")
        assert "set" in release.note
    assert JointTopK(k=3, epsilon=50.0).release(histogram).labels == ("a", "b", "c")
    assert JointTopK(k=2, epsilon=50.0).release(Histogram(None, [4000, 9000, 0])).labels == (1, 0)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize(
    ("histogram", "named"),
    [
        (Histogram(["a"], [1]), "domain"),
        (Histogram(["a", "b"], [1, 2], domain="public", complete=False), "complete"),
        (Histogram(None, [1]), "k=2"),
        (Histogram(None, [1, 2], sensitivity=Sensitivity(neighbours="replace_one")), "neighbours"),
    ],
)
def test_refusals(make, histogram, named):
    with pytest.raises(InvalidParameter, match=named):
        make(k=2, epsilon=1.0).release(histogram)


@pytest.mark.parametrize("cls", PURE)
def test_bad_parameters(cls):
    for bad in (0, -1.0, float("nan"), float("inf"), "1"):
        with pytest.raises(InvalidParameter, match="epsilon"):
            cls(k=1, epsilon=bad)
    for bad in (0, 1.5, True):
        with pytest.raises(InvalidParameter, match="k must"):
            cls(k=bad, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="epsilon"):
        cls(k=2, epsilon=1e-300).release(Histogram(None, [1, 2, 3]))
    with pytest.raises(InvalidParameter, match="delta"):
        StabilityTopK(k=1, epsilon=1.0, delta=0.0)


@pytest.mark.slow
def test_budgets_too_small_to_search_in_are_divided_plainly():
    histogram = Histogram(None, np.arange(50, 0, -1))
    for epsilon, delta in ((1e-12, 1e-300), (1e-13, 1e-6)):
        for cls in (StabilityTopK, RoutedTopK):
            mechanism = cls(k=3, epsilon=epsilon, delta=delta)
            assert len(mechanism.release(histogram)) == 3
            charge = mechanism.charge(histogram.sensitivity)
            assert compose(charge, delta=max(delta, charge.delta)).epsilon <= epsilon * (1 + 1e-12)
    assert (
        3 * RoutedTopK(k=3, epsilon=1e-12, delta=1e-300).peeling.epsilon
        <= RoutedTopK(k=3, epsilon=1e-12).answer_epsilon
    )


def test_sessions_charge_before_they_draw():
    histogram = Histogram(None, np.arange(50, 0, -1) * 1000)
    session = Session(histogram, budget=Budget(2.0, 1e-6))
    session.run(JointTopK(k=5, epsilon=0.5))
    session.run(RoutedTopK(k=5, epsilon=0.5))
    stable = StabilityTopK(k=5, epsilon=0.5, delta=1e-7)
    accountant = Accountant(stable.charge(histogram.sensitivity), delta=1e-6)
    used = Session(histogram, budget=accountant).run(stable).charge
    assert sum(used.costs.values()) <= 7


def test_the_published_mechanisms_of_the_benchmark_are_what_their_papers_say(monkeypatch):
    """JOINT: P ∝ e^{-ε gap/2}, all sequences by enumeration; canonical: every set, the best one
    most often.
    """
    path = Path(__file__).parents[2] / "benchmarks" / "whole_answers.py"
    spec = importlib.util.spec_from_file_location("whole_answers", path)
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    counts, rng = np.array([5, 3, 2, 0]), np.random.default_rng(4)
    drawn = [tuple(page.joint(counts, 2, rng).tolist()) for _ in range(3000)]
    gaps = {
        s: max(counts[i] - counts[s[i]] for i in range(2))
        for s in itertools.permutations(range(4), 2)
    }
    total = sum(math.exp(-gap / 2) for gap in gaps.values())
    pruned = [tuple(page.joint_pruned(counts, 2, rng).tolist()) for _ in range(3000)]
    for answer, gap in gaps.items():
        for answers in (drawn, pruned):
            assert answers.count(answer) / 3000 == pytest.approx(
                math.exp(-gap / 2) / total, abs=0.04
            )
    assert (
        drawn.count((0, 1)) / 3000
        < math.exp(-gaps[0, 1]) / sum(math.exp(-gap) for gap in gaps.values()) - 0.04
    )
    sets = [tuple(sorted(page.canonical(counts, 2, rng).tolist())) for _ in range(500)]
    assert set(sets) == set(itertools.combinations(range(4), 2))
    assert max(set(sets), key=sets.count) == (0, 1)
    monkeypatch.setattr(page, "EPSILON", 30.0)  # a cut that many sequences exceed
    cut = {
        tuple(page.joint_pruned(np.array([2, 1, 1, 0]), 2, rng, failure=1.0).tolist())
        for _ in range(50)
    }
    assert cut == {(0, 1), (0, 2)}


@pytest.mark.parametrize(
    ("n", "k"),
    [
        (5, 5),
        (60, 3),
        (10**3, 10),
        (10**6, 10**6 - 63),
        (10**9, 2000),
        (10**10, 20_000),
        (2**62, 50),
    ],
)
def test_the_number_of_sets_is_known_to_far_less_than_a_privacy_loss(n, k):
    """Its logarithm stands in the statistic of a private choice, whose noise covers errors up to
    1e-6.
    """
    import mpmath as mp

    from dptopk.mechanisms.canonical import log_comb

    with mp.workdps(40):
        exact = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
        assert abs(float(log_comb(np.array([n]), np.array([k]))[0] - exact)) < 1e-8
