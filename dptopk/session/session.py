"""Session: one histogram, one budget, many questions; every answer is charged before it is
drawn.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack

from dptopk._internal import validate
from dptopk._internal.choices import Counts, LookShare
from dptopk._internal.formatting import html_table
from dptopk._internal.json_text import canonical_json
from dptopk.budgets.account_base import Account
from dptopk.budgets.remaining import Remaining
from dptopk.costs import Budget, Charge
from dptopk.datasets.segments import Segments
from dptopk.errors import BudgetExceeded, InvalidParameter
from dptopk.histogram.histogram import Histogram
from dptopk.histogram.labels import to_plain
from dptopk.mechanisms import KnownLaplace
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.planning import Plan, TopKPlan, plan as plan_topk
from dptopk.planning.facts import facts_of, selections_charged_as
from dptopk.planning.gauge import Kind, least_left
from dptopk.planning.per_segment import PerSegment
from dptopk.planning.protocol import Step
from dptopk.planning.refusals import refusal_with_advice
from dptopk.planning.single import Single, plan_of_mechanism
from dptopk.question import Facts, Question, StatedInSession
from dptopk.release.release import Release
from dptopk.session.all_that_is_left import largest_budget
from dptopk.session.budget_backend import InMemoryBudget, LedgerBudget
from dptopk.session.other_labels import total_of_other_labels
from dptopk.session.paying import SessionPaying

if TYPE_CHECKING:
    import pandas as pd
    from numpy.random import Generator

    from dptopk.datasets.backends.inputs import EventTable
    from dptopk.datasets.store import EventsStore
    from dptopk.ledger.ledger import Ledger
    from dptopk.mechanisms.continual import ContinualTopK
    from dptopk.session.stream_calendar import Calendar
    from dptopk.session.stream_session import StreamSession


_LOG = logging.getLogger(__name__)
# The options of from_events that are for the session, not for reading the events.
ACCOUNT_OPTIONS = ("dataset", "analyst", "version", "unit")  # about a data set of a ledger
SESSION_OPTIONS = (*ACCOUNT_OPTIONS, "source", "rng")


class Session:
    """Questions about one histogram within one budget.

    The order is always the same: check that the question fits the data, check the budget, write the
    charge (durably, with a ledger), draw the noise, check that the charge covers what was drawn,
    return what was not used. A draw that fails stays charged. Several threads may ask; copies,
    pickles and forked processes are refused, because each would spend the same budget again.

    Args:
        histogram: the counts that questions are about.
        budget: without a ledger: a Budget, or an Accountant with registered costs. A Budget becomes
            a fully adaptive filter on that total. If the filter does not cover the first question
            but the total does, δ is split as that question needs, or the question takes everything.
            An Accountant is set-wise: the same total answers more questions.
        ledger: the ledger that pays; then ``dataset`` and ``analyst`` name the account.
        dataset: the ledger's dataset that this histogram was made of. It, ``analyst``, ``version``
            and ``unit`` are for a ledger alone.
        analyst: the name of the analyst who asks.
        version: the version of the data that the histogram was made of; if it is given it must be
            the ledger's. None: it is not checked, except that declared segments are taken to be of
            the ledger's version at this moment.
        unit: the privacy unit the histogram was made for; if it is given it must be the ledger's.
        source: where the histogram comes from, in words (a file and its columns, a query, a filter,
            the domain), for ``reuse``: a stored answer is given again only to a question with the
            same source. It must not be computed from the data (a hash of them, say): whether an
            answer comes free of charge would tell whether they changed. None: this very Histogram.
        rng: a generator for tests and experiments; None: a cryptographically secure source.

    Raises:
        InvalidParameter: unless exactly one of budget and ledger is given; for a ledger without
            dataset and analyst, or with a data set, version or unit that it does not have; for
            dataset, analyst, version or unit without a ledger; for an argument of another type, or
            an empty source.

    >>> from dptopk import Budget, KnownLaplace, Sensitivity
    >>> session = Session(Histogram(None, [5, 2, 0], sensitivity=Sensitivity(l0=1)),
    ...     budget=Budget(1.0, 1e-6))
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
        account = {"dataset": dataset, "analyst": analyst, "version": version, "unit": unit}
        _require_one_budget(budget, ledger, account)
        random_bits(rng)  # refuses an rng that is no generator before anything is charged
        if source is not None and (not isinstance(source, str) or not source):
            raise InvalidParameter("source must be non-empty text")
        book: InMemoryBudget | LedgerBudget
        if ledger is not None:
            from dptopk.ledger.ledger import Ledger

            validate.instance(Ledger, ledger=ledger)
            book = LedgerBudget(
                ledger, str(dataset), str(analyst), histogram, version, unit, rng is not None
            )
        else:
            book = InMemoryBudget(budget)
        self._begin(histogram, book, source, rng)

    @classmethod
    def from_events(
        cls,
        table: EventTable | EventsStore,
        *,
        labels_per_user: int | Literal["auto"] | None = "auto",
        count_capped: bool = False,
        weights: bool | Literal["auto"] = "auto",
        budget: Budget | Account | None = None,
        ledger: Ledger | None = None,
        **options: Any,
    ) -> Session:
        """Return a session on raw events: ``top_k`` finds labels under a cap, and counts those it
        found on all events.

        A cap on labels per user is needed to find labels that nobody knows beforehand, and for
        nothing else: the labels found are public, and are counted without the cap. So counts and
        their error bars are about the true numbers (docs/notes/two-phases.md). Both histograms are
        made here, in one statement, and so of one snapshot of the data.

        Args:
            table: events, as for ``datasets.events_histogram``, or an EventsStore made without a
                cap.
            labels_per_user: the cap under which labels are found; "auto": the ledger's, or 100 with
                weights and 10 without; None: no cap at all, in one phase.
            count_capped: whether the counts are of the capped data too, in one phase, as
                Session(events_histogram(...)) does.
            weights: whether labels are found by sums of weights, isqrt(100² // d) for each of the d
                labels of a user, instead of counts; "auto": where per_label_cap is 1.
            budget: the budget in memory, as for Session.
            ledger: the ledger that pays, as for Session.
            options: the options of ``datasets.events_histogram`` (user, item, per_label_cap,
                weight, where, ...; a store has its own) and of Session (dataset, analyst, version,
                unit, source, rng).

        Raises:
            InvalidParameter: as Session and events_histogram; for a store that kept a part of each
                user's labels only.

        >>> import pandas as pd
        >>> from dptopk import Budget
        >>> events = pd.DataFrame({"who": range(900), "what": ["x"] * 600 + ["y"] * 300})
        >>> session = Session.from_events(events, user="who", item="what", budget=Budget(1.0, 1e-6))
        >>> list(session.top_k(2, budget=Budget(1.0, 1e-6)).labels)
        ['x', 'y']
        """
        from dptopk.session.event_reading import read_events

        paying = {name: options.pop(name) for name in SESSION_OPTIONS if name in options}
        _require_one_budget(budget, ledger, paying)  # before the data are read
        histogram = read_events(
            table,
            labels_per_user,
            count_capped=count_capped,
            weights=weights,
            ledger=ledger,
            dataset=paying.get("dataset"),
            options=options,
        )
        if facts_of(histogram).events is None:
            return Session(histogram, budget=budget, ledger=ledger, **paying)
        return EventsSession(histogram, budget=budget, ledger=ledger, **paying)

    def _begin(
        self,
        histogram: Histogram,
        book: InMemoryBudget | LedgerBudget,
        source: str | None,
        rng: Generator | None,
    ) -> None:
        """Set the attributes of a session: called by ``__init__`` and, for the session of a
        segment, by ``segments``, which opens no new budget.

        Args:
            histogram: the counts that questions are about.
            book: the budget that pays.
            source: where the histogram comes from, as for the class.
            rng: as for the class.
        """
        self._histogram = histogram
        self._source = source
        self._rng = rng
        self._pid = os.getpid()
        self._book = book
        # The answers that ``report`` lists, a row each.
        self._answered: list[dict[str, Any]] = []
        # The charge of each question, by its words, with the budget stated for it: by them
        # ``remaining`` says how often it still fits.
        self._charged_by_text: dict[str, tuple[Charge, Budget | None]] = {}
        self._kind: Kind | None = None  # the kind of the last question

    @property
    def histogram(self) -> Histogram:
        """Return the histogram that questions are about."""
        return self._histogram

    def __reduce__(self) -> NoReturn:
        raise InvalidParameter("a Session cannot be copied or pickled: it would be a second budget")

    def run(
        self,
        mechanism: Mechanism | Plan,
        *,
        reuse: bool = False,
        average: bool = False,
        **options: Any,
    ) -> Release:
        """Charge and run one mechanism or plan; return its answer.

        Args:
            mechanism: one of ``dptopk.mechanisms``, or a Plan.
            reuse: whether a ledger gives a stored answer again, free, if the question is identical:
                mechanism, charge, labels, sensitivity, domain, source, and the version and unit of
                the data.
            average: for a Plan: whether the budget set aside for the counts of labels that do not
                appear is spent on better counts of the others, instead of being taken back.
            options: the labels that the mechanism counts, as ``labels=`` or ``ranking=``.

        Raises:
            BudgetExceeded: nothing was charged or drawn.
            InvalidParameter: when the question does not fit the histogram, for ``average`` with
                what is no Plan, and in a forked process; nothing was charged or drawn.
            LedgerError: when the ledger refuses; nothing was drawn.
            ReleaseWithheld: when the answer costs more than was charged, which no mechanism of this
                package does; the answer is lost, the charge stays.
        """
        self._refuse_fork()
        plan = plan_of_mechanism(mechanism, self._histogram, options)
        if average and not plan.averages:
            raise InvalidParameter("average: only the counts of a Plan can be averaged")
        paying = self._paying(reuse=reuse)
        return plan.release(self._histogram, self._rng, average=average, paying=paying)

    def answered(self, mechanism: Mechanism | Plan, **options: Any) -> bool:
        """Return whether the ledger has an answer to this question, which ``run(..., reuse=True)``
        gives free of charge.

        Without a ledger it is False. For a plan that looks first it says whether the look's answer
        is stored.

        Args:
            mechanism: one of ``dptopk.mechanisms``, or a Plan.
            options: the labels that the mechanism counts, as for ``run``.

        Raises:
            InvalidParameter: when the question does not fit the histogram.
        """
        plan = plan_of_mechanism(mechanism, self._histogram, options)
        plan.check(self._histogram)
        return self._paying(reuse=True).has(plan.first(self._histogram))

    def _paying(self, *, reuse: bool, kind: Kind | None = None) -> SessionPaying:
        """Return what pays for the plans of this session.

        Args:
            reuse: whether stored answers are given again.
            kind: the kind of the question, which the ledger records; None: unknown.
        """
        return SessionPaying(
            self._book, self._histogram, self._source, reuse, self._remember_step, kind
        )

    def _remember_step(self, step: Step, release: Release) -> None:
        """Add the answer of a step to ``report``, and its charge to what ``remaining`` counts."""
        self._remember(step.text, (step.charge, step.stated), release.charge, len(release))

    def _remember(
        self, text: str, charged: tuple[Charge, Budget | None], charge_used: Charge, rows: int
    ) -> None:
        """Add an answer to ``report``, and its charge to what ``remaining`` counts.

        Args:
            text: the question in words, by which equal questions are counted together.
            charged: the charge, and the budget stated for it.
            charge_used: the part of the charge that was used.
            rows: how many rows were released.
        """
        self._answered.append({"mechanism": text, "charge": charge_used, "rows": rows})
        self._charged_by_text[text] = charged

    def segments(self, segments: Segments) -> dict[Any, Session]:
        """Declare disjoint segments of the data set; return a session for each of them, by name.

        Each segment has the whole budget that is left now, and pays for what is asked of it and,
        from now on, of all data. All answers together have the guarantee of one budget, however
        many segments there are, since every user is in one of them (docs/ledger.md, Segments).

        Args:
            segments: the histograms of segments that are disjoint by user (``segments_per_user``
                is 1, as segment_histograms enforces). For a ledger they must be declared there,
                under the name of their column (``by``): the owner of the data promises that a user
                is in one of them in all data and under all filters, which no single query can
                enforce. From now on the session is for the version of the data that the ledger had
                when the session was made, as if ``version`` had been given.

        Raises:
            InvalidParameter: for segments that a user may share; for other segments than were
                declared before; for a budget that others may spend from: give the session a Budget,
                or a ``dptopk.budgets.Parallel``; for what is no Segments, and in a forked process.

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
        self._refuse_fork()
        validate.instance(Segments, segments=segments)
        if segments.segments_per_user > 1:
            raise InvalidParameter(
                f"segments: one user may be in {segments.segments_per_user} of them, so that they "
                "cannot have a budget each; run_each charges a question that is asked of all of "
                "them together"
            )
        self._book.require_coverage(*(histogram.sensitivity for histogram in segments.values()))
        self._book.declare(segments)
        sessions = {}
        for name, histogram in segments.items():
            source = None
            if self._source is not None:
                source = canonical_json([self._source, segments.by, str(name)])
            session = object.__new__(Session)  # without __init__, which would open a new budget
            session._begin(histogram, self._book.of_segments(name), source, self._rng)
            sessions[name] = session
        return sessions

    def run_each(self, segments: Segments, mechanism: Mechanism | Plan) -> dict[Any, Release]:
        """Charge and run one question on every segment of a public list; return the answers.

        Segments compose in parallel: a user is in at most ``segments.segments_per_user`` of them,
        so that this multiple of the charge of one segment covers all; with 1, a hundred segments
        cost as much as one. Segments that were declared (by ``segments``, or in the ledger) pay
        from an account each. The charge stays in full: what a segment did not use is not given
        back.

        Args:
            segments: histograms of the data set that this session is about, from
                segment_histograms.
            mechanism: one of ``dptopk.mechanisms``, or a Plan; it runs on each segment with its own
                noise.

        Returns:
            The answer of each segment; each says what it would have cost by itself.

        Raises:
            BudgetExceeded: nothing was charged or drawn.
            InvalidParameter: when the question does not fit one of the histograms, these are made
                for users who can change less than those of the ledger's data set, and in a forked
                process; nothing was charged or drawn.
            LedgerError: when the ledger refuses; nothing was drawn.
            ReleaseWithheld: as for ``run``.
        """
        self._refuse_fork()
        validate.instance(Segments, segments=segments)
        plan_of = {
            name: plan_of_mechanism(mechanism, histogram, {})
            for name, histogram in segments.items()
        }
        plans = PerSegment(plan_of, segments.segments_per_user)
        plans.check(segments)
        self._book.require_coverage(*(histogram.sensitivity for histogram in segments.values()))
        charge = plans.charge
        stated = plans.stated
        text = plans.text
        book = self._book
        if book.has_segments(segments):
            book = book.of_segments(*segments)
        _LOG.info("charging %s for %s", charge, text)
        receipt = book.charge(charge, "", text, stated=stated)
        _LOG.info("drawing")
        answers = plans.draw(segments, self._rng)
        joint = plans.joint_release(answers, self._histogram.sensitivity)
        # The types of receipts differ, but each budget gets those that it gave.
        book.finalize(receipt, joint)  # type: ignore[arg-type]
        self._remember(text, (charge, stated), charge, len(joint))
        return answers

    def _refuse_fork(self) -> None:
        """Refuse a forked process, which would spend the same budget a second time.

        Raises:
            InvalidParameter: in another process than the session's.
        """
        if os.getpid() != self._pid:
            raise InvalidParameter(
                "a Session belongs to the process that made it: a fork would be a second budget"
            )

    def top_k(
        self,
        k: int,
        *,
        budget: Budget | None = None,
        counts: Counts | None = "auto",
        look: LookShare = "auto",
        reuse: bool = False,
        **stated: Unpack[StatedInSession],
    ) -> Release:
        """Plan and answer "what are the top k?" for a part of the budget.

        Args:
            k: how many labels are asked for, at least 1.
            budget: the Budget of this answer, in ε or in ρ; what is charged are the costs of its
                plan. None: all that is left of the session's own Budget, never of a ledger or of an
                account that others may spend from.
            counts: "auto" for whichever noisy counts are best, "gaussian", "laplace" or "box", as
                for plan_topk; None for labels alone, so that all of the budget finds labels.
            look: the share of ε, in (0, 1), for a private look at the counts of a few ranks, by
                which the rest is planned; look and rest together cost the budget. "auto": a look
                if public facts say that it is worth its price. None: no look. With ``like=`` the
                look checks the shape.
            reuse: whether a stored answer is given again, as for ``run``.
            stated: further fields of ``dptopk.question.Question``: method, d_bar, fit,
                selection_share, like, charge_as, max_seconds, users, effort; of events find, share,
                min_users. One that does not fit the data or the other fields is refused by name.

        Returns:
            Release: at most k labels from the largest count on, with noisy counts unless
                ``counts`` is None.

        Raises:
            BudgetExceeded: nothing was charged, or the look alone; it says what would fit.
            InvalidParameter: for a question that does not fit the data or has no plan, or without a
                budget where others may spend; in a forked process. Nothing was charged.
            LedgerError, ReleaseWithheld: as for ``run``.

        >>> from dptopk import Budget, Sensitivity
        >>> reads = Histogram(None, [900, 700, 0], sensitivity=Sensitivity(l0=1))
        >>> session = Session(reads, budget=Budget(2.0, 1e-6))
        >>> list(session.top_k(2, budget=Budget(1.0, 0.0)).table.columns)
        ['rank', 'label', 'count']
        >>> list(session.top_k(2, budget=Budget(1.0, 0.0), counts=None).table.columns)
        ['rank', 'label']
        """
        question = {"counts": counts, "look": look, **stated}
        return self._top_k(k, budget, question, reuse=reuse)

    def _top_k(
        self, k: int, budget: Budget | None, stated: Mapping[str, Any], *, reuse: bool
    ) -> Release:
        """Plan and answer a question about this session's data.

        Args:
            k: how many labels are asked for.
            budget: the total of the answer; None: all that is left.
            stated: the other fields of the question; counts is None for labels alone.
            reuse: whether a stored answer is given again.
        """
        options = {name: value for name, value in stated.items() if name != "counts"}
        counts = "none" if stated["counts"] is None else stated["counts"]
        question = Question.of("session", k=k, counts=counts, **options)
        question = question.with_total(self._total_of(budget, question))
        plan = self._plan_for(question, reuse=reuse)
        _, release = self.run_plan(plan, reuse=reuse, kind=self._kind_of(question))
        return release

    def _total_of(self, budget: Budget | None, question: Question) -> Budget:
        """Return the total of an answer: the budget that was stated; else all of the session's own
        while nothing was charged; else the largest (ε, δ) at which the account accepts the
        question.

        Raises:
            InvalidParameter: when it is no Budget; when it is None and others may spend from the
                account, or the session's budget is in ρ and was charged already, because what is
                looked for is an (ε, δ).
            BudgetExceeded: when no question of this kind fits any more.
        """
        if isinstance(budget, Budget):
            return budget
        if budget is not None:
            raise InvalidParameter(
                f"budget must be Budget(epsilon, delta), got {type(budget).__name__}",
                parameter="budget",
            )
        session_budget = self._book.own_budget
        was_charged = bool(self._charged_by_text)
        if session_budget is None or (was_charged and session_budget.rho is not None):
            raise InvalidParameter(
                "budget: name Budget(epsilon, delta) of this answer; all that is left is asked for "
                "only of an (epsilon, delta) that is the session's own",
                parameter="budget",
            )
        if was_charged:
            return largest_budget(question, self._facts(), session_budget, self._book.accounts())
        return session_budget

    def _plan_for(self, question: Question, *, reuse: bool) -> TopKPlan:
        """Return the plan of a question, chosen by what is public about the data and the budget.

        Args:
            question: the question with its total.
            reuse: whether a plan counts as paid whose answer the ledger has stored.
        """
        paying = self._paying(reuse=reuse)

        def covers(plan: Plan) -> bool:
            """Return whether a plan is paid for: by a stored answer, or by the account."""
            has_stored_answer = reuse and paying.has(plan.first(self._histogram))
            return has_stored_answer or paying.covers(plan)

        return plan_topk(question, replace(self._facts(), covers=covers))

    def _facts(self) -> Facts:
        """Return the public facts about the data and the budget that a plan may depend on."""
        charge_as = selections_charged_as(self._book.account())
        return facts_of(self._histogram, charge_as=charge_as)

    def _kind_of(self, question: Question) -> Kind:
        """Return the kind of a question, to which ``remaining`` refers: the question with the
        public facts that its plan depends on.
        """
        return Kind(question, self._facts())

    def run_plan(
        self, plan: TopKPlan, *, reuse: bool = False, kind: Kind | None = None
    ) -> tuple[TopKPlan, Release]:
        """Charge and run a plan; return the plan that ran and its answer.

        A plan that looks first runs another plan afterwards, which is then the one returned. Look
        and plan are charged one after the other; before the look is charged, the session makes sure
        that the account covers a plan after it.

        Args:
            plan: the plan of a top k.
            reuse: whether a stored answer is given again, as for ``run``.
            kind: the kind of the question that it answers, which ``remaining`` and the ledger
                refer to; None: unknown.

        Raises:
            BudgetExceeded: nothing was charged, or the look alone; for a known kind it says what
                would fit.
            InvalidParameter: when the plan does not fit the histogram, and in a forked process;
                nothing was charged.
            LedgerError, ReleaseWithheld: as for ``run``.
        """
        self._refuse_fork()
        paying = self._paying(reuse=reuse, kind=kind)
        try:
            plan_run, release = plan.run(self._histogram, self._rng, average=False, paying=paying)
        except BudgetExceeded as refusal:
            if kind is None:
                raise
            raise refusal_with_advice(refusal, self._book.accounts(), kind) from None
        self._kind = kind or self._kind
        return plan_run, release

    def stream(
        self,
        name: str,
        mechanism: ContinualTopK,
        *,
        path: str | Path,
        calendar: Calendar | None = None,
    ) -> StreamSession:
        """Charge a top k on each of many days at once, and return the stream that answers day by
        day (docs/notes/continual.md).

        It takes a ledger, which lasts as long as the stream. The same call opens the stream again,
        in this process or another, and charges nothing more, as ``StreamSession.open`` does. The
        session's histogram stands for those of the days: they have its sensitivity, and their
        labels are public if its labels are.

        Args:
            name: the stream's name, for this analyst and data set.
            mechanism: the mechanism that ``plan_continual`` returns.
            path: the stream's file, made on first use and as private as the data. It holds what the
                next day needs; if it is lost, the stream cannot go on.
            calendar: the dates of the days, recorded with the stream; None: ``Calendar()``, whose
                days have numbers alone.

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: for a session without a ledger, or of a data set with segments; for
                other terms than the stream's, and a mechanism that cannot run with this sensitivity
                and these labels; when not all days of a user are protected and this session does
                not state the ``unit`` of the ledger's data set, which must say so.
            LedgerError: when the ledger refuses, or the file cannot be read or made.

        >>> import tempfile
        >>> from dptopk import Budget, Ledger, Sensitivity, plan_continual
        >>> day = Histogram({"tea": 90, "milk": 60}, sensitivity=Sensitivity(l0=1))
        >>> mechanism = plan_continual(1, 7, Budget(1, 1e-6), sensitivity=day.sensitivity)
        >>> folder = tempfile.mkdtemp()
        >>> ledger = Ledger(f"{folder}/ledger.db")
        >>> price = mechanism.charge(day.sensitivity)
        >>> ledger.create_dataset("tea", registered=price, delta=1e-6,
        ...     sensitivity=day.sensitivity, unit="user-day")
        >>> session = Session(day, ledger=ledger, dataset="tea", analyst="ann", unit="user-day")
        >>> stream = session.stream("sales", mechanism, path=f"{folder}/sales.stream")
        >>> stream.answer(1, day).labels
        ('tea',)
        """
        from dptopk.session.stream_calendar import Calendar
        from dptopk.session.stream_session import StreamSession

        self._refuse_fork()
        book = self._book
        if isinstance(book, InMemoryBudget):
            raise InvalidParameter("ledger: a stream needs one that exists as long as the stream")
        calendar = calendar or Calendar()
        stream = StreamSession.begin(book, self._histogram, name, mechanism, path, calendar)
        stream.rng = self._rng
        return stream

    def other(
        self, shown: Release, *, epsilon: float, name: str = "(other)", reuse: bool = False
    ) -> Release:
        """Return the noisy total of all counts that an answer did not show, as a separate row.

        One user moves that total by at most τΔ: discrete Laplace noise of scale τΔ/epsilon is
        charged as such, in addition to what the answer cost.

        Args:
            shown: an answer of this session.
            epsilon: the ε that the total costs, above 0.
            name: the label of the row.
            reuse: whether a stored answer is given again, as for ``run``.

        Raises:
            BudgetExceeded: nothing was charged or drawn.
            InvalidParameter: where Δ is unrestricted, or the histogram was cut to its top rows; in
                a forked process; for an epsilon outside its range. Nothing was charged.
            LedgerError, ReleaseWithheld: as for ``run``.
        """
        self._refuse_fork()
        total_of_others = total_of_other_labels(self._histogram, shown, name)
        plan = Single.for_histogram(KnownLaplace(epsilon=epsilon), total_of_others, {})
        plan.check(total_of_others)
        step = Step(plan, total_of_others, ("other", *map(to_plain, shown.labels)))
        return self._paying(reuse=reuse).answer(step, self._rng)

    def remaining(self) -> Remaining:
        """Return what is left of the budget: in ε, per cent, costs, and how many more of each
        question asked here fit.

        If a ledger limits the analyst within the data set's budget, it is what is left of the one
        of the two that allows less.
        """
        accounts = self._book.accounts()
        usual = Kind.usual(accounts[0], facts_of(self._histogram))
        kind = self._book.kind() or self._kind or usual
        account, epsilon_left = least_left(accounts, kind)
        return Remaining.of(
            account, self._charged_by_text, epsilon_left=epsilon_left, question=str(kind)
        )

    def report(self) -> pd.DataFrame:
        """Return a table of this session's answers, a row each: mechanism, charge (the part that
        was used), rows released.
        """
        import pandas as pd

        table = pd.DataFrame(self._answered, columns=["mechanism", "charge", "rows"])
        return table.assign(charge=table["charge"].map(str))

    def _repr_html_(self) -> str:
        """Return a table for notebooks of what was asked, and what is left of the budget."""
        rows = self.report()
        return (
            html_table(list(rows.columns), rows.itertuples(index=False))
            + self.remaining()._repr_html_()
        )


def _require_one_budget(
    budget: Budget | Account | None, ledger: Ledger | None, options: Mapping[str, Any]
) -> None:
    """Check that a budget in memory or a ledger pays, and that options name the ledger's account.

    Args:
        budget: the budget in memory.
        ledger: the ledger.
        options: other options of a session, by name; None, or left out: it was not given.

    Raises:
        InvalidParameter: unless exactly one of both is given; for a ledger without the dataset or
            the analyst; for what is about a ledger's data set beside a budget, which does not check
            it.
    """
    if (budget is None) == (ledger is None):
        raise InvalidParameter("give exactly one of budget and ledger")
    stated = [name for name in ACCOUNT_OPTIONS if options.get(name) is not None]
    if ledger is None and stated:
        raise InvalidParameter(f"{stated[0]} goes with a ledger; a budget in memory has none")
    if ledger is not None and not {"dataset", "analyst"} <= set(stated):
        raise InvalidParameter("dataset and analyst must be given with a ledger")


class EventsSession(Session):
    """A Session on events: its histogram holds the counts of all events, and ``under_cap`` of that
    histogram is for finding labels.
    """

    def top_k(
        self,
        k: int,
        *,
        budget: Budget | None = None,
        counts: Counts | None = "auto",
        look: LookShare = "auto",
        reuse: bool = False,
        **stated: Unpack[StatedInSession],
    ) -> Release:
        """Find labels under the cap, count them without it, and show the k largest.

        Args:
            k: how many labels.
            budget: the (ε, δ) or ρ of this answer, both phases together; δ above 0. None: all that
                is left of the session's own Budget.
            counts: "auto", "gaussian" or "box"; None for labels alone, in the order of noisy
                counts.
            look: "auto": two private looks if they are worth their cost; None: no look.
            reuse: whether a stored answer is given again, as for ``run``.
            stated: further fields of ``dptopk.question.Question``: share, find, min_users,
                users. Fields for one phase are refused.

        Returns:
            Release: its note says how labels were found and under which cap, ``phases`` what each
                phase cost; counts and error bars are about all events.

        Raises:
            BudgetExceeded, InvalidParameter, LedgerError, ReleaseWithheld: as for
                ``Session.top_k``.
        """
        question = {"counts": counts, "look": look, **stated}
        return self._top_k(k, budget, question, reuse=reuse)
