"""A look at the first events of a table, which decides between query plans and moves no count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import REPEATED, SAMPLE, MemoryFull, OpenTable
from dptopk.datasets.engine_calls import run_query

if TYPE_CHECKING:
    import ibis.expr.types as ir

# The most characters of texts that are sorted as fast as their 64-bit codes.
SHORT_TEXT = 12


@dataclass(frozen=True)
class FirstEvents:
    """The first events of a table, which decide between query plans and move no count.

    Attributes:
        events: how many there are, at most SAMPLE.
        labels: the number of their different labels.
        pairs: the number of their different pairs of a user and a label.
        longest_user: the most characters of a user; None if users are no texts.
    """

    events: int
    labels: int
    pairs: int
    longest_user: int | None = None

    @property
    def repeat_pairs(self) -> bool:
        """Return whether so many events repeat the pair of an earlier one that making the pairs
        distinct first saves time.
        """
        return self.pairs < REPEATED * self.events

    @property
    def have_short_users(self) -> bool:
        """Return whether users are texts so short that they are sorted as fast as their codes."""
        return self.longest_user is not None and self.longest_user <= SHORT_TEXT


def first_events(
    source: OpenTable, events: ir.Table, within: Sequence[str] = ()
) -> FirstEvents | None:
    """Return the numbers of the first events, of which pairs are counted by their hashes; None on
    an engine where one plan is always fastest or which has no fast hash, or if the memory is full.

    Args:
        source: the table.
        events: its events.
        within: further columns that distinguish a pair, such as that of segments.
    """
    # Where DISTINCT can be made to sort, it would sort repeated events too.
    has_plans = source.keep is not None or source.backend.unhashed is not None
    if not has_plans or source.backend.mix is None:
        return None
    sample = events.limit(SAMPLE)
    pair = source.mix(*(sample[name] for name in (*within, "user", "item")))
    numbers = {
        "events": sample.count(),
        "labels": sample.item.nunique(),
        "pairs": pair.nunique(),
    }
    if sample.user.type().is_string():
        numbers["longest_user"] = sample.user.length().max()
    try:
        (row,) = run_query(source, sample.agg(**numbers)).to_pylist()
    except MemoryFull:  # a part of the users may still fit
        return None
    return FirstEvents(**row)
