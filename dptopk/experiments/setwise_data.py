"""Data on the adaptive optimum: what adaptivity gains, how much order matters, what the same budget affords."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dptopk.accounting.bounds import compose
from dptopk.accounting.calibration import queries_affordable
from dptopk.accounting.setwise.recursion import Rules, solve_in_order
from dptopk.costs import BoundedRange, Budget, Charge
from dptopk.errors import InvalidParameter
from dptopk.experiments.experiment import Table

BOUNDS = ("opt_kl", "setwise_zcdp", "mgf", "zcdp_tight", "renyi", "best")
MIXES = (
    "100*BR(0.1)",
    "50*BR(0.1) + 50*DP(0.1)",
    "20*BR(0.1) + 20*BR(0.05) + 5*DP(0.2)",
    "50*BR(0.1) + GDP(0.5)",
    "10*BR(0.5) + 5*DP(0.3)",
)


def adaptivity_gaps(counts: Sequence[int], *, epsilon: float = 0.1, delta: float = 1e-6) -> Table:
    """The ratio of the adaptive to the batch optimum's δ, at the batch optimum's ε_g (DDR Section 3.3).

    Returns:
        A row a k: k, epsilon_batch, and brackets epsilon_lower, epsilon_upper, ratio_lower, ratio_upper of the adaptive
        ε at the same δ and of δ_adaptive / δ_batch at the same ε.
    """
    rows = []
    for k in counts:
        charge = Charge({BoundedRange(epsilon): k})
        batch = compose(charge, delta=delta, bound="br_nonadaptive", interaction="batch").epsilon
        adaptive = compose(charge, delta=delta, bound="optimal_setwise", rtol=2e-4, effort="thorough")
        at_batch = compose(charge, epsilon=batch, bound="optimal_setwise", rtol=2e-3, effort="thorough")
        ratios = (at_batch.lower or 0.0) / delta, at_batch.delta / delta
        rows.append((k, batch, adaptive.lower, adaptive.epsilon, *ratios))
    names = "k epsilon_batch epsilon_lower epsilon_upper ratio_lower ratio_upper"
    return pd.DataFrame(rows, columns=names.split())


def value_in_order(epsilons: Sequence[float], x: float, *, steps: int = 128) -> tuple[float, float]:
    """(lower, upper) bound on δ(x) when distinct bounded ranges are played in one order, first to last, t adaptive.

    >>> low, high = value_in_order([0.5, 1.0], 0.0)
    >>> round(low, 3), round(high, 3)
    (0.26, 0.26)
    """
    if len(set(epsilons)) != len(epsilons):
        raise InvalidParameter(f"epsilons must be distinct, got {list(epsilons)}")
    below, above = (
        solve_in_order(Rules.of(dict.fromkeys(epsilons, 1), steps, upper=upper), range(len(epsilons)))
        for upper in (False, True)
    )
    at = np.array([x])
    return float(below.below(at, above)[0]), float(above.above(at)[0])


def order_effect(pairs: Sequence[tuple[float, float]], xs: Sequence[float]) -> Table:
    """δ(x) of two different ranges played in either order: a row a pair and x, with brackets."""
    rows = [
        (small, large, x, *value_in_order([small, large], x), *value_in_order([large, small], x))
        for small, large in pairs
        for x in xs
    ]
    names = "small large x rising_lower rising_upper falling_lower falling_upper"
    return pd.DataFrame(rows, columns=names.split())


def affordable(queries: Sequence[Charge], budget: Budget, bounds: Sequence[str] = BOUNDS) -> Table:
    """Number of queries of each kind that a budget affords under each bound: rows are queries, columns bounds."""
    rows = [
        {"query": str(query)} | {bound: queries_affordable(query, budget, bound=bound) for bound in bounds}
        for query in queries
    ]
    return pd.DataFrame(rows)


def mixes(charges: Sequence[str] = MIXES, *, delta: float = 1e-6) -> Table:
    """Compare the optimum with CR Lemmas 3.3 (CDP) and 3.4 (zCDP) and the Rényi curves, for mixed charges."""
    rows = []
    for text in charges:
        charge = Charge.parse(text)
        row: dict[str, object] = {"charge": text}
        for bound in ("setwise_cdp", "setwise_zcdp", "zcdp_tight", "renyi"):
            row[bound] = compose(charge, delta=delta, bound=bound).epsilon
        optimum = compose(charge, delta=delta, bound="optimal_setwise")
        rows.append(row | {"lower": optimum.lower, "optimal_setwise": optimum.epsilon})
    return pd.DataFrame(rows)
