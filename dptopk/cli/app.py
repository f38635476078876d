"""The command line: ``dptopk topk | plan | compose | demo | reproduce | ledger | datasets``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dptopk import _validate as validate
from dptopk._choices import Counts, Interaction, Method
from dptopk.cli import datasets as datasets_commands, ledger as ledger_commands
from dptopk.cli.audit import audit
from dptopk.cli.reproduce import reproduce
from dptopk.errors import DptopkError, InvalidParameter

__all__ = ["app", "main"]


class _Group(typer.core.TyperGroup):
    """Turns the package's errors into one line on standard error and exit code 2: no traceback, no data."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DptopkError as error:
            typer.secho(f"Error: {error}", fg=typer.colors.RED, err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Differentially private top-k queries on histograms, with privacy accounting built in.",
)


app.add_typer(ledger_commands.app, name="ledger")
app.add_typer(datasets_commands.app, name="datasets")
app.command()(reproduce)
app.command()(audit)


# How an answer is written.
Format = Literal["table", "csv", "json", "parquet"]

# Options that several commands share.
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


@app.command()
def topk(
    source: Annotated[
        Path, typer.Argument(help="CSV, TSV, Parquet or JSON lines: a row a label, or with --user-col a row an event.")
    ],
    k: K,
    epsilon: Epsilon,
    delta: Delta = 0.0,
    label_col: Annotated[str, typer.Option("--label-col", help="Column of labels.")] = "label",
    count_col: Annotated[str, typer.Option("--count-col", help="Column of counts.")] = "count",
    user_col: Annotated[
        str | None, typer.Option("--user-col", help="SOURCE holds events: column of users; Δ and τ are enforced.")
    ] = None,
    item_col: Annotated[str | None, typer.Option("--item-col", help="Of events: column of labels.")] = None,
    memory_limit: Annotated[
        str | None, typer.Option("--memory-limit", help="Of events: memory for the engine, such as 4GB.")
    ] = None,
    passes: Annotated[
        int, typer.Option("--passes", help="Of events: split the users into so many parts, for less memory and disk.")
    ] = 1,
    counts: CountsOption = "gaussian",
    per_label_cap: Cap = 1,
    labels_per_user: PerUser = None,
    known_domain: Annotated[bool, typer.Option("--known-domain", help="The labels in SOURCE are public.")] = False,
    domain: Annotated[
        Path | None, typer.Option("--domain", help="Text file of public labels, one a line; absent ones have count 0.")
    ] = None,
    d_bar: DBar = None,
    method: MethodOption = "auto",
    fit: Fit = False,
    output_format: Annotated[Format, typer.Option("--format", help="How the answer is written.")] = "table",
    out: Annotated[Path | None, typer.Option("--out", help="Write the answer to this file.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Reproducible noise: for tests, not for production.")
    ] = None,
    ledger: Annotated[str | None, typer.Option("--ledger", help="Ledger that pays: a SQLite file or a URL.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="The ledger's dataset.")] = None,
    analyst: Annotated[str | None, typer.Option("--analyst", help="Who asks.")] = None,
    key_file: ledger_commands.KeyFile = None,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Give the ledger's stored answer to the identical question again, free.")
    ] = False,
) -> None:
    """Answer "what are the top k, and how many of each?" once, for a total (ε, δ).

    Labels are private unless --known-domain or --domain says otherwise; of private labels fewer than k may come out.
    Of events (--user-col, --item-col) the caps τ and Δ are enforced. In a table of counts they must hold already: it
    does not tell users apart.
    """
    import numpy as np

    from dptopk.accounting.budget import Budget
    from dptopk.cli import output
    from dptopk.cli.input import Source
    from dptopk.histogram import Sensitivity
    from dptopk.planning import plan_topk
    from dptopk.session import Session

    output.check_target(output_format, out)
    if ledger is None and (reuse or dataset is not None or analyst is not None):
        raise InvalidParameter("ledger: --dataset, --analyst and --reuse need --ledger")
    given = Source(source, label_col, count_col, user_col, item_col, known_domain, domain, memory_limit, passes)
    plan = plan_topk(
        k,
        Budget(epsilon, delta),
        sensitivity=Sensitivity(linf=per_label_cap, l0=labels_per_user),
        domain=given.kind,
        d_bar=d_bar,
        counts=counts,
        method=method,
        fit=fit,
    )
    histogram = given.read(plan)
    rng = None if seed is None else np.random.default_rng(validate.count(at_least=0, seed=seed))
    if ledger is None:
        release = plan.release(histogram, rng)
    else:
        session = Session(
            histogram,
            ledger=ledger_commands.open_ledger(ledger, key_file),
            dataset=dataset,
            analyst=analyst,
            rng=rng,
        )
        release = session.run(plan, reuse=reuse)
    output.write_release(plan, release, output_format, out)


# What `dptopk demo` answers: a title, Δ, and the method.
_DEMOS: tuple[tuple[str, int | None, Method], ...] = (
    ("One user is one word occurrence: it touches one label. Noise on all counts is cheapest.", 1, "auto"),
    ("The same budget when a user may touch any number of labels: select, then count.", None, "peel"),
)


@app.command()
def demo(
    seed: Annotated[int | None, typer.Option("--seed", help="Reproducible noise, as in the README.")] = None,
) -> None:
    """Print a private top 25 of the words of Macbeth, whose vocabulary is not known in advance."""
    import numpy as np

    from dptopk.accounting.budget import Budget
    from dptopk.cli import output
    from dptopk.datasets import macbeth
    from dptopk.histogram import Sensitivity
    from dptopk.planning import plan_topk

    rng = None if seed is None else np.random.default_rng(validate.count(at_least=0, seed=seed))
    for title, labels_per_user, method in _DEMOS:
        typer.echo(f"\n{title}")
        sensitivity = Sensitivity(linf=1, l0=labels_per_user)
        plan = plan_topk(25, Budget(2, 1e-6), sensitivity=sensitivity, method=method)
        output.write_release(plan, plan.release(macbeth(sensitivity=sensitivity), rng), "table", None)


@app.command("plan")
def plan_command(
    k: K,
    epsilon: Epsilon,
    delta: Delta = 0.0,
    counts: CountsOption = "gaussian",
    per_label_cap: Cap = 1,
    labels_per_user: PerUser = None,
    known_domain: Annotated[bool, typer.Option("--known-domain", help="The labels are public.")] = False,
    d_bar: DBar = None,
    method: MethodOption = "auto",
    fit: Fit = False,
) -> None:
    """Say what a top-k answer would cost and deliver, without any data."""
    from dptopk.accounting.budget import Budget
    from dptopk.histogram import Sensitivity
    from dptopk.planning import plan_topk

    plan = plan_topk(
        k,
        Budget(epsilon, delta),
        sensitivity=Sensitivity(linf=per_label_cap, l0=labels_per_user),
        domain="public" if known_domain else "private",
        d_bar=d_bar,
        counts=counts,
        method=method,
        fit=fit,
    )
    typer.echo(plan.explain())


@app.command("compose")
def compose_command(
    charge: Annotated[str, typer.Argument(help='Costs, such as "25*BR(0.1) + 25*DP(0.1) + ZCDP(0.07)".')],
    delta: Annotated[float | None, typer.Option("--delta", help="Ask for ε at this δ.")] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="Ask for δ at this ε.")] = None,
    interaction: Annotated[Interaction, typer.Option("--interaction", help="Who chooses, and when.")] = "setwise",
    output_format: Annotated[Format, typer.Option("--format", help="table, csv or json.")] = "table",
    max_seconds: Annotated[float, typer.Option("--max-seconds", help="Time for each bound to refine.")] = 10.0,
) -> None:
    """Compare all composition bounds on a charge; the smallest valid one is marked."""
    from dptopk.accounting import bounds
    from dptopk.cli import output
    from dptopk.costs import Charge

    parsed = Charge.parse(charge)
    query: dict[str, Any] = {"delta": delta, "epsilon": epsilon, "interaction": interaction}
    rows = bounds.table(parsed, max_seconds=max_seconds, **query)
    output.write_bounds(parsed, rows, output_format, **query)


def main() -> None:
    """Entry point of the ``dptopk`` command."""
    try:
        app()
    except BrokenPipeError:  # the reader of our output closed it
        sys.stderr.close()
        raise SystemExit(1) from None
