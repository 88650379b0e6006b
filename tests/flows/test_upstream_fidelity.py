"""Messages of a remote server reach the client unchanged, for all four combinations of client and server era."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import MCPError

from tests.conftest import Running
from tests.peers.handshake import handshake, messages
from tests.peers.raw_server import RawServer, RpcError, raw_server

Json = dict[str, Any]
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CELLS = [(client_era, server_era) for client_era in ("handshake", "modern") for server_era in ("handshake", "modern")]

TOOL: Json = {
    "name": "draw",
    "title": "Draw",
    "description": "Draws.",
    "inputSchema": {"type": "object", "x-unknown": 1},
    "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "annotations": {"readOnlyHint": True, "title": "Drawing", "x-odd": [1]},
    "icons": [{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"], "x": {}}],
    "_meta": {"example.com/a": {"b": [None, 1.5]}, "ui": {"resourceUri": "ui://app.html", "visibility": ["model"]}},
    "futureField": {"kept": True},
}
RESULT: Json = {
    "content": [
        {"type": "text", "text": "naïve ✓", "annotations": {"audience": ["user"], "priority": 0.5}, "odd": 1},
        {"type": "hologram", "volume": [1, 2]},
        {"type": "image", "data": "AA==", "mimeType": "image/png", "_meta": {"k": "v"}},
    ],
    "structuredContent": {"n": 12345678901234567890, "deep": [[[]]], "none": None},
    "isError": False,
    "_meta": {"example.com/trace": "x"},
    "futureField": {"a": [1, {"b": None}]},
}
LINKED: Json = {
    "content": [
        {"type": "resource_link", "uri": "raw://a", "name": "A", "icons": [{"src": "data:,"}], "size": 3, "odd": 1},
        {"type": "resource", "resource": {"uri": "raw://b", "text": "b", "x": 1}, "annotations": {"priority": 1}},
    ],
    "extra": 1,
}


class EraClient:
    """A client of either era that returns whole messages."""

    def __init__(self, gateway: Running, legacy: Any) -> None:
        self._gateway = gateway
        self._legacy = legacy

    async def send(self, method: str, params: Json | None = None) -> list[Json]:
        if self._legacy is not None:
            return await self._legacy.send(method, params)
        return messages(await self._gateway.post(method, params))

    async def request(self, method: str, params: Json | None = None) -> Json:
        return (await self.send(method, params))[-1]


@asynccontextmanager
async def connect(
    start: Any, client_era: str, server_era: str, **options: Any
) -> AsyncIterator[tuple[EraClient, RawServer]]:
    async with raw_server(era=server_era, tools=[TOOL], **options) as raw:
        async with start(backends={"raw": raw.entry()}) as gateway:
            if client_era == "modern":
                yield EraClient(gateway, None), raw
                return
            async with handshake(gateway.base, gateway.key) as legacy:
                yield EraClient(gateway, legacy), raw


def _without_gateway_fields(result: Json) -> Json:
    """The result without the fields that the gateway adds: server info, correlation id and modern-era fields."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if key not in (SERVER_INFO, "correlation_id")}
    shown = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope", "_meta")}
    return {**shown, "_meta": meta} if meta else shown


@pytest.mark.parametrize(("client_era", "server_era"), CELLS)
async def test_a_result_with_unknown_fields_is_unchanged(start: Any, client_era: str, server_era: str) -> None:
    stamp = {"resultType": "complete"} if server_era == "modern" else {}
    async with connect(start, client_era, server_era, answers={"tools/call": {**RESULT, **stamp}}) as (client, raw):
        answer = await client.request("tools/call", {"name": "raw_draw", "arguments": {"odd": [1, None]}})
        assert _without_gateway_fields(answer["result"]) == RESULT
        assert ("resultType" in answer["result"]) is (client_era == "modern")
        (sent,) = raw.params_of("tools/call")
        assert (sent["name"], sent["arguments"]) == ("draw", {"odd": [1, None]})


@pytest.mark.parametrize(("client_era", "server_era"), CELLS)
async def test_tool_definition_keeps_its_icons_annotations_and_meta(
    start: Any, client_era: str, server_era: str
) -> None:
    async with connect(start, client_era, server_era) as (client, _):
        (shown,) = (await client.request("tools/list"))["result"]["tools"]
    meta = shown.pop("_meta")
    assert shown == {**{key: value for key, value in TOOL.items() if key != "_meta"}, "name": "raw_draw"}
    assert meta.pop("gatehouse/id") == "raw.draw"
    assert meta.pop("gatehouse/effect") == 2
    assert meta == {**TOOL["_meta"], "ui": {"resourceUri": "ui://raw/app.html", "visibility": ["model"]}}


@pytest.mark.parametrize(("client_era", "server_era"), CELLS)
async def test_an_error_keeps_its_code_message_and_data(start: Any, client_era: str, server_era: str) -> None:
    async def refuse(params: Json, headers: Json) -> Json:
        raise RpcError(-32099, "Not today: ✗", {"why": [1, {"deep": None}]})

    async with connect(start, client_era, server_era, answers={"tools/call": refuse}) as (client, _):
        answer = await client.request("tools/call", {"name": "raw_draw"})
    assert answer["error"] == {"code": -32099, "message": "Not today: ✗", "data": {"why": [1, {"deep": None}]}}


@pytest.mark.parametrize(("client_era", "server_era"), CELLS)
async def test_links_in_results_are_rewritten_and_nothing_else_changes(
    start: Any, client_era: str, server_era: str
) -> None:
    async def read(params: Json, headers: Json) -> Json:
        return {"contents": [{"uri": params["uri"], "text": "x", "odd": {"a": 1}, "_meta": {"ui": {"csp": {}}}}]}

    answers = {"tools/call": LINKED, "resources/read": read}
    async with connect(start, client_era, server_era, answers=answers) as (client, raw):
        result = _without_gateway_fields((await client.request("tools/call", {"name": "raw_draw"}))["result"])
        link, embedded = result["content"]
        assert (link.pop("uri"), embedded["resource"].pop("uri")) == (
            "gatehouse://raw/raw%3A%2F%2Fa",
            "gatehouse://raw/raw%3A%2F%2Fb",
        )
        expected_link, expected_resource = LINKED["content"]
        assert link == {key: value for key, value in expected_link.items() if key != "uri"}
        assert embedded == {**expected_resource, "resource": {"text": "b", "x": 1}}
        # The page of an app is read under the URI in the tool's `_meta`.
        page = (await client.request("resources/read", {"uri": "ui://raw/app.html"}))["result"]["contents"]
        assert page == [{"uri": "ui://raw/app.html", "text": "x", "odd": {"a": 1}, "_meta": {"ui": {"csp": {}}}}]
        assert raw.params_of("resources/read")[-1]["uri"] == "ui://app.html"


@pytest.mark.parametrize(("client_era", "server_era"), CELLS)
async def test_progress_and_log_notifications_keep_every_field_except_the_token(
    start: Any, client_era: str, server_era: str
) -> None:
    step = {"progress": 1, "total": 2, "message": "half", "odd": {"a": 1}}
    line = {"level": "info", "logger": "l", "data": {"any": [1]}, "_meta": {"k": 1}}
    notices = [
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "TOKEN", **step}},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": line},
    ]
    async with connect(
        start, client_era, server_era, answers={"tools/call": {"content": []}}, notifications=notices
    ) as (
        client,
        raw,
    ):
        if client_era == "handshake":
            await client.request("logging/setLevel", {"level": "debug"})
        meta = {"progressToken": "mine", "io.modelcontextprotocol/logLevel": "debug"}
        received = await client.send("tools/call", {"name": "raw_draw", "_meta": meta})
        assert [each.get("params") for each in received[:-1]] == [{"progressToken": "mine", **step}, line]
        assert raw.params_of("tools/call")[-1]["_meta"]["progressToken"] != "mine"


@pytest.mark.parametrize("server_era", ["handshake", "modern"])
async def test_every_page_of_a_backends_list_is_read(start: Any, server_era: str) -> None:
    many = [{**TOOL, "name": f"t{number}"} for number in range(7)]
    async with raw_server(era=server_era, tools=many, page=2) as raw, start(backends={"raw": raw.entry()}) as gateway:
        listed = (await gateway.post("tools/list")).json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == [f"raw_t{number}" for number in range(7)]


async def test_long_list_is_paginated_with_sealed_cursors(start: Any, era: str) -> None:
    many = [{**TOOL, "name": f"t{number}"} for number in range(5)]
    async with raw_server(tools=many) as raw:
        async with start(backends={"raw": raw.entry()}, catalogue={"page_size": 2}) as gateway:
            async with gateway.client(era) as client:
                names, cursors, cursor = [], [], None
                while True:
                    page = await client.list_tools(cursor=cursor)
                    names += [tool.name for tool in page.tools]
                    if (cursor := page.next_cursor) is None:
                        break
                    cursors.append(cursor)
                assert names == [f"raw_t{number}" for number in range(5)]
                assert all(cursor.startswith("v1.") for cursor in cursors)
                with pytest.raises(MCPError, match="Invalid cursor"):
                    await client.list_prompts(cursor=cursors[0])


async def test_url_elicitation_error_of_a_handshake_server_becomes_input_required(start: Any) -> None:
    opened: list[bool] = []
    link = {"mode": "url", "message": "Sign in", "url": "https://example.com/in", "elicitationId": "e1"}

    async def act(params: Json, headers: Json) -> Json:
        assert "inputResponses" not in params
        if not opened:
            raise RpcError(-32042, "Sign in first", {"elicitations": [link]})
        return {"content": [{"type": "text", "text": "done"}]}

    async with connect(start, "modern", "handshake", answers={"tools/call": act}) as (client, _):
        meta = {CAPABILITIES: {"elicitation": {"url": {}}}}
        first = (await client.request("tools/call", {"name": "raw_draw", "_meta": meta}))["result"]
        assert first["inputRequests"] == {
            "link-1": {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "Sign in", "url": "https://example.com/in"},
            }
        }
        retry = {"name": "raw_draw", "requestState": first["requestState"], "_meta": meta}
        declined = await client.request("tools/call", {**retry, "inputResponses": {"link-1": {"action": "decline"}}})
        assert declined["result"]["isError"]
        opened.append(True)
        done = await client.request("tools/call", {**retry, "inputResponses": {"link-1": {"action": "accept"}}})
        assert done["result"]["content"][0]["text"] == "done"


async def test_client_without_url_elicitation_gets_a_missing_capability_error(start: Any) -> None:
    async def act(params: Json, headers: Json) -> Json:
        raise RpcError(-32042, "Sign in first", {"elicitations": [{"mode": "url", "message": "m", "url": "https://x"}]})

    async with connect(start, "modern", "handshake", answers={"tools/call": act}) as (client, _):
        refused = (await client.request("tools/call", {"name": "raw_draw"}))["error"]
    assert refused["code"] == -32021


async def test_handshake_client_gets_the_url_elicitation_error_unchanged(start: Any) -> None:
    data = {"elicitations": [{"mode": "url", "message": "m", "url": "https://x", "elicitationId": "e1"}]}

    async def act(params: Json, headers: Json) -> Json:
        raise RpcError(-32042, "Sign in first", data)

    async with connect(start, "handshake", "handshake", answers={"tools/call": act}) as (client, _):
        assert (await client.request("tools/call", {"name": "raw_draw"}))["error"]["data"] == data


@pytest.mark.parametrize("server_era", ["handshake", "modern"])
async def test_list_change_sent_on_a_call_stream_refreshes_the_list(start: Any, server_era: str) -> None:
    notices = [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
    async with connect(start, "modern", server_era, answers={"tools/call": {"content": []}}, notifications=notices) as (
        client,
        raw,
    ):
        raw.tools.append({**TOOL, "name": "later"})
        await client.request("tools/call", {"name": "raw_draw"})
        async with asyncio.timeout(10):
            while "raw_later" not in str(await client.request("tools/list")):
                await asyncio.sleep(0.01)
