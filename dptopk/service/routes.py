"""The endpoints under /v1.

The docstring of an endpoint is its description on the page of the API, so that it has no sections:
its parameters have descriptions of their own, and REFUSALS lists how a request may be refused.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import wrap_future
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial, wraps
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from dptopk._internal.json_text import canonical_json
from dptopk.errors import InvalidParameter
from dptopk.ledger.spends import Spend
from dptopk.planning.division import divide, queries_of
from dptopk.service.access import Person
from dptopk.service.answering import job_of
from dptopk.service.authentication import (
    Admin,
    Asking,
    Dataset,
    Questioning,
    Spending,
    Worker,
    hold,
    pay,
    token_of,
)
from dptopk.service.budget_reports import FurtherQuestion
from dptopk.service.catalog import DatasetSpec, valid_name
from dptopk.service.catalog_changes import claim_version
from dptopk.service.jobs import PROGRESS_SECONDS, Job
from dptopk.service.messages import Refusal
from dptopk.service.models import DivisionRequest, NewVersion, Problem
from dptopk.service.plan_summary import plan_summary
from dptopk.service.questions import PostedQuestion, Run, TopK, charge_of, kind_of, stated_for
from dptopk.service.worker import Service

# A route's answers by status, as FastAPI describes them.
Responses = dict[int | str, dict[str, Any]]


def _refusal(status: int, words: str) -> Responses:
    """Return the description of a refusal with a status, for the OpenAPI page."""
    return {status: {"model": Problem, "description": words}}


REFUSALS = (
    _refusal(401, "No token, or not a valid one.")
    | _refusal(404, "Not there, or not for you.")
    | _refusal(413, "The body is longer than 64 KiB.")
    | _refusal(422, "The request makes no sense; nothing was charged.")
    | _refusal(429, "Too many requests.")
    | _refusal(503, "The ledger or the data cannot be reached; ask again with the same key.")
)
CONFLICT = _refusal(409, "The budget does not cover it.")
_ADMIN = _refusal(403, "For administrators.")


async def names_once(request: Request) -> None:
    """Refuse a body in which an object has a name twice; of two values it is not known which one
    is meant.

    Raises:
        InvalidParameter: for such a body.
    """
    if request.method == "POST" and _has_name_twice(await request.body()):
        raise InvalidParameter("the body states a value twice under one name")


def _has_name_twice(body: bytes) -> bool:
    """Return whether an object in a text of JSON has two members of one name; False for another
    text, which is refused elsewhere.
    """
    are_repeated: list[bool] = []

    def members_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return the members of an object, and note whether a name is repeated."""
        members = dict(pairs)
        are_repeated.append(len(members) < len(pairs))
        return members

    with suppress(ValueError, RecursionError):
        json.loads(body, object_pairs_hook=members_of)
    return any(are_repeated)


router = APIRouter(prefix="/v1", responses=REFUSALS, dependencies=[Depends(names_once)])
MOST_STREAMS = 8  # the event streams that one analyst may have open at a time
# The costs of requests, in units of a sender's rate, of which a simple request takes one.
PLAN_UNITS = 2.0  # a small plan costs so much
PLANNED_ROWS_PER_UNIT = 40  # the rows of a plan's answer that cost one more unit
DIVISION_UNITS = 25.0  # each query of a division costs so much
STORED_ROWS_PER_UNIT = 200  # the rows of a stored answer that cost one unit
STORED_ANSWERS_PER_UNIT = 5  # the stored answers, in a list of them, that cost one unit


def queued(route: Callable[..., Any]) -> Callable[..., Any]:
    """Return a route that runs in one of the worker's threads when it is its sender's turn.

    FastAPI reads the parameters of ``route`` itself, to which ``wraps`` leads.

    Args:
        route: the function of the endpoint, whose first parameters are ``service`` and ``person``.
    """

    @wraps(route)
    async def run_in_turn(*, service: Service, person: Person, **parameters: Any) -> Any:
        """Queue the route among the work of its sender, and return its answer."""
        call = partial(route, service, person, **parameters)
        return await wrap_future(service.work.submit(person.analyst, call))

    return run_in_turn


JobId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


async def _one_key(
    request: Request,
    key: Annotated[
        str,
        Header(
            alias="Idempotency-Key",
            min_length=8,
            max_length=128,
            pattern=r"^[A-Za-z0-9_.:-]+$",
            description="Your name for this question; the same key never pays twice.",
        ),
    ],
) -> str:
    """Return the idempotency key of a request; of two it is not known which one is meant.

    Raises:
        InvalidParameter: when the request has several.
    """
    if len(request.headers.getlist("Idempotency-Key")) > 1:
        raise InvalidParameter(
            "Idempotency-Key: a request has one key, not several", parameter="Idempotency-Key"
        )
    return key


Key = Annotated[str, Depends(_one_key)]


@router.get("/me")
async def me(person: Asking) -> Response:
    """Return the owner and the role of the token."""
    return reply({"analyst": person.analyst, "role": person.role})


@router.get("/datasets")
@queued
def datasets(service: Worker, person: Asking) -> Response:
    """List the data sets you may ask about."""
    schemas = [
        _dataset_description(service, spec)
        for spec in service.catalog.datasets.values()
        if person.role == "admin" or spec.may_ask(person.analyst)
    ]
    return reply(schemas)


@router.get("/datasets/{dataset}")
@queued
# queued() takes the person, whose turn it must be.
def schema(service: Worker, person: Asking, spec: Dataset) -> Response:  # noqa: ARG001
    """Return the public description of a data set; it holds no data."""
    return reply(_dataset_description(service, spec))


# The attributes of a data set that its description repeats.
DESCRIBED_ATTRIBUTES = (
    "name",
    "description",
    "unit",
    "labels_per_user",
    "per_label_cap",
    "domain",
    "budget_by",
)


def _dataset_description(service: Service, spec: DatasetSpec) -> dict[str, Any]:
    """Return the public description of a data set: its caps, the values that its columns may be
    filtered by, and what may be asked of it.
    """
    return {name: getattr(spec, name) for name in DESCRIBED_ATTRIBUTES} | {
        "version": service.reports.version(spec.name),
        "neighbours": spec.sensitivity.neighbours,
        "filters": {column: list(values) for column, values in spec.filters.items()},
        "segments": dict(spec.segments),
        "streams": spec.streams is not None,
    }


@router.get("/datasets/{dataset}/budget")
@queued
def budget(service: Worker, person: Asking, spec: Dataset) -> Response:
    """Return the data set's budget, your part of it, and how often earlier questions still fit."""
    return reply(service.reports.budget(spec.name, person.analyst, everyone=person.role == "admin"))


@router.post("/datasets/{dataset}/plan", responses=CONFLICT)
async def plan(service: Worker, person: Asking, spec: Dataset, question: TopK | Run) -> Response:
    """Return the cost and expected accuracy of a question, the top k or one mechanism; free, uses
    no data.
    """
    question.check(spec)
    pay(service, person, PLAN_UNITS + question.rows / PLANNED_ROWS_PER_UNIT)
    make_plan = partial(_plan, service, person, spec, question)
    return await wrap_future(service.planning.submit(person.analyst, make_plan))


def _plan(
    service: Service, person: Person, spec: DatasetSpec, question: PostedQuestion
) -> Response:
    """Return the cost and accuracy of a question, and the budget before and after it.

    Args:
        service: the worker.
        person: the sender, whose budget is stated.
        spec: the data set.
        question: the question.

    Raises:
        InvalidParameter: when no plan fits the question.
    """
    prepared = service.plans.get(spec, question)
    charge = charge_of(spec, question, prepared)
    segments = spec.paying_segments(question.segments, question.where)
    further = FurtherQuestion(charge, stated_for(prepared, charge), kind_of(spec, question))
    balance = service.reports.balance(spec.name, person.analyst, further, segments=segments)
    delta = float(balance["total"]["delta"])
    summary = service.get_or_compute(
        spec,
        ("plan", question.fingerprint(spec), delta),
        lambda: plan_summary(prepared, charge, delta),
    )
    return reply(summary | {"balance": balance})


Wait = Annotated[float, Query(ge=0, le=120, description="Seconds to wait for the answer.")]
SPENDS = CONFLICT | {202: {"description": "Not done yet: see the job."}}


@router.post("/datasets/{dataset}/topk", responses=SPENDS)
async def topk(
    service: Worker, person: Spending, spec: Dataset, key: Key, question: TopK, wait: Wait = 30.0
) -> Response:
    """Ask: plan, charge durably, answer. The same key gives the same answer again and is charged
    once.
    """
    return await answer_response(service, person, spec, key, question, wait)


@router.post("/datasets/{dataset}/run", responses=SPENDS)
async def run(
    service: Worker, person: Spending, spec: Dataset, key: Key, question: Run, wait: Wait = 30.0
) -> Response:
    """Run one mechanism: charge durably, answer; as exactly once as `topk`."""
    return await answer_response(service, person, spec, key, question, wait)


async def answer_response(
    service: Service,
    person: Person,
    spec: DatasetSpec,
    key: str,
    question: PostedQuestion,
    wait: float,
) -> Response:
    """Return the answer to a question that spends, or its job if that takes more than ``wait``
    seconds (status 202).

    Args:
        service: the worker.
        person: the sender.
        spec: the data set.
        key: the idempotency key.
        question: the question, or the request about a stream.
        wait: the seconds after which the job is returned.

    Raises:
        DptopkError: the refusal of the question, which ``app`` answers with its status.
        Refusal: with status 429, when the sender's rate is used up.
    """
    segment_reading = spec.segment_reading(question.segments, question.where)
    histograms = max(1, len(segment_reading.values))  # one for all data if there are no segments
    rows = question.rows * histograms
    pay(service, person, rows / STORED_ROWS_PER_UNIT, spends=True)
    begin = partial(service.begin, spec, person, key, question)
    charge_or_future = await wrap_future(service.work.submit(person.analyst, begin))
    if isinstance(charge_or_future, Future):
        answering = wrap_future(charge_or_future)
        answering.add_done_callback(_retrieve_error)
        finished, _ = await asyncio.wait([answering], timeout=wait)
        if not finished:
            job = job_of(person.analyst, spec.name, key)
            location = {"Location": f"/v1/jobs/{job}"}
            return JSONResponse({"job": job, "stage": "reading"}, status_code=202, headers=location)
        charge = answering.result()
    else:
        charge = charge_or_future
    read_page = partial(service.page, spec, charge)
    return reply(await wrap_future(service.work.submit(person.analyst, read_page)))


def _retrieve_error(answering: asyncio.Future[Spend]) -> None:
    """Retrieve the error of a question whose request was answered with 202 before.

    The job states the error; asyncio would log one that nobody has retrieved.
    """
    if not answering.cancelled():
        answering.exception()


@router.get("/datasets/{dataset}/releases")
@queued
def releases(
    service: Worker, person: Asking, spec: Dataset, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> Response:
    """Return your answers again, newest first; free."""
    pay(service, person, limit / STORED_ANSWERS_PER_UNIT)
    spends = service.reports.ledger.recent(
        spec.name, analyst=person.analyst, at_most=limit, outcomes=False
    )
    pages = [service.page_of(spec, spend.seq, person.analyst) for spend in spends]
    return reply([page for page in pages if page is not None])


@router.get("/datasets/{dataset}/releases/{entry}")
@queued
def release(
    service: Worker, person: Asking, spec: Dataset, entry: Annotated[int, Path(ge=1, le=2**53)]
) -> Response:
    """Return one of your answers, by the number of its charge in the ledger."""
    page = service.page_of(spec, entry, person.analyst)
    if page is None:
        raise Refusal(404, "no_such_answer", "You have no answer of this number")
    return reply(page)


@router.post("/datasets/{dataset}/versions", responses=_ADMIN)
@queued
def versions(service: Worker, person: Admin, spec: Dataset, new: NewVersion) -> dict[str, Any]:
    """Say that the data changed: later questions read the new version; budgets stay as they are."""
    version = valid_name(version=new.version)
    claim_version(service.tables, spec, version)
    service.reports.ledger.set_version(spec.name, version)
    detail = {"version": version}
    line = service.access.line_statement(person.analyst, "version", spec.name, "done", detail)
    service.tables.change(line)
    return _dataset_description(service, spec)


@router.get("/datasets/{dataset}/spending", responses=_ADMIN)
@queued
# queued() takes the person, whose turn it must be.
def spending(service: Worker, person: Admin, spec: Dataset) -> Response:  # noqa: ARG001
    """Return what was spent over time and by analyst, for the owner of the data."""
    return reply(service.reports.spending(spec.name))


@router.get("/jobs/{job}")
@queued
def job(service: Worker, person: Asking, job: JobId) -> dict[str, Any]:
    """Return the status of a question."""
    return _plain_job(_own_job(service, person, job))


@router.get("/jobs/{job}/events", response_class=StreamingResponse)
async def events(
    request: Request, service: Worker, person: Asking, job: JobId
) -> StreamingResponse:
    """Send the status as server-sent events, until the question is answered or the token
    expires.
    """
    hold(service, request, f"streams of {person.analyst}", MOST_STREAMS)
    read_status = partial(_own_job, service, person, job)
    first = await wrap_future(service.work.submit(person.analyst, read_status))
    token = token_of(request)

    async def lines() -> AsyncIterator[str]:
        """Yield the status as an event, whenever it has changed, until the job has ended."""
        status: Job | None = first
        last_sent = ""
        while status is not None:
            text = canonical_json(_plain_job(status))
            if text != last_sent:
                yield f"event: progress\ndata: {text}\n\n"
            last_sent = text
            if status.has_ended:
                return
            await asyncio.sleep(PROGRESS_SECONDS)
            if await service.senders.find(token) is None:
                return
            status = await asyncio.to_thread(service.jobs.find, job)

    return StreamingResponse(lines(), media_type="text/event-stream")


@router.delete("/jobs/{job}", responses=CONFLICT)
@queued
def cancel(service: Worker, person: Questioning, job: JobId) -> dict[str, Any]:
    """Call a question off before it is charged; its key is then used up."""
    status = _own_job(service, person, job)
    if not service.jobs.cancel(job):
        message = "It is too late: the question has ended, or may be charged already"
        raise Refusal(409, "too_late", message)
    return _plain_job(status) | {"stage": "cancelled"}


def _own_job(service: Service, person: Person, ident: str) -> Job:
    """Return the status of a question of this person.

    Args:
        service: the worker.
        person: the sender.
        ident: the name of the job.

    Raises:
        Refusal: with status 404, if this person has no such job.
    """
    status = service.jobs.find(ident)
    if status is None or status.analyst != person.analyst:
        raise Refusal(404, "no_such_job", "You have no job of this name")
    return status


def _plain_job(status: Job) -> dict[str, Any]:
    """Return the status of a question as the service sends it; the error only if it failed."""
    plain = {
        "job": status.id,
        "dataset": status.dataset,
        "stage": status.stage,
        "done": status.done,
        "total": status.total,
    }
    if status.code:
        plain |= {"error": status.code, "message": status.message}
    return plain


@router.post("/divide")
async def division(
    service: Worker, person: Asking, wanted: Annotated[DivisionRequest, Body()]
) -> Response:
    """DivisionRequest one (epsilon, delta) over wanted queries by what they are worth; free."""
    pay(service, person, DIVISION_UNITS * len(wanted.queries))
    queries = queries_of([query.model_dump() for query in wanted.queries])
    divide_budget = partial(divide, queries, wanted.epsilon, wanted.delta, effort="quick")
    divided = await wrap_future(service.planning.submit(person.analyst, divide_budget))
    return reply(divided.plain())


@router.get("/audit", responses=_ADMIN)
@queued
def audit(
    service: Worker,
    person: Admin,  # noqa: ARG001
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return lines of the audit log, newest first."""
    return reply(service.access.newest_lines(before=before, limit=limit))


@router.get("/metrics", responses=_ADMIN, response_class=PlainTextResponse)
@queued
def metrics(service: Worker, person: Admin) -> str:  # noqa: ARG001
    """Return the counters of this worker, and the state of budgets, for Prometheus."""
    head = service.reports.ledger.head()
    return service.metrics.text(service.shares(), service.jobs.count_running(), int(head["seq"]))


def reply(value: Any) -> Response:
    """Return an answer in JSON; numbers that are not finite become null, and halves of surrogate
    pairs, which UTF-8 has no bytes for, question marks.
    """
    dump = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text = dump(value)
    except ValueError:  # a number is not finite
        with_constants = json.dumps(value)
        with_nulls = json.loads(with_constants, parse_constant=lambda _: None)
        text = dump(with_nulls)
    return Response(text.encode("utf-8", "replace"), media_type="application/json")
