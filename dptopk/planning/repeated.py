"""The same question many times: the plan whose answers together cost least, at the accuracy of the
plan that is best for one answer.

One answer is best by noise whose loss is nearly bounded (Laplace, box); many answers add up to less
by Gaussian noise of the same width.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from dptopk._internal import validate
from dptopk._internal.choices import Counts
from dptopk.accounting.bounds import compose
from dptopk.accounting.registry import Bound
from dptopk.errors import InvalidParameter
from dptopk.planning.topk_plan import TopKPlan

P = TypeVar("P", bound=TopKPlan)
FAMILIES: tuple[Counts, ...] = ("gaussian", "laplace", "box")


@dataclass(frozen=True)
class RepeatedPlan(Generic[P]):
    """A plan for a number of answers to one question.

    Attributes:
        plan: the plan of each answer.
        times: how many answers.
        total: the composition of all answers, an upper bound.
        single: the plan that would be taken for one answer.
        single_total: the composition of as many answers of that plan, an upper bound.
    """

    plan: P
    times: int
    total: Bound
    single: P
    single_total: Bound

    def __str__(self) -> str:
        """Both totals in words."""
        delta = self.total.delta
        words = f"{self.times} answers cost at most ({self.total.epsilon:.4g}, {delta:g}) together"
        if self.plan is self.single:
            return words
        asked = f"epsilon={self.plan.epsilon:.4g} and this noise for each answer"
        return (
            f"{words}, by {self.plan.design} ({asked}); with the plan that is best for one answer, "
            f"of the same width of noise, {self.single_total.epsilon:.4g}"
        )


def least_total(
    single: P,
    same: Callable[[Counts, float], P] | None,
    times: int,
    delta: float,
) -> RepeatedPlan[P]:
    """The plan with the least total among that of one answer and those of ``same``.

    Args:
        single: the plan of one answer.
        same: from a family of noise and a half-width, the plan of the least ε for it; None: only
            the plan of one answer is possible.
        times: how many answers, at least 1.
        delta: the δ at which all answers together are stated, in (0, 1).
    """
    times = validate.count(times=times)
    found = [single]
    width = single.preview().half_width
    if times > 1 and width is not None and same is not None:
        for family in FAMILIES:
            with suppress(InvalidParameter):
                found.append(same(family, float(width)))
    totals = [compose(each.charge.times(times), delta=delta, lower=False) for each in found]
    best = min(range(len(found)), key=lambda place: totals[place].epsilon)
    return RepeatedPlan(found[best], times, totals[best], single, totals[0])
