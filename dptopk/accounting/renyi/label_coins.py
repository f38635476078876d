"""Labels shown by the toss of a coin: the largest δ of all labels of one user.

A label of level n is shown with the chance p_n of ``coin_chances``, independently of all other
labels, and nothing else is released. One user moves each of up to n labels from one level to the
next, or back. The δ of all of them is bounded by the game in which the user picks the level of
every next label from the answers so far, but none that comes before the last one in a fixed order
of the levels:

    V_0(x, n) = max(1 - e^x, 0),   V_{j+1}(x, n) = max over m >= n of E[V_j(x - L_m, m)],

once for each direction. Of very many labels it is bounded by the sum of Rényi divergences.
Statements, proofs, and how much is lost: docs/notes/partition-selection.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dptopk._internal.rounding import EPS, Floats, outward
from dptopk.accounting.cost_models.pure_dp import stated_model
from dptopk.accounting.renyi.coin_chances import Chances, coin_chances
from dptopk.costs import Cost, LabelCoinsDP
from dptopk.errors import InvalidParameter

Ints = NDArray[np.intp]

# The game is played on a grid where its δ is too large by about a share of FINE, of LEAST_CELLS or
# more; where that takes more than MOST_SUMS sums, or more than MOST_STATEMENTS cells, on the finest
# affordable grid, up to a share of COARSE. Where a grid of that share is not affordable either, the
# Rényi divergences of all labels are added up.
LEAST_CELLS = 250
FINE = 0.01
COARSE = 0.3
MOST_SUMS = 6e6
# How far the grid goes to the left of 0, as a share of how far it goes to the right: beyond, V is
# hardly above 1 - e^x.
LEFT_SHARE = 0.35
# From above: what a round of the game can lose by rounding, and all rounds together with the
# chances' own rounding; and the rounding of where a loss lies within its cell, in cells, for each
# cell that it moves by.
ROUND_ROUNDING = 1 + 1e-12
PLACE_ROUNDING = 1e-15
# How far beyond an ε the grid goes where the δ at that ε is all that is asked, times α - 1: V falls
# by about e a unit.
REACH_BEYOND = 3.0
# Relative: of all labels' chances, each known to some 1e-14; and of sums of divergences.
CHANCE_ERROR = 1e-10
DIVERGENCE_ERROR = 1e-9
# The orders that are tried around that of a coin, as factors of α - 1.
ORDER_FACTORS: Floats = np.geomspace(0.2, 5.0, 41)
# Where the curve ends: what is left above the chance that an own label is shown, as a share of it.
LEAST_LEFT_SHARE = 1e-3
# The game is not played up to an ε beyond this, because e^ε and its products must be floats.
LARGEST_PLAYED = 500.0
MOST_STATEMENTS = 2000  # of a cost
# Of added divergences: the most that ln δ falls from one statement to the next.
LOG_DELTA_STEP = 0.1


@lru_cache(maxsize=256)
def label_coins_statements(
    order: float, divergence: float, first: float, labels: int
) -> tuple[tuple[float, float], ...]:
    """Return (ε, δ) statements by falling ε, one to several hundred: upper bounds on a fine grid of
    ε's, so that the chords between them are close to the curve.

    Args:
        order: α > 1.
        divergence: ρ > 0.
        first: q in (0, 1/2).
        labels: how many labels one user touches at most.

    Raises:
        InvalidParameter: as ``coin_chances`` does, or when every δ is 1.
    """
    coin = coin_chances(order, divergence, first)
    reach, cells = _reach_and_cells(order, divergence, first, labels)
    if cells:
        x = np.arange(cells + 1) * (reach / cells)
        with_user, without_user = _directions(coin)
        deltas = np.maximum(
            _game_values(with_user, labels, reach / cells, cells),
            _game_values(without_user, labels, reach / cells, cells),
        )
    else:
        # ln δ falls by less than α a unit of ε.
        statements = math.ceil(reach * order / LOG_DELTA_STEP)
        x = np.linspace(0, reach, min(statements, MOST_STATEMENTS))
        deltas = renyi_delta(x, coin, order, first, labels)
    below_1 = deltas < 1  # a δ of 1 states nothing
    if not below_1.any():
        raise InvalidParameter(
            f"such coins promise nothing for {labels} labels of one user: divergence is too large"
        )
    return tuple(zip(x[below_1].tolist(), deltas[below_1].tolist(), strict=True))[::-1]


def game_delta(
    order: float, divergence: float, first: float, labels: int, epsilon: float, every: int = 1
) -> float:
    """Return an estimate of the δ of all labels of one user at one ε, by the game of the module
    docstring; it takes less time than all statements take.

    Args:
        order: α > 1.
        divergence: ρ > 0.
        first: q in (0, 1/2).
        labels: how many labels one user touches at most.
        epsilon: ε.
        every: n; only each n-th level is played, which takes an n-th of the time and makes δ a
            little too small.

    Returns:
        An estimate of δ; inf where the game is too large to be played.
    """
    coin = coin_chances(order, divergence, first)
    reach, cells = _reach_and_cells(order, divergence, first, labels)
    if not cells:
        return math.inf
    step = reach / cells
    # Cells far beyond ``epsilon`` hardly change the δ there.
    cells_played = min(cells, math.ceil((epsilon + REACH_BEYOND / (order - 1)) / step))
    deltas = [
        _game_values(_Pair(pair.P[::every], pair.Q[::every]), labels, step, cells_played)
        for pair in _directions(coin)
    ]
    nodes = np.exp(step * np.arange(cells_played + 1))
    return float(np.interp(math.exp(epsilon), nodes, np.maximum(*deltas)))


def _reach_and_cells(
    order: float, divergence: float, first: float, labels: int
) -> tuple[float, int]:
    """Return the largest ε of the statements, and the number of cells on which the game is played
    up to it; 0 cells if it is not played.

    Args:
        order: α.
        divergence: ρ.
        first: q.
        labels: n, how many labels one user touches at most.
    """
    # From ``reach`` on δ is at most LEAST_LEFT_SHARE above nq: e^{(α-1)(nρ - ε)} is that small. (It
    # is at least 1/(α-1) beyond nρ, also where nq is so large that less would do.)
    fall = max(-math.log(LEAST_LEFT_SHARE * labels * first), 1.0)
    reach = labels * divergence + fall / (order - 1)
    # A chord over a cell of length h is too high by a share of about (α+1)² h²/12 in each of the n
    # rounds, so that n (α+1)² h²/12 = FINE, or COARSE. In a round each level reads four values at
    # each node (``_round_matrix``).
    levels = len(coin_chances(order, divergence, first).shown)
    fine_cells = math.ceil(reach * (order + 1) / math.sqrt(12 * FINE / labels))
    coarse_cells = math.ceil(reach * (order + 1) / math.sqrt(12 * COARSE / labels))
    affordable_cells = int(MOST_SUMS / (4.0 * labels * levels))
    cells = min(max(fine_cells, LEAST_CELLS), affordable_cells, MOST_STATEMENTS)
    if cells >= coarse_cells and reach < LARGEST_PLAYED:
        return reach, cells
    return reach, 0


class _Pair(NamedTuple):
    """The laws of a label on two neighbouring data sets, which are those of two neighbouring
    levels, for each two such levels.

    Attributes:
        P: shape (levels, 2), the chances of the outcomes shown and hidden on the first data set.
        Q: the chances on the second data set, of the same shape.
    """

    P: Floats
    Q: Floats


def _directions(coin: Chances) -> tuple[_Pair, _Pair]:
    """Return the pairs of both directions, each in the order in which the levels are played: data
    with the user against data without, rarely shown levels first, and the other way round, rarely
    hidden levels first.
    """
    chances = np.column_stack([coin.shown, coin.hidden])
    with_user = _Pair(P=chances[1:], Q=chances[:-1])
    without_user = _Pair(P=chances[-2::-1], Q=chances[:0:-1])
    return with_user, without_user


def _game_values(pair: _Pair, labels: int, step: float, cells: int) -> Floats:
    """Return upper bounds on V_n(x, 0) of the game of the module docstring, n = ``labels``, at the
    nodes x = 0, step, ..., ``cells`` steps; the levels are played in the order of the rows.

    V as a function of u = e^x is convex and falls from 1 at u = 0, so that chords between upper
    bounds at nodes are above it, and so is the last value beyond the last node. The grid also goes
    to the left of 0, where losses above 0 lead.

    Args:
        pair: the chances of one direction.
        labels: n, how many labels one user touches at most.
        step: the distance of two nodes.
        cells: the number of cells from 0 on.
    """
    cells_below_0 = math.ceil(LEFT_SHARE * cells)
    levels = len(pair.P)
    x: Floats = step * np.arange(-cells_below_0, cells + 1.0)
    revealed, round_matrix = _round_matrix(pair, len(x), step)
    # V at the nodes, a row for each level from which on the user may still play; V_0 at first. In
    # front of the nodes stands V = 1 of u = 0, for the cell that ends at the first node, and behind
    # them the last value once more, for a cell without a slope.
    values = np.ones((levels, len(x) + 2))
    values[:, 1:-1] = np.maximum(-np.expm1(x), 0)
    values[:, -1] = values[:, -2]
    for _ in range(labels):
        # E[V(x - L)] where the next label is of this level ...
        by_finite_losses = (round_matrix @ values.ravel()).reshape(levels, -1)
        played = (by_finite_losses + revealed) * ROUND_ROUNDING
        # ... and the largest of this level and all later ones.
        for level in range(levels - 2, -1, -1):
            np.maximum(played[level], played[level + 1], out=played[level])
        np.minimum(played, 1.0, out=values[:, 1:-1])
        values[:, -1] = values[:, -2]
    upper: Floats = outward(values[0, cells_below_0 + 1 : -1], CHANCE_ERROR)
    return np.minimum(upper, 1.0)


def _round_matrix(pair: _Pair, size: int, step: float) -> tuple[Floats, sparse.csr_array]:
    """Return E[V(x - L)] of every level at the nodes, as a linear function of V's values.

    A loss moves all nodes by the same number of cells. So each of the two outcomes of a level reads
    two values of V at each x, and a row of the matrix has four entries.

    Args:
        pair: the chances of one direction.
        size: the number of nodes.
        step: the distance of two nodes.

    Returns:
        The chance of an infinite loss at each level, shape (levels, 1), where V = 1 is its share of
        the expectation; and the matrix that maps the values as ``_game_values`` keeps them, level
        after level, to the share of the finite losses at each level and node.
    """
    # The values of a level begin with the one in front of the nodes (``_game_values``).
    start = np.arange(len(pair.P))[:, None] * (size + 2)
    places = []
    masses = []
    for p, q in zip(pair.P.T[:, :, None], pair.Q.T[:, :, None], strict=True):
        finite = (p > 0) & (q > 0)
        ratio = np.where(finite, p, 1) / np.where(finite, q, 1)
        cell, share = _cells_after_loss(-np.log(ratio) / step, size, step)
        mass = np.where(finite, p, 0)
        place = start + 1 + cell
        places += [place, place + 1]
        masses += [mass * (1 - share), mass * share]
    revealed = np.where(pair.Q == 0, pair.P, 0).sum(axis=1, keepdims=True)
    return revealed, _matrix_of_four_entries(masses, places, columns=start.size * (size + 2))


def _matrix_of_four_entries(
    masses: list[Floats], places: list[Ints], columns: int
) -> sparse.csr_array:
    """Return the sparse matrix with four entries in every row: the masses, in the columns of their
    places.

    Args:
        masses: four arrays of entries, one entry for each row.
        places: four arrays of their columns.
        columns: the number of columns.
    """
    entries = np.stack(masses, axis=-1).ravel()
    entry_columns = np.stack(places, axis=-1).astype(np.int32).ravel()
    rows = entries.size // 4
    row_ends = np.arange(0, 4 * rows + 1, 4, dtype=np.int32)
    return sparse.csr_array((entries, entry_columns, row_ends), shape=(rows, columns))


def _cells_after_loss(moved: Floats, size: int, step: float) -> tuple[Ints, Floats]:
    """Return the cell in which each node lies after a loss has moved it, and the share in u = e^x
    of the cell's right node.

    Args:
        moved: by how many cells each loss moves the nodes.
        size: the number of nodes.
        step: the distance of two nodes.

    Returns:
        The cells, -1 for the one that ends at the first node, and the shares.
    """
    cells = np.floor(moved)
    # Rounded towards the left end of the cell, where V is larger.
    part_of_cell = np.maximum(moved - cells - PLACE_ROUNDING * (8 + np.abs(moved)), 0)
    share = np.clip(np.expm1(part_of_cell * step) / math.expm1(step) * (1 - PLACE_ROUNDING), 0, 1)
    cell = np.clip(np.arange(size) + cells, -1, size - 1)
    # Beyond the first node u is compared with the first node's.
    from_first_node = (moved + np.arange(size)) * step
    share = np.where(
        cell < 0, np.exp(np.minimum(from_first_node, 0.0)) * (1 - PLACE_ROUNDING), share
    )
    return cell.astype(np.intp), share


def renyi_delta(x: Floats, coin: Chances, order: float, first: float, labels: int) -> Floats:
    """Return an upper bound on δ at every ε = x by the sum of Rényi divergences at the best of
    several orders.

    A pair of neighbouring levels is, with weight 1 - q, one of the chances (p_{n+1} - q)/(1 - q)
    and p_n/(1 - q), and with weight q one that tells all.

    Args:
        x: ε's.
        coin: the chances of all levels.
        order: α of the coin; orders around it are tried.
        first: q.
        labels: how many labels one user touches at most.
    """
    orders = 1 + (order - 1) * ORDER_FACTORS[:, None]
    most = _largest_moments(coin, orders, first)[:, None]
    lam = orders - 1
    exponents = labels * most - lam * x + lam * np.log(lam) - orders * np.log(orders)
    # Of large orders the terms are large, and what is left of them is not.
    sizes = labels * most + lam * x + lam * np.abs(np.log(lam)) + orders * np.log(orders)
    exponents += 4 * EPS * sizes
    # With weight (1 - q)^n no label tells all, and the divergences of the other chances add up.
    log_weight = labels * math.log1p(-first)
    delta_by_moments = np.exp(np.minimum(exponents.min(axis=0), 0.0))
    deltas = -math.expm1(log_weight) + math.exp(log_weight) * delta_by_moments
    upper: Floats = outward(deltas, DIVERGENCE_ERROR)
    return np.minimum(upper, 1.0)


def _largest_moments(coin: Chances, orders: Floats, first: float) -> Floats:
    """Return, for each order α, (α - 1) times the largest Rényi divergence of neighbouring levels
    given that no label tells all (``renyi_delta``), in either direction; at least 0, rounded up.

    Args:
        coin: the chances of all levels.
        orders: α's, shape (orders, 1).
        first: q.

    Returns:
        Shape (orders,).
    """
    # The last steps, from hidden chances at or below q, are with certainty ones that tell all.
    steps = np.flatnonzero((coin.shown[:-1] > 0) & (coin.hidden[:-1] > first))
    if not steps.size:
        return np.zeros(len(orders))
    # A row for the outcome shown and one for hidden. An event that tells all has the chance q: at
    # the upper level the label is then shown, and at the lower one hidden.
    chances = np.array([coin.shown, coin.hidden])
    upper, error_of_upper = _log_conditional(chances[:, steps + 1], np.array([first, 0.0]), first)
    lower, error_of_lower = _log_conditional(chances[:, steps], np.array([0.0, first]), first)
    lam = orders - 1
    up = np.logaddexp(*(orders * upper[:, None] - lam * lower[:, None]))
    down = np.logaddexp(*(orders * lower[:, None] - lam * upper[:, None]))
    # The logarithm of a sum moves by no more than the larger of its two terms' logarithms.
    rounding = orders * (error_of_upper + error_of_lower).max(axis=0)
    largest: Floats = (np.maximum(up, down) + rounding).max(axis=1)
    return np.maximum(0.0, largest)


def _log_conditional(chances: Floats, telling_all: Floats, first: float) -> tuple[Floats, Floats]:
    """Return the logarithms of the chances given that the label does not tell all, (chance -
    telling_all)/(1 - q), and bounds on their errors.

    Args:
        chances: the chances of the two outcomes, shape (2, n); those above 1/2 are rounded, being 1
            less the other.
        telling_all: the part of each outcome's chances that tells all, q or 0, shape (2,).
        first: q.

    Returns:
        The logarithms, and for each a number that times an order α bounds the error of α times the
        logarithm, the rounding of that product and of a sum of two such products included.
    """
    left = chances - telling_all[:, None]
    with np.errstate(divide="ignore"):  # a chance that underflows: a divergence without a bound
        logs = np.log(left / (1 - first))
        of_chances = np.where(chances > 0.5, EPS / left, 0.0)
    return logs, of_chances + EPS * (4 + 4 * np.abs(logs))


def _statements(cost: LabelCoinsDP) -> tuple[tuple[float, float], ...]:
    """Return the statements of a cost, as ``label_coins_statements`` does."""
    return label_coins_statements(cost.order, cost.divergence, cost.first, cost.labels)


def _covers(token: LabelCoinsDP, cost: Cost) -> bool:
    """Return whether the cost is the same coin for at most as many labels as the token."""
    return (
        isinstance(cost, LabelCoinsDP)
        and (cost.order, cost.divergence, cost.first)
        == (token.order, token.divergence, token.first)
        and cost.labels <= token.labels
    )


MODELS = (
    stated_model(
        LabelCoinsDP,
        _statements,
        _covers,
        no_counterpart="labels without counts have no counterpart",
    ),
)
