"""CR 2022, Algorithm 2 (TruncGauss over an unknown domain) is not private: its exact δ(ε) against
its claim.
"""

from __future__ import annotations

import math

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.accounting.bounds import compose
from dptopk.experiments import style
from dptopk.experiments.experiment import Comparison, Figure, RunSettings, Table

TITLE = "The truncated Gaussian over an unknown domain, as published and mended"
SOURCE = "Cesar-Rogers 2022, Algorithm 2 and Lemma 6.4"
SETTING = (
    "d̄ = 1, τ = Δ = 1, two labels, noise on the integers. Exact hockey-stick divergence over all "
    "neighbouring pairs, no sampling. The claim is the best δ(ε) that 1/(2σ²)-zCDP and the claimed "
    "δ give."
)

SETTINGS = ((3.0, 0.0015), (10.0, 1e-6))  # σ, claimed δ
PUBLISHED = "as published (noiseless threshold)"
MENDED = "mended (noisy threshold, τ + 2T)"
CLAIM = "claimed"
CURVES = (PUBLISHED, CLAIM, MENDED)


def law(noise: Floats, gap: int, offset: int, *, noisy_floor: bool, shift: int) -> Floats:
    """Return the law of the answer for d̄ = 1 and the counts ``gap`` + ``shift`` and ``shift``:
    P[released with the value v] for v on a grid, and last P[nothing is released].

    Args:
        noise: the probabilities of the noise -T..T.
        gap: by how much the top count is above the second one, the floor.
        offset: how far the threshold is above the floor.
        noisy_floor: whether the same noise is added to the floor.
        shift: moves both counts, so that neighbouring laws have one grid.
    """
    bound = len(noise) // 2  # T
    # Values are -reach..reach: a gap of up to 4T + 4 with noise of up to T.
    reach = 6 * bound + 10
    values = np.arange(-reach, reach + 1)
    masses = np.zeros(len(values))
    lowest_place = gap + shift - bound + reach
    masses[lowest_place : lowest_place + len(noise)] = noise
    # P[noise of the floor <= n] for n = -T..T; without noise it is 0.
    if noisy_floor:
        at_most = np.cumsum(noise)
    else:
        at_most = np.append(np.zeros(bound), np.ones(bound + 1))
    # A value is released if the noise of the floor is at most the margin, so that it is above the
    # noisy floor by more than the offset.
    margin = values - shift - offset - 1
    places = np.clip(margin + bound, 0, 2 * bound)
    chance_to_pass = np.where(margin < -bound, 0.0, at_most[places])
    released = masses * chance_to_pass
    return np.append(released, max(1 - math.fsum(released), 0.0))


def divergence(p: Floats, q: Floats, epsilons: Floats) -> Floats:
    """Return the larger of the hockey-stick divergences of P from Q and of Q from P, at each ε,
    shape (n,); P and Q are probabilities on one grid, p and q.

    Args:
        p: the probabilities of P on the grid, shape (values,).
        q: those of Q.
        epsilons: the values of ε, shape (n,).
    """
    factors = np.exp(epsilons)[:, None]
    p_from_q = np.maximum(p - factors * q, 0.0)
    q_from_p = np.maximum(q - factors * p, 0.0)
    return np.maximum(p_from_q.sum(axis=1), q_from_p.sum(axis=1))


def exact_delta(noise: Floats, offset: int, *, noisy_floor: bool, epsilons: Floats) -> Floats:
    """Return the exact δ at each ε: the largest over all pairs of neighbours with two labels, of
    which one user adds 1 to one.

    Counts matter only through their difference. From 3T + 1 on either the top label is certainly
    released, or the law no longer depends on the difference.

    Args:
        noise: the probabilities of the noise -T..T.
        offset: how far the threshold is above the floor.
        noisy_floor: whether the same noise is added to the floor.
        epsilons: the values of ε, shape (n,).
    """
    bound = len(noise) // 2
    worst = np.zeros(len(epsilons))

    def law_of(gap: int, shift: int) -> Floats:
        """Return the law of the answer for this difference of the counts, both moved."""
        return law(noise, gap, offset, noisy_floor=noisy_floor, shift=shift)

    for gap in range(4 * bound + 4):  # beyond 3T + 1 in any case
        top_grows = divergence(law_of(gap, 0), law_of(gap + 1, 0), epsilons)
        worst = np.maximum(worst, top_grows)
        if gap:
            floor_grows = divergence(law_of(gap, 0), law_of(gap - 1, 1), epsilons)
            worst = np.maximum(worst, floor_grows)
    # Two equal counts, and the label below overtakes the other: an answer then names another label.
    # The answers with either label are on disjoint grids, the empty answer is common.
    tie = law_of(0, 0)
    overtaken = law_of(1, 0)
    zeros = np.zeros(len(tie) - 1)
    before = np.append(zeros, tie)
    after = np.concatenate((overtaken[:-1], zeros, overtaken[-1:]))
    return np.maximum(worst, divergence(before, after, epsilons))


def compute(settings: RunSettings) -> Table:
    """Return δ(ε) of both forms and the claim, for each σ."""
    import pandas as pd

    epsilons = np.linspace(0, 4, 9 if settings.quick else 41)
    frames = []
    for place, (sigma, delta) in enumerate(SETTINGS, start=1):
        frames.append(pd.DataFrame(_delta_columns(sigma, delta, epsilons)))
        settings.progress(place / len(SETTINGS))
    return pd.concat(frames, ignore_index=True)


def _delta_columns(sigma: float, delta: float, epsilons: Floats) -> dict[str, object]:
    """Return the columns of the table for one σ and claimed δ.

    Args:
        sigma: the standard deviation σ of the noise, in users.
        delta: the claimed δ.
        epsilons: the values of ε, shape (n,).
    """
    from dptopk import Sensitivity, TruncatedGaussian
    from dptopk.mechanisms.samplers.noise import gaussian_law

    mechanism = TruncatedGaussian(sigma=sigma, delta=delta, d_bar=1)
    sensitivity = Sensitivity(l0=1)
    bound = mechanism.bound(sensitivity)
    noise = gaussian_law(sigma, bound).pmf(bound)
    charge = mechanism.charge(sensitivity)
    offset = mechanism.threshold_offset(sensitivity)
    published_offset = 1 + bound  # τ + T, the threshold of Algorithm 2 above the exact floor
    return {
        "sigma": sigma,
        "delta": delta,
        "T": bound,
        "epsilon": epsilons,
        PUBLISHED: exact_delta(noise, published_offset, noisy_floor=False, epsilons=epsilons),
        MENDED: exact_delta(noise, offset, noisy_floor=True, epsilons=epsilons),
        CLAIM: [compose(charge, epsilon=epsilon).delta for epsilon in epsilons.tolist()],
    }


def plot(data: Table) -> Figure:
    """Plot δ against ε on a logarithmic axis, a panel for each σ."""
    parts = []
    for (sigma, bound, delta), part in data.groupby(["sigma", "T", "delta"]):
        title = f"σ = {sigma:g}, T = {bound:.0f}, claimed δ = {delta:g}"
        parts.append((title, style.series_of_columns(part, CURVES, "epsilon")))
    figure, panels = style.panels(
        parts, width=9.5, height=4, yscale="log", xlabel="ε", ylabel="δ(ε)"
    )
    style.legend_below(figure, panels[0], columns=3)
    return figure


def compare(data: Table) -> list[Comparison]:
    """Report how far the published form exceeds its claim, and that the corrected form does not."""
    lines = []
    for sigma, part in data.groupby("sigma"):
        last = part.iloc[-1]
        times = last[PUBLISHED] / last[CLAIM]
        measured = f"δ = {last[PUBLISHED]:.3g} at ε = {last['epsilon']:g}, {times:,.0f} times "
        measured += "the claim: the threshold depends on the data and carries no noise"
        proved = f"proved, with δ = {last['delta']:g} (Lemma 6.4)"
        holds = (part[PUBLISHED] <= part[CLAIM]).all()
        if (part[MENDED] <= part[CLAIM]).all():
            mended = f"δ = {last[MENDED]:.3g}"
        else:
            mended = "it does not"
        lines += [
            Comparison(
                f"σ = {sigma:g}: Algorithm 2 is δ-approximately zCDP", proved, measured, bool(holds)
            ),
            Comparison(f"σ = {sigma:g}: the mended form keeps the claim", "", mended),
        ]
    return lines
