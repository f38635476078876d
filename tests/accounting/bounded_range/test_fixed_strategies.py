"""The search for ε(δ) must end on the safe side even when the guessed strategy, or its slope,
misleads.
"""

import math

import pytest

from dptopk.accounting.bounded_range.fixed_strategies import LogDeltaPoint, OptimumCurve
from dptopk.accounting.curves import Query


class Toy(OptimumCurve):
    """ln δ(x) = -x²/2 - 0.1 up to ε = 40; the guess is too small by ``miss`` and has a slope wrong
    by ``bend``.
    """

    def __init__(self, miss=0.0, bend=1.0, error=0.0, first=1.0, value=None):
        checks = []

        def everywhere(x):
            checks.append(x)
            return value or LogDeltaPoint(-(x**2) / 2 - 0.1, error, -x)

        def nearby(x):
            return LogDeltaPoint(-(x**2) / 2 - 0.1 - miss, error, -x * bend)

        super().__init__(40.0, everywhere, nearby, lambda _: first)
        object.__setattr__(self, "checks", checks)


@pytest.mark.parametrize(
    "options", [{}, {"miss": 0.3}, {"bend": 0.2}, {"bend": 30.0}, {"error": 1e-6}, {"first": 39.0}]
)
@pytest.mark.parametrize("delta", [0.5, 1e-6, 1e-300])
def test_inverse_is_safe_and_tight(options, delta):
    curve = Toy(**options)
    exact = math.sqrt(-2 * (math.log(delta) + 0.1))
    answer = curve.answer(Query(delta=delta))
    assert (
        exact * (1 - 1e-13)
        <= answer.value
        <= exact * (1 + (1e-4 if options.get("error") else 1e-8))
    )
    assert answer.lower <= exact
    assert answer.lower >= answer.value * (1 - 2e-3)


def test_a_good_guess_costs_one_check_of_all_strategies():
    curve = Toy()
    curve.epsilon(1e-6)
    assert len(curve.checks) <= 2


def test_delta_is_met_already_at_zero():
    for first in (0.0, 1.0):
        assert float(Toy(first=first).epsilon(0.95)) == 0.0
        assert Toy(first=first).answer(Query(delta=0.95)).lower == 0.0


def test_ends_of_the_range():
    curve = Toy()
    assert float(curve.epsilon(0.0)) == 40.0
    assert curve.answer(Query(delta=0.0)).lower == pytest.approx(40.0, rel=1e-10)
    assert curve.answer(Query(epsilon=40.0)).value == 0.0
    assert curve.delta([39.9, 40.0, 41.0]).tolist() == [curve.delta(39.9), 0.0, 0.0]
    assert 0 < curve.delta(39.9) < 1e-300  # underflows to the smallest float, not to 0


def test_query_at_epsilon_has_both_ends():
    answer = Toy(error=1e-9).answer(Query(epsilon=1.0))
    exact = math.exp(-0.6)
    assert exact * (1 - 3e-9) < answer.lower < exact < answer.value < exact * (1 + 3e-9)


def test_nan_counts_as_certain_failure():
    broken = Toy(value=LogDeltaPoint(math.nan, math.nan, math.nan))
    assert float(broken.delta(1.0)) == 1.0
    assert float(broken.epsilon(1e-6)) == 40.0


def test_a_value_of_zero_is_zero():
    assert float(Toy(value=LogDeltaPoint(-math.inf)).delta(1.0)) == 0.0
