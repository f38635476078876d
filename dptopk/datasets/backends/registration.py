"""Letting a backend in: it is tried on every clause of the contract, on the user's own
connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import Backend
from dptopk.datasets.backends.contract import CHECKS, TrialEngine
from dptopk.datasets.backends.opening import REGISTERED
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pandas as pd
    from ibis.backends import BaseBackend


def check_backend(connection: BaseBackend, backend: Backend) -> pd.DataFrame:
    """Try an engine on every clause of the contract, on made-up temporary tables, and say which
    hold.

    Args:
        connection: an Ibis connection to it, such as ibis.clickhouse.connect(...).
        backend: what it does in its own way.

    Returns:
        A data frame with a row a clause: check (the name of the function), clause (its text),
        passed (a truth value), and found (what the engine did instead, or the error it raised; ""
        where the clause holds).
    """
    import pandas as pd

    engine = TrialEngine(connection, backend)
    rows = []
    for check in CHECKS:
        difference = ""
        try:
            check(engine)
        except Exception as error:  # noqa: BLE001 - an engine may raise anything; the row says it
            difference = f"{type(error).__name__}: {error}"
        clause = (check.__doc__ or "").strip()
        rows.append(
            {
                "check": check.__name__,
                "clause": clause,
                "passed": not difference,
                "found": difference,
            }
        )
    return pd.DataFrame(rows)


def register_backend(connection: BaseBackend, backend: Backend) -> None:
    """Let a backend in for this process: from now on its Ibis tables are taken, as those of DuckDB
    are.

    Args:
        connection: an Ibis connection to the engine, on which the contract is tried.
        backend: what the engine does in its own way.

    Raises:
        InvalidParameter: when a clause of the contract does not hold; it names them.

    >>> import ibis
    >>> from dptopk.datasets.backends.duckdb_operations import DUCKDB
    >>> register_backend(ibis.duckdb.connect(), DUCKDB)
    """
    if connection.name != backend.name:
        raise InvalidParameter(
            f"backend: it is for {backend.name!r}, and the connection for {connection.name!r}"
        )
    verdicts = check_backend(connection, backend)
    broken = verdicts[~verdicts["passed"]]
    if len(broken):
        raise InvalidParameter(
            f"backend: {backend.name!r} breaks the contract: {', '.join(broken['check'])}"
        )
    REGISTERED[backend.name] = backend
