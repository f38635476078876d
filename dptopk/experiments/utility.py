"""Utility at equal privacy: recall of the true top k, and errors of the released counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptopk import Budget, CountMLE, Histogram, Sensitivity, TruncatedGaussian, plan_topk
from dptopk._internal.choices import Counts, Domain, Method
from dptopk.accounting.bounds import compose
from dptopk.accounting.calibration import calibrate
from dptopk.costs import Charge
from dptopk.experiments import style
from dptopk.experiments.experiment import (
    Comparison,
    Figure,
    RunSettings,
    Table,
    claim,
    generators,
    table_of,
)

TITLE = "What the answers are worth at equal privacy"
SOURCE = "dptopk"
SETTING = (
    "The top 25 with counts, Δ = 5, τ = 1, (1, 1e-6)-DP in total, exact composition; d̄ = 250 "
    "in unknown domains. "
    "Macbeth (3546 words), and 10⁵ labels whose counts fall as powers of their ranks. Averages "
    "over 60 seeded "
    "trials; errors of the labels that were released."
)

K = 25
L0 = 5
BUDGET = Budget(1.0, 1e-6)
D_BAR = 250
Errors = dict[str, tuple[float, float]]
Mechanisms = tuple[Any, ...]
# Zipf tails: labels, largest count, exponent.
TAILS = {"10⁴ / r": (100_000, 10_000, 1.0), "10⁵ / r^1.5": (100_000, 100_000, 1.5)}
DATA = ("Macbeth", *TAILS)


@cache
def data(name: str, domain: Domain = "public", l0: int | None = None) -> Histogram:
    """The words of Macbeth, or 10⁵ labels whose count of rank r falls as a power of r."""
    from dptopk.datasets import macbeth

    sensitivity = Sensitivity(l0=l0)
    if name not in TAILS:
        return macbeth(domain=domain, sensitivity=sensitivity)
    labels, largest, exponent = TAILS[name]
    ranks = np.arange(1, labels + 1)
    counts = np.rint(largest / ranks**exponent).astype(int)
    return Histogram(np.arange(labels), counts, domain=domain, sensitivity=sensitivity)


def planned(domain: Domain, method: Method, noise: Counts) -> Mechanisms:
    """The mechanisms of a plan for the budget; a selection is followed by a fit of the counts to
    its order.
    """
    plan = plan_topk(
        K,
        BUDGET,
        counts=noise,
        method=method,
        fit=method == "peel",
        sensitivity=Sensitivity(l0=L0),
        domain=domain,
        d_bar=D_BAR if domain == "private" else None,
    )
    return tuple(plan.mechanisms)


def truncated(d_bar: int | None) -> Mechanisms:
    """The truncated Gaussian that spends the budget, half of δ on the truncation."""

    def at(scale: float) -> TruncatedGaussian:
        return TruncatedGaussian(sigma=1 / scale, delta=BUDGET.delta / 2, d_bar=d_bar)

    scale = calibrate(lambda scale: at(scale).charge(Sensitivity(l0=L0)), BUDGET)
    return (at(scale),)


# Way of answering -> domain, and the mechanisms made when they are needed.
WAYS: dict[str, tuple[Domain, Callable[[], Mechanisms]]] = {
    "known: Gumbel, Gaussian counts": ("public", lambda: planned("public", "peel", "gaussian")),
    "known: Gumbel, Laplace counts": ("public", lambda: planned("public", "peel", "laplace")),
    "known: Gaussian on all counts": ("public", lambda: planned("public", "threshold", "gaussian")),
    "known: Laplace on all counts": ("public", lambda: planned("public", "threshold", "laplace")),
    "unknown: Gumbel, Gaussian counts": ("private", lambda: planned("private", "peel", "gaussian")),
    "unknown: Gumbel, Laplace counts": ("private", lambda: planned("private", "peel", "laplace")),
    "unknown: Gaussian": ("private", lambda: planned("private", "threshold", "gaussian")),
    "unknown: Laplace": ("private", lambda: planned("private", "threshold", "laplace")),
    "unknown: truncated Gaussian": ("private", lambda: truncated(D_BAR)),
    "whole histogram: truncated Gaussian": ("private", lambda: truncated(None)),
}


# Column -> title, and where the axis ends.
MEASURES: dict[str, tuple[str, float | None]] = {
    "recall": ("recall of the true top 25", 1.03),
    "l1": ("mean absolute error", None),
    "l2": ("root mean square error", None),
}


def errors(estimates: NDArray[Any], truth: NDArray[Any]) -> tuple[float, float]:
    """Mean absolute and root mean square error; NaN where nothing was released."""
    if not len(truth):
        return (np.nan, np.nan)
    off = estimates - truth
    squares = (off**2).mean()
    return (float(np.abs(off).mean()), float(np.sqrt(squares)))


def attempt(
    mechanisms: Mechanisms, histogram: Histogram, k: int, rng: np.random.Generator
) -> tuple[tuple[Any, ...], Errors]:
    """One answer: its labels, and the errors of its counts.

    Counts by one mechanism are "plain", the k largest. After a selection they are "plain", "fitted"
    to the drawn order by CountMLE, and fitted to the "true order" of the selected labels, which is
    not private.
    """
    if not isinstance(mechanisms[-1], CountMLE):
        (mechanism,) = mechanisms
        release = mechanism.release(histogram, rng)
        labels = release.labels[:k]
        return labels, {"plain": errors(release.counts[:k], _true_counts(histogram, labels))}
    selection, fit = mechanisms
    chosen = selection.release(histogram, rng)
    truth = _true_counts(histogram, chosen.labels)
    release = fit.release(histogram, rng, ranking=chosen)
    ordered = [chosen.labels[i] for i in np.argsort(-truth, kind="stable")]
    oracle = fit.release(histogram, rng, ranking=ordered)
    falling = np.sort(truth)[::-1]
    return chosen.labels, {
        "plain": errors(release.measured, truth),
        "fitted": errors(release.counts, truth),
        "true order": errors(oracle.counts, falling),
    }


def recall(labels: tuple[Any, ...], histogram: Histogram, k: int) -> float:
    """The share of the true top k among the labels."""
    true = histogram.labels[histogram.top_rows(k)]
    return len(set(true.tolist()).intersection(labels)) / k


def _true_counts(histogram: Histogram, labels: tuple[Any, ...]) -> NDArray[Any]:
    return histogram.counts[histogram.positions(labels)]


def _way(task: tuple[str, str, list[np.random.Generator]]) -> list[dict[str, Any]]:
    """All trials of one way on one data set: averages, a row each for plain and fitted counts."""
    name, way, rngs = task
    domain, make = WAYS[way]
    histogram = data(name, domain, L0)
    mechanisms = make()
    released, errors = zip(*_tries(mechanisms, histogram, rngs), strict=True)
    common = {
        "data": name,
        "way": way,
        "epsilon": _spent(mechanisms, histogram.sensitivity),
        "trials": len(rngs),
        "recall": np.mean([recall(labels, histogram, K) for labels in released]),
        "released": np.mean(list(map(len, released))),
    }
    return [{**common, **row} for row in _mean_errors(list(errors))]


def _tries(
    mechanisms: Mechanisms, histogram: Histogram, rngs: list[np.random.Generator]
) -> list[tuple[tuple[Any, ...], Errors]]:
    return [attempt(mechanisms, histogram, K, rng) for rng in rngs]


def _mean_errors(tries: list[Errors]) -> list[dict[str, Any]]:
    """Averages over the trials, a row for plain and one for fitted counts, where there are some."""
    rows = []
    for counts in ("plain", "fitted"):
        found = [errors[counts] for errors in tries if counts in errors]
        if not found:
            continue
        if np.isnan(found).all():  # nothing was released
            l1 = l2 = np.nan
        else:
            l1, l2 = np.nanmean(found, axis=0)
        rows.append({"counts": counts, "l1": l1, "l2": l2})
    return rows


def _spent(mechanisms: Mechanisms, sensitivity: Sensitivity) -> float:
    """The ε of all mechanisms together at the budget's δ."""
    charge = Charge.join(*(each.charge(sensitivity, labels=K) for each in mechanisms))
    adaptive = Charge(charge.costs, delta=charge.delta, adaptive=True)
    return compose(adaptive, delta=BUDGET.delta).epsilon


def compute(settings: RunSettings) -> Table:
    """Averages over the trials for each way and each data set."""
    trials = 2 if settings.quick else 60
    names = list(enumerate(DATA))
    ways = list(enumerate(WAYS))
    if settings.quick:
        names = names[:1]
        ways = ways[::3]
    tasks = [
        (name, way, generators(settings, trials, row, column))
        for row, name in names
        for column, way in ways
    ]
    return table_of(_way, tasks, settings)


def plot(data: Table) -> Figure:
    """A row a way of answering; recall, l1 and l2 side by side; a sign for each data set."""
    figure, panels = style.figure(1, 3, width=11.5, height=5)
    ways = ["way", "counts"]
    names = list(map(tuple, data[ways].drop_duplicates().to_numpy().tolist()))
    place = np.arange(len(names))[::-1]
    for number, source in enumerate(DATA):
        part = data[data["data"] == source].set_index(ways).reindex(names)
        for axes, column in zip(panels, MEASURES, strict=True):
            axes.plot(
                part[column],
                place,
                "osD"[number],
                label=source,
                color=style.COLOURS[number],
                fillstyle="none",
                markersize=6,
            )
    for axes, (title, most) in zip(panels, MEASURES.values(), strict=True):
        axes.set(title=title, xlim=(0, most), ylim=(-0.6, len(names) - 0.4))
        axes.set_yticks(place, [""] * len(names))
    panels[0].set_yticks(place, list(map(_row_title, names)))
    style.legend_below(figure, panels[0], columns=len(DATA))
    return figure


def _row_title(name: tuple[str, str]) -> str:
    way, counts = name
    if counts == "fitted":
        return f"{way} + CountMLE"
    return way


def compare(data: Table) -> list[Comparison]:
    """Report that all cost the same, and which mechanism is best at which measure."""
    within = data["epsilon"] <= BUDGET.epsilon
    spent = f"{data['epsilon'].min():.4f} to {data['epsilon'].max():.4f}"
    lines = [claim("total ε at δ = 1e-6", f"{BUDGET.epsilon:g}", within.all(), spent)]
    for source, part in data.groupby("data", sort=False):
        for domain in ("known", "unknown"):
            some = part[part["way"].str.startswith(domain)]
            lines.append(Comparison(f"{source}, {domain} domain: best", "", _best(some)))
        quantity = f"{source}: CountMLE over selected labels"
        lines.append(Comparison(quantity, "measured in the true order only", _fit(part)))
    return lines


def _fit(part: Table) -> str:
    """Return what the fit changes after a selection from a known domain, in words."""
    known = part["way"].str.startswith("known")
    selected = part[known & part["way"].str.contains("Gumbel, Gaussian")]
    fit = selected.set_index("counts")["l2"]
    without = f"l2 {fit['plain']:.1f} without"
    return f"{without}, {fit['fitted']:.1f} with the fit to the drawn order"


def _best(some: Table) -> str:
    """The ways with the largest recall and the smallest error, in words."""
    seen = some.loc[some["recall"].idxmax()]
    near = some.loc[some["l2"].idxmin()]
    _, by_recall = seen["way"].split(": ", 1)
    _, by_error = near["way"].split(": ", 1)
    recalled = f"recall {seen['recall']:.2f} by {by_recall}"
    return f"{recalled}; l2 {near['l2']:.1f} by {by_error} ({near['counts']})"
