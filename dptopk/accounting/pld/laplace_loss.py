"""The pair of the Laplace law, density ∝ e^{-|x|/scale}, and its copy moved by ``shift``.

With ε = shift/scale

    P[L = ε] = 1/2,   P[L = -ε] = e^{-ε}/2,   density e^{-(ε-l)/2}/4 between them,
    E e^{λL} = [(1+λ) e^{λε} + λ e^{-(1+λ)ε}] / (1+2λ),      E L = ε - 1 + e^{-ε}.

Cut [-ε, ε] into n cells and move the mass inside each cell to its ends such that the mass under
either law stays: the result, from above, is the discrete Laplace pair of scale n/ε and shift n.
From below each cell is one outcome, whose loss is its middle. Both are off to second order. Proofs
are in docs/notes/discrete-laplace.md, "The continuous law".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dptopk._internal.rounding import EPS, Floats, square_up
from dptopk.accounting.pld.discrete_laplace import (
    EXACT_BELOW,
    FEWEST,
    LISTED,
    DiscreteLaplace,
    continuous_mean_loss,
)
from dptopk.accounting.pld.loss_components import Grid, LossComponent, sum_of_copies
from dptopk.accounting.pld.pairs import Pairs, pair_of


def laplace_mean_loss(epsilon: float) -> float:
    """Return E L, the smallest ρ for which the pair is ρ-zCDP, rounded up; ``epsilon`` is
    shift/scale.

    >>> round(laplace_mean_loss(0.5), 9)
    0.10653066
    """
    if epsilon < EXACT_BELOW:
        return square_up(epsilon, 2)
    # A sum of at most 13 terms that are each known to a few units of roundoff.
    return continuous_mean_loss(epsilon) * (1 + 16 * EPS)


def laplace_log_mgf(epsilon: float, lam: Floats) -> Floats:
    """Return an upper bound on ln E e^{λL} at each λ > 0: the closed form moved up by its rounding,
    or λ(1+λ) E L if that is less.
    """
    fall = np.expm1(-(1 + 2 * lam) * epsilon)
    # ln of [(1+λ) + λ e^{-(1+2λ)ε}]/(1+2λ), some ten roundings.
    remainder = np.log1p(lam / (1 + 2 * lam) * fall)
    slack = 16 * EPS * (1 + np.abs(remainder))
    closed = lam * epsilon * (1 + 8 * EPS) + remainder + slack
    mean = laplace_mean_loss(epsilon) * (1 + 8 * EPS)  # for the roundings of the product below
    values: Floats = np.minimum(closed, lam * (1 + lam) * mean)
    return values


@dataclass(frozen=True)
class Laplace(LossComponent):
    """n copies of the pair of Laplace noise.

    Attributes:
        epsilon: shift/scale, rounded up to a float.
        count: n.
    """

    epsilon: float
    count: int

    def log_mgf(self, tilt: float) -> float:
        """Return an upper bound on ln E e^{θL} of all copies at θ = ``tilt``, by the
        closed form.
        """
        return self.count * float(laplace_log_mgf(self.epsilon, np.array([tilt]))[0])

    def spread(self) -> float:
        """Return twice the mean loss of all copies, about their variance."""
        return 2 * self.count * laplace_mean_loss(self.epsilon)

    @property
    def exact(self) -> bool:
        """Return False: the mass inside a cell is moved to its ends."""
        return False

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return one pair for all copies, in a list.

        [-ε, ε] is cut into cells. The mass of each cell goes to its ends, which dominates the
        copies (``grid.side`` = 1), or to its middle, which they dominate (-1). The copies of that
        law are summed on a grid that holds all its losses, so that no loss is moved further.

        Args:
            grid: the grid on which the pair will be composed with others, and the side.
        """
        cells = max(int(LISTED / math.sqrt(self.count)), FEWEST)
        if grid.side > 0:
            scale = math.nextafter(cells / self.epsilon, 0.0)  # less noise is on the safe side
            return DiscreteLaplace(scale, cells, self.count).pairs(grid)
        # ``self.epsilon`` was rounded up; it is moved down by more than that.
        epsilon = self.epsilon * (1 - 4 * EPS)
        h = epsilon / cells
        copies = replace(_pair_of_cells(h, cells), count=self.count)
        return [sum_of_copies(copies, h, self.count * epsilon, grid)]


def _pair_of_cells(h: float, cells: int) -> Pairs:
    """Return the pair of an observer who sees only the cell of an outcome, or one of the two atoms;
    the losses ε, ε - h, ε - 3h, ..., -ε are given as 0, -1, -3, ...

    Args:
        h: half the length of a cell.
        cells: the number of cells.
    """
    places = np.concatenate([[0.0], np.arange(1.0, 2 * cells, 2), [2.0 * cells]])
    starts = np.concatenate([[0.0], np.arange(cells) * h, [cells * h]])
    log_masses = -starts - math.log(2)
    log_masses[1:-1] += math.log(-math.expm1(-h))
    # Of a sum of three logarithms, none much larger than the sum itself.
    log_error = 4 * EPS * (float(np.abs(log_masses).max()) + 8)
    return pair_of(-places, log_masses, log_error=log_error)
