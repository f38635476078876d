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

from dptopk._internal.rounding import EPS, Floats
from dptopk.accounting.pld.discrete_laplace import (
    FEWEST,
    LISTED,
    DiscreteLaplace,
    continuous_mean_loss,
)
from dptopk.accounting.pld.loss_components import Grid, LossComponent, summed
from dptopk.accounting.pld.pairs import Pairs, pair_of


def laplace_mean_loss(epsilon: float) -> float:
    """E L, the smallest ρ of zCDP, rounded up.

    >>> round(laplace_mean_loss(0.5), 9)
    0.10653066
    """
    return max(continuous_mean_loss(epsilon) * (1 + 16 * EPS), math.ulp(0.0))


def laplace_log_mgf(epsilon: float, lam: Floats) -> Floats:
    """Upper bound on ln E e^{λL} for λ > 0: the closed form moved up by its rounding, and at most
    λ(1+λ) E L.
    """
    fall = np.expm1(-(1 + 2 * lam) * epsilon)
    below = np.log1p(lam / (1 + 2 * lam) * fall)
    slack = 16 * EPS * (1 + np.abs(below))
    closed = lam * epsilon * (1 + 8 * EPS) + below + slack
    mean = laplace_mean_loss(epsilon) * (1 + 8 * EPS)
    values: Floats = np.minimum(closed, lam * (1 + lam) * mean)
    return values


@dataclass(frozen=True)
class Laplace(LossComponent):
    """n copies of the pair; ``epsilon`` is shift/scale, to one float, rounded up."""

    epsilon: float
    count: int

    def log_mgf(self, tilt: float) -> float:
        """The closed form."""
        return self.count * float(laplace_log_mgf(self.epsilon, np.array([tilt]))[0])

    def spread(self) -> float:
        """About twice the mean loss."""
        return 2 * self.count * laplace_mean_loss(self.epsilon)

    @property
    def exact(self) -> bool:
        """No: cells are split."""
        return False

    def pairs(self, grid: Grid) -> list[Pairs]:
        """The pair on cells of [-ε, ε]; of several copies the product on the lattice of the cells,
        which is exact.
        """
        cells = max(int(LISTED / math.sqrt(self.count)), FEWEST)
        if grid.side > 0:
            return DiscreteLaplace(
                math.nextafter(cells / self.epsilon, 0.0), cells, self.count
            ).pairs(grid)
        epsilon = self.epsilon * (1 - 4 * EPS)
        h = epsilon / cells
        return [
            summed(replace(_middles(h, cells), count=self.count), h, self.count * epsilon, grid)
        ]


def _middles(h: float, cells: int) -> Pairs:
    """The two atoms, and each cell as one outcome: its losses ε, ε - h, ε - 3h, ..., -ε given as 0,
    -1, -3, ...
    """
    places = np.concatenate([[0.0], np.arange(1.0, 2 * cells, 2), [2.0 * cells]])
    starts = np.concatenate([[0.0], np.arange(cells) * h, [cells * h]])
    log_masses = -starts - math.log(2)
    log_masses[1:-1] += math.log(-math.expm1(-h))
    return pair_of(-places, log_masses, log_error=4 * EPS * (float(np.abs(log_masses).max()) + 8))
