"""The catalog against the ledger: what is new there, what differs, and how an operator changes it.

The ledger's terms hold. A catalog that says anything else is refused, with both, until an operator
applies it: a budget is renewed, a limit set anew, each with a reason that the log keeps. A source
belongs to one data set of the ledger, whatever the catalog calls it: under a new name it would have
its whole budget once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.budget_terms import by_segment, segments_of, shared_terms_of
from dptopk.ledger.dataset import DatasetState
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.names import analyst_name, canonical
from dptopk.ledger.recorded import RecordedTerms
from dptopk.service.catalog import Catalog, CatalogBudget, DatasetSpec
from dptopk.service.tables import Tables

HOW = (
    "write the ledger's terms into the catalog, or change the ledger's: dptopk serve CATALOG "
    "--apply --reason '...' "
    "(a budget is renewed: what was spent before stays in the lifetime spend)"
)


NOT_ANEW = (
    "the access database knows data that were served before, so no new ledger is made for them: is "
    "its disk mounted, or does the catalog name another? To begin anew on purpose: dptopk serve "
    "CATALOG --apply --reason '...'"
)


@dataclass(frozen=True)
class Difference:
    """A difference between the catalog and the ledger.

    Attributes:
        dataset: of the catalog.
        what: "budget", the name of an analyst whose limit it is, "source", or "ledger" where the
            ledger knows nothing of data that were served before.
        ledger, catalog: what each says.
    """

    dataset: str
    what: str
    ledger: str
    catalog: str

    def __str__(self) -> str:
        return (
            f"datasets.{self.dataset}: {self.what}: the ledger says {self.ledger}, the "
            f"catalog {self.catalog}"
        )


def opened(catalog: Catalog, tables: Tables) -> Ledger:
    """The catalog's ledger, with an account for each of its data sets and each limit.

    Raises:
        LedgerError: when the ledger says anything else than the catalog.
    """
    create = not served_before(tables)
    try:
        ledger = Ledger(
            catalog.ledger,
            key=catalog.key,
            head_file=catalog.head_file,
            ahead=True,
            create=create,
        )
    except LedgerError as error:
        if create:
            raise
        raise LedgerError(f"{error}; {NOT_ANEW}") from None
    try:
        agree(catalog, ledger, tables)
    except BaseException:
        ledger.close()
        raise
    return ledger


def agree(catalog: Catalog, ledger: Ledger, tables: Tables) -> None:
    """Write what is new in a catalog to its ledger, after all of it was compared.

    Raises:
        LedgerError: when the ledger says anything else than the catalog; nothing was written.
    """
    found = list(differences(catalog, ledger, tables))
    if found:
        raise LedgerError(f"{'; '.join(map(str, found))}; {HOW}")
    for spec in catalog.datasets.values():
        create(ledger, spec)
        _bind(tables, spec)


def terms_by_place(
    spec: DatasetSpec,
) -> Iterator[tuple[str, CatalogBudget, Callable[[], RecordedTerms]]]:
    """The budget of a data set and each limit, by place in the catalog, with what makes its terms
    as the ledger writes them; no ledger is needed.
    """
    terms = partial(shared_terms_of, **spec.terms.arguments())
    yield "budget", spec.terms, lambda: by_segment(terms(), segments_of(spec.declared))
    for analyst, limit in spec.limits.items():
        yield f"limits.{analyst}", limit, partial(shared_terms_of, **limit.arguments())


def create(ledger: Ledger, spec: DatasetSpec) -> None:
    """Write a data set and its limits to the ledger where they are not there."""
    if spec.name not in ledger.datasets():
        try:
            ledger.create_dataset(
                spec.name,
                segments=spec.declared,
                sensitivity=spec.sensitivity,
                unit=spec.unit,
                version=spec.version,
                **spec.terms.arguments(),
            )
        except InvalidParameter:
            if spec.name not in ledger.datasets():  # not another worker's
                raise
    for analyst, terms in spec.limits.items():
        if not ledger.state(spec.name).limits_of(canonical(analyst)):
            ledger.set_limit(spec.name, analyst, **terms.arguments())


def differences(catalog: Catalog, ledger: Ledger, tables: Tables | None) -> Iterator[Difference]:
    """Return the differences between a catalog and its ledger; nothing is written.

    Raises:
        LedgerError: when a data set's unit, sensitivity or segments differ: these never change.
    """
    bound = _Sources() if tables is None else _Sources.read(tables)
    there = ledger.datasets()
    for spec in catalog.datasets.values():
        owner = bound.owners.get(spec.identity, spec.name)
        before = bound.before(spec)
        if owner != spec.name:
            yield Difference(
                spec.name, "source", f"that it is the data of {owner!r}", "the same source"
            )
        elif spec.name in there and not _same_source(before, spec.identity, catalog):
            yield Difference(
                spec.name, "source", f"that it is {_name_of(before)}", _name_of(spec.identity)
            )
        if spec.name in there:
            state = ledger.state(spec.name)
            _refuse_others(spec, state)
            yield from _terms_that_differ(spec, state)
        elif bound.owners.get(spec.identity) == spec.name:
            yield Difference(spec.name, "ledger", "nothing of it", "data that were served before")


def _same_source(before: str, now: str, catalog: Catalog) -> bool:
    """Return whether a data set still has its source. Hosts that share an access database on a
    server may each keep a file in a folder of their own: there the name of the file decides.
    """
    files = "://" not in before and "://" not in now
    if files and "://" in str(catalog.access):
        return Path(before).name == Path(now).name
    return before == now


def served_before(tables: Tables) -> dict[str, str]:
    """The sources that were served, each with the data set whose budget paid for them."""
    return {row.source: row.dataset for row in tables.rows(sa.select(Tables.sources))}


@dataclass(frozen=True)
class _Sources:
    """Which source belongs to which data set.

    Attributes:
        owners: source -> the data set whose budget it has, for every source that was ever read.
        current: data set -> its source of now.
    """

    owners: Mapping[str, str] = field(default_factory=dict)
    current: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, tables: Tables) -> _Sources:
        owners = served_before(tables)
        current = {row.dataset: row.source for row in tables.rows(sa.select(Tables.current))}
        return cls(owners, current)

    def before(self, spec: DatasetSpec) -> str:
        """The source that a data set has had. A database of an older version knows all that it ever
        had; without any the catalog's is the first one.
        """
        if spec.name in self.current:
            return self.current[spec.name]
        ever = [source for source, dataset in self.owners.items() if dataset == spec.name]
        if spec.identity in ever:
            return spec.identity
        return (ever or [spec.identity])[-1]


def _name_of(source: str) -> str:
    """A source for people: of a file its name, of a database no password."""
    if "://" not in source:
        return repr(Path(source).name)
    return repr(source.partition("://")[0] + " database " + source.rpartition("/")[2])


def _terms_that_differ(spec: DatasetSpec, state: DatasetState) -> Iterator[Difference]:
    pairs = [("budget", state.terms, spec.terms)]
    for analyst, terms in spec.limits.items():
        if canonical(analyst) in state.limits:
            pairs.append((f"limit of {analyst!r}", state.limits[canonical(analyst)][0], terms))
    for what, there, here in pairs:
        if _plain_terms(there) != _wanted(here):
            yield Difference(spec.name, what, _shown(_plain_terms(there)), _shown(_wanted(here)))


def apply(catalog: Catalog, reason: str) -> list[Difference]:
    """Change the ledger's terms to the catalog's, each as an entry of the log; what was changed.

    Raises:
        InvalidParameter: without a reason.
        LedgerError: when something differs that never changes.
    """
    if not reason.strip():
        raise InvalidParameter("reason must say why the terms change")
    tables = Tables(catalog.access)
    try:
        with Ledger(catalog.ledger, key=catalog.key, head_file=catalog.head_file) as ledger:
            found = list(differences(catalog, ledger, tables))
            for one in found:
                spec = catalog.datasets[one.dataset]
                if one.what == "ledger":
                    create(ledger, spec)
                if one.what in {"budget", "ledger"}:
                    ledger.renew(spec.name, reason=reason, **spec.terms.arguments())
                elif one.what == "source":
                    create(ledger, spec)  # an account of its own, before it is said to have one
                    _bind(tables, spec)
                else:
                    name = next(name for name in spec.limits if one.what == f"limit of {name!r}")
                    ledger.set_limit(spec.name, name, **spec.limits[name].arguments())
            agree(catalog, ledger, tables)
    finally:
        tables.close()
    return found


def _bind(tables: Tables, spec: DatasetSpec) -> None:
    """From here on a source is the data of this data set; the table that is shipped, which is
    public, of any.
    """
    current = (
        "INSERT INTO service_current (dataset, source) VALUES (:dataset, :source) "
        "ON CONFLICT (dataset) DO UPDATE SET source = :source"
    )
    owner = (
        "INSERT INTO service_sources (source, dataset) VALUES (:source, :dataset) "
        "ON CONFLICT (source) DO UPDATE SET dataset = :dataset"
    )
    texts = [current] if spec.source == "macbeth" else [current, owner]
    here = {"source": spec.identity, "dataset": spec.name}
    statements = [sa.text(text).bindparams(**here) for text in texts]
    tables.change(*statements, durable=True)


def _refuse_others(spec: DatasetSpec, state: DatasetState) -> None:
    """Refuse what no renewal changes."""
    if (state.unit, state.sensitivity) != (spec.unit, spec.sensitivity):
        raise LedgerError(
            f"dataset {spec.name!r}: the ledger says {state.unit!r} and {state.sensitivity}, "
            f"the catalog {spec.unit!r} "
            f"and {spec.sensitivity}"
        )
    for column, values in (spec.declared or {}).items():
        there = state.segments or {"by": "nothing", "names": ()}
        if there["by"] != column or not set(values) <= set(there["names"]):
            raise LedgerError(
                f"dataset {spec.name!r}: the catalog has a budget for each {column}, the ledger "
                f"for each "
                f"{there['by']}{': ' if there['names'] else ''}{', '.join(there['names'])}; "
                f"they are declared once, "
                "when the data set is new there"
            )


def _wanted(terms: CatalogBudget) -> dict[str, Any]:
    """Return a budget by the catalog, in the form of ``_plain_terms``."""
    if terms.shares is not None:
        parts = {analyst_name(name): _part(share) for name, share in terms.shares.items()}
        return {"shares": parts, "delta": terms.delta}
    if terms.registered is not None:
        return _part(terms.registered) | {"delta": terms.delta}
    return _part(terms.budget) | (
        {} if terms.failure_delta is None else {"failure_delta": terms.failure_delta}
    )


def _part(part: Charge | Budget | None) -> dict[str, Any]:
    if isinstance(part, Budget):
        return _plain_terms({"budget": part.terms()})
    return {"registered": str(part)}


def _plain_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return a budget by the ledger, without derived values (guarantees and capacities)."""
    if "shares" in terms:
        parts = {name: _plain_terms(part) for name, part in terms["shares"].items()}
        for part in parts.values():
            if "registered" in part:  # stated at the delta of all shares
                part.pop("delta")
        return {"shares": parts, "delta": terms["delta"]}
    if "registered" in terms:
        return {"registered": terms["registered"], "delta": terms["delta"]}
    epsilon, delta, *rho = terms["budget"]
    failures = terms.get("filter", {}).get("failure_delta", delta / 2)
    total = {"rho": rho[0]} if rho else {"epsilon": epsilon}
    return total | {"delta": delta, "failure_delta": failures}


def _shown(terms: Mapping[str, Any]) -> str:
    """Terms for people."""
    parts = [f"{name} ({_shown(part)})" for name, part in terms.get("shares", {}).items()]
    others = [f"{name} {value}" for name, value in terms.items() if name != "shares"]
    return ", ".join([*parts, *others])
