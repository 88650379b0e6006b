"""What a remote server says reaches the client field for field, in all four cells of client and server era."""

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
CELLS = [(front, behind) for front in ("handshake", "modern") for behind in ("handshake", "modern")]

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


class Front:
    """A client of either era that shows whole messages."""

    def __init__(self, gateway: Running, legacy: Any) -> None:
        self._gateway = gateway
        self._legacy = legacy

    async def send(self, method: str, params: Json | None = None) -> list[Json]:
        if self._legacy is not None:
            return await self._legacy.send(method, params)
        return messages(await self._gateway.post(method, params))

    async def ask(self, method: str, params: Json | None = None) -> Json:
        return (await self.send(method, params))[-1]


@asynccontextmanager
async def cell(start: Any, front: str, behind: str, **given: Any) -> AsyncIterator[tuple[Front, RawServer]]:
    async with raw_server(era=behind, tools=[TOOL], **given) as raw:
        async with start(backends={"raw": raw.entry()}) as gateway:
            if front == "modern":
                yield Front(gateway, None), raw
                return
            async with handshake(gateway.base, gateway.key) as legacy:
                yield Front(gateway, legacy), raw


def _without_ours(result: Json) -> Json:
    """Less what the gateway says on each hop: who it is, its correlation id, and the newest revision's stamps."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if key not in (SERVER_INFO, "correlation_id")}
    shown = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope", "_meta")}
    return {**shown, "_meta": meta} if meta else shown


@pytest.mark.parametrize(("front", "behind"), CELLS)
async def test_a_result_with_unknown_fields_is_unchanged(start: Any, front: str, behind: str) -> None:
    stamp = {"resultType": "complete"} if behind == "modern" else {}
    async with cell(start, front, behind, answers={"tools/call": {**RESULT, **stamp}}) as (client, raw):
        answer = await client.ask("tools/call", {"name": "raw_draw", "arguments": {"odd": [1, None]}})
        assert _without_ours(answer["result"]) == RESULT
        assert ("resultType" in answer["result"]) is (front == "modern")
        (asked,) = raw.params_of("tools/call")
        assert (asked["name"], asked["arguments"]) == ("draw", {"odd": [1, None]})


@pytest.mark.parametrize(("front", "behind"), CELLS)
async def test_a_definition_keeps_its_icons_annotations_and_meta(start: Any, front: str, behind: str) -> None:
    async with cell(start, front, behind) as (client, _):
        (shown,) = (await client.ask("tools/list"))["result"]["tools"]
    meta = shown.pop("_meta")
    assert shown == {**{key: value for key, value in TOOL.items() if key != "_meta"}, "name": "raw_draw"}
    assert meta.pop("gatehouse/id") == "raw.draw"
    assert meta == {**TOOL["_meta"], "ui": {"resourceUri": "ui://raw/app.html", "visibility": ["model"]}}


@pytest.mark.parametrize(("front", "behind"), CELLS)
async def test_an_error_keeps_its_code_message_and_data(start: Any, front: str, behind: str) -> None:
    async def refuse(params: Json, headers: Json) -> Json:
        raise RpcError(-32099, "Not today: ✗", {"why": [1, {"deep": None}]})

    async with cell(start, front, behind, answers={"tools/call": refuse}) as (client, _):
        answer = await client.ask("tools/call", {"name": "raw_draw"})
    assert answer["error"] == {"code": -32099, "message": "Not today: ✗", "data": {"why": [1, {"deep": None}]}}


@pytest.mark.parametrize(("front", "behind"), CELLS)
async def test_links_in_results_lead_back_to_the_backend_and_nothing_else_changes(
    start: Any, front: str, behind: str
) -> None:
    async def read(params: Json, headers: Json) -> Json:
        return {"contents": [{"uri": params["uri"], "text": "x", "odd": {"a": 1}, "_meta": {"ui": {"csp": {}}}}]}

    answers = {"tools/call": LINKED, "resources/read": read}
    async with cell(start, front, behind, answers=answers) as (client, raw):
        result = _without_ours((await client.ask("tools/call", {"name": "raw_draw"}))["result"])
        link, embedded = result["content"]
        assert (link.pop("uri"), embedded["resource"].pop("uri")) == (
            "gatehouse://raw/raw%3A%2F%2Fa",
            "gatehouse://raw/raw%3A%2F%2Fb",
        )
        expected_link, expected_resource = LINKED["content"]
        assert link == {key: value for key, value in expected_link.items() if key != "uri"}
        assert embedded == {**expected_resource, "resource": {"text": "b", "x": 1}}
        # An app's page is read under the address that the tool's `_meta` shows.
        page = (await client.ask("resources/read", {"uri": "ui://raw/app.html"}))["result"]["contents"]
        assert page == [{"uri": "ui://raw/app.html", "text": "x", "odd": {"a": 1}, "_meta": {"ui": {"csp": {}}}}]
        assert raw.params_of("resources/read")[-1]["uri"] == "ui://app.html"


@pytest.mark.parametrize(("front", "behind"), CELLS)
async def test_progress_and_logs_keep_every_field_but_the_token(start: Any, front: str, behind: str) -> None:
    step = {"progress": 1, "total": 2, "message": "half", "odd": {"a": 1}}
    line = {"level": "info", "logger": "l", "data": {"any": [1]}, "_meta": {"k": 1}}
    notices = [
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "TOKEN", **step}},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": line},
    ]
    async with cell(start, front, behind, answers={"tools/call": {"content": []}}, notifications=notices) as (
        client,
        raw,
    ):
        if front == "handshake":
            await client.ask("logging/setLevel", {"level": "debug"})
        meta = {"progressToken": "mine", "io.modelcontextprotocol/logLevel": "debug"}
        said = await client.send("tools/call", {"name": "raw_draw", "_meta": meta})
        assert [each.get("params") for each in said[:-1]] == [{"progressToken": "mine", **step}, line]
        assert raw.params_of("tools/call")[-1]["_meta"]["progressToken"] != "mine"


@pytest.mark.parametrize("behind", ["handshake", "modern"])
async def test_every_page_of_a_backends_list_is_read(start: Any, behind: str) -> None:
    many = [{**TOOL, "name": f"t{number}"} for number in range(7)]
    async with raw_server(era=behind, tools=many, page=2) as raw, start(backends={"raw": raw.entry()}) as gateway:
        listed = (await gateway.post("tools/list")).json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == [f"raw_t{number}" for number in range(7)]


async def test_a_long_list_is_given_page_by_page_under_sealed_cursors(start: Any, era: str) -> None:
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
                with pytest.raises(MCPError, match="not one of ours"):
                    await client.list_prompts(cursor=cursors[0])


async def test_a_link_that_an_old_server_wants_opened_becomes_input_required(start: Any) -> None:
    opened: list[bool] = []
    link = {"mode": "url", "message": "Sign in", "url": "https://example.com/in", "elicitationId": "e1"}

    async def act(params: Json, headers: Json) -> Json:
        assert "inputResponses" not in params
        if not opened:
            raise RpcError(-32042, "Sign in first", {"elicitations": [link]})
        return {"content": [{"type": "text", "text": "done"}]}

    async with cell(start, "modern", "handshake", answers={"tools/call": act}) as (client, _):
        meta = {CAPABILITIES: {"elicitation": {"url": {}}}}
        first = (await client.ask("tools/call", {"name": "raw_draw", "_meta": meta}))["result"]
        assert first["inputRequests"] == {
            "link-1": {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "Sign in", "url": "https://example.com/in"},
            }
        }
        retry = {"name": "raw_draw", "requestState": first["requestState"], "_meta": meta}
        declined = await client.ask("tools/call", {**retry, "inputResponses": {"link-1": {"action": "decline"}}})
        assert declined["result"]["isError"]
        opened.append(True)
        done = await client.ask("tools/call", {**retry, "inputResponses": {"link-1": {"action": "accept"}}})
        assert done["result"]["content"][0]["text"] == "done"


async def test_a_client_that_cannot_open_links_is_told_which_capability_it_lacks(start: Any) -> None:
    async def act(params: Json, headers: Json) -> Json:
        raise RpcError(-32042, "Sign in first", {"elicitations": [{"mode": "url", "message": "m", "url": "https://x"}]})

    async with cell(start, "modern", "handshake", answers={"tools/call": act}) as (client, _):
        refused = (await client.ask("tools/call", {"name": "raw_draw"}))["error"]
    assert refused["code"] == -32021


async def test_an_old_client_gets_an_old_servers_links_as_they_are(start: Any) -> None:
    data = {"elicitations": [{"mode": "url", "message": "m", "url": "https://x", "elicitationId": "e1"}]}

    async def act(params: Json, headers: Json) -> Json:
        raise RpcError(-32042, "Sign in first", data)

    async with cell(start, "handshake", "handshake", answers={"tools/call": act}) as (client, _):
        assert (await client.ask("tools/call", {"name": "raw_draw"}))["error"]["data"] == data


@pytest.mark.parametrize("behind", ["handshake", "modern"])
async def test_a_change_told_on_a_calls_own_stream_is_heard(start: Any, behind: str) -> None:
    notices = [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
    async with cell(start, "modern", behind, answers={"tools/call": {"content": []}}, notifications=notices) as (
        client,
        raw,
    ):
        raw.tools.append({**TOOL, "name": "later"})
        await client.ask("tools/call", {"name": "raw_draw"})
        async with asyncio.timeout(10):
            while "raw_later" not in str(await client.ask("tools/list")):
                await asyncio.sleep(0.01)
