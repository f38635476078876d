"""Discrete noise: its pmf, its map from cells to numbers, its fit to the law and its misfit to
others.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dptopk import KnownGaussian, KnownLaplace, Sensitivity, TruncatedGaussian
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers import noise
from dptopk.mechanisms.samplers.random import random_bits

KINDS = {
    "laplace": lambda scale: noise.laplace_law(1 / scale, 1),
    "gaussian": noise.gaussian_law,
    "truncated": lambda scale, bound=130: noise.gaussian_law(scale, bound),
}


def chi_square(drawn, law):
    """Return the p-value of the draws under the law's own pmf, rare values pooled."""
    radius = int(25 * law.scale) + 3
    pmf = law.pmf(radius)
    assert np.abs(drawn).max() <= radius
    seen = np.bincount(drawn + radius, minlength=2 * radius + 1)
    expected = pmf * drawn.size
    rare = expected < 10
    observed = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], max(drawn.size - expected[~rare].sum(), 1e-3))
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), observed.size - 1)


@pytest.mark.parametrize("scale", [0.3, 2.0, 20.0, 300.0])
@pytest.mark.parametrize("kind", KINDS)
def test_draws_fit_the_law_and_not_a_wrong_scale(kind, scale):
    bound = {"bound": max(1, int(1.5 * scale))} if kind == "truncated" else {}
    law, wrong = (KINDS[kind](s, **bound) for s in (scale, 1.1 * scale))
    drawn = law.sample(200_000, random_bits(np.random.default_rng(11)))
    assert drawn.dtype == np.int64
    assert chi_square(drawn, law) > 1e-3
    assert chi_square(drawn, wrong) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "continuous"), [("laplace", stats.laplace), ("gaussian", stats.norm)]
)
@pytest.mark.parametrize("scale", [1e4 / 3, 1e9, 2.0**45])
def test_large_scales_fit_the_continuous_law_and_not_a_wrong_one(kind, continuous, scale):
    drawn = KINDS[kind](scale).sample(100_000, random_bits(np.random.default_rng(5)))
    # Uniform jitter turns the integers into a continuous law that differs from the limit by
    # 1/scale².
    smooth = drawn + np.random.default_rng(6).uniform(-0.5, 0.5, drawn.size)
    assert stats.kstest(smooth, continuous(scale=scale).cdf).pvalue > 1e-3
    assert stats.kstest(smooth, continuous(scale=1.05 * scale).cdf).pvalue < 1e-4
    # All residues occur equally often: the low bits are used too.
    assert stats.chisquare(np.bincount(drawn % 16)).pvalue > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_far_tail_has_the_laws_mass(kind):
    """Counts beyond quantiles of 1e-3 and 1e-4 agree with the pmf, on each side."""
    scale, size = 40.0, 1_000_000
    law = KINDS[kind](scale)
    drawn = law.sample(size, random_bits(np.random.default_rng(3)))
    n = np.arange(-1200, 1201)
    pmf = law.pmf(1200)
    for mass in (1e-3, 1e-4):
        edge = int(n[np.searchsorted(np.cumsum(pmf), 1 - mass)])
        expected = pmf[n > edge].sum() * size
        for seen in (np.count_nonzero(drawn > edge), np.count_nonzero(drawn < -edge)):
            assert abs(seen - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize(
    "law",
    [
        noise.laplace_law(0.3, 2),
        noise.laplace_law(60.0, 1),
        noise.gaussian_law(0.05),
        noise.gaussian_law(4.0),
        noise.gaussian_law(100.0),
        noise.gaussian_law(100.0, 150),
        noise.gaussian_law(5.0, 0),
    ],
    ids=str,
)
def test_pmf_against_exact_weights(law):
    reach = int(40 * law.scale) + 40 if law.bound is None else law.bound
    with mpmath.workdps(40):
        weights = [
            mpmath.exp(-mpmath.mpf(law.exponent(n).numerator) / law.exponent(n).denominator)
            for n in range(reach)
        ]
        if law.bound is not None:
            n = law.bound
            weights.append(
                mpmath.exp(-mpmath.mpf(law.exponent(n).numerator) / law.exponent(n).denominator)
            )
        total = 2 * mpmath.fsum(weights) - weights[0]
        pmf = law.pmf(30)
        for n in range(-30, 31):
            expected = weights[abs(n)] / total if abs(n) < len(weights) else mpmath.mpf(0)
            assert abs(pmf[n + 30] - expected) <= expected * mpmath.mpf("1e-12") + mpmath.mpf(
                "1e-320"
            )


def test_normaliser_of_a_wide_truncated_law():
    """The branch with the error function against the sum itself."""
    law = noise.gaussian_law(7000.0, 270_000)
    n = np.arange(1, 270_001, dtype=float)
    direct = 1 + 2 * math.fsum(np.exp(-(n**2) / (2 * 7000.0**2)))
    assert law.normaliser == pytest.approx(direct, rel=1e-13)
    near = noise.gaussian_law(200_000.0, 270_000)
    assert near.normaliser == pytest.approx(
        1 + 2 * math.fsum(np.exp(-(n**2) / (2 * 200_000.0**2))), rel=1e-13
    )


def test_cells_and_offsets_cover_every_integer_once(scripted, monkeypatch):
    """Blocks of four: each (cell, offset) is a candidate, kept with the ratio of its weight to the
    block's largest.
    """
    law = noise.gaussian_law(40.0)
    assert law.width_bits == 2
    asked = []

    def keep_all(words, x, exact, bits):
        asked.extend((float(value), exact(i)) for i, value in enumerate(x))
        return np.ones(x.size, dtype=bool)

    monkeypatch.setattr(noise, "decide_exp", keep_all)
    cells = np.repeat(np.arange(9), 4)
    monkeypatch.setattr(type(law._cells), "draw", lambda self, size, bits: cells[:size].copy())
    drawn = law._accepted_candidates(36, scripted(u8=[0, 1, 2, 3] * 9, u32=[7] * 36))
    assert drawn[:4].tolist() == [0] * 4
    assert sorted(drawn[4:].tolist()) == [n for n in range(-16, 17) if n]
    for n, (x, exact) in zip(drawn.tolist(), asked, strict=True):
        first = (abs(n) - 1) // 4 * 4 + 1 if n else 0
        assert exact == Fraction(n * n - first * first, 3200)
        assert x == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize(
    "law",
    [noise.gaussian_law(40.0), noise.laplace_law(1.0, 900), noise.gaussian_law(99.0, 70)],
    ids=str,
)
def test_words_that_keep_a_number_unseen_keep_all_of_its_block(law):
    """They are at most the 2^32 e^-(f(last) - f(first)) of exact arithmetic, and short of it by
    three at most.
    """
    width = 1 << law.width_bits
    assert law._accepting_words.size == len(law._cells.thresholds(32)[0]) + 1
    assert law._accepting_words[[0, -1]].tolist() == [2**32 - 1, 0]
    for cell, sure in enumerate(law._accepting_words[1:-1].tolist(), start=1):
        first = 1 + (cell - 1) // 2 * width
        x = law.exponent(first + width - 1) - law.exponent(first)
        assert 0 <= 2**32 * mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) - sure <= 3


def test_few_and_many_draws_have_one_law():
    """Below and above the number of draws from which on the words that surely keep a number are
    looked up.
    """
    law, size = noise.gaussian_law(300.0), 100_000
    bits = random_bits(np.random.default_rng(1))
    few = np.concatenate([law.sample(1000, bits) for _ in range(size // 1000)])
    assert chi_square(few, law) > 1e-3
    assert stats.ks_2samp(few, law.sample(size, bits)).pvalue > 1e-3


def test_blocks_are_no_wider_than_a_narrow_bound():
    law = noise.gaussian_law(2.0**40, 5)
    assert law.width_bits == 2
    drawn = law.sample(6000, random_bits(np.random.default_rng(1)))
    assert stats.chisquare(np.bincount(drawn + 5, minlength=11)).pvalue > 1e-3


def test_candidates_beyond_the_bound_are_rejected(scripted):
    law = noise.gaussian_law(40.0, 6)  # blocks 1..4 and 5..8, of which 7 and 8 are out
    drawn = law.sample(5000, random_bits(np.random.default_rng(1)))
    assert sorted(set(drawn.tolist())) == list(range(-6, 7))


def test_mechanisms_draw_from_their_laws():
    def bits():
        return random_bits(np.random.default_rng(4))

    three, cut = Sensitivity(linf=3, l0=1), TruncatedGaussian(sigma=2.5, delta=1e-6)
    bound = cut.bound(three)
    assert (
        KnownLaplace(epsilon=0.5).draw_noise(three, 99, bits())
        == noise.laplace_law(0.5, 3).sample(99, bits())
    ).all()
    assert (
        KnownGaussian(sigma=2.5).draw_noise(three, 99, bits())
        == noise.gaussian_law(7.5).sample(99, bits())
    ).all()
    assert (
        cut.draw_noise(three, 99, bits()) == noise.gaussian_law(7.5, bound).sample(99, bits())
    ).all()
    assert noise.laplace_law(0.5, 3).linear == Fraction(1, 6)
    assert noise.gaussian_law(0.1).square == 1 / (2 * Fraction(0.1) ** 2)


def test_degenerate_scales():
    bits = random_bits()
    assert noise.gaussian_law(100.0, 0).sample(5, bits).tolist() == [0] * 5
    assert not noise.laplace_law(1e300, 1).sample(1000, bits).any()
    assert not noise.gaussian_law(1e-300).sample(1000, bits).any()
    assert noise.gaussian_law(3.0).sample(0, bits).size == 0
    assert np.abs(noise.gaussian_law(2.0**40, 3).sample(1000, bits)).max() == 3
    assert noise.laplace_law(1e300, 1).pmf(1).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.slow
def test_secure_and_seeded_draws_of_more_than_one_chunk():
    assert noise.gaussian_law(50.0).sample(200_001, random_bits()).shape == (200_001,)


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda bits: noise.laplace_law(0.0, 1).sample(1, bits), "epsilon"),
        (lambda bits: noise.laplace_law(math.nan, 1).sample(1, bits), "epsilon"),
        (lambda bits: noise.laplace_law(1.0, 0).sample(1, bits), "linf"),
        (lambda bits: noise.laplace_law(1e-300, 1).sample(1, bits), "scale"),
        (lambda bits: noise.laplace_law(1.0, 1).sample(-1, bits), "size"),
        (lambda bits: noise.gaussian_law(math.inf).sample(1, bits), "scale"),
        (lambda bits: noise.gaussian_law(1e15).sample(1, bits), "scale"),
        (lambda bits: noise.gaussian_law(1.0, -1).sample(1, bits), "bound"),
    ],
)
def test_invalid_parameters(draw, name):
    with pytest.raises(InvalidParameter, match=name):
        draw(random_bits())
