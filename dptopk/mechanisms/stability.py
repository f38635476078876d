"""Propose-test-release for top-k: an exact set if the gap below it is wide enough, and peeling for
the other labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from dptopk._internal.tails import laplace_tail, smallest_offset
from dptopk.costs import BoundedRange, Charge, Cost, PureDP
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.joint_selection import check_public, composed_share, pure_share
from dptopk.mechanisms.laplace import KnownLaplace, rate
from dptopk.mechanisms.mechanism import LabelsOnly, require_add_remove
from dptopk.mechanisms.public_selection import drawn_labels, in_label_order
from dptopk.mechanisms.samplers.level_set_sampling import Ranked
from dptopk.mechanisms.samplers.random import Bits, Ints, random_bits
from dptopk.mechanisms.samplers.selection import gumbel_top_k
from dptopk.mechanisms.samplers.simulation import Draw, SimulationInput, seeded_releases
from dptopk.mechanisms.thresholds import checked_offset
from dptopk.release.release import Release

# Shares of ε: of the choice of a size, and of the test of the gap. Peeling has the rest.
CHOICE_SHARE = 0.1
TEST_SHARE = 0.2
# Share of δ for a set that is released although its gap is too narrow.
UNSTABLE_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class StabilityTopK(LabelsOnly):
    """k labels: the exact top j <= k as a set if the gap after the j-th count passes a test; the
    rest by peeling.

    j is chosen by an exponential mechanism; its gap with discrete Laplace noise must exceed a
    threshold, and else j is 0. The labels missing to k are drawn one by one by Gumbel peeling.

    Charge, known before: BoundedRange for the choice, PureDP for the test, k × BoundedRange for
    peeling, and half of delta for a set that is released though it is not stable; together at most
    (epsilon, delta). A release is charged for as many selections as it peeled. Neighbours: add or
    remove one user, who moves counts in one direction by at most linf each; l0 does not matter.

    Args:
        k: how many labels, at least 1.
        epsilon, delta: of the whole answer; delta in (0, 1).

    Source: Zhu-Wang 2022 (adaptive k, propose-test-release); with bounded range, integer noise and
    the composed cost of the fallback: docs/notes/mechanisms.md, "Whole answers".

    >>> from dptopk import Sensitivity, compose
    >>> charge = StabilityTopK(k=5, epsilon=1.0, delta=1e-6).charge(Sensitivity())
    >>> compose(charge, delta=1e-6).epsilon <= 1.0
    True
    """

    k: int
    epsilon: float
    delta: float
    noise_falls_with = ("epsilon",)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return the most that a release can cost, the charge with k peeled labels; ``labels``
        makes no difference because no counts are released.

        Raises:
            InvalidParameter: for other neighbours than add_remove, and for sums of weights.
        """
        require_add_remove(sensitivity)
        return self._charge_of_phases(self.k)

    def _charge_of_phases(self, peeled: int) -> Charge:
        """Return the charge of a release that peeled this many labels."""
        selection_epsilon = peeling_epsilon(self.k, self.epsilon, self.delta)
        return _charge_of_phases(self.epsilon, self.delta, peeled, selection_epsilon)

    def threshold(self, sensitivity: Sensitivity) -> int:
        """Return the threshold of the noisy gap: linf + c, where c is the smallest integer with
        P[noise > c] <= delta/2.

        Raises:
            InvalidParameter: for other neighbours than add_remove, and where the threshold would be
                beyond the range of counts.
        """
        noise_rate = TEST_SHARE * self.epsilon / require_add_remove(sensitivity).linf
        offset = smallest_offset(
            lambda c: laplace_tail(noise_rate, c), UNSTABLE_SHARE * self.delta, "delta"
        )
        threshold = sensitivity.linf + offset
        # Refuses a threshold with which utilities, of at most k + 2 thresholds, leave 64 bits.
        checked_offset(threshold * (self.k + 2), "delta")
        return threshold

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate by seeded releases of the mechanism itself."""
        return seeded_releases(self, inputs)

    def check(self, histogram: Histogram) -> None:
        """Raise the error that ``release`` would raise for this histogram, without drawing
        noise.
        """
        check_public(histogram, self, self.k, self.epsilon)
        rate(TEST_SHARE * self.epsilon, histogram.sensitivity)  # refuses noise that is too wide
        self.threshold(histogram.sensitivity)  # refuses one beyond the range of counts
        self.charge(histogram.sensitivity)  # refuses shares of ε or δ that are too small

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """Draw the answer from a public, complete histogram; unlisted labels take part with count
        0.

        Rows of the exact set come first, in label order, then the peeled ones in the order of
        selection.

        Args:
            histogram: its counts are the scores.
            rng: a generator for tests and experiments (the release says so); None = a secure
                source.

        Raises:
            InvalidParameter: for a private or incomplete histogram, or k above the size of the
                domain.
        """
        self.check(histogram)
        bits = random_bits(rng)
        ranked = Ranked(histogram.counts, histogram.absent)
        stable = self._size_of_stable_set(ranked, histogram.sensitivity, bits)
        exact_set = ranked.rows(list(range(stable)))
        peeled = self._peel(histogram, exact_set, bits)
        labels = drawn_labels(histogram, np.array(exact_set + peeled, dtype=np.int64), bits)
        labels = (*in_label_order(labels[:stable]), *labels[stable:])
        charge = self._charge_of_phases(len(peeled))
        if stable:
            note = f"the first {stable} rows are a set, in label order"
        else:
            note = "no stable set: all rows peeled"
        return Release.of_draw(
            histogram, rng, labels=labels, charge=charge, mechanism=self, note=note
        )

    def _size_of_stable_set(self, ranked: Ranked, sensitivity: Sensitivity, bits: Bits) -> int:
        """Draw a size j and test its gap; return j if the test passes, else 0.

        Args:
            ranked: the counts by rank.
            sensitivity: the histogram's.
            bits: the source of words.
        """
        # There is a gap after each count but the last one.
        sizes = min(self.k, ranked.size - 1)
        if not sizes:
            return 0
        threshold = self.threshold(sensitivity)
        linf = sensitivity.linf
        top = ranked.top(sizes + 1)
        gaps = top[:-1] - top[1:]
        scores = utilities(gaps, threshold)
        # Two utilities may move in opposite directions, by linf each: their range is 2 linf.
        drawn = gumbel_top_k(
            scores, 1, epsilon=CHOICE_SHARE * self.epsilon, linf=2 * linf, bits=bits
        )
        chosen = int(drawn.indices[0])  # the size less 1
        laplace = KnownLaplace(epsilon=TEST_SHARE * self.epsilon)
        (noise,) = laplace.draw_noise(sensitivity, 1, bits).tolist()
        if int(gaps[chosen]) + noise > threshold:
            return chosen + 1
        return 0

    def _peel(self, histogram: Histogram, exact_set: list[int], bits: Bits) -> list[int]:
        """Draw the indices of the rows that are missing to k, from those outside the exact set.

        Args:
            histogram: the one from which labels are drawn.
            exact_set: the row indices of the stable set, at most k; they are not drawn again.
            bits: the source of words.
        """
        if len(exact_set) == self.k:
            return []
        other_rows = np.setdiff1d(np.arange(len(histogram)), exact_set)
        # Labels without a row are alike: those in the exact set are the first of them.
        unlisted_drawn = sum(row >= len(histogram) for row in exact_set)
        drawn = gumbel_top_k(
            histogram.counts[other_rows],
            self.k - len(exact_set),
            epsilon=peeling_epsilon(self.k, self.epsilon, self.delta),
            linf=histogram.sensitivity.linf,
            bits=bits,
            absent=histogram.absent - unlisted_drawn,
        )
        rows: list[int] = []
        for index in drawn.indices.tolist():
            if index < other_rows.size:
                rows.append(int(other_rows[index]))
            else:  # labels without a row follow, from the first one on that is not drawn yet
                rows.append(len(histogram) + unlisted_drawn + index - other_rows.size)
        return rows


def utilities(gaps: Ints, threshold: int) -> Ints:
    """Return the utility of trying each size 1, ..., k, for the gaps after it, shape (k,): its gap,
    cut at twice the threshold of the test, plus a bonus for each label.

    A gap of twice the threshold fails the test only if the noise is below -threshold, so that a
    larger one is worth no more; of two such sizes the bonus prefers the larger one. The bonus
    depends on the size alone, and the cut gap moves by no more than the gap itself; so one user
    moves a utility by at most linf.

    Args:
        gaps: the count of each rank less that of the next one, int64, shape (k,).
        threshold: what the gap must exceed in the test, with noise.
    """
    k = gaps.size
    sizes = np.arange(1, k + 1)
    return np.minimum(gaps, 2 * threshold) + (sizes * threshold) // k


@lru_cache(maxsize=256)
def peeling_epsilon(k: int, epsilon: float, delta: float) -> float:
    """Return the ε of each peeled selection: the largest found with which the choice, the test and
    k selections together cost at most (epsilon, delta).

    Args:
        k: how many labels are selected.
        epsilon: of all together.
        delta: of all together.
    """
    share_without_composition = pure_share(epsilon * (1 - CHOICE_SHARE - TEST_SHARE), k)
    return composed_share(
        partial(_charge_of_phases, epsilon, delta, k), epsilon, delta, share_without_composition
    )


def _charge_of_phases(
    epsilon: float, delta: float, peeled: int, selection_epsilon: float
) -> Charge:
    """Return the charge of the choice, the test and the peeled selections.

    Args:
        epsilon: that of the whole answer, of which the choice and the test have their shares.
        delta: that of the whole answer; its share for a set that is not stable is charged.
        peeled: how many selections there are.
        selection_epsilon: the ε of each of them.
    """
    costs: dict[Cost, int] = {
        BoundedRange(CHOICE_SHARE * epsilon): 1,
        PureDP(TEST_SHARE * epsilon): 1,
    }
    if peeled:
        selection = BoundedRange(selection_epsilon)
        # It may be the very cost of the choice.
        costs[selection] = costs.get(selection, 0) + peeled
    return Charge(costs, delta=UNSTABLE_SHARE * delta, adaptive=True)
