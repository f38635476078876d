"""Ways to find labels of an unknown domain, at the same budget on the same real tables: weights
here, and what is published.

    python -m benchmarks.finding [NAME...]    # a table of docs/notes/field.md

Labels found, and the share of all counts that is on no label found, with the standard deviation
over draws, at (1, 1e-6). Every way has the same Gaussian budget, its own cap of 100 labels (counts
and coins: 10) and continuous noise; what is published is written anew from the papers, with the
parameters they name, not their authors' code:

    weights     isqrt(100² // d) for each of d labels (weighted Gaussian: Gopi et al. 2020,
                Dick-Joseph-Raman 2026)
    counts      1 for each of 10 labels, Gaussian noise over a threshold
                (Wilkins-Kifer-Zhang-Karrer 2024)
    coins       PartitionSelection, cap of 10 (Harrison-Manurangsi 2026)
    policy      policy Gaussian (Gopi et al. 2020): users in random order fill labels up to a
                cut-off, α = 3
    sips        DP-SIPS (Swanberg et al. 2023): three rounds of weights, a third as much for each
                round before the last
    mad         in the manner of MAD (Chen et al. 2025): what a popular label has above its cut-off
                goes to other labels
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from benchmarks.tables import REPORT, table as real_table
from dptopk import PartitionSelection, Sensitivity
from dptopk.accounting.gaussian.pair import gaussian_epsilon, gaussian_mu

DELTA = 1e-6
MU = float(gaussian_mu(epsilon=1.0, delta=DELTA / 2))
DRAWS, CAP, COINS = 12, 100, 10
# The ways that look at a table under the narrower cap.
NARROW = ("counts", "coins")
Values = np.ndarray[Any, Any]


class Table:
    """The pairs under a cap, as arrays sorted by user."""

    def __init__(self, pairs: pd.DataFrame, cap: int, rng: np.random.Generator) -> None:
        self.cap = cap
        place = pd.Series(rng.random(len(pairs)), index=pairs.index).groupby(pairs["user"]).rank()
        kept = pairs[place <= cap].sort_values("user")
        codes, self.items = pd.factorize(kept["item"])
        self.code, self.user = codes, pd.factorize(kept["user"])[0]
        self.degree = np.bincount(self.user)[self.user]
        self.true = pairs["item"].value_counts()

    def sums(self, weight: Values, of: Values | None = None) -> Values:
        """The sum of weights of each label."""
        code = self.code if of is None else self.code[of]
        return np.bincount(code, weight, minlength=len(self.items))


def threshold(scale: float, delta: float, cap: int, weight: Callable[[Values], Values]) -> float:
    """The least T that none of d own labels passes but with probability delta, for every d."""
    d = np.arange(1, cap + 1)
    own = weight(d)
    return float(np.max(own - scale * norm.ppf(-np.expm1(np.log1p(-delta) / d))))


def root(d: Values) -> Values:
    """1/√d."""
    return d**-0.5


def passed(
    sums: Values, scale: float, cut: float, rng: np.random.Generator
) -> tuple[Values, Values]:
    """The labels whose noisy sums are above the cut, and these sums."""
    noisy = sums + rng.normal(0, scale, len(sums))
    found = np.flatnonzero((noisy > cut) & (sums > 0))
    return found, noisy[found]


def by_weights(
    table: Table, mu: float, delta: float, rng: np.random.Generator
) -> tuple[Values, Values]:
    sums = table.sums(np.floor(100 * root(table.degree) + 1e-9) / 100)
    return passed(sums, 1 / mu, threshold(1 / mu, delta, CAP, root), rng)


def by_counts(
    table: Table, mu: float, delta: float, rng: np.random.Generator
) -> tuple[Values, Values]:
    scale = COINS**0.5 / mu
    cut = threshold(scale, delta, COINS, np.ones_like)
    return passed(table.sums(np.ones(len(table.code))), scale, cut, rng)


def by_coins(
    table: Table, mu: float, delta: float, rng: np.random.Generator
) -> tuple[Values, Values]:
    chances = _chances(round(float(gaussian_epsilon(mu, delta=1.8 * delta)), 3), 1.8 * delta)
    counts = table.sums(np.ones(len(table.code))).astype(int)
    found = np.flatnonzero(rng.random(len(counts)) < chances[np.minimum(counts, len(chances) - 1)])
    return found, rng.random(len(found))


def _chances(epsilon: float, delta: float) -> Values:
    return PartitionSelection(epsilon=epsilon, delta=delta).chances(Sensitivity(l0=COINS)).shown


def by_policy(
    table: Table, mu: float, delta: float, rng: np.random.Generator
) -> tuple[Values, Values]:
    scale = 1 / mu
    cut = threshold(scale, delta, CAP, root)
    full, sums = cut + 3 * scale, np.zeros(len(table.items))
    ends = np.flatnonzero(np.diff(np.append(table.user, -1)))
    own = np.split(table.code, ends[:-1] + 1)
    for place in rng.permutation(len(own)):
        gap = np.maximum(full - sums[own[place]], 0)
        length = np.sqrt((gap**2).sum())
        if length:
            sums[own[place]] += gap * min(1 / length, 1)
    return passed(sums, scale, cut, rng)


def by_sips(
    table: Table, mu: float, delta: float, rng: np.random.Generator
) -> tuple[Values, Values]:
    parts = np.array([1 / 9, 1 / 3, 1.0]) / (13 / 9)
    left, labels, values = np.ones(len(table.code), dtype=bool), [], []
    for part in parts:
        there = np.flatnonzero(left)
        if not len(there):
            break
        degree = np.bincount(table.user[there], minlength=table.user.max() + 1)[table.user[there]]
        scale = 1 / (mu * part**0.5)
        cut = threshold(scale, delta * part, CAP, root)
        found, noisy = passed(table.sums(root(degree), there), scale, cut, rng)
        labels.append(found)
        values.append(noisy)
        left &= ~np.isin(table.code, found)
    return np.concatenate(labels), np.concatenate(values)


def by_mad(
    table: Table, mu: float, delta: float, rng: np.random.Generator
) -> tuple[Values, Values]:
    scale = 1 / mu
    cut = threshold(scale, delta, CAP, root)
    each, full = 1.0 / table.degree, cut + 2 * scale
    sums = table.sums(each)
    excess = np.maximum(sums - full, 0) / np.maximum(sums, 1e-12)
    spare = np.bincount(table.user, each * excess[table.code])[table.user]
    routed = np.minimum(sums, full) + table.sums(spare / np.minimum(table.degree, CAP))
    return passed(routed + table.sums(root(table.degree) - each), scale, cut, rng)


Find = Callable[[Table, float, float, np.random.Generator], tuple[Values, Values]]
WAYS: dict[str, Find] = {
    "weights": by_weights,
    "counts": by_counts,
    "coins": by_coins,
    "policy": by_policy,
    "sips": by_sips,
    "mad": by_mad,
}


def main(names: Sequence[str]) -> None:
    """Print a line for each table and way: labels found, and the mass that is on no label found."""
    rng = np.random.default_rng(17)
    for name in names:
        pairs = real_table(name)
        wide, narrow = Table(pairs, CAP, rng), Table(pairs, COINS, rng)
        for way, find in WAYS.items():
            table = narrow if way in NARROW else wide
            true = table.true.reindex(table.items).to_numpy(dtype=float)
            found = [find(table, MU, DELTA / 2, rng)[0] for _ in range(DRAWS)]
            missed = [1 - true[labels].sum() / table.true.sum() for labels in found]
            number = [len(labels) for labels in found]
            spread = f"{np.mean(number):.0f} ± {np.std(number):.1f}"
            mass = f"{np.mean(missed):.2%} ± {np.std(missed):.2%}"
            print(f"| {name} | {way} | {spread} | {mass} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(REPORT))
