"""The words of Macbeth with their counts: real data that everyone can check."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from dptopk._internal.choices import Domain
from dptopk.histogram.histogram import Histogram, Sensitivity

if TYPE_CHECKING:
    import pandas as pd


def macbeth_counts() -> pd.DataFrame:
    """Return the whole word table: columns word and count, 3546 rows, by falling count.

    The text is the First Folio's, in its own spelling, stage directions included. A word is a match
    of ``[a-z]+('[a-z]+)*`` in the lower-cased text (``scripts/count_words.py``).

    >>> macbeth_counts().head(3).to_numpy().tolist()
    [['the', 649], ['and', 545], ['to', 383]]
    """
    import pandas as pd

    with files("dptopk.datasets").joinpath("data", "macbeth.csv").open(encoding="utf-8") as table:
        # "null" and "nan" are words, not missing values.
        return pd.read_csv(table, dtype={"word": str}, keep_default_na=False)


def macbeth(
    *,
    sensitivity: Sensitivity = Sensitivity(),  # noqa: B008
    domain: Domain = "private",
) -> Histogram:
    """Return the word table as a Histogram; the privacy unit is one word occurrence.

    Args:
        sensitivity: the caps on one unit. One occurrence moves one count by one, so that linf = 1
            and l0 = 1 hold for this unit. The default leaves l0 open, as if one unit could touch
            any number of words, as Figure 6 of Cesar and Rogers assumes.
        domain: "private" (the words come from the play) or "public" (the vocabulary is known).
    """
    return Histogram.from_pandas(
        macbeth_counts(), label="word", count="count", sensitivity=sensitivity, domain=domain
    )
