"""A private look before the plan: what it sees, what it costs, and what it refuses."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dptopk import (
    ApproxDP,
    Box,
    Budget,
    Charge,
    Histogram,
    InvalidParameter,
    Ledger,
    Sensitivity,
    Session,
    plan_topk,
)
from dptopk.accounting.bounds import compose
from dptopk.planning.choose import with_look
from dptopk.planning.mixture import Mixture
from dptopk.planning.probe import Look, LookedPlan, counts_at_ranks, ranks, shapes
from dptopk.planning.shape import Outcome, Shape, _averaged_outcome

TOTAL = Budget(1, 1e-6)


def _words(counts, **stated):
    return Histogram(
        [f"w{i:04}" for i in range(len(counts))], counts, sensitivity=Sensitivity(**stated)
    )


@pytest.mark.parametrize("linf", [1, 2])
def test_sorted_counts_of_neighbours_move_in_one_direction_by_at_most_linf(linf):
    """All pairs of small histograms, present labels only: what box noise on the ranks is charged
    for.
    """
    looked = Counter()
    for counts in itertools.product(range(4), repeat=3):
        before = np.array(counts_at_ranks(_words([*counts], linf=linf), 1).counts)
        for move in itertools.product(range(linf + 1), repeat=3):
            after = np.array(
                counts_at_ranks(
                    _words([c + m for c, m in zip(counts, move, strict=True)], linf=linf), 1
                ).counts
            )
            assert ((after - before >= 0) & (after - before <= linf)).all()
            looked[tuple(after - before)] += 1
    assert (
        max(map(sum, looked)) > linf
    )  # several ranks move together, so that none may be charged alone


def test_a_table_without_its_small_rows_is_not_looked_at():
    cut = Histogram(["a", "b"], [9, 5], sensitivity=Sensitivity(), complete=False)
    with pytest.raises(InvalidParameter, match="look"):
        counts_at_ranks(cut, 1)
    swapped = Histogram(["a"], [9], sensitivity=Sensitivity(neighbours="replace_one"))
    with pytest.raises(InvalidParameter, match="neighbours"):
        counts_at_ranks(swapped, 1)
    planned = partial(plan_topk, k=5, sensitivity=cut.sensitivity, domain="private", counts="auto")
    assert isinstance(with_look("auto", planned, budget=TOTAL)(), LookedPlan)
    assert not isinstance(with_look("auto", planned, whole=False, budget=TOTAL)(), LookedPlan)


@pytest.mark.parametrize("share", [0.0, 1.0, math.nan, "much"])
def test_a_share_that_is_none(share):
    with pytest.raises(InvalidParameter, match="look"):
        Look(5, TOTAL, share)
    with pytest.raises(InvalidParameter, match="look"):
        Look(5, Budget(rho=0.5, delta=1e-6))


def test_shapes_fall_from_what_was_seen():
    seen = np.array([9000.0, 900.0, 950.0, 200.0, 40.0])
    open_ = shapes(seen, 10, Box(epsilon=0.5), 1, 120)
    assert (np.diff(open_.counts, axis=1) <= 0).all()
    assert (open_.counts >= 0).all()
    assert np.abs(open_.counts[:, 0] - 9000).max() < 150
    assert np.median([shape.counts[9] for shape in open_.shapes]) == pytest.approx(925, abs=60)
    assert (open_.counts == shapes(seen, 10, Box(epsilon=0.5), 1, 120).counts).all()


@pytest.mark.slow
def test_equal_counts_that_the_usual_plan_loses_are_shown_after_a_look():
    """Selections of five of 300 equal counts need a lead over rank 101 that none has; the caution
    of a plan by a look is no reason to take them.
    """
    counts = np.full(300, 500)
    sensitivity = Sensitivity(l0=20)
    data = Histogram([f"x{row}" for row in range(300)], counts, sensitivity=sensitivity)
    planned = partial(plan_topk, 5, sensitivity=sensitivity)
    look = Look(5, TOTAL)
    seen = look.mechanism.release(counts_at_ranks(data, 5), np.random.default_rng(2))
    looked = look.plan(seen, sensitivity, planned, planned(budget=look.rest))
    losses = [
        Shape.of(counts).outcome(plan.mechanisms, 5, sensitivity, True).loss
        for plan in (looked, planned(budget=TOTAL))
    ]
    assert losses[0] < 0.3 * losses[1]


@pytest.mark.parametrize(
    ("look", "changed", "looks"),
    [
        ("auto", {}, True),
        ("auto", {"sensitivity": Sensitivity(l0=20)}, True),
        ("auto", {"sensitivity": Sensitivity(l0=2)}, False),
        ("auto", {"domain": "public"}, False),
        ("auto", {"counts": None}, False),
        ("auto", {"counts": None, "k": 25}, False),
        ("auto", {"k": 101}, False),
        ("auto", {"accuracy": 9.0, "delta": 1e-6}, False),
        ("auto", {"budget": Budget(rho=0.1, delta=1e-6)}, False),
        ("auto", {"whole": False}, False),
        (None, {}, False),
        (0.1, {"domain": "public", "counts": None}, True),
        (0.1, {"accuracy": 9.0, "delta": 1e-6}, None),
    ],
    ids=str,
)
def test_whether_a_look_comes_first_is_decided_by_public_facts(look, changed, looks):
    facts = {"k": 5, "sensitivity": Sensitivity(), "domain": "private", "counts": "auto"}
    planned = partial(plan_topk, **facts | {name: changed[name] for name in facts.keys() & changed})
    total = {name: changed[name] for name in changed.keys() - facts}
    total |= {"budget": TOTAL} if "accuracy" not in total and "budget" not in total else {}
    if looks is None:
        with pytest.raises(InvalidParameter, match="look"):
            with_look(look, planned, **total)
        return
    planning = with_look(look, planned, **total)
    assert (planning.func == LookedPlan.of) == looks
    if looks:
        assert (planning.args[0].optional, planning.args[0].share) == (
            look == "auto",
            0.035 if look == "auto" else look,
        )


@pytest.mark.slow
def test_one_charge_covers_a_look_and_whatever_plan_it_leads_to():
    """The total, known before; each plan that a look leads to fits in it, and is said with what was
    paid.
    """
    words = _words((3e4 / np.arange(1, 300)).astype(int), l0=20)
    planned = partial(
        plan_topk, k=5, sensitivity=words.sensitivity, domain="private", counts="auto"
    )
    plan = with_look("auto", planned, budget=TOTAL)()
    assert plan.charge == Charge({ApproxDP(1, 1e-6): 1})
    assert plan.epsilon <= 1
    ran, answer = plan.run(words, np.random.default_rng(4))
    assert plan.usual.epsilon <= ran.epsilon <= 1
    assert ran.epsilon >= plan.look.mechanism.epsilon + 0.9
    assert compose(answer.charge, delta=1e-6).epsilon <= 1
    assert next(iter(answer.phases)) == "look"
    released = plan.release(words, np.random.default_rng(4))
    assert (released.charge, released.labels, released.phases) == (
        plan.charge,
        answer.labels,
        answer.phases,
    )
    cut = Histogram(words.labels, words.counts, sensitivity=words.sensitivity, complete=False)
    session = Session(cut, budget=TOTAL)
    with pytest.raises(InvalidParameter, match="look"):
        session.run(plan)
    assert session.report().empty


def test_several_shapes_are_compared_by_their_mean():
    both, *one = (
        Mixture.of(3, 60, lambda rank, levels=levels: [level / rank for level in levels])
        for levels in ((3e3, 3e4), (3e3,), (3e4,))
    )
    asked = (
        plan_topk(3, TOTAL, sensitivity=Sensitivity(l0=2)).mechanisms,
        3,
        Sensitivity(l0=2),
        True,
    )
    losses = [single.outcome(*asked).loss for single in one]
    assert both.outcome(*asked).loss == pytest.approx(np.mean(losses))
    assert replace(both, geometric=True).outcome(*asked).loss == pytest.approx(
        math.sqrt(math.prod(losses))
    )


def test_rows_that_are_hardly_ever_shown_weigh_as_often_as_they_are():
    """One row in four draws, off by 20: no error in three of them; and its standard error is that
    of draws.
    """
    squares, rows, missed = (
        np.array([400.0, 0, 0, 0]),
        np.array([1.0, 0, 0, 0]),
        np.array([3.0, 4, 4, 4]),
    )
    seen = _averaged_outcome(squares, rows, missed, np.zeros(4))
    assert (seen.error, seen.loss) == (20, 20 / 4 + 3.75)
    assert Outcome(20.0, 3.75, 0.0, 2.0).loss == 23.75
    many = np.random.default_rng(1).random((2000, 400)) < 0.1
    losses = [_averaged_outcome(9.0 * one, one * 1.0, np.zeros(400), np.zeros(400)) for one in many]
    assert np.std([one.loss for one in losses]) == pytest.approx(losses[0].deviation, rel=0.15)
    rare = plan_topk(3, TOTAL, method="Gumbel, then box counts")
    level = Mixture.of(3, 102, lambda rank: [40 / rank**0.1])
    told, shape = level.outcome(rare.mechanisms, 3, Sensitivity(), True), level.shapes[0]
    assert told.rows < 0.1
    assert told.loss == pytest.approx(
        shape.outcome(rare.mechanisms, 3, Sensitivity(), True).loss, rel=0.02
    )


@pytest.mark.slow
@pytest.mark.parametrize("l0", [4, 16, None])
def test_a_closed_form_predicts_what_simulations_do(l0):
    """Every design on three shapes, without a fit: half within a twentieth, most of them within a
    third.
    """
    sensitivity, ratios = Sensitivity(l0=l0), []
    levels = Mixture.of(8, 102, lambda rank: [3e4 / rank, 600 / rank**0.5, 2e3 * 0.93**rank])
    for domain, counts in itertools.product(("private", "public"), ("auto", None)):
        asked = {"sensitivity": sensitivity, "domain": domain, "counts": counts, "fit": False}
        for name in plan_topk(8, TOTAL, **asked).alternatives["design"]:
            plan = plan_topk(8, TOTAL, **asked, method=name)
            played = (plan.mechanisms, 8, sensitivity, plan.counted)
            for counts_of, shape in zip(levels.counts, levels.shapes, strict=True):
                seen, told = (
                    shape.outcome(*played),
                    Mixture(levels.edges, counts_of[None]).outcome(*played),
                )
                ratios.append((told.loss + 1) / (seen.loss + 1))
    apart = np.abs(np.log(ratios))
    assert np.median(apart) < 0.05
    assert np.quantile(apart, 0.85) < 0.3


@pytest.mark.slow
def test_an_answer_after_a_look_costs_what_was_stated_and_says_so():
    words = _words((3e4 / np.arange(1, 300)).astype(int), l0=20)
    session = Session(words, budget=TOTAL, rng=np.random.default_rng(3))
    answer = session.top_k(5, budget=TOTAL, counts="auto", look=0.05)
    first, plan = (entry["charge"] for entry in session._answered)
    assert compose(first, delta=0.0).epsilon <= 0.05
    assert compose(plan, delta=1e-6).epsilon <= 0.95
    assert answer.charge.includes(first)
    assert set(answer.phases) > {"look"}
    assert "ranks 1, 5, 10, 20, 50" in answer.note
    assert len(answer) == 5
    blind = plan_topk(5, TOTAL, sensitivity=words.sensitivity)
    assert np.abs(answer.counts - words.counts[:5]).max() < 4 * blind.noise_std


def test_what_is_not_seen_changes_no_plan():
    """Counts far below the noise of the look: the plan is that without one, for what is left."""
    words, look = _words([12] * 40, l0=20), Look(5, TOTAL, 0.05)
    seen = look.mechanism.release(counts_at_ranks(words, 5), np.random.default_rng(1))
    planned = partial(plan_topk, 5, sensitivity=words.sensitivity)
    usual = planned(budget=look.rest)
    assert look.plan(seen, words.sensitivity, planned, usual) is usual
    assert look.rest.epsilon == 0.95


def test_a_shape_that_is_wrong_is_found_out():
    """Thirty equal counts, planned as if they fell steeply: the look sees that they do not."""
    words, look = _words([3000] * 30 + [1] * 200), Look(5, TOTAL, 0.05)
    seen = look.mechanism.release(counts_at_ranks(words, 5), np.random.default_rng(5))
    names = {
        True: "Gumbel, then centred Gaussian counts",
        False: "box noise over the noisy floor of the top k",
    }

    def planned(budget, like):
        return plan_topk(5, budget, method=names[isinstance(like, Mixture)])

    usual = planned(look.rest, None)
    plan = look.plan(seen, words.sensitivity, partial(planned, like=[1e5, 1e4]), usual)
    assert plan.design == names[True]


@pytest.mark.slow
def test_a_look_that_does_not_fit_is_refused_before_anything_is_drawn():
    session = Session(_words([500, 400, 300], l0=20), budget=Budget(0.5, 1e-6))
    with pytest.raises(Exception, match="budget"):
        session.top_k(2, budget=TOTAL, counts="auto", look=0.05)
    assert session.report().empty


def test_ranks_are_public():
    assert ranks(1) == (1, 2, 4, 10)
    assert ranks(25) == (1, 25, 50, 100, 250)


@pytest.mark.slow
def test_an_answer_after_a_look_is_given_again(tmp_path):
    """What is left of the budget would not pay for it another time."""
    sensitivity = Sensitivity(l0=20)
    counts = {f"label {rank}": 10**5 // rank for rank in range(1, 80)}
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.create_dataset("sales", budget=Budget(0.5, 1e-6), sensitivity=sensitivity)
        histogram = Histogram(counts, sensitivity=sensitivity)
        session = Session(histogram, ledger=ledger, dataset="sales", analyst="ann", source="sales")
        first = session.top_k(2, budget=Budget(0.5, 1e-7), counts="auto", reuse=True)
        spent = ledger.spent("sales")
        again = session.top_k(2, budget=Budget(0.5, 1e-7), counts="auto", reuse=True)
        assert "look" in first.phases
        assert (again.labels, again.counts.tolist()) == (first.labels, first.counts.tolist())
        assert ledger.spent("sales") == spent
        assert not again.charge.costs
