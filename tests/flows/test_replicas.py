"""Two replicas on one bus act as one gateway, including for state that only one of them holds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.flows.replica_client import HandshakeClient

BACKENDS = {
    "asking": {"module": "tests.flows.fixtures.eliciting"},
    "lamp": {"module": "tests.flows.fixtures.lamp"},
}
Pair = tuple[Running, Running]


@pytest.fixture
async def pair(run: Any, tmp_path: Path, valkey_url: str, prefix: str) -> AsyncIterator[Pair]:
    settings = {"backends": BACKENDS, "bus": {"url": valkey_url, "prefix": prefix}}
    async with run(tmp_path, **settings) as one, run(tmp_path, **settings) as two:
        yield one, two.as_(one.key)


@pytest.fixture
async def client(pair: Pair) -> AsyncIterator[HandshakeClient]:
    async with httpx.AsyncClient(timeout=20, verify=False) as http:
        client = HandshakeClient(http, pair[0].key)
        await client.initialize(pair[0], elicitation={})
        yield client


async def test_elicitation_response_posted_to_any_replica_reaches_its_call(pair: Pair, client: HandshakeClient) -> None:
    one, two = pair
    async with client.call(one, 1, "asking_greet") as events:
        elicitation = await events.next()
        assert elicitation["method"] == "elicitation/create"
        answer = {"id": elicitation["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
        assert (await client.post(two, answer)).status_code == 202
        assert (await events.next())["result"]["content"][0]["text"] == "Hello Ada"


async def test_parked_call_can_be_resumed_at_any_replica(pair: Pair) -> None:
    one, two = pair
    meta = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    result: Any = (await one.call("asking_greet_twice", {}, meta))["result"]
    for name in ("Ada", "Grace"):
        assert result["resultType"] == "input_required"
        (key,) = result["inputRequests"]
        retry = {
            "name": "asking_greet_twice",
            "arguments": {},
            "requestState": result["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"name": name}}},
            "_meta": meta,
        }
        result = (await two.post("tools/call", retry)).json()["result"]
    assert result["content"][0]["text"] == "Hello Ada and Grace"


async def test_parked_call_of_a_stopped_replica_is_unavailable(
    run: Any, tmp_path: Path, valkey_url: str, prefix: str
) -> None:
    settings = {"backends": BACKENDS, "bus": {"url": valkey_url, "prefix": prefix}}
    meta = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with run(tmp_path, **settings) as survivor:
        async with run(tmp_path, **settings) as dead:
            result = (await dead.as_(survivor.key).call("asking_greet", {}, meta))["result"]
        retry = {"name": "asking_greet", "arguments": {}, "requestState": result["requestState"], "_meta": meta}
        retry["inputResponses"] = {"it": {"action": "accept", "content": {"name": "Ada"}}}
        error = (await survivor.post("tools/call", retry)).json()["error"]
    assert error["code"] == 503
    assert "Make the call again." in error["message"]


async def test_call_can_be_cancelled_at_any_replica(pair: Pair, client: HandshakeClient) -> None:
    one, two = pair
    async with client.call(one, 7, "lamp_wait") as events:
        assert (await events.next())["method"] == "notifications/progress"
        await client.post(two, {"method": "notifications/cancelled", "params": {"requestId": 7}})
        assert (await events.next())["error"]["code"] == -32800


async def test_stream_of_one_replica_can_be_resumed_at_another(pair: Pair, client: HandshakeClient) -> None:
    one, two = pair
    async with client.call(one, 1, "asking_greet") as events:
        elicitation = await events.next()
        last = events.last_id
    async with client.listen(two, last) as events:
        assert events.status == 200
        answer = {"id": elicitation["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
        await client.post(two, answer)
        assert (await events.next())["result"]["content"][0]["text"] == "Hello Ada"
        with pytest.raises(EOFError):
            await events.next()


async def test_stream_of_an_unknown_replica_is_404(pair: Pair, client: HandshakeClient) -> None:
    async with client.listen(pair[1], "deadbeef.0123456789abcdef.1") as events:
        assert events.status == 404


async def test_resource_update_at_one_replica_is_delivered_by_another(pair: Pair, client: HandshakeClient) -> None:
    one, two = pair
    async with client.listen(one) as events:
        assert events.status == 200
        subscribed = await client.post(
            two, {"id": 3, "method": "resources/subscribe", "params": {"uri": "gatehouse://lamp/lamp%3A%2F%2Fstate"}}
        )
        assert "error" not in subscribed.json(), subscribed.text
        await client.post(two, {"id": 4, "method": "tools/call", "params": {"name": "lamp_switch", "arguments": {}}})
        notification = await asyncio.wait_for(events.next(), 10)
        assert notification["method"] == "notifications/resources/updated"


async def test_second_get_stream_ends_the_first_at_any_replica(pair: Pair, client: HandshakeClient) -> None:
    one, two = pair
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(client.listen(one))
        await stack.enter_async_context(client.listen(two))
        with pytest.raises(EOFError):
            await asyncio.wait_for(first.next(), 10)


async def test_threat_08_revoked_key_is_rejected_by_every_replica_within_five_seconds(pair: Pair) -> None:
    one, two = pair
    key, info = await one.app.keys.create("default", "leaver")
    both = [each.as_(key) for each in pair]
    for each in both:
        assert (await each.post("tools/list")).status_code == 200
    assert await two.app.keys.revoke(info.id)
    async with asyncio.timeout(5):
        for each in both:
            while (await each.post("tools/list")).status_code != 401:
                await asyncio.sleep(0.05)
