"""Every outcome of a sampler with its probability: a source that lists instead of drawing.

A mechanism runs unchanged on a `Listing`, once for each path of discrete choices: cells of a noise
table, coins, uniform numbers, winners of a race. Each choice names lower bounds of its
probabilities, so the listed masses are lower bounds too, and what they lack to 1 bounds all that is
not listed: paths that are too rare, and rounding. Where a plan says that of all that was drawn only
a state matters for what follows (``narrow``), such as which labels were found, the paths that come
to one state go on as one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import lcm
from typing import Self, TypeVar

import numpy as np

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.exact import exp_units
from dptopk.mechanisms.samplers.random import LISTING_BITS, Array, Bits, Ints, Word

Answer = TypeVar("Answer", bound=Hashable)


class _TooRareError(Exception):
    """All continuations of a path are too rare."""


class _NarrowedError(Exception):
    """A path has come to a state on which alone all that follows depends."""

    def __init__(self, state: Hashable) -> None:
        super().__init__()
        self.state = state


@dataclass
class _Start:
    """Where paths begin that have come to one state.

    Attributes:
        options: of the choices of one path that comes there.
        mass: of all paths that do.
    """

    options: list[int]
    mass: int


class Listing(Bits):
    """A source that takes each path of choices in turn; its masses are in units of
    2**-LISTING_BITS.

    Args:
        least: paths with a smaller mass are left out.
    """

    listing = True

    def __init__(self, least: int) -> None:
        self._least = max(least, 1)
        self.go_on(_Start([], 1 << LISTING_BITS), 0)

    def go_on(self, start: _Start, narrowed: int) -> None:
        """List the paths from a start, which comes after this many states."""
        self._start = start
        self._narrowed = narrowed
        self._open: list[
            list[tuple[int, int]]
        ] = []  # at each choice of the path the options that are left
        self.begin()

    def begin(self) -> Self:
        """Go back to the first choice."""
        self._repeated = 0
        self._passed = 0
        self._depth = 0
        self.mass = self._start.mass
        return self

    def choose(self, masses: Callable[[], Sequence[int]]) -> int:
        """The number of an option, where ``masses`` returns lower bounds of their probabilities."""
        if self._repeated < len(self._start.options):
            self._repeated += 1
            return self._start.options[self._repeated - 1]
        if self._depth == len(self._open):
            likely = [
                (i, m)
                for i, m in enumerate(masses())
                if self.mass * m >> LISTING_BITS >= self._least
            ]
            if not likely:
                self.mass = 0
                raise _TooRareError
            self._open.append(likely)
        option, mass = self._open[self._depth][-1]
        self._depth = self._depth + 1
        self.mass = self.mass * mass >> LISTING_BITS
        return option

    def narrow(self, state: Callable[[], Hashable]) -> None:
        """Stop here, to go on from this state once for all paths that come to it."""
        if self._passed == self._narrowed:
            raise _NarrowedError(state())
        self._passed += 1

    def options(self) -> list[int]:
        """The choices of this path, from the first one of all."""
        return [*self._start.options, *(left[-1][0] for left in self._open[: self._depth])]

    def advance(self) -> bool:
        """Turn to the next path; False after the last."""
        if self._depth != len(self._open):
            raise InvalidParameter(
                "mechanism: it does not make the same choices when it is run again"
            )
        while self._open:
            self._open[-1].pop()
            if self._open[-1]:
                return True
            self._open.pop()
        return False

    def below(self, bound: int, size: int) -> Ints:
        """Each of the integers in [0, bound), ``size`` times."""
        each = (1 << LISTING_BITS) // bound
        return np.array([self.choose(lambda: [each] * bound) for _ in range(size)], dtype=np.int64)

    def low_bits(self, size: int, width: int) -> Ints:
        """Each of the integers in [0, 2**width)."""
        return self.below(1 << width, size)

    def words(self, size: int, word: Word) -> Array:
        """Refused: words are read where a law has no finite list.

        Raises:
            InvalidParameter: always.
        """
        raise InvalidParameter(
            "mechanism: its sampler reads random words that cannot be listed one by one"
        )


def outcomes(draw: Callable[[Listing], Answer], least: int, most: int) -> dict[Answer, int]:
    """Lower bounds of the probabilities of the answers, in units of 2**-LISTING_BITS.

    Args:
        draw: takes all its randomness from the source.
        least: paths with a smaller mass are left out.
        most: paths that may be taken.

    Raises:
        InvalidParameter: when there are more paths, or the sampler has no finite list of choices.
    """
    bits = Listing(least)
    found: dict[Answer, int] = {}
    starts = [_Start([], 1 << LISTING_BITS)]
    narrowed = 0
    left = most
    while starts:
        states: dict[Hashable, _Start] = {}
        for start in starts:
            bits.go_on(start, narrowed)
            left = _listed_from(bits, draw, found, states, left)
            if not left:
                raise InvalidParameter(
                    f"mechanism: more than {most} paths; take fewer labels, less noise or more "
                    "slack"
                )
        starts = list(states.values())
        narrowed += 1
    return found


def _listed_from(
    bits: Listing,
    draw: Callable[[Listing], Answer],
    found: dict[Answer, int],
    states: dict[Hashable, _Start],
    most: int,
) -> int:
    """Add the paths from one start to the answers, or to the states to which they come.

    Returns:
        How many paths may still be taken; 0 where there are more.
    """
    for path in range(most):
        answer = _end_of(bits, draw)
        if isinstance(answer, _NarrowedError):
            start = states.setdefault(answer.state, _Start(bits.options(), 0))
            start.mass += bits.mass
        elif not isinstance(answer, _TooRareError):
            found[answer] = found.get(answer, 0) + bits.mass
        if not path and not _same(answer, _end_of(bits, draw)):
            raise InvalidParameter(
                "mechanism: it does not take all its randomness from the source it is given"
            )
        if not bits.advance():
            return most - path
    return 0


def _end_of(
    bits: Listing, draw: Callable[[Listing], Answer]
) -> Answer | _NarrowedError | _TooRareError:
    """The answer at the end of a path, or why it ends before."""
    try:
        return draw(bits.begin())
    except (_NarrowedError, _TooRareError) as end:
        return end


def _same(one: Hashable, other: Hashable) -> bool:
    """Whether two runs of one path came to the same end."""
    if isinstance(one, _NarrowedError) and isinstance(other, _NarrowedError):
        return one.state == other.state
    if isinstance(one, _TooRareError):
        return isinstance(other, _TooRareError)
    return one == other


def peeled(heights: list[Fraction], rate: Fraction, need: int, end: int, bits: Bits) -> list[int]:
    """The first ``need`` labels of a race, up to ``end``: each is drawn from the rest, P ∝
    e^{rate·height}.

    That a race of exponential clocks has this law is proven in docs/notes/exact-sampling.md, not
    listed.
    """
    left = list(range(len(heights)))
    chosen = list[int]()
    while left and len(chosen) < need and end not in chosen:
        top = max(heights[label] for label in left)
        exponents = [rate * (top - heights[label]) for label in left]
        chosen.append(left.pop(bits.choose(partial(_shares, exponents))))
    return chosen


def _shares(exponents: list[Fraction]) -> list[int]:
    """Lower bounds of e^{-x} over their sum."""
    common = lcm(*(x.denominator for x in exponents))
    units = exp_units([int(x * common) for x in exponents], common, LISTING_BITS + 16)
    most = sum(units) + len(units)
    return [(max(unit - 1, 0) << LISTING_BITS) // most for unit in units]
