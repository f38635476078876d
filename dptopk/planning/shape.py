"""Counts to plan for: public or already released, and what a design would make of them, by simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram, Sensitivity
from dptopk.mechanisms import (
    CountMLE,
    KnownGumbel,
    KnownLaplace,
    RoutedTopK,
    StabilityTopK,
    TruncatedGaussian,
    TruncatedLaplace,
    UnknownGumbel,
)
from dptopk.mechanisms.base import Thresholded
from dptopk.mechanisms.whole import WholeAnswer
from dptopk.release import Release

__all__ = ["Outcome", "Shape"]

Array = np.ndarray[Any, Any]
# A shape is cut to its largest counts; smaller ones hardly ever come into the top k.
LONGEST = 5000
DRAWS = 64
FITS = 24


@dataclass(frozen=True)
class Outcome:
    """What a design does to a shape, on average over simulated draws: estimates.

    Attributes:
        error: root mean square error of the counts that are shown; 0 where none are.
        missed: what the true top k hold more than the labels that are shown, per label asked for; a row that stays
            empty misses all of its count.
        recall: share of the true top k among the labels shown.
        rows: how many labels are shown.
    """

    error: float
    missed: float
    recall: float
    rows: float

    @property
    def loss(self) -> float:
        """The one number that is compared, in counts: the error of what is shown, and what is missed, per row."""
        return self.error + self.missed


@dataclass(frozen=True, eq=False)
class Shape:
    """Counts in falling order, float64, shape (n,)."""

    counts: Array
    _seen: dict[Any, tuple[Array, Array]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, like: Any) -> Shape:
        """The shape of public counts, or of an answer that was released before.

        Args:
            like: a Histogram with a public domain, a Release with counts, or a sequence of counts. A Release shows
                only its top: ranks below it are continued by the power law through its middle and last rank.

        Raises:
            InvalidParameter: for a private histogram, whose counts a plan must not depend on.
        """
        if isinstance(like, Histogram):
            if like.domain != "public":
                raise InvalidParameter(
                    "like: a private histogram must not shape a plan; give released or public counts"
                )
            return cls._sorted(like.counts)
        if isinstance(like, Release):
            if like.counts is None or len(like) == 0:
                raise InvalidParameter("like: this release has no counts")
            return cls._sorted(_continued(np.sort(np.maximum(like.counts, 0.0))[::-1]))
        try:
            counts = np.asarray(like, dtype=np.float64)
        except (TypeError, ValueError):
            counts = np.empty((0, 0))
        if counts.ndim != 1 or not len(counts) or not np.isfinite(counts).all():
            raise InvalidParameter("like must be a public Histogram, a Release with counts, or a sequence of counts")
        return cls._sorted(counts)

    @classmethod
    def _sorted(cls, counts: Array) -> Shape:
        return cls(np.sort(np.maximum(np.asarray(counts, dtype=np.float64), 0.0))[::-1][:LONGEST])

    @cached_property
    def _standard(self) -> dict[str, Array]:
        """The same standard noise for every design, a column a label and one more for the floor."""
        rng, shape = np.random.default_rng(0), (DRAWS, len(self.counts) + 1)
        return {"normal": rng.normal(size=shape), "laplace": rng.laplace(size=shape), "gumbel": rng.gumbel(size=shape)}

    def outcome(self, mechanisms: tuple[Any, ...], k: int, sensitivity: Sensitivity, counted: bool) -> Outcome:
        """Simulate a design on these counts, with continuous noise and fixed seeds."""
        chosen, values = self._select(mechanisms[0], k, sensitivity)
        shown = chosen >= 0
        true = np.where(shown, np.append(self.counts, 0.0)[chosen], 0.0)
        top = self.counts[:k]
        missed = max((top.sum() - true.sum(axis=1)).mean(), 0.0) / k
        rows = shown.sum(axis=1)
        recall = ((chosen < len(top)) & shown).sum(axis=1) / max(len(top), 1)
        error = 0.0
        if counted and len(mechanisms) > 1:
            error = self._counting_error(mechanisms[1], true, shown, sensitivity)
        elif counted and rows.sum():
            error = math.sqrt(((values - true) ** 2)[shown].sum() / rows.sum())
        return Outcome(error, float(missed), float(recall.mean()), float(rows.mean()))

    def _counting_error(self, counting: Any, true: Array, shown: Array, sensitivity: Sensitivity) -> float:
        """Root mean square error of counts measured after a selection; with a fit, of the fitted counts."""
        if not isinstance(counting, CountMLE):
            return float(counting.noise_std(sensitivity))
        own, shared = (math.sqrt(variance) for variance in counting.variances(sensitivity))
        kind = "laplace" if isinstance(counting.noise, KnownLaplace) else "normal"
        # Another part of the standard noise than the selection saw; a standard Laplace variable has variance 2.
        standard = self._standard[kind][::-1][:FITS] / (math.sqrt(2) if kind == "laplace" else 1)
        squares, rows = 0.0, 0
        for counts, there, noise in zip(true, shown, standard, strict=False):
            truth = counts[there]
            width = min(len(truth), len(noise) - 1)
            measured = truth[:width] + own * noise[:width] + shared * noise[-1]
            squares += float(((counting.fit(measured, sensitivity) - truth[:width]) ** 2).sum())
            rows += width
        return math.sqrt(squares / rows) if rows else 0.0

    def _select(self, mechanism: Any, k: int, sensitivity: Sensitivity) -> tuple[Array, Array]:
        """For each draw the ranks of the chosen labels (-1: none), and their noisy counts; shape (draws, k)."""
        if mechanism not in self._seen:
            self._seen[mechanism] = self._drawn(mechanism, k, sensitivity)
        return self._seen[mechanism]

    def _drawn(self, mechanism: Any, k: int, sensitivity: Sensitivity) -> tuple[Array, Array]:
        if isinstance(mechanism, WholeAnswer | RoutedTopK | StabilityTopK):
            return self._released(mechanism, sensitivity)
        counts, noise = self.counts, self._noise(mechanism, sensitivity)
        passing = np.ones((DRAWS, len(counts)), dtype=np.bool_)
        if isinstance(mechanism, Thresholded):
            slots = len(counts) if mechanism.d_bar is None else min(mechanism.d_bar, len(counts))
            floor = 0.0 if mechanism.d_bar is None or slots == len(counts) else counts[slots]
            floor_noise = 0.0 if mechanism.d_bar is None else noise[:, -1:]
            counts = counts[:slots]
            passing = counts + noise[:, :slots] > floor + floor_noise + mechanism.threshold_offset(sensitivity)
            passing &= counts > 0
        values = np.where(passing, counts + noise[:, : len(counts)], -np.inf)
        first = min(k, values.shape[1])
        chosen = np.argpartition(-values, first - 1, axis=1)[:, :first]
        values = np.take_along_axis(values, chosen, axis=1)
        order = np.argsort(-values, axis=1)  # the order of selection, to which counts are fitted
        chosen, values = np.take_along_axis(chosen, order, axis=1), np.take_along_axis(values, order, axis=1)
        return np.where(np.isfinite(values), chosen, -1), values

    def _released(self, mechanism: Any, sensitivity: Sensitivity) -> tuple[Array, Array]:
        """The ranks in seeded answers of a mechanism that draws all labels together."""
        histogram = Histogram(None, np.rint(self.counts).astype(np.int64), sensitivity=sensitivity, domain="public")
        rng = np.random.default_rng(0)
        chosen = np.array([mechanism.release(histogram, rng).labels for _ in range(FITS)], dtype=np.int64)
        return chosen, np.zeros(chosen.shape)

    def _noise(self, mechanism: Any, sensitivity: Sensitivity) -> Array:
        noise: Array
        if isinstance(mechanism, KnownGumbel | UnknownGumbel):
            noise = self._standard["gumbel"] * (sensitivity.linf / mechanism.epsilon)
        elif hasattr(mechanism, "sigma"):
            noise = self._standard["normal"] * (sensitivity.linf * mechanism.sigma)
        else:
            noise = self._standard["laplace"] * (sensitivity.linf / mechanism.epsilon)
        if isinstance(mechanism, TruncatedGaussian | TruncatedLaplace):
            bound = mechanism.bound(sensitivity)
            noise = np.clip(noise, -bound, bound)
        return noise


def _continued(top: Array) -> Array:
    """Counts of a top k with the ranks below, as many as ten times k, on the power law through ranks k/2 and k."""
    k = len(top)
    half = max(k // 2, 1)
    last = max(top[-1], 0.5)
    exponent = math.log(max(top[half - 1], last) / last) / math.log(k / half) if k > half else 1.0
    below = last * (k / np.arange(k + 1, 10 * k + 101)) ** max(exponent, 0.1)
    return np.concatenate([top, below])
