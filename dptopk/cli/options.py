"""Options that several commands share: those that belong together are the fields of one
dataclass.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, TypeVar, get_type_hints

import typer

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE, Effort
from dptopk._internal.formatting import format_lower
from dptopk.cli.answer_sheet import ENDINGS, Format
from dptopk.cli.fields import question_parameters
from dptopk.cli.shell import be_quiet, tell
from dptopk.errors import InvalidParameter
from dptopk.question import Question

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from dptopk.ledger.dataset import DatasetState
    from dptopk.ledger.ledger import Ledger

T = TypeVar("T")
EVENTS = "Of events"
LEDGER = "With a ledger"
CHAIN = "The ledger's hash chain"
OUTPUT = "Output"

K = Annotated[int, typer.Option(help="How many labels.")]
Confidence = Annotated[
    float, typer.Option(help="Of error bars and of the width of noise: how often they hold.")
]
Cap = Annotated[
    int, typer.Option("--per-label-cap", metavar="τ", help="One user moves one count by at most τ.")
]
PerUser = Annotated[
    int | None,
    typer.Option(
        metavar="Δ",
        help="At most Δ labels of one user: of counts a promise, of events a cap (in two phases "
        "only to find labels).",
    ),
]
EffortOption = Annotated[
    Effort,
    typer.Option(
        help="How much work each bound may take: about 0.25, 2.5 or 25 seconds of one processor."
    ),
]
Domain = Annotated[
    Path | None,
    typer.Option(help="Text file of public labels, one a line; absent ones have count 0."),
]
Seed = Annotated[
    int | None, typer.Option(help="Reproducible noise: for tests, not for production.")
]


Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        callback=be_quiet,
        is_eager=True,
        help="Only the answer, and nothing beside it.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Protected:
    """Options that say how much one user can move, and whether the labels are public."""

    labels_per_user: PerUser = None
    known_domain: Annotated[bool, typer.Option("--known-domain", help="The labels are public.")] = (
        False
    )


def with_delta(question: Question) -> Question:
    """The question with a δ of 1/(10 users), which is said, where the users alone were given.

    Raises:
        InvalidParameter: unless one total is given.
    """
    question.check_total(mark="--")
    if question.delta is not None or question.users is None:
        return question
    users = validate.count(users=question.users)
    delta = float(format_lower(1 / (10 * users), digits=1))
    tell(f"δ = {delta:g}, about 1/(10 users), as --delta was not given.")
    return replace(question, delta=delta)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Options that say what the columns of a file mean, and which of its rows are read."""

    label: Annotated[str, typer.Option("--label-col", help="Column of labels.")] = "label"
    count: Annotated[str, typer.Option("--count-col", help="Column of counts.")] = "count"
    user: Annotated[
        str | None,
        typer.Option("--user-col", help="Of events: column of users; Δ and τ are enforced."),
    ] = None
    item: Annotated[str | None, typer.Option("--item-col", help="Of events: column of labels.")] = (
        None
    )
    separator: Annotated[
        str | None,
        typer.Option("--sep", help="What separates the cells of CSV (default: by the header)."),
    ] = None
    encoding: Annotated[
        str | None, typer.Option(help="Of CSV, such as cp1252 (default: by mark and header).")
    ] = None
    decimal: Annotated[str, typer.Option(help="Of counts in CSV: the mark . or ,")] = "."
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only these rows; may be repeated."),
    ] = None
    one_row_per_user: Annotated[
        bool,
        typer.Option(
            "--one-row-per-user",
            help="Each row is one person, as in a survey: no --user-col.",
            rich_help_panel=EVENTS,
        ),
    ] = False
    memory_limit: Annotated[
        str | None, typer.Option(help="Memory for the engine, such as 4GB.", rich_help_panel=EVENTS)
    ] = None
    passes: Annotated[
        int | None,
        typer.Option(
            help="Split the users into this many parts (default: one, more if need be).",
            rich_help_panel=EVENTS,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """Options for the file of an answer, and for the confidence of its error bars."""

    out: Annotated[
        Path | None, typer.Option(help="Write it to this file.", rich_help_panel=OUTPUT)
    ] = None
    confidence: Confidence = CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class Output(Written):
    """Options for the format of an answer, and for its file."""

    output_format: Annotated[
        Format | None,
        typer.Option("--format", help="How the answer is written (default: by --out, or a table)."),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw it into this PNG or SVG file too.", rich_help_panel=OUTPUT),
    ] = None

    @property
    def form(self) -> Format:
        """The format stated, or that which the name of the file tells."""
        return self.output_format or ENDINGS.get(self.ending, "table")

    @property
    def ending(self) -> str:
        """The ending of the file's name, or nothing."""
        if self.out is None:
            return ""
        return self.out.suffix.lower()


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Options for the check of a ledger's hash chain."""

    key_file: Annotated[
        Path | None,
        typer.Option(help="File with the secret that keys it (HMAC).", rich_help_panel=CHAIN),
    ] = None
    head_file: Annotated[
        str | None,
        typer.Option(
            help="File (ideally on another disk) or database URL that stores the chain head, so "
            "that a rolled-back "
            "ledger is detected.",
            rich_help_panel=CHAIN,
        ),
    ] = None

    def secret(self, url: str) -> bytes | None:
        """The secret of a ledger in the file, if one is named."""
        from dptopk.ledger.keys import read_key
        from dptopk.ledger.log_store import refuse_own_file

        if self.key_file is None:
            return None
        refuse_own_file(url, self.key_file, "--key-file")
        return read_key(self.key_file, "key-file")

    def opened(
        self, url: str, *, create: bool = False, test: bool = False, read_only: bool = False
    ) -> Ledger:
        """Open a ledger; only ``ledger init`` makes one that is not there."""
        from dptopk.ledger.ledger import Ledger

        return Ledger(
            url,
            key=self.secret(url),
            head_file=self.head_file,
            create=create,
            test=test,
            read_only=read_only,
        )

    def files(self, url: str | None) -> list[str | Path | None]:
        """A SQLite ledger, its journals and what it is checked with: no command may write an answer
        over them.
        """
        given = [self.key_file, self.head_file]
        if url is None:
            return given
        # SQLite names the files beside a ledger by the name that a link leads to
        path = os.path.realpath(url.removeprefix("sqlite:///"))
        return [*(f"{path}{ending}" for ending in ("", "-journal", "-wal", "-shm")), *given]


@dataclass(frozen=True, kw_only=True)
class Book(Chain):
    """A ledger that a command is about."""

    url: Annotated[
        str, typer.Argument(help="Path of a SQLite file, or the URL of a PostgreSQL database.")
    ]

    @property
    def key(self) -> bytes | None:
        """Its secret, if a file with one is named."""
        return self.secret(self.url)

    def open(self, *, create: bool = False, test: bool = False, read_only: bool = False) -> Ledger:
        """Open it."""
        return self.opened(self.url, create=create, test=test, read_only=read_only)


@dataclass(frozen=True, kw_only=True)
class PayingLedger(Chain):
    """The data set of a ledger that pays for an answer, and who asks; or none."""

    ledger: Annotated[
        str | None,
        typer.Option(
            help="The ledger that pays: a SQLite file, or the URL of a PostgreSQL database.",
            rich_help_panel=LEDGER,
        ),
    ] = None
    dataset: Annotated[
        str | None, typer.Option(help="The ledger's dataset.", rich_help_panel=LEDGER)
    ] = None
    analyst: Annotated[str | None, typer.Option(help="Who asks.", rich_help_panel=LEDGER)] = None

    def __post_init__(self) -> None:
        if (
            self.ledger is None
            and (self.dataset, self.analyst, self.key_file, self.head_file) != (None,) * 4
        ):
            raise InvalidParameter("--key-file, --head-file, --dataset and --analyst need --ledger")
        needed = {
            "--dataset: what is asked about": self.dataset,
            "--analyst: who asks": self.analyst,
        }
        missing = [what for what, value in needed.items() if value is None]
        if self.ledger is not None and missing:
            raise InvalidParameter(f"--ledger needs {', and '.join(missing)}")

    def account(self) -> tuple[Ledger | None, DatasetState | None]:
        """The ledger, open, and what it says of the data set."""
        if self.ledger is None:
            return None, None
        book = self.opened(self.ledger)
        return book, book.state(str(self.dataset))


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of each dataclass among its parameters as options of their
    own; of a question, those that the command line offers.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if _is_group(kind)}
    own = signature(command).parameters
    fields = {name: _options_of(kind) for name, kind in groups.items()}
    order: list[Parameter] = []
    for name, parameter in own.items():
        order += fields[name].values() if name in groups else [parameter]
    for options in fields.values():
        hints |= {one.name: one.annotation for one in options.values()}

    @wraps(command)
    def run(**options: Any) -> None:
        groups_read = {
            name: _group_of(kind, fields[name], options) for name, kind in groups.items()
        }
        command(**groups_read, **options)

    run.__annotations__ = {one.name: hints[one.name] for one in order}
    parameters = [one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name]) for one in order]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def _is_group(kind: object) -> TypeGuard[type[DataclassInstance]]:
    """Whether the type of a parameter is a dataclass, whose fields are options."""
    return isinstance(kind, type) and is_dataclass(kind)


def _group_of(kind: type[T], fields: dict[str, Parameter], options: dict[str, Any]) -> T:
    """A group of the options, which are taken out of them."""
    own = {name: options.pop(name) for name in fields}
    return kind(**own)


def _options_of(kind: type) -> dict[str, Parameter]:
    """The fields of a dataclass as parameters, with their options."""
    if issubclass(kind, Question):
        return {one.name: one for one in question_parameters(kind)}
    hints = get_type_hints(kind, include_extras=True)
    parameters = signature(kind).parameters.values()
    return {one.name: one.replace(annotation=hints[one.name]) for one in parameters}


def listed_names(**arguments: str) -> list[str]:
    """The names of an option such as 'eu,us'; none of them empty, nor with blanks around it that
    were not meant.
    """
    ((option, text),) = arguments.items()
    names = text.split(",")
    if not all(name and name == name.strip() for name in names):
        raise InvalidParameter(
            f"--{option} must be names with commas alone between them, such as 'eu,us', got "
            f"{text!r}"
        )
    return names
