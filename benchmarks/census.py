"""The privacy loss of the 2020 Census redistricting data (United States, persons), composed
exactly.

Run ``make measure WHAT=census`` (a few seconds): it writes docs/notes/census.md. The parameters
below are those of the published production code,
https://github.com/uscensusbureau/DAS_2020_Redistricting_Production_Code (commit 289ee46):
``source/configs/production/pl94/person_US.ini`` (shares of the geographic levels),
``person_default.ini`` (global scale), and ``source/programs/strategies/strategies.py``,
``ProductionCandidate20210527US_mult8_add02_dsepJune3`` (shares of the queries).
"""

from __future__ import annotations

import math
import time
from fractions import Fraction
from pathlib import Path

from dptopk.accounting.bounds import compose
from dptopk.costs import Charge, Cost, DiscreteGaussianDP

PAGE = Path(__file__).parent.parent / "docs" / "notes" / "census.md"
DELTA = 1e-10
GLOBAL_SCALE = Fraction(339, 542)
QUERIES = (
    "total, cenrace, hispanic, votingage, hhinstlevels, hhgq, hispanic × cenrace, votingage × "
    "cenrace, "
    "votingage × hispanic, votingage × hispanic × cenrace, detailed"
)


def shares(denominator: int, *numerators: int) -> list[Fraction]:
    return [Fraction(numerator, denominator) for numerator in numerators]


# Level: its share, and the shares of its queries in the order above; the nation has no query
# "total".
LEVELS: dict[str, tuple[Fraction, list[Fraction]]] = {
    "US": (
        Fraction(104, 4099),
        [*shares(4097, 52, 26, 26, 26, 26, 130, 130, 26), Fraction(26, 241), Fraction(189, 241)],
    ),
    "State": (
        Fraction(1440, 4099),
        [*shares(4097, 3773, 6, 6, 6, 6, 6, 12, 12, 6), Fraction(2, 241), Fraction(230, 4097)],
    ),
    "County": (Fraction(447, 4099), shares(4097, 3126, 10, 10, 10, 10, 10, 28, 28, 10, 101, 754)),
    "Tract": (Fraction(687, 4099), shares(4102, 1567, 8, 5, 5, 5, 5, 1933, 20, 5, 67, 482)),
    "Block group": (Fraction(1256, 4099), shares(4099, 1705, 3, 3, 3, 3, 3, 1055, 9, 3, 24, 1288)),
    "Block": (Fraction(165, 4099), shares(4097, 5, 9, 5, 5, 5, 5, 21, 21, 5, 71, 3945)),
}


def charge(levels: dict[str, tuple[Fraction, list[Fraction]]]) -> Charge:
    """Two discrete Gaussians a query: replacing a record moves two of its cells by one each; σ² =
    scale² / share.
    """
    costs: dict[Cost, int] = {}
    for level, queries in levels.values():
        for query in queries:
            sigma = math.sqrt(GLOBAL_SCALE**2 / (level * query)) * (
                1 - 1e-15
            )  # never more noise than there is
            cost = DiscreteGaussianDP(sigma, 1)
            costs[cost] = costs.get(cost, 0) + 2
    return Charge(costs, neighbours="replace_one")


def main() -> None:
    if sum(level for level, _ in LEVELS.values()) != 1 or any(
        sum(queries) != 1 for _, queries in LEVELS.values()
    ):
        raise SystemExit("the shares do not add up to 1")
    whole = charge(LEVELS)
    bs16, cks20 = (
        compose(whole, delta=DELTA, bound=bound).epsilon for bound in ("setwise_zcdp", "zcdp_tight")
    )
    start = time.process_time()
    found = compose(whole, delta=DELTA, rtol=1e-4, effort="thorough")
    seconds = time.process_time() - start
    rows = []
    for name, level in LEVELS.items():
        part = charge({name: level})
        tight = compose(part, delta=DELTA, bound="zcdp_tight").epsilon
        one = compose(part, delta=DELTA, rtol=1e-4, effort="thorough")
        rows.append(f"| {name} | {level[0]} | {tight:.4f} | {one.lower:.4f} | {one.epsilon:.4f} |")
    PAGE.write_text(
        f"""# A check from outside: the 2020 Census redistricting data

The United States Census Bureau published the 2020 redistricting data (P.L. 94-171) with discrete Gaussian noise and stated
its privacy loss through zCDP (Abowd et al., *The 2020 Census Disclosure Avoidance System TopDown Algorithm*, Harvard Data
Science Review, 2022). How much a tighter composition gives is an open question of the Bureau's that Su, Su and Wang take up
with f-DP (*The 2020 United States Decennial Census Is More Private Than You (Might) Think*, 2024, arXiv 2410.09296). The
parameters are public, in the Bureau's production code
([DAS_2020_Redistricting_Production_Code](https://github.com/uscensusbureau/DAS_2020_Redistricting_Production_Code), commit
289ee46), and everything this package needs is in them. This page is written by `make measure WHAT=census` (`benchmarks/census.py`).

## What is composed

Persons, United States without Puerto Rico: {sum(len(q) for _, q in LEVELS.values())} queries, on six geographic levels: {QUERIES}; the nation has no query "total". The variance of a query is σ² = (339/542)² / (share of its level × share of the
query); {min(c.scale for c in whole.costs):.3f} <= σ <= {max(c.scale for c in whole.costs):.1f}. Neighbours replace one record, so that two cells of each query move by one:
two discrete Gaussians a query, in all {whole.count} costs of {len(whole.costs)} kinds, and ρ = (542/339)² = {float(1 / GLOBAL_SCALE**2):.4f}. That is the worst
record; one that stays where it lives moves fewer. State totals are invariants: they, and all that is done after the noise
is added, cost nothing here, as in the Bureau's own accounting. Housing units and Puerto Rico are separate releases.

## The whole release at δ = 10⁻¹⁰

| accounting | ε |
|---|---|
| zCDP, conversion of BS16 | {bs16:.4f} |
| zCDP, conversion of CKS20 | {cks20:.4f} |
| product of the exact laws, certified: from below | {found.lower:.5f} |
| product of the exact laws, certified: from above | **{found.epsilon:.5f}** |

The last two took {seconds:.1f} processor seconds together. By Theorem A ([set-wise](setwise.md)) the value is exact for any order and
any adaptive choice among these queries: {100 * (1 - found.epsilon / cks20):.1f}% less than zCDP says.

## Each level alone, δ = 10⁻¹⁰

| level | share of ρ | zCDP, CKS20 | from below | from above |
|---|---|---|---|---|
"""
        + "\n".join(rows)
        + "\n",
        encoding="utf-8",
    )
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
