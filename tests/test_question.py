"""A question has one list of fields, from which the shells make their forms."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from dptopk import Budget, Client, Session
from dptopk.question import (
    Question,
    Stated,
    StatedInSession,
    asking_of,
    default_of,
    offered_fields,
)


def test_seeds_and_files_are_no_fields_and_every_field_has_its_words():
    names = {one.name for one in fields(Question)}
    assert names.isdisjoint({"seed", "rng", "path", "source", "out", "ledger"})
    for one in fields(Question):
        assert asking_of(one).help.endswith((".", "..."))
        assert asking_of(one).shells


def test_what_takes_long_or_is_an_object_is_not_asked_over_http():
    over_http = {one.name for one in offered_fields("http")}
    assert over_http.isdisjoint({"effort", "max_seconds", "like", "charge_as"})
    for name in ("effort", "like"):
        with pytest.raises(TypeError, match=name):
            Question.of("http", k=3, **{name: "thorough"})


def test_the_default_of_a_shell_is_one_of_its_fields():
    assert Question.of("http", k=3).look is None
    assert Question.of("cli", k=3).look == "auto"
    for one in fields(Question):
        asking = asking_of(one)
        assert asking.defaults.keys() <= asking.shells
        assert all(default_of(one, shell) == told for shell, told in asking.defaults.items())


def test_a_total_is_that_of_its_budget():
    for budget in (Budget(1.0, 1e-6), Budget(rho=0.2, delta=1e-6)):
        question = Question(k=3, accuracy=5.0).with_total(budget)
        assert question.budget == budget
        assert question.accuracy is None


ADDED = """
import dataclasses, json, sys
import dptopk.question as q

new = [("colour", str, q.question_field("red", q.Asking("The colour of the answer.", unsaid=True, phases=q.always_one_phase)))]
q.Question = dataclasses.make_dataclass(
    "Question", new, bases=(q.Question,), frozen=True, kw_only=True
)
from dptopk import Budget, Client, Histogram, InvalidParameter, Sensitivity, Session
from dptopk.planning import choose
from typer.testing import CliRunner

seen = []
real = choose.one_phase
choose.one_phase = lambda question, facts: seen.append(question.colour) or real(question, facts)

from dptopk.cli.commands import app
asked = ["plan", "--k", "2", "--epsilon", "1", "--delta", "1e-6"]
told = {"help": CliRunner().invoke(app, ["topk", "--help"]).output}
told["cli"] = CliRunner().invoke(app, [*asked, "--colour", "blue"]).exit_code
refused = CliRunner().invoke(app, [*asked, "--colour", "blue", "--min-users", "2"]).output

from dptopk.service.questions import TopK, question_of
usual, body = TopK(k=2, epsilon=1.0), TopK(k=2, epsilon=1.0, colour="green")
told["http"] = [usual.plain(), body.plain(), question_of(body.plain()).question.colour]

sent = []
client = Client("https://example.org", "token")
client._one_answer = lambda path, body, key: sent.append(body)
client.top_k(2, budget=Budget(1.0, 1e-6), colour="pink")
told["client"] = sent[0]["colour"]

session = Session(Histogram(None, [9, 5], sensitivity=Sensitivity(l0=1)), budget=Budget(1.0, 0.0))
session.top_k(2, budget=Budget(1.0, 0.0), colour="grey")
print(json.dumps(told | {"seen": seen, "refused": refused}))
"""


@pytest.mark.slow
def test_a_field_that_is_added_here_is_in_every_shell_and_reaches_the_plan():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ADDED], capture_output=True, text=True, check=False
    )
    told = json.loads(ran.stdout or repr(ran.stderr))
    assert "--colour" in told["help"]
    assert told["cli"] == 0
    before, after, read = told["http"]
    assert "colour" not in before  # a question of before is still the same question
    assert (after["colour"], read) == ("green", "green")
    assert told["client"] == "pink"
    assert told["seen"] == ["blue", "grey"]
    assert "--colour 'blue' asks" in told["refused"]


def test_type_checkers_see_the_fields():
    numbers = {"k", "epsilon", "rho", "delta", "accuracy", "counts", "look", "where", "segments"}
    for shell, stated in (("client", Stated), ("session", StatedInSession)):
        names = {one.name for one in offered_fields(shell)} - numbers
        assert set(get_type_hints(stated)) == names
        hints = get_type_hints(Question)
        assert all(hint == hints[name] for name, hint in get_type_hints(stated).items())


def test_every_field_is_named_where_python_states_it():
    for method, stated in ((Client.top_k, Stated), (Session.top_k, StatedInSession)):
        for name in get_type_hints(stated):
            assert re.search(rf"\b{name}\b", method.__doc__), (method, name)


@pytest.mark.parametrize(("shell", "page"), [("cli", "cli"), ("http", "service")])
def test_every_field_stands_on_the_page_of_its_shell(shell, page):
    text = (Path(__file__).parents[1] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for one in offered_fields(shell):
        option = f"--{one.name.replace('_', '-')}" if shell == "cli" else f"`{one.name}`"
        assert option in text, option
