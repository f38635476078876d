"""From a total (ε, δ) to a top k every day, of data that grow."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from dptopk._internal import validate
from dptopk.accounting.calibration import calibrate
from dptopk.costs.budget import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.continual import ContinualTopK
from dptopk.mechanisms.samplers.factorisation import FACTORISATIONS, Kind

# Of δ, in a private domain: for labels that one user-day alone has. Thresholds and noise hardly depend on it.
FAILURE_SHARE = 0.5


def plan_continual(
    k: int,
    days: int,
    budget: Budget,
    *,
    sensitivity: Sensitivity,
    labels: int | None = None,
    days_per_user: int = 1,
    days_apart: int = 1,
    factorisation: Kind | Literal["auto"] = "auto",
) -> ContinualTopK:
    """The mechanism that answers a top k on each of so many days within one total budget.

    Args:
        k: labels in each answer.
        days: how many days.
        budget: the total (ε, δ), δ above 0, for one user-day, or for all days of a user where days_per_user is given.
        sensitivity: of one user-day; its l0 must be finite for private labels.
        labels: size of the public domain, at least 1; None = labels are private.
        days_per_user: on how many of the days one user adds something at most; the caller sees to it.
        days_apart: the smallest distance of two such days.
        factorisation: "auto" takes the one with the least noise on its worst day.

    Returns:
        ContinualTopK, with the smallest sigma found whose charge fits; compose(charge, delta=budget.delta) confirms it.

    Raises:
        InvalidParameter: for a δ of 0, or a sensitivity that the labels do not allow.

    >>> mechanism = plan_continual(5, 7, Budget(1, 1e-6), sensitivity=Sensitivity(l0=1), labels=1000)
    >>> mechanism.factorisation, round(mechanism.noise_std(Sensitivity(l0=1)))
    ('square_root', 7)
    """
    if not validate.instance(Budget, budget=budget).delta:
        raise InvalidParameter("budget: Gaussian noise needs a delta above 0")
    kinds: tuple[Kind, ...] = tuple(FACTORISATIONS) if factorisation == "auto" else (factorisation,)
    validate.member(tuple(FACTORISATIONS), factorisation=kinds[0])
    delta = FAILURE_SHARE * budget.delta
    if labels is not None:
        labels, delta = validate.count(labels=labels), 0.0
    # Refuses too many days, before they are factorised.
    draft = ContinualTopK(k=k, days=days, sigma=1.0, delta=delta, days_per_user=days_per_user, days_apart=days_apart)
    draft = min((replace(draft, factorisation=name) for name in kinds), key=_error)
    sharpness = calibrate(lambda x: replace(draft, sigma=1 / x).charge(sensitivity, labels=labels), budget)
    return replace(draft, sigma=1 / sharpness)


def _error(mechanism: ContinualTopK) -> float:
    """Largest standard deviation of a total at equal μ, were the noise continuous: the product of the two norms."""
    plan = mechanism.measurements
    return float(
        plan.scales(1.0).max() / plan.unit * math.sqrt(plan.energy(mechanism.days_per_user, mechanism.days_apart))
    )
