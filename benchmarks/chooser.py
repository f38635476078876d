"""What the choice of a way to answer from events loses after a look, on real tables.

    python -m benchmarks.chooser            # the tables of BUILD, simulated
    python -m benchmarks.chooser --report   # docs/notes/two-phases.md, the tables of REPORT

The loss of every way of the menu is simulated in floats on the true counts. Printed is, over the
best of them in hindsight, the loss of the way that is predicted to be the best where counts and
users are known, and the mean loss of the ways chosen after seeded looks. With --report the default
is released instead.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri

from benchmarks.caps import both, loss
from benchmarks.tables import BUILD, REPORT, table
from dptopk import Budget, Histogram, PartitionSelection, Sensitivity
from dptopk.accounting.gaussian.pair import gaussian_epsilon
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import CELLS, WEIGHT, EventCounts
from dptopk.planning import plan_two_phases
from dptopk.planning.helped import weight_of_released
from dptopk.planning.mixture import Mixture
from dptopk.planning.open_counts import mean_and_ranks
from dptopk.planning.prediction import GUMBEL_STD, Scene, losses
from dptopk.planning.profile import FLOORS, capped_menu, choice_by_looks, menu
from dptopk.planning.ways import (
    FINDING_DELTA,
    RANGE_OF_MU,
    Counting,
    Way,
    deviation,
    deviation_ratio,
    whole_mu,
)

BUDGET = Budget(1.0, 1e-6)
RANKS, THINNED = (10, 25, 100), (1.0, 0.3)
LOOKS, ANSWERS = 8, 24
# Draws of a way: more over a noisy floor, which rarely hides all at once; more of the best ones.
DRAWS, OVER_FLOOR, ANEW, BEST = 64, 150, 200, 6
MOST_LABELS, BOXED, LEAST_CHANCE, REACH = 4000, 12, 1e-5, 4.3
LEAST_MU = 1e-9  # where nothing is selected


@dataclass(frozen=True)
class Counts:
    """The largest counts of a table, what caps and weights leave of them (arrays of one length, the
    largest count first), and how many users are in each of CELLS.
    """

    true: np.ndarray
    narrow: dict[int, np.ndarray]
    weighted: np.ndarray
    users: np.ndarray

    @classmethod
    def of(cls, events: EventCounts, thinned: float) -> Counts:
        """Those of a table, times a factor."""
        order = np.argsort(-np.asarray(events.counts), kind="stable")[:MOST_LABELS]
        true = np.rint(np.asarray(events.counts)[order] * thinned)
        narrow = {
            cap: np.minimum(np.rint(np.asarray(under)[order] * thinned), true)
            for cap, under in events.narrow.items()
        }
        labels = np.asarray(events.labels)[order].tolist()
        weighted = np.asarray(events.under_cap.count_of(labels)) * thinned
        return cls(true, narrow, weighted, np.rint(events.profile.counts * thinned))


@cache
def coin(cap: int, mu: float, delta: float) -> np.ndarray:
    """The chances of a coin by the count."""
    coins = PartitionSelection(epsilon=float(gaussian_epsilon(mu, delta=delta)), delta=delta)
    return np.asarray(coins.chances(Sensitivity(l0=cap)).shown, dtype=float)


def simulated(data: Counts, way: Way, k: int, budget: Budget, draws: int, seed: int = 1) -> float:
    """The mean loss of a way; inf where the budget has no coin for it."""
    rng = np.random.default_rng([seed, k, round(1000 * way.share), way.cap or way.floor])
    delta = FINDING_DELTA[way.find] * budget.delta
    mu = whole_mu(budget, way.find) * math.sqrt(way.share)
    picks = mu if way.find == "uncapped" else mu * math.sqrt(way.selecting)
    rate = RANGE_OF_MU * max(picks, LEAST_MU) / math.sqrt(k)
    finding = mu * math.sqrt(1 - way.selecting)
    noisy = None
    if way.find == "uncapped":
        true = data.true[: way.floor]
        after = data.true[way.floor] if way.floor < len(data.true) else 0.0
        floor = after + 1 + (math.log(way.floor) - math.log(delta)) / rate
        values = true + rng.gumbel(size=(draws, len(true))) / rate
        passed = values > floor + rng.gumbel(size=(draws, 1)) / rate
    elif way.find == "coins":
        try:
            chances = coin(way.cap, finding, delta)
        except InvalidParameter:
            return math.inf
        chance = chances[np.minimum(data.narrow[way.cap].astype(int), len(chances) - 1)]
        likely = chance > LEAST_CHANCE
        true = data.true[likely]
        passed = rng.random((draws, len(true))) < chance[likely]
        values = true + rng.gumbel(size=passed.shape) / rate
    else:
        if way.find == "weights":
            sums, scale = data.weighted, WEIGHT / finding
            alone, several = WEIGHT - scale * ndtri(delta), 10 - scale * ndtri(delta / way.cap)
            threshold = max(alone, several)
        else:
            sums, scale = data.narrow[way.cap], math.sqrt(way.cap) / finding
            threshold = 1 - scale * ndtri(delta / way.cap)
        likely = sums > threshold - REACH * scale
        true = data.true[likely]
        noisy = sums[likely] + scale * rng.normal(size=(draws, len(true)))
        passed = noisy > threshold
        values = true + rng.gumbel(size=passed.shape) / rate
        if way.counting == "capped" and len(true) >= k:
            kth = np.partition(np.where(passed, noisy, threshold), -k, axis=1)[:, [-k]]
            values = values + weight_of_released(GUMBEL_STD / rate, scale, kth) * noisy
    passed &= true > 0
    number = passed.sum(axis=1)
    if not way.counts_all:
        number = np.minimum(number, k)
    std = deviation(way, k, budget) * deviation_ratio(way, np.maximum(number, 1), k)
    if way.counts_all:
        values = noisy = true + std[:, None] * rng.normal(size=passed.shape)
    order = np.argsort(-np.where(passed, values, -np.inf), axis=1)[:, :k]
    there = np.take_along_axis(passed, order, axis=1)
    rows = there.sum(axis=1)
    error = np.where(rows > 0, std, 0.0)
    if way.counting == "capped" or way.counts_all:
        squares = np.where(there, np.take_along_axis(noisy, order, axis=1) - true[order], 0.0) ** 2
        error = np.sqrt(squares.sum(axis=1) / np.maximum(rows, 1))
    missed = (data.true[:k].sum() - (true[order] * there).sum(axis=1)) / k
    return float((error + np.maximum(missed, 0.0)).mean())


def ways_for(k: int) -> list[Way]:
    """The menu, with the noise on counts that is less for this k."""
    families: tuple[Counting, ...] = ("box",) if k <= BOXED else ("gaussian",)
    return [*menu(k, families), *capped_menu()]


def of_each(data: Counts, k: int, budget: Budget) -> dict[Way, float]:
    """The simulated loss of each way of the menu."""
    draws = {"uncapped": OVER_FLOOR}
    return {way: simulated(data, way, k, budget, draws.get(way.find, DRAWS)) for way in ways_for(k)}


def known(data: Counts, k: int, budget: Budget) -> Way:
    """The way with the least predicted loss where counts and users are known."""
    length = (max(FLOORS) + 1) * k + 10
    counts = np.append(data.true, np.zeros(length))
    ranks = np.arange(1, len(counts) + 1)
    shape = Mixture.of(k, length, lambda rank: np.tile(np.interp(rank, ranks, counts), (3, 1)))
    ways = ways_for(k)
    return ways[int(losses(Scene(k, budget, np.tile(data.users, (3, 1)), shape), ways).argmin())]


def after_looks(data: Counts, k: int, of_way: dict[Way, float]) -> float:
    """The mean loss of the ways that are chosen after seeded looks."""
    plan = plan_two_phases(k, BUDGET, profile=True)
    public = {"sensitivity": Sensitivity(l0=1), "domain": "public"}
    users = Histogram(list(CELLS), data.users.astype(int), **public)
    labels = [f"x{rank}" for rank in range(len(data.true))]
    counts = mean_and_ranks(Histogram(labels, data.true.astype(int)), k)
    found = []
    for number in range(LOOKS):
        rng = np.random.default_rng([7, number])
        seen = [
            look.mechanism.release(each, rng)
            for look, each in zip(plan.looks, (users, counts), strict=True)
        ]
        way = choice_by_looks(plan, *seen, plan.rest, plan.way).way or plan.way
        loss_of = of_way.get(way) or simulated(data, way, k, plan.rest, OVER_FLOOR)
        found.append(loss_of)
    return float(np.mean(found))


def main(report: bool) -> None:
    """A line for each table and k, then the geometric means and the largest."""
    factors: dict[int, list[float]] = {k: [] for k in RANKS}
    for name in REPORT if report else BUILD:
        events = both(table(name), 100, np.random.default_rng(17), weights=True)
        for k in RANKS:
            for thinned in (1.0,) if report else THINNED:
                data = Counts.of(events, thinned)
                plan = plan_two_phases(k, BUDGET, profile=True)
                budget = BUDGET if report else plan.rest
                of_way = of_each(data, k, budget)
                first = sorted(of_way, key=of_way.__getitem__)[:BEST]
                if report:
                    best = min(simulated(data, way, k, budget, ANEW, seed=2) for way in first)
                    own = loss(plan, events, events, k, ANSWERS)
                    words = ""
                else:
                    best = of_way[first[0]]
                    own = after_looks(data, k, of_way)
                    words = f", where all is known {of_way[known(data, k, budget)] / best:.2f}"
                factors[k].append(own / best)
                print(
                    f"{name}, times {thinned:g}; k = {k}: {own:.3g} over {best:.3g}: "
                    f"{own / best:.2f}{words}",
                    flush=True,
                )
    for k, found in factors.items():
        mean = math.exp(np.log(found).mean())
        print(f"k = {k}: geometric mean {mean:.3f}, largest {max(found):.2f}")


if __name__ == "__main__":
    main("--report" in sys.argv[1:])
