"""Charges in the terms of other libraries: DpEvents and privacy loss distributions of
dp-accounting, OpenDP's measures.

| cost               | DpEvent (add_remove)  | PLD               | OpenDP, pure | OpenDP, zCDP     |
|--------------------|-----------------------|-------------------|--------------|------------------|
| PureDP(ε)          | DiscreteLaplace(ε, 1) | (ε, 0) parameters | ε            | exact ρ of ε     |
| LaplaceDP          | Laplace(scale/shift)  | Laplace           | ε            | exact ρ of ε     |
| BoundedRange(ε)    | none; as PureDP(ε)    | groups; as PureDP | ε            | exact ρ of ε     |
| ApproxDP(ε, δ)     | none                  | (ε, δ) parameters | ε, δ apart   | of ε, δ apart    |
| MultiDP            | none                  | none              | ε_1, δ apart | of ε, δ apart    |
| GaussianDP(μ)      | Gaussian(1/μ)         | Gaussian(1/μ)     | none         | μ²/2             |
| DiscreteGaussianDP | none                  | discrete Gaussian | none         | (shift/scale)²/2 |
| ZCDP, CDP          | none                  | none: no pair     | none         | itself, if ξ = 0 |
| delta of a charge  | none                  | (0, δ) parameters | apart        | apart            |

None is a refusal. Discrete Laplace noise of parameter ε on a count that moves by 1 *is* randomised
response RR(ε), the worst case of ε-DP. A bounded-range cost is no single pair: its worst case
depends on the adversary's t. A library that composes pairs can take all of a charge's together as
the pair of a group (``bounded_range="group"``), or each as ε-DP (``bounded_range="dp"``); either
must be asked for. What these libraries then compute is theirs; nothing here certifies it.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk._internal.rounding import ROUNDOFF
from dptopk.accounting.bounds import compose
from dptopk.accounting.cost_models.conversions import implied_parameters
from dptopk.accounting.cost_models.cost_registry import cost_model_of
from dptopk.accounting.cost_models.counterparts import stated_distribution
from dptopk.accounting.registry import split_failure
from dptopk.accounting.setwise.cost_groups import GroupPair
from dptopk.accounting.setwise.optimum import pairs_of_ranges
from dptopk.costs import BoundedRange, Charge, Cost, PureDP, sum_up
from dptopk.errors import IncompatibleCosts, InvalidParameter

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

BOUNDED_RANGE_AS = ("refuse", "dp")  # the values of ``bounded_range`` that all exports take
# A group's pair is sharp down to this δ, and splits ranges into groups for an ε to this relative
# tolerance.
GROUP_DELTA = 1e-10
GROUP_TOLERANCE = 1e-3
MEASURES = ("pure", "approximate", "zcdp", "approximate_zcdp")


def to_dp_event(charge: Charge, *, bounded_range: str = "refuse") -> DpEvent:
    """Return the charge as a ``dp_accounting.DpEvent``, for accountants with the relation
    ADD_OR_REMOVE_ONE.

    Args:
        charge: of PureDP and GaussianDP costs, without delta.
        bounded_range: "refuse", or "dp": take ε-BR as ε-DP, an upper bound.

    Returns:
        dp_accounting.DpEvent: a ComposedDpEvent of SelfComposedDpEvents. Exact for PureDP; a
        Gaussian's noise multiplier 1/μ is rounded down.

    Raises:
        IncompatibleCosts: naming the cost that has no event; also for replace_one, for which those
            accountants would change the sensitivity that our costs have in them already.
        InvalidParameter: when dp-accounting is not installed, or ``bounded_range`` is another word.

    >>> from dptopk.costs import GaussianDP
    >>> to_dp_event(Charge({GaussianDP(0.5): 3}))  # doctest: +ELLIPSIS
    ComposedDpEvent(events=[SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=1.99...
    """
    _require_package("dp_accounting", "dp-accounting")
    from dp_accounting import dp_event

    validate.member(BOUNDED_RANGE_AS, bounded_range=bounded_range)
    costs = _convertible_costs(charge, bounded_range)
    if charge.neighbours != "add_remove":
        raise IncompatibleCosts(
            f"events are for add_remove neighbours, the charge is for {charge.neighbours}"
        )
    if charge.delta:
        raise IncompatibleCosts(
            "there is no event for a mass of bad events (delta); to_pld takes it"
        )
    events = []
    for cost, times in costs:
        event = _counterpart_of(cost, "dp_event", "DpEvent")
        events.append(dp_event.SelfComposedDpEvent(event, times))
    return dp_event.ComposedDpEvent(events)


def to_pld(
    charge: Charge, *, interval: float = 1e-4, bounded_range: str = "refuse"
) -> PrivacyLossDistribution:
    """Return the charge as a dp-accounting ``PrivacyLossDistribution``, composed, with pessimistic
    rounding.

    Args:
        charge: of PureDP, ApproxDP, BoundedRange, LaplaceDP, DiscreteLaplaceDP, GaussianDP and
            DiscreteGaussianDP costs, and a delta.
        interval: > 0, step of the grid of losses; time and memory grow as it falls.
        bounded_range: "refuse"; "dp": take ε-BR as ε-DP, an upper bound; "group": the pairs of
            groups of all BR costs of the charge, rounded outward on the grid. By Theorem C
            (docs/notes/setwise.md) they bound every adaptive game with these costs next to any
            other cost, so the distribution may be composed with others.

    Returns:
        PrivacyLossDistribution: its ``get_epsilon_for_delta`` is an estimate from above, up to that
        library's floating-point error and the tail it cuts off a discrete Gaussian.

    Raises:
        IncompatibleCosts: naming the cost that has no privacy loss distribution.
        InvalidParameter: on an interval that is not positive or another word for
            ``bounded_range``, and when dp-accounting is not installed.

    >>> pld = to_pld(Charge({PureDP(0.1): 25}, delta=1e-7), interval=1e-3)
    >>> round(pld.get_epsilon_for_delta(1e-6), 2)
    2.08
    """
    _require_package("dp_accounting", "dp-accounting")
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = validate.positive(interval=interval)
    validate.member((*BOUNDED_RANGE_AS, "group"), bounded_range=bounded_range)
    total = pld.identity(value_discretization_interval=step)
    grouped: dict[Cost, int] = {**charge.of(BoundedRange)} if bounded_range == "group" else {}
    name = "privacy loss distribution"
    costs = _convertible_costs(charge, bounded_range)
    parts = []
    for cost, times in costs:
        if cost not in grouped:
            parts.append((_counterpart_of(cost, "pld", name, step), times))
    if grouped:
        pairs = pairs_of_ranges(Charge(grouped), delta=GROUP_DELTA, tolerance=GROUP_TOLERANCE)
        parts += [(_group_distribution(pair.on_grid(step), step), pair.count) for pair in pairs]
    for part, times in parts:
        total = total.compose(part.self_compose(times) if times > 1 else part)
    if charge.delta:
        return total.compose(stated_distribution(0.0, charge.delta, step))
    return total


def charge_rho(charge: Charge, *, exact: bool = True) -> float:
    """Return a ρ for which the whole charge is ρ-zCDP, rounded up: the sum of those of its costs.

    Args:
        charge: any costs but ApproxDP, MultiDP with an atom, and zCDP with ξ > 0; delta 0.
        exact: the smallest constants, such as ε tanh(ε/2) (docs/notes/zcdp-constants.md); False:
            the published ones, ε²/2 and ε²/8, which are what other libraries use.

    Raises:
        IncompatibleCosts: on a cost without such a ρ, or a charge with delta.

    >>> round(charge_rho(Charge({BoundedRange(0.1): 100}), exact=False), 12)
    0.125
    """
    failure_free, failure = split_failure(charge)
    if charge.delta or failure:
        raise IncompatibleCosts(
            "a charge with delta is approximate zCDP: ask to_opendp for approximate_zcdp"
        )
    rhos = []
    for cost, times in failure_free:
        xi, rho = implied_parameters(cost, "exact_zcdp" if exact else "zcdp")
        if xi > 0:
            raise IncompatibleCosts(f"{cost} is no ρ-zCDP cost with ξ = 0")
        rhos.append(sum_up({rho: times}))
    return sum_up(rhos)


def to_opendp(
    charge: Charge, measure: str = "zcdp", *, delta: float | None = None
) -> tuple[Any, Any]:
    """Return OpenDP's privacy measure and the distance in it that covers the whole charge, rounded
    up.

    Args:
        charge: what was spent.
        measure: "pure" -> (max_divergence, ε); "approximate" -> (approximate(max_divergence), (ε,
            δ)); "zcdp" -> (zero_concentrated_divergence, ρ); "approximate_zcdp" ->
            (approximate(zcdp), (ρ, δ)).
        delta: in (0, 1), for "approximate" alone: then ε is that of ``compose`` at this δ, of
            whatever costs; without it ε is the sum. OpenDP takes no pair of laws, so this is the
            closest statement of a whole charge that it can take.

    Raises:
        IncompatibleCosts: when the charge has no finite distance in that measure.
        InvalidParameter: on another measure, a delta outside its range or with a measure that takes
            none, and when opendp is not installed.

    >>> to_opendp(Charge({PureDP(0.5): 2}), "pure")
    (MaxDivergence, 1.0)
    """
    _require_package("opendp", "opendp")
    import opendp.prelude as dp

    validate.member(MEASURES, measure=measure)
    if delta is not None:
        if measure != "approximate":
            raise InvalidParameter(f"delta is for the measure 'approximate', got {measure!r}")
        epsilon = _composed_epsilon(charge, validate.probability(delta=delta, allow_zero=False))
        return dp.approximate(dp.max_divergence()), (epsilon, delta)
    failure_free, failure = split_failure(charge)
    own_delta = sum_up([charge.delta, failure])
    approximate = measure.startswith("approximate")
    if own_delta and not approximate:
        raise IncompatibleCosts(f"{measure} has no room for delta; use an approximate measure")
    if "zcdp" in measure:
        inner = dp.zero_concentrated_divergence()
        distance = charge_rho(failure_free)
    else:
        inner = dp.max_divergence()
        distance = sum_up(
            [sum_up({implied_parameters(cost, "pure"): n}) for cost, n in failure_free]
        )
    if approximate:
        return (dp.approximate(inner), (distance, own_delta))
    return (inner, distance)


def _composed_epsilon(charge: Charge, delta: float) -> float:
    """Return the ε of a charge at δ, by ``compose``.

    Raises:
        IncompatibleCosts: where it is infinite.
    """
    total = compose(charge, delta=delta, lower=False)
    if not math.isfinite(total.epsilon):
        raise IncompatibleCosts(f"{charge} has no finite epsilon at delta={delta}")
    return total.epsilon


def _convertible_costs(charge: Charge, bounded_range: str) -> list[tuple[Cost, int]]:
    """Return the costs with counts, bounded range as pure DP where ``bounded_range`` is "dp".

    Raises:
        InvalidParameter: when ``charge`` is no Charge.
    """
    validate.instance(Charge, charge=charge)
    costs: list[tuple[Cost, int]] = []
    for cost, times in charge:
        if bounded_range == "dp" and isinstance(cost, BoundedRange):
            costs.append((PureDP(cost.epsilon), times))
        else:
            costs.append((cost, times))
    return costs


def _counterpart_of(cost: Cost, counterpart: str, name: str, *arguments: float) -> Any:
    """Return what stands for a cost in dp-accounting, an event or a distribution.

    Args:
        cost: the cost.
        counterpart: "dp_event" or "pld", the field of ``CostModel`` whose function makes it.
        name: what an error calls it.
        arguments: what that function takes besides the cost: for "pld" the interval of the grid.

    Raises:
        IncompatibleCosts: where it has none.
    """
    model = cost_model_of(cost)
    make = getattr(model, counterpart)
    if make is None:
        raise IncompatibleCosts(f"{cost} as a {name}: {model.no_counterpart}")
    return make(cost, *arguments)


def _group_distribution(pair: GroupPair, interval: float) -> PrivacyLossDistribution:
    """Return a group's pair as a privacy loss distribution, the same for both directions: a group's
    game is closed under swapping the neighbours.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution as pld

    # The losses are multiples of the interval.
    nodes = np.rint(pair.losses / interval).astype(int).tolist()
    # Of a logarithm and of the exponential of it: a few units of roundoff, of its size.
    rounding = 8 * ROUNDOFF * (1 + np.abs(pair.log_masses))
    masses = np.exp(pair.log_masses) * (1 + rounding)
    losses = dict(zip(nodes, masses.tolist(), strict=True))
    return pld.PrivacyLossDistribution(
        pld_pmf.create_pmf(losses, interval, pair.infinite, pessimistic_estimate=True)
    )


def _require_package(module: str, package: str) -> None:
    """Raise where the package that provides a module is not installed.

    Raises:
        InvalidParameter: with the command that installs it.
    """
    if find_spec(module) is None:
        raise InvalidParameter(f"this needs {package}: pip install {package}")
