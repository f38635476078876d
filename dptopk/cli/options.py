"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from dptopk._internal import validate
from dptopk._internal.choices import METHODS, Counts, Effort
from dptopk._internal.formatting import format_lower
from dptopk.cli.shell import be_quiet, tell
from dptopk.errors import InvalidParameter

# How an answer is written.
Format = Literal["table", "csv", "json", "html", "markdown", "parquet"]


K = Annotated[int, typer.Option("--k", help="How many labels.")]
Epsilon = Annotated[
    float | None, typer.Option("--epsilon", help="Total ε of the answer: smaller is more private, and noisier.")
]
Accuracy = Annotated[
    float | None,
    typer.Option(
        "--accuracy", help="Instead of --epsilon: use the smallest ε whose noise stays within ±N for 95% of counts."
    ),
]
Confidence = Annotated[
    float, typer.Option("--confidence", help="Of error bars and of the width of noise: how often they hold.")
]
Delta = Annotated[
    float | None,
    typer.Option(
        "--delta",
        help="Total δ of the answer: the probability that the ε guarantee fails. Choose it well below 1/users "
        "(default: 1/(10 users) with --users; with a ledger, a part of its δ).",
    ),
]
CountsOption = Annotated[Counts, typer.Option("--counts", help="Noise of the released counts.")]
Cap = Annotated[int, typer.Option("--per-label-cap", metavar="τ", help="One user moves one count by at most τ.")]
PerUser = Annotated[
    int | None,
    typer.Option("--labels-per-user", metavar="Δ", help="One user touches at most Δ labels (default: any number)."),
]
DBar = Annotated[
    int | None,
    typer.Option(
        "--d-bar", help="Only the N largest counts are considered (private labels only). Default: chosen automatically."
    ),
]
Fit = Annotated[
    bool | None,
    typer.Option("--fit/--no-fit", help="Adjust noisy counts so that they agree with the selected ranking."),
]

EffortOption = Annotated[
    Effort,
    typer.Option("--effort", help="How much work each bound may take: about 0.25, 2.5 or 25 seconds of one processor."),
]


def _methods() -> list[str]:
    from dptopk.planning.designs import method_names

    return list(method_names())


MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        metavar=f"[{'|'.join(METHODS)}|NAME]",
        help="How the top k are found; NAME: a design, as [bold]dptopk plan --alternatives[/bold] lists them.",
        autocompletion=_methods,
    ),
]
KnownDomain = Annotated[bool, typer.Option("--known-domain", help="The labels are public.")]
Domain = Annotated[
    Path | None, typer.Option("--domain", help="Text file of public labels, one a line; absent ones have count 0.")
]
Users = Annotated[
    int | None,
    typer.Option(
        "--users", help="Number of users, if public. Gives --delta its default, and warns when --delta exceeds 1/users."
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Reproducible noise: for tests, not for production.")]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Only the answer: no warnings, notes or progress beside it.",
        callback=be_quiet,
        is_eager=True,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The arguments of plan_topk that are options of every command that plans: their one definition."""

    k: K
    epsilon: Epsilon = None
    accuracy: Accuracy = None
    counts: CountsOption = "auto"
    labels_per_user: PerUser = None
    users: Users = None
    known_domain: KnownDomain = False
    d_bar: DBar = None
    method: MethodOption = "auto"
    fit: Fit = None
    effort: EffortOption = "normal"

    def total(self, delta: float | None) -> dict[str, Any]:
        """The total of an answer as plan_topk takes it: a budget, or an accuracy with its δ.

        Where δ is not given and the number of users is, δ is 1/(10 users), and that is said.
        """
        from dptopk.costs import Budget

        if delta is None and self.users is not None:
            delta = float(format_lower(1 / (10 * validate.count(users=self.users)), digits=1))
            tell(f"δ = {delta:g}, about 1/(10 users), as --delta was not given.")
        delta = delta or 0.0
        if (self.epsilon is None) == (self.accuracy is None):
            raise InvalidParameter("give exactly one of --epsilon and --accuracy")
        if self.epsilon is None:
            return {"accuracy": self.accuracy, "delta": delta}
        return {"budget": Budget(self.epsilon, delta)}

    @property
    def planned(self) -> dict[str, Any]:
        """What else plan_topk takes of them."""
        same = {name: getattr(self, name) for name in ("k", "d_bar", "counts", "method", "users", "effort")}
        return same | {"fit": self.fit is not False}


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of Asked where it has ``asked``."""
    hints = get_type_hints(command, include_extras=True) | get_type_hints(Asked, include_extras=True)
    own, shared = signature(command).parameters, signature(Asked).parameters
    order = [one for name in own for one in (shared.values() if name == "asked" else [own[name]])]

    @wraps(command)
    def run(**options: Any) -> None:
        command(asked=Asked(**{name: options.pop(name) for name in shared}), **options)

    run.__annotations__ = {one.name: hints[one.name] for one in order}
    taken = [one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name]) for one in order]
    run.__signature__ = Signature(taken)  # type: ignore[attr-defined]
    return run


def listed_names(**arguments: str) -> list[str]:
    """The names of an option such as 'eu,us'; none of them empty, nor with blanks around it that were not meant."""
    ((option, text),) = arguments.items()
    names = text.split(",")
    if not all(name and name == name.strip() for name in names):
        raise InvalidParameter(
            f"--{option} must be names with commas alone between them, such as 'eu,us', got {text!r}"
        )
    return names


def warn(warnings: list[str]) -> None:
    """Say on standard error what is doubtful; nothing is refused."""
    for warning in warnings:
        tell(f"Warning: {warning}", typer.colors.YELLOW)
