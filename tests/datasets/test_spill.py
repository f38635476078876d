"""What is spilled to disk is removed, also that of a process that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from unittest.mock import Mock

import pandas as pd
import pytest

from dptopk import InvalidParameter

pytest.importorskip("ibis")
pytest.importorskip("duckdb")
pytest.importorskip("fcntl")

from dptopk.datasets import DuckDB, events_histogram
from dptopk.datasets.backends import spill
from dptopk.datasets.backends.base import MemoryFull
from dptopk.datasets.backends.duckdb import _arrow_table
from dptopk.datasets.backends.spill import Spill

FRAME = pd.DataFrame({"u": ["a"], "i": ["x"]})
OPTIONS = {"user": "u", "item": "i", "labels_per_user": 1}
KILLED = """
import sys, time
from pathlib import Path
from dptopk.datasets.backends.spill import Spill
spill = Spill(Path(sys.argv[1]))
(spill.folder / "rows.tmp").write_bytes(b"x" * 1000)
print("spilled", flush=True)
time.sleep(60)
"""


def test_a_query_leaves_nothing_and_takes_nothing_of_others(tmp_path):
    engine = DuckDB(temp_directory=tmp_path / "spill")
    other = Spill(tmp_path / "spill")
    (tmp_path / "spill" / "mine.txt").touch()
    events_histogram(FRAME, **OPTIONS, engine=engine)
    with pytest.raises(InvalidParameter):
        events_histogram(tmp_path / "none.parquet", **OPTIONS, engine=engine)
    assert {path.name for path in (tmp_path / "spill").iterdir()} == {
        other.folder.name,
        "mine.txt",
    }
    other.remove()
    assert not other.folder.exists()


@pytest.mark.slow
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"spilled\n"
        events_histogram(FRAME, **OPTIONS, engine=DuckDB(temp_directory=tmp_path))
        assert len(list(tmp_path.rglob("rows.tmp"))) == 1
        process.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.rglob("rows.tmp"))) == 1
    events_histogram(FRAME, **OPTIONS, engine=DuckDB(temp_directory=tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_never_renamed_is_removed_after_a_day(tmp_path):
    """Its process may have been killed before it renamed it; a young one may still be locked."""
    folders = [tmp_path / f"dptopk-new-{name}" for name in ("old", "young")]
    for folder in folders:
        folder.mkdir()
    two_days_ago = time.time() - 2 * 86_400
    os.utime(folders[0], (two_days_ago, two_days_ago))
    Spill(tmp_path).remove()
    assert list(tmp_path.iterdir()) == folders[1:]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidParameter, match="temp_directory"):
        events_histogram(FRAME, **OPTIONS, engine=DuckDB(temp_directory=tmp_path / "file"))


def test_a_connection_that_fails_leaves_no_folder_and_no_lock(tmp_path, monkeypatch):
    def refuse(name, *, extra):
        raise ImportError(f"{name} is in the extra {extra}")

    locks = []
    monkeypatch.setattr("dptopk.datasets.backends.duckdb.import_of_extra", refuse)
    monkeypatch.setattr("dptopk.datasets.backends.spill._try_lock", partial(kept_lock, locks))
    with pytest.raises(ImportError, match="in the extra data"):
        events_histogram(FRAME, **OPTIONS, engine=DuckDB(temp_directory=tmp_path))
    assert not list(tmp_path.iterdir())
    (lock,) = locks
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(lock)


def kept_lock(locks, folder, take=spill._try_lock):
    locks.append(take(folder))
    return locks[-1]


def test_a_stream_that_is_too_large_for_the_memory_is_refused_as_that():
    """It was refused as one that "could not be read"."""
    pa = pytest.importorskip("pyarrow")
    data = pa.table({"user": [1], "item": ["a"]}).to_reader()
    full = Mock()
    full.con.execute.side_effect = MemoryError
    with pytest.raises(MemoryFull, match="table: the rows could not be read; its memory is too sm"):
        _arrow_table(full, data)


def test_a_connection_without_our_database_is_closed(tmp_path, monkeypatch):
    connections = []

    def refuse(connection):
        connections.append(connection)
        raise MemoryError

    monkeypatch.setattr("dptopk.datasets.backends.duckdb.attach_own_database", refuse)
    with pytest.raises(MemoryError):
        events_histogram(FRAME, **OPTIONS, engine=DuckDB(temp_directory=tmp_path))
    assert not list(tmp_path.iterdir())
    (connection,) = connections
    with pytest.raises(Exception, match="closed"):
        connection.con.execute("SELECT 1")
