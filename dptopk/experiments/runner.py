"""Runs experiments: numbers to CSV, figures to PNG and SVG, everything to one report; resumes where it stopped."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import dptopk
from dptopk.experiments import load
from dptopk.experiments.experiment import Comparison, Experiment, Settings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Outcome", "run"]


@dataclass(frozen=True)
class Outcome:
    """What one experiment gave: its files (a name with endings .csv, .png, .svg), its table, and how it went."""

    experiment: Experiment
    stem: Path
    comparisons: tuple[Comparison, ...]
    seconds: float
    resumed: bool


def run(
    names: Iterable[str],
    out: Path,
    settings: Settings,
    *,
    force: bool = False,
    on_start: Callable[[Experiment], Callable[[float], None]] | None = None,
) -> list[Outcome]:
    """Run experiments by name into a folder, and write report.html over all that were run.

    Args:
        names: keys of EXPERIMENTS.
        out: folder, made if needed.
        settings: quick or not, seed, jobs.
        force: compute again what is there already with the same settings.
        on_start: called with each experiment when it starts; returns the callback for its progress.
    """
    from dptopk.experiments.report import write_report

    out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for name in names:
        experiment = load(name)
        progress = on_start(experiment) if on_start else settings.progress
        own = Settings(quick=settings.quick, seed=settings.seed, jobs=settings.jobs, progress=progress)
        outcomes.append(_run_one(experiment, out / name, own, force))
        progress(1.0)
    write_report(outcomes, out / "report.html", settings)
    return outcomes


def _run_one(experiment: Experiment, stem: Path, settings: Settings, force: bool) -> Outcome:
    start = time.perf_counter()
    data = None if force else _stored(experiment, stem, settings)
    resumed = data is not None
    if data is None:
        data = experiment.compute(settings)
        data.to_csv(stem.with_suffix(".csv"), index=False)
        # Written last: a run that was stopped leaves no mark, and is computed again.
        stem.with_suffix(".json").write_text(json.dumps(_mark(experiment, settings)), encoding="utf-8")
    figure = experiment.plot(data)
    figure.savefig(stem.with_suffix(".png"))
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    return Outcome(experiment, stem, tuple(experiment.compare(data)), time.perf_counter() - start, resumed)


def _mark(experiment: Experiment, settings: Settings) -> dict[str, object]:
    """What a stored CSV was computed with; another setting, version or code makes it stale."""
    import inspect

    code = hashlib.sha256(inspect.getsource(inspect.getmodule(experiment.compute) or experiment.compute).encode())
    return {
        "version": dptopk.__version__,
        "quick": settings.quick,
        "seed": settings.seed,
        "setting": experiment.setting,
        "code": code.hexdigest(),
    }


def _stored(experiment: Experiment, stem: Path, settings: Settings) -> pd.DataFrame | None:
    import pandas as pd

    mark, table = stem.with_suffix(".json"), stem.with_suffix(".csv")
    try:
        if json.loads(mark.read_text(encoding="utf-8")) != _mark(experiment, settings):
            return None
        return pd.read_csv(table)
    except (OSError, ValueError):
        return None
