"""Box noise: the exact sampler, the tails beside enumeration, intervals, and refusals."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dptopk import (
    Accountant,
    Box,
    Budget,
    Charge,
    Histogram,
    KnownGumbel,
    KnownLaplace,
    PureDP,
    Release,
    Sensitivity,
    Session,
    compose,
)
from dptopk._internal.box_tails import box_side_tail, box_std, box_tail, log_power_sum
from dptopk.errors import BudgetExceeded, InvalidParameter
from dptopk.mechanisms import UnknownBox
from dptopk.mechanisms.samplers.box_noise import SideLaw, box_noise, side_law
from dptopk.mechanisms.samplers.random import random_bits

ANY = Sensitivity()


def sides(power, rate, length=6000):
    m = np.arange(1, length, dtype=float)
    weights = np.exp(power * np.log(m) - rate * m - (power * math.log(power / rate) - power))
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("power", "rate"), [(2, 3.0), (2, 50.0), (6, 0.3), (26, 0.01), (1001, 1.0), (1001, 1e-6)]
)
def test_weights_and_coins_are_within_one_unit_of_their_law(power, rate):
    law, bits = SideLaw(power, Fraction(rate)), 80
    weights, width = law.weights(bits), 1 << law.width_bits
    assert len(law.weights(40)) <= len(weights)
    rng = np.random.default_rng(3)
    with mpmath.workdps(60):

        def log_density(m):
            return (
                power * mpmath.log(mpmath.mpf(m.numerator) / m.denominator)
                - mpmath.mpf(rate) * m.numerator / m.denominator
            )

        for block in rng.integers(0, len(weights), 25).tolist():
            top = law.densest_point(block)
            exact = (
                width * mpmath.mpf(2) ** bits * mpmath.exp(log_density(top) - log_density(law.peak))
            )
            assert abs(weights[block] - exact) <= 1
            m = 1 + block * width + int(rng.integers(width))
            ratio = mpmath.exp(log_density(Fraction(m)) - log_density(top))
            assert ratio <= 1 + mpmath.mpf(10) ** -50
            assert abs(law.units(m, top, 64) - 2**64 * ratio) <= 1
        last = Fraction(1 + len(weights) * width)
        fall = width * mpmath.mpf(rate) - power * mpmath.log1p(width / mpmath.mpf(last.numerator))
        rest = mpmath.exp(log_density(last) - log_density(law.peak)) / -mpmath.expm1(-fall)
        assert rest * mpmath.mpf(2) ** (bits + law.width_bits) <= 1


@pytest.mark.parametrize(("power", "rate"), [(2, 1.0), (6, 0.1), (26, 2.0)])
def test_the_side_has_its_law_and_another_rate_would_show(power, rate):
    law, bits, runs = SideLaw(power, Fraction(rate)), random_bits(np.random.default_rng(12)), 1500
    drawn = np.array([law.sample(bits) for _ in range(runs)])
    edges = np.unique(np.quantile(drawn, np.linspace(0, 1, 13)[1:-1]).astype(int))
    found = np.bincount(np.searchsorted(edges, drawn), minlength=len(edges) + 1)

    def chi_square(power, rate):
        weights = sides(power, rate)
        cells = np.searchsorted(edges, np.arange(1, len(weights) + 1))
        wanted = runs * np.bincount(cells, weights=weights, minlength=len(edges) + 1)
        return ((found - wanted) ** 2 / wanted).sum()

    limit = len(edges) + 5 * math.sqrt(2 * len(edges))
    assert chi_square(power, rate) < limit
    assert chi_square(power, 1.1 * rate) > limit
    assert chi_square(power + 1, rate) > limit


def test_all_of_the_box_is_drawn():
    """Given the side, corner and coordinates are uniform: the law of one count is that of
    enumeration.
    """
    law, bits = SideLaw(3, Fraction(1)), random_bits(np.random.default_rng(2))
    drawn = np.concatenate([box_noise(law, 2, 2, bits) for _ in range(1500)])
    m = np.arange(1, 80)
    exact = [
        (sides(3, 1.0, 80) * np.maximum(2 * m - abs(z), 0) / (2 * m) ** 2).sum()
        for z in range(-20, 21)
    ]
    found = np.bincount(drawn[abs(drawn) <= 20] + 20, minlength=41) / len(drawn)
    assert np.abs(found - exact).max() < 0.02
    assert drawn.std() == pytest.approx(box_std(3, 1.0, 2), rel=0.06)
    assert abs(drawn.std() / box_std(3, 1.2, 2) - 1) > 0.06


@pytest.mark.parametrize(
    ("power", "rate"), [(1001, 1e-6), (1001, 50.0), (2, 1e-6), (2, 50.0), (40001, 0.1)]
)
def test_extremes_are_drawn_within_the_size_of_the_noise(power, rate):
    law, bits = SideLaw(power, Fraction(rate)), random_bits(np.random.default_rng(7))
    noise = box_noise(law, 1, 50, bits)
    assert np.abs(noise).max() <= 3 * (power + 20) / rate + 1
    assert len(law.weights(48)) < 4000


@pytest.mark.parametrize(("power", "rate"), [(2, 1e-3), (3, 0.5), (6, 7.0), (30, 0.5), (30, 0.01)])
def test_power_sums(power, rate):
    """Σ m^p e^{-rm} = (-d/dr)^p of a geometric series: polylogarithms of order -p, by mpmath."""
    with mpmath.workdps(40):
        exact = mpmath.log(mpmath.polylog(-power, mpmath.exp(-mpmath.mpf(rate))))
    assert log_power_sum(power, rate) == pytest.approx(float(exact), abs=1e-11)


def exact_tail(power, rate, step, special, c):
    total = 0.0
    for m, mass in enumerate(sides(power, rate, 1500), 1):
        n = step * m
        if n > c + 1 and mass > 1e-40:
            u = np.arange(n - c - 1, dtype=float)
            total += mass * (1 - ((u + c + 1) / n) ** special).sum() / n
    return total


@pytest.mark.parametrize(
    ("power", "rate", "step", "special", "c"),
    [
        (2, 1.0, 1, 1, 0),
        (2, 1.0, 1, 1, 25),
        (4, 0.5, 2, 3, 20),
        (12, 0.3, 1, 10, 60),
        (52, 1.0, 1, 50, 97),
        (6, 0.2, 3, 5, 0),
    ],
)
def test_tails_are_just_above_enumeration(power, rate, step, special, c):
    exact = exact_tail(power, rate, step, special, c)
    assert exact <= box_tail(power, rate, step, special, c) <= exact * 1.01
    beyond = sides(power, rate, 1500)[np.arange(1, 1500) * step > c].sum()
    assert beyond <= box_side_tail(power, rate, step, c) <= beyond * 1.01


def test_tails_fall_to_the_smallest_probabilities():
    tails = [box_tail(6, 0.5, 1, 3, c) for c in (0, 10, 100, 300, 1000, 10**6)]
    assert all(a > b for a, b in itertools.pairwise(tails[:-1]))
    assert 0 < tails[-1] < 1e-300


def test_as_much_noise_as_published_k_norm_noise():
    """0.41 (k + 2)/ε a count; centred Laplace noise has 1.8 times as much, independent noise 3.15
    times at k = 25.
    """
    for k, std in ((5, 9.38), (25, 34.5), (100, 128.6), (200, 254.1)):
        assert Box(epsilon=0.3253).noise_std(ANY, labels=k) == pytest.approx(std, rel=1e-3)
    assert Box(epsilon=0.3).noise_std(ANY, labels=1) == pytest.approx(
        KnownLaplace(epsilon=0.3).noise_std(ANY)
    )


@pytest.mark.parametrize("labels", [2, 8, 50])
def test_the_width_of_a_row_is_the_smallest_that_the_noise_of_so_many_labels_allows(labels):
    """Enumerated; the noise of one label alone is several times narrower."""
    box = Box(epsilon=1.0)
    alpha = 0.05
    width = box.measurement(ANY, labels, whole=True).half_width(alpha, "row", labels)
    assert width == box.half_width(ANY, labels=labels)
    assert 2 * exact_tail(labels + 1, 1.0, 1, 1, width) <= alpha
    assert 2 * exact_tail(labels + 1, 1.0, 1, 1, width - 1) > 0.98 * alpha
    histogram = Histogram(None, np.full(labels, 10**6), domain="public")
    rows = box.release(histogram, np.random.default_rng(1)).intervals(kind="row")
    assert set(rows["high"] - rows["low"]) == {2 * width}


def test_the_charge_and_where_it_applies():
    box = Box(epsilon=1.0)
    assert str(box.charge(ANY)) == str(box.charge(ANY, labels=1)) == "DP(1.0)"
    assert not box.charge(ANY, labels=0)
    for k, l0, p in (
        (3, None, 0.50760),
        (5, None, 0.46179),
        (25, None, 0.40259),
        (25, 5, 0.253),
        (25, 1, 0.0608),
    ):
        ((cost, _),) = box.charge(Sensitivity(l0=l0), labels=k).costs.items()
        assert cost.constraints[0] == (1.0, 0.0)
        assert cost.constraints[1][1] == pytest.approx(p * -math.expm1(-1), rel=2e-3)
    joined = box.charge(ANY, labels=5).times(20)
    assert (
        compose(joined, delta=1e-6).epsilon
        < compose(Box(epsilon=1.0).charge(ANY).times(20), delta=1e-6).epsilon
    )
    assert compose(joined, delta=0.0).epsilon == pytest.approx(20.0)
    assert compose(box.charge(ANY, labels=5), delta=0.0).epsilon == 1.0
    accountant = Accountant(Charge({PureDP(1.0): 2}), delta=0.0)
    accountant.spend(box.charge(ANY, labels=3))
    accountant.spend(box.charge(ANY, labels=9))
    with pytest.raises(BudgetExceeded):
        accountant.spend(box.charge(ANY, labels=9))
    with pytest.raises(InvalidParameter, match="neighbours"):
        box.charge(Sensitivity(neighbours="replace_one"))
    with pytest.raises(InvalidParameter, match="epsilon"):
        Box(epsilon=0.0)
    with pytest.raises(InvalidParameter, match="epsilon"):
        Box(epsilon=1e-13).charge(ANY, labels=100)
    with pytest.raises(InvalidParameter, match="labels"):
        box.noise_std(ANY)


def test_a_session_counts_what_it_selected():
    histogram = Histogram(
        [f"l{i}" for i in range(40)], [4000 // (i + 1) for i in range(40)], domain="public"
    )
    session = Session(histogram, budget=Budget(2, 0), rng=np.random.default_rng(4))
    ranking = session.run(KnownGumbel(k=3, epsilon=0.3))
    release = session.run(Box(epsilon=1.0), labels=ranking)
    assert set(release.labels) == set(ranking.labels)
    assert (np.diff(release.counts) <= 0).all()
    left = session.remaining().to_dict()
    assert left["epsilon_total"] - left["epsilon_spent"] == pytest.approx(0.1)
    again = Release.from_dict(release.to_dict())
    assert again.intervals().equals(release.intervals())
    assert PureDP(1.0) not in release.charge.costs


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simultaneous", "row", "fcr"])
def test_intervals_cover(kind):
    k, runs, confidence, rng = 8, 120, 0.8, np.random.default_rng(9)
    counts = 50 * np.arange(k, 0, -1)
    histogram = Histogram(None, counts)
    right = ranks = 0.0
    for _ in range(runs):
        table = Box(epsilon=0.5).release(histogram, rng).intervals(confidence=confidence, kind=kind)
        true = counts[table["label"].to_numpy(dtype=int)]
        covered = (table["low"] <= true) & (true <= table["high"])
        right += covered.all() if kind == "simultaneous" else covered.mean()
        place = table["label"].to_numpy(dtype=int) + 1
        ranks += ((table["rank_low"] <= place) & (place <= table["rank_high"])).all()
    assert confidence - 0.11 <= right / runs <= confidence + 0.11  # and no wider than needed
    assert ranks / runs >= confidence - 0.11


@pytest.mark.slow
def test_intervals_over_a_noisy_floor_hold_together():
    sensitivity, runs, rng = Sensitivity(linf=2), 60, np.random.default_rng(6)
    mechanism = UnknownBox(d_bar=6, epsilon=2.0, delta=1e-3)
    counts = dict(zip("abcdefgh", [400, 300, 200, 120, 60, 40, 20, 5], strict=True))
    histogram = Histogram(list(counts), list(counts.values()), sensitivity=sensitivity)
    hits = 0
    for _ in range(runs):
        table = mechanism.release(histogram, rng).intervals(confidence=0.8, kind="fcr")
        hits += all(row.low <= counts[row.label] <= row.high for row in table.itertuples())
    assert hits / runs >= 0.8 - 4 * 0.4 / math.sqrt(runs)
    distance = mechanism.appears_at(sensitivity, probability=0.9)
    one = Histogram(["x"], [distance], sensitivity=sensitivity)
    assert sum(
        len(mechanism.release(one, rng)) for _ in range(runs)
    ) / runs >= 0.9 - 4 * 0.3 / math.sqrt(runs)


@pytest.mark.parametrize(
    "odd", [{"d_bar": 2**40, "epsilon": 1.0}, {"d_bar": 5, "epsilon": 1.7e308}]
)
def test_laws_that_cannot_be_listed_are_refused_before_anything_is_charged(odd):
    with pytest.raises(InvalidParameter, match="box noise takes at most"):
        UnknownBox(delta=1e-6, **odd).check(Histogram(["a"], [5], sensitivity=Sensitivity(l0=2)))


def test_the_noise_runs_at_the_decimal_where_that_is_smaller(monkeypatch):
    """The float 0.1 is above 1/10, which is what is charged."""
    asked = []
    spy = lambda power, rate: asked.append(rate) or side_law(power, rate)  # noqa: E731
    monkeypatch.setattr("dptopk.mechanisms.box.side_law", spy)
    Box(epsilon=0.1).release(Histogram(["a"], [5], domain="public"), labels=["a"])
    assert asked == [Fraction(1, 10)]
