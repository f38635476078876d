"""Release: what came out of a mechanism, and what it cost; never the raw counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram, Sensitivity

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Release"]


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
        note: what a reader of the answer should know, such as "stopped at the threshold"; never a data value.
        measured: the noisy integers that ``counts`` were fitted to, where they differ.
        source: token of the histogram the answer was drawn from; see made_on.
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
    source: object = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def made_on(self, histogram: Histogram) -> bool:
        """Whether this answer was drawn from that very Histogram object."""
        return self.source is not None and self.source is histogram.identity

    def intervals(self, *, confidence: float = 0.95) -> pd.DataFrame:
        """Confidence intervals for the true counts: columns rank, label, low, high; post-processing, costs nothing.

        Exact for each label that was chosen without a look at this noise: the interval covers its true count with
        probability at least ``confidence``, by the known law of the noise around the noisy count (before any fit), cut
        at 0. Rows kept because their noisy counts were the largest are covered less often.

        Raises:
            InvalidParameter: when the mechanism released no counts, or only counts that passed a noisy threshold
                (being released tells something about the noise, so the law of the noise alone gives no interval).
        """
        half_width = getattr(self.mechanism, "half_width", None)
        if self.counts is None or half_width is None:
            raise InvalidParameter(f"mechanism: {type(self.mechanism).__name__} gives no intervals for counts")
        width = half_width(self.sensitivity, confidence=confidence)
        centre = self.counts if self.measured is None else self.measured
        table = self.table[["rank", "label"]]
        return table.assign(low=np.maximum(centre - width, 0), high=np.maximum(centre + width, 0))

    @property
    def table(self) -> pd.DataFrame:
        """A data frame with the columns rank (from 1), label and, where counts were released, count."""
        import pandas as pd

        columns: dict[str, Any] = {"rank": np.arange(1, len(self) + 1), "label": pd.Series(self.labels, dtype=object)}
        if self.counts is not None:
            columns["count"] = self.counts
        return pd.DataFrame(columns)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary: rows, charge, mechanism with its parameters, sensitivity, seeded, note."""
        rows: list[dict[str, Any]] = [
            {"rank": rank, "label": _plain(label)} for rank, label in enumerate(self.labels, start=1)
        ]
        if self.counts is not None:
            for row, count in zip(rows, self.counts, strict=True):
                row["count"] = count.item()
        return {
            "rows": rows,
            "charge": str(self.charge),
            "phases": {name: str(charge) for name, charge in self.phases.items()},
            "mechanism": _plain(self.mechanism),
            "sensitivity": _plain(self.sensitivity),
            "seeded": self.seeded,
            "note": self.note,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Release:
        """The release that ``to_dict`` wrote; the mechanism comes back as its dictionary."""
        rows, sensitivity = plain["rows"], dict(plain["sensitivity"])
        sensitivity.pop("name")
        return cls(
            labels=tuple(row["label"] for row in rows),
            counts=np.array([row["count"] for row in rows]) if rows and "count" in rows[0] else None,
            charge=Charge.parse(plain["charge"]),
            mechanism=plain["mechanism"],
            sensitivity=Sensitivity(**sensitivity),
            seeded=plain["seeded"],
            phases={name: Charge.parse(charge) for name, charge in plain["phases"].items()},
            note=plain["note"],
        )

    def to_arrow(self) -> Any:
        """The table as a pyarrow.Table; its schema metadata carries the charge."""
        import pyarrow as pa

        rows = self.table
        if len({type(label) for label in self.labels}) > 1:  # a column has one type: mixed labels become text
            rows["label"] = rows["label"].map(str)
        table = pa.Table.from_pandas(rows, preserve_index=False)
        metadata = {**(table.schema.metadata or {}), b"dptopk.charge": str(self.charge).encode()}
        return table.replace_schema_metadata(metadata)

    def to_polars(self) -> Any:
        """The table as a polars.DataFrame."""
        import polars as pl

        return pl.from_arrow(self.to_arrow())


def _plain(value: Any) -> Any:
    """A value as JSON can hold it; a dataclass becomes a dictionary that starts with its name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": type(value).__name__} | {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
