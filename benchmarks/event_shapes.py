"""Processor time of private histograms in multiples of COUNT(DISTINCT) by the same engine, in one
process, on tables of several shapes.

    python benchmarks/event_shapes.py                       # 10^6 events
    python benchmarks/event_shapes.py --events 10000000     # a minute of processor time
    python benchmarks/event_shapes.py --events 3000000 --csv
    python benchmarks/event_shapes.py --events 3000000 --postgres postgresql://USER@127.0.0.1/DATABASE

PostgreSQL must run on this machine (Linux) and be otherwise idle: the processor time is that of its
connection, of the workers that ended meanwhile, and of this program. The table dptopk_shapes is
made there and removed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pandas as pd

from dptopk.datasets import DuckDB, event_counts, events_histogram

if TYPE_CHECKING:
    import ibis.expr.types as ir

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
    """Count different members by DuckDB alone."""
    with duckdb.connect(config=SETTINGS) as connection:
        connection.execute(DISTINCT.format(path=path)).fetchall()


def one_phase(table: Path | ir.Table) -> None:
    """The histogram of one phase."""
    engine = DuckDB(**SETTINGS) if isinstance(table, Path) else None
    events_histogram(table, **COLUMNS, labels_per_user=20, top=251, engine=engine)


def two_phases(table: Path | ir.Table, *, profile: bool) -> None:
    """The histograms of two phases; ``profile``: with those of a look."""
    engine = DuckDB(**SETTINGS) if isinstance(table, Path) else None
    event_counts(
        table, **COLUMNS, labels_per_user=100, weights=True, profile=profile, engine=engine
    )


QUERIES: dict[str, Callable[[Path | ir.Table], None]] = {
    "one phase": one_phase,
    "two phases": partial(two_phases, profile=False),
    "with a look": partial(two_phases, profile=True),
}


def seconds(query: Callable[[], None], clock: Callable[[], float]) -> float:
    """Processor time of a query."""
    start = clock()
    query()
    return clock() - start


def measure(
    count: Callable[[], None],
    queries: dict[str, Callable[[], None]],
    clock: Callable[[], float],
) -> tuple[float, dict[str, float]]:
    """Processor time of the plain query, and of each private one in multiples of it; the plain one
    runs before and after each, so that what others do on the machine slows both.
    """
    before = seconds(count, clock)
    plain = [before]
    ratios = {}
    for name, query in queries.items():
        taken = seconds(query, clock)
        plain.append(seconds(count, clock))
        ratios[name] = taken / statistics.mean(plain[-2:])
    return statistics.median(plain), ratios


def spread(ratios: list[float]) -> str:
    """The median and the range of some ratios, in words."""
    return f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"


class Server:
    """A table of PostgreSQL on this machine, and the processor time of its server."""

    def __init__(self, url: str) -> None:
        import ibis

        self.connection = ibis.connect(url)
        self.client = self.connection.con.info.backend_pid

    def write(self, path: Path) -> ir.Table:
        """Put the rows of a Parquet file into the table of events."""
        kinds = {"VARCHAR": "text", "BIGINT": "bigint"}
        relation = duckdb.read_parquet(str(path))
        columns = zip(relation.columns, relation.types, strict=True)
        described = ", ".join(f"{name} {kinds[str(kind)]}" for name, kind in columns)
        text = path.with_suffix(".csv")
        relation.write_csv(str(text), header=False)
        with self.connection.con.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS dptopk_shapes")
            cursor.execute(f"CREATE TABLE dptopk_shapes ({described})")
            with text.open("rb") as file, cursor.copy("COPY dptopk_shapes FROM STDIN CSV") as copy:
                while piece := file.read(2**20):
                    copy.write(piece)
            cursor.execute("ANALYZE dptopk_shapes")
        self.connection.con.commit()
        return self.connection.table("dptopk_shapes")

    def distinct(self) -> None:
        """Count different members by the server alone."""
        with self.connection.con.cursor() as cursor:
            cursor.execute(DISTINCT.format(path="dptopk_shapes").replace("'", "")).fetchall()
        self.connection.con.commit()

    def clock(self) -> float:
        """Processor seconds of the connection, of its ended workers and of this program."""
        own = self._fields(self.client)
        server = self._fields(int(own[1]))
        ticks = sum(map(int, own[11:13])) + sum(map(int, server[13:15]))
        return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()

    def close(self) -> None:
        """Remove the table."""
        with self.connection.con.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS dptopk_shapes")
        self.connection.con.commit()
        self.connection.disconnect()

    @staticmethod
    def _fields(process: int) -> list[str]:
        """Fields of a process from its state on."""
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()


def main() -> None:
    """Print a table of all shapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--csv", action="store_true", help="CSV instead of Parquet")
    parser.add_argument("--postgres", metavar="URL", help="a server instead of DuckDB")
    options = parser.parse_args()
    server = Server(options.postgres) if options.postgres else None
    clock = server.clock if server else time.process_time
    events_histogram(pd.DataFrame({"u": [1], "i": [1]}), user="u", item="i", labels_per_user=1)
    print("| events | COUNT(DISTINCT), s |", " | ".join(QUERIES), "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, events in SHAPES.items():
            path = Path(folder) / ("events.csv" if options.csv else "events.parquet")
            with duckdb.connect(config=SETTINGS) as connection:
                query = events.format(events=options.events)
                connection.execute("SELECT setseed(0.5)").fetchall()
                connection.execute(f"COPY ({query}) TO '{path}'").fetchall()
            table = server.write(path) if server else path
            count = server.distinct if server else partial(distinct, path)
            asked = {name: partial(private, table) for name, private in QUERIES.items()}
            rounds = [measure(count, asked, clock) for _ in range(options.repeats)]
            plain = statistics.median(plain for plain, _ in rounds)
            cells = [spread([ratios[query] for _, ratios in rounds]) for query in QUERIES]
            print(f"| {name} | {plain:.2f} |", " | ".join(cells), "|", flush=True)
    if server:
        server.close()


if __name__ == "__main__":
    main()
