"""The predicted loss of every way to answer, by what a look has seen; in closed forms.

A prediction only chooses among ways that cost the same, so nothing here has to be a bound. Loss is
the root mean square error of the counts that are shown, and the count that is missed for each row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptopk.costs import Budget
from dptopk.histogram.event_counts import CELLS, WEIGHT
from dptopk.planning.mixture import Mixture
from dptopk.planning.ways import BISECTIONS, FINDING_DELTA, RANGE_OF_MU, Way, deviation

Array = np.ndarray[Any, Any]
# Users of a cell are spread over these numbers of labels; of the last cell up to LARGEST.
LARGEST = 600
BOUNDS = np.append(CELLS, LARGEST)
LABELS = np.unique(np.rint(np.append(np.arange(1, 11), np.geomspace(12, LARGEST, 22))))
CELL_OF = np.searchsorted(CELLS, LABELS, side="left") - 1
# The chances of a label for which its users are computed.
CHANCES = np.geomspace(1e-6, 10.0, 200)[:, None]
# The count at which a coin shows a label with probability 1/2, over the threshold of Gaussian noise
# at the same μ, is about 1 - COIN_SLOPE ln(cap) for caps of 5 to 60; the chances from 5% to 95% lie
# in a range of about COIN_SPREAD of that count.
COIN_START = 0.87
COIN_SLOPE = 0.105
LEAST_COIN = 0.4
COIN_SPREAD = 0.12
# Labels and degrees are not independent: in turn the shapes take the share that a cap or weights
# leave of a label as less, as predicted, and as more likely, by these log odds.
LOG_ODDS = np.array([-0.3, 0.0, 0.3])
LARGEST_EXPONENT = 50.0
LEAST_ROWS = 1e-9


@dataclass(frozen=True)
class Scene:
    """The open shapes of the uncapped counts, the users by their number of labels, and the budget.

    Attributes:
        k: how many labels are asked for.
        budget: (ε, δ) of the answer.
        users: how many users there may be in each of CELLS, for each shape, shape (shapes, cells).
        drawn: shapes of the uncapped counts.
        linf: the most that one user adds to one label.
    """

    k: int
    budget: Budget
    users: Array
    drawn: Mixture
    linf: int = 1

    def seen(self, way: Way) -> Array:
        """The sums or counts on which a way finds labels, for each count, shape (shapes, groups).

        Labels and degrees are first taken to be independent: of users who have d labels each, a
        label that comes up with chance p at each of them is had by the share 1 - e^(-dp).
        """
        if way.cap is None:
            return self.drawn.counts
        counts, average = self._average(way)
        most = WEIGHT if way.find == "weights" else 1.0
        share = np.clip(average / np.maximum(counts, 1.0) / most, 0.0, 1.0)
        turn = np.resize(np.exp(LOG_ODDS), len(share))[:, None]
        shifted: Array = share * turn / (1 - share + share * turn)
        return shifted * most * self.drawn.counts

    def _average(self, way: Way) -> tuple[Array, Array]:
        """The counts, at most all users, and what a label of each adds up to under the cap on
        average, shape (shapes, groups) both.
        """
        users = spread(self.users)
        taking_part = np.minimum(LABELS, way.cap or 1)
        weights = WEIGHT / np.sqrt(taking_part) if way.find == "weights" else 1.0
        added = weights * taking_part / LABELS  # to the sum of each label, on average
        chances = -np.expm1(-CHANCES * LABELS)
        have = np.einsum("pc,sc->sp", chances, users)
        sums = np.einsum("pc,sc->sp", chances * added, users)
        counts = np.minimum(self.drawn.counts, have[:, -1:])  # no label has more than all users
        average = [np.interp(*curve) for curve in zip(counts, have, sums, strict=True)]
        return counts, np.array(average)


def spread(users: Array) -> Array:
    """The users of each cell over LABELS, shape (shapes, cells) -> (shapes, labels).

    Within a cell their density follows the power law through it and its neighbours.
    """
    widths = np.diff(BOUNDS)
    middles = np.log(np.sqrt((BOUNDS[:-1] + 1.0) * BOUNDS[1:]))
    density = np.log((users + 0.1) / widths)
    each = np.array([np.interp(np.log(LABELS), middles, one) for one in density])
    weights = np.exp(each) * np.gradient(LABELS)
    of_cell = CELL_OF[:, None] == np.arange(len(CELLS))
    spread_over: Array = weights * (users / (weights @ of_cell))[:, CELL_OF]
    return spread_over


def losses(scene: Scene, ways: list[Way], mu: float) -> Array:
    """The predicted loss of each way, shape (ways,): its mean over the shapes.

    Args:
        scene: what is known of the data.
        ways: which ways are compared.
        mu: of a Gaussian that the whole budget allows.
    """
    alike = {(way.find, way.cap): way for way in ways}
    sources = {source: scene.seen(way) for source, way in alike.items()}
    seen = [sources[way.find, way.cap] for way in ways]
    noise = np.array([deviation(way, scene.k, scene.budget, mu, scene.linf) for way in ways])
    found = np.array([_found(scene, *one, mu) for one in zip(ways, seen, strict=True)])
    rates = np.array([_rate(scene, way, mu) for way in ways])
    shown = _shown(scene, found, rates)
    rows = shown @ scene.drawn.sizes
    cut = np.array([cut_off(scene, *each) for each in zip(ways, seen, shown, strict=True)])
    each = np.minimum(rows, 1.0) * np.hypot(noise[:, None], cut) + _missed(scene, shown)
    mean: Array = each.mean(axis=1)
    return mean


def _missed(scene: Scene, shown: Array) -> Array:
    """What the true top k hold more than what is shown, for each row, shape (ways, shapes)."""
    drawn = scene.drawn
    top = drawn.counts @ drawn.of_top(scene.k)
    missed: Array = np.maximum(top - (shown * drawn.counts) @ drawn.sizes, 0.0) / scene.k
    return missed


def cut_off(scene: Scene, way: Way, seen: Array, shown: Array) -> Array:
    """The root mean square of what a cap takes off the counts that are shown, shape (shapes,).

    Where few are shown they are the largest, of which it takes off most: so the mean is over what
    is shown.
    """
    if way.counting != "capped":
        return np.zeros(len(seen))
    squares = (scene.drawn.counts - seen) ** 2 + _unlike(scene, seen) ** 2
    rows = np.maximum(shown @ scene.drawn.sizes, LEAST_ROWS)
    error: Array = np.sqrt((shown * squares) @ scene.drawn.sizes / rows)
    return error


def _unlike(scene: Scene, seen: Array) -> Array:
    """Return how much more or less a cap takes off some labels than off others of the same
    count.
    """
    counts = np.maximum(scene.drawn.counts, 1.0)
    share = np.clip(seen / counts, 0.0, 1.0)
    unlike: Array = LOG_ODDS[-1] * share * (1 - share) * counts
    return unlike


def _rate(scene: Scene, way: Way, mu: float) -> float:
    """ε of one selection, over the most that one user adds to a count."""
    rate = RANGE_OF_MU * mu * math.sqrt(way.share / scene.k) / scene.linf
    if way.find == "uncapped":
        return rate
    return rate * math.sqrt(way.selecting)


def _found(scene: Scene, way: Way, seen: Array, mu: float) -> Array:
    """The chance of each label to be found, shape (shapes, groups)."""
    from scipy.special import ndtr

    present = scene.drawn.counts > 0
    if way.find == "uncapped":
        return present * _over_floor(scene, way, mu)
    middle, noise = _threshold(scene, way, mu)
    gaussian: Array = present * ndtr((seen - middle) / noise)
    return gaussian


def _over_floor(scene: Scene, way: Way, mu: float) -> Array:
    """The chance of each count to be above the noisy floor, the count after the first of them."""
    from scipy.special import expit

    delta = FINDING_DELTA[way.find] * scene.budget.delta
    rate = _rate(scene, way, mu)
    edges = scene.drawn.edges
    inside = edges[1:] <= way.floor
    last = int(np.searchsorted(edges, way.floor + 1, side="left")) - 1
    floor = scene.drawn.counts[:, last : last + 1] if last < len(inside) else 0.0
    offset = (math.log(way.floor) - math.log(delta)) / rate
    chances: Array = inside * expit(rate * (scene.drawn.counts - floor - scene.linf - offset))
    return chances


def _threshold(scene: Scene, way: Way, mu: float) -> tuple[float, float]:
    """The sum or count at which a label is found with probability 1/2, and the deviation around."""
    from scipy.special import ndtri

    delta = FINDING_DELTA[way.find] * scene.budget.delta
    cap = way.cap or 1
    noise = 1 / (mu * math.sqrt(way.share * (1 - way.selecting)))
    if way.find == "weights":
        noise *= WEIGHT
        alone = WEIGHT - noise * float(ndtri(delta))
        several = WEIGHT / math.sqrt(cap) - noise * float(ndtri(delta / cap))
        return max(alone, several), noise
    noise *= math.sqrt(cap) * scene.linf
    middle = scene.linf - noise * float(ndtri(delta / cap))
    if way.find == "coins":
        middle *= max(COIN_START - COIN_SLOPE * math.log(cap), LEAST_COIN)
        return middle, COIN_SPREAD * middle
    return middle, noise


def _shown(scene: Scene, found: Array, rates: Array) -> Array:
    """The chance of each label to be found and selected, shape (ways, shapes, groups).

    With Gumbel noise of rate r the k largest are those above a level t, each with the chance
    1 - e^(-e^(r (h - t))); t is such that k of those found are above it on average.
    """
    counts = scene.drawn.counts
    sizes = scene.drawn.sizes
    rate = rates[:, None, None]
    margin = 20.0 / rate
    low = np.zeros(found.shape[:2])[..., None] - margin
    high = counts[None, :, :1] + margin
    shown = found
    for _ in range(BISECTIONS):
        level = (low + high) / 2
        exponent = np.minimum(rate * (counts - level), LARGEST_EXPONENT)
        shown = found * (1 - np.exp(-np.exp(exponent)))
        many = (shown @ sizes)[..., None] > scene.k
        low = np.where(many, level, low)
        high = np.where(many, high, level)
    return shown
