"""One-shot selection: exponential noise on every count, once; the k largest, in order."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dptopk._internal.rounding import smaller_of
from dptopk.costs import PureDP
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.joint_selection import JointSelection
from dptopk.mechanisms.samplers.exponential_race import Arrivals, ArrivalTime, Race, Words
from dptopk.mechanisms.samplers.random import Array, Bits, Floats, Ints
from dptopk.mechanisms.samplers.selection import Crowd, first_labels, front_of
from dptopk.mechanisms.samplers.simulation import Draw, SimulationInput, noisy_largest
from dptopk.mechanisms.samplers.uniform_orders import smallest_in_order

_FEW_UNLISTED = 1 << 12  # up to this many unlisted labels get separate noise; more are one crowd
_LABELS_AT_A_TIME = 1 << 18  # whose noise is drawn together, to bound the memory


@dataclass(frozen=True, kw_only=True)
class OneShotTopK(JointSelection):
    """The k labels with the largest count + Exponential(k·linf/epsilon), in that order; labels
    only.

    Charge: 1 × PureDP(epsilon), and no smaller pure ε holds, for any l0; it is not of bounded
    range. For k = 1 it is permute-and-flip. Neighbours: add or remove one user, who moves counts in
    one direction by at most linf each.

    Args:
        k: how many labels, at least 1.
        epsilon: ε of the whole answer.

    Source: k = 1: McKenna-Sheldon 2020 (as exponential noise: Ding et al. 2021); k > 1:
    docs/notes/mechanisms.md, "Whole answers", where the constant is shown to be the best.

    >>> from dptopk import Sensitivity
    >>> print(OneShotTopK(k=10, epsilon=0.5).charge(Sensitivity()))
    DP(0.5)
    """

    cost: ClassVar[type[PureDP]] = PureDP

    def selection_noise(self, sensitivity: Sensitivity) -> float:
        """Return the standard deviation of the exponential noise on a count: k·linf/epsilon."""
        return self.k * sensitivity.linf / self.epsilon

    def chance_to_exceed(self, sensitivity: Sensitivity, noise: float, gaps: Array) -> Array:
        """Return the probability that exponential noise exceeds each gap: exp(-x), at most 1, with
        x the gap in standard deviations.

        Args:
            sensitivity: the histogram's.
            noise: the standard deviation of the noise, in counts.
            gaps: in counts, of any shape.
        """
        scaled = -gaps / noise
        chances: Array = np.exp(np.minimum(scaled, 0.0))
        return chances

    def simulate(self, inputs: SimulationInput) -> Draw:
        """Simulate the selection of the k labels with the largest count plus exponential noise."""
        noise = inputs.noise("exponential", self.selection_noise(inputs.sensitivity))
        return noisy_largest(inputs, noise)

    def rows(self, histogram: Histogram, bits: Bits) -> list[int]:
        """Draw the indices of k rows, the largest noisy count first."""
        rate = smaller_of(self.epsilon) / (self.k * histogram.sensitivity.linf)
        chosen = one_shot_top_k(
            histogram.counts, self.k, rate=rate, bits=bits, absent=histogram.absent
        )
        return [int(row) for row in chosen]


def one_shot_top_k(counts: Ints, k: int, *, rate: Fraction, bits: Bits, absent: int = 0) -> Ints:
    """Draw the indices of the k labels with the largest rate·count + Exponential(1), int64, shape
    (k,), largest first; the law is exact.

    Args:
        counts: int64, shape (n,).
        k: at most n + absent.
        rate: of the noise, greater than 0, exact.
        bits: source of random words.
        absent: how many more labels there are with count 0; they have the indices n, ..., n +
            absent - 1.
    """
    if bits.listing:
        return _enumerated_top_k([*counts.tolist(), *[0] * absent], k, rate, bits)
    race = _FlipRace(rate, None, bits)
    origin = np.int64(counts.max(initial=0))
    separate = absent if absent <= _FEW_UNLISTED else 0  # labels without a row, with own noise
    labels = np.arange(counts.size + separate)
    levels = np.concatenate((counts, np.zeros(separate, np.int64)))
    front = race.clocks(labels[:0], levels[:0], origin)  # those that may be of the first k
    for begin in range(0, labels.size, _LABELS_AT_A_TIME):
        part = slice(begin, begin + _LABELS_AT_A_TIME)
        drawn = race.clocks(labels[part], levels[part], origin)
        front = front_of(Arrivals.join(front, drawn), None, k).clocks
    crowd_rings: Arrivals | None = None
    if absent > separate:  # the labels without a row are a crowd
        crowd_rings = _first_rings(race, counts.size, absent, k, origin)
    return first_labels(race, front, crowd_rings, k)


def _enumerated_top_k(counts: list[int], k: int, rate: Fraction, bits: Bits) -> Ints:
    """Draw as ``one_shot_top_k`` from a source that enumerates outcomes: it is given lower bounds
    on the probabilities of all answers, and says which one is drawn.

    Args:
        counts: of all labels.
        k: how many labels are drawn.
        rate: what a count is multiplied by before the noise is added.
        bits: the source that enumerates.
    """
    # rate·count + Exponential(1) = -ln(U e^{-rate·count}), where U is uniform: the k largest sums
    # are the k smallest of these numbers.
    masses = smallest_in_order(counts, rate, k)
    answers = list(masses)
    choice = bits.choose(lambda: list(masses.values()))
    return np.array(answers[choice], dtype=np.int64)


def _first_rings(race: Race, offset: int, size: int, k: int, origin: np.int64) -> Arrivals:
    """Return the rings of a crowd from the start of the race until k of its labels, or all, have
    rung.

    Args:
        race: the race that the crowd takes part in.
        offset: index of the crowd's first label.
        size: number of labels in the crowd; each has the count 0.
        k: how many labels must have rung.
        origin: the count that times are scaled by.
    """
    crowd = Crowd(size, offset, None, np.int64(0))
    rings: Arrivals | None = None
    # A batch has 64 rings on average: about 2k are drawn at a time, and 64 more.
    batches = 1 + k // 32
    while rings is None or np.unique(rings.labels).size < min(k, size):
        more = crowd.draw_batches(batches, race, origin)
        rings = Arrivals.join(rings, more) if rings else more
    return rings


class _FlipRace(Race):
    """The race of one-shot selection, for one label that of permute-and-flip: a label rings at F
    e^{-rate·level} with F uniform on [0, 1], where in a ``Race`` it rings at E e^{-rate·level} with
    E exponential; so its score is rate·level - ln F = rate·level + Exponential(1).

    A label with a clock of its own has F = U. A ring of a crowd comes at an exponential time E, and
    F = 1 - e^{-E} is then uniform. F grows with E, and where bits of E are unknown, F is off by no
    larger a share than E.
    """

    def _time_scores(
        self, words: Words, start: Fraction | None, width: Fraction
    ) -> tuple[Floats, Floats]:
        """Return, as ``Race._time_scores``, a lower bound on U or E in units of its last known bit,
        and -ln F as a float, shape (n,) each; here F takes the place of the time of a clock.

        Args:
            words: the first 64 bits of U, or of the position of E in its slab, shape (n,).
            start: where the slab of E begins; None for a label of its own, whose F is U.
            width: length of that slab.
        """
        word = words.astype(np.float64)
        with np.errstate(divide="ignore"):
            if start is None:
                return word, -np.log(word * 2.0**-64)
            units = word + 2.0**64 * float(start / width)
            time = float(start) + float(width) * (word * 2.0**-64)
            return units, -np.log(-np.expm1(-time))

    def _exact_clock(self, arrivals: Arrivals, i: int) -> ArrivalTime:
        """Return the i-th arrival for exact comparisons, as a ``_FlipClock``."""
        clock = super()._exact_clock(arrivals, i)
        return _FlipClock(clock.level, clock.word, clock.start, clock.width)


class _FlipClock(ArrivalTime):
    """A ring time of ``_FlipRace`` for exact comparisons."""

    def times(self, ends: list[Decimal]) -> list[Decimal]:
        """Return a lower and an upper bound on F, to the precision of the current decimal context.

        Args:
            ends: a lower and an upper bound on U, or for the ring of a crowd on the position of E
                in its slab of time.
        """
        if self.start is None:
            return ends
        # 1 - e^{-E} loses the digits by which E is below 1. As E is at least width·2^-known, the
        # precision that ``bounds`` sets leaves enough of them.
        return [1 - (-time).exp() for time in super().times(ends)]
