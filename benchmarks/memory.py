"""Peak memory and spill of DuckDB under a memory limit, each query in a process of its own, and what
is left in the folder of the spill after a process is interrupted or killed.

    python -m benchmarks.memory                        # 2 * 10^7 events, about 10^7 labels
    python -m benchmarks.memory --events 2000000       # a tenth of it
    python -m benchmarks.memory --table zipf --limit 1GB --events 1000000 10000000

Of several numbers of events, what each further event took from the smallest to the largest is
printed, and what that makes of 10^10: extrapolated, not measured.

The spill is the largest sum of the files in the folder, looked at every 20 milliseconds: a lower
bound of what was there.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb

from dptopk.datasets import DuckDB, event_counts, events_histogram

# Many labels: members as integers, labels as text; about half as many different labels as events.
# Zipf: members and labels as text, about ten events a member.
TABLES = {
    "many": """SELECT (random() * {events} / 4)::BIGINT AS member,
    'article ' || CASE WHEN random() < 0.5 THEN range ELSE power(random(), -1.4)::BIGINT % 50000 END
    AS article FROM range({events})""",
    "zipf": """SELECT 'm' || (random() * {events} / 10)::BIGINT AS member,
    'article ' || power(1 - random(), -1.4)::BIGINT AS article FROM range({events})""",
}
DISTINCT = """SELECT article, count(DISTINCT member) AS n FROM '{path}'
    GROUP BY article ORDER BY n DESC, article LIMIT 251"""
COLUMNS = {"user": "member", "item": "article"}
MIB = 2**20


def distinct(path: Path, spill: Path, limit: str) -> None:
    """Count different members by the engine alone."""
    settings = {"threads": 2, "memory_limit": limit, "temp_directory": str(spill)}
    with duckdb.connect(config=settings) as connection:
        connection.execute(DISTINCT.format(path=path)).fetchall()


def one_phase(path: Path, spill: Path, limit: str) -> None:
    """The 251 largest counts of one phase."""
    engine = DuckDB(threads=2, memory_limit=limit, temp_directory=spill)
    events_histogram(path, **COLUMNS, labels_per_user=20, top=251, engine=engine)


def two_phases(path: Path, spill: Path, limit: str, *, profile: bool) -> None:
    """All counts of two phases; ``profile``: with those of the looks of a session."""
    engine = DuckDB(threads=2, memory_limit=limit, temp_directory=spill)
    event_counts(path, **COLUMNS, labels_per_user=100, weights=True, profile=profile, engine=engine)


QUERIES: dict[str, Callable[[Path, Path, str], None]] = {
    "COUNT(DISTINCT)": distinct,
    "one phase": one_phase,
    "two phases": partial(two_phases, profile=False),
    "two phases with looks": partial(two_phases, profile=True),
}


def write(table: str, events: int, path: Path) -> int:
    """Write a table of made-up events, and return how many different labels it has."""
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute("SELECT setseed(0.5)").fetchall()
        connection.execute(f"COPY ({TABLES[table].format(events=events)}) TO '{path}'")
        labels = f"SELECT count(DISTINCT article) FROM '{path}'"  # noqa: S608
        (found,) = connection.execute(labels).fetchall()
    return int(found[0])


def spilled(folder: Path) -> int:
    """Bytes of all files below a folder."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            size += path.stat().st_size
    return size


def peak() -> int:
    """The largest resident memory of this program, in bytes (Linux).

    Not ``ru_maxrss``, which a new program takes over from the process that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024


def started(name: str, path: Path, spill: Path, limit: str) -> subprocess.Popen[str]:
    """A process that runs one query."""
    command = [sys.executable, "-m", "benchmarks.memory", "--query", name]
    command += ["--path", str(path), "--spill", str(spill), "--limit", limit]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def watched(process: subprocess.Popen[str], spill: Path, *, until: float) -> int:
    """The largest spill seen until the process ends or has spilled ``until`` bytes."""
    largest = 0
    while process.poll() is None and largest < until:
        largest = max(largest, spilled(spill))
        time.sleep(0.02)
    return largest


@dataclass(frozen=True)
class Taken:
    """What a query took: seconds of processor time, bytes at the peak, bytes of spill."""

    seconds: float
    peak: float
    spill: float


def measure(path: Path, spill: Path, limit: str) -> dict[str, Taken]:
    """Print a row for each query, and return what those that ended took."""
    taken = {}
    print("| query | CPU, s | peak, MiB | spill, MiB | spill / table |")
    for name in QUERIES:
        own = spill / name.replace(" ", "-")
        own.mkdir(parents=True, exist_ok=True)
        process = started(name, path, own, limit)
        largest = watched(process, own, until=float("inf"))
        output, errors = process.communicate()
        if process.returncode:
            print(f"| {name} | failed: {errors.strip().splitlines()[-1]} |", flush=True)
            continue
        times = largest / path.stat().st_size
        print(f"| {name} | {output.strip()} | {largest / MIB:.0f} | {times:.1f} |", flush=True)
        seconds, most = map(float, output.split("|"))
        taken[name] = Taken(seconds, most * MIB, largest)
    return taken


def slopes(small: tuple[int, dict[str, Taken]], large: tuple[int, dict[str, Taken]]) -> None:
    """Print what each further event took between two tables, and 10^10 times that."""
    print("| query | CPU, µs an event | peak, B | spill, B | 10^10: CPU, hours | spill, GB |")
    further = large[0] - small[0]
    for name in filter(large[1].__contains__, small[1]):
        before, after = small[1][name], large[1][name]
        each = (after.seconds - before.seconds) / further
        spill = (after.spill - before.spill) / further
        print(
            f"| {name} | {each * 1e6:.2f} | {(after.peak - before.peak) / further:.1f} "
            f"| {spill:.1f} | {each * 1e10 / 3600:.1f} | {spill * 10:.0f} |"
        )


def interrupt(path: Path, spill: Path, limit: str) -> None:
    """Print what a signal leaves of the spill, and what the next query of the place leaves."""
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process = started("two phases", path, spill, limit)
        before = watched(process, spill, until=8 * MIB)
        process.send_signal(sent)
        process.communicate()
        left = spilled(spill)
        with tempfile.TemporaryDirectory() as folder:
            small = Path(folder) / "small.parquet"
            duckdb.sql("SELECT 1 AS member, 'a' AS article").write_parquet(str(small))
            one_phase(small, spill, limit)
        print(
            f"{sent.name} (exit {process.returncode}) at {before / MIB:.0f} MiB: "
            f"{left / MIB:.0f} MiB left, {spilled(spill) / MIB:.0f} after the next query",
            flush=True,
        )


def main() -> None:
    """Print the table and the lines on signals, or run one query in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[20_000_000])
    parser.add_argument("--table", choices=TABLES, default="many")
    parser.add_argument("--limit", default="400MB")
    parser.add_argument("--query", choices=QUERIES)
    parser.add_argument("--path", type=Path)
    parser.add_argument("--spill", type=Path)
    options = parser.parse_args()
    if options.query is not None:
        start = time.process_time()
        QUERIES[options.query](options.path, options.spill, options.limit)
        print(f"{time.process_time() - start:.1f} | {peak() / MIB:.0f}")
        return
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path, spill = Path(folder) / "events.parquet", Path(folder) / "spill"
        for events in sorted(options.events):
            labels = write(options.table, events, path)
            size = path.stat().st_size / MIB
            print(f"{events} events, {labels} labels, {size:.0f} MiB, limit {options.limit}")
            found[events] = measure(path, spill, options.limit)
        if len(found) > 1:
            slopes(min(found.items()), max(found.items()))
        if options.table == "many":
            interrupt(path, spill, options.limit)


if __name__ == "__main__":
    main()
