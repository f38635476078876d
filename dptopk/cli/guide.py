"""``dptopk topk FILE`` on a terminal: asks what is needed, shows the plan, and gives the options that say the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.prompt import Confirm, Prompt

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.formatting import describe_l0, format_lower, percent, visible
from dptopk.errors import InvalidParameter

T = TypeVar("T")
ROWS = {
    "1": "an event; a column says which person it is of",
    "2": "a person; every row is another one",
    "3": "a label and its count; the rows are counted already",
}
CAPS = {
    "1": ("At how many labels of one person do we look, to find the labels (a number)", "10"),
    "3": ("At how many labels can one person be counted at most (a number, or any)", "any"),
}
EPSILON = (
    "ε limits what the answer can tell about one person: at 1, nobody's odds of guessing something about them get more "
    "than 2.7 times better; smaller is more private, and noisier."
)
DELTA = "δ is the probability that this guarantee fails; it should be well below 1 over the number of people."
# What a column is called that holds people, or counts.
PEOPLE, COUNTS = ("user", "member", "person", "customer", "patient", "id"), ("count", "n", "number", "total")


def guided(file: str, params: list[Any]) -> list[str]:
    """The options of ``dptopk topk`` that were answered; the file's column names are read, and nothing else of it.

    Raises:
        InvalidParameter: when the file cannot be read.
        typer.Exit: when the plan is not wanted.
    """
    from dptopk.datasets import columns_of
    from dptopk.planning.request import number_of_labels

    console, columns = Console(highlight=False), columns_of(file)
    console.print(f"{escape(visible(file))} has the columns {escape(', '.join(map(visible, columns)))}.\n")
    kinds = [kind for kind in ROWS if kind != "2" or any("--one-row-per-user" in param.opts for param in params)]
    for kind in kinds:
        console.print(f"  {kind}. {ROWS[kind]}")
    kind = Prompt.ask("What is a row", choices=kinds, default=_guess(columns, kinds), console=console)
    options = _columns(kind, columns, console)
    options["--k"] = _ask(console, "How many labels do you want", "10", lambda text: number_of_labels(int(text)))
    if kind != "2":
        text, usual = CAPS[kind]
        cap = _ask(console, text, usual, _cap)
        options |= {} if cap is None else {"--labels-per-user": cap}
    console.print(f"\n{EPSILON}")
    options["--epsilon"] = _ask(console, "ε", "1", lambda text: validate.positive(epsilon=float(text)))
    console.print(f"\n{DELTA}")
    people = _ask(console, "About how many people are in the data (a public number, or unknown)", "unknown", _people)
    usual = "1e-06" if people is None else f"{float(format_lower(1 / (10 * people), digits=1)):g}"
    read = lambda text: validate.probability(allow_zero=False, delta=float(text))  # noqa: E731 - as above
    options["--delta"] = _ask(console, "δ", usual, read)
    _show(kind, options, console)
    if not Confirm.ask("Ask this, once", default=True, console=console):
        console.print("Nothing was read, and nothing was spent.")
        raise typer.Exit
    return [text for name, value in options.items() for text in ([name] if value is True else [name, _text(value)])]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _guess(columns: list[str], kinds: list[str]) -> str:
    """What a row is, by what the columns are called."""
    names = [name.lower() for name in columns]
    if any(name in COUNTS for name in names):
        return "3"
    return "1" if any(name.startswith(PEOPLE) or name.endswith(PEOPLE) for name in names) else kinds[1]


def _columns(kind: str, columns: list[str], console: Console) -> dict[str, Any]:
    """The options that say what the columns mean."""
    asked = {
        "1": (("--user-col", "Which column says whose event it is"), ("--item-col", "Which column holds the labels")),
        "2": (("--item-col", "Which column holds the labels"),),
        "3": (("--label-col", "Which column holds the labels"), ("--count-col", "Which column holds the counts")),
    }[kind]
    options: dict[str, Any] = {"--one-row-per-user": True} if kind == "2" else {}
    left = list(columns)
    for option, question in asked:
        if not left:
            raise InvalidParameter("the file has too few columns for that")
        likely = {"--user-col": PEOPLE, "--count-col": COUNTS}.get(option, ())
        usual = next((name for name in left if name.lower().startswith(likely)), left[0]) if likely else left[0]
        names = {name.strip(): name for name in left}  # an answer is stripped
        options[option] = names[Prompt.ask(question, choices=list(names), default=usual.strip(), console=console)]
        left.remove(options[option])
    return options


def _ask(console: Console, question: str, usual: str, read: Callable[[str], T]) -> T:
    """An answer that ``read`` takes; what it refuses is told, and asked again."""
    while True:
        try:
            return read(Prompt.ask(question, default=usual, console=console).strip())
        except InvalidParameter as error:
            console.print(f"[red]{escape(str(error))}[/red]")
        except ValueError:
            console.print("[red]That is not a number.[/red]")


def _cap(text: str) -> int | None:
    return None if text == "any" else validate.count(labels_per_user=int(text))


def _people(text: str) -> int | None:
    return None if text == "unknown" else validate.count(users=int(text.replace(",", "")))


def _show(kind: str, options: dict[str, Any], console: Console) -> None:
    """What the answer will cost and deliver, and what a cap leaves out."""
    from dptopk.costs import Budget
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.planning import plan_topk, plan_two_phases

    cap, budget = options.get("--labels-per-user"), Budget(options["--epsilon"], options["--delta"])
    if kind == "1":
        plan: Any = plan_two_phases(options["--k"], budget, labels_per_user=cap or "auto")
        left_out = (
            f"Labels are looked for under a cap ({describe_l0(plan.under.l0)} of one person), and what is found is "
            "counted on all events: the cap can hide a label, and makes no count smaller."
        )
    else:
        plan = plan_topk(options["--k"], budget, sensitivity=Sensitivity(l0=1 if kind == "2" else cap))
        left_out = {
            "2": "Every row counts as one person: if somebody has several rows, the guarantee is weaker for them.",
            "3": "Nothing is cut off: that one person changes no more than you said is taken as given.",
        }[kind]
    width = plan.mechanisms[-1].count_width(plan.sensitivity, labels=plan.k, confidence=CONFIDENCE)
    console.print(f"\nThe plan: ({plan.budget.epsilon:g}, {plan.budget.delta:g})-differential privacy.")
    console.print(f"{percent(CONFIDENCE)} of the noise on a count is within ±{width:g}; {escape(plan.appearing())}.")
    console.print(f"{left_out}\n")
