"""``dptopk ledger``: init, show, renew, limit, verify, export."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.accounting.ledger.ledger import Ledger

__all__ = ["app", "open_ledger"]

app = typer.Typer(no_args_is_help=True, help="The ledger: budgets, and every charge against them.")

Url = Annotated[str, typer.Argument(help="Path of a SQLite file, or a SQLAlchemy URL.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", help="File with the secret that keys the hash chain (HMAC).")
]
Dataset = Annotated[str, typer.Option("--dataset", help="Name of the dataset.")]
Registered = Annotated[
    str | None,
    typer.Option("--registered", help='Costs that may be spent in any order, such as "500*BR(0.05) + 50*DP(0.1)".'),
]
BudgetEpsilon = Annotated[
    float | None, typer.Option("--epsilon", help="Instead of --registered: the total ε of a fully adaptive filter.")
]
TotalDelta = Annotated[float, typer.Option("--delta", help="The δ at which the guarantee is stated.")]

CAN_DETECT = """What this check finds: an entry that was changed, removed from the middle, inserted or reordered; a
history that the accountant would have refused. With an exported head (--head) also a tail that was cut off.
"""
CAN_NOT_DETECT = {
    False: """What it cannot find: without a key, anyone who can write the file can rewrite it from some entry on and
compute new hashes; only a head exported before that shows it.""",
    True: """What it cannot find: a tail that was cut off without an exported head, and changes by someone who holds
the key.""",
}


def open_ledger(url: str, key_file: Path | None, **options: Any) -> Ledger:
    """Open a ledger with the key in a file, if there is one."""
    from dptopk.accounting.ledger.ledger import Ledger

    return Ledger(url, key=_key(key_file), **options)


def _key(key_file: Path | None) -> bytes | None:
    """The secret in a file, without white space around it."""
    if key_file is None:
        return None
    try:
        return key_file.read_bytes().strip()
    except OSError as error:
        raise InvalidParameter(f"key-file: cannot read {key_file.name!r}: {error.strerror}") from None


def _terms(registered: str | None, epsilon: float | None, delta: float) -> dict[str, Any]:
    from dptopk.accounting.budget import Budget
    from dptopk.costs import Charge

    if (registered is None) == (epsilon is None):
        raise InvalidParameter("give exactly one of --registered and --epsilon")
    if registered is not None:
        return {"registered": Charge.parse(registered), "delta": delta}
    return {"budget": Budget(epsilon or 0.0, delta)}


@app.command()
def init(
    url: Url,
    dataset: Dataset,
    delta: TotalDelta,
    registered: Registered = None,
    epsilon: BudgetEpsilon = None,
    per_label_cap: Annotated[int, typer.Option("--per-label-cap", metavar="τ")] = 1,
    labels_per_user: Annotated[int | None, typer.Option("--labels-per-user", metavar="Δ")] = None,
    unit: Annotated[str, typer.Option("--unit", help="The privacy unit.")] = "user",
    version: Annotated[str, typer.Option("--version", help="Version of the data.")] = "1",
    key_file: KeyFile = None,
    test: Annotated[bool, typer.Option("--test", help="A new ledger is for tests: takes fixed seeds.")] = False,
) -> None:
    """Open the account of a dataset, in a new or an existing ledger."""
    from dptopk.histogram import Sensitivity

    ledger = open_ledger(url, key_file, test=test)
    sensitivity = Sensitivity(linf=per_label_cap, l0=labels_per_user)
    terms = _terms(registered, epsilon, delta)
    ledger.create_dataset(dataset, sensitivity=sensitivity, unit=unit, version=version, **terms)
    typer.echo(f"Dataset {dataset!r}: one {unit} {sensitivity}. Guarantee: {_guarantee(ledger.state(dataset))}")


@app.command()
def renew(
    url: Url,
    dataset: Dataset,
    delta: TotalDelta,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is recorded.")],
    registered: Registered = None,
    epsilon: BudgetEpsilon = None,
    key_file: KeyFile = None,
) -> None:
    """Open a new budget on the same data: recorded, and no reset of the lifetime spend."""
    ledger = open_ledger(url, key_file)
    ledger.renew(dataset, reason=reason, **_terms(registered, epsilon, delta))
    typer.echo(f"Renewed. Spent since the dataset was created: {ledger.spent(dataset, lifetime=True)}")


@app.command()
def limit(
    url: Url,
    dataset: Dataset,
    analyst: Annotated[str, typer.Option("--analyst")],
    delta: TotalDelta,
    registered: Registered = None,
    epsilon: BudgetEpsilon = None,
    key_file: KeyFile = None,
) -> None:
    """Limit one analyst inside a dataset's budget."""
    open_ledger(url, key_file).set_limit(dataset, analyst, **_terms(registered, epsilon, delta))
    typer.echo(f"{analyst!r} may spend {registered or f'({epsilon:g}, {delta:g})'} of {dataset!r}.")


@app.command()
def show(
    url: Url,
    dataset: Annotated[str | None, typer.Option("--dataset", help="Only this dataset.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw spending over time into this PNG or SVG.")] = None,
    key_file: KeyFile = None,
) -> None:
    """What is spent and what remains, over time and by analyst, and how many more queries are affordable."""
    from dptopk.cli import ledger_view as view

    ledger = open_ledger(url, key_file, read_only=True)
    names = ledger.datasets() if dataset is None else (dataset,)
    for name in names:
        view.show(ledger.state(name), _guarantee(ledger.state(name)))
    if plot is not None:
        if len(names) != 1:
            raise InvalidParameter("plot: name one --dataset")
        view.plot(ledger.state(names[0]), plot)


def _guarantee(state: Any) -> str:
    terms = state.terms
    delta = terms["budget"][1] if "budget" in terms else terms["delta"]
    return f"({state.account.epsilon():.6g}, {delta:g})-DP for everything, at every moment"


@app.command()
def verify(
    url: Url,
    head: Annotated[Path | None, typer.Option("--head", help="Head exported earlier (ledger export --head).")] = None,
    key_file: KeyFile = None,
) -> None:
    """Check the hash chain and replay the history; says what that can and cannot detect."""
    from dptopk.accounting.ledger.ledger import Ledger

    known = None
    if head is not None:
        try:
            known = json.loads(head.read_text(encoding="utf-8"))
            known = {"seq": int(known["seq"]), "hash": str(known["hash"])}
        except (OSError, ValueError, KeyError, TypeError):
            raise InvalidParameter(f"head: {head.name!r} is not an exported head") from None
    key = _key(key_file)
    problems, entries = Ledger.inspect(url, key=key, head=known)
    typer.echo("\n".join(problems) if problems else f"{entries} entries: the chain is whole.")
    typer.echo(f"\n{CAN_DETECT}{CAN_NOT_DETECT[key is not None]}")
    if problems:
        raise typer.Exit(1)


@app.command()
def export(
    url: Url,
    head: Annotated[bool, typer.Option("--head", help="Only the last sequence number and hash.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file.")] = None,
    key_file: KeyFile = None,
) -> None:
    """Write all entries as JSON lines, or the head that later proves that no tail was cut off."""
    ledger = open_ledger(url, key_file, read_only=True)
    lines = [ledger.head()] if head else [asdict(entry) for entry in ledger.entries()]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")
