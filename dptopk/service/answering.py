"""Answering exactly once: despite failures and retries, one key is charged once and has one answer.

1. If the ledger holds a charge under the analyst's key, nothing more is charged. Is its answer
   stored, it is given again. Is it not (the process was killed, or another one is at it), the
   answer is drawn with the plan that the charge remembers, and stored; the ledger takes one answer
   for a charge, so of two that are drawn one is never seen.
2. Else: plan, read the data, move the job to "charging" (from where it cannot be called off, see
   ``jobs``), charge (one transaction that looks for the key and the version again), wait until the
   charge is durable, draw, store.

Nothing leaves before it is stored: an answer that was given is the one that is given again. Killed
at any instant, charged >= released.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.names import analyst_name
from dptopk.ledger.spends import Receipt, Spend
from dptopk.planning import Plan
from dptopk.planning.refusals import advised
from dptopk.release.release import Release
from dptopk.service.catalog import DatasetSpec
from dptopk.service.data import Histograms
from dptopk.service.jobs import Jobs
from dptopk.service.questions import (
    Plans,
    PostedQuestion,
    charge_of,
    kind_of,
    recorded,
    recorded_kind,
    revived,
)


class KeyUsed(DptopkError):
    """The idempotency key was used for another question, or is of a budget or of data that were
    renewed since.
    """


def job_of(analyst: str, dataset: str, key: str) -> str:
    """The name of the job of a question: the same for every retry."""
    return fingerprint([analyst_name(analyst), dataset, key])[:32]


@dataclass
class AnswerService:
    """Everything that asking needs; charges share durable commits with charges alone, so that no
    answer undoes one.
    """

    ledger: Ledger
    histograms: Histograms
    plans: Plans
    jobs: Jobs

    def __post_init__(self) -> None:
        self._charges, self._answers = Commits(self.ledger), Commits(self.ledger)

    def known(
        self, spec: DatasetSpec, analyst: str, key: str, question: PostedQuestion
    ) -> Spend | None:
        """The charge under a key, if there is one.

        Raises:
            KeyUsed: when it was for another question.
        """
        spend = self.ledger.asked(spec.name, analyst, key)
        if spend is not None and not question.is_that(spend.mechanism.get("question")):
            raise KeyUsed("this idempotency key was used for another question: take a new one")
        return spend

    def ask(self, spec: DatasetSpec, analyst: str, key: str, question: PostedQuestion) -> Spend:
        """Charge and answer a question, or find what was done before; the charge whose answer is
        stored.

        Raises:
            BudgetExceeded: nothing was charged.
            Cancelled: the job was called off; nothing was charged, nor will be under this key.
            LedgerError: the ledger refuses; a retry with the same key goes on from where this
            ended.
        """
        analyst, job = analyst_name(analyst), job_of(analyst, spec.name, key)
        while (spend := self.known(spec, analyst, key, question)) is None:
            self._charge(spec, analyst, key, question, job)
        if spend.answer is None:
            self._answer(spec, spend)
        done = self.known(spec, analyst, key, question)
        if done is None or done.answer is None:
            raise LedgerError("the answer was not stored; ask again with the same key")
        return done

    def _charge(
        self, spec: DatasetSpec, analyst: str, key: str, question: PostedQuestion, job: str
    ) -> None:
        """Read the data, then charge: a question that fails before costs nothing.

        Nothing is charged here when the data changed meanwhile, or another worker was faster.
        """
        plan = self.plans.get(spec, question)
        version = self.ledger.state(spec.name).version
        for histogram in self._read(spec, version, question, plan, job).values():
            plan.check(histogram)
        self.jobs.charging(job)
        record = recorded(question, plan) | recorded_kind(spec, question)
        segments = spec.paying(question.segments, question.where)
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
            stated=plan.stated if plan.charge == charge else None,
        )
        try:
            self._charges.do(charging)
        except BudgetExceeded as refused:
            kind = kind_of(spec, question)
            if kind is None:
                raise
            accounts = self.ledger.state(spec.name).accounts(analyst, segments)
            raise advised(refused, accounts.values(), kind) from None
        except InvalidParameter:
            charged = (
                self.known(spec, analyst, key, question) is not None
            )  # by another worker, for an earlier version
            if not charged and self.ledger.state(spec.name).version == version:
                raise

    def _read(
        self, spec: DatasetSpec, version: str, question: PostedQuestion, plan: Plan, job: str | None
    ) -> Mapping[str, Histogram]:
        """Return the histograms of a question, cached or read now; ``job`` is informed of the
        progress.
        """

        def progress(done: int, total: int) -> None:
            if job is not None:
                self.jobs.progress(job, done, total)

        segmented = spec.segmented(question.segments, question.where)
        if (finding := plan.reading.finding) is not None:
            segmented = replace(segmented, finding=finding)
        return self.histograms.get(spec, version, question.where, segmented, progress)

    def _answer(self, spec: DatasetSpec, spend: Spend) -> None:
        """Draw and store the answer to a charge, with the plan that was charged."""
        receipt = Receipt(spend.seq, spec.name, spend.analyst, spend.charge)
        question, plan = revived(spec, spend.mechanism, spend.charge)
        state = self.ledger.state(spec.name)
        if (
            spend.segments is not None and spend.seq < state.versioned
        ):  # users may be in other segments of the new data
            raise KeyUsed(
                "the data changed before this question was answered: take a new idempotency key"
            )
        if (
            spend.seq <= state.renewed
        ):  # what is drawn now would be about data that the budget of now is for
            raise KeyUsed(
                "the budget was renewed before this question was answered: take a new "
                "idempotency key"
            )
        releases = {}
        for segment, histogram in self._read(spec, state.version, question, plan, None).items():
            try:
                release = releases[segment] = plan.release(histogram)
            except (
                InvalidParameter
            ) as error:  # the data changed since the charge, and no longer suits it
                raise LedgerError(
                    f"the answer to what was charged cannot be drawn now ({error})"
                ) from None
            if not plan.charge.includes(release.charge):
                raise ReleaseWithheld(plan.charge, release.charge)
        answer = _stored(question, releases) | {"version": state.version}
        # What a segment did not use is not given back: another one may have used it.
        used = spend.charge if question.segments else releases[""].charge
        try:
            self._answers.do(partial(self.ledger.finalize, receipt, used, answer=answer))
        except (
            InvalidParameter
        ):  # another one was faster: its answer counts, and this one is never seen
            return


def _stored(question: PostedQuestion, releases: Mapping[str, Release]) -> dict[str, Any]:
    """The answer as the ledger stores it: the release, or those of each segment."""
    if not question.segments:
        return releases[""].to_dict()
    each = [{"segment": segment} | one.to_dict() for segment, one in releases.items()]
    return {"segments": each}


def shown(
    spend: Spend, answer: Mapping[str, Any], dataset: str, confidence: float = CONFIDENCE
) -> dict[str, Any]:
    """A stored answer as it leaves: the release with its intervals, or those of each segment;
    question and cost.
    """
    about = _charged(spend, dataset) | {
        "version": answer.get("version", ""),
        "confidence": confidence,
    }
    about["question"] = spend.mechanism.get("question")
    if "segments" not in answer:
        return about | _with_intervals(answer, confidence)
    each = [
        {"segment": one["segment"]} | _with_intervals(one, confidence) for one in answer["segments"]
    ]
    return about | {"segments": each}


def _charged(spend: Spend, dataset: str) -> dict[str, Any]:
    return {"entry": spend.seq, "at": spend.at, "dataset": dataset, "charge": str(spend.charge)}


def begun(spend: Spend, dataset: str) -> dict[str, Any]:
    """The charge of a stream as it leaves."""
    terms = spend.mechanism["stream"]
    mechanism = {name: terms["mechanism"][name] for name in ("k", "days", "days_per_user")}
    return _charged(spend, dataset) | {"stream": terms["stream"], **terms["calendar"], **mechanism}


def _with_intervals(stored: Mapping[str, Any], confidence: float) -> dict[str, Any]:
    """One release, and intervals that hold for all of its rows at once."""
    release = Release.from_dict(stored)
    plain = {name: value for name, value in stored.items() if name not in {"version", "segment"}}
    return {"release": plain, "intervals": _intervals(release, confidence)}


def _intervals(release: Release, confidence: float) -> list[dict[str, int]] | None:
    """Return what counts and ranks may be, row by row; None: of an answer without counts."""
    if release.counts is None or release.measurement is None:
        return None
    table = release.intervals(confidence=confidence)
    columns = ("rank", "low", "high", "rank_low", "rank_high")
    return [{name: int(row[name]) for name in columns} for row in table.to_dict("records")]
