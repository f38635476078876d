"""A private choice between drawing the whole answer at once and peeling it, by the side of a
transition data are on.

The statistic that tells the sides apart is measured in users: how many must change for the other
mechanism to be the better one. It moves by at most one between neighbours, so that one noisy
comparison decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from dptopk._internal import validate
from dptopk._internal.rounding import decimal, smaller_of
from dptopk.costs import ApproxDP, BoundedRange, Charge, Cost, PureDP
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.canonical import CanonicalTopK
from dptopk.mechanisms.gumbel import KnownGumbel
from dptopk.mechanisms.joint import JointTopK, Sequences
from dptopk.mechanisms.joint_selection import check_public, composed_share, pure_share
from dptopk.mechanisms.mechanism import LabelsOnly, Mechanism, add_remove
from dptopk.mechanisms.one_shot import OneShotTopK
from dptopk.mechanisms.samplers.advantage import (
    advantage,
    gumbel_inclusion,
    one_shot_inclusion,
    rounding,
)
from dptopk.mechanisms.samplers.exact import Cells, exp_units
from dptopk.mechanisms.samplers.level_set_sampling import Ranked, log_odds
from dptopk.mechanisms.samplers.random import Array, Bits, random_bits
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS, Draw, SimulationInput, seeded
from dptopk.release.release import Release

_CHOICE_SHARE = 1 / 16  # of ε, for the choice
_STATISTIC_ERROR = (
    1 / 100
)  # the statistic of sequences is computed to within so much of what one user can change
_MOST_SCALES = 64  # the statistic is cut at this many scales of its noise
_SURE = (
    1 / 2
)  # a sequence is drawn at once if its statistic, never below 0, is above this many scales
_WRONG = (
    1 / 50
)  # with delta peeling is seldom bad: the chance of drawing at once where neither is better


@dataclass(frozen=True, kw_only=True)
class RoutedTopK(LabelsOnly):
    """k labels, drawn at once or peeled, whichever suits the data: chosen privately with a stated
    share of epsilon.

    delta = 0: `CanonicalTopK` or `OneShotTopK`. delta > 0: `CanonicalTopK` or `KnownGumbel` with
    the composed cost. The choice takes 1/16 of epsilon. ``ordered``: `JointTopK` instead of
    `CanonicalTopK`, so that ranks mean something. Charge, known before: PureDP(share) +
    PureDP(rest) or ApproxDP(epsilon, delta). Neighbours: add or remove one user, who moves counts
    in one direction by at most linf each; l0 does not matter.

    Args:
        k: how many labels, at least 1.
        epsilon, delta: of everything; delta in [0, 1).
        ordered: whether the answer must be a sequence.

    Source: docs/notes/mechanisms.md, "Whole answers" (ours).

    >>> from dptopk import Sensitivity
    >>> print(RoutedTopK(k=10, epsilon=1.0).charge(Sensitivity()))
    DP(0.0625) + DP(0.9375) [adaptive]
    """

    k: int
    epsilon: float
    delta: float = 0.0
    ordered: bool = False

    def __post_init__(self) -> None:
        validate.parameters(
            self, delta=validate.probability, ordered=partial(validate.instance, bool)
        )

    @property
    def share(self) -> float:
        """The ε of the choice: PureDP; with delta BoundedRange."""
        return self.epsilon * _CHOICE_SHARE

    @property
    def rest(self) -> float:
        """The ε of an answer without delta; with ``share`` no more than epsilon."""
        rest = self.epsilon - self.share
        total = decimal(rest) + decimal(self.share)
        if total <= smaller_of(self.epsilon):
            return rest
        return math.nextafter(rest, 0.0)

    @property
    def whole(self) -> JointTopK | CanonicalTopK:
        """The mechanism that draws the answer at once."""
        return (JointTopK if self.ordered else CanonicalTopK)(k=self.k, epsilon=self.rest)

    @property
    def peeling(self) -> OneShotTopK | KnownGumbel:
        """The mechanism for data with narrow gaps."""
        if not self.delta:
            return OneShotTopK(k=self.k, epsilon=self.rest)
        return KnownGumbel(k=self.k, epsilon=_each(self.k, self.epsilon, self.share, self.delta))

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """The choice, and the answer by either mechanism; ``labels`` makes no difference."""
        add_remove(sensitivity)
        if self.delta:
            return Charge({ApproxDP(self.epsilon, self.delta): 1})
        return Charge({PureDP(self.rest): 1, PureDP(self.share): 1}, adaptive=True)

    def simulate(self, scene: SimulationInput) -> Draw:
        """By either mechanism, with the chance of each."""
        chance = self.chance_at_once(scene.histogram)
        whole = self.whole.simulate(scene)
        peeling = self.peeling.simulate(scene)

        def draw(number: int) -> tuple[Array, Array]:
            at_once = seeded("route", number).random(BLOCK_DRAWS) < chance
            if at_once.all():
                return whole(number)
            chosen, _ = peeling(number)
            if at_once.any():
                drawn, _ = whole(number)
                chosen[at_once] = drawn[at_once]
            return chosen, np.zeros(chosen.shape)

        return draw

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing
        noise.
        """
        check_public(histogram, self, self.k, self.epsilon)
        for part in (self.whole, self.peeling):
            part.check(histogram)
        self.charge(histogram.sensitivity)

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Choose, then draw from a public, complete histogram; the note says which mechanism drew.

        Args:
            histogram: its counts are the scores.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.

        Raises:
            InvalidParameter: for a private or incomplete histogram, or k above the size of the
            domain.
        """
        self.check(histogram)
        charge = self.charge(histogram.sensitivity)
        at_once = self._at_once(histogram, random_bits(rng))
        drawn_by: Mechanism = self.whole if at_once else self.peeling
        answer = drawn_by.release(histogram, rng)
        note = f"drawn by {type(drawn_by).__name__}"
        if answer.note:
            note = f"{note}: {answer.note}"
        choice: Cost = BoundedRange(self.share) if self.delta else PureDP(self.share)
        phases = {"choose": Charge({choice: 1}), "answer": answer.charge}
        return replace(answer, charge=charge, mechanism=self, phases=phases, note=note)

    def _at_once(self, histogram: Histogram, bits: Bits) -> bool:
        """Compare the statistic with its threshold: with Laplace noise, or by a choice between two
        of bounded range.
        """
        if self._one_set(histogram):
            return True
        above = Fraction(self.margin(histogram)) - Fraction(self.threshold)
        scales = abs(above) * smaller_of(self.share) / Fraction(self.statistic_range)
        side = int(Cells(self._sides(scales)).draw(1, bits)[0])
        stays = side == 0
        return (above > 0) == stays

    def _one_set(self, histogram: Histogram) -> bool:
        """Whether the answer is the set of all labels, without order."""
        return self.k == histogram.domain_size and not self.ordered

    def _sides(self, x: Fraction) -> Callable[[int], list[int]]:
        """Weights of the side where the margin is, x scales from the threshold, and of the other
        side.

        Laplace noise is beyond with probability e^{-x}/2. With delta the weights are those of an
        exponential mechanism with two outcomes: the odds move by a factor of at most e^{share}.
        """

        def weights(bits: int) -> list[int]:
            (far,) = exp_units([x.numerator], x.denominator, bits)
            return [1 << bits if self.delta else (2 << bits) - far, far]

        return weights

    def chance_at_once(self, histogram: Histogram) -> float:
        """Estimate the probability that the answer is drawn at once. Depends on the data: not
        released.
        """
        if self._one_set(histogram):
            return 1.0
        above = self.margin(histogram) - self.threshold
        far = math.exp(-abs(above) * self.share / self.statistic_range)
        side = 1 / (1 + far) if self.delta else 1 - far / 2
        if above > 0:
            return side
        return 1 - side

    def margin(self, histogram: Histogram) -> float:
        """Number of users that must change for peeling to be better, times ``rest``. Private: not
        released.
        """
        linf = histogram.sensitivity.linf
        ranked = Ranked(histogram.counts, histogram.absent)
        if self.ordered:
            # The largest noise of size/k labels is about that many scales: peeling moves a label
            # that far.
            scales = self._scale * (math.log(ranked.size / self.k) + 1)
            sequences = Sequences(ranked, self.k)
            doubt = self.rest * _STATISTIC_ERROR
            return log_odds(sequences, self.rest / (2 * linf), math.ceil(scales * linf), doubt)
        most = _MOST_SCALES * self.statistic_range / self.share / self.rest
        found = advantage(
            ranked,
            self.k,
            linf=linf,
            epsilon=self.rest,
            scale=self._scale,
            inclusion=gumbel_inclusion if self.delta else one_shot_inclusion,
            most=min(most, 1e15),
        )
        return self.rest * found

    @property
    def statistic_range(self) -> float:
        """Return the maximum change of ``margin`` between neighbours: rest, and its errors."""
        whole = self.rest * (1 + 2 * _STATISTIC_ERROR)
        return math.nextafter(whole + rounding(self.k), math.inf)

    @property
    def threshold(self) -> float:
        """Return the threshold of the noisy margin above which the answer is drawn at once."""
        noise = self.statistic_range / self.share
        if self.delta:
            return noise * math.log(1 / _WRONG - 1)
        if self.ordered:
            return noise * _SURE
        return 0.0

    @property
    def _scale(self) -> float:
        """Return the noise scale of peeling, in units of linf."""
        peeling = self.peeling
        return (1 if isinstance(peeling, KnownGumbel) else self.k) / peeling.epsilon


@lru_cache(maxsize=256)
def _each(k: int, epsilon: float, share: float, delta: float) -> float:
    """The ε of each of k peeled selections that, with a choice of range ``share``, cost at most
    (epsilon, delta).

    By the Rényi curves, in a hundredth of a second: a function of these numbers alone, a few per
    cent below the best.
    """

    def charge(each: float) -> Charge:
        costs: dict[Cost, int] = {BoundedRange(share): 1}
        costs[BoundedRange(each)] = costs.get(BoundedRange(each), 0) + k
        return Charge(costs, adaptive=True)

    return composed_share(charge, epsilon, delta, pure_share(epsilon - share, k))
