"""The regret of a choice of design that sees no data: every design that fits, on counts of eight
shapes.

For each request (l0, ε, δ, k; private labels with counts) every design and division of δ is scaled
to the budget and played on every shape. Regret: the loss of what a rule chooses over that of the
best on that shape. A minute.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dptopk import Budget, Sensitivity
from dptopk.datasets import macbeth
from dptopk.planning.designs import DESIGNS, THRESHOLD_SHARES, Design
from dptopk.planning.request import Request
from dptopk.planning.scaling import Candidate, at_budget, scale_coarse
from dptopk.planning.shape import Shape

Row = dict[str, Any]
BUDGETS = (Budget(1, 1e-6), Budget(2, 1e-9))
L0 = (3, 5, 10, 20, 50, None)
K = (10, 25, 100)
RANKS = np.arange(1, 5001)
COUNTS = {
    "macbeth": np.asarray(macbeth().counts),
    "zipf": 3e4 / RANKS,
    "steep": 1e5 / RANKS**1.5,
    "slow": 2e3 / RANKS**0.5,
    "geometric": 5e3 * 0.97**RANKS,
    "cliff": np.where(RANKS <= 40, 800, 20),
    "low": np.maximum(60 / RANKS**0.3, 1),
    "steps": 4e3 / np.ceil(RANKS / 20),
}
RULES: dict[str, Callable[[list[Row], np.ndarray], int]] = {
    "sum of noise and threshold": lambda rows, _: _least(
        rows, lambda row: row["noise"] + row["appears"]
    ),
    "product": lambda rows, _: _least(rows, lambda row: row["noise"] * max(row["appears"], 1)),
    "shapes of reference, as planned": lambda rows, _: _least(rows, lambda row: row["merit"]),
    "the least geometric mean possible": lambda _, regrets: int(
        np.log(regrets).mean(axis=1).argmin()
    ),
    "the least worst possible": lambda _, regrets: int(regrets.max(axis=1).argmin()),
}


def _least(rows: list[Row], key: Callable[[Row], float]) -> int:
    return min(range(len(rows)), key=lambda row: key(rows[row]))


def cell(budget: Budget, l0: int | None, k: int) -> list[Row]:
    """A row a design and division: its loss on every shape, and what rules go by."""
    asked = Request(
        k=k,
        epsilon=budget.epsilon,
        delta=budget.delta,
        accuracy=None,
        sensitivity=Sensitivity(l0=l0),
        domain="private",
        d_bar=max(10 * k, 100),
        whole=True,
        counts="auto",
        method="auto",
        selection_share=None,
        fit=True,
        shape=None,
    )
    shapes, rows = {name: Shape.of(counts) for name, counts in COUNTS.items()}, []
    fitting = [
        design for design in DESIGNS if not design.misfit(replace(asked, method=design.name))
    ]
    for guess in itertools.chain(*(_every_division(asked, design) for design in fitting)):
        found = scale_coarse(guess)
        mechanisms, planned = found.mechanisms, guess.split in guess.design.splits(asked)
        played = {
            name: max(shape.outcome(mechanisms, k, asked.sensitivity, True).loss, 1e-3)
            for name, shape in shapes.items()
        }
        appears, merit = (
            found.mechanisms[0].appears_at(asked.sensitivity, probability=0.5) or 0,
            found.loss if planned else math.inf,
        )
        rows.append(played | {"noise": found.noise_std, "appears": appears, "merit": merit})
    return rows


def _every_division(asked: Request, design: Design) -> list[Candidate]:
    """Those that are planned, and other shares of δ for the threshold."""
    usual = design.splits(asked)
    more = [
        replace(split, threshold=share)
        for split in usual
        for share in THRESHOLD_SHARES
        if 0 < split.threshold < 1
    ]
    return [at_budget(asked, design, split) for split in dict.fromkeys((*usual, *more))]


def main() -> None:
    """Print the regret of every rule."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in RULES}
    for l0, k, budget in itertools.product(L0, K, BUDGETS):
        rows = cell(budget, l0, k)
        losses = np.array([[row[name] for name in COUNTS] for row in rows])
        regrets = losses / losses.min(axis=0)
        for name, rule in RULES.items():
            found[name].append(regrets[rule(rows, regrets)])
    for name, regrets in found.items():
        print(
            f"{name}: geometric mean {math.exp(np.log(regrets).mean()):.3f}, worst "
            f"{np.max(regrets):.2f}"
        )


if __name__ == "__main__":
    main()
