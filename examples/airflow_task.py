"""A scheduled task that is tried again when it fails, and charges once all the same.

Run as ``python examples/airflow_task.py FOLDER``; with Airflow, ``publish`` is the task of a DAG:
see the end.

The run's id is the key of the charge in the ledger. A try that finds the key charged draws the
answer for that charge; one that finds the answer stored gives it again. No answer leaves before it
is stored, so one charge has one answer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from dptopk import Budget, Ledger, Release, Sensitivity, plan_topk
from dptopk.datasets import events_histogram, make_events

CAPS = Sensitivity(l0=5)
TOTAL, EACH = Budget(3.0, 1e-5), Budget(1.0, 1e-6)


def publish(
    folder: str, run_id: str, after_charge: Callable[[], None] = lambda: None
) -> list[dict[str, object]]:
    """The top ten of the clicks, as rows that a later task can read.

    Args:
        folder: with clicks.parquet and ledger.db.
        run_id: of the run, the same in every try: ``context["run_id"]`` in Airflow.
        after_charge: called between the charge and the answer: where tests let a try fail.
    """
    with Ledger(Path(folder) / "ledger.db") as ledger:
        spend = ledger.asked("clicks", "pipeline", run_id)
        if spend is None or spend.answer is None:
            histogram = events_histogram(
                Path(folder) / "clicks.parquet",
                user="member",
                item="article",
                labels_per_user=CAPS.l0,
            )
            plan = plan_topk(10, EACH, sensitivity=histogram.sensitivity)
            plan.check(histogram)  # what cannot be answered fails before it costs anything
            receipt = ledger.charge(
                "clicks",
                "pipeline",
                plan.charge,
                once=run_id,
                sensitivity=histogram.sensitivity,
                unit="member",
            )
            if str(receipt.charge) != str(plan.charge):
                raise RuntimeError("this run was charged for another plan; start a new run")
            after_charge()
            release = plan.release(histogram)
            ledger.finalize(receipt, release.charge, answer=release.to_dict())
            spend = ledger.asked("clicks", "pipeline", run_id)
        return Release.from_dict(ledger.answer(spend)).table.to_dict("records")


def main(arguments: list[str]) -> list[dict[str, object]]:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    make_events(folder / "clicks.parquet", events=20_000, users=2_000, items=500, seed=1)
    with Ledger(folder / "ledger.db") as ledger:
        if "clicks" not in ledger.datasets():
            ledger.create_dataset("clicks", budget=TOTAL, sensitivity=CAPS, unit="member")

    def lost() -> None:
        raise ConnectionError("the worker lost its connection")

    run_id = "scheduled__2026-11-01"
    try:
        publish(str(folder), run_id, lost)
    except ConnectionError as error:
        print(f"first try: {error}")
    rows = publish(str(folder), run_id)
    # a third try, after the answer was stored
    assert publish(str(folder), run_id) == rows  # noqa: S101
    with Ledger(folder / "ledger.db") as ledger:
        print(f"three tries, charged once: {ledger.spent('clicks')}")
    print(*rows, sep="\n")
    return rows


# In a DAG of Airflow:
#
#     @task(retries=3)
#     def top_articles(**context):
#         return publish("/data/clicks", context["run_id"])

if __name__ == "__main__":
    main(sys.argv[1:])
