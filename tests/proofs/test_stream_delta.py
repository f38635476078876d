"""The δ of a stream by oracles that share nothing with its own bound: walks of exact steps,
and splits listed.
"""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy.signal import fftconvolve

from dptopk import Sensitivity
from dptopk.mechanisms.continual import ContinualTopK
from dptopk.mechanisms.samplers.factorisation import FACTORISATIONS

DAYS, DELTA = 4, 0.02


def stream(days_per_user: int, sigma: float, kind: str = "daily") -> ContinualTopK:
    return ContinualTopK(
        k=1, days=DAYS, sigma=sigma, delta=DELTA, factorisation=kind, days_per_user=days_per_user
    )


def splits(total: int, most: int):
    """Counts of a user's own labels that add up to ``total``, the largest first."""
    if not total:
        yield ()
    for first in range(min(total, most), 0, -1):
        for rest in splits(total - first, first):
            yield (first, *rest)


def shown_once(counts: list[int], thresholds: list[int], weight: int, scale: float) -> float:
    """P[a label is ever shown whose true running totals are ``counts``], 0 before it came.

    Daily measurements: the noise of the totals is a walk of discrete Gaussian steps. What has been
    shown leaves the walk, so that its mass is counted once.
    """
    reach = math.ceil(9 * scale * math.sqrt(DAYS))
    at = np.arange(-reach, reach + 1)
    steps = np.arange(-math.ceil(9 * scale), math.ceil(9 * scale) + 1)
    law = np.exp(-(steps**2) / (2 * scale**2))
    law /= law.sum()
    hidden, shown = (at == 0).astype(float), 0.0
    for count, threshold in zip(counts, thresholds, strict=True):
        hidden = fftconvolve(hidden, law, mode="same")
        if count:
            passes = at + weight * count > weight * threshold
            shown += hidden[passes].sum()
            hidden[passes] = 0
    return shown


def ever_shown(mechanism: ContinualTopK, active: int, sensitivity: Sensitivity) -> float:
    """The largest P[a label of one user alone is ever shown], one label a day or one for all days,
    on the first or the last days.
    """
    plan, worst = mechanism.measurements, 0.0
    weight = int(plan.strategy[0, 0])
    assert (plan.strategy == weight * np.eye(DAYS)).all()
    thresholds = [mechanism.threshold(sensitivity, day + 1) for day in range(DAYS)]
    scale = mechanism.sigma * plan.unit
    for first in {0, DAYS - active}:
        days = range(first, first + active)
        own = [[int(day >= came) for day in range(DAYS)] for came in days]
        same = [[sum(came <= day for came in days) for day in range(DAYS)]]
        for labels in (own, same):
            stay = [1 - shown_once(counts, thresholds, weight, scale) for counts in labels]
            worst = max(worst, 1 - math.prod(stay))
    return worst


@pytest.mark.parametrize(("own", "sigma"), [(1, 1.5), (3, 1.5), (3, 4.0), (4, 4.0)])
def test_a_walk_shows_the_labels_of_one_user_at_most_as_often_as_delta_says(own, sigma):
    mechanism, sensitivity = stream(own, sigma), Sensitivity(l0=1)
    assert mechanism.charge(sensitivity).delta == DELTA
    assert 0.25 * DELTA < ever_shown(mechanism, own, sensitivity) <= DELTA


@pytest.mark.parametrize("sigma", [4.0, 20.0])
def test_a_user_of_more_days_than_planned_is_shown_at_most_as_often_as_is_charged(sigma):
    mechanism, sensitivity = stream(1, sigma), Sensitivity(l0=1)
    for active in (2, 3, 4):
        charged = mechanism.charge(sensitivity, days_per_user=active).delta
        assert 0.4 * charged < ever_shown(mechanism, active, sensitivity) <= charged


@pytest.mark.parametrize("kind", FACTORISATIONS)
@pytest.mark.parametrize("linf", [1, 2])
def test_no_split_of_a_users_days_over_own_labels_passes_more_often_than_a_days_share(kind, linf):
    """At scales where a total's noise is normal to three digits; each day apart."""
    sensitivity = Sensitivity(linf=linf, l0=2)
    for own, sigma in ((1, 8.0), (2, 8.0), (4, 3.0), (4, 30.0)):
        mechanism = stream(own, sigma, kind)
        plan, fullest = mechanism.measurements, 0.0
        for day in range(DAYS):
            deviation = linf * sigma * plan.unit * math.sqrt((plan.totals[day] ** 2).sum())
            noise, active = NormalDist(0, deviation), min(day + 1, own)
            above = mechanism.threshold(sensitivity, day + 1)
            # A user touches two labels a day; both halves of the total split in the same ways.
            shown = max(
                1 - math.prod(1 - noise.cdf(linf * count - above) for count in 2 * split)
                for split in splits(active, active)
            )
            assert shown <= DELTA / DAYS * (1 + 2e-3)
            fullest = max(fullest, shown / (DELTA / DAYS))
        assert fullest > 0.6


def test_all_ways_to_split_are_listed():
    found = sorted(splits(4, 4))
    wanted = {
        tuple(sorted(filter(None, parts), reverse=True))
        for parts in itertools.product(range(5), repeat=4)
        if sum(parts) == 4
    }
    assert found == sorted(wanted)
