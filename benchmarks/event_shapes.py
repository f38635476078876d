"""Processor time of private histograms in multiples of COUNT(DISTINCT) by the same engine, in one
process, on tables of several shapes.

    python benchmarks/event_shapes.py                       # 10^6 events
    python benchmarks/event_shapes.py --events 10000000     # a minute of processor time
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import pandas as pd

from dptopk.datasets import DuckDB, event_counts, events_histogram

# The columns member and article, for a number of events.
SHAPES = {
    "skewed members, text": """SELECT 'm' || exp(random() * ln({events} / 100))::BIGINT AS member,
        'article ' || power(random(), -1.4)::BIGINT % 50000 AS article FROM range({events})""",
    "light members, integers": """SELECT (random() * {events} / 4)::BIGINT AS member,
        power(random(), -1.4)::BIGINT % 50000 AS article FROM range({events})""",
    "2,000 heavy members, integers": """SELECT (random() * 2000)::BIGINT AS member,
        power(random(), -0.8)::BIGINT % 730 AS article FROM range({events})""",
}
DISTINCT = """SELECT article, count(DISTINCT member) AS n FROM '{path}'
    GROUP BY article ORDER BY n DESC, article LIMIT 251"""
SETTINGS = {"threads": 2, "memory_limit": "2GB"}
COLUMNS = {"user": "member", "item": "article"}


def distinct(path: Path) -> None:
    """Count different members by the engine alone."""
    with duckdb.connect(config=SETTINGS) as connection:
        connection.execute(DISTINCT.format(path=path)).fetchall()


def one_phase(path: Path) -> None:
    """The histogram of one phase."""
    events_histogram(path, **COLUMNS, labels_per_user=20, top=251, engine=DuckDB(**SETTINGS))


def two_phases(path: Path, *, profile: bool) -> None:
    """The histograms of two phases; ``profile``: with those of a look."""
    event_counts(
        path,
        **COLUMNS,
        labels_per_user=100,
        weights=True,
        profile=profile,
        engine=DuckDB(**SETTINGS),
    )


QUERIES: dict[str, Callable[[Path], None]] = {
    "one phase": one_phase,
    "two phases": partial(two_phases, profile=False),
    "with a look": partial(two_phases, profile=True),
}


def seconds(query: Callable[[Path], None], path: Path) -> float:
    """Processor time of a query."""
    start = time.process_time()
    query(path)
    return time.process_time() - start


def main() -> None:
    """Print a table of all shapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    events_histogram(pd.DataFrame({"u": [1], "i": [1]}), user="u", item="i", labels_per_user=1)
    print("| events | COUNT(DISTINCT), s |", " | ".join(QUERIES), "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, events in SHAPES.items():
            path = Path(folder) / "events.parquet"
            with duckdb.connect(config=SETTINGS) as connection:
                query = events.format(events=options.events)
                connection.execute("SELECT setseed(0.5)").fetchall()
                connection.execute(f"COPY ({query}) TO '{path}'").fetchall()
            plain = sorted(seconds(distinct, path) for _ in range(options.repeats))
            cells = []
            for private in QUERIES.values():
                taken = sorted(seconds(private, path) for _ in range(options.repeats))
                low, high = taken[0] / plain[-1], taken[-1] / plain[0]
                middle = taken[len(taken) // 2] / plain[len(plain) // 2]
                cells.append(f"{middle:.1f} ({low:.1f} to {high:.1f})")
            print(f"| {name} | {plain[len(plain) // 2]:.2f} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
