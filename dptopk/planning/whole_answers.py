"""Designs for public labels that draw the whole answer at once, at one price, and perhaps count it
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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

# A function that builds the mechanism of a draw, or of counts, from a request and the ρ that the
# mechanism may cost.
BuildDraw = Callable[[Request, float], Any]
# The δ of a mechanism that needs one of its own, as a share of the total; the rest is for the
# composition. Chosen by hand: the mechanism depends on its δ by the logarithm alone, so that the
# share matters little.
OWN_DELTA = 0.9


class CountNoise(NamedTuple):
    """A kind of noise on the counts after a draw.

    Attributes:
        name: "gaussian", "laplace" or "box", as a request asks for it.
        build: the function that returns the mechanism of the counts for a request and its ρ.
    """

    name: str
    build: BuildDraw


@dataclass(frozen=True)
class WholeDraw:
    """A way to draw all k labels at once.

    Attributes:
        name: the draw in words.
        build: the function that returns the mechanism for a request and its ρ.
        additive: as ``Design.additive``: whether the k labels are those of the largest counts with
            independent noise of one law.
        ordered: whether labels are drawn in an order, so that counts can be fitted to it.
    """

    name: str
    build: BuildDraw
    additive: bool
    ordered: bool = False


def _builder(
    kind: Any, scale: Callable[[float], float], *, own_delta: bool = False, **options: Any
) -> BuildDraw:
    """Return a function that builds a mechanism from a request and ρ.

    Args:
        kind: the class of the mechanism.
        scale: the function from ρ to the ε of the mechanism.
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
# Draws of labels alone.
DRAWS = (
    WholeDraw("joint draw", _JOINT, additive=False),
    WholeDraw("canonical draw", _CANONICAL, additive=False),
    WholeDraw("one-shot draw", _ONE_SHOT, additive=True),
    WholeDraw("routed draw", _builder(RoutedTopK, pure_epsilon, own_delta=True), additive=False),
)
# Draws after which the labels are counted.
DRAWS_BEFORE_COUNTS = (
    WholeDraw("canonical draw", _CANONICAL, additive=False),
    WholeDraw("one-shot draw", _ONE_SHOT, additive=True, ordered=True),
    WholeDraw(
        "routed draw",
        _builder(RoutedTopK, pure_epsilon, ordered=True),
        additive=False,
        ordered=True,
    ),
)


def draw_and_counts(
    draw: WholeDraw, kinds_of_counts: tuple[CountNoise, ...]
) -> Callable[..., tuple[Any, ...]]:
    """Return a function that builds the draw, and then counts with the noise that is least for its
    cost.

    Args:
        draw: the draw of labels.
        kinds_of_counts: the kinds of noise on the counts that are compared.
    """

    def build(request: Request, split: Split, rho: float) -> tuple[Any, ...]:
        """Return both mechanisms; the split says which share of ρ the draw has."""
        rho_of_counts = (1 - split.selection) * rho
        noises = [
            kind.build(request, rho_of_counts)
            for kind in kinds_of_counts
            if request.counts in ("auto", kind.name)
            and (request.delta or kind.name != "gaussian")  # Gaussian noise needs a δ
        ]
        noise = min(noises, key=lambda noise: _noise_times_cost(request, noise))
        selection = draw.build(request, split.selection * rho)
        if draw.ordered and request.fit and noise.fitted:
            return selection, CountMLE(noise=noise)
        return selection, noise

    return build


def _noise_times_cost(request: Request, noise: Any) -> float:
    """Return the number by which kinds of noise are compared, the smaller the better: the standard
    deviation on a count times the cost, since noise of half the deviation costs twice as much.

    Without a δ the cost is the sum of the ε's; with a δ all kinds were made at the same ρ, and the
    deviation alone is returned.

    Args:
        request: the question.
        noise: the mechanism of the counts.
    """
    std: float = noise.count_noise(request.sensitivity, labels=request.k)
    if request.delta:
        return std
    charge: Charge = noise.charge(request.sensitivity, labels=request.k)
    return std * pure_sum(charge)
