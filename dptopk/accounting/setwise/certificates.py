"""Certificates: files from which an auditor can check an ε without this package
(checker/check_certificate.py).

A certificate holds the product of pairs of docs/notes/setwise.md, Theorem C, that ``optimum`` came
to, in a form that is dear to make and cheap to check: for each group of bounded ranges the value
functions of all that may be left, on the group's own grid; every other cost is named, for the
checker knows its profile. Nothing here needs to be rigorous: the step of the engine proposes node
values, moved up by more than the checker's intervals are wide, and its product an ε, moved up by
more than its rounding; the checker proves both in interval arithmetic.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import Effort
from dptopk._internal.rounding import EPS, Floats, round_up
from dptopk.accounting.cost_models.conversions import pure_sum
from dptopk.accounting.curves import Curve, Query
from dptopk.accounting.gaussian.pair import gaussian_curve
from dptopk.accounting.registry import Certificate, split_failure
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.bellman_step import upper_step
from dptopk.accounting.setwise.concentrated_game import (
    SMALLEST_DELTA as CONCENTRATED_DELTA,
    ConcentratedGame,
    moment_class,
)
from dptopk.accounting.setwise.cost_groups import GroupPair, pair_of_layer
from dptopk.accounting.setwise.evaluation import Evaluation
from dptopk.accounting.setwise.game import RenyiSplit
from dptopk.accounting.setwise.moment_certificate import CertifiedGame
from dptopk.accounting.setwise.moment_program import MomentClass
from dptopk.accounting.setwise.optimum import SetwiseCurve, optimal_setwise
from dptopk.accounting.setwise.partition import CostGroup
from dptopk.accounting.setwise.price_game import window_of
from dptopk.accounting.setwise.price_rounding import Money
from dptopk.accounting.setwise.recursion import FLOOR, Layer, Rules
from dptopk.accounting.setwise.zcdp_gaussian import gaussian_of
from dptopk.accounting.work import Work
from dptopk.costs import (
    CDP,
    ZCDP,
    ApproxDP,
    BoundedRange,
    Charge,
    Cost,
    DiscreteGaussianDP,
    GaussianDP,
    PureDP,
)
from dptopk.errors import NotApplicable, NotCertified

FORMAT = 6
LARGEST_LOSS = 600.0  # of a node: the checker's intervals are floats
SMALLEST_DELTA = 1e-11  # below, the float products that propose ε lose their digits
SMALLEST_SHARE = 1e-9  # of δ, beside failures: their difference is a float
STEP_BY_STEP = 1e-5  # relative, of ε: a few concentrated costs are worth their game beyond it
ABOVE_ONE_CURVE = 1e-6  # relative, of ε: the checker looks for an order on a grid of its own
EXACT_REACH = 16.0  # standard deviations of a closed form, alone or not
STAND_IN_REACH = 10.0
LARGEST_FLOAT = 1e300
LARGEST_MU = 1000.0  # of a Gaussian: beyond, the checker's tails have no digits
SMALLEST_RANGE = 1e-3  # of a group: the checker's intervals of smaller ones are too wide
MOST_COPIES = 10**9
# Sizes that the checker reads in some ten seconds: node values, cells they are compared with, and
# places of the lattice; by how much a run is made coarser until it fits.
MOST_NODES = 1.2e7
MOST_COMPARED = 6e9
MOST_PLACES = 2**22
MOST_LISTED = 2**13  # losses of a closed form
COARSER_RUNS = (1.0, 3.0, 10.0, 30.0)
UNDERFLOW = 1e-40  # the checker's quotients by u, at most e^LARGEST_LOSS, underflow below it
WIDEST_INTERVAL = 1e-6  # relative, of the checker's floats
LOW_BITS = 2**24 - 1  # of a node value, 0 in the file
BEYOND_TOPS = (
    2**40
)  # a node right of all others: beyond the last stored value the checker goes on with that value

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
    charge: Charge,
    *,
    delta: float,
    aim: float = math.inf,
    rtol: float = 1e-3,
    effort: Effort = "normal",
) -> Certificate:
    """A certificate that a charge, spent in any order and adaptively, is (ε, δ)-DP.

    Args:
        charge: of PureDP, ApproxDP, BoundedRange, GaussianDP, DiscreteGaussianDP, ZCDP and CDP
            costs.
        delta: in [0, 1); 0 for pure costs only.
        aim: the ε of ``compose``; where another bound than the set-wise one found it, runs are
            finer.
        rtol: as for ``compose``.
        effort: as for ``compose``.

    Returns:
        A certificate of an upper bound ε, the least of those that were found: one curve of
        everything where that is good enough, else the product of ``optimal_setwise``, but for
        rounding.

    Raises:
        NotCertified: for other costs, or a δ that leaves nothing beside the charge's own failures.
    """
    validate.instance(Charge, charge=charge)
    delta = validate.probability(delta=delta)
    rest, failure = split_failure(charge)
    others = [cost for cost, _ in rest if not isinstance(cost, tuple(LISTED))]
    if others:
        raise NotCertified(f"there is no certificate for {type(others[0]).__name__}")
    left = (delta - charge.delta - failure) / (1 - failure) if failure < 1 else 0.0
    enough = left > SMALLEST_SHARE * delta and left > 0
    if not (enough or (failure == 0 and charge.delta <= delta)):
        raise NotCertified("a certificate needs a delta above the charge's own failures")
    if not rest.costs:
        return _file(charge, 0.0, delta, [], 1.0, 1)
    left = left if enough else 0.0
    if math.isinf(aim) and left:
        aim = _optimum(rest, Query(delta=left, rtol=rtol, work=Work.of(effort)))
    found = list(_of_one_curve(charge, rest, delta, left, aim))
    good = aim * (1 + rtol / 2)
    above = min((one.epsilon for one in found), default=math.inf)
    if above > aim * (1 + STEP_BY_STEP):
        found += _step_by_step(charge, rest, delta, left, min(above, 2 * aim), effort)
    if left >= SMALLEST_DELTA and min((one.epsilon for one in found), default=math.inf) > good:
        found += _of_products(charge, rest, delta, left, Aim(good, rtol, effort))
    if not found:
        raise NotCertified("these costs have no finite ε that can be certified at this delta")
    return min(found, key=lambda one: one.epsilon)


def _step_by_step(
    charge: Charge, rest: Charge, delta: float, left: float, start: float, effort: Effort
) -> Iterator[Certificate]:
    """The certificate of a few concentrated costs, step by step: an ε below ``start``."""
    if left < CONCENTRATED_DELTA or not math.isfinite(start):
        return
    game = ConcentratedGame.fitting(rest, start, Work.of(effort).budget, whole=False)
    if game is None:
        return
    certified = CertifiedGame.of(game, whole=False)
    found = certified.at(left * (1 - tuning.CHECKER_ROOM), start) if certified else None
    if found is not None:
        proven_game, epsilon = found
        factor = _stated_game(proven_game, rest)
        yield _file(charge, epsilon * (1 + ABOVE_ONE_CURVE / 100), delta, [factor], 1.0, 1)


def _stated_game(certified: CertifiedGame, concentrated: Charge) -> Entry:
    """A game as a factor: one row of costs for each class, in its order."""
    rows: dict[MomentClass, list[Any]] = {}
    for cost, times in concentrated:
        one = moment_class(cost)
        if one is None or one in rows:
            raise NotCertified("two costs of one class")
        rows[one] = [cost.symbol, *(getattr(cost, name) for name in LISTED[type(cost)]), times]
    costs = [rows[one] for one in certified.game.classes]
    return {"kind": "Moments", "costs": costs, **certified.stated()}


@dataclass(frozen=True)
class Aim:
    """The ε that is good enough, and how finely and how long to look for it."""

    epsilon: float
    rtol: float
    effort: Effort


def _optimum(rest: Charge, query: Query) -> float:
    """The ε of the set-wise engine; inf where it takes no such costs."""
    try:
        return optimal_setwise(rest).answer(query).value
    except NotApplicable:
        return math.inf


def _of_one_curve(
    charge: Charge, rest: Charge, delta: float, left: float, aim: float
) -> Iterator[Certificate]:
    """Certificates with a single factor, which the checker evaluates at ε itself."""
    epsilons: dict[PureDP | BoundedRange, int] = dict(rest.of(PureDP))
    epsilons.update(rest.of(BoundedRange))
    if len(epsilons) == len(rest.costs):
        total = sum((Fraction(cost.epsilon) * n for cost, n in epsilons.items()), Fraction(0))
        if total < LARGEST_FLOAT:
            yield _file(charge, round_up(total), delta, [_listed("Basic", rest)], 1.0, 1)
    if not left:
        return
    found: list[tuple[float, Entry]] = []
    room = left * (1 - tuning.CHECKER_ROOM)
    curves = {"Renyi": renyi_curve(log_mgf(rest), pure_sum(rest)), "Smoothed": _smoothed(rest)}
    for kind, curve in curves.items():
        if curve is not None:
            found.append((_epsilon_of(curve, room), _listed(kind, rest)))
    if left >= SMALLEST_DELTA:
        found += [(aim, entry) for entry in _exact(rest)]
    for epsilon, entry in found:
        if epsilon < LARGEST_FLOAT:
            above = epsilon * (1 + ABOVE_ONE_CURVE)
            yield _file(charge, above, delta, [entry], 1.0, 1)


def _epsilon_of(curve: Curve, delta: float) -> float:
    """The ε of a curve; inf where its numbers are out of range."""
    try:
        with np.errstate(over="ignore", divide="raise", invalid="raise"):
            return float(curve.epsilon(delta))
    except ArithmeticError:
        return math.inf


def _exact(rest: Charge) -> Iterator[Entry]:
    """Everything as one closed form, where all costs are alike or Gaussian."""
    gaussian = len(rest.of(GaussianDP)) == len(rest.costs)
    alike = _one_gaussian(rest) if gaussian else rest.costs
    if len(alike) != 1:
        return
    ((cost, times),) = alike.items()
    large = isinstance(cost, GaussianDP) and not cost.mu * math.sqrt(times) < LARGEST_MU
    if type(cost) in PARAMETERS and times <= MOST_COPIES and not large:
        entry = _closed_form(cost, times, 1.0, EXACT_REACH)
        if entry["width"] <= MOST_LISTED:
            yield {name: value for name, value in entry.items() if name not in {"low", "high"}}


def _smoothed(rest: Charge) -> Curve | None:
    """The profile of the Gaussian of Theorem H for everything, where there is one."""
    try:
        mu = gaussian_of(rest).mu
    except NotApplicable:
        return None
    if mu < LARGEST_MU:
        return gaussian_curve(mu)
    return None


def _of_products(
    charge: Charge, rest: Charge, delta: float, left: float, aim: Aim
) -> Iterator[Certificate]:
    """Certificates of products of pairs, until one is good enough."""
    if len(rest.of(BoundedRange)) > tuning.MOST_RANGES:
        return
    try:
        setwise = _game(rest)
    except NotApplicable:
        return
    for finer in range(tuning.CERTIFIED_AGAIN + 1):
        rtol = aim.rtol / tuning.CERTIFIED_FINER**finer
        query = Query(delta=left, rtol=rtol, work=Work.of(aim.effort))
        run = _checkable(setwise.proof(query))
        if run is None:
            return
        tilt = min(run.order, tuning.WINDOW / math.sqrt(run.variance))
        # Rounding of losses counts for more where they are large, and the room for less.
        kinds = bool(run.game.concentrated.costs) + len({type(cost) for cost in rest.costs})
        alone = kinds == 1 and run.game.stand_in is None
        least = tuning.CHECKER_ROOM if alone else tuning.CHECKER_ROOM_OF_MANY
        share = min(least * max(1.0, (run.guess / 30) ** 2), 0.05)
        room = left * (1 - share)
        try:
            certificate = proven(charge, delta, replace(run, order=tilt), room)
        except (NotCertified, ArithmeticError):
            return
        if math.isfinite(certificate.epsilon):
            yield certificate
        if certificate.epsilon <= aim.epsilon:
            return


def _game(rest: Charge) -> SetwiseCurve:
    """The costs, but for discrete Gaussians whose lattice would take the checker long, and for very
    small ranges: one Gaussian stands for them (Theorem H).
    """
    replaced: dict[Cost, int] = {}
    for cost, times in rest:
        if isinstance(cost, DiscreteGaussianDP):
            wide = _closed_form(cost, times, 1.0, STAND_IN_REACH)["width"] > MOST_LISTED
        else:
            wide = isinstance(cost, BoundedRange) and cost.epsilon < SMALLEST_RANGE
        if wide:
            replaced[cost] = times
    if not replaced:
        return SetwiseCurve.of(rest)
    stand_in = gaussian_of(Charge(replaced))
    others = {cost: times for cost, times in rest if cost not in replaced}
    return SetwiseCurve.with_stand_in(Charge(others), stand_in, Charge(replaced))


def _checkable(run: Evaluation) -> Evaluation | None:
    """The run, or a coarser one, whose file is of a size that the checker reads in seconds; None
    if there is none.
    """
    for coarser in COARSER_RUNS:
        coarse = replace(run, tolerance=run.tolerance * coarser)
        sizes = [_size(group, coarse.reach) for group in coarse.groups]
        nodes = sum(nodes for nodes, _ in sizes)
        compared = sum(nodes * steps for nodes, steps in sizes)
        if nodes <= MOST_NODES and compared <= MOST_COMPARED:
            return coarse
    return None


def _size(group: CostGroup, reach: float) -> tuple[float, float]:
    """About how many node values a group's file holds, and the cells that each is compared with."""
    width = 2 * reach * math.sqrt(group.spread / group.copies) / 2 / (group.largest / group.steps)
    nodes = group.states * (width + 2 * group.steps)
    return nodes, group.steps * (len(group.ranges) if not group.levels else len(group.levels.steps))


def proven(charge: Charge, delta: float, run: Evaluation, left: float) -> Certificate:
    """The run, as a file; its ε is that of ``left``, which is less than the δ of the run."""
    recorded = [_recorded(group, run.reach) for group in run.groups]
    pairs = [pair for _, found in recorded for pair in found]
    step = run.lattice_step(pairs)
    run = replace(run, query=replace(run.query, delta=left))
    best = Concentrated.best(run, pairs, step)
    entries: list[Entry] = []
    if not best.split.together.of(BoundedRange):
        for entry, _ in recorded:
            grid = entry["step"]
            entries.append(entry | _ends(entry["low"] * grid, entry["high"] * grid, step))
    entries += _closed_forms(run, step)
    entries += best.entries(run, step)
    window = 2 * (run.reach + tuning.CERTIFIED_LEFT) * math.sqrt(run.variance)
    width = math.ceil(window / step) + max(entry["high"] for entry in entries)
    if width > MOST_PLACES:
        raise NotCertified("the lattice has too many places")
    return _file(charge, best.bound * (1 + tuning.CHECKER_ROOM / 100), delta, entries, step, width)


@dataclass(frozen=True)
class Concentrated:
    """The way in which the concentrated costs of a run are bounded.

    Attributes:
        bound: on what is asked.
        split: what is one Gaussian, and what is one Rényi curve.
        played: instead of both, their game.
    """

    bound: float
    split: RenyiSplit
    played: CertifiedGame | None = None

    @classmethod
    def best(cls, run: Evaluation, pairs: Sequence[GroupPair], step: float) -> Concentrated:
        """The way with the least bound; ``pairs`` are those of the ranges."""
        found = [cls(run.of_split(*split, pairs, step), split) for split in run.splits()]
        played = None if run.played is None else CertifiedGame.of(run.played, whole=True)
        if played is not None:
            by_game = run.of_product([*run.game.parts, *pairs, played.pair()], step)
            found.append(cls(by_game, RenyiSplit(Charge(), Charge()), played))
        return min(found, key=lambda one: one.bound)

    def entries(self, run: Evaluation, step: float) -> list[Entry]:
        """As factors of a file."""
        game = run.game
        if self.played is not None:
            last = self.played.game.reach
            return [_stated_game(self.played, game.concentrated) | _ends(-last, last, step)]
        gaussian, together = self.split
        small = {cost: times for cost, times in game.concentrated if cost not in together.costs}
        entries = [_stood_for(Charge(small), found, step, run.reach) for found in gaussian.costs]
        if together.costs:
            last = run.concentrated(step, together).losses[-1]
            entries.append(_listed("Renyi", together) | _ends(-last, last, step))
        return entries


def _closed_forms(run: Evaluation, step: float) -> list[Entry]:
    """The costs whose profile the checker knows, and the Gaussian that stands for small ones."""
    game = run.game
    stated = Charge({cost: times for cost, times in game.rest if cost != game.stand_in})
    gaussian = Charge(stated.of(GaussianDP))
    others = {cost: times for cost, times in stated if cost not in gaussian.costs}
    listed = [*others.items(), *_one_gaussian(gaussian).items()]
    entries = [_closed_form(cost, times, step, run.reach) for cost, times in listed]
    if game.stand_in is not None:
        entries.append(_stood_for(game.small, game.stand_in, step, run.reach))
    return entries


def _stood_for(small: Charge, gaussian: Cost, step: float, reach: float) -> Entry:
    """Small costs as the Gaussian that stands for them."""
    like = _closed_form(gaussian, 1, step, reach)
    return _listed("Smoothed", small) | {end: like[end] for end in ("low", "high")}


def _one_gaussian(charge: Charge) -> Mapping[Cost, int]:
    """All Gaussian costs as one, where they are of several kinds."""
    if len(charge.costs) < 2:
        return charge.costs
    total = sum(
        (Fraction(cost.mu) ** 2 * times for cost, times in charge.of(GaussianDP).items()),
        Fraction(0),
    )
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
        top = times * cost.epsilon
        spread = cost.epsilon
        noise = 1.0
        mean = times * spread * math.tanh(spread / 2)
    else:
        mu = cost.shift / cost.scale if isinstance(cost, DiscreteGaussianDP) else entry["mu"]
        top = math.inf
        spread = mu
        noise = getattr(cost, "scale", 1.0)
        mean = times * mu**2 / 2
    far = (reach + 2) * math.sqrt(times)
    entry["width"] = math.ceil(2 * far * noise + 60 * noise) + 4
    return entry | _ends(max(mean - far * spread, -top), min(mean + far * spread, top), step)


def _listed(kind: str, charge: Charge) -> Entry:
    """Costs that are bounded together, as they are."""
    rows = [
        [cost.symbol, *(getattr(cost, name) for name in LISTED[type(cost)]), times]
        for cost, times in charge
    ]
    return {"kind": kind, "costs": rows}


def _recorded(group: CostGroup, reach: float) -> tuple[Entry, list[GroupPair]]:
    """A group of ranges: the value functions of all that may be left, and the pairs that they
    make.
    """
    levels = group.levels
    entry: Entry = {
        "kind": "BR",
        "ranges": group.ranges,
        "weights": levels.weights if levels else [],
    }
    if levels:
        rules = levels.rules(group.largest, reach)
        law = Money.of(group.ranges, rules, levels.weights)
        states: list[State] = [(money,) for money in range(law.last + 1)]
        windows = np.array([window_of(rules, levels.weights, money) for (money,) in states])
        entry["first"] = law.first
    else:
        rules = Rules.of(dict(group.ranges), group.steps, upper=True, reach=reach)
        sizes = (
            [((size,), times) for size, times in group.sizes]
            if group.single
            else [(group.counts, 1)]
        )
        states = sorted(product(*(range(n + 1) for n in max(sizes)[0])), key=sum)
        windows = rules.windows(np.array(states))
        entry["parts"] = sizes
    windows += np.array([-1, 1]) * max(rules.steps)
    if windows.max() * rules.h > LARGEST_LOSS:
        raise NotCertified(f"a loss above {LARGEST_LOSS:g}")
    found = _rows(rules, states, windows.tolist(), entry["weights"])
    rows = {
        state: replace(row, values=_shortened(row.values, sum(state)))
        for state, row in found.items()
    }
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


def _rows(
    rules: Rules, states: list[State], windows: list[list[int]], weights: Sequence[int]
) -> dict[State, Layer]:
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
    """The step of a range of N grid steps at the nodes but the N outer ones, above what the checker
    computes.
    """
    falls = np.lib.stride_tricks.sliding_window_view(-np.diff(around), N).max(axis=-1) / h
    found = upper_step(around, N, h)
    # Slopes are quotients by differences of e^x; a chord's ends are divided by e^ε - 1.
    width = tuning.CHECKER_LIFT * EPS / (h * -math.expm1(-N * h))
    if width > WIDEST_INTERVAL:
        raise NotCertified("a range so small that the checker's intervals say nothing")
    lift = width * (around[: len(found)] + falls[: len(found)])
    above: Floats = found + lift + UNDERFLOW
    return above


def _shortened(values: Floats, depth: int) -> Floats:
    """Half the digits: rounded up by at most half of the factor by which a state exceeds those
    before it.
    """
    raised = values * (1 + 2.0**-27) ** depth
    return ((raised.view(np.int64) + LOW_BITS) & ~LOW_BITS).view(np.float64)


def _file(
    charge: Charge, epsilon: float, delta: float, factors: list[Entry], step: float, width: int
) -> Certificate:
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
