"""Ways to find labels of an unknown domain, at the same budget on the same tables: weights here,
and what is published.

    python -m benchmarks.finding    # the table of docs/notes/two-phases.md

Labels found, and the share of all counts that is on no label found; the loss of two phases with k
labels (as in benchmarks.caps), and the share of the true top k's counts that is missed; at (1,
1e-6). Every way has the same Gaussian budget, its own cap of 100 labels (coins: 10) and continuous
noise; what is published is written anew from the papers, with the parameters they name, not their
authors' code:

    weights     isqrt(100² // d) for each of d labels (weighted Gaussian: Gopi et al. 2020,
    Dick-Joseph-Raman 2026) counts      1 for each of 10 labels, Gaussian noise over a threshold
    (Wilkins-Kifer-Zhang-Karrer 2024) coins       PartitionSelection, cap of 10 (Harrison-Manurangsi
    2026) policy      policy Gaussian (Gopi et al. 2020): users in random order fill labels up to a
    cut-off, α = 3 sips        DP-SIPS (Swanberg et al. 2023): three rounds of weights, a third as
    much for each round before the last peel        weights, of which k are selected one by one (WGM
    + peel: 2603.14016), then counted mad         in the manner of MAD (Chen et al. 2025): what a
    popular label has above its cut-off goes to other labels
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from benchmarks.caps import worlds
from dptopk import PartitionSelection, Sensitivity
from dptopk.accounting.gaussian.pair import gaussian_epsilon, gaussian_mu

DELTA = 1e-6
MU = float(gaussian_mu(epsilon=1.0, delta=DELTA / 2))
DRAWS, CAP, COINS = 12, 100, 10
SHARES = {10: 0.15, 25: 0.3, 100: 0.5}
Values = np.ndarray[Any, Any]


class Table:
    """The pairs under a cap, as arrays sorted by user."""

    def __init__(self, pairs: pd.DataFrame, cap: int, rng: np.random.Generator) -> None:
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


WAYS = {
    "weights": by_weights,
    "peel": by_weights,
    "counts": by_counts,
    "coins": by_coins,
    "policy": by_policy,
    "sips": by_sips,
    "mad": by_mad,
}


def loss(
    table: Table, k: int, find: Any, rng: np.random.Generator, *, peel: bool = False
) -> tuple[float, float]:
    """Of two phases: the loss of a top k with counts, and the share of the true top k's counts that
    is missed.

    Of counting all that was found, and of counting the k labels with the largest noisy sums, what
    has the less loss; with ``peel`` instead k labels are selected one by one with Gumbel noise, for
    half of what is left, and counted.
    """
    mu, counting = (
        MU * part**0.5 for part in (SHARES[k], (1 - SHARES[k]) * (0.5 if peel else 1.0))
    )
    top, told = np.sort(table.true.to_numpy())[::-1][:k].sum(), []
    drawn = [find(table, mu, DELTA / 2, rng) for _ in range(DRAWS)]
    for most in (k,) if peel else (k, len(table.items)):
        squares, missed = [], 0.0
        for found, values in drawn:
            order = values
            if peel:  # ρ = k ε²/8 of k selections with Gumbel noise of scale 1/ε
                order = table.true.loc[table.items[found]].to_numpy() + rng.gumbel(
                    0, (k / 4) ** 0.5 / counting, len(found)
                )
            true = table.true.loc[table.items[found[np.argsort(-order)[:most]]]].to_numpy()
            noise = rng.normal(0, (len(true) ** 0.5 + 1) / 2 / counting, len(true))
            shown = np.argsort(-(true + noise))[:k]
            squares += (noise[shown] ** 2).tolist()
            missed += max(top - true[shown].sum(), 0) / k / DRAWS
        told.append(((np.sqrt(np.mean(squares)) if squares else 0.0) + missed, missed * k / top))
    return min(told)


def main() -> None:
    """Print a line for each world and way: labels found, and the mass missed, with all of it;
    losses, mass missed.
    """
    rng = np.random.default_rng(17)
    for name, pairs in worlds(4):
        wide, narrow = Table(pairs, CAP, rng), Table(pairs, COINS, rng)
        for way, find in WAYS.items():
            table = narrow if way in ("counts", "coins") else wide
            found = [find(table, MU, DELTA / 2, rng)[0] for _ in range(DRAWS)]
            mass = (
                np.mean([table.true.loc[table.items[labels]].sum() for labels in found])
                / table.true.sum()
            )
            told = [loss(table, k, find, rng, peel=way == "peel") for k in SHARES]
            numbers = f"{np.mean([len(labels) for labels in found]):.0f} | {1 - mass:.1%}"
            cells = (f"{lost:.3g}, {missed:.1%}" for lost, missed in told)
            print(f"| {name} | {way} | {numbers} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
