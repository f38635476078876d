"""Common base of mechanisms that draw a whole answer at once: refusals, the charge, and the
release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dptopk._internal.rounding import smaller_of
from dptopk.costs import BoundedRange, Charge, PureDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.mechanism import Mechanism, PublicSelection, add_remove, known
from dptopk.mechanisms.samplers.level_set_sampling import Answers, Ranked, draw_answer
from dptopk.mechanisms.samplers.random import Bits
from dptopk.mechanisms.samplers.simulation import Draw, SimulationInput, at_once

LEAST_RATE = Fraction(
    1, 10**280
)  # smaller rates are not floats of full precision; scores of inverse ones overflow


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
        """One cost of ε; ``labels`` makes no difference because no counts are released."""
        add_remove(sensitivity)
        return Charge({self.cost(self.epsilon): 1})

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing
        noise.
        """
        check_public(histogram, self, self.k, self.epsilon)
        super().check(histogram)


class AtOnce(JointSelection):
    """Base of those that draw an answer from all that have a slack: level_set_sampling."""

    cost: ClassVar[type[BoundedRange]] = BoundedRange
    #: The answers that k of the ranked labels can give.
    answers: ClassVar[Callable[..., Answers]]

    def simulate(self, scene: SimulationInput) -> Draw:
        """By its own draws, of slacks that are rounded."""
        answers = type(self).answers(Ranked(scene.histogram.counts, 0), self.k)
        return at_once(answers, self.epsilon / (2 * scene.sensitivity.linf))

    def rows(self, histogram: Histogram, bits: Bits) -> list[int]:
        """Draw k rows."""
        ranked = Ranked(histogram.counts, histogram.absent)
        rate = smaller_of(self.epsilon) / (2 * histogram.sensitivity.linf)
        return ranked.rows(draw_answer(type(self).answers(ranked, self.k), rate, bits))


def check_public(histogram: Histogram, mechanism: Mechanism, k: int, epsilon: float) -> None:
    """Refuse a histogram that is private, incomplete, or has fewer than k labels; a tiny or a huge
    epsilon.
    """
    known(histogram, mechanism, k)
    rate = smaller_of(epsilon) / (k * histogram.sensitivity.linf)
    if not LEAST_RATE <= rate <= 1 / LEAST_RATE:
        raise InvalidParameter(
            f"epsilon={epsilon}: epsilon / (k·linf) must be from 1e-280 to 1e280"
        )


def pure_share(epsilon: float, k: int) -> float:
    """An ε that k selections can have so that their plain sum stays below ``epsilon``, with some
    ulps to spare.
    """
    return epsilon / k * (1 - 2.0**-50)


def composed_share(
    charge: Callable[[float], Charge], epsilon: float, delta: float, plain: float
) -> float:
    """The largest ε found with which ``charge`` costs at most (epsilon, delta) by its Rényi curves;
    or ``plain``.
    """
    from dptopk.accounting.calibration import calibrate
    from dptopk.costs import Budget

    try:
        return max(calibrate(charge, Budget(epsilon, delta), bound="renyi"), plain)
    except InvalidParameter:  # a budget too small to search in
        return plain
