"""``dptopk ledger``: accounts, budgets and keys; show, verify and statement; export and backup."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dptopk._internal.formatting import format_upper, visible
from dptopk._internal.json_text import canonical_json, readable_json
from dptopk.cli.options import Cap, PerUser, listed_names
from dptopk.cli.shell import Subgroup
from dptopk.cli.terms import (
    BudgetEpsilon,
    BudgetRho,
    FailureDelta,
    OfAnalyst,
    Registered,
    TotalDelta,
    costs_of,
    planned,
    ranges_of,
    terms_of,
)
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.ledger.ledger import Ledger


LATELY = 2000  # entries in which ``show`` looks for recent charges

app = typer.Typer(cls=Subgroup, no_args_is_help=True, help="The ledger: budgets, and every charge against them.")

Url = Annotated[str, typer.Argument(help="Path of a SQLite file, or the URL of a PostgreSQL database.")]
CHAIN = "The ledger's hash chain"
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", help="File with the secret that keys it (HMAC).", rich_help_panel=CHAIN)
]
HeadFile = Annotated[
    str | None,
    typer.Option(
        "--head-file",
        help="File (ideally on another disk) or database URL that stores the chain head, so that a rolled-back ledger "
        "is detected.",
        rich_help_panel=CHAIN,
    ),
]
Dataset = Annotated[str, typer.Option("--dataset", help="Name of the dataset.")]
CAN_DETECT = """What this check finds: an entry that was changed, removed from the middle, inserted or reordered; a
history that the accountant would have refused; keys and stored answers that are no longer found; pages and indexes that
the database itself finds damaged. With an exported head (--head) also a tail that was cut off.
"""
CAN_NOT_DETECT = {
    False: """What it cannot find: without a key, anyone who can write the file can rewrite it from some entry on and
compute new hashes; only a head exported before that shows it.""",
    True: """What it cannot find: a tail that was cut off without an exported head, and changes by someone who holds
the key.""",
}


def open_ledger(
    url: str, key_file: Path | None, head_file: str | None = None, *, create: bool = False, **options: Any
) -> Ledger:
    """Open a ledger with the key in a file, if there is one; only ``ledger init`` makes one that is not there."""
    from dptopk.ledger.ledger import Ledger

    return Ledger(url, key=_key(key_file), head_file=head_file, create=create, **options)


def _files(url: str) -> tuple[str, ...]:
    """A SQLite ledger and its journals: no command may write an answer over them."""
    return url, f"{url}-journal", f"{url}-wal", f"{url}-shm"


def _key(key_file: Path | None) -> bytes | None:
    """The secret in a file, if one is named."""
    from dptopk.ledger.keys import read_key

    return None if key_file is None else read_key(**{"key-file": key_file})


@app.command()
def init(
    url: Url,
    dataset: Dataset,
    delta: TotalDelta,
    registered: Registered = None,
    epsilon: BudgetEpsilon = None,
    rho: BudgetRho = None,
    failure_delta: FailureDelta = None,
    share: OfAnalyst = None,
    query: Annotated[
        str | None,
        typer.Option("--query", help="Instead of --registered: register a question, 'k=25 epsilon=0.5 delta=1e-7'."),
    ] = None,
    ranges: Annotated[
        str | None,
        typer.Option("--ranges", help='With --epsilon: ranges of selections that may be chosen freely, "0.1,0.05".'),
    ] = None,
    costs: Annotated[
        str | None,
        typer.Option("--costs", help='With --epsilon: other costs to be chosen freely, "DGauss(20, 1) + DP(0.1)".'),
    ] = None,
    times: Annotated[int, typer.Option("--times", help="How many answers to --query to register.")] = 1,
    per_label_cap: Cap = 1,
    labels_per_user: PerUser = None,
    segment_by: Annotated[
        str | None,
        typer.Option("--segment-by", help="What disjoint segments are by: each has the whole budget; with --segments."),
    ] = None,
    segments: Annotated[
        str | None,
        typer.Option("--segments", help="Their names, 'eu,us,asia': in the data one unit is in at most one of them."),
    ] = None,
    unit: Annotated[str, typer.Option("--unit", help="The privacy unit.")] = "user",
    version: Annotated[str, typer.Option("--version", help="Version of the data.")] = "1",
    key_file: KeyFile = None,
    head_file: HeadFile = None,
    test: Annotated[bool, typer.Option("--test", help="A new ledger is for tests: takes fixed seeds.")] = False,
) -> None:
    """Open the account of a dataset, in a new or an existing ledger."""
    from dptopk.cli.ledger_view import moved
    from dptopk.histogram.histogram import Sensitivity

    sensitivity = Sensitivity(linf=per_label_cap, l0=labels_per_user)
    if (segment_by is None) != (segments is None):
        raise InvalidParameter("--segment-by and --segments go together: what they are by, and their names")
    if query is not None and registered is None is epsilon is rho and not share:
        registered = planned(query, times, sensitivity)
    elif query is not None:
        raise InvalidParameter("give exactly one of --registered, --epsilon, --rho and --query")
    terms = terms_of(registered, epsilon, delta, failure_delta, share, rho)
    if ranges is not None:
        terms["ranges"] = ranges_of(ranges)
    if costs is not None:
        terms["costs"] = list(costs_of(costs, "--costs").costs)
    if segments is not None:
        terms["segments"] = {segment_by: listed_names(segments=segments)}
    with open_ledger(url, key_file, head_file, create=True, test=test) as ledger:
        if test and not ledger.test:
            raise InvalidParameter("--test: this ledger exists, and was not made for tests")
        ledger.create_dataset(dataset, sensitivity=sensitivity, unit=unit, version=version, **terms)
        made = ledger.state(dataset)
        typer.echo(f"Dataset {dataset!r}: {visible(moved(made))}. Guarantee: {_guarantee(made)}")
    if registered is not None:
        typer.echo(f"Registered: {terms['registered']}")


@app.command()
def renew(
    url: Url,
    dataset: Dataset,
    delta: TotalDelta,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is recorded.")],
    registered: Registered = None,
    epsilon: BudgetEpsilon = None,
    rho: BudgetRho = None,
    failure_delta: FailureDelta = None,
    share: OfAnalyst = None,
    key_file: KeyFile = None,
    head_file: HeadFile = None,
) -> None:
    """Open a new budget on the same data: recorded, and no reset of the lifetime spend."""
    terms = terms_of(registered, epsilon, delta, failure_delta, share, rho)
    with open_ledger(url, key_file, head_file) as ledger:
        ledger.renew(dataset, reason=reason, **terms)
        typer.echo(f"Renewed. Spent since the dataset was created: {ledger.spent(dataset, lifetime=True)}")


@app.command()
def limit(
    url: Url,
    dataset: Dataset,
    analyst: Annotated[str, typer.Option("--analyst")],
    delta: TotalDelta,
    registered: Registered = None,
    epsilon: BudgetEpsilon = None,
    rho: BudgetRho = None,
    failure_delta: FailureDelta = None,
    key_file: KeyFile = None,
    head_file: HeadFile = None,
) -> None:
    """Limit one analyst inside a dataset's budget."""
    terms = terms_of(registered, epsilon, delta, failure_delta, rho=rho)
    with open_ledger(url, key_file, head_file) as ledger:
        ledger.set_limit(dataset, analyst, **terms)
    allowed = registered or (f"ρ = {rho:g}" if epsilon is None else f"({epsilon:g}, {delta:g})")
    typer.echo(f"{analyst!r} may spend {allowed} of {dataset!r}.")


@app.command("set-version")
def set_version(
    url: Url,
    dataset: Dataset,
    version: Annotated[str, typer.Option("--version", help="The new version of the data.")],
    key_file: KeyFile = None,
    head_file: HeadFile = None,
) -> None:
    """Record that the data changed: stored answers end, budgets go on."""
    with open_ledger(url, key_file, head_file) as ledger:
        ledger.set_version(dataset, version)
    typer.echo(f"Dataset {dataset!r} is at version {version!r}.")


@app.command()
def rekey(
    url: Url,
    key_file: Annotated[Path, typer.Option("--key-file", help="File with the secret that the ledger has.")],
    new_key_file: Annotated[Path, typer.Option("--new-key-file", help="File with the secret that it is to have.")],
    head_file: HeadFile = None,
) -> None:
    """Give the hash chain another secret, after verifying all of it; stop the service first."""
    from dptopk.ledger.keys import read_key

    secret = read_key(**{"new-key-file": new_key_file})
    with open_ledger(url, key_file, head_file) as ledger:
        ledger.rekey(secret)
        head = ledger.head()
    typer.echo(
        f"{head['seq']} entries are chained by the new secret. Copies of the ledger keep the old one; heads exported "
        "before fit no longer: export a new one (dptopk ledger export --head)."
    )


@app.command("accept-restore")
def accept_restore(
    url: Url,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is recorded.")],
    head_file: HeadFile = None,
    key_file: KeyFile = None,
) -> None:
    """Go on with a ledger put back to an older state, on purpose: recorded, with the head that is given up."""
    from dptopk.ledger.ledger import Ledger

    lost = Ledger.accept_restore(url, reason=reason, head_file=head_file, key=_key(key_file))
    if lost is None:
        typer.echo(
            "Accepted. What leads to keys and stored answers was written anew from the log. Where the file had lost "
            "its write-ahead log, what was charged there counts nowhere: renew the budgets, and allow for it."
        )
        return
    typer.echo(
        f"Accepted. Entries up to {lost['seq']} were written before this state was put back and are lost; what they "
        "charged counts nowhere: renew the budgets with terms that allow for it (dptopk ledger renew), and start "
        "every process anew that has the ledger open."
    )


@app.command()
def show(
    url: Url,
    dataset: Annotated[str | None, typer.Option("--dataset", help="Only this dataset.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw spending over time into this PNG or SVG.")] = None,
    output_format: Annotated[Literal["table", "json"], typer.Option("--format", help="table or json.")] = "table",
    key_file: KeyFile = None,
    head_file: HeadFile = None,
) -> None:
    """What is spent and what remains, over time and by analyst, and how many more queries are affordable."""
    from dptopk.cli import ledger_view as view
    from dptopk.cli.target import check_target, replacing

    if plot is not None:
        check_target(plot, name="plot", inputs=(*_files(url), key_file, head_file))
        if plot.suffix.lower() not in {".png", ".svg"}:
            raise InvalidParameter("--plot: name a .png or an .svg file")
    with open_ledger(url, key_file, head_file, read_only=True) as ledger:
        names = ledger.datasets() if dataset is None else (dataset,)
        if plot is not None and len(names) != 1:
            raise InvalidParameter("--plot: name one --dataset")
        recent = max(0, ledger.head()["seq"] - LATELY)
        if output_format == "json":
            shown = [view.as_dict(ledger.state(name), ledger.history(name, after=recent)) for name in names]
            typer.echo(readable_json(shown), nl=False)
        else:
            for name in names:
                view.show(ledger.state(name), ledger.history(name, after=recent))
        if plot is not None:
            with replacing(plot) as file:
                view.plot(ledger.state(names[0]), ledger.history(names[0]), file, plot.suffix[1:].lower())


def _guarantee(state: Any) -> str:
    terms = state.terms
    delta = terms["budget"][1] if "budget" in terms else terms["delta"]
    total = f"({format_upper(state.account.epsilon())}, {delta:g})-DP for everything, at every moment"
    rho = terms["budget"][2:] if "budget" in terms else []
    return f"{rho[0]:g}-zCDP but for failures of at most {delta / 2:g}; {total}" if rho else total


@app.command()
def verify(
    url: Url,
    head: Annotated[Path | None, typer.Option("--head", help="Head exported earlier (ledger export --head).")] = None,
    key_file: KeyFile = None,
) -> None:
    """Check the hash chain and replay the history; says what that can and cannot detect."""
    from dptopk.ledger.heads import witness_at
    from dptopk.ledger.ledger import Ledger

    known = None if head is None else witness_at(head).read()
    if head is not None and known is None:
        raise InvalidParameter(f"--head: {head.name!r} does not exist")
    found = Ledger.inspect_file(url, key=_key(key_file), head=None if known is None else asdict(known))
    whole = f"{found.entries} entries: the chain is whole."
    typer.echo("\n".join(visible(line) for line in found.problems) or whole)
    for line in found.warnings:
        typer.echo(f"Warning: {visible(line)}")
    typer.echo(f"\n{CAN_DETECT}{CAN_NOT_DETECT[key_file is not None]}")
    if found.problems:
        raise typer.Exit(1)


@app.command()
def statement(
    url: Url,
    dataset: Dataset,
    about: Annotated[
        list[str] | None,
        typer.Option("--about", metavar="NAME=TEXT", help="What no ledger knows: population=..., curator=..., ..."),
    ] = None,
    output_format: Annotated[Literal["json", "html"], typer.Option("--format", help="json or html.")] = "json",
    key_file: KeyFile = None,
) -> None:
    """State for auditors what is guaranteed, for which unit, by which mechanisms and theorem, and what is not."""
    from dptopk.ledger.disclosure import statement as stated, statement_page

    parts = [text.partition("=") for text in about or []]
    if not all(sign for _, sign, _ in parts):
        raise InvalidParameter("--about must be NAME=TEXT")
    with open_ledger(url, key_file, read_only=True) as ledger:
        made = stated(ledger, dataset, {name: text for name, _, text in parts})
    typer.echo(statement_page(made) if output_format == "html" else readable_json(made), nl=False)


@app.command()
def export(
    url: Url,
    head: Annotated[bool, typer.Option("--head", help="Only the last sequence number and hash.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file.")] = None,
    key_file: KeyFile = None,
) -> None:
    """Write all entries as JSON lines, or the head that later proves that no tail was cut off."""
    from dptopk.cli.target import check_target, opened

    check_target(out, inputs=(*_files(url), key_file))
    with open_ledger(url, key_file, read_only=True) as ledger:
        lines = iter([ledger.head()]) if head else (asdict(entry) for entry in ledger.entries())
        with opened(out) as file:
            file.writelines(canonical_json(line) + "\n" for line in lines)


@app.command()
def backup(
    url: Url,
    out: Annotated[Path, typer.Option("--out", help="The copy, a file that is not there yet.")],
    key_file: KeyFile = None,
) -> None:
    """Copy a SQLite ledger, whole and as of one moment, while it is in use."""
    with open_ledger(url, key_file, read_only=True) as ledger:
        ledger.backup(out)
        typer.echo(f"Copied. Its head: {canonical_json(ledger.head())}")
