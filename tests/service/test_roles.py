"""Who may do what, route by route and role by role, whatever else a request carries."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re

import pytest
from fastapi.routing import APIRoute

from dptopk.service import authentication, routes, senders, streams

from .conftest import ASKED, CATALOG, Server

KEYS = (f"role-question-{number}" for number in itertools.count())
ROLES = ("stranger", "forged", "ended", "reader", "analyst", "admin")
# What a route asks of its sender, by method and path.
SPENDS = {
    ("POST", "/v1/datasets/{dataset}/topk"),
    ("POST", "/v1/datasets/{dataset}/run"),
    ("POST", "/v1/datasets/{dataset}/streams"),
    ("POST", "/v1/datasets/{dataset}/streams/{stream}/days"),
}
CALLS_OFF = {("DELETE", "/v1/jobs/{job}")}
ADMIN = {
    ("POST", "/v1/datasets/{dataset}/versions"),
    ("GET", "/v1/datasets/{dataset}/spending"),
    ("GET", "/v1/audit"),
    ("GET", "/v1/metrics"),
}
BODIES = {
    "topk": ASKED,
    "run": {"mechanism": {"name": "KnownLaplace", "epsilon": 0.1}, "labels": ["three"]},
    "plan": ASKED,
    "versions": {"version": "1"},
    "streams": {"k": 2, "days": 2, "epsilon": 0.1, "delta": 1e-9, "stream": "a"},
    "price": {"k": 2, "days": 2, "epsilon": 0.1, "delta": 1e-9},
    "days": {"day": "1"},
    "divide": {"epsilon": 1.0, "delta": 1e-6, "queries": []},
}
ODD = [
    (name, value)
    for name, values in {
        "host": [
            "a?",
            "a#b",
            "a/v1/me",
            "@",
            "[",
            "::1",
            "x:99999",
            "\x7f",
            "localhost",
            "a?/v1/datasets/words/me",
            "%2f",
        ],
        "x-forwarded-host": ["a?", "other.example"],
        "x-forwarded-prefix": ["/v1/me", "//"],
        "x-forwarded-for": ["127.0.0.1", "::1"],
        "x-forwarded-proto": ["https", "x"],
        "x-original-url": ["/v1/me", "/health"],
        "x-rewrite-url": ["/v1/me"],
        "x-http-method-override": ["GET", "DELETE"],
        "x-http-method": ["GET"],
        "forwarded": ["host=a;proto=https"],
        "content-type": ["text/plain", "application/x-www-form-urlencoded", ""],
        "x-user": ["eve"],
        "x-role": ["admin"],
        "cookie": ["role=admin; token=x"],
        "origin": ["null", "http://localhost"],
        "accept": ["text/html"],
        "transfer-encoding": ["chunked"],
        "content-length": ["0", "999"],
        "proxy-authorization": ["Bearer x"],
        "referer": ["/v1/audit"],
    }.items()
    for value in values
]


async def called(app, method: str, path: str, headers, body: bytes) -> int:
    """The status of a request that is put to the application itself."""
    sent, messages = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "client": ("192.0.2.1", 5),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    await app(scope, receive, send)
    return sent[0]["status"]


def routes_of(app) -> list[tuple[str, str]]:
    """All routes under /v1, with their methods."""
    paths = app.openapi()["paths"]
    found = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert len(found) > 20
    return sorted(found)


def wrong(route: tuple[str, str], role: str, status: int) -> bool:
    """Whether an answer is another one than a role gets."""
    if role in {"stranger", "forged", "ended"}:
        return status != 401
    if route in SPENDS | CALLS_OFF and role == "reader":
        return status != 403
    if route in ADMIN and role != "admin":
        return status != 403
    return status in {401, 403} or status >= 500


def play(folder, number: int) -> None:
    text = CATALOG.replace("1000.0", "1e6")
    server = Server(folder, text)
    tokens = {role: server.access.create(role, role) for role in ROLES[3:]}
    tokens["ended"] = server.access.create("ended", "admin")
    server.access.revoke("ended")
    tokens["forged"] = tokens["admin"][:-3] + "AAA"
    routes = routes_of(server.app)
    rng = random.Random(5)  # noqa: S311

    async def all_of_them() -> list:
        found = []
        pairs = list(itertools.product(routes, ROLES))
        drawn = [rng.choice(pairs) for _ in range(number - len(pairs))]
        for route, role in [*pairs, *drawn]:
            method, path = route
            address = path.replace("{dataset}", "words").replace("{stream}", "a")
            address = re.sub(r"\{job\}", "0" * 32, address).replace("{entry}", "1")
            body = BODIES.get(path.rsplit("/", 1)[-1], {})
            headers = dict(rng.sample(ODD, rng.randint(0, 3)))
            headers.setdefault("content-type", "application/json")
            given = [*headers.items(), ("idempotency-key", next(KEYS))]
            if role in tokens:
                given.append(("authorization", f"Bearer {tokens[role]}"))
            rng.shuffle(given)
            status = await called(server.app, method, address, given, json.dumps(body).encode())
            if wrong(route, role, status):
                found.append((role, route, dict(given), status))
        return found

    try:
        assert asyncio.run(all_of_them()) == []
        ledger = server.service.reports.ledger
        assert {spend.analyst for spend in ledger.recent("words")} <= {"analyst", "admin"}
    finally:
        server.service.close()
        server.tables.close()


@pytest.mark.slow
def test_no_header_changes_who_may_do_what(tmp_path, monkeypatch):
    """Every role at every route, and more at random; `make service-torture` sends 10,000."""
    monkeypatch.setattr(senders, "STRANGER_SECONDS", 0.0)
    play(tmp_path, int(os.environ.get("DPTOPK_REQUESTS", "250")))


def test_every_route_says_what_it_asks_of_its_sender(tmp_path):
    """A route that spends or is an administrator's depends on that; the others on a token."""
    server = Server(tmp_path)

    def needs(dependant) -> set:
        inner = (needs(one) for one in dependant.dependencies)
        return {dependant.call}.union(*inner)

    seen = set()
    for route in [*routes.router.routes, *streams.router.routes]:
        assert isinstance(route, APIRoute)
        for method in route.methods:
            asked = needs(route.dependant)
            assert authentication.person_of in asked
            assert (authentication.spender_of in asked) == ((method, route.path) in SPENDS)
            is_of_analysts = (method, route.path) in SPENDS | CALLS_OFF
            assert (authentication.questioner_of in asked) == is_of_analysts
            assert (authentication.admin_of in asked) == ((method, route.path) in ADMIN)
            seen.add((method, route.path))
    assert SPENDS | ADMIN <= seen
    assert seen == set(routes_of(server.app))
    server.service.close()
    server.tables.close()
