"""``dptopk topk FILE`` on a terminal: ask what is needed, show the plan, and return the options
that say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.prompt import Confirm, Prompt

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.formatting import (
    describe_l0,
    format_exact,
    format_lower,
    format_upper,
    percent,
    visible,
)
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from typer._click.core import Parameter

    from dptopk.planning import TopKPlan

T = TypeVar("T")
# What a row may be: the number that is typed.
EVENT = "1"
PERSON = "2"
COUNTED_LABEL = "3"
ROWS = {
    EVENT: "an event; a column says which person it is of",
    PERSON: "a person; every row is another one",
    COUNTED_LABEL: "a label and its count; the rows are counted already",
}
# What a row is -> the question about the cap, and its default; where it is a person, the cap is 1.
CAPS = {
    EVENT: (
        "Limit each person to how many labels while labels are looked for (a number, or auto)",
        "auto",
    ),
    COUNTED_LABEL: (
        "At how many labels can one person be counted at most (a number, or any)",
        "any",
    ),
}
EPSILON = (
    "ε limits what the answer can tell about one person: at 1, nobody's odds of guessing something "
    "about them get more than 2.7 times better; smaller is more private, and noisier."
)
DELTA = (
    "δ is the probability that this guarantee fails; it should be well below 1 over the "
    "number of people."
)
# How the names of columns that hold people, or counts, begin.
PEOPLE = ("user", "member", "person", "customer", "patient", "id")
COUNTS = ("count", "n", "number", "total")

LIKELY_NAMES = {"--user-col": PEOPLE, "--count-col": COUNTS}
# What a row is -> option for a column -> the question about it.
LABELS = "Which column holds the labels"
COLUMNS = {
    EVENT: {"--user-col": "Which column says whose event it is", "--item-col": LABELS},
    PERSON: {"--item-col": LABELS},
    COUNTED_LABEL: {"--label-col": LABELS, "--count-col": "Which column holds the counts"},
}


@dataclass(frozen=True)
class GuidedAnswers:
    """The answers to the guide's questions.

    Attributes:
        kind: what a row is, a key of ROWS.
        columns: option -> column of the file.
        k: how many labels are wanted.
        cap: the most labels of one person; None: not limited, or chosen by the plan.
        epsilon, delta: the total of the answer.
    """

    kind: str
    columns: dict[str, str]
    k: int
    cap: int | None
    epsilon: float
    delta: float

    def arguments(self) -> list[str]:
        """Return the command-line arguments that say the same."""
        typed = ["--one-row-per-user"] if self.kind == PERSON else []
        for option, column in self.columns.items():
            typed += [option, column]
        typed += ["--k", str(self.k)]
        if self.cap is not None:
            typed += ["--labels-per-user", str(self.cap)]
        typed += ["--epsilon", format_exact(self.epsilon)]
        return [*typed, "--delta", format_exact(self.delta)]


def ask_for_arguments(file: str, params: list[Parameter]) -> list[str]:
    """Ask for what is needed, show the plan, and return the arguments of ``dptopk topk`` beside the
    file.

    Of the file only the names of its columns are read.

    Args:
        file: the file's path.
        params: the parameters of the command, which tell the options that it has.

    Raises:
        InvalidParameter: when the file cannot be read, or has too few columns.
        typer.Exit: when the plan is declined.
    """
    from dptopk.datasets import columns_of
    from dptopk.datasets.text_files import is_text_file
    from dptopk.planning.request import number_of_labels

    console = Console(highlight=False)
    columns = columns_of(file)
    column_list = ", ".join(map(visible, columns))
    console.print(f"{escape(visible(file))} has the columns {escape(column_list)}.")
    if is_text_file(file):
        console.print(_format_sentence(file))
    console.print()
    kind = _ask_kind_of_row(columns, params, console)
    column_of_option = _ask_columns(kind, columns, console)
    k_question = "How many labels do you want"
    k = _ask(console, k_question, "10", lambda text: number_of_labels(int(text)))
    cap = _ask(console, *CAPS[kind], _parsed_cap) if kind in CAPS else None
    epsilon, delta = _ask_total(console)
    answers = GuidedAnswers(kind, column_of_option, k, cap, epsilon, delta)
    _show_plan(answers, console)
    if not Confirm.ask("Ask this, once", default=True, console=console):
        console.print("Nothing was read, and nothing was spent.")
        raise typer.Exit
    return answers.arguments()


def _ask_kind_of_row(columns: list[str], params: list[Parameter], console: Console) -> str:
    """Ask what a row is, of the kinds that the command has options for; return the key of ROWS.

    Args:
        columns: the names of the file's columns, by which a kind is suggested.
        params: the parameters of the command, which tell the options that it has.
        console: the terminal.
    """
    rows_are_people = any("--one-row-per-user" in param.opts for param in params)
    kinds = [kind for kind in ROWS if kind != PERSON or rows_are_people]
    for kind in kinds:
        console.print(f"  {kind}. {ROWS[kind]}")
    default_kind = _likely_kind(columns, kinds)
    return Prompt.ask("What is a row", choices=kinds, default=default_kind, console=console)


def _format_sentence(file: str) -> str:
    """Return a sentence on how a text file is read, and how to change that."""
    from dptopk.datasets.text_files import text_format

    text = text_format(file)
    return (
        f"It is read with {text.in_words()}, by its header line. If that is wrong, leave here "
        "(Ctrl-C) and add --sep or --encoding."
    )


def _ask_total(console: Console) -> tuple[float, float]:
    """Ask for ε and δ, and return them; the number of people, if it is known, gives δ its
    default.
    """
    console.print(f"\n{EPSILON}")
    epsilon = _ask(console, "ε", "1", lambda text: validate.positive(epsilon=float(text)))
    console.print(f"\n{DELTA}")
    people = _ask(
        console,
        "About how many people are in the data (a public number, or unknown)",
        "unknown",
        _parsed_people,
    )
    default = 1e-6  # for up to 100,000 people
    # A tenth of 1/people: DELTA advises less than 1/people.
    if people is not None:
        default = float(format_lower(1 / (10 * people), digits=1))
    delta = _ask(console, "δ", f"{default:g}", _parsed_delta)
    return epsilon, delta


def _parsed_delta(text: str) -> float:
    """Return the δ that was typed.

    Raises:
        InvalidParameter: when it is not between 0 and 1.
        ValueError: when it is no number.
    """
    return validate.probability(allow_zero=False, delta=float(text))


def _likely_kind(columns: list[str], kinds: list[str]) -> str:
    """Return the likely kind of a row, a key of ROWS, by the names of the columns.

    Args:
        columns: the names of the file's columns.
        kinds: the kinds that the command has options for.
    """
    names = [name.lower() for name in columns]
    if any(name in COUNTS for name in names):
        return COUNTED_LABEL
    if any(name.startswith(PEOPLE) or name.endswith(PEOPLE) for name in names):
        return EVENT
    return kinds[1]  # a row is a person, where the command has that kind


def _ask_columns(kind: str, columns: list[str], console: Console) -> dict[str, str]:
    """Ask which column holds what; return option -> column of the file.

    Args:
        kind: what a row is, a key of ROWS.
        columns: the names of the file's columns.
        console: the terminal.

    Raises:
        InvalidParameter: if the file has fewer columns than are needed.
    """
    options = {}
    unused_columns = list(columns)
    for option, question in COLUMNS[kind].items():
        if not unused_columns:
            raise InvalidParameter(f"the file has too few columns: none is left for {option}")
        default = _likely_column(unused_columns, LIKELY_NAMES.get(option, ()))
        names = {name.strip(): name for name in unused_columns}  # an answer is stripped
        chosen = Prompt.ask(question, choices=list(names), default=default, console=console)
        options[option] = names[chosen]
        unused_columns.remove(names[chosen])
    return options


def _likely_column(columns: list[str], beginnings: tuple[str, ...]) -> str:
    """Return the first column whose name has one of these beginnings, else the first column.

    Args:
        columns: the names of the columns, at least one.
        beginnings: beginnings of names, in lower case; empty: none is likely.
    """
    for name in columns:
        if beginnings and name.lower().startswith(beginnings):
            return name.strip()
    return columns[0].strip()


def _ask(console: Console, question: str, default: str, read: Callable[[str], T]) -> T:
    """Ask until ``read`` accepts the answer, and return the value that ``read`` returns; each
    refusal is explained.

    Args:
        console: the terminal.
        question: the question, without a question mark.
        default: the answer that an empty line stands for.
        read: the function that turns the typed text into a value, or raises ValueError.
    """
    while True:
        try:
            return read(Prompt.ask(question, default=default, console=console).strip())
        except InvalidParameter as error:
            console.print(f"[red]{escape(str(error))}[/red]")
        except ValueError:
            console.print("[red]That is not a number.[/red]")


def _parsed_cap(text: str) -> int | None:
    """Return the stated number of labels of one person; None for "any" and "auto"."""
    if text in {"any", "auto"}:
        return None
    return validate.count(labels_per_user=int(text))


def _parsed_people(text: str) -> int | None:
    """Return the stated number of people; None for "unknown"."""
    if text == "unknown":
        return None
    return validate.count(at_most=validate.LARGEST, users=int(text.replace(",", "")))


def _show_plan(answers: GuidedAnswers, console: Console) -> None:
    """Print what the answer will cost and deliver, and what the reader must know about the caps.

    Args:
        answers: the answers to the guide's questions.
        console: the terminal.
    """
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.planning import plan
    from dptopk.question import Events, Facts, Question

    kind = answers.kind
    cap = answers.cap
    question = Question(k=answers.k, epsilon=answers.epsilon, delta=answers.delta)
    sensitivity = Sensitivity(l0=1 if kind == PERSON else cap)
    events = None
    if kind == EVENT:
        events = Events(labels_per_user=cap or "auto", profile=False)
    facts = Facts(sensitivity=sensitivity, events=events, looks=False)
    design = plan(question, facts)
    width = design.mechanisms[-1].count_width(
        design.sensitivity, labels=design.k, confidence=CONFIDENCE
    )
    epsilon = format_upper(design.budget.epsilon)
    delta = format_upper(design.budget.delta)
    console.print(f"\nThe plan: ({epsilon}, {delta})-differential privacy.")
    console.print(
        f"{percent(CONFIDENCE)} of the noise on a count is within ±{width:g}; "
        f"{escape(design.appearing())}."
    )
    console.print(f"{_caution(kind, design)}\n")


def _caution(kind: str, design: TopKPlan) -> str:
    """Return what the reader must know about the caps.

    Args:
        kind: what a row is, a key of ROWS.
        design: the plan of the answer.
    """
    if kind == PERSON:
        return (
            "Every row counts as one person: if somebody has several rows, the guarantee is weaker "
            "for them."
        )
    finding = design.reading.finding
    if finding is None:  # a row is a label and its count: only events are read to find labels
        return "Nothing is cut off: dptopk trusts that one person changes no more than you said."
    cap = describe_l0(finding.labels_per_user)
    return (
        f"Labels are looked for under a cap ({cap} of one person), and what is found is counted on "
        f"all events: the cap can hide a label, and makes no count smaller."
    )
