"""One connection: how long its sender may take, how long the head of a request may be, and what
ends it.

uvicorn reads a head of any length, waits for one for ever, and keeps a connection open whose
request never ends. What its parser costs grows with the square of a head, so the length is counted
before the parser sees the bytes. All bytes of a request that are not its body count as its head:
the request line, names and values, sizes and extensions of chunks, and trailers, which are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, TypedDict
from weakref import WeakKeyDictionary

import httptools
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from dptopk.service.connection_limits import ConnectionLimits, ConnectionPhase, Connections

HEAD_SECONDS = 10.0  # in which the head of a request must come
MESSAGE_SECONDS = 30.0  # in which the rest of the request must come
IDLE_SECONDS = 5.0  # between two requests
SEND_SECONDS = 30.0  # in which some of an answer must be fetched
LINGER_SECONDS = 2.0  # for which the rest of a request that was refused is dropped
LINGER_BYTES = 1_000_000  # of it, at most

MOST_HEAD_BYTES = 65_536
MOST_HEADERS = 100
MOST_PIPELINED = 16  # requests that wait for the answer to the one before
PIECE = 4096  # bytes that the parser sees at a time

_OPEN: WeakKeyDictionary[ServerState, Connections] = WeakKeyDictionary()


def open_connections(state: ServerState) -> Connections:
    """The open connections of a worker, by uvicorn's record of it."""
    if state not in _OPEN:
        _OPEN[state] = Connections(ConnectionLimits.within(_files()))
    return _OPEN[state]


def configured(app: FastAPI, host: str, port: int) -> uvicorn.Config:
    """Uvicorn's configuration for one worker, which serves through limited connections."""
    return uvicorn.Config(app, host=host, port=port, **SETTINGS)


def _files() -> int:
    """Return how many files this process may open."""
    try:
        import resource
    except ImportError:  # another system than Unix
        return 1024
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection with limits of time and length, among a limited number of others."""

    address = ""
    analyst: str | None = None
    phase = ConnectionPhase.RECEIVING
    since = 0.0

    _deadline: asyncio.TimerHandle | None = None  # of the phase
    _unfetched: asyncio.TimerHandle | None = None  # of an answer that waits to be fetched
    _head_bytes = 0  # of this request, as far as it has come
    _body_bytes = 0  # of the piece that the parser sees now
    _in_head = True  # of a request, or between two
    _in_request = False
    _completed = False  # whether a request ended in the piece that the parser sees now
    _too_large = False
    _dropped: int | None = None  # bytes of a request whose rest is not read

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, and wait for the first request."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.address = self.client[0] if self.client else ""
        self._come_to(ConnectionPhase.RECEIVING, HEAD_SECONDS)
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self._connections.leave(self)
        self._cancel()
        self._fetched()

    def eof_received(self) -> None:
        """The other end sends nothing more, which ends the connection: nobody is answered."""
        self._forget()

    def data_received(self, data: bytes) -> None:
        """Let the parser see the bytes piece by piece, while the request is short enough."""
        self._unset_keepalive_if_required()
        rest = memoryview(data)
        while rest and self._dropped is None and not self.transport.is_closing():
            if self._in_head:
                size = min(PIECE, MOST_HEAD_BYTES - self._head_bytes)
            else:
                size = PIECE
            self._feed(bytes(rest[:size]))
            rest = rest[size:]
        if rest and self._dropped is not None:
            self._drop(len(rest))

    def pause_writing(self) -> None:
        """The answer waits to be fetched."""
        super().pause_writing()
        self._unfetched = self.loop.call_later(SEND_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """Some of the answer was fetched."""
        super().resume_writing()
        self._fetched()

    # What the parser says

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        super().on_message_begin()
        self._in_request = True
        self.scope["state"]["connection"] = self
        if self.phase is ConnectionPhase.IDLE:
            self._come_to(ConnectionPhase.RECEIVING, HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which would otherwise be added to the headers of a request that
        is being answered.
        """
        if not self._in_head:
            return
        if len(self.headers) >= MOST_HEADERS:
            self._too_large = True
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head has come."""
        super().on_headers_complete()
        self._in_head = False
        if self.phase is ConnectionPhase.RECEIVING:
            self._arm(MESSAGE_SECONDS, self.end)

    def on_body(self, body: bytes) -> None:
        """A part of the body, which is no part of the head."""
        super().on_body(body)
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        """The request has come."""
        super().on_message_complete()
        self._in_head = True
        self._in_request = False
        self._completed = True
        if self.cycle.response_complete:  # an answer that was given before the request had ended
            return
        self._come_to(ConnectionPhase.ANSWERING)

    # What uvicorn says

    def on_response_complete(self) -> None:
        """Wait for the next request; where this one has not ended, its rest is not waited for."""
        pipelined = bool(self.pipeline)
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            self._come_to(ConnectionPhase.RECEIVING, SEND_SECONDS, self._abort)
        elif pipelined:
            self._come_to(ConnectionPhase.ANSWERING)
        elif self._in_request and not self._in_head:
            self._linger()
        elif self._in_request:
            self._come_to(ConnectionPhase.RECEIVING, HEAD_SECONDS)
        else:
            unsent = self.transport.get_write_buffer_size()
            self._come_to(ConnectionPhase.IDLE, SEND_SECONDS if unsent else IDLE_SECONDS)

    # What the service says

    def identify(self, analyst: str) -> None:
        """A request on this connection has shown a valid token of an analyst."""
        self._connections.identify(self, analyst)

    @property
    def gone(self) -> bool:
        """Whether nobody can be answered any more."""
        return self.transport.is_closing()

    def end(self) -> None:
        """End now."""
        self._forget()
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    @property
    def _connections(self) -> Connections:
        return open_connections(self.server_state)

    def _feed(self, piece: bytes) -> None:
        """Let the parser see some bytes, and refuse a request that it cannot read or that is too
        long.
        """
        self._body_bytes = 0
        self._completed = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._answer_and_close()  # no other protocol is spoken: what follows is not read
            return
        except httptools.HttpParserError:
            self._refuse(431 if self._too_large else 400)
            return
        self._count(len(piece) - self._body_bytes)
        if self._head_bytes >= MOST_HEAD_BYTES:
            self._refuse(431)
        elif len(self.pipeline) >= MOST_PIPELINED:
            self._answer_and_close()

    def _count(self, outside: int) -> None:
        """Count bytes that are not a body's. Of a piece in which one request ends and another
        begins all of them count for the second one, which is an upper bound.
        """
        if self._completed:
            self._head_bytes = outside if self._in_request else 0
        else:
            self._head_bytes += outside

    def _refuse(self, status: int) -> None:
        """Answer that a request is not read, unless an answer of an earlier one is under way, after
        which the connection then ends.
        """
        cycle = self.cycle
        answering = cycle is not None and not cycle.response_complete
        if answering and (self.pipeline or self._in_head or cycle.response_started):
            self._answer_and_close()
            return
        if answering:  # this request, before it has ended: its own answer is never sent
            cycle.disconnected = True
            cycle.message_event.set()
        text = b'{"error":"%d","message":"The head of the request is not read"}' % status
        head = STATUS_LINE[status] + b"content-type: application/json\r\nconnection: close\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(text) + text)
        self._linger()

    def _answer_and_close(self) -> None:
        """Read nothing more; the connection ends after the answers that are under way."""
        self._dropped = 0
        if self.cycle is None or self.cycle.response_complete:
            self._linger()
        else:
            self.cycle.keep_alive = False

    def _linger(self) -> None:
        """Say that nothing more will be sent, and drop for a moment what still comes: to close at
        once would take back an answer that has not been read.
        """
        self._dropped = 0
        self._come_to(ConnectionPhase.IDLE, LINGER_SECONDS, self._abort)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _drop(self, size: int) -> None:
        self._dropped = (self._dropped or 0) + size
        if self._dropped > LINGER_BYTES:
            self._abort()

    # Time

    def _come_to(
        self,
        phase: ConnectionPhase,
        seconds: float | None = None,
        act: Callable[[], Any] | None = None,
    ) -> None:
        """Come to a phase, which may take a number of seconds; None: any time."""
        self.phase = phase
        self.since = self.loop.time()
        if seconds is None:
            self._cancel()
        else:
            self._arm(seconds, act or self.end)

    def _arm(self, seconds: float, act: Callable[[], Any]) -> None:
        self._cancel()
        self._deadline = self.loop.call_later(seconds, act)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _fetched(self) -> None:
        if self._unfetched is not None:
            self._unfetched.cancel()
            self._unfetched = None

    def _forget(self) -> None:
        """Let what is being answered find nobody: to write to a connection that has ended is an
        error of each request.
        """
        for cycle in (self.cycle, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _abort(self) -> None:
        self._forget()
        self.transport.abort()


class UvicornSettings(TypedDict):
    """The settings of uvicorn that the service makes, apart from the address."""

    http: type[asyncio.Protocol]
    ws: Literal["none"]
    log_level: str
    access_log: bool
    server_header: bool


SETTINGS: UvicornSettings = {
    "http": LimitedConnection,
    "ws": "none",
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
}
