"""A top k every day over HTTP, exactly once.

A data set has streams if its catalog names a folder for their files. Each version of its data is
then one day's data: the version of a day is its date, or its number. The owner says on how many
days one user may add something. The stream's name is the key of its charge, and its name with a day
is the key of the day's answer (``session.stream_session``): a retry finds both, from any worker.

As in ``routes``, the docstring of an endpoint is its description on the page of the API.
"""

from __future__ import annotations

import math
from asyncio import wrap_future
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Depends, Path as InPath, Query, Response
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
from dptopk.service.answering import KeyUsed, sent_stream
from dptopk.service.authentication import Asking, Dataset, Spending, Worker, pay
from dptopk.service.budget_reports import FurtherQuestion
from dptopk.service.catalog import DatasetSpec, SegmentReading, valid_name
from dptopk.service.data import Unreadable
from dptopk.service.messages import Refusal
from dptopk.service.questions import MOST_ROWS, Body, BudgetPart, PostedQuestion
from dptopk.service.routes import Wait
from dptopk.service.worker import Service
from dptopk.session.budget_backend import LedgerBudget
from dptopk.session.stream_calendar import Calendar
from dptopk.session.stream_session import StreamSession
from dptopk.session.stream_terms import mechanism_in, stream_key

router = APIRouter(
    prefix="/v1/datasets/{dataset}/streams",
    responses=routes.REFUSALS,
    dependencies=[Depends(routes.names_once)],
)
MOST_DAYS = 400  # for more days planning takes longer than a request may
STREAMS_LIST_UNITS = 5.0  # a list of streams, for which every charge is looked up, costs so much
DAYS_PER_UNIT = 20  # a request costs one more unit of the sender's rate for each 20 days
StreamName = Annotated[str, InPath(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class StreamQuestion(PostedQuestion):
    """A request about a stream: to charge it, or to answer one of its days.

    It cannot be called off, since its key would be used up and the stream could never be asked for
    again. ``where`` and ``segments`` are empty: a stream is about all data.

    Attributes:
        stream: the name of the stream.
        k: the number of labels of each day.
    """

    stream: str
    k: int
    cancellable: ClassVar[bool] = False

    @property
    def rows(self) -> int:
        """Return the number of rows of one day's answer, k."""
        return self.k

    def check(self, spec: DatasetSpec) -> None:
        """Refuse a data set without streams, and a name that no file can have.

        Raises:
            InvalidParameter: naming the field.
        """
        valid_name(stream=self.stream)
        if spec.streams is None:
            raise InvalidParameter("dataset: it has no streams")

    def answerer(self, service: Service) -> StreamService:
        """Return the service that charges and answers streams."""
        return StreamService(service)


class WantedStream(Body):
    """The terms of a stream: each day a new top k, of the data of all days so far."""

    k: int = Field(ge=1, le=MOST_ROWS, description="How many labels, every day.")
    days: int = Field(ge=1, le=MOST_DAYS, description="How many days; fixed now.")
    epsilon: BudgetPart = Field(description="Of all days together.")
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
        """Return the dates of the stream's days."""
        return Calendar(first_day=self.first_day, time_zone=self.time_zone)

    def mechanism(self, service: Service, spec: DatasetSpec) -> ContinualTopK:
        """Return the stream's mechanism; since planning takes seconds, it is cached.

        Args:
            service: the worker, which has the cache.
            spec: the data set, with the caps of one day.

        Raises:
            InvalidParameter: when no mechanism fits the total.
        """
        planning = partial(
            plan_continual,
            self.k,
            self.days,
            Budget(self.epsilon, self.delta),
            sensitivity=spec.sensitivity,
            labels=spec.domain_size,
            days_per_user=spec.days_per_user,
        )
        key = ("stream", self.fingerprint(spec))
        mechanism: ContinualTopK = service.get_or_compute(spec, key, planning)
        return mechanism

    def carry_out(self, service: Service, spec: DatasetSpec, analyst: str) -> None:
        """Charge the stream and make its file, unless that was done before.

        Args:
            service: the worker.
            spec: the data set.
            analyst: the name of the analyst who is charged.

        Raises:
            BudgetExceeded: nothing was charged.
            InvalidParameter: for a stream of this name on other terms, and where no plan fits.
            Unreadable: when the folder of streams cannot be made.
        """
        # An empty histogram states the sensitivity and the domain of the days to come.
        shape = Histogram(
            {},
            sensitivity=spec.sensitivity,
            domain="private" if spec.labels is None else spec.labels,
        )
        budget = LedgerBudget(
            service.reports.ledger,
            spec.name,
            analyst,
            shape,
            version=None,  # each day has its own
            unit=spec.unit,
            seeded=False,
        )
        mechanism = self.mechanism(service, spec)
        path = _stream_file(spec, analyst, self.stream)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable_folder(spec, error) from None
        service.wait_for_schedule()
        StreamSession.begin(budget, shape, self.stream, mechanism, path, self.calendar)


class StreamDayQuestion(StreamQuestion):
    """A request for the answer of one day of a stream.

    Attributes:
        day: the number of the day, from 1.
    """

    day: int
    action: ClassVar[str] = "stream day"
    paid: ClassVar[bool] = True

    def carry_out(self, service: Service, spec: DatasetSpec, analyst: str) -> None:
        """Answer the day if it is the next one; a day that was answered before is left as it is.

        Args:
            service: the worker.
            spec: the data set.
            analyst: the name of the analyst whose stream it is.

        Raises:
            InvalidParameter: for a day after the next one.
        """
        # The file shows whether an earlier day, asked for at the same time, has been drawn yet.
        service.wait_for_schedule()
        stream = StreamSession.open(
            service.reports.ledger, _stream_file(spec, analyst, self.stream)
        )
        stream.wait = service.wait_for_schedule
        next_day = len(stream.answered()) + 1
        version = stream.calendar.name(next_day)
        if self.day > next_day:
            raise InvalidParameter(
                f"day: the next day to be answered is day {next_day} ({version})"
            )
        if self.day == next_day:
            histograms = service.histograms.get(
                spec, version, {}, SegmentReading(), lambda _done, _total: None
            )
            stream.answer(next_day, histograms[""])  # without segments: all data


@dataclass
class StreamService:
    """The service that charges streams and answers their days, as ``AnswerService`` does for
    questions.

    Attributes:
        service: the worker.
    """

    service: Service

    def charge_of_key(
        self, spec: DatasetSpec, analyst: str, key: str, _: PostedQuestion
    ) -> Spend | None:
        """Return the charge of a stream, or the record of a day, under a key; None if there is
        none.

        Args:
            spec: the data set.
            analyst: the owner of the stream.
            key: the key of the stream's charge or of the day's answer.
            _: the request, which ``AnswerService`` compares; here the key determines it.

        Raises:
            KeyUsed: when another question was charged under the key.
        """
        spend = self.service.reports.ledger.asked(spec.name, analyst, key)
        if spend is not None and not _is_of_stream(spend):
            raise KeyUsed("the key of this stream, or of its day, was used for another question")
        return spend

    def ask(
        self, spec: DatasetSpec, analyst: str, key: str, question: NewStream | StreamDayQuestion
    ) -> Spend:
        """Charge a stream or answer a day, unless that was done before; return the ledger's record
        of it.

        Args:
            spec: the data set.
            analyst: the owner of the stream, in any spelling.
            key: the key of the stream's charge or of the day's answer.
            question: the stream that is charged, or the day that is answered.

        Raises:
            DptopkError: as ``carry_out`` of the question.
            KeyUsed: when another question was charged under the key.
        """
        analyst = analyst_name(analyst)
        question.carry_out(self.service, spec, analyst)
        spend = self.charge_of_key(spec, analyst, key, question)
        assert spend is not None  # noqa: S101 - carry_out has written it
        return spend


def _is_of_stream(spend: Spend) -> bool:
    """Return whether an entry is the charge of a stream or the record of one of its days: only
    these have an item "stream" or "token" in their ``mechanism``.
    """
    return not spend.mechanism.keys().isdisjoint({"stream", "token"})


def _stream_file(spec: DatasetSpec, analyst: str, name: str) -> Path:
    """Return the path of a stream's file; analysts with streams of the same name have different
    files.

    Args:
        spec: the data set, with the folder of streams.
        analyst: the owner of the stream, in any spelling.
        name: the name of the stream.
    """
    owner = fingerprint([spec.name, analyst_name(analyst)])[:16]
    # A data set without streams was refused before; the empty text is for the type.
    return Path(spec.streams or "") / f"{owner}-{name}.stream"


def _unusable_folder(spec: DatasetSpec, error: OSError) -> Unreadable:
    """Return the refusal where the folder of streams cannot be made or read; the caller raises
    it.
    """
    return Unreadable(
        f"the streams of {spec.name!r} cannot be read or written now ({type(error).__name__})"
    )


class DayRequest(Body):
    """Which day of a stream is asked for."""

    day: str = Field(min_length=1, max_length=10, description="Its number from 1, or its date.")


@router.post("/price", responses=routes.CONFLICT)
async def price_stream(
    service: Worker, person: Asking, spec: Dataset, wanted: WantedStream
) -> Response:
    """Return what a stream would cost and deliver; free, no data takes part."""
    question = NewStream(**wanted.model_dump() | {"stream": "price"})
    question.check(spec)
    pay(service, person, routes.PLAN_UNITS + wanted.days / DAYS_PER_UNIT)
    price = partial(_price, service, person, spec, question)
    return routes.reply(await wrap_future(service.planning.submit(person.analyst, price)))


def _price(
    service: Service, person: Person, spec: DatasetSpec, question: NewStream
) -> dict[str, Any]:
    """Return the charge, ε, accuracy and balance of a stream that is not charged yet.

    Args:
        service: the service that would charge it.
        person: who asks; their balance is stated.
        spec: the data set that is to be watched.
        question: the stream: its k, days, ε and δ.
    """
    mechanism = question.mechanism(service, spec)
    charge = mechanism.charge(spec.sensitivity, labels=spec.domain_size)
    return {
        "charge": str(charge),
        "epsilon": compose(charge, delta=question.delta).epsilon,
        "delta": question.delta,
        **_accuracy_by_day(mechanism, spec),
        "balance": service.reports.balance(spec.name, person.analyst, FurtherQuestion(charge)),
    }


def _accuracy_by_day(mechanism: ContinualTopK, spec: DatasetSpec) -> dict[str, Any]:
    """Return how exact a stream is on each day: the half-width of a total, and for private labels
    the threshold.

    A total is the count of a label over all days so far. The noise on one total is within the
    half-width with a probability of at least ``confidence``.

    Args:
        mechanism: the stream's mechanism.
        spec: the data set, with the caps of one day.

    Returns:
        "half_width", rounded up to a whole count, for each day; "thresholds", the noisy totals that
        a label must exceed to be shown, for each day, and an empty list for public labels;
        "confidence".
    """
    # The noise of each day is normal with this standard deviation, plus at most ``rounding`` from
    # rounding measurements, plus 1/2 from rounding the total.
    standard_deviations, rounding = mechanism.total_noise(spec.sensitivity)
    two_sided_quantile = -ndtri((1 - CONFIDENCE) / 2)
    half_widths = two_sided_quantile * standard_deviations + rounding + 0.5
    thresholds: list[int] = []
    if spec.domain == "private":
        days_of_stream = range(1, mechanism.days + 1)
        thresholds = [mechanism.threshold(spec.sensitivity, day) for day in days_of_stream]
    return {
        "confidence": CONFIDENCE,
        "half_width": [math.ceil(half_width) for half_width in half_widths.tolist()],
        "thresholds": thresholds,
    }


@router.post("", responses=routes.SPENDS)
async def create(
    service: Worker, person: Spending, spec: Dataset, wanted: WantedStream, wait: Wait = 30.0
) -> Response:
    """Charge a stream, all of its days at once. The same name on the same terms is charged once."""
    pay(service, person, wanted.days / DAYS_PER_UNIT, spends=True)
    key = stream_key(wanted.stream)
    question = NewStream(**wanted.model_dump())
    return await routes.answer_response(service, person, spec, key, question, wait)


@router.get("")
@routes.queued
def streams(service: Worker, person: Asking, spec: Dataset) -> Response:
    """List your streams."""
    pay(service, person, STREAMS_LIST_UNITS)
    if spec.streams is None:
        return routes.reply([])
    pattern = _stream_file(spec, person.analyst, "*")
    try:
        files = list(pattern.parent.glob(pattern.name))
    except OSError as error:
        raise _unusable_folder(spec, error) from None
    start = pattern.name.index("*")  # where the stream's name begins in the name of its file
    own_streams = []
    for name in sorted(file.stem[start:] for file in files):
        spend = _find_stream_charge(service, person, spec, name)
        if spend is not None:
            own_streams.append(sent_stream(spend, spec.name))
    return routes.reply(own_streams)


@router.post("/{stream}/days", responses=routes.SPENDS)
async def ask(
    service: Worker,
    person: Spending,
    spec: Dataset,
    stream: StreamName,
    day_question: DayRequest,
    wait: Wait = 30.0,
) -> Response:
    """Return the top k of all days up to this one: drawn once, given again to whoever asks again;
    nothing more is charged.
    """
    find_charge = partial(_stream_charge_or_404, service, person, spec, stream)
    charged = await wrap_future(service.work.submit(person.analyst, find_charge))
    terms = charged.mechanism["stream"]
    day = Calendar(**terms["calendar"]).number(day_question.day)
    if day > terms["mechanism"]["days"]:
        message = f"The stream has {terms['mechanism']['days']} days, and no such day"
        raise Refusal(404, "no_such_day", message)
    question = StreamDayQuestion(stream=stream, day=day, k=terms["mechanism"]["k"])
    return await routes.answer_response(
        service, person, spec, stream_key(stream, day), question, wait
    )


@router.get("/{stream}/days")
@routes.queued
def days(
    service: Worker,
    person: Asking,
    spec: Dataset,
    stream: StreamName,
    first: Annotated[int, Query(ge=1, le=MOST_DAYS + 1)] = 1,
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
) -> Response:
    """Return a stream's terms, how exact its totals are, and its answers, in order, again and
    free.
    """
    pay(service, person, limit / routes.STORED_ANSWERS_PER_UNIT)
    charged = _stream_charge_or_404(service, person, spec, stream)
    mechanism = mechanism_in(charged.mechanism["stream"])
    widths = service.pages.get(
        ("widths", spec.name, charged.seq), lambda: _accuracy_by_day(mechanism, spec)
    )
    numbers = range(first, first + limit)
    answers = list(_day_answers(service, person, spec, stream, numbers))
    return routes.reply(sent_stream(charged, spec.name) | widths | {"answers": answers})


def _day_answers(
    service: Service, person: Person, spec: DatasetSpec, stream: str, numbers: range
) -> Iterator[dict[str, Any]]:
    """Yield the answers to the days of a stream with these numbers, in order, up to the first day
    that was not answered.

    Args:
        service: the worker.
        person: the owner of the stream.
        spec: the data set.
        stream: the name of the stream.
        numbers: the numbers of the days, from 1.
    """
    for day in numbers:
        spend = service.reports.ledger.asked(spec.name, person.analyst, stream_key(stream, day))
        if spend is None or spend.answer is None or not _is_of_stream(spend):
            return
        yield {"day": day} | service.page(spec, spend)


def _stream_charge_or_404(service: Service, person: Person, spec: DatasetSpec, name: str) -> Spend:
    """Return the charge of this person's stream of a name, or refuse the request.

    Args:
        service: the worker.
        person: the owner of the stream.
        spec: the data set.
        name: the name of the stream.

    Raises:
        Refusal: with status 404, if there is none.
    """
    spend = _find_stream_charge(service, person, spec, name)
    if spend is None:
        raise Refusal(404, "no_such_stream", "You have no stream of this name")
    return spend


def _find_stream_charge(
    service: Service, person: Person, spec: DatasetSpec, name: str
) -> Spend | None:
    """Return the charge of this person's stream of a name; None if there is none.

    Args:
        service: the worker.
        person: the owner of the stream.
        spec: the data set.
        name: the name of the stream.
    """
    spend = service.reports.ledger.asked(spec.name, person.analyst, stream_key(name))
    if spend is not None and "stream" in spend.mechanism and spec.streams is not None:
        return spend
    return None
