"""A service on a free port of this machine, in a thread: its own ledger, data and tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from dptopk.service.access import Access
from dptopk.service.app import create_app
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.connections import open_connections, uvicorn_config
from dptopk.service.tables import Tables

CATALOG = """
ledger = "ledger.db"
rates = { free = 1000.0, spending = 1000.0 }

[datasets.words]
source = "words-{version}.csv"
label = "word"
count = "n"
labels_per_user = 1
unit = "word"
budget = { epsilon = 4.0, delta = 1e-5 }
limits = { bob = { epsilon = 0.4, delta = 1e-6 } }
filters = { part = ["one", "two"] }
segments = { part = 1 }

[datasets.hidden]
source = "macbeth"
labels_per_user = 1
budget = { epsilon = 1.0, delta = 1e-6 }
analysts = ["ann"]
"""
# A label that would run if it were not escaped, and counts that no answer may ever show as they
# are.
WORDS = [
    ("<img src=x onerror=alert(1)>", 918273),
    ("two & two", 604513),
    ("three", 500231),
    ("four", 401177),
]
# Of counts with Laplace noise: what is left of a budget for such questions is found in hundredths
# of a second, and is asked for after each charge.
ASKED = {"k": 3, "epsilon": 0.3, "delta": 1e-7, "counts": "laplace", "method": "threshold"}


def write_words(folder: Path, version: str, times: int = 1) -> None:
    """The table that the service reads."""
    rows = [f'"{word}",{count * times},{part}' for part in ("one", "two") for word, count in WORDS]
    unique = {row.split('",')[0]: row for row in rows}
    (folder / f"words-{version}.csv").write_text(
        "word,n,part\n" + "\n".join(unique.values()) + "\n", encoding="utf-8"
    )


class PatientClient(httpx.Client):
    """A client that asks again, with the same key, while its question is being worked on (202),
    unless it says how long it waits: a slow machine is no other answer.
    """

    def post(self, url: str, **options) -> httpx.Response:
        while True:
            answer = super().post(url, **options)
            if answer.status_code != 202 or "wait=" in url:
                return answer


class Server:
    """A running service."""

    def __init__(self, folder: Path, text: str = CATALOG, **options) -> None:
        self.folder = folder
        write_words(folder, "1")
        (folder / "catalog.toml").write_text(text, encoding="utf-8")
        self.catalog = load_catalog(folder / "catalog.toml")
        self.app = create_app(self.catalog, **options)
        self.tables = Tables(self.catalog.access)
        access = Access(self.tables)
        self.tokens = {name: access.create(name) for name in ("ann", "bob")} | {
            "eve": access.create("eve", "admin")
        }
        self.access = access

    @property
    def service(self):
        return self.app.state.service

    def client(self, who: str | None, timeout: float = 120.0) -> PatientClient:
        headers = {} if who is None else {"Authorization": f"Bearer {self.tokens[who]}"}
        return PatientClient(base_url=self.url, headers=headers, timeout=timeout)

    @contextmanager
    def running(self) -> Iterator[Server]:
        config = uvicorn_config(self.app, "127.0.0.1", 0)
        config.log_level = "critical"
        config.configure_logging()
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            thread.join(0.02)
        self.connections = open_connections(server.server_state)
        self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.should_exit = True
            thread.join()
            self.tables.close()


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path).running() as running:
        yield running
