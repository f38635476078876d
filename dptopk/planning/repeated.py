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
# At the ε of the question other noise may be wider than that of one answer by at most this share of
# it; noise that is wider still is compared at the same width. Chosen by hand: how much wider a user
# would accept for a smaller total is no matter of measurement.
WIDER = 0.5
ONE_ANSWER = "the noise that is best for one answer"


@dataclass(frozen=True)
class Offer(Generic[P]):
    """A kind of noise for all answers, with what they cost together.

    Attributes:
        noise: the kind of noise, in words.
        plan: the plan of each answer.
        total: the composition of all answers, an upper bound.
        accuracy: the 95% half-width of the noise on a count that each answer was planned for; None:
            each answer was planned for the total (ε, δ) of the question.
    """

    noise: str
    plan: P
    total: Bound
    accuracy: float | None = None

    def __str__(self) -> str:
        """Return the total, and what each answer is, in words."""
        width = self.plan.preview().half_width
        if width is None:
            answer = f"ε = {self.plan.epsilon:.4g}"
        else:
            answer = f"ε = {self.plan.epsilon:.4g}, ±{width:.4g}"
        total = f"({format_upper(self.total.epsilon, 4)}, {format_upper(self.total.delta)})"
        return f"{self.noise}: {total} in all, {answer} each"


@dataclass(frozen=True)
class RepeatedPlan(Generic[P]):
    """A plan for a number of answers to one question.

    Attributes:
        plan: the plan of each answer.
        times: how many answers there are.
        total: the composition of all answers, an upper bound.
        single: the plan that would be taken for one answer.
        single_total: the composition of as many answers of that plan, an upper bound.
        offers: the kinds of noise that were compared, from the least total on.
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
        """Return what all answers cost with each kind of noise, as plain values for JSON."""
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
        """Return the total of the plan in words, and that of the plan for one answer where it is
        another.
        """
        epsilon = format_upper(self.total.epsilon, 4)
        delta = format_upper(self.total.delta)
        words = f"{self.times} answers cost at most ({epsilon}, {delta}) together"
        if self.plan is self.single:
            return words
        terms = f"epsilon={self.plan.epsilon:.4g} and this noise for each answer"
        return (
            f"{words}, by {self.plan.design} ({terms}); with the plan that is best for one answer "
            f"{format_upper(self.single_total.epsilon, 4)}"
        )


def least_total(
    single: P,
    plan_with_noise: Callable[[Family, float | None], P] | None,
    times: int,
    delta: float,
) -> RepeatedPlan[P]:
    """Return the plan with the least total: that of one answer, or one with a family of noise.

    Args:
        single: the plan that is best for one answer.
        plan_with_noise: the function from a family of noise and a half-width to the plan of the
            least ε with noise of that width, and from a family and None to the plan at the total
            that was asked for; None: no other plan than ``single`` is possible.
        times: how many answers, at least 1.
        delta: the δ at which all answers together are stated, in [0, 1); 0 where all costs are
            pure.

    Raises:
        InvalidParameter: for arguments out of their ranges.
    """
    times = validate.count(times=times)

    def offer_of(noise: str, plan: P, accuracy: float | None = None) -> Offer[P]:
        """Return the offer of a plan for each answer, with the total of all answers.

        Args:
            noise: the kind of noise, in words.
            plan: the plan of each answer.
            accuracy: the half-width that was asked of it; None: it has the question's total.
        """
        total = compose(plan.charge.times(times), delta=delta, lower=False)
        return Offer(noise, plan, total, accuracy)

    offers = [offer_of(ONE_ANSWER, single)]
    width = single.preview().half_width
    # One answer is best by its own plan; without counts there is no noise to compare.
    if times > 1 and width is not None and plan_with_noise is not None:
        for family in FAMILIES:
            # A family of which there is no plan, or no bound for all answers, is left out.
            with suppress(InvalidParameter):
                plan_of_family = partial(plan_with_noise, family)
                plan, accuracy = _plan_of_similar_width(plan_of_family, float(width))
                offers.append(offer_of(f"{family} noise", plan, accuracy))
    single_total = offers[0].total
    offers.sort(key=lambda offer: offer.total.epsilon)
    best = offers[0]
    return RepeatedPlan(best.plan, times, best.total, single, single_total, tuple(offers))


def _plan_of_similar_width(
    plan_with_noise: Callable[[float | None], P], width: float
) -> tuple[P, float | None]:
    """Return the plan of a family of noise with noise of about a half-width, and the half-width
    that it was planned for.

    Where the plan at the total of the question has noise that is not much wider (WIDER), it is that
    plan, and None; otherwise the plan of the least ε with noise of exactly ``width``, and
    ``width``.

    Args:
        plan_with_noise: the function from a half-width to the plan of the family with the least ε
            for it, and from None to its plan at the total of the question.
        width: the half-width of the noise of the plan that is best for one answer.
    """
    at_total = plan_with_noise(None)
    wide = at_total.preview().half_width
    if wide is not None and wide <= (1 + WIDER) * width:
        return at_total, None
    return plan_with_noise(width), width
