"""Random files of all column types with odd values, for the rule that no user's values decide whether
there is an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dptopk import InvalidParameter
from dptopk.datasets import events_histogram

NAN, INF = float("nan"), float("inf")
REAL = [1.0, 2.0, 3.0, NAN, INF, -INF, 2.5, 1e300, -1e300, 2.0**53, -(2.0**63), 5e-324, None]
TEXT = ["1", "2", "x", "", "nan", "1e999", "2024-01-31", "2024-13-01", "\0", "é", "😀", "-0", None]
# What a small integer becomes when it is stored as a date or time: days or ticks since 1970.
TICKS = [0, 1, 19000, -719162, 2932896, None]
TICKS_32, TICKS_64 = [*TICKS, 2**31 - 1, -(2**31)], [*TICKS, 2**63 - 1, -(2**63) + 1, 2**55]


def _integers(bits: int, *, signed: bool) -> list[int | None]:
    lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return [1, 2, 3, 0, lowest, highest, None]


def _times(kind: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    ticks = pa.int32() if kind.bit_width == 32 else pa.int64()
    return lambda values: pa.array(values, ticks).view(kind)


def _texts_of_bytes(values: list[Any]) -> pa.Array:
    """A column of text whose bytes need not be UTF-8, as some writers leave them."""
    stored = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), stored.buffers())


def _typed(kind: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values, kind)


DECIMALS = ["1", "2", "0.5", "-3", "0", None]
NESTED = [[1], [2, None], [], None]
# A column type: how values become a column, and values.
COLUMNS: dict[str, tuple[Callable[[list[Any]], pa.Array], list[Any]]] = {
    "double": (_typed(pa.float64()), REAL),
    "float": (_typed(pa.float32()), [*REAL[:7], None]),
    "text": (_typed(pa.string()), TEXT),
    "long text": (_typed(pa.large_string()), [*TEXT, "z" * 3_000_000]),
    "coded text": (lambda values: pa.array(values, pa.string()).dictionary_encode(), TEXT),
    "bad text": (_texts_of_bytes, [b"x", b"y", b"1", b"caf\xe9", b"\xff\xfe", None]),
    "bytes": (_typed(pa.binary()), [b"x", b"\xff", b"", None]),
    "truth": (_typed(pa.bool_()), [True, False, None]),
    "day": (_times(pa.date32()), TICKS_32),
    "time of day": (_times(pa.time64("us")), [0, 1, 86_399_999_999, 90_000_000_000, -5, None]),
    "time of day ms": (_times(pa.time32("ms")), [0, 86_400_000, 86_400_001, -(2**31), None]),
    "time of day ns": (_times(pa.time64("ns")), [0, 999, 2**63 - 1, None]),
    "nothing": (_typed(pa.null()), [None]),
    "list": (_typed(pa.list_(pa.int64())), NESTED),
    "struct": (_typed(pa.struct({"a": pa.int64()})), [{"a": 1}, {"a": None}, None]),
    "decimal 10": (
        lambda values: pa.array(values, pa.string()).cast(pa.decimal128(10, 2)),
        DECIMALS,
    ),
    "decimal 38": (
        lambda values: pa.array(values, pa.string()).cast(pa.decimal128(38, 0)),
        ["1", "2", "9" * 38, "-" + "9" * 38, None],
    ),
    **{
        f"time {unit}{zone or ''}": (_times(pa.timestamp(unit, zone)), TICKS_64)
        for unit in ("ms", "us", "ns")
        for zone in (None, "UTC")
    },
    **{
        f"{'' if signed else 'u'}int{bits}": (
            _typed(getattr(pa, f"{'' if signed else 'u'}int{bits}")()),
            _integers(bits, signed=signed),
        )
        for bits in (8, 16, 32, 64)
        for signed in (True, False)
    },
}
LABELS = [name for name in COLUMNS if name.split()[0] not in ("bytes", "time", "list", "struct")]
AMOUNTS = [
    name
    for name in COLUMNS
    if name.startswith(("int", "uint", "decimal", "double", "float", "text"))
]
# Conditions on a column "s": the caller's own expressions.
CASTS = {
    "cast to integer": lambda t: t.s.cast("int64") > 0,
    "cast to a small integer": lambda t: t.s.cast("int8") > 0,
    "cast to a number": lambda t: t.s.cast("float64") > 0,
}
SIZES = {
    "large": lambda t: t.s > 100,
    "not large": lambda t: ~(t.s > 100),
    "missing": lambda t: t.s.isnull(),
}
ARITHMETIC = {
    **CASTS,
    **SIZES,
    "division": lambda t: 6 // (t.s - 2) > 0,
    "remainder": lambda t: 6 % (t.s - 2) >= 0,
    "overflow": lambda t: t.s * t.s + t.s > 0,
    "rounding": lambda t: t.s.round() > 0,
    "floor": lambda t: t.s.floor() > 0,
    "root": lambda t: t.s.sqrt() > 1,
    "logarithm": lambda t: t.s.ln() > 0,
    "absolute": lambda t: (-t.s).abs() > 0,
}
FIELDS = {
    "year": lambda t: t.s.year() > 2000,
    "epoch": lambda t: t.s.epoch_seconds() > 0,
    "month": lambda t: t.s.truncate("M").month() > 6,
    "text": lambda t: t.s.cast("string").startswith("2"),
    "missing": lambda t: t.s.isnull(),
}
# By the start of the name of a column type.
CONDITIONS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "double": ARITHMETIC, "float": ARITHMETIC, "int": ARITHMETIC, "uint": ARITHMETIC,
    "decimal": ARITHMETIC, "day": FIELDS, "time m": FIELDS, "time u": FIELDS, "time n": FIELDS,
    "time of": {
        "hour": lambda t: t.s.hour() > 0,
        "text": lambda t: t.s.cast("string") > "00:00:00.000001",
        "missing": lambda t: t.s.isnull(),
    },
    "text": {
        **CASTS,
        "cast to a date": lambda t: t.s.cast("date") > ibis.date("2000-01-01"),
        "letters": lambda t: t.s.upper().contains("X"),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Events in columns u, i, w and s of some types, and what is asked of them."""

    kinds: dict[str, str]
    values: dict[str, list[Any]]
    options: dict[str, Any]
    condition: str | None

    def users(self) -> list[Any]:
        """The users, each as the text of the value; NULL is none."""
        return sorted({user_of(value) for value in self.values["u"]} - {"None"})

    def without(self, user: str | None) -> dict[str, list[Any]]:
        """The columns without the rows of a user."""
        kept = [place for place, value in enumerate(self.values["u"]) if user_of(value) != user]
        return {name: [column[place] for place in kept] for name, column in self.values.items()}


def user_of(value: Any) -> str:
    """The text by which a value is told apart: 0 and -0 are one user."""
    return repr(0.0 if value == 0 and isinstance(value, float) else value)


def drawn(rng: np.random.Generator, *, typed: bool = True) -> Case:
    """A random case; ``typed``: for files whose columns have types."""
    names = list(COLUMNS)
    size = int(rng.integers(1, 14))
    # Most users, labels and weights are of types that are let in.
    usual = {"u": LABELS, "i": LABELS, "w": AMOUNTS}
    kinds = {}
    for role in "uiws":
        choice = usual[role] if role in usual and rng.random() < 0.9 else names
        kinds[role] = str(rng.choice(choice))
    values = {}
    for role, kind in kinds.items():
        pool = COLUMNS[kind][1]
        some = [pool[place] for place in rng.choice(len(pool), min(4, len(pool)), replace=False)]
        values[role] = [some[place] for place in rng.integers(0, len(some), size)]
    options = {
        "labels_per_user": [None, 1, 2][rng.integers(3)],
        "per_label_cap": int(rng.choice([1, 3])),
        "weight": [None, "w"][rng.integers(2)],
    }
    kind = kinds["s"] if typed else "text"
    family = next((name for name in CONDITIONS if kind.startswith(name)), "")
    condition = None
    if family and rng.random() < 0.6:
        condition = f"{family}: {rng.choice(list(CONDITIONS[family]))}"
    return Case(kinds, values, options, condition)


def parquet(
    case: Case, columns: dict[str, list[Any]], folder: Path, rng: np.random.Generator
) -> Path:
    """A Parquet file, written in one of the ways in which such files are written."""
    typed = {role: COLUMNS[kind][0](columns[role]) for role, kind in case.kinds.items()}
    path = folder / "events.parquet"
    pq.write_table(
        pa.table(typed), path, row_group_size=int(rng.choice([2, 100])),
        write_statistics=bool(rng.integers(2)), use_dictionary=bool(rng.integers(2)),
        version="2.6",
    )  # fmt: skip
    return path


def _spelt(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value).replace("\0", "")


def csv(case: Case, columns: dict[str, list[Any]], folder: Path, rng: np.random.Generator) -> Path:
    """A CSV file of the same values, all of them quoted, or none that needs no quotes."""
    quoted = bool(rng.integers(2))
    lines = [",".join(case.kinds)]
    for row in zip(*columns.values(), strict=True):
        cells = [_spelt(value) for value in row]
        needed = [quoted or any(mark in cell for mark in ',"\n\r') or not cell for cell in cells]
        lines.append(
            ",".join(
                '"' + cell.replace('"', '""') + '"' if mark and cell else cell
                for cell, mark in zip(cells, needed, strict=True)
            )
        )
    path = folder / "events.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    return path


def lines_of_json(
    case: Case, columns: dict[str, list[Any]], folder: Path, _: np.random.Generator
) -> Path:
    """A file of JSON lines with the same values."""
    path = folder / "events.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(dict.fromkeys(case.kinds)) + "\n")
        for row in zip(*columns.values(), strict=True):
            cells = [
                value.decode("utf-8", "replace") if isinstance(value, bytes) else value
                for value in row
            ]
            line = json.dumps(dict(zip(case.kinds, cells, strict=True)))
            file.write(re.sub("-?(NaN|Infinity)", "null", line) + "\n")
    return path


def asked(table: Any, case: Case, **more: Any) -> dict[Any, int] | str:
    """The histogram of a table, or the refusal."""
    where = None
    if case.condition is not None:
        family, _, name = case.condition.partition(": ")
        where = CONDITIONS[family][name]
    try:
        found = events_histogram(
            table, user="u", item="i", where=where, key="k", **case.options, **more
        )
    except InvalidParameter as error:
        return str(error)
    return dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True))


def disagreement(
    case: Case,
    write: Callable[[dict[str, list[Any]]], Any],
    *,
    users: int = 4,
    **more: Any,
) -> str | None:
    """What leaving out one user changes against the rule; None if it holds.

    Args:
        case: the events and the question.
        write: takes columns, gives a table that has them.
        users: how many of them are left out, one at a time.
        more: options of the histogram, such as the engine.
    """
    whole = asked(write(case.without(None)), case, **more)
    for user in case.users()[:users]:
        rest = asked(write(case.without(user)), case, **more)
        if isinstance(whole, str) != isinstance(rest, str):
            return f"with {user[:60]}: {str(whole)[:300]}; without: {str(rest)[:300]}"
        if isinstance(whole, str) or isinstance(rest, str):
            continue
        moved = [whole.get(label, 0) - rest.get(label, 0) for label in whole.keys() | rest.keys()]
        few = case.options["labels_per_user"]
        if min(moved, default=0) < 0 or max(moved, default=0) > case.options["per_label_cap"]:
            return f"{user[:60]} moves counts by {moved}"
        if few is not None and sum(map(bool, moved)) > few:
            return f"{user[:60]} moves more than {few} counts: {moved}"
    return None
