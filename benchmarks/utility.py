"""Utility at equal privacy: every design of the planner on six shapes of data; writes
docs/notes/utility-table.md.

Run as ``make measure WHAT=utility``; a quarter of an hour on two cores, and with ``ARGS=3``, three
times the standard errors, some minutes. Seeded, so that it repeats. It ends with an error where a
plan made for a shape loses more than 5% against the best design, where one made without it is the
worst of all (beyond two standard errors), or where a fit is worse than none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dptopk import Budget, Histogram, InvalidParameter, Plan, Sensitivity, plan_topk
from dptopk.datasets import macbeth
from dptopk.planning.designs import DESIGNS

K = 25
PAGE = Path(__file__).resolve().parents[1] / "docs" / "notes" / "utility-table.md"
RANKS = np.arange(1, 5001)
SHAPES = {
    "Macbeth": macbeth().counts,
    "10⁴/r": np.rint(1e4 / RANKS),
    "10⁵/r^1.5": np.rint(1e5 / RANKS**1.5),
    "flat": np.full(1000, 300),
    "steps": np.repeat([2000, 1000, 500, 20], [10, 30, 200, 2000]),
    "0.93^r": np.rint(5000 * 0.93 ** np.arange(200)),
}
# Releases of each design; most releases of one; standard errors relative to the best loss, where a
# plan made for the shape is clearly within, or beyond, so much of the best, and where it is not.
FIRST, MOST = 40, 20_000
COARSER = float(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else 1.0
NEAR, CLOSE, WITHIN = 0.01 * COARSER, 0.005 * COARSER, 0.05
FITS = 50
BUDGETS = (Budget(0.5, 1e-6), Budget(1.0, 1e-6), Budget(4.0, 1e-6), Budget(1.0, 0.0))

INTRODUCTION = """# The utility table

Top {k}, made by `make measure WHAT=utility`. A cell is *loss (recall, error, rows)*, in counts: error is the root mean
square error of the counts that are shown, and loss adds to it the count that the answer misses, per row: what the true
top {k} hold more than the labels that are shown, an empty row counting as 0. "planned" is what `plan_topk` takes
without knowing the shape. "planned for the shape" is `plan_topk(..., like=shape)`, which also divides the budget by
the shape; the last row is how far its loss is above that of the best design of the column, with the standard error of
that ratio.

A cell is an average over seeded releases: {first} at first, and more of the plan for the shape and of every design
that may be the best of its column, until the standard error of each is {near:.1%} of the best loss, {close:.1%} where
that does not tell whether the plan is within {within:.0%} of the best. [Utility](utility.md) says what to take from it.
"""


@dataclass
class Trials:
    """Seeded releases of a plan on counts: for each the sum of squared errors, the count missed,
    hits and rows.
    """

    plan: Plan
    counts: np.ndarray
    k: int = K
    seed: int = 2022
    found: np.ndarray = field(default_factory=lambda: np.empty((0, 4)))

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        # Not in the order of the counts: of equal noisy counts the first in label order is shown.
        labels = [f"{place:06d}" for place in self._rng.permutation(len(self.counts))]
        whole = self.counts.astype(int)
        self._histogram = Histogram(
            labels, whole, sensitivity=self.plan.sensitivity, domain=self.plan.domain
        )
        self._truth = dict(zip(labels, whole.tolist(), strict=True))
        self._best = set(self._histogram.labels[self._histogram.top_rows(self.k)].tolist())
        self._top = int(np.sort(whole)[::-1][: self.k].sum())

    def run(self, trials: int) -> None:
        """This many releases in all."""
        more = [self._once() for _ in range(trials - len(self.found))]
        self.found = np.concatenate([self.found, np.array(more).reshape(-1, 4)])

    def _once(self) -> tuple[float, float, int, int]:
        release = self.plan.release(self._histogram, self._rng)
        shown = np.array([self._truth[label] for label in release.labels], dtype=np.float64)
        squares = float(((release.counts - shown) ** 2).sum()) if len(shown) else 0.0
        return (
            squares,
            self._top - shown.sum(),
            len(self._best.intersection(release.labels)),
            len(shown),
        )

    @property
    def error(self) -> float:
        """Root mean square error of the counts shown."""
        squares, _, _, rows = self.found.sum(axis=0)
        return math.sqrt(squares / max(rows, 1))

    @property
    def loss(self) -> float:
        """What the planner minimises when it is given the shape."""
        return min(self.found[:, 3].mean(), 1.0) * self.error + self.found[:, 1].mean() / self.k

    @property
    def deviation(self) -> float:
        """The standard error of the loss, by the delta method."""
        squares, missed, _, rows = self.found.T
        error, sign = self.error, -1 if rows.mean() >= 1 else 1
        influence = (squares + sign * error**2 * rows) / max(
            2 * error * max(rows.mean(), 1), 1e-12
        ) + missed / self.k
        return float(influence.std() / math.sqrt(len(self.found)))

    def __str__(self) -> str:
        _, _, hits, rows = self.found.mean(axis=0)
        return (
            f"{self.loss:.{2 if self.loss < 1 else 1}f} ({hits / self.k:.2f}, "
            f"{self.error:.1f}, {rows:.0f})"
        )


def race(rows: list[Trials], shaped: Trials) -> tuple[float, float]:
    """Release until it is known how far ``shaped`` is above the best row: the ratio of losses less
    1, its error.
    """
    for trials in (*rows, shaped):
        trials.run(FIRST)
    while True:
        best = min(rows, key=lambda trials: trials.loss)
        ratio = shaped.loss / best.loss
        deviation = (
            0.0
            if shaped is best
            else math.hypot(shaped.deviation, ratio * best.deviation) / best.loss
        )
        told = abs(ratio - 1 - WITHIN) > 2 * deviation
        aim = (NEAR if told else CLOSE) * best.loss
        contenders = [
            trials
            for trials in {id(trials): trials for trials in (*rows, shaped)}.values()
            if trials is shaped
            or trials.loss - 2 * trials.deviation <= best.loss + 2 * best.deviation
        ]
        pending = [
            trials for trials in contenders if trials.deviation > aim and len(trials.found) < MOST
        ]
        if not pending:
            return ratio - 1, deviation
        for trials in pending:
            enough = len(trials.found) * (trials.deviation / aim) ** 2
            trials.run(
                int(min(max(1.2 * enough, 1.5 * len(trials.found)), 4 * len(trials.found), MOST))
            )


def plans(budget: Budget, sensitivity: Sensitivity, domain: str) -> Iterator[tuple[str, Plan]]:
    """Every design that is compared without its name where one user touches this many labels."""
    for design in (design for design in DESIGNS if design.domain == domain):
        if design.least_labels > (sensitivity.l0 or K):
            continue
        try:
            yield (
                design.name,
                plan_topk(K, budget, sensitivity=sensitivity, domain=domain, method=design.name),
            )
        except InvalidParameter:
            continue


@dataclass
class Column:
    """One shape: releases of every design and of the plan made for it, and how far that is above
    the best.
    """

    name: str
    rows: dict[str, Trials]
    shaped: Trials
    above: float = 0.0
    deviation: float = 0.0

    def __post_init__(self) -> None:
        self.above, self.deviation = race(list(self.rows.values()), self.shaped)

    def against(self, planned: str) -> Iterator[str]:
        """What it says against the plan made for the shape, and against the design planned without
        it.
        """
        if self.above > WITHIN:
            yield (
                f"{self.name}: {self.shaped.plan.design} {self.shaped} is {self.distance} "
                f"above the best"
            )
        mine = self.rows[planned]
        worst = max(
            (trials for trials in self.rows.values() if trials is not mine),
            key=lambda trials: trials.loss,
        )
        if mine.loss > worst.loss + 2 * math.hypot(mine.deviation, worst.deviation):
            yield f"{self.name}: what was planned without it is the worst, {mine}"

    @property
    def distance(self) -> str:
        """How far above the best, in words."""
        return (
            f"{100 * self.above:+.1f} ± {100 * self.deviation:.1f}%"
            if self.deviation
            else "the same"
        )


def section(budget: Budget, l0: int | None, domain: str) -> tuple[str, list[str], list[float]]:
    """One table, what it says against the planner, and how far plans made for the shapes are above
    the best rows.
    """
    asked: dict[str, Any] = {"budget": budget, "sensitivity": Sensitivity(l0=l0), "domain": domain}
    default, named, columns = (
        plan_topk(K, **asked),
        dict(plans(budget, Sensitivity(l0=l0), domain)),
        [],
    )
    for name, counts in SHAPES.items():
        rows = {design: Trials(plan, counts) for design, plan in named.items()}
        made = plan_topk(K, **asked, like=counts)
        same = (trials for trials in rows.values() if trials.plan.mechanisms == made.mechanisms)
        columns.append(Column(name, rows, next(same, Trials(made, counts))))
    touched = "any number of labels" if l0 is None else f"at most {l0} label{'s' * (l0 > 1)}"
    text = (
        f"\n## {domain.capitalize()} labels, {touched} a user, ε = {budget.epsilon:g}, δ = "
        f"{budget.delta:g}\n\n"
    )
    text += _row("design", SHAPES) + "|---" * (len(SHAPES) + 1) + "|\n"
    for name in named:
        mark = " (planned)" if name == default.design else ""
        text += _row(f"{name}{mark}", (column.rows[name] for column in columns))
    if domain == "private" and len(default.mechanisms) > 1:
        plan = plan_topk(K, **asked, method=default.design, selection_share="best")
        text += _row(
            f'{default.design}, selection_share="best"',
            (_released(plan, c) for c in SHAPES.values()),
        )
    text += _row("**planned for the shape**", (f"**{column.shaped}**" for column in columns))
    text += _row("above the best row", (column.distance for column in columns))
    where = f"{domain}, Δ = {l0}, ({budget.epsilon:g}, {budget.delta:g}), "
    complaints = [where + each for column in columns for each in column.against(default.design)]
    return text, complaints, [column.above for column in columns]


def _released(plan: Plan, counts: np.ndarray) -> Trials:
    trials = Trials(plan, counts)
    trials.run(5 * FIRST)
    return trials


def _row(first: str, cells: Iterable[object]) -> str:
    return f"| {first} | " + " | ".join(map(str, cells)) + " |\n"


FITTED = {
    "Laplace": "Gumbel, then Laplace counts",
    "centred": "Gumbel, then centred Gaussian counts",
}


def fits(trials: int) -> tuple[str, list[str]]:
    """The table of errors before and after the fit, and where the fit is worse than none."""
    text = (
        "\n## Counts before and after the fit, public labels, any number of labels a user, δ "
        "= 1e-06\n\n"
    )
    text += "Root mean square errors: *plain / published fit / shrunk fit (its own estimate)*.\n\n"
    text += _row("noise, k, ε", SHAPES) + "|---" * (len(SHAPES) + 1) + "|\n"
    complaints = []
    for k, epsilon in ((25, 0.5), (25, 1.0), (100, 1.0), (100, 4.0)):
        for noise, design in FITTED.items():
            plan = plan_topk(k, Budget(epsilon, 1e-6), domain="public", method=design)
            cells = [fitted(plan, counts.astype(int), trials) for counts in SHAPES.values()]
            for name, (plain, _, shrunk, _) in zip(SHAPES, cells, strict=True):
                if shrunk > 1.01 * plain:
                    complaints.append(
                        f"{noise}, {k}, {epsilon}, {name}: fitted {shrunk:.1f}, plain {plain:.1f}"
                    )
            row = (
                f"{plain:.1f} / {published:.1f} / {shrunk:.1f} ({guess:.1f})"
                for plain, published, shrunk, guess in cells
            )
            text += _row(f"{noise}, {k}, {epsilon:g}", row)
    return text, complaints


def fitted(plan: Plan, counts: np.ndarray, trials: int) -> np.ndarray:
    """Root mean square errors: plain, published fit, shrunk fit, and the estimate of the last."""
    selection, counting = plan.mechanisms
    histogram = Histogram(None, counts, sensitivity=plan.sensitivity)
    rng, squares, published = np.random.default_rng(2022), [], replace(counting, shrink=False)
    for _ in range(trials):
        chosen = selection.release(histogram, rng)
        truth = counts[list(chosen.labels)]
        release = counting.release(histogram, rng, ranking=chosen)
        values = (
            release.measured,
            published.fit(release.measured, plan.sensitivity),
            release.counts,
        )
        errors = [((value - truth) ** 2).mean() for value in values]
        squares.append([*errors, counting.error(release.measured, plan.sensitivity) ** 2])
    root: np.ndarray = np.sqrt(np.mean(squares, axis=0))
    return root


def main() -> int:
    """Write all tables; the number of complaints."""
    cells = [
        (budget, l0, domain)
        for domain, l0, budget in product(("private", "public"), (1, 5, None), BUDGETS)
        if domain == "public" or budget.delta
    ]
    tables, complaints, above = "", [], []
    with ProcessPoolExecutor(max_workers=2) as pool:
        made = [pool.submit(section, *cell) for cell in cells]
        last = pool.submit(fits, FITS)
        for cell, future in zip(cells, made, strict=True):
            part, against, far = future.result()
            print(*cell, *against, sep="\n  ", flush=True)
            tables, complaints, above = tables + part, complaints + against, above + far
        part, against = last.result()
        print("fits", *against, sep="\n  ", flush=True)
    text = INTRODUCTION.format(k=K, first=FIRST, near=NEAR, close=CLOSE, within=WITHIN)
    inside = sum(far <= WITHIN for far in above)
    text += (
        f"\nPlanned for the shape: {inside} of {len(above)} cells are within {WITHIN:.0%} "
        f"of their best row; "
    )
    text += f"the farthest is {100 * max(above):+.1f}%, the mean {100 * np.mean(above):+.1f}%.\n"
    PAGE.write_text(text + tables + part, encoding="utf-8")
    return len(complaints + against)


if __name__ == "__main__":
    sys.exit(main())
