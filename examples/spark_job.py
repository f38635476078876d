"""A Spark job: Spark bounds and counts what each member adds, and one small table leaves it with
noise.

Run as ``spark-submit examples/spark_job.py FOLDER`` or ``python examples/spark_job.py FOLDER``;
writes top.csv. Needs the extra ``spark`` and Java.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dptopk import Budget, Release, plan_topk
from dptopk.datasets import Spark, events_histogram, make_events

BUDGET, PER_MEMBER, K = Budget(1.0, 1e-6), 5, 10


def top_articles(clicks: Any, spark: Any) -> Release:
    """The top ten of a Spark data frame of clicks.

    Only the rows that the mechanism looks at leave Spark: the largest counts, and one more.
    """
    histogram = events_histogram(
        clicks,
        user="member",
        item="article",
        labels_per_user=PER_MEMBER,
        top=20 * K + 1,
        engine=Spark(session=spark),
    )
    plan = plan_topk(K, BUDGET, sensitivity=histogram.sensitivity, d_bar=20 * K)
    return plan.release(histogram)


def main(arguments: list[str], spark: Any = None) -> Release:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    make_events(folder / "clicks.parquet", events=20_000, users=2_000, items=500, seed=1)
    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.appName("top articles").getOrCreate()
    release = top_articles(spark.read.parquet(str(folder / "clicks.parquet")), spark)
    print(release)
    release.display_table().to_csv(folder / "top.csv", index=False)
    return release


if __name__ == "__main__":
    main(sys.argv[1:])
