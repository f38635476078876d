"""What one day adds to the state of a stream, and its binary form.

A state only grows: a day adds its counts and the noisy numbers that were measured on it, and no
later day changes them. So a file of a stream is appended to, and never rewritten.
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

# Keys of the parts of a day that are not a measurement; a measurement has its own number, from 0.
_TEXT = -3
_ROWS = -2
_COUNTS = -1
# An array begins with the number of bytes of one of its integers, written in this many bytes so
# that the integers stay aligned.
_PREFIX = 8
_WIDTHS = (1, 2, 4, 8)


@dataclass(frozen=True, eq=False)
class StreamDay:
    """One day's part of the state of a stream; private, like the data.

    Attributes:
        histogram_identity: the identity of the day's histogram, which no other day may have.
        names: the labels that occurred on this day for the first time; empty for a public domain.
        rows: the places of the labels with a count among all labels of the stream; a slice where
            these are the first n labels.
        counts: the counts of these labels, in the narrowest type that holds them.
        measured: by the number of a measurement, its noisy numbers of this day: for a measurement
            made on this day those of all labels so far, for an earlier one those of the new labels.
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
        """Return a day made of integer arrays of any width, which are stored in narrow types.

        The arguments are the attributes of the class; ``rows`` are given as an array.

        Args:
            histogram_identity: identifies the day's histogram.
            names: the labels that came on this day.
            rows: the places of the labels with counts, shape (n,).
            counts: their counts, shape (n,).
            measured: the noisy numbers of this day, by the number of a measurement.
        """
        stored_rows: Ints | slice = as_narrowest_type(rows)
        # The first comparison alone decides for nearly all days whose rows are others.
        if rows.size and rows[0] == 0 and np.array_equal(rows, np.arange(rows.size)):
            stored_rows = slice(0, rows.size)
        stored_numbers = {number: as_narrowest_type(values) for number, values in measured.items()}
        stored_counts = as_narrowest_type(counts)
        return cls(histogram_identity, tuple(names), stored_rows, stored_counts, stored_numbers)

    @property
    def places(self) -> Ints:
        """Return the places of the labels with a count, ``rows``, as an array, shape (n,)."""
        if isinstance(self.rows, slice):
            return np.arange(self.counts.size)
        return self.rows

    def to_parts(self) -> dict[int, bytes]:
        """Return the day as bytes in several parts, by the keys _TEXT (the histogram's identity and
        the labels, as JSON), _COUNTS, _ROWS (if these are not the first ones) and the number of
        each measurement.

        They are apart so that each can be a value of its own in a database, whose size is limited.

        Raises:
            InvalidParameter: for a label of a type that can only be written as its text.
        """
        text = {"given": self.histogram_identity, "names": plain_names(self.names)}
        parts = {_TEXT: canonical_json(text).encode(), _COUNTS: _to_bytes(self.counts)}
        if not isinstance(self.rows, slice):
            parts[_ROWS] = _to_bytes(self.rows)
        for measurement, values in self.measured.items():
            parts[measurement] = _to_bytes(values)
        return parts

    @classmethod
    def from_parts(cls, parts: Mapping[int, bytes]) -> StreamDay:
        """Return the day that ``to_parts`` wrote.

        Raises:
            InvalidParameter: for parts that ``to_parts`` cannot have written.
        """
        try:
            text = json.loads(parts[_TEXT])
            names = tuple(map(from_plain, text["names"]))
            counts = _from_bytes(parts[_COUNTS])
            rows = _from_bytes(parts[_ROWS]) if _ROWS in parts else slice(0, counts.size)
            measured = {key: _from_bytes(part) for key, part in parts.items() if key >= 0}
            return cls(str(text["given"]), names, rows, counts, measured)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidParameter("state: a day of the stream cannot be read") from error


def plain_names(names: tuple[Any, ...] | list[Any]) -> list[Any]:
    """Return labels as plain values for JSON.

    Raises:
        InvalidParameter: for a label that would be another label when it is read again, because
            its type can only be written as text. This depends on private data: like the state, it
            is for the holder of the data only.
    """
    plain = [to_plain(name) for name in names]
    for name, value in zip(names, plain, strict=True):
        if type(name) is not str and _is_changed(name, value):
            raise InvalidParameter(
                "labels: one is of a type of your own, which no state can hold; use texts or tuples"
            )
    return plain


def _is_changed(name: Any, plain: Any) -> bool:
    """Return whether reading a label's plain value gives another label."""
    return bool(identity(from_plain(plain)) != identity(name))


def as_narrowest_type(numbers: Ints) -> Ints:
    """Return the integers in the narrowest signed type that holds them, in the same shape."""
    # NumPy names a signed type for negative integers only: n >= 0 needs the type of -n - 1.
    type_of_smallest = np.min_scalar_type(min(int(numbers.min(initial=0)), -1))
    type_of_largest = np.min_scalar_type(-int(numbers.max(initial=0)) - 1)
    return numbers.astype(np.promote_types(type_of_smallest, type_of_largest))


def _to_bytes(numbers: Ints) -> bytes:
    """Return an array as bytes: the width of its integers, then the integers, little-endian."""
    width = numbers.dtype.itemsize
    stored = numbers.astype(f"<i{width}", copy=False)
    return width.to_bytes(_PREFIX, "little") + stored.tobytes()


def _from_bytes(stored: bytes) -> Ints:
    """Return the array that ``_to_bytes`` wrote.

    Raises:
        ValueError: for bytes that it cannot have written.
    """
    width = int.from_bytes(stored[:_PREFIX], "little")
    if width not in _WIDTHS:
        raise ValueError("an array of no known width")
    return np.frombuffer(stored, dtype=f"<i{width}", offset=_PREFIX)
