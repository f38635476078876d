"""A ledger that has a head elsewhere grants nothing without it: missing, empty, older, or not
given.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dptopk.cli.commands import app
from dptopk.costs import Charge, PureDP
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.ledger import heads, log_store, verify
from dptopk.ledger.heads import Head, HeadFile, HeadTable
from dptopk.ledger.journal import Journal
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.log_store import refuse_own_head
from dptopk.ledger.sqlite import SQLite

ONE = Charge({PureDP(0.1): 1})
TOTAL = 12


@pytest.fixture
def path(tmp_path):
    (tmp_path / "disk").mkdir()
    with Ledger(tmp_path / "ledger.db", head_file=tmp_path / "disk/head.json") as made:
        made.create_dataset("d", registered=ONE.times(TOTAL), delta=1e-6)
        made.charge("d", "ann", ONE)
    return tmp_path / "ledger.db"


@pytest.fixture
def head(path):
    return path.parent / "disk/head.json"


@pytest.fixture
def bare(tmp_path):
    """A ledger that was used without a head."""
    with Ledger(tmp_path / "bare.db") as made:
        made.create_dataset("d", registered=ONE.times(TOTAL), delta=1e-6)
        made.charge("d", "ann", ONE)
    return tmp_path / "bare.db"


def grants(path, **options):
    """How many charges a ledger grants now."""
    granted = 0
    with suppress(LedgerError, InvalidParameter, BudgetExceeded), Ledger(path, **options) as ledger:
        while granted < 3 * TOTAL:
            ledger.charge("d", "bob", ONE)
            granted += 1
    return granted


def test_a_new_ledger_records_that_it_has_a_head(path, head):
    with Ledger(path, head_file=head) as ledger:
        kinds = [entry.kind for entry in ledger.entries()]
        assert kinds == ["ledger", "witness", "dataset", "charge"]
        ledger.charge("d", "ann", ONE)
        assert [entry.body.get("witnessed") for entry in ledger.entries()][2:] == [2, 3, 4]
        assert ledger.verify()
        assert json.loads(head.read_text()) == ledger.head()


@pytest.mark.parametrize("how", ["missing", "empty", "old", "folder gone", "not given", "another"])
def test_without_the_present_head_nothing_is_granted(path, head, how):
    old = head.read_text()
    with Ledger(path, head_file=head) as ledger:
        for _ in range(3):
            ledger.charge("d", "ann", ONE)
        place = head
        if how == "missing":
            head.unlink()
        elif how == "empty":
            head.write_text("")
        elif how == "old":
            head.write_text(old)
        elif how == "folder gone":
            shutil.rmtree(head.parent)
        elif how == "another":
            with Ledger(path.parent / "b.db", head_file=path.parent / "b.json"):
                place = path.parent / "b.json"
        if how not in {"not given", "another"}:
            with pytest.raises(LedgerError, match="head"):
                ledger.charge("d", "ann", ONE)
    options = {} if how == "not given" else {"head_file": place}
    assert grants(path, **options) == 0
    with Ledger(path) as reader:
        assert reader.spent("d").count == 4
        assert "head of this ledger is missing" in reader.check()[0]
    told = CliRunner().invoke(
        app, ["ledger", "verify", str(path)] + [f"--head-file={place}"] * bool(options)
    )
    assert told.exit_code in {1, 2}
    if how != "another":
        assert "witness replace" in told.output.replace("\n", " ")


def test_a_commit_whose_head_was_not_written_is_no_loss(path, head, monkeypatch):
    """Killed between the commit and the head: the head lags by one transaction, and goes on."""
    with Ledger(path, head_file=head) as ledger:
        for _ in range(3):
            with monkeypatch.context() as patched:
                patched.setattr(HeadFile, "swap", lambda *_: True)
                ledger.charge("d", "ann", ONE)
            with Ledger(path, head_file=head) as again:
                assert again.verify()
                again.charge("d", "ann", ONE)
            assert json.loads(head.read_text())["seq"] == ledger.head()["seq"]


@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_charge_of_a_killed_process_is_answered_only_after_its_head(
    path, head, monkeypatch, opened
):
    """Whoever asks again under its key is shown its receipt: an old copy must not grant it again."""
    with Ledger(path, head_file=head) as ledger:
        shutil.copy(path, path.parent / "copy.db")
        with monkeypatch.context() as patched, Ledger(path, head_file=head) as killed:
            patched.setattr(HeadFile, "swap", lambda *_: True)
            charged = killed.charge("d", "ann", ONE, once="key")
        if opened == "before":
            assert ledger.charge("d", "ann", ONE, once="key") == charged
        else:
            Ledger(path, head_file=head).close()
    shutil.move(path.parent / "copy.db", path)
    assert grants(path, head_file=head) == 0


def test_a_ledger_that_was_used_without_a_head_gets_one_by_its_owner_alone(bare, tmp_path):
    head = tmp_path / "head.json"
    with pytest.raises(LedgerError, match="witness attach"):
        Ledger(bare, head_file=head)
    assert not head.exists()
    with pytest.raises(InvalidParameter, match="has none yet"):
        Ledger.replace_witness(bare, head, reason="a mistake")
    with pytest.raises(InvalidParameter, match="reason"):
        Ledger.attach_witness(bare, head, reason=" ")
    Ledger.attach_witness(bare, head, reason="from now on")
    assert grants(bare) == 0
    with pytest.raises(InvalidParameter, match="has one"):
        Ledger.attach_witness(bare, tmp_path / "second.json", reason="again")
    assert grants(bare, head_file=head) == TOTAL - 1


def test_a_head_that_was_kept_before_ledgers_recorded_it_is_recorded(bare, tmp_path):
    with Ledger(bare) as ledger:
        (tmp_path / "head.json").write_text(json.dumps(ledger.head()))
    with Ledger(bare, head_file=tmp_path / "head.json") as ledger:
        assert list(ledger.entries())[-1].kind == "witness"
    assert grants(bare) == 0


def test_moving_and_replacing_are_logged(path, head, tmp_path):
    other = f"sqlite:///{tmp_path / 'heads.db'}"

    def told(*arguments):
        return CliRunner().invoke(app, ["ledger", "witness", *map(str, arguments)]).exit_code

    with Ledger(path, head_file=head) as running:
        given = ("--head-file", head, "--reason", "a new disk")
        assert told("move", path, *given) == 2  # where to?
        assert told("move", path, *given, "--to", other) == 0
        with pytest.raises(LedgerError, match="head of this ledger is missing"):
            running.charge("d", "ann", ONE)
    assert not head.exists()
    assert grants(path, head_file=head) == 0
    with Ledger(path, head_file=other) as ledger:
        ledger.charge("d", "ann", ONE)
        assert ledger.verify()
        last = list(ledger.entries())[-2]
        assert last.body == {
            "act": "move",
            "place": {"kind": "database", "name": "sqlite"},
            "reason": "a new disk",
            "witnessed": 5,
        }
    (tmp_path / "heads.db").unlink()
    assert grants(path, head_file=other) == 0
    assert told("replace", path, "--head-file", head, "--reason", "the server died") == 0
    assert grants(path, head_file=head) == TOTAL - 2


def test_a_head_of_a_later_state_cannot_be_replaced_away(path, head, tmp_path):
    """Whoever puts an old copy back and says that the head is lost, while it is there, is told."""
    shutil.copy(path, tmp_path / "old.db")
    with Ledger(path, head_file=head) as ledger:
        ledger.charge("d", "ann", ONE)
    shutil.copy(tmp_path / "old.db", path)
    with pytest.raises(LedgerError, match="tail is missing"):
        Ledger.replace_witness(path, head, reason="lost?")


def _attack(path, head, rng, copies):
    """Put back some state of the ledger, of its head, of both at different times, or neither; and
    lose a mount or not. The present state is what both had last.
    """
    pictures = rng.choice(copies[:-1]), rng.choice(copies)
    ledger, stored = pictures[0] if rng.random() < 0.8 else copies[-1], pictures[1]
    path.write_bytes(ledger[0])
    loss = rng.choice(["missing", "empty", "other", "later", "not given"])
    if ledger is copies[-1] and loss == "later":
        loss = "missing"
    if loss == "missing":
        head.unlink(missing_ok=True)
    elif loss == "empty":
        head.write_text("")
    elif loss == "later" or stored[2] > ledger[2]:
        later = [copy for copy in copies if copy[2] > ledger[2]] or [copies[-1]]
        head.write_bytes(rng.choice(later)[1])
    else:  # an older head than the ledger has seen it
        older = [copy for copy in copies if copy[2] < ledger[2] - 1]
        head.write_bytes(older[-1][1] if older else b"")
    return {} if loss == "not given" else {"head_file": head}


def _random_attacks(path, head, times):
    rng = random.Random(43)  # noqa: S311
    copies = []
    with Ledger(path, head_file=head) as ledger:
        for _ in range(TOTAL - 1):
            copies.append((path.read_bytes(), head.read_bytes(), ledger.head()["seq"]))
            ledger.charge("d", "ann", ONE)
        copies.append((path.read_bytes(), head.read_bytes(), ledger.head()["seq"]))
    granted = 0
    for _ in range(times):
        options = _attack(path, head, rng, copies)
        with suppress(LedgerError, InvalidParameter), Ledger(path, **options) as ledger:
            ledger.charge("d", "bob", ONE)
            granted += 1
    return granted


def test_rollbacks_and_lost_mounts_grant_nothing(path, head):
    assert _random_attacks(path, head, 10) == 0


@pytest.mark.slow
def test_a_thousand_rollbacks_and_lost_mounts_grant_nothing(path, head):
    assert _random_attacks(path, head, 1000) == 0


def own_places(path):
    """Every name of a file that is the ledger's own, as a head may be said to lie there."""
    folder = path.parent
    (folder / "symbolic.db").symlink_to(path.name)
    (folder / "through").symlink_to(folder, target_is_directory=True)
    files = [path, folder / "symbolic.db", folder / "through" / path.name]
    files += [folder / f"{path.name}{ending}" for ending in ("-journal", "-wal", "-shm")]
    files.append(folder / "through" / f"{path.name}-wal")
    urls = [f"sqlite:///{file}" for file in files]
    urls += [f"sqlite+pysqlite:///{path}", f"sqlite:///file:{path}?mode=rw&uri=true"]
    urls.append(f"sqlite:///{os.path.relpath(path)}")
    return [*files, os.path.relpath(path), *urls]


def test_a_head_in_the_ledger_itself_is_refused_before_anything_is_written(bare, tmp_path):
    """It would go back with the ledger: what was spent was granted again."""
    places = own_places(bare)
    before = {file: file.read_bytes() for file in tmp_path.glob("bare*")}
    new = tmp_path / "new.db"
    ways = {
        "open": lambda place: Ledger(bare, head_file=place),
        "attach": lambda place: Ledger.attach_witness(bare, place, reason="r"),
        "replace": lambda place: Ledger.replace_witness(bare, place, reason="r"),
        "accept": lambda place: Ledger.accept_restore(bare, head_file=place, reason="r"),
        "inspect": lambda place: Ledger.inspect_file(bare, head_file=place),
        "migrate": lambda place: Ledger.migrate(bare, new, head_file=place),
        "by URL": lambda place: Ledger(f"sqlite:///{bare}", head_file=place),
    }
    for place in places:
        for way in ways.values():
            with pytest.raises(InvalidParameter, match="the ledger itself"):
                way(place)
    with pytest.raises(InvalidParameter, match="the ledger itself"):
        Ledger.migrate(bare, new, head_file=new)
    assert {file: file.read_bytes() for file in tmp_path.glob("bare*")} == before
    assert not new.exists()


def test_a_head_in_a_ledger_that_is_not_there_yet_is_refused(tmp_path):
    for place in own_places(tmp_path / "new.db"):
        with pytest.raises(InvalidParameter, match="the ledger itself"):
            Ledger(tmp_path / "new.db", head_file=place)
    assert {file.name for file in tmp_path.iterdir()} == {"symbolic.db", "through"}


def test_a_head_by_a_second_name_of_the_ledger_is_refused(bare, tmp_path):
    (tmp_path / "second.db").hardlink_to(bare)
    for place in (tmp_path / "second.db", f"sqlite:///{tmp_path / 'second.db'}"):
        with pytest.raises(InvalidParameter, match="the ledger itself"):
            Ledger.attach_witness(bare, place, reason="r")


def test_a_head_is_not_moved_into_the_ledger(path, head):
    with Ledger(path, head_file=head) as ledger:
        for place in own_places(path):
            with pytest.raises(InvalidParameter, match="the ledger itself"):
                ledger.move_witness(place, reason="r")
    assert grants(path, head_file=head) == TOTAL - 1


def test_a_head_in_the_database_of_a_server_that_has_the_ledger_is_refused(monkeypatch):
    """By its address; servers are asked in test_postgresql.py."""
    monkeypatch.setattr(log_store, "are_one_database", lambda *_: False)
    ledger = "postgresql+psycopg://ann@host/d"
    for place in (ledger, "postgresql://bob:secret@host:5432/d"):
        with pytest.raises(InvalidParameter, match="the ledger itself"):
            refuse_own_head(ledger, place)
    for place in ("postgresql://ann@host/heads", "postgresql://ann@other/d", "nonsense://", "h"):
        refuse_own_head(ledger, place)


def test_a_head_whose_lock_would_be_the_ledger_is_refused(tmp_path):
    """The lock of a head file is opened and closed at each write."""
    with pytest.raises(InvalidParameter, match="the ledger itself"):
        Ledger(tmp_path / ".head.lock", head_file=tmp_path / "head")
    with pytest.raises(InvalidParameter, match="the ledger itself"):
        Ledger(tmp_path / "heads.db-wal", head_file=f"sqlite:///{tmp_path / 'heads.db'}")


def _killed_before_the_head(monkeypatch, act):
    with monkeypatch.context() as patched:
        patched.setattr(HeadFile, "swap", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            act()


def _restored(path, head):
    """An older copy of a ledger is in its place; the head that it lacks."""
    shutil.copy(path, path.with_name("older.db"))
    with Ledger(path, head_file=head) as ledger:
        for _ in range(5):
            ledger.charge("d", "ann", ONE)
    lost = head.read_text()
    shutil.copy(path.with_name("older.db"), path)
    return lost


def test_a_ledger_that_is_charged_while_it_is_verified_has_its_head(path, head, monkeypatch):
    """Entries that were written meanwhile record a later head than the one that was read first."""
    fold = verify.fold
    with Ledger(path, head_file=head) as ledger, Ledger(path, head_file=head) as other:

        def fold_later(*arguments):
            other.charge("d", "bob", ONE)
            other.charge("d", "bob", ONE)
            return fold(*arguments)

        monkeypatch.setattr(verify, "fold", fold_later)
        assert ledger.check() == []


@pytest.mark.parametrize("at", range(3))
def test_a_move_that_is_killed_leaves_one_place_that_grants(path, head, tmp_path, monkeypatch, at):
    """Killed before each head that it writes, it left a ledger that granted nothing."""
    with Ledger(path, head_file=head) as ledger:
        ledger.charge("d", "ann", ONE)
    new = tmp_path / "new.json"
    swap = HeadFile.swap
    calls = []

    def killed(self, old, head_to_store):
        calls.append(self)
        if len(calls) > at:
            raise KeyboardInterrupt
        return swap(self, old, head_to_store)

    with (
        monkeypatch.context() as patched,
        Ledger(path, head_file=head) as ledger,
        pytest.raises(KeyboardInterrupt),
    ):
        patched.setattr(HeadFile, "swap", killed)
        ledger.move_witness(new, reason="new disk")
    grants_by_place = [grants(path, head_file=place) for place in (head, new)]
    assert sorted(grants_by_place) == [0, TOTAL - 2]


def test_a_move_that_fails_takes_its_head_back(path, head, tmp_path, monkeypatch):
    new = tmp_path / "new.json"
    with Ledger(path, head_file=head) as ledger:
        ledger.charge("d", "ann", ONE)
        with monkeypatch.context() as patched, pytest.raises(LedgerError, match="full"):
            patched.setattr(SQLite, "commit", _disk_is_full)
            ledger.move_witness(new, reason="new disk")
        ledger.charge("d", "ann", ONE)
        ledger.move_witness(new, reason="new disk")
    assert grants(path, head_file=new) == TOTAL - 3


def _disk_is_full(*_):
    raise LedgerError("the disk is full")


def test_a_refused_move_leaves_the_head_at_the_new_place(path, head, tmp_path):
    """It may be the only sign that the ledger is an old copy."""
    lost = _restored(path, head)
    new = tmp_path / "new.json"
    new.write_text(lost)
    with Ledger(path) as ledger:
        head.write_text(json.dumps(ledger.head()))
    with Ledger(path, head_file=head) as ledger, pytest.raises(LedgerError, match="missing"):
        ledger.move_witness(new, reason="r")
    assert new.read_text() == lost


def test_a_restore_that_was_killed_before_its_head_was_written_goes_on(path, head, monkeypatch):
    """The head that was given up has a later number than all that follows."""
    _restored(path, head)
    _killed_before_the_head(
        monkeypatch, lambda: Ledger.accept_restore(path, head_file=head, reason="r")
    )
    assert grants(path, head_file=head) == TOTAL - 1


def test_a_head_that_was_given_up_vouches_for_nothing_later(path, head):
    """Neither of two old copies, of the ledger and of the head, is from before the other's."""
    lost = _restored(path, head)
    Ledger.accept_restore(path, head_file=head, reason="r")
    with Ledger(path, head_file=head) as ledger:
        ledger.charge("d", "ann", ONE)
        ledger.charge("d", "ann", ONE)
    shutil.copy(path, path.with_name("later.db"))
    assert grants(path, head_file=head) == TOTAL - 3
    shutil.copy(path.with_name("later.db"), path)
    head.write_text(lost)
    assert grants(path, head_file=head) == 0


def test_a_head_is_written_whole_or_not_at_all(path, head, monkeypatch):
    """A disk that is nearly full takes the first bytes, and says so by their number alone."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:60]))
    with Ledger(path, head_file=head) as ledger:
        ledger.charge("d", "ann", ONE)
        assert json.loads(head.read_text()) == ledger.head()


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be opened there")
def test_the_name_of_a_head_is_durable(path, head, monkeypatch):
    """Else a crash of the machine brings back the head before, which is refused as an old copy."""
    synced = []
    fsync = os.fsync

    def noting(file):
        synced.append(stat.S_ISDIR(os.fstat(file).st_mode))
        fsync(file)

    monkeypatch.setattr(os, "fsync", noting)
    with Ledger(path, head_file=head) as ledger:
        ledger.charge("d", "ann", ONE)
    assert synced == [False, True]


def test_who_waits_too_long_for_the_lock_of_a_head_is_refused(path, head, monkeypatch):
    """A process that was stopped held it, and all others waited for ever."""
    monkeypatch.setattr(heads, "LOCK_SECONDS", 0.05)
    with Ledger(path, head_file=head) as ledger:
        held = heads._hold_lock(heads.lock_beside(head))
        with held, pytest.raises(LedgerError, match="holds its lock"):
            ledger.charge("d", "ann", ONE)
        ledger.charge("d", "ann", ONE)
        assert ledger.spent("d").count == 3
        assert ledger.verify()


def test_a_head_that_cannot_be_read_is_not_taken_for_another_file(path, head, monkeypatch):
    def unreadable(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(HeadFile, "_readable_path", unreadable)
    with pytest.raises(InvalidParameter, match="cannot be read: Permission denied"):
        Ledger(path, head_file=head)


def test_a_link_to_a_head_on_another_disk_stays_a_link(path, head):
    link = path.with_name("head.json")
    link.symlink_to(head)
    with Ledger(path, head_file=link) as ledger:
        ledger.charge("d", "ann", ONE)
        assert json.loads(head.read_text()) == ledger.head()
    assert link.is_symlink()


@pytest.mark.parametrize(
    "head",
    [
        {"seq": "1", "hash": "x"},
        {"seq": True, "hash": "x"},
        {"seq": 1, "hash": 5},
        {"seq": 1, "hash": "x", "ledger": 5},
    ],
)
def test_a_head_with_values_of_other_types_is_none(head):
    with pytest.raises(InvalidParameter, match="must contain seq and hash"):
        Head.of(head)


@pytest.mark.parametrize("what", ["pipe", "device", "long"])
def test_what_is_no_head_is_not_read_to_its_end(path, head, what):
    head.unlink()
    if what == "pipe":
        os.mkfifo(head)
    elif what == "device":
        head.symlink_to("/dev/zero")
    else:
        head.write_text(" " * 20_000 + "{}")
    with pytest.raises(InvalidParameter, match="not an exported head"):
        Ledger(path, head_file=head)


@pytest.mark.parametrize("kind", ["file", "database"])
@pytest.mark.parametrize("act", ["move", "replace"])
def test_whoever_waited_with_the_former_place_is_refused(path, head, monkeypatch, act, kind):
    """A head that was read before the lock was taken, or that comes back with its disk, would go
    on beside the new one: a copy of the ledger that one of them confirms then lacks charges.
    """
    new = path.with_name("new.json")
    if kind == "database":
        with Ledger(path, head_file=head) as ledger:
            head = f"sqlite:///{path.with_name('heads.db')}"
            ledger.move_witness(head, reason="r")
    with Ledger(path, head_file=head) as running, Ledger(path, head_file=head) as owner:
        read = Journal.stored_head
        moved = []

        def moved_meanwhile(journal):
            stored_head = read(journal)
            if journal is running._journal and not moved:
                moved.append(True)
                if act == "move":
                    owner.move_witness(new, reason="r")
                else:
                    Ledger.replace_witness(path, new, reason="r")
            return stored_head

        monkeypatch.setattr(Journal, "stored_head", moved_meanwhile)
        with pytest.raises(LedgerError, match=r"is an old copy|is missing"):
            running.charge("d", "ann", ONE)
        assert moved
        with pytest.raises(LedgerError, match=r"is an old copy|is missing"):
            running.charge("d", "ann", ONE)
    assert grants(path, head_file=head) == 0
    assert grants(path, head_file=new) == TOTAL - 1


def test_a_head_is_moved_to_where_it_is(path, head):
    with Ledger(path, head_file=head) as ledger:
        ledger.move_witness(head.parent / "../disk/head.json", reason="r")
        ledger.charge("d", "ann", ONE)


@pytest.mark.parametrize("act", ["move", "attach", "replace"])
def test_a_place_that_cannot_be_written_to_is_refused_before_it_is_recorded(
    path, head, bare, tmp_path, act
):
    nowhere = tmp_path / "no folder/head.json"
    with pytest.raises(LedgerError, match="could not be written"):
        if act == "move":
            with Ledger(path, head_file=head) as ledger:
                ledger.move_witness(nowhere, reason="r")
        elif act == "attach":
            Ledger.attach_witness(bare, nowhere, reason="r")
        else:
            Ledger.replace_witness(path, nowhere, reason="r")
    assert grants(path, head_file=head) == TOTAL - 1
    assert grants(bare) == TOTAL - 1


def test_who_only_reads_makes_no_table_for_a_head(path, tmp_path):
    place = tmp_path / "heads.db"
    for option in ({"read_only": True}, {"create": False}):
        with pytest.raises(LedgerError, match="is missing"):
            Ledger(path, head_file=f"sqlite:///{place}", **option)
        assert not place.exists()
    with closing(sqlite3.connect(place)) as made:
        made.execute("CREATE TABLE other (a)")
    with pytest.raises(LedgerError, match="is missing"):
        Ledger(path, head_file=f"sqlite:///{place}")
    with closing(sqlite3.connect(place)) as made:
        assert made.execute("SELECT name FROM sqlite_master").fetchall() == [("other",)]


def test_a_head_in_a_table_that_was_removed_is_not_put_back(path, tmp_path):
    table = HeadTable(f"sqlite:///{tmp_path / 'heads.db'}")
    assert table.swap(None, Head(1, "a"))
    table.remove()
    assert not table.swap(Head(1, "a"), Head(2, "b"))
    assert table.read() is None


@pytest.mark.skipif(os.name == "nt", reason="folders cannot be opened there")
@pytest.mark.parametrize("failing", ["open", "fsync"])
def test_a_folder_that_cannot_be_synced_is_no_reason_to_refuse(path, head, monkeypatch, failing):
    """Some file systems, such as those of Windows servers, cannot; each charge was then lost."""
    real_open, real_fsync = os.open, os.fsync

    def opening(name, *arguments, **options):
        if Path(name).is_dir() and failing == "open":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real_open(name, *arguments, **options)

    def syncing(file):
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real_fsync(file)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "fsync", syncing)
    with Ledger(path, head_file=head) as ledger:
        ledger.charge("d", "ann", ONE)
        assert json.loads(head.read_text()) == ledger.head()


def test_a_head_that_is_damaged_while_a_charge_is_committed_is_no_mistake_of_the_charge(
    path, head, monkeypatch
):
    """The charge was written: ``InvalidParameter`` says that nothing was."""
    swap = HeadFile.swap

    def damaged(self, old, new):
        self.path.write_text("{}")
        return swap(self, old, new)

    with Ledger(path, head_file=head) as ledger:
        monkeypatch.setattr(HeadFile, "swap", damaged)
        with pytest.raises(LedgerError, match="not an exported head"):
            ledger.charge("d", "ann", ONE)


@pytest.mark.parametrize("options", ["uri=true", "uri=true&mode=rwc"])
def test_reading_a_head_at_a_uri_makes_no_database(tmp_path, options):
    table = HeadTable(f"sqlite:///file:{tmp_path}/heads%2Edb?{options}")
    assert table.read() is None
    assert not list(tmp_path.iterdir())
    assert table.swap(None, Head(1, "a"))
    assert [file.name for file in tmp_path.iterdir()] == ["heads.db"]
    assert table.read() == Head(1, "a")


@pytest.mark.parametrize(
    "place", ["", "/:memory:", "/file::memory:?uri=true", "/file:heads?mode=memory&uri=true"]
)
def test_a_head_in_memory_is_refused(place):
    with pytest.raises(InvalidParameter, match="in memory"):
        HeadTable(f"sqlite://{place}")
