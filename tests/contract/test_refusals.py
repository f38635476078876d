"""Bad input is refused by name, before anything is charged, and data never shows in a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dptopk import (
    Accountant,
    Budget,
    Charge,
    Client,
    CountMLE,
    Exponential,
    Histogram,
    InvalidParameter,
    KnownLaplace,
    Ledger,
    LedgerError,
    PureDP,
    Sensitivity,
    Session,
    UnknownGumbel,
    calibrate,
    compose,
    mechanisms,
    plan_continual,
    plan_topk,
)
from dptopk.budgets import Filter
from dptopk.cli import app
from dptopk.datasets import read_counts, read_labels
from dptopk.ledger.entries import FORMAT
from dptopk.mechanisms.named import names
from dptopk.planning import plan_two_phases

SENSITIVITY = Sensitivity(l0=2)
PUBLIC = Histogram(["a", "b"], [9000, 5000], sensitivity=SENSITIVITY, domain="public")
NOISE = KnownLaplace(epsilon=0.1)


COSTS = Charge({PureDP(0.1): 3})
RELEASE = NOISE.release(PUBLIC, np.random.default_rng(1))
WORDS: dict[str, tuple[Callable[..., Any], str]] = {
    "compose": (lambda **one: compose(COSTS, delta=1e-6, **one), "bound effort interaction"),
    "calibrate": (
        lambda **one: calibrate(lambda x: Charge({PureDP(x): 3}), Budget(1), **one),
        "bound effort",
    ),
    "plan": (
        lambda **one: plan_topk(2, Budget(1, 1e-6), **one),
        "counts method effort charge_as domain d_bar",
    ),
    "two phases": (
        lambda **one: plan_two_phases(2, Budget(1, 1e-6), **one),
        "counts find share per_label_cap",
    ),
    "stream": (
        lambda **one: plan_continual(2, 5, Budget(1, 1e-6), sensitivity=SENSITIVITY, **one),
        "error days_apart",
    ),
    "filter": (
        lambda **one: Filter(Budget(1, 1e-6), **one),
        "method ranges costs neighbours effort",
    ),
    "histogram": (lambda **one: Histogram(["a"], [1], **one), "domain domain_size"),
    "charge": (lambda **one: Charge(COSTS.costs, **one), "neighbours adaptive"),
    "intervals": (RELEASE.intervals, "kind confidence"),
    "session": (
        lambda **one: Session(PUBLIC, budget=Budget(9)).top_k(1, budget=Budget(1), **one),
        "counts look",
    ),
}


@pytest.mark.parametrize(
    ("function", "argument"),
    [(f, word) for f, (_, words) in WORDS.items() for word in words.split()],
)
def test_an_argument_that_is_no_word_or_number_of_its_kind_is_refused_by_name(
    function: str, argument: str
) -> None:
    for wrong in ({"best": 1}, b"best", 10**40 + 0.5, "nope", 7.5, {"best"}):
        with pytest.raises(InvalidParameter, match=argument):
            WORDS[function][0](**{argument: wrong})


@pytest.mark.parametrize("url", [None, 5, b"ledger.db"])
def test_a_ledger_is_at_a_path(url: Any) -> None:
    """A variable that is not set must not become a file of that name, with a budget of its own."""
    with pytest.raises(InvalidParameter, match="url"):
        Ledger(url)


def test_what_a_message_repeats_is_cut() -> None:
    for wrong in (10**400, ["secret"] * 1000):
        with pytest.raises(InvalidParameter) as caught:
            Budget(wrong)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 150


def test_a_stream_of_a_service_in_rho_is_refused_before_anything_is_sent() -> None:
    client = Client("http://127.0.0.1:9", "token", dataset="d", patience=1e-3)
    for ask in (client.stream_price, lambda *one, **more: client.stream("s", *one, **more)):
        with pytest.raises(InvalidParameter, match="budget must be in epsilon and delta"):
            ask(2, 5, budget=Budget(rho=0.1, delta=1e-6))
        with pytest.raises(TypeError, match="timezone"):
            ask(2, 5, budget=Budget(0.1, 1e-6), timezone="UTC")


def test_nothing_is_charged_for_a_question_that_cannot_run() -> None:
    accountant = Accountant(Charge({PureDP(0.1): 9}), delta=0.0)
    session = Session(PUBLIC, budget=accountant)
    plan = plan_topk(1, Budget(1.0), sensitivity=SENSITIVITY, domain="public", counts="laplace")
    questions: list[tuple[Any, dict[str, Any], str]] = [
        ("KnownLaplace", {}, "mechanism"),
        (KnownLaplace, {}, "mechanism"),
        (NOISE, {"labels": 5}, "labels"),
        (NOISE, {"labels": [["a"]]}, "labels"),
        (CountMLE(noise=NOISE), {"ranking": None}, "ranking"),
        (Exponential(epsilon=0.1, utility_range=1.0), {"utilities": ["zebra", 1]}, "utilities"),
        (plan, {"labels": ["a"]}, "labels"),
    ]
    for mechanism, options, named in questions:
        with pytest.raises(InvalidParameter, match=named) as caught:
            session.run(mechanism, **options)
        assert "zebra" not in str(caught.value)
    assert accountant.spent() == Charge()
    with pytest.raises(InvalidParameter, match="rng"):
        Session(PUBLIC, budget=accountant, rng=5)  # type: ignore[arg-type]


def test_labels_may_be_an_iterator_or_an_array() -> None:
    session = Session(PUBLIC, budget=Budget(9, 1e-6))
    assert set(session.run(NOISE, labels=iter("ab")).labels) == {"a", "b"}
    assert {type(label) for label in session.run(NOISE, labels=np.array(["a", "b"])).labels} == {
        str
    }


def test_complete_must_be_a_truth_value() -> None:
    with pytest.raises(InvalidParameter, match="complete"):
        Histogram(["a"], [1], complete="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="labels"):
        Histogram(5, [1])  # type: ignore[arg-type]


def test_selections_not_made_come_back_and_delta_never() -> None:
    mechanism = UnknownGumbel(k=2, d_bar=2, epsilon=0.1, delta=1e-6)
    registered = mechanism.charge(SENSITIVITY)
    accountant = Accountant(registered, delta=1e-5)
    empty = Histogram([], [], sensitivity=SENSITIVITY)
    release = Session(empty, budget=accountant).run(mechanism)
    assert (registered.count, release.charge.count, len(release)) == (2, 1, 0)
    assert release.charge.delta == registered.delta == 1e-6
    assert accountant.remaining().count == 1
    assert accountant.remaining().delta == 0
    with pytest.raises(InvalidParameter, match="refund"):
        accountant.refund(Charge({}, delta=1e-6))


PARAMETERS = {
    "k": 2, "d_bar": 3, "epsilon": 1.0, "delta": 1e-6, "sigma": 3.0, "utility_range": 1.0, "days": 4, "mu": 0.2,
    "noise": NOISE,
}  # fmt: skip
ASKED = ("charge", "threshold_offset", "noise_std", "appears_at", "half_width", "bound")


@pytest.mark.parametrize("name", names())
def test_a_mechanism_is_asked_about_a_sensitivity(name: str) -> None:
    made = getattr(mechanisms, name)
    mechanism = made(
        **{field.name: PARAMETERS[field.name] for field in fields(made) if field.default is MISSING}
    )
    asked = [getattr(mechanism, question) for question in ASKED if hasattr(mechanism, question)]
    assert asked
    for question in asked:
        for other in (None, 5, "l0=1"):
            with pytest.raises(
                InvalidParameter, match=r"sensitivity must be a Sensitivity|labels must be given"
            ):
                question(other)


def test_utilities_leave_no_trace_in_a_ledger(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("d", budget=Budget(9, 1e-6), sensitivity=SENSITIVITY)
    session = Session(PUBLIC, ledger=ledger, dataset="d", analyst="dataset")
    for _ in range(2):  # the same question again is charged again
        session.run(Exponential(epsilon=0.1, utility_range=1.0), utilities=[1.0, 2.0], reuse=True)
    assert ledger.spent("d").count == 2
    assert {entry.body["query"] for entry in ledger.entries() if entry.kind == "charge"} == {""}


def test_labels_of_different_types_are_different_questions(tmp_path: Path) -> None:
    histogram = Histogram([1, "1"], [50, 90], sensitivity=SENSITIVITY, domain="public")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("d", budget=Budget(9, 1e-6), sensitivity=SENSITIVITY)
    session = Session(histogram, ledger=ledger, dataset="d", analyst="'; DROP TABLE entries; --é")
    assert session.run(NOISE, labels=[1], reuse=True).labels == (1,)
    assert session.run(NOISE, labels=["1"], reuse=True).labels == ("1",)
    assert not session.run(NOISE, labels=["1"], reuse=True).charge
    assert ledger.verify()


def test_a_ledger_of_another_format_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dptopk.ledger.earlier_formats.FORMAT", FORMAT + 1)
    monkeypatch.setattr("dptopk.ledger.replay.FORMAT", FORMAT + 1)
    monkeypatch.setattr("dptopk.ledger.administration.FORMAT", FORMAT + 1)
    Ledger(tmp_path / "ledger.db").close()
    monkeypatch.undo()
    with pytest.raises(LedgerError, match=f"format {FORMAT + 1}"):
        Ledger(tmp_path / "ledger.db")


def test_byte_order_marks_and_long_rows(tmp_path: Path) -> None:
    domain, lines, wide = tmp_path / "domain.txt", tmp_path / "a.jsonl", tmp_path / "wide.csv"
    domain.write_bytes("\ufeffzebra\r\nx\u2028y\r\n".encode())
    assert read_labels(domain) == ["zebra", "x\u2028y"]
    lines.write_bytes('\ufeff{"w": "zebra", "n": 3}\n'.encode())
    assert read_counts(lines, label="w", count="n")["count"].tolist() == [3]
    wide.write_text(
        "w,n\nzebra,1,2,3\n"
    )  # read with an index column this would be label "2", count 3
    assert read_counts(wide, label="w", count="n").to_numpy().tolist() == [["zebra", 1]]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--seed", "-1"], "seed"),
        (["--dataset", "d"], "ledger"),
        (["--reuse"], "ledger"),
        (["--out", "/proc/a.csv"], "out"),
    ],
)
def test_the_command_line_refuses_by_name(tmp_path: Path, options: list[str], named: str) -> None:
    counts = tmp_path / "counts.csv"
    counts.write_text("label,count\nzebra,7654321\n")
    result = CliRunner().invoke(
        app, ["topk", str(counts), "--k", "1", "--epsilon", "1", "--delta", "1e-6", *options]
    )
    assert result.exit_code == 2
    assert named in result.stderr
    assert "zebra" not in result.output
    assert "7654321" not in result.output
