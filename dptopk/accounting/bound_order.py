"""The bounds that there are, and the order in which ``compose`` asks them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

from dptopk.accounting.composition_query import CompositionQuery
from dptopk.accounting.pure_dp.homogeneous import all_pure
from dptopk.accounting.registry import (
    REGISTRY,
    Bound,
    BoundSpec,
)
from dptopk.costs import BoundedRange

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
# Modules of bounds that other bounds are never larger than; they are loaded where one is named, and
# for a table, figures and tests.
PUBLISHED = "published."
# Modules of bounds for analysts who do not adapt, or for a single range; they are loaded where one
# of these may be asked.
FOR_BATCH = "bounded_range."

# Numbers of different costs, and of costs, above which some bounds take long.
MANY_DIFFERENT = 1000
MANY_COSTS = 10_000
# With more than MANY_DIFFERENT costs: the work of reading one, about its time in seconds, and the
# bounds that come first.
WORK_TO_READ = 1e-5
FIRST_OF_MANY = ("renyi", "optimal_setwise")


@cache
def registered_bounds(*left_out: str) -> dict[str, BoundSpec]:
    """Return the bounds by name, in the order in which they are tried.

    Modules whose names begin with one of ``left_out`` are not loaded. Bounds of others, which
    register themselves, come last.
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


def bounds_in_order(question: CompositionQuery, answers: dict[str, Bound]) -> Iterator[BoundSpec]:
    """Yield the bounds to ask, one after the other; the caller adds each answer to ``answers``
    before the next one is drawn.

    Bounds that refine come last: they share the work that is left, and where the work ends none
    follows, so that more work never skips a bound. A bound comes after the one that would make it
    needless, and is left out where that has happened (``_Order.is_needless``). Where there are very
    many different costs, reading them takes long for any bound: the Rényi curves come first, then
    one product, then the others while there is work left.
    """
    costs = question.failure_free
    no_delta = question.delta is not None and question.query.delta == 0
    if no_delta and not question.lower and all_pure(costs):
        yield bound_of_name("basic")  # randomised response attains the plain sum
        return
    specs = _candidates(question)
    order = _Order(question, answers, {spec.name: spec.better_bound(costs) for spec in specs})
    different = len(costs.costs)
    first = FIRST_OF_MANY if different > MANY_DIFFERENT else ()
    for spec in sorted(specs, key=lambda spec: order.key(spec, first)):
        early = spec.name in first
        if first and not early and not question.query.work.take(WORK_TO_READ * different):
            break
        # Of those that come first, one that does not refine is asked in any case.
        if (spec.refines or not early) and order.is_needless(spec.name):
            order.needless.add(spec.name)
        elif not question.why_not(spec):
            yield spec


def _candidates(question: CompositionQuery) -> list[BoundSpec]:
    """Return the bounds that may give the best answer; other modules are not loaded."""
    ranges = sum(question.failure_free.of(BoundedRange).values())
    # With a single range there is none to choose by the answers of others.
    for_batch = ranges == 1 or (ranges > 1 and question.interaction == "batch")
    left_out = (PUBLISHED,) if for_batch else (PUBLISHED, FOR_BATCH)
    return [spec for spec in registered_bounds(*left_out).values() if not spec.published]


@dataclass(frozen=True)
class _Order:
    """The order in which bounds are asked, and which of them are needless.

    Attributes:
        question: the question.
        answers: the answers so far, by the bound's name.
        better: for each bound the name of one that is never larger, or "".
        needless: the names of the bounds that were found to be needless.
    """

    question: CompositionQuery
    answers: dict[str, Bound]
    better: dict[str, str]
    needless: set[str] = field(default_factory=set)

    def key(self, spec: BoundSpec, first: tuple[str, ...]) -> tuple[int, bool, int]:
        """Return the key that bounds are sorted by: bounds in ``first`` come before all others,
        bounds that refine after those that do not, and a bound after better ones.
        """
        group = 0
        if spec.name in first:  # of these the one that does not refine leads
            group = -1 if spec.refines else -2
        return group, spec.refines, self._depth(spec.name)

    def _depth(self, name: str) -> int:
        """Return the number of bounds in the chain from this one to ever better ones; 0 for the
        name "".
        """
        if name:
            return 1 + self._depth(self.better[name])
        return 0

    def is_needless(self, name: str) -> bool:
        """Return whether a better bound has answered as closely as asked, is needless itself, or
        will be asked in any case because there are very many costs.
        """
        other = self.better[name]
        if not other:
            return False
        if other in self.needless:
            return True
        if other in self.answers and self.answers[other].note == "":  # as close as asked
            return True
        many = self.question.failure_free.count > MANY_COSTS
        return many and not self.question.why_not(bound_of_name(other))
