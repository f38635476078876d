"""Centred noise over a noisy floor: the exact divergence of what is released never exceeds the
charge; mutants do.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from dptopk import Charge, KnownGaussian, KnownLaplace, Sensitivity
from dptopk.histogram.histogram import descending_order
from dptopk.mechanisms import UnknownCentred
from dptopk.mechanisms.thresholds import is_above_threshold

from .harness import World, encode, hockey_stick, laws
from .test_centred import promised, table

EPSILONS = (0.0, 0.3, 1.0, 2.0, 3.0)
TOLERANCE = 2e-6


def shown(mechanism, histogram):
    """The law of the released table, its values as integers in steps of 1/b: as release, on every
    noise.
    """
    seen, sensitivity, b = mechanism.slots(histogram), histogram.sensitivity, mechanism.divisor
    size = len(seen.counts)
    own = table(mechanism.noise, sensitivity)
    common = table(
        mechanism.counting.common_noise(
            mechanism.sensitivity_of_slots(sensitivity), mechanism.d_bar + 1
        ),
        sensitivity,
    )
    axes = [own] * (size + 1) + [common]
    drawn = np.stack(np.indices([len(axis) for axis in axes]).reshape(len(axes), -1), axis=-1)
    mass = np.prod([axis[column] for axis, column in zip(axes, drawn.T, strict=True)], axis=0)
    drawn = drawn - [len(axis) // 2 for axis in axes]
    noise, floor_noise, y = drawn[:, :size], drawn[:, size : size + 1], drawn[:, size + 1 :]
    above = mechanism.above_floor(noise, floor_noise)
    kept = is_above_threshold(
        seen.counts, above, seen.floor, 0, mechanism.threshold_offset(sensitivity)
    )
    codes = encode(b * seen.counts + noise + y, kept, seen.labels, descending_order)
    outcomes, place = np.unique(codes, return_inverse=True)
    return outcomes, np.bincount(place, weights=mass)


def excess(mechanism, sensitivity, charge=None):
    """By how much the divergence exceeds the charge at the worst ε, and the ratio to it at ε =
    0.3.
    """
    offset, linf = mechanism.threshold_offset(sensitivity), sensitivity.linf
    world = World(3, (0, 1, linf + 1, offset + linf), sensitivity)
    found = hockey_stick(laws(world, lambda h: shown(mechanism, h)), world.neighbours(), EPSILONS)
    charge = charge or mechanism.charge(sensitivity)
    bound = promised(charge, EPSILONS) + charge.delta
    return (found - bound).max(), found[1] / bound[1]


HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
NOISES = {
    "gauss": (KnownGaussian(sigma=1.0), KnownGaussian(sigma=0.8)),
    "laplace": (KnownLaplace(epsilon=2.5), KnownLaplace(epsilon=3.0)),
}


def made(kind, d_bar, centre, delta=0.05):
    noise, common = NOISES[kind]
    return UnknownCentred(d_bar=d_bar, noise=noise, common=common, centre=centre, delta=delta)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "d_bar", "centre", "linf", "l0"),
    [
        ("gauss", 1, HALF, 1, None),
        ("gauss", 1, HALF, 1, 1),
        ("gauss", 1, THIRD, 1, 1),
        ("gauss", 1, THIRD, 2, 1),
        ("gauss", 1, HALF, 2, None),
        ("gauss", 2, HALF, 1, None),
        ("gauss", 2, THIRD, 1, 1),
        ("laplace", 1, HALF, 1, None),
        ("laplace", 1, THIRD, 1, 1),
    ],
)
def test_what_is_shown_costs_no_more_than_the_charge(kind, d_bar, centre, linf, l0):
    over, ratio = excess(made(kind, d_bar, centre), Sensitivity(linf=linf, l0=l0))
    assert over <= TOLERANCE
    assert ratio >= 0.2


class _TooLow(UnknownCentred):
    """A threshold by the noise of one count instead of the difference from the floor's: what must
    be caught.
    """

    def noise_offset(self, sensitivity, special):
        return super().noise_offset(sensitivity, special) - 2


class _OwnCommon(UnknownCentred):
    """A floor that does not carry Y, so that Y does not cancel: its noise is that of Z_0 alone."""

    def above_floor(self, noise, floor_noise):
        return super().above_floor(noise, 0 * floor_noise)


@pytest.mark.parametrize("mutant", [_TooLow, _OwnCommon])
def test_mutants_are_caught(mutant):
    noise = KnownGaussian(sigma=1.0)
    wrong = mutant(d_bar=1, noise=noise, common=KnownGaussian(sigma=0.8), delta=1e-3)
    assert excess(made("gauss", 1, HALF, 1e-3), Sensitivity(l0=1))[0] <= TOLERANCE
    assert excess(wrong, Sensitivity(l0=1))[0] > 1e-3


def test_the_charge_is_that_of_the_slots_the_floor_and_one_common_noise():
    """With l0 labels the centre moves; for linf > 1 one more quantity than labels may move far."""
    mechanism = made("gauss", 3, THIRD, 0.01)
    for linf, l0, far in ((1, 1, 1), (2, 1, 2), (2, 2, 3), (1, None, 4), (3, 9, 4)):
        charge = mechanism.charge(Sensitivity(linf=linf, l0=l0))
        own = {cost.shift // linf: times for cost, times in charge if cost.scale == linf}
        assert (own.get(2, 0), own.get(1, 0)) == (far, 4 - far)
        assert charge.delta == 0.01
        assert sum(charge.costs.values()) == 5
    fewer = Charge(
        {
            cost: times
            for cost, times in made("gauss", 1, HALF).charge(Sensitivity())
            if cost.scale == 1.0
        }
    )
    assert not math.isclose(
        promised(fewer)[1], promised(made("gauss", 1, HALF).charge(Sensitivity()))[1]
    )


def test_a_release_shows_these_integers(monkeypatch):
    """Given the noise, the rows are those of the rule, their values (b·x + Z + Y)/b with one Y."""
    from dptopk import Histogram

    rng = np.random.default_rng(5)
    for centre in (HALF, Fraction(2, 5)):
        mechanism = made("laplace", 2, centre)
        own, y = rng.integers(-30, 30, 3), rng.integers(-9, 9, 1)
        monkeypatch.setattr(
            KnownLaplace,
            "draw_noise",
            lambda self, s, size, bits, z=own, y=y: z[:size] if self.epsilon == 2.5 else y,
        )
        offset, b, counts = (
            mechanism.threshold_offset(Sensitivity()),
            centre.denominator,
            [40, 25, 5],
        )
        release = mechanism.release(Histogram(["a", "b", "c"], counts))
        shown = dict(zip(release.labels, release.counts.tolist(), strict=True))
        for label, count, z in zip("ab", counts, own[:2].tolist(), strict=False):
            passes = b * count + z > b * 5 + own[2] + b * offset
            assert (label in shown) == passes
            assert not passes or round(shown[label] * b) == b * count + z + y[0]
