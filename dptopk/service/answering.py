"""Answering exactly once: despite failures and retries, one key is charged once and has one answer.

1. If the ledger holds a charge under the analyst's key, nothing more is charged. If its answer is
   stored, that answer is given again. If not (the process was killed, or another one is drawing
   it), the answer is drawn with the plan that the charge remembers, and stored; the ledger takes
   one answer for a charge, so if two are drawn, one of them is never seen.
2. Else: plan, read the data, move the job to "charging" (from where it cannot be called off, see
   ``jobs``), charge (one transaction that looks for the key and the version again), wait until the
   charge is durable, draw, store.

No answer leaves before it is stored, so that an answer that was given is the one that is given
again. Wherever the process is killed, what was charged covers what was released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.json_text import fingerprint
from dptopk.errors import (
    BudgetExceeded,
    DptopkError,
    InvalidParameter,
    LedgerError,
    ReleaseWithheld,
)
from dptopk.histogram.histogram import Histogram
from dptopk.ledger.commits import Commits
from dptopk.ledger.dataset import DatasetState
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.names import analyst_name
from dptopk.ledger.spends import Receipt, Spend
from dptopk.planning import Plan
from dptopk.planning.refusals import refusal_with_advice
from dptopk.release.release import Release
from dptopk.service.catalog import DatasetSpec
from dptopk.service.data import Histograms
from dptopk.service.jobs import Jobs
from dptopk.service.questions import (
    Plans,
    PostedQuestion,
    charge_of,
    kind_of,
    kind_record,
    record_of,
    revive,
    stated_for,
)


class KeyUsed(DptopkError):
    """The idempotency key was used for another question, or its charge belongs to a budget or to
    data that have been renewed since.
    """


def job_of(analyst: str, dataset: str, key: str) -> str:
    """Return the name of a question's job, a hash of 128 bits that is the same for every retry with
    the same key.

    Args:
        analyst: the analyst, in any spelling.
        dataset: the name of the data set.
        key: the idempotency key.
    """
    return fingerprint([analyst_name(analyst), dataset, key])[:32]


@dataclass
class AnswerService:
    """The service that charges and answers questions, once for each key.

    Attributes:
        ledger: the ledger that is charged.
        histograms: the cache of histograms.
        plans: the cache of plans.
        jobs: the status of each question.
        wait: the function that waits for the next time at which answers are sent. A charge and an
            answer are seen as soon as the ledger has them: so each is written after a wait, and
            does not show how long the data were read.
    """

    ledger: Ledger
    histograms: Histograms
    plans: Plans
    jobs: Jobs
    wait: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        """Prepare the commits that charges share, and those that answers share."""
        # Writes of one kind share durable commits. Charges and answers do not share them, so that
        # an answer that fails cannot undo a charge.
        self._charges = Commits(self.ledger)
        self._answers = Commits(self.ledger)

    def charge_of_key(
        self, spec: DatasetSpec, analyst: str, key: str, question: PostedQuestion
    ) -> Spend | None:
        """Return the charge under a key, or None if there is none.

        Args:
            spec: the data set.
            analyst: the analyst who asks, in any spelling.
            key: the idempotency key.
            question: the question, which must be the one that was charged.

        Raises:
            KeyUsed: when it was for another question.
        """
        spend = self.ledger.asked(spec.name, analyst, key)
        if spend is not None and not question.equals_json(spend.mechanism.get("question")):
            raise KeyUsed("this idempotency key was used for another question: take a new one")
        return spend

    def ask(self, spec: DatasetSpec, analyst: str, key: str, question: PostedQuestion) -> Spend:
        """Charge and answer a question, unless that was done before; return the charge, whose
        answer is stored.

        Args:
            spec: the data set.
            analyst: the name of the analyst who asks.
            key: the idempotency key.
            question: the question.

        Raises:
            KeyUsed: the key was used for another question, or its charge did not pay for the
                present data.
            BudgetExceeded: nothing was charged.
            InvalidParameter, Unreadable: the question does not fit the data, or these cannot be
                read; nothing was charged.
            ReleaseWithheld: the answer costs more than was charged, and is not given.
            Cancelled: the job was called off; nothing was charged, nor will be under this key.
            LedgerError: the ledger refuses; a retry with the same key goes on from where this
                ended.
        """
        analyst = analyst_name(analyst)
        job = job_of(analyst, spec.name, key)
        spend = self.charge_of_key(spec, analyst, key, question)
        while spend is None:  # ``_charge`` charges nothing if the data change meanwhile
            self._charge(spec, analyst, key, question, job)
            spend = self.charge_of_key(spec, analyst, key, question)
        if spend.answer is None:
            self._answer(spec, spend)
        answered = self.charge_of_key(spec, analyst, key, question)
        if answered is None or answered.answer is None:
            raise LedgerError("the answer was not stored; ask again with the same key")
        return answered

    def _charge(
        self, spec: DatasetSpec, analyst: str, key: str, question: PostedQuestion, job: str
    ) -> None:
        """Read the data and check that they fit the plan, then charge, if neither has the data
        changed meanwhile nor another worker charged the key first; the caller looks whether there
        is a charge now.

        A question that fails before the charge costs nothing.

        Args:
            spec: the data set.
            analyst: the analyst's name as the ledger writes it.
            key: the idempotency key.
            question: the question.
            job: the name of the question's job.

        Raises:
            Cancelled: the job was called off; nothing was charged.
            Unreadable: the data cannot be read; nothing was charged.
            KeyUsed: the key was charged for another question meanwhile.
            BudgetExceeded: nothing was charged; for a top-k question it says what would fit.
            InvalidParameter: the question does not fit the data or the ledger; nothing was charged.
        """
        plan = self.plans.get(spec, question)
        version = self.ledger.state(spec.name).version
        for histogram in self._read(spec, version, question, plan, job).values():
            plan.check(histogram)
        self.wait()
        self.jobs.begin_charging(job)
        record = record_of(question, plan) | kind_record(spec, question)
        segments = spec.paying_segments(question.segments, question.where)
        charge = charge_of(spec, question, plan)
        charging = partial(
            self.ledger.charge,
            spec.name,
            analyst,
            charge,
            version=version,
            unit=spec.unit,
            sensitivity=spec.sensitivity,
            mechanism=record | {"version": version},
            once=key,
            segments=segments,
            stated=stated_for(plan, charge),
        )
        try:
            self._charges.do(charging)
        except BudgetExceeded as refusal:
            kind = kind_of(spec, question)
            if kind is None:
                raise
            accounts = self.ledger.state(spec.name).accounts(analyst, segments)
            raise refusal_with_advice(refusal, accounts.values(), kind) from None
        except InvalidParameter:
            # The ledger refuses a key that another worker has charged, and an old version.
            charged_elsewhere = self.charge_of_key(spec, analyst, key, question) is not None
            data_changed = self.ledger.state(spec.name).version != version
            if not charged_elsewhere and not data_changed:
                raise

    def _read(
        self, spec: DatasetSpec, version: str, question: PostedQuestion, plan: Plan, job: str | None
    ) -> Mapping[str, Histogram]:
        """Return the histograms of a question by segment, cached or read now.

        A question without segments has one histogram, under the name "".

        Args:
            spec: the data set.
            version: the version of the data.
            question: the question that states conditions and segments.
            plan: the plan that says what is read.
            job: the job whose progress is noted; None: no progress is noted.

        Raises:
            Unreadable: when the data cannot be read.
            Cancelled: when the job was called off meanwhile.
        """

        def progress(done: int, total: int) -> None:
            """Note how many passes over the data are done, if there is a job."""
            if job is not None:
                self.jobs.progress(job, done, total)

        segment_reading = spec.segment_reading(question.segments, question.where)
        if plan.reading.finding is not None:
            segment_reading = replace(segment_reading, finding=plan.reading.finding)
        return self.histograms.get(spec, version, question.where, segment_reading, progress)

    def _answer(self, spec: DatasetSpec, spend: Spend) -> None:
        """Draw the answer to a charge with the plan that was charged, and store it.

        If another worker has stored its answer first, that one counts and this one is never seen.

        Args:
            spec: the data set.
            spend: the charge, which has no answer yet.

        Raises:
            Unreadable: if the data cannot be read.
            KeyUsed: if the budget, or the data of segments, were renewed since the charge.
            LedgerError: if the data have changed and no longer fit the plan.
            ReleaseWithheld: if the answer costs more than was charged.
        """
        receipt = Receipt(spend.seq, spec.name, spend.analyst, spend.charge)
        question, plan = revive(spec, spend.mechanism, spend.charge)
        state = self.ledger.state(spec.name)
        _refuse_other_data(spend, state)
        releases = {}
        for segment, histogram in self._read(spec, state.version, question, plan, None).items():
            try:
                release = plan.release(histogram)
            except InvalidParameter as error:
                raise LedgerError(
                    f"the answer to what was charged cannot be drawn now ({error})"
                ) from None
            if not plan.charge.includes(release.charge):
                raise ReleaseWithheld(plan.charge, release.charge)
            releases[segment] = release
        self.wait()
        # The data, or the budget, may have been renewed while the data were read.
        _refuse_other_data(spend, self.ledger.state(spec.name))
        answer = _stored_answer(question, releases) | {"version": state.version}
        # What a segment did not use is not given back: another one may have used it.
        used = spend.charge if question.segments else releases[""].charge
        with suppress(InvalidParameter):  # raised if another worker has stored an answer
            self._answers.do(partial(self.ledger.finalize, receipt, used, answer=answer))


def _refuse_other_data(spend: Spend, state: DatasetState) -> None:
    """Refuse to answer a charge that did not pay for the present data.

    Raises:
        KeyUsed: if the budget, or the data of segments, were renewed since.
    """
    # In the new data users may be in other segments, whose accounts were not charged.
    if spend.segments is not None and spend.seq < state.version_entry:
        raise KeyUsed(
            "the data changed before this question was answered: take a new idempotency key"
        )
    # An answer drawn now would be about data that only the new budget may pay for.
    if spend.seq <= state.renewal_entry:
        raise KeyUsed(
            "the budget was renewed before this question was answered: take a new idempotency key"
        )


def _stored_answer(question: PostedQuestion, releases: Mapping[str, Release]) -> dict[str, Any]:
    """Return the answer as the ledger stores it: the release, or a list with that of each
    segment.
    """
    if not question.segments:
        return releases[""].to_dict()
    parts = [{"segment": segment} | release.to_dict() for segment, release in releases.items()]
    return {"segments": parts}


def sent_answer(
    spend: Spend, answer: Mapping[str, Any], dataset: str, confidence: float = CONFIDENCE
) -> dict[str, Any]:
    """Return a stored answer as the service sends it: question, cost, and releases with intervals.

    Args:
        spend: the charge.
        answer: its answer, as ``_stored_answer`` writes it.
        dataset: the name of the data set.
        confidence: the confidence of the intervals, in (0, 1).
    """
    sent = _charge_facts(spend, dataset) | {
        "version": answer.get("version", ""),
        "confidence": confidence,
        "question": spend.mechanism.get("question"),
    }
    if "segments" not in answer:
        return sent | _release_with_intervals(answer, confidence)
    parts = [
        {"segment": part["segment"]} | _release_with_intervals(part, confidence)
        for part in answer["segments"]
    ]
    return sent | {"segments": parts}


def _charge_facts(spend: Spend, dataset: str) -> dict[str, Any]:
    """Return the ledger's entry, the time, the data set and the charge, as the service
    sends them.
    """
    return {"entry": spend.seq, "at": spend.at, "dataset": dataset, "charge": str(spend.charge)}


def sent_stream(spend: Spend, dataset: str) -> dict[str, Any]:
    """Return the charge of a stream, with the stream's terms, as the service sends it.

    Args:
        spend: the charge of the stream.
        dataset: the name of the data set.
    """
    terms = spend.mechanism["stream"]
    mechanism = {name: terms["mechanism"][name] for name in ("k", "days", "days_per_user")}
    stream = {"stream": terms["stream"], **terms["calendar"], **mechanism}
    return _charge_facts(spend, dataset) | stream


def _release_with_intervals(stored: Mapping[str, Any], confidence: float) -> dict[str, Any]:
    """Return a stored release, and intervals that hold for all of its rows at once with this
    confidence.
    """
    release = Release.from_dict(stored)
    plain = {name: value for name, value in stored.items() if name not in {"version", "segment"}}
    return {"release": plain, "intervals": _intervals(release, confidence)}


def _intervals(release: Release, confidence: float) -> list[dict[str, int]] | None:
    """Return for each row its rank and the ends of its count and of its rank; None for an answer
    without counts.

    Args:
        release: the release.
        confidence: the probability that all intervals hold at once, in (0, 1).
    """
    if release.counts is None or release.measurement is None:
        return None
    table = release.intervals(confidence=confidence)
    columns = ("rank", "low", "high", "rank_low", "rank_high")
    return [{name: int(row[name]) for name in columns} for row in table.to_dict("records")]
