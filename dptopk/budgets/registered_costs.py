"""When a registered cost (a token) covers another: every mechanism with the cost satisfies the
token's statement too.

| token            | covers a cost, if a mechanism with it    | because                            |
|------------------|------------------------------------------|------------------------------------|
| PureDP(ε)        | is ε'-DP with ε' <= ε                    | ε-BR implies ε-DP (DDR Section 2)  |
| BoundedRange(ε)  | is ε'-BR with ε' <= ε                    | ε-DP implies 2ε-BR (DDR Section 2) |
| ExponentialClock | has the cost for ε' <= ε, or is ε-BR     | docs/notes/clocks.md               |
| ApproxDP(ε, δ)   | is (ε, δ)-DP by one of its statements    | both are monotone                  |
| MultiDP          | is (ε_i, δ_i)-DP for every constraint    | the token is their conjunction     |
| GaussianDP(μ)    | is μ'-GDP, also discrete, with μ' <= μ   | docs/notes/filters.md              |
| GaussianDP(μ)    | is ε-DP with μ >= 2Φ⁻¹(1-a)              | its trade-off curve lies lower     |
| DiscreteGaussian | has the same scale, no larger shift      | log-concave law (docs/theorems.md) |
| SparseGaussian   | has no more labels, shift or passing     | docs/notes/sparse-gaussian.md      |
| LabelCoins       | is the same coin with no more labels     | docs/notes/partition-selection.md  |
| ZCDP(ρ, ξ)       | is (ξ', ρ')-zCDP, ρ' <= ρ, sum no larger | ξ' + ρ'α <= ξ + ρα for all α > 1   |
| CDP(μ, τ)        | is (μ', τ')-CDP with μ' <= μ, τ' <= τ    | both are monotone                  |

In the second row of GaussianDP, a = 1/(1 + e^ε); "sum no larger" means ξ' + ρ' <= ξ + ρ.

Which token pays for which cost is a maximum flow (``match``): greedily from the largest cost, then
by augmenting paths.

The rule of each type of token stands with that type, in ``dptopk.accounting.cost_models``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

from dptopk.accounting.cost_models.conversions import implications_of, statements
from dptopk.accounting.cost_models.cost_registry import cost_model_of
from dptopk.costs import Cost

Demand = TypeVar("Demand", bound=Hashable)
Token = TypeVar("Token", bound=Hashable)


def dominates(token: Cost, cost: Cost) -> bool:
    """Return whether every mechanism with the cost satisfies the token's statement, by the table of
    this module.

    False means that the table does not say so.

    >>> from dptopk.costs import BoundedRange, PureDP
    >>> dominates(PureDP(0.1), BoundedRange(0.1)), dominates(BoundedRange(0.1), PureDP(0.1))
    (True, False)
    """
    return token == cost or cost_model_of(token).covers(token, cost)


def rough_size(cost: Cost) -> tuple[float, float]:
    """Return a rough size of a token, as a pair (ρ, δ): it decides only in which order tokens are
    tried.

    ρ is that of zCDP where the cost implies it, else half the variance of its loss.
    """
    if cost_model_of(cost).statements is not None:
        epsilon, delta = max(statements(cost))  # the one with the largest ε
        return epsilon**2 / 2, delta  # ε-DP is ε²/2-zCDP
    zcdp = implications_of(cost).zcdp
    if zcdp is not None:
        return sum(zcdp(cost)), 0.0
    pair = cost_model_of(cost).loss_components
    if pair is not None:
        variance = sum(part.spread() for part in pair({cost: 1}))
        return variance / 2, 0.0
    return 0.0, 0.0


def match(
    demands: Mapping[Demand, int],
    tokens: Mapping[Token, int],
    covers: Callable[[Token, Demand], bool],
    size: Callable[[Any], Any],
) -> dict[tuple[Demand, Token], int] | None:
    """Return how many of each token every demand uses, or None if the tokens do not suffice.

    Args:
        demands: what is wanted, with counts.
        tokens: what there is, with counts.
        covers: whether a token may serve a demand.
        size: sort key; large demands are served first, each by its smallest token.

    Returns:
        A maximum flow in the graph of kinds (with counts, not single tokens, as capacities): None
        is final.

    >>> match({"a": 2}, {1: 1, 2: 5}, lambda token, demand: True, lambda kind: kind)
    {('a', 1): 1, ('a', 2): 1}
    """
    free = Counter({token: times for token, times in tokens.items() if times})

    def suitable_tokens(demand: Demand) -> list[Token]:
        """Return the tokens that may serve a demand: its own kind first, then the smallest."""
        serving = [token for token in free if covers(token, demand)]
        return sorted(serving, key=lambda token: (token != demand, size(token)))

    tokens_of = {demand: suitable_tokens(demand) for demand in demands}
    flow: Counter[tuple[Demand, Token]] = Counter()
    for demand in sorted(demands, key=size, reverse=True):
        wanted = demands[demand]
        while wanted:
            path = _augmenting_path(demand, tokens_of, free, flow)
            if path is None:
                return None
            wanted -= _augment(path, wanted, free, flow)
    return {pair: times for pair, times in flow.items() if times}


def _augment(
    path: list[tuple[Demand, Token]],
    wanted: int,
    free: Counter[Token],
    flow: Counter[tuple[Demand, Token]],
) -> int:
    """Move as much as an augmenting path takes, at most what is wanted; return the number moved.

    Args:
        path: the pairs d0-t0, d1-t1, ... of the path; its last token is free.
        wanted: how many tokens the first demand wants.
        free: how many of each token are free; changed in place.
        flow: how many of each token every demand uses; changed in place.
    """
    _, last = path[-1]
    tokens_given_up = _reversed_pairs(path)
    moved = min(wanted, free[last], *(flow[back] for back in tokens_given_up))
    for pair in path:
        flow[pair] += moved
    for pair in tokens_given_up:
        flow[pair] -= moved
    free[last] -= moved
    return moved


def _reversed_pairs(path: list[tuple[Demand, Token]]) -> list[tuple[Demand, Token]]:
    """Return the assignments that an augmenting path d0-t0, d1-t1, ... takes back: d1 gives up t0,
    d2 gives up t1, ...
    """
    return [(later, token) for (_, token), (later, _) in pairwise(path)]


def _augmenting_path(
    start: Demand,
    suitable: Mapping[Demand, list[Token]],
    free: Mapping[Token, int],
    flow: Mapping[tuple[Demand, Token], int],
) -> list[tuple[Demand, Token]] | None:
    """Return the pairs of an augmenting path, found by breadth-first search; None where no token is
    free, directly or after others have moved.

    Args:
        start: the demand that wants a token.
        suitable: the tokens that each demand may use, in order.
        free: how many of each token are free.
        flow: how many of each token every demand uses.
    """
    # Each path leads to a demand that looks for another token, by the pairs that come before it.
    paths: deque[tuple[Demand, list[tuple[Demand, Token]]]] = deque([(start, [])])
    visited: set[Token] = set()
    while paths:
        demand, path = paths.popleft()
        unvisited = [token for token in suitable[demand] if token not in visited]
        for token in unvisited:
            if free[token]:
                return [*path, (demand, token)]
        for token in unvisited:
            visited.add(token)
            holders = [other for other, used in flow if used == token and flow[other, used]]
            paths.extend((other, [*path, (demand, token)]) for other in holders)
    return None
