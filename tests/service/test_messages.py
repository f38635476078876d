"""Refusals of requests: the name of what does not fit and what it must be, in words of our own."""

from __future__ import annotations

REFUSED = {  # body of a plan -> what is said
    '{"k": 0, "epsilon": 0.1}': "k must be at least 1",
    '{"k": 2.5}': "k must be a whole number",
    '{"k": "3"}': "k must be a whole number",
    '{"k": 3, "epsilon": NaN}': "epsilon must be a finite number",
    '{"k": 3, "epsilon": 1e999}': "epsilon must be a finite number",
    '{"k": 3, "epsilon": "x"}': "epsilon must be a number",
    '{"k": 3, "colour": 1}': "colour is not known",
    '{"k": 3, "counts": "best"}': "counts must be one of 'auto', 'gaussian', 'laplace', 'box' "
    "or 'none'",
    '{"k": 3, "where": {"part": 1}}': "where.part must be text",
    '{"k": 3, "segments": {"a": [], "b": []}}': "segments must have at most 1 entries",
    '{"mechanism": {"name": 3}}': "mechanism.name must be text",
    '{"mechanism": "KnownLaplace"}': "mechanism must be an object in JSON",
    "{}": "k is missing",
    "[]": "the body must be an object in JSON",
    '{"k"': "the body is no JSON",
}


def test_a_refusal_says_what_a_value_must_be(server):
    with server.client("ann") as client:
        for body, said in REFUSED.items():
            answer = client.post(
                "/v1/datasets/words/plan",
                content=body,
                headers={"Content-Type": "application/json"},
            )
            assert (answer.status_code, answer.json()["message"]) == (422, said), body
            assert not any(
                word in answer.text for word in ("Input", "Field", "Extra", "Asked", "Ran", "body.")
            ), body
        wait = client.post(
            "/v1/datasets/words/topk?wait=x",
            json={"k": 3},
            headers={"Idempotency-Key": "a-key-of-mine"},
        )
        assert wait.json()["message"] == "wait must be a number"
        wrong_key = client.post(
            "/v1/datasets/words/topk", json={"k": 3}, headers={"Idempotency-Key": "a key of mine"}
        )
        assert wrong_key.json()["message"] == (
            "Idempotency-Key must match the regular expression ^[A-Za-z0-9_.:-]+$"
        )
        key = client.post("/v1/datasets/words/topk", json={"k": 3})
        assert "is missing" in key.json()["message"]
