"""Events to a bounded histogram against COUNT(DISTINCT member) of the same engine on the same
file.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _peers
import duckdb

from dptopk.datasets import events_histogram, make_events

LABELS_PER_USER = 20
TOP = 251
THREADS = 2
PEER = (
    "SELECT article, count(DISTINCT member) AS n FROM read_parquet(?) GROUP BY article ORDER "
    "BY n DESC, article LIMIT ?"
)


def processor(run: Callable[[], Any]) -> tuple[float, float]:
    """Wall and processor seconds of one run; the engine's threads count."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    wall = _peers.once(run)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def section(smoke: bool) -> str:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for events, each in (
            ((100_000, 100),) if smoke else ((1_000_000, 100), (10_000_000, 100), (10_000_000, 3))
        ):
            path = Path(folder) / f"{events}-{each}.parquet"
            made = path if each == 100 else path.with_suffix(".numbers")
            make_events(made, events=events, users=events // each, items=100_000, exponent=1.1)
            if made != path:  # many users with few labels, named by text
                named = "SELECT 'user-' || member AS member, article FROM read_parquet(?)"
                duckdb.sql(named, params=[str(made)]).write_parquet(str(path))

            def peer(path: Path = path) -> None:
                with duckdb.connect() as engine:
                    engine.execute(f"SET threads = {THREADS}").execute(
                        PEER, [str(path), TOP]
                    ).fetchall()

            def ours(path: Path = path) -> None:
                events_histogram(
                    path, user="member", item="article", labels_per_user=LABELS_PER_USER, top=TOP
                )

            for run in (peer, ours):
                run()  # not counted
            theirs, mine = (sorted(processor(run) for _ in range(3))[1] for run in (peer, ours))
            ratio = f"{mine[1] / theirs[1]:.2f}"
            rows.append(
                [
                    f"{events:,}, {each} a user{', named by text' if made != path else ''}",
                    *(_peers.seconds(x) for x in (theirs[0], mine[0], theirs[1], mine[1])),
                    ratio,
                ]
            )
    header = [
        "events",
        "COUNT(DISTINCT): wall",
        "dptopk: wall",
        "COUNT(DISTINCT): processor",
        "dptopk: processor",
    ]
    return _peers.table([*header, "ratio of processor time"], rows)
