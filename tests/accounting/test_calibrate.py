"""Calibration ends on the safe side, close to the budget, and in few evaluations."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting import calibration
from dptopk.accounting.bounds import compose
from dptopk.accounting.calibration import calibrate, queries_affordable
from dptopk.accounting.registry import Bound
from dptopk.costs import BoundedRange, Budget, Charge, GaussianDP, PureDP
from dptopk.errors import InvalidParameter


def selection_epsilon(
    k: int, budget: Budget, beside: Charge | None = None, **options: Any
) -> float:
    """The largest ε for which k adaptive selections, and what stands beside them, stay within a
    budget.
    """
    others = beside or Charge()
    return calibrate(
        lambda epsilon: Charge.join(others, Charge({BoundedRange(epsilon): k}, adaptive=k > 1)),
        budget,
        **options,
    )


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    k=st.integers(1, 200),
    target=st.floats(0.05, 8),
    log_delta=st.floats(-30, -3),
    cost=st.sampled_from([PureDP, GaussianDP]),
)
def test_the_answer_is_within_the_budget_and_close_to_it(
    k: int, target: float, log_delta: float, cost: type
) -> None:
    budget = Budget(target, math.exp(log_delta))
    x = calibrate(lambda x: Charge({cost(x): k}), budget)
    used = compose(Charge({cost(x): k}), delta=budget.delta).epsilon
    assert target * (1 - 1.1e-3) <= used <= target


@pytest.mark.slow
@pytest.mark.parametrize(("k", "target"), [(1, 0.5), (10, 1.0), (100, 1.0), (30, 6.0)])
def test_selections(k: int, target: float) -> None:
    budget = Budget(target, 1e-6)
    epsilon = selection_epsilon(k, budget)
    used = compose(Charge({BoundedRange(epsilon): k}), delta=1e-6).epsilon
    assert target * (1 - 2e-3) <= used <= target
    more = compose(Charge({BoundedRange(epsilon * 1.01): k}), delta=1e-6)
    assert more.lower > target * 0.999


@pytest.mark.slow
def test_beside_other_costs() -> None:
    beside = Charge({GaussianDP(0.2): 1}, delta=1e-7)
    budget = Budget(1.5, 1e-6)
    epsilon = selection_epsilon(20, budget, beside=beside)
    assert epsilon < selection_epsilon(20, budget)
    assert (
        compose(Charge.join(beside, Charge({BoundedRange(epsilon): 20})), delta=1e-6).epsilon <= 1.5
    )


def test_a_pure_budget() -> None:
    assert calibrate(lambda x: Charge({PureDP(x): 4}), Budget(1.0)) == pytest.approx(0.25, rel=1e-3)
    assert calibrate(lambda x: Charge({PureDP(x): 4}), Budget(1.0)) <= 0.25


def test_few_evaluations_of_the_expensive_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(
        calibration, "compose", lambda *a, **kw: calls.append(kw["bound"]) or compose(*a, **kw)
    )
    selection_epsilon(50, Budget(1.0, 1e-6))
    assert calls.count("best") <= 6


def test_steps_in_the_charge_do_not_break_the_search() -> None:
    def charge(x: float) -> Charge:
        return Charge({PureDP(0.1): max(int(10 * x), 1)})

    x = calibrate(charge, Budget(1.0, 1e-6))
    fits = compose(charge(x), delta=1e-6).epsilon
    assert fits <= 1.0 < compose(charge(x + 0.11), delta=1e-6).epsilon


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.99, 0.9999, 1.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_beside_costs_that_take_nearly_all(
    share: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(
        calibration, "compose", lambda *a, **kw: calls.append(kw["bound"]) or compose(*a, **kw)
    )
    budget, beside = Budget(1.0, delta), Charge({PureDP(share): 1})
    if share == 1 and not delta:
        with pytest.raises(InvalidParameter, match=r"at scale \d\.?\d*e-1[23]"):
            selection_epsilon(3, budget, beside=beside)
        return
    epsilon = selection_epsilon(3, budget, beside=beside, rtol=1e-5)
    assert len(calls) <= 40
    assert epsilon >= (1 - share) / 3 * 0.85
    assert (
        compose(
            Charge.join(beside, Charge({BoundedRange(epsilon): 3})), delta=delta, rtol=1e-5
        ).epsilon
        <= 1.0
    )


def test_a_scale_far_above_one_beside_costs_that_take_nearly_all() -> None:
    x = calibrate(lambda x: Charge({PureDP(9.9): 1, PureDP(x / 1000): 1}), Budget(10.0), rtol=1e-5)
    assert 99.8 < x <= 100


def test_what_is_no_budget_charge_or_count_is_refused() -> None:
    query, budget = Charge({BoundedRange(0.1): 1}), Budget(1.0, 1e-6)
    with pytest.raises(InvalidParameter, match="budget"):
        calibrate(lambda x: Charge({PureDP(x): 1}), (1.0, 1e-6))  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="budget"):
        queries_affordable(query, (1.0, 1e-6))  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="charge"):
        queries_affordable(0.1, budget)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="query"):
        queries_affordable(Charge(), budget)
    with pytest.raises(InvalidParameter, match="most"):
        queries_affordable(query, budget, most=0)


@pytest.mark.slow
def test_a_budget_that_nothing_meets() -> None:
    with pytest.raises(InvalidParameter, match="too small"):
        calibrate(lambda x: Charge({PureDP(x): 1, PureDP(1.0): 3}), Budget(0.5))


class TestQueriesAffordable:
    @pytest.mark.slow
    @pytest.mark.parametrize("bound", ["best", "opt_kl", "mgf", "setwise_zcdp", "basic", "renyi"])
    def test_one_more_is_too_many(self, bound: str) -> None:
        query, budget = Charge({BoundedRange(0.1): 5}, delta=1e-9, adaptive=True), Budget(1.5, 1e-6)
        n = queries_affordable(query, budget, bound=bound)
        assert n >= 1
        assert compose(query.times(n), delta=1e-6, bound=bound).epsilon <= 1.5
        assert compose(query.times(n + 1), delta=1e-6, bound=bound).epsilon > 1.5

    @pytest.mark.slow
    def test_the_optimum_affords_more_than_the_other_bounds(self) -> None:
        query, budget = Charge({BoundedRange(0.1): 1}), Budget(2.0, 1e-6)
        counts = [
            queries_affordable(query, budget, bound=b)
            for b in ("opt_kl", "setwise_zcdp", "mgf", "renyi", "best")
        ]
        assert counts[0] <= counts[2] < counts[3] < counts[4]
        assert counts[1] < counts[3]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("query", "epsilon", "accurate"),
        [
            ("BR(0.1)", 1.0, 0),
            ("BR(0.1) + BR(0.05)", 1.0, 0),
            pytest.param("2*BR(0.1) + 3*BR(0.0731)", 2.0, 0, marks=pytest.mark.study),
            ("3*BR(0.05) + 2*DP(0.03)", 3.0, 3),
            ("GDP(0.1)", 9.0, 3),
        ],
    )
    def test_few_upper_bounds(
        self, query: str, epsilon: float, accurate: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A rough bracket says on which side of a budget few queries are; else three accurate
        bounds do.
        """
        asked: list[tuple[str, float]] = []
        monkeypatch.setattr(
            calibration,
            "compose",
            lambda *a, **kw: asked.append((kw["bound"], kw["rtol"])) or compose(*a, **kw),
        )
        one, budget = Charge.parse(query), Budget(epsilon, 1e-6)
        n = queries_affordable(one, budget)
        best = [rtol for bound, rtol in asked if bound == "best"]
        assert len(best) <= 5
        assert sum(rtol < calibration.COARSE_RTOL for rtol in best) <= accurate
        assert len(asked) <= 14
        if accurate == 1 and len(one.costs) > 1:  # accurate bounds of these take seconds
            return
        assert (
            compose(one.times(n), delta=1e-6).epsilon
            <= epsilon
            < compose(one.times(n + 1), delta=1e-6).epsilon
        )

    def test_a_rough_bracket_around_the_budget_settles_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rough answers of 3%, accurate ones of n/100: only the latter decide within the former."""
        asked: list[tuple[int, bool]] = []

        def answer(charge: Charge, *, lower: bool, **options: Any) -> Bound:
            value = charge.count / 100
            asked.append((charge.count, lower))
            wide = 1.03 if lower or options["bound"] != "best" else 1.0
            return Bound(value * wide, 1e-6, value * 0.97 if lower else None, "", "", ())

        monkeypatch.setattr(calibration, "compose", answer)
        for epsilon in (0.1, 0.5, 1.0, 5.005, 40.0):
            asked.clear()
            assert queries_affordable(Charge({BoundedRange(0.1): 1}), Budget(epsilon, 1e-6)) == int(
                epsilon * 100 + 1e-9
            )
            assert len(asked) < 40

    def test_poor_guesses_only_take_longer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one, budget = Charge.parse("DP(0.1)"), Budget(1.0, 1e-6)
        n = queries_affordable(one, budget)
        for mu in (
            lambda epsilon, delta: 1.0,
            lambda epsilon, delta: 1 / epsilon,
            lambda epsilon, delta: epsilon**9,
        ):
            monkeypatch.setattr(calibration, "gaussian_mu", mu)
            assert queries_affordable(one, budget, most=2000) == n

    def test_limits(self) -> None:
        assert queries_affordable(Charge({BoundedRange(3.0): 1}), Budget(1.0, 1e-6)) == 0
        assert (
            queries_affordable(
                Charge({BoundedRange(1e-6): 1}), Budget(1.0, 1e-6), bound="basic", most=1000
            )
            == 1000
        )
        assert queries_affordable(Charge({}, delta=1e-7), Budget(1.0, 1e-6), bound="best") == 10
        with pytest.raises(InvalidParameter, match="empty"):
            queries_affordable(Charge(), Budget(1.0, 1e-6))
        with pytest.raises(InvalidParameter, match="bound"):
            queries_affordable(Charge({PureDP(1.0): 1}), Budget(1.0, 1e-6), bound="nonsense")
