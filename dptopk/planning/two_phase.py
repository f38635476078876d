"""Two phases: labels of an unknown domain are found under a cap and counted on all events (notes/two-phases.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.formatting import describe_l0, format_upper
from dptopk.accounting.bounds import compose
from dptopk.accounting.calibration import calibrate
from dptopk.accounting.gaussian.pair import gaussian_epsilon, gaussian_mu
from dptopk.accounting.registry import Bound
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter, ReleaseWithheld
from dptopk.histogram.event_counts import EventCounts
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms import GaussianCounts, PartitionSelection, SparseGaussian
from dptopk.mechanisms.joint_selection import in_label_order
from dptopk.planning.plan import Phase, Plan, appearing
from dptopk.planning.request import ceil_digits, floor_digits
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator

Find = Literal["auto", "threshold", "coins"]
FIND: tuple[Find, ...] = ("auto", "threshold", "coins")
# The cap where none was stated, and the part of δ for finding.
CAP, DELTA = 10, {"threshold": 0.5, "coins": 0.9}
# Up to which k which way finds labels, and its share of μ²: measured on four worlds (docs/events.md).
WAYS: tuple[tuple[float, Find, float], ...] = ((10, "threshold", 0.3), (25, "threshold", 0.4), (math.inf, "coins", 0.3))


@dataclass(frozen=True)
class TwoPhasePlan(Plan):
    """A plan that finds labels under a cap on labels per user, and counts them on the data without that cap.

    Made by plan_two_phases; ``release`` takes an EventCounts. The charge of the second phase does not depend on how
    many labels the first one finds, and nothing of it is given back.

    Attributes:
        under: the sensitivity of the capped histogram, on which the labels are found.
    """

    under: Sensitivity = Sensitivity(l0=CAP)  # noqa: RUF009 - immutable

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on a count where k labels are counted; coins may find more, or fewer."""
        return float(self.mechanisms[1].count_noise(self.sensitivity, labels=self.k) or 0.0)

    @property
    def threshold(self) -> int | None:
        """How large a noisy count of the capped data must be for its label to be found; None for coins."""
        return self.mechanisms[0].threshold_offset(self.under)

    def appears_at(self, probability: float = 0.5) -> int:
        """How large a count of the capped data must be for its label to be found with that probability."""
        return int(self.mechanisms[0].appears_at(self.under, probability=probability) or 0)

    def appearing(self, confidence: float = CONFIDENCE) -> str:
        """From which count of the capped data on a label is found, in words."""
        return f"of the capped counts: {appearing(self.mechanisms[0], self.under, confidence)}"

    def check(self, histogram: Histogram) -> None:
        """Refuse what the plan was not made for.

        Raises:
            InvalidParameter: naming what does not fit.
        """
        both = validate.instance(EventCounts, histogram=histogram)
        for mine, theirs in ((self.sensitivity, both.sensitivity), (self.under, both.under_cap.sensitivity)):
            if not mine.covers(theirs):
                raise InvalidParameter(f"histogram has the sensitivity {theirs}, the plan is for {mine}")
        self.mechanisms[0].check(both.under_cap.with_sensitivity(self.under))

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
        finding, counting = self.mechanisms
        found = finding.release(histogram.under_cap.with_sensitivity(self.under), rng)
        if isinstance(finding, SparseGaussian):  # its noisy counts are charged: choosing by them is free
            found = found.top(self.k)
        labels = in_label_order(found.labels)
        counted: Release = counting.release(histogram.with_sensitivity(self.sensitivity), rng, labels=labels)
        charges = {"find": found.charge, "count": counted.charge}
        for phase in self.phases:
            if not phase.charge.includes(charges[phase.name]):
                raise ReleaseWithheld(phase.charge, charges[phase.name])
        note = "; ".join(filter(None, (self._told(len(labels)), counted.note)))
        return replace(counted.top(self.k), charge=self.charge, phases=charges, note=note)

    def _told(self, found: int) -> str:
        """What was found under which cap, and what it was counted on."""
        labels = "1 label was" if found == 1 else f"{found} labels were"
        return (
            f"{labels} found on capped data ({describe_l0(self.under.l0)} of one user), and counted on all data: "
            "counts and error bars are about the data without that cap"
        )

    def explain(self, *, confidence: float = CONFIDENCE) -> str:
        """The plan in words."""
        cost, finding, counting = self.sensitivity.linf, *self.phases
        return "\n".join(
            [
                f"Top {self.k} of a private domain, in two phases; one user moves each count by at most {cost}.",
                f"1. find labels, on capped data, {describe_l0(self.under.l0)} of one user: {finding.mechanism}",
                f"   costs at most {finding.charge}",
                f"   {self.appearing(confidence)}",
                f"2. count what was found, on all data, any number of labels of one user: {counting.mechanism}",
                f"   costs {counting.charge}, however many labels were found",
                f"   {self.k} labels: noise of standard deviation {self.noise_std:.3g} on each",
                f"Split: {self.split}",
                f"Together: ({format_upper(self.bound.epsilon)}, {self.budget.delta:g})-DP by {self.bound.name}",
                *(f"Warning: {doubt}" for doubt in self.warnings),
            ]
        )


def plan_two_phases(
    k: int,
    budget: Budget,
    *,
    labels_per_user: int | Literal["auto"] = "auto",
    per_label_cap: int = 1,
    share: float | Literal["auto"] = "auto",
    find: Find = "auto",
    users: int | None = None,
) -> TwoPhasePlan:
    """The plan that finds labels under a cap and counts them without one, for a total (ε, δ).

    Args:
        k: how many labels, at least 1.
        budget: the total; δ above 0.
        labels_per_user: the cap Δ under which labels are found; "auto": 10.
        per_label_cap: τ, the most that one user adds to one label; it holds in both phases.
        share: of μ², in (0, 1): what is spent to find labels; "auto": 0.3, or 0.4 with a threshold above k = 10.
        find: "threshold": noise on the capped counts over a threshold, of which the k largest are counted; "coins":
            PartitionSelection, of which all are counted; "auto": a threshold up to k = 25, coins above.
        users: how many users there are, where that is public: a δ above 1/users is warned of.

    Returns:
        TwoPhasePlan: the composition of both phases, as a product, is at most budget.epsilon at budget.delta.

    Raises:
        InvalidParameter: on arguments outside their ranges, or a budget that is too small.

    >>> plan = plan_two_phases(10, Budget(1.0, 1e-6))
    >>> print(plan.phases[1].charge, plan.epsilon <= 1)
    GDP(0.190336) True
    """
    k, budget = validate.count(k=k), validate.instance(Budget, budget=budget)
    if budget.rho is not None:
        raise InvalidParameter("budget must be (epsilon, delta): two phases are not planned in rho")
    if not budget.delta:
        raise InvalidParameter(
            "budget.delta must be above 0: hiding which labels exist costs some δ", parameter="delta"
        )
    cap = CAP if labels_per_user == "auto" else validate.count(labels_per_user=labels_per_user)
    under, everything = Sensitivity(linf=per_label_cap, l0=cap), Sensitivity(linf=per_label_cap)
    ways = [way for way in WAYS if validate.member(FIND, find=find) in ("auto", way[1])]
    usual = next((way for way in ways if k <= way[0]), ways[-1])
    share = share if share == "auto" else validate.probability(allow_zero=False, share=share)
    mu, refusal = gaussian_mu(epsilon=budget.epsilon, delta=budget.delta), None
    for _, how, own in sorted(ways, key=lambda way: way != usual):  # another way where there is no noise or coin for it
        part = own if share == "auto" else share
        try:
            phases, bound = _phases(_finding(how, under, math.sqrt(part) * mu, budget.delta), under, everything, budget)
        except InvalidParameter as error:
            refusal = refusal or error
            continue
        return TwoPhasePlan(
            k=k,
            budget=budget,
            sensitivity=everything,
            domain="private",
            phases=phases,
            bound=bound,
            split=f"{part:.0%} of μ² to find labels, the rest to count them; δ is that of the product of both",
            design=f"{how} under a cap, then centred Gaussian counts without one",
            users=users,
            under=under,
        )
    raise refusal or InvalidParameter("budget: no way of finding labels fits it")


def _phases(
    finding: Any, under: Sensitivity, everything: Sensitivity, budget: Budget
) -> tuple[tuple[Phase, ...], Bound]:
    """Both phases, the second with all that the budget leaves to it, and their composition."""
    first = finding.charge(under)

    def both(mu: float) -> Charge:
        return Charge.join(first, GaussianCounts(mu=mu).charge(everything))

    mu = calibrate(both, budget)
    while (bound := compose(both(floor_digits(mu)), delta=budget.delta, lower=False)).epsilon > budget.epsilon:
        mu *= 1 - 1e-3
    counting = GaussianCounts(mu=floor_digits(mu))
    return (Phase("find", finding, first), Phase("count", counting, counting.charge(everything))), bound


def _finding(how: str, under: Sensitivity, mu: float, delta: float) -> Any:
    """What finds labels at about the cost of a Gaussian of this μ."""
    own = DELTA[how] * delta
    if how == "coins":
        return PartitionSelection(epsilon=floor_digits(float(gaussian_epsilon(mu, delta=own)), digits=3), delta=own)
    return SparseGaussian(sigma=ceil_digits(math.sqrt(under.l0 or 1) / mu), delta=own)
