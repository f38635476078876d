"""What a plan promises, in numbers, before any data is seen."""

from __future__ import annotations

from typing import Any

from dptopk.histogram import Sensitivity
from dptopk.mechanisms import KnownGaussian, KnownLaplace
from dptopk.mechanisms.base import Measured, Noisy, Thresholded
from dptopk.planning import Plan

__all__ = ["half_width", "promise"]

NORMAL_95 = 1.96  # of noise whose law has no quantile here: an estimate by its standard deviation


def half_width(mechanism: Any, sensitivity: Sensitivity) -> float | None:
    """95% of the noise on a count is within ± this many; None where no counts are released.

    Exact for Gaussian and Laplace noise, in an unknown domain that of the noise before the threshold; else an estimate.
    """
    if not isinstance(mechanism, Noisy):
        return None
    if not isinstance(mechanism, Measured):
        if hasattr(mechanism, "sigma"):
            mechanism = KnownGaussian(sigma=mechanism.sigma)
        elif hasattr(mechanism, "epsilon"):
            mechanism = KnownLaplace(epsilon=mechanism.epsilon)
        else:
            return NORMAL_95 * float(mechanism.noise_std(sensitivity))
    return float(mechanism.half_width(sensitivity, confidence=0.95))


def promise(made: Plan) -> dict[str, Any]:
    """A plan in numbers: cost, noise, and in an unknown domain the count at which a label appears."""
    first: Any = made.mechanisms[0]
    last: Any = made.mechanisms[-1]
    counted = isinstance(last, Noisy) and getattr(made, "counted", True)
    unknown = isinstance(first, Thresholded)
    return {
        "k": made.k,
        "charge": str(made.charge),
        "epsilon": made.bound.epsilon,
        "delta": made.budget.delta,
        "bound": made.bound.name,
        "noise_std": float(last.noise_std(made.sensitivity)) if counted else None,
        "half_width": half_width(last, made.sensitivity) if counted else None,
        "threshold": first.threshold_offset(made.sensitivity) if unknown else None,
        "appears_at": first.appears_at(made.sensitivity, probability=0.5) if unknown else None,
        "above_rank": first.d_bar + 1 if unknown and first.d_bar is not None else None,
        "explain": made.explain(),
    }
