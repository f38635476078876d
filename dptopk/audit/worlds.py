"""Worlds: the small neighbouring histograms on which audits search and attestations enumerate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import Domain
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.planning.protocol import reading_of

Counts = dict[str, int]  # label -> count
LabelSet = tuple[int, ...]  # some labels, by their places 0, 1, ... in the alphabet
Move = tuple[int, ...]  # the amount that one user adds to the count of each label
# The most histograms, or pairs of a histogram and a move, that fit into memory.
MOST_IN_MEMORY = 4_000_000
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _counts_with_user(counts: Sequence[int], move: Move) -> tuple[int, ...]:
    """Return the counts of a histogram after a user was added who adds ``move`` to them."""
    return tuple(count + step for count, step in zip(counts, move, strict=True))


@dataclass(frozen=True)
class Pair:
    """Two neighbouring histograms as dicts label -> count; ``larger`` has one more user."""

    smaller: Counts
    larger: Counts


@dataclass(frozen=True)
class World:
    """A set of small histograms and the moves of one user between them.

    Attributes:
        sensitivity: how many labels one user moves (l0), and how far (linf); with l2 the counts
            are sums of weights, to which a user of d labels adds isqrt(l2**2 // d) each, the most
            that is allowed; users who add less are not enumerated (docs/audit.md).
        labels: number of labels that may occur, from 1 to 26.
        largest: largest count of the smaller histogram; counts are 0, 1, 2, 3, 5, 8, ... and the
            values near ``near``.
        public: whether labels of count 0 are listed (a public domain) or absent (a private one).
        near: counts of special interest, such as a threshold.
    """

    sensitivity: Sensitivity = field(default_factory=lambda: Sensitivity(l0=1))
    labels: int = 3
    largest: int = 64
    public: bool = False
    near: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse numbers out of their ranges.

        Raises:
            InvalidParameter: for such a number.
        """
        validate.count(labels=self.labels, at_most=len(LETTERS))
        validate.positive(largest=self.largest)

    def levels(self) -> list[int]:
        """Return the counts that histograms have, sorted: 0, the Fibonacci numbers up to
        ``largest`` (and 1 and 2 in any case), and the values of ``near`` with their neighbours.
        """
        levels = {0, 1, 2}
        number = 2
        following = 3
        while number <= self.largest:
            levels.add(number)
            number, following = following, number + following
        for value in self.near:
            levels.update((value - 1, value, value + 1))
        return sorted(level for level in levels if level >= 0)

    def _every_move(self) -> list[Move]:
        """Return all moves of one user who is added; for sums of weights only the largest one on
        each set of labels.
        """
        if self.sensitivity.l2 is not None:
            return self._weight_moves(self.sensitivity.l2)
        most = self.sensitivity.touched(self.labels)
        total = self.sensitivity.total(most)
        steps = range(self.sensitivity.linf + 1)
        moves = itertools.product(steps, repeat=self.labels)
        within_l0 = (move for move in moves if 0 < np.count_nonzero(move) <= most)
        return [move for move in within_l0 if sum(move) <= total]

    def pairs(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield neighbouring pairs without end: first those whose smaller histogram is empty or has
        ties only, then random ones.

        Raises:
            InvalidParameter: where one user may touch too many sets of labels to try them all.
        """
        moves = self._tried_moves()
        levels = self.levels()
        for level, move in itertools.product(levels, moves):
            yield self._pair_of_move([level] * self.labels, move)
        while True:
            base = rng.choice(levels, size=self.labels).tolist()
            yield self._pair_of_move(base, moves[rng.integers(len(moves))])

    def _tried_moves(self) -> list[Move]:
        """Return the changes by one user that an audit tries, sorted: the largest one on each set
        of labels, and a change by 1 on one label; for weights, the largest ones alone.

        Raises:
            InvalidParameter: where one user may touch too many sets of labels to try them all.
        """
        if self.sensitivity.l2 is not None:
            return self._weight_moves(self.sensitivity.l2)
        moves = {self._largest_move(labels) for labels in self._touched_sets()}
        for label in range(self.labels):
            single = [0] * self.labels
            single[label] = 1
            moves.add(tuple(single))
        return sorted(moves)

    def _touched_sets(self) -> Iterator[LabelSet]:
        """Return all sets of labels that one user may touch.

        Raises:
            InvalidParameter: where there are too many to try them all.
        """
        most = self.sensitivity.touched(self.labels)
        self._refuse_many(sum(math.comb(self.labels, size) for size in range(most + 1)))
        sizes = range(1, most + 1)
        return itertools.chain.from_iterable(
            itertools.combinations(range(self.labels), size) for size in sizes
        )

    def _weight_moves(self, l2: int) -> list[Move]:
        """Return the largest changes by one user of sums of weights, sorted: for each set of d
        labels isqrt(l2**2 // d) on each, the largest integer with which the norm is at most l2.
        """
        moves: list[Move] = []
        for labels in self._touched_sets():
            weight = math.isqrt(l2 * l2 // len(labels))
            move = [0] * self.labels
            for label in labels:
                move[label] = weight
            moves.append(tuple(move))
        return sorted(moves)

    def _largest_move(self, labels: LabelSet) -> Move:
        """Return the change by linf on each of these labels, in their order, until the cap on a
        user's total is used up.
        """
        move = [0] * self.labels
        remaining = self.sensitivity.total(len(labels))
        for label in labels:
            move[label] = min(self.sensitivity.linf, remaining)
            remaining -= move[label]
        return tuple(move)

    def _pair_of_move(self, base: list[int], move: Move) -> Pair:
        """Return the pair of the histogram with the counts ``base`` and the one after a move."""
        with_user = _counts_with_user(base, move)
        return Pair(self.counts_by_label(base), self.counts_by_label(with_user))

    def counts_by_label(self, counts: Sequence[int]) -> Counts:
        """Return the histogram with these counts of the labels a, b, ...; labels of count 0 are
        left out unless the domain is public.
        """
        names = zip(LETTERS, counts, strict=False)
        return {name: count for name, count in names if count or self.public}

    def histograms(self) -> list[tuple[int, ...]]:
        """Return all histograms of this world: of each the counts of the labels a, b, ...

        Raises:
            InvalidParameter: where there are too many of them, or of their neighbours.
        """
        # What a user can do to a label: a weight is added or not; a count is moved by 0 to linf.
        steps = 2 if self.sensitivity.l2 is not None else 1 + self.sensitivity.linf
        levels = self.levels()
        self._refuse_many((len(levels) * steps) ** self.labels)
        return list(itertools.product(levels, repeat=self.labels))

    def histogram_reader(self, mechanism: object) -> Callable[[Sequence[int]], Histogram]:
        """Return the function with which an attestation makes a Histogram of counts of the labels
        a, b, ... It is the same for every mechanism that reads one histogram.

        Args:
            mechanism: the mechanism or plan that is attested.

        Raises:
            InvalidParameter: for a plan that reads events twice.
        """
        if reading_of(mechanism, self.sensitivity).finding is not None:
            raise InvalidParameter(
                "world: the plan finds and counts labels of events in two phases; attest it on an "
                "EventsWorld"
            )
        domain: Domain = "public" if self.public else "private"

        def read(counts: Sequence[int]) -> Histogram:
            """Return the histogram with these counts of the labels a, b, ..."""
            count_of = self.counts_by_label(counts)
            labels = list(count_of)
            values = list(count_of.values())
            return Histogram(labels, values, sensitivity=self.sensitivity, domain=domain)

        return read

    def size_in_words(self) -> str:
        """Return the numbers of histograms and pairs, and the sensitivity, in words."""
        histograms = len(self.histograms())
        pairs = len(self.neighbours())
        return f"{histograms} histograms, {pairs} pairs of neighbours, {self.sensitivity}"

    def fields_of_file(self) -> dict[str, Any]:
        """Return the fields of an attestation's file that say which histograms it enumerates."""
        caps = {"l1": self.sensitivity.l1, "l2": self.sensitivity.l2}
        capped = {name: cap for name, cap in caps.items() if cap is not None}
        return capped | {
            "format": "dptopk attestation 1",
            "linf": self.sensitivity.linf,
            "l0": self.sensitivity.l0,
            "labels": self.labels,
            "levels": self.levels(),
            "domain": "public" if self.public else "private",
        }

    def _refuse_many(self, number: int) -> None:
        """Raise InvalidParameter if this many objects would not fit into memory."""
        if number > MOST_IN_MEMORY:
            raise InvalidParameter(
                f"labels={self.labels} are too many with these caps and counts; take fewer"
            )

    def neighbours(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return all pairs of these histograms that differ by one user: (without, with).

        Raises:
            InvalidParameter: as ``histograms``.
        """
        levels = set(self.levels())
        histograms = self.histograms()  # refuses a large world before its moves are listed
        moves = self._every_move()
        pairs: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        for without in histograms:
            for move in moves:
                with_user = _counts_with_user(without, move)
                if set(with_user) <= levels:
                    pairs.append((without, with_user))
        return pairs
