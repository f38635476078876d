"""Labels that stay in the engine: the histograms are those of labels that are read, row by row, and
only labels that are asked for are read.
"""

from __future__ import annotations

import gc
import os
import pickle

import numpy as np
import pandas as pd
import pytest

from dptopk import Budget, Session

pytest.importorskip("ibis")
pytest.importorskip("duckdb")

from dptopk.datasets import DuckDB, engine_calls, event_counts, two_counts, unread_labels
from dptopk.datasets.backends import stored_rows
from dptopk.datasets.backends.base import MemoryFull
from dptopk.histogram.stored_labels import StoredLabels

OPTIONS = {"user": "user", "item": "item", "labels_per_user": 3}


def events(kind: type = str) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    items = rng.integers(-150, 150, 900)
    odd = {4: "", 7: "a\0b", 8: "a\0a", 9: "é", 10: "Z"}
    texts = items if kind is int else [odd.get(i, f"i{i}") for i in items]
    return pd.DataFrame({"user": rng.integers(0, 120, 900), "item": texts})


@pytest.fixture
def few(monkeypatch):
    """Labels are many from two of sixteen events on."""
    monkeypatch.setattr(unread_labels, "MANY_EVENTS", 16)


def read_with_counts(monkeypatch, **options):
    with monkeypatch.context() as patched:
        patched.setattr(two_counts, "unread_counts", lambda *_, **__: None)
        return event_counts(**options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [str, int])
@pytest.mark.parametrize(
    "options",
    [
        {"weights": True, "profile": True},
        {"weights": True, "portable": True},
        {"per_label_cap": 2},
        {"choose": "top", "weights": True, "profile": True},
    ],
    ids=str,
)
def test_the_rows_are_those_of_labels_that_are_read(kind, options, few, monkeypatch):
    asked = {"table": events(kind), **OPTIONS, **options}
    unread, read = event_counts(**asked), read_with_counts(monkeypatch, **asked)
    assert isinstance(unread.unread_labels, StoredLabels)
    assert not isinstance(read.unread_labels, StoredLabels)
    assert unread.narrow.keys() == read.narrow.keys()
    pairs = [(unread, read), (unread.under_cap, read.under_cap)]
    pairs += [(unread.under(cap), read.under(cap)) for cap in read.narrow]
    for one, other in pairs:
        assert one.counts.tolist() == other.counts.tolist()
        assert one.labels.tolist() == other.labels.tolist()
        chosen = np.array([7, 2, 30])
        names = other.labels[chosen].tolist()
        assert one.unread_labels[chosen].tolist() == names
        others = [*names, "none", 2**70, "\ud800", None, 1.0]
        assert one.positions(others).tolist() == other.positions(others).tolist()
        assert one.top_rows(40).tolist() == other.top_rows(40).tolist()
    if read.profile is not None:
        assert unread.profile.counts.tolist() == read.profile.counts.tolist()
    again = pickle.loads(pickle.dumps(unread))  # noqa: S301
    assert again.labels.tolist() == read.labels.tolist()


@pytest.mark.slow
def test_a_seeded_answer_is_the_same_and_reads_only_what_it_shows(few, monkeypatch):
    asked = {"user": "user", "item": "item", "budget": Budget(epsilon=8.0, delta=1e-3)}
    found, reads = [], []
    labels = stored_rows.StoredRows.labels_of_rows

    def counted(self, rows):
        reads.append(None if rows is None else len(rows))
        return labels(self, rows)

    monkeypatch.setattr(stored_rows.StoredRows, "labels_of_rows", counted)
    for read in (True, False):
        with monkeypatch.context() as patched:
            if read:
                patched.setattr(two_counts, "unread_counts", lambda *_, **__: None)
            session = Session.from_events(events(), **asked, rng=np.random.default_rng(1))
            found.append(session.top_k(5).to_dict())
    assert found[0] == found[1]
    assert reads
    assert None not in reads


@pytest.mark.slow
def test_where_memory_is_full_labels_are_read_with_the_counts(few, monkeypatch):
    table, keep = events(), engine_calls.engine_table

    def full(source, name, expression):
        if name == "dptopk_ranked":
            raise MemoryFull("full")
        return keep(source, name, expression)

    asked = {"table": table, **OPTIONS}
    read = read_with_counts(monkeypatch, **asked)
    monkeypatch.setattr(unread_labels, "engine_table", full)
    found = event_counts(**asked)
    assert not isinstance(found.unread_labels, StoredLabels)
    assert found.labels.tolist() == read.labels.tolist()


@pytest.mark.slow
def test_the_connection_and_its_spill_go_with_the_histogram(few, tmp_path):
    engine = DuckDB(memory_limit="300MB", temp_directory=tmp_path)
    found = event_counts(events(), **OPTIONS, engine=engine)
    assert found.labels.size == len(found)
    assert list(tmp_path.iterdir())
    del found
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_forked_process_closes_nothing(tmp_path):
    """What was opened is its parent's: a child that lets it go leaves the files alone."""
    closed = tmp_path / "closed"
    holder = stored_rows.Holder(closed.touch)
    child = os.fork()
    if child == 0:
        holder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert not closed.exists()
    holder.close()
    assert closed.exists()


def test_memory_comes_back_after_the_counts_are_read():
    """Labels that are shown are read by joins, for which 64 MiB were too few."""
    connection = DuckDB(memory_limit="200MB").connect()

    def limit():
        return connection.con.execute("SELECT current_setting('memory_limit')").fetchone()[0]

    before = limit()
    rows = stored_rows.StoredRows(
        connection, stored_rows.Holder(connection.disconnect), "200MB", table="t"
    )
    with rows._with_table_on_disk():
        assert limit() == "64.0 MiB"
    assert limit() == before
