"""Made-up events of any size with a known truth: members of different activity reading articles of
Zipf popularity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pyarrow as pa

SECTIONS = ("arts", "business", "health", "news", "opinion", "science", "sport", "travel")
REGIONS = ("east", "north", "south", "west")


@dataclass(frozen=True, eq=False)
class Truth:
    """The law the events were drawn from: each event is, independently, member u reading article i
    with a_u p_i.

    Attributes:
        events: how many.
        articles: the labels by falling popularity, shape (items,).
        popularity: their probabilities p_i, falling, shape (items,).
        activity: the members' probabilities a_u, shape (users,); member u is the integer u.
    """

    events: int
    articles: np.ndarray[Any, Any]
    popularity: np.ndarray[Any, Any]
    activity: np.ndarray[Any, Any]

    def expected_users(self, k: int) -> np.ndarray[Any, Any]:
        """Expected number of different members at each of the k most popular articles, shape (k,);
        no bound applied.

        Exact up to rounding: the sum over members of 1 - (1 - a_u p_i)^events.
        """
        k = min(validate.count(k=k), len(self.articles))
        absent = [
            np.exp(self.events * np.log1p(-self.activity * p)).sum() for p in self.popularity[:k]
        ]
        return len(self.activity) - np.array(absent)


def make_events(
    path: str | Path,
    *,
    events: int,
    users: int,
    items: int,
    seed: int = 0,
    chunk: int = 1_000_000,
    exponent: float = 1.1,
    spread: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> Truth:
    """Write made-up events to one Parquet file and return the law they were drawn from.

    Columns: member (integer), article (text, named so that label order says nothing about
    popularity), section (text, one of eight, a function of the article) and region (text, one of
    four, a function of the member). Rows are independent of each other, hence in no order.

    Args:
        path: the file to write, in a directory that exists; replaced when complete, left as it was
            after Ctrl-C.
        events: rows, at least 0.
        users: members, at least 1.
        items: articles, at least 1.
        seed: the same seed gives the same events, for any chunk.
        chunk: rows made and written at a time; memory grows with chunk + users + items.
        exponent: of Zipf's law, above 0: popularity of the i-th article ∝ i^-exponent.
        spread: standard deviation of the log of a member's activity, at least 0.
        progress: called with (rows written, events) after each chunk.

    Raises:
        InvalidParameter: on arguments out of range, or a directory that does not exist.
        ImportError: when pyarrow is not installed (extra ``data``).
    """
    from dptopk.datasets.backends.base import imported

    imported("pyarrow", extra="data")
    parquet = imported("pyarrow.parquet", extra="data")
    events = validate.count(events=events, at_least=0)
    path = Path(path)
    chunk = validate.count(chunk=chunk)
    if not path.parent.is_dir():
        raise InvalidParameter(f"path: there is no directory {str(path.parent)!r}")
    truth, streams = _law(events, users, items, seed, exponent, spread)
    named = _dictionaries(truth)
    schema = _schema(named)
    with (
        _whole_or_nothing(path) as unfinished,
        parquet.ParquetWriter(unfinished, schema, compression="zstd") as writer,
    ):
        done = 0
        for columns in _chunks(truth, streams, chunk):
            writer.write_table(_coded(columns, named, schema), row_group_size=chunk)
            done += len(columns["member"])
            if progress is not None:
                progress(done, events)
    return truth


@contextmanager
def _whole_or_nothing(path: Path) -> Iterator[Path]:
    """Write to a temporary file that replaces the path when complete, and is removed after any
    failure.
    """
    unfinished = path.with_name(path.name + ".partial")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:  # also when the user has had enough
        unfinished.unlink(missing_ok=True)


def _law(
    events: int, users: int, items: int, seed: int, exponent: float, spread: float
) -> tuple[Truth, tuple[np.random.Generator, np.random.Generator]]:
    """The probabilities, and the two streams that members and articles are drawn from."""
    users = validate.count(users=users)
    items = validate.count(items=items)
    validate.positive(exponent=exponent)
    validate.nonnegative(spread=spread)
    validate.count(seed=seed, at_least=0)
    naming, activity, members, articles = (
        np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)
    )
    popularity = np.arange(1, items + 1, dtype=np.float64) ** -exponent
    weights = np.exp(spread * activity.standard_normal(users))
    names = _article_names(naming.permutation(items))
    return Truth(events, names, popularity / popularity.sum(), weights / weights.sum()), (
        members,
        articles,
    )


def _article_names(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Names of articles of one length, with these numbers."""
    digits = len(str(numbers.size - 1))
    return np.array([f"article-{number:0{digits}d}" for number in numbers], dtype=object)


def _schema(named: Mapping[str, Any]) -> pa.Schema:
    """A member is an integer, everything else one of a list of texts."""
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([("member", pa.int64()), *((name, text) for name in named)])


def _coded(
    columns: Mapping[str, np.ndarray[Any, Any]], named: Mapping[str, Any], schema: pa.Schema
) -> pa.Table:
    """A chunk of events as a table, in which texts are their places in the lists."""
    import pyarrow as pa

    texts = [
        pa.DictionaryArray.from_arrays(pa.array(columns[name].astype(np.int32)), values)
        for name, values in named.items()
    ]
    return pa.table([pa.array(columns["member"]), *texts], schema=schema)


def _dictionaries(truth: Truth) -> dict[str, Any]:
    return {"article": truth.articles, "section": list(SECTIONS), "region": list(REGIONS)}


def _chunks(
    truth: Truth, streams: tuple[np.random.Generator, np.random.Generator], chunk: int
) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """The events, a chunk at a time: members, and the places of their article, section and region
    in the lists.
    """
    by_member = np.cumsum(truth.activity)
    by_article = np.cumsum(truth.popularity)
    for start in range(0, truth.events, chunk):
        rows = min(chunk, truth.events - start)
        # Inverse transform: one uniform a draw, so that the stream does not depend on where chunks
        # begin.
        member = np.searchsorted(by_member[:-1], streams[0].random(rows), side="right")
        article = np.searchsorted(by_article[:-1], streams[1].random(rows), side="right")
        yield {
            "member": member,
            "article": article,
            "section": article % len(SECTIONS),
            "region": member % len(REGIONS),
        }
