"""A fuzz of files of all types with odd values: leaving out one user never turns an answer into a
refusal or back, and moves no more than the bounds say.

    python benchmarks/odd_values.py                    # 2,000 files, about ten minutes of one core
    python benchmarks/odd_values.py --files 200 --first 5000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "datasets"))
import odd_files

WRITERS: dict[str, Callable[..., Path]] = {
    "parquet": odd_files.parquet,
    "csv": odd_files.csv,
    "json": odd_files.lines_of_json,
}


def outcome(seed: int, folder: Path) -> tuple[str, str | None]:
    """The format of a file, with whether it was answered, and what went against the rule."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(list(WRITERS), p=(0.6, 0.2, 0.2)))
    case = odd_files.drawn(rng, typed=name == "parquet")
    state = int(rng.integers(2**31))

    def write(columns: dict[str, list[Any]]) -> Path:
        return WRITERS[name](case, columns, folder, np.random.default_rng(state))

    found = odd_files.disagreement(case, write)
    whole = odd_files.asked(write(case.without(None)), case)
    return f"{name}, {'refused' if isinstance(whole, str) else 'answered'}", found


def main() -> None:
    """Print how many files of each format were answered, and every departure from the rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        ask = partial(outcome, folder=Path(name))
        for seed in range(options.first, options.first + options.files):
            kind, departure = ask(seed)
            counted[kind] += 1
            if departure is not None:
                counted["departures"] += 1
                print(f"seed {seed}: {departure}", flush=True)
            if (seed + 1 - options.first) % 100 == 0:
                print(f"up to seed {seed}: {dict(sorted(counted.items()))}", flush=True)
    print({**dict.fromkeys(["departures"], 0), **dict(sorted(counted.items()))})


if __name__ == "__main__":
    main()
