"""From events to a private top-k, against GROUP BY ... LIMIT (events, members) of the same engine
on the same file.

    python benchmarks/bench_events.py                                   # 10^6 events, seconds
    make measure WHAT=events ARGS="--events 100000000 --passes 1 4"     # the large one, minutes
    python benchmarks/bench_events.py --engine spark --events 10000000

Every measurement runs in a process of its own: wall time, its processor time (of DuckDB; Spark is
another process), peak resident memory of the process and its children, and the most disk that the
engine used in its temporary folder. Results are printed, and written to --output as JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=["duckdb", "spark"], default="duckdb")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument(
        "--users", type=int, default=None, help="default: a hundredth of the events"
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--exponent", type=float, default=1.1, help="of Zipf's law for the items")
    parser.add_argument("--k", type=int, default=25)
    parser.add_argument("--labels-per-user", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-limit", default="3GB")
    parser.add_argument(
        "--passes",
        type=int,
        nargs="+",
        default=[1],
        help="the private query once for each of these",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=None,
        help="for the events and the engine's temporary files",
    )
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    options.users = options.users or max(options.events // 100, 1)
    return options


def tree_memory() -> int:
    """Resident bytes of this process and its children, from /proc."""
    parents, resident = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(
                line.split(":", 1) for line in status.read_text().splitlines() if ":" in line
            )
        except OSError:  # it has ended
            continue
        pid = int(status.parent.name)
        parents[pid] = int(fields["PPid"])
        resident[pid] = 1024 * int(fields.get("VmRSS", "0 kB").split()[0])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(resident.get(pid, 0) for pid in ours)


def used(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def watched(
    task: Callable[[argparse.Namespace], dict[str, Any]], options: argparse.Namespace, scratch: Path
) -> Any:
    """Run a task and add what it took."""
    peaks, done = {"memory": 0, "disk": 0}, threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            peaks["memory"] = max(peaks["memory"], tree_memory())
            peaks["disk"] = max(peaks["disk"], used(scratch))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    start, processor = time.perf_counter(), time.process_time()
    result = task(options)
    result["processor"] = time.process_time() - processor
    result["seconds"] = result.get("seconds", time.perf_counter() - start)
    done.set()
    thread.join()
    return result | {"memory_gib": peaks["memory"] / 2**30, "temporary_gib": peaks["disk"] / 2**30}


def measured(
    task: Callable[[argparse.Namespace], dict[str, Any]], options: argparse.Namespace
) -> dict[str, Any]:
    """Run a task in a fresh process, with an empty scratch directory."""
    with tempfile.TemporaryDirectory(dir=options.directory) as scratch:
        options.scratch = Path(scratch)
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            return dict(pool.apply(watched, (task, options, Path(scratch))))


def make(options: argparse.Namespace) -> dict[str, Any]:
    from dptopk.datasets import make_events

    truth = make_events(
        options.file,
        events=options.events,
        users=options.users,
        items=options.items,
        exponent=options.exponent,
    )
    return {
        "file_gib": options.file.stat().st_size / 2**30,
        "truth": truth.articles[: options.k].tolist(),
    }


PLAIN = "SELECT article, count(*) AS n FROM events GROUP BY article ORDER BY n DESC, article LIMIT "
MEMBERS = PLAIN.replace("count(*)", "count(DISTINCT member)")


def plain_duckdb(options: argparse.Namespace, query: str = PLAIN) -> dict[str, Any]:
    connection = duckdb_engine(options).connect().con
    connection.read_parquet(str(options.file)).create_view("events")
    return {"rows": [row[0] for row in connection.execute(f"{query}{options.k}").fetchall()]}


def duckdb_engine(options: argparse.Namespace) -> Any:
    from dptopk.datasets import DuckDB

    return DuckDB(
        memory_limit=options.memory_limit,
        threads=options.threads,
        temp_directory=options.scratch,
        passes=options.passes,
    )


def spark_session(options: argparse.Namespace) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": options.memory_limit.replace("B", "").lower(),
        "spark.local.dir": str(options.scratch),
        "spark.sql.shuffle.partitions": str(8 * options.threads),
    }
    builder = SparkSession.builder.master(f"local[{options.threads}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def plain_spark(options: argparse.Namespace, query: str = PLAIN) -> dict[str, Any]:
    session = spark_session(options)
    start = time.perf_counter()
    session.read.parquet(str(options.file)).createOrReplaceTempView("events")
    rows = [row[0] for row in session.sql(f"{query}{options.k}").collect()]
    return {"rows": rows, "seconds": time.perf_counter() - start}


def private(options: argparse.Namespace) -> dict[str, Any]:
    from dptopk import Budget, Sensitivity, plan_topk
    from dptopk.datasets import Spark, events_histogram

    engine = (
        duckdb_engine(options)
        if options.engine == "duckdb"
        else Spark(session=spark_session(options))
    )
    start = time.perf_counter()
    sensitivity = Sensitivity(linf=1, l0=options.labels_per_user)
    budget = Budget(epsilon=options.epsilon, delta=1e-7)
    plan = plan_topk(
        options.k, budget, sensitivity=sensitivity, d_bar=10 * options.k, counts="gaussian"
    )
    planned = time.perf_counter() - start
    histogram = events_histogram(
        options.file,
        user="member",
        item="article",
        labels_per_user=options.labels_per_user,
        top=10 * options.k + 1,
        engine=engine,
    )
    release = plan.release(histogram)
    return {
        "rows": list(release.labels),
        "seconds": time.perf_counter() - start,
        "planning_seconds": planned,
        "charge": str(release.charge),
    }


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        options.file = Path(folder) / "events.parquet"
        made = measured(make, options)
        truth = made.pop("truth")
        print(
            f"{options.events:,} events, {options.users:,} members (log-normal activity), "
            f"{options.items:,} articles "
            f"(Zipf {options.exponent:g}); {made['file_gib']:.2f} GiB of Parquet made in "
            f"{made['seconds']:.0f} s"
        )
        print(
            f"{options.engine}, {options.threads} threads, memory limit {options.memory_limit}; "
            f"{platform.machine()}, Python {platform.python_version()}, load "
            f"{os.getloadavg()[0]:.1f} at the start",
            flush=True,
        )
        results = {"make": made}
        plain = {"duckdb": plain_duckdb, "spark": plain_spark}[options.engine]
        runs = [("plain", plain, 1), ("plain, members", partial(plain, query=MEMBERS), 1)]
        runs += [(f"private, {passes} passes", private, passes) for passes in options.passes]
        for name, task, options.passes in runs:
            result = results[name] = measured(task, options)
            result["in_true_top"] = len(set(result.pop("rows")) & set(truth))
            print(
                f"top-{options.k} {name:18} {result['seconds']:7.1f} s, "
                f"{result['processor']:.1f} of processor, "
                f"peak memory {result['memory_gib']:.2f} GiB, "
                f"temporary files {result['temporary_gib']:.2f} GiB, {result['in_true_top']} of "
                f"the true top, "
                f"{result['seconds'] / results['plain']['seconds']:.1f} times the plain query",
                flush=True,
            )
    if options.output is not None:
        shape = {
            name: value
            for name, value in vars(options).items()
            if isinstance(value, int | float | str)
        }
        options.output.write_text(json.dumps({"options": shape, "results": results}, indent=2))


if __name__ == "__main__":
    main()
