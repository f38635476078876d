"""Locally simultaneous intervals: exact coverage in enumerated worlds, mutants, and how narrow they
are.
"""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from dptopk import CountMLE, Histogram, KnownGaussian, KnownLaplace, Release, Sensitivity
from dptopk.release.intervals import Measurement, smallest_width
from dptopk.release.noise_laws import BoxNoise, GaussianNoise, LaplaceNoise

ONE = Sensitivity(l0=1)


def pmf(noise, reach):
    n = np.arange(-reach, reach + 1)
    exponent = (
        np.abs(n) / noise.scale if isinstance(noise, LaplaceNoise) else n**2 / 2 / noise.scale**2
    )
    weights = np.exp(-exponent)
    return n, weights / weights.sum()


def misses(noise, truth, k, alpha, kind, reach=9):
    """The exact probability that a shown row is missed, or the mean share of those that are."""
    n, p = pmf(noise, reach)
    statement, total = Measurement(noise, len(truth), whole=True), 0.0
    widths: dict[tuple[int, ...], int] = {}
    for places in itertools.product(range(len(n)), repeat=len(truth)):
        noises = n[list(places)]
        values = np.array(truth) + noises
        order = np.lexsort((np.arange(len(truth)), -values))
        gaps = tuple((values[order[0]] - values[order]).tolist())
        if gaps not in widths:
            widths[gaps] = statement.truncated(values[order], k, planned=True).half_width(
                alpha, kind, k
            )
        outside = np.abs(noises[order[:k]]) > widths[gaps]
        mass = float(np.prod(p[list(places)]))
        total += mass * (outside.any() if kind == "simultaneous" else outside.mean())
    return total


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simultaneous", "fcr"])
@pytest.mark.parametrize("truth", [(0, 0, 0), (9, 0, 0), (6, 3, 0), (30, 15, 0), (12, 11, 0)])
@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.study), 2])
def test_every_world_is_covered_exactly(kind, truth, k):
    for noise in (LaplaceNoise(1.2), GaussianNoise(1.6)):
        for alpha in (0.3, 0.05):
            assert misses(noise, truth, k, alpha, kind, reach=9) <= alpha + 1e-4


BOX = BoxNoise(1 / 1.5, 4)  # of three labels: P(z) ∝ e^{-1.5·|z|}


def box_misses(truth, k, alpha, kind, reach=10):
    """The same under box noise, whose law of three noises is listed, hull by hull."""
    axis = np.arange(-reach, reach + 1)
    noises = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    hulls = np.maximum(noises.max(axis=1), 0) - np.minimum(noises.min(axis=1), 0)
    mass = np.exp(-hulls / BOX.scale)
    statement, total = Measurement(BOX, 3, whole=True), 0.0
    widths: dict[tuple[int, ...], int] = {}
    for noise, weight in zip(noises, mass / mass.sum(), strict=True):
        values = np.array(truth) + noise
        order = np.lexsort((np.arange(3), -values))
        gaps = tuple((values[order[0]] - values[order]).tolist())
        if gaps not in widths:
            widths[gaps] = statement.truncated(values[order], k, planned=True).half_width(
                alpha, kind, k
            )
        outside = np.abs(noise[order[:k]]) > widths[gaps]
        total += float(weight) * (outside.any() if kind == "simultaneous" else outside.mean())
    return total


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simultaneous", "fcr"])
@pytest.mark.parametrize("truth", [(0, 0, 0), (90, 0, 0), (90, 60, 0), (30, 27, 0)])
def test_every_world_of_box_noise_is_covered_exactly(kind, truth):
    for k, alpha in ((1, 0.3), (2, 0.3), (1, 0.05)):
        assert box_misses(truth, k, alpha, kind) <= alpha + 1e-4


def over_floor(truth, floor, alpha, reach=10, offset=3):
    """Of box noise on two counts and a floor, the first of what passes shown: the probability that
    it is missed, and the widths that occurred.
    """
    axis = np.arange(-reach, reach + 1)
    noises = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    hulls = np.maximum(noises.max(axis=1), 0) - np.minimum(noises.min(axis=1), 0)
    mass = np.exp(-hulls / BOX.scale)
    released = Measurement(BOX, 2, whole=True, threshold=offset, noisy_floor=True)
    total = 0.0
    widths: dict[tuple[int, ...], int] = {}
    for noise, weight in zip(noises, mass / mass.sum(), strict=True):
        values = np.array(truth) + noise[:2]
        order = np.lexsort((np.arange(2), -values))
        passed = order[values[order] > floor + noise[2] + offset]
        if not len(passed):
            continue
        gaps = tuple((values[passed[0]] - values[passed]).tolist())
        if gaps not in widths:
            shown = released
            if len(passed) > 1:
                shown = released.truncated(values[passed], 1, planned=True)
            widths[gaps] = shown.half_width(alpha, "simultaneous", 1)
        total += float(weight) * (abs(noise[passed[0]]) > widths[gaps])
    return total, set(widths.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "floor"), [((90, 40), 0), ((90, 50), 40), ((20, 20), 0), ((40, 36), 30), ((90, 8), 0)]
)
def test_every_world_over_a_noisy_floor_is_covered_exactly(truth, floor):
    """What did not pass is below all that did: where that is far below the row shown, the width is
    that of one count, and else that of all and the floor.
    """
    for alpha in (0.3, 0.05):
        missed, widths = over_floor(truth, floor, alpha)
        assert missed <= alpha + 1e-4
        assert max(widths) <= smallest_width(BOX, 3, alpha)
        if truth == (90, 40):
            assert max(widths) == smallest_width(BOX, 1, alpha * 0.9)


def test_bars_over_a_noisy_floor_are_narrower_where_counts_are_apart():
    noise = BoxNoise(10.0, 12)
    released = Measurement(noise, 10, whole=True, threshold=86, noisy_floor=True)
    all_passed = APART[:10]
    wide = smallest_width(noise, 11, 0.05)
    shown = released.truncated(all_passed, 5, planned=True)
    width = shown.half_width(0.05, "simultaneous", 5)
    assert width == smallest_width(noise, 5, 0.045) < 0.97 * wide
    assert shown.half_width(0.05, "fcr", 5) == width
    # What passed does not reach far enough to see what is near, or the values chose the number.
    few = released.truncated(np.append(all_passed[:5], all_passed[4] - 100), 5, planned=True)
    chosen = released.truncated(all_passed, 5, planned=False)
    for other in (few, chosen):
        assert other.half_width(0.05, "simultaneous", 5) == wide
    fixed = Measurement(noise, 10, whole=True, threshold=86)
    assert not fixed.truncated(all_passed, 5, planned=True).near


def test_box_noise_of_the_rows_shown_alone_does_not_cover(monkeypatch):
    """The mutant below, on box noise of 100 equal counts: the width of one is too small."""
    monkeypatch.setattr(Measurement, "_number_of_candidates", lambda self, within: 0)
    noise, rng, missed = BoxNoise(0.48, 101), np.random.default_rng(5), 0
    width = Measurement(noise, 100, whole=True).truncated(FLAT[:100], 1, planned=True)
    most = width.half_width(0.1, "simultaneous", 1)
    for _ in range(300):
        side = round(noise.scale * rng.gamma(noise.power + 1))
        missed += rng.integers(side, size=100).max() - rng.integers(side) > most
    assert missed / 300 > 0.2


@pytest.mark.parametrize(("kind", "most"), [("simultaneous", 0.96), ("fcr", 0.85)])
def test_bars_of_box_noise_are_narrower_where_counts_are_apart(kind, most):
    noise = BoxNoise(0.48, 101)
    shown = Measurement(noise, 100, whole=True).truncated(APART[:100], 5, planned=True)
    assert shown.half_width(0.05, kind, 5) <= most * smallest_width(noise, 100, 0.05)
    flat = Measurement(noise, 100, whole=True).truncated(FLAT[:100], 5, planned=True)
    assert flat.half_width(0.05, kind, 5) == smallest_width(noise, 100, 0.05)


def drawn(truth, k, alpha, kind, scale=6.0, draws=300):
    """The share of seeded draws with a miss, or the mean share of rows that are missed."""
    noise, rng = GaussianNoise(scale), np.random.default_rng(4)
    statement, missed, widths = Measurement(noise, len(truth), whole=True), [], []
    for _ in range(draws):
        noises = np.rint(rng.normal(scale=scale, size=len(truth))).astype(int)
        order = np.argsort(-(truth + noises), kind="stable")
        shown = statement.truncated((truth + noises)[order], k, planned=True)
        width = shown.half_width(alpha, kind, k)
        outside = np.abs(noises[order[:k]]) > width
        missed.append(outside.any() if kind == "simultaneous" else outside.mean())
        widths.append(width)
    return float(np.mean(missed)), float(np.mean(widths))


FLAT = np.full(1000, 500)
APART = np.rint(1e5 / np.arange(1, 1001)).astype(int)


@pytest.mark.parametrize("kind", ["simultaneous", "fcr"])
@pytest.mark.parametrize("truth", [FLAT, APART], ids=["flat", "apart"])
def test_many_labels_are_covered(kind, truth):
    missed, _ = drawn(truth, 10, 0.1, kind)
    assert missed <= 0.1 + 4 * math.sqrt(0.09 / 300)


@pytest.mark.parametrize("kind", ["simultaneous", "fcr"])
def test_the_rows_shown_are_not_all_that_may_be_largest(monkeypatch, kind):
    """A mutant: of equal counts far more than the rows shown could have been shown."""
    monkeypatch.setattr(Measurement, "_number_of_candidates", lambda self, within: 0)
    missed, _ = drawn(FLAT, 10, 0.1, kind)
    assert missed > 0.3


def test_rows_whose_number_the_values_chose_have_the_wide_intervals():
    statement = Measurement(GaussianNoise(6.0), 1000, whole=True)
    values = np.sort(APART)[::-1]
    assert not statement.truncated(values, 10, planned=False).near
    planned = statement.truncated(values, 10, planned=True)
    assert planned.near
    assert not planned.truncated(values[:10], 4, planned=True).near
    wide = statement.truncated(values, 10, planned=False).half_width(0.05, "simultaneous", 10)
    assert wide == smallest_width(GaussianNoise(6.0), 1000, 0.05)
    assert planned.half_width(0.05, "simultaneous", 10) < 0.8 * wide


def test_what_is_far_out_is_paid_for():
    """The chance of a far noise is taken off: with all values near, widths are those of fewer
    errors.
    """
    statement = Measurement(GaussianNoise(6.0), 1000, whole=True)
    flat = statement.truncated(FLAT, 10, planned=True)
    assert flat.half_width(0.05, "simultaneous", 10) == smallest_width(
        GaussianNoise(6.0), 1000, 0.05
    )
    noise = GaussianNoise(600.0)
    apart = np.array([10**6] * 10 + [0] * 990)
    two = Measurement(noise, 1000, whole=True).truncated(apart, 10, planned=True)
    assert two.half_width(0.05, "fcr", 10) == smallest_width(noise, 1, 0.045)
    assert smallest_width(noise, 1, 0.045) > smallest_width(noise, 1, 0.05)
    within, width = smallest_width(noise, 1000, 0.005), two.half_width(0.05, "simultaneous", 10)

    def covered(w):
        """P[990 noises are within the outer width, and ten within this one]."""
        inside = [1 - 2 * noise.tail(each) for each in (within, w)]
        return inside[0] ** 990 * inside[1] ** 10

    assert covered(width) >= 0.95 > covered(width - 1)


@pytest.mark.parametrize(
    ("mechanism", "most"), [(KnownGaussian(sigma=20.0), 0.66), (KnownLaplace(epsilon=0.2), 0.5)]
)
def test_intervals_of_a_release_are_narrower_and_go_through_json(mechanism, most):
    counts = np.rint(1e5 / np.arange(1, 5001)).astype(int)
    histogram = Histogram(None, counts, sensitivity=ONE)
    whole = mechanism.release(histogram, np.random.default_rng(3))
    answer, wide = whole.top(10, planned=True), whole.top(10)
    again = Release.from_dict(json.loads(json.dumps(answer.to_dict())))
    width, before = (
        (each.intervals()["high"] - each.intervals()["low"]).max() for each in (again, wide)
    )
    assert width <= most * before
    table = again.intervals()
    assert ((table["low"] <= counts[:10]) & (counts[:10] <= table["high"])).all()
    assert again.measurement == answer.measurement


def test_rows_of_a_fit_are_not_the_largest_of_what_was_measured():
    """A fit moves counts towards each other: how near they are says nothing of the noise."""
    counts = np.rint(1e5 / np.arange(1, 201)).astype(int)
    histogram = Histogram(None, counts, sensitivity=ONE)
    fitted = CountMLE(noise=KnownGaussian(sigma=20.0)).release(
        histogram, np.random.default_rng(3), ranking=range(200)
    )
    assert not fitted.top(10, planned=True).measurement.near
