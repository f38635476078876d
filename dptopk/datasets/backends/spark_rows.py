"""Counts and labels that Spark keeps after one statement has made them: Python reads the counts,
and of the labels those of rows that are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk.datasets.backends.base import (
    Array,
    CountsAndLabels,
    Result,
    arrays_of,
    hide_data_of_errors,
)
from dptopk.histogram.stored_labels import StoredLabels

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame as SparkFrame

# Rows that come to Python at one time.
BATCH = 2**20
# A row's number, as Spark's monotonically_increasing_id gives it, has the index of its partition
# and, in this many last bits, the row's place there, from 0.
PLACE_BITS = 33
_ROW = "dptopk_row"  # the column of these numbers


@dataclass(frozen=True)
class SparkCounts:
    """The counts of labels, one row a label, computed once: what is read of them later is of the
    same state of the events.

    Attributes:
        frame: the column ``item`` and the counts, held by Spark's executors.
    """

    frame: SparkFrame

    @classmethod
    def of(cls, frame: SparkFrame) -> SparkCounts:
        """Run the statement of a frame, and let the executors hold its rows."""
        return cls(frame.localCheckpoint())

    def __len__(self) -> int:
        count: int = hide_data_of_errors(
            "table", "Spark could not count the labels", self.frame.count
        )
        return count

    def columns(self) -> dict[str, Array]:
        """Return all labels with their counts, in any order."""
        return _read(lambda: arrays_of(self.frame.toArrow().to_reader()))

    def totals(self, names: Sequence[str]) -> dict[str, Array]:
        """Return the sums of columns over all labels, each of shape (1,)."""
        functions = import_module("pyspark.sql.functions")
        sums = [functions.sum(name).alias(name) for name in names]
        return _read(lambda: arrays_of(self.frame.agg(*sums).toArrow().to_reader()))

    def in_order(self, names: Sequence[str]) -> SparkRows:
        """Return the labels and these counts in the order of a histogram.

        Args:
            names: the columns of counts; "count", by which rows are ordered, is one of them.
        """
        return _read(lambda: SparkRows.of(self.frame.select("item", *names)))


@dataclass(frozen=True)
class SparkRows:
    """Labels and counts in the order of a histogram, in blocks of Spark's executors.

    A row is known by its index in that order, from 0. Spark has another number for it, which is
    larger in later rows, with gaps between partitions.

    Attributes:
        frame: the columns ``item``, the counts, and ``dptopk_row``: Spark's number of the row.
        partitions: the partitions that have rows, ascending; shape (p,).
        starts: the first row of each of these partitions, and the number of all rows; shape
            (p + 1,).
    """

    frame: SparkFrame
    partitions: Array
    starts: Array

    @classmethod
    def of(cls, counted: SparkFrame) -> SparkRows:
        """Return the rows of a frame of labels and counts, in the order of a histogram.

        ``orderBy`` puts ranges into partitions in order, so that the numbers of rows rise with the
        order; the checkpoint fixes them.

        Args:
            counted: the columns ``item`` and ``count``, by which the rows are ordered, and any
                others. Two jobs of Spark run.
        """
        functions = import_module("pyspark.sql.functions")
        ordered = counted.orderBy(functions.desc("count"), functions.asc("item"))
        numbered = ordered.withColumn(_ROW, functions.monotonically_increasing_id())
        frame = numbered.localCheckpoint()
        partition = functions.shiftright(_ROW, PLACE_BITS).alias("partition")
        sizes = frame.groupBy(partition).agg(functions.count("*").alias("size"))
        result = arrays_of(sizes.toArrow().to_reader())
        order = np.argsort(result["partition"])
        partitions = result["partition"][order].astype(np.int64)
        ends = np.cumsum(result["size"][order], dtype=np.int64)
        return cls(frame, partitions, np.concatenate([[0], ends]))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def columns(self, names: Sequence[str]) -> CountsAndLabels:
        """Return the counts of all rows by name, shape (rows,) each, and labels that are read when
        they are asked for.
        """
        columns = self._all_rows(names)
        is_integer = dict(self.frame.dtypes)["item"] == "bigint"
        dtype: np.dtype[Any] = np.dtype(np.int64) if is_integer else np.dtypes.StringDType()
        return CountsAndLabels(
            columns, StoredLabels(len(self), dtype, self.labels_of_rows, self.rows_of_labels)
        )

    def labels_of_rows(self, rows: Array | None) -> Array:
        """Return the labels of the rows of these indices, in their order; None: of all rows."""
        if rows is None:
            result = self._all_rows(["item"])["item"]
        else:
            result = self._lookup(_ROW, self._numbers_of_rows(rows), "item")["value"]
        if result.dtype.kind in "iu":  # integers, which were read in the smallest type
            return result.astype(np.int64)
        return result

    def rows_of_labels(self, labels: Sequence[Any]) -> Array:
        """Return the index of each label's row, int64, shape (labels,); -1 for a label without
        one.
        """
        rows = np.full(len(labels), -1, dtype=np.int64)
        result = self._lookup("item", labels, _ROW)
        rows[result["place"]] = self._rows_of_numbers(result["value"].astype(np.int64))
        return rows

    def _numbers_of_rows(self, rows: Array) -> Array:
        """Return Spark's numbers of the rows of these indices."""
        parts = np.searchsorted(self.starts, rows, side="right") - 1
        return (self.partitions[parts] << PLACE_BITS) + (rows - self.starts[parts])

    def _rows_of_numbers(self, numbers: Array) -> Array:
        """Return the indices of the rows that have these numbers of Spark's."""
        parts = np.searchsorted(self.partitions, numbers >> PLACE_BITS)
        return self.starts[parts] + (numbers & (2**PLACE_BITS - 1))

    def _lookup(self, key: str, wanted: Array | Sequence[Any], value: str) -> dict[str, Array]:
        """Look rows up by the values of one column, and return the values of another one there.

        Args:
            key: the column by which rows are found.
            wanted: the values of ``key`` that are looked up.
            value: the column that is returned.

        Returns:
            "value", and "place", the index of the row's key in ``wanted``, ascending. Keys without
            a row are left out.
        """
        import pyarrow as pa

        functions = import_module("pyspark.sql.functions")
        values = pa.array(wanted)
        if pa.types.is_string(values.type):  # Spark holds labels of text as their bytes
            values = values.cast(pa.binary())
        places = pa.array(range(len(values)), pa.int64())
        wanted_table = pa.table({"wanted": values, "place": places})

        def read() -> dict[str, Array]:
            """Return the values and places, in the order of the places."""
            wanted_rows = functions.broadcast(self.frame.sparkSession.createDataFrame(wanted_table))
            joined = self.frame.join(wanted_rows, functions.col(key) == functions.col("wanted"))
            matches = joined.select("place", functions.col(value).alias("value"))
            return arrays_of(matches.toArrow().sort_by("place").to_reader())

        return _read(read)

    def _all_rows(self, names: Sequence[str]) -> dict[str, Array]:
        """Return columns of all rows by name, in order; only a part of them is in Arrow's memory at
        one time.
        """
        import pyarrow as pa

        def read() -> dict[str, Array]:
            """Return the columns, gathered from batches."""
            schema = self._row_range(0, 0, names).schema
            batches = self._batches(names)
            return arrays_of(pa.RecordBatchReader.from_batches(schema, batches))

        return _read(read)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of all rows, in order, BATCH rows at a time."""
        for start in range(0, len(self), BATCH):
            end = min(start + BATCH, len(self))
            yield from self._row_range(start, end, names).to_batches()

    def _row_range(self, start: int, end: int, names: Sequence[str]) -> pa.Table:
        """Return the columns ``names`` of the rows of the indices from ``start`` to before ``end``,
        in order.
        """
        functions = import_module("pyspark.sql.functions")
        number = functions.col(_ROW)
        if start == end:
            wanted = self.frame.limit(0)
        else:
            first, last = self._numbers_of_rows(np.array([start, end - 1])).tolist()
            wanted = self.frame.where(number.between(first, last))
        rows = wanted.select(_ROW, *names).toArrow()
        return rows.sort_by(_ROW).drop_columns(_ROW)


def _read(action: Callable[[], Result]) -> Result:
    """Return what an action on Spark returns.

    Raises:
        InvalidParameter: for any error of Spark's; the message shows nothing of the data.
    """
    return hide_data_of_errors("table", "Spark could not read the labels", action)
