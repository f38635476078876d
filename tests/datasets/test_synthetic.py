"""Made-up events follow the law that is returned with them."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from dptopk import InvalidParameter

pytest.importorskip("ibis")
pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")

from dptopk.datasets import events_histogram, make_events  # noqa: E402


def test_shape_and_columns(tmp_path):
    path, seen = tmp_path / "events.parquet", []
    truth = make_events(
        path,
        events=2500,
        users=40,
        items=30,
        seed=3,
        chunk=1000,
        progress=lambda *done: seen.append(done),
    )
    frame = pq.read_table(path).to_pandas()
    assert list(frame.columns) == ["member", "article", "section", "region"]
    assert len(frame) == 2500
    assert seen == [(1000, 2500), (2000, 2500), (2500, 2500)]
    assert set(frame["article"]) <= set(truth.articles)
    assert frame["member"].between(0, 39).all()
    assert frame.groupby("member", observed=True)["region"].nunique().max() == 1
    assert frame.groupby("article", observed=True)["section"].nunique().max() == 1
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_seed_gives_the_same_events_whatever_the_chunk(tmp_path):
    def made(**change):
        make_events(
            tmp_path / "events.parquet",
            **({"events": 500, "users": 9, "items": 8, "seed": 1} | change),
        )
        return pq.read_table(tmp_path / "events.parquet").to_pandas().astype(str)

    assert made().equals(made(chunk=7))
    assert not made().equals(made(seed=2))


def chi_square(observed, probabilities):
    """The statistic, less its mean, in standard deviations."""
    expected = observed.sum() * probabilities
    degrees = len(observed) - 1
    return (np.sum((observed - expected) ** 2 / expected) - degrees) / np.sqrt(2 * degrees)


def test_articles_and_members_follow_their_laws_and_not_another(tmp_path):
    truth = make_events(tmp_path / "events.parquet", events=200_000, users=50, items=40, seed=5)
    frame = pq.read_table(tmp_path / "events.parquet").to_pandas()
    articles = frame["article"].astype(str).value_counts().reindex(truth.articles).to_numpy()
    members = frame["member"].value_counts().reindex(range(50)).to_numpy()
    zipf = np.arange(1.0, 41) ** -1.1
    np.testing.assert_allclose(truth.popularity, zipf / zipf.sum())
    assert abs(chi_square(articles, truth.popularity)) < 5
    assert abs(chi_square(members, truth.activity)) < 5
    other = np.arange(1.0, 41) ** -1.15
    assert chi_square(articles, other / other.sum()) > 20


def test_expected_users(tmp_path):
    truth = make_events(tmp_path / "events.parquet", events=20_000, users=2000, items=500, seed=4)
    histogram = events_histogram(
        tmp_path / "events.parquet", user="member", item="article", labels_per_user=None, top=5
    )
    expected = truth.expected_users(5)
    # Members at an article are a sum of nearly independent indicators: variance at most the mean.
    assert np.all(np.abs(histogram.counts - expected) < 6 * np.sqrt(expected))
    assert histogram.labels.tolist()[:3] == truth.articles[:3].tolist()
    assert truth.expected_users(10**6).shape == (500,)


def test_no_events(tmp_path):
    make_events(tmp_path / "events.parquet", events=0, users=1, items=1)
    histogram = events_histogram(
        tmp_path / "events.parquet", user="member", item="article", labels_per_user=1
    )
    assert len(histogram) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"events": -1},
        {"users": 0},
        {"items": 0},
        {"seed": -1},
        {"chunk": 0},
        {"exponent": 0},
        {"spread": -1.0},
    ],
)
def test_refusals_name_the_argument(tmp_path, change):
    with pytest.raises(InvalidParameter, match=next(iter(change))):
        make_events(tmp_path / "events.parquet", **({"events": 1, "users": 1, "items": 1} | change))
    with pytest.raises(InvalidParameter, match="path"):
        make_events(tmp_path / "nowhere" / "events.parquet", events=1, users=1, items=1)


WRITING = """
import sys
from dptopk.datasets import make_events
def told(done, of):
    print(done, flush=True)
make_events(sys.argv[1], events=10**9, users=10, items=10, chunk=1000, progress=told)
"""


@pytest.mark.slow
@pytest.mark.parametrize("before", [None, b"as it was"])
def test_ctrl_c_leaves_nothing_half_written(tmp_path, before):
    path = tmp_path / "events.parquet"
    if before is not None:
        path.write_bytes(before)
    command = [sys.executable, "-c", WRITING, str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "1000\n"
        assert (tmp_path / "events.parquet.partial").exists()
        process.send_signal(signal.SIGINT)
        _, trouble = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in trouble
    assert process.returncode != 0
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == (
        {path.name: before} if before else {}
    )
