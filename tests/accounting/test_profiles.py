"""Profiles: many points from few answers, sound between them; text and lists as charges."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from dptopk import Budget, Charge, InvalidParameter, PureDP, compose
from dptopk.accounting import bounds
from dptopk.accounting.calibration import queries_affordable
from dptopk.accounting.cost_models.dominating_pairs import BracketCurve
from dptopk.accounting.curves import Answer, Query
from dptopk.accounting.gaussian.pair import gaussian_delta, gaussian_epsilon
from dptopk.accounting.profiles import MOST_NODES, profile
from dptopk.accounting.setwise.optimum import SetwiseCurve
from dptopk.costs import charge_of

MU = 0.8


def test_a_profile_lies_above_the_exact_one_and_its_lower_ends_below() -> None:
    """Of a Gaussian, known in closed form, at many more points than are composed."""
    asked = np.linspace(0.0, 5.0, 400)
    found = profile(f"GDP({MU})", epsilons=asked)
    exact = gaussian_delta(MU, epsilon=asked)
    assert len(found) == 400 > MOST_NODES
    assert (found.deltas >= exact * (1 - 1e-9)).all()
    assert (found.deltas <= exact * 1.1).all()
    known = np.isfinite(found.lower)
    assert known.mean() > 0.9
    assert (found.lower[known] <= exact[known]).all()
    assert (found.lower[known] >= 0.5 * exact[known]).all()


def test_a_chord_has_digits_where_it_ends_at_zero() -> None:
    """The profile of randomised response is a line in e^ε, so the chord has no room for roundings;
    δ is a small part of the left bound near the largest loss.
    """
    largest = Fraction(1)
    near = [1 - step * 2.0**-53 for step in range(60, 0, -1)]
    found = profile("DP(1)", epsilons=[*np.arange(300) / 300, *near, 1.0])
    for epsilon, delta in zip(found.epsilons.tolist(), found.deltas.tolist(), strict=True):
        gap = largest - Fraction(epsilon)
        if gap < Fraction(1, 10**6):
            # e(1 - e^(ε - 1))/(1 + e); of so small an exponent two terms have all digits.
            exact = float(gap - gap**2 / 2) * math.e / (1 + math.e)
            assert delta >= exact * (1 - 1e-14)


@pytest.mark.slow
def test_points_far_from_those_composed_are_about_as_close() -> None:
    """The largest loss is near: evaluations far beyond say little about the points before it."""
    text = "5*ADP(0.0444,4.2e-9) + GDP(0.126)"
    asked = np.linspace(0.0, 4.0, 25)
    found = profile(text, epsilons=asked)
    alone = compose(text, epsilon=0.0, effort="quick")
    assert alone.lower is not None
    assert alone.lower <= found.deltas[0] <= alone.delta * 1.01
    narrow = profile("2*Lap(1,1) + GDP(0.66)", deltas=[1e-300, *np.geomspace(1e-12, 0.1, 12)])
    assert math.isfinite(narrow.epsilons[0])


def test_epsilons_at_many_deltas() -> None:
    asked = np.geomspace(1e-9, 0.1, 200)
    found = profile(f"GDP({MU})", deltas=asked)
    exact = gaussian_epsilon(MU, delta=asked)
    assert (found.epsilons >= exact * (1 - 1e-9)).all()
    assert (found.epsilons <= exact * 1.05 + 0.02).all()
    known = np.isfinite(found.lower)
    assert (found.lower[known] <= exact[known]).all()


@pytest.mark.slow
def test_points_that_are_composed_are_the_answers() -> None:
    charge = Charge.parse("20*DP(0.1) + 2*GDP(0.1)")
    asked = [0.5, 0.0, 1.0]
    found = compose(charge, delta=1e-6).profile(epsilons=asked)
    answers = [compose(charge, epsilon=x, effort="quick").delta for x in asked]
    assert found.deltas.tolist() == answers
    assert found.charge == charge
    assert copy.copy(found).deltas.tolist() == answers
    table = found.to_pandas()
    assert table.columns.tolist() == ["epsilon", "delta", "lower"]


@pytest.mark.parametrize("text", ["10*BR(0.2) + GDP(0.1)", "3*DP(0.1) + 2*GDP(0.2)"])
def test_two_evaluated_questions_answer_all_others(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer is the bound of its own question: above what is attained there."""
    refined = []

    def counted(whole: Callable[[Any, Query], Answer]) -> Callable[[Any, Query], Answer]:
        def answer(curve: Any, query: Query) -> Answer:
            refined.append(query)
            return whole(curve, query)

        return answer

    monkeypatch.setattr(SetwiseCurve, "answer", counted(SetwiseCurve.answer))
    monkeypatch.setattr(BracketCurve, "answer", counted(BracketCurve.answer))
    asked = np.geomspace(1e-10, 0.05, 30)
    found = profile(text, deltas=asked)
    assert len(refined) <= 2
    for place in (0, 11, 29):
        alone = compose(text, delta=float(asked[place]), effort="quick")
        assert alone.lower is not None
        assert alone.lower <= found.epsilons[place] <= alone.epsilon * (1 + 1e-3)
        assert alone.lower * (1 - 2e-3) <= found.lower[place] <= alone.epsilon


def test_a_tradeoff_curve_lies_below_the_exact_one() -> None:
    alpha = np.linspace(0.0, 1.0, 11)
    found = profile(f"GDP({MU})", epsilons=np.linspace(0, 4, 30)).tradeoff(alpha)
    from scipy.special import ndtr, ndtri

    exact = ndtr(ndtri(1 - alpha) - MU)
    assert (found <= exact + 1e-12).all()
    assert (found >= exact - 0.02).all()


@pytest.mark.slow
def test_a_profile_is_plotted() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    found = profile("5*DP(0.1)", epsilons=[0.0, 0.2, 0.4])
    assert found.plot().get_xlabel() == "ε"
    assert found.plot(kind="tradeoff").get_ylabel() == "type II error"


@pytest.mark.parametrize(
    "given",
    [{}, {"deltas": [0.1], "epsilons": [0.1]}, {"deltas": [0.0]}, {"epsilons": [-1.0]},
     {"epsilons": [501.0]}, {"epsilons": [math.nan]}],
)  # fmt: skip
def test_what_is_no_question_is_refused(given: dict[str, list[float]]) -> None:
    with pytest.raises(InvalidParameter):
        profile("DP(0.1)", **given)


def test_text_costs_and_lists_are_charges() -> None:
    text = "5*DP(0.1)"
    charge = Charge.parse(text)
    expected = compose(charge, delta=1e-6).epsilon
    assert compose(text, delta=1e-6).epsilon == expected
    assert compose([PureDP(0.1)] * 5, delta=1e-6).epsilon == expected
    assert compose(["2*DP(0.1)", Charge({PureDP(0.1): 3})], delta=1e-6).epsilon == expected
    assert compose(PureDP(0.1), delta=1e-6).epsilon == compose("DP(0.1)", delta=1e-6).epsilon
    assert bounds.table(text, delta=1e-6).equals(bounds.table(charge, delta=1e-6))
    assert queries_affordable("DP(0.1)", Budget(1.0, 1e-6), bound="basic") == 10
    for wrong in (None, 3, {PureDP(0.1): 1}, [3]):
        with pytest.raises(InvalidParameter, match="charge must be a Charge"):
            charge_of(wrong)  # type: ignore[arg-type]


def test_a_tradeoff_curve_is_no_more_than_its_points_state() -> None:
    """At ε = 600 the least error is below e^-599, where e^-500 stood for it; and where the two
    lines cancel, rounding stays below them."""
    for text in ("2*DP(300)", "DP(1)"):
        found = profile(text, deltas=[1e-6])
        (epsilon,), (delta,) = found.epsilons.tolist(), found.deltas.tolist()
        alpha = [0.0, 5e-324, 1e-250, *np.linspace(0.01, 1.0, 99).tolist()]
        with mp.workdps(400):
            factor = mp.exp(mp.mpf(epsilon))
            left = 1 - mp.mpf(delta)
            for a, value in zip(alpha, found.tradeoff(alpha).tolist(), strict=True):
                assert value <= max(left - factor * mp.mpf(a), (left - mp.mpf(a)) / factor, 0)
        assert found.tradeoff(0.0) == pytest.approx(1 - delta)
