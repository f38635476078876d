"""The exponential mechanism: its law, real utilities on the grid, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptopk import Charge, Exponential, Histogram, InvalidParameter, Sensitivity
from dptopk.costs import BoundedRange

MECHANISM = Exponential(epsilon=0.7, utility_range=1.0)
ABC = Histogram(["a", "b", "c"], [3, 0, 5], domain="public")


def test_charge_is_one_bounded_range_cost():
    assert MECHANISM.charge(Sensitivity(linf=5)) == Charge({BoundedRange(0.7): 1})
    assert MECHANISM.release(ABC, np.random.default_rng(0)).charge == Charge({BoundedRange(0.7): 1})


def grid_law(mechanism, utilities):
    """The law that the steps stand for."""
    steps, scale = mechanism._steps(utilities, len(utilities))
    weights = np.exp(mechanism.epsilon * (steps - steps.max()) / scale)
    return weights / weights.sum()


def test_real_utilities_give_nearly_the_exact_law():
    utilities = [0.3, -1.7, 2.25, 2.0]
    weights = np.exp(0.7 * np.array(utilities))
    np.testing.assert_allclose(grid_law(MECHANISM, utilities), weights / weights.sum(), rtol=1e-6)


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1)), min_size=2, max_size=6),
    st.floats(0.01, 100),
    st.floats(-1e3, 1e3),
)
def test_the_range_of_the_loss_never_exceeds_epsilon(pairs, utility_range, offset):
    """Neighbouring utilities whose changes differ by at most the range: max minus min log ratio is at most ε."""
    before = np.array([u for u, _ in pairs])
    # The changes that the floats make in fact decide: where rounding made them differ by more, the range grows.
    after = before + offset + np.array([move for _, move in pairs]) * utility_range
    true_changes = [math.fsum([b, -a]) for a, b in zip(before, after, strict=True)]
    mechanism = Exponential(epsilon=0.7, utility_range=max(utility_range, max(true_changes) - min(true_changes)))
    (first, scale), (second, _) = (mechanism._steps(u, len(pairs)) for u in (before, after))
    changes = second - first
    assert (changes.max() - changes.min()) / scale <= 1


def test_counts_as_utilities_need_a_range_of_at_least_linf():
    with pytest.raises(InvalidParameter, match="utility_range"):
        MECHANISM.release(Histogram(None, [1, 2], sensitivity=Sensitivity(linf=2)))


@pytest.mark.parametrize("bad", [[1.0, 2.0], [1.0, math.nan, 0.0], [1.0, math.inf, 0.0], [[1.0, 2.0, 3.0]]])
def test_bad_utilities(bad):
    with pytest.raises(InvalidParameter, match="utilities"):
        MECHANISM.release(ABC, utilities=bad)


@pytest.mark.parametrize(
    ("histogram", "named"),
    [
        (Histogram(["a"], [1]), "domain"),
        (Histogram(["a"], [1], domain="public", complete=False), "complete"),
        (Histogram(None, []), "histogram"),
        (Histogram(None, [1], sensitivity=Sensitivity(neighbours="replace_one")), "neighbours"),
    ],
)
def test_refusals(histogram, named):
    with pytest.raises(InvalidParameter, match=named):
        MECHANISM.release(histogram)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, None, "1"])
def test_bad_parameters(bad):
    with pytest.raises(InvalidParameter, match="epsilon"):
        Exponential(epsilon=bad, utility_range=1.0)
    with pytest.raises(InvalidParameter, match="utility_range"):
        Exponential(epsilon=1.0, utility_range=bad)


def test_unlikely_labels_are_left_alone():
    chosen = {MECHANISM.release(ABC, np.random.default_rng(i), utilities=[0, 200, -1e9]).labels for i in range(20)}
    assert chosen == {("b",)}
