"""Whether the planner's choice has the smallest merit: every design that fits, on a grid; run by ``make merit``."""

from __future__ import annotations

import itertools
import sys

from dptopk import Budget, Plan, Sensitivity, plan_topk

EPSILONS = (0.2, 1.0, 4.0)
L0 = (1, 2, 3, 8, 40, None)
K = (5, 25, 100)
# Plans are within this of their budget, and so of their merit.
WITHIN = 3e-3


def merit(plan: Plan) -> float:
    """The merit that plan_topk states, from the plan's public numbers."""
    return (plan.noise_std or 0.0) + (plan.appears_at(0.5) or 0)


def smaller_merits(budget: Budget, sensitivity: Sensitivity, k: int, domain: str) -> list[str]:
    """The designs that have a smaller merit, each made by itself at the same budget, than the plan that was made."""
    plan = plan_topk(k, budget, sensitivity=sensitivity, domain=domain)
    table = plan.alternatives
    smaller = table[table["merit"] < merit(plan) * (1 - WITHIN)]
    return [f"{row.design}: {row.merit:.4g} against {merit(plan):.4g}" for row in smaller.itertuples()]


def main() -> int:
    """Print every cell; the number of those in which another design is better."""
    wrong = 0
    for epsilon, l0, k, domain in itertools.product(EPSILONS, L0, K, ("private", "public")):
        found = smaller_merits(Budget(epsilon, 1e-6), Sensitivity(l0=l0), k, domain)
        wrong += bool(found)
        print(epsilon, l0, k, domain, *(found or ["the smallest"]), sep="; ", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
