"""A destructive call that one process starts and another process approves runs once."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import Queue
from typing import Any

import httpx
import pytest

from gateway.contract import Caller
from gateway.protocol.multi_round import MultiRound
from gateway.protocol.sealed_tokens import TokenSeal, mint_state
from gateway.protocol.strict_json import digest
from tests.flows.process import HANDSHAKE, Json, Served, modern, modern_headers, run, starting, write_settings

Pair = tuple[Served, Served]
YES: Json = {"action": "accept", "content": {"approve": True}}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("approval")
    danger = {"module": "tests.flows.fixtures.danger", "effects": {"drop": 3}}
    write_settings(folder, backends={"danger": danger})
    with starting(folder, name="one") as one, starting(folder, name="two") as two:
        both = one(), two()
        key = both[0].key or both[1].key
        yield replace(both[0], key=key), replace(both[1], key=key)


def dropped(served: Served) -> list[str]:
    file = served.folder / "dropped.log"
    return file.read_text().split() if file.exists() else []


def drop(served: Served, name: str, key: str | None = None, **more: Any) -> Json:
    params: Json = {"name": "danger_drop", "arguments": {"name": name}, **more}
    message = modern("tools/call", params, elicitation={})
    return served.post(message, key, **modern_headers("tools/call", params)).json()


def test_approval_at_another_process_in_the_modern_era(pair: Pair) -> None:
    one, two = pair
    question = drop(one, "modern")["result"]
    assert question["resultType"] == "input_required"
    approval: Json = {"requestState": question["requestState"], "inputResponses": {"approval": YES}}
    other_key = run(one.folder, "key", "create", "--subject", "mallory").stdout.strip()

    assert drop(two, "other", **approval)["error"]["data"] == {"reason": "invalid_request_state"}
    assert drop(two, "modern", other_key, **approval)["error"]["data"] == {"reason": "invalid_request_state"}
    assert "modern" not in dropped(one)

    with ThreadPoolExecutor(8) as pool:  # concurrently at both; one succeeds
        answers = list(pool.map(lambda each: drop(each, "modern", **approval), [two, one] * 4))
    kinds = [each["result"].get("isError", False) for each in answers]
    assert kinds.count(False) == 1
    assert dropped(one).count("modern") == 1
    refused = drop(one, "modern", **approval)["result"]
    assert refused["_meta"]["gatehouse/error"]["kind"] == "approval_required"


def test_an_approval_older_than_ten_minutes_is_refused(pair: Pair) -> None:
    one, two = pair
    secret = TokenSeal([(one.folder / ".gatehouse/secrets/seal").read_bytes()])
    params: Json = {"name": "danger_drop", "arguments": {"name": "late"}}
    fresh = drop(one, "late")["result"]["requestState"]
    owner = Caller("default", "owner")
    _, answered = MultiRound(secret).open_request(owner, "tools/call", {**params, "requestState": fresh})
    assert answered is not None

    def state_of_age(age: float) -> str:
        return mint_state(
            secret,
            principal=owner.principal,
            method="tools/call",
            target="danger_drop",
            arguments_digest=digest(params["arguments"]),
            namespace="danger",
            state=None,
            approval=answered.state,
            now=time.time() - age,
        )

    approval: Json = {"inputResponses": {"approval": YES}}
    assert drop(two, "late", requestState=state_of_age(601), **approval)["error"]["data"] == {
        "reason": "invalid_request_state"
    }
    assert "late" not in dropped(one)
    # A younger state is accepted, so the age was the only reason.
    assert drop(two, "late", requestState=state_of_age(590), **approval)["result"].get("isError", False) is False


def test_approval_at_another_process_in_the_handshake_era(pair: Pair) -> None:
    one, two = pair
    session = one.initialize(elicitation={})
    header = {"mcp-session-id": session, "mcp-protocol-version": HANDSHAKE, "authorization": f"Bearer {one.key}"}
    header["accept"] = "application/json, text/event-stream"
    params = {"name": "danger_drop", "arguments": {"name": "handshake"}}
    body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
    events: Queue[Json] = Queue()

    def call() -> None:
        with httpx.stream(
            "POST", one.url, json=body, headers=header, timeout=30, trust_env=False, verify=False
        ) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:") and line[5:].strip():
                    events.put(json.loads(line[5:]))

    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(call)
        request = events.get(timeout=10)
        assert request["method"] == "elicitation/create"
        assert "handshake" not in dropped(one)
        other_key = run(one.folder, "key", "create", "--subject", "eve").stdout.strip()
        answer = {"id": request["id"], "result": YES}
        other = two.initialize(other_key, elicitation={})
        assert two.post(answer, other_key, mcp_session_id=other).status_code == 202
        assert two.post(answer, other_key, mcp_session_id=session).status_code == 404
        assert two.post(answer, mcp_session_id=session, mcp_protocol_version=HANDSHAKE).status_code == 202
        done = events.get(timeout=10)
        calling.result(10)
    assert done["result"]["content"][0]["text"] == "dropped handshake"
    # A second response has no effect.
    assert two.post(answer, mcp_session_id=session).status_code == 202
    assert dropped(one).count("handshake") == 1
    # The next call requires a new approval.
    again = {"id": 6, "method": "tools/call", "params": {**params, "_meta": {"approved": True}}}
    response = one.post(again, mcp_session_id=session, mcp_protocol_version=HANDSHAKE).json()
    assert response["result"]["content"][0]["text"] == "dropped handshake"
