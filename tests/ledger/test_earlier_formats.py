"""A ledger that was ever written can be shown, verified, exported and migrated, and is never
written to before its format is known.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dptopk import Histogram, Session
from dptopk.budgets.filter import Filter
from dptopk.cli.commands import app
from dptopk.costs import ZCDP, BoundedRange, Budget, Charge, PureDP
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.histogram.labels import from_plain
from dptopk.ledger import migrate
from dptopk.ledger.entries import FORMAT, Entry
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.replay import LedgerState
from dptopk.ledger.sqlite_file import UNFINISHED, LedgerFile

FILES = Path(__file__).parent / "formats"
BEGAN = {  # the format that each log began with
    "b87cee6": 1,
    "6f1a7a7": 2,
    "28d4497": 2,
    "28d4497_on_b87cee6": 1,
    "456ff9e_on_b87cee6": 1,
    "0307ff8": 3,
}
EARLIER = [name for name, format_ in BEGAN.items() if format_ < FORMAT]
KEY = "a secret of the tests"
ONE = Charge({PureDP(0.001): 1})


def made(folder, name):
    path = folder / "old.db"
    with closing(sqlite3.connect(path)) as file:
        file.executescript((FILES / f"{name}.sql").read_text(encoding="utf-8"))
    return path


def spent(ledger):
    return {
        name: (ledger.spent(name), ledger.spent(name, lifetime=True)) for name in ledger.datasets()
    }


def answers(ledger):
    return [entry.body.get("answer") for entry in ledger.entries() if entry.kind == "release"]


def test_there_is_a_file_of_every_format():
    assert {path.stem for path in FILES.glob("*.sql")} == set(BEGAN)
    assert set(BEGAN.values()) == set(range(1, FORMAT + 1))


# What each kind of entry holds. Who adds, removes or renames something that entries must have, or
# gives it another meaning, changes FORMAT: the number of the next format, how entries of this one
# are read (earlier_formats.py), a file that the code before the change wrote, and this table.
SHAPES = {
    1: {"charge": {"charge", "mechanism", "query", "seeded"}},
    2: {"charge": {"charge", "mechanism", "query", "records", "seeded"}},
    3: {
        "ledger": {"format", "id", "keyed", "test"},
        "dataset": {"segments", "sensitivity", "terms", "unit", "version"},
        "charge": {"charge", "mechanism", "query", "records", "seeded"},
        "release": {"answer", "charge", "query", "returned", "unused", "used"},
        "limit": {"charge", "record", "terms"},
        "renewal": {"reason", "terms"},
        "version": {"version"},
        "reuse": {"answer", "charge", "records"},
    },
}
SOMETIMES = {"once", "segments", "merged", "beyond", "witnessed"}


def test_the_number_of_the_format_changes_with_what_entries_hold(tmp_path):
    """Entries that are written today look like those of the file with today's number."""
    assert FORMAT in SHAPES
    with Ledger(made(tmp_path, "0307ff8"), key=KEY, read_only=True) as stored:
        for entry in stored.entries():
            assert entry.body.keys() - SOMETIMES <= SHAPES[3][entry.kind] | {"segments"}
    with Ledger(tmp_path / "new.db") as ledger:
        ledger.create_dataset("d", registered=ONE.times(9), delta=1e-6)
        receipt = ledger.charge("d", "ann", ONE, query="q", once="k")
        ledger.finalize(receipt, ONE, answer={})
        ledger.reuse("d", "bob", "q")
        ledger.set_limit("d", "ann", registered=ONE.times(3), delta=1e-6)
        ledger.set_version("d", "2")
        ledger.renew("d", registered=ONE, delta=1e-6, reason="a test")
        for entry in ledger.entries():
            assert entry.body.keys() - SOMETIMES == SHAPES[FORMAT][entry.kind] - SOMETIMES


def test_the_state_that_an_upgrade_wrote_down_is_read(tmp_path):
    """Where entries before it are computed otherwise today, that state holds."""
    with closing(sqlite3.connect(made(tmp_path, "28d4497_on_b87cee6"))) as file:
        query = "SELECT * FROM entries WHERE kind = 'format'"
        entry = Entry.read(file.execute(query).fetchone())
    state = LedgerState(KEY.encode())
    state.earlier.first_format = state.earlier.format = 1
    upgraded = state.earlier.in_todays_format(entry, state)
    assert upgraded.body["datasets"].keys() == entry.body["state"]["datasets"].keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", BEGAN)
def test_what_was_written_is_shown_verified_exported_and_migrated(tmp_path, name):
    path, new = made(tmp_path, name), tmp_path / "new.db"
    before = path.read_bytes()
    with Ledger(path, key=KEY, read_only=True) as old:
        assert old.inspect().problems == old.inspect().warnings == ()
        stands, stored, head = spent(old), answers(old), old.head()
        assert stands["articles"][0].costs == {BoundedRange(0.1): 5}
        assert stands["bücher"][1].costs == {BoundedRange(0.1): 5, ZCDP(0.01): 1}
        assert len(old.history("articles")) == 3
        refused = Charge({BoundedRange(0.1): 6}) if "eve" not in name else ONE
        assert not old.state("articles").limits_of("bob")["limit of 'bob'"].can_spend(refused)
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    # Of the latest file all data sets are shown; of the others one, which takes a tenth of the time
    shown = ["show"] if name == "0307ff8" else ["show", "--dataset", "bücher"]
    for command in (shown, ["verify"], ["export"]):
        arguments = [*command, str(path), "--key-file", str(key)]
        told = CliRunner().invoke(app, ["ledger", *arguments])
        assert told.exit_code == 0, told.output
    if BEGAN[name] < FORMAT:
        for options in ({}, {"ahead": True}, {"create": False}):
            with pytest.raises(LedgerError, match="dptopk ledger migrate OLD NEW"):
                Ledger(path, key=KEY, **options)
    else:
        Ledger(path, key=KEY).close()
    assert path.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} <= {"old.db", "old.db-journal", "key"}
    made_head = Ledger.migrate(path, new, key=KEY)
    with Ledger(new, key=KEY) as ledger:
        assert ledger.head() == made_head
        first = next(ledger.entries()).body
        assert first["format"] == FORMAT
        assert first["migrated"] == {"format": BEGAN[name], "head": head}
        assert ledger.inspect().problems == ledger.inspect().warnings == ()
        assert spent(ledger) == stands
        assert answers(ledger) == stored
        assert [e.at for e in ledger.entries()] == [e.at for e in _read(path)][: head["seq"]]
        assert ledger.answer(ledger.recent("articles", analyst="ann")[-1]) == stored[0]
        with pytest.raises(BudgetExceeded, match="limit of 'bob'"):
            ledger.charge("articles", "bob", refused)
        if name in {"28d4497", "0307ff8"}:  # keys there were by then
            again = ledger.charge("articles", "ann", Charge({PureDP(0.2): 1}), once="k1")
            assert again.charge.costs == {BoundedRange(0.1): 5}
        ledger.charge("bücher", "ann", ONE)
    assert LedgerFile.at(new).identity()
    _refused_from_here_on(path)


def _read(path):
    with Ledger(path, key=KEY, read_only=True) as ledger:
        return list(ledger.entries())


def _refused_from_here_on(path):
    with pytest.raises(LedgerError, match=r"migrate|migrated"), Ledger(path, key=KEY) as old:
        old.charge("bücher", "ann", ONE)
    with Ledger(path, key=KEY, read_only=True) as old:
        assert old.verify()
        assert list(old.entries())[-1].kind == "retired"


def test_a_format_that_is_not_known_is_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "later.db"
    for module in ("earlier_formats", "replay", "administration"):
        monkeypatch.setattr(f"dptopk.ledger.{module}.FORMAT", FORMAT + 1)
    Ledger(path).close()
    monkeypatch.undo()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(LedgerError, match=f"has format {FORMAT + 1}; this version reads"):
            Ledger(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_what_would_be_refused_today_stands_and_closes_its_account(tmp_path, monkeypatch):
    """Format 1 had no records: prices that have risen since cannot undo what was answered."""
    path, new = made(tmp_path, "b87cee6"), tmp_path / "new.db"
    quote = Filter.quote

    def stricter(account, charge, *more):
        if BoundedRange(0.1) in charge.costs:
            raise BudgetExceeded(charge, account.remaining(), "a later version")
        return quote(account, charge, *more)

    with monkeypatch.context() as patched:
        patched.setattr(Filter, "quote", stricter)
        Ledger.migrate(path, new, key=KEY)
    with Ledger(new, key=KEY) as ledger:
        assert ledger.spent("bücher").costs == {BoundedRange(0.1): 3}
        assert "would be refused now" in ledger.inspect().warnings[0]
        with pytest.raises(BudgetExceeded, match="accepted today"):
            ledger.charge("bücher", "ann", Charge({BoundedRange(1e-9): 1}))
        words = Histogram({"the": 9}, sensitivity=ledger.state("bücher").sensitivity)
        session = Session(words, ledger=ledger, dataset="bücher", analyst="ann")
        assert session.remaining().epsilon_left == 0
        ledger.renew("bücher", budget=Budget(1, 1e-6), reason="closed by a later version")
        ledger.charge("bücher", "ann", Charge({BoundedRange(1e-6): 1}))
        assert ledger.verify()


POINTS = [
    (migrate, "_copy_entry", 1),
    (migrate, "_copy_entry", 9),
    (migrate, "_refuse_difference", 1),
    (migrate.Transaction, "append", 1),
    (migrate.Transaction, "append", 14),
    (migrate.Transaction, "append", 15),
    (migrate.Migration, "_complete", 1),
    (migrate.Migration, "_move_head", 1),
    (LedgerFile, "set_mark", 1),
    (LedgerFile, "set_mark", 2),
    (os, "link", 1),
    (Path, "unlink", 1),
    (Path, "unlink", 2),
    (Path, "unlink", 3),
]


def _killed(path, new, where, at, call, *, after):
    """Migrate in a child that is killed at the n-th call of a function, before or after it."""
    real, calls = getattr(where, at), 0
    child = os.fork()
    if child == 0:

        def killing(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == call and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*arguments, **options)
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(where, at, killing)
        with suppress(BaseException):
            Ledger.migrate(path, new, key=KEY, head_file=path.parent / "head.json")
        os._exit(0)
    os.waitpid(child, 0)


def _that_grant(folder):
    """The files in a folder that grant a charge."""
    found = []
    for file in sorted(folder.iterdir()):
        if file.suffix in {".db", ".unfinished"}:
            for options in ({}, {"head_file": folder / "head.json"}):
                with (
                    suppress(LedgerError, InvalidParameter, BudgetExceeded),
                    Ledger(file, key=KEY, create=False, **options) as ledger,
                ):
                    ledger.charge("bücher", "ann", ONE)
                    found.append(file.name)
    return sorted(set(found))


def test_infinite_labels_of_the_first_format_are_migrated(tmp_path):
    """The first format wrote numbers that no JSON has: its migration ended in a ValueError."""
    path = made(tmp_path, "b87cee6")
    infinite = {"rows": [{"rank": 1, "label": float("inf"), "count": 3}]}
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT * FROM entries ORDER BY seq").fetchall()
        for trigger in ("entries_no_update", "entries_no_delete"):
            file.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        previous = "0" * 64
        for row in rows:
            entry = Entry.read(row)
            body = entry.body
            if entry.kind == "release":
                body = body | {"answer": infinite}
            if entry.kind == "charge":
                body = body | {"mechanism": {"name": "mine", "scale": float("-inf")}}
            entry = replace(entry, body=body, previous=previous)
            previous = entry.chain_hash(KEY.encode(), format_=1)
            change = "UPDATE entries SET body = ?, previous = ?, hash = ? WHERE seq = ?"
            file.execute(change, (json.dumps(body), entry.previous, previous, entry.seq))
        file.commit()
    with Ledger(path, key=KEY, read_only=True) as old:
        assert old.verify()
        stands = spent(old)
    Ledger.migrate(path, tmp_path / "new.db", key=KEY)
    with Ledger(tmp_path / "new.db", key=KEY) as new:
        assert new.verify()
        assert spent(new) == stands
        (row,) = answers(new)[0]["rows"]
        assert from_plain(row["label"]) == float("inf")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.study), True])
@pytest.mark.parametrize("name", [pytest.param("b87cee6", marks=pytest.mark.study), "0307ff8"])
def test_a_migration_that_is_killed_leaves_at_most_one_ledger_that_grants(tmp_path, name, after):
    for number, (where, at, call) in enumerate(POINTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, new = made(folder, name), folder / "new.db"
        _killed(path, new, where, at, call, after=after)
        assert len(_that_grant(folder)) <= 1
        with suppress(LedgerError, InvalidParameter):
            Ledger.migrate(path, folder / "other.db", key=KEY, head_file=folder / "head.json")
        assert len(_that_grant(folder)) <= 1
        with suppress(InvalidParameter, LedgerError):
            Ledger.migrate(path, new, key=KEY, head_file=folder / "head.json")
        assert len(_that_grant(folder)) == 1
        assert _that_grant(folder)[0] in {"new.db", "other.db"}


def _migrating(path, new, barrier, results):
    barrier.wait()
    try:
        results.put(Ledger.migrate(path, new, key=KEY)["ledger"])
    except (LedgerError, InvalidParameter) as error:
        results.put(type(error).__name__)


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False])
def test_two_migrations_at_once_make_one_ledger(tmp_path, same):
    path = made(tmp_path, "6f1a7a7")
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(2), context.Queue()
    targets = [tmp_path / "new.db", tmp_path / ("new.db" if same else "other.db")]
    workers = [
        context.Process(target=_migrating, args=(path, new, barrier, results)) for new in targets
    ]
    for worker in workers:
        worker.start()
    told = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert len(_that_grant(tmp_path)) == 1
    assert (told[0] == told[1]) == same


@pytest.mark.slow
def test_a_head_and_a_catalog_move_along(tmp_path):
    path, new, head = made(tmp_path, "0307ff8"), tmp_path / "new.db", tmp_path / "head.json"
    Ledger.attach_witness(path, head, key=KEY, reason="from now on")
    key, catalog = tmp_path / "key", tmp_path / "catalog.toml"
    key.write_text(KEY)
    catalog.write_text('# ours\nledger = "old.db"\nhead_file = "head.json"\n[datasets.x]\n')
    with pytest.raises(LedgerError, match="head of this ledger is missing"):
        Ledger.migrate(path, new, key=KEY)
    arguments = ["ledger", "migrate", str(path), str(new), "--key-file", str(key)]
    arguments += ["--head-file", str(head), "--catalog", str(catalog)]
    for _ in range(2):  # a second time there is nothing left to do
        told = CliRunner().invoke(app, arguments)
        assert told.exit_code == 0, told.output
    assert f'ledger = {json.dumps(str(new))}\nhead_file = "head.json"' in catalog.read_text()
    with Ledger(new, key=KEY, head_file=head) as ledger:
        ledger.charge("bücher", "ann", ONE)
        assert json.loads(head.read_text()) == ledger.head()
    with pytest.raises(LedgerError):
        Ledger(path, key=KEY, head_file=head)
    with pytest.raises(LedgerError, match="not here"):
        Ledger.migrate(path, tmp_path / "second.db", key=KEY)


def test_an_unfinished_migration_is_no_ledger(tmp_path):
    Ledger(tmp_path / "made.db").close()
    LedgerFile.at(tmp_path / "made.db").set_mark(UNFINISHED)
    for read_only in (True, False):
        with pytest.raises(LedgerError, match="unfinished migration"):
            Ledger(tmp_path / "made.db", read_only=read_only)


def test_a_damaged_ledger_is_not_migrated(tmp_path):
    path = made(tmp_path, "b87cee6")
    with closing(sqlite3.connect(path)) as file:
        file.execute("DROP TRIGGER entries_no_update")
        file.execute("UPDATE entries SET body = replace(body, '5*BR', '4*BR') WHERE seq = 4")
        file.commit()
    with pytest.raises(LedgerError, match="wrong hash"):
        Ledger.migrate(path, tmp_path / "new.db", key=KEY)
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".db"] == ["old.db"]
    assert LedgerState(KEY.encode()).last[0] == 0


@pytest.mark.parametrize(
    "name", ["old.db-wal", "old.db-shm", "old.db-journal", "x" * 230, "y" * 300]
)
def test_a_name_that_cannot_hold_a_ledger_is_refused_before_anything_is_written(tmp_path, name):
    path = made(tmp_path, "b87cee6")
    before = path.read_bytes()
    with pytest.raises(InvalidParameter, match="NEW: "):
        Ledger.migrate(path, tmp_path / name, key=KEY)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if len(file.name) > 100] == []


def test_a_ledger_that_its_head_does_not_name_is_not_migrated(tmp_path):
    """An older copy: what was charged after it would be granted again."""
    path, head = made(tmp_path, "b87cee6"), tmp_path / "head.json"
    head.write_text(json.dumps({"seq": 2, "hash": "00" * 32, "ledger": None}))
    with pytest.raises(LedgerError, match="not the one that was written"):
        Ledger.migrate(path, tmp_path / "new.db", key=KEY, head_file=head)
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("seq", [10**40, 2**63, -(10**40)])
def test_a_head_with_a_number_of_no_entry_is_refused(tmp_path, seq):
    path, head = made(tmp_path, "b87cee6"), tmp_path / "head.json"
    head.write_text(json.dumps({"seq": seq, "hash": "00", "ledger": None}))
    with pytest.raises(InvalidParameter, match="head"):
        Ledger.migrate(path, tmp_path / "new.db", key=KEY, head_file=head)


def _two_with_heads(folder):
    for name in ("old", "third"):
        with Ledger(folder / f"{name}.db", head_file=folder / f"{name}.json") as ledger:
            ledger.create_dataset("d", registered=ONE.times(9), delta=1e-6)
            ledger.charge("d", "ann", ONE)


def _interrupted(folder, monkeypatch):
    """A migration that was killed once OLD was retired."""
    with monkeypatch.context() as patched:
        killed = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # noqa: E731
        patched.setattr(migrate.Migration, "_complete", killed)
        with pytest.raises(KeyboardInterrupt):
            Ledger.migrate(folder / "old.db", folder / "new.db", head_file=folder / "old.json")


@pytest.mark.parametrize("given", ["third", "gone", None])
def test_a_migration_is_completed_with_the_head_of_its_own_ledger(tmp_path, monkeypatch, given):
    """Another one took the head of a third ledger; without one the new ledger never granted."""
    _two_with_heads(tmp_path)
    _interrupted(tmp_path, monkeypatch)
    third = (tmp_path / "third.json").read_text()
    head = None if given is None else tmp_path / f"{given}.json"
    with pytest.raises(LedgerError, match=r"belongs to another|is missing"):
        Ledger.migrate(tmp_path / "old.db", tmp_path / "new.db", head_file=head)
    assert (tmp_path / "third.json").read_text() == third
    assert not (tmp_path / "new.db").exists()
    Ledger.migrate(tmp_path / "old.db", tmp_path / "new.db", head_file=tmp_path / "old.json")
    with Ledger(tmp_path / "new.db", head_file=tmp_path / "old.json") as ledger:
        ledger.charge("d", "ann", ONE)


def test_a_file_system_without_links_is_refused_before_the_old_ledger_is_retired(
    tmp_path, monkeypatch
):
    _two_with_heads(tmp_path)
    files = {file.name for file in tmp_path.iterdir()}

    def link(*_arguments, **_options):
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", link)
        with pytest.raises(InvalidParameter, match="no links can be made"):
            Ledger.migrate(
                tmp_path / "old.db", tmp_path / "new.db", head_file=tmp_path / "old.json"
            )
    assert {file.name for file in tmp_path.iterdir()} == files
    with Ledger(tmp_path / "old.db", head_file=tmp_path / "old.json") as ledger:
        ledger.charge("d", "ann", ONE)


@pytest.mark.slow
def test_two_ledgers_that_are_migrated_to_one_name_both_go_on(tmp_path, monkeypatch):
    """The second one was retired when the first took the name: it is completed under another."""
    _two_with_heads(tmp_path)
    _interrupted(tmp_path, monkeypatch)
    third, new = tmp_path / "third.db", tmp_path / "new.db"
    Ledger.migrate(third, new, head_file=tmp_path / "third.json")
    with pytest.raises(LedgerError, match="give another name in the same folder"):
        Ledger.migrate(tmp_path / "old.db", new, head_file=tmp_path / "old.json")
    other = tmp_path / "other.db"
    Ledger.migrate(tmp_path / "old.db", other, head_file=tmp_path / "old.json")
    for path, head in ((new, "third.json"), (other, "old.json")):
        with Ledger(path, head_file=tmp_path / head) as ledger:
            ledger.charge("d", "ann", ONE)
    assert not list(tmp_path.glob(".*unfinished*"))


@pytest.mark.slow
def test_a_catalog_that_is_a_link_to_another_disk_is_replaced_there(tmp_path, monkeypatch):
    _two_with_heads(tmp_path)
    (tmp_path / "disk").mkdir()
    (tmp_path / "folder").mkdir()
    kept = tmp_path / "disk/catalog.toml"
    kept.write_text(f"ledger = {json.dumps(str(tmp_path / 'old.db'))}\n")
    link = tmp_path / "folder/catalog.toml"
    link.symlink_to(kept)
    replace = Path.replace

    def on_one_disk(self, target):
        if self.parent.resolve() != Path(target).parent.resolve() and target == kept:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", on_one_disk)
    arguments = ["ledger", "migrate", str(tmp_path / "old.db"), str(tmp_path / "new.db")]
    arguments += ["--head-file", str(tmp_path / "old.json"), "--catalog", str(link)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert link.is_symlink()
    assert "new.db" in kept.read_text()


@pytest.mark.parametrize("call", ["link", "unlink"])
def test_a_migration_that_cannot_make_or_remove_a_file_is_run_again(tmp_path, monkeypatch, call):
    """A disk that is full for a moment is no traceback; link: after OLD was retired."""
    old = made(tmp_path, "6f1a7a7")
    calls = []

    def failing(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*arguments, **options)

    original = getattr(os, call)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        with pytest.raises(LedgerError, match="run it again"):
            Ledger.migrate(old, tmp_path / "new.db", key=KEY)
    Ledger.migrate(old, tmp_path / "new.db", key=KEY)
    with Ledger(tmp_path / "new.db", key=KEY) as ledger:
        assert ledger.verify()


HALF_WRITTEN = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE half (text)")
connection.executemany("INSERT INTO half VALUES (?)", [("x" * 4000,)] * 100)
os._exit(0)
"""


def test_a_migration_that_was_killed_while_it_wrote_its_mark_is_completed(tmp_path, monkeypatch):
    """Its journal can only be undone by a writer: OLD was retired, and NEW never came."""
    old = made(tmp_path, "6f1a7a7")

    def killed(file, mark):
        if mark != UNFINISHED:
            subprocess.run([sys.executable, "-c", HALF_WRITTEN, file.path], check=True)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        original(file, mark)

    original = LedgerFile.set_mark
    with monkeypatch.context() as patched:
        patched.setattr(LedgerFile, "set_mark", killed)
        with pytest.raises(LedgerError):
            Ledger.migrate(old, tmp_path / "new.db", key=KEY)
    Ledger.migrate(old, tmp_path / "new.db", key=KEY)
    with Ledger(tmp_path / "new.db", key=KEY) as ledger:
        assert ledger.verify()
