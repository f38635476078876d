"""CR 2022, Figure 6: the 25 most frequent words of Macbeth, counted with Laplace noise and with
CountMLE.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.accounting.gaussian.discrete import discrete_gaussian_scale
from dptopk.accounting.gaussian.pair import gaussian_mu
from dptopk.accounting.pure_dp.homogeneous import optimal_dp_epsilon
from dptopk.accounting.renyi.concentrated import zcdp_rho
from dptopk.experiments import style
from dptopk.experiments.experiment import (
    Comparison,
    Figure,
    RunSettings,
    Table,
    claim,
    generators,
    in_parallel,
    number,
)

TITLE = "Counting the words of Macbeth: CountMLE against Laplace noise"
SOURCE = "Cesar-Rogers 2022, Figure 6"
SETTING = (
    "The 25 most frequent words in their true order, τ = 1, Lap(1/ε) with ε = 0.1 on each count, σ "
    "from Lemma 6.3 for the same (2.08, 1e-6), 100 trials, noise on the integers. Ours: the "
    "smallest σ that is exactly (2.08, 1e-6)-DP."
)

EPSILON = 0.1
DELTA = 1e-6
WORDS = 25
SMALL_COUNTS = 12  # the smaller half of the words, of which a statement is checked
TRIALS = 100
# The mechanisms that are compared.
LAPLACE = "KnownLap"
PUBLISHED = "CountMLE (zCDP)"
EXACT = "CountMLE (exact)"
PLAIN = "Gaussian (exact), no fit"
LAPLACE_FIT = "CountMLE over Laplace"
# The sources of the true counts.
PAPER = "figure"
TABLE = "table"


def true_counts() -> dict[str, Table]:
    """Return the 25 most frequent words with their counts from two sources: read off the paper's
    figure, and from the shipped table; columns word and count.
    """
    import pandas as pd

    from dptopk.datasets import macbeth_counts

    read_off = files("dptopk.experiments").joinpath("data", "cr_figure_6_counts.csv")
    with read_off.open(encoding="utf-8") as file:
        return {PAPER: pd.read_csv(file), TABLE: macbeth_counts().head(WORDS)}


@cache
def calibration() -> dict[str, float]:
    """Return the total ε of the Laplace noise, and the σ that costs as much: by Lemma 6.3, by
    Balle-Wang, and for discrete noise.
    """
    total = float(optimal_dp_epsilon(EPSILON, WORDS, delta=DELTA))
    return {
        "epsilon_global": total,
        "sigma_zcdp": math.sqrt(WORDS / (2 * zcdp_rho(epsilon=total, delta=DELTA))),
        "sigma_analytic": math.sqrt(WORDS) / gaussian_mu(epsilon=total, delta=DELTA),
        "sigma_discrete": discrete_gaussian_scale(epsilon=total, delta=DELTA, count=WORDS),
    }


def mechanisms() -> dict[str, Any]:
    """Return the mechanisms that are compared, by name; all cost the same total (ε, δ)."""
    from dptopk import CountMLE, KnownGaussian, KnownLaplace

    sigma = calibration()
    laplace = KnownLaplace(epsilon=EPSILON)
    exact = KnownGaussian(sigma=sigma["sigma_discrete"])
    return {
        LAPLACE: laplace,
        PUBLISHED: CountMLE(noise=KnownGaussian(sigma=sigma["sigma_zcdp"]), shrink=False),
        EXACT: CountMLE(noise=exact, shrink=False),
        PLAIN: exact,
        LAPLACE_FIT: CountMLE(noise=laplace, shrink=False),
    }


def _trial(trial: tuple[str, np.random.Generator]) -> dict[str, Any]:
    """Return the counts that each mechanism releases in one trial, in the order of the words, each
    of shape (WORDS,).

    Args:
        trial: the source of the true counts, PAPER or TABLE, and the generator of the noise.
    """
    from dptopk import Histogram

    source, rng = trial
    words = true_counts()[source]
    histogram = Histogram(words["word"].tolist(), words["count"].to_numpy(), domain="public")
    ranking = words["word"].tolist()
    answers = {}
    for name, mechanism in mechanisms().items():
        if name in (LAPLACE, PLAIN):  # these take labels, and CountMLE takes their order
            options = {"labels": ranking}
        else:
            options = {"ranking": ranking}
        release = mechanism.release(histogram, rng, **options)
        count_of_word = dict(zip(release.labels, release.counts, strict=True))
        answers[name] = np.array([count_of_word[word] for word in ranking], dtype=float)
    return answers


def compute(settings: RunSettings) -> Table:
    """Return mean, standard deviation and root mean square error of each word's count under each
    mechanism, for both sources of true counts.
    """
    import pandas as pd

    trials = 8 if settings.quick else TRIALS
    sources = true_counts()
    frames = []
    inputs = []
    for number_of_source, source in enumerate(sources):
        inputs += [(source, rng) for rng in generators(settings, trials, number_of_source)]
    answers = in_parallel(_trial, inputs, settings)
    for number_of_source, (source, words) in enumerate(sources.items()):
        start = number_of_source * trials
        answers_of_source = answers[start : start + trials]
        frames += _errors(words.assign(source=source, trials=trials), answers_of_source)
    return pd.concat(frames, ignore_index=True).assign(**calibration())


def _errors(words: Table, answers: list[dict[str, Floats]]) -> list[Table]:
    """Return mean, standard deviation and error of each word's count, a table for each mechanism.

    Args:
        words: the words with their true counts and the columns to repeat.
        answers: the released counts of each trial, by mechanism.
    """
    truth = words["count"].to_numpy()
    columns = list(words.columns)
    tables = []
    for name in answers[0]:
        released = np.array([answer[name] for answer in answers])
        squares = (released - truth) ** 2
        table = words.assign(
            mechanism=name,
            mean=released.mean(axis=0),
            std=released.std(axis=0, ddof=1),
            rmse=np.sqrt(squares.mean(axis=0)),
        )
        # The last column of ``words``, the number of trials, stands behind the mechanism.
        order = [*columns[:-1], "mechanism", columns[-1], "mean", "std", "rmse"]
        tables.append(table[order])
    return tables


def plot(data: Table) -> Figure:
    """Plot the paper's figure (means and standard deviations) above, and the error of each word
    below.
    """
    figure, (above, below) = style.figure(2, 1, width=10, height=7)
    part = data[data["source"] == PAPER].set_index("mechanism")
    place = np.arange(WORDS)
    for nth, name in enumerate((LAPLACE, PUBLISHED, EXACT)):
        rows = part.loc[name]
        above.errorbar(
            place + 0.25 * (nth - 1),
            rows["mean"],
            rows["std"],
            label=name,
            fmt="o",
            ms=3,
            capsize=2,
            lw=1.2,
            color=style.COLOURS[nth],
        )
    above.bar(
        place, part.loc[LAPLACE, "count"], width=0.8, color="#DDDDDD", zorder=0, label="true count"
    )
    above.set(
        ylabel="count, ± 1 standard deviation",
        title="(2.08, 1e-6)-DP counts of the top 25 words of Macbeth",
    )
    places = place.astype(float)
    errors = [(name, places, part.loc[name, "rmse"]) for name in mechanisms()]
    style.lines(below, errors, marker="o", markersize=3, alpha=0.9)
    below.set(ylabel="root mean square error", ylim=(0, None))
    for axes in (above, below):
        axes.set_xticks(place, part.loc[LAPLACE, "word"], rotation=45, ha="right", fontsize=8)
        axes.grid(visible=False, axis="x")
        style.legend_beside(axes)
    return figure


def compare(data: Table) -> list[Comparison]:
    """Compare the paper's numbers and its statement with ours, also for exact calibration and for
    the counts of the shipped table.
    """
    first_row = data.iloc[0]
    lines = [
        number("total ε at δ = 1e-6", 2.08, first_row["epsilon_global"], digits=2),
        number("σ of CountMLE by Lemma 6.3", 13.1, first_row["sigma_zcdp"], digits=1),
        Comparison("standard deviation of the Laplace noise", "", f"{math.sqrt(2) / EPSILON:.2f}"),
        Comparison(
            "smallest σ for the same (ε, δ), exact", "", f"{first_row['sigma_analytic']:.4f}"
        ),
        Comparison("the same, discrete", "", f"{first_row['sigma_discrete']:.4f}"),
    ]
    for source, part in data.groupby("source"):
        lines += _error_lines(source, part)
    return [*lines, _shared_counts_line()]


def _error_lines(source: str, part: Table) -> list[Comparison]:
    """Return two lines on the errors with the true counts of one source: over the SMALL_COUNTS
    smallest counts, and over all.

    Args:
        source: the source of the true counts, PAPER or TABLE.
        part: the rows of that source, those of each mechanism by falling true count.
    """
    squared = part.assign(square=part["rmse"] ** 2)
    squares = squared.groupby("mechanism")["square"]
    of_small = squares.apply(lambda errors: errors.tail(SMALL_COUNTS).mean()) ** 0.5
    of_all = squares.mean() ** 0.5
    where = f"({source}'s counts, last {SMALL_COUNTS} words)"
    statement = f"CountMLE has the smaller error for small counts {where}"
    against = f"{of_small[PUBLISHED]:.1f} against {of_small[LAPLACE]:.1f}"
    measured = f"{against}; {of_small[EXACT]:.1f} with the exact σ"
    smaller = of_small[PUBLISHED] < of_small[LAPLACE]
    errors = [f"{name} {of_all[name]:.1f}" for name in mechanisms()]
    quantity = f"error over all 25 words ({source}'s counts)"
    return [
        claim(statement, "shown", smaller, measured),
        Comparison(quantity, "", ", ".join(errors)),
    ]


def _shared_counts_line() -> Comparison:
    """Return a line on how many words and counts the shipped table shares with the figure."""
    counts = {}
    for source, words in true_counts().items():
        counts[source] = dict(zip(words["word"], words["count"], strict=True))
    shared = [word for word in counts[PAPER] if word in counts[TABLE]]
    equal = sum(counts[PAPER][word] == counts[TABLE][word] for word in shared)
    ours = f"{len(shared)} of 25 words in both, {equal} counts equal"
    return Comparison("true counts", "another tokeniser (words such as “what's” are split)", ours)
