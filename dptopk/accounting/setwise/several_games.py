"""Several games of concentrated costs, whose product bounds them all (Theorem C), for costs that
are too many or too different in size for one game.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dptopk.accounting.cost_models.dominating_pairs import loss_components
from dptopk.accounting.pld.loss_components import LossComponent
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.concentrated_game import ConcentratedGame
from dptopk.accounting.setwise.zcdp_gaussian import gaussian_of, zcdp_constant
from dptopk.costs import CDP, Charge
from dptopk.errors import NotApplicable

LEAST_WORK = 0.05  # in seconds: no game takes less


class PlayedPart(NamedTuple):
    """Some of the concentrated costs with their game, or with the Gaussian that stands for them.

    Attributes:
        costs: the costs.
        game: their game, or None where a Gaussian stands for them.
        gaussian: one Gaussian cost that is worth at least the costs (Theorem H); an empty charge
            where there is a game, or where only a lower bound is asked for.
    """

    costs: Charge
    game: ConcentratedGame | None
    gaussian: Charge

    def components(self) -> list[LossComponent]:
        """Return pairs whose product bounds the costs from above."""
        if self.game is not None:
            return [self.game.pair()]
        return loss_components(self.gaussian)


def games_of_parts(costs: Charge, reach: float, negligible: float, work: float) -> list[PlayedPart]:
    """Return some costs split into parts, each with a game, or with a Gaussian where it has very
    many equal costs; an empty list where no such split fits into the work.

    All costs are one part if they have one game. Otherwise they are split in two, and each part
    again, within its share of the work.

    Args:
        costs: ZCDP and CDP costs.
        reach: the largest ε that matters.
        negligible: a δ; beyond the ε at which a part alone is worth so little its game is not
            looked at.
        work: what all games together may take, in seconds; an estimate.
    """
    negligible_from = float(renyi_curve(log_mgf(costs)).epsilon(negligible))
    game = ConcentratedGame.fitting(costs, min(reach, negligible_from), work)
    if game is not None:
        return [PlayedPart(costs, game, Charge())]
    one_kind = len(costs.costs) == 1
    if one_kind and costs.count > tuning.MOST_IN_GAMES:
        try:
            return [PlayedPart(costs, None, Charge({gaussian_of(costs): 1}))]
        except NotApplicable:
            return []
    if costs.count < 2 or work < LEAST_WORK:
        return []
    parts: list[PlayedPart] = []
    halves = _two_parts(costs)
    work_of_both = sum(_expected_work(half) for half in halves)
    for half in halves:
        share = _expected_work(half) / work_of_both
        parts_of_half = games_of_parts(half, reach, negligible, share * work)
        if not parts_of_half:
            return []
        parts += parts_of_half
    return parts


def _expected_work(costs: Charge) -> float:
    """Return an estimate of the work, in seconds, of the games of some costs on their widest grids,
    one game for each kind: LEAST_WORK and that of each kind, of which those that a Gaussian
    replaces take none.
    """
    work = LEAST_WORK
    for cost, times in costs:
        if times > tuning.MOST_IN_GAMES:
            continue
        if isinstance(cost, CDP):
            work += tuning.WORK_PER_CENTRED_FAMILY + tuning.WORK_PER_CENTRED_COST * times
        else:
            work += tuning.WORK_PER_FAMILY + tuning.WORK_PER_COST * times
    return work


def _two_parts(costs: Charge) -> tuple[Charge, Charge]:
    """Return two or more costs in two parts, that of the larger costs first.

    Costs of several kinds are split where neighbouring zCDP constants, in falling order, have the
    largest ratio; those of a single kind into two halves.
    """
    kinds = [(zcdp_constant(cost), cost) for cost in costs.costs]
    kinds.sort(key=lambda kind: kind[0], reverse=True)
    falling = [cost for _, cost in kinds]
    if len(falling) == 1:
        (cost,) = falling
        half = costs.count // 2
        return Charge({cost: costs.count - half}), Charge({cost: half})
    ratios = [larger / smaller for (larger, _), (smaller, _) in pairwise(kinds)]
    cut = int(np.argmax(ratios)) + 1
    larger_costs = {cost: costs.costs[cost] for cost in falling[:cut]}
    smaller_costs = {cost: costs.costs[cost] for cost in falling[cut:]}
    return Charge(larger_costs), Charge(smaller_costs)
