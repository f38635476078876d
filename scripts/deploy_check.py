"""The recipes of docs/deploy.md tried: nginx with TLS before the service, progress as events, the
systemd unit.

python scripts/deploy_check.py: needs nginx and openssl; systemd-analyze where it is. Only this
machine is spoken to.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

PAGE = Path(__file__).parents[1] / "docs" / "deploy.md"
PORT, TLS_PORT = 8156, 8157
ASKED = {
    "k": 3,
    "epsilon": 0.1,
    "delta": 1e-8,
    "counts": "laplace",
    "method": "threshold",
    "where": {"section": "arts"},
}


def block(containing: str) -> str:
    """The one code block of the page that holds a text."""
    (found,) = (
        part
        for part in re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
        if containing in part
    )
    return found


def nginx(folder: Path) -> subprocess.Popen[bytes]:
    """Start nginx with the page's server block and a certificate made for this run."""
    certificate = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    files = [
        "-keyout",
        str(folder / "topk.key"),
        "-out",
        str(folder / "topk.pem"),
        "-addext",
        "subjectAltName=DNS:localhost",
    ]
    subprocess.run(["openssl", "req", *certificate, *files], check=True, capture_output=True)
    server = block("ssl_certificate").replace("listen 443", f"listen 127.0.0.1:{TLS_PORT}")
    server = server.replace("/etc/ssl/", f"{folder}/").replace(
        "127.0.0.1:8000", f"127.0.0.1:{PORT}"
    )
    server = server.replace("topk.example.org", "localhost")
    text = (
        f"daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents "
        f"{{}}\nhttp {{\naccess_log off;\n"
    )
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(f"{text}{paths}{server}}}\n", encoding="utf-8")
    return subprocess.Popen(
        ["nginx", "-c", str(folder / "nginx.conf"), "-e", f"{folder}/error.log"]
    )


def unit(folder: Path) -> str:
    """What systemd-analyze says of the unit, its program replaced by one that is here."""
    if shutil.which("systemd-analyze") is None:
        return "not tried: systemd-analyze is not installed"
    text = re.sub(r"(ExecStart(?:Pre)?)=\S+", rf"\1={sys.executable}", block("[Service]")).replace(
        "User=dptopk", "User=nobody"
    )
    (folder / "dptopk.service").write_text(text, encoding="utf-8")
    said = subprocess.run(
        ["systemd-analyze", "verify", str(folder / "dptopk.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    return (said.stdout + said.stderr).strip() or "accepted"


def asked(
    path: str, token: str, trust: ssl.SSLContext, body: object = None, method: str | None = None
):
    """A request through the proxy."""
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Idempotency-Key": "deploy-check-1",
    }
    data = None if body is None else json.dumps(body).encode()
    request = Request(
        f"https://localhost:{TLS_PORT}{path}", data=data, headers=headers, method=method
    )
    return urlopen(request, context=trust, timeout=60)  # noqa: S310


def raw(trust: ssl.SSLContext, sent: bytes, *, wait: bool = True) -> tuple[ssl.SSLSocket, int]:
    """A connection through the proxy on which this was sent, and the status of its answer."""
    plain = socket.create_connection(("localhost", TLS_PORT), timeout=30)
    connection = trust.wrap_socket(plain, server_hostname="localhost")
    with suppress(OSError):  # the proxy may close before it has read all
        connection.sendall(sent)
    if not wait:
        return connection, 0
    line = connection.recv(4096)
    return connection, int(line.split()[1]) if line else 0


def head(path: str, token: str, *lines: str, method: str = "GET") -> bytes:
    """The head of a request."""
    given = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    return ("\r\n".join([*given, *lines]) + "\r\n\r\n").encode()


def flooded(trust: ssl.SSLContext, token: str) -> None:
    """What the proxy stops before it comes to the service."""
    for name, sent in {
        "a request line of 200 KB": head("/" + "x" * 200_000, token),
        "a header of 200 KB": head("/v1/me", token, "A: " + "x" * 200_000),
        "a body of 1 MB": head("/v1/divide", token, "Content-Length: 1000000", method="POST"),
        "two tokens": head("/v1/me", token, "Authorization: Bearer x"),
    }.items():
        status = raw(trust, sent)[1]
        print(f"{name}: {status}")
        assert status in {400, 401, 413, 414, 431}
    time.sleep(1)
    bodies = [
        raw(trust, head("/v1/divide", token, "Content-Length: 9", method="POST"), wait=False)[0]
        for _ in range(30)
    ]
    print("beside 30 unfinished bodies:", asked("/v1/me", token, trust).status)
    for body in bodies:
        body.close()
    time.sleep(1)
    kept = [raw(trust, head("/health", token)) for _ in range(40)]
    print("40 answered connections of one address:", {status for _, status in kept})
    slow = [
        raw(trust, head("/v1/divide", token, "Content-Length: 9", method="POST"), wait=False)[0]
        for _ in range(60)
    ]
    status = raw(trust, head("/v1/me", token))[1]
    print("beside 60 more that are not finished:", status)
    assert status == 429
    for connection in [*slow, *(connection for connection, _ in kept)]:
        connection.close()
    time.sleep(1)
    assert raw(trust, head("/v1/me", token))[1] == 200
    statuses = Counter(raw(trust, head("/health", token))[1] for _ in range(20))
    print("and afterwards:", dict(statuses))


def main() -> None:
    """Try all of it, and say what was seen."""
    missing = [program for program in ("nginx", "openssl") if shutil.which(program) is None]
    if missing:
        sys.exit(f"not tried: {' and '.join(missing)} must be installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("systemd unit:", unit(folder))
        command = [sys.executable, "-m", "dptopk", "serve", "--demo", "--port", str(PORT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            lines = [service.stdout.readline() for _ in range(3)]
            token = re.search(r"dptopk_\S+", lines[1])[0]
            proxy = nginx(folder)
            try:
                trust = ssl.create_default_context(cafile=str(folder / "topk.pem"))
                for _ in range(100):
                    try:
                        print("over TLS:", asked("/v1/me", token, trust).read().decode())
                        break
                    except OSError:
                        time.sleep(0.2)
                job = json.loads(
                    asked("/v1/datasets/articles/topk?wait=0", token, trust, ASKED).read()
                )["job"]
                with asked(f"/v1/jobs/{job}/events", token, trust) as events:
                    seen = []
                    for line in events:
                        if line.startswith(b"data: "):
                            now = json.loads(line[6:])
                            seen.append(
                                (
                                    now["stage"],
                                    now["done"],
                                    now["total"],
                                    round(time.monotonic() % 1000, 2),
                                )
                            )
                print("events through the proxy, as they came:", *seen, sep="\n  ")
                assert seen[-1][0] == "done"
                assert len({when for *_, when in seen}) > 1, (
                    "all events at once: the proxy holds them back"
                )
                flooded(trust, token)
            finally:
                proxy.terminate()
                proxy.wait()
                service.terminate()


if __name__ == "__main__":
    main()
