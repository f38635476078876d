"""The types of what a caller hands in: tables of events, conditions on rows, and constants."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    import ibis.expr.datatypes as ibis_types
    import ibis.expr.types as ir
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as pads
    from duckdb import DuckDBPyRelation
    from ibis.common.deferred import Deferred
    from pyspark.sql import DataFrame as SparkFrame

    from dptopk.datasets.text_files import TextFile

ArrowTable: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | pads.Dataset"
Frame: TypeAlias = (
    "pd.DataFrame | pl.DataFrame | pl.LazyFrame | SparkFrame | ArrowTable | DuckDBPyRelation"
)
# What ``open_table`` takes.
EventTable: TypeAlias = "str | Path | TextFile | Frame | ir.Table"
# A value that a column is compared with.
Constant: TypeAlias = str | bool | int | float | Decimal | dt.date | UUID
Constants: TypeAlias = Constant | Sequence[Constant] | set[Constant] | frozenset[Constant]
# What holds of the rows that are looked at; None: all rows are.
Condition: TypeAlias = (
    "Mapping[str, Constants] | Callable[[ir.Table], ir.BooleanValue] | ir.BooleanValue | Deferred"
    " | None"
)
# A type of Ibis, by its class or its name.
IbisType: TypeAlias = "ibis_types.DataType | str"
