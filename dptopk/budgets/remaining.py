"""The remaining budget in readable numbers: for sessions, ledgers, notebooks, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dptopk._internal.formatting import format_lower, html_lines, html_table
from dptopk.budgets.account import Account
from dptopk.costs import Charge


@dataclass(frozen=True)
class Remaining:
    """The remaining budget at one point in time.

    Attributes:
        left: the registered costs that are left, or a filter's budget in words.
        epsilon_left: of a filter the largest ε of a pure cost that is accepted now; else total minus reading.
        epsilon_spent: a reading of what was spent, at ``delta``; not a guarantee.
        epsilon_total: the guarantee at ``delta``, for everything, now and later.
        delta: the δ of both.
        share_used: how much of the budget is used, in [0, 1]: of the scarcest kind.
        fits: how many more of each kind of question fit, each kind by itself.
    """

    left: Charge | str
    epsilon_spent: float
    epsilon_total: float
    epsilon_left: float
    delta: float
    share_used: float
    fits: Mapping[str, int]

    @classmethod
    def of(cls, account: Account, asked: Mapping[str, Charge]) -> Remaining:
        """The remaining budget of an account; ``asked``: the maximum cost of each kind of question, by its name."""
        now, left = account.summary(), account.remaining()
        fits = {question: now.fits(charge) for question, charge in asked.items()}
        return cls(left, now.epsilon_spent, now.epsilon_total, now.epsilon_left, now.delta, now.share, fits)

    def lines(self) -> list[str]:
        """Describe the remaining budget in sentences."""
        spent, total = self.epsilon_spent, self.epsilon_total
        used = f"{self.share_used:.1%} of the budget is used"
        left = format_lower(self.epsilon_left, 4)
        now = f"ε about {spent:.4g} of {total:.4g} spent, {left} left, at δ = {self.delta:g}; {used}"
        return [now, f"left: {self.left}", *(f"{more} more of {question}" for question, more in self.fits.items())]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary."""
        return {
            "epsilon_spent": self.epsilon_spent,
            "epsilon_total": self.epsilon_total if math.isfinite(self.epsilon_total) else None,
            "epsilon_left": self.epsilon_left,
            "delta": self.delta,
            "share_used": self.share_used,
            "left": str(self.left),
            "fits": dict(self.fits),
        }

    def _repr_html_(self) -> str:
        """For notebooks."""
        fits = html_table(["question", "how many more fit"], self.fits.items()) if self.fits else ""
        return html_lines(self.lines()[:2]) + fits
