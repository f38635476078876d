"""No lock is left behind: readers, interrupts, forks and threads."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dptopk.budgets.filter import Filter
from dptopk.budgets.registered_account import Accountant
from dptopk.costs import BoundedRange, Budget, Charge
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.ledger import log_store, sqlite
from dptopk.ledger.heads import Head, HeadFile
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.sqlite_file import LedgerFile

ONE = Charge({BoundedRange(0.125): 1})
FORK = multiprocessing.get_context("fork")
FRESH = multiprocessing.get_context("spawn")


@pytest.fixture
def path(tmp_path):
    with Ledger(tmp_path / "ledger.db") as made:
        made.create_dataset("d", registered=ONE.times(60), delta=1e-6)
    return tmp_path / "ledger.db"


def accounts():
    return [Accountant(ONE.times(20), 1e-6), Filter(Budget(2.5))]


@pytest.mark.slow
def test_a_charge_may_be_written_while_entries_are_read(path, monkeypatch):
    monkeypatch.setattr(log_store, "PAGE", 2)
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


# A signal that arrives in a finalizer or a callback of the garbage collector is dropped by Python,
# with a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_leave_no_lock_behind(path, monkeypatch):
    """A signal arrives at random instants of spends and reads; another process can write after
    each.
    """
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
                try:
                    try:
                        # Inside: on a busy machine the signal may arrive before the next line.
                        signal.setitimer(signal.ITIMER_REAL, 0.0003 + 0.0002 * (i % 15))
                        ledger.charge("d", "ann", ONE)
                        ledger.spent("d")
                    finally:  # where the signal may still arrive
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupt:
                    interrupted += 1
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


# Only SQLite may open the file of a database: closing any other descriptor of it drops the locks
# that this process holds.

OPENED: list[str] = []
WATCHING = threading.Event()


def _note(event, arguments):
    without_access = event == "open" and arguments[2] & getattr(os, "O_PATH", 0)
    if event == "open" and WATCHING.is_set() and not without_access:
        OPENED.append("" if isinstance(arguments[0], int) else os.fsdecode(arguments[0]))


@pytest.fixture(scope="module", autouse=True)
def _hook():
    sys.addaudithook(_note)  # there is no way to take one away: it notes while it is told to


def _of_databases(folder):
    # SQLite takes no lock of a write-ahead log itself, so its header may be read
    found = [name for name in OPENED if str(folder) in name and ".db" in Path(name).name]
    return [name for name in found if not name.endswith("-wal")]


@pytest.mark.slow
def test_nobody_but_sqlite_opens_the_file_of_a_database(tmp_path):
    from typer.testing import CliRunner

    from dptopk.cli.commands import app
    from dptopk.service.tables import Tables

    path = tmp_path / "ledger.db"
    OPENED.clear()
    WATCHING.set()
    try:
        for ahead in (False, True):
            with Ledger(path, ahead=ahead) as ledger:
                if not ahead:
                    ledger.create_dataset("d", registered=ONE.times(60), delta=1e-6)
                ledger.charge("d", "ann", ONE)
                with Ledger(path, read_only=True) as reader:
                    assert reader.verify()
                ledger.backup(tmp_path / f"copy-{ahead}.db")
            Ledger(path, read_only=True).close()
        path.chmod(0o400)
        Ledger(path, read_only=True).close()
        path.chmod(0o600)
        with pytest.raises(InvalidParameter):
            Ledger.accept_restore(path, reason="nothing is wrong")
        for _ in range(2):
            Tables(str(tmp_path / "access.db")).close()
        for command in ("show", "verify", "export"):
            assert CliRunner().invoke(app, ["ledger", command, str(path)]).exit_code == 0
    finally:
        WATCHING.clear()
    assert _of_databases(tmp_path) == []
    assert (path.stat().st_mode & 0o777, (tmp_path / "access.db").stat().st_mode & 0o777) == (
        0o600,
        0o600,
    )
    WATCHING.set()
    path.open("rb").close()  # the test would notice
    WATCHING.clear()
    assert _of_databases(tmp_path) == [str(path)]


WAITS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0.1, isolation_level=None)
try:
    connection.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError:
    sys.exit(9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
def test_a_reader_of_the_same_process_leaves_the_lock_of_a_writer(path, ahead):
    """While this process holds the write lock, whatever it opens and closes beside."""

    def excluded():
        return subprocess.run([sys.executable, "-c", WAITS, str(path)], check=False).returncode

    with Ledger(path, ahead=ahead) as ledger, ledger._journal.write():
        assert excluded() == 9
        for read_only in (True, False):
            Ledger(path, read_only=read_only, ahead=ahead).close()
        ledger.backup(path.parent / "copy.db")
        assert Ledger.inspect_file(path).problems == ()
        assert excluded() == 9
    assert excluded() == 0


def _storm(path, me, ahead, seconds):
    """Charge, while two threads open and close the ledger and another one forks."""
    end, granted = time.monotonic() + seconds, []

    def read():
        while time.monotonic() < end:
            Ledger(path, read_only=True).close()

    def fork():
        while time.monotonic() < end:
            child = os.fork()
            if child == 0:
                # Another thread may hold a mutex of SQLite or of malloc at the fork: such a child
                # waits forever, whoever wrote the program, so it ends by itself.
                signal.alarm(1)
                with Ledger(path, read_only=True) as reader:
                    reader.spent("d")
                os._exit(0)
            os.waitpid(child, 0)

    threads = [threading.Thread(target=work) for work in (read, read, fork)]
    with Ledger(path, ahead=ahead) as ledger:
        for thread in threads:
            thread.start()
        for number in range(10**6):
            if time.monotonic() > end:
                break
            key = f"{me}-{number}"
            granted.append([ledger.charge("d", me, ONE, once=key).seq, key])
        for thread in threads:
            thread.join()
    (path.parent / f"{me}.json").write_text(json.dumps(granted), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [pytest.param(False, marks=pytest.mark.study), True])
def test_a_storm_of_readers_writers_and_forks_loses_nothing(path, ahead):
    with Ledger(path) as ledger:
        ledger.renew("d", registered=ONE.times(10**6), delta=1e-6, reason="room")
    writers = [FRESH.Process(target=_storm, args=(path, me, ahead, 2.5)) for me in ("ann", "bob")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        writer.kill()
        assert writer.exitcode == 0
    with Ledger(path) as ledger:
        assert ledger.verify()
        charged = {entry.seq: entry.body.get("once") for entry in ledger.entries()}
    receipts = [
        receipt
        for me in ("ann", "bob")
        for receipt in json.loads((path.parent / f"{me}.json").read_text(encoding="utf-8"))
    ]
    assert len(receipts) > 20
    assert [seq for seq, key in receipts if charged.get(seq) != key] == []


_TAKE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0.05, isolation_level=None)
try:
    connection.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError:
    sys.exit(3)
"""


@pytest.mark.parametrize("ending", ["", "-shm"])
def test_a_ledger_given_as_its_own_head_keeps_its_locks(path, ending):
    """To read a head there would open the file and, closing it, drop the lock of the writer."""
    own = path.with_name(path.name + ending)

    def is_locked():
        return subprocess.run([sys.executable, "-c", _TAKE, path], check=False).returncode == 3

    with Ledger(path, ahead=bool(ending)) as ledger, ledger._store.transaction("write"):
        assert is_locked()
        for way in (
            lambda: Ledger(path, head_file=own),
            lambda: Ledger(path, head_file=own, read_only=True),
            lambda: Ledger.attach_witness(path, own, reason="r"),
            lambda: ledger.move_witness(own, reason="r"),
            lambda: Ledger.inspect_file(path, head_file=own),
            lambda: Ledger.migrate(path, path.with_name("new.db"), head_file=own),
        ):
            with pytest.raises(InvalidParameter):
                way()
        with pytest.raises(LedgerError):
            ledger.backup(own)
        assert is_locked()


@pytest.mark.parametrize("ending", ["", "-journal"])
def test_a_head_that_becomes_a_link_to_the_ledger_keeps_its_locks(tmp_path, ending):
    """Whoever reads the head meanwhile must not close the file of the ledger."""
    path = tmp_path / "ledger.db"
    head = tmp_path / "head.json"
    with Ledger(path, head_file=head) as ledger:
        ledger.create_dataset("d", registered=ONE.times(9), delta=1e-6)
        head.unlink()
        head.symlink_to(f"{path}{ending}")
        with Ledger(path, read_only=True) as other, other._store.transaction():
            OPENED.clear()
            WATCHING.set()
            with pytest.raises(LedgerError, match="not an exported head"):
                ledger.charge("d", "ann", ONE)
            WATCHING.clear()
    assert [name for name in OPENED if "head.json" in name] == []


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="files are opened by their names there")
def test_a_head_that_becomes_a_link_while_it_is_read_keeps_the_locks(path, tmp_path, monkeypatch):
    """Between the look at the file and its opening: what was looked at is read."""
    head = tmp_path / "disk.json"
    there = Head(7, "0" * 64, "id")
    assert HeadFile(head).swap(None, there)
    look = HeadFile._refuse_what_is_no_head

    def replaced(self, status):
        look(self, status)
        head.unlink()
        head.symlink_to(path)

    monkeypatch.setattr(HeadFile, "_refuse_what_is_no_head", replaced)
    with Ledger(path) as ledger, ledger._store.transaction("write"):
        assert HeadFile(head, LedgerFile.at(path)).read() == there
        assert subprocess.run([sys.executable, "-c", _TAKE, path], check=False).returncode == 3


def test_a_store_that_is_opened_while_a_process_forks_hides_no_other(monkeypatch):
    """Python refuses to go through a set that grows; then the child got no lock of the parent's."""

    class Growing:
        calls = 0

        def __iter__(self):
            self.calls += 1
            if self.calls < 3:
                raise RuntimeError("Set changed size during iteration")
            return iter(["a store"])

    monkeypatch.setattr(log_store, "_stores", Growing())
    assert log_store._stores_in_use() == ["a store"]


FORK_BESIDE_A_MIGRATION = """
import os, sys, threading, time
from dptopk.ledger import migrate
from dptopk.ledger.heads import Head, HeadFile
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.sqlite_file import LedgerFile

journal, reached, go_on = migrate.Journal, threading.Event(), threading.Event()

def waiting(store):  # the store of the new file was made, and nobody has locked it
    reached.set()
    go_on.wait(5)
    return journal(store)

migrate.Journal = waiting
thread = threading.Thread(target=Ledger.migrate, args=(sys.argv[1], sys.argv[2]), daemon=True)
thread.start()
reached.wait(10)

def fork():
    if os.fork() == 0:
        os._exit(0)

forking = threading.Thread(target=fork, daemon=True)
forking.start()
time.sleep(0.3)  # the fork has taken what it can, and waits for the rest
go_on.set()
thread.join(20)
forking.join(20)
print(thread.is_alive(), forking.is_alive(), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_a_fork_waits_for_a_migration_of_its_process(path):
    """Each held a lock that the other one waited for."""
    command = [sys.executable, "-c", FORK_BESIDE_A_MIGRATION, path, path.with_name("new.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == ["False", "False"]
