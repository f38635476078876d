"""A private profile of users, and the way of finding and counting labels that is best by it (notes/two-phases.md).

Two looks with noise come first: at how many users have how many labels, and at the counts of a few ranks. All ways are
dominated by the pair of the usual one, of a Gaussian and a δ. So whichever is taken by what was seen, looks and answer
cost the product of theirs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.costs import Charge, GaussianDP
from dptopk.histogram.event_counts import CELLS, NARROW, WEIGHT, EventCounts
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms import Box, GaussianCounts, KnownLaplace, SparseGaussian, WeightedGaussian
from dptopk.planning.mixture import Mixture
from dptopk.planning.plan import Phase, Plan
from dptopk.planning.probe import STDS_SEEN, at_ranks, ranks, shapes
from dptopk.planning.request import ceil_digits, floor_digits
from dptopk.release.release import Release

Array = np.ndarray[Any, Any]
# What is looked at, each for a share of ε: users by their number of labels; counts at rank 1 and at multiples of k.
USERS, RANKS, FACTORS = 0.03, 0.04, (1, 3)
# A cell of fewer users than this many deviations of the noise is taken to be empty; users of the last cell to have the
# geometric mean of its start and this many labels.
STDS, LARGEST = 3.0, 600
LABELS = np.sqrt((np.array(CELLS) + 1.0) * [*CELLS[1:], LARGEST])
# The chances of a label for which its users are computed; how many of the shapes of counts, the likeliest, are used.
CHANCES, LIKELY = np.geomspace(1e-6, 10.0, 400)[:, None], 24
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


def looks(epsilon: float) -> tuple[Phase, Phase]:
    """The two looks, for an answer of this ε; each is pure."""
    users, counts = KnownLaplace(epsilon=floor_digits(USERS * epsilon)), Box(epsilon=floor_digits(RANKS * epsilon))
    return Phase("users", users, users.charge(Sensitivity(l0=1))), Phase("ranks", counts, counts.charge(Sensitivity()))


def ways(plan: Any) -> list[Any]:
    """Plans for the charge of a TwoPhasePlan with weights and Gaussian counts without its looks: itself first.

    In two phases with other shares; and in one, under narrow caps: there one user moves at most ``cap`` counts that
    others have too by one each, and shows a label of its own with probability δ at most.
    """
    usual = replace(plan, looks=())
    squares, delta = _squares(usual.charge), usual.charge.delta
    made: list[Any] = [usual]
    for share in SHARES:
        find = WeightedGaussian(sigma=ceil_digits(1 / math.sqrt(share * squares)), delta=delta)
        first = Phase("find", find, find.charge(plan.under))
        count = GaussianCounts(mu=floor_digits(math.sqrt(squares - _squares(first.charge))))
        phases = first, Phase("count", count, count.charge(plan.sensitivity))
        made.append(replace(usual, phases=phases, design=f"two phases, {share:.0%} of μ² to find labels"))
    made = [way for way in made if _squares(way.charge) <= squares]
    for cap in NARROW:
        # The μ of noise of a scale is a little above 1/scale, relatively the less the larger the scale is.
        under, scale = Sensitivity(l0=cap), math.sqrt(cap / squares)
        both = SparseGaussian(sigma=ceil_digits(scale * scale * dominating_mu(scale)), delta=delta)
        if cap * Fraction(dominating_mu(both.sigma)) ** 2 <= squares:
            phase = Phase("count and select", both, both.charge(under))
            one = Plan(plan.k, plan.budget, under, "private", (phase,), plan.bound, plan.split)
            made.append(replace(one, design=f"one phase under a cap of {cap} labels"))
    return made


def _squares(charge: Charge) -> Fraction:
    """The sum of the squares of all μ, exactly."""
    return sum((times * Fraction(cost.mu) ** 2 for cost, times in charge.of(GaussianDP).items()), Fraction(0))


def predicted(way: Any, users: Array, drawn: Mixture) -> tuple[float, float]:
    """The loss of a way, and how many labels it finds, for users in CELLS and shapes of the uncapped counts.

    Loss: root mean square error of the counts that are shown, and the count that is missed for each row.
    """
    k, one, under = way.k, len(way.phases) == 1, getattr(way, "under", way.sensitivity)
    some = np.minimum(LABELS, under.l0)
    added = (some if one else WEIGHT * np.sqrt(some)) / LABELS  # by a user to the sum of each label, on average
    # A user of d labels has one of them, where it comes up with chance p at each, with probability 1 - e^(-dp).
    have = users * -np.expm1(-CHANCES * LABELS)
    seen = np.interp(drawn.counts, have.sum(axis=1), have @ added)
    told = replace(drawn, counts=seen).outcome(way.mechanisms[:1], k, under, counted=False)
    last = np.searchsorted(drawn.edges, k) - 1
    part = (seen[:, last] / np.maximum(drawn.counts[:, last], 1.0)).mean()
    cut = ((drawn.counts - seen) ** 2 @ drawn.of_top(k)).mean() / k if one else 0.0
    noise = way.mechanisms[-1].count_noise(way.sensitivity, labels=max(round(told.rows), 1))
    return float(math.sqrt(noise**2 + cut) + told.missed / part), told.rows


def chosen(plan: Any, users: Release, counts: Release) -> tuple[Any, str]:
    """The way with the least predicted loss by what was seen, and its promise; the usual one if nothing was seen."""
    ranked = ranks(plan.k, FACTORS)
    cells, top = (dict(zip(seen.labels, np.asarray(seen.counts).tolist(), strict=True)) for seen in (users, counts))
    there, at = np.array([cells[cell] for cell in CELLS]), np.array([top[f"rank {rank}"] for rank in ranked])
    spread, box = (look.mechanism.count_noise(Sensitivity(l0=1), labels=len(top)) for look in plan.looks)
    there = np.where(there < STDS * spread, 0.0, there)
    if not there.any() or at[0] < STDS_SEEN * box:
        return ways(plan)[0], "nothing was seen"
    drawn = shapes(at, plan.k, plan.looks[1].mechanism, 1, 10 * plan.k + 92, factors=FACTORS, falls=1)
    # All counts sum up to the pairs of a user and a label: those of the first ranks to no more, with a tail to no less.
    pairs, first, whole = there @ LABELS, drawn.counts @ drawn.of_top(ranked[-1]), drawn.counts @ drawn.sizes
    odd = np.maximum(np.maximum(first / pairs, pairs / np.maximum(whole, 1.0)), 1.0)
    drawn = replace(drawn, counts=drawn.counts[np.argsort(odd, kind="stable")[:LIKELY]])
    told = [(*predicted(way, there, drawn), way) for way in ways(plan)]
    loss, rows, best = min(told, key=lambda each: each[0])
    return best, f"{rows:.0f} labels and a loss of {loss:.3g} were predicted, {told[0][0]:.3g} for the usual way"


def answer(plan: Any, both: EventCounts, rng: np.random.Generator | None) -> Release:
    """The looks, and the answer in the way chosen by them, at the charge of all that was fixed before."""
    looked = both.profile, at_ranks(both, plan.k, FACTORS)
    seen = [look.mechanism.release(each, rng) for look, each in zip(plan.looks, looked, strict=True)]
    way, promise = chosen(plan, *seen)
    made = way.release(both if len(way.phases) > 1 else both.under(way.sensitivity.l0), rng)
    price, named = Charge.join(*(look.charge for look in plan.looks)), ", ".join(map(str, ranks(plan.k, FACTORS)))
    why = f"a look, for {price}, at how many labels users have and at the counts of the ranks {named}; {promise}"
    phases = {phase.name: phase.charge for phase in (*plan.looks, *plan.phases)}
    return replace(made, charge=plan.charge, phases=phases, note=f"{made.note}; {way.design}: chosen by {why}")
