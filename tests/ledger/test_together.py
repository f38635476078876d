"""Several writes in one transaction: all of them or, on an error, nothing."""

from __future__ import annotations

import pytest

from dptopk.costs import Budget, Charge
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.ledger.ledger import Ledger

SMALL = Charge.parse("DP(0.3)")


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.create_dataset("data", budget=Budget(1.0, 1e-6))
        yield ledger


def test_a_charge_and_its_answer_and_what_is_refused_beside_them(ledger, tmp_path):
    with ledger._journal.write():
        receipt = ledger.charge("data", "ann", SMALL, once="a-key")
        ledger.finalize(receipt, SMALL, answer={"rows": []})
        with pytest.raises(BudgetExceeded):
            ledger.charge("data", "ann", Charge.parse("DP(5)"))
        assert ledger.asked("data", "ann", "a-key").released  # inside, what was written is there
        with Ledger(tmp_path / "ledger.db", read_only=True) as other:
            assert other.recent("data") == []
    assert [spend.seq for spend in ledger.recent("data", analyst="Ann")] == [receipt.seq]
    assert ledger.spend("data", receipt.seq).answer == receipt.seq + 1
    assert ledger.recent("data", at_most=0) == []
    with pytest.raises(InvalidParameter, match="at_most must be at least 0, got -1"):
        ledger.recent("data", at_most=-1)
    with pytest.raises(InvalidParameter, match="and not blank, got '  '"):
        ledger.recent("data", analyst="  ")
    assert ledger.spend("data", receipt.seq + 1) is None
    assert ledger.verify()


@pytest.mark.parametrize("error", [RuntimeError, LedgerError, KeyboardInterrupt])
def test_an_error_undoes_all(ledger, error):
    with pytest.raises(error), ledger._journal.write():
        ledger.charge("data", "ann", SMALL, once="a-key")
        raise error
    assert ledger.asked("data", "ann", "a-key") is None
    assert ledger.spent("data") == Charge()
    assert ledger.verify()


def test_an_error_inside_that_was_caught_undoes_all(ledger):
    def part():
        with ledger._journal.write():
            ledger.charge("data", "ann", SMALL)
            raise LedgerError("half done")

    with pytest.raises(LedgerError, match="part of this"), ledger._journal.write():
        ledger.charge("data", "bob", SMALL)
        with pytest.raises(LedgerError, match="half done"):
            part()
    assert ledger.recent("data") == []
    assert ledger.verify()


def test_a_part_that_wrote_and_was_refused_then_undoes_all(ledger):
    def part():
        with ledger._journal.write():
            ledger.charge("data", "ann", SMALL)
            ledger.charge("data", "ann", Charge.parse("DP(5)"))

    with (
        pytest.raises(LedgerError, match="part of this"),
        ledger._journal.write(),
        pytest.raises(BudgetExceeded),
    ):
        part()
    assert ledger.recent("data") == []
    assert ledger.verify()
