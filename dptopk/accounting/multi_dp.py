"""Exact composition of mechanisms that are known by any number of (ε, δ) constraints (Cadir-Najib-Shkel 2025).

Constraints together have one worst-case pair, a mixture of randomised responses (``constraints.mixture``), and the pair
dominates in both directions. So composition is convolution of its loss law: this proves Conjecture 1 for every n, and
by Theorem A (docs/theorems.md) the result holds in every set-wise interaction and for different costs side by side.
The losses of a composition are the sums Σ a_i ε_i with integer a_i. Four ways to list them, the first that fits:

- all ε commensurable: a grid, by direct convolution;
- one ε: the binomial law of randomised response;
- two ε's: the rows of Theorem 3;
- more: a binomial mixture over how often one of the first two is picked, of the laws before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dptopk.accounting.bounds import NotApplicable, bound
from dptopk.accounting.constraints import NUDGE, Mixture, mixture
from dptopk.accounting.curves import SLACK, Answer, Curve, Floats, Query, outward, smallest_where
from dptopk.accounting.laws import ROUNDOFF, LossLaw, binomials, power, product
from dptopk.costs import Charge, MultiDP, PureDP, sum_up
from dptopk.errors import InvalidParameter

__all__ = ["composition_law", "discrete_pair", "multi_dp", "multi_dp_delta"]

# Outcomes listed at most, and cells of a grid that is convolved directly.
MOST_OUTCOMES = 4_000_000
MOST_CELLS = 60_000
Parts = Sequence[tuple[Mixture, int]]
Responses = tuple[tuple[float, float], ...]  # (ε, weight) pairs, the weights adding up to 1


def discrete_pair(cost: MultiDP | PureDP) -> tuple[Floats, Floats]:
    """The worst-case pair of a cost: probabilities under P and losses, finite atoms; it dominates in both directions.

    Args:
        cost: a PureDP, or a MultiDP without failure mass (some constraint has δ = 0: see ``bounds.split_failure``).

    Returns:
        (probabilities, losses), two arrays of the same length; the losses rise and come as ±ε; the probability under Q
        of a loss l is its probability under P times e^{-l}. Rounded so that the pair dominates the exact one: an
        upper bound. Each probability carries a relative error of up to four units of roundoff besides.

    Raises:
        InvalidParameter: when every constraint has δ > 0.

    Source: Cadir-Najib-Shkel 2025, proof of Theorem 2, for any number of constraints.

    >>> probabilities, losses = discrete_pair(MultiDP(((0.3, 0.0), (0.15, 0.02))))
    >>> losses.tolist(), probabilities.round(4).tolist()
    ([-0.3, -0.15, 0.15, 0.3], [0.1064, 0.3469, 0.4031, 0.1436])
    """
    worst = _mixture_of(cost, NUDGE)
    if worst.atom:
        raise InvalidParameter("cost must have a constraint with delta = 0: split its failure mass off first")
    losses, probabilities = worst.atoms()
    return probabilities, losses


def multi_dp_delta(constraints: Sequence[tuple[float, float]], count: int, epsilon_global: ArrayLike) -> Floats:
    """δ of the count-fold composition of mechanisms that satisfy every (ε, δ) constraint; CNS Conjecture 1.

    Args:
        constraints: pairs (ε, δ), ε >= 0, 0 <= δ < 1; inactive ones make no difference.
        count: number of mechanisms k >= 1.
        epsilon_global: ε >= 0 of the composition, any shape.

    Returns:
        Upper bounds on δ of the same shape; exact to a relative error below 1e-11.

    Raises:
        InvalidParameter: on constraints outside their ranges.
        NotApplicable: when there are too many outcomes to list (``compose`` then gives a bracket).

    >>> multi_dp_delta([(0.3, 0.0), (0.15, 0.02)], 20, [0.0, 1.0]).round(6).tolist()
    [0.342327, 0.088664]
    """
    worst = mixture(constraints, nudge=NUDGE)
    x = np.asarray(epsilon_global, dtype=float)
    if not worst.epsilons:
        return np.ones(x.shape)
    beyond = x.ravel() >= sum_up({worst.epsilons[0]: count})
    rest = np.where(beyond, 0.0, composition_law([(worst, count)]).delta_upper(x.ravel()))
    log_survival = count * math.log1p(-worst.atom)
    total: Floats = np.minimum(outward(-math.expm1(log_survival) + math.exp(log_survival) * rest), 1.0)
    return total.reshape(x.shape)


@bound(
    "multi_dp",
    source="Cadir-Najib-Shkel 2025, Theorems 2, 3 and Conjecture 1 (proven: docs/regions.md)",
    takes=(MultiDP, PureDP),
)
def multi_dp(charge: Charge) -> Curve:
    """Optimal composition of costs with several constraints each, beside pure DP costs; exact to rounding."""
    costs = {cost: times for cost, times in charge if isinstance(cost, MultiDP | PureDP)}
    curve = MixtureCurve(costs)
    if outcomes(curve.parts(NUDGE)) > MOST_OUTCOMES:
        raise NotApplicable("too many outcomes to list")
    return curve


@dataclass(frozen=True)
class MixtureCurve(Curve):
    """The privacy profile of costs with finite loss laws, with a certified lower bound."""

    costs: Mapping[MultiDP | PureDP, int]

    def parts(self, nudge: float) -> Parts:
        """The mixtures with their counts; ``nudge`` as in ``constraints.mixture``."""
        return [(_mixture_of(cost, nudge), times) for cost, times in self.costs.items()]

    @cached_property
    def upper(self) -> LossLaw:
        """The law that dominates the exact one."""
        return composition_law(self.parts(NUDGE))

    @cached_property
    def lower(self) -> LossLaw:
        """The law that is dominated by the exact one."""
        return composition_law(self.parts(-NUDGE))

    @cached_property
    def epsilon_max(self) -> float:
        """The answer for δ = 0."""
        largest: Counter[float] = Counter()  # different costs may share their largest ε
        for worst, times in self.parts(NUDGE):
            largest[worst.epsilons[0]] += times
        return sum_up(largest)

    @cached_property
    def note(self) -> str:
        """What was dropped."""
        dropped = [pair for worst, _ in self.parts(0.0) for pair in worst.dropped]
        listed = ", ".join(f"({epsilon:g}, {delta:g})" for epsilon, delta in dropped)
        return f"inactive constraints dropped: {listed}" if dropped else ""

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Upper bound on δ."""
        x = np.asarray(epsilon, dtype=float)
        values: Floats = np.where(x.ravel() >= self.epsilon_max, 0.0, self.upper.delta_upper(x.ravel()))
        return values.reshape(x.shape)

    def epsilon(self, delta: ArrayLike) -> Floats:
        """Upper bound on ε."""
        d = np.asarray(delta, dtype=float)
        found = smallest_where(lambda x: _log(self.delta(x)), _log(d.ravel() * (1 - SLACK)), self.epsilon_max)
        return found.reshape(d.shape)

    def answer(self, query: Query) -> Answer:
        """The answer and a lower bound from the dominated law, checked at the ε reported."""
        if query.epsilon is not None:
            at = np.array([query.epsilon])
            return Answer(float(self.delta(at)[0]), float(self.lower.delta_lower(at)[0]), self.note)
        value = float(self.epsilon(query.delta))
        return Answer(value, self._lower_epsilon(query.delta, value), self.note)

    def _lower_epsilon(self, delta: float, upper: float) -> float:
        """The largest ε among a few just below the upper bound at which δ is certainly not reached."""
        candidates = upper * (1 - np.array([1e-12, 1e-10, 1e-8, 1e-6, 1e-3]))
        reached = self.lower.delta_lower(candidates) > delta
        return float(candidates[reached].max(initial=0.0))


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(values)
    return logs


def _mixture_of(cost: MultiDP | PureDP, nudge: float) -> Mixture:
    return mixture(cost.constraints if isinstance(cost, MultiDP) else [(cost.epsilon, 0.0)], nudge=nudge)


def outcomes(parts: Parts) -> int:
    """How many losses the composition would list."""
    grid = _Grid.of(parts)
    if grid is not None:
        return 2 * grid.reach + 1
    return math.prod(_outcomes(len(worst.epsilons), times) for worst, times in parts)


def _outcomes(kinds: int, count: int) -> int:
    """Listed losses of a mixture of ``kinds`` randomised responses; a large number once it is hopeless."""
    if kinds == 1 and count <= MOST_CELLS:
        return count + 1
    if kinds == 2:
        return (count + 1) ** 2
    if count > 1000:
        return MOST_OUTCOMES**2
    return sum((j + 1) ** 2 * _outcomes(kinds - 2, count - j) for j in range(count + 1))


def composition_law(parts: Parts) -> LossLaw:
    """The law of the summed finite losses of all mixtures, each taken ``count`` times independently.

    The atoms at infinity are left aside: the law is conditional on none of them.

    Raises:
        NotApplicable: when there are more than MOST_OUTCOMES outcomes.
    """
    if outcomes(parts) > MOST_OUTCOMES:
        raise NotApplicable("too many outcomes to list")
    grid = _Grid.of(parts)
    if grid is not None:
        return grid.law(parts)
    total, *others = (_homogeneous(_finite(worst), times) for worst, times in parts)
    for law in others:
        total = product(total, law)
    return total


def _finite(worst: Mixture) -> Responses:
    """The mixture without its atom at infinity."""
    return _scaled(tuple(zip(worst.epsilons, worst.weights, strict=True)), 1 - worst.atom)


def _scaled(responses: Responses, total: float) -> Responses:
    return tuple((epsilon, weight / total) for epsilon, weight in responses)


def _signs(epsilon: float) -> tuple[float, float]:
    """P[+ε] and P[-ε] of randomised response."""
    odds = math.exp(-epsilon)
    return 1 / (1 + odds), odds / (1 + odds)


def _homogeneous(responses: Responses, count: int) -> LossLaw:
    """The law of ``count`` draws from one mixture, conditional on finite losses."""
    largest = count * responses[0][0]
    loss_error = 16 * ROUNDOFF * largest
    if len(responses) == 1:
        plus, minus = _signs(responses[0][0])
        losses = responses[0][0] * np.arange(-count, count + 1.0, 2)
        masses, mass_error = power(np.array([minus, plus]), count)
        return LossLaw.sort(losses, masses, mass_error + 4 * count * ROUNDOFF, loss_error)
    if len(responses) == 2:
        losses, masses = _double(responses, count)
        return LossLaw.sort(losses, masses, (12 * count + 32) * ROUNDOFF, loss_error)
    return _several(responses, count, loss_error)


def _double(responses: Responses, count: int) -> tuple[Floats, Floats]:
    """Losses and masses for two ε's, indexed [v, u] as in Theorem 3: the loss is ε1 (u + v - k) + ε2 (u - v).

    The four outcomes of a step are +ε1: (u, v) = (1, 1), -ε1: (0, 0), +ε2: (1, 0), -ε2: (0, 1). So v is binomial, and
    given v, u is the sum of two independent binomials over the steps with v = 1 and those with v = 0.
    """
    (epsilon1, weight1), (epsilon2, weight2) = responses
    (plus1, minus1), (plus2, minus2) = _signs(epsilon1), _signs(epsilon2)
    one, zero = weight1 * plus1 + weight2 * minus2, weight1 * minus1 + weight2 * plus2  # P[v step = 1], P[v step = 0]
    of_v, _ = power(np.array([zero, one]), count)
    within_one = binomials(count, weight1 * plus1 / one, weight2 * minus2 / one)
    within_zero = binomials(count, weight2 * plus2 / zero, weight1 * minus1 / zero)
    masses = np.empty((count + 1, count + 1))
    with np.errstate(under="ignore"):
        for ones in range(count + 1):
            row = np.convolve(within_one[ones, : ones + 1], within_zero[count - ones, : count - ones + 1])
            masses[ones] = of_v[ones] * row
    v, u = np.ogrid[: count + 1, : count + 1]
    return epsilon1 * (u + v - count) + epsilon2 * (u - v), masses


def _several(responses: Responses, count: int, loss_error: float) -> LossLaw:
    """More than two ε's: j of the draws come from the first two, the others from the rest (Conjecture 1)."""
    first, rest = responses[:2], responses[2:]
    of_first, of_rest = (sum(weight for _, weight in some) for some in (first, rest))
    picks, _ = power(np.array([of_rest, of_first]), count)
    first, rest = _scaled(first, of_first), _scaled(rest, of_rest)
    laws = []
    for j in range(count + 1):
        inner = [_homogeneous(some, times) for some, times in ((first, j), (rest, count - j)) if times]
        law = inner[0] if len(inner) == 1 else product(*inner)
        laws.append((law.losses, picks[j] * law.masses))
    losses, masses = (np.concatenate(columns) for columns in zip(*laws, strict=True))
    return LossLaw.sort(losses, masses, (16 * len(responses) * count + 64) * ROUNDOFF, loss_error)


@dataclass(frozen=True, slots=True)
class _Grid:
    """A common step of all ε's: ε ≈ multiple · step, to a relative error that the law's loss_error covers."""

    step: float
    multiples: Mapping[float, int]
    reach: int

    @classmethod
    def of(cls, parts: Parts) -> _Grid | None:
        """The coarsest grid found, or None when there is none within MOST_CELLS."""
        epsilons = {epsilon for worst, _ in parts for epsilon in worst.epsilons}
        smallest = min((epsilon for epsilon in epsilons if epsilon), default=1.0)
        most = max(epsilons, default=0.0) / smallest
        if most > MOST_CELLS:
            return None
        ratios = {epsilon: Fraction(epsilon / smallest).limit_denominator(1000) for epsilon in epsilons}
        fine = math.lcm(*(ratio.denominator for ratio in ratios.values()))
        multiples = {epsilon: int(ratio * fine) for epsilon, ratio in ratios.items()}
        reach = sum(times * multiples[worst.epsilons[0]] for worst, times in parts)
        step = smallest / fine
        near = all(abs(multiple * step - epsilon) <= 8 * ROUNDOFF * epsilon for epsilon, multiple in multiples.items())
        return cls(step, multiples, reach) if near and 2 * reach <= MOST_CELLS else None

    def law(self, parts: Parts) -> LossLaw:
        """The law of the composition, by direct convolution."""
        masses, error = np.ones(1), 0.0
        for worst, times in parts:
            one = np.zeros(2 * self.multiples[worst.epsilons[0]] + 1)
            centre = self.multiples[worst.epsilons[0]]
            for epsilon, weight in _finite(worst):
                plus, minus = _signs(epsilon)
                one[centre + self.multiples[epsilon]] += weight * plus
                one[centre - self.multiples[epsilon]] += weight * minus
            many, many_error = power(one, times)
            error += many_error + (8 * times + min(len(many), len(masses)) + 1) * ROUNDOFF
            masses = np.convolve(masses, many)
        steps = np.arange(-self.reach, self.reach + 1.0)
        largest = self.step * self.reach
        return LossLaw.sort(self.step * steps, masses, error, 24 * ROUNDOFF * largest)
