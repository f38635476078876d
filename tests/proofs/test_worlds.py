"""Three small worlds: the values that proofs/Worlds.v computes in Coq's kernel, every strategy
enumerated in fractions, and the bracket of ``compose``.
"""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from dptopk import compose

TEXT = (Path(__file__).parents[2] / "proofs" / "Worlds.v").read_text(encoding="utf-8")
THEOREM = re.compile(
    r"^Theorem (\w+) :\s+V \[::(.*?)\] (\d+) \[:: (.*?)\] 1 (\S+) = (\d+)%:Q / (\d+)%:Q\.",
    re.MULTILINE,
)
ENTRY = re.compile(r"\((true|false), (\d+)%:Q, (?:(\d+)%:Q / (\d+)%:Q|0)\)")
NUMBER = re.compile(r"\d+")


def worlds():
    """Return of each theorem its name, grid, rounds, costs, u and value, all as fractions."""
    found = {}
    for name, grid, rounds, entries, u, top, bottom in THEOREM.findall(TEXT):
        costs = tuple(
            (kind == "true", Fraction(r), Fraction(int(a or 0), int(b or 1)))
            for kind, r, a, b in ENTRY.findall(entries)
        )
        points = [Fraction(point) for point in re.findall(r"(\d+)(?:%:Q)?", grid)]
        level = Fraction(NUMBER.match(u)[0])
        found[name] = (points, int(rounds), costs, level, Fraction(int(top), int(bottom)))
    return found


WORLDS = worlds()


def pairs(cost, grid):
    """Every pair of laws of a cost: a list of (P, Q) for each of its outcomes."""
    bounded_range, r, failure = cost
    kept = 1 - failure
    failed = [(failure, Fraction(0)), (Fraction(0), failure)]
    if not bounded_range:
        high = kept * r / (r + 1)
        low = kept / (r + 1)
        return [[(high, low), (low, high), *failed]]
    made = []
    for s in grid:
        q = (r - s) / (s * (r - 1))
        rest = (s - 1) / (s * (r - 1))
        made.append([(kept * q * s, kept * q), (kept * rest * s, kept * rest * r), *failed])
    return made


def transcripts(costs, grid):
    """The laws of the transcript, for every order and every choice after every answer."""
    if not costs:
        yield [(Fraction(1), Fraction(1))]
        return
    for i, cost in enumerate(costs):
        rest = list(transcripts(costs[:i] + costs[i + 1 :], grid))
        for pair in pairs(cost, grid):
            played = [outcome for outcome in pair if outcome != (0, 0)]
            for follow in itertools.product(rest, repeat=len(played)):
                yield [
                    (p * after_p, q * after_q)
                    for (p, q), after in zip(played, follow, strict=True)
                    for after_p, after_q in after
                ]


def enumerated(costs, grid, u):
    """The largest δ over all strategies."""
    return max(
        sum(max(p - u * q, Fraction(0)) for p, q in transcript)
        for transcript in transcripts(costs, grid)
    )


def text_of(cost):
    bounded_range, r, failure = cost
    name = "BR" if bounded_range else "DP"
    epsilon = math.log(r)
    return f"{name}({epsilon!r}, {float(failure)!r})" if failure else f"{name}({epsilon!r})"


def test_the_three_worlds_are_read():
    assert sorted(WORLDS) == ["world_failure", "world_pure", "world_range"]
    assert len(WORLDS) == TEXT.count("\nTheorem ")
    for _, rounds, costs, _, _ in WORLDS.values():
        assert rounds == len(costs) == 2
    assert any(failure for _, _, failure in WORLDS["world_failure"][2])


@pytest.mark.parametrize("name", WORLDS)
def test_every_strategy_enumerated_gives_what_coq_computes(name):
    grid, _, costs, u, value = WORLDS[name]
    assert enumerated(costs, grid, u) == value


@pytest.mark.parametrize("name", WORLDS)
def test_the_bracket_of_compose_holds_what_coq_computes(name):
    _, _, costs, u, value = WORLDS[name]
    bound = compose([text_of(cost) for cost in costs], epsilon=math.log(u))
    assert float(value) <= bound.delta <= float(value) * (1 + 1e-3)
    if bound.lower is not None:
        assert bound.lower <= float(value) * (1 + 1e-12)


def test_a_finer_grid_gains_nothing_in_the_world_of_ranges():
    grid, _, costs, u, value = WORLDS["world_range"]
    between = [Fraction(3, 2), Fraction(5, 2), Fraction(7)]
    assert enumerated(costs, [*grid, *between], u) == value


def test_without_the_best_offset_the_value_is_missed():
    grid, _, costs, u, value = WORLDS["world_range"]
    assert enumerated(costs, [s for s in grid if s != 2], u) < value
