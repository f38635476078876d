"""The linear program of a step from above, solved for many x's at once by the simplex method.

The program (``moment_program``) looks for the law of the loss L that is worth most at x: its
unknowns are the masses of the losses x - jh, one for each node j, and it maximises E[V(x - L)]
under limits on a few moments. Its *multipliers*, one for each limit, are the coefficients of a
function that is about the least one above V (``majorants``), and are what is needed of it. Nothing
here is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.law_families import LawFamily
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    Constraint,
    MomentClass,
    Nodes,
    ProgramSolution,
    ValueFunction,
)

LEAST_FALL = 1e-12  # of a mass in a simplex step: less is rounding
# The orders among which violated ones are looked for, in units of 1/deviation: those that matter
# are neither very small nor very large, and any choice is sound.
LEAST_ORDER = 0.05
LARGEST_ORDER = 12.0
# Solved programs are left out where less than this share is unsolved: the others are copied then.
STILL_UNSOLVED = 0.7
MULTIPLIER_ROUNDING = 1e-9  # relative, far above the rounding of a multiplier


def step_solutions(
    moments: MomentClass, value: ValueFunction, nodes: Nodes, family: LawFamily
) -> list[ProgramSolution]:
    """Return solutions of the step's program at some nodes; fewer where the method fails.

    At each x the moments of one order are limited, the one that decides for the best law of the
    family. For centred losses, and those with a small mean (ξ < 0), the program is then solved
    again with a few further orders, those whose limits the solutions exceed most.

    Args:
        moments: the class.
        value: upper bounds on V of what is left.
        nodes: x of each program, in multiples of h, at least 0.
        family: laws about as good as the best ones of the class.
    """
    best = np.argmax(family.values(value, int(nodes.max()))[:, nodes], axis=0)
    nodes_after_large = nodes - family.losses[best, 0]
    forward = [family.orders[best]]
    backward = [family.reversed_orders[best]]
    program = _StepProgram(moments, value, nodes, _Orders(forward, backward))
    program.solve(nodes_after_large)
    if moments.centred:
        more_orders = tuning.MORE_ORDERS
    elif moments.xi < 0:
        # The limit on the mean, that of small orders, decides beside that of a large order.
        more_orders = tuning.MORE_ORDERS_UNCENTRED
    else:
        more_orders = 0
    for _ in range(more_orders):
        further_forward, further_backward = program.violated_orders()
        forward.append(further_forward)
        backward.append(further_backward)
        program = _StepProgram(moments, value, nodes, _Orders(forward, backward))
        program.solve(nodes_after_large)
    return program.solutions()


@dataclass(frozen=True)
class _Orders:
    """The orders of the moments that are limited in programs at several x's.

    Attributes:
        forward: orders λ of E[e^{λL}], each an array with one for each x.
        backward: orders λ of E[e^{-(1+λ)L}], the moments with the neighbours swapped; programs of
            centred losses limit them too, others do not use them.
    """

    forward: Sequence[Floats]
    backward: Sequence[Floats]


class _MomentChord(NamedTuple):
    """The limit of a centred loss's moment, e^{λ²ρ + λm}, a convex function of the mean m, replaced
    by its chord e^{λ²ρ} (1 + k m) over the possible means, from 0 to that of the class.

    Attributes:
        scale: e^{-λ²ρ}, by which moments are multiplied.
        slope: k.
    """

    scale: Floats
    slope: Floats


def _inverses(matrices: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the inverse of each matrix, and whether the matrix has none: then the identity stands
    in its place, here and in ``matrices`` itself, and is not used.
    """
    singular = np.linalg.slogdet(matrices)[0] == 0
    matrices[singular] = np.eye(matrices.shape[-1])
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64), singular


def _first_to_fall(masses: Floats, inverse: Floats, entering: Floats) -> NDArray[np.intp]:
    """Return, for each program, the place of the mass that falls to 0 first when a new column comes
    into use; what falls by rounding alone does not count.

    Args:
        masses: of the columns in use, shape (programs, constraints).
        inverse: of the matrix of these columns, for each program.
        entering: the column that comes into use, shape (programs, constraints).
    """
    falls = (inverse @ entering[:, :, None])[:, :, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(falls > LEAST_FALL, np.maximum(masses, 0.0) / falls, np.inf)
    return np.argmin(ratios, axis=1)


class _StepProgram:
    """Programs max E[V(x - L)] for several x's, by the simplex method.

    The constraints are E 1 = 1, E[1 - e^{-L}] = 0 and E[e^{λL} - 1] <= e^{K(λ)} - 1 at some orders.
    Of centred losses with means m of L and m' of -L under the other neighbour, both in [0, M], the
    moment is at most e^{λ²ρ + λm}, which is convex in m and so below its chord over [0, M]; the
    constraints are m <= M, m' <= M, and that the moments of some orders are below these chords.

    Each unknown of a program has a column: its coefficients in the constraints. The simplex method
    keeps as many columns in use as there are constraints, with masses that fulfil them, and
    exchanges one at a time for another that makes the sum larger.

    Attributes:
        moments: the class.
        nodes: x of each program, in multiples of h.
        h: the distance of two nodes.
        orders: the orders whose moments are limited.
        first: j of the first loss x - jh, the same in all programs.
        reach: how many nodes the last j of a program lies beyond its x.
        number_of_losses: how many columns are those of losses, the first ones.
        number_of_constraints: how many constraints each program has.
        scales: the factor of each loss's column; 0 for losses beyond a program's own reach.
        columns: for each x, the coefficients in the constraints of the masses of all losses, of
            slacks, and of centred losses the two ``_rising_columns``; shape (x's, constraints,
            columns).
        worth: what each mass is worth, V(x - L) times its scale; shape (x's, columns).
        basis: the places of the columns that are in use; shape (x's, constraints).
        multipliers: of the constraints; shape (x's, constraints).
        masses: of the columns in use; shape (x's, constraints).
        failed: whether the method failed at an x.
    """

    def __init__(
        self, moments: MomentClass, value: ValueFunction, nodes: Nodes, orders: _Orders
    ) -> None:
        """Lay out the columns, scaled to coefficients of at most 1 where they are not too large.

        Args:
            moments: the class.
            value: upper bounds on V of what is left.
            nodes: x of each program, in multiples of h, at least 0.
            orders: the orders whose moments are limited.
        """
        self.moments = moments
        self.nodes = nodes
        self.h = value.h
        self.orders = orders
        deviation = moments.deviation
        self.first = math.floor(-tuning.PROGRAM_LEFT * deviation / self.h)
        self.reach = math.ceil(tuning.PROGRAM_RIGHT * deviation / self.h)
        last = int(nodes.max()) + self.reach
        places = np.arange(self.first, last + 1)
        self.number_of_losses = len(places)
        losses = (nodes[:, None] - places).astype(np.float64) * self.h
        coefficients = np.stack(self._constraint_rows(losses), axis=1)
        self.number_of_constraints = coefficients.shape[1]
        # Losses beyond a program's own reach have columns of zeros.
        within = places <= nodes[:, None] + self.reach
        sizes = np.abs(coefficients).max(axis=1)
        self.scales = within / np.minimum(sizes, tuning.LARGEST_COEFFICIENT)
        self.columns = self._all_columns(coefficients * self.scales[:, None, :])
        worth = value.at(places) * self.scales
        no_worth = np.zeros((len(nodes), self.columns.shape[2] - self.number_of_losses))
        self.worth = np.concatenate([worth, no_worth], axis=1)
        # ``solve`` sets these.
        shape = (len(nodes), self.number_of_constraints)
        self.basis: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self.multipliers: Floats = np.zeros(shape)
        self.masses: Floats = np.zeros(shape)
        self.failed: NDArray[np.bool_] = np.zeros(len(nodes), dtype=np.bool_)

    def _all_columns(self, of_losses: Floats) -> Floats:
        """Return the columns of losses, followed by those of slacks and, of centred losses, by the
        rising columns.

        The first two constraints are equations, and have no slacks.

        Args:
            of_losses: shape (x's, constraints, losses).
        """
        with_slack = self.number_of_constraints - 2
        slacks = np.vstack([np.zeros((2, with_slack)), np.eye(with_slack)])
        columns = [of_losses, np.broadcast_to(slacks, (len(self.nodes), *slacks.shape))]
        if self.moments.centred:
            columns += self._rising_columns()
        return np.concatenate(columns, axis=2)

    def _constraint_rows(self, losses: Floats) -> list[Floats]:
        """Return what a mass of 1 at each loss adds to each constraint, on 1, on E[1 - e^{-L}], of
        centred losses on both means, and on the moments; every limit but that on 1 - e^{-L}, which
        is 0, is scaled to 1.

        Args:
            losses: of each program, shape (x's, losses).
        """
        moments = self.moments
        rows = [np.ones_like(losses), -np.expm1(-losses) / moments.deviation]
        if moments.centred:
            rows += [losses / moments.mean, -losses * np.exp(-losses) / moments.mean]
        rows += [self._moment(order[:, None], losses, 1) for order in self.orders.forward]
        if moments.centred:
            rows += [self._moment(order[:, None], losses, -1) for order in self.orders.backward]
        return rows

    def _moment(self, orders: Floats, losses: Floats, sign: int) -> Floats:
        """Return what a mass of 1 at each loss adds to a moment, scaled so that at most 1 is
        allowed; of centred losses, to a moment less its chord.

        With s = e^{-λ²ρ} and the chord 1 + k m over e^{λm} (``_MomentChord``), E[e^{λL}] <= e^{λ²ρ}
        (1 + k m) and m = E L make s E[e^{λL} - 1] - k E L <= 1 - s; both sides are divided by 1 -
        s.

        Args:
            orders: λ, in a shape that goes with that of the losses.
            losses: L.
            sign: 1, or -1 with the neighbours swapped.
        """
        powers = np.minimum(sign * orders * losses, LARGEST_EXPONENT)
        if not self.moments.centred:
            return np.asarray(np.expm1(powers) / self._largest_moments(orders))
        scale, slope = self._chord(orders)
        moment: Floats = (scale * np.expm1(powers) - slope * sign * losses) / (1 - scale)
        if sign < 0:
            moment = moment * np.exp(-losses)
        return moment

    def _largest_moments(self, orders: Floats) -> Floats:
        """Return the limit e^{K(λ)} - 1 of E[e^{λL} - 1] at each order λ, for losses that are not
        centred.
        """
        logs = np.minimum(self.moments.log_moment(orders), LARGEST_EXPONENT)
        return np.asarray(np.expm1(logs))

    def _rising_columns(self) -> list[Floats]:
        """Return two columns, each of shape (x's, constraints, 1), with which the majorant F of
        centred losses rises at the last node.

        A column that is worth 0 demands of the multipliers that their sum over the column is at
        least 0. These columns are the derivatives of the constraints in t = e^{-L} at the last
        node, so that this sum is F' there: of one column the whole, of the other without the part
        -c/t of L, which ``Majorant.with_rising_slope_at`` leaves out where c < 0. So it needs to
        add little, for any sign of c.
        """
        y = np.full(len(self.nodes), self.reach * self.h)
        t = np.exp(y)
        deviation = self.moments.deviation
        mean = self.moments.mean
        columns = []
        for share_of_l in (0.0, 1.0):  # without the derivative of L, and with it
            of_l = -share_of_l / t
            of_product = 1 + y
            rows = [np.zeros_like(t), np.full_like(t, -1 / deviation)]
            rows += [of_l / mean, of_product / mean]
            for order in self.orders.forward:
                scale, slope = self._chord(order)
                power = -order * np.exp(-np.minimum((1 + order) * y, LARGEST_EXPONENT))
                rows.append((scale * power - slope * of_l) / (1 - scale))
            for order in self.orders.backward:
                scale, slope = self._chord(order)
                power = (1 + order) * np.exp(np.minimum(order * y, LARGEST_EXPONENT)) - 1
                rows.append((scale * power - slope * of_product) / (1 - scale))
            column = np.stack(rows, axis=1)
            size = np.abs(column).max(axis=1, keepdims=True)
            columns.append((column / size)[:, :, None])
        return columns

    def _chord(self, orders: Floats) -> _MomentChord:
        """Return the chord that limits the moment of each order λ of centred losses."""
        scale = np.exp(-np.minimum(orders**2 * self.moments.rho, LARGEST_EXPONENT))
        powers = np.minimum(orders * self.moments.mean, LARGEST_EXPONENT)
        slope = np.expm1(powers) / self.moments.mean
        return _MomentChord(scale, slope)

    def solve(self, nodes_after_large: Nodes) -> None:
        """Solve the programs, which sets ``basis``, ``masses``, ``multipliers`` and ``failed``.

        The method begins with the law that says nothing: in use are the columns of the loss 0, with
        a mass of about 1, of a large loss, with one of about 0, and all slacks.

        Args:
            nodes_after_large: for each x the node (x - l)/h, where l is the large loss of a law
                that is nearly the best.
        """
        each = np.arange(len(self.nodes))
        at_large = np.clip(nodes_after_large - self.first, 0, self.number_of_losses - 1)
        slacks = self.number_of_losses + np.arange(self.number_of_constraints - 2)
        in_use = np.broadcast_to(slacks, (len(each), self.number_of_constraints - 2))
        self.basis = np.concatenate(
            [(self.nodes - self.first)[:, None], at_large[:, None], in_use], axis=1
        )
        # Programs of which some are not solved yet, with their columns and what these are worth.
        unsolved = each
        columns = self.columns
        worth = self.worth
        for _ in range(tuning.SIMPLEX_STEPS):
            better = self._exchange(unsolved, columns, worth)
            if not better.any():
                break
            # A solved program stays as it is; leaving it out copies the columns of the others.
            if np.count_nonzero(better) < STILL_UNSOLVED * len(better):
                unsolved = unsolved[better]
                columns = columns[better]
                worth = worth[better]

    def _exchange(
        self, programs: NDArray[np.int64], columns: Floats, worth: Floats
    ) -> NDArray[np.bool_]:
        """Make one exchange of the simplex method in some programs: bring the most promising column
        into use in the place of the one whose mass falls to 0 first.

        Args:
            programs: the places of the programs.
            columns: the columns of each.
            worth: what the masses of each are worth.

        Returns:
            Whether each of these programs had a column that makes its value larger; where not, it
                is solved.
        """
        each = np.arange(len(programs))
        basis = self.basis[programs]
        inverse, singular = _inverses(np.take_along_axis(columns, basis[:, None, :], axis=2))
        self.failed[programs] |= singular
        worth_of_used = np.take_along_axis(worth, basis, axis=1)
        masses = inverse @ self._right_sides()
        multipliers = (worth_of_used[:, None, :] @ inverse)[:, 0, :]
        gains = worth - (multipliers[:, None, :] @ columns)[:, 0, :]
        entering = np.argmax(gains, axis=1)
        attained = (masses * worth_of_used).sum(axis=1)
        better: NDArray[np.bool_] = gains[each, entering] > tuning.PROGRAM_TOLERANCE * attained
        better &= ~singular
        places = each, _first_to_fall(masses, inverse, columns[each, :, entering])
        basis[places] = np.where(better, entering, basis[places])
        self.basis[programs] = basis
        self.masses[programs] = masses
        self.multipliers[programs] = multipliers
        return better

    def _right_sides(self) -> Floats:
        """Return the right sides of the constraints, moved apart a little: ties would keep the
        method at one vertex.
        """
        right = np.ones(self.number_of_constraints)
        right[1] = 0.0
        right[1:] += tuning.UNTIED * np.sqrt(np.arange(1, self.number_of_constraints))
        return right

    def violated_orders(self) -> tuple[Floats, Floats]:
        """Return two arrays, each with one order for each x: those whose moments exceed their
        limits most in the solutions, forward and backward. The latter have a meaning for centred
        losses only.
        """
        played = self.basis < self.number_of_losses
        places = np.where(played, self.basis, 0)
        scales = np.take_along_axis(self.scales, places, axis=1)
        masses = np.where(played, np.maximum(self.masses, 0.0) * scales, 0.0)[:, :, None]
        own_losses = (self.nodes[:, None] - self.first - places).astype(np.float64) * self.h
        losses = own_losses[:, :, None]
        deviation = self.moments.deviation
        orders = np.geomspace(LEAST_ORDER / deviation, LARGEST_ORDER / deviation, tuning.LAW_ORDERS)
        worst = []
        for sign in (1, -1):
            excess = (self._moment(orders, losses, sign) * masses).sum(axis=1)
            worst.append(orders[np.argmax(excess, axis=1)])
        return worst[0], worst[1]

    def solutions(self) -> list[ProgramSolution]:
        """Return the solutions of the programs that did not fail, with multipliers of moments that
        are not negative.
        """
        terms = self._terms()
        finite = np.isfinite(self.multipliers).all(axis=1) & ~self.failed
        orders = [(order, False) for order in self.orders.forward]
        if self.moments.centred:
            orders += [(order, True) for order in self.orders.backward]
        solutions = []
        for place in np.flatnonzero(finite).tolist():
            played = (self.basis[place] < self.number_of_losses) & (self.masses[place] > 0)
            used = self.basis[place][played]
            constraints = [Constraint(float(of_x[place]), swapped) for of_x, swapped in orders]
            solution = ProgramSolution(
                x=float(self.nodes[place] * self.h),
                nodes=used + self.first,
                masses=self.masses[place][played] * self.scales[place][used],
                constant=float(terms.constant[place]),
                slope=float(terms.slope[place]),
                constraints=tuple(constraints),
                weights=terms.weights[place],
                compared=np.arange(self.first, self.nodes[place] + self.reach + 1),
                linear=float(terms.linear[place]),
                reversed_linear=float(terms.reversed_linear[place]),
            )
            solutions.append(solution)
        return solutions

    def _terms(self) -> _Terms:
        """Return the functions that the multipliers make: the constraints' functions of the loss
        (``_constraint_rows``), each times its multiplier, collected by powers.
        """
        # In the order of ``_constraint_rows``; the first two constraints are equations, the
        # multipliers of the others must not be negative.
        multipliers = self.multipliers.T.copy()
        multipliers[2:] = np.maximum(multipliers[2:], 0.0)
        slope = -multipliers[1] / self.moments.deviation
        constant = multipliers[0] - slope
        if not self.moments.centred:
            limits = self._largest_moments(np.stack(self.orders.forward, axis=1))
            weights = multipliers[2:].T / limits
            return _Terms(constant - weights.sum(axis=1), slope, weights, 0 * slope, 0 * slope)
        # Four multipliers are of the constraints on 1, on E[1 - e^{-L}] and on the two means.
        first_backward = 4 + len(self.orders.forward)
        forward = self._moment_terms(self.orders.forward, multipliers[4:first_backward])
        backward = self._moment_terms(self.orders.backward, multipliers[first_backward:])
        linear = multipliers[2] / self.moments.mean - forward.slopes
        reversed_linear = multipliers[3] / self.moments.mean - backward.slopes
        # Rounding must not leave a concave part that nothing balances.
        is_rounding = np.abs(reversed_linear) < MULTIPLIER_ROUNDING * np.abs(constant)
        return _Terms(
            constant - forward.weights.sum(axis=1),
            slope - backward.weights.sum(axis=1),
            np.concatenate([forward.weights, backward.weights], axis=1),
            linear,
            np.where(is_rounding, np.maximum(reversed_linear, 0.0), reversed_linear),
        )

    def _moment_terms(self, orders: Sequence[Floats], multipliers: Floats) -> _MomentTerms:
        """Return what the multipliers of the moments of one direction make of centred losses.

        Args:
            orders: the orders of the moments.
            multipliers: those of the moments, a row for each order.
        """
        weights = []
        slopes = np.zeros(len(self.nodes))
        for order, multiplier in zip(orders, multipliers, strict=True):
            scale, slope = self._chord(order)
            weights.append(multiplier * scale / (1 - scale))
            slopes += multiplier * slope / (1 - scale)
        return _MomentTerms(np.stack(weights, axis=1), slopes)


class _MomentTerms(NamedTuple):
    """What multipliers of centred moments of one direction make, for each x.

    Attributes:
        weights: the coefficient of each moment, shape (x's, orders).
        slopes: the sum of the slopes of their chords, each times its multiplier: by so much the
            coefficient of the mean is less.
    """

    weights: Floats
    slopes: Floats


@dataclass(frozen=True)
class _Terms:
    """The terms of the functions that multipliers make, for each x (``ProgramSolution``).

    Attributes:
        constant, slope: of 1 and of e^{-L}.
        weights: of the moments, shape (x's, moments).
        linear, reversed_linear: of L and of -L e^{-L}.
    """

    constant: Floats
    slope: Floats
    weights: Floats
    linear: Floats
    reversed_linear: Floats
