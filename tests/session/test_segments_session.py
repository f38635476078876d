"""Segments in a session and in a ledger: disjoint segments are charged once, together."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from dptopk import (
    Accountant,
    Budget,
    BudgetExceeded,
    Charge,
    GaussianDP,
    Histogram,
    InvalidParameter,
    KnownLaplace,
    Ledger,
    PureDP,
    Sensitivity,
    Session,
    plan_topk,
)
from dptopk.budgets import Filter, Parallel
from dptopk.datasets import Segments
from dptopk.planning.gauge import Trial
from dptopk.planning.probe import Look, LookedPlan
from dptopk.session.budget_backend import InMemoryBudget
from dptopk.session.paying import SessionPaying

ONE = Sensitivity(l0=1)
NOISE = KnownLaplace(epsilon=0.5)
REGISTERED = Charge({PureDP(0.5): 4}, delta=1e-6)


def segments(s, names=("eu", "us", "asia")):
    return Segments(
        {
            name: Histogram(None, [50, 30, place], sensitivity=ONE)
            for place, name in enumerate(names)
        },
        s,
    )


@pytest.fixture(params=["memory", "ledger"])
def session(request, tmp_path):
    histogram = segments(1)["eu"]
    if request.param == "memory":
        return Session(histogram, budget=Accountant(REGISTERED, delta=1e-5))
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("d", registered=REGISTERED, delta=1e-5, sensitivity=ONE)
    return Session(histogram, ledger=ledger, dataset="d", analyst="ann")


@pytest.mark.parametrize("s", [1, 2, 3])
def test_segments_cost_as_many_as_a_user_is_in(session, s):
    answers = session.run_each(segments(s), NOISE)
    assert list(answers) == ["eu", "us", "asia"]
    assert {answer.charge for answer in answers.values()} == {Charge({PureDP(0.5): 1})}
    assert session.remaining().left.costs.get(PureDP(0.5), 0) == 4 - s
    assert session.report()["rows"].tolist() == [9]
    assert all(len(answer.intervals()) == 3 for answer in answers.values())


@pytest.mark.slow
def test_what_does_not_fit_costs_nothing(session):
    with pytest.raises(BudgetExceeded):
        session.run_each(segments(3), KnownLaplace(epsilon=0.6))
    with pytest.raises(InvalidParameter, match="plan"):
        session.run_each(
            segments(1), plan_topk(2, Budget(0.5, 1e-7), sensitivity=ONE)
        )  # for a private domain
    with pytest.raises(InvalidParameter, match="segments"):
        session.run_each({"eu": segments(1)["eu"]}, NOISE)
    assert session.remaining().left == REGISTERED


def test_noise_of_segments_is_drawn_anew():
    session = Session(segments(1)["eu"], budget=Budget(5.0, 0.0), rng=np.random.default_rng(0))
    same = Segments({name: Histogram(None, np.full(40, 9), sensitivity=ONE) for name in "ab"}, 1)
    first, second = session.run_each(same, NOISE).values()
    assert sorted(first.counts.tolist()) != sorted(second.counts.tolist())


def test_a_ledger_refuses_segments_made_for_users_who_move_less(tmp_path):
    ledger, wide = Ledger(tmp_path / "ledger.db"), Sensitivity(linf=2, l0=1)
    ledger.create_dataset("d", registered=REGISTERED, delta=1e-5, sensitivity=wide)
    session = Session(
        Histogram(None, [50, 30], sensitivity=wide), ledger=ledger, dataset="d", analyst="ann"
    )
    with pytest.raises(InvalidParameter, match="sensitivity"):
        session.run_each(segments(1), NOISE)
    assert not ledger.spent("d")


def test_a_ledger_keeps_the_answers_of_all_segments(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("d", registered=REGISTERED, delta=1e-5, sensitivity=ONE)
    Session(segments(1)["eu"], ledger=ledger, dataset="d", analyst="ann").run_each(
        segments(1), NOISE
    )
    assert ledger.spent("d") == Charge({PureDP(0.5): 1})
    assert Ledger(tmp_path / "ledger.db").verify()


def declared(tmp_path, **options):
    ledger = Ledger(tmp_path / "by.db", test=True)
    ledger.create_dataset(
        "d",
        sensitivity=ONE,
        segments={"region": ["eu", "us", "asia"]},
        **(options or {"registered": REGISTERED, "delta": 1e-5}),
    )
    return ledger


def asking(ledger, analyst="ann"):
    return Session(segments(1)["eu"], ledger=ledger, dataset="d", analyst=analyst)


def by_region(s=1, names=("eu", "us", "asia")):
    return Segments(segments(s, names).histograms, s, by="region")


@pytest.fixture(params=["memory", "parallel", "ledger"])
def regional(request, tmp_path):
    """A session whose budget is 2.0, for each region."""
    histogram = segments(1)["eu"]
    if request.param == "memory":
        return Session(histogram, budget=Budget(2.0, 0.0))
    if request.param == "parallel":
        parts = {name: Accountant(REGISTERED, 1e-5) for name in ("eu", "us", "asia")}
        return Session(histogram, budget=Parallel(parts))
    return asking(declared(tmp_path))


@pytest.mark.slow
def test_segments_asked_one_after_another_cost_as_much_as_one(regional):
    regions = regional.segments(by_region())
    for name, times in {"eu": 4, "us": 4, "asia": 1}.items():
        for _ in range(times):
            assert regions[name].run(NOISE).charge == Charge({PureDP(0.5): 1})
    assert regional.remaining().epsilon_spent == pytest.approx(2.0, rel=1e-4)
    assert regional.remaining().epsilon_total == pytest.approx(2.0, rel=1e-4)
    for name in ("eu", "us"):
        with pytest.raises(BudgetExceeded):
            regions[name].run(NOISE)
    with pytest.raises(BudgetExceeded):  # of all data: eu has nothing left
        regional.run(NOISE)
    assert list(regions["asia"].remaining().fits.values()) == [3]
    assert list(regions["eu"].remaining().fits.values()) == [0]


def test_what_was_asked_of_all_data_is_paid_by_each_segment(regional):
    regional.run(NOISE)  # before they are declared
    regions = regional.segments(by_region())
    regional.run(NOISE)
    for region in regions.values():
        region.run(NOISE)
        region.run(NOISE)
        with pytest.raises(BudgetExceeded):
            region.run(NOISE)


@pytest.mark.slow
def test_each_of_declared_segments_pays_for_what_is_asked_of_all_together(regional):
    declared_ones = by_region()
    regions = regional.segments(declared_ones)
    regions["eu"].run(NOISE)
    regional.run_each(declared_ones, NOISE)
    for region in regions.values():
        region.run(NOISE)
    assert [list(region.remaining().fits.values()) for region in regions.values()] == [
        [1],
        [2],
        [2],
    ]


def test_only_segments_of_one_user_each_are_declared(regional):
    with pytest.raises(InvalidParameter, match="may be in 3"):
        regional.segments(by_region(3))
    regional.segments(by_region())
    with pytest.raises(InvalidParameter, match="segments"):
        regional.segments(by_region(names=("mars",)))


def test_a_budget_that_others_spend_from_is_not_multiplied():
    session = Session(segments(1)["eu"], budget=Accountant(REGISTERED, delta=1e-5))
    with pytest.raises(InvalidParameter, match="others may spend"):
        session.segments(by_region())
    owned = Session(segments(1)["eu"], budget=Budget(2.0, 0.0))
    owned.segments(by_region())
    with pytest.raises(InvalidParameter, match="others were declared"):
        owned.segments(by_region())  # a second choice of users


def test_a_ledger_charges_segments_of_its_owner_alone(tmp_path):
    plain = Ledger(tmp_path / "plain.db")
    plain.create_dataset("d", registered=REGISTERED, delta=1e-5, sensitivity=ONE)
    with pytest.raises(InvalidParameter, match="no such segments by 'region'"):
        asking(plain).segments(by_region())
    with pytest.raises(InvalidParameter, match="this data set has none"):
        plain.charge("d", "ann", Charge({PureDP(0.5): 1}), segments=["eu"], version="1")
    ledger = declared(tmp_path)
    with pytest.raises(InvalidParameter, match="no such segments by 'age'"):
        asking(ledger).segments(Segments(segments(1).histograms, 1, by="age"))
    with pytest.raises(InvalidParameter, match="not declared"):
        ledger.charge("d", "ann", Charge({PureDP(0.5): 1}), segments=["mars"], version="1")
    with pytest.raises(InvalidParameter, match="distinct"):
        ledger.create_dataset("e", budget=Budget(1, 0), segments={"region": ["eu", "eu"]})
    with pytest.raises(InvalidParameter, match="add_remove"):
        replaced = Sensitivity(neighbours="replace_one")
        ledger.create_dataset(
            "e", budget=Budget(1, 0), segments={"region": ["eu"]}, sensitivity=replaced
        )


@pytest.mark.parametrize(
    "terms", [{"registered": REGISTERED, "delta": 1e-5}, {"budget": Budget(2.0, 0.0)}]
)
def test_what_segments_paid_is_read_again_and_verified(tmp_path, terms):
    ledger = declared(tmp_path, **terms)
    ledger.set_limit("d", "bob", budget=Budget(1.0, 0.0))
    for _ in range(3):
        asking(ledger).segments(by_region())["eu"].run(NOISE)
    bobs = asking(ledger, "bob").segments(by_region())
    for _ in range(2):
        bobs["us"].run(NOISE)
    with pytest.raises(BudgetExceeded, match="limit of 'bob'"):
        bobs["us"].run(NOISE)
    bobs["asia"].run(NOISE)  # a limit is by segment too
    ledger.close()
    again = Ledger(tmp_path / "by.db")
    assert again.inspect().problems == again.inspect().warnings == ()
    assert again.spent("d") == Charge({PureDP(0.5): 3})
    assert again.spent("d", lifetime=True) == Charge({PureDP(0.5): 6})
    left = {
        name: again.state("d").account.only(name).fits(Charge({PureDP(0.5): 1}))
        for name in ("eu", "us", "asia")
    }
    assert left == {"eu": 1, "us": 2, "asia": 3}


def test_users_who_may_have_moved_pay_for_both_segments(tmp_path):
    ledger = declared(tmp_path)
    regions = asking(ledger).segments(by_region())
    regions["eu"].run(NOISE)
    regions["eu"].run(NOISE)
    regions["us"].run(NOISE)
    receipt = ledger.charge("d", "ann", Charge({PureDP(0.5): 1}), segments=["us"], version="1")
    ledger.set_version("d", "2")
    account = ledger.state("d").account
    assert all(
        account.only(name).fits(Charge({PureDP(0.5): 1})) == 2 for name in ("eu", "us", "asia")
    )
    ledger.finalize(receipt, Charge())  # it never ran, but it is part of what was merged
    assert ledger.remaining("d").costs == {PureDP(0.5): 2}
    regions = asking(ledger).segments(by_region())
    regions["asia"].run(NOISE)
    ledger.renew("d", reason="a new year", registered=REGISTERED, delta=1e-5)
    for _ in range(4):
        regions["us"].run(NOISE)
    assert ledger.inspect().problems == ledger.inspect().warnings == ()
    assert ledger.verify()


def test_segments_of_an_old_version_are_asked_no_more(tmp_path):
    """A user of the old eu who is in the new us would pay for the new us alone, and for the old eu
    nobody.
    """
    ledger = declared(tmp_path)
    session = asking(ledger)
    regions = session.segments(by_region())
    regions["eu"].run(NOISE)
    ledger.set_version("d", "2")
    before = ledger.history("d")
    for ask in (lambda: regions["eu"].run(NOISE), lambda: session.run_each(by_region(), NOISE)):
        with pytest.raises(InvalidParameter, match="version"):
            ask()
    assert len(ledger.history("d")) == len(before)
    asking(ledger).segments(by_region())["us"].run(NOISE)


def test_a_charge_to_segments_says_which_data_it_is_for(tmp_path):
    """Charged for the old eu alone and drawn from the new one, an answer would be paid for by
    nobody who came there.
    """
    ledger = declared(tmp_path)
    half = Charge({PureDP(0.5): 1})
    with pytest.raises(InvalidParameter, match="version must be given"):
        ledger.charge("d", "ann", half, segments=["eu"])
    ledger.charge("d", "ann", half, segments=["us"], version="1")
    first = ledger.charge("d", "ann", half, segments=["eu"], version="1", once="first")
    assert ledger.charge("d", "ann", half, segments=["eu"], version="1", once="first") == first
    begun = asking(ledger)
    ledger.set_version("d", "2")
    with pytest.raises(InvalidParameter, match="version: the dataset is at '2'"):
        ledger.charge("d", "ann", half, segments=["eu"], version="1")
    for version in ("1", "2"):
        with pytest.raises(InvalidParameter, match="older version"):
            ledger.charge("d", "ann", half, segments=["eu"], version=version, once="first")
    with pytest.raises(InvalidParameter, match="version"):  # its histogram is of the old version
        begun.segments(by_region())["eu"].run(NOISE)
    assert len(ledger.history("d")) == 2
    asking(ledger).run(NOISE)  # of all data: every account pays, wherever its users are now
    assert ledger.verify()


def test_a_new_version_goes_on_from_the_segment_that_spent_most(tmp_path):
    ledger = declared(tmp_path, budget=Budget(1.0, 0.0))
    ledger.charge("d", "ann", Charge({PureDP(0.5): 1}), segments=["eu"], version="1")
    for _ in range(3):
        ledger.charge("d", "ann", Charge({PureDP(0.25): 1}), segments=["us"], version="1")
    ledger.set_version("d", "2")
    for segment in ("eu", "us"):
        with pytest.raises(BudgetExceeded):
            ledger.charge("d", "ann", Charge({PureDP(0.26): 1}), segments=[segment], version="2")
        ledger.charge("d", "ann", Charge({PureDP(0.25): 1}), segments=[segment], version="2")
    assert ledger.verify()


def test_stored_answers_of_one_segment_are_not_those_of_another(tmp_path):
    ledger = declared(tmp_path)
    session = Session(segments(1)["eu"], ledger=ledger, dataset="d", analyst="ann", source="visits")
    regions = session.segments(by_region())
    first = regions["eu"].run(NOISE, reuse=True)
    assert regions["eu"].run(NOISE, reuse=True).counts.tolist() == first.counts.tolist()
    regions["us"].run(NOISE, reuse=True)
    assert len(ledger.history("d")) == 2
    ledger.set_limit("d", "bob", budget=Budget(0.5, 0.0))
    bobs = Session(
        segments(1)["eu"], ledger=ledger, dataset="d", analyst="bob", source="visits"
    ).segments(by_region())
    bobs["eu"].run(NOISE, reuse=True)
    bobs["us"].run(NOISE, reuse=True)
    with pytest.raises(BudgetExceeded, match="limit of 'bob'"):
        bobs["eu"].run(NOISE)
    assert ledger.inspect().problems == ledger.inspect().warnings == ()


def test_shares_of_analysts_are_by_segment_too(tmp_path):
    shares = {"ann": Charge({PureDP(0.5): 1}), "reserve": Budget(0.5, 0.0)}
    ledger = declared(tmp_path, shares=shares, delta=1e-6)
    for analyst in ("ann", "bob"):
        regions = asking(ledger, analyst).segments(by_region())
        for region in regions.values():
            region.run(NOISE)
            with pytest.raises(BudgetExceeded):
                region.run(NOISE)
    ledger.set_version("d", "2")
    assert not ledger.state("d").accounts("ann")["dataset"].can_spend(Charge({PureDP(0.5): 1}))
    assert ledger.inspect().problems == ledger.inspect().warnings == ()


def _paid_in_turn(account, look, plan):
    """Return whether an account pays for a look and then a plan, by charging both."""
    try:
        account.spend(look.charge, stated=look.stated)
        account.spend(plan.charge, stated=plan.stated)
    except BudgetExceeded:
        return False
    return True


def _filter_after_one_question(look, plan):
    """Return a filter for two such questions as they are stated (the sum of their ε's is 1.02), of
    which one was asked.
    """
    account = Filter(
        Budget(2 * (0.01 + 0.49994), 2.2 * plan.stated.delta),
        failure_delta=2 * plan.stated.delta,
    )
    assert _paid_in_turn(account, look, plan)
    return account


SMALL_LOOK = SimpleNamespace(charge=Charge({PureDP(0.01): 1}), stated=None)
STATED_PLAN = SimpleNamespace(charge=Charge({PureDP(0.05): 10}), stated=Budget(0.49989, 2e-7))
LOOK = SimpleNamespace(charge=Charge({PureDP(0.09): 1}), stated=None)
PLAN = SimpleNamespace(charge=Charge({PureDP(0.1): 1}), stated=None)
# The look takes the smaller token, and the larger one does not cover the plan.
TOKENS = Charge({PureDP(0.1): 1, GaussianDP(0.114): 1})


@pytest.mark.parametrize(
    ("account", "look", "plan", "paid"),
    [
        (lambda: Accountant(TOKENS, 1e-6), LOOK, PLAN, False),
        (
            lambda: _filter_after_one_question(SMALL_LOOK, STATED_PLAN),
            SMALL_LOOK,
            STATED_PLAN,
            True,
        ),
    ],
    ids=["registered", "filter"],
)
@pytest.mark.parametrize("segmented", [False, True])
def test_a_look_and_its_plan_are_tried_as_they_are_charged(account, look, plan, paid, segmented):
    """Their sum is another charge: these tokens cover it, and this filter does not."""
    paying_account = Parallel({"eu": account(), "us": account()}) if segmented else account()
    histogram = segments(1)["eu"]
    book = InMemoryBudget(paying_account)
    paying = SessionPaying(book, histogram, None, reuse=False, remember=lambda *_: None)
    spent = paying_account.state()
    assert paying_account.can_spend(Charge.join(look.charge, plan.charge)) == (not paid)
    assert paying.covers(look, plan) == paid
    assert Trial(paying_account).covers(look, plan) == paid
    assert paying_account.state() == spent
    assert _paid_in_turn(paying_account, look, plan) == paid


def test_a_look_in_a_segment_is_not_paid_where_its_answer_is_refused():
    """The look, of ε = 0.1, takes the token that the plan needs: it is the smaller one."""
    histogram = Histogram(None, [300, 200, 100, 50, 10], sensitivity=ONE)
    planner = partial(plan_topk, 2, sensitivity=ONE, domain="public", counts="laplace")
    plan = LookedPlan.of(Look(2, Budget(1.0, 0.0), 0.1), planner)
    tokens = Charge.join(plan.usual.charge, Charge({GaussianDP(1.0): 1}))
    account = Parallel({name: Accountant(tokens, 1e-6) for name in ("eu", "us")}).only("eu")
    paying = SessionPaying(
        InMemoryBudget(account), histogram, None, reuse=False, remember=lambda *_: None
    )
    assert account.can_spend(Charge.join(plan.first(histogram).charge, plan.usual.charge))
    with pytest.raises(BudgetExceeded):
        plan.run(histogram, np.random.default_rng(0), paying=paying)
    assert not account.spent()
