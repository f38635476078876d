"""The predicted loss of every way to answer on events, by what a look has seen; in closed forms.

A prediction only chooses among ways that cost the same, so nothing here has to be a bound. The loss
is the root mean square error of the counts that are shown, plus the count that is missed for each
row.

Arrays are over several shapes of the counts that the look leaves open, and in each shape over
groups of ranks whose counts are about the same (``Mixture``): "shape (shapes, groups)". A label of
a group stands for all labels of these ranks. The word "chance" is used for a probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dptopk._internal.search import cross_each
from dptopk.costs import Budget
from dptopk.histogram.event_counts import CELLS, WEIGHT
from dptopk.planning.helped import weight_of_released
from dptopk.planning.mixture import FAR, LEAST_RATIO, LEAST_ROWS, Mixture
from dptopk.planning.open_counts import FACTORS
from dptopk.planning.ways import (
    FINDING_DELTA,
    RANGE_OF_MU,
    Way,
    deviation,
    deviation_ratio,
    unknown_finder,
    whole_mu,
)

Array = np.ndarray[Any, Any]
# Users of a cell are spread over these numbers of labels; of the last cell up to LARGEST.
LARGEST = 600
BOUNDS = np.append(CELLS, LARGEST)
LABELS = np.unique(np.rint(np.append(np.arange(1, 11), np.geomspace(12, LARGEST, 22))))
CELL_OF = np.searchsorted(CELLS, LABELS, side="left") - 1
# Labels are compared by how many of its labels a user draws at random would be this one: "with the
# chance p at each of them". These are the p for which the number of its users is computed.
CHANCES = np.geomspace(1e-6, 10.0, 200)[:, None]
# A coin shows a label with a chance that rises with its count about as the normal law does: its
# median is COIN_START - COIN_SLOPE ln(cap) of the threshold of Gaussian noise at the same μ, its
# deviation COIN_DEVIATION of that noise. Within 4% and 5% for caps of 10 to 60, ε of 0.3 to 3 and δ
# of 1e-8 to 1e-5.
COIN_START = 0.8
COIN_SLOPE = 0.0745
COIN_DEVIATION = 0.845
# Labels and degrees are not independent: in turn the shapes take the share that a cap or weights
# leave of a label as less, as predicted, and as more likely, by these log odds. Those of labels of
# the same count differ by UNLIKE (the standard deviation). Both are what tables of events show
# (docs/notes/two-phases.md).
LOG_ODDS = np.array([-0.3, 0.0, 0.3])
UNLIKE = 0.2
LARGEST_EXPONENT = 50.0  # 1 - e^(-e^50) is 1 as a float
GUMBEL_STD = math.pi / math.sqrt(6)  # of Gumbel noise of rate 1
# Users that a cell without any is taken to have, so that its density has a logarithm; by hand.
EMPTY_CELL = 0.1
# The chance that counts do not fall from the last rank of a look to the floor of a way, which then
# may hide the whole top k at any ε. In all shapes they fall. Chosen by hand, so small that it
# decides only where the ways compared are predicted to lose next to nothing, or as much as each
# other: it changed 15 of 288 looks (docs/notes/two-phases.md).
PLATEAU = 1e-3
# The number of labels above the level that k of them exceed is right to this share.
CLOSE = 1e-4


@dataclass(frozen=True)
class Scene:
    """What ways are compared on: the shapes of the uncapped counts that a look leaves open, the
    users by their number of labels, and the budget.

    Attributes:
        k: how many labels are asked for.
        budget: (ε, δ) of the answer.
        users: how many users there may be in each of CELLS, ranges of a user's number of labels,
            for each shape, shape (shapes, cells).
        drawn: the shapes of the uncapped counts.
        linf: the most that one user adds to one label.
    """

    k: int
    budget: Budget
    users: Array
    drawn: Mixture
    linf: int = 1

    def values_to_find_by(self, way: Way) -> Array:
        """Return the means of the sums or counts by which a way finds labels, shape (shapes,
        groups): the uncapped counts without a cap, else what a cap or weights leave of them.

        Which labels a user has is first taken to be independent of their number d: of the users who
        have d labels each, a label that comes up with chance p at each of them is had by the share
        1 - e^(-dp). Then the shares that are left are moved by LOG_ODDS.
        """
        if way.cap is None:
            return self.drawn.counts
        counts, average = self._counts_and_mean_sums(way)
        largest_weight = WEIGHT if way.find == "weights" else 1.0
        # The share of a label that a cap or weights leave; then its odds change by LOG_ODDS.
        share = np.clip(average / np.maximum(counts, 1.0) / largest_weight, 0.0, 1.0)
        odds_factor = np.resize(np.exp(LOG_ODDS), len(share))[:, None]
        shifted: Array = share * odds_factor / (1 - share + share * odds_factor)
        return shifted * largest_weight * self.drawn.counts

    def _counts_and_mean_sums(self, way: Way) -> tuple[Array, Array]:
        """Return the counts, at most all users, and for each count the mean of the sum that such a
        label has under the cap, shape (shapes, groups) both.

        The count and the sum of a label are computed for each chance in CHANCES that a user has it,
        and the sum is interpolated at the count. Labels that are found by weights have sums of
        weights.
        """
        users = users_by_labels(self.users)
        cap = way.cap or 1  # for the type checker: the way has a cap
        labels_taking_part = np.minimum(LABELS, cap)
        weights = 1.0
        if way.find == "weights":
            weights = WEIGHT / np.sqrt(labels_taking_part)
        # What a user who has a label adds to its sum on average: of d labels as many as the cap
        # take part.
        added = weights * labels_taking_part / LABELS
        # The chance of a user of d labels to have a label, and the count and the sum of this label.
        chances = -np.expm1(-CHANCES * LABELS)
        # The axes are p for chances, c for numbers of labels and s for shapes.
        counts_of_chances = np.einsum("pc,sc->sp", chances, users)
        sums_of_chances = np.einsum("pc,sc->sp", chances * added, users)
        # No label has more than all users; one of the largest chance has nearly all of them.
        counts = np.minimum(self.drawn.counts, counts_of_chances[:, -1:])
        curves = zip(counts, counts_of_chances, sums_of_chances, strict=True)
        mean_sums = [np.interp(*curve) for curve in curves]
        return counts, np.array(mean_sums)


def users_by_labels(users: Array) -> Array:
    """Return how many users have each number of labels in LABELS, shape (shapes, len(LABELS)).

    The users of a cell are spread over its numbers of labels by the power law through the cell and
    its neighbours.

    Args:
        users: the users in each of CELLS, shape (shapes, cells).
    """
    widths = np.diff(BOUNDS)
    # A power law is a line in the logarithms of densities and of the cells' geometric middles.
    log_middles = np.log(np.sqrt((BOUNDS[:-1] + 1.0) * BOUNDS[1:]))
    log_densities_of_cells = np.log((users + EMPTY_CELL) / widths)
    log_labels = np.log(LABELS)
    log_densities = np.array(
        [np.interp(log_labels, log_middles, of_cells) for of_cells in log_densities_of_cells]
    )
    weights = np.exp(log_densities) * np.gradient(LABELS)
    # The users of a cell are divided in proportion to the weights of its numbers of labels.
    is_in_cell = CELL_OF[:, None] == np.arange(len(CELLS))
    users_per_weight = users / (weights @ is_in_cell)
    users_of_numbers: Array = weights * users_per_weight[:, CELL_OF]
    return users_of_numbers


def losses(scene: Scene, ways: list[Way]) -> Array:
    """Return the predicted loss of each way, shape (ways,): its mean over the shapes.

    Args:
        scene: what is known of the data.
        ways: which ways are compared.
    """
    finding_values = _finding_values_of(scene, ways)
    found = np.array(
        [
            _chances_to_be_found(scene, way, values)
            for way, values in zip(ways, finding_values, strict=True)
        ]
    )
    noise = np.array(
        [_noise_on_counts(scene, way, chances) for way, chances in zip(ways, found, strict=True)]
    )
    values, rates = _values_and_rates(scene, ways, finding_values, noise)
    shown = _chances_to_be_shown(scene, ways, found, values, rates)
    cap_errors = np.array(
        [
            error_of_cap(scene, way, of_way, chances)
            for way, of_way, chances in zip(ways, finding_values, shown, strict=True)
        ]
    )
    return _mean_losses(scene, shown, noise, cap_errors)


def _mean_losses(scene: Scene, shown: Array, noise: Array, cap_errors: Array) -> Array:
    """Return the loss of each way as a mean over the shapes, shape (ways,): the error of a row that
    is shown, as often as one is, and the count that is missed.

    Args:
        scene: what is known of the data.
        shown: the chance of each label to be shown, shape (ways, shapes, groups).
        noise: the standard deviation of the noise on a count, shape (ways, shapes).
        cap_errors: what a cap takes off the counts shown, shape (ways, shapes).
    """
    rows = np.minimum(shown @ scene.drawn.sizes, 1.0)
    on_each = rows * np.hypot(noise, cap_errors) + _missed_counts(scene, shown)
    mean: Array = on_each.mean(axis=1)
    return mean


def _noise_on_counts(scene: Scene, way: Way, found: Array) -> Array:
    """Return the standard deviation of the noise on each count, shape (shapes,): fewer counts than
    k have less noise, and more of them have more where all that was found is counted.

    Args:
        scene: the counts, and the budget.
        way: how labels are found and counted.
        found: the chance of each label to be found, shape (shapes, groups).
    """
    number = np.maximum(found @ scene.drawn.sizes, 1.0)
    if not way.counts_all:
        number = np.minimum(number, scene.k)
    for_k = deviation(way, scene.k, scene.budget, scene.linf)
    noise: Array = for_k * deviation_ratio(way, number, scene.k)
    return noise


def _finding_values_of(scene: Scene, ways: list[Way]) -> list[Array]:
    """Return ``Scene.values_to_find_by`` of each way: one array for all that look at the same sums
    or counts.
    """
    # Ways with the same finder and cap look at the same values.
    way_of_source = {(way.find, way.cap): way for way in ways}
    values = {source: scene.values_to_find_by(way) for source, way in way_of_source.items()}
    return [values[way.find, way.cap] for way in ways]


def _missed_counts(scene: Scene, shown: Array) -> Array:
    """Return how much larger the sum of the counts of the true top k is than that of the labels
    shown, on average and per label asked for, at least 0, shape (ways, shapes).

    Args:
        scene: the counts, and k.
        shown: the chance of each label to be shown, shape (ways, shapes, groups).
    """
    drawn = scene.drawn
    top = drawn.counts @ drawn.of_top(scene.k)
    missed: Array = np.maximum(top - (shown * drawn.counts) @ drawn.sizes, 0.0) / scene.k
    return missed


def error_of_cap(scene: Scene, way: Way, finding_values: Array, shown: Array) -> Array:
    """Return the root mean square of what a cap takes off the counts that are shown, shape
    (shapes,); 0 for ways whose counts have no cap.

    Where few are shown they are the largest, of which it takes off most: so the mean is over what
    is shown.

    Args:
        scene: what is known of the data.
        way: how labels are found and counted.
        finding_values: ``scene.values_to_find_by(way)``, shape (shapes, groups).
        shown: the chance of each label to be shown, shape (shapes, groups).
    """
    if way.counting != "capped":
        return np.zeros(len(finding_values))
    mean_cut = scene.drawn.counts - finding_values
    spread = _spread_of_what_is_left(scene, way, finding_values)
    squares = mean_cut**2 + spread**2
    rows = np.maximum(shown @ scene.drawn.sizes, LEAST_ROWS)
    error: Array = np.sqrt((shown * squares) @ scene.drawn.sizes / rows)
    return error


def _spread_of_what_is_left(scene: Scene, way: Way, finding_values: Array) -> Array:
    """Return the standard deviation, over labels of the same uncapped count, of the capped count or
    sum of weights that is left of it, shape (shapes, groups).

    It is that of a share whose log odds have the deviation UNLIKE, to first order.

    Args:
        scene: what is known of the data.
        way: whether labels are found by weights.
        finding_values: ``scene.values_to_find_by(way)``: the mean of what is left of each count,
            shape (shapes, groups).
    """
    most = scene.drawn.counts * (WEIGHT if way.find == "weights" else 1.0)
    share = np.clip(finding_values / np.maximum(most, 1.0), 0.0, 1.0)
    unlike: Array = UNLIKE * share * (1 - share) * most
    return unlike


def _values_and_rates(
    scene: Scene, ways: list[Way], finding_values: list[Array], noise: Array
) -> tuple[Array, Array]:
    """Return what ``_values_of_selection`` returns, for all ways at once: the values by which
    labels are selected, shape (ways, shapes, groups), and the rates of the Gumbel noise on them,
    shape (ways, shapes, 1).

    Args:
        scene: what is known of the data.
        ways: which ways are compared.
        finding_values: ``scene.values_to_find_by`` of each way.
        noise: the standard deviation of the noise on a count, shape (ways, shapes).
    """
    of_ways = [
        _values_of_selection(scene, way, of_way, noise_of_way)
        for way, of_way, noise_of_way in zip(ways, finding_values, noise, strict=True)
    ]
    values, rates = zip(*of_ways, strict=True)
    return np.array(values), np.array(rates)[..., None]


def _values_of_selection(
    scene: Scene, way: Way, finding_values: Array, noise: Array
) -> tuple[Array, Array]:
    """Return the values by which labels are selected before noise, shape (shapes, groups), and the
    rate of Gumbel noise with the deviation of all that is random in them, shape (shapes,).

    Where the noisy capped counts help, they are a part of these values.

    Args:
        scene: what is known of the data.
        way: how labels are selected.
        finding_values: ``scene.values_to_find_by(way)``, shape (shapes, groups).
        noise: the standard deviation of the noise on a count, shape (shapes,).
    """
    rate = _rate_of_selection(scene, way, noise)
    if way.counting != "capped":
        return scene.drawn.counts, rate
    # The selection is by the counts plus the weighted capped counts, as in ``planning/helped.py``.
    kth = scene.drawn.group_of(scene.k)
    least, _ = threshold(scene, way)
    kth_released = np.maximum(finding_values[:, kth], least)
    selection_std = GUMBEL_STD / rate
    weight = weight_of_released(selection_std, noise, kth_released)
    spread = _spread_of_what_is_left(scene, way, finding_values)[:, kth]
    released_std = np.hypot(noise, spread)
    values = scene.drawn.counts + weight[:, None] * finding_values
    return values, GUMBEL_STD / np.hypot(selection_std, weight * released_std)


def _rate_of_selection(scene: Scene, way: Way, noise: Array) -> Array:
    """Return the rate of the Gumbel noise by which labels are selected, shape (shapes,): the ε of
    one selection, over the most that one user adds to a count.

    Where all that was found is counted, it is the rate whose Gumbel noise has the deviation of the
    noise on the counts.

    Args:
        scene: the budget, and k.
        way: how labels are selected.
        noise: the standard deviation of the noise on a count, shape (shapes,).
    """
    if way.counts_all:
        return GUMBEL_STD / noise
    mu = whole_mu(scene.budget, way.find)
    rate = RANGE_OF_MU * mu * math.sqrt(way.share / scene.k) / scene.linf
    if way.find != "uncapped":  # there finding is selecting, and has all of the share
        rate *= math.sqrt(way.selecting)
    return np.full(len(noise), rate)


def _chances_to_be_found(scene: Scene, way: Way, finding_values: Array) -> Array:
    """Return the chance of each label to be found, shape (shapes, groups); without a cap it is 1
    for those that take part in the selections.

    Args:
        scene: what is known of the data.
        way: how labels are found.
        finding_values: ``scene.values_to_find_by(way)``, shape (shapes, groups).
    """
    from scipy.special import ndtr

    present = scene.drawn.counts > 0
    if way.find == "uncapped":
        return present * (scene.drawn.edges[1:] <= way.floor)
    middle, noise = threshold(scene, way)
    deviations = np.hypot(noise, _spread_of_what_is_left(scene, way, finding_values))
    gaussian: Array = present * ndtr((finding_values - middle) / deviations)
    return gaussian


def threshold(scene: Scene, way: Way) -> tuple[float, float]:
    """Return the sum or count at which a label is found with probability 1/2, and the standard
    deviation of the normal law by which the probability rises around it; both are estimates.

    Args:
        scene: the budget, and the most that one user adds to a label.
        way: its ``find`` is "weights", "threshold" or "coins".

    Raises:
        InvalidParameter: for every other ``find``.
    """
    from scipy.special import ndtri

    delta = FINDING_DELTA[way.find] * scene.budget.delta
    cap = way.cap or 1  # for the type checker: these ways have a cap
    mu = whole_mu(scene.budget, way.find)
    noise = 1 / (mu * math.sqrt(way.share * (1 - way.selecting)))
    # The labels of one user alone may be found with a probability of δ in all: δ for a user of one
    # label, δ/cap for each label of a user of as many as the cap.
    if way.find == "weights":
        noise *= WEIGHT
        alone = WEIGHT - noise * float(ndtri(delta))
        several = WEIGHT / math.sqrt(cap) - noise * float(ndtri(delta / cap))
        return max(alone, several), noise
    noise *= math.sqrt(cap) * scene.linf
    middle = scene.linf - noise * float(ndtri(delta / cap))
    if way.find == "threshold":
        return middle, noise
    if way.find == "coins":
        return middle * (COIN_START - COIN_SLOPE * math.log(cap)), COIN_DEVIATION * noise
    raise unknown_finder(way.find)


def _chances_to_be_shown(
    scene: Scene, ways: list[Way], found: Array, values: Array, rates: Array
) -> Array:
    """Return the chance of each label to be found and selected, shape (ways, shapes, groups).

    With Gumbel noise of rate r the k largest are those above a level t, each with the chance
    1 - e^(-e^(r (h - t))).

    Args:
        scene: the counts, and the budget.
        ways: which ways are compared.
        found: the chance of each label to be found, shape (ways, shapes, groups).
        values: what labels are selected by, shape (ways, shapes, groups).
        rates: of the Gumbel noise on them, shape (ways, shapes, 1).
    """
    level = _level_of_k_labels(scene, found, values, rates)
    shown = found * _chances_over_level(values, level, rates)
    for row, way in enumerate(ways):
        if way.find == "uncapped":
            chances = _chances_over_level_and_floor(scene, way, level[row], rates[row])
            shown[row] = found[row] * chances
    return shown


def _chances_over_level(values: Array, level: Array, rates: Array) -> Array:
    """Return the chance of each value to be above a level with Gumbel noise of each rate; the three
    arrays are broadcast against one another.

    Args:
        values: h, by which labels are selected.
        level: t, which a noisy value must exceed.
        rates: r of the Gumbel noise on each value.
    """
    above: Array = -np.expm1(-_bounded_exponential(rates * (values - level)))
    return above


def _level_of_k_labels(scene: Scene, found: Array, values: Array, rates: Array) -> Array:
    """Return the level that k of the labels found exceed on average with their noise, shape (ways,
    shapes, 1); where no more than k are found, a level that all of them exceed.

    Args:
        scene: the counts, and k.
        found: the chance of each label to be found, shape (ways, shapes, groups).
        values: what labels are selected by, shape (ways, shapes, groups).
        rates: of the Gumbel noise, shape (ways, shapes, 1).
    """
    drawn = scene.drawn
    level = np.zeros(rates.shape) - FAR / rates
    # Where no more than k are found all of these are shown: a level far below all counts decides.
    more_than_k = found @ drawn.sizes > scene.k
    values = values[more_than_k]
    found = found[more_than_k]
    rates = rates[more_than_k]

    def excess(level: Array) -> Array:
        """Return ln(labels above a level / k), for each level: its root is looked for."""
        number = (found * _chances_over_level(values, level, rates)) @ drawn.sizes
        return np.log(np.maximum(number / scene.k, LEAST_RATIO))[:, None]

    high = values[:, :1] + FAR / rates
    start = drawn.middle_of_k_and_next(values, scene.k)
    low = level[more_than_k]
    level[more_than_k] = cross_each(excess, low, high, start, 1 / rates, close=CLOSE)
    return level


def _chances_over_level_and_floor(scene: Scene, way: Way, level: Array, rate: Array) -> Array:
    """Return the chance of each count to be above a level and above a noisy floor, shape (shapes,
    groups): with the chance PLATEAU for a floor at the count of the last rank of a look, otherwise
    for one at the count that the shape has there.

    Args:
        scene: what is known of the data.
        way: one without a cap; its floor is the count after those that take part.
        level: the level that k labels exceed on average, shape (shapes, 1).
        rate: of the Gumbel noise, shape (shapes, 1).
    """
    delta = FINDING_DELTA[way.find] * scene.budget.delta
    # The mechanism adds a whole number.
    offset = scene.linf + np.ceil((math.log(way.floor) - math.log(delta)) / rate)
    drawn = scene.drawn
    group = int(np.searchsorted(drawn.edges, way.floor + 1, side="left")) - 1
    # The first group of ranks from the last one of a look on; a floor before it is what was seen.
    unseen = int(np.searchsorted(drawn.edges, FACTORS[-1] * scene.k - 1, side="left"))
    padded = np.pad(drawn.counts, ((0, 0), (0, 1)))  # there is no label after the last group
    likely, highest = (
        _chances_over_shared_floor(drawn.counts, padded[:, [at]] + offset, level, rate)
        for at in (group, min(unseen, group))
    )
    chances: Array = (1 - PLATEAU) * likely + PLATEAU * highest
    return chances


def _chances_over_shared_floor(counts: Array, floor: Array, level: Array, rate: Array) -> Array:
    """Return the chance of each count to be above a level t and above a noisy floor, which all
    counts share: those that it hides are missed together, and no other label is shown instead.

    Without noise the floor is at a, an offset above the count after those that take part. Its own
    noise e^(-r noise) has an exponential law of mean 1; where that is below u = e^(-r (t - a)) the
    floor is above t. The integral over it, with c = e^(r (h - a)) for a count h, is
    c / (1 + c) (1 - e^(-u - uc)), and uc = e^(r (h - t)).

    Args:
        counts: h, shape (shapes, groups).
        floor: a, shape (shapes, 1).
        level: t, shape (shapes, 1).
        rate: r of the Gumbel noise, shape (shapes, 1).
    """
    odds = _bounded_exponential(rate * (counts - floor))  # c
    u = _bounded_exponential(rate * (floor - level))
    u_times_c = _bounded_exponential(rate * (counts - level))
    chances: Array = odds / (1 + odds) * -np.expm1(-(u_times_c + u))
    return chances


def _bounded_exponential(exponent: Array) -> Array:
    """Return e to the power of an exponent, which is cut where a chance is 1 or 0 to rounding in
    any case, so that nothing overflows.
    """
    power: Array = np.exp(np.minimum(exponent, LARGEST_EXPONENT))
    return power
