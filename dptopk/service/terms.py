"""The catalog against the ledger: what is new there, what differs, and how an operator changes it.

The ledger's terms hold. A catalog that says anything else is refused, with both, until an operator applies it: a budget
is renewed, a limit set anew, each with a reason that the log keeps. A source belongs to one data set of the ledger,
whatever the catalog calls it: under a new name it would have its whole budget once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.dataset import DatasetState
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.names import analyst_name, canonical
from dptopk.service.catalog import Catalog, DatasetSpec, Terms
from dptopk.service.tables import Tables

HOW = (
    "write the ledger's terms into the catalog, or change the ledger's: dptopk serve CATALOG --apply --reason '...' "
    "(a budget is renewed: what was spent before stays in the lifetime spend)"
)


@dataclass(frozen=True)
class Difference:
    """A difference between the catalog and the ledger.

    Attributes:
        dataset: of the catalog.
        what: "budget", the name of an analyst whose limit it is, or "source".
        ledger, catalog: what each says.
    """

    dataset: str
    what: str
    ledger: str
    catalog: str

    def __str__(self) -> str:
        return f"datasets.{self.dataset}: {self.what}: the ledger says {self.ledger}, the catalog {self.catalog}"


def opened(catalog: Catalog, tables: Tables) -> Ledger:
    """The catalog's ledger, with an account for each of its data sets and each limit.

    Raises:
        LedgerError: when the ledger says anything else than the catalog.
    """
    ledger = Ledger(catalog.ledger, key=catalog.key, head_file=catalog.head_file, ahead=True)
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


def create(ledger: Ledger, spec: DatasetSpec) -> None:
    """Write a data set and its limits to the ledger where they are not there."""
    if spec.name not in ledger.datasets():
        about: dict[str, Any] = {"sensitivity": spec.sensitivity, "unit": spec.unit, "version": spec.version}
        try:
            ledger.create_dataset(spec.name, segments=spec.declared, **spec.terms.arguments(), **about)
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
    bound = {} if tables is None else {row.source: row.dataset for row in tables.rows(sa.select(Tables.sources))}
    there = ledger.datasets()
    for spec in catalog.datasets.values():
        before = bound.get(spec.identity, spec.name)
        if before != spec.name:
            yield Difference(spec.name, "source", f"that it is the data of {before!r}", "the same source")
        if spec.name in there:
            state = ledger.state(spec.name)
            _refuse_others(spec, state)
            yield from _terms_that_differ(spec, state)


def _terms_that_differ(spec: DatasetSpec, state: DatasetState) -> Iterator[Difference]:
    pairs = [("budget", state.terms, spec.terms)]
    for analyst, terms in spec.limits.items():
        if canonical(analyst) in state.limits:
            pairs.append((f"limit of {analyst!r}", state.limits[canonical(analyst)][0], terms))
    for what, there, here in pairs:
        if _said(there) != _wanted(here):
            yield Difference(spec.name, what, _shown(_said(there)), _shown(_wanted(here)))


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
                if one.what == "budget":
                    ledger.renew(spec.name, reason=reason, **spec.terms.arguments())
                elif one.what == "source":
                    _bind(tables, spec)
                else:
                    name = next(name for name in spec.limits if one.what == f"limit of {name!r}")
                    ledger.set_limit(spec.name, name, **spec.limits[name].arguments())
            agree(catalog, ledger, tables)
    finally:
        tables.close()
    return found


def _bind(tables: Tables, spec: DatasetSpec) -> None:
    """From here on a source is the data of this data set; the table that is shipped, which is public, of any."""
    if spec.source == "macbeth":
        return
    text = (
        "INSERT INTO service_sources VALUES (:source, :dataset) ON CONFLICT (source) DO UPDATE SET dataset = :dataset"
    )
    tables.change(sa.text(text).bindparams(source=spec.identity, dataset=spec.name), durable=True)


def _refuse_others(spec: DatasetSpec, state: DatasetState) -> None:
    """Refuse what no renewal changes."""
    if (state.unit, state.sensitivity) != (spec.unit, spec.sensitivity):
        raise LedgerError(
            f"dataset {spec.name!r}: the ledger says {state.unit!r} and {state.sensitivity}, the catalog {spec.unit!r} "
            f"and {spec.sensitivity}"
        )
    for column, values in (spec.declared or {}).items():
        there = state.segments or {"by": "nothing", "names": ()}
        if there["by"] != column or not set(values) <= set(there["names"]):
            raise LedgerError(
                f"dataset {spec.name!r}: the catalog has a budget for each {column}, the ledger for each "
                f"{there['by']}{': ' if there['names'] else ''}{', '.join(there['names'])}; they are declared once, "
                "when the data set is new there"
            )


def _wanted(terms: Terms) -> dict[str, Any]:
    """Return a budget by the catalog, in the form of ``_said``."""
    if terms.shares is not None:
        parts = {analyst_name(name): _part(share) for name, share in terms.shares.items()}
        return {"shares": parts, "delta": terms.delta}
    if terms.registered is not None:
        return _part(terms.registered) | {"delta": terms.delta}
    return _part(terms.budget) | ({} if terms.failure_delta is None else {"failure_delta": terms.failure_delta})


def _part(part: Charge | Budget | None) -> dict[str, Any]:
    if isinstance(part, Budget):
        return _said({"budget": part.terms()})
    return {"registered": str(part)}


def _said(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return a budget by the ledger, without derived values (guarantees and capacities)."""
    if "shares" in terms:
        parts = {name: _said(part) for name, part in terms["shares"].items()}
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


def _shown(said: Mapping[str, Any]) -> str:
    """Terms for people."""
    parts = [f"{name} ({_shown(part)})" for name, part in said.get("shares", {}).items()]
    return ", ".join([*parts, *(f"{name} {value}" for name, value in said.items() if name != "shares")])
