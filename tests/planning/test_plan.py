"""plan_topk: spends the budget, no more; says what it will do; refuses what does not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dptopk._internal.formatting import format_upper
from dptopk.accounting.bounds import compose
from dptopk.budgets.filter import Filter
from dptopk.costs import Budget, PureDP
from dptopk.datasets import macbeth
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms import Centred, CountMLE, KnownGaussian
from dptopk.planning import default_d_bar, plan_topk

BUDGET = Budget(2, 1e-6)


@pytest.mark.parametrize("domain", ["private", "public"])
@pytest.mark.parametrize("counts", ["gaussian", "laplace", None])
@pytest.mark.parametrize("l0", [1, 5, None])
def test_a_plan_spends_its_budget_and_no_more(domain, counts, l0):
    plan = plan_topk(10, BUDGET, domain=domain, counts=counts, sensitivity=Sensitivity(l0=l0))
    again = compose(plan.charge, delta=BUDGET.delta)
    assert again.epsilon <= BUDGET.epsilon
    assert again.epsilon >= 0.995 * BUDGET.epsilon
    assert plan.bound.epsilon == pytest.approx(again.epsilon)
    assert plan.charge.adaptive == (len(plan.phases) > 1 or plan.phases[0].name == "select")


@pytest.mark.parametrize("domain", ["private", "public"])
@pytest.mark.parametrize("counts", ["gaussian", "laplace", None])
def test_a_release_costs_at_most_the_plan(domain, counts):
    sensitivity = Sensitivity(l0=2)
    plan = plan_topk(10, BUDGET, domain=domain, counts=counts, sensitivity=sensitivity)
    release = plan.release(
        macbeth(sensitivity=sensitivity, domain=domain), np.random.default_rng(5)
    )
    assert len(release) <= 10
    assert release.seeded
    for cost, times in release.charge:
        assert plan.charge.costs[cost] >= times
    assert release.charge.delta <= plan.charge.delta
    assert set(release.phases) == {phase.name for phase in plan.phases}
    assert (release.counts is None) == (counts is None)
    assert "the" in release.labels


@pytest.mark.slow
def test_fewer_labels_per_user_mean_less_noise():
    narrow = plan_topk(10, BUDGET, sensitivity=Sensitivity(l0=1), method="peel")
    wide = plan_topk(10, BUDGET, sensitivity=Sensitivity(l0=10), method="peel")
    assert narrow.noise_std < wide.noise_std


def test_explain_states_split_noise_threshold_and_total():
    text = plan_topk(5, BUDGET, counts="gaussian", method="peel").explain()
    for part in (
        "UnknownGumbel",
        "CountMLE",
        "standard deviation",
        "threshold",
        "50% of the zCDP budget",
        "for the threshold",
    ):
        assert part in text
    assert "any number of labels" in text


@pytest.mark.slow
def test_fitted_counts_are_the_default_and_cost_nothing():
    plan = plan_topk(10, BUDGET, method="peel", sensitivity=Sensitivity(l0=2))
    assert isinstance(plan.phases[1].mechanism, CountMLE)
    release = plan.release(macbeth(sensitivity=Sensitivity(l0=2)), np.random.default_rng(2))
    assert (np.diff(release.counts) <= 0).all()
    assert release.measured is not None
    plain = plan_topk(10, BUDGET, method="peel", fit=False, sensitivity=Sensitivity(l0=2))
    assert plain.charge == plan.charge
    drawn = plain.release(macbeth(sensitivity=Sensitivity(l0=2)), np.random.default_rng(2))
    assert set(drawn.labels) == set(release.labels)
    assert (np.diff(drawn.counts) <= 0).all()
    noisy = dict(zip(release.labels, release.measured, strict=True))
    assert [noisy[label] for label in drawn.labels] == drawn.counts.tolist()


def test_pure_budgets_plan_laplace_on_a_public_domain():
    plan = plan_topk(5, Budget(1), domain="public", counts="laplace", sensitivity=Sensitivity(l0=3))
    assert plan.bound.delta == 0
    assert 0.99 <= plan.bound.epsilon <= 1


@pytest.mark.slow
def test_d_bar_is_stated_and_never_depends_on_data():
    assert default_d_bar(5) == 100
    assert default_d_bar(50) == 500
    assert plan_topk(5, BUDGET, method="peel").phases[0].mechanism.d_bar == 100
    assert plan_topk(5, BUDGET, d_bar=7, method="peel").phases[0].mechanism.d_bar == 7


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"k": 0}, "k"),
        ({"budget": (2, 1e-6)}, "budget"),
        ({"budget": Budget(2)}, "delta"),
        ({"budget": Budget(2), "domain": "public", "counts": "gaussian"}, "delta"),
        ({"budget": None}, "accuracy"),
        ({"accuracy": 3.0}, "accuracy"),
        ({"delta": 1e-6}, "delta"),
        ({"budget": None, "accuracy": -1.0, "delta": 1e-6}, "accuracy"),
        ({"budget": None, "accuracy": 3.0, "delta": 1e-6, "counts": None}, "accuracy"),
        ({"like": macbeth()}, "like"),
        ({"like": "the"}, "like"),
        ({"like": []}, "like"),
        ({"domain": "secret"}, "domain"),
        ({"counts": "cauchy"}, "counts"),
        ({"d_bar": 4}, "d_bar"),
        ({"d_bar": 40, "domain": "public"}, "d_bar"),
        ({"method": "guess"}, "method"),
        ({"method": "threshold", "domain": "public"}, "method"),
        ({"selection_share": 1.0}, "selection_share"),
        ({"sensitivity": 3}, "sensitivity"),
        ({"sensitivity": Sensitivity(neighbours="replace_one")}, "neighbours"),
    ],
)
def test_bad_requests_are_named(arguments, named):
    request = {"k": 5, "budget": BUDGET} | arguments
    with pytest.raises(InvalidParameter, match=named):
        plan_topk(**request)


def test_names_with_commas_are_quoted_where_names_are_listed():
    with pytest.raises(
        InvalidParameter, match=r"whole, .*, 'Gumbel, then Laplace counts', .*; got 'sort'"
    ):
        plan_topk(5, BUDGET, method="sort")


@pytest.mark.parametrize(
    ("histogram", "named"),
    [
        (Histogram(["a"], [1], domain="public", sensitivity=Sensitivity(l0=1)), "domain"),
        (Histogram(["a"], [1], sensitivity=Sensitivity(l0=3)), "sensitivity"),
        (Histogram(["a"], [1], sensitivity=Sensitivity()), "sensitivity"),
        (Histogram(["a"], [1], sensitivity=Sensitivity(linf=2, l0=2)), "sensitivity"),
        ("histogram", "histogram"),
    ],
)
def test_a_histogram_that_does_not_fit_is_refused(histogram, named):
    plan = plan_topk(5, BUDGET, sensitivity=Sensitivity(l0=2))
    with pytest.raises(InvalidParameter, match=named):
        plan.release(histogram)


def test_a_histogram_that_moves_less_is_taken_and_charged_its_own_moves():
    plan = plan_topk(5, BUDGET, sensitivity=Sensitivity(l0=2))
    release = plan.release(macbeth(sensitivity=Sensitivity(l0=1)))
    assert not release.seeded
    assert release.charge.count <= plan.charge.count


def test_counts_that_were_paid_for_are_used_in_a_plan_and_taken_back_in_a_session():
    """12 of 25 labels of Macbeth appear: two measurements of each fit in the charge for 25, and
    share one Y.
    """
    plan = plan_topk(25, BUDGET)
    noise = plan.mechanisms[1].noise
    spent = plan.release(macbeth(), np.random.default_rng(1))
    saved = plan.release(macbeth(), np.random.default_rng(1), average=False)
    assert set(spent.labels) == set(saved.labels)
    rows = len(spent)
    passes = 25 // rows
    (shared,), (own,) = (
        [cost for cost, times in noise.charge(Sensitivity(), labels=3) if times == n]
        for n in (1, 3)
    )
    assert passes > 1
    assert spent.phases["count"].costs == {own: passes * rows, shared: 1}
    assert saved.phases["count"].costs == {own: rows, shared: 1}
    assert plan.charge.includes(spent.charge)
    assert f"means of {passes} measurements" in spent.note
    assert "means" not in saved.note


@pytest.mark.slow
def test_averaged_counts_are_better():
    """The own part of the noise falls by the root of the passes; the shared part stays."""
    counts = np.array([500, 400, 300])
    histogram = Histogram(["a", "b", "c"], counts, domain="public")
    mechanism = CountMLE(
        noise=Centred(noise=KnownGaussian(sigma=20.0), common=KnownGaussian(sigma=1.0))
    )
    rng = np.random.default_rng(5)
    error = {
        passes: np.std(
            [
                mechanism.release(histogram, rng, ranking=["a", "b", "c"], passes=passes).counts
                - counts
                for _ in range(400)
            ]
        )
        for passes in (1, 4)
    }
    assert error[1] == pytest.approx(10.0, rel=0.1)
    assert error[4] == pytest.approx(5.0, rel=0.1)
    charge = mechanism.charge_of_passes(Sensitivity(), 3, 4)
    assert str(charge) == "DGauss(1.0, 1) + 12*DGauss(20.0, 1)"
    plain = CountMLE(noise=KnownGaussian(sigma=20.0))
    assert str(plain.charge_of_passes(Sensitivity(), 3, 4)) == "12*DGauss(20.0, 1)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "epsilon", "delta", "most"),
    [(25, 1, 0, 34.6), (5, 1, 1e-6, 7.9), (5, 5, 1e-6, 1.41), (5, 1, 1e-9, 6.9), (200, 1, 0, 258)],
)
def test_box_noise_where_users_touch_any_number_of_labels(k, epsilon, delta, most):
    """Under pure DP 1.8 times less than centred Laplace counts (64.2 at k = 25), and less for small
    δ.
    """
    plan = plan_topk(k, Budget(epsilon, delta), domain="public")
    assert plan.design == ("Gumbel, then box counts" if delta else "one-shot draw, then counts")
    plan = plan_topk(k, Budget(epsilon, delta), domain="public", method="Gumbel, then box counts")
    assert type(plan.mechanisms[1]).__name__ == "Box"
    assert plan.noise_std <= most
    assert plan.epsilon <= epsilon
    laplace = plan_topk(
        k, Budget(epsilon, delta), domain="public", method="Gumbel, then Laplace counts"
    )
    assert plan.noise_std < laplace.noise_std / 2
    assert (
        plan.mechanisms[0].epsilon >= 0.85 * laplace.mechanisms[0].epsilon or delta
    )  # not at the selections' cost
    release = plan.release(
        Histogram(None, [9000 // (i + 1) for i in range(300)]), np.random.default_rng(1)
    )
    assert len(release.intervals()) == k
    assert release.charge == plan.charge


@pytest.mark.slow
def test_box_counts_by_name_and_where_they_do_not_fit():
    assert (
        plan_topk(25, Budget(1, 1e-6), domain="public", counts="box").design
        == "one-shot draw, then counts"
    )
    assert plan_topk(25, Budget(1, 1e-6), domain="public").noise_std < 18
    assert plan_topk(25, Budget(1, 0), domain="public", sensitivity=Sensitivity(l0=2)).noise_std < 4
    assert (
        plan_topk(25, domain="public", accuracy=60, delta=0.0)
        .mechanisms[1]
        .half_width(Sensitivity(), labels=25)
        <= 60
    )
    with pytest.raises(InvalidParameter, match="counts"):
        plan_topk(5, Budget(1, 1e-6), counts="boxes")


def test_box_counts_of_private_labels_are_charged_for_any_number_of_them():
    """Fewer labels than k may be found, and box noise of fewer costs more: ε-DP covers all. None
    found cost nothing.
    """
    plan = plan_topk(5, Budget(1, 1e-6), counts="box")
    assert plan.noise_std <= 9.2
    assert PureDP(plan.mechanisms[1].epsilon) in plan.charge.costs
    for found, counts in ((5, [5000, 4000, 3000, 2000, 1000]), (2, [9000, 4000]), (0, [])):
        release = plan.release(
            Histogram(list("abcde")[: len(counts)], counts), np.random.default_rng(1)
        )
        assert len(release) == found
        assert plan.charge.includes(release.charge)
        assert (PureDP(plan.mechanisms[1].epsilon) in release.charge.costs) == (found > 0)


def test_a_plan_in_rho_says_what_it_takes_of_its_budget():
    """One pure cost ε: ε tanh(ε/2)-zCDP (docs/notes/zcdp-constants.md); its δ is a failure."""
    plan = plan_topk(2, Budget(rho=0.5, delta=1e-6), sensitivity=Sensitivity(l0=1))
    ((cost, times),) = plan.charge
    assert (type(cost), times) == (PureDP, 1)
    exact = cost.epsilon * math.tanh(cost.epsilon / 2)
    spent, total, failing = dict(plan.in_rho).values()
    assert exact <= spent <= exact * (1 + 1e-6) <= total == 0.5
    assert failing == plan.charge.delta
    assert f"In ρ: {math.ceil(spent * 1e4) / 1e4}-zCDP" in plan.explain()
    assert "failures of at most 5e-07; of the budget's ρ = 0.5 this leaves 0.000" in plan.explain()
    assert plan_topk(2, Budget(1.0, 1e-6), sensitivity=Sensitivity(l0=1)).summary_in_rho == ""


@pytest.mark.slow
def test_a_plan_in_rho_tells_the_failures_inside_of_its_costs():
    """A threshold with Gaussian noise is ρ-zCDP but for δ, a part of its cost and not of the
    charge's delta.
    """
    budget = Budget(rho=3.0, delta=1e-3)
    plan = plan_topk(
        3, budget, sensitivity=Sensitivity(l0=3), counts="gaussian", method="threshold"
    )
    account = Filter(budget)
    account.spend(plan.charge)
    failing = dict(plan.in_rho)["failure_delta"]
    assert (
        plan.charge.delta == 0 < account.summary().delta * 1e-3 < failing <= account.failure_delta
    )
    assert f"-zCDP but for failures of at most {format_upper(failing)};" in plan.summary_in_rho
    account = Filter(budget, failure_delta=failing)
    assert account.can_spend(plan.charge)
    assert not Filter(budget, failure_delta=failing * (1 - 1e-9)).can_spend(plan.charge)


@pytest.mark.parametrize("rho", [2.0, 5.0, 20.0])
@pytest.mark.parametrize("domain", ["private", "public"])
def test_a_large_budget_in_rho_is_used(rho, domain):
    """There ρ grows with ε, not with its square."""
    budget = Budget(rho=rho, delta=1e-3)
    plan = plan_topk(3, budget, sensitivity=Sensitivity(l0=1), domain=domain)
    assert Filter(budget).can_spend(plan.charge)
    spent = dict(plan.in_rho)
    assert 0.98 * rho <= spent["rho"] <= rho
