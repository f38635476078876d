"""A private profile of users, and the way of finding and counting labels that is best by it (notes/two-phases.md).

Two looks with noise come first: at how many users have how many labels, and at the counts of a few ranks. Of all ways
the answer is dominated by the pair of the usual one, the product of two Gaussians and a δ; so whichever is taken by what
was seen, looks and answer cost the product of theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal.rounding import sum_up
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.costs import Charge, GaussianDP, SparseGaussianDP
from dptopk.histogram.event_counts import CELLS, NARROW, WEIGHT, EventCounts
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms import Box, GaussianCounts, KnownLaplace, SparseGaussian, WeightedGaussian
from dptopk.planning.plan import Phase, Plan
from dptopk.planning.probe import STDS_SEEN, at_ranks, ranks, shapes
from dptopk.planning.request import ceil_digits, floor_digits
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator

    from dptopk.planning.mixture import Mixture
    from dptopk.planning.two_phase import TwoPhasePlan

Array = np.ndarray[Any, Any]
# What is looked at, each for a share of ε: users by their number of labels; counts at rank 1 and at multiples of k.
LOOKS, FOLDS = {"users": 0.03, "ranks": 0.04}, (1, 3)
# A cell of fewer users than this many deviations of the noise is taken to be empty; users of the last cell, which has no
# end, to have the geometric mean of its start and this many labels.
STDS, LARGEST = 3.0, 600
LABELS = np.sqrt((np.array(CELLS) + 1.0) * [*CELLS[1:], LARGEST])
# The chances of a label at which its users are computed; of the shapes of counts the likeliest that are compared on.
CHANCES, LIKELY = np.geomspace(1e-6, 10.0, 400)[:, None], 24
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


@dataclass(frozen=True, eq=False)
class Way:
    """One way of finding and counting labels: two phases with weights, or one phase under a narrow cap.

    Attributes:
        name: in words.
        plan: what runs.
        cap: of one phase; None: two phases.
    """

    name: str
    plan: Plan
    cap: int | None = None

    def release(self, both: EventCounts, rng: Generator | None) -> Release:
        """Its answer."""
        return self.plan.release(both if self.cap is None else both.narrow[self.cap], rng)

    def loss(self, users: Array, shapes_: Mixture) -> tuple[float, float]:
        """Predict the loss, and how many labels are found, for users in CELLS and shapes of the uncapped counts.

        Loss: root mean square error of the counts that are shown, and the count that is missed for each row.
        """
        k, finding, counting = self.plan.k, self.plan.mechanisms[0], self.plan.mechanisms[-1]
        under = self.plan.sensitivity if self.cap else self.plan.under  # type: ignore[attr-defined]
        some = np.minimum(LABELS, under.l0)
        added = (
            some if self.cap else WEIGHT * np.sqrt(some)
        ) / LABELS  # to the sum of a label, by each user who has it
        # A user of d labels has one of them, where it comes up with chance p at each, with probability 1 - e^(-dp).
        have = users * -np.expm1(-CHANCES * LABELS)
        seen = np.interp(shapes_.counts, have.sum(axis=1), have @ added)
        at = np.searchsorted(shapes_.edges, k) - 1
        part = float((seen[:, at] / np.maximum(shapes_.counts[:, at], 1.0)).mean())
        told = replace(shapes_, counts=seen).outcome((finding,), k, under, counted=False)
        noise = counting.count_noise(self.plan.sensitivity, labels=max(round(told.rows), 1)) or 0.0
        top = shapes_.of_top(k)
        cut = math.sqrt(((shapes_.counts - seen) ** 2 @ top).mean() / k) if self.cap else 0.0
        return math.hypot(noise, cut) + told.missed / part, told.rows


def looks(epsilon: float) -> tuple[Phase, ...]:
    """The two looks, for a total of this ε; each is pure."""
    users, counts = (floor_digits(share * epsilon) for share in LOOKS.values())
    made: tuple[tuple[Any, Sensitivity], ...] = (
        (KnownLaplace(epsilon=users), Sensitivity(l0=1)),
        (Box(epsilon=counts), Sensitivity()),
    )
    return tuple(Phase(name, how, how.charge(moved)) for name, (how, moved) in zip(LOOKS, made, strict=True))


def pair(plan: Plan) -> tuple[Fraction, float]:
    """A pair that dominates a plan of Gaussian noise: the sum of the squares of its μ, and its δ.

    For counts over a threshold: of one user's labels those that others have too move by one each, and of the user's own
    one is shown with probability δ at most.
    """
    squares, deltas = Fraction(0), [0.0]
    for phase in plan.phases:
        deltas.append(getattr(phase.mechanism, "delta", 0.0))
        for cost, times in phase.charge:
            if isinstance(cost, SparseGaussianDP):
                squares += cost.labels * Fraction(dominating_mu(cost.scale, cost.shift)) ** 2
            elif isinstance(cost, GaussianDP):
                squares += times * Fraction(cost.mu) ** 2
            else:
                return Fraction(2**62), 1.0  # no such pair
    return squares, sum_up(deltas)


def ways(plan: TwoPhasePlan) -> list[Way]:
    """The usual way first, then others whose pair is within its own."""
    most, delta = pair(plan)
    usual = replace(plan, looks=())
    made = [Way("two phases, in the usual way", usual)]
    for share in SHARES:
        find = WeightedGaussian(sigma=ceil_digits(1 / math.sqrt(share * most)), delta=delta)
        first = Phase("find", find, find.charge(plan.under))
        (spent,) = first.charge.of(GaussianDP)
        count = GaussianCounts(mu=floor_digits(math.sqrt(most - Fraction(spent.mu) ** 2)))
        phases = first, Phase("count", count, count.charge(plan.sensitivity))
        made.append(Way(f"two phases, {share:.0%} of μ² to find labels", replace(usual, phases=phases)))
    for cap in NARROW:
        under = Sensitivity(l0=cap)
        both = SparseGaussian(sigma=ceil_digits(math.sqrt(cap / most) * (1 + 1e-3)), delta=delta)
        phase = Phase("count and select", both, both.charge(under))
        one = Plan(plan.k, plan.budget, under, "private", (phase,), plan.bound, plan.split)
        made.append(Way(f"one phase under a cap of {cap} labels", one, cap))
    return [way for way in made if all(own <= of for own, of in zip(pair(way.plan), (most, delta), strict=True))]


def chosen(plan: TwoPhasePlan, users: Release, counts: Release) -> tuple[Way, str]:
    """The way with the least predicted loss by what was seen, and its promise; the usual one if nothing was seen."""
    cells, top = (dict(zip(seen.labels, np.asarray(seen.counts).tolist(), strict=True)) for seen in (users, counts))
    spread, box = (look.mechanism.count_noise(Sensitivity(l0=1), labels=len(top)) or 0.0 for look in plan.looks)
    noisy, ranked = np.array([cells[cell] for cell in CELLS]), ranks(plan.k, FOLDS)
    noisy, at = np.where(noisy < STDS * spread, 0.0, noisy), np.array([top[f"rank {rank}"] for rank in ranked])
    usual, *others = ways(plan)
    if not noisy.any() or at[0] < STDS_SEEN * box:
        return usual, "nothing was seen"
    box_noise = plan.looks[1].mechanism
    drawn = shapes(at, plan.k, box_noise, 1, 10 * plan.k + 92, factors=FOLDS, falls=1)  # type: ignore[arg-type]
    # All counts sum up to the pairs of a user and a label: those of the first ranks to no more, with a tail to no less.
    pairs, first, whole = noisy @ LABELS, drawn.counts @ drawn.of_top(ranked[-1]), drawn.counts @ drawn.sizes
    odd = np.maximum(np.maximum(first / pairs, pairs / np.maximum(whole, 1.0)), 1.0)
    drawn = replace(drawn, counts=drawn.counts[np.argsort(odd, kind="stable")[:LIKELY]])
    losses = {way: way.loss(noisy, drawn) for way in (usual, *others)}
    best = min(losses, key=lambda way: losses[way][0])
    loss, rows = losses[best]
    return best, f"{rows:.0f} labels and a loss of {loss:.3g} were predicted, {losses[usual][0]:.3g} in the usual way"


def answer(plan: TwoPhasePlan, both: EventCounts, rng: Generator | None) -> Release:
    """The looks, and the answer in the way chosen by them, at the charge of all that was fixed before."""
    assert both.profile is not None  # noqa: S101 - checked by the plan
    looked = both.profile, at_ranks(both, plan.k, FOLDS)
    users, counts = (look.mechanism.release(each, rng) for look, each in zip(plan.looks, looked, strict=True))
    way, promise = chosen(plan, users, counts)
    made = way.release(both, rng)
    named = ", ".join(map(str, ranks(plan.k, FOLDS)))
    note = (
        f"{way.name}; chosen by a look, for {Charge.join(*(look.charge for look in plan.looks))}, at how many users have "
        f"how many labels and at the counts of the ranks {named}, with noise: {promise}"
    )
    phases = {phase.name: phase.charge for phase in (*plan.looks, *plan.phases)}
    return replace(made, charge=plan.charge, phases=phases, note="; ".join(filter(None, (made.note, note))))
