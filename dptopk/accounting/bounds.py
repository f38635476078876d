"""The registry of composition bounds, and ``compose``: the smallest valid answer for a charge.

A bound is a registered function from a charge to a Curve, with its name, its source, the costs it
takes and the interaction models it is valid in. ``compose`` knows no theorem: it asks the registry.
To add a theorem, add a module that registers it and list the module in ``MODULES``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import INTERACTIONS, Effort, Interaction
from dptopk._internal.rounding import round_up
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.pure_dp.homogeneous import all_pure
from dptopk.accounting.registry import (
    FAILURE_SLACK,
    REGISTRY,
    Bound,
    BoundSpec,
    Certificate,
    split_failure,
)
from dptopk.accounting.setwise.certificates import certify
from dptopk.accounting.work import CUT_BY_TIME, OutOfTime, Work, guarded, late, within
from dptopk.costs import BoundedRange, Charge, Cost, charge_of, sum_up
from dptopk.errors import IncompatibleCosts, InvalidParameter, NotApplicable, NotCertified

if TYPE_CHECKING:
    import pandas as pd


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
# Others are never smaller than these, which are loaded by name, for a table, figures and tests.
PUBLISHED = "published."
# For analysts who do not adapt, or for a single range: loaded where one of them may be asked.
FOR_BATCH = "bounded_range."

# Of more different costs than this, and of more costs, some bounds take long; the work of reading
# one cost; which bounds come first then, the quicker and the closer one.
MANY_DIFFERENT = 1000
MANY_COSTS = 10_000
WORK_TO_READ = 1e-5
FIRST_OF_MANY = ("renyi", "optimal_setwise")
REMEMBERED = 512  # answers
BEYOND_FLOATS = "its numbers are beyond the range of floats"


@cache
def _registry(*left_out: str) -> dict[str, BoundSpec]:
    """The bounds by name, in the order in which they are tried, without the modules whose names
    begin with one of ``left_out``: those are not loaded. Bounds of others, which register
    themselves, come last.
    """
    wanted = [module for module in MODULES if not module.startswith(left_out)]
    for module in wanted:
        import_module(f"dptopk.accounting.{module}")
    ours = [name for module in wanted for name in MODULES[module]]
    return {name: REGISTRY[name] for name in [*ours, *_of_others()]}


def _of_others() -> list[str]:
    """The names of registered bounds that are not in MODULES."""
    known = {name for held in MODULES.values() for name in held}
    return [name for name in REGISTRY if name not in known]


def _spec(name: str) -> BoundSpec:
    """One bound; its module is loaded."""
    for module, held in MODULES.items():
        if name in held:
            import_module(f"dptopk.accounting.{module}")
    return REGISTRY[name]


def names() -> tuple[str, ...]:
    """The names of all bounds, in the order in which they are tried."""
    return (*(name for held in MODULES.values() for name in held), *_of_others())


def compose(
    charge: Charge | Cost | str | Iterable[Charge | Cost | str],
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    interaction: Interaction = "setwise",
    bound: str = "best",
    rtol: float = 1e-3,
    effort: Effort = "normal",
    max_seconds: float | None = None,
    lower: bool = True,
    certificate: bool = False,
) -> Bound:
    """The privacy guarantee of everything in a charge together: an upper bound, rounded outward.

    Args:
        charge: what was, or will be, spent: a Charge, a cost, text such as "25*BR(0.1)", or a list
            of these.
        delta: in [0, 1): then the answer is ε. Exactly one of delta and epsilon is given.
        epsilon: >= 0: then the answer is δ.
        interaction: "batch", "ordered", "setwise" or "filter": who chooses, and when
            (docs/theorems.md). A charge that is adaptive inside is treated as "ordered" even in a
            batch.
        bound: a name of the registry, or "best" for the smallest valid answer; theorems of papers
            that others have superseded can never give it, and answer to their names only.
        rtol: relative width of the certified bracket at which refinement may stop.
        effort: "quick", "normal" or "thorough": how much counted work refinement may take,
            nominally 0.25, 2.5 or 25 seconds of one processor; where many different ranges meet, up
            to three times that. More effort never gives a worse end; no clock decides a number.
        max_seconds: a guard: what is finished by then is the answer, sound but not reproducible;
            the note says so.
        lower: whether a lower bound is wanted too. Without it an answer takes down to half the
            time; how narrow it is is then not proven, only estimated.
        certificate: also make a certificate of ε at ``delta`` (docs/notes/certificates.md); it
            takes a second or two more.

    Returns:
        Bound: its ``epsilon`` (or ``delta``) is an upper bound; inf (or 1) with a note when there
        is none.

    Raises:
        InvalidParameter: on arguments outside their ranges or an unknown bound.
        IncompatibleCosts: when the named bound does not take the costs or is not valid for the
        interaction.
        NotCertified: when the certificate asked for cannot be made: of δ, for a filter, for some
        kinds of costs.

    >>> from dptopk.costs import PureDP
    >>> round(compose(Charge({PureDP(0.1): 25}), delta=1e-6).epsilon, 5)
    2.07906
    """
    costs = charge_of(charge)
    question = _CompositionQuery(costs, delta, epsilon, interaction, rtol, Work.of(effort), lower)
    bound = validate.member(("best", *names()), bound=bound)
    with within(max_seconds):
        alone = (
            guarded() or len(costs.costs) > MANY_DIFFERENT
        )  # of a clock, or too large to remember
        if alone:
            found = _stated(question, bound)
        else:
            found = _remembered(question, effort, bound)
    if certificate:
        found = replace(found, certificate=_certificate(question, found.epsilon, effort))
    return found


@lru_cache(maxsize=REMEMBERED)
def _remembered(question: _CompositionQuery, effort: Effort, bound: str) -> Bound:
    """The answer to a question that no clock may cut: a function of these arguments, so it is
    computed once.
    """
    return _stated(question.fresh(Work.of(effort)), bound)


def _stated(question: _CompositionQuery, bound: str) -> Bound:
    """The answer, with what was asked."""
    found = _answer(question, bound)
    if not question.lower:
        found = replace(found, lower=None)
    return replace(found, charge=question.charge, interaction=question.interaction)


def _certificate(question: _CompositionQuery, aim: float, effort: Effort) -> Certificate:
    """A certificate of the question's charge."""
    if question.delta is None or question.interaction == "filter":
        raise NotCertified(
            "a certificate states an ε at a given delta, for what is registered: not for a filter"
        )
    return certify(
        question.charge, delta=question.delta, aim=aim, rtol=question.rtol, effort=effort
    )


def _answer(question: _CompositionQuery, bound: str) -> Bound:
    """The answer of one bound, or the smallest of all that are valid."""
    if bound != "best":
        spec = _spec(bound)
        reason = question.why_not(spec)
        if reason:
            raise IncompatibleCosts(f"bound {bound!r} does not apply: {reason}")
        return question.ask(spec)
    if question.settled is not None:
        return question.settled
    best: Bound | None = None
    answers: dict[str, Bound] = {}
    cut = ""
    for spec in _in_turn(question, answers):
        nothing = math.inf if question.delta is not None else 1
        finite = best is not None and question.value(best) < nothing
        if finite and spec.refines and late():
            cut = CUT_BY_TIME
            break
        found = answers[spec.name] = question.ask(spec)
        known = [best, found] if best is not None else [found]
        lower = max((b.lower for b in known if b.lower is not None), default=None)
        if best is None or question.value(found) < question.value(best):
            best = found
        value = question.value(best)
        best = replace(best, lower=None if lower is None else min(lower, value))
        if lower is not None and value - lower <= question.rtol * value < math.inf:
            return best  # provably within rtol of the optimum: no other bound can help
    if best is None:
        return question.nothing("no registered bound takes these costs in this interaction")
    return replace(best, note=_notes(best, cut, answers))


def _notes(best: Bound, cut: str, answers: dict[str, Bound]) -> str:
    """Why the others did not end closer: what the winner itself has to say comes first."""
    silent = {"", best.note}
    others = [
        f"{name}: {one.note}"
        for name, one in answers.items()
        if one.note not in silent and name != best.name
    ]
    notes = dict.fromkeys([best.note, cut, *others])
    return "; ".join(filter(None, notes))


def _in_turn(  # noqa: C901
    question: _CompositionQuery, answers: dict[str, Bound]
) -> Iterator[BoundSpec]:
    """The bounds to ask, given the answers so far.

    Those that refine come last, one after the other: they share the work that is left, and where
    they are cut nothing follows, so that more work never skips a bound. A bound that another one
    makes needless comes after it, or rests; so does what it makes needless itself. Of very many
    costs it always rests. It takes a while to read very many different costs in any way: there the
    Rényi curves come first, then one product, then the others while there is work left.
    """
    no_delta = question.delta is not None and question.query.delta == 0
    if (
        no_delta and not question.lower and all_pure(question.rest)
    ):  # randomised response attains the plain sum
        yield _spec("basic")
        return
    ranges = sum(question.rest.of(BoundedRange).values())
    for_batch = ranges == 1 or (ranges > 1 and question.interaction == "batch")
    left_out = (PUBLISHED,) if for_batch else (PUBLISHED, FOR_BATCH)
    specs = [spec for spec in _registry(*left_out).values() if not spec.published]
    better = {spec.name: spec.below_for(question.rest) for spec in specs}
    different = len(question.rest.costs)
    many = question.rest.count > MANY_COSTS
    first = FIRST_OF_MANY if different > MANY_DIFFERENT else ()
    needless: set[str] = set()

    def turn(spec: BoundSpec) -> tuple[int, bool, int]:
        return (spec.name in first) * (spec.refines - 2), spec.refines, place(spec.name)

    def place(name: str) -> int:
        if name:
            return 1 + place(better[name])
        return 0

    def rests(other: str) -> bool:
        if other in needless or (other in answers and answers[other].note == ""):
            return True
        return many and other != "" and not question.why_not(_spec(other))

    for spec in sorted(specs, key=turn):
        if (
            spec.name not in first
            and first
            and not question.query.work.take(WORK_TO_READ * different)
        ):
            break
        if (spec.refines or spec.name not in first) and rests(better[spec.name]):
            needless.add(spec.name)
        elif not question.why_not(spec):
            yield spec


def table(
    charge: Charge | Cost | str | Iterable[Charge | Cost | str],
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    interaction: Interaction = "setwise",
    rtol: float = 1e-3,
    effort: Effort = "normal",
    max_seconds: float | None = None,
) -> pd.DataFrame:
    """All bounds side by side for one charge: a row a bound, in registry order.

    Arguments as for ``compose``; the effort is for each bound, and ``max_seconds`` for all of them.

    Returns:
        A data frame with the columns name, source, epsilon, delta, lower, batch, ordered, setwise,
        filter, applies, why not. ``applies`` says whether the bound may be used for the interaction
        asked; a bound that takes the costs but is not valid in that interaction still shows its
        value, and the reason.
    """
    import pandas as pd

    costs = charge_of(charge)
    question = _CompositionQuery(costs, delta, epsilon, interaction, rtol, Work.of(effort))
    with within(max_seconds):
        rows = [_row(spec, question.fresh(Work.of(effort))) for spec in _registry().values()]
    return pd.DataFrame(rows)


def _row(spec: BoundSpec, question: _CompositionQuery) -> dict[str, object]:
    """One bound for ``table``."""
    row: dict[str, object] = {"name": spec.name, "source": spec.source}
    found = None if question.refusal(spec) else question.ask(spec)
    for name in ("epsilon", "delta", "lower"):
        value = getattr(found, name, None)
        row[name] = np.nan if value is None else value
    row |= {model: found is not None and model in found.valid_in for model in INTERACTIONS}
    reason = question.why_not(spec)
    return row | {"applies": not reason, "why not": reason}


@dataclass(frozen=True)
class _CompositionQuery:
    """One call of compose: the charge split from its failures, and the query on the rest."""

    charge: Charge
    delta: float | None
    epsilon: float | None
    interaction: Interaction
    rtol: float
    work: Work = field(compare=False)
    lower: bool = True
    rest: Charge = field(init=False, compare=False)
    failure: float = field(init=False, compare=False)
    summed: float = field(init=False, compare=False)  # the failure mass that a filter counts on
    attained: float = field(
        init=False, compare=False
    )  # the failure mass that is attained in any case
    query: Query = field(init=False, compare=False)
    # Each bound's, built when first asked for; or why not.
    curves: dict[str, Curve | str] = field(init=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        charge = validate.instance(Charge, charge=self.charge)
        if (self.delta is None) == (self.epsilon is None):
            raise InvalidParameter("give exactly one of delta and epsilon")
        interaction = validate.member(INTERACTIONS, interaction=self.interaction)
        if interaction == "batch" and charge.adaptive:
            interaction = "ordered"  # adaptive inside: see theorems.md, "Peeling is adaptive"
        rtol = validate.positive(rtol=self.rtol)
        lower = validate.instance(bool, lower=self.lower)
        rest, failure = split_failure(charge)
        summed = split_failure(charge, summed=True)[1]
        attained = failure * (1 - 2 * FAILURE_SLACK)
        failure = summed if interaction == "filter" else failure
        query = Query(0.0, None, rtol, self.work, None, lower, interaction)
        if self.delta is not None:
            delta = validate.probability(delta=self.delta)
            validate.assign(self, delta=delta)
            left = _rest_delta(delta, charge.delta, failure)
            query = replace(query, delta=left, attained=_delta_below(delta, charge.delta, attained))
        elif self.epsilon is not None:
            epsilon = validate.nonnegative(epsilon=self.epsilon)
            validate.assign(self, epsilon=epsilon)
            query = replace(query, epsilon=epsilon)
        validate.assign(self, interaction=interaction, rtol=rtol)
        validate.assign(
            self, rest=rest, failure=failure, summed=summed, attained=attained, query=query
        )

    def fresh(self, work: Work) -> _CompositionQuery:
        """The same question, nothing of it answered, with a work budget of its own."""
        return replace(self, work=work)

    @property
    def settled(self) -> Bound | None:
        """The answer where no theorem is needed: a charge of failures only, or a δ below the
        failure mass.
        """
        if self.query.delta < 0:
            return self.nothing("delta is below the charge's own mass of bad events")
        if not self.rest.costs:
            return self._bound(
                Answer(0.0, 0.0), "basic", "the charge holds failure mass only", INTERACTIONS
            )
        return None

    def refusal(self, spec: BoundSpec) -> str:
        if not self.rest.costs:
            if spec.name == "basic":
                return ""
            return "nothing to compose"
        curve = self._curve(spec)
        if isinstance(curve, str):
            return curve
        return ""

    def _curve(self, spec: BoundSpec) -> Curve | str:
        if spec.name not in self.curves:
            try:
                with np.errstate(over="ignore", divide="raise", invalid="raise"):
                    self.curves[spec.name] = spec.curve(self.rest)
            except NotApplicable as reason:
                self.curves[spec.name] = str(reason)
            except ArithmeticError:
                self.curves[spec.name] = BEYOND_FLOATS
        return self.curves[spec.name]

    def why_not(self, spec: BoundSpec) -> str:
        """Why the bound may not be used for this question; '' when it may."""
        refusal = self.refusal(spec)
        if refusal:
            return refusal
        valid = spec.valid_in(self.rest)
        if self.interaction not in valid:
            inside = " (the charge is adaptive inside)" if self.rest.adaptive else ""
            return f"valid only in {' and '.join(valid)}, asked for {self.interaction}{inside}"
        return ""

    def ask(self, spec: BoundSpec) -> Bound:
        """The bound's answer for the whole charge."""
        if self.settled is not None:
            return self.settled
        curve = self._curve(spec)
        valid = spec.valid_in(self.rest)
        if self.interaction != "filter" and self.failure < self.summed:
            valid = tuple(model for model in valid if model != "filter")
        try:
            # An overflow to inf is on the safe side; a NaN or a division by 0 might not be.
            with np.errstate(over="ignore", divide="raise", invalid="raise"):
                if isinstance(curve, str):
                    answer = Answer(math.inf, note=curve)
                else:
                    answer = curve.answer(self.query)
        except ArithmeticError:
            answer = Answer(math.inf, note=BEYOND_FLOATS)
        except OutOfTime:
            answer = Answer(math.inf, note=CUT_BY_TIME)
        if not spec.lower_holds(self.rest, self.interaction):
            answer = replace(answer, lower=None)
        return self._bound(answer, spec.name, spec.source, valid)

    def value(self, found: Bound) -> float:
        if self.delta is not None:
            return found.epsilon
        return found.delta

    def nothing(self, note: str) -> Bound:
        epsilon, delta = (
            (self.epsilon or 0.0, 1.0) if self.delta is None else (math.inf, self.delta)
        )
        return Bound(epsilon, delta, None, "none", "", (), note)

    def _bound(
        self, answer: Answer, name: str, source: str, valid: tuple[Interaction, ...]
    ) -> Bound:
        value = math.inf if math.isnan(answer.value) else answer.value
        lower = answer.lower
        if self.delta is not None:
            return Bound(value, self.delta, lower, name, source, valid, answer.note)
        survived = min(value, 1.0) * (1 - self.failure)
        summed = sum_up([self.charge.delta, self.failure, survived])
        total = min(summed * (1 + 4e-16), 1.0)
        total = total if value or self.failure else self.charge.delta
        if lower is not None:
            inner = self.attained + lower * (1 - self.attained)
            below = self.charge.delta + inner * (1 - self.charge.delta)
            lower = min(below * (1 - 1e-15), total)  # five roundings
        return Bound(self.epsilon or 0.0, total, lower, name, source, valid, answer.note)


def _rest_delta(delta: float, bad: float, failure: float) -> float:
    """The δ left for the costs, (δ - δ_charge - p)/(1 - p), rounded down; negative if none is
    left.
    """
    left = -sum_up([-delta, bad, failure])  # the negated sum is rounded up, so this is rounded down
    if left <= 0 or failure == 0:
        return left
    return min(left / (1 - failure) * (1 - 4e-16), delta)


def _delta_below(delta: float, bad: float, attained: float) -> float:
    """The δ_rest at which what is attained reaches δ: ((δ - δ_charge)/(1 - δ_charge) - p)/(1 - p),
    rounded up.
    """
    exact = (Fraction(delta) - Fraction(bad)) / (1 - Fraction(bad))
    if attained < 1:
        exact = (exact - Fraction(attained)) / (1 - Fraction(attained))
    else:
        exact = Fraction(0)
    return min(round_up(max(exact, Fraction(0))), 1.0)
