"""What a SQLite ledger asks of its file, and what it leaves alone."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest

from dptopk.costs import BoundedRange, Charge
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger import sqlite, sqlite_file
from dptopk.ledger.ledger import Ledger

REGISTERED = Charge({BoundedRange(0.1): 20}, delta=1e-7)
ONE = Charge({BoundedRange(0.1): 1})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    with Ledger(path) as made:
        made.create_dataset("d", registered=REGISTERED, delta=1e-6)
        yield made


def test_a_second_name_is_refused_when_opened_and_at_the_next_write(path, ledger, tmp_path):
    ledger.charge("d", "ann", ONE)
    os.link(path, tmp_path / "other.db")
    for name in (path, tmp_path / "other.db"):
        with pytest.raises(LedgerError, match="hard links"):
            Ledger(name)
    with pytest.raises(LedgerError, match="hard links"):
        ledger.charge("d", "ann", ONE)
    (tmp_path / "other.db").unlink()
    ledger.charge("d", "ann", ONE)
    assert ledger.spent("d").count == 2


def test_a_link_to_the_file_is_the_file(path, ledger, tmp_path):
    (tmp_path / "link.db").symlink_to(path)
    with Ledger(tmp_path / "link.db") as linked:
        linked.charge("d", "ann", ONE)
    assert ledger.spent("d").count == 1


MOUNTS = """22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 254:0 /x/ledger.db {single} rw,relatime - ext4 /dev/vda rw
31 27 0:50 / {folder}/far\\040away rw,relatime shared:9 - nfs4 server:/export rw
32 27 0:51 / {folder}/share rw - fuse.sshfs host: rw
33 27 0:52 / {folder}/share/disk rw - ext4 /dev/vdb rw
"""


def test_single_files_and_network_disks_are_found_in_the_table_of_mounts(tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS.format(single=tmp_path / "single.db", folder=tmp_path))
    found = sqlite_file.mounts(table)
    assert found[str(tmp_path / "far away")] == "nfs4"
    assert sqlite_file.mounts(tmp_path / "none") == {}
    monkeypatch.setattr(sqlite_file, "mounts", lambda: found)
    for name in ("far away", "share/disk"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(LedgerError, match="mount the folder"):
        Ledger(tmp_path / "single.db")
    for name in ("far away/l.db", "share/l.db"):
        with pytest.raises(LedgerError, match="network file system"):
            Ledger(tmp_path / name)
        Ledger(tmp_path / name, network=True).close()
    Ledger(tmp_path / "share/disk/l.db").close()


@pytest.mark.parametrize("what", ["moved", "deleted", "replaced"])
def test_a_file_that_goes_away_under_a_service_takes_no_more_charges(path, ledger, tmp_path, what):
    ledger.charge("d", "ann", ONE)
    shutil.copy(path, tmp_path / "copy.db")
    if what == "deleted":
        path.unlink()
    else:
        path.rename(tmp_path / "moved.db")
    if what == "replaced":
        (tmp_path / "copy.db").rename(path)
    with pytest.raises(
        LedgerError, match="no such file" if what != "replaced" else "moved or replaced"
    ):
        ledger.charge("d", "ann", ONE)
    with pytest.raises(LedgerError):
        ledger.spent("d")
    if what == "moved":
        with Ledger(tmp_path / "moved.db") as moved:
            assert moved.spent("d").count == 1


@pytest.mark.parametrize("ahead", [False, True])
def test_a_file_that_goes_away_during_a_charge_is_refused_in_words(tmp_path, ahead):
    """It ended in a FileNotFoundError."""
    path = tmp_path / "ledger.db"
    with Ledger(path, ahead=ahead) as ledger:
        ledger.create_dataset("d", registered=ONE, delta=1e-6)
        with (
            pytest.raises(LedgerError, match="moved or deleted"),
            ledger._journal.write(),
        ):
            ledger.charge("d", "ann", ONE)
            path.unlink()


def test_a_disk_that_does_not_answer_is_refused_in_words(path, ledger, monkeypatch):
    """Where a network disk is stale, to look for a file ended in an OSError."""
    ledger.charge("d", "ann", ONE)
    stat_of = Path.stat

    def stale(self, **options):
        if self.name.startswith(path.name):
            raise OSError(errno.ESTALE, "Stale file handle")
        return stat_of(self, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", stale)
        with pytest.raises(LedgerError):
            Ledger(path)
        ledger.close()
    assert ledger.spent("d").count == 1


def test_a_log_that_cannot_be_read_is_not_taken_for_lost(path, ledger, monkeypatch):
    """Whoever was told that it was lost would have accepted the file without its last charges."""

    def unreadable(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", unreadable)
    with pytest.raises(LedgerError, match=r"ledger\.db-wal' cannot be read: Permission denied"):
        Ledger(path)


def test_a_file_that_cannot_be_looked_at_is_not_called_missing(path, ledger, monkeypatch):
    plain_stat = Path.stat

    def unreadable(self, **options):
        if self == path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return plain_stat(self, **options)

    monkeypatch.setattr(Path, "stat", unreadable)
    with pytest.raises(LedgerError, match="Permission denied"):
        ledger.charge("d", "ann", ONE)


def test_what_a_killed_writer_began_is_said_in_words_to_readers(path, ledger, tmp_path):
    """SQLite says "attempt to write a readonly database", whoever only reads."""
    ledger.close()
    copy = tmp_path / "copy"
    copy.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("CREATE TABLE other (text)")
        writer.executemany("INSERT INTO other VALUES (?)", [("x" * 1000,)] * 500)
        for name in ("ledger.db", "ledger.db-journal"):
            shutil.copy(tmp_path / name, copy)
        writer.rollback()
    with pytest.raises(LedgerError, match="a process was killed while it wrote"):
        Ledger(copy / "ledger.db", read_only=True)
    (problem,) = Ledger.inspect_file(copy / "ledger.db").problems
    assert "a process was killed while it wrote" in problem
    Ledger(copy / "ledger.db").close()
    assert not Ledger.inspect_file(copy / "ledger.db").problems


@pytest.mark.parametrize("failing", ["connect", "copy"])
def test_a_backup_that_fails_is_said_in_words_and_leaves_no_file(
    path, ledger, tmp_path, monkeypatch, failing
):
    def refuse(*_, **__):
        raise sqlite3.OperationalError("unable to open database file")

    place = (sqlite.SQLite, "_connect") if failing == "connect" else (sqlite, "_copy_all")
    monkeypatch.setattr(*place, refuse)
    with pytest.raises(LedgerError, match="unable to open database file"):
        ledger.backup(tmp_path / "backup.db")
    assert not (tmp_path / "backup.db").exists()


def test_only_its_owner_reads_a_new_ledger(path, ledger):
    ledger.charge("d", "ann", ONE)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


def test_a_mistyped_path_makes_no_ledger(tmp_path):
    with pytest.raises(LedgerError, match="no such file"):
        Ledger(tmp_path / "typo.db", create=False)
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)")
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(tmp_path / "other.db", create=False)


def test_a_path_stands_for_itself(tmp_path):
    for name in ("a?b.db", "a%41.db", "a#b.db", "ä b.db"):
        with Ledger(tmp_path / name) as made:
            made.create_dataset("d", registered=REGISTERED, delta=1e-6)
        assert Ledger(tmp_path / name, read_only=True).datasets() == ("d",)
    names = {path.name for path in tmp_path.iterdir() if not path.name.endswith("-journal")}
    assert names == {"a?b.db", "a%41.db", "a#b.db", "ä b.db"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        ":memory:",
        "file:ledger.db",
        "sqlite:///file:x?nolock=1&uri=true",
        "sqlite:///x.db?vfs=unix-none",
        "mysql://x",
    ],
)
def test_databases_that_promise_nothing_are_refused(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError):
        Ledger(url)
    assert list(tmp_path.iterdir()) == []


def test_inspection_writes_nothing(path, ledger, tmp_path):
    """Neither to the file nor beside it, as on read-only media."""
    ledger.charge("d", "ann", ONE)
    ledger.close()
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(path, alone)
    (alone / path.name).chmod(0o400)
    before = (alone / path.name).read_bytes()
    with Ledger(alone / path.name, read_only=True) as reader:
        assert reader.spent("d") == ONE
        assert reader.verify()
        with pytest.raises(LedgerError, match="reading only"):
            reader.charge("d", "ann", ONE)
    assert not Ledger.inspect_file(alone / path.name).problems
    assert [file.name for file in alone.iterdir()] == [path.name]
    assert (alone / path.name).read_bytes() == before


def test_a_backup_is_whole_and_an_old_one_is_found_out(path, ledger, tmp_path):
    heads = tmp_path / "head.json"
    with Ledger(path, head_file=heads) as service:
        service.charge("d", "ann", ONE)
        service.backup(tmp_path / "backup.db")
        head = service.head()
        for _ in range(3):
            service.charge("d", "ann", ONE)
        with pytest.raises(LedgerError, match="exists"):
            service.backup(tmp_path / "backup.db")
    with Ledger(tmp_path / "backup.db", head=head) as old:
        assert old.spent("d") == ONE
        assert old.verify()
    shutil.copy(tmp_path / "backup.db", path)
    with Ledger(path) as unaware:  # nothing in the file itself can tell, but that it has a head
        assert [problem[:37] for problem in unaware.check()] == [
            "the head of this ledger is missing (f"
        ]
    with pytest.raises(LedgerError, match="tail is missing"):
        Ledger(path, head_file=heads)
    with pytest.raises(LedgerError, match="another ledger"):
        Ledger(tmp_path / "new.db").close() or Ledger(tmp_path / "new.db", head=head)


def test_a_head_file_is_written_whole_and_never_backwards(path, ledger, tmp_path):
    heads = tmp_path / "head.json"
    with Ledger(path, head_file=heads) as first, Ledger(path, head_file=heads) as second:
        first.charge("d", "ann", ONE)
        second.charge("d", "bob", ONE)
        assert str(second.head()["hash"]) in heads.read_text()
    heads.write_text("{}")
    with pytest.raises(InvalidParameter, match="head"):
        Ledger(path, head_file=heads)


@pytest.mark.parametrize(
    "flip", [*range(0, 4096 * 5, 997), 3321]
)  # the last one: in a name of the schema
def test_corrupt_bytes_are_a_clear_error_or_change_nothing(tmp_path, flip):
    source = Path(__file__).parents[1] / "data" / "ledger_format_3.db"
    damaged = tmp_path / "damaged.db"
    data = bytearray(source.read_bytes())
    data[flip % len(data)] ^= 0xFF
    damaged.write_bytes(data)
    with Ledger(source, key="format three", read_only=True) as whole:
        truth = {name: whole.spent(name) for name in whole.datasets()}
    said = ""
    try:
        with Ledger(damaged, key="format three", read_only=True) as opened:
            assert {name: opened.spent(name) for name in opened.datasets()} == truth
    except LedgerError as error:
        said = str(error)
    assert "with text" not in said  # which would show what the log holds
    with contextlib.suppress(LedgerError):
        Ledger.inspect_file(damaged, key="format three")
