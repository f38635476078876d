"""The same question of each of several disjoint segments, charged together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from dptopk._internal.search import bisect
from dptopk.accounting.bounds import compose
from dptopk.accounting.registry import Bound
from dptopk.budgets.parallel import segments_charge
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.planning.choose import plan
from dptopk.planning.protocol import Plan, Step
from dptopk.planning.topk_plan import TopKPlan
from dptopk.question import Facts, Question
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator

P = TypeVar("P", bound=Plan)
P_co = TypeVar("P_co", bound=Plan, covariant=True)
# Where a user is in several segments, the ε of each segment is found by this number of halvings of
# the interval from an equal share of the total ε to the total ε: to 2^-5 of that interval, about 3%
# of the total. Chosen by hand: each halving makes a plan, which may take seconds.
HALVINGS = 5


@dataclass(frozen=True)
class PerSegment(Generic[P_co]):
    """A plan for each segment, of which one user is in at most ``per_user``.

    Attributes:
        plans: segment -> plan, in the order of the public list.
        per_user: s, in how many segments one user counts at most.
    """

    plans: Mapping[Any, P_co]
    per_user: int

    @property
    def charge(self) -> Charge:
        """Return the most that all answers together cost one user, who is in ``per_user`` of the
        segments: with one, the charge that covers the plan of any segment.
        """
        charges = [design.charge for design in self.plans.values()]
        return segments_charge(charges, segments_per_user=self.per_user)

    @property
    def stated(self) -> Budget | None:
        """Return the (ε, δ) that the plan of one segment states, where all of them together cost
        that; otherwise None.
        """
        together = self.charge
        if all(design.charge == together for design in self.plans.values()):
            return self.each.stated
        return None

    @property
    def each(self) -> P_co:
        """Return the plan of the first segment; it is that of each segment where their public facts
        are the same.
        """
        return next(iter(self.plans.values()))

    @property
    def text(self) -> str:
        """Return in words the mechanisms, and on how many segments they run."""
        segments = f"{len(self.plans)} segments, a user in at most {self.per_user}"
        return f"{self.each.text} in each of {segments}"

    def check(self, data: Mapping[Any, Histogram]) -> None:
        """Refuse segments that the plans were not made for; nothing is drawn.

        Args:
            data: segment -> its histogram.

        Raises:
            InvalidParameter: naming what does not fit.
        """
        for name, design in self.plans.items():
            design.check(data[name])

    def draw(
        self, data: Mapping[Any, Histogram], rng: Generator | None, *, average: bool = False
    ) -> dict[Any, Release]:
        """Draw the answer of each segment, and return them by name; call this when the charge has
        been paid.

        Args:
            data: segment -> its histogram.
            rng: None for secure noise.
            average: as in ``Plan.release``.
        """
        return {
            name: Step(design, data[name], average=average).draw(rng)
            for name, design in self.plans.items()
        }

    def joint_release(self, answers: Mapping[Any, Release], sensitivity: Sensitivity) -> Release:
        """Return the answers of all segments as one release with the charge of all, for a ledger's
        record; rows are labelled (segment, label).

        Args:
            answers: segment -> its answer.
            sensitivity: that of the data set.
        """
        labels = [(name, label) for name, answer in answers.items() for label in answer.labels]
        counts = [answer.counts for answer in answers.values() if answer.counts is not None]
        return Release(
            labels=tuple(labels),
            counts=np.concatenate(counts) if counts else None,
            charge=self.charge,
            mechanism=self.each.text,
            sensitivity=sensitivity,
            seeded=any(answer.seeded for answer in answers.values()),
            note="rows of all segments, labelled (segment, label)",
        )


def same_for_segments(each: P, names: Sequence[Any], per_user: int) -> PerSegment[P]:
    """Return the same plan for each of several segments with the same public facts.

    Args:
        each: the plan of one segment.
        names: the segments.
        per_user: in how many segments one user counts at most.
    """
    return PerSegment(dict.fromkeys(names, each), per_user)


def plans_within_total(
    question: Question, facts: Facts, names: Sequence[str], per_user: int
) -> PerSegment[TopKPlan]:
    """Return the plans of all segments whose answers cost one user together at most the total of
    the question.

    Where a user is in one segment, each segment has the whole total. Otherwise each has δ divided
    by ``per_user``, and the largest ε of a few that were tried.

    Args:
        question: the question that each segment is asked, with the total of all.
        facts: what is public about each segment.
        names: the segments.
        per_user: in how many segments one user counts at most.

    Raises:
        InvalidParameter: as ``plan``; for a total in ρ where a user is in several segments.
    """
    if per_user == 1:
        return same_for_segments(plan(question, facts), names, 1)
    total = question.budget
    if total.rho is not None:
        raise InvalidParameter(
            "rho must be left out unless a user is in one segment (segments_per_user=1); give "
            "epsilon"
        )

    @cache
    def plans_for(epsilon: float) -> PerSegment[TopKPlan]:
        """Return the plans of all segments with this ε for each."""
        question_of_each = question.with_total(Budget(epsilon, total.delta / per_user))
        return same_for_segments(plan(question_of_each, facts), names, per_user)

    def fits(epsilon: float) -> bool:
        """Return whether the plans together are within the total."""
        return bound_together(plans_for(epsilon), total.delta).epsilon <= total.epsilon

    # By basic composition the first ε fits.
    largest, _ = bisect(fits, total.epsilon / per_user, total.epsilon, halvings=HALVINGS)
    return plans_for(largest)


def bound_together(plans: PerSegment[TopKPlan], delta: float) -> Bound:
    """Return the guarantee of all segments together, an upper bound, where each has the same plan.

    Args:
        plans: as ``same_for_segments`` returns them.
        delta: the δ of the guarantee where a user is in several segments. Where a user is in one,
            the guarantee is that of its plan, with the δ of that.
    """
    if plans.per_user == 1:
        return plans.each.bound
    return compose(plans.charge, delta=delta)
