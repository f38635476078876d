"""The catalog compared with the ledger: what is new, what differs, and how an operator changes it.

The ledger's terms hold. A catalog with other terms is refused, and the message states both, until
an operator applies the catalog: a budget is renewed, a limit is set again, each with a reason that
the log records. A source belongs to one data set of the ledger, whatever the catalog calls it:
under a new name it would have its whole budget once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dptopk._internal import validate
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.budget_terms import budget_terms_of, declared_segments, terms_by_segment
from dptopk.ledger.dataset import DatasetState
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.names import analyst_name, canonical_name
from dptopk.ledger.recorded import RecordedTerms
from dptopk.service.access import BEGUN, Access
from dptopk.service.catalog import SHIPPED, Catalog, CatalogBudget, DatasetSpec
from dptopk.service.tables import Tables

HOW_TO_CHANGE = (
    "write the ledger's terms into the catalog, or change the ledger's: dptopk serve CATALOG "
    "--apply --reason '...' (a budget is renewed: what was spent before stays in the lifetime "
    "spend; another ledger is taken with what was spent in it)"
)


LIMIT = "limit of "  # a difference between limits begins with it
HOW_TO_BEGIN_ANEW = (
    "the access database knows data that were served before, so no new ledger is made for them: is "
    "its disk mounted, or does the catalog name another? To begin anew on purpose: dptopk serve "
    "CATALOG --apply --reason '...'"
)


@dataclass(frozen=True)
class Difference:
    """A difference between the catalog and the ledger.

    Attributes:
        dataset: the name of the data set in the catalog.
        what: "budget", "limit of 'NAME'", "source", "ledger" if the ledger knows nothing of data
            that were served before, or "another ledger" than the one that paid for them.
        ledger: what the ledger says.
        catalog: what the catalog says.
    """

    dataset: str
    what: str
    ledger: str
    catalog: str

    def __str__(self) -> str:
        """Return what the ledger and the catalog say, in a sentence."""
        return (
            f"datasets.{self.dataset}: {self.what}: the ledger says {self.ledger}, the "
            f"catalog {self.catalog}"
        )


def open_ledger(catalog: Catalog, tables: Tables) -> Ledger:
    """Open and return the catalog's ledger, with an account for each data set and each limit.

    A new ledger is made only if no data were served before.

    Raises:
        LedgerError: when the ledger cannot be opened, or says anything else than the catalog.
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
        raise LedgerError(f"{error}; {HOW_TO_BEGIN_ANEW}") from None
    try:
        write_new_accounts(catalog, ledger, tables)
    except BaseException:
        ledger.close()
        raise
    return ledger


def write_new_accounts(catalog: Catalog, ledger: Ledger, tables: Tables) -> None:
    """Write data sets and limits that are new in a catalog to its ledger, after everything was
    compared.

    Args:
        catalog: the catalog.
        ledger: its open ledger.
        tables: the access database, which records the sources.

    Raises:
        LedgerError: when the ledger says anything else than the catalog; nothing was written.
    """
    differing = [str(difference) for difference in differences(catalog, ledger, tables)]
    if differing:
        raise LedgerError(f"{'; '.join(differing)}; {HOW_TO_CHANGE}")
    for spec in catalog.datasets.values():
        create_accounts(ledger, spec)
        _record_source(tables, spec, ledger)


@dataclass(frozen=True)
class StatedBudget:
    """A budget or a limit of a data set, where the catalog states it.

    Attributes:
        place: its place in the table of the data set: "budget" or "limits.NAME".
        budget: the budget as it is stated there.
        segments: the declared segments that have this budget each; None: it is for all data.
    """

    place: str
    budget: CatalogBudget
    segments: Mapping[str, tuple[str, ...]] | None = None

    def recorded_terms(self) -> RecordedTerms:
        """Return the terms of the budget as a ledger would record them; no ledger is needed.

        Raises:
            InvalidParameter: for terms that a ledger refuses.
        """
        terms = budget_terms_of(**self.budget.arguments())
        return terms_by_segment(terms, declared_segments(self.segments))


def stated_budgets(spec: DatasetSpec) -> Iterator[StatedBudget]:
    """Yield the budget of a data set and each of its limits."""
    yield StatedBudget("budget", spec.terms, spec.declared_segments)
    for analyst, limit in spec.limits.items():
        yield StatedBudget(f"limits.{analyst}", limit)


def create_accounts(ledger: Ledger, spec: DatasetSpec) -> None:
    """Write the accounts of a data set and of its limits to the ledger, unless they are there.

    Raises:
        InvalidParameter: for terms that the ledger refuses.
        LedgerError: when the ledger cannot be written.
    """
    if spec.name not in ledger.datasets():
        try:
            ledger.create_dataset(
                spec.name,
                segments=spec.declared_segments,
                sensitivity=spec.sensitivity,
                unit=spec.unit,
                version=spec.version,
                **spec.terms.arguments(),
            )
        except InvalidParameter:
            if spec.name not in ledger.datasets():  # another worker may have written it meanwhile
                raise
    for analyst, terms in spec.limits.items():
        if not ledger.state(spec.name).limits_of(canonical_name(analyst)):
            ledger.set_limit(spec.name, analyst, **terms.arguments())


def differences(catalog: Catalog, ledger: Ledger, tables: Tables | None) -> Iterator[Difference]:
    """Yield the differences between a catalog and its ledger; nothing is written.

    Args:
        catalog: the catalog.
        ledger: its open ledger.
        tables: the access database; None: there is none yet, so that no data were served.

    Raises:
        LedgerError: when a data set's unit, sensitivity or segments differ: these never change; or
            when the present versions of two data sets are one file.
    """
    sources = _Sources() if tables is None else _Sources.read(tables)
    in_ledger = ledger.datasets()
    versions = {name: spec.version for name, spec in catalog.datasets.items()}
    versions |= {name: ledger.state(name).version for name in versions.keys() & set(in_ledger)}
    _refuse_shared_files(catalog, versions)
    for spec in catalog.datasets.values():
        is_in_ledger = spec.name in in_ledger
        owner = sources.owner_of(spec, versions[spec.name])
        yield from _source_differences(spec, sources, owner, catalog, is_in_ledger=is_in_ledger)
        if is_in_ledger:
            yield from _payer_differences(spec, sources, ledger)
            state = ledger.state(spec.name)
            _refuse_fixed_differences(spec, state)
            yield from _terms_differences(spec, state)
        elif spec.name in sources.owners.values():  # perhaps with its source at another place
            yield Difference(spec.name, "ledger", "nothing of it", "data that were served before")


def _source_differences(
    spec: DatasetSpec, sources: _Sources, owner: str, catalog: Catalog, *, is_in_ledger: bool
) -> Iterator[Difference]:
    """Yield the difference of a source that is another data set's, or is not the one that was
    served before.

    Args:
        spec: the data set in the catalog.
        sources: the sources that the access database records.
        owner: the data set that its source, or the present version of it, belongs to.
        catalog: the catalog, for the place of the access database.
        is_in_ledger: whether the ledger has an account of the data set.
    """
    served = sources.source_of(spec)
    if owner != spec.name:
        yield Difference(
            spec.name, "source", f"that it is the data of {owner!r}", "the same source"
        )
    elif is_in_ledger and not _same_source(served, spec.identity, catalog):
        in_ledger = f"that it is {_source_name(served)}"
        yield Difference(spec.name, "source", in_ledger, _source_name(spec.identity))


def _payer_differences(
    spec: DatasetSpec, sources: _Sources, ledger: Ledger
) -> Iterator[Difference]:
    """Yield the difference of a data set that another ledger has paid for so far.

    Args:
        spec: the data set in the catalog.
        sources: the sources that the access database records, with the ledgers that pay for them.
        ledger: the ledger that the catalog names.
    """
    paid_from = sources.ledgers.get(spec.name)
    if paid_from is None or paid_from in ledger.identities():
        return
    present = f"that it is {_short_identity(ledger.identities()[0])}"
    earlier = f"data that were paid from {_short_identity(paid_from)}"
    yield Difference(spec.name, "another ledger", present, earlier)


def _refuse_shared_files(catalog: Catalog, versions: Mapping[str, str]) -> None:
    """Refuse a catalog of which two data sets have one file in their present versions.

    Args:
        catalog: the catalog.
        versions: data set -> its present version.

    Raises:
        LedgerError: naming the two.
    """
    dataset_of: dict[str, str] = {}  # by file
    for name, spec in catalog.datasets.items():
        file = spec.identity_of(versions[name])
        first = dataset_of.setdefault(file, name)
        if first != name and spec.source != SHIPPED:
            raise LedgerError(
                f"datasets.{name}.source is the file of version {versions[first]!r} of {first!r}, "
                "which would have its budget twice"
            )


def _same_source(ledger_source: str, catalog_source: str, catalog: Catalog) -> bool:
    """Return whether a data set still has its source.

    Hosts that share an access database on a server may each have the file in a folder of their own:
    then only the names of the files are compared.

    Args:
        ledger_source: the identity of the source that was served before.
        catalog_source: the identity of the source in the catalog.
        catalog: the catalog, for the place of the access database.
    """
    if catalog_source == SHIPPED:  # earlier versions took it for a file of the working folder
        return Path(ledger_source).name == SHIPPED
    are_files = "://" not in ledger_source and "://" not in catalog_source
    if are_files and "://" in str(catalog.access):
        return Path(ledger_source).name == Path(catalog_source).name
    return ledger_source == catalog_source


def served_before(tables: Tables) -> dict[str, str]:
    """Return the sources that were served: source -> the data set whose budget paid for them."""
    return {row.source: row.dataset for row in tables.rows(sa.select(Tables.sources))}


@dataclass(frozen=True)
class _Sources:
    """The sources of data sets, as the access database records them.

    Attributes:
        owners: source -> the data set whose budget it has, for every source that was ever read.
        current: data set -> its present source.
        ledgers: data set -> the identity of the ledger that pays for it. A database of an older
            version records none: the ledger that is there then is taken for it.
    """

    owners: Mapping[str, str] = field(default_factory=dict)
    current: Mapping[str, str] = field(default_factory=dict)
    ledgers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, tables: Tables) -> _Sources:
        """Return what the access database records."""
        owners = served_before(tables)
        current = {row.dataset: row.source for row in tables.rows(sa.select(Tables.current))}
        ledgers = {row.dataset: row.ledger for row in tables.rows(sa.select(Tables.ledgers))}
        return cls(owners, current, ledgers)

    def owner_of(self, spec: DatasetSpec, version: str) -> str:
        """Return the data set that the source, or this version of its data, belongs to: the data
        set itself where none is recorded.
        """
        owner = self.owners.get(spec.identity, spec.name)
        if owner != spec.name:
            return owner
        return self.owners.get(spec.identity_of(version), spec.name)

    def source_of(self, spec: DatasetSpec) -> str:
        """Return the recorded source of a data set; of a new one, the source in the catalog.

        A database of an older version records all sources that a data set ever had, but not which
        is the present one: the catalog's source is taken if it is recorded, else the last one by
        name.
        """
        if spec.name in self.current:
            return self.current[spec.name]
        recorded = [source for source, dataset in self.owners.items() if dataset == spec.name]
        if not recorded or spec.identity in recorded:
            return spec.identity
        return max(recorded)


def _short_identity(identity: str | None) -> str:
    """Return the beginning of a ledger's identity, which is enough for messages."""
    return repr((identity or "")[:8])


def _source_name(source: str) -> str:
    """Return the name of a source for messages: that of a file, or of a URL its scheme and the last
    part of its path, without host, password and query.
    """
    if "://" not in source:
        return repr(Path(source).name)
    scheme, _, rest = source.partition("://")
    address, _, _ = rest.partition("?")
    _, _, path = address.partition("/")
    _, _, database = path.rpartition("/")
    if "@" in database:  # the end of a password that has a slash
        database = ""
    return repr(f"{scheme} database {database}")


def _terms_differences(spec: DatasetSpec, state: DatasetState) -> Iterator[Difference]:
    """Yield the budget and the limits of a data set that differ between catalog and ledger."""
    yield from _budget_differences(spec.name, "budget", state.terms, spec.terms)
    for analyst, terms in spec.limits.items():
        if canonical_name(analyst) in state.limits:
            ledger_terms, _ = state.limits[canonical_name(analyst)]
            what = f"{LIMIT}{analyst!r}"
            yield from _budget_differences(spec.name, what, ledger_terms, terms)


def _budget_differences(
    dataset: str, what: str, ledger_terms: Mapping[str, Any], catalog_terms: CatalogBudget
) -> Iterator[Difference]:
    """Yield the difference between a budget's terms in the ledger and in the catalog, if there is
    one.

    Args:
        dataset: the name of the data set.
        what: which of its budgets it is, as ``Difference.what`` says it.
        ledger_terms: the terms as the ledger records them.
        catalog_terms: the terms as the catalog states them.
    """
    in_ledger = _plain_terms(ledger_terms)
    in_catalog = _plain_terms_of_catalog(catalog_terms)
    if in_ledger != in_catalog:
        yield Difference(dataset, what, _terms_text(in_ledger), _terms_text(in_catalog))


def apply(catalog: Catalog, reason: str) -> list[Difference]:
    """Change the ledger's terms to the catalog's, each as an entry of the log.

    Args:
        catalog: the catalog.
        reason: why the terms change; the log records it where a budget is renewed, and the audit
            log in any case.

    Returns:
        the differences that there were.

    Raises:
        InvalidParameter: without a reason.
        LedgerError: when something differs that never changes.
    """
    if not reason.strip():
        raise InvalidParameter("reason must say why the terms change")
    tables = Tables(catalog.access)
    try:
        with Ledger(catalog.ledger, key=catalog.key, head_file=catalog.head_file) as ledger:
            changes = list(differences(catalog, ledger, tables))
            for change in changes:
                _apply_difference(change, catalog.datasets[change.dataset], reason, ledger, tables)
            write_new_accounts(catalog, ledger, tables)
    finally:
        tables.close()
    return changes


def _apply_difference(
    difference: Difference, spec: DatasetSpec, reason: str, ledger: Ledger, tables: Tables
) -> None:
    """Change the ledger to what the catalog says about one difference, and write a line of the
    audit log.

    Args:
        difference: the difference.
        spec: its data set in the catalog.
        reason: why the terms change.
        ledger: the open ledger.
        tables: the access database.
    """
    has_new_payer = difference.what in {"source", "ledger", "another ledger"}
    # The account is made before the source is recorded as paid from it.
    if has_new_payer:
        create_accounts(ledger, spec)
    # The renewal of a new account records the reason for it.
    if difference.what in {"budget", "ledger"}:
        ledger.renew(spec.name, reason=reason, **spec.terms.arguments())
    detail = {"what": difference.what, "reason": reason}
    write_line = partial(Access(tables).line_statement, "", "apply", spec.name)
    if difference.what.startswith(LIMIT):
        # A limit records no reason in the ledger, so that the line comes first.
        tables.change(write_line(BEGUN, detail), durable=True)
        _set_limit(ledger, spec, difference)
    line = write_line("done", detail)
    if has_new_payer:
        _record_source(tables, spec, ledger, line)
    else:
        tables.change(line, durable=True)


def _set_limit(ledger: Ledger, spec: DatasetSpec, difference: Difference) -> None:
    """Set the limit that a difference is about to the catalog's.

    Args:
        ledger: the open ledger.
        spec: the data set in the catalog, with the limits.
        difference: one of ``differences``, about this data set.
    """
    for analyst, terms in spec.limits.items():
        if difference.what == f"{LIMIT}{analyst!r}":
            ledger.set_limit(spec.name, analyst, **terms.arguments())
            return


def _record_source(
    tables: Tables, spec: DatasetSpec, ledger: Ledger, *further: sa.Executable
) -> None:
    """Record that a source is the data of this data set from now on, and which ledger pays for it.

    The shipped table is public, and may be the source of any number of data sets.

    Args:
        tables: the access database.
        spec: the data set, with its source.
        ledger: the ledger that pays for it.
        further: statements that are run after these, in the same transaction.
    """
    current = (
        "INSERT INTO service_current (dataset, source) VALUES (:dataset, :source) "
        "ON CONFLICT (dataset) DO UPDATE SET source = :source"
    )
    owner = (
        "INSERT INTO service_sources (source, dataset) VALUES (:source, :dataset) "
        "ON CONFLICT (source) DO UPDATE SET dataset = :dataset"
    )
    payer = (
        "INSERT INTO service_ledgers (dataset, ledger) VALUES (:dataset, :ledger) "
        "ON CONFLICT (dataset) DO UPDATE SET ledger = :ledger"
    )
    values = {"source": spec.identity, "dataset": spec.name}
    statements = [sa.text(current).bindparams(**values)]
    if spec.source != SHIPPED:
        version = ledger.state(spec.name).version
        recorded = _sources_to_record(tables, spec, version)
        statements += [
            sa.text(owner).bindparams(**values | {"source": source}) for source in recorded
        ]
    identities = ledger.identities()
    if identities:
        paid_from = {"dataset": spec.name, "ledger": identities[0]}
        statements.append(sa.text(payer).bindparams(**paid_from))
    tables.change(*statements, *further, durable=True)


def _sources_to_record(tables: Tables, spec: DatasetSpec, version: str) -> set[str]:
    """Return the sources that are to be recorded as the data of a data set: its source, this
    version of it, and the versions of it that the data set to which it belonged so far has read.

    Args:
        tables: the access database.
        spec: the data set.
        version: the present version of its data.
    """
    owners = served_before(tables)
    sources = {spec.identity, spec.identity_of(version)}
    former = owners.get(spec.identity, spec.name)
    if former != spec.name:
        before, _, after = spec.identity.partition("{version}")
        sources |= {
            source
            for source, owner in owners.items()
            if owner == former and source.startswith(before) and source.endswith(after)
        }
    return sources


def claim_version(tables: Tables, spec: DatasetSpec, version: str) -> None:
    """Record that a version's data belong to a data set, before they are read for it.

    The name of a version may be the rest of the name of another data set's file, whose budget would
    be evaded.

    Args:
        tables: the access database.
        spec: the data set.
        version: the version of its data.

    Raises:
        InvalidParameter: when they belong to another data set.
        LedgerError: when the access database cannot be read or written.
    """
    if spec.source == SHIPPED:
        return
    source = spec.identity_of(version)
    sources = Tables.sources
    owner_of_source = sa.select(sources.c.dataset).where(sources.c.source == source)
    owners = tables.rows(owner_of_source)
    if not owners:
        claim = (
            "INSERT INTO service_sources (source, dataset) VALUES (:source, :dataset) "
            "ON CONFLICT (source) DO NOTHING"
        )
        values = {"source": source, "dataset": spec.name}
        tables.change(sa.text(claim).bindparams(**values), durable=True)
        owners = tables.rows(owner_of_source)
    if [owner for (owner,) in owners] != [spec.name]:
        raise InvalidParameter(
            "version: its file belongs to another data set, whose budget pays for it"
        )


def _refuse_fixed_differences(spec: DatasetSpec, state: DatasetState) -> None:
    """Refuse a catalog whose unit, sensitivity or segments differ from the ledger's.

    Raises:
        LedgerError: with what both say; no renewal changes these.
    """
    if (state.unit, state.sensitivity) != (spec.unit, spec.sensitivity):
        raise LedgerError(
            f"dataset {spec.name!r}: the ledger says {state.unit!r} and {state.sensitivity}, the "
            f"catalog {spec.unit!r} and {spec.sensitivity}"
        )
    for column, values in (spec.declared_segments or {}).items():
        declared = state.segments or {"by": "nothing", "names": ()}
        if declared["by"] != column or not set(values) <= set(declared["names"]):
            in_ledger = str(declared["by"])
            if declared["names"]:
                in_ledger += f": {', '.join(declared['names'])}"
            raise LedgerError(
                f"dataset {spec.name!r}: the catalog has a budget for each {column}, the ledger "
                f"for each {in_ledger}; they are declared once, when the data set is new there"
            )


def _plain_terms_of_catalog(terms: CatalogBudget) -> dict[str, Any]:
    """Return a budget of the catalog in the form of ``_plain_terms``, so that both can be
    compared.

    Raises:
        InvalidParameter: for terms without a total, registered costs or shares.
    """
    if terms.shares is not None:
        shares = {analyst_name(name): _plain_share(part) for name, part in terms.shares.items()}
        return {"shares": shares, "delta": terms.delta}
    if terms.registered is not None:
        return _plain_share(terms.registered) | {"delta": terms.delta}
    plain = _plain_share(validate.instance(Budget, budget=terms.budget))
    if terms.failure_delta is not None:
        plain["failure_delta"] = terms.failure_delta
    return plain


def _plain_share(part: Charge | Budget) -> dict[str, Any]:
    """Return a budget, or registered costs, in the form of ``_plain_terms``.

    Registered costs come without "delta": it is stated once, beside all shares.
    """
    if isinstance(part, Budget):
        return _plain_terms({"budget": part.terms()})
    return {"registered": str(part)}


def _plain_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms of a budget in the ledger without values that are derived from them.

    Args:
        terms: the terms as the ledger records them.

    Returns:
        "delta", and one of: "shares", name -> terms; "registered", costs as text; "epsilon" or
        "rho", with "failure_delta".
    """
    if "shares" in terms:
        parts = {name: _plain_terms(part) for name, part in terms["shares"].items()}
        for part in parts.values():
            if "registered" in part:  # stated at the delta of all shares
                part.pop("delta")
        return {"shares": parts, "delta": terms["delta"]}
    if "registered" in terms:
        return {"registered": terms["registered"], "delta": terms["delta"]}
    budget = terms["budget"]  # [ε, δ], or [ε, δ, ρ] where it is stated in ρ
    delta = budget[1]
    total = {"epsilon": budget[0]}
    if len(budget) == 3:
        total = {"rho": budget[2]}
    # A filter takes half of δ for failures unless it is told another part.
    failures = terms.get("filter", {}).get("failure_delta", delta / 2)
    return total | {"delta": delta, "failure_delta": failures}


def _terms_text(terms: Mapping[str, Any]) -> str:
    """Return the terms of ``_plain_terms`` for messages."""
    parts = [f"{name} ({_terms_text(part)})" for name, part in terms.get("shares", {}).items()]
    others = [f"{name} {value}" for name, value in terms.items() if name != "shares"]
    return ", ".join([*parts, *others])
