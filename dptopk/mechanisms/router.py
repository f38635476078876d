"""A private choice between drawing the whole answer at once and peeling it, whichever is more
accurate for the data.

The choice depends on a statistic measured in users: how many of them must change before the other
mechanism is the better one. It moves by at most one between neighbours, so that one noisy
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
from dptopk.mechanisms.mechanism import LabelsOnly, Mechanism, require_add_remove
from dptopk.mechanisms.one_shot import OneShotTopK
from dptopk.mechanisms.samplers.advantage import (
    advantage,
    gumbel_inclusion,
    one_shot_inclusion,
    rounding_error,
)
from dptopk.mechanisms.samplers.exact import Cells, exp_units
from dptopk.mechanisms.samplers.level_set_sampling import Ranked, log_odds
from dptopk.mechanisms.samplers.random import Array, Bits, random_bits
from dptopk.mechanisms.samplers.simulation import (
    BLOCK_DRAWS,
    Draw,
    SimulationInput,
    generator_of_block,
)
from dptopk.release.release import Release

# Share of ε that the choice takes; the answer has the rest. It is public, and any share is sound.
_CHOICE_SHARE = 1 / 16
# The statistic of sequences is computed to within this share of what one user can change.
_STATISTIC_ERROR = 1 / 100
# The statistic is cut at this many scales of its noise: beyond, the choice is as good as certain.
_MOST_SCALES = 64
# Without delta a sequence is drawn at once if its statistic, never below 0, exceeds this many
# scales of the noise.
_SCALES_FOR_SEQUENCE = 1 / 2
# With delta peeling is seldom much worse, so that drawing at once has only this chance where
# neither mechanism is better.
_CHANCE_AT_BALANCE = 1 / 50
# The statistic in users is cut here at the latest: below 2^53, so that users are told apart.
_LARGEST_CUT = 1e15


@dataclass(frozen=True, kw_only=True)
class RoutedTopK(LabelsOnly):
    """k labels, drawn at once or peeled, whichever suits the data: chosen privately with a stated
    share of epsilon.

    *At once*: the whole answer is one draw, by `CanonicalTopK`, or by `JointTopK` if ``ordered``,
    so that ranks mean something. *Peeled*: the labels are drawn one after the other, by
    `OneShotTopK` where delta = 0, else by `KnownGumbel` with the composed cost.

    The choice takes 1/16 of epsilon. It compares a statistic of the data (``margin``), which is
    large where drawing at once is the more accurate, with a fixed ``threshold``, under noise that
    hides what one user can change of it (``statistic_range``).

    Charge, known before: PureDP of the choice and PureDP of the answer, or ApproxDP(epsilon,
    delta). Neighbours: add or remove one user, who moves counts in one direction by at most linf
    each; l0 does not matter.

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
    def choice_epsilon(self) -> float:
        """Return the ε of the choice, which is PureDP, and with delta BoundedRange."""
        return self.epsilon * _CHOICE_SHARE

    @property
    def answer_epsilon(self) -> float:
        """Return the ε of the answer where delta is 0; its sum with the choice's is at most
        epsilon, exactly.
        """
        remaining = self.epsilon - self.choice_epsilon
        # Pure costs are added up by their decimals (docs/notes/notation.md, "Decimals").
        total = decimal(remaining) + decimal(self.choice_epsilon)
        if total <= smaller_of(self.epsilon):
            return remaining
        return math.nextafter(remaining, 0.0)

    @property
    def at_once(self) -> JointTopK | CanonicalTopK:
        """Return the mechanism that draws the answer at once."""
        if self.ordered:
            return JointTopK(k=self.k, epsilon=self.answer_epsilon)
        return CanonicalTopK(k=self.k, epsilon=self.answer_epsilon)

    @property
    def peeling(self) -> OneShotTopK | KnownGumbel:
        """Return the mechanism that peels the answer, for data with narrow gaps."""
        if not self.delta:
            return OneShotTopK(k=self.k, epsilon=self.answer_epsilon)
        selection_epsilon = _epsilon_of_peeled_selection(
            self.k, self.epsilon, self.choice_epsilon, self.delta
        )
        return KnownGumbel(k=self.k, epsilon=selection_epsilon)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return the charge of the choice and of the answer by either mechanism; ``labels`` makes
        no difference because no counts are released.

        Raises:
            InvalidParameter: for other neighbours than add_remove, and for sums of weights.
        """
        require_add_remove(sensitivity)
        if self.delta:
            return Charge({ApproxDP(self.epsilon, self.delta): 1})
        return Charge(
            {PureDP(self.answer_epsilon): 1, PureDP(self.choice_epsilon): 1}, adaptive=True
        )

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the choice with its probability, and the answer by the chosen mechanism."""
        chance = self.chance_at_once(inputs.histogram)
        simulate_at_once = self.at_once.simulate(inputs)
        simulate_peeling = self.peeling.simulate(inputs)

        def draw(number: int) -> tuple[Array, Array]:
            """Return the chosen ranks, and zeros for counts, for a block of draws."""
            at_once = generator_of_block("route", number).random(BLOCK_DRAWS) < chance
            if at_once.all():
                return simulate_at_once(number)
            chosen, _ = simulate_peeling(number)
            if at_once.any():
                drawn_at_once, _ = simulate_at_once(number)
                chosen[at_once] = drawn_at_once[at_once]
            return chosen, np.zeros(chosen.shape)

        return draw

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing
        noise.
        """
        check_public(histogram, self, self.k, self.epsilon)
        self.at_once.check(histogram)
        self.peeling.check(histogram)
        self.charge(histogram.sensitivity)  # refuses a sensitivity that is not covered

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
        at_once = self._draw_choice(histogram, random_bits(rng))
        drawn_by: Mechanism = self.at_once if at_once else self.peeling
        answer = drawn_by.release(histogram, rng)
        note = f"drawn by {type(drawn_by).__name__}"
        if answer.note:
            note = f"{note}: {answer.note}"
        choice: Cost = (
            BoundedRange(self.choice_epsilon) if self.delta else PureDP(self.choice_epsilon)
        )
        phases = {"choose": Charge({choice: 1}), "answer": answer.charge}
        return replace(answer, charge=charge, mechanism=self, phases=phases, note=note)

    def _draw_choice(self, histogram: Histogram, bits: Bits) -> bool:
        """Draw privately whether the answer is drawn at once; the law is exact.

        The statistic is compared with its threshold under Laplace noise, or with delta by an
        exponential mechanism with two outcomes.
        """
        if self._has_one_answer(histogram):
            return True
        lead = Fraction(self.margin(histogram)) - Fraction(self.threshold)
        is_above = lead > 0
        # The distance in scales of the noise, statistic_range / choice_epsilon.
        scales = abs(lead) * smaller_of(self.choice_epsilon) / Fraction(self.statistic_range)
        own_side_or_other = Cells(self._side_weights(scales))
        (outcome,) = own_side_or_other.draw(1, bits).tolist()
        if outcome == 0:  # the noisy statistic is on the same side as the statistic
            return is_above
        return not is_above

    def _has_one_answer(self, histogram: Histogram) -> bool:
        """Return whether the only possible answer is the set of all labels, without order."""
        return self.k == histogram.domain_size and not self.ordered

    def _side_weights(self, scales: Fraction) -> Callable[[int], list[int]]:
        """Return a function of a number of bits that computes the integer weights of two outcomes,
        as ``Cells`` takes them: the noisy statistic stays on its side of the threshold, or it is on
        the other side.

        With x = ``scales``, Laplace noise brings it to the other side with probability e^{-x}/2: so
        the weights are 2 - e^{-x} and e^{-x}. With delta they are 1 and e^{-x}, those of an
        exponential mechanism with two outcomes, whose odds change by a factor of at most e^ε, ε the
        choice's.

        Args:
            scales: x, the distance of the statistic from the threshold in scales of the noise, at
                least 0.
        """

        def weights(bits: int) -> list[int]:
            """Return both weights in units of 2**-bits, each within 1."""
            (other_side,) = exp_units([scales.numerator], scales.denominator, bits)  # e^{-x}
            if self.delta:
                return [1 << bits, other_side]
            return [(2 << bits) - other_side, other_side]

        return weights

    def chance_at_once(self, histogram: Histogram) -> float:
        """Return, in floating point, the probability that the answer is drawn at once; it depends
        on the data and is not released.
        """
        if self._has_one_answer(histogram):
            return 1.0
        lead = self.margin(histogram) - self.threshold
        decay = math.exp(-abs(lead) * self.choice_epsilon / self.statistic_range)
        # The weights of ``_side_weights`` over their sum.
        chance_of_own_side = 1 / (1 + decay) if self.delta else 1 - decay / 2
        if lead > 0:
            return chance_of_own_side
        return 1 - chance_of_own_side

    def margin(self, histogram: Histogram) -> float:
        """Return the statistic: about the number of users that must change for peeling to be
        better, times the ε of the answer. Between neighbours it moves by at most
        ``statistic_range``. It is private and not released.
        """
        ranked = Ranked(histogram.counts, histogram.absent)
        linf = histogram.sensitivity.linf
        if self.ordered:
            return self._certainty_of_small_gap(ranked, linf)
        return self.answer_epsilon * self._users_of_advantage(ranked, linf)

    def _certainty_of_small_gap(self, ranked: Ranked, linf: int) -> float:
        """Return how certainly a sequence drawn at once has no larger gap than peeling would have:
        x, such that its gap is larger with probability at most e^{-x}. One user moves x by at most
        the ε of the answer, beside the error of computation.

        Args:
            ranked: the counts by rank.
            linf: how far one user moves a count.
        """
        # The largest of the noises of size/k labels is about ln(size/k) scales: about that far does
        # peeling put a label from its place.
        scales = self._peeling_scale * (math.log(ranked.size / self.k) + 1)
        gap_of_peeling = math.ceil(scales * linf)
        rate = self.answer_epsilon / (2 * linf)  # with which JointTopK weighs gaps
        log_odds_error = self.answer_epsilon * _STATISTIC_ERROR
        return log_odds(Sequences(ranked, self.k), rate, gap_of_peeling, log_odds_error)

    def _users_of_advantage(self, ranked: Ranked, linf: int) -> float:
        """Return ``advantage``: how many users must change before a set drawn at once holds fewer
        of the top k than a peeled one.

        Args:
            ranked: the counts by rank.
            linf: how far one user moves a count.
        """
        inclusion = gumbel_inclusion if self.delta else one_shot_inclusion
        noise_scale = self.statistic_range / self.choice_epsilon  # in units of the statistic
        cut_in_users = _MOST_SCALES * noise_scale / self.answer_epsilon
        return advantage(
            ranked,
            self.k,
            linf=linf,
            epsilon=self.answer_epsilon,
            scale=self._peeling_scale,
            inclusion=inclusion,
            most=min(cut_in_users, _LARGEST_CUT),
        )

    @property
    def statistic_range(self) -> float:
        """Return an upper bound on the change of ``margin`` between neighbours: the ε of the
        answer, for one user, and the errors of computation.
        """
        change_by_one_user = self.answer_epsilon * (1 + 2 * _STATISTIC_ERROR)
        return math.nextafter(change_by_one_user + rounding_error(self.k), math.inf)

    @property
    def threshold(self) -> float:
        """Return the threshold of the noisy margin above which the answer is drawn at once."""
        noise_scale = self.statistic_range / self.choice_epsilon
        if self.delta:
            # At a statistic of 0 the chance is 1 / (1 + e^{threshold / noise_scale}).
            return noise_scale * math.log(1 / _CHANCE_AT_BALANCE - 1)
        if self.ordered:
            return noise_scale * _SCALES_FOR_SEQUENCE
        return 0.0

    @property
    def _peeling_scale(self) -> float:
        """Return the noise scale of peeling, in units of linf: of the Gumbel noise on a count, or
        of the exponential noise of ``OneShotTopK``, whose ε is that of all k labels.
        """
        peeling = self.peeling
        if isinstance(peeling, KnownGumbel):
            return 1 / peeling.epsilon
        return self.k / peeling.epsilon


@lru_cache(maxsize=256)
def _epsilon_of_peeled_selection(k: int, epsilon: float, share: float, delta: float) -> float:
    """Return an ε for each of k peeled selections with which they and a choice of bounded range
    ``share`` together cost at most (epsilon, delta).

    It is computed by Rényi curves, in a hundredth of a second, and is a few per cent below the
    largest such ε.

    Args:
        k: how many selections there are.
        epsilon: that of all together.
        share: the ε of the choice.
        delta: that of all together.
    """

    def charge(selection_epsilon: float) -> Charge:
        """Return the charge of the choice and of k selections of this ε."""
        selection = BoundedRange(selection_epsilon)
        costs: dict[Cost, int] = {BoundedRange(share): 1}
        # A selection may have the very cost of the choice.
        costs[selection] = costs.get(selection, 0) + k
        return Charge(costs, adaptive=True)

    return composed_share(charge, epsilon, delta, pure_share(epsilon - share, k))
