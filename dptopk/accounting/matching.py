"""Assign costs to tokens: greedily from the largest, then exactly by augmenting paths where greed fails."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

__all__ = ["match"]

Demand = TypeVar("Demand", bound=Hashable)
Token = TypeVar("Token", bound=Hashable)


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
