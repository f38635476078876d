"""Number of selections that a budget affords under the published bounds and under the optimum."""

from __future__ import annotations

import numpy as np

from dptopk.accounting.calibration import queries_affordable
from dptopk.costs import BoundedRange, Budget, Charge
from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, table_of

TITLE = "How many selections a budget affords"
SOURCE = "dptopk"
SETTING = "Selections BR(0.1), adaptive; as many as stay within (ε, 1e-6) under each bound."

EPSILON = 0.1
DELTA = 1e-6
BUDGETS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
# Bound -> its label in the figure.
BOUNDS = {
    "basic": "basic",
    "optimal_dp": "as ε-DP (KOV)",
    "opt_kl": "OptKL (DDR)",
    "setwise_zcdp": "ε²/8-zCDP (CR)",
    "mgf": "MGF (DDR)",
    "renyi": "Rényi curves",
    "best": "optimum",
}


def row_of_numbers(budget: float) -> dict[str, object]:
    """Return a row with the largest number of BR(0.1) selections that a budget affords under each
    bound.

    Args:
        budget: the ε of the budget, whose δ is 1e-6.
    """
    query = Charge({BoundedRange(EPSILON): 1})
    total = Budget(budget, DELTA)
    numbers = {bound: queries_affordable(query, total, bound=bound) for bound in BOUNDS}
    return {"query": str(query)} | numbers | {"budget": budget}


def compute(settings: RunSettings) -> Table:
    """Return the numbers of BR(0.1) selections, a row for each budget, a column for each bound."""
    budgets = (1.0, 2.0) if settings.quick else BUDGETS
    return table_of(row_of_numbers, budgets, settings)


def plot(data: Table) -> Figure:
    """Plot the numbers on the left, and their ratio to OptKL on the right."""
    figure, (left, right) = style.figure(1, 2, width=10, height=4)
    budget = data["budget"]
    style.lines(left, [(label, budget, data[name]) for name, label in BOUNDS.items()])
    left.set(xlabel="ε of the budget", ylabel="selections answered", xscale="log", yscale="log")
    left.set(title="BR(0.1) selections within (ε, 1e-6)")
    ratios = {label: data[name] / data["opt_kl"] for name, label in BOUNDS.items()}
    style.lines(right, [(label, budget, ratio) for label, ratio in ratios.items()])
    right.set(xlabel="ε of the budget", ylabel="relative to OptKL", xscale="log", ylim=(0, None))
    for axes in (left, right):
        axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"], minor=False)
        axes.minorticks_off()
    style.legend_beside(right)
    return figure


def compare(data: Table) -> list[Comparison]:
    """Report how many more selections the optimum affords than other bounds, and the numbers within
    ε = 1.
    """
    lines = []
    for name in ("opt_kl", "setwise_zcdp", "mgf", "renyi"):
        gain = data["best"] / data[name] - 1
        gains = f"{gain.min():.0%} to {gain.max():.0%}"
        lines.append(Comparison(f"more than by {BOUNDS[name]}", "", gains))
    distance = np.abs(data["budget"] - 1.0)
    nearest = data.iloc[distance.argmin()]
    numbers = [f"{label} {nearest[name]:.0f}" for name, label in BOUNDS.items()]
    return [*lines, Comparison(f"within ε = {nearest['budget']:g}", "", ", ".join(numbers))]
