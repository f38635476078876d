"""Losses of others as costs, and Poisson samples: against exact sums and dp-accounting."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal, localcontext
from itertools import product

import mpmath as mp
import numpy as np
import pytest

from dptopk import Charge, compose
from dptopk.accounting import imported_costs
from dptopk.accounting.imported_costs import from_pair, from_pld
from dptopk.accounting.subsampling import _cost_deltas, subsampled
from dptopk.costs import ZCDP, BoundedRange, GaussianDP, LaplaceDP, PureDP
from dptopk.errors import InvalidParameter

P = np.array([0.5, 0.3, 0.15, 0.05])
Q = np.array([0.2, 0.3, 0.1, 0.4])


def _exact_delta(pairs, epsilon) -> float:
    """The larger δ of the two directions of a product of pairs, listed."""
    found = []
    for one, other in ((0, 1), (1, 0)):
        total = 0.0
        for outcome in product(*(range(len(pair[0])) for pair in pairs)):
            p = math.prod(pair[one][k] for pair, k in zip(pairs, outcome, strict=True))
            q = math.prod(pair[other][k] for pair, k in zip(pairs, outcome, strict=True))
            total += max(p - math.exp(epsilon) * q, 0.0)
        found.append(total)
    return max(found)


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.0, 2.0])
def test_a_pair_alone_is_its_profile(epsilon) -> None:
    cost = from_pair(P, Q)
    found = compose(Charge({cost: 1}), epsilon=epsilon).delta
    exact = _exact_delta([(P, Q)], epsilon)
    assert exact <= found <= exact + 0.05
    at_corners = [found for found, _ in cost.constraints]
    assert any(abs(corner - math.log(8)) < 1e-12 for corner in at_corners)


@pytest.mark.parametrize("epsilon", [0.3, 1.5])
def test_pairs_compose_from_above_whichever_way_each_is_turned(epsilon) -> None:
    """Three pairs, one of them swapped: the sums of both directions are below."""
    charge = Charge({from_pair(P, Q): 2, from_pair([0.6, 0.4], [0.4, 0.6]): 1})
    found = compose(charge, epsilon=epsilon).delta
    coin = (np.array([0.6, 0.4]), np.array([0.4, 0.6]))
    for pairs in ([(P, Q), (P, Q), coin], [(P, Q), (Q, P), coin]):
        assert _exact_delta(pairs, epsilon) <= found


def test_one_direction_alone_would_be_too_little(monkeypatch) -> None:
    """A cost of P against Q only is below the other direction."""
    forth = np.maximum(P - math.exp(1.0) * Q, 0).sum()
    assert forth < _exact_delta([(P, Q)], 1.0)
    monkeypatch.setattr(imported_costs, "POINTS", 2)
    assert compose(Charge({from_pair(P, Q): 1}), epsilon=1.0).delta > forth


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([0.5, 0.4], [0.5, 0.5]),
        ([1.2, -0.2], [0.5, 0.5]),
        ([0.5, math.nan], [0.5, 0.5]),
        ([0.5, 0.5], [0.5, 0.25, 0.25]),
        ([0.5, 0.5], [0.5, 0.5]),
        ([[0.5, 0.5]], [[0.4, 0.6]]),
    ],
)
def test_what_is_no_pair_is_refused(p, q) -> None:
    with pytest.raises(InvalidParameter):
        from_pair(p, q)


def test_text_of_an_imported_cost_reads_back() -> None:
    charge = Charge({from_pair(P, Q): 3})
    assert Charge.parse(str(charge)) == charge


def test_what_is_no_profile_is_refused() -> None:
    class Rising:
        def get_delta_for_epsilon(self, epsilon):
            return np.minimum(0.1 + 0.001 * np.asarray(epsilon), 0.9)

    class NoNumber:
        def get_delta_for_epsilon(self, epsilon):
            return np.full(np.shape(epsilon), math.nan)

    for wrong in (Rising(), NoNumber()):
        with pytest.raises(InvalidParameter):
            from_pld(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("noise", ["gaussian", "laplace", "discrete_laplace", "parameters"])
def test_a_distribution_of_dp_accounting(noise, count) -> None:
    """Between its own optimistic and a little more than its pessimistic composition."""
    from dp_accounting.pld import common, privacy_loss_distribution as pld

    def made(*, pessimistic):
        if noise == "gaussian":
            return pld.from_gaussian_mechanism(4.0, pessimistic_estimate=pessimistic)
        if noise == "laplace":
            return pld.from_laplace_mechanism(6.0, pessimistic_estimate=pessimistic)
        if noise == "discrete_laplace":
            return pld.from_discrete_laplace_mechanism(0.2, pessimistic_estimate=pessimistic)
        return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(0.2, 1e-8))

    found = compose(Charge({from_pld(made(pessimistic=True)): count}), delta=1e-6).epsilon
    above, below = (
        made(pessimistic=side).self_compose(count).get_epsilon_for_delta(1e-6)
        for side in (True, False)
    )
    assert below * (1 - 1e-3) <= found <= above * (1 + 1e-3)


# Twelve settings in which dp-accounting composes the two directions apart: at most what we may
# lose by letting every cost choose its own.
@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize(("count", "looser"), [(1, 1e-3), (200, 0.15)])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_sample_against_dp_accounting(noise, rate, count, looser) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    cost = GaussianDP(0.5) if noise == "gaussian" else LaplaceDP(2.0, 1.0)
    make = pld.from_gaussian_mechanism if noise == "gaussian" else pld.from_laplace_mechanism
    found = compose(Charge({subsampled(cost, rate): count}), delta=1e-6).epsilon
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        above, below = (
            make(2.0, sampling_prob=rate, pessimistic_estimate=side)
            .self_compose(count)
            .get_epsilon_for_delta(1e-6)
            for side in (True, False)
        )
    assert below * (1 - 1e-6) <= found <= above * (1 + looser)


@pytest.mark.parametrize("rate", [0.05, 0.6])
def test_a_sample_of_randomised_response_is_its_law(rate) -> None:
    """The mechanism itself: with the user qP + (1 - q)Q, without Q, both directions."""
    epsilon = 1.1
    p = np.array([math.exp(epsilon), 1.0]) / (1 + math.exp(epsilon))
    q = p[::-1]
    mixed = rate * p + (1 - rate) * q
    charge = Charge({subsampled(PureDP(epsilon), rate): 1})
    for x in (0.0, 0.02, 0.2, 0.5):
        found = compose(charge, epsilon=x).delta
        exact = _exact_delta([(mixed, q)], x)
        assert exact <= found <= exact * (1 + 1e-2) + 1e-9


@pytest.mark.parametrize("rate", [1e-300, 0.1, 1 - 1e-16])
@pytest.mark.parametrize("epsilon", [1e-300, 1.0, 400.0])
def test_a_pure_cost_on_a_sample_is_pure(epsilon, rate) -> None:
    """ln(1 + q(e^ε - 1)), by 80 digits, and never less."""
    with localcontext() as context:
        context.prec = 80
        context.Emin = -10_000
        # Up to a gain of 1e-60 the first term of the series has 60 digits.
        if epsilon < 1e-60:
            gain = Decimal(rate) * Decimal(epsilon)
        else:
            gain = Decimal(rate) * (Decimal(epsilon).exp() - 1)
        exact = gain if gain < Decimal("1e-60") else (1 + gain).ln()
        found = compose(Charge({subsampled(PureDP(epsilon), rate): 1}), delta=0.0).epsilon
        assert exact <= Decimal(found) <= exact * Decimal(1 + 1e-6) + Decimal("1e-300")


def test_bounded_range_and_laplace_on_a_sample_are_pure_and_others_are_not() -> None:
    for cost in (BoundedRange(0.4), LaplaceDP(2.5, 1.0)):
        found = compose(Charge({subsampled(cost, 0.1): 3}), delta=0.0).epsilon
        assert found == pytest.approx(3 * math.log1p(0.1 * math.expm1(0.4)), rel=1e-9)
    for cost in (GaussianDP(0.5), ZCDP(0.02)):
        assert compose(Charge({subsampled(cost, 0.1): 1}), delta=0.0).epsilon == math.inf


@pytest.mark.parametrize("points", [-1, 0, 1, 2.5, "x", True, 10**400])
def test_points_are_a_number_from_two_on(points) -> None:
    class Falling:
        def get_delta_for_epsilon(self, epsilon):
            return np.exp(-1 - np.asarray(epsilon))

    for imported in (
        lambda: subsampled(PureDP(1.0), 0.1, points=points),
        lambda: from_pair(P, Q, points=points),
        lambda: from_pld(Falling(), points=points),
    ):
        with pytest.raises(InvalidParameter, match="points"):
            imported()


@pytest.mark.parametrize("cost", [GaussianDP(0.5), PureDP(1.0), LaplaceDP(2.0, 1.0)])
@pytest.mark.parametrize("rate", [0.01, 0.5, 0.99])
def test_the_direction_that_is_left_out_is_never_the_larger_one(cost, rate) -> None:
    """Both directions at every point of the cost, by the theorem's own formulas."""
    for y, found in subsampled(cost, rate).constraints:
        gain = math.expm1(y)
        scale = rate - gain * (1 - rate)
        if scale > 0:
            x = np.array([math.log1p(gain / scale)])
            assert scale * float(_cost_deltas(cost, x)[0]) <= found * (1 + 1e-9)


@pytest.mark.slow
def test_samples_of_classes() -> None:
    """Bounded range costs less than the pure cost that it implies; a rate of almost 1 costs about
    what no sample does.
    """
    as_range, as_pure = (
        compose(Charge({subsampled(cost, 0.1): 50}), delta=1e-6).epsilon
        for cost in (BoundedRange(0.4), PureDP(0.4))
    )
    assert as_range < 0.7 * as_pure
    whole = compose(Charge({ZCDP(0.02): 1}), delta=1e-6).epsilon
    nearly = compose(Charge({subsampled(ZCDP(0.02), 1 - 1e-9): 1}), delta=1e-6).epsilon
    assert whole * (1 - 1e-2) <= nearly <= whole * (1 + 1e-2)


def test_a_pair_of_nearly_equal_laws_is_bounded_at_every_corner() -> None:
    """Where probabilities and their products with e^ε cancel, each is rounded."""
    rng = np.random.default_rng(1177)
    p = rng.dirichlet(np.ones(9))
    q = p * np.exp(1e-10 * np.sign(rng.standard_normal(9)))
    q /= math.fsum(q)
    with mp.workdps(40):
        first, second = ([mp.mpf(mass) for mass in law.tolist()] for law in (p, q))
        for epsilon, delta in from_pair(p, q).constraints:
            ratio = mp.exp(mp.mpf(epsilon))
            for one, other in ((first, second), (second, first)):
                exact = sum(max(a - ratio * b, 0) for a, b in zip(one, other, strict=True))
                missing = max(1 - mp.fsum(one), 0)  # an answer that gives everything away
                assert exact + missing <= delta
