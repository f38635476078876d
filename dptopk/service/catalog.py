"""The catalog: which data sets are served, from which files, within which budgets, and to whom."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dptopk._internal import validate
from dptopk._internal.choices import Domain
from dptopk.budgets.registered_account import Accountant
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.keys import read_key
from dptopk.ledger.log_store import refuse_own_file
from dptopk.ledger.names import canonical_name
from dptopk.planning.protocol import EventsReading

# The keys of a catalog that name a file or a database of the service's own.
PLACES = ("ledger", "access", "key_file", "head_file")
SHIPPED = "macbeth"  # the source that is the shipped table, which is public
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class CatalogRefused(InvalidParameter):
    """The refusal of a catalog, with all that is wrong with it.

    Attributes:
        messages: one for each mistake.
    """

    def __init__(self, messages: Iterable[str]) -> None:
        self.messages = tuple(messages)
        super().__init__("; ".join(self.messages))


def refuse_mistakes(messages: Iterable[str]) -> None:
    """Refuse a catalog if there is anything wrong with it.

    Args:
        messages: one for each mistake; empty: nothing is wrong.

    Raises:
        CatalogRefused: with each message once.
    """
    mistakes = tuple(dict.fromkeys(messages))
    if mistakes:
        raise CatalogRefused(mistakes)


def refuse_special(path: Path) -> Path:
    """Return a path, unless it is a loop of links, or what is there is neither a file nor a folder.

    To read a pipe would wait until somebody writes into it. A path with nothing there is returned.

    Raises:
        InvalidParameter: naming the problem.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # reading the file will say more
        if getattr(error, "errno", None) == errno.ELOOP:
            raise InvalidParameter(f"{path.name!r} leads to a loop of symbolic links") from None
        return path
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InvalidParameter(f"{path.name!r} is neither a file nor a folder")
    return path


def valid_name(**arguments: object) -> str:
    """Return the value of the one argument if it is a name that fits into an address and a file
    name, and never leads to another directory.

    Args:
        arguments: one argument, such as ``dataset="words"``; its own name is used in the message.

    Raises:
        InvalidParameter: if the value is no such name.
    """
    ((name, value),) = arguments.items()
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidParameter(
            f"{name} must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or "
            "a digit"
        )
    return value


@dataclass(frozen=True)
class CatalogBudget:
    """A budget as the catalog states it: a total, registered costs, or the shares of several
    analysts.

    Attributes:
        budget: a total in ε or ρ that is spent freely; None: there is none.
        registered: costs that may be spent in any order.
        shares: analyst, or "reserve" -> their own costs or total.
        delta: the δ of registered costs, or of all shares.
        failure_delta: the part of a total's δ that pays for the δ of single answers, in which their
            own guarantees may fail; None: half of it.
    """

    budget: Budget | None = None
    registered: Charge | None = None
    shares: Mapping[str, Charge | Budget] | None = None
    delta: float | None = None
    failure_delta: float | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the budget as the keyword arguments that ``Ledger.create_dataset``,
        ``Ledger.renew`` and ``Ledger.set_limit`` take.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class SegmentReading:
    """The segments that a question is about, and how their data are read; without arguments: no
    segments.

    Attributes:
        column: the column that says which segment a row belongs to; "" without segments.
        values: the segments; empty: the question is about the data set as a whole.
        per_user: in how many of them one user counts.
        finding: how events are read if labels are found first; None: histograms under the catalog's
            caps.
    """

    column: str = ""
    values: tuple[str, ...] = ()
    per_user: int = 1
    finding: EventsReading | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """One data set of the catalog.

    Attributes:
        name: its name in addresses and in the ledger.
        source: the path of a table; ``{version}`` in it stands for the data version. "macbeth": the
            table that is shipped.
        terms: its budget, written to the ledger when the data set is new there.
        label, count: the columns of a table of counts.
        user, item: the columns of a table of events instead; the caps below are then enforced.
        labels_per_user, per_label_cap: Δ and τ, the caps on one user. For a table of counts they
            are taken as given, for the sums over all rows of a label. (If ``segments`` says that a
            user is in several values of a column, they are for the rows with one value of it.)
        unit, version: the privacy unit in words; the version when the data set is new.
        domain: "private", or "public" with ``labels``.
        labels: the public labels; None: labels come from the data, and are private.
        count_capped: for events with private labels: whether they are answered in one phase, with
            counts under the cap. Else Δ is the cap under which labels are found, and the labels
            that were found are counted without it.
        top: the number of rows that are read from events, which are then answered in one phase;
            None: all.
        engine: for events: "duckdb" or "spark".
        filters: column -> the public list of values that a question may ask for.
        segments: column of ``filters`` whose values may all be asked at once -> in how many of them
            one user counts. For events this is enforced, for a table of counts taken as given.
        budget_by: a column of ``filters`` whose values are disjoint segments, which are declared in
            the ledger when the data set is new there. Each has the whole budget, and pays for what
            is asked of it and of all data.
        streams: the folder for the files of streams, as private as the data; None: no streams. Each
            version is then the data of one day alone, named by its date or number.
        days_per_user: on how many days of a stream one user adds something at most, taken as given;
            None: on all.
        limits: analyst -> a limit within the budget, set in the ledger if there is none.
        analysts: the analysts who may ask; None: every analyst.
        description: a sentence for people.
        sensitivity: the caps as a Sensitivity: l0 is Δ, linf is τ.
    """

    name: str
    source: str
    terms: CatalogBudget
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
    limits: Mapping[str, CatalogBudget] = field(default_factory=dict)
    analysts: tuple[str, ...] | None = None
    description: str = ""
    sensitivity: Sensitivity = field(init=False, repr=False, default=Sensitivity())

    def __post_init__(self) -> None:
        """Refuse values out of range and options that do not go together, and set the sensitivity.

        Raises:
            InvalidParameter: for a value that is out of range.
            CatalogRefused: naming all options that do not go together.
        """
        valid_name(dataset=self.name)
        valid_name(version=self.version)
        if self.top is not None:
            validate.count(top=self.top, at_least=2)
        for per_user in self.segments.values():
            validate.count(segments=per_user)
        mistakes = [*self._mistakes_of_kind(), *self._mistakes_of_analysts()]
        mistakes += self._mistakes_of_segments()
        refuse_mistakes(f"datasets.{self.name}: {words}" for words in mistakes)
        validate.assign(
            self, sensitivity=Sensitivity(linf=self.per_label_cap, l0=self.labels_per_user)
        )

    def _mistakes_of_kind(self) -> Iterator[str]:
        """Yield what is wrong with the options that say what the data are and who reads them."""
        is_events = self.user is not None
        if is_events != (self.item is not None):
            yield "user and item go together"
        if self.engine not in {"duckdb", "spark"}:
            yield f"engine must be duckdb or spark, got {self.engine!r}"
        if self.source == SHIPPED and (is_events or self.filters):
            yield "macbeth has no users and no columns to filter by"
        has_private_labels = is_events and self.labels is None
        if self.count_capped and not has_private_labels:
            yield "count_capped is for private labels of events"

    def _mistakes_of_analysts(self) -> Iterator[str]:
        """Yield what is wrong with the limits of analysts and with who may ask."""
        if self.terms.shares is not None and self.limits:
            yield "limits are for a budget that is not divided into shares"
        if self.analysts is None:
            return
        strangers = {canonical_name(name) for name in self.limits} - set(self.analysts)
        if strangers:
            yield f"limits for {', '.join(strangers)}, not among its analysts"

    def _mistakes_of_segments(self) -> Iterator[str]:
        """Yield what is wrong with the options of streams and segments."""
        divided_by = self.budget_by
        has_days = "{version}" in self.source
        excludes_streams = self.top or divided_by or self.overlapping_columns
        if self.streams is not None and (excludes_streams or not has_days):
            yield (
                "streams need a source with {version} for the day, and neither top nor budget_by "
                "nor segments of a table of counts that a user may be in several of"
            )
        for column in self.segments:
            if column not in self.filters:
                yield f"segments by {column} need its public list in filters"
        if divided_by and self.segments.get(divided_by) != 1:
            yield f"a budget for each {divided_by} needs segments = {{ {divided_by} = 1 }}"

    @property
    def identity(self) -> str:
        """Return the canonical identity of the source, which is equal for all paths that lead to
        the same file; a place-holder ``{version}`` is left as it is.
        """
        if self.source == SHIPPED:
            return SHIPPED
        return _resolved_source(self.source)

    def path_of(self, version: str) -> str:
        """Return the path or URL of a version of the data."""
        return self.source.replace("{version}", version)

    def identity_of(self, version: str) -> str:
        """Return the canonical identity of a version of the data, as ``identity`` does."""
        if self.source == SHIPPED:
            return SHIPPED
        return _resolved_source(self.path_of(version))

    @property
    def domain(self) -> Domain:
        """Return the domain of the labels: "public" if they are listed, else "private"."""
        if self.labels is None:
            return "private"
        return "public"

    @property
    def domain_size(self) -> int | None:
        """Return the number of public labels; None if labels are private."""
        if self.labels is None:
            return None
        return len(self.labels)

    @property
    def finds_labels(self) -> bool:
        """Return whether labels may be found under a cap and counted without it."""
        return (
            self.user is not None
            and self.domain == "private"
            and not (self.count_capped or self.top)
        )

    def covers(self, charge: Charge) -> bool:
        """Return whether the budget, before anything is spent, pays for this kind of charge.

        A budget that is spent freely pays for every kind; registered costs pay for costs that they
        cover.
        """
        if self.spends_freely:
            return True
        registered = self.terms.registered
        delta = self.terms.delta or 0.0  # a budget of registered costs has its delta
        return registered is not None and Accountant(registered, delta).can_spend(charge)

    @property
    def spends_freely(self) -> bool:
        """Return whether the budget and all its shares are spent freely, and not on registered
        costs.
        """
        if self.terms.shares is None:
            return not self.terms.registered
        return not any(isinstance(share, Charge) for share in self.terms.shares.values())

    @property
    def overlapping_columns(self) -> tuple[str, ...]:
        """Return the columns of a table of counts of which one user may be in several values.

        The caps are declared for each value, and not for the sums of rows over several values, so
        that no question may be about such sums. For events there are none: the engine enforces the
        caps of each question.
        """
        if self.user is not None:
            return ()
        return tuple(column for column, per_user in self.segments.items() if per_user > 1)

    def may_ask(self, analyst: str) -> bool:
        """Return whether an analyst may ask about this data set."""
        return self.analysts is None or analyst in self.analysts

    def check_conditions(self, where: Mapping[str, str]) -> None:
        """Refuse conditions of a question that the catalog does not offer.

        Raises:
            InvalidParameter: for a column or a value that is not in the public list.
        """
        for column, value in where.items():
            if column not in self.filters:
                raise InvalidParameter(
                    f"where: one may filter by {', '.join(self.filters) or 'nothing'} here"
                )
            if value not in self.filters[column]:
                raise InvalidParameter(
                    f"where: {column} must be one of {', '.join(self.filters[column])}"
                )

    @property
    def declared_segments(self) -> dict[str, tuple[str, ...]] | None:
        """Return the disjoint segments that have a budget each, column -> names, as
        ``Ledger.create_dataset`` takes them; None if the budget is not divided by segments.
        """
        if self.budget_by is None:
            return None
        return {self.budget_by: self.filters[self.budget_by]}

    def paying_segments(
        self, segments: Mapping[str, Sequence[str]], where: Mapping[str, str]
    ) -> tuple[str, ...] | None:
        """Return the declared segments that a question is about, each of which pays for it.

        It is None if there are no declared segments, or the question is about all data and all of
        them pay.
        """
        if self.budget_by is None:
            return None
        if self.budget_by in where:
            return (where[self.budget_by],)
        segment_reading = self.segment_reading(segments, where)
        if segment_reading.column == self.budget_by:
            return segment_reading.values
        return None

    def segment_reading(
        self, segments: Mapping[str, Sequence[str]], where: Mapping[str, str]
    ) -> SegmentReading:
        """Return the segments that a question is about.

        Args:
            segments: column -> values, or no values for the whole public list; at most one column.
            where: the question's conditions.

        Raises:
            InvalidParameter: for a column or a value that is not offered, or a column that
                ``where`` fixes.
        """
        if not segments:
            return SegmentReading()
        column: str = ""
        if len(segments) == 1:
            (column,) = segments
        if column not in self.segments:
            raise InvalidParameter(
                f"segments: one may ask by one of {', '.join(self.segments) or 'no columns'} here"
            )
        if column in where:
            raise InvalidParameter(f"segments: {column} is fixed by a condition")
        values = tuple(segments[column]) or self.filters[column]
        if len(set(values)) < len(values) or not set(values) <= set(self.filters[column]):
            raise InvalidParameter(
                f"segments: {column} must be different ones of {', '.join(self.filters[column])}"
            )
        # A user counts in no more segments than the question is about.
        per_user = min(self.segments[column], len(values))
        return SegmentReading(column, values, per_user)


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The configuration of the service.

    Attributes:
        datasets: the data sets by name.
        ledger: the path of a SQLite file, or the URL of a PostgreSQL database.
        access: the path or URL of the database of tokens, jobs and the audit log.
        key_file: the file with the secret of the ledger's hash chain.
        head_file: the file, best on another disk, or database URL that stores the ledger's head,
            which is checked at every write.
        answers_every: a number of seconds: requests that spend are charged, and answered, at whole
            multiples of it, so that the time they took does not show. 0: at once.
        free_per_second, spending_per_second: the units of work that one token may ask for in each
            worker; a simple request is one.
        audit_days: the number of days after which a line of the audit log is deleted.
        audit_bytes: the bytes that one analyst's questions of a day may take in the audit log if
            nothing was charged for them.
        storage: the bytes that the questions and answers of one analyst may take in the ledger.
        path: the path of the catalog's file; None: it was not read from one.
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
    audit_days: float = 365.0
    audit_bytes: int = 2_000_000
    path: Path | None = None

    def __post_init__(self) -> None:
        """Refuse a catalog in which two places, or two sources, are one file.

        Raises:
            CatalogRefused: naming both.
            InvalidParameter: when the ledger's own files would be overwritten.
        """
        places = {name: str(getattr(self, name) or "") for name in PLACES}
        files = {name: place for name, place in places.items() if place and "://" not in place}
        sources = {
            f"datasets.{name}.source": spec
            for name, spec in self.datasets.items()
            if spec.source != SHIPPED  # built in: any number of data sets may have it
        }
        file_of_place = {name: _resolved_source(place) for name, place in files.items()}
        file_of_source = {name: spec.identity for name, spec in sources.items()}
        file_of_version = {name: spec.identity_of(spec.version) for name, spec in sources.items()}
        refuse_mistakes(
            [
                *_repeated_file_mistakes(file_of_place),
                *_repeated_file_mistakes(file_of_source),
                *_repeated_file_mistakes(file_of_version),
            ]
        )
        # ``Ledger`` itself refuses such a head_file.
        for name in {"access", "key_file"} & files.keys():
            refuse_own_file(self.ledger, Path(files[name]), name)

    @property
    def key(self) -> bytes | None:
        """Return the secret of the ledger's hash chain; None if the chain has no key."""
        if self.key_file is None:
            return None
        return read_key(refuse_special(self.key_file))


def _repeated_file_mistakes(files: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each file that has two names in the catalog.

    Args:
        files: the name of each file in the catalog, such as "ledger" -> its path, links followed.
    """
    first_name: dict[str, str] = {}  # by file
    for name, file in files.items():
        if file in first_name:
            yield f"catalog: {name} and {first_name[file]} are the same file"
        first_name.setdefault(file, name)


def _resolved_source(source: str) -> str:
    """Return a URL as it is, and the path that a file's path leads to, links followed."""
    if "://" in source:
        return source
    return os.path.realpath(source)  # Path.resolve fails on a loop of links
