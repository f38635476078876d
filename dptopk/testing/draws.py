"""Checks that compare the statements of a mechanism with releases that are drawn.

Each check takes a ``Subject`` and yields a ``Mismatch`` for every statement that is false.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.simulation import (
    BLOCK_DRAWS,
    Draw,
    SimulationInput,
    StandardNoise,
)
from dptopk.release.intervals import Measurement
from dptopk.release.release import Release
from dptopk.testing.mismatches import (
    APPEARANCE_STREAM,
    LABELS,
    LARGE_COUNT,
    MEASUREMENT_STREAM,
    SIMULATION_STREAM,
    STANDARD_ERRORS,
    SWAP_STREAM,
    Array,
    Mismatch,
    Mismatches,
    Subject,
    four_digits,
    standard_error,
)

# A stated standard deviation may exceed the true one by this share, a tail and the chance of a swap
# by these factors: they are upper bounds.
DEVIATION_EXCESS = 0.03
TAIL_FACTOR = 1.35
SWAP_FACTOR = 1.3
# By how much a simulation, which is in floating point, may differ from releases beside sampling
# errors: in the mean number of rows, in the mean rank, and in the mean square of the noise, there
# by this share and this number.
ROWS_OFF = 0.1
RANK_OFF = 0.15
NOISE_SHARE_OFF = 0.05
NOISE_OFF = 0.3
BLOCKS = 24  # blocks of draws of a simulation
# Releases whose intervals are computed; of a fixed threshold fewer, because intervals by the
# conditional law take longer, a search for each value.
RELEASES_WITH_INTERVALS = 300
FEW_RELEASES_WITH_INTERVALS = 40


def check_measurement(subject: Subject) -> Mismatches:
    """Compare ``measurement`` with the noise of releases in which all labels appear: its standard
    deviation, its tails, and the coverage of intervals.
    """
    answers = list(subject.releases(np.full(LABELS, LARGE_COUNT), MEASUREMENT_STREAM))
    statement = answers[0].measurement
    if statement is None:
        return
    truth = {str(row): LARGE_COUNT for row in range(LABELS)}
    noise = np.array([_noise_of(answer, truth) for answer in answers])
    if noise.shape != (len(answers), LABELS):
        yield Mismatch("appears_at", "far below 10^6", "labels of a count of 10^6 are missing")
        return
    yield from _check_deviation(statement, noise)
    yield from _check_tails(statement, noise)
    number = RELEASES_WITH_INTERVALS
    if statement.needs_conditional_law:
        number = FEW_RELEASES_WITH_INTERVALS
    yield from _check_intervals([answer.intervals() for answer in answers[:number]])


def _noise_of(answer: Release, truth: dict[str, int], k: int | None = None) -> list[float]:
    """Return the noise on the first k counts of an answer, or on all, given the true counts.

    Args:
        answer: a release with counts.
        truth: the true count of each label.
        k: how many of the first rows are read; None: all.
    """
    rows = zip(answer.labels[:k], answer.measured_values[:k].tolist(), strict=True)
    return [value - truth[str(label)] for label, value in rows]


def _margin(outcomes: Array) -> float:
    """Return by how much the mean of outcomes between 0 and 1, shape (n,), may differ from its
    expectation by chance: STANDARD_ERRORS times its standard error, or 1/n where that is less, as
    it is 0 where all outcomes are equal.
    """
    return STANDARD_ERRORS * max(standard_error(outcomes), 1 / len(outcomes))


def _check_deviation(statement: Measurement, noise: Array) -> Mismatches:
    """Compare the stated standard deviation with the mean square of drawn noise, shape (releases,
    labels); a release is one independent value, because its labels may share noise.
    """
    squares = (noise**2).mean(axis=1)
    error = STANDARD_ERRORS * standard_error(squares)
    stated = statement.std**2
    observed = float(squares.mean())
    # A deviation that is too large by the share DEVIATION_EXCESS, and by half a count because the
    # noise is rounded, has a square that is too large by about this. Where all noise is 0, 1e-9 is
    # for the rounding of the stated square.
    least = stated * (1 - 2 * DEVIATION_EXCESS) - error - statement.std
    if not least <= observed <= stated + error + 1e-9:
        claim = f"std {four_digits(statement.std)}"
        yield Mismatch("measurement", claim, four_digits(math.sqrt(observed)))


def _check_tails(statement: Measurement, noise: Array) -> Mismatches:
    """Check that, for drawn noise of shape (releases, labels), the share beyond a stated half-width
    is not above its error probability, nor far below it.

    Args:
        statement: what the mechanism states.
        noise: in counts.
    """
    if statement.selected:  # the labels shown are those with the larger noise
        return
    step = 1 / statement.divisor
    for alpha in (0.5, 0.2, 0.05, 0.01):  # from the middle of the law to its tail
        width = statement.half_width(alpha, "row", 1) / statement.divisor
        outside = (np.abs(noise) > width).mean(axis=1)
        error = _margin(outside)
        observed = four_digits(float(outside.mean()))
        if outside.mean() > alpha + error:
            yield Mismatch("measurement", f"within ±{width:g} but for {alpha}", observed)
        # A width is a multiple of the step. One step less must miss about alpha, unless the steps
        # are coarse.
        beyond_narrower = np.abs(noise) > max(width - step, 0)
        is_tight = beyond_narrower.mean() * TAIL_FACTOR >= alpha - error
        if width > 2 * step and not is_tight:
            yield Mismatch("measurement", f"±{width:g} is needed at {alpha}", f"{observed} miss")


def _check_intervals(tables: list[pd.DataFrame]) -> Mismatches:
    """Check that in 95% of releases all intervals cover, given the tables of ``intervals``."""
    is_missed = np.array([_is_missed(table) for table in tables], dtype=float)
    # The default confidence of intervals is 95%.
    error = STANDARD_ERRORS * math.sqrt(0.05 * 0.95 / len(is_missed))
    covered = 1 - is_missed.mean()
    if covered < 0.95 - error:
        yield Mismatch("intervals", "95% of releases", f"{covered:.1%} are covered")


def _is_missed(table: pd.DataFrame) -> bool:
    """Return whether one of the intervals does not cover the true count, which is LARGE_COUNT."""
    is_covered = (table["low"] <= LARGE_COUNT) & (table["high"] >= LARGE_COUNT)
    return not bool(is_covered.all())


def check_simulation(subject: Subject) -> Mismatches:
    """Compare ``simulate`` with releases: how many labels are chosen, which ones, and the noise on
    their counts.
    """
    counts = _falling_counts(subject)
    k = min(int(getattr(subject.mechanism, "k", 4)), len(counts))  # four where there is no k
    inputs = SimulationInput(
        k, counts.astype(float), subject.sensitivity, StandardNoise(len(counts))
    )
    try:
        draw = subject.mechanism.simulate(inputs)
    except InvalidParameter:  # the mechanism counts a given ranking and selects nothing
        return
    chosen, values = _simulated_draws(draw)
    answers = list(
        subject.releases(counts, SIMULATION_STREAM, draws=max(subject.draws // 2, BLOCK_DRAWS))
    )
    yield from _check_rows_and_ranks(chosen, answers, k)
    if answers[0].counts is not None and _are_ranked(answers):
        noise = values - counts[np.maximum(chosen, 0)]
        truth = {str(row): int(count) for row, count in enumerate(counts)}
        yield from _check_noise_on_chosen(
            chosen, noise, [_noise_of(answer, truth, k) for answer in answers]
        )


def _simulated_draws(draw: Draw) -> tuple[Array, Array]:
    """Return the ranks that are chosen in BLOCKS blocks of draws, -1 for none, and their noisy
    counts, shape (draws, k) both.
    """
    blocks = [draw(number) for number in range(BLOCKS)]
    chosen = np.concatenate([ranks for ranks, _ in blocks])
    values = np.concatenate([noisy_counts for _, noisy_counts in blocks])
    return chosen, values


def _are_ranked(answers: list[Release]) -> bool:
    """Return whether the order of the rows is a ranking, not that of a set, as the notes of the
    first answers say.
    """
    return not any("set" in answer.note for answer in answers[:5])


def _check_rows_and_ranks(chosen: Array, answers: list[Release], k: int) -> Mismatches:
    """Check that simulated and released answers have the same mean number of rows and, if rows are
    ranked, the same mean rank; an answer without rows counts as rank -1.

    Args:
        chosen: the simulated ranks, -1 for none, shape (draws, k).
        answers: the releases; their labels are the ranks as texts.
        k: how many labels are selected.
    """
    released = [_ranks(answer, k) for answer in answers]
    simulated_rows = (chosen >= 0).sum(axis=1).astype(float)
    released_rows = np.array([float(len(ranks)) for ranks in released])
    yield from _check_equal_means("simulate", "rows", simulated_rows, released_rows, ROWS_OFF)
    if _are_ranked(answers):
        released_means = np.array([np.mean(ranks) if ranks else -1.0 for ranks in released])
        simulated_means = np.where(simulated_rows > 0, _mean_rank(chosen), -1.0)
        yield from _check_equal_means(
            "simulate", "mean rank", simulated_means, released_means, RANK_OFF
        )


def _ranks(answer: Release, k: int) -> list[int]:
    """Return the true ranks of the first k labels of an answer; the labels are the ranks as
    texts.
    """
    return [int(str(label)) for label in answer.labels[:k]]


def _falling_counts(subject: Subject) -> Array:
    """Return descending counts of 24 labels with gaps of half the noise, of which those of a
    private domain appear with probability at least 1/2.
    """
    labels = LABELS * 3
    noise = subject.noise_deviation(labels)
    # In a public domain, where this is None, every label may appear.
    start = subject.mechanism.appears_at(subject.sensitivity, probability=0.5) or 0
    steps = np.arange(labels, 0, -1)
    counts = np.rint(max(noise, 1.0) * steps / 2 + start)
    return np.asarray(counts, dtype=np.int64)


def _mean_rank(chosen: Array) -> Array:
    """Return the mean of the ranks of each draw, without the -1 of places that are empty, shape
    (draws,); 0 for a draw without ranks.
    """
    is_chosen = chosen >= 0
    sums = np.where(is_chosen, chosen, 0).sum(axis=1)
    return sums / np.maximum(is_chosen.sum(axis=1), 1)


def _check_equal_means(
    statement: str, quantity: str, simulated: Array, released: Array, slack: float
) -> Mismatches:
    """Check that the means of a simulated and a released quantity differ by no more than sampling
    errors and ``slack``.

    Args:
        statement: the mechanism's method that is checked, for the report.
        quantity: its name, for the report.
        simulated: a value of each simulated draw.
        released: a value of each release.
        slack: by how much the means may differ.
    """
    error = STANDARD_ERRORS * math.hypot(standard_error(simulated), standard_error(released))
    if abs(simulated.mean() - released.mean()) > error + slack:
        stated = f"{quantity} {four_digits(simulated.mean())}"
        yield Mismatch(statement, stated, four_digits(released.mean()))


def _check_noise_on_chosen(chosen: Array, noise: Array, released: list[list[float]]) -> Mismatches:
    """Compare the mean square of the simulated noise on chosen labels with that of releases, a
    draw as one value.

    Args:
        chosen: the simulated ranks, -1 for none, shape (draws, k).
        noise: the simulated noise on their counts, of the same shape.
        released: the noise on the counts of each release.
    """
    is_chosen = chosen >= 0
    squares = np.where(is_chosen, noise, 0.0) ** 2
    simulated_means = squares.sum(axis=1) / np.maximum(is_chosen.sum(axis=1), 1)
    released_means = np.array([np.mean(np.square(row)) if row else 0.0 for row in released])
    slack = NOISE_SHARE_OFF * released_means.mean() + NOISE_OFF
    yield from _check_equal_means(
        "simulate", "mean square of noise", simulated_means, released_means, slack
    )


def check_appearance(subject: Subject) -> Mismatches:
    """Compare ``appears_at`` with releases: a label at that lead over the floor is shown as often
    as stated, and a label well below it is not.
    """
    mechanism = subject.mechanism
    sensitivity = subject.sensitivity
    if not subject.has_private_labels:
        return
    # So far below, by more than half the noise and by more than a count, fewer are shown.
    distance = math.ceil(0.6 * subject.noise_deviation(LABELS) + 1)
    rank = mechanism.floor_rank
    floor = 0 if rank is None else LARGE_COUNT
    # Other labels with the count of the floor fill the slots; a floor of 0 needs none.
    other_counts = [] if rank is None else [floor] * rank

    def shown(count: int) -> Array:
        """Return for each release 1 if a label with this count is shown, else 0."""
        answers = subject.releases(np.array([count, *other_counts]), APPEARANCE_STREAM)
        return np.array([float("0" in answer.labels) for answer in answers])

    for probability in (0.6, 0.95):  # in the middle of the law, and in its tail
        lead = mechanism.appears_at(sensitivity, probability=probability)
        # None, which is wrong for private labels, is compared with releases as a lead of 0.
        count = floor + int(lead or 0)
        yield from _check_lead(shown, probability, count, count - distance)


def _check_lead(
    shown: Callable[[int], Array], probability: float, count: int, lower_count: int
) -> Mismatches:
    """Check that labels with a count are shown with at least a probability, and labels with a lower
    count with at most that.

    Args:
        shown: from a count to 1 or 0 for each release: whether a label with it is shown.
        probability: the stated one.
        count: from which on labels are shown with this probability.
        lower_count: one that is clearly below; not checked below 1.
    """
    at_count = shown(count)
    if at_count.mean() < probability - _margin(at_count):
        observed = f"{four_digits(at_count.mean())} are shown"
        yield Mismatch("appears_at", f"{probability} at {count}", observed)
    if lower_count < 1:
        return
    at_lower_count = shown(lower_count)
    if at_lower_count.mean() > probability + STANDARD_ERRORS * standard_error(at_lower_count):
        claim = f"{probability} from {count} on"
        yield Mismatch("appears_at", claim, f"as many are shown at {lower_count}")


def check_swaps(subject: Subject) -> Mismatches:
    """Compare ``swap_chance`` with how often releases swap two labels at a gap of 1.2 times the
    noise.
    """
    mechanism = subject.mechanism
    sensitivity = subject.sensitivity
    noise = subject.noise_deviation(2)
    if not math.isfinite(noise):  # there is no gap of the size of the noise
        return
    gap = max(round(1.2 * noise), 1)
    stated = mechanism.swap_chance(sensitivity, gap)
    if stated is None:  # the mechanism states no chance
        return
    swaps = _swaps(subject, gap)
    observed = swaps.mean()
    error = _margin(swaps)
    if not observed - error <= stated <= observed * SWAP_FACTOR + error:
        yield Mismatch("swap_chance", four_digits(stated), f"{four_digits(observed)} are swapped")


def _swaps(subject: Subject, gap: int) -> Array:
    """Return for each release 1 if of two labels whose counts differ by ``gap`` the one with the
    smaller count comes first, else 0; shape (releases,).
    """
    others = [0] * (subject.k - 2)  # so that k labels can be selected
    answers = subject.releases(np.array([LARGE_COUNT + gap, LARGE_COUNT, *others]), SWAP_STREAM)
    # The labels are the places of the counts, as text: "1" has the smaller one.
    return np.array([float(answer.labels[:1] == ("1",)) for answer in answers])
