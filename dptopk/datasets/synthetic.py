"""Made-up events of any size, drawn from a known law: members read articles.

The members differ in activity, and the popularity of the articles follows Zipf's law.
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
    """The law the events were drawn from.

    Each event is, independently of the others, member u reading article i with probability a_u p_i.

    Attributes:
        events: the number of events.
        articles: the labels by falling popularity, shape (items,).
        popularity: their probabilities p_i, falling, shape (items,).
        activity: the members' probabilities a_u, shape (users,); member u is the integer u.
    """

    events: int
    articles: np.ndarray[Any, Any]
    popularity: np.ndarray[Any, Any]
    activity: np.ndarray[Any, Any]

    def expected_users(self, k: int) -> np.ndarray[Any, Any]:
        """Return the expected number of different members at each of the k most popular articles,
        without any cap, shape (k,), or (items,) where there are fewer than k articles.

        It is exact up to rounding: the sum over members of 1 - (1 - a_u p_i)^events.

        Raises:
            InvalidParameter: when k is no integer of at least 1.
        """
        k = min(validate.count(k=k), len(self.articles))
        expected_absent = []
        for popularity in self.popularity[:k]:
            # (1 - a_u p_i)^events of each member u.
            never_reads = np.exp(self.events * np.log1p(-self.activity * popularity))
            expected_absent.append(never_reads.sum())
        return len(self.activity) - np.array(expected_absent)


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
        events: the number of rows, at least 0.
        users: the number of members, at least 1.
        items: the number of articles, at least 1.
        seed: an integer of at least 0; the same seed gives the same events, for any chunk.
        chunk: how many rows are made and written at a time, at least 1; memory grows with chunk +
            users + items.
        exponent: the exponent of Zipf's law, above 0: the popularity of the i-th article is
            proportional to i^-exponent.
        spread: the standard deviation of the log of a member's activity, at least 0.
        progress: a function that is called with (rows written, events) after each chunk.

    Raises:
        InvalidParameter: on arguments out of range, or a directory that does not exist.
        ImportError: when pyarrow is not installed (extra ``data``).
    """
    from dptopk.datasets.backends.base import import_of_extra

    import_of_extra("pyarrow", extra="data")
    parquet = import_of_extra("pyarrow.parquet", extra="data")
    events = validate.count(events=events, at_least=0)
    path = Path(path)
    chunk = validate.count(chunk=chunk)
    if not path.parent.is_dir():
        raise InvalidParameter(f"path: there is no directory {str(path.parent)!r}")
    generators = _Generators.of(seed)
    law = _law(generators, events, users, items, exponent, spread)
    texts = _texts_of_columns(law)
    schema = _schema(texts)
    with (
        _replacement_file(path) as unfinished,
        parquet.ParquetWriter(unfinished, schema, compression="zstd") as writer,
    ):
        rows_written = 0
        for columns in _event_chunks(law, generators, chunk):
            writer.write_table(_arrow_chunk(columns, texts, schema), row_group_size=chunk)
            rows_written += len(columns["member"])
            if progress is not None:
                progress(rows_written, events)
    return law


@contextmanager
def _replacement_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file for a ``with`` block; it replaces the path at the end of the block,
    and is removed after any failure.
    """
    unfinished = path.with_name(path.name + ".partial")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:  # also after Ctrl-C
        unfinished.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Generators:
    """The generators of made-up events, all from one seed; each draws one thing alone.

    Attributes:
        naming: draws the numbers in the names of articles.
        activity: draws how active members are.
        members: draws the member of each event.
        articles: draws the article of each event.
    """

    naming: np.random.Generator
    activity: np.random.Generator
    members: np.random.Generator
    articles: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> _Generators:
        """Return the generators of a seed.

        Raises:
            InvalidParameter: when it is no integer of at least 0.
        """
        validate.count(seed=seed, at_least=0)  # refuses other values
        seeds = np.random.SeedSequence(seed).spawn(4)
        return cls(*(np.random.default_rng(one_seed) for one_seed in seeds))


def _law(
    generators: _Generators, events: int, users: int, items: int, exponent: float, spread: float
) -> Truth:
    """Return the law of the events.

    The further arguments are those of ``make_events``; ``events`` was checked before.

    Raises:
        InvalidParameter: when one of the others is out of range.
    """
    users = validate.count(users=users)
    items = validate.count(items=items)
    # These calls refuse values that are out of range.
    validate.positive(exponent=exponent)
    validate.nonnegative(spread=spread)
    popularity = np.arange(1, items + 1, dtype=np.float64) ** -exponent
    weights = np.exp(spread * generators.activity.standard_normal(users))
    names = _article_names(generators.naming.permutation(items))
    return Truth(events, names, popularity / popularity.sum(), weights / weights.sum())


def _article_names(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return names of articles with these numbers, all of the same length."""
    digits = len(str(numbers.size - 1))
    return np.array([f"article-{number:0{digits}d}" for number in numbers], dtype=object)


def _schema(texts: Mapping[str, Any]) -> pa.Schema:
    """Return the schema of the file: members are integers, and other columns hold one of a list of
    texts.
    """
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([("member", pa.int64()), *((name, text) for name in texts)])


def _arrow_chunk(
    columns: Mapping[str, np.ndarray[Any, Any]], texts: Mapping[str, Any], schema: pa.Schema
) -> pa.Table:
    """Return a chunk of events as an Arrow table, whose texts are stored as their indices in the
    lists.

    Args:
        columns: the columns of the chunk, as ``_event_chunks`` yields them.
        texts: column -> its list of texts.
        schema: the schema of the file.
    """
    import pyarrow as pa

    arrays = [pa.array(columns["member"])]
    for name, values in texts.items():
        indices = pa.array(columns[name].astype(np.int32))
        arrays.append(pa.DictionaryArray.from_arrays(indices, values))
    return pa.table(arrays, schema=schema)


def _texts_of_columns(law: Truth) -> dict[str, Any]:
    """Return for each column of texts the list of its texts."""
    return {"article": law.articles, "section": list(SECTIONS), "region": list(REGIONS)}


def _event_chunks(
    law: Truth, generators: _Generators, chunk: int
) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yield the events as columns of indices into the lists of texts, a chunk at a time.

    Args:
        law: the laws of members and of articles, and the number of events.
        generators: their generators of members and of articles are used.
        chunk: the largest number of events of a chunk.
    """
    by_member = np.cumsum(law.activity)
    by_article = np.cumsum(law.popularity)
    for start in range(0, law.events, chunk):
        rows = min(chunk, law.events - start)
        # Inverse transform: one uniform a draw, so that the events do not depend on the chunks. The
        # last sum, 1 up to rounding, is left out: a draw above it still has an index.
        member = np.searchsorted(by_member[:-1], generators.members.random(rows), side="right")
        article = np.searchsorted(by_article[:-1], generators.articles.random(rows), side="right")
        yield {
            "member": member,
            "article": article,
            "section": article % len(SECTIONS),
            "region": member % len(REGIONS),
        }
