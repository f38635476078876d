"""No rollback: an older state put back, a fork of the log or a lost row grants nothing that was
spent before.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import sqlite3
from dataclasses import asdict, replace

import pytest
from typer.testing import CliRunner

from dptopk.cli.commands import app
from dptopk.costs import Budget, Charge, PureDP
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.ledger.heads import HeadFile, HeadTable
from dptopk.ledger.journal import Journal
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.sqlite import SQLite
from dptopk.ledger.transaction import Transaction

ONE = Charge({PureDP(0.1): 1})
TOTAL = 8


@pytest.fixture
def path(tmp_path):
    with Ledger(tmp_path / "ledger.db", head_file=tmp_path / "head.json") as made:
        made.create_dataset("d", registered=ONE.times(TOTAL), delta=1e-6)
        made.charge("d", "ann", ONE)
    shutil.copy(tmp_path / "ledger.db", tmp_path / "old.db")
    return tmp_path / "ledger.db"


def put_back(path):
    """Write the old state into the file itself, as ``cat old.db > ledger.db`` does."""
    path.write_bytes((path.parent / "old.db").read_bytes())


def spend(path, times, **options):
    with Ledger(path, **options) as ledger:
        for _ in range(times):
            ledger.charge("d", "bob", ONE)
        return ledger.head()


@contextlib.contextmanager
def unaware(monkeypatch):
    """As a version of the program that knows nothing of a missing head."""
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_check_stored_head", lambda _self, kept: kept)
        yield


def whole_but_for_its_head(path):
    """Nothing is wrong with the file itself, which can be read; it grants nothing without a head."""
    with Ledger(path) as ledger:
        (problem,) = ledger.check()
        assert "head of this ledger is missing" in problem
        with pytest.raises(LedgerError, match="head of this ledger is missing"):
            ledger.charge("d", "bob", ONE)
    return True


@pytest.mark.parametrize("disturbed", ["not", "failed", "forked"])
def test_a_file_put_back_under_a_running_process_grants_nothing(path, disturbed):
    head_file = path.parent / "head.json"
    ledger = Ledger(path, head_file=head_file)
    for _ in range(4):
        ledger.charge("d", "ann", ONE)
    kept = head_file.read_text(encoding="utf-8")
    put_back(path)
    if disturbed == "failed":
        ledger._journal._pid = 0  # as a failed transaction leaves it: the state is read anew

    def refused():
        for _ in range(2):
            with pytest.raises(LedgerError, match="tail is missing"):
                ledger.charge("d", "ann", ONE)
        assert not ledger.verify()
        return 0

    if disturbed == "forked":
        child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(refused()))
        child.start()
        child.join(30)
        assert child.exitcode == 0
    refused()
    assert head_file.read_text(encoding="utf-8") == kept
    with Ledger(path) as reader:  # the file itself can be read
        assert reader.spent("d") == ONE
        assert not reader.verify(head=json.loads(kept))
    assert whole_but_for_its_head(path)
    with pytest.raises(LedgerError, match="old copy"):
        Ledger(path, head_file=head_file)


@pytest.mark.parametrize("others", range(1, 6))
def test_a_fork_of_the_log_is_refused(path, monkeypatch, others):
    """Another process, which knows nothing of it, goes on with the old state: shorter, as long as,
    or longer.
    """
    head_file = path.parent / "head.json"
    ledger = Ledger(path, head_file=head_file)
    for _ in range(3):
        ledger.charge("d", "ann", ONE)
    kept = head_file.read_text(encoding="utf-8")
    put_back(path)
    with unaware(monkeypatch):
        spend(path, others)
    for _ in range(2):
        with pytest.raises(LedgerError, match="tail is missing" if others < 3 else "was rewritten"):
            ledger.charge("d", "ann", ONE)
    assert head_file.read_text(encoding="utf-8") == kept
    assert Ledger(path).spent("d").count == 1 + others


TWICE = [  # when what a process knows is read, and when the charge is written
    (Transaction, "entries"),
    (Transaction, "hash_of"),
    (SQLite, "take"),
    (SQLite, "begin"),
    (SQLite, "commit"),
    (SQLite, "give_back"),
]
POINTS = [(*point, call) for point in TWICE for call in (1, 2)]
POINTS += [(Transaction, "append", 1), (Transaction, "write_lookup_rows", 1), (HeadFile, "swap", 1)]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("where", "at", "call"), POINTS, ids=lambda value: value if isinstance(value, str) else None
)
def test_a_file_put_back_at_any_point_of_a_spend(path, monkeypatch, where, at, before, call):
    """What was granted before and after is within the budget, and the file can be read without the
    head.
    """
    head_file = path.parent / "head.json"
    ledger, granted, calls = Ledger(path, head_file=head_file), 1, 0
    for _ in range(3):
        ledger.charge("d", "ann", ONE)
        granted += 1
    real = getattr(where, at)

    def putting_back(*arguments, **options):
        nonlocal calls
        calls += 1
        if before and calls == call:
            put_back(path)
        result = real(*arguments, **options)
        if not before and calls == call:
            put_back(path)
        return result

    with monkeypatch.context() as patched:
        patched.setattr(where, at, putting_back)
        with contextlib.suppress(LedgerError):
            ledger.charge("d", "ann", ONE)
            granted += 1
    assert calls >= call
    for again in (ledger, None):
        with contextlib.suppress(LedgerError, BudgetExceeded):
            again = again or Ledger(path, head_file=head_file)
            while granted < 3 * TOTAL:
                again.charge("d", "ann", ONE)
                granted += 1
    assert granted <= TOTAL
    ledger.close()
    with Ledger(path) as reader:
        assert reader.spent("d").count >= 1
    assert whole_but_for_its_head(path)


def test_a_head_file_is_never_overwritten_by_a_lower_or_different_head(path):
    head_file = path.parent / "head.json"
    with Ledger(path, head_file=head_file) as ledger:
        for wrong in ({"hash": "0" * 64}, {"seq": 99}, {"ledger": "another"}):
            kept = json.loads(head_file.read_text(encoding="utf-8")) | wrong
            true = head_file.read_text(encoding="utf-8")
            head_file.write_text(json.dumps(kept), encoding="utf-8")
            with pytest.raises(LedgerError):
                ledger.charge("d", "ann", ONE)
            assert json.loads(head_file.read_text(encoding="utf-8")) == kept
            head_file.write_text(true, encoding="utf-8")
        assert ledger.spent("d") == ONE
        head_file.write_text("{}", encoding="utf-8")
        with pytest.raises(LedgerError, match="exported head"):
            ledger.charge("d", "ann", ONE)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_head_that_another_process_wrote_meanwhile(path, monkeypatch, wrong):
    """Between the commit and the writing of the head: a later head of the log stays, one of another
    log is refused.
    """
    head_file, real = path.parent / "head.json", HeadFile.swap
    forged = json.dumps({"seq": 50, "hash": "f" * 64, "ledger": None})

    def later(*arguments):
        monkeypatch.setattr(HeadFile, "swap", real)
        spend(path, 2, head_file=head_file)
        if wrong:
            head_file.write_text(forged, encoding="utf-8")
        return real(*arguments)

    with Ledger(path, head_file=head_file) as ledger:
        monkeypatch.setattr(HeadFile, "swap", later)
        with pytest.raises(LedgerError) if wrong else contextlib.nullcontext():
            ledger.charge("d", "ann", ONE)
        if wrong:
            assert head_file.read_text(encoding="utf-8") == forged
        else:
            assert json.loads(head_file.read_text(encoding="utf-8")) == ledger.head()
        assert ledger.spent("d").count == 4  # charged in any case


def test_a_database_is_a_witness_too(path):
    """A restored file, a forged head, two processes and an operator, with the head in another
    database.
    """
    witness = f"sqlite:///{path.parent / 'witness.db'}"
    with Ledger(path, head_file=path.parent / "head.json") as ledger:
        ledger.move_witness(witness, reason="another server")
    assert not (path.parent / "head.json").exists()
    shutil.copy(path, path.parent / "old.db")
    with Ledger(path, head_file=witness) as ledger, Ledger(path, head_file=witness) as other:
        for _ in range(2):
            ledger.charge("d", "ann", ONE)
            other.charge("d", "bob", ONE)
        lost, table = other.head(), HeadTable(witness)
        assert asdict(table.read()) == lost
        assert not table.swap(None, replace(table.read(), seq=99))
        put_back(path)
        with pytest.raises(LedgerError, match="tail is missing"):
            ledger.charge("d", "ann", ONE)
    with pytest.raises(LedgerError, match="tail is missing"):
        Ledger(path, head_file=witness)
    assert asdict(table.read()) == lost
    assert Ledger.accept_restore(path, head_file=witness, reason="a failed disk") == lost
    with Ledger(path, head_file=witness) as again:
        again.charge("d", "ann", ONE)
        assert asdict(table.read()) == again.head()
    for url in ("nosuchdatabase://x", "sqlite:////no/such/folder/w.db"):
        with pytest.raises(LedgerError, match="head"):
            Ledger(path, head_file=url)


def _writer(path, results):
    granted = 0
    with (
        contextlib.suppress(LedgerError, BudgetExceeded),
        Ledger(path, head_file=path.parent / "head.json") as ledger,
    ):
        while True:
            ledger.charge("d", "bob", ONE)
            granted += 1
            results.put(granted)


def test_several_processes_and_a_file_put_back(path):
    """Whoever charges when the old state comes back: no process grants anything from then on."""
    context = multiprocessing.get_context("fork")
    with Ledger(path, head_file=path.parent / "head.json") as ledger:
        ledger.renew("d", registered=ONE.times(400), delta=1e-6, reason="room")
    results = context.Queue()
    writers = [context.Process(target=_writer, args=(path, results)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(6):
        results.get(timeout=60)
    with sqlite3.connect(path.parent / "old.db") as old, sqlite3.connect(path) as file:
        old.backup(
            file
            # under SQLite's lock, unlike ``cat``: in the middle of a commit that would damage the file
        )
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    with pytest.raises(LedgerError, match="tail is missing"):
        Ledger(path, head_file=path.parent / "head.json")
    assert whole_but_for_its_head(path)


def test_several_processes_share_a_head_file(path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    writers = [context.Process(target=_writer, args=(path, results)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    with Ledger(path, head_file=path.parent / "head.json") as ledger:
        assert ledger.spent("d").count == TOTAL
        assert json.loads((path.parent / "head.json").read_text(encoding="utf-8")) == ledger.head()


def change(path, *statements):
    with sqlite3.connect(path) as file:
        for statement in statements:
            assert file.execute(statement).rowcount


ASKED = {"once": "key", "query": "q"}


@pytest.fixture
def asked(tmp_path):
    """A ledger with one answer, to a question under a key, that another analyst was shown."""
    path = tmp_path / "asked.db"
    with Ledger(path, key="secret") as ledger:
        ledger.create_dataset("d", budget=Budget(1.0, 0.0))
        ledger.finalize(ledger.charge("d", "ann", ONE, **ASKED), ONE, answer={"rows": [1]})
        ledger.reuse("d", "bob", "q")
    return path


LOSSES = (
    "DELETE FROM places",
    "UPDATE places SET seq = 2",
    "DELETE FROM places WHERE seq = 4",
    "DROP TABLE places",
)
LOST = r"lookup rows for keys and answers|no such table"


@pytest.mark.parametrize("statement", LOSSES)
@pytest.mark.parametrize("running", [True, False])
def test_a_lost_row_is_found_by_the_retry_and_by_verification(asked, statement, running):
    """Before, each retry of one key under one charge drew another answer."""
    ledger = Ledger(asked, key="secret")
    receipt = ledger.charge("d", "ann", ONE, **ASKED)
    done = ledger.asked("d", "ann", "key")
    change(asked, statement)
    if not running:
        ledger = Ledger(asked, key="secret")
    for retry in (
        lambda: ledger.finalize(receipt, ONE, answer={"rows": [2]}),
        lambda: ledger.answer(done),
        lambda: ledger.reuse("d", "eve", "q"),
    ):
        with pytest.raises(LedgerError, match=LOST):
            retry()
    if "WHERE" not in statement:
        for retry in (
            lambda: ledger.charge("d", "ann", ONE, **ASKED),
            lambda: ledger.asked("d", "ann", "key"),
        ):
            with pytest.raises(LedgerError, match=LOST):
                retry()
    assert "not found" in ledger.check()[0] or "no such table" in ledger.check()[0]
    assert ledger.spent("d") == ONE
    assert Ledger.accept_restore(asked, key="secret", reason="rows lost") is None
    again = Ledger(asked, key="secret")
    assert again.charge("d", "ann", ONE, **ASKED) == receipt
    assert again.answer(again.asked("d", "ann", "key")) == {"rows": [1]}
    assert again.verify()


def test_an_entry_removed_behind_the_last_checkpoint_is_no_new_charge(asked, monkeypatch):
    monkeypatch.setattr("dptopk.ledger.journal.CHECKPOINT_EVERY", 3)
    with Ledger(asked, key="secret") as ledger:
        ledger.charge("d", "ann", ONE)
    with sqlite3.connect(asked) as file:
        file.execute("DROP TRIGGER entries_no_delete")
        file.execute("DELETE FROM entries WHERE kind = 'charge' AND seq = 3")
    with (
        Ledger(asked, key="secret") as ledger,
        pytest.raises(LedgerError, match="entry 3 is missing"),
    ):
        ledger.charge("d", "ann", ONE, **ASKED)


def test_verification_runs_the_check_of_the_database(asked):
    """A damaged index of SQLite, which the hash chain does not see."""
    with sqlite3.connect(asked) as file:
        file.execute("PRAGMA writable_schema = ON")
        sql = (
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE "
            "name = 'entries') "
        )
        assert file.execute(sql + "WHERE name = 'snapshots'").rowcount
    assert "SQLite" in " ".join(Ledger.inspect_file(asked, key="secret").problems)


@pytest.mark.parametrize("longer", [False, True])
def test_an_operator_accepts_a_restored_file(path, monkeypatch, longer):
    head_file = path.parent / "head.json"
    running = Ledger(path, head_file=head_file)
    for _ in range(3):
        running.charge("d", "ann", ONE)
    lost = running.head()
    put_back(path)
    if longer:
        with unaware(monkeypatch):
            spend(path, 5)
    with pytest.raises(InvalidParameter, match="reason"):
        Ledger.accept_restore(path, head_file=head_file, reason=" ")
    assert Ledger.accept_restore(path, head_file=head_file, reason="the disk died") == lost
    with pytest.raises(LedgerError):  # it knows entries that are lost
        running.charge("d", "ann", ONE)
    with Ledger(path, head_file=head_file) as again:
        assert [entry.body for entry in again.entries() if entry.kind == "restore"] == [
            {"lost": lost, "reason": "the disk died"}
        ]
        assert json.loads(head_file.read_text(encoding="utf-8")) == again.head()
        again.charge("d", "ann", ONE)
        found = again.inspect()
        assert found.problems == ()
        assert "accepts a restored file" in found.warnings[0]
        assert not again.verify(head=lost)
    with pytest.raises(InvalidParameter, match="nothing to accept"):
        Ledger.accept_restore(path, head_file=head_file, reason="again")
    other = path.parent / "other.db"
    Ledger(other).close()
    with pytest.raises(LedgerError, match="another ledger"):
        Ledger.accept_restore(other, head_file=head_file, reason="wrong file")


def test_a_process_killed_between_a_new_key_and_its_head(tmp_path, monkeypatch):
    path, head_file = tmp_path / "ledger.db", tmp_path / "head.json"
    with Ledger(path, key="old", head_file=head_file) as ledger:
        ledger.create_dataset("d", registered=ONE, delta=1e-6)
        monkeypatch.setattr(HeadFile, "swap", lambda *_: pytest.fail("killed"))
        with contextlib.suppress(pytest.fail.Exception):
            ledger.rekey("new")
    monkeypatch.undo()
    with Ledger(path, key="new", head_file=head_file) as again:
        again.charge("d", "ann", ONE)
        assert json.loads(head_file.read_text(encoding="utf-8")) == again.head()


def test_an_older_copy_of_a_file_with_another_name_is_only_that(path):
    """Reading a backup needs no head, and takes nothing from the ledger in use."""
    spend(path, 2, head_file=path.parent / "head.json")
    shutil.copy(path.parent / "old.db", path.parent / "copy.db")
    with Ledger(path.parent / "copy.db", read_only=True) as copy:
        assert copy.spent("d") == ONE


def test_accepting_on_the_command_line(path):
    head_file = path.parent / "head.json"
    lost = spend(path, 2, head_file=head_file)
    put_back(path)
    arguments = ["ledger", "accept-restore", str(path), "--head-file", str(head_file), "--reason"]
    assert CliRunner().invoke(app, [*arguments, ""]).exit_code == 2
    told = CliRunner().invoke(app, [*arguments, "a failed disk"])
    assert told.exit_code == 0, told.output
    assert f"Entries up to {lost['seq']}" in told.output
    assert "renew" in told.output
    shown = CliRunner().invoke(app, ["ledger", "verify", str(path), "--head", str(head_file)])
    assert shown.exit_code == 0
    assert "Warning: entry 5 accepts a restored file" in shown.output
    assert CliRunner().invoke(app, [*arguments, "again"]).exit_code == 2
