"""Certificates of products of pairs: evaluations (*runs*) of the set-wise engine, written down so
that the checker takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dptopk._internal.choices import Effort
from dptopk.accounting.curves import Query
from dptopk.accounting.registry import Certificate
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.certificate_factors import (
    Claim,
    Entry,
    closed_form,
    factor_of_game,
    factor_of_list,
    factor_of_small,
    one_gaussian,
    place_range,
)
from dptopk.accounting.setwise.certificate_values import StatedGroup, factor_of_group
from dptopk.accounting.setwise.cost_groups import GroupPair
from dptopk.accounting.setwise.evaluation import Evaluation
from dptopk.accounting.setwise.game import RenyiSplit
from dptopk.accounting.setwise.moment_certificate import CertifiedGame
from dptopk.accounting.setwise.optimum import SetwiseCurve
from dptopk.accounting.setwise.partition import CostGroup
from dptopk.accounting.setwise.zcdp_gaussian import gaussian_of
from dptopk.accounting.work import Work
from dptopk.costs import (
    BoundedRange,
    Charge,
    Cost,
    DiscreteGaussianDP,
    GaussianDP,
)
from dptopk.errors import NotApplicable, NotCertified

# Standard deviations of the loss of discrete Gaussians that are read, where it is asked whether a
# Gaussian stands for them: fewer than of a closed form by itself, whose δ may be smaller.
STAND_IN_REACH = 10.0
SMALLEST_RANGE = 1e-3  # of a group: the checker's intervals of smaller ones are too wide
# Sizes that the checker reads in some ten seconds: node values, cells they are compared with, and
# places of the lattice; by how much a run is made coarser until it fits.
MOST_NODES = 1.2e7
MOST_COMPARED = 6e9
MOST_PLACES = 2**22
MOST_LISTED = 2**13  # losses of a closed form that is a single factor, or replaced beyond
MOST_LISTED_BY_CHECKER = 2**17  # losses of a closed form that is one of several factors
COARSER_RUNS = (1.0, 3.0, 10.0, 30.0)
LARGE_GUESS = 30.0  # an ε from which on the checker's rounding counts for more
LARGEST_CHECKER_SHARE = 0.05  # of δ


@dataclass(frozen=True)
class Aim:
    """The ε that a certificate should have, and how finely and with how much work to look for it.

    Attributes:
        epsilon: an ε at or below which no further certificate is looked for.
        rtol: the relative width of the bracket of the first run.
        effort: as for ``compose``.
    """

    epsilon: float
    rtol: float
    effort: Effort


def product_certificates(claim: Claim, aim: Aim) -> Iterator[Certificate]:
    """Yield certificates of products of pairs, each from a finer run, until the ε of one is good
    enough.

    Args:
        claim: what the certificates are about; it has a δ left.
        aim: when to stop.
    """
    failure_free = claim.failure_free
    if len(failure_free.of(BoundedRange)) > tuning.MOST_RANGES:
        return
    try:
        setwise = _curve_with_stand_in(failure_free)
    except NotApplicable:
        return
    for finer in range(tuning.CERTIFIED_AGAIN + 1):
        rtol = aim.rtol / tuning.CERTIFIED_FINER**finer
        query = Query(delta=claim.delta_left, rtol=rtol, work=Work.of(aim.effort))
        run = _checkable_run(setwise.proof(query))
        if run is None:
            return
        # Any tilt is sound. A tilt moves the mean of the loss by the tilt times the variance: here
        # by WINDOW deviations at most.
        tilt = min(run.order, tuning.WINDOW / math.sqrt(run.variance))
        left_for_product = claim.delta_left * (1 - _checker_share(run, failure_free))
        try:
            certificate = product_certificate(claim, replace(run, order=tilt), left_for_product)
        except (NotCertified, ArithmeticError):
            return
        if math.isfinite(certificate.epsilon):
            yield certificate
        if certificate.epsilon <= aim.epsilon:
            return


def _checker_share(run: Evaluation, failure_free: Charge) -> float:
    """Return the share of δ that is left for the checker's rounding: a guess, as the checker itself
    decides whether it is enough. Where losses are large their rounding counts for more.

    Args:
        run: the evaluation that is certified.
        failure_free: the costs.
    """
    kinds = {type(cost) for cost in failure_free.costs}
    has_single_kind = len(kinds) == 1 and run.game.stand_in is None
    # Concentrated costs count as several kinds.
    if has_single_kind and not run.game.concentrated.costs:
        least_share = tuning.CHECKER_ROOM
    else:
        least_share = tuning.CHECKER_ROOM_OF_MANY
    # The share grows with ε².
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
            is_replaced = closed_form(cost, times, 1.0, STAND_IN_REACH)["width"] > MOST_LISTED
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
    for factor in COARSER_RUNS:
        coarse = replace(run, tolerance=run.tolerance * factor)
        sizes = [_SizeOfFile.estimated(group, coarse.reach) for group in coarse.groups]
        nodes = sum(size.nodes for size in sizes)
        compared = sum(size.nodes * size.cells_per_node for size in sizes)
        if nodes <= MOST_NODES and compared <= MOST_COMPARED:
            return coarse
    return None


class _SizeOfFile(NamedTuple):
    """An estimate of how much of a certificate a group of ranges takes.

    Attributes:
        nodes: the number of node values that are stated.
        cells_per_node: the number of cells with which the checker compares each of them.
    """

    nodes: float
    cells_per_node: float

    @classmethod
    def estimated(cls, group: CostGroup, reach: float) -> _SizeOfFile:
        """Return the estimate for one group.

        Args:
            group: the ranges.
            reach: how many standard deviations of the loss matter.
        """
        # ``reach`` deviations of one copy's loss to either side, in grid steps; a deviation is at
        # most half the root of Σ n ε².
        deviation = math.sqrt(group.spread / group.copies) / 2
        width = 2 * reach * deviation / (group.largest / group.steps)
        nodes = group.states * (width + 2 * group.steps)
        moves = len(group.levels.steps) if group.levels else len(group.ranges)
        return cls(nodes, group.steps * moves)


def product_certificate(claim: Claim, run: Evaluation, delta_left: float) -> Certificate:
    """Return the certificate of a run, a product of pairs.

    Args:
        claim: what the certificate is about.
        run: the evaluation whose pairs are recorded.
        delta_left: the δ at which the product's ε is read; less than the δ of the run by the room
            for the checker's rounding.

    Raises:
        NotCertified: where a closed form has too many losses, or the lattice too many places.
    """
    stated_groups = [factor_of_group(group, run.reach) for group in run.groups]
    pairs = [pair for group in stated_groups for pair in group.pairs]
    step = run.lattice_step(pairs)
    closed_forms = _closed_forms(run, step)
    if any(entry.get("width", 0) > MOST_LISTED_BY_CHECKER for entry in closed_forms):
        raise NotCertified("this number of copies of a cost has too many losses")
    run = replace(run, query=replace(run.query, delta=delta_left))
    best = Concentrated.best(run, pairs, step)
    entries: list[Entry] = []
    if not best.split.by_renyi.of(BoundedRange):
        entries += _factors_on_lattice(stated_groups, step)
    entries += closed_forms
    entries += best.entries(run, step)
    window = 2 * (run.reach + tuning.CERTIFIED_LEFT) * math.sqrt(run.variance)
    width = math.ceil(window / step) + max(entry["high"] for entry in entries)
    if width > MOST_PLACES:
        raise NotCertified("the lattice has too many places")
    # ``delta_left`` leaves room for the checker's rounding of δ; this is some for that of ε.
    return claim.certificate(best.bound * (1 + tuning.CHECKER_ROOM / 100), entries, step, width)


def _factors_on_lattice(groups: Sequence[StatedGroup], step: float) -> list[Entry]:
    """Return the factors of groups of ranges with the places of the product's lattice between which
    their profiles are read.

    Args:
        groups: the groups, each stated on a grid of its own.
        step: the step of the lattice.
    """
    factors = []
    for group in groups:
        low = group.factor["low"] * group.factor["step"]
        high = group.factor["high"] * group.factor["step"]
        factors.append(group.factor | place_range(low, high, step))
    return factors


@dataclass(frozen=True)
class Concentrated:
    """The way in which the concentrated costs of a run are bounded.

    Attributes:
        bound: the upper bound on ε of the whole product.
        split: which costs are one Gaussian, and which are one Rényi curve; both empty where a game
            is used.
        certified_game: the game of the concentrated costs, where it is used instead of the split;
            else None.
    """

    bound: float
    split: RenyiSplit
    certified_game: CertifiedGame | None = None

    @classmethod
    def best(cls, run: Evaluation, pairs: Sequence[GroupPair], step: float) -> Concentrated:
        """Return the way with the least upper bound on ε.

        Args:
            run: the evaluation.
            pairs: the pairs of the bounded ranges.
            step: the step of the lattice.
        """
        ways = [cls(run.bound_of_split(split, pairs, step), split) for split in run.splits()]
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
            factor = factor_of_game(self.certified_game, game.concentrated)
            return [factor | place_range(-last, last, step)]
        by_renyi = self.split.by_renyi
        small = {cost: times for cost, times in game.concentrated if cost not in by_renyi.costs}
        entries = [
            factor_of_small(Charge(small), gaussian, step, run.reach)
            for gaussian in self.split.gaussian.costs
        ]
        if by_renyi.costs:
            last = run.renyi_pair(step, by_renyi).losses[-1]
            entries.append(factor_of_list("Renyi", by_renyi) | place_range(-last, last, step))
        return entries


def _closed_forms(run: Evaluation, step: float) -> list[Entry]:
    """Return as factors the costs of a run whose profile the checker knows, and the small costs for
    which a Gaussian stands.

    Args:
        run: the evaluation.
        step: the step of the lattice.
    """
    game = run.game
    stated = Charge({cost: times for cost, times in game.dominated if cost != game.stand_in})
    gaussian = Charge(stated.of(GaussianDP))
    others = {cost: times for cost, times in stated if cost not in gaussian.costs}
    costs = [*others.items(), *one_gaussian(gaussian).items()]
    entries = [closed_form(cost, times, step, run.reach) for cost, times in costs]
    if game.stand_in is not None:
        entries.append(factor_of_small(game.small, game.stand_in, step, run.reach))
    return entries
