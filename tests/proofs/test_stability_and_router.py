"""Stability and the router: exact laws on small worlds, every neighbour; thresholds one lower are caught."""

import itertools
import math

import numpy as np
import pytest

from dptopk import Histogram, RoutedTopK, Sensitivity, StabilityTopK, compose
from dptopk.mechanisms import router, selection, stability
from dptopk.mechanisms.laplace import KnownLaplace
from dptopk.mechanisms.one_shot import OneShotTopK

from .harness import World, hockey_stick
from .paths import law_of, paths
from .test_whole_answers import neighbours

COSTLY = {"k": 2, "epsilon": 3.0, "delta": 0.2}


def matrix_of(world, law):
    """Laws of all histograms as rows, over the outcomes that occur."""
    each = [law(world.histogram(counts)) for counts in world.counts]
    outcomes = sorted({outcome for one in each for outcome in one})
    return np.array([[one.get(outcome, 0.0) for outcome in outcomes] for one in each]), outcomes


@pytest.fixture
def stability_law(monkeypatch):
    """The law of labels with the size of the exact set: every draw is answered in every way."""

    def law(mechanism, histogram):
        falling = np.sort(histogram.counts)[::-1]
        gaps = falling[:-1] - falling[1:]

        def run(choose):
            def select(counts, k, *, epsilon, linf, bits, absent=0):
                left = list(range(len(counts)))
                weights = np.exp(epsilon / linf * (np.asarray(counts) - max(counts)))
                return selection.Selection(np.array([left.pop(choose(weights[left])) for _ in range(k)]), False)

            def noise(self, sensitivity, size, bits):
                q, values = math.exp(-self.epsilon / sensitivity.linf), np.arange(-60, 61)
                # Only whether a gap passes matters: one value for each run that no gap of this world tells apart.
                run_of = np.searchsorted(np.sort(mechanism.threshold(sensitivity) - gaps), values)
                runs, firsts = np.unique(run_of, return_index=True)
                return values[firsts[[choose([(q ** np.abs(values[run_of == run])).sum() for run in runs])]]]

            monkeypatch.setattr(stability, "gumbel_top_k", select)
            monkeypatch.setattr(KnownLaplace, "noise", noise)
            release = mechanism.release(histogram)
            return release.note, *release.labels

        return law_of(run)

    return law


@pytest.mark.parametrize("sensitivity", [Sensitivity(), Sensitivity(linf=2)], ids=str)
def test_stability_stays_within_its_charge(stability_law, sensitivity):
    mechanism = StabilityTopK(**COSTLY)
    level = mechanism.threshold(sensitivity)
    world = World(3, (0, sensitivity.linf, level + 1), sensitivity, "public")
    matrix, _ = matrix_of(world, lambda histogram: stability_law(mechanism, histogram))
    charge = mechanism.charge(sensitivity)
    surely = sum(cost.epsilon * times for cost, times in charge.costs.items())
    found = hockey_stick(matrix, neighbours(world), [surely, mechanism.epsilon])
    assert found[0] <= charge.delta + 1e-9
    assert found[1] <= mechanism.delta + 1e-9
    assert compose(charge, delta=mechanism.delta).epsilon <= mechanism.epsilon
    # A threshold that is lower, as without the linf by which a gap may move, releases unstable sets too often.

    class Lower(StabilityTopK):
        def threshold(self, sensitivity):
            return super().threshold(sensitivity) - sensitivity.linf - 1

    matrix, _ = matrix_of(world, lambda histogram: stability_law(Lower(**COSTLY), histogram))
    assert hockey_stick(matrix, neighbours(world), [surely])[0] > found[0]


def test_stability_is_charged_for_what_it_peeled():
    far = Histogram(None, [10**6, 10**6 - 9, 5, 4])
    mechanism = StabilityTopK(k=2, epsilon=1.0, delta=1e-6)
    release = mechanism.release(far, np.random.default_rng(0))
    assert set(release.labels) == {0, 1}
    assert sum(release.charge.costs.values()) == 2  # the choice and the test
    assert sum(mechanism.charge(Sensitivity()).costs.values()) == 4


def test_utilities_of_sizes_move_by_at_most_linf():
    for gaps, move in itertools.product(itertools.product(range(5), repeat=3), itertools.product((-1, 0, 1), repeat=3)):
        one, other = (stability.utilities(np.array(g), 2) for g in (gaps, np.add(gaps, move)))
        assert np.abs(one - other).max() <= 1


@pytest.fixture
def router_law(monkeypatch):
    """P[drawn at once] from the mechanism's own decision."""

    def law(mechanism, histogram):
        class Coin:
            def __init__(self, choose):
                self.choose = choose

            def low_bits(self, size, width):
                return [self.choose([0.5, 0.5])]

        def run(choose):
            def coin(x, exact, bits):
                assert float(exact(0)) == pytest.approx(x[0])
                return np.array([choose([-math.expm1(-x[0]), math.exp(-x[0])]) == 1])

            monkeypatch.setattr(router, "bernoulli_exp", coin)
            return mechanism._at_once(histogram, Coin(choose))

        return law_of(run)

    return law


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("sensitivity", [Sensitivity(), Sensitivity(linf=2)], ids=str)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_choice_costs_its_share(router_law, sensitivity, ordered, delta):
    mechanism = RoutedTopK(k=2, epsilon=4.0, delta=delta, ordered=ordered)
    world = World(4, (0, 1, 6, 7), sensitivity, "public")
    pairs = neighbours(world)
    margins = np.array([mechanism.margin(world.histogram(counts)) for counts in world.counts])
    moves = np.abs(margins[pairs[:, 1]] - margins[pairs[:, 0]])
    assert 0.1 * mechanism.rest < moves.max() <= mechanism.statistic_range
    rows = np.unique(pairs[np.argsort(-moves)[:40]])
    laws = {row: router_law(mechanism, world.histogram(world.counts[row])) for row in rows}
    for one, other in pairs[np.argsort(-moves)[:40]]:
        for outcome in (True, False):
            p, q = laws[one].get(outcome, 0.0), laws[other].get(outcome, 0.0)
            assert abs(math.log(p) - math.log(q)) <= mechanism.share * (1 + 1e-9)


def test_a_statistic_at_twice_the_rate_would_be_caught():
    mechanism = RoutedTopK(k=2, epsilon=4.0)
    world = World(4, (0, 1, 6, 7), Sensitivity(), "public")
    pairs = neighbours(world)

    def margins(rate):
        from dptopk.mechanisms.canonical import Subsets
        from dptopk.mechanisms.slack import Ranked, log_odds

        return np.array([log_odds(Subsets(Ranked(c.astype(np.int64), 0), 2), rate, 2, 0.01) for c in world.counts])

    for factor, fits in ((1, True), (2, False)):
        found = margins(factor * mechanism.rest / 2)
        assert (np.abs(found[pairs[:, 1]] - found[pairs[:, 0]]).max() <= mechanism.statistic_range) == fits


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_charge_of_the_router_covers_either_answer(delta):
    mechanism = RoutedTopK(k=20, epsilon=1.0, delta=delta)
    assert compose(mechanism.charge(Sensitivity()), delta=delta).epsilon <= 1.0
    for answer in (mechanism.whole, mechanism.peeling):
        assert compose(answer.charge(Sensitivity()), delta=delta).epsilon <= mechanism.rest
    assert mechanism.share + mechanism.rest <= 1.0
    assert isinstance(mechanism.peeling, OneShotTopK) == (delta == 0)


def test_the_router_finds_the_side_where_it_is_plain():
    """Wide gaps are drawn at once, ties are peeled; the note says which."""
    wide = Histogram(None, np.arange(300, 0, -1) * 1000)
    narrow = Histogram(None, np.full(3000, 50))
    mechanism, rng = RoutedTopK(k=100, epsilon=1.0), np.random.default_rng(2)
    assert {mechanism.release(wide, rng).note for _ in range(5)} == {
        "drawn by CanonicalTopK: a set, in label order: ranks mean nothing"
    }
    assert set(mechanism.release(wide, rng).labels) == set(range(100))
    notes = [mechanism.release(narrow, rng).note for _ in range(30)]
    assert notes.count("drawn by OneShotTopK") > 20


def test_paths_enumerates_everything():
    law = dict(paths(lambda choose: (choose([1, 0, 3]), choose([1, 1]))))
    assert law == {(0, 0): 0.125, (0, 1): 0.125, (2, 0): 0.375, (2, 1): 0.375}
