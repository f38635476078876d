"""One charge and what became of it, as the entries of the log say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from dptopk.costs import Budget, Charge
from dptopk.ledger.entries import Entry


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a charge was written: without one no noise is drawn."""

    seq: int
    dataset: str
    analyst: str
    charge: Charge


@dataclass(frozen=True, slots=True)
class Spend:
    """One charge and what became of it.

    Attributes:
        charge: net of what came back.
        mechanism: name and parameters, as they were recorded.
        released: whether an answer was given; otherwise it may or may not have been.
        answer: the entry that holds the answer, if it was stored.
        current: whether it was charged to the budget that now holds (not before a renewal).
        segments: the segments it was about; None: all data.
        stated: the (ε, δ) that the question stated for its charge, if it did.
    """

    seq: int
    at: str
    analyst: str
    charge: Charge
    mechanism: dict[str, Any]
    query: str
    released: bool
    answer: int | None
    current: bool
    segments: tuple[str, ...] | None = None
    stated: Budget | None = None

    @classmethod
    def charged(cls, entry: Entry, *, renewed: int = 0) -> Self:
        """The charge of an entry, of which nothing is known yet; ``renewed``: the entry of the last
        renewal.
        """
        body = entry.body
        segments = entry.body.get("segments")
        return cls(
            entry.seq, entry.at, entry.analyst, Charge.parse(body["charge"]), body["mechanism"],
            body["query"],
            released=False, answer=None, current=entry.seq > renewed,
            segments=None if segments is None else tuple(segments),
            stated=stated_in(body),
        )  # fmt: skip

    def released_by(self, entry: Entry) -> Self:
        """Return the spend after its release; costs that no account refunded stay charged."""
        body = entry.body
        net = Charge.parse(body["used"]) if body["returned"] else self.charge
        return replace(
            self, charge=net, released=True, answer=None if body["answer"] is None else entry.seq
        )


def stated_in(body: dict[str, Any]) -> Budget | None:
    """The (ε, δ) that the body of a charge's entry states for it; older entries state none."""
    if "stated" in body:
        return Budget.of_terms(body["stated"])
    return None
