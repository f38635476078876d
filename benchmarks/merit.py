"""Whether the planner's choice has the smallest merit of all that fit, on a grid: `make measure
WHAT=merit`.
"""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ProcessPoolExecutor

from dptopk import Budget, Plan, Sensitivity, plan_topk
from dptopk.planning.mixture import references

EPSILONS = (0.2, 1.0, 4.0)
L0 = (1, 2, 3, 8, 40, None)
K = (5, 25, 100)
CELLS = [
    (Budget(epsilon, 1e-6), Sensitivity(l0=l0), k, domain, counts)
    for epsilon, l0, k, domain, counts in itertools.product(
        EPSILONS, L0, K, ("private", "public"), ("auto", None)
    )
]
# Plans are within this of their budget, and so of their merit.
WITHIN = 3e-3


def merit(plan: Plan) -> float:
    """The merit that plan_topk states."""
    shapes = references(plan.k, max(10 * plan.k, 100) + 2)
    return shapes.outcome(plan.mechanisms, plan.k, plan.sensitivity, plan.counted).loss


def smaller_merits(
    budget: Budget, sensitivity: Sensitivity, k: int, domain: str, counts: str | None
) -> list[str]:
    """The designs that have a smaller merit, each made by itself at the same budget, than the plan
    that was made.
    """
    plan = plan_topk(k, budget, sensitivity=sensitivity, domain=domain, counts=counts)
    table = plan.alternatives
    smaller = table[table["merit"] < merit(plan) * (1 - WITHIN) - WITHIN]
    return [
        f"{row.design}: {row.merit:.4g} against {merit(plan):.4g}" for row in smaller.itertuples()
    ]


def main() -> int:
    """Print every cell; the number of those in which another design is better."""
    wrong = 0
    with ProcessPoolExecutor(max_workers=2) as pool:
        for cell, found in zip(
            CELLS, pool.map(smaller_merits, *zip(*CELLS, strict=True)), strict=True
        ):
            budget, sensitivity, k, domain, counts = cell
            wrong += bool(found)
            shown = (
                budget.epsilon,
                sensitivity.l0,
                k,
                domain,
                "labels only" if counts is None else "counts",
            )
            print(*shown, *(found or ["the smallest"]), sep="; ", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
