"""Options that several commands share: those that belong together are the fields of one dataclass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE, METHODS, Counts, Effort
from dptopk._internal.formatting import format_lower
from dptopk.cli.shell import be_quiet, tell
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.ledger.dataset import DatasetState
    from dptopk.ledger.ledger import Ledger

EVENTS, LEDGER, CHAIN, OUTPUT = "Of events", "With a ledger", "The ledger's hash chain", "Output"

K = Annotated[int, typer.Option(help="How many labels.")]
Confidence = Annotated[float, typer.Option(help="Of error bars and of the width of noise: how often they hold.")]
Cap = Annotated[int, typer.Option("--per-label-cap", metavar="τ", help="One user moves one count by at most τ.")]
PerUser = Annotated[
    int | None, typer.Option(metavar="Δ", help="One user touches at most Δ labels (default: any number).")
]
EffortOption = Annotated[
    Effort, typer.Option(help="How much work each bound may take: about 0.25, 2.5 or 25 seconds of one processor.")
]
Domain = Annotated[Path | None, typer.Option(help="Text file of public labels, one a line; absent ones have count 0.")]
Seed = Annotated[int | None, typer.Option(help="Reproducible noise: for tests, not for production.")]


def _share(text: str) -> float | str | None:
    """What --look says; what is neither of its words nor a number is refused by name of the option."""
    return None if text == "none" else text if text == "auto" else float(text)


LOOK = "Plan by a private look at a few ranks, for this share of ε; auto: where it is worth its cost."
Look = Annotated[Any, typer.Option(metavar="[auto|none|SHARE]", parser=_share, help=LOOK)]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", callback=be_quiet, is_eager=True, help="Only the answer, and nothing beside it."),
]


def _methods() -> list[str]:
    from dptopk.planning.designs import method_names

    return list(method_names())


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The arguments of plan_topk that every command that plans takes, under the same names."""

    k: K
    epsilon: Annotated[
        float | None, typer.Option(help="Total ε of the answer: smaller is more private, and noisier.")
    ] = None
    rho: Annotated[
        float | None, typer.Option(help="Instead of --epsilon: the total ρ of zCDP; half of δ is for failures.")
    ] = None
    accuracy: Annotated[
        float | None,
        typer.Option(help="Instead of --epsilon: use the smallest ε whose noise stays within ±N for 95% of counts."),
    ] = None
    delta: Annotated[
        float | None,
        typer.Option(
            help="Total δ of the answer: the probability that the ε guarantee fails. Choose it well below 1/users "
            "(default: 1/(10 users) with --users; with a ledger, a part of its δ)."
        ),
    ] = None
    counts: Annotated[Counts, typer.Option(help="Noise of the released counts.")] = "auto"
    labels_per_user: PerUser = None
    users: Annotated[
        int | None,
        typer.Option(
            help="Number of users, if public. Gives --delta its default, and warns when --delta exceeds 1/users."
        ),
    ] = None
    known_domain: Annotated[bool, typer.Option("--known-domain", help="The labels are public.")] = False
    d_bar: Annotated[
        int | None,
        typer.Option(help="Only the N largest counts are considered (private labels only). Default: chosen for you."),
    ] = None
    method: Annotated[
        str,
        typer.Option(
            metavar=f"[{'|'.join(METHODS)}|NAME]",
            help="How the top k are found; NAME: a design, as [bold]dptopk plan --alternatives[/bold] lists them.",
            autocompletion=_methods,
        ),
    ] = "auto"
    fit: Annotated[
        bool | None,
        typer.Option("--fit/--no-fit", help="Adjust noisy counts so that they agree with the selected ranking."),
    ] = None
    effort: EffortOption = "normal"

    @property
    def total(self) -> dict[str, Any]:
        """The total of an answer as plan_topk takes it: a budget, or an accuracy with its δ.

        Where δ is not given and the number of users is, δ is 1/(10 users), and that is said.
        """
        from dptopk.planning.request import total_of

        delta = self.delta
        if delta is None and self.users is not None:
            delta = float(format_lower(1 / (10 * validate.count(users=self.users)), digits=1))
            tell(f"δ = {delta:g}, about 1/(10 users), as --delta was not given.")
        return total_of(self.epsilon, self.rho, self.accuracy, delta or 0.0, mark="--")

    @property
    def planned(self) -> dict[str, Any]:
        """What else plan_topk takes of them."""
        same = {name: getattr(self, name) for name in ("k", "d_bar", "counts", "method", "users", "effort")}
        return same | {"fit": self.fit is not False}


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the columns of a file mean, and which of its rows are read."""

    label: Annotated[str, typer.Option("--label-col", help="Column of labels.")] = "label"
    count: Annotated[str, typer.Option("--count-col", help="Column of counts.")] = "count"
    user: Annotated[
        str | None, typer.Option("--user-col", help="Of events: column of users; Δ and τ are enforced.")
    ] = None
    item: Annotated[str | None, typer.Option("--item-col", help="Of events: column of labels.")] = None
    separator: Annotated[str | None, typer.Option("--sep", help="Of a CSV file of counts: what separates cells.")] = (
        None
    )
    encoding: Annotated[str, typer.Option(help="Of a text file of counts, such as cp1252.")] = "utf-8"
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only these rows; may be repeated.")
    ] = None
    one_row_per_user: Annotated[
        bool,
        typer.Option(
            "--one-row-per-user", help="Each row is one person, as in a survey: no --user-col.", rich_help_panel=EVENTS
        ),
    ] = False
    memory_limit: Annotated[
        str | None, typer.Option(help="Memory for the engine, such as 4GB.", rich_help_panel=EVENTS)
    ] = None
    passes: Annotated[
        int | None,
        typer.Option(
            help="Split the users into this many parts (default: one, more if need be).", rich_help_panel=EVENTS
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """Where an answer is written, and the confidence of its error bars."""

    out: Annotated[Path | None, typer.Option(help="Write it to this file.", rich_help_panel=OUTPUT)] = None
    confidence: Confidence = CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class Output(Written):
    """How an answer is written, and where."""

    output_format: Annotated[
        Literal["table", "csv", "json", "html", "markdown", "parquet"],
        typer.Option("--format", help="How the answer is written."),
    ] = "table"
    plot: Annotated[
        Path | None, typer.Option(help="Draw it into this PNG or SVG file too.", rich_help_panel=OUTPUT)
    ] = None


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What a ledger's hash chain is checked with."""

    key_file: Annotated[
        Path | None, typer.Option(help="File with the secret that keys it (HMAC).", rich_help_panel=CHAIN)
    ] = None
    head_file: Annotated[
        str | None,
        typer.Option(
            help="File (ideally on another disk) or database URL that stores the chain head, so that a rolled-back "
            "ledger is detected.",
            rich_help_panel=CHAIN,
        ),
    ] = None

    @property
    def key(self) -> bytes | None:
        """The secret in the file, if one is named."""
        from dptopk.ledger.keys import read_key

        return None if self.key_file is None else read_key(**{"key-file": self.key_file})

    def opened(self, url: str, *, create: bool = False, **options: Any) -> Ledger:
        """Open a ledger; only ``ledger init`` makes one that is not there."""
        from dptopk.ledger.ledger import Ledger

        return Ledger(url, key=self.key, head_file=self.head_file, create=create, **options)

    def files(self, url: str | None) -> list[str | Path | None]:
        """A SQLite ledger, its journals and what it is checked with: no command may write an answer over them."""
        return [*(f"{url}{ending}" for ending in ("", "-journal", "-wal", "-shm")), self.key_file, self.head_file]


@dataclass(frozen=True, kw_only=True)
class Book(Chain):
    """A ledger that a command is about."""

    url: Annotated[str, typer.Argument(help="Path of a SQLite file, or the URL of a PostgreSQL database.")]

    def open(self, **options: Any) -> Ledger:
        """Open it."""
        return self.opened(self.url, **options)


@dataclass(frozen=True, kw_only=True)
class Paying(Chain):
    """The data set of a ledger that pays for an answer, and who asks; or none."""

    ledger: Annotated[
        str | None,
        typer.Option(
            help="The ledger that pays: a SQLite file, or the URL of a PostgreSQL database.", rich_help_panel=LEDGER
        ),
    ] = None
    dataset: Annotated[str | None, typer.Option(help="The ledger's dataset.", rich_help_panel=LEDGER)] = None
    analyst: Annotated[str | None, typer.Option(help="Who asks.", rich_help_panel=LEDGER)] = None

    def __post_init__(self) -> None:
        if self.ledger is None and (self.dataset, self.analyst, self.key_file, self.head_file) != (None,) * 4:
            raise InvalidParameter("--key-file, --head-file, --dataset and --analyst need --ledger")
        if self.ledger is not None and (self.dataset is None or self.analyst is None):
            raise InvalidParameter("--ledger needs --dataset and --analyst: what is asked about, and who asks")

    def account(self) -> tuple[Ledger | None, DatasetState | None]:
        """The ledger, open, and what it says of the data set."""
        book = None if self.ledger is None else self.opened(self.ledger)
        return book, None if book is None else book.state(str(self.dataset))


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of each dataclass among its parameters as options of their own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    own, fields = signature(command).parameters, {name: signature(kind).parameters for name, kind in groups.items()}
    order = [one for name in own for one in (fields[name].values() if name in groups else [own[name]])]
    for kind in groups.values():
        hints |= get_type_hints(kind, include_extras=True)

    @wraps(command)
    def run(**options: Any) -> None:
        made = {name: kind(**{one: options.pop(one) for one in fields[name]}) for name, kind in groups.items()}
        command(**made, **options)

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
