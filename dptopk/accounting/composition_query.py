"""A question to ``compose``: the charge split from its failures, and what bounds answer to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import INTERACTIONS, Interaction
from dptopk._internal.rounding import round_up
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.registry import (
    FAILURE_SLACK,
    Bound,
    BoundSpec,
    split_failure,
)
from dptopk.accounting.work import CUT_BY_TIME, OutOfTime, Work
from dptopk.costs import Charge, sum_up
from dptopk.errors import InvalidParameter, NotApplicable

# Relative, at least the roundings (1.1e-16 each) of as many operations on numbers of one sign: of a
# sum that is rounded up, a product and a difference; and of the five operations of the lower bound,
# with room for another order of them.
THREE_ROUNDINGS = 4e-16
FIVE_ROUNDINGS = 1e-15
BEYOND_FLOATS = "its numbers are beyond the range of floats"


@dataclass(frozen=True)
class CompositionQuery:
    """One call of compose: the charge split from its failures, and the query on what is left.

    Attributes:
        charge: the charge.
        delta, epsilon: exactly one of them is given.
        interaction: who chooses the costs, and when.
        rtol: the relative width of the bracket at which refinement may stop.
        work: the work that refinement may take.
        lower: whether a lower bound is wanted too.
        failure_free: the charge without its failures.
        failure: an upper bound on the failure mass p of the module ``registry``; for a filter
            ``summed``.
        summed: the failure mass that a filter must allow for, Σ δ_i.
        attained: a lower bound on p, which mechanisms with these costs attain.
        query: the question to a bound about ``failure_free``.
        curves: the curve of each bound, made when first asked for, or why there is none.
    """

    charge: Charge
    delta: float | None
    epsilon: float | None
    interaction: Interaction
    rtol: float
    work: Work = field(compare=False)
    lower: bool = True
    failure_free: Charge = field(init=False, compare=False)
    failure: float = field(init=False, compare=False)
    summed: float = field(init=False, compare=False)
    attained: float = field(init=False, compare=False)
    query: Query = field(init=False, compare=False)
    curves: dict[str, Curve | str] = field(init=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the arguments, split off the failures, and state the query on what is left."""
        charge = validate.instance(Charge, charge=self.charge)
        if (self.delta is None) == (self.epsilon is None):
            raise InvalidParameter("give exactly one of delta and epsilon")
        interaction = validate.member(INTERACTIONS, interaction=self.interaction)
        if interaction == "batch" and charge.adaptive:
            interaction = "ordered"  # adaptive inside: see theorems.md, "Peeling is adaptive"
        rtol = validate.positive(rtol=self.rtol)
        lower = validate.instance(bool, lower=self.lower)
        failure_free, failure = split_failure(charge)
        _, summed = split_failure(charge, summed=True)
        # ``failure`` is above p by a relative 2 FAILURE_SLACK at most (``split_failure``).
        attained = failure * (1 - 2 * FAILURE_SLACK)
        if interaction == "filter":
            failure = summed
        validate.assign(self, interaction=interaction, rtol=rtol, failure_free=failure_free)
        validate.assign(self, failure=failure, summed=summed, attained=attained)
        query = Query(rtol=rtol, work=self.work, lower=lower, interaction=interaction)
        if self.delta is not None:
            delta = validate.probability(delta=self.delta)
            validate.assign(self, delta=delta, query=self._at_delta_of_costs(query, delta))
        elif self.epsilon is not None:
            epsilon = validate.nonnegative(epsilon=self.epsilon)
            validate.assign(self, epsilon=epsilon, query=replace(query, epsilon=epsilon))

    def _at_delta_of_costs(self, query: Query, delta: float) -> Query:
        """Return the query for the δ that the failures leave of ``delta`` to the costs."""
        bad = self.charge.delta
        return replace(
            query,
            delta=_delta_left_for_costs(delta, bad, self.failure),
            attained=_delta_of_costs_at_attained(delta, bad, self.attained),
        )

    def fresh(self, work: Work) -> CompositionQuery:
        """Return the same question with a work budget of its own, and without any answers."""
        return replace(self, work=work)

    @property
    def answer_without_theorem(self) -> Bound | None:
        """Return the answer where no theorem is needed: to a charge of failures only, or for a δ
        below the failure mass; None otherwise.
        """
        if self.query.delta < 0:
            return self.no_guarantee("delta is below the charge's own mass of bad events")
        if not self.failure_free.costs:
            return self._with_failures_added(
                Answer(0.0, 0.0), "basic", "the charge holds failure mass only", INTERACTIONS
            )
        return None

    def refusal(self, spec: BoundSpec) -> str:
        """Return why the bound does not take the costs; '' when it does."""
        if not self.failure_free.costs:
            if spec.name == "basic":
                return ""
            return "nothing to compose"
        curve = self._curve(spec)
        if isinstance(curve, str):
            return curve
        return ""

    def _curve(self, spec: BoundSpec) -> Curve | str:
        """Return the bound's curve, or why there is none."""
        if spec.name not in self.curves:
            try:
                with np.errstate(over="ignore", divide="raise", invalid="raise"):
                    self.curves[spec.name] = spec.curve(self.failure_free)
            except NotApplicable as reason:
                self.curves[spec.name] = str(reason)
            except ArithmeticError:
                self.curves[spec.name] = BEYOND_FLOATS
        return self.curves[spec.name]

    def why_not(self, spec: BoundSpec) -> str:
        """Return why the bound may not be used for this question; '' when it may."""
        refusal = self.refusal(spec)
        if refusal:
            return refusal
        valid = spec.valid_in(self.failure_free)
        if self.interaction not in valid:
            note = " (the charge is adaptive inside)" if self.failure_free.adaptive else ""
            return f"valid only in {' and '.join(valid)}, asked for {self.interaction}{note}"
        return ""

    def ask(self, spec: BoundSpec) -> Bound:
        """Return the bound's answer for the whole charge."""
        if self.answer_without_theorem is not None:
            return self.answer_without_theorem
        curve = self._curve(spec)
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
        return self.answer_for_charge(spec, answer)

    def ask_near(self, spec: BoundSpec, questions: Sequence[CompositionQuery]) -> list[Bound]:
        """Return the bound's answers to other questions about the same charge, from the evaluations
        that it makes for this one; where it can make none, each question is asked by itself.

        Args:
            spec: the bound.
            questions: the other questions; this one may be among them.
        """
        curve = self._curve(spec)
        asked = [question for question in questions if question.answer_without_theorem is None]
        answers: list[Answer] = []
        try:
            with np.errstate(over="ignore", divide="raise", invalid="raise"):
                if not isinstance(curve, str):
                    answers = curve.answers(self.query, [question.query for question in asked])
        except (ArithmeticError, OutOfTime):
            answers = []
        if not answers:
            return [question.ask(spec) for question in questions]
        next_answer = iter(answers)  # one for each question in ``asked``
        bounds = []
        for question in questions:
            bound = question.answer_without_theorem
            if bound is None:
                bound = question.answer_for_charge(spec, next(next_answer))
            bounds.append(bound)
        return bounds

    def answer_for_charge(self, spec: BoundSpec, answer: Answer) -> Bound:
        """Return a bound's answer for the charge without failures as one for the whole charge,
        without the lower bound where that is on a weaker optimum than the question's.

        Args:
            spec: the bound.
            answer: its answer to ``query``.
        """
        valid = spec.valid_in(self.failure_free)
        # A filter would have to count on the sum of the failures.
        if self.interaction != "filter" and self.failure < self.summed:
            valid = tuple(model for model in valid if model != "filter")
        if not spec.lower_holds(self.failure_free, self.interaction):
            answer = replace(answer, lower=None)
        return self._with_failures_added(answer, spec.name, spec.source, valid)

    def value(self, answer: Bound) -> float:
        """Return ε or δ of a bound, whichever the question asks for."""
        if self.delta is not None:
            return answer.epsilon
        return answer.delta

    def no_guarantee(self, note: str) -> Bound:
        """Return the answer that guarantees nothing: ε = inf, or δ = 1."""
        if self.delta is not None:
            return Bound(math.inf, self.delta, None, "none", "", (), note)
        epsilon = self.epsilon or 0.0  # a number: ``or`` is for the type checker
        return Bound(epsilon, 1.0, None, "none", "", (), note)

    def _with_failures_added(
        self, answer: Answer, name: str, source: str, valid: tuple[Interaction, ...]
    ) -> Bound:
        """Return a bound's answer as one for the whole charge, failures included; NaN becomes
        inf.

        Args:
            answer: about the charge without failures.
            name: of the bound.
            source: of the bound.
            valid: the interaction models in which the answer holds.
        """
        value = math.inf if math.isnan(answer.value) else answer.value
        lower = answer.lower
        if self.delta is not None:
            return Bound(value, self.delta, lower, name, source, valid, answer.note)
        # δ_charge + p + (1 - p) δ, as registry.py says; δ_charge itself where p and δ are 0.
        survived = min(value, 1.0) * (1 - self.failure)
        total = self.charge.delta
        if value or self.failure:
            summed = sum_up([self.charge.delta, self.failure, survived])
            total = min(summed * (1 + THREE_ROUNDINGS), 1.0)
        if lower is not None:
            # Failures that are attained multiply: p + (1 - p) δ, and then the same with δ_charge.
            with_failures = self.attained + lower * (1 - self.attained)
            with_bad_events = self.charge.delta + with_failures * (1 - self.charge.delta)
            lower = min(with_bad_events * (1 - FIVE_ROUNDINGS), total)
        epsilon = self.epsilon or 0.0  # a number: ``or`` is for the type checker
        return Bound(epsilon, total, lower, name, source, valid, answer.note)


def _delta_left_for_costs(delta: float, bad: float, failure: float) -> float:
    """Return the δ left for the costs, (δ - δ_charge - p)/(1 - p), rounded down; negative if none
    is left.

    Args:
        delta: δ of the question.
        bad: δ_charge, the charge's own mass of bad events.
        failure: p, an upper bound on the failure mass.
    """
    # The sum of the negatives is rounded up, and so the difference down.
    difference = -sum_up([-delta, bad, failure])
    if difference <= 0 or failure == 0:
        return difference
    return min(difference / (1 - failure) * (1 - THREE_ROUNDINGS), delta)


def _delta_of_costs_at_attained(delta: float, bad: float, attained: float) -> float:
    """Return the δ of the costs at which the whole charge attains δ, ((δ - δ_charge)/(1 - δ_charge)
    - p)/(1 - p), rounded up: a lower bound on ε is one at this δ.

    Args:
        delta: δ of the question.
        bad: δ_charge, the charge's own mass of bad events.
        attained: p, a lower bound on the failure mass.
    """
    exact = (Fraction(delta) - Fraction(bad)) / (1 - Fraction(bad))
    if attained < 1:
        exact = (exact - Fraction(attained)) / (1 - Fraction(attained))
    else:
        exact = Fraction(0)
    return min(round_up(max(exact, Fraction(0))), 1.0)
