"""CR 2022, Figure 2: δ_OPT of Theorem 3 for k independent mechanisms, m of them ε-DP and the others
ε-BR.
"""

from __future__ import annotations

import numpy as np

from dptopk.accounting.bounded_range.nonadaptive import br_nonadaptive_delta
from dptopk.accounting.bounded_range.nonadaptive_with_dp import br_dp_nonadaptive_delta
from dptopk.accounting.pure_dp.homogeneous import optimal_dp_delta
from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, claim

TITLE = "The optimum for independent BR and DP mechanisms"
SOURCE = "Cesar-Rogers 2022, Figure 2"
SETTING = (
    "k mechanisms chosen in advance, m of them ε-DP, k - m ε-BR; Theorem 3. The paper "
    "does not print ε and k."
)

SETTINGS = ((0.1, 20, 2.0), (1.0, 8, 8.0))  # ε, k, largest ε_g
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # m/k, which share of the mechanisms is ε-DP
LEAST_DELTA_SHOWN = 1e-14  # smaller ones are mostly rounding
ROUNDING = 1e-9  # relative, of two ways to compute one δ


def compute(settings: RunSettings) -> Table:
    """Return δ on a grid of ε_g for each m, and for the two older optima, which are the ends of
    the family.
    """
    import pandas as pd

    frames = []
    for epsilon, k, top in SETTINGS:
        points = 11 if settings.quick else 101
        grid = np.linspace(0, top, points)[:-1]
        curves = {}
        for m in [round(share * k) for share in SHARES]:
            curves[f"m = {m}"] = br_dp_nonadaptive_delta(epsilon, k - m, m, at_epsilon=grid)
        curves["BR optimum (DDR)"] = br_nonadaptive_delta(epsilon, k, at_epsilon=grid)
        curves["DP optimum (KOV)"] = optimal_dp_delta(epsilon, k, at_epsilon=grid)
        columns = {"epsilon": epsilon, "k": k, "epsilon_global": grid}
        for name, delta in curves.items():
            frames.append(pd.DataFrame(columns | {"curve": name, "delta": delta}))
    return pd.concat(frames, ignore_index=True)


def plot(data: Table) -> Figure:
    """Plot δ against ε_g on a logarithmic axis, a panel for each setting."""
    parts = []
    visible = data[data["delta"] > LEAST_DELTA_SHOWN]
    for (epsilon, k), part in visible.groupby(["epsilon", "k"]):
        series = style.curves(part, _family(k), "epsilon_global", "delta")
        parts.append((f"ε = {epsilon:g}, k = {k}", series))
    figure, panels = style.panels(
        parts, width=10, height=3.9, xlabel="ε_g", ylabel="δ", yscale="log"
    )
    for axes in panels:
        axes.legend(loc="lower left")
    return figure


def _family(k: int) -> list[str]:
    """Return the names of the curves for the values of m, in rising order."""
    return [f"m = {round(share * k)}" for share in SHARES]


def _distance(wide: Table, curve: str, reference: str) -> float:
    """Return the largest relative distance of a curve from a reference curve.

    Args:
        wide: a table with a column for each curve.
        curve: the column of the curve.
        reference: the column of the reference.
    """
    ratio = wide[curve] / wide[reference]
    return float((ratio - 1).abs().max())


def compare(data: Table) -> list[Comparison]:
    """Check that the ends of the family are the two older theorems and that δ rises with m."""
    lines = []
    for epsilon, k, _ in SETTINGS:
        part = data[data["epsilon"] == epsilon]
        wide = part.pivot_table(index="epsilon_global", columns="curve", values="delta")
        distance_from_dp = _distance(wide, f"m = {k}", "DP optimum (KOV)")
        distance_from_br = _distance(wide, "m = 0", "BR optimum (DDR)")
        steps = np.diff(wide[_family(k)].to_numpy(), axis=1)
        rises = (steps >= 0).all()
        setting = f"ε = {epsilon:g}, k = {k}"
        lines += [
            claim(
                f"{setting}: m = k is the DP optimum",
                "proved",
                distance_from_dp < ROUNDING,
                f"to a relative {distance_from_dp:.1g}",
            ),
            claim(
                f"{setting}: m = 0 is the BR optimum",
                "proved",
                distance_from_br < ROUNDING,
                f"to a relative {distance_from_br:.1g}",
            ),
            claim(f"{setting}: δ rises with m", "shown", rises),
        ]
    return lines
