"""Ways that count all labels they find and show the k largest noisy counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dptopk import Budget, Charge, Histogram, InvalidParameter, Sensitivity
from dptopk.accounting.bounds import compose
from dptopk.datasets import EventCounts
from dptopk.histogram.event_counts import CELLS, NARROW, WEIGHT
from dptopk.mechanisms import GaussianCounts
from dptopk.planning import plan_two_phases
from dptopk.planning.mixture import Mixture
from dptopk.planning.prediction import Scene, losses
from dptopk.planning.profile import finding_sensitivity_of, menu
from dptopk.planning.two_phase import TwoPhasePlan
from dptopk.planning.ways import Way, calibrate_way, deviation_ratio

K = 20
BUDGET = Budget(1.0, 1e-6)
# Forty counts that are found, in an order that is not that of the labels, over rare labels.
COUNTS = np.concatenate((np.linspace(900, 300, 40).astype(int), np.full(200, 2)))
FOUND = 40
ANSWERS = 25


def in_way(way: Way, budget: Budget = BUDGET) -> TwoPhasePlan:
    """The plan without a look in one way."""
    usual = plan_two_phases(K, budget)
    return usual.in_way(
        calibrate_way(way, K, budget, finding_sensitivity_of(way), usual.sensitivity)
    )


@pytest.fixture(scope="module")
def events() -> EventCounts:
    """Users of one label each, so that a cap and weights take nothing off."""
    names = [f"x{(place * 7) % 240:03}" for place in range(len(COUNTS))]
    everything = Histogram(names, COUNTS)
    usual = plan_two_phases(K, BUDGET)
    users = Histogram(
        list(CELLS),
        [int(COUNTS.sum()), *[0] * (len(CELLS) - 1)],
        sensitivity=Sensitivity(l0=1),
        domain="public",
    )
    capped = everything.with_counts(WEIGHT * COUNTS, usual.under)
    return EventCounts.of_histograms(everything, capped, users, dict.fromkeys(NARROW, COUNTS))


WAYS = [way for way in menu(100, ("gaussian",)) if way.counts_all]


def test_they_are_in_the_menu_for_gaussian_counts_alone() -> None:
    assert {way.find for way in WAYS} == {"weights", "coins"}
    assert not [way for way in menu(K, ("box", None)) if way.counts_all]
    assert all("counts of all" in way.words for way in WAYS)


@pytest.mark.parametrize("way", WAYS[::12], ids=str)
def test_all_that_is_found_is_counted_and_the_largest_are_shown(
    way: Way, events: EventCounts
) -> None:
    plan = in_way(way)
    assert [phase.name for phase in plan.phases] == ["find", "count"]
    together = Charge.join(*(phase.charge for phase in plan.phases))
    assert compose(together, delta=BUDGET.delta, lower=False).epsilon <= BUDGET.epsilon
    answer = plan.release(events, np.random.default_rng(1))
    assert len(answer) == K
    assert answer.counts is not None
    assert (np.diff(answer.counts) <= 0).all()
    assert answer.measurement is not None
    found = answer.measurement.passed
    assert found is not None
    assert found > K
    assert f"{found} labels were found" in answer.note
    count = plan.phases[-1].mechanism
    assert isinstance(count, GaussianCounts)
    of_number = count.noise_std(plan.sensitivity, labels=found)
    of_k = count.noise_std(plan.sensitivity, labels=K)
    factor = deviation_ratio(way, np.array([float(found)]), K)[0]
    assert of_number / of_k == pytest.approx(factor, rel=0.01)
    assert answer.charge == plan.charge


def test_phases_without_a_selection_are_revived_at_their_charge(events: EventCounts) -> None:
    """No record has such a plan, as looks choose it; if one had, its answer would cost no more."""
    usual = plan_two_phases(K, BUDGET)
    for way in WAYS[::12]:
        plan = in_way(way)
        if plan.under == usual.under:
            again = usual.revived(plan.record())
            assert again.charge == plan.charge
            answer = again.release(events, np.random.default_rng(3))
            assert answer.charge == plan.charge
            assert len(answer) == K
        else:  # found under another cap
            with pytest.raises(InvalidParameter, match="other caps"):
                usual.revived(plan.record())


@pytest.mark.slow
def test_with_a_large_budget_they_give_the_true_top_k(events: EventCounts) -> None:
    top = set(np.asarray(events.labels)[:K].tolist())
    for epsilon in (100.0, 1000.0):
        for way in WAYS[:3]:  # one of each kind
            answer = in_way(way, Budget(epsilon, 1e-6)).release(events, np.random.default_rng(2))
            assert set(answer.labels) == top


@pytest.mark.slow
def test_error_bars_know_how_many_were_counted(events: EventCounts) -> None:
    """Bars around the largest of forty noisy counts are wider than those of twenty that were chosen
    before, and cover.
    """
    plan = in_way(replace(WAYS[0], share=0.3))
    covered = []
    widths = []
    for number in range(ANSWERS):
        answer = plan.release(events, np.random.default_rng(number))
        bars = answer.intervals(kind="simultaneous", confidence=0.8)
        true = events.count_of(list(answer.labels))
        covered.append(((bars["low"] <= true) & (true <= bars["high"])).all())
        alone = replace(answer, measurement=replace(answer.measurement, counted=K))
        narrower = alone.intervals(kind="simultaneous", confidence=0.8)
        widths.append(
            (bars["high"] - bars["low"]).mean() - (narrower["high"] - narrower["low"]).mean()
        )
    assert np.mean(covered) > 0.8 - 3 * (0.8 * 0.2 / ANSWERS) ** 0.5
    assert np.mean(widths) > 0


def test_their_loss_is_predicted(events: EventCounts) -> None:
    way = replace(WAYS[0], share=0.3)
    plan = in_way(way)
    lost = []
    top = np.sort(COUNTS)[::-1][:K].sum()
    for number in range(ANSWERS):
        answer = plan.release(events, np.random.default_rng(number))
        true = events.count_of(list(answer.labels))
        error = np.sqrt(np.mean((answer.counts - true) ** 2))
        lost.append(error + max(top - true.sum(), 0) / K)
    drawn = Mixture.of(
        K, 240, lambda rank: np.interp(rank, np.arange(1, 241), np.sort(COUNTS)[::-1])[None]
    )
    users = np.zeros((1, len(CELLS)))
    users[0, 0] = COUNTS.sum()
    scene = Scene(K, BUDGET, users, drawn)
    predicted = losses(scene, [way])[0]
    assert predicted == pytest.approx(np.mean(lost), rel=0.12)
    # Of twenty counts alone the noise would be less by a quarter.
    assert deviation_ratio(way, np.array([float(FOUND)]), K)[0] > 1.3
