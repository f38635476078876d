"""The comparison, ordering and writing of labels, in which each label is treated by itself.

A rule that looks at all labels together (such as one type for a whole column) would let one user's
label change what is released about all others, without a charge. So labels stay the objects that
were given; they are compared, ordered, written down and read back one by one. Only an array whose
type the caller fixed beforehand, or labels that are all integers, are held as an array of integers,
which no release shows.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np

from dptopk._internal.json_text import canonical_json
from dptopk.errors import InvalidParameter

Label: TypeAlias = Hashable
# A label as ``to_plain`` writes it.
Json: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None
TEXT = np.dtypes.StringDType()
INT64 = range(-(2**63), 2**63)  # the integers of 64 bits
_REAL = (int, float, bool, Fraction)  # all comparable with one another, exactly
# Functions call themselves for each level of a nested label.
MOST_LEVELS = 32
# A memory address, in the text that Python gives an object whose class defines no text.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def labels_as_list(labels: Any) -> list[Any]:
    """Return labels as a new list, each as it was given, except that a NumPy scalar becomes the
    Python value it stands for.

    Args:
        labels: a list, array, series, iterator or any other one-dimensional collection with an
            order.

    Raises:
        InvalidParameter: for a single text, a table, a set, a mapping, or what cannot be iterated.
    """
    if isinstance(labels, str | bytes):
        raise InvalidParameter("labels must be a sequence of labels, not one text")
    table = getattr(labels, "ndim", 1) != 1 or hasattr(labels, "columns")
    if table or isinstance(labels, set | frozenset | Mapping) or not isinstance(labels, Iterable):
        raise InvalidParameter(f"labels must be a sequence of labels, got {type(labels).__name__}")
    # The tolist of NumPy's dates and time spans (kinds m and M) may give bare integers.
    if isinstance(labels, np.ndarray) and labels.dtype.kind not in "mM":
        values: list[Any] = labels.tolist()
        if labels.dtype.kind == "O":
            return [_python_value(label) for label in values]
        return values
    if hasattr(labels, "to_pylist"):  # Arrow
        return list(labels.to_pylist())
    return [_python_value(label) for label in labels]


def _python_value(label: Label) -> Label:
    """Return the Python value of a NumPy scalar, and any other label as it is.

    NumPy's dates and time spans stay as they are, because their Python value may be a bare number.
    """
    if isinstance(label, np.generic) and not isinstance(label, np.datetime64 | np.timedelta64):
        return label.item()
    return label


def as_labels(labels: Any) -> np.ndarray[Any, Any]:
    """Return distinct labels as a new array, shape (n,): int64 if all are 64-bit integers, texts if
    they are an array of NumPy's StringDType, else objects.

    An array of StringDType needs a fifth of the memory of objects. It is not copied if it is
    read-only and owns its texts.

    Raises:
        InvalidParameter: for labels that are missing, repeated or not hashable, or that cannot be
            ordered (two labels with one text and type, a text with an address of memory); the
            message shows none of them.
    """
    integers = _integer_labels(labels)
    if integers is not None:
        return integers
    if isinstance(labels, np.ndarray) and labels.dtype == TEXT and labels.ndim == 1:
        return _text_labels(labels)
    values = labels_as_list(labels)
    check_distinct(values)
    types = set(map(type, values))
    if not types <= {str, int} and any(map(is_missing, values)):
        raise InvalidParameter("labels must not be missing")
    if types == {int} and min(values) in INT64 and max(values) in INT64:
        return np.array(values, dtype=np.int64)
    return np.fromiter(values, dtype=object, count=len(values))


def _integer_labels(labels: object) -> np.ndarray[Any, Any] | None:
    """Return labels that are an array or series of integers of any width, all within 64 bits, as
    int64, shape (n,); None for anything else, a masked array too: its missing labels would be some.

    Raises:
        InvalidParameter: when a label is repeated.
    """
    dtype = getattr(labels, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in {"i", "u"}:
        return None
    if getattr(labels, "ndim", 0) != 1 or isinstance(labels, np.ma.MaskedArray):
        return None
    array = np.array(labels)
    if dtype.kind == "u" and array.size and int(array.max()) not in INT64:
        return None
    array = array.astype(np.int64)
    if np.unique(array).size < array.size:
        raise InvalidParameter("labels must be distinct: a label is repeated")
    return array


def _text_labels(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return labels that are an array of StringDType, copied unless it is read-only and owns its
    texts.

    Raises:
        InvalidParameter: when a label is repeated.
    """
    is_constant = labels.base is None and not labels.flags.writeable
    array = labels if is_constant else labels.copy()
    hashes = np.sort(np.fromiter(map(hash, array), np.int64, array.size))
    if (hashes[1:] == hashes[:-1]).any():  # equal hashes are rarely of equal texts
        check_distinct(array.tolist())
    return array


def check_distinct(labels: list[Any]) -> None:
    """Check that labels are hashable, distinct, and can be ordered.

    Raises:
        InvalidParameter: if they are not, or one is nested too deeply.
    """
    types = set(map(type, labels))
    if not types <= _WRITERS.keys() and any(map(_is_nested_deeply, labels)):
        raise InvalidParameter(f"labels: one is nested in more than {MOST_LEVELS} levels; use text")
    try:
        keys = labels if types <= {str, int} else map(identity, labels)
        distinct = len(set(keys))
    except TypeError:
        raise InvalidParameter("labels must be hashable") from None
    if distinct < len(labels):
        raise InvalidParameter("labels must be distinct: a label is repeated")
    if types <= _WRITERS.keys() or all(map(_is_written_by_value, labels)):
        return  # labels of these types are ordered by what is written, which differs for all
    _refuse_ties(list(map(_sort_key, labels)))


def _is_nested_deeply(label: Label) -> bool:
    """Return whether a tuple or the like has parts within parts of more than MOST_LEVELS levels, so
    that functions that call themselves for each level may fail on it.
    """
    level = {id(label): label}  # a part that is there twice is looked at once
    for _ in range(MOST_LEVELS):
        parts = [part for each in level.values() for part in _parts_of(each) or ()]
        level = {id(part): part for part in parts}
        if not level:
            return False
    return True


def is_missing(label: Label) -> bool:
    """Return whether a value stands for a missing label: None, NaN, NaT, pandas' NA."""
    if label is None:
        return True
    try:
        return bool(label != label)  # noqa: PLR0124
    except Exception:  # noqa: BLE001  the comparison of pandas' NA has no truth value
        return True


def identity(label: Label) -> Label:
    """Return a hashable key that two labels share exactly if they are one label: of the same type
    and value, so that 1, 1.0 and True differ.

    Raises:
        TypeError: when the label is not hashable.
    """
    kind = type(label)
    if kind is str or kind is int:
        return label
    if type(label) is tuple:
        return kind, tuple(map(identity, label))
    if type(label) is frozenset:
        return kind, frozenset(map(identity, label))
    writer = _writer(label)
    if writer is not None:
        # Equal values may be different labels: 0.0 and -0.0, 1 and 1.00, one time in two zones.
        return kind, canonical_json(writer(label))
    return kind, label


def label_order(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the permutation that sorts labels, int64, shape (n,), by a key of each label alone.

    Real numbers come first, by value; then all other labels by their text; remaining ties are
    broken by type and by what the text leaves out, such as the unit of a time.

    Raises:
        InvalidParameter: where two labels are still tied, which ``as_labels`` refuses beforehand.

    >>> label_order(np.array(["b", 10, "a", 9], dtype=object)).tolist()
    [3, 1, 2, 0]
    """
    # NumPy compares texts by code points as Python does, but only up to a NUL.
    is_text_array = labels.dtype == TEXT and not any("\0" in label for label in labels)
    if is_text_array or labels.dtype.kind in "iu":
        return np.argsort(labels, kind="stable")
    if all(type(label) is str for label in labels):  # labels differ, so that texts decide
        keys = labels.tolist()
    else:
        keys = list(map(_sort_key, labels))
        _refuse_ties(keys)
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def _sort_key(label: Label) -> tuple[Any, ...]:
    """Return a sort key: a function of the label alone, comparable with that of every other
    label.

    Returns:
        (0, the number, its type's name, the sign of a zero) for a real number; else (1, the text,
        three names of the type, what distinguishes labels of one text and type). The last is a
        text, or the keys of the parts of a label that has parts.

    Raises:
        InvalidParameter: for a label whose text is only the address of an object.
    """
    kind = type(label)
    # A NaN, which a tuple may hold, compares with nothing, and is ordered by its text.
    if kind in _REAL and label == label:  # noqa: PLR0124
        sign_of_zero = repr(label) if kind is float else ""
        return 0, label, kind.__name__, sign_of_zero
    names = (kind.__name__, kind.__module__, kind.__qualname__)
    if kind is str:
        return 1, label, *names, ""
    parts = _parts_of(label)
    if parts is not None:
        keys = list(map(_sort_key, parts))
        if isinstance(label, frozenset):
            keys.sort()
        text = _text_of(label) if _is_written_by_value(label) else ""
        return 1, text, *names, tuple(keys)
    writer = _writer(label)
    text = _text_of(label)
    if writer is None and _ADDRESS.search(text):
        raise InvalidParameter(
            "labels: the text of one is only a memory address; use text or tuples"
        )
    details = canonical_json(writer(label)) if writer else ""
    return 1, text, *names, details


def _parts_of(label: Label) -> list[Any] | None:
    """Return the parts of a tuple, a frozen set or a dataclass (subclasses too); None for other
    values.
    """
    if isinstance(label, tuple | frozenset):
        return list(label)
    if is_dataclass(label):
        return [getattr(label, part.name) for part in fields(label) if part.compare]
    return None


def _is_written_by_value(label: Label) -> bool:
    """Return whether a label's text depends on its value alone, not on the order in which a set was
    filled or on an object's address.
    """
    if type(label) is tuple:
        return all(map(_is_written_by_value, label))
    return label is None or _writer(label) is not None


def _refuse_ties(keys: list[Any]) -> None:
    """Raise InvalidParameter if two labels have the same sort key."""
    if len(set(keys)) < len(keys):
        raise InvalidParameter(
            "labels: two differ, but not in text and type, so they cannot be ordered; use text"
        )


def _text_of(label: Label) -> str:
    """Return a label's own text, or its JSON where ``str`` fails."""
    try:
        return str(label)
    # The str of a caller's type may raise anything; that of integers of 4300 digits does, too.
    except Exception:  # noqa: BLE001
        return canonical_json(to_plain(label))


def label_text(label: Label) -> str:
    r"""Return a label as text that can be written anywhere: half of a surrogate pair becomes its
    escape sequence.

    >>> label_text("caf\u00e9"), label_text("\ud800"), label_text((1, 2))
    ('café', '\\ud800', '(1, 2)')
    """
    return _text_of(label).encode("utf-8", "backslashreplace").decode("utf-8")


# JSON: texts, truth values, floats and 64-bit integers are written as they are, all other labels as
# {tag: value}.


def to_plain(label: Label) -> Json:
    """Return a label as JSON can hold it, without loss; ``from_plain`` reads it back. It never
    fails.

    A label of a type that is not known here is written as its text, and is read back as that text.

    >>> to_plain("the"), to_plain((1, "a")), to_plain(dt.date(2026, 1, 31))
    ('the', {'tuple': [1, 'a']}, {'date': '2026-01-31'})
    """
    if label is None or type(label) is bool:
        return label
    if type(label) is tuple:
        return {"tuple": [to_plain(part) for part in label]}
    if type(label) is frozenset:
        return {"frozenset": sorted(map(to_plain, label), key=canonical_json)}
    writer = _writer(label)
    if writer is not None:
        return writer(label)
    try:
        text = str(label)
    except Exception:  # noqa: BLE001  of a caller's type it may raise anything
        text = ""
    return {"object": [type(label).__name__, _write_text(text)]}


def from_plain(plain: Json) -> Any:
    """Return the label that ``to_plain`` wrote.

    Raises:
        InvalidParameter: for JSON that ``to_plain`` never writes.

    >>> from_plain({"tuple": [1, "a"]})
    (1, 'a')
    """
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1:
        ((tag, value),) = plain.items()
        reader = _READERS.get(tag)
        try:
            if reader is not None:
                return reader(value)
        except (
            ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError
        ):  # fmt: skip
            pass  # raised by a reader for a value that it did not write
    raise InvalidParameter("label: not a written label")


def _write_text(label: str) -> Json:
    """Return a text as JSON; one that UTF-8 cannot hold is written as its bytes in UTF-16."""
    try:
        label.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot hold
        return {"utf-16": label.encode("utf-16-le", "surrogatepass").hex()}
    return label


def _write_float(label: float) -> Json:
    """Return a float as JSON; NaN and infinities are written as text."""
    if math.isfinite(label):
        return label
    return {"float": repr(label)}


def _write_numpy(tag: str) -> Callable[[Any], Any]:
    """Return a function that writes NumPy's dates or time spans under ``tag``: the integer, and the
    name and multiple of the unit, as in [5, "D", 1].
    """
    return lambda label: {tag: [int(label.view("i8")), *np.datetime_data(label.dtype)]}


# Type of a label -> the function that writes it as JSON.
_WRITERS: dict[type, Callable[[Any], Any]] = {
    str: _write_text,
    int: lambda label: label if label in INT64 else {"int": hex(label)},
    float: _write_float,
    bool: lambda label: label,
    bytes: lambda label: {"bytes": label.hex()},
    complex: lambda label: {"complex": [_write_float(label.real), _write_float(label.imag)]},
    Decimal: lambda label: {"decimal": str(label)},
    Fraction: lambda label: {"fraction": [hex(label.numerator), hex(label.denominator)]},
    dt.datetime: lambda label: {"datetime": label.isoformat()},
    dt.date: lambda label: {"date": label.isoformat()},
    dt.time: lambda label: {"time": label.isoformat()},
    dt.timedelta: lambda label: {"timedelta": [label.days, label.seconds, label.microseconds]},
    UUID: lambda label: {"uuid": str(label)},
    np.datetime64: _write_numpy("datetime64"),
    np.timedelta64: _write_numpy("timedelta64"),
}


def _writer(label: Label) -> Callable[[Any], Any] | None:
    """Return the function that writes labels of this label's type as JSON; None for types that are
    not known here, and for tuples and frozen sets, which ``to_plain`` writes part by part.
    """
    kind = type(label)
    if kind in _WRITERS:
        return _WRITERS[kind]
    # Times of pandas know nanoseconds; pandas is not imported only to see that there are none.
    if kind.__module__.split(".")[0] == "pandas":
        return _PANDAS_WRITERS.get(kind.__name__)
    return None


# The same for types of pandas, by their names.
_PANDAS_WRITERS: dict[str, Callable[[Any], Any]] = {
    "Timestamp": lambda stamp: {"timestamp": [stamp.isoformat(), stamp.unit]},
    "Timedelta": lambda span: {"span": [int(span.asm8.view("i8")), span.unit]},
    "Period": lambda period: {"period": [period.ordinal, period.freqstr]},
    "Interval": lambda cell: {
        "interval": [
            to_plain(_python_value(cell.left)),
            to_plain(_python_value(cell.right)),
            cell.closed,
        ]
    },
}


def _pandas_reader(read: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Return a reader that imports pandas only when it is called; ``read`` takes the module and
    the written value.
    """

    def reader(value: Any) -> Label:
        """Return the label that was written as this value."""
        import pandas as pd

        return read(pd, value)

    return reader


# Tag of a written label -> the function that reads what is written under it.
_READERS: dict[str, Callable[[Any], Any]] = {
    "utf-16": lambda value: bytes.fromhex(value).decode("utf-16-le", "surrogatepass"),
    "int": lambda value: int(value, 16),
    "float": float,
    "tuple": lambda value: tuple(map(from_plain, value)),
    "frozenset": lambda value: frozenset(map(from_plain, value)),
    "bytes": bytes.fromhex,
    "complex": lambda value: complex(*map(from_plain, value)),
    "decimal": Decimal,
    "fraction": lambda value: Fraction(*(int(part, 16) for part in value)),
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "timedelta": lambda value: dt.timedelta(*value),
    "uuid": UUID,
    "datetime64": lambda value: np.datetime64(value[0], tuple(value[1:])),
    "timedelta64": lambda value: np.timedelta64(value[0], tuple(value[1:])),
    "timestamp": _pandas_reader(lambda pd, value: pd.Timestamp(value[0]).as_unit(value[1])),
    "span": _pandas_reader(lambda pd, value: pd.Timedelta(np.timedelta64(value[0], value[1]))),
    "period": _pandas_reader(lambda pd, value: pd.Period(ordinal=value[0], freq=value[1])),
    "interval": _pandas_reader(
        lambda pd, value: pd.Interval(*map(from_plain, value[:2]), closed=value[2])
    ),
    "object": lambda value: from_plain(value[1]),
}
