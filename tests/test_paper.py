"""The paper: its numbers are what the package computes, and nothing in it is left undefined (docs/paper)."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "paper" / "paper.tex").read_text(encoding="utf-8")
USED = set(re.findall(r"\\num\{([a-z-]+)\}", TEXT))


def _load():
    spec = importlib.util.spec_from_file_location("paper_numbers", ROOT / "scripts" / "paper_numbers.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


paper_numbers = _load()
NUMBERS = {number.name: number for number in paper_numbers.numbers()}
QUICK = [name for name, number in NUMBERS.items() if not number.slow]


def test_every_number_of_the_paper_is_listed_and_every_listed_one_is_used():
    assert len(NUMBERS) == len(paper_numbers.numbers())
    assert set(paper_numbers.printed()) == set(NUMBERS)
    assert set(NUMBERS) == USED
    assert len(USED) > 150


@pytest.mark.parametrize("name", QUICK)
def test_a_number_is_what_the_package_computes(name):
    assert NUMBERS[name].agrees(paper_numbers.printed()[name])


def test_a_wrong_number_is_found():
    for name in ("br-hundred-renyi", "trunc-wide-one-mended", "offset-laplace-five-shared", "br-hundred-low"):
        printed = float(paper_numbers.printed()[name])
        assert not NUMBERS[name].agrees(f"{printed * 1.01:.9f}")


def test_rounding_is_outward():
    one = replace(NUMBERS["br-hundred-renyi"], compute=lambda: 0.00123456, digits=-3, tolerance=0.0)
    assert one.text() == "0.00124"
    assert replace(one, kind="lower").text() == "0.00123"
    assert replace(one, digits=4, kind="value").text() == "0.0012"
    assert replace(one, compute=lambda: 1.0001e-6).text() == "1.01e-6"


def test_citations_and_references_are_defined():
    entries = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "references.bib").read_text(encoding="utf-8"), re.M))
    cited = {key for group in re.findall(r"\\cite(?:\[[^]]*\])?\{([^}]+)\}", TEXT) for key in group.split(",")}
    assert len(cited) > 40
    assert cited <= entries
    labels = re.findall(r"\\label\{([^}]+)\}", TEXT)
    assert len(labels) == len(set(labels))
    assert set(re.findall(r"\\ref\{([^}]+)\}", TEXT)) <= set(labels)
