"""``dptopk refresh``: append a partition to a store of events, and set the version of the data in
the ledger.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptopk.cli.options import Chain
from dptopk.errors import InvalidParameter


def refresh(
    store: Annotated[
        Path, typer.Argument(help="The store; made on first use, with --user-col and --item-col.")
    ],
    partition: Annotated[
        Path, typer.Argument(help="The new events: Parquet, CSV, JSON lines, a folder of Parquet.")
    ],
    version: Annotated[
        str,
        typer.Option("--data-version", help="A name for the data from now on, such as the date."),
    ],
    chain: Chain,
    user: Annotated[str | None, typer.Option("--user-col", help="Column of the user.")] = None,
    item: Annotated[str | None, typer.Option("--item-col", help="Column of the labels.")] = None,
    labels_per_user: Annotated[
        int | None, typer.Option(metavar="Δ", help="At most Δ labels of one user count.")
    ] = None,
    per_label_cap: Annotated[
        int | None,
        typer.Option(metavar="τ", help="One user adds at most τ to one label (default: 1)."),
    ] = None,
    portable: Annotated[
        bool,
        typer.Option(
            "--portable", help="Choose labels by SHA-256: the store outlives DuckDB's own hash."
        ),
    ] = False,
    partitions: Annotated[
        bool,
        typer.Option(
            "--partitions",
            help="Hold each partition by itself too, for [bold]dptopk stream[/bold].",
        ),
    ] = False,
    days_per_user: Annotated[
        int | None,
        typer.Option(help="With --partitions: a user counts in their first N partitions."),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="Ledger in which the version of the data is set too.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of the dataset in the ledger.")] = None,
) -> None:
    """Add a day's events to a store without reading the earlier ones again.

    It may be run again after a failure: where the version is the store's latest already, it is only
    set in the ledger.
    """
    from dptopk.datasets import EventsStore

    one_is_missing = (ledger is None) != (dataset is None)
    if one_is_missing or (ledger is None and chain != Chain()):
        raise InvalidParameter(
            "--ledger and --dataset go together; --key-file and --head-file need both"
        )
    caps = (labels_per_user, per_label_cap, days_per_user)
    bounds_are_stated = portable or partitions or any(cap is not None for cap in caps)
    if bounds_are_stated and user is None:
        raise InvalidParameter(
            "bounds are fixed when a store is made, with --user-col and --item-col; leave them out"
        )
    with EventsStore(
        store,
        user=user,
        item=item,
        labels_per_user=labels_per_user,
        per_label_cap=1 if per_label_cap is None else per_label_cap,
        portable=portable,
        partitions=partitions,
        days_per_user=days_per_user,
    ) as events:
        if version not in events.versions[-1:]:
            events.append(partition, version=version)
        count = len(events.versions)
    if ledger is not None and dataset is not None:
        with chain.open_ledger(ledger) as book:
            # A version that is set ends stored answers, and lets users move between segments: that
            # is not done a second time for the same data.
            if book.state(dataset).version != version:
                book.set_version(dataset, version)
    typer.echo(f"{store}: {count} partitions, now at version {version!r}.")
