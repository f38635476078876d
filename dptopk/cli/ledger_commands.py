"""``dptopk ledger``: accounts, budgets and keys; show, verify and statement; export and backup.

The commands about the file of a ledger and its head are in ``ledger_upkeep``. The docstring of a
command is its help, so that it has no sections; each option says what it takes.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dptopk._internal.formatting import format_exact, visible
from dptopk._internal.json_text import canonical_json, readable_json
from dptopk.cli.options import Book, Cap, PerUser, names_in_list
from dptopk.cli.shell import Subgroup
from dptopk.cli.terms import Limit, Terms, add_once, costs_of, plan_of_query, ranges_of
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.planning import TopKPlan
    from dptopk.planning.repeated import RepeatedPlan

RECENT_ENTRIES = 2000  # entries in which ``show`` looks for recent charges

app = typer.Typer(
    cls=Subgroup, no_args_is_help=True, help="The ledger: budgets, and every charge against them."
)

Dataset = Annotated[str, typer.Option("--dataset", help="Name of the dataset.")]
Analyst = Annotated[str, typer.Option(help="Name of the analyst whose spending is limited.")]
CAN_DETECT = (
    "What this check finds: an entry that was changed, removed from the middle, inserted or "
    "reordered; a history that the accountant would have refused; keys and stored answers that are "
    "no longer found; pages and indexes that the database itself finds damaged. With a head "
    "(--head or --head-file) also a tail that was cut off."
)
# Whether the chain has a key -> what the check cannot find.
CAN_NOT_DETECT = {
    False: (
        "What it cannot find: without a key, anyone who can write the file can rewrite it from "
        "some entry on and compute new hashes; only a head exported before that shows it."
    ),
    True: (
        "What it cannot find: a tail that was cut off without an exported head, and changes by "
        "someone who holds the key."
    ),
}


@app.command()
def init(
    book: Book,
    dataset: Dataset,
    terms: Terms,
    query: Annotated[
        str | None,
        typer.Option(
            help="Instead of --registered: register a question, 'k=25 epsilon=0.5 delta=1e-7'."
        ),
    ] = None,
    ranges: Annotated[
        str | None,
        typer.Option(
            help='With --epsilon: ranges of selections that may be chosen freely, "0.1,0.05".'
        ),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option(
            help='With --epsilon: other costs to be chosen freely, "DGauss(20, 1) + DP(0.1)".'
        ),
    ] = None,
    times: Annotated[int, typer.Option(help="How many answers to --query to register.")] = 1,
    per_label_cap: Cap = 1,
    labels_per_user: PerUser = None,
    segment_by: Annotated[
        str | None,
        typer.Option(
            help="Column of disjoint segments, each of which has the whole budget; with --segments."
        ),
    ] = None,
    segments: Annotated[
        str | None,
        typer.Option(
            help="Names of the segments, 'eu,us,asia'; in the data one unit is in at most one."
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="The privacy unit in words, such as user or household.")
    ] = "user",
    version: Annotated[str, typer.Option(help="Version of the data.")] = "1",
    test: Annotated[
        bool,
        typer.Option(
            "--test", help="Make a ledger for tests, which accepts answers with a fixed seed."
        ),
    ] = False,
) -> None:
    """Open the account of a dataset, in a new or an existing ledger."""
    from dptopk.cli.ledger_view import guarantee, unit_change
    from dptopk.histogram.histogram import Sensitivity

    sensitivity = Sensitivity(linf=per_label_cap, l0=labels_per_user)
    if (segment_by is None) != (segments is None):
        raise InvalidParameter(
            "--segment-by and --segments go together: a column, and the names of its segments"
        )
    if query is not None:
        totals = (terms.registered, terms.epsilon, terms.rho)
        if terms.share or any(total is not None for total in totals):
            raise InvalidParameter("give exactly one of --registered, --epsilon, --rho and --query")
        repeated = plan_of_query(query, times, sensitivity, terms.delta)
        terms = replace(terms, registered=str(repeated.plan.charge.times(times)))
    terms_stated = terms.arguments()
    terms_stated |= _free_choices(ranges, costs)
    if segments is not None:
        terms_stated["segments"] = {segment_by: names_in_list(segments=segments)}
    with book.open(create=True, test=test) as ledger:
        if test and not ledger.test:
            raise InvalidParameter("--test: this ledger exists, and was not made for tests")
        ledger.create_dataset(
            dataset, sensitivity=sensitivity, unit=unit, version=version, **terms_stated
        )
        state = ledger.state(dataset)
        typer.echo(
            f"Dataset {dataset!r}: {visible(unit_change(state))}. Guarantee: {guarantee(state)}"
        )
    if "registered" in terms_stated:
        typer.echo(f"Registered: {terms_stated['registered']}")
    if query is not None:
        _print_comparison(repeated)


def _free_choices(ranges: str | None, costs: str | None) -> dict[str, object]:
    """Return the keyword arguments of ``Ledger.create_dataset`` for what may be chosen freely under
    a total: the ranges and the other costs of the options that are given.

    Args:
        ranges: ε's of selections with commas between them, as --ranges has them; None: none.
        costs: other costs as text, as --costs has them; None: none.

    Raises:
        InvalidParameter: for a text that states no numbers, or no costs.
    """
    choices: dict[str, object] = {}
    if ranges is not None:
        choices["ranges"] = ranges_of(ranges)
    if costs is not None:
        choices["costs"] = list(costs_of(costs, "--costs").costs)
    return choices


def _print_comparison(repeated: RepeatedPlan[TopKPlan]) -> None:
    """Print what all answers cost with each kind of noise, and the options that ask for the
    registered one.

    Args:
        repeated: the plan of the registered answers, with its alternatives, the best one first.
    """
    for line in repeated.lines():
        typer.echo(line)
    if repeated.plan is repeated.single:  # asked for by the options of one answer
        return
    best = repeated.offers[0]  # of one kind of noise: it is not the plan for one answer
    budget = best.plan.budget
    if best.accuracy is None:
        total = f"--epsilon {format_exact(budget.epsilon)}"
    else:
        total = f"--accuracy {format_exact(best.accuracy)}"
    noise = best.noise.partition(" ")[0]  # "gaussian" of "gaussian noise"
    typer.echo(
        f"The least is registered. Ask for it with: --k {best.plan.k} {total} "
        f"--delta {format_exact(budget.delta)} --counts {noise}"
    )


@app.command()
def renew(
    book: Book,
    dataset: Dataset,
    terms: Terms,
    reason: Annotated[str, typer.Option(help="Why; the ledger records it.")],
) -> None:
    """Open a new budget on the same data: recorded, and no reset of the lifetime spend."""
    terms_stated = terms.arguments()
    with book.open() as ledger:
        ledger.renew(dataset, reason=reason, **terms_stated)
        typer.echo(
            f"Renewed. Spent since the dataset was created: {ledger.spent(dataset, lifetime=True)}"
        )


@app.command()
def limit(book: Book, dataset: Dataset, analyst: Analyst, terms: Limit) -> None:
    """Limit one analyst inside a dataset's budget."""
    terms_stated = terms.arguments()
    with book.open() as ledger:
        ledger.set_limit(dataset, analyst, **terms_stated)
    if terms.registered:
        allowed = terms.registered
    elif terms.epsilon is not None:
        allowed = f"({format_exact(terms.epsilon)}, {format_exact(terms.delta)})"
    else:
        assert terms.rho is not None  # noqa: S101 - for the type checker: one of three is stated
        allowed = f"ρ = {format_exact(terms.rho)}"
    typer.echo(f"{analyst!r} may spend {allowed} of {dataset!r}.")


@app.command("set-version")
def set_version(
    book: Book,
    dataset: Dataset,
    version: Annotated[str, typer.Option(help="The new version of the data.")],
) -> None:
    """Record that the data changed: stored answers are no longer given, budgets stay as they
    are.
    """
    with book.open() as ledger:
        ledger.set_version(dataset, version)
    typer.echo(f"Dataset {dataset!r} is at version {version!r}.")


@app.command()
def rekey(
    book: Book,
    new_key_file: Annotated[Path, typer.Option(help="File with the new secret.")],
) -> None:
    """Change the secret of the hash chain, after verifying all of it; stop the service first."""
    from dptopk.ledger.keys import read_key
    from dptopk.ledger.log_store import refuse_own_file

    refuse_own_file(book.url, new_key_file, "--new-key-file")
    secret = read_key(new_key_file, "new-key-file")
    with book.open() as ledger:
        ledger.rekey(secret)
        head = ledger.head()
    typer.echo(
        f"{head['seq']} entries are chained by the new secret. Copies of the ledger keep the old "
        "one; heads exported before fit no longer: export a new one (dptopk ledger export --head)."
    )


@app.command("accept-restore")
def accept_restore(
    book: Book, reason: Annotated[str, typer.Option(help="Why; the ledger records it.")]
) -> None:
    """Accept a ledger that was restored to an older state: recorded, with the head that is given
    up.
    """
    from dptopk.ledger.ledger import Ledger

    lost_head = Ledger.accept_restore(
        book.url, reason=reason, head_file=book.head_file, key=book.key
    )
    if lost_head is None:
        typer.echo(
            "Accepted. What leads to keys and stored answers was written anew from the log. Where "
            "the file had lost its write-ahead log, what was charged there is not counted: renew "
            "the budgets, and allow for it."
        )
        return
    typer.echo(
        f"Accepted. Entries up to {lost_head['seq']} were written before this state was put back "
        "and are lost; what they charged is not counted: renew the budgets with terms that allow "
        "for it (dptopk ledger renew), and start every process anew that has the ledger open."
    )


@app.command()
def show(
    book: Book,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw spending over time into this PNG or SVG.")
    ] = None,
    output_format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="How it is written.")
    ] = "table",
) -> None:
    """Show what is spent and what remains, over time and by analyst, and how many more queries are
    affordable.
    """
    from dptopk.cli import ledger_view as view
    from dptopk.cli.output import check_picture
    from dptopk.cli.target import check_target, replacement_file

    if plot is not None:
        check_target(plot, option="--plot", inputs=book.files_to_spare(book.url))
        check_picture(plot)
    with book.open(read_only=True) as ledger:
        names = ledger.datasets() if dataset is None else (dataset,)
        if plot is not None and len(names) != 1:
            raise InvalidParameter("--plot: name one --dataset")
        recent = max(0, ledger.head()["seq"] - RECENT_ENTRIES)
        if output_format == "json":
            balances = [
                view.balance_as_dict(ledger.state(name), ledger.history(name, after=recent))
                for name in names
            ]
            typer.echo(readable_json(balances), nl=False)
        else:
            for name in names:
                view.show(ledger.state(name), ledger.history(name, after=recent))
        if plot is not None:
            with replacement_file(plot) as file:
                view.plot(
                    ledger.state(names[0]), ledger.history(names[0]), file, plot.suffix[1:].lower()
                )


@app.command()
def verify(
    book: Book,
    head: Annotated[
        Path | None, typer.Option(help="Head exported earlier (ledger export --head).")
    ] = None,
) -> None:
    """Check the hash chain and replay the history, and say what that can and cannot detect."""
    from dptopk.ledger.heads import head_storage_at
    from dptopk.ledger.ledger import Ledger
    from dptopk.ledger.log_store import refuse_own_file

    if head is not None and book.head_file is not None:
        raise InvalidParameter(
            "give one of --head and --head-file: an exported head, or where heads are stored"
        )
    if head is not None:
        refuse_own_file(book.url, head, "--head")
    exported_head = None if head is None else head_storage_at(head).read()
    if head is not None and exported_head is None:
        raise InvalidParameter(f"--head: {head.name!r} does not exist")
    inspection = Ledger.inspect_file(
        book.url,
        key=book.key,
        head=None if exported_head is None else asdict(exported_head),
        head_file=book.head_file,
    )
    if book.head_file is not None and not inspection.problems:
        stored_head = head_storage_at(book.head_file).read()
        if stored_head is None:
            raise InvalidParameter(f"--head-file: {Path(book.head_file).name!r} does not exist")
    for problem in inspection.problems:
        typer.echo(visible(problem))
    if not inspection.problems:
        typer.echo(f"{inspection.entries} entries: the chain is whole.")
    for line in inspection.warnings:
        typer.echo(f"Warning: {visible(line)}")
    typer.echo(f"\n{CAN_DETECT}\n{CAN_NOT_DETECT[book.key_file is not None]}")
    if inspection.problems:
        raise typer.Exit(1)


@app.command()
def statement(
    book: Book,
    dataset: Dataset,
    about: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TEXT", help="What no ledger knows: population=..., curator=..., ..."
        ),
    ] = None,
    output_format: Annotated[
        Literal["json", "html"], typer.Option("--format", help="How it is written.")
    ] = "json",
) -> None:
    """State for auditors what is guaranteed, for which unit, by which mechanisms and theorem, and
    what is not.
    """
    from dptopk.ledger.disclosure import statement as disclosure_statement, statement_page

    facts: dict[str, str] = {}
    for fact in about or []:
        name, sign, text = fact.partition("=")
        if not sign:
            raise InvalidParameter("--about must be NAME=TEXT")
        add_once(facts, name, text, "--about")
    with book.open(read_only=True) as ledger:
        statement_of_dataset = disclosure_statement(ledger, dataset, facts)
    if output_format == "html":
        typer.echo(statement_page(statement_of_dataset), nl=False)
    else:
        typer.echo(readable_json(statement_of_dataset), nl=False)


@app.command()
def export(
    book: Book,
    head: Annotated[
        bool, typer.Option("--head", help="Write only the head: number and hash of the last entry.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write to this file (default: standard output).")
    ] = None,
) -> None:
    """Write all entries as JSON lines, or the head, by which it shows later if the last entries
    are missing.
    """
    from dptopk.cli.target import check_target, text_file

    check_target(out, inputs=book.files_to_spare(book.url))
    with book.open(read_only=True) as ledger:
        if head:
            lines = iter([canonical_json(ledger.head())])
        else:
            lines = (canonical_json(asdict(entry)) for entry in ledger.entries())
        with text_file(out) as file:
            file.writelines(f"{line}\n" for line in lines)


@app.command()
def backup(
    book: Book, out: Annotated[Path, typer.Option(help="The copy, a file that is not there yet.")]
) -> None:
    """Copy a SQLite ledger, whole and as of one moment, while it is in use."""
    with book.open(read_only=True) as ledger:
        ledger.backup(out)
        typer.echo(f"Copied. Its head: {canonical_json(ledger.head())}")
