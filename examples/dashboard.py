"""A dashboard: the same fixed queries every month, set before the first answer.

Run as ``python examples/dashboard.py FOLDER [--queries 12] [--seed N]``; writes dashboard.csv and
dashboard.png.

Every month asks for the 10 most read articles and how often each was read. All costs are fixed
beforehand, so the total is known before any data is seen. Each top 10 is adaptive *inside* (a later
selection depends on the earlier ones); so the accounting uses bounds for an ordered interaction,
not the smaller ones for independent selections.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from dptopk import Charge, CountMLE, Histogram, KnownGaussian, Sensitivity, UnknownGumbel, compose

DELTA = 1e-6
SELECT = UnknownGumbel(k=10, d_bar=100, epsilon=0.1, delta=1e-8)
COUNT = CountMLE(noise=KnownGaussian(sigma=30.0))
SENSITIVITY = Sensitivity(linf=1)  # a member counts once at an article, at any number of articles


def month(number: int) -> Histogram:
    """Made-up reads of one month; the order of articles drifts."""
    counts = np.random.default_rng(number).poisson(20_000 / np.arange(1, 2001))
    labels = [f"article {(7 * number + rank) % 2000}" for rank in range(2000)]
    return Histogram(labels, counts, sensitivity=SENSITIVITY)


def monthly_charge() -> Charge:
    """The most that one month can cost: ten selections, ten counts, the δ of the threshold."""
    return Charge.join(SELECT.charge(SENSITIVITY), COUNT.charge(SENSITIVITY, labels=SELECT.k))


def totals(queries: int) -> pd.DataFrame:
    """ε of the first n months, by the best bound and by adding up; both known before any data is
    seen.
    """
    rows = []
    for n in range(1, queries + 1):
        charge = monthly_charge().times(n)
        best = compose(charge, delta=DELTA, interaction="ordered")
        alone = n * compose(monthly_charge(), delta=DELTA / n, interaction="ordered").epsilon
        rows.append(
            {"months": n, "epsilon": best.epsilon, "by": best.name, "each month on its own": alone}
        )
    return pd.DataFrame(rows)


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queries", type=int, default=12)
    parser.add_argument(
        "--seed", type=int, default=None, help="reproducible noise: for tests, not for production"
    )
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = None if options.seed is None else np.random.default_rng(options.seed)

    table = totals(options.queries)
    print(table.to_string(index=False))
    answers = []
    for number in range(1, options.queries + 1):
        histogram = month(number)
        ranking = SELECT.release(histogram, rng)
        counts = COUNT.release(histogram, rng, ranking=ranking)
        answers.append(counts.table.assign(month=number))
    pd.concat(answers).to_csv(options.folder / "dashboard.csv", index=False)
    plot(table, options.folder / "dashboard.png")
    return table


def plot(table: pd.DataFrame, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(table["months"], table["epsilon"], "o-", label="all months together")
    axes.plot(
        table["months"],
        table["each month on its own"],
        "s--",
        label="each month on its own, added up",
    )
    axes.set(
        xlabel="months",
        ylabel=f"ε at δ = {DELTA:g}",
        title="A dashboard's total, known in advance",
        ylim=0,
    )
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
