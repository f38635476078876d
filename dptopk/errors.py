"""The errors that dptopk raises. Messages name parameters and their values, never data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dptopk.costs import Charge


class DptopkError(Exception):
    """Base class of every error of this package."""


class InvalidParameter(DptopkError, ValueError):
    """An argument is outside its range; the message names the argument. No budget was spent.

    Attributes:
        parameter: the name of the argument where it is known apart from the message, else None.
    """

    def __init__(self, message: str = "", *, parameter: str | None = None) -> None:
        self.parameter = parameter
        super().__init__(message)


class IncompatibleCosts(DptopkError, TypeError):
    """The costs given cannot be combined, or the bound asked for does not take them."""


class NotApplicable(IncompatibleCosts):
    """A bound does not take costs of these types, or not so many of them; the message says why."""


class NotCertified(DptopkError, ArithmeticError):
    """A numerical bound could not be proven as accurately as it was asked for; no less accurate
    number is returned in its place.
    """


class LedgerError(DptopkError, RuntimeError):
    """The ledger is unreadable, was tampered with, or refuses the operation. Nothing was
    released.
    """


class BudgetExceeded(DptopkError):
    """A spend was refused because the budget does not cover it. Nothing was charged or released.

    Attributes:
        requested: the charge that was asked for.
        remaining: what is left: the charge still registered, or a text for a filter's remaining
            budget.
        reason: what is missing, in words.
    """

    def __init__(self, requested: Charge, remaining: Charge | str, reason: str = "") -> None:
        self.requested = requested
        self.remaining = remaining
        self.reason = reason
        why = f" ({reason})" if reason else ""
        super().__init__(f"budget exceeded{why}: requested {requested}; remaining {remaining}")

    def __reduce__(self) -> tuple[type[BudgetExceeded], tuple[Charge, Charge | str, str]]:
        """Return how a copy is made, for pickle and copy: by the arguments of ``__init__``, since
        an exception would pass its message alone.
        """
        return type(self), (self.requested, self.remaining, self.reason)


class ReleaseWithheld(DptopkError, RuntimeError):
    """An answer was drawn that costs more than was charged for it: it is not handed out, and the
    charge stays.

    Attributes:
        charged: what was charged before the draw.
        used: what the answer says it has cost.
    """

    def __init__(self, charged: Charge, used: Charge) -> None:
        self.charged = charged
        self.used = used
        super().__init__(
            f"the answer is withheld: it costs {used}, but {charged} was charged, and stays charged"
        )

    def __reduce__(self) -> tuple[type[ReleaseWithheld], tuple[Charge, Charge]]:
        """Return how a copy is made, for pickle and copy: by the arguments of ``__init__``."""
        return type(self), (self.charged, self.used)
