"""What mechanisms select from known counts, many draws at once: their laws in floats; for plans, never for releases."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms import (
    JointTopK,
    KnownGumbel,
    OneShotTopK,
    PartitionSelection,
    RoutedTopK,
    StabilityTopK,
    TruncatedGaussian,
    TruncatedLaplace,
    UnknownGumbel,
)
from dptopk.mechanisms.base import Thresholded
from dptopk.mechanisms.canonical import Subsets
from dptopk.mechanisms.joint import Sequences
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.mechanisms.samplers.slack import Answers, Ranked
from dptopk.mechanisms.whole import WholeAnswer

Array = np.ndarray[Any, Any]
#: The ranks of the labels chosen in each draw of a block (-1: none), and their noisy counts; shape (BLOCK, k) both.
Draw = Callable[[int], tuple[Array, Array]]

BLOCK = 64
# Slacks of whole answers are told apart to this share of those that have any weight.
SLACKS = 8192
# Slacks less likely than e^-40 are left out.
LEAST = 40.0


class Standard:
    """Standard noise, the same for every design: blocks of draws, a column a label and one more for the floor."""

    kinds = ("normal", "laplace", "exponential", "gumbel")

    def __init__(self, labels: int) -> None:
        self._shape = (BLOCK, labels + 1)
        self._first: dict[str, Array] = {}

    def block(self, kind: str, number: int) -> Array:
        """Noise of one block; "laplace": two exponential variables, of which discrete noise is made."""
        if number == 0 and kind in self._first:
            return self._first[kind]
        rng = np.random.default_rng([self.kinds.index(kind), number])
        pair = kind == "laplace"
        noise: Array = rng.exponential(size=(2, *self._shape)) if pair else getattr(rng, kind)(size=self._shape)
        if number == 0:
            self._first[kind] = noise
        return noise


def drawer(mechanism: Any, k: int, sensitivity: Sensitivity, counts: Array, standard: Standard) -> Draw:
    """How a mechanism selects from counts in falling order, float64, shape (n,), for the number of a block."""
    if isinstance(mechanism, RoutedTopK):
        return _routed(mechanism, sensitivity, counts, standard)
    if isinstance(mechanism, StabilityTopK):
        return _released(mechanism, sensitivity, counts)
    if isinstance(mechanism, tuple):  # all that coins show is counted, and the largest are kept
        coins, counting = mechanism
        return _tossed(
            coins,
            k,
            sensitivity,
            counts,
            lambda number: _noise(counting, sensitivity, lambda kind: standard.block(kind, number)),
        )
    if isinstance(mechanism, PartitionSelection):
        return _tossed(mechanism, k, sensitivity, counts)
    if isinstance(mechanism, WholeAnswer) and not isinstance(mechanism, OneShotTopK):
        return _at_once(mechanism, sensitivity, counts)
    return lambda number: _largest(mechanism, k, sensitivity, counts, lambda kind: standard.block(kind, number))


def _largest(
    mechanism: Any, k: int, sensitivity: Sensitivity, counts: Array, standard: Callable[[str], Array]
) -> tuple[Array, Array]:
    """The k largest noisy counts, those above the threshold where there is one."""
    noise = _noise(mechanism, sensitivity, standard)
    passing = np.ones((len(noise), len(counts)), dtype=np.bool_)
    if isinstance(mechanism, Thresholded):
        slots = len(counts) if mechanism.d_bar is None else min(mechanism.d_bar, len(counts))
        floor = 0.0 if mechanism.d_bar is None or slots == len(counts) else counts[slots]
        floor_noise = 0.0 if mechanism.d_bar is None else noise[:, -1:]
        counts = counts[:slots]
        above = counts + noise[:, :slots] - floor - floor_noise - mechanism.threshold_offset(sensitivity)
        passing = above > 0
        if isinstance(mechanism, TruncatedLaplace):  # integer noise, and a coin just at the threshold
            coins = _seeded("at threshold", len(counts)).random(above.shape) < mechanism.at_threshold(sensitivity)
            passing |= (above == 0) & coins
        passing &= counts > 0
    values = np.where(passing, counts + noise[:, : len(counts)], -np.inf)
    first = min(k, values.shape[1])
    chosen = np.argpartition(-values, first - 1, axis=1)[:, :first]
    values = np.take_along_axis(values, chosen, axis=1)
    order = np.argsort(-values, axis=1)  # the order of selection, to which counts are fitted
    chosen, values = np.take_along_axis(chosen, order, axis=1), np.take_along_axis(values, order, axis=1)
    return np.where(np.isfinite(values), chosen, -1), values


def _noise(mechanism: Any, sensitivity: Sensitivity, standard: Callable[[str], Array]) -> Array:
    noise: Array
    linf = sensitivity.linf
    if isinstance(mechanism, KnownGumbel | UnknownGumbel):
        noise = standard("gumbel") * (linf / mechanism.epsilon)
    elif isinstance(mechanism, OneShotTopK):
        noise = standard("exponential") * (mechanism.k * linf / mechanism.epsilon)
    elif hasattr(mechanism, "sigma"):
        noise = standard("normal") * (linf * mechanism.sigma)
    else:  # of integers: the difference of two geometric variables
        plus, minus = np.floor(standard("laplace") * (linf / mechanism.epsilon))
        noise = plus - minus
    if isinstance(mechanism, TruncatedGaussian | TruncatedLaplace):
        bound = mechanism.bound(sensitivity)
        noise = np.clip(noise, -bound, bound)
    return noise


def _integers(counts: Array) -> Array:
    return np.rint(counts).astype(np.int64)


def _seeded(purpose: str, number: int) -> np.random.Generator:
    """A stream of its own for each purpose: what routes an answer must not depend on what draws it."""
    return np.random.default_rng([len(Standard.kinds), *purpose.encode(), number])


def _at_once(mechanism: Any, sensitivity: Sensitivity, counts: Array) -> Draw:
    """A slack and an answer within it (dptopk.mechanisms.samplers.slack), slacks rounded up to one of SLACKS."""
    kind = Sequences if isinstance(mechanism, JointTopK) else Subsets
    answers = kind(Ranked(_integers(counts), 0), mechanism.k)
    ends, chances = _slacks(answers, mechanism.epsilon / (2 * sensitivity.linf))

    def draw(number: int) -> tuple[Array, Array]:
        rng = _seeded("at once", number)
        bits = random_bits(rng)
        slacks = rng.choice(ends, size=BLOCK, p=chances)
        chosen = np.array([answers.draw(int(slack), bits) for slack in slacks])
        return chosen, np.zeros(chosen.shape)

    return draw


def _slacks(answers: Answers, rate: float) -> tuple[Array, Array]:
    """Last slacks of blocks, and how likely each block is: its weight as that of answers of its last slack."""
    low, high = answers.lowest, answers.highest
    (most,) = answers.log_size(np.array([high])).tolist()
    far = min(high, low + int((most + LEAST) / rate) + 1)
    ends = np.unique(np.concatenate([np.linspace(low, far, SLACKS).astype(np.int64), [min(-1, far)]]))
    ends = ends[ends >= low]
    firsts = np.concatenate([[low], ends[:-1] + 1])
    with np.errstate(divide="ignore"):
        width = np.log(-np.expm1(-rate * (ends - firsts + 1)))
    width[-1] = 0.0  # no end
    weights = answers.log_size(ends) - rate * (firsts - low) + width
    chances = np.exp(weights - weights.max())
    return ends, chances / chances.sum()


def _routed(mechanism: RoutedTopK, sensitivity: Sensitivity, counts: Array, standard: Standard) -> Draw:
    histogram = Histogram(None, _integers(counts), sensitivity=sensitivity, domain="public")
    chance = mechanism.chance_at_once(histogram)
    whole = drawer(mechanism.whole, mechanism.k, sensitivity, counts, standard)
    peeling = drawer(mechanism.peeling, mechanism.k, sensitivity, counts, standard)

    def draw(number: int) -> tuple[Array, Array]:
        at_once = _seeded("route", number).random(BLOCK) < chance
        if at_once.all():
            return whole(number)
        chosen = peeling(number)[0]
        chosen[at_once] = whole(number)[0][at_once] if at_once.any() else chosen[at_once]
        return chosen, np.zeros(chosen.shape)

    return draw


def _tossed(
    mechanism: PartitionSelection,
    k: int,
    sensitivity: Sensitivity,
    counts: Array,
    noise: Callable[[int], Array] | None = None,
) -> Draw:
    """Of those that coins show the k of the largest noisy counts; any k, where none are counted."""
    whole = _integers(counts)

    def draw(number: int) -> tuple[Array, Array]:
        rng = _seeded("tossed", number)
        bits = random_bits(rng)
        shown = np.array([mechanism.tossed(sensitivity, whole, bits) for _ in range(BLOCK)])
        values = rng.random(shown.shape) if noise is None else counts + noise(number)[:, : len(counts)]
        values = np.where(shown, values, -np.inf)
        order = np.argsort(-values, axis=1)[:, : min(k, len(whole))]
        return np.where(np.take_along_axis(shown, order, axis=1), order, -1), np.take_along_axis(values, order, axis=1)

    return draw


def _released(mechanism: Any, sensitivity: Sensitivity, counts: Array) -> Draw:
    """Seeded answers of the mechanism itself."""
    histogram = Histogram(None, _integers(counts), sensitivity=sensitivity, domain="public")

    @lru_cache(maxsize=1)
    def draw(number: int) -> tuple[Array, Array]:
        rng = _seeded("released", number)
        chosen = np.array([mechanism.release(histogram, rng).labels for _ in range(BLOCK)], dtype=np.int64)
        return chosen, np.zeros(chosen.shape)

    return draw
