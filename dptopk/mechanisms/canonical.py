"""The canonical exponential mechanism: a set of k labels, drawn as one answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import comb

import numpy as np

from dptopk._internal.search import first_true
from dptopk.histogram.histogram import Histogram
from dptopk.mechanisms.joint_selection import JointExponential
from dptopk.mechanisms.samplers.level_set_sampling import Ranked, uniform_below, uniform_distinct
from dptopk.mechanisms.samplers.random import Array, Bits, Floats, Ints

# Stirling's series is used from this n - k on: the terms it leaves out, 1/(1260 (n-k)^5) and less,
# are below 1e-12.
_STIRLING_FROM = 64


class Subsets:
    """The sets of k ranks out of more than k, and their gaps: the best count outside a set minus
    the worst count inside.

    Let n_i(g) be the number of labels with counts of at least h_(i) - g, and n_0 = 0. A set of gap
    at most g >= 0 whose worst rank is t needs all labels above h_(t) + g; these are the first i
    where n_i < t <= n_(i+1). So the sets fall into k kinds, i = 0..k-1: the first i ranks, and k -
    i of the ranks i+1..n_(i+1), not all of them up to n_i: C(n_(i+1) - i, k - i) - C(n_i - i, k -
    i) sets. In these formulas ranks are counted from 1; in the lists that ``draw`` returns and
    ``gap`` takes, from 0.

    Args:
        ranked: the counts by rank, from 0.
        k: how many ranks a set has; fewer than there are labels.

    Attributes:
        lowest: the gap of the best set, h_(k+1) - h_(k), so below 0 where it is the only best one.
        highest: the largest gap.
    """

    def __init__(self, ranked: Ranked, k: int) -> None:
        self._ranked = ranked
        self._k = k
        self._top = ranked.top(k)
        self.lowest = ranked.count(k) - ranked.count(k - 1)
        self.highest = ranked.count(0) - ranked.count(ranked.size - 1)

    def _labels_within_gap(self, slack: int) -> list[int]:
        """Return n_0, ..., n_k for gaps of at most ``slack``."""
        return [0, *self._ranked.number_at_least(self._top - slack).tolist()]

    def _sets_by_kind(self, slack: int) -> list[int]:
        """Return the number of sets of each kind 0..k-1 with a gap of at most ``slack``."""
        numbers = [0] * self._k
        for i, (n_i, n_next) in enumerate(pairwise(self._labels_within_gap(slack))):
            if n_next > n_i:
                chosen = self._k - i
                numbers[i] = _binomial(n_next - i, chosen) - _binomial(n_i - i, chosen)
        return numbers

    def size(self, slack: int) -> int:
        """Return the exact number of sets with a gap of at most ``slack``, which is at least
        ``lowest``; below 0 only the best set has such a gap.
        """
        if slack < 0:
            return 1
        return sum(self._sets_by_kind(slack))

    def log_size(self, slacks: Ints) -> Floats:
        """Return the logarithm of ``size`` for each slack, in floating point, shape of
        ``slacks``.
        """
        # n_1..n_k and n_0..n_(k-1), a row for each slack and a column for each kind i = 0..k-1.
        n_next = self._ranked.number_at_least(self._top - np.maximum(slacks, 0)[:, None])
        n_0 = np.zeros((len(n_next), 1))
        n_i = np.concatenate((n_0, n_next[:, :-1]), axis=1)
        i = np.arange(self._k)
        # Of kind i there are C(n_(i+1) - i, k - i) - C(n_i - i, k - i) sets, by logarithms.
        log_minuend = log_comb(n_next - i, self._k - i)
        log_subtrahend = log_comb(n_i - i, self._k - i)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_share = np.log(-np.expm1(np.minimum(log_subtrahend - log_minuend, 0.0)))
            log_kinds = np.where(n_next > n_i, log_minuend + log_share, -np.inf)
            log_kinds = np.where(np.isnan(log_kinds), -np.inf, log_kinds)  # where both are -inf
        logs: Floats = np.logaddexp.reduce(log_kinds, axis=1)
        # There is at least one set, and for a slack below 0 only the best one.
        return np.where(slacks < 0, 0.0, np.maximum(logs, 0.0))

    def draw(self, slack: int, bits: Bits) -> list[int]:
        """Draw one of the sets with a gap of at most ``slack``, uniformly: first its kind, then
        its worst rank, then its other ranks.
        """
        if slack < 0:  # the best set alone has such a gap
            return list(range(self._k))
        # Number the sets, kind after kind, and draw the number of one.
        sets_by_kind = self._sets_by_kind(slack)
        number = uniform_below(sum(sets_by_kind), bits)
        kind = 0
        while number >= sets_by_kind[kind]:
            number -= sets_by_kind[kind]
            kind += 1
        worst = self._worst_rank(kind, number, slack)
        others = uniform_distinct(kind, [worst] * (self._k - kind - 1), bits)
        return [*range(kind), *others, worst]

    def _worst_rank(self, kind: int, number: int, slack: int) -> int:
        """Return the worst rank, from 0, of the set with this number. Sets of one kind are numbered
        from 0, in the order of their worst ranks.

        Of all sets of the first i = ``kind`` ranks and k - i others, C(t - i, k - i) have a worst
        rank of at most t, counted from 1. Those with t <= n_i are of another kind.

        Args:
            kind: i, the kind of the set.
            number: the number of the set among those of its kind.
            slack: the largest gap of the sets, at least 0.
        """
        labels_within_gap = self._labels_within_gap(slack)
        n_i = labels_within_gap[kind]
        chosen = self._k - kind
        number_in_all = number + _binomial(n_i - kind, chosen)
        # No set of k ranks has a worst rank below k.
        worst_from_1 = first_true(
            lambda t: comb(t - kind, chosen) > number_in_all,
            max(n_i + 1, self._k),
            labels_within_gap[kind + 1],
        )
        return worst_from_1 - 1

    def gap(self, answer: list[int]) -> int:
        """Return the best count outside the set minus the worst count inside it."""
        ranks = set(answer)
        # Of the first k + 1 ranks a set of k misses at least one.
        missed = next(rank for rank in range(self._k + 1) if rank not in ranks)
        return self._ranked.count(missed) - self._ranked.count(max(answer))


@dataclass(frozen=True, kw_only=True)
class CanonicalTopK(JointExponential):
    """A set of k labels, drawn at once: P(S) ∝ exp(-epsilon·gap(S) / (2·linf)), gap(S) = max
    outside S - min inside S.

    Charge: 1 × BoundedRange(epsilon). Neighbours: add or remove one user, who moves counts in one
    direction by at most linf each; l0 does not matter. The rows come in label order: ranks mean
    nothing.

    Args:
        k: how many labels, at least 1.
        epsilon: ε of the whole answer.

    Source: Shekelyan-Loukides 2022 (the loss); the range 2·linf: docs/notes/mechanisms.md, "Whole
    answers"; the sampler, about linear in the number of labels: docs/notes/exact-sampling.md. The
    gap of the best set is h_(k+1) - h_(k) <= 0, not cut at 0: more accurate at the same price.

    >>> from dptopk import Sensitivity
    >>> print(CanonicalTopK(k=10, epsilon=0.5).charge(Sensitivity()))
    BR(0.5)
    """

    answers = Subsets
    ordered = False

    def rows(self, histogram: Histogram, bits: Bits) -> list[int]:
        """Draw the indices of k rows; their order means nothing."""
        if self.k == histogram.domain_size:
            return list(range(self.k))
        return super().rows(histogram, bits)


@lru_cache(maxsize=1 << 14)
def _binomial(n: int, k: int) -> int:
    """Return the binomial coefficient C(n, k); 0 for n < 0."""
    if n >= 0:
        return comb(n, k)
    return 0


def log_comb(n: Array, k: Ints) -> Floats:
    """Return ln C(n, k), to a few ulps also where n is far above k; -inf for n < k.

    Where n - k is large, n!/(n-k)! is computed by Stirling's series, which avoids the difference of
    two large logarithms.
    """
    from scipy.special import betaln, gammaln

    size = np.maximum(n, k).astype(np.float64)
    r = size - k  # of the n things those that are not chosen
    # ln(n!/r!) for r of at least _STIRLING_FROM: by ln m! = (m + 1/2) ln m - m + 1/(12m) -
    # 1/(360m³) + ..., and a constant, it is (r + 1/2) ln(n/r) + k (ln n - 1) and the differences of
    # the small terms.
    large_r = np.maximum(r, _STIRLING_FROM)
    large_n = large_r + k
    log_ratio = (large_r + 0.5) * np.log1p(k / large_r)
    log_ratio += k * (np.log(large_n) - 1)
    log_ratio += (1 / large_n - 1 / large_r) / 12 - (1 / large_n**3 - 1 / large_r**3) / 360
    by_stirling = log_ratio - gammaln(k + 1.0)
    # C(n, k) = 1/((n + 1) B(r + 1, k + 1)) for a smaller r, B the beta function.
    small_r = np.minimum(r, _STIRLING_FROM)
    by_beta = -np.log1p(size) - betaln(small_r + 1, k + 1.0)
    logs: Floats = np.where(r < _STIRLING_FROM, by_beta, by_stirling)
    return np.where(n < k, -np.inf, logs)
