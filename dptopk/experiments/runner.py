"""Runs experiments: numbers to CSV, figures to PNG and SVG, everything to one report; resumes where
it stopped.
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
    """Run experiments by name into a folder, and write report.html over all that the folder holds.

    What was computed before with the same code and settings is taken from its CSV. The report is
    brought up to date after each experiment, so a run that is stopped leaves a report of what is
    done.

    Args:
        names: of EXPERIMENTS.
        out: folder, made if needed.
        settings: quick or not, seed, jobs.
        force: compute again what is there already with the same settings.
        on_start: called with each experiment when it starts; returns the callback for its progress.

    Returns:
        The outcomes of ``names``, in their order.

    Raises:
        InvalidParameter: for an unknown name, before anything runs.
    """
    wanted = [load(name) for name in dict.fromkeys(names)]
    out.mkdir(parents=True, exist_ok=True)
    done: dict[str, ExperimentResult] = {}
    for name in set(EXPERIMENTS) - {experiment.name for experiment in wanted}:
        earlier = _earlier(name, out, settings)
        if earlier is not None:
            done[name] = earlier
    for experiment in wanted:
        progress = on_start(experiment) if on_start else settings.progress
        own = replace(settings, progress=progress)
        done[experiment.name] = _run_one(experiment, out / experiment.name, own, force)
        progress(1.0)
        in_order = [done[name] for name in EXPERIMENTS if name in done]
        write_report(in_order, out / "report.html", settings)
    return [done[experiment.name] for experiment in wanted]


def _run_one(
    experiment: Experiment, stem: Path, settings: RunSettings, force: bool
) -> ExperimentResult:
    start = time.perf_counter()
    stored = None if force else _stored(stem, settings)
    seconds = stored[1] if stored else 0.0
    if stored is None:
        table = stem.with_suffix(".csv")
        mark = stem.with_suffix(".json")
        mark.unlink(missing_ok=True)
        experiment.compute(settings).to_csv(table, index=False)
        seconds = time.perf_counter() - start
        # Written last: a run that was stopped leaves no mark, and is computed again.
        stated = _mark(settings) | {"seconds": seconds, "table": _digest(table)}
        mark.write_text(json.dumps(stated), encoding="utf-8")
    # As written, so that the figure is the same whether or not it was computed just now.
    data = _read(stem)
    figure = experiment.plot(data)
    figure.savefig(stem.with_suffix(".png"))
    figure.set_layout_engine("none")  # laid out already
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    return ExperimentResult(
        experiment, stem, tuple(experiment.compare(data)), seconds, stored is not None
    )


def _earlier(name: str, out: Path, settings: RunSettings) -> ExperimentResult | None:
    """Return an experiment's result from an earlier run into this folder, if complete and up to
    date.
    """
    stem = out / name
    stored = _stored(stem, settings)
    pictures = (stem.with_suffix(".png"), stem.with_suffix(".svg"))
    if stored is None or not all(picture.exists() for picture in pictures):
        return None
    experiment = load(name)
    data, seconds = stored
    return ExperimentResult(
        experiment, stem, tuple(experiment.compare(data)), seconds, resumed=True
    )


def _mark(settings: RunSettings) -> dict[str, object]:
    """Return the settings, version and code that a CSV was computed with; if they differ, it is
    stale.
    """
    return {
        "quick": settings.quick,
        "seed": settings.seed,
        "version": dptopk.__version__,
        "code": _code(),
    }


@cache
def _code() -> str:
    """A digest of the whole package: the figures depend on all of it."""
    root = Path(dptopk.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*")):
        if file.suffix in (".py", ".csv"):
            name = file.relative_to(root).as_posix()
            digest.update(name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _stored(stem: Path, settings: RunSettings) -> tuple[pd.DataFrame, float] | None:
    """The table of an earlier run and the seconds that it took, if the mark fits the settings and
    the table.
    """
    try:
        mark = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
        wanted = _mark(settings) | {"table": _digest(stem.with_suffix(".csv"))}
        if not wanted.items() <= mark.items():
            return None
        return _read(stem), float(mark["seconds"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def _read(stem: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(stem.with_suffix(".csv"))
