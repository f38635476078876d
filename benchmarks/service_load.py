"""How many requests a second the service answers: free ones, and ones that spend. Only this machine
is spoken to.

python benchmarks/service_load.py [--seconds 5] [--clients 8] [--workers 1]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

CATALOG = """
ledger = "ledger.db"
rates = { free = 1e6, spending = 1e6 }
[datasets.macbeth]
source = "macbeth"
labels_per_user = 1
budget = { epsilon = 100.0, delta = 1e-3 }
"""
ASKED = {"k": 10, "epsilon": 0.001, "delta": 1e-9, "counts": "laplace", "method": "threshold"}


def hammer(url: str, token: str, seconds: float, clients: int, send) -> tuple[float, list[int]]:
    """Requests a second by several clients at once, and the statuses that were not 200."""
    end, done, wrong = time.monotonic() + seconds, [0] * clients, []

    def work(number: int) -> None:
        with httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60
        ) as client:
            while time.monotonic() < end:
                status = send(client, number, done[number]).status_code
                done[number] += 1
                if status != 200:
                    wrong.append(status)

    start = time.monotonic()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.monotonic() - start), wrong


def busy(process: int) -> float:
    """Processor seconds of a process and of its children (Linux)."""
    tasks = Path(f"/proc/{process}/task")
    children = [
        int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()
    ]
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") + sum(map(busy, children))


def measured(
    seconds: float, clients: int, workers: int
) -> Iterator[tuple[str, float, float, list[int]]]:
    """Each kind of request: its name, how many a second, milliseconds of processor time each,
    statuses but 200.
    """
    program = [sys.executable, "-m", "dptopk"]
    with tempfile.TemporaryDirectory() as folder:
        catalog = Path(folder) / "catalog.toml"
        catalog.write_text(CATALOG, encoding="utf-8")
        added = subprocess.run(
            [*program, "ledger", "analyst", "add", str(catalog), "ann"],
            capture_output=True,
            text=True,
            check=True,
        )
        token, port = re.search(r"dptopk_\S+", added.stdout)[0], 8123
        url = f"http://127.0.0.1:{port}"
        command = [*program, "serve", str(catalog), "--port", str(port), "--workers", str(workers)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            answers(url)
            for name, send in KINDS.items():
                with httpx.Client(
                    base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60
                ) as first:
                    send(first, "first", 0)  # what is made once is not measured
                before = busy(server.pid)
                rate, wrong = hammer(url, token, seconds, clients, send)
                yield name, rate, 1000 * (busy(server.pid) - before) / (rate * seconds), wrong
        finally:
            server.terminate()
            server.wait()


def answers(url: str) -> None:
    """Wait until somebody answers there."""
    while True:
        try:
            httpx.get(url)
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return


KINDS = {
    "data sets": lambda client, *_: client.get("/v1/datasets"),
    "a plan that was made before": lambda client, *_: client.post(
        "/v1/datasets/macbeth/plan", json=ASKED
    ),
    "the budget": lambda client, *_: client.get("/v1/datasets/macbeth/budget"),
    "an answer that spends": lambda client, number, n: client.post(
        "/v1/datasets/macbeth/topk", json=ASKED, headers={"Idempotency-Key": f"load-{number}-{n}"}
    ),
    "the same answer again": lambda client, number, _: client.post(
        "/v1/datasets/macbeth/topk", json=ASKED, headers={"Idempotency-Key": f"load-{number}-0"}
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{options.clients} clients, {options.workers} worker(s), {os.cpu_count()} processors, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    for name, rate, each, wrong in measured(options.seconds, options.clients, options.workers):
        print(
            f"{name}: {rate:.0f} a second, {each:.2f} ms of the server's processor time each; ",
            end="",
        )
        print(f"{len(wrong)} refused {sorted(set(wrong))}")


if __name__ == "__main__":
    main()
