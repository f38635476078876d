"""An exponential mechanism over whole answers: draw a slack, then a uniform answer with a gap of at
most that.

An answer (a set or a sequence of k labels) has an integer *gap*, the smaller the better, and is to
be drawn with probability ∝ e^{-rate·gap}. Since e^{-rate·gap} is proportional to the sum of
e^{-rate·g} over all integers g >= gap, that is the law of the answer in a pair (g, answer) drawn
with g >= gap(answer) and P ∝ e^{-rate·g}: a slack g of weight N(g) e^{-rate·g}, N(g) the number of
answers of gap at most g, and then an answer uniform among these N(g).

The N(g) are integers of thousands of digits at up to d·k places. So slacks are joined into blocks
first..last: a block is drawn with weight N(last)·(the sum of e^{-rate·g} in it), an answer uniform
among the N(last), a slack within the block; and if the answer does not fit the slack, everything is
drawn anew. The law is the same for any blocks; floats only choose blocks that are seldom refused.
Proof: docs/notes/exact-sampling.md, "Whole answers".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal, getcontext
from fractions import Fraction
from functools import partial
from typing import Protocol

import numpy as np

from dptopk.mechanisms.samplers.exact import Cells, is_below, precise
from dptopk.mechanisms.samplers.random import Bits, Floats, Ints

_LARGEST_ODDS = 1e15  # log-odds are cut here, below 2^53, where floats still hold whole numbers
# All of a refinement's blocks whose excess is at least this share of the largest one are halved.
_SPLIT_SHARE = 1 / 64
_DIGITS_PER_BIT = 0.30103  # a little more than log10(2)
# Blocks are split until an answer is accepted about once in this many draws, or more often.
_DRAWS_PER_ANSWER = 6.0


class Ranked:
    """Counts in descending order, with ranks from 0; labels without a row follow with count 0.

    Args:
        counts: those of the rows, non-negative int64, shape (n,), in any order.
        absent: how many more labels there are, with count 0; n + absent is at most 2^62.

    Attributes:
        size: how many labels there are, n + absent.
    """

    def __init__(self, counts: Ints, absent: int) -> None:
        self._counts = counts
        # Sorting the values is ten times faster than sorting the rows, of which few are needed.
        self._rising = np.sort(counts)
        self._absent = absent
        self.size = counts.size + absent

    def rows(self, ranks: list[int]) -> list[int]:
        """Return the row index of each rank; equal counts are ranked by row, and labels without a
        row have the indices n, n + 1, ...
        """
        counts = self.counts_of(np.array(ranks, dtype=np.int64))
        # Only the rows whose count is that of one of the ranks are sorted.
        candidates = np.flatnonzero(np.isin(self._counts, counts))
        order = candidates[np.argsort(-self._counts[candidates], kind="stable")]
        # The rows of one count are successive in ``order``, as their ranks are: from the first rank
        # of that count to the place where its rows begin, each rank is shifted by the same number.
        first_places = np.searchsorted(-self._counts[order], -counts)
        first_ranks = self._rising.size - np.searchsorted(self._rising, counts, side="right")
        shifts = (first_places - first_ranks).tolist()
        listed = self._counts.size
        rows: list[int] = []
        for rank, shift in zip(ranks, shifts, strict=True):
            row = int(order[rank + shift]) if rank < listed else rank
            rows.append(row)
        return rows

    def count(self, rank: int) -> int:
        """Return the count of a rank."""
        if rank < self._rising.size:
            return int(self._rising[-1 - rank])
        return 0

    def counts_of(self, ranks: Ints) -> Ints:
        """Return the counts of ranks, 0 for labels without a row; int64, shape of ``ranks``.

        Args:
            ranks: any whole numbers from 0, the rank of the largest count.
        """
        listed = self._rising.size
        if not listed:
            return np.zeros(ranks.shape, dtype=np.int64)
        places = np.maximum(listed - 1 - ranks, 0)
        return np.where(ranks < listed, self._rising[places], 0)

    def top(self, size: int) -> Ints:
        """Return the ``size`` largest counts in descending order, int64, shape (size,)."""
        return self.counts_of(np.arange(size))

    def number_at_least(self, values: Ints) -> Ints:
        """Return, for each value, how many labels have at least that count; int64, shape of
        ``values``.
        """
        listed = self._rising.size - np.searchsorted(self._rising, values, side="left")
        return listed + np.where(values <= 0, self._absent, 0)


class Answers(Protocol):
    """The possible answers, as lists of ranks from 0, and their integer gaps: how much worse an
    answer is than the best one, in counts. A *slack* is an upper limit on the gap.
    """

    lowest: int
    """The smallest gap; it is below 0 if there is a unique best answer, which alone has it."""
    highest: int
    """The largest gap."""

    def size(self, slack: int) -> int:
        """Return the exact number of answers with a gap of at most ``slack`` >= lowest."""

    def log_size(self, slacks: Ints) -> Floats:
        """Return the logarithm of ``size`` for each slack, in floating point, shape of
        ``slacks``.
        """

    def draw(self, slack: int, bits: Bits) -> list[int]:
        """Draw one of the answers with a gap of at most ``slack``, uniformly, as ranks."""

    def gap(self, answer: list[int]) -> int:
        """Return the gap of an answer."""


def draw_answer(answers: Answers, rate: Fraction, bits: Bits) -> list[int]:
    """Draw an answer, as ranks, with probability ∝ e^{-rate·gap}, exactly.

    Args:
        answers: the answers by their gaps.
        rate: what a gap is multiplied by; above 0.
        bits: the source of words.
    """
    if bits.listing:  # blocks of one slack refuse no answer
        slacks = range(answers.lowest, answers.highest + 1)
        blocks = [(slack, slack) for slack in slacks]
    else:
        blocks = _seldom_refused_blocks(answers, float(rate))
    cells = Cells(_weights_of_blocks(answers, blocks, rate))
    while True:
        # e^{-rate·gap} = P[slack >= gap] for a geometric slack: draw its block, an answer that fits
        # the block's end, and then whether the slack within the block reaches the answer's gap.
        (number,) = cells.draw(1, bits).tolist()
        first, last = blocks[number]
        answer = answers.draw(last, bits)
        needed_slack = answers.gap(answer) - first
        if needed_slack <= 0 or _coin_of_chance(
            partial(_chance_in_block, rate, needed_slack, last - first + 1), bits
        ):
            return answer


def uniform_below(bound: int, bits: Bits) -> int:
    """Draw a uniform integer in [0, bound), for bounds of any size; exact, by rejection."""
    if bits.listing:
        return int(bits.below(bound, 1)[0])
    # As bound > 2^(width - 1), more than half of the draws are accepted.
    width = (bound - 1).bit_length()
    words = -(-width // 64)
    while True:
        drawn = int.from_bytes(bits.uint64(words).tobytes(), "little")
        value = drawn >> (64 * words - width)
        if value < bound:
            return value


def uniform_distinct(start: int, ends: list[int], bits: Bits) -> list[int]:
    """Draw distinct numbers, the i-th uniform among those of start..ends[i]-1 that are not drawn
    yet.

    ``ends`` never falls, and ends[i] > start + i. With equal ends this is a uniform subset in a
    uniform order. It is a shuffle that stores only the entries that were moved: the entries from
    start + i on are the numbers not yet drawn, and at first each holds its own number.

    Args:
        start: the least number that can be drawn.
        ends: for each draw, the number after the largest one.
        bits: the source of words.
    """
    moved: dict[int, int] = {}
    drawn = []
    for place, end in enumerate(ends, start):
        chosen = place + uniform_below(end - place, bits)
        drawn.append(moved.get(chosen, chosen))
        moved[chosen] = moved.get(place, place)
    return drawn


def _chance_in_block(rate: Fraction, needed_slack: int, width: int) -> Decimal:
    """Return the probability that a slack of a given block is at least x = ``needed_slack`` above
    the first slack of the block: (e^{-rate·x} - e^{-rate·width})/(1 - e^{-rate·width}), to about
    the precision of the current decimal context.

    Args:
        rate: of the geometric law of the slack, above 0.
        needed_slack: x, from 1 to ``width``.
        width: how many slacks the block has.
    """
    beyond = _exp(rate * needed_slack) * _one_minus_exp(rate * (width - needed_slack))
    return beyond / _one_minus_exp(rate * width)


def _coin_of_chance(chance: Callable[[], Decimal], bits: Bits) -> bool:
    """Draw True with the probability that ``chance`` returns, exactly.

    Args:
        chance: computes the probability, accurate to all but a few digits of the decimal context
            that it is called in.
        bits: the source of words.
    """

    def units(known: int) -> int:
        """Return an integer within 1 of 2**known times the probability."""
        with precise(int(known * _DIGITS_PER_BIT) + 12):  # a few digits more than the integer has
            scaled = chance() * (1 << known)
            return int(scaled.to_integral_value(ROUND_HALF_EVEN))  # less than 1 from the exact one

    first_bits = bits.append_bits(0)  # 64 of them
    return is_below(first_bits, 64, units, bits)


def _exp(x: Fraction) -> Decimal:
    """Return e^{-x} for x >= 0, to the precision of the current decimal context.

    The error of the quotient is multiplied by x, so that as many digits as x has are added.
    """
    with precise(getcontext().prec + len(str(int(x)))):
        value = (-Decimal(x.numerator) / Decimal(x.denominator)).exp()
    return +value  # the sign rounds it to the precision of the caller's context


def _one_minus_exp(x: Fraction) -> Decimal:
    """Return 1 - e^{-x} for x > 0, to the precision of the current decimal context.

    For a small x as many digits are added as cancel.
    """
    # 1 - e^{-x} is about x, or at least 1/2; two more digits are for rounding.
    cancelled = len(str(int(1 / x)))
    with precise(getcontext().prec + cancelled + 2):
        value = 1 - _exp(x)
    return +value  # the sign rounds it to the precision of the caller's context


def _weights_of_blocks(
    answers: Answers, blocks: list[tuple[int, int]], rate: Fraction
) -> Callable[[int], list[int]]:
    """Return the weights of the blocks as `Cells` takes them: a function of a number of bits.

    The weight of a block is N(last), the number of answers with a gap of at most its last slack,
    times the probability of the block's slacks. All are divided by a power of ten near the largest.

    Args:
        answers: the answers by their gaps.
        blocks: the first and the last slack of each block, in order.
        rate: of the geometric law of a slack.
    """
    sizes = [Decimal(answers.size(last)) for _, last in blocks]

    def masses(digits: int) -> list[Decimal]:
        """Return the weight of each block, to this many digits."""
        with precise(digits):
            starts, parts = _block_chances(blocks, answers.lowest, rate)
            return list(map(_block_weight, sizes, starts, parts))

    # The exponent of the largest weight; ten digits are more than enough for it.
    unit = max(mass.adjusted() for mass in masses(10) if mass)

    def weights(bits: int) -> list[int]:
        """Return the weights in units of 2**-bits, each within 1."""
        # More digits than the weights have, for the rounding of a few operations.
        digits = int(bits * _DIGITS_PER_BIT) + 12
        with precise(digits):
            scale = Decimal(1 << bits).scaleb(-unit - 1)  # the largest weight becomes less than 1
            scaled = [mass * scale for mass in masses(digits)]
            return [int(mass.to_integral_value(ROUND_HALF_EVEN)) for mass in scaled]

    return weights


def _block_chances(
    blocks: list[tuple[int, int]], lowest: int, rate: Fraction
) -> tuple[list[Decimal], list[Decimal]]:
    """Return, for each block, the two factors of P[first <= slack <= last], for a slack g >=
    ``lowest`` with P ∝ e^{-rate·g}: P[slack >= first] = e^{-rate·(first - lowest)}, and
    P[slack <= last | slack >= first] = 1 - e^{-rate·(last - first + 1)}, which is 1 for the last
    block, as that has no end.

    Args:
        blocks: the first and the last slack of each block, in order.
        lowest: the least slack.
        rate: of the geometric law.
    """
    starts = [_exp(rate * (first - lowest)) for first, _ in blocks]
    parts = [_one_minus_exp(rate * (last - first + 1)) for first, last in blocks[:-1]]
    return starts, [*parts, Decimal(1)]


def _block_weight(size: Decimal, start: Decimal, part: Decimal) -> Decimal:
    """Return the weight of a block: the number of answers times the two factors of
    ``_block_chances``.
    """
    return size * start * part


class _BlockCuts:
    """Slacks cut into blocks [at_j, at_(j+1) - 1], with floats between which the weight of each
    block lies: the sum over its slacks g of N(g) e^{-rate·g}, N(g) the number of answers with a gap
    of at most g.

    The last block begins at the highest gap, has no end, and its weight is known.

    Args:
        answers: the possible answers.
        rate: of the exponential mechanism.
        at: slacks at which blocks must begin.

    Attributes:
        at: the first slack of each block, rising.
        low, high: bounds on the logarithms of the blocks' weights, but for one constant.
    """

    def __init__(self, answers: Answers, rate: float, at: list[int]) -> None:
        low = answers.lowest
        high = answers.highest
        self._answers = answers
        self._rate = rate
        self._sizes: dict[int, float] = {}
        # Up to a slack of -1 only the best answer fits, so that a block begins at 0.
        cuts = [min(max(low, cut), high) for cut in [0, *at]]
        self._set_cuts([low, high, *cuts])

    def _set_cuts(self, cuts: list[int]) -> None:
        """Cut the slacks at these points, and set ``at``, ``_last`` (the last slack of each block),
        ``low`` and ``high``: the blocks and the bounds on their log-weights.

        The log-weight of a block first..last, with a number of answers between N(first) and
        N(last), is ln N + ln(e^{-rate·first} - e^{-rate·(last + 1)}), but for a constant.
        """
        self.at = np.unique(np.array(cuts, dtype=np.int64))
        self._last = np.append(self.at[1:] - 1, self.at[-1])
        ends = np.unique(np.concatenate((self.at, self._last)))
        new_ends = [end for end in ends.tolist() if end not in self._sizes]
        log_sizes = self._answers.log_size(np.array(new_ends, dtype=np.int64))
        self._sizes.update(zip(new_ends, log_sizes.tolist(), strict=True))
        width = np.append(np.diff(self.at), np.inf)
        # log_share: ln P[slack in the block | slack >= first]; log_mass: ln P[slack in the block].
        # The last block has no end: its share is 1.
        log_share = np.log(-np.expm1(-self._rate * width))
        log_mass = log_share - self._rate * (self.at - self._answers.lowest)
        self.low = log_mass + self._log_sizes(self.at)
        self.high = log_mass + self._log_sizes(self._last)

    def _log_sizes(self, slacks: Ints) -> Floats:
        """Return the log-numbers of answers that are stored for these slacks, shape of
        ``slacks``.
        """
        return np.array([self._sizes[slack] for slack in slacks.tolist()])

    def bracket(self, cut: int) -> tuple[float, float]:
        """Return a lower and an upper bound on the logarithm of the weight of all slacks from
        ``cut`` on, relative to e^{-rate·lowest}.
        """
        begin = int(np.searchsorted(self.at, cut))
        low = np.logaddexp.reduce(self.low[begin:])
        high = np.logaddexp.reduce(self.high[begin:])
        return float(low), float(high)

    def log_weight(self, cut: int, ratio: float) -> float:
        """Return the middle of the bounds of ``bracket(cut)``, after blocks were halved until the
        weights that they bound are within ``ratio`` of one another.
        """
        self.refine(ratio, cut)
        low, high = self.bracket(cut)
        return (low + high) / 2

    def refine(self, ratio: float, cut: int) -> None:
        """Halve blocks until the bounds of ``bracket(cut)``, which are logarithms, are within the
        logarithm of this ratio.

        It ends because the two bounds of a block of one slack are equal.
        """
        while True:
            low, high = self.bracket(cut)
            # The negation also stops at NaN, where all weights underflow.
            if not high - low > math.log(ratio):
                return
            begin = int(np.searchsorted(self.at, cut))
            most = np.exp(self.high[begin:] - high)
            least = np.exp(self.low[begin:] - high)
            excess = most - least
            several = self._last[begin:] > self.at[begin:]
            # Only blocks of several slacks can be halved; the widest in doubt come first.
            split = begin + np.flatnonzero((excess >= excess.max() * _SPLIT_SHARE) & several)
            halves = (self._last[split] - self.at[split] + 1) // 2
            middle = self.at[split] + halves
            self._set_cuts([*self.at.tolist(), *middle.tolist()])


def _seldom_refused_blocks(answers: Answers, rate: float) -> list[tuple[int, int]]:
    """Return blocks (first, last) of slacks of which few answers are refused; any blocks give the
    same law.
    """
    cuts = _BlockCuts(answers, rate, [])
    cuts.refine(_DRAWS_PER_ANSWER, answers.lowest)
    firsts = cuts.at.tolist()
    # A block ends before the next one begins; the last one is the highest gap.
    lasts = [first - 1 for first in firsts[1:]] + firsts[-1:]
    return list(zip(firsts, lasts, strict=True))


def log_odds(answers: Answers, rate: float, cut: int, doubt: float) -> float:
    """Return ln(Σ e^{-rate·gap} / Σ e^{-rate·max(gap, cut)}) over all answers, to within ``doubt``.

    With x the exact value, an answer drawn has a gap above ``cut`` with probability at most e^{-x}.
    The second sum is the weight of the slacks from ``cut`` on; where the cut is above all gaps,
    every answer counts as having that gap. Both sums are bracketed to a ratio of e^{doubt}, and the
    middles of the brackets are used. Floating point adds an error of less than 1e-6. The result is
    at most 1e15; this cap does not increase its change between neighbours.

    Args:
        answers: the possible answers.
        rate: of the exponential mechanism.
        cut: a gap, of any size.
        doubt: the largest error, beside that of floating point.
    """
    # Where the cut is above all gaps, e^{-rate·cut} of every answer is e^{-rate·beyond} times that
    # of the highest gap.
    beyond = max(cut - answers.highest, 0)
    begin = min(max(cut, answers.lowest), answers.highest)
    blocks = _BlockCuts(answers, rate, [begin])
    ratio = math.exp(min(doubt, 1.0))  # doubt is held to 1, as e^doubt overflows from 710 on
    log_all = blocks.log_weight(answers.lowest, ratio)
    log_beyond_cut = blocks.log_weight(begin, ratio)
    return float(min(log_all - log_beyond_cut + rate * beyond, _LARGEST_ODDS))
