"""Every outcome of a sampler with its probability: a source that lists instead of drawing.

A mechanism runs unchanged on a `Listing`, once for each path of discrete choices: cells of a noise
table, coins, uniform numbers, winners of a race. Each choice names lower bounds of its
probabilities, so the listed masses are lower bounds too, and what they lack to 1 bounds all that is
not listed: paths that are too rare, and rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
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


class Listing(Bits):
    """A source that takes each path of choices in turn; its masses are in units of
    2**-LISTING_BITS.

    Args:
        least: paths with a smaller mass are left out.
    """

    listing = True

    def __init__(self, least: int) -> None:
        self._least = max(least, 1)
        self._open: list[
            list[tuple[int, int]]
        ] = []  # at each choice of the path the options that are left
        self.begin()

    def begin(self) -> Self:
        """Go back to the first choice."""
        self._depth = 0
        self.mass = 1 << LISTING_BITS
        return self

    def choose(self, masses: Callable[[], Sequence[int]]) -> int:
        """The number of an option, where ``masses`` returns lower bounds of their probabilities."""
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
    for path in range(most):
        try:
            answer = draw(bits.begin())
            found[answer] = found.get(answer, 0) + bits.mass
            if not path and draw(bits.begin()) != answer:
                raise InvalidParameter(
                    "mechanism: it does not take all its randomness from the source it is given"
                )
        except _TooRareError:
            pass
        if not bits.advance():
            return found
    raise InvalidParameter(
        f"mechanism: more than {most} paths; take fewer labels, less noise or more slack"
    )


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
