"""Certificates: files from which an auditor can check an ε without this package (checker/check_certificate.py).

A certificate holds the product of pairs of docs/notes/setwise.md, Theorem C, that ``optimum`` came to, in a form that
is dear to make and cheap to check: for each group of bounded ranges the value functions of all that may be left, on the
group's own grid; every other cost is named, for the checker knows its profile. Nothing here needs to be rigorous: the
step of the engine proposes node values, moved up by more than the checker's intervals are wide, and its product an ε,
moved up by more than its rounding; the checker proves both in interval arithmetic.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import Effort
from dptopk._internal.rounding import EPS, Floats
from dptopk.accounting.curves import Query
from dptopk.accounting.registry import Certificate, split_failure
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.bellman_step import upper_step
from dptopk.accounting.setwise.groups import GroupPair, pair_of_layer
from dptopk.accounting.setwise.optimum import Run, SetwiseCurve
from dptopk.accounting.setwise.partition import Group
from dptopk.accounting.setwise.randomized_rounding import Money
from dptopk.accounting.setwise.recursion import FLOOR, Layer, Rules
from dptopk.accounting.setwise.weights import window_of
from dptopk.accounting.work import Work
from dptopk.costs import CDP, ZCDP, ApproxDP, BoundedRange, Charge, Cost, DiscreteGaussianDP, GaussianDP, PureDP
from dptopk.errors import NotApplicable, NotCertified

FORMAT = 4
LARGEST_LOSS = 600.0  # of a node: the checker's intervals are floats
SMALLEST_DELTA = 1e-11  # below, the float products that propose ε lose their digits
LOW_BITS = 2**24 - 1  # of a node value, 0 in the file
BEYOND_TOPS = 2**40  # a node right of all others: beyond the last stored value the checker goes on with that value

# Of the costs with a closed form, and of others: what the file states of them.
PARAMETERS: dict[type[Cost], tuple[str, ...]] = {
    PureDP: ("epsilon",),
    GaussianDP: ("mu",),
    DiscreteGaussianDP: ("scale", "shift"),
}
LISTED = PARAMETERS | {ZCDP: ("rho", "xi"), CDP: ("mu", "tau"), BoundedRange: ("epsilon",)}
Entry = dict[str, Any]
State = tuple[int, ...]


def certify(
    charge: Charge, *, delta: float, aim: float = math.inf, rtol: float = 1e-3, effort: Effort = "normal"
) -> Certificate:
    """A certificate that a charge, spent in any order and adaptively, is (ε, δ)-DP.

    Args:
        charge: of PureDP, ApproxDP, BoundedRange, GaussianDP, DiscreteGaussianDP, ZCDP and CDP costs.
        delta: in [1e-11, 1).
        aim: the ε of ``compose``; where another bound than the set-wise one found it, runs are finer.
        rtol: as for ``compose``.
        effort: as for ``compose``.

    Returns:
        A certificate of an upper bound ε: that of ``optimal_setwise`` or of one Rényi curve, but for rounding.

    Raises:
        NotCertified: for other costs, or a δ outside this range or within 1e-11 of the charge's own failures.
    """
    validate.instance(Charge, charge=charge)
    delta = validate.probability(delta=delta)
    rest, failure = split_failure(charge)
    left = (delta - charge.delta - failure) / (1 - failure) if failure < 1 else 0.0
    if left < SMALLEST_DELTA:
        raise NotCertified(f"a certificate needs a delta of {SMALLEST_DELTA:g} above the charge's own failures")
    if not rest.costs:
        return _file(charge, 0.0, delta, [], 1.0, 1)
    others = [cost for cost, _ in rest if not isinstance(cost, tuple(LISTED))]
    if others or len(rest.of(BoundedRange)) > tuning.MOST_RANGES:
        raise NotCertified(f"there is no certificate for {type(others[0]).__name__ if others else 'this many ranges'}")
    try:
        setwise = SetwiseCurve.of(rest)
    except NotApplicable as reason:
        raise NotCertified(str(reason)) from None
    found: list[Certificate] = []
    # One Rényi curve of everything is tried second, then finer runs.
    renyi = SetwiseCurve({}, Charge(), rest)
    for curve, finer in ((setwise, 0), (renyi, 0), *((setwise, 1 + n) for n in range(tuning.CERTIFIED_AGAIN))):
        run = curve.proof(Query(delta=left, rtol=rtol / tuning.CERTIFIED_FINER**finer, work=Work.of(effort)))
        tilt = min(run.order, tuning.WINDOW / math.sqrt(run.variance))
        found.append(proven(charge, delta, replace(run, order=tilt), left * (1 - tuning.CHECKER_ROOM)))
        if min(one.epsilon for one in found) <= aim * (1 + rtol / 2):
            break
    best = min(found, key=lambda one: one.epsilon)
    if math.isinf(best.epsilon):
        raise NotCertified("no window is wide enough for this delta")
    return best


def proven(charge: Charge, delta: float, run: Run, left: float) -> Certificate:
    """The run, as a file; its ε is that of ``left``, which is less than the δ of the run."""
    curve = run.curve
    reach = run.reach
    recorded = [_recorded(group, reach) for group in run.groups]
    pairs = [pair for _, found in recorded for pair in found]
    step = run.lattice_step(pairs)
    run = replace(run, query=replace(run.query, delta=left))
    bounds = {run.of_split(*split, pairs, step): split for split in run.splits()}
    smoothed, together = bounds[min(bounds)]
    groups = [] if together.of(BoundedRange) else [entry for entry, _ in recorded]
    entries = [one | _ends(one["low"] * one["step"], one["high"] * one["step"], step) for one in groups]
    gaussian = Charge(curve.rest.of(GaussianDP))
    entries += [_closed_form(cost, times, step, reach) for cost, times in curve.rest if cost not in gaussian.costs]
    entries += [_closed_form(cost, times, step, reach) for cost, times in _one_gaussian(gaussian).items()]
    small = Charge({cost: times for cost, times in curve.concentrated if cost not in together.costs})
    for cost in smoothed.costs:
        like = _closed_form(cost, 1, step, reach)
        entries.append(_listed("Smoothed", small) | {end: like[end] for end in ("low", "high")})
    if together.costs:
        last = run.concentrated(step, together).losses[-1]
        entries.append(_listed("Renyi", together) | _ends(-last, last, step))
    window = 2 * (reach + tuning.CERTIFIED_LEFT) * math.sqrt(run.variance)
    width = math.ceil(window / step) + max(entry["high"] for entry in entries)
    return _file(charge, min(bounds) * (1 + tuning.CHECKER_ROOM / 100), delta, entries, step, width)


def _one_gaussian(charge: Charge) -> Mapping[Cost, int]:
    """All Gaussian costs as one, where they are of several kinds."""
    if len(charge.costs) < 2:
        return charge.costs
    total = sum((Fraction(cost.mu) ** 2 * times for cost, times in charge.of(GaussianDP).items()), Fraction(0))
    mu = math.sqrt(total)
    while Fraction(mu) ** 2 < total:
        mu = math.nextafter(mu, math.inf)
    return {GaussianDP(mu): 1}


def _ends(low: float, high: float, step: float) -> Entry:
    """The places of the lattice between which a profile is read."""
    return {"low": math.floor(low / step) - 1, "high": math.ceil(high / step) + 1}


def _closed_form(cost: Cost, times: int, step: float, reach: float) -> Entry:
    """A cost of which the checker knows the profile, all copies of it together."""
    entry: Entry = {"kind": cost.symbol, "count": times}
    entry |= {name: getattr(cost, name) for name in PARAMETERS[type(cost)]}
    if isinstance(cost, PureDP):
        top, spread, noise = times * cost.epsilon, cost.epsilon, 1.0
        mean = times * spread * math.tanh(spread / 2)
    else:
        mu = cost.shift / cost.scale if isinstance(cost, DiscreteGaussianDP) else entry["mu"]
        top, spread, noise, mean = math.inf, mu, getattr(cost, "scale", 1.0), times * mu**2 / 2
    far = (reach + 2) * math.sqrt(times)
    entry["width"] = math.ceil(2 * far * noise + 60 * noise) + 4
    return entry | _ends(max(mean - far * spread, -top), min(mean + far * spread, top), step)


def _listed(kind: str, charge: Charge) -> Entry:
    """Costs that are bounded together, as they are."""
    rows = [[cost.symbol, *(getattr(cost, name) for name in LISTED[type(cost)]), times] for cost, times in charge]
    return {"kind": kind, "costs": rows}


def _recorded(group: Group, reach: float) -> tuple[Entry, list[GroupPair]]:
    """A group of ranges: the value functions of all that may be left, and the pairs that they make."""
    levels = group.levels
    entry: Entry = {"kind": "BR", "ranges": group.ranges, "weights": levels.weights if levels else []}
    if levels:
        rules = levels.rules(group.largest, reach)
        law = Money.of(group.ranges, rules, levels.weights)
        states: list[State] = [(money,) for money in range(law.last + 1)]
        windows = np.array([window_of(rules, levels.weights, money) for (money,) in states])
        entry["first"] = law.first
    else:
        rules = Rules.of(dict(group.ranges), group.steps, upper=True, reach=reach)
        sizes = [((size,), times) for size, times in group.sizes] if group.single else [(group.counts, 1)]
        states = sorted(product(*(range(n + 1) for n in max(sizes)[0])), key=sum)
        windows = rules.windows(np.array(states))
        entry["parts"] = sizes
    windows += np.array([-1, 1]) * max(rules.steps)
    if windows.max() * rules.h > LARGEST_LOSS:
        raise NotCertified(f"a loss above {LARGEST_LOSS:g}")
    found = _rows(rules, states, windows.tolist(), entry["weights"])
    rows = {state: replace(row, values=_shortened(row.values, sum(state))) for state, row in found.items()}
    nodes = [row.values for row in rows.values()]
    entry |= {
        "step": rules.h,
        "steps": rules.steps,
        "low": int(windows.min()),
        "high": int(windows.max()),
        "rows": [[state, row.first, len(row.values)] for state, row in rows.items()],
        "values": base64.b64encode(zlib.compress(np.concatenate(nodes).tobytes(), 1)).decode(),
    }
    if levels:
        return entry, [law.pair(rules, levels.weights, rows.values())]
    return entry, [replace(pair_of_layer(rows[size]), count=times) for size, times in sizes]


def _rows(rules: Rules, states: list[State], windows: list[list[int]], weights: Sequence[int]) -> dict[State, Layer]:
    """Node values of each state, above what the checker computes for the moves from it."""
    kinds = range(len(rules.steps))
    units: list[State] = [tuple(int(i == j) for i in kinds) for j in kinds]
    takes = [(weight,) for weight in weights] or units
    rows: dict[State, Layer] = {}
    for state, (first, last) in zip(states, windows, strict=True):
        x = np.arange(first, last + 1) * rules.h
        best = np.where(x <= 0, -np.expm1(np.minimum(x, 0.0)) * (1 + 1e-13) + 2e-15, 0.0) + FLOOR
        if weights and state[0]:
            best = np.maximum(best, rows[state[0] - 1,].extended(first, last) * (1 + 4 * EPS))
        for take, N in zip(takes, rules.steps, strict=True):
            before = rows.get(tuple(left - one for left, one in zip(state, take, strict=True)))
            if before:
                best = np.maximum(best, _stepped(before.extended(first - N, last + N), N, rules.h))
        rows[state] = Layer(first, best, BEYOND_TOPS, rules.h, upper=True)
    return rows


def _stepped(around: Floats, N: int, h: float) -> Floats:
    """The step of a range of N grid steps at the nodes but the N outer ones, above what the checker computes."""
    falls = np.lib.stride_tricks.sliding_window_view(-np.diff(around), N).max(axis=-1) / h
    found = upper_step(around, N, h)
    lift = tuning.CHECKER_LIFT * EPS / (h * math.expm1(N * h)) * (around[: len(found)] + falls[: len(found)])
    above: Floats = found + lift
    return above


def _shortened(values: Floats, depth: int) -> Floats:
    """Half the digits: rounded up by at most half of the factor by which a state exceeds those before it."""
    raised = values * (1 + 2.0**-27) ** depth
    return ((raised.view(np.int64) + LOW_BITS) & ~LOW_BITS).view(np.float64)


def _file(charge: Charge, epsilon: float, delta: float, factors: list[Entry], step: float, width: int) -> Certificate:
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
        "factors": factors,
    }
    return Certificate(str(charge), epsilon, delta, json.dumps(content))
