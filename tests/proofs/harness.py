"""Exact output laws on small worlds: every histogram, every neighbour, no sampling.

The decisions are those of the package: its slots, thresholds, strictness and order of rows are
called with enumerated noise, whose probabilities are the tables of its own noise laws. An outcome
is the ordered table of released labels and values. Where noise is unbounded the enumeration stops
at a radius; the divergences are then off by no more than a small multiple of the mass near and
beyond it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from dptopk.histogram.histogram import Histogram, Sensitivity, descending_order
from dptopk.mechanisms.counting_mechanism import rows_to_count
from dptopk.mechanisms.thresholds import Slots, ThresholdedMechanism, is_above_threshold

LABELS = np.array(["a", "b", "c", "d"], dtype=object)
WIDTH = 1024  # codes of one label's values
SHIFT = 256


@dataclass(frozen=True)
class World:
    """All histograms over the first ``labels`` labels with counts among ``levels``, under one
    sensitivity.
    """

    labels: int
    levels: tuple[int, ...]
    sensitivity: Sensitivity
    domain: str = "private"

    @property
    def counts(self):
        """Every histogram, shape (histograms, labels)."""
        return np.array(list(itertools.product(self.levels, repeat=self.labels)))

    def histogram(self, counts):
        """One histogram of this world."""
        return Histogram(
            LABELS[: self.labels], counts, sensitivity=self.sensitivity, domain=self.domain
        )

    def neighbours(self):
        """Pairs (smaller, larger) of row numbers of ``counts`` that differ by one user."""
        linf, l0 = self.sensitivity.linf, self.sensitivity.touched(self.labels)
        number = {tuple(row): i for i, row in enumerate(self.counts.tolist())}
        moves = [
            move
            for move in itertools.product(range(linf + 1), repeat=self.labels)
            if 0 < np.count_nonzero(move) <= l0 and sum(move) <= self.sensitivity.total(l0)
        ]
        larger = ((i, tuple(np.add(row, move))) for row, i in number.items() for move in moves)
        return np.array([(i, number[row]) for i, row in larger if row in number])


def seen_by(mechanism, histogram):
    """The slots that the mechanism looks at; for a known domain all rows, over no threshold."""
    if isinstance(mechanism, ThresholdedMechanism):
        return mechanism.slots(histogram)
    rows = rows_to_count(histogram, None, mechanism)
    return Slots(rows.labels, rows.counts, floor=0, noisy_floor=False)


def counting_law(mechanism, histogram, pmf, order=descending_order):
    """The law of the ordered table that a counting mechanism releases.

    Args:
        mechanism: of the package, or a mutant of one.
        histogram: what it runs on.
        pmf: probabilities of the noise -radius..radius on each count and on the floor.
        order: the rule for the order of rows: a function of the released values and their labels.

    Returns:
        Distinct outcome codes and their probabilities.
    """
    seen = seen_by(mechanism, histogram)
    size, radius = len(seen.counts), len(pmf) // 2
    axes = size + seen.noisy_floor
    grids = np.meshgrid(*[np.arange(-radius, radius + 1)] * axes, indexing="ij")
    noise = (
        np.stack([grid.ravel() for grid in grids], axis=-1)
        if axes
        else np.zeros((1, 0), dtype=np.int64)
    )
    mass = np.prod(pmf[noise + radius], axis=-1)
    floor_noise = noise[:, size:] if seen.noisy_floor else 0
    noise = noise[:, :size]
    if isinstance(mechanism, ThresholdedMechanism):
        offset = mechanism.threshold_offset(histogram.sensitivity)
        kept = is_above_threshold(seen.counts, noise, seen.floor, floor_noise, offset)
        just = is_above_threshold(seen.counts, noise, seen.floor, floor_noise, offset - 1) & ~kept
        noise, mass, kept = tossed(
            noise, mass, kept, just, mechanism.at_threshold(histogram.sensitivity)
        )
    else:
        kept = np.ones(noise.shape, dtype=bool)
    codes = encode(seen.counts + noise, kept, seen.labels, order)
    outcomes, place = np.unique(codes, return_inverse=True)
    return outcomes, np.bincount(place, weights=mass)


def tossed(noise, mass, kept, just, chance):
    """The same outcomes, those with values just at the threshold split by the coins of these
    values.
    """
    for slot in range(kept.shape[1] if chance else 0):
        on = just[:, slot]
        shown = kept[on].copy()
        shown[:, slot] = True
        mass = np.concatenate([np.where(on, (1 - chance) * mass, mass), chance * mass[on]])
        noise, just = np.concatenate([noise, noise[on]]), np.concatenate([just, just[on]])
        kept = np.concatenate([kept, shown])
    return noise, mass, kept


def encode(values, kept, labels, order):
    """One integer for each row: the released (label, value) pairs in the order that the rule gives
    them.
    """
    size = values.shape[1]
    if values.size and not -SHIFT <= values.min() <= values.max() < WIDTH - SHIFT:
        raise ValueError("values outside the codes")
    digits = np.where(kept, 1 + np.searchsorted(LABELS, labels) * WIDTH + values + SHIFT, 0)
    # The order depends only on which rows are kept and how their values compare: ask once for each
    # such pattern.
    pairs = list(itertools.combinations(range(size), 2))
    compared = [np.sign(values[:, i] - values[:, j]) + 1 for i, j in pairs]
    pattern = np.zeros(len(values), dtype=np.int64)
    for column in [*compared, *kept.T]:
        pattern = pattern * 3 + column
    codes = np.zeros(len(values), dtype=np.int64)
    _, first, place = np.unique(pattern, return_index=True, return_inverse=True)
    for number, example in enumerate(first):
        rows = np.flatnonzero(kept[example])
        rows = rows[order(values[example][rows], labels[rows])]
        chosen = place == number
        code = np.zeros(chosen.sum(), dtype=np.int64)
        for row in rows:
            code = code * (len(LABELS) * WIDTH + 1) + digits[chosen, row]
        codes[chosen] = code
    return codes


def laws(world, law_of):
    """The laws of all histograms of a world as one matrix, shape (histograms, outcomes).

    ``law_of`` maps a histogram to its distinct outcomes (any sortable values) and their
    probabilities.
    """
    each = [law_of(world.histogram(counts)) for counts in world.counts]
    outcomes = np.unique(np.concatenate([codes for codes, _ in each]))
    matrix = np.zeros((len(each), len(outcomes)))
    for row, (codes, mass) in zip(matrix, each, strict=True):
        row[np.searchsorted(outcomes, codes)] = mass
    return matrix


def hockey_stick(matrix, pairs, epsilons):
    """The largest hockey-stick divergence over all pairs, in both directions, at each ε (inf: mass
    the other lacks).
    """
    worst = np.zeros(len(epsilons))
    for chunk in np.array_split(pairs, max(1, len(pairs) * matrix.shape[1] // 2**22)):
        for one, other in (chunk.T, chunk.T[::-1]):
            P, Q = matrix[one], matrix[other]
            for i, epsilon in enumerate(epsilons):
                excess = (
                    np.where(Q == 0, P, 0.0)
                    if epsilon == math.inf
                    else np.maximum(P - math.exp(epsilon) * Q, 0.0)
                )
                worst[i] = max(worst[i], excess.sum(axis=1).max())
    return worst
