"""Histograms of many segments at once, and what releases on them cost one user together."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from dptopk import (
    ZCDP,
    ApproxDP,
    BoundedRange,
    Charge,
    GaussianDP,
    IncompatibleCosts,
    InvalidParameter,
    PureDP,
    Sensitivity,
)

pytest.importorskip("ibis")
duckdb = pytest.importorskip("duckdb")

from dptopk.datasets import (  # noqa: E402
    DuckDB,
    Segments,
    events_histogram,
    segment_histograms,
    segments,
    segments_charge,
)

COLUMNS = ["user", "item", "segment"]
OPTIONS = {"user": "user", "item": "item", "segment": "segment"}


def as_dict(histogram):
    return dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


def random_events(seed, n=600):
    rng = np.random.default_rng(seed)
    draws = zip(
        rng.integers(0, 40, n), rng.zipf(1.4, n) % 12, rng.choice(list("nsew"), n), strict=True
    )
    return pd.DataFrame([(f"u{u}", f"i{i}", s) for u, i, s in draws], columns=COLUMNS)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [None, DuckDB(passes=3)])
@pytest.mark.parametrize("top", [None, 3])
def test_each_segment_is_the_histogram_of_its_own_events(engine, top):
    rows = random_events(1)
    options = {"labels_per_user": 2, "per_label_cap": 2, "top": top, "key": "k"}
    found = segment_histograms(
        rows, **OPTIONS, segments=["n", "w", "absent"], engine=engine, **options
    )
    assert list(found) == ["n", "w", "absent"]
    assert found.segments_per_user == 3
    for name, histogram in found.items():
        alone = events_histogram(rows, user="user", item="item", where={"segment": name}, **options)
        assert as_dict(histogram) == as_dict(alone)
        assert histogram.sensitivity == Sensitivity(linf=2, l0=2)
        assert histogram.complete == (top is None)
        assert histogram.domain == "private"


EVENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from("nsew")),
    min_size=1,
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(EVENTS, st.integers(1, 3), st.integers(1, 2), st.integers(1, 2))
def test_removing_a_user_moves_few_segments_and_little_in_each(events, s, delta, cap):
    options = {
        "segments": list("nse"),
        "segments_per_user": s,
        "labels_per_user": delta,
        "per_label_cap": cap,
    }
    rows = pd.DataFrame(events, columns=COLUMNS)
    whole = segment_histograms(rows, **OPTIONS, **options)
    for user in set(rows["user"]):
        rest = segment_histograms(rows[rows["user"] != user], **OPTIONS, **options)
        visited = set(rows[rows["user"] == user]["segment"]) & set("nse")
        moved = 0
        for name in whole:
            before, after = as_dict(whole[name]), as_dict(rest[name])
            moves = [
                before[item] - after.get(item, 0)
                for item in before
                if before[item] != after.get(item, 0)
            ]
            assert set(after) <= set(before)
            assert len(moves) <= delta
            assert all(0 < move <= cap for move in moves)
            moved += bool(moves)
        assert moved == min(s, len(visited))


@pytest.mark.slow
def test_the_choice_of_segments_is_spread_and_varies_with_the_key():
    rows = pd.DataFrame([(f"u{u}", "x", s) for u in range(900) for s in "abc"], columns=COLUMNS)
    options = {"segments": list("abc"), "segments_per_user": 1, "labels_per_user": 1}
    by_key = [
        [as_dict(h)["x"] for h in segment_histograms(rows, **OPTIONS, **options, key=key).values()]
        for key in "kkl"
    ]
    assert by_key[0] == by_key[1] != by_key[2]
    for counts in by_key:
        assert sum(counts) == 900
        assert all(abs(count - 300) < 6 * np.sqrt(900 * 2 / 9) for count in counts)


def test_integer_segments_and_filters():
    rows = pd.DataFrame(
        {
            "user": ["a", "b", "b"],
            "item": ["x", "x", "y"],
            "segment": [1, 2, 2],
            "kind": ["p", "p", "q"],
        }
    )
    found = segment_histograms(
        rows, **OPTIONS, segments=[2, 1], labels_per_user=1, where={"kind": "p"}
    )
    assert {name: as_dict(histogram) for name, histogram in found.items()} == {
        2: {"x": 1},
        1: {"x": 1},
    }


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"segments": []}, "segments"),
        ({"segments": "n"}, "segments"),
        ({"segments": ["n", "n"]}, "segments"),
        ({"segments": [object()]}, "segments"),
        ({"segments_per_user": 0}, "segments_per_user"),
        ({"segment": "nothing"}, "segment"),
        ({"top": 0}, "top"),
    ],
)
def test_refusals_name_the_argument(change, argument):
    with pytest.raises(InvalidParameter, match=argument):
        segment_histograms(
            random_events(2, 5), **(OPTIONS | {"segments": ["n"], "labels_per_user": 1} | change)
        )


COSTS = [
    PureDP(0.1),
    PureDP(0.2),
    BoundedRange(0.1),
    BoundedRange(0.3),
    ZCDP(0.1),
    ZCDP(0.2),
    ZCDP(0.1, xi=0.1),
]
COSTS += [GaussianDP(0.5), ApproxDP(0.1, 1e-6), ApproxDP(0.2, 1e-7)]
CHARGES = st.builds(
    lambda costs, delta: Charge(costs, delta=delta),
    st.dictionaries(st.sampled_from(COSTS), st.integers(1, 3), max_size=4),
    st.sampled_from([0.0, 1e-7, 1e-6]),
)
FAMILIES = {PureDP: "epsilon", BoundedRange: "epsilon", GaussianDP: "mu"}


def larger(one, other):
    """Whether the first cost is at least the second, in a family whose parameter says so."""
    if type(one) is not type(other):
        return False
    if isinstance(one, ZCDP):
        return one.xi == other.xi and one.rho >= other.rho
    name = FAMILIES.get(type(one))
    return one == other if name is None else getattr(one, name) >= getattr(other, name)


def covers(large, small):
    """Whether each cost of the small charge can be given a cost of its own, at least as large, in
    the large charge.
    """
    return all(
        sum(times for cost, times in small if larger(cost, needed))
        <= sum(times for cost, times in large if larger(cost, needed))
        for needed in small.costs
    )


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.lists(CHARGES, min_size=1, max_size=4), st.integers(1, 4))
def test_the_charge_covers_every_choice_of_segments(charges, s):
    covering = segments_charge(charges, segments_per_user=s)
    for chosen in combinations(charges, min(s, len(charges))):
        joined = Charge.join(*chosen)
        assert covers(covering, joined)
        assert covering.delta >= joined.delta
    assert covers(Charge.join(*charges), covering)  # and is never above paying for everything
    if s >= len(charges):
        assert covering == Charge.join(*charges)


def test_equal_charges_cost_exactly_s_of_them():
    charge = Charge({BoundedRange(0.1): 25}, delta=1e-7, adaptive=True)
    assert segments_charge([charge] * 4, segments_per_user=1) == charge
    assert segments_charge([charge] * 4, segments_per_user=3) == Charge.join(charge, charge, charge)
    assert segments_charge([], segments_per_user=1) == Charge()


def test_the_mapping_charges_its_own_segments():
    found = segment_histograms(
        random_events(3), **OPTIONS, segments=list("nse"), segments_per_user=2, labels_per_user=1
    )
    assert isinstance(found, Segments)
    charge = Charge({BoundedRange(0.1): 5}, adaptive=True)
    assert found.charge(charge) == charge.times(2)
    assert found.charge({"n": charge}) == charge
    with pytest.raises(InvalidParameter, match="charges"):
        found.charge({"q": charge})
    with pytest.raises(InvalidParameter, match="charges"):
        segments_charge([0.1], segments_per_user=1)
    with pytest.raises(IncompatibleCosts):
        segments_charge(
            [charge, Charge({PureDP(1): 1}, neighbours="replace_one")], segments_per_user=1
        )


def test_text_that_no_column_holds_is_refused_by_name():
    """Half of a surrogate pair: what a command line makes of bytes that are no UTF-8."""
    events = pd.DataFrame({"who": ["a"], "what": ["x"], "part": ["one"]})
    options = {"user": "who", "item": "what", "labels_per_user": 1}
    with pytest.raises(InvalidParameter, match="segments"):
        segment_histograms(events, segment="part", segments=["\udcff"], **options)
    with pytest.raises(InvalidParameter, match="where"):
        events_histogram(events, where={"part": "\udcff"}, **options)
    with pytest.raises(InvalidParameter, match="key"):
        events_histogram(events, key="\udcff", **options)


@pytest.mark.parametrize("by_name", [True, False])
def test_segments_that_differ_after_a_nul(monkeypatch, by_name):
    """NumPy compares texts up to one; by name, as on engines that keep no tables, and by number."""
    if by_name:
        monkeypatch.setattr(segments, "_segment_indices", lambda *_: None)
    names = [f"n{end}" for end in ("", "\0", "\0b", "\0a", "\0b\0")]
    rows = pd.DataFrame({"user": range(5), "item": list("vwxyz"), "segment": names})
    read = partial(
        segment_histograms, rows, **OPTIONS, segments=names, segments_per_user=1, labels_per_user=1
    )
    if int(duckdb.__version__.split(".")[0]) < 2:  # no NUL in the text of a query: refused
        with pytest.raises(InvalidParameter, match="could not run"):
            read()
        return
    found = read()
    assert [as_dict(histogram) for histogram in found.values()] == [{item: 1} for item in "vwxyz"]


def test_a_value_of_the_column_of_segments_is_no_condition():
    table = pd.DataFrame({"u": ["a"], "i": ["x"], "s": ["n"]})
    with pytest.raises(InvalidParameter, match="where: the column 's' is that of the segments"):
        segment_histograms(
            table, user="u", item="i", segment="s", segments=["n", "m"], labels_per_user=1,
            where={"s": "n"},
        )  # fmt: skip
