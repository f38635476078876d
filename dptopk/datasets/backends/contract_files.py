"""The contract of an engine that reads files itself: each check is a clause, tested on small files
in a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptopk.datasets.backends.contract import Broken, require_equal
from dptopk.datasets.backends.opening import Engine
from dptopk.datasets.events import events_histogram
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.datasets.backends.inputs import EventTable

ODD_BYTES = "bytes that are no UTF-8"
# They are read as cp1252, or by an engine that reads the file itself as U+FFFD.
MARKED = {"caf\ufffd": 2, "caf\xe9": 1}
# Files, and the histogram that an engine gives of them unless it refuses them.
MALFORMED: dict[str, tuple[bytes, dict[str, int]]] = {
    ODD_BYTES: (b"u,i\na,caf\xe9\nb,caf\xe8\nc,caf\xc3\xa9\n", {"caf\xe9": 2, "caf\xe8": 1}),
    "mixed ends of lines": (b"u,i\r\na,x\nb,y\r\n", {"x": 1, "y": 1}),
    "a mixed end in the last line": (b"u,i\na,x\nb,y\r\n", {"x": 1, "y": 1}),
    "too few cells": (b"u,i\na\nb,y\n", {"y": 1}),
    "too many cells": (b"u,i\na,x,z\nb,y\n", {"x": 1, "y": 1}),
    "a quote within a cell": (b'u,i\na,"x"y\nb,y\n', {"xy": 1, "y": 1}),
    "an empty first line": (b"\nu,i\na,x\n", {"x": 1}),
    "empty first lines that end in CRLF": (b"\r\n\r\nu,i\r\na,x\r\n", {"x": 1}),
}


def _counts(engine: Engine, table: EventTable) -> dict[Any, int]:
    """Return label -> count of the events in a file, as the engine reads it."""
    observed = events_histogram(table, user="u", item="i", labels_per_user=5, engine=engine)
    return dict(zip(observed.labels.tolist(), observed.counts.tolist(), strict=True))


def columns_are_read_by_name(engine: Engine, folder: Path) -> None:
    """Files of one glob may have their columns in another order; each cell belongs to the column of
    its own header.
    """
    for name, text in {"1": "u,i\na,x\nb,x\n", "2": "i,u\nx,a\nz,a\n", "3": "u,i\nc,x\n"}.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    require_equal(
        _counts(engine, folder / "*.csv"), {"x": 3, "z": 1}, "the histogram of three files"
    )


def malformed_text_is_read_by_rule(engine: Engine, folder: Path) -> None:
    """A text file names its columns in its first line that is not empty. Bytes that are no UTF-8,
    lines that end in different ways and rows with too few or too many cells are read by one rule,
    or refused.
    """
    for what, (content, expected) in MALFORMED.items():
        (folder / "events.csv").write_bytes(content)
        try:
            observed = _counts(engine, folder / "events.csv")
        except InvalidParameter:
            continue
        if what == ODD_BYTES and observed == MARKED:
            continue
        require_equal(observed, expected, f"the histogram of a file with {what}")


def files_are_those_of_the_start(engine: Engine, folder: Path) -> None:
    """A file that comes later is not read, and one that changes between two statements is
    refused.
    """
    (folder / "1.csv").write_text("u,i\na,x\n", encoding="utf-8")
    with engine.open(folder / "*.csv", columns=None, table_name=None) as source:
        (folder / "2.csv").write_text("u,i\nb,x\n", encoding="utf-8")
        require_equal(source.run(source.table).num_rows, 1, "rows after a second file came")
        (folder / "1.csv").write_text("u,i\na,x\nb,x\n", encoding="utf-8")
        try:
            observed = source.run(source.table)
        except InvalidParameter:
            return
    raise Broken(f"a file that changed gave {observed.num_rows} rows")


def no_value_decides(engine: Engine, folder: Path) -> None:
    """NaN, infinity, fractions, text that is not UTF-8 and days that are far away are missing in
    the row that has them and leave all other rows as they are, whatever the statistics of a file
    say.
    """
    import pyarrow as pa
    from pyarrow.parquet import write_table

    numbers = [1.0, float("nan"), 2.0, float("inf"), 3.0, 3.0, 2.0, 2.5]
    stored = pa.array([b"x", b"x", b"y", b"caf\xe9", b"\xff", b"y", b"x", b"y"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(stored), stored.buffers())
    for size in (len(numbers), 2):
        path = folder / f"{size}.parquet"
        write_table(pa.table({"u": numbers, "i": texts}), path, row_group_size=size)
        require_equal(_counts(engine, path), {"x": 2, "y": 2}, "the labels of users by numbers")
        observed = events_histogram(path, user="i", item="u", labels_per_user=5, engine=engine)
        names = observed.labels.tolist()
        counted = dict(zip(names, observed.counts.tolist(), strict=True))
        require_equal(counted, {1: 1, 2: 2, 3: 1}, "labels by numbers")
    days = pa.array([0, 1, 2**31 - 1, -(2**31), 2**28, -(2**28)], pa.int32()).view(pa.date32())
    path = folder / "days.parquet"
    write_table(pa.table({"u": days, "i": days}), path)
    near = {"1970-01-01": 1, "1970-01-02": 1}
    require_equal(_counts(engine, path), near, "labels and users by days")


def times_out_of_range_leave_others(engine: Engine, folder: Path) -> None:
    """A time that does not fit 64 bits of microseconds changes nothing for questions that do not
    look at it.
    """
    import pyarrow as pa
    from pyarrow.parquet import write_table

    times = pa.array([2**55, 0, -(2**60)], pa.int64()).view(pa.timestamp("ms"))
    path = folder / "events.parquet"
    write_table(pa.table({"u": [1, 2, 3], "i": ["x", "y", "x"], "t": times}), path)
    require_equal(_counts(engine, path), {"x": 2, "y": 1}, "the labels beside such times")


FILE_CHECKS: tuple[Callable[[Engine, Path], None], ...] = (
    columns_are_read_by_name,
    malformed_text_is_read_by_rule,
    files_are_those_of_the_start,
    no_value_decides,
    times_out_of_range_leave_others,
)
