"""No lock is left behind: readers, interrupts, forks and threads."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time

import pytest

from dptopk.budgets.accountant import Accountant
from dptopk.budgets.filter import Filter
from dptopk.costs import BoundedRange, Budget, Charge
from dptopk.errors import BudgetExceeded, InvalidParameter
from dptopk.ledger import sqlite, store
from dptopk.ledger.ledger import Ledger

ONE = Charge({BoundedRange(0.125): 1})
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    with Ledger(tmp_path / "ledger.db") as made:
        made.create_dataset("d", registered=ONE.times(60), delta=1e-6)
    return tmp_path / "ledger.db"


def accounts():
    return [Accountant(ONE.times(20), 1e-6), Filter(Budget(2.5))]


@pytest.mark.slow
def test_a_charge_may_be_written_while_entries_are_read(path, monkeypatch):
    monkeypatch.setattr(store, "PAGE", 2)
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_MS", 2000)
    with Ledger(path) as ledger, Ledger(path) as other:
        for _ in range(5):
            ledger.charge("d", "ann", ONE)
        seen = []
        for entry in ledger.entries():
            seen.append(entry.seq)
            if len(seen) <= 5:
                ledger.charge("d", "ann", ONE)
                other.charge("d", "bob", ONE)
        assert seen == list(range(1, 18))
        kept = other.entries()
        next(kept)
        ledger.charge("d", "ann", ONE)


# A signal that arrives in a finalizer or a callback of the garbage collector is dropped by Python, with a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_leave_no_lock_behind(path, monkeypatch):
    """A signal arrives at random instants of spends and reads; another process can write after each."""
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_MS", 3000)

    class Interrupt(BaseException):
        pass

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = written = 0
    try:
        with Ledger(path) as ledger, Ledger(path) as other:
            for i in range(30):
                signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.0002 * (i % 15))
                try:
                    ledger.charge("d", "ann", ONE)
                    ledger.spent("d")
                except Interrupt:
                    interrupted += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                if i % 3 == 0:
                    other.charge("d", "bob", ONE)
                    written += 1
            assert other.verify()
            assert ledger.spent("d") == other.spent("d")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 5
    assert written == 10


def in_child(work):
    """Run in a forked child; its exit code, or None when it hangs."""
    child = FORK.Process(target=lambda: os._exit(work()))
    child.start()
    child.join(20)
    if child.is_alive():
        child.kill()
        return None
    return child.exitcode


def test_a_child_forked_in_the_middle_of_a_charge_can_charge(path):
    with Ledger(path) as ledger:
        inside = threading.Event()

        def hold():
            with ledger._journal.write():
                inside.set()
                time.sleep(0.3)

        def child():
            ledger.charge("d", "child", ONE)
            return 0

        holder = threading.Thread(target=hold)
        holder.start()
        inside.wait(20)
        assert in_child(child) == 0
        holder.join(20)
        ledger.charge("d", "ann", ONE)
        assert ledger.spent("d").count == 2
        assert ledger.verify()


@pytest.mark.parametrize("account", accounts(), ids=lambda account: type(account).__name__)
def test_an_account_cannot_be_copied_pickled_or_forked(account):
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidParameter, match="second budget"):
            duplicate(account)

    def child():
        try:
            account.spend(ONE)
        except InvalidParameter:
            return 7
        return 0

    assert in_child(child) == 7
    account.spend(ONE)


@pytest.mark.parametrize("account", accounts(), ids=lambda account: type(account).__name__)
def test_threads_never_overspend_an_account(account):
    granted = []

    def spend():
        while True:
            try:
                account.spend(ONE)
            except BudgetExceeded:
                return
            granted.append(1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=spend) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sum(granted) == 20
