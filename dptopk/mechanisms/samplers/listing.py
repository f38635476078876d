"""A source of randomness that enumerates all outcomes of a sampler with their probabilities.

A mechanism runs unchanged on a `Listing`, once for each path of discrete choices: cells of a noise
table, coins, uniform numbers, winners of a race. Each choice names lower bounds of its
probabilities, so the listed masses are lower bounds too, and what they lack to 1 bounds all that is
not listed: paths that are too rare, and rounding. Where everything that follows depends only on a
state (``narrow``), such as which labels were found, the paths that reach one state are continued as
one.
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
    """Raised where all continuations of a path are too rare to be listed."""


class _StateReachedError(Exception):
    """Raised where a path has reached a state on which alone everything that follows depends."""

    def __init__(self, state: Hashable) -> None:
        super().__init__()
        self.state = state


@dataclass
class _Start:
    """A state from which paths are continued, once for all paths that reach it.

    Attributes:
        options: the choices of one path that reaches the state.
        mass: the mass of all paths that reach it.
    """

    options: list[int]
    mass: int


class Listing(Bits):
    """A source that takes every path of choices in turn: a sampler is run on it again and again
    (``begin``), takes the options that ``choose`` returns, and ``advance`` turns to the next path.

    Attributes:
        mass: lower bound on the probability of the path so far, in units of 2**-LISTING_BITS.

    Args:
        least: paths with a smaller mass, in these units, are left out.
    """

    listing = True

    def __init__(self, least: int) -> None:
        self._least = max(least, 1)
        self.continue_from(_Start([], 1 << LISTING_BITS), 0)

    def continue_from(self, start: _Start, narrowed: int) -> None:
        """Begin to list the paths that start in a state.

        Args:
            start: the state.
            narrowed: how many times a path calls ``narrow`` on its way to the state, the call that
                reaches it included; 0 for the paths from the first choice on.
        """
        self._start = start
        self._calls_before_start = narrowed
        # For each choice of the path, the options not yet finished, as (number, mass). The last one
        # of each list is that of the current path.
        self._unfinished: list[list[tuple[int, int]]] = []
        self.begin()

    def begin(self) -> Self:
        """Go back to the first choice of the current path, so that the sampler can be run on it;
        return this source.
        """
        self._repeated = 0  # choices that the current run has made on its way to the start
        self._calls = 0  # calls of ``narrow`` in the current run
        self._depth = 0  # choices that it has made after the start
        self.mass = self._start.mass
        return self

    def choose(self, masses: Callable[[], Sequence[int]]) -> int:
        """Return the number of the option that the current path takes: one that was taken on the
        way to its start, or the last one that is not finished yet.

        Args:
            masses: returns lower bounds on the probabilities of all options, in units of
                2**-LISTING_BITS.

        Raises:
            _TooRareError: where all paths from here on have less than the least mass.
        """
        if self._repeated < len(self._start.options):
            self._repeated += 1
            return self._start.options[self._repeated - 1]
        if self._depth == len(self._unfinished):  # the path has not come to this choice before
            likely = []
            for option, mass in enumerate(masses()):
                if self.mass * mass >> LISTING_BITS >= self._least:
                    likely.append((option, mass))
            if not likely:
                self.mass = 0
                raise _TooRareError
            self._unfinished.append(likely)
        option, mass = self._unfinished[self._depth][-1]
        self._depth = self._depth + 1
        self.mass = self.mass * mass >> LISTING_BITS
        return option

    def narrow(self, state: Callable[[], Hashable]) -> None:
        """End the path here, so that all paths with this state are continued as one; do nothing if
        the path starts from this or a later state.

        Args:
            state: returns the state on which alone everything that follows depends.

        Raises:
            _StateReachedError: with the state, where the path ends.
        """
        if self._calls == self._calls_before_start:
            raise _StateReachedError(state())
        self._calls += 1

    def options(self) -> list[int]:
        """Return the numbers of the options that the current path has taken, from the very first
        choice on.
        """
        options = list(self._start.options)
        for unfinished_options in self._unfinished[: self._depth]:
            option, _ = unfinished_options[-1]
            options.append(option)
        return options

    def advance(self) -> bool:
        """Turn to the next path, after the current one was run to its end; return False after the
        last one.

        The last choice of the path takes its next option; a choice that has none left is finished,
        and then the choice before it takes its next one.

        Raises:
            InvalidParameter: where the mechanism did not repeat its choices.
        """
        if self._depth != len(self._unfinished):
            raise InvalidParameter(
                "mechanism: it does not make the same choices when it is run again"
            )
        while self._unfinished:
            options = self._unfinished[-1]
            options.pop()
            if options:
                return True
            self._unfinished.pop()
        return False

    def below(self, bound: int, size: int) -> Ints:
        """Choose ``size`` integers in [0, bound), each with the same probability; int64, shape
        (size,).
        """
        mass = (1 << LISTING_BITS) // bound
        return np.array([self.choose(lambda: [mass] * bound) for _ in range(size)], dtype=np.int64)

    def low_bits(self, size: int, width: int) -> Ints:
        """Choose ``size`` integers in [0, 2**width), int64, shape (size,)."""
        return self.below(1 << width, size)

    def words(self, size: int, word: Word) -> Array:
        """Refuse, because a sampler that reads whole words has too many outcomes to list.

        Raises:
            InvalidParameter: always.
        """
        raise InvalidParameter(
            "mechanism: its sampler reads random words that cannot be listed one by one"
        )


def outcomes(draw: Callable[[Listing], Answer], least: int, most: int) -> dict[Answer, int]:
    """Return every answer of a sampler with a lower bound on its probability, in units of
    2**-LISTING_BITS.

    Args:
        draw: the sampler; it must take all its randomness from the given source.
        least: paths with a smaller mass, in these units, are left out.
        most: how many paths may be taken, at least 1. Of the paths from each state the last one is
            not counted, so that a sampler whose states lead on in one way is never refused.

    Raises:
        InvalidParameter: when there are more paths, or the sampler has no finite list of choices.
    """
    bits = Listing(least)
    masses: dict[Answer, int] = {}
    starts = [_Start([], 1 << LISTING_BITS)]
    narrowed = 0
    remaining = most
    # All paths from the first choice on, then from the states in which they ended, and so on.
    while starts:
        states: dict[Hashable, _Start] = {}
        for start in starts:
            bits.continue_from(start, narrowed)
            remaining = _list_paths(bits, draw, masses, states, remaining)
            if not remaining:
                raise InvalidParameter(
                    f"mechanism: more than {most} paths; take fewer labels, less noise or more "
                    "slack"
                )
        starts = list(states.values())
        narrowed += 1
    return masses


def _list_paths(
    bits: Listing,
    draw: Callable[[Listing], Answer],
    masses: dict[Answer, int],
    states: dict[Hashable, _Start],
    most: int,
) -> int:
    """Take all paths from the current start of a source, and add their masses to ``masses`` and to
    ``states``.

    Args:
        bits: the source.
        draw: the sampler.
        masses: the answers, to which the mass of a path that ends is added.
        states: the states, to which the mass of a path that is narrowed is added.
        most: how many paths may be taken, at least 1.

    Returns:
        ``most`` less the number of paths before the last one, which is at least 1; 0 if there were
        more than ``most``.

    Raises:
        InvalidParameter: when a path does not end the same way if it is taken again.
    """
    for path in range(most):
        end = _run_path(bits, draw)
        if isinstance(end, _StateReachedError):
            start = states.setdefault(end.state, _Start(bits.options(), 0))
            start.mass += bits.mass
        elif not isinstance(end, _TooRareError):
            masses[end] = masses.get(end, 0) + bits.mass
        # One path is run twice, to see whether it depends on anything but the source.
        if path == 0 and not _is_same_end(end, _run_path(bits, draw)):
            raise InvalidParameter(
                "mechanism: it does not take all its randomness from the source it is given"
            )
        if not bits.advance():
            return most - path
    return 0


def _run_path(
    bits: Listing, draw: Callable[[Listing], Answer]
) -> Answer | _StateReachedError | _TooRareError:
    """Run the sampler on the current path; return its answer, or the reason why the path ends
    without one.
    """
    try:
        return draw(bits.begin())
    except (_StateReachedError, _TooRareError) as reason:
        return reason


def _is_same_end(first: Hashable, second: Hashable) -> bool:
    """Return whether two runs of one path ended in the same way."""
    if isinstance(first, _StateReachedError) and isinstance(second, _StateReachedError):
        return first.state == second.state
    if isinstance(first, _TooRareError):
        return isinstance(second, _TooRareError)
    return first == second


def peel_labels(
    heights: list[Fraction], rate: Fraction, need: int, end: int, bits: Bits
) -> list[int]:
    """Draw labels one after the other without replacement, with P ∝ e^{rate·height}; the order in
    which exponential clocks ring has this law (docs/notes/exact-sampling.md).

    Args:
        heights: the scores of the labels 0, 1, ...
        rate: how fast log-probabilities grow with the score.
        need: how many labels to draw.
        end: the label, such as that of a stop element, after which drawing stops; a number that is
            no label where there is none.
        bits: a source that lists.

    Returns:
        The labels in the order of the draws, at most ``need``.
    """
    remaining = list(range(len(heights)))
    drawn = list[int]()
    while remaining and len(drawn) < need and end not in drawn:
        top = max(heights[label] for label in remaining)
        exponents = [rate * (top - heights[label]) for label in remaining]
        index = bits.choose(partial(_softmax_units, exponents))
        drawn.append(remaining.pop(index))
    return drawn


def _softmax_units(exponents: list[Fraction]) -> list[int]:
    """Return lower bounds on the shares e^{-x} / Σ e^{-x} of each x, in units of
    2**-LISTING_BITS.
    """
    common = lcm(*(x.denominator for x in exponents))
    # Sixteen bits more than are returned; a unit is within 1 of e^{-x}, and so the sum within n.
    units = exp_units([int(x * common) for x in exponents], common, LISTING_BITS + 16)
    most = sum(units) + len(units)
    return [(max(unit - 1, 0) << LISTING_BITS) // most for unit in units]
