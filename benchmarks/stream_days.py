"""Processor time, memory and disk of a stream of many labels and days, by ``Session.stream`` on a
ledger.

    python benchmarks/stream_days.py                              # 10^5 labels, 365 days
    python benchmarks/stream_days.py --labels 1000000 --counted 20000 --reopen 73
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from dptopk import Histogram, Ledger, Sensitivity, Session
from dptopk.mechanisms import ContinualTopK
from dptopk.session.stream_session import StreamSession

ONE = Sensitivity(l0=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--counted", type=int, help="labels with a count on a day; default: all")
    parser.add_argument("--reopen", type=int, default=100, help="open the file anew every so often")
    parser.add_argument(
        "--shown", type=int, default=20, help="the number of days between printed lines"
    )
    options = parser.parse_args()
    mechanism = ContinualTopK(k=25, days=options.days, sigma=5.0, factorisation="square_root")
    labels = np.array([f"label {n}" for n in range(options.labels)], np.dtypes.StringDType())
    none = np.zeros(options.labels, np.int64)
    like = Histogram(labels, none, sensitivity=ONE, domain="public")
    rng = np.random.default_rng(1)
    print("| day | s, that day | s, mean | s, to open | peak memory, GB | file, GB |")
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
        charge = mechanism.charge(ONE, labels=options.labels)
        ledger.create_dataset("d", registered=charge, delta=1e-6, sensitivity=ONE, unit="user-day")
        session = Session(like, ledger=ledger, dataset="d", analyst="a", unit="user-day")
        path = Path(folder) / "d.stream"
        stream = session.stream("daily", mechanism, path=path)
        total = opening = 0.0
        for day in range(1, options.days + 1):
            counts = rng.poisson(3, options.labels)
            if options.counted is not None:
                places = rng.integers(0, options.labels, options.counted)
                counts = np.bincount(places, minlength=options.labels)
            histogram = Histogram(labels, counts, sensitivity=ONE, domain="public")
            is_new = day % options.reopen == 0
            if is_new:
                stream = StreamSession.open(ledger, path)
            start = time.process_time()
            stream.answer(day, histogram)
            taken = time.process_time() - start
            total += taken
            if is_new:
                opening = taken
            if day in (1, options.days) or day % options.shown == 0:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
                size = sum(each.stat().st_size for each in path.parent.glob("d.stream*")) / 1e9
                cells = f"{taken:.2f} | {total / day:.2f} | {opening:.2f} | {peak:.2f} | {size:.2f}"
                print(f"| {day} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
