"""Checks of a catalog before it is served: errors, by name, and probable mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dptopk._internal.formatting import numbered
from dptopk.costs import Budget
from dptopk.errors import DptopkError
from dptopk.ledger.budget_terms import account_of
from dptopk.ledger.heads import head_storage_at
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.log_store import refuse_own_head
from dptopk.ledger.names import canonical_name, plain_text
from dptopk.service.access import Access
from dptopk.service.catalog import (
    SHIPPED,
    Catalog,
    CatalogRefused,
    DatasetSpec,
    SegmentReading,
)
from dptopk.service.catalog_changes import (
    HOW_TO_BEGIN_ANEW,
    HOW_TO_CHANGE,
    StatedBudget,
    differences,
    served_before,
    stated_budgets,
)
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.data import read_once
from dptopk.service.tables import Tables

LARGE_EPSILON = 20.0  # above it a budget protects nobody in practice: odds may change by e^20
STATED_DELTA = 1e-6  # the delta at which a budget in rho without a delta is judged by its epsilon
LARGE_DELTA = 1e-4  # delta allows this share of users to be shown entirely: more draws a warning


@dataclass(frozen=True)
class CatalogProblem:
    """One thing that is wrong with a catalog.

    Attributes:
        text: the problem, in words, beginning with its place in the catalog.
        refused: True if the service would not start, or could not answer questions; False if it is
            a warning of something that is probably a mistake.
    """

    text: str
    refused: bool = False

    def __str__(self) -> str:
        """Return the problem, and whether it is a refusal or a warning."""
        if self.refused:
            return f"refused: {self.text}"
        return f"warning: {self.text}"


def check(path: str | Path) -> list[CatalogProblem]:
    """Return everything that is wrong with a catalog, its data, its ledger and its access database;
    nothing is written.

    Args:
        path: the catalog's file. One that cannot be read at all is a problem too, and no error.
    """
    try:
        catalog = load_catalog(path)
    except CatalogRefused as error:
        return [CatalogProblem(message, refused=True) for message in error.messages]
    except DptopkError as error:
        return [CatalogProblem(str(error), refused=True)]
    problems = list(_caught_problems("catalog", partial(_file_problems, catalog)))
    for name, spec in catalog.datasets.items():
        problems += _caught_problems(f"datasets.{name}", partial(_dataset_problems, spec))
    problems += _caught_problems("ledger", partial(_ledger_problems, catalog))
    problems += _caught_problems("access", partial(_token_problems, catalog))
    return problems


def _caught_problems(
    where: str, checking: Callable[[], Iterable[CatalogProblem]]
) -> Iterator[CatalogProblem]:
    """Yield the problems that a check finds; an error that stops it is a problem too.

    Args:
        where: the part of the catalog, for the message of such an error.
        checking: the check, which yields or returns problems.
    """
    try:
        yield from checking()
    except DptopkError as error:
        yield CatalogProblem(f"{where}: {error}", refused=True)
    # A file, a driver or a parser may raise anything; its message may quote data.
    except Exception as error:  # noqa: BLE001
        yield CatalogProblem(f"{where}: {type(error).__name__}", refused=True)


def _file_problems(catalog: Catalog) -> Iterator[CatalogProblem]:
    """Yield the problems with the key, the head and the folders that a catalog names."""
    readers: dict[str, Callable[[], Any]] = {
        "key_file": lambda: catalog.key,
        "head_file": lambda: _stored_head(catalog),
    }
    for name, read in readers.items():
        try:
            read()  # for its errors alone
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


def _stored_head(catalog: Catalog) -> Any:
    """Return the stored head of the ledger's chain; None if the catalog names no place for it.

    Raises:
        DptopkError: if it cannot be read, or its place is the ledger itself.
    """
    if catalog.head_file is None:
        return None
    refuse_own_head(catalog.ledger, catalog.head_file)
    return head_storage_at(catalog.head_file).read()


def _dataset_problems(spec: DatasetSpec) -> Iterator[CatalogProblem]:
    """Yield the problems with a data set: its budgets, shares and caps, and whether its data can be
    read.
    """
    where = f"datasets.{spec.name}"
    yield from _budget_problems(spec, where)
    if spec.analysts is not None and spec.terms.shares is not None:
        strangers = (
            {canonical_name(name) for name in spec.terms.shares} - {"reserve"} - set(spec.analysts)
        )
        if strangers:
            yield CatalogProblem(f"{where}: shares of {', '.join(strangers)}, who may not ask")
    if spec.labels_per_user is None and spec.source != SHIPPED:
        yield CatalogProblem(f"{where}: labels_per_user is not given: all labels of a user count")
    yield from _caught_problems(where, partial(_refuse_texts, spec))
    for stated in stated_budgets(spec):
        part = f"{where}.{stated.place}"
        yield from _caught_problems(part, partial(_epsilon_problems, part, stated))
    # The data are read once as a whole, and once under one condition of each column.
    conditions: list[dict[str, str]] = [{}]
    conditions += [{column: values[0]} for column, values in spec.filters.items()]
    for condition in conditions:
        yield from _caught_problems(where, partial(_refuse_data, spec, condition))


def _refuse_texts(spec: DatasetSpec) -> tuple[()]:
    """Refuse a unit and a version that the ledger would refuse as text.

    Returns:
        no problems, as ``_caught_problems`` expects of a check.

    Raises:
        InvalidParameter: naming the one that is refused.
    """
    plain_text(unit=spec.unit)
    plain_text(version=spec.version)
    return ()


def _refuse_data(spec: DatasetSpec, where: Mapping[str, str]) -> tuple[()]:
    """Read the data once under conditions, so that an error shows.

    Args:
        spec: the data set.
        where: column -> the value that rows must have.

    Returns:
        no problems, as ``_caught_problems`` expects of a check.

    Raises:
        Exception: any error of a file or an engine.
    """
    read_once(spec, where, SegmentReading())
    return ()


def _epsilon_problems(where: str, stated: StatedBudget) -> Iterator[CatalogProblem]:
    """Yield a warning if a budget's ε is so large that it limits nothing in practice.

    Args:
        where: the place of the budget in the catalog, for the message.
        stated: the budget as the catalog states it.

    Raises:
        InvalidParameter: for terms that the ledger would refuse.
    """
    account = account_of(stated.recorded_terms())
    total = stated.budget.budget
    # Registered costs and shares have their account's ε, and so has a budget in ρ with a δ.
    if total is None or (total.rho is not None and total.delta):
        epsilon = account.epsilon()
    elif total.rho is None:
        epsilon = total.epsilon
    else:  # zCDP has no finite epsilon at delta 0: Bun and Steinke 2016, Proposition 1.3
        epsilon = total.rho + 2 * math.sqrt(total.rho * math.log(1 / STATED_DELTA))
    if epsilon > LARGE_EPSILON:
        yield CatalogProblem(f"{where}: epsilon {epsilon:.6g} protects nobody")


def _budget_problems(spec: DatasetSpec, where: str) -> Iterator[CatalogProblem]:
    """Yield warnings about a δ that is too large, and about limits and shares above the whole
    budget.
    """
    total = spec.terms.budget
    budgets = {"budget": total}
    for name, terms in spec.limits.items():
        budgets[f"limits.{name}"] = terms.budget
    for name, share in (spec.terms.shares or {}).items():
        if isinstance(share, Budget):
            budgets[f"shares.{name}"] = share
    for name, budget in budgets.items():
        if budget is None:
            continue
        if budget.delta > LARGE_DELTA:
            yield CatalogProblem(
                f"{where}.{name}: delta {budget.delta} should be far below 1 / users"
            )
        if total is None or (total.rho is None) != (budget.rho is None):
            continue  # ε and ρ cannot be compared
        unit = "epsilon" if budget.rho is None else "rho"
        if getattr(budget, unit) > getattr(total, unit) or budget.delta > total.delta:
            yield CatalogProblem(f"{where}.{name} is above the whole budget, and limits nothing")


def _ledger_problems(catalog: Catalog) -> Iterator[CatalogProblem]:
    """Yield the problems with the ledger: that it refuses charges, or differs from the catalog."""
    if not _exists(catalog.ledger):
        yield _missing_ledger(catalog)
        return
    if _exists(catalog.access):
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
            for difference in differences(catalog, ledger, tables):
                yield CatalogProblem(f"{difference}; {HOW_TO_CHANGE}", refused=True)
            yield from _left_over_accounts(catalog, ledger)
    finally:
        if tables is not None:
            tables.close()


def _left_over_accounts(catalog: Catalog, ledger: Ledger) -> Iterator[CatalogProblem]:
    """Yield a warning for each data set and each limit of the ledger that is not in the catalog."""
    for name in ledger.datasets():
        if name not in catalog.datasets:
            yield CatalogProblem(f"ledger: its data set {name!r} is not in the catalog")
    for name in set(ledger.datasets()) & set(catalog.datasets):
        limits = set(map(canonical_name, catalog.datasets[name].limits))
        for analyst in set(ledger.state(name).limits) - limits:
            yield CatalogProblem(f"datasets.{name}: the ledger also has a limit of {analyst!r}")


def _missing_ledger(catalog: Catalog) -> CatalogProblem:
    """Return the problem that there is no ledger: a warning, or a refusal if the data were served
    before.
    """
    if not _exists(catalog.access):
        return CatalogProblem("ledger: there is none yet; it will be made, with nothing spent")
    with closing(Tables(catalog.access, read_only=True)) as tables:
        if served_before(tables):
            return CatalogProblem(f"ledger: there is none; {HOW_TO_BEGIN_ANEW}", refused=True)
        tokens = len(Access(tables).people())
    return CatalogProblem(
        f"ledger: there is none yet, but the access database has {numbered(tokens, 'token')}; "
        "unless this is the first start, the ledger is lost or not mounted: it will be made, with "
        "nothing spent"
    )


def _token_problems(catalog: Catalog) -> Iterator[CatalogProblem]:
    """Yield a warning for each analyst of the catalog who has no token."""
    with_token = set()
    if _exists(catalog.access):
        with closing(Tables(catalog.access, read_only=True)) as tables:
            with_token = {row["analyst"] for row in Access(tables).people() if row["ended"] is None}
    if not with_token:
        yield CatalogProblem("access: nobody has a token: dptopk ledger analyst add")
    for spec in catalog.datasets.values():
        for analyst in set(spec.analysts or ()) - with_token:
            yield CatalogProblem(f"datasets.{spec.name}: {analyst!r} may ask and has no token")


def _exists(place: str) -> bool:
    """Return whether a database exists; one on a server, named by a URL, is assumed to."""
    return "://" in place or Path(place).exists()
