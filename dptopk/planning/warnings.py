"""Budgets that are allowed, and hardly ever meant."""

from __future__ import annotations

LARGEST_EPSILON = 20.0
LARGEST_DELTA = 1e-3


def budget_warnings(epsilon: float, delta: float, users: int | None = None) -> list[str]:
    """Return warnings about a budget that gives little protection; nothing is refused.

    Args:
        epsilon: the total.
        delta: the total.
        users: how many users there are, where that is public.

    >>> budget_warnings(1.0, 1e-6)
    []
    """
    found = []
    if epsilon > LARGEST_EPSILON:
        found.append(
            f"ε = {epsilon:g} guarantees next to nothing: one user may change the odds of an "
            f"answer by e^{epsilon:g}"
        )
    if delta > LARGEST_DELTA:
        found.append(
            f"δ = {delta:g} is large: with that probability anything about a user may show; "
            f"1e-6 is common"
        )
    if users is not None and delta * users > 1:
        found.append(
            f"δ = {delta:g} is above 1/users: publishing the data of one user at random would "
            f"satisfy it"
        )
    return found
