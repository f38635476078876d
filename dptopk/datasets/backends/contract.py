"""The contract of a backend: what an engine must get right for the bounds to hold and the answers
to be the same.

Each check is a function of a TrialEngine; its docstring is the clause of the contract, and it
raises Broken with what was found. All data are made up here, so what is found may be shown. All of
them pass before a backend is let in.

A *lot* is what puts the items of one user in an order: the values of ``hashing.hash_order``, of
which the first is the hash of key, user and item. Where a cap is below the number of a user's
items, those with the smallest lots count.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dptopk.datasets.backends.base import Backend, OpenTable
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.clipping import users_by_labels
from dptopk.datasets.events import events_histogram
from dptopk.datasets.hashing import digest, hash_order
from dptopk.datasets.segments import segment_histograms
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends import BaseBackend

# Texts that some collation, folding, trimming, quoting or 16-bit order takes for one another, or
# for something else.
TEXTS = (
    *(
        "A",
        "a",
        "á",
        "a\u0301",
        "a ",
        " a",
        "",
        "ß",
        "ss",
        "İ",
        "i",
        "ı",
        "\u212b",
        "Å",
        "\uffff",
        "😀",
        "ﬁ",
        "fi",
    ),
    *("0", "00", "-0", "a\u200b", "Z", "_", "%", "\\", "\\n", "\n", "\r\n", "\t"),
    *("'", '"', "`", ";--", "{}", "$1", "?"),
    *("NULL", "null", "nan", ":a", "日本", "%s", "\\'", "''"),
)
EDGES = (-(2**63), -(2**53) - 1, -(2**31) - 1, -1, 0, 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1)


Answer = TypeVar("Answer")


class Broken(Exception):
    """An engine's departure from the contract."""


@dataclass(frozen=True)
class TrialEngine:
    """An engine on trial.

    Attributes:
        connection: the Ibis connection to it.
        backend: what it is said to do in its own way.
    """

    connection: BaseBackend
    backend: Backend

    def table(self, **columns: Any) -> OpenTable:
        """Return a table of columns, name=values, opened on the engine."""
        import ibis
        import pyarrow as pa

        if self.backend.keep:
            keep = partial(self.backend.keep, self.connection)
        else:
            keep = None
        return OpenTable(
            ibis.memtable(pa.table(columns)), self.connection.to_pyarrow, self.backend, keep=keep
        )

    def counts(self, table: OpenTable, **options: Any) -> dict[Any, int]:
        """Return label -> count: the bounded histogram of a table with the columns u and i, without
        a cap unless ``options``, those of events_histogram, name one.
        """
        observed = events_histogram(
            table, **({"user": "u", "item": "i", "labels_per_user": None} | options)
        )
        return dict(zip(observed.labels.tolist(), observed.counts.tolist(), strict=True))

    def lots(
        self, pairs: Sequence[tuple[Any, Any]], bounds: Bounds
    ) -> dict[tuple[Any, Any], tuple[Any, ...]]:
        """Return the lot of each (user, item), by which the engine orders the items of a user.

        Args:
            pairs: the different pairs of a user and an item.
            bounds: the bounds, whose key varies the hash and which say whether it is SHA-256.
        """
        table = self.table(u=[user for user, _ in pairs], i=[item for _, item in pairs])
        user = table.exact_text(table.table.u)
        item = table.exact_text(table.table.i)
        keys = {f"k{place}": key for place, key in enumerate(hash_order(table, user, item, bounds))}
        observed = table.run(table.table.select("u", "i", **keys)).to_pylist()
        return {(row["u"], row["i"]): tuple(row[name] for name in keys) for row in observed}


def require_equal(observed: Answer, expected: Answer, what: str) -> None:
    """Raise an error if an engine's answer differs from the one that the contract asks for.

    Args:
        observed: the engine's answer.
        expected: the right answer.
        what: what was asked, for the message.

    Raises:
        Broken: if they differ.
    """
    if observed != expected:
        raise Broken(f"{what}: {str(observed)[:200]} instead of {str(expected)[:200]}")


def texts_are_their_bytes(engine: TrialEngine) -> None:
    """Texts are equal when their bytes in UTF-8 are, and in the order of those; they come back as
    they were.
    """
    table = engine.table(k=list(TEXTS) * 2)
    exact = table.table.select(k=table.exact_text(table.table.k))
    grouped = exact.group_by("k").agg(n=exact.count()).order_by("k")
    observed = table.run(grouped.select(text=table.text(grouped.k), n=grouped.n)).to_pylist()
    require_equal(
        [row["text"] for row in observed],
        sorted(TEXTS, key=lambda text: text.encode()),
        "the order of texts",
    )
    require_equal({row["n"] for row in observed}, {2}, "the size of groups of equal texts")


def missing_values_are_dropped(engine: TrialEngine) -> None:
    """NULL is no user and no label, the empty text is one like any other, and NULL weights add
    nothing.
    """
    plain = engine.table(
        u=["a", "-", "b", "", "c"], i=["x", "x", "-", "", "x"], w=[2, 1, 1, -1, -1]
    )
    user = plain.table.u.nullif("-")
    item = plain.table.i.nullif("-")
    weight = plain.table.w.nullif(-1)
    columns = plain.table.select(u=user, i=item, w=weight)
    table = replace(plain, table=columns)
    require_equal(engine.counts(table), {"x": 2, "": 1}, "the labels of users")
    require_equal(engine.counts(table, weight="w", per_label_cap=3), {"x": 2}, "sums of weights")
    require_equal(engine.counts(table, labels_per_user=1), {"x": 2, "": 1}, "the labels kept")


def integers_are_64_bits_wide(engine: TrialEngine) -> None:
    """Integers keep all their 64 bits, are ordered with their sign, and sums are exact beyond 2^31
    and 2^53.
    """
    table = engine.table(u=list(EDGES), i=list(EDGES))
    for cap in (None, 1):
        observed = events_histogram(table, user="u", item="i", labels_per_user=cap, top=len(EDGES))
        require_equal(observed.labels.tolist(), sorted(EDGES), "integers in their order")
    cap = 2**31 - 1
    many = engine.table(u=list(range(9)), i=["x"] * 9, w=[2**62] * 9)
    require_equal(
        engine.counts(many, weight="w", per_label_cap=cap),
        {"x": 9 * cap},
        "the sum of large amounts",
    )
    table = engine.table(n=[2**53, 1, 1, 1])
    require_equal(
        table.run(table.table.agg(n=table.table.n.sum())).to_pylist(),
        [{"n": 2**53 + 3}],
        "a sum beyond 2^53",
    )


def remainders_have_a_sign(engine: TrialEngine) -> None:
    """(n % p + p) % p is in 0..p-1 for negative n too, and dividing integers does not go through
    fractions.
    """
    numbers = [number for number in EDGES if abs(number) < 2**63 - 1]
    table = engine.table(n=numbers)
    observed = table.run(table.table.select("n", r=(table.table.n % 7 + 7) % 7)).to_pylist()
    require_equal(
        {row["n"]: row["r"] for row in observed},
        {number: number % 7 for number in numbers},
        "remainders by 7",
    )


def weights_become_whole_numbers(engine: TrialEngine) -> None:
    """A weight is rounded down and clipped to [0, τ]; NaN, NULL and text that is no number, or
    one with too many digits, are 0; nothing fails.
    """
    numbers = [-1e300, -1.0, -0.5, 0.0, 0.5, 1.0, 2.7, 3.0, 1e300, np.inf, -np.inf, np.nan, None]
    whole = [0, 0, 0, 0, 0, 1, 2, 3, 3, 3, 0, 0, 0]
    spelt = {"2": 2, " 2.9 ": 2, "1e0": 1, "+3": 3, "2.": 2}
    spelt |= dict.fromkeys(("-1", "1_0", "1d", "", " ", "nan", "inf", "0x3", "٣", "x"), 0)
    too_long = ("1e999", "9" * 400)  # for ``columns.NUMBER``
    spelt |= dict.fromkeys(too_long, 0)
    for weights, expected in ((numbers, whole), (list(spelt), list(spelt.values()))):
        places = list(range(len(weights)))
        table = engine.table(u=places, i=places, w=weights)
        observed = engine.counts(table, weight="w", per_label_cap=3)
        require_equal(observed, {n: w for n, w in enumerate(expected) if w}, f"weights {weights}")


def the_hash_is_a_function(engine: TrialEngine) -> None:
    """A lot depends on key, user and item, on nothing else, and is the same when it is asked for
    again.
    """
    # A part of TEXTS is enough, as every user is paired with every item. It has pairs that are
    # equal where user and item are only written one after the other: "a " + "a" and "a" + " a".
    users = [*TEXTS[:12], "u"]
    items = [*TEXTS[:6], "ab"]
    pairs = [(user, item) for user in users for item in items]
    bounds = Bounds(labels_per_user=1)
    first = engine.lots(pairs, bounds)
    other = engine.lots(pairs, Bounds(labels_per_user=1, key="k"))
    again = engine.lots(pairs[::-1], bounds)
    require_equal(again, first, "lots asked for again")
    _require_different_lots([first, other], "the number of different lots of different keys")
    _require_different_lots([first], "the number of different lots of different pairs")
    wide = [(user, item) for user in EDGES for item in EDGES]
    _require_different_lots([engine.lots(wide, bounds)], "lots of integers")


def _require_different_lots(draws: Sequence[dict[tuple[Any, Any], Any]], subject: str) -> None:
    """Raise an error if the hashes of two lots are equal.

    Args:
        draws: for each draw, (user, item) -> the lot, which begins with its hash.
        subject: what was asked, for the message.

    Raises:
        Broken: if two are.
    """
    hashes = [lot[0] for draw in draws for lot in draw.values()]
    require_equal(len(set(hashes)), len(hashes), subject)


def the_hash_spreads(engine: TrialEngine) -> None:
    """All orders of a user's items are about equally frequent: none is preferred, and no two decide
    about a third.
    """
    numbers = range(3000)
    letters = ("x", "y", "z")
    of_texts: tuple[list[Any], list[Any]] = (list(map(str, numbers)), list(letters))
    of_integers: tuple[list[Any], list[Any]] = (list(numbers), list(map(ord, letters)))
    for users, items in (of_texts, of_integers):
        orders = _orders_of_items(engine, users, items)
        expected = len(users) / 6
        chi2 = sum(
            (orders[order] - expected) ** 2 / expected for order in itertools.permutations(items)
        )
        # With 5 degrees of freedom a uniform hash is above 40 with a probability of 1.5e-7.
        if chi2 > 40:
            raise Broken(
                f"the orders of three items are {dict(orders)}: a chi-squared of {chi2:.0f}"
            )


def _orders_of_items(
    engine: TrialEngine, users: Sequence[Any], items: Sequence[Any]
) -> Counter[tuple[Any, ...]]:
    """Return order of the items, by their lots -> the number of users who have it."""
    lots = engine.lots(list(itertools.product(users, items)), Bounds(labels_per_user=1))
    orders: Counter[tuple[Any, ...]] = Counter()
    for user in users:
        lot_of_item = {item: lots[user, item] for item in items}
        orders[tuple(sorted(items, key=lot_of_item.__getitem__))] += 1
    return orders


def sha256_is_sha256(engine: TrialEngine) -> None:
    """The portable lot is the start of the SHA-256 of key | user | item in UTF-8, as everywhere."""
    table = engine.table(u=list(TEXTS), i=list(reversed(TEXTS)))
    user = table.exact_text(table.table.u)
    item = table.exact_text(table.table.i)
    observed = table.run(table.table.select("u", "i", d=digest(table, user, item, "k"))).to_pylist()
    expected = {pair: _digest(*pair, "k") for pair in zip(TEXTS, reversed(TEXTS), strict=True)}
    require_equal({(row["u"], row["i"]): row["d"] for row in observed}, expected, "digests")


def _digest(user: str, item: str, key: str) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 by which the portable lot is
    defined.
    """
    prefix = hashlib.sha256(key.encode()).hexdigest()[:32]
    return hashlib.sha256(f"{prefix}|{user}|{item}".encode()).hexdigest()[:12]


def windows_rank_as_said(engine: TrialEngine) -> None:
    """row_number breaks ties by the next key; rank and dense_rank give equal rows one place, rank
    that of the first.
    """
    import ibis

    # Rows of a group ``g`` in the order of the keys ``k`` and ``t``, of which two are equal.
    group = ["a", "a", "a", "a", "b", "a"]
    table = engine.table(g=group, k=[2, 2, 1, 1, 9, 3], t=[1, 1, 5, 4, 0, 0])
    each = table.table
    window = ibis.window(group_by="g", order_by=[each.k, each.t])
    ranked = each.mutate(
        number=ibis.row_number().over(window),
        dense=ibis.dense_rank().over(window),
        rank=ibis.rank().over(window),
    )
    ranked = ranked.mutate(new=ranked.number == ranked["rank"])
    columns = ["g", "k", "t", "number"]
    if engine.backend.peers:
        columns += ["dense", "rank", "new"]
    observed = [tuple(row.values()) for row in table.run(ranked.select(*columns)).to_pylist()]
    expected: list[tuple[Any, ...]] = [
        ("a", 1, 4, 0, 0, 0, True),
        ("a", 1, 5, 1, 1, 1, True),
        ("a", 2, 1, 2, 2, 2, True),
        ("a", 2, 1, 3, 2, 2, False),
        ("a", 3, 0, 4, 3, 4, True),
        ("b", 9, 0, 0, 0, 0, True),
    ]
    expected = [row[: len(columns)] for row in expected]
    if engine.backend.peers:
        # Which of two equal rows comes first is not said: numbers are compared by themselves.
        numbers = [row[3] for row in observed]
        require_equal(sorted(numbers), [0, 0, 1, 2, 3, 4], "row numbers")
        observed = [(*row[:3], *row[4:]) for row in observed]
        expected = [(*row[:3], *row[4:]) for row in expected]
    require_equal(sorted(observed), sorted(expected), "places in windows")


def the_cut_is_by_count_then_label(engine: TrialEngine) -> None:
    """A cut leaves the largest counts, of equal ones the first in the order of the labels'
    bytes.
    """
    items = ("b", "B", "\uffff", "😀", "ä", "a", "Z")
    times = (3, 2, 2, 2, 2, 2, 1)
    events = [(user, item) for item, n in zip(items, times, strict=True) for user in range(n)]
    table = engine.table(u=[user for user, _ in events], i=[item for _, item in events])
    for delta in (None, 9):
        observed = events_histogram(table, user="u", item="i", labels_per_user=delta, top=5)
        require_equal(observed.labels.tolist(), ["b", "B", "a", "ä", "\uffff"], "the top 5")
        require_equal(observed.counts.tolist(), [3, 2, 2, 2, 2], "their counts")


def names_and_values_are_quoted(engine: TrialEngine) -> None:
    """Columns may be called anything, and conditions may hold any text."""
    names = ('a "quoted" name', "it's", "select", "per cent %s", "Größe", "semi;colon", "dot.ted\\")
    plain = engine.table(**{f"c{place}": ["x", "y", "y"] for place in range(len(names))})
    table = replace(
        plain, table=plain.table.rename({name: f"c{place}" for place, name in enumerate(names)})
    )
    for place in range(0, len(names), 3):
        user, item, condition = (names[(place + step) % len(names)] for step in range(3))
        require_equal(
            engine.counts(table, user=user, item=item, where={condition: "y"}),
            {"y": 1},
            f"the columns {user}, {item}",
        )
    table = engine.table(u=list(range(len(TEXTS))), i=list(TEXTS))
    for half in (TEXTS[::2], TEXTS[1::2]):
        require_equal(
            engine.counts(table, where={"i": half}),
            dict.fromkeys(half, 1),
            "rows with one of many texts",
        )


def long_texts_are_whole(engine: TrialEngine) -> None:
    """A text of a million letters is as good as a short one, up to its last letter."""
    long = ["x" * 1_000_000 + end for end in "ab"]
    table = engine.table(u=[0, 1, 1], i=[long[0], long[0], long[1]])
    for portable in (False, True):
        observed = engine.counts(table, labels_per_user=2, portable=portable)
        if observed != {long[0]: 2, long[1]: 1}:
            raise Broken("long texts are not told apart")


def types_are_written_alike(engine: TrialEngine) -> None:
    """Dates are labels as 2024-01-31, truth values as true, whole decimals as 7; what is not whole
    is missing.
    """
    days = [dt.date(1969, 12, 31), dt.date(2024, 1, 31), dt.date(9999, 12, 31)]
    decimals = [Decimal("7.00"), Decimal("7.50"), Decimal("-12345678901234567890.00")]
    table = engine.table(
        u=[0, 1, 2], d=days, f=[True, False, None], r=[7.0, 7.5, np.nan], n=decimals, m=decimals
    )
    require_equal(engine.counts(table, item="d"), {str(day): 1 for day in days}, "dates")
    require_equal(engine.counts(table, item="f"), {"true": 1, "false": 1}, "truth values")
    require_equal(engine.counts(table, item="r"), {7: 1}, "floating-point numbers as integers")
    require_equal(
        engine.counts(table, user="m", item="n"),
        {"7": 1, "-12345678901234567890": 1},
        "decimal numbers",
    )


def conditions_compare_values(engine: TrialEngine) -> None:
    """A condition holds for equal values of its column's type, to the last microsecond and bit, and
    for no others.
    """
    time = dt.datetime(2024, 1, 31, 12, 0, 0, 1)  # noqa: DTZ001
    same: dict[str, Any] = {"d": dt.date(1970, 1, 2), "f": True, "r": 0.1, "t": time, "n": -(2**63)}
    other: dict[str, Any] = {
        "d": dt.date(1970, 1, 1),
        "f": False,
        "r": 0.1 + 2**-56,
        "n": 1 - 2**63,
    }
    other["t"] = time - dt.timedelta(microseconds=1)
    # The first row meets all conditions, each other row all but one.
    rows = [same, *({**same, name: other[name]} for name in same)]
    columns = {name: [row[name] for row in rows] for name in same}
    table = engine.table(u=list(range(len(rows))), i=list(range(len(rows))), **columns)
    require_equal(engine.counts(table, where=same), {0: 1}, "the rows that meet all conditions")


def integers_of_any_width_are_alike(engine: TrialEngine) -> None:
    """Integers of 16, 32 and 64 bits are the same users and labels and have the same lots, negative
    ones too.
    """
    import pyarrow as pa

    pairs = [(user, item) for user in range(-9, 9) for item in range(-4, 4)]
    users, items = map(list, zip(*pairs, strict=True))
    answers = [
        engine.counts(
            engine.table(u=pa.array(users, kind), i=pa.array(items, kind)), labels_per_user=2
        )
        for kind in (pa.int16(), pa.int32(), pa.int64())
    ]
    for narrow in answers[:2]:
        require_equal(narrow, answers[2], "the histogram of narrow integers")


def users_are_one_where_texts_are_equal(engine: TrialEngine) -> None:
    """Texts that the engine takes for equal are one user, under a collation too; labels are equal
    by their bytes.
    """
    table = engine.table(u=list(TEXTS), i=list(TEXTS))
    require_equal(engine.counts(table), dict.fromkeys(TEXTS, 1), "labels without a cap")
    users = len(table.run(table.table.group_by("u").agg(n=table.table.count())))
    for portable in (False, True):
        observed = engine.counts(table, labels_per_user=1, portable=portable)
        require_equal(
            sum(observed.values()), users, "the sum of counts of users with one label each"
        )


def answers_are_of_one_state(engine: TrialEngine) -> None:
    """Where rows may change between two statements, a histogram is that of one state of them."""
    before = engine.table(u=["a", "b"], i=["x", "y"])
    after = engine.table(u=["a", "c", "d"], i=["x", "z", "z"])
    states = [engine.counts(before), engine.counts(after)]
    for change in (1, 2):
        calls = itertools.count()

        def run(
            expression: ir.Table, change: int = change, calls: Iterator[int] = calls
        ) -> pa.Table:
            """Run an expression: the first ``change`` calls see the rows before the change, all
            later ones those after it.
            """
            state = before if next(calls) < change else after
            replaced = expression.op().replace({before.table.op(): state.table.op()})
            return engine.connection.to_pyarrow(replaced.to_expr())

        observed = engine.counts(replace(before, run=run, keep=None))
        if observed not in states:
            raise Broken(f"the histogram {observed} is of neither state, {states}")


def tables_are_taken_row_by_row(engine: TrialEngine) -> None:
    """Tables and conditions that look at several rows are refused by name; a union of filtered rows
    is added up.
    """
    import ibis

    table = engine.table(u=["a", "a", "b"], i=["x", "y", "x"], w=[1, 1, 2])
    each = table.table
    counted = each.count().over(group_by="i")
    refused = {
        "Limit": each.limit(2),
        "Sort": each.order_by("w"),
        "Distinct": each.distinct(),
        "Aggregate": each.group_by("u", "i").agg(w=each.w.sum()),
        "Window": each.mutate(w=counted),
        "Join": each.join(each.view(), "i").select("u", "i"),
        "Union": ibis.union(each, each, distinct=True),
        "Difference": ibis.difference(each, each.filter(each.w > 1)),
        "Subquery": each.filter(each.w < each.w.max().as_scalar()),
        "Random": each.filter(ibis.random() < 0.5),
    }
    for name, across in refused.items():
        try:
            observed = str(engine.counts(replace(table, table=across)))
        except InvalidParameter as error:
            observed = str(error)
        if name not in observed:
            raise Broken(f"a table with {name} gave {observed}")
    # A cast to a wider type fails for no value, so a backend needs no `total` for it.
    wide = each.mutate(w=each.w.cast("float64"))
    rows = wide.filter(wide.w > 1).mutate(i=wide.i.upper()).union(wide.select("u", "i", "w"))
    twice = replace(table, table=rows.union(rows))
    require_equal(
        engine.counts(twice, weight="w", per_label_cap=9),
        {"X": 4, "x": 6, "y": 2},
        "the sums over a union",
    )


def the_answer_is_the_definition(engine: TrialEngine) -> None:
    """Histograms are those of the definition: a user's Δ labels of least lot, or the most frequent,
    and τ on each.
    """
    events = _odd_events()
    table = engine.table(u=[user for user, _ in events], i=[item for _, item in events])
    pairs = sorted(set(events))
    _check_users_by_labels(table, pairs)
    for bounds in (
        Bounds(labels_per_user=2, per_label_cap=1, choose="hash", key="k"),
        Bounds(labels_per_user=3, per_label_cap=2, choose="top", key="k"),
        Bounds(labels_per_user=2, per_label_cap=2, choose="hash", key="k", portable=True),
        Bounds(labels_per_user=1, per_label_cap=1, choose="top", key="k", portable=True),
    ):
        if bounds.portable:
            lots = {pair: (_digest(*pair, "k"), pair[1].encode()) for pair in pairs}
        else:
            lots = engine.lots(pairs, bounds)
        observed = engine.counts(table, **asdict(bounds))
        require_equal(
            observed,
            histogram_by_definition(Counter(events), lots, bounds),
            f"the histogram with {bounds}",
        )


def _odd_events() -> list[tuple[str, str]]:
    """Return 300 pairs of a user and a label, whose texts hold the separators of a hash."""
    rng = np.random.default_rng(1)
    users = ("a", "b", "", "a|b", "😀", *map(str, range(8)))
    items = ("x", "X", "b|x", "", "日本", "%", *map(str, range(6)))
    places = zip(rng.integers(0, len(users), 300), rng.zipf(1.3, 300) % len(items), strict=True)
    return [(users[user], items[item]) for user, item in places]


def _check_users_by_labels(table: OpenTable, pairs: Sequence[tuple[str, str]]) -> None:
    """Raise an error if an engine counts another number of users with 1, 2, ..., 6 labels; larger
    numbers of labels share bins.

    Args:
        table: the table that the engine reads.
        pairs: its different pairs of a user and an item.

    Raises:
        Broken: if it does.
    """
    labels_of_users = Counter(user for user, _ in pairs)
    users_of_numbers = Counter(labels_of_users.values())
    bins = users_by_labels(table, user="u", item="i")
    users_of_bins = dict(zip(bins.labels.tolist(), bins.counts.tolist(), strict=True))
    numbers = range(1, 7)
    observed = [users_of_bins[str(number)] for number in numbers]
    expected = [users_of_numbers[number] for number in numbers]
    require_equal(observed, expected, "the users with 1 to 6 labels")


def histogram_by_definition(
    events: Counter[tuple[Any, Any]], lots: dict[tuple[Any, Any], Any], bounds: Bounds
) -> dict[Any, int]:
    """Return label -> count of the bounded histogram, computed from the definition.

    Args:
        events: (user, item) -> the number of its events.
        lots: (user, item) -> the lot, by which the user's items are ordered.
        bounds: the bounds, with choose "hash" or "top".
    """
    counts: Counter[Any] = Counter()
    for user in {user for user, _ in events}:
        items = [item for other, item in events if other == user]
        items.sort(
            key=lambda item: (
                -events[user, item] if bounds.choose == "top" else 0,
                lots[user, item],
            )
        )
        for item in items[: bounds.labels_per_user]:
            counts[item] += min(events[user, item], bounds.per_label_cap)
    return dict(counts)


def one_user_moves_what_was_said(engine: TrialEngine) -> None:
    """Without any one user, at most Δ counts are lower, by at most τ, and no count is higher; in
    segments as well.
    """
    events = _events_in_segments()
    whole = _counts_in_segments(engine, events)
    for removed_user in ("u0", "u1", "u2"):
        other_events = [event for event in events if event[0] != removed_user]
        counts_without_user = _counts_in_segments(engine, other_events)
        changes = [_change(*counts) for counts in zip(whole, counts_without_user, strict=True)]
        for change in changes:
            if len(change) > 2 or not all(0 < move <= 2 for move in change.values()):
                raise Broken(f"one user moved {change}")
        segments_that_changed = sum(bool(change) for change in changes)
        require_equal(segments_that_changed, 1, "the number of segments in which one user counted")


def _events_in_segments() -> list[tuple[str, str, str]]:
    """Return 60 events: user, item, and one of two segments."""
    rng = np.random.default_rng(2)
    numbers = rng.integers((0, 0, 0), (5, 7, 2), (60, 3))
    return [(f"u{user}", f"i{item}", "ns"[segment]) for user, item, segment in numbers]


def _change(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """Return label -> by how much its count is lower in ``after``, for the counts that differ."""
    changes = {item: before[item] - after[item] for item in before | after}
    return {item: change for item, change in changes.items() if change}


def _counts_in_segments(
    engine: TrialEngine, events: Sequence[tuple[str, str, str]]
) -> list[Counter[str]]:
    """Return the counts of each of the segments "n" and "s", of one segment, 2 labels and 2 events
    at a label of each user.

    Args:
        engine: the engine.
        events: user, item and segment of each event.
    """
    user, item, segment = (list(column) for column in zip(*events, strict=True))
    observed = segment_histograms(
        engine.table(u=user, i=item, s=segment),
        user="u",
        item="i",
        segment="s",
        segments=["n", "s"],
        segments_per_user=1,
        labels_per_user=2,
        per_label_cap=2,
        key="k",
    )
    return [
        Counter(dict(zip(each.labels.tolist(), each.counts.tolist(), strict=True)))
        for each in observed.values()
    ]


CHECKS: tuple[Callable[[TrialEngine], None], ...] = (
    texts_are_their_bytes,
    missing_values_are_dropped,
    integers_are_64_bits_wide,
    remainders_have_a_sign,
    weights_become_whole_numbers,
    the_hash_is_a_function,
    the_hash_spreads,
    sha256_is_sha256,
    windows_rank_as_said,
    the_cut_is_by_count_then_label,
    names_and_values_are_quoted,
    long_texts_are_whole,
    types_are_written_alike,
    conditions_compare_values,
    integers_of_any_width_are_alike,
    users_are_one_where_texts_are_equal,
    answers_are_of_one_state,
    tables_are_taken_row_by_row,
    the_answer_is_the_definition,
    one_user_moves_what_was_said,
)
