"""The registry of composition bounds, and ``compose``: the smallest valid answer for a charge.

A bound is a registered function from a charge to a Curve, with its name, its source, the costs it takes and the
interaction models it is valid in. ``compose`` knows no theorem: it asks the registry. To add a theorem, add a module
that registers it and list the module in ``_MODULES``.

Before any bound sees a charge, the probability mass of failure is split off (``split_failure``): an (ε, δ)-DP cost is,
independently of everything else, ruined with probability δ and ε-DP otherwise (KOV's four-outcome pair), so

    δ_total(x) = δ_charge + p + (1 - p) δ_rest(x),     p = 1 - ∏(1 - δ_i),

holds for every bound and every interaction with a registered set of costs, because the failures can be drawn before the
first answer. In a filter the costs are not known beforehand, only that their δ's add up to no more than a cap, which
may be spent at once: there p = Σ δ_i. Mechanisms with these costs attain δ_charge + (1 - δ_charge) δ(x), with δ(x) the
above for the p of the product and δ_charge = 0: lower bounds use that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import INTERACTIONS, Effort, Interaction
from dptopk._internal.formatting import format_upper, html_table
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.kinds.registry import kind_of
from dptopk.accounting.work import CUT, OutOfTime, Work, late, within
from dptopk.costs import Charge, Cost, PureDP, sum_up
from dptopk.costs.rounding import round_up
from dptopk.errors import IncompatibleCosts, InvalidParameter, NotApplicable, NotCertified

if TYPE_CHECKING:
    import pandas as pd


# Modules that register bounds, in the order in which compose tries them: optima and closed forms before recursions, and
# last those that another one makes needless (``bound``, below).
_MODULES = (
    "pure_dp.homogeneous", "published.cadir_najib_shkel.two_epsilon", "pure_dp.heterogeneous", "gaussian.composition",
    "bounded_range.nonadaptive", "bounded_range.nonadaptive_heterogeneous", "bounded_range.nonadaptive_with_dp",
    "published.dong_durfee_rogers", "renyi.concentrated", "renyi.composition", "f_dp.multi_dp", "setwise.optimum",
)  # fmt: skip

# The product of survivals is known to a few units of roundoff, of its logarithm's terms and of expm1: 45 of them.
FAILURE_SLACK = 1e-14
# Of more different costs than this, and of more costs, some bounds take long; the work of reading one cost; which
# bounds come first then, the quicker and the closer one.
MANY_DIFFERENT, MANY_COSTS, WORK_TO_READ = 1000, 10_000, 1e-5
FIRST_OF_MANY = ("renyi", "optimal_dp_approx", "optimal_setwise")
BEYOND_FLOATS = "its numbers are beyond the range of floats"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A claim and what is needed to check it.

    Attributes:
        charge: the costs, as text.
        epsilon: the claim is (epsilon, delta)-DP, set-wise.
        delta: as asked.
        text: the file, for checker/check_certificate.py: JSON, node values as compressed binary64 in base64.
    """

    charge: str
    epsilon: float
    delta: float
    text: str

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_text(self.text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Bound:
    """The answer of a composition bound.

    Attributes:
        epsilon, delta: the guarantee: the composition is (epsilon, delta)-DP. The one that was asked for is an upper
            bound, rounded outward; it may be inf (epsilon) or 1 (delta) when the bound gives nothing.
        lower: a proven lower bound on the one asked for (the optimum over all mechanisms with these costs), or None.
        name, source: the bound used and where it is proven.
        valid_in: the interaction models in which the guarantee holds.
        note: what the reader should know, e.g. that the work was used up.
        certificate: where it was asked for, a proof of an ε of its own that an auditor can check without this package.
    """

    epsilon: float
    delta: float
    lower: float | None
    name: str
    source: str
    valid_in: tuple[Interaction, ...]
    note: str = ""
    certificate: Certificate | None = None

    def __str__(self) -> str:
        """The guarantee in words, rounded up."""
        note = f"; {self.note}" if self.note else ""
        proven = f"({format_upper(self.epsilon)}, {format_upper(self.delta)})-DP by {self.name} ({self.source})"
        return f"{proven}; valid in {', '.join(self.valid_in)}{note}"

    def _repr_html_(self) -> str:
        """For notebooks."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        values["valid_in"] = ", ".join(self.valid_in)
        return html_table(["bound", self.name], [(name, v) for name, v in values.items() if v not in {None, ""}])


@dataclass(frozen=True, slots=True)
class BoundSpec:
    """A registered bound: ``build`` gives the curve of a charge or raises NotApplicable."""

    name: str
    source: str
    takes: tuple[type[Cost], ...]
    valid_through: Interaction | Callable[[Charge], Interaction]
    lower_from: Callable[[Charge], Interaction]
    below: Callable[[Charge], str]
    refines: bool
    build: Callable[[Charge], Curve]

    def lower_holds(self, charge: Charge, interaction: Interaction) -> bool:
        """Whether the bound's lower bound is on the optimum of this interaction, and not only of a stronger one."""
        return INTERACTIONS.index(interaction) >= INTERACTIONS.index(self.lower_from(charge))

    def valid_in(self, charge: Charge) -> tuple[Interaction, ...]:
        """The interaction models in which this bound holds for the charge."""
        last = self.valid_through if isinstance(self.valid_through, str) else self.valid_through(charge)
        return INTERACTIONS[: INTERACTIONS.index(last) + 1]

    def curve(self, charge: Charge) -> Curve:
        """The curve of a charge without failure mass.

        Raises:
            NotApplicable: with the reason.
        """
        foreign = sorted(kind.__name__ for kind in set(map(type, charge.costs)) if not issubclass(kind, self.takes))
        if foreign:
            raise NotApplicable(f"does not take {', '.join(foreign)}")
        return self.build(charge)


_REGISTRY: dict[str, BoundSpec] = {}


C = TypeVar("C", bound=Curve)


def bound(
    name: str,
    *,
    source: str,
    takes: Iterable[type[Cost]],
    valid_through: Interaction | Callable[[Charge], Interaction] = "setwise",
    lower_from: Callable[[Charge], Interaction] = lambda charge: "batch",  # noqa: ARG005
    below: Callable[[Charge], str] = lambda charge: "",  # noqa: ARG005
    refines: bool = False,
) -> Callable[[Callable[[Charge], C]], Callable[[Charge], C]]:
    """Register a function from a charge (without failure mass, never empty) to a Curve under a name.

    Args:
        name: the name that ``compose(bound=...)`` takes.
        source: paper and theorem.
        takes: the cost types that may occur in the charge.
        valid_through: the strongest interaction model in which it holds, or a function of the charge giving it.
        lower_from: a function of the charge giving the weakest interaction whose optimum its lower bound is on; later
            for a bound that is attained only by an analyst who adapts.
        below: a function of the charge giving the name of another bound that is never larger but for the width of its
            answer, or "": where that other one has been answered as closely as asked, this one is not asked.
        refines: whether its answers take work that is counted.
    """

    def register(build: Callable[[Charge], C]) -> Callable[[Charge], C]:
        _REGISTRY[name] = BoundSpec(name, source, tuple(takes), valid_through, lower_from, below, refines, build)
        return build

    return register


@cache
def _registry() -> dict[str, BoundSpec]:
    rank = {import_module(f"dptopk.accounting.{module}").__name__: place for place, module in enumerate(_MODULES)}
    # Modules may have been imported in another order before.
    ordered = sorted(_REGISTRY.values(), key=lambda spec: rank.get(spec.build.__module__, len(rank)))
    return {spec.name: spec for spec in ordered}


def names() -> tuple[str, ...]:
    """The names of all bounds, in the order in which they are tried."""
    return tuple(_registry())


def split_failure(charge: Charge, *, summed: bool = False) -> tuple[Charge, float]:
    """Split the failure mass p off a charge: (charge without any δ, upper bound on p); see the module docstring.

    ApproxDP(ε, δ) becomes PureDP(ε); a MultiDP keeps its constraints with the common atom, the δ at its largest ε,
    taken out of each. The charge's own ``delta`` is not part of p: it stays outside. ``summed``: p = Σ δ_i.
    """
    costs: dict[Cost, int] = {}
    failures: dict[float, int] = {}
    for cost, times in charge:
        split = kind_of(cost).without_failure
        rest, atom = split(cost) if split else (cost, 0.0)
        if atom:
            failures[atom] = failures.get(atom, 0) + times
        if rest is not None:
            costs[rest] = costs.get(rest, 0) + times
    if costs == charge.costs and not charge.delta:
        return charge, 0.0  # nothing to split, the usual case: a charge of many different costs takes a while to build
    rest_charge = Charge(costs, adaptive=charge.adaptive, neighbours=charge.neighbours)
    if summed:
        return rest_charge, min(sum_up(failures), 1.0)
    try:
        log_survival = math.fsum(times * math.log1p(-atom) for atom, times in failures.items())
    except OverflowError:  # a count beyond the largest float
        log_survival = -math.inf
    # Whichever upper bound is smaller; the plain sum is exact for a single failure.
    return rest_charge, min(sum_up(failures), -math.expm1(log_survival) * (1 + FAILURE_SLACK), 1.0)


def compose(
    charge: Charge,
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
        charge: what was, or will be, spent.
        delta: in [0, 1): then the answer is ε. Exactly one of delta and epsilon is given.
        epsilon: >= 0: then the answer is δ.
        interaction: "batch", "ordered", "setwise" or "filter": who chooses, and when (docs/theorems.md). A charge that
            is adaptive inside is treated as "ordered" even in a batch.
        bound: a name of the registry, or "best" for the smallest valid answer.
        rtol: relative width of the certified bracket at which refinement may stop.
        effort: "quick", "normal" or "thorough": how much counted work refinement may take, about 0.25, 2.5 or 25
            seconds of one processor. More effort never gives a worse end; no clock decides a number.
        max_seconds: a guard: what is finished by then is the answer, sound but not reproducible; the note says so.
        lower: whether a lower bound is wanted too. Without it an answer takes down to half the time; how narrow it is
            is then not proven, only estimated.
        certificate: also make a certificate of ε at ``delta`` (docs/certificates.md); it takes a second or two more.

    Returns:
        Bound: its ``epsilon`` (or ``delta``) is an upper bound; inf (or 1) with a note when there is none.

    Raises:
        InvalidParameter: on arguments outside their ranges or an unknown bound.
        IncompatibleCosts: when the named bound does not take the costs or is not valid for the interaction.
        NotCertified: when the certificate asked for cannot be made: of δ, for a filter, for some kinds of costs.

    >>> from dptopk.costs import PureDP
    >>> round(compose(Charge({PureDP(0.1): 25}), delta=1e-6).epsilon, 5)
    2.07906
    """
    question = _CompositionQuery.of(charge, delta, epsilon, interaction, rtol, Work.of(effort), lower=lower)
    with within(max_seconds):
        found = _answer(question, bound)
    return replace(found, certificate=_certificate(question)) if certificate else found


def _certificate(question: _CompositionQuery) -> Certificate:
    """A certificate of the question's charge; its maker is loaded by name, as the bounds are."""
    if question.delta is None or question.interaction == "filter":
        raise NotCertified("a certificate states an ε at a given delta, for what is registered: not for a filter")
    return import_module("dptopk.accounting.setwise.certificates").certify(question.charge, delta=question.delta)


def _answer(question: _CompositionQuery, bound: str) -> Bound:
    """The answer of one bound, or the smallest of all that are valid."""
    if bound != "best":
        spec = _registry().get(bound)
        if spec is None:
            raise InvalidParameter(f"bound must be 'best' or one of {', '.join(names())}; got {bound!r}")
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
        finite = best is not None and question.value(best) < (math.inf if question.delta is not None else 1)
        if finite and spec.refines and late():
            cut = CUT
            break
        found = answers[spec.name] = question.ask(spec)
        lower = max((b.lower for b in (best, found) if b is not None and b.lower is not None), default=None)
        if best is None or question.value(found) < question.value(best):
            best = found
        value = question.value(best)
        best = replace(best, lower=None if lower is None else min(lower, value))
        if lower is not None and value - lower <= question.query.rtol * value < math.inf:
            return best  # provably within rtol of the optimum: no other bound can help
    if best is None:
        return question.nothing("no registered bound takes these costs in this interaction")
    # Why the others did not end closer: what the winner itself has to say comes first.
    silent = {"", best.note}
    others = [f"{name}: {one.note}" for name, one in answers.items() if one.note not in silent and name != best.name]
    notes = dict.fromkeys([best.note, cut, *others])
    return replace(best, note="; ".join(filter(None, notes)))


def _in_turn(question: _CompositionQuery, answers: dict[str, Bound]) -> Iterator[BoundSpec]:
    """The bounds to ask, given the answers so far.

    Those that refine come last, one after the other: they share the work that is left, and where they are cut nothing
    follows, so that more work never skips a bound. A bound that another one makes needless comes after it, or rests; so
    does what it makes needless itself. Of very many costs it always rests. It takes a while to read very many different
    costs in any way: there the Rényi curves come first, then one product, then the others while there is work left.
    """
    if question.sums:
        yield _registry()["basic"]
        return
    better = {spec.name: spec.below(question.rest) for spec in _registry().values()}
    different, many = len(question.rest.costs), question.rest.count > MANY_COSTS
    first = FIRST_OF_MANY if different > MANY_DIFFERENT else ()
    needless: set[str] = set()

    def turn(spec: BoundSpec) -> tuple[int, bool, int]:
        return (spec.name in first) * (spec.refines - 2), spec.refines, place(spec.name)

    def place(name: str) -> int:
        return 1 + place(better[name]) if name else 0

    def rests(other: str) -> bool:
        if other in needless or (other in answers and answers[other].note == ""):
            return True
        return many and other != "" and not question.why_not(_registry()[other])

    for spec in sorted(_registry().values(), key=turn):
        if spec.name not in first and first and not question.query.work.take(WORK_TO_READ * different):
            break
        if (spec.refines or spec.name not in first) and rests(better[spec.name]):
            needless.add(spec.name)
        elif not question.why_not(spec):
            yield spec


def table(
    charge: Charge,
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
        A data frame with the columns name, source, epsilon, delta, lower, batch, ordered, setwise, filter, applies,
        why not. ``applies`` says whether the bound may be used for the interaction asked; a bound that takes the costs
        but is not valid in that interaction still shows its value, and the reason.
    """
    import pandas as pd

    question = _CompositionQuery.of(charge, delta, epsilon, interaction, rtol, Work.of(effort))
    with within(max_seconds):
        rows = [_row(spec, question.fresh(Work.of(effort))) for spec in _registry().values()]
    return pd.DataFrame(rows)


def _row(spec: BoundSpec, question: _CompositionQuery) -> dict[str, object]:
    """One bound for ``table``."""
    row: dict[str, object] = {"name": spec.name, "source": spec.source}
    row |= dict.fromkeys(("epsilon", "delta", "lower"), np.nan)
    valid: tuple[Interaction, ...] = ()
    if question.takes(spec):
        found = question.ask(spec)
        valid = found.valid_in
        row |= {"epsilon": found.epsilon, "delta": found.delta}
        row["lower"] = np.nan if found.lower is None else found.lower
    row |= {model: model in valid for model in INTERACTIONS}
    reason = question.why_not(spec)
    return row | {"applies": not reason, "why not": reason}


@dataclass(frozen=True)
class _CompositionQuery:
    """One call of compose: the charge split from its failures, and the query on the rest."""

    charge: Charge
    rest: Charge
    failure: float
    attained: float  # the failure mass that is surely attained
    query: Query
    interaction: Interaction
    delta: float | None
    epsilon: float | None
    curves: dict[str, Curve | str] = field(default_factory=dict)  # each bound's, built when first asked for; or why not

    @classmethod
    def of(
        cls,
        charge: Charge,
        delta: float | None,
        epsilon: float | None,
        interaction: Interaction,
        rtol: float,
        work: Work,
        *,
        lower: bool = True,
    ) -> _CompositionQuery:
        validate.instance(Charge, charge=charge)
        if (delta is None) == (epsilon is None):
            raise InvalidParameter("give exactly one of delta and epsilon")
        validate.member(INTERACTIONS, interaction=interaction)
        if interaction == "batch" and charge.adaptive:
            interaction = "ordered"  # adaptive inside: see theorems.md, "Peeling is adaptive"
        rtol = validate.positive(rtol=rtol)
        validate.instance(bool, lower=lower)
        rest, failure = split_failure(charge, summed=interaction == "filter")
        attained = split_failure(charge)[1] * (1 - 2 * FAILURE_SLACK)
        if delta is not None:
            delta = validate.probability(delta=delta)
            left, below = _rest_delta(delta, charge.delta, failure), _delta_below(delta, charge.delta, attained)
            query = Query(left, None, rtol, work, below, lower)
        else:
            epsilon = validate.nonnegative(epsilon=epsilon)
            query = Query(0.0, epsilon, rtol, work, None, lower)
        return cls(charge, rest, failure, attained, query, interaction, delta, epsilon)

    def fresh(self, work: Work) -> _CompositionQuery:
        """The same question with work of its own; the curves that were built stay."""
        return replace(self, query=replace(self.query, work=work))

    @cached_property
    def summed_failure(self) -> float:
        """The failure mass that a filter counts on."""
        return split_failure(self.charge, summed=True)[1]

    @property
    def settled(self) -> Bound | None:
        """The answer where no theorem is needed: a charge of failures only, or a δ below the failure mass."""
        if self.query.delta < 0:
            return self.nothing("delta is below the charge's own mass of bad events")
        if not self.rest.costs:
            answer = Answer(0.0, 0.0)
            return self._bound(answer, "basic", "the charge holds failure mass only", INTERACTIONS)
        return None

    @property
    def sums(self) -> bool:
        """Whether the plain sum is the answer: randomised response attains it where no δ is left."""
        asked = self.delta is not None and self.query.delta == 0 and not self.query.lower
        return asked and {type(cost) for cost in self.rest.costs} == {PureDP}

    def takes(self, spec: BoundSpec) -> bool:
        return self._refusal(spec) == ""

    def _refusal(self, spec: BoundSpec) -> str:
        if not self.rest.costs:
            return "" if spec.name == "basic" else "nothing to compose"
        curve = self._curve(spec)
        return curve if isinstance(curve, str) else ""

    def _curve(self, spec: BoundSpec) -> Curve | str:
        if spec.name not in self.curves:
            self.curves[spec.name] = self._build(spec)
        return self.curves[spec.name]

    def _build(self, spec: BoundSpec) -> Curve | str:
        try:
            with np.errstate(over="ignore", divide="raise", invalid="raise"):
                return spec.curve(self.rest)
        except NotApplicable as reason:
            return str(reason)
        except ArithmeticError:
            return BEYOND_FLOATS

    def why_not(self, spec: BoundSpec) -> str:
        """Why the bound may not be used for this question; '' when it may."""
        refusal = self._refusal(spec)
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
        if self.interaction != "filter" and self.failure < self.summed_failure:
            valid = tuple(model for model in valid if model != "filter")
        if isinstance(curve, str):
            return self._bound(Answer(math.inf, note=curve), spec.name, spec.source, valid)
        try:
            # An overflow to inf is on the safe side; a NaN or a division by 0 might not be.
            with np.errstate(over="ignore", divide="raise", invalid="raise"):
                answer = curve.answer(self.query)
        except ArithmeticError:
            return self._bound(Answer(math.inf, note=BEYOND_FLOATS), spec.name, spec.source, valid)
        except OutOfTime:
            return self._bound(Answer(math.inf, note=CUT), spec.name, spec.source, valid)
        if not spec.lower_holds(self.rest, self.interaction):
            answer = replace(answer, lower=None)
        return self._bound(answer, spec.name, spec.source, valid)

    def value(self, found: Bound) -> float:
        return found.epsilon if self.delta is not None else found.delta

    def nothing(self, note: str) -> Bound:
        if self.delta is not None:
            return Bound(math.inf, self.delta, None, "none", "", (), note)
        return Bound(self.epsilon or 0.0, 1.0, None, "none", "", (), note)

    def _bound(self, answer: Answer, name: str, source: str, valid: tuple[Interaction, ...]) -> Bound:
        value = math.inf if math.isnan(answer.value) else answer.value
        lower = answer.lower
        if self.delta is not None:
            return Bound(value, self.delta, lower, name, source, valid, answer.note)
        total = min(sum_up([self.charge.delta, self.failure, min(value, 1.0) * (1 - self.failure)]) * (1 + 4e-16), 1.0)
        total = total if value or self.failure else self.charge.delta
        if lower is not None:
            inner = self.attained + lower * (1 - self.attained)
            lower = min((self.charge.delta + inner * (1 - self.charge.delta)) * (1 - 1e-15), total)  # five roundings
        return Bound(self.epsilon or 0.0, total, lower, name, source, valid, answer.note)


def _rest_delta(delta: float, bad: float, failure: float) -> float:
    """What is left of δ for the costs, (δ - δ_charge - p)/(1 - p), rounded down; negative when nothing is."""
    left = -sum_up([-delta, bad, failure])  # the negated sum is rounded up, so this is rounded down
    if left <= 0 or failure == 0:
        return left
    return min(left / (1 - failure) * (1 - 4e-16), delta)


def _delta_below(delta: float, bad: float, attained: float) -> float:
    """The δ_rest at which what is attained reaches δ: ((δ - δ_charge)/(1 - δ_charge) - p)/(1 - p), rounded up."""
    exact = (Fraction(delta) - Fraction(bad)) / (1 - Fraction(bad))
    exact = (exact - Fraction(attained)) / (1 - Fraction(attained)) if attained < 1 else Fraction(0)
    return min(round_up(max(exact, Fraction(0))), 1.0)
