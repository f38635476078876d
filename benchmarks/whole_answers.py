"""Whole answers beside the published mechanisms: writes docs/notes/whole-answers.md (`make measure
WHAT=whole_answers`).

The published mechanisms are written anew from their papers, in floats, to be compared with; they
share no code with dptopk's samplers. All run on the same counts, with the same ε, and errors are
medians over the runs.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dptopk import (
    BoundedRange,
    Budget,
    CanonicalTopK,
    Charge,
    Histogram,
    JointTopK,
    KnownGumbel,
    OneShotTopK,
    RoutedTopK,
    calibrate,
)
from dptopk.datasets import macbeth
from dptopk.mechanisms import StabilityTopK

EPSILON, DELTA = 1.0, 1e-6
SIZES = (10, 25, 50, 100, 200)
LABELS = 10_000
ROOT = Path(__file__).parents[1]
Draw = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]


def shapes() -> dict[str, np.ndarray]:
    """Counts in falling order by name; generated, but for Macbeth."""
    rng, rank = np.random.default_rng(1), np.arange(1, LABELS + 1)
    made = {
        "wide gaps": np.concatenate(
            [2500 * np.arange(400, 0, -1), rng.integers(0, 100, LABELS - 400)]
        ),
        "flat": rng.integers(5000, 5500, LABELS),
        "Zipf 0.8": 1e5 / rank**0.8,
        "Zipf 1.2": 1e5 / rank**1.2,
        "Zipf 2": 1e5 / rank**2.0,
        "log-normal": 100 * np.exp(2 * rng.standard_normal(LABELS)),
        "ties": np.repeat(100 * np.arange(100, 0, -1), LABELS // 100),
        "Macbeth": macbeth().counts,
    }
    return {
        name: np.sort(np.asarray(counts).astype(np.int64))[::-1].copy()
        for name, counts in made.items()
    }


# --- the published mechanisms; counts fall, so that ranks are indices


@functools.lru_cache(maxsize=4)
def _joint_table(key: bytes, k: int) -> tuple[np.ndarray, np.ndarray]:
    """All d·k gaps in order, and ln of the number of sequences within each."""
    counts = np.frombuffer(key, dtype=np.int64)
    gap = np.maximum(
        counts[:k, None] - counts[None, :], 0
    )  # of the i-th place and the j-th label, j >= i
    place, label = np.indices(gap.shape)
    inside = label > place
    more = np.log((label - place + 1)[inside] / (label - place)[inside])
    order = np.argsort(gap[inside], kind="stable")
    gaps, logs = gap[inside][order], np.cumsum(more[order])
    last = np.append(gaps[1:] > gaps[:-1], True)
    if gaps[last][0] > 0:
        return np.append(0, gaps[last]), np.append(0.0, logs[last])
    return gaps[last], logs[last]


def joint(counts: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Gillenwater et al. 2022: P ∝ e^{-ε gap/2}, gap = max_i (c_(i) - c_{s_i})."""
    gaps, logs = _joint_table(counts.tobytes(), k)
    width = np.append(np.diff(gaps), np.inf)
    scores = logs - EPSILON / 2 * gaps + np.log(-np.expm1(-EPSILON / 2 * width))
    slack = gaps[np.argmax(scores + rng.gumbel(size=scores.size))]
    chosen: list[int] = []
    for best in counts[:k]:
        end = int(np.searchsorted(-counts, -(best - slack), side="right"))
        pick = int(rng.integers(end))
        while pick in chosen:
            pick = int(rng.integers(end))
        chosen.append(pick)
    return np.array(chosen)


def joint_pruned(
    counts: np.ndarray, k: int, rng: np.random.Generator, failure: float = 2.0**-10
) -> np.ndarray:
    """Wu-Zhang 2024: the same law as ``joint`` for errors below a cut, in O(d + k²/ε ln d); counts
    in any order.

    The error (gap) of a sequence and the first place that has it are drawn together, then a
    sequence uniformly. Errors of ``last`` or more, of probability at most ``failure``, count as
    one.
    """
    threshold = np.partition(counts, counts.size - k)[counts.size - k]
    last = math.ceil(
        2
        / EPSILON
        * (np.log(np.arange(counts.size - k + 1, counts.size + 1)).sum() - math.log(failure))
    )
    near = np.flatnonzero(counts > threshold - last)
    near = near[np.argsort(-counts[near])]
    levels, place = -counts[near], np.arange(k)
    within = np.full((last + 2, k), counts.size)  # labels with an error below e at each place
    within[0] = place
    within[1:-1] = np.searchsorted(levels, levels[:k] + np.arange(last)[:, None], side="right")
    logs = np.log(np.maximum(within - place, 1e-300))
    before = np.cumsum(logs[:-1], axis=1) - logs[:-1]
    after = np.cumsum(logs[1:, ::-1], axis=1)[:, ::-1] - logs[1:]
    at = np.log(np.maximum(np.diff(within, axis=0), 1e-300))
    before[0] = np.where(place == 0, 0.0, -np.inf)  # an error of 0 is there at the first place
    scores = before + at + after - EPSILON / 2 * np.arange(last + 1)[:, None]
    error, first = np.unravel_index(np.argmax(scores + rng.gumbel(size=scores.shape)), scores.shape)
    far = np.flatnonzero(counts <= threshold - last) if error == last else near[:0]
    moved: dict[int, int] = {}  # a shuffle that stores what it touched
    chosen = []
    for i in place.tolist():
        low = within[error, i] if i == first and error else i
        pick = int(rng.integers(low, within[error + (i >= first), i]))
        chosen.append(moved.get(pick, pick))
        moved[pick] = moved.get(i, i)
    return np.array([near[pick] if pick < near.size else far[pick - near.size] for pick in chosen])


@functools.lru_cache(maxsize=4)
def _canonical_table(key: bytes, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Loss, ln of the number of sets, head and tail of every kind of set: the first h ranks, not
    the next, worst t.
    """
    from scipy.special import gammaln

    counts = np.frombuffer(key, dtype=np.int64)
    head, tail = np.meshgrid(
        np.arange(k), np.arange(k, counts.size), indexing="ij"
    )  # 0-based worst rank
    free, need = tail - head - 1, k - head - 1  # ranks head + 1 .. tail - 1
    logs = gammaln(free + 1) - gammaln(need + 1) - gammaln(free - need + 1)
    loss = np.maximum(counts[head] - counts[tail], 0)
    best = (np.zeros(1, np.int64), np.zeros(1), np.array([k]), np.array([k - 1]))
    parts = (loss, logs, head, tail)
    return tuple(np.append(one, part.ravel()) for one, part in zip(best, parts, strict=True))  # type: ignore[return-value]


def canonical(counts: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Shekelyan-Loukides 2022: exponential noise of rate ε/2 on the loss of every set, the largest
    kept.

    As permute-and-flip: every set passes a coin of chance e^{-ε loss/2}, and one of those that pass
    is taken.
    """
    loss, logs, head, tail = _canonical_table(counts.tobytes(), k)
    mean = logs - EPSILON / 2 * loss
    passing = np.where(loss == 0, np.exp(np.minimum(logs, 700)), 0.0)
    few = (loss > 0) & (mean < math.log(1e6))
    passing[few] = rng.poisson(np.exp(mean[few]))
    logged = np.where(few | ((loss == 0) & (logs < 700)), np.log(np.maximum(passing, 1e-300)), mean)
    logged[passing == 0] = np.where(few | (loss == 0), -np.inf, mean)[passing == 0]
    kind = int(np.argmax(logged + rng.gumbel(size=logged.size)))
    h, t = int(head[kind]), int(tail[kind])
    if h == k:
        return np.arange(k)
    return np.concatenate(
        [np.arange(h), h + 1 + rng.choice(t - h - 1, k - h - 1, replace=False), [t]]
    )


def permute_and_flip(counts: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """McKenna-Sheldon 2020, k times with ε/k each: exponential noise drawn anew for every
    selection.
    """
    left = np.ones(counts.size, dtype=bool)
    for _ in range(k):
        noisy = np.where(left, counts + rng.exponential(k / EPSILON, counts.size), -np.inf)
        left[np.argmax(noisy)] = False
    chosen: np.ndarray = np.flatnonzero(~left)
    return chosen


def gumbel_peel(counts: np.ndarray, k: int, rng: np.random.Generator, each: float) -> np.ndarray:
    """Gumbel noise once: k exponential mechanisms of range ``each``."""
    order: np.ndarray = np.argsort(-(counts + rng.gumbel(scale=1 / each, size=counts.size)))[:k]
    return order


def cdp_each(k: int) -> float:
    """ε of each selection by ε²/8-zCDP and ρ + 2 sqrt(ρ ln(1/δ)) (Cesar-Rogers 2021; Bun-Steinke
    2016).
    """
    log = math.log(1 / DELTA)
    rho = (math.sqrt(log + EPSILON) - math.sqrt(log)) ** 2
    return math.sqrt(8 * rho / k)


@functools.lru_cache(maxsize=8)
def composed_each(k: int) -> float:
    """ε of each selection by our best bound."""
    return calibrate(
        lambda each: Charge({BoundedRange(each): k}, adaptive=True), Budget(EPSILON, DELTA)
    )


def ours(make: Callable[[int], object]) -> Draw:
    """One of our mechanisms on a public domain."""

    def draw(counts: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
        release = _mechanism(make, k).release(_histogram(counts.tobytes()), rng)  # type: ignore[attr-defined]
        return np.array(release.labels)

    return draw


@functools.lru_cache(maxsize=64)
def _mechanism(make: Callable[[int], object], k: int) -> object:
    return make(k)


@functools.lru_cache(maxsize=2)
def _histogram(key: bytes) -> Histogram:
    return Histogram(None, np.frombuffer(key, dtype=np.int64))


PEERS_PURE: dict[str, Draw] = {
    "JOINT": joint,
    "canonical": canonical,
    "PF peel": permute_and_flip,
    "EM peel": lambda counts, k, rng: gumbel_peel(counts, k, rng, EPSILON / k),
}
PEERS_APPROX: dict[str, Draw] = {
    "CDP peel": lambda counts, k, rng: gumbel_peel(counts, k, rng, cdp_each(k))
}
OURS_PURE: dict[str, Draw] = {
    "`JointTopK`": ours(lambda k: JointTopK(k=k, epsilon=EPSILON)),
    "`CanonicalTopK`": ours(lambda k: CanonicalTopK(k=k, epsilon=EPSILON)),
    "`OneShotTopK`": ours(lambda k: OneShotTopK(k=k, epsilon=EPSILON)),
    "`RoutedTopK`": ours(lambda k: RoutedTopK(k=k, epsilon=EPSILON)),
    "`RoutedTopK`, ordered": ours(lambda k: RoutedTopK(k=k, epsilon=EPSILON, ordered=True)),
}
OURS_APPROX: dict[str, Draw] = {
    "`KnownGumbel`": ours(lambda k: KnownGumbel(k=k, epsilon=composed_each(k))),
    "`StabilityTopK`": ours(lambda k: StabilityTopK(k=k, epsilon=EPSILON, delta=DELTA)),
    "`RoutedTopK` δ": ours(lambda k: RoutedTopK(k=k, epsilon=EPSILON, delta=DELTA)),
    "`RoutedTopK` δ, ordered": ours(
        lambda k: RoutedTopK(k=k, epsilon=EPSILON, delta=DELTA, ordered=True)
    ),
}
SETS = {
    "canonical",
    "PF peel",
    "`CanonicalTopK`",
    "`StabilityTopK`",
    "`RoutedTopK`",
    "`RoutedTopK` δ",
}


def errors(counts: np.ndarray, k: int, chosen: np.ndarray) -> tuple[float, float, float]:
    """Set l1, ordered l∞ and recall (a label tied with the k-th counts as found)."""
    picked = counts[chosen]
    spread = float(np.abs(counts[:k] - np.sort(picked)[::-1]).sum())
    return spread, float(np.abs(counts[:k] - picked).max()), float((picked >= counts[k - 1]).mean())


def measure(runs: int) -> dict[tuple[str, int, str], tuple[float, float, float]]:
    """Medians of set l1 and ordered l∞, and mean recall, by shape, k and mechanism."""
    found = {}
    for shape, (name, counts) in enumerate(shapes().items()):
        for k in SIZES:
            for number, (mechanism, draw) in enumerate(
                (PEERS_PURE | OURS_PURE | PEERS_APPROX | OURS_APPROX).items()
            ):
                rng = np.random.default_rng([7, shape, k, number])  # each cell has luck of its own
                cells = np.array([errors(counts, k, draw(counts, k, rng)) for _ in range(runs)])
                found[name, k, mechanism] = (*np.median(cells[:, :2], axis=0), cells[:, 2].mean())
    return found


def table(
    found: dict[tuple[str, int, str], tuple[float, float, float]],
    column: int,
    mechanisms: list[str],
) -> str:
    """One error of some mechanisms, a row a cell; recall with three decimals."""
    show = (lambda x: f"{x:.3f}") if column == 2 else (lambda x: f"{x:.0f}")
    lines = [f"| counts | k | {' | '.join(mechanisms)} |", "|---|---|" + "---|" * len(mechanisms)]
    for name, k in dict.fromkeys((name, k) for name, k, _ in found):
        cells = [show(found[name, k, mechanism][column]) for mechanism in mechanisms]
        lines.append(f"| {name} | {k} | {' | '.join(cells)} |")
    return "\n".join(lines)


def missed(
    found: dict[tuple[str, int, str], tuple[float, float, float]],
    column: int,
    mine: str,
    all_: list[str],
) -> str:
    """Where ``mine`` is above 1.1 times the best of all plus k, or by recall more than 0.03 below
    the best.
    """
    bad, cells = [], 0
    for name, k in dict.fromkeys((name, k) for name, k, _ in found):
        values = {mechanism: found[name, k, mechanism][column] for mechanism in (*all_, mine)}
        cells += 1
        if column == 2:
            short = max(values.values()) - values[mine]
            if short > 0.03:
                bad.append(f"{name} {k} (-{short:.3f})")
        elif values[mine] > 1.1 * min(values.values()) + k:
            bad.append(f"{name} {k} ({values[mine]:.0f} for {min(values.values()):.0f})")
    return f"{mine}: {cells - len(bad)} of {cells} cells" + (
        f"; missed: {', '.join(bad)}" if bad else ""
    )


def times(runs: int = 5) -> str:
    """Processor time of a release with 10⁶ labels and k = 200."""
    rng = np.random.default_rng(3)
    rank = np.arange(1, 10**6 + 1)
    kinds = {
        "Zipf 1": rng.permutation((1e7 / rank).astype(np.int64)),
        "flat": rng.integers(900, 1000, 10**6),
        "wide gaps, long tail": rng.permutation(
            np.concatenate([1000 * np.arange(400, 0, -1), rng.integers(0, 50, 10**6 - 400)])
        ),
    }
    lines = ["| mechanism | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
    for cls in (JointTopK, CanonicalTopK, OneShotTopK, RoutedTopK):
        cells = []
        for counts in kinds.values():
            histogram = Histogram(None, counts)
            taken = []
            for _ in range(runs):
                start = time.process_time()
                release = cls(k=200, epsilon=1.0).release(histogram)
                taken.append(time.process_time() - start)
                if len(set(release.labels)) != 200:
                    raise AssertionError("a label was repeated")
            cells.append(f"{np.median(taken):.2f} s")
        lines.append(f"| `{cls.__name__}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def beside_pruned(runs: int = 5) -> str:
    """Processor time of a joint answer, ours and by ``joint_pruned``, medians."""
    rng = np.random.default_rng(5)
    lines = [
        "| counts | labels | k | `JointTopK` | pruned | pruned / `JointTopK` |",
        "|---|---|---|---|---|---|",
    ]
    for size in (10**5, 10**6):
        made = {
            "10⁶ / rank": rng.permutation((1e6 / np.arange(1, size + 1)).astype(np.int64)),
            "uniform in 0…999": rng.integers(0, 1000, size),
        }
        for name, counts in made.items():
            histogram = Histogram(None, counts)
            for k in (25, 200):
                mechanism = JointTopK(k=k, epsilon=EPSILON)
                draws = (
                    functools.partial(mechanism.release, histogram),
                    lambda k=k: joint_pruned(counts, k, rng),  # noqa: B023
                )
                mine, pruned = (_median_time(draw, runs) for draw in draws)
                cells = [
                    name,
                    f"{size:,}",
                    k,
                    f"{1e3 * mine:.1f} ms",
                    f"{1e3 * pruned:.1f} ms",
                    f"{pruned / mine:.2f}",
                ]
                lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _median_time(draw: Callable[[], object], runs: int) -> float:
    draw()  # not counted
    taken = []
    for _ in range(runs):
        start = time.process_time()
        draw()
        taken.append(time.process_time() - start)
    return float(np.median(taken))


TEXT = """# Whole answers, measured

This note supports the advice on `JointTopK`, `CanonicalTopK`, `OneShotTopK` and `RoutedTopK`: where one draw of the
whole answer is better than a peel, and where it is not.

Made by `make measure WHAT=whole_answers`: {runs} runs a cell, ε = 1, a public domain, one user moving any number of
counts by at most one. Generated counts have {labels} labels; Macbeth has its words. *Set l1*: the sorted true counts
of the answer against the k largest counts, summed. *Ordered l∞*: the largest shortfall of a place. Medians; recall
(labels no worse than the k-th) is a mean. The published mechanisms are written anew from their papers
(`benchmarks/whole_answers.py`): JOINT (Gillenwater et al. 2022), canonical (Shekelyan-Loukides 2022, exponential
noise), permute-and-flip and the exponential mechanism peeled with ε/k each, and a peel at (1, 10⁻⁶) composed by
ε²/8-zCDP. Proofs: [mechanisms](mechanisms.md), whole answers.

What to read in it: whole answers are perfect or nearly random, with little between. `RoutedTopK` gives up 1/16 of ε to
know on which side the data are; nobody tells it. Without a δ its choice has noise of 16 users. A cell is missed where
fewer than about 35 users separate the data from the transition (ties 50: 5 users; Macbeth 25: 14 users, on the other
side), since no choice that costs so little can be surer; and against `OneShotTopK` by itself, of which 1/16 of ε is
left out. With a δ the choice is of bounded range and takes 1 % of the peeling; sets that are exact because of one wide
gap at k (ties 100 and 200) are what `StabilityTopK` is for.

## Goals

At most 1.1 times the best mechanism's median plus k (for recall: at most 0.03 below the best), by the one mechanism
that chooses for itself.

δ = 0, against the published mechanisms (JOINT, canonical and both kinds of peeling):

* recall — {recall_published}
* set l1 — {l1_published}
* ordered l∞ — {linf_published}

δ = 0, against ours too:

* recall — {recall_pure}
* set l1 — {l1_pure}
* ordered l∞ — {linf_pure}

δ = 10⁻⁶, against all:

* recall — {recall_approx}
* set l1 — {l1_approx}
* ordered l∞ — {linf_approx}

The same goals without a choice, δ = 0:

* set l1 — {l1_canonical}
* set l1 — {l1_one_shot}

## Set l1, δ = 0

{table_l1_pure}

## Set l1, δ = 10⁻⁶

{table_l1_approx}

## Ordered l∞

{table_linf}

## Recall, δ = 0

{table_recall_pure}

## Recall, δ = 10⁻⁶

{table_recall_approx}

"""
TIMES = """## Time

Processor time of one release, 10⁶ labels in random order, k = 200; all labels of every answer are distinct.

{times}

Beside the sampler of Wu and Zhang (2024, arXiv 2411.09552) for the same answers, in O(d + k²/ε ln d), at ε = 1. It is
written anew with NumPy arrays and draws in floats from NumPy's generator; errors beyond a cut, which come up with
probability 2⁻¹⁰ at most, count as one. `JointTopK` draws exactly from the secure source and needs no cut; nearly all of
its time is one sort of all counts, where the pruned sampler sorts those above its cut.

{pruned}
"""


def page(runs: int) -> str:
    """The page."""
    found = measure(runs)
    pure, approx = [*PEERS_PURE, *OURS_PURE], [*PEERS_APPROX, *OURS_APPROX]
    ordered = [name for name in [*pure, *approx] if name not in SETS]
    pure_sets = [name for name in pure if name != "`RoutedTopK`, ordered"]
    approx_sets = [name for name in approx if name != "`RoutedTopK` δ, ordered"]
    pure_ordered = [name for name in pure if name not in SETS]
    return TEXT.format(
        runs=runs,
        labels=LABELS,
        recall_published=missed(found, 2, "`RoutedTopK`", [*PEERS_PURE]),
        l1_published=missed(found, 0, "`RoutedTopK`", [*PEERS_PURE]),
        linf_published=missed(found, 1, "`RoutedTopK`, ordered", ["JOINT", "EM peel"]),
        l1_pure=missed(found, 0, "`RoutedTopK`", pure_sets),
        linf_pure=missed(found, 1, "`RoutedTopK`, ordered", pure_ordered),
        recall_pure=missed(found, 2, "`RoutedTopK`", pure_sets),
        l1_approx=missed(found, 0, "`RoutedTopK` δ", [*pure_sets, *approx_sets]),
        linf_approx=missed(found, 1, "`RoutedTopK` δ, ordered", ordered),
        recall_approx=missed(found, 2, "`RoutedTopK` δ", [*pure_sets, *approx_sets]),
        l1_canonical=missed(found, 0, "`CanonicalTopK`", pure_sets),
        l1_one_shot=missed(found, 0, "`OneShotTopK`", pure_sets),
        table_l1_pure=table(found, 0, pure_sets),
        table_l1_approx=table(found, 0, approx_sets),
        table_linf=table(found, 1, ordered),
        table_recall_pure=table(found, 2, pure_sets),
        table_recall_approx=table(found, 2, approx_sets),
    )


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "notes" / "whole-answers.md")
    parser.add_argument(
        "--times", action="store_true", help="only the times, behind the tables that are there"
    )
    arguments = parser.parse_args()
    if arguments.times:
        tables = arguments.out.read_text(encoding="utf-8").partition("## Time")[0]
    else:
        tables = page(arguments.runs)
    arguments.out.write_text(
        tables + TIMES.format(times=times(), pruned=beside_pruned()), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
