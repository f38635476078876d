"""Plan: what will run, what it will cost and what it will deliver."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE, Domain
from dptopk._internal.formatting import (
    describe_l0,
    format_lower,
    format_upper,
    html_lines,
    numbered,
    percent,
)
from dptopk.accounting.registry import Bound
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter, ReleaseWithheld
from dptopk.histogram.histogram import Histogram, Sensitivity, descending_order
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.mechanisms.named import mechanism_of
from dptopk.planning.preview import Preview, bar_of, large_counts
from dptopk.planning.protocol import Paying, Plan, Reading
from dptopk.planning.request import Request
from dptopk.planning.shape import Outcome
from dptopk.release.release import Release

if TYPE_CHECKING:
    import pandas as pd
    from numpy.random import Generator

# Budgets beyond these are allowed with a warning, since they are seldom meant: the limits were
# chosen by hand.
LARGEST_EPSILON = 20.0
LARGEST_DELTA = 1e-3
# Smaller chances are only said to be less than this.
LEAST_CHANCE_SHOWN = 1e-6


@dataclass(frozen=True)
class Phase:
    """One step of a plan.

    Attributes:
        name: what it does: "select", "count and select", "find" or "count", or what is looked at.
        mechanism: what runs.
        charge: the most that it can cost.
    """

    name: str
    mechanism: Mechanism
    charge: Charge


@dataclass(frozen=True)
class TopKPlan(Plan):
    """A plan of a top k: the mechanisms that will run, their cost and expected accuracy.

    Attributes:
        k: how many labels are asked for.
        budget: the total (ε, δ) that the plan may spend.
        sensitivity, domain: what must hold of the histogram; ``release`` refuses one that does not
            fit.
        phases: the mechanisms in the order in which they run, each with the most it can cost.
        bound: the composition of all phases at the budget's δ: its epsilon is at most the budget's.
        split: in words, how the budget was divided.
        counted: whether the answer shows counts; noise on counts may select labels without being
            shown.
        design: the name of the design that was taken.
        why: why that design was taken, in words.
        outcome: its expected results on the shape that was given; None if none was given.
        swapped: the chance that the label of rank 2k is placed before that of rank k, on that shape
            or for counts of 10⁴/rank; None where it is not known in closed form.
        users: how many users there are, where that is public; None where it is not.
        in_rho: of a budget in ρ: pairs of a name and a number, as a shell shows them: the "rho"
            that the costs take and the "failure_delta" of all that may fail, both upper bounds, and
            the "rho_budget"; empty for a budget in ε.
        compared: the function that makes the table of ``alternatives``; None where nothing was
            compared.
    """

    k: int
    budget: Budget
    sensitivity: Sensitivity
    domain: Domain
    phases: tuple[Phase, ...]
    bound: Bound
    split: str
    counted: bool = True
    design: str = ""
    why: str = ""
    outcome: Outcome | None = None
    swapped: float | None = None
    users: int | None = None
    in_rho: tuple[tuple[str, float], ...] = ()
    compared: Callable[[], pd.DataFrame] | None = field(default=None, repr=False, compare=False)

    @property
    def charge(self) -> Charge:
        """Return the most that a release of this plan can cost."""
        return joint_charge([phase.charge for phase in self.phases])

    @property
    def stated(self) -> Budget | None:
        """Return the total of the plan, if it is in ε and δ; otherwise None."""
        if self.budget.rho is None:
            return self.budget
        return None

    @property
    def fixed(self) -> bool:
        """Return whether these mechanisms run in any case: False where a look may choose others, at
        the same charge.
        """
        return True

    @property
    def identity(self) -> tuple[list[Any], dict[str, list[Any]]]:
        """Return what tells the question of this plan from others with the same mechanisms and
        charge: a list of plain values, and no options of mechanisms (an empty dictionary).

        Everything that changes only the rows of an answer must be among the values.
        """
        return [self.k, self.counted, str(self.sensitivity)], {}

    def preview(self) -> Preview:
        """Return noise, thresholds, error bars and the guarantee, for people."""
        first = self.mechanisms[0]
        last = self.mechanisms[-1]
        noise_std = half_width = None
        if self.counted:
            noise_std = last.count_noise(self.sensitivity, labels=self.k)
            half_width = last.count_width(self.sensitivity, labels=self.k)
        return Preview(
            noise_std=noise_std,
            half_width=half_width,
            error_bar=self.error_bar(),
            threshold=self.threshold,
            appears_at=self.appears_at(),
            above_rank=first.floor_rank,
            appearing=self.appearing(),
            k=self.k,
            warnings=tuple(self.warnings),
            explanation=self.explain(),
            epsilon=self.epsilon,
            delta=self.budget.delta,
            bound=self.bound.name,
        )

    def error_bar(self) -> float | None:
        """Return half the width of the intervals that the answer will show; None where there are
        none.

        In a public domain they depend on the number of labels as well, which a plan does not know.
        """
        if not self.counted or self.domain == "public":
            return None
        return self._bar_on(large_counts(self.k, self.sensitivity))

    def _bar_on(self, histogram: Histogram) -> float | None:
        """Return the error bar of an answer on made-up data: half the width of its widest interval,
        in counts; None if there is no such answer, or it has no intervals.
        """
        try:
            return bar_of(self.release(histogram))
        except InvalidParameter:  # no such answer, as with k above the rows that take part
            return None

    def record(self) -> dict[str, Any]:
        """Return kind, words and phases of the plan as plain values: the kind says which plan can
        read them, ``revived`` reads the phases, and the words are for people.
        """
        phases = [
            {
                "name": phase.name,
                "mechanism": phase.mechanism.to_dict(),
                "charge": str(phase.charge),
            }
            for phase in self.phases
        ]
        return {"kind": self.kind, "text": self.text, "phases": phases}

    def revived(self, record: Mapping[str, Any]) -> Self:
        """Return this plan with the phases of a record.

        Raises:
            InvalidParameter: for a mechanism or a charge that this version cannot read.
        """
        phases = tuple(
            Phase(
                name=phase["name"],
                mechanism=mechanism_of(phase["mechanism"]),
                charge=Charge.parse(phase["charge"]),
            )
            for phase in record["phases"]
        )
        return replace(self, phases=phases)

    def run(
        self,
        data: Histogram,
        rng: Generator | None = None,
        *,
        average: bool = True,
        paying: Paying | None = None,
    ) -> tuple[TopKPlan, Release]:
        """Return this plan and its answer, as ``Plan.run`` does; arguments as for ``release``."""
        return self, self.answer_in_one_step(data, rng, average=average, paying=paying)

    @abstractmethod
    def explain(self, *, confidence: float = CONFIDENCE) -> str:
        """Return the plan in words: phases, noise, thresholds, the split and the total.

        Args:
            confidence: of the width of the noise, and the probability with which a label of the
                count given appears.
        """

    @property
    @abstractmethod
    def noise_std(self) -> float | None:
        """Return the standard deviation of the noise on a released count; None where no counts are
        shown.
        """

    @property
    @abstractmethod
    def threshold(self) -> int | None:
        """Return the count, or the lead over the floor, that a noisy count must exceed for its
        label to be released; None if there is no threshold.
        """

    @abstractmethod
    def appears_at(self, probability: float = 0.5) -> int | None:
        """Return the count, or the lead over the floor, at which a label appears with that
        probability (1/2 or more); None in a public domain.
        """

    @abstractmethod
    def appearing(self) -> str:
        """Return in words from which true count on a label appears; "" in a public domain."""

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Return the mechanisms in the order in which they run."""
        return tuple(phase.mechanism for phase in self.phases)

    @property
    def epsilon(self) -> float:
        """Return ε of the whole plan at the budget's δ, an upper bound."""
        return self.bound.epsilon

    @property
    def summary_in_rho(self) -> str:
        """Return what the plan spends of a budget in ρ, and what it leaves, in words; "" where the
        budget is in ε.
        """
        if not self.in_rho:
            return ""
        terms = dict(self.in_rho)
        spent = terms["rho"]
        total = terms["rho_budget"]
        delta = terms["failure_delta"]
        failures = ""
        if delta:
            failures = f" but for failures of at most {format_upper(delta)}"
        left = format_lower(max(total - spent, 0.0), 2)
        return (
            f"In ρ: {format_upper(spent, 4)}-zCDP{failures}; of the budget's ρ = {total:g} "
            f"this leaves {left}."
        )

    @property
    def warnings(self) -> list[str]:
        """Return warnings about a budget that gives little protection."""
        return budget_warnings(self.budget.epsilon, self.budget.delta, self.users)

    @cached_property
    def alternatives(self) -> pd.DataFrame:
        """Return a table of all designs that fit, each scaled to the same budget, best first: what
        they deliver and what they run.

        Raises:
            InvalidParameter: for a plan that was not made by plan_topk.
        """
        if self.compared is None:
            raise InvalidParameter("alternatives: only plans made by plan_topk have them")
        return self.compared()

    def _repr_html_(self) -> str:
        """Return the plan in words, for notebooks."""
        return html_lines(self.explain().splitlines())

    def __str__(self) -> str:
        """Return the plan in words."""
        return self.explain()


@dataclass(frozen=True)
class OnePhase(TopKPlan):
    """A plan on one histogram, as plan_topk makes it: mechanisms that select labels and perhaps
    count them, without a look at how users differ.
    """

    kind: ClassVar[str] = "one phase"

    @property
    def noise_std(self) -> float | None:
        """Return the standard deviation of the noise on a released count; None where no counts are
        shown.
        """
        if self.counted:
            return self.mechanisms[-1].count_noise(self.sensitivity, labels=self.k)
        return None

    @property
    def threshold(self) -> int | None:
        """Return the lead over the floor that a noisy count must exceed for its label to be
        released; None if there is no threshold. The floor is as for ``appears_at``.
        """
        return self.mechanisms[0].threshold_offset(self.sensitivity)

    def appears_at(self, probability: float = 0.5) -> int | None:
        """Return the lead over the floor at which a label appears with that probability (1/2 or
        more).

        The floor is the count of rank d_bar + 1, or 0 where the whole histogram takes part. None in
        a public domain.
        """
        return self.mechanisms[0].appears_at(self.sensitivity, probability=probability)

    def appearing(self) -> str:
        """Return in words from which true count on a label appears; "" in a public domain."""
        return words_of_appearing(self.mechanisms[0], self.sensitivity)

    @property
    def reading(self) -> Reading:
        """Return that one histogram is read: as a whole, or, for a threshold over the count of a
        rank, only down to that rank.
        """
        return Reading(self.sensitivity, top=self.mechanisms[0].floor_rank)

    def draw(self, data: Histogram, rng: Generator | None, *, average: bool) -> Release:
        """Run the phases, one after the other, and return the answer.

        Args:
            data: the histogram, which ``check`` accepts.
            rng: a generator for tests and experiments; None = a secure source.
            average: whether what the charge leaves, where fewer than k labels were selected, is
                spent on better counts of these.

        Raises:
            ReleaseWithheld: when a phase cost more than its charge; then the answer is lost.
        """
        # Noise for the plan's own sensitivity, whatever the histogram's: a finer lattice costs more
        # at some ε.
        histogram = data.with_sensitivity(self.sensitivity)
        released: Release | None = None
        notes: list[str] = []
        charges: dict[str, Charge] = {}
        for phase in self.phases:
            options = {}
            if released is not None:
                options = phase.mechanism.release_options(
                    released, phase.charge, self.sensitivity, average=average
                )
            released = phase.mechanism.release(histogram, rng, **options)
            charges[phase.name] = _used_charge(phase, released)
            # An open-ended phase notes that a set was shown, which is no longer true where the next
            # phase orders it.
            is_note_true = phase is self.phases[-1] or not phase.mechanism.open_ended
            if is_note_true and released.note and released.note not in notes:
                notes.append(released.note)
        assert released is not None  # noqa: S101 - for the type checker: a plan has a phase
        if self.mechanisms[-1].open_ended and len(released) > self.k:
            notes.append(
                f"{len(released)} labels were shown by their coins, these are the first "
                f"{self.k} of them"
            )
        answer = rows_shown(released, self.k, self.counted)
        return replace(
            answer,
            charge=joint_charge(charges.values()),
            phases=charges,
            note="; ".join(notes),
            at_delta=self.budget.delta,
        )

    def check(self, histogram: Histogram, /) -> None:
        """Refuse a histogram that the plan was not made for.

        Raises:
            InvalidParameter: naming what does not fit.
        """
        if validate.instance(Histogram, histogram=histogram).domain != self.domain:
            raise InvalidParameter(
                f"histogram has a {histogram.domain} domain, the plan is for a {self.domain} one"
            )
        if not self.sensitivity.covers(histogram.sensitivity):
            raise InvalidParameter(
                f"histogram has the sensitivity {histogram.sensitivity}, the plan is for "
                f"{self.sensitivity}"
            )
        first = self.phases[0].mechanism
        if self.domain == "private" and first.floor_rank is None and not histogram.complete:
            raise InvalidParameter(
                "complete: the plan needs the whole histogram, this one has only the top rows; "
                "set d_bar= below its "
                "number of rows"
            )
        first.check(histogram)
        if self.domain == "public" and self.k > histogram.domain_size:
            public = numbered(histogram.domain_size, "label")
            raise InvalidParameter(f"k={self.k} is more than the {public} of the public domain")

    def explain(self, *, confidence: float = CONFIDENCE) -> str:
        """Return the plan in words: phases, noise, thresholds, the split and the total.

        Args:
            confidence: of the width of the noise, and the probability with which a label of the
                count given appears.

        Raises:
            InvalidParameter: for a confidence outside (0, 1).
        """
        validate.probability(allow_zero=False, confidence=confidence)
        moved = describe_l0(self.sensitivity.l0)
        cap = self.sensitivity.linf
        lines = [
            (
                f"Top {self.k} of a {self.domain} domain; one user can affect {moved}, each count "
                f"by at most {cap}."
            )
        ]
        for number, phase in enumerate(self.phases, start=1):
            lines += [
                f"{number}. {phase.name}: {phase.mechanism}",
                f"   costs at most {phase.charge}",
            ]
            lines += [
                f"   {line}"
                for line in _guarantee_lines(phase.mechanism, self.sensitivity, self.k, confidence)
            ]
        count_noise = self.mechanisms[-1].count_noise(self.sensitivity, labels=self.k)
        if not self.counted and count_noise is not None:
            lines.append("The noisy counts choose and order the labels, and are not shown.")
        if self.why:
            lines.append(f"Why: {self.design} is {self.why}")
        if self.swapped is not None:
            lines.append(self._swap_in_words(self.swapped))
        return "\n".join([*lines, *self._lines_on_total()])

    def _swap_in_words(self, chance: float) -> str:
        """Return a sentence on the chance that the label of rank 2k is placed before that of rank
        k.
        """
        if self.outcome is None:
            shape = "if counts fall as 10⁴/rank"
        else:
            shape = "for counts of the shape given"
        words = f"{chance:.2g}" if chance >= LEAST_CHANCE_SHOWN else "less than 1e-6"
        return (
            f"Rank {2 * self.k} is placed before rank {self.k} with probability {words} ({shape})."
        )

    def _lines_on_total(self) -> list[str]:
        """Return lines on the split, the guarantee and the budget, with warnings about it."""
        spent = self.bound
        total = self.budget
        lines = [
            f"Split: {self.split}",
            (
                f"Together: ({format_upper(spent.epsilon)}, {format_upper(total.delta)})-DP "
                f"by {spent.name} ({spent.source})"
            ),
            (
                f"Valid in {', '.join(spent.valid_in)}; the budget is ({total.epsilon:g}, "
                f"{total.delta:g})"
            ),
        ]
        if self.summary_in_rho:
            lines.append(self.summary_in_rho)
        return lines + [f"Warning: {doubt}" for doubt in self.warnings]


def _used_charge(phase: Phase, released: Release) -> Charge:
    """Return the part of a phase's charge that its answer used.

    Noise on fewer labels than were planned may cost more than noise on all; of such a mechanism the
    charge for any number of labels was paid (``phases_of``), and stays in full.

    Args:
        phase: the phase that ran.
        released: its answer.

    Raises:
        ReleaseWithheld: when the answer cost more than the charge.
    """
    if phase.mechanism.fewer_cost_more and released.charge:
        return phase.charge
    if not phase.charge.includes(released.charge):
        raise ReleaseWithheld(phase.charge, released.charge)
    return released.charge


def budget_warnings(epsilon: float, delta: float, users: int | None = None) -> list[str]:
    """Return warnings about a budget that gives little protection; nothing is refused.

    Args:
        epsilon: the total.
        delta: the total.
        users: how many users there are, where that is public.

    >>> budget_warnings(1.0, 1e-6)
    []
    """
    warnings = []
    if epsilon > LARGEST_EPSILON:
        warnings.append(
            f"ε = {epsilon:g} guarantees next to nothing: one user may change the odds of an "
            f"answer by e^{epsilon:g}"
        )
    if delta > LARGEST_DELTA:
        warnings.append(
            f"δ = {delta:g} is large: with that probability anything about a user may show; "
            f"1e-6 is common"
        )
    if users is not None and delta * users > 1:
        warnings.append(
            f"δ = {delta:g} is above 1/users: publishing the data of one user at random would "
            f"satisfy it"
        )
    return warnings


def joint_charge(charges: Collection[Charge]) -> Charge:
    """Return the charge of several phases together, each of which may depend on the answers before
    it: so it is adaptive where one of them is, and where there are several.

    Args:
        charges: the charge of each phase.
    """
    total = Charge.join(*charges)
    adaptive = total.adaptive or len(charges) > 1
    return Charge(total.costs, delta=total.delta, adaptive=adaptive, neighbours=total.neighbours)


def phases_of(
    request: Request, mechanisms: tuple[Mechanism, ...], method: str
) -> tuple[Phase, ...]:
    """Return the mechanisms with their names and the most that each can cost.

    Args:
        request: the question.
        mechanisms: what runs, in this order: the first selects, those after it count.
        method: the kind of the design, as ``Design.method``, which names the first phase.
    """
    first, *counting = mechanisms
    # How many labels are counted is not known before coins show them, nor where fewer than k
    # private ones may pass a threshold: that matters where fewer of them cost more.
    may_be_fewer = mechanisms[-1].fewer_cost_more and request.domain == "private"
    labels = None if first.open_ended or may_be_fewer else request.k
    name = "count and select" if method == "threshold" else "select"
    phases = [Phase(name, first, first.charge(request.sensitivity))]
    for mechanism in counting:
        charge = mechanism.charge(request.sensitivity, labels=labels)
        phases.append(Phase("count", mechanism, charge))
    return tuple(phases)


def rows_shown(released: Release, k: int, counted: bool) -> Release:
    """Return an answer with the rows that are shown: the k with the largest released counts, from
    the largest on, or the first k where there are no counts.

    Args:
        released: all rows that were released.
        k: how many labels are asked for.
        counted: whether the rows show their counts.
    """
    if released.counts is not None:
        order = descending_order(released.counts, None)
        released = replace(
            released,
            labels=tuple(released.labels[row] for row in order),
            counts=released.counts[order],
            measured=None if released.measured is None else released.measured[order],
        )
    released = released.top(k, planned=True)
    if counted:
        return released
    return replace(released, counts=None, measured=None, measurement=None)


def words_of_appearing(
    mechanism: Mechanism, sensitivity: Sensitivity, confidence: float = CONFIDENCE
) -> str:
    """Return in words from which true count on a label appears; "" in a public domain.

    Args:
        mechanism: the one that shows labels.
        sensitivity: that of the histogram.
        confidence: the probability for which the second count is stated, beside 1/2.
    """
    at_half = mechanism.appears_at(sensitivity, probability=0.5)
    at_confidence = mechanism.appears_at(sensitivity, probability=confidence)
    if at_half is None or at_confidence is None:
        return ""
    if mechanism.floor_rank is None:
        needs = "needs a count of"
    else:
        needs = f"must lead rank {mechanism.floor_rank} by"
    return words_of_counts(needs, at_half, at_confidence, confidence)


def words_of_counts(needs: str, at_half: int, at_confidence: int, confidence: float) -> str:
    """Return in words at which counts a label is shown with probability 1/2 and with another one.

    Args:
        needs: what a label needs, such as "needs a count of".
        at_half: the count for probability 1/2.
        at_confidence: the count for the other probability.
        confidence: the other probability.
    """
    return (
        f"a label {needs} {at_half} for a 50% chance to be shown, {at_confidence} for "
        f"{percent(confidence)}"
    )


def _guarantee_lines(
    mechanism: Mechanism, sensitivity: Sensitivity, k: int, confidence: float
) -> list[str]:
    """Return lines that say what a phase guarantees, known before any data is seen.

    Args:
        mechanism: the one of the phase.
        sensitivity: that of the histogram.
        k: how many labels are asked for.
        confidence: of the width of the noise, and the probability with which a label of the count
            given appears.
    """
    lines = []
    noise = mechanism.count_noise(sensitivity, labels=k)
    if noise is not None:
        width = mechanism.count_width(sensitivity, labels=k, confidence=confidence)
        lines.append(
            f"noise on a count has standard deviation {noise:.4g}; {percent(confidence)} of it "
            f"is within ±{width:g}"
        )
    appearing = words_of_appearing(mechanism, sensitivity, confidence)
    if not appearing:
        return lines
    threshold = mechanism.threshold_offset(sensitivity)
    if threshold is None:
        lines.append(
            "a coin decides for each label whether it is shown, the more likely the larger its "
            "count is; of more than k the next phase chooses k, or label order where there is none"
        )
    elif mechanism.floor_rank is None:
        lines.append(f"threshold: {threshold}")
    else:
        lines.append(f"threshold: {threshold} above the count of rank {mechanism.floor_rank}")
    return [*lines, appearing]
