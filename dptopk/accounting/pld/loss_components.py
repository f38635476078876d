"""Contributions of a type of cost to a product of dominating pairs: its loss atoms, from above and
below.

| cost                    | above                                         | below
|
|---|---|---|
| PureDP, distinct ε's    | randomised responses, split on the grid       | close ε's merged
(`merged_responses`)  |
| n × PureDP(ε), n large  | binomial loss, split on the grid              | binomial loss,
rounded down            |
| n × LaplaceDP           | its cells split to their ends (``laplace``)   | each cell one
outcome                  |
| n × ExponentialClockDP  | its profile by chords (``clocks``)            | outcomes merged into
cells             |
| GaussianDP, all of them | one Gaussian, μ² = Σ n μ_i², by quadrature    | the same, rounded
down                 |
| n × DiscreteGaussianDP  | n-fold sum on the integers, split on the grid | the same, rounded
down                 |
| MultiDP                 | mixture of randomised responses (CNS)         | the same, rounded
down                 |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dptopk._internal.rounding import EPS, Floats
from dptopk.accounting.pld.binomial import log_response_pmf
from dptopk.accounting.pld.constraints import PERTURBATION, worst_case
from dptopk.accounting.pld.lattice import binned, product
from dptopk.accounting.pld.pairs import Pairs, merged_responses, pair_of, randomised_response
from dptopk.costs import MultiDP

# Up to this count equal ε's stay single rows; above, their binomial loss is one pair.
FEW_COPIES = 3
# From this scale on a discrete Gaussian's sums have a closed form: the error e^{-π² SUMMED_SCALE²}
# is below any float.
CLOSED_FORM_SCALE = 2000.0
# The work of bringing a node of a Gaussian onto the grid.
WORK_PER_NODE = 4e-7
# A cell this much narrower than the widest has two nodes instead of five; tilts are strong from
# this many standard deviations on.
NARROW_CELL = 1 / 250
STRONG_TILT = 5.0
MOST_FINER = 8.0
FARTHEST_TILT = 40.0  # standard deviations, MOST_FINER times STRONG_TILT
# Atoms whose tilted mass is this far (in logarithms) below the largest are cut off; their mass is
# charged as an error.
NEGLIGIBLE = 50.0


@dataclass(frozen=True)
class Grid:
    """Parameters of a discretised pair: the grid step, the tilt, the side (1: dominating, -1:
    dominated).

    From below, ε's closer than ``width`` may be merged into one pair.
    """

    step: float
    tilt: float
    side: int
    width: float = 0.0


class LossComponent:
    """The contribution of one kind of cost to a product of pairs."""

    def log_mgf(self, tilt: float) -> float:
        """K(θ) = ln E[e^{θ L}], good enough to choose a tilt; as given here that of Gaussians."""
        return self.spread() * tilt * (tilt + 1) / 2

    @property
    def exact(self) -> bool:
        """Whether the pairs from above are the exact pairs of the costs, before they are put on a
        grid.
        """
        return True

    def raised(self) -> float:
        """Relative amount by which rounding of the pairs can have raised δ, beyond their stated
        errors.
        """
        return 0.0

    def atoms(self) -> int:
        """Number of losses listed before they are put on the grid, if that is large."""
        return 0

    def work(self) -> float:
        """The work of making and multiplying its pairs beyond what ``atoms`` says, where that is
        much.
        """
        return 0.0

    def spread(self) -> float:
        """About the variance of the total loss; sizes the first grid."""
        raise NotImplementedError

    def roundings(self) -> tuple[int, int]:
        """Number of pairs put on the grid, from above and from below; determines the size of the
        first grid.
        """
        return 1, 1

    def factors(self) -> int:
        """About how many different pairs there are to multiply; a guess at the time."""
        return self.roundings()[0]

    def pairs(self, grid: Grid) -> list[Pairs]:
        """The pairs, their losses not yet on the grid."""
        raise NotImplementedError


@dataclass(frozen=True)
class Responses(LossComponent):
    """Pure DP costs: distinct ε's with counts."""

    counts: dict[float, int]

    def log_mgf(self, tilt: float) -> float:
        epsilons = np.array(list(self.counts))
        counts = np.array(list(self.counts.values()))
        return float(counts @ (_log_cosh(epsilons * (tilt + 0.5)) - _log_cosh(epsilons / 2)))

    def spread(self) -> float:
        return sum(times * epsilon**2 for epsilon, times in self.counts.items())

    def roundings(self) -> tuple[int, int]:
        above = sum(times if times <= FEW_COPIES else 1 for times in self.counts.values())
        return above, min(len(self.counts), 32)

    def atoms(self) -> int:
        return sum(
            min(times, math.ceil(13 * math.sqrt(times)))
            for times in self.counts.values()
            if times > FEW_COPIES
        )

    def pairs(self, grid: Grid) -> list[Pairs]:
        many = {epsilon: times for epsilon, times in self.counts.items() if times > FEW_COPIES}
        found = [
            trimmed(_binomial(epsilon, times, grid.tilt), grid.tilt)
            for epsilon, times in many.items()
        ]
        few = {epsilon: times for epsilon, times in self.counts.items() if times <= FEW_COPIES}
        if grid.side < 0:
            merged = map(merged_responses, _close_groups(few, grid.width))
            return found + [trimmed(pairs, grid.tilt) for pairs in merged]
        for times in set(few.values()):
            epsilons = np.array([epsilon for epsilon, n in few.items() if n == times])
            found.append(randomised_response(epsilons, times))
        return found


def _log_cosh(x: Floats) -> Floats:
    return np.abs(x) + np.log1p(np.exp(-2 * np.abs(x))) - math.log(2)


def _binomial(epsilon: float, count: int, tilt: float) -> Pairs:
    """The summed loss of many equal ε's, within 6.5 sqrt(k) of its tilted mean: beyond, Hoeffding
    leaves 2 e^-84.
    """
    exponent = min(epsilon * (2 * tilt + 1), 700.0)
    mean = count / (1 + math.exp(-exponent))
    reach = 6.5 * math.sqrt(count) + 1
    first = max(math.floor(mean - reach), 0)
    last = min(math.ceil(mean + reach), count)
    log_masses, errors = log_response_pmf(count, epsilon, first, last)
    losses = np.arange(2 * first - count, 2 * last - count + 1, 2, dtype=float) * epsilon
    return replace(pair_of(losses, log_masses, log_error=errors), error=1e-30)


def _close_groups(counts: dict[float, int], width: float) -> list[Floats]:
    """Sort the ε's (with repetitions) into groups of spread at most ``width`` and bounded size."""
    groups: list[list[float]] = []
    total = 0.0
    for epsilon, times in sorted(counts.items()):
        for _ in range(times):
            if (
                not groups
                or epsilon > groups[-1][0] + width
                or total + epsilon + 0.7 > 600
                or len(groups[-1]) >= 400
            ):
                groups.append([])
                total = 0.0
            groups[-1].append(epsilon)
            total += epsilon + 0.7
    return [np.array(group) for group in groups]


def trimmed(pairs: Pairs, tilt: float) -> Pairs:
    """One row without the atoms that are negligible under the tilt."""
    exponents = pairs.log_masses[0] + tilt * pairs.losses[0]
    weights = np.exp(exponents - exponents.max())
    kept = weights > math.exp(-NEGLIGIBLE)
    lost = float(weights[~kept].sum() / weights.sum()) * 1.01
    errors = (
        pairs.log_error[:, kept] if isinstance(pairs.log_error, np.ndarray) else pairs.log_error
    )
    losses = pairs.losses[:, kept]
    log_masses = pairs.log_masses[:, kept]
    return replace(
        pairs, losses=losses, log_masses=log_masses, log_error=errors, error=pairs.error + lost
    )


def summed(one: Pairs, spacing: float, offset: float, grid: Grid) -> Pairs:
    """All copies of a pair whose losses are given as integers: their sum, the losses spacing ·
    integer + offset.
    """
    total = one
    if one.count > 1:
        total = product([one], step=1.0, tilt=grid.tilt * spacing, side=grid.side).pairs()
    losses = offset + spacing * total.losses
    farthest = float(np.abs(losses).max() + offset)
    loss_error = spacing * total.loss_error + 8 * EPS * farthest
    return replace(total, losses=losses, count=1, loss_error=loss_error)


@dataclass(frozen=True)
class GaussianLoss(LossComponent):
    """All Gaussian costs together: the loss is N(μ²/2, μ²) with μ² = Σ n μ_i²."""

    mu_squared: float

    def atoms(self) -> int:
        return math.ceil(
            400 * max(math.sqrt(self.mu_squared), 1.0)
        )  # five in a quarter of 1, of 20 μ

    def work(self) -> float:
        return WORK_PER_NODE * self.atoms()

    def spread(self) -> float:
        return self.mu_squared

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Gauss-Legendre nodes in every grid cell within ten standard deviations of the tilted
        mean.

        A cell is cut until it is at most a quarter of a standard deviation (and of 1) wide, less
        where the tilt is strong. The error of five points is below 4e-13 (cell / std)^10 times the
        tenth derivative, that of two, in cells a 250th as wide, below 3e-4 (cell / std)^4 times
        the fourth: at most 1e-10 in total mass, for the mass and for its share at either end of the
        cell alike, up to FARTHEST_TILT. No δ that is a float needs more: ln F(x) is at most -(tilt
        μ)²/2 at the tilt of a question.
        """
        variance = self.mu_squared * (1 + grid.side * 8 * EPS)
        mu = math.sqrt(variance)
        centre = variance * (0.5 + grid.tilt)
        step = grid.step
        # A derivative is a power of the distance to the mean, at most that of STRONG_TILT.
        finer = min(max(abs(grid.tilt) * mu / STRONG_TILT, 1.0), MOST_FINER)
        widest = min(mu, 1.0) / 4 / finer
        losses, shares = _gauss_legendre(centre, 10 * mu, step, widest)
        z = (losses - variance / 2) / mu
        log_masses = -(z**2) / 2 + np.log(shares / (2 * mu)) - math.log(2 * math.pi) / 2
        farthest = float(np.abs(z).max())
        # z is known to EPS of the losses over μ, and enters as z²/2.
        largest = float(np.abs(losses).max())
        of_z = farthest * (farthest + largest / mu)
        rounding = 8 * EPS * (of_z + abs(math.log(step / mu)) + 8)
        error = 1e-10 if abs(grid.tilt) * mu <= FARTHEST_TILT else 1.0
        return [replace(pair_of(losses, log_masses, log_error=rounding), error=error)]


def _gauss_legendre(
    centre: float, reach: float, step: float, finest: float
) -> tuple[Floats, Floats]:
    """Five nodes, and twice their weights, in every part of every grid cell within ``reach`` of
    the centre; the parts of a cell are at most ``finest`` wide. Two where cells are much narrower.
    """
    low = centre - reach
    high = centre + reach
    parts = math.ceil(min(step, high - low) / finest)
    cells = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step
    cells = np.clip(cells, low, high)  # the cells at the ends, as far as they are within reach
    widths = np.diff(cells) / parts
    narrow = step <= NARROW_CELL * finest
    nodes, weights = np.polynomial.legendre.leggauss(2 if narrow else 5)
    within = (np.arange(parts)[:, None] + (1 + nodes) / 2).ravel()
    losses = (cells[:-1, None] + widths[:, None] * within).ravel()
    of_cells = np.repeat(np.maximum(widths, 1e-300), within.size)
    return losses, np.tile(weights, parts * widths.size) * of_cells


@dataclass(frozen=True)
class DiscreteGaussian(LossComponent):
    """n discrete Gaussians of one kind; with Y the summed noise the loss is (n shift² - 2 shift Y)
    / (2 scale²).

    From scale ``CLOSED_FORM_SCALE`` on, Y is a discrete Gaussian of scale sqrt(n)·scale, and its
    normalisation sqrt(2π) of that: by Poisson summation either is off by less than a factor 1 ± 3n
    e^{-π² scale²} (docs/notes/discrete-gaussian.md). Its atoms are binned on the grid at once.
    """

    scale: float
    shift: int
    count: int

    def spread(self) -> float:
        return self.count * (self.shift / self.scale) ** 2

    @property
    def exact(self) -> bool:
        return self.scale < CLOSED_FORM_SCALE

    def atoms(self) -> int:
        if math.isfinite(self.scale):
            return math.ceil(24 * self.scale * math.sqrt(self.count))
        return 0

    def pairs(self, grid: Grid) -> list[Pairs]:
        if self.scale >= CLOSED_FORM_SCALE:
            return [self._wide(grid)]
        return self._narrow(grid)

    def _wide(self, grid: Grid) -> Pairs:
        spacing = self.shift / self.scale**2
        width = self.scale * math.sqrt(self.count)
        offset = self.count * (self.shift / self.scale) ** 2 / 2
        centre = round(self.count * self.shift * grid.tilt)
        reach = math.ceil(12 * width + 12)
        y = np.arange(-centre - reach, -centre + reach + 1.0)
        log_masses = -((y / width) ** 2) / 2 - math.log(width) - math.log(2 * math.pi) / 2
        rounding = 8 * EPS * (float(np.abs(log_masses).max()) + 8)
        losses = offset - spacing * y
        one = replace(pair_of(losses, log_masses, log_error=rounding), error=1e-30)
        farthest = float(np.abs(losses).max() + offset)
        one = replace(one, loss_error=8 * EPS * farthest)
        return binned(one, step=grid.step, tilt=grid.tilt, side=grid.side)

    def _narrow(self, grid: Grid) -> list[Pairs]:
        spacing = self.shift / self.scale**2
        offset = self.count * (self.shift / self.scale) ** 2 / 2
        centre = round(self.shift * grid.tilt)
        reach = math.ceil(12 * self.scale + 12)
        y = np.arange(-centre - reach, -centre + reach + 1.0)
        log_masses = -(y**2) / (2 * self.scale**2) - _log_total(self.scale)
        rounding = 8 * EPS * (float(np.abs(log_masses).max()) + 8)
        one = replace(pair_of(-y, log_masses, self.count, log_error=rounding), error=1e-30)
        return [summed(one, spacing, offset, grid)]


@lru_cache(maxsize=256)
def _log_total(scale: float) -> float:
    """Ln of the sum of e^{-y²/2 scale²} over the integers."""
    whole = math.ceil(40 * scale + 2)
    squares = np.arange(-whole, whole + 1.0) ** 2
    return math.log(math.fsum(np.exp(-squares / (2 * scale**2))))


@dataclass(frozen=True)
class SeveralConstraints(LossComponent):
    """n copies of a cost with several constraints, given that none fails: a mixture of randomised
    responses.
    """

    cost: MultiDP
    count: int

    def _pair(self, side: int) -> Pairs:
        worst = worst_case(self.cost, side * PERTURBATION)
        losses, masses = worst.atoms()
        finite = np.isfinite(losses)
        log_masses = np.log(masses[finite]) - math.log1p(-worst.atom)
        return pair_of(losses[finite], log_masses, self.count, log_error=20 * EPS)

    def raised(self) -> float:
        """Perturbed δ's (twice, for their own rounding) raise δ by less than (1 + 2 PERTURBATION/(1
        - a))^n.

        The hull of the points (x_i, x_i δ_i (1 + ν)), ended by slope 1, is at most 1 + ν times that
        of (x_i, x_i δ_i). So every δ(x) of one copy rises by at most a factor 1 + ν (below 0 as
        well, since δ(x) = 1 - e^x + e^x δ(-x)), and given that it does not fail, with the atom a at
        infinity, by at most 1 + ν / (1 - a) or so. Copies of the pair are replaced one at a time: δ
        of a product is a mean of δ's of the pair.
        """
        worst = worst_case(self.cost, PERTURBATION)
        return 3 * PERTURBATION * self.count / (1 - worst.atom)

    def log_mgf(self, tilt: float) -> float:
        return self._pair(1).log_mgf(tilt)

    def spread(self) -> float:
        return self._pair(1).variance()

    def roundings(self) -> tuple[int, int]:
        return self.count, self.count

    def pairs(self, grid: Grid) -> list[Pairs]:
        return [self._pair(grid.side)]
