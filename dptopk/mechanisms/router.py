"""A private choice between drawing the whole answer at once and peeling it, by the side of a transition the data is on.

Drawing at once is nearly perfect where gaps are wide and nearly random where they are narrow: the number of answers
with a little more slack then grows faster than their probability falls. Peeling degrades slowly. The statistic that
tells the sides apart is the logarithm of the odds that a whole answer is no worse than a peeled one would be; it moves
by a known amount between neighbours, so that one noisy comparison decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dptopk import _validate as validate
from dptopk.costs import ApproxDP, BoundedRange, Charge, Cost, PureDP
from dptopk.histogram import Histogram, Sensitivity
from dptopk.mechanisms.base import Mechanism, add_remove
from dptopk.mechanisms.canonical import CanonicalTopK, Subsets
from dptopk.mechanisms.exact import bernoulli_exp
from dptopk.mechanisms.gumbel import KnownGumbel
from dptopk.mechanisms.joint import JointTopK, Sequences
from dptopk.mechanisms.one_shot import OneShotTopK
from dptopk.mechanisms.random import Bits, random_bits
from dptopk.mechanisms.slack import Ranked, log_odds
from dptopk.mechanisms.whole import check_public
from dptopk.release import Release

__all__ = ["RoutedTopK"]

_SHARE = 1 / 16  # of ε, for the choice
_REACH = 2  # a whole answer must be within so many scales of the noise of peeling
_ERROR = 50  # the statistic is computed to within a 50th of what it moves by between neighbours
_WRONG = 0.01  # with delta peeling is seldom bad: drawing at once must be surely better


@dataclass(frozen=True, kw_only=True)
class RoutedTopK:
    """k labels, drawn at once or peeled, whichever suits the data: chosen privately with a stated share of epsilon.

    delta = 0: `CanonicalTopK` or `OneShotTopK`. delta > 0: `CanonicalTopK` or `KnownGumbel` with the composed cost. The
    choice takes 1/16 of epsilon. ``ordered``: `JointTopK` in place of `CanonicalTopK`, so
    that ranks mean something. Charge, known before: PureDP(share) + PureDP(rest) or ApproxDP(rest, delta). Neighbours:
    add or remove one user, who moves counts in one direction by at most linf each; l0 does not matter.

    Args:
        k: how many labels, at least 1.
        epsilon, delta: of everything; delta in [0, 1).
        ordered: whether the answer must be a sequence.

    Source: docs/mechanisms.md, "Whole answers" (ours).

    >>> from dptopk import Sensitivity
    >>> print(RoutedTopK(k=10, epsilon=1.0).charge(Sensitivity()))
    DP(0.0625) + DP(0.9375) [adaptive]
    """

    k: int
    epsilon: float
    delta: float = 0.0
    ordered: bool = False

    def __post_init__(self) -> None:
        validate.assign(
            self,
            k=validate.count(k=self.k),
            epsilon=validate.positive(epsilon=self.epsilon),
            delta=validate.probability(delta=self.delta),
            ordered=validate.instance(bool, ordered=self.ordered),
        )

    @property
    def share(self) -> float:
        """The ε of the choice."""
        return self.epsilon * _SHARE

    @property
    def rest(self) -> float:
        """The ε of the answer; with ``share`` no more than epsilon."""
        rest = self.epsilon - self.share
        return rest if Fraction(rest) + Fraction(self.share) <= Fraction(self.epsilon) else math.nextafter(rest, 0.0)

    @property
    def whole(self) -> JointTopK | CanonicalTopK:
        """The mechanism that draws the answer at once."""
        return (JointTopK if self.ordered else CanonicalTopK)(k=self.k, epsilon=self.rest)

    @property
    def peeling(self) -> OneShotTopK | KnownGumbel:
        """The mechanism for data with narrow gaps."""
        if not self.delta:
            return OneShotTopK(k=self.k, epsilon=self.rest)
        return KnownGumbel(k=self.k, epsilon=_each(self.k, self.rest, self.delta))

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:  # noqa: ARG002
        """The choice, and the answer by either mechanism; ``labels`` makes no difference."""
        add_remove(sensitivity)
        answer: Cost = ApproxDP(self.rest, self.delta) if self.delta else PureDP(self.rest)
        return Charge({answer: 1, PureDP(self.share): 1}, adaptive=True)

    def check(self, histogram: Histogram) -> None:
        """Raise whatever ``release`` would raise for this histogram; nothing is drawn."""
        check_public(histogram, self, self.k)
        self.charge(histogram.sensitivity)

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Choose, then draw from a public, complete histogram; the note says which mechanism drew.

        Args:
            histogram: its counts are the scores.
            rng: a generator for tests and experiments (the release says so); None = a secure source.

        Raises:
            InvalidParameter: for a private or incomplete histogram, or k above the size of the domain.
        """
        self.check(histogram)
        charge = self.charge(histogram.sensitivity)
        drawn_by: Mechanism = self.whole if self._at_once(histogram, random_bits(rng)) else self.peeling
        answer = drawn_by.release(histogram, rng)
        note = f"drawn by {type(drawn_by).__name__}" + (f": {answer.note}" if answer.note else "")
        phases = {"choose": Charge({PureDP(self.share): 1}), "answer": answer.charge}
        return replace(answer, charge=charge, mechanism=self, phases=phases, note=note)

    def _at_once(self, histogram: Histogram, bits: Bits) -> bool:
        """Whether the statistic with Laplace noise exceeds its threshold."""
        if self.k == histogram.domain_size and not self.ordered:
            return True  # there is one set
        above = self.margin(histogram) - self.threshold
        x = Fraction(self.share) * abs(Fraction(above)) / Fraction(self.statistic_range)
        tail = int(bits.low_bits(1, 1)[0]) == 1 and bool(bernoulli_exp(np.array([float(x)]), lambda _: x, bits)[0])
        return (above > 0) != tail  # P[Laplace noise of scale range/share beyond |above|] = e^{-x}/2

    def margin(self, histogram: Histogram) -> float:
        """The log-odds that a whole answer has a small gap, to within a 50th of their range. Private: not released."""
        linf = histogram.sensitivity.linf
        ranked = Ranked(histogram.counts, histogram.absent)
        answers = Sequences(ranked, self.k) if self.ordered else Subsets(ranked, self.k)
        reach = math.ceil(_REACH * linf / self._each)
        return log_odds(answers, self.rest / (2 * linf), reach, self.rest / _ERROR)

    @property
    def statistic_range(self) -> float:
        """How far ``margin`` can move between neighbours: 2·linf·rate = rest, and twice its error."""
        return math.nextafter(self.rest * (1 + 2 / _ERROR) + 1e-5, math.inf)

    @property
    def threshold(self) -> float:
        """Half of what the margin is on the good side; with delta, what noise alone reaches once in a hundred."""
        noise = self.statistic_range / self.share
        return noise * math.log(1 / (2 * _WRONG)) if self.delta else self.rest / self._each / 2

    @property
    def _each(self) -> float:
        """ε per selection of the noise of peeling."""
        return _each(self.k, self.rest, self.delta) if self.delta else self.rest / self.k


@lru_cache(maxsize=256)
def _each(k: int, epsilon: float, delta: float) -> float:
    """The ε of each of k peeled selections that together cost at most (epsilon, delta)."""
    from dptopk.accounting.budget import Budget
    from dptopk.accounting.calibration import calibrate

    budget = Budget(epsilon, delta)
    return calibrate(lambda each: Charge({BoundedRange(each): k}, adaptive=k > 1), budget, max_seconds=1.0)
