"""Two phases: labels of an unknown domain are found under a cap and counted on all events (notes/two-phases.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE, COUNTS, Counts
from dptopk._internal.formatting import describe_l0, format_upper
from dptopk.accounting.bounds import compose
from dptopk.accounting.calibration import calibrate
from dptopk.accounting.gaussian.pair import gaussian_epsilon, gaussian_mu
from dptopk.accounting.registry import Bound
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter, ReleaseWithheld
from dptopk.histogram.counts import LARGEST_COUNT
from dptopk.histogram.event_counts import EventCounts, finding_sensitivity
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms import Box, GaussianCounts, PartitionSelection, SparseGaussian, WeightedGaussian
from dptopk.mechanisms.base import in_label_order
from dptopk.planning import profile as by_profile
from dptopk.planning.in_rho import plan_in_rho
from dptopk.planning.plan import Phase, Plan, appearing, joined, shown
from dptopk.planning.request import ceil_digits, floor_digits
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator

Find = Literal["auto", "weights", "counts", "threshold", "coins"]
FIND: tuple[Find, ...] = ("auto", "weights", "counts", "threshold", "coins")
# The cap where none was stated, with weights and without; and the part of δ for finding.
CAPS, DELTA = {True: 100, False: 10}, {"weights": 0.5, "threshold": 0.5, "coins": 0.9}
# Up to which k which way finds labels, and its share of μ²: measured on four worlds (docs/notes/events-measured.md).
WAYS: tuple[tuple[float, Find, float], ...] = (
    (12, "weights", 0.15),
    (25, "weights", 0.3),
    (math.inf, "weights", 0.5),
    (10, "threshold", 0.3),
    (25, "threshold", 0.4),
    (math.inf, "coins", 0.3),
)
# What counts them, at one cost for every number of labels; box noise has the least deviation for few.
COUNTING: dict[str, Callable[[float], Any]] = {
    "gaussian": lambda mu: GaussianCounts(mu=mu),
    "box": lambda epsilon: Box(epsilon=epsilon),
}
MOST_BOXED = 30


@dataclass(frozen=True)
class TwoPhasePlan(Plan):
    """A plan that finds labels under a cap on labels per user, and counts them on the data without that cap.

    Made by plan_two_phases; ``release`` takes an EventCounts. The charge of the second phase does not depend on how
    many labels the first one finds, and nothing of it is given back.

    Attributes:
        under: the sensitivity of the histogram on which the labels are found.
        min_users: no label with fewer users is ever found.
        looks: what is looked at first, to choose another way of finding and counting at the same charge; or nothing.
    """

    under: Sensitivity = finding_sensitivity(CAPS[True], 1, weights=True)  # noqa: RUF009 - immutable
    min_users: int = 1
    looks: tuple[Phase, ...] = ()

    @property
    def charge(self) -> Charge:
        """The most that a release of this plan can cost, the looks included."""
        return joined([phase.charge for phase in (*self.looks, *self.phases)])

    @property
    def fixed(self) -> bool:
        """Whether share and way of finding are those of the plan: not where looks choose them."""
        return not self.looks

    @property
    def asked(self) -> list[Any]:
        """As for a Plan, and under what and for how many users labels are found."""
        return [*super().asked, str(self.under), self.min_users]

    @property
    def reading(self) -> dict[str, Any]:
        """The options of ``event_counts`` for the histograms that this plan runs on."""
        return {"labels_per_user": self.under.l0, "weights": self.weights, "profile": bool(self.looks)}

    @property
    def weights(self) -> bool:
        """Whether labels are found by sums of weights."""
        return self.under.l2 is not None

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on a count where k labels are counted; coins may find more, or fewer."""
        return noise_on(self.phases, self.sensitivity, self.k)

    @property
    def threshold(self) -> int | None:
        """The threshold on a noisy count of the capped data for its label to be found; None for coins.

        With weights, of users who have no other label.
        """
        offset = self.mechanisms[0].threshold_offset(self.under)
        return None if offset is None else self._in_users(offset)

    def appears_at(self, probability: float = 0.5) -> int:
        """The count of the capped data at which its label is found with that probability.

        With weights, of users who have no other label.
        """
        return self._in_users(self.mechanisms[0].appears_at(self.under, probability=probability) or 0)

    def _in_users(self, count: int) -> int:
        return -(-(count + self._hidden) // (self.under.l2 or 1))

    @property
    def _hidden(self) -> int:
        """What at most ``min_users`` - 1 users add to a label: it is taken off each count before labels are found."""
        return (self.min_users - 1) * self.under.linf

    def appearing(self, confidence: float = CONFIDENCE) -> str:
        """From which count of the capped data on a label is found, in words."""
        if not self.weights:
            said = f"of the capped counts: {appearing(self.mechanisms[0], self.under, confidence)}"
        else:
            half, sure = (self.appears_at(p) for p in (0.5, confidence))
            said = (
                f"a label is found with probability 1/2 from {half} users on who have no other label, with "
                f"{confidence:g} from {sure}; of users who have d labels it takes √d times as many"
            )
        return said if self.min_users == 1 else f"{said}; never with fewer than {self.min_users} users"

    def check(self, histogram: Histogram) -> None:
        """Refuse what the plan was not made for.

        Raises:
            InvalidParameter: naming what does not fit.
        """
        both = validate.instance(EventCounts, histogram=histogram)
        for mine, theirs in ((self.sensitivity, both.sensitivity), (self.under, both.under_cap.sensitivity)):
            if not mine.covers(theirs):
                raise InvalidParameter(f"histogram has the sensitivity {theirs}, the plan is for {mine}")
        if self.looks and both.profile is None:
            raise InvalidParameter("histogram has no profile of users: read the events with profile=True")
        if self.looks:
            by_profile.ways(self)  # of a budget so small that one of them has no noise: before the looks are charged
        self.mechanisms[0].check(self._findable(both))

    def _findable(self, both: EventCounts) -> Histogram:
        """The histogram that finds labels, less what ``min_users`` - 1 users may add to each count, and at least 0.

        max(count - c, 0) does not turn the order of two counts, and moves by no more than they do: so it is a histogram
        of the same sensitivity. To drop the small counts, and leave the others as they are, would be a jump.
        """
        found = both.under_cap.with_sensitivity(self.under)
        if not self._hidden:
            return found
        hidden = min(self._hidden, LARGEST_COUNT)  # no count is as large
        return found.recounted(np.maximum(found.counts - hidden, 0), self.under)

    def release(
        self,
        histogram: Histogram,
        rng: Generator | None = None,
        *,
        average: bool = True,  # noqa: ARG002
    ) -> Release:
        """Find labels, count all of them without a cap, and show the k largest counts.

        Args:
            histogram: an EventCounts.
            rng: as in Plan.release.
            average: has no effect: how much noise counts have is fixed by how many labels were found.

        Returns:
            Release: at most k labels, perhaps none, with the whole charge of both phases; its error bars are about the
            true counts.

        Raises:
            InvalidParameter: as ``check``; nothing was charged.
        """
        self.check(histogram)
        assert isinstance(histogram, EventCounts)  # noqa: S101 - checked
        if self.looks:
            return by_profile.answer(self, histogram, rng)
        finding, counting = self.mechanisms
        found = finding.release(self._findable(histogram), rng)
        if not finding.open_ended:  # its noisy counts are charged: choosing by them is free
            found = found.top(self.k)
        labels = in_label_order(found.labels)
        counted: Release = counting.release(histogram.with_sensitivity(self.sensitivity), rng, labels=labels)
        charges = {phase.name: phase.charge for phase in self.phases}  # that of counting holds for any number of labels
        if not charges["find"].includes(found.charge):
            raise ReleaseWithheld(charges["find"], found.charge)
        note = "; ".join(filter(None, (self._told(len(labels)), counted.note)))
        return replace(shown(counted, self.k, self.counted), charge=self.charge, phases=charges, note=note)

    def _told(self, found: int) -> str:
        """Describe the cap under which labels were found, and the data on which they were counted."""
        labels = "1 label was" if found == 1 else f"{found} labels were"
        weights = "; of d labels of a user each counted 1/√d to find them" if self.weights else ""
        about = "counts and error bars are about" if self.counted else "their order is that of"
        return (
            f"{labels} found on capped data ({describe_l0(self.under.l0)} of one user), and counted on all data: "
            f"{about} the data without that cap{weights}"
        )

    def explain(self, *, confidence: float = CONFIDENCE) -> str:
        """The plan in words."""
        cost, finding, counting = self.sensitivity.linf, *self.phases
        each = ", each with weight 1/√their number" if self.weights else ""
        return "\n".join(
            [
                f"Top {self.k} of a private domain, in two phases; one user moves each count by at most {cost}.",
                *(f"First a look at {look.name}: {look.mechanism}, costs {look.charge}" for look in self.looks),
                *(
                    ["By the looks another share, or one phase, may be taken, at the same charge."]
                    if self.looks
                    else ()
                ),
                f"1. find labels, on capped data, {describe_l0(self.under.l0)} of one user{each}: {finding.mechanism}",
                f"   costs at most {finding.charge}",
                f"   {self.appearing(confidence)}",
                f"2. count what was found, on all data, any number of labels of one user: {counting.mechanism}",
                f"   costs {counting.charge}, however many labels were found",
                f"   {self.k} labels: noise of standard deviation {self.noise_std:.3g} on each",
                *(() if self.counted else ("The noisy counts choose and order the labels, and are not shown.",)),
                f"Split: {self.split}",
                f"Together: ({format_upper(self.bound.epsilon)}, {self.budget.delta:g})-DP by {self.bound.name}",
                *filter(None, [self.told_in_rho]),
                *(f"Warning: {doubt}" for doubt in self.warnings),
            ]
        )


def plan_two_phases(
    k: int,
    budget: Budget,
    *,
    labels_per_user: int | Literal["auto"] = "auto",
    per_label_cap: int = 1,
    counts: Counts | None = "auto",
    share: float | Literal["auto"] = "auto",
    find: Find = "auto",
    min_users: int = 1,
    users: int | None = None,
    profile: bool = False,
) -> TwoPhasePlan:
    """The plan that finds labels under a cap and counts them without one, for a total (ε, δ) or ρ.

    Args:
        k: how many labels, at least 1.
        budget: the total; δ above 0.
        labels_per_user: the cap Δ under which labels are found; "auto": 100 with weights, 10 without.
        per_label_cap: τ, the most that one user adds to one label; it holds in both phases.
        counts: "gaussian" or "box": the noise on the counts; "auto": the one with the smaller deviation on k counts;
            None: the noisy counts choose and order the labels, and are not shown.
        share: of μ², in (0, 1): what is spent to find labels; "auto": what was best on eight tables, 0.15 to 0.5, the
            more the larger k is.
        find: "weights": noisy sums over a threshold, where a user of d labels counts about 1/√d at each; "threshold":
            noisy counts over a threshold; of both the k largest are counted; "coins": PartitionSelection, of which all
            are counted; "counts": a threshold up to k = 25, coins above; "auto": weights where τ is 1, else counts.
        min_users: no label that fewer users have is ever shown; many labels with more are missed too.
        users: how many users there are, where that is public: a δ above 1/users is warned of.
        profile: where nothing of cap, share and find is stated, counts are shown with Gaussian noise and any number of
            users will do, take the way by two looks with noise: at users by their number of labels, and at the counts
            of a few ranks (docs/notes/two-phases.md). It runs on histograms read with ``profile=True``.

    Returns:
        TwoPhasePlan: the composition of both phases, as a product, is at most budget.epsilon at budget.delta.

    Raises:
        InvalidParameter: on arguments outside their ranges, or a budget that is too small.

    >>> plan = plan_two_phases(30, Budget(1.0, 1e-6))
    >>> print(plan.phases[1].charge, plan.epsilon <= 1)
    GDP(0.156375) True
    """
    k, budget = validate.count(k=k), validate.instance(Budget, budget=budget)
    if not budget.delta:
        raise InvalidParameter("budget.delta must be above 0: hiding which labels exist needs a δ", parameter="delta")
    weights = validate.member(FIND, find=find) == "weights" or (find == "auto" and per_label_cap == 1)
    if weights and per_label_cap != 1:
        raise InvalidParameter("find='weights': users add at most 1 to a label; per_label_cap must be 1")
    cap = CAPS[weights] if labels_per_user == "auto" else validate.count(labels_per_user=labels_per_user)
    share = share if share == "auto" else validate.probability(allow_zero=False, share=share)
    min_users, per_label_cap = validate.count(min_users=min_users), validate.count(per_label_cap=per_label_cap)
    counts = None if counts is None else validate.member(COUNTS, counts=counts)
    if budget.rho is not None:
        told: dict[str, Any] = {"labels_per_user": labels_per_user, "per_label_cap": per_label_cap, "counts": counts}
        told |= {"share": share, "find": find, "min_users": min_users, "users": users, "profile": profile}
        asked = partial(plan_two_phases, k, **told)
        return cast("TwoPhasePlan", plan_in_rho(budget, asked))
    under = finding_sensitivity(cap, per_label_cap, weights=weights)
    everything = Sensitivity(linf=per_label_cap)
    ways = [way for way in WAYS if find in ("auto", "counts", way[1]) and (way[1] == "weights") == weights]
    usual = next((way for way in ways if k <= way[0]), ways[-1])
    unstated = labels_per_user == share == find == "auto" and min_users == 1 and counts not in (None, "none")
    looks = by_profile.looks(budget.epsilon) if profile and weights and unstated else ()
    mu, refusal = gaussian_mu(epsilon=budget.epsilon, delta=budget.delta), None
    for _, how, own in sorted(ways, key=lambda way: way != usual):  # another way where there is no noise or coin for it
        part, made = own if share == "auto" else share, []
        for noise in _noises(counts, how, k):
            try:
                finding = _finding(how, under, math.sqrt(part) * mu, budget.delta)
                looked = looks if (how, noise) == ("weights", "gaussian") else ()
                made.append((looked, noise, *_phases(finding, COUNTING[noise], under, everything, k, budget, looked)))
            except InvalidParameter as error:
                refusal = refusal or error
        if not made:
            continue
        looked, noise, phases, bound = min(made, key=lambda each: noise_on(each[2], everything, k))
        return TwoPhasePlan(
            k=k,
            budget=budget,
            sensitivity=everything,
            domain="private",
            phases=phases,
            bound=bound,
            split=f"{part:.0%} of μ² to find labels, the rest to count them; δ is that of the product of both",
            counted=counts not in (None, "none"),
            design=f"{how} under a cap, then {noise} counts without one",
            users=users,
            under=under,
            min_users=min_users,
            looks=looked,
        )
    raise refusal or InvalidParameter("budget: it is too small for every way of finding labels")


def noise_on(phases: tuple[Phase, ...], sensitivity: Sensitivity, k: int) -> float:
    """Standard deviation of the last phase's noise on each of k counts."""
    return float(phases[-1].mechanism.count_noise(sensitivity, labels=k) or 0.0)


def _noises(counts: Counts | None, how: str, k: int) -> tuple[str, ...]:
    """What noise on the counts is to be compared."""
    if counts in COUNTING:
        if (counts, how) == ("box", "coins"):
            raise InvalidParameter("counts='box': coins find any number of labels; choose another find=")
        return (str(counts),)
    if counts not in ("auto", None, "none"):
        raise InvalidParameter(
            f"counts={counts!r}: two phases count with Gaussian or box noise; for other noise count in one phase, "
            "with count_capped=True"
        )
    return ("gaussian", "box") if how != "coins" and k <= MOST_BOXED else ("gaussian",)


def _phases(
    finding: Any, family: Any, under: Sensitivity, everything: Sensitivity, k: int, budget: Budget, looks: Any
) -> tuple[tuple[Phase, ...], Bound]:
    """Both phases, the second with all that the budget leaves to it, and their composition with the looks."""
    first = finding.charge(under)

    def both(size: float) -> Charge:
        return Charge.join(*(look.charge for look in looks), first, family(size).charge(everything))

    size = calibrate(both, budget)
    while (bound := compose(both(floor_digits(size)), delta=budget.delta, lower=False)).epsilon > budget.epsilon:
        size *= 1 - 1e-3
    counting = family(floor_digits(size))
    counting.charge(everything, labels=k)  # refuses a number that cannot be counted
    return (Phase("find", finding, first), Phase("count", counting, counting.charge(everything))), bound


def _finding(how: str, under: Sensitivity, mu: float, delta: float) -> Any:
    """Return the mechanism that finds labels at about the cost of a Gaussian with this μ."""
    own = DELTA[how] * delta
    if how == "coins":
        return PartitionSelection(epsilon=floor_digits(float(gaussian_epsilon(mu, delta=own)), digits=3), delta=own)
    if how == "weights":
        return WeightedGaussian(sigma=ceil_digits(1 / mu), delta=own)
    return SparseGaussian(sigma=ceil_digits(math.sqrt(under.l0 or 1) / mu), delta=own)
