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
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from dptopk.accounting.setwise.price_rounding import Money, RoundingLevels
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
ABOVE_GAME = ABOVE_ONE_CURVE / 100  # the same: it computes the same majorants, but for rounding
EXACT_REACH = 16.0  # standard deviations of a closed form, alone or not
STAND_IN_REACH = 10.0
# Beyond a reach of z deviations, of a closed form: a Gaussian's tail falls by e^-(2z + 2) more.
MORE_DEVIATIONS = 2.0
NOISE_REACH = 30.0  # standard deviations of one discrete noise: beyond, its mass is below e^-440
SPARE_PLACES = 4  # of a sum of integers, for the roundings of both ends
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
MOST_LISTED_BY_CHECKER = 2**17  # the same, of one of several factors
COARSER_RUNS = (1.0, 3.0, 10.0, 30.0)
UNDERFLOW = 1e-40  # the checker's quotients by u, at most e^LARGEST_LOSS, underflow below it
# Of V without costs, 1 - e^x: relative and absolute, wider than the checker's intervals of it.
EMPTY_LIFT = 1e-13
EMPTY_MARGIN = 2e-15
LARGE_GUESS = 30.0  # an ε from which on the checker's rounding counts for more
LARGEST_CHECKER_SHARE = 0.05  # of δ
WIDEST_INTERVAL = 1e-6  # relative, of the checker's floats
LOW_BITS = 2**24 - 1  # of a node value, 0 in the file: they are 2^-28 of it at most
LIFT_PER_DEPTH = 2.0**-27
# A node right of all others: beyond the last stored value the checker goes on with that value.
BEYOND_TOPS = 2**40

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
    """Return a certificate that a charge, spent in any order and adaptively, is (ε, δ)-DP.

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
        NotCertified: for other costs, or a δ that is not above the charge's own failures.
    """
    validate.instance(Charge, charge=charge)
    delta = validate.probability(delta=delta)
    failure_free, failure = split_failure(charge)
    unlisted = [cost for cost, _ in failure_free if not isinstance(cost, tuple(LISTED))]
    if unlisted:
        raise NotCertified(f"there is no certificate for {type(unlisted[0]).__name__}")
    delta_left = _delta_without_failures(charge, delta, failure)
    if not failure_free.costs:
        return _file(charge, 0.0, delta, [], 1.0, 1)
    if math.isinf(aim) and delta_left:
        aim = _optimum(failure_free, Query(delta=delta_left, rtol=rtol, work=Work.of(effort)))
    candidates = _all_of(_single_factor_certificates(charge, failure_free, delta, delta_left, aim))
    good = aim * (1 + rtol / 2)
    least = _least_epsilon(candidates)
    if least > aim * (1 + STEP_BY_STEP):  # no curve of everything is as good as ``compose``
        start = min(least, 2 * aim)
        candidates += _all_of(
            _game_certificates(charge, failure_free, delta, delta_left, start, effort)
        )
    if delta_left >= SMALLEST_DELTA and _least_epsilon(candidates) > good:
        product_aim = Aim(good, rtol, effort)
        candidates += _all_of(
            _product_certificates(charge, failure_free, delta, delta_left, product_aim)
        )
    if not candidates:
        raise NotCertified("these costs have no finite ε that can be certified at this delta")
    return min(candidates, key=lambda certificate: certificate.epsilon)


def _all_of(certificates: Iterator[Certificate]) -> list[Certificate]:
    """Return certificates as they are made, until numbers go beyond the range of floats."""
    finished = []
    with suppress(ArithmeticError), _strict_floats():
        for certificate in certificates:
            finished.append(certificate)  # noqa: PERF402 - those before an error count
    return finished


def _strict_floats() -> np.errstate:
    """Return a context in which a NaN or a division by 0 is an error, as in ``compose``."""
    return np.errstate(over="ignore", divide="raise", invalid="raise")


def _delta_without_failures(charge: Charge, delta: float, failure: float) -> float:
    """Return the δ that is left for a charge's costs, given that none of them fails; 0 where their
    ε's can only be added up.

    δ is at least the mass of bad events, plus the failures of costs, plus (1 - failures) times what
    is left.

    Args:
        charge: the charge, with its failures.
        delta: δ of everything.
        failure: the probability that one of the costs fails.

    Raises:
        NotCertified: for a δ that is not above the charge's own failures.
    """
    delta_left = 0.0
    if failure < 1:
        delta_left = (delta - charge.delta - failure) / (1 - failure)
    if delta_left > SMALLEST_SHARE * delta and delta_left > 0:
        return delta_left
    if failure == 0 and charge.delta <= delta:
        return 0.0
    raise NotCertified("a certificate needs a delta above the charge's own failures")


def _least_epsilon(certificates: Sequence[Certificate]) -> float:
    """Return the least ε of the certificates; inf where there are none."""
    return min((certificate.epsilon for certificate in certificates), default=math.inf)


def _game_certificates(
    charge: Charge,
    failure_free: Charge,
    delta: float,
    delta_left: float,
    start: float,
    effort: Effort,
) -> Iterator[Certificate]:
    """Yield the certificate of a few concentrated costs by their game, if there is one with an ε
    below ``start``.

    Args:
        charge: the charge that the certificate is about.
        failure_free: the charge without its failures.
        delta: the δ of the certificate.
        delta_left: the part of δ that is not needed for failures.
        start: an ε that is known already.
        effort: how much work the game may take.
    """
    if delta_left < CONCENTRATED_DELTA or not math.isfinite(start):
        return
    game = ConcentratedGame.fitting(failure_free, start, Work.of(effort).budget)
    if game is None:
        return
    certified = CertifiedGame.of(game, whole=False)
    if certified is None:
        return
    near_answer = certified.with_majorants_near_answer(
        delta_left * (1 - tuning.CHECKER_ROOM), start
    )
    if near_answer is not None:
        proven_game, epsilon = near_answer
        factor = _factor_of_game(proven_game, failure_free)
        yield _file(charge, epsilon * (1 + ABOVE_GAME), delta, [factor], 1.0, 1)


def _factor_of_game(certified: CertifiedGame, concentrated: Charge) -> Entry:
    """Return the factor of a certificate that states a game: a row of costs for each moment class,
    in the order of the game's classes, and what ``CertifiedGame.statement`` says of the game.

    Args:
        certified: the game with its majorants.
        concentrated: the costs of which it is the game.

    Raises:
        NotCertified: where two costs are in one class, for a factor has one row for each.
    """
    rows: dict[MomentClass, list[Any]] = {}
    for cost, times in concentrated:
        moments = moment_class(cost)
        if moments is None:
            raise NotCertified(f"{cost} is in no moment class")
        if moments in rows:
            raise NotCertified("two costs of one class")
        rows[moments] = _cost_entry(cost, times)
    costs = [rows[moments] for moments in certified.declared]
    return {"kind": "Moments", "costs": costs, **certified.statement()}


@dataclass(frozen=True)
class Aim:
    """The ε that is good enough, and how finely and with how much work to look for it.

    Attributes:
        epsilon: an ε at or below which no further certificate is looked for.
        rtol: the relative width of the bracket of the first run.
        effort: as for ``compose``.
    """

    epsilon: float
    rtol: float
    effort: Effort


def _optimum(failure_free: Charge, query: Query) -> float:
    """Return the ε of the set-wise engine; inf where it does not take the costs, or numbers go
    beyond the range of floats.
    """
    try:
        with _strict_floats():
            return optimal_setwise(failure_free).answer(query).value
    except (NotApplicable, ArithmeticError):
        return math.inf


def _single_factor_certificates(
    charge: Charge, failure_free: Charge, delta: float, delta_left: float, aim: float
) -> Iterator[Certificate]:
    """Yield certificates with a single factor, which the checker evaluates at ε itself.

    Args:
        charge: the charge that the certificates are about.
        failure_free: the charge without its failures.
        delta: the δ of the certificates.
        delta_left: the part of δ that is not needed for failures; 0 allows basic composition only.
        aim: the ε of ``compose``, at which a closed form of everything should hold.
    """
    epsilons: dict[PureDP | BoundedRange, int] = dict(failure_free.of(PureDP))
    epsilons.update(failure_free.of(BoundedRange))
    if len(epsilons) == len(failure_free.costs):
        total = sum((Fraction(cost.epsilon) * n for cost, n in epsilons.items()), Fraction(0))
        if total < LARGEST_FLOAT:
            yield _file(
                charge, round_up(total), delta, [_factor_of_list("Basic", failure_free)], 1.0, 1
            )
    if not delta_left:
        return
    entries: list[tuple[float, Entry]] = []  # the ε of each factor, and the factor
    room = delta_left * (1 - tuning.CHECKER_ROOM)
    curves = {
        "Renyi": renyi_curve(log_mgf(failure_free), pure_sum(failure_free)),
        "Smoothed": _curve_of_one_gaussian(failure_free),
    }
    for kind, curve in curves.items():
        if curve is not None:
            entries.append((_epsilon_of(curve, room), _factor_of_list(kind, failure_free)))
    if delta_left >= SMALLEST_DELTA:
        entries += [(aim, entry) for entry in _closed_form_of_all(failure_free)]
    for epsilon, entry in entries:
        if epsilon < LARGEST_FLOAT:
            above = epsilon * (1 + ABOVE_ONE_CURVE)
            yield _file(charge, above, delta, [entry], 1.0, 1)


def _epsilon_of(curve: Curve, delta: float) -> float:
    """Return the ε of a curve at δ; inf where its numbers are out of range."""
    try:
        with np.errstate(over="ignore", divide="raise", invalid="raise"):
            return float(curve.epsilon(delta))
    except ArithmeticError:
        return math.inf


def _closed_form_of_all(failure_free: Charge) -> Iterator[Entry]:
    """Yield one factor for all costs by a closed form, where they are equal or are all Gaussian,
    and the checker can compute it.
    """
    gaussian = len(failure_free.of(GaussianDP)) == len(failure_free.costs)
    single_cost = _one_gaussian(failure_free) if gaussian else failure_free.costs
    if len(single_cost) != 1:
        return
    ((cost, times),) = single_cost.items()
    is_too_large = isinstance(cost, GaussianDP) and not cost.mu * math.sqrt(times) < LARGEST_MU
    if type(cost) in PARAMETERS and times <= MOST_COPIES and not is_too_large:
        entry = _closed_form(cost, times, 1.0, EXACT_REACH)
        # A single factor is evaluated without a lattice, and needs no places on one.
        if entry["width"] <= MOST_LISTED:
            yield {name: value for name, value in entry.items() if name not in {"low", "high"}}


def _curve_of_one_gaussian(failure_free: Charge) -> Curve | None:
    """Return the profile of the Gaussian of Theorem H for all costs; None where the theorem does
    not apply or μ is too large for the checker.
    """
    try:
        mu = gaussian_of(failure_free).mu
    except NotApplicable:
        return None
    if mu < LARGEST_MU:
        return gaussian_curve(mu)
    return None


def _product_certificates(
    charge: Charge, failure_free: Charge, delta: float, delta_left: float, aim: Aim
) -> Iterator[Certificate]:
    """Yield certificates of products of pairs, each from a finer run, until the ε of one is good
    enough.

    Args:
        charge: the charge that the certificates are about.
        failure_free: the charge without its failures.
        delta: the δ of the certificates.
        delta_left: the part of δ that is not needed for failures.
        aim: when to stop.
    """
    if len(failure_free.of(BoundedRange)) > tuning.MOST_RANGES:
        return
    try:
        setwise = _curve_with_stand_in(failure_free)
    except NotApplicable:
        return
    for finer in range(tuning.CERTIFIED_AGAIN + 1):
        rtol = aim.rtol / tuning.CERTIFIED_FINER**finer
        query = Query(delta=delta_left, rtol=rtol, work=Work.of(aim.effort))
        run = _checkable_run(setwise.proof(query))
        if run is None:
            return
        # Any tilt is sound. This one moves the mean, by its product with the variance, by no more
        # than WINDOW deviations.
        tilt = min(run.order, tuning.WINDOW / math.sqrt(run.variance))
        left_for_product = delta_left * (1 - _checker_share(run, failure_free))
        try:
            certificate = product_certificate(
                charge, delta, replace(run, order=tilt), left_for_product
            )
        except (NotCertified, ArithmeticError):
            return
        if math.isfinite(certificate.epsilon):
            yield certificate
        if certificate.epsilon <= aim.epsilon:
            return


def _checker_share(run: Evaluation, failure_free: Charge) -> float:
    """Return the share of δ that is left for the checker's rounding; where losses are large their
    rounding counts for more.
    """
    kinds = {type(cost) for cost in failure_free.costs}
    has_single_kind = len(kinds) == 1 and run.game.stand_in is None
    # Concentrated costs count as several kinds.
    if has_single_kind and not run.game.concentrated.costs:
        least_share = tuning.CHECKER_ROOM
    else:
        least_share = tuning.CHECKER_ROOM_OF_MANY
    # The share grows with ε²: a guess; the checker decides whether it is enough.
    growth = max(1.0, (run.guess / LARGE_GUESS) ** 2)
    return min(least_share * growth, LARGEST_CHECKER_SHARE)


def _curve_with_stand_in(failure_free: Charge) -> SetwiseCurve:
    """Return the set-wise engine's curve of the costs.

    One Gaussian stands (Theorem H) for very small ranges, and for discrete Gaussians whose lattice
    would take the checker long.
    """
    replaced: dict[Cost, int] = {}
    for cost, times in failure_free:
        if isinstance(cost, DiscreteGaussianDP):
            is_replaced = _closed_form(cost, times, 1.0, STAND_IN_REACH)["width"] > MOST_LISTED
        else:
            is_replaced = isinstance(cost, BoundedRange) and cost.epsilon < SMALLEST_RANGE
        if is_replaced:
            replaced[cost] = times
    if not replaced:
        return SetwiseCurve.of(failure_free)
    stand_in = gaussian_of(Charge(replaced))
    others = {cost: times for cost, times in failure_free if cost not in replaced}
    return SetwiseCurve.with_stand_in(Charge(others), stand_in, Charge(replaced))


def _checkable_run(run: Evaluation) -> Evaluation | None:
    """Return the run, or a coarser one, whose file is of a size that the checker reads in seconds;
    None if even the coarsest is too large.
    """
    for coarser in COARSER_RUNS:
        coarse = replace(run, tolerance=run.tolerance * coarser)
        sizes = [_estimated_size(group, coarse.reach) for group in coarse.groups]
        nodes = sum(nodes for nodes, _ in sizes)
        compared = sum(nodes * steps for nodes, steps in sizes)
        if nodes <= MOST_NODES and compared <= MOST_COMPARED:
            return coarse
    return None


def _estimated_size(group: CostGroup, reach: float) -> tuple[float, float]:
    """Return estimates of the number of node values in a group's file, and of the number of cells
    that each is compared with.
    """
    # ``reach`` deviations of one copy's loss to either side, in grid steps; a deviation is at most
    # half the root of Σ n ε².
    width = 2 * reach * math.sqrt(group.spread / group.copies) / 2 / (group.largest / group.steps)
    nodes = group.states * (width + 2 * group.steps)
    moves = len(group.levels.steps) if group.levels else len(group.ranges)
    return nodes, group.steps * moves


def product_certificate(
    charge: Charge, delta: float, run: Evaluation, delta_left: float
) -> Certificate:
    """Return the certificate of a run, a product of pairs.

    Args:
        charge: the charge that the certificate is about.
        delta: the δ of the certificate.
        run: the evaluation whose pairs are recorded.
        delta_left: the δ at which the product's ε is read; less than the δ of the run by the room
            for the checker's rounding.

    Raises:
        NotCertified: where a closed form has too many losses, or the lattice too many places.
    """
    factors_and_pairs = [_factor_of_group(group, run.reach) for group in run.groups]
    pairs = [pair for _, pairs_of_group in factors_and_pairs for pair in pairs_of_group]
    step = run.lattice_step(pairs)
    closed_forms = _closed_forms(run, step)
    if any(entry.get("width", 0) > MOST_LISTED_BY_CHECKER for entry in closed_forms):
        raise NotCertified("so many copies of a cost have too many losses")
    run = replace(run, query=replace(run.query, delta=delta_left))
    best = Concentrated.best(run, pairs, step)
    entries: list[Entry] = []
    if not best.split.by_renyi.of(BoundedRange):
        for entry, _ in factors_and_pairs:
            grid = entry["step"]
            entries.append(entry | _place_range(entry["low"] * grid, entry["high"] * grid, step))
    entries += closed_forms
    entries += best.entries(run, step)
    window = 2 * (run.reach + tuning.CERTIFIED_LEFT) * math.sqrt(run.variance)
    width = math.ceil(window / step) + max(entry["high"] for entry in entries)
    if width > MOST_PLACES:
        raise NotCertified("the lattice has too many places")
    # ``delta_left`` leaves room for the checker's rounding of δ; this is some for that of ε.
    return _file(charge, best.bound * (1 + tuning.CHECKER_ROOM / 100), delta, entries, step, width)


@dataclass(frozen=True)
class Concentrated:
    """The way in which the concentrated costs of a run are bounded.

    Attributes:
        bound: the upper bound on ε of the whole product.
        split: which costs are one Gaussian, and which are one Rényi curve.
        certified_game: the game of the concentrated costs, where it is used instead of the split.
    """

    bound: float
    split: RenyiSplit
    certified_game: CertifiedGame | None = None

    @classmethod
    def best(cls, run: Evaluation, pairs: Sequence[GroupPair], step: float) -> Concentrated:
        """Return the way with the least upper bound.

        Args:
            run: the evaluation.
            pairs: those of the bounded ranges.
            step: the step of the lattice.
        """
        ways = [cls(run.bound_of_split(*split, pairs, step), split) for split in run.splits()]
        if run.concentrated_game is not None:
            certified = CertifiedGame.of(run.concentrated_game, whole=True)
            if certified is not None:
                by_game = run.bound_of_product([*run.game.parts, *pairs, certified.pair()], step)
                ways.append(cls(by_game, RenyiSplit(Charge(), Charge()), certified))
        return min(ways, key=lambda way: way.bound)

    def entries(self, run: Evaluation, step: float) -> list[Entry]:
        """Return the concentrated costs as factors of a certificate, on a lattice with
        this step.
        """
        game = run.game
        if self.certified_game is not None:
            last = self.certified_game.game.reach
            factor = _factor_of_game(self.certified_game, game.concentrated)
            return [factor | _place_range(-last, last, step)]
        gaussian, together = self.split
        small = {cost: times for cost, times in game.concentrated if cost not in together.costs}
        entries = [
            _factor_of_small(Charge(small), cost, step, run.reach) for cost in gaussian.costs
        ]
        if together.costs:
            last = run.renyi_pair(step, together).losses[-1]
            entries.append(_factor_of_list("Renyi", together) | _place_range(-last, last, step))
        return entries


def _closed_forms(run: Evaluation, step: float) -> list[Entry]:
    """Return as factors the costs whose profile the checker knows, and the Gaussian that stands for
    small ones.
    """
    game = run.game
    stated = Charge({cost: times for cost, times in game.dominated if cost != game.stand_in})
    gaussian = Charge(stated.of(GaussianDP))
    others = {cost: times for cost, times in stated if cost not in gaussian.costs}
    costs = [*others.items(), *_one_gaussian(gaussian).items()]
    entries = [_closed_form(cost, times, step, run.reach) for cost, times in costs]
    if game.stand_in is not None:
        entries.append(_factor_of_small(game.small, game.stand_in, step, run.reach))
    return entries


def _factor_of_small(small: Charge, gaussian: Cost, step: float, reach: float) -> Entry:
    """Return small costs as the factor that the checker bounds by the Gaussian that stands for
    them.

    Args:
        small: the small costs.
        gaussian: the Gaussian cost that stands for them (Theorem H).
        step: the step of the lattice.
        reach: how many standard deviations of the loss are read.
    """
    like = _closed_form(gaussian, 1, step, reach)
    return _factor_of_list("Smoothed", small) | {end: like[end] for end in ("low", "high")}


def _one_gaussian(charge: Charge) -> Mapping[Cost, int]:
    """Return all Gaussian costs as one whose μ² is at least their sum, where they are of several
    kinds.
    """
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


def _place_range(low: float, high: float, step: float) -> Entry:
    """Return, as entries of a factor, the places of the lattice between which a profile is read:
    one beyond ``low`` and ``high`` on either side.

    Args:
        low: the smallest loss.
        high: the largest loss.
        step: the step of the lattice.
    """
    return {"low": math.floor(low / step) - 1, "high": math.ceil(high / step) + 1}


def _closed_form(cost: Cost, times: int, step: float, reach: float) -> Entry:
    """Return ``times`` copies of a cost, whose profile the checker knows, as one factor.

    Its "width" is how many places of the sum of the costs' own integers (of randomized responses,
    or of discrete noises) the checker lists; it does not read that of a GaussianDP, which has none.

    Args:
        cost: a PureDP, GaussianDP or DiscreteGaussianDP cost.
        times: the number of copies.
        step: the step of the lattice.
        reach: how many standard deviations of the loss are read, besides MORE_DEVIATIONS.
    """
    entry: Entry = {"kind": cost.symbol, "count": times}
    entry |= {name: getattr(cost, name) for name in PARAMETERS[type(cost)]}
    loss = _LossOfCopies.of(cost, times)
    deviations_of_one = (reach + MORE_DEVIATIONS) * math.sqrt(times)
    # To either side that many deviations, and of one noise NOISE_REACH more.
    noise = loss.noise_of_one
    entry["width"] = (
        math.ceil(2 * deviations_of_one * noise + 2 * NOISE_REACH * noise) + SPARE_PLACES
    )
    half_width = deviations_of_one * loss.deviation_of_one
    low = max(loss.mean - half_width, -loss.largest)
    high = min(loss.mean + half_width, loss.largest)
    return entry | _place_range(low, high, step)


@dataclass(frozen=True)
class _LossOfCopies:
    """The size of the loss of several copies of a cost with a closed form.

    Attributes:
        mean: of all copies.
        deviation_of_one: the standard deviation of one copy's loss, at most.
        noise_of_one: that of one copy's own integer, at most; 1 where it has none.
        largest: the largest loss of all copies.
    """

    mean: float
    deviation_of_one: float
    noise_of_one: float = 1.0
    largest: float = math.inf

    @classmethod
    def of(cls, cost: Cost, times: int) -> _LossOfCopies:
        """Return the size of the loss of ``times`` copies of a PureDP, GaussianDP or
        DiscreteGaussianDP cost.

        Raises:
            NotCertified: for another cost.
        """
        if isinstance(cost, PureDP):
            mean = times * cost.epsilon * math.tanh(cost.epsilon / 2)
            return cls(mean, cost.epsilon, largest=times * cost.epsilon)
        if isinstance(cost, DiscreteGaussianDP):
            mu = cost.shift / cost.scale
            return cls(times * mu**2 / 2, mu, noise_of_one=cost.scale)
        if isinstance(cost, GaussianDP):
            return cls(times * cost.mu**2 / 2, cost.mu)
        raise NotCertified(f"{cost} has no closed form")


def _factor_of_list(kind: str, charge: Charge) -> Entry:
    """Return costs that are bounded together as a factor of that kind, which lists them."""
    return {"kind": kind, "costs": [_cost_entry(cost, times) for cost, times in charge]}


def _cost_entry(cost: Cost, times: int) -> list[Any]:
    """Return a cost as a certificate lists it: its symbol, its parameters, and the number of
    copies.
    """
    parameters = [getattr(cost, name) for name in LISTED[type(cost)]]
    return [cost.symbol, *parameters, times]


def _factor_of_group(group: CostGroup, reach: float) -> tuple[Entry, list[GroupPair]]:
    """Return a group of ranges as a factor, with node values of everything that may be left, and
    the pairs that these make; ``reach`` is how many standard deviations of the loss matter.
    """
    if group.levels:
        return _factor_of_prices(group, group.levels, reach)
    return _factor_of_multisets(group, reach)


def _factor_of_prices(
    group: CostGroup, levels: RoundingLevels, reach: float
) -> tuple[Entry, list[GroupPair]]:
    """Return a group that is played for prices as a factor, and the pair that its node values make.

    Its states are the sums of prices that may be left, from 0 to the largest that matters.

    Args:
        group: the ranges.
        levels: the levels that coins round them to.
        reach: how many standard deviations of the loss matter.
    """
    rules = levels.rules(group.largest, reach)
    law = Money.of(group.ranges, rules, levels.weights)
    states: list[State] = [(money,) for money in range(law.last + 1)]
    windows = np.array([window_of(rules, levels.weights, money) for (money,) in states])
    stated, rows = _stated_values(rules, states, windows, levels.weights)
    entry: Entry = {
        "kind": "BR",
        "ranges": group.ranges,
        "weights": levels.weights,
        "first": law.first,
    }
    return entry | stated, [law.pair(rules, levels.weights, rows.values())]


def _factor_of_multisets(group: CostGroup, reach: float) -> tuple[Entry, list[GroupPair]]:
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
    stated, rows = _stated_values(rules, states, windows, ())
    entry: Entry = {"kind": "BR", "ranges": group.ranges, "weights": [], "parts": sizes}
    pairs = [replace(pair_of_layer(rows[size]), count=times) for size, times in sizes]
    return entry | stated, pairs


def _stated_values(
    rules: Rules, states: list[State], windows: NDArray[np.int64], weights: Sequence[int]
) -> tuple[Entry, dict[State, Layer]]:
    """Return the node values of all states as a certificate states them, and as layers.

    Args:
        rules: the game and its grid.
        states: the multisets (or sums of prices) that may be left, smaller ones first.
        windows: the first and the last node of each state; widened by the longest step.
        weights: the price of each range, where prices are played; else empty.

    Raises:
        NotCertified: for a loss that the checker's floats do not hold.
    """
    windows = windows + np.array([-1, 1]) * max(rules.steps)
    if windows.max() * rules.h > LARGEST_LOSS:
        raise NotCertified(f"a loss above {LARGEST_LOSS:g}")
    rows = {
        state: replace(row, values=_rounded_to_high_bits(row.values, sum(state)))
        for state, row in _layers_of_states(rules, states, windows.tolist(), weights).items()
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
    return stated, rows


def _layers_of_states(
    rules: Rules, states: list[State], windows: list[list[int]], weights: Sequence[int]
) -> dict[State, Layer]:
    """Return node values of each state, above what the checker computes for the moves from it.

    Args:
        rules: the game and its grid.
        states: the multisets (or sums of prices) that may be left, smaller ones first.
        windows: the first and the last node of each state.
        weights: the price of each range, where prices are played; else empty.
    """
    moves = _moves(len(rules.steps), weights)
    rows: dict[State, Layer] = {}
    for state, (first, last) in zip(states, windows, strict=True):
        best = _values_without_costs(first, last, rules.h)
        if weights and state[0]:
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


def _moves(kinds: int, weights: Sequence[int]) -> list[State]:
    """Return what playing each range takes from a state: its price, or one cost of its kind.

    Args:
        kinds: the number of ranges.
        weights: the price of each range, where prices are played; else empty.
    """
    if weights:
        return [(weight,) for weight in weights]
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
    # Slopes are quotients by differences of e^x; a chord's ends are divided by e^ε - 1.
    width = tuning.CHECKER_LIFT * EPS / (h * -math.expm1(-N * h))
    if width > WIDEST_INTERVAL:
        raise NotCertified("a range so small that the checker's intervals say nothing")
    lift = width * (values[: len(inner)] + falls[: len(inner)])
    lift = np.maximum.accumulate(lift[::-1])[::-1]
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


def _file(
    charge: Charge, epsilon: float, delta: float, factors: list[Entry], step: float, width: int
) -> Certificate:
    """Return the certificate with its text.

    Args:
        charge: the charge that the certificate is about.
        epsilon: the certified ε.
        delta: the certified δ.
        factors: the parts of the product.
        step: the step of the lattice.
        width: the number of places of the lattice.
    """
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
