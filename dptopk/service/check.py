"""Checks of a catalog before it is served: errors, by name, and probable mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dptopk.costs import Budget
from dptopk.errors import DptopkError
from dptopk.ledger.budget_terms import account_of
from dptopk.ledger.heads import witness_at
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.log_store import refuse_own_head
from dptopk.ledger.names import canonical, plain_text
from dptopk.ledger.recorded import RecordedTerms
from dptopk.service.access import Access
from dptopk.service.catalog import Catalog, CatalogBudget, CatalogRefused, DatasetSpec, Segmented
from dptopk.service.catalog_changes import (
    HOW,
    NOT_ANEW,
    differences,
    served_before,
    terms_by_place,
)
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.data import tried
from dptopk.service.tables import Tables

LARGE_EPSILON = 20.0  # above it a budget protects nobody in practice
STATED_DELTA = 1e-6  # at which the epsilon of a budget in rho without a delta is judged
LARGE_DELTA = 1e-4  # the share of users who may be shown entirely


@dataclass(frozen=True)
class CatalogProblem:
    """One thing that is wrong; ``refused``: the service would not start, or not answer."""

    text: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{'refused' if self.refused else 'warning'}: {self.text}"


def check(path: str | Path) -> list[CatalogProblem]:
    """Everything that is wrong with a catalog, its data, its ledger and its access database;
    nothing is written.
    """
    try:
        catalog = load_catalog(path)
    except CatalogRefused as error:
        return [CatalogProblem(message, refused=True) for message in error.messages]
    except DptopkError as error:
        return [CatalogProblem(str(error), refused=True)]
    parts: list[tuple[str, Callable[[], Iterator[CatalogProblem]]]] = [
        ("catalog", partial(_files, catalog)),
        *((f"datasets.{name}", partial(_dataset, spec)) for name, spec in catalog.datasets.items()),
        ("ledger", partial(_ledger, catalog)),
        ("access", partial(_people, catalog)),
    ]
    return [problem for where, part in parts for problem in _all(where, part)]


def _all(where: str, part: Callable[[], Iterator[CatalogProblem]]) -> Iterator[CatalogProblem]:
    """Return what one part of the check finds; whatever stops it is a finding too, without a
    traceback.
    """
    try:
        yield from part()
    except DptopkError as error:
        yield CatalogProblem(f"{where}: {error}", refused=True)
    # whatever a file, a driver or a parser says
    except Exception as error:  # noqa: BLE001
        yield CatalogProblem(f"{where}: {type(error).__name__}", refused=True)


def _files(catalog: Catalog) -> Iterator[CatalogProblem]:
    for name, read in (("key_file", lambda: catalog.key), ("head_file", lambda: _head(catalog))):
        try:
            read()
        except DptopkError as error:
            yield CatalogProblem(f"{name}: {error}", refused=True)
    for name in ("ledger", "access", "head_file"):
        place = str(getattr(catalog, name) or "")
        if place and "://" not in place and not Path(place).parent.is_dir():
            folder = str(Path(place).parent)
            yield CatalogProblem(f"{name}: there is no folder {folder!r}", refused=True)
    if catalog.key_file is None:
        yield CatalogProblem(
            "key_file: the ledger's chain has no key: who can write it can forge it"
        )
    if catalog.head_file is None:
        yield CatalogProblem("head_file: without one an old copy of the ledger is not detected")


def _head(catalog: Catalog) -> Any:
    if catalog.head_file is None:
        return None
    refuse_own_head(catalog.ledger, catalog.head_file)
    return witness_at(catalog.head_file).read()


def _dataset(spec: DatasetSpec) -> Iterator[CatalogProblem]:
    where = f"datasets.{spec.name}"
    yield from _budgets(spec, where)
    if spec.analysts is not None and spec.terms.shares is not None:
        others = {canonical(name) for name in spec.terms.shares} - {"reserve"} - set(spec.analysts)
        if others:
            yield CatalogProblem(f"{where}: shares of {', '.join(others)}, who may not ask")
    if spec.labels_per_user is None and spec.source != "macbeth":
        yield CatalogProblem(f"{where}: labels_per_user is not given: all labels of a user count")
    yield from _all(where, partial(_plain, spec))
    for place, budget, account_terms in terms_by_place(spec):
        yield from _all(
            f"{where}.{place}", partial(_protects, f"{where}.{place}", budget, account_terms)
        )
    for column, values in {"": ("",), **spec.filters}.items():
        reading = partial(_read, spec, {column: values[0]} if column else {})
        yield from _all(where, reading)


def _plain(spec: DatasetSpec) -> Iterator[CatalogProblem]:
    """Refuse what the ledger takes for no text."""
    plain_text(unit=spec.unit)
    plain_text(version=spec.version)
    yield from ()


def _read(spec: DatasetSpec, where: Mapping[str, str]) -> Iterator[CatalogProblem]:
    """Read the data once."""
    tried(spec, where, Segmented())
    yield from ()


def _protects(
    where: str, budget: CatalogBudget, account_terms: Callable[[], RecordedTerms]
) -> Iterator[CatalogProblem]:
    """Warn of a budget that limits nothing in practice."""
    account = account_of(account_terms())
    total = budget.budget
    if total is None or (total.rho is not None and total.delta):
        epsilon = account.epsilon()
    elif total.rho is None:
        epsilon = total.epsilon
    else:  # zCDP has no finite epsilon at delta 0: Bun and Steinke 2016, Proposition 1.3
        epsilon = total.rho + 2 * math.sqrt(total.rho * math.log(1 / STATED_DELTA))
    if epsilon > LARGE_EPSILON:
        yield CatalogProblem(f"{where}: epsilon {epsilon:.6g} protects nobody")


def _budgets(spec: DatasetSpec, where: str) -> Iterator[CatalogProblem]:
    total = spec.terms.budget
    budgets = {"budget": total} | {
        f"limits.{name}": terms.budget for name, terms in spec.limits.items()
    }
    budgets |= {
        f"shares.{name}": part
        for name, part in (spec.terms.shares or {}).items()
        if isinstance(part, Budget)
    }
    for name, one in budgets.items():
        if one is None:
            continue
        kind = "epsilon" if one.rho is None else "rho"
        if one.delta > LARGE_DELTA:
            yield CatalogProblem(f"{where}.{name}: delta {one.delta} should be far below 1 / users")
        if total is None or (total.rho is None) != (one.rho is None):
            continue
        if getattr(one, kind) > getattr(total, kind) or one.delta > total.delta:
            yield CatalogProblem(f"{where}.{name} is above the whole budget, and limits nothing")


def _ledger(catalog: Catalog) -> Iterator[CatalogProblem]:
    if not _there(catalog.ledger):
        yield _no_ledger(catalog)
        return
    if _there(catalog.access):
        tables = Tables(catalog.access, read_only=True)
    else:
        tables = None
    try:
        with Ledger(
            catalog.ledger,
            key=catalog.key,
            head_file=catalog.head_file,
            read_only=True,
            create=False,
        ) as ledger:
            if ledger.refusal():
                yield CatalogProblem(f"ledger: {ledger.refusal()}", refused=True)
            for one in differences(catalog, ledger, tables):
                yield CatalogProblem(f"{one}; {HOW}", refused=True)
            for name in ledger.datasets():
                if name not in catalog.datasets:
                    yield CatalogProblem(f"ledger: its data set {name!r} is not in the catalog")
            for name in set(ledger.datasets()) & set(catalog.datasets):
                limits = set(map(canonical, catalog.datasets[name].limits))
                for analyst in set(ledger.state(name).limits) - limits:
                    yield CatalogProblem(
                        f"datasets.{name}: the ledger also has a limit of {analyst!r}"
                    )
    finally:
        if tables is not None:
            tables.close()


def _no_ledger(catalog: Catalog) -> CatalogProblem:
    """Whether a ledger may be made where there is none: not for data that were served before."""
    if not _there(catalog.access):
        return CatalogProblem("ledger: there is none yet; it will be made, with nothing spent")
    with closing(Tables(catalog.access, read_only=True)) as tables:
        if served_before(tables):
            return CatalogProblem(f"ledger: there is none; {NOT_ANEW}", refused=True)
        people = len(Access(tables).people())
    return CatalogProblem(
        f"ledger: there is none yet, and tokens: {people}; unless this is the first start, it is "
        "lost or not mounted: it will be made, with nothing spent"
    )


def _people(catalog: Catalog) -> Iterator[CatalogProblem]:
    held = set()
    if _there(catalog.access):
        with closing(Tables(catalog.access, read_only=True)) as tables:
            held = {row["analyst"] for row in Access(tables).people() if row["ended"] is None}
    if not held:
        yield CatalogProblem("access: nobody has a token: dptopk ledger analyst add")
    for spec in catalog.datasets.values():
        for analyst in set(spec.analysts or ()) - held:
            yield CatalogProblem(f"datasets.{spec.name}: {analyst!r} may ask and has no token")


def _there(place: str) -> bool:
    """Whether a database exists; assumed true for a server."""
    return "://" in place or Path(place).exists()
