"""Base of experiments: a setting, a computation by library calls, a plot, and a comparison with the
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
# A pandas DataFrame. The stubs of pandas type whatever is looked up in one as any of two dozen
# scalars.
Table: TypeAlias = Any
Figure: TypeAlias = "matplotlib.figure.Figure"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """RunSettings of a run of experiments.

    Attributes:
        quick: a smoke run: fewer points and trials, the same code.
        seed: of everything random.
        jobs: processes for independent trials.
        progress: called with the share done, in [0, 1].
    """

    quick: bool = False
    seed: int = 20220501
    jobs: int = 1
    progress: Callable[[float], None] = field(default=lambda _share: None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of the table "paper says / we get"; ``agrees`` is None where the paper gives nothing
    to compare.
    """

    quantity: str
    paper: str
    ours: str
    agrees: bool | None = None


def claim(quantity: str, paper: str, holds: object, measured: str = "") -> Comparison:
    """A line that says whether a statement holds in our numbers, with what was measured."""
    verdict = "holds" if holds else "does not hold"
    if measured:
        verdict = f"{verdict}: {measured}"
    return Comparison(quantity, paper, verdict, bool(holds))


def number(quantity: str, paper: float, ours: float, *, digits: int) -> Comparison:
    """A line that compares a printed number with ours, to the digits after the point that were
    printed.
    """
    rounding = 0.5 * 10.0**-digits * (1 + 1e-9)
    agrees = bool(abs(ours - paper) <= rounding)
    return Comparison(quantity, f"{paper:.{digits}f}", f"{ours:.{digits + 3}f}", agrees)


@dataclass(frozen=True)
class Experiment:
    """One figure.

    Attributes:
        name: as on the command line, such as "ddr-figure-1".
        title: what it shows, in one line.
        source: paper and figure number, or "dptopk" for our own.
        setting: parameters in words.
        compute: the numbers behind the figure, by library calls only; one tidy data frame.
        plot: the figure made of these numbers.
        compare: the table "paper says / we get", made of these numbers.
    """

    name: str
    title: str
    source: str
    setting: str
    compute: Callable[[RunSettings], Table]
    plot: Callable[[Table], Figure]
    compare: Callable[[Table], Sequence[Comparison]]


def in_parallel(task: Callable[[Any], T], inputs: Sequence[Any], settings: RunSettings) -> list[T]:
    """Results of a picklable task on each input, in order, in ``settings.jobs`` processes; reports
    progress.
    """
    run = map if settings.jobs == 1 else _pool(settings.jobs).map
    results: list[T] = []
    for done, result in enumerate(run(task, inputs), start=1):
        results.append(result)
        settings.progress(done / len(inputs))
    return results


def table_of(
    task: Callable[[Any], Any],
    inputs: Sequence[Any],
    settings: RunSettings,
    columns: list[str] | None = None,
) -> Table:
    """A table of the results of a task on each input, computed ``in_parallel``: a row each, or a
    list of rows.
    """
    import pandas as pd

    rows: list[Any] = []
    for found in in_parallel(task, inputs, settings):
        rows += found if isinstance(found, list) else [found]
    return pd.DataFrame(rows, columns=columns)


def generators(settings: RunSettings, trials: int, *purpose: int) -> list[np.random.Generator]:
    """One generator a trial, a function of the seed, the purpose and the trial alone: not of jobs
    or of their order.
    """
    import numpy as np

    seeds = np.random.SeedSequence([settings.seed, *purpose]).spawn(trials)
    return [np.random.default_rng(seed) for seed in seeds]


@cache
def _pool(jobs: int) -> ProcessPoolExecutor:
    """Processes shared by all experiments. Fresh ones, not forks: a fork copies locks held by other
    threads.
    """
    return ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=_end_with_parent
    )


def _end_with_parent() -> None:
    """Workers of a run that is killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


@dataclass(frozen=True)
class ExperimentResult:
    """The result of one experiment: its files (a name with endings .csv, .png, .svg), its table,
    and how it went.
    """

    experiment: Experiment
    stem: Path
    comparisons: tuple[Comparison, ...]
    seconds: float
    resumed: bool
