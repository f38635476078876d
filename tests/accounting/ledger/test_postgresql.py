"""The ledger on a real PostgreSQL server, started for this test; skipped, visibly, where none is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from dptopk.accounting.ledger.ledger import Ledger
from dptopk.costs import BoundedRange, Charge
from dptopk.errors import BudgetExceeded, LedgerError

pytest.importorskip("psycopg", reason="psycopg is not installed")


def server_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None


def unprivileged() -> list[str] | None:
    """PostgreSQL refuses to run as root: the prefix that runs a command as another user, or None."""
    if os.geteuid() != 0:
        return []
    return ["runuser", "-u", "postgres", "--"] if shutil.which("runuser") else None


@pytest.fixture(scope="module")
def url():
    programs, prefix = server_programs(), unprivileged()
    if programs is None or prefix is None:
        pytest.skip("PostgreSQL's server programs are not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        if prefix:
            shutil.chown(folder, "postgres")
        initialise = [*prefix, programs / "initdb", "-D", data, "-U", "dptopk", "-A", "trust"]
        if subprocess.run(initialise, capture_output=True, check=False, cwd="/").returncode:
            pytest.skip("PostgreSQL's initdb does not run here")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        control = [*prefix, programs / "pg_ctl", "-D", data, "-w"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        subprocess.run([*control, "-o", options, "start"], check=True, **quiet)
        try:
            yield f"postgresql+psycopg://dptopk@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, **quiet)


def test_the_same_ledger_on_postgresql(url):
    with Ledger(url, key="secret") as ledger:
        ledger.create_dataset("data", registered=Charge({BoundedRange(0.1): 10}, delta=1e-7), delta=1e-6)
        receipt = ledger.charge("data", "ann", Charge({BoundedRange(0.1): 4}, delta=1e-8))
        ledger.settle(receipt, Charge({BoundedRange(0.1): 1}, delta=1e-8))
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
        statements(url, f"ALTER SYSTEM SET {setting} = off", "SELECT pg_reload_conf()", "SELECT pg_sleep(0.2)")
        try:
            with pytest.raises(LedgerError, match=setting):
                Ledger(url, key="secret")
        finally:
            statements(url, f"ALTER SYSTEM RESET {setting}", "SELECT pg_reload_conf()", "SELECT pg_sleep(0.2)")
    Ledger(url, key="secret").close()


def test_a_database_that_cannot_hold_every_name_is_refused(url):
    """Charging an analyst whose name Latin-1 lacks would otherwise fail in the driver, with a traceback."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE DATABASE narrow ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with pytest.raises(LedgerError, match="encoding UTF8"):
        Ledger(url.replace("/postgres", "/narrow"))
