"""Compositions of mixtures of randomised responses on a grid of losses: exact where it fits, else a certified bracket.

A mixture is a law of |L| = ε, given as pairs (ε, weight). Two ways to bring it onto multiples of a step:

- *spread* (an upper bound): ε between two nodes is split among them so that E[S], S = 1/(1 + e^ε), stays the same. Then
  d(x) = E[(x - S)_+] can only grow (Jensen): the new pair dominates the old one, with an error of second order.
- *labels* (a lower bound): every outcome is replaced by the nearest node of its loss, and the outcomes of a composition
  by the sum of their nodes. Any function of the outcomes is post-processing, so the pair of laws of that sum is
  dominated by the composition, whatever losses the nodes stand for. Within one sum the true losses vary little: again
  an error of second order.

Both are convolution powers of positive masses on the integers (``laws.power``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dptopk.accounting.curves import ROUNDOFF, Floats
from dptopk.accounting.pld.laws import UNDERFLOW, LossLaw, Power, power

__all__ = ["Grid", "LabelLaw", "Parts", "Responses", "common_grid", "fitting_step", "label_law", "signs", "spread_law"]

Responses = tuple[tuple[float, float], ...]  # (ε, weight) pairs by falling ε, the weights adding up to 1
Parts = Sequence[tuple[Responses, int]]  # with their counts

# Cells of a common grid, and the mass that a bracket may cut off at each end of a convolution.
MOST_CELLS = 60_000
TAIL = 1e-60


def signs(epsilon: float) -> tuple[float, float]:
    """P[+ε] and P[-ε] of randomised response."""
    odds = math.exp(-epsilon)
    return 1 / (1 + odds), odds / (1 + odds)


@dataclass(frozen=True, slots=True)
class Grid:
    """A step, and the node of every ε: ε ≈ node · step."""

    step: float
    nodes: Mapping[float, int]

    def masses(self, responses: Responses) -> tuple[Floats, int]:
        """The masses under P of one mixture on the nodes, and the first node."""
        reach = self.nodes[responses[0][0]]
        masses = np.zeros(2 * reach + 1)
        for epsilon, weight in responses:
            plus, minus = signs(epsilon)
            masses[reach + self.nodes[epsilon]] += weight * plus
            masses[reach - self.nodes[epsilon]] += weight * minus
        return masses, -reach

    def compose(self, parts: Parts, tail: float = 0.0) -> Power:
        """The law under P of the sum of all nodes; ``error`` covers the rounding of the single masses too."""
        return _compose([(*self.masses(responses), times) for responses, times in parts], tail)

    def law(self, parts: Parts, tail: float = 0.0) -> LossLaw:
        """The same with the losses that the nodes stand for; ε may be off its node by 8 units of roundoff."""
        total = self.compose(parts, tail)
        loss_error = 24 * ROUNDOFF * sum(times * responses[0][0] for responses, times in parts)
        return LossLaw.sort(self.step * total.places(), total.masses, total.error, loss_error, total.missing)


def _compose(factors: Sequence[tuple[Floats, int, int]], tail: float) -> Power:
    """The convolution of powers, given as (masses, first node, count)."""
    total = Power(np.ones(1))
    for masses, first, times in factors:
        total = total.times(power(masses, times, offset=first, tail=tail), tail)
    single = 16 * ROUNDOFF * sum(times for *_, times in factors)
    return Power(total.masses, total.offset, (total.error + single) * (1 + 1e-6), total.missing)


def common_grid(parts: Parts) -> Grid | None:
    """A step of which all ε are multiples to within roundoff, or None when there is none within MOST_CELLS."""
    epsilons = {epsilon for responses, _ in parts for epsilon, _ in responses}
    smallest = min((epsilon for epsilon in epsilons if epsilon), default=1.0)
    if max(epsilons) / smallest > MOST_CELLS:
        return None
    ratios = {epsilon: Fraction(epsilon / smallest).limit_denominator(1000) for epsilon in epsilons}
    fine = math.lcm(*(ratio.denominator for ratio in ratios.values()))
    nodes = {epsilon: int(ratio * fine) for epsilon, ratio in ratios.items()}
    reach = sum(times * nodes[responses[0][0]] for responses, times in parts)
    near = all(abs(node * (smallest / fine) - epsilon) <= 8 * ROUNDOFF * epsilon for epsilon, node in nodes.items())
    return Grid(smallest / fine, nodes) if near and 2 * reach <= MOST_CELLS else None


def fitting_step(parts: Parts, cells: int) -> float:
    """A step with which compositions take at most about ``cells`` nodes.

    Among coarser steps up to half as large again, the one whose nodes lie closest to the ε's: what a split between
    the nodes adds to the variance, Σ weight · share · (1 - share) · step², is least.
    """
    steps = _width(parts) / cells * np.linspace(1, 1.5, 1000)
    added = np.zeros(len(steps))
    for responses, times in parts:
        for epsilon, weight in responses:
            share = epsilon / steps % 1
            added += times * weight * share * (1 - share) * steps**2
    return float(steps[np.argmin(added)])


def _width(parts: Parts) -> float:
    """Length of the interval outside which the sum of the losses has less than about TAIL, by Chernoff's bound."""
    everything = math.fsum(times * responses[0][0] for responses, times in parts)
    theta = np.geomspace(1e-3, 1e3, 61) / max(responses[0][0] for responses, _ in parts)
    ends = 0.0
    for side in (theta, -theta):
        log_moment = np.zeros(len(theta))
        for responses, times in parts:
            epsilon, weight = (np.array(column)[:, None] for column in zip(*responses, strict=True))
            exponents = (
                np.log(weight) + np.logaddexp(side * epsilon, -(side + 1) * epsilon) - np.log1p(np.exp(-epsilon))
            )
            log_moment += times * np.logaddexp.reduce(exponents, axis=0)
        ends += min(everything, float(np.min((log_moment - math.log(TAIL)) / theta)))
    return ends


def spread_law(parts: Parts, step: float) -> LossLaw:
    """A law that dominates the composition: every ε split between the nodes around it."""
    moved = [(_spread(responses, step), times) for responses, times in parts]
    nodes = {epsilon: round(epsilon / step) for responses, _ in moved for epsilon, _ in responses}
    return Grid(step, nodes).law(moved, TAIL)


def _spread(responses: Responses, step: float) -> Responses:
    """The mixture moved onto the nodes.

    With S(a) - S(ε) = (1 - e^{a - ε}) (1 - S(ε)) S(a) the share of the upper node b = a + step is
    (1 - e^{a - ε}) (1 - S(ε)) / ((1 - e^{-step}) (1 - S(b))); it is rounded up.
    """
    law: dict[float, float] = {}
    for epsilon, weight in responses:
        node = math.floor(epsilon / step)
        low, high = node * step, (node + 1) * step
        share = math.expm1(low - epsilon) / math.expm1(-step) * (1 + math.exp(-high)) / (1 + math.exp(-epsilon))
        share = min(max(share, 0.0) * (1 + 32 * ROUNDOFF), 1.0)
        for at, part in ((high, share), (low, 1 - share)):
            if part:
                law[at] = law.get(at, 0.0) + weight * part
    return tuple(sorted(law.items(), reverse=True))


@dataclass(frozen=True, slots=True)
class LabelLaw:
    """The laws of a sum of labels under P and under Q: a lower bound on a composition.

    The law under Q is kept where P has its mass, as r with q = r e^{log_scale - node · step}.
    """

    p: Power
    r: Power
    step: float
    log_scale: float

    def delta_lower(self, epsilon: Floats) -> Floats:
        """Lower bound on δ at every ε of an array of shape (m,).

        P(A) - e^ε Q(A) for the set A of labels at which p > e^ε q, among those above ε - 1: there what is missing of Q
        is multiplied by at most e^{1 + log_scale}.
        """
        first = max(power.offset for power in (self.p, self.r))
        last = max(first, min(power.offset + len(power.masses) for power in (self.p, self.r)))  # perhaps apart
        losses = self.step * np.arange(first, last, dtype=float)
        p, r = (power.masses[first - power.offset : last - power.offset] for power in (self.p, self.r))
        error = 1e-12 + 16 * ROUNDOFF * (abs(losses).max(initial=1.0) + abs(self.log_scale))
        p = p * (1 - self.p.error - 64 * ROUNDOFF)
        r = (r + UNDERFLOW) * (1 + self.r.error + 64 * ROUNDOFF)
        values = []
        for x in epsilon:
            above = int(np.searchsorted(losses, x - 1))
            weights = np.exp(x - losses[above:] + self.log_scale) * (1 + error)
            values.append(np.maximum(p[above:] - weights * r[above:], 0.0).sum() - self._missing())
        lower: Floats = np.maximum(np.array(values), 0.0)
        return lower

    def _missing(self) -> float:
        return self.r.missing * math.exp(min(1.01 + self.log_scale, 700.0))


def label_law(parts: Parts, step: float) -> LabelLaw:
    """A pair that is dominated by the composition: every outcome reported as the nearest node only.

    Under Q the masses are tilted by e^{node · step}, so that both laws live on the same nodes, and scaled to 1.
    """
    grid = Grid(step, {epsilon: round(epsilon / step) for responses, _ in parts for epsilon, _ in responses})
    tilted, log_scale = [], 0.0
    for responses, times in parts:
        masses, first = grid.masses(responses)
        r = masses[::-1] * np.exp(step * np.arange(first, -first + 1.0))
        scale = math.fsum(r)
        tilted.append((r / scale, first, times))
        log_scale += times * math.log(scale)
    return LabelLaw(grid.compose(parts, TAIL), _compose(tilted, TAIL), step, log_scale)
