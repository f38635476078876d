"""The base of mechanisms that draw a whole answer at once: their checks, charge and release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dptopk._internal.rounding import smaller_of
from dptopk.costs import BoundedRange, Charge, PureDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.mechanism import Mechanism, require_add_remove, require_public
from dptopk.mechanisms.public_selection import PublicSelection
from dptopk.mechanisms.samplers.level_set_sampling import Answers, Ranked, draw_answer
from dptopk.mechanisms.samplers.random import Bits
from dptopk.mechanisms.samplers.simulation import Draw, SimulationInput, draws_of_answers

# Rates below this are close to the smallest float of full precision (1e-308); with a rate above
# its inverse, scores overflow.
LEAST_RATE = Fraction(1, 10**280)
# More than the rounding of the quotient and of this product, 2**-53 each.
SHARE_ROUNDING = 2.0**-50


@dataclass(frozen=True, kw_only=True)
class JointSelection(PublicSelection):
    """Base of the mechanisms that draw k labels of a public domain at once, at one price.

    Args:
        k: how many labels, at least 1.
        epsilon: ε of the whole answer.
    """

    k: int
    epsilon: float
    noise_falls_with = ("epsilon",)

    #: The class of privacy loss that the answer's law is proven to belong to.
    cost: ClassVar[type[BoundedRange] | type[PureDP]] = PureDP

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return one cost of ε; ``labels`` makes no difference because no counts are released.

        Raises:
            InvalidParameter: for other neighbours than add_remove, and for sums of weights.
        """
        require_add_remove(sensitivity)
        return Charge({self.cost(self.epsilon): 1})

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing
        noise.
        """
        check_public(histogram, self, self.k, self.epsilon)
        super().check(histogram)


class JointExponential(JointSelection):
    """Base of the mechanisms that draw an answer with P ∝ exp(-epsilon·gap / (2·linf)), the
    exponential mechanism over all possible answers. The gap of an answer is how much worse it is
    than the best one, in counts (``samplers.level_set_sampling``).
    """

    cost: ClassVar[type[BoundedRange]] = BoundedRange
    #: Takes the ranked labels and k; returns the possible answers with their gaps.
    answers: ClassVar[Callable[..., Answers]]

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate by drawing answers almost as the mechanism does: their gaps are limited by a
        *slack*, which is drawn in floating point (``draws_of_answers``).
        """
        answers = type(self).answers(Ranked(inputs.histogram.counts, 0), self.k)
        return draws_of_answers(answers, self.epsilon / (2 * inputs.sensitivity.linf))

    def rows(self, histogram: Histogram, bits: Bits) -> list[int]:
        """Draw the indices of k rows."""
        ranked = Ranked(histogram.counts, histogram.absent)
        # One user moves a gap by at most linf, up or down: a weight e^(-rate·gap) moves by a factor
        # within e^(±ε/2), and the range of all log-ratios is ε.
        rate = smaller_of(self.epsilon) / (2 * histogram.sensitivity.linf)
        answers = type(self).answers(ranked, self.k)
        return ranked.rows(draw_answer(answers, rate, bits))


def check_public(histogram: Histogram, mechanism: Mechanism, k: int, epsilon: float) -> None:
    """Refuse a histogram and an epsilon with which no answer of k labels can be drawn.

    Args:
        histogram: its counts would be the scores.
        mechanism: the mechanism, for its name in messages.
        k: how many labels are drawn.
        epsilon: of all of them together.

    Raises:
        InvalidParameter: for a histogram that is private, incomplete or has fewer than k labels,
            or an epsilon so small or so large that rates would overflow.
    """
    # Refuses a private or an incomplete histogram, and a k that is too large.
    require_public(histogram, type(mechanism).__name__, k)
    rate = smaller_of(epsilon) / (k * histogram.sensitivity.linf)
    if not LEAST_RATE <= rate <= 1 / LEAST_RATE:
        raise InvalidParameter(
            f"epsilon={epsilon}: epsilon / (k·linf) must be from 1e-280 to 1e280"
        )


def pure_share(epsilon: float, k: int) -> float:
    """Return an ε for each of k selections of which k together cost at most ``epsilon`` by adding
    up: epsilon/k, less a share SHARE_ROUNDING, which is more than floating point adds.
    """
    return epsilon / k * (1 - SHARE_ROUNDING)


def composed_share(
    charge: Callable[[float], Charge], epsilon: float, delta: float, known_share: float
) -> float:
    """Return the largest ε of one selection found at which a charge costs at most (epsilon, delta);
    it is at least ``known_share``. The charge is bounded by Rényi curves alone, which takes little
    time.

    Args:
        charge: the charge as a function of the ε of one selection.
        epsilon: ε of the total.
        delta: δ of the total.
        known_share: an ε of one selection that is known to fit without composition theorems.
    """
    from dptopk.accounting.calibration import calibrate
    from dptopk.costs import Budget

    try:
        return max(calibrate(charge, Budget(epsilon, delta), bound="renyi"), known_share)
    except InvalidParameter:  # a budget too small to search in
        return known_share
