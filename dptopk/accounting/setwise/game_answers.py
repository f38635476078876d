"""Answers to a question by a game of concentrated costs (``concentrated_game``) alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dptopk.accounting.curves import Query
from dptopk.accounting.setwise.concentrated_game import ConcentratedGame
from dptopk.accounting.setwise.moment_program import PRODUCT_ROUNDING

POINTS_IN_CELL = 65  # x's between two nodes at which an answer is looked for, both nodes among them


class GameBracket(NamedTuple):
    """Proven bounds on one answer, a δ or an ε, from both sides.

    Attributes:
        upper: the upper bound; inf where no ε is known to suffice.
        lower: the lower bound, at least 0.
    """

    upper: float
    lower: float


def answer_of_game(game: ConcentratedGame, query: Query, start: float) -> GameBracket:
    """Return bounds on the answer to a question, by a game that has all costs in it.

    Args:
        game: the game.
        query: what is asked.
        start: an upper bound on ε that is known already; of no effect where δ is asked for.
    """
    if query.epsilon is not None:
        return delta_at(game, query.epsilon)
    return epsilon_at(game, query.delta, query.delta_below, start)


def delta_at(game: ConcentratedGame, x: float) -> GameBracket:
    """Return bounds on δ at ε = x >= 0."""
    points = np.array([x])
    return GameBracket(float(game.above(points)[0]), float(game.below(points)[0]))


def epsilon_at(
    game: ConcentratedGame, delta: float, delta_below: float, start: float
) -> GameBracket:
    """Return an upper bound on ε at ``delta`` and a lower bound on ε at ``delta_below``.

    Each is looked for between two neighbouring nodes of the game's tables, between which V passes
    the δ.

    Args:
        game: the game.
        delta: δ of the upper bound.
        delta_below: δ of the lower bound, at least ``delta``.
        start: an upper bound on ε that is known already, or inf; the one returned is no larger.
    """
    return GameBracket(_epsilon_above(game, delta, start), _epsilon_below(game, delta_below))


def _epsilon_above(game: ConcentratedGame, delta: float, start: float) -> float:
    """Return an ε <= ``start`` at which the game is worth at most ``delta``; ``start`` itself where
    no smaller one is found.
    """
    above = game.tables(game.counts).upper
    upper = start
    if above.values[-1] <= delta:
        # V falls: from the first such node on it is low enough.
        first_node = int(np.argmax(above.values <= delta))
        upper = min(first_node * game.h * (1 + PRODUCT_ROUNDING), start)
    if math.isfinite(upper):
        # The answer may lie between that node and the one before.
        points = np.linspace(max(upper - game.h, 0.0), upper, POINTS_IN_CELL)
        low_enough = points[game.above(points) <= delta]
        if low_enough.size:
            upper = float(low_enough[0])
    return upper


def _epsilon_below(game: ConcentratedGame, delta: float) -> float:
    """Return an ε at which some strategy attains more than ``delta``, so that a smaller ε does not
    do; 0 where none is found.
    """
    below = game.tables(game.counts).lower
    # The first nodes, up to the first at which the table is not above δ.
    nodes_above = int(np.count_nonzero(np.minimum.accumulate(below.values > delta)))
    if nodes_above == 0:
        return 0.0
    last = nodes_above - 1
    points = np.linspace(last * game.h, (last + 1) * game.h, POINTS_IN_CELL)
    attained = points[game.below(points) > delta]
    # V at the last node of them is above δ itself; between nodes its bound may be lower.
    at_node = last * game.h * (1 - PRODUCT_ROUNDING)
    return float(attained.max(initial=at_node))
