"""The ledger on a real PostgreSQL server, started for this test; skipped, visibly, where none is
installed.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from dptopk.costs import BoundedRange, Charge
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.ledger.heads import Head, HeadTable
from dptopk.ledger.ledger import Ledger

pytest.importorskip("psycopg", reason="psycopg is not installed")
pytestmark = pytest.mark.slow


def server_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None


def unprivileged() -> list[str] | None:
    """PostgreSQL refuses to run as root: the prefix that runs a command as another user, or
    None.
    """
    if os.geteuid() != 0:
        return []
    return ["runuser", "-u", "postgres", "--"] if shutil.which("runuser") else None


class Cluster:
    """A server's programs and the data that it serves in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.prefix = server_programs(), unprivileged()
        if self.programs is None or self.prefix is None:
            pytest.skip("PostgreSQL's server programs are not installed")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        if self.prefix:
            shutil.chown(folder, "postgres")

    def run(self, program: str, *arguments: object, check: bool = True) -> int:
        command = [
            *self.prefix,
            self.programs / program,
            "-D",
            self.folder / "data",
            *map(str, arguments),
        ]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        return subprocess.run(command, check=check, **quiet).returncode

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        )
        self.run("pg_ctl", "-w", "-o", options, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-w", "-m", "immediate", "stop")


CLUSTERS: dict[str, Cluster] = {}  # by the URL of the fixture


@pytest.fixture(scope="module")
def url():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder))
        if cluster.run("initdb", "-U", "dptopk", "-A", "trust", check=False):
            pytest.skip("PostgreSQL's initdb does not run here")
        cluster.start()
        address = f"postgresql+psycopg://dptopk@127.0.0.1:{cluster.port}/postgres"
        CLUSTERS[address] = cluster
        try:
            yield address
        finally:
            cluster.stop()


def test_the_same_ledger_on_postgresql(url):
    with Ledger(url, key="secret") as ledger:
        ledger.create_dataset(
            "data", registered=Charge({BoundedRange(0.1): 10}, delta=1e-7), delta=1e-6
        )
        receipt = ledger.charge("data", "ann", Charge({BoundedRange(0.1): 4}, delta=1e-8))
        ledger.finalize(receipt, Charge({BoundedRange(0.1): 1}, delta=1e-8))
        head = ledger.head()
    with Ledger(url, key="secret") as again:
        assert again.spent("data") == Charge({BoundedRange(0.1): 1}, delta=1e-8)
        with pytest.raises(BudgetExceeded):
            again.charge("data", "bob", Charge({BoundedRange(0.1): 10}))
        assert again.verify(head=head)
        again.rekey("other")
    with pytest.raises(LedgerError):
        Ledger(url, key="secret")
    with Ledger(url, key="other") as again:
        assert again.verify()
        assert again.spent("data") == Charge({BoundedRange(0.1): 1}, delta=1e-8)
        again.rekey("secret")


def test_concurrent_writers_spend_exactly_the_budget(url):
    spent = []

    def write():
        with Ledger(url, key="secret") as ledger:
            while True:
                try:
                    ledger.charge("shared", "ann", Charge({BoundedRange(0.1): 1}))
                except BudgetExceeded:
                    return
                spent.append(1)

    with Ledger(url, key="secret") as ledger:
        ledger.create_dataset("shared", registered=Charge({BoundedRange(0.1): 60}), delta=1e-6)
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(spent) == 60
        assert ledger.verify()


def test_a_server_that_is_not_there_is_a_clear_error():
    with pytest.raises(LedgerError):
        Ledger("postgresql+psycopg://dptopk@127.0.0.1:1/postgres")
    with pytest.raises(LedgerError):
        Ledger("nosuchdatabase://x")


def statements(url: str, *lines: str) -> None:
    import psycopg

    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for line in lines:
            connection.execute(line)


def test_commits_are_synchronous_and_a_server_that_loses_them_is_refused(url):
    statements(url, "ALTER ROLE dptopk SET synchronous_commit = off")
    try:
        with Ledger(url, key="secret") as ledger, ledger._store.transaction("write") as log:
            assert log.run("SHOW synchronous_commit") == [("on",)]
            assert log.run("SHOW lock_timeout") == [("1min",)]
    finally:
        statements(url, "ALTER ROLE dptopk RESET synchronous_commit")
    for setting in ("fsync", "full_page_writes"):
        statements(
            url,
            f"ALTER SYSTEM SET {setting} = off",
            "SELECT pg_reload_conf()",
            "SELECT pg_sleep(0.2)",
        )
        try:
            with pytest.raises(LedgerError, match=setting):
                Ledger(url, key="secret")
        finally:
            statements(
                url,
                f"ALTER SYSTEM RESET {setting}",
                "SELECT pg_reload_conf()",
                "SELECT pg_sleep(0.2)",
            )
    Ledger(url, key="secret").close()


def test_a_server_keeps_the_head_of_a_file(url, tmp_path):
    path, one = tmp_path / "ledger.db", Charge({BoundedRange(0.1): 1})
    with Ledger(path, head_file=url) as ledger:
        ledger.create_dataset("d", registered=one.times(9), delta=1e-6)
        shutil.copy(path, tmp_path / "old.db")
        ledger.charge("d", "ann", one)
        assert asdict(HeadTable(url).read()) == ledger.head()
        path.write_bytes((tmp_path / "old.db").read_bytes())
        with pytest.raises(LedgerError, match="tail is missing"):
            ledger.charge("d", "ann", one)
    with pytest.raises(LedgerError, match="tail is missing"):
        Ledger(path, head_file=url)


def test_durability_that_is_switched_off_later_is_noticed(url):
    with Ledger(url, key="secret") as ledger:
        ledger.create_dataset("later", registered=Charge({BoundedRange(0.1): 2}), delta=1e-6)
        for setting in ("fsync", "full_page_writes"):
            reload = ("SELECT pg_reload_conf()", "SELECT pg_sleep(0.2)")
            statements(url, f"ALTER SYSTEM SET {setting} = off", *reload)
            try:
                with pytest.raises(LedgerError, match=setting):
                    ledger.charge("later", "ann", Charge({BoundedRange(0.1): 1}))
                assert setting in " ".join(ledger.check())
            finally:
                statements(url, f"ALTER SYSTEM RESET {setting}", *reload)
        ledger.charge("later", "ann", Charge({BoundedRange(0.1): 1}))


def test_verification_asks_the_database(url):
    with Ledger(url, key="secret") as ledger:
        statements(url, "CREATE EXTENSION amcheck")
        assert ledger.verify()
        statements(
            url, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'places_pkey'::regclass"
        )
        assert ledger.check()
        statements(
            url, "UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'places_pkey'::regclass"
        )
        assert ledger.verify()


@contextmanager
def lagging(primary: Cluster):
    """A standby that follows the primary until it is told to lag."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        standby = Cluster(Path(folder))
        standby.run(
            "pg_basebackup",
            "-h",
            "127.0.0.1",
            "-p",
            primary.port,
            "-U",
            "dptopk",
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
        )
        standby.start()
        try:
            yield standby
        finally:
            standby.stop()


def test_a_failover_to_a_lagging_standby_brings_no_budget_back(url, tmp_path):
    """An asynchronous standby lacks 4 of 6 charges when the primary dies, in the middle of the
    charging.
    """
    primary, one, name = CLUSTERS[url], Charge({BoundedRange(0.1): 1}), "failover"
    with lagging(primary) as standby:
        ports = (primary.port, standby.port)
        hosts = "&".join(f"host=127.0.0.1:{port}" for port in ports)
        both = f"postgresql+psycopg://dptopk@/postgres?{hosts}&target_session_attrs=read-write"
        head = tmp_path / "head.json"
        with suppress(LedgerError):  # there is no ledger yet unless another test made it
            Ledger.attach_witness(both, head, key="secret", reason="two servers")
        ledger = Ledger(both, key="secret", head_file=head)
        ledger.create_dataset(name, registered=one.times(8), delta=1e-6)
        granted = 0
        for number in range(6):
            if number == 2:
                follow(url, standby)
            ledger.charge(name, "ann", one)
            granted += 1
        head = (tmp_path / "head.json").read_text(encoding="utf-8")
        primary.stop()
        try:
            standby.run("pg_ctl", "-w", "promote")
            for _ in range(20):
                with pytest.raises(LedgerError):
                    ledger.charge(name, "ann", one)
            with pytest.raises(LedgerError, match="tail is missing"):
                ledger.charge(name, "ann", one)
            assert not ledger.verify()
            ledger.close()
            with pytest.raises(LedgerError, match="tail is missing"):
                Ledger(both, key="secret", head_file=tmp_path / "head.json")
            assert (tmp_path / "head.json").read_text(encoding="utf-8") == head
            with Ledger(both, key="secret") as unaware:
                assert unaware.spent(name).count < granted
                (problem,) = unaware.check()
                assert "head of this ledger is missing" in problem
                assert not unaware.verify(head=json.loads(head))
            Ledger.accept_restore(
                both, key="secret", head_file=tmp_path / "head.json", reason="the primary is lost"
            )
            with Ledger(both, key="secret", head_file=tmp_path / "head.json") as accepted:
                accepted.charge(name, "ann", one)
        finally:
            primary.start()


def follow(url: str, standby: Cluster) -> None:
    """Wait until the standby has all that was charged, then let it receive nothing more."""
    import psycopg

    there = f"postgresql://dptopk@127.0.0.1:{standby.port}/postgres"
    with (
        psycopg.connect(url.replace("+psycopg", "")) as first,
        psycopg.connect(there, autocommit=True) as second,
    ):
        at = first.execute("SELECT pg_current_wal_lsn()").fetchone()[0]
        for _ in range(200):
            if second.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (at,)).fetchone()[0]:
                break
            second.execute("SELECT pg_sleep(0.05)")
        second.execute("ALTER SYSTEM SET primary_conninfo = ''")
        second.execute("SELECT pg_reload_conf()")
        for _ in range(200):
            if not second.execute("SELECT count(*) FROM pg_stat_wal_receiver").fetchone()[0]:
                return
            second.execute("SELECT pg_sleep(0.05)")
    pytest.fail("the standby goes on receiving")


def test_a_database_that_cannot_hold_every_name_is_refused(url):
    """Charging an analyst whose name Latin-1 lacks would otherwise fail in the driver, with a
    traceback.
    """
    import psycopg

    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE narrow ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE "
            "template0"
        )
    with pytest.raises(LedgerError, match="encoding UTF8"):
        Ledger(url.replace("/postgres", "/narrow"))


def test_first_heads_at_one_moment_are_none_refused(url):
    """PostgreSQL refuses one of two that create a table at once, though neither may exist."""
    import sqlalchemy as sa

    head = Head(1, "0" * 64, "id")
    for _ in range(5):
        with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
            connection.execute(sa.text("DROP TABLE IF EXISTS dptopk_head"))
        with ThreadPoolExecutor(6) as pool:
            first = list(pool.map(lambda _: HeadTable(url).swap(None, head), range(6)))
        assert sorted(first) == [False] * 5 + [True]


def test_a_head_that_somebody_has_locked_is_not_waited_for_without_end(url, monkeypatch):
    """A process that was stopped in the middle of its commit made every other one wait."""
    import sqlalchemy as sa

    table = HeadTable(url)
    first = Head(1, "0" * 64, "id")
    table.swap(table.read(), first)
    monkeypatch.setattr("dptopk.ledger.heads.LOCK_SECONDS", 0.2)
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as holder:
        holder.execute(sa.text("SELECT * FROM dptopk_head FOR UPDATE"))
        with pytest.raises(LedgerError, match="lock timeout"):
            table.swap(first, Head(2, "1" * 64, "id"))
        assert table.read() == first
    assert table.swap(first, Head(2, "1" * 64, "id"))


def test_a_head_in_the_database_of_the_ledger_by_another_name_is_refused(url):
    """An old copy of the database would bring back both."""
    import sqlalchemy as sa

    cluster = CLUSTERS[url]
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for name in ("own", "elsewhere"):
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    own, elsewhere = (url.removesuffix("postgres") + name for name in ("own", "elsewhere"))
    names = [
        own.replace("127.0.0.1", "localhost"),
        f"postgresql+psycopg://dptopk@/own?host={cluster.folder}&port={cluster.port}",
        f"{own}?application_name=heads",
    ]
    for name in names:
        with pytest.raises(InvalidParameter, match="the ledger itself"):
            Ledger(own, head_file=name)
    with Ledger(own, head_file=elsewhere.replace("127.0.0.1", "localhost")) as ledger:
        assert ledger.verify()
