"""Ways to find the top k of events: how labels are found, selected and counted.

Labels of a private domain are found on all events (no cap), or on sums of weights or on counts
under a cap on the labels of one user. Which labels were found is released, so they are a public
domain from then on. k of them are selected by their counts without a cap, and counted; or all of
them are counted without a cap, and the k largest noisy counts are shown. So the answer tends to the
true top k as the budget grows, whatever the users' numbers of labels (docs/notes/two-phases.md).

A budget (ε, δ) is divided in μ²: the Gaussian mechanism with the parameter μ (its shift over its
standard deviation) costs nearly what many mechanisms together cost, and the μ² of phases add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from dptopk._internal.box_tails import box_std
from dptopk._internal.choices import Finder
from dptopk._internal.rounding import Floats, ceil_digits, floor_digits
from dptopk.accounting.bounds import compose
from dptopk.accounting.calibration import calibrate
from dptopk.accounting.gaussian.pair import gaussian_epsilon, gaussian_mu
from dptopk.accounting.registry import Bound
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms import (
    Box,
    GaussianCounts,
    KnownGumbel,
    PartitionSelection,
    SparseGaussian,
    UnknownGumbel,
    WeightedGaussian,
)
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.planning.topk_plan import Phase, joint_charge

Counting = Literal["gaussian", "box", "capped"]
# The part of δ with which labels are found; the composition gets the rest. They were chosen by
# hand; thresholds and compositions depend on δ by about the root of its logarithm, so that other
# parts change little.
FINDING_DELTA: dict[Finder, float] = {
    "uncapped": 0.5,
    "weights": 0.5,
    "threshold": 0.5,
    "coins": 0.7,
}
# A selection takes part in the composition as a bounded range of ε, whose ρ is about ε²/8: that of
# a Gaussian with μ = ε/2.
RANGE_OF_MU = 2.0
# A μ or ε whose composition is above the budget, by the tolerance of its search, becomes smaller by
# this share until it is not.
STEP_DOWN = 1e-3
# An ε of pure noise is found to the share 2^-22 of the budget's: far more exact than the estimate
# that it is.
BISECTIONS = 22


def _gaussian_noise(size: float) -> GaussianCounts:
    """Return centred Gaussian noise on counts with this μ."""
    return GaussianCounts(mu=size)


def _box_noise(size: float) -> Box:
    """Return box noise on counts with this ε."""
    return Box(epsilon=size)


# The kinds of noise that count any number of labels at one cost, made from their μ or ε.
COUNTING: dict[Literal["gaussian", "box"], Callable[[float], GaussianCounts | Box]] = {
    "gaussian": _gaussian_noise,
    "box": _box_noise,
}


@dataclass(frozen=True)
class Way:
    """A way to find, select and count labels, and the division of a budget that belongs to it.

    Attributes:
        find: "uncapped": by noisy selections from all counts over a noisy floor; "weights": by
            noisy sums of weights; "threshold": by noisy capped counts; "coins": by a coin for each
            capped count.
        share: of μ², the part for finding and selecting, in (0, 1]; the rest is for counting.
        selecting: the part of that share for the k selections from what was found, in [0, 1). 0,
            under a cap alone, and where all events are counted: all that was found is counted, and
            the k largest noisy counts are shown. Without a cap finding is selecting, and the number
            has no effect.
        counting: the noise on the counts of all events; "capped": the noisy capped counts by which
            labels were found are shown, with nothing left to count again; None where no counts are
            shown.
        cap: the number of labels of a user that take part in finding; None without a cap.
        floor: without a cap, how many of the largest counts take part: the noisy floor, which a
            label must exceed to be found, is made from the next count; 0 under a cap.

    Raises:
        InvalidParameter: for an unknown ``find``, and a ``selecting`` of 0 where selections are
            needed.
    """

    find: Finder
    share: float
    selecting: float
    counting: Counting | None
    cap: int | None = None
    floor: int = 0

    def __post_init__(self) -> None:
        if self.find not in FINDING_DELTA:
            raise unknown_finder(self.find)
        counts_all_found = self.find != "uncapped" and self.counting in COUNTING
        if self.selecting == 0 and not counts_all_found:
            raise InvalidParameter(
                "selecting must be above 0 unless all that was found under a cap is counted"
            )

    @property
    def on_capped_counts(self) -> bool:
        """Return whether labels are found by counts under the cap, not by weights or without a
        cap.
        """
        return self.find not in ("weights", "uncapped")

    @property
    def counts_all(self) -> bool:
        """Return whether all labels that were found are counted, whatever their number."""
        return self.selecting == 0 and self.counting in COUNTING

    @property
    def words(self) -> str:
        """Return the way in words, as the ``design`` of a plan: what finds labels, what selects
        among them, and what is counted.
        """
        if self.counting is None:
            after_selection = ""
        elif self.counting == "capped":
            after_selection = " and by the counts under that cap, which are shown"
        else:
            after_selection = f", then {self.counting} counts of what was selected"
        if self.find == "uncapped":
            return f"selections from the {self.floor} largest counts of all events{after_selection}"
        found = f"{self.find} under a cap of {self.cap} labels"
        if self.counts_all:
            return f"{found}, then {self.counting} counts of all that was found"
        return f"{found}, then selections by uncapped counts{after_selection}"


@dataclass(frozen=True)
class CalibratedWay:
    """A way whose mechanisms are scaled to a budget.

    Attributes:
        way: the way that the phases take.
        phases: what runs, in this order: "find", perhaps "select", perhaps "count".
        under: the sensitivity of the histogram on which labels are found.
        bound: the composition of the phases, at most the budget's ε at its δ.
    """

    way: Way
    phases: tuple[Phase, ...]
    under: Sensitivity
    bound: Bound


def calibrate_way(
    way: Way, k: int, budget: Budget, under: Sensitivity, everything: Sensitivity
) -> CalibratedWay:
    """Return a way whose mechanisms are scaled to a budget.

    All phases but one get their sizes (a μ or an ε) from the closed form of the division; the size
    of the remaining one is searched so that all together spend the budget.

    Args:
        way: the way whose mechanisms are scaled.
        k: how many labels are asked for.
        budget: (ε, δ), δ above 0.
        under: the sensitivity of the histogram on which labels are found.
        everything: the sensitivity of all events.

    Returns:
        CalibratedWay: the product of its phases is at most the budget, by ``compose``.

    Raises:
        InvalidParameter: for a budget in which one of the mechanisms has no noise, and a
            sensitivity under which one of them cannot run.
    """
    delta = FINDING_DELTA[way.find] * budget.delta
    mu = whole_mu(budget, way.find) * math.sqrt(way.share)
    factory = _PhaseFactory(way, k, delta, under, everything, mu)
    if way.counting == "capped":
        phases, bound = factory.phases_that_show_capped_counts(budget)
    elif way.counting is None:
        phases, bound = factory.phases_without_counts(budget)
    else:
        phases, bound = factory.phases_that_count_again(budget)
    found_under = everything if way.find == "uncapped" else under
    return CalibratedWay(way, phases, found_under, bound)


@dataclass(frozen=True)
class _PhaseFactory:
    """What makes the phases of a way, given their sizes.

    Attributes:
        way: the way that the phases take.
        k: how many labels are asked for.
        delta: the part of δ with which labels are found.
        under: the sensitivity of the histogram on which labels are found.
        everything: the sensitivity of all events.
        mu: the μ of a Gaussian at the cost of finding and selecting.
    """

    way: Way
    k: int
    delta: float
    under: Sensitivity
    everything: Sensitivity
    mu: float

    @property
    def selection_epsilon(self) -> float:
        """Return about the ε of one of the k selections, by the closed form of the division."""
        if self.way.find == "uncapped":  # finding is selecting, and has all of μ
            return RANGE_OF_MU * self.mu / math.sqrt(self.k)
        return RANGE_OF_MU * self.mu * math.sqrt(self.way.selecting / self.k)

    @cached_property
    def finding_phases(self) -> tuple[Phase, ...]:
        """Return the phase that finds labels before they are selected, as a tuple; an empty one
        without a cap, where the selections find them.
        """
        if self.way.find == "uncapped":
            return ()
        mu = self.mu * math.sqrt(1 - self.way.selecting)
        mechanism = _mechanism_that_finds(self.way, mu, self.delta, self.under)
        return (Phase("find", mechanism, mechanism.charge(self.under)),)

    def selection_phase(self, epsilon: float) -> Phase:
        """Return the phase of the k selections on all events, each with this ε; without a cap it
        is the phase that finds the labels.
        """
        if self.way.find == "uncapped":
            floor = self.way.floor
            finder = UnknownGumbel(k=self.k, d_bar=floor, epsilon=epsilon, delta=self.delta)
            return Phase("find", finder, finder.charge(self.everything))
        selector = KnownGumbel(k=self.k, epsilon=epsilon)
        return Phase("select", selector, selector.charge(self.everything))

    def capped_counts_phase(self, size: float) -> Phase:
        """Return the phase of the noisy capped counts, which find labels and are shown; ``size`` is
        μ for one count.
        """
        finder = SparseGaussian(sigma=ceil_digits(1 / size), delta=self.delta)
        return Phase("find", finder, finder.charge(self.under))

    def counting_phase(self, size: float) -> Phase:
        """Return the phase of the counts of what was selected, on all events; ``size`` is the μ or
        ε of the noise.
        """
        assert self.way.counting in COUNTING  # noqa: S101 - for the type checker
        counter = COUNTING[self.way.counting](size)
        return Phase("count", counter, counter.charge(self.everything))

    def phases_that_show_capped_counts(self, budget: Budget) -> tuple[tuple[Phase, ...], Bound]:
        """Return the phases of a way that shows the capped counts by which labels are found, within
        a budget, and their composition. Searched is the μ of the noise on these counts.
        """
        moved = self.under.l0 or 1  # for the type checker: under a cap l0 is finite
        mu_of_one_count = self.mu * math.sqrt((1 - self.way.selecting) / moved)
        selections = self.selection_phase(floor_digits(self.selection_epsilon))
        phases, bound = _phases_within_budget(
            (selections,), self.capped_counts_phase, budget, mu_of_one_count
        )
        return phases[::-1], bound  # labels are found first, by the phase that is scaled last

    def phases_without_counts(self, budget: Budget) -> tuple[tuple[Phase, ...], Bound]:
        """Return the phases of a way that shows labels alone, within a budget, and their
        composition. Searched is the ε of each selection.
        """
        return _phases_within_budget(
            self.finding_phases, self.selection_phase, budget, self.selection_epsilon
        )

    def phases_that_count_again(self, budget: Budget) -> tuple[tuple[Phase, ...], Bound]:
        """Return the phases of a way that counts on all events, within a budget, and their
        composition. Searched is the μ or ε of the noise on these counts.
        """
        fixed = self.finding_phases
        if not self.way.counts_all:
            fixed = (*fixed, self.selection_phase(floor_digits(self.selection_epsilon)))
        size = size_of_counts(self.way, budget)
        phases, bound = _phases_within_budget(fixed, self.counting_phase, budget, size)
        counting = phases[-1].mechanism
        counting.charge(self.everything, labels=self.k)  # refuses a sensitivity it cannot count
        return phases, bound


@lru_cache(maxsize=64)
def whole_mu(budget: Budget, find: Finder) -> float:
    """Return the μ of the one Gaussian that a budget allows beside the part of δ with which labels
    are found: what the phases of a way divide, in μ².

    Args:
        budget: (ε, δ) of all phases.
        find: how labels are found, on which that part of δ depends.
    """
    delta = (1 - FINDING_DELTA[find]) * budget.delta
    return gaussian_mu(epsilon=budget.epsilon, delta=delta)


def size_of_counts(way: Way, budget: Budget) -> float:
    """Return about the μ of the Gaussian noise, or the ε of the box noise, that a way leaves for
    the counts of all events, at least 0: an estimate by closed forms.

    Args:
        way: one that counts the labels again.
        budget: (ε, δ) of all phases.
    """
    whole = whole_mu(budget, way.find)
    if way.counting == "box":
        return _pure_epsilon_beside(budget, whole * math.sqrt(way.share), FINDING_DELTA[way.find])
    return whole * math.sqrt(1 - way.share)


def deviation(way: Way, k: int, budget: Budget, linf: int = 1) -> float:
    """Return about the standard deviation of the noise on each of k counts, by closed forms; 0
    where none are shown, inf where the budget leaves nothing for counts.

    Args:
        way: the way in which they are counted.
        k: how many labels are counted.
        budget: (ε, δ) of all phases.
        linf: the most that one user adds to one label.
    """
    if way.counting is None:
        return 0.0
    if way.counting == "capped":
        # Gaussian noise for as many counts as the cap, from all of μ² that is not for selecting.
        whole = whole_mu(budget, way.find)
        cap = way.cap or 1  # for the type checker: the way has a cap
        return math.sqrt(cap) * linf / (whole * math.sqrt(1 - way.selecting))
    size = size_of_counts(way, budget)
    if not size > 0:
        return math.inf
    if way.counting == "box":
        return box_std(k + 1, size, linf)  # the law of the side has the power k + 1
    return (math.sqrt(k) + 1) / 2 * linf / size  # centred noise, as in ``deviation_ratio``


def deviation_ratio(way: Way, number: Floats, k: int) -> Floats:
    """Return about the standard deviation of the noise on ``number`` counts over that on k counts
    of the same cost.

    Centred Gaussian noise on n counts has a deviation of about (√n + 1)/2 for a μ of 1, box noise
    of about the root of (n + 2)(n + 3)/6 for an ε of 1. Noise on capped counts is the same for any
    number.

    Args:
        way: the way in which they are counted.
        number: how many labels are counted: a number, or an array of any shape.
        k: how many labels are asked for.

    Returns:
        The ratio, of the type and shape of ``number``.
    """
    if way.counting == "box":
        of_number = np.sqrt((number + 2) * (number + 3))
        return of_number / math.sqrt((k + 2) * (k + 3))
    if way.counting == "gaussian":
        return (np.sqrt(number) + 1) / (math.sqrt(k) + 1)
    return np.ones_like(number)


@lru_cache(maxsize=128)
def _pure_epsilon_beside(budget: Budget, mu: float, finding_share: float) -> float:
    """Return about the ε of pure noise (x-DP for an x) that the budget allows beside a Gaussian: a
    start for the search, and for predictions; 0 where none fits.

    The worst x-DP mechanism is randomised response, with the losses ±x of probabilities
    1/(1 + e^∓x). So the δ of both together at an ε is a mean of the Gaussian's δ at ε - x and at
    ε + x.

    Args:
        budget: (ε, δ) of both, and of finding labels.
        mu: the μ of the Gaussian.
        finding_share: the part of δ with which labels are found.
    """
    from scipy.special import expit, log_ndtr, ndtr

    def gaussian_delta(epsilon: float) -> float:
        """Return the δ of the Gaussian at an ε (Balle-Wang 2018, Theorem 8)."""
        above = float(ndtr(mu / 2 - epsilon / mu))
        return above - math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))

    low = 0.0
    high = budget.epsilon
    for _ in range(BISECTIONS):
        pure = (low + high) / 2
        chance_of_loss = float(expit(pure))  # 1/(1 + e^-x)
        after_loss = gaussian_delta(budget.epsilon - pure)
        after_gain = gaussian_delta(budget.epsilon + pure)
        delta = chance_of_loss * after_loss + (1 - chance_of_loss) * after_gain
        if delta <= (1 - finding_share) * budget.delta:
            low = pure
        else:
            high = pure
    return low


def _phases_within_budget(
    fixed: tuple[Phase, ...], last: Callable[[float], Phase], budget: Budget, size: float
) -> tuple[tuple[Phase, ...], Bound]:
    """Return the fixed phases with a last one of the largest size found that the budget allows, and
    the composition of all, an upper bound that is at most the budget.

    Args:
        fixed: the phases whose sizes are given.
        last: makes the last phase from its size, a μ or ε: the larger, the less noise.
        budget: (ε, δ) of all phases.
        size: the size where the search starts; 0: anywhere.

    Raises:
        InvalidParameter: where no size is within the budget.
    """

    def charge_of_all(size: float) -> Charge:
        """Return the charge of all phases, the last one with this size."""
        return joint_charge([phase.charge for phase in (*fixed, last(size))])

    size = floor_digits(calibrate(charge_of_all, budget, start=size or None))
    bound = compose(charge_of_all(size), delta=budget.delta, lower=False)
    # ``calibrate`` accepts by bounds of its own tolerance; this one may be a little above them.
    while bound.epsilon > budget.epsilon:
        size = floor_digits(size * (1 - STEP_DOWN))
        bound = compose(charge_of_all(size), delta=budget.delta, lower=False)
    return (*fixed, last(size)), bound


def _mechanism_that_finds(way: Way, mu: float, delta: float, under: Sensitivity) -> Mechanism:
    """Return the mechanism that finds labels at about the cost of a Gaussian with this μ.

    Args:
        way: its ``find`` is "coins", "weights" or "threshold".
        mu: the μ of that Gaussian; above 0.
        delta: the part of δ with which labels are found.
        under: the sensitivity of the histogram on which labels are found.

    Raises:
        InvalidParameter: when ``mu`` is 0, and for every other ``find``.
    """
    if not mu > 0:
        raise InvalidParameter("budget: it leaves nothing to find labels with")
    if way.find == "coins":
        # Any smaller ε is sound; with three digits ways that are close share their coins.
        epsilon = floor_digits(float(gaussian_epsilon(mu, delta=delta)), digits=3)
        return PartitionSelection(epsilon=epsilon, delta=delta)
    if way.find == "weights":
        return WeightedGaussian(sigma=ceil_digits(1 / mu), delta=delta)
    if way.find == "threshold":
        moved = under.l0 or 1  # for the type checker: under a cap l0 is finite
        return SparseGaussian(sigma=ceil_digits(math.sqrt(moved) / mu), delta=delta)
    raise unknown_finder(way.find)


def unknown_finder(find: str) -> InvalidParameter:
    """Return the refusal of a ``find`` for which a function has no branch."""
    return InvalidParameter(f"find: no labels are found by {find!r} here", parameter="find")
