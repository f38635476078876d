"""Who may do what: the sender of a request, found before its body is read, and what a route asks of
the sender.

A role is a dependency of the routes that need it (``Asking``, ``Spending``, ``Admin``), and hangs
on nothing else that a request carries: neither its path nor its Host.
"""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import Depends, HTTPException, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from dptopk.service.access import Person
from dptopk.service.catalog import DatasetSpec
from dptopk.service.worker import Service

_bearer = HTTPBearer(auto_error=False, description="A token from `dptopk ledger analyst add`.")
MOST_REQUESTS = 64  # of one analyst, open at a time


async def service_of(request: Request) -> Service:
    """The worker's state."""
    service: Service = request.app.state.service
    return service


Worker = Annotated[Service, Depends(service_of)]


def token_of(request: Request) -> str:
    """The token that a request carries, or nothing; of two tokens neither counts, since a proxy may
    have looked at the other one.
    """
    headers = request.headers.getlist("Authorization")
    scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    if scheme.lower() == "bearer":
        return token.strip()
    return ""


async def authenticated(request: Request) -> Person:
    """Return the sender of a request, found once; refuses unknown or too frequent ones before the
    body is read.
    """
    found: Person | None = getattr(request.state, "person", None)
    if found is not None:
        return found
    service = await service_of(request)
    person = await service.senders.find(token_of(request))
    if person is None:
        raise _unknown()
    connection = getattr(request.state, "connection", None)
    if connection is not None:
        connection.identify(person.analyst)
    pay(service, person)
    hold(service, request, f"requests of {person.analyst}", MOST_REQUESTS)
    request.state.person = person
    return person


def pay(service: Service, person: Person, cost: float = 1.0, *, spends: bool = False) -> None:
    """Take the units of a request out of what its sender may ask for each second; 429 when there
    are none.
    """
    catalog = service.catalog
    kind, rate = (
        ("spend", catalog.spending_per_second) if spends else ("free", catalog.free_per_second)
    )
    if cost:
        seconds = service.rates.wait(f"{kind} {person.token}", rate, cost)
    else:
        seconds = 0.0
    if seconds:
        raise HTTPException(429, "Too many requests", {"Retry-After": str(math.ceil(seconds))})


def hold(service: Service, request: Request, name: str, at_most: int) -> None:
    """Count what is open, until the end of the request."""
    service.open.enter(name, at_most)
    request.state.held = [*getattr(request.state, "held", ()), name]


async def person_of(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Person:
    """Return the sender of the request."""
    return await authenticated(request)


Asking = Annotated[Person, Depends(person_of)]


async def spender_of(request: Request, service: Worker, _: Asking) -> Person:
    """Return the sender of a request that spends, whose token is valid now."""
    now = await service.senders.find(token_of(request), now=True)
    if now is None:
        raise _unknown()
    if now.role == "reader":
        raise HTTPException(403, "This token asks nothing that is charged")
    pay(service, now, spends=True)
    return now


Spending = Annotated[Person, Depends(spender_of)]


async def admin_of(request: Request, service: Worker, _: Asking) -> Person:
    """Return the sender of the request, if an administrator whose token is valid now."""
    now = await service.senders.find(token_of(request), now=True)
    if now is None:
        raise _unknown()
    if now.role != "admin":
        raise HTTPException(403, "For administrators")
    return now


Admin = Annotated[Person, Depends(admin_of)]


async def dataset_of(
    service: Worker, person: Asking, dataset: Annotated[str, Path(max_length=64)]
) -> DatasetSpec:
    """The data set of an address; one that the analyst may not see is not there."""
    spec = service.catalog.datasets.get(dataset)
    if spec is None or not (person.role == "admin" or spec.may_ask(person.analyst)):
        raise HTTPException(404, "No such data set")
    return spec


Dataset = Annotated[DatasetSpec, Depends(dataset_of)]


def _unknown() -> HTTPException:
    return HTTPException(401, "Token needed", {"WWW-Authenticate": "Bearer"})
