"""The game of a few concentrated costs: majorants, laws, and both ends against other computations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dptopk import Charge, compose
from dptopk.accounting.setwise import concentrated_game
from dptopk.accounting.setwise.concentrated_game import (
    ConcentratedGame,
    Majorant,
    PlayableLaw,
    ValueTable,
    chord_factor,
    delta_at,
    epsilon_at,
    moment_class,
)
from dptopk.accounting.setwise.moment_program import MomentClass, StepProgram
from dptopk.costs import CDP, ZCDP

RHO = 0.05
MOMENTS = MomentClass(RHO)
H = MOMENTS.deviation / 12
NOTHING = ValueTable.of_nothing(H, upper=True)


def _solution(x, moments=MOMENTS, value=NOTHING):
    found = StepProgram(moments, value, x).solve()
    nodes = np.arange(
        math.floor(-3 * moments.deviation / H), math.ceil((x + 7 * moments.deviation) / H) + 1
    )
    return found, Majorant.of(found, moments).lifted(value, nodes)


def _above_chords(majorant, value) -> bool:
    """Whether F is above the chords of V's upper bounds, at ten points of each cell and far out."""
    nodes = np.arange(-150, 400)
    known = value.at(nodes)
    for share in np.linspace(0, 1, 11):
        w = np.exp(nodes[:-1] * H) * (1 - share) + np.exp(nodes[1:] * H) * share
        chord = known[:-1] * (1 - share) + known[1:] * share
        t = w * math.exp(-majorant.x)
        total = majorant.constant + majorant.slope * t
        for weight, exponent in zip(majorant.weights, majorant.exponents, strict=True):
            total = total + weight * t ** (-exponent)
        if (total < chord * (1 - 1e-9)).any():
            return False
    return True


@pytest.mark.parametrize("deviations", [0.0, 0.7, 2.0, 4.3])
def test_a_lifted_majorant_is_above_v_everywhere(deviations) -> None:
    _, majorant = _solution(round(deviations * 12) * H)
    assert _above_chords(majorant, NOTHING)


def test_multipliers_that_are_not_lifted_are_not() -> None:
    """A smaller weight, as a solver's error would leave it, is caught by the comparison above and
    mended by ``lifted``.
    """
    found, majorant = _solution(24 * H)
    small = replace(majorant, weights=majorant.weights * 0.99)
    assert not _above_chords(small, NOTHING)
    wrong = Majorant.of(replace(found, weights=found.weights * 0.9), MOMENTS)
    nodes = np.arange(-40, 130)
    assert _above_chords(wrong.lifted(NOTHING, nodes), NOTHING)


@pytest.mark.parametrize("exponent", [-40.0, -1.3, 1.5, 12.0])
def test_the_factor_of_a_chord(exponent) -> None:
    t = np.linspace(1.0, math.exp(H), 2001)
    s = math.expm1(exponent * H) / math.expm1(H)
    ratio = (1 + s * (t - 1)) / t**exponent
    assert ratio.max() <= chord_factor(exponent, H) <= ratio.max() * (1 + 1e-6)


def _moments_hold(law, cost, h) -> bool:
    """The class's definition, at orders that the engine does not use."""
    losses = np.append(law.x - law.nodes * h, 0.0)
    masses = np.append(law.masses, law.idle)
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    assert (masses * np.exp(-losses)).sum() == pytest.approx(1, abs=1e-12)
    orders = np.geomspace(3e-4, 2 * np.abs(losses).max() / RHO, 3333)
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


@pytest.mark.parametrize("deviations", [0.0, 1.0, 3.0, 5.0])
@pytest.mark.parametrize("cost", [ZCDP(RHO), ZCDP(RHO, xi=0.02), CDP(0.02, math.sqrt(2 * RHO))])
def test_a_playable_law_is_in_the_class(deviations, cost) -> None:
    moments = moment_class(cost)
    found, _ = _solution(round(deviations * 12) * H, moments)
    law = PlayableLaw.of(found, moments, H)
    assert law is not None
    assert _moments_hold(law, cost, H)


def test_a_law_as_the_program_leaves_it_is_not(monkeypatch) -> None:
    """Only its mixture with no loss at all is."""
    found, _ = _solution(36 * H)
    monkeypatch.setattr(concentrated_game, "_largest_share", lambda *_: 1.0)
    law = PlayableLaw.of(found, MOMENTS, H)
    assert not _moments_hold(law, ZCDP(RHO), H)


@pytest.mark.slow
def test_every_law_of_a_centred_game_is_in_its_class(monkeypatch) -> None:
    """Both directions hold at the share that is taken: a direction that holds at a share may not
    hold at a smaller one.
    """
    cost = CDP(0.08055155354294523, 0.4013765153641783)
    laws = []
    of = PlayableLaw.of

    def kept(found, moments, h):
        laws.append((of(found, moments, h), h))
        return laws[-1][0]

    monkeypatch.setattr(PlayableLaw, "of", staticmethod(kept))
    assert compose(Charge({cost: 2}), epsilon=0.5).lower is not None
    playable = [(law, h) for law, h in laws if law is not None]
    assert len(playable) > 10
    assert all(_moments_hold(law, cost, h) for law, h in playable)


def test_a_lifted_majorant_rises_beyond_the_last_node() -> None:
    """Weights that are raised by a share would make it fall below a V that does not fall."""
    worth = 3.4614558476972154e-4
    value = ValueTable(0.05, np.full(400, worth), upper=True)
    weights = np.array([9.70796871247718, 1021.4766861931394])
    exponents = np.array([2.9008167764268653, 3.818490984629046])
    limits = np.array([-30.0, -30.0])
    multipliers = Majorant(0.0, -0.00101006482463598, 0.0, weights, exponents, limits)
    majorant = multipliers.lifted(value, np.arange(0, 93))
    assert majorant is not None
    t = np.exp(0.05 * np.arange(92, 300))
    moments = majorant.weights @ t ** -majorant.exponents[:, None]
    assert (majorant.constant + majorant.slope * t + moments >= worth).all()


def test_the_last_cost_alone_against_its_conversion() -> None:
    """One cost is worth nearly its conversion (CKS20), and never more."""
    game = ConcentratedGame.of(Charge({ZCDP(RHO): 1}), 1.5)
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


@pytest.mark.slow
def test_random_adaptive_plays_are_never_above() -> None:
    """Laws at random, made playable, chosen greedily at each node for two rounds: a lower bound on
    any game, which no table from above may be below.
    """
    rng = np.random.default_rng(5)
    game = ConcentratedGame.of(Charge({ZCDP(RHO): 2}), 2.0)
    value = ValueTable.of_nothing(game.h, upper=False)
    nodes = np.arange(round(2.0 / game.h))
    for left in ((1,), (2,)):
        best = np.zeros(len(nodes))
        for _ in range(60):
            x = float(rng.integers(0, len(nodes))) * game.h
            high = x + rng.uniform(0.1, 1.2) * MOMENTS.deviation
            chance = math.exp(-((high - RHO) ** 2) / (4 * RHO)) * rng.uniform(0.3, 1.2)
            here = round(x / game.h)
            law = _two_losses(x, here, round((x - high) / game.h), min(chance, 0.6), game.h)
            if law is not None:
                best = np.maximum(best, law.step(value, nodes - here))
        above, below = game.tables(left)
        assert (best <= above.values[: len(nodes)] * (1 + 1e-9)).all()
        assert (below.values <= above.values).all()
        value = ValueTable(game.h, best, upper=False)


def _two_losses(x, here, far, chance, h):
    """A rare large loss, else almost none."""
    found = StepProgram(MOMENTS, ValueTable.of_nothing(h, upper=True), x).solve(1)
    law = replace(found, nodes=np.array([far, here]), masses=np.array([chance, 1 - chance]))
    return PlayableLaw.of(law, MOMENTS, h)


@pytest.mark.slow
def test_order_counts_and_delta() -> None:
    """A permutation is the same question; one cost more, or a smaller δ, is no smaller an ε."""
    texts = ("ZCDP(0.03)", "2*ZCDP(0.03)")
    one, two = (compose(Charge.parse(text), delta=1e-4) for text in texts)
    assert one.epsilon < two.epsilon
    game = ConcentratedGame.of(Charge.parse("ZCDP(0.03)"), 1.5)
    ends = [epsilon_at(game, delta, delta, 1.5) for delta in (1e-3, 1e-4)]
    assert ends[0].lower <= ends[0].upper < ends[1].lower <= ends[1].upper


def test_what_is_no_game() -> None:
    """Too many, too different, too small or too large costs stay with the conversion."""
    for text in ("21*ZCDP(0.1)", "ZCDP(0.1) + ZCDP(0.0001)", "ZCDP(1e-9)", "ZCDP(3)"):
        assert ConcentratedGame.of(Charge.parse(text), 1.0) is None
