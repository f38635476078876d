"""Session.from_events: labels found under a cap, counted without one; charges, notes and error
bars.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pandas as pd
import pytest

from dptopk import (
    Accountant,
    Budget,
    Charge,
    Histogram,
    InvalidParameter,
    KnownLaplace,
    Ledger,
    Sensitivity,
    Session,
)
from dptopk._internal.choices import Finder
from dptopk.accounting.bounds import compose
from dptopk.costs import ApproxDP, DiscreteLaplaceDP, GaussianDP, PureDP
from dptopk.datasets import EventCounts
from dptopk.errors import DptopkError
from dptopk.histogram.event_counts import CELLS, NARROW, finding_sensitivity
from dptopk.planning import TwoPhasePlan, plan_two_phases
from dptopk.planning.profile import finding_sensitivity_of, menu, rest_after
from dptopk.planning.ways import calibrate_way

pytest.importorskip("duckdb")

from dptopk.datasets import EventsStore

COLUMNS = {"user": "who", "item": "what"}
BUDGET = Budget(1.0, 1e-6)


@pytest.fixture(scope="module")
def events():
    """3,000 users of very different activity: each label of a user is one of 40, the first more
    often.
    """
    rng = np.random.default_rng(0)
    degrees = np.minimum(1 + rng.pareto(1.0, 3000) * 3, 40).astype(int)
    law = 1 / np.arange(1, 41)
    items = [rng.choice(40, size=d, replace=False, p=law / law.sum()) for d in degrees]
    return pd.DataFrame(
        {
            "who": np.repeat(np.arange(3000), degrees),
            "what": [f"i{i:02}" for i in np.concatenate(items)],
        }
    )


@pytest.fixture(scope="module")
def truth(events):
    return events["what"].value_counts().to_dict()


@pytest.mark.slow
def test_an_answer_says_what_was_found_and_what_each_phase_cost(events, truth):
    session = Session.from_events(events, **COLUMNS, budget=BUDGET, rng=np.random.default_rng(1))
    answer = session.top_k(5, budget=BUDGET, look=None)
    assert set(answer.labels) <= set(sorted(truth, key=truth.get, reverse=True)[:7])
    assert "labels were found on capped data (at most 100 labels of one user)" in answer.note
    assert not answer.capped
    assert list(answer.phases) == ["find", "select", "count"]
    assert answer.charge.costs == Charge.join(*answer.phases.values()).costs
    assert answer.charge.adaptive
    assert 0.99 < compose(answer.charge, delta=1e-6).epsilon <= 1
    assert answer.sensitivity == Sensitivity()
    with pytest.raises(DptopkError):
        session.top_k(5, budget=Budget(0.1, 1e-8))
    assert len(session.report()) == 1


@pytest.mark.slow
def test_labels_alone_are_in_the_order_of_counts_that_are_not_shown(events, truth):
    session = Session.from_events(
        events, **COLUMNS, labels_per_user=3, budget=BUDGET, rng=np.random.default_rng(1)
    )
    answer = session.top_k(3, budget=BUDGET, counts=None)
    assert (answer.counts, answer.measurement) == (None, None)
    assert list(answer.labels) == sorted(truth, key=truth.get, reverse=True)[:3]
    assert "not shown" in plan_two_phases(3, BUDGET, counts=None).explain()
    assert len(session.report()) == 1


def test_a_stated_cap_is_the_cap_for_finding_and_none_is_one_phase(events, truth):
    found = Session.from_events(events, **COLUMNS, labels_per_user=2, budget=BUDGET).histogram
    assert isinstance(found, EventCounts)
    assert found.under_cap.sensitivity.l0 == 2
    whole = Session.from_events(events, **COLUMNS, labels_per_user=None, budget=BUDGET).histogram
    assert dict(zip(whole.labels.tolist(), whole.counts.tolist(), strict=True)) == truth
    assert not isinstance(whole, EventCounts)
    capped = Session.from_events(
        events, **COLUMNS, labels_per_user=2, count_capped=True, budget=BUDGET
    )
    assert capped.histogram.sensitivity.l0 == 2
    assert "counts are of capped data" in capped.top_k(3, budget=BUDGET, counts="auto").note


def test_a_ledger_pays_and_its_cap_is_the_default(events, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset(
        "clicks",
        budget=Budget(2.0, 1e-5),
        sensitivity=Sensitivity(l0=4),
        unit="member",
        version="1",
    )
    paying = {"ledger": ledger, "dataset": "clicks", "analyst": "ann"}
    session = Session.from_events(events, **COLUMNS, **paying, source="clicks")
    assert session.histogram.under_cap.sensitivity.l0 == 4
    answer = session.top_k(3, budget=BUDGET)
    assert ledger.spent("clicks").costs == answer.charge.costs
    again = session.top_k(3, budget=BUDGET, reuse=True)
    assert again.labels == answer.labels
    assert ledger.spent("clicks").costs == answer.charge.costs


@pytest.mark.slow
def test_a_store_without_a_cap_can_be_asked(events, truth, tmp_path):
    with EventsStore(tmp_path / "events.store", **COLUMNS, labels_per_user=None) as store:
        store.append(events, version="1")
        answer = Session.from_events(store, budget=BUDGET).top_k(3, budget=BUDGET)
        assert all(
            abs(count - truth[label]) < 60
            for label, count in zip(answer.labels, answer.counts, strict=True)
        )
    with EventsStore(tmp_path / "capped.store", **COLUMNS, labels_per_user=2) as store:
        store.append(events, version="1")
        with pytest.raises(InvalidParameter, match="count_capped=True"):
            Session.from_events(store, budget=BUDGET)
        for wrong in ({"labels_per_user": 3}, {"key": "k"}):
            with pytest.raises(InvalidParameter, match="a store of events has its own"):
                Session.from_events(store, count_capped=True, budget=BUDGET, **wrong)
        assert (
            Session.from_events(store, count_capped=True, budget=BUDGET).histogram.sensitivity.l0
            == 2
        )


@pytest.mark.slow
@pytest.mark.parametrize("find", sorted({*get_args(Finder)} - {"uncapped", "weights"}))
def test_no_label_is_an_answer_with_its_whole_charge(find):
    nobody = EventCounts.of_histograms(
        Histogram(["x"], [1]), Histogram(["x"], [1], sensitivity=Sensitivity(l0=5))
    )
    session = Session(nobody, budget=BUDGET, rng=np.random.default_rng(3))
    answer = session.run(plan_two_phases(4, BUDGET, find=find))
    assert len(answer) == 0
    assert "0 labels were found" in answer.note
    assert 0.99 < compose(answer.charge, delta=1e-6).epsilon <= 1
    assert len(answer.intervals()) == 0
    assert (
        session.remaining().epsilon_left < 0.01
    )  # its cost was fixed before the number of labels was known


@pytest.mark.slow
def test_a_label_that_only_the_first_phase_has_is_a_noised_0():
    phantom = EventCounts.of_histograms(
        Histogram(["y"], [50]), Histogram(["x"], [900], sensitivity=Sensitivity(l0=5))
    )
    answer = plan_two_phases(2, BUDGET, find="threshold").release(phantom, np.random.default_rng(4))
    assert answer.labels == ("x",)
    assert abs(answer.counts[0]) < 50


@pytest.mark.slow
def test_what_does_not_fit_is_refused_before_anything_is_charged(events):
    session = Session.from_events(events, **COLUMNS, budget=BUDGET)
    plain = Session(Histogram(["x"], [9], sensitivity=Sensitivity(l0=5)), budget=BUDGET)
    plan = plan_two_phases(3, BUDGET)
    assert isinstance(plan, TwoPhasePlan)
    for ask, told in (
        (lambda: plain.run(plan), "histogram"),
        (lambda: session.run(plan_two_phases(3, BUDGET, labels_per_user=4)), "sensitivity"),
        (lambda: session.top_k(3, budget=BUDGET, counts="laplace"), "counts='laplace'"),
        (lambda: session.top_k(3, budget=Budget(1.0, 0.0)), "budget.delta"),
        (lambda: session.top_k(3, budget=Budget(rho=0.1)), "budget.delta"),
        (lambda: session.top_k(3, budget=BUDGET, look=0.1), "look=0.1 .*count_capped=True"),
        (lambda: session.top_k(3, budget=BUDGET, d_bar=20), "d_bar=20 .*count_capped=True"),
        (lambda: session.top_k(3, budget=BUDGET, find="coins"), "weights"),
        (lambda: session.top_k(3, budget=BUDGET, min_users=0), "min_users"),
        (lambda: plan_two_phases(3, BUDGET, find="weights", per_label_cap=2), "per_label_cap"),
        (lambda: Session.from_events(events, **COLUMNS, budget=BUDGET, weights="no"), "weights"),
        (
            lambda: Session.from_events(
                events, **COLUMNS, budget=BUDGET, weights=True, per_label_cap=2
            ),
            "weights",
        ),
        (
            lambda: Session.from_events(
                events, **COLUMNS, budget=BUDGET, weights=True, labels_per_user=None
            ),
            "weights",
        ),
        (lambda: session.top_k(3, budget=BUDGET, share=1.5), "share"),
        (lambda: session.top_k(3, budget=BUDGET, find="luck"), "find"),
        (lambda: Session.from_events(events, **COLUMNS), "exactly one of budget and ledger"),
        (
            lambda: Session.from_events(events, **COLUMNS, count_capped=True, budget=BUDGET),
            "labels_per_user",
        ),
        (lambda: Session.from_events(events, **COLUMNS, budget=BUDGET, labels=3), "labels"),
    ):
        with pytest.raises((InvalidParameter, TypeError), match=told):
            ask()
    assert session.remaining().to_dict()["epsilon_left"] == 1


def test_wide_error_bars_cover_the_true_counts_and_not_those_of_capped_data(events, truth):
    both = Session.from_events(
        events, **COLUMNS, labels_per_user=2, weights=False, budget=BUDGET
    ).histogram
    plan = plan_two_phases(5, BUDGET, labels_per_user=2, find="threshold", counts="gaussian")
    table = plan.release(both, np.random.default_rng(6)).intervals(confidence=1 - 1e-9)
    capped = dict(zip(both.under_cap.labels.tolist(), both.under_cap.counts.tolist(), strict=True))
    assert len(table)
    assert all(
        low <= truth[label] <= high
        for label, low, high in table[["label", "low", "high"]].itertuples(index=False)
    )
    assert any(
        capped[label] < low for label, low in table[["label", "low"]].itertuples(index=False)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "find", "counts"),
    [
        (5, "threshold", "gaussian"),
        (12, "coins", "gaussian"),
        (8, "weights", "box"),
        (8, "weights", "gaussian"),
    ],
)
def test_error_bars_cover_the_true_counts(events, truth, k, find, counts):
    """At 80%, where too narrow bars show: of the capped data they would cover none of the true
    counts.
    """
    weights = find == "weights"
    both = Session.from_events(
        events, **COLUMNS, labels_per_user=2, weights=weights, budget=BUDGET
    ).histogram
    plan, rng, draws = (
        plan_two_phases(k, BUDGET, labels_per_user=2, find=find, counts=counts),
        np.random.default_rng(6),
        80,
    )
    kinds = {"simultaneous": [], "fcr": []} | ({"row": []} if find != "coins" else {})
    for _ in range(draws):
        answer = plan.release(both, rng)
        for kind, covered in kinds.items():
            table = answer.intervals(confidence=0.8, kind=kind)
            true = np.array([truth[label] for label in table["label"]])
            inside = (table["low"] <= true) & (true <= table["high"])
            covered.append(inside.all() if kind == "simultaneous" else inside.mean())
    for kind, covered in kinds.items():
        share, wobble = np.mean(covered), np.std(covered) / draws**0.5
        assert share > 0.8 - 3 * wobble, kind
        if kind == "row":
            assert share < 0.8 + 4 * wobble + 0.05  # and hardly wider than they must be
    capped = (both.under_cap.counts / both.under_cap.sensitivity.linf).max()
    width = plan.mechanisms[-1].half_width(Sensitivity(), labels=k)
    assert capped + width < max(truth.values())


def test_the_second_phase_costs_the_same_for_every_number_of_labels():
    plan = plan_two_phases(40, BUDGET, find="counts")
    (cost,) = plan.phases[-1].charge.costs
    assert isinstance(cost, GaussianDP)
    labels = [f"x{i}" for i in range(60)]
    for number in (1, 10, 60):
        counts = [5000] * number
        both = EventCounts.of_histograms(
            Histogram(labels[:number], counts),
            Histogram(labels[:number], counts, sensitivity=Sensitivity(l0=5)),
        )
        answer = plan.release(both, np.random.default_rng(7))
        assert answer.charge == plan.charge
        assert len(answer) == min(number, 40)
        assert f"{number} label" in answer.note


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget", [Budget(1e-3, 1e-9), Budget(1.0, 1e-100), Budget(50.0, 1e-3), Budget(1.0, 0.3)]
)
@pytest.mark.parametrize("k", [5, 100])
def test_a_plan_is_within_its_budget_and_hardly_below(k, budget):
    """By another way of finding labels where the usual one has no noise, or no coin, for the
    budget.
    """
    plan = plan_two_phases(k, budget)
    assert (
        0.995 * budget.epsilon
        < compose(plan.charge, delta=budget.delta, lower=False).epsilon
        <= budget.epsilon
    )
    assert plan.appears_at() > 0


def test_a_way_that_was_asked_for_is_not_replaced():
    with pytest.raises(InvalidParameter, match="epsilon"):
        plan_two_phases(5, Budget(1e-3, 1e-9), find="coins")


@pytest.mark.slow
def test_a_budget_in_rho_is_planned_and_paid(events):
    budget = Budget(rho=0.05, delta=1e-6)
    session = Session.from_events(events, **COLUMNS, budget=budget, rng=np.random.default_rng(2))
    plan = plan_two_phases(40, budget, profile=True)
    assert session.top_k(40, budget=budget).charge == plan.charge
    assert not plan.looks
    assert session.remaining().to_dict()["epsilon_left"] < 0.02
    with pytest.raises(DptopkError):
        session.top_k(40, budget=Budget(rho=0.01, delta=1e-7))


@pytest.mark.slow
def test_box_noise_is_taken_where_it_is_smaller():
    for k, noise in ((3, "box"), (10, "box"), (25, "gaussian"), (31, "gaussian")):
        plans = {
            each: plan_two_phases(k, BUDGET, counts=each) for each in ("box", "gaussian", "auto")
        }
        least = min(("box", "gaussian"), key=lambda each: plans[each].noise_std)
        assert least == noise
        assert plans["auto"].noise_std == plans[noise].noise_std
        box = plans["box"].phases[-1]
        assert box.charge.costs.keys() == {PureDP(box.mechanism.epsilon)}


@pytest.mark.parametrize("find", sorted({*get_args(Finder)} - {"uncapped"}))
def test_no_label_of_fewer_users_than_asked_for(find):
    """40 labels of 299 users, 40 of 10^6, tiny noise: the first pass without a limit, and never
    with one of 300.
    """
    labels, counts = [f"x{i}" for i in range(80)], [299] * 40 + [10**6] * 40
    under = finding_sensitivity(2, 1, weights=find == "weights")
    found = Histogram(labels, [count * under.linf for count in counts], sensitivity=under)
    both, seen = EventCounts.of_histograms(Histogram(labels, counts), found), {}
    for least in (1, 299, 300):
        plan = plan_two_phases(80, Budget(20.0, 0.1), labels_per_user=2, find=find, min_users=least)
        seen[least] = plan.release(both, np.random.default_rng(8)).labels
        assert plan.appears_at() >= least
    assert len(seen[1]) == 80
    assert set(seen[300]) == set(labels[40:]) < set(seen[1])
    assert f"never with fewer than {least} users" in plan.explain()


@pytest.fixture(scope="module")
def few():
    """20,000 users with 1.5 labels each, of 200."""
    rng = np.random.default_rng(3)
    degrees, law = rng.geometric(0.65, 20_000), 1 / np.arange(1, 201)
    items = rng.choice(200, size=degrees.sum(), p=law / law.sum())
    return pd.DataFrame({"who": np.repeat(np.arange(20_000), degrees), "what": items})


@pytest.mark.slow
def test_a_look_chooses_the_way_and_the_answer_says_so(few):
    session = Session.from_events(few, **COLUMNS, budget=BUDGET, rng=np.random.default_rng(1))
    answer = session.top_k(60, budget=BUDGET)
    assert "chosen by a look, for DP(0.01) + DP(0.0299999), at how many labels" in answer.note
    assert "(mean of the top 60, rank 60, rank 240); a loss of " in answer.note
    # Hardly any user has more labels than the cap: so the counts under it are shown.
    assert answer.capped
    assert "selected by their counts on all data and under the cap; the counts shown" in answer.note
    plan = plan_two_phases(60, BUDGET, profile=True)
    assert answer.charge == plan.charge  # known before anything is seen
    assert list(answer.phases) == ["users", "ranks", "answer"]
    assert answer.charge.costs == Charge.join(*answer.phases.values()).costs
    assert 0.99 < compose(answer.charge, delta=1e-6).epsilon <= 1
    truth = few.drop_duplicates()["what"].value_counts()
    shown = truth.loc[list(answer.labels)].to_numpy()
    assert np.abs(answer.counts - shown).max() < 150  # the noise alone
    assert np.mean(truth.to_numpy()[:60]) - np.mean(shown) < 20
    again = plan.release(session.histogram, np.random.default_rng(1))
    assert (again.labels, again.note) == (answer.labels, answer.note)
    assert again.counts.tolist() == answer.counts.tolist()


def test_counts_are_never_those_under_a_cap_that_the_look_sees_cut(few):
    """With much ε the look sees that the cap takes labels off, and counts without it are shown."""
    session = Session.from_events(few, **COLUMNS, budget=Budget(1000.0, 1e-6))
    answer = session.top_k(60, budget=Budget(1000.0, 1e-6))
    assert "chosen by a look" in answer.note
    assert not answer.capped
    assert "found on capped data (at most 5 labels" not in answer.note


@pytest.mark.slow
def test_counts_under_a_cap_say_so_and_their_bars_cover_them():
    """200 labels of 300 to 3,000 users who have no other label: a narrow cap takes nothing off."""
    labels = [f"x{i}" for i in range(200)]
    counts = np.geomspace(3000, 300, 200).astype(np.int64)
    under = Histogram(labels, 100 * counts, sensitivity=finding_sensitivity(100, 1, weights=True))
    cells = [int(counts.sum()), *[0] * (len(CELLS) - 1)]
    profile = Histogram(list(CELLS), cells, sensitivity=Sensitivity(l0=1), domain="public")
    narrow = dict.fromkeys(NARROW, counts)
    both = EventCounts.of_histograms(Histogram(labels, counts), under, profile, narrow)
    plan = plan_two_phases(100, BUDGET, profile=True)
    answer = plan.release(both, np.random.default_rng(1))
    shown = (
        "threshold under a cap of 5 labels, then selections by uncapped counts and by the counts"
    )
    assert shown in answer.note
    assert "the counts shown are those under the cap" in answer.note
    assert answer.capped
    assert answer.charge == plan.charge
    table = answer.intervals(confidence=0.999)
    true = dict(zip(labels, counts.tolist(), strict=True))
    assert len(table) == 100
    for label, low, high in table[["label", "low", "high"]].itertuples(index=False):
        assert low <= true[label] <= high
    assert (
        "200 labels were found on capped data (at most 5 labels of one user), and selected by"
        in (answer.note)
    )
    more = plan_two_phases(250, BUDGET, profile=True).release(both, np.random.default_rng(1))
    assert more.capped
    assert "of one user); the counts shown are those under" in more.note  # all that was found
    gaussian = plan_two_phases(100, BUDGET, counts="gaussian", profile=True)
    assert not gaussian.release(both, np.random.default_rng(1)).capped


@pytest.mark.slow
def test_no_look_where_something_is_stated(few):
    session = Session.from_events(few, **COLUMNS, budget=Budget(9.0, 1e-5))
    stated: list[dict] = [{"share": 0.4}, {"find": "weights"}, {"min_users": 3}, {"look": None}]
    for options in stated:
        answer = session.top_k(60, budget=BUDGET, **options)
        assert list(answer.phases) == ["find", "select", "count"]
    stated = Session.from_events(few, **COLUMNS, labels_per_user=100, budget=BUDGET)
    assert stated.histogram.profile is None
    assert stated.top_k(60, budget=BUDGET).charge == plan_two_phases(60, BUDGET).charge
    unweighted = Session.from_events(few, **COLUMNS, weights=False, budget=BUDGET)
    assert unweighted.histogram.profile is None
    with pytest.raises(InvalidParameter, match="profile=True"):
        stated.run(plan_two_phases(60, BUDGET, profile=True))


@pytest.mark.slow
def test_registered_costs_take_looks_only_where_they_are_registered(few):
    for profile in (False, True):
        plan = plan_two_phases(60, BUDGET, profile=profile)
        session = Session.from_events(few, **COLUMNS, budget=Accountant(plan.charge, delta=1e-6))
        assert session.top_k(60, budget=BUDGET).charge == plan.charge


def test_where_nothing_is_seen_the_way_is_the_best_on_what_was_likely_before():
    """Twenty users: fewer than the noise of the look; and no users at all."""
    plan = plan_two_phases(60, BUDGET, profile=True)
    for users in (20, 0):
        histogram, cells = (
            Histogram(["x"][:users], [users][: min(users, 1)]),
            [users, *[0] * (len(CELLS) - 1)],
        )
        weighed = Histogram(["x"][:users], [100 * users][: min(users, 1)], sensitivity=plan.under)
        profile = Histogram(list(CELLS), cells, sensitivity=Sensitivity(l0=1), domain="public")
        answer = plan.release(
            EventCounts.of_histograms(histogram, weighed, profile), np.random.default_rng(1)
        )
        assert "a loss of " in answer.note
        assert answer.charge == plan.charge


@pytest.mark.slow
@pytest.mark.parametrize("budget", [BUDGET, Budget(8.0, 1e-4), Budget(0.05, 1e-8)])
@pytest.mark.parametrize("k", [3, pytest.param(60, marks=pytest.mark.study)])
def test_every_way_is_within_what_is_charged_for_the_answer(k, budget):
    """Looks and one (ε, δ) are charged; some ways of the menu cost at most that (ε, δ)."""
    plan = plan_two_phases(k, budget, profile=True)
    assert compose(plan.charge, delta=budget.delta, lower=False).epsilon <= budget.epsilon
    assert plan.rest == rest_after(budget, plan.looks)
    answer = ApproxDP(plan.rest.epsilon, plan.rest.delta)
    assert plan.charge.costs[answer] == 1
    used = []
    for way in menu(k, ("gaussian", "box", None))[::24]:
        try:
            scaled = calibrate_way(way, k, plan.rest, finding_sensitivity_of(way), plan.sensitivity)
        except InvalidParameter:
            continue
        together = Charge.join(*(phase.charge for phase in scaled.phases))
        spent = compose(together, delta=plan.rest.delta, lower=False).epsilon
        assert spent <= plan.rest.epsilon
        used.append(spent / plan.rest.epsilon)
    assert len(used) > 6
    assert min(used) > 0.99


def test_a_survey_of_one_row_a_person(events):
    session = Session.from_events(events, user=None, item="what", budget=BUDGET)
    assert type(session) is Session
    assert session.histogram.sensitivity == Sensitivity(1, 1)
    with pytest.raises(InvalidParameter, match="user and item"):
        Session.from_events(events, user=None, item="what", labels_per_user=2, budget=BUDGET)


@pytest.mark.slow
def test_sums_of_weights_where_nothing_is_found_first_are_refused(events, tmp_path):
    survey = {"user": None, "item": "what"}
    for options in (
        {**survey, "weights": True},
        {**survey, "weights": True, "labels_per_user": 1},
        {**COLUMNS, "weights": True, "labels_per_user": 5, "count_capped": True},
    ):
        with pytest.raises(InvalidParameter, match="leave out count_capped=True"):
            Session.from_events(events, **options, budget=BUDGET)
    for options in (survey, COLUMNS):
        with pytest.raises(InvalidParameter, match="weights must be 'auto', True or False, got 1"):
            Session.from_events(events, **options, weights=1, budget=BUDGET)
    plain = Session.from_events(events, **survey, budget=BUDGET).histogram
    capped = Session.from_events(events, **survey, count_capped=True, budget=BUDGET).histogram
    assert dict(zip(plain.labels, plain.counts, strict=True)) == dict(
        zip(capped.labels, capped.counts, strict=True)
    )
    with (
        EventsStore(tmp_path / "events.store", **COLUMNS, labels_per_user=None) as store,
        pytest.raises(InvalidParameter, match="a store of events has its own column of users"),
    ):
        Session.from_events(store, user=None, budget=BUDGET)


@pytest.mark.slow
def test_all_other_labels_are_one_row_with_a_charge_of_its_own():
    histogram = Histogram({"a": 900, "b": 800, "c": 70, "d": 5}, sensitivity=Sensitivity(2, 3))
    session = Session(histogram, budget=Budget(3.0, 1e-6), rng=np.random.default_rng(4))
    shown = session.top_k(2, budget=Budget(1.0, 1e-7))
    answer = session.other(shown, epsilon=0.5)
    assert (answer.labels, answer.charge.costs) == (("(other)",), {DiscreteLaplaceDP(12.0, 6): 1})
    assert compose(answer.charge, delta=0.0).epsilon == pytest.approx(0.5)
    assert answer.mechanism.noise_std(answer.sensitivity) == KnownLaplace(epsilon=0.5).noise_std(
        Sensitivity(6)
    )
    low, high = answer.intervals()[["low", "high"]].iloc[0]
    assert low <= sum(histogram.counts) - sum(histogram.count_of(list(shown.labels))) <= high
    for wrong in (Sensitivity(2), None):
        other = Histogram(
            ["a"], [9], sensitivity=wrong or Sensitivity(1, 1), complete=wrong is not None
        )
        with pytest.raises(InvalidParameter, match="of all other labels"):
            Session(other, budget=BUDGET).other(shown, epsilon=0.1)
    assert session.remaining().epsilon_spent > 1


@pytest.mark.slow
def test_a_stored_answer_is_for_the_same_cap_and_least_number_of_users(events, tmp_path):
    ledger, spent = Ledger(tmp_path / "ledger.db"), []
    ledger.create_dataset("clicks", budget=Budget(20.0, 1e-4), version="1")
    paying = {"ledger": ledger, "dataset": "clicks", "analyst": "ann", "source": "clicks"}
    five, eight = (
        Session.from_events(events, **COLUMNS, **paying, labels_per_user=cap) for cap in (5, 8)
    )
    for session, least in ((five, 1), (five, 1), (five, 2900), (eight, 1)):
        answer = session.top_k(40, budget=BUDGET, min_users=least, reuse=True)
        assert bool(len(answer)) == (least == 1)
        spent.append(sum(ledger.spent("clicks").costs.values()))
    assert spent == [42, 42, 84, 126]


def test_a_budget_without_noise_for_a_way_is_refused_before_the_looks_are_charged(few):
    session = Session.from_events(few, **COLUMNS, budget=BUDGET)
    with pytest.raises(InvalidParameter, match="too small"):
        session.top_k(40, budget=Budget(2e-16, 1e-9))
    assert session.remaining().to_dict()["epsilon_left"] == 1


@pytest.mark.slow
def test_shares_of_registered_costs_and_stored_answers_say_whether_to_look(few, tmp_path):
    looking, usual = (
        plan_two_phases(60, BUDGET, profile=profile).charge for profile in (True, False)
    )
    ledger = Ledger(tmp_path / "ledger.db")
    shares = {"ann": usual, "bob": Charge.join(looking, usual), "reserve": usual}
    ledger.create_dataset("clicks", shares=shares, delta=1e-5, version="1")
    for analyst, charge in (("ann", usual), ("bob", looking)):
        paying = {"ledger": ledger, "dataset": "clicks", "analyst": analyst, "source": "clicks"}
        session = Session.from_events(few, **COLUMNS, **paying, labels_per_user="auto")
        first = session.top_k(60, budget=BUDGET)
        assert first.charge == charge
        again = session.top_k(60, budget=BUDGET, reuse=True)
        assert (again.labels, again.counts.tolist()) == (first.labels, first.counts.tolist())
