"""Statements of a mechanism beside releases that were drawn."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS, SimulationInput, Standard
from dptopk.release.intervals import Measurement
from dptopk.release.release import Release
from dptopk.testing.mismatches import (
    ERRORS,
    LABELS,
    LARGE,
    Array,
    Mismatch,
    Mismatches,
    Subject,
    shortly,
    standard_error,
)

# Shares by which a bound may exceed what is seen: bounds of tails, and of what is far out.
WIDE = 0.03
WIDE_TAIL = 1.35
BLOCKS = 24


def measured(subject: Subject) -> Mismatches:
    """``measurement`` beside the noise of releases whose labels all appear: deviation, tails of one
    and of all labels, and intervals.
    """
    answers = list(subject.releases(np.full(LABELS, LARGE), 3))
    statement = answers[0].measurement
    if statement is None:
        return
    truth = {str(row): LARGE for row in range(LABELS)}
    noise = np.array([_noise_of(answer, truth) for answer in answers])
    if noise.shape != (len(answers), LABELS):
        yield Mismatch("appears_at", "far below 10^6", "labels of a count of 10^6 are missing")
        return
    yield from _deviation(statement, noise)
    yield from _tails(statement, noise)
    # The conditional law of what passed a fixed threshold is searched anew for each value.
    if statement.by_passing:
        looked_at = 40
    else:
        looked_at = 300
    yield from _intervals([answer.intervals() for answer in answers[:looked_at]])


def _noise_of(answer: Release, truth: dict[str, int], k: int | None = None) -> list[float]:
    """The noise on the first k counts of an answer, or on all."""
    shown = zip(answer.labels[:k], answer.measured_values[:k].tolist(), strict=True)
    return [value - truth[str(label)] for label, value in shown]


def _margin(seen: Array) -> float:
    """By how much a share of draws may be off."""
    return ERRORS * max(standard_error(seen), 1 / len(seen))


def _deviation(statement: Measurement, noise: Array) -> Mismatches:
    """The second moment; all labels of a draw are one value, for they may share noise."""
    squares = (noise**2).mean(axis=1)
    error = ERRORS * standard_error(squares)
    stated = statement.std**2
    seen = float(squares.mean())
    least = stated * (1 - 2 * WIDE) - error - statement.std
    if not least <= seen <= stated + error + 1e-9:
        claim = f"std {shortly(statement.std)}"
        yield Mismatch("measurement", claim, shortly(math.sqrt(seen)))


def _tails(statement: Measurement, noise: Array) -> Mismatches:
    """P[|noise| > w] of one label: never above the bound, nor far below."""
    alphas = (0.5, 0.2, 0.05, 0.01)
    for alpha in alphas:
        if statement.selected:
            return
        width = statement.half_width(alpha, "row", 1) / statement.divisor
        outside = (np.abs(noise) > width).mean(axis=1)
        error = _margin(outside)
        seen = shortly(float(outside.mean()))
        step = 1 / statement.divisor
        if outside.mean() > alpha + error:
            yield Mismatch("measurement", f"within ±{width:g} but for {alpha}", seen)
        nearer = np.abs(noise) > max(width - step, 0)
        enough = nearer.mean() * WIDE_TAIL >= alpha - error
        if width > 2 * step and not enough:
            yield Mismatch("measurement", f"±{width:g} is needed at {alpha}", f"{seen} miss")


def _intervals(tables: list[pd.DataFrame]) -> Mismatches:
    """All intervals of a release hold together."""
    missed = np.array([_misses(table) for table in tables], dtype=float)
    error = ERRORS * math.sqrt(0.05 * 0.95 / len(missed))
    covered = 1 - missed.mean()
    if covered < 0.95 - error:
        yield Mismatch("intervals", "95% of releases", f"{covered:.1%} are covered")


def _misses(table: pd.DataFrame) -> bool:
    inside = (table["low"] <= LARGE) & (table["high"] >= LARGE)
    return not bool(inside.all())


def simulated(subject: Subject) -> Mismatches:
    """``simulate`` beside releases: which labels are chosen, how many, and their noisy counts."""
    counts = _falling(subject)
    k = min(int(getattr(subject.mechanism, "k", 4)), len(counts))  # of any, the four largest
    scene = SimulationInput(k, counts.astype(float), subject.sensitivity, Standard(len(counts)))
    try:
        draw = subject.mechanism.simulate(scene)
    except InvalidParameter:  # it counts a ranking, and selects nothing
        return
    chosen, values = map(np.concatenate, zip(*map(draw, range(BLOCKS)), strict=True))
    answers = list(subject.releases(counts, 4, draws=max(subject.draws // 2, BLOCK_DRAWS)))
    yield from _rows_and_ranks(chosen, answers, k)
    if answers[0].counts is not None and _ordered(answers):
        noise = values - counts[np.maximum(chosen, 0)]
        truth = {str(row): int(count) for row, count in enumerate(counts)}
        yield from _spread(chosen, noise, [_noise_of(answer, truth, k) for answer in answers])


def _ordered(answers: list[Release]) -> bool:
    """Whether rows come in an order that means something."""
    return not any("set" in answer.note for answer in answers[:5])


def _rows_and_ranks(chosen: Array, answers: list[Release], k: int) -> Mismatches:
    """Simulated and released answers have as many rows on average, and the same mean rank where
    rows are in order; an answer without rows has the rank -1.
    """
    released = [[int(str(label)) for label in answer.labels[:k]] for answer in answers]
    simulated_rows = (chosen >= 0).sum(axis=1).astype(float)
    released_rows = np.array([float(len(ranks)) for ranks in released])
    yield from _alike("simulate", "rows", simulated_rows, released_rows, 0.1)
    if _ordered(answers):
        released_means = np.array([np.mean(ranks) if ranks else -1.0 for ranks in released])
        simulated_means = np.where(simulated_rows > 0, _mean_rank(chosen), -1.0)
        yield from _alike("simulate", "mean rank", simulated_means, released_means, 0.15)


def _falling(subject: Subject) -> Array:
    """Counts of 24 labels whose gaps are of the size of the noise, all well above a threshold or
    not.
    """
    noise = subject.noise(LABELS * 3)
    start = subject.mechanism.appears_at(subject.sensitivity, probability=0.5) or 0
    steps = np.arange(LABELS * 3, 0, -1)
    counts = np.rint(max(noise, 1.0) * steps / 2 + start)
    return np.asarray(counts, dtype=np.int64)


def _mean_rank(chosen: Array) -> Array:
    there = chosen >= 0
    sums = np.where(there, chosen, 0).sum(axis=1)
    return sums / np.maximum(there.sum(axis=1), 1)


def _alike(statement: str, what: str, ours: Array, theirs: Array, slack: float) -> Mismatches:
    error = ERRORS * math.hypot(standard_error(ours), standard_error(theirs))
    if abs(ours.mean() - theirs.mean()) > error + slack:
        stated = f"{what} {shortly(ours.mean())}"
        yield Mismatch(statement, stated, shortly(theirs.mean()))


def _spread(chosen: Array, noise: Array, seen: list[list[float]]) -> Mismatches:
    """Noise on the counts of chosen labels: its mean square, a draw as one value."""
    there = chosen >= 0
    squares = np.where(there, noise, 0.0) ** 2
    ours = squares.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    theirs = np.array([np.mean(np.square(each)) if each else 0.0 for each in seen])
    slack = 0.05 * theirs.mean() + 0.3
    yield from _alike("simulate", "mean square of noise", ours, theirs, slack)


def appearing(subject: Subject) -> Mismatches:
    """``appears_at``: a label at that lead over the floor is shown as often as stated, and one well
    below is not.
    """
    mechanism = subject.mechanism
    sensitivity = subject.sensitivity
    if not subject.private:
        return
    nearer = math.ceil(0.6 * subject.noise(LABELS) + 1)
    rank = mechanism.floor_rank
    floor = 0 if rank is None else LARGE
    # As many counts of the floor as there are slots; over a fixed floor of 0 there are none.
    others = [] if rank is None else [floor] * rank

    def shown(count: int) -> Array:
        answers = subject.releases(np.array([count, *others]), 5)
        return np.array([float("0" in answer.labels) for answer in answers])

    for probability in (0.6, 0.95):
        lead = mechanism.appears_at(sensitivity, probability=probability)
        at = floor + int(lead or 0)
        yield from _appears(shown, probability, at, at - nearer)


def _appears(shown: Callable[[int], Array], probability: float, at: int, below: int) -> Mismatches:
    enough = shown(at)
    if enough.mean() < probability - _margin(enough):
        seen = f"{shortly(enough.mean())} are shown"
        yield Mismatch("appears_at", f"{probability} at {at}", seen)
    if below < 1:
        return
    fewer = shown(below)
    if fewer.mean() > probability + ERRORS * standard_error(fewer):
        claim = f"{probability} from {at} on"
        yield Mismatch("appears_at", claim, f"as many are shown at {below}")


def swapped(subject: Subject) -> Mismatches:
    """``swap_chance`` of two labels at a gap."""
    mechanism = subject.mechanism
    sensitivity = subject.sensitivity
    noise = subject.noise(2)
    if mechanism.swap_chance(sensitivity, 1.0) is None:
        return
    if not math.isfinite(noise):
        return
    gap = max(round(1.2 * noise), 1)
    stated = float(mechanism.swap_chance(sensitivity, gap) or 0.0)
    wrong = _swaps(subject, gap)
    seen = wrong.mean()
    error = _margin(wrong)
    if not seen - error <= stated <= seen * 1.3 + error:
        yield Mismatch("swap_chance", shortly(stated), f"{shortly(seen)} are swapped")


def _swaps(subject: Subject, gap: int) -> Array:
    """For each release, 1 where the smaller of two labels with this gap comes first, else 0."""
    zeros = [0] * (subject.k - 2)
    answers = subject.releases(np.array([LARGE + gap, LARGE, *zeros]), 6)
    return np.array([float(answer.labels[:1] == ("1",)) for answer in answers])
