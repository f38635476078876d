"""A ledger that is written ahead: one sync a commit, a file that knows what it lacks, and one file
in the end.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dptopk.costs import Charge, PureDP
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.ledger.journal import Journal
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.sqlite import SQLite
from dptopk.ledger.sqlite_file import NEEDS_LOG, LedgerFile
from dptopk.ledger.transaction import Transaction

ONE = Charge({PureDP(0.1): 1})
TOTAL = 8
CHARGES = """
import os, sys
from dptopk.costs import Charge, PureDP
from dptopk.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1], ahead=True)
for _ in range(int(sys.argv[2])):
    ledger.charge("d", "bob", Charge({PureDP(0.1): 1}))
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def path(tmp_path):
    with Ledger(tmp_path / "ledger.db") as made:
        made.create_dataset("d", registered=ONE.times(TOTAL), delta=1e-6)
        made.charge("d", "ann", ONE)
    return tmp_path / "ledger.db"


def killed(path, charges=3):
    def work():
        ledger = Ledger(path, ahead=True)
        for _ in range(charges):
            ledger.charge("d", "bob", ONE)
        os.kill(os.getpid(), signal.SIGKILL)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL


def names(path):
    return {file.name for file in path.parent.iterdir() if file.name.startswith("ledger.db")} - {
        "ledger.db-journal"
    }


@pytest.mark.slow
def test_the_last_one_to_close_leaves_one_file(path):
    first, second, third = (Ledger(path, ahead=ahead) for ahead in (True, True, False))
    for ledger in (first, second, third):
        ledger.charge("d", "ann", ONE)
        assert names(path) == {"ledger.db", "ledger.db-wal", "ledger.db-shm"}
    for ledger in (second, first):
        ledger.close()
    third.charge("d", "ann", ONE)
    assert "ledger.db-wal" in names(path)
    del third  # nobody closes it
    gc.collect()
    assert names(path) == {"ledger.db"}
    shutil.copy(path, path.parent / "copy.db")
    with Ledger(path.parent / "copy.db", read_only=True) as copy:
        assert copy.spent("d").count == 5
        assert copy.verify()


def test_what_was_committed_survives_a_kill_and_a_file_without_its_log_is_refused(path):
    killed(path)
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{path.parent}/moved.db{suffix}")
    shutil.copy(path, path.parent / "copy.db")
    with Ledger(path.parent / "moved.db") as moved:
        assert moved.spent("d").count == 4
        assert moved.verify()
    for read_only in (True, False):
        with pytest.raises(LedgerError, match="copy both files"):
            Ledger(path.parent / "copy.db", read_only=read_only)
    with Ledger(path, read_only=True) as reader:
        assert reader.spent("d").count == 4
        assert reader.verify()
    with Ledger(path) as ledger:  # which is not written ahead of
        ledger.charge("d", "ann", ONE)
        assert ledger.spent("d").count == 5
    assert names(path) == {"ledger.db"}


@pytest.mark.slow
def test_a_lost_log_is_gone_on_without_on_purpose_only(path):
    killed(path)
    Path(f"{path}-wal").unlink()
    with pytest.raises(LedgerError, match="lacks what its log"):
        Ledger(path)
    with pytest.raises(LedgerError):
        Ledger.accept_restore(path, reason="a clean-up", key="a wrong one")
    with pytest.raises(LedgerError, match="lacks what its log"):
        Ledger(path)
    assert Ledger.accept_restore(path, reason="a clean-up") is None
    with Ledger(path) as again:
        assert again.spent("d") == ONE
        assert any("accepts a restored file" in warning for warning in again.inspect().warnings)
    with pytest.raises(InvalidParameter, match="nothing to accept"):
        Ledger.accept_restore(path, reason="again")


@pytest.mark.parametrize("damage", ["looked into", "cut", "another file", "header"])
def test_a_log_without_a_header_is_a_lost_log(path, damage):
    killed(path)
    log = Path(f"{path}-wal")
    whole = log.read_bytes()
    log.unlink()
    Path(f"{path}-shm").unlink()
    if damage == "looked into":
        connection = sqlite3.connect(path)
        connection.execute("SELECT count(*) FROM entries").fetchone()
        assert log.stat().st_size == 0
    else:
        changed = whole[:20] + bytes([whole[20] ^ 1]) + whole[21:]
        kinds = {"cut": whole[:31], "another file": bytes(5000), "header": changed}
        log.write_bytes(kinds[damage])
    for read_only in (True, False):
        with pytest.raises(LedgerError, match="lacks what its log"):
            Ledger(path, read_only=read_only)
    if damage == "looked into":
        connection.close()


def test_a_service_that_has_written_nothing_yet_has_a_log_with_a_header(path):
    with Ledger(path, ahead=True) as first:
        assert first.spent("d").count == 1  # nothing but a reading
        assert LedgerFile.at(path).mark() == NEEDS_LOG
        assert not LedgerFile.at(path).lacks_log()
        with Ledger(path, ahead=True) as second:
            second.charge("d", "ann", ONE)
        assert first.spent("d").count == 2


def test_a_backup_of_a_ledger_in_use_is_one_whole_file(path):
    with Ledger(path, ahead=True) as ledger:
        ledger.charge("d", "ann", ONE)
        ledger.backup(path.parent / "backup.db")
        ledger.charge("d", "ann", ONE)
    with Ledger(path.parent / "backup.db") as copy:
        assert copy.spent("d").count == 2
        assert copy.verify()


def test_a_refusal_keeps_the_log_and_its_mark(path):
    with Ledger(path, ahead=True) as ledger:
        with pytest.raises(BudgetExceeded):
            ledger.charge("d", "ann", ONE.times(TOTAL))
        assert "ledger.db-wal" in names(path)
        shutil.copy(path, path.parent / "copy.db")
    with pytest.raises(LedgerError, match="copy both files"):
        Ledger(path.parent / "copy.db")


def test_a_closing_process_that_is_not_the_last_leaves_the_mark_to_the_next_commit(path):
    with Ledger(path, ahead=True) as one:
        Ledger(path, ahead=True).close()
        one.charge("d", "ann", ONE)
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert other.execute("PRAGMA user_version").fetchone() == (1,)


def test_nothing_is_written_ahead_on_a_network_disk(path):
    with Ledger(path, ahead=True, network=True) as ledger:
        ledger.charge("d", "ann", ONE)
        assert names(path) == {"ledger.db"}


@pytest.mark.parametrize("log", ["stays", "goes"])
@pytest.mark.parametrize(
    ("where", "at"),
    [
        (Transaction, "entries"),
        (SQLite, "take"),
        (SQLite, "begin"),
        (SQLite, "commit"),
        (SQLite, "give_back"),
    ],
)
def test_a_file_put_back_under_a_log_grants_nothing_twice(path, monkeypatch, where, at, log):
    head_file, granted, due = path.parent / "head.json", 1, True
    Ledger.attach_witness(path, head_file, reason="from now on")
    old = path.read_bytes()
    ledger, real = Ledger(path, head_file=head_file, ahead=True), getattr(where, at)
    for _ in range(3):
        ledger.charge("d", "ann", ONE)
        granted += 1

    def putting_back(*arguments):
        nonlocal due
        result = real(*arguments)
        if due:
            path.write_bytes(old)
            for suffix in ("-wal", "-shm") if log == "goes" else ():
                Path(f"{path}{suffix}").unlink(missing_ok=True)
        due = False
        return result

    with monkeypatch.context() as patched:
        patched.setattr(where, at, putting_back)
        with contextlib.suppress(LedgerError):
            ledger.charge("d", "ann", ONE)
            granted += 1
    assert not due
    for again in (ledger, None):
        with contextlib.suppress(LedgerError, BudgetExceeded):
            again = again or Ledger(path, head_file=head_file)
            while granted < 3 * TOTAL:
                again.charge("d", "ann", ONE)
                granted += 1
    assert granted <= TOTAL


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="syncs are counted by strace")
def test_a_commit_waits_for_one_sync(path):
    def syncs(charges):
        traced = [
            "strace",
            "-f",
            "-e",
            "trace=fsync,fdatasync",
            sys.executable,
            "-c",
            CHARGES,
            str(path),
            str(charges),
        ]
        told = subprocess.run(
            traced, capture_output=True, text=True, check=False, env=os.environ
        ).stderr
        if "sync(" not in told:
            pytest.skip("strace may not trace here")
        return told.count("sync(")

    killed(path, 1)  # from now on there is a log
    assert syncs(4) - syncs(1) <= 3


def _header_says(path):
    """What the main file itself says, without its log, as a copy of it alone would."""
    code = "import sys; print(int.from_bytes(open(sys.argv[1], 'rb').read(64)[60:], 'big'))"
    return int(subprocess.check_output([sys.executable, "-c", code, str(path)]))


@pytest.mark.slow
def test_the_mark_is_in_the_file_as_long_as_there_is_a_log(path):
    """Others open and close beside the one who writes ahead; SQLite takes in the log meanwhile."""
    with Ledger(path, ahead=True) as service:
        service.renew("d", registered=ONE.times(1000), delta=1e-6, reason="room")
        assert _header_says(path) == 1
        for number in range(250):
            service.charge("d", "ann", ONE)
            Ledger(path).close()
            if number % 20 == 10:  # also right after SQLite took it in
                with contextlib.closing(sqlite3.connect(path)) as other:
                    other.execute("PRAGMA wal_checkpoint(PASSIVE)")
            if number % 10 == 0:
                assert _header_says(path) == 1
        assert _header_says(path) == 1
    assert _header_says(path) == 0
    assert names(path) == {"ledger.db"}


@pytest.mark.slow
def test_several_who_close_at_once_leave_one_complete_file(path):
    context = multiprocessing.get_context("fork")

    def work(barrier):
        for _ in range(8):
            ledger = Ledger(path, ahead=True)
            ledger.spent("d")
            barrier.wait()
            ledger.close()
            barrier.wait()

    barrier = context.Barrier(3)
    workers = [context.Process(target=work, args=(barrier,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert _header_says(path) == 0
    assert names(path) == {"ledger.db"}
    with Ledger(path) as ledger:
        assert ledger.verify()


@pytest.mark.slow
def test_a_lost_log_is_accepted_with_its_entry_or_not_at_all(path):
    """Killed in between, the file would open as a complete one, with nothing recorded."""
    killed(path)
    Path(f"{path}-wal").unlink()
    child = os.fork()
    if child == 0:
        Journal.accept_restore = lambda *_arguments, **_options: os._exit(0)
        with suppress(BaseException):
            Ledger.accept_restore(path, reason="r")
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(LedgerError, match="lacks what its log"):
        Ledger(path)
    Ledger.accept_restore(path, reason="r")
    with Ledger(path) as ledger:
        assert [entry.kind for entry in ledger.entries()][-1] == "restore"
        ledger.charge("d", "ann", ONE)
    assert names(path) == {"ledger.db"}


@pytest.mark.parametrize("later", [0, 1])
def test_a_head_vouches_for_a_file_whose_log_was_taken_in(path, tmp_path, monkeypatch, later):
    """A process was killed while it closed the ledger, before it removed the mark; a later entry,
    which only the log had, is missed.
    """
    head = tmp_path / "head.json"
    Ledger.attach_witness(path, head, reason="from now on")
    with Ledger(path, head_file=head, ahead=True) as ledger:
        ledger.charge("d", "ann", ONE)
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode=WAL")
        file.execute(f"PRAGMA user_version={NEEDS_LOG}")
    shutil.copy(path, tmp_path / "copy.db")
    for _ in range(later):
        with Ledger(path, head_file=head) as ledger:
            ledger.charge("d", "ann", ONE)
    shutil.copy(tmp_path / "copy.db", path)
    with pytest.raises(LedgerError, match="lacks what its log"):
        Ledger(path, create=False)
    if later:
        with pytest.raises(LedgerError, match="lacks what its log"):
            Ledger(path, head_file=head)
        return
    with Ledger(path, head_file=head) as ledger:
        assert ledger.spent("d") == ONE.times(2)
        ledger.charge("d", "ann", ONE)
        assert ledger.verify()


@pytest.mark.slow  # a process that is killed
@pytest.mark.parametrize("looked", [True, False])
def test_whoever_lost_the_shared_memory_of_a_log_writes_over_nobody(path, looked):
    """The locks of a log are in its -shm file: the charge of the second process was overwritten."""
    show = "from dptopk.ledger.ledger import Ledger; import sys; l = Ledger(sys.argv[1])"
    with Ledger(path, ahead=True) as ledger:
        ledger.charge("d", "ann", ONE)
        Path(f"{path}-shm").unlink()
        # Other processes: in this one SQLite shares the lost memory with every connection.
        subprocess.run([sys.executable, "-c", CHARGES, path, "1"], check=False)
        if looked:
            with pytest.raises(LedgerError, match="start it again"):
                ledger.charge("d", "ann", ONE)
    shown = [sys.executable, "-c", f"{show}; print(l.spent('d'), l.verify())", path]
    assert subprocess.check_output(shown, text=True) == "3*DP(0.1) True\n"


@pytest.mark.slow
@pytest.mark.parametrize("endings", [["-wal"], ["-wal", "-shm"]])
def test_whoever_lost_the_log_itself_writes_nothing_more(path, endings):
    """A copy of the log is put in its place: what was charged afterwards was in the log that nobody
    else sees, and gone with the process.
    """
    charges = """
ledger = Ledger(sys.argv[1], ahead=True)
ledger.charge("d", "bob", Charge({PureDP(0.1): 1}))
for ending in sys.argv[2:]:
    shutil.copy(sys.argv[1] + ending, sys.argv[1] + ".copy")
    os.replace(sys.argv[1] + ".copy", sys.argv[1] + ending)
try:
    print(ledger.charge("d", "bob", Charge({PureDP(0.1): 1})).seq)
except LedgerError as error:
    print(error)
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""
    imports = "import os, shutil, sys\nfrom dptopk import Charge, Ledger, LedgerError, PureDP"
    program = [sys.executable, "-c", imports + charges, path, *endings]
    shown = subprocess.run(program, capture_output=True, text=True, check=False).stdout
    assert "start it again" in shown
    with Ledger(path) as ledger:
        assert ledger.spent("d") == ONE.times(2)
        assert ledger.verify()


@pytest.mark.slow
def test_a_second_ledger_of_a_process_has_the_log_that_the_first_one_opened(path):
    """SQLite shares the memory of a log among all connections of a process."""
    with Ledger(path, ahead=True) as ledger:
        ledger.charge("d", "ann", ONE)
        Path(f"{path}-shm").unlink()
        subprocess.run([sys.executable, "-c", CHARGES, path, "1"], check=False)
        with pytest.raises(LedgerError, match="start it again"):
            Ledger(path, ahead=True)
    count = "from dptopk import Ledger; import sys; print(Ledger(sys.argv[1]).spent('d'))"
    counted = subprocess.check_output([sys.executable, "-c", count, path], text=True)
    assert counted == "3*DP(0.1)\n"


@pytest.mark.slow
@pytest.mark.parametrize("inherited", [True, False])
def test_a_child_has_the_log_of_its_file_and_not_that_of_its_parent(path, inherited):
    """SQLite in a child believed that it held the parent's locks and shared its memory: when the
    parent had closed the ledger and another process had opened it, both wrote to the same places.
    """
    ledger = Ledger(path, ahead=True)
    ledger.charge("d", "ann", ONE)
    context = multiprocessing.get_context("fork")
    begin = context.Event()

    def work():
        begin.wait(60)
        child_ledger = ledger if inherited else Ledger(path, ahead=True)
        child_ledger.charge("d", "child", ONE)
        os.kill(os.getpid(), signal.SIGKILL)

    child = context.Process(target=work)
    child.start()
    ledger.close()
    waits = CHARGES.replace("os.kill", "print(flush=True); sys.stdin.read(); os.kill")
    other = [sys.executable, "-c", waits, str(path), "2"]
    with subprocess.Popen(other, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # it has charged twice
        begin.set()
        child.join(60)
        process.stdin.close()
    with Ledger(path) as ledger:
        assert ledger.spent("d") == ONE.times(5)
        assert ledger.verify()


def test_a_ledger_that_was_closed_has_another_shared_memory_when_it_is_used_again(path):
    with Ledger(path, ahead=True) as ledger:
        ledger.charge("d", "ann", ONE)
        ledger.close()
        ledger.charge("d", "ann", ONE)
        assert ledger.spent("d") == ONE.times(3)
