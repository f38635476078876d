"""CR 2022, Figure 7: how high a count must be to be seen over an unknown domain, against Δ."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING

from dptopk.accounting.renyi.concentrated import zcdp_rho
from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table, claim, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dptopk import Charge, TruncatedGaussian, UnknownGaussian

TITLE = "Thresholds over an unknown domain"
SOURCE = "Cesar-Rogers 2022, Figure 7"
SETTING = (
    "ε = 0.1, δ = 1e-10, τ = 1. The paper's T: half of δ in eq. (10), the other half in Lemma 6.3. "
    "Ours: the whole offset above h_(d̄+1), τ included, d̄ = 1000, discrete noise, exact "
    "composition."
)

EPSILON = 0.1
DELTA = 1e-10
D_BAR = 1000
# How exactly values were read off the paper's figure: T, to its two decimals; and the thresholds of
# UnkLap, relatively.
READ_OFF = 0.005
READ_OFF_SHARE = 2.5e-3
# The curves: the paper's two mechanisms, and ours.
GAUSS = "TruncGauss, T of eq. (10)"
LAPLACE = "UnkLap, published"
OUR_LAPLACE = "UnknownLaplace (slot lemma)"
OUR_GAUSS = "UnknownGaussian (slot lemma)"
WHOLE = "TruncatedGaussian, whole histogram"
MENDED = "TruncatedGaussian, cut at d̄"


def thresholds_read_off() -> Table:
    """Return the thresholds read off the paper's figure: columns Delta, T_TruncGauss, T_UnkLap."""
    import pandas as pd

    read_off = files("dptopk.experiments").joinpath("data", "cr_figure_7_thresholds.csv")
    with read_off.open(encoding="utf-8") as file:
        return pd.read_csv(file)


def published_truncation(l0: int) -> float:
    """Return T of CR eq. (10) at δ/2, with the σ for which Lemma 6.3 gives ε at the other δ/2; for
    continuous noise and τ = 1.

    Args:
        l0: Δ, how many counts one user touches.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    rho = zcdp_rho(epsilon=EPSILON, delta=DELTA / 2)
    sigma = math.sqrt(l0 / (2 * rho))

    def excess(t: float) -> float:
        """Return ln of the left side of eq. (10) at T = ``t``, minus ln(δ/2)."""
        below = float(ndtr(-t / sigma))
        # The mass between -T and 1 - T: eq. (10) without its cancellation.
        edge = float(ndtr((1 - t) / sigma)) - below
        shown = l0 * edge / (1 - 2 * below)
        return math.log(shown) - math.log(DELTA / 2)

    # The left side is far above δ/2 at T = σ, and far below it at 30 σ.
    return float(brentq(excess, sigma, 30 * sigma, xtol=1e-9))


def published_laplace_threshold(l0: int) -> float:
    """Return the published threshold 1 + Δ ln(Δ/δ')/ε, where δ = (1 + e^ε)(δ'/4)(3 + ln(Δ/δ')).

    Args:
        l0: Δ, how many counts one user touches.
    """
    from scipy.optimize import brentq

    def excess(log_ratio: float) -> float:
        """Return ln of the right side at ln(Δ/δ') = ``log_ratio``, minus ln δ."""
        log_delta = math.log(l0) - log_ratio
        factor = math.log1p(math.exp(EPSILON)) + log_delta - math.log(4)
        return factor + math.log(3 + log_ratio) - math.log(DELTA)

    # The right side is far above δ at Δ/δ' = e, and far below it at e^100.
    log_ratio = float(brentq(excess, 1.0, 100.0, xtol=1e-12))
    return 1 + l0 * log_ratio / EPSILON


def our_offsets(l0: int) -> dict[str, float]:
    """Return the offsets of the thresholds of our mechanisms at a total cost of (ε, δ), by name:
    above h_(d̄+1), or above 0 for the whole histogram.

    Args:
        l0: Δ, how many counts one user touches.
    """
    from dptopk import Budget, Sensitivity, TruncatedGaussian, UnknownGaussian, UnknownLaplace
    from dptopk.accounting.calibration import calibrate

    sensitivity = Sensitivity(l0=l0)
    budget = Budget(EPSILON, DELTA)
    half = DELTA / 2

    def offset(mechanism_of: Callable[[float], UnknownGaussian | TruncatedGaussian]) -> float:
        """Return the offset of the mechanism with the smallest σ that the budget allows.

        Args:
            mechanism_of: returns the mechanism with a σ.
        """

        def charge(scale: float) -> Charge:
            """Return the charge for a σ of 1/``scale``, with which it grows."""
            return mechanism_of(1 / scale).charge(sensitivity)

        scale = calibrate(charge, budget, rtol=1e-6)
        return mechanism_of(1 / scale).threshold_offset(sensitivity)

    # Pure DP costs no δ: all of it is left for the threshold.
    laplace = UnknownLaplace(d_bar=D_BAR, epsilon=EPSILON / l0, delta=DELTA)
    return {
        OUR_LAPLACE: laplace.threshold_offset(sensitivity),
        OUR_GAUSS: offset(lambda sigma: UnknownGaussian(sigma=sigma, delta=half, d_bar=D_BAR)),
        WHOLE: offset(lambda sigma: TruncatedGaussian(sigma=sigma, delta=half)),
        MENDED: offset(lambda sigma: TruncatedGaussian(sigma=sigma, delta=half, d_bar=D_BAR)),
    }


def _row_at(l0: int) -> dict[str, float]:
    """Return the row of one Δ: all thresholds, by name."""
    published = {GAUSS: published_truncation(l0), LAPLACE: published_laplace_threshold(l0)}
    return {"l0": l0} | published | our_offsets(l0)


def compute(settings: RunSettings) -> Table:
    """Return the published and our thresholds for Δ = 1..10, a row for each Δ."""
    l0s = [1, 4, 10] if settings.quick else range(1, 11)
    return table_of(_row_at, l0s, settings)


def plot(data: Table) -> Figure:
    """Plot all thresholds against Δ, with the values read off the paper's figure as crosses."""
    figure, axes = style.figure(width=9, height=4.4)
    thresholds = style.series_of_columns(data, data.columns.drop("l0"), "l0")
    style.lines(axes, thresholds, marker="o", markersize=3)
    table = thresholds_read_off()
    for column, label in (("T_TruncGauss", "read off the paper's figure"), ("T_UnkLap", "_")):
        axes.plot(table["Delta"], table[column], "kx", label=label, markersize=6)
    axes.set(title="(0.1, 1e-10)-DP, τ = 1", ylabel="threshold above h_(d̄+1)")
    axes.set_xlabel("Δ, how many counts one user touches")
    style.legend_beside(axes)
    return figure


def compare(data: Table) -> list[Comparison]:
    """Compare the published thresholds with the paper's figure, and report how much lower those of
    the slot lemma are.
    """
    curves = data.merge(thresholds_read_off(), left_on="l0", right_on="Delta")
    gauss_distance = (curves[GAUSS] - curves["T_TruncGauss"]).abs().max()
    ratio = curves[LAPLACE] / curves["T_UnkLap"]
    laplace_distance = (ratio - 1).abs().max()
    saved = 1 - curves[OUR_LAPLACE] / curves["T_UnkLap"]
    last = data.iloc[-1]
    largest_l0 = f"Δ = {last['l0']:.0f}"
    our_threshold = f"{last[OUR_GAUSS]:.0f} instead of {last[LAPLACE]:.0f}"
    mended = f"not private (see truncated-gaussian); mended, at {largest_l0}: {last[MENDED]:.0f}"
    return [
        claim(
            "T of TruncGauss",
            "figure",
            gauss_distance <= READ_OFF * (1 + 1e-6),
            f"within {gauss_distance:.3f} of the values read off",
        ),
        claim(
            "threshold of UnkLap",
            "figure",
            laplace_distance < READ_OFF_SHARE,
            f"within {laplace_distance:.2%} of the values read off",
        ),
        Comparison("slot lemma, Laplace", "", f"at least {saved.min():.1%} lower, and proven"),
        Comparison(f"slot lemma, Gaussian, {largest_l0}", "", our_threshold),
        Comparison(
            "T as a threshold over an unknown domain", "h_(d̄+1) + τ + T without noise", mended
        ),
    ]
