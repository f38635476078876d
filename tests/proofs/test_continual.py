"""ContinualTopK: the law of all days' measurements, exactly, against its charge; what a private
label gives away.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

from dptopk import Budget, Charge, Histogram, InvalidParameter, Sensitivity, compose, plan_continual
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.costs import GaussianDP
from dptopk.mechanisms import ContinualTopK
from dptopk.mechanisms.samplers import factorisation
from dptopk.mechanisms.samplers.factorisation import FACTORISATIONS, Factorisation, factorise
from dptopk.mechanisms.samplers.optimal_factorisation import MOST_DAYS_OF_SEVERAL, is_computable
from dptopk.mechanisms.samplers.participation import Participation

SIGMA, REACH = 1.3, 11
EPSILONS = (0.0, 0.3, 0.8, 1.5, 3.0)


def law(shift: int, scale: float, reach: int) -> np.ndarray:
    """Discrete Gaussian moved by an integer, on -reach .. reach."""
    n = np.arange(-reach, reach + 1.0)
    whole = np.exp(-(np.arange(-10 * reach, 10 * reach + 1.0) ** 2) / (2 * scale**2)).sum()
    return np.exp(-((n - shift) ** 2) / (2 * scale**2)) / whole


def hockey_stick(shifts: list[int], scale: float, reach: int, epsilon: float) -> float:
    """δ at ε of independent discrete Gaussians against the same ones moved, from below: the points
    listed.
    """
    p = q = np.ones(1)
    for shift in shifts:
        p = np.outer(p, law(0, scale, reach)).ravel()
        q = np.outer(q, law(shift, scale, reach)).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def small(kind: str, days: int, unit: int = 1) -> Factorisation:
    """A factorisation with weights small enough to enumerate."""
    if kind == "square_root":
        strategy = np.array([[2, 0, 0], [1, 2, 0], [1, 1, 2]])[:days, :days]
        return Factorisation(strategy, np.tri(days) @ np.linalg.inv(strategy), 2)
    strategy = FACTORISATIONS[kind](one_day(days), "max").astype(np.int64)
    totals = factorisation._tree_totals(days) if kind == "tree" else np.tri(days)
    return Factorisation(strategy * unit, totals / unit, unit)


def one_day(days: int) -> Participation:
    return Participation.of(days, 1, 1)


@pytest.mark.parametrize(
    ("kind", "days"), [("tree", 3), ("tree", 4), ("daily", 3), ("square_root", 3)]
)
@pytest.mark.parametrize("linf", [1, 2])
def test_no_day_and_no_contribution_costs_more_than_is_charged(kind, days, linf, monkeypatch):
    plan = small(kind, days)
    monkeypatch.setattr(ContinualTopK, "measurements", plan)
    mechanism, sensitivity = (
        ContinualTopK(k=1, days=days, sigma=SIGMA, factorisation=kind),
        Sensitivity(linf=linf, l0=1),
    )
    scale = linf * SIGMA * plan.unit
    reach = REACH * linf * plan.unit
    charged = {
        epsilon: compose(mechanism.charge(sensitivity), epsilon=epsilon).delta
        for epsilon in EPSILONS
    }
    worst = dict.fromkeys(EPSILONS, 0.0)
    for day, moved in itertools.product(range(days), range(1, linf + 1)):
        shifts = [moved * weight for weight in plan.strategy[:, day].tolist() if weight]
        for epsilon in EPSILONS:
            found = hockey_stick(shifts, scale, reach, epsilon)
            assert found <= charged[epsilon] * (1 + 1e-9)
            worst[epsilon] = max(worst[epsilon], found)
    assert all(
        worst[epsilon] > 0.8 * charged[epsilon] for epsilon in (0.0, 0.3, 0.8)
    )  # and not much less


@pytest.mark.parametrize("kind", ["tree", "square_root"])
def test_a_charge_without_one_measurement_is_too_small(kind, monkeypatch):
    plan = small(kind, 3)
    monkeypatch.setattr(ContinualTopK, "measurements", plan)
    mechanism = ContinualTopK(k=1, days=3, sigma=SIGMA, factorisation=kind)
    found = hockey_stick(plan.strategy[:, 0].tolist(), SIGMA * plan.unit, REACH * plan.unit, 0.8)
    assert found <= compose(mechanism.charge(Sensitivity(l0=1)), epsilon=0.8).delta * (1 + 1e-9)
    lost = Factorisation(plan.strategy[1:, :1], plan.totals, plan.unit)
    monkeypatch.setattr(ContinualTopK, "measurements", lost)
    assert compose(mechanism.charge(Sensitivity(l0=1)), epsilon=0.8).delta < found


def test_discrete_noise_at_the_mu_of_normal_noise_would_be_charged_too_little():
    """The mutant: shift / scale instead of the μ' that dominates; small scales show it."""
    plan, sigma = small("daily", 2), 0.6
    found = hockey_stick([1], sigma, 12, 0.0)
    assert compose(Charge({GaussianDP(1 / sigma): 1}), epsilon=0.0).delta < found
    assert found <= compose(Charge({GaussianDP(dominating_mu(sigma)): 1}), epsilon=0.0).delta
    assert plan.energy(one_day(2)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*FACTORISATIONS])
@pytest.mark.parametrize("days", [1, 2, 3, 7, 8, 30, 100])
def test_totals_of_what_was_measured_are_running_sums(kind, days):
    plan = factorise(kind, one_day(days))
    np.testing.assert_allclose(plan.totals @ plan.strategy, np.tri(days), atol=1e-12)
    late = plan.measured_on[None, :] > np.arange(days)[:, None]
    assert not plan.totals[late].any()  # no day looks ahead
    assert plan.energy(one_day(days)) == (plan.strategy**2).sum(axis=0).max() <= plan.unit**2


@pytest.mark.parametrize("kind", [*FACTORISATIONS])
@pytest.mark.parametrize("days", [2, 3])
def test_a_label_of_one_user_day_is_shown_with_a_probability_of_at_most_delta(
    kind, days, monkeypatch
):
    """Exactly: the noise of all measurements is enumerated; a threshold of one noise scale is seen
    to be too low.
    """
    plan, delta, sigma, sensitivity = small(kind, days, 4), 0.02, 0.6, Sensitivity(l0=1)
    monkeypatch.setattr(ContinualTopK, "measurements", plan)
    mechanism = ContinualTopK(k=1, days=days, sigma=sigma, delta=delta, factorisation=kind)
    reach = math.ceil(5 * sigma * plan.unit)
    noise = np.array(list(itertools.product(range(-reach, reach + 1), repeat=len(plan.strategy))))
    masses = np.prod(law(0, sigma * plan.unit, reach)[noise + reach], axis=1)

    def shown(first: int, thresholds: np.ndarray) -> float:
        totals = (noise + plan.strategy[:, first]) @ plan.totals.T
        return float(masses[(totals > thresholds)[:, first:].any(axis=1)].sum())

    thresholds = np.array([mechanism.threshold(sensitivity, day + 1) for day in range(days)])
    assert 0 < max(shown(first, thresholds) for first in range(days)) <= delta
    assert max(shown(first, 1 + plan.spread * sigma) for first in range(days)) > delta


def test_a_label_gets_noise_for_the_days_before_it_came():
    """The law of its measurements does not tell on which day it was first seen."""
    mechanism, sensitivity = ContinualTopK(k=1, days=4, sigma=50.0, delta=1e-3), Sensitivity(l0=1)
    rng = np.random.default_rng(0)
    early = []
    for _ in range(400):
        stream = mechanism.stream(sensitivity, rng=rng)
        stream.release(Histogram({"old": 1}, sensitivity=sensitivity))
        stream.release(Histogram({"old": 1, "new": 1}, sensitivity=sensitivity))
        early.append(stream.to_dict()["measured"][0])  # the first day's measurement of both
    spread = np.std(early, axis=0)
    assert (np.abs(spread / (50.0 * mechanism.measurements.unit) - 1) < 0.2).all()


def patterns(days: int, most: int, apart: int):
    """Every set of at most so many days, at least so far apart."""
    for count in range(1, most + 1):
        for chosen in itertools.combinations(range(days), count):
            if all(later - earlier >= apart for earlier, later in itertools.pairwise(chosen)):
                yield list(chosen)


def worst_energy(strategy: np.ndarray, most: int, apart: int) -> int:
    return max(
        int((strategy[:, days].sum(axis=1) ** 2).sum())
        for days in patterns(strategy.shape[1], most, apart)
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*FACTORISATIONS])
@pytest.mark.parametrize("days", [4, 7, 9])
def test_no_days_of_a_user_move_more_than_is_charged(kind, days):
    """All patterns of days, listed, of factorisations made for them and for one day: attained but
    for the tree.
    """
    for most, apart in [(2, 1), (3, 1), (days, 1), (2, 2), (3, 2), (3, 3)]:
        user = Participation.of(days, most, apart)
        for plan in (
            factorise(kind, one_day(days)),
            factorise(kind, user),
            factorise(kind, user, "mean"),
        ):
            listed, charged = worst_energy(plan.strategy, most, apart), plan.energy(user)
            assert listed <= charged <= (1.25 if kind == "tree" else 1.01) * listed
        first = int((plan.strategy[:, user.earliest_days[:-1]].sum(axis=1) ** 2).sum())
        assert first < listed  # the mutant: one day less


def test_falling_inner_products_alone_do_not_make_the_first_days_the_worst():
    """Columns e1, e1, e2, e3, e3 and a heavier third day: the pattern 1, 2, ... of G itself is too
    small.
    """
    plan = Factorisation(np.array([[1, 0, 0, 0], [0, 2, 1, 0], [0, 0, 1, 2]]), np.eye(4)[:, :3], 1)
    gram = plan.strategy.T @ plan.strategy
    assert (
        gram[:2, :2].sum()
        < worst_energy(plan.strategy, 2, 1)
        <= plan.energy(Participation.of(4, 2, 1))
    )


@pytest.mark.slow
@pytest.mark.parametrize("days", [30, 365])
@pytest.mark.parametrize(("most", "apart"), [(4, 7), (12, 30), (5, 1)])
def test_the_first_days_are_the_worst_of_what_is_planned(days, most, apart):
    """The charge is attained, up to rounding, so that no factorisation is charged for more than it
    costs.
    """
    user = Participation.of(days, most, apart)
    for kind in ["square_root", "daily"] + ["optimal"] * is_computable(user):
        strategy = factorise(kind, user).strategy
        first = int((strategy[:, user.earliest_days].sum(axis=1) ** 2).sum())
        assert 0.98 * user.energy(strategy) <= first <= user.energy(strategy)


def reacting(
    plan: Factorisation, most: int, apart: int, scale: float, reach: int, epsilon: float
) -> float:
    """δ at ε, from below, of the worst user of one label, who decides each day by all answers so
    far whether to come.

    Of noise x about the numerator's mean a row that moves by d adds (d² + 2dx) / (2 scale²) to the
    loss, in either direction: one integer says all that matters of the answers so far.
    """
    noise = law(0, scale, reach).tolist()

    @functools.cache
    def value(day: int, active: tuple[int, ...], loss: int) -> float:
        if day == plan.strategy.shape[1]:
            return max(0.0, 1 - math.exp(epsilon - loss / (2 * scale**2)))
        free = len(active) < most and (not active or day - active[-1] >= apart)
        rows = tuple(np.flatnonzero(plan.measured_on == day).tolist())
        return max(drawn(day, chosen, loss, rows) for chosen in [active] + [(*active, day)] * free)

    @functools.cache
    def drawn(day: int, active: tuple[int, ...], loss: int, rows: tuple[int, ...]) -> float:
        if not rows:
            return value(day + 1, active, loss)
        shift = int(plan.strategy[rows[0], list(active)].sum())
        if not shift:
            return drawn(day, active, loss, rows[1:])
        return sum(
            mass * drawn(day, active, loss + shift**2 + 2 * shift * x, rows[1:])
            for x, mass in zip(range(-reach, reach + 1), noise, strict=True)
        )

    return value(0, (), 0)


@pytest.mark.parametrize(("kind", "days"), [("tree", 4), ("daily", 3), ("square_root", 3)])
@pytest.mark.parametrize(("most", "apart"), [(2, 2), (4, 1)])
def test_no_user_of_several_days_costs_more_than_is_charged_reacting_or_not(
    kind, days, most, apart, monkeypatch
):
    plan, sigma = small(kind, days), 1.5
    monkeypatch.setattr(ContinualTopK, "measurements", plan)
    mechanism = ContinualTopK(k=1, days=days, sigma=sigma, factorisation=kind)
    once = mechanism.charge(Sensitivity(l0=1))
    charge = mechanism.charge(Sensitivity(l0=1), days_per_user=most, days_apart=apart)
    active = len(range(0, days, apart)[:most])
    found = {
        e: reacting(plan, most, apart, sigma * plan.unit, math.ceil(5 * sigma * plan.unit), e)
        for e in (0.5, 1.5)
    }
    for epsilon, delta in found.items():
        assert delta <= compose(charge, epsilon=epsilon).delta
    several = found[1.5] > compose(once.times(active), epsilon=1.5).delta
    assert several == (kind != "daily")  # the mutant: n days at n times the charge of one


@pytest.mark.parametrize("kind", [*FACTORISATIONS])
def test_one_day_of_a_user_costs_what_a_user_day_costs(kind):
    mechanism = ContinualTopK(k=1, days=5, sigma=2.0, delta=1e-6, factorisation=kind)
    one = mechanism.charge(Sensitivity(l0=2))
    assert mechanism.charge(Sensitivity(l0=2), days_per_user=7, days_apart=5) == one  # one day fits
    assert (
        mechanism.charge(Sensitivity(l0=2), days_per_user=2).delta > one.delta
    )  # thresholds: more labels, and larger
    public = ContinualTopK(k=1, days=5, sigma=2.0, factorisation=kind)
    assert public.charge(Sensitivity(l0=2), days_per_user=7, days_apart=5) == public.charge(
        Sensitivity(l0=2)
    )
    assert public.charge(Sensitivity(l0=2), days_per_user=10**30) == public.charge(
        Sensitivity(l0=2), days_per_user=5
    )


def test_several_labels_of_a_user_cost_at_most_their_number_times_one():
    """Labels of one day or of several: every split of what a user adds, listed, against l0 times
    the worst of one.
    """
    plan, l0 = small("tree", 4), 2
    worst = max(
        sum(
            int((plan.strategy[:, [d for d in range(4) if label in day[d]]].sum(axis=1) ** 2).sum())
            for label in range(3)
        )
        for day in itertools.product([(), (0,), (0, 1), (1, 2), (2,)], repeat=4)
    )
    assert (
        worst
        == l0 * worst_energy(plan.strategy, 4, 1)
        <= l0 * plan.energy(Participation.of(4, 4, 1))
    )


def test_the_published_patterns_of_thirty_days(monkeypatch):
    """Certified lower ends of the exact products of fixed days: 1.94, 9.54 and 25.4 at a user-day's
    ε of 1.
    """
    one = Sensitivity(l0=1)
    root = np.cumprod([1.0] + [(2 * n - 1) / (2 * n) for n in range(1, 30)])
    lag = np.subtract.outer(np.arange(30), np.arange(30))
    strategy = np.where(lag >= 0, np.rint(32 * root)[np.maximum(lag, 0)], 0).astype(np.int64)
    monkeypatch.setattr(ContinualTopK, "measurements", Factorisation(strategy, np.eye(30), 32))
    mechanism = plan_continual(
        1, 30, Budget(1, 1e-6), sensitivity=one, labels=9, factorisation="square_root"
    )
    for days, exact, n_times in [(2, 1.94, 1.46), (10, 9.54, 3.53), (30, 25.4, 6.59)]:
        epsilon = compose(mechanism.charge(one, days_per_user=days), delta=1e-6).epsilon
        assert exact < epsilon < 1.005 * exact
        assert n_times < exact


@pytest.mark.parametrize(
    "kind", [pytest.param("tree", marks=pytest.mark.slow), "square_root", "daily"]
)
def test_labels_that_only_the_days_of_one_user_have_stay_hidden(kind, monkeypatch):
    """Exactly, as above: any days of the user, with thresholds for one day and for all days."""
    days, sigma, sensitivity = 3, 0.6, Sensitivity(l0=1)
    plan = small(kind, days, 4)
    monkeypatch.setattr(ContinualTopK, "measurements", plan)
    reach = math.ceil(5 * sigma * plan.unit)
    noise = np.array(list(itertools.product(range(-reach, reach + 1), repeat=len(plan.strategy))))
    masses = np.prod(law(0, sigma * plan.unit, reach)[noise + reach], axis=1)
    for own in (1, 2, 3):
        mechanism = ContinualTopK(
            k=1, days=days, sigma=sigma, delta=0.02, factorisation=kind, days_per_user=own
        )
        thresholds = np.array([mechanism.threshold(sensitivity, day + 1) for day in range(days)])
        for most in (2, 3):
            shown = 0.0
            for active in patterns(days, most, 1):
                totals = (noise + plan.strategy[:, active].sum(axis=1)) @ plan.totals.T
                shown = max(
                    shown, float(masses[(totals > thresholds)[:, active[0] :].any(axis=1)].sum())
                )
            try:
                charged = mechanism.charge(sensitivity, days_per_user=most).delta
            except InvalidParameter:  # thresholds for too few days promise nothing
                charged = float(own < most)
            assert 0 < shown <= charged


@pytest.mark.parametrize("labels", [50, None])
def test_a_plan_for_several_days_of_a_user_stays_within_its_budget(labels):
    one, budget = Sensitivity(l0=1), Budget(2, 1e-6)
    mechanism = plan_continual(
        3, 12, budget, sensitivity=one, labels=labels, days_per_user=4, days_apart=2
    )
    charge = mechanism.charge(one, labels=labels)
    assert charge == mechanism.charge(one, labels=labels, days_per_user=4, days_apart=2)
    assert 1.98 < compose(charge, delta=budget.delta).epsilon <= 2
    assert mechanism.noise_std(one) > plan_continual(
        3, 12, budget, sensitivity=one, labels=labels
    ).noise_std(one)
    assert (
        mechanism.stream(one, labels=None if labels is None else list(range(labels))).charge
        == charge
    )


ERRORS = [(30, 1.90), (365, 2.72)]  # of the largest standard deviation at μ = 1


@pytest.mark.slow
@pytest.mark.parametrize(("days", "wanted"), ERRORS)
def test_the_noise_is_near_the_optimum(days, wanted):
    """The nuclear norm of D_p^½ A D_v^½, p and v laws of days, is a lower bound on every
    factorisation's error.
    """
    plan, user = factorise("optimal", one_day(days)), one_day(days)
    assert plan.error(user, "max") < wanted
    gram = plan.strategy.T @ plan.strategy / plan.unit**2
    rows = columns = np.ones(days) / days
    for _ in range(60 if days < 100 else 1):
        left, singular, right = np.linalg.svd(
            np.sqrt(rows)[:, None] * np.tri(days) * np.sqrt(columns)
        )
        rows, columns = left**2 @ singular / singular.sum(), right.T**2 @ singular / singular.sum()
    assert np.allclose(gram.diagonal(), 1, atol=5e-3)
    assert (
        singular.sum()
        <= plan.error(user, "max")
        <= (1.003 if days <= 100 else 1.2) * singular.sum()
    )


@pytest.mark.parametrize("error", ["max", "mean"])
def test_a_user_of_several_days_is_protected_with_less_noise_than_by_other_factorisations(error):
    user = Participation.of(30, 4, 7)
    found = {kind: factorise(kind, user, error).error(user, error) for kind in FACTORISATIONS}
    assert found["optimal"] < found["square_root"] < found["daily"] < found["tree"]
    assert found["optimal"] < factorise("square_root", one_day(30), error).error(user, error) / 1.1


def test_a_user_of_all_days_is_charged_for_all_and_measured_by_the_day():
    """A user of all days moves the last total by their number, and the days one by one have as much
    noise.
    """
    mechanism = plan_continual(
        1, 12, Budget(1, 1e-6), sensitivity=Sensitivity(l0=1), labels=5, days_per_user=None
    )
    plan, user = mechanism.measurements, Participation.of(12, None, 1)
    assert mechanism.participation == user == Participation.of(12, 12, 1)
    assert plan.error(user, "max") == pytest.approx(12, rel=0.01)
    assert mechanism.charge(Sensitivity(l0=1)) == mechanism.charge(
        Sensitivity(l0=1), days_per_user=12
    )
    assert Participation.of(12, 5, 12) == Participation.of(12, 1, 99) == one_day(12)


def test_the_optimum_is_that_of_a_convex_program():
    """Cvxpy's, of its own statement: every pattern of days is a constraint."""
    import cvxpy as cp

    days, most, apart = 7, 3, 2
    gram, sums = cp.Variable((days, days), symmetric=True), np.tri(days)
    noise = cp.Variable((days, days), symmetric=True)
    constraints = [cp.bmat([[noise, sums], [sums.T, gram]]) >> 0]
    constraints += [
        cp.sum(gram[np.ix_(chosen, chosen)]) <= 1 for chosen in patterns(days, most, apart)
    ]
    best = (
        cp.Problem(cp.Minimize(cp.max(cp.diag(noise))), constraints).solve(solver="CLARABEL") ** 0.5
    )
    user = Participation.of(days, most, apart)
    assert 0.999 * best <= factorise("optimal", user).error(user, "max") <= 1.03 * best


@pytest.mark.slow
def test_a_factorisation_is_the_same_every_time():
    for user in (one_day(40), Participation.of(12, 3, 2)):
        once, again = (factorise.__wrapped__("optimal", user, "mean") for _ in range(2))
        assert (once.strategy == again.strategy).all()
        assert (once.totals == again.totals).all()


@pytest.mark.slow
def test_units_grow_with_the_days():
    """Rounding costs nothing: 4,000 days once were 22% above the square root that is not
    rounded.
    """
    for days in (30, 1200):
        user = one_day(days)
        real = FACTORISATIONS["square_root"](user, "max")
        squares = (np.linalg.solve(real.T, np.tri(days).T) ** 2).sum(axis=0)
        plan = factorise("square_root", user)
        assert plan.error(user, "max") == pytest.approx(squares.max() ** 0.5, rel=1e-3)
        assert plan.unit >= 32 * days


def test_more_days_than_the_optimum_is_found_for_are_refused_by_name():
    with pytest.raises(InvalidParameter, match="factorisation='optimal'"):
        factorise("optimal", Participation.of(MOST_DAYS_OF_SEVERAL + 1, 2, 1))
    with pytest.raises(InvalidParameter, match="days_per_user"):
        ContinualTopK(k=1, days=3, sigma=1.0, days_per_user=0)
    with pytest.raises(InvalidParameter, match="error"):
        ContinualTopK(k=1, days=3, sigma=1.0, error="least")


@pytest.mark.parametrize(("own", "apart"), [(1, 1), (5, 1), (3, 2)])
def test_thresholds_are_those_of_the_noise_itself(own, apart):
    """The first day's total is one discrete Gaussian, summed exactly; on all days z is that of the
    normal tail.
    """
    days, delta, l0 = 5, 1e-6, 2
    mechanism = ContinualTopK(
        k=1, days=days, sigma=4e4, delta=delta, days_per_user=own, days_apart=apart
    )
    sensitivity, plan = Sensitivity(l0=l0), mechanism.measurements
    scale, weight = mechanism.sigma * plan.unit, int(plan.strategy[0, 0])
    shown = factorisation_tail((mechanism.threshold(sensitivity, 1) - 1) * weight, scale)
    assert 0.99 * delta / (l0 * days) < shown <= delta / (l0 * days)
    chernoff = math.sqrt(2 * math.log(l0 * mechanism.participation.most * days / delta))
    for day in range(1, days + 1):
        assert mechanism.threshold(sensitivity, day) < 0.945 * chernoff * mechanism.noise_std(
            sensitivity, day
        )


def factorisation_tail(above: int, scale: float) -> float:
    """P[N > above], N discrete Gaussian: by the midpoint rule, which is exact beyond all digits at
    a large scale.
    """
    return math.erfc((above + 0.5) / (scale * math.sqrt(2))) / 2


def test_noise_of_a_total_is_next_to_normal_noise():
    """Both quantiles, listed: no farther apart than is said, at small and larger scales."""
    from scipy.special import ndtri

    for sigma in (0.02, 0.5, 3.0):
        mechanism = ContinualTopK(k=1, days=1, sigma=sigma, factorisation="daily")
        scale = sigma * mechanism.measurements.unit
        reach = math.ceil(7 * scale)
        ends = ndtri(np.cumsum(law(0, scale, reach)))[:-1] * scale  # c_k, k = -reach .. reach - 1
        at = np.arange(-reach, reach)
        good = np.abs(at) < 6 * scale
        farthest = max(np.abs(ends - at)[good].max(), np.abs(ends - at - 1)[good].max())
        off = mechanism.total_noise(Sensitivity(l0=1)).distances[0] * mechanism.measurements.unit
        assert 0.5 <= farthest <= off
