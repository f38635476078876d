"""Adding up beside a filter's own sum: small games played out exactly, and what the rule accepts.

The games are in rationals: losses are multiples of ln(3/2), the filter's own sum is that of the
logarithms of E_P[P/Q] (Rényi order 2), and an analyst sees all answers, chooses every mechanism,
and chooses how each is entered among the records that hold for it. So no rule that picks one of
those records can do worse.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from dptopk.budgets.adding_up import SHARE_WITHOUT_STATEMENT, Entering, Sums
from dptopk.budgets.filter import Filter
from dptopk.budgets.filter_metrics import Pure, Renyi
from dptopk.budgets.parallel import Parallel
from dptopk.budgets.running_totals import PURE, RunningTotals
from dptopk.budgets.shares import Shares
from dptopk.costs import ApproxDP, Budget, Charge, GaussianDP, PureDP
from dptopk.errors import BudgetExceeded
from dptopk.ledger.ledger import Ledger
from dptopk.planning.two_phase import plan_two_phases

BASE = Fraction(3, 2)
EPSILON = 4  # of the total, in units of ln(3/2)
FACTOR = BASE**EPSILON  # e^ε
ROUNDS = 3


@dataclass(frozen=True)
class Pair:
    """A mechanism: the probabilities of its outcomes under P and Q; the last one is its failure."""

    p: tuple[Fraction, ...]
    q: tuple[Fraction, ...]

    @property
    def failure(self) -> Fraction:
        """The mass of P where Q has none."""
        return self.p[-1]

    @property
    def own_price(self) -> float:
        """log2 E_P[P/Q] without the failure, rounded up."""
        moment = sum(p * p / q for p, q in zip(self.p, self.q, strict=True) if q)
        return math.log2(moment) + 1e-9 if moment > 1 else 0.0

    def delta(self, epsilon: int) -> Fraction:
        """The smallest δ at which it is (ε, δ)-DP, in this direction."""
        pairs = zip(self.p, self.q, strict=True)
        return sum((max(p - BASE**epsilon * q, Fraction(0)) for p, q in pairs), Fraction(0))


def pairs_of(random: Random, number: int) -> list[Pair]:
    """Mechanisms with two or three outcomes besides a failure, which often has no mass."""
    found: list[Pair] = []
    while len(found) < number:
        losses = [BASE ** random.randint(-3, 6) for _ in range(random.choice((2, 2, 3)))]
        failure = random.choice((Fraction(0), Fraction(0), Fraction(1, 32), Fraction(1, 16)))
        first = [Fraction(random.choice((1, 1, 2, 4, 8)), 16) for _ in losses[2:]]
        if losses[0] == losses[1]:
            continue
        # Σ q = 1 and Σ z q = 1 - f give the masses of the first two outcomes.
        mass = 1 - sum(first)
        rest = 1 - failure - sum(z * q for z, q in zip(losses[2:], first, strict=True))
        one = (rest - losses[1] * mass) / (losses[0] - losses[1])
        q = [one, mass - one, *first]
        if min(q) >= 0:
            p = [z * share for z, share in zip(losses, q, strict=True)]
            found.append(Pair((*p, failure), (*q, Fraction(0))))
    return found


def float_up(value: Fraction) -> float:
    """A float that is not below."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


@dataclass(frozen=True)
class Rule:
    """How a filter counts: the true rule, or one of the mutants.

    Attributes:
        conversion: δ_c, of the filter's own sum.
        pool: δ_f, of failures and statements.
        each_its_own: each sum counts only what it accepted.
        two_pools: failures and statements fill a pool each.
        opens_again: a charge outside the sum of ε's does not close it.
    """

    conversion: Fraction
    pool: Fraction
    each_its_own: bool = False
    two_pools: bool = False
    opens_again: bool = False

    def start(self) -> tuple[Sums, Fraction]:
        """The sums before anything ran, and the statements' own pool (of a mutant)."""
        capacity = math.log2(4 * FACTOR * self.conversion) - 1e-9
        metrics = {"renyi": Renyi(1.0, capacity), PURE: Pure(float(EPSILON))}
        return Sums(metrics, RunningTotals.of(Charge(), {}, metrics), self.pool), Fraction(0)

    def after(self, sums: Sums, stated: Fraction, pair: Pair) -> Iterator[tuple[Sums, Fraction]]:
        """The states after a mechanism is accepted, one for each way to enter it."""
        prices = {str(PureDP(1)): [pair.own_price, None, float_up(pair.failure)]}
        records = [{"prices": prices, "left": not self.opens_again}]
        for epsilon in range(EPSILON + 1):
            delta = pair.delta(epsilon)
            record = {"epsilon": float(epsilon), "delta": float_up(delta), "prices": prices}
            records.append({"stated": record})
        for record in records:
            taken = RunningTotals.of(Charge({PureDP(1): 1}), record, sums.metrics)
            own = taken.failures
            if self.two_pools and "stated" in record:
                own = Fraction(float_up(pair.failure))
                stated_then = stated + taken.failures
                taken = replace(taken, failures=own)
            else:
                stated_then = stated
            if self.opens_again:
                taken.unpriced[PURE] = 0
                sums = replace(sums, totals=replace(sums.totals, epsilon_sum_closed=False))
            priced = sums.fits_by_prices(taken)
            added = "stated" in record and sums.fits_epsilon_sum(taken) and stated_then <= self.pool
            if not priced and not added:
                continue
            counted = taken
            if self.each_its_own:
                counted = replace(taken, sums=dict(taken.sums), unpriced=dict(taken.unpriced))
                for name, accepted in (("renyi", priced and not added), (PURE, added)):
                    if not accepted:
                        counted.sums[name] = Fraction(0)
                        counted.unpriced[name] = 0
                counted.epsilon_sum_closed = False
            totals = sums.totals.copy()
            totals.add(counted)
            yield replace(sums, totals=totals), stated_then


def value(pairs: list[Pair], rule: Rule, rounds: int = ROUNDS) -> Fraction:
    """The largest Σ [P - e^ε Q]_+ of an analyst who may choose everything from all answers."""

    def key(sums: Sums) -> tuple[object, ...]:
        totals = sums.totals
        return (
            *totals.sums.values(),
            *totals.unpriced.values(),
            totals.failures,
            totals.epsilon_sum_closed,
        )

    known: dict[tuple[object, ...], Fraction] = {}

    def best(sums: Sums, stated: Fraction, ratio: Fraction, left: int) -> Fraction:
        """The value of one unit of P that came with ``ratio`` of Q."""
        name = (*key(sums), stated, ratio, left)
        if name in known:
            return known[name]
        most = max(Fraction(0), 1 - FACTOR * ratio)
        for pair in pairs if left else ():
            seen = set()
            for then, stated_then in rule.after(sums, stated, pair):
                if (now := (*key(then), stated_then)) in seen:
                    continue
                seen.add(now)
                played = sum(
                    p * best(then, stated_then, ratio * q / p, left - 1)
                    for p, q in zip(pair.p, pair.q, strict=True)
                    if p
                )
                most = max(most, Fraction(played))
        known[name] = most
        return most

    sums, stated = rule.start()
    return best(sums, stated, Fraction(1), rounds)


PART = Fraction(1, 8)


def pair(p: tuple[Fraction | int, ...], q: tuple[Fraction | int, ...]) -> Pair:
    return Pair(tuple(map(Fraction, p)), tuple(map(Fraction, q)))


def built() -> list[Pair]:
    """A mechanism of large total variation and small losses, randomised response, a failure."""
    z = BASE**2
    q = PART / (z - 1)
    flip = Fraction(1) / (1 + FACTOR)
    return [
        pair((z * q, 1 - z * q, 0), (q, 1 - q, 0)),
        pair((1 - flip, flip, 0), (flip, 1 - flip, 0)),
        pair((1 - PART, PART), (1, 0)),
    ]


@pytest.mark.parametrize("seed", [2, 17, 28, 38, 53])
def test_no_play_is_worth_more_than_both_parts(seed: int) -> None:
    pairs = pairs_of(Random(seed), 2)  # noqa: S311
    assert value(pairs, Rule(PART, PART)) <= 2 * PART


@pytest.mark.slow
def test_no_random_play_is_worth_more_than_both_parts() -> None:
    most = Fraction(0)
    for seed in range(30, 60):
        pairs = pairs_of(Random(seed), 2)  # noqa: S311
        most = max(most, value(pairs, Rule(PART, PART)))
    assert PART < most <= 2 * PART


def test_a_play_that_was_built_is_worth_less_than_both_parts() -> None:
    rule = Rule(PART / 2, PART)
    assert value(built(), rule, 2) <= rule.conversion + rule.pool


def test_mutant_the_larger_of_both_parts_would_be_too_little() -> None:
    menu = built()[1:]
    conversion = (1 - FACTOR / BASE**6) / 8
    loss = pair((PART, 1 - PART, 0), (PART / BASE**6, 1 - PART / BASE**6, 0))
    assert conversion < PART
    found = value([loss, *menu], Rule(PART, PART), 2)
    assert PART * Fraction(5, 4) < found <= 2 * PART


def test_mutant_two_pools_counted_as_one() -> None:
    rule = Rule(PART / 2, PART, two_pools=True)
    assert value(built(), rule, 2) > rule.conversion + rule.pool


@pytest.mark.slow
def test_mutant_each_sum_counts_only_what_it_accepted() -> None:
    rule = Rule(PART / 2, PART, each_its_own=True)
    assert value(built(), rule) > rule.conversion + rule.pool


@pytest.mark.slow
def test_mutant_the_sum_of_epsilons_is_opened_again() -> None:
    rule = Rule(PART / 2, PART, opens_again=True)
    assert value(built(), rule) > rule.conversion + rule.pool


# What the rule accepts


TOTAL = Budget(1.0, 1e-6)


def spend(account, charge, stated):
    """Charge an account for what a plan states."""
    return account.spend(charge, stated=stated)


def asked(epsilon: float, delta: float) -> tuple[Charge, Budget]:
    """What a question about events costs, and what it states."""
    budget = Budget(epsilon, delta)
    return plan_two_phases(10, budget, labels_per_user=10).charge, budget


@pytest.mark.slow
@pytest.mark.parametrize("total", [TOTAL, Budget(3.0, 1e-5)])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_a_second_answer_on_events_fits_as_far_as_adding_up_grants(
    total: Budget, share: float
) -> None:
    account = Filter(total)
    delta = total.delta / 10
    first = share * total.epsilon
    spend(account, *asked(first, delta))
    assert account.can_spend(*asked(total.epsilon - first, delta))


@pytest.mark.slow
def test_a_chain_of_answers_on_events_adds_up() -> None:
    account = Filter(TOTAL)
    for epsilon in (0.1, 0.2, 0.3, 0.4):
        spend(account, *asked(epsilon, 5e-8))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta", "at_least"),
    [(0.1, 1e-8, 20), (0.05, 1e-8, 75), (0.02, 1e-8, 95), (0.01, 1e-9, 950), (0.05, 1e-7, 9)],
)
def test_many_small_answers_lose_little_by_their_statements(
    epsilon: float, delta: float, at_least: int
) -> None:
    """Without statements these are 21, 78, 99, 999 and 10."""
    assert Filter(TOTAL).fits(*asked(epsilon, delta)) >= at_least


@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.05])
def test_as_many_fit_as_are_accepted_one_after_the_other(epsilon: float) -> None:
    account = Filter(TOTAL)
    account.spend(Charge({PureDP(0.2): 1}))
    charge, stated = asked(epsilon, 2e-8)
    said = account.fits(charge, stated)
    for _ in range(said):
        account.spend(charge, stated=stated)
    assert said > 1
    assert account.fits(charge, stated) == 0
    with pytest.raises(BudgetExceeded):
        account.spend(charge, stated=stated)


def test_a_statement_is_proven_anew_and_not_believed() -> None:
    account = Filter(TOTAL)
    charge, stated = asked(0.9, 1e-7)
    account.apply(charge, account.quote(charge, Budget(0.01, 1e-7)))
    assert account.added_left() < 0.15
    account = Filter(TOTAL)
    assert account.quote(charge, stated)["stated"]["epsilon"] == pytest.approx(0.9, rel=0.01)


def test_statements_stay_when_a_part_comes_back() -> None:
    account = Filter(TOTAL)
    charge, stated = asked(0.3, 1e-7)
    record = account.spend(charge, stated=stated)
    before = account.state()
    unused = Charge({next(iter(charge.costs)): 1})
    account.revert(unused, account.quote_refund(unused, record))
    after = account.state()
    assert Fraction(after["sums"]["renyi"]) < Fraction(before["sums"]["renyi"])
    for name in ("failures", "extra", "statements"):
        assert after[name] == before[name]
    assert after["sums"]["pure"] == before["sums"]["pure"]


def test_what_is_pure_as_it_stands_comes_back_in_both_sums() -> None:
    account = Filter(TOTAL)
    charge = Charge({PureDP(0.1): 4})
    record = account.spend(charge, stated=Budget(0.4, 1e-7))
    assert "stated" not in record
    account.revert(charge, account.quote_refund(charge, record))
    assert account.can_spend(Charge({PureDP(1.0): 1}))


def test_a_sum_that_was_left_is_not_opened_again() -> None:
    account = Filter(TOTAL)
    pure = Charge({PureDP(0.01): 97})
    record = account.spend(pure)
    gaussian = Charge({GaussianDP(0.001): 1})
    assert account.quote(gaussian)["stated"]["epsilon"] < 0.03
    wide = Charge({GaussianDP(0.02): 1})
    assert account.spend(wide)["left"]
    account.revert(pure, account.quote_refund(pure, record))
    assert "stated" not in account.quote(gaussian)
    again = Filter.of_terms(json.loads(json.dumps(account.terms())))
    again.restore(json.loads(json.dumps(account.state())))
    assert again.state() == account.state()
    assert again.quote(gaussian) == account.quote(gaussian)


def test_records_of_older_versions_count_as_they_did() -> None:
    """Records without statements: a Gaussian cost closes the sum of ε's while it ran."""
    account = Filter(TOTAL)
    price = account.price(GaussianDP(0.05))
    gaussian = Charge({GaussianDP(0.05): 1}, delta=1e-8)
    record = {"prices": {str(GaussianDP(0.05)): list(price)}}
    account.apply(gaussian, record)
    state = account.state()
    assert state["unpriced"]["pure"] == 1
    assert float(Fraction(state["failures"])) == 1e-8
    for name in ("extra", "statements", "left"):
        del state[name]
    account.restore(state)
    assert not account.can_spend(Charge({PureDP(0.9): 1}))
    bare = Charge({GaussianDP(0.05): 1})
    account.revert(bare, account.quote_refund(bare, record))
    assert account.can_spend(Charge({PureDP(0.9): 1}))
    whole = ApproxDP(0.8, 4e-7)
    entered = {"whole": str(whole), "prices": {str(whole): list(account.price(whole))}}
    account.apply(Charge({GaussianDP(0.19): 1}), entered)
    assert not account.can_spend(Charge({PureDP(0.21): 1}))
    assert account.can_spend(Charge({PureDP(0.2): 1}))


def test_an_older_version_refuses_a_record_with_a_statement() -> None:
    """It reads the prices of a record under their old name; without them it counts nothing."""
    assert "prices" not in Filter(TOTAL).quote(*asked(0.3, 1e-7))


@pytest.mark.slow
def test_a_tiny_question_at_the_end_takes_no_more_of_delta_than_it_states() -> None:
    account = Filter(TOTAL)
    spend(account, *asked(0.3, 1e-7))
    spend(account, *asked(0.69, 1e-7))
    before = Fraction(account.state()["failures"])
    tiny, stated = asked(1e-3, 1e-9)
    account.spend(tiny, stated=stated)
    assert Fraction(account.state()["failures"]) - before <= Fraction(1e-9)


def test_a_question_of_more_than_the_total_is_refused_in_its_own_terms() -> None:
    account = Filter(TOTAL)
    with pytest.raises(BudgetExceeded, match=r"epsilon 3 is more than the total of 1"):
        spend(account, *asked(3.0, 1e-7))
    with pytest.raises(BudgetExceeded, match=r"delta 1e-05 is more than the total of 1e-06"):
        spend(account, *asked(0.5, 1e-5))


@pytest.mark.slow
def test_segments_and_shares_take_statements() -> None:
    regions = Parallel({name: Filter(TOTAL) for name in ("eu", "us")})
    spend(regions, *asked(0.1, 1e-7))
    assert regions.only("eu").can_spend(*asked(0.9, 1e-7))
    assert regions.fits(*asked(0.45, 1e-7)) == 2
    shares = Shares({name: Filter(TOTAL) for name in ("ann", "bob")}, 1e-5)
    spend(shares.account("ann"), *asked(0.1, 1e-7))
    assert shares.account("ann").can_spend(*asked(0.9, 1e-7))


@pytest.mark.slow
def test_a_ledger_keeps_statements(tmp_path: Path) -> None:
    charge, stated = asked(0.1, 1e-7)
    rest, last = asked(0.9, 1e-7)
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.create_dataset("d", budget=TOTAL)
        receipt = ledger.charge("d", "ann", charge, stated=stated)
        spend = ledger.spend("d", receipt.seq)
        assert spend is not None
        assert spend.stated == stated
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.charge("d", "ann", rest, stated=last)
        assert ledger.verify()
        with pytest.raises(BudgetExceeded):
            ledger.charge("d", "ann", charge, stated=stated)


@pytest.mark.parametrize("left", [1e-9, 2.5e-8, 1e-6])
def test_the_last_crumb_of_epsilon_does_not_take_all_of_delta(left: float) -> None:
    """A question of ε = 1e-6 with labels of its own, after ε was used up but for a crumb."""
    account = Filter(TOTAL)
    spend(account, Charge({PureDP(1 - left): 1}), Budget(1 - left, 0.0))
    tiny = Charge({GaussianDP(4e-7): 1})
    pool = Fraction(account.failure_delta)
    for stated, most in ((Budget(1e-6, 1e-8), Fraction(1e-8)), (None, pool / 10)):
        before = Fraction(account.state()["failures"])
        with suppress(BudgetExceeded):
            account.spend(tiny, stated=stated)
        taken = Fraction(account.state()["failures"]) - before
        assert taken <= most


def test_a_cost_without_a_price_in_a_sum_is_not_within_it():
    """Nothing else may have been taken: an unpriced cost would count as nothing."""
    cost = GaussianDP(9.0)
    metrics = Filter(Budget(1.0, 1e-6))._metrics
    assert PURE in metrics
    sums = Sums(metrics, RunningTotals.of(Charge(), {}, metrics), Fraction(1, 10**7))
    record = {"prices": {str(cost): [*[None] * len(metrics), 0.0]}}
    taken = RunningTotals.of(Charge({cost: 1}), record, metrics)
    assert not sums.covers(taken)


def test_a_statement_that_nobody_made_takes_a_part_of_the_failures_left():
    """A charge that states no δ enters the sum of ε at a tenth of what is left for failures."""
    pool = Fraction(1, 10**6)
    metrics = {"pure": Pure(1.0)}
    sums = Sums(metrics, RunningTotals.of(Charge(), {}, metrics), pool)
    cost = next(Entering(Charge({GaussianDP(0.1): 1}), sums, None).statements(None, covered=False))
    assert cost.delta == pytest.approx(float(pool * SHARE_WITHOUT_STATEMENT), rel=1e-6)
