"""Medians of several runs, and tables of them."""

from __future__ import annotations

import os
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Return the median time of several runs, after one that is not counted."""
    run()
    return statistics.median(_once(run) for _ in range(repeats))


def _once(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def peak_bytes(run: Callable[[], Any]) -> int:
    """Return the most memory that the run held at once, beyond what was held before; NumPy's arrays
    count.
    """
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def load() -> str:
    """Return a line about how busy the machine was: medians taken on a busy one say little."""
    return (
        f"load averages {', '.join(f'{x:.1f}' for x in os.getloadavg())} on {os.cpu_count()} "
        f"processors"
    )


def table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print an aligned table."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    print(f"\n{title}")
    for row in (header, ["-" * width for width in widths], *rows):
        print(
            "  ".join(
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )
