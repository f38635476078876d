"""Disjoint segments: each has the whole budget, all together have one; by exact enumeration of
adaptive plays too.
"""

from __future__ import annotations

import functools
import itertools
import json
import math

import pytest

from dptopk import (
    Accountant,
    Budget,
    BudgetExceeded,
    Charge,
    IncompatibleCosts,
    InvalidParameter,
    Ledger,
    Sensitivity,
    compose,
)
from dptopk.budgets import Account, Parallel, Shares, segments_charge
from dptopk.costs import ApproxDP, BoundedRange, PureDP

NAMES = ("eu", "us", "asia")
DELTA = 1e-6
ONE = Charge({PureDP(0.5): 1})


def registered(times: int = 3) -> Parallel:
    return Parallel({name: Accountant(ONE.times(times), DELTA) for name in NAMES})


def filters() -> Parallel:
    return Parallel({name: Accountant.filter(Budget(1.5, DELTA)) for name in NAMES})


@pytest.mark.parametrize("made", [registered, filters])
def test_each_segment_has_the_whole_budget_and_all_have_one(made) -> None:
    regions, alone = made(), made().parts["eu"]
    most = alone.fits(ONE)
    for name in NAMES:
        for _ in range(most):
            regions.only(name).spend(ONE)
        with pytest.raises(BudgetExceeded, match=f"segment {name}"):
            regions.only(name).spend(ONE)
    assert regions.spent() == ONE.times(most)
    assert regions.epsilon() == alone.epsilon()
    assert regions.summary().epsilon_spent <= regions.epsilon()


@pytest.mark.parametrize("made", [registered, filters])
def test_what_is_asked_of_all_data_is_paid_by_every_segment(made) -> None:
    regions = made()
    regions.only("eu").spend(ONE)
    most = regions.fits(ONE)
    assert most == regions.only("eu").fits(ONE) == regions.only("us").fits(ONE) - 1
    regions.spend(ONE.times(most))
    with pytest.raises(BudgetExceeded, match="segment eu"):
        regions.spend(ONE)
    assert regions.only("us", "asia").fits(ONE) == 1  # the refused spend took nothing from anybody
    assert regions.spent() == ONE.times(most + 1)


def test_different_questions_about_different_segments_do_not_add_up() -> None:
    regions = filters()
    for name, epsilon in zip(NAMES, (1.5, 1.25, 0.75), strict=True):
        regions.only(name).spend(Charge({PureDP(epsilon): 1}))
    assert regions.spent() == segments_charge([Charge({PureDP(1.5): 1})], segments_per_user=1)
    assert regions.only("asia").can_spend(Charge({PureDP(0.75): 1}))


def test_refunds_come_back_to_the_segment_that_paid() -> None:
    regions = registered()
    regions.only("eu", "us").spend(ONE.times(2))
    regions.only("eu").refund(ONE)
    assert [regions.only(name).fits(ONE) for name in NAMES] == [2, 1, 3]
    with pytest.raises(InvalidParameter, match="not spent"):
        regions.refund(ONE)  # asia spent nothing: nobody gets anything back
    assert [regions.only(name).fits(ONE) for name in NAMES] == [2, 1, 3]


@pytest.mark.parametrize("made", [registered, filters])
def test_states_and_records_survive_json(made) -> None:
    regions, other = made(), made()
    record = regions.only("us").quote(ONE)
    regions.only("us").apply(ONE, json.loads(json.dumps(record)))
    other.restore(json.loads(json.dumps(regions.state())))
    assert other.state() == regions.state()
    assert other.only("us").fits(ONE) == regions.only("us").fits(ONE)
    assert not regions.only("us").disagreement(ONE, record)
    with pytest.raises(InvalidParameter, match="different segments"):
        regions.apply(ONE, record)
    with pytest.raises(InvalidParameter, match="does not fit segments"):
        regions.apply(ONE, {"tokens": []})


def test_what_cannot_be_sound_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="same guarantee"):
        Parallel({"eu": Accountant(ONE, DELTA), "us": Accountant(ONE.times(2), DELTA)})
    with pytest.raises(InvalidParameter, match="same guarantee"):
        Parallel({"eu": Accountant(ONE, DELTA), "us": Accountant(ONE, 1e-9)})
    with pytest.raises(InvalidParameter, match="at least one"):
        Parallel({})
    with pytest.raises(InvalidParameter, match="not declared"):
        registered().only("mars")
    with pytest.raises(IncompatibleCosts, match="replaced"):
        registered().spend(Charge({PureDP(0.5): 1}, neighbours="replace_one"))


def test_shares_of_analysts_may_be_by_segment() -> None:
    parts: dict[str, Account] = {"ann": registered(), "bob": registered(1)}
    shares = Shares(parts, DELTA)
    assert shares.epsilon() <= compose(ONE.times(4), delta=DELTA).epsilon * (1 + 1e-9)
    for name in NAMES:
        shares.account("ann").only(name).spend(ONE.times(3))
    assert shares.account("bob").can_spend(ONE)


def test_one_who_is_replaced_pays_in_two_segments() -> None:
    charge = Charge({PureDP(0.5): 1}, delta=1e-9, neighbours="replace_one")
    assert segments_charge([charge] * 4, segments_per_user=1) == charge.times(2)


# Exact enumeration. Two segments, one binary count in each; a question is randomised response with
# an ε of its own on one of them or on their sum's parity, chosen from all answers so far. The user
# is in one segment.

SMALL, LARGE = math.log(2), math.log(3)
BUDGET = Charge({PureDP(SMALL): 1, PureDP(LARGE): 1})


def loss_profile(
    world: tuple[int, int], other: tuple[int, int], play, regions: Parallel, x: float
) -> float:
    """δ at ε = x between two worlds, of a play given as history -> (segments, cost) or None."""

    def deltas(history: tuple, p: float, q: float, state) -> float:
        regions.restore(state)
        step = play(history, regions)
        if step is None:
            return max(p - math.exp(x) * q, 0.0)
        names, epsilon = step
        regions.only(*names).spend(Charge({PureDP(epsilon): 1}))
        after = regions.state()
        total = 0.0
        for answer in (0, 1):
            there, here = (sum(w["ab".index(name)] for name in names) % 2 for w in (world, other))
            total += deltas(
                (*history, (names, epsilon, answer)),
                p * chance(answer == there, epsilon),
                q * chance(answer == here, epsilon),
                after,
            )
        return total

    return deltas((), 1.0, 1.0, Parallel({name: Accountant(BUDGET, 0.1) for name in "ab"}).state())


def chance(same: bool, epsilon: float) -> float:
    return (math.exp(epsilon) if same else 1.0) / (1 + math.exp(epsilon))


def plays():
    """Plays that ask what still fits in an order that depends on the last answer."""
    questions = [
        (names, epsilon) for names in (("a",), ("b",), ("a", "b")) for epsilon in (SMALL, LARGE)
    ]
    for orders in itertools.product(list(itertools.permutations(questions))[::37], repeat=2):

        def play(history, regions, orders=orders):
            order = orders[history[-1][-1] if history else 0]
            fits = (q for q in order if regions.only(*q[0]).can_spend(Charge({PureDP(q[1]): 1})))
            return next(fits, None)

        yield play


@pytest.mark.slow
@pytest.mark.parametrize("x", [0.0, 0.5, 1.2])
def test_enumerated_plays_on_two_segments_stay_within_one_budget(x: float) -> None:
    bound = compose(BUDGET, epsilon=x, interaction="setwise").delta
    regions = Parallel({name: Accountant(BUDGET, 0.1) for name in "ab"})
    worst = 0.0
    for play in itertools.islice(plays(), 0, None, 29):
        for world, other in (((0, 1), (1, 1)), ((1, 0), (1, 1)), ((1, 1), (1, 0))):
            worst = max(worst, loss_profile(world, other, play, regions, x))
    assert worst <= bound * (1 + 1e-9)
    assert worst >= 0.99 * bound  # the budget of one segment is really used


def test_a_user_in_both_segments_would_break_it() -> None:
    """The check can fail: one who is in both segments has more than one budget's loss."""
    regions = Parallel({name: Accountant(BUDGET, 0.1) for name in "ab"})
    bound = compose(BUDGET, epsilon=0.5, interaction="setwise").delta

    def play(history, regions):
        single = [((name,), epsilon) for name in "ab" for epsilon in (LARGE, SMALL)]
        return next(
            (q for q in single if regions.only(*q[0]).can_spend(Charge({PureDP(q[1]): 1}))), None
        )

    assert loss_profile((0, 0), (1, 1), play, regions, 0.5) > 1.3 * bound


# Data that change with the answers: who joins, and where, may depend on all that was answered
# before.

FAILING = ApproxDP(SMALL, 0.1)
OUTCOMES = (
    (0.1, 0.0),
    (0.9 * 2 / 3, 0.9 / 3),
    (0.9 / 3, 0.9 * 2 / 3),
    (0.0, 0.1),
)  # P with the user, P without


@functools.cache
def admitted(done: str, merge: bool) -> str:
    """The segments whose account still takes a question after these: a and b, and u where the data
    were updated.
    """
    regions = Parallel({name: Accountant(Charge({FAILING: 2}), 0.5) for name in "ab"})
    start = regions.state()
    for step in done:
        if step != "u":
            regions.only(step).spend(Charge({FAILING: 1}))
        elif merge:
            spent = regions.spent()
            regions.restore(start)
            if spent:
                regions.spend(spent)
    return "".join(name for name in "ab" if regions.only(name).can_spend(Charge({FAILING: 1})))


def worst_play(x: float, merge: bool) -> float:
    """δ at x of the best play against one user of two versions of the data, who reacts to every
    answer.

    Before and after the update any segment is asked what its account still admits. The user is
    nowhere or in a segment at first, and from the update on in the segment that is best for the
    play.
    """

    def value(done: str, place: str, p: float, q: float) -> float:
        best = max(p - math.exp(x) * q, 0.0)
        for name in admitted(done, merge):
            answers = (
                OUTCOMES if name == place else ((1.0, 1.0),)
            )  # elsewhere the same with and without the user
            best = max(best, sum(value(done + name, place, p * a, q * b) for a, b in answers))
        if "u" not in done:
            best = max(best, *(value(done + "u", moved, p, q) for moved in "ab"))
        return best

    return max(value("", place, 1.0, 1.0) for place in ("", "a"))


@pytest.mark.parametrize("x", [0.0, SMALL])
def test_data_that_change_with_the_answers_stay_within_one_budget(x: float) -> None:
    """Not where a user who moved finds a new account: that is why a new version goes on from what
    was spent.
    """
    bound = compose(Charge({FAILING: 2}), epsilon=x).delta
    assert 0.999 * bound <= worst_play(x, merge=True) <= bound * (1 + 1e-9)
    assert worst_play(x, merge=False) > 1.15 * bound


def test_a_mechanism_that_goes_on_over_an_update_is_not_one_charge_for_each_segment(
    tmp_path,
) -> None:
    """Henzinger, Safavi and Vadhan 2024: parallel composition fails where δ can show before the
    user comes.

    Each segment's mechanism tosses its coin of δ first, says how it fell, and tells all that comes
    later if it failed; by itself it is (0, δ)-DP. A user who joins a segment that failed is found
    with chance 1 - (1 - δ)^2.
    """
    delta = 0.1
    failed = [coins for coins in itertools.product((True, False), repeat=2) if any(coins)]
    found = sum(math.prod(delta if coin else 1 - delta for coin in coins) for coins in failed)
    assert found == pytest.approx(1 - (1 - delta) ** 2)
    assert found > 1.8 * delta
    # So a charge to segments pays for answers from one version of the data.
    ledger = Ledger(tmp_path / "ledger.db")
    registered, one = Charge({FAILING: 2}), Charge({FAILING: 1})
    ledger.create_dataset(
        "visits",
        registered=registered,
        delta=0.5,
        version="1",
        sensitivity=Sensitivity(l0=1),
        segments={"by": list("ab")},
    )
    for name in "ab":
        ledger.charge("visits", "ann", one, segments=[name], version="1", once=f"stream {name}")
    ledger.set_version("visits", "2")
    for name in "ab":
        with pytest.raises(InvalidParameter, match="use a new key"):
            ledger.charge("visits", "ann", one, segments=[name], version="2", once=f"stream {name}")
        with pytest.raises(InvalidParameter, match="version"):
            ledger.charge("visits", "ann", one, segments=[name], version="1")
    assert ledger.spent("visits") == one


def test_bounded_range_tokens_are_picked_segment_by_segment() -> None:
    month = Charge({BoundedRange(0.1): 2, BoundedRange(0.2): 1})
    regions = Parallel({name: Accountant(month, DELTA) for name in NAMES})
    regions.only("eu").spend(Charge({BoundedRange(0.15): 1}))
    regions.only("us").spend(Charge({BoundedRange(0.1): 2}))
    assert not regions.can_spend(Charge({BoundedRange(0.15): 1}))
    assert regions.only("us").can_spend(Charge({BoundedRange(0.2): 1}))
    assert regions.only("eu").can_spend(Charge({BoundedRange(0.1): 2}))


def test_filters_beside_registered_costs_have_no_state_for_users_who_move() -> None:
    """A state of the filters alone would leave out what the others have spent."""
    filter_ = Accountant.filter(Budget(1.5, DELTA))
    account = Accountant(filter_.group(), DELTA)
    for parts in ((filter_, account), (account, filter_)):
        mixed = Parallel(dict(zip(NAMES, parts, strict=False)))
        with pytest.raises(BudgetExceeded, match="segments"):
            mixed.merged_state()
    assert Parallel({"eu": account}).merged_state() is None


@pytest.mark.parametrize("made", [registered, filters])
def test_a_closed_account_accepts_nothing(made) -> None:
    regions = made()
    regions.close()
    for account in (regions, regions.only("eu"), regions.parts["eu"]):
        with pytest.raises(BudgetExceeded, match="closed"):
            account.spend(ONE)
        assert not account.can_spend(ONE)
    assert not regions.spent()
