"""Release: the answer of a mechanism and its cost; it never holds the true counts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal.choices import CONFIDENCE, Intervals
from dptopk._internal.formatting import (
    answer_rows,
    describe_caps,
    format_upper,
    html_lines,
    html_rows,
    markdown,
    markdown_table,
    numbered,
    text_of,
)
from dptopk._internal.rounding import sum_up
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import from_plain, label_text, to_plain
from dptopk.release.intervals import Measurement, interval_table, ranked_labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Row:
    """A row of an answer; it unpacks into its three values.

    Attributes:
        rank: from 1 on.
        label: as it was released.
        count: a whole number; None where labels only were released.
    """

    rank: int
    label: Hashable
    count: int | None

    def __iter__(self) -> Iterator[Any]:
        """Yield the rank, the label and the count."""
        return iter((self.rank, self.label, self.count))


@dataclass(frozen=True, eq=False)
class Release:
    """One answer: ranked labels, noisy counts where they were released, and the charge.

    Attributes:
        labels: the released labels, in the order of selection or of the released values.
        counts: their released counts (integers, or real numbers after least squares), or None.
        charge: what the answer has cost.
        mechanism: the mechanism that ran, with its parameters.
        sensitivity: the sensitivity the charge is stated for.
        seeded: whether the noise came from a generator that the caller gave: not for production.
        phases: the charge of each phase, by name, where there was more than one.
        note: what a reader of the answer should know, such as "stopped at the threshold"; never a
            data value.
        measured: the noisy integers that ``counts`` were fitted to, where they differ.
        measurement: how the counts were measured, for ``intervals``; None if none were released.
        capped: whether the counts are of data in which contributions above the caps were dropped.
        source: token of the histogram the answer was drawn from; see made_on.
        missing: a sentence that says why rows may be missing for another reason than noise; empty
            if there is no reason but the caps of ``capped``.
        at_delta: the total δ of the budget that the answer was planned for, at which ``epsilon`` is
            stated; None = the δ of the charge.
    """

    labels: tuple[Any, ...]
    counts: np.ndarray[Any, Any] | None
    charge: Charge
    mechanism: Any
    sensitivity: Sensitivity
    seeded: bool = False
    phases: Mapping[str, Charge] = field(default_factory=dict)
    note: str = ""
    measured: np.ndarray[Any, Any] | None = field(default=None, repr=False)
    measurement: Measurement | None = field(default=None, repr=False)
    capped: bool = False
    source: object = field(default=None, repr=False)
    at_delta: float | None = field(default=None, repr=False)
    missing: str = ""

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows from the first one on; counts are whole numbers, as in ``table``."""
        if self.counts is None:
            counts = [None] * len(self)
        else:
            counts = nearest_integers(self.counts).tolist()
        for rank, (label, count) in enumerate(zip(self.labels, counts, strict=True), start=1):
            yield Row(rank, label, count)

    @property
    def delta(self) -> float:
        """Return the δ at which ``epsilon`` is stated: that of the budget that the answer was
        planned for, or else the charge's own.
        """
        if self.at_delta is None:
            return self.charge.delta
        return self.at_delta

    @property
    def epsilon(self) -> float:
        """Return an upper bound on the ε of the charge at ``delta``; inf where the costs need a
        larger δ.

        If a private look chose the plan, it is the sum of the ε of the look and that of the rest:
        set-wise bounds need costs that are fixed in advance, not chosen by an outcome.
        """
        from dptopk.accounting.bounds import compose

        look = self.phases.get("look")
        # An answer that was not paid in steps is charged at once, whatever the look costs.
        if look is None or not self.charge.includes(look):
            return compose(self.charge, delta=self.delta, lower=False).epsilon
        after_look = replace(self.charge.minus(look), delta=self.charge.delta)
        look_bound = compose(look, delta=0.0, lower=False)
        answer_bound = compose(after_look, delta=self.delta, lower=False)
        return sum_up([look_bound.epsilon, answer_bound.epsilon])

    def made_on(self, histogram: Histogram) -> bool:
        """Return whether this answer was drawn from this same Histogram object; False for an answer
        that was read from a file.
        """
        return self.source is not None and self.source == histogram.identity

    @classmethod
    def of_draw(
        cls,
        histogram: Histogram,
        rng: np.random.Generator | None,
        *,
        labels: tuple[Any, ...],
        charge: Charge,
        mechanism: Any,
        counts: np.ndarray[Any, Any] | None = None,
        note: str = "",
        measured: np.ndarray[Any, Any] | None = None,
        measurement: Measurement | None = None,
    ) -> Release:
        """Return the release of what a mechanism drew from a histogram; its sensitivity, ``capped``
        and ``source`` are taken from the histogram.

        Args:
            histogram: the histogram that the answer was drawn from.
            rng: the caller's generator, if one was given.
            labels: the released labels, in their order.
            charge: what the answer costs.
            mechanism: the mechanism that ran.
            counts: the released counts, shape (rows,); None where only labels were released.
            note: what a reader should know.
            measured: the noisy integers, where ``counts`` were fitted to them.
            measurement: how the counts were measured.
        """
        caps = ""
        if histogram.capped and counts is not None:
            caps = capped_note(histogram.sensitivity)
        return cls(
            labels=labels,
            counts=counts,
            charge=charge,
            mechanism=mechanism,
            sensitivity=histogram.sensitivity,
            seeded=rng is not None,
            note="; ".join(filter(None, (note, caps))),
            measured=measured,
            measurement=measurement,
            capped=histogram.capped,
            source=histogram.identity,
        )

    def top(self, k: int, *, planned: bool = False) -> Release:
        """Return the first k rows of this answer; this is post-processing, and intervals take into
        account that the other rows were left out.

        Args:
            k: how many rows; if it was chosen by looking at the values, only intervals of kind
                "simultaneous" hold.
            planned: whether k was fixed before the values were drawn; then intervals may be
                narrower.

        Returns:
            Release: with at most k rows, and the charge of the whole answer.
        """
        if k >= len(self):
            return self
        counts = None if self.counts is None else self.counts[:k]
        measured = None if self.measured is None else self.measured[:k]
        if self.measurement is None or self.counts is None:
            measurement = None
        else:
            # Fitted counts do not say how far the measured values lie below those shown.
            unfitted = self.measured is None
            measurement = self.measurement.truncated(self.counts, k, planned=planned and unfitted)
        return replace(
            self, labels=self.labels[:k], counts=counts, measured=measured, measurement=measurement
        )

    def intervals(
        self, *, confidence: float = CONFIDENCE, kind: Intervals = "simultaneous"
    ) -> pd.DataFrame:
        """Return confidence intervals for the true counts, and the ranks that these can have; it
        is post-processing and costs nothing.

        Args:
            confidence: in (0, 1).
            kind: "simultaneous": with this probability *all* intervals cover, for any way of
                selecting; "fcr": of the rows that an answer shows, the share not covered is on
                average at most 1 - confidence (the false coverage rate), narrower; "row": each
                interval by itself covers with this probability, for labels that were not chosen by
                these counts (by a selection with its own noise, or by name).

        Returns:
            A data frame with the columns rank, label, low, high, rank_low, rank_high; all but the
            label are whole numbers. The intervals are centred at the noisy counts before any fit,
            and cut at 0. They hold for the counts that were measured. If the release is ``capped``,
            these are the counts after capping, and for the true counts only ``low`` holds (capping
            never raises a count; ranks do not hold). For every ``kind``, *all* ranks hold together
            with probability ``confidence``. ``attrs["ranks"]`` says whether they are ranks in the
            whole "domain", which is so wherever it can be proven for every row, or among the
            "rows" shown. For independent noise the intervals are exact up to integers and a
            relative error below 1e-6, which only widens them.

        Raises:
            InvalidParameter: when the mechanism released no counts; for kind="row" where the rows
                were kept because their counts were large, unless the noise is bounded.

        Source: docs/notes/intervals.md; Benjamini-Yekutieli 2005 for the false coverage rate.
        """
        if self.counts is None:
            raise InvalidParameter("intervals: this answer holds labels only")
        if self.measurement is None:
            raise InvalidParameter(
                "intervals: this answer does not say how its counts were measured"
            )
        return interval_table(self.labels, self.measured_values, self.measurement, confidence, kind)

    @property
    def measured_values(self) -> np.ndarray[Any, Any]:
        """Return the noisy counts before any fit, shape (rows,).

        Raises:
            InvalidParameter: when no counts were released.
        """
        values = self.counts if self.measured is None else self.measured
        if values is None:
            raise InvalidParameter("measured_values: this answer holds labels only")
        return values

    def display_table(self, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
        """Return the rows to display: ``table``, with the columns low and high of the simultaneous
        intervals if counts were released; ``attrs["confidence"]`` then is their confidence.
        """
        table = self.table
        if self.counts is None or self.measurement is None:
            return table
        intervals = self.intervals(confidence=confidence)
        table[["low", "high"]] = intervals[["low", "high"]]
        table.attrs |= intervals.attrs
        return table

    def plot(self, axes: Axes | None = None, *, confidence: float = CONFIDENCE) -> Axes:
        """Draw bars of the counts with simultaneous error bars; return the Axes.

        Args:
            axes: matplotlib Axes to draw on; None = a new figure.
            confidence: of the error bars, in (0, 1).

        Raises:
            InvalidParameter: when no counts were released, or matplotlib is missing.
        """
        from dptopk.release.plots import plot_counts

        if self.counts is None:
            raise InvalidParameter("plot: this answer holds labels only")
        return plot_counts(
            self.display_table(confidence=confidence),
            axes,
            confidence=confidence,
            capped=self.capped,
        )

    def to_markdown(self, *, confidence: float = CONFIDENCE) -> str:
        """Return the rows with their joint intervals as a Markdown table, followed by the
        footnotes.

        Args:
            confidence: of the intervals, in (0, 1).

        Raises:
            InvalidParameter: for a confidence outside (0, 1).
        """
        remarks = "\n".join(f"* {markdown(line)}" for line in self.remarks())
        headers, cells = answer_rows(self.display_table(confidence=confidence))
        return f"{markdown_table(headers, cells)}\n\n{remarks}\n"

    def _repr_html_(self) -> str:
        """Return the answer as HTML for notebooks: the rows with bars and intervals, and the
        footnotes.
        """
        return html_rows(self.display_table()) + html_lines(self.remarks())

    def __str__(self) -> str:
        """Return the rows with their error bars, the cost as (ε, δ), and the footnotes as text."""
        import pandas as pd

        cost = f"cost: ({format_upper(self.epsilon, 4)}, {format_upper(self.delta)})-DP"
        rows = self.display_table()
        # As objects: halves of surrogate pairs fit no column of texts.
        rows["label"] = pd.Series(list(map(text_of, rows["label"])), dtype=object)
        return "\n".join([rows.to_string(index=False), cost, *self.remarks()])

    def remarks(self) -> list[str]:
        """Return the footnotes of the table, a text each: the charge, the mechanism, the note, why
        rows may be missing (``omissions``), and whether a fixed seed was used.
        """
        lines = [f"charge: {self.charge}", f"mechanism: {_mechanism_text(self.mechanism)}"]
        if self.note:
            lines.append(self.note)
        lines += self.omissions()
        if self.seeded:
            return [*lines, "made with a fixed seed: not for production"]
        return lines

    def omissions(self) -> list[str]:
        """Return sentences that say why rows may be missing for another reason than noise; the
        list is empty if there is no such reason.
        """
        sentences = [self.missing] if self.missing else []
        if self.capped and self.sensitivity.l0 is not None:
            sentences.append(
                f"Labels of users who have more than {numbered(self.sensitivity.l0, 'label')} may "
                "be missing or rank lower: the rest of a user's labels was left out."
            )
        return sentences

    @property
    def table(self) -> pd.DataFrame:
        """Return a data frame with the columns rank (from 1), label and, where counts were
        released, count.

        Counts are rounded to whole numbers, as true counts are; ``to_dict`` has them as they were
        released.
        """
        import pandas as pd

        columns = ranked_labels(self.labels)
        if self.counts is not None:
            columns["count"] = nearest_integers(self.counts)
        return pd.DataFrame(columns)

    def to_pandas(self) -> pd.DataFrame:
        """Return ``table``, under the name that other libraries give such a method."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """Return all but ``source`` as a dictionary that JSON can hold; ``from_dict`` reads it."""
        rows: list[dict[str, Any]] = []
        ranked = enumerate(self.labels, start=1)
        rows += [{"rank": rank, "label": to_plain(label)} for rank, label in ranked]
        for name, column in (("count", self.counts), ("measured", self.measured)):
            if column is not None:
                for row, count in zip(rows, column.tolist(), strict=True):
                    row[name] = count
        measurement = None if self.measurement is None else self.measurement.to_dict()
        plain = {
            "rows": rows,
            "charge": str(self.charge),
            "phases": {name: str(charge) for name, charge in self.phases.items()},
            "mechanism": to_json(self.mechanism),
            "sensitivity": to_json(self.sensitivity),
            "seeded": self.seeded,
            "note": self.note,
            "capped": self.capped,
            "measurement": measurement,
        }
        if self.at_delta is not None:
            plain["at_delta"] = self.at_delta
        if self.missing:
            plain["missing"] = self.missing
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Release:
        """Return the release that ``to_dict`` wrote; its mechanism is left as a dictionary.

        Raises:
            InvalidParameter: for a dictionary that ``to_dict`` cannot have written.
        """
        try:
            rows = plain["rows"]
            sensitivity = dict(plain["sensitivity"])
            sensitivity.pop("name")
            measurement = None
            if plain.get("measurement") is not None:
                measurement = Measurement.from_dict(plain["measurement"])
            return cls(
                labels=tuple(from_plain(row["label"]) for row in rows),
                counts=_values_of(rows, "count"),
                charge=Charge.parse(plain["charge"]),
                mechanism=plain["mechanism"],
                sensitivity=Sensitivity(**sensitivity),
                seeded=plain["seeded"],
                phases={name: Charge.parse(charge) for name, charge in plain["phases"].items()},
                note=plain["note"],
                measured=_values_of(rows, "measured"),
                measurement=measurement,
                capped=plain.get("capped", False),
                at_delta=plain.get("at_delta"),
                missing=plain.get("missing", ""),
            )
        except InvalidParameter:  # a ValueError, which says what is wrong
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidParameter("plain: not a release that to_dict wrote") from error

    def to_arrow(self) -> Any:
        """Return the table as a pyarrow.Table; its schema metadata carries the charge.

        Labels that all have one type which Arrow knows keep it; other labels become text.

        Raises:
            InvalidParameter: where pyarrow is missing.
        """
        pa = _import_optional("pyarrow")
        column = self._arrow_labels(pa)
        other_columns = self.table.drop(columns="label")
        table = pa.Table.from_pandas(other_columns, preserve_index=False).add_column(
            1, "label", column
        )
        metadata = {**(table.schema.metadata or {}), b"dptopk.charge": str(self.charge).encode()}
        return table.replace_schema_metadata(metadata)

    def _arrow_labels(self, pa: ModuleType) -> object:
        """Return the labels as a pyarrow.Array, as texts where they are of several types or of one
        that Arrow does not hold; ``pa`` is the module pyarrow.
        """
        if len({type(label) for label in self.labels}) == 1:
            try:
                return pa.array(self.labels)
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                pass  # of a type or size that Arrow does not hold
        return pa.array([label_text(label) for label in self.labels], pa.string())

    def to_polars(self) -> Any:
        """Return the table as a polars.DataFrame, with labels as ``to_arrow`` has them.

        Raises:
            InvalidParameter: where polars or pyarrow is missing.
        """
        return _import_optional("polars").from_arrow(self.to_arrow())


def nearest_integers(counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return counts as int64, rounded to the nearest integer, halves to even; if any is beyond
    2^62, all are returned as they are.
    """
    if counts.dtype.kind != "f" or not (np.abs(counts) < 2.0**62).all():
        return counts
    return np.rint(counts).astype(np.int64)


def _values_of(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray[Any, Any] | None:
    """Return the values of a column in all rows, shape (rows,); None if there are no rows, or the
    first one has no such column.

    Args:
        rows: the rows as ``to_dict`` writes them; all have the same columns.
        name: the name of the column.
    """
    if not rows or name not in rows[0]:
        return None
    return np.array([row[name] for row in rows])


def _import_optional(module: str) -> Any:
    """Import a module of the extra dptopk[data], and return it.

    Raises:
        InvalidParameter: if it is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise InvalidParameter(f"this needs {module}: pip install 'dptopk[data]'") from None


def capped_note(sensitivity: Sensitivity) -> str:
    """Return a note that says what the caps on a user's contribution, those of the sensitivity,
    mean for counts of events.
    """
    caps = describe_caps(sensitivity.linf, sensitivity.l0, sensitivity.l1)
    return (
        f"counts are of capped data: each user was limited to {caps}. True totals "
        "may be higher. Each interval covers the count after capping; only its lower end holds "
        "for the true count"
    )


def _mechanism_text(mechanism: object) -> str:
    """Return a mechanism, or the dictionary that ``to_dict`` made of it, as one line of text."""
    if not isinstance(mechanism, Mapping):
        return str(mechanism)
    values = ", ".join(f"{name}={value}" for name, value in mechanism.items() if name != "name")
    return f"{mechanism.get('name', 'mechanism')}({values})"


def fields_to_json(value: Any) -> dict[str, Any]:
    """Return a dataclass as a dictionary of its class name and its fields, without fields that
    are marked optional and are None.
    """
    plain = {"name": type(value).__name__}
    for value_field in fields(value):
        content = to_json(getattr(value, value_field.name))
        if content is None and value_field.metadata.get("optional"):
            continue
        plain[value_field.name] = content
    return plain


def to_json(value: object) -> Any:  # noqa: PLR0911
    """Return a value as JSON can hold it: by its own ``to_dict`` if it has one, a dataclass by its
    name and fields, the entries of a list or tuple one by one, texts, numbers and None as they are,
    and other objects as their text.
    """
    if isinstance(value, Mapping):
        return dict(value)
    to_dict = getattr(value, "to_dict", None)
    if to_dict is not None:
        return to_dict()
    if is_dataclass(value):
        return fields_to_json(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
