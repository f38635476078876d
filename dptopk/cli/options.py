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
    float,
    typer.Option(help="How often error bars and stated widths of noise hold, in (0, 1)."),
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
    """Options that say how much one user can move, and whether the labels are public.

    Attributes:
        labels_per_user: Δ, the most labels of one user; None: not stated.
        known_domain: whether the labels in the file are public.
    """

    labels_per_user: PerUser = None
    known_domain: Annotated[bool, typer.Option("--known-domain", help="The labels are public.")] = (
        False
    )


def with_delta(question: Question) -> Question:
    """Return the question with its δ filled in: 1/(10 users), if only the number of users was
    given.

    The δ that is filled in is told on standard error.

    Raises:
        InvalidParameter: unless exactly one total (ε, ρ or accuracy) is given, and for a number of
            users below 1 or above 2^62.
    """
    question.check_total(mark="--")
    if question.delta is not None or question.users is None:
        return question
    users = validate.count(at_most=validate.LARGEST, users=question.users)  # so that δ is above 0
    delta = float(format_lower(1 / (10 * users), digits=1))
    tell(f"δ = {delta:g}, about 1/(10 users), as --delta was not given.")
    return replace(question, delta=delta)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Options that say what the columns of a file mean, and which of its rows are read.

    Attributes:
        label: of a table of counts, the column of labels.
        count: of a table of counts, the column of counts.
        user: of events, the column of users; None: the file is a table of counts, or each row is
            another person.
        item: of events, the column of labels; None: the file is a table of counts.
        separator: the separator of a CSV file; None: it is found by the header line.
        encoding: the encoding of a CSV file; None: it is found by the header line.
        decimal: the decimal mark of counts in a CSV file, "." or ",".
        where: conditions "column=value" that rows must meet; None: all rows are read.
        one_row_per_user: of events, whether each row is another person.
        memory_limit: of events, the memory of the engine, such as "4GB"; None: its own choice.
        passes: of events, the number of parts of the users that are read one after the other; None:
            one, or more if memory needs it.
    """

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
        str | None,
        typer.Option(help="Encoding of CSV, such as cp1252 (default: by its header line)."),
    ] = None
    decimal: Annotated[str, typer.Option(help="Decimal mark of counts in CSV: . or ,")] = "."
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Only rows with this value in this column; may be repeated.",
        ),
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
        str | None,
        typer.Option(
            help="Memory for the engine that reads events, such as 4GB.", rich_help_panel=EVENTS
        ),
    ] = None
    passes: Annotated[
        int | None,
        typer.Option(
            help="Split the users into this many parts (default: one, more if need be).",
            rich_help_panel=EVENTS,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AnswerFile:
    """Options for the file of an answer, and for the confidence of its error bars.

    Attributes:
        out: the file; None: standard output.
        confidence: the confidence of the error bars, in (0, 1).
    """

    out: Annotated[
        Path | None, typer.Option(help="Write the answer to this file.", rich_help_panel=OUTPUT)
    ] = None
    confidence: Confidence = CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class Output(AnswerFile):
    """Options for the format of an answer, for its file, and for a plot of it.

    Attributes:
        output_format: the format as stated; None: see ``form``.
        plot: the file of the plot; None: there is no plot.
    """

    output_format: Annotated[
        Format | None,
        typer.Option("--format", help="How the answer is written (default: by --out, or a table)."),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the answer into this PNG or SVG file too.", rich_help_panel=OUTPUT),
    ] = None

    @property
    def form(self) -> Format:
        """Return the format of the answer: the one stated, else the one that the file's name ends
        in, else a table.
        """
        return self.output_format or ENDINGS.get(self.ending, "table")

    @property
    def ending(self) -> str:
        """Return the ending of the output file's name in lower case, such as ".csv"; empty if no
        file is named.
        """
        if self.out is None:
            return ""
        return self.out.suffix.lower()


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Options for the check of a ledger's hash chain.

    Attributes:
        key_file: the file with the secret of the chain; None: it has none.
        head_file: a path or URL, the place where the chain's head is stored; None: nowhere.
    """

    key_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the secret key of the chain (HMAC), if it has one.",
            rich_help_panel=CHAIN,
        ),
    ] = None
    head_file: Annotated[
        str | None,
        typer.Option(
            help="File (ideally on another disk) or database URL that stores the chain head, so "
            "that a rolled-back ledger is detected.",
            rich_help_panel=CHAIN,
        ),
    ] = None

    def secret(self, url: str) -> bytes | None:
        """Return the secret in --key-file that keys the hash chain of the ledger at ``url``; None
        without the option.

        Raises:
            InvalidParameter: if the key file is the ledger itself, or cannot be read.
        """
        from dptopk.ledger.keys import read_key
        from dptopk.ledger.log_store import refuse_own_file

        if self.key_file is None:
            return None
        refuse_own_file(url, self.key_file, "--key-file")
        return read_key(self.key_file, "key-file")

    def open_ledger(
        self, url: str, *, create: bool = False, test: bool = False, read_only: bool = False
    ) -> Ledger:
        """Return an open ledger, whose hash chain is checked with the secret and the head of these
        options; only ``ledger init`` creates one that does not exist.

        Args:
            url: path of a SQLite file, or URL of a database.
            create: whether the ledger is made if it does not exist.
            test: whether a new ledger accepts fixed seeds.
            read_only: whether nothing can be written to it.

        Raises:
            InvalidParameter: for a key file or a head that cannot be read, or is in the ledger.
            LedgerError: when the ledger cannot be opened, or does not fit the secret or the head.
        """
        from dptopk.ledger.ledger import Ledger

        return Ledger(
            url,
            key=self.secret(url),
            head_file=self.head_file,
            create=create,
            test=test,
            read_only=read_only,
        )

    def files_to_spare(self, url: str | None) -> list[str | Path | None]:
        """Return the files that no command may write an answer over: a SQLite ledger, its journals,
        the key and the head, as ``check_target`` takes them.

        A file that is not named is None, and a database's URL is among them as it is: neither is
        the path of a file to be written.

        Args:
            url: path or URL of the ledger; None: only the key and the head.
        """
        evidence = [self.key_file, self.head_file]
        if url is None:
            return evidence
        # SQLite names the files beside a ledger by the name that a link leads to
        path = os.path.realpath(url.removeprefix("sqlite:///"))
        journals = [f"{path}{ending}" for ending in ("-journal", "-wal", "-shm")]
        return [path, *journals, *evidence]


@dataclass(frozen=True, kw_only=True)
class Book(Chain):
    """The ledger that a command reads or changes, with the options that check its hash chain.

    Attributes:
        url: the path or URL of the ledger.
    """

    url: Annotated[
        str, typer.Argument(help="Path of a SQLite file, or the URL of a PostgreSQL database.")
    ]

    @property
    def key(self) -> bytes | None:
        """Return the secret that keys this ledger's hash chain; None if no key file is named."""
        return self.secret(self.url)

    def open(self, *, create: bool = False, test: bool = False, read_only: bool = False) -> Ledger:
        """Return this ledger, open; arguments and errors are those of ``Chain.open_ledger``.

        Args:
            create: whether the ledger is made if it does not exist.
            test: whether a new ledger accepts fixed seeds.
            read_only: whether nothing can be written to it.
        """
        return self.open_ledger(self.url, create=create, test=test, read_only=read_only)


@dataclass(frozen=True, kw_only=True)
class PayingLedger(Chain):
    """The data set of a ledger that pays for an answer, and who asks; or none.

    Attributes:
        ledger: the path or URL of the ledger; None: nothing pays.
        dataset: the name of the data set in it; given with ``ledger``.
        analyst: the name of the analyst; given with ``ledger``.
    """

    ledger: Annotated[
        str | None,
        typer.Option(
            help="The ledger that pays: a SQLite file, or the URL of a PostgreSQL database.",
            rich_help_panel=LEDGER,
        ),
    ] = None
    dataset: Annotated[
        str | None, typer.Option(help="Name of the dataset in the ledger.", rich_help_panel=LEDGER)
    ] = None
    analyst: Annotated[
        str | None,
        typer.Option(
            help="Name of who asks, to whom the answer is charged.", rich_help_panel=LEDGER
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse options of a ledger without --ledger, and --ledger without a data set or analyst.

        Raises:
            InvalidParameter: naming what is missing.
        """
        options = (self.dataset, self.analyst, self.key_file, self.head_file)
        if self.ledger is None and any(option is not None for option in options):
            raise InvalidParameter("--key-file, --head-file, --dataset and --analyst need --ledger")
        needed = {
            "--dataset: what is asked about": self.dataset,
            "--analyst: who asks": self.analyst,
        }
        missing = [what for what, value in needed.items() if value is None]
        if self.ledger is not None and missing:
            raise InvalidParameter(f"--ledger needs {', and '.join(missing)}")

    def account(self) -> tuple[Ledger | None, DatasetState | None]:
        """Return the open ledger and the state of the data set in it; None and None without
        --ledger.

        Raises:
            InvalidParameter: for a data set that the ledger does not have.
            LedgerError: when the ledger cannot be opened.
        """
        if self.ledger is None:
            return None, None
        book = self.open_ledger(self.ledger)
        return book, book.state(str(self.dataset))  # a name: __post_init__ refuses None here


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with a flat list of options, as typer needs them.

    typer knows no groups: it makes an option of each parameter of a function. So a parameter whose
    type is a dataclass is replaced by the fields of that dataclass; of ``Question`` only by the
    fields that the command line offers. When the new command is called it makes the dataclasses
    from the options and calls the old one.

    Args:
        command: a function whose parameters are options or groups of them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if _is_group(kind)}
    fields = {name: _options_of(kind) for name, kind in groups.items()}
    flat: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            flat += fields[name].values()
        else:
            flat.append(parameter)
    for options in fields.values():
        hints |= {option.name: option.annotation for option in options.values()}

    @wraps(command)
    def run(**options: Any) -> None:
        """Call the command with its groups of options made from the single ones."""
        values = {name: _group_of(kind, fields[name], options) for name, kind in groups.items()}
        command(**values, **options)

    # typer asks a function for its annotations and its signature.
    run.__annotations__ = {option.name: hints[option.name] for option in flat}
    parameters = [
        option.replace(kind=option.KEYWORD_ONLY, annotation=hints[option.name]) for option in flat
    ]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def _is_group(kind: object) -> TypeGuard[type[DataclassInstance]]:
    """Return whether a parameter's type is a dataclass, whose fields are options of the command."""
    return isinstance(kind, type) and is_dataclass(kind)


def _group_of(kind: type[T], fields: dict[str, Parameter], options: dict[str, Any]) -> T:
    """Return a dataclass made from its options.

    Args:
        kind: the dataclass.
        fields: its options, by the name of the field.
        options: the values of all options of the command; those of the fields are removed.
    """
    values = {name: options.pop(name) for name in fields}
    return kind(**values)


def _options_of(kind: type) -> dict[str, Parameter]:
    """Return the parameters of a dataclass by name, each annotated with its option."""
    if issubclass(kind, Question):
        return {parameter.name: parameter for parameter in question_parameters(kind)}
    hints = get_type_hints(kind, include_extras=True)
    parameters = signature(kind).parameters
    return {name: parameters[name].replace(annotation=hints[name]) for name in parameters}


def names_in_list(**arguments: str) -> list[str]:
    """Return the names in the text of a list such as 'eu,us'.

    Args:
        arguments: one keyword, the option's name for messages, with the text that was given.

    Raises:
        InvalidParameter: naming the option, for an empty name or blanks around one.
    """
    ((option, text),) = arguments.items()
    names = text.split(",")
    if not all(name and name == name.strip() for name in names):
        raise InvalidParameter(
            f"--{option} must be names with commas alone between them, such as 'eu,us', got "
            f"{text!r}"
        )
    return names
