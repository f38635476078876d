"""Metrics of filters: for each method a capacity, and the price of a cost.

A metric is sound when any adaptive play, in which each cost is chosen freely after all answers so
far, satisfies δ(ε) <= δ as long as the prices of what ran add up to at most the capacity. Prices
are rounded up, capacities down.

| metric       | prices                                | capacity                                 |
|--------------|---------------------------------------|------------------------------------------|
| ``pure``     | ε of a pure cost                      | ε; then no loss exceeds ε                |
| ``renyi``    | a bound on ln E[e^{λL}], λ fixed      | λε + λ ln(1 + 1/λ) + ln(1 + λ) - ln(1/δ) |
| ``ranges``   | an integer for each declared cost     | the largest S with W_S(ε) <= δ           |
| ``gaussian`` | μ² of a Gaussian that covers the cost | μ² with δ_μ(ε) <= δ                      |
| ``variance`` | 2 ρ or a covering μ²; see ``used``    | μ² with δ_μ(ε) <= δ, Theorem H'          |
| ``small``    | of older ledgers: 2 (1 + β) ρ         | T with G_φ(T)(ε) <= δ                    |
| ``zcdp``     | ξ + ρ of the cost's (ξ, ρ)-zCDP       | ρ (and then all is ρ-zCDP)               |

A price is a float; where a price of ``zcdp`` is a fraction that no decimal equals, it is its text.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from dptopk._internal.choices import Effort
from dptopk._internal.rounding import (
    ROUNDOFF,
    decimal,
    decimal_up,
    smaller_of,
    sum_decimals,
    sum_up,
)
from dptopk._internal.search import bisect, bracket
from dptopk.accounting.cost_models.conversions import cost_with_row, implications_of, pure_epsilons
from dptopk.accounting.gaussian.pair import gaussian_mu
from dptopk.accounting.pld.log_mgf import LOG_MGF_ERROR
from dptopk.accounting.registry import split_failure
from dptopk.accounting.renyi.renyi_curves import log_mgf
from dptopk.accounting.setwise.price_game import (
    affordable_copies,
    capacity as price_capacity,
    proportional_prices,
    weights_of,
)
from dptopk.accounting.setwise.zcdp_gaussian import (
    LARGEST_RHO,
    SmallCostBudget,
    concentrated_gaussian,
    zcdp_constant,
)
from dptopk.accounting.work import STAGES, OutOfTime, Work
from dptopk.budgets.account_base import cost_of
from dptopk.costs import (
    CDP,
    ZCDP,
    BoundedRange,
    Charge,
    Cost,
    DiscreteGaussianDP,
    GaussianDP,
    PureDP,
)
from dptopk.errors import IncompatibleCosts, InvalidParameter, NotApplicable

MOST_LAYERS = 2500  # of a price game, about: a guess at what takes a few seconds
MOST_COPIES_ALONE = 1000  # below this many copies of a single cost are composed to find its price

Price = float | str
Number = int | float  # of copies of a cost
# A price may be a fraction up to this denominator: then sums of any of them have few digits.
LARGEST_DENOMINATOR = 5000

# A Gaussian that covers a cost at up to this many times its 2 ρ takes its place.
NEARLY_GAUSSIAN = 1.02
# Multiples of a charge that are told apart, and how closely, relatively.
LEAST_MULTIPLE = 2.0**-20
MOST_MULTIPLE = 2.0**60
MULTIPLE_TOLERANCE = 1e-9
DELTA_ROUNDING = 2**-52  # relative: twice a unit of roundoff, for the logarithm of a δ
CAPACITY_ROUNDING = 1e-15  # of the sizes of four terms: several units of roundoff
SQUARE_ROUNDING = 1e-12  # relative, far above that of a square
# ln λ of the best order is looked for between these, on grids of this many points; each of the
# rounds leaves the two cells around the best point.
SMALLEST_LOG_ORDER = -20.0
LARGEST_LOG_ORDER = 40.0
ORDERS = 60
ORDER_ROUNDS = 6
MOST_CUTS = 8  # at most so many of the largest costs are replaced by Gaussians that cover them
# The capacity of declared costs is what its work was enough for: this many times that of one bound.
CAPACITY_WORK = 10.0


class Metric(ABC):
    """One method of a filter: its capacity, and what it takes for a cost.

    Attributes:
        name: the method's name, one of those in the table of this module.
        capacity: what the prices may add up to.
        words: what is summed up, in words, for messages.
        decimals: whether a price such as 0.1 counts as the decimal 1/10; False: as the float, which
            is a little more.
        terms: all that defines the metric, as JSON; ``metric_of`` reads it.
        margin: the share of the capacity that new charges must leave free, so that what was
            accepted once is within the capacity on every processor, however it rounds.
    """

    name: str
    words: str
    capacity: Fraction
    terms: dict[str, Any]
    decimals = False
    margin = Fraction(0)

    def used(self, prices: Fraction, *spent: Mapping[Cost, Number]) -> Fraction:  # noqa: ARG002
        """Return what costs take of the capacity.

        Args:
            prices: the sum of their prices.
            spent: the costs themselves with their numbers, in one mapping or several that are
                added up; only some methods need them.
        """
        return prices

    def multiple(self, charge: Charge) -> float:
        """Return an estimate of the largest multiple of a charge, a real number, that the capacity
        holds by itself; 0 where a cost has no price, or a number of costs is too large for a
        float.
        """
        failure_free, _ = split_failure(charge)
        sum_of_prices = Fraction(0)
        numbers: dict[Cost, float] = {}
        try:
            for cost, times in failure_free:
                sum_of_prices += times * self.read(self.price(Charge({cost: 1})))
                numbers[cost] = float(times)
        except (IncompatibleCosts, OverflowError):
            return 0.0

        def fits(times: float) -> bool:
            """Return whether this multiple of the charge is within the capacity."""
            spent = {cost: times * number for cost, number in numbers.items()}
            return self.used(Fraction(times) * sum_of_prices, spent) <= self.capacity

        low, high = bracket(fits, 1.0, least=LEAST_MULTIPLE, most=MOST_MULTIPLE)
        multiple, _ = bisect(fits, low, high, rtol=MULTIPLE_TOLERANCE, geometric=True)
        return multiple

    def read(self, price: Price) -> Fraction:
        """Return the exact number that a price stands for.

        Raises:
            TypeError: for a text, which only prices of ``Zcdp`` are.
        """
        if isinstance(price, str):
            raise TypeError("a price is a number")
        if self.decimals:
            return decimal(price)
        return Fraction(price)

    @abstractmethod
    def price(self, charge: Charge) -> Price:
        """Return the price of one cost, a finite number, rounded up.

        Args:
            charge: the cost without its failure mass, as a charge of one copy.

        Raises:
            IncompatibleCosts: when the method has no price for it.
        """


class Pure(Metric):
    """The sum of the ε's of pure costs: as long as it is at most the capacity ε, no privacy loss
    exceeds ε, so that δ(ε) = 0.
    """

    name = "pure"
    words = "the sum of epsilons"

    def __init__(self, epsilon: float, *, decimals: bool = False) -> None:
        """Take ε as the capacity; as its decimal or, as older ledgers have it, as its float."""
        self.decimals = decimals  # False in older ledgers
        self.capacity = self.read(epsilon)
        self.terms = {"name": self.name, "epsilon": epsilon}
        if decimals:
            self.terms["decimals"] = True

    def price(self, charge: Charge) -> float:
        """Return the cost's ε.

        Raises:
            IncompatibleCosts: when it is no pure cost.
        """
        try:
            return sum_decimals(pure_epsilons(charge))
        except NotApplicable as reason:
            raise IncompatibleCosts(f"a budget with delta 0 takes pure DP only: {reason}") from None


class Zcdp(Metric):
    """The sum of the ρ: all chosen costs together are ρ-zCDP (Feldman-Zrnic 2021, at every order at
    once).
    """

    name = "zcdp"
    words = "the sum of rhos"
    decimals = True

    def __init__(self, rho: float) -> None:
        """Take ρ as the capacity."""
        self.capacity = decimal(rho)
        self.terms = {"name": self.name, "rho": rho}

    def read(self, price: Price) -> Fraction:
        """Return the decimal of a number; a fraction as it is written."""
        if isinstance(price, str):
            return Fraction(price)
        return decimal(price)

    def price(self, charge: Charge) -> Price:
        """Return the cost's ξ + ρ, of the smallest ρ known: ξ + ρα <= (ξ + ρ)α for all α > 1.

        Where ρ is a rational function of the cost's parameters it is computed exactly, on the
        decimals that were declared.

        Raises:
            IncompatibleCosts: when it implies no zCDP.
        """
        ((cost, _),) = charge
        exact = declared_rho(cost)
        if exact is not None:
            return _price_of_fraction(exact)
        covering = cost_with_row(cost)
        zcdp = None if covering is None else implications_of(covering).exact_zcdp
        if zcdp is None or covering is None:
            raise IncompatibleCosts(f"{cost} implies no zCDP")
        return decimal_up(Fraction(sum_up(list(zcdp(covering)))))


def declared_rho(cost: Cost) -> Fraction | None:
    """Return ξ + ρ of a cost by its decimals, exactly; None where it is no rational number.

    For (μ, τ)-CDP that is τ²/2, whatever μ is (cost_models/concentrated_costs.py). Discrete noise
    is drawn at the scale's float, so the smaller of the float and its decimal is taken, which
    covers both; a μ that is computed from noise has a margin above the decimal
    (docs/notes/notation.md, "Decimals").
    """
    match cost:
        case ZCDP():
            return decimal(cost.xi) + decimal(cost.rho)
        case GaussianDP():
            return decimal(cost.mu) ** 2 / 2
        case DiscreteGaussianDP():
            return (cost.shift / smaller_of(cost.scale)) ** 2 / 2
        case CDP():
            return decimal(cost.tau) ** 2 / 2
    return None


def _price_of_fraction(exact: Fraction) -> Price:
    """Return a price that reads as an exact number or, where that has too many digits, as the next
    decimal above it.
    """
    rounded = decimal_up(exact)
    if exact.denominator > LARGEST_DENOMINATOR or math.isinf(rounded):
        return rounded
    if decimal(rounded) == exact:
        return rounded
    return str(exact)


class Renyi(Metric):
    """The Rényi sum at one order (Feldman-Zrnic 2021, Lécuyer 2021; conversion: CKS20, Proposition
    12).

    Args:
        order: λ > 0, Rényi order minus 1.
        capacity: the largest sum of prices, as ``_renyi_capacity`` computes it.
    """

    name = "renyi"

    def __init__(self, order: float, capacity: float) -> None:
        """Take the order λ and the capacity as they are."""
        self.order = order
        self.capacity = Fraction(capacity)
        self.terms = {"name": self.name, "order": order, "capacity": capacity}
        self.words = f"the Rényi budget at order {1 + order:.4g}"

    @classmethod
    def at(cls, epsilon: float, delta: float, order: float | None) -> Renyi:
        """Return the metric for a total (ε, δ).

        Args:
            epsilon: ε of the total.
            delta: δ of the total.
            order: λ; None: the best one for zCDP costs.
        """
        # δ is rounded down, so that this is at least ln(1/δ).
        log_inverse_delta = -math.log(delta * (1 - DELTA_ROUNDING))
        if order is None:
            order = best_order(epsilon, log_inverse_delta)
        return cls(order, _renyi_capacity(epsilon, log_inverse_delta, order))

    def price(self, charge: Charge) -> float:
        """Return an upper bound on the cost's ln E[e^{λL}].

        Raises:
            IncompatibleCosts: when none is finite at this order.
        """
        moment = float(log_mgf(charge)(np.array([self.order]))[0])
        value = moment * (1 + 4 * LOG_MGF_ERROR)  # its relative error, and that of the product
        if not math.isfinite(value):
            raise IncompatibleCosts(f"no Rényi bound for {charge}")
        return value


class Ranges(Metric):
    """The price game: declared ranges and other costs in any order, at integer prices
    (docs/notes/filters.md).

    Args:
        prices: the integer price of each declared cost.
        capacity: a sum of prices S with W_S(ε) <= δ, where W_S(ε) bounds the δ at ε of all costs
            whose prices add up to at most S.
    """

    name = "ranges"

    def __init__(self, prices: Mapping[Cost, int], capacity: int) -> None:
        """Sort the declared costs, the cheapest first."""
        cheapest_first = sorted(prices, key=lambda cost: (prices[cost], str(cost)))
        self.prices = {cost: prices[cost] for cost in cheapest_first}
        self.capacity = Fraction(capacity)
        self.terms = {
            "name": self.name,
            "prices": [[str(cost), n] for cost, n in self.prices.items()],
        }
        self.terms["capacity"] = capacity
        self.words = "the prices of " + ", ".join(str(cost) for cost in self.prices)

    @classmethod
    def at(
        cls, epsilon: float, delta: float, costs: Sequence[Cost], effort: Effort = "normal"
    ) -> Ranges:
        """Return the metric for a total (ε, δ) and these declared costs, with prices that suit
        them.

        Args:
            epsilon: ε of the total.
            delta: δ of the total.
            costs: the declared costs.
            effort: how much work the capacity may take.
        """
        prices = _suitable_prices(epsilon, delta, costs)
        try:
            capacity = _cached_price_capacity(tuple(prices.items()), epsilon, delta, effort)
        except OutOfTime as cut:  # which is not cached; its argument is the capacity found so far
            (capacity,) = cut.args
        return cls(prices, capacity)

    def price(self, charge: Charge) -> float:
        """Return the least price of a declared cost that covers this one.

        Raises:
            IncompatibleCosts: when none does.
        """
        from dptopk.budgets.registered_costs import dominates

        ((cost, _),) = charge
        for declared, price in self.prices.items():
            if dominates(declared, cost):
                return float(price)
        raise IncompatibleCosts(f"{cost} is covered by none of {self.words}")


def _suitable_prices(epsilon: float, delta: float, costs: Sequence[Cost]) -> dict[Cost, int]:
    """Return an integer price for each declared cost, in proportion to what it takes of a Rényi
    budget.

    Any integer prices are sound, and these suit the costs. The largest price is such that the game
    has about MOST_LAYERS layers in all.

    Args:
        epsilon: ε of the total.
        delta: δ of the total.
        costs: the declared costs.
    """
    renyi = Renyi.at(epsilon, delta, None)
    renyi_capacity = float(renyi.capacity)
    worth = {cost: renyi.price(Charge({cost: 1})) for cost in costs}
    copies_of_largest = renyi_capacity / max(worth.values())
    largest_price = MOST_LAYERS / max(copies_of_largest, 1.0)
    ranges = tuple(cost.epsilon for cost in costs if isinstance(cost, BoundedRange))
    if len(ranges) == len(costs):
        price_of_range = weights_of(ranges, largest_price)
        return {BoundedRange(size): price for size, price in price_of_range.items()}
    # Few copies are composed by themselves, which says more exactly what a cost takes.
    if renyi_capacity / min(worth.values()) < MOST_COPIES_ALONE:
        worth = {cost: 1 / affordable_copies(cost, epsilon, delta) for cost in costs}
    return proportional_prices(worth, largest_price)


@lru_cache(maxsize=32)
def _cached_price_capacity(
    prices: tuple[tuple[Cost, int], ...], epsilon: float, delta: float, effort: Effort
) -> int:
    """Return the largest sum of prices S found with W_S(ε) <= δ, as ``price_game.capacity`` does: a
    lower bound on the largest there is.

    W_S(ε) bounds the δ of all costs whose prices add up to at most S (``price_game``).

    Args:
        prices: the declared costs with their prices.
        epsilon: ε of the budget.
        delta: the part of its δ that is not for failures.
        effort: how much work the search may take.

    Raises:
        OutOfTime: with the largest S found, where the deadline cuts the search; that one is not
            cached.
    """
    return price_capacity(dict(prices), epsilon, delta, Work(CAPACITY_WORK * STAGES[effort]))


class Gaussian(Metric):
    """Sums of μ²: adaptively chosen Gaussian costs compose to a Gaussian
    (docs/notes/filters.md).
    """

    name = "gaussian"
    words = "the sum of squares of mu"

    def __init__(self, capacity: float) -> None:
        """Take a μ² as the capacity."""
        self.capacity = Fraction(capacity)
        self.terms = {"name": self.name, "capacity": capacity}

    @classmethod
    def at(cls, epsilon: float, delta: float) -> Gaussian:
        """Return the metric for a total (ε, δ)."""
        return cls(gaussian_mu(epsilon=epsilon, delta=delta) ** 2 * (1 - SQUARE_ROUNDING))

    def price(self, charge: Charge) -> float:
        """Return the smallest μ² known to cover the cost, rounded up.

        Raises:
            IncompatibleCosts: when no Gaussian is known to cover it.
        """
        ((cost, _),) = charge
        return covering_variance(cost)


def covering_variance(cost: Cost) -> float:
    """Return the smallest μ² for which a cost is known to be μ-GDP, rounded up.

    Raises:
        IncompatibleCosts: when there is none.
    """
    if isinstance(cost, GaussianDP):
        return _mu_squared_up(cost.mu)
    if isinstance(cost, DiscreteGaussianDP):
        from dptopk.accounting.pld.dominating import dominating_mu

        return _mu_squared_up(dominating_mu(cost.scale, cost.shift))
    if isinstance(cost, PureDP | BoundedRange):
        from dptopk.accounting.pld.dominating import covering_mu

        mu = covering_mu(cost.epsilon)
        if math.isfinite(mu):
            return _mu_squared_up(mu)
    raise IncompatibleCosts(f"{cost} is not known to be covered by a Gaussian")


def _mu_squared_up(mu: float) -> float:
    """Return an upper bound on μ²: the next float after the product."""
    return math.nextafter(mu * mu, math.inf)


class Variance(Metric):
    """All costs as one Gaussian (Theorem H', docs/notes/filters.md).

    What is used is no sum of prices: it is the variance that Theorem H needs for all costs so far,
    whatever their order.

    Args:
        capacity: μ² of the Gaussian.
    """

    name = "variance"
    words = "the variance of a Gaussian for all costs"
    margin = Fraction(1, 10**9)

    def __init__(self, capacity: float) -> None:
        """Take a μ² as the capacity."""
        self.capacity = Fraction(capacity)
        self.terms = {"name": self.name, "capacity": capacity}

    @classmethod
    def at(cls, epsilon: float, delta: float) -> Variance:
        """Return the metric for a total (ε, δ)."""
        return cls(gaussian_mu(epsilon=epsilon, delta=delta) ** 2 * (1 - SQUARE_ROUNDING))

    def price(self, charge: Charge) -> float:
        """Return about what a cost takes, 2 ρ or the μ² of the Gaussian that takes its place; what
        all costs take together is ``used``.

        Raises:
            IncompatibleCosts: when neither is known.
        """
        ((cost, _),) = charge
        counted = _variance_of_cost(cost)
        if counted.rho is not None:
            return 2 * counted.rho
        if counted.covering is None:
            raise IncompatibleCosts(f"{cost} is not covered by {self.words}")
        return counted.covering

    def used(self, prices: Fraction, *spent: Mapping[Cost, Number]) -> Fraction:  # noqa: ARG002
        """Return an upper bound on the variance of one Gaussian for all costs.

        Where the variance is too large for a float the result is beyond the capacity.

        Args:
            prices: not used: this method is no sum of prices.
            spent: the costs with their numbers, in one mapping or several that are added up.
        """
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                variance = self._variance(*spent)
        except OverflowError:
            variance = math.inf
        return Fraction(variance) if variance < math.inf else 2 * self.capacity

    def _variance(self, *spent: Mapping[Cost, Number]) -> float:
        """Return the bound of ``used`` as a float, the least of a few (``_variances_by_cut``); inf
        where nothing is known of one of the costs.
        """
        counts: dict[Cost, Number] = {}
        for costs in spent:
            for cost, number in costs.items():
                counts[cost] = counts.get(cost, 0) + number
        gaussian_variances: list[float] = []
        small: list[_SmallCost] = []
        for stated, number in counts.items():
            for cost, times in _failure_free_part(stated):
                counted = _variance_of_cost(cost)
                copies = float(number * times)
                if counted.rho is not None:
                    small.append(_SmallCost(counted.rho, counted.covering, copies))
                elif counted.covering is not None:
                    gaussian_variances.append(copies * counted.covering)
                else:  # nothing is known of it
                    return math.inf
        small.sort(key=lambda cost: cost.rho, reverse=True)
        return min(_variances_by_cut(gaussian_variances, small))


@dataclass(frozen=True)
class VarianceOfCost:
    """The numbers by which one cost may count in the variance of all.

    Attributes:
        rho: its zCDP constant, if it counts by Theorem H; None: it counts by its Gaussian alone.
        covering: μ² of a Gaussian that covers it; None: there is none.
    """

    rho: float | None
    covering: float | None


@dataclass(frozen=True)
class _SmallCost:
    """Equal costs that count by their zCDP constant, in Theorem H.

    Attributes:
        rho: the zCDP constant of one of them.
        covering: μ² of a Gaussian that covers one of them; None: there is none.
        copies: their number, a float; for estimates not a whole number.
    """

    rho: float
    covering: float | None
    copies: float


@lru_cache(maxsize=4096)
def _failure_free_part(stated: Cost) -> tuple[tuple[Cost, int], ...]:
    """Return the costs that are left of one cost without its failure mass, with their numbers."""
    failure_free, _ = split_failure(Charge({stated: 1}))
    return tuple(failure_free)


@lru_cache(maxsize=4096)
def _variance_of_cost(cost: Cost) -> VarianceOfCost:
    """Return the numbers by which a cost without failure mass may count: by its zCDP constant or,
    where that is too large for Theorem H or hardly better, by a Gaussian that covers it.
    """
    covering = None
    with suppress(IncompatibleCosts):
        covering = covering_variance(cost)
    rho = zcdp_constant(cost)
    if rho == 0:  # it leaks nothing
        return VarianceOfCost(None, 0.0)
    if not 0 < rho <= LARGEST_RHO:  # Theorem H is for none, or for none so large
        return VarianceOfCost(None, covering)
    if covering is not None and covering <= NEARLY_GAUSSIAN * 2 * rho:
        return VarianceOfCost(None, covering)
    return VarianceOfCost(rho, covering)


def _variances_by_cut(
    gaussian_variances: Sequence[float], small: Sequence[_SmallCost]
) -> Iterator[float]:
    """Yield variances of single Gaussians, each of which covers all costs: an upper bound for each
    cut.

    A cut counts the first few small costs, which are the largest, as Gaussians that cover them, and
    the others by Theorem H. There are at most MOST_CUTS + 1 cuts.

    Args:
        gaussian_variances: the variances of costs that count as Gaussians in any case.
        small: the other costs, from the largest ρ down.
    """
    variance_of_gaussians = math.fsum(gaussian_variances)
    for cut in range(min(len(small), MOST_CUTS) + 1):
        copies_of_rho: dict[float, float] = {}
        for cost in small[cut:]:
            copies_of_rho[cost.rho] = copies_of_rho.get(cost.rho, 0) + cost.copies
        variance_of_rest = concentrated_gaussian(copies_of_rho) if copies_of_rho else 0.0
        # Two sums and a product, of positive numbers.
        yield (variance_of_gaussians + variance_of_rest) * (1 + 8 * ROUNDOFF)
        if cut == len(small):
            return
        next_cost = small[cut]
        if next_cost.covering is None:
            return
        variance_of_gaussians += next_cost.copies * next_cost.covering


class SmallCosts(Metric):
    """Small costs at prices of their own, in ledgers that were made before ``Variance``: Theorem H'
    with prices (``SmallCostBudget``, whose terms these are).

    Args:
        largest_rho: the largest ρ of a cost that is priced by its zCDP constant.
        start: s_0, at least ``largest_rho``.
        capacity: the largest sum of prices T for which the Gaussian G_φ(T) has δ(ε) <= δ.
    """

    name = "small"

    def __init__(self, largest_rho: float, start: float, capacity: float) -> None:
        """Prepare the prices of Theorem H' for costs up to ``largest_rho``."""
        self.small = SmallCostBudget(largest_rho, start)
        self.capacity = Fraction(capacity)
        self.terms = {
            "name": self.name,
            "largest_rho": largest_rho,
            "start": start,
            "capacity": capacity,
        }
        self.words = f"the variance of small costs, each at most {largest_rho:.4g}-zCDP"

    def price(self, charge: Charge) -> float:
        """Return the cheaper of 2 (1 + β) ρ, where the cost is small enough, and the μ² that covers
        it.

        Raises:
            IncompatibleCosts: when there is neither.
        """
        ((cost, _),) = charge
        prices: list[float] = []
        rho = zcdp_constant(cost)
        # A Gaussian counts by its own μ², which is less.
        if not isinstance(cost, GaussianDP) and rho <= self.small.largest_rho:
            prices.append(math.nextafter(2 * self.small.factor * rho, math.inf))
        with suppress(IncompatibleCosts):
            prices.append(covering_variance(cost))
        if not prices:
            raise IncompatibleCosts(f"{cost} is not covered by {self.words}")
        return min(prices)


def metric_of(terms: dict[str, Any]) -> Metric:
    """Return the metric that ``Metric.terms`` described, without computing anything anew.

    Raises:
        InvalidParameter: when this version knows no such metric.
    """
    if terms["name"] not in _METRICS:
        raise InvalidParameter(f"this version knows no filter by {terms['name']!r}")
    fields = {name: value for name, value in terms.items() if name != "name"}
    if terms["name"] == Ranges.name:
        # Once only ranges could be declared, and were stored as numbers.
        prices: dict[Cost, int] = {}
        for key, price in terms["prices"]:
            cost = cost_of(key) if isinstance(key, str) else BoundedRange(key)
            prices[cost] = price
        fields["prices"] = prices
    return _METRICS[terms["name"]](**fields)


_METRICS: dict[str, Callable[..., Metric]] = {
    kind.name: kind for kind in (Pure, Zcdp, Renyi, Ranges, Gaussian, Variance, SmallCosts)
}


def _renyi_capacity(epsilon: float, log_inverse_delta: float, order: float) -> float:
    """Return λε + λ ln(1 + 1/λ) + ln(1 + λ) - ln(1/δ), rounded down, for λ = ``order``.

    Args:
        epsilon: ε of the total.
        log_inverse_delta: ln(1/δ) of the total.
        order: λ, above 0.
    """
    terms = (order * epsilon, order * math.log1p(1 / order), math.log1p(order), -log_inverse_delta)
    return math.fsum(terms) - CAPACITY_ROUNDING * math.fsum(map(abs, terms))


def best_order(epsilon: float, log_inverse_delta: float) -> float:
    """Return an order λ near the one with the largest capacity for zCDP costs, whose prices are in
    proportion to λ(1 + λ); any order is sound.

    Args:
        epsilon: ε of the total.
        log_inverse_delta: ln(1/δ) of the total.
    """
    low = SMALLEST_LOG_ORDER
    high = LARGEST_LOG_ORDER
    capped_epsilon = min(epsilon, 1e200)  # e^40 times more is a float, too
    for _ in range(ORDER_ROUNDS):
        grid = np.linspace(low, high, ORDERS)
        worth = [
            _renyi_capacity(capped_epsilon, log_inverse_delta, order) / (order * (1 + order))
            for order in np.exp(grid)
        ]
        best = int(np.argmax(worth))
        low = float(grid[max(best - 1, 0)])
        high = float(grid[min(best + 1, ORDERS - 1)])
    return math.exp((low + high) / 2)
