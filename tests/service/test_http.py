"""The service over HTTP: who may do what, what it costs, what comes back."""

from __future__ import annotations

import itertools
import socket
import time

import pytest
import sqlalchemy as sa

from dptopk.errors import InvalidParameter
from dptopk.release.release import Release
from dptopk.service import access, senders
from dptopk.service.access import Access
from dptopk.service.tables import Tables

from .conftest import ASKED, WORDS, Server, write_words

KEYS = (f"question-{number}" for number in itertools.count())


def ask(client, dataset="words", key=None, **changes):
    headers = {"Idempotency-Key": key or next(KEYS)}
    return client.post(f"/v1/datasets/{dataset}/topk", json=ASKED | changes, headers=headers)


@pytest.mark.slow
def test_from_plan_to_answer_and_again(server):
    with server.client("ann") as ann:
        plan = ann.post("/v1/datasets/words/plan", json=ASKED).json()
        assert plan["epsilon"] <= 0.3
        assert plan["balance"]["total"]["share"] == 0
        answer = ask(ann, key="my-question")
        assert answer.status_code == 200
        release = Release.from_dict(answer.json()["release"])
        assert len(release) == 3
        widths = {interval["high"] - interval["low"] for interval in answer.json()["intervals"]}
        assert len(widths) == 1
        assert (
            2 * plan["error_bar"] <= widths.pop() <= 2.2 * plan["error_bar"]
        )  # shown before, for k labels that pass
        assert str(release.charge) == plan["charge"] == answer.json()["charge"]
        for row, interval in zip(
            answer.json()["release"]["rows"], answer.json()["intervals"], strict=True
        ):
            assert interval["low"] <= row["count"] <= interval["high"]
        after = ann.get("/v1/datasets/words/budget").json()
        assert after["total"]["share"] == pytest.approx(plan["balance"]["total"]["share_after"])
        assert ask(ann, key="my-question").json() == answer.json()
        assert ann.get("/v1/datasets/words/releases").json() == [answer.json()]
        assert (
            ann.get(f"/v1/datasets/words/releases/{answer.json()['entry']}").json() == answer.json()
        )
        assert ann.get("/v1/datasets/words/budget").json()["total"] == after["total"]
    assert server.service.reports.ledger.verify()


@pytest.mark.slow
def test_a_key_belongs_to_one_question_of_one_analyst(server):
    with server.client("ann") as ann, server.client("bob") as bob:
        mine = ask(ann, key="same-key").json()
        assert ask(ann, key="same-key", k=2).json()["error"] == "key_used"
        assert ask(bob, key="same-key").json()["entry"] != mine["entry"]
        assert bob.get(f"/v1/datasets/words/releases/{mine['entry']}").status_code == 404
        assert ann.post("/v1/datasets/words/topk", json=ASKED).status_code == 422  # no key


@pytest.mark.slow
def test_an_analyst_ends_with_the_part_that_was_allotted(server):
    with server.client("bob") as bob, server.client("ann") as ann:
        assert ask(bob).status_code == 200
        plan = bob.post("/v1/datasets/words/plan", json=ASKED | {"epsilon": 0.6}).json()
        assert plan["balance"]["mine"]["fits"] == 0
        assert (
            "limit of" in plan["balance"]["mine"]["refused"] or plan["balance"]["mine"]["refused"]
        )
        refused = ask(bob, epsilon=0.6)
        assert (refused.status_code, refused.json()["error"]) == (409, "budget_exceeded")
        assert ask(ann, epsilon=0.6).status_code == 200
        assert "mine" not in ann.get("/v1/datasets/words/budget").json()


def test_who_may_do_what(server):
    with server.client(None) as nobody, server.client("bob") as bob, server.client("eve") as eve:
        assert nobody.get("/v1/datasets").status_code == 401
        nobody.headers["Authorization"] = "Bearer dptopk_000000000000_" + "A" * 43
        assert nobody.get("/v1/me").status_code == 401
        assert [one["name"] for one in bob.get("/v1/datasets").json()] == ["words"]
        assert ask(bob, "hidden").status_code == 404
        for path in ("/v1/audit", "/v1/metrics", "/v1/datasets/words/spending"):
            assert bob.get(path).status_code == 403
            assert eve.get(path).status_code == 200
        new = {"version": "2"}
        assert bob.post("/v1/datasets/words/versions", json=new).status_code == 403
        assert eve.post("/v1/datasets/words/versions", json={"version": "../x"}).status_code == 422


def test_a_request_has_one_key(server):
    """The first of two was taken, and the second one not read."""
    keys = [("Idempotency-Key", "one-question"), ("Idempotency-Key", "another-one")]
    with server.client("ann") as ann:
        headers = [*ann.headers.items(), *keys]
        refused = ann.post("/v1/datasets/words/topk", json=ASKED, headers=headers)
        assert (refused.status_code, refused.json()["error"]) == (422, "invalid")
        assert "one key" in refused.json()["message"]
        assert ann.get("/v1/datasets/words/releases").json() == []


@pytest.mark.parametrize(
    "body",
    [
        '{"k": 3, "epsilon": 0.1, "epsilon": 0.3, "delta": 1e-7}',
        '{"k": 3, "where": {"a": 1, "a": 2}}',
    ],
)
def test_a_body_states_each_value_once(server, body):
    """The last of two was taken, and paid for."""
    headers = {"Idempotency-Key": next(KEYS), "Content-Type": "application/json"}
    with server.client("ann") as ann:
        for path in ("topk", "plan", "streams"):
            refused = ann.post(f"/v1/datasets/words/{path}", content=body, headers=headers)
            assert (refused.status_code, refused.json()["error"]) == (422, "invalid")
            assert "twice" in refused.json()["message"]
        assert ann.get("/v1/datasets/words/releases").json() == []


def test_no_answer_is_built_from_the_host_of_a_request(server):
    """A slash at the end was answered by a redirect to any host, before a token was asked for."""
    with server.client(None) as stranger:
        for path in ("/v1/datasets/", "/v1/me/", "/health/"):
            answer = stranger.get(path, headers={"Host": "elsewhere.example"})
            assert answer.status_code == 404
            assert "location" not in answer.headers


def test_two_rotations_at_once_leave_a_token(server, monkeypatch):
    """Each ended the other one's new token, and the analyst had none."""
    access = server.access
    real, others = type(access).people, []

    def people(self):
        found = real(self)
        if not others:
            others.append(None)
            others[0] = access.rotate("ann")
        return found

    monkeypatch.setattr(type(access), "people", people)
    mine = access.rotate("ann")
    access.read()
    assert [access.person(token) is not None for token in (mine, others[0])] == [True, True]
    assert access.person(server.tokens["ann"]) is None


def revoked_meanwhile(access, monkeypatch) -> None:
    """Let the tokens of an analyst be revoked after the next look at them."""
    real = type(access).people

    def people(self):
        found = real(self)
        assert self.revoke("ann") == 1
        return found

    monkeypatch.setattr(type(access), "people", people)


def test_no_token_is_created_for_who_is_revoked_meanwhile(server, monkeypatch):
    """The analyst had a new token after all of theirs had ended."""
    access = server.access
    revoked_meanwhile(access, monkeypatch)
    with pytest.raises(InvalidParameter, match="just revoked"):
        access.rotate("ann")
    monkeypatch.undo()
    assert [row["ended"] is None for row in access.people() if row["analyst"] == "ann"] == [False]


@pytest.mark.slow
def test_tokens_end(server, monkeypatch):
    """At once for what spends, and for the rest when the last look at the table is too old."""
    from dptopk.service import senders

    with server.client("ann") as ann:
        assert ann.get("/v1/me").json() == {"analyst": "ann", "role": "analyst"}
        fresh = server.access.rotate("ann")
        assert ask(ann).status_code == 401
        assert ann.get("/v1/me").status_code == 401
        ann.headers["Authorization"] = f"Bearer {fresh}"
        assert ann.get("/v1/me").status_code == 200
        monkeypatch.setattr(senders, "RECENT_SECONDS", 3600.0)
        assert ann.get("/v1/me").status_code == 200
        ann.headers["Authorization"] = f"Bearer {fresh[:-1]}{'A' if fresh[-1] != 'A' else 'B'}"
        assert ann.get("/v1/me").status_code == 401  # the id alone does not do
        ann.headers["Authorization"] = f"Bearer {fresh}"
        monkeypatch.setattr(senders, "RECENT_SECONDS", 0.0)
        server.access.revoke("ann")
        assert ann.get("/v1/me").status_code == 401
    held = server.catalog.access
    with open(held, "rb") as file:  # noqa: PTH123
        text = file.read()
    for token in (*server.tokens.values(), fresh):
        assert token.split("_", 2)[2].encode() not in text


@pytest.mark.slow
def test_a_new_version_is_read_and_budgets_go_on(server):
    with server.client("ann") as ann, server.client("eve") as eve:
        first = ask(ann, key="before-it").json()
        write_words(server.folder, "2", times=3)
        assert (
            eve.post("/v1/datasets/words/versions", json={"version": "2"}).json()["version"] == "2"
        )
        second = ask(ann).json()
        assert second.get("version") == "2", second
        assert second["release"]["rows"][0]["count"] > 2 * first["release"]["rows"][0]["count"]
        assert ask(ann, key="before-it").json() == first
        assert eve.get("/v1/datasets/words/spending").json()["analysts"]["ann"]["queries"] == 2


@pytest.mark.slow
def test_filters_are_public_lists(server):
    with server.client("ann") as ann:
        rows = ask(ann, where={"part": "two"}).json()["release"]["rows"]
        assert len(rows) == 3
        for where in ({"part": "secret"}, {"word": "three"}):
            refused = ask(ann, where=where)
            assert refused.status_code == 422
            assert "secret" not in refused.text


@pytest.mark.slow
def test_no_count_is_ever_written_down(server, caplog):
    with server.client("ann") as ann, server.client("eve") as eve:
        answer = ask(ann).json()
        told = [
            eve.get(path).text
            for path in ("/v1/audit", "/v1/metrics", "/v1/datasets/words/spending")
        ]
        told += [
            ann.get("/v1/datasets/words").text,
            ann.post("/v1/datasets/words/plan", json=ASKED).text,
            caplog.text,
        ]
    released = {row["count"] for row in answer["release"]["rows"]}
    released |= {
        end for bar in answer["intervals"] for end in (bar["low"], bar["high"])
    }  # one may be the count
    for word, count in WORDS:
        assert count in released or str(count) not in str(answer)
        assert not any(str(count) in text or word in text for text in told)


@pytest.mark.slow
def test_data_that_cannot_be_read_costs_nothing(server, caplog):
    (server.folder / "words-1.csv").write_text(
        "word,n,part\nfour,secret-401177,one\n", encoding="utf-8"
    )
    with server.client("ann") as ann:
        answer = ask(ann, key="retry-me")
        assert (answer.status_code, answer.json()["error"]) == (503, "data_unreadable")
        assert "401177" not in answer.text + caplog.text
        write_words(server.folder, "1")
        assert ask(ann, key="retry-me").status_code == 200
        assert server.service.reports.ledger.history("words")[0].mechanism["question"]["k"] == 3


@pytest.mark.slow
def test_too_fast(tmp_path):
    from .conftest import CATALOG

    slow = CATALOG.replace("free = 1000.0, spending = 1000.0", "free = 1.0, spending = 1.0")
    with Server(tmp_path, slow).running() as server, server.client("ann") as ann:
        server.service.rates._clock = lambda: (
            0.0
        )  # nothing comes back, however slow this machine is
        statuses = [ann.get("/v1/me") for _ in range(8)]
        assert [answer.status_code for answer in statuses] == [200] * 4 + [429] * 4
        wait = int(statuses[-1].headers["Retry-After"])
        assert wait >= 1
        refusal = {"error": "too_many_requests", "message": f"Too many requests: wait for {wait} s"}
        assert statuses[-1].json() == refusal


def test_bodies_are_short_and_of_people_who_are_known(server):
    """Nothing is read of a body before its sender is known, and no more than 64 KiB of it after."""
    address = server.url.removeprefix("http://").split(":")
    head = (
        "POST /v1/divide HTTP/1.1\r\nHost: x\r\nContent-Type: "
        "application/json\r\nContent-Length: {}\r\n{}\r\n"
    )
    for who, size, status in (
        (None, 2**40, 401),
        ("ann", 2**40, 413),
        ("ann", 70_000, 413),
        ("ann", 60_000, 422),
    ):
        token = "" if who is None else f"Authorization: Bearer {server.tokens[who]}\r\n"
        with socket.create_connection((address[0], int(address[1])), timeout=30) as connection:
            connection.sendall(head.format(size, token).encode())
            if who is not None:
                connection.sendall(b" " * min(size, 70_000))
            assert connection.recv(100).split()[1] == str(status).encode()


def test_wrong_tokens_cost_a_look_into_memory(server):
    """Neither a thread nor a reading of the table for each, and nobody is kept waiting."""
    readings, real = [], Access.read
    server.service.access.read = lambda: readings.append(1) or real(server.service.access)
    with server.client("ann") as ann:
        assert ann.get("/v1/me").status_code == 200
        right = ann.headers["Authorization"]
        wrong = right[:-1] + ("A" if right[-1] != "A" else "B")
        before = len(readings)
        began = time.monotonic()
        for _ in range(30):
            assert ann.get("/v1/me", headers={"Authorization": wrong}).status_code == 401
        assert len(readings) - before <= 1 + time.monotonic() - began
        assert ann.get("/v1/me").status_code == 200


def test_a_stranger_who_knows_an_id_locks_nobody_out(server):
    """A bucket for each address and id was kept empty by whoever knew the id of a token."""
    ident = server.tokens["bob"].split("_", 2)[1]
    wrong = {"Authorization": f"Bearer dptopk_{ident}_{'x' * 43}"}
    with server.client(None) as stranger, server.client("bob") as bob:
        for _ in range(40):
            assert stranger.get("/v1/me", headers=wrong).status_code == 401
        assert bob.get("/v1/me").status_code == 200
        unknown = {"Authorization": f"Bearer dptopk_{'0' * 12}_{'x' * 43}"}
        assert stranger.get("/v1/me", headers=unknown).status_code == 401
        assert bob.get("/v1/me").status_code == 200


def test_a_hash_of_an_older_version_is_replaced(server, monkeypatch):
    """Its owner waits for one piece of work of each stranger at most."""
    ident, secret = server.tokens["bob"].split("_", 2)[1:]
    table = Tables.tokens
    (row,) = server.tables.rows(sa.select(table).where(table.c.id == ident))
    old = access._slow_hash(secret, row.salt)
    server.tables.change(sa.update(table).where(table.c.id == ident).values(hash=old))
    hashed, real = [], access._slow_hash
    monkeypatch.setattr(access, "_slow_hash", lambda *given: hashed.append(given) or real(*given))
    monkeypatch.setattr(senders, "RECENT_SECONDS", 0.0)
    with server.client("bob") as bob:
        wrong = {"Authorization": f"Bearer dptopk_{ident}_{'x' * 43}"}
        assert bob.get("/v1/me", headers=wrong).status_code == 401
        assert bob.get("/v1/me").status_code == 200
        assert bob.get("/v1/me").status_code == 200
        assert bob.get("/v1/me", headers=wrong).status_code == 401
    assert len(hashed) == 2
    (row,) = server.tables.rows(sa.select(table).where(table.c.id == ident))
    assert row.hash.startswith("sha256:")


def test_two_tokens_in_one_request_are_none(server):
    right = f"Bearer {server.tokens['ann']}"
    with server.client(None) as client:
        for given in ((right, right), (right, "Bearer x"), ("Bearer x", right)):
            headers = [("Authorization", token) for token in given]
            assert client.get("/v1/me", headers=headers).status_code == 401
