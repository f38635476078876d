"""How much less the weighted error is than under an even split of the same total: the table of
docs/budgets.md.

python benchmarks/budget_division.py
"""

from __future__ import annotations

import time

from dptopk.planning import BudgetItem, divide

TOTAL = (2.0, 1e-6)
DAILY = BudgetItem(name="daily top 10", k=10, labels_per_user=5, times=30)
MONTHLY = BudgetItem(name="monthly top 50", k=50, labels_per_user=5)
TOTALS = BudgetItem(name="eight totals", kind="counts", k=8, labels_per_user=2)
REGIONS = BudgetItem(
    name="top 10 of each of 4 regions", k=10, labels_per_user=5, segments=4, segments_per_user=1
)


def weighed(**weights: float) -> tuple[BudgetItem, ...]:
    named = {"daily": DAILY, "monthly": MONTHLY, "totals": TOTALS, "regions": REGIONS}
    return tuple(
        BudgetItem(
            **{name: getattr(query, name) for name in query.__dataclass_fields__}
            | {"weight": weights[key]}
        )
        for key, query in named.items()
        if key in weights
    )


PLANS = {
    "daily 1, monthly 1, totals 1": weighed(daily=1, monthly=1, totals=1),
    "daily 1, monthly 3, totals 5": weighed(daily=1, monthly=3, totals=5),
    "daily 1, monthly 10, totals 30": weighed(daily=1, monthly=10, totals=30),
    "daily 30, monthly 1, totals 1": weighed(daily=30, monthly=1, totals=1),
    "monthly 1, totals 30, regions 1": weighed(monthly=1, totals=30, regions=1),
    "daily 1, totals 100": weighed(daily=1, totals=100),
    "daily 1, monthly 1, totals 1, regions 1": weighed(daily=1, monthly=1, totals=1, regions=1),
}


def main() -> None:
    print(
        "| weights | errors, divided | errors, even split | weighted error falls by | ε | seconds |"
    )
    print("|---|---|---|---|---|---|")
    for name, queries in PLANS.items():
        start = time.process_time()
        made = divide(queries, *TOTAL)
        seconds = time.process_time() - start
        ours = " / ".join(f"{part.error:g}" for part in made.parts)
        even = " / ".join(f"{part.even_error:g}" for part in made.parts)
        less = 1 - made.weighted_error / made.even_error
        print(
            f"| {name} | {ours} | {even} | {less:.1%} | {made.epsilon:.4f} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
