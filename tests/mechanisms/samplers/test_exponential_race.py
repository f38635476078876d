"""Clocks: every enclosure holds, and the order is exact down to the bits that have to be read for
it.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dptopk.mechanisms.one_shot import _FlipRace
from dptopk.mechanisms.samplers.exponential_race import STOP, Arrivals, ArrivalTime, Race
from dptopk.mechanisms.samplers.random import random_bits


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(80):
        yield


def mp(x):
    return mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator


def score(rate, level, e):
    return mp(rate) * mp(level) - mpmath.log(e)


def words(*values):
    return np.array([v % 2**64 for v in values], dtype=np.uint64)


def many_words(size):
    """Words of all magnitudes, near 0 and near 2^64 too."""
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 2**64, size, dtype=np.uint64)
    drawn[::3] >>= rng.integers(0, 60, drawn[::3].size, dtype=np.uint64)
    drawn[1::3] = ~(drawn[1::3] >> rng.integers(0, 60, drawn[1::3].size, dtype=np.uint64))
    return drawn


class Played:
    """A source that gives the prepared words first, then a generator's."""

    def __init__(self, first):
        self.first = first
        self.rest = random_bits(np.random.default_rng(9))
        self.read = 0

    def uint64(self, size):
        self.read += size
        played, self.first = self.first[:size], self.first[size:]
        return np.concatenate((played, self.rest.uint64(size - played.size)))

    def append_bits(self, value):
        return value << 64 | int(self.uint64(1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("rate", [Fraction(1e-6), Fraction(0.1), Fraction(50)])
@pytest.mark.parametrize("levels", ["small", "huge", "real"])
@pytest.mark.parametrize("law", ["own", "first slab", "later slab"])
def test_exact_scores_lie_within_the_doubt(rate, levels, law):
    n = 400
    rng = np.random.default_rng(2)
    level = {
        "small": rng.integers(0, 100, n),
        "huge": rng.integers(-(2**62), 2**62, n),
        "real": rng.normal(size=n) * 1e3,
    }[levels]
    drawn = many_words(n)
    race, labels = Race(rate, None, Played(drawn)), np.arange(n)
    start, width = (
        (None, None)
        if law == "own"
        else (Fraction(7 if law == "later slab" else 0, 10**6), Fraction(3, 10**7))
    )
    if law == "own":
        origin = level.max()
        arrivals = race.clocks(labels, level, origin)
    else:
        level, origin = np.full(n, level[0]), level.max()
        arrivals = race.rings_in_slab(labels, level[0], start, width, origin)
    surely = np.isfinite(arrivals.doubt)
    assert surely.sum() > 0.6 * n
    for i in np.flatnonzero(surely):
        for end in (0, 1):
            u = (int(drawn[i]) + end) / mpmath.mpf(2) ** 64
            e = -mpmath.log(u) if law == "own" else mp(start) + mp(width) * u
            exact = score(rate, Fraction(level[i].item()) - Fraction(origin.item()), e)
            assert abs(exact - arrivals.score[i]) <= arrivals.doubt[i]
    # Where many bits are known and the level is near, the enclosure is tight enough to decide
    # nearly every comparison.
    sharp = surely & (drawn > 2**50) & (~drawn > 2**50)
    if levels == "small":
        assert arrivals.doubt[sharp].max() < 1e-10
    for i in np.flatnonzero(~surely):
        assert min(int(drawn[i]), 2**64 - 1 - int(drawn[i])) < 1024 or law == "first slab"


@pytest.mark.parametrize(
    ("start", "width"),
    [(None, Fraction(0)), (Fraction(0), Fraction(1, 7)), (Fraction(3), Fraction(1))],
)
@pytest.mark.parametrize("word", [1, 2**20, 2**63, 2**64 - 1])
def test_clock_bounds_enclose_and_shrink(start, width, word):
    rate, level = Fraction(0.3), Fraction(10**18 + 1)
    clock, widths = ArrivalTime(level, word, start, width), []
    for _ in range(3):
        low, high = clock.bounds(rate, random_bits(np.random.default_rng(3)))
        ends = [(clock.word + end) / mpmath.mpf(2) ** clock.known for end in (0, 1)]
        e = (
            [-mpmath.log(u) for u in reversed(ends)]
            if start is None
            else [mp(start) + mp(width) * u for u in ends]
        )
        assert mpmath.mpf(str(low)) <= score(rate, level, e[1])
        assert str(high) == "Infinity" or score(rate, level, e[0]) <= mpmath.mpf(str(high))
        widths.append(high - low)
        clock.read(random_bits(np.random.default_rng(4)))
    assert widths[2] < widths[1] / 2**60
    assert widths[2] < 1e-30


def test_clock_without_a_bit_set_reads_on(scripted):
    clock = ArrivalTime(Fraction(0), 0, None, Fraction(0))
    clock.bounds(Fraction(1), scripted(u64=[0, 5]))
    assert (clock.word, clock.known) == (5, 192)


def exact_order(level, drawn, rate):
    keys = [
        score(rate, Fraction(v.item()), -mpmath.log((int(w) + 0.5) / mpmath.mpf(2) ** 64))
        for v, w in zip(level, drawn, strict=True)
    ]
    return sorted(range(len(keys)), key=lambda i: -keys[i])


@pytest.mark.parametrize("rate", [Fraction(1e-3), Fraction(1), Fraction(50)])
@pytest.mark.parametrize("height", [0, 10**9, 2**61])
def test_order_against_eighty_digits(rate, height):
    """Many ties and near ties, also far below the highest level, where the floats alone cannot tell
    them apart.
    """
    rng = np.random.default_rng(7)
    level = np.append(rng.integers(0, 30, 300), [height, height + 3])
    drawn = rng.integers(2**40, 2**64 - 2**40, level.size, dtype=np.uint64)
    bits = Played(drawn)
    race = Race(rate, None, bits)
    arrivals = race.clocks(np.arange(level.size), level, level.max())
    order = race.exact_order(arrivals)
    assert order.tolist() == exact_order(level, drawn, rate)
    assert (
        bits.read == level.size
    )  # the first words decide, once floats are taken from a nearer origin


class Written:
    """A source whose further bits of a clock follow from those that were read of it."""

    def __init__(self, numbers):
        self.first = words(*(number >> 64 for number in numbers))
        self.further = {number >> 64: number for number in numbers}

    def uint64(self, size):
        return self.first[:size]

    def append_bits(self, value):
        return self.further[value]


@pytest.mark.parametrize("kind", [Race, _FlipRace])
@pytest.mark.parametrize("rate", [Fraction(1, 10), Fraction(1)])
@pytest.mark.parametrize("gap", [1, 3])
def test_the_order_turns_within_two_to_the_minus_96_of_the_formula(kind, rate, gap):
    """Of two clocks the uniform number of one is given to 128 bits. At the other's, E = e^{rate gap}
    E' by the formula, the order turns: 2^-96 above it and below it the order is already right.
    """
    rng = np.random.default_rng(11)
    one = mpmath.mpf(2) ** 128
    decided = 0
    for _ in range(15):
        number = int(rng.integers(1 << 61, 1 << 63)) << 65 | int(rng.integers(1 << 62))
        uniform = (number + mpmath.mpf("0.5")) / one
        factor = mpmath.exp(mp(rate) * gap)
        turn = uniform**factor if kind is Race else uniform / factor
        if turn * one < mpmath.mpf(2) ** 100:  # of so early a number 2^-96 is a large part
            continue
        for step, order in ((1 << 32, [1, 0]), (-(1 << 32), [0, 1])):
            other = int(turn * one) + (step if kind is Race else -step)
            race = kind(rate, None, Written([number, other]))
            levels = np.array([0, gap]) if kind is Race else np.array([gap, 0])
            arrivals = race.clocks(np.arange(2), levels, gap)
            assert race.exact_order(arrivals).tolist() == order
            decided += 1
    assert decided >= 16


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 3)])
def test_a_difference_below_the_floats_resolution_is_seen(rate):
    """Words that differ in the last bits but one decide, without any more of them."""
    bits = Played(words(2**62 + 2, 2**62))
    race = Race(rate, None, bits)
    arrivals = race.clocks(np.arange(2), np.array([5, 5]), 5)
    assert abs(arrivals.score[0] - arrivals.score[1]) < arrivals.doubt.sum()
    assert race.exact_order(arrivals).tolist() == [0, 1]
    assert bits.read == 2


# The second clock reads first, then the first clock.
@pytest.mark.parametrize(
    ("more", "first"), [((4, 9), 0), ((9, 4), 1), ((6, 6, 0, 5), 0), ((6, 6, 2**63, 1), 1)]
)
def test_equal_words_are_told_apart_by_the_next_ones(scripted, more, first):
    """Same level, same word: the next bits decide; E = -ln U, so the larger U rings first."""
    bits = scripted(u64=[2**63, 2**63, *more])
    race = Race(Fraction(1), None, bits)
    arrivals = race.clocks(np.arange(2), np.array([3, 3]), 3)
    assert race.exact_order(arrivals).tolist()[0] == first
    assert bits.left == 0


def test_equal_words_of_a_slab(scripted):
    """In a slab E grows with U: the smaller U rings first."""
    bits = scripted(u64=[2**63, 2**63, 9, 4])
    race = Race(Fraction(1), None, bits)
    arrivals = race.rings_in_slab(np.arange(2), 3, Fraction(1), Fraction(1, 2), 3)
    assert race.exact_order(arrivals).tolist() == [0, 1]
    assert bits.left == 0


@pytest.mark.parametrize(("word", "place"), [(2**64 - 1, 0), (2**64 - 900, 0), (0, 2), (900, 2)])
def test_vague_clocks_find_their_place(word, place):
    """U within 2^-54 of 0 or 1: the float says nothing, and the clock is nevertheless placed where
    it belongs.
    """
    race = Race(Fraction(1), None, Played(words(word, 2**63, 2**61)))
    arrivals = race.clocks(np.arange(3), np.array([0, 0, 0]), 0)
    assert np.isinf(arrivals.doubt[0])
    assert race.exact_order(arrivals).tolist().index(0) == place


def test_stop_element_takes_part_with_its_exact_level():
    """A level that no float holds: above 2^60 by 1/3; the same words, so that only the levels can
    decide.
    """
    for third, first in ((Fraction(1, 3), 1), (Fraction(-1, 3), 0)):
        stop = Fraction(2**60) + third
        race = Race(Fraction(1, 2**30), stop, Played(words(2**63, 2**63)))
        arrivals = race.clocks(np.array([0, STOP]), np.array([2**60, 0]), 2**60)
        assert race.exact_order(arrivals).tolist()[0] == first


def test_scores_beyond_the_range_of_floats_are_compared_exactly():
    level = np.array([-1.7e308, 1.7e308, -1.6e308, 0.0])
    race = Race(Fraction(50), None, Played(words(*[2**63] * 4)))
    arrivals = race.clocks(np.arange(4), level, level.max())
    assert race.exact_order(arrivals).tolist() == [1, 3, 2, 0]


def test_join_and_take():
    race = Race(Fraction(1), None, random_bits(np.random.default_rng(1)))
    one = race.clocks(np.arange(3), np.array([1, 2, 3]), 3)
    two = race.rings_in_slab(np.array([8]), 2, Fraction(0), Fraction(1, 8), 3)
    both = Arrivals.join(one, two)
    assert both.labels.tolist() == [0, 1, 2, 8]
    assert both.slabs.tolist() == [0, 0, 0, 1]
    assert both.take(np.array([3, 0])).score.tolist() == [two.score[0], one.score[0]]
