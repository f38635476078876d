"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dptopk._choices import Counts, Method

__all__ = [
    "Cap",
    "CountsOption",
    "DBar",
    "Delta",
    "Domain",
    "Epsilon",
    "Fit",
    "Format",
    "K",
    "KnownDomain",
    "MethodOption",
    "PerUser",
    "Seed",
]

# How an answer is written.
Format = Literal["table", "csv", "json", "html", "parquet"]

K = Annotated[int, typer.Option("--k", help="How many labels.")]
Epsilon = Annotated[float, typer.Option("--epsilon", help="Total ε of the answer.")]
Delta = Annotated[float, typer.Option("--delta", help="Total δ of the answer.")]
CountsOption = Annotated[Counts, typer.Option("--counts", help="Noise of the released counts.")]
Cap = Annotated[int, typer.Option("--per-label-cap", metavar="τ", help="One user moves one count by at most τ.")]
PerUser = Annotated[
    int | None,
    typer.Option("--labels-per-user", metavar="Δ", help="One user touches at most Δ labels (default: any number)."),
]
DBar = Annotated[
    int | None,
    typer.Option(
        "--d-bar", help="Unknown domain: how many of the largest counts take part (default: 10 k, 100 or more)."
    ),
]
Fit = Annotated[bool, typer.Option("--fit", help="Fit counts to the order of selection (CountMLE).")]
MethodOption = Annotated[Method, typer.Option("--method", help="Select then count, or noise on all counts.")]
KnownDomain = Annotated[bool, typer.Option("--known-domain", help="The labels are public.")]
Domain = Annotated[
    Path | None, typer.Option("--domain", help="Text file of public labels, one a line; absent ones have count 0.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Reproducible noise: for tests, not for production.")]
