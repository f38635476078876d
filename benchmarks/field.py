"""The default beside published mechanisms on real tables, at equal (ε, δ): the table of
docs/notes/field.md.

    make measure WHAT=field              # all tables of REPORT and all ranks; an hour
    python -m benchmarks.field NAME...   # some tables

Events: private labels, users with any number of labels, at (1, 1e-6). Every peer gets what it
leaves open chosen in hindsight, on the data: its cap, or its shares of the budget. The default is
released. OpenDP's own code is released too. What is published as a way to find labels
(benchmarks.finding) is followed by k selections with Gumbel noise and the noise with the least
deviation on their counts, in floats.

Public labels: users with any number of them, at ε = 1 without a δ, on the counts of the same
tables: whole draws with the noise of the K-norm mechanism, OpenDP's selections with Laplace noise,
and the sparse vector with gap, whose threshold is half way between the true counts of rank k and
k + 1.

The loss of an answer: the root mean square error of its counts and, per row, the count of the true
top k that it misses.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks import finding
from benchmarks.caps import BUDGET, both, by_profile
from benchmarks.tables import REPORT, table
from dptopk import (
    Box,
    Budget,
    CanonicalTopK,
    JointTopK,
    OneShotTopK,
    RoutedTopK,
    Sensitivity,
    plan_topk,
)
from dptopk.accounting.gaussian.pair import gaussian_mu
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.planning.shape import Shape
from dptopk.planning.ways import FINDING_DELTA, RANGE_OF_MU, Counting, Way, deviation

RANKS = (10, 25, 100)
# Releases of the default and of OpenDP; draws by which a peer's options are chosen, and anew.
ANSWERS, SCREEN, ANEW, SIMULATED = 16, 6, 24, 512
OPENDP_CAPS = (1, 2, 5, 10, 20, 60)
# Of what is found and selected first: shares of μ², and the part of them for the selections.
SHARES, SELECTING = (0.04, 0.1, 0.2, 0.4, 0.6), 0.35
FIND_DELTA = FINDING_DELTA["weights"] * BUDGET.delta
WHOLE = float(gaussian_mu(epsilon=BUDGET.epsilon, delta=BUDGET.delta - FIND_DELTA))
LEAST_ERROR = 1e-9  # what is less comes from rounding
# From how many times the loss of the best peer a cell is lost.
LOST = 1.05
PUBLIC_RANKS, PUBLIC_COUNTS = (10, 25), 2000
Values = finding.Values
OneDraw = Callable[[np.random.Generator], tuple[Values, Values]]


@dataclass(frozen=True)
class Seen:
    """The loss of some answers, and its standard error (jackknife)."""

    loss: float
    error: float

    @classmethod
    def of(cls, squares: Sequence[Values], missed: Sequence[float]) -> Seen:
        """From the squared errors of the counts that each answer shows, and what it misses."""
        total = np.array([one.sum() for one in squares])
        rows = np.array([len(one) for one in squares])
        lacking = np.asarray(missed)
        whole = _loss(total.sum(), rows.sum(), lacking.mean())
        number = len(total)
        without = [
            _loss(
                total.sum() - total[each],
                rows.sum() - rows[each],
                (lacking.sum() - lacking[each]) / (number - 1),
            )
            for each in range(number)
        ]
        spread = math.sqrt((number - 1) * np.var(without))
        return cls(whole, spread)

    def __str__(self) -> str:
        return f"{self.loss:.3g} ± {self.error if self.error > LEAST_ERROR else 0:.2g}"


def _loss(squares: float, rows: int, missed: float) -> float:
    return math.sqrt(squares / max(rows, 1)) + missed


def seen(draw: OneDraw, true: Values, k: int, draws: int, seed: int = 5) -> Seen:
    """What a number of answers lose: each the true counts of its labels, and the counts shown."""
    rng = np.random.default_rng(seed)
    top = np.sort(true)[::-1][:k].sum()
    squares, missed = [], []
    for _ in range(draws):
        there, counts = draw(rng)
        squares.append((counts - there) ** 2)
        missed.append(max(top - there.sum(), 0) / k)
    return Seen.of(squares, missed)


# Events


def default(pairs: pd.DataFrame, k: int, rng: np.random.Generator) -> OneDraw:
    """Releases of what ``Session.from_events`` takes where nothing is stated."""
    plan = by_profile(k)
    histogram = both(pairs, 100, rng, weights=True)

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        answer = plan.release(histogram, rng)
        there = histogram.count_of(list(answer.labels))
        return np.asarray(there, dtype=float), np.asarray(answer.counts, dtype=float)

    return draw


def opendp(pairs: pd.DataFrame, k: int, rng: np.random.Generator) -> Iterator[tuple[str, OneDraw]]:
    """The k largest of OpenDP's noisy counts over a threshold, under every cap."""
    true = pairs["item"].value_counts()
    place = pd.Series(rng.random(len(pairs)), index=pairs.index).groupby(pairs["user"]).rank()
    for cap in OPENDP_CAPS:
        counts = pairs["item"][place <= cap].value_counts()
        for name, release in thresholds(cap).items():
            yield f"OpenDP {name}, cap {cap}", _largest(release, counts, true, k)


def _largest(
    release: Callable[[dict[int, float]], dict[int, float]],
    counts: pd.Series[int],
    true: pd.Series[int],
    k: int,
) -> OneDraw:
    data = {int(label): float(count) for label, count in counts.items()}

    def draw(_: np.random.Generator) -> tuple[Values, Values]:
        noisy = pd.Series(release(data), dtype=float).nlargest(k)
        return true.loc[noisy.index].to_numpy(dtype=float), noisy.to_numpy()

    return draw


def thresholds(cap: int) -> dict[str, Callable[[dict[int, float]], dict[int, float]]]:
    """OpenDP's noise over a threshold, scaled by its own maps to (1, 1e-6)."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T=int), dp.atom_domain(T=float, nan=False))
    near = dp.absolute_distance(T=float)

    def laplace(threshold: float) -> dp.Measurement:
        space = domain, dp.l01inf_distance(near)
        scale = cap / BUDGET.epsilon * (1 + 1e-9)
        return dp.m.make_laplace_threshold(*space, scale=scale, threshold=threshold)

    def gaussian(scale: float, threshold: float) -> dp.Measurement:
        space = domain, dp.l02inf_distance(near)
        noise = dp.m.make_gaussian_threshold(*space, scale=scale, threshold=threshold)
        return dp.c.make_zCDP_to_approxDP(noise)

    moved = (cap, math.sqrt(cap), 1.0)
    half = BUDGET.delta / 2
    far = 1e4 * cap
    scale = _least(lambda s: gaussian(s, far).map(moved)[0].epsilon(half) <= BUDGET.epsilon)
    above = _least(lambda t: gaussian(scale, t).map(moved)[1] <= half)
    flat = (cap, float(cap), 1.0)
    over = _least(lambda t: laplace(t).map(flat)[1] <= BUDGET.delta)
    return {"Laplace threshold": laplace(over), "Gaussian threshold": gaussian(scale, above)}


def _least(fits: Callable[[float], bool]) -> float:
    """The least number that fits, to a thousandth and from above."""
    low, high = 1.0, 2.0
    while not fits(high):
        low, high = high, 2 * high
    while high / low > 1 + 1e-3:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


@dataclass
class Found:
    """True counts of the labels that a way finds for a share of μ²; drawn once for all ranks."""

    data: finding.Table
    find: finding.Find
    mu: float
    drawn: list[Values]

    def number(self, which: int, rng: np.random.Generator) -> Values:
        """Return those of one draw."""
        while len(self.drawn) <= which:
            labels, _ = self.find(self.data, self.mu, FIND_DELTA, rng)
            true = self.data.true.reindex(self.data.items[labels])
            self.drawn.append(true.to_numpy(dtype=float))
        return self.drawn[which]


def ways(pairs: pd.DataFrame, rng: np.random.Generator) -> dict[tuple[str, float], Found]:
    """What is published as a way to find labels, for each share."""
    wide = finding.Table(pairs, finding.CAP, rng)
    narrow = finding.Table(pairs, finding.COINS, rng)
    tables = {name: narrow if name in finding.NARROW else wide for name in finding.WAYS}
    return {
        (name, share): Found(tables[name], find, WHOLE * math.sqrt(share * (1 - SELECTING)), [])
        for name, find in finding.WAYS.items()
        for share in SHARES
    }


def then_counted(found: dict[tuple[str, float], Found], k: int) -> Iterator[tuple[str, OneDraw]]:
    """Each way, then k selections and counts without a cap."""
    families: tuple[Counting, ...] = ("box", "gaussian")
    for (name, share), labels in found.items():
        cap = labels.data.cap
        noise = min(
            deviation(Way("weights", share, SELECTING, family, cap), k, BUDGET, WHOLE)
            for family in families
        )
        scale = math.sqrt(k) / (RANGE_OF_MU * WHOLE * math.sqrt(share * SELECTING))
        yield f"{name}, {share:g}", _in_floats(labels, k, scale, noise)


def _in_floats(found: Found, k: int, scale: float, noise: float) -> OneDraw:
    number = itertools.count()

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        counts = found.number(next(number), rng)
        order = counts + rng.gumbel(0, scale, len(counts))
        there = counts[np.argsort(-order)[:k]]
        return there, there + rng.normal(0, noise, len(there))

    return draw


def events(name: str) -> Iterator[str]:
    """A row for each rank: the default and the best of each peer's options."""
    rng = np.random.default_rng(23)
    pairs = table(name)
    true = pairs["item"].value_counts().to_numpy(dtype=float)
    found = ways(pairs, rng)
    for k in RANKS:
        ours = seen(default(pairs, k, rng), true, k, ANSWERS)
        peers: dict[str, list[tuple[float, str, OneDraw]]] = {}
        if _here("opendp"):
            peers |= _screened(opendp(pairs, k, rng), true, k)
        peers |= _screened(then_counted(found, k), true, k)
        again = {}
        for family, options in peers.items():
            _, option, draw = min(options, key=lambda one: one[0])
            draws = ANSWERS if family.startswith("OpenDP") else ANEW
            again[family] = (option, seen(draw, true, k, draws, seed=29))
        yield _row(f"{name}; {k}", ours, again)


def _screened(
    options: Iterator[tuple[str, OneDraw]], true: Values, k: int
) -> dict[str, list[tuple[float, str, OneDraw]]]:
    """The loss of a few draws of each option, by the peer."""
    found: dict[str, list[tuple[float, str, OneDraw]]] = {}
    for option, draw in options:
        peer, _, _ = option.rpartition(",")
        found.setdefault(peer, []).append((seen(draw, true, k, SCREEN).loss, option, draw))
    return found


def _here(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _row(cell: str, ours: Seen, peers: dict[str, tuple[str, Seen]]) -> str:
    """The default, the best peer, the factor between them, and all peers."""
    best, (option, found) = min(peers.items(), key=lambda one: one[1][1].loss)
    factor = ours.loss / max(found.loss, 1e-9)
    error = factor * math.hypot(ours.error / ours.loss, found.error / max(found.loss, 1e-9))
    lost = (
        "" if factor <= LOST else "lost" if factor - 2 * error > 1 else "behind, within the noise"
    )
    others = "; ".join(f"{peer} {each}" for peer, (_, each) in peers.items() if peer != best)
    return (
        f"| {cell} | {ours} | {option}: {found} | {factor:.2f} ± {error:.2f} | {lost} | {others} |"
    )


# Public labels


def public(name: str) -> Iterator[str]:
    """A row for each rank: the default without a shape, and what is published."""
    counts = table(name)["item"].value_counts().to_numpy(dtype=float)[:PUBLIC_COUNTS]
    shape, sensitivity, half = Shape.of(counts), Sensitivity(), BUDGET.epsilon / 2

    def simulated(mechanisms: tuple[Mechanism, ...], k: int) -> Seen:
        outcome = shape.outcome(mechanisms, k, sensitivity, counted=True, draws=SIMULATED)
        return Seen(outcome.loss, outcome.deviation)

    for k in PUBLIC_RANKS:
        draws: dict[str, Mechanism] = {
            "canonical": CanonicalTopK(k=k, epsilon=half),
            "one-shot": OneShotTopK(k=k, epsilon=half),
            "JOINT": JointTopK(k=k, epsilon=half),
            "routed": RoutedTopK(k=k, epsilon=half),
        }
        box = Box(epsilon=half)
        peers = {peer: (peer, simulated((made, box), k)) for peer, made in draws.items()}
        vector = seen(_sparse_vector(counts, k, BUDGET.epsilon), counts, k, SIMULATED)
        peers["sparse vector with gap"] = "sparse vector with gap", vector
        if _here("opendp"):
            selections = seen(_opendp_selections(counts, k), counts, k, ANEW)
            peers["OpenDP's top k"] = "OpenDP's top k", selections
        plan = plan_topk(k, Budget(BUDGET.epsilon), domain="public")
        yield _row(f"{name}; {k}", simulated(plan.mechanisms, k), peers)


def _sparse_vector(counts: Values, k: int, epsilon: float) -> OneDraw:
    """The sparse vector with gap for half of ε, then the labels' counts for the other half.

    Monotone queries: the threshold gets 1 part in 1 + k^(2/3) (Lyu, Su and Li 2017); the gap is
    free (Ding, Wang, Zhang and Kifer 2019), and both counts are averaged by their variances. Labels
    come in random order.
    """
    threshold = counts[k - 1 : k + 1].mean()
    of_threshold = (1 + k ** (2 / 3)) / (epsilon / 2)
    of_query = k * of_threshold / k ** (2 / 3)
    of_count = k / (epsilon / 2)
    inverse = np.array([1 / (of_threshold**2 + of_query**2), 1 / of_count**2])
    weight = inverse / inverse.sum()

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        order = rng.permutation(len(counts))
        above = threshold + rng.laplace(0, of_threshold)
        gaps = counts[order] + rng.laplace(0, of_query, len(counts)) - above
        shown = np.flatnonzero(gaps >= 0)[:k]
        there = counts[order[shown]]
        measured = there + rng.laplace(0, of_count, len(shown))
        return there, weight[0] * (gaps[shown] + threshold) + weight[1] * measured

    return draw


def _opendp_selections(counts: Values, k: int) -> OneDraw:
    """OpenDP's top k for half of ε, then Laplace noise on the k counts for the other half."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    vectors = dp.vector_domain(dp.atom_domain(T=int))
    scale = k / (BUDGET.epsilon / 2)
    space = vectors, dp.linf_distance(T=int, monotonic=True), dp.max_divergence()
    select = dp.m.make_noisy_top_k(*space, k=k, scale=scale * (1 + 1e-9))
    data = counts.astype(int).tolist()

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        there = counts[select(data)]
        return there, there + rng.laplace(0, scale, k)

    return draw


def main(names: Sequence[str]) -> None:
    """Print both tables."""
    header = "ours | the best peer | ours / best | | the other peers |\n|---|---|---|---|---|---|"
    print(f"| events, (1, 1e-6): table; k | {header}")
    for name in names:
        for row in events(name):
            print(row, flush=True)
    print(f"\n| public labels, ε = 1: table; k | {header}")
    for name in names:
        for row in public(name):
            print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(REPORT))
