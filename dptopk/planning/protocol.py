"""The protocol of plans, whatever they consist of, and of what pays for them.

A shell (command line, HTTP, client, session) makes a ``Question``, hands it to
``dptopk.planning.plan`` and knows nothing of the plan but what is here. A new way to answer is a
class on ``Plan`` and a line in ``choose.BUILDERS``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from dptopk.costs import Budget, Charge
from dptopk.errors import ReleaseWithheld
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.planning.preview import Preview
from dptopk.release.release import Release

if TYPE_CHECKING:
    from numpy.random import Generator


@dataclass(frozen=True)
class EventsReading:
    """The arguments of ``datasets.event_counts`` with which events are read for two phases.

    Attributes:
        labels_per_user: the number of labels of a user that take part where labels are found.
        weights: whether labels are found by sums of weights.
        profile: whether users are counted by their number of labels too, for a private look.
    """

    labels_per_user: int
    weights: bool
    profile: bool


@dataclass(frozen=True)
class Reading:
    """The part of the data that a plan needs to be read.

    Attributes:
        sensitivity: the caps of the histogram that is counted.
        top: of a private domain at most this many of the largest counts are read; None: all.
        finding: with which further arguments events are read as an EventCounts; None: as one
            histogram.
    """

    sensitivity: Sensitivity
    top: int | None = None
    finding: EventsReading | None = None


@dataclass(frozen=True)
class Step:
    """A plan and the data from which it draws its answer: what is paid for at once.

    Attributes:
        plan: what draws the answer, and has the charge that is paid.
        data: the histogram, which fits the plan.
        about: words that tell ``data`` from the session's data, where the step is about a part of
            them or something computed from them; empty where it is about all of them.
        average: whether what the answer leaves of the charge is spent on better counts.
    """

    plan: Plan
    data: Histogram
    about: tuple[Any, ...] = ()
    average: bool = False

    @property
    def charge(self) -> Charge:
        """Return the most that the step can cost."""
        return self.plan.charge

    @property
    def stated(self) -> Budget | None:
        """Return the (ε, δ) that the plan of the step states for its charge; None if it states
        none.
        """
        return self.plan.stated

    @property
    def text(self) -> str:
        """Return the step in words."""
        return self.plan.text + (" (averaged)" if self.average else "")

    def draw(self, rng: Generator | None) -> Release:
        """Draw the answer, and return it; call this when the charge has been paid.

        Raises:
            ReleaseWithheld: when it costs more than ``charge``; then the answer is lost.
        """
        release = self.plan.draw(self.data, rng, average=self.average)
        if not self.charge.includes(release.charge):
            raise ReleaseWithheld(self.charge, release.charge)
        return release


class Paying(Protocol):
    """The account that a plan is paid from, asked before each draw."""

    def covers(self, *plans: Plan) -> bool:
        """Return whether the account pays for these plans, one after the other; nothing is
        spent.
        """

    def has(self, step: Step) -> bool:
        """Return whether an answer to an identical step is stored; nothing is charged or given."""

    def known(self, step: Step) -> Release | None:
        """Return the stored answer to an identical step, free of charge; None if there is none, or
        stored answers are not to be given again.
        """

    def answer(self, step: Step, rng: Generator | None) -> Release:
        """Return the stored answer to a step, as ``known`` does; or charge the step, draw its
        answer and return that.

        Raises:
            BudgetExceeded: for a charge that is not covered; nothing was charged or drawn.
        """

    def refuse(self, *charges: Charge) -> Exception:
        """Return the error which says that these charges, one after the other, are not covered."""


class PaysAll:
    """An account that pays for everything: for a plan that was charged before, or that nobody
    charges.
    """

    def covers(self, *plans: Plan) -> bool:  # noqa: ARG002
        """Return True: every plan is paid for."""
        return True

    def has(self, step: Step) -> bool:  # noqa: ARG002
        """Return False: no answer is stored."""
        return False

    def known(self, step: Step) -> Release | None:  # noqa: ARG002
        """Return None: no answer is stored."""
        return None

    def answer(self, step: Step, rng: Generator | None) -> Release:
        """Draw the answer to a step without a charge, and return it."""
        return step.draw(rng)

    def refuse(self, *charges: Charge) -> Exception:
        """Raise NotImplementedError: this is never called, since everything is covered."""
        raise NotImplementedError(charges)


class Plan(ABC):
    """A plan's mechanisms, its cost and the accuracy of its answer, all known before any data is
    seen.

    Attributes:
        kind: the name under which a record of a charge finds how to make the plan again.
    """

    kind: ClassVar[str]
    #: Whether what an answer leaves of the charge can be spent on better counts (``average``).
    averages: ClassVar[bool] = True

    @property
    @abstractmethod
    def charge(self) -> Charge:
        """Return the most that a release can cost, whatever the data."""

    @property
    def stated(self) -> Budget | None:
        """Return the (ε, δ) that was asked for; the whole charge satisfies it. None if no (ε, δ)
        was asked for.
        """
        return None

    @property
    @abstractmethod
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Return the mechanisms in the order in which they run."""

    @property
    def text(self) -> str:
        """Return the mechanisms in words."""
        return " then ".join(map(str, self.mechanisms))

    @property
    @abstractmethod
    def reading(self) -> Reading:
        """Return what must be read of the data."""

    @property
    @abstractmethod
    def identity(self) -> tuple[list[Any], dict[str, list[Any]]] | None:
        """Return what distinguishes its question from others of the same text and charge, for a
        stored answer, as plain values: those of a plan, and by name those of the options of a
        mechanism. None: the question is made of data, and has no name.
        """

    @abstractmethod
    def check(self, data: Histogram, /) -> None:
        """Refuse data that the plan was not made for, before anything is charged; nothing is drawn.

        Raises:
            InvalidParameter: naming what does not fit.
        """

    @abstractmethod
    def draw(self, data: Histogram, rng: Generator | None, *, average: bool) -> Release:
        """Draw the answer, which costs at most the charge of the plan, and return it; ``average``
        as in ``release``.
        """

    @abstractmethod
    def preview(self) -> Preview:
        """Return what the plan guarantees or predicts, in numbers."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Return plain values from which, with the question, the answer can be drawn when all else
        is lost.
        """

    @abstractmethod
    def revived(self, record: Mapping[str, Any]) -> Self:
        """Return this plan with the phases that ``record`` wrote down.

        Raises:
            InvalidParameter: when they are no phases of this kind.
        """

    def first(self, data: Histogram) -> Step:
        """Return the step that is paid for first: of a plan in one step, the whole of it."""
        return Step(self, data)

    def payable(self, paying: Paying) -> bool:
        """Return whether the account would pay for ``run`` now; nothing is charged or drawn."""
        return paying.covers(self)

    def run(
        self,
        data: Histogram,
        rng: Generator | None = None,
        *,
        average: bool = True,
        paying: Paying | None = None,
    ) -> tuple[Plan, Release]:
        """Return the plan that ran, which a look before it may decide, and its answer; arguments as
        for ``release``.
        """
        return self, self.answer_in_one_step(data, rng, average=average, paying=paying)

    def answer_in_one_step(
        self, data: Histogram, rng: Generator | None, *, average: bool, paying: Paying | None
    ) -> Release:
        """Return the answer of a plan of one step, which ``paying`` pays for."""
        self.check(data)
        return (paying or PaysAll()).answer(Step(self, data, average=average), rng)

    def explain(self) -> str:
        """Return the plan in words."""
        return self.text

    def release(
        self,
        histogram: Histogram,
        rng: Generator | None = None,
        *,
        average: bool = True,
        paying: Paying | None = None,
    ) -> Release:
        """Answer the question of the plan.

        Args:
            histogram: must fit the plan: its domain, and a sensitivity no larger than the plan's.
            rng: None for cryptographically secure noise; a generator makes the release
                reproducible, and marked so.
            average: where fewer than k labels pass the threshold, use what was paid for the counts
                of the others: count the labels that did pass several times, as often as the planned
                charge covers, and release the means (fitted counts only). False: leave it unspent,
                for ``paying`` to take back.
            paying: asked before each draw; None: the charge of the plan has been paid.

        Returns:
            Release: at most k labels, in the order of their released counts (of selection, where
            there are none), with the charge that was used: selections not made are not charged.

        Raises:
            InvalidParameter: when the data do not fit the plan; nothing was charged.
            BudgetExceeded: ``paying`` does not cover it; nothing was charged.
        """
        return self.run(histogram, rng, average=average, paying=paying)[1]


def reading_of(source: object, sensitivity: Sensitivity) -> Reading:
    """Return what a plan reads; anything else, such as a mechanism, reads one histogram.

    Args:
        source: a plan or a mechanism.
        sensitivity: the caps of the histogram of what is no plan.
    """
    if isinstance(source, Plan):
        return source.reading
    return Reading(sensitivity)
