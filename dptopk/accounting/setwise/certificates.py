"""Certificates: files from which an auditor can check an ε without this package (checker/check_certificate.py).

A certificate holds the product of pairs of docs/notes/setwise.md, Theorem C, in a form that is dear to make and cheap
to check: for bounded ranges, split into groups as ``compose`` splits them, the value functions of all multisets of a
group on a grid; every other cost is named, for the checker knows its profile. Nothing here needs to be
rigorous: the step of the engine proposes node values, moved up by more than the checker's intervals are wide, and the
engine's product an ε, moved up by more than its rounding; the checker proves both in interval arithmetic.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product as product_of
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptopk._internal import validate
from dptopk.accounting.cost_models.dominating_pairs import loss_components
from dptopk.accounting.curves import EPS, Floats, Query
from dptopk.accounting.pld.lattice import product
from dptopk.accounting.pld.loss_components import Grid
from dptopk.accounting.pld.pairs import Pairs, randomised_response
from dptopk.accounting.registry import Certificate, split_failure
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.bellman_step import upper_step
from dptopk.accounting.setwise.groups import GroupPair, concentrated_pair, pair_above
from dptopk.accounting.setwise.optimum import SetwiseCurve
from dptopk.accounting.setwise.partition import Group, partition
from dptopk.accounting.setwise.recursion import Rules, mean_loss
from dptopk.costs import ZCDP, ApproxDP, BoundedRange, Charge, Cost, DiscreteGaussianDP, GaussianDP, PureDP
from dptopk.costs.rounding import round_up
from dptopk.errors import NotCertified

FORMAT = 2
LARGEST_EPSILON = 10.0  # of one cost
SMALLEST_DELTA = 1e-11  # below, the float products that propose ε lose their digits


def certify(charge: Charge, *, delta: float) -> Certificate:
    """A certificate that a charge, spent in any order and adaptively, is (ε, δ)-DP.

    Args:
        charge: of PureDP, ApproxDP, BoundedRange, GaussianDP, DiscreteGaussianDP and ZCDP costs.
        delta: in [1e-11, 1).

    Returns:
        A certificate of an upper bound ε, within about 1e-3 of that of ``compose`` but for three or more different
        ranges with large counts.

    Raises:
        NotCertified: for other costs, or a δ outside this range or within 1e-11 of the charge's own failures.
    """
    validate.instance(Charge, charge=charge)
    delta = validate.probability(delta=delta)
    rest, failure = split_failure(charge)
    left = (delta - charge.delta - failure) / (1 - failure) if failure < 1 else 0.0
    if left < SMALLEST_DELTA:
        raise NotCertified(f"delta must leave {SMALLEST_DELTA:g} beside the charge's own failures")
    if not rest.costs:
        return _file(charge, 0.0, delta, [], 1.0, 1)
    factors, variance, order = _factors(rest, left)
    reach = _reach(left)
    window = (reach + tuning.CERTIFIED_LEFT + 3) * math.sqrt(variance)
    splits = sum(f.splits for f in factors)
    finest = math.sqrt(tuning.SPLITTING * tuning.LATTICE_SHARE * tuning.CERTIFIED_TOLERANCE * variance / splits)
    own = {f.step for f in factors}
    step = max(own.pop() if len(own) == 1 and own != {0.0} else finest, window / tuning.CERTIFICATE_PLACES)
    for f in factors:
        wide = math.ceil((f.largest or abs(f.mean) + (reach + 2) * f.spread) / step) + 1
        f.entry |= {"low": -wide, "high": wide}
        if isinstance(f.cost, ZCDP):
            f.made = (concentrated_pair(Charge({f.cost: 1}), step, wide * step),)
    epsilon = _epsilon(factors, step, min(order, tuning.WINDOW / math.sqrt(variance)), left * (1 - tuning.CHECKER_ROOM))
    places = math.ceil(window / step) + max(f.entry["high"] for f in factors)
    return _file(charge, epsilon, delta, factors, step, places)


@dataclass
class _Factor:
    """One kind of cost: what the file says of it, and of one pair that is multiplied about what the lattice needs.

    Attributes:
        entry: as in the file.
        mean, spread: of the loss, about; ``largest``: the largest loss, where there is one.
        step: of the lattice on which its losses lie, or 0.
        splits: how many pairs are split on another lattice.
        cost: the cost itself; made: else pairs made from its profile.
    """

    entry: dict[str, Any]
    mean: float
    spread: float
    step: float = 0.0
    splits: int = 1
    largest: float = 0.0
    cost: Any = None
    made: tuple[GroupPair, ...] = ()

    def pairs(self, grid: Grid) -> list[Pairs]:
        """What the checker multiplies: chords of the profile between the points of the lattice, as many times."""
        if self.made:
            return [pair for one in self.made for pair in one.pairs(grid)]
        kind, count = self.entry["kind"], self.entry["count"]
        assert self.cost is not None  # noqa: S101 - for the type checker
        if kind == "DP":
            return [randomised_response(np.array([self.entry["epsilon"]]), count)]
        if kind == "GDP":  # many are one Gaussian
            return loss_components(Charge({self.cost: count}))[0].pairs(grid)
        return [replace(pair, count=count) for pair in loss_components(Charge({self.cost: 1}))[0].pairs(grid)]


def _factors(charge: Charge, delta: float) -> tuple[list[_Factor], float, float]:
    """The factors of a charge without failures, about the variance of the loss, and a tilt."""
    curve = SetwiseCurve.of(charge)
    order = curve.chernoff(Query(delta=delta))[1]
    variance = curve.variance(order)
    groups = _groups(curve.ranges, variance, order) if curve.ranges else []
    found = [_ranges(group, delta) for group in groups]
    found += [_factor(cost, times) for cost, times in charge if not isinstance(cost, ZCDP | BoundedRange)]
    zcdp = charge.of(ZCDP)
    if zcdp:
        xi, rho = (
            round_up(sum((Fraction(getattr(c, name)) * n for c, n in zcdp.items()), Fraction(0)))
            for name in ("xi", "rho")
        )
        entry = {"kind": "ZCDP", "count": 1, "xi": xi, "rho": rho}  # one statement for all of them
        found.append(_Factor(entry, xi + rho, math.sqrt(2 * rho), cost=ZCDP(rho, xi=xi)))
    return found, variance, order


def _groups(ranges: Mapping[float, int], variance: float, order: float) -> list[Group]:
    """Groups that the checker knows: of one range, or of few with few multisets."""
    return partition(ranges, variance, tuning.CERTIFIED_TOLERANCE, tuning.CERTIFIED_WORK, order, weights=False)


def _factor(cost: Cost, times: int) -> _Factor:
    entry: dict[str, Any] = {"count": times}
    if isinstance(cost, PureDP):
        _small_enough(cost.epsilon)
        entry |= {"kind": "DP", "epsilon": cost.epsilon}
        return _Factor(entry, 0.0, cost.epsilon, cost.epsilon, times, cost.epsilon, cost)
    if isinstance(cost, GaussianDP):
        entry |= {"kind": "GDP", "mu": cost.mu}
        return _Factor(entry, times * cost.mu**2 / 2, math.sqrt(times) * cost.mu, cost=cost)
    if isinstance(cost, DiscreteGaussianDP):
        entry |= {"kind": "DGauss", "scale": cost.scale, "shift": cost.shift}
        mu = cost.shift / cost.scale
        return _Factor(entry, mu**2 / 2, mu, splits=times, cost=cost)
    raise NotCertified(f"certificates do not take {type(cost).__name__}")


def _small_enough(epsilon: float) -> None:
    if epsilon > LARGEST_EPSILON:
        raise NotCertified(f"certificates take ε up to {LARGEST_EPSILON:g}")


def _ranges(group: Group, delta: float) -> _Factor:
    """A group of ranges: the value functions of all multisets that may be left, each on the nodes that matter."""
    counts = tuple(count for _, count in group.ranges)
    parts = [((size,), power) for size, power in group.sizes] if group.single else [(counts, 1)]
    largest = max(part for part, _ in parts)
    _small_enough(group.largest)
    rules = Rules.of(dict(group.ranges), group.steps, upper=True, reach=_reach(delta / group.copies))
    states = sorted(product_of(*(range(n + 1) for n in largest)), key=sum)
    windows = rules.windows(np.array(states)) + np.array([-1, 1]) * max(rules.steps)
    rows: dict[tuple[int, ...], tuple[int, Floats]] = {}
    for state, (first, last) in zip(states, windows.tolist(), strict=True):
        x = np.arange(first, last + 1) * rules.h
        best = np.where(x <= 0, -np.expm1(x) * (1 + 1e-13) + 2e-15, 0.0)
        for part, N in enumerate(rules.steps):
            if state[part]:
                before = rows[(*state[:part], state[part] - 1, *state[part + 1 :])]
                best = np.maximum(best, _stepped(before, N, rules.h, np.arange(first - N, last + N + 1)))
        rows[state] = first, best
    entry = {
        "kind": "BR",
        "ranges": [[epsilon, count, N] for (epsilon, count), N in zip(group.ranges, rules.steps, strict=True)],
        "step": rules.h,
        "parts": parts,
        "rows": [[state, first, len(row)] for state, (first, row) in rows.items()],
        "values": base64.b64encode(
            zlib.compress(np.concatenate([row for _, row in rows.values()]).tobytes(), 9)
        ).decode(),
    }
    pairs = []
    for size, power in parts:
        first, row = rows[size]
        pairs.append(replace(pair_above(first + np.arange(len(row)), row, rules.h), count=power))
    mean = math.fsum(n * mean_loss(epsilon) for (epsilon, _), n in zip(group.ranges, largest, strict=True))
    spread = math.sqrt(math.fsum(n * epsilon**2 for (epsilon, _), n in zip(group.ranges, largest, strict=True))) / 2
    return _Factor(entry, mean, spread, rules.h, group.copies, made=tuple(pairs))


def _stepped(before: tuple[int, Floats], N: int, h: float, nodes: NDArray[np.int64]) -> Floats:
    """The step of a range of N grid steps at the nodes but the N outer ones, above what the checker computes."""
    around = _extended(before[1], before[0], h, nodes)
    falls = np.lib.stride_tricks.sliding_window_view(-np.diff(around), N).max(axis=-1) / h
    found = upper_step(around, N, h)
    lift = tuning.CHECKER_LIFT * EPS / (h * math.expm1(N * h)) * (around[: len(found)] + falls[: len(found)])
    above: Floats = found + lift + tuning.LEAST_LIFT
    return above


def _extended(row: Floats, first: int, h: float, nodes: NDArray[np.int64]) -> Floats:
    """Node values as the checker continues them: on the left the chord from (0, 1), on the right the last value."""
    chord = 1 - (1 - row[0]) * np.exp((np.minimum(nodes, first) - first) * h)
    inside = row[np.clip(nodes - first, 0, len(row) - 1)]
    return np.where(nodes < first, chord, inside)


def _reach(delta: float) -> float:
    return math.sqrt(tuning.CERTIFIED_REACH**2 + 2 * max(0.0, math.log(1e-6 / delta)))


def _epsilon(factors: list[_Factor], step: float, tilt: float, delta: float) -> float:
    """The ε of the product that the checker forms."""
    grid = Grid(step, tilt, 1)
    law = product([pair for f in factors for pair in f.pairs(grid)], step=step, tilt=tilt, side=1)
    left = delta - math.fsum(pair.infinite * pair.count for f in factors for pair in f.made)
    epsilon = law.epsilon(left) if left > 0 else math.inf
    if math.isinf(epsilon):
        raise NotCertified("the proposed window is too narrow for this delta")
    return epsilon * (1 + tuning.CHECKER_ROOM / 100)


def _file(charge: Charge, epsilon: float, delta: float, factors: list[_Factor], step: float, width: int) -> Certificate:
    failures = [[cost.delta, times] for cost, times in charge if isinstance(cost, ApproxDP)]
    content = {
        "format": FORMAT,
        "charge": str(charge),
        "epsilon": epsilon,
        "delta": delta,
        "bad": charge.delta,
        "failures": failures,
        "step": step,
        "width": width,
        "factors": [f.entry for f in factors],
    }
    return Certificate(str(charge), epsilon, delta, json.dumps(content))
