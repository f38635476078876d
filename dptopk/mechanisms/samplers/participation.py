"""On which days one user may be active, and how far all of them together move what is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dptopk.mechanisms.samplers.random import Array

Error = Literal["max", "mean"]


@dataclass(frozen=True)
class Participation:
    """On which days one user may be active.

    Attributes:
        days: how many days there are.
        most: on at most this many of them, 1 <= most <= days.
        apart: the smallest distance of two of them, at least 1.
    """

    days: int
    most: int
    apart: int

    @classmethod
    def of(cls, days: int, most: int | None, apart: int) -> Participation:
        """Normalise the days of a user: never more than fit, and no distance for a single day."""
        apart = min(apart, days)
        fit = -(-days // apart)
        most = fit if most is None else min(most, fit)
        return cls(days, most, apart if most > 1 else 1)

    @property
    def first(self) -> Array:
        """The earliest days, from 0."""
        return np.arange(0, self.days, self.apart)[: self.most]

    @property
    def active(self) -> Array:
        """On how many days a user can have been active by each day, shape (days,)."""
        return np.minimum(np.arange(self.days) // self.apart + 1, self.most)

    def energy(self, strategy: Array) -> float:
        """The most that the squared shifts W·1_S sum to, S the days of one user; exact for whole
        numbers below 2^53.

        They sum to Σ G_ij over i, j in S, G = WᵀW. Let Ĝ be the least matrix above G and 0 that
        falls with the first day and with the distance: Ĝ_(i, i+d) = max of G_(j, j+e) over j >= i,
        e >= d. The a-th day of S is at least g(a - 1) from the first possible one, and g(b - a)
        from the b-th, so that the sum is at most that of Ĝ over the days 1, 1 + g, 1 + 2g, ... This
        is attained where G = Ĝ. Parts of these contributions do not move more.
        """
        columns = strategy.astype(float)
        if self.most == 1:
            return float((columns**2).sum(axis=0).max())
        gram = columns.T @ columns  # above: first day × distance
        above = np.zeros((self.days, self.days))
        for distance in range(self.days):
            above[: self.days - distance, distance] = np.diagonal(gram, distance)
        reverse = np.maximum.accumulate(above[::-1, ::-1], axis=0)
        reverse = np.maximum.accumulate(reverse, axis=1)
        above = reverse[::-1, ::-1]
        start = np.minimum.outer(self.first, self.first)
        between = np.abs(np.subtract.outer(self.first, self.first))
        return float(above[start, between].sum())
