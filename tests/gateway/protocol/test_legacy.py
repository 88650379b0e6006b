"""The handshake era: sessions, requests, log levels."""

import json
from typing import Any

import pytest

from gateway.catalogue.catalogue import McpEndpointConfig
from gateway.contract import Call, Caller, Json
from tests.gateway.fakes import ALICE, BOB, HANDSHAKE, SCOPES, FakeBackend, Rig, echo, until


def initialize(**params: Any) -> bytes:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, **params}
    return json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()


# ---- sessions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "negotiated"),
    [*((each, each) for each in HANDSHAKE), ("2026-07-28", "2025-11-25"), ("1999", "2025-11-25")],
)
async def test_initialize_negotiates_the_requested_version_or_the_newest_of_the_era(
    requested: str, negotiated: str
) -> None:
    async with Rig(FakeBackend(instructions="Hi.")) as rig:
        response = await rig.request(initialize(protocolVersion=requested))
    result = response.json["result"]
    assert (response.status, result["protocolVersion"], result["instructions"]) == (200, negotiated, "## lab\nHi.")
    assert result["serverInfo"]["name"] == "gatehouse"
    assert "extensions" not in result["capabilities"]
    assert result["capabilities"]["tools"] == {"listChanged": True}
    assert 0 < len(response.headers["mcp-session-id"]) <= 2048


APPS = "io.modelcontextprotocol/ui"


@pytest.mark.parametrize("version", HANDSHAKE)
@pytest.mark.parametrize(
    ("declared", "returned"),
    [
        ({"extensions": {APPS: {"mimeTypes": ["text/html;profile=mcp-app"]}}}, {APPS: {"own": 1}}),
        ({"extensions": {"org.example/other": {}}}, None),
        ({"extensions": [APPS]}, None),
        ({"experimental": {APPS: {}}}, None),
        ({}, None),
    ],
)
async def test_extension_is_returned_to_a_client_that_declares_it(version: str, declared: Json, returned: Any) -> None:
    backend = FakeBackend(capabilities={"tools": {}, "extensions": {APPS: {"own": 1}, "org.example/x": {}}})
    async with Rig(backend) as rig:
        response = await rig.request(initialize(protocolVersion=version, capabilities=declared))
    assert response.json["result"]["capabilities"].get("extensions") == returned


async def test_app_of_a_tool_is_listed_and_read_in_the_handshake_era() -> None:
    tool: Json = {
        "name": "clock",
        "inputSchema": {"type": "object"},
        "_meta": {"ui": {"resourceUri": "ui://clock", "visibility": ["model", "app"]}, "ui/resourceUri": "ui://clock"},
    }
    page: Json = {
        "uri": "ui://clock",
        "name": "clock",
        "mimeType": "text/html;profile=mcp-app",
        "_meta": {"ui": {"csp": {}}},
    }

    async def read(call: Call) -> Json:
        return {"contents": [{**page, "uri": call.route.name, "text": "<p>"}]}  # type: ignore[union-attr]

    async with Rig(FakeBackend(answer=read, tools=(tool,), resources=(page,))) as rig:
        session = (await rig.request(initialize(capabilities={"extensions": {APPS: {}}}))).headers["mcp-session-id"]
        listed = (await rig.legacy(session, "tools/list")).json["result"]["tools"][0]
        assert listed["_meta"]["ui"] == {"resourceUri": "ui://lab/clock", "visibility": ["model", "app"]}
        assert listed["_meta"]["ui/resourceUri"] == "ui://lab/clock"
        contents = (await rig.legacy(session, "resources/read", {"uri": "ui://lab/clock"})).json["result"]["contents"]
        assert contents[0]["mimeType"] == page["mimeType"]
        assert contents[0]["_meta"] == page["_meta"]
        assert contents[0]["uri"] == "ui://lab/clock"


@pytest.mark.parametrize("params", [{"protocolVersion": None}, {"protocolVersion": 7}, {"capabilities": []}])
async def test_rejected_initialize_opens_no_session(params: Json) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.request(initialize(**params))
    assert (response.status, response.json["error"]["code"]) == (200, -32602)
    assert "mcp-session-id" not in response.headers


async def test_session_works_with_invalid_client_info() -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.request(initialize(clientInfo="curl"))
        if "error" not in response.json:
            assert (await rig.legacy(response.headers["mcp-session-id"], "ping")).status == 200


async def test_request_without_a_session_is_rejected() -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.legacy(None, "tools/list", id="q")
        assert (response.status, response.json["error"]["code"], response.json["id"]) == (400, -32600, "q")
        for verb in ("GET", "DELETE"):
            assert (await rig.request(verb=verb, headers={"accept": "text/event-stream"})).status == 400


@pytest.mark.parametrize("caller", [BOB, Caller("other", "alice", scopes=SCOPES)])
async def test_another_principals_session_is_not_found(caller: Caller) -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        for verb in ("GET", "DELETE"):
            headers = {"mcp-session-id": session, "accept": "text/event-stream"}
            assert (await rig.request(verb=verb, headers=headers, caller=caller)).status == 404
        response = await rig.legacy(session, "ping", caller=caller)
        assert (response.status, response.json["error"]["code"]) == (404, -32001)
        assert (await rig.legacy(session, "ping")).status == 200


@pytest.mark.parametrize("id", ["", "x", "v1.AAAA", "v1." + "A" * 3000, "é"])
async def test_invalid_session_id_is_not_found(id: str) -> None:
    async with Rig(FakeBackend()) as rig:
        assert (await rig.legacy(id, "ping")).status == 404


async def test_an_ended_session_is_not_found() -> None:
    async with Rig(FakeBackend()) as rig:
        session, other = await rig.session(), await rig.session()
        ended = await rig.request(verb="DELETE", headers={"mcp-session-id": session})
        assert ended.status == 204
        assert (await rig.legacy(session, "ping")).status == 404
        assert (await rig.request(verb="DELETE", headers={"mcp-session-id": session})).status == 404
        assert (await rig.legacy(other, "ping")).status == 200


async def test_session_is_valid_at_every_endpoint() -> None:
    async with Rig(FakeBackend(), endpoints=[McpEndpointConfig("/mcp/lab", "bare", ("lab",))]) as rig:
        session = await rig.session(path="/mcp/lab")
        listed = (await rig.legacy(session, "tools/list")).json["result"]["tools"]
        bare = (await rig.legacy(session, "tools/list", path="/mcp/lab")).json["result"]["tools"]
        assert ([each["name"] for each in listed], [each["name"] for each in bare]) == (["lab_echo"], ["echo"])
        assert (await rig.legacy(session, "ping", path="/mcp/no")).status == 404


async def test_get_at_an_unknown_endpoint_is_not_found() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        response, task = rig.begin_get(session, path="/mcp/no")
        await until(lambda: response.status)
        assert response.status == 404
        await task


# ---- requests ---------------------------------------------------------------------------------------------------


async def test_response_is_one_json_object_without_newer_members() -> None:
    async def answer(call: Call) -> Json:
        return {**await echo(call), "resultType": "complete", "ttlMs": 1, "cacheScope": "private"}

    async with Rig(FakeBackend(answer=answer)) as rig:
        session = await rig.session()
        response = await rig.legacy(
            session, "tools/call", {"name": "lab_echo"}, id="x", headers={"x-correlation-id": "c"}
        )
    assert response.headers["content-type"] == "application/json"
    assert response.json == {
        "jsonrpc": "2.0",
        "id": "x",
        "result": {
            "content": [{"type": "text", "text": "hello"}],
            "structuredContent": {"got": {}},
            "_meta": {"correlation_id": "c"},
        },
    }


async def test_lists_have_no_cache_hints_in_this_era() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            result = (await rig.legacy(session, method)).json["result"]
            assert not {"resultType", "ttlMs", "cacheScope"} & result.keys()


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "no/such", "notifications/initialized"])
async def test_unknown_method_or_method_of_the_other_era_is_not_found(method: str) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.legacy(await rig.session(), method, {"notifications": {}})
    assert (response.status, response.json["error"]["code"], response.json["error"]["data"]) == (200, -32601, method)


async def test_client_that_lists_event_streams_first_gets_one() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        headers = {"accept": "text/event-stream, application/json"}
        response = await rig.legacy(session, "tools/call", {"name": "lab_echo"}, headers=headers)
    assert response.headers["content-type"] == "text/event-stream"
    assert [each["id"] for each in response.messages] == [1]
    assert response.closed


async def test_invalid_body_is_rejected_with_its_error_code() -> None:
    async with Rig(FakeBackend()) as rig:
        session = await rig.session()
        for body, code in ((b"{", -32700), (b"[{}]", -32600), (b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600)):
            response = await rig.request(body, {"mcp-session-id": session})
            assert (response.status, response.json["error"]["code"]) == (400, code)


# ---- log levels -------------------------------------------------------------------------------------------------


async def send_logs(call: Call) -> Json:
    for level in ("debug", "notice", "error"):
        await call.wire.notify("notifications/message", {"level": level, "data": level})
    return await echo(call)


@pytest.mark.parametrize(
    ("level", "expected"),
    [(None, ["debug", "notice", "error"]), ("notice", ["notice", "error"]), ("emergency", [])],
)
async def test_session_gets_log_messages_at_or_above_its_level(level: str | None, expected: list[str]) -> None:
    async with Rig(FakeBackend(answer=send_logs)) as rig:
        session, other = await rig.session(), await rig.session()
        await rig.legacy(other, "logging/setLevel", {"level": "alert"})
        if level is not None:
            assert (await rig.legacy(session, "logging/setLevel", {"level": level})).json["result"] == {}
        response = await rig.legacy(session, "tools/call", {"name": "lab_echo"})
    levels = [each["params"]["level"] for each in response.sent("notifications/message")] if response.opened else []
    assert levels == expected


@pytest.mark.parametrize("level", ["loud", 7, None])
async def test_unknown_log_level_is_rejected(level: Any) -> None:
    async with Rig(FakeBackend()) as rig:
        response = await rig.legacy(await rig.session(), "logging/setLevel", {"level": level})
        assert response.json["error"]["code"] == -32602


async def test_call_uses_the_caller_of_the_request_not_of_the_session() -> None:
    backend = FakeBackend()
    async with Rig(backend) as rig:
        session = await rig.session()
        await rig.legacy(session, "tools/call", {"name": "lab_echo"}, caller=Caller("acme", "alice", scopes=SCOPES))
    assert backend.calls[0].caller.credential == ""
    assert backend.calls[0].caller.principal == ALICE.principal
