"""Strangers cannot stop the service: connections, heads of requests and slow senders, on loopback."""

from __future__ import annotations

import json
import resource
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from types import SimpleNamespace

import pytest

from dptopk.service import connections
from dptopk.service.connection_limits import ConnectionLimits, ConnectionPhase, Connections

from .conftest import Server

SMALL = ConnectionLimits(total=40, strangers=30, of_address=30, of_analyst=10)
KB = 1024


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("connections")).running() as running:
        yield running


@pytest.fixture
def server(running):
    """One server for all of these tests, with its usual limits."""
    running.connections._limits = ConnectionLimits()
    return running


def connect(server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=120)


def status_of(connection: socket.socket, method: str = "GET") -> int:
    """The status of the next answer, which is read to its end; 0 where the connection ended without
    one.
    """
    answer = HTTPResponse(connection, method=method)
    try:
        answer.begin()
    except (ConnectionError, HTTPException):
        return 0
    with suppress(ConnectionError, HTTPException):
        answer.read()
    return answer.status


def asked(server, sent: bytes) -> int:
    with connect(server) as connection:
        with suppress(ConnectionError):
            connection.sendall(sent)
        return status_of(connection, sent[:5].decode("latin-1").strip())


def head(server, path: str, who: str | None = None, method: str = "GET", *lines: str) -> bytes:
    given = [f"{method} {path} HTTP/1.1", "Host: x", *lines]
    if who is not None:
        given.append(f"Authorization: Bearer {server.tokens[who]}")
    return ("\r\n".join(given) + "\r\n\r\n").encode()


def served(server, times: int, who: str = "bob") -> list[int]:
    """The statuses of requests of an analyst, each on a connection of its own."""
    return [asked(server, head(server, "/v1/me", who)) for _ in range(times)]


@contextmanager
def silent(server, number: int, sent: bytes, *, answered: bool):
    """Connections on which this was sent, and which stay open."""
    with ExitStack() as stack:
        held = []
        for _ in range(number):
            connection = stack.enter_context(connect(server))
            connection.sendall(sent)
            if answered:
                assert status_of(connection) == 200
            held.append(connection)
        yield held


def test_idle_connections_of_strangers_make_room(server):
    server.connections._limits = SMALL
    with silent(server, 60, head(server, "/health"), answered=True) as held:
        assert served(server, 20) == [200] * 20
        assert status_of(held[0]) == 0  # the one that was idle longest
        assert asked(server, head(server, "/page.css")) == 200


def test_silent_connections_and_half_heads_make_room(server):
    server.connections._limits = SMALL
    with silent(server, 40, b"", answered=False), silent(server, 40, b"GET / HT", answered=False):
        assert served(server, 20) == [200] * 20


def test_unfinished_bodies_of_one_analyst_stop_nobody_else(server):
    server.connections._limits = SMALL
    sent = head(server, "/v1/divide", "ann", "POST", "Content-Length: 99")
    with silent(server, 60, sent, answered=False):
        assert served(server, 20) == [200] * 20
        assert asked(server, head(server, "/health")) == 200


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["keep-alive", "bodies"])
def test_hundreds_of_connections_at_the_usual_limits(server, attack):
    """800 answered connections of strangers broke 66 of 66 new ones; 1,000 bodies did the same."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files[1] != resource.RLIM_INFINITY and files[1] < 4096:
        pytest.skip("this process may not open 4,096 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, files[1]))
    server.connections._limits = ConnectionLimits()
    body = head(server, "/v1/divide", "ann", "POST", "Content-Length: 99")
    sent = body if attack == "bodies" else head(server, "/health")
    number = 1000 if attack == "bodies" else 800
    try:
        with silent(server, number, sent, answered=attack != "bodies"):
            assert served(server, 66) == [200] * 66
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


LONG = "x" * 200 * KB
CHUNKED = "Transfer-Encoding: chunked"
ENDLESS = {
    "request line": f"GET /{LONG} HTTP/1.1\r\n",
    "query": f"GET /health?{LONG} HTTP/1.1\r\n",
    "method": LONG,
    "name": f"GET / HTTP/1.1\r\n{LONG}",
    "value": f"GET / HTTP/1.1\r\na: {LONG}",
    "many headers": "GET / HTTP/1.1\r\n" + "a: b\r\n" * 200,
    "folded": "GET / HTTP/1.1\r\na: b" + "\r\n c" * 50 * KB,
    "blank lines": "\r\n" * 100 * KB,
    "chunk extension": f"POST /v1/divide HTTP/1.1\r\n{CHUNKED}\r\n\r\n1;{LONG}",
    "small chunks": f"POST /v1/divide HTTP/1.1\r\n{CHUNKED}\r\n\r\n" + "1\r\na\r\n" * 50 * KB,
    "trailer": f"POST /v1/divide HTTP/1.1\r\n{CHUNKED}\r\n\r\n0\r\na: {LONG}",
    "chunk size": f"POST /v1/divide HTTP/1.1\r\n{CHUNKED}\r\n\r\n" + "0" * 200 * KB,
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_head_without_end_is_refused(server, kind):
    """The parser's work grew with the square of the head: seconds in which nobody was answered."""
    began = time.process_time()
    assert asked(server, ENDLESS[kind].encode()) in {400, 401, 431}
    assert time.process_time() - began < 0.5
    assert served(server, 1) == [200]


@pytest.mark.parametrize("kind", ["value", "name", "request line", "query", "many headers"])
def test_a_long_head_is_told_431(server, kind):
    assert asked(server, ENDLESS[kind].encode()) == 431


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (ENDLESS["many headers"], "The request has more than 100 headers, or"),
        ("no request\r\n\r\n", "The request is not one of HTTP"),
    ],
)
def test_a_refused_head_says_what_is_wrong_with_it(server, sent, said):
    with connect(server) as connection:
        with suppress(ConnectionError):
            connection.sendall(sent.encode())
        received = b""
        while piece := connection.recv(KB):
            received += piece
    body = json.loads(received.partition(b"\r\n\r\n")[2])
    assert body["message"].startswith(said)


def test_the_limit_of_a_head_is_exact(server):
    rest = head(server, "/health", None, "GET", "a: ")
    room = connections.MOST_HEAD_BYTES - len(rest)
    longest, longer = (rest.replace(b"a: ", b"a: " + b"x" * size) for size in (room - 1, room))
    assert asked(server, longest) == 200
    assert asked(server, longer) in {200, 431}
    assert asked(server, longer + b"x") == 431 or len(longer) == connections.MOST_HEAD_BYTES
    with connect(server) as connection:  # each request of a connection has the whole length
        for _ in range(3):
            connection.sendall(longest)
            assert status_of(connection) == 200


def test_trailers_are_no_headers(server):
    """They were added to the headers of the request while it was answered."""
    begin = head(server, "/v1/divide", None, "POST", CHUNKED)
    token = f"Authorization: Bearer {server.tokens['ann']}"
    assert asked(server, begin + f"2\r\n{{}}\r\n0\r\n{token}\r\n\r\n".encode()) == 401


def test_a_head_that_does_not_come_ends_after_each_answer(server, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with connect(server) as connection:
        connection.sendall(head(server, "/health"))
        assert status_of(connection) == 200
        sent = 0
        with suppress(ConnectionError):
            for byte in b"GET /" + b"x" * 500:  # a byte from time to time is no head
                connection.sendall(bytes([byte]))
                sent += 1
                time.sleep(0.02)
        assert status_of(connection) == 0
        assert sent < 500


def test_blank_lines_between_requests_do_not_keep_a_connection(server, monkeypatch):
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.3)
    with connect(server) as connection:
        connection.sendall(head(server, "/health"))
        assert status_of(connection) == 200
        sent = 0
        with suppress(ConnectionError):
            while sent < 500:
                connection.sendall(b"\r\n")
                sent += 1
                time.sleep(0.02)
        assert sent < 500


def test_a_body_of_a_refused_request_is_not_read_for_ever(server, monkeypatch):
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.3)
    with connect(server) as connection:
        connection.sendall(head(server, "/v1/divide", None, "POST", "Content-Length: 999999999"))
        assert status_of(connection) == 401
        sent = 0
        with pytest.raises(ConnectionError):
            for _ in range(3000):
                sent += connection.send(b"x" * 1000)
                time.sleep(0.01)
        assert sent < 2_000_000


def test_pipelined_requests_are_answered_in_order_and_limited(server):
    with connect(server) as connection:
        connection.sendall(head(server, "/v1/me", "ann") * 3)
        got = b""
        while got.count(b"HTTP/1.1 200") < 3:
            got += connection.recv(65_536)
        connection.sendall(head(server, "/health") * 2000)
        got = b""
        while piece := connection.recv(65_536):
            got += piece
        assert 1 <= got.count(b"HTTP/1.1 200") < 500


def test_an_answer_that_is_not_fetched_ends(server, monkeypatch):
    monkeypatch.setattr(connections, "SEND_SECONDS", 0.3)
    real = connections.LimitedConnection.connection_made

    def connection_made(self, transport):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        real(self, transport)

    monkeypatch.setattr(connections.LimitedConnection, "connection_made", connection_made)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(connect(server).getpeername())
        connection.settimeout(120)
        with suppress(ConnectionError):
            for _ in range(3000):
                connection.sendall(head(server, "/page.js"))
                time.sleep(0.01)
            pytest.fail("answers were written for a reader who takes none")
    assert served(server, 1) == [200]


def test_no_other_protocol_is_spoken(server):
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    with connect(server) as connection:
        connection.sendall(head(server, "/health", None, "GET", *upgrade) + b"x" * 1000)
        assert status_of(connection) == 200
        assert status_of(connection) == 0
    assert asked(server, b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n") in {400, 404, 405}


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /v1/me HTTP/1.0", 200),
        ("GET http://other.example/v1/me HTTP/1.1", 200),
        ("GET /v1/%6de HTTP/1.1", 200),
        ("GET /v1/../v1/me HTTP/1.1", 404),
        ("GET //v1/me HTTP/1.1", 404),
        ("HEAD /v1/me HTTP/1.1", 405),
        ("OPTIONS /v1/me HTTP/1.1", 405),
        ("OPTIONS * HTTP/1.1", 404),
        ("GET /v1/m\xe9 HTTP/1.1", 400),
    ],
)
def test_odd_request_lines(server, line, status):
    sent = f"{line}\r\nHost: x\r\nAuthorization: Bearer {server.tokens['ann']}\r\n\r\n"
    assert asked(server, sent.encode("latin-1")) == status


class FakeConnection(SimpleNamespace):
    """A connection as its limits see it."""

    __hash__ = object.__hash__

    def end(self) -> None:
        self.ended.append(self.name)


def places(ended: list, *given: tuple[str, str, ConnectionPhase]) -> list[FakeConnection]:
    return [
        FakeConnection(
            name=name, address=address, phase=phase, since=time, analyst=None, ended=ended
        )
        for time, (name, address, phase) in enumerate(given)
    ]


def test_an_address_has_a_limit_of_its_own():
    ended: list[str] = []
    limits = Connections(ConnectionLimits(total=9, strangers=9, of_address=2, of_analyst=9))
    for place in places(
        ended,
        ("other", "b", ConnectionPhase.IDLE),
        ("busy", "a", ConnectionPhase.ANSWERING),
        ("half", "a", ConnectionPhase.RECEIVING),
        ("idle", "a", ConnectionPhase.IDLE),
        ("last", "a", ConnectionPhase.RECEIVING),
    ):
        limits.enter(place)
    assert ended == ["idle", "half"]


def test_strangers_leave_places_to_holders_of_a_token():
    ended: list[str] = []
    limits = Connections(ConnectionLimits(total=3, strangers=2, of_address=9, of_analyst=2))
    known, *others = places(ended, *((f"{n}", f"{n}", ConnectionPhase.RECEIVING) for n in range(4)))
    limits.enter(known)
    limits.identify(known, "ann")
    for other in others:
        limits.enter(other)
    assert ended == ["1"]  # the oldest stranger, not the older one whose sender is known
    others[1].phase = others[2].phase = ConnectionPhase.ANSWERING
    (late,) = places(ended, ("late", "x", ConnectionPhase.RECEIVING))
    limits.enter(late)
    assert ended == ["1", "late"]


def test_an_analyst_has_a_limit_of_its_own():
    ended: list[str] = []
    limits = Connections(ConnectionLimits(total=9, strangers=9, of_address=9, of_analyst=2))
    for place in places(ended, *((f"{n}", "a", ConnectionPhase.IDLE) for n in range(4))):
        limits.enter(place)
        limits.identify(place, "ann")
    assert ended == ["0", "1"]
    (other,) = places(ended, ("bob", "a", ConnectionPhase.IDLE))
    limits.enter(other)
    limits.identify(other, "bob")
    limits.leave(other)
    limits.leave(other)
    assert (limits._number, limits._number_of_strangers) == (2, 0)


def test_a_connection_that_is_lost_while_its_token_is_looked_up_is_not_counted_again():
    limits = Connections(ConnectionLimits(total=9, strangers=9, of_address=9, of_analyst=2))
    for place in places([], *((f"{n}", "a", ConnectionPhase.ANSWERING) for n in range(4))):
        limits.enter(place)
        limits.leave(place)
        limits.identify(place, "ann")
        assert place.analyst is None
    assert (limits._number, limits._number_of_strangers) == (0, 0)


def test_all_places_taken_by_analysts_go_from_the_one_who_has_most():
    ended: list[str] = []
    limits = Connections(ConnectionLimits(total=3, strangers=1, of_address=9, of_analyst=3))
    mine = places(ended, *((f"{n}", "a", ConnectionPhase.IDLE) for n in range(3)))
    for place, who in zip(mine, ("bob", "ann", "ann"), strict=True):
        limits.enter(place)
        limits.identify(place, who)
    (late,) = places(ended, ("late", "x", ConnectionPhase.ANSWERING))
    limits.enter(late)
    assert ended == ["1"]


@pytest.mark.parametrize("files", [1, 100, 256, 1024, 2**20])
def test_a_process_with_few_files_has_fewer_places(files):
    limits = ConnectionLimits.for_files(files)
    assert 3 <= limits.of_address <= limits.strangers < limits.total <= 800
    assert limits.total <= max(16, files - 224)
    assert limits.of_analyst >= 2


def test_whoever_leaves_before_the_answer_is_no_error(server, caplog):
    """A line of the log for each request of a stranger who does not wait fills a disk."""
    for _ in range(50):
        with connect(server) as connection:
            connection.sendall(head(server, "/health") * 3)
    assert served(server, 3) == [200] * 3
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_health_is_told_to_everybody(server):
    """It had a queue of its own, which one stranger filled."""
    with ExitStack() as stack:
        asking = [stack.enter_context(connect(server)) for _ in range(60)]
        for connection in asking:
            connection.sendall(head(server, "/health"))
        assert {status_of(connection) for connection in asking} == {200}


def test_analysts_who_take_all_places_leave_some_to_newcomers():
    ended: list[str] = []
    limits = Connections(ConnectionLimits(total=9, strangers=8, of_address=9, of_analyst=3))
    mine = places(ended, *((f"{n}", "a", ConnectionPhase.IDLE) for n in range(9)))
    for number, place in enumerate(mine):
        limits.enter(place)
        limits.identify(place, f"analyst {number // 3}")
    (new,) = places(ended, ("new", "x", ConnectionPhase.RECEIVING))
    limits.enter(new)
    assert ended == ["0"]
