"""``compose``: the smallest valid answer of the registered bounds for a charge.

A bound is a registered function from a charge to a Curve, with its name, its source, the costs it
takes and the interaction models it is valid in. ``compose`` knows no theorem: it asks the registry.
To add a theorem, add a module that registers it and list the module in ``registry.MODULES``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import INTERACTIONS, Effort, Interaction
from dptopk.accounting.composition_query import CompositionQuery
from dptopk.accounting.pure_dp.homogeneous import all_pure
from dptopk.accounting.registry import (
    FOR_BATCH,
    FOR_TWO,
    PUBLISHED,
    Bound,
    BoundSpec,
    Certificate,
    bound_of_name,
    names,
    registered_bounds,
)
from dptopk.accounting.setwise.certificates import certify
from dptopk.accounting.work import CUT_BY_TIME, Work, has_time_limit, late, within
from dptopk.costs import BoundedRange, Charge, Cost, charge_of
from dptopk.errors import IncompatibleCosts, NotCertified

if TYPE_CHECKING:
    import pandas as pd

# Numbers of different costs, and of costs, above which some bounds take long.
MANY_DIFFERENT = 1000
MANY_COSTS = 10_000
# With more than MANY_DIFFERENT costs: the work of reading one, about its time in seconds, and the
# bounds that come first.
WORK_TO_READ = 1e-5
FIRST_OF_MANY = ("renyi", "optimal_setwise")
# Bounds of which each answer takes long: ``compose_near`` leaves them out where the optimum, which
# is about as close, applies.
LONG_EACH = ("multi_dp",)
CACHED_ANSWERS = 512  # of ``compose``, each some hundred bytes and its charge
COMPOSE_RTOL = 1e-3  # the default of ``compose``
# Of several questions, those whose bracket is wider than that of the middle one by more than this
# factor are asked anew: a profile is then at most twice as rough as its middle.
FAR_WIDER = 2


def compose(
    charge: Charge | Cost | str | Iterable[Charge | Cost | str],
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    interaction: Interaction = "setwise",
    bound: str = "best",
    rtol: float = COMPOSE_RTOL,
    effort: Effort = "normal",
    max_seconds: float | None = None,
    lower: bool = True,
    certificate: bool = False,
) -> Bound:
    """Return the privacy guarantee of everything in a charge together: an upper bound, rounded
    outward.

    Args:
        charge: what was, or will be, spent: a Charge, a cost, text such as "25*BR(0.1)", or a list
            of these.
        delta: in [0, 1): then the answer is ε. Exactly one of delta and epsilon is given.
        epsilon: >= 0: then the answer is δ.
        interaction: "batch", "ordered", "setwise" or "filter": who chooses, and when
            (docs/theorems.md). A charge that is adaptive inside is treated as "ordered" even in a
            batch.
        bound: a name of the registry, or "best" for the smallest valid answer. Theorems of papers
            than which another bound is never larger are asked only where they are named.
        rtol: relative width of the certified bracket at which refinement may stop.
        effort: "quick", "normal" or "thorough": how much counted work refinement may take,
            about 0.25, 2.5 or 25 seconds of one processor; with many different bounded-range costs
            up to half as much again, to plan what is evaluated. More effort never gives a worse
            end; no clock decides a number.
        max_seconds: a guard: what is finished by then is the answer, sound but not reproducible;
            the note says so.
        lower: whether a lower bound is wanted too. An answer without one may take half the time;
            how close it is to the optimum is then only estimated, not proven.
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
    question = CompositionQuery(costs, delta, epsilon, interaction, rtol, Work.of(effort), lower)
    bound = validate.member(("best", *names()), bound=bound)
    with within(max_seconds):
        # What a clock may cut is no function of the arguments; large questions take much memory.
        if has_time_limit() or len(costs.costs) > MANY_DIFFERENT:
            answer = _answer(question, bound)
        else:
            answer = _answer_without_clock(question, effort, bound)
    if certificate:
        answer = replace(answer, certificate=_certificate(question, answer.epsilon, effort))
    return answer


def compose_near(
    charge: Charge,
    *,
    deltas: Sequence[float] | None = None,
    epsilons: Sequence[float] | None = None,
    interaction: Interaction,
    effort: Effort,
) -> list[Bound]:
    """Return the answers of ``compose`` for several δ's, or ε's, that lie near one another, about
    as close and in little more than the time of one: the evaluations made for the one in the
    middle answer the others too. Those that get far wider brackets by it are asked anew.

    Args:
        charge: as for ``compose``.
        deltas: δ's, rising or falling; then the answers are ε's. Exactly one of deltas and epsilons
            is given.
        epsilons: ε's, rising or falling; then the answers are δ's.
        interaction: as for ``compose``.
        effort: as for ``compose``.
    """
    stated: list[tuple[float | None, float | None]] = [(delta, None) for delta in deltas or ()]
    stated += [(None, epsilon) for epsilon in epsilons or ()]
    questions = [
        CompositionQuery(charge, delta, epsilon, interaction, COMPOSE_RTOL, Work.of(effort))
        for delta, epsilon in stated
    ]
    return _answers_near(questions, effort)


def _answers_near(questions: Sequence[CompositionQuery], effort: Effort) -> list[Bound]:
    """Return the answers of ``compose_near`` to questions in order, of one charge.

    Questions that the evaluations for the middle one answer too roughly are asked again in the same
    way, those before it and those after it apart.
    """
    if len(questions) < 2:
        return [_answer_without_clock(question, effort, "best") for question in questions]
    middle = len(questions) // 2
    answers = _answers_by_middle(questions)
    gap_of_middle = _relative_gap(questions[middle], answers[middle])
    widest = FAR_WIDER * max(gap_of_middle, questions[middle].rtol)
    is_wide = [
        _relative_gap(question, answer) > widest
        for question, answer in zip(questions, answers, strict=True)
    ]
    for part in _parts_to_ask_again(is_wide, middle):
        asked_again = [question.fresh(Work.of(effort)) for question in questions[part]]
        new_answers = _answers_near(asked_again, effort)
        answers[part] = list(map(_better_of, asked_again, answers[part], new_answers))
    return answers


def _parts_to_ask_again(is_wide: Sequence[bool], middle: int) -> tuple[slice, slice]:
    """Return the questions to ask again, as two slices of them: those before the one in the middle
    and those after it; either may be empty.

    Brackets widen away from the middle: on each side they are the question with a wide bracket that
    is nearest to it, and all beyond.

    Args:
        is_wide: of each question, whether its bracket is too wide.
        middle: the place of the one in the middle.
    """
    wide_before = [place for place in range(middle) if is_wide[place]]
    wide_after = [place for place in range(middle + 1, len(is_wide)) if is_wide[place]]
    last_before = max(wide_before, default=-1)
    first_after = min(wide_after, default=len(is_wide))
    return slice(last_before + 1), slice(first_after, None)


def _relative_gap(question: CompositionQuery, answer: Bound) -> float:
    """Return the width of an answer's bracket as a share of its upper end; 1 where it has no lower
    end or is infinite, and 0 where it is 0 or known without a theorem: it cannot become better.
    """
    value = question.value(answer)
    if value == 0 or question.answer_without_theorem is not None:
        return 0.0
    if answer.lower is None or not math.isfinite(value):
        return 1.0
    return (value - answer.lower) / value


def _answers_by_middle(questions: Sequence[CompositionQuery]) -> list[Bound]:
    """Return the best answers to two or more questions of one charge.

    Which bounds are asked is decided by their answers to the question in the middle. A bound that
    refines answers all questions by its evaluations for that one; the others are quick, and answer
    each question by itself.
    """
    place = len(questions) // 2
    middle = questions[place]
    if middle.answer_without_theorem is not None:
        return [question.answer_without_theorem or _smallest(question) for question in questions]
    best = [question.no_guarantee("") for question in questions]  # to begin with
    answers_to_middle: dict[str, Bound] = {}  # by the bound's name
    quick_bounds: list[BoundSpec] = []
    optimum_applies = not middle.why_not(bound_of_name("optimal_setwise"))
    for spec in _bounds_in_order(middle, answers_to_middle):
        if spec.name in LONG_EACH and optimum_applies:
            continue
        if spec.refines:
            refined_answers = middle.ask_near(spec, questions)
            best = list(map(_better_of, questions, best, refined_answers))
            answers_to_middle[spec.name] = refined_answers[place]
        else:
            quick_bounds.append(spec)
            answers_to_middle[spec.name] = middle.ask(spec)
        if _is_narrow(middle, answers_to_middle[spec.name]):
            # No other bound can help. One that refines has answered all questions above.
            quick_bounds = [] if spec.refines else [spec]
            break
    for spec in quick_bounds:
        best = [
            _better_of(question, answer, question.ask(spec))
            for question, answer in zip(questions, best, strict=True)
        ]
    return best


def _is_narrow(question: CompositionQuery, answer: Bound) -> bool:
    """Return whether an answer's bracket is as narrow as the question asks."""
    value = question.value(answer)
    return answer.lower is not None and value - answer.lower <= question.rtol * value < math.inf


def _better_of(question: CompositionQuery, one: Bound, other: Bound) -> Bound:
    """Return the smaller of two answers to a question, with the larger of their lower bounds, cut
    to that answer; without one where neither has one.

    Args:
        question: the question.
        one: an answer to it.
        other: another answer to it.
    """
    best = other if question.value(other) < question.value(one) else one
    lowers = [bound.lower for bound in (one, other) if bound.lower is not None]
    if not lowers:
        return best
    return replace(best, lower=min(max(lowers), question.value(best)))


@lru_cache(maxsize=CACHED_ANSWERS)
def _answer_without_clock(question: CompositionQuery, effort: Effort, bound: str) -> Bound:
    """Return the answer to a question that no clock may cut. It is a function of these arguments,
    so it is computed once.
    """
    return _answer(question.fresh(Work.of(effort)), bound)


def _certificate(question: CompositionQuery, aim: float, effort: Effort) -> Certificate:
    """Return a certificate that the question's charge is (ε, δ)-DP, for the question's δ and an ε
    of the certificate's own, which is near ``aim``.

    Args:
        question: the question.
        aim: the ε that ``compose`` found, by which the search for the certificate is guided.
        effort: how much work the certificate may take.

    Raises:
        NotCertified: when the question is not about ε, or is about a filter.
    """
    if question.delta is None or question.interaction == "filter":
        raise NotCertified(
            "a certificate states an ε at a given delta, for what is registered: not for a filter"
        )
    return certify(
        question.charge, delta=question.delta, aim=aim, rtol=question.rtol, effort=effort
    )


def _answer(question: CompositionQuery, bound: str) -> Bound:
    """Return the answer of the bound with this name, or with "best" the smallest of all that are
    valid, together with the charge and the interaction that were asked about.

    Raises:
        IncompatibleCosts: when the named bound may not be used for the question.
    """
    if bound == "best":
        answer = _smallest(question)
    else:
        spec = bound_of_name(bound)
        reason = question.why_not(spec)
        if reason:
            raise IncompatibleCosts(f"bound {bound!r} does not apply: {reason}")
        answer = question.ask(spec)
    lower = answer.lower if question.lower else None
    return replace(answer, lower=lower, charge=question.charge, interaction=question.interaction)


def _smallest(question: CompositionQuery) -> Bound:
    """Return the smallest answer of all valid bounds, with the largest lower bound of any of
    them.
    """
    if question.answer_without_theorem is not None:
        return question.answer_without_theorem
    trivial = math.inf if question.delta is not None else 1
    best: Bound | None = None
    answers: dict[str, Bound] = {}
    cut = ""
    for spec in _bounds_in_order(question, answers):
        # However late it is, bounds are asked until one says something.
        is_informative = best is not None and question.value(best) < trivial
        if is_informative and spec.refines and late():
            cut = CUT_BY_TIME
            break
        answer = question.ask(spec)
        answers[spec.name] = answer
        best = _better_of(question, answer if best is None else best, answer)
        if _is_narrow(question, best):
            return best  # provably within rtol of the optimum: no other bound can help
    if best is None:
        return question.no_guarantee("no registered bound takes these costs in this interaction")
    return replace(best, note=_notes(best, cut, answers))


def _bounds_in_order(question: CompositionQuery, answers: dict[str, Bound]) -> Iterator[BoundSpec]:
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
        comes_first = spec.name in first
        if first and not comes_first and not question.query.work.take(WORK_TO_READ * different):
            break
        # Of those that come first, one that does not refine is asked in any case.
        if (spec.refines or not comes_first) and order.is_needless(spec.name):
            order.needless.add(spec.name)
        elif not question.why_not(spec):
            yield spec


def _candidates(question: CompositionQuery) -> list[BoundSpec]:
    """Return the bounds that may give the best answer; other modules are not loaded."""
    ranges = sum(question.failure_free.of(BoundedRange).values())
    # With a single range there is none to choose by the answers of others.
    for_batch = ranges == 1 or (ranges > 1 and question.interaction == "batch")
    left_out = [PUBLISHED]
    if not for_batch:
        left_out.append(FOR_BATCH)
    if len(question.failure_free.costs) == 1:
        left_out.append(FOR_TWO)
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


def _notes(best: Bound, cut: str, answers: dict[str, Bound]) -> str:
    """Return the notes on an answer in one line.

    Args:
        best: the answer; its own note comes first.
        cut: the note on a search that time has cut, or "".
        answers: all answers by the bound's name; their notes say why they did not end closer.
    """
    notes = [best.note, cut]
    for name, answer in answers.items():
        if name != best.name and answer.note not in {"", best.note}:
            notes.append(f"{name}: {answer.note}")
    return "; ".join(filter(None, dict.fromkeys(notes)))


def table(
    charge: Charge | Cost | str | Iterable[Charge | Cost | str],
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    interaction: Interaction = "setwise",
    rtol: float = COMPOSE_RTOL,
    effort: Effort = "normal",
    max_seconds: float | None = None,
) -> pd.DataFrame:
    """Return all bounds side by side for one charge: a row a bound, in registry order.

    Arguments as for ``compose``; the effort is for each bound, and ``max_seconds`` for all of them.

    Returns:
        A data frame with the columns name, source, epsilon, delta, lower, batch, ordered, setwise,
        filter, applies, why not. ``applies`` says whether the bound may be used for the interaction
        asked; a bound that takes the costs but is not valid in that interaction still shows its
        value, and the reason.
    """
    import pandas as pd

    costs = charge_of(charge)
    question = CompositionQuery(costs, delta, epsilon, interaction, rtol, Work.of(effort))
    with within(max_seconds):
        rows = [
            _row(spec, question.fresh(Work.of(effort))) for spec in registered_bounds().values()
        ]
    return pd.DataFrame(rows)


def _row(spec: BoundSpec, question: CompositionQuery) -> dict[str, object]:
    """Return the row of one bound in the data frame of ``table``."""
    row: dict[str, object] = {"name": spec.name, "source": spec.source}
    if question.refusal(spec):
        row |= dict.fromkeys(("epsilon", "delta", "lower"), np.nan)
        row |= dict.fromkeys(INTERACTIONS, False)
    else:
        answer = question.ask(spec)
        lower = np.nan if answer.lower is None else answer.lower
        row |= {"epsilon": answer.epsilon, "delta": answer.delta, "lower": lower}
        row |= {model: model in answer.valid_in for model in INTERACTIONS}
    reason = question.why_not(spec)
    return row | {"applies": not reason, "why not": reason}
