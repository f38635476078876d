"""Counted work: more of it never gives a worse end, and a question has one answer, whatever clocks
and caches say.
"""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

import numpy as np
import pytest

from dptopk import (
    Accountant,
    BoundedRange,
    Budget,
    Charge,
    InvalidParameter,
    PureDP,
    calibrate,
    compose,
)
from dptopk.accounting import bounds, work as module
from dptopk.accounting.bounds import _answer, table
from dptopk.accounting.calibration import queries_affordable
from dptopk.accounting.composition_query import CompositionQuery
from dptopk.accounting.setwise import cost_groups, price_rounding, recursion
from dptopk.accounting.work import STAGES, OutOfTime, Work, late, raise_if_late, within

SMALLER = dict(zip(STAGES, (0.01, 0.05, 0.25), strict=True))
BUDGETS = (SMALLER["quick"], 0.02, SMALLER["normal"], 0.12, SMALLER["thorough"])
KINDS = (
    "BR({:.3g})",
    "DP({:.3g})",
    "GDP({:.3g})",
    "BR({:.3g})",
    "ZCDP({:.3g})",
    "DGauss({:.0f}, 1)",
)


def charges(count: int, seed: int = 7) -> list[str]:
    """Random charges of one to four types of costs."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        terms = []
        for kind in rng.choice(KINDS, size=rng.integers(1, 5)):
            size = 10 ** rng.uniform(-1.7, -0.6)
            size = (
                rng.uniform(6, 20) if "DGauss" in kind else size**2 / 8 if "ZCDP" in kind else size
            )
            terms.append(f"{rng.integers(1, 40)}*" + kind.format(size))
        found.append(" + ".join(terms))
    return found


def forget() -> None:
    """Empty every cache of the engine."""
    for cache in (
        recursion.ladder,
        cost_groups.equal_ranges_pair,
        cost_groups.mixed_ranges_pair,
        price_rounding.weighted_ranges_pair,
    ):
        cache.cache_clear()
    price_rounding.tuned_levels.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("charge", charges(10))
@pytest.mark.parametrize(
    "asked",
    [{"delta": 1e-6}, pytest.param({"epsilon": 0.8}, marks=pytest.mark.study)],
    ids=str,
)
def test_more_work_never_gives_a_worse_end(
    charge: str, asked: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At three efforts and two budgets between, all of them smaller, so that most are used up."""
    monkeypatch.setattr(module, "STAGES", SMALLER)
    before, least = math.inf, 0.0
    for budget in BUDGETS:
        question = CompositionQuery(
            Charge.parse(charge),
            asked.get("delta"),
            asked.get("epsilon"),
            "setwise",
            1e-3,
            Work(budget),
        )
        found = _answer(question, "best")
        value = question.value(found)
        assert value <= before
        assert (found.lower or 0.0) >= least
        before, least = value, found.lower or 0.0


ANSWER = (
    "import json, sys; from dptopk import Charge, compose; b = "
    "compose(Charge.parse(sys.argv[1]), delta=1e-6)"
)
MIX = "20*BR(0.1) + 9*BR(0.07) + 2*GDP(0.2) + 3*DP(0.05)"


@lru_cache(maxsize=1)
def fresh() -> list[float]:
    """The answer of a process of its own."""
    command = [sys.executable, "-c", ANSWER + "; print(json.dumps([b.epsilon, b.lower]))", MIX]
    found: list[float] = json.loads(
        subprocess.run(command, capture_output=True, check=True, text=True).stdout
    )
    return found


def ends() -> list[float | None]:
    found = compose(Charge.parse(MIX), delta=1e-6)
    return [found.epsilon, found.lower]


@pytest.mark.slow
def test_the_answer_of_a_fresh_process_before_and_after_others() -> None:
    forget()
    assert ends() == fresh()
    for other in charges(3, seed=11):
        compose(Charge.parse(other), delta=1e-6, effort="quick")
    compose(Charge.parse(MIX), delta=1e-6, effort="quick")
    compose(Charge.parse(MIX), delta=1e-6, rtol=1e-2, lower=False)
    assert ends() == fresh()
    assert ends() == fresh()


@pytest.mark.slow
def test_the_answer_of_a_clock_that_goes_too_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("monotonic", "perf_counter", "process_time", "time", "thread_time"):
        true = getattr(time, name)
        monkeypatch.setattr(time, name, lambda true=true: 1000 * true())
    forget()
    assert ends() == fresh()


@pytest.mark.slow
def test_the_answer_of_eight_threads() -> None:
    forget()
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: ends(), range(8))) == [fresh()] * 8


@pytest.mark.slow
def test_without_a_guard_no_clock_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> float:
        raise AssertionError("a clock was read")

    monkeypatch.setattr(time, "monotonic", never)
    compose(Charge.parse("30*BR(0.1) + GDP(0.1)"), delta=1e-6)
    table(Charge.parse("3*BR(0.1)"), delta=1e-6, effort="quick")
    calibrate(
        lambda x: Charge({PureDP(x): 3, BoundedRange(x): 2}), Budget(1.0, 1e-6), effort="quick"
    )


@pytest.mark.slow
def test_a_guard_keeps_what_was_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never worse than the run before the one that was cut, whichever look at the clock is the last
    in time.
    """
    charge = Charge.parse("60*BR(0.1) + 60*BR(0.05)")
    quick = compose(charge, delta=1e-6, effort="quick")
    answers = []
    for looks in (0, 3, 1200):
        ticks = itertools.chain([0.0] * (1 + looks), itertools.repeat(10.0))
        monkeypatch.setattr(time, "monotonic", partial(next, ticks))
        forget()
        answers.append(compose(charge, delta=1e-6, max_seconds=5.0))
    assert all("not reproducible" in found.note for found in answers)
    worst, _, best = (found.epsilon for found in answers)
    assert best <= quick.epsilon < worst
    assert all(found.epsilon >= quick.lower for found in answers)


@pytest.mark.slow
def test_a_guard_that_does_not_cut_changes_nothing() -> None:
    found = compose(Charge.parse(MIX), delta=1e-6, max_seconds=1e6)
    assert [found.epsilon, found.lower] == fresh()


@pytest.mark.slow
def test_more_effort_never_gives_a_smaller_scale() -> None:
    scales = [
        calibrate(lambda x: Charge({BoundedRange(x): 300}), Budget(1, 1e-6), effort=effort)
        for effort in ("quick", "normal")
    ]
    assert 0 < scales[0] <= scales[1] <= scales[0] * 1.01


@pytest.mark.slow
def test_it_is_said_whether_a_number_of_queries_is_proven_to_be_the_most() -> None:
    query, budget = Charge({BoundedRange(0.1): 1}), Budget(1.0, 1e-6)
    few = queries_affordable(query, budget)
    assert few == few.at_most == 22
    assert few.proven
    assert compose(query.times(23), delta=1e-6).lower > 1.0
    many = queries_affordable(Charge({BoundedRange(0.01): 1}), budget, effort="quick")
    assert compose(query.times(1), delta=1e-6).epsilon < 1.0
    assert many.at_most is not None
    assert not many.proven
    assert many < many.at_most < many * 1.02
    assert compose(Charge({BoundedRange(0.01): many.at_most + 1}), delta=1e-6).lower > 1.0
    assert queries_affordable(query, budget, bound="opt_kl").at_most is None


@pytest.mark.slow
@pytest.mark.parametrize("looks", range(5, 9))
def test_a_capacity_cut_by_the_guard_is_not_cached(
    looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the clock cuts: before a layer, or before the work of the next one is taken."""
    budget = Budget(1.0 + looks / 100, 1e-6)  # of its own: nothing is remembered from another one

    def capacity(max_seconds: float | None) -> int:
        terms = Accountant.filter(budget, ranges=[0.1, 0.05], max_seconds=max_seconds).terms()
        found: int = terms["meters"][0]["capacity"]
        return found

    with monkeypatch.context() as patch:
        patch.setattr(
            time, "monotonic", partial(next, itertools.chain([0.0] * looks, itertools.repeat(10.0)))
        )
        hurried = capacity(5.0)
    assert 0 < hurried < capacity(None)


def test_the_meter() -> None:
    work = Work(2.0)
    assert work.take(1.5)
    assert not work.take(0.6)
    assert not work.take(0.1)  # after the first that does not fit nothing does
    assert work.note == module.USED_UP
    assert not Work(1.0).take(math.nan)
    with within(1e-9):
        assert late()
        assert not Work(1.0).take(0.1)
        with within(1e9), pytest.raises(OutOfTime):  # a limit within a limit only shortens it
            raise_if_late()
    assert not late()
    raise_if_late()


@pytest.mark.parametrize(
    "asked", [{"effort": "hard"}, {"effort": None}, {"max_seconds": 0.0}, {"max_seconds": -1.0}]
)
def test_bad_efforts_and_guards_are_refused(asked: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(asked))):
        compose(Charge({PureDP(0.1): 1}), delta=1e-6, **asked)


def test_a_repeated_question_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal questions share an answer; a clock that may cut, or another argument, computes its
    own.
    """
    asked: list[str] = []
    answer = bounds._answer
    monkeypatch.setattr(bounds, "_answer_without_clock", lru_cache(bounds._answer_without_clock))
    monkeypatch.setattr(
        bounds, "_answer", lambda question, bound: asked.append(bound) or answer(question, bound)
    )
    first = compose(Charge.parse("3*DP(0.1) + 2*DP(0.2)"), delta=1e-6)
    assert compose(Charge.parse("2*DP(0.2) + 3*DP(0.1)"), delta=1e-6) is first
    assert len(asked) == 1
    for other in (
        {"rtol": 1e-4},
        {"effort": "quick"},
        {"bound": "renyi"},
        {"lower": False},
        {"max_seconds": 60.0},
    ):
        compose(Charge.parse("3*DP(0.1) + 2*DP(0.2)"), **{"delta": 1e-6, **other})
    assert len(asked) == 6
    compose(Charge.parse("3*DP(0.1) + 2*DP(0.2)"), delta=1e-6, max_seconds=60.0)
    assert len(asked) == 7
    with within(60.0):
        compose(Charge.parse("3*DP(0.1) + 2*DP(0.2)"), delta=1e-6)
    assert len(asked) == 8
