"""A top k every day over HTTP, exactly once.

A data set has streams where its catalog names a folder for their files, in which each data version
is one day's data: the version of a day is its date, or its number. On how many days one user adds
something is the owner's to say. The stream's name is the key of its charge, and its name with a day
that of the day's answer (``session.stream``): a retry finds both, from any worker.
"""

from __future__ import annotations

import math
from asyncio import wrap_future
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, HTTPException, Path as InPath, Query, Response
from pydantic import Field
from scipy.special import ndtri

from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.json_text import fingerprint
from dptopk.accounting.bounds import compose
from dptopk.costs import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram
from dptopk.ledger.names import analyst_name
from dptopk.ledger.spends import Spend
from dptopk.mechanisms.continual import ContinualTopK
from dptopk.planning import plan_continual
from dptopk.service import routes
from dptopk.service.access import Person
from dptopk.service.answering import begun
from dptopk.service.authentication import Asking, Dataset, Spending, Worker, pay
from dptopk.service.budget_reports import Further
from dptopk.service.catalog import DatasetSpec, Segmented, valid_name
from dptopk.service.questions import MOST_ROWS, Body, Part, PostedQuestion
from dptopk.service.routes import Wait
from dptopk.service.worker import Service
from dptopk.session.budget_backend import LedgerBudget
from dptopk.session.stream_session import Calendar, StreamSession, mechanism_in, stream_key

router = APIRouter(prefix="/v1/datasets/{dataset}/streams", responses=routes.REFUSALS)
MOST_DAYS = 400  # planning takes seconds
DAYS = 20  # of a stream, that make it one unit dearer
Name = Annotated[str, InPath(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class StreamQuestion(PostedQuestion):
    """A stream by its name, or a day of one. It cannot be called off, since its key would be used
    up.
    """

    stream: str
    k: int
    cancellable: ClassVar[bool] = False

    @property
    def rows(self) -> int:
        """Return it as many as k."""
        return self.k

    def check(self, spec: DatasetSpec) -> None:
        """Refuse a data set without streams, and what no file can be named."""
        valid_name(stream=self.stream)
        if spec.streams is None:
            raise InvalidParameter("dataset: it has no streams")

    def answerer(self, service: Service) -> StreamService:
        """Return what answers it."""
        return StreamService(service)


class WantedStream(Body):
    """A top k of all days so far, on each of these days."""

    k: int = Field(ge=1, le=MOST_ROWS, description="How many labels, every day.")
    days: int = Field(ge=1, le=MOST_DAYS, description="How many days; fixed now.")
    epsilon: Part = Field(description="Of all days together.")
    delta: float = Field(gt=0, lt=1)
    first_day: str | None = Field(
        default=None, max_length=10, description="The date of day 1, as 2026-11-01."
    )
    time_zone: str = Field(
        default="UTC", min_length=1, max_length=64, description="Whose midnight parts two days."
    )
    stream: str = Field(
        default="", description="Its name: the same again is charged once. A price needs none."
    )


class NewStream(WantedStream, StreamQuestion):
    """A stream to be charged, or the one that was charged on the same terms."""

    action: ClassVar[str] = "stream"

    @property
    def calendar(self) -> Calendar:
        """Return what its days are."""
        return Calendar(first_day=self.first_day, time_zone=self.time_zone)

    def planned(self, service: Service, spec: DatasetSpec) -> ContinualTopK:
        """The mechanism, which takes seconds and is planned once."""
        planning = partial(
            plan_continual,
            self.k,
            self.days,
            Budget(self.epsilon, self.delta),
            sensitivity=spec.sensitivity,
            labels=spec.domain_size,
            days_per_user=spec.days_per_user,
        )
        mechanism: ContinualTopK = service.pages.get(("stream", self.fingerprint(spec)), planning)
        return mechanism

    def put(self, service: Service, spec: DatasetSpec, analyst: str) -> None:
        """Charge it, and make its file."""
        like = Histogram(
            {},
            sensitivity=spec.sensitivity,
            domain="private" if spec.labels is None else spec.labels,
        )
        book = LedgerBudget(
            service.reports.ledger, spec.name, analyst, like, None, spec.unit, seeded=False
        )
        mechanism = self.planned(service, spec)
        path = _file(spec, analyst, self.stream)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        StreamSession.begin(book, like, self.stream, mechanism, path, self.calendar)


class StreamDayQuestion(StreamQuestion):
    """A day of a stream, by its number."""

    day: int
    action: ClassVar[str] = "stream day"

    def put(self, service: Service, spec: DatasetSpec, analyst: str) -> None:
        """Answer a day that is the next one; one that was answered before is left as it is."""
        stream = StreamSession.open(service.reports.ledger, _file(spec, analyst, self.stream))
        after = len(stream.answered()) + 1
        if self.day > after:
            raise InvalidParameter(
                f"day: the next day to be answered is day {after} ({stream.calendar.name(after)})"
            )
        if self.day == after:
            version = stream.calendar.name(after)
            data = service.histograms.get(
                spec, version, {}, Segmented(), lambda _done, _total: None
            )
            stream.answer(after, data[""])


@dataclass
class StreamService:
    """Asking for streams and their days, as ``AnswerService`` does for questions."""

    service: Service

    def known(self, spec: DatasetSpec, analyst: str, key: str, _: PostedQuestion) -> Spend | None:
        """Return what the ledger has of a stream or a day."""
        return self.service.reports.ledger.asked(spec.name, analyst, key)

    def ask(
        self, spec: DatasetSpec, analyst: str, key: str, question: NewStream | StreamDayQuestion
    ) -> Spend:
        """Charge a stream, or answer a day, or find what was done before."""
        question.put(self.service, spec, analyst_name(analyst))
        done = self.known(spec, analyst, key, question)
        assert done is not None  # noqa: S101
        return done


def _file(spec: DatasetSpec, analyst: str, name: str) -> Path:
    """Return where a stream's file lies."""
    owner = fingerprint([spec.name, analyst_name(analyst)])[:16]
    return Path(spec.streams or "") / f"{owner}-{name}.stream"


class AskedDay(Body):
    """A day of a stream."""

    day: str = Field(min_length=1, max_length=10, description="Its number from 1, or its date.")


@router.post("/price", responses=routes.CONFLICT)
async def priced(service: Worker, person: Asking, spec: Dataset, wanted: WantedStream) -> Response:
    """Return what a stream would cost and deliver; free, no data takes part."""
    question = NewStream(**wanted.model_dump() | {"stream": "price"})
    question.check(spec)
    pay(service, person, routes.PLAN + wanted.days / DAYS)
    price = partial(_price, service, person, spec, question)
    return routes.reply(await wrap_future(service.planning.submit(person.analyst, price)))


def _price(
    service: Service, person: Person, spec: DatasetSpec, question: NewStream
) -> dict[str, Any]:
    mechanism = question.planned(service, spec)
    charge = mechanism.charge(spec.sensitivity, labels=spec.domain_size)
    about = {
        "charge": str(charge),
        "epsilon": compose(charge, delta=question.delta).epsilon,
        "delta": question.delta,
    }
    return (
        about
        | _widths(mechanism, spec)
        | {"balance": service.reports.balance(spec.name, person.analyst, Further(charge))}
    )


def _widths(mechanism: ContinualTopK, spec: DatasetSpec) -> dict[str, Any]:
    """Within ± how much the noise on a total is on each day with a probability of ``confidence``,
    and thresholds.
    """
    spread, rounding = mechanism.total_noise(spec.sensitivity)
    deviations = -ndtri((1 - CONFIDENCE) / 2)
    far = deviations * spread + rounding + 0.5
    days = range(1, mechanism.days + 1) if spec.domain == "private" else ()
    return {
        "confidence": CONFIDENCE,
        "half_width": [math.ceil(one) for one in far.tolist()],
        "thresholds": [mechanism.threshold(spec.sensitivity, day) for day in days],
    }


@router.post("", responses=routes.SPENDS)
async def create(
    service: Worker, person: Spending, spec: Dataset, wanted: WantedStream, wait: Wait = 30.0
) -> Response:
    """Charge a stream, all of its days at once. The same name on the same terms is charged once."""
    pay(service, person, wanted.days / DAYS, spends=True)
    key = stream_key(wanted.stream)
    question = NewStream(**wanted.model_dump())
    return await routes.answered(service, person, spec, key, question, wait)


@router.get("")
@routes.queued
def streams(service: Worker, person: Asking, spec: Dataset) -> Response:
    """Your streams."""
    pay(service, person, 5)
    path = _file(spec, person.analyst, "*")
    places = path.parent.glob(path.name) if spec.streams is not None else ()
    before = path.name.index("*")
    names = sorted(place.stem[before:] for place in places)
    mine = (_charged(service, person, spec, name) for name in names)
    return routes.reply([begun(spend, spec.name) for spend in mine if spend is not None])


@router.post("/{stream}/days", responses=routes.SPENDS)
async def ask(
    service: Worker,
    person: Spending,
    spec: Dataset,
    stream: Name,
    day_question: AskedDay,
    wait: Wait = 30.0,
) -> Response:
    """The top k of all days up to this one: drawn once, given again to whoever asks again; nothing
    more is charged.
    """
    find = partial(_mine, service, person, spec, stream)
    charged = await wrap_future(service.work.submit(person.analyst, find))
    terms = charged.mechanism["stream"]
    day = Calendar(**terms["calendar"]).number(day_question.day)
    if day > terms["mechanism"]["days"]:
        raise HTTPException(404, "No such day")
    question = StreamDayQuestion(stream=stream, day=day, k=terms["mechanism"]["k"])
    return await routes.answered(service, person, spec, stream_key(stream, day), question, wait)


@router.get("/{stream}/days")
@routes.queued
def days(
    service: Worker,
    person: Asking,
    spec: Dataset,
    stream: Name,
    first: Annotated[int, Query(ge=1, le=MOST_DAYS + 1)] = 1,
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
) -> Response:
    """A stream's terms, how exact its totals are, and its answers, in order, again and free."""
    pay(service, person, limit / 5)
    charged = _mine(service, person, spec, stream)
    mechanism = mechanism_in(charged.mechanism["stream"])
    about = service.pages.get(("widths", spec.name, charged.seq), lambda: _widths(mechanism, spec))
    days = range(first, first + limit)
    found = list(_answers(service, person, spec, stream, days))
    return routes.reply(begun(charged, spec.name) | about | {"answers": found})


def _answers(
    service: Service, person: Person, spec: DatasetSpec, stream: str, days: range
) -> Iterator[dict[str, Any]]:
    """The answers to days of a stream, up to the first one without."""
    for day in days:
        spend = service.reports.ledger.asked(spec.name, person.analyst, stream_key(stream, day))
        if spend is None or spend.answer is None:
            return
        yield {"day": day} | service.page(spec, spend)


def _mine(service: Service, person: Person, spec: DatasetSpec, name: str) -> Spend:
    spend = _charged(service, person, spec, name)
    if spend is None:
        raise HTTPException(404, "No such stream")
    return spend


def _charged(service: Service, person: Person, spec: DatasetSpec, name: str) -> Spend | None:
    """The charge of a stream, if the person has one of this name."""
    spend = service.reports.ledger.asked(spec.name, person.analyst, stream_key(name))
    if spend is not None and "stream" in spend.mechanism and spec.streams is not None:
        return spend
    return None
