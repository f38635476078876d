"""This module says how the command line reads data: a table of counts, or raw events whose
contributions are bounded on the way.
"""

from __future__ import annotations

import atexit
import json
import shutil
import sys
import tempfile
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dptopk import datasets
from dptopk._internal import validate
from dptopk._internal.choices import Domain
from dptopk._internal.json_text import fingerprint
from dptopk.cli.options import Columns
from dptopk.cli.shell import progress_bar, tell
from dptopk.datasets import EventsStore, Segments, read_counts, read_labels
from dptopk.datasets.text_files import (
    TextFile,
    TextFormat,
    format_ending,
    is_tabbed,
    is_text_file,
    known_encoding,
    known_separator,
    text_format,
)
from dptopk.datasets.warehouse import is_counted_file
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import label_text

if TYPE_CHECKING:
    from dptopk.planning import Plan


def readable_copy(path: Path) -> Path:
    """Return the file to read: the path itself or, for "-", a private copy of standard input as
    CSV.

    The copy is deleted when the process ends, and lies in a folder that only its owner can read. It
    is needed because segments and public labels read the data more than once.
    """
    if str(path) != "-":
        return path
    folder = tempfile.TemporaryDirectory(prefix="dptopk-")
    atexit.register(folder.cleanup)
    copy = Path(folder.name) / "stdin.csv"
    with copy.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return copy


@dataclass(frozen=True, kw_only=True)
class Source(Columns):
    """A file, what its columns mean (``Columns``), and which labels are public.

    Attributes:
        path: a table of counts; a table of events where ``item`` is given; a store of events; or
            the result of a statement of ``dptopk events-sql``.
        known_domain: whether the labels in the file are public.
        domain: the public labels, or the path of a text file with one a line; None: they are not
            listed.
        segment_by: the column of segments, for each of which there is a histogram; None: there are
            no segments.
        segments: the public list of the values of that column.
        segments_per_user: in how many segments one user is at most; None: in all.
        count_capped: whether private labels of events are counted under the cap under which they
            are found.
    """

    path: Path
    known_domain: bool = False
    domain: Path | list[str] | None = None
    segment_by: str | None = None
    segments: Sequence[str] = ()
    segments_per_user: int | None = None
    count_capped: bool = False

    def __post_init__(self) -> None:
        """Refuse options that do not go together.

        Raises:
            InvalidParameter: naming them.
        """
        self._check_users()
        self._check_options_of_events()
        self._check_segments()
        is_of_users = self.user is not None or self._is_store
        if self.count_capped and not (self.label_domain == "private" and is_of_users):
            raise InvalidParameter(
                "--count-capped is for private labels of events, with --user-col"
            )
        if len(set(self.segments)) < len(self.segments):
            raise InvalidParameter("--segments: a segment is named twice")

    def _check_options_of_events(self) -> None:
        """Refuse options of events for a table of counts, and options of counts for events.

        Raises:
            InvalidParameter: naming them.
        """
        if self.item is None and (self.memory_limit is not None or self.passes is not None):
            raise InvalidParameter(
                "--memory-limit and --passes are for events; add --user-col and --item-col"
            )
        if self.item is not None and self.decimal != ".":
            raise InvalidParameter("--decimal is for counts; the columns of events are text")
        if self.item is not None and (self.label, self.count) != ("label", "count"):
            raise InvalidParameter(
                "--label-col and --count-col are for tables of counts; events have --item-col"
            )

    def _check_segments(self) -> None:
        """Refuse options of segments that do not go together.

        Raises:
            InvalidParameter: naming them.
        """
        if (self.segment_by is None) != (not self.segments):
            raise InvalidParameter(
                "--segment-by and --segments go together: a column, and a public list of its values"
            )
        if self.segment_by in self.conditions:
            raise InvalidParameter("--where: the column of --segment-by is given by --segments")
        if self.segments_per_user is not None:
            if self.segment_by is None:
                raise InvalidParameter("--segments-per-user needs --segment-by and --segments")
            validate.count(segments_per_user=self.segments_per_user)

    def _check_users(self) -> None:
        """Refuse columns of users and labels that do not go together.

        Raises:
            InvalidParameter: unless a table of events names both columns, or only that of labels,
                and no segments, where each row is one person; a table of counts names none.
        """
        if self.one_row_per_user and (
            self.item is None or self.user is not None or self.segment_by is not None
        ):
            raise InvalidParameter(
                "--one-row-per-user goes with --item-col, and no --user-col or --segment-by"
            )
        has_users = self.user is not None or self.one_row_per_user
        has_labels = self.item is not None
        if has_users != has_labels:
            raise InvalidParameter(
                "--user-col and --item-col go together: a table of events needs both; where each "
                "row is one person, --one-row-per-user says so"
            )

    @property
    def conditions(self) -> dict[str, str]:
        """Return the conditions of --where, as a mapping from column to the value it must have.

        Raises:
            InvalidParameter: if a condition is not COLUMN=VALUE, or a column must have two values.
        """
        conditions: dict[str, str] = {}
        for condition in self.where or ():
            column, equals, value = condition.partition("=")
            if not column or not equals:
                raise InvalidParameter("--where takes COLUMN=VALUE")
            if conditions.get(column, value) != value:
                raise InvalidParameter("--where: no row has two values in one column")
            conditions[column] = value
        return conditions

    @property
    def label_domain(self) -> Domain:
        """Return the domain of the labels: "public" if they were listed or declared public, else
        "private".
        """
        if self.known_domain or self.domain is not None:
            return "public"
        return "private"

    @property
    def finds_labels(self) -> bool:
        """Return whether labels can be found under a cap on each user and then counted on all
        events.

        This is so for private labels of events, unless --count-capped asks for counts under the
        cap, or a store of events has a cap of its own, for which the store is opened.
        """
        if self.label_domain != "private" or self.count_capped:
            return False
        if self._is_counted_file:
            return True
        # A store that does not exist is refused when it is read.
        if not self._is_store or not self.path.exists():
            return self.user is not None
        with EventsStore(self.path) as store:
            return store.bounds.labels_per_user is None

    @property
    def _events_table(self) -> Path | TextFile:
        """Return the path of the table of events, with its separator and encoding if they are
        stated.
        """
        if self.separator is None and self.encoding is None:
            return self.path
        return TextFile(self.path, self.separator, self.encoding)

    def _tell_format(self) -> None:
        """Tell the user how a text file is read, unless it is UTF-8 with the usual separator."""
        if not is_text_file(self.path) or not self.path.is_file():
            return
        text = self._text_format()
        if text is None:
            return
        usual_separator = "\t" if is_tabbed(self.path) else ","
        separator_is_unusual = self.separator is None and text.separator != usual_separator
        encoding_is_unusual = self.encoding is None and not text.is_plain
        if separator_is_unusual or encoding_is_unusual:
            tell(f"Read by its header line: {text.in_words()}. --sep and --encoding change that.")

    def _text_format(self) -> TextFormat | None:
        """Return the separator and encoding of the text file; None if they cannot be found, since
        reading the file then explains why.
        """
        columns = [self.label, self.count] if self.item is None else [self.user, self.item]
        names = [name for name in columns if name is not None]  # no user: each row is a person
        separator = known_separator(self.separator)
        encoding = known_encoding(self.encoding)
        try:
            return text_format(self.path, names, separator=separator, encoding=encoding)
        except (InvalidParameter, OSError, EOFError):
            return None

    @property
    def _is_store(self) -> bool:
        """Return whether the file is a store of events, as ``dptopk refresh`` makes it."""
        return self.path.suffix.lower() == ".store"

    @property
    def _is_counted_file(self) -> bool:
        """Return whether the file holds the result of a statement of ``dptopk events-sql``."""
        return self.item is None and is_counted_file(self.path)

    def read(self, plan: Plan) -> Histogram:
        """Return the histogram that the plan runs on, with no more rows than the plan reads.

        Raises:
            InvalidParameter: naming the option, or what in the file cannot be read.
        """
        self._tell_format()
        reading = plan.reading
        if reading.finding is not None:
            return self._event_counts(reading.sensitivity, asdict(reading.finding))
        return self.capped_histogram(reading.sensitivity, reading.top)

    def _event_counts(self, sensitivity: Sensitivity, finding: dict[str, Any]) -> Histogram:
        """Return the histogram for finding labels together with the counts of all events.

        Args:
            sensitivity: the caps under which labels are found.
            finding: the keyword arguments of ``datasets.event_counts`` from the plan's reading.

        Raises:
            InvalidParameter: for options that a store or a counted file cannot heed, and events
                that cannot be read.
        """
        if self._is_store:
            self._check_store()
            with EventsStore(self.path) as store:
                return datasets.event_counts(store, **finding)
        if self._is_counted_file:
            if self.where or self.segment_by is not None:
                raise InvalidParameter("counted events are whole: no --where and no --segment-by")
            return datasets.event_counts(self.path, **finding)
        bounds = self._bounding_arguments(sensitivity, None) | finding
        del bounds["top"]
        with progress_bar("bounding contributions") as report:
            return datasets.event_counts(self._events_table, **bounds, progress=report)

    def capped_histogram(self, sensitivity: Sensitivity, top: int | None = None) -> Histogram:
        """Return the histogram of the file under these caps, over the public labels if there are
        any.

        Args:
            sensitivity: the caps on what one user adds.
            top: only this many of the largest counts are read; None: all.

        Raises:
            InvalidParameter: naming the option, or what in the file cannot be read.
        """
        if self._is_store:
            histogram = self._histogram_of_store(sensitivity, top)
        elif self.item is not None:
            with progress_bar("bounding contributions") as report:
                histogram = datasets.events_histogram(
                    self._events_table,
                    **self._bounding_arguments(sensitivity, top),
                    progress=report,
                )
        else:
            histogram = self._histogram_of_counts(sensitivity, self.conditions)
        return self._over_public_labels(histogram, sensitivity)

    def read_segments(self, plan: Plan) -> Segments:
        """Return the histogram of each segment of the list, with the number of segments one user is
        in at most.

        Args:
            plan: the plan that runs on each segment, which says what is read.

        Raises:
            InvalidParameter: naming the option, or what in the file cannot be read.
        """
        self._tell_format()
        names = list(self.segments)
        caps = plan.reading.sensitivity
        column = str(self.segment_by)  # a name: __post_init__ refuses segments without one
        if self.user is not None:
            segments = self._event_segments(plan, names)
            histograms = {name: self._over_public_labels(segments[name], caps) for name in names}
            return Segments(histograms, segments.segments_per_user, by=column)
        histograms = {}
        for name in names:
            histogram = self._histogram_of_counts(caps, self.conditions | {column: name})
            histograms[name] = self._over_public_labels(histogram, caps)
        return Segments(histograms, self.most_segments_per_user, by=column)

    @property
    def most_segments_per_user(self) -> int:
        """Return in how many of the listed segments one user is at most."""
        if self.segments_per_user is None:
            return len(self.segments)
        return min(self.segments_per_user, len(self.segments))

    def _histogram_of_counts(self, sensitivity: Sensitivity, where: dict[str, str]) -> Histogram:
        """Return the histogram of a table of counts, of the rows that meet the conditions.

        Args:
            sensitivity: the caps on what one user adds, which must hold in the table already.
            where: column -> the value that a row must have in it.

        Raises:
            InvalidParameter: naming the option that is meant and, where a column is missing or
                unreadable, the option that may help.
        """
        try:
            frame = read_counts(
                self.path,
                label=self.label,
                count=self.count,
                separator=self.separator,
                encoding=self.encoding,
                decimal=self.decimal,
                where=where,
            )
        except InvalidParameter as error:
            raise self._with_hint(error) from None
        return Histogram(
            frame["label"], frame["count"], sensitivity=sensitivity, domain=self.label_domain
        )

    def _with_hint(self, error: InvalidParameter) -> InvalidParameter:
        """Return the error of reading a table of counts with a hint at the option that may help;
        the error itself where no option does.

        Args:
            error: the error; its parameter is the argument of ``read_counts`` that was refused.
        """
        message = str(error)
        column_is_missing = "has no column" in message
        if error.parameter == "where" and f"no column {self.segment_by!r}" in message:
            # A segment is read as one more condition; the user gave its column as --segment-by.
            return InvalidParameter(message.removeprefix("where: "), parameter="segment")
        if error.parameter == "count" and not column_is_missing:
            return InvalidParameter(f"{message}{self._decimal_hint()}", parameter="count")
        has_default_columns = (self.label, self.count) == ("label", "count")
        if error.parameter in {"label", "count"} and column_is_missing and has_default_columns:
            # Without any option for columns, the file may be one of events.
            hint = "if a row is an event, name --user-col and --item-col"
            return InvalidParameter(f"{message}; {hint}", parameter=error.parameter)
        return error

    def _decimal_hint(self) -> str:
        """Return a hint for an error about counts that cannot be read: to add --decimal.

        It depends on the options and the name of the file alone, never on the counts. It is empty
        where the option would not help.
        """
        if not is_text_file(self.path) or self.decimal == ",":
            return ""
        return ". If they are written with decimal commas (7,0), add --decimal ,"

    def encoding_warnings(self, labels: Sequence[object]) -> list[str]:
        """Return a warning about --encoding if a released label holds bytes that no encoding could
        read; else an empty list.
        """
        if self.encoding is not None or not is_text_file(self.path):
            return []
        if not any("\ufffd" in str(label) for label in labels):
            return []
        hint = (
            "the mark \ufffd in a label stands for bytes that are no text in the encoding that the "
            "header line suggests, nor in cp1252; --encoding names another one"
        )
        return [hint]

    def _over_public_labels(self, histogram: Histogram, sensitivity: Sensitivity) -> Histogram:
        """Return the same counts over the public labels; the histogram itself where labels are
        private.

        Args:
            histogram: the counts of the labels in the data; those of labels that are not public are
                left out.
            sensitivity: the caps on what one user adds.

        Raises:
            InvalidParameter: for a file of labels that cannot be read, or names a label twice.
        """
        if self.label_domain == "private":
            return histogram
        public_lines = read_labels(self.domain) if isinstance(self.domain, Path) else self.domain
        is_json = format_ending(self.path) in {".jsonl", ".ndjson", ".json"}
        labels: object = histogram.labels
        domain: Literal["public"] | list[Any]
        if public_lines is None:
            domain = "public"  # the labels of the file itself
        elif is_json and self.user is None:
            # In JSON lines every label has a type of its own, which the line of a label states.
            domain = [_json_label(line) for line in public_lines]
        else:
            domain = public_lines
            labels = _as_lines(histogram.labels)
        return Histogram(
            labels,
            histogram.counts,
            sensitivity=sensitivity,
            domain=domain,
            capped=histogram.capped,
        )

    def state_fingerprint(self) -> str:
        """Return a fingerprint of what is read: the files with their times of writing, the columns,
        the rows and the domain of the labels.

        A stored answer is given again only for the same fingerprint. Nothing in it is computed from
        the data: that an answer comes again free of charge must not tell that the data are still
        the same.
        """
        # What is listed here, and its order, decides which stored answers are found again.
        columns: list[Any] = [
            self.label,
            self.count,
            self.user,
            self.item,
            self.separator,
            self.encoding,
            self.decimal,
        ]
        columns += [
            sorted(set(self.where or ())),  # a condition that is repeated is one
            self.segment_by,
            *self.segments,
            self.segments_per_user,
        ]
        paths = [path for path in (self.path, self.domain) if isinstance(path, Path)]
        files = [_file_states(path) for path in paths]
        return fingerprint([files, columns, self.label_domain])

    def _histogram_of_store(self, sensitivity: Sensitivity, top: int | None) -> Histogram:
        """Return the histogram of a store of events, whose caps are those that it was made with.

        Args:
            sensitivity: the caps that are asked for.
            top: only this many of the largest counts are read; None: all.

        Raises:
            InvalidParameter: if other caps are asked for.
        """
        self._check_store()
        with EventsStore(self.path) as store:
            if sensitivity != store.bounds.sensitivity:
                bounds = store.bounds
                raise InvalidParameter(
                    "--labels-per-user, --per-label-cap: the store was made with "
                    f"{bounds.labels_per_user} and {bounds.per_label_cap}"
                )
            return store.histogram(top=top)

    def _check_store(self) -> None:
        """Refuse options for columns and rows beside a store of events, and a store that does not
        exist.

        Raises:
            InvalidParameter: naming the options, or the store.
        """
        if self.user is not None or self.where or self.segment_by is not None:
            raise InvalidParameter(
                "a store of events has its columns and holds no others: no --user-col, --where, ..."
            )
        if not self.path.exists():
            raise InvalidParameter(
                f"there is no store {str(self.path)!r}; dptopk refresh makes one"
            )

    def _event_segments(self, plan: Plan, names: list[str]) -> Segments:
        """Return the histograms of the listed segments of a table of events, under the caps of the
        plan.

        Args:
            plan: the plan that runs on each segment, which says what is read.
            names: the values of the column ``segment_by`` that are listed.
        """
        reading = plan.reading
        bounds = self._bounding_arguments(reading.sensitivity, reading.top)
        if reading.finding is not None:
            bounds |= asdict(reading.finding) | {"count_capped": False}
        with progress_bar("bounding contributions") as report:
            return datasets.segment_histograms(
                self._events_table,
                **bounds,
                segment=str(self.segment_by),  # a name, as in ``read_segments``
                segments=names,
                segments_per_user=self.segments_per_user,
                progress=report,
            )

    def _bounding_arguments(self, sensitivity: Sensitivity, top: int | None) -> dict[str, Any]:
        """Return the keyword arguments with which events are bounded: columns, conditions, caps and
        engine.

        Args:
            sensitivity: the caps on what one user adds.
            top: only this many of the largest counts are read; None: all.
        """
        engine = None
        if self.memory_limit is not None or self.passes is not None:
            engine = datasets.DuckDB(memory_limit=self.memory_limit, passes=self.passes)
        return {
            "user": self.user,
            "item": self.item,
            "where": self.conditions or None,
            "labels_per_user": 1 if self.one_row_per_user else sensitivity.l0,
            "per_label_cap": sensitivity.linf,
            "engine": engine,
            "top": top,
        }


def _as_lines(labels: Iterable[Hashable]) -> list[str]:
    """Return labels as a file of public labels spells them, each by itself: the type of a whole
    column of labels may hang on one of them, and without rows it is not known.
    """
    return [label if isinstance(label, str) else label_text(label) for label in labels]


def _json_label(line: str) -> Any:
    """Return the integer or the text that a line spells in JSON, else the line itself."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if type(value) in {int, str}:
        return value
    return line


def _file_states(path: Path) -> list[list[Any]]:
    """Return the state of a file, or of each file in a folder or of a glob.

    What the files hold, and how large they are, is private and is left out.

    Returns:
        A list for each file: its path, its inode, and when its content and its inode were last
        changed, in nanoseconds.
    """
    pattern = f"{escape(str(path))}/**" if path.is_dir() else str(path)
    if path.is_file():
        files = [path]
    else:  # as for the reader of the files, a link to a folder is followed
        files = sorted(map(Path, glob(pattern, recursive=True)))  # noqa: PTH207
    states: list[list[Any]] = []
    for file in files:
        if file.is_file():
            status = file.stat()
            name = str(file.absolute())
            states.append([name, status.st_ino, status.st_mtime_ns, status.st_ctime_ns])
    return states
