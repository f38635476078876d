"""Selections: the exact law of the sequences that a release draws, for every neighbouring pair."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from dptopk import Exponential, Histogram, KnownGumbel, Sensitivity, UnknownGumbel
from dptopk.costs import BoundedRange, Charge, ExponentialClockDP
from dptopk.mechanisms.samplers import selection

from .charges import delta_of
from .harness import LABELS, World, hockey_stick, laws

TOLERANCE = 1e-6
SENSITIVITIES = [Sensitivity(linf=linf, l0=l0) for linf in (1, 2, 3) for l0 in (1, 2, None)]


def peeling(weights, k, stop):
    """All sequences of selections (a stop is None) and their probabilities."""
    yield from _peel((), 1.0, dict(enumerate(weights)) | ({} if stop is None else {None: stop}), k)


def _peel(chosen, mass, left, k):
    if k == 0 or not left or (chosen and chosen[-1] is None):
        yield chosen, mass
        return
    total = math.fsum(left.values())
    for index, weight in left.items():
        rest = {other: w for other, w in left.items() if other != index}
        yield from _peel((*chosen, index), mass * weight / total, rest, k - 1)


@pytest.fixture
def selection_law(monkeypatch):
    """The law of a release: its call of the sampler is answered with each sequence in turn."""

    def law(mechanism, histogram):
        calls, answers = [], []

        def sampler(counts, k, *, epsilon, linf, bits, absent=0, stop=None):
            calls.append((np.asarray(counts, dtype=float), k, epsilon / linf, absent, stop))
            return (
                answers[0]
                if answers
                else selection.Selection(np.arange(min(k, len(counts))), False)
            )

        for module in ("gumbel", "exponential"):
            monkeypatch.setattr(f"dptopk.mechanisms.{module}.gumbel_top_k", sampler)
        mechanism.release(histogram)
        counts, k, rate, absent, stop = calls[0]
        assert absent == 0
        codes, mass = [], []
        for sequence, probability in peeling(
            np.exp(rate * counts), k, None if stop is None else math.exp(rate * float(stop))
        ):
            indices = [index for index in sequence if index is not None]
            answers[:] = [selection.Selection(np.array(indices, dtype=np.int64), None in sequence)]
            release = mechanism.release(histogram)
            if release.charge.of(
                ExponentialClockDP
            ):  # what clocks cost does not depend on the answer
                assert release.charge == mechanism.charge(histogram.sensitivity)
            else:
                assert release.charge.count == len(sequence)
            codes.append(_code(release.labels, None in sequence))
            mass.append(probability)
        order = np.argsort(codes)
        return np.array(codes)[order], np.array(mass)[order]

    return law


def _code(labels, stopped):
    code = 0
    for label in labels:
        code = code * 8 + 1 + list(LABELS).index(label)
    return code * 8 + 7 if stopped else code


def bound(mechanism, sensitivity, epsilons):
    charge = mechanism.charge(sensitivity)
    return np.array([delta_of(charge, epsilon) for epsilon in epsilons])


def epsilons_of(mechanism):
    return (*np.linspace(0, 1, 6) * mechanism.k * mechanism.epsilon, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("sensitivity", SENSITIVITIES, ids=str)
@pytest.mark.parametrize(
    ("k", "charge_as"), [(1, "bounded_range"), (2, "bounded_range"), (3, "clocks")]
)
def test_known(selection_law, k, charge_as, sensitivity):
    if charge_as == "clocks" and sensitivity.l0 is None:
        sensitivity = replace(sensitivity, l0=3)
    mechanism = KnownGumbel(k=k, epsilon=0.8, charge_as=charge_as)
    world = World(3, (0, 1, 2, 3), sensitivity, "public")
    matrix = laws(world, lambda histogram: selection_law(mechanism, histogram))
    epsilons = epsilons_of(mechanism)
    assert (
        hockey_stick(matrix, world.neighbours(), epsilons)
        <= bound(mechanism, sensitivity, epsilons) + 1e-5
    ).all()
    assert matrix.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("sensitivity", SENSITIVITIES, ids=str)
def test_exponential(selection_law, sensitivity):
    """One selection by counts is within BR(ε), and attains it; half that charge would be a lie."""
    mechanism = Exponential(epsilon=0.8, utility_range=sensitivity.linf)
    world = World(3, (0, 1, 2, 3), sensitivity, "public")
    matrix = laws(world, lambda histogram: selection_law(mechanism, histogram))
    epsilons = (*np.linspace(0, 0.8, 9), math.inf)
    found, charge = (
        hockey_stick(matrix, world.neighbours(), epsilons),
        mechanism.charge(sensitivity),
    )
    assert (found <= [delta_of(charge, epsilon) + 1e-5 for epsilon in epsilons]).all()
    half = Charge({BoundedRange(0.4): 1})
    assert (found > [delta_of(half, epsilon) + 1e-2 for epsilon in epsilons]).any()


UNKNOWN = [
    UnknownGumbel(k=k, d_bar=d, epsilon=0.8, delta=delta)
    for k, d, delta in [(1, 1, 0.05), (1, 2, 0.2), (2, 2, 0.1)]
] + [
    UnknownGumbel(k=d, d_bar=d, epsilon=0.8, delta=delta, charge_as="clocks")
    for d, delta in [(1, 0.05), (2, 0.2)]
]


@pytest.mark.slow
@pytest.mark.parametrize("sensitivity", SENSITIVITIES, ids=str)
@pytest.mark.parametrize("mechanism", UNKNOWN, ids=str)
def test_unknown(selection_law, mechanism, sensitivity):
    offset, linf = mechanism.threshold_offset(sensitivity), sensitivity.linf
    world = World(3, (*range(linf + 2), offset, offset + linf), sensitivity)
    matrix = laws(world, lambda histogram: selection_law(mechanism, histogram))
    epsilons = epsilons_of(mechanism)
    found = hockey_stick(matrix, world.neighbours(), epsilons)
    assert (found <= bound(mechanism, sensitivity, epsilons) + 1e-5).all()
    # Attained from k·ε on: new labels of count linf against none, racing with ⊥ alone.
    special = mechanism.d_bar if sensitivity.l0 is None else min(sensitivity.l0, mechanism.d_bar)
    attained = special / (special + math.exp(mechanism.epsilon / linf * (offset - linf)))
    assert found[-1] == pytest.approx(attained, rel=1e-9)
    assert found[-2] == pytest.approx(attained, rel=1e-9)


def test_a_threshold_lower_by_one_is_caught(selection_law):
    attained = 1 / (1 + math.exp(0.8 * 3)) * (1 + 1e-9)

    class Lower(UnknownGumbel):
        def threshold_offset(self, sensitivity):
            return super().threshold_offset(sensitivity) - 1

    world = World(2, (0, 1, 2, 4, 5), Sensitivity(l0=1))
    for cls, caught in [(UnknownGumbel, False), (Lower, True)]:
        mechanism = cls(k=1, d_bar=1, epsilon=0.8, delta=attained)
        matrix = laws(world, lambda histogram, m=mechanism: selection_law(m, histogram))
        found = hockey_stick(matrix, world.neighbours(), [0.8, math.inf])
        assert (found.max() > attained * 1.5) == caught


@pytest.mark.parametrize("linf", [1, 2, 3])
def test_each_selection_has_bounded_range(selection_law, linf):
    """For every pair and every prefix, the log ratio of the next selection's law spans at most ε,
    and spans ε once.
    """
    epsilon, world = 0.8, World(3, (0, 1, 2, 3), Sensitivity(linf=linf, l0=2), "public")
    single = {}
    for counts in itertools.product(world.levels, repeat=3):
        for kept in ((0, 1, 2), (0, 1), (0, 2), (1, 2)):  # what earlier selections left
            sub = World(len(kept), world.levels, world.sensitivity, "public").histogram(
                np.array(counts)[list(kept)]
            )
            single[counts, kept] = selection_law(KnownGumbel(k=1, epsilon=epsilon), sub)[1]
    rows = [tuple(row) for row in world.counts.tolist()]
    spans = [
        np.ptp(np.log(single[rows[i], kept] / single[rows[j], kept]))
        for i, j in world.neighbours()
        for kept in ((0, 1, 2), (0, 1), (0, 2), (1, 2))
    ]
    assert max(spans) == pytest.approx(epsilon)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_a_source_that_cuts_may_break_ties_by_any_fixed_order_of_labels(selection_law, order):
    """Rows cut to three by count, ties in an order other than ours: still one label enters for one
    that moves.
    """
    sensitivity = Sensitivity(l0=1)
    attained = 1 / (1 + math.exp(0.2 * 3)) * (1 + 1e-9)
    mechanism = UnknownGumbel(k=1, d_bar=2, epsilon=0.2, delta=attained)
    world = World(4, (0, 1, 2), sensitivity)

    def cut(histogram):
        rows = np.lexsort((np.array(order), -histogram.counts))[:3]
        labels, counts = histogram.labels[rows], histogram.counts[rows]
        return Histogram(labels, counts, complete=False, limit=3, sensitivity=sensitivity)

    matrix = laws(world, lambda histogram: selection_law(mechanism, cut(histogram)))
    assert hockey_stick(matrix, world.neighbours(), [mechanism.epsilon])[0] == pytest.approx(
        attained
    )
