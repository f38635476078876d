"""Utility at equal privacy: recall of the true top k, and errors of the released counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

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
    "The top 25 with counts, Δ = 5, τ = 1, (1, 1e-6)-DP in total, exact composition; d̄ = 250 in "
    "unknown domains. Macbeth (3546 words), and 10⁵ labels whose counts fall as powers of their "
    "ranks. Averages over 60 seeded trials; errors of the labels that were released."
)

K = 25
L0 = 5
BUDGET = Budget(1.0, 1e-6)
D_BAR = 250
# One mechanism with counts, or a selection and the CountMLE that counts what it selects.
Mechanisms = tuple[Any, ...]


class CountErrors(NamedTuple):
    """The errors of the counts of one answer; NaN where nothing was released.

    Attributes:
        l1: the mean absolute error.
        l2: the root mean square error.
    """

    l1: float
    l2: float


class Attempt(NamedTuple):
    """One drawn answer.

    Attributes:
        labels: the labels that it releases.
        errors: the errors of each kind of counts, by its name (see ``attempt``).
    """

    labels: tuple[Any, ...]
    errors: dict[str, CountErrors]


# Name of data whose counts fall as a power of their ranks -> number of labels, largest count,
# exponent.
TAILS = {"10⁴ / r": (100_000, 10_000, 1.0), "10⁵ / r^1.5": (100_000, 100_000, 1.5)}
DATA = ("Macbeth", *TAILS)


@cache
def histogram_of(name: str, domain: Domain = "public", l0: int | None = None) -> Histogram:
    """Return the words of Macbeth, or 10⁵ labels whose count of rank r falls as a power of r.

    Args:
        name: one of ``DATA``.
        domain: whether the labels are taken to be public.
        l0: how many labels one user touches; None: any number.
    """
    from dptopk.datasets import macbeth

    sensitivity = Sensitivity(l0=l0)
    if name not in TAILS:
        return macbeth(domain=domain, sensitivity=sensitivity)
    labels, largest, exponent = TAILS[name]
    ranks = np.arange(1, labels + 1)
    counts = np.rint(largest / ranks**exponent).astype(int)
    return Histogram(np.arange(labels), counts, domain=domain, sensitivity=sensitivity)


def plan_mechanisms(domain: Domain, method: Method, noise: Counts) -> Mechanisms:
    """Return the mechanisms of a plan for the budget; with the method "peel", a selection is
    followed by counts that are fitted to its order.

    Args:
        domain: whether the labels are public.
        method: how the plan answers, as for plan_topk.
        noise: the noise on the counts, as for plan_topk.
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


def truncated_mechanism(d_bar: int | None) -> Mechanisms:
    """Return the truncated Gaussian mechanism that spends the budget, half of δ on the truncation.

    Args:
        d_bar: how many of the largest counts are considered; None: the whole histogram.
    """

    def mechanism(inverse_sigma: float) -> TruncatedGaussian:
        """Return the mechanism with a σ of 1/``inverse_sigma``."""
        return TruncatedGaussian(sigma=1 / inverse_sigma, delta=BUDGET.delta / 2, d_bar=d_bar)

    def charge(inverse_sigma: float) -> Charge:
        """Return its charge, which grows with ``inverse_sigma``."""
        return mechanism(inverse_sigma).charge(Sensitivity(l0=L0))

    return (mechanism(calibrate(charge, BUDGET)),)


# Selections in a drawn order, with counts of their own: the way on which CountMLE is judged.
FITTED_WAY = "known: Gumbel, Gaussian counts"
# For each way of answering, the domain, and a function that makes the mechanisms when needed.
WAYS: dict[str, tuple[Domain, Callable[[], Mechanisms]]] = {
    FITTED_WAY: ("public", lambda: plan_mechanisms("public", "peel", "gaussian")),
    "known: Gumbel, Laplace counts": (
        "public",
        lambda: plan_mechanisms("public", "peel", "laplace"),
    ),
    "known: Gaussian on all counts": (
        "public",
        lambda: plan_mechanisms("public", "threshold", "gaussian"),
    ),
    "known: Laplace on all counts": (
        "public",
        lambda: plan_mechanisms("public", "threshold", "laplace"),
    ),
    "unknown: Gumbel, Gaussian counts": (
        "private",
        lambda: plan_mechanisms("private", "peel", "gaussian"),
    ),
    "unknown: Gumbel, Laplace counts": (
        "private",
        lambda: plan_mechanisms("private", "peel", "laplace"),
    ),
    "unknown: Gaussian": ("private", lambda: plan_mechanisms("private", "threshold", "gaussian")),
    "unknown: Laplace": ("private", lambda: plan_mechanisms("private", "threshold", "laplace")),
    "unknown: truncated Gaussian": ("private", lambda: truncated_mechanism(D_BAR)),
    "whole histogram: truncated Gaussian": ("private", lambda: truncated_mechanism(None)),
}


# Column -> title, and where the axis ends.
MEASURES: dict[str, tuple[str, float | None]] = {
    "recall": ("recall of the true top 25", 1.03),
    "l1": ("mean absolute error", None),
    "l2": ("root mean square error", None),
}


def errors_of(estimates: NDArray[Any], truth: NDArray[Any]) -> CountErrors:
    """Return the errors of released counts.

    Args:
        estimates: the released counts, shape (labels,).
        truth: the true counts of the same labels.
    """
    if not len(truth):
        return CountErrors(np.nan, np.nan)
    differences = estimates - truth
    mean_square = (differences**2).mean()
    return CountErrors(float(np.abs(differences).mean()), float(np.sqrt(mean_square)))


def attempt(
    mechanisms: Mechanisms, histogram: Histogram, k: int, rng: np.random.Generator
) -> Attempt:
    """Draw one answer; return its labels and the errors of its counts.

    For a single mechanism these are the "plain" counts of the k largest. After a selection there
    are three kinds of counts: "plain", "fitted" to the drawn order by CountMLE, and fitted to the
    "true order" of the selected labels, which is not private.

    Args:
        mechanisms: one mechanism with counts, or a selection and the CountMLE that counts what it
            selects.
        histogram: the data.
        k: the number of labels that count as the answer.
        rng: the generator of all noise.
    """
    if not isinstance(mechanisms[-1], CountMLE):
        (mechanism,) = mechanisms
        release = mechanism.release(histogram, rng)
        labels = release.labels[:k]
        plain = errors_of(release.counts[:k], _true_counts(histogram, labels))
        return Attempt(labels, {"plain": plain})
    selection, fit = mechanisms
    selected = selection.release(histogram, rng)
    truth = _true_counts(histogram, selected.labels)
    release = fit.release(histogram, rng, ranking=selected)
    true_order = [selected.labels[place] for place in np.argsort(-truth, kind="stable")]
    oracle = fit.release(histogram, rng, ranking=true_order)
    falling = np.sort(truth)[::-1]
    return Attempt(
        selected.labels,
        {
            "plain": errors_of(release.measured, truth),
            "fitted": errors_of(release.counts, truth),
            "true order": errors_of(oracle.counts, falling),
        },
    )


def recall(labels: tuple[Any, ...], histogram: Histogram, k: int) -> float:
    """Return the share of the true top k that is among the labels, in [0, 1].

    Args:
        labels: the released labels.
        histogram: the data.
        k: how many labels the true top has.
    """
    true_top = histogram.labels[histogram.top_rows(k)]
    return len(set(true_top.tolist()).intersection(labels)) / k


def _true_counts(histogram: Histogram, labels: tuple[Any, ...]) -> NDArray[Any]:
    """Return the true counts of labels that have a row, shape (labels,)."""
    return histogram.counts[histogram.positions(labels)]


def _way_rows(task: tuple[str, str, list[np.random.Generator]]) -> list[dict[str, Any]]:
    """Run all trials of one way of answering on one data set; return their averages, a row each
    for plain and fitted counts.

    Args:
        task: the name of the data (of DATA), the name of the way (of WAYS), and a generator for
            each trial.
    """
    name, way, rngs = task
    domain, make_mechanisms = WAYS[way]
    histogram = histogram_of(name, domain, L0)
    mechanisms = make_mechanisms()
    attempts = [attempt(mechanisms, histogram, K, rng) for rng in rngs]
    common = {
        "data": name,
        "way": way,
        "epsilon": _total_epsilon(mechanisms, histogram.sensitivity),
        "trials": len(rngs),
        "recall": np.mean([recall(one.labels, histogram, K) for one in attempts]),
        "released": np.mean([len(one.labels) for one in attempts]),
    }
    return [{**common, **row} for row in _mean_errors(attempts)]


def _mean_errors(attempts: list[Attempt]) -> list[dict[str, Any]]:
    """Return the mean errors over the trials, a row for plain counts and one for fitted counts if
    there are any; trials that released nothing are left out.
    """
    rows = []
    for counts in ("plain", "fitted"):
        errors = [one.errors[counts] for one in attempts if counts in one.errors]
        if not errors:
            continue
        if np.isnan(errors).all():  # nothing was released
            l1 = l2 = np.nan
        else:
            l1, l2 = np.nanmean(errors, axis=0)
        rows.append({"counts": counts, "l1": l1, "l2": l2})
    return rows


def _total_epsilon(mechanisms: Mechanisms, sensitivity: Sensitivity) -> float:
    """Return the ε of all mechanisms together at the budget's δ."""
    charges = [mechanism.charge(sensitivity, labels=K) for mechanism in mechanisms]
    charge = Charge.join(*charges)
    adaptive = Charge(charge.costs, delta=charge.delta, adaptive=True)
    return compose(adaptive, delta=BUDGET.delta).epsilon


def compute(settings: RunSettings) -> Table:
    """Return the averages over the trials for each way of answering and each data set."""
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
    return table_of(_way_rows, tasks, settings)


def plot(data: Table) -> Figure:
    """Plot recall and both errors side by side, a line for each way of answering and a marker for
    each data set.
    """
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
    """Return the title of a line of the figure, given a way of answering and a kind of counts."""
    way, counts = name
    if counts == "fitted":
        return f"{way} + CountMLE"
    return way


def compare(data: Table) -> list[Comparison]:
    """Check that every way stays within the budget; report which one is best at recall and at
    error in each domain, and the errors with and without CountMLE.
    """
    keeps_budget = data["epsilon"] <= BUDGET.epsilon
    spent = f"{data['epsilon'].min():.4f} to {data['epsilon'].max():.4f}"
    lines = [claim("total ε at δ = 1e-6", f"{BUDGET.epsilon:g}", keeps_budget.all(), spent)]
    titles: dict[Domain, str] = {"public": "known domain", "private": "unknown domain"}
    for source, part in data.groupby("data", sort=False):
        domain_of_way = part["way"].map(_domain_of)
        for domain, title in titles.items():
            in_domain = part[domain_of_way == domain]
            lines.append(Comparison(f"{source}, {title}: best", "", _best_ways(in_domain)))
        quantity = f"{source}: CountMLE over selected labels"
        lines.append(Comparison(quantity, "measured in the true order only", _errors_of_fit(part)))
    return lines


def _domain_of(way: str) -> Domain:
    """Return the domain of a way of answering."""
    domain, _ = WAYS[way]
    return domain


def _errors_of_fit(part: Table) -> str:
    """Return, in words, the root mean square error of Gaussian counts after Gumbel selections from
    a known domain, as they are drawn and as CountMLE fits them.
    """
    of_way = part[part["way"] == FITTED_WAY]
    l2 = of_way.set_index("counts")["l2"]
    return f"l2 {l2['plain']:.1f} without, {l2['fitted']:.1f} with the fit to the drawn order"


def _best_ways(ways: Table) -> str:
    """Return, in words, the ways with the largest recall and with the smallest error."""
    most_recall = ways.loc[ways["recall"].idxmax()]
    least_error = ways.loc[ways["l2"].idxmin()]
    recall_text = f"recall {most_recall['recall']:.2f} by {most_recall['way']}"
    error_text = f"l2 {least_error['l2']:.1f} by {least_error['way']} ({least_error['counts']})"
    return f"{recall_text}; {error_text}"
