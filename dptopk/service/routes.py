"""The endpoints under /v1."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import TimeoutError as NotYet
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from dptopk._internal.json_text import canonical_json
from dptopk.ledger.spends import Spend
from dptopk.planning.division import divide, queries_of
from dptopk.service.access import Person, token_id
from dptopk.service.asking import job_of, shown
from dptopk.service.catalog import DatasetSpec, valid_name
from dptopk.service.jobs import Job
from dptopk.service.models import Asked, Divide, NewVersion, Problem, Ran
from dptopk.service.promise import promise
from dptopk.service.questions import Question, charge_of
from dptopk.service.state import Service

_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "No token, or not a valid one."},
    404: {"model": Problem, "description": "Not there, or not for you."},
    413: {"model": Problem, "description": "The body is longer than 64 KiB."},
    422: {"model": Problem, "description": "The request makes no sense; nothing was charged."},
    429: {"model": Problem, "description": "Too many requests."},
    503: {"model": Problem, "description": "The ledger or the data cannot be reached; ask again with the same key."},
}
_CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "The budget does not cover it."}}
_ADMIN: dict[int | str, dict[str, Any]] = {403: {"model": Problem, "description": "For administrators."}}

router = APIRouter(prefix="/v1", responses=_REFUSALS)
_bearer = HTTPBearer(auto_error=False, description="A token from `dptopk ledger analyst add`.")
_GUESSES_PER_SECOND = 2.0


# What waits for nothing is `async`: FastAPI runs it where it is, instead of handing it to a thread.


async def service_of(request: Request) -> Service:
    """The worker's state."""
    return request.app.state.service


Worker = Annotated[Service, Depends(service_of)]


async def authenticated(request: Request) -> Person:
    """Who sends a request, found once for each; refuses who is unknown or too fast, before the body is read."""
    found: Person | None = getattr(request.state, "person", None)
    if found is not None:
        return found
    service = await service_of(request)
    spends = request.method == "POST" and request.url.path.endswith(("/topk", "/run"))
    token = _token(request)
    host = request.client.host if request.client else ""
    person = None if spends else service.access.recent(token)
    if person is None:
        if not service.access.verified(token):  # scrypt takes long: whoever sends wrong secrets waits for it
            _slow_down(service.rates.wait(f"guess {host} {token_id(token)}", _GUESSES_PER_SECOND))
        person = await asyncio.to_thread(service.access.person, token)
    if person is None:
        _slow_down(service.rates.wait(f"guess {host}", _GUESSES_PER_SECOND))
        raise HTTPException(401, "Token needed", {"WWW-Authenticate": "Bearer"})
    kind, rate = ("spend", service.catalog.spending_per_second) if spends else ("free", service.catalog.free_per_second)
    _slow_down(service.rates.wait(f"{kind} {person.token}", rate))
    request.state.person = person
    return person


def _token(request: Request) -> str:
    """The token that a request carries, or nothing."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def person_of(request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Person:
    """Who asks."""
    return await authenticated(request)


def _slow_down(seconds: float) -> None:
    if seconds:
        raise HTTPException(429, "Too many requests", {"Retry-After": str(math.ceil(seconds))})


Asking = Annotated[Person, Depends(person_of)]


async def admin_of(person: Asking) -> Person:
    """Who asks, if an administrator."""
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
    """Who the token belongs to."""
    return _reply({"analyst": person.analyst, "role": person.role})


@router.get("/datasets")
def datasets(service: Worker, person: Asking) -> Response:
    """The data sets you may ask about."""
    mine = (s for s in service.catalog.datasets.values() if person.role == "admin" or s.may_ask(person.analyst))
    return _reply([_schema(service, spec) for spec in mine])


@router.get("/datasets/{dataset}")
def schema(service: Worker, spec: Dataset) -> Response:
    """What is known of a data set without looking into it."""
    return _reply(_schema(service, spec))


def _schema(service: Service, spec: DatasetSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "description": spec.description,
        "unit": spec.unit,
        "version": service.books.version(spec.name),
        "labels_per_user": spec.labels_per_user,
        "per_label_cap": spec.per_label_cap,
        "neighbours": spec.sensitivity.neighbours,
        "domain": spec.domain,
        "filters": {column: list(values) for column, values in spec.filters.items()},
        "segments": dict(spec.segments),
        "budget_by": spec.budget_by,
    }


@router.get("/datasets/{dataset}/budget")
def budget(service: Worker, person: Asking, spec: Dataset) -> Response:
    """The data set's budget, your part of it, and how often the questions asked before still fit."""
    return _reply(service.books.budget(spec.name, person.analyst, everyone=person.role == "admin"))


@router.post("/datasets/{dataset}/plan", responses=_CONFLICT)
def plan(service: Worker, person: Asking, spec: Dataset, asked: Asked | Ran) -> Response:
    """What a question would cost and deliver, the top k or one mechanism; free, no data takes part."""
    question = asked.question()
    question.check(spec)
    prepared = service.plans.get(spec, question)
    charge = charge_of(spec, question, prepared)
    paying = spec.paying(question.segments, question.where)
    balance = service.books.balance(spec.name, person.analyst, charge, segments=paying)
    delta = float(balance["total"]["delta"])
    promised = service.pages.get(
        ("plan", question.fingerprint(spec), delta), lambda: promise(prepared, charge, spec.sensitivity, delta)
    )
    return _reply(promised | {"balance": balance})


Wait = Annotated[float, Query(ge=0, le=120, description="Seconds to wait for the answer.")]
_SPENDS: dict[int | str, dict[str, Any]] = {**_CONFLICT, 202: {"description": "Not done yet: see the job."}}


@router.post("/datasets/{dataset}/topk", responses=_SPENDS)
def topk(service: Worker, person: Asking, spec: Dataset, key: Key, asked: Asked, wait: Wait = 30.0) -> Response:
    """Ask: plan, charge durably, answer. The same key gives the same answer again and is charged once."""
    return _asked(service, person, spec, key, asked.question(), wait)


@router.post("/datasets/{dataset}/run", responses=_SPENDS)
def run(service: Worker, person: Asking, spec: Dataset, key: Key, asked: Ran, wait: Wait = 30.0) -> Response:
    """Run one mechanism: charge durably, answer; as exactly once as `topk`."""
    return _asked(service, person, spec, key, asked.question(), wait)


def _asked(service: Service, person: Person, spec: DatasetSpec, key: str, question: Question, wait: float) -> Response:
    question.check(spec)
    known = service.asker.known(spec, person.analyst, key, question)
    if known is not None and known.answer is not None and not service.running(person.analyst, spec.name, key):
        service.metrics.question(spec.name, "again")
        return _reply(_shown(service, spec, known))
    future = service.submit(spec, person, key, question, charged=known is not None)
    try:
        done = future.result(timeout=wait)
    except NotYet:
        if future.done():  # it was the question's own
            raise
        job = job_of(person.analyst, spec.name, key)
        return JSONResponse({"job": job, "stage": "reading"}, status_code=202, headers={"Location": f"/v1/jobs/{job}"})
    return _reply(_shown(service, spec, done))


def _shown(service: Service, spec: DatasetSpec, spend: Spend) -> dict[str, Any]:
    """An answer as it leaves: what is stored never changes, and is read once."""

    def read() -> dict[str, Any]:
        answer = service.books.ledger.answer(spend)
        if answer is None:
            raise HTTPException(404, "No such answer")
        return shown(spend, answer, spec.name)

    return service.pages.get(("answer", spend.seq, spend.answer), read)


@router.get("/datasets/{dataset}/releases")
def releases(
    service: Worker,
    person: Asking,
    spec: Dataset,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """Your answers, newest first, again and free."""
    mine = [spend for spend in service.books.spends(spec.name, person.analyst) if spend.answer is not None]
    return _reply([_shown(service, spec, spend) for spend in reversed(mine[-limit:])])


@router.get("/datasets/{dataset}/releases/{entry}")
def release(service: Worker, person: Asking, spec: Dataset, entry: Annotated[int, Path(ge=1, le=2**53)]) -> Response:
    """One of your answers, by the number of its charge in the ledger."""
    for spend in service.books.spends(spec.name, person.analyst):
        if spend.seq == entry and spend.answer is not None:
            return _reply(_shown(service, spec, spend))
    raise HTTPException(404, "No such answer")


@router.post("/datasets/{dataset}/versions", responses=_ADMIN)
def versions(service: Worker, person: Admin, spec: Dataset, new: NewVersion) -> dict[str, Any]:
    """The data changed: later questions read the new version; budgets go on."""
    version = valid_name(version=new.version)
    service.books.ledger.set_version(spec.name, version)
    service.access.note(person.analyst, "version", spec.name, "done", {"version": version})
    return _schema(service, spec)


@router.get("/datasets/{dataset}/spending", responses=_ADMIN)
def spending(service: Worker, _: Admin, spec: Dataset) -> Response:
    """Spending over time and by analyst, for who owns the data."""
    return _reply(service.books.spending(spec.name))


@router.get("/jobs/{job}")
def job(service: Worker, person: Asking, job: Annotated[str, Path(pattern="^[0-9a-f]{32}$")]) -> dict[str, Any]:
    """Where a question stands."""
    return _job(_mine(service, person, job))


@router.get("/jobs/{job}/events", response_class=StreamingResponse)
def events(
    request: Request, service: Worker, person: Asking, job: Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
) -> StreamingResponse:
    """The same as server-sent events, until the question is answered or the token ends."""
    first, token = _mine(service, person, job), _token(request)

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
            await asyncio.sleep(0.1)
            if not (service.access.recent(token) or await asyncio.to_thread(service.access.person, token)):
                return
            found = await asyncio.to_thread(service.jobs.find, job)

    return StreamingResponse(lines(), media_type="text/event-stream")


@router.delete("/jobs/{job}", responses=_CONFLICT)
def cancel(service: Worker, person: Asking, job: Annotated[str, Path(pattern="^[0-9a-f]{32}$")]) -> dict[str, Any]:
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
def division(service: Worker, person: Asking, wanted: Annotated[Divide, Body()]) -> Response:
    """The budget tool: one (epsilon, delta) divided over wanted queries by what they are worth; free."""
    _slow_down(service.rates.wait(f"divide {person.token}", min(1.0, service.catalog.free_per_second)))
    made = divide(queries_of([query.model_dump() for query in wanted.queries]), wanted.epsilon, wanted.delta)
    return _reply(made.plain())


@router.get("/audit", responses=_ADMIN)
def audit(
    service: Worker,
    _: Admin,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Who did what, newest first."""
    return _reply(service.access.notes(before=before, limit=limit))


@router.get("/metrics", responses=_ADMIN, response_class=PlainTextResponse)
def metrics(service: Worker, _: Admin) -> str:
    """Numbers for Prometheus, of this worker."""
    head = service.books.ledger.head()
    return service.metrics.text(service.shares(), service.jobs.running(), int(head["seq"]))


def _reply(value: Any) -> Response:
    """JSON; numbers that are not finite become null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
