"""A cost as dp-accounting knows it: an event, and a privacy loss distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


def event(name: str, arguments: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], Any]:
    """The event of dp-accounting with this name, for the arguments of a cost."""

    def of(cost: Any) -> Any:
        from dp_accounting import dp_event

        return getattr(dp_event, name)(*arguments(cost))

    return of


def distribution(
    name: str, arguments: Callable[[Any], tuple[Any, ...]]
) -> Callable[[Any, float], Any]:
    """The privacy loss distribution ``from_<name>_mechanism``, pessimistic, for the arguments of a
    cost.
    """

    def of(cost: Any, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        make = getattr(pld, f"from_{name}_mechanism")
        return make(
            *arguments(cost), value_discretization_interval=interval, pessimistic_estimate=True
        )

    return of


def stated_distribution(epsilon: float, delta: float, interval: float) -> PrivacyLossDistribution:
    """The privacy loss distribution of (ε, δ)-DP."""
    from dp_accounting.pld import common, privacy_loss_distribution as pld

    pair = common.DifferentialPrivacyParameters(epsilon, delta)
    return pld.from_privacy_parameters(pair, value_discretization_interval=interval)
