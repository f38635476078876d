"""What can fail, fails in ``check``: whatever it accepts is answered."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import MISSING, fields
from fractions import Fraction

import numpy as np
import pytest

from dptopk import Histogram, InvalidParameter, Sensitivity, mechanisms
from dptopk.accounting.gaussian.sparse import _bounded_splits
from dptopk.mechanisms import (
    CanonicalTopK,
    Centred,
    CountMLE,
    Exponential,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    PartitionSelection,
    RoutedTopK,
    StabilityTopK,
    TruncatedLaplace,
    UnknownGaussian,
    UnknownGumbel,
)
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.mechanisms.named import names
from dptopk.mechanisms.router import _epsilon_of_peeled_selection

REALS = (
    5e-324,
    2.5e-300,
    1e-290,
    1e-100,
    1e-12,
    4e-4,
    0.01,
    0.5,
    1.0,
    3.0,
    40.0,
    750.0,
    1e6,
    2.0**48,
    1e50,
    1.7e308,
)
CHANCES = (5e-324, 1e-300, 1e-100, 1e-16, 1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.999, 1 - 2.0**-53)
WHOLE = (1, 2, 3, 7, 100, 2**31, 2**53, 2**62, 2**64, 10**100)
COUNTS = (0, 0, 1, 1, 2, 3, 10, 100, 10**4, 10**9, 2**53, 2**61, 2**62 - 1)


def _real(draw):
    return draw.choice(REALS) if draw.random() < 0.6 else 10 ** draw.uniform(-6, 4)


def _noise(draw):
    kind, name = draw.choice([("KnownGaussian", "sigma"), ("KnownLaplace", "epsilon")])
    return getattr(mechanisms, kind)(**{name: _real(draw)})


# A value for a parameter, by its name: odd ones, and ones that are accepted often enough.
DRAWN = {
    "k": lambda draw: draw.choice(WHOLE[:4]) if draw.random() < 0.7 else draw.choice(WHOLE),
    "d_bar": lambda draw: draw.choice(WHOLE),
    "epsilon": _real,
    "sigma": _real,
    "mu": _real,
    "utility_range": lambda draw: draw.choice(REALS[-8:]),
    "delta": lambda draw: (
        draw.choice(CHANCES) if draw.random() < 0.5 else 10 ** draw.uniform(-12, -1)
    ),
    "charge_as": lambda draw: draw.choice(["bounded_range", "clocks"]),
    "ordered": lambda draw: draw.random() < 0.5,
    "shrink": lambda draw: draw.random() < 0.5,
    "noise": _noise,
    "common": lambda draw: None if draw.random() < 0.5 else _noise(draw),
    "centre": lambda draw: draw.choice([Fraction(1, 2), Fraction(1, 7), Fraction(499, 1000)]),
}


def _made(draw, name):
    kind = getattr(mechanisms, name)
    drawn = [
        one for one in fields(kind) if one.init and (one.default is MISSING or draw.random() < 0.6)
    ]
    return kind(**{one.name: DRAWN[one.name](draw) for one in drawn})


def _histogram(draw, l2=None):
    linf, l0 = min(DRAWN["k"](draw), 2**62), draw.choice([None, 1, 1, 2, 3, 10**6, 2**62])
    sensitivity = Sensitivity(linf, l0, l2=l2)
    counts = [
        draw.choice(COUNTS[: draw.choice([3, 8, len(COUNTS)])])
        for _ in range(draw.choice([0, 1, 2, 3, 8, 13]))
    ]
    labels, size = [f"w{i}" for i in range(len(counts))], len(counts)
    return draw.choice(
        [
            lambda: Histogram(labels, counts, sensitivity=sensitivity),
            lambda: Histogram(labels, counts, sensitivity=sensitivity, domain="public"),
            lambda: Histogram(None, counts, sensitivity=sensitivity),
            lambda: Histogram(
                None,
                counts,
                sensitivity=sensitivity,
                domain_size=draw.choice([size, size + 5, 2**62]),
            ),
            lambda: Histogram(
                labels, counts, sensitivity=sensitivity, complete=False, limit=size + 3
            ),
        ]
    )()


def answered(mechanism, histogram, seed):
    """Whether the question was accepted; then it was answered, and said how sure it is of its
    counts.
    """
    options = {"ranking": histogram.labels.tolist()} if isinstance(mechanism, CountMLE) else {}
    try:
        mechanism.check(histogram, **options)
    except InvalidParameter:
        return False
    release = mechanism.release(histogram, np.random.default_rng(seed), **options)
    if release.counts is not None:
        release.intervals()
    return True


@pytest.mark.parametrize(
    "name", [name for name in names() if issubclass(getattr(mechanisms, name), Mechanism)]
)
def test_what_is_accepted_is_answered(name):
    accepted = 0
    for seed in range(20):
        draw = random.Random(f"{name} {seed}")  # noqa: S311
        try:
            mechanism = _made(draw, name)
        except InvalidParameter:
            continue
        accepted += answered(
            mechanism, _histogram(draw, 100 if name == "WeightedGaussian" else None), seed
        )
    assert accepted


ONE, PUBLIC = Sensitivity(l0=1), {"domain": "public"}


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (PartitionSelection(epsilon=4e-4, delta=1e-6), "20000 steps"),
        (PartitionSelection(epsilon=1e-290, delta=1e-6), "20000 steps"),
        (KnownGumbel(k=1, epsilon=1e-300), "epsilon"),
        (UnknownGumbel(k=1, d_bar=2, epsilon=1e-308, delta=1 - 2.0**-53), "epsilon"),
        (Exponential(epsilon=1e-300, utility_range=1.0), "epsilon"),
        (Exponential(epsilon=1e300, utility_range=1e-300), "epsilon|utility_range"),
        (KnownLaplace(epsilon=1e-200), "epsilon"),
        (Centred(noise=KnownLaplace(epsilon=1e-200), common=KnownLaplace(epsilon=1.0)), "epsilon"),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused_before_it_is_paid(mechanism, said):
    histogram = Histogram(["a", "b"], [5, 3], sensitivity=ONE, **PUBLIC)
    with pytest.raises(InvalidParameter, match=said):
        mechanism.check(histogram)


@pytest.mark.parametrize(
    "mechanism", [KnownGumbel(k=10**9, epsilon=1.0), CanonicalTopK(k=10**9, epsilon=1.0)], ids=str
)
def test_answers_that_no_memory_holds_are_refused(mechanism):
    with pytest.raises(InvalidParameter, match="k must be at most"):
        mechanism.check(Histogram(None, [5, 3], domain_size=2**62))


def test_scores_that_overflow_are_refused():
    histogram = Histogram(["a", "b", "c"], [5, 3, 0], sensitivity=Sensitivity(linf=2**61), **PUBLIC)
    with pytest.raises(InvalidParameter, match="threshold"):
        StabilityTopK(k=2, epsilon=1e6, delta=1e-6).check(histogram)


def test_intervals_of_the_widest_noise_that_is_accepted():
    for linf in (2**59, 2**60, 2**62):
        histogram = Histogram(
            ["a", "b"], [2**62 - 1, 2**62 - 1], sensitivity=Sensitivity(linf=linf, l0=1)
        )
        assert answered(TruncatedLaplace(epsilon=1.7e308, delta=1e-30), histogram, 0) == (
            linf <= 2**60
        )


def test_a_routed_answer_refuses_scores_that_overflow():
    with pytest.raises(InvalidParameter, match="1e280"):
        RoutedTopK(k=3, epsilon=1.7e308, delta=1e-9).check(Histogram(None, [10000, 0, 3, 2, 0]))


@pytest.mark.parametrize("moves", [{"linf": 2**62 + 1}, {"l0": 2**63}])
def test_a_user_moves_no_more_than_there_can_be(moves):
    with pytest.raises(InvalidParameter, match="at most 2\\^62"):
        Sensitivity(**moves)


def test_labels_of_one_user_beyond_all_floats_are_counted():
    for labels in (100, 2**60 + 1, 2**62 - 1):
        assert max(_bounded_splits(labels)) == labels


def test_a_fitted_answer_without_rows_is_empty():
    mechanism = CountMLE(noise=Centred(noise=KnownLaplace(epsilon=1.0)))
    assert len(mechanism.release(Histogram([], [], sensitivity=ONE), ranking=[])) == 0


def test_the_law_of_a_routed_answer_knows_no_clock(monkeypatch):
    def each():
        _epsilon_of_peeled_selection.cache_clear()
        return RoutedTopK(k=100, epsilon=1.013, delta=1e-6).peeling.epsilon

    calm, ticks = each(), itertools.count(0, 10**6)
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    assert each() == calm


def test_a_routed_answer_is_calibrated_before_it_is_paid():
    mechanism, histogram = RoutedTopK(k=2, epsilon=1.0, delta=1e-6), Histogram(None, [5, 3, 0])
    _epsilon_of_peeled_selection.cache_clear()
    mechanism.check(histogram)
    calibrated = _epsilon_of_peeled_selection.cache_info().misses
    mechanism.release(histogram)
    assert (calibrated, _epsilon_of_peeled_selection.cache_info().misses) == (1, 1)


@pytest.mark.parametrize(
    "mechanism",
    [
        KnownLaplace(epsilon=0.1),
        KnownGaussian(sigma=20),
        CountMLE(noise=KnownGaussian(sigma=20)),
        UnknownGaussian(d_bar=30, sigma=20, delta=1e-6),
    ],
    ids=repr,
)
def test_scaled_noise_is_divided_by_the_factor(mechanism):
    """Parameters to which noise is proportional, and those to which it is inverse."""
    sensitivity = Sensitivity(linf=2, l0=3)
    before = mechanism.count_noise(sensitivity, labels=3)
    after = mechanism.scaled(4.0).count_noise(sensitivity, labels=3)
    assert after == pytest.approx(before / 4, rel=2e-3)
