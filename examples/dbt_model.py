"""A dbt model in Python: the private top articles of a table of clicks, as a table that others may
read.

In a dbt project on DuckDB this file is ``models/top_articles.py``, and ``ref("clicks")`` an earlier
model. Run as ``python examples/dbt_model.py FOLDER`` it is its own small project: a DuckDB database
with made-up clicks.

A run with the same version of the data gives the stored answer again, and charges nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dptopk import Budget, Ledger, Sensitivity, Session
from dptopk.datasets import events_histogram

CAPS = Sensitivity(l0=5)  # a member counts for at most 5 articles, once each
TOTAL, EACH = Budget(3.0, 1e-5), Budget(1.0, 1e-6)  # of the data set, and of one run of the model


def model(dbt: Any, session: Any) -> Any:  # noqa: ARG001
    """The ten articles with the most readers."""
    dbt.config(materialized="table")
    clicks = dbt.ref("clicks").arrow()
    histogram = events_histogram(clicks, user="member", item="article", labels_per_user=CAPS.l0)
    with Ledger(dbt.config.get("ledger")) as ledger:
        if "clicks" not in ledger.datasets():
            ledger.create_dataset("clicks", budget=TOTAL, sensitivity=CAPS, unit="member")
        version = ledger.state("clicks").version
        asking = Session(
            histogram,
            ledger=ledger,
            dataset="clicks",
            analyst="dbt",
            version=version,
            source="articles by readers",
        )
        return asking.top_k(10, budget=EACH, counts="auto", reuse=True).shown()


class Project:
    """What dbt hands to a model, as far as this one uses it."""

    class Config(dict):  # type: ignore[type-arg]
        """Settings of the project, to which a model adds its own by a call."""

        def __call__(self, **settings: Any) -> None:
            """Settings of one model."""
            self.update(settings)

    def __init__(self, connection: Any, **settings: Any) -> None:
        self.config = Project.Config(settings)
        self.ref = connection.table


def main(arguments: list[str]) -> Any:
    import duckdb

    from dptopk.datasets import make_events

    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    make_events(folder / "clicks.parquet", events=20_000, users=2_000, items=500, seed=1)
    with duckdb.connect(folder / "warehouse.duckdb") as connection:
        parquet = str(folder / "clicks.parquet")
        connection.execute(
            "CREATE OR REPLACE TABLE clicks AS SELECT * FROM read_parquet(?)", [parquet]
        )
        connection.register(
            "made", model(Project(connection, ledger=str(folder / "ledger.db")), connection)
        )
        connection.execute("CREATE OR REPLACE TABLE top_articles AS SELECT * FROM made")
        found = connection.table("top_articles").df()
    print(found.to_string(index=False))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
