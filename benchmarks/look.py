"""A private look before the plan, against plans without one, on the shapes of regret.py: `make
measure WHAT=look`.

A row a cell: the mean loss after LOOKS seeded looks over that of the usual plan; then wrong stated
shapes, each shape planned as if it were another one, with a look and without. Five minutes.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
from regret import COUNTS, L0, K

from dptopk import Budget, Histogram, Plan, Sensitivity, plan_topk
from dptopk.planning.choose import worth_a_look
from dptopk.planning.probe import Look, counts_at_ranks
from dptopk.planning.shape import Shape

BUDGETS = (Budget(1, 1e-6), Budget(2, 1e-9))
LOOKS, DRAWS = 4, 256
WRONG = (
    ("steep", "slow"),
    ("slow", "steep"),
    ("macbeth", "zipf"),
    ("zipf", "low"),
    ("cliff", "zipf"),
    ("low", "steep"),
)


def histogram(name: str, l0: int | None) -> Histogram:
    """A shape as counts of private labels."""
    counts = np.rint(np.asarray(COUNTS[name])).astype(int)
    counts = counts[counts > 0]
    return Histogram(
        [f"w{rank}" for rank in range(len(counts))], counts, sensitivity=Sensitivity(l0=l0)
    )


def loss(name: str, plan: Plan) -> float:
    """What the plan loses on the shape."""
    return (
        Shape.of(COUNTS[name])
        .outcome(plan.mechanisms, plan.k, plan.sensitivity, plan.counted, DRAWS)
        .loss
    )


def after_looks(name: str, l0: int | None, k: int, budget: Budget, like: Any = None) -> list[float]:
    """The losses of plans after seeded looks."""
    data, look = histogram(name, l0), Look(k, budget)
    planned = partial(plan_topk, k, sensitivity=data.sensitivity, like=like)
    seeds = [np.random.default_rng([*name.encode(), l0 or 0, k, number]) for number in range(LOOKS)]
    seen = [look.mechanism.release(counts_at_ranks(data, k), seed) for seed in seeds]
    usual = planned(budget=look.rest, like=None)
    return [loss(name, look.plan(one, data.sensitivity, planned, usual)) for one in seen]


def factors(budget: Budget) -> dict[tuple[str, int | None, int], float]:
    """The loss after a look over that without one, in every cell; 1 where none is taken."""
    found = {}
    for l0, k in itertools.product(L0, K):
        plan = plan_topk(k, budget, sensitivity=Sensitivity(l0=l0))
        for name in COUNTS:
            found[name, l0, k] = 1.0
            if worth_a_look(k, budget, Sensitivity(l0=l0), "private", "auto"):
                found[name, l0, k] = float(np.mean(after_looks(name, l0, k, budget))) / loss(
                    name, plan
                )
    return found


def _mean(values: list[float]) -> str:
    return f"geometric mean {math.exp(np.log(values).mean()):.3f}, worst {max(values):.2f}"


def main() -> None:
    """Print the factors."""
    for budget in BUDGETS:
        found = factors(budget)
        looked = [factor for factor in found.values() if factor != 1.0]
        print(
            f"{budget}: {len(found)} cells: {_mean(list(found.values()))}; {len(looked)} with a "
            f"look: {_mean(looked)}"
        )
        print(
            *(f"  {cell}: {factor:.2f}" for cell, factor in found.items() if factor > 1.1),
            sep="\n",
            flush=True,
        )
    checked, unchecked = [], []
    for (truth, stated), l0 in itertools.product(WRONG, (20, None)):
        asked = {"sensitivity": Sensitivity(l0=l0)}
        usual = loss(truth, plan_topk(25, BUDGETS[0], **asked))
        unchecked.append(
            loss(truth, plan_topk(25, BUDGETS[0], like=COUNTS[stated], **asked)) / usual
        )
        checked.append(
            float(np.mean(after_looks(truth, l0, 25, BUDGETS[0], COUNTS[stated]))) / usual
        )
        print(
            f"{truth} planned as {stated}, l0={l0}: {unchecked[-1]:.2f}, after a look "
            f"{checked[-1]:.2f}",
            flush=True,
        )
    print(f"wrong shapes: {_mean(unchecked)}; checked by a look: {_mean(checked)}")


if __name__ == "__main__":
    main()
