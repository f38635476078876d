"""Predicted losses of ways to answer from events, beside the laws and draws that they stand for."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from dptopk import Budget, Histogram, PartitionSelection, Sensitivity, UnknownGumbel
from dptopk.accounting.gaussian.pair import gaussian_epsilon
from dptopk.histogram.event_counts import EventCounts
from dptopk.planning import plan_two_phases, two_phase
from dptopk.planning.mixture import Mixture
from dptopk.planning.prediction import PLATEAU, Scene, losses, threshold
from dptopk.planning.profile import finding_sensitivity_of
from dptopk.planning.ways import FINDING_DELTA, RANGE_OF_MU, Way, calibrate_way, deviation, whole_mu

BUDGET = Budget(0.96, 1e-6)
EVERYTHING = Sensitivity()


def scene(counts: np.ndarray, k: int) -> Scene:
    """These counts alone, of as many users of one label as are needed."""
    length = len(counts)

    def of_rank(rank: np.ndarray) -> np.ndarray:
        return np.interp(rank, np.arange(1, length + 1), counts)[None]

    drawn = Mixture.of(k, length, of_rank)
    users = np.zeros((1, 8))
    users[0, 0] = counts.sum()
    return Scene(k, BUDGET, users, drawn)


@pytest.mark.slow
@pytest.mark.parametrize("cap", [20, 60])
def test_coins_show_labels_at_the_counts_of_their_mechanism(cap):
    """Their chances rise from 16% to 84% over more than half of the count of 1/2."""
    way = Way("coins", 0.3, 0.35, "gaussian", cap)
    middle, around = threshold(scene(np.array([5.0, 3.0, 1.0]), 1), way)
    under = Sensitivity(l0=cap)
    delta = FINDING_DELTA["coins"] * BUDGET.delta
    mu = whole_mu(BUDGET, "coins") * math.sqrt(way.share * (1 - way.selecting))
    coins = PartitionSelection(epsilon=float(gaussian_epsilon(mu, delta=delta)), delta=delta)
    low, half, high = (coins.appears_at(under, probability=p) for p in (0.16, 0.5, 0.84))
    assert middle == pytest.approx(half, rel=0.06)
    assert around * float(ndtri(0.84)) == pytest.approx((high - low) / 2, rel=0.1)


def test_what_a_noisy_floor_hides_is_hidden_together():
    """Twenty counts of which the floor hides all at once in one answer of fifteen: no label below
    them is shown instead, so their counts are missed.
    """
    k = 5
    way = Way("uncapped", 0.3, 0.5, "gaussian", floor=3 * k)
    rate = RANGE_OF_MU * whole_mu(BUDGET, "uncapped") * math.sqrt(way.share / k)
    offset = (math.log(way.floor) - math.log(FINDING_DELTA["uncapped"] * BUDGET.delta)) / rate
    counts = np.concatenate((np.full(20, round(offset + 3 / rate)), np.zeros(200)))
    counts[15:] = 0.0
    rng = np.random.default_rng(3)
    noisy = counts[:15] + rng.gumbel(size=(20_000, 15)) / rate
    floor = 1 + offset + rng.gumbel(size=(20_000, 1)) / rate
    rows = np.minimum((noisy > floor).sum(axis=1), k)
    missed = counts[0] * (1 - rows.mean() / k)
    noise = deviation(way, k, BUDGET)
    predicted = losses(scene(counts, k), [way])[0] - noise * (rows > 0).mean()
    assert missed > noise / 4
    assert predicted == pytest.approx(missed, rel=0.25)


def test_the_offset_of_a_floor_is_a_whole_number():
    """At a large ε counts are near one another: 1.85 for 2 said that the floor hides little."""
    k = 10
    budget = Budget(288.0, 1e-6)
    way = Way("uncapped", 0.8, 0.5, None, floor=400)
    counts = np.where(np.arange(510) < k, 15, 12)
    rate = RANGE_OF_MU * whole_mu(budget, "uncapped") * math.sqrt(way.share / k)
    delta = FINDING_DELTA["uncapped"] * budget.delta
    mechanism = UnknownGumbel(k=k, d_bar=way.floor, epsilon=rate, delta=delta)
    histogram = Histogram([f"x{rank}" for rank in range(510)], counts)
    rng = np.random.default_rng(3)
    rows = [len(mechanism.release(histogram, rng)) for _ in range(400)]
    missed = 15 * (1 - np.mean(rows) / k)
    predicted = losses(replace(scene(counts, k), budget=budget), [way])[0]
    assert missed > 5
    assert predicted == pytest.approx(missed, rel=0.1)


def test_a_floor_below_all_ranks_that_are_seen_may_be_as_high_as_the_last_of_them():
    """A look sees the ranks up to 40; what is after them is a guess, whatever ε."""
    k = 10
    budget = Budget(288.0, 1e-6)
    beyond, seen = (Way("uncapped", 0.8, 0.5, None, floor=floor) for floor in (400, 30))
    counts = np.repeat([15.0, 13.0, 5.0], [k, 5 * k, 400])
    of_beyond, of_seen = losses(replace(scene(counts, k), budget=budget), [beyond, seen])
    assert of_seen > 14  # rank 31 has 13, and hides 15
    assert of_beyond == pytest.approx(PLATEAU * 15, rel=0.1)


@pytest.mark.slow
def test_capped_counts_help_a_selection_as_predicted(monkeypatch):
    """Users of one label each, whom no cap cuts: the plan's answers lose what is predicted, and
    several times as much where the same selection is not helped.
    """
    k = 50
    counts = np.rint(np.geomspace(500, 150, 200))
    way = Way("threshold", 1.0, 0.01, "capped", 5)
    under = finding_sensitivity_of(way)
    scaled = calibrate_way(way, k, BUDGET, under, EVERYTHING)
    usual = plan_two_phases(k, BUDGET, labels_per_user=5, find="threshold")
    both = Histogram([f"x{rank}" for rank in range(200)], counts.astype(int))
    events = EventCounts.of_histograms(both, both.with_counts(both.counts, under))

    def missed() -> float:
        """The mean count missed for each row."""
        rng = np.random.default_rng(1)
        shown = [usual.in_way(scaled).release(events, rng).labels for _ in range(12)]
        return float(np.mean([counts[:k].sum() - both.count_of(one).sum() for one in shown])) / k

    helped = missed()
    predicted = float(losses(scene(counts, k), [way])[0]) - deviation(way, k, BUDGET)
    assert helped == pytest.approx(predicted, rel=0.4)
    monkeypatch.setattr(two_phase, "helped_counts", lambda counts, *_: counts)
    assert missed() > 5 * helped


@pytest.mark.slow
@pytest.mark.parametrize(("find", "cap"), [("uncapped", None), ("weights", 100)])
def test_noise_on_counts_is_that_of_the_mechanisms(find, cap):
    """The part of δ that finds labels is not there for the composition: without that the noise was
    said to be 3% less than it is.
    """
    k = 100
    way = Way(find, 0.3, 0.5, "gaussian", cap, floor=0 if cap else 3 * k)
    scaled = calibrate_way(way, k, BUDGET, finding_sensitivity_of(way), EVERYTHING)
    noise = scaled.phases[-1].mechanism.count_noise(EVERYTHING, labels=k)
    assert deviation(way, k, BUDGET) == pytest.approx(noise, rel=0.015)
