"""What an experiment is: a setting, a computation by library calls, a plot, and a comparison with the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Experiment", "Settings", "in_parallel"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """How an experiment is run.

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
    """One line of the table "paper says / we get"; ``agrees`` is None where the paper gives nothing to compare."""

    quantity: str
    paper: str
    ours: str
    agrees: bool | None = None


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
    compute: Callable[[Settings], pd.DataFrame]
    plot: Callable[[pd.DataFrame], Figure]
    compare: Callable[[pd.DataFrame], Sequence[Comparison]] = field(default=lambda _data: ())


def in_parallel(task: Callable[[Any], T], inputs: Sequence[Any], settings: Settings) -> list[T]:
    """Results of a picklable task on each input, in order, in ``settings.jobs`` processes; reports progress."""
    results: list[T] = []
    if settings.jobs == 1:
        for done, item in enumerate(inputs, start=1):
            results.append(task(item))
            settings.progress(done / len(inputs))
        return results
    with ProcessPoolExecutor(settings.jobs) as pool:
        for done, result in enumerate(pool.map(task, inputs), start=1):
            results.append(result)
            settings.progress(done / len(inputs))
    return results
