"""What docs/deploy.md promises: an old backup is found out, a catalog must fit its ledger, tokens
by command.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from dptopk.cli import app
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.service import app as service_app
from dptopk.service.answering import job_of
from dptopk.service.app import create_app
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.questions import TopK

from .conftest import ASKED, CATALOG, Server, write_words

KEPT = CATALOG.replace(
    'ledger = "ledger.db"', 'ledger = "ledger.db"\nhead_file = "elsewhere/head.json"'
)


@pytest.mark.slow
def test_a_restored_backup_brings_no_budget_back(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    server = Server(tmp_path, KEPT)
    server.service.reports.ledger.backup(tmp_path / "backup.db")
    spec = server.catalog.datasets["words"]
    server.service.jobs.start(job_of("ann", "words", "a-question"), "ann", "words")
    server.service.answer_service.ask(spec, "ann", "a-question", TopK(**ASKED))
    server.service.close()
    for leftover in tmp_path.glob("ledger.db*"):
        if ".access" not in leftover.name:
            leftover.unlink()
    shutil.copy(tmp_path / "backup.db", tmp_path / "ledger.db")
    with pytest.raises(LedgerError, match="old copy"):
        create_app(load_catalog(tmp_path / "catalog.toml"))


def test_a_lost_row_draws_no_second_answer_to_one_key(tmp_path):
    """With the rows that lead to keys and answers gone, a retry is refused; before, each one drew
    another answer.
    """
    server, key = Server(tmp_path), {"Idempotency-Key": "one-question"}
    with server.running(), server.client("ann") as ann:
        assert ann.post("/v1/datasets/words/topk", json=ASKED, headers=key).status_code == 200
        with sqlite3.connect(tmp_path / "ledger.db") as file:
            assert file.execute("DELETE FROM places").rowcount
        for _ in range(2):
            assert ann.post("/v1/datasets/words/topk", json=ASKED, headers=key).status_code == 503
        assert not server.service.reports.ledger.verify()


@pytest.mark.slow
def test_a_catalog_must_fit_its_ledger(tmp_path):
    Server(tmp_path).service.close()
    changed = CATALOG.replace(
        'labels_per_user = 1\nunit = "word"', 'labels_per_user = 2\nunit = "word"'
    )
    (tmp_path / "catalog.toml").write_text(changed, encoding="utf-8")
    with pytest.raises(LedgerError, match="the ledger says 'word'"):
        create_app(load_catalog(tmp_path / "catalog.toml"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("ledger =", "leger =", "unknown leger"),
        ("labels_per_user = 1", "labels_per_member = 1", "unknown labels_per_member"),
        ("budget = { epsilon = 4.0, delta = 1e-5 }", "", "budget"),
        (
            "budget = { epsilon = 4.0, delta = 1e-5 }",
            "budget = { epsilon = 4.0, size = 1 }",
            "unknown size",
        ),
        ("[datasets.words]", '[datasets."../words"]', "dataset must be"),
        ('label = "word"', 'user = "word"', "go together"),
        ('unit = "word"', 'engine = "abacus"', "duckdb or spark"),
        ("ledger", "ledger = [", "not TOML"),
    ],
)
def test_a_catalog_with_a_mistake(tmp_path, old, new, told):
    (tmp_path / "catalog.toml").write_text(CATALOG.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InvalidParameter, match=told):
        load_catalog(tmp_path / "catalog.toml")


@pytest.mark.slow
def test_registered_costs_and_events(tmp_path):
    """A set-wise registration pays for a question only with costs that it holds; events are read by
    the engine.
    """
    from dptopk.datasets import make_events

    make_events(tmp_path / "events.parquet", events=3_000, users=300, items=30, seed=1)
    write_words(tmp_path, "1")
    text = """
[datasets.articles]
source = "events.parquet"
user = "member"
item = "article"
labels_per_user = 1
top = 200
budget = { registered = "2*DP(0.5) + delta(1e-6)", delta = 1e-5 }
filters = { section = ["arts", "sport"] }
"""
    (tmp_path / "catalog.toml").write_text(text, encoding="utf-8")
    service = create_app(load_catalog(tmp_path / "catalog.toml")).state.service
    spec = service.catalog.datasets["articles"]
    question = TopK(
        k=2,
        epsilon=0.5,
        delta=1e-7,
        counts="laplace",
        method="threshold",
        where={"section": "arts"},
    )
    for key in ("first-one", "second-one"):
        service.jobs.start(job_of("ann", "articles", key), "ann", "articles")
        service.answer_service.ask(spec, "ann", key, question)
    service.jobs.start(job_of("ann", "articles", "third-one"), "ann", "articles")
    with pytest.raises(DptopkError, match="budget exceeded"):
        service.answer_service.ask(spec, "ann", "third-one", question)
    service.close()


@pytest.mark.slow
def test_tokens_by_command(tmp_path):
    write_words(tmp_path, "1")
    catalog = tmp_path / "catalog.toml"
    catalog.write_text(CATALOG, encoding="utf-8")

    def run(*arguments: str):
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["ledger", "analyst", *arguments])

    first = run("add", str(catalog), "ann", "--role", "admin").stdout.strip()
    second = run("rotate", str(catalog), "Ann").stdout.strip()
    assert first.startswith("dptopk_")
    assert first != second
    assert "1 token(s)" in run("revoke", str(catalog), "ann").output
    assert run("revoke", str(catalog), "ann").exit_code == 2
    listed = run("list", str(catalog)).output
    _, ident, secret = first.split("_", maxsplit=2)  # the secret may hold more of them
    assert ident in listed
    assert secret not in listed
    assert (tmp_path / "ledger.db.access").stat().st_mode & 0o077 == 0
    assert CliRunner().invoke(app, ["serve"]).exit_code == 2


SERVE = [sys.executable, "-m", "dptopk", "serve"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.study), 2])
def test_a_refused_start_ends_with_a_code_and_a_sentence(tmp_path, workers):
    """With two workers the parent never ended, and nothing listened."""
    server = Server(tmp_path)
    server.service.close()
    server.tables.close()
    path = tmp_path / "catalog.toml"
    path.write_text(CATALOG.replace("epsilon = 4.0", "epsilon = 9.0"), encoding="utf-8")
    told = subprocess.run(
        [*SERVE, str(path), "--workers", str(workers), "--port", str(free_port())],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 4
    assert "the ledger says epsilon 4.0" in told.stderr
    assert "Traceback" not in told.stderr


SLOW_START = """
import os, sys, time
if any("spawn_main(" in word for word in sys.orig_argv):
    with open(os.environ["STARTS"], "a") as starts:
        starts.write("one more\\n")
    time.sleep(7)
"""


@pytest.mark.slow
def test_workers_that_start_slowly_are_not_replaced(tmp_path):
    """uvicorn replaced each worker whose imports took more than 5 s, for ever."""
    server = Server(tmp_path)
    server.service.close()
    server.tables.close()
    (tmp_path / "sitecustomize.py").write_text(SLOW_START, encoding="utf-8")
    starts = tmp_path / "starts"
    port = free_port()
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [*SERVE, str(tmp_path / "catalog.toml"), "--workers", "2", "--port", str(port)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": paths, "STARTS": str(starts)}
    ) as parent:
        try:
            answered = False
            while not answered and number_of_lines(starts) <= 2:
                assert parent.poll() is None
                time.sleep(0.1)
                with contextlib.suppress(httpx.HTTPError):
                    answered = httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
            assert number_of_lines(starts) == 2
        finally:
            parent.terminate()


def number_of_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def test_a_worker_that_is_refused_ends_the_others(tmp_path, monkeypatch):
    path = tmp_path / "catalog.toml"
    path.write_text("ledger = 5", encoding="utf-8")
    monkeypatch.setenv("DPTOPK_CATALOG", str(path))
    monkeypatch.setenv(service_app.REFUSED, str(tmp_path / "refused"))
    sent = []
    monkeypatch.setattr(os, "kill", lambda *given: sent.append(given))
    with pytest.raises(SystemExit):
        service_app.from_environment()
    assert sent == [(os.getppid(), signal.SIGTERM)]
    assert "ledger must be a text" in (tmp_path / "refused").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.study)]
)
def test_a_demo_leaves_no_folder(tmp_path, number):
    """uvicorn ended by the signal itself, before the folder was removed."""
    port = free_port()
    with subprocess.Popen(
        [*SERVE, "--demo", "--port", str(port)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as demo:
        until = time.monotonic() + 300
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        assert list(tmp_path.iterdir())
        demo.send_signal(number)
        assert demo.wait(300) != 0 or number == signal.SIGINT
    assert list(tmp_path.iterdir()) == []


def test_files_are_readable_for_their_owner_alone(tmp_path):
    before = os.umask(0o022)
    try:
        text = CATALOG.replace(
            'ledger = "ledger.db"', 'ledger = "ledger.db"\nhead_file = "head.json"'
        )
        server = Server(tmp_path, text)
        made = {path.name for path in tmp_path.iterdir()} - {"catalog.toml", "words-1.csv"}
        assert {"ledger.db", "ledger.db.access", "head.json"} <= made
        for name in made:
            assert (tmp_path / name).stat().st_mode & 0o077 == 0, name
        server.service.close()
        server.tables.close()
    finally:
        os.umask(before)
