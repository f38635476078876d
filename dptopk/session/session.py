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

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import Counts, LookShare
from dptopk._internal.formatting import html_table
from dptopk._internal.json_text import canonical_json
from dptopk.budgets.account_base import Account
from dptopk.budgets.registered_account import Accountant
from dptopk.budgets.remaining import Remaining
from dptopk.costs import Budget, Charge, ExponentialClockDP
from dptopk.datasets.segments import Segments
from dptopk.errors import BudgetExceeded, InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import to_plain
from dptopk.mechanisms import KnownLaplace
from dptopk.mechanisms.mechanism import Mechanism, finite_l0
from dptopk.mechanisms.samplers.random import random_bits
from dptopk.planning import Plan, TopKPlan, plan
from dptopk.planning.facts import facts_of
from dptopk.planning.gauge import Kind, least_left
from dptopk.planning.per_segment import PerSegment
from dptopk.planning.protocol import Step
from dptopk.planning.refusals import advised
from dptopk.planning.single import Single, planned
from dptopk.question import Facts, Question, StatedInSession
from dptopk.release.release import Release
from dptopk.session.budget_backend import InMemoryBudget, LedgerBudget
from dptopk.session.paying import SessionPaying

if TYPE_CHECKING:
    import pandas as pd
    from numpy.random import Generator

    from dptopk.datasets.backends.inputs import EventTable
    from dptopk.datasets.store import EventsStore
    from dptopk.ledger.ledger import Ledger
    from dptopk.mechanisms.continual import ContinualTopK
    from dptopk.session.stream_session import Calendar, StreamSession


_LOG = logging.getLogger(__name__)
# What of the options of from_events is for the session, not for reading the events.
SESSION_OPTIONS = ("dataset", "analyst", "version", "unit", "source", "rng")
# Of the session's δ, for a question that asks for all that is left.
DELTA_SHARES = (0.9, 0.5, 0.1)


class Session:
    """Questions about one histogram within one budget.

    The order is always the same: check that the question fits the data, check the budget, write the
    charge (durably, with a ledger), draw the noise, check that the charge covers what was drawn,
    return what was not used. A draw that fails stays charged. Several threads may ask; copies,
    pickles and forked processes are refused, because each would spend the same budget again.

    Args:
        histogram: what is asked about.
        budget: without a ledger: a Budget (a fully adaptive filter on that total; where it does not
            cover the first question, but the total does, the δ is split by what that question
            needs, or it is all that is asked), or an Accountant with registered costs (set-wise:
            the same total answers more questions).
        ledger: a Ledger; then ``dataset`` and ``analyst`` name the account that pays.
        dataset: the ledger's dataset that this histogram was made of.
        analyst: who asks.
        version: of the data the histogram was made of; when given it must be the ledger's. None:
            not checked, but for declared segments, which are taken to be of the ledger's version at
            this moment.
        unit: the privacy unit the histogram was made for; when given it must be the ledger's.
        source: where the histogram comes from, in words (a file and its columns, a query, a filter,
            the domain), for ``reuse``: a stored answer is given again only to a question with the
            same source. It must not be computed from the data (a hash of them, say): whether an
            answer comes free of charge would tell whether they changed. None = this very Histogram.
        rng: a generator for tests and experiments; None = a secure source.

    Raises:
        InvalidParameter: unless exactly one of budget and ledger is given.

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
        """A session on raw events: ``top_k`` finds labels under a cap, and counts what it found on
        all events.

        A cap on labels per user is needed to find labels that nobody knows beforehand, and for
        nothing else: the labels found are public, and are counted without the cap. So counts and
        their error bars are about the true numbers (docs/notes/two-phases.md). Both histograms are
        made here, in one statement, and so of one snapshot of the data.

        Args:
            table: events, as for ``datasets.events_histogram``, or an EventsStore made without a
                cap.
            labels_per_user: the cap under which labels are found; "auto": the ledger's, or 100 with
                weights and 10 without; None: no cap at all, in one phase.
            count_capped: count the capped data too, in one phase, as Session(events_histogram(...))
                does.
            weights: whether labels are found by sums of weights, isqrt(100² // d) for each of the d
                labels of a user, instead of counts; "auto": where per_label_cap is 1.
            budget: as for Session.
            ledger: as for Session.
            options: those of ``datasets.events_histogram`` (user, item, per_label_cap, weight,
                where, ...; a store has its own) and of Session (dataset, analyst, version, unit,
                source, rng).

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
        kind = Session if facts_of(histogram).events is None else EventsSession
        return kind(histogram, budget=budget, ledger=ledger, **paying)

    def _begin(
        self,
        histogram: Histogram,
        book: InMemoryBudget | LedgerBudget,
        source: str | None,
        rng: Generator | None,
    ) -> None:
        self._histogram = histogram
        self._source = source
        self._rng = rng
        self._pid = os.getpid()
        self._book = book
        self._answered: list[dict[str, Any]] = []
        self._kinds_charged: dict[str, tuple[Charge, Budget | None]] = {}
        self._kind: Kind | None = None  # of the last question

    @property
    def histogram(self) -> Histogram:
        """The histogram that questions are about."""
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
        """Charge and run one mechanism.

        Args:
            mechanism: one of ``dptopk.mechanisms``, or a Plan.
            reuse: with a ledger: give a stored answer again, free, if the question is identical:
                mechanism, charge, labels, sensitivity, domain, source, and the version and unit of
                the data.
            average: of a Plan whose labels do not all appear: spend what was set aside for their
                counts on better counts of the others, instead of taking it back (Plan.release).
            options: for the mechanism's release: ``labels=`` or ``ranking=``.

        Raises:
            BudgetExceeded: nothing was charged or drawn.
            InvalidParameter: when the question does not fit the histogram; nothing was charged or
            drawn.
            ReleaseWithheld: when the answer costs more than was charged, which no mechanism of this
                package does; the answer is lost, the charge stays.
        """
        self._here()
        plan = planned(mechanism, self._histogram, options)
        if average and not plan.averages:
            raise InvalidParameter("average: only the counts of a Plan can be averaged")
        paying = self._paying(reuse=reuse)
        return plan.release(self._histogram, self._rng, average=average, paying=paying)

    def answered(self, mechanism: Mechanism | Plan, **options: Any) -> bool:
        """Whether the ledger has an answer to this question, which ``run(..., reuse=True)`` returns
        free of charge.

        Args:
            mechanism: as for ``run``.
            options: as for ``run``; False without a ledger. Of a plan after a look, whether it has
                that of the look.
        """
        plan = planned(mechanism, self._histogram, options)
        plan.check(self._histogram)
        return self._paying(reuse=True).has(plan.first(self._histogram))

    def _paying(self, *, reuse: bool, kind: Kind | None = None) -> SessionPaying:
        """Return what pays for the plans of this session."""
        return SessionPaying(
            self._book, self._histogram, self._source, reuse, self._remember_step, kind
        )

    def _remember_step(self, step: Step, release: Release) -> None:
        self._remember(step.text, (step.charge, step.stated), release.charge, len(release))

    def _remember(
        self, what: str, kind: tuple[Charge, Budget | None], used: Charge, rows: int
    ) -> None:
        self._answered.append({"mechanism": what, "charge": used, "rows": rows})
        self._kinds_charged[what] = kind

    def segments(self, segments: Segments) -> dict[Any, Session]:
        """Declare disjoint segments of the data set: a session for each, with its own questions, at
        any time.

        Each segment has the whole budget that is left now, and pays for what is asked of it and,
        from now on, of all data. All that is ever answered has the guarantee of one budget, however
        many segments there are, since every user pays in one (docs/ledger.md, Segments).

        Args:
            segments: disjoint by user: with ``segments_per_user`` 1, as segment_histograms
                enforces. For a ledger they must be declared there, under the name of what they are
                ``by``: their owner promises that a user is in one of them in all data and under all
                filters, which no single query can enforce. From now on the session is one for the
                version of the data that the ledger had when it was made, as if ``version`` had said
                so.

        Raises:
            InvalidParameter: for segments that a user may share; for other segments than were
                declared before; for a budget that others may spend from: give the session a Budget,
                or an ``dptopk.budgets.Parallel``.

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
                f"segments: one user may be in {segments.segments_per_user} of them, so that "
                f"they cannot have a budget "
                "each; run_each charges a question that is asked of all of them together"
            )
        self._book.fits(*(histogram.sensitivity for histogram in segments.values()))
        self._book.declare(segments)
        sessions = {}
        for name, histogram in segments.items():
            sessions[name] = object.__new__(Session)
            source = (
                None
                if self._source is None
                else canonical_json([self._source, segments.by, str(name)])
            )
            # a Session too
            sessions[name]._begin(histogram, self._book.only(name), source, self._rng)  # noqa: SLF001
        return sessions

    def run_each(self, segments: Segments, mechanism: Mechanism | Plan) -> dict[Any, Release]:
        """Charge and run one question on every segment of a public list, together: segments compose
        in parallel.

        A user is in at most ``segments.segments_per_user`` of them, so that this multiple of the
        charge of one segment covers all; with 1, a hundred segments cost as much as one. Declared
        segments (``segments``, or in the ledger) pay each from its own account. The charge stays in
        full: what a segment did not use is not given back.

        Args:
            segments: histograms of the data set that this session is about, from
                segment_histograms.
            mechanism: one of ``dptopk.mechanisms``, or a Plan; it runs on each segment with its own
                noise.

        Returns:
            The answer of each segment; each says what it would have cost by itself.

        Raises:
            BudgetExceeded: nothing was charged or drawn.
            InvalidParameter: when the question does not fit one of the histograms; nothing was
            charged or drawn.
        """
        self._here()
        validate.instance(Segments, segments=segments)
        each = {name: planned(mechanism, histogram, {}) for name, histogram in segments.items()}
        plans = PerSegment(each, segments.segments_per_user)
        plans.check(segments)
        self._book.fits(*(histogram.sensitivity for histogram in segments.values()))
        charge = plans.charge
        stated = plans.stated
        text = plans.text
        book = self._book.only(*segments) if self._book.declared(segments) else self._book
        _LOG.info("charging %s for %s", charge, text)
        receipt = book.charge(charge, "", text, stated=stated)
        _LOG.info("drawing")
        answers = plans.draw(segments, self._rng)
        together = _together(answers, plans, self._histogram)
        book.finalize(receipt, together)  # type: ignore[arg-type]
        self._remember(text, (charge, stated), charge, len(together))
        return answers

    def _here(self) -> None:
        """Refuse a forked process."""
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
            k: how many labels.
            budget: the (ε, δ) of this answer; what is charged are the costs of its plan. None: all
                that is left of the session's own Budget, never of a ledger or of an account that
                others may spend from.
            counts: "auto" for whichever noisy counts are best, "gaussian", "laplace" or "box", as
                for plan_topk; None for labels alone, so that all of the budget finds labels.
            look: a share of ε, in (0, 1), for a private look at the counts of a few ranks, by which
                the rest is planned; the ε's add up to the budget's. "auto": such a look where what
                is public says that it is worth its price. None: no look. With ``like=`` the look
                checks the shape.
            reuse: as for ``run``.
            stated: further fields of ``dptopk.question.Question``: d_bar, method, fit, like,
                selection_share, charge_as, users, effort, max_seconds.

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
        """Plan and answer a question of this session's data."""
        options = {name: value for name, value in stated.items() if name != "counts"}
        counts = "none" if stated["counts"] is None else stated["counts"]
        question = Question.of("session", k=k, counts=counts, **options)
        question = question.with_total(self._total_of(budget, question))
        plan = self._planned(question, reuse=reuse)
        return self.run_plan(plan, reuse=reuse, kind=self._kind_of(question))[1]

    def _total_of(self, budget: Budget | None, question: Question) -> Budget:
        """The budget of a question: the one stated, or all that is left of the session's own.

        Raises:
            InvalidParameter: when it is no Budget, or when nobody but others knows what is left.
            BudgetExceeded: when no question of this kind fits any more.
        """
        if isinstance(budget, Budget):
            return budget
        if budget is not None:
            raise InvalidParameter(
                f"budget must be Budget(epsilon, delta), got {type(budget).__name__}",
                parameter="budget",
            )
        own = self._book.own
        if own is None or (self._kinds_charged and own.rho is not None):
            raise InvalidParameter(
                "budget: name Budget(epsilon, delta) of this answer; all that is left is asked for "
                "only of an (epsilon, delta) that is the session's own",
                parameter="budget",
            )
        if self._kinds_charged:
            return self._all_left(own, question)
        return own

    def _all_left(self, own: Budget, question: Question) -> Budget:
        """The largest ε at which the question is accepted, of several shares of δ."""
        accounts = self._book.accounts()
        totals = []
        for delta in dict.fromkeys(share * own.delta for share in DELTA_SHARES):
            with_delta = replace(question, delta=delta)
            _, epsilon = least_left(accounts, self._kind_of(with_delta))
            if epsilon > 0:
                totals.append(Budget(epsilon, delta))
        if not totals:
            raise BudgetExceeded(Charge(), "nothing", "no question of this kind fits")
        return max(totals, key=lambda total: total.epsilon)

    def _planned(self, question: Question, *, reuse: bool) -> TopKPlan:
        """The plan of a question, by what is public about the data and the budget."""
        paying = self._paying(reuse=reuse)

        def covers(plan: Plan) -> bool:
            stored = reuse and paying.has(plan.first(self._histogram))
            return stored or paying.covers(plan)

        return plan(question, replace(self._facts(), covers=covers))

    def _facts(self) -> Facts:
        """Return what plans may depend on: what is public about the data and the budget."""
        charge_as = selections_charged_as(self._book.account())
        return facts_of(self._histogram, charge_as=charge_as)

    def _kind_of(self, question: Question) -> Kind:
        return Kind(question, self._facts())

    def run_plan(
        self, plan: TopKPlan, *, reuse: bool = False, kind: Kind | None = None
    ) -> tuple[TopKPlan, Release]:
        """The plan that ran and its answer; a look before it and the plan by it are charged one
        after the other.

        A plan that the account covers for certain is made before the look is charged.

        Args:
            plan: what is to run.
            reuse: as for ``run``.
            kind: of the question that it answers, for what ``remaining`` says and for the ledger.
        """
        self._here()
        paying = self._paying(reuse=reuse, kind=kind)
        try:
            answered = plan.run(self._histogram, self._rng, average=False, paying=paying)
        except BudgetExceeded as refused:
            if kind is None:
                raise
            raise advised(refused, self._book.accounts(), kind) from None
        self._kind = kind or self._kind
        return answered

    def stream(
        self,
        name: str,
        mechanism: ContinualTopK,
        *,
        path: str | Path,
        calendar: Calendar | None = None,
    ) -> StreamSession:
        """Spend what a top k on each of many days costs, at once; then ask day by day
        (docs/continual.md).

        It takes a ledger, which lasts as long as the stream. The same call opens the stream again,
        in this process or another, and charges nothing more, as ``StreamSession.open`` does. The
        session's histogram says what those of the days look like: their sensitivity, and whether
        the labels are public.

        Args:
            name: of the stream, for this analyst and data set.
            mechanism: what ``plan_continual`` returns.
            path: the stream's file, made on first use and as private as the data. It holds what the
                next day needs; lost, the stream cannot go on.
            calendar: what the days are, recorded with the stream; None: ``Calendar()``, numbers
                alone.

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: for other terms than the stream's; when not all days of a user are
                protected and this session does not state the ``unit`` of the ledger's data set,
                which must say so.
            LedgerError: when the file is an old copy.

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
        from dptopk.session.stream_session import Calendar, StreamSession

        self._here()
        book = self._book
        days = calendar or Calendar()
        if isinstance(book, InMemoryBudget):
            raise InvalidParameter("ledger: a stream needs one that exists as long as the stream")
        stream = StreamSession.begin(book, self._histogram, name, mechanism, path, days)
        stream.rng = self._rng
        return stream

    def other(
        self, shown: Release, *, epsilon: float, name: str = "(other)", reuse: bool = False
    ) -> Release:
        """The noisy total of all counts that an answer did not show, as a separate row.

        One user moves that total by at most τΔ: discrete Laplace noise of scale τΔ/epsilon is
        charged as such, in addition to what the answer cost.

        Args:
            shown: an answer of this session.
            epsilon: what the total may cost.
            name: of the row.
            reuse: as for ``run``.

        Raises:
            InvalidParameter: where Δ is unrestricted, or the histogram was cut to its top rows.
        """
        self._here()
        histogram = self._histogram
        most = finite_l0(self._histogram.sensitivity, "for the total of all other labels")
        if not histogram.complete:
            raise InvalidParameter(
                "complete: the total of all other labels needs the whole histogram"
            )
        counted = histogram.count_of(list(shown.labels))
        total = sum(histogram.counts.tolist()) - sum(counted.tolist())
        moved = Sensitivity(linf=histogram.sensitivity.linf * most, l0=1)
        total = min(total, validate.LARGEST - 1)  # moves by no more than the total does
        rest = Histogram(
            [name], [total], sensitivity=moved, domain="public", capped=histogram.capped
        )
        plan = Single.on(KnownLaplace(epsilon=epsilon), rest, {})
        plan.check(rest)
        step = Step(plan, rest, ("other", *map(to_plain, shown.labels)))
        return self._paying(reuse=reuse).answer(step, self._rng)

    def remaining(self) -> Remaining:
        """Return what is left of the budget: in ε, per cent, costs, and how many more of each
        question asked here fit. Where a ledger limits the analyst besides, it is that of whichever
        of the two budgets has less left.
        """
        accounts = self._book.accounts()
        usual = Kind.usual(accounts[0], facts_of(self._histogram))
        kind = self._book.kind() or self._kind or usual
        account, left = least_left(accounts, kind)
        return Remaining.of(account, self._kinds_charged, epsilon_left=left, question=str(kind))

    def report(self) -> pd.DataFrame:
        """The answers of this session, a row each: mechanism, charge (what was used), rows
        released.
        """
        import pandas as pd

        table = pd.DataFrame(self._answered, columns=["mechanism", "charge", "rows"])
        return table.assign(charge=table["charge"].map(str))

    def _repr_html_(self) -> str:
        """For notebooks: what was asked, and what is left."""
        rows = self.report()
        return (
            html_table(list(rows.columns), rows.itertuples(index=False))
            + self.remaining()._repr_html_()
        )


class EventsSession(Session):
    """A Session on an EventCounts: ``histogram`` is that of all events, its ``under_cap`` finds
    labels.
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
            look: "auto": two private looks where they are worth their cost; None: none.
            reuse: as for ``run``.
            stated: further fields of ``dptopk.question.Question``: share, find, min_users,
                users. What is for one phase is refused.

        Returns:
            Release: its note says what was found under which cap, ``phases`` what each phase cost;
            counts and error bars are about all events.
        """
        question = {"counts": counts, "look": look, **stated}
        return self._top_k(k, budget, question, reuse=reuse)


def selections_charged_as(account: Account) -> Literal["auto", "bounded_range"]:
    """Decide how a plan charges its selections to an account: as clocks only if clocks are
    registered.

    A filter has no price for them (docs/notes/clocks.md), and tokens of other types do not cover
    them.
    """
    registered = account.registered.costs if isinstance(account, Accountant) else ()
    if any(isinstance(cost, ExponentialClockDP) for cost in registered):
        return "auto"
    return "bounded_range"


def _together(
    answers: Mapping[Any, Release], plans: PerSegment[Plan], histogram: Histogram
) -> Release:
    """The answers of all segments as one, for the record: rows labelled (segment, label)."""
    counts = [answer.counts for answer in answers.values() if answer.counts is not None]
    return Release(
        labels=tuple((name, label) for name, answer in answers.items() for label in answer.labels),
        counts=np.concatenate(counts) if counts else None,
        charge=plans.charge,
        mechanism=plans.each.text,
        sensitivity=histogram.sensitivity,
        seeded=any(answer.seeded for answer in answers.values()),
        note="rows of all segments, labelled (segment, label)",
    )
