"""The registry of cost types: everything the accounting knows about a type of cost stands in one
CostModel.

To add a cost type, add its dataclass to ``dptopk.costs`` and its CostModel to ``MODELS`` of a
module here, and list a new module in ``_MODULES``. Bounds, tokens, segments and exports ask the
registry; none of them lists cost types of its own, save the theorems that are about one type.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dptopk.costs import COST_TYPES, Cost

if TYPE_CHECKING:
    from dptopk.accounting.pld.log_mgf import LogMGF
    from dptopk.accounting.pld.loss_components import LossComponent


CostType = type[Any]
# Two models stand with their own laws, in other families.
_MODULES = (
    "cost_models.pure_dp", "cost_models.bounded_range", "cost_models.laplace_costs",
    "cost_models.gaussian_costs",
    "cost_models.concentrated_costs", "gaussian.sparse", "renyi.label_coins",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Implied:
    """What a cost of one type implies in other notions of privacy, as functions of the cost; None
    if nothing is known (or the class has no finite bound).

    Attributes:
        pure: the ε for which it is ε-DP.
        bounded_range: the ε for which it is ε-bounded range.
        zcdp: (ξ, ρ) for which it is (ξ, ρ)-zCDP, by the published constants.
        exact_zcdp: (ξ, ρ) with the smallest ρ for which the whole class is.
        cdp: (μ, τ) for which it is (μ, τ)-concentrated DP.
    """

    pure: Callable[[Any], float] | None = None
    bounded_range: Callable[[Any], float] | None = None
    zcdp: Callable[[Any], tuple[float, float]] | None = None
    exact_zcdp: Callable[[Any], tuple[float, float]] | None = None
    cdp: Callable[[Any], tuple[float, float]] | None = None


@dataclass(frozen=True, slots=True)
class CostModel:
    """One type of cost, as the accounting sees it.

    Attributes:
        cost_type: the type.
        covers: whether a token of this type, a cost that was registered beforehand, may be spent on
            a mechanism with a given cost: whether every such mechanism satisfies what the token
            states. False where that is not known. The arguments are (token, cost).
        implied: what a cost without failure mass implies in the other notions.
        statements: all the (ε, δ) for which a cost is (ε, δ)-DP by definition; None: those of
            ``implied.pure``.
        without_failure: a cost split into what is left without its atom at infinity (None: nothing)
            and that atom.
        log_mgf: for costs of this type with their counts, an upper bound on ln E[e^{λL}] of their
            whole loss to a relative LOG_MGF_ERROR, as a function of λ > 0; None where there is
            none.
        loss_components: for costs of this type with their counts, the pairs that dominate in both
            directions (docs/theorems.md, Theorem A); None where there are none.
        family: maps a cost to (name, size) such that of two costs of one name the one of the larger
            size is the weaker promise; None: no two costs of this type are compared.
        dp_event, pld: a cost as an event of dp-accounting and (given the interval) as a privacy
            loss distribution of it; None where there is none, and ``no_counterpart`` says why.
    """

    cost_type: CostType
    covers: Callable[[Any, Cost], bool]
    implied: Implied = field(default_factory=Implied)
    statements: Callable[[Any], tuple[tuple[float, float], ...]] | None = None
    without_failure: Callable[[Any], tuple[Cost | None, float]] | None = None
    log_mgf: Callable[[Mapping[Any, int]], LogMGF] | None = None
    loss_components: Callable[[Mapping[Any, int]], list[LossComponent]] | None = None
    family: Callable[[Any], tuple[Hashable, float]] | None = None
    dp_event: Callable[[Any], Any] | None = None
    pld: Callable[[Any, float], Any] | None = None
    no_counterpart: str = ""


@cache
def cost_models() -> dict[CostType, CostModel]:
    """Return all models by type, in the order of ``COST_TYPES``.

    The modules are imported by name when this is first called: what a model says of other costs
    (``covers``) asks this registry, which therefore cannot import them at the top.
    """
    modules = [import_module(f"dptopk.accounting.{module}") for module in _MODULES]
    known = {model.cost_type: model for module in modules for model in module.MODELS}
    return {cost_type: known[cost_type] for cost_type in COST_TYPES}


def cost_model_of(cost: Cost) -> CostModel:
    """Return the model of one cost."""
    return cost_models()[type(cost)]


def types_with(known: str) -> tuple[CostType, ...]:
    """Return the types of cost whose model knows something.

    Args:
        known: "loss_components" or "log_mgf", a field of ``CostModel``; or "pure", "zcdp",
            "exact_zcdp" or "cdp", a field of ``Implied``.
    """
    types = []
    for cost_type, model in cost_models().items():
        if getattr(model, known, None) or getattr(model.implied, known, None):
            types.append(cost_type)
    return tuple(types)
