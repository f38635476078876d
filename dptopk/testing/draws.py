"""Statements of a mechanism beside releases that were drawn."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS, Scene, Standard
from dptopk.release.intervals import Measurement
from dptopk.release.release import Release
from dptopk.testing.findings import (
    ERRORS,
    LABELS,
    LARGE,
    Array,
    Finding,
    Findings,
    Subject,
    shortly,
    standard_error,
)

# Shares by which a bound may exceed what is seen: bounds of tails, and of what is far out.
WIDE = 0.03
WIDE_TAIL = 1.35
BLOCKS = 24


def measured(subject: Subject) -> Findings:
    """``measurement`` beside the noise of releases whose labels all appear: deviation, tails of one
    and of all labels, and intervals.
    """
    answers = list(subject.releases(np.full(LABELS, LARGE), 3))
    statement = answers[0].measurement
    if statement is None:
        return
    truth = {str(row): LARGE for row in range(LABELS)}
    noise = np.array([_noise(answer.labels, answer.measured_values, truth) for answer in answers])
    if noise.shape != (len(answers), LABELS):
        yield Finding("appears_at", "far below 10^6", "labels of a count of 10^6 are missing")
        return
    yield from _deviation(statement, noise)
    yield from _tails(statement, noise)
    # The conditional law of what passed a fixed threshold is searched anew for each value.
    if statement.by_passing:
        looked_at = 40
    else:
        looked_at = 300
    yield from _intervals([answer.intervals() for answer in answers[:looked_at]])


def _noise(labels: tuple[object, ...], values: Array, truth: dict[str, int]) -> list[float]:
    return [float(value) - truth[str(label)] for label, value in zip(labels, values, strict=True)]


def _deviation(statement: Measurement, noise: Array) -> Findings:
    """The second moment; all labels of a draw are one value, for they may share noise."""
    squares = (noise**2).mean(axis=1)
    error = ERRORS * standard_error(squares)
    stated = statement.std**2
    seen = float(squares.mean())
    if seen > stated + error + 1e-9 or seen < stated * (1 - 2 * WIDE) - error - statement.std:
        yield Finding("measurement", f"std {shortly(statement.std)}", shortly(math.sqrt(seen)))


def _tails(statement: Measurement, noise: Array) -> Findings:
    """P[|noise| > w] of one label: never above the bound, nor far below."""
    alphas = (0.5, 0.2, 0.05, 0.01)
    for alpha in alphas:
        if statement.selected:
            return
        width = statement.half_width(alpha, "row", 1) / statement.divisor
        outside = (np.abs(noise) > width).mean(axis=1)
        error = ERRORS * max(standard_error(outside), 1 / len(noise))
        seen = float(outside.mean())
        step = 1 / statement.divisor
        if seen > alpha + error:
            yield Finding("measurement", f"within ±{width:g} but for {alpha}", shortly(seen))
        fewer = (np.abs(noise) > max(width - step, 0)).mean()
        if width > 2 * step and fewer * WIDE_TAIL < alpha - error:
            yield Finding(
                "measurement", f"±{width:g} is needed at {alpha}", f"{shortly(seen)} miss"
            )


def _intervals(tables: list[pd.DataFrame]) -> Findings:
    """All intervals of a release hold together."""
    missed = np.array([_misses(table) for table in tables], dtype=float)
    error = ERRORS * math.sqrt(0.05 * 0.95 / len(missed))
    if missed.mean() > 0.05 + error:
        yield Finding("intervals", "95% of releases", f"{1 - missed.mean():.1%} are covered")


def _misses(table: pd.DataFrame) -> bool:
    low = table["low"]
    high = table["high"]
    return not bool(((low <= LARGE) & (high >= LARGE)).all())


def simulated(subject: Subject) -> Findings:
    """``simulate`` beside releases: which labels are chosen, how many, and their noisy counts."""
    mechanism = subject.mechanism
    sensitivity = subject.sensitivity
    counts = _falling(subject)
    k = min(int(getattr(mechanism, "k", 4)), len(counts))  # of any, the four largest
    scene = Scene(k, counts.astype(float), sensitivity, Standard(len(counts)))
    try:
        draw = mechanism.simulate(scene)
    except InvalidParameter:  # it counts a ranking, and selects nothing
        return
    blocks = [draw(number) for number in range(BLOCKS)]
    chosen = np.concatenate([ranks for ranks, _ in blocks])
    values = np.concatenate([noisy for _, noisy in blocks])
    answers = list(subject.releases(counts, 4, draws=max(subject.draws // 2, BLOCK_DRAWS)))
    ordered = not any("set" in answer.note for answer in answers[:5])
    rows = [[int(str(label)) for label in answer.labels[:k]] for answer in answers]
    shown = np.array([len(row) for row in rows], dtype=float)
    yield from _alike("simulate", "rows", (chosen >= 0).sum(axis=1).astype(float), shown, 0.1)
    if ordered:
        places = np.array([np.mean(row) if row else -1.0 for row in rows])
        ours = np.where((chosen >= 0).any(axis=1), _mean_rank(chosen), -1.0)
        yield from _alike("simulate", "mean rank", ours, places, 0.15)
    if answers[0].counts is not None and ordered:
        seen = [
            _noise(answer.labels[:k], answer.measured_values[:k], _by(counts)) for answer in answers
        ]
        yield from _spread(chosen, values - counts[np.maximum(chosen, 0)], seen)


def _falling(subject: Subject) -> Array:
    """Counts of 24 labels whose gaps are of the size of the noise, all well above a threshold or
    not.
    """
    noise = subject.noise(LABELS * 3)
    start = subject.mechanism.appears_at(subject.sensitivity, probability=0.5) or 0
    steps = np.arange(LABELS * 3, 0, -1)
    return np.asarray(np.rint(max(noise, 1.0) * steps / 2 + start), dtype=np.int64)


def _by(counts: Array) -> dict[str, int]:
    return {str(row): int(count) for row, count in enumerate(counts)}


def _of_first(answer: Release, k: int, counts: Array) -> list[float]:
    return _noise(answer.labels[:k], answer.measured_values[:k], _by(counts))


def _mean_rank(chosen: Array) -> Array:
    there = chosen >= 0
    return np.where(there, chosen, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)


def _alike(statement: str, what: str, ours: Array, theirs: Array, slack: float) -> Findings:
    error = ERRORS * math.hypot(standard_error(ours), standard_error(theirs)) + slack
    if abs(ours.mean() - theirs.mean()) > error:
        yield Finding(statement, f"{what} {shortly(ours.mean())}", shortly(theirs.mean()))


def _spread(chosen: Array, noise: Array, seen: list[list[float]]) -> Findings:
    """Noise on the counts of chosen labels: its mean square, a draw as one value."""
    there = chosen >= 0
    ours = np.where(there, noise, 0.0) ** 2
    ours = ours.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    theirs = np.array([np.mean(np.square(each)) if each else 0.0 for each in seen])
    yield from _alike("simulate", "mean square of noise", ours, theirs, 0.05 * theirs.mean() + 0.3)


def appearing(subject: Subject) -> Findings:
    """``appears_at``: a label at that lead over the floor is shown as often as stated, and one well
    below is not.
    """
    mechanism = subject.mechanism
    sensitivity = subject.sensitivity
    if not subject.private:
        return
    noise = subject.noise(LABELS)
    for probability in (0.6, 0.95):
        lead = mechanism.appears_at(sensitivity, probability=probability)
        rank = mechanism.floor_rank
        above = 0 if rank is None else LARGE
        below = [] if rank is None else [above] * (rank - 1)
        one = above + int(lead or 0)
        less = above + int(lead or 0) - math.ceil(0.6 * noise + 1)

        def chance(count: int, below: list[int] = below, above: int = above) -> Array:
            counts = np.array([count, *below, above] if below else [count])
            answers = subject.releases(counts, 5)
            return np.array([float("0" in answer.labels) for answer in answers])

        yield from _shown(chance, probability, one, less)


def _shown(chance: Callable[[int], Array], probability: float, at: int, below: int) -> Findings:
    enough = chance(at)
    error = ERRORS * max(standard_error(enough), 1 / len(enough))
    if enough.mean() < probability - error:
        yield Finding("appears_at", f"{probability} at {at}", f"{shortly(enough.mean())} are shown")
    fewer = chance(max(below, 1))
    if below >= 1 and fewer.mean() > probability + ERRORS * standard_error(fewer):
        yield Finding("appears_at", f"{probability} from {at} on", f"as many are shown at {below}")


def swapped(subject: Subject) -> Findings:
    """``swap_chance`` of two labels at a gap."""
    mechanism = subject.mechanism
    sensitivity = subject.sensitivity
    noise = subject.noise(2)
    if mechanism.swap_chance(sensitivity, 1.0) is None or not math.isfinite(noise):
        return
    gap = max(round(1.2 * noise), 1)
    stated = float(mechanism.swap_chance(sensitivity, gap) or 0.0)
    counts = np.array([LARGE + gap, LARGE, *[0] * (subject.k - 2)])
    answers = subject.releases(counts, 6)
    wrong = np.array([float(answer.labels[:1] == ("1",)) for answer in answers])
    error = ERRORS * max(standard_error(wrong), 1 / len(wrong))
    if not wrong.mean() - error <= stated <= wrong.mean() * 1.3 + error:
        yield Finding("swap_chance", shortly(stated), f"{shortly(wrong.mean())} are swapped")
