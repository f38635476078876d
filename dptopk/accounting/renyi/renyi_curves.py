"""Composition by Rényi curves: log-MGFs of the losses are summed and converted to (ε, δ) at the
best order.

For a fixed order λ = α - 1 > 0 let h_i(λ) bound ln E[e^{λ L_i}] given everything before, whichever
mechanism with cost i is chosen. Then E[exp(λ Σ L_i - Σ h_i(λ))] <= 1 by induction over the rounds,
and Σ h_i is known beforehand even when the analyst picks the order set-wise. So h = Σ h_i bounds
the log-MGF of the whole loss, and by CKS20 (Proposition 12)

    δ <= exp(g(λ) - λ ε),   g(λ) = h(λ) + λ ln λ - (1+λ) ln(1+λ),

for every λ: Chernoff's bound with a smaller g. As any λ will do, the minimisation over λ needs no
certificate.

DDR is Dong-Durfee-Rogers 2020, CKS20 is Canonne-Kamath-Steinke 2020.
"""

from __future__ import annotations

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.accounting.cost_models.conversions import pure_sum
from dptopk.accounting.cost_models.cost_registry import cost_models, types_with
from dptopk.accounting.curves import Curve
from dptopk.accounting.pld.log_mgf import LOG_MGF_ERROR, ChernoffCurve, LogMGF
from dptopk.accounting.registry import bound
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge
from dptopk.errors import NotApplicable


def renyi_curve(
    log_mgf: LogMGF, epsilon_max: float = np.inf, *, different: int = 0
) -> ChernoffCurve:
    """Return the (ε, δ) curve of a mechanism whose loss has log-MGF at most ``log_mgf`` (CKS20,
    Proposition 12).

    Args:
        log_mgf: upper bound on ln E[e^{λL}] = λ D_{1+λ} to a relative ``LOG_MGF_ERROR``,
            elementwise in λ > 0.
        epsilon_max: an ε from which on δ = 0; inf when there is none.
        different: as for ``ChernoffCurve``.

    Returns:
        An upper bound in both directions, each minimised over the order by itself.
    """

    def exponent(lam: Floats) -> Floats:
        """Return g(λ) of the module docstring, rounded up."""
        h = log_mgf(lam)
        gain = lam * np.log1p(1 / lam) + np.log1p(lam)
        # The curve's own allowance for rounding is relative to the difference, which may cancel.
        return h - gain + 8 * LOG_MGF_ERROR * (h + gain)

    return ChernoffCurve(exponent, epsilon_max, different)


def log_mgf(charge: Charge) -> LogMGF:
    """Return an upper bound on ln E[e^{λL}] for the whole loss of a charge without failure mass, as
    a function of λ > 0.

    Raises:
        NotApplicable: when a cost has no such bound.
    """
    parts: list[LogMGF] = []
    for cost_type in dict.fromkeys(type(cost) for cost in charge.costs):
        build = cost_models()[cost_type].log_mgf
        if build is None:
            raise NotApplicable(f"{cost_type.__name__} has no Rényi curve")
        parts.append(build(charge.of(cost_type)))
    # A sum of n positive terms errs by n units of roundoff, 1.1e-16 each.
    slack = 1 + 2e-16 * (len(charge.costs) + len(parts))

    def total(lam: Floats) -> Floats:
        """Return the sum over all types of cost, rounded up."""
        values = np.zeros_like(lam)
        for part in parts:
            values = values + part(lam)
        return values * slack

    return total


@bound(
    "renyi",
    source="Rényi curves of DDR Theorem 5 and randomised response, summed; CKS20 Prop. 12",
    takes=types_with("log_mgf"),
    valid_through=lambda charge: (
        "filter" if all(isinstance(cost, ZCDP) for cost in charge.costs) else "setwise"
    ),
    better=lambda charge: (
        "optimal_setwise" if charge.of(BoundedRange, CDP, ZCDP) else ""
    ),  # where there are such costs, optimal_setwise begins with this bound
)
def renyi(charge: Charge) -> Curve:
    """Sum each cost's own Rényi curve at each order, and convert the sum; never worse than
    zcdp_tight.
    """
    return renyi_curve(log_mgf(charge), pure_sum(charge), different=len(charge.costs))
