"""The game of a few concentrated costs: majorants, laws, and both ends against other computations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dptopk import Charge, compose
from dptopk.accounting.pld.lattice import product
from dptopk.accounting.pld.loss_components import Grid
from dptopk.accounting.setwise import playable_laws
from dptopk.accounting.setwise.concentrated_game import ConcentratedGame
from dptopk.accounting.setwise.game_answers import delta_at, epsilon_at
from dptopk.accounting.setwise.law_families import law_family
from dptopk.accounting.setwise.majorants import Majorant, ValueTable, chord_factor, chord_gaps
from dptopk.accounting.setwise.moment_program import MomentClass, moment_class
from dptopk.accounting.setwise.playable_laws import PlayableFamily, playable_family
from dptopk.accounting.setwise.several_games import games_of_parts
from dptopk.accounting.setwise.step_program import step_solutions
from dptopk.accounting.setwise.zcdp_gaussian import played_as_gaussians
from dptopk.costs import CDP, ZCDP

RHO = 0.05
MOMENTS = MomentClass(RHO)
H = MOMENTS.deviation / 12
NOTHING = ValueTable.of_nothing(H, upper=True)


CENTRED = MomentClass(RHO, -0.02, centred=True)
LARGEST = 6 * MOMENTS.deviation


def _solution(node, moments=MOMENTS, value=NOTHING):
    family = law_family(moments, H, LARGEST)
    (found,) = step_solutions(moments, value, np.array([node]), family)
    return found, Majorant.of(found, moments).lifted(value, found.compared)


def _above_chords(majorant, value) -> bool:
    """Whether F is above the chords of V's upper bounds, at ten points of each cell and far out."""
    nodes = np.arange(-150, 400)
    known = value.at(nodes)
    for share in np.linspace(0, 1, 11):
        w = np.exp(nodes[:-1] * H) * (1 - share) + np.exp(nodes[1:] * H) * share
        chord = known[:-1] * (1 - share) + known[1:] * share
        t = w * math.exp(-majorant.x)
        total = majorant.constant + majorant.slope * t
        total = total - majorant.linear * np.log(t) + majorant.reversed_linear * t * np.log(t)
        for weight, exponent in zip(majorant.weights, majorant.exponents, strict=True):
            total = total + weight * t ** (-exponent)
        if (total < chord * (1 - 1e-9)).any():
            return False
    return True


@pytest.mark.parametrize("deviations", [0.0, 0.7, 2.0, 4.3])
@pytest.mark.parametrize("moments", [MOMENTS, CENTRED])
def test_a_lifted_majorant_is_above_v_everywhere(deviations, moments) -> None:
    _, majorant = _solution(round(deviations * 12), moments)
    assert _above_chords(majorant, NOTHING)


def test_multipliers_that_are_not_lifted_are_not() -> None:
    """A smaller weight, as a solver's error would leave it, is caught by the comparison above and
    mended by ``lifted``.
    """
    found, majorant = _solution(24)
    small = replace(majorant, weights=majorant.weights * 0.99)
    assert not _above_chords(small, NOTHING)
    wrong = Majorant.of(replace(found, weights=found.weights * 0.9), MOMENTS)
    assert _above_chords(wrong.lifted(NOTHING, np.arange(-40, 130)), NOTHING)


@pytest.mark.parametrize("exponents", [(8.0, 5.0, 0.3), (8.0, -0.01, 0.2), (8.0, 0.05, -0.1)])
def test_logarithms_in_a_majorant(exponents) -> None:
    """Convex and concave parts of L and of -L e^{-L} are above V between the nodes, too; far to the
    left and to the right where the majorant is not refused.
    """
    order, linear, product = exponents
    multipliers = Majorant(
        x=0.5,
        moments=CENTRED,
        constant=0.0,
        slope=0.0,
        weights=np.array([1e-3, 1e-3]),
        exponents=np.array([order, -1 - order]),
        linear=linear,
        reversed_linear=product,
    )
    majorant = multipliers.lifted(NOTHING, np.arange(-150, 200))
    assert majorant is not None
    assert _above_chords(majorant, NOTHING)


def test_a_majorant_that_is_not_convex_on_the_left_is_refused() -> None:
    """Without a moment that grows there, a logarithm falls below V = 1 far to the left."""
    falling = Majorant(0.5, CENTRED, 3.0, 0.0, np.array([]), np.array([]), linear=-0.1)
    assert falling.lifted(NOTHING, np.arange(-40, 130)) is None


def test_the_gaps_of_chords() -> None:
    t = np.linspace(1.0, math.exp(H), 2001)
    gaps = []
    for values in (-np.log(t), t * np.log(t)):
        chord = values[0] + (values[-1] - values[0]) * (t - 1) / (t[-1] - 1)
        gaps.append(float((chord - values).max()))
    for gap, bound in zip(gaps, chord_gaps(H), strict=True):
        assert gap <= bound <= gap * (1 + 1e-5) + 1e-13


@pytest.mark.parametrize("exponent", [-40.0, -1.3, 1.5, 12.0])
def test_the_factor_of_a_chord(exponent) -> None:
    t = np.linspace(1.0, math.exp(H), 2001)
    s = math.expm1(exponent * H) / math.expm1(H)
    ratio = (1 + s * (t - 1)) / t**exponent
    assert ratio.max() <= chord_factor(exponent, H) <= ratio.max() * (1 + 1e-6)


def _moments_hold(losses, masses, cost) -> bool:
    """The class's definition, at orders that the engine does not use."""
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    assert (masses * np.exp(-losses)).sum() == pytest.approx(1, abs=1e-12)
    orders = np.geomspace(3e-4, 2 * np.abs(losses).max() / RHO, 633)
    other = masses * np.exp(-losses)
    for values, weights in ((losses, masses), (-losses, other)):
        log_moment = np.log(np.exp(np.outer(orders, values)) @ weights)
        if isinstance(cost, ZCDP):
            allowed = orders * (cost.xi + cost.rho * (1 + orders))
            if (log_moment > allowed + 1e-12).any():
                return False
        else:
            mean = values @ weights
            back = np.log(np.exp(np.outer(-orders, values)) @ weights)
            square = orders**2 * cost.tau**2 / 2
            if mean > cost.mu or (log_moment > orders * mean + square + 1e-12).any():
                return False
            if (back > -orders * mean + square + 1e-12).any():
                return False
    return True


COSTS = [ZCDP(RHO), ZCDP(RHO, xi=0.02), CDP(0.02, math.sqrt(2 * RHO)), CDP(0.2, math.sqrt(2 * RHO))]


def _all_moments_hold(laws, cost, h) -> list[bool]:
    holding = []
    for losses, masses in zip(laws.losses, laws.masses, strict=True):
        holding.append(_moments_hold(losses * h, masses, cost))
    return holding


@pytest.mark.slow
@pytest.mark.parametrize("cost", COSTS)
def test_playable_laws_are_in_the_class(cost) -> None:
    moments = moment_class(cost)
    laws = playable_family(moments, H, LARGEST).laws
    assert len(laws.masses) > 50
    assert all(_all_moments_hold(laws.where(np.arange(len(laws.masses)) % 7 == 0), cost, H))


@pytest.mark.parametrize("cost", COSTS[:3])
def test_laws_that_are_too_likely_are_not(cost, monkeypatch) -> None:
    """With large losses a tenth more likely, only mixtures with no loss at all are in the class;
    shares of all laws as they are fail the comparison.
    """
    moments = moment_class(cost)
    family = law_family(moments, H, LARGEST)
    family = family.where(np.arange(len(family.masses)) % 11 == 5)
    masses = family.masses.copy()
    masses[:, 0] *= 1.1
    losses = family.losses * H
    short = 1 - masses.sum(axis=1)
    masses[:, 2] += short
    # E[e^{-L}] stays 1 by moving mass between the two neighbouring losses.
    excess = (masses * np.exp(-losses)).sum(axis=1) - 1
    part = excess / (np.exp(-losses[:, 3]) - np.exp(-losses[:, 2]))
    masses[:, 2] += part
    masses[:, 3] -= part
    likely = replace(family, masses=masses).where((masses >= 0).all(axis=1))
    assert len(likely.masses) > 1
    laws = PlayableFamily.of(likely, moments, H).laws
    assert all(_all_moments_hold(laws, cost, H))
    ones = np.ones(len(likely.masses))
    monkeypatch.setattr(playable_laws, "_largest_shares", lambda *_: ones)
    monkeypatch.setattr(playable_laws, "_centred_family_shares", lambda *_: ones)
    unmixed = PlayableFamily.of(likely, moments, H).laws
    assert not all(_all_moments_hold(unmixed, cost, H))


def test_a_lifted_majorant_rises_beyond_the_last_node() -> None:
    """Weights that are raised by a share would make it fall below a V that does not fall."""
    worth = 3.4614558476972154e-4
    value = ValueTable(0.05, np.full(400, worth), upper=True)
    weights = np.array([9.70796871247718, 1021.4766861931394])
    exponents = np.array([2.9008167764268653, 3.818490984629046])
    multipliers = Majorant(0.0, MOMENTS, -0.00101006482463598, 0.0, weights, exponents)
    majorant = multipliers.lifted(value, np.arange(0, 93))
    assert majorant is not None
    t = np.exp(0.05 * np.arange(92, 300))
    moments = majorant.weights @ t ** -majorant.exponents[:, None]
    assert (majorant.constant + majorant.slope * t + moments >= worth).all()


def test_the_last_cost_alone_against_its_conversion() -> None:
    """One cost is worth nearly its conversion (CKS20), and never more."""
    game = ConcentratedGame.of(Charge({ZCDP(RHO): 1}), 1.5, fineness=3)
    converted = float(game.conversion((1,), np.array([1.2]))[0])
    ends = delta_at(game, 1.2)
    assert 0.985 * converted < ends.lower <= ends.upper <= converted


@pytest.mark.slow
@pytest.mark.parametrize("text", ["2*ZCDP(0.05)", "3*ZCDP(0.02)", "ZCDP(0.02) + ZCDP(0.05)"])
def test_no_exact_play_is_above_the_upper_end(text) -> None:
    """Randomised response, Gaussians and bounded ranges that satisfy the costs, composed by other
    engines.
    """
    charge = Charge.parse(text)
    found = compose(charge, delta=1e-4)
    responses: dict[str, int] = {}
    ranges: dict[str, int] = {}
    for cost, times in charge:
        epsilon = _pure_of(cost.rho)
        responses[f"DP({epsilon!r})"] = times
        ranges[f"BR({2 * epsilon!r})"] = times
    for played in (responses, ranges):
        play = compose(Charge.parse(" + ".join(f"{n}*{c}" for c, n in played.items())), delta=1e-4)
        lower = play.lower if play.lower is not None else play.epsilon
        assert lower <= found.epsilon
    assert found.lower <= found.epsilon <= found.lower * 1.003


def _pure_of(rho) -> float:
    """ε with ε tanh(ε/2) just below ρ."""
    low, high = 0.0, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.tanh(middle / 2) < rho else (low, middle)
    return low


def _random_law(rng, cost, h):
    """A law at random, on multiples of h, that the definition of the cost allows; none of the
    engine's own laws or bounds are used.
    """
    deviation = math.sqrt(2 * RHO)
    large = max(round(rng.uniform(0.3, 4.0) * deviation / h), 1)
    low = -max(round(rng.uniform(0.3, 3.0) * deviation / h), 1)
    chance = min(math.exp(-((large * h / deviation) ** 2) / 2) * rng.uniform(0.5, 3.0), 0.6)
    below = rng.choice([0.0, rng.uniform(0, 1) * math.exp(-((low * h / deviation) ** 2) / 2)])
    under_q = chance * math.exp(-large * h) + below * math.exp(-low * h)
    if chance + below >= 1 or under_q >= 1:
        return None
    other = math.log((1 - chance - below) / (1 - under_q))
    node = math.floor(other / h)
    share = -math.expm1(node * h - other) / -math.expm1(-h)
    rest = 1 - chance - below
    losses = np.array([large, low, node + 1, node, 0])
    masses = np.array([chance, below, rest * share, rest * (1 - share), 0.0])
    for mixed in (1.0, 0.98, 0.95, 0.9, 0.8, 0.6):
        tried = masses * mixed
        tried[-1] = 1 - mixed
        if _moments_hold(losses * h, tried, cost):
            return losses, tried
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    "cost",
    [ZCDP(RHO), CDP(0.015, math.sqrt(2 * RHO)), CDP(0.06, math.sqrt(2 * RHO))],
)
def test_random_adaptive_plays_are_never_above(cost) -> None:
    """Laws at random that satisfy the definition, chosen greedily at each node for two rounds: what
    they attain is below every table from above, and comes near it somewhere.
    """
    rng = np.random.default_rng(5)
    game = ConcentratedGame.of(Charge({cost: 2}), 1.6)
    laws = [law for law in (_random_law(rng, cost, game.h) for _ in range(80)) if law]
    assert len(laws) > 20
    value = ValueTable.of_nothing(game.h, upper=False)
    nodes = np.arange(round(1.2 / game.h))
    for left in ((1,), (2,)):
        best = np.zeros(len(nodes))
        for losses, masses in laws:
            best = np.maximum(best, value.at(nodes[:, None] - losses) @ masses)
        above, below = game.tables(left)
        ratios = best / above.values[: len(nodes)]
        assert ratios.max() <= 1 + 1e-9
        assert ratios.max() > 0.9
        assert (below.values <= above.values).all()
        value = ValueTable(game.h, best, upper=False)


@pytest.mark.slow
def test_a_lower_end_is_at_least_the_last_node_above_delta() -> None:
    """Bounds between nodes may be useless where the cells are smaller than the width of V."""
    game = ConcentratedGame.of(Charge.parse("3*CDP(0.0008, 0.05)"), 0.2582, fineness=3)
    _, below = game.tables((3,))
    delta = 1e-4
    ends = epsilon_at(game, delta, delta, 0.2582)
    last = np.count_nonzero(below.values > delta) - 1
    assert last * game.h * (1 - 1e-12) <= ends.lower <= ends.upper


def test_a_table_that_never_falls_to_delta_bounds_no_epsilon() -> None:
    game = ConcentratedGame.of(Charge.parse("ZCDP(0.03)"), 0.2)
    above, _ = game.tables(game.counts)
    delta = above.values[-1] / 2
    ends = epsilon_at(game, delta, delta, math.inf)
    assert ends.upper == math.inf
    assert 0 < ends.lower < math.inf
    assert epsilon_at(game, delta, delta, 3.0).upper <= 3.0


@pytest.mark.slow
def test_order_counts_and_delta() -> None:
    """A permutation is the same question; one cost more, or a smaller δ, is no smaller an ε."""
    texts = ("ZCDP(0.03)", "2*ZCDP(0.03)")
    one, two = (compose(Charge.parse(text), delta=1e-4) for text in texts)
    assert one.epsilon < two.epsilon
    game = ConcentratedGame.of(Charge.parse("ZCDP(0.03)"), 1.5)
    ends = [epsilon_at(game, delta, delta, 1.5) for delta in (1e-3, 1e-4)]
    assert ends[0].lower <= ends[0].upper < ends[1].lower <= ends[1].upper


@pytest.mark.slow
def test_upper_bounds_fall_although_programs_may_know_the_wrong_orders() -> None:
    game = ConcentratedGame.of(Charge.parse("CDP(1.1e-7, 0.01)"), 0.01)
    above, _ = game.tables((1,))
    assert (np.diff(above.values) <= 0).all()
    nodes = np.arange(0, len(above.values), 5)
    between = game.above((nodes + 0.5) * game.h)
    assert (between <= above.values[nodes]).all()


def test_what_is_no_game() -> None:
    """Too many, too different, too small or too large costs stay with the conversion."""
    for text in ("21*ZCDP(0.1)", "ZCDP(0.1) + ZCDP(0.0001)", "ZCDP(1e-9)", "ZCDP(3)"):
        assert ConcentratedGame.of(Charge.parse(text), 1.0) is None


@pytest.mark.slow
@pytest.mark.parametrize("text", ["CDP(1e-07, 0.1)", "2*CDP(1e-05, 0.1)", "2*ZCDP(0.01)"])
def test_questions_for_delta_and_for_epsilon_agree(text) -> None:
    """A δ at a given ε is bounded by the game too, whatever a Gaussian's strategy attains."""
    charge = Charge.parse(text)
    delta = 1.8e-4
    by_delta = compose(charge, delta=delta)
    by_epsilon = compose(charge, epsilon=by_delta.epsilon)
    assert by_epsilon.delta <= delta * 1.01
    assert by_epsilon.lower is None or by_epsilon.lower <= delta


def test_parts_have_all_costs() -> None:
    """Kinds of very different sizes are apart, and so are halves of too many; very many small ones
    are one Gaussian.
    """
    charge = Charge.parse("3*ZCDP(0.1) + 30*ZCDP(0.0001) + 500*ZCDP(0.000001) + 2*CDP(0.05, 0.4)")
    parts = games_of_parts(charge, 4.0, 1e-11, 10.0)
    assert len(parts) == 4
    assert Charge.join(*[part.costs for part in parts]) == charge
    assert [part.game is None for part in parts] == [False, False, False, True]
    assert games_of_parts(charge, 4.0, 1e-11, 0.01) == []
    assert games_of_parts(Charge.parse("ZCDP(3)"), 4.0, 1e-11, 10.0) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("ZCDP({large}) + 3*ZCDP({small})", 1e-3),
        ("2*ZCDP({large}) + 200*ZCDP({small})", 3e-3),
        ("ZCDP({large}) + 3*CDP({small}, 0.02)", 5e-3),
    ],
)
def test_costs_that_are_too_different_for_one_game(text, width) -> None:
    """Their bracket is narrow, the same by δ and by ε, and above bounded ranges that satisfy the
    costs, composed by another engine.
    """
    ranges = (0.8, 0.04)
    large, small = (float(np.nextafter(epsilon**2 / 8, 1)) for epsilon in ranges)
    charge = Charge.parse(text.format(large=large, small=small))
    found = compose(charge, delta=1e-5)
    assert found.lower <= found.epsilon <= found.lower * (1 + width)
    again = compose(charge, epsilon=found.epsilon)
    assert again.lower <= 1e-5 * (1 + 1e-9)
    assert again.delta <= 1e-5 * 1.03
    played: dict[str, int] = {}
    for cost, times in charge:
        if isinstance(cost, ZCDP):
            played[f"BR({ranges[0] if cost.rho > 0.01 else ranges[1]})"] = times
    play = compose(Charge.parse(" + ".join(f"{n}*{c}" for c, n in played.items())), delta=1e-5)
    assert play.lower <= found.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("text", ["5*ZCDP(0.02)", "2*ZCDP(0.02) + ZCDP(0.05)"])
def test_a_game_that_solves_parts_only_agrees_with_the_whole(text) -> None:
    """From above its parts multiply, from below the laws of the parts are played in all steps."""
    charge = Charge.parse(text)
    whole = ConcentratedGame.of(charge, 3.0)
    sketched = replace(whole, most_solved=2)
    pairs = sketched.pairs_of_parts()
    assert [pair.count for pair in pairs] == ([1, 2] if "5*" in text else [1, 1])
    above = _ProductOfPairs(pairs)
    for x in (0.6, 1.4):
        ends = delta_at(whole, x)
        assert ends.lower <= above.delta(x) <= ends.upper * 3
        assert 0.7 * ends.lower <= delta_at(sketched, x).lower <= ends.upper


@pytest.mark.slow
@pytest.mark.parametrize("text", ["4*CDP(0.0045, 0.1)", "CDP(0.0045, 0.1) + 2*CDP(0.002, 0.08)"])
def test_what_no_programs_of_centred_losses_are_solved_for_is_bounded(text) -> None:
    """By the largest mean alone: no better than by all moments, and far better than by nothing but
    the conversion; Gaussians in the class are never above.
    """
    charge = Charge.parse(text)
    whole = ConcentratedGame.of(charge, 1.0)
    sketched = replace(whole, most_solved=1)
    played = played_as_gaussians(charge)
    for x in (0.3, 0.5):
        ends = delta_at(sketched, x)
        assert ends.lower <= ends.upper
        assert delta_at(whole, x).lower <= ends.upper
        assert product_delta(played, x) <= ends.upper
        conversion = float(whole.conversion(whole.counts, np.array([x]))[0])
        assert ends.upper < 0.95 * conversion


def product_delta(charge: Charge, x: float) -> float:
    """δ(x) of Gaussian costs together."""
    variance = sum(times * cost.mu**2 for cost, times in charge)
    deviation = math.sqrt(variance)
    tail = stats.norm.sf(x / deviation - deviation / 2)
    return float(tail - math.exp(x) * stats.norm.sf(x / deviation + deviation / 2))


class _ProductOfPairs:
    """δ of a product of pairs from above, on a fine lattice."""

    def __init__(self, pairs) -> None:
        grid = Grid(0.01, 6.0, 1)
        listed = [pair for part in pairs for pair in part.pairs(grid)]
        self.law = product(listed, step=0.01, tilt=6.0, side=1)
        self.infinite = sum(pair.infinite * pair.count for pair in pairs)

    def delta(self, x):
        return self.law.delta(x) + self.infinite
