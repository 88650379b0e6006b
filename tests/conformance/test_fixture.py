"""The fixture server with the SDK's client, in both eras."""

import asyncio
from typing import Any, Final

import pytest
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext
from mcp.server.subscriptions import ToolsListChanged
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    TextContent,
)
from pydantic import FileUrl

from tests.conformance.backend import build

MODERN: Final = "2026-07-28"
ERAS: Final = ["legacy", MODERN]


async def _elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Alice", "color": "blue", "ok": True})


async def _sample(context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text="Paris"), model="test-model")


async def _roots(context: ClientRequestContext) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///test/root"))])


def _client(era: str, **options: Any) -> Client:
    return Client(build(), mode=era, **options)


def _capable_client(era: str) -> Client:
    return _client(era, elicitation_callback=_elicit, sampling_callback=_sample, list_roots_callback=_roots)


def _text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("era", ERAS)
async def test_fixture_has_every_name_that_the_suite_expects(era: str) -> None:
    async with _client(era) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
        uris = [resource.uri for resource in (await client.list_resources()).resources]

    assert tools[0] == "test_simple_text"
    assert {"test_streaming_elicitation", "test_logging_tool", "test_reconnection", "json_schema_2020_12_tool"} <= set(
        tools
    )
    assert len(prompts) == 5
    assert uris == ["test://static-text", "test://static-binary", "test://watched-resource"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("tool", "answer"),
    [
        ("test_input_required_result_elicitation", "Hello, Alice!"),
        ("test_input_required_result_sampling", "Paris"),
        ("test_input_required_result_multiple_inputs", "Answered: client_roots, greeting, user_name"),
        ("test_input_required_result_multi_round", "Alice likes blue"),
    ],
)
async def test_tool_receives_the_clients_answers_in_both_eras(era: str, tool: str, answer: str) -> None:
    async with _capable_client(era) as client:
        assert _text(await client.call_tool(tool)) == answer


async def test_answer_under_a_wrong_key_is_requested_again() -> None:
    async with _capable_client(MODERN) as client:
        result = await client.session.call_tool(
            "test_input_required_result_elicitation",
            input_responses={"wrong": ElicitResult(action="accept", content={"name": "Eve"})},
            allow_input_required=True,
        )

    assert list(getattr(result, "input_requests", None) or {}) == ["user_name"]


async def test_answers_of_a_round_are_in_the_request_state_of_the_next() -> None:
    name = ElicitResult(action="accept", content={"name": "Alice"})
    async with _capable_client(MODERN) as client:
        second = await client.session.call_tool(
            "test_input_required_result_multi_round", input_responses={"step1": name}, allow_input_required=True
        )

    assert list(getattr(second, "input_requests", None) or {}) == ["step2"]
    assert "Alice" in getattr(second, "request_state", "")


@pytest.mark.parametrize("era", ERAS)
async def test_undeclared_client_capability_is_an_error(era: str) -> None:
    async with _client(era) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("test_missing_capability")

    assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert caught.value.data == {"requiredCapabilities": {"sampling": {}}}


@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), (MODERN, -32602)])
async def test_unknown_resource_has_the_error_code_of_its_era(era: str, code: int) -> None:
    async with _client(era) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource("test://nowhere")

    assert caught.value.code == code
    assert caught.value.data == {"uri": "test://nowhere"}


@pytest.mark.parametrize(("era", "level", "expected"), [("legacy", None, 3), (MODERN, None, 0), (MODERN, "info", 3)])
async def test_logs_reach_only_clients_that_request_them(era: str, level: str | None, expected: int) -> None:
    received: list[Any] = []
    complete = asyncio.Event()

    async def on_log(params: LoggingMessageNotificationParams) -> None:
        received.append(params.data)
        if len(received) == expected:
            complete.set()

    async with _client(era, logging_callback=on_log, log_level=level) as client, asyncio.timeout(5):
        await client.call_tool("test_tool_with_logging")
        if expected:
            await complete.wait()

    assert len(received) == expected


async def test_list_change_is_notified_on_a_listen_stream() -> None:
    async with asyncio.timeout(5), _client(MODERN) as client, client.listen(tools_list_changed=True) as events:
        await client.call_tool("test_trigger_tool_change")
        assert isinstance(await anext(aiter(events)), ToolsListChanged)
