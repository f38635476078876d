"""Release: table, JSON-safe dictionary, Arrow and polars."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from dptopk import (
    Budget,
    Centred,
    Histogram,
    InvalidParameter,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    Session,
    plan_topk,
)
from dptopk._internal.formatting import format_upper
from dptopk.costs import BoundedRange, Charge
from dptopk.histogram.histogram import Sensitivity
from dptopk.planning import plan
from dptopk.planning.facts import facts_of
from dptopk.question import Question
from dptopk.release.release import Release

CHARGE = Charge({BoundedRange(0.1): 2}, delta=1e-9, adaptive=True)


def release(counts):
    return Release(("the", 7), counts, CHARGE, Sensitivity(l0=2), Sensitivity(), note="short")


def test_table_has_rank_label_and_count():
    table = release(np.array([5, -1])).table
    assert table.columns.tolist() == ["rank", "label", "count"]
    assert table["count"].tolist() == [5, -1]
    assert release(None).table.columns.tolist() == ["rank", "label"]


def test_dictionary_is_json_and_carries_the_charge():
    plain = json.loads(json.dumps(release(np.array([5, 2])).to_dict()))
    assert plain["rows"] == [
        {"rank": 1, "label": "the", "count": 5},
        {"rank": 2, "label": 7, "count": 2},
    ]
    assert Charge.parse(plain["charge"]) == CHARGE
    assert plain["mechanism"] == {
        "name": "Sensitivity",
        "linf": 1,
        "l0": 2,
        "neighbours": "add_remove",
    }
    assert plain["note"] == "short"


def test_arrow_and_polars_hold_the_table():
    answer = Release(("the", "and"), np.array([5, 2]), CHARGE, None, Sensitivity())
    arrow = answer.to_arrow()
    assert arrow.schema.metadata[b"dptopk.charge"] == str(CHARGE).encode()
    assert answer.to_polars().equals(
        pl.DataFrame({"rank": [1, 2], "label": ["the", "and"], "count": [5, 2]})
    )


def test_an_empty_release_is_an_answer():
    empty = Release((), np.array([], dtype=np.int64), CHARGE, None, Sensitivity())
    assert len(empty) == 0
    assert empty.table.empty
    assert empty.to_dict()["rows"] == []
    assert empty.to_arrow().num_rows == 0


def test_labels_of_mixed_types_become_text_in_a_column():
    assert release(np.array([5, 2])).to_arrow().column("label").to_pylist() == ["the", "7"]


def test_markdown_has_the_rows_and_what_to_read_beside_them():
    release = KnownLaplace(epsilon=1.0).release(
        Histogram(["a|b", "c"], [500, 400], domain="public"), np.random.default_rng(1)
    )
    text = release.to_markdown(confidence=0.8)
    assert text.splitlines()[0] == "| rank | label | noisy count | 80% interval (joint) |"
    assert r"a\|b" in text
    assert "* charge: " in text
    assert "fixed seed" in text
    bare = KnownGumbel(k=1, epsilon=1.0).release(Histogram(["a"], [500], domain="public"))
    assert bare.to_markdown().splitlines()[0] == "| rank | label |"


def test_a_sensitivity_of_weights_is_read_back_and_none_is_not_written():
    for sensitivity in (Sensitivity(1, 2), Sensitivity(9, 2, l2=9)):
        made = replace(release(None), sensitivity=sensitivity, mechanism=KnownLaplace(epsilon=1.0))
        assert ("l2" in made.to_dict()["sensitivity"]) == (sensitivity.l2 is not None)
        assert Release.from_dict(made.to_dict()).sensitivity == sensitivity


def test_what_is_no_release_is_refused():
    plain = release(np.array([5, 2])).to_dict()
    assert Release.from_dict(plain).charge == CHARGE
    for wrong in (
        {},
        None,
        [],
        plain | {"rows": [{"rank": 1}]},
        plain | {"sensitivity": None},
        plain | {"charge": "X"},
        plain | {"sensitivity": "x"},
        plain | {"measurement": "x"},
        plain | {"rows": [plain["rows"][0] | {"count": []}, plain["rows"][1]]},
    ):
        with pytest.raises(InvalidParameter):
            Release.from_dict(wrong)


@pytest.mark.slow
def test_an_answer_after_a_look_says_that_it_cost_what_was_asked():
    """The composition of the look and the plan that it chose is 0.7% less, and no guarantee."""
    epsilon = 2.0
    look = "auto"
    counts = {f"w{rank}": 3000 // (rank + 1) for rank in range(60)}
    histogram = Histogram(counts, sensitivity=Sensitivity(l0=3))
    budget = Budget(epsilon, 1e-6)
    session = Session(histogram, budget=budget, rng=np.random.default_rng(1))
    answer = session.top_k(5, budget=budget, look=look)
    assert "look" in answer.phases
    assert 0.995 * epsilon <= answer.epsilon <= epsilon
    whole = plan(Question(k=5, epsilon=epsilon, delta=1e-6, look=look), facts_of(histogram))
    assert whole.release(histogram, np.random.default_rng(1)).epsilon == pytest.approx(epsilon)


def test_an_answer_says_what_it_cost_and_gives_its_rows():
    histogram = Histogram(
        {f"w{rank}": 3000 // (rank + 1) for rank in range(60)}, sensitivity=Sensitivity(l0=3)
    )
    budget = Budget(1.0, 1e-6)
    plan = plan_topk(5, budget, sensitivity=Sensitivity(l0=3))
    answer = plan.release(histogram, np.random.default_rng(1))
    assert 0.995 * budget.epsilon <= answer.epsilon <= budget.epsilon
    assert answer.delta == budget.delta
    rows = list(answer)
    assert [row.label for row in rows] == list(answer.labels)
    assert [row.rank for row in rows] == [1, 2, 3, 4, 5]
    assert [count for _, _, count in rows] == answer.table["count"].tolist()
    assert f"({format_upper(answer.epsilon, 4)}, 1e-06)-DP" in str(answer)
    assert answer.to_pandas().equals(answer.table)
    again = Release.from_dict(json.loads(json.dumps(answer.to_dict())))
    assert (again.epsilon, again.delta) == (answer.epsilon, answer.delta)


def test_an_answer_of_one_mechanism_costs_its_charge():
    histogram = Histogram({"a": 3}, domain="public", sensitivity=Sensitivity(l0=1))
    answer = KnownLaplace(epsilon=0.3).release(histogram, np.random.default_rng(2))
    assert (answer.epsilon, answer.delta) == (0.3, 0.0)
    assert KnownGaussian(sigma=3.0).release(histogram).epsilon == math.inf


def test_counts_of_people_are_whole_in_tables_and_as_released_in_dictionaries():
    histogram = Histogram({"a": 900, "b": 400}, domain="public", sensitivity=Sensitivity(l0=1))
    mechanism = Centred(noise=KnownGaussian(sigma=5.0))
    answers = [mechanism.release(histogram, np.random.default_rng(seed)) for seed in range(8)]
    halves = [answer for answer in answers if (answer.counts % 1).any()]
    assert halves
    for answer in answers:
        shown = answer.display_table()
        assert shown["count"].dtype == np.int64
        assert ((shown["low"] <= shown["count"]) & (shown["count"] <= shown["high"])).all()
        assert np.abs(shown["count"] - answer.counts).max() <= 0.5
        assert [row["count"] for row in answer.to_dict()["rows"]] == answer.counts.tolist()
        assert [row.count for row in answer] == shown["count"].tolist()
        assert ".5" not in answer.to_markdown().split("charge")[0]


def test_why_rows_may_be_missing_is_said_and_kept():
    answer = Release(
        labels=("a",),
        counts=None,
        charge=CHARGE,
        mechanism="m",
        sensitivity=Sensitivity(l0=3),
        capped=True,
        missing="Rare ones were not looked for.",
    )
    limited = "Labels of users who have more than 3 labels may be missing or rank lower"
    assert [line[: len(limited)] for line in answer.omissions()] == [answer.missing, limited]
    assert limited in str(answer)
    again = Release.from_dict(answer.to_dict())
    assert again.omissions() == answer.omissions()
    assert "missing" not in replace(answer, missing="").to_dict()


def test_an_answer_with_a_label_that_python_does_not_write_is_shown():
    """An integer of more than 4,300 digits ended in a traceback wherever the answer was shown."""
    counts = {10**5000: 100, (10**5000,): 100, "\ud800": 100}
    histogram = Histogram(counts, domain="public", sensitivity=Sensitivity(l0=1))
    answer = KnownGaussian(sigma=1.0).release(histogram)
    assert hex(10**5000)[:9] in answer._repr_html_()
    for text in (str(answer), answer.to_markdown(), answer._repr_html_()):
        assert "tuple" in text
