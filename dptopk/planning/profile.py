"""Two private looks before an answer on events, and the way of answering that they choose
(docs/notes/two-phases.md).

The looks, with noise that is ε-DP, are at how many users have how many labels, and at the counts of
a few ranks. By what they show the ways of a menu (how labels are found, selected and counted) are
compared by their predicted losses. Every way would be calibrated to the same rest of the budget, an
(ε, δ) that was fixed before; so whichever is taken, looks and answer together cost the looks and
that (ε, δ).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal.rounding import decimal, floor_digits, round_down
from dptopk.costs import ApproxDP, Budget, Charge, PureDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import CELLS, NARROW, EventCounts, finding_sensitivity
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms import Box, KnownLaplace
from dptopk.planning.open_counts import (
    likely_counts,
    mean_and_ranks,
    names_of_values,
    shapes_through,
)
from dptopk.planning.open_users import open_users
from dptopk.planning.prediction import Scene, losses
from dptopk.planning.topk_plan import Phase
from dptopk.planning.ways import COUNTING, Counting, Way, calibrate_way, deviation
from dptopk.release.release import Release

if TYPE_CHECKING:
    from dptopk.planning.two_phase import TwoPhasePlan

Array = np.ndarray[Any, Any]
# The shares of ε for the two looks: at users by their number of labels; at the mean of the top k
# and the counts at multiples of k. Measured: of 1% and 5%, 2% and 3%, and 1% and 2% none is better
# on the tables that they were chosen on, and each is worse for some k (docs/notes/two-phases.md,
# "Other shares for the looks").
SHARE_FOR_USERS = 0.01
SHARE_FOR_RANKS = 0.03
# The number of users is taken to be at most what is seen plus this many deviations of its noise,
# which is exceeded with a probability of about 2%. Chosen by hand; predictions alone depend on it.
STDS_OF_MORE_USERS = 2.0
# How many shapes of counts are drawn from what the looks leave open; chosen by hand.
SHAPES = 24
# The menu: shares of μ² for finding and selecting; parts of these shares for selecting, beside
# which 0 is for ways that count all they find; floors without a cap, in multiples of k; and the
# caps of coins, which are among those that are read. It was chosen on real tables
# (docs/notes/two-phases.md).
SHARES = (0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SELECTING_PARTS = (0.2, 0.35, 0.5)
# These are the parts for selecting where the counts by which labels are found are shown.
SELECTING_BESIDE_CAPPED_COUNTS = (0.01, 0.05, 0.2)
FLOORS = (3, 10, 40)
COIN_CAPS = (20, 60)
# The cap where labels are found by weights: the one of the least loss on the tables of
# docs/notes/events-measured.md.
WEIGHTED_CAP = 100
# The share, and the part of it for selecting, of the way by which families of noise are compared:
# both are of the menu, and chosen by hand.
COMPARED_SHARE = 0.15
COMPARED_SELECTING = 0.5
# A shape of counts has this many ranks more than the lowest floor and another k; chosen by hand.
RANKS_BEYOND_FLOOR = 10


def looks(epsilon: float) -> tuple[Phase, Phase]:
    """Return the two looks before an answer of this ε: at users by their number of labels, with
    Laplace noise, and at the counts of a few ranks, with box noise. The cost of each is ε-DP.

    Args:
        epsilon: ε of the looks and the answer together.
    """
    users = KnownLaplace(epsilon=floor_digits(SHARE_FOR_USERS * epsilon))
    counts = Box(epsilon=floor_digits(SHARE_FOR_RANKS * epsilon))
    return (
        Phase("users", users, users.charge(Sensitivity(l0=1))),
        Phase("ranks", counts, counts.charge(Sensitivity())),
    )


def rest_after(budget: Budget, looked: tuple[Phase, ...]) -> Budget:
    """Return what the looks leave of a budget: its ε less theirs, rounded down, and all of its δ.

    Looks and rest together are within the budget by basic composition, whatever is chosen by what
    the looks show.

    Args:
        budget: (ε, δ) of the looks and the answer.
        looked: the looks, whose costs are ε-DP.
    """
    rest = decimal(budget.epsilon)
    for phase in looked:
        for cost, times in phase.charge.of(PureDP).items():
            rest -= times * decimal(cost.epsilon)
    # Any smaller total is sound: nine digits make a short text of a charge.
    return Budget(floor_digits(round_down(rest), digits=9), budget.delta)


def answer_charge(rest: Budget) -> Charge:
    """Return the charge of the answer after the looks, which covers every way: the (ε, δ) of the
    rest of the budget.
    """
    return Charge({ApproxDP(rest.epsilon, rest.delta): 1})


def menu(k: int, families: tuple[Counting | None, ...]) -> list[Way]:
    """Return the ways that may be taken after the looks, but for those of ``capped_menu``.

    Args:
        k: how many labels are asked for.
        families: the families of noise on the counts; None among them for ways without counts.
    """
    ways: list[Way] = []
    for family in families:
        shares = SHARES if family else (1.0,)  # without counts finding and selecting have all
        # Part 0 counts all that was found. Box noise grows with the number of counts, and is only
        # for few labels: with it part 0 is never best.
        parts = (0.0, *SELECTING_PARTS) if family == "gaussian" else SELECTING_PARTS
        for share in shares:
            # Without a cap finding is selecting, and the part for selecting has no effect.
            any_part = SELECTING_PARTS[-1]
            ways += [Way("uncapped", share, any_part, family, floor=fold * k) for fold in FLOORS]
            for part in parts:
                ways.append(Way("weights", share, part, family, WEIGHTED_CAP))
                ways += [Way("coins", share, part, family, cap) for cap in COIN_CAPS]
    return ways


def capped_menu() -> list[Way]:
    """Return the ways that show counts under a narrow cap, for questions that take any kind of
    count.
    """
    return [
        Way("threshold", 1.0, part, "capped", cap)
        for part in SELECTING_BESIDE_CAPPED_COUNTS
        for cap in NARROW
    ]


def finding_sensitivity_of(way: Way) -> Sensitivity:
    """Return the sensitivity of the histogram on which a way of the menu finds labels."""
    if way.cap is None:
        return Sensitivity()
    return finding_sensitivity(way.cap, 1, weights=way.find == "weights")


@dataclass(frozen=True)
class Choice:
    """The way that was chosen by what was seen.

    Attributes:
        way: the way that was chosen; None for the usual way.
        promise: the losses that were predicted for it and for the usual way, in words, for the note
            of the answer.
    """

    way: Way | None
    promise: str


def choice_by_looks(
    plan: TwoPhasePlan, users: Release, counts: Release, rest: Budget, usual: Way
) -> Choice:
    """Return the way with the least predicted loss by what the looks showed, the usual one
    included.

    The less is seen above the noise, the more the shapes of counts that are compared are those that
    are likely before a look.

    Args:
        plan: the question.
        users: the release of the users in CELLS.
        counts: the release of the counts of the ranks.
        rest: the budget of the answer.
        usual: the way that is taken without a look.
    """
    scene = _scene_after_looks(plan, users, counts, rest)
    offered = menu(plan.k, (_noise_family(plan, rest),))
    if plan.counted and plan.family is None:
        offered += capped_menu()
    predicted = losses(scene, [usual, *offered])
    best = int(np.argmin(predicted))
    if best == 0:
        return Choice(None, f"a loss of {predicted[0]:.3g} was predicted for the usual way")
    promise = f"a loss of {predicted[best]:.3g} was predicted, {predicted[0]:.3g} for the usual way"
    return Choice(offered[best - 1], promise)


def _scene_after_looks(plan: TwoPhasePlan, users: Release, counts: Release, rest: Budget) -> Scene:
    """Return the shapes of the counts and of the users that the looks leave open, drawn with fixed
    seeds.

    Args:
        plan: the question.
        users: the release of the users in CELLS.
        counts: the release of the counts of the ranks.
        rest: the budget of the answer.
    """
    users_look, counts_look = plan.looks
    box = counts_look.mechanism
    assert isinstance(box, Box)  # noqa: S101 - for the type checker: ``looks`` made it
    noisy_users = _counts_in_order(users, CELLS)
    # For the type checker: the look releases counts.
    std = users_look.mechanism.count_noise(Sensitivity(l0=1), labels=1) or 0.0
    seen = _counts_in_order(counts, names_of_values(plan.k))
    likely = likely_counts(seen, box, SHAPES, _most_users(noisy_users, std))
    # Shapes go on beyond the lowest floor: selections of labels near it are simulated too.
    length = (max(FLOORS) + 1) * plan.k + RANKS_BEYOND_FLOOR
    shapes = shapes_through(plan.k, likely, length)
    scale = std / math.sqrt(2)  # Laplace noise of scale b has the variance 2b²
    users_of_shapes = open_users(noisy_users, scale, plan.k, likely)
    return Scene(plan.k, rest, users_of_shapes, shapes)


def _most_users(noisy_users: Array, std: float) -> float:
    """Return a number of users that there are seldom more of, by what a look showed: the sum of all
    cells, at least 0, plus STDS_OF_MORE_USERS deviations of its noise.

    Args:
        noisy_users: the users seen, shape (cells,).
        std: the standard deviation of the noise on each cell.
    """
    std_of_sum = std * math.sqrt(len(noisy_users))
    return float(max(noisy_users.sum(), 0.0) + STDS_OF_MORE_USERS * std_of_sum)


def _counts_in_order(released: Release, names: Sequence[object]) -> Array:
    """Return the released counts of these labels, in their order, as float64, shape (names,)."""
    values = np.asarray(released.counts, dtype=np.float64).tolist()
    by_label = dict(zip(released.labels, values, strict=True))
    return np.array([by_label[name] for name in names], dtype=np.float64)


def _noise_family(plan: TwoPhasePlan, rest: Budget) -> Counting | None:
    """Return the family of noise on the counts: the one that was asked for, else the one with less
    noise in a usual way (COMPARED_SHARE, COMPARED_SELECTING); None where no counts are shown.
    """
    if not plan.counted:
        return None
    if plan.family is not None:
        return plan.family
    ways = [
        Way("weights", COMPARED_SHARE, COMPARED_SELECTING, family, WEIGHTED_CAP)
        for family in COUNTING
    ]
    least_noise = min(ways, key=lambda way: deviation(way, plan.k, rest))
    return least_noise.counting


def answer(plan: TwoPhasePlan, histogram: EventCounts, rng: np.random.Generator | None) -> Release:
    """Take the looks, and return the answer in the way that they choose; its charge was fixed
    before.

    Args:
        plan: one with looks.
        histogram: the events, read with a profile of users.
        rng: draws the noise; None: secure noise.
    """
    # For the type checker: ``check`` refuses events without a profile, and looks leave a rest.
    assert histogram.profile is not None  # noqa: S101
    assert plan.rest is not None  # noqa: S101
    users_look, counts_look = plan.looks
    users = users_look.mechanism.release(histogram.profile, rng)
    counts = counts_look.mechanism.release(mean_and_ranks(histogram, plan.k), rng)
    choice = choice_by_looks(plan, users, counts, plan.rest, plan.way)
    plan_after_looks = _plan_of_way(plan, choice.way, histogram)
    released = plan_after_looks.draw(histogram, rng, average=False)
    spent = Charge.join(*(look.charge for look in plan.looks))
    named = ", ".join(names_of_values(plan.k))
    note = (
        f"{released.note}; {plan_after_looks.design}: chosen by a look, for {spent}, at how many "
        f"labels users have and at the counts without a cap ({named}); {choice.promise}"
    )
    phases = {look.name: look.charge for look in plan.looks}
    phases["answer"] = answer_charge(plan.rest)
    return replace(
        released, charge=plan.charge, phases=phases, note=note, at_delta=plan.budget.delta
    )


def _plan_of_way(plan: TwoPhasePlan, way: Way | None, histogram: EventCounts) -> TwoPhasePlan:
    """Return the plan of a way, without looks, calibrated to the rest of the budget.

    It is the plan of the usual way where ``way`` is None, where the events were not read under the
    cap of the way, and where one of its mechanisms has no noise for this budget. Which plan it is
    depends on the question, on how the events were read and on what the looks showed, never on the
    counts themselves.

    Args:
        plan: one with looks.
        way: the way that was chosen; None: the usual way.
        histogram: the events; under which caps they were read matters alone.
    """
    assert plan.rest is not None  # noqa: S101 - for the type checker: looks leave a rest
    usual = replace(plan, looks=(), rest=None, budget=plan.rest)
    if way is None or (way.on_capped_counts and way.cap not in histogram.narrow):
        return usual
    try:
        scaled = calibrate_way(
            way, plan.k, plan.rest, finding_sensitivity_of(way), plan.sensitivity
        )
    except InvalidParameter:  # a mechanism has no noise for so small a budget
        return usual
    return usual.in_way(scaled)
