"""Checks of a catalog before it is served: errors, by name, and probable mistakes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptopk.costs import Budget
from dptopk.errors import DptopkError
from dptopk.ledger.heads import witness_at
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.names import canonical
from dptopk.service.access import Access
from dptopk.service.catalog import Catalog, DatasetSpec, Segmented
from dptopk.service.data import tried
from dptopk.service.tables import Tables
from dptopk.service.terms import HOW, create, differences

LARGE_EPSILON = 20.0  # above it a budget protects nobody in practice
LARGE_DELTA = 1e-4  # the share of users who may be shown entirely


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; ``refused``: the service would not start, or not answer."""

    text: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{'refused' if self.refused else 'warning'}: {self.text}"


def check(path: str | Path) -> list[Finding]:
    """Everything that is wrong with a catalog, its data, its ledger and its access database; nothing is written."""
    try:
        catalog = Catalog.load(path)
        found = [*_files(catalog), *(one for spec in catalog.datasets.values() for one in _dataset(spec))]
        return [*found, *_ledger(catalog), *_people(catalog)]
    except DptopkError as error:
        return [Finding(str(error), refused=True)]


def _files(catalog: Catalog) -> Iterator[Finding]:
    for name, read in (("key_file", lambda: catalog.key), ("head_file", lambda: _head(catalog))):
        try:
            read()
        except DptopkError as error:
            yield Finding(f"{name}: {error}", refused=True)
    for name in ("ledger", "access", "head_file"):
        place = str(getattr(catalog, name) or "")
        if place and "://" not in place and not Path(place).parent.is_dir():
            yield Finding(f"{name}: there is no folder {str(Path(place).parent)!r}", refused=True)
    if catalog.key_file is None:
        yield Finding("key_file: the ledger's chain has no key: who can write it can forge it")
    if catalog.head_file is None:
        yield Finding("head_file: without one an old copy of the ledger is not detected")


def _head(catalog: Catalog) -> Any:
    return None if catalog.head_file is None else witness_at(catalog.head_file).read()


def _dataset(spec: DatasetSpec) -> Iterator[Finding]:
    where = f"datasets.{spec.name}"
    yield from _budgets(spec, where)
    if spec.analysts is not None and spec.terms.shares is not None:
        others = {canonical(name) for name in spec.terms.shares} - {"reserve"} - set(spec.analysts)
        if others:
            yield Finding(f"{where}: shares of {', '.join(others)}, who may not ask")
    if spec.labels_per_user is None and spec.source != "macbeth":
        yield Finding(f"{where}: labels_per_user is not given: all labels of a user count")
    try:
        with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
            create(ledger, spec)
        for column, values in {"": ("",), **spec.filters}.items():
            tried(spec, {column: values[0]} if column else {}, Segmented())
    except Exception as error:  # noqa: BLE001 - whatever a file or a parser says, without a traceback
        said = error if isinstance(error, DptopkError) else type(error).__name__
        yield Finding(f"{where}: {said}", refused=True)


def _budgets(spec: DatasetSpec, where: str) -> Iterator[Finding]:
    total = spec.terms.budget
    budgets = {"budget": total} | {f"limits.{name}": terms.budget for name, terms in spec.limits.items()}
    budgets |= {f"shares.{name}": part for name, part in (spec.terms.shares or {}).items() if isinstance(part, Budget)}
    for name, one in budgets.items():
        if one is None:
            continue
        kind = "epsilon" if one.rho is None else "rho"
        if one.rho is None and one.epsilon > LARGE_EPSILON:
            yield Finding(f"{where}.{name}: epsilon {one.epsilon} protects nobody")
        if one.delta > LARGE_DELTA:
            yield Finding(f"{where}.{name}: delta {one.delta} should be far below 1 / users")
        if total is None or (total.rho is None) != (one.rho is None):
            continue
        if getattr(one, kind) > getattr(total, kind) or one.delta > total.delta:
            yield Finding(f"{where}.{name} is above the whole budget, and limits nothing")


def _ledger(catalog: Catalog) -> Iterator[Finding]:
    if not _there(catalog.ledger):
        yield Finding("ledger: there is none yet; it will be made, with nothing spent")
        return
    tables = Tables(catalog.access) if _there(catalog.access) else None
    try:
        place: dict[str, Any] = {"key": catalog.key, "head_file": catalog.head_file}
        with Ledger(catalog.ledger, **place, read_only=True, create=False) as ledger:
            for one in differences(catalog, ledger, tables):
                yield Finding(f"{one}; {HOW}", refused=True)
            for name in ledger.datasets():
                if name not in catalog.datasets:
                    yield Finding(f"ledger: its data set {name!r} is not in the catalog")
            for name in set(ledger.datasets()) & set(catalog.datasets):
                limits = set(map(canonical, catalog.datasets[name].limits))
                for analyst in set(ledger.state(name).limits) - limits:
                    yield Finding(f"datasets.{name}: the ledger also has a limit of {analyst!r}")
    finally:
        if tables is not None:
            tables.close()


def _people(catalog: Catalog) -> Iterator[Finding]:
    held = set()
    if _there(catalog.access):
        with closing(Tables(catalog.access)) as tables:
            held = {row["analyst"] for row in Access(tables).people() if row["ended"] is None}
    if not held:
        yield Finding("access: nobody has a token: dptopk ledger analyst add")
    for spec in catalog.datasets.values():
        for analyst in set(spec.analysts or ()) - held:
            yield Finding(f"datasets.{spec.name}: {analyst!r} may ask and has no token")


def _there(place: str) -> bool:
    """Whether a database exists; assumed true for a server."""
    return "://" in place or Path(place).exists()
