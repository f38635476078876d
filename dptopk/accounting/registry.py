"""Composition bounds: which there are, their answers, their registration, and the failure mass that
is split off beforehand.

Before any bound sees a charge, the probability mass of failure is split off (``split_failure``): an
(ε, δ)-DP cost is, independently of everything else, ruined with probability δ and ε-DP otherwise
(KOV's four-outcome pair), so

    δ_total(x) = δ_charge + p + (1 - p) δ_rest(x),     p = 1 - ∏(1 - δ_i),

holds for every bound and every interaction with a registered set of costs, because the failures can
be drawn before the first answer. In a filter the costs are not known beforehand, only that their
δ's add up to no more than a cap, which may be spent at once: there p = Σ δ_i. Mechanisms with these
costs attain δ_charge + (1 - δ_charge) δ(x), with δ(x) the above for the p of the product and
δ_charge = 0: lower bounds use that.

KOV is Kairouz-Oh-Viswanath 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dptopk._internal.choices import INTERACTIONS, Interaction
from dptopk._internal.formatting import format_upper, html_table
from dptopk.accounting.cost_models.cost_registry import cost_model_of
from dptopk.accounting.curves import Curve
from dptopk.costs import Charge, Cost, sum_up
from dptopk.errors import InvalidParameter, NotApplicable

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from dptopk.accounting.curves import Profile

# The product of survivals is known to a few units of roundoff, of its logarithm's terms and of
# expm1; this is 45 units.
FAILURE_SLACK = 1e-14

# Modules that register bounds, in the order in which compose tries them, optima and closed forms
# before recursions, with the names that they register.
MODULES: dict[str, tuple[str, ...]] = {
    "pure_dp.homogeneous": ("basic", "optimal_dp"),
    "pure_dp.two_epsilon": ("two_epsilon",),
    "gaussian.gaussian_sum": ("gaussian",),
    "bounded_range.nonadaptive": ("br_nonadaptive",),
    "bounded_range.nonadaptive_heterogeneous": ("br_heterogeneous",),
    "bounded_range.nonadaptive_with_dp": ("br_dp_nonadaptive",),
    "renyi.concentrated": ("zcdp_tight",),
    "setwise.zcdp_gaussian": ("zcdp_gaussian",),
    "renyi.renyi_curves": ("renyi",),
    "f_dp.multi_dp": ("multi_dp",),
    "setwise.optimum": ("optimal_setwise",),
    "published.dwork_rothblum_vadhan": ("advanced",),
    "published.murtagh_vadhan": ("optimal_dp_exact", "optimal_dp_approx"),
    "published.dong_durfee_rogers": ("dr19", "improved_drv10", "opt_kl", "mgf"),
    "published.cesar_rogers": ("setwise_cdp", "setwise_zcdp"),
}
# Modules of bounds than which other bounds are never larger; they are loaded where one is named,
# and for a table, figures and tests.
PUBLISHED = "published."
# Modules of bounds for analysts who do not adapt, or for a single range; they are loaded where one
# of these may be asked.
FOR_BATCH = "bounded_range."
# The module of a bound for two different ε's, which one kind of cost does not have.
FOR_TWO = "pure_dp.two_epsilon"

Builder = Callable[[Charge], Curve]


@dataclass(frozen=True, slots=True)
class Certificate:
    """A claim and what is needed to check it.

    Attributes:
        charge: the costs, as text.
        epsilon: the claim is (epsilon, delta)-DP, set-wise.
        delta: as asked.
        text: the file, for checker/check_certificate.py: JSON, node values as compressed binary64
            in base64.
    """

    charge: str
    epsilon: float
    delta: float
    text: str

    def write(self, path: str | Path) -> None:
        """Write the certificate to a file."""
        Path(path).write_text(self.text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Bound:
    """The answer of a composition bound.

    Attributes:
        epsilon, delta: the guarantee: the composition is (epsilon, delta)-DP. The one that was
            asked for is an upper bound, rounded outward; it may be inf (epsilon) or 1 (delta) when
            the bound gives nothing.
        lower: a proven lower bound on the one asked for (the optimum over all mechanisms with these
            costs), or None.
        name, source: the bound used and where it is proven.
        valid_in: the interaction models in which the guarantee holds.
        note: what the reader should know, e.g. that the work was used up.
        certificate: where it was asked for, a proof of an ε of its own that an auditor can check
            without this package.
        charge, interaction: what ``compose`` was asked; they take no part in comparisons.
    """

    epsilon: float
    delta: float
    lower: float | None
    name: str
    source: str
    valid_in: tuple[Interaction, ...]
    note: str = ""
    certificate: Certificate | None = None
    charge: Charge | None = field(default=None, repr=False, compare=False)
    interaction: Interaction = field(default="setwise", repr=False, compare=False)

    def profile(
        self, *, deltas: ArrayLike | None = None, epsilons: ArrayLike | None = None
    ) -> Profile:
        """Return the privacy profile of the charge that was composed: δ at many ε, or ε at many δ.

        Arguments and errors as for ``accounting.profiles.profile``.

        Raises:
            InvalidParameter: when the bound was not made by ``compose``.
        """
        if self.charge is None:
            raise InvalidParameter("this bound does not know the charge that it is of")
        # By name: profiles are composed by what is registered here.
        profiles = import_module("dptopk.accounting.profiles")
        profile: Profile = profiles.profile(
            self.charge, deltas=deltas, epsilons=epsilons, interaction=self.interaction
        )
        return profile

    def __str__(self) -> str:
        """Return the guarantee in words, rounded up."""
        note = f"; {self.note}" if self.note else ""
        guarantee = f"({format_upper(self.epsilon)}, {format_upper(self.delta)})-DP"
        models = ", ".join(self.valid_in)
        return f"{guarantee} by {self.name} ({self.source}); valid in {models}{note}"

    def _repr_html_(self) -> str:
        """Return the bound as an HTML table, for notebooks."""
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.repr and field.name != "name"
        }
        values["valid_in"] = ", ".join(self.valid_in)
        rows = [(name, value) for name, value in values.items() if value not in {None, ""}]
        return html_table(["bound", self.name], rows)


@dataclass(frozen=True, slots=True)
class BoundSpec:
    """A registered bound: a function from a charge (without failure mass, never empty) to a Curve,
    under a name.

    Attributes:
        name: the name that ``compose(bound=...)`` takes.
        source: paper and theorem.
        takes: the cost types that may occur in the charge.
        build: the function; it raises NotApplicable with a reason.
        valid_through: the strongest interaction model in which it holds, or a function of the
            charge giving it.
        lower_from: a function of the charge giving the weakest interaction whose optimum is at
            least its lower bound: "batch" where an analyst who fixes everything beforehand attains
            it, "ordered" or more where only one who adapts does.
        better: the name, or a function of the charge giving the name, of another bound whose exact
            value is never larger, or "": where that other one has been answered as closely as
            asked, this one is not asked.
        refines: whether its answers take work that is counted.
        published: whether it is a theorem of a paper than which another bound is never larger; it
            is kept for the full table, the figures and the tests.
    """

    name: str
    source: str
    takes: tuple[type[Cost], ...]
    build: Builder
    valid_through: Interaction | Callable[[Charge], Interaction] = "setwise"
    lower_from: Callable[[Charge], Interaction] = lambda charge: "batch"  # noqa: ARG005
    better: str | Callable[[Charge], str] = ""
    refines: bool = False
    published: bool = False

    def better_bound(self, charge: Charge) -> str:
        """Return the name of a bound that is never larger for this charge, or "" where there is
        none.
        """
        if isinstance(self.better, str):
            return self.better
        return self.better(charge)

    def lower_holds(self, charge: Charge, interaction: Interaction) -> bool:
        """Return whether the bound's lower bound is one on the optimum of this interaction, not
        only of a stronger one.
        """
        return INTERACTIONS.index(interaction) >= INTERACTIONS.index(self.lower_from(charge))

    def valid_in(self, charge: Charge) -> tuple[Interaction, ...]:
        """Return the interaction models in which this bound holds for the charge."""
        if isinstance(self.valid_through, str):
            last = self.valid_through
        else:
            last = self.valid_through(charge)
        return INTERACTIONS[: INTERACTIONS.index(last) + 1]

    def curve(self, charge: Charge) -> Curve:
        """Return the curve of a charge without failure mass.

        Raises:
            NotApplicable: with the reason.
        """
        kinds = {type(cost) for cost in charge.costs}
        foreign = sorted(kind.__name__ for kind in kinds if not issubclass(kind, self.takes))
        if foreign:
            raise NotApplicable(f"does not take {', '.join(foreign)}")
        return self.build(charge)


REGISTRY: dict[str, BoundSpec] = {}
OneBuilder = TypeVar("OneBuilder", bound=Builder)


def bound(name: str, **attributes: Any) -> Callable[[OneBuilder], OneBuilder]:
    """Return the decorator that registers a function from a charge to a Curve.

    Args:
        name: of the bound.
        attributes: the other attributes of ``BoundSpec``, but ``build``.
    """

    def register(build: OneBuilder) -> OneBuilder:
        """Register the function, and return it."""
        REGISTRY[name] = BoundSpec(name, build=build, **attributes)
        return build

    return register


@cache
def registered_bounds(*left_out: str) -> dict[str, BoundSpec]:
    """Return the bounds by name, in the order in which they are tried; those of other packages,
    which register themselves, come last.

    Args:
        left_out: beginnings of names in ``MODULES``; such modules are not loaded, and their bounds
            are not returned.
    """
    wanted = [module for module in MODULES if not module.startswith(left_out)]
    for module in wanted:
        import_module(f"dptopk.accounting.{module}")
    own_names = [name for module in wanted for name in MODULES[module]]
    return {name: REGISTRY[name] for name in [*own_names, *_third_party_names()]}


def _third_party_names() -> list[str]:
    """Return the names of registered bounds that are not in MODULES: those that other packages
    registered.
    """
    known = {name for registered in MODULES.values() for name in registered}
    return [name for name in REGISTRY if name not in known]


def bound_of_name(name: str) -> BoundSpec:
    """Load the module of one bound, and return the bound.

    Raises:
        KeyError: for a name that no bound has.
    """
    for module, registered in MODULES.items():
        if name in registered:
            import_module(f"dptopk.accounting.{module}")
    return REGISTRY[name]


def names() -> tuple[str, ...]:
    """Return the names of all bounds, in the order in which they are tried."""
    own_names = [name for registered in MODULES.values() for name in registered]
    return (*own_names, *_third_party_names())


def split_failure(charge: Charge, *, summed: bool = False) -> tuple[Charge, float]:
    """Return the charge without its failure mass, and an upper bound on that mass p; see the module
    docstring.

    ApproxDP(ε, δ) becomes PureDP(ε); a MultiDP keeps its constraints with the common atom, the
    least of its δ's, taken out of each. The charge's own ``delta`` is not part of p: it stays
    outside.

    Args:
        charge: any charge.
        summed: whether p is Σ δ_i, as for filters, instead of 1 - ∏(1 - δ_i).
    """
    costs: dict[Cost, int] = {}
    failures: dict[float, int] = {}
    for cost, times in charge:
        split = cost_model_of(cost).without_failure
        remainder: Cost | None = cost
        atom = 0.0
        if split:
            remainder, atom = split(cost)
        if atom:
            failures[atom] = failures.get(atom, 0) + times
        if remainder is not None:
            costs[remainder] = costs.get(remainder, 0) + times
    if costs == charge.costs and not charge.delta:
        # The usual case: a charge of many different costs takes a while to build again.
        return charge, 0.0
    failure_free = Charge(costs, adaptive=charge.adaptive, neighbours=charge.neighbours)
    if summed:
        return failure_free, min(sum_up(failures), 1.0)
    try:
        log_survival = math.fsum(times * math.log1p(-atom) for atom, times in failures.items())
    except OverflowError:  # a count beyond the largest float
        log_survival = -math.inf
    # Whichever upper bound is smaller; the plain sum is exact for a single failure.
    by_product = -math.expm1(log_survival) * (1 + FAILURE_SLACK)
    return failure_free, min(sum_up(failures), by_product, 1.0)
