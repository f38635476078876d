"""The endpoints under /v1."""

from __future__ import annotations

import asyncio
import json
from asyncio import wrap_future
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial, wraps
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from dptopk._internal.json_text import canonical_json
from dptopk.ledger.spends import Spend
from dptopk.planning.division import divide, queries_of
from dptopk.service.access import Person
from dptopk.service.answering import job_of
from dptopk.service.authentication import (
    Admin,
    Asking,
    Dataset,
    Spending,
    Worker,
    hold,
    pay,
    token_of,
)
from dptopk.service.budget_reports import Further
from dptopk.service.catalog import DatasetSpec, valid_name
from dptopk.service.jobs import Job
from dptopk.service.models import Divide, NewVersion, Problem
from dptopk.service.plan_summary import plan_summary
from dptopk.service.questions import PostedQuestion, Run, TopK, charge_of, kind_of
from dptopk.service.worker import Service

Responses = dict[int | str, dict[str, Any]]  # of a route, by status, as FastAPI describes them


def _refusal(status: int, words: str) -> Responses:
    """Return how a refusal is described."""
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

router = APIRouter(prefix="/v1", responses=REFUSALS)
MOST_STREAMS = 8  # of one analyst, open at a time
PLAN = 2.0  # units of a small plan
DIVIDE = 25.0  # of each query of a division
ROWS = 40  # of an answer, that make its plan one unit dearer
STORED = 200  # of an answer, that make it one unit dearer


def queued(route: Callable[..., Any]) -> Callable[..., Any]:
    """Let a route run when it is its sender's turn."""

    @wraps(route)
    async def waiting(*, service: Service, person: Person, **parameters: Any) -> Any:
        return await wrap_future(
            service.work.submit(person.analyst, partial(route, service, person, **parameters))
        )

    return waiting


JobId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=8,
        max_length=128,
        pattern=r"^[A-Za-z0-9_.:-]+$",
        description="Your name for this question; the same key never pays twice.",
    ),
]


@router.get("/me")
async def me(person: Asking) -> Response:
    """The owner and role of the token."""
    return reply({"analyst": person.analyst, "role": person.role})


@router.get("/datasets")
@queued
def datasets(service: Worker, person: Asking) -> Response:
    """The data sets you may ask about."""
    mine = (
        s
        for s in service.catalog.datasets.values()
        if person.role == "admin" or s.may_ask(person.analyst)
    )
    return reply([_schema(service, spec) for spec in mine])


@router.get("/datasets/{dataset}")
@queued
# whose turn it is
def schema(service: Worker, person: Asking, spec: Dataset) -> Response:  # noqa: ARG001
    """The public description of a data set; never data."""
    return reply(_schema(service, spec))


# What of a data set is written as it is.
DESCRIBED = (
    "name",
    "description",
    "unit",
    "labels_per_user",
    "per_label_cap",
    "domain",
    "budget_by",
)


def _schema(service: Service, spec: DatasetSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in DESCRIBED} | {
        "version": service.reports.version(spec.name),
        "neighbours": spec.sensitivity.neighbours,
        "filters": {column: list(values) for column, values in spec.filters.items()},
        "segments": dict(spec.segments),
        "streams": spec.streams is not None,
    }


@router.get("/datasets/{dataset}/budget")
@queued
def budget(service: Worker, person: Asking, spec: Dataset) -> Response:
    """The data set's budget, your part of it, and how often the questions asked before still
    fit.
    """
    return reply(service.reports.budget(spec.name, person.analyst, everyone=person.role == "admin"))


@router.post("/datasets/{dataset}/plan", responses=CONFLICT)
async def plan(service: Worker, person: Asking, spec: Dataset, question: TopK | Run) -> Response:
    """The cost and expected accuracy of a question, the top k or one mechanism; free, uses no
    data.
    """
    question.check(spec)
    pay(service, person, PLAN + question.rows / ROWS)
    return await wrap_future(
        service.planning.submit(person.analyst, partial(_plan, service, person, spec, question))
    )


def _plan(
    service: Service, person: Person, spec: DatasetSpec, question: PostedQuestion
) -> Response:
    prepared = service.plans.get(spec, question)
    charge = charge_of(spec, question, prepared)
    paying = spec.paying(question.segments, question.where)
    stated = prepared.stated if prepared.charge == charge else None
    further = Further(charge, stated, kind_of(spec, question))
    balance = service.reports.balance(spec.name, person.analyst, further, segments=paying)
    delta = float(balance["total"]["delta"])
    promised = service.pages.get(
        ("plan", question.fingerprint(spec), delta),
        lambda: plan_summary(prepared, charge, delta),
    )
    return reply(promised | {"balance": balance})


Wait = Annotated[float, Query(ge=0, le=120, description="Seconds to wait for the answer.")]
SPENDS = CONFLICT | {202: {"description": "Not done yet: see the job."}}


@router.post("/datasets/{dataset}/topk", responses=SPENDS)
async def topk(
    service: Worker, person: Spending, spec: Dataset, key: Key, question: TopK, wait: Wait = 30.0
) -> Response:
    """Ask: plan, charge durably, answer. The same key gives the same answer again and is charged
    once.
    """
    return await answered(service, person, spec, key, question, wait)


@router.post("/datasets/{dataset}/run", responses=SPENDS)
async def run(
    service: Worker, person: Spending, spec: Dataset, key: Key, question: Run, wait: Wait = 30.0
) -> Response:
    """Run one mechanism: charge durably, answer; as exactly once as `topk`."""
    return await answered(service, person, spec, key, question, wait)


async def answered(
    service: Service,
    person: Person,
    spec: DatasetSpec,
    key: str,
    question: PostedQuestion,
    wait: float,
) -> Response:
    """Return what comes of a question that spends, or where it stands after ``wait`` seconds."""
    segmented = spec.segmented(question.segments, question.where)
    pay(service, person, question.rows * max(1, len(segmented.values)) / STORED, spends=True)
    begin = partial(service.begin, spec, person, key, question)
    begun = await wrap_future(service.work.submit(person.analyst, begin))
    if isinstance(begun, Future):
        answering = wrap_future(begun)
        answering.add_done_callback(_seen)
        if not (await asyncio.wait([answering], timeout=wait))[0]:
            job = job_of(person.analyst, spec.name, key)
            where = {"Location": f"/v1/jobs/{job}"}
            return JSONResponse({"job": job, "stage": "reading"}, status_code=202, headers=where)
        begun = answering.result()
    return reply(
        await wrap_future(service.work.submit(person.analyst, partial(service.page, spec, begun)))
    )


def _seen(answering: asyncio.Future[Spend]) -> None:
    """Take note of an error that comes after its request was answered 202: its job says it."""
    if not answering.cancelled():
        answering.exception()


@router.get("/datasets/{dataset}/releases")
@queued
def releases(
    service: Worker, person: Asking, spec: Dataset, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> Response:
    """Your answers, newest first, again and free."""
    pay(service, person, limit / 5)
    mine = service.reports.ledger.recent(
        spec.name, analyst=person.analyst, at_most=limit, outcomes=False
    )
    pages = [service.page_of(spec, spend.seq, person.analyst) for spend in mine]
    return reply([page for page in pages if page is not None])


@router.get("/datasets/{dataset}/releases/{entry}")
@queued
def release(
    service: Worker, person: Asking, spec: Dataset, entry: Annotated[int, Path(ge=1, le=2**53)]
) -> Response:
    """One of your answers, by the number of its charge in the ledger."""
    page = service.page_of(spec, entry, person.analyst)
    if page is None:
        raise HTTPException(404, "No such answer")
    return reply(page)


@router.post("/datasets/{dataset}/versions", responses=_ADMIN)
@queued
def versions(service: Worker, person: Admin, spec: Dataset, new: NewVersion) -> dict[str, Any]:
    """The data changed: later questions read the new version; budgets stay as they are."""
    version = valid_name(version=new.version)
    service.reports.ledger.set_version(spec.name, version)
    service.tables.change(
        service.access.note(person.analyst, "version", spec.name, "done", {"version": version})
    )
    return _schema(service, spec)


@router.get("/datasets/{dataset}/spending", responses=_ADMIN)
@queued
# whose turn it is
def spending(service: Worker, person: Admin, spec: Dataset) -> Response:  # noqa: ARG001
    """Spending over time and by analyst, for who owns the data."""
    return reply(service.reports.spending(spec.name))


@router.get("/jobs/{job}")
@queued
def job(service: Worker, person: Asking, job: JobId) -> dict[str, Any]:
    """The status of a question."""
    return _job(_mine(service, person, job))


@router.get("/jobs/{job}/events", response_class=StreamingResponse)
async def events(
    request: Request, service: Worker, person: Asking, job: JobId
) -> StreamingResponse:
    """The status as server-sent events, until the question is answered or the token expires."""
    hold(service, request, f"streams of {person.analyst}", MOST_STREAMS)
    first = await wrap_future(
        service.work.submit(person.analyst, partial(_mine, service, person, job))
    )
    token = token_of(request)

    async def lines() -> AsyncIterator[str]:
        found: Job | None = first
        last = ""
        while found is not None:
            text = canonical_json(_job(found))
            if text != last:
                yield f"event: progress\ndata: {text}\n\n"
            last = text
            if found.over:
                return
            await asyncio.sleep(0.2)
            if await service.senders.find(token) is None:
                return
            found = await asyncio.to_thread(service.jobs.find, job)

    return StreamingResponse(lines(), media_type="text/event-stream")


@router.delete("/jobs/{job}", responses=CONFLICT)
@queued
def cancel(service: Worker, person: Asking, job: JobId) -> dict[str, Any]:
    """Call a question off before it is charged; its key is then used up."""
    found = _mine(service, person, job)
    if not service.jobs.cancel(job):
        raise HTTPException(409, "Too late")
    return _job(found) | {"stage": "cancelled"}


def _mine(service: Service, person: Person, ident: str) -> Job:
    found = service.jobs.find(ident)
    if found is None or found.analyst != person.analyst:
        raise HTTPException(404, "No such job")
    return found


def _job(found: Job) -> dict[str, Any]:
    line = {
        "job": found.id,
        "dataset": found.dataset,
        "stage": found.stage,
        "done": found.done,
        "total": found.total,
    }
    return line | ({"error": found.code, "message": found.message} if found.code else {})


@router.post("/divide")
async def division(service: Worker, person: Asking, wanted: Annotated[Divide, Body()]) -> Response:
    """The budget tool: one (epsilon, delta) divided over wanted queries by what they are worth;
    free.
    """
    pay(service, person, DIVIDE * len(wanted.queries))
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
    """The audit log, newest first."""
    return reply(service.access.notes(before=before, limit=limit))


@router.get("/metrics", responses=_ADMIN, response_class=PlainTextResponse)
@queued
def metrics(service: Worker, person: Admin) -> str:  # noqa: ARG001
    """Numbers for Prometheus, of this worker."""
    head = service.reports.ledger.head()
    return service.metrics.text(service.shares(), service.jobs.running(), int(head["seq"]))


def reply(value: Any) -> Response:
    """JSON; numbers that are not finite become null."""
    plain = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text = plain(value)
    except ValueError:
        text = plain(json.loads(json.dumps(value), parse_constant=lambda _: None))
    return Response(text.encode("utf-8", "replace"), media_type="application/json")
