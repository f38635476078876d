"""How a catalog is read from its TOML file: values are checked, and all mistakes are named
at once.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, time
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa

from dptopk._internal import validate
from dptopk.costs import Budget, Charge
from dptopk.datasets import read_labels
from dptopk.errors import DptopkError, InvalidParameter
from dptopk.ledger.names import analyst_name
from dptopk.service.catalog import (
    PLACES,
    SHIPPED,
    Catalog,
    CatalogBudget,
    CatalogRefused,
    DatasetSpec,
    refuse_mistakes,
    refuse_special,
)

LARGEST = 2**53  # the largest whole number that every reader of JSON holds exactly
LARGEST_EPSILON = 1e9  # the largest ε of a budget; the numbers of a filter overflow far above it
MOST_BYTES = 2**26  # a longer file is no catalog
LONGEST_WAIT = 3600.0  # the largest answers_every, in seconds


# A value that a TOML file can hold.
Toml: TypeAlias = str | int | float | date | time | list["Toml"] | dict[str, "Toml"]


@dataclass
class Mistakes:
    """All mistakes of a catalog that were found so far.

    Attributes:
        messages: one sentence for each.
    """

    messages: list[str] = field(default_factory=list)

    @contextmanager
    def collecting(self, where: str) -> Iterator[None]:
        """Catch an error that is raised in the block, and add it to the mistakes of a part of the
        catalog.

        Args:
            where: the part, with which the message begins.
        """
        try:
            yield
        except CatalogRefused as error:
            self.messages += error.messages
        except DptopkError as error:
            text = str(error)
            self.messages.append(text if text.startswith(where) else f"{where}: {text}")
        except (OverflowError, ValueError, RecursionError):  # for numbers of thousands of digits
            self.messages.append(f"{where}: a value is too large or too long")

    def valid_entries(self, table: Toml, kinds: Mapping[str, str], where: str) -> dict[str, Any]:
        """Return the entries of a table whose values have the right kind; others, and unknown keys,
        are added to the mistakes.

        Args:
            table: the table as TOML holds it.
            kinds: a kind, which is a key of _KINDS -> the names of the entries of that kind,
                separated by blanks.
            where: the part of the catalog, for messages.
        """
        if not isinstance(table, dict):
            self.messages.append(f"{where} must be a table")
            return {}
        kind_of = {name: kind for kind, names in kinds.items() for name in names.split()}
        with self.collecting(where):
            refuse_unknown_keys(table, set(kind_of), where)
        entries = {}
        for name, value in table.items():
            if name not in kind_of:
                continue
            kind = _KINDS[kind_of[name]]
            if kind.fits(value):
                entries[name] = value
            else:
                self.messages.append(f"{where}: {name} must be {kind.words}")
        return entries


def _is_text(value: Toml) -> bool:
    """Return whether this is a text that is not blank and holds no NUL, which no file name may."""
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _is_count(value: Toml) -> bool:
    """Return whether this is a whole number from 1 to LARGEST; true and false are none."""
    return type(value) is int and 1 <= value <= LARGEST


def _is_list(value: Toml) -> bool:
    """Return whether this is a non-empty list of distinct texts or integers."""
    if not isinstance(value, list) or not value:
        return False
    for entry in value:
        is_integer = type(entry) is int and abs(entry) <= LARGEST
        if not is_integer and not _is_text(entry):
            return False
    return len(set(map(str, value))) == len(value)  # 1 and "1" are one value of a condition


def _table_check(value_check: Callable[[Toml], bool]) -> Callable[[Toml], bool]:
    """Return a check that a value is a table whose values all pass ``value_check``."""

    def table_fits(value: Toml) -> bool:
        """Return whether a value is a table whose values fit."""
        return isinstance(value, dict) and all(value_check(entry) for entry in value.values())

    return table_fits


def _number_check(least: float, most: float) -> Callable[[Toml], bool]:
    """Return a check that a value is a number from ``least`` to ``most``."""

    def fits(value: Toml) -> bool:
        """Return whether a value is such a number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return least <= value <= most  # NaN is not

    return fits


def _is_table(value: Toml) -> bool:
    """Return whether this is a table."""
    return isinstance(value, dict)


@dataclass(frozen=True)
class _Kind:
    """A kind of value.

    Attributes:
        fits: the function that returns whether a value is of this kind.
        words: what such a value is, for the message about another one.
    """

    fits: Callable[[Toml], bool]
    words: str


_KINDS: dict[str, _Kind] = {
    "text": _Kind(_is_text, "a text"),
    "count": _Kind(_is_count, "a whole number from 1 to 2^53"),
    "wait": _Kind(_number_check(0, LONGEST_WAIT), f"a number from 0 to {LONGEST_WAIT:g}"),
    "rate": _Kind(_number_check(1e-3, 1e9), "a number from 0.001 to 1e9"),
    "days": _Kind(_number_check(1, 36_500), "a number from 1 to 36500"),
    "list": _Kind(_is_list, 'a list of different values, such as ["one", "two"]'),
    "flag": _Kind(lambda value: isinstance(value, bool), "true or false"),
    "table": _Kind(_is_table, "a table"),
    "lists": _Kind(_table_check(_is_list), "a table of lists"),
    "counts": _Kind(_table_check(_is_count), "a table of whole numbers from 1 to 2^53"),
    "tables": _Kind(_table_check(_is_table), "a table of tables"),
}
# The keys of each table, by the kind of their values (``Mistakes.valid_entries``).
_DATASET_KEYS = {
    "text": "source label count user item unit version labels engine budget_by description streams",
    "count": "labels_per_user per_label_cap top days_per_user",
    "flag": "count_capped",
    "list": "analysts",
    "lists": "filters",
    "counts": "segments",
    "table": "budget",
    "tables": "limits",
}
_KEYS = {
    "text": " ".join(PLACES),
    "wait": "answers_every",
    "count": "storage",
    "table": "rates audit",
    "tables": "datasets",
}
_RATES = {"rate": "free spending"}
_AUDIT = {"days": "days", "count": "bytes"}
# The keys of a data set whose values are changed before DatasetSpec takes them.
_CONVERTED_KEYS = {"source", "labels", "analysts", "filters", "limits", "budget", "streams"}


def load(path: str | Path) -> Catalog:
    """Return the catalog in a TOML file; paths in it are relative to its directory.

    Raises:
        CatalogRefused: naming all that is missing, unknown or out of range.
        InvalidParameter: when the file cannot be read, or is not TOML.
    """
    path = Path(path)
    text = text_of(path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidParameter(f"catalog: {path.name!r} is not TOML: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists in lists
        raise InvalidParameter(
            f"catalog: {path.name!r} is not TOML: a value is too long or too deep"
        ) from None
    return replace(read(table, path.absolute().parent), path=path.absolute())


def text_of(path: Path) -> str:
    """Return the text of a catalog's file.

    Raises:
        InvalidParameter: when it cannot be read, is a pipe or a device, too long, or not UTF-8.
    """
    try:
        refuse_special(path)
    except InvalidParameter as error:
        raise InvalidParameter(f"catalog: {error}") from None
    try:
        if path.stat().st_size <= MOST_BYTES:
            return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidParameter(f"catalog: cannot read {path.name!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidParameter(f"catalog: {path.name!r} is not TOML: {error}") from None
    except ValueError:  # a path with a NUL
        raise InvalidParameter(f"catalog: {path.name!r} is no path of a file") from None
    raise InvalidParameter(f"catalog: {path.name!r} is longer than 64 MiB")


def read(table: dict[str, Toml], base: Path) -> Catalog:
    """Return the catalog in the table of a whole TOML file, with paths relative to ``base``.

    Raises:
        CatalogRefused: naming all mistakes.
    """
    mistakes = Mistakes()
    values = mistakes.valid_entries(table, _KEYS, "catalog")
    rates = mistakes.valid_entries(values.get("rates", {}), _RATES, "rates")
    audit = mistakes.valid_entries(values.get("audit", {}), _AUDIT, "audit")
    places = {name: _resolved_path(values[name], base) for name in PLACES if name in values}
    for name, place in places.items():
        with mistakes.collecting(name):
            _refuse_bad_place(place)
    datasets: dict[str, DatasetSpec] = {}
    for name, entry in values.get("datasets", {}).items():
        with mistakes.collecting(f"datasets.{name}"):
            datasets[name] = _dataset(name, entry, base)
    if not table.get("datasets"):
        mistakes.messages.append("catalog: there is no [datasets.NAME]")
    ledger = places.get("ledger", _resolved_path("ledger.db", base))
    key_file = places.get("key_file")
    with mistakes.collecting("catalog"):
        catalog = Catalog(
            datasets=datasets,
            ledger=ledger,
            access=places.get("access", _default_access(ledger)),
            key_file=None if key_file is None else Path(key_file),
            head_file=places.get("head_file"),
            answers_every=float(values.get("answers_every", Catalog.answers_every)),
            free_per_second=float(rates.get("free", Catalog.free_per_second)),
            spending_per_second=float(rates.get("spending", Catalog.spending_per_second)),
            storage=values.get("storage", Catalog.storage),
            audit_days=float(audit.get("days", Catalog.audit_days)),
            audit_bytes=audit.get("bytes", Catalog.audit_bytes),
        )
    refuse_mistakes(mistakes.messages)  # always refuses where no catalog was made
    return catalog


@dataclass
class _DatasetParts:
    """The values of a data set that are made from its entries; None: there is none, or it has a
    mistake.

    Attributes:
        analysts: the names of the analysts who may ask.
        labels: the public labels.
        budget: the budget.
        streams: the folder for the files of streams.
    """

    analysts: tuple[str, ...] | None = None
    labels: list[str] | None = None
    budget: CatalogBudget | None = None
    streams: Path | None = None

    @classmethod
    def read(
        cls, entries: Mapping[str, Any], base: Path, where: str, mistakes: Mistakes
    ) -> _DatasetParts:
        """Return the values that have no mistake; the mistakes of the others are added to
        ``mistakes``.

        Args:
            entries: the entries of the data set's table whose values have the right kind.
            base: the folder that paths are relative to.
            where: the place of the table in the catalog, for messages.
            mistakes: all mistakes of the data set that were found so far.
        """
        parts = cls()
        with mistakes.collecting(f"{where}.analysts"):
            if "analysts" in entries:
                parts.analysts = _analyst_names(entries["analysts"], f"{where}.analysts")
        with mistakes.collecting(f"{where}.labels"):
            if "labels" in entries:
                parts.labels = _labels(base / entries["labels"], f"{where}.labels")
        with mistakes.collecting(f"{where}.budget"):
            if "budget" in entries:
                parts.budget = budget_in(entries["budget"], f"{where}.budget")
        with mistakes.collecting(f"{where}.streams"):
            if "streams" in entries:
                parts.streams = base / entries["streams"]
                _refuse_other_than_folder(parts.streams)
        return parts


def _dataset(name: str, table: dict[str, Toml], base: Path) -> DatasetSpec:
    """Return one data set of the catalog.

    Args:
        name: its name.
        table: its table, as TOML holds it.
        base: the folder that paths in it are relative to.

    Raises:
        CatalogRefused: naming all mistakes.
    """
    where = f"datasets.{name}"
    mistakes = Mistakes()
    entries = mistakes.valid_entries(table, _DATASET_KEYS, where)
    if not {"source", "budget"} <= table.keys():
        mistakes.messages.append(f"{where}: source and budget are needed")
    limits = _limits(entries.get("limits", {}), f"{where}.limits", mistakes)
    parts = _DatasetParts.read(entries, base, where, mistakes)
    filters = entries.get("filters", {})
    source = entries.get("source", "")
    with mistakes.collecting(where):
        if source and parts.budget is not None:
            spec = DatasetSpec(
                name=name,
                source=source if source == SHIPPED else _resolved_path(source, base),
                terms=parts.budget,
                filters={column: tuple(map(str, values)) for column, values in filters.items()},
                limits=limits,
                analysts=parts.analysts,
                labels=parts.labels,
                streams=parts.streams,
                **{key: value for key, value in entries.items() if key not in _CONVERTED_KEYS},
            )
    refuse_mistakes(mistakes.messages)  # always refuses where no data set was made
    return spec


def _refuse_other_than_folder(path: Path) -> None:
    """Refuse a path at which there is something else than a folder; a folder that does not exist
    will be made.

    Raises:
        InvalidParameter: naming the path and the problem.
    """
    try:
        is_other = refuse_special(path).exists() and not path.is_dir()
    except OSError as error:  # such as a name that is too long, of which the start is shown
        raise InvalidParameter(f"{path.name[:40]!r}: {error.strerror}") from None
    if is_other:
        raise InvalidParameter(f"{path.name!r} is not a folder")


def _limits(table: Mapping[str, Any], where: str, mistakes: Mistakes) -> dict[str, CatalogBudget]:
    """Return the limits of analysts that have no mistake; the mistakes of the others are added to
    ``mistakes``.

    Args:
        table: analyst -> the limit, as TOML holds it.
        where: the place of the table in the catalog, for messages.
        mistakes: all mistakes of the catalog that were found so far.
    """
    limits: dict[str, CatalogBudget] = {}
    for analyst, part in table.items():
        with mistakes.collecting(f"{where}.{analyst}"):
            limits[analyst] = budget_in(part, f"{where}.{analyst}")
    with mistakes.collecting(where):
        _analyst_names(limits, where)
    return limits


def budget_in(table: Toml, where: str) -> CatalogBudget:
    """Return the budget in a table of the catalog.

    Args:
        table: a table with one of ``epsilon``, ``rho``, ``registered`` (costs as text) and
            ``shares``, and perhaps ``delta`` (else 0); with the first two perhaps
            ``failure_delta``.
        where: its place in the catalog, for messages.

    Raises:
        InvalidParameter: when it is no budget.
    """
    kinds = {"epsilon", "rho", "registered", "shares"}
    if not isinstance(table, dict) or len(kinds & table.keys()) != 1:
        raise InvalidParameter(
            f"{where}: give exactly one of epsilon, rho, registered and shares, and delta "
            "where it is above 0"
        )
    is_filter = "epsilon" in table or "rho" in table
    known = kinds | {"delta"}
    if is_filter:
        known.add("failure_delta")
    refuse_unknown_keys(table, known, where)
    mistakes = Mistakes()
    numbers: dict[str, float] = {}
    for name in ("epsilon", "rho", "delta", "failure_delta"):
        with mistakes.collecting(where):
            if name in table:
                numbers[name] = _number_in(name, table[name])
    refuse_mistakes(mistakes.messages)
    delta = numbers.get("delta", 0.0)
    if is_filter:
        budget = Budget(numbers.get("epsilon"), delta, rho=numbers.get("rho"))
        return CatalogBudget(budget=budget, failure_delta=numbers.get("failure_delta"))
    if "shares" in table:
        return CatalogBudget(shares=_shares(table["shares"], f"{where}.shares"), delta=delta)
    registered = table["registered"]
    if not isinstance(registered, str) or not _is_text(registered):
        raise InvalidParameter(f"{where}: registered must be a text")
    return CatalogBudget(registered=Charge.parse(registered), delta=delta)


def _number_in(name: str, value: Toml) -> float:
    """Return a number of a budget.

    Args:
        name: the key: "epsilon", "rho", "delta" or "failure_delta".
        value: its value, as TOML holds it.

    Raises:
        InvalidParameter: when it is no number, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidParameter(f"{name} must be a real number, got {value!r:.40}")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise InvalidParameter(f"{name} must be at most 2^53")
    if name in {"delta", "failure_delta"}:
        return validate.probability(allow_zero=True, **{name: float(value)})
    number = validate.positive(**{name: float(value)})
    if name == "epsilon" and number > LARGEST_EPSILON:
        raise InvalidParameter(f"epsilon must be at most {LARGEST_EPSILON:g}; more protects nobody")
    return number


def _shares(table: Toml, where: str) -> dict[str, Charge | Budget]:
    """Return the shares of a budget: analyst, or "reserve" -> registered costs, or a budget in ε.

    The δ of registered costs is that of the whole budget.

    Raises:
        InvalidParameter: if it is no table of shares, or a share is wrong.
    """
    if not isinstance(table, dict) or not table:
        raise InvalidParameter(f"{where}: give the share of at least one analyst")
    mistakes = Mistakes()
    shares: dict[str, Charge | Budget] = {}
    for name, part in table.items():
        with mistakes.collecting(f"{where}.{name}"):
            shares[name] = _share(part, f"{where}.{name}")
    refuse_mistakes(mistakes.messages)
    return shares


def _share(part: Any, where: str) -> Charge | Budget:
    """Return the share of one analyst, as TOML holds it: registered costs, or a budget in ε.

    Args:
        part: the table of the share.
        where: its place in the catalog, for messages.

    Raises:
        InvalidParameter: if it states a δ for failures, or shares again, or a δ of its own for
            registered costs.
    """
    terms = budget_in(part, where)
    states_delta = "registered" in part and "delta" in part
    if terms.shares is not None or states_delta or "failure_delta" in part:
        raise InvalidParameter(
            f"{where}: give epsilon and delta, or registered without a delta of its own"
        )
    if terms.budget is not None:
        return terms.budget
    return terms.registered or Charge()  # ``budget_in`` has found one of both


def _labels(path: Path, where: str) -> list[str]:
    """Return the public labels in a file.

    Raises:
        InvalidParameter: if it holds no label.
    """
    labels = read_labels(refuse_special(path))
    if not labels:
        raise InvalidParameter(f"{where}: the file holds no label")
    return labels


def _analyst_names(names_in_file: Iterable[Any], where: str) -> tuple[str, ...]:
    """Return names of analysts as the ledger writes them; two spellings of one name are refused.

    Args:
        names_in_file: the names as the file has them.
        where: the place in the file, for the message on two spellings.

    Raises:
        InvalidParameter: for two spellings of one name, or a name that no analyst may have.
    """
    names = [analyst_name(name) for name in names_in_file]
    if len(set(names)) < len(names):
        raise InvalidParameter(f"{where}: two of these names are one analyst's")
    return tuple(names)


def refuse_unknown_keys(table: Mapping[str, Any], known: set[str], where: str) -> None:
    """Refuse keys of a table that are not known.

    Args:
        table: the table.
        known: the keys that it may have.
        where: the place of the table in the catalog, for the message.

    Raises:
        InvalidParameter: naming them.
    """
    unknown = sorted(set(table) - known)
    if unknown:
        raise InvalidParameter(
            f"{where}: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}"
        )


def _refuse_bad_place(place: str) -> None:
    """Refuse a pipe or device, and a URL that is no address of a database.

    The URL is not shown, since it may hold a password.

    Raises:
        InvalidParameter: if so.
    """
    if "://" not in place:
        refuse_special(Path(place))
        return
    try:
        sa.engine.make_url(place)
    except Exception:  # noqa: BLE001 - a parser of addresses raises many things
        raise InvalidParameter("this is no address of a database") from None


def _resolved_path(url: str, base: Path) -> str:
    """Return a URL as it is, and a path relative to ``base``."""
    if "://" in url:
        return url
    return str(base / url)


def _default_access(ledger: str) -> str:
    """Return the default place of the access database: the ledger's server, or a file beside it."""
    if "://" in ledger:
        return ledger
    return f"{ledger}.access"
