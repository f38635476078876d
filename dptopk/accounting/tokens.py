"""When a registered cost (a token) covers another: every mechanism with the cost satisfies the token's statement too.

| token             | covers, when the mechanism with the cost ...            | because                                |
|-------------------|---------------------------------------------------------|----------------------------------------|
| PureDP(ε)         | is ε'-DP with ε' <= ε                                   | ε-BR implies ε-DP (DDR Section 2)      |
| BoundedRange(ε)   | is ε'-BR with ε' <= ε                                   | ε-DP implies 2ε-BR (DDR Section 2)     |
| ApproxDP(ε, δ)    | is (ε, δ)-DP by one of its statements                   | both are monotone                      |
| MultiDP           | is (ε_i, δ_i)-DP for every constraint                   | the token is their conjunction         |
| GaussianDP(μ)     | is μ'-Gaussian, μ' <= μ, or ε-DP, μ >= 2Φ⁻¹(1-a)      | the trade-off curve lies lower, below  |
| DiscreteGaussian  | has the same scale and no larger shift                  | log-concave law (docs/theorems.md)     |
| ZCDP(ρ, ξ)        | is (ξ', ρ')-zCDP, ρ' <= ρ and ξ' + ρ' <= ξ + ρ          | ξ' + ρ'α <= ξ + ρα for all α > 1       |
| CDP(μ, τ)         | is (μ', τ')-CDP with μ' <= μ and τ' <= τ                | both are monotone                      |

Which token pays for which cost is a maximum flow (``match``): greedily from the largest cost, then by augmenting paths.

The ε-DP trade-off function is the segment chain (0,1), (a,a), (1,0), a = 1/(1+e^ε). A convex trade-off curve with the
same ends lies below it as soon as it does at the corner; for the Gaussian, Φ(Φ⁻¹(1-a) - μ) <= a is μ >= 2Φ⁻¹(1-a).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeVar

from dptopk.accounting.conversions import implied
from dptopk.costs import (
    CDP,
    ZCDP,
    ApproxDP,
    BoundedRange,
    Cost,
    DiscreteGaussianDP,
    GaussianDP,
    MultiDP,
    PureDP,
)

__all__ = ["dominates", "match", "size"]

Demand = TypeVar("Demand", bound=Hashable)
Token = TypeVar("Token", bound=Hashable)


def _plain(cost: Cost) -> Cost | None:
    """A cost that this one implies and that has no δ, for the table of ``conversions``; None when there is none."""
    if not isinstance(cost, ApproxDP | MultiDP):
        return cost
    pure = [epsilon for epsilon, delta in _statements(cost) if delta == 0]
    return PureDP(min(pure)) if pure else None


def _pure_of(cost: Cost) -> float:
    """The smallest ε for which the cost is known to imply ε-DP, inf when none is."""
    plain = _plain(cost)
    pure = implied(plain).pure if plain else None
    return pure(plain) if pure else math.inf


def _statements(cost: Cost) -> tuple[tuple[float, float], ...]:
    """Pairs (ε, δ) for which the cost implies (ε, δ)-DP."""
    if isinstance(cost, MultiDP):
        return cost.constraints
    if isinstance(cost, ApproxDP):
        return ((cost.epsilon, cost.delta),)
    return ((_pure_of(cost), 0.0),)


def _is_approx(cost: Cost, epsilon: float, delta: float) -> bool:
    return any(e <= epsilon and d <= delta for e, d in _statements(cost))


def _bounded_range(token: BoundedRange, cost: Cost) -> bool:
    return (cost.epsilon if isinstance(cost, BoundedRange) else 2 * _pure_of(cost)) <= token.epsilon


def _gaussian(token: GaussianDP, cost: Cost) -> bool:
    if isinstance(cost, GaussianDP):
        return cost.mu <= token.mu
    epsilon = _pure_of(cost)
    if not epsilon < math.inf:
        return False
    from scipy.special import expit, ndtri

    return bool(token.mu >= -2 * ndtri(expit(-epsilon)) * (1 + 1e-12))


def _discrete_gaussian(token: DiscreteGaussianDP, cost: Cost) -> bool:
    return isinstance(cost, DiscreteGaussianDP) and cost.scale == token.scale and cost.shift <= token.shift


def _zcdp(token: ZCDP, cost: Cost) -> bool:
    plain = _plain(cost)
    zcdp = implied(plain).zcdp if plain else None
    if zcdp is None:
        return False
    xi, rho = zcdp(plain)
    return rho <= token.rho and Fraction(xi) + Fraction(rho) <= Fraction(token.xi) + Fraction(token.rho)


def _cdp(token: CDP, cost: Cost) -> bool:
    plain = _plain(cost)
    cdp = implied(plain).cdp if plain else None
    if cdp is None:
        return False
    mu, tau = cdp(plain)
    return mu <= token.mu and tau <= token.tau


_COVERS: dict[type[Cost], Callable[[Any, Cost], bool]] = {
    PureDP: lambda token, cost: _pure_of(cost) <= token.epsilon,
    BoundedRange: _bounded_range,
    ApproxDP: lambda token, cost: _is_approx(cost, token.epsilon, token.delta),
    MultiDP: lambda token, cost: all(_is_approx(cost, *constraint) for constraint in token.constraints),
    GaussianDP: _gaussian,
    DiscreteGaussianDP: _discrete_gaussian,
    ZCDP: _zcdp,
    CDP: _cdp,
}


def dominates(token: Cost, cost: Cost) -> bool:
    """Whether every mechanism with the cost satisfies the token's statement, by the table of this module.

    False means that the table does not say so.

    >>> dominates(PureDP(0.1), BoundedRange(0.1)), dominates(BoundedRange(0.1), PureDP(0.1))
    (True, False)
    """
    return token == cost or _COVERS[type(token)](token, cost)


def size(cost: Cost) -> tuple[float, float]:
    """How much a token is worth, about: (zCDP-like ρ, δ); only the order in which tokens are tried depends on it."""
    if isinstance(cost, ApproxDP | MultiDP):
        epsilon, delta = max(_statements(cost))
        return epsilon**2 / 2, delta
    zcdp = implied(cost).zcdp
    return (sum(zcdp(cost)) if zcdp else 0.0), 0.0


def match(
    demands: Mapping[Demand, int],
    tokens: Mapping[Token, int],
    covers: Callable[[Token, Demand], bool],
    size: Callable[[Any], Any],
) -> dict[tuple[Demand, Token], int] | None:
    """How many of each token every demand uses, or None when the tokens do not suffice.

    Args:
        demands: what is wanted, with counts.
        tokens: what there is, with counts.
        covers: whether a token may serve a demand.
        size: sort key; large demands are served first, each by its smallest token.

    Returns:
        A maximum flow in the graph of kinds (with counts, not single tokens, as capacities): None is final.

    >>> match({"a": 2}, {1: 1, 2: 5}, lambda token, demand: True, lambda kind: kind)
    {('a', 1): 1, ('a', 2): 1}
    """
    suitable = {
        demand: sorted((t for t, n in tokens.items() if n and covers(t, demand)), key=lambda t: (t != demand, size(t)))
        for demand in demands
    }
    free = Counter({token: times for token, times in tokens.items() if times})
    flow: Counter[tuple[Demand, Token]] = Counter()
    for demand in sorted(demands, key=size, reverse=True):
        wanted = demands[demand]
        while wanted:
            path = _augmenting_path(demand, suitable, free, flow)
            if path is None:
                return None
            moved = min(wanted, free[path[-1][1]], *(flow[back] for back in _given_up(path)))
            for pair in path:
                flow[pair] += moved
            for pair in _given_up(path):
                flow[pair] -= moved
            free[path[-1][1]] -= moved
            wanted -= moved
    return {pair: times for pair, times in flow.items() if times}


def _given_up(path: list[tuple[Demand, Token]]) -> list[tuple[Demand, Token]]:
    """The assignments that an augmenting path d0-t0, d1-t1, ... takes back: d1 gives up t0, d2 gives up t1, ..."""
    return [(later, token) for (_, token), (later, _) in pairwise(path)]


def _augmenting_path(
    start: Demand,
    suitable: Mapping[Demand, list[Token]],
    free: Mapping[Token, int],
    flow: Mapping[tuple[Demand, Token], int],
) -> list[tuple[Demand, Token]] | None:
    """Breadth-first search for a token that is free, directly or after others have moved."""
    paths: deque[tuple[Demand, list[tuple[Demand, Token]]]] = deque([(start, [])])
    seen: set[Token] = set()
    while paths:
        demand, path = paths.popleft()
        fresh = [token for token in suitable[demand] if token not in seen]
        for token in fresh:
            if free[token]:
                return [*path, (demand, token)]
        for token in fresh:
            seen.add(token)
            paths.extend(
                (other, [*path, (demand, token)]) for other, used in flow if used == token and flow[other, used]
            )
    return None
