"""The days on which one user may be active, and how far all of them together move measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dptopk.mechanisms.samplers.random import Array

Error = Literal["max", "mean"]


@dataclass(frozen=True)
class Participation:
    """A limit on the days on which one user may be active.

    Attributes:
        days: how many days there are.
        most: on how many of them a user may be active, 1 <= most <= days.
        apart: the smallest distance of two active days, at least 1.
    """

    days: int
    most: int
    apart: int

    @classmethod
    def of(cls, days: int, most: int | None, apart: int) -> Participation:
        """Return the limit in normal form: ``most`` is at most what fits into the days (None means
        all that fits), and ``apart`` is 1 where a user has a single day.

        Args:
            days: how many days there are.
            most: on how many of them a user may be active; None: on all that ``apart`` allows.
            apart: the smallest distance of two active days, at least 1.
        """
        apart = min(apart, days)
        most_that_fit = -(-days // apart)
        most = most_that_fit if most is None else min(most, most_that_fit)
        if most == 1:
            apart = 1
        return cls(days, most, apart)

    @property
    def earliest_days(self) -> Array:
        """Return the days, from 0, of a user who is active as often and as early as possible, shape
        (most,).
        """
        return np.arange(0, self.days, self.apart)[: self.most]

    @property
    def most_active_days(self) -> Array:
        """Return, for each day, the largest number of days up to it on which one user can have been
        active, shape (days,).
        """
        return np.minimum(np.arange(self.days) // self.apart + 1, self.most)

    def energy(self, strategy: Array) -> float:
        """Return an upper bound on the sum of the squares by which one user can shift all
        measurements of one label.

        A user who adds 1 on each day of a set S shifts measurement r by Σ W_rj over j in S. The
        squares of these sum to Σ G_ij over i, j in S, where G = WᵀW. S has at most ``most`` days,
        at least ``apart`` from each other; which S is the worst need not be known: let Ĝ be the
        least matrix above G and 0 that falls with the first day and with the distance of the two
        days, Ĝ_(i, i+d) = max of G_(j, j+e) over j >= i, e >= d. With g = ``apart``, the a-th day
        of S is at least g(a - 1) from the first possible one and g(b - a) from the b-th, so that
        the sum is at most that of Ĝ over the days 1, 1 + g, 1 + 2g, ... It is attained where G = Ĝ.
        A user who adds less than 1 on some of these days does not shift more.

        Args:
            strategy: W, shape (rows, days).

        Returns:
            The bound, free of rounding for integer W with sums below 2^53.
        """
        columns = strategy.astype(float)
        if self.most == 1:
            return float((columns**2).sum(axis=0).max())
        gram = columns.T @ columns
        largest_gram = np.zeros((self.days, self.days))  # G, then Ĝ, by first day and distance
        for distance in range(self.days):
            largest_gram[: self.days - distance, distance] = np.diagonal(gram, distance)
        # The largest entry over all later first days and all larger distances.
        reverse = np.maximum.accumulate(largest_gram[::-1, ::-1], axis=0)
        reverse = np.maximum.accumulate(reverse, axis=1)
        largest_gram = reverse[::-1, ::-1]
        first_of_pair = np.minimum.outer(self.earliest_days, self.earliest_days)
        distance_of_pair = np.abs(np.subtract.outer(self.earliest_days, self.earliest_days))
        return float(largest_gram[first_of_pair, distance_of_pair].sum())
