"""The truncated Gaussian over an unknown domain: as published (a threshold without noise), and
mended.

The published form exists only here, to show that it is not private:
docs/notes/truncated-gaussian-violation.md.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dptopk import Sensitivity, TruncatedGaussian

from .charges import delta_of
from .harness import World, hockey_stick, laws
from .test_counting import counting_law, noise_table

SENSITIVITY = Sensitivity(l0=1)


@dataclass(frozen=True, kw_only=True)
class Published(TruncatedGaussian):
    """Algorithm 2 of Cesar-Rogers 2022 on integers: noise on the counts only, released above
    h_(d_bar+1) + τ + T.
    """

    def slots(self, histogram):
        return replace(super().slots(histogram), noisy_floor=False)

    def threshold_offset(self, sensitivity):
        return sensitivity.linf + self.bound(sensitivity)


def divergences(cls, sigma, delta, levels, epsilons):
    """T, the divergence at each ε over all pairs of two counts among ``levels``, and what the
    charge promises there.
    """
    mechanism = cls(sigma=sigma, delta=delta, d_bar=1)
    world = World(2, levels, SENSITIVITY)
    pmf = noise_table(mechanism, SENSITIVITY)
    matrix = laws(world, lambda histogram: counting_law(mechanism, histogram, pmf))
    charge = mechanism.charge(SENSITIVITY)
    promised = np.array([delta_of(charge, epsilon) for epsilon in epsilons])
    return (
        mechanism.bound(SENSITIVITY),
        hockey_stick(matrix, world.neighbours(), epsilons),
        promised,
    )


def test_the_published_form_breaks_its_claim_by_orders_of_magnitude():
    epsilons = (0.3, 1.0, 2.0)
    bound, found, promised = divergences(Published, 3.0, 0.0015, tuple(range(16)), epsilons)
    assert bound == 9
    # One value of the released count is possible on one side only: the mode of the noise, whatever
    # ε.
    mode = 1 / (3.0 * math.sqrt(2 * math.pi))
    assert found == pytest.approx(mode, rel=0.01)
    assert found[-1] > 50 * promised[-1]


def test_the_mended_form_keeps_its_promise_on_the_same_worlds():
    epsilons = (0.3, 1.0, 2.0, 4.0)
    bound, found, promised = divergences(
        TruncatedGaussian, 3.0, 0.0015, (0, 1, 2, 18, 19, 20, 21, 22), epsilons
    )
    assert bound == 9
    assert (found <= promised).all()


@pytest.mark.slow
def test_the_violation_does_not_shrink_with_delta():
    epsilons = (0.5,)
    for delta in (1e-3, 1e-6, 1e-9):
        bound, found, _ = divergences(Published, 3.0, delta, (0, 1, *range(8, 32)), epsilons)
        assert found[0] == pytest.approx(1 / (3.0 * math.sqrt(2 * math.pi)), rel=0.01)
        assert bound < 30
