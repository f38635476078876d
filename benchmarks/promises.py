"""What a plan made for a shape promises, against 1,000 releases of it on that shape: `make measure
WHAT=promises`.

64 cells: the first 1,000 ranks of the shapes of regret.py, private and public labels, Δ of 1, 5, 20
and any number. A promise is held where predicted and measured loss are within two standard errors
of both. Ten minutes.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from regret import COUNTS
from utility import Trials

from dptopk import Budget, Sensitivity, plan_topk

BUDGET, K, RELEASES, RANKS = Budget(1, 1e-6), 10, 1000, 1000


def promise(
    name: str, domain: str, l0: int | None, seed: int = 0, releases: int = RELEASES
) -> tuple[str, float, float, float]:
    """The design, the loss that it promises, the loss measured, and the standard error of their
    difference.
    """
    counts = np.rint(np.asarray(COUNTS[name], dtype=float)[:RANKS])
    plan = plan_topk(K, BUDGET, sensitivity=Sensitivity(l0=l0), domain=domain, like=counts)
    trials = Trials(plan, counts, K, seed)
    trials.run(releases)
    return (
        plan.design,
        plan.outcome.loss,
        trials.loss,
        math.hypot(trials.deviation, plan.outcome.deviation),
    )


def main() -> None:
    """Print the promises that are not held, and the share of those that are."""
    cells = list(itertools.product(COUNTS, ("private", "public"), (1, 5, 20, None)))
    held = 0
    for seed, cell in enumerate(cells):
        design, told, measured, error = promise(*cell, seed)
        held += abs(told - measured) <= 2 * error
        if abs(told - measured) > 2 * error:
            print(
                f"{cell} {design}: {told:.3f} told, {measured:.3f} measured, error {error:.3f}",
                flush=True,
            )
    print(f"{held} of {len(cells)} held")


if __name__ == "__main__":
    main()
