"""Does opening a ledger, or spending from it, cost more the longer its log is?

    python benchmarks/ledger_growth.py --charges 100000

Charges one account again and again (each answer settled with ``--finalize``) and measures at each
power of ten, in processor time of this process and in passed time: a spend (median of 50), opening
the ledger, and reading what is spent; at the end also ``verify``, which folds all of the log.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dptopk.costs import BoundedRange, Budget, Charge
from dptopk.ledger.ledger import Ledger

TOKEN = BoundedRange(0.001)
ONE = Charge({TOKEN: 1}, delta=1e-15)


def timed(run: Callable[[], object], times: int = 1) -> dict[str, float]:
    passed, used = [], []
    for _ in range(times):
        start = time.perf_counter(), time.process_time()
        run()
        passed.append(time.perf_counter() - start[0])
        used.append(time.process_time() - start[1])
    return {"ms": statistics.median(passed) * 1e3, "cpu ms": statistics.median(used) * 1e3}


def measure(path: Path, ledger: Ledger, charges: int) -> dict[str, object]:
    def opened() -> None:
        with Ledger(path) as again:
            again.spent("data")

    return {
        "charges": charges,
        "entries": ledger.head()["seq"],
        "spend": timed(lambda: ledger.charge("data", "ann", ONE), 50),
        "open": timed(opened, 5),
        "spent": timed(lambda: ledger.spent("data"), 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--charges", type=int, default=100_000)
    parser.add_argument("--finalize", action="store_true")
    parser.add_argument("--folder", help="where the file goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "ledger.db"
        with Ledger(path) as ledger:
            ledger.create_dataset("data", budget=Budget(1000.0, 1e-6))
            at = 1000
            for done in range(1, options.charges + 1):
                receipt = ledger.charge("data", f"analyst {done % 7}", ONE, query=f"q{done}")
                if options.finalize:
                    ledger.finalize(receipt, ONE, answer={"rows": [[1, "a", 7.0]]})
                if done in {at, options.charges}:
                    print(json.dumps(measure(path, ledger, done)), flush=True)
                    at *= 10
            print(json.dumps({"verify": timed(ledger.verify)}), flush=True)


if __name__ == "__main__":
    main()
