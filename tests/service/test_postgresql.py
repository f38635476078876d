"""The service on PostgreSQL: two workers on one database; skipped, visibly, where no server is
installed.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from ledger.test_postgresql import url  # noqa: F401
from sqlalchemy import NullPool, create_engine

from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.ledger import Ledger
from dptopk.service.access import Access
from dptopk.service.tables import Tables

from .conftest import ASKED, CATALOG, Server, write_words
from .test_exactly_once import storm

pytestmark = pytest.mark.slow


# the fixture
def test_a_locked_row_of_the_access_database_is_not_waited_for_without_end(url, monkeypatch):  # noqa: F811
    monkeypatch.setattr("dptopk.service.tables.LOCK_TIMEOUT_MS", 200)
    tables = Tables(url)
    add = tables.add_statement(Tables.settings, "locked", 1)
    tables.change(add)
    with create_engine(url, poolclass=NullPool).begin() as holder:
        holder.exec_driver_sql("SELECT * FROM service_settings FOR UPDATE")
        with pytest.raises(LedgerError, match="cannot be written now"):
            tables.change(add)
    tables.change(add)
    assert tables.value(Tables.settings, "locked") == 2
    tables.close()


# the fixture
def test_a_revocation_holds_against_a_rotation_at_the_same_time(url):  # noqa: F811
    """In every order the analyst has no token, or the one that was created after it."""
    tables = Tables(url)
    access = Access(tables)
    for number in range(12):
        name = f"zoe{number}"
        access.create(name)
        barrier = threading.Barrier(2)

        def rotate(name: str = name, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                access.rotate(name)
            except InvalidParameter:
                return False
            return True

        def revoke(name: str = name, barrier: threading.Barrier = barrier) -> int:
            barrier.wait()
            return access.revoke(name)

        with ThreadPoolExecutor(2) as pool:
            ended = pool.submit(revoke)
            pool.submit(rotate).result()
            assert ended.result() >= 1
        rows = [row for row in access.people() if row["analyst"] == name]
        assert all(row["ended"] for row in rows)
    tables.close()


# the fixture
def test_two_workers_share_a_ledger_and_a_key_is_paid_once(tmp_path, url):  # noqa: F811
    text = CATALOG.replace('"ledger.db"', f'"{url}"').replace("epsilon = 4.0", "epsilon = 0.3")
    statuses, entries = [], set()
    with ExitStack() as stack:
        first = stack.enter_context(Server(tmp_path, text).running())
        second = stack.enter_context(Server(tmp_path, text).running())

        def work(server, number: int) -> None:
            with server.client("ann") as ann:
                for question in range(4):
                    key = {"Idempotency-Key": f"question-{(question + number) % 4}"}
                    answer = ann.post("/v1/datasets/words/topk", json=ASKED, headers=key)
                    statuses.append(answer.status_code)
                    entries.update([answer.json()["entry"]] if answer.status_code == 200 else [])

        threads = [
            threading.Thread(target=work, args=(server, number))
            for number, server in enumerate((first, second, first, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spends = first.service.reports.ledger.history("words")
        assert set(statuses) == {200, 409}  # not all four questions fit
        assert {spend.seq for spend in spends} == entries
        assert len(spends) < 4
        assert second.service.reports.ledger.verify()
        assert second.service.access.people()


def test_two_hosts_with_kills(tmp_path, url):  # noqa: F811
    """Two servers that share nothing but the database: each has a folder, with a catalog and the
    data, of its own.
    """
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE hosts")
    engine.dispose()
    url = url.removesuffix("/postgres") + "/hosts"
    folders = [tmp_path / "host-1", tmp_path / "host-2"]
    for folder in folders:
        folder.mkdir()
        write_words(folder, "1")
        (folder / "catalog.toml").write_text(
            CATALOG.replace('"ledger.db"', f'"{url}"'), encoding="utf-8"
        )
    assert storm(folders, lambda: Ledger(url), kills=2)
