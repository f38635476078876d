"""The ten articles with the most readers, with (ε, δ)-differential privacy for members.

Each run of one version of the data gives the same table and is charged once on the ledger, which
refuses what would exceed the budget of the data set. Only this table may be shown to others: the
clicks, the warehouse and the ledger's stored question stay with their owner.
"""

from dptopk import Budget, Ledger, Sensitivity, Session
from dptopk.datasets import events_histogram

CAPS = Sensitivity(l0=5)  # a member counts for at most 5 articles, once each
TOTAL = Budget(3.0, 1e-5)  # of the data set, over all runs and models
EACH = Budget(1.0, 1e-6)  # of one version of this model


def model(dbt, session):  # noqa: ARG001
    """A table with the columns rank, label, count, low and high."""
    dbt.config(materialized="table")
    clicks = dbt.ref("clicks")  # a relation of DuckDB, read by one statement
    histogram = events_histogram(clicks, user="member", item="article", labels_per_user=CAPS.l0)
    version = dbt.config.get("data_version")
    with Ledger(dbt.config.get("ledger")) as ledger:
        if "clicks" not in ledger.datasets():
            ledger.create_dataset(
                "clicks", budget=TOTAL, sensitivity=CAPS, unit="member", version=version
            )
        if ledger.state("clicks").version != version:
            ledger.set_version("clicks", version)
        asking = Session(
            histogram,
            ledger=ledger,
            dataset="clicks",
            analyst="dbt",
            version=version,
            source="articles by readers",
        )
        answer = asking.top_k(10, budget=EACH, reuse=True).display_table()
    return answer  # noqa: RET504 - dbt wants one return, at the end
