"""Options of a filter: its method, and what may be chosen freely, checked; and the metrics that
follow from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dptopk._internal import validate
from dptopk._internal.choices import EFFORTS, Effort
from dptopk._internal.rounding import round_down, smaller_of
from dptopk.accounting.cost_models.cost_registry import cost_model_of
from dptopk.accounting.registry import split_failure
from dptopk.budgets.filter_metrics import Gaussian, Metric, Pure, Ranges, Renyi, Variance, Zcdp
from dptopk.costs import BoundedRange, Budget, Charge, Cost
from dptopk.errors import InvalidParameter

FilterMethod = Literal["renyi", "ranges", "gaussian", "variance"]
METHODS: tuple[FilterMethod, ...] = ("renyi", "ranges", "gaussian", "variance")


@dataclass(frozen=True)
class FilterOptions:
    """The options of a filter, as its arguments of the same names; ``of`` makes valid ones.

    Attributes:
        method: one of METHODS.
        declared: the costs that may be chosen freely, the bounded ranges first; None: any.
        order: λ of the Rényi sum, the order minus 1; None: the best for zCDP costs.
        effort: how much work the capacity of declared costs may take.
    """

    method: FilterMethod
    declared: Sequence[Cost] | None
    order: float | None
    effort: Effort

    @classmethod
    def of(
        cls,
        method: FilterMethod | None,
        ranges: Sequence[float] | None,
        costs: Sequence[Cost] | None,
        order: float | None,
        effort: Effort,
    ) -> FilterOptions:
        """Return the options, with the method that follows from them where none was named.

        The arguments are those of ``Filter``.

        Args:
            method: one of METHODS; None: "ranges" where costs are declared, else "renyi".
            ranges: the ε's of declared bounded ranges, or None.
            costs: other declared costs, or None.
            order: λ > 0 of the Rényi sum, the order minus 1; None: the best for zCDP costs.
            effort: how much work the capacity of declared costs may take.

        Raises:
            InvalidParameter: on options that do not go together.
        """
        declared = None
        if ranges is not None or costs is not None:
            declared = _declared_costs(ranges or (), costs or ())
        if method is None:
            method = "renyi" if declared is None else "ranges"
        method = validate.member(METHODS, method=method)
        # Declared costs are for "ranges", which has none but these.
        misfit = (declared is not None) != (method == "ranges")
        if misfit or (order is not None and method != "renyi"):
            raise InvalidParameter(
                f"method {method!r} cannot be combined with these options: ranges, costs, order"
            )
        validate.member(EFFORTS, effort=effort)
        return cls(method, declared, order, effort)

    def metrics(self, budget: Budget, failure_delta: float) -> list[Metric]:
        """Return the metrics for a budget; the first is the one that the budget is meant for.

        Args:
            budget: the total.
            failure_delta: the part of δ that is set aside for failures.

        Raises:
            InvalidParameter: when the budget leaves nothing for the method.
        """
        if budget.rho is not None:
            if self.method != "renyi" or self.order is not None:
                raise InvalidParameter(
                    "a budget in rho has one method only; omit method, ranges, costs and order"
                )
            return [Zcdp(budget.rho)]
        pure = Pure(budget.epsilon, decimals=True)
        delta_to_convert = Fraction(budget.delta) - Fraction(failure_delta)
        if not delta_to_convert > 0:
            return [pure]
        own_metric = self._metric_of_method(
            round_down(smaller_of(budget.epsilon)), round_down(delta_to_convert)
        )
        if own_metric.capacity <= 0:
            raise InvalidParameter(f"budget {budget} leaves nothing for {own_metric.words}")
        return [own_metric, pure]

    def _metric_of_method(self, epsilon: float, delta: float) -> Metric:
        """Return the metric of the method for this (ε, δ)."""
        if self.method == "variance":
            return Variance.at(epsilon, delta)
        if self.declared is not None:
            return Ranges.at(epsilon, delta, self.declared, self.effort)
        if self.method == "gaussian":
            return Gaussian.at(epsilon, delta)
        order = None if self.order is None else validate.positive(order=self.order)
        return Renyi.at(epsilon, delta, order)


def _declared_costs(ranges: Sequence[float], costs: Sequence[Cost]) -> list[Cost]:
    """Return the distinct costs that may be chosen freely, bounded ranges first, from the largest
    down.

    Raises:
        InvalidParameter: when there are none, or one is no cost.
    """
    if isinstance(ranges, str | bytes) or not isinstance(ranges, Iterable):
        raise InvalidParameter(f"ranges must be a list of numbers, got {type(ranges).__name__}")
    if not isinstance(costs, Iterable) or not all(isinstance(cost, Cost) for cost in costs):
        raise InvalidParameter("costs must be a list of costs such as DiscreteGaussianDP(20, 1)")
    sizes = {validate.positive(ranges=size) for size in ranges}
    sizes |= {cost.epsilon for cost in costs if isinstance(cost, BoundedRange)}
    for cost in costs:
        single = Charge({cost: 1})
        has_failures = split_failure(single) != (single, 0.0)
        if has_failures or cost_model_of(cost).log_mgf is None:
            raise InvalidParameter(
                f"costs: {cost} has failure mass or no Rényi curve, so it has no price"
            )
    others = {cost for cost in costs if not isinstance(cost, BoundedRange)}
    largest_first = [BoundedRange(size) for size in sorted(sizes, reverse=True)]
    declared: list[Cost] = [*largest_first, *sorted(others, key=str)]
    if not declared:
        raise InvalidParameter("ranges must name at least one range, or costs one cost")
    return declared
