"""Asking, exactly once: whatever fails and whoever retries, one key is charged once and has one answer.

1. If the ledger holds a charge under the analyst's key, nothing more is charged. Is its answer stored, it is given
   again. Is it not (the process was killed, or another one is at it), the answer is drawn with the plan that the charge
   remembers, and stored; the ledger takes one answer for a charge, so of two that are drawn one is never seen.
2. Else: plan, read the data, move the job to "charging" (from where it cannot be called off, see ``jobs``), draw, and
   write the charge and the answer in one transaction, which looks for the key and the version again. An answer that
   cannot be drawn is charged all the same: whether it can be may depend on the data.

Nothing leaves before it is stored: an answer that was given is the one that is given again, and what was drawn and not
written is never seen. Killed at any instant, charged >= released.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.json_text import fingerprint
from dptopk.costs import Charge
from dptopk.errors import DptopkError, InvalidParameter, LedgerError, ReleaseWithheld
from dptopk.histogram.histogram import Histogram
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.names import analyst_name
from dptopk.ledger.spends import Receipt, Spend
from dptopk.release.release import Release
from dptopk.service.catalog import DatasetSpec
from dptopk.service.commits import Commits
from dptopk.service.data import Histograms
from dptopk.service.jobs import Jobs
from dptopk.service.questions import Plans, Prepared, Question, charge_of, recorded, revived


class KeyUsed(DptopkError):
    """The idempotency key was used for another question, or is of a budget or of data that were renewed since."""


def job_of(analyst: str, dataset: str, key: str) -> str:
    """The name of the job of a question: the same for every retry."""
    return fingerprint([analyst_name(analyst), dataset, key])[:32]


@dataclass(frozen=True)
class Asker:
    """Everything that asking needs."""

    ledger: Ledger
    histograms: Histograms
    plans: Plans
    jobs: Jobs
    commits: Commits

    def known(self, spec: DatasetSpec, analyst: str, key: str, question: Question) -> Spend | None:
        """The charge under a key, if there is one.

        Raises:
            KeyUsed: when it was for another question.
        """
        spend = self.ledger.asked(spec.name, analyst, key)
        if spend is not None and not question.is_that(spend.mechanism.get("question")):
            raise KeyUsed("this idempotency key was used for another question: take a new one")
        return spend

    def ask(self, spec: DatasetSpec, analyst: str, key: str, question: Question) -> Spend:
        """Charge and answer a question, or find what was done before; the charge whose answer is stored.

        Raises:
            BudgetExceeded: nothing was charged.
            Cancelled: the job was called off; nothing was charged, nor will be under this key.
            LedgerError: the ledger refuses; a retry with the same key goes on from where this ended.
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

    def _charge(self, spec: DatasetSpec, analyst: str, key: str, question: Question, job: str) -> None:
        """Read the data, then charge: a question that fails before costs nothing.

        Nothing is charged here when the data changed meanwhile, or another worker was faster.
        """
        plan = self.plans.get(spec, question)
        version = self.ledger.state(spec.name).version
        histograms = self._read(spec, version, question, job)
        for histogram in histograms.values():
            plan.check(histogram)
        self.jobs.charging(job)
        charge = charge_of(spec, question, plan)
        about: dict[str, Any] = {"version": version, "unit": spec.unit, "sensitivity": spec.sensitivity}
        about |= {"mechanism": recorded(question, plan) | {"version": version}, "once": key}
        about["segments"] = spec.paying(question.segments, question.where)
        try:
            drawn = _drawn(question, plan, histograms, charge, version)
        except Exception:  # noqa: BLE001 - may depend on the data: it is charged, and drawn again
            drawn = None

        def write() -> None:
            if self.ledger.asked(spec.name, analyst, key) is None:
                receipt = self.ledger.charge(spec.name, analyst, charge, **about)
                if drawn is not None:
                    self.ledger.settle(receipt, drawn[0], answer=drawn[1])

        try:
            self.commits.do(write)
        except InvalidParameter:
            charged = self.known(spec, analyst, key, question) is not None
            if not charged and self.ledger.state(spec.name).version == version:
                raise

    def _read(self, spec: DatasetSpec, version: str, question: Question, job: str | None) -> Mapping[str, Histogram]:
        """The histograms of a question, read before or now; ``job``: that is told of the progress."""

        def progress(done: int, total: int) -> None:
            if job is not None:
                self.jobs.progress(job, done, total)

        asked = spec.segmented(question.segments, question.where)
        return self.histograms.get(spec, version, question.where, asked, progress)

    def _answer(self, spec: DatasetSpec, spend: Spend) -> None:
        """Draw and store the answer to a charge, with the plan that was charged."""
        receipt = Receipt(spend.seq, spec.name, spend.analyst, spend.charge)
        question, plan = revived(spec, self.plans, spend.mechanism, spend.charge)
        state = self.ledger.state(spec.name)
        if spend.segments is not None and spend.seq < state.versioned:  # users may be in other segments of the new data
            raise KeyUsed("the data changed before this question was answered: take a new idempotency key")
        if spend.seq <= state.renewed:  # what is drawn now would be about data that the budget of now is for
            raise KeyUsed("the budget was renewed before this question was answered: take a new idempotency key")
        histograms = self._read(spec, state.version, question, None)
        try:
            used, answer = _drawn(question, plan, histograms, spend.charge, state.version)
        except InvalidParameter as error:  # the data changed since the charge, and no longer suits it
            raise LedgerError(f"the answer to what was charged cannot be drawn now ({error})") from None
        try:
            self.ledger.settle(receipt, used, answer=answer)
        except InvalidParameter:  # another one was faster: its answer counts, and this one is never seen
            return


def _drawn(
    question: Question, plan: Prepared, histograms: Mapping[str, Histogram], charge: Charge, version: str
) -> tuple[Charge, dict[str, Any]]:
    """Draw an answer: what it has cost, and what is stored.

    Raises:
        ReleaseWithheld: when it has cost more than was planned.
    """
    releases = {}
    for segment, histogram in histograms.items():
        release = releases[segment] = plan.release(histogram)
        if not plan.charge.includes(release.charge):
            raise ReleaseWithheld(plan.charge, release.charge)
    if question.segments:  # what a segment did not use is not given back: another one may have used it
        each = [{"segment": segment} | release.to_dict() for segment, release in releases.items()]
        return charge, {"segments": each, "version": version}
    return releases[""].charge, releases[""].to_dict() | {"version": version}


def shown(spend: Spend, answer: Mapping[str, Any], dataset: str, confidence: float = CONFIDENCE) -> dict[str, Any]:
    """A stored answer as it leaves: the release with its intervals, or those of each segment; question and cost."""
    about = {
        "entry": spend.seq,
        "at": spend.at,
        "dataset": dataset,
        "version": answer.get("version", ""),
        "question": spend.mechanism.get("question"),
        "charge": str(spend.charge),
        "confidence": confidence,
    }
    if "segments" not in answer:
        return about | _with_intervals(answer, confidence)
    each = [{"segment": one["segment"]} | _with_intervals(one, confidence) for one in answer["segments"]]
    return about | {"segments": each}


def _with_intervals(stored: Mapping[str, Any], confidence: float) -> dict[str, Any]:
    """One release, and intervals that hold for all of its rows at once."""
    release = Release.from_dict(stored)
    intervals: list[dict[str, Any]] | None = None
    if release.counts is not None and release.measurement is not None:
        table = release.intervals(confidence=confidence)
        columns = ("rank", "low", "high", "rank_low", "rank_high")
        intervals = [{name: int(row[name]) for name in columns} for row in table.to_dict("records")]
    plain = {name: value for name, value in stored.items() if name not in {"version", "segment"}}
    return {"release": plain, "intervals": intervals}
