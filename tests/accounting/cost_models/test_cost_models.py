"""What every type of cost brings with it: the parts of one Kind agree with one another."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dptopk.accounting.cost_models.conversions import cost_with_row
from dptopk.accounting.cost_models.cost_registry import cost_model_of, cost_models
from dptopk.accounting.cost_models.dominating_pairs import loss_components
from dptopk.accounting.interop import to_dp_event
from dptopk.accounting.renyi.renyi_curves import log_mgf
from dptopk.budgets.registered_costs import dominates
from dptopk.costs import (
    CDP,
    COST_TYPES,
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
)
from dptopk.errors import IncompatibleCosts

# A small and a large cost of every type.
COSTS = [
    (PureDP(0.1), PureDP(0.7)),
    (BoundedRange(0.1), BoundedRange(0.7)),
    (ExponentialClockDP(0.1), ExponentialClockDP(0.7)),
    (ApproxDP(0.1, 1e-6), ApproxDP(0.7, 1e-4)),
    (MultiDP(((0.3, 0.0), (0.1, 0.01))), MultiDP(((0.9, 0.0), (0.1, 0.3)))),
    (DiscreteLaplaceDP(5.0, 2), DiscreteLaplaceDP(5.0, 4)),
    (LaplaceDP(5.0, 0.3), LaplaceDP(5.0, 2.5)),
    (GaussianDP(0.1), GaussianDP(0.7)),
    (DiscreteGaussianDP(5.0, 1), DiscreteGaussianDP(5.0, 3)),
    (SparseGaussianDP(5.0, 1, 25, 2), SparseGaussianDP(5.0, 2, 25, 3)),
    (LabelCoinsDP(17.0, 0.07, 1e-7, 2), LabelCoinsDP(17.0, 0.07, 1e-7, 3)),
    (ZCDP(0.1, xi=0.01), ZCDP(0.7, xi=0.01)),
    (CDP(0.1, 0.3), CDP(0.4, 0.9)),
]
ORDERS = np.geomspace(1e-3, 30, 9)


def test_every_type_has_a_kind_and_stands_in_this_test():
    assert set(cost_models()) == set(COST_TYPES) == {type(small) for small, _ in COSTS}


@pytest.mark.parametrize(("small", "large"), COSTS, ids=str)
def test_the_parts_of_a_kind_agree(small, large):
    kind = cost_model_of(small)
    assert dominates(large, small)
    assert not dominates(small, large)
    if kind.family:
        (name, size), (other_name, other_size) = kind.family(small), kind.family(large)
        assert name == other_name
        assert size < other_size
    for cost in (small, large):
        other = cost_with_row(cost)
        if kind.log_mgf is None or other is None:
            continue
        mine = log_mgf(Charge({cost: 3}))(ORDERS)
        if kind.implied.exact_zcdp:
            xi, rho = kind.implied.exact_zcdp(cost)
            assert (mine <= 3 * ORDERS * (xi + rho * (1 + ORDERS)) * (1 + 1e-12)).all()
            assert kind.implied.zcdp(cost)[1] >= rho
        if kind.loss_components:  # the pair's own log-MGF is what the bound bounds
            pairs = loss_components(Charge({cost: 3}))
            values = np.array([sum(part.log_mgf(order) for part in pairs) for order in ORDERS])
            assert (values <= mine * (1 + 1e-9)).all()


@pytest.mark.parametrize("cost", [small for small, _ in COSTS], ids=str)
def test_an_event_or_a_reason(cost):
    model = cost_model_of(cost)
    if model.dp_event is None:
        assert model.no_counterpart
        with pytest.raises(IncompatibleCosts, match=re.escape(model.no_counterpart)):
            to_dp_event(Charge({cost: 1}))
    else:
        assert to_dp_event(Charge({cost: 2})).events[0].count == 2


@pytest.mark.parametrize(
    ("token", "cost"),
    [
        (ZCDP(0.5), GaussianDP(1.0)),
        (ZCDP(0.02), DiscreteGaussianDP(5.0, 1)),
        (ZCDP(0.005), PureDP(0.1)),
        (CDP(0.5, 1.0), GaussianDP(1.0)),
    ],
    ids=str,
)
def test_a_token_covers_the_cost_it_equals(token, cost):
    """The constants of the table are exact values rounded up, not moved up by a slack."""
    assert dominates(token, cost)
    smaller = {ZCDP: lambda t: ZCDP(t.rho * 0.99), CDP: lambda t: CDP(t.mu, t.tau * 0.99)}[
        type(token)
    ](token)
    assert not dominates(smaller, cost)
