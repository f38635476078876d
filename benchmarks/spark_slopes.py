"""What a table takes on Spark, in one local session, warm: processor time of the JVM and of Python,
bytes written for shuffles, and the memory of the Python driver.

    python -m benchmarks.spark_slopes --events 1000000 3000000
    python -m benchmarks.spark_slopes --table many --events 1000000 3000000   # bytes of a label

The tables are those of ``benchmarks.memory``. The memory is the peak above what Python held before
the query (Linux).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.memory import COLUMNS, MIB, TABLES, peak, write
from dptopk.datasets import Spark, event_counts, events_histogram

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Query = Callable[["SparkSession", Path], object]
DISTINCT = """SELECT article, count(DISTINCT member) AS n FROM parquet.`{path}`
    GROUP BY article ORDER BY n DESC, article LIMIT 251"""
TICKS = os.sysconf("SC_CLK_TCK")


def distinct(session: SparkSession, path: Path) -> None:
    """Count different members by the engine alone."""
    session.sql(DISTINCT.format(path=path)).collect()


def one_phase(session: SparkSession, path: Path) -> object:
    """The 251 largest counts of one phase."""
    engine = Spark(session=session)
    return events_histogram(path, **COLUMNS, labels_per_user=20, top=251, engine=engine)


def two_phases(session: SparkSession, path: Path, *, profile: bool) -> object:
    """All counts of two phases; ``profile``: with those of the looks of a session."""
    engine = Spark(session=session)
    return event_counts(
        path, **COLUMNS, labels_per_user=100, weights=True, profile=profile, engine=engine
    )


QUERIES: dict[str, Query] = {
    "COUNT(DISTINCT)": distinct,
    "one phase": one_phase,
    "two phases": partial(two_phases, profile=False),
    "two phases with looks": partial(two_phases, profile=True),
}


def local(folder: Path, threads: int) -> SparkSession:
    """A session of this machine, with the default of the other settings."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{threads}]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": str(4 * threads),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def processor(session: SparkSession) -> float:
    """Processor seconds that the JVM and this program have taken."""
    number = session._jvm.java.lang.ProcessHandle.current().pid()  # noqa: SLF001
    fields = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS + time.process_time()


def shuffled(session: SparkSession) -> int:
    """Bytes that the session has written for shuffles."""
    executors = session.sparkContext._jsc.sc().statusStore().executorList(True)  # noqa: SLF001
    return sum(executors.apply(i).totalShuffleWrite() for i in range(executors.size()))


def measure(session: SparkSession, path: Path, name: str) -> list[float]:
    """Seconds, bytes of shuffles and bytes of the driver that a query takes."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = processor(session), shuffled(session), peak()
    kept = QUERIES[name](session, path)
    after = processor(session), shuffled(session), peak()
    del kept
    return [end - start for end, start in zip(after, before, strict=True)]


def main() -> None:
    """Print a row for each query and table, and what each further event took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 3_000_000])
    parser.add_argument("--table", choices=TABLES, default="zipf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--queries", choices=QUERIES, nargs="+", default=list(QUERIES))
    options = parser.parse_args()
    rows: dict[str, list[tuple[int, int, list[float]]]] = {name: [] for name in options.queries}
    with tempfile.TemporaryDirectory() as folder:
        path, session = Path(folder) / "events.parquet", local(Path(folder), options.threads)
        write(options.table, 10_000, path)
        for name in options.queries:
            measure(session, path, name)  # warm
        print("| events, labels | query | CPU, s | shuffles, MiB | driver, MiB |")
        for events in sorted(options.events):
            labels = write(options.table, events, path)
            session.catalog.clearCache()
            for name in options.queries:
                seconds, shuffle, memory = row = measure(session, path, name)
                rows[name].append((events, labels, row))
                print(
                    f"| {events}, {labels} | {name} | {seconds:.1f} | {shuffle / MIB:.0f} | "
                    f"{memory / MIB:.0f} |",
                    flush=True,
                )
        session.stop()
    print("| query | CPU, µs an event | shuffles, B an event | driver, B a label |")
    for name, ((first, few, small), *_, (last, many, large)) in rows.items():
        seconds, shuffle, memory = (b - a for a, b in zip(small, large, strict=True))
        print(
            f"| {name} | {seconds / (last - first) * 1e6:.2f} | {shuffle / (last - first):.1f} "
            f"| {memory / (many - few):.0f} |"
        )


if __name__ == "__main__":
    main()
