"""One charge and whether it was answered, as the entries of the log record it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from dptopk.costs import Budget, Charge
from dptopk.ledger.entries import Entry


@dataclass(frozen=True, slots=True)
class Receipt:
    """The proof that a charge was written, without which no noise is drawn.

    Attributes:
        seq: the number of the charge's entry.
        dataset: the data set that was charged.
        analyst: the analyst who was charged.
        charge: the charge.
    """

    seq: int
    dataset: str
    analyst: str
    charge: Charge


@dataclass(frozen=True, slots=True)
class Spend:
    """One charge that was spent, and whether it was answered.

    Attributes:
        seq: the number of the charge's entry.
        at: its UTC time.
        analyst: the analyst who was charged.
        charge: the charge, less what came back.
        mechanism: the name and parameters of what ran, as they were recorded.
        query: the fingerprint under which a stored answer is found; "": none.
        released: whether an answer was recorded; without a record it may or may not have been
            given.
        answer: the number of the entry that holds the answer; None: it was not stored.
        current: whether it was charged to the present budget, after the last renewal.
        segments: the segments that the question was about; None: all data.
        stated: the (ε, δ) that the question stated for its charge; None: none.
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
    def of_charge(cls, entry: Entry, *, renewed: int = 0) -> Self:
        """Return the spend that a charge's entry records, of which no release is known yet.

        Args:
            entry: the entry of the charge, in today's format.
            renewed: the number of the entry of the last renewal; 0: there was none.
        """
        body = entry.body
        segments = body.get("segments")
        return cls(
            seq=entry.seq,
            at=entry.at,
            analyst=entry.analyst,
            charge=Charge.parse(body["charge"]),
            mechanism=body["mechanism"],
            query=body["query"],
            released=False,
            answer=None,
            current=entry.seq > renewed,
            segments=None if segments is None else tuple(segments),
            stated=stated_budget(body),
        )

    def with_release(self, entry: Entry) -> Self:
        """Return the spend after its release; costs that no account refunded stay charged.

        Args:
            entry: the entry of the release, in today's format.
        """
        body = entry.body
        charge = self.charge
        if body["returned"]:  # at least one account took the unused costs back
            charge = Charge.parse(body["used"])
        answer = None if body["answer"] is None else entry.seq
        return replace(self, charge=charge, released=True, answer=answer)


def stated_budget(body: dict[str, Any]) -> Budget | None:
    """Return the (ε, δ) that a charge's entry states for it; None in older entries."""
    if "stated" in body:
        return Budget.of_terms(body["stated"])
    return None
