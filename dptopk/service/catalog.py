"""The catalog: which data sets are served, out of which files, within which budgets, and who may do what."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dptopk._internal import validate
from dptopk._internal.choices import Domain
from dptopk.budgets.accountant import Accountant
from dptopk.costs import Budget, Charge
from dptopk.datasets import read_labels
from dptopk.errors import DptopkError, InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.keys import read_key
from dptopk.ledger.names import analyst_name, canonical

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
        """The budget in a table of the catalog: ``epsilon``, ``rho``, ``registered`` or ``shares``, with ``delta``."""
        kinds = {"epsilon", "rho", "registered", "shares"}
        if not isinstance(table, dict) or len(kinds & table.keys()) != 1:
            raise InvalidParameter(f"{where}: give exactly one of epsilon, rho, registered and shares, with delta")
        free = not {"epsilon", "rho"}.isdisjoint(table)
        _refuse_others(table, kinds | ({"delta", "failure_delta"} if free else {"delta"}), where)
        delta = validate.probability(delta=table.get("delta", 0.0))
        if free:
            budget = Budget(table.get("epsilon"), delta, rho=table.get("rho"))
            return cls(budget=budget, failure_delta=table.get("failure_delta"))
        if "registered" in table:
            return cls(registered=Charge.parse(str(table["registered"])), delta=delta)
        return cls(shares=_shares(table["shares"], f"{where}.shares"), delta=delta)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``Ledger.create_dataset``, ``Ledger.renew`` and ``Ledger.set_limit``."""
        return {name: value for name, value in vars(self).items() if value is not None}


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
    """Which segments a question is put to, none: to the data set as a whole; and on what histograms.

    Attributes:
        column: that says which segment a row belongs to.
        values: the segments.
        per_user: in how many of them one user counts.
        finding: EventCounts, made with these options of ``event_counts``; none: histograms under the catalog's caps.
    """

    column: str = ""
    values: tuple[str, ...] = ()
    per_user: int = 1
    finding: tuple[tuple[str, Any], ...] = ()


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
        count_capped: of events with private labels: answer in one phase, and count what the cap leaves. Else Δ is the
            cap under which labels are found, and what was found is counted without it.
        top: rows that are brought back from events, which are then answered in one phase; None = all.
        engine: of events: "duckdb" or "spark".
        filters: column -> public list of values that a question may ask for.
        segments: columns of these whose values may all be asked at once -> in how many of them one user counts; of
            events this is enforced, of a table of counts it is taken as given.
        budget_by: one of these columns, whose values are disjoint segments by nature, declared in the ledger when the
            data set is new there: each has the whole budget, and pays for what is asked of it and of all data.
        streams: folder for the files of streams, as private as the data; None = no streams. Each version is then the
            data of one day alone, named by its date or number.
        days_per_user: on how many days of a stream one user adds something at most, taken as given; None = on all.
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
    count_capped: bool = False
    top: int | None = None
    engine: str = "duckdb"
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    segments: Mapping[str, int] = field(default_factory=dict)
    budget_by: str | None = None
    streams: Path | None = None
    days_per_user: int | None = None
    limits: Mapping[str, Terms] = field(default_factory=dict)
    analysts: tuple[str, ...] | None = None
    description: str = ""

    def __post_init__(self) -> None:
        valid_name(dataset=self.name)
        valid_name(version=self.version)
        if self.top is not None:
            validate.count(top=self.top, at_least=2)
        for per_user in self.segments.values():
            validate.count(segments=per_user)
        for wrong, words in self._mistakes():
            if wrong:
                raise InvalidParameter(f"datasets.{self.name}: {words}")
        validate.assign(self, sensitivity=Sensitivity(linf=self.per_label_cap, l0=self.labels_per_user))

    def _mistakes(self) -> Iterator[tuple[Any, str]]:
        """What does not go together: whether it is so, and what is then said."""
        by, events = self.budget_by, self.user is not None
        yield (self.user is None) != (self.item is None), "user and item go together"
        yield self.engine not in {"duckdb", "spark"}, f"engine must be duckdb or spark, got {self.engine!r}"
        shipped = self.source == "macbeth"
        yield shipped and (events or self.filters), "macbeth has no users and no columns to filter by"
        capped = self.count_capped and not (events and self.labels is None)
        yield capped, "count_capped is for private labels of events"
        divided = self.terms.shares is not None
        yield divided and self.limits, "limits are for a budget that is not divided into shares"
        strangers = {} if self.analysts is None else {canonical(name) for name in self.limits} - set(self.analysts)
        yield strangers, f"limits for {', '.join(strangers)}, not among its analysts"
        needed = "streams need a source with {version} for the day, and neither top nor budget_by nor segments"
        unfit = "{version}" not in self.source or self.top or by or self.several
        yield self.streams is not None and unfit, f"{needed} of a table of counts that a user may be in several of"
        for column in self.segments:
            yield column not in self.filters, f"segments by {column} need its public list in filters"
        yield by and self.segments.get(by) != 1, f"a budget for each {by} needs segments = {{ {by} = 1 }}"

    sensitivity: Sensitivity = field(init=False, repr=False, default=Sensitivity())

    @property
    def identity(self) -> str:
        """The canonical identity of the source."""
        return _identity(self.source)

    @property
    def domain(self) -> Domain:
        """Whether the labels are public."""
        return "private" if self.labels is None else "public"

    @property
    def domain_size(self) -> int | None:
        """The number of public labels; None if labels are private."""
        return None if self.labels is None else len(self.labels)

    @property
    def finds(self) -> bool:
        """Whether labels may be found under a cap and counted without it."""
        return self.user is not None and self.domain == "private" and not (self.count_capped or self.top)

    def covers(self, charge: Charge) -> bool:
        """Whether an unspent budget pays for a charge by its kind: it is spent freely, or such costs are registered."""
        registered, delta = self.terms.registered, self.terms.delta or 0.0
        return self.free or (registered is not None and Accountant(registered, delta).can_spend(charge))

    @property
    def free(self) -> bool:
        """Whether the budget is spent freely, and not on registered costs."""
        shares = [self.terms] if self.terms.shares is None else self.terms.shares.values()
        return not any(isinstance(share, Charge) or getattr(share, "registered", None) for share in shares)

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
        """The segments that a question is about.

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


def _distinct(value: Any) -> bool:
    """Whether this is a non-empty list of distinct texts or integers."""
    known = isinstance(value, list) and all(type(one) is int or _said(one) for one in value)
    return known and bool(value) and len(set(map(str, value))) == len(value)


def _said(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _positive(value: Any) -> bool:
    return type(value) is int and value >= 1


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (_said, "a text"),
    "count": (_positive, "a whole number, 1 or more"),
    "number": (lambda value: type(value) in {int, float} and 0 <= value < math.inf, "a number, 0 or more"),
    "list": (_distinct, 'a list of different values, such as ["one", "two"]'),
    "flag": (lambda value: isinstance(value, bool), "true or false"),
    "table": (lambda value: isinstance(value, dict), "a table"),
    "lists": (lambda value: isinstance(value, dict) and all(map(_distinct, value.values())), "a table of lists"),
    "counts": (lambda value: isinstance(value, dict) and all(map(_positive, value.values())), "a table of counts"),
    "tables": (
        lambda value: isinstance(value, dict) and all(isinstance(one, dict) for one in value.values()),
        "a table of tables",
    ),
}
_DATASET_KEYS = {
    "text": "source label count user item unit version labels engine budget_by description streams",
    "count": "labels_per_user per_label_cap top days_per_user",
}
_DATASET_KEYS |= {"flag": "count_capped", "list": "analysts", "lists": "filters", "counts": "segments"}
_DATASET_KEYS |= {"table": "budget", "tables": "limits"}
_KEYS = {"text": "ledger access key_file head_file", "number": "answers_every", "count": "storage"}
_KEYS |= {"table": "rates", "tables": "datasets"}


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The configuration of the service.

    Attributes:
        datasets: by name.
        ledger: path of a SQLite file, or the URL of a PostgreSQL database.
        access: the same, for tokens, jobs and the audit log; default: next to the ledger.
        key_file: file with the secret of the ledger's hash chain.
        head_file: file, best on another disk, or database URL that keeps the ledger's head, for checks at every write.
        answers_every: seconds; answers to spending requests leave at whole multiples of it, so that the time they took
            does not show. 0 = at once.
        free_per_second, spending_per_second: units of work that one token may ask for, in each worker; a simple request
            is one.
        storage: bytes that the questions and answers of one analyst may take in the ledger.
        path: of its file.
    """

    datasets: Mapping[str, DatasetSpec]
    ledger: str
    access: str
    key_file: Path | None = None
    head_file: str | None = None
    answers_every: float = 0.0
    free_per_second: float = 50.0
    spending_per_second: float = 5.0
    storage: int = 100_000_000
    path: Path | None = None

    def __post_init__(self) -> None:
        places = {"ledger": self.ledger, "access": self.access, "key_file": self.key_file, "head_file": self.head_file}
        _refuse_same(
            {name: _identity(str(place)) for name, place in places.items() if place and "://" not in str(place)}
        )
        read = {name: spec.identity for name, spec in self.datasets.items() if spec.source != "macbeth"}
        _refuse_same({f"datasets.{name}.source": place for name, place in read.items()})

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
        return replace(cls.read(table, path.absolute().parent), path=path.absolute())

    @classmethod
    def read(cls, table: Mapping[str, Any], base: Path) -> Catalog:
        """The catalog in a table, with paths relative to ``base``."""
        _check(table, _KEYS, "catalog")
        if not table.get("datasets"):
            raise InvalidParameter("catalog: there is no [datasets.NAME]")
        ledger = _located(str(table.get("ledger", "ledger.db")), base)
        rates = table.get("rates", {})
        _check(rates, {"number": "free spending"}, "rates")
        return cls(
            datasets={name: _dataset(name, entry, base) for name, entry in table["datasets"].items()},
            ledger=ledger,
            access=_located(str(table["access"]), base) if "access" in table else _beside(ledger),
            key_file=_path(table.get("key_file"), base),
            head_file=_located(str(table["head_file"]), base) if "head_file" in table else None,
            answers_every=validate.nonnegative(answers_every=table.get("answers_every", 0.0)),
            free_per_second=validate.positive(free=rates.get("free", 50.0)),
            spending_per_second=validate.positive(spending=rates.get("spending", 5.0)),
            storage=table.get("storage", 100_000_000),
        )


def _dataset(name: str, table: Any, base: Path) -> DatasetSpec:
    where = f"datasets.{name}"
    if not {"source", "budget"} <= table.keys():
        raise InvalidParameter(f"{where}: source and budget are needed")
    _check(table, _DATASET_KEYS, where)
    given = dict(table)
    limits = {who: Terms.read(part, f"{where}.limits.{who}") for who, part in given.pop("limits", {}).items()}
    _names(limits, f"{where}.limits")
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
        analysts=None if analysts is None else _names(analysts, f"{where}.analysts"),
        labels=None if labels is None else _labels(labels, where),
        streams=_path(given.pop("streams", None), base),
        **given,
    )


def _labels(path: Path, where: str) -> list[str]:
    """The public labels in a file."""
    try:
        labels = read_labels(path)
    except DptopkError as error:
        raise InvalidParameter(f"{where}.labels: {error}") from None
    if not labels:
        raise InvalidParameter(f"{where}.labels: the file holds none")
    return labels


def _names(given: Iterable[Any], where: str) -> tuple[str, ...]:
    """Names of analysts as the ledger writes them; two spellings of one are refused."""
    names = [analyst_name(name) for name in given]
    if len(set(names)) < len(names):
        raise InvalidParameter(f"{where}: two of these names are one analyst's")
    return tuple(names)


def _check(table: Any, kinds: Mapping[str, str], where: str) -> None:
    """Refuse keys that are not known and values that are not what their key is for."""
    if not isinstance(table, dict):
        raise InvalidParameter(f"{where} must be a table")
    kind_of = {name: kind for kind, names in kinds.items() for name in names.split()}
    _refuse_others(table, set(kind_of), where)
    for name, value in table.items():
        fits, said = _KINDS[kind_of[name]]
        if not fits(value):
            raise InvalidParameter(f"{where}: {name} must be {said}")


def _refuse_same(places: Mapping[str, str]) -> None:
    """Refuse two names of one file."""
    seen: dict[str, str] = {}
    for name, place in places.items():
        if place in seen:
            raise InvalidParameter(f"catalog: {name} and {seen[place]} are the same file")
        seen[place] = name


def _identity(source: str) -> str:
    """Return the canonical identity of a source."""
    return source if "://" in source else str(Path(source).resolve())


def _refuse_others(table: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise InvalidParameter(f"{where}: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}")


def _located(url: str, base: Path) -> str:
    return url if "://" in url else str(base / url)


def _path(value: Any, base: Path) -> Path | None:
    return None if value is None else base / str(value)


def _beside(ledger: str) -> str:
    """Return the default place of tokens: the same server, or a file next to the ledger's."""
    return ledger if "://" in ledger else f"{ledger}.access"
