"""Several shapes at once, such as those that a private look leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS
from dptopk.planning.shape import Outcome, Shape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Mixture:
    """Shapes of one length that are equally likely.

    Attributes:
        shapes: each of as many ranks.
    """

    shapes: tuple[Shape, ...]

    @property
    def counts(self) -> Array:
        """Those in the middle, rank by rank."""
        middle: Array = np.median([shape.counts for shape in self.shapes], axis=0)
        return middle

    def outcome(
        self, mechanisms: tuple[Any, ...], k: int, sensitivity: Sensitivity, counted: bool, draws: int = BLOCK_DRAWS
    ) -> Outcome:
        """The means over the shapes, from at least that many draws on each."""
        seen = [shape.outcome(mechanisms, k, sensitivity, counted, draws) for shape in self.shapes]
        # Where nothing is lost on a shape, a thousandth of a count stands for it.
        losses = np.maximum([one.loss for one in seen], 1e-3)
        means = {name: float(np.mean([getattr(one, name) for one in seen])) for name in ("recall", "rows")}
        total = float(losses.mean())
        error, missed = (float(np.mean([getattr(one, name) for one in seen])) for name in ("error", "missed"))
        spread = float(np.sqrt(np.square([one.deviation for one in seen] / losses).sum())) / len(seen)
        return Outcome(error, missed, deviation=total * spread, mixed=total, **means)
