"""The exponential mechanism: its law, real utilities on the grid, refusals."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dptopk import Charge, Exponential, Histogram, InvalidParameter, Sensitivity
from dptopk.costs import BoundedRange

MECHANISM = Exponential(epsilon=0.7, utility_range=1.0)
ABC = Histogram(["a", "b", "c"], [3, 0, 5], domain="public")


def test_charge_is_one_bounded_range_cost():
    assert MECHANISM.charge(Sensitivity(linf=5)) == Charge({BoundedRange(0.7): 1})
    assert MECHANISM.release(ABC, np.random.default_rng(0)).charge == Charge({BoundedRange(0.7): 1})


def frequencies(histogram, draws=4000, **options):
    rng = np.random.default_rng(7)
    chosen = [MECHANISM.release(histogram, rng, **options).labels[0] for _ in range(draws)]
    return np.array([chosen.count(label) for label in ("a", "b", "c")])


def distance(observed, law):
    """Pearson's statistic, 2 degrees of freedom: above 20 with probability e^-10 under the right
    law.
    """
    expected = observed.sum() * law
    return ((observed - expected) ** 2 / expected).sum()


def softmax(scores):
    weights = np.exp(scores)
    return weights / weights.sum()


@pytest.mark.slow
def test_law_of_counts_and_of_real_utilities():
    """The law is that of ε·u/range, and neither that of ε·u/(2·range) nor that of ε·u."""
    for observed, utilities, utility_range in [
        (
            frequencies(Histogram(["a", "b", "c"], [3, 1, 2], domain="public")),
            np.array([3, 1, 2]),
            1,
        ),
        (frequencies(ABC, utilities=[0.5, -0.75, 0.25]), np.array([0.5, -0.75, 0.25]), 1),
    ]:
        assert distance(observed, softmax(0.7 * utilities / utility_range)) < 20
        assert distance(observed, softmax(0.35 * utilities)) > 20
        assert distance(observed, softmax(1.4 * utilities)) > 20


def test_counts_as_utilities_need_a_range_of_at_least_linf():
    with pytest.raises(InvalidParameter, match="utility_range"):
        MECHANISM.release(Histogram(None, [1, 2], sensitivity=Sensitivity(linf=2)))


@pytest.mark.parametrize(
    "bad", [[1.0, 2.0], [1.0, math.nan, 0.0], [1.0, math.inf, 0.0], [[1.0, 2.0, 3.0]]]
)
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
    chosen = {
        MECHANISM.release(ABC, np.random.default_rng(i), utilities=[0, 200, -1e9]).labels
        for i in range(20)
    }
    assert chosen == {("b",)}


@pytest.mark.parametrize(
    "utilities",
    [[2**60 + 129, 2**60 + 128], np.array([2**60 + 129, 2**60 + 128])],
    ids=["list", "array"],
)
def test_integer_utilities_are_not_rounded(utilities):
    """As floats they would be 256 apart, and the first would always be drawn."""
    mechanism, pair = (
        Exponential(epsilon=0.1, utility_range=1.0),
        Histogram(["x", "y"], [0, 0], domain="public"),
    )
    rng = np.random.default_rng(3)
    first = sum(
        mechanism.release(pair, rng, utilities=utilities).labels == ("x",) for _ in range(400)
    )
    assert abs(first / 400 - 1 / (1 + math.exp(-0.1))) < 0.1


@pytest.mark.parametrize(
    "utilities",
    [
        [2**63, 0], [2**60, 0.5], np.array([2**63, 0], dtype=np.uint64), np.array([1, 2], dtype=np.longdouble),
        np.array([1, 2], dtype=complex), ["1", "2"], [Fraction(1, 3), 0.5], [1.0, math.nan],
    ],
    ids=str,
)  # fmt: skip
def test_utilities_that_would_be_rounded_are_refused_before_the_draw(utilities):
    pair = Histogram(["x", "y"], [0, 0], domain="public")
    with pytest.raises(InvalidParameter, match="utilities"):
        MECHANISM.check(pair, utilities=utilities)
