"""A new version of data with segments: each segment's filter goes on from totals that cover every
segment's history, and nothing of it is entered anew after answers were seen.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from dptopk import (
    Accountant,
    Budget,
    BudgetExceeded,
    Charge,
    GaussianDP,
    Ledger,
    PureDP,
    Sensitivity,
)

TOTAL = Budget(1.0, 1e-6)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset(
        "d", budget=TOTAL, sensitivity=Sensitivity(l0=1), segments={"r": ["eu", "us"]}, version="1"
    )
    return ledger


def part(ledger, name):
    return ledger._now.dataset("d").account.parts[name]


def charge(ledger, cost, times, version, segment, **options):
    for _ in range(times):
        ledger.charge("d", "ann", Charge({cost: 1}), segments=[segment], version=version, **options)


def test_a_sum_that_was_left_stays_left(ledger):
    charge(ledger, GaussianDP(0.02), 60, "1", "eu")
    before = part(ledger, "eu").state()
    assert before["left"]
    ledger.set_version("d", "2")
    for name in ("eu", "us"):
        after = part(ledger, name).state()
        assert after["left"]
        assert after["statements"] == before["statements"]
        for key in ("failures", "extra"):
            assert Fraction(after[key]) >= Fraction(before[key])
        for metric, total in before["sums"].items():
            assert Fraction(after["sums"][metric]) >= Fraction(total)


def test_what_statements_took_stays_taken(ledger):
    stated = Budget(0.3, 1e-7)
    charge(ledger, GaussianDP(0.08), 2, "1", "eu", stated=stated)
    before = part(ledger, "eu").state()
    assert before["statements"] == 2
    ledger.set_version("d", "2")
    for name in ("eu", "us"):
        assert part(ledger, name).state() == before


def test_the_larger_history_counts_on_each_metric(ledger):
    charge(ledger, PureDP(0.2), 2, "1", "eu")
    charge(ledger, PureDP(0.1), 1, "1", "us")
    ledger.set_version("d", "2")
    for name in ("eu", "us"):
        assert part(ledger, name).can_spend(Charge({PureDP(0.6): 1}))
        assert not part(ledger, name).can_spend(Charge({PureDP(0.61): 1}))


def test_versions_are_read_again_and_verified(ledger, tmp_path):
    charge(ledger, GaussianDP(0.02), 12, "1", "eu")
    charge(ledger, PureDP(0.1), 1, "1", "us")
    ledger.set_version("d", "2")
    charge(ledger, GaussianDP(0.02), 1, "2", "us")
    again = Ledger(tmp_path / "ledger.db")
    assert again.verify()
    assert part(again, "us").state() == part(ledger, "us").state()


def test_versions_do_not_let_more_through(ledger):
    """The play that a version change after each answer once made possible."""
    accepted = 0
    for version in range(1, 40):
        try:
            ledger.charge(
                "d",
                "ann",
                Charge({GaussianDP(0.1): 1}),
                segments=["eu"],
                version=str(version),
                stated=Budget(0.4, 1e-7),
            )
        except BudgetExceeded:
            break
        accepted += 1
        ledger.set_version("d", str(version + 1))
    plain = 0
    account = Accountant.filter(TOTAL)
    while account.can_spend(Charge({GaussianDP(0.1): 1}), Budget(0.4, 1e-7)):
        account.spend(Charge({GaussianDP(0.1): 1}), stated=Budget(0.4, 1e-7))
        plain += 1
    assert 0 < accepted <= plain
