"""Several analysts on one data set: the product of their groups, fixed beforehand, never above the
sum.
"""

from __future__ import annotations

import numpy as np
import pytest

from dptopk.accounting.bounds import compose
from dptopk.budgets.account_base import Account
from dptopk.budgets.filter import Filter
from dptopk.budgets.registered_account import Accountant
from dptopk.budgets.shares import Shares
from dptopk.costs import (
    ZCDP,
    ApproxDP,
    BoundedRange,
    Budget,
    Charge,
    DiscreteGaussianDP,
    GaussianDP,
    PureDP,
)
from dptopk.errors import BudgetExceeded, InvalidParameter
from dptopk.ledger.ledger import Ledger

MONTH = Charge({BoundedRange(0.1): 30})
DELTA = 1e-6


def made() -> dict[str, Account]:
    return {
        "ann": Accountant(MONTH, DELTA),
        "bob": Accountant(Charge({PureDP(0.2): 5, GaussianDP(0.1): 1}), DELTA),
        "reserve": Filter(Budget(0.3, 1e-7)),
    }


@pytest.mark.slow
def test_the_total_is_the_bound_for_all_groups_together_and_below_the_sum() -> None:
    shares = Shares(made(), DELTA)
    together = Charge.join(
        MONTH, Charge({PureDP(0.2): 5, GaussianDP(0.1): 1, ApproxDP(0.3, 1e-7): 1})
    )
    assert shares.group() == together
    assert shares.epsilon() == compose(together, delta=DELTA).epsilon
    assert shares.epsilon() < 0.9 * shares.sum().epsilon
    alone = Shares({"ann": Accountant(MONTH, DELTA)}, DELTA)
    assert alone.epsilon() <= min(alone.sum().epsilon, compose(MONTH, delta=DELTA).epsilon)


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_it_is_never_above_the_sum(delta: float, count: int) -> None:
    shares = Shares(
        {f"a{i}": Accountant(Charge({PureDP(0.3): 1}), delta) for i in range(count)}, delta
    )
    assert shares.epsilon() <= shares.sum().epsilon


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.study), 1, 2])
def test_any_shares_are_within_their_sum_and_above_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = [
        BoundedRange(0.1),
        PureDP(0.3),
        GaussianDP(0.1),
        ZCDP(0.02),
        DiscreteGaussianDP(20.0, 1),
    ]
    charges = [
        Charge({costs[i]: int(rng.integers(1, 20)) for i in rng.choice(5, 2)}) for _ in range(3)
    ]
    parts: dict[str, Account] = {
        f"a{i}": Accountant(charge, DELTA) for i, charge in enumerate(charges)
    }
    parts["reserve"] = Filter(Budget(0.2, 1e-8))
    shares = Shares(parts, DELTA)
    assert (
        max(part.epsilon() for part in parts.values()) * (1 - 1e-2)
        <= shares.epsilon()
        <= shares.sum().epsilon
    )
    everything = Charge.join(*charges, Charge({ApproxDP(0.2, 1e-8): 1}))
    lower = compose(everything, delta=DELTA).lower
    assert lower is None or shares.epsilon() >= lower


@pytest.mark.slow
def test_each_analyst_spends_an_own_share_and_the_rest_the_reserve() -> None:
    shares = Shares(made(), DELTA)
    before = shares.epsilon()
    shares.account("ann").spend(MONTH)
    with pytest.raises(BudgetExceeded):
        shares.account("ann").spend(Charge({BoundedRange(0.1): 1}))
    shares.account("eve").spend(Charge({PureDP(0.2): 1}))
    assert shares.account("fay") is shares.account("eve")
    assert shares.shares() == {"ann": 1.0, "bob": 0.0, "reserve": pytest.approx(0.2 / 0.3, abs=0.3)}
    assert shares.epsilon() == before
    assert shares.summary().epsilon_spent <= before
    with pytest.raises(InvalidParameter, match="analyst"):
        shares.spend(Charge({PureDP(0.2): 1}))
    closed = Shares({"ann": Accountant(MONTH, DELTA)}, DELTA)
    with pytest.raises(BudgetExceeded, match="no reserve"):
        closed.account("eve")


def test_shares_are_fixed_before_the_first_answer() -> None:
    late = Accountant(MONTH, DELTA)
    late.spend(Charge({BoundedRange(0.1): 1}))
    with pytest.raises(InvalidParameter, match="before the first answer"):
        Shares({"ann": late}, DELTA)
    for parts in ({}, {"ann": MONTH}):
        with pytest.raises(InvalidParameter, match="parts"):
            Shares(parts, DELTA)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_ledger_keeps_shares(tmp_path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        shares = {"Ann": MONTH, "bob": MONTH, "reserve": Budget(0.3, 1e-7)}
        ledger.create_dataset("d", shares=shares, delta=DELTA)
        epsilon = ledger.state("d").account.epsilon()
        receipt = ledger.charge("d", "ann", MONTH)
        ledger.finalize(receipt, Charge({BoundedRange(0.1): 10}))
        assert ledger.summary("d", analyst="ann").fits(Charge({BoundedRange(0.1): 1})) == 20
        assert ledger.summary("d", analyst="bob").share == 0
        ledger.set_limit("d", "eve", budget=Budget(0.1, 1e-8))
        ledger.charge("d", "eve", Charge({PureDP(0.1): 1}))
        with pytest.raises(BudgetExceeded, match="limit of 'eve'"):
            ledger.charge("d", "eve", Charge({PureDP(0.1): 1}))
        with pytest.raises(BudgetExceeded, match="dataset"):
            ledger.charge("d", "fay", Charge({PureDP(0.31): 1}))
        assert ledger.verify()
    with Ledger(path) as again:
        assert again.state("d").account.epsilon() == epsilon
        assert again.spent("d", analyst="ann").count == 10
        assert again.spent("d").count == 11
        with pytest.raises(InvalidParameter, match="exactly one"):
            again.create_dataset("e", shares={"ann": MONTH}, registered=MONTH, delta=DELTA)
        for shares in ({}, {"ann": MONTH, "ANN": MONTH}, {"ann": "BR(1)"}):
            with pytest.raises(InvalidParameter, match="shares"):
                again.create_dataset("e", shares=shares, delta=DELTA)
        with pytest.raises(InvalidParameter, match="delta"):
            again.create_dataset(
                "e", shares={"ann": Budget(1, 1e-3), "bob": Budget(1, 1e-3)}, delta=1.5e-3
            )
