"""Gumbel top-k: its law against exact peeling, whichever labels are watched and whichever make up
the crowd.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers import selection
from dptopk.mechanisms.samplers.exponential_race import differences_from
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.mechanisms.samplers.selection import exponential_choice, gumbel_top_k

STOP = "stop"


def seeded(seed=5):
    return random_bits(np.random.default_rng(seed))


def peeling(weights, k):
    """Return the exact law of up to k selections as {labels in order: probability}; it ends at the
    stop element.
    """
    if k == 0 or not weights:
        return {(): 1.0}
    total, law = sum(weights.values()), {}
    for label, weight in weights.items():
        rest = {x: w for x, w in weights.items() if x != label}
        for later, p in peeling({} if label == STOP else rest, k - 1).items():
            law[label, *later] = weight / total * p
    return law


def law_of(counts, k, rate, absent=0, stop=None):
    weights = dict(enumerate(np.exp(rate * np.append(np.asarray(counts, float), np.zeros(absent)))))
    if stop is not None:
        weights[STOP] = np.exp(rate * stop)
    return peeling(weights, k)


def outcome(selected):
    return (*selected.indices.tolist(), *([STOP] if selected.stopped else []))


def p_value(seen, law):
    n = sum(seen.values())
    assert set(seen) <= set(law)
    rare = [o for o, p in law.items() if n * p < 5]
    cells = [([o], p) for o, p in law.items() if n * p >= 5] + [
        (rare, sum(law[o] for o in rare) + 1e-12)
    ]
    statistic = sum((sum(seen[o] for o in names) - n * p) ** 2 / (n * p) for names, p in cells)
    return stats.chi2.sf(statistic, len(cells) - 1)


CASES = {
    "plain": {"counts": [3, 5, 5, 1], "k": 2},
    "all": {"counts": [3, 5, 4], "k": 3},
    "ties": {"counts": [7] * 5, "k": 2},
    "absent": {"counts": [3, 5], "k": 2, "absent": 2},
    "only absent": {"counts": [], "k": 2, "absent": 4},
    "stop": {"counts": [3, 5, 1], "k": 2, "stop": 3.5},
    "stop, more than all": {"counts": [3, 5], "k": 9, "stop": 4.25},
    "stop, absent": {"counts": [3], "k": 2, "absent": 2, "stop": 1.5},
    "real": {"counts": [0.5, 1.25, -3.0, 2.0], "k": 2},
    "negative": {"counts": [-3, -5, -4], "k": 2},
    "below zero and absent": {"counts": [-2, 1], "k": 2, "absent": 1},
    "high": {"counts": [2**62, 2**62 - 2, 2**62 - 1], "k": 2},
}


# Of the forced crowds, those of which the others are variants.
FORCED = {
    ("plain", "crowd"),
    ("stop", "crowd"),
    ("absent", "crowd"),
    ("high", "crowd"),
    ("ties", "small crowd"),
    ("real", "small crowd"),
    ("stop, more than all", "small crowd"),
    ("below zero and absent", "small crowd"),
}


def splits() -> list:
    cases = []
    for name in CASES:
        cases.append((name, "as it comes"))
        for split in ("crowd", "small crowd"):
            marks = [] if (name, split) in FORCED else [pytest.mark.study]
            cases.append(pytest.param(name, split, marks=marks))
    return cases


@pytest.mark.slow
@pytest.mark.parametrize(("name", "split"), splits())
def test_law_is_that_of_peeling_and_not_at_a_wrong_rate(name, split, monkeypatch):
    """With the labels watched, or forced into a crowd that has to be explored and thinned."""
    case, rate = CASES[name], 0.4
    values = np.asarray(case["counts"])
    if split != "as it comes" and values.size:
        place = 0 if split == "small crowd" else -1
        cut = np.sort(values)[place]  # all labels, or the lowest ones

        def watch(values, need, bits):
            return np.flatnonzero(values > cut), selection.Crowd(values.size, 0, values, cut)

        monkeypatch.setattr(selection, "_watched_and_crowd", watch)
    draw = partial(gumbel_top_k, **case, epsilon=rate, linf=1, bits=seeded())
    seen = Counter(outcome(draw()) for _ in range(1000))
    shifted = (
        {**case, "counts": [2, 0, 1]} if name == "high" else case
    )  # the law depends on differences only
    assert p_value(seen, law_of(**shifted, rate=rate)) > 1e-3
    if name not in ("ties", "only absent"):
        assert p_value(seen, law_of(**shifted, rate=2 * rate)) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "counts",
    [np.zeros(6), np.arange(6), np.array([0, 0, 0, 9, 9, 9]), np.array([-40, 0, 0, 0, 0, 1])],
)
def test_small_batches_make_long_explorations(counts, monkeypatch):
    """One ring a batch: the crowd is explored in many slabs, of different widths, with repeated
    labels.
    """
    monkeypatch.setattr(selection, "_BATCH", 1)
    selection._poisson_batch.cache_clear()
    cut = np.sort(counts)[-2]
    monkeypatch.setattr(
        selection,
        "_watched_and_crowd",
        lambda v, need, bits: (np.flatnonzero(v > cut), selection.Crowd(v.size, 0, v, cut)),
    )
    try:
        bits = seeded()
        seen = Counter(
            outcome(gumbel_top_k(counts, 3, epsilon=0.3, linf=1, bits=bits)) for _ in range(1000)
        )
    finally:
        selection._poisson_batch.cache_clear()
    assert p_value(seen, law_of(counts, 3, 0.3)) > 1e-3


@pytest.mark.slow
def test_linf_divides_epsilon():
    case = CASES["plain"]
    bits = seeded()
    seen = Counter(
        outcome(gumbel_top_k(**case, epsilon=1.2, linf=3, bits=bits)) for _ in range(1000)
    )
    assert p_value(seen, law_of(**case, rate=0.4)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("absent", [3000, 10**12])
def test_crowd_of_unlisted_labels(absent):
    """The number of unlisted labels among three selections has the law of peeling groups; their
    names are uniform.
    """
    height = np.log(absent)
    counts, rate = np.array([0, 1, 2]), 1.0
    rng = seeded()
    drawn = [
        gumbel_top_k(counts + int(height), 3, epsilon=rate, linf=1, bits=rng, absent=absent).indices
        for _ in range(1000)
    ]
    assert all(len(set(d.tolist())) == 3 for d in drawn)
    heavy = np.exp(rate * (counts + int(height)))

    def law(k, left, n):
        """Exact law of the pattern: the listed label's number, or -1 for any unlisted one."""
        if k == 0:
            return {(): 1.0}
        total, patterns = heavy[list(left)].sum() + n, {}
        options = [(i, heavy[i], [j for j in left if j != i], n) for i in left] + [
            (-1, n, left, n - 1)
        ]
        for name, weight, rest, m in options:
            for later, p in law(k - 1, rest, m).items():
                patterns[name, *later] = patterns.get((name, *later), 0) + weight / total * p
        return patterns

    seen = Counter(tuple(np.where(d < 3, d, -1).tolist()) for d in drawn)
    assert p_value(seen, law(3, [0, 1, 2], absent)) > 1e-3
    assert p_value(seen, law(3, [0, 1, 2], absent // 2)) < 1e-6
    names = np.concatenate(drawn) - 3
    names = names[names >= 0]
    assert names.max() < absent
    assert stats.kstest(names / absent, "uniform").pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["spread", "zipf", "equal", "exponential"])
@pytest.mark.parametrize("rate", [1e-6, 0.01, 2.0])
def test_large_inputs_have_the_law_of_plain_noise(shape, rate):
    """Which count is selected first and last: against plain Gumbel noise on every count, by a
    two-sample test.
    """
    n, k, runs = 20_000, 8, 120
    rng = np.random.default_rng(8)
    counts = {
        "spread": rng.integers(0, 10**9, n),
        "zipf": rng.zipf(1.3, n).clip(max=10**9),
        "equal": np.full(n, 3),
        "exponential": rng.exponential(1 / rate, n).astype(np.int64),
    }[shape]
    bits = seeded(9)
    ours = np.array(
        [gumbel_top_k(counts, k, epsilon=rate, linf=1, bits=bits).indices for _ in range(runs)]
    )
    noisy = rate * (counts - counts.max()) + rng.gumbel(size=(runs, n))
    plain = np.argsort(-noisy, axis=1)[:, :k]
    for position in (0, k - 1):
        one, two = ours[:, position], plain[:, position]
        assert stats.ks_2samp(counts[one], counts[two]).pvalue > 1e-3
        assert stats.ks_2samp(one, two).pvalue > 1e-3
    assert all(len(set(row)) == k for row in ours.tolist())


def test_all_labels_are_a_permutation():
    drawn = gumbel_top_k(np.arange(5000), 5000, epsilon=1e-3, linf=1, bits=seeded()).indices
    assert sorted(drawn.tolist()) == list(range(5000))
    drawn = gumbel_top_k(
        np.zeros(10), 2010, epsilon=1.0, linf=1, bits=seeded(), absent=2000
    ).indices
    assert sorted(drawn.tolist()) == list(range(2010))


def test_clear_winners_come_in_order_at_any_height():
    counts = np.array([2**62, -(2**62), 0, 2**62 - 100])
    for epsilon in (1.0, 50.0, 1e300):
        assert gumbel_top_k(counts, 4, epsilon=epsilon, linf=1, bits=seeded()).indices.tolist() == [
            0,
            3,
            2,
            1,
        ]
    drawn = gumbel_top_k(
        np.array([-(2**62), 5]), 1, epsilon=1.0, linf=1, bits=seeded(), absent=10**6
    )
    assert drawn.indices.tolist() != [0]
    many = np.arange(10**5) * 10**6
    assert gumbel_top_k(many, 3, epsilon=1.0, linf=1, bits=seeded()).indices.tolist() == [
        99_999,
        99_998,
        99_997,
    ]


def test_stop_element_ends_the_selection():
    counts = [10, 1000, 500]
    top = partial(gumbel_top_k, counts, epsilon=1.0, linf=1, bits=seeded())
    assert outcome(top(3, stop=Fraction(2000))) == (STOP,)
    assert outcome(top(3, stop=700.5)) == (1, STOP)
    assert outcome(top(3, stop=-1000)) == (1, 2, 0)
    assert outcome(top(9, stop=-1000)) == (1, 2, 0, STOP)
    assert outcome(top(2, stop=300)) == (1, 2)
    assert outcome(gumbel_top_k([], 2, epsilon=1.0, linf=1, bits=seeded(), stop=5.0)) == (STOP,)
    assert (
        gumbel_top_k([], 1, epsilon=1.0, linf=1, bits=seeded(), stop=5.0).indices.dtype == np.int64
    )


@pytest.mark.slow
def test_stop_element_among_a_crowd_of_unlisted_labels():
    """At the height ln(absent)/epsilon it is drawn first half the time."""
    absent = 10**6
    runs = [
        gumbel_top_k(
            [], 1, epsilon=1.0, linf=1, bits=bits, absent=absent, stop=float(np.log(absent))
        ).stopped
        for bits in [seeded()]
        for _ in range(1000)
    ]
    assert abs(sum(runs) - 500) < 5 * np.sqrt(250)


@pytest.mark.slow
def test_exponential_choice_has_its_law():
    utilities, bits = [0.1, 0.9, 0.4], seeded()
    drawn = np.bincount(
        [exponential_choice(utilities, rate=Fraction(3, 2), bits=bits) for _ in range(5000)]
    )
    weights = np.exp(1.5 * np.array(utilities))
    assert stats.chisquare(drawn, weights / weights.sum() * 5000).pvalue > 1e-3
    wrong = np.exp(2.0 * np.array(utilities))
    assert stats.chisquare(drawn, wrong / wrong.sum() * 5000).pvalue < 1e-4


@pytest.mark.slow
def test_few_labels_are_looked_at(monkeypatch):
    """About sqrt(n·k) clocks are drawn, whatever the shape of the counts."""
    n, k = 1_000_000, 10
    rng = np.random.default_rng(1)
    drawn = []
    uint64 = type(seeded()).uint64
    monkeypatch.setattr(
        type(seeded()), "uint64", lambda self, size: drawn.append(size) or uint64(self, size)
    )
    for counts in (
        np.zeros(n),
        rng.integers(0, 10**9, n),
        rng.zipf(1.3, n),
        -rng.exponential(5.0, n),
    ):
        for epsilon in (1e-9, 0.1, 10.0):
            drawn.clear()
            gumbel_top_k(counts, k, epsilon=epsilon, linf=1, bits=seeded())
            assert sum(drawn) < 10 * np.sqrt(n * k)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"k": 0}, "k"),
        ({"k": 4}, "k"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": np.nan}, "epsilon"),
        ({"epsilon": 1e-320}, "epsilon"),
        ({"linf": 0}, "linf"),
        ({"absent": -1}, "absent"),
        ({"absent": 2**63}, "absent"),
        ({"stop": np.inf}, "stop"),
        ({"counts": [[1]]}, "counts"),
        ({"counts": ["a"]}, "counts"),
        ({"counts": [1.0, np.nan]}, "counts"),
        ({"counts": np.array([2**63], dtype=np.uint64), "k": 1}, "counts"),
    ],
)
def test_invalid_parameters(change, name):
    arguments = {"counts": [1, 2, 3], "k": 1, "epsilon": 1.0, "linf": 1, "bits": seeded(), **change}
    with pytest.raises(InvalidParameter, match=name):
        gumbel_top_k(arguments.pop("counts"), arguments.pop("k"), **arguments)


@pytest.mark.parametrize(
    ("utilities", "rate", "name"),
    [([], 1.0, "utilities"), ([1.0], 0.0, "rate"), ([np.inf], 1.0, "util")],
)
def test_invalid_choices(utilities, rate, name):
    with pytest.raises(InvalidParameter, match=name):
        exponential_choice(utilities, rate=rate, bits=seeded())


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
def test_a_high_count_does_not_blur_a_crowd_far_below(k):
    """Relative to the highest count, no ring of the crowd could be told from another."""
    counts = np.array([2**62 - 1, 3, 2**61, 0, 1])
    drawn = gumbel_top_k(counts, k, epsilon=1.0, linf=1, bits=seeded(), absent=2**61).indices
    assert drawn[:2].tolist() == [0, 2][:k]
    assert np.unique(drawn).size == k
    assert (drawn[2:] > 4).all()  # e^3 against 2^61
    few = gumbel_top_k(counts[:1], k, epsilon=1.0, linf=1, bits=seeded(), absent=2**61).indices
    assert few[0] == 0
    assert np.unique(few).size == k


def test_differences_of_levels_are_signed_and_exact():
    levels = np.array([2**62, -(2**62), 5, 4, -(2**63), 2**63 - 1])
    for top in levels:
        exact = [float(int(top) - int(level)) for level in levels]
        assert differences_from(top, levels).tolist() == exact
