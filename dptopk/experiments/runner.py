"""The runner of experiments: it writes numbers as CSV, figures as PNG and SVG, and one report, and
resumes where it was stopped.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import dptopk
from dptopk.experiments import EXPERIMENTS, load
from dptopk.experiments.experiment import Experiment, ExperimentResult, RunSettings
from dptopk.experiments.report import write_report

if TYPE_CHECKING:
    import pandas as pd


def run(
    names: Iterable[str],
    out: Path,
    settings: RunSettings,
    *,
    force: bool = False,
    on_start: Callable[[Experiment], Callable[[float], None]] | None = None,
) -> list[ExperimentResult]:
    """Run experiments by name, write their files into a folder, and write report.html about all
    experiments in the folder.

    Numbers that were computed before with the same code and settings are read from their CSV. The
    report is updated after each experiment, so that a run that is stopped leaves a report of the
    experiments that are complete.

    Args:
        names: names in EXPERIMENTS.
        out: the folder, which is created if needed.
        settings: quick or not, seed, number of processes.
        force: whether to compute numbers again that are there already.
        on_start: called with each experiment when it starts; returns the callback for its progress.

    Returns:
        The results of ``names``, in their order.

    Raises:
        InvalidParameter: for an unknown name, before anything runs.
    """
    experiments = [load(name) for name in dict.fromkeys(names)]
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, ExperimentResult] = {}
    for name in set(EXPERIMENTS) - {experiment.name for experiment in experiments}:
        earlier_result = _earlier_result(name, out, settings)
        if earlier_result is not None:
            results[name] = earlier_result
    for experiment in experiments:
        progress = on_start(experiment) if on_start else settings.progress
        own_settings = replace(settings, progress=progress)
        stem = out / experiment.name
        results[experiment.name] = _run_one(experiment, stem, own_settings, force)
        progress(1.0)
        in_order = [results[name] for name in EXPERIMENTS if name in results]
        write_report(in_order, out / "report.html", settings)
    return [results[experiment.name] for experiment in experiments]


def _run_one(
    experiment: Experiment, stem: Path, settings: RunSettings, force: bool
) -> ExperimentResult:
    """Compute one experiment, unless its numbers are stored, write its figure, and return the
    result.

    Args:
        experiment: the experiment.
        stem: the path of its files without their endings.
        settings: of the run.
        force: whether numbers are computed that are stored already.
    """
    stored = None if force else _stored_table(stem, settings)
    if stored is None:
        seconds = _compute(experiment, stem, settings)
    else:
        _, seconds = stored
    # The numbers are read back, so that the figure is the same if they were computed earlier.
    data = _read(stem)
    figure = experiment.plot(data)
    figure.savefig(stem.with_suffix(".png"))
    figure.set_layout_engine("none")  # laid out already
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    return ExperimentResult(
        experiment, stem, tuple(experiment.compare(data)), seconds, stored is not None
    )


def _compute(experiment: Experiment, stem: Path, settings: RunSettings) -> float:
    """Compute the numbers of an experiment, write them as CSV, and return the seconds it took.

    The file that marks them as complete is written last, so that a run which is stopped is computed
    again.

    Args:
        experiment: the experiment.
        stem: the path of its files without their endings.
        settings: of the run.
    """
    start = time.perf_counter()
    table = stem.with_suffix(".csv")
    mark = stem.with_suffix(".json")
    mark.unlink(missing_ok=True)
    experiment.compute(settings).to_csv(table, index=False)
    seconds = time.perf_counter() - start
    content = _mark(settings) | {"seconds": seconds, "table": _digest(table)}
    mark.write_text(json.dumps(content), encoding="utf-8")
    return seconds


def _earlier_result(name: str, out: Path, settings: RunSettings) -> ExperimentResult | None:
    """Return an experiment's result from an earlier run into this folder; None if it is incomplete
    or out of date.

    Args:
        name: the name of the experiment.
        out: the folder.
        settings: of this run, which those of the earlier one must equal.
    """
    stem = out / name
    stored = _stored_table(stem, settings)
    pictures = (stem.with_suffix(".png"), stem.with_suffix(".svg"))
    if stored is None or not all(picture.exists() for picture in pictures):
        return None
    experiment = load(name)
    data, seconds = stored
    return ExperimentResult(
        experiment, stem, tuple(experiment.compare(data)), seconds, resumed=True
    )


def _mark(settings: RunSettings) -> dict[str, object]:
    """Return the settings, version and code of this run; a CSV that was computed with others is
    out of date.
    """
    return {
        "quick": settings.quick,
        "seed": settings.seed,
        "version": dptopk.__version__,
        "code": _digest_of_package(),
    }


@cache
def _digest_of_package() -> str:
    """Return the SHA-256 of the package's code and data, because the figures depend on all of
    it.
    """
    root = Path(dptopk.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*")):
        if file.suffix in (".py", ".csv"):
            name = file.relative_to(root).as_posix()
            digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _digest(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _stored_table(stem: Path, settings: RunSettings) -> tuple[pd.DataFrame, float] | None:
    """Return the table of an earlier run, and the seconds that its computation took; None if there
    is none, or it was computed with other settings or other code.

    Args:
        stem: the path of the experiment's files without their endings.
        settings: of this run.
    """
    try:
        mark = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
        expected = _mark(settings) | {"table": _digest(stem.with_suffix(".csv"))}
        if not expected.items() <= mark.items():
            return None
        return _read(stem), float(mark["seconds"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def _read(stem: Path) -> pd.DataFrame:
    """Return the numbers of an experiment, as they are stored."""
    import pandas as pd

    return pd.read_csv(stem.with_suffix(".csv"))
