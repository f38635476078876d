"""The type of an experiment and its parts: settings, computation in parallel, comparisons with the
paper.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    import matplotlib.figure
    import numpy as np


T = TypeVar("T")
# A pandas DataFrame. It is Any because the stubs of pandas give an element of a frame the union of
# two dozen scalar types.
Table: TypeAlias = Any
Figure: TypeAlias = "matplotlib.figure.Figure"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of a run of experiments.

    Attributes:
        quick: whether this is a smoke run, with fewer points and trials but the same code.
        seed: the seed of all random numbers.
        jobs: how many processes run independent trials.
        progress: a function that is called with the share done, in [0, 1].
    """

    quick: bool = False
    seed: int = 20220501
    jobs: int = 1
    progress: Callable[[float], None] = field(default=lambda _share: None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of the table "paper says / we get".

    Attributes:
        quantity: the quantity or statement, in words.
        paper: what the paper says; '' where it says nothing.
        ours: what our numbers say.
        agrees: whether the two agree; None where the paper gives nothing to compare.
    """

    quantity: str
    paper: str
    ours: str
    agrees: bool | None = None


def claim(quantity: str, paper: str, holds: object, measured: str = "") -> Comparison:
    """Return a line that says whether a statement holds in our numbers.

    Args:
        quantity: the statement.
        paper: what the paper says about it, such as "proved".
        holds: whether it holds, as a bool of Python or NumPy.
        measured: the numbers behind that, in words.
    """
    verdict = "holds" if holds else "does not hold"
    if measured:
        verdict = f"{verdict}: {measured}"
    return Comparison(quantity, paper, verdict, bool(holds))


def number(quantity: str, paper: float, ours: float, *, digits: int) -> Comparison:
    """Return a line that compares a printed number with ours.

    Args:
        quantity: what the number is, in words.
        paper: the number as printed.
        ours: our number.
        digits: how many digits after the point the paper prints; the numbers agree where they do
            to these.
    """
    rounding = 0.5 * 10.0**-digits * (1 + 1e-9)  # half of the last digit, and its own rounding
    agrees = bool(abs(ours - paper) <= rounding)
    return Comparison(quantity, f"{paper:.{digits}f}", f"{ours:.{digits + 3}f}", agrees)


@dataclass(frozen=True)
class Experiment:
    """An experiment, which makes one figure.

    Attributes:
        name: the name on the command line, such as "ddr-figure-1".
        title: what the figure shows, in one line.
        source: paper and figure number, or "dptopk" for our own.
        setting: the parameters in words.
        compute: returns the numbers behind the figure, by library calls only, as one tidy data
            frame.
        plot: takes these numbers and returns the figure.
        compare: takes these numbers and returns the table "paper says / we get".
    """

    name: str
    title: str
    source: str
    setting: str
    compute: Callable[[RunSettings], Table]
    plot: Callable[[Table], Figure]
    compare: Callable[[Table], Sequence[Comparison]]


def in_parallel(task: Callable[[Any], T], inputs: Sequence[Any], settings: RunSettings) -> list[T]:
    """Return the results of a task on each input, in order; progress is reported after each.

    Args:
        task: a function of one input; pickle must be able to hold it where there are several
            processes.
        inputs: the inputs.
        settings: of the run; ``jobs`` is the number of processes.
    """
    run = map if settings.jobs == 1 else _pool(settings.jobs).map
    results: list[T] = []
    for result in run(task, inputs):
        results.append(result)
        settings.progress(len(results) / len(inputs))
    return results


def table_of(
    task: Callable[[Any], Any],
    inputs: Sequence[Any],
    settings: RunSettings,
    columns: list[str] | None = None,
) -> Table:
    """Return a table of the results of a task on each input, computed ``in_parallel``.

    Args:
        task: returns a row, or a list of rows.
        inputs: the inputs, in the order of the table.
        settings: of the run.
        columns: the names of the columns, if rows are tuples.
    """
    import pandas as pd

    rows: list[Any] = []
    for result in in_parallel(task, inputs, settings):
        if isinstance(result, list):
            rows += result
        else:
            rows.append(result)
    return pd.DataFrame(rows, columns=columns)


def generators(settings: RunSettings, trials: int, *purpose: int) -> list[np.random.Generator]:
    """Return a generator for each trial.

    It depends on the seed, the purpose and the place of the trial alone, not on the number of
    trials or of processes.

    Args:
        settings: the settings, of which the seed counts.
        trials: the number of trials.
        purpose: numbers that distinguish the uses of generators in one experiment; as many for each
            use, since 0 at the end makes no difference.
    """
    import numpy as np

    seeds = np.random.SeedSequence([settings.seed, *purpose]).spawn(trials)
    return [np.random.default_rng(seed) for seed in seeds]


@cache
def _pool(jobs: int) -> ProcessPoolExecutor:
    """Return the pool of processes that all experiments share.

    Processes are spawned, not forked, because a fork copies locks that other threads hold.
    """
    return ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=_end_with_parent
    )


def _end_with_parent() -> None:
    """Make a worker process end with its parent; it would otherwise wait for work for ever if the
    parent is killed.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            """Wait for the parent to end, then end this process."""
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


@dataclass(frozen=True)
class ExperimentResult:
    """The result of one experiment.

    Attributes:
        experiment: the experiment.
        stem: the path of its files without the endings .csv, .png and .svg.
        comparisons: its table "paper says / we get".
        seconds: how long the computation took.
        resumed: whether the numbers are from an earlier run.
    """

    experiment: Experiment
    stem: Path
    comparisons: tuple[Comparison, ...]
    seconds: float
    resumed: bool
