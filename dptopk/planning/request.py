"""A request for a plan: the validated arguments of plan_topk, the division of the budget, and what
a part of it affords.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from dptopk._internal import validate
from dptopk._internal.choices import CHARGES, COUNTS, DOMAINS, ChargeAs, Counts, Domain
from dptopk._internal.rounding import floor_digits
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.mechanism import require_add_remove
from dptopk.planning.mixture import Mixture, references
from dptopk.planning.shape import Shape

# The factors by which the odds share/(1 - share) change to the two shares that are tried beside a
# share: about half way to the next of those that are tried first.
NEIGHBOURING_ODDS = (0.7, 1.4)
# ρ grows as the square of ε, which a float must hold.
LARGEST_EPSILON = 1e150


@dataclass(frozen=True)
class Split:
    """A division of the budget.

    Attributes:
        selection: the share of the zCDP budget that goes to the selections of a design that counts
            afterwards.
        threshold: the share of δ that goes to the threshold of a private domain; the composition
            gets the rest.
    """

    selection: float = 1.0
    threshold: float = 0.0

    def neighbours(self) -> list[Split]:
        """Return two splits, with somewhat less and somewhat more for the selections, by their
        odds; an empty list where there is no division.
        """
        if self.selection == 1:  # nothing is counted afterwards
            return []
        odds = [factor * self.selection / (1 - self.selection) for factor in NEIGHBOURING_ODDS]
        # Three digits are for people, to whom the share is shown.
        return [replace(self, selection=round(odd / (1 + odd), 3)) for odd in odds]


@dataclass(frozen=True)
class Request:
    """The arguments of plan_topk; ``plan_topk`` validates ε, δ, accuracy, method and shape, and
    ``__post_init__`` the others.

    Attributes:
        k, sensitivity, domain, counts, method, fit: as in plan_topk.
        delta: the total δ.
        epsilon: the total ε, or None where an accuracy was asked for.
        accuracy: the half-width asked for, or None.
        d_bar: how many of the largest counts take part in designs over a histogram that is cut to
            these.
        whole: whether the whole histogram will be at hand, so that designs over it are allowed.
        selection_share: the share of ρ for selections that was asked for; "best" for the one of the
            least criterion; None: those of each design.
        shape: the counts to plan for, or several shapes that they may have; None: nothing is known
            about them.
        users: how many users there are, or None.
        charge_as: how selections may be charged; "auto": whichever is less.
    """

    k: int
    epsilon: float | None
    delta: float
    accuracy: float | None
    sensitivity: Sensitivity
    domain: Domain
    d_bar: int
    whole: bool
    counts: Counts
    method: str
    selection_share: float | Literal["best"] | None
    fit: bool
    shape: Shape | Mixture | None
    charge_as: ChargeAs | Literal["auto"] = "auto"
    users: int | None = None

    def __post_init__(self) -> None:
        validate.assign(
            self,
            k=number_of_labels(self.k),
            sensitivity=require_add_remove(self.sensitivity),
            domain=validate.member(DOMAINS, domain=self.domain),
            d_bar=validate.count(at_least=self.k, at_most=validate.LARGEST, d_bar=self.d_bar),
            counts=validate.member(COUNTS, counts=self.counts),
            fit=validate.instance(bool, fit=self.fit),
            charge_as=validate.member(("auto", *CHARGES), charge_as=self.charge_as),
        )
        if self.users is not None:
            users = validate.count(at_most=validate.LARGEST, users=self.users)
            validate.assign(self, users=users)
        if self.selection_share is not None and self.selection_share != "best":
            share = validate.probability(allow_zero=False, selection_share=self.selection_share)
            validate.assign(self, selection_share=share)
        if self.epsilon is not None:
            refuse_huge_epsilon(self.epsilon)
        if self.accuracy is not None and self.counts == "none":
            raise InvalidParameter(
                "accuracy must be left out where no counts are asked for: it is that of counts"
            )
        if self.domain == "private" and self.delta == 0:
            raise InvalidParameter(
                "budget.delta must be above 0: hiding which labels exist needs a δ; 1/(10 "
                "users) is a common choice",
                parameter="delta",
            )

    @property
    def counted(self) -> bool:
        """Return whether the answer shows counts."""
        return self.counts != "none"

    @property
    def mixture(self) -> Mixture:
        """Return the shapes on which designs are compared where no single one is given; the shapes
        of reference go on beyond every floor, which is at most the count of rank d_bar + 1.
        """
        if isinstance(self.shape, Mixture):
            return self.shape
        return references(self.k, max(self.d_bar, 10 * self.k) + 2)

    @property
    def touched(self) -> int:
        """Return the largest number of the k labels that one user can affect."""
        return self.sensitivity.touched(self.k)


def range_epsilon(rho: float) -> float:
    """Return the ε, rounded down, of one draw of bounded range ε that is ρ-zCDP: ρ = ε²/8."""
    return floor_digits(math.sqrt(8 * rho))


def pure_epsilon(rho: float) -> float:
    """Return the ε, rounded down, of one ε-DP mechanism that is ρ-zCDP: ρ = ε²/2."""
    return floor_digits(math.sqrt(2 * rho))


def number_of_labels(k: int) -> int:
    """Return k, if a plan may have as many labels: from 1 to 10^6.

    Raises:
        InvalidParameter: for a k outside of this range.
    """
    return validate.count(k=k, at_most=10**6)


def refuse_huge_epsilon(epsilon: float) -> None:
    """Refuse a total ε whose ρ no float may hold.

    Raises:
        InvalidParameter: above LARGEST_EPSILON.
    """
    if epsilon > LARGEST_EPSILON:
        raise InvalidParameter(
            f"budget.epsilon must be at most {LARGEST_EPSILON:g} for a plan, got {epsilon:g}",
            parameter="epsilon",
        )
