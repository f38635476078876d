"""The sender of a request, who is found before its body is read, and the role that a route needs.

A role is a dependency of the routes that need it (``Asking``, ``Questioning``, ``Spending``,
``Admin``). It depends on the token alone, and on nothing else of a request such as its path or its
Host.
"""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from dptopk.service.access import Person
from dptopk.service.catalog import DatasetSpec
from dptopk.service.messages import Refusal
from dptopk.service.worker import Service

_bearer = HTTPBearer(auto_error=False, description="A token from `dptopk ledger analyst add`.")
MOST_REQUESTS = 64  # the requests that one analyst may have open at a time


async def service_of(request: Request) -> Service:
    """Return the worker that answers a request."""
    service: Service = request.app.state.service
    return service


Worker = Annotated[Service, Depends(service_of)]


def token_of(request: Request) -> str:
    """Return the bearer token of a request; "" if it has none, or several.

    Of two headers neither counts: a proxy before the service may have checked the other one.
    """
    headers = request.headers.getlist("Authorization")
    if len(headers) != 1:
        return ""
    scheme, _, token = headers[0].partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return ""


async def authenticate(request: Request) -> Person:
    """Return the sender of a request; unknown and too frequent senders are refused.

    The sender is looked up once for each request, before its body is read.

    Raises:
        Refusal: with status 401 or 429.
        Busy: when too many requests of the sender are open.
    """
    recognised: Person | None = getattr(request.state, "person", None)
    if recognised is not None:
        return recognised
    service = await service_of(request)
    person = await service.senders.find(token_of(request))
    if person is None:
        raise _unauthorized_error()
    connection = getattr(request.state, "connection", None)
    if connection is not None:  # another server than ours, as in tests, has no such record
        connection.identify(person.analyst)
    pay(service, person)
    hold(service, request, f"requests of {person.analyst}", MOST_REQUESTS)
    request.state.person = person
    return person


def pay(service: Service, person: Person, cost: float = 1.0, *, spends: bool = False) -> None:
    """Take the units that a request costs from the rate of its sender's token.

    Args:
        service: the worker.
        person: the sender.
        cost: how many units the request costs; 0: none.
        spends: whether the units are taken from the token's rate for requests that spend, or from
            its rate for free requests.

    Raises:
        Refusal: with status 429, if the rate is used up.
    """
    if not cost:
        return
    if spends:
        bucket = f"spend {person.token}"
        rate = service.catalog.spending_per_second
    else:
        bucket = f"free {person.token}"
        rate = service.catalog.free_per_second
    seconds = service.rates.take(bucket, rate, cost)
    if seconds:  # nothing was taken
        wait = math.ceil(seconds)
        message = f"Too many requests: wait for {wait} s"
        raise Refusal(429, "too_many_requests", message, {"Retry-After": str(wait)})


def hold(service: Service, request: Request, name: str, at_most: int) -> None:
    """Count a request as open under a name, until it ends (``app``).

    Args:
        service: the worker.
        request: the request.
        name: the person, and what is counted.
        at_most: how many may be open at a time.

    Raises:
        Busy: when ``at_most`` are open under this name.
    """
    service.open.enter(name, at_most)
    request.state.held = [*getattr(request.state, "held", ()), name]


async def person_of(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Person:
    """Return the sender of a request; ``_`` lets the page of the API ask for a token.

    Raises:
        Refusal: with status 401 or 429.
        Busy: when too many requests of the sender are open.
    """
    return await authenticate(request)


Asking = Annotated[Person, Depends(person_of)]


async def questioner_of(request: Request, service: Worker, _: Asking) -> Person:
    """Return the sender of a request about a question that spends, whose token is valid now.

    Args:
        request: the request, with its token.
        service: the worker, which reads the row of the token again.
        _: the sender as of the last reading, so that a request without a token ends before.

    Raises:
        Refusal: with status 401, or 403 for a reader.
    """
    person = await service.senders.find(token_of(request), now=True)
    if person is None:
        raise _unauthorized_error()
    if person.role == "reader":
        word = "this_token_asks_nothing_that_is_charged"
        raise Refusal(403, word, "A token of the role reader asks nothing that is charged")
    return person


Questioning = Annotated[Person, Depends(questioner_of)]


async def spender_of(service: Worker, person: Questioning) -> Person:
    """Return the sender of a request that spends.

    Raises:
        Refusal: with status 401, 403 for a reader, or 429.
    """
    pay(service, person, spends=True)
    return person


Spending = Annotated[Person, Depends(spender_of)]


async def admin_of(request: Request, service: Worker, _: Asking) -> Person:
    """Return the sender of a request for administrators, whose token is valid now.

    Args:
        request: the request, with its token.
        service: the worker, which reads the row of the token again.
        _: the sender as of the last reading, so that a request without a token ends before.

    Raises:
        Refusal: with status 401, or 403 for others.
    """
    person = await service.senders.find(token_of(request), now=True)
    if person is None:
        raise _unauthorized_error()
    if person.role != "admin":
        raise Refusal(403, "for_administrators", "A token of the role admin is needed")
    return person


Admin = Annotated[Person, Depends(admin_of)]


async def dataset_of(
    service: Worker, person: Asking, dataset: Annotated[str, Path(max_length=64)]
) -> DatasetSpec:
    """Return the data set that an address names.

    Args:
        service: the worker.
        person: the sender; administrators see every data set.
        dataset: the name in the address.

    Raises:
        Refusal: with status 404, if there is none, or the sender may not ask about it.
    """
    spec = service.catalog.datasets.get(dataset)
    if spec is None or not (person.role == "admin" or spec.may_ask(person.analyst)):
        raise Refusal(404, "no_such_data_set", "You can ask about no data set of this name")
    return spec


Dataset = Annotated[DatasetSpec, Depends(dataset_of)]


def _unauthorized_error() -> Refusal:
    """Return the refusal of a request without a valid token; the caller raises it."""
    message = "A valid token is needed, in the header Authorization: Bearer TOKEN"
    return Refusal(401, "token_needed", message, {"WWW-Authenticate": "Bearer"})
