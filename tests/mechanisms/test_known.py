"""KnownGumbel, KnownLaplace and KnownGaussian: charges, refusals, order of rows."""

import itertools
import math
import pickle

import numpy as np
import pytest
from scipy import stats

import dptopk
from dptopk import (
    CanonicalTopK,
    Charge,
    Exponential,
    Histogram,
    InvalidParameter,
    JointTopK,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    OneShotTopK,
    Sensitivity,
)
from dptopk.costs import BoundedRange, DiscreteGaussianDP, DiscreteLaplaceDP, PureDP
from dptopk.mechanisms import Box, GaussianCounts, StabilityTopK
from dptopk.mechanisms.public_selection import drawn_labels
from dptopk.mechanisms.samplers.random import GeneratorBits

PUBLIC = Histogram(
    ["a", "b", "c"], [5, 0, 9], domain="public", sensitivity=Sensitivity(linf=2, l0=2)
)
COUNTING = [KnownLaplace(epsilon=0.5), KnownGaussian(sigma=3.0)]
KNOWN = [KnownGumbel(k=2, epsilon=0.5), *COUNTING]
REPLACE = Sensitivity(l0=1, neighbours="replace_one")


def seeded():
    return np.random.default_rng(0)


@pytest.mark.parametrize("mechanism", [Box(epsilon=1.0), GaussianCounts(mu=0.5), *COUNTING])
def test_the_stated_noise_is_that_of_as_many_labels_as_are_counted(mechanism):
    sensitivity = Sensitivity(l0=None)
    stated = [mechanism.noise_std(sensitivity, labels=labels) for labels in (1, 5, 40)]
    measured = [
        mechanism.measurement(sensitivity, labels, whole=False).std for labels in (1, 5, 40)
    ]
    assert stated == measured == sorted(measured)
    assert (stated[0] < stated[2]) == (mechanism not in COUNTING)
    assert mechanism.noise_std(sensitivity, labels=0) == stated[0]
    widths = [mechanism.half_width(sensitivity, labels=labels) for labels in (1, 5, 40)]
    assert widths == sorted(widths)


def test_charges_are_the_theorems_ones():
    sensitivity = Sensitivity(linf=3, l0=2)
    assert KnownGumbel(k=4, epsilon=0.1).charge(sensitivity) == Charge(
        {BoundedRange(0.1): 4}, adaptive=True
    )
    assert KnownGumbel(k=1, epsilon=0.1).charge(sensitivity) == Charge({BoundedRange(0.1): 1})
    assert KnownLaplace(epsilon=0.5).charge(sensitivity) == Charge({DiscreteLaplaceDP(6.0, 3): 2})
    assert KnownLaplace(epsilon=0.1).charge(Sensitivity(l0=2)) == Charge({PureDP(0.1): 2})
    ((noise, _),) = KnownLaplace(epsilon=0.1).charge(sensitivity)
    assert (
        30 * (1 - 1e-15) <= noise.scale < 30
    )  # 3 / 0.1 rounded down: the float 0.1 is larger than a tenth
    assert KnownGaussian(sigma=5.0).charge(sensitivity) == Charge({DiscreteGaussianDP(15.0, 3): 2})


@pytest.mark.parametrize("mechanism", COUNTING, ids=lambda m: type(m).__name__)
def test_number_of_copies_is_the_smaller_of_l0_and_labels(mechanism):
    def copies(l0, labels):
        return mechanism.charge(Sensitivity(l0=l0), labels=labels).count

    assert [copies(3, None), copies(3, 2), copies(3, 7), copies(None, 7), copies(3, 0)] == [
        3,
        2,
        3,
        7,
        0,
    ]
    with pytest.raises(InvalidParameter, match="labels"):
        copies(None, None)
    with pytest.raises(InvalidParameter, match="labels"):
        copies(3, -1)


@pytest.mark.parametrize("mechanism", KNOWN, ids=lambda m: type(m).__name__)
def test_refusals_come_before_any_noise(mechanism):
    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError("the generator was touched")

    for histogram, named in [
        (Histogram(["a"], [1]), "domain"),
        (Histogram(["a"], [1], domain="public", complete=False), "complete"),
        (Histogram(None, [1, 2, 3], sensitivity=REPLACE), "neighbours"),
        ({"a": 1}, "histogram"),
    ]:
        with pytest.raises(InvalidParameter, match=named):
            mechanism.release(histogram, Untouchable())
    with pytest.raises(InvalidParameter, match="neighbours"):
        mechanism.charge(REPLACE)
    with pytest.raises(InvalidParameter, match="sensitivity"):
        mechanism.charge(1)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", None, True, 1j])
def test_bad_parameters_are_named(bad):
    for make, name in [
        (lambda: KnownGumbel(k=1, epsilon=bad), "epsilon"),
        (lambda: KnownLaplace(epsilon=bad), "epsilon"),
        (lambda: KnownGaussian(sigma=bad), "sigma"),
        (lambda: KnownGumbel(k=bad, epsilon=1.0), "k"),
    ]:
        with pytest.raises(InvalidParameter, match=name):
            make()


def test_parameters_are_keyword_only_frozen_and_pickle():
    with pytest.raises(TypeError):
        KnownGumbel(2, 0.5)
    with pytest.raises(AttributeError):
        KnownGumbel(k=2, epsilon=0.5).k = 3
    for mechanism in KNOWN:
        assert pickle.loads(pickle.dumps(mechanism)) == mechanism  # noqa: S301
        assert getattr(dptopk, type(mechanism).__name__) is type(mechanism)


def test_k_may_not_exceed_a_public_domain():
    with pytest.raises(InvalidParameter, match="k=4"):
        KnownGumbel(k=4, epsilon=1.0).release(PUBLIC)
    release = KnownGumbel(k=3, epsilon=1.0).release(PUBLIC, seeded())
    assert sorted(release.labels) == ["a", "b", "c"]
    assert release.counts is None
    assert release.seeded
    assert not KnownGumbel(k=3, epsilon=1.0).release(PUBLIC).seeded


def test_unlisted_labels_of_a_public_domain_take_part():
    unlisted = {
        "domain": "public",
        "domain_size": 3,
        "absent_label": "abc".__getitem__,
        "sensitivity": Sensitivity(l0=1),
    }
    histogram = Histogram(["b"], [0], **unlisted)
    assert sorted(KnownGumbel(k=3, epsilon=1.0).release(histogram, seeded()).labels) == [
        "a",
        "b",
        "c",
    ]
    assert sorted(KnownLaplace(epsilon=1.0).release(histogram, seeded(), labels=["b"]).labels) == [
        "b"
    ]
    assert sorted(KnownGaussian(sigma=1.0).release(histogram, seeded()).labels) == ["a", "b", "c"]
    with pytest.raises(InvalidParameter, match="domain_size"):
        KnownLaplace(epsilon=1.0).release(Histogram([5], [0], domain=range(10**12)))
    assert (
        KnownGumbel(k=2, epsilon=1.0)
        .release(Histogram([5], [9], domain=range(10**12)), seeded())
        .labels[0]
        < 10**12
    )


@pytest.mark.slow
@pytest.mark.parametrize("rows", [["a", "b", "c"], ["a", "b"], ["c"], []])
def test_the_names_of_a_public_domain_do_not_tell_which_labels_have_a_row(rows):
    """All counts 0: the law of the selection is uniform, whichever labels are rows."""
    domain = {"domain": "public", "domain_size": 3, "absent_label": "abc".__getitem__}
    histogram = Histogram(rows, [0] * len(rows), **domain)
    rng = seeded()
    drawn = [KnownGumbel(k=2, epsilon=1.0).release(histogram, rng).labels for _ in range(1200)]
    seen = [drawn.count(pair) for pair in itertools.permutations("abc", 2)]
    assert sum(seen) == 1200
    assert stats.chisquare(seen).pvalue > 1e-3
    chosen = [
        Exponential(epsilon=1.0, utility_range=1.0).release(histogram, rng).labels[0]
        for _ in range(300)
    ]
    assert stats.chisquare([chosen.count(label) for label in "abc"]).pvalue > 1e-3
    assert sorted(
        KnownLaplace(epsilon=1.0).release(histogram, rng, labels=["zzz", "b"]).labels
    ) == ["b", "zzz"]


WHOLE = [
    JointTopK(k=2, epsilon=1.0),
    CanonicalTopK(k=2, epsilon=1.0),
    OneShotTopK(k=2, epsilon=1.0),
    StabilityTopK(k=2, epsilon=1.0, delta=0.01),
]


@pytest.mark.parametrize("mechanism", WHOLE, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("rows", [["a", "b", "c"], ["b"], []])
def test_whole_answers_name_labels_without_a_row_alike(mechanism, rows):
    histogram = Histogram(
        rows, [0] * len(rows), domain="public", domain_size=3, absent_label="abc".__getitem__
    )
    rng = seeded()
    drawn = [frozenset(mechanism.release(histogram, rng).labels) for _ in range(200)]
    seen = [drawn.count(frozenset(pair)) for pair in itertools.combinations("abc", 2)]
    assert sum(seen) == 200
    assert stats.chisquare(seen).pvalue > 1e-3


def test_an_unlisted_domain_that_breaks_its_promise_is_refused():
    histogram = Histogram(["a"], [0], domain="public", domain_size=3, absent_label=lambda _: "a")
    with pytest.raises(InvalidParameter, match="absent_label"):
        KnownGumbel(k=2, epsilon=1.0).release(histogram, seeded())
    with pytest.raises(InvalidParameter, match="utilities"):
        Exponential(epsilon=1.0, utility_range=1.0).check(histogram, utilities=[1, 2, 3])


class _DrawnBeforehand(GeneratorBits):
    """A source that draws many numbers below one bound at a time, which is faster."""

    def below(self, bound, size):
        if not getattr(self, "numbers", None):
            self.numbers = super().below(bound, 200_000).tolist()
        return np.array([self.numbers.pop() for _ in range(size)])


@pytest.mark.slow
def test_a_few_labels_among_many_rows_are_found():
    """A try finds one of 600 labels without a row with a probability of 0.4%, and 300 are drawn."""
    size = 150_000
    rows = range(600, size)
    zeros = np.zeros(len(rows), np.int64)
    histogram = Histogram(rows, zeros, domain="public", domain_size=size, absent_label=int)
    indices = np.arange(len(rows), len(rows) + 300)
    labels = drawn_labels(histogram, indices, _DrawnBeforehand(seeded()))
    assert len(set(labels)) == 300
    assert max(labels) < 600


@pytest.mark.parametrize("mechanism", COUNTING, ids=lambda m: type(m).__name__)
def test_rows_come_in_the_order_of_the_released_values(mechanism):
    histogram = Histogram(None, np.full(500, 10), sensitivity=Sensitivity(l0=1))
    release = mechanism.release(histogram, seeded())
    assert release.counts.dtype == np.int64
    pairs = [
        (-count, label)
        for label, count in zip(release.labels, release.counts.tolist(), strict=True)
    ]
    assert pairs == sorted(pairs)  # ties by label, so nothing of the true order is left
    assert release.charge == mechanism.charge(histogram.sensitivity)


def test_tied_values_of_listed_and_unlisted_labels_do_not_tell_which_are_listed():
    """With nearly no noise all values are 0 or 1; ties must follow the label, not whether it has a
    row.
    """
    mechanism = KnownLaplace(epsilon=200.0)
    sensitivity = Sensitivity(l0=1)
    listed = Histogram(["z", "a", "m", "p"], [0, 0, 0, 0], domain="public", sensitivity=sensitivity)
    names = {"domain_size": 4, "absent_label": "pmza".__getitem__}
    unlisted = Histogram(["z"], [0], domain="public", sensitivity=sensitivity, **names)
    assert (
        mechanism.release(listed).labels
        == mechanism.release(unlisted).labels
        == ("a", "m", "p", "z")
    )


@pytest.mark.parametrize("mechanism", COUNTING, ids=lambda m: type(m).__name__)
def test_named_labels_of_a_private_histogram(mechanism):
    histogram = Histogram(["a", "b", "c"], [10**6, 0, 10**7], sensitivity=Sensitivity(l0=2))
    release = mechanism.release(histogram, seeded(), labels=["a", "unheard of"])
    assert release.labels == ("a", "unheard of")
    assert abs(release.counts[0] - 10**6) < 1000
    assert abs(release.counts[1]) < 1000
    with pytest.raises(InvalidParameter, match="distinct"):
        mechanism.release(histogram, labels=["a", "a"])
    with pytest.raises(InvalidParameter, match="labels"):
        mechanism.release(histogram, labels="abc")
    with pytest.raises(InvalidParameter, match="labels"):
        mechanism.release(PUBLIC, labels=["d"])


def test_incomplete_histogram_counts_only_a_release_made_on_it():
    histogram = Histogram(["a", "b"], [7, 5], complete=False, sensitivity=Sensitivity(l0=1))
    twin = Histogram(["a", "b"], [7, 5], complete=False, sensitivity=Sensitivity(l0=1))
    release = KnownLaplace(epsilon=1.0).release(
        Histogram(["a"], [7], sensitivity=Sensitivity(l0=1)), labels=["a"]
    )
    for labels in (["a"], release):
        with pytest.raises(InvalidParameter, match="labels"):
            KnownLaplace(epsilon=1.0).release(histogram, labels=labels)
    made_here = dptopk.Release(
        ("a",), None, Charge(), None, Sensitivity(), source=histogram.identity
    )
    assert KnownLaplace(epsilon=1.0).release(histogram, labels=made_here).labels == ("a",)
    with pytest.raises(InvalidParameter, match="labels"):
        KnownLaplace(epsilon=1.0).release(twin, labels=made_here)


def test_empty_public_domain():
    empty = Histogram(None, [], sensitivity=Sensitivity(l0=1))
    assert len(KnownLaplace(epsilon=1.0).release(empty)) == 0
    assert KnownLaplace(epsilon=1.0).release(empty).charge == Charge()


@pytest.mark.parametrize("mechanism", COUNTING, ids=lambda m: type(m).__name__)
def test_half_width_is_the_exact_quantile(mechanism):
    sensitivity = Sensitivity(linf=2, l0=1)
    n = np.arange(-400, 401)
    law = np.exp(-0.25 * np.abs(n)) if isinstance(mechanism, KnownLaplace) else np.exp(-(n**2) / 72)
    law /= law.sum()
    for confidence in (0.3, 0.9, 0.95, 0.999):
        width = mechanism.half_width(sensitivity, confidence=confidence)
        assert law[np.abs(n) <= width].sum() >= confidence > law[np.abs(n) < width].sum()
    assert mechanism.noise_std(sensitivity) == pytest.approx(np.sqrt((law * n**2).sum()), rel=1e-9)
    table = mechanism.release(PUBLIC, seeded()).intervals(confidence=0.9)
    assert list(table.columns) == ["rank", "label", "low", "high", "rank_low", "rank_high"]
    assert (table["low"] >= 0).all()
    with pytest.raises(InvalidParameter, match="confidence"):
        mechanism.half_width(sensitivity, confidence=1.0)


def test_small_gaussian_noise_std():
    n = np.arange(-40, 41)
    law = np.exp(-(n**2) / (2 * 0.4**2))
    exact = math.sqrt((law * n**2).sum() / law.sum())
    assert KnownGaussian(sigma=0.4).noise_std(Sensitivity(l0=1)) == pytest.approx(exact, rel=1e-12)


def test_noise_that_leaves_the_integers_is_refused():
    with pytest.raises(InvalidParameter, match="sigma"):
        KnownGaussian(sigma=1e300).charge(Sensitivity(l0=1))
    with pytest.raises(InvalidParameter, match="epsilon"):
        KnownLaplace(epsilon=1e-300).release(PUBLIC)


def test_no_intervals_without_counts():
    with pytest.raises(InvalidParameter, match="labels only"):
        KnownGumbel(k=1, epsilon=1.0).release(PUBLIC).intervals()
