"""Contribution bounding, against an oracle in plain Python that follows the definition."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from dptopk import Histogram, InvalidParameter, Sensitivity

ibis = pytest.importorskip("ibis")
pytest.importorskip("duckdb")

from dptopk.datasets import DuckDB, events_histogram  # noqa: E402


def as_dict(histogram: Histogram) -> dict:
    return dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


def lot(user: object, item: object, key: str) -> str:
    prefix = hashlib.sha256(key.encode()).hexdigest()[:32]
    return hashlib.sha256(f"{prefix}|{user}|{item}".encode()).hexdigest()[:12]


def native_lots(events, key, code="hash(hash('item', item))"):
    """(lot, code) of each pair by DuckDB's own hash, asked for directly."""
    import duckdb

    pairs = sorted(
        {(user, item) for user, item, _ in events if user is not None and item is not None}
    )
    if not pairs:
        return {}
    prefix = hashlib.sha256(key.encode()).hexdigest()[:32]
    # DuckDB finds it by its name
    named = pd.DataFrame(pairs, columns=["user", "item"]).astype("string")  # noqa: F841
    coded = f"SELECT *, {code} AS code FROM named"  # noqa: S608
    query = f"SELECT hash(hash('{prefix}', t.user, t.code)), t.code FROM ({coded}) t"  # noqa: S608
    return dict(zip(pairs, duckdb.sql(query).fetchall(), strict=True))


def oracle(events, delta, cap, choose="hash", key="", hash_ranks=None):
    """The bounded histogram of (user, item, weight) triples."""
    amounts: dict = defaultdict(Counter)
    for user, item, weight in events:
        if user is None or item is None:
            continue
        amounts[user][item] += 0 if weight is None else min(max(int(np.floor(weight)), 0), cap)
    histogram: Counter = Counter()
    for user, amount in amounts.items():
        present = [item for item in amount if amount[item] > 0]
        chance = {
            item: hash_ranks[user, item] if hash_ranks else lot(user, item, key) for item in present
        }
        present.sort(key=lambda item: (-amount[item] if choose == "top" else 0, chance[item], item))
        for item in present[:delta]:
            histogram[item] += min(amount[item], cap)
    return dict(histogram)


def random_events(rng, n, users=12, items=9):
    return [
        (f"u{u}", f"i{i}")
        for u, i in zip(rng.integers(0, users, n), rng.zipf(1.5, n) % items, strict=True)
    ]


def frame(events) -> pd.DataFrame:
    return pd.DataFrame(
        events, columns=["user", "item", "weight"][: len(events[0]) if events else 2]
    )


USERS = st.sampled_from(["a", "b", "ü", "", "a|b"])
ITEMS = st.sampled_from(["x", "y", "z", "日本", "|", "b|x"])
EVENTS = st.lists(st.tuples(USERS, ITEMS), max_size=30)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    EVENTS,
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["hash", "top"]),
    st.sampled_from(["", "k"]),
    st.booleans(),
)
def test_equals_the_definition_and_removing_a_user_stays_inside_the_sensitivity(
    events, delta, cap, choose, key, portable
):
    options = {"user": "user", "item": "item", "labels_per_user": delta, "per_label_cap": cap}
    options |= {"choose": choose, "key": key, "portable": portable}
    whole = as_dict(events_histogram(frame(events), **options))
    weighted = [(*event, 1) for event in events]
    assert whole == oracle(
        weighted, delta, cap, choose, key, None if portable else native_lots(weighted, key)
    )
    for user in {user for user, _ in events}:
        rest = as_dict(
            events_histogram(frame([event for event in events if event[0] != user]), **options)
        )
        assert set(rest) <= set(whole)
        moves = [
            whole[item] - rest.get(item, 0) for item in whole if whole[item] != rest.get(item, 0)
        ]
        assert len(moves) <= delta
        assert all(0 < move <= cap for move in moves)


@pytest.mark.parametrize(
    "options", [{}, {"top": 3}, {"per_label_cap": 2}, {"choose": "top"}], ids=str
)
def test_texts_that_share_a_code_are_told_apart(options, monkeypatch):
    """Codes that collide cannot stand for the texts: the choice is by the same codes, and the texts
    are counted.
    """
    from dptopk.datasets import counting, hashing

    def first_letter(source, item):
        return source.mix(ibis.literal("item"), item.left(1))

    events = random_events(np.random.default_rng(3), 300)
    events = [(user, f"{item[1]}{item}") for user, item in events] + [("u1", "1x"), ("u2", "1x")]
    options = {"user": "user", "item": "item", "labels_per_user": 2, "key": "k"} | options
    for module in (counting, hashing):
        monkeypatch.setattr(module, "code_of", first_letter)
    found = as_dict(events_histogram(frame(events), **options))
    weighted = [(*event, 1) for event in events]
    hash_ranks = native_lots(weighted, "k", "hash(hash('item', left(item, 1)))")
    expected = oracle(
        weighted, 2, options.get("per_label_cap", 1), options.get("choose", "hash"), "k", hash_ranks
    )
    kept = sorted(expected, key=lambda label: (-expected[label], label))[: options.get("top")]
    assert found == {label: expected[label] for label in kept}


@pytest.mark.slow
def test_the_choice_of_one_user_does_not_see_the_others():
    """Whatever labels the others have, also such that make codes collide, a user's own labels are
    chosen alike.
    """
    mine = [("me", f"i{i}") for i in range(30)]
    options = {"user": "user", "item": "item", "labels_per_user": 4, "key": "k"}
    alone = as_dict(events_histogram(frame(mine), **options))
    others = random_events(np.random.default_rng(4), 200)
    rest = as_dict(events_histogram(frame(others), **options))
    both = Counter(as_dict(events_histogram(frame(mine + others), **options)))
    both.subtract(rest)
    assert {label for label, count in both.items() if count} == set(alone)


@pytest.mark.slow
@pytest.mark.parametrize("choose", ["hash", "random", "top"])
def test_bounds_hold_for_every_choice(choose):
    events = random_events(np.random.default_rng(1), 400)
    one = frame([event for event in events if event[0] == "u0"])
    histogram = events_histogram(
        one, user="user", item="item", labels_per_user=2, per_label_cap=3, choose=choose, key=""
    )
    counts = as_dict(histogram)
    assert len(counts) == 2
    assert max(counts.values()) <= 3
    assert histogram.sensitivity == Sensitivity(linf=3, l0=2)
    assert histogram.domain == "private"
    assert histogram.complete


def test_random_choice_is_fresh_and_uniform():
    rows = frame([(f"u{u}", item) for u in range(1500) for item in "abc"])
    options = {"user": "user", "item": "item", "labels_per_user": 1, "choose": "random"}
    first, second = (as_dict(events_histogram(rows, **options)) for _ in range(2))
    assert first != second  # equal with a probability below 1e-3
    for counts in (first, second):
        assert sum(counts.values()) == 1500
        assert all(abs(count - 500) < 6 * np.sqrt(1500 * 2 / 9) for count in counts.values())


@pytest.mark.slow
def test_the_key_varies_the_choice_and_repeats_it():
    rows = frame([(f"u{u}", item) for u in range(200) for item in "abc"])
    options = {"user": "user", "item": "item", "labels_per_user": 1}
    by_key = [as_dict(events_histogram(rows, **options, key=key)) for key in ("k", "k", "l")]
    assert by_key[0] == by_key[1] != by_key[2]


def test_top_choice_keeps_the_most_frequent():
    rows = frame([("a", "x")] * 3 + [("a", "y")] * 2 + [("a", "z")] + [("b", "z")])
    histogram = events_histogram(rows, user="user", item="item", labels_per_user=2, choose="top")
    assert as_dict(histogram) == {"x": 1, "y": 1, "z": 1}


def test_unlimited_labels():
    rows = frame([("a", item) for item in "xyz"])
    histogram = events_histogram(rows, user="user", item="item", labels_per_user=None)
    assert as_dict(histogram) == {"x": 1, "y": 1, "z": 1}
    assert histogram.sensitivity == Sensitivity(linf=1, l0=None)


def test_cut_orders_by_count_then_label_and_is_never_complete():
    rows = frame(
        [(u, item) for item, n in zip("dcba", (2, 3, 2, 2), strict=True) for u in range(n)]
    )
    options = {"user": "user", "item": "item", "labels_per_user": 9}
    cut = events_histogram(rows, **options, top=3)
    assert cut.labels.tolist() == ["c", "a", "b"]
    assert not cut.complete
    roomy = events_histogram(rows, **options, top=100)
    assert len(roomy) == 4
    assert not roomy.complete  # a fact of the query, not of the data
    assert roomy.limit == 100


@pytest.mark.slow
def test_a_cut_histogram_serves_the_unknown_domain_whatever_the_number_of_labels():
    from dptopk import UnknownLaplace

    mechanism = UnknownLaplace(d_bar=5, epsilon=20.0, delta=1e-3)
    for labels in range(8):
        rows = frame([(user, f"label {i}") for i in range(labels) for user in range(50 + i)])
        options = {"user": "user", "item": "item", "labels_per_user": 8}
        whole, cut = (events_histogram(rows, **options, top=top) for top in (None, 6))
        answers = [mechanism.release(h, np.random.default_rng(1)).table for h in (whole, cut)]
        assert answers[0].equals(answers[1])
        if labels <= 5:
            assert len(answers[0]) == labels
        with pytest.raises(InvalidParameter, match="d_bar"):
            mechanism.release(events_histogram(rows, **options, top=5))


@pytest.mark.slow
@pytest.mark.parametrize("passes", [2, 5])
def test_passes_do_not_change_the_answer(passes):
    rows = frame(random_events(np.random.default_rng(2), 600, users=60, items=30))
    options = {"user": "user", "item": "item", "labels_per_user": 3, "per_label_cap": 2}
    single = events_histogram(rows, **options, top=7)
    seen: list = []
    split = events_histogram(
        rows,
        **options,
        top=7,
        engine=DuckDB(passes=passes),
        progress=lambda done, of: seen.append((done, of)),
    )
    assert split.labels.tolist() == single.labels.tolist()
    assert split.counts.tolist() == single.counts.tolist()
    assert seen == [(done, passes) for done in range(1, passes + 1)]
    assert as_dict(events_histogram(rows, **options, engine=DuckDB(passes=passes))) == as_dict(
        events_histogram(rows, **options)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("fits", "passes"), [(1, None), (4, None), (65, None), (4, 2), (4, 5)])
def test_a_full_memory_asks_for_more_passes(fits, passes, monkeypatch):
    """In a memory that holds one of ``fits`` parts of the users; passes that are asked for by hand
    are kept.
    """
    from dptopk.datasets import counting
    from dptopk.datasets.backends.base import MemoryFull

    rows = frame(random_events(np.random.default_rng(2), 300, users=60, items=30))
    options = {"user": "user", "item": "item", "labels_per_user": 3, "per_label_cap": 2, "top": 7}
    whole, run_in_parts, tried, seen = (
        as_dict(events_histogram(rows, **options)),
        counting._total_counts,
        [],
        [],
    )

    def tight(source, counted, parts, *rest):
        tried.append(parts)
        if parts < fits:
            raise MemoryFull("table")
        return run_in_parts(source, counted, parts, *rest)

    monkeypatch.setattr(counting, "_total_counts", tight)
    options |= {"engine": DuckDB(passes=passes), "progress": lambda *done: seen.append(done)}
    if (passes or 64) < fits:
        with pytest.raises(MemoryFull):
            events_histogram(rows, **options)
        assert tried == ([2] if passes else [1, 2, 4, 8, 16, 32, 64])
        return
    assert as_dict(events_histogram(rows, **options)) == whole
    assert seen == [(part + 1, passes or fits) for part in range(passes or fits)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.study) for seed in (1, 2, 3))]
)
def test_codes_of_users_and_items_leave_no_trace(seed, monkeypatch):
    """Whether codes stand for the texts of users and of items, or not since two texts share one:
    the same histogram.
    """
    from dptopk.datasets import counting, event_counts, hashing, segment_histograms

    rng = np.random.default_rng(seed)
    users = rng.integers(-9, 9, 150) * rng.integers(
        1, 99, 150
    )  # some with many events, many with one
    rows = frame([*zip(users, rng.zipf(1.5, 150) % 30, rng.integers(0, 3, 150), strict=True)])
    # Texts so long that codes stand for them wherever users are sorted.
    rows["user"] = "the user number " + rows["user"].astype(str)
    rows["item"] = rows["item"] if seed % 2 else "i" + rows["item"].astype(str)
    rows["segment"] = rng.integers(0, 3, 150)
    options = {"user": "user", "item": "item", "labels_per_user": 3 + seed % 2, "key": str(seed)}
    options |= [{}, {"per_label_cap": 2}, {"choose": "top"}, {"portable": True}][seed]
    options |= {"weight": "weight"} if seed < 2 else {}
    divided = {"segment": "segment", "segments": [0, 1], "segments_per_user": 1}
    answers, asked, codes, code = [], [], hashing.text_codes, hashing.code_of

    def coded(roles):
        def found(source, events, role):
            asked.append(role)
            return codes(source, events, role) if role in roles else None

        return found

    def shared(source, text):
        """A code that users share, so that its use as theirs would merge them."""
        own = code(source, text)
        return own if "user" not in text.get_name() and text.get_name() != "name" else own % 3

    for roles, made in (
        (("user", "item"), code),
        ((), code),
        (("user",), code),
        (("user", "item"), shared),
    ):
        for module in (counting, hashing):
            monkeypatch.setattr(module, "text_codes", coded(roles))
            monkeypatch.setattr(module, "code_of", made)
        each = [
            events_histogram(rows, **options, top=9),
            *segment_histograms(rows, **options, **divided, top=9).values(),
            two := event_counts(rows, **options),
            two.under_cap,
        ]
        answers.append([as_dict(histogram) for histogram in each])
    assert answers[1:] == answers[:1] * 3
    assert asked.count("user") == 4 * 3


@pytest.mark.parametrize("ends", [(-(2**31), 2**31 - 1), (0, 2**31), (-(2**31) - 1, 2**32 + 7)])
def test_users_of_32_bits_are_sorted_as_such_and_others_stay_apart(ends, monkeypatch):
    from dptopk.datasets import ordered_events

    sorted_as, user_columns = [], ordered_events.user_columns

    def watched(events, within):
        sorted_as.append(str(events["user_code"].type()) if "user_code" in events.columns else None)
        return user_columns(events, within)

    monkeypatch.setattr(ordered_events, "user_columns", watched)
    rows = [(user, f"i{item}") for user in (*ends, 7) for item in range(6)]
    options = {"user": "user", "item": "item", "key": "k"}
    found = as_dict(events_histogram(frame(rows), **options, labels_per_user=2))
    assert sorted_as == ["int32" if -(2**31) <= ends[0] and ends[1] < 2**31 else None]
    assert sum(found.values()) == 6
    monkeypatch.setattr(ordered_events, "with_user_codes", lambda _, events: events)
    assert as_dict(events_histogram(frame(rows), **options, labels_per_user=2)) == found


@pytest.mark.parametrize("top", [None, 5])
def test_texts_that_fill_the_memory_are_counted_without_codes(top, monkeypatch):
    from dptopk.datasets import hashing
    from dptopk.datasets.backends.base import MemoryFull

    rows = frame(random_events(np.random.default_rng(5), 300))
    options = {"user": "user", "item": "item", "labels_per_user": 2, "top": top}
    expected, run, full = as_dict(events_histogram(rows, **options)), hashing.run_query, []

    def tight(source, expression):
        if "codes" in expression.columns:
            full.append(1)
            raise MemoryFull("table")
        return run(source, expression)

    monkeypatch.setattr(hashing, "run_query", tight)
    assert as_dict(events_histogram(rows, **options)) == expected
    assert len(full) == 2


def test_duckdb_says_when_its_memory_is_full():
    from dptopk.datasets.backends.base import MemoryFull

    rows = pd.DataFrame({"user": np.arange(50_000) % 900, "item": np.arange(50_000) % 7919})
    with pytest.raises(MemoryFull, match="table"):
        events_histogram(
            rows,
            user="user",
            item="item",
            labels_per_user=2,
            engine=DuckDB(memory_limit="1MB", passes=1),
        )


def test_a_memory_that_is_full_while_batches_are_read_is_told(monkeypatch):
    from dptopk.datasets.backends import base

    seen, arrays_of = [], base.arrays_of

    def tight(batches):
        seen.append(1)
        if len(seen) < 3:
            raise OSError("Out of Memory Error: could not allocate block of size 256.0 KiB")
        return arrays_of(batches)

    monkeypatch.setattr(base, "arrays_of", tight)
    rows = frame(random_events(np.random.default_rng(5), 300))
    options = {"user": "user", "item": "item", "labels_per_user": 2}
    again = as_dict(events_histogram(rows, **options))
    assert (len(seen), again) == (3, as_dict(events_histogram(rows, **options)))


def test_missing_users_and_items_are_dropped():
    rows = frame([("a", "x"), (None, "x"), ("b", None), ("", "x")])
    histogram = events_histogram(rows, user="user", item="item", labels_per_user=1)
    assert as_dict(histogram) == {"x": 2}  # the empty text is a user like any other


@pytest.mark.parametrize(
    "empty", [pd.DataFrame({"user": [], "item": []}), frame([(None, None)]), frame([])]
)
def test_no_events_is_an_empty_answer(empty):
    histogram = events_histogram(empty, user="user", item="item", labels_per_user=1, top=5)
    assert len(histogram) == 0


def test_integer_labels_stay_integers():
    rows = pd.DataFrame({"user": [1, 2, 2], "item": [10, 10, 9]})
    histogram = events_histogram(rows, user="user", item="item", labels_per_user=3, top=2)
    assert histogram.labels.tolist() == [10, 9]
    assert histogram.labels.dtype.kind == "i"


@pytest.mark.slow
def test_integers_with_a_gap_are_integers_all_the_same():
    rows = pd.DataFrame(
        {"user": [1, None, 2, 3, 4, 5], "item": [7, 7, 7.5, float("inf"), 1e300, None]}
    )
    assert rows["user"].dtype.kind == "f"
    histogram = events_histogram(rows, user="user", item="item", labels_per_user=3)
    assert as_dict(histogram) == {7: 1}
    integers = pd.DataFrame({"user": [1] * 5, "item": range(5)})
    options = {"user": "user", "item": "item", "labels_per_user": 2}
    same = events_histogram(integers.astype("float64"), **options)
    assert as_dict(same) == as_dict(events_histogram(integers, **options))


def test_very_long_and_odd_labels():
    labels = ["x" * 1_000_000, "a\nb\t'\"", "\0", "👩‍👩‍👧", "é", "e\u0301"]
    rows = frame([("u", label) for label in labels] + [("v", labels[0])])
    histogram = events_histogram(rows, user="user", item="item", labels_per_user=len(labels))
    assert as_dict(histogram) == dict.fromkeys(labels, 1) | {labels[0]: 2}


WEIGHTS = st.one_of(
    st.none(), st.sampled_from([-1e300, -1.0, -0.5, 0.0, 0.5, 0.999, 1.0, 2.7, 1e300, float("inf")])
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(USERS, ITEMS, WEIGHTS), min_size=1, max_size=20), st.integers(1, 3))
def test_weights_are_floored_and_clipped(events, cap):
    rows = frame(events).astype({"weight": "float64"})
    histogram = events_histogram(
        rows,
        user="user",
        item="item",
        weight="weight",
        labels_per_user=2,
        per_label_cap=cap,
        key="k",
    )
    finite = [
        (user, item, 1e6 if weight == float("inf") else weight) for user, item, weight in events
    ]
    assert as_dict(histogram) == oracle(finite, 2, cap, key="k")


def test_a_label_of_no_weight_uses_up_no_place():
    rows = frame(
        [("a", item, weight) for item, weight in zip("wxyz", (0, -3, 2, None), strict=True)]
    )
    histogram = events_histogram(rows, user="user", item="item", weight="weight", labels_per_user=1)
    assert as_dict(histogram) == {"y": 1}


def test_not_a_number_counts_nothing():
    import pyarrow as pa

    rows = pa.table(
        {"user": ["a", "b"], "item": ["x", "x"], "weight": pa.array([float("nan"), 1.0])}
    )
    histogram = events_histogram(rows, user="user", item="item", weight="weight", labels_per_user=1)
    assert as_dict(histogram) == {"x": 1}


@pytest.mark.parametrize(
    "where",
    [
        {"section": "news"},
        {"section": ["news"], "year": [2024, 2025]},
        lambda t: t.section == "news",
        ibis._.section == "news",
    ],
)
def test_where_filters_before_bounding(where):
    rows = pd.DataFrame(
        {
            "user": ["a", "a", "b"],
            "item": ["x", "y", "z"],
            "section": ["arts", "news", "news"],
            "year": 2024,
        }
    )
    histogram = events_histogram(rows, user="user", item="item", labels_per_user=1, where=where)
    assert as_dict(histogram) == {"y": 1, "z": 1}


@pytest.mark.parametrize(
    "where",
    [
        lambda t: t.year >= t.year.mean(),
        lambda t: ibis.row_number().over(order_by=t.year) < 1,
        lambda t: ibis.random() < 0.5,
        lambda t: t.year.isin(t.filter(t.section == "news").year),
        lambda t: t.year == t.year.max().as_scalar(),
        lambda t: t.year,
        lambda t: t.no_such_column == 1,
        {"no_such_column": 1},
        "year = 2024",
    ],
)
def test_where_must_look_at_one_row(where):
    rows = pd.DataFrame(
        {"user": ["a", "b"], "item": ["x", "y"], "section": ["arts", "news"], "year": [2024, 2025]}
    )
    with pytest.raises(InvalidParameter, match="where"):
        events_histogram(rows, user="user", item="item", labels_per_user=1, where=where)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"user": "nobody"}, "user"),
        ({"item": "nothing"}, "item"),
        ({"weight": "nothing"}, "weight"),
        ({"user": "stamp"}, "user"),
        ({"item": "stamp"}, "item"),
        ({"weight": "stamp"}, "weight"),
        ({"item": 3}, "item"),
        ({"labels_per_user": 0}, "labels_per_user"),
        ({"per_label_cap": 0}, "per_label_cap"),
        ({"per_label_cap": 2**31}, "per_label_cap"),
        ({"top": 0}, "top"),
        ({"choose": "first"}, "choose"),
        ({"choose": "random", "key": "k"}, "key"),
        ({"key": 5}, "key"),
        ({"engine": "duckdb"}, "engine"),
    ],
)
def test_refusals_name_the_argument(change, argument):
    rows = pd.DataFrame(
        {
            "user": ["secret"],
            "item": ["secret"],
            "price": [1.5],
            "stamp": [pd.Timestamp(2024, 1, 1)],
        }
    )
    options = {"user": "user", "item": "item", "labels_per_user": 1} | change
    with pytest.raises(InvalidParameter, match=argument) as caught:
        events_histogram(rows, **options)
    assert "secret" not in str(caught.value)


def test_each_row_can_be_one_person():
    rows = pd.DataFrame(
        {"answer": ["a"] * 5 + ["b"] * 3 + [None], "region": ["x", "y"] * 4 + ["x"]}
    )
    for options in (
        {},
        {"engine": DuckDB(passes=2)},
        {"where": {"region": "x"}},
        {"portable": True},
    ):
        histogram = events_histogram(rows, user=None, item="answer", labels_per_user=1, **options)
        truth = rows[rows["region"] == "x"] if "where" in options else rows
        assert (
            dict(zip(histogram.labels, histogram.counts, strict=True))
            == truth["answer"].value_counts().to_dict()
        )
        assert (histogram.sensitivity, histogram.capped) == (Sensitivity(1, 1), False)
    for wrong in (
        {"labels_per_user": 2},
        {"labels_per_user": None},
        {"per_label_cap": 2},
        {"weight": "region"},
    ):
        with pytest.raises(InvalidParameter, match="user=None"):
            events_histogram(rows, **{"user": None, "item": "answer", "labels_per_user": 1} | wrong)


@pytest.mark.slow
@pytest.mark.parametrize("choose", ["hash", "top"])
def test_a_total_of_one_user(choose):
    """Never above t in all, never above what the other caps leave, and all of it where there is as
    much.
    """
    rng = np.random.default_rng(9)
    rows = pd.DataFrame(
        {"user": rng.integers(0, 12, 300), "item": rng.integers(0, 9, 300).astype(str)}
    )
    options = {
        "user": "user",
        "item": "item",
        "labels_per_user": 5,
        "per_label_cap": 4,
        "choose": choose,
    }
    everyone = events_histogram(rows, **options, total_per_user=7)
    assert everyone.sensitivity == Sensitivity(4, 5, l1=7)
    assert events_histogram(rows, **options, total_per_user=3).sensitivity == Sensitivity(
        3, 3, l1=3
    )
    whole, free = (
        dict(zip(each.labels, each.counts, strict=True))
        for each in (everyone, events_histogram(rows, **options))
    )
    assert all(count <= free[item] for item, count in whole.items())
    for user in range(12):
        alone = events_histogram(rows[rows["user"] == user], **options, total_per_user=7)
        without = events_histogram(rows[rows["user"] != user], **options, total_per_user=7)
        less = dict(zip(without.labels, without.counts, strict=True))
        assert {
            item: count - less.get(item, 0)
            for item, count in whole.items()
            if count != less.get(item, 0)
        } == dict(zip(alone.labels, alone.counts, strict=True))
        assert len(alone) <= 5
        assert max(alone.counts) <= 4
        own = rows[rows["user"] == user]["item"].value_counts().clip(upper=4)
        assert sum(alone.counts) == 7 or len(own) < 2


@pytest.mark.parametrize("others", [0, 100])
def test_a_total_is_cut_in_the_same_order_whoever_else_is_there(others):
    """Whether users are ranked depends on how many events all have; what one of them adds must
    not.
    """
    rows = [(f"u{user}", item) for user in range(40) for item in "aab"] + [
        ("w", f"z{item}") for item in range(others)
    ]
    options = {"labels_per_user": 3, "per_label_cap": 2, "total_per_user": 2, "choose": "top"}
    found = events_histogram(pd.DataFrame(rows, columns=["u", "i"]), user="u", item="i", **options)
    assert [found.count_of([item]).tolist() for item in "ab"] == [[80], [0]]


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (RuntimeError("Invalid Error: ZSTD Decompression failure"), True),  # too few addresses
        (RuntimeError("Out of Memory Error: failed to offload data block"), True),
        (RuntimeError("std::bad_alloc"), True),
        (MemoryError(), True),
        (RuntimeError("Conversion Error: memory"), False),
    ],
)
def test_what_means_that_memory_is_short(error, full):
    from dptopk.datasets.backends.duckdb_operations import DUCKDB

    assert DUCKDB.full(error) == full
