"""The text of a certificate: its claim, and its *factors*.

A factor is one part of the product of pairs that proves the claim: a JSON object whose "kind" says
how the checker finds its profile, with the costs that it bounds. Where there are several factors,
"low" and "high" are the places of the product's lattice between which its profile is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dptopk.accounting.registry import Certificate
from dptopk.accounting.setwise.moment_certificate import CertifiedGame
from dptopk.accounting.setwise.moment_program import MomentClass, moment_class
from dptopk.costs import (
    CDP,
    ZCDP,
    ApproxDP,
    BoundedRange,
    Charge,
    Cost,
    DiscreteGaussianDP,
    GaussianDP,
    PureDP,
)
from dptopk.errors import NotCertified

FORMAT = 6  # of the text; the checker reads this one
# Beyond a reach of z deviations, of a closed form: a Gaussian's tail falls by e^-(2z + 2) more.
MORE_DEVIATIONS = 2.0
NOISE_REACH = 30.0  # standard deviations of one discrete noise: beyond, its mass is below e^-440
SPARE_PLACES = 4  # of a sum of integers, for the roundings of both ends

# The parameters that the file states of a cost: with a closed form, and of any cost.
PARAMETERS: dict[type[Cost], tuple[str, ...]] = {
    PureDP: ("epsilon",),
    GaussianDP: ("mu",),
    DiscreteGaussianDP: ("scale", "shift"),
}
LISTED = PARAMETERS | {ZCDP: ("rho", "xi"), CDP: ("mu", "tau"), BoundedRange: ("epsilon",)}
Entry = dict[str, Any]  # a factor, or some of its names with their values


@dataclass(frozen=True)
class Claim:
    """What certificates are about.

    Attributes:
        charge: the charge.
        failure_free: the charge without its failures.
        delta: the certified δ.
        delta_left: the part of δ that is not needed for failures; 0 where ε's can only be added up.
    """

    charge: Charge
    failure_free: Charge
    delta: float
    delta_left: float

    def certificate(
        self, epsilon: float, factors: list[Entry], step: float = 1.0, width: int = 1
    ) -> Certificate:
        """Return the certificate of an ε, with its text.

        Args:
            epsilon: the certified ε.
            factors: the parts of the product.
            step: the step of the lattice; a single factor has none, and does not read it.
            width: the number of places of the lattice.
        """
        charge = self.charge
        failures = [[cost.delta, times] for cost, times in charge if isinstance(cost, ApproxDP)]
        content = {
            "format": FORMAT,
            "charge": str(charge),
            "epsilon": epsilon,
            "delta": self.delta,
            "bad": charge.delta,
            "failures": failures,
            "step": step,
            "width": width,
            "factors": factors,
        }
        return Certificate(str(charge), epsilon, self.delta, json.dumps(content))


def factor_of_game(certified: CertifiedGame, concentrated: Charge) -> Entry:
    """Return the factor of a certificate that states a game: a row of costs for each moment class,
    in the order of the game's classes, and what ``CertifiedGame.statement`` says of the game.

    Args:
        certified: the game with its majorants.
        concentrated: the costs of which it is the game.

    Raises:
        NotCertified: where two costs are in one class, for a factor has one row for each.
    """
    rows: dict[MomentClass, list[Any]] = {}
    for cost, times in concentrated:
        moments = moment_class(cost)
        if moments is None:
            raise NotCertified(f"{cost} is in no moment class")
        if moments in rows:
            raise NotCertified("two costs of one class")
        rows[moments] = _cost_entry(cost, times)
    costs = [rows[moments] for moments in certified.declared]
    return {"kind": "Moments", "costs": costs, **certified.statement()}


def factor_of_small(small: Charge, gaussian: Cost, step: float, reach: float) -> Entry:
    """Return small costs as one factor, which the checker bounds by a Gaussian of its own
    (Theorem H).

    Args:
        small: the small costs.
        gaussian: the Gaussian cost that stands for them, which decides the places that are read.
        step: the step of the lattice.
        reach: how many standard deviations of the loss are read.
    """
    of_gaussian = closed_form(gaussian, 1, step, reach)
    return factor_of_list("Smoothed", small) | {
        "low": of_gaussian["low"],
        "high": of_gaussian["high"],
    }


def one_gaussian(charge: Charge) -> Mapping[Cost, int]:
    """Return Gaussian costs as a charge's costs with counts, with one kind of cost at most: several
    kinds become one cost whose μ² is at least the sum of theirs, in rationals.

    Args:
        charge: GaussianDP costs only, perhaps none.
    """
    if len(charge.costs) < 2:
        return charge.costs
    total = sum(
        (Fraction(cost.mu) ** 2 * times for cost, times in charge.of(GaussianDP).items()),
        Fraction(0),
    )
    mu = math.sqrt(total)
    while Fraction(mu) ** 2 < total:
        mu = math.nextafter(mu, math.inf)
    return {GaussianDP(mu): 1}


def place_range(low: float, high: float, step: float) -> Entry:
    """Return "low" and "high" of a factor, the places of the lattice between which its profile is
    read: one beyond the smallest and the largest loss.

    Args:
        low: the smallest loss.
        high: the largest loss.
        step: the step of the lattice.
    """
    return {"low": math.floor(low / step) - 1, "high": math.ceil(high / step) + 1}


def closed_form(cost: Cost, times: int, step: float, reach: float) -> Entry:
    """Return ``times`` copies of a cost, whose profile the checker knows, as one factor.

    Its "width" is how many places of the sum of the costs' own integers (of randomized responses,
    or of discrete noises) the checker lists; it does not read that of a GaussianDP, which has none.

    Args:
        cost: a PureDP, GaussianDP or DiscreteGaussianDP cost.
        times: the number of copies.
        step: the step of the lattice.
        reach: how many standard deviations of the loss are read, besides MORE_DEVIATIONS.
    """
    entry: Entry = {"kind": cost.symbol, "count": times}
    entry |= {name: getattr(cost, name) for name in PARAMETERS[type(cost)]}
    loss = _LossOfCopies.of(cost, times)
    deviations_of_one = (reach + MORE_DEVIATIONS) * math.sqrt(times)
    # To either side that many deviations, and of one noise NOISE_REACH more.
    noise = loss.noise_of_one
    entry["width"] = (
        math.ceil(2 * deviations_of_one * noise + 2 * NOISE_REACH * noise) + SPARE_PLACES
    )
    half_width = deviations_of_one * loss.deviation_of_one
    low = max(loss.mean - half_width, -loss.largest)
    high = min(loss.mean + half_width, loss.largest)
    return entry | place_range(low, high, step)


@dataclass(frozen=True)
class _LossOfCopies:
    """The size of the loss of several copies of a cost with a closed form.

    Attributes:
        mean: of all copies.
        deviation_of_one: the standard deviation of one copy's loss, at most.
        noise_of_one: that of one copy's own integer, at most; 1 where it has none.
        largest: the largest loss of all copies.
    """

    mean: float
    deviation_of_one: float
    noise_of_one: float = 1.0
    largest: float = math.inf

    @classmethod
    def of(cls, cost: Cost, times: int) -> _LossOfCopies:
        """Return the size of the loss of ``times`` copies of a PureDP, GaussianDP or
        DiscreteGaussianDP cost.

        Raises:
            NotCertified: for another cost.
        """
        if isinstance(cost, PureDP):
            mean = times * cost.epsilon * math.tanh(cost.epsilon / 2)
            return cls(mean, cost.epsilon, largest=times * cost.epsilon)
        if isinstance(cost, DiscreteGaussianDP):
            mu = cost.shift / cost.scale
            return cls(times * mu**2 / 2, mu, noise_of_one=cost.scale)
        if isinstance(cost, GaussianDP):
            return cls(times * cost.mu**2 / 2, cost.mu)
        raise NotCertified(f"{cost} has no closed form")


def factor_of_list(kind: str, charge: Charge) -> Entry:
    """Return costs that are bounded together as a factor of that kind, which lists them."""
    return {"kind": kind, "costs": [_cost_entry(cost, times) for cost, times in charge]}


def _cost_entry(cost: Cost, times: int) -> list[Any]:
    """Return a cost as a certificate lists it: its symbol, its parameters, and the number of
    copies.
    """
    parameters = [getattr(cost, name) for name in LISTED[type(cost)]]
    return [cost.symbol, *parameters, times]
