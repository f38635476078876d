"""Charges in dp-accounting's and OpenDP's terms, run through the real libraries."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import opendp.prelude as dp
import pytest
from dp_accounting.pld import PLDAccountant

from dptopk.accounting import interop
from dptopk.accounting.bounds import compose
from dptopk.accounting.interop import MEASURES, charge_rho, to_dp_event, to_opendp, to_pld
from dptopk.accounting.setwise.optimum import pairs_of_ranges
from dptopk.costs import (
    CDP,
    ZCDP,
    ApproxDP,
    BoundedRange,
    Charge,
    DiscreteGaussianDP,
    GaussianDP,
    MultiDP,
    PureDP,
)
from dptopk.errors import IncompatibleCosts, InvalidParameter

DELTA = 1e-6


def event_epsilon(charge: Charge, **options: str) -> float:
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(to_dp_event(charge, **options))
    return accountant.get_epsilon(DELTA)


@pytest.mark.parametrize("text", ["25*DP(0.1)", "10*DP(0.1) + 5*DP(0.3)", "4*GDP(0.25)"])
def test_events_give_the_same_epsilon(text):
    """What dp-accounting computes from the event lies within one interval a cost of our certified
    bracket.
    """
    charge = Charge.parse(text)
    ours = compose(charge, delta=DELTA)
    theirs = event_epsilon(charge)
    assert ours.lower <= theirs * (
        1 + 1e-8
    )  # their Fourier transforms may end a few 1e-9 below the truth
    assert theirs <= ours.epsilon + charge.count * 1e-3


@pytest.mark.parametrize(
    "text",
    [
        "25*DP(0.1) + delta(1e-7)",
        "10*ADP(0.1, 1e-8) + 2*GDP(0.3)",
        "9*DGauss(4, 1)",
        "3*DP(0.2) + 4*GDP(0.2)",
    ],
)
def test_plds_give_the_same_epsilon(text):
    charge = Charge.parse(text)
    ours = compose(charge, delta=DELTA)
    theirs = to_pld(charge, interval=1e-3).get_epsilon_for_delta(DELTA)
    assert ours.lower <= theirs * (
        1 + 1e-8
    )  # their Fourier transforms may end a few 1e-9 below the truth
    assert theirs <= ours.epsilon + charge.count * 1e-3


def test_bounded_range_only_when_asked_for():
    charge = Charge({BoundedRange(0.1): 25})
    for convert in (to_dp_event, to_pld):
        with pytest.raises(IncompatibleCosts, match="bounded-range"):
            convert(charge)
    pure = compose(Charge({PureDP(0.1): 25}), delta=DELTA)
    assert event_epsilon(charge, bounded_range="dp") == pytest.approx(pure.epsilon, abs=0.025)
    pld = to_pld(charge, bounded_range="dp", interval=1e-3)
    assert pld.get_epsilon_for_delta(DELTA) == pytest.approx(pure.epsilon, abs=0.025)
    assert compose(charge, delta=DELTA).epsilon < 0.8 * pure.epsilon  # what the detour loses


REFUSED = [
    (to_dp_event, "ADP(0.1, 1e-8)"), (to_dp_event, "MultiDP(0.3:0, 0.15:0.02)"), (to_dp_event, "DGauss(4, 1)"),
    (to_dp_event, "ZCDP(0.1)"), (to_dp_event, "CDP(0.1, 0.2)"), (to_dp_event, ("DP(0.1) + "
                                                                              "delta(1e-9)")),
    (to_dp_event, "DP(0.1) [replace_one]"), (to_pld, "ZCDP(0.1)"), (to_pld, "CDP(0.1, 0.2)"),
    (to_pld, "MultiDP(0.3:0, 0.15:0.02)"), (charge_rho, "ZCDP(0.1, xi=0.1)"), (charge_rho, "DP(0.1) + delta(1e-9)"),
    (charge_rho, "ADP(0.1, 1e-9)"), (to_opendp, "DP(0.1) + delta(1e-9)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("convert", "text"), REFUSED, ids=lambda value: getattr(value, "__name__", value)
)
def test_what_has_no_counterpart_is_refused(convert, text):
    with pytest.raises(IncompatibleCosts):
        convert(Charge.parse(text))


def test_every_cost_is_translated_or_refused():
    """No cost falls through with another error."""
    costs = [
        PureDP(0.1), BoundedRange(0.1), ApproxDP(0.1, 1e-9), MultiDP(((0.3, 0.0), (0.1, 0.01))), GaussianDP(0.1),
        DiscreteGaussianDP(5.0, 1), ZCDP(0.1), CDP(0.1, 0.2),
    ]  # fmt: skip
    for cost in costs:
        charge = Charge({cost: 2})
        attempts = [to_dp_event, lambda c: to_pld(c, interval=1e-2), charge_rho]
        attempts += [lambda c, m=measure: to_opendp(c, m) for measure in MEASURES]
        for convert in attempts:
            try:
                assert convert(charge) is not None
            except IncompatibleCosts as refusal:
                # says which cost
                assert type(cost).symbol in str(refusal) or "delta" in str(refusal)  # noqa: PT017


def test_arguments_are_checked():
    charge = Charge({PureDP(0.1): 1})
    for call in (
        lambda: to_pld(charge, interval=0),
        lambda: to_pld(charge, bounded_range="zcdp"),
        lambda: to_dp_event("DP(0.1)"),
        lambda: to_opendp(charge, "gdp"),
    ):
        with pytest.raises(InvalidParameter):
            call()


def test_empty_charge():
    assert to_dp_event(Charge()) == dp_accounting.ComposedDpEvent([])
    assert to_pld(Charge()).get_epsilon_for_delta(DELTA) == 0
    assert charge_rho(Charge()) == 0


def test_opendp_takes_the_distances():
    """A user's measurement with our distance as its map is accepted, and OpenDP converts it to an ε
    we check.
    """
    dp.enable_features("contrib", "honest-but-curious")
    charge = Charge({BoundedRange(0.1): 100, GaussianDP(0.2): 3})
    measure, rho = to_opendp(charge)
    domain, metric = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    measurement = dp.m.make_user_measurement(domain, metric, measure, lambda _: 0, lambda _: rho)
    theirs = dp.c.make_zCDP_to_approxDP(measurement).map(1).epsilon(DELTA)
    ours = compose(charge, delta=DELTA, bound="zcdp_tight").epsilon
    assert theirs == pytest.approx(ours, rel=2e-3)


def test_opendp_distances():
    charge = Charge({ApproxDP(0.5, 1e-8): 2}, delta=1e-7)
    _, (epsilon, delta) = to_opendp(charge, "approximate")
    assert (epsilon, delta) == (1.0, pytest.approx(1.2e-7, rel=1e-9))
    assert delta >= 1.2e-7 * (1 - 1e-7)
    _, (rho, delta) = to_opendp(charge, "approximate_zcdp")
    assert (rho, delta) == (
        pytest.approx(2 * 0.5 * math.tanh(0.25)),
        pytest.approx(1.2e-7, rel=1e-9),
    )
    assert to_opendp(Charge({BoundedRange(0.25): 4}), "pure")[1] == 1.0


def test_rho_of_published_constants_is_opendps():
    """OpenDP's own pureDP_to_zCDP uses ε²/2; the exact constant is smaller."""
    dp.enable_features("contrib")
    laplace = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=2.0)
    theirs = dp.c.make_pureDP_to_zCDP(laplace).map(1)
    charge = Charge({PureDP(0.5): 1})
    assert charge_rho(charge, exact=False) == pytest.approx(theirs, rel=1e-9)
    assert charge_rho(charge) < theirs


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["100*BR(0.1)", "30*BR(0.1) + 10*BR(0.25) + 4*DP(0.1) + 2*GDP(0.1)", "3*BR(0.4)"]
)
def test_a_group_is_a_pair_beside_any_other_cost(text):
    """The optimum of the whole is not above what dp-accounting composes, and hardly below."""
    charge = Charge.parse(text)
    pld = to_pld(charge, interval=1e-3, bounded_range="group")
    for delta in (1e-4, 1e-6, 1e-9):
        ours = compose(charge, delta=delta)
        assert (
            ours.lower <= pld.get_epsilon_for_delta(delta) * (1 + 1e-8) <= ours.epsilon * (1 + 1e-2)
        )


def test_one_bounded_range_cost_beside_others_by_hand():
    """The pair of one BR(ε) beside randomised response is the optimum: t is chosen once the
    response is known.
    """
    epsilon, beside = 0.7, 0.4
    pld = to_pld(Charge({BoundedRange(epsilon): 1}), interval=1e-2, bounded_range="group")
    pld = pld.compose(to_pld(Charge({PureDP(beside): 1}), interval=1e-2))
    signs = ((beside, 1 / (1 + math.exp(-beside))), (-beside, 1 / (1 + math.exp(beside))))

    def played(t, x):
        q = math.expm1(t - epsilon) / math.expm1(-epsilon)  # the mass under P at the loss t
        return sum(
            mass * max(-math.expm1(x - loss), 0.0) for loss, mass in ((t, q), (t - epsilon, 1 - q))
        )

    for x in (0.0, 0.2, 0.55, 0.9):
        truth = sum(
            p * max(played(epsilon * i / 999, x - e) for i in range(1000)) for e, p in signs
        )
        assert truth * (1 - 1e-12) <= pld.get_delta_for_epsilon(x) <= truth * 1.01 + 1e-4


def test_pairs_on_a_grid_dominate():
    """On the points of the new grid the profile is that of the pair, or above by rounding alone."""
    ((pair),) = pairs_of_ranges(Charge.parse("20*BR(0.3)"), delta=1e-8, tolerance=1e-3)
    moved = pair.on_grid(0.0137)
    x = np.arange(-120, 300) * 0.0137
    profile = [
        one.infinite + np.maximum(-np.expm1(x[:, None] - one.losses), 0.0) @ np.exp(one.log_masses)
        for one in (pair, moved)
    ]
    assert (profile[1] >= profile[0] * (1 - 1e-14)).all()
    assert (profile[1] <= profile[0] * (1 + 1e-11)).all()


def test_opendp_takes_the_whole_at_a_delta():
    charge = Charge({BoundedRange(0.1): 100})
    _, (epsilon, delta) = to_opendp(charge, "approximate", delta=DELTA)
    assert (epsilon, delta) == (compose(charge, delta=DELTA, lower=False).epsilon, DELTA)
    with pytest.raises(InvalidParameter, match="delta"):
        to_opendp(charge, "zcdp", delta=DELTA)
    with pytest.raises(IncompatibleCosts, match="no finite epsilon"):
        to_opendp(Charge({BoundedRange(0.1): 100}, delta=1e-3), "approximate", delta=DELTA)


@pytest.mark.parametrize("convert", [interop.to_dp_event, interop.to_pld, interop.to_opendp])
def test_a_library_that_is_missing_is_named(convert, monkeypatch):
    monkeypatch.setattr(interop, "find_spec", lambda _: None)
    with pytest.raises(InvalidParameter, match=r"pip install (dp-accounting|opendp)$"):
        convert(Charge({PureDP(0.5): 1}))
