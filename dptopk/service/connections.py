"""One connection, with limits on the time its sender may take and on the length of a request's
head.

uvicorn reads a head of any length, waits for one for ever, and leaves a connection open whose
request never ends. The time its parser takes grows with the square of a head's length, so the
length is counted before the parser gets the bytes. All bytes of a request that are not its body
count as its head: the request line, names and values, sizes and extensions of chunks, and trailers,
which are dropped.
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

HEAD_SECONDS = 10.0  # the head of a request must come within this time
MESSAGE_SECONDS = 30.0  # the body of a request must come within this time
IDLE_SECONDS = 5.0  # the next request must begin within this time
SEND_SECONDS = 30.0  # some of an answer must be fetched within this time
LINGER_SECONDS = 2.0  # the rest of a request that was refused is read and dropped for so long,
LINGER_BYTES = 1_000_000  # and at most so much of it

MOST_HEAD_BYTES = 65_536  # a request whose first lines and headers are longer is refused
MOST_HEADERS = 100  # and one with more headers
TOO_LONG_HEAD = (
    f"The request has more than {MOST_HEADERS} headers, or its first line and headers are longer "
    f"than {MOST_HEAD_BYTES} bytes"
)
MOST_PIPELINED = 16  # the requests that may wait for the answer to the one before
PIECE_BYTES = 4096  # the bytes that the parser gets at a time

# One of several workers that has given no sign of life for so long is replaced. Its imports alone,
# before which it can give none, take more than uvicorn's 5 s where processors are busy.
SILENT_SECONDS = 120

_OPEN: WeakKeyDictionary[ServerState, Connections] = WeakKeyDictionary()


def open_connections(state: ServerState) -> Connections:
    """Return the open connections of a worker, by uvicorn's record of the worker."""
    if state not in _OPEN:
        _OPEN[state] = Connections(ConnectionLimits.for_files(_file_limit()))
    return _OPEN[state]


def uvicorn_config(app: FastAPI, host: str, port: int) -> uvicorn.Config:
    """Return uvicorn's configuration for one worker, whose connections are limited.

    Args:
        app: the application of the worker.
        host: the host at whose address it is served.
        port: the port.
    """
    return uvicorn.Config(app, host=host, port=port, **SETTINGS)


def _file_limit() -> int:
    """Return how many files this process may have open; 1024 on a system that does not say."""
    try:
        import resource
    except ImportError:  # another system than Unix
        return 1024
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft_limit


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection with limits of time and length, one of a limited number.

    Attributes:
        address: the address of the other end.
        analyst: the analyst whose valid token it has shown last; None: nobody's.
        phase: what the connection is doing.
        since: when it came to this phase, in seconds of the event loop's clock.
    """

    address = ""
    analyst: str | None = None
    phase = ConnectionPhase.RECEIVING
    since = 0.0

    _deadline: asyncio.TimerHandle | None = None  # ends the connection if the phase lasts too long
    _fetch_deadline: asyncio.TimerHandle | None = None  # ends it if an answer is not fetched
    _head_bytes = 0  # the bytes of this request's head that have come
    _body_bytes = 0  # the bytes of a body in the piece that the parser gets now
    _in_head = True  # whether the next byte is of a head, or begins one
    _in_request = False
    _completed = False  # whether a request ended in the piece that the parser gets now
    _too_large = False
    _dropped: int | None = None  # the bytes that were dropped; None: bytes are still read

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and wait for the first request; if there are too many connections,
        this one or another ends.
        """
        super().connection_made(transport)  # type: ignore[arg-type]
        self.address = self.client[0] if self.client else ""
        self._begin_phase(ConnectionPhase.RECEIVING, HEAD_SECONDS)
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count one connection less, and stop its timers."""
        super().connection_lost(exc)
        self._connections.leave(self)
        self._cancel_deadline()
        self._cancel_fetch_deadline()

    def eof_received(self) -> None:
        """End the connection when the other end sends nothing more; requests under way are not
        answered.
        """
        self._disconnect()

    def data_received(self, data: bytes) -> None:
        """Give the bytes to the parser in small pieces, as long as the request is short enough."""
        self._unset_keepalive_if_required()  # uvicorn's timer; the phases have timers of their own
        unread = memoryview(data)
        while unread and self._dropped is None and not self.transport.is_closing():
            if self._in_head:
                size = min(PIECE_BYTES, MOST_HEAD_BYTES - self._head_bytes)
            else:
                size = PIECE_BYTES
            self._feed(bytes(unread[:size]))
            unread = unread[size:]
        if unread and self._dropped is not None:
            self._drop(len(unread))

    def pause_writing(self) -> None:
        """Limit the time in which some of an answer must be fetched; the transport's buffer is
        full.
        """
        super().pause_writing()
        self._fetch_deadline = self.loop.call_later(SEND_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """End the limit of ``pause_writing``: some of the answer was fetched."""
        super().resume_writing()
        self._cancel_fetch_deadline()

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Limit the time of the request's head, whose first byte has come, and let the application
        find the connection, in the state of the request.
        """
        super().on_message_begin()
        self._in_request = True
        self.scope["state"]["connection"] = self
        if self.phase is ConnectionPhase.IDLE:
            self._begin_phase(ConnectionPhase.RECEIVING, HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header to the request; refuse too many, and drop trailers.

        uvicorn would add a trailer to the headers of a request that is being answered.

        Raises:
            ValueError: for one header too many, which ends the parser's work.
        """
        if not self._in_head:
            return
        if len(self.headers) >= MOST_HEADERS:
            self._too_large = True
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Limit the time of the request's body: its head has come."""
        super().on_headers_complete()
        self._in_head = False
        if self.phase is ConnectionPhase.RECEIVING:
            self._set_deadline(MESSAGE_SECONDS, self.end)

    def on_body(self, body: bytes) -> None:
        """Count a part of the body, which is no part of the head."""
        super().on_body(body)
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        """Let the request be answered without a limit of time: all of it has come."""
        super().on_message_complete()
        self._in_head = True
        self._in_request = False
        self._completed = True
        if self.cycle.response_complete:  # it was answered before its end had come
            return
        self._begin_phase(ConnectionPhase.ANSWERING)

    # uvicorn calls this.

    def on_response_complete(self) -> None:
        """Begin the phase that follows an answer, which is written as far as the connection is
        concerned, but perhaps not fetched yet.

        Which phase follows depends on what has come of this request and the next one.
        """
        next_is_complete = bool(self.pipeline)  # uvicorn takes it out, and begins its answer
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():  # it closes once the answer is fetched
            self._begin_phase(ConnectionPhase.RECEIVING, SEND_SECONDS, self._abort)
        elif next_is_complete:
            self._begin_phase(ConnectionPhase.ANSWERING)
        elif self._in_request and not self._in_head:
            # It was answered before its body had come, and the rest of the body is of no use.
            self._stop_sending()
        elif self._in_request:  # a part of the next request's head has come
            self._begin_phase(ConnectionPhase.RECEIVING, HEAD_SECONDS)
        elif self.transport.get_write_buffer_size():  # the other end is still fetching the answer
            self._begin_phase(ConnectionPhase.IDLE, SEND_SECONDS)
        else:
            self._begin_phase(ConnectionPhase.IDLE, IDLE_SECONDS)

    # The service calls these.

    def identify(self, analyst: str) -> None:
        """Record that a request on this connection has shown a valid token of an analyst."""
        self._connections.identify(self, analyst)

    @property
    def gone(self) -> bool:
        """Return whether the connection is closing, so that nobody can be answered."""
        return self.transport.is_closing()

    def end(self) -> None:
        """End the connection now; an answer that was not sent yet is lost."""
        self._disconnect()
        if self.transport.get_write_buffer_size():  # ``close`` would wait until it is fetched
            self.transport.abort()
        else:
            self.transport.close()

    @property
    def _connections(self) -> Connections:
        """Return the open connections of this worker, of which this is one."""
        return open_connections(self.server_state)

    def _feed(self, piece: bytes) -> None:
        """Give some bytes to the parser; refuse a request that it cannot read or that is
        too long.
        """
        self._body_bytes = 0
        self._completed = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._answer_and_close()  # no other protocol is spoken: what follows is not read
            return
        except httptools.HttpParserError:
            if self._too_large:
                self._refuse(431, TOO_LONG_HEAD)
            else:
                self._refuse(400, "The request is not one of HTTP")
            return
        self._count_head(len(piece) - self._body_bytes)
        if self._head_bytes >= MOST_HEAD_BYTES:
            self._refuse(431, TOO_LONG_HEAD)
        elif len(self.pipeline) >= MOST_PIPELINED:
            self._answer_and_close()

    def _count_head(self, head_bytes: int) -> None:
        """Count bytes of a piece that are not a body's towards the head of the request.

        If one request ends in the piece and another begins, all of them count for the second one,
        which is an upper bound.
        """
        if not self._completed:
            self._head_bytes += head_bytes
        elif self._in_request:
            self._head_bytes = head_bytes
        else:
            self._head_bytes = 0

    def _refuse(self, status: int, message: str) -> None:
        """Refuse to read more of the request that is coming in, and end the connection.

        The refusal is sent unless the application is writing an answer: to an earlier request, or
        to this one, whose body it has begun to read. Then this answer is sent in its place.

        Args:
            status: the status of the refusal.
            message: the reason, in plain ASCII without quotation marks.
        """
        answered = self.cycle  # the request that the application is answering
        if answered is not None and not answered.response_complete:
            is_earlier_request = bool(self.pipeline) or self._in_head
            if is_earlier_request or answered.response_started:
                self._answer_and_close()
                return
            # It is this very request: what the application would answer is not sent.
            answered.disconnected = True
            answered.message_event.set()
        text = f'{{"error":"{status}","message":"{message}"}}'.encode()
        head = STATUS_LINE[status] + b"content-type: application/json\r\nconnection: close\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(text) + text)
        self._stop_sending()

    def _answer_and_close(self) -> None:
        """Read nothing more, and end the connection after the answers that are under way."""
        self._dropped = 0
        if self.cycle is None or self.cycle.response_complete:
            self._stop_sending()
        else:
            self.cycle.keep_alive = False

    def _stop_sending(self) -> None:
        """Send nothing more, and drop for a moment what still comes.

        To close at once would reset the connection, and the other end would lose an answer it has
        not read.
        """
        self._dropped = 0
        self._begin_phase(ConnectionPhase.IDLE, LINGER_SECONDS, self._abort)
        self.flow.resume_reading()  # uvicorn may have paused it, for a long body say
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _drop(self, size: int) -> None:
        """Count bytes that are dropped; end the connection if they are too many."""
        self._dropped = (self._dropped or 0) + size  # a number, once bytes are dropped
        if self._dropped > LINGER_BYTES:
            self._abort()

    # Timers.

    def _begin_phase(
        self,
        phase: ConnectionPhase,
        seconds: float | None = None,
        at_limit: Callable[[], Any] | None = None,
    ) -> None:
        """Begin a phase, which may take a number of seconds.

        Args:
            phase: the phase.
            seconds: the limit; None: it may take any time.
            at_limit: the function that is called if the phase lasts so long; None: ``end``.
        """
        self.phase = phase
        self.since = self.loop.time()
        if seconds is None:
            self._cancel_deadline()
        else:
            self._set_deadline(seconds, at_limit or self.end)

    def _set_deadline(self, seconds: float, at_limit: Callable[[], Any]) -> None:
        """Call a function after a number of seconds, unless the phase ends before.

        Args:
            seconds: how long the phase may take from now on.
            at_limit: the function.
        """
        self._cancel_deadline()
        self._deadline = self.loop.call_later(seconds, at_limit)

    def _cancel_deadline(self) -> None:
        """Stop the timer of the phase."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_fetch_deadline(self) -> None:
        """Stop the timer of an answer that is not fetched."""
        if self._fetch_deadline is not None:
            self._fetch_deadline.cancel()
            self._fetch_deadline = None

    def _disconnect(self) -> None:
        """Tell the application that the other end has gone, for each request that is being
        answered.

        Otherwise it would write to a connection that has ended, which logs an error for each
        request.
        """
        waiting = [cycle for cycle, _ in self.pipeline]
        for cycle in (self.cycle, *waiting):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _abort(self) -> None:
        """End the connection at once, whatever is still to be sent."""
        self._disconnect()
        self.transport.abort()


class UvicornSettings(TypedDict):
    """The settings of uvicorn that the service makes, apart from the address.

    Attributes:
        http: the class of connections.
        ws: "none": there are no web sockets.
        log_level, access_log: what uvicorn logs.
        server_header: whether answers name uvicorn.
        timeout_worker_healthcheck: the seconds without a sign of life after which one of several
            workers is replaced.
    """

    http: type[asyncio.Protocol]
    ws: Literal["none"]
    log_level: str
    access_log: bool
    server_header: bool
    timeout_worker_healthcheck: int


SETTINGS: UvicornSettings = {
    "http": LimitedConnection,
    "ws": "none",
    "log_level": "warning",
    "access_log": False,
    "server_header": False,
    "timeout_worker_healthcheck": SILENT_SECONDS,
}
