"""Contributions of a type of cost to a product of dominating pairs: its loss atoms, from above and
from below.

| cost                    | above                                   | below                      |
|-------------------------|-----------------------------------------|----------------------------|
| PureDP, distinct ε's    | randomised responses, split on the grid | close ε's merged           |
| n × PureDP(ε), n large  | binomial loss, split on the grid        | the same, rounded down     |
| n × LaplaceDP           | its cells split to their ends           | each cell one outcome      |
| n × ExponentialClockDP  | its profile by chords                   | outcomes merged into cells |
| GaussianDP, all of them | one Gaussian of μ² = Σ n μ_i²           | the same, rounded down     |
| n × DiscreteGaussianDP  | sum on the integers, split on the grid  | the same, rounded down     |
| MultiDP                 | mixture of randomised responses (CNS)   | the same, rounded down     |

Laplace noise and clocks have modules of their own (``laplace_loss``, ``clocks``).

CNS is Cadir-Najib-Shkel 2026.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dptopk._internal.rounding import EPS, Floats
from dptopk.accounting.pld.binomial import log_response_pmf
from dptopk.accounting.pld.constraints import PERTURBATION, worst_case
from dptopk.accounting.pld.lattice import pair_on_grid, product
from dptopk.accounting.pld.pairs import Pairs, merged_responses, pair_of, randomised_response
from dptopk.costs import MultiDP

# Up to this count equal ε's stay single rows; above, their binomial loss is one pair.
FEW_COPIES = 3
# From this scale s on a discrete Gaussian's sums have a closed form: the error e^{-π² s²} is below
# any float.
CLOSED_FORM_SCALE = 2000.0
# The work of bringing a node of a Gaussian onto the grid.
WORK_PER_NODE = 4e-7
# Of the quadrature of a Gaussian: a cell this much narrower than the widest part has two nodes
# instead of five; and the tilt times μ, the number of deviations by which a tilt moves the mean,
# from which on parts are narrower, by how much at most, and up to which the error is bounded.
NARROW_CELL = 1 / 250
STRONG_TILT = 5.0
MOST_FINER = 8.0
FARTHEST_TILT = 40.0  # MOST_FINER times STRONG_TILT
# Answers this many roots of their number from the mean, and noise this many deviations, are cut off
# under the tilt. By Hoeffding 2 e^-84 of the answers is beyond, of the noise less than 2 e^-72.
REACH_OF_ANSWERS = 6.5
REACH_OF_NOISE = 12
CUT_MASS = 1e-30
GUESSED_GROUPS = 32  # of merged responses
# Of a group of merged responses: the most of them, and the most that Σ (ε + LOG_2) may be, while
# ``merged_responses`` allows Σ (ε + ln 2) up to 700.
MOST_MERGED = 400
LARGEST_LOG_ODDS = 600.0
LOG_2 = 0.7  # above ln 2
LARGEST_EXPONENT = 700.0  # e^709 is no float
QUADRATURE_ERROR = 1e-10  # of a Gaussian's total mass
QUADRATURE_REACH = 10  # standard deviations on either side of the tilted mean


@dataclass(frozen=True)
class Grid:
    """The parameters of a product on a grid.

    Attributes:
        step: the grid step.
        tilt: θ of the exponential change of measure.
        side: 1 for pairs that dominate the costs, -1 for pairs that they dominate.
        width: from below, ε's closer than this may be merged into one pair.
    """

    step: float
    tilt: float
    side: int
    width: float = 0.0


class Roundings(NamedTuple):
    """How many pairs have their losses moved when they are put on a grid.

    Attributes:
        above: for a product that dominates the costs.
        below: for a product that the costs dominate.
    """

    above: int
    below: int


class LossComponent:
    """The contribution of one kind of cost, all costs of this kind together, to a product of pairs.

    Only ``pairs``, ``exact`` and ``relative_increase`` decide what is proven; the other methods
    size the grid and count the work beforehand.
    """

    def log_mgf(self, tilt: float) -> float:
        """Return K(θ) = ln E[e^{θ L}] of the total loss at θ = ``tilt``, or an estimate that is
        good enough to choose a tilt; by default that of a Gaussian of the same variance.
        """
        return self.spread() * tilt * (tilt + 1) / 2

    @property
    def exact(self) -> bool:
        """Return whether the pairs from above are the exact pairs of the costs, before they are put
        on a grid.
        """
        return True

    def relative_increase(self) -> float:
        """Return the share by which δ of the pairs from above can exceed that of the costs, beyond
        the errors that the pairs state.
        """
        return 0.0

    def atoms(self) -> int:
        """Return the number of losses that ``pairs`` lists, for a guess at the work; 0 where that
        is small.
        """
        return 0

    def work(self) -> float:
        """Return about how many seconds it takes to make and multiply the pairs, beyond the time
        that goes with ``atoms``.
        """
        return 0.0

    def spread(self) -> float:
        """Return an estimate of the variance of the total loss, which sizes the first grid."""
        raise NotImplementedError

    def roundings(self) -> Roundings:
        """Return the numbers of pairs whose losses are moved when they are put on the grid, which
        size the first grid.
        """
        return Roundings(1, 1)

    def factors(self) -> int:
        """Return an estimate of the number of different pairs to multiply, for a guess at
        the work.
        """
        return self.roundings().above

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return the pairs with their losses, which need not be on the grid yet."""
        raise NotImplementedError


@dataclass(frozen=True)
class Responses(LossComponent):
    """Pure DP costs, as randomised responses.

    Attributes:
        counts: the distinct ε's with counts.
    """

    counts: dict[float, int]

    def log_mgf(self, tilt: float) -> float:
        """Return ln E[e^{θ L}] of all responses at θ = ``tilt``."""
        epsilons = np.array(list(self.counts))
        counts = np.array(list(self.counts.values()))
        return float(counts @ (_log_cosh(epsilons * (tilt + 0.5)) - _log_cosh(epsilons / 2)))

    def spread(self) -> float:
        """Return Σ n ε², a bound on the variance of the total loss."""
        return sum(times * epsilon**2 for epsilon, times in self.counts.items())

    def roundings(self) -> Roundings:
        """Return the numbers of losses that are put on the grid from above and from below.

        From above there is one for each response, and one for all copies of an ε with more than
        FEW_COPIES. From below it is a guess, because close ε's are merged first.
        """
        from_above = 0
        for times in self.counts.values():
            from_above += times if times <= FEW_COPIES else 1
        guess_from_below = min(len(self.counts), GUESSED_GROUPS)
        return Roundings(from_above, guess_from_below)

    def atoms(self) -> int:
        """Return the number of losses of the binomial sums."""
        sums = [times for times in self.counts.values() if times > FEW_COPIES]
        return sum(min(times, math.ceil(2 * REACH_OF_ANSWERS * math.sqrt(times))) for times in sums)

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return a binomial sum for each ε with many copies; the others as single responses from
        above and merged by close ε's from below.
        """
        few: dict[float, int] = {}
        pairs: list[Pairs] = []
        for epsilon, times in self.counts.items():
            if times > FEW_COPIES:
                pairs.append(
                    _binomial_loss(epsilon, times, grid.tilt).without_negligible_atoms(grid.tilt)
                )
            else:
                few[epsilon] = times
        if grid.side < 0:
            merged = [merged_responses(group) for group in _close_groups(few, grid.width)]
            pairs += [pair.without_negligible_atoms(grid.tilt) for pair in merged]
            return pairs
        # A pair of arrays has a row for each ε, all of them with the same number of copies.
        for times in set(few.values()):
            epsilons = np.array([epsilon for epsilon, n in few.items() if n == times])
            pairs.append(randomised_response(epsilons, times))
        return pairs


def _log_cosh(x: Floats) -> Floats:
    """Return ln cosh(x), also where cosh(x) overflows."""
    return np.abs(x) + np.log1p(np.exp(-2 * np.abs(x))) - math.log(2)


def _binomial_loss(epsilon: float, count: int, tilt: float) -> Pairs:
    """Return the summed loss of many equal ε's, cut to answers near its tilted mean.

    Args:
        epsilon: of each response.
        count: the number of responses.
        tilt: θ.
    """
    # Under the tilt the odds of a true answer are e^{ε(2θ + 1)}.
    exponent = min(epsilon * (2 * tilt + 1), LARGEST_EXPONENT)
    mean = count / (1 + math.exp(-exponent))
    reach = REACH_OF_ANSWERS * math.sqrt(count) + 1
    first = max(math.floor(mean - reach), 0)
    last = min(math.ceil(mean + reach), count)
    log_masses, errors = log_response_pmf(count, epsilon, first, last)
    losses = np.arange(2 * first - count, 2 * last - count + 1, 2, dtype=float) * epsilon
    return replace(pair_of(losses, log_masses, log_error=errors), error=CUT_MASS)


def _close_groups(counts: dict[float, int], width: float) -> list[Floats]:
    """Return the ε's, each as often as it occurs, in groups that may be merged.

    Args:
        counts: the number of responses of each ε.
        width: the largest difference of two ε's of a group.
    """
    groups: list[list[float]] = []
    log_odds = 0.0
    for epsilon, times in sorted(counts.items()):
        for _ in range(times):
            too_far = bool(groups) and epsilon > groups[-1][0] + width
            too_large = log_odds + epsilon + LOG_2 > LARGEST_LOG_ODDS
            if not groups or too_far or too_large or len(groups[-1]) >= MOST_MERGED:
                groups.append([])
                log_odds = 0.0
            groups[-1].append(epsilon)
            log_odds += epsilon + LOG_2
    return [np.array(group) for group in groups]


def sum_of_copies(pair: Pairs, spacing: float, offset: float, grid: Grid) -> Pairs:
    """Return the sum of all copies of a pair as one pair.

    Args:
        pair: one row, its losses given as integers.
        spacing: the loss of the sum is offset + spacing · (sum of the integers).
        offset: the offset of the sum, >= 0.
        grid: the tilt and the side.
    """
    total = pair
    if pair.count > 1:
        total = product([pair], step=1.0, tilt=grid.tilt * spacing, side=grid.side).as_pair()
    losses = offset + spacing * total.losses
    farthest = float(np.abs(losses).max() + offset)
    # A product and a sum, none larger than this, of numbers that are rounded themselves.
    loss_error = spacing * total.loss_error + 8 * EPS * farthest
    return replace(total, losses=losses, count=1, loss_error=loss_error)


@dataclass(frozen=True)
class GaussianLoss(LossComponent):
    """All Gaussian costs together: the loss is N(μ²/2, μ²) with μ² = Σ n μ_i².

    Attributes:
        mu_squared: μ².
    """

    mu_squared: float

    def atoms(self) -> int:
        """Return about the number of nodes: five in each quarter of 1, over 20 μ."""
        return math.ceil(400 * max(math.sqrt(self.mu_squared), 1.0))

    def work(self) -> float:
        """Return the work, in seconds, of bringing the nodes onto the grid."""
        return WORK_PER_NODE * self.atoms()

    def spread(self) -> float:
        """Return μ², the variance of the loss."""
        return self.mu_squared

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return one pair, in which the density of the loss is replaced by masses at the nodes of a
        quadrature: Gauss-Legendre nodes in every grid cell within ten standard deviations of the
        tilted mean.

        A cell is cut into parts at most ``_widest_part`` wide. In total mass the error is at most
        QUADRATURE_ERROR, for the mass and for its share at either end of a cell alike, where the
        tilt times μ is at most FARTHEST_TILT: with five nodes the error of a part is below 4e-13
        (width / μ)^10 times the tenth derivative, and with two, in parts a 250th as wide, below
        3e-4 (width / μ)^4 times the fourth. Under a stronger tilt the stated error is 1, so that
        the pair says nothing: no δ that is a float needs one, as ln F(x) of the module ``lattice``
        is at most -(tilt μ)²/2 at the tilt of a question.
        """
        # μ² is moved by more than its rounding: a larger one dominates.
        variance = self.mu_squared * (1 + grid.side * 8 * EPS)
        mu = math.sqrt(variance)
        tilted_mean = variance * (0.5 + grid.tilt)
        losses, doubled_lengths = _gauss_legendre(
            tilted_mean, QUADRATURE_REACH * mu, grid.step, _widest_part(mu, grid.tilt)
        )
        z = (losses - variance / 2) / mu
        # The density e^{-z²/2} / (μ sqrt(2π)) times the length that a node stands for.
        log_masses = -(z**2) / 2 + np.log(doubled_lengths / (2 * mu)) - math.log(2 * math.pi) / 2
        # z is known to EPS of the losses over μ, and enters as z²/2.
        largest_z = float(np.abs(z).max())
        largest_loss = float(np.abs(losses).max())
        size = largest_z * (largest_z + largest_loss / mu)
        rounding = 8 * EPS * (size + abs(math.log(grid.step / mu)) + 8)
        error = QUADRATURE_ERROR if abs(grid.tilt) * mu <= FARTHEST_TILT else 1.0
        return [replace(pair_of(losses, log_masses, log_error=rounding), error=error)]


def _widest_part(mu: float, tilt: float) -> float:
    """Return how wide a part of the quadrature of a Gaussian loss may be: a quarter of its standard
    deviation μ, and of 1, less where the tilt is strong.

    A derivative of the tilted density is a power of the distance to the mean in deviations, which
    grows with the tilt: the width is divided by as much, by MOST_FINER at most.
    """
    finer = min(max(abs(tilt) * mu / STRONG_TILT, 1.0), MOST_FINER)
    return min(mu, 1.0) / 4 / finer


def _gauss_legendre(
    centre: float, reach: float, step: float, widest: float
) -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes, and twice the length that each stands for, in every grid cell
    within ``reach`` of the centre.

    The cells are cut into parts at most ``widest`` wide, with five nodes each; cells that are much
    narrower have two nodes.

    Args:
        centre: the middle of the interval.
        reach: half its length.
        step: the grid step, which is the width of a cell.
        widest: the largest width of a part.
    """
    low = centre - reach
    high = centre + reach
    parts = math.ceil(min(step, high - low) / widest)
    cells = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step
    cells = np.clip(cells, low, high)  # the cells at the ends, as far as they are within reach
    widths = np.diff(cells) / parts
    narrow = step <= NARROW_CELL * widest
    nodes, weights = np.polynomial.legendre.leggauss(2 if narrow else 5)
    shares_of_part = (np.arange(parts)[:, None] + (1 + nodes) / 2).ravel()
    losses = (cells[:-1, None] + widths[:, None] * shares_of_part).ravel()
    # A cell at an end may have no width left; its weight gets a logarithm all the same.
    cell_widths = np.repeat(np.maximum(widths, 1e-300), shares_of_part.size)
    return losses, np.tile(weights, parts * widths.size) * cell_widths


@dataclass(frozen=True)
class DiscreteGaussian(LossComponent):
    """n discrete Gaussians of one kind; with Y the summed noise the loss is (n shift² - 2
    shift Y) / (2 scale²).

    From scale ``CLOSED_FORM_SCALE`` on, Y is a discrete Gaussian of scale sqrt(n)·scale, and its
    normalisation sqrt(2π) of that: by Poisson summation either is off by less than a factor 1 ± 3n
    e^{-π² scale²} (docs/notes/discrete-gaussian.md). Its atoms are put on the grid at once.

    Attributes:
        scale: of the noise.
        shift: the integer by which a user moves the count.
        count: n.
    """

    scale: float
    shift: int
    count: int

    def spread(self) -> float:
        """Return n (shift/scale)², about the variance of the loss."""
        return self.count * (self.shift / self.scale) ** 2

    @property
    def exact(self) -> bool:
        """Return whether the noise is listed atom by atom, not by the closed form for
        wide noise.
        """
        return self.scale < CLOSED_FORM_SCALE

    def atoms(self) -> int:
        """Return the number of integers within twelve deviations of the summed noise; 0 for
        a scale that is infinite.
        """
        if math.isfinite(self.scale):
            return math.ceil(2 * REACH_OF_NOISE * self.scale * math.sqrt(self.count))
        return 0

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return the summed loss as one pair, by the closed form where the noise is wide and by
        convolution otherwise.
        """
        if self.scale >= CLOSED_FORM_SCALE:
            return [self._pair_by_closed_form(grid)]
        return self._pairs_by_convolution(grid)

    def _pair_by_closed_form(self, grid: Grid) -> Pairs:
        """Return the summed loss by the closed form for wide noise, its atoms put on
        the grid.
        """
        spacing = self.shift / self.scale**2
        width = self.scale * math.sqrt(self.count)
        offset = self.count * (self.shift / self.scale) ** 2 / 2
        # Under the tilt Y has the mean -n shift θ.
        centre = round(self.count * self.shift * grid.tilt)
        reach = math.ceil(REACH_OF_NOISE * width + REACH_OF_NOISE)
        y = np.arange(-centre - reach, -centre + reach + 1.0)
        log_masses = -((y / width) ** 2) / 2 - math.log(width) - math.log(2 * math.pi) / 2
        # Of a square and a sum of logarithms; of a loss, a product and a sum.
        rounding = 8 * EPS * (float(np.abs(log_masses).max()) + 8)
        losses = offset - spacing * y
        farthest = float(np.abs(losses).max() + offset)
        pair = pair_of(losses, log_masses, log_error=rounding)
        pair = replace(pair, error=CUT_MASS, loss_error=8 * EPS * farthest)
        return pair_on_grid(pair, step=grid.step, tilt=grid.tilt, side=grid.side)

    def _pairs_by_convolution(self, grid: Grid) -> list[Pairs]:
        """Return the summed loss as the product of the atoms of all copies on the
        integers.
        """
        spacing = self.shift / self.scale**2
        offset = self.count * (self.shift / self.scale) ** 2 / 2
        # Under the tilt the noise of one copy has the mean -shift θ.
        centre = round(self.shift * grid.tilt)
        reach = math.ceil(REACH_OF_NOISE * self.scale + REACH_OF_NOISE)
        y = np.arange(-centre - reach, -centre + reach + 1.0)
        log_masses = -(y**2) / (2 * self.scale**2) - _log_normalisation(self.scale)
        # Of a square, a quotient and a sum of two logarithms.
        rounding = 8 * EPS * (float(np.abs(log_masses).max()) + 8)
        copies = replace(pair_of(-y, log_masses, self.count, log_error=rounding), error=CUT_MASS)
        return [sum_of_copies(copies, spacing, offset, grid)]


def _log_normalisation(scale: float) -> float:
    """Return the logarithm of the sum of e^{-y²/2 scale²} over the integers y, off by less
    than 2e-15 for scales below ``CLOSED_FORM_SCALE``.
    """
    if scale < 1:
        # Beyond 40 standard deviations a term is below e^-800, which is 0.
        farthest = math.ceil(40 * scale + 2)
        squares = np.arange(-farthest, farthest + 1.0) ** 2
        return math.log(math.fsum(np.exp(-squares / (2 * scale**2))))
    # By Poisson summation the sum is scale sqrt(2π) times 1 + 2 Σ_n e^{-2 (π n scale)²}, n >= 1
    # (docs/notes/discrete-gaussian.md); the term of n = 2 is below 1e-34.
    oscillation = math.log1p(2 * math.exp(-2 * (math.pi * scale) ** 2))
    return math.log(scale) + math.log(2 * math.pi) / 2 + oscillation


@dataclass(frozen=True)
class SeveralConstraints(LossComponent):
    """n copies of a cost with several (ε, δ) constraints, given that none fails, that is that no
    loss is infinite: a mixture of randomised responses.

    Attributes:
        cost: the constraints.
        count: n.
    """

    cost: MultiDP
    count: int

    def _pair(self, side: int) -> Pairs:
        """Return the pair of the mixture from above (``side`` = 1) or from below (-1), given that
        it does not fail.
        """
        worst = worst_case(self.cost, side * PERTURBATION)
        losses, masses = worst.atoms()
        finite = np.isfinite(losses)
        log_masses = np.log(masses[finite]) - math.log1p(-worst.atom)
        # Some ten roundings of a mass. That of its logarithm is of the size of the logarithm, and
        # among those that the grid counts.
        return pair_of(losses[finite], log_masses, self.count, log_error=20 * EPS)

    def relative_increase(self) -> float:
        """Return a bound on the share by which δ of all copies is too large because the δ_i of the
        constraints were raised by PERTURBATION.

        The δ's are perturbed twice, for their own rounding, which raises δ by less than (1 + 2
        PERTURBATION/(1 - a))^n. The hull of the points (x_i, x_i δ_i (1 + ν)), ended by slope 1, is
        at most 1 + ν times that of (x_i, x_i δ_i). So every δ(x) of one copy rises by at most a
        factor 1 + ν (below 0 as well, since δ(x) = 1 - e^x + e^x δ(-x)), and given that it does not
        fail, with the atom a at infinity, by at most 1 + ν / (1 - a) or so. Copies of the pair are
        replaced one at a time: δ of a product is a mean of δ's of the pair.
        """
        worst = worst_case(self.cost, PERTURBATION)
        # 3 instead of 2: more than the powers of the small number that are left out.
        return 3 * PERTURBATION * self.count / (1 - worst.atom)

    def log_mgf(self, tilt: float) -> float:
        """Return ln E[e^{θ L}] of all copies at θ = ``tilt``."""
        return self._pair(1).log_mgf(tilt)

    def spread(self) -> float:
        """Return the variance of the total loss."""
        return self._pair(1).variance()

    def roundings(self) -> Roundings:
        """Return the number of copies, from above and from below."""
        return Roundings(self.count, self.count)

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return the pair of the mixture, taken ``count`` times."""
        return [self._pair(grid.side)]
