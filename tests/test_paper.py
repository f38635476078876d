"""The two papers: their numbers are what the package computes, and nothing in them is left undefined
(docs/paper).
"""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dptopk.accounting.pld.characteristic_function import FFT_ERROR
from dptopk.accounting.setwise.bellman_step import negligible_share, step_slack
from dptopk.accounting.setwise.recursion import FLOOR

ROOT = Path(__file__).parents[1]
PAPERS = {
    name: (ROOT / "docs" / "paper" / f"{name}.tex").read_text(encoding="utf-8")
    for name in ("accounting", "domains")
}
TEXT = "\n".join(PAPERS.values())
USED = set(re.findall(r"\\num\{([a-z-]+)\}", TEXT))


def _load():
    spec = importlib.util.spec_from_file_location(
        "paper_numbers", ROOT / "scripts" / "paper_numbers.py"
    )
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


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_number_is_what_the_package_computes(name):
    assert NUMBERS[name].agrees(paper_numbers.printed()[name])


@pytest.mark.slow
def test_a_wrong_number_is_found():
    for name in (
        "br-hundred-renyi",
        "trunc-wide-one-mended",
        "offset-laplace-five-shared",
        "br-hundred-low",
    ):
        printed = float(paper_numbers.printed()[name])
        assert not NUMBERS[name].agrees(f"{printed * 1.01:.9f}")


def test_rounding_is_outward():
    one = replace(NUMBERS["br-hundred-renyi"], compute=lambda: 0.00123456, digits=-3, tolerance=0.0)
    assert one.text() == "0.00124"
    assert replace(one, kind="lower").text() == "0.00123"
    assert replace(one, digits=4, kind="value").text() == "0.0012"
    assert replace(one, compute=lambda: 1.0001e-6).text() == "1.01e-6"


def test_citations_and_references_are_defined():
    sources = (ROOT / "docs" / "references.bib", ROOT / "docs" / "paper" / "own.bib")
    listed = "".join(source.read_text(encoding="utf-8") for source in sources)
    entries = set(re.findall(r"^@\w+\{(\w+),", listed, re.M))
    cited = {
        key
        for group in re.findall(r"\\cite(?:\[[^]]*\])?\{([^}]+)\}", TEXT)
        for key in group.split(",")
    }
    assert len(cited) > 40
    assert cited <= entries
    for text in PAPERS.values():
        labels = re.findall(r"\\label\{([^}]+)\}", text)
        assert len(labels) == len(set(labels))
        referred = set(re.findall(r"\\(?:eq)?ref\{([^}]+)\}", text))
        assert referred <= set(labels)


# What the text says of the numbers in words, and of the code.


def _shown(name):
    return float(paper_numbers.printed()[name])


def _says(*words):
    """The paper says this, in these words; a change of them is a change of what is checked."""
    assert all(" ".join(word.split()) in " ".join(TEXT.split()) for word in words), words


def test_words_on_the_mixes():
    _says(
        "at most a thousandth, but for the row with a $\\zCDP$ cost",
        "certifies upper and lower bounds to $10^{-3}$ in",
    )
    ranges = [name for name, text in paper_numbers.CHARGES.items() if "BR" in text]
    for name in set(paper_numbers.CHARGES) - {"br-zcdp"}:
        assert _shown(f"{name}-best") - _shown(f"{name}-low") <= 1e-3 * _shown(f"{name}-best"), name
    assert _shown("br-zcdp-best") - _shown("br-zcdp-low") > 1e-3 * _shown("br-zcdp-best")
    _says("the strongest of the baselines wherever bounded range takes part")
    for name in ranges:
        others = [
            f"{name}-{column}"
            for column in ("mgf", "zcdp", "tight", "pld")
            if (name, column) not in paper_numbers.NOT_FOR
        ]
        assert _shown(f"{name}-renyi") <= min(map(_shown, others)), name
    _says("agree with ours to its grid of $10^{-4}$")
    assert abs(_shown("kov-pld") - _shown("kov-best")) <= 1e-4


def test_words_on_adaptivity_and_prices():
    _says("worth less than a hundredth of $\\eps$, and less and less from $k=10$ on")
    worth = {
        word: _shown(f"gap-{word}-high") / _shown(f"gap-{word}-batch") - 1
        for word in ("four", "ten", "thirty", "hundred", "threehundred", "thousand")
    }
    assert max(worth.values()) < 0.01
    later = list(worth.values())[1:]
    assert later == sorted(later, reverse=True)
    _says("in all our trials, as much as the registered game or one selection less")
    for name in ("two", "one", "four"):
        assert _shown(f"filter-{name}-renyi") < _shown(f"filter-{name}-prices")
        assert 0 <= _shown(f"filter-{name}-best") - _shown(f"filter-{name}-prices") <= 1


def test_words_on_unknown_domains():
    _says("up to about $1/(\\sigma\\sqrt{2\\pi})$", "Gaussian slots hardly share")
    for name, sigma, places in (
        ("narrow", 3, ("third", "one", "two")),
        ("wide", 10, ("third", "one")),
    ):
        for place in places:
            forms = {
                form: _shown(f"trunc-{name}-{place}-{form}")
                for form in ("published", "mended", "promised")
            }
            assert forms["mended"] <= forms["promised"]
            assert 0.9 < forms["published"] * sigma * math.sqrt(2 * math.pi) < 1.1
        assert forms["published"] > forms["promised"]  # at the largest ε of them
    for word in ("five", "twentyfive", "many"):
        assert _shown(f"offset-laplace-{word}-shared") < _shown(f"offset-laplace-{word}-union")
        assert (
            0
            <= _shown(f"offset-gaussian-{word}-union") - _shown(f"offset-gaussian-{word}-shared")
            <= 1
        )


def test_theorems_have_one_name_in_the_paper_the_docs_and_the_tests():
    letters = re.findall(r"\\begin\{namedtheorem\}\{([A-Z])\}", PAPERS["accounting"])
    assert "namedtheorem" not in PAPERS["domains"]
    table = (ROOT / "docs" / "theorems.md").read_text(encoding="utf-8")
    assert (
        sorted(letters)
        == sorted(re.findall(r"^\| Theorem ([A-Z]):", table, re.MULTILINE))
        == list("ABCDEFGH")
    )
    for letter, words in {
        "E": "coins",
        "F": "order of two ranges",
        "G": "price",
        "H": "many small",
    }.items():
        assert f"{{namedtheorem}}{{{letter}}}{{{words}" in TEXT
    for letter in "abcdeh":
        assert (ROOT / "tests" / "proofs" / f"test_theorem_{letter}.py").is_file()


def test_words_on_many_small_costs():
    _says(
        "$100\\times\\zCDP(0.005)$ have $\\eps=\\num{h-zcdp-best}$ at $\\delta=10^{-6}$",
        "$10^8\\times\\BR(10^{-4})$ are known to $2\\cdot10^{-5}$ of their $\\eps$",
    )
    gauss, best, renyi = (_shown(f"h-zcdp-{column}") for column in ("gauss", "best", "renyi"))
    assert gauss < best < renyi <= _shown("h-zcdp-conversion")
    assert (renyi - best) > 4 * (best - gauss)
    bound = paper_numbers.composed(*paper_numbers.SMALL_COSTS["h-br"][:1])
    assert bound.epsilon - bound.lower < 2e-5 * bound.lower


def test_what_coq_has_checked_is_said_by_both_papers():
    for text in PAPERS.values():
        assert "\\code{make proofs}" in text
        assert "SampCert25" in text
    assumptions = (ROOT / "proofs" / "Assumptions.v").read_text(encoding="utf-8")
    for name in ("slot_two_phases", "slot_two_pairs"):
        assert name.replace("_", r"\_") in PAPERS["domains"]
        assert f"Print Assumptions {name}." in assumptions


def test_words_on_time_and_on_two_bounds_of_one_number():
    _says("0.4 to 2.1 times as fast at $k=25$", "takes some tens of milliseconds however many")
    assert _shown("time-joint-few-pruned") < _shown("time-joint-few-ours")
    for place in ("many", "uniform"):
        assert _shown(f"time-joint-{place}-pruned") > _shown(f"time-joint-{place}-ours")
    assert max(_shown("time-compose-hundred-ours"), _shown("time-compose-myriad-ours")) < 50
    _says(
        "All brackets overlap: the optimum is above",
        "at a bracket of $10^{-3}$",
        "on to $2\\cdot10^{-4}$",
    )
    highs = [_shown(name) for name in ("gap-hundred-high", "br-hundred-best", "certified-hundred")]
    assert highs == sorted(highs)
    assert max(_shown("gap-hundred-low"), _shown("br-hundred-low")) < highs[0]
    assert highs[1] / _shown("br-hundred-low") - 1 < 1e-3
    assert highs[0] / _shown("gap-hundred-low") - 1 < 2e-4
    _says("can gain only where other costs take part", "of one range of $0.5$ and three of $0.8$")
    assert _shown("filter-gauss-sum") == _shown("filter-gauss-best")
    assert _shown("order-four-sorted") < _shown("order-four-swapped")


def test_the_notes_say_of_the_joint_samplers_what_their_table_says():
    notes = ROOT / "docs" / "notes"
    rows = re.findall(
        r"^\| .* \| (25|200) \| .* ms \| .* ms \| ([\d.]+) \|$",
        (notes / "whole-answers.md").read_text(),
        re.M,
    )
    many, few = ([float(ratio) for k, ratio in rows if k == size] for size in ("200", "25"))
    assert len(many) == len(few) == 4
    said = " ".join((notes / "exact-sampling.md").read_text(encoding="utf-8").split())
    assert f"is {min(many):.1f} to {max(many):.1f} times as fast at $k = 200$" in said
    assert f"{min(few):.1f} to {max(few):.1f} times as fast at $k = 25$" in said


def test_words_on_unknown_domains_beside_weighted_noise():
    _says(
        "in all but \\num{domain-ahead} of 9 rows, mostly by less than a hundredth",
        "the two are about even",
    )
    rows = [
        f"domain-{users}-{k}"
        for users in ("lines", "baskets", "planes")
        for k in ("ten", "twentyfive", "fifty")
    ]
    ours = {
        row: min(_shown(f"{row}-{way}") for way in ("five", "twenty", "both", "all"))
        for row in rows
    }
    assert sum(ours[row] < _shown(f"{row}-best") for row in rows) == _shown("domain-ahead")
    assert sum(ours[row] < _shown(f"{row}-best") + 1 for row in rows) == 9
    assert 3 <= sum(ours[row] < _shown(f"{row}-half") for row in rows) <= 6


def test_words_on_the_default():
    _says(
        "With counts it misses more than the peer's best share in every row",
        "least well does it with $50$ of the lines",
        "misses less than the peer's best share at the largest $k$ of three of the tables",
    )
    rows = [
        f"default-{users}-{k}"
        for users in paper_numbers.DEFAULT_TABLES
        for k in paper_numbers.DEFAULT_SIZES["few" if users in paper_numbers.FEW else "many"]
    ]
    ahead = {row for row in rows if _shown(f"{row}-labels") < _shown(f"{row}-best")}
    assert len(ahead) == 3
    assert all(row.endswith(("fifty", "many")) for row in ahead)
    more = {row: _shown(f"{row}-shipped") - _shown(f"{row}-best") for row in rows}
    assert min(more.values()) > 0
    assert max(more, key=more.__getitem__) == "default-lines-fifty"
    least = min(_shown(f"default-{users}-users") for users in ("synsets", "entries"))
    assert least > 1e5


def test_words_on_the_code():
    checker = (ROOT / "checker" / "check_certificate.py").read_text(encoding="utf-8")
    lines = len(checker.splitlines())
    _says(f"A checker of {lines} lines", f"an independent program of {lines} lines")
    _says(
        "108\\,(4+\\eps)\\Bigl(1+\\frac{NE}{E-1}\\Bigr)u", "60+3\\eps+4N(105+3\\eps)\\frac{E}{E-1}"
    )
    unit = 2.0**-53
    for N, epsilon in ((20, 0.01), (40, 0.1), (100, 1.0), (500, 8.0)):
        spread = math.exp(epsilon) / math.expm1(epsilon)
        derived = (60 + 3 * epsilon + 4 * N * (105 + 3 * epsilon) * spread) * unit
        stated = 108 * (4 + epsilon) * (1 + N * spread) * unit
        h = epsilon / N
        assert derived <= stated <= step_slack(N, h, negligible_share(h)) * (1 + 1e-12)
    _says("adding $10^{-290}$ from above", "of $8\\log_2n$ roundoffs in the 2-norm")
    assert FLOOR == 1e-290
    assert FFT_ERROR >= 8
