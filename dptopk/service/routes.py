"""The endpoints under /v1."""

from __future__ import annotations

import asyncio
import json
import math
from asyncio import wrap_future
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial, wraps
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from dptopk._internal.json_text import canonical_json
from dptopk.planning.division import divide, queries_of
from dptopk.service.access import Person, token_id
from dptopk.service.answering import job_of
from dptopk.service.catalog import DatasetSpec, valid_name
from dptopk.service.jobs import Job
from dptopk.service.models import Divide, NewVersion, Problem
from dptopk.service.preview import preview
from dptopk.service.questions import Question, Run, TopK, charge_of
from dptopk.service.state import Service

REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "No token, or not a valid one."},
    404: {"model": Problem, "description": "Not there, or not for you."},
    413: {"model": Problem, "description": "The body is longer than 64 KiB."},
    422: {"model": Problem, "description": "The request makes no sense; nothing was charged."},
    429: {"model": Problem, "description": "Too many requests."},
    503: {"model": Problem, "description": "The ledger or the data cannot be reached; ask again with the same key."},
}
CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "The budget does not cover it."}}
_ADMIN: dict[int | str, dict[str, Any]] = {403: {"model": Problem, "description": "For administrators."}}

router = APIRouter(prefix="/v1", responses=REFUSALS)
_bearer = HTTPBearer(auto_error=False, description="A token from `dptopk ledger analyst add`.")
_GUESSES_PER_SECOND = 2.0
MOST_REQUESTS, MOST_STREAMS = 64, 8  # of one analyst, open at a time
PLAN, DIVIDE = 2.0, 25.0  # units of a small plan, and of each query of a division
ROWS = 40  # of an answer, that make its plan one unit dearer
STORED = 200  # of an answer, that make it one unit dearer


async def service_of(request: Request) -> Service:
    """The worker's state."""
    return request.app.state.service


Worker = Annotated[Service, Depends(service_of)]


async def authenticated(request: Request) -> Person:
    """Return the sender of a request, found once; refuses unknown or too frequent ones before the body is read."""
    found: Person | None = getattr(request.state, "person", None)
    if found is not None:
        return found
    service = await service_of(request)
    spends = request.method == "POST" and request.url.path.endswith(("/topk", "/run", "/streams", "/days"))
    token = _token(request)
    host = request.client.host if request.client else ""
    person = None if spends else service.access.recent(token)
    if person is None:
        turn = f"token {token_id(token)}"
        if not service.access.verified(token):  # scrypt takes long: whoever sends wrong secrets waits for it
            _slow_down(service.rates.wait(f"guess {host} {token_id(token)}", _GUESSES_PER_SECOND))
            turn = "unknown"
        person = await wrap_future(service.logins.submit(turn, partial(service.access.person, token)))
    if person is None:
        _slow_down(service.rates.wait(f"guess {host}", _GUESSES_PER_SECOND))
        raise HTTPException(401, "Token needed", {"WWW-Authenticate": "Bearer"})
    if spends and person.role == "reader":
        raise HTTPException(403, "This token asks nothing that is charged")
    pay(service, person, spends=spends)
    hold(service, request, f"requests of {person.analyst}", MOST_REQUESTS)
    request.state.person = person
    return person


def pay(service: Service, person: Person, cost: float = 1.0, *, spends: bool = False) -> None:
    """Take the units of a request out of what its sender may ask for each second; 429 when there are none."""
    catalog = service.catalog
    kind, rate = ("spend", catalog.spending_per_second) if spends else ("free", catalog.free_per_second)
    if cost:
        _slow_down(service.rates.wait(f"{kind} {person.token}", rate, cost))


def hold(service: Service, request: Request, name: str, at_most: int) -> None:
    """Count what is open, until the end of the request."""
    service.open.enter(name, at_most)
    request.state.held = [*getattr(request.state, "held", ()), name]


def queued(route: Callable[..., Any]) -> Callable[..., Any]:
    """Let a route run when it is its sender's turn."""

    @wraps(route)
    async def waiting(*, service: Service, person: Person, **given: Any) -> Any:
        return await wrap_future(service.work.submit(person.analyst, partial(route, service, person, **given)))

    return waiting


def _token(request: Request) -> str:
    """The token that a request carries, or nothing."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def person_of(request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Person:
    """Return the sender of the request."""
    return await authenticated(request)


def _slow_down(seconds: float) -> None:
    if seconds:
        raise HTTPException(429, "Too many requests", {"Retry-After": str(math.ceil(seconds))})


Asking = Annotated[Person, Depends(person_of)]


async def admin_of(person: Asking) -> Person:
    """Return the sender of the request, if an administrator."""
    if person.role != "admin":
        raise HTTPException(403, "For administrators")
    return person


Admin = Annotated[Person, Depends(admin_of)]


async def dataset_of(service: Worker, person: Asking, dataset: Annotated[str, Path(max_length=64)]) -> DatasetSpec:
    """The data set of an address; one that the analyst may not see is not there."""
    spec = service.catalog.datasets.get(dataset)
    if spec is None or not (person.role == "admin" or spec.may_ask(person.analyst)):
        raise HTTPException(404, "No such data set")
    return spec


Dataset = Annotated[DatasetSpec, Depends(dataset_of)]
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
    mine = (s for s in service.catalog.datasets.values() if person.role == "admin" or s.may_ask(person.analyst))
    return reply([_schema(service, spec) for spec in mine])


@router.get("/datasets/{dataset}")
@queued
def schema(service: Worker, person: Asking, spec: Dataset) -> Response:  # noqa: ARG001 - whose turn it is
    """The public description of a data set; never data."""
    return reply(_schema(service, spec))


# What of a data set is written as it is.
DESCRIBED = ("name", "description", "unit", "labels_per_user", "per_label_cap", "domain", "budget_by")


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
    """The data set's budget, your part of it, and how often the questions asked before still fit."""
    return reply(service.reports.budget(spec.name, person.analyst, everyone=person.role == "admin"))


@router.post("/datasets/{dataset}/plan", responses=CONFLICT)
async def plan(service: Worker, person: Asking, spec: Dataset, question: TopK | Run) -> Response:
    """The cost and expected accuracy of a question, the top k or one mechanism; free, uses no data."""
    question.check(spec)
    pay(service, person, PLAN + question.rows / ROWS)
    return await wrap_future(service.planning.submit(person.analyst, partial(_plan, service, person, spec, question)))


def _plan(service: Service, person: Person, spec: DatasetSpec, question: Question) -> Response:
    prepared = service.plans.get(spec, question)
    charge = charge_of(spec, question, prepared)
    paying = spec.paying(question.segments, question.where)
    balance = service.reports.balance(spec.name, person.analyst, charge, segments=paying)
    delta = float(balance["total"]["delta"])
    promised = service.pages.get(
        ("plan", question.fingerprint(spec), delta), lambda: preview(prepared, charge, spec.sensitivity, delta)
    )
    return reply(promised | {"balance": balance})


Wait = Annotated[float, Query(ge=0, le=120, description="Seconds to wait for the answer.")]
SPENDS: dict[int | str, dict[str, Any]] = {**CONFLICT, 202: {"description": "Not done yet: see the job."}}


@router.post("/datasets/{dataset}/topk", responses=SPENDS)
async def topk(service: Worker, person: Asking, spec: Dataset, key: Key, asked: TopK, wait: Wait = 30.0) -> Response:
    """Ask: plan, charge durably, answer. The same key gives the same answer again and is charged once."""
    return await answered(service, person, spec, key, asked, wait)


@router.post("/datasets/{dataset}/run", responses=SPENDS)
async def run(service: Worker, person: Asking, spec: Dataset, key: Key, asked: Run, wait: Wait = 30.0) -> Response:
    """Run one mechanism: charge durably, answer; as exactly once as `topk`."""
    return await answered(service, person, spec, key, asked, wait)


async def answered(
    service: Service, person: Person, spec: DatasetSpec, key: str, question: Question, wait: float
) -> Response:
    """What comes of a question that spends, or where it stands after ``wait`` seconds."""
    asked = spec.segmented(question.segments, question.where)
    pay(service, person, question.rows * max(1, len(asked.values)) / STORED, spends=True)
    begin = partial(service.begin, spec, person, key, question)
    begun = await wrap_future(service.work.submit(person.analyst, begin))
    if isinstance(begun, Future):
        answering = wrap_future(begun)
        if not (await asyncio.wait([answering], timeout=wait))[0]:
            job = job_of(person.analyst, spec.name, key)
            where = {"Location": f"/v1/jobs/{job}"}
            return JSONResponse({"job": job, "stage": "reading"}, status_code=202, headers=where)
        begun = answering.result()
    return reply(await wrap_future(service.work.submit(person.analyst, partial(service.page, spec, begun))))


@router.get("/datasets/{dataset}/releases")
@queued
def releases(
    service: Worker, person: Asking, spec: Dataset, limit: Annotated[int, Query(ge=1, le=100)] = 20
) -> Response:
    """Your answers, newest first, again and free."""
    pay(service, person, limit / 5)
    mine = service.reports.ledger.recent(spec.name, analyst=person.analyst, at_most=limit, outcomes=False)
    return reply([page for spend in mine if (page := service.page_of(spec, spend.seq, person.analyst)) is not None])


@router.get("/datasets/{dataset}/releases/{entry}")
@queued
def release(service: Worker, person: Asking, spec: Dataset, entry: Annotated[int, Path(ge=1, le=2**53)]) -> Response:
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
    service.tables.change(service.access.note(person.analyst, "version", spec.name, "done", {"version": version}))
    return _schema(service, spec)


@router.get("/datasets/{dataset}/spending", responses=_ADMIN)
@queued
def spending(service: Worker, person: Admin, spec: Dataset) -> Response:  # noqa: ARG001 - whose turn it is
    """Spending over time and by analyst, for who owns the data."""
    return reply(service.reports.spending(spec.name))


@router.get("/jobs/{job}")
@queued
def job(service: Worker, person: Asking, job: JobId) -> dict[str, Any]:
    """The status of a question."""
    return _job(_mine(service, person, job))


@router.get("/jobs/{job}/events", response_class=StreamingResponse)
async def events(request: Request, service: Worker, person: Asking, job: JobId) -> StreamingResponse:
    """The status as server-sent events, until the question is answered or the token expires."""
    hold(service, request, f"streams of {person.analyst}", MOST_STREAMS)
    first = await wrap_future(service.work.submit(person.analyst, partial(_mine, service, person, job)))
    token = _token(request)

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
            if not (service.access.recent(token) or await asyncio.to_thread(service.access.person, token)):
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
    line = {"job": found.id, "dataset": found.dataset, "stage": found.stage, "done": found.done, "total": found.total}
    return line | ({"error": found.code, "message": found.message} if found.code else {})


@router.post("/divide")
async def division(service: Worker, person: Asking, wanted: Annotated[Divide, Body()]) -> Response:
    """The budget tool: one (epsilon, delta) divided over wanted queries by what they are worth; free."""
    pay(service, person, DIVIDE * len(wanted.queries))
    queries = queries_of([query.model_dump() for query in wanted.queries])
    made = partial(divide, queries, wanted.epsilon, wanted.delta, effort="quick")
    return reply((await wrap_future(service.planning.submit(person.analyst, made))).plain())


@router.get("/audit", responses=_ADMIN)
@queued
def audit(
    service: Worker,
    person: Admin,  # noqa: ARG001 - whose turn it is
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The audit log, newest first."""
    return reply(service.access.notes(before=before, limit=limit))


@router.get("/metrics", responses=_ADMIN, response_class=PlainTextResponse)
@queued
def metrics(service: Worker, person: Admin) -> str:  # noqa: ARG001 - whose turn it is
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
