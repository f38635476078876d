"""The HTTP application: its routes, its limits on requests, and how errors are answered."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dptopk import errors
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.service.answering import KeyUsed
from dptopk.service.authentication import authenticate
from dptopk.service.catalog import Catalog
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.data import Unreadable
from dptopk.service.jobs import Cancelled
from dptopk.service.limits import Busy
from dptopk.service.messages import Refusal, in_words
from dptopk.service.routes import router
from dptopk.service.streams import router as streams
from dptopk.service.worker import Service, error_place

LOG = logging.getLogger("dptopk.service")

# A type of error, and the status and the word with which it is answered; the first type that fits
# counts.
STATUS_OF_ERROR: tuple[tuple[type[DptopkError], int, str], ...] = (
    (KeyUsed, 409, "key_used"),
    (Cancelled, 409, "cancelled"),
    (errors.ReleaseWithheld, 409, "withheld"),
    (errors.BudgetExceeded, 409, "budget_exceeded"),
    (Unreadable, 503, "data_unreadable"),
    (InvalidParameter, 422, "invalid"),
    (errors.IncompatibleCosts, 422, "invalid"),
    (errors.NotCertified, 422, "not_certified"),
    (errors.LedgerError, 503, "ledger"),
    (Busy, 429, "busy"),
)
REFUSED = "DPTOPK_REFUSED"  # names the file in which a worker writes why it did not begin
MOST_BYTES = 65_536  # the longest body of a request
BODY_SECONDS = 20.0  # a body must come within this time
LONGEST_MESSAGE = 2000  # of a message about a body, in characters
# The files of the web page: its scripts, and each address -> the file that is there.
SCRIPTS = (
    "page.js",
    "common.js",
    "csv.js",
    "answer.js",
    "divide.js",
    "owner.js",
    "streams.js",
    "api.js",
)
PAGE_FILES = {
    "": "index.html",
    "api": "api.html",
    "page.css": "page.css",
    **{name: name for name in SCRIPTS},
}
MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
SENT_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


def create_app(
    catalog: Catalog,
    *,
    wall: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> FastAPI:
    """Return the HTTP application that serves a catalog.

    Args:
        catalog: the catalog that is served.
        wall: the function that returns the time by which answers are sent on a schedule, in
            seconds.
        sleep: the function that waits for a number of seconds.

    Raises:
        LedgerError: when the ledger cannot be opened, does not fit the catalog, or lacks what its
            head says it held.
    """
    service = Service(catalog, wall=wall, sleep=sleep)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        """Close the worker's databases when the application ends."""
        yield
        service.close()

    app = FastAPI(
        title="dptopk",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # A redirect would be built from the request's Host, before any token is asked for.
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.service = service
    app.include_router(router)
    app.include_router(streams)
    for address, name in PAGE_FILES.items():
        app.add_api_route(f"/{address}", _page(name), methods=["GET"], include_in_schema=False)
    app.add_api_route(
        "/health", partial(_health, service), methods=["GET"], include_in_schema=False
    )
    app.add_exception_handler(DptopkError, _refusal_of_error)
    app.add_exception_handler(RequestValidationError, _refusal_of_body)
    app.add_exception_handler(HTTPException, _refusal_of_status)
    app.add_middleware(_Outermost, service=service)
    # FastAPI builds included routes at the first use of them: here, so that no request waits for it
    # and so that two applications of one process do not build theirs in two threads at a time.
    app.openapi()
    return app


def from_environment() -> FastAPI:
    """Return the application of one of several workers; the path of the catalog is in
    DPTOPK_CATALOG.

    If the catalog is refused, the worker writes the reason into the file that REFUSED names and
    ends, together with its parent process, which would start another worker for it.
    """
    try:
        return create_app(load_catalog(os.environ["DPTOPK_CATALOG"]))
    except DptopkError as error:
        Path(os.environ[REFUSED]).write_text(str(error), encoding="utf-8")
        os.kill(os.getppid(), signal.SIGTERM)
        raise SystemExit(1) from None


async def _health(service: Service) -> Response:
    """Return whether the ledger and the access database can be read, as status 200 or 503.

    They are checked at most once a second; all callers wait for one check together.
    """
    if await service.health():
        return JSONResponse({"status": "ok"}, status_code=200)
    return JSONResponse({"status": "failing"}, status_code=503)


def _page(name: str) -> Callable[[], Response]:
    """Return the route of a file of the web page."""
    _, _, ending = name.rpartition(".")
    media_type = MEDIA_TYPES[ending]

    def page() -> Response:
        """Return the file, read anew."""
        text = files("dptopk.service").joinpath("page", name).read_text(encoding="utf-8")
        return Response(text, media_type=f"{media_type}; charset=utf-8")

    return page


def problem(status: int, error: str, message: str) -> JSONResponse:
    """Return a refusal.

    Args:
        status: the status of HTTP.
        error: a word for the reason.
        message: one sentence for people; it quotes no data.
    """
    return JSONResponse({"error": error, "message": message}, status_code=status)


async def _refusal_of_error(_: Request, error: Exception) -> Response:
    """Return the refusal for an error of the library."""
    for error_type, status, word in STATUS_OF_ERROR:
        if isinstance(error, error_type):
            return problem(status, word, str(error))
    return problem(422, "refused", str(error))


async def _refusal_of_body(_: Request, error: Exception) -> Response:
    """Return the refusal of a request that does not fit its model; values of the request are not
    repeated.
    """
    # The handler is registered for this error alone.
    assert isinstance(error, RequestValidationError)  # noqa: S101
    words = in_words(error.errors())[:LONGEST_MESSAGE]
    # A name in the request may hold half of a surrogate pair, which UTF-8 has no bytes for.
    return problem(422, "invalid", words.encode("utf-8", "replace").decode())


async def _refusal_of_status(_: Request, error: Exception) -> Response:
    """Return the answer to a Refusal, or to an HTTPException of the framework's own, whose word is
    made of its message: "Not Found", for an address that there is not, has "not_found".
    """
    # The handler is registered for this error alone.
    assert isinstance(error, HTTPException)  # noqa: S101
    message = str(error.detail)
    word = error.word if isinstance(error, Refusal) else message.lower().replace(" ", "_")
    answer = problem(error.status_code, word, message)
    answer.headers.update(error.headers or {})
    return answer


class _LimitedBody:
    """The body of a request, which is read only when its sender is known, in limited time and up to
    a limited length.

    Args:
        request: the request.
        receive: the function that receives its messages.
    """

    def __init__(self, request: Request, receive: Receive) -> None:
        self._request = request
        self._receive = receive
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + BODY_SECONDS
        self._size = 0
        self._has_more = True

    async def receive(self) -> Message:
        """Return the next message of the request: a piece of its body or, after the last piece, the
        message that the sender has gone, for which there is no limit of time.

        Raises:
            Refusal: with status 401 or 429 for the sender, 408 for a body that comes too
                slowly, 413 for one that is too long, and 503 if tokens cannot be read.
        """
        try:
            # The body of a GET is not used; its route asks for the sender, where it needs one.
            if self._request.method != "GET":
                await authenticate(self._request)
        # FastAPI would take any error but an HTTPException for one of the body.
        except Busy as error:
            raise Refusal(429, "busy", str(error)) from None
        except LedgerError:
            word = "the_access_database_cannot_be_read"
            raise Refusal(503, word, "The access database cannot be read") from None
        seconds = None
        if self._has_more:
            seconds = max(0.0, self._deadline - self._clock())
        try:
            message = await asyncio.wait_for(self._receive(), seconds)
        except TimeoutError:
            reason = f"The body of the request did not come within {BODY_SECONDS:g} seconds"
            raise Refusal(408, "too_slow", reason) from None
        self._size += len(message.get("body", b""))
        self._has_more = message.get("more_body", False)
        if self._size > MOST_BYTES:
            reason = f"The body of the request is longer than {MOST_BYTES} bytes"
            raise Refusal(413, "too_large", reason)
        return message


class _AnswerWithHeaders:
    """The answer to one request, as it is sent, with the headers that all answers have.

    Args:
        send: the function that sends its messages.

    Attributes:
        status: the status of the answer; 0: nothing was sent yet.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send a message of the answer; the first one gets the headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", []), *SENT_HEADERS]
        await self._send(message)


class _Outermost:
    """The outermost layer of the application.

    It counts requests, adds headers, limits bodies, and answers an unforeseen error with a plain
    500, which has no message and no traceback. A body is read when the application asks for it,
    which FastAPI does before anything else.

    Args:
        app: the application whose requests it takes first.
        service: the worker, which counts requests.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what is no request, such as the start of the application, is handed
        on.

        Args:
            scope: what ASGI says of the request.
            receive: the function that receives its messages.
            send: the function that sends the answer's messages.

        Raises:
            RuntimeError: when the answer breaks off, so that the server ends the connection.
        """
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        answer = _AnswerWithHeaders(send)
        try:
            await self.app(scope, _LimitedBody(request, receive).receive, answer.send)
        except Exception as error:  # noqa: BLE001
            connection = getattr(request.state, "connection", None)
            # The other end may have left before it was answered.
            if connection is not None and connection.gone:
                return
            # A traceback may quote data.
            LOG.error("a request failed: %s", error_place(error))  # noqa: TRY400
            if answer.status:  # a part was sent, and nothing is left but to end the connection
                raise RuntimeError("the answer broke off") from None
            await problem(500, "internal", "internal error")(scope, receive, answer.send)
        finally:
            for name in getattr(request.state, "held", ()):
                self.service.open.leave(name)
            route = getattr(scope.get("route"), "path", "other")
            self.service.metrics.count_request(scope["method"], route, answer.status)
