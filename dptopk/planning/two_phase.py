"""The plan in two phases, for events whose labels nobody knows beforehand.

First labels are found, on data in which each user counts for a limited number of labels (a cap).
Which labels were found is released, so from then on they are public. So the k most frequent of
them can be selected, and counted, on all events without the cap (docs/notes/two-phases.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE, COUNTS, FIND, Counts, FindBy, Finder
from dptopk._internal.formatting import describe_l0, format_upper, numbered
from dptopk.accounting.bounds import compose
from dptopk.costs import Budget, Charge
from dptopk.errors import InvalidParameter, ReleaseWithheld
from dptopk.histogram.counts import LARGEST_COUNT
from dptopk.histogram.event_counts import EventCounts, finding_sensitivity
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import identity
from dptopk.mechanisms import KnownGumbel
from dptopk.mechanisms.public_selection import in_label_order
from dptopk.mechanisms.samplers.random import Ints, narrow
from dptopk.planning import profile as by_profile
from dptopk.planning.helped import helped_counts
from dptopk.planning.in_rho import plan_in_rho
from dptopk.planning.preview import large_counts
from dptopk.planning.profile import WEIGHTED_CAP
from dptopk.planning.protocol import EventsReading, Reading
from dptopk.planning.topk_plan import Phase, TopKPlan, joint_charge, rows_shown, words_of_counts
from dptopk.planning.ways import (
    COUNTING,
    CalibratedWay,
    Counting,
    Way,
    calibrate_way,
    deviation,
)
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator

FINDS = "find"  # the name of the phase that finds labels, which is the first
# The cap where none was stated and labels are found by counts; chosen by hand.
UNWEIGHTED_CAP = 10
# Without a cap this many times k labels take part; it is the largest of the multiples that are
# compared after looks (``profile.FLOORS``), chosen by hand.
FLOOR_FACTOR = 40
# Up to this k box noise is compared; for more labels it is larger than Gaussian noise.
LARGEST_K_OF_BOX = 30


@dataclass(frozen=True)
class _Division:
    """The usual division of a budget, where no share was stated and no look chooses one.

    Attributes:
        largest_k: the division is for up to this many labels.
        share: the share of μ² for finding and selecting, in (0, 1); the rest is for counting.
        selecting: the part of that share for selecting, in (0, 1).
    """

    largest_k: float
    share: float
    selecting: float


# They had the least losses on six real tables when they were chosen; these losses were not kept.
DIVISIONS = (
    _Division(12, share=0.3, selecting=0.3),
    _Division(25, share=0.15, selecting=0.5),
    _Division(math.inf, share=0.3, selecting=0.4),
)


def usual_cap(*, weights: bool) -> int:
    """Return the number of labels of a user that take part in finding where no cap was stated.

    Args:
        weights: whether labels are found by sums of weights.
    """
    return WEIGHTED_CAP if weights else UNWEIGHTED_CAP


_DEFAULT_WAY = Way(
    "weights", DIVISIONS[-1].share, DIVISIONS[-1].selecting, "gaussian", WEIGHTED_CAP
)


@dataclass(frozen=True)
class TwoPhasePlan(TopKPlan):
    """A plan that finds labels of events, selects k of them and counts them on all events.

    Made by plan_two_phases; ``release`` takes an EventCounts. Labels are found under a cap on
    labels per user, or without one. The k are selected and counted without it, whatever the users'
    numbers of labels: with a growing budget the answer tends to the true top k. No charge depends
    on how many labels are found, and nothing of it is given back.

    Attributes:
        under: the sensitivity of the histogram on which the labels are found.
        min_users: no label with fewer users is ever found.
        looks: the phases that come first, by which another way of finding, selecting and counting
            may be chosen at the same charge; or an empty tuple.
        rest: the budget of what comes after the looks, whichever way is taken; None without looks.
        way: the way that ``phases`` take: the usual one where there are looks.
        family: the noise on the counts that was asked for; None where the plan chooses, and where
            no counts are shown.
    """

    kind: ClassVar[str] = "two phases"

    # Both default values are immutable, so that plans may share them.
    under: Sensitivity = finding_sensitivity(WEIGHTED_CAP, 1, weights=True)  # noqa: RUF009
    min_users: int = 1
    looks: tuple[Phase, ...] = ()
    rest: Budget | None = None
    way: Way = _DEFAULT_WAY
    family: Counting | None = None

    @property
    def charge(self) -> Charge:
        """Return the most that a release of this plan can cost, the looks included."""
        if self.rest is None:
            return joint_charge([phase.charge for phase in self.phases])
        looked = [look.charge for look in self.looks]
        return joint_charge([*looked, by_profile.answer_charge(self.rest)])

    def in_way(self, scaled: CalibratedWay) -> TwoPhasePlan:
        """Return this plan with the phases of another way; its total and looks stay as they are.

        Args:
            scaled: the other way, calibrated to the budget that its phases may spend.
        """
        return replace(
            self,
            phases=scaled.phases,
            bound=scaled.bound,
            under=scaled.under,
            way=scaled.way,
            split=_split_in_words(scaled.way),
            design=scaled.way.words,
        )

    @property
    def fixed(self) -> bool:
        """Return whether ``phases`` are what runs: False where looks may choose another way."""
        return not self.looks

    @property
    def identity(self) -> tuple[list[Any], dict[str, list[Any]]]:
        """Return the identity of every top k, with the sensitivity under which labels are found and
        the number of users that they need.
        """
        shared, _ = super().identity
        return [*shared, str(self.under), self.min_users], {}

    @property
    def reading(self) -> Reading:
        """Return that all events are read, and those under the cap."""
        # Where labels are found without a cap, the histogram under this one is not used.
        cap = self.under.l0 or UNWEIGHTED_CAP
        finding = EventsReading(cap, weights=self.weights, profile=bool(self.looks))
        return Reading(self.sensitivity, finding=finding)

    def _bar_on(self, histogram: Histogram) -> float | None:
        """Return half the width of the intervals of an answer in the usual way, on made-up events
        that the cap does not cut; None where an answer has no intervals.

        Args:
            histogram: made-up counts of all events; those under the cap are made up here.
        """
        under = large_counts(self.k, self.under)
        # Without looks, which would need a profile of users.
        usual = replace(self, looks=(), rest=None)
        events = EventCounts.of_histograms(histogram, under)
        # This method of the base class, called for ``usual`` instead of for this plan.
        return super(TwoPhasePlan, usual)._bar_on(events)

    def record(self) -> dict[str, Any]:
        """Return the record of every top k, with the looks and the budget of what comes after
        them.
        """
        record = super().record()
        if self.rest is not None:
            record["looks"] = [look.name for look in self.looks]
            record["rest"] = [self.rest.epsilon, self.rest.delta]
        return record

    def revived(self, record: Mapping[str, Any]) -> Self:
        """Return this plan with the phases of a record, which must find labels as this one does.

        A record without looks is drawn without them, also where this plan has looks: the answer
        then costs less than was charged. A record of phases that find and count, without a phase
        that selects, may be of a version before there were selections: then at most k labels are
        counted (``_labels_of_answer``), at the same charge, since noise on counts costs the same
        for any number of labels.

        Args:
            record: what ``record`` returned, perhaps in an earlier version.

        Raises:
            InvalidParameter: when labels were found in another way, or after other looks.
        """
        if record["phases"][0]["name"] != FINDS:
            raise InvalidParameter("phases: these are not those of a plan in two phases")
        has_looks = bool(self.looks) and "looks" in record
        looks = self.looks if has_looks else ()
        rest = self.rest if has_looks else None
        rest_in_record = None if rest is None else [rest.epsilon, rest.delta]
        same_looks = record.get("looks", []) == [look.name for look in looks]
        if not same_looks or record.get("rest") != rest_in_record:
            raise InvalidParameter("looks: this version has others")
        plan = super().revived(record)
        # Under another cap the mechanism would have another charge.
        finding = plan.phases[0]
        if finding.mechanism.charge(self.under) != finding.charge:
            raise InvalidParameter("phases: labels were found under other caps")
        # A record with a phase of counts was written when this way counted labels again.
        counted_again = any(phase.name == "count" for phase in plan.phases)
        way = self.way
        if counted_again and way.counting == "capped":
            way = replace(way, counting="gaussian")
        return replace(plan, looks=looks, rest=rest, way=way)

    @property
    def weights(self) -> bool:
        """Return whether labels are found by sums of weights."""
        return self.under.l2 is not None

    @property
    def noise_std(self) -> float:
        """Return the standard deviation of the noise on a count where k labels are counted; 0 where
        no counts are shown.

        More labels are counted where all that was found is, and fewer where fewer are found.
        """
        return noise_of_last_phase(self.phases, self.sensitivity, self.k)

    @property
    def threshold(self) -> int | None:
        """Return the count of the capped data that a noisy count must exceed for its label to be
        found; without a cap, the lead over the noisy floor that it must exceed; None for coins,
        which find a label with some probability at every count.

        With weights it is the least number of users, who have no other label, whose sum of weights
        is at least what a noisy sum must exceed.
        """
        offset = self.mechanisms[0].threshold_offset(self.under)
        if offset is None:
            return None
        return self._in_terms_of_data(offset)

    def appears_at(self, probability: float = 0.5) -> int:
        """Return the least count of the capped data at which its label is found with at least this
        probability (1/2 or more); with weights, the least number of users who have no other label.

        Without a cap it is the lead over the floor, where the floor counts as what ``min_users``
        - 1 users add to a label if it is smaller.
        """
        # A mechanism has no such count in a public domain, where no plan finds labels.
        offset = self.mechanisms[0].appears_at(self.under, probability=probability) or 0
        return self._in_terms_of_data(offset)

    def _in_terms_of_data(self, mechanism_count: int) -> int:
        """Return what the data must have for the mechanism that finds labels to see at least this
        count (with weights: this sum of weights; without a cap: this lead over the floor).

        It is a count of the capped data or, with weights, a number of users who have no other
        label; in both ``_most_of_too_few_users`` is part, which is taken off before labels are
        found. It is taken off the floor too, so that a lead stays as it is.
        """
        if self.under.l0 is None:
            return mechanism_count
        before_it_is_taken_off = mechanism_count + self._most_of_too_few_users
        # The weight of the one label of a user; without weights a count stays as it is.
        of_one_user = self.under.l2 or 1
        return -(-before_it_is_taken_off // of_one_user)  # rounded up

    @property
    def _most_of_too_few_users(self) -> int:
        """Return the most that ``min_users`` - 1 users add to the count, or the sum of weights, of
        a label: it is taken off each before labels are found, so that no label of so few users has
        anything left.
        """
        return (self.min_users - 1) * self.under.linf

    def appearing(self, confidence: float = CONFIDENCE) -> str:
        """Return in words from which count of the capped data on a label is found.

        Args:
            confidence: the probability for which the second count is stated, beside 1/2.
        """
        at_half = self.appears_at(0.5)
        at_confidence = self.appears_at(confidence)
        if self.weights:
            words = (
                f"a label is found with probability 1/2 if {at_half} users have it and no other "
                f"label, with {confidence:g} if {at_confidence} have; users who have more labels "
                f"count less"
            )
        elif self.under.l0 is None:
            # What is taken off all counts leaves 0 at least, of the floor too.
            least_floor = self._most_of_too_few_users
            or_this_count = f" (or {least_floor}, where that is more)" if least_floor else ""
            needs = f"must lead rank {self.mechanisms[0].floor_rank}{or_this_count} by"
            words = words_of_counts(needs, at_half, at_confidence, confidence)
        else:
            counts = words_of_counts("needs a count of", at_half, at_confidence, confidence)
            words = f"of the capped counts: {counts}"
        if self.min_users == 1:
            return words
        return f"{words}; never with fewer than {self.min_users} users"

    def check(self, histogram: Histogram, /) -> None:
        """Refuse events that the plan was not made for.

        Raises:
            InvalidParameter: naming what does not fit.
        """
        events = validate.instance(EventCounts, histogram=histogram)
        if not self.sensitivity.covers(events.sensitivity):
            raise InvalidParameter(
                f"histogram has the sensitivity {events.sensitivity}, the plan is for "
                f"{self.sensitivity}"
            )
        if self.looks and events.profile is None:
            raise InvalidParameter(
                "histogram has no profile of users: read the events with profile=True"
            )
        if self.looks and not events.complete:
            raise InvalidParameter("complete: looks need the whole histogram")
        # Also refuses events that were not read under the plan's cap.
        self.mechanisms[0].check(self._counts_to_find_on(events))

    def _histogram_to_find_on(self, events: EventCounts) -> Histogram:
        """Return the histogram on which labels are found, of all their users.

        Raises:
            InvalidParameter: where the events were not read under a cap that the plan's covers.
        """
        if self.under.l0 is None:
            return events.with_sensitivity(self.sensitivity)
        capped = events.under_cap
        if self.under.covers(capped.sensitivity):
            return capped
        if self.under.l0 in events.narrow and self.under.l2 is None:
            return events.under(self.under.l0)
        raise InvalidParameter(
            f"histogram has the sensitivity {capped.sensitivity}, the plan is for {self.under}"
        )

    def _counts_to_find_on(self, events: EventCounts) -> Histogram:
        """Return the histogram on which labels are found, each count less what ``min_users`` - 1
        users may add to it, and at least 0.

        For a constant c, max(count - c, 0) keeps the order of two counts, and moves by no more than
        the count does: so the histogram has the same sensitivity. To drop the small counts, and
        leave the others as they are, would be a jump.

        Raises:
            InvalidParameter: as ``_histogram_to_find_on``.
        """
        histogram = self._histogram_to_find_on(events).with_sensitivity(self.under)
        if not self._most_of_too_few_users:
            return histogram
        hidden = min(self._most_of_too_few_users, LARGEST_COUNT)  # no count is larger
        return histogram.with_counts(np.maximum(histogram.counts - hidden, 0), self.under)

    def draw(
        self,
        data: Histogram,
        rng: Generator | None,
        *,
        average: bool,  # noqa: ARG002
    ) -> Release:
        """Find labels, select k of them without a cap, and count these.

        Args:
            data: an EventCounts.
            rng: as in ``release``.
            average: without effect: the number of labels that were found fixes the noise of the
                counts.

        Returns:
            Release: at most k labels, perhaps none, with the whole charge of all phases; its error
            bars are about the true counts.

        Raises:
            ReleaseWithheld: when finding cost more than its charge; then the answer is lost.
        """
        histogram = validate.instance(EventCounts, histogram=data)
        if self.looks:
            return by_profile.answer(self, histogram, rng)
        # "find", perhaps "select", perhaps "count".
        phases = {phase.name: phase for phase in self.phases}
        finding = phases[FINDS]
        found = finding.mechanism.release(self._counts_to_find_on(histogram), rng)
        if not finding.charge.includes(found.charge):
            raise ReleaseWithheld(finding.charge, found.charge)
        if self.way.counting != "capped":
            # Of what was found only the labels matter for what follows, not their values.
            narrow(rng, lambda: tuple(in_label_order(found.labels)))
        everything = histogram.with_sensitivity(self.sensitivity)
        answer = self._labels_of_answer(found, everything, rng)
        if self.way.counting == "capped":
            answer = _selected_rows(found, answer)
        elif "count" in phases:
            labels = in_label_order(answer.labels)
            answer = phases["count"].mechanism.release(everything, rng, labels=labels)
        note = "; ".join(filter(None, (self._note_on_finding(len(found)), answer.note)))
        return replace(
            rows_shown(answer, self.k, self.counted),
            charge=self.charge,
            phases={name: phase.charge for name, phase in phases.items()},
            note=note,
            missing=self._reason_for_missing,
            at_delta=self.budget.delta,
        )

    def _labels_of_answer(
        self, found: Release, everything: Histogram, rng: Generator | None
    ) -> Release:
        """Return the labels found that the answer may show: all where all are counted, else at most
        k of them, selected on all events or with the largest values by which they were found.

        Args:
            found: the labels that were found.
            everything: the histogram of all events.
            rng: draws the noise; None: secure noise.
        """
        if self.way.counts_all:
            return found
        for phase in self.phases:
            if isinstance(phase.mechanism, KnownGumbel):
                return self._k_selected_labels(phase.mechanism, found, everything, rng)
        # The phases are those of an old record, from before labels were selected: then the labels
        # of the largest values were counted, or all where coins found them without values.
        if self.mechanisms[0].open_ended:
            return found
        return found.top(self.k)

    def _k_selected_labels(
        self,
        select: KnownGumbel,
        found: Release,
        everything: Histogram,
        rng: Generator | None,
    ) -> Release:
        """Return the k of the labels found with the largest noisy counts on all events, without
        these counts; or ``found`` itself where no more than k were found and all will be counted.

        That they were found is released, so they are a public domain. Fewer selections than k cost
        no more. Without counts even k labels or fewer are selected, since that orders them.

        Args:
            select: the selection of k labels.
            found: the labels that were found.
            everything: the histogram of all events.
            rng: draws the noise; None: secure noise.
        """
        number = min(self.k, len(found))
        names = list(in_label_order(found.labels))
        order_is_by_counts = number == len(found) and self.counted
        if order_is_by_counts or not names:
            return found
        counts = everything.count_of(names)
        if self.way.counting == "capped":
            counts = self._helped_by_capped_counts(counts, names, found, select)
        public = Histogram(names, counts, sensitivity=self.sensitivity, domain="public")
        return replace(select, k=number).release(public, rng)

    def _helped_by_capped_counts(
        self, counts: Ints, names: list[Any], found: Release, select: KnownGumbel
    ) -> Ints:
        """Return the counts on all events, plus what the noisy capped counts of the same labels add
        to them (``helped_counts``), in the order of ``names``.

        The capped counts are released, so that the selection costs the same as by counts alone.

        Args:
            counts: those on all events, in the order of ``names``.
            names: the labels that were found.
            found: the noisy capped counts.
            select: the selection of k labels.
        """
        assert found.counts is not None  # noqa: S101 - for the type checker: they found the labels
        assert found.measurement is not None  # noqa: S101
        keys = map(identity, found.labels)
        released_of = dict(zip(keys, found.counts.tolist(), strict=True))
        released = np.array([released_of[identity(name)] for name in names])
        selection_std = select.selection_noise(self.sensitivity)
        number = min(self.k, len(names))
        return helped_counts(counts, released, number, selection_std, found.measurement.std)

    @property
    def _reason_for_missing(self) -> str:
        """Return a sentence on why labels may be missing for another reason than noise; "" if there
        is none.
        """
        if self.under.l0 is None:
            return ""
        weighted = ""
        if self.weights:
            weighted = ", and there a label of a user counts less the more labels the user has"
        return (
            "A label may be missing however large its count is: labels were looked for in at most "
            f"{numbered(self.under.l0, 'label')} of each user{weighted}."
        )

    def _note_on_finding(self, number: int) -> str:
        """Return the note of an answer: on which data this number of labels was found, and on which
        they were counted.
        """
        labels = "1 label was" if number == 1 else f"{number} labels were"
        if self.counted:
            then = "counted"
            about = "counts and error bars are about"
        else:
            then = "selected"
            about = "their order is that of"
        if self.under.l0 is None:
            return f"{labels} found and {then} on all data: {about} the data without a cap"
        found = f"{labels} found on capped data ({describe_l0(self.under.l0)} of one user)"
        if self.way.counting == "capped":
            if number > self.k:
                found += ", and selected by their counts on all data and under the cap"
            return f"{found}; the counts shown are those under the cap"
        parts = [f"{found}, and {then} on all data: {about} the data without that cap"]
        if self.weights:
            parts.append(
                "to find them, a label of a user counted less the more of them the user has"
            )
        parts.append("a label that was not found is missing whatever its count")
        return "; ".join(parts)

    def explain(self, *, confidence: float = CONFIDENCE) -> str:
        """Return the plan in words.

        Args:
            confidence: the probability for which it says from which count a label is found.

        Raises:
            InvalidParameter: for a confidence outside (0, 1).
        """
        validate.probability(allow_zero=False, confidence=confidence)
        moved = f"one user moves each count by at most {self.sensitivity.linf}"
        lines = [f"Top {self.k} of a private domain of events; {moved}."]
        lines += [
            f"First a look at {look.name}: {look.mechanism}, costs {look.charge}"
            for look in self.looks
        ]
        if self.rest is not None:
            lines.append(
                "By the looks another way may be taken, at the same charge: with them all costs "
                f"at most {self.charge}."
            )
        for number, phase in enumerate(self.phases, start=1):
            lines.append(f"{number}. {self._task_in_words(phase)}: {phase.mechanism}")
            lines.append(f"   costs at most {phase.charge}")
            if phase.name == FINDS:
                lines.append(f"   {self.appearing(confidence)}")
            if phase.name == "count":
                noise = f"noise of standard deviation {self.noise_std:.3g} on each"
                lines.append(f"   {self.k} labels: {noise}")
        if not self.counted:
            lines.append("The noisy counts choose and order the labels, and are not shown.")
        lines.append(f"Split: {self.split}")
        lines.append(
            f"Together: ({format_upper(self.bound.epsilon)}, "
            f"{format_upper(self.budget.delta)})-DP by "
            f"{self.bound.name}"
        )
        lines.extend(filter(None, [self.summary_in_rho]))
        lines.extend(f"Warning: {doubt}" for doubt in self.warnings)
        return "\n".join(lines)

    def _task_in_words(self, phase: Phase) -> str:
        """Return the task of a phase in words."""
        if phase.name == "select":
            return f"select {self.k} of what was found, on all data"
        if phase.name == "count":
            chosen = "all that was found" if self.way.counts_all else "what was selected"
            return f"count {chosen}, on all data, any number of labels of one user"
        if self.under.l0 is None:
            return "find and select labels, on all data, any number of labels of one user"
        each = ", each with weight 1/√their number" if self.weights else ""
        return f"find labels, on capped data, {describe_l0(self.under.l0)} of one user{each}"


def plan_two_phases(
    k: int,
    budget: Budget,
    *,
    labels_per_user: int | Literal["auto"] = "auto",
    per_label_cap: int = 1,
    counts: Counts | None = "auto",
    share: float | Literal["auto"] = "auto",
    find: FindBy = "auto",
    min_users: int = 1,
    users: int | None = None,
    profile: bool = False,
) -> TwoPhasePlan:
    """Return the plan that finds labels under a cap and counts them without one, for a total (ε, δ)
    or ρ.

    Args:
        k: how many labels, at least 1.
        budget: the total; δ above 0.
        labels_per_user: the cap Δ under which labels are found; "auto": 100 with weights, 10
            without.
        per_label_cap: τ, the most that one user adds to one label; it holds in both phases.
        counts: "gaussian" or "box": the noise on the counts; "auto": the one with the smaller
            deviation on k counts; None: the noisy counts choose and order the labels, and are not
            shown.
        share: the share of μ² that finds and selects labels, in (0, 1), where μ is that of one
            Gaussian that costs as much as all phases; "auto": the one that was best on six real
            tables, 0.15 to 0.3.
        find: "weights": noisy sums over a threshold, where a user of d labels counts about 1/√d at
            each; "threshold": noisy counts over a threshold; "coins": PartitionSelection; "counts":
            coins, or a threshold where there is no coin; "uncapped": selections from all events
            over a noisy floor; "auto": weights where τ is 1, else counts. Whatever was found, the k
            labels are selected by their counts on all events.
        min_users: no label that fewer users have is ever shown; many labels with more are missed
            too.
        users: how many users there are, where that is public: a δ above 1/users is warned of.
        profile: where nothing of cap, share and find is stated, take the way by two looks with
            noise: at users by their number of labels, and at the counts of a few ranks
            (docs/notes/two-phases.md). It runs on histograms read with ``profile=True``. Not with a
            budget in ρ.

    Returns:
        TwoPhasePlan: the composition of both phases, as a product, is at most budget.epsilon at
        budget.delta.

    Raises:
        InvalidParameter: on arguments outside their ranges, or a budget that is too small.

    >>> plan = plan_two_phases(30, Budget(1.0, 1e-6))
    >>> [phase.name for phase in plan.phases], plan.epsilon <= 1
    (['find', 'select', 'count'], True)
    """
    k = validate.count(k=k)
    budget = validate.instance(Budget, budget=budget)
    if not budget.delta:
        raise InvalidParameter(
            "budget.delta must be above 0: hiding which labels exist needs a δ", parameter="delta"
        )
    arguments = _TwoPhaseArguments.of(
        k=k,
        budget=budget,
        labels_per_user=labels_per_user,
        per_label_cap=per_label_cap,
        counts=counts,
        find=find,
        min_users=min_users,
        users=users,
    )
    share = share if share == "auto" else validate.probability(allow_zero=False, share=share)
    if budget.rho is not None:
        # The same question, for the totals in ε and δ that ``plan_in_rho`` tries.
        plan_for_total = partial(
            plan_two_phases,
            k,
            labels_per_user=labels_per_user,
            per_label_cap=per_label_cap,
            counts="gaussian" if counts == "auto" else counts,  # in ρ it is less than box noise
            share=share,
            find=find,
            min_users=min_users,
            users=users,
            profile=False,  # the charge that covers every way has no price in ρ
        )
        return plan_in_rho(budget, plan_for_total)
    # Looks choose all of these, so that they come only where none was stated.
    nothing_stated = labels_per_user == share == find == "auto" and min_users == 1
    if not (profile and arguments.weights and nothing_stated):
        return _plan_without_looks(arguments, find, share, budget)
    looks = by_profile.looks(budget.epsilon)
    rest = by_profile.rest_after(budget, looks)
    usual = _plan_without_looks(arguments, find, share, rest)
    looked = replace(usual, looks=looks, rest=rest, budget=budget)
    return replace(looked, bound=compose(looked.charge, delta=budget.delta, lower=False))


def _plan_without_looks(
    arguments: _TwoPhaseArguments, find: FindBy, share: float | Literal["auto"], budget: Budget
) -> TwoPhasePlan:
    """Return the plan, without a look, of the first way of finding labels that this budget allows.

    Args:
        arguments: those of plan_two_phases.
        find: how labels are found, as stated.
        share: the share of μ² for finding and selecting, as stated.
        budget: (ε, δ) of all phases.

    Raises:
        InvalidParameter: as for the first way, where no way is allowed.
    """
    first_refusal: InvalidParameter | None = None
    for finder in _finding_ways(find, weights=arguments.weights):
        try:
            return _plan_of_finder(arguments, finder, share, budget)
        except InvalidParameter as error:
            first_refusal = first_refusal or error
    if first_refusal is None:  # for the type checker: there is a way for every ``find``
        raise InvalidParameter("budget: it is too small for every way of finding labels")
    raise first_refusal


@dataclass(frozen=True)
class _TwoPhaseArguments:
    """The validated arguments of plan_two_phases that every way needs.

    Attributes:
        k, budget, per_label_cap, min_users, users, counts: as in plan_two_phases.
        cap: the number of labels of a user that take part in finding.
        weights: whether labels are found by sums of weights where that is possible.
    """

    k: int
    budget: Budget
    cap: int
    per_label_cap: int
    min_users: int
    users: int | None
    counts: Counts | None
    weights: bool

    @classmethod
    def of(
        cls,
        *,
        k: int,
        budget: Budget,
        labels_per_user: int | Literal["auto"],
        per_label_cap: int,
        counts: Counts | None,
        find: FindBy,
        min_users: int,
        users: int | None,
    ) -> _TwoPhaseArguments:
        """Return the arguments of plan_two_phases, validated, with the cap and the kind of finding
        that "auto" stands for.

        Raises:
            InvalidParameter: on arguments outside their ranges, and weights for a per_label_cap
                above 1.
        """
        chosen = validate.member(FIND, find=find)
        weights = chosen == "weights" or (chosen == "auto" and per_label_cap == 1)
        if weights and per_label_cap != 1:
            raise InvalidParameter(
                "find='weights': users add at most 1 to a label; per_label_cap must be 1"
            )
        if labels_per_user == "auto":
            cap = usual_cap(weights=weights)
        else:
            cap = validate.count(labels_per_user=labels_per_user)
        min_users = validate.count(min_users=min_users)
        per_label_cap = validate.count(per_label_cap=per_label_cap)
        counts = None if counts is None else validate.member(COUNTS, counts=counts)
        return cls(k, budget, cap, per_label_cap, min_users, users, counts, weights)

    @property
    def counted(self) -> bool:
        """Return whether the answer shows counts."""
        return self.counts not in (None, "none")

    @property
    def families(self) -> tuple[Counting | None, ...]:
        """Return the kinds of noise on the counts that are to be compared; (None,) where the answer
        shows no counts.

        Raises:
            InvalidParameter: for noise that does not count events.
        """
        if not self.counted:
            return (None,)
        if self.counts in COUNTING:
            return (self.counts,)
        if self.counts != "auto":
            raise InvalidParameter(
                f"counts={self.counts!r}: events are counted with Gaussian or box noise; for other "
                f"noise count in one phase, with count_capped=True"
            )
        if self.k <= LARGEST_K_OF_BOX:
            return ("gaussian", "box")
        return ("gaussian",)


def _finding_ways(find: FindBy, *, weights: bool) -> Iterator[Finder]:
    """Yield the ways of finding labels that may be tried, the one that is tried first first: a
    further one serves where the budget is too small for the noise, or the coins, of the one before.

    Args:
        find: how labels are found, as stated.
        weights: whether labels are found by sums of weights where that is possible.
    """
    if find not in ("auto", "counts"):
        yield cast("Finder", find)
        return
    if weights:
        yield from ("weights", "uncapped")
        return
    yield from ("coins", "threshold", "uncapped")


def _plan_of_finder(
    arguments: _TwoPhaseArguments, finder: Finder, share: float | Literal["auto"], budget: Budget
) -> TwoPhasePlan:
    """Return the plan, without a look, of one way of finding labels, with the least noise on the
    counts.

    Args:
        arguments: those of plan_two_phases.
        finder: how labels are found.
        share: the share of μ² for finding and selecting, as stated.
        budget: (ε, δ) of all phases.

    Raises:
        InvalidParameter: where the budget is too small for this way, or the counts that were asked
            for are none of events.
    """
    everything = Sensitivity(linf=arguments.per_label_cap)
    under = everything
    if finder != "uncapped":
        weights = finder == "weights"
        under = finding_sensitivity(arguments.cap, arguments.per_label_cap, weights=weights)
    ways = _ways_to_compare(arguments, finder, share, under.l0)
    best = _least_noisy_that_fits(arguments, ways, budget, under)
    return TwoPhasePlan(
        k=arguments.k,
        budget=budget,
        sensitivity=everything,
        domain="private",
        phases=best.phases,
        bound=best.bound,
        split=_split_in_words(best.way),
        counted=arguments.counted,
        design=best.way.words,
        users=arguments.users,
        under=best.under,
        min_users=arguments.min_users,
        way=best.way,
        family=None if arguments.counts == "auto" else arguments.families[0],
    )


def _ways_to_compare(
    arguments: _TwoPhaseArguments,
    finder: Finder,
    share: float | Literal["auto"],
    cap: int | None,
) -> list[Way]:
    """Return the ways with one way of finding labels, one for each kind of noise on the counts.

    Args:
        arguments: those of plan_two_phases.
        finder: how labels are found.
        share: the share of μ² for finding and selecting, as stated.
        cap: the number of labels of a user that take part in finding; None without a cap.

    Raises:
        InvalidParameter: where the counts that were asked for are none of events.
    """
    division = _usual_division(arguments.k)
    finding_share = division.share if share == "auto" else share
    return [
        Way(
            find=finder,
            # Without counts finding and selecting have all of μ².
            share=1.0 if family is None else finding_share,
            selecting=division.selecting,
            counting=family,
            cap=cap,
            floor=FLOOR_FACTOR * arguments.k if cap is None else 0,
        )
        for family in arguments.families
    ]


def _usual_division(k: int) -> _Division:
    """Return the usual division of a budget for k labels."""
    return next(division for division in DIVISIONS if k <= division.largest_k)


def _least_noisy_that_fits(
    arguments: _TwoPhaseArguments, ways: list[Way], budget: Budget, under: Sensitivity
) -> CalibratedWay:
    """Return the way with the least noise on the counts, as a closed form estimates it, scaled to
    the budget; the way of the next least noise where the budget is too small for it, and so on.

    Args:
        arguments: those of plan_two_phases.
        ways: the ways that are compared.
        budget: (ε, δ) of all phases.
        under: the sensitivity of the histogram on which labels are found.

    Raises:
        InvalidParameter: as for the last way that was tried, where none fits.
    """
    everything = Sensitivity(linf=arguments.per_label_cap)

    def noise(way: Way) -> float:
        """Return an estimate of the standard deviation of the noise on a count of this way."""
        return deviation(way, arguments.k, budget, arguments.per_label_cap)

    refusal = InvalidParameter("budget: it is too small for this way")
    for way in sorted(ways, key=noise):
        try:
            return calibrate_way(way, arguments.k, budget, under, everything)
        except InvalidParameter as error:
            refusal = error
    raise refusal


def _split_in_words(way: Way) -> str:
    """Return how a way divides the budget, in words for people."""
    counts_again = way.counting in COUNTING
    share = f"{way.share:.0%}" if counts_again else "all"
    selecting = "" if way.find == "uncapped" else f" ({way.selecting:.0%} of it to select)"
    if way.counts_all:
        selecting = " (the largest noisy counts are shown)"
    rest = ", the rest to count them" if counts_again else ""
    return (
        f"{share} of the budget, in μ², to find and select labels{selecting}{rest}; "
        "δ covers all of these together"
    )


def _selected_rows(found: Release, selection: Release) -> Release:
    """Return the rows of ``found``, with their noisy counts, whose labels were selected of them.

    The intervals of the counts take account of the other labels, which passed the threshold too.

    Args:
        found: the labels that were found, by noisy counts that are shown.
        selection: the labels that were selected of these.
    """
    if len(selection) == len(found) or found.counts is None or found.measurement is None:
        return found
    selected = set(map(identity, selection.labels))
    rows = [row for row, label in enumerate(found.labels) if identity(label) in selected]
    measurement = found.measurement.truncated(found.counts, len(rows), planned=False)
    return replace(
        found,
        labels=tuple(found.labels[row] for row in rows),
        counts=found.counts[rows],
        measured=None if found.measured is None else found.measured[rows],
        measurement=measurement,
    )


def noise_of_last_phase(phases: tuple[Phase, ...], sensitivity: Sensitivity, k: int) -> float:
    """Return the standard deviation of the last phase's noise on each of k counts; 0 where it shows
    none.

    Args:
        phases: those of a plan.
        sensitivity: of the histogram that the last phase counts.
        k: how many labels are counted.
    """
    return float(phases[-1].mechanism.count_noise(sensitivity, labels=k) or 0.0)
