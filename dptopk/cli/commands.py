"""The command line: what ``dptopk --help`` lists.

The docstring of a command is its help, here and in the modules of the other commands: it has no
sections of arguments and errors. Each option has its own words, and ``shell`` turns the errors of
the library into one line and an exit code.
"""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE, Interaction
from dptopk._internal.json_text import readable_json
from dptopk.cli import (
    analyst as analyst_commands,
    datasets as datasets_commands,
    ledger_commands,
)
from dptopk.cli.attest import attest
from dptopk.cli.audit import audit
from dptopk.cli.budget_command import budget
from dptopk.cli.certify import certify
from dptopk.cli.events_sql import events_sql
from dptopk.cli.ledger_upkeep import migrate, witness
from dptopk.cli.options import (
    Cap,
    Confidence,
    EffortOption,
    Protected,
    Quiet,
    Seed,
    with_delta,
    with_groups,
)
from dptopk.cli.refresh import refresh
from dptopk.cli.reproduce import reproduce
from dptopk.cli.serve import serve
from dptopk.cli.shell import Command, Group, Guided, log_to_stderr, progress_bar
from dptopk.cli.stream_commands import app as stream_app
from dptopk.cli.topk import topk
from dptopk.errors import InvalidParameter
from dptopk.question import Question

if TYPE_CHECKING:
    from dptopk.planning import TopKPlan
    from dptopk.planning.repeated import RepeatedPlan
    from dptopk.question import Facts

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Differentially private top-k queries on histograms, with privacy accounting built in.",
    epilog="Begin with [bold]dptopk demo[/bold]; [bold]dptopk plan --k 25 --epsilon 1 --delta "
    "1e-6 --labels-per-user 5[/bold] says what such an answer delivers, without any data.",
)
ASK = "Ask"
KEEP = "Data, budgets and the service"
PROVE = "Privacy accounting and its evidence"
ledger_commands.app.command()(migrate)
ledger_commands.app.command()(witness)
ledger_commands.app.add_typer(analyst_commands.app, name="analyst")


def _version(is_given: bool) -> None:
    """Print the version and exit, if ``--version`` was given."""
    if is_given:
        from importlib.metadata import version

        typer.echo(f"dptopk {version('dptopk')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log progress to stderr.")
    ] = False,
) -> None:
    """Differentially private top-k queries on histograms, with privacy accounting built in."""
    if verbose:
        log_to_stderr()


COSTS = (
    "Costs: DP(ε) and ADP(ε, δ); BR(ε), bounded range: one Gumbel selection; Clock(ε): selections "
    "by the label that a user touches; DLap(scale, shift), DGauss(scale, shift): discrete noise; "
    "GDP(μ), ZCDP(ρ), CDP(μ, τ); MultiDP, SGauss and Coins as answers write them; + delta(δ) for "
    "what may fail. docs/notes/notation.md says what each means."
)
EXAMPLES = (
    "A row a label: [bold]dptopk topk words.csv --label-col word --k 25 --epsilon 1 --delta 1e-6 "
    "--labels-per-user 1[/bold]\n\n"
    "A row an event: [bold]dptopk topk reads.parquet --user-col member --item-col article "
    "--labels-per-user 5 "
    "--k 25 --epsilon 1 --delta 1e-6[/bold]"
)
INTERACTION = (
    "Who chooses, and when. batch: everything is fixed before the first answer; ordered: the order "
    "of the costs is fixed, mechanisms and data may depend on earlier answers; setwise: the order "
    "may, too; filter: each cost is chosen freely after earlier answers."
)

# The total δ of many answers is at most this: a guarantee that fails more often is none.
MOST_DELTA = 0.5
DEMO = "The 25 most frequent words of Macbeth; one user is one occurrence of a word."
NEXT = """
Your own table, on a terminal:      dptopk topk FILE      asks for what it needs
What an answer costs, without data: dptopk plan --k 25 --epsilon 2 --delta 1e-6
"""


@app.command(rich_help_panel=ASK)
def demo(seed: Seed = None) -> None:
    """Print a private top 25 of the words of Macbeth, whose vocabulary is not known in advance."""
    import numpy as np
    from rich.console import Console

    from dptopk.cli.output import TopKSheet
    from dptopk.costs import Budget
    from dptopk.datasets import macbeth
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.planning import plan_topk

    if seed is None:
        rng = None
    else:
        rng = np.random.default_rng(validate.count(at_least=0, seed=seed))
    sensitivity = Sensitivity(linf=1, l0=1)
    plan = plan_topk(25, Budget(2, 1e-6), sensitivity=sensitivity)
    release = plan.release(macbeth(sensitivity=sensitivity), rng)
    typer.echo(DEMO)
    TopKSheet.of(plan, release).print_answer(Console(highlight=False))
    typer.echo(NEXT, nl=False)


def _repeated_plan(question: Question, facts: Facts, times: int) -> RepeatedPlan[TopKPlan] | None:
    """Return the plan of ``times`` equal answers whose noise has the least total cost; None for a
    single answer.

    The δ of all answers together is ``times`` times the question's, but at most MOST_DELTA; without
    a stated δ it is 0.

    Args:
        question: the question of each answer, with the (ε, δ) of one of them.
        facts: what is known of the data.
        times: the number of answers, at least 1.

    Raises:
        InvalidParameter: as ``plan``.
    """
    from dptopk.planning.choose import plan_repeated

    if times == 1:
        return None
    total_delta = min(times * (question.delta or 0.0), MOST_DELTA)
    return plan_repeated(question, facts, times, total_delta)


@app.command("plan", rich_help_panel=ASK)
def plan_command(
    question_without_delta: Question,
    protected: Protected,
    per_label_cap: Cap = 1,
    confidence: Confidence = CONFIDENCE,
    times: Annotated[
        int,
        typer.Option(
            help="How many such answers there will be; the noise with the least total cost at this "
            "accuracy is planned."
        ),
    ] = 1,
    alternatives: Annotated[
        bool,
        typer.Option(
            "--alternatives", help="List all designs at the same budget: names for --method."
        ),
    ] = False,
    output_format: Annotated[
        Literal["text", "json"], typer.Option("--format", help="How the plan is written.")
    ] = "text",
    quiet: Quiet = False,  # noqa: ARG001
) -> None:
    """Say what a top-k answer would cost and deliver, without any data."""
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.planning import plan
    from dptopk.question import Facts

    times = validate.count(times=times)
    facts = Facts(
        sensitivity=Sensitivity(linf=per_label_cap, l0=protected.labels_per_user),
        domain="public" if protected.known_domain else "private",
        looks=False,
    )
    question = with_delta(question_without_delta)
    with progress_bar("planning"):
        repeated = _repeated_plan(question, facts, times)
        design = plan(question, facts) if repeated is None else repeated.plan
    if output_format == "json":
        from dptopk.cli.output import plan_as_dict

        plain = plan_as_dict(design, confidence, alternatives=alternatives)
        if repeated is not None:
            plain |= repeated.to_dict()
        typer.echo(readable_json(plain), nl=False)
        return
    if repeated is not None:
        typer.echo("\n".join([*repeated.lines(), "", "Each answer, with the least total:"]))
    typer.echo(design.explain(confidence=confidence))
    if alternatives:
        from dptopk.cli.bounds_table import print_designs

        print_designs(design.alternatives)


@app.command("compose", rich_help_panel=PROVE, epilog=COSTS)
def compose_command(
    charge: Annotated[
        str,
        typer.Argument(
            metavar="CHARGE", help='Costs, such as "25*BR(0.1) + 25*DP(0.1) + ZCDP(0.07)".'
        ),
    ],
    delta: Annotated[float | None, typer.Option(help="Ask for ε at this δ.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Ask for δ at this ε.")] = None,
    interaction: Annotated[Interaction, typer.Option(help=INTERACTION)] = "setwise",
    output_format: Annotated[
        Literal["table", "csv", "json"],
        typer.Option("--format", help="How the bounds are written."),
    ] = "table",
    effort: EffortOption = "normal",
    max_seconds: Annotated[
        float | None,
        typer.Option(help="Time limit: the bounds that are finished by then are shown."),
    ] = None,
) -> None:
    """Compare all composition bounds on a charge; the smallest valid one is marked."""
    from dptopk.accounting import bounds
    from dptopk.cli.bounds_table import BoundsQuery, write_bounds
    from dptopk.cli.terms import costs_of

    parsed = costs_of(charge, "CHARGE")
    if (delta is None) == (epsilon is None):
        raise InvalidParameter("give exactly one of --delta and --epsilon: the other is the answer")
    with progress_bar("composing"):
        rows = bounds.table(
            parsed,
            delta=delta,
            epsilon=epsilon,
            interaction=interaction,
            effort=effort,
            max_seconds=max_seconds,
        )
    write_bounds(parsed, rows, output_format, BoundsQuery(delta, epsilon, interaction))


app.command(rich_help_panel=ASK, epilog=EXAMPLES)(topk)
app.command(rich_help_panel=ASK)(budget)
app.add_typer(stream_app, name="stream", rich_help_panel=ASK)
app.add_typer(datasets_commands.app, name="datasets", rich_help_panel=KEEP)
app.command(rich_help_panel=KEEP)(refresh)
app.command(rich_help_panel=KEEP)(events_sql)
app.add_typer(ledger_commands.app, name="ledger", rich_help_panel=KEEP)
app.command(rich_help_panel=KEEP)(serve)
app.command(rich_help_panel=PROVE)(certify)
app.command(rich_help_panel=PROVE)(audit)
app.command(rich_help_panel=PROVE)(attest)
app.command(rich_help_panel=PROVE)(reproduce)

for group in (app, ledger_commands.app, datasets_commands.app, analyst_commands.app, stream_app):
    for command in group.registered_commands:
        command.cls = Guided if command.callback is topk else Command
        command.callback = with_groups(command.callback or topk)


def main() -> None:
    """Run the ``dptopk`` command; this is its entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A label that the terminal cannot show must not stop an answer that was paid for.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:  # the reader of our output closed it
        sys.stderr.close()
        raise SystemExit(1) from None
