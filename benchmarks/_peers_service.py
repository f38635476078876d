"""Requests a second, beside what the web server and the disk can do at most."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import _peers
import service_load

CLIENTS = 8
APP = """
from fastapi import FastAPI
app = FastAPI()

@app.get("/")
def hello() -> dict[str, str]:
    return {"hello": "world"}
"""


def bare_server(seconds: float) -> tuple[float, float]:
    """An endpoint of the same framework that does nothing: requests a second, milliseconds of
    processor time.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bare.py").write_text(APP, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "bare:app",
            "--port",
            "8124",
            "--log-level",
            "critical",
        ]
        server = subprocess.Popen(command, cwd=folder)
        try:
            url = "http://127.0.0.1:8124"
            service_load.answers(url)
            before = service_load.busy(server.pid)
            rate, _ = service_load.hammer(
                url, "nobody", seconds, CLIENTS, lambda client, *_: client.get("/")
            )
            return rate, 1000 * (service_load.busy(server.pid) - before) / (rate * seconds)
        finally:
            server.terminate()
            server.wait()


def commits(seconds: float) -> float:
    """Durable commits a second of a small row in SQLite, by one writer."""
    with (
        tempfile.TemporaryDirectory() as folder,
        sqlite3.connect(Path(folder) / "bare.db") as database,
    ):
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE log (entry TEXT)")
        done, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            database.execute("INSERT INTO log VALUES (?)", ("x" * 500,))
            database.commit()
            done += 1
        return done / seconds


def rows(seconds: float) -> Iterator[list[str]]:
    rate, each = bare_server(seconds)
    yield ["FastAPI, an endpoint that does nothing", f"{rate:,.0f}", f"{each:.2f} ms"]
    for name, answered, spent, wrong in service_load.measured(seconds, CLIENTS, 1):
        yield [
            f"dptopk: {name}" + (f" ({len(wrong)} failed)" if wrong else ""),
            f"{answered:,.0f}",
            f"{spent:.2f} ms",
        ]
    yield ["SQLite, a durable commit, one writer", f"{commits(seconds):,.0f}", "–"]


def section(smoke: bool) -> str:
    return _peers.table(
        ["request", "a second", "processor time of the server"], list(rows(3.0 if smoke else 5.0))
    )
