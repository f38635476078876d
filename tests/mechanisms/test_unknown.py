"""UnknownGumbel, UnknownLaplace, UnknownGaussian and TruncatedGaussian: charges, thresholds,
refusals, short rows.
"""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk import (
    Charge,
    Histogram,
    InvalidParameter,
    Sensitivity,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownGumbel,
    UnknownLaplace,
)
from dptopk.costs import BoundedRange, DiscreteGaussianDP, DiscreteLaplaceDP, PureDP
from dptopk.mechanisms.thresholds import gumbel_offset, is_above_threshold, slots

GUMBEL = UnknownGumbel(k=2, d_bar=3, epsilon=1.0, delta=1e-6)
LAPLACE = UnknownLaplace(d_bar=3, epsilon=1.0, delta=1e-6)
GAUSSIAN = UnknownGaussian(d_bar=3, sigma=2.0, delta=1e-6)
WHOLE = TruncatedGaussian(sigma=2.0, delta=1e-6)
CUT = TruncatedGaussian(sigma=2.0, delta=1e-6, d_bar=3)
CUTTING = [GUMBEL, LAPLACE, GAUSSIAN, CUT]
ALL = [*CUTTING, WHOLE]
COUNTS = [LAPLACE, GAUSSIAN, CUT, WHOLE]
LARGE = Histogram(
    ["a", "b", "c", "d", "e"], [10**6, 10**5, 10**4, 3, 0], sensitivity=Sensitivity(l0=2)
)


def name(mechanism):
    return type(mechanism).__name__ + ("Whole" if mechanism is WHOLE else "")


def seeded():
    return np.random.default_rng(1)


@pytest.mark.parametrize(
    ("l0", "special", "moving"),
    [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 3, 4), (9, 3, 4), (None, 3, 4)],
)
def test_charges_follow_the_slot_lemma(l0, special, moving):
    for linf in (1, 2):
        sensitivity = Sensitivity(linf=linf, l0=l0)
        assert GUMBEL.charge(sensitivity) == Charge(
            {BoundedRange(1.0): 2}, delta=1e-6, adaptive=True
        )
        noise = PureDP(1.0) if linf == 1 else DiscreteLaplaceDP(2.0, 2)
        assert LAPLACE.charge(sensitivity) == Charge({noise: moving}, delta=1e-6)
        pairs = Charge({DiscreteGaussianDP(2.0 * linf, linf): moving}, delta=1e-6)
        assert CUT.charge(sensitivity) == pairs
        assert GAUSSIAN.charge(sensitivity) == pairs
        c = GUMBEL.threshold_offset(sensitivity) - linf
        assert (
            special / (special + math.exp(c / linf))
            <= 1e-6
            < special / (special + math.exp((c - 1) / linf))
        )


def test_whole_histogram_form_needs_a_finite_l0():
    assert WHOLE.charge(Sensitivity(l0=3)) == Charge({DiscreteGaussianDP(2.0, 1): 3}, delta=1e-6)
    with pytest.raises(InvalidParameter, match="l0"):
        WHOLE.charge(Sensitivity())


@pytest.mark.parametrize("linf", [1, 2, 3])
@pytest.mark.parametrize("l0", [1, 2, None])
def test_thresholds_are_the_smallest_that_the_discrete_law_allows(linf, l0):
    sensitivity = Sensitivity(linf=linf, l0=l0)
    m = 3 if l0 is None else l0
    n = np.arange(-200, 201)
    for mechanism, weights in [
        (LAPLACE, np.exp(-np.abs(n) / linf)),
        (GAUSSIAN, np.exp(-(n**2) / (2 * (2 * linf) ** 2))),
    ]:
        law = weights / weights.sum()
        law = np.pad(law, (0, 200))
        cdf = np.minimum(np.cumsum(law), 1)
        # P[max of m noises - N0 > c] for c >= 0: the noise of the floor is n, and some slot's is
        # above n + c
        tail = [(law[:401] * (1 - cdf[c : c + 401] ** m)).sum() for c in range(100)]
        c = mechanism.threshold_offset(sensitivity) - linf
        assert tail[c] <= 1e-6 < tail[c - 1]
    law = np.exp(-(n**2) / (2 * (2 * linf) ** 2))
    edges = {
        T: law[200 + T - linf + 1 : 200 + T + 1].sum() / law[200 - T : 200 + T + 1].sum()
        for T in range(linf, 60)
    }
    moving = 4 if l0 is None else l0
    T = min(T for T, edge in edges.items() if 1 - (1 - edge) ** moving <= 1e-6)
    assert CUT.threshold_offset(sensitivity) == linf + 2 * T
    assert CUT.half_width(sensitivity) == T
    if l0 is not None:
        assert WHOLE.threshold_offset(sensitivity) == T


@pytest.mark.parametrize("mechanism", ALL, ids=name)
def test_refusals(mechanism):
    with pytest.raises(InvalidParameter, match="neighbours"):
        mechanism.charge(Sensitivity(l0=1, neighbours="replace_one"))
    with pytest.raises(InvalidParameter, match="sensitivity"):
        mechanism.charge(None)
    with pytest.raises(InvalidParameter, match="histogram"):
        mechanism.release([1, 2])
    short = Histogram(["a", "b", "c"], [9, 9, 9], complete=False, sensitivity=Sensitivity(l0=1))
    with pytest.raises(InvalidParameter, match=r"complete|d_bar"):
        mechanism.release(short)
    with pytest.raises(TypeError):
        type(mechanism)(1, 2, 3)


@pytest.mark.parametrize("mechanism", CUTTING, ids=name)
def test_an_incomplete_histogram_with_more_rows_is_as_good_as_the_whole(mechanism):
    whole = Histogram(list("abcde"), [90, 80, 70, 60, 50], sensitivity=Sensitivity(l0=1))
    cut = Histogram(list("abcd"), [90, 80, 70, 60], sensitivity=Sensitivity(l0=1), complete=False)
    for seed in range(5):
        labels = [mechanism.release(h, np.random.default_rng(seed)).labels for h in (whole, cut)]
        assert labels[0] == labels[1]


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (
            lambda **kw: UnknownGumbel(**{"k": 1, "d_bar": 2, "epsilon": 1.0, "delta": 0.1} | kw),
            {"k": 0},
        ),
        (
            lambda **kw: UnknownGumbel(**{"k": 1, "d_bar": 2, "epsilon": 1.0, "delta": 0.1} | kw),
            {"k": 1.0},
        ),
        (
            lambda **kw: UnknownGumbel(**{"k": 3, "d_bar": 3, "epsilon": 1.0, "delta": 0.1} | kw),
            {"d_bar": 2},
        ),
        (
            lambda **kw: UnknownLaplace(**{"d_bar": 2, "epsilon": 1.0, "delta": 0.1} | kw),
            {"d_bar": 0},
        ),
        (
            lambda **kw: UnknownLaplace(**{"d_bar": 2, "epsilon": 1.0, "delta": 0.1} | kw),
            {"epsilon": math.nan},
        ),
        (
            lambda **kw: UnknownLaplace(**{"d_bar": 2, "epsilon": 1.0, "delta": 0.1} | kw),
            {"delta": 0},
        ),
        (
            lambda **kw: UnknownGaussian(**{"d_bar": 2, "sigma": 1.0, "delta": 0.1} | kw),
            {"delta": 1.0},
        ),
        (
            lambda **kw: UnknownGaussian(**{"d_bar": 2, "sigma": 1.0, "delta": 0.1} | kw),
            {"sigma": -1.0},
        ),
        (lambda **kw: TruncatedGaussian(**{"sigma": 1.0, "delta": 0.1} | kw), {"sigma": math.inf}),
        (lambda **kw: TruncatedGaussian(**{"sigma": 1.0, "delta": 0.1} | kw), {"d_bar": True}),
        (lambda **kw: TruncatedGaussian(**{"sigma": 1.0, "delta": 0.1} | kw), {"delta": "1e-6"}),
    ],
)
def test_bad_parameters_are_named(make, bad):
    make()
    with pytest.raises(InvalidParameter, match=next(iter(bad))):
        make(**bad)


@pytest.mark.parametrize(
    "mechanism",
    [
        UnknownGumbel(k=1, d_bar=1, epsilon=1e-18, delta=1e-6),
        UnknownLaplace(d_bar=1, epsilon=1.0, delta=1e-320),
        UnknownGaussian(d_bar=1, sigma=1.0, delta=1e-320),
        TruncatedGaussian(sigma=1.0, delta=1e-320),
    ],
)
def test_a_delta_out_of_reach_is_refused_before_any_charge(mechanism):
    with pytest.raises(InvalidParameter, match="delta"):
        mechanism.charge(Sensitivity(l0=1))


@pytest.mark.parametrize("mechanism", [LAPLACE, GAUSSIAN, CUT, WHOLE])
def test_a_huge_linf_is_refused(mechanism):
    with pytest.raises(InvalidParameter, match=r"delta|sigma|epsilon"):
        mechanism.charge(Sensitivity(linf=2**62, l0=1))


@pytest.mark.parametrize("mechanism", ALL, ids=name)
def test_few_labels_are_an_answer_not_an_error(mechanism):
    sensitivity = Sensitivity(l0=1)
    for labels, counts in [([], []), (["a"], [0]), (["a"], [1])]:
        release = mechanism.release(Histogram(labels, counts, sensitivity=sensitivity), seeded())
        assert len(release) == 0
        assert release.charge.delta == 1e-6
        if mechanism is GUMBEL:
            assert release.charge == Charge(
                {BoundedRange(1.0): 1}, delta=1e-6, adaptive=True
            )  # ⊥ alone
        else:
            assert release.charge == mechanism.charge(sensitivity)


def test_gumbel_pays_for_what_it_selects():
    full = GUMBEL.release(LARGE, seeded())
    assert full.labels == ("a", "b")
    assert full.charge == GUMBEL.charge(LARGE.sensitivity)
    assert full.note == ""
    one = Histogram(["a", "b"], [10**6, 1], sensitivity=Sensitivity(l0=1))
    stopped = UnknownGumbel(k=9, d_bar=9, epsilon=1.0, delta=1e-6).release(one, seeded())
    assert stopped.labels == ("a",)
    assert stopped.charge == Charge({BoundedRange(1.0): 2}, delta=1e-6, adaptive=True)
    assert "threshold" in stopped.note


@pytest.mark.parametrize("mechanism", COUNTS, ids=name)
def test_large_counts_are_released_in_the_order_of_their_values(mechanism):
    release = mechanism.release(LARGE, seeded())
    assert release.labels == ("a", "b", "c")
    np.testing.assert_allclose(release.counts, [10**6, 10**5, 10**4], atol=100)
    assert (release.counts > mechanism.threshold_offset(LARGE.sensitivity)).all()
    tied = Histogram(list("dbca"), [10**5] * 4, sensitivity=Sensitivity(l0=1))
    for seed in range(10):
        rows = mechanism.release(tied, np.random.default_rng(seed))
        pairs = [
            (-count, label) for label, count in zip(rows.labels, rows.counts.tolist(), strict=True)
        ]
        assert pairs == sorted(pairs)


def test_released_counts_of_the_truncated_form_have_sure_intervals():
    table = WHOLE.release(LARGE, seeded()).intervals()
    assert (table["low"] <= [10**6, 10**5, 10**4]).all()
    assert (table["high"] >= [10**6, 10**5, 10**4]).all()
    assert WHOLE.half_width(LARGE.sensitivity) == WHOLE.bound(LARGE.sensitivity)


def test_slots_break_ties_by_label_and_ignore_empty_rows():
    histogram = Histogram(["e", "d", "c", "b", "a"], [2, 0, 2, 2, 5])
    seen = slots(histogram, 2)
    assert seen.labels.tolist() == ["a", "b"]
    assert (seen.counts.tolist(), seen.floor) == ([5, 2], 2)
    assert slots(histogram, 4).floor == 0
    assert slots(histogram, 9).labels.tolist() == ["a", "b", "c", "e"]
    permuted = Histogram(["b", "a", "e", "c"], [2, 5, 2, 2])
    assert slots(permuted, 2).labels.tolist() == ["a", "b"]


def test_mixed_labels_have_one_order_whatever_else_is_there():
    """Ten sorts after nine as a number, before it as a text: the rule must not depend on the other
    labels.
    """
    assert slots(Histogram([10, 9], [1, 1]), 1).labels.tolist() == [9]
    assert slots(Histogram([10, 9, "x"], [1, 1, 0]), 1).labels.tolist() == [9]


def test_passing_is_strict_and_does_not_overflow():
    counts = np.array([5, 6], dtype=np.int64)
    assert is_above_threshold(counts, np.array([0, 0]), 1, 0, 4).tolist() == [False, True]
    top = np.array([2**62 - 1], dtype=np.int64)
    assert is_above_threshold(top, np.array([2**50]), 2**62 - 1, 0, 2**62).tolist() == [False]
    assert is_above_threshold(top, np.array([2**50]), 0, np.array([-(2**50)]), 2**62).tolist() == [
        True
    ]


@pytest.mark.slow
def test_slots_of_many_labels_are_found_without_a_full_sort():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 1000, size=200_000)
    labels = np.array([f"label {i}" for i in range(len(counts))], dtype=object)
    seen = slots(Histogram(labels, counts), 500)
    order = sorted(range(len(counts)), key=lambda i: (-counts[i], labels[i]))[:501]
    assert seen.labels.tolist() == [labels[i] for i in order[:500]]
    assert seen.floor == counts[order[500]]


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.05, 5),
    st.floats(1e-9, 0.3),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_thresholds_fall_with_delta_and_rise_with_l0(epsilon, delta, l0, linf):
    for make in (
        lambda delta: UnknownGumbel(k=1, d_bar=9, epsilon=epsilon, delta=delta),
        lambda delta: UnknownLaplace(d_bar=9, epsilon=epsilon, delta=delta),
        lambda delta: UnknownGaussian(d_bar=9, sigma=1 / epsilon, delta=delta),
        lambda delta: TruncatedGaussian(d_bar=9, sigma=1 / epsilon, delta=delta),
    ):
        offset = make(delta).threshold_offset(Sensitivity(linf=linf, l0=l0))
        assert make(delta * 2).threshold_offset(Sensitivity(linf=linf, l0=l0)) <= offset
        assert make(delta).threshold_offset(Sensitivity(linf=linf, l0=l0 + 1)) >= offset
        assert offset >= linf


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 8), st.randoms())
def test_slots_do_not_depend_on_the_order_of_rows(counts, d_bar, random):
    labels = [f"label {i}" for i in range(len(counts))]
    rows = list(zip(labels, counts, strict=True))
    random.shuffle(rows)
    shuffled = Histogram([label for label, _ in rows], [count for _, count in rows])
    one, other = slots(Histogram(labels, counts), d_bar), slots(shuffled, d_bar)
    assert one.labels.tolist() == other.labels.tolist()
    assert one.counts.tolist() == other.counts.tolist()
    assert one.floor == other.floor


# Cesar-Rogers 2022, Figure 7 (ε = 0.1, δ = 1e-10, τ = 1), Δ = 1..10: T of TruncGauss, and the
# threshold of UnkLap.
FIGURE_7 = {
    1: (420.65, 258.90), 2: (600.20, 531.28), 3: (738.91, 809.11), 4: (856.34, 1090.48), 5: (960.13, 1374.48),
    6: (1054.19, 1660.58), 7: (1140.86, 1948.42), 8: (1221.68, 2237.75), 9: (1297.70, 2528.39), 10: (1369.70, 2820.19),
}  # fmt: skip


@pytest.mark.parametrize("l0", FIGURE_7)
def test_published_thresholds(l0):
    """At their large scales the discrete law gives their T up to rounding; the slot lemma beats
    their UnkLap by 2 %.

    They split ε and δ as ρ + 2 sqrt(ρ ln(2/δ)) = ε with ρ = Δ/(2σ²), half of δ for the truncation.
    """
    log_term = math.log(2 / 1e-10)
    root = math.sqrt(log_term + 0.1) - math.sqrt(log_term)  # sqrt(ρ)
    published_t, published_offset = FIGURE_7[l0]
    mechanism = TruncatedGaussian(sigma=math.sqrt(l0 / 2) / root, delta=5e-11)
    assert abs(mechanism.bound(Sensitivity(l0=l0)) - published_t) < 1
    offset = UnknownLaplace(d_bar=100, epsilon=0.1 / l0, delta=1e-10).threshold_offset(
        Sensitivity(l0=l0)
    )
    assert 0.95 * published_offset < offset < 0.98 * published_offset


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        UnknownLaplace(d_bar=5, epsilon=0.4, delta=1e-4),
        UnknownGaussian(d_bar=5, sigma=3.0, delta=1e-4),
        TruncatedGaussian(d_bar=5, sigma=3.0, delta=1e-4),
        TruncatedGaussian(sigma=3.0, delta=1e-4),
        pytest.param(UnknownGumbel(k=1, d_bar=5, epsilon=0.4, delta=1e-4), marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("probability", [0.5, 0.95])
def test_a_count_at_the_stated_distance_appears_as_often_as_stated(mechanism, probability):
    sensitivity = Sensitivity(linf=2, l0=1)
    distance = mechanism.appears_at(sensitivity, probability=probability)
    rng, runs = np.random.default_rng(11), 1500

    def share(count):
        histogram = Histogram(["x"], [count], sensitivity=sensitivity)
        return sum(len(mechanism.release(histogram, rng)) for _ in range(runs)) / runs

    error = 4 * math.sqrt(0.25 / runs)
    assert share(distance) >= probability - error
    assert share(distance - mechanism_spread(mechanism)) <= probability - 0.05  # not needlessly far


def mechanism_spread(mechanism):
    return 8 if isinstance(mechanism, UnknownGumbel | UnknownLaplace) else 10


def test_the_gumbel_offset_where_its_logarithms_cancel():
    """δ just below m/(m + 1), where ln m + ln(1-δ) - ln δ is nearly 0; at m/(m + 1) it is 0."""
    c = gumbel_offset(2.1037495507234215e-12, 10**6, 2, 0.6666666665310454)
    with mp.workdps(40):
        chance = 2 / (2 + mp.exp(mp.mpf(c) * mp.mpf(2.1037495507234215e-12) / 10**6))
        assert chance <= mp.mpf(0.6666666665310454)
    assert gumbel_offset(1e-12, 10**6, 1, 0.5) == 0
