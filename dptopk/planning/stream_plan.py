"""The plan of a stream: from a total (ε, δ) to the mechanism that answers a top k every day, of
data that grow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dptopk._internal import validate
from dptopk.accounting.calibration import calibrate
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.continual import ContinualTopK
from dptopk.mechanisms.samplers.factorisation import Kind, factorise
from dptopk.mechanisms.samplers.optimal_factorisation import is_computable
from dptopk.mechanisms.samplers.participation import Error

# The share of δ, in a private domain, for labels that one user-day alone has. Chosen by hand:
# thresholds and noise depend little on it, by about the root of the logarithm of their δ.
FAILURE_SHARE = 0.5


def plan_continual(
    k: int,
    days: int,
    budget: Budget,
    *,
    sensitivity: Sensitivity,
    labels: int | None = None,
    days_per_user: int | None = 1,
    days_apart: int = 1,
    factorisation: Kind | Literal["auto"] = "auto",
    error: Error = "max",
) -> ContinualTopK:
    """Return the mechanism that answers a top k on each of n days within one total budget.

    Args:
        k: labels in each answer.
        days: how many days.
        budget: the total (ε, δ), δ above 0, for one user-day, or for all days of a user where
            days_per_user is given.
        sensitivity: of one user-day; its l0 must be finite for private labels.
        labels: size of the public domain, at least 1; None: labels are private.
        days_per_user: on how many of the days one user adds something at most, which the caller
            ensures; None: all.
        days_apart: the smallest distance of two such days.
        factorisation: "auto" takes the one with the least noise, among those that are found within
            seconds.
        error: which noise is made small: "max": that on the totals of the worst day; "mean": the
            mean square, over the days, of that on the totals.

    Returns:
        ContinualTopK, with the smallest sigma found whose charge fits; compose(charge,
        delta=budget.delta) confirms it.

    Raises:
        InvalidParameter: for arguments outside their ranges, a δ of 0, a sensitivity that the
            labels do not allow, and a budget that no noise meets.

    >>> mechanism = plan_continual(5, 7, Budget(1, 1e-6), sensitivity=Sensitivity(l0=1),
    ...     labels=1000)
    >>> mechanism.factorisation, round(mechanism.noise_std(Sensitivity(l0=1)))
    ('optimal', 6)
    """
    if not validate.instance(Budget, budget=budget).delta:
        raise InvalidParameter(
            "budget.delta must be above 0: Gaussian noise needs a δ", parameter="delta"
        )
    delta = FAILURE_SHARE * budget.delta
    if labels is not None:
        labels = validate.count(labels=labels)
        delta = 0.0
    # Refuses too many days, before they are factorised.
    draft = ContinualTopK(
        k=k,
        days=days,
        sigma=1.0,
        delta=delta,
        days_per_user=days_per_user,
        days_apart=days_apart,
        error=error,
    )
    if factorisation == "auto":
        factorisation = _kind_of_least_error(draft)
    draft = replace(draft, factorisation=factorisation)

    def charge_of(sharpness: float) -> Charge:
        """Return the charge of all days for a sigma of 1/``sharpness``: it grows with sharpness, as
        ``calibrate`` needs it.
        """
        return replace(draft, sigma=1 / sharpness).charge(sensitivity, labels=labels)

    sharpness = calibrate(charge_of, budget)
    return replace(draft, sigma=1 / sharpness)


def _kind_of_least_error(mechanism: ContinualTopK) -> Kind:
    """Return the kind of factorisation with the least error at equal cost, among those that are
    found within seconds: "optimal" for few days, "square_root" and "daily". The binary tree's error
    is never the least.

    Args:
        mechanism: the stream; its own factorisation does not matter.
    """
    user = mechanism.participation
    error = mechanism.error
    kinds: list[Kind] = ["square_root", "daily"]
    if is_computable(user):
        kinds.insert(0, "optimal")
    return min(kinds, key=lambda kind: factorise(kind, user, error).error(user, error))
