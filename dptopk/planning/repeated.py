"""The same question many times: the plan whose answers together cost least, at the ε of one answer
or at the accuracy of the plan that is best for one answer.

One answer is best by noise whose loss is nearly bounded (Laplace, box); many answers add up to less
by Gaussian noise of the same width.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeVar

from dptopk._internal import validate
from dptopk._internal.formatting import format_upper
from dptopk.accounting.bounds import compose
from dptopk.accounting.registry import Bound
from dptopk.errors import InvalidParameter
from dptopk.planning.topk_plan import TopKPlan

P = TypeVar("P", bound=TopKPlan)
Family = Literal["gaussian", "laplace", "box"]
FAMILIES: tuple[Family, ...] = ("gaussian", "laplace", "box")
# At the ε of the question other noise may be wider by at most this share than that of one answer;
# noise that is wider still is compared at the same width.
WIDER = 0.5
ONE_ANSWER = "the noise that is best for one answer"


@dataclass(frozen=True)
class Offer(Generic[P]):
    """A kind of noise for all answers.

    Attributes:
        noise: its kind, in words.
        plan: the plan of each answer.
        total: the composition of all answers, an upper bound.
        accuracy: the half-width that each answer was planned for; None: it has the total
            of the question.
    """

    noise: str
    plan: P
    total: Bound
    accuracy: float | None = None

    def __str__(self) -> str:
        """The total, and what each answer is, in words."""
        width = self.plan.preview().half_width
        if width is None:
            each = f"ε = {self.plan.epsilon:.4g}"
        else:
            each = f"ε = {self.plan.epsilon:.4g}, ±{width:.4g}"
        total = f"({format_upper(self.total.epsilon, 4)}, {self.total.delta:g})"
        return f"{self.noise}: {total} in all, {each} each"


@dataclass(frozen=True)
class RepeatedPlan(Generic[P]):
    """A plan for a number of answers to one question.

    Attributes:
        plan: the plan of each answer.
        times: how many answers.
        total: the composition of all answers, an upper bound.
        single: the plan that would be taken for one answer.
        single_total: the composition of as many answers of that plan, an upper bound.
        offers: what was compared, from the least total on.
    """

    plan: P
    times: int
    total: Bound
    single: P
    single_total: Bound
    offers: tuple[Offer[P], ...] = ()

    def lines(self) -> list[str]:
        """Return what all answers cost with each kind of noise, from the least on, in words."""
        return [f"{self.times} answers with {offer}" for offer in self.offers]

    def to_dict(self) -> dict[str, object]:
        """Return what all answers cost with each kind of noise, JSON-safe."""
        offers = [
            {
                "noise": offer.noise,
                "epsilon": offer.plan.epsilon,
                "half_width": offer.plan.preview().half_width,
                "total_epsilon": offer.total.epsilon,
            }
            for offer in self.offers
        ]
        return {"times": self.times, "total_delta": self.total.delta, "noises": offers}

    def __str__(self) -> str:
        """Both totals in words."""
        delta = self.total.delta
        words = f"{self.times} answers cost at most ({self.total.epsilon:.4g}, {delta:g}) together"
        if self.plan is self.single:
            return words
        terms = f"epsilon={self.plan.epsilon:.4g} and this noise for each answer"
        return (
            f"{words}, by {self.plan.design} ({terms}); with the plan that is best for one answer "
            f"{self.single_total.epsilon:.4g}"
        )


def least_total(
    single: P,
    same: Callable[[Family, float | None], P] | None,
    times: int,
    delta: float,
) -> RepeatedPlan[P]:
    """Return the plan with the least total among that of one answer and those of ``same``.

    Args:
        single: the plan of one answer.
        same: from a family of noise and a half-width, the plan of the least ε for it, and from a
            family and None, the plan at the total that was asked for; None: only the plan of one
            answer is possible.
        times: how many answers, at least 1.
        delta: the δ at which all answers together are stated, in (0, 1).
    """
    times = validate.count(times=times)

    def offered(noise: str, plan: P, accuracy: float | None = None) -> Offer[P]:
        """Return a plan with the total of all answers by it."""
        total = compose(plan.charge.times(times), delta=delta, lower=False)
        return Offer(noise, plan, total, accuracy)

    offers = [offered(ONE_ANSWER, single)]
    width = single.preview().half_width
    if times > 1 and width is not None and same is not None:
        for family in FAMILIES:
            with suppress(InvalidParameter):
                plan, accuracy = _as_accurate(partial(same, family), float(width))
                offers.append(offered(f"{family} noise", plan, accuracy))
    usual = offers[0].total
    offers.sort(key=lambda offer: offer.total.epsilon)
    best = offers[0]
    return RepeatedPlan(best.plan, times, best.total, single, usual, tuple(offers))


def _as_accurate(same: Callable[[float | None], P], width: float) -> tuple[P, float | None]:
    """Return the plan of a family of noise at the total that was asked for, where its noise is not
    much wider than ``width``; else the plan of the least ε with noise of that width, and the width.
    """
    stated = same(None)
    wide = stated.preview().half_width
    if wide is not None and wide <= (1 + WIDER) * width:
        return stated, None
    return same(width), width
