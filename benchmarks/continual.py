"""A top k every day: one mechanism for all days against an answer of its own for each day; writes
docs/notes/continual.md.

Data grow by the day: labels with Zipf's law whose places drift, so that the true top changes. All
designs have the same total (ε, δ) for one user-day. Errors are those of the totals shown; recall is
that of the true top k.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dptopk import (
    Budget,
    Charge,
    Histogram,
    KnownGaussian,
    KnownGumbel,
    Release,
    Sensitivity,
    UnknownLaplace,
    calibrate,
    plan_continual,
)
from dptopk.mechanisms.samplers.factorisation import Factorisation, factorise
from dptopk.mechanisms.samplers.optimal_factorisation import is_computable
from dptopk.mechanisms.samplers.participation import Participation

ROOT = Path(__file__).parents[1]
MARK = "<!-- measured: everything below is written by `make measure WHAT=continual` -->"
K, LABELS, DELTA = 25, 2000, 1e-6
Days = Iterator[Release]


def growing(days: int, daily: int, rng: np.random.Generator) -> np.ndarray:
    """New counts by day and label, shape (days, LABELS): Zipf 1.1, and each label's popularity is a
    random walk.
    """
    popularity = -1.1 * np.log(np.arange(1, LABELS + 1)) + np.cumsum(
        rng.normal(0, 0.15, (days, LABELS)), axis=0
    )
    weights = np.exp(popularity)
    return rng.poisson(daily * weights / weights.sum(axis=1, keepdims=True))


def histogram(counts: np.ndarray, sensitivity: Sensitivity, private: bool) -> Histogram:
    if private:
        present = np.flatnonzero(counts)
        return Histogram(present.tolist(), counts[present], sensitivity=sensitivity)
    return Histogram(None, counts, sensitivity=sensitivity)


def continual(kind: str) -> Callable[..., Callable[..., Days]]:
    def planned(
        days: int, budget: Budget, sensitivity: Sensitivity, private: bool
    ) -> Callable[..., Days]:
        labels = None if private else LABELS
        mechanism = plan_continual(
            K, days, budget, sensitivity=sensitivity, labels=labels, factorisation=kind
        )

        def run(new: np.ndarray, rng: np.random.Generator) -> Days:
            stream = mechanism.stream(
                sensitivity, labels=None if private else range(LABELS), rng=rng
            )
            for counts in new:
                yield stream.release(histogram(counts, sensitivity, private))

        return run

    return planned


def each_day(
    make: Callable[[float, int, float], list], private_too: bool
) -> Callable[..., Callable[..., Days] | None]:
    """Independent answers on the totals so far; a user-day is in all later ones, so that all days
    are paid for.
    """

    def planned(
        days: int, budget: Budget, sensitivity: Sensitivity, private: bool
    ) -> Callable[..., Days] | None:
        if private != private_too:
            return None
        failure = budget.delta / (2 * days)

        def charge(x: float) -> Charge:
            parts = (
                mechanism.charge(sensitivity, labels=K)
                for mechanism in make(x, sensitivity.linf, failure)
            )
            one = Charge.join(*parts)
            return Charge(one.costs, delta=one.delta, adaptive=True).times(days)

        mechanisms = make(calibrate(charge, budget), sensitivity.linf, failure)

        def run(new: np.ndarray, rng: np.random.Generator) -> Days:
            for totals in np.cumsum(new, axis=0):
                whole = histogram(totals, sensitivity, private)
                answer = mechanisms[0].release(whole, rng)
                for second in mechanisms[1:]:
                    answer = second.release(whole, rng, labels=answer)
                yield answer.top(K)

        return run

    return planned


DESIGNS = {
    "optimal": continual("optimal"),
    "square root": continual("square_root"),
    "binary tree": continual("tree"),
    "each day counted once": continual("daily"),
    "every day anew: Gaussian counts": each_day(
        lambda x, tau, d: [KnownGaussian(sigma=1 / x)],
        False,
    ),
    "every day anew: Gumbel, then counts": each_day(
        lambda x, tau, d: [KnownGumbel(k=K, epsilon=x), KnownGaussian(sigma=1 / x)],
        False,
    ),
    "every day anew: thresholds": each_day(
        lambda x, tau, d: [UnknownLaplace(d_bar=10 * K, epsilon=x, delta=d)],
        True,
    ),
}


def quality(releases: Days, new: np.ndarray) -> tuple[float, float, float]:
    """Recall, root mean square error of the totals shown, and rows shown, means over the days."""
    recalls, squares, rows = [], [], []
    for answer, totals in zip(releases, np.cumsum(new, axis=0), strict=True):
        shown = np.array(answer.labels, dtype=int)
        least = np.sort(totals)[-K]
        recalls.append((totals[shown] >= least).sum() / K)
        rows.append(len(shown))
        squares.extend(((answer.counts - totals[shown]) ** 2).tolist())
    return (
        float(np.mean(recalls)),
        float(np.sqrt(np.mean(squares))) if squares else float("nan"),
        float(np.mean(rows)),
    )


def measure(runs: int, lengths: tuple[int, ...], daily: int) -> Iterator[str]:
    """The tables."""
    for private in (False, True):
        for l0 in (1, 5):
            yield f"\n**{'Private' if private else 'Public'} labels, Δ = {l0}**\n"
            yield (
                "| design | "
                + " | ".join(
                    f"{days} days, ε = {e:g}: {w}"
                    for days in lengths
                    for e in (1.0, 4.0)
                    for w in ("recall", "error")
                )
                + " |"
            )
            yield "|---|" + "---|" * (4 * len(lengths))
            for name, planned in DESIGNS.items():
                cells = []
                for days in lengths:
                    for epsilon in (1.0, 4.0):
                        run = planned(days, Budget(epsilon, DELTA), Sensitivity(l0=l0), private)
                        if run is None:
                            break
                        found = []
                        for seed in range(runs):
                            rng = np.random.default_rng(seed)
                            new = growing(days, daily, rng)
                            found.append(quality(run(new, rng), new))
                        recall, error, _ = np.nanmean(found, axis=0)
                        cells += [f"{recall:.2f}", f"{error:.1f}"]
                if cells:
                    yield f"| {name} | {' | '.join(cells)} |"


# On which days one user may be active: (days, most of them, apart).
USERS = [
    (30, 1, 1),
    (365, 1, 1),
    (30, 4, 7),
    (30, 10, 1),
    (30, 30, 1),
    (60, 8, 7),
    (365, 12, 30),
    (365, 52, 7),
]


def in_32nds(user: Participation) -> Factorisation:
    """The square root that was shipped before: columns of different norms, in 32nds."""
    steps = np.arange(1.0, user.days)
    column = np.maximum(
        np.rint(32 * np.cumprod(np.r_[1.0, (2 * steps - 1) / (2 * steps)])), 1
    ).astype(np.int64)
    lag = np.subtract.outer(np.arange(user.days), np.arange(user.days))
    inverse = np.zeros(user.days)
    for n in range(user.days):
        inverse[n] = (1 - inverse[:n] @ column[n:0:-1]) / column[0]
    strategy, totals = (
        np.where(lag >= 0, each[np.maximum(lag, 0)], 0) for each in (column, inverse)
    )
    return Factorisation(strategy, totals, 32)


def factorisations() -> Iterator[str]:
    """A table of errors at μ = 1: the largest standard deviation of a total, and the root of the
    mean square.
    """
    yield (
        "\n**Standard deviation of a total where all days of a user are 1-Gaussian**: worst "
        "day / root mean square"
    )
    yield (
        "\n| days | of a user | apart | optimal | square root | in 32nds, as before | tree | "
        "daily |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for days, most, apart in USERS:
        user = Participation.of(days, most, apart)
        cells = [f"{days:,}", str(most), str(apart)]
        for kind in ("optimal", "square_root", "before", "tree", "daily"):
            found = []
            for error in ("max", "mean") if is_computable(user) or kind != "optimal" else ():
                plan = in_32nds(user) if kind == "before" else factorise(kind, user, error)
                found.append(
                    f"{plan.error(user, error):.{2 if plan.error(user, error) < 10 else 1}f}"
                )
            cells.append(" / ".join(found))
        yield f"| {' | '.join(cells)} |"


def speed(labels: int, days: int, touched: int) -> Iterator[str]:
    """Processor time of a day, and memory, of a large public domain of which few labels are touched
    on a day.
    """
    sensitivity = Sensitivity(l0=1)
    begun = time.process_time()
    mechanism = plan_continual(K, days, Budget(1, DELTA), sensitivity=sensitivity, labels=labels)
    planned = time.process_time() - begun
    stream, rng = mechanism.stream(sensitivity, labels=range(labels)), np.random.default_rng(0)
    spent, memory = [], []
    for _ in range(days):
        rows, counts = np.unique(rng.integers(0, labels, touched), return_counts=True)
        day = Histogram(rows, counts, domain="public", sensitivity=sensitivity)
        begun = time.process_time()
        stream.release(day)
        spent.append(time.process_time() - begun)
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
    yield (
        f"of {labels:,} public labels with {touched:,} events a day, the first day takes "
        f"{spent[0]:.2f} s of one "
        f"processor, day {days // 2} {spent[days // 2 - 1]:.2f} s, day {days} {spent[-1]:.2f} "
        f"s, with {memory[0]:.1f}, "
        f"{memory[days // 2 - 1]:.1f} and {memory[-1]:.1f} GB; the plan took {planned:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[30, 365])
    parser.add_argument("--daily", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "notes" / "continual.md")
    parser.add_argument(
        "--speed",
        type=int,
        nargs=3,
        metavar=("LABELS", "DAYS", "EVENTS"),
        help="print times instead",
    )
    options = parser.parse_args()
    if options.speed:
        print(*speed(*options.speed))
        return
    before = options.out.read_text(encoding="utf-8").split(MARK)[0]
    intro = (
        f"Top {K} of {LABELS:,} labels, {options.daily:,} events a day by Zipf's law 1.1, "
        f"places drift; δ = 10⁻⁶; "
        f"means over all days and {options.runs} runs. *Error*: root mean square error of the "
        f"totals shown."
    )
    lines = [
        MARK,
        *factorisations(),
        "",
        intro,
        *measure(options.runs, tuple(options.lengths), options.daily),
    ]
    options.out.write_text(before + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
