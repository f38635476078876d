"""Small neighbouring histograms: where an audit looks."""

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
from dptopk.planning.protocol import Plan

Counts = dict[str, int]
Places = tuple[int, ...]  # labels by their numbers
Move = tuple[int, ...]  # what one user adds to each label
MOST = 4_000_000  # histograms, or these times changes by one user
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _moved(counts: Sequence[int], move: Move) -> tuple[int, ...]:
    """The counts after one user was added."""
    return tuple(count + step for count, step in zip(counts, move, strict=True))


@dataclass(frozen=True)
class Pair:
    """Two neighbouring histograms: label -> count; the larger one has one more user."""

    smaller: Counts
    larger: Counts


@dataclass(frozen=True)
class World:
    """The neighbouring histograms that are searched.

    Attributes:
        sensitivity: how many labels one user moves (l0), and how far (linf); with l2 the counts
            are sums of weights, to which a user of d labels adds isqrt(l2**2 // d) each.
        labels: labels that may occur, at least 1, at most 26.
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
        validate.count(labels=self.labels, at_most=len(LETTERS))
        validate.positive(largest=self.largest)

    def levels(self) -> list[int]:
        """Counts that are tried: Fibonacci numbers, dense where small, and what is near the special
        ones.
        """
        found = {0, 1, 2}
        step = (2, 3)
        while step[0] <= self.largest:
            found.add(step[0])
            step = (step[1], step[0] + step[1])
        close = {value + shift for value in self.near for shift in (-1, 0, 1)}
        return sorted(found | {value for value in close if value >= 0})

    def _every_move(self) -> list[Move]:
        """All changes by one user."""
        if self.sensitivity.l2 is not None:
            return self._weights(self.sensitivity.l2)
        most = self.sensitivity.touched(self.labels) or self.labels
        total = self.sensitivity.total(most)
        every = itertools.product(range(self.sensitivity.linf + 1), repeat=self.labels)
        few = (move for move in every if 0 < np.count_nonzero(move) <= most)
        return [move for move in few if sum(move) <= total]

    def pairs(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Pairs without end: first the empty histogram and ties, then random ones."""
        moves = self._moves()
        levels = self.levels()
        for level, move in itertools.product(levels, moves):
            yield self._pair([level] * self.labels, move)
        while True:
            base = rng.choice(levels, size=self.labels).tolist()
            yield self._pair(base, moves[rng.integers(len(moves))])

    def _moves(self) -> list[Move]:
        """Return the changes tried for one user: the whole linf on up to l0 labels, and 1 on one
        label; of a capped total, as much of it as is left for each label; of weights, all.
        """
        if self.sensitivity.l2 is not None:
            return self._weights(self.sensitivity.l2)
        found = {self._move(chosen) for chosen in self._touched_sets()}
        for label in range(self.labels):
            single = [0] * self.labels
            single[label] = 1
            found.add(tuple(single))
        return sorted(found)

    def _touched_sets(self) -> Iterator[Places]:
        """The sets of labels that one user may touch."""
        most = self.sensitivity.touched(self.labels) or self.labels
        self._few(sum(math.comb(self.labels, size) for size in range(most + 1)))
        sizes = range(1, most + 1)
        return itertools.chain.from_iterable(
            itertools.combinations(range(self.labels), size) for size in sizes
        )

    def _weights(self, l2: int) -> list[Move]:
        """Return what users of each set of labels add: the same whole number to each label of
        theirs.
        """
        found: list[Move] = []
        for chosen in self._touched_sets():
            weight = math.isqrt(l2 * l2 // len(chosen))
            found.append(tuple(weight * (label in chosen) for label in range(self.labels)))
        return sorted(found)

    def _move(self, chosen: Places) -> Move:
        """The whole linf on each chosen label, in their order, until the total is used up."""
        move = [0] * self.labels
        left = self.sensitivity.total(len(chosen))
        for label in chosen:
            move[label] = min(self.sensitivity.linf, left)
            left -= move[label]
        return tuple(move)

    def _pair(self, base: list[int], move: tuple[int, ...]) -> Pair:
        return Pair(self.named(base), self.named(_moved(base, move)))

    def named(self, counts: Sequence[int]) -> Counts:
        """The histogram with these counts of the labels a, b, ..."""
        return {
            name: count
            for name, count in zip(LETTERS, counts, strict=False)
            if count or self.public
        }

    def histograms(self) -> list[tuple[int, ...]]:
        """The counts of all histograms with these levels.

        Raises:
            InvalidParameter: where there are too many of them, or of their neighbours.
        """
        steps = 2 if self.sensitivity.l2 is not None else 1 + self.sensitivity.linf
        levels = self.levels()
        self._few((len(levels) * steps) ** self.labels)
        return list(itertools.product(levels, repeat=self.labels))

    def reader(self, mechanism: object) -> Callable[[Sequence[int]], Histogram]:
        """Return what makes the histogram of these counts, the same for every mechanism.

        Raises:
            InvalidParameter: for a plan that reads events twice.
        """
        if isinstance(mechanism, Plan) and mechanism.reading.finding is not None:
            raise InvalidParameter(
                "world: the plan finds and counts labels of events in two phases; attest it on an "
                "EventsWorld"
            )
        domain: Domain = "public" if self.public else "private"

        def read(counts: Sequence[int]) -> Histogram:
            named = self.named(counts)
            labels, values = list(named), list(named.values())
            return Histogram(labels, values, sensitivity=self.sensitivity, domain=domain)

        return read

    def size(self) -> str:
        """How much is looked at, in words."""
        histograms = len(self.histograms())
        pairs = len(self.neighbours())
        return f"{histograms} histograms, {pairs} pairs of neighbours, {self.sensitivity}"

    def stated(self) -> dict[str, Any]:
        """The fields of an attestation's file that say which histograms are listed."""
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

    def _few(self, number: int) -> None:
        """Refuse a world that memory does not hold."""
        if number > MOST:
            raise InvalidParameter(
                f"labels={self.labels} are too many with these caps and counts; take fewer"
            )

    def neighbours(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """All pairs of them that differ by one user: (without, with)."""
        levels = set(self.levels())
        histograms = (
            self.histograms()
        )  # refuses a world that is too large before its moves are listed
        moves = self._every_move()
        moved = ((one, _moved(one, move)) for one in histograms for move in moves)
        return [(one, other) for one, other in moved if set(other) <= levels]
