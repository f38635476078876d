"""Costs and charges: validation, multiset algebra, text round trips."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from dptopk import Accountant, Budget
from dptopk.costs import (
    CDP,
    ZCDP,
    ApproxDP,
    BoundedRange,
    Charge,
    DiscreteGaussianDP,
    DiscreteLaplaceDP,
    ExponentialClockDP,
    GaussianDP,
    LabelCoinsDP,
    LaplaceDP,
    MultiDP,
    PureDP,
    SparseGaussianDP,
    sum_up,
)
from dptopk.errors import IncompatibleCosts, InvalidParameter

positives = st.floats(min_value=1e-9, max_value=60, allow_nan=False)
deltas = st.floats(min_value=0, max_value=0.01)
COSTS = st.one_of(
    st.builds(PureDP, positives),
    st.builds(BoundedRange, positives),
    st.builds(GaussianDP, positives),
    st.builds(DiscreteGaussianDP, positives, st.integers(1, 9)),
    st.builds(ExponentialClockDP, positives),
    st.builds(DiscreteLaplaceDP, positives, st.integers(1, 9)),
    st.builds(LaplaceDP, positives, positives),
    st.builds(
        SparseGaussianDP, positives, st.integers(1, 9), st.integers(9, 99), st.integers(1, 9)
    ),
    st.builds(
        LabelCoinsDP,
        positives.map(lambda x: 1 + x),
        positives,
        st.floats(1e-9, 0.4),
        st.integers(1, 9),
    ),
    st.builds(ApproxDP, positives, deltas),
    st.builds(CDP, positives, positives),
    st.builds(lambda rho, xi: ZCDP(rho, xi=xi), positives, deltas),
    st.builds(
        lambda pairs: MultiDP(tuple(pairs)),
        st.lists(st.tuples(positives, deltas), min_size=1, max_size=3),
    ),
)
CHARGES = st.builds(
    Charge,
    st.dictionaries(COSTS, st.integers(0, 1000), max_size=4),
    delta=deltas,
    adaptive=st.booleans(),
    neighbours=st.sampled_from(["add_remove", "replace_one"]),
)


@given(CHARGES)
def test_text_pickle_and_copy_round_trip(charge):
    assert Charge.parse(str(charge)) == charge
    assert hash(Charge.parse(str(charge))) == hash(charge)
    assert pickle.loads(pickle.dumps(charge)) == charge  # noqa: S301
    assert copy.deepcopy(charge) == charge


@pytest.mark.slow
@given(st.lists(CHARGES.filter(lambda c: c.neighbours == "add_remove"), max_size=4))
def test_join_adds_counts_and_rounds_delta_up(charges):
    joined = Charge.join(*charges)
    assert joined.count == sum(charge.count for charge in charges)
    exact = sum(Fraction(charge.delta) for charge in charges)
    assert exact <= Fraction(joined.delta) <= exact * (1 + Fraction(2) ** -51)
    assert joined.adaptive == any(charge.adaptive for charge in charges)


@pytest.mark.slow
@given(CHARGES.filter(lambda c: c.delta < 1e-3), st.integers(0, 5))
def test_times_is_joining_copies(charge, n):
    repeated, joined = charge.times(n), Charge.join(*[charge] * n)
    assert repeated.costs == joined.costs
    assert repeated.delta == joined.delta


def test_join_refuses_different_neighbours():
    with pytest.raises(IncompatibleCosts, match="neighbours"):
        Charge.join(Charge({PureDP(1): 1}), Charge({PureDP(1): 1}, neighbours="replace_one"))
    assert Charge.join().costs == {}


def test_join_of_an_instance_joins_it_too():
    """Otherwise a charge asked to join others would be left out of what is paid."""
    one, other = Charge({PureDP(0.1): 2}, delta=1e-7), Charge({BoundedRange(0.2): 3})
    assert (
        one.join(other)
        == Charge.join(one, other)
        == Charge({PureDP(0.1): 2, BoundedRange(0.2): 3}, delta=1e-7)
    )
    assert one.join() == one
    with pytest.raises(InvalidParameter, match="Charge objects"):
        one.join(1e-6)
    with pytest.raises(IncompatibleCosts, match="neighbours"):
        one.join(Charge({PureDP(1): 1}, neighbours="replace_one"))


def test_an_accountant_has_no_filter_of_its_own():
    """It would be a new account that knows nothing of what the accountant has spent."""
    assert Accountant.filter(Budget(1, 1e-6)).remaining() is not None
    with pytest.raises(AttributeError, match="on the class"):
        Accountant(Charge({PureDP(0.1): 2}), delta=1e-6).filter(Budget(1, 1e-6))


def test_sum_up_is_the_exact_sum_rounded_up():
    assert sum_up([0.1] * 10) >= Fraction(0.1) * 10
    assert sum_up({0.1: 10}) == sum_up([0.1] * 10)
    assert math.nextafter(sum_up({0.1: 10}), 0) < Fraction(0.1) * 10
    assert sum_up([0.25, 0.5]) == 0.75


@pytest.mark.parametrize("cost_type", [PureDP, BoundedRange, GaussianDP, ZCDP])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "0.1", None])
def test_costs_refuse_bad_parameters(cost_type, value):
    with pytest.raises(InvalidParameter, match=r"epsilon|mu|rho"):
        cost_type(value)


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: ApproxDP(1, 1), "delta"),
        (lambda: ApproxDP(1, -1e-9), "delta"),
        (lambda: ApproxDP(0, 0), "epsilon"),
        (lambda: DiscreteGaussianDP(1.0, 0), "shift"),
        (lambda: DiscreteGaussianDP(1.0, 1.5), "shift"),
        (lambda: SparseGaussianDP(1.0, 3, 2, 1), "threshold"),
        (lambda: SparseGaussianDP(1.0, 1, 2, 0), "labels"),
        (lambda: LabelCoinsDP(1.0, 0.1, 1e-6, 2), "order"),
        (lambda: LabelCoinsDP(9.0, 0.1, 0.5, 2), "first"),
        (lambda: LabelCoinsDP(9.0, 0.1, 1e-6, 0), "labels"),
        (lambda: CDP(-1, 1), "mu"),
        (lambda: CDP(1, 0), "tau"),
        (lambda: ZCDP(1, xi=-1), "xi"),
        (lambda: MultiDP(()), "constraints"),
        (lambda: MultiDP("ab"), "constraints"),
        (lambda: MultiDP(((1, 2, 3),)), "constraints"),
        (lambda: MultiDP(((1, 2),)), "delta"),
        (lambda: Charge([PureDP(1)]), "costs"),
        (lambda: Charge({PureDP(1): 1.5}), "count"),
        (lambda: Charge({PureDP(1): -1}), "count"),
        (lambda: Charge({"DP": 1}), "costs"),
        (lambda: Charge(delta=1.0), "delta"),
        (lambda: Charge(delta=math.nan), "delta"),
        (lambda: Charge(adaptive=1), "adaptive"),
        (lambda: Charge(neighbours="swap"), "neighbours"),
        (lambda: Charge({PureDP(1): 1}).times(-1), "repetitions"),
    ],
)
def test_bad_arguments_are_named(build, name):
    with pytest.raises(InvalidParameter, match=name):
        build()


@pytest.mark.parametrize(
    "text",
    ["BR", "BR()", "BR(0.1, 2)", "BR(x)", "25 BR(0.1)", "-1*BR(0.1)", "BR(0.1) +", "FOO(1)", "BR(0.1) [fast]",
     "BR(nan)", "BR(0.1) - BR(0.1)", "BR(0.1) [add_remove, replace_one]", "MultiDP(1)", "MultiDP(1:2:3)", 7,
     # names that are not the parameter's, doubled or in disorder
     "BR(delta=0.1)", "DP(a=0.1=0.5)", "BR(epsilon==0.1)", "ADP(epsilon=0.1, epsilon=0.2)", "ADP(epsilon=0.1, 1e-6)",
     "CDP(tau=1)", "DGauss(scale=1)", "BR(epsilon=0.1,)", "MultiDP(epsilon=1:0)",
     # numbers that could be meant otherwise, or would be read as 0
     "DP(1,000)", "DP(1_0)", "DP(0x1)", "DP(01)", "DP(1e-400)", "ADP(0.1, 1e-400)", "delta(1e-400)", "DP(\u0661)",
     "DGauss(2, 1.5)", "DGauss(2, 1e999999)", "BR(inf)", "delta(1)"],
)  # fmt: skip
def test_parse_refuses(text):
    with pytest.raises(InvalidParameter):
        Charge.parse(text)


def test_parse_reads_what_people_write():
    charge = Charge.parse(
        "25*BR(0.1) + 2 * dp(0.3)+ZCDP(0.07)+ DP(1e+0, 1e-6) + BR(0.1) + 2*delta(1e-7)"
    )
    assert charge == Charge(
        {BoundedRange(0.1): 26, PureDP(0.3): 2, ZCDP(0.07): 1, ApproxDP(1, 1e-6): 1}, delta=2e-7
    )
    assert Charge.parse("0") == Charge.parse("") == Charge()
    assert Charge.parse("ZCDP(0.1, xi=0.2)") == Charge({ZCDP(0.1, xi=0.2): 1})
    assert not Charge()
    assert Charge(delta=1e-9)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("ZCDP(xi=0.1, rho=0.4)", ZCDP(0.4, xi=0.1)),
        ("CDP(tau=2.0, mu=0.1)", CDP(0.1, 2.0)),
        ("DGauss(shift=2, scale=1)", DiscreteGaussianDP(1.0, 2)),
        ("ADP(delta=1e-6, epsilon=0.5)", ApproxDP(0.5, 1e-6)),
        ("DP(delta=1e-6, epsilon=0.5)", ApproxDP(0.5, 1e-6)),
        ("DGauss(2, shift=3)", DiscreteGaussianDP(2.0, 3)),
        ("DGauss(2, 12345678901234567890)", DiscreteGaussianDP(2.0, 12345678901234567890)),
    ],
)
def test_parse_honours_names(text, cost):
    assert Charge.parse(text) == Charge({cost: 1})


def test_parse_takes_linear_time_and_little_memory():
    """Counts are multiplied, not listed; a plus sign is looked at once (the quadratic form takes
    minutes here).
    """
    assert Charge.parse("10000000000000*delta(1e-300)").delta == pytest.approx(1e-287, rel=1e-12)
    assert Charge.parse("+".join(["DP(1)"] * 50_000)) == Charge({PureDP(1): 50_000})
    with pytest.raises(InvalidParameter, match="cannot read"):
        Charge.parse("+" * 200_000)


def test_charges_are_immutable_values():
    charge = Charge({PureDP(1): 1})
    with pytest.raises(AttributeError):
        charge.delta = 0.5
    with pytest.raises(TypeError):
        charge.costs[PureDP(1)] = 2
    assert Charge({PureDP(1): 1, BoundedRange(1): 0}) == charge
    assert charge.of(BoundedRange) == {}
