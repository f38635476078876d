"""Session: one histogram, one budget, many questions; every answer is charged before it is drawn."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import Counts, LookShare
from dptopk._internal.formatting import html_table
from dptopk._internal.json_text import canonical_json
from dptopk.budgets.account import Account
from dptopk.budgets.accountant import Accountant
from dptopk.budgets.remaining import Remaining
from dptopk.costs import Budget, Charge, ExponentialClockDP
from dptopk.datasets.segments import Segments
from dptopk.errors import BudgetExceeded, InvalidParameter
from dptopk.histogram.event_counts import EventCounts
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import to_plain
from dptopk.mechanisms import KnownLaplace
from dptopk.mechanisms.base import Mechanism, finite_l0
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.planning import Plan, default_d_bar, plan_topk
from dptopk.planning.probe import LookedPlan, at_ranks, with_look
from dptopk.release.release import Release
from dptopk.session.budget_backend import InMemoryBudget, LedgerBudget, covers_both
from dptopk.session.prepared_query import PreparedQuery, mechanisms_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.random import Generator

    from dptopk.ledger.ledger import Ledger
    from dptopk.mechanisms.continual import ContinualTopK
    from dptopk.session.stream import Calendar, StreamSession


_LOG = logging.getLogger(__name__)
# What of the options of from_events is for the session, not for reading the events.
SESSION_OPTIONS = ("dataset", "analyst", "version", "unit", "source", "rng")


class Session:
    """Questions about one histogram within one budget.

    The order is always the same: check that the question fits the data, check the budget, write the charge (durably,
    with a ledger), draw the noise, check that the charge covers what was drawn, return what was not used. A draw that
    fails stays charged. Several threads may ask; copies, pickles and forked processes are refused, because each would
    spend the same budget again.

    Args:
        histogram: what is asked about.
        budget: without a ledger: a Budget (a fully adaptive filter on that total; where it does not cover the first
            question, but the total does, the δ is split by what that question needs, or it is all that is asked), or
            an Accountant with registered costs (set-wise: the same total answers more questions).
        ledger: a Ledger; then ``dataset`` and ``analyst`` name the account that pays.
        dataset: the ledger's dataset that this histogram was made of.
        analyst: who asks.
        version: of the data the histogram was made of; when given it must be the ledger's. None: not checked, but for
            declared segments, which are taken to be of the ledger's version at this moment.
        unit: the privacy unit the histogram was made for; when given it must be the ledger's.
        source: where the histogram comes from, in words (a file and its columns, a query, a filter, the domain), for
            ``reuse``: a stored answer is given again only to a question with the same source. It must not be computed
            from the data (a hash of them, say): whether an answer comes free of charge would tell whether they changed.
            None = this very Histogram.
        rng: a generator for tests and experiments; None = a secure source.

    Raises:
        InvalidParameter: unless exactly one of budget and ledger is given.

    >>> from dptopk import Budget, KnownLaplace, Sensitivity
    >>> session = Session(Histogram(None, [5, 2, 0], sensitivity=Sensitivity(l0=1)), budget=Budget(1.0, 1e-6))
    >>> answer = session.run(KnownLaplace(epsilon=0.5))
    >>> print(answer.charge)
    DP(0.5)
    """

    def __init__(
        self,
        histogram: Histogram,
        *,
        budget: Budget | Account | None = None,
        ledger: Ledger | None = None,
        dataset: str | None = None,
        analyst: str | None = None,
        version: str | None = None,
        unit: str | None = None,
        source: str | None = None,
        rng: Generator | None = None,
    ) -> None:
        validate.instance(Histogram, histogram=histogram)
        if (budget is None) == (ledger is None):
            raise InvalidParameter("give exactly one of budget and ledger")
        if ledger is not None and (dataset is None or analyst is None):
            raise InvalidParameter("dataset and analyst must be given with a ledger")
        random_bits(rng)  # refuses what is no generator before anything is charged
        if source is not None and (not isinstance(source, str) or not source):
            raise InvalidParameter("source must be non-empty text")
        book: InMemoryBudget | LedgerBudget
        if ledger is not None:
            from dptopk.ledger.ledger import Ledger

            validate.instance(Ledger, ledger=ledger)
            book = LedgerBudget(ledger, str(dataset), str(analyst), histogram, version, unit, rng is not None)
        else:
            book = InMemoryBudget(budget)
        self._begin(histogram, book, source, rng)

    @classmethod
    def from_events(
        cls,
        table: Any,
        *,
        labels_per_user: int | Literal["auto"] | None = "auto",
        count_capped: bool = False,
        weights: bool | Literal["auto"] = "auto",
        budget: Budget | Account | None = None,
        ledger: Ledger | None = None,
        **options: Any,
    ) -> Session:
        """A session on raw events: ``top_k`` finds labels under a cap, and counts what it found on all events.

        A cap on labels per user is needed to find labels that nobody knows beforehand, and for nothing else: the labels
        found are public, and are counted without the cap. So counts and their error bars are about the true numbers
        (docs/notes/two-phases.md). Both histograms are made here, in one statement, and so of one snapshot of the data.

        Args:
            table: events, as for ``datasets.events_histogram``, or an EventsStore made without a cap.
            labels_per_user: the cap under which labels are found; "auto": the ledger's, or 100 with weights and 10
                without; None: no cap at all, in one phase.
            count_capped: count the capped data too, in one phase, as Session(events_histogram(...)) does.
            weights: whether labels are found by sums of weights, isqrt(100² // d) for each of the d labels of a user,
                instead of counts; "auto": where per_label_cap is 1.
            budget: as for Session.
            ledger: as for Session.
            options: those of ``datasets.events_histogram`` (user, item, per_label_cap, weight, where, ...; a store has
                its own) and of Session (dataset, analyst, version, unit, source, rng).

        Raises:
            InvalidParameter: as Session and events_histogram; for a store that kept a part of each user's labels only.

        >>> import pandas as pd
        >>> from dptopk import Budget
        >>> events = pd.DataFrame({"who": range(900), "what": ["x"] * 600 + ["y"] * 300})
        >>> session = Session.from_events(events, user="who", item="what", budget=Budget(1.0, 1e-6))
        >>> list(session.top_k(2, budget=Budget(1.0, 1e-6)).labels)
        ['x', 'y']
        """
        from dptopk.session.events import read_events

        if (budget is None) == (ledger is None):  # before the data are read
            raise InvalidParameter("give exactly one of budget and ledger")
        paying = {name: options.pop(name) for name in SESSION_OPTIONS if name in options}
        histogram = read_events(
            table,
            labels_per_user,
            count_capped=count_capped,
            weights=weights,
            ledger=ledger,
            dataset=paying.get("dataset"),
            options=options,
        )
        kind = EventsSession if isinstance(histogram, EventCounts) else Session
        return kind(histogram, budget=budget, ledger=ledger, **paying)

    def _begin(
        self, histogram: Histogram, book: InMemoryBudget | LedgerBudget, source: str | None, rng: Generator | None
    ) -> None:
        self._histogram = histogram
        self._source = source
        self._rng = rng
        self._pid = os.getpid()
        self._book = book
        self._answered: list[dict[str, Any]] = []
        self._asked: dict[str, Charge] = {}

    @property
    def histogram(self) -> Histogram:
        """The histogram that questions are about."""
        return self._histogram

    def __reduce__(self) -> NoReturn:
        raise InvalidParameter("a Session cannot be copied or pickled: it would be a second budget")

    def run(
        self, mechanism: Mechanism | Plan, *, reuse: bool = False, average: bool = False, **options: Any
    ) -> Release:
        """Charge and run one mechanism.

        Args:
            mechanism: one of ``dptopk.mechanisms``, or a Plan.
            reuse: with a ledger: give a stored answer again, free, if the question is identical: mechanism, charge,
                labels, sensitivity, domain, source, and the version and unit of the data.
            average: of a Plan whose labels do not all appear: spend what was set aside for their counts on better
                counts of the others, instead of taking it back (Plan.release).
            options: for the mechanism's release: ``labels=`` or ``ranking=``.

        Raises:
            BudgetExceeded: nothing was charged or drawn.
            InvalidParameter: when the question does not fit the histogram; nothing was charged or drawn.
            ReleaseWithheld: when the answer costs more than was charged, which no mechanism of this package does; the
                answer is lost, the charge stays.
        """
        self._here()
        question = PreparedQuery.of(mechanism, self._histogram, options, average=average)
        return self._answer(question, question.fingerprint(self._source), reuse=reuse)

    def _answer(self, question: PreparedQuery, query: str, *, reuse: bool) -> Release:
        """Charge and draw, or give a stored answer again."""
        stored = self._book.stored(query) if reuse else None
        if stored is not None:
            _LOG.info("giving a stored answer again")
            return stored if self._source else replace(stored, source=self._histogram.identity)
        receipt = self._charge(self._book, question.charge, query, question.what)
        release = self._book.finalize(receipt, self._drawn(question))
        self._remember(question.what, question.charge, release.charge, len(release))
        return release

    def answered(self, mechanism: Mechanism | Plan, **options: Any) -> bool:
        """Whether the ledger has an answer to this question, which ``run(..., reuse=True)`` returns free of charge.

        Args:
            mechanism: as for ``run``.
            options: as for ``run``; False without a ledger. Of a plan after a look, whether it has that of the look.
        """
        if isinstance(mechanism, LookedPlan):
            return self._book.has_answer(self._sorted_counts(mechanism)[1])
        question = PreparedQuery.of(mechanism, self._histogram, options, average=False)
        return self._book.has_answer(question.fingerprint(self._source))

    def _charge(self, book: InMemoryBudget | LedgerBudget, charge: Charge, query: str, what: str) -> Any:
        _LOG.info("charging %s for %s", charge, what)
        return book.charge(charge, query, what)

    def _drawn(self, question: PreparedQuery) -> Release:
        _LOG.info("drawing")
        return question.draw(self._rng)

    def _remember(self, what: str, asked: Charge, used: Charge, rows: int) -> None:
        self._answered.append({"mechanism": what, "charge": used, "rows": rows})
        self._asked[what] = asked

    def segments(self, segments: Segments) -> dict[Any, Session]:
        """Declare disjoint segments of the data set: a session for each, with its own questions, at any time.

        Each segment has the whole budget that is left now, and pays for what is asked of it and, from now on, of all
        data. All that is ever answered has the guarantee of one budget, however many segments there are, since every
        user pays in one (docs/ledger.md, Segments).

        Args:
            segments: disjoint by user: with ``segments_per_user`` 1, as segment_histograms enforces. For a ledger they
                must be declared there, under the name of what they are ``by``: their owner promises that a user is in
                one of them in all data and under all filters, which no single query can enforce. From now on the
                session is one for the version of the data that the ledger had when it was made, as if ``version`` had
                said so.

        Raises:
            InvalidParameter: for segments that a user may share; for other segments than were declared before; for a
                budget that others may spend from: give the session a Budget, or an ``dptopk.budgets.Parallel``.

        >>> from dptopk import Budget, KnownLaplace, Sensitivity
        >>> one = Sensitivity(l0=1)
        >>> eu, us = (Histogram(None, counts, sensitivity=one) for counts in ([5, 2], [1, 7]))
        >>> session = Session(Histogram(None, [6, 9], sensitivity=one), budget=Budget(1.0, 0.0))
        >>> regions = session.segments(Segments({"eu": eu, "us": us}, segments_per_user=1))
        >>> for region in regions.values():
        ...     answer = region.run(KnownLaplace(epsilon=0.75))
        >>> print(session.remaining().epsilon_spent)
        0.75
        """
        self._here()
        validate.instance(Segments, segments=segments)
        if segments.segments_per_user > 1:
            raise InvalidParameter(
                f"segments: one user may be in {segments.segments_per_user} of them, so that they cannot have a budget "
                "each; run_each charges a question that is asked of all of them together"
            )
        self._book.fits(*(histogram.sensitivity for histogram in segments.values()))
        self._book.declare(segments)
        made = {}
        for name, histogram in segments.items():
            made[name] = object.__new__(Session)
            source = None if self._source is None else canonical_json([self._source, segments.by, str(name)])
            made[name]._begin(histogram, self._book.only(name), source, self._rng)  # noqa: SLF001 - a Session too
        return made

    def run_each(self, segments: Segments, mechanism: Mechanism | Plan) -> dict[Any, Release]:
        """Charge and run one question on every segment of a public list, together: segments compose in parallel.

        A user is in at most ``segments.segments_per_user`` of them, so that this multiple of the charge of one segment
        covers all; with 1, a hundred segments cost as much as one. Declared segments (``segments``, or in the ledger)
        pay each from its own account. The charge stays in full: what a segment did not use is not given back.

        Args:
            segments: histograms of the data set that this session is about, from segment_histograms.
            mechanism: one of ``dptopk.mechanisms``, or a Plan; it runs on each segment with its own noise.

        Returns:
            The answer of each segment; each says what it would have cost by itself.

        Raises:
            BudgetExceeded: nothing was charged or drawn.
            InvalidParameter: when the question does not fit one of the histograms; nothing was charged or drawn.
        """
        self._here()
        validate.instance(Segments, segments=segments)
        questions = {name: PreparedQuery.of(mechanism, histogram, {}) for name, histogram in segments.items()}
        self._book.fits(*(histogram.sensitivity for histogram in segments.values()))
        charge = segments.charge({name: question.charge for name, question in questions.items()})
        each = f"in each of {len(segments)} segments, a user in at most {segments.segments_per_user}"
        what = f"{mechanisms_of(mechanism)} {each}"
        book = self._book.only(*segments) if self._book.declared(segments) else self._book
        receipt = self._charge(book, charge, "", what)
        answers = {name: self._drawn(question) for name, question in questions.items()}
        together = _together(answers, charge, mechanism, self._histogram)
        book.finalize(receipt, together)
        self._remember(what, charge, charge, len(together))
        return answers

    def _here(self) -> None:
        """Refuse a forked process."""
        if os.getpid() != self._pid:
            raise InvalidParameter("a Session belongs to the process that made it: a fork would be a second budget")

    def top_k(
        self,
        k: int,
        *,
        budget: Budget,
        counts: Counts | None = None,
        look: LookShare = "auto",
        reuse: bool = False,
        **options: Any,
    ) -> Release:
        """Plan and answer "what are the top k?" for a part of the budget.

        Args:
            k: how many labels.
            budget: the (ε, δ) of this answer; what is charged are the costs of its plan.
            counts: None for labels alone, so that all of the budget finds labels; "auto" for whichever noisy counts are
                best, "gaussian", "laplace" or "box", as for plan_topk.
            look: a share of ε, in (0, 1), for a private look at the counts of a few ranks, by which the rest is
                planned; the ε's add up to the budget's. "auto": such a look where what is public says that it is worth
                its price. None: no look. With ``like=`` the look checks the shape.
            reuse: as for ``run``.
            options: further arguments of plan_topk: d_bar, method, like, selection_share, charge_as.

        >>> from dptopk import Budget, Sensitivity
        >>> reads = Histogram(None, [900, 700, 0], sensitivity=Sensitivity(l0=1))
        >>> session = Session(reads, budget=Budget(2.0, 1e-6))
        >>> list(session.top_k(2, budget=Budget(1.0, 0.0)).table.columns)
        ['rank', 'label']
        >>> list(session.top_k(2, budget=Budget(1.0, 0.0), counts="auto").table.columns)
        ['rank', 'label', 'count']
        """
        histogram = self._histogram
        if histogram.domain == "private" and not histogram.complete:
            options.setdefault("d_bar", default_d_bar(k))  # a fact known beforehand: only the top is at hand
        options.setdefault("charge_as", selections_charged_as(self._book.account()))
        planned = partial(
            plan_topk, k=k, sensitivity=histogram.sensitivity, domain=histogram.domain, counts=counts, **options
        )
        return self.run_plan(with_look(look, planned, whole=histogram.complete, budget=budget)(), reuse=reuse)[1]

    def run_plan(self, plan: Plan, *, reuse: bool = False) -> tuple[Plan, Release]:
        """The plan that ran and its answer; a look before it and the plan by it are charged one after the other.

        A plan that the account covers for certain is made before the look is charged.
        """
        if not isinstance(plan, LookedPlan):
            return plan, self.run(plan, reuse=reuse)
        self._here()
        look, question, query = plan.look, *self._sorted_counts(plan)
        # A filter sets half of its δ aside: after a look, which needs none, that half is what a whole answer can have.
        rests = look.rest, Budget(look.rest.epsilon, look.rest.delta / 2)
        if reuse and (known := self._book.stored(query)) is not None:  # both may have been paid for
            for then in (look.plan(known, plan.sensitivity, plan.planned, rest) for rest in rests):
                if self.answered(then):
                    return look.total(then), look.on(self.run(then, reuse=True), known.charge)
        account, price = self._book.account(), question.charge
        for rest in rests:
            before = plan.usual if rest is rests[0] else plan.planned(budget=rest, like=None)
            if covers_both(account, price, before.charge):
                break
        else:
            if look.optional:
                return self.run_plan(plan.planned(budget=look.budget), reuse=reuse)
            raise BudgetExceeded(Charge.join(price, before.charge), account.remaining())
        seen = self._answer(question, query, reuse=reuse)
        then = look.plan(seen, plan.sensitivity, plan.planned, rest)
        then = then if self._book.account().can_spend(then.charge) else before
        return look.total(then), look.on(self.run(then, reuse=reuse), seen.charge)

    def _sorted_counts(self, plan: LookedPlan) -> tuple[PreparedQuery, str]:
        """What the look of a plan asks, and its fingerprint."""
        question = PreparedQuery.of(plan.look.mechanism, at_ranks(self._histogram, plan.k), {})
        source = canonical_json([self._source or self._histogram.identity, "sorted counts"])
        return question, question.fingerprint(source)

    def stream(
        self, name: str, mechanism: ContinualTopK, *, path: str | Path, calendar: Calendar | None = None
    ) -> StreamSession:
        """Spend what a top k on each of many days costs, at once; then ask day by day (docs/continual.md).

        It takes a ledger, which lasts as long as the stream. The same call opens the stream again, in this process or
        another, and charges nothing more, as ``StreamSession.open`` does. The session's histogram says what those of
        the days look like: their sensitivity, and whether the labels are public.

        Args:
            name: of the stream, for this analyst and data set.
            mechanism: what ``plan_continual`` returns.
            path: the stream's file, made on first use and as private as the data. It holds what the next day needs;
                lost, the stream cannot go on.
            calendar: what the days are, recorded with the stream; None: ``Calendar()``, numbers alone.

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: for other terms than the stream's; when not all days of a user are protected and this
                session does not state the ``unit`` of the ledger's data set, which must say so.
            LedgerError: when the file is an old copy.

        >>> import tempfile
        >>> from dptopk import Budget, Ledger, Sensitivity, plan_continual
        >>> day = Histogram({"tea": 90, "milk": 60}, sensitivity=Sensitivity(l0=1))
        >>> mechanism = plan_continual(1, 7, Budget(1, 1e-6), sensitivity=day.sensitivity)
        >>> folder = tempfile.mkdtemp()
        >>> ledger = Ledger(f"{folder}/ledger.db")
        >>> price = mechanism.charge(day.sensitivity)
        >>> ledger.create_dataset("tea", registered=price, delta=1e-6, sensitivity=day.sensitivity, unit="user-day")
        >>> session = Session(day, ledger=ledger, dataset="tea", analyst="ann", unit="user-day")
        >>> stream = session.stream("sales", mechanism, path=f"{folder}/sales.stream")
        >>> stream.answer(1, day).labels
        ('tea',)
        """
        from dptopk.session.stream import Calendar, StreamSession

        self._here()
        book, days = self._book, calendar or Calendar()
        if isinstance(book, InMemoryBudget):
            raise InvalidParameter("ledger: a stream needs one that exists as long as the stream")
        stream = StreamSession.begin(book, self._histogram, name, mechanism, path, days)
        stream.rng = self._rng
        return stream

    def other(self, shown: Release, *, epsilon: float, name: str = "(other)", reuse: bool = False) -> Release:
        """The noisy total of all counts that an answer did not show, as a separate row.

        One user moves that total by at most τΔ: discrete Laplace noise of scale τΔ/epsilon is charged as such, in
        addition to what the answer cost.

        Args:
            shown: an answer of this session.
            epsilon: what the total may cost.
            name: of the row.
            reuse: as for ``run``.

        Raises:
            InvalidParameter: where Δ is unrestricted, or the histogram was cut to its top rows.
        """
        self._here()
        histogram, most = self._histogram, finite_l0(self._histogram.sensitivity, "for the total of all other labels")
        if not histogram.complete:
            raise InvalidParameter("complete: the total of all other labels needs the whole histogram")
        total = sum(histogram.counts.tolist()) - sum(histogram.count_of(list(shown.labels)).tolist())
        moved = Sensitivity(linf=histogram.sensitivity.linf * most, l0=1)
        total = min(total, validate.LARGEST - 1)  # moves by no more than the total does
        rest = Histogram([name], [total], sensitivity=moved, domain="public", capped=histogram.capped)
        question = PreparedQuery.of(KnownLaplace(epsilon=epsilon), rest, {})
        without = [self._source or histogram.identity, "other", *map(to_plain, shown.labels)]
        return self._answer(question, question.fingerprint(canonical_json(without)), reuse=reuse)

    def remaining(self) -> Remaining:
        """What is left of the budget: in ε, per cent, costs, and how many more of each question asked here fit."""
        return Remaining.of(self._book.account(), self._asked)

    def report(self) -> pd.DataFrame:
        """The answers of this session, a row each: mechanism, charge (what was used), rows released."""
        import pandas as pd

        table = pd.DataFrame(self._answered, columns=["mechanism", "charge", "rows"])
        return table.assign(charge=table["charge"].map(str))

    def _repr_html_(self) -> str:
        """For notebooks: what was asked, and what is left."""
        rows = self.report()
        return html_table(list(rows.columns), rows.itertuples(index=False)) + self.remaining()._repr_html_()


class EventsSession(Session):
    """A Session on an EventCounts: ``histogram`` is that of all events, its ``under_cap`` finds labels."""

    def top_k(
        self, k: int, *, budget: Budget, counts: Counts | None = "auto", reuse: bool = False, **options: Any
    ) -> Release:
        """Find labels under the cap, count them without it, and show the k largest.

        Args:
            k: how many labels.
            budget: the (ε, δ) or ρ of this answer, both phases together; δ above 0.
            counts: "auto", "gaussian" or "box"; None for labels alone, in the order of noisy counts.
            reuse: as for ``run``.
            options: of ``plan_two_phases``: share, find, min_users. What is for one phase is refused.

        Returns:
            Release: its note says what was found under which cap, ``phases`` what each phase cost; counts and error
            bars are about all events.
        """
        from dptopk.session.events import plan_of_events

        both = validate.instance(EventCounts, histogram=self._histogram)

        def taken(plan: Plan) -> bool:
            return (reuse and self.answered(plan)) or self._book.account().can_spend(plan.charge)

        plan = plan_of_events(both, k, budget, taken, options | {"counts": counts})
        return self.run(plan, reuse=reuse)


def selections_charged_as(account: Account) -> Literal["auto", "bounded_range"]:
    """Decide how a plan charges its selections to an account: as clocks only if clocks are registered.

    A filter has no price for them (docs/notes/clocks.md), and tokens of other types do not cover them.
    """
    registered = account.registered.costs if isinstance(account, Accountant) else ()
    return "auto" if any(isinstance(cost, ExponentialClockDP) for cost in registered) else "bounded_range"


def _together(answers: Mapping[Any, Release], charge: Charge, mechanism: Any, histogram: Histogram) -> Release:
    """The answers of all segments as one, for the record: rows labelled (segment, label)."""
    counts = [answer.counts for answer in answers.values() if answer.counts is not None]
    return Release(
        labels=tuple((name, label) for name, answer in answers.items() for label in answer.labels),
        counts=np.concatenate(counts) if counts else None,
        charge=charge,
        mechanism=mechanisms_of(mechanism),
        sensitivity=histogram.sensitivity,
        seeded=any(answer.seeded for answer in answers.values()),
        note="rows of all segments, labelled (segment, label)",
    )
