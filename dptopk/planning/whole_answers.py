"""Designs for public labels that draw the whole answer at once, at one price, and perhaps count it
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dptopk.accounting.cost_models.conversions import pure_sum
from dptopk.costs import Charge
from dptopk.mechanisms import (
    CanonicalTopK,
    CountMLE,
    JointTopK,
    OneShotTopK,
    RoutedTopK,
)
from dptopk.planning.request import Request, Split, pure_epsilon, range_epsilon

Draw = Callable[[Request, float], Any]
# The δ of a mechanism that needs one of its own, as a share of the total.
OWN_DELTA = 0.9


def _builder(
    kind: Any, scale: Callable[[float], float], *, own_delta: bool = False, **options: Any
) -> Draw:
    """Return a function that builds a mechanism from a request and ρ.

    Args:
        kind: the class of the mechanism.
        scale: from ρ to the ε of the mechanism.
        own_delta: whether the mechanism takes the part OWN_DELTA of the request's δ.
        options: further parameters of the mechanism.
    """

    def build(request: Request, rho: float) -> Any:
        """Return the mechanism with the cost ρ."""
        epsilon = scale(rho)
        if own_delta:
            delta = OWN_DELTA * request.delta
            return kind(k=request.k, epsilon=epsilon, delta=delta, **options)
        return kind(k=request.k, epsilon=epsilon, **options)

    return build


_JOINT = _builder(JointTopK, range_epsilon)
_CANONICAL = _builder(CanonicalTopK, range_epsilon)
_ONE_SHOT = _builder(OneShotTopK, pure_epsilon)
# Draws of labels alone: name, what builds it from a request and its ρ, and whether its results are
# known without the gaps between counts.
DRAWS: tuple[tuple[str, Draw, bool], ...] = (
    ("joint draw", _JOINT, False),
    ("canonical draw", _CANONICAL, False),
    ("one-shot draw", _ONE_SHOT, True),
    ("routed draw", _builder(RoutedTopK, pure_epsilon, own_delta=True), False),
)
# Draws before counts: name, what builds it, whether labels are drawn in order, so that counts can
# be fitted to it, and whether its results are known without the gaps.
COUNTED_DRAWS: tuple[tuple[str, Draw, bool, bool], ...] = (
    ("canonical draw", _CANONICAL, False, False),
    ("one-shot draw", _ONE_SHOT, True, True),
    ("routed draw", _builder(RoutedTopK, pure_epsilon, ordered=True), True, False),
)


def draw_and_counts(
    draw: Draw, ordered: bool, counts: tuple[tuple[str, Draw], ...]
) -> Callable[..., tuple[Any, ...]]:
    """Return a function that builds the draw, and then counts with the noise that is least for its
    cost.

    Args:
        draw: builds the draw of labels from a request and its ρ.
        ordered: whether the labels are drawn in order, so that counts can be fitted to it.
        counts: the kinds of noise, each by name and as a function of a request and its ρ.
    """

    def build(request: Request, split: Split, rho: float) -> tuple[Any, ...]:
        """Return both mechanisms; the split says which share of ρ the draw has."""
        # Gaussian noise needs a δ.
        usable = [(name, make) for name, make in counts if request.delta or name != "gaussian"]
        allowed = [make for name, make in usable if request.counts in ("auto", name)]
        rho_of_counts = (1 - split.selection) * rho
        noise = min(
            (make(request, rho_of_counts) for make in allowed),
            key=lambda noise: _noise_times_cost(request, noise),
        )
        selection = draw(request, split.selection * rho)
        if ordered and request.fit and noise.fitted:
            return selection, CountMLE(noise=noise)
        return selection, noise

    return build


def _noise_times_cost(request: Request, noise: Any) -> float:
    """Return what kinds of noise are compared by: the standard deviation on a count, times the
    cost, since a smaller deviation costs more in proportion.

    Without a δ the cost is the sum of the ε's; with a δ all kinds were made at the same ρ, and the
    deviation alone is returned.
    """
    std: float = noise.count_noise(request.sensitivity, labels=request.k)
    if request.delta:
        return std
    charge: Charge = noise.charge(request.sensitivity, labels=request.k)
    return std * pure_sum(charge)
