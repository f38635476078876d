"""Release: what came out of a mechanism, and what it cost; never the raw counts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal.choices import CONFIDENCE, Intervals
from dptopk._internal.formatting import (
    answer_rows,
    describe_l0,
    format_upper,
    html_lines,
    html_rows,
    markdown,
    markdown_table,
    numbered,
)
from dptopk._internal.rounding import sum_up
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import from_plain, label_text, to_plain
from dptopk.release.intervals import Measurement, interval_table

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
        """Rank, label and count."""
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
        seeded: True when the noise came from a generator that the caller gave: not for production.
        phases: the charge of each phase, by name, where there was more than one.
        note: what a reader of the answer should know, such as "stopped at the threshold"; never a
            data value.
        measured: the noisy integers that ``counts`` were fitted to, where they differ.
        measurement: how the counts were measured, for ``intervals``; None where no counts were.
        capped: the counts are of data from which contributions above the caps were cut off.
        source: token of the histogram the answer was drawn from; see made_on.
        missing: why rows may be missing for another reason than noise, in a sentence; empty where
            there is none but the caps of ``capped``.
        at_delta: the total δ of the budget that the answer was planned for, at which ``epsilon`` is
            told; None = that of the charge alone.
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
        """The rows from the first on; counts are whole numbers, as in ``table``."""
        if self.counts is None:
            counts = [None] * len(self)
        else:
            counts = whole(self.counts).tolist()
        for rank, (label, count) in enumerate(zip(self.labels, counts, strict=True), start=1):
            yield Row(rank, label, count)

    @property
    def delta(self) -> float:
        """The δ of what was charged: that of the budget it was planned for, else the charge's
        own.
        """
        if self.at_delta is None:
            return self.charge.delta
        return self.at_delta

    @property
    def epsilon(self) -> float:
        """The ε of what was charged at ``delta``, an upper bound; inf where the costs need a larger
        δ.

        After a look whose outcome chose the plan, it is the ε of the look and that of the plan,
        added up: costs that an outcome chose were not fixed in advance, as set-wise bounds need.
        """
        from dptopk.accounting.bounds import compose

        look = self.phases.get("look")
        # An answer that was not paid in steps is charged as a whole, whatever the look costs.
        if look is None or not self.charge.includes(look):
            return compose(self.charge, delta=self.delta, lower=False).epsilon
        rest = replace(self.charge.minus(look), delta=self.charge.delta)
        looked = compose(look, delta=0.0, lower=False)
        then = compose(rest, delta=self.delta, lower=False)
        return sum_up([looked.epsilon, then.epsilon])

    def made_on(self, histogram: Histogram) -> bool:
        """Whether this answer was drawn from this same Histogram object."""
        return self.source is not None and self.source == histogram.identity

    @classmethod
    def drawn(
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
        """Make the release of what a mechanism drew from a histogram, with the facts known about it
        in advance.

        Args:
            histogram: that was asked.
            rng: the caller's generator, if one was given.
            labels: as for a Release, and so are the others.
            charge: what the answer costs.
            mechanism: that ran.
            counts: None where labels only were released.
            note: what a reader should know.
            measured: the noisy integers, where ``counts`` were fitted to them.
            measurement: how the counts were measured.
        """
        if histogram.capped and counts is not None:
            cut = capped_note(histogram.sensitivity)
        else:
            cut = ""
        return cls(
            labels=labels,
            counts=counts,
            charge=charge,
            mechanism=mechanism,
            sensitivity=histogram.sensitivity,
            seeded=rng is not None,
            note="; ".join(filter(None, (note, cut))),
            measured=measured,
            measurement=measurement,
            capped=histogram.capped,
            source=histogram.identity,
        )

    def top(self, k: int, *, planned: bool = False) -> Release:
        """The first k rows of this answer; post-processing, and intervals know that the rest was
        left out.

        Args:
            k: how many; where the values chose it, only intervals of kind "simultaneous" hold.
            planned: k was fixed before the values were drawn; bounded noise then has narrower
                intervals.
        """
        if k >= len(self):
            return self
        counts = None if self.counts is None else self.counts[:k]
        measured = None if self.measured is None else self.measured[:k]
        law = self.measurement
        if law is None or self.counts is None:
            measurement = None
        else:
            unfitted = self.measured is None
            measurement = law.kept(self.counts, k, planned=planned and unfitted)
        return replace(
            self, labels=self.labels[:k], counts=counts, measured=measured, measurement=measurement
        )

    def intervals(
        self, *, confidence: float = CONFIDENCE, kind: Intervals = "simultaneous"
    ) -> pd.DataFrame:
        """Confidence intervals for the true counts, and the ranks these can have; post-processing,
        costs nothing.

        Args:
            confidence: in (0, 1).
            kind: "simultaneous": with this probability *all* intervals cover, for any way of
                selecting; "fcr": of the rows that an answer shows, the share not covered is on
                average at most 1 - confidence (the false coverage rate), narrower; "row": each
                interval by itself covers with this probability, for labels that were not chosen by
                these counts (by a selection with its own noise, or by name).

        Returns:
            A data frame with the columns rank, label, low, high, rank_low, rank_high, all whole
            numbers. The intervals are centred at the noisy counts before any fit, and cut at 0.
            They are for the counts that were measured: where the release is ``capped``, those after
            capping, and of the true counts only ``low`` holds (capping never raises a count; ranks
            do not hold). Whatever ``kind`` says, *all* ranks hold together with probability
            ``confidence``; ``attrs["ranks"]`` tells whether among the labels of the whole "domain",
            which is what is given wherever it can be proven for every row, or among the "rows"
            shown. Exact for independent noise up to integers and a relative error below 1e-6, which
            only widens.

        Raises:
            InvalidParameter: when the mechanism released no counts; for kind="row" where the rows
                were kept because their counts were large, unless the noise is bounded.

        Source: docs/notes/intervals.md; Benjamini-Yekutieli 2005 for the false coverage rate.
        """
        if self.counts is None or self.measurement is None:
            if self.counts is None:
                why = "holds labels only"
            else:
                why = "does not say how its counts were measured"
            raise InvalidParameter(f"intervals: this answer {why}")
        return interval_table(
            self.table[["rank", "label"]], self.measured_values, self.measurement, confidence, kind
        )

    @property
    def measured_values(self) -> np.ndarray[Any, Any]:
        """The noisy counts before any fit, shape (rows,).

        Raises:
            InvalidParameter: when no counts were released.
        """
        values = self.counts if self.measured is None else self.measured
        if values is None:
            raise InvalidParameter("measured_values: this answer holds labels only")
        return values

    def shown(self, *, confidence: float = CONFIDENCE) -> pd.DataFrame:
        """Return the rows to display: ``table``, with the simultaneous intervals' low and high
        where there are any.

        Where there are, ``attrs["confidence"]`` says with which probability all of them hold.
        """
        table = self.table
        if self.counts is None or self.measurement is None:
            return table
        intervals = self.intervals(confidence=confidence)
        table[["low", "high"]] = intervals[["low", "high"]]
        table.attrs |= intervals.attrs
        return table

    def plot(self, axes: Axes | None = None, *, confidence: float = CONFIDENCE) -> Axes:
        """Bars of the counts with simultaneous error bars; needs the extra ``plots``.

        Args:
            axes: matplotlib Axes to draw on; None = a new figure.
            confidence: of the error bars, in (0, 1).

        Returns:
            The Axes.

        Raises:
            InvalidParameter: when no counts were released, or matplotlib is missing.
        """
        from dptopk.release.plots import plot_counts

        if self.counts is None:
            raise InvalidParameter("plot: this answer holds labels only")
        return plot_counts(
            self.shown(confidence=confidence), axes, confidence=confidence, capped=self.capped
        )

    def to_markdown(self, *, confidence: float = CONFIDENCE) -> str:
        """Return the rows with their joint intervals as a Markdown table, followed by the
        footnotes.

        Args:
            confidence: of the intervals, in (0, 1).
        """
        remarks = "\n".join(f"* {markdown(line)}" for line in self.remarks())
        headers, cells = answer_rows(self.shown(confidence=confidence))
        return f"{markdown_table(headers, cells)}\n\n{remarks}\n"

    def _repr_html_(self) -> str:
        """For notebooks: the rows with bars and intervals, and what they cost."""
        return html_rows(self.shown()) + html_lines(self.remarks())

    def __str__(self) -> str:
        """The rows with their error bars, what they cost as (ε, δ), and the remarks."""
        cost = f"cost: ({format_upper(self.epsilon, 4)}, {format_upper(self.delta)})-DP"
        table = self.shown().to_string(index=False)
        return "\n".join([table, cost, *self.remarks()])

    def remarks(self) -> list[str]:
        """Return the footnotes of the table: the charge, the mechanism, the note, and whether a
        fixed seed was used.
        """
        lines = [f"charge: {self.charge}", f"mechanism: {_name(self.mechanism)}"]
        lines += [self.note] if self.note else []
        lines += self.omissions()
        if self.seeded:
            return [*lines, "made with a fixed seed: not for production"]
        return lines

    def omissions(self) -> list[str]:
        """Why rows may be missing for another reason than noise, in sentences; empty where there is
        none.
        """
        found = [self.missing] if self.missing else []
        if self.capped and self.sensitivity.l0 is not None:
            found.append(
                f"Labels of users who have more than {numbered(self.sensitivity.l0, 'label')} may "
                "be missing or rank lower: the rest of a user's labels was left out."
            )
        return found

    @property
    def table(self) -> pd.DataFrame:
        """A data frame with the columns rank (from 1), label and, where counts were released,
        count: whole numbers, as true counts are; ``to_dict`` has them as they were released.
        """
        import pandas as pd

        ranks = np.arange(1, len(self) + 1)
        labels = pd.Series(self.labels, dtype=object)
        rows = pd.DataFrame({"rank": ranks, "label": labels})
        if self.counts is None:
            return rows
        return rows.assign(count=whole(self.counts))

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas.DataFrame."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary: rows, charge, mechanism with its parameters, sensitivity, seeded,
        note.
        """
        rows: list[dict[str, Any]] = []
        ranked = enumerate(self.labels, start=1)
        rows += [{"rank": rank, "label": to_plain(label)} for rank, label in ranked]
        for name, column in (("count", self.counts), ("measured", self.measured)):
            if column is not None:
                for row, count in zip(rows, column.tolist(), strict=True):
                    row[name] = count
        if self.measurement is None:
            measurement = None
        else:
            measurement = self.measurement.to_dict()
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
        """The release that ``to_dict`` wrote; the mechanism comes back as its dictionary.

        Raises:
            InvalidParameter: for anything else.
        """
        try:
            rows = plain["rows"]
            sensitivity = dict(plain["sensitivity"])
            sensitivity.pop("name")
            return cls(
                labels=tuple(from_plain(row["label"]) for row in rows),
                counts=np.array([row["count"] for row in rows])
                if rows and "count" in rows[0]
                else None,
                charge=Charge.parse(plain["charge"]),
                mechanism=plain["mechanism"],
                sensitivity=Sensitivity(**sensitivity),
                seeded=plain["seeded"],
                phases={name: Charge.parse(charge) for name, charge in plain["phases"].items()},
                note=plain["note"],
                measured=np.array([row["measured"] for row in rows])
                if rows and "measured" in rows[0]
                else None,
                measurement=None
                if plain.get("measurement") is None
                else Measurement.from_dict(plain["measurement"]),
                capped=plain.get("capped", False),
                at_delta=plain.get("at_delta"),
                missing=plain.get("missing", ""),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidParameter("plain: not a release that to_dict wrote") from error

    def to_arrow(self) -> Any:
        """The table as a pyarrow.Table; its schema metadata carries the charge.

        Labels of one type that Arrow knows keep it; others become text.
        """
        pa = _needed("pyarrow")
        rows = self.table
        try:
            if len({type(label) for label in self.labels}) == 1:
                column = pa.array(self.labels)
            else:
                column = None
        except (
            pa.ArrowException,
            ValueError,
            TypeError,
            OverflowError,
        ):  # of a type or size that Arrow does not hold
            column = None
        if column is None:  # a column has one type: mixed labels become text
            column = pa.array([label_text(label) for label in self.labels], pa.string())
        others = rows.drop(columns="label")
        table = pa.Table.from_pandas(others, preserve_index=False).add_column(1, "label", column)
        metadata = {**(table.schema.metadata or {}), b"dptopk.charge": str(self.charge).encode()}
        return table.replace_schema_metadata(metadata)

    def to_polars(self) -> Any:
        """The table as a polars.DataFrame."""
        return _needed("polars").from_arrow(self.to_arrow())


def whole(counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Counts as whole numbers: the nearest ones, halves to even; those beyond 2^62 stay as they
    are.
    """
    if counts.dtype.kind != "f" or not (np.abs(counts) < 2.0**62).all():
        return counts
    return np.rint(counts).astype(np.int64)


def _needed(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise InvalidParameter(f"this needs {module}: pip install 'dptopk[data]'") from None


def capped_note(sensitivity: Sensitivity) -> str:
    """Explain what the caps of a histogram made from events mean for its counts."""
    labels = "" if sensitivity.l0 is None else f"{describe_l0(sensitivity.l0)}, "
    together = "" if sensitivity.l1 is None else f", and {sensitivity.l1} in all"
    return (
        f"counts are of capped data: each user was limited to {labels}at most "
        f"{sensitivity.linf} at each{together}. True totals "
        "may be higher. Each interval covers the count after capping; only its lower end holds "
        "for the true count"
    )


def _name(mechanism: object) -> str:
    """A mechanism, or the dictionary that it became, in one line."""
    if not isinstance(mechanism, Mapping):
        return str(mechanism)
    values = ", ".join(f"{name}={value}" for name, value in mechanism.items() if name != "name")
    return f"{mechanism.get('name', 'mechanism')}({values})"


def fields_to_json(value: Any) -> dict[str, Any]:
    """A dataclass as a dictionary of its name and its fields, without optional ones that are
    None.
    """
    plain = {one.name: to_json(getattr(value, one.name)) for one in fields(value)}
    optional = {one.name for one in fields(value) if one.metadata.get("optional")}
    unset = {name for name in optional if plain[name] is None}
    stated_fields = {name: part for name, part in plain.items() if name not in unset}
    return {"name": type(value).__name__} | stated_fields


def to_json(value: object) -> Any:  # noqa: PLR0911
    """A value as JSON can hold it: by its own ``to_dict``, else a dataclass by its name and its
    fields.
    """
    if isinstance(value, Mapping):
        return dict(value)
    own = getattr(value, "to_dict", None)
    if own is not None:
        return own()
    if is_dataclass(value):
        return fields_to_json(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
