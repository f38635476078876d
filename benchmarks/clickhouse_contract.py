"""The contract of a backend on ClickHouse, embedded in this process by chDB (pip install chdb; some
hundred megabytes).

    python benchmarks/clickhouse_contract.py

Ibis writes the SQL as for a ClickHouse server; chDB runs it. Prints what check_backend finds, and
what it took.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.operations as ops
import pyarrow as pa
import pyarrow.parquet as pq

from dptopk.datasets import Backend, check_backend
from dptopk.datasets.backends.base import builtin


class Embedded:
    """As much of an Ibis connection as the contract asks for."""

    name = "clickhouse"

    def __init__(self, folder: Path) -> None:
        from chdb.session import Session

        self.session, self.folder, self.made = Session(), folder, set[str]()

    def to_pyarrow(self, expression: Any) -> pa.Table:
        for table in expression.op().find(ops.InMemoryTable):
            if table.name not in self.made:
                path = self.folder / f"{table.name}.parquet"
                pq.write_table(table.data.to_pyarrow(table.schema), path)
                source = f"SELECT * FROM file('{path}', Parquet)"  # noqa: S608
                self.session.query(
                    f"CREATE TABLE default.`{table.name}` ENGINE = Memory AS {source}"
                )
                self.made.add(table.name)
        query = (
            f"{ibis.to_sql(expression, dialect='clickhouse')} SETTINGS "
            f"output_format_arrow_string_as_string = 1"
        )
        answer = pa.ipc.open_stream(self.session.query(query, "ArrowStream").bytes()).read_all()
        return answer.cast(expression.as_table().schema().to_pyarrow())


def sip_hash(*columns: Any) -> Any:
    return builtin("sipHash64", tuple(column.type() for column in columns), "uint64")(*columns)


def sha256(text: Any) -> Any:
    return builtin("hex", ("string",), "string")(
        builtin("SHA256", ("string",), "string")(text)
    ).lower()


if __name__ == "__main__":
    backend = Backend(name="clickhouse", mix=sip_hash, digest=sha256, peers=False)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        for row in check_backend(Embedded(Path(folder)), backend).itertuples():
            print(f"{'passed' if row.passed else 'BROKEN'}  {row.check}  {row.found}")
        print(f"{time.process_time() - start:.1f} s of processor time")
