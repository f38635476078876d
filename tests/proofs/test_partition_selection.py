"""PartitionSelection: exact divergences over all small neighbours, its charge hardly above them,
mutants, the draws.
"""

import itertools
import math
from dataclasses import replace
from functools import cache

import mpmath
import numpy as np
import pytest

from dptopk import (
    Accountant,
    Budget,
    BudgetExceeded,
    Charge,
    Histogram,
    InvalidParameter,
    Ledger,
    Release,
    Sensitivity,
    Session,
    compose,
)
from dptopk.accounting.renyi import best_coin as best_coins, coin_chances as coin_module
from dptopk.accounting.renyi.best_coin import best_coin
from dptopk.accounting.renyi.coin_chances import (
    MOST_LEVELS,
    Chances,
    coin_chances,
    least_levels,
    levels_about,
)
from dptopk.accounting.renyi.label_coins import (
    ORDER_FACTORS,
    game_delta,
    label_coins_statements,
    renyi_delta,
)
from dptopk.costs import LabelCoinsDP
from dptopk.mechanisms import PartitionSelection
from dptopk.mechanisms.named import mechanism_of
from dptopk.mechanisms.samplers.exact import bernoulli
from dptopk.mechanisms.samplers.random import random_bits

from .harness import World, hockey_stick, laws
from .test_mutants import mutant

EPSILONS = [0.0, 0.2, 0.5, 1.0, 1.5, 2.5]


@cache
def promised(charge, epsilon):
    return compose(charge, epsilon=epsilon).delta


def shown_sets(mechanism, histogram):
    """The law of the set of labels that are shown, as bits, by the chances that the mechanism draws
    by.
    """
    chances = mechanism.chances(histogram.sensitivity)
    level = np.minimum(-(-histogram.counts // histogram.sensitivity.linf), len(chances.shown) - 1)
    law = np.ones(1)
    for shown, hidden in zip(chances.shown[level], chances.hidden[level], strict=True):
        law = np.concatenate([law * hidden, law * shown])
    kept = law > 0
    return np.flatnonzero(kept), law[kept]


def divergence(mechanism, world):
    return hockey_stick(
        laws(world, lambda h: shown_sets(mechanism, h)), world.neighbours(), EPSILONS
    )


def world_for(mechanism, sensitivity, labels):
    levels = len(mechanism.chances(sensitivity).shown)
    return World(labels, tuple(range((levels - 1) * sensitivity.linf + 1)), sensitivity)


@pytest.mark.parametrize(("linf", "l0"), [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3)])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (1.5, 0.01), (2.5, 0.2)])
def test_the_divergence_stays_below_the_charge_and_close_to_it(epsilon, delta, linf, l0):
    mechanism, sensitivity = (
        PartitionSelection(epsilon=epsilon, delta=delta),
        Sensitivity(linf=linf, l0=l0),
    )
    charge = mechanism.charge(sensitivity)
    found = divergence(mechanism, world_for(mechanism, sensitivity, l0))
    bound = np.array([promised(charge, each) for each in EPSILONS])
    assert (found <= bound * (1 + 1e-9)).all()
    at = EPSILONS.index(epsilon)
    assert found[at] > 0.9 * delta
    assert bound[at] <= delta * (1 + 1e-6)
    if l0 == 1:
        assert found[at] == pytest.approx(delta)


def test_more_labels_than_one_user_touches():
    mechanism, sensitivity = PartitionSelection(epsilon=1.5, delta=0.1), Sensitivity(l0=2)
    found = divergence(mechanism, world_for(mechanism, sensitivity, 3))
    assert (found <= [promised(mechanism.charge(sensitivity), each) for each in EPSILONS]).all()


@pytest.mark.slow
def test_mutants_are_caught():
    """A coin one step too likely, likelier for a label that one user alone has, or rising faster;
    one label less.
    """
    sensitivity = Sensitivity(l0=2)
    mechanism = PartitionSelection(epsilon=1.5, delta=0.02)
    world = world_for(mechanism, sensitivity, 2)
    bound = np.array([promised(mechanism.charge(sensitivity), each) for each in EPSILONS])
    coin, right = mechanism.cost_of_coins(sensitivity), mechanism.chances(sensitivity)

    def excess(shown, hidden):
        charge = mechanism.charge(sensitivity)
        wrong = mutant(
            mechanism, chances=lambda self, s: Chances(shown, hidden), charge=lambda self, s: charge
        )
        return (divergence(wrong, world) / bound).max()

    assert excess(*right) <= 1
    for at in range(1, len(right.shown) - 1):  # each level as likely as the next
        moved = [np.concatenate([part[:at], part[at + 1 :], part[-1:]]) for part in right]
        if at == 1:
            assert excess(*moved) > 2
        jumped = [part.copy() for part in right]
        for part in jumped:
            part[at] = part[at + 1]
        assert excess(*jumped) > 1.05
    assert excess(*coin_chances(coin.order, coin.divergence, coin.first * 2.5)) > 1.05
    assert excess(*coin_chances(coin.order, coin.divergence * 1.1, coin.first)) > 1.05
    fewer = Charge({replace(coin, labels=1): 1})
    assert max(divergence(mechanism, world) / [promised(fewer, each) for each in EPSILONS]) > 1.3


def test_the_coin_of_one_label_is_the_best_there_is():
    """Desfontaines et al. 2022, Theorem 1, by its three cases; one label's next chance can be no
    larger.
    """
    epsilon, delta = 0.7, 1e-3
    chances = PartitionSelection(epsilon=epsilon, delta=delta).chances(Sensitivity(l0=1)).shown
    expected = [0.0]
    while expected[-1] < 1:
        p = expected[-1]
        expected.append(
            min(math.exp(epsilon) * p + delta, 1 - math.exp(-epsilon) * (1 - p - delta), 1.0)
        )
    assert chances == pytest.approx(np.array(expected), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 50.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-20, 1e-6, 0.1])
def test_rounding_of_the_coin_of_one_label_costs_nothing(epsilon, delta):
    """At 400 digits, of the chances as floats: (epsilon, delta)-DP exactly, also where delta is
    below any rounding.
    """
    chances = PartitionSelection(epsilon=epsilon, delta=delta).chances(Sensitivity(l0=1))
    with mpmath.workdps(400):
        shown, hidden = ([mpmath.mpf(float(part)) for part in parts] for parts in chances)
        both = [(1 - h, h) if s > h else (s, 1 - s) for s, h in zip(shown, hidden, strict=True)]
        factor = mpmath.exp(mpmath.mpf(epsilon))
        worst = max(
            max(r - factor * p, h - factor * g) for (p, h), (r, g) in itertools.pairwise(both)
        )
        assert mpmath.mpf(delta) * (1 - mpmath.mpf(10) ** -13) < worst <= delta


def test_the_next_chance_is_the_largest_of_its_order():
    order, divergence, first = 7.0, 0.2, 1e-3
    shown = coin_chances(order, divergence, first).shown

    def renyi(p, r):
        terms = [p**order * r ** (1 - order), (1 - p) ** order * (1 - r) ** (1 - order)]
        return math.log(sum(terms)) / (order - 1)

    for p, r in itertools.pairwise(shown[1:-2]):
        p, r = p / (1 - first), (r - first) / (1 - first)
        assert max(renyi(p, r), renyi(r, p)) == pytest.approx(divergence, rel=1e-9)


def worst_multiset(coin, labels, epsilon):
    """The largest δ over all choices of levels that are fixed beforehand, in both directions:
    outcomes one by one.
    """
    worst = 0.0
    every = np.column_stack([coin.shown, coin.hidden])
    for P, Q in ((every[1:], every[:-1]), (every[:-1], every[1:])):
        for levels in itertools.combinations_with_replacement(range(len(P)), labels):
            p = q = np.ones(1)
            for level in levels:
                p, q = np.outer(p, P[level]).ravel(), np.outer(q, Q[level]).ravel()
            worst = max(worst, np.maximum(p - math.exp(epsilon) * q, 0).sum())
    return worst


@pytest.mark.parametrize("labels", [2, 3])
def test_choosing_levels_by_the_answers_so_far_is_hardly_worse_than_beforehand(labels):
    coin = best_coin(2.0, 1e-3, labels)
    chances = coin_chances(coin.order, coin.divergence, coin.first)
    for epsilon in (0.5, 1.0, 2.0):
        bound = promised(Charge({coin: 1}), epsilon)
        exact = worst_multiset(chances, labels, epsilon)
        assert exact <= bound <= (1.02 if labels == 2 else 1.15) * exact


def test_added_renyi_divergences_are_above_the_game_and_the_mean_of_many_labels():
    for coin in (LabelCoinsDP(17.0, 0.07, 1e-7, 5), LabelCoinsDP(8.0, 0.08, 1e-9, 20)):
        chances = coin_chances(coin.order, coin.divergence, coin.first)
        epsilons, deltas = np.array(
            label_coins_statements(coin.order, coin.divergence, coin.first, coin.labels)
        ).T
        added = renyi_delta(epsilons, chances, coin.order, coin.first, coin.labels)
        assert (deltas <= added * 1.02).all()
        assert (added[deltas < 1e-3] <= deltas[deltas < 1e-3] * 4).all()


def played(coin, labels, cells, reach):
    """The game's values at the nodes from -reach to reach, level by level and node by node: a
    second algorithm.
    """
    x = np.linspace(-reach, reach, 2 * cells + 1)
    u = np.concatenate([[0.0], np.exp(x)])
    every = np.column_stack([coin.shown, coin.hidden])
    worst = np.zeros(cells + 1)
    for P, Q in ((every[1:], every[:-1]), (every[-2::-1], every[:0:-1])):
        value = [np.maximum(1 - u, 0)] * len(P)
        for _ in range(labels):
            best, after = np.zeros_like(u), []
            for p, q, left in zip(P[::-1], Q[::-1], value[::-1], strict=True):
                both = (p > 0) & (q > 0)
                parts = [
                    a * np.interp(u * b / a, u, left) for a, b in zip(p[both], q[both], strict=True)
                ]
                best = np.maximum(best, p[q == 0].sum() + sum(parts))
                after.append(best)
            value = after[::-1]
        worst = np.maximum(worst, value[0][cells + 1 :])
    return x[cells:], worst


@pytest.mark.parametrize(
    "coin", [LabelCoinsDP(17.0, 0.07, 1e-7, 5), LabelCoinsDP(8.0, 0.3, 1e-4, 3)]
)
def test_the_game_is_hardly_above_one_that_is_played_node_by_node(coin):
    epsilons, deltas = np.array(
        label_coins_statements(coin.order, coin.divergence, coin.first, coin.labels)
    )[::-1].T
    chances = coin_chances(coin.order, coin.divergence, coin.first)
    assert epsilons[0] == 0  # so that the nodes of the one are among those of the other
    x, exact = played(chances, coin.labels, 4 * (len(epsilons) - 1), epsilons[-1])
    exact = np.interp(epsilons, x, exact)
    assert (deltas >= exact * (1 - 1e-9)).all()
    assert (deltas <= exact * 1.03).all()
    for epsilon in (0.9, 1.1):
        args = coin.order, coin.divergence, coin.first, coin.labels, epsilon
        bound = np.interp(math.exp(epsilon), np.exp(epsilons), deltas)
        assert bound * (1 - 1e-9) <= game_delta(*args) <= bound * 1.01
        assert game_delta(*args, every=2) <= game_delta(*args)


@pytest.mark.parametrize("order", [1.5, 3.0, 20.0, 300.0, math.inf])
@pytest.mark.parametrize("divergence", [1e-3, 0.02, 1.0])
@pytest.mark.parametrize("first", [1e-12, 1e-4, 0.1])
def test_levels_are_counted_from_below_and_estimated(order, divergence, first):
    """A coin that is refused for its number of levels has too many; what is said to be needed is
    about that.
    """
    try:
        shown = coin_chances(order, divergence, first).shown
    except InvalidParameter:
        shown = range(MOST_LEVELS)
    assert least_levels(order, divergence, first) <= len(shown)
    if 50 < len(shown) < MOST_LEVELS and order < math.inf:
        assert levels_about(order, divergence, first) == pytest.approx(len(shown), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [2, 10, 1000])
def test_what_a_refusal_says_is_needed_is_enough_and_hardly_too_much(labels):
    with pytest.raises(
        InvalidParameter, match=f"{labels} labels of one user: .* need an epsilon of about"
    ) as refused:
        best_coin(1e-3, 1e-6, labels)
    about = float(str(refused.value).split()[-1])
    assert best_coin(1.1 * about, 1e-6, labels).labels == labels
    with pytest.raises(InvalidParameter, match="steps"):
        best_coin(about / 1.2, 1e-6, labels)


def calls(monkeypatch, module, name):
    """The arguments of each call of a module's function from now on."""
    seen, function = [], getattr(module, name)

    def counted(*args, **options):
        seen.append(args)
        return function(*args, **options)

    monkeypatch.setattr(module, name, counted)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("labels", [2, 5, 20, 50])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.63, 1e-6), (1.3, 1e-9), (2.2, 1e-3)])
def test_a_coin_is_found_by_a_few_games_and_a_few_looks_at_each_level(
    monkeypatch, epsilon, delta, labels
):
    """Halving took thirteen games, and fifty-five looks at a level; where δ is not smooth it takes
    a few more.
    """
    coin_chances.cache_clear()
    games, moments = (
        calls(monkeypatch, *at)
        for at in ((best_coins, "game_delta"), (coin_module, "_larger_moment"))
    )
    levels = calls(monkeypatch, coin_module, "_largest_rise")
    coin = best_coin.__wrapped__(epsilon, delta, labels)
    assert len(games) <= (8 if delta < 1e-3 else 14)
    assert len(moments) <= 5 * len(levels)
    assert compose(Charge({coin: 1}), epsilon=epsilon).delta <= delta
    if delta < 1e-3 and len(games) > 2:  # else the sum of divergences was taken
        assert compose(Charge({coin: 1}), epsilon=epsilon).delta > 0.99 * delta


def test_coins_that_cannot_be_found_are_refused_without_a_step(monkeypatch):
    levels = calls(monkeypatch, coin_module, "_largest_rise")
    with pytest.raises(InvalidParameter, match="steps"):
        coin_chances(1e5, 1e-5, 1e-8)
    assert not levels


@pytest.mark.parametrize(("l0", "half"), [(1, 14), (2, 26), (5, 38), (10, 47), (20, 59)])
def test_half_of_the_labels_appear(l0, half):
    """At (1, 1e-6), against 14, 28, 50, 71, 103 with counts; and the charge is within the
    budget.
    """
    mechanism, sensitivity = PartitionSelection(epsilon=1.0, delta=1e-6), Sensitivity(l0=l0)
    assert mechanism.appears_at(sensitivity, probability=0.5) == half
    assert 0.997 < compose(mechanism.charge(sensitivity), delta=1e-6).epsilon <= 1 + 1e-9


def test_coins_have_exactly_their_chances():
    """Against the binary fractions that the chances are: words one below, at and one above them,
    and longer ties.
    """

    class Words:
        listing = False

        def __init__(self, *words):
            self.left = list(words)

        def uint64(self, size):
            return np.array([self.left.pop(0) for _ in range(size)], dtype=np.uint64)

        def append_bits(self, value):
            return value << 64 | self.left.pop(0)

    for chance in (0.5, 0.25, 2.0**-64, 3 * 2.0**-70, 1e-7, 1e-17, 5e-324, 0.0):
        digits, bits = [], chance
        for _ in range(20):
            digits.append(int(bits * 2.0**64))
            bits = bits * 2.0**64 - digits[-1]
        for length in range(20):
            if digits[length]:
                assert bernoulli(
                    np.array([chance]),
                    Words(*digits[:length], digits[length] - 1, *digits[length + 1 :]),
                )[0]
            assert not bernoulli(
                np.array([chance]), Words(*digits[:length], digits[length] + 1, *digits)
            )[0]
        assert not bernoulli(np.array([chance]), Words(*digits, 0))[0]


def test_draws_follow_the_chances_and_reject_others():
    mechanism, sensitivity = PartitionSelection(epsilon=1.0, delta=0.01), Sensitivity(linf=3, l0=2)
    chances, draws = mechanism.chances(sensitivity), 4000
    counts = np.repeat(np.arange(1, 3 * len(chances.shown) + 4), draws)
    shown = mechanism.toss_coins(sensitivity, counts, random_bits(np.random.default_rng(3)))
    seen = shown.reshape(-1, draws).sum(axis=1)
    level = np.minimum(-(-np.arange(1, len(seen) + 1) // 3), len(chances.shown) - 1)

    def chi(levels):
        expected = chances.shown[levels] * draws
        spread = np.maximum(expected * chances.hidden[levels], 1e-9)
        return ((seen - expected) ** 2 / spread).sum()

    assert chi(level) < len(seen) + 6 * math.sqrt(2 * len(seen))
    assert chi(np.maximum(level - 1, 0)) > 10 * len(seen)


def test_a_release_is_a_set_in_label_order_and_nothing_else():
    labels = [f"w{i:03}" for i in range(300)]
    histogram = Histogram(labels, np.arange(300)[::-1], sensitivity=Sensitivity(l0=5))
    release = PartitionSelection(epsilon=1.0, delta=1e-6).release(
        histogram, np.random.default_rng(1)
    )
    assert list(release.labels) == sorted(release.labels)
    assert release.counts is None
    assert {f"w{i:03}" for i in range(200)} < set(release.labels) < {f"w{i:03}" for i in range(280)}
    assert "set" in release.note
    with pytest.raises(InvalidParameter, match="complete"):
        PartitionSelection(epsilon=1.0, delta=1e-6).release(
            Histogram(labels, np.arange(300)[::-1], sensitivity=Sensitivity(l0=5), complete=False)
        )


def test_refusals():
    with pytest.raises(InvalidParameter, match="l0"):
        PartitionSelection(epsilon=1.0, delta=1e-6).charge(Sensitivity())
    with pytest.raises(InvalidParameter, match="delta"):
        PartitionSelection(epsilon=1.0, delta=0.6)
    with pytest.raises(InvalidParameter, match="neighbours"):
        PartitionSelection(epsilon=1.0, delta=1e-6).charge(
            Sensitivity(l0=1, neighbours="replace_one")
        )
    for tiny in (5e-324, 1e-322, 9e-301):
        with pytest.raises(InvalidParameter, match="at least 1e-300 and below"):
            PartitionSelection(epsilon=1.0, delta=tiny)
    with pytest.raises(InvalidParameter, match="steps"):
        PartitionSelection(epsilon=1e-6, delta=1e-6).chances(Sensitivity(l0=1))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 0.01), (2.0, 1e-3)])
def test_one_label_may_show_a_noisy_count_at_the_same_price(epsilon, delta):
    """The coin's steps as a law of noise: both directions cost δ at ε, counts shown or not."""
    shown = coin_chances(math.inf, epsilon, delta).shown
    noise = np.concatenate([[0.0], np.diff(shown), [0.0]])
    for one, other in ((noise[1:], noise[:-1]), (noise[:-1], noise[1:])):
        assert np.maximum(one - math.exp(epsilon) * other, 0).sum() == pytest.approx(
            delta, rel=1e-6
        )


def test_coins_that_promise_next_to_nothing_are_refused_or_charged():
    assert compose(Charge({LabelCoinsDP(1.5, 90.0, 1e-6, 2): 1}), delta=1e-3).epsilon > 10
    sudden = Chances(np.array([0.0, 1e-6, 1.0]), np.array([1.0, 1 - 1e-6, 0.0]))
    assert renyi_delta(np.array([1.0]), sudden, 9.0, 1e-6, 2) == 1
    for refused in (LabelCoinsDP(1.5, 900.0, 1e-6, 2), LabelCoinsDP(9.0, 0.1, 0.4, 10_000)):
        with pytest.raises(InvalidParameter, match="nothing"):
            compose(Charge({refused: 1}), delta=0.5)


def test_a_session_and_a_ledger_spend_it(tmp_path):
    sensitivity, budget = Sensitivity(l0=3), Budget(2.0, 2e-6)
    histogram = Histogram(["a", "b", "c"], [400, 300, 1], sensitivity=sensitivity)
    mechanism = PartitionSelection(epsilon=1.0, delta=1e-6)
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    registered = mechanism.charge(sensitivity).times(2)
    ledger.create_dataset(
        "words",
        registered=registered,
        delta=2e-6,
        sensitivity=sensitivity,
        unit="user",
        version="1",
    )
    session = Session(histogram, ledger=ledger, dataset="words", analyst="ada")
    found = session.run(mechanism)
    assert found.labels == ("a", "b")
    assert ledger.spent("words") == mechanism.charge(sensitivity)
    assert ledger.verify()
    session.run(mechanism)
    with pytest.raises(BudgetExceeded):
        session.run(mechanism)
    by_itself = Session(histogram, budget=Accountant(registered, delta=2e-6))
    assert by_itself.run(mechanism).labels == ("a", "b")
    assert mechanism_of(mechanism.to_dict()) == mechanism
    assert Release.from_dict(found.to_dict()).labels == found.labels
    assert compose(registered, delta=budget.delta).epsilon < budget.epsilon


def test_added_divergences_of_large_orders_are_rounded_up():
    """At an order of 10^12 what is left of the exponents is as small as their rounding."""
    order, labels, first = 1e12, 10, 1e-12
    coin = coin_chances(order, 1.0, first)
    x = labels - 3e-11
    orders = 1 + (order - 1) * ORDER_FACTORS
    with mpmath.workdps(50):
        q = mpmath.mpf(first)
        pairs = []  # of neighbouring levels, given that none tells all
        for n in range(1, len(coin.shown) - 1):
            if coin.hidden[n] > first:
                lower = _exact_chances(coin, n)
                upper = _exact_chances(coin, n + 1)
                pairs.append((lower[0], lower[1] - q, upper[0] - q, upper[1]))
        logs = [[mpmath.log(chance / (1 - q)) for chance in pair] for pair in pairs]
        exponents = []
        for alpha in map(mpmath.mpf, orders.tolist()):
            lam = alpha - 1
            moments = []
            for lower_shown, lower_hidden, upper_shown, upper_hidden in logs:
                for p, r, p_of_other, r_of_other in (
                    (upper_shown, upper_hidden, lower_shown, lower_hidden),
                    (lower_shown, lower_hidden, upper_shown, upper_hidden),
                ):
                    of_shown = mpmath.exp(alpha * p - lam * p_of_other)
                    of_hidden = mpmath.exp(alpha * r - lam * r_of_other)
                    moments.append(mpmath.log(of_shown + of_hidden))
            conversion = lam * mpmath.log(lam) - alpha * mpmath.log(alpha)
            exponents.append(labels * max(moments) - lam * mpmath.mpf(x) + conversion)
        none_tells_all = (1 - q) ** labels
        exact = 1 - none_tells_all + none_tells_all * mpmath.exp(min(exponents))
        bound = float(renyi_delta(np.array([x]), coin, order, first, labels)[0])
        assert exact <= bound <= 1.1 * exact


def _exact_chances(coin, n):
    """The chance to be shown and to be hidden at a level, by the smaller one, which is exact."""
    shown = mpmath.mpf(float(coin.shown[n]))
    hidden = mpmath.mpf(float(coin.hidden[n]))
    return (shown, 1 - shown) if shown <= hidden else (1 - hidden, hidden)
