"""The remaining budget in readable numbers: for sessions, ledgers, notebooks, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dptopk._internal.formatting import format_lower, format_upper, html_lines, html_table
from dptopk.budgets.account_base import Account
from dptopk.costs import Budget, Charge


@dataclass(frozen=True)
class Remaining:
    """The remaining budget at one point in time.

    Attributes:
        left: the registered costs that are left, or a filter's budget in words.
        epsilon_left: the largest ε at which a question like ``question`` is accepted now
            (``planning.gauge.epsilon_left``).
        epsilon_spent: a reading of what was spent, at ``delta``; not a guarantee
            (``Account.reading``).
        epsilon_total: the guarantee at ``delta``, for everything, now and later.
        delta: the δ of both.
        share_used: ``epsilon_spent`` over ``epsilon_total``.
        fits: how many more of each kind of question fit, each kind by itself.
        question: the kind of question that ``epsilon_left`` is about, in words.
    """

    left: Charge | str
    epsilon_spent: float
    epsilon_total: float
    epsilon_left: float
    delta: float
    share_used: float
    fits: Mapping[str, int]
    question: str = ""

    @classmethod
    def of(
        cls,
        account: Account,
        kinds: Mapping[str, tuple[Charge, Budget | None]],
        *,
        epsilon_left: float,
        question: str = "",
    ) -> Remaining:
        """Return the remaining budget of an account.

        Args:
            account: the account.
            kinds: the maximum cost of each kind of question and the (ε, δ) that it states, by its
                name.
            epsilon_left: the attribute of this name.
            question: the attribute of this name.
        """
        now = account.summary()
        return cls(
            left=account.remaining(),
            epsilon_spent=now.epsilon_spent,
            epsilon_total=now.epsilon_total,
            epsilon_left=epsilon_left,
            delta=now.delta,
            share_used=now.share,
            fits={name: account.fits(*kind) for name, kind in kinds.items()},
            question=question,
        )

    def lines(self) -> list[str]:
        """Return the remaining budget in sentences."""
        spent = f"ε about {self.epsilon_spent:.4g} of {self.epsilon_total:.4g} spent"
        lines = [f"{spent} (an estimate), {self.share_used:.1%}, at δ = {format_upper(self.delta)}"]
        kind = f" for {self.question}" if self.question else ""
        lines.append(f"left: ε up to {format_lower(self.epsilon_left, 4)}{kind}")
        if isinstance(self.left, Charge):
            lines.append(f"registered costs left: {self.left}")
        return lines + [f"{more} more of {question}" for question, more in self.fits.items()]

    def __str__(self) -> str:
        """Return the remaining budget in sentences, a line each."""
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return the remaining budget as a dictionary that can be written as JSON."""
        return {
            "epsilon_spent": self.epsilon_spent,
            "epsilon_total": self.epsilon_total if math.isfinite(self.epsilon_total) else None,
            "epsilon_left": self.epsilon_left,
            "delta": self.delta,
            "share_used": self.share_used,
            "question": self.question,
            "left": str(self.left),
            "fits": dict(self.fits),
        }

    def _repr_html_(self) -> str:
        """Return the remaining budget as HTML, for notebooks."""
        if self.fits:
            fits = html_table(["question", "how many more fit"], self.fits.items())
        else:
            fits = ""
        lines = self.lines()
        without_fits = lines[: len(lines) - len(self.fits)]
        return html_lines(without_fits) + fits
