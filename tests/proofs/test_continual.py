"""ContinualTopK: the law of all days' measurements, exactly, against its charge; what a private label gives away."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dptopk import Charge, ContinualTopK, Histogram, Sensitivity, compose
from dptopk.mechanisms.factorisation import FACTORISATIONS, Factorisation, factorise

SIGMA, REACH = 1.3, 11
EPSILONS = (0.0, 0.3, 0.8, 1.5, 3.0)


def law(shift: int, scale: float, reach: int) -> np.ndarray:
    """Discrete Gaussian moved by an integer, on -reach .. reach."""
    n = np.arange(-reach, reach + 1.0)
    whole = np.exp(-(np.arange(-10 * reach, 10 * reach + 1.0) ** 2) / (2 * scale**2)).sum()
    return np.exp(-((n - shift) ** 2) / (2 * scale**2)) / whole


def hockey_stick(shifts: list[int], scale: float, reach: int, epsilon: float) -> float:
    """δ at ε of independent discrete Gaussians against the same ones moved, from below: the points listed."""
    p = q = np.ones(1)
    for shift in shifts:
        p = np.outer(p, law(0, scale, reach)).ravel()
        q = np.outer(q, law(shift, scale, reach)).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def small(kind: str, days: int) -> Factorisation:
    """A factorisation with weights small enough to enumerate."""
    if kind != "square_root":
        return factorise(kind, days)
    strategy = np.array([[2, 0, 0], [1, 2, 0], [1, 1, 2]])[:days, :days]
    return Factorisation(strategy, np.tri(days) @ np.linalg.inv(strategy), 2)


@pytest.mark.parametrize(("kind", "days"), [("tree", 3), ("tree", 4), ("daily", 3), ("square_root", 3)])
@pytest.mark.parametrize("linf", [1, 2])
def test_no_day_and_no_contribution_costs_more_than_is_charged(kind, days, linf, monkeypatch):
    plan = small(kind, days)
    monkeypatch.setattr(ContinualTopK, "measurements", plan)
    mechanism, sensitivity = (
        ContinualTopK(k=1, days=days, sigma=SIGMA, factorisation=kind),
        Sensitivity(linf=linf, l0=1),
    )
    scale = linf * SIGMA * plan.unit
    reach = REACH * linf * plan.unit
    charged = {epsilon: compose(mechanism.charge(sensitivity), epsilon=epsilon).delta for epsilon in EPSILONS}
    worst = dict.fromkeys(EPSILONS, 0.0)
    for day, moved in itertools.product(range(days), range(1, linf + 1)):
        shifts = [moved * weight for weight in plan.strategy[:, day].tolist() if weight]
        for epsilon in EPSILONS:
            found = hockey_stick(shifts, scale, reach, epsilon)
            assert found <= charged[epsilon] * (1 + 1e-9)
            worst[epsilon] = max(worst[epsilon], found)
    assert all(worst[epsilon] > 0.97 * charged[epsilon] for epsilon in (0.0, 0.3, 0.8))  # and hardly less


@pytest.mark.parametrize("kind", ["tree", "square_root"])
def test_a_charge_without_one_measurement_is_too_small(kind, monkeypatch):
    plan = small(kind, 3)
    monkeypatch.setattr(ContinualTopK, "measurements", plan)
    charge = ContinualTopK(k=1, days=3, sigma=SIGMA, factorisation=kind).charge(Sensitivity(l0=1))
    shifts = [cost.shift for cost, n in charge for _ in range(n)]
    found = hockey_stick(shifts, SIGMA * plan.unit, REACH * plan.unit, 0.8)
    smallest = min(charge.costs, key=lambda cost: cost.shift)
    assert compose(charge.minus(Charge({smallest: 1})), epsilon=0.8).delta < found
    assert found <= compose(charge, epsilon=0.8).delta * (1 + 1e-9)


@pytest.mark.parametrize("kind", [*FACTORISATIONS])
@pytest.mark.parametrize("days", [1, 2, 3, 7, 8, 30, 100])
def test_totals_of_what_was_measured_are_running_sums(kind, days):
    plan = factorise(kind, days)
    np.testing.assert_allclose(plan.totals @ plan.strategy, np.tri(days), atol=1e-12)
    late = plan.measured_on[None, :] > np.arange(days)[:, None]
    assert not plan.totals[late].any()  # no day looks ahead
    worst = -np.sort(-np.array([shift for shift, n in plan.shifts.items() for _ in range(n)]))
    for column in plan.strategy.T:
        weights = -np.sort(-column[column > 0])
        assert (weights <= worst[: len(weights)]).all()


@pytest.mark.parametrize("kind", [*FACTORISATIONS])
@pytest.mark.parametrize("days", [2, 3])
def test_a_label_of_one_user_day_is_shown_with_a_probability_of_at_most_delta(kind, days, monkeypatch):
    """Exactly: the noise of all measurements is enumerated; a threshold of one noise scale is seen to be too low."""
    plan, delta, sigma, sensitivity = small(kind, days), 0.02, 0.6, Sensitivity(l0=1)
    monkeypatch.setattr(ContinualTopK, "measurements", plan)
    mechanism = ContinualTopK(k=1, days=days, sigma=sigma, delta=delta, factorisation=kind)
    reach = math.ceil(5 * sigma * plan.unit)
    noise = np.array(list(itertools.product(range(-reach, reach + 1), repeat=len(plan.strategy))))
    masses = np.prod(law(0, sigma * plan.unit, reach)[noise + reach], axis=1)

    def shown(first: int, thresholds: np.ndarray) -> float:
        totals = (noise + plan.strategy[:, first]) @ plan.totals.T
        return float(masses[(totals > thresholds)[:, first:].any(axis=1)].sum())

    thresholds = np.array([mechanism.threshold(sensitivity, day + 1) for day in range(days)])
    assert 0 < max(shown(first, thresholds) for first in range(days)) <= delta
    assert max(shown(first, 1 + plan.scales(sigma)) for first in range(days)) > delta


def test_a_label_gets_noise_for_the_days_before_it_came():
    """The law of its measurements does not tell on which day it was first seen."""
    mechanism, sensitivity = ContinualTopK(k=1, days=4, sigma=50.0, delta=1e-3), Sensitivity(l0=1)
    rng = np.random.default_rng(0)
    early = []
    for _ in range(400):
        stream = mechanism.stream(sensitivity, rng=rng)
        stream.release(Histogram({"old": 1}, sensitivity=sensitivity))
        stream.release(Histogram({"old": 1, "new": 1}, sensitivity=sensitivity))
        early.append(np.array(stream.to_dict()["sums"])[:, 0])  # the first day's measurement of both
    spread = np.std(early, axis=0)
    assert (np.abs(spread / (50.0 * mechanism.measurements.unit) - 1) < 0.2).all()
