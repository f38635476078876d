"""Labels: each stays what it is, whatever labels of others stand beside it."""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import itertools
import json
import pathlib
import re
from collections import namedtuple
from decimal import Decimal
from fractions import Fraction
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from dptopk import (
    Histogram,
    InvalidParameter,
    KnownLaplace,
    Release,
    Sensitivity,
    UnknownGumbel,
    UnknownLaplace,
)
from dptopk.histogram.histogram import descending_order
from dptopk.histogram.labels import (
    MOST_LEVELS,
    as_labels,
    from_plain,
    identity,
    label_order,
    label_text,
    labels_as_list,
    to_plain,
)

STAMP = pd.Timestamp("2020-01-01T00:00:00.000000001")
NOON = dt.datetime(2020, 1, 1, 12)  # noqa: DTZ001
KINDS = [
    "the", "caf\u00e9", "\ud800", "", 7, -(2**63), 2**63, 2**80, True, 2.5, -0.0, 0.0, float("inf"), 1j, b"\xff",
    (1, "a"), (1.0, "a"), ((), (None, b"")), frozenset({1, "1"}), Decimal("1.00"), Decimal(1), Fraction(1, 3),
    dt.date(2020, 1, 1), NOON, NOON.replace(tzinfo=ZoneInfo("Europe/Berlin")), NOON.time(),
    dt.timedelta(days=-1, microseconds=1), UUID(int=5), STAMP, pd.Timestamp("2020-01-01", tz="Asia/Tokyo"),
    pd.Timedelta(5, "ns"), pd.Period("2020-01-01", "D"), pd.Period("2020-01-01", "2D"),
    pd.Interval(0, 1), pd.Interval(0.0, 1.5, closed="both"), pd.Interval(STAMP, STAMP),
    *pd.cut([0.3, 2.0], [0.0, 1.5, 3.0]).categories,
    np.datetime64("2020-01-01", "ns"), np.datetime64("2020-01-01", "D"), np.timedelta64(3, "h"),
]  # fmt: skip


class Odd:
    """A label of the caller's own type, without a text."""

    def __str__(self):
        raise RuntimeError("no text")


def same(left, right):
    return type(left) is type(right) and identity(left) == identity(right)


@pytest.mark.parametrize("label", KINDS, ids=range(len(KINDS)))
def test_a_label_survives_json(label):
    text = json.dumps(to_plain(label), ensure_ascii=False)
    again = from_plain(json.loads(text.encode("utf-8")))
    if isinstance(label, dt.datetime) and label.tzinfo:  # the zone becomes its offset
        assert again == label
        assert again.utcoffset() == label.utcoffset()
    else:
        assert same(again, label)
    label_text(label).encode()


def test_an_integer_too_long_to_be_printed():
    label = 10**5000
    assert from_plain(json.loads(json.dumps(to_plain(label)))) == label
    assert Histogram([label, 1], [2, 2]).top_rows(2).tolist() == [1, 0]
    assert label_text((label,)).startswith('{"tuple"')


def test_a_label_of_an_unknown_type_becomes_its_text():
    assert from_plain(json.loads(json.dumps(to_plain(range(3))))) == "range(0, 3)"
    assert from_plain(to_plain(Odd())) == ""
    assert "Odd" in label_text(Odd())
    for bad in ({}, {"no such tag": 1}, {"int": "1", "float": "1"}):
        with pytest.raises(InvalidParameter, match="label"):
            from_plain(bad)


def test_all_kinds_are_different_labels_side_by_side():
    array = as_labels(KINDS)
    assert all(kept is given for kept, given in zip(array.tolist(), KINDS, strict=True))
    order = label_order(array)
    assert sorted(order.tolist()) == list(range(len(KINDS)))
    backwards = label_order(array[::-1])
    assert [id(array[i]) for i in order] == [id(array[::-1][i]) for i in backwards]
    histogram = Histogram(KINDS, range(len(KINDS)))
    assert histogram.count_of(KINDS[::-1]).tolist() == list(range(len(KINDS)))[::-1]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([2**53 + 1, 2**53, 0.5], [2**53 + 1, 2**53, 0.5]),
        ([1, 1.0, True], [1, 1.0, True]),
        ([(1, 2), (3, 4)], [(1, 2), (3, 4)]),
        (np.array([3, 1], dtype=np.uint8), [3, 1]),
        (np.array([2**64 - 1, 1], dtype=np.uint64), [2**64 - 1, 1]),
        (np.array(["b", "a"]), ["b", "a"]),
        (np.array([1.0, 2.5]), [1.0, 2.5]),
        ([np.int64(3), np.str_("x"), np.float64(2.0)], [3, "x", 2.0]),
        (np.array(["2020-01-01"], dtype="datetime64[ns]"), [np.datetime64("2020-01-01", "ns")]),
        (pd.Series([1, 2]), [1, 2]),
        (pd.Series([1, 2], dtype="Int64"), [1, 2]),
        (pd.Series(["a", "b"], dtype="category"), ["a", "b"]),
        (pd.Series([STAMP]), [STAMP]),
        (pd.MultiIndex.from_tuples([(1, "a"), (2, "b")]), [(1, "a"), (2, "b")]),
        (pl.Series(["a", "b"]), ["a", "b"]),
        (pa.array([1, 2]), [1, 2]),
        (iter("ab"), ["a", "b"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_labels_are_kept_as_they_are_given(labels, expected):
    kept = as_labels(labels).tolist()
    assert len(kept) == len(expected)
    assert all(same(*pair) for pair in zip(kept, expected, strict=True))


@pytest.mark.parametrize(
    "labels",
    [
        {"a": 1},
        {"a"},
        pd.DataFrame({"a": [1]}),
        pl.DataFrame({"a": [1]}),
        pa.table({"a": [1]}),
        np.eye(2),
        7,
    ],
)
def test_what_is_no_sequence_of_labels_is_refused(labels):
    with pytest.raises(InvalidParameter, match="sequence"):
        labels_as_list(labels)


@pytest.mark.parametrize(
    "missing",
    [None, float("nan"), pd.NaT, pd.NA, np.datetime64("NaT", "ns"), Decimal("nan")],
    ids=str,
)
def test_missing_labels_are_refused(missing):
    with pytest.raises(InvalidParameter, match="missing"):
        as_labels(["a", missing])


TAKEN = st.one_of(
    st.integers(-3, 3), st.floats(-3, 3).map(lambda x: round(x, 1)), st.booleans(), st.sampled_from(KINDS),
    st.integers(2**53, 2**53 + 2), st.floats(2**53, 2**53 + 4), st.tuples(st.integers(0, 1), st.booleans()),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(TAKEN, min_size=1, max_size=5, unique_by=identity), TAKEN)
@example(
    [-(2**63), 5], "x"
)  # integers alone are held as int64, whose smallest has no positive counterpart
@pytest.mark.slow
@example([2**63 - 1, 5], 2**63)
def test_one_users_label_leaves_all_others_as_they_are(labels, other):
    """With the same noise, what is released about the others is the same: values, types, counts."""
    if identity(other) in map(identity, labels):
        return
    counts = [1000 + 10 * place for place in range(len(labels))]
    options = {"sensitivity": Sensitivity(l0=1)}
    without, beside = (
        Histogram(labels, counts, **options),
        Histogram([other, *labels], [1, *counts], **options),
    )
    for mechanism in (
        UnknownLaplace(d_bar=4, epsilon=50.0, delta=1e-9),
        UnknownGumbel(k=4, d_bar=6, epsilon=50.0, delta=1e-9),
    ):
        first, second = (
            mechanism.release(histogram, np.random.default_rng(1))
            for histogram in (without, beside)
        )
        assert list(map(identity, first.labels)) == list(map(identity, second.labels))
        for release in (first, second):
            json.dumps(release.to_dict(), ensure_ascii=False).encode()
            again = Release.from_dict(json.loads(json.dumps(release.to_dict())))
            assert len(again.labels) == len(release.labels)
            assert release.to_arrow().num_rows == len(release)
    asked = KnownLaplace(epsilon=50.0)
    rng, again = np.random.default_rng(1), np.random.default_rng(1)
    left, right = (
        asked.release(without, rng, labels=labels),
        asked.release(beside, again, labels=labels),
    )
    assert left.counts.tolist() == right.counts.tolist()


@pytest.mark.parametrize(
    "plain",
    [
        {}, {"nothing": 1}, {"int": "zz"}, {"int": 5}, {"tuple": 5}, {"frozenset": [[1]]}, {"bytes": 5}, {"uuid": 5},
        {"decimal": "x"}, {"fraction": ["0x1", "0x0"]}, {"datetime": "x"}, {"timedelta": [10**12, 0, 0]},
        {"datetime64": [1, "bogus", 1]}, {"timestamp": ["x", "ns"]}, {"span": [1, "q"]}, {"object": ["x"]},
    ],
)  # fmt: skip
def test_what_was_never_written_is_refused_by_name(plain):
    """Whatever a reader makes of it: a request with such a label is a bad request, not a fault of
    ours.
    """
    with pytest.raises(InvalidParameter, match="not a written label"):
        from_plain(plain)


def own_type(name="Own", text=None):
    """A type of its own at every call."""
    return type(name, (), {"__str__": lambda _: text} if text else {})


DAY = pd.Timestamp("2020-01-01")
TIMES = [
    *(
        pd.Timestamp(2020, 1, 1, tz=tz).as_unit(unit)
        for unit in ("s", "ms", "us", "ns")
        for tz in (None, "UTC")
    ),
    *(pd.Timedelta(1, "D").as_unit(unit) for unit in ("s", "ms", "us", "ns")),
    *(pd.Period("2020-01-01", freq) for freq in ("h", "3D", "W", "M", "Y")),
    *(np.datetime64("2020-01-01", unit) for unit in ("2D", "s", "h")),
    *(np.timedelta64(3, unit) for unit in ("D", "s", "ns", "2h")),
]
ARROW = (
    pa.array([1577836800], pa.timestamp("s")).to_pylist()
    + pa.array([1], pa.duration("ns")).to_pylist()
)
OTHERS = [
    *TIMES, *ARROW, *pl.Series([NOON.date()]).to_list(), *pl.Series([Decimal("1.0")]).to_list(),
    *pa.array([(1, 2, 3)], pa.month_day_nano_interval()).to_pylist(),
    *((time, 1) for time in TIMES[::3]), *(frozenset({time}) for time in TIMES[::3]), (float("nan"), 1), (1, 2, 3),
    *(pd.Interval(DAY.as_unit(unit), DAY.as_unit(unit) + pd.Timedelta(1, "D")) for unit in ("s", "ns")),
    frozenset("abc"), frozenset("cba"), (frozenset("ab"), 1), frozenset(range(40)), range(3), np.longdouble("0.1"),
    pd.offsets.Day(2), pd.offsets.CustomBusinessDay(holidays=["2020-01-01"]), pd.offsets.CustomBusinessDay(),
    *(enum.Enum("Colour", {"RED": value}).RED for value in (1, 2)), enum.IntEnum("Number", "ONE").ONE,
    ipaddress.ip_address("1.1.1.1"), ipaddress.ip_address("::1"), pathlib.PurePosixPath("a"),
    pathlib.PureWindowsPath("a"), dt.UTC, dt.timezone(dt.timedelta(hours=1), "UTC"), NOON.replace(tzinfo=dt.UTC),
    re.compile("a"), re.compile("a" * 300), re.compile("a" * 301), ZoneInfo("UTC"), type("Text", (str,), {})("the"),
    own_type(), int, own_type()(), own_type()(), own_type(text="x")(), own_type(text="x")(), Odd(), Odd(),
    (Odd(),), (own_type()(), 1),
    (own_type(text="x")(), 1), (own_type(text="x")(), 1), lambda: 1, len, np.float32, np.dtype("int64"),
]  # fmt: skip


def listing(labels):
    """In which order labels with equal counts are listed; or the text of the refusal."""
    try:
        array = as_labels(labels)
    except InvalidParameter as refusal:
        return str(refusal)
    return [
        identity(array.tolist()[row])
        for row in descending_order(np.ones(len(array), dtype=np.int64), array)
    ]


def test_no_two_labels_are_listed_in_the_order_of_their_rows():
    """Otherwise the rank of a label would tell the order of the true counts, at every epsilon."""
    labels = KINDS + OTHERS
    alone = [listing([label]) for label in labels]
    tied = 0
    rows = [(label, label_text(label), found) for label, found in zip(labels, alone, strict=True)]
    for place, ((one, text, first), (other, again, second)) in enumerate(
        itertools.combinations(rows, 2)
    ):
        if place % 5 and text != again and type(one) is not type(other):
            continue  # of pairs that differ in text and type a fifth will do
        found = listing([one, other])
        assert found == listing([other, one])
        tied += found != second and isinstance(found, str) and first != found
    assert 8 <= tied <= 30  # repeated labels, and those that only a row tells apart
    assert all("address" in found for found in alone if isinstance(found, str))


@pytest.mark.parametrize(
    "labels", [[Odd(), Odd()], [(Odd(), 1), (Odd(), 1)], [own_type()()], [len, lambda: 1]]
)
@pytest.mark.parametrize("counts", [(1, 2), (2, 1), (0, 0), (5, 5)])
def test_labels_that_nothing_orders_are_refused_whatever_the_counts(labels, counts):
    with pytest.raises(InvalidParameter, match=r"labels: .*use text"):
        Histogram(labels, counts[: len(labels)])
    with pytest.raises(InvalidParameter, match=r"labels: .*use text"):
        Histogram(["a"], [1]).positions(labels)


def test_the_order_of_a_set_does_not_follow_how_it_was_filled():
    sets = [
        frozenset(order) for order in itertools.permutations((0, 8, 16))
    ]  # which collide, and so differ in text
    assert len(set(map(str, sets))) > 1
    for one in sets:
        assert listing([(two := (frozenset({0, 9}), 1)), (pair := (one, 2))]) == [
            identity(pair),
            identity(two),
        ]


def test_types_of_the_callers_own_are_ordered_by_their_parts():
    """Equal sets that were filled in another order have other texts: the order of labels must not
    show which.
    """
    kind = namedtuple("kind", "tags")
    one, same, other = kind(frozenset([8, 0])), kind(frozenset([0, 8])), kind(frozenset([1]))
    assert one == same
    assert str(one) != str(same)
    assert (
        label_order(as_labels([one, other])).tolist()
        == label_order(as_labels([same, other])).tolist()
    )


@pytest.mark.parametrize("kind", [lambda part: (part,), lambda part: frozenset([part])])
def test_labels_that_are_nested_too_deeply_are_refused_at_once(kind):
    """They ended in a RecursionError, perhaps after a charge."""
    label = 1
    for _ in range(MOST_LEVELS - 1):
        label = kind(label)
    assert Histogram([label, "a"], [2, 1]).labels.tolist() == [label, "a"]
    for _ in range(100):
        label = kind(label)
    with pytest.raises(InvalidParameter, match="nested"):
        Histogram([label, "a"], [2, 1])


def test_a_part_that_is_there_twice_is_looked_at_once():
    label = (1, 2)
    for _ in range(10):
        label = (label, label)
    assert Histogram({label: 1}).counts.tolist() == [1]


def test_missing_labels_of_a_masked_array_are_refused():
    """Their values under the mask were labels."""
    labels = np.ma.array([1, 2, 3], mask=[False, True, False])
    with pytest.raises(InvalidParameter, match="missing"):
        Histogram(labels, [5, 6, 7])
    assert Histogram(np.ma.array([1, 2, 3]), [5, 6, 7]).labels.tolist() == [1, 2, 3]
