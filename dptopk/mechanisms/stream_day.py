"""This module says what one day adds to the state of a stream, and its binary form.

A state only grows: of each day there are the counts that came and the numbers that were measured,
and no later day changes them. So a file of a stream is appended to, and never rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptopk._internal.json_text import canonical_json
from dptopk.errors import InvalidParameter
from dptopk.histogram.labels import from_plain, identity, to_plain
from dptopk.mechanisms.samplers.random import Ints

# Parts of a day that are no measurement; a measurement has its own number, from 0.
_TEXT = -3
_ROWS = -2
_COUNTS = -1
# Before the numbers of an array: the bytes of one, in as many bytes as keep the numbers aligned.
_PREFIX = 8
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True, eq=False)
class StreamDay:
    """One day's part of the state of a stream; private, like the data.

    Attributes:
        histogram_identity: the identity of the day's histogram, which no other day may have.
        names: the labels that came on this day for the first time; none of a public domain.
        rows: the places of the labels with a count among all labels; a slice where they are all of
            the first ones.
        counts: of these labels, in a narrow type.
        measured: the numbers that measurements got on this day, in narrow types: a measurement of
            this day those of all labels so far, an earlier one those of the new labels.
    """

    histogram_identity: str
    names: tuple[Any, ...]
    rows: Ints | slice
    counts: Ints
    measured: Mapping[int, Ints]

    @classmethod
    def of(
        cls,
        histogram_identity: str,
        names: list[Any],
        rows: Ints,
        counts: Ints,
        measured: Mapping[int, Ints],
    ) -> StreamDay:
        """A day by arrays of any type of integers."""
        kept: Ints | slice = narrow(rows)
        if rows.size and rows[0] == 0 and np.array_equal(rows, np.arange(rows.size)):
            kept = slice(0, rows.size)
        numbers = {place: narrow(each) for place, each in measured.items()}
        return cls(histogram_identity, tuple(names), kept, narrow(counts), numbers)

    @property
    def places(self) -> Ints:
        """``rows`` as an array."""
        if isinstance(self.rows, slice):
            return np.arange(self.counts.size)
        return self.rows

    def to_parts(self) -> dict[int, bytes]:
        """The day as bytes, in parts below the limit of one value of a database.

        Raises:
            InvalidParameter: for a label of a type that can only be written as its text.
        """
        text = {"given": self.histogram_identity, "names": plain_names(self.names)}
        parts = {_TEXT: canonical_json(text).encode(), _COUNTS: _to_bytes(self.counts)}
        if not isinstance(self.rows, slice):
            parts[_ROWS] = _to_bytes(self.rows)
        return parts | {place: _to_bytes(each) for place, each in self.measured.items()}

    @classmethod
    def from_parts(cls, parts: Mapping[int, bytes]) -> StreamDay:
        """The day that ``to_parts`` wrote.

        Raises:
            InvalidParameter: for other parts.
        """
        try:
            text = json.loads(parts[_TEXT])
            names = tuple(map(from_plain, text["names"]))
            counts = _from_bytes(parts[_COUNTS])
            rows = _from_bytes(parts[_ROWS]) if _ROWS in parts else slice(0, counts.size)
            measured = {place: _from_bytes(each) for place, each in parts.items() if place >= 0}
            return cls(str(text["given"]), names, rows, counts, measured)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidParameter("state: a day of the stream cannot be read") from error


def plain_names(names: tuple[Any, ...] | list[Any]) -> list[Any]:
    """Labels as plain values, for JSON.

    Raises:
        InvalidParameter: for a label of a type that ``to_plain`` knows as text alone: read again it
            would be another label, with counts of its own. Like the state, that it is raised is for
            who keeps the data.
    """
    plain = [to_plain(name) for name in names]
    pairs = zip(names, plain, strict=True)
    if any(type(name) is not str and _is_changed(name, each) for name, each in pairs):
        raise InvalidParameter(
            "labels: one is of a type of your own, which no state can hold; use texts or tuples"
        )
    return plain


def _is_changed(name: Any, plain: Any) -> bool:
    """Whether a label that is read again is another one."""
    return bool(identity(from_plain(plain)) != identity(name))


def narrow(numbers: Ints) -> Ints:
    """The integers in the narrowest signed type that holds them."""
    low = np.min_scalar_type(min(int(numbers.min(initial=0)), -1))
    high = np.min_scalar_type(-int(numbers.max(initial=0)) - 1)
    return numbers.astype(np.promote_types(low, high))


def _to_bytes(numbers: Ints) -> bytes:
    width = numbers.dtype.itemsize
    stored = numbers.astype(f"<i{width}", copy=False)
    return width.to_bytes(_PREFIX, "little") + stored.tobytes()


def _from_bytes(stored: bytes) -> Ints:
    width = int.from_bytes(stored[:_PREFIX], "little")
    if width not in _WIDTHS:
        raise ValueError("an array of no known width")
    return np.frombuffer(stored, dtype=f"<i{width}", offset=_PREFIX)
