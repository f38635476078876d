"""Utility at equal privacy: every design of the planner on six shapes of data; writes docs/utility-table.md.

Run as ``python benchmarks/utility.py [trials]``, or ``make utility``. Seeded, so that it repeats. It ends with an error
where a plan made for a shape loses more than 5% against the best design, where one made without it is the worst of all
(both beyond two standard errors of the trials), or where a fit is worse than none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from dptopk import Budget, Histogram, InvalidParameter, Plan, Sensitivity, plan_topk
from dptopk.datasets import macbeth
from dptopk.planning.designs import DESIGNS

K = 25
PAGE = Path(__file__).resolve().parents[1] / "docs" / "utility-table.md"
RANKS = np.arange(1, 5001)
SHAPES = {
    "Macbeth": macbeth().counts,
    "10⁴/r": np.rint(1e4 / RANKS),
    "10⁵/r^1.5": np.rint(1e5 / RANKS**1.5),
    "flat": np.full(1000, 300),
    "steps": np.repeat([2000, 1000, 500, 20], [10, 30, 200, 2000]),
    "0.93^r": np.rint(5000 * 0.93 ** np.arange(200)),
}
BUDGETS = (Budget(0.5, 1e-6), Budget(1.0, 1e-6), Budget(4.0, 1e-6), Budget(1.0, 0.0))

INTRODUCTION = """# The utility table

Top {k}, {trials} seeded trials a cell, made by `make utility`. A cell is *loss (recall, error, rows)*, in counts: error
is the root mean square error of the counts that are shown, and loss adds to it the count that the answer misses, per
row: what the true top {k} hold more than the labels that are shown, an empty row counting as 0. "planned" is what
`plan_topk` takes without knowing the shape; the last row is `plan_topk(..., like=shape)`, which also divides the budget
by the shape. [Utility](utility.md) says what to take from it.
"""


@dataclass(frozen=True)
class Measured:
    """Averages over the trials: root mean square error of shown counts, count missed per row, recall, rows.

    ``deviation`` is the standard error of the loss.
    """

    error: float
    missed: float
    recall: float
    rows: float
    deviation: float

    @property
    def loss(self) -> float:
        """What the planner minimises when it is given the shape."""
        return self.error + self.missed

    def __str__(self) -> str:
        return f"{self.loss:.1f} ({self.recall:.2f}, {self.error:.1f}, {self.rows:.0f})"


def measure(plan: Plan, counts: np.ndarray, trials: int) -> Measured:
    """Seeded releases of a plan on counts."""
    labels = [f"{rank:06d}" for rank in range(len(counts))]
    histogram = Histogram(labels, counts.astype(int), sensitivity=plan.sensitivity, domain=plan.domain)
    rng, top, found = np.random.default_rng(2022), np.sort(counts)[::-1][:K], []
    truth = dict(zip(labels, counts.tolist(), strict=True))
    best = set(histogram.labels[histogram.top_rows(K)].tolist())
    for _ in range(trials):
        release = plan.release(histogram, rng)
        shown = np.array([truth[label] for label in release.labels])
        squares = ((release.counts - shown) ** 2).sum() if len(shown) else 0.0
        found.append((squares, top.sum() - shown.sum(), len(best.intersection(release.labels)), len(shown)))
    each = np.array(found)
    losses = np.sqrt(each[:, 0] / np.maximum(each[:, 3], 1)) + each[:, 1] / K
    squares, missed, hits, rows = each.sum(axis=0)
    deviation = losses.std() / np.sqrt(trials)
    return Measured(np.sqrt(squares / max(rows, 1)), missed / trials / K, hits / trials / K, rows / trials, deviation)


def plans(budget: Budget, sensitivity: Sensitivity, domain: str) -> Iterator[tuple[str, Plan]]:
    """Every design that fits."""
    for design in DESIGNS:
        try:
            yield design.name, plan_topk(K, budget, sensitivity=sensitivity, domain=domain, method=design.name)
        except InvalidParameter:
            continue


def section(budget: Budget, l0: int | None, domain: str, trials: int) -> tuple[str, list[str]]:
    """One table, and what it says against the planner."""
    sensitivity = Sensitivity(l0=l0)
    default = plan_topk(K, budget, sensitivity=sensitivity, domain=domain)
    rows = {
        name: [measure(plan, counts, trials) for counts in SHAPES.values()]
        for name, plan in plans(budget, sensitivity, domain)
    }
    made = [plan_topk(K, budget, sensitivity=sensitivity, domain=domain, like=counts) for counts in SHAPES.values()]
    shaped = [measure(plan, counts, trials) for plan, counts in zip(made, SHAPES.values(), strict=True)]
    losses = np.array([[cell.loss for cell in row] for row in rows.values()])
    complaints = []
    where = f"{domain}, Δ = {l0}, ({budget.epsilon:g}, {budget.delta:g})"
    for column, name in enumerate(SHAPES):
        best = min((row[column] for row in rows.values()), key=lambda cell: cell.loss)
        chance = 2 * np.hypot(best.deviation, shaped[column].deviation)
        if shaped[column].loss > 1.05 * best.loss + chance:
            complaints.append(f"{where}, {name}: planned {shaped[column]}, best {losses[:, column].min():.1f}")
        mine = rows[default.design][column]
        worst = max((row[column] for other, row in rows.items() if other != default.design), key=lambda cell: cell.loss)
        if mine.loss > worst.loss + 2 * np.hypot(mine.deviation, worst.deviation):
            complaints.append(f"{where}, {name}: what was planned without it is the worst, {mine}")
    touched = "any number of labels" if l0 is None else f"at most {l0} label{'s' * (l0 > 1)}"
    text = f"\n## {domain.capitalize()} labels, {touched} a user, ε = {budget.epsilon:g}, δ = {budget.delta:g}\n\n"
    text += "| design | " + " | ".join(SHAPES) + " |\n" + "|---" * (len(SHAPES) + 1) + "|\n"
    for name, row in rows.items():
        mark = " (planned)" if name == default.design else ""
        text += f"| {name}{mark} | " + " | ".join(map(str, row)) + " |\n"
    text += "| **planned for the shape** | " + " | ".join(f"**{cell}**" for cell in shaped) + " |\n"
    return text, complaints


FITTED = {
    "Gaussian": "Gumbel, then Gaussian counts",
    "Laplace": "Gumbel, then Laplace counts",
    "centred": "Gumbel, then centred Gaussian counts",
}


def fits(trials: int) -> tuple[str, list[str]]:
    """The table of errors before and after the fit, and where the fit is worse than none."""
    text = "\n## Counts before and after the fit, public labels, any number of labels a user, δ = 1e-06\n\n"
    text += "Root mean square errors: *plain / published fit / shrunk fit (its own estimate)*.\n\n"
    text += "| noise, k, ε | " + " | ".join(SHAPES) + " |\n" + "|---" * (len(SHAPES) + 1) + "|\n"
    complaints = []
    for k, epsilon in ((25, 0.5), (25, 1.0), (100, 1.0), (100, 4.0)):
        for noise, design in FITTED.items():
            plan = plan_topk(k, Budget(epsilon, 1e-6), domain="public", method=design)
            cells = [fitted(plan, counts.astype(int), trials) for counts in SHAPES.values()]
            for name, (plain, _, shrunk, _) in zip(SHAPES, cells, strict=True):
                if shrunk > 1.01 * plain:
                    complaints.append(f"{noise}, {k}, {epsilon}, {name}: fitted {shrunk:.1f}, plain {plain:.1f}")
            row = (
                f"{plain:.1f} / {published:.1f} / {shrunk:.1f} ({guess:.1f})"
                for plain, published, shrunk, guess in cells
            )
            text += f"| {noise}, {k}, {epsilon:g} | " + " | ".join(row) + " |\n"
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
        values = (release.measured, published.fit(release.measured, plan.sensitivity), release.counts)
        errors = [((value - truth) ** 2).mean() for value in values]
        squares.append([*errors, counting.error(release.measured, plan.sensitivity) ** 2])
    root: np.ndarray = np.sqrt(np.mean(squares, axis=0))
    return root


def main(trials: int) -> int:
    """Write all tables; the number of complaints."""
    text = INTRODUCTION.format(k=K, trials=trials)
    complaints = []
    cells = [
        (budget, l0, domain, trials)
        for domain, l0, budget in product(("private", "public"), (1, 5, None), BUDGETS)
        if domain == "public" or budget.delta
    ]
    with ProcessPoolExecutor(max_workers=2) as pool:
        made = [pool.submit(section, *cell) for cell in cells]
        made.append(pool.submit(fits, 5 * trials))
        for cell, future in zip([*cells, ("fits",)], made, strict=True):
            part, against = future.result()
            print(*cell[:3], *against, sep="\n  ", flush=True)
            text, complaints = text + part, complaints + against
    PAGE.write_text(text, encoding="utf-8")
    return len(complaints)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
