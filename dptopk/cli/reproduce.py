"""``dptopk reproduce``: the figures of the papers and our own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dptopk.cli.shell import progress

if TYPE_CHECKING:
    from dptopk.experiments.experiment import Comparison, Experiment


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names of experiments, or 'all'; without one they are listed."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for CSV, PNG, SVG and report.html.")] = Path(
        "figures"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke run: few points and trials.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Compute again what is already there.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 20220501,
    jobs: Annotated[
        int, typer.Option(help="Number of processes for trials; 0: one for each core.")
    ] = 0,
) -> None:
    """Make the figures of the papers, each with its data, and one report "paper says / we get"."""
    from dptopk.experiments import EXPERIMENTS, load
    from dptopk.experiments.experiment import RunSettings
    from dptopk.experiments.runner import run

    if not names:
        for name in EXPERIMENTS:
            experiment = load(name)
            typer.echo(f"{name:28} {experiment.title}  [{experiment.source}]")
        return
    chosen_names = list(EXPERIMENTS) if names == ["all"] else names
    for name in chosen_names:
        load(name)  # refuse unknown names before anything runs
    import matplotlib as mpl  # noqa: F401 - says what to install before anything runs

    settings = RunSettings(quick=quick, seed=seed, jobs=jobs or os.cpu_count() or 1)
    with progress() as bars:

        def on_start(experiment: Experiment) -> Callable[[float], None]:
            """Add a progress bar; return the function that sets which share is done."""
            task = bars.add_task(experiment.name, total=1.0)
            return lambda share: bars.update(task, completed=share)

        outcomes = run(chosen_names, out, settings, force=force, on_start=on_start)
    for outcome in outcomes:
        typer.echo(f"{outcome.experiment.name:28} {_verdict(outcome.comparisons)}")
    typer.echo(f"report: {out / 'report.html'}")


def _verdict(comparisons: Sequence[Comparison]) -> str:
    """Return one line on how many of the paper's statements hold, and which do not; statements
    that nothing can be compared with are left out.
    """
    agreeing = [line for line in comparisons if line.agrees is True]
    contradicted = [line for line in comparisons if line.agrees is False]
    parts = []
    if len(agreeing) == 1:
        parts.append("1 statement holds")
    elif agreeing:
        parts.append(f"{len(agreeing)} statements hold")
    parts += [f"does not hold: {line.quantity}" for line in contradicted]
    return "; ".join(parts)
