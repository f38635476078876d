"""Several (ε_i, δ_i) at once: a mixture of randomised responses with an atom (Cadir-Najib-Shkel 2026)."""

from __future__ import annotations

from dptopk.accounting.cost_models.conversions import is_approx
from dptopk.accounting.cost_models.implied import pure_row
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.accounting.pld.log_mgf import each_log_mgf, mixture_log_mgf
from dptopk.accounting.pld.loss_components import SeveralConstraints
from dptopk.costs import Cost, MultiDP, PureDP

_NONE = "several (ε, δ) at once have no counterpart"


def _without_failure(cost: MultiDP) -> tuple[Cost | None, float]:
    """δ_i = a + (1 - a) δ_i' with the common atom a, the δ at the largest ε."""
    atom = min(delta for _, delta in cost.constraints)
    # δ' = (δ - a) / (1 - a), rounded up; the largest ε that reaches the atom keeps δ' = 0.
    reduced = [
        (epsilon, min((delta - atom) / (1 - atom) * (1 + 4e-16), delta) if delta > atom else 0.0)
        for epsilon, delta in cost.constraints
    ]
    if (0.0, 0.0) in reduced:
        return None, atom
    return (PureDP(reduced[0][0]) if len(reduced) == 1 else MultiDP(tuple(reduced))), atom


MODEL = CostModel(
    MultiDP,
    covers=lambda token, cost: all(is_approx(cost, *constraint) for constraint in token.constraints),
    implied=pure_row(lambda cost: cost.constraints[0][0]),  # once its atom is split off
    statements=lambda cost: cost.constraints,
    without_failure=_without_failure,
    log_mgf=each_log_mgf(mixture_log_mgf),
    loss_components=lambda costs: [SeveralConstraints(cost, times) for cost, times in costs.items()],
    dp_event=_NONE,
    pld=_NONE,
)
