"""The Coq files of proofs/: nothing is assumed in their text, each theorem's assumptions are printed,
and the page about them names them all. `make proofs` compiles them.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("check_proofs", ROOT / "scripts" / "check_proofs.py")
check_proofs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_proofs)
FILES = sorted((ROOT / "proofs").glob("*.v"))
PAGE = (ROOT / "docs" / "notes" / "proofs.md").read_text(encoding="utf-8")
PRINTED = check_proofs.theorems((ROOT / "proofs" / "Assumptions.v").read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_is_admitted(file):
    text = check_proofs.without_comments(file.read_text(encoding="utf-8"))
    assert not check_proofs.ASSUMED.search(text)


def test_what_is_admitted_is_seen():
    for word in ("Admitted.", "Axiom x : nat.", "Parameter y : nat."):
        assert check_proofs.ASSUMED.search(check_proofs.without_comments(f"(* Admitted *) {word}"))
    assert not check_proofs.ASSUMED.search(check_proofs.without_comments("(* Admitted *) Qed."))


def test_all_files_are_compiled():
    assert sorted(check_proofs.ORDER) == [file.stem for file in FILES]


def test_every_theorem_prints_its_assumptions_and_is_on_the_page():
    stated = {
        name
        for file in FILES
        for name in re.findall(r"^Theorem (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    # The weaker form of every_play_delta, and the same of the bounds by state, are steps on the way.
    assert stated - {"every_play", "bounds_every_play", "family_every_play"} <= set(PRINTED)
    assert all(f"`{name}`" in PAGE for name in PRINTED)


def test_assumptions_are_read_as_coq_prints_them():
    printed = "Closed under the global context\nAxioms:\nA.b : forall x,\n  x\nc\n  : nat\n"
    assert check_proofs.answers(printed) == [set(), {"A.b", "c"}]


def test_what_each_theorem_rests_on_is_listed_for_theorems_that_are_there():
    assert set(check_proofs.RESTS_ON) <= set(PRINTED)


def test_the_list_of_theorems_names_what_coq_checked():
    listed = (ROOT / "docs" / "theorems.md").read_text(encoding="utf-8")
    named = {
        name
        for names in re.findall(r"; Coq: ([^|]+) \|", listed)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert len(named) > 20
    assert named <= set(PRINTED)
    # What is not there: steps on the way, the example of a bound, the worlds, and other wordings.
    steps = {"every_play_delta", "failing_step", "good_set_step", "basic", "setwise_real"}
    worlds = {"world_pure", "world_range", "world_failure"}
    worlds |= {f"{world}_is_V" for world in worlds}
    wordings = {
        "V_bounds_every_analyst",
        "V_is_a_bound",
        "countable_outcomes",
        "countable_play",
        "countable_failures",
        "countable_analysts",
        "slot_laplace_cost",
        "slot_laplace_two_phases_delta",
        "slot_noisy_count",
    }
    assert set(PRINTED) - named == steps | worlds | wordings
