"""Many writers on one ledger, killed at random instants: does it ever overspend, or lose a charge?

    python benchmarks/ledger_torture.py --writers 8 --tokens 4000 --kills 100

Each writer is a process that charges random small charges until the budget is used up. After a
charge returns, it writes the charge's entry number to a file of its own and syncs it: that stands
for the answer that left the building. Meanwhile the parent kills writers with SIGKILL at random
instants and starts new ones. At the end:

* overspends: tokens charged beyond those registered (must be 0);
* lost charges: answers whose entry is not in the ledger (must be 0);
* the chain must verify, and a new process must be able to read it.

With --kills 0 it measures the time of a durable spend, beside a bare durable transaction of SQLite
on the same disk.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dptopk.costs import BoundedRange, Charge
from dptopk.errors import BudgetExceeded
from dptopk.ledger.ledger import Ledger

TOKEN = BoundedRange(0.01)


def write(path: str, answers: str, seed: int, ahead: bool) -> None:
    """One writer: charge, then answer, until the budget is used up; prints a line when it gives up
    for that reason.
    """
    ledger, rng = Ledger(path, ahead=ahead), random.Random(seed)
    with Path(answers).open("a", encoding="ascii") as file:
        while True:
            charge = Charge({TOKEN: rng.randint(1, 3)})
            start = time.perf_counter()
            try:
                receipt = ledger.charge("data", f"analyst {seed % 5}", charge)
            except BudgetExceeded:
                if charge.count == 1:
                    print("used up", flush=True)
                    return
                continue
            seconds = time.perf_counter() - start
            file.write(f"{receipt.seq} {seconds}\n")
            file.flush()
            os.fsync(file.fileno())
            if rng.random() < 0.5:
                ledger.finalize(receipt, charge)


def torture(
    folder: Path, writers: int, tokens: int, kills: int, seed: int, ahead: bool
) -> dict[str, float]:
    """Run the writers and the killer; count what went wrong."""
    path, rng = folder / "ledger.db", random.Random(seed)
    registered = Charge({TOKEN: tokens})
    Ledger(path).create_dataset("data", registered=registered, delta=1e-6)
    started = 0

    def start() -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        command = [
            sys.executable,
            __file__,
            "--write",
            str(path),
            str(folder / f"answers-{started}"),
            str(started),
        ]
        return subprocess.Popen(
            [*command, "--ahead"] if ahead else command, stdout=subprocess.DEVNULL
        )

    running = [start() for _ in range(writers)]
    killed = 0
    while running:
        time.sleep(rng.uniform(0.0, 0.25) if killed < kills else 0.05)
        if killed < kills:
            victim = rng.randrange(len(running))
            running[victim].send_signal(signal.SIGKILL)
            running[victim].wait()
            running[victim] = start()
            killed += 1
        failed = [p.returncode for p in running if p.poll() not in {None, 0}]
        if failed and killed == kills:
            raise SystemExit(f"a writer failed with exit code {failed}")
        running = [p for p in running if p.poll() is None]
    return {"kills": killed} | audit(path, folder, tokens)


def audit(path: Path, folder: Path, tokens: int) -> dict[str, float]:
    """Compare the answers that left with what the ledger holds."""
    ledger = Ledger(path)
    charged = {entry.seq for entry in ledger.entries() if entry.kind == "charge"}
    lines = [
        line.split() for file in folder.glob("answers-*") for line in file.read_text().splitlines()
    ]
    whole = [line for line in lines if len(line) == 2]
    answered = {int(line[0]) for line in whole}
    return {
        "charges": len(charged),
        "answers": len(answered),
        "overspends": max(0, ledger.spent("data").count - tokens),
        "lost charges": len(answered - charged),
        "verified": ledger.verify(),
        "median ms": statistics.median(float(line[1]) for line in whole) * 1e3,
    }


def alone(folder: Path, spends: int, ahead: bool) -> dict[str, float]:
    """Median time of a durable spend by one writer, and of a bare durable insert of SQLite on the
    same disk.
    """
    ledger = Ledger(folder / "alone.db", ahead=ahead)
    ledger.create_dataset("data", registered=Charge({TOKEN: spends}), delta=1e-6)
    ours = []
    for _ in range(spends):
        start = time.perf_counter()
        ledger.charge("data", "ann", Charge({TOKEN: 1}))
        ours.append(time.perf_counter() - start)
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    mode = "WAL" if ahead else "PERSIST"
    for statement in (
        f"PRAGMA journal_mode={mode}",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE t (x)",
    ):
        bare.execute(statement)
    theirs = []
    for _ in range(spends):
        start = time.perf_counter()
        for statement in ("BEGIN IMMEDIATE", "INSERT INTO t VALUES (1)", "COMMIT"):
            bare.execute(statement)
        theirs.append(time.perf_counter() - start)
    return {
        "spend ms": statistics.median(ours) * 1e3,
        "bare SQLite ms": statistics.median(theirs) * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--spends", type=int, default=500, help="of the writer that is timed alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--ahead", action="store_true", help="with a write-ahead log, as the service"
    )
    parser.add_argument("--folder", help="where the files go; on the disk that is measured")
    options = parser.parse_args()
    if options.write:
        write(options.write[0], options.write[1], int(options.write[2]), options.ahead)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = torture(
            Path(folder),
            options.writers,
            options.tokens,
            options.kills,
            options.seed,
            options.ahead,
        )
        result |= alone(Path(folder), options.spends, options.ahead)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
