"""How wide error bars are, over the least width that covers as often: `make measure WHAT=widths`.

Each design on the six shapes of utility.py, 95%: the share of releases that are covered ("all at
once") and of rows ("false coverage rate"), and the mean half-width over the oracle's, the 95%
quantile of the largest error of an answer, or of all errors. The first row is the README's own
answer. Ten minutes.

`ARGS=--public`, two minutes: noise on the counts of all labels of a public domain, on counts that
are apart (10⁵/r) and on equal ones. There the oracle is the least half-width that would cover the
rows if the true order were known: the 95% quantile of the largest of k noises, or of one noise.
Then the share of α that the bars and the ranks of UnknownBox use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product

import numpy as np
from utility import SHAPES

from dptopk import Budget, Histogram, Plan, Sensitivity, plan_topk
from dptopk._internal.choices import Intervals
from dptopk.datasets import macbeth
from dptopk.mechanisms import UnknownBox
from dptopk.release.intervals import Measurement, smallest_width
from dptopk.release.noise_laws import BoxNoise, GaussianNoise, LaplaceNoise, NoiseLaw

CONFIDENCE, RELEASES, K, BUDGET = 0.95, 1000, 25, Budget(1, 1e-6)
CASES = (
    (1, "truncated Laplace on all counts"),
    (5, "Gaussian noise over a fixed threshold"),
    (20, "box noise over the noisy floor of the top 2k"),
    (20, "centred Gaussian noise over the noisy floor of the top 2k"),
    (None, "Gumbel, then centred Gaussian counts"),
)


def measure(plan: Plan, histogram: Histogram, releases: int) -> list[tuple[float, float]]:
    """For both kinds the coverage, and the mean half-width over the oracle's; nothing where no rows
    are shown.
    """
    truth, rng = (
        dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True)),
        np.random.default_rng(5),
    )
    largest, errors = [], []
    covered, widths = {"simultaneous": [], "fcr": []}, {"simultaneous": [], "fcr": []}
    for _ in range(releases):
        answer = plan.release(histogram, rng)
        if not len(answer):
            continue
        true = np.array([truth[label] for label in answer.labels])
        apart = np.abs((answer.counts if answer.measured is None else answer.measured) - true)
        largest.append(apart.max())
        errors.extend(apart)
        for kind, times in covered.items():
            table = answer.intervals(confidence=CONFIDENCE, kind=kind)
            inside = ((true >= table["low"]) & (true <= table["high"])).to_numpy()
            times.append(inside.all() if kind == "simultaneous" else inside.mean())
            widths[kind].append(float(((table["high"] - table["low"]) / 2).mean()))
    oracle = {"simultaneous": largest, "fcr": errors}
    return [
        (
            float(np.mean(covered[kind])),
            float(np.mean(widths[kind]) / max(np.quantile(oracle[kind], CONFIDENCE), 0.5)),
        )
        for kind in covered
        if len(largest) > releases / 20
    ]


def rows(releases: int) -> Iterator[str]:
    """The table."""
    yield "| answer | data | all at once: coverage, width | false coverage rate: coverage, width |"
    yield "|---|---|---|---|"
    own = plan_topk(5, BUDGET, sensitivity=Sensitivity(l0=1))
    cells = [("README", "Macbeth", own, macbeth(sensitivity=Sensitivity(l0=1)))]
    for l0, method in CASES:
        plan = plan_topk(K, BUDGET, sensitivity=Sensitivity(l0=l0), method=method)
        for name, counts in SHAPES.items():
            labels = [f"{rank:06d}" for rank in range(len(counts))]
            data = Histogram(labels, counts.astype(int), sensitivity=plan.sensitivity)
            cells.append((f"{method}, Δ = {l0 or 'any'}", name, plan, data))
    for answer, name, plan, data in cells:
        found = measure(plan, data, releases)
        yield (
            f"| {answer} | {name} | "
            + " | ".join(f"{share:.1%}, {width:.2f}" for share, width in found)
            + " |"
        )


STD, ALPHA, ROWS = 20.0, 1 - CONFIDENCE, (5, 10, 25)
DRAWS = {100: 2000, 20_000: 400}
KINDS: tuple[Intervals, ...] = ("simultaneous", "fcr")


def law_of_std(family: str, labels: int) -> NoiseLaw:
    """Noise on that many counts of a standard deviation of about STD each."""
    if family == "Laplace":
        return LaplaceNoise(STD / 2**0.5)
    if family == "Gaussian":
        return GaussianNoise(STD)
    return BoxNoise(STD * 6**0.5 / (labels + 2), labels + 1)


def drawn(law: NoiseLaw, labels: int, rng: np.random.Generator) -> np.ndarray:
    """Noise of the law, but for the accuracy of floats; int64, shape (labels,)."""
    if isinstance(law, LaplaceNoise):
        chance = -np.expm1(-law.rate)
        return rng.geometric(chance, labels) - rng.geometric(chance, labels)
    if isinstance(law, GaussianNoise):
        return np.rint(rng.normal(scale=law.scale, size=labels)).astype(np.int64)
    assert isinstance(law, BoxNoise)
    side = max(round(law.scale * rng.gamma(law.power + 1)), 1)
    return rng.integers(side, size=labels) - rng.integers(side)


def on_all_labels() -> Iterator[str]:
    """A row for each noise, number of labels, shape and k: misses with their standard error, and
    the mean half-width over the oracle's.
    """
    yield "| noise | labels | counts | k | jointly: missed, width | rate: missed, width |"
    yield "|---|---|---|---|---|---|"
    for family, (labels, draws) in product(("Laplace", "Gaussian", "box"), DRAWS.items()):
        law, ranks = law_of_std(family, labels), np.arange(1, labels + 1)
        apart, flat = np.rint(1e5 / ranks).astype(np.int64), np.full(labels, 1000)
        for name, true in (("10⁵/r", apart), ("equal", flat)):
            rng = np.random.default_rng([len(family), labels])
            missed, widths = {}, {}
            for _ in range(draws):
                noise = drawn(law, labels, rng)
                order = np.argsort(-(true + noise), kind="stable")
                values, errors = (true + noise)[order], np.abs(noise[order])
                for k, kind in product(ROWS, KINDS):
                    shown = Measurement(law, labels, whole=True).truncated(values, k, planned=True)
                    width = shown.half_width(ALPHA, kind, k)
                    outside = errors[:k] > width
                    miss = outside.any() if kind == "simultaneous" else outside.mean()
                    missed.setdefault((k, kind), []).append(float(miss))
                    widths.setdefault((k, kind), []).append(width)
            for k in ROWS:
                cells = []
                for kind in KINDS:
                    miss = missed[k, kind]
                    least = smallest_width(law, k if kind == "simultaneous" else 1, ALPHA)
                    cells.append(
                        f"{np.mean(miss):.1%} ± {np.std(miss) / draws**0.5:.1%}, "
                        f"{np.mean(widths[k, kind]) / least:.2f}"
                    )
                yield f"| {family} | {labels} | {name} | {k} | {' | '.join(cells)} |"


def of_unknown_box(releases: int = 2000) -> Iterator[str]:
    """What UnknownBox leaves of α: misses of counts and ranks, over releases with rows."""
    yield "| rows shown of those that passed | counts | jointly | rate | ranks |"
    yield "|---|---|---|---|---|"
    ranks = np.arange(1, 1001)
    shapes = {
        "10⁵/r": np.rint(1e5 / ranks),
        "10⁴/r": np.rint(1e4 / ranks),
        "equal": 0 * ranks + 1e3,
    }
    for k, (name, true) in product(ROWS, shapes.items()):
        counts = true.astype(np.int64)
        labels = [f"{rank:04d}" for rank in ranks]
        histogram = Histogram(labels, counts, sensitivity=Sensitivity(l0=20))
        mechanism = UnknownBox(d_bar=2 * k, epsilon=1.0, delta=1e-6)
        rng, missed = np.random.default_rng(k), []
        for _ in range(releases):
            answer = mechanism.release(histogram, rng).top(k, planned=True)
            if not len(answer):
                continue
            there, found = histogram.count_of(list(answer.labels)), []
            for kind in KINDS:
                table = answer.intervals(confidence=CONFIDENCE, kind=kind)
                outside = ((there < table["low"]) | (there > table["high"])).to_numpy()
                found.append(outside.any() if kind == "simultaneous" else outside.mean())
            whole = counts if table.attrs["ranks"] == "domain" else there
            least = 1 + (whole[None, :] > there[:, None]).sum(axis=1)
            most = (whole[None, :] >= there[:, None]).sum(axis=1)
            wrong = (least < table["rank_low"]) | (most > table["rank_high"])
            missed.append([*found, wrong.any()])
        if not missed:
            yield f"| {k} of {2 * k} | {name} | | | |"
            continue
        means = np.mean(missed, axis=0) / ALPHA
        spreads = np.std(missed, axis=0) / len(missed) ** 0.5 / ALPHA
        cells = [f"{mean:.0%} ± {se:.0%}" for mean, se in zip(means, spreads, strict=True)]
        yield f"| {k} of {2 * k} | {name} | {' | '.join(cells)} |"


def main(options: list[str]) -> None:
    """Print the tables that are asked for."""
    if options == ["--public"]:
        lines = [on_all_labels(), of_unknown_box()]
    else:
        lines = [rows(int(options[0]) if options else RELEASES)]
    for table in lines:
        for line in table:
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
