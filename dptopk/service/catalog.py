"""The catalog: which data sets are served, out of which files, within which budgets, and who may do what."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dptopk._internal import validate
from dptopk._internal.choices import Domain
from dptopk.costs import Charge
from dptopk.costs.budget import Budget
from dptopk.datasets import read_labels
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.keys import read_key

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def valid_name(**arguments: object) -> str:
    """Return the one argument if it is a name that fits into an address and a file name.

    Raises:
        InvalidParameter: otherwise; a name never leads to another directory.
    """
    ((label, value),) = arguments.items()
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidParameter(f"{label} must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter")
    return value


@dataclass(frozen=True)
class Terms:
    """A budget: a total (ε, δ) to spend freely, registered costs, or the shares of several analysts, with their δ."""

    budget: Budget | None = None
    registered: Charge | None = None
    shares: Mapping[str, Charge | Budget] | None = None
    delta: float | None = None
    failure_delta: float | None = None  # of a budget's δ: for the deltas of charges; None: half of it

    @classmethod
    def read(cls, table: Any, where: str) -> Terms:
        """The budget in a table of the catalog: one of ``epsilon``, ``registered`` and ``shares``, with ``delta``."""
        kinds = {"epsilon", "registered", "shares"}
        if not isinstance(table, dict) or len(kinds & table.keys()) != 1:
            raise InvalidParameter(f"{where}: give exactly one of epsilon, registered and shares, with delta")
        _refuse_others(table, kinds | ({"delta", "failure_delta"} if "epsilon" in table else {"delta"}), where)
        delta = validate.probability(delta=table.get("delta", 0.0))
        if "epsilon" in table:
            return cls(budget=Budget(table["epsilon"], delta), failure_delta=table.get("failure_delta"))
        if "registered" in table:
            return cls(registered=Charge.parse(str(table["registered"])), delta=delta)
        return cls(shares=_shares(table["shares"], f"{where}.shares"), delta=delta)

    def arguments(self) -> dict[str, Any]:
        """As ``Ledger.create_dataset``, ``Ledger.renew`` and ``Ledger.set_limit`` take it."""
        if self.budget is not None:
            kept = {} if self.failure_delta is None else {"failure_delta": self.failure_delta}
            return {"budget": self.budget, **kept}
        kind = {"shares": self.shares} if self.shares is not None else {"registered": self.registered}
        return kind | {"delta": self.delta}


def _shares(table: Any, where: str) -> dict[str, Charge | Budget]:
    """Analyst, or "reserve", -> a registration or a filter; the δ of a registration is the whole budget's."""
    if not isinstance(table, dict) or not table:
        raise InvalidParameter(f"{where}: there is none")
    shares: dict[str, Charge | Budget] = {}
    for name, part in table.items():
        terms = Terms.read(part, f"{where}.{name}")
        if terms.shares is not None or ("registered" in part and "delta" in part) or "failure_delta" in part:
            raise InvalidParameter(f"{where}.{name}: give epsilon and delta, or registered without a delta of its own")
        shares[name] = terms.budget or terms.registered or Charge()
    return shares


@dataclass(frozen=True)
class Segmented:
    """Which segments a question is put to; none: to the data set as a whole.

    Attributes:
        column: that says which segment a row belongs to.
        values: the segments.
        per_user: in how many of them one user counts.
    """

    column: str = ""
    values: tuple[str, ...] = ()
    per_user: int = 1


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """One data set of the catalog.

    Attributes:
        name: in addresses and in the ledger.
        source: path of a table; ``{version}`` in it stands for the data version. "macbeth": the table that is shipped.
        terms: its budget, written to the ledger when the data set is new there.
        label, count: columns of a table of counts.
        user, item: columns of a table of events instead; the caps below are then enforced.
        labels_per_user, per_label_cap: Δ and τ: of a table of counts for the sums over all rows of a label (within one
            value of each column of which ``segments`` says that a user is in several).
        unit, version: the privacy unit in words; the version when the data set is new.
        domain: "private", or "public" with ``labels``.
        labels: the public labels; None = labels come from the data, and are private.
        top: rows that are brought back from events; None = all.
        engine: of events: "duckdb" or "spark".
        filters: column -> public list of values that a question may ask for.
        segments: columns of these whose values may all be asked at once -> in how many of them one user counts; of
            events this is enforced, of a table of counts it is taken as given.
        budget_by: one of these columns, whose values are disjoint segments by nature, declared in the ledger when the
            data set is new there: each has the whole budget, and pays for what is asked of it and of all data.
        limits: analyst -> part of the budget, allotted when the analyst has none.
        analysts: who may ask; None = every analyst.
        description: for people.
    """

    name: str
    source: str
    terms: Terms
    label: str = "label"
    count: str = "count"
    user: str | None = None
    item: str | None = None
    labels_per_user: int | None = None
    per_label_cap: int = 1
    unit: str = "user"
    version: str = "1"
    labels: Sequence[Any] | None = None
    top: int | None = None
    engine: str = "duckdb"
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    segments: Mapping[str, int] = field(default_factory=dict)
    budget_by: str | None = None
    limits: Mapping[str, Terms] = field(default_factory=dict)
    analysts: tuple[str, ...] | None = None
    description: str = ""

    def __post_init__(self) -> None:
        valid_name(dataset=self.name), valid_name(version=self.version)
        if (self.user is None) != (self.item is None):
            raise InvalidParameter(f"datasets.{self.name}: user and item go together")
        if self.engine not in {"duckdb", "spark"}:
            raise InvalidParameter(f"datasets.{self.name}: engine must be duckdb or spark, got {self.engine!r}")
        if self.source == "macbeth" and (self.user is not None or self.filters):
            raise InvalidParameter(f"datasets.{self.name}: macbeth has no users and no columns to filter by")
        if self.top is not None:
            validate.count(top=self.top, at_least=2)
        if self.terms.shares is not None and self.limits:
            raise InvalidParameter(f"datasets.{self.name}: limits are for a budget that is not divided into shares")
        for column, per_user in self.segments.items():
            validate.count(segments=per_user)
            if column not in self.filters:
                raise InvalidParameter(f"datasets.{self.name}: segments by {column} need its public list in filters")
        if self.budget_by is not None and self.segments.get(self.budget_by) != 1:
            raise InvalidParameter(
                f"datasets.{self.name}: a budget for each {self.budget_by} needs segments = {{ {self.budget_by} = 1 }}"
            )
        validate.assign(self, sensitivity=Sensitivity(linf=self.per_label_cap, l0=self.labels_per_user))

    sensitivity: Sensitivity = field(init=False, repr=False, default=Sensitivity())

    @property
    def domain(self) -> Domain:
        """Whether the labels are public."""
        return "private" if self.labels is None else "public"

    @property
    def domain_size(self) -> int | None:
        """How many public labels there are; None where labels are private."""
        return None if self.labels is None else len(self.labels)

    @property
    def several(self) -> tuple[str, ...]:
        """Columns of a table of counts of which one user may be in several values.

        The caps are declared for each value, and not for the sums of rows over several of them: no question is put to
        these. Of events the engine enforces the caps of each question.
        """
        return tuple(column for column, per_user in self.segments.items() if self.user is None and per_user > 1)

    def may_ask(self, analyst: str) -> bool:
        """Whether an analyst may ask about this data set."""
        return self.analysts is None or analyst in self.analysts

    def checked(self, where: Mapping[str, str]) -> dict[str, str]:
        """The conditions of a question, in the order of their columns.

        Raises:
            InvalidParameter: for a column or a value that is not in the public list.
        """
        for column, value in where.items():
            if column not in self.filters:
                raise InvalidParameter(f"where: one may filter by {', '.join(self.filters) or 'nothing'} here")
            if value not in self.filters[column]:
                raise InvalidParameter(f"where: {column} must be one of {', '.join(self.filters[column])}")
        return dict(sorted(where.items()))

    @property
    def declared(self) -> dict[str, tuple[str, ...]] | None:
        """The disjoint segments that have a budget each, as ``Ledger.create_dataset`` takes them."""
        return None if self.budget_by is None else {self.budget_by: self.filters[self.budget_by]}

    def paying(self, segments: Mapping[str, Sequence[str]], where: Mapping[str, str]) -> tuple[str, ...] | None:
        """The declared segments that a question is about, each of which pays; None: all data, and all of them."""
        if self.budget_by is None:
            return None
        if self.budget_by in where:
            return (where[self.budget_by],)
        asked = self.segmented(segments, where)
        return asked.values if asked.column == self.budget_by else None

    def segmented(self, segments: Mapping[str, Sequence[str]], where: Mapping[str, str]) -> Segmented:
        """The segments that a question is put to.

        Args:
            segments: column -> values, or no values for the whole public list; at most one column.
            where: the question's conditions.

        Raises:
            InvalidParameter: for a column or a value that is not offered, or a column that ``where`` fixes.
        """
        if not segments:
            return Segmented()
        ((column, given),) = segments.items() if len(segments) == 1 else (("", ()),)
        if column not in self.segments:
            raise InvalidParameter(f"segments: one may ask by one of {', '.join(self.segments) or 'no columns'} here")
        if column in where:
            raise InvalidParameter(f"segments: {column} is fixed by a condition")
        values = tuple(given) or self.filters[column]
        if len(set(values)) < len(values) or not set(values) <= set(self.filters[column]):
            raise InvalidParameter(f"segments: {column} must be different ones of {', '.join(self.filters[column])}")
        return Segmented(column, values, min(self.segments[column], len(values)))


_DATASET_KEYS = {
    "source", "label", "count", "user", "item", "labels_per_user", "per_label_cap", "unit", "version", "labels", "top",
    "engine", "filters", "segments", "budget_by", "limits", "analysts", "description", "budget",
}  # fmt: skip
_KEYS = {"ledger", "access", "key_file", "head_file", "answers_every", "rates", "datasets", "workers"}


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Everything that the service is told.

    Attributes:
        datasets: by name.
        ledger: path of a SQLite file, or the URL of a PostgreSQL database.
        access: the same, for tokens, jobs and the audit log; default: beside the ledger.
        key_file: file with the secret of the ledger's hash chain.
        head_file: file, best on another disk, or database URL that keeps the ledger's head, for checks at every write.
        answers_every: seconds; answers to spending requests leave at whole multiples of it, so that the time they took
            does not show. 0 = at once.
        free_per_second, spending_per_second: requests that one token may make, in each worker.
    """

    datasets: Mapping[str, DatasetSpec]
    ledger: str
    access: str
    key_file: Path | None = None
    head_file: str | None = None
    answers_every: float = 0.0
    free_per_second: float = 50.0
    spending_per_second: float = 5.0

    @property
    def key(self) -> bytes | None:
        """The secret of the ledger's hash chain."""
        return None if self.key_file is None else read_key(key_file=self.key_file)

    @classmethod
    def load(cls, path: str | Path) -> Catalog:
        """The catalog in a TOML file; paths in it are relative to its directory.

        Raises:
            InvalidParameter: naming what is missing, unknown or out of range.
        """
        path = Path(path)
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidParameter(f"catalog: cannot read {path.name!r}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidParameter(f"catalog: {path.name!r} is not TOML: {error}") from None
        return cls.read(table, path.absolute().parent)

    @classmethod
    def read(cls, table: Mapping[str, Any], base: Path) -> Catalog:
        """The catalog in a table, with paths relative to ``base``."""
        _refuse_others(table, _KEYS, "catalog")
        if not isinstance(table.get("datasets"), dict) or not table["datasets"]:
            raise InvalidParameter("catalog: there is no [datasets.NAME]")
        ledger = _located(str(table.get("ledger", "ledger.db")), base)
        rates = table.get("rates", {})
        _refuse_others(rates, {"free", "spending"}, "rates")
        return cls(
            datasets={name: _dataset(name, entry, base) for name, entry in table["datasets"].items()},
            ledger=ledger,
            access=_located(str(table["access"]), base) if "access" in table else _beside(ledger),
            key_file=_path(table.get("key_file"), base),
            head_file=_located(str(table["head_file"]), base) if "head_file" in table else None,
            answers_every=validate.nonnegative(answers_every=table.get("answers_every", 0.0)),
            free_per_second=validate.positive(free=rates.get("free", 50.0)),
            spending_per_second=validate.positive(spending=rates.get("spending", 5.0)),
        )


def _dataset(name: str, table: Any, base: Path) -> DatasetSpec:
    where = f"datasets.{name}"
    if not isinstance(table, dict) or not {"source", "budget"} <= table.keys():
        raise InvalidParameter(f"{where}: source and budget are needed")
    _refuse_others(table, _DATASET_KEYS, where)
    given = dict(table)
    limits = {who: Terms.read(part, f"{where}.limits") for who, part in given.pop("limits", {}).items()}
    filters = {column: tuple(map(str, values)) for column, values in given.pop("filters", {}).items()}
    terms = Terms.read(given.pop("budget"), f"{where}.budget")
    source = str(given.pop("source"))
    analysts = given.pop("analysts", None)
    labels = _path(given.pop("labels", None), base)
    return DatasetSpec(
        name=name,
        source=source if source == "macbeth" else _located(source, base),
        terms=terms,
        filters=filters,
        limits=limits,
        analysts=None if analysts is None else tuple(analysts),
        labels=None if labels is None else read_labels(labels),
        **given,
    )


def _refuse_others(table: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise InvalidParameter(f"{where}: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}")


def _located(url: str, base: Path) -> str:
    return url if "://" in url else str(base / url)


def _path(value: Any, base: Path) -> Path | None:
    return None if value is None else base / str(value)


def _beside(ledger: str) -> str:
    """Where tokens are kept when the catalog does not say: the same server, or a file beside the ledger's."""
    return ledger if "://" in ledger else f"{ledger}.access"
