"""Exact decisions: thresholds against 80 digits, and words on either side of every threshold."""

from __future__ import annotations

import decimal
import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dptopk.mechanisms.samplers.exact import Cells, bernoulli_exp, coin_of_probability, exp_units
from dptopk.mechanisms.samplers.noise import gaussian_law, laplace_law
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.mechanisms.samplers.selection import _poisson_batch

EXPONENTS = [
    Fraction(0),
    Fraction(1, 10**9),
    Fraction(1, 3),
    Fraction(1),
    Fraction(25, 3),
    Fraction(100),
    Fraction(10**6),
]


def mp(x):
    return mpmath.mpf(x.numerator) / x.denominator


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(80):
        yield


@pytest.mark.parametrize("bits", [1, 32, 48, 96, 300, 500])
def test_exponentials_are_within_one_unit(bits):
    for x in EXPONENTS:
        (units,) = exp_units([x.numerator], x.denominator, bits)
        with mpmath.workdps(200):
            assert abs(units - mpmath.exp(-mp(x)) * mpmath.mpf(2) ** bits) <= 1


def test_exponentials_are_within_one_unit_next_to_an_integer():
    """At 2^b e^{-x} just above an integer, truncation would err by more than one."""
    bits, near = 32, np.random.default_rng(1).integers(1 << 31, 1 << 32, 1000)
    for units in [2213175150, *near.tolist()]:
        with mpmath.workdps(60):
            x = Fraction(str(-mpmath.log((mpmath.mpf(units) + mpmath.mpf(10) ** -9) / 2**bits)))
        (found,) = exp_units([x.numerator], x.denominator, bits)
        with mpmath.workdps(60):
            assert abs(found - mpmath.exp(-mp(x)) * 2**bits) <= 1


def test_exponentials_ignore_the_callers_decimal_context():
    expected = exp_units([1], 3, 300)
    with decimal.localcontext(prec=3, rounding=decimal.ROUND_UP):
        assert exp_units([1], 3, 300) == expected


@pytest.mark.parametrize("chance", [Fraction(1, 3), Fraction(6, 7), Fraction(1, 10**6)])
def test_a_coin_by_units_is_decided_at_its_chance_and_nowhere_else(scripted, chance):
    """Its word is its own: words around the chance on both sides, and 64 more bits at it."""
    first, second = divmod(int(chance * 2**96), 1 << 64)

    def coin(word, *more):
        bits = scripted(u32=[word], u64=more)
        drawn = coin_of_probability(lambda known: int(chance * 2**known), bits)
        assert bits.left == 0
        return drawn

    assert first < 3 or coin(first - 2)
    assert not coin(first + 2)
    assert coin(first, second - 2)
    assert not coin(first, second + 2)
    more = int(chance * 2**160) & (2**64 - 1)
    assert coin(first, second, more - 2)
    assert not coin(first, second, more + 2)


@pytest.mark.parametrize("x", [Fraction(1, 3), Fraction(3), Fraction(20)])
def test_coin_follows_the_exact_probability_bit_by_bit(scripted, x):
    """Words next to floor(2^32 e^-x), and at it the next 64 bits next to those of e^-x."""
    chance = mpmath.exp(-mp(x))
    first = int(mpmath.floor(chance * 2**32))
    second = int(mpmath.floor(chance * mpmath.mpf(2) ** 96)) - (first << 64)

    def coin(word, *more):
        bits = scripted(u32=[word], u64=more)
        (result,) = bernoulli_exp(np.array([float(x)]), lambda i: x, bits)
        assert bits.left == 0
        return bool(result)

    assert not coin(first + 3)
    assert not coin(2**32 - 1)
    assert first < 4 or coin(first - 4)
    assert coin(first, second - 2)
    assert not coin(first, second + 2)
    assert coin(first, second, 0)  # still undecided after 96 bits; 64 more settle it
    assert not coin(first, second, 2**64 - 1)


def test_coins_of_extreme_chances(scripted):
    # e^0 = 1: true whatever the bits. e^-inf: false, unless the exact exponent says otherwise.
    bits = scripted(u32=[0, 2**32 - 1], u64=[7])
    assert bernoulli_exp(np.zeros(2), lambda i: Fraction(0), bits).all()
    bits = scripted(u32=[0, 5], u64=[0, 2**63])
    assert not bernoulli_exp(np.full(2, np.inf), lambda i: Fraction(10**400), bits).any()
    assert bits.left == 0


LAWS = {
    "laplace 1": (laplace_law(1.0, 1), 20),
    "laplace 50": (laplace_law(50.0, 1), 2),
    "laplace 1/300": (laplace_law(1.0, 300), 300),
    "gaussian 0.2": (gaussian_law(0.2), 4),
    "gaussian 3": (gaussian_law(3.0), 40),
    "gaussian 1e9": (gaussian_law(1e9), 100),
    "truncated": (gaussian_law(1000.0, 700), 12),
}


def block_weights(law):
    """Yield the weights of the cells to 80 digits, until they are below 1e-60."""
    yield mpmath.mpf(1)
    width = 1 << law.width_bits
    for first in itertools.count(1, width):
        if law.bound is not None and first > law.bound:
            return
        weight = width * mpmath.exp(-mp(law.exponent(first)))
        if weight < mpmath.mpf(10) ** -60:
            return
        yield weight
        yield weight


@pytest.mark.parametrize("name", LAWS)
def test_weights_and_the_mass_beyond_them(name):
    law, _ = LAWS[name]
    for bits in (48, 112):
        listed = law.weights(bits)
        exact = list(block_weights(law))
        unit = mpmath.mpf(2) ** -bits
        assert max(abs(w * unit - e) for w, e in zip(listed, exact, strict=False)) <= unit
        assert mpmath.fsum(exact[len(listed) :]) <= unit
    assert law.weights(112)[0] == 1 << 112


@pytest.mark.parametrize("name", LAWS)
def test_thresholds_enclose_the_cumulative_law(name):
    law, _ = LAWS[name]
    exact = list(block_weights(law))
    total = mpmath.fsum(exact)
    for known in (32, 96):
        lower, upper = law._cells.thresholds(known)
        partial = mpmath.mpf(0)
        for low, high, weight in zip(lower, upper, exact, strict=False):
            partial += weight
            assert low <= partial / total * mpmath.mpf(2) ** known < high + 1
            assert high - low <= 1


def test_poisson_thresholds():
    lower, upper = _poisson_batch().thresholds(96)
    term = partial = mpmath.exp(-64)
    for j, (low, high) in enumerate(zip(lower, upper, strict=True), start=1):
        assert low <= partial * mpmath.mpf(2) ** 96 < high + 1
        term *= mpmath.mpf(64) / j
        partial += term


@pytest.mark.parametrize("name", LAWS)
def test_every_threshold_is_found_to_the_last_bit(scripted, name):
    """Just below the boundary of two cells, the word gives the first; just above it, the second."""
    law, first_cells = LAWS[name]
    cells = law._cells
    exact = list(block_weights(law))
    total, partial = mpmath.fsum(exact), mpmath.mpf(0)
    for cell, weight in enumerate(exact[: first_cells + 1]):
        partial += weight
        assert (
            weight / total * mpmath.mpf(2) ** 96 > 100
        )  # or the words below would lie beyond the next threshold
        if cell == min(first_cells, len(exact) - 1):
            break
        boundary = int(mpmath.floor(partial / total * mpmath.mpf(2) ** 96))
        for word, expected in ((boundary - 3, cell), (boundary + 3, cell + 1)):
            bits = scripted(u32=[word >> 64], u64=[word & (2**64 - 1)])
            assert cells.draw(1, bits).tolist() == [expected]


@pytest.mark.slow
def test_first_words_next_to_thresholds(scripted):
    """The guide and the search agree with the definition for words around all thresholds."""
    law = laplace_law(1.0, 20)
    lower, upper = law._cells.thresholds(32)
    for word in sorted({w + d for w in lower for d in (-2, -1, 0, 1, 2, 3) if 0 <= w + d < 2**32}):
        bits = scripted(u32=[word], u64=[2**63, 2**63, 2**63])
        (drawn,) = law._cells.draw(1, bits).tolist()
        below, above = sum(h < word for h in upper), sum(w <= word for w in lower)
        if bits.left == 3:  # decided by 32 bits
            assert below == above == drawn
        else:
            assert any(w in (word, word - 1) for w in lower) or above == len(lower)
            assert below <= drawn <= above or above == len(lower)


def test_the_tail_is_continued_as_far_as_the_bits_say(scripted):
    """U = 1 - 2^-161 (1 + tiny): the cell is where the tail mass first falls below it, far beyond
    the first table.
    """
    law = gaussian_law(1.0)
    ones = 2**64 - 1
    bits = scripted(u32=[2**32 - 1], u64=[ones, ones - 1])
    (cell,) = law._cells.draw(1, bits).tolist()
    assert bits.left == 0
    exact = list(block_weights(law))
    total = mpmath.fsum(exact)
    tails = [1 - mpmath.fsum(exact[: j + 1]) / total for j in range(len(exact))]
    missing = 1 - mpmath.mpf(((1 << 32) - 1 << 128) | ones << 64 | ones - 1) / mpmath.mpf(2) ** 160
    assert tails[cell] < missing < tails[cell - 1]
    assert cell > len(law._cells.thresholds(32)[0])


def test_no_cell_is_invented_for_words_without_end(scripted):
    bits = scripted(u32=[2**32 - 1], u64=[2**64 - 1] * 6)
    with pytest.raises(LookupError):
        gaussian_law(1.0)._cells.draw(1, bits)


def test_cells_of_a_plain_law():
    cells = Cells(lambda bits: [1 << bits, 3 << bits])
    seen = np.bincount(cells.draw(40_000, random_bits(np.random.default_rng(2))))
    assert abs(seen[0] - 10_000) < 5 * np.sqrt(7500)


@pytest.mark.parametrize("name", ["exp", "log", "log1p"])
def test_float_functions_are_within_eight_units_in_the_last_place(name):
    """What the error bounds of coins and clocks take for granted, on arrays as they are used."""
    rng = np.random.default_rng(4)
    reals = {
        "exp": -np.append(rng.exponential(1.0, 3000), rng.uniform(0, 700, 3000)),
        "log": np.append(rng.uniform(0, 50, 3000), 10 ** rng.uniform(-300, 12, 3000)),
        "log1p": -np.append(rng.uniform(0, 0.5, 3000), 10 ** rng.uniform(-19, -0.31, 3000)),
    }[name]
    computed = getattr(np, name)(reals)
    exact = [getattr(mpmath, name)(mpmath.mpf(float(x))) for x in reals]
    errors = [abs(c - e) / abs(e) for c, e in zip(computed.tolist(), exact, strict=True) if e]
    assert max(errors) < 8 * 2.0**-52
