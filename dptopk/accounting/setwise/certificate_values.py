"""Node values of groups of bounded ranges as a certificate states them, above what the checker
computes.

A certificate lists, for each *state* of a group's recursion (a multiset of ranges, or a sum of
prices, that may be left), upper bounds on V at consecutive nodes. The checker computes the steps
from the values stated for smaller states, in interval arithmetic, and refuses a value that is below
one of them: so each value here is moved up by more than the checker's intervals are wide.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import EPS, Floats
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.bellman_step import upper_step
from dptopk.accounting.setwise.certificate_factors import Entry
from dptopk.accounting.setwise.cost_groups import GroupPair, pair_of_layer
from dptopk.accounting.setwise.partition import CostGroup
from dptopk.accounting.setwise.price_game import window_of
from dptopk.accounting.setwise.price_rounding import Money, RoundingLevels
from dptopk.accounting.setwise.recursion import FLOOR, Layer, Rules
from dptopk.errors import NotCertified

LARGEST_LOSS = 600.0  # of a node: the checker's intervals are floats
UNDERFLOW = 1e-40  # the checker's quotients by u, at most e^LARGEST_LOSS, underflow below it
# Of V without costs, 1 - e^x: relative and absolute, wider than the checker's intervals of it.
EMPTY_LIFT = 1e-13
EMPTY_MARGIN = 2e-15
WIDEST_INTERVAL = 1e-6  # relative, of the checker's floats
LOW_BITS = 2**24 - 1  # of a node value, 0 in the file: they are 2^-28 of it at most
# By how much a value is raised for each cost in its state, relatively: more than 2^-28, by which
# the values of smaller states, with which it is compared, may have been rounded up.
LIFT_PER_DEPTH = 2.0**-27
# A node right of all others: beyond the last stored value the checker goes on with that value.
BEYOND_TOPS = 2**40
State = tuple[int, ...]


class StatedGroup(NamedTuple):
    """A group of ranges as a certificate states it.

    Attributes:
        factor: the factor of the certificate.
        pairs: the pairs that its node values make, each valid for its part of the group.
    """

    factor: Entry
    pairs: list[GroupPair]


class _StatedValues(NamedTuple):
    """The node values of the states of a group.

    Attributes:
        entry: what a factor says of them: the grid, the nodes of each state, and all values.
        rows: the same as a layer of upper bounds on V for each state.
    """

    entry: Entry
    rows: dict[State, Layer]


def factor_of_group(group: CostGroup, reach: float) -> StatedGroup:
    """Return a group of ranges as a factor of a certificate, with node values of everything that
    may be left, and the pairs that these make.

    Args:
        group: the ranges.
        reach: how many standard deviations of the loss matter.

    Raises:
        NotCertified: for numbers that the checker's intervals do not hold.
    """
    if group.levels:
        return _factor_of_prices(group, group.levels, reach)
    return _factor_of_multisets(group, reach)


def _factor_of_prices(group: CostGroup, levels: RoundingLevels, reach: float) -> StatedGroup:
    """Return a group that is played for prices as a factor, and the pair that its node values make.

    Its states are the sums of prices that may be left, from 0 to the largest that matters.

    Args:
        group: the ranges.
        levels: the levels that coins round them to.
        reach: how many standard deviations of the loss matter.
    """
    rules = levels.rules(group.largest, reach)
    law = Money.of(group.ranges, rules, levels.prices)
    states: list[State] = [(money,) for money in range(law.last + 1)]
    windows = np.array([window_of(rules, levels.prices, money) for (money,) in states])
    stated = _stated_values(rules, states, windows, levels.prices)
    entry: Entry = {
        "kind": "BR",
        "ranges": group.ranges,
        "weights": levels.prices,
        "first": law.first,
    }
    pair = law.pair(rules, levels.prices, stated.rows.values())
    return StatedGroup(entry | stated.entry, [pair])


def _factor_of_multisets(group: CostGroup, reach: float) -> StatedGroup:
    """Return a group without prices as a factor, and the pairs that its node values make.

    Its states are the multisets that may be left: of a single range the numbers up to the size of
    its largest part.

    Args:
        group: the ranges.
        reach: how many standard deviations of the loss matter.
    """
    rules = Rules.of(dict(group.ranges), group.steps, upper=True, reach=reach)
    sizes: list[tuple[State, int]]
    if group.single:
        sizes = [((size,), times) for size, times in group.sizes]
    else:
        sizes = [(group.counts, 1)]
    largest, _ = max(sizes)
    states = sorted(product(*(range(n + 1) for n in largest)), key=sum)
    windows = rules.windows(np.array(states))
    stated = _stated_values(rules, states, windows, ())
    entry: Entry = {"kind": "BR", "ranges": group.ranges, "weights": [], "parts": sizes}
    pairs = [replace(pair_of_layer(stated.rows[size]), count=times) for size, times in sizes]
    return StatedGroup(entry | stated.entry, pairs)


def _stated_values(
    rules: Rules, states: list[State], windows: NDArray[np.int64], prices: Sequence[int]
) -> _StatedValues:
    """Return the node values of all states, above what the checker computes, with half of their
    binary digits 0.

    Args:
        rules: the game and its grid.
        states: the multisets (or sums of prices) that may be left, smaller ones first.
        windows: the first and the last node of each state; widened by the longest step.
        prices: the price of each range, where prices are played; else empty.

    Raises:
        NotCertified: for a loss that the checker's floats do not hold.
    """
    windows = windows + np.array([-1, 1]) * max(rules.steps)
    if windows.max() * rules.h > LARGEST_LOSS:
        raise NotCertified(f"a loss above {LARGEST_LOSS:g}")
    rows = {
        state: replace(row, values=_rounded_to_high_bits(row.values, sum(state)))
        for state, row in _layers_of_states(rules, states, windows.tolist(), prices).items()
    }
    nodes = np.concatenate([row.values for row in rows.values()])
    stated: Entry = {
        "step": rules.h,
        "steps": rules.steps,
        "low": int(windows.min()),
        "high": int(windows.max()),
        "rows": [[state, row.first, len(row.values)] for state, row in rows.items()],
        "values": base64.b64encode(zlib.compress(nodes.tobytes(), 1)).decode(),
    }
    return _StatedValues(stated, rows)


def _layers_of_states(
    rules: Rules, states: list[State], windows: list[list[int]], prices: Sequence[int]
) -> dict[State, Layer]:
    """Return node values of each state, above what the checker computes for the moves from it.

    Args:
        rules: the game and its grid.
        states: the multisets (or sums of prices) that may be left, smaller ones first.
        windows: the first and the last node of each state.
        prices: the price of each range, where prices are played; else empty.
    """
    moves = _moves(len(rules.steps), prices)
    rows: dict[State, Layer] = {}
    for state, (first, last) in zip(states, windows, strict=True):
        best = _values_without_costs(first, last, rules.h)
        if prices and state[0]:
            # More money is worth no less.
            with_less_money = rows[(state[0] - 1,)].values_between(first, last)
            # A little more, as the checker compares with the upper end of an interval.
            best = np.maximum(best, with_less_money * (1 + 4 * EPS))
        for move, N in zip(moves, rules.steps, strict=True):
            state_after = tuple(count - taken for count, taken in zip(state, move, strict=True))
            if state_after in rows:
                values_after = rows[state_after].values_between(first - N, last + N)
                best = np.maximum(best, _step_above_checker(values_after, N, rules.h))
        rows[state] = Layer(first, best, BEYOND_TOPS, rules.h, upper=True)
    return rows


def _values_without_costs(first: int, last: int, h: float) -> Floats:
    """Return V = [1 - e^x]_+ at the nodes from ``first`` to ``last``, above what the checker
    computes.

    Args:
        first: the first node.
        last: the last node.
        h: the grid step.
    """
    x = np.arange(first, last + 1) * h
    above = -np.expm1(np.minimum(x, 0.0)) * (1 + EMPTY_LIFT) + EMPTY_MARGIN
    values: Floats = np.where(x <= 0, above, 0.0) + FLOOR
    return values


def _moves(kinds: int, prices: Sequence[int]) -> list[State]:
    """Return, for each range, what playing one of its costs takes from a state: its price, or one
    cost of its kind.

    Args:
        kinds: the number of ranges.
        prices: the price of each range, where prices are played; else empty.
    """
    if prices:
        return [(price,) for price in prices]
    return [tuple(row) for row in np.eye(kinds, dtype=np.int64).tolist()]


def _step_above_checker(values: Floats, N: int, h: float) -> Floats:
    """Return the step of a bounded range at the inner nodes, moved above what the checker computes.

    The step of a decreasing function decreases, so that a bound at one node bounds it at all later
    ones. Without that, bounds that differ from node to node by rounding would make a chord over a
    low one, between two higher ones, larger than the low one's next value.

    Args:
        values: node values, which decrease, with N more on either side.
        N: the number of grid steps to ε.
        h: the grid step.

    Raises:
        NotCertified: where the checker's intervals would be wider than WIDEST_INTERVAL.
    """
    falls = np.lib.stride_tricks.sliding_window_view(-np.diff(values), N).max(axis=-1) / h
    inner = upper_step(values, N, h)
    # A step says no more than 1, which no V exceeds. But stated values may, and the checker asks
    # for all of their chords; none of these is above both of its ends.
    inner = np.where(inner >= 1, np.maximum(inner, values.max()), inner)
    inner = np.minimum.accumulate(inner)
    # How wide the checker's intervals are, relatively: slopes are quotients by differences of e^x,
    # and a chord's ends are divided by e^ε - 1.
    width = tuning.CHECKER_LIFT * EPS / (h * -math.expm1(-N * h))
    if width > WIDEST_INTERVAL:
        raise NotCertified("a range so small that the checker's intervals say nothing")
    lift = width * (values[: len(inner)] + falls[: len(inner)])
    lift = np.maximum.accumulate(lift[::-1])[::-1]  # decreasing, as the step must stay so
    above: Floats = inner + lift + UNDERFLOW
    return above


def _rounded_to_high_bits(values: Floats, depth: int) -> Floats:
    """Return node values with half of their binary digits 0, rounded up, so that the file is half
    as long.

    A value is rounded up by at most half of the factor by which it exceeds those of the states
    before it, so that the steps between them still hold.

    Args:
        values: node values of a state.
        depth: the number of costs, or prices, that are left in the state.
    """
    raised = values * (1 + LIFT_PER_DEPTH) ** depth
    return ((raised.view(np.int64) + LOW_BITS) & ~LOW_BITS).view(np.float64)
