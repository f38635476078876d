"""A cost as dp-accounting knows it: an event, and a privacy loss distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


def event(name: str, arguments: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], Any]:
    """Return the function that maps a cost to an event of dp-accounting.

    Args:
        name: the name of the event's class.
        arguments: maps a cost to the arguments of that class.
    """

    def event_of(cost: Any) -> Any:
        """Return the event of one cost."""
        from dp_accounting import dp_event

        return getattr(dp_event, name)(*arguments(cost))

    return event_of


def distribution(
    name: str, arguments: Callable[[Any], tuple[Any, ...]]
) -> Callable[[Any, float], Any]:
    """Return the function that maps a cost and the distance of two grid points to a pessimistic
    privacy loss distribution.

    Args:
        name: the distribution is made by ``from_<name>_mechanism`` of dp-accounting.
        arguments: maps a cost to the positional arguments of that function.
    """

    def distribution_of(cost: Any, interval: float) -> Any:
        """Return the distribution of one cost, on a grid whose points have this distance."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        make = getattr(pld, f"from_{name}_mechanism")
        return make(
            *arguments(cost), value_discretization_interval=interval, pessimistic_estimate=True
        )

    return distribution_of


def stated_distribution(epsilon: float, delta: float, interval: float) -> PrivacyLossDistribution:
    """Return the privacy loss distribution of (ε, δ)-DP, on a grid with this interval.

    Args:
        epsilon: ε >= 0.
        delta: δ in [0, 1).
        interval: the distance of two grid points.
    """
    from dp_accounting.pld import common, privacy_loss_distribution as pld

    pair = common.DifferentialPrivacyParameters(epsilon, delta)
    return pld.from_privacy_parameters(pair, value_discretization_interval=interval)
