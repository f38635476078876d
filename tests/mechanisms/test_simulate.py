"""Mechanisms that no design of a plan uses are simulated by their own laws too, and say what their
answer is worth.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dptopk import Histogram, InvalidParameter, Sensitivity
from dptopk.mechanisms import (
    Box,
    Centred,
    CountMLE,
    Exponential,
    KnownGaussian,
    KnownLaplace,
    UnknownBox,
    UnknownCentred,
)
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS, SimulationInput, StandardNoise
from dptopk.planning.single import Single
from dptopk.service.plan_summary import plan_summary

COUNTS, SENSITIVITY, K = np.rint(600 / np.arange(1, 31)), Sensitivity(l0=3), 6
MECHANISMS = [
    Box(epsilon=2.0),
    Centred(noise=KnownLaplace(epsilon=0.1)),
    Exponential(epsilon=0.004, utility_range=1.0),
    UnknownBox(d_bar=15, epsilon=1.5, delta=0.01),
    UnknownCentred(d_bar=15, noise=KnownGaussian(sigma=12.0), delta=0.01),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: type(one).__name__)
def test_a_simulation_has_the_law_of_releases(mechanism):
    draw = mechanism.simulate(SimulationInput(K, COUNTS, SENSITIVITY, StandardNoise(len(COUNTS))))
    chosen, values = map(np.concatenate, zip(*(draw(number) for number in range(16)), strict=True))
    assert len(chosen) == 16 * BLOCK_DRAWS
    domain = "public" if mechanism.appears_at(SENSITIVITY) is None else "private"
    labels = None if domain == "public" else [str(rank) for rank in range(len(COUNTS))]
    histogram = Histogram(labels, COUNTS.astype(int), sensitivity=SENSITIVITY, domain=domain)
    rng, rows, ranks, squares = np.random.default_rng(3), [], [], []
    for _ in range(150):
        release = mechanism.release(histogram, rng).top(K)
        found = np.array(release.labels, dtype=int)
        rows.append(len(found))
        ranks.append(found.mean())
        squares += (
            [] if release.counts is None else ((release.counts - COUNTS[found]) ** 2).tolist()
        )
    shown = chosen >= 0
    spread = 5 * np.std(ranks) / math.sqrt(len(ranks)) + 0.05
    assert np.mean(rows) == pytest.approx(shown.sum(axis=1).mean(), abs=0.6)
    assert np.mean(ranks) == pytest.approx(chosen[shown].mean(), abs=spread)
    if squares:
        simulated = math.sqrt(((values - COUNTS[chosen])[shown] ** 2).mean())
        assert math.sqrt(np.mean(squares)) == pytest.approx(simulated, rel=0.2)


def test_what_is_promised_of_box_and_centred_noise_over_a_floor_is_that_of_their_own_laws():
    box, centred = (
        UnknownBox(d_bar=20, epsilon=1.0, delta=1e-7),
        UnknownCentred(d_bar=20, noise=KnownGaussian(sigma=10.0), delta=1e-7),
    )
    plans = [Single.of(one, {}, SENSITIVITY, None) for one in (box, centred)]
    said, also = (plan_summary(plan, plan.charge, 1e-6) for plan in plans)
    assert said["half_width"] == Box(epsilon=1.0).half_width(SENSITIVITY, labels=21)
    assert said["half_width"] > 3 * KnownLaplace(epsilon=1.0).half_width(SENSITIVITY)
    assert also["half_width"] == Centred(noise=KnownGaussian(sigma=10.0)).half_width(
        SENSITIVITY, labels=21
    )
    assert said["above_rank"] == also["above_rank"] == 21


def test_what_selects_nothing_is_not_simulated_as_something_else():
    with pytest.raises(InvalidParameter, match="selects no labels"):
        CountMLE(noise=KnownLaplace(epsilon=1.0)).simulate(
            SimulationInput(K, COUNTS, SENSITIVITY, StandardNoise(len(COUNTS)))
        )
