"""The harness catches mechanisms that are wrong by one step, and the bounds that should be attained
are.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from dptopk import (
    Charge,
    KnownLaplace,
    Sensitivity,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownLaplace,
)
from dptopk._internal import maxima, tails
from dptopk.costs import PureDP
from dptopk.histogram.histogram import descending_order
from dptopk.mechanisms.thresholds import Slots

from .charges import delta_of
from .harness import LABELS, World, counting_law, hockey_stick, laws
from .test_counting import EPSILONS, TOLERANCE, divergence, excess, noise_table, world_for

ONE = Sensitivity(l0=1)


def mutant(mechanism, **methods):
    """The mechanism with some of its methods replaced."""
    cls = type("Mutant" + type(mechanism).__name__, (type(mechanism),), methods)
    return cls(**{name: getattr(mechanism, name) for name in mechanism.__dataclass_fields__})


def lower_threshold(mechanism, by=1):
    return mutant(mechanism, threshold_offset=lambda self, s: mechanism.threshold_offset(s) - by)


# δ just above a value that the discrete law attains, so that every step of a threshold matters.
def exactly(attained):
    return attained * (1 + 1e-6)


TIGHT = [
    (linf, mechanism)
    for linf in (1, 2)
    for mechanism in (
        UnknownLaplace(
            d_bar=1, epsilon=3.0, delta=exactly(tails.laplace_difference_tail(3.0 / linf, 1))
        ),
        UnknownGaussian(
            d_bar=1, sigma=0.8, delta=exactly(tails.gaussian_difference_tail(0.8 * linf, 2))
        ),
        TruncatedGaussian(sigma=0.8, delta=exactly(tails.gaussian_edge_mass(0.8 * linf, linf, 3))),
        TruncatedGaussian(
            sigma=0.8, delta=exactly(tails.gaussian_edge_mass(0.8 * linf, linf, 3)), d_bar=1
        ),
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("linf", "mechanism"), TIGHT, ids=str)
def test_delta_is_attained_and_the_next_smaller_threshold_is_caught(linf, mechanism):
    sensitivity = Sensitivity(linf=linf, l0=1)
    world = world_for(mechanism, sensitivity)
    found = divergence(mechanism, world)
    assert found[-1] == pytest.approx(
        mechanism.delta, abs=TOLERANCE
    )  # what one side alone can release
    if isinstance(mechanism, TruncatedGaussian):
        wrong = mutant(mechanism, bound=lambda self, s: mechanism.bound(s) - 1)
    else:
        wrong = lower_threshold(mechanism)
    assert divergence(wrong, world)[-1] > mechanism.delta * 1.2


@pytest.mark.parametrize("linf", [1, 2, 3])
def test_the_whole_truncated_form_needs_its_threshold_and_no_more(linf):
    """A label that one side alone has, of count linf: at T it attains δ, at T - 1 it exceeds it."""
    sensitivity = Sensitivity(linf=linf, l0=1)
    q = tails.gaussian_edge_mass(0.8 * linf, linf, 3 * linf)
    mechanism = TruncatedGaussian(sigma=0.8, delta=exactly(q))
    alone = World(1, (0, *range(1, linf + 1)), sensitivity)
    assert mechanism.threshold_offset(sensitivity) == mechanism.bound(sensitivity)
    assert divergence(mechanism, alone)[-1] == pytest.approx(q, abs=TOLERANCE)
    assert (
        excess(
            mechanism, World(2, (0, 1, linf, 2 * linf, 4 * linf, 5 * linf, 6 * linf), sensitivity)
        )
        <= TOLERANCE
    )
    assert divergence(lower_threshold(mechanism), alone)[-1] > q * 1.2


SHARED = [
    pytest.param(m, linf, mechanism, marks=[pytest.mark.slow] * (m == 3 and linf == 2))
    for m in (1, 2, 3)
    for linf in (1, 2)
    for mechanism in (
        UnknownLaplace(
            d_bar=m, epsilon=3.0, delta=exactly(maxima.laplace_maximum_tail(3.0 / linf, m, 1))
        ),
        UnknownGaussian(
            d_bar=m, sigma=0.7, delta=exactly(maxima.gaussian_maximum_tail(0.7 * linf, m, 2))
        ),
    )
]


@pytest.mark.parametrize(("m", "linf", "mechanism"), SHARED, ids=str)
def test_slots_that_share_the_floor_attain_delta_together(m, linf, mechanism):
    """m new labels of count linf against none: one side alone can release, with probability P[max
    of m - N0 > c].
    """
    sensitivity = Sensitivity(linf=linf, l0=m)
    world = World(m, (0, linf), sensitivity)
    assert excess(mechanism, world) <= TOLERANCE
    assert divergence(mechanism, world)[-1] == pytest.approx(mechanism.delta, abs=2 * TOLERANCE)
    assert divergence(lower_threshold(mechanism), world)[-1] > mechanism.delta * 1.2
    # A union of m events over independent floors would need more than this δ here.
    c = mechanism.threshold_offset(sensitivity) - linf
    assert m == 1 or m * mechanism.threshold_tail(sensitivity)(c) > mechanism.delta * 1.02


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [mechanism for m, linf, mechanism in (case.values for case in SHARED) if m > linf == 1],
    ids=str,
)
def test_slots_that_share_the_floor_between_all_neighbours(mechanism):
    """Displaced and entering labels, and a floor that moves, at the lowest threshold that δ
    allows.
    """
    sensitivity = Sensitivity(l0=mechanism.d_bar)
    levels = world_for(mechanism, sensitivity).levels if mechanism.d_bar == 2 else (0, 1, 2)
    assert excess(mechanism, World(3, levels, sensitivity)) <= TOLERANCE


@pytest.mark.slow
def test_the_noise_on_the_floor_is_needed():
    """A threshold that moves with the data but carries no noise: Algorithm 2 of Cesar-Rogers 2022,
    and UnkLap so.
    """
    for mechanism in (
        UnknownLaplace(d_bar=1, epsilon=3.0, delta=0.01),
        TruncatedGaussian(sigma=1.5, delta=0.001, d_bar=1),
    ):
        offset = mechanism.threshold_offset(ONE)
        wrong = mutant(
            mechanism, slots=lambda self, h, m=mechanism: replace(m.slots(h), noisy_floor=False)
        )
        world = World(3, (0, 1, 2, offset, offset + 1, offset + 2, offset + 3), ONE)
        assert excess(mechanism, world) <= TOLERANCE
        assert excess(wrong, world) > 0.1


def test_rows_in_the_order_of_the_true_counts_are_caught():
    world = World(2, (0, 1, 2, 3), ONE, "public")
    mechanism = KnownLaplace(epsilon=0.5)
    pmf = noise_table(mechanism, ONE)

    def by_true_counts(histogram):
        counts = dict(zip(LABELS, histogram.counts.tolist(), strict=False))
        order = lambda values, labels: np.argsort(  # noqa: E731
            [-counts[label] for label in labels], kind="stable"
        )
        return counting_law(mechanism, histogram, pmf, order=order)

    promised = delta_of(mechanism.charge(ONE), 1.0)
    assert hockey_stick(laws(world, by_true_counts), world.neighbours(), [1.0])[0] > 0.8 > promised
    honest = laws(
        world, lambda histogram: counting_law(mechanism, histogram, pmf, order=descending_order)
    )
    assert hockey_stick(honest, world.neighbours(), [1.0])[0] <= promised + TOLERANCE


def test_ties_at_the_cut_must_not_be_broken_by_the_data():
    """If the order of tied labels may change with the data, an untouched label enters too, and m =
    1 is not enough.
    """
    mechanism = UnknownLaplace(
        d_bar=2, epsilon=3.0, delta=exactly(tails.laplace_difference_tail(3.0, 1))
    )

    def engine_order(self, histogram):
        counts = histogram.counts * 2 + (LABELS[: len(histogram)] > "b") * (
            histogram.counts.sum() % 2
        )
        rows = np.argsort(-counts, kind="stable")
        rows = rows[histogram.counts[rows] > 0]
        floor = int(histogram.counts[rows[2]]) if len(rows) > 2 else 0
        return Slots(histogram.labels[rows[:2]], histogram.counts[rows[:2]], floor)

    world = World(4, (1, 2), ONE)
    assert excess(mechanism, world) <= TOLERANCE
    assert excess(mutant(mechanism, slots=engine_order), world) > 1e-4


def test_without_a_bound_on_touched_labels_the_floor_counts_too():
    """UnknownLaplace with l0=None pays d_bar + 1 copies; d_bar copies would not cover slots and
    floor together.
    """
    sensitivity = Sensitivity()
    mechanism = UnknownLaplace(d_bar=1, epsilon=3.0, delta=0.01)
    world = world_for(mechanism, sensitivity)
    assert excess(mechanism, world) <= TOLERANCE
    cheaper = mutant(
        mechanism, charge=lambda self, s, labels=None: Charge({PureDP(3.0): 1}, delta=self.delta)
    )
    assert excess(cheaper, world) > 1e-3


def test_half_the_noise_is_caught():
    world = World(2, (0, 1, 2), Sensitivity(l0=2), "public")
    mechanism = KnownLaplace(epsilon=1.0)
    law = noise_table(KnownLaplace(epsilon=2.0), world.sensitivity)
    matrix = laws(world, lambda histogram: counting_law(mechanism, histogram, law))
    promised = [delta_of(mechanism.charge(world.sensitivity), epsilon) for epsilon in EPSILONS[:-1]]
    assert (hockey_stick(matrix, world.neighbours(), EPSILONS[:-1]) - promised).max() > 0.1


def test_a_missing_label_and_nothing_else():
    """The equality behind the threshold of UnknownLaplace: an empty histogram against one label of
    count linf.
    """
    for linf in (1, 2, 3):
        sensitivity = Sensitivity(linf=linf, l0=1)
        mechanism = UnknownLaplace(d_bar=1, epsilon=3.0, delta=0.02)
        c = mechanism.threshold_offset(sensitivity) - linf
        found = divergence(mechanism, World(1, (0, linf), sensitivity))
        exact = tails.laplace_difference_tail(3.0 / linf, c)
        assert found[EPSILONS.index(math.inf)] == pytest.approx(exact, rel=1e-5)
