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


def _draw(
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
        delta = {"delta": OWN_DELTA * request.delta} if own_delta else {}
        return kind(k=request.k, epsilon=scale(rho), **delta, **options)

    return build


_JOINT = _draw(JointTopK, range_epsilon)
_CANONICAL = _draw(CanonicalTopK, range_epsilon)
_ONE_SHOT = _draw(OneShotTopK, pure_epsilon)
# Labels alone: name, draw, and whether its noise can be told without the gaps. Of a set, in no
# order, the first row is no better than the last.
DRAWS: tuple[tuple[str, Draw, bool], ...] = (
    ("joint draw", _JOINT, False),
    ("canonical draw", _CANONICAL, False),
    ("one-shot draw", _ONE_SHOT, True),
    ("routed draw", _draw(RoutedTopK, pure_epsilon, own_delta=True), False),
)
# And then counts: name, draw, whether it is in order, so that counts can be fitted to it, and the
# last as above.
COUNTED_DRAWS: tuple[tuple[str, Draw, bool, bool], ...] = (
    ("canonical draw", _CANONICAL, False, False),
    ("one-shot draw", _ONE_SHOT, True, True),
    ("routed draw", _draw(RoutedTopK, pure_epsilon, ordered=True), True, False),
)


def then_counts(
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
        """Return the two mechanisms, whose shares of ρ the split says."""
        usable = [each for each in counts if request.delta or each[0] != "gaussian"]
        allowed = [make for noise, make in usable if request.counts in ("auto", noise)]
        noise = min(
            (make(request, (1 - split.selection) * rho) for make in allowed),
            key=lambda n: _price(request, n),
        )
        fitted = ordered and request.fit and noise.fitted
        return draw(request, split.selection * rho), CountMLE(noise=noise) if fitted else noise

    return build


def _price(request: Request, noise: Any) -> float:
    """Return the standard deviation of the noise on a count times what the noise costs: with a δ
    all kinds cost the same ρ, without one the cost is the sum of the ε's.
    """
    std: float = noise.count_noise(request.sensitivity, labels=request.k)
    if request.delta:
        return std
    charge: Charge = noise.charge(request.sensitivity, labels=request.k)
    return std * pure_sum(charge)
