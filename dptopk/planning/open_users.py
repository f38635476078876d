"""How many users may have how many labels, by what a private look showed with noise.

The look (``planning/profile.py``) releases how many users have 1, 2, 3 to 5, ... labels: the number
of users in each of CELLS. What its noise leaves open is drawn here, for each of several shapes of
the counts users who can have these counts. Predictions alone depend on it, no guarantee does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dptopk.histogram.event_counts import CELLS
from dptopk.planning.open_counts import FACTORS
from dptopk.planning.prediction import BOUNDS

if TYPE_CHECKING:
    from dptopk.planning.mixture import Array

# How many numbers of users are compared for a cell, within how many scales of the noise around what
# was seen: beyond, Laplace noise has a mass of e^-20, 2e-9.
NUMBERS = 2000
FURTHEST = 20.0
# How many times as many users are drawn as there are shapes of the counts, so that most shapes find
# users who can have their counts; chosen by hand.
DRAWS_PER_SHAPE = 16
SEED = 17  # any fixed number: the same look leads to the same plan
# A number of users or pairs below this counts as this, so that quotients are finite.
LEAST = 1e-9
# Of each cell the geometric middle of its numbers of labels, and how many numbers are in it.
TYPICAL = np.sqrt((BOUNDS[:-1] + 1.0) * BOUNDS[1:])
WIDTHS = np.diff(BOUNDS)
# A number of users of at least this many scales of the noise is taken to be more than noise, whose
# mass beyond is e^-4 / 2, 0.9%; chosen by hand.
CERTAIN = 4.0


def open_users(noisy: Array, scale: float, k: int, counts: Array) -> Array:
    """Return how many users there may be in each of CELLS, for each shape of the counts, shape
    (shapes, cells).

    Counts need users: no label has more than all of them, and all labels of the first ranks
    together have no more than users have labels. So each shape of the counts goes with one of the
    likely users who can have it; where none of them can, with those who nearly can.

    Args:
        noisy: the users seen, shape (cells,).
        scale: of the Laplace noise on each.
        k: how many labels are asked for.
        counts: of each shape the mean of the top k, and the counts of both ranks that are looked
            at, shape (shapes, 3).
    """
    rng = np.random.default_rng(SEED)
    users_draws = _likely_users(noisy, scale, DRAWS_PER_SHAPE * len(counts), rng)
    users_factors, pairs_factors = _missing_factors(users_draws, k, counts)
    # For each shape the users with the least product of both factors; of those who lack nothing,
    # with a product of 1, one at random. Then there are as many more users as the largest counts
    # need.
    order = rng.random((len(counts), len(users_draws)))
    best_draws = np.lexsort((order, users_factors * pairs_factors), axis=1)[:, :1]
    shortage = np.take_along_axis(users_factors, best_draws, axis=1)
    users_of_shapes: Array = users_draws[best_draws[:, 0]] * shortage
    return users_of_shapes


def _missing_factors(users_draws: Array, k: int, counts: Array) -> tuple[Array, Array]:
    """Return how many times as many users, and pairs of a user and a label, each shape of the
    counts needs as each draw has, at least 1, shape (shapes, draws) both.

    Args:
        users_draws: how many users each cell may have, shape (draws, cells).
        k: how many labels are asked for.
        counts: of each shape the mean of the top k and the counts of two ranks, shape (shapes, 3).
    """
    mean, _, last = counts.T[:, :, None]
    # The k largest counts together are k times their mean, and each of the next ones, up to the
    # last rank that is looked at, is no less than the count of that rank.
    pairs = k * (mean + (FACTORS[-1] - 1) * last)
    # No label has more than all users; and a label of a user is a pair.
    users_factors = mean / np.maximum(users_draws.sum(axis=1), LEAST)
    pairs_factors = pairs / np.maximum(users_draws @ TYPICAL, LEAST)
    return np.maximum(users_factors, 1.0), np.maximum(pairs_factors, 1.0)


def _likely_users(noisy: Array, scale: float, number: int, rng: np.random.Generator) -> Array:
    """Return draws of how many users each cell may have by its noisy count, shape (number, cells).

    Before the look a number n of users is taken to be as likely as 1/(n + 1), since small cells are
    more common than large ones. The draws of a cell are the quantiles of its law after the look, in
    a random order of its own for each cell. Beyond the cell with most users, a cell has no more
    than the one before it, and no more than ``_falling_tail`` says.

    Args:
        noisy: the users seen, shape (cells,).
        scale: of the Laplace noise on each.
        number: how many draws are returned.
        rng: orders the quantiles.
    """
    not_negative = np.maximum(noisy, 0.0)
    least = np.maximum(not_negative - FURTHEST * scale, 0.0)
    numbers = np.linspace(least, not_negative + FURTHEST * scale, NUMBERS).T
    # The density after the look, but for a factor: that of Laplace noise times that before it.
    density = np.exp(-np.abs(numbers - not_negative[:, None]) / scale) / (numbers + 1)
    cumulative = density.cumsum(axis=1)
    distributions = cumulative / cumulative[:, -1:]
    quantiles = (np.arange(number) + 0.5) / number
    users_draws = np.empty((number, len(CELLS)))
    for cell, distribution in enumerate(distributions):
        users_draws[:, cell] = np.interp(rng.permutation(quantiles), distribution, numbers[cell])
    # Beyond the largest cell those of more labels are no larger: so noise on the last cells is not
    # taken for users of hundreds of labels.
    largest = int(noisy.argmax())
    users_draws = np.minimum(users_draws, _falling_tail(not_negative, scale, largest))
    users_draws[:, largest:] = np.minimum.accumulate(users_draws[:, largest:], axis=1)
    return users_draws


def _falling_tail(users: Array, scale: float, largest: int) -> Array:
    """Return the most users that cells of many labels may have, if their numbers fall as those of
    the cells before do, shape (cells,); inf for a cell of which nothing is assumed.

    Assumed is that, beyond the cell with most users, the density of users (users for each number of
    labels) falls at least as a power of the number of labels. The power is the one through the last
    two cells of which more is seen than noise; nothing is assumed of cells before these, or where
    there are no two such cells.

    Args:
        users: the users seen, at least 0, shape (cells,).
        scale: of the noise on each.
        largest: the index of the cell with most users.
    """
    most = np.full(len(users), np.inf)
    certain = users >= CERTAIN * scale  # more than noise
    last = int(np.flatnonzero(certain)[-1]) if certain.any() else 0
    # The power is that of the last certain cell and the one before it, if that is certain too and
    # not before the largest cell.
    if last <= largest or not certain[last - 1]:
        return most
    density = users[last - 1 : last + 1] / WIDTHS[last - 1 : last + 1]
    power = math.log(density[1] / density[0]) / math.log(TYPICAL[last] / TYPICAL[last - 1])
    times_the_labels = TYPICAL[last + 1 :] / TYPICAL[last]
    most[last + 1 :] = density[1] * times_the_labels ** min(power, 0.0) * WIDTHS[last + 1 :]
    return most
