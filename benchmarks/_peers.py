"""What the comparisons with other libraries share: which of them are here, timings that adapt,
Markdown tables.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

PEERS = {
    "opendp": "opendp",
    "dp-accounting": "dp_accounting",
    "autodp": "autodp",
    "diffprivlib": "diffprivlib",
}  # name on PyPI -> module
LONG = 3.0  # seconds; what takes longer is run once


@cache
def missing(name: str) -> str | None:
    """Why a peer cannot be used here, or None."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(PEERS[name])
    except Exception as error:  # noqa: BLE001
        reason = str(error).split(" (")[0]
        return f"{version} does not import: {reason}"
    return None


def median_seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Median of several runs after one that is not counted; of one run where that takes longer than
    LONG.
    """
    first = once(run)
    return first if first > LONG else statistics.median(once(run) for _ in range(repeats))


def once(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def seconds(value: float | None) -> str:
    """A time as three digits with its unit; an en dash where there is none."""
    if value is None:
        return "–"
    unit, factor = next(
        (pair for pair in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)) if value * pair[1] >= 1),
        ("µs", 1e6),
    )
    return f"{float(f'{value * factor:.3g}'):g} {unit}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are set right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine() -> str:
    """Processor, memory, system; no names of hosts or paths."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB of memory, {platform.system()}"


def load() -> str:
    """The load averages: on a busy machine times are too long, and ratios less sure."""
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def peak_growth(code: str) -> float | None:
    """MiB by which the memory (RSS) of a fresh process grows at most while ``run()`` of ``code``
    runs; Linux only.
    """
    if not Path("/proc/self/clear_refs").exists():
        return None
    script = (
        f"{code}\n"
        "from pathlib import Path\n"
        "def memory(what):\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith(what))\n"
        "Path('/proc/self/clear_refs').write_text('5')  # forget the peak of the preparation\n"
        "before = memory('VmRSS')\nrun()\nprint((memory('VmHWM') - before) / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])
