"""Intervals and ranks: exact coverage by enumeration, sampled coverage on real and made-up data,
and wrong scales.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptopk import (
    Budget,
    Centred,
    CountMLE,
    Histogram,
    InvalidParameter,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    Sensitivity,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownLaplace,
    plan_topk,
)
from dptopk.datasets import macbeth
from dptopk.mechanisms import SparseGaussian, TruncatedLaplace
from dptopk.mechanisms.thresholds import is_above_threshold, slots
from dptopk.release.intervals import Measurement, smallest_width
from dptopk.release.noise_laws import GaussianNoise, LaplaceNoise, law_of
from dptopk.release.release import Release

ONE = Sensitivity(l0=1)


def law(noise, reach=40):
    """(value, probability) of a noise law."""
    n = np.arange(-reach, reach + 1)
    weights = np.exp(
        -np.abs(n) / noise.scale if noise.kind == "laplace" else -(n**2) / (2 * noise.scale**2)
    )
    if noise.bound is not None:
        weights[np.abs(n) > noise.bound] = 0
    return n, weights / weights.sum()


# exact enumeration
# -------------------------------------------------------------------------------------------------

COUNTS = Histogram(list("abc"), [30, 3, 2], sensitivity=ONE)
ENUMERATED = [
    UnknownLaplace(d_bar=2, epsilon=2.0, delta=0.2),
    UnknownGaussian(d_bar=2, sigma=0.7, delta=0.2),
    TruncatedGaussian(sigma=0.7, delta=0.2, d_bar=2),
    TruncatedGaussian(sigma=0.7, delta=0.2),
    TruncatedLaplace(epsilon=2.0, delta=0.2),
    SparseGaussian(sigma=0.7, delta=0.2),
]


def outcomes(mechanism, wrong=1.0, data=COUNTS):
    """Every (probability, labels, values, true counts) that passes, the largest first, at a scale
    times ``wrong``.
    """
    seen, sensitivity = mechanism.slots(data), data.sensitivity
    noise = mechanism.measurement(sensitivity).noise
    values, probabilities = law(replace(noise, scale=noise.scale * wrong), reach=5)
    values, probabilities = values[probabilities > 0], probabilities[probabilities > 0]
    offset, n = mechanism.threshold_offset(sensitivity), len(seen.counts)
    for drawn in itertools.product(range(len(values)), repeat=n + seen.noisy_floor):
        probability = float(np.prod(probabilities[list(drawn)]))
        own, floor = values[list(drawn[:n])], values[drawn[n]] if seen.noisy_floor else 0
        kept = is_above_threshold(seen.counts, own, seen.floor, floor, offset)
        shown = (seen.counts + own)[kept]
        order = np.argsort(-shown, kind="stable")
        yield probability, seen.labels[kept][order], shown[order], seen.counts[kept][order]


def missed(mechanism, alpha, wrong=1.0, keep=None, data=COUNTS):
    """(P[some interval or rank misses], false coverage rate, P[some rank misses]) by
    enumeration.
    """
    together = rate = ranks = 0.0
    measurement, total = mechanism.measurement(ONE), {}
    truth = dict(zip(data.labels.tolist(), data.counts.tolist(), strict=True))
    for probability, labels, values, counts in outcomes(mechanism, wrong, data):
        key = (tuple(labels), tuple(values.tolist()))
        total[key] = total.get(key, 0.0) + probability
        assert counts.tolist() == [truth[label] for label in labels]
    for (labels, values), probability in total.items():
        release = Release(labels, np.array(values), None, mechanism, ONE, measurement=measurement)
        release = release if keep is None else release.top(keep, planned=True)
        labels = release.labels
        for kind in ("simultaneous", "fcr"):
            table = release.intervals(confidence=1 - alpha, kind=kind)
            counts = np.array([truth[label] for label in labels], dtype=int)
            outside = (counts < table["low"]) | (counts > table["high"])
            if kind == "fcr":
                rate += probability * (outside.mean() if len(labels) else 0)
                continue
            together += probability * outside.any()
            among = sorted(
                truth.values() if table.attrs["ranks"] == "domain" else counts, reverse=True
            )
            places = np.array([1 + among.index(count) for count in counts])
            ranks += (
                probability * ((places < table["rank_low"]) | (places > table["rank_high"])).any()
            )
    return together, rate, ranks


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [*ENUMERATED[:-1], pytest.param(ENUMERATED[-1], marks=pytest.mark.study)],
    ids=lambda m: f"{type(m).__name__}-{getattr(m, 'd_bar', None)}",
)
def test_promises_hold_exactly(mechanism):
    for alpha, keep in ((0.05, None), (0.3, 1)):
        together, rate, ranks = missed(mechanism, alpha, keep=keep)
        assert together <= alpha
        assert rate <= alpha
        assert ranks <= alpha


@pytest.mark.slow
@pytest.mark.parametrize("counts", [[9, 9, 9], [30, 9, 8]])
def test_of_bounded_noise_only_values_that_may_be_the_largest_count(counts, monkeypatch):
    """And a mutant: as if no other value could have been shown."""
    mechanism, alpha = TruncatedLaplace(epsilon=1.0, delta=0.1), 0.55
    data = Histogram(list("abc"), counts, sensitivity=ONE)
    assert max(missed(mechanism, alpha, keep=1, data=data)) <= alpha
    monkeypatch.setattr(
        Measurement,
        "truncated",
        lambda self, values, rows, planned: replace(self, cut=True, passed=rows),
    )
    assert (missed(mechanism, alpha, keep=1, data=data)[0] > alpha) == (counts[0] == counts[1])


def test_values_far_below_do_not_widen_bounded_intervals():
    mechanism = TruncatedLaplace(epsilon=1.0, delta=1e-6)
    measurement = mechanism.measurement(ONE)
    bound, values = measurement.noise.bound, np.array([900, 600, 500, 400])

    def passed(*values, of=measurement, rows=2):
        return of.truncated(np.array(values), rows, planned=True).passed

    assert passed(*values) == 2 + sum(values[2:] >= 600 - 4 * bound)
    assert passed(900, 600, 600 - 4 * bound, 100) == 3
    assert passed(900, 600, 601 - bound) == 3
    twice = measurement.truncated(np.array([900, 850, 849, 848, 100]), 3, planned=True)
    assert twice.passed == 4
    assert passed(900, 850, 849, of=twice) == 4  # of what was left out, one may be shown
    assert passed(*values, of=SparseGaussian(sigma=5.0, delta=1e-6).measurement(ONE)) == 4


def test_a_cut_chosen_by_the_values_narrows_no_interval():
    """Of one count 4T above n others: a cut behind it only where it leads by more shows it where
    its noise is high.
    """
    measurement = TruncatedLaplace(epsilon=1.0, delta=1e-6).measurement(ONE)
    release = Release(
        tuple("abcd"), np.array([900, 600, 500, 400]), None, None, ONE, measurement=measurement
    )
    assert [release.top(1, planned=planned).measurement.passed for planned in (True, False)] == [
        1,
        4,
    ]
    planned = release.top(3, planned=True)
    assert planned.measurement.passed == 3
    assert planned.top(1).measurement.passed == 3
    wide, narrow = (release.top(1, planned=planned).intervals() for planned in (False, True))
    assert wide.high[0] == release.intervals().high[0] > narrow.high[0]
    answer = plan_topk(1, Budget(1.0, 1e-6), sensitivity=ONE, method="threshold").release(
        Histogram(list("abcd"), [900, 600, 500, 400], sensitivity=ONE), np.random.default_rng(0)
    )
    assert answer.measurement.passed == 1


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ENUMERATED[:2], ids=lambda m: type(m).__name__)
def test_a_wrong_scale_breaks_the_promise(mechanism):
    together, rate, _ = missed(mechanism, 0.05, wrong=2.0)
    assert together > 0.05
    assert rate > 0.05


def test_the_false_coverage_rate_without_the_share_of_rows_is_not_kept():
    """Mutant: the level alpha in place of alpha·rows/counted fails where few rows of many are
    kept.
    """
    n, p = law(GaussianNoise(3.0), 60)
    rng, alpha, slots_, floor = np.random.default_rng(0), 0.1, 40, 4
    drawn = rng.choice(n, p=p, size=(4000, slots_))  # all true counts 0; kept: above a fixed floor
    kept = drawn > floor
    rows = kept.sum(axis=1)
    measured = Measurement(GaussianNoise(3.0), slots_, threshold=floor)
    widths = np.array([measured.half_width(alpha, "fcr", r) for r in range(slots_ + 1)])[rows]
    naive = smallest_width(GaussianNoise(3.0), 1, alpha)
    for width, holds in ((widths, True), (naive, False)):
        outside = (kept & (np.abs(drawn) > np.reshape(width, (-1, 1)))).sum(axis=1) / np.maximum(
            rows, 1
        )
        assert (outside.mean() + 3 * outside.std() / 4000**0.5 < alpha) == holds


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_widths_are_the_quantiles_of_the_maximum(kind, n):
    noise = law_of({"kind": kind, "scale": 4.0})
    values, p = law(noise, 200)
    inside = np.array([p[np.abs(values) <= w].sum() for w in range(200)]) ** n
    for alpha in (0.5, 0.1, 0.01):
        width = smallest_width(noise, n, alpha)
        assert inside[width] >= 1 - alpha - 1e-9
        assert width == 0 or inside[width - 1] < 1 - alpha


@pytest.mark.parametrize("n", [1, 5])
def test_common_noise_is_covered_and_hardly_more(n):
    own, common = GaussianNoise(6.0), LaplaceNoise(4.0)
    values, p = law(own, 100)
    shared, q = law(common, 100)
    for alpha in (0.05, 0.3):
        width = smallest_width(own, n, alpha, common)
        exact = [
            sum(q[j] * p[np.abs(values + shared[j]) <= w].sum() ** n for j in range(201))
            for w in range(60)
        ]
        assert exact[width] >= 1 - alpha - 1e-9
        assert exact[max(width - 3, 0)] < 1 - alpha


def test_intervals_of_centred_counts_are_whole_numbers_around_half_steps():
    own, common = GaussianNoise(6.0), GaussianNoise(3.0)
    measurement = Measurement(own, 3, common=common, divisor=2)
    release = Release(
        ("a", "b", "c"), np.array([50.5, 20.0, 10.5]), None, None, ONE, measurement=measurement
    )
    table = release.intervals()
    width = smallest_width(own, 3, 0.05, common)
    assert table["low"].tolist() == [
        -(-(101 - width) // 2),
        -(-(40 - width) // 2),
        max(-(-(21 - width) // 2), 0),
    ]
    assert table["high"].tolist() == [(101 + width) // 2, (40 + width) // 2, (21 + width) // 2]
    ranks = smallest_width(own, 3, 0.05)  # the common noise moves no rank
    assert (table["rank_low"].tolist(), table["rank_high"].tolist()) == ([1, 2, 2], [1, 3, 3])
    assert 101 - ranks > 40 + ranks
    assert release.intervals(kind="fcr")["low"].le(table["low"] + width).all()


@pytest.mark.slow
def test_centred_counts_are_covered_with_correlated_noise():
    mechanism = Centred(noise=KnownGaussian(sigma=8.0), centre=Fraction(1, 3))
    public, rng = Histogram(None, np.arange(40, 0, -2), sensitivity=ONE), np.random.default_rng(3)
    shares = {kind: [] for kind in ("simultaneous", "fcr", "row")}
    for _ in range(90):
        release = mechanism.release(public, rng)
        for kind, found in shares.items():
            shown = release if kind == "row" else release.top(5)
            table = shown.intervals(confidence=0.8, kind=kind)
            counts = public.counts[list(shown.labels)]
            inside = (counts >= table["low"]) & (counts <= table["high"])
            found.append(inside.all() if kind == "simultaneous" else inside.mean())
    for found in shares.values():
        assert np.mean(found) > 0.8 - 3 * np.std(found) / 90**0.5
    assert np.mean(shares["row"]) < 0.9  # and is hardly more than was asked for


# sampled coverage
# --------------------------------------------------------------------------------------------------

RANKS = np.arange(1, 401)
DATA = {
    "macbeth": macbeth(sensitivity=ONE),
    "zipf": Histogram(None, 3000 // RANKS, sensitivity=ONE),
    "steep": Histogram(None, (10_000 / RANKS**1.5).astype(int), sensitivity=ONE),
    "flat": Histogram(None, np.full(400, 60), sensitivity=ONE),
}
RUNS, CONFIDENCE = 60, 0.8
SAMPLED = {
    "gaussian": UnknownGaussian(d_bar=60, sigma=4.0, delta=1e-2),
    "laplace": UnknownLaplace(d_bar=60, epsilon=0.4, delta=1e-2),
}


def covered(histogram, mechanism, kind, wrong=1.0):
    """Share of runs with all intervals right, or of rows on average; three standard errors; runs
    with right ranks.
    """
    truth = dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))
    rng, right, ranks = np.random.default_rng(5), [], []
    present = np.sort(histogram.counts)
    for _ in range(RUNS):
        release = mechanism.release(histogram, rng).top(20)
        measurement = release.measurement
        noise = replace(measurement.noise, scale=measurement.noise.scale * wrong)
        release = replace(release, measurement=replace(measurement, noise=noise))
        table = release.intervals(confidence=CONFIDENCE, kind=kind)
        counts = np.array([truth[label] for label in release.labels], dtype=int)
        inside = (counts >= table["low"]) & (counts <= table["high"])
        right.append(
            inside.all() if kind == "simultaneous" else (inside.mean() if len(inside) else 1.0)
        )
        among = present if table.attrs["ranks"] == "domain" else np.sort(counts)
        places = 1 + len(among) - np.searchsorted(among, counts, side="right")
        ranks.append(((places >= table["rank_low"]) & (places <= table["rank_high"])).all())
    return np.mean(right), 3 * np.std(right) / RUNS**0.5, np.mean(ranks)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", list(SAMPLED))
@pytest.mark.parametrize("data", list(DATA))
def test_coverage_is_nominal_after_selection(data, mechanism):
    for kind in ("simultaneous", "fcr"):
        share, error, ranks = covered(DATA[data], SAMPLED[mechanism], kind)
        assert share >= CONFIDENCE - error
        assert ranks >= CONFIDENCE - 3 * (CONFIDENCE * (1 - CONFIDENCE) / RUNS) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simultaneous", "fcr"])
def test_coverage_rejects_a_wrong_scale(kind):
    share, error, _ = covered(DATA["zipf"], SAMPLED["gaussian"], kind, wrong=0.5)
    assert share < CONFIDENCE - error


# the rest
# --------------------------------------------------------------------------------------------------

PUBLIC = Histogram(None, [100, 80, 5, 0], sensitivity=ONE)


@pytest.mark.slow
def test_every_counting_mechanism_gives_intervals_and_json_keeps_them():
    whole = Histogram(list("abc"), [900, 500, 3], sensitivity=ONE)
    rng = np.random.default_rng(0)
    releases = [
        *(mechanism.release(whole, rng) for mechanism in (*SAMPLED.values(), *ENUMERATED)),
        KnownLaplace(epsilon=1.0).release(PUBLIC, rng),
        KnownGaussian(sigma=2.0).release(PUBLIC, rng, labels=[0, 1]),
        Centred(noise=KnownGaussian(sigma=2.0)).release(PUBLIC, rng),
        Centred(noise=KnownLaplace(epsilon=0.5)).release(PUBLIC, rng, labels=[0, 1]),
        CountMLE(noise=KnownGaussian(sigma=2.0)).release(PUBLIC, rng, ranking=[1, 0]),
        plan_topk(2, Budget(2.0, 1e-4), sensitivity=ONE, d_bar=2).release(whole, rng),
    ]
    for release in releases:
        back = Release.from_dict(json.loads(json.dumps(release.to_dict())))
        for kind in ("simultaneous", "fcr"):
            assert back.intervals(kind=kind).equals(release.intervals(kind=kind))
        assert back.capped == release.capped


def test_rows_chosen_by_their_own_counts_have_no_interval_by_the_row():
    plan = plan_topk(2, Budget(2.0, 1e-6), sensitivity=ONE, domain="public", method="threshold")
    release = plan.release(PUBLIC, np.random.default_rng(0))
    with pytest.raises(InvalidParameter, match="simultaneous"):
        release.intervals(kind="row")
    whole = KnownGaussian(sigma=2.0).release(PUBLIC, np.random.default_rng(0))
    row, fcr, together = (whole.intervals(kind=kind) for kind in ("row", "fcr", "simultaneous"))
    assert row.drop(columns="rank").equals(fcr.drop(columns="rank"))  # nothing was selected
    assert (together["high"] >= row["high"]).all()
    with pytest.raises(InvalidParameter, match="kind"):
        whole.intervals(kind="all")
    with pytest.raises(InvalidParameter, match="labels only"):
        KnownGumbel(k=1, epsilon=1.0).release(PUBLIC).intervals()


def test_intervals_after_a_fit_are_those_before_it():
    mechanism = CountMLE(noise=KnownGaussian(sigma=2.0), shrink=False)
    release = mechanism.release(PUBLIC, np.random.default_rng(1), ranking=[2, 1, 0])
    middle = (release.intervals()["low"] + release.intervals()["high"]) / 2
    assert middle[1:].tolist() == release.measured[1:].tolist()
    assert release.counts.tolist() != release.measured.tolist()


def test_ranks_say_among_which_labels():
    whole = KnownLaplace(epsilon=1.0).release(PUBLIC, np.random.default_rng(0))
    assert whole.intervals().attrs["ranks"] == "domain"
    named = KnownLaplace(epsilon=1.0).release(PUBLIC, np.random.default_rng(0), labels=[0, 2])
    assert named.intervals().attrs["ranks"] == "rows"
    top = whole.top(
        2
    ).intervals()  # what is not shown may be as large as the last value shown, and no larger
    assert top.attrs["ranks"] == "domain"
    assert top["rank_high"].tolist() == [1, 4]


def test_top_keeps_what_it_shows():
    release = KnownLaplace(epsilon=1.0).release(PUBLIC, np.random.default_rng(0))
    assert release.top(9) is release
    assert release.top(2).labels == release.labels[:2]
    assert not release.measurement.selected
    assert release.top(2).measurement.selected


def test_capped_data_is_named_as_such():
    capped = Histogram(["a"], [10**6], sensitivity=Sensitivity(linf=2, l0=3), capped=True)
    release = UnknownLaplace(d_bar=2, epsilon=1.0, delta=1e-6).release(capped)
    assert release.note.endswith(
        "Each interval covers the count after capping; only its lower end holds for the true count"
    )
    assert "at most 3 labels" in release.note
    assert release.note in str(release)
    assert release.note in release._repr_html_()
    assert release.to_dict()["capped"] is True
    assert slots(capped, 2).floor == 0


def test_half_steps_of_the_largest_counts_do_not_overflow():
    """2^62 in steps of 1/8 is beyond 64 bits: intervals are still around the counts."""
    counts = [2**62 - 1, 2**62 - 2**40, 5]
    histogram = Histogram(["a", "b", "c"], counts, domain="public")
    mechanism = Centred(
        noise=KnownGaussian(sigma=50.0), common=KnownGaussian(sigma=20.0), centre=Fraction(1, 8)
    )
    answer = mechanism.release(histogram, np.random.default_rng(1)).intervals(confidence=0.9999)
    assert answer["label"].tolist() == ["a", "b", "c"]
    assert all(
        low <= count <= high
        for low, count, high in zip(answer["low"], counts, answer["high"], strict=True)
    )
    assert (answer["high"] - answer["low"]).max() < 2**13
    assert answer["rank_high"].tolist() == [1, 2, 3]


def test_an_unknown_number_of_unbounded_noises_has_no_width_for_ranks():
    with pytest.raises(InvalidParameter, match="number of noisy counts"):
        Measurement(GaussianNoise(3.0), None).rank_width(0.05)
    assert Measurement(GaussianNoise(3.0, bound=7), None).rank_width(0.05) == 7
