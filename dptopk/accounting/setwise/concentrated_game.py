"""The game of a few concentrated costs, step by step: what they are worth at most, and at least.

From above, a *majorant* of V, F(w) = a + βw + Σ γ_i w^{-e_i} >= V(ln w) for all w > 0 with γ_i >= 0
and every e_i an order of the class, bounds the step at every x: E[F(e^{x - L})] is a + βe^x + Σ γ_i
e^{-e_i x} E[e^{e_i L}]. From below, a law on multiples of h that satisfies the class can be played
at every x. Both are found by linear programs (``moment_program``), and proven here: the majorant is
lifted until it is above V at all nodes and between them, and the law is mixed with one that says
nothing until all its moments hold (docs/notes/setwise.md, "Few concentrated costs").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.choices import Interaction
from dptopk._internal.rounding import Floats
from dptopk.accounting.renyi.renyi_curves import renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.cost_groups import GroupPair, pair_above
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    MomentClass,
    Nodes,
    ProgramSolution,
    StepProgram,
)
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.costs import CDP, ZCDP, Charge, Cost

# Of sums of a few exponentials with exponents up to 600, relative to the sum of their sizes.
ROUNDING = 1e-12
# Of the masses of a law whose sum, and whose E[e^{-L}], are 1 but for rounding.
LAW_ERROR = 2e-14
# The rounding above stays small next to δ and to moments in these ranges.
SMALLEST_RHO = 1e-7
LARGEST_RHO = 2.0
SMALLEST_DELTA = 1e-10
MOST_COSTS = 20
MOST_STATES = 60
MOST_NODES = 6000
LARGEST_RATIO = 12.0  # of the deviations of two costs of a game, which share its nodes


# ---- V on nodes


@dataclass(frozen=True)
class ValueTable:
    """Bounds on V at the nodes jh, 0 <= j < n; at x < 0 by V(x) = 1 - e^x (1 - V(-x)).

    The class of each cost is closed under swapping the neighbours, hence the symmetry.
    """

    h: float
    values: Floats
    upper: bool

    def at(self, nodes: Nodes) -> Floats:
        """Bounds at any nodes: beyond the last one that at the last from above, 0 from below."""
        places = np.abs(nodes)
        last = len(self.values) - 1
        beyond = self.values[last] if self.upper else 0.0
        values = np.where(places <= last, self.values[np.minimum(places, last)], beyond)
        left = np.minimum(nodes, 0) * self.h
        found: Floats = np.where(nodes >= 0, values, -np.expm1(left) + np.exp(left) * values)
        return found

    @classmethod
    def of_nothing(cls, h: float, *, upper: bool) -> ValueTable:
        """V without costs, [1 - e^x]_+."""
        return cls(h, np.zeros(1), upper)


# ---- from above


@dataclass(frozen=True)
class Majorant:
    """F, in terms of t = e^{y - x}: a + bt + Σ g_i t^{-e_i}, so that a loss of 0 is at t = 1.

    Attributes:
        x: where the terms are written down.
        constant, slope: a, and b >= 0 after ``lifted``.
        weights, exponents: g_i >= 0 and e_i, an order λ of the class or -(1 + λ).
        limits: K(λ) of each.
    """

    x: float
    constant: float
    slope: float
    weights: Floats
    exponents: Floats
    limits: Floats

    @classmethod
    def of(cls, found: ProgramSolution, moments: MomentClass) -> Majorant:
        """The multipliers of a program."""
        orders = np.array([one.order for one in found.constraints])
        exponents = np.array([one.exponent for one in found.constraints])
        limits = moments.log_moment(orders)
        return cls(found.x, found.constant, found.slope, found.weights, exponents, limits)

    def lifted(self, value: ValueTable, nodes: Nodes) -> Majorant | None:
        """A majorant of V: at the nodes, between them, and on both sides of them; None where these
        multipliers cannot be raised to one.

        V is convex in w with V = 1 at w = 0, and falls: it lies below the chords between upper
        bounds at nodes, below the chord from (0, 1) to the first one, and below the last one beyond
        it. The chord of w^{-e} is at most c_e times w^{-e}, so F with c_e g is above the chords of
        F.
        """
        y = nodes.astype(np.float64) * value.h - self.x
        above = value.at(nodes)
        terms = self.terms(y)
        rise, size = self.derivative(float(y[-1]))
        slope = self.slope + max(ROUNDING * size - rise, 0.0)
        linear = self.constant + slope * np.exp(y)
        moments = terms.sum(axis=0)
        sizes = abs(self.constant) + abs(slope) * np.exp(y) + moments
        short = above - linear - moments + ROUNDING * sizes
        most = float(short.max())
        raised = self
        if most > 0:
            raised = self._raised(short, moments)
        chords = np.array([chord_factor(-one, value.h) for one in self.exponents.tolist()])
        raised = replace(raised, slope=slope, weights=raised.weights * chords)
        # To the right of the nodes F rises, as V falls: what was added may have made it fall there.
        rise, size = raised.derivative(float(y[-1]))
        raised = replace(raised, slope=raised.slope + max(ROUNDING * size - rise, 0.0))
        # To the left of the nodes: a convex function is above its tangent.
        first = float(y[0])
        fall, size = raised.derivative(first)
        needed = (float(above[0]) - 1) * math.exp(-first)
        if (
            not fall + ROUNDING * size <= needed * (1 + ROUNDING)
            or not np.isfinite(raised.weights).all()
        ):
            return None
        return raised

    def _raised(self, short: Floats, moments: Floats) -> Majorant:
        """F plus what is missing at the nodes: a constant, or a share of the moments, whichever
        costs less at x.
        """
        constant = float(short.max())
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = float(np.max(np.where(short > 0, short / moments, 0.0)))
            moment_worth = float(self.weights @ np.exp(np.minimum(self.limits, LARGEST_EXPONENT)))
        if math.isfinite(share) and share * moment_worth < constant:
            return replace(self, weights=self.weights * (1 + share) * (1 + ROUNDING))
        return replace(self, constant=self.constant + constant)

    def terms(self, y: Floats) -> Floats:
        """g_i t^{-e_i}, shape (terms, nodes)."""
        logs = np.clip(-np.outer(self.exponents, y), -LARGEST_EXPONENT, LARGEST_EXPONENT)
        terms: Floats = self.weights[:, None] * np.exp(logs)
        return terms

    def derivative(self, y: float) -> tuple[float, float]:
        """dF/dt at t = e^y, and the sum of the sizes of its terms."""
        terms = self.terms(np.array([y]))[:, 0] * math.exp(-y)
        derivative = self.slope - float(self.exponents @ terms)
        return derivative, abs(self.slope) + float(np.abs(self.exponents) @ terms)

    def step(self, x: Floats) -> Floats:
        """The bound on the step at each x, rounded up; 1 where it is beyond all floats."""
        y = x - self.x
        with np.errstate(over="ignore"):
            logs = -np.outer(self.exponents, y) + self.limits[:, None]
            terms = self.weights[:, None] * np.exp(np.minimum(logs, LARGEST_EXPONENT))
            moments = terms.sum(axis=0)
            linear = self.slope * np.exp(y)
            sizes = abs(self.constant) + np.abs(linear) + moments
            bounds = self.constant + linear + moments + ROUNDING * sizes
        too_large = (logs > LARGEST_EXPONENT).any(axis=0) | ~np.isfinite(bounds)
        return np.where(too_large, 1.0, np.clip(bounds, 0.0, 1.0))


def chord_factor(exponent: float, h: float) -> float:
    """The largest ratio of the chord of t^exponent between two nodes, a factor e^h apart, to
    t^exponent itself; for a convex power.

    With 1 + s (t - 1) for the chord over [1, e^h], the ratio is largest at t = e (1 - s) / (s (1 -
    e)).
    """
    rise = math.expm1(exponent * h)
    s = rise / math.expm1(h)
    if s == 0 or exponent == 1:
        return 1.0
    t = exponent * (1 - s) / (s * (1 - exponent))
    t = min(max(t, 1.0), math.exp(h))
    ratio = (1 + s * (t - 1)) * math.exp(-exponent * math.log(t))
    return max(ratio, 1.0) * (1 + 1e-9)


# ---- from below


@dataclass(frozen=True)
class PlayableLaw:
    """A law of the loss in the class, on x - L = jh.

    Attributes:
        x: where its program was solved.
        nodes: j of what is to come after each loss.
        masses: their probabilities.
        idle: the probability that it says nothing: a loss of 0.
    """

    x: float
    nodes: Nodes
    masses: Floats
    idle: float

    @classmethod
    def of(cls, found: ProgramSolution, moments: MomentClass, h: float) -> PlayableLaw | None:
        """The law of a program, made one of the class: E[e^{-L}] = 1 by a little mass at one more
        loss, then mixed with no loss at all until every moment holds; None where that cannot be.
        """
        masses = found.masses / math.fsum(found.masses.tolist())
        losses = found.x - found.nodes * h
        excess = math.fsum((masses * np.expm1(-losses)).tolist())
        place = int(np.argmax(masses))
        loss = float(losses[place])
        most = float(masses[place])
        # A part of the largest mass goes to a loss that is enough nodes away.
        away = math.ceil(abs(excess) * math.exp(loss) / (most * h) * 1.1 + 1e-300)
        node = int(found.nodes[place]) - away if excess > 0 else int(found.nodes[place]) + away
        gain = math.exp(-loss) * -math.expm1(loss - (found.x - node * h))
        part = excess / gain if excess else 0.0
        if not 0 <= part <= most:
            return None
        nodes = np.append(found.nodes, node)
        masses = np.append(masses, part)
        masses[place] -= part
        losses = found.x - nodes * h
        if moments.centred:
            played = _played_centred(losses, masses, moments)
        else:
            played = _played(losses, masses, moments)
        if not played > 0:
            return None
        return cls(found.x, nodes, masses * played, 1 - played)

    def step(self, value: ValueTable, by: Nodes) -> Floats:
        """A lower bound on the step at the nodes of x, moved ``by`` nodes, where x is a node."""
        to_come = value.at(self.nodes + by[:, None]) @ self.masses
        here = round(self.x / value.h)
        total = to_come + self.idle * value.at(here + by)
        return np.maximum(total * (1 - 1e-13) - LAW_ERROR, 0.0)

    def here(self, value: ValueTable) -> float:
        """A lower bound on the step at x itself, which need not be a node."""
        to_come = float(value.at(self.nodes) @ self.masses)
        right = np.array([math.ceil(self.x / value.h * (1 + 1e-15))])
        total = to_come + self.idle * float(value.at(right)[0])
        return max(total * (1 - 1e-13) - LAW_ERROR, 0.0)


def _played(losses: Floats, masses: Floats, moments: MomentClass) -> float:
    """The largest share of a law, the rest being no loss, with which all its moments hold.

    Checked at orders between which ln E[e^{λL}], which is convex, lies below its chord, and K above
    its own less ρΔ²/4; up to the first by convexity from 0, beyond the last by the largest loss.
    """
    last = max(float(np.abs(losses).max()) - moments.mean, 0.0) / moments.rho + 1
    orders = np.geomspace(1e-4, last * 1.001, math.ceil(400 * math.log10(last * 1e4)) + 2)
    gaps = np.diff(orders)
    widest = np.maximum(np.append(gaps, 0.0), np.append(0.0, gaps))
    allowed = moments.log_moment(orders) - moments.rho * widest**2 / 4
    allowed[0] = min(allowed[0], orders[0] * moments.mean)
    room = np.expm1(np.minimum(allowed, LARGEST_EXPONENT)) * (1 - 1e-9)
    share = 1.0
    for exponents in (orders, -(1 + orders)):
        logs = np.outer(exponents, losses)
        if logs.max() > LARGEST_EXPONENT:
            return 0.0
        changes = np.expm1(logs)
        rises = changes @ masses + 1e-12 * (np.abs(changes) @ masses) + LAW_ERROR
        with np.errstate(divide="ignore"):
            shares = np.where(rises > 0, room / rises, np.inf)
        share = min(share, float(shares.min()))
    return share


def _played_centred(losses: Floats, masses: Floats, moments: MomentClass) -> float:
    """The largest share tried of a law, the rest being no loss, that is subgaussian about its mean
    in both directions, with means that are small enough.

    ln M(λ) <= λm + λ²ρ, both convex, is checked on orders of both signs as in ``_played``, and
    about 0 by (ln M)'' <= E[L² e^{|λL|}] / M <= 2ρ.
    """
    forth = _centred_shares(losses, masses, moments)
    back = _centred_shares(-losses, masses * np.exp(-losses), moments)
    # At one and the same share: a direction that holds at a share may not hold at a smaller one.
    holding = _SHARES[forth & back]
    return float(holding.max()) if holding.size else 0.0


def _centred_shares(losses: Floats, masses: Floats, moments: MomentClass) -> NDArray[np.bool_]:
    """At which of the shares one direction holds."""
    rho = moments.rho
    first = 0.02 / moments.deviation
    last = 2 * float(np.abs(losses).max()) / rho + 2 * first
    rising = np.geomspace(first, last, math.ceil(150 * math.log10(last / first)) + 2)
    gap = rising * (rising[1] / rising[0] - 1) * (1 + 1e-9)
    orders = np.concatenate([rising, -rising])
    logs = np.outer(orders, losses)
    reachable = np.abs(logs).max(axis=1) <= LARGEST_EXPONENT
    changes = np.expm1(np.clip(logs, -LARGEST_EXPONENT, LARGEST_EXPONENT))
    rises = changes @ masses + 1e-12 * (np.abs(changes) @ masses) + LAW_ERROR
    if not reachable.all():
        return np.zeros(len(_SHARES), dtype=np.bool_)
    mean = math.fsum((losses * masses).tolist())
    mean_error = 1e-13 * float(np.abs(losses) @ masses) + LAW_ERROR
    shares = _SHARES
    allowed = np.outer(shares, orders * mean - np.abs(orders) * mean_error)
    allowed += rho * (orders**2 - np.concatenate([gap, gap]) ** 2 / 4)
    moments_of = np.log1p(np.outer(shares, rises)) + 1e-13
    holds = (moments_of <= allowed).all(axis=1)
    # Between the two orders nearest to 0, where M >= e^{-|λ| E|L|}.
    size = float(np.abs(losses) @ masses)
    second = float(losses**2 * np.exp(first * np.abs(losses)) @ masses)
    holds &= shares * second * math.exp(first * size) <= 2 * rho * (1 - 1e-9)
    holds &= shares * (mean + mean_error) <= moments.mean
    return holds


_SHARES = np.append(0.0, 1 - np.append(0.0, np.geomspace(1e-4, 0.9, 40)))[1:]


# ---- the game


Multiset = tuple[int, ...]


@dataclass(frozen=True)
class ConcentratedGame:
    """A few costs of moment classes.

    Attributes:
        classes: the distinct classes, by rising ρ.
        counts: of each.
        h: the distance of two nodes.
        reach: the largest x of a table.
        coarseness: how much rarer programs are solved the more costs are still to come, and V the
            smoother; 0: no rarer.
    """

    classes: tuple[MomentClass, ...]
    counts: Multiset
    h: float
    reach: float
    coarseness: float = 0.0

    @classmethod
    def of(cls, charge: Charge, reach: float) -> Self | None:
        """The game of ZCDP and CDP costs; None where they are too many, too different, too small or
        too large.

        Args:
            charge: the costs.
            reach: up to which x it is asked, at least.
        """
        if not 0 < charge.count <= MOST_COSTS or not math.isfinite(reach):
            return None
        together: dict[MomentClass, int] = {}
        for cost, times in charge:
            one = moment_class(cost)
            if one is None or not SMALLEST_RHO <= one.mean or not one.rho <= LARGEST_RHO:
                return None
            together[one] = together.get(one, 0) + times
        classes = tuple(sorted(together, key=lambda one: (one.rho, one.xi)))
        counts = tuple(together[one] for one in classes)
        if math.prod(count + 1 for count in counts) > MOST_STATES:
            return None
        widest = max(one.deviation for one in classes)
        if widest > LARGEST_RATIO * min(one.deviation for one in classes):
            return None
        narrowest = min(one.deviation for one in classes)
        step = min(widest / tuning.GAME_NODES, narrowest / tuning.GAME_NODES_OF_SMALLEST)
        # A reach in whole deviations, so that questions share their tables.
        reach = widest * math.ceil(reach / widest + tuning.GAME_BEYOND)
        if reach > MOST_NODES * step:
            return None
        return cls(classes, counts, step, reach)

    @classmethod
    def fitting(cls, charge: Charge, reach: float, room: float, *, whole: bool) -> Self | None:
        """The finest game of some costs whose work fits into ``room``; None where none does.

        Args:
            charge: as for ``of``.
            reach: as for ``of``.
            room: of work.
            whole: as for ``work``.
        """
        game = cls.of(charge, reach)
        if game is None:
            return None
        games = (replace(game, coarseness=each) for each in tuning.GAME_COARSENESS)
        return next((one for one in games if one.work(whole=whole) <= room), None)

    def playable_in(self, interaction: Interaction, *, alone: bool) -> bool:
        """Whether its strategy is one of this interaction: laws adapt to answers, and of several
        classes the first is chosen.
        """
        if interaction == "batch":
            return alone and sum(self.counts) == 1
        return interaction != "ordered" or len(self.classes) == 1

    def work(self, *, whole: bool) -> float:
        """The work of V of all costs on all nodes, or of all but the first and one answer."""
        states = product(*(range(count + 1) for count in self.counts))
        programs = 0
        for left in states:
            firsts = sum(1 for count in left if count)
            if left == self.counts and not whole:
                programs += firsts * tuning.LAST_PROGRAMS
            elif firsts:
                spacing = self.spacing(left, self.classes[-1]) / 2
                programs += firsts * math.ceil(self.reach / spacing)
        return tuning.WORK_PER_PROGRAM * programs

    def spacing(self, left: Multiset, one: MomentClass) -> float:
        """The distance of the x's at which the programs of a step are solved at first."""
        to_come = sum(left) - 1
        return tuning.GAME_SPACING * one.deviation * max(1.0, self.coarseness * math.sqrt(to_come))

    def tables(self, left: Multiset) -> tuple[ValueTable, ValueTable]:
        """V of a multiset from above and from below, on nodes up to the reach."""
        if not any(left):
            return (
                ValueTable.of_nothing(self.h, upper=True),
                ValueTable.of_nothing(self.h, upper=False),
            )
        return _tables(self, left)

    def firsts(self, left: Multiset) -> list[tuple[MomentClass, Multiset]]:
        """Each class that may be played first, and what is left then."""
        return [
            (one, tuple(n - (place == at) for at, n in enumerate(left)))
            for place, (one, count) in enumerate(zip(self.classes, left, strict=True))
            if count
        ]

    def programs(self, left: Multiset, one: MomentClass) -> tuple[ProgramSolution, ...]:
        """Programs of the step of a class, from a multiset that has it, all over the reach."""
        return _solutions(self, left, one)

    def conversion(self, left: Multiset, x: Floats) -> Floats:
        """The bound on V by the Rényi conversion."""

        def log_mgf(orders: Floats) -> Floats:
            parts = [n * one.log_moment(orders) for one, n in zip(self.classes, left, strict=True)]
            total: Floats = np.sum(parts, axis=0) * (1 + 1e-15 * len(parts))
            return total

        return np.minimum(renyi_curve(log_mgf).delta(x), 1.0)

    def below(self, x: Floats) -> Floats:
        """A lower bound on V of all costs at any x.

        Between two nodes V, convex in u = e^x, is above the line through the right one and the
        next, from the lower end there to the upper one, continued to the left.
        """
        upper, lower = self.tables(self.counts)
        right = np.ceil(x / self.h).astype(np.int64)
        left_by = np.maximum(right * self.h - x, 0.0)
        values = lower.at(right)
        falls = np.maximum(values - upper.at(right + 1), 0.0)
        continued: Floats = values - falls * np.expm1(-left_by) / math.expm1(self.h)
        return continued * (1 - 1e-12)

    def pair(self) -> GroupPair:
        """A pair whose profile is at least V of all costs (Theorem C)."""
        above, _ = self.tables(self.counts)
        last = len(above.values) - 1
        nodes = np.arange(-last, last + 1)
        values = np.maximum(above.at(nodes) * (1 + 1e-15), FLOOR)
        return pair_above(nodes, values, self.h)


@lru_cache(maxsize=256)
def _tables(game: ConcentratedGame, left: Multiset) -> tuple[ValueTable, ValueTable]:
    """V of a multiset, from the tables of what is left after each first cost."""
    nodes = np.arange(math.ceil(game.reach / game.h) + 1)
    above = np.zeros(len(nodes))
    below = np.zeros(len(nodes))
    x = nodes.astype(np.float64) * game.h
    converted = game.conversion(left, x)
    for one, rest in game.firsts(left):
        upper, lower = game.tables(rest)
        bounds = converted.copy()
        for found in game.programs(left, one):
            majorant = Majorant.of(found, one).lifted(upper, far_nodes(one, upper, found.x))
            if majorant is not None:
                bounds = np.minimum(bounds, majorant.step(x))
            below = np.maximum(below, _attained(found, one, lower, nodes))
        above = np.maximum(above, bounds)
    return ValueTable(game.h, above, upper=True), ValueTable(game.h, below, upper=False)


def _attained(
    found: ProgramSolution, moments: MomentClass, lower: ValueTable, nodes: Nodes
) -> Floats:
    """Return what the law of a program attains at all nodes; near its x also with its large losses
    moved, so that what is to come after them stays the same.
    """
    values = np.zeros(len(nodes))
    here = round(found.x / lower.h)
    law = PlayableLaw.of(found, moments, lower.h)
    if law is not None:
        values = law.step(lower, nodes - here)
    around = math.ceil(tuning.GAME_SPACING / 4 * moments.deviation / lower.h)
    for node in range(max(here - around, 0), min(here + around + 1, len(nodes))):
        moved = PlayableLaw.of(_moved(found, moments, node, lower.h), moments, lower.h)
        if moved is not None:
            values[node] = max(values[node], float(moved.step(lower, np.zeros(1, dtype=int))[0]))
    return values


def _moved(found: ProgramSolution, moments: MomentClass, node: int, h: float) -> ProgramSolution:
    """A law for another node: large losses lead to the same places, at about the probability that
    such a loss may have; the others are the same losses.
    """
    by = node - round(found.x / h)
    losses = found.x - found.nodes * h
    large = losses > moments.deviation / 2
    nearer = (losses - moments.mean) ** 2 - (losses + by * h - moments.mean) ** 2
    masses = np.where(large, found.masses * np.exp(nearer / (4 * moments.rho)), found.masses)
    masses = np.where(large, masses * tuning.LARGER_MASS, masses)
    nodes = np.where(large, found.nodes, found.nodes + by)
    return replace(found, x=node * h, nodes=nodes, masses=masses)


def far_nodes(moments: MomentClass, value: ValueTable, x: float) -> Nodes:
    """The nodes at which a majorant is compared with V: those of the program."""
    first = math.floor(-tuning.PROGRAM_LEFT * moments.deviation / value.h)
    last = math.ceil((x + tuning.PROGRAM_RIGHT * moments.deviation) / value.h)
    return np.arange(first, last + 1)


@lru_cache(maxsize=1024)
def _solutions(
    game: ConcentratedGame, left: Multiset, moments: MomentClass
) -> tuple[ProgramSolution, ...]:
    """Programs solved at nodes all over [0, reach], each beginning from its neighbours."""
    (value,) = (game.tables(rest)[0] for one, rest in game.firsts(left) if one == moments)
    apart = game.spacing(left, moments)
    wanted = np.arange(0.0, game.reach + apart, apart)
    found: dict[int, ProgramSolution] = {}

    def solve(node: int, near: list[ProgramSolution]) -> None:
        solution = StepProgram(moments, value, node * value.h, near).solve()
        if solution is not None:
            found[node] = solution

    last: list[ProgramSolution] = []
    for x in wanted.tolist():
        node = round(x / value.h)
        solve(node, last)
        last = [found[node]] if node in found else last
    known = sorted(found)
    for before, after in pairwise(known):
        middle = (before + after) // 2
        if middle not in found:
            solve(middle, [found[before], found[after]])
    return tuple(found[node] for node in sorted(found))


def moment_class(cost: Cost) -> MomentClass | None:
    """The moment class of a ZCDP or CDP cost."""
    if isinstance(cost, ZCDP):
        return MomentClass(cost.rho * (1 + 1e-15), cost.xi * (1 + 1e-15))
    if isinstance(cost, CDP):
        rho = cost.tau**2 / 2 * (1 + 1e-15)
        return MomentClass(rho, min(cost.mu * (1 + 1e-15) - rho, 0.0), centred=True)
    return None


# ---- answers


@dataclass(frozen=True)
class Ends:
    """Both ends of an answer: proven."""

    upper: float
    lower: float


def delta_at(game: ConcentratedGame, x: float) -> Ends:
    """δ at ε = x."""
    above = 0.0
    below = 0.0
    for one, rest in game.firsts(game.counts):
        upper, lower = game.tables(rest)
        bound, attained = _last_step(game, one, (upper, lower), x, [])[:2]
        above = max(above, bound(np.array([x]))[0])
        below = max(below, attained)
    converted = float(game.conversion(game.counts, np.array([x]))[0])
    return Ends(min(above, converted), below)


Bounding = Callable[[Floats], Floats]


def _last_step(
    game: ConcentratedGame,
    one: MomentClass,
    to_come: tuple[ValueTable, ValueTable],
    x: float,
    near: list[ProgramSolution],
) -> tuple[Bounding, float, list[ProgramSolution]]:
    """The first cost of the game at x: a bound for all x, what is attained at this one, and the
    solution.
    """
    upper, lower = to_come

    def conversion(points: Floats) -> Floats:
        return game.conversion(game.counts, points)

    found = StepProgram(one, upper, x, near).solve(tuning.LAST_PROGRAMS)
    if found is None:
        return conversion, 0.0, near
    majorant = Majorant.of(found, one).lifted(upper, far_nodes(one, upper, x))
    law = PlayableLaw.of(found, one, game.h)
    attained = law.here(lower) if law else 0.0
    return (majorant.step if majorant else conversion), attained, [found]


def epsilon_at(game: ConcentratedGame, delta: float, delta_below: float, start: float) -> Ends:
    """ε at a δ: an upper bound below ``start``, and a lower one at ``delta_below`` >= delta.

    From above, the largest over the first costs of the least x at which some majorant is at most δ.
    From below, x at which a law attains more than ``delta_below``, near the upper one.
    """
    above = 0.0
    below = 0.0
    for one, rest in game.firsts(game.counts):
        to_come = game.tables(rest)
        upper, near = _falls_to(game, one, to_come, delta, start)
        above = max(above, upper)
        below = max(below, _attains(game, one, to_come, delta_below, upper, near))
    return Ends(min(above, start), below)


def _falls_to(
    game: ConcentratedGame,
    one: MomentClass,
    to_come: tuple[ValueTable, ValueTable],
    delta: float,
    start: float,
) -> tuple[float, list[ProgramSolution]]:
    """The least x found at which a majorant of the step is at most δ; programs are solved where the
    last one says that this is.
    """
    best = start
    x = start
    near: list[ProgramSolution] = []
    for _ in range(tuning.LAST_PROGRAMS):
        bound, _, near = _last_step(game, one, to_come, x, near)
        points = np.linspace(max(best - one.deviation, 0.0), best, 4001)
        low_enough = np.flatnonzero(bound(points) <= delta)
        if not low_enough.size or points[low_enough[0]] >= best:
            break
        moved = best - float(points[low_enough[0]])
        best = float(points[low_enough[0]])
        x = best
        if moved < 1e-5 * best:
            break
    return best, near


def _attains(
    game: ConcentratedGame,
    one: MomentClass,
    to_come: tuple[ValueTable, ValueTable],
    delta: float,
    upper: float,
    near: list[ProgramSolution],
) -> float:
    """The largest x found at which a law attains more than δ, below the upper end; by secants of ln
    δ, from the upper end down.
    """
    best = 0.0
    x = upper
    steepness = 2 / one.deviation
    last = None
    for _ in range(tuning.LAST_PROGRAMS):
        attained, near = _last_step(game, one, to_come, x, near)[1:]
        if attained > delta:
            best = max(best, x)
        if attained <= 0:
            break
        log_ratio = math.log(attained / delta)
        if last is not None and x < last[0]:
            steepness = max((log_ratio - last[1]) / (last[0] - x), steepness / 8)
        elif last is not None and x > last[0]:
            steepness = max((last[1] - log_ratio) / (x - last[0]), steepness / 8)
        last = x, log_ratio
        x = max(x + (log_ratio - tuning.JUST_ABOVE) / steepness, x / 2)
        if 0 <= log_ratio < 3 * tuning.JUST_ABOVE:
            break
    return best
