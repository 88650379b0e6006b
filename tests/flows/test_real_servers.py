"""Third-party MCP servers behind the gateway, with clients of either era."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client

from tests.flows.process import Served, serving, until, write_settings
from tests.mcp_results import text_of
from tests.peers import npm

FAST = Path(__file__).parent / "fixtures" / "fastmcp_server.py"
EVERYTHING = ("stdio", "http")
"""The transports of server-everything, which are also its namespaces."""


@contextmanager
def _listening(*command: str, port: int, **more: str) -> Iterator[str]:
    process = subprocess.Popen(
        command, env={**npm.environment(**more)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: _is_listening(port), f"{command[0]} listens")
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(10)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    (folder / "hello.txt").write_text("hello from a file")
    return folder


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, docs: Path) -> Iterator[Served]:
    """One gateway in front of all the servers."""
    folder = tmp_path_factory.mktemp("real")
    node, everything = npm.command(npm.EVERYTHING)
    _, filesystem = npm.command(npm.FILESYSTEM)
    _, memory = npm.command(npm.MEMORY)
    with ExitStack() as stack:
        port, fast_port = _free_port(), _free_port()
        url = stack.enter_context(_listening(node, everything, "streamableHttp", port=port, PORT=str(port)))
        fast_url = stack.enter_context(_listening(sys.executable, str(FAST), str(fast_port), port=fast_port))
        write_settings(
            folder,
            backends={
                "stdio": {"command": node, "args": [everything, "stdio"], "isolation": "user"},
                "http": {"url": url, "allow_private": True},
                "files": {"command": node, "args": [filesystem, str(docs)]},
                "memory": {"command": node, "args": [memory], "env": {"MEMORY_FILE_PATH": str(folder / "memory.json")}},
                "fast-stdio": {"command": sys.executable, "args": [str(FAST)]},
                "fast-http": {"url": fast_url, "allow_private": True},
            },
            limits={"calls": "1000000/minute"},
        )
        running = stack.enter_context(serving(folder))
        wanted = {"stdio_echo", "http_echo", "files_read_text_file", "memory_read_graph", "fast-stdio_work"}
        until(lambda: (wanted | {"fast-http_work"}) <= running.tool_names(), "the tools of all servers")
        yield running


async def _elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"} if params.mode == "form" else None)


async def _sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(role="assistant", model="m", content=types.TextContent(text="Paris"))


async def _roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///srv/one", name="one")])  # type: ignore[arg-type]


@asynccontextmanager
async def _client(real: Served, era: str, **more: Any) -> AsyncGenerator[Client]:
    headers = {"authorization": f"Bearer {real.key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30, verify=False) as http:
        async with Client(streamable_http_client(real.url, http_client=http), mode=era, cache=None, **more) as client:
            yield client


def _capable_client(real: Served, era: str) -> Any:
    return _client(real, era, elicitation_callback=_elicit, sampling_callback=_sample, list_roots_callback=_roots)


def _text(result: Any) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.parametrize("ns", EVERYTHING)
async def test_everything_tools_return_every_content_type(real: Served, era: str, ns: str) -> None:
    async with _client(real, era) as client:
        assert "42" in _text(await client.call_tool(f"{ns}_get-sum", {"a": 40, "b": 2}))
        weather = await client.call_tool(f"{ns}_get-structured-content", {"location": "Chicago"})
        assert set(weather.structured_content) == {"temperature", "conditions", "humidity"}
        image = await client.call_tool(f"{ns}_get-tiny-image", {})
        assert [block.type for block in image.content].count("image") == 1
        annotated = await client.call_tool(f"{ns}_get-annotated-message", {"messageType": "error"})
        annotations = annotated.content[0].annotations
        assert annotations is not None
        assert annotations.priority == 1
        wrong = await client.call_tool(f"{ns}_get-sum", {"a": "x", "b": 2})
        assert wrong.is_error


@pytest.mark.parametrize("ns", EVERYTHING)
async def test_everything_resources_are_read_by_list_by_template_and_by_link(real: Served, era: str, ns: str) -> None:
    async with _client(real, era) as client:
        listed = [
            each for each in (await client.list_resources()).resources if each.uri.startswith(f"gatehouse://{ns}/")
        ]
        document = await client.read_resource(listed[0].uri)
        assert (document.contents[0].uri, len(text_of(document.contents[0])) > 100) == (listed[0].uri, True)
        templates = {each.uri_template for each in (await client.list_resource_templates()).resource_templates}
        (template,) = (each for each in templates if each.startswith(f"gatehouse://{ns}/") and "/text/" in each)
        read = await client.read_resource(template.replace("{resourceId}", "7"))
        assert "Resource 7" in text_of(read.contents[0])
        links = await client.call_tool(f"{ns}_get-resource-links", {"count": 2})
        link = next(block for block in links.content if isinstance(block, types.ResourceLink))
        followed = await client.read_resource(link.uri)
        assert followed.contents[0].uri == link.uri
        with pytest.raises(MCPError):
            await client.read_resource(template.replace("{resourceId}", "none"))


@pytest.mark.parametrize("ns", EVERYTHING)
async def test_everything_prompts_are_fetched_and_completed(real: Served, era: str, ns: str) -> None:
    async with _client(real, era) as client:
        prompt = await client.get_prompt(f"{ns}_args-prompt", {"city": "Paris", "state": "Texas"})
        assert "Paris, Texas" in text_of(prompt.messages[0].content)
        ref = types.PromptReference(name=f"{ns}_completable-prompt")
        found = await client.complete(ref, {"name": "department", "value": "E"})
        assert found.completion.values == ["Engineering"]
        held = await client.get_prompt(f"{ns}_resource-prompt", {"resourceType": "Text", "resourceId": "1"})
        (embedded,) = (each.content for each in held.messages if each.content.type == "resource")
        assert embedded.resource.uri.startswith(f"gatehouse://{ns}/")
        template = types.ResourceTemplateReference(uri=f"gatehouse://{ns}/demo://resource/dynamic/text/{{resourceId}}")
        assert (await client.complete(template, {"name": "resourceId", "value": "3"})).completion.values == ["3"]


@pytest.mark.parametrize("ns", EVERYTHING)
async def test_everything_requests_forms_urls_sampling_and_roots(real: Served, era: str, ns: str) -> None:
    async with _capable_client(real, era) as client:
        assert "Paris" in _text(await client.call_tool(f"{ns}_trigger-sampling-request", {"prompt": "capital?"}))
        assert "Ada" in _text(await client.call_tool(f"{ns}_trigger-elicitation-request", {}))
        assert "file:///srv/one" in _text(await client.call_tool(f"{ns}_get-roots-list", {}))
        link = {"url": f"https://example.com/{ns}/{era}"}
        assert "completed" in _text(await client.call_tool(f"{ns}_trigger-url-elicitation", link))


@pytest.mark.parametrize("ns", EVERYTHING)
async def test_everything_url_elicitation_error_becomes_an_elicitation(real: Served, ns: str) -> None:
    """A modern client gets the handshake-era error as an elicitation request."""
    async with _capable_client(real, "2026-07-28") as client:
        link = {"url": f"https://example.com/{ns}/first", "errorPath": True}
        assert "completed" in _text(await client.call_tool(f"{ns}_trigger-url-elicitation", link))


@pytest.mark.parametrize("ns", EVERYTHING)
async def test_everything_reports_progress_and_can_be_cancelled(real: Served, era: str, ns: str) -> None:
    steps: list[float] = []

    async def record_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    tool = f"{ns}_trigger-long-running-operation"
    async with _client(real, era) as client:
        await client.call_tool(tool, {"duration": 0.2, "steps": 4}, progress_callback=record_progress)
        assert steps == [1, 2, 3, 4]
        begun = asyncio.Event()

        async def first(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        long = asyncio.create_task(client.call_tool(tool, {"duration": 60, "steps": 600}, progress_callback=first))
        await begun.wait()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        assert "6" in _text(await client.call_tool(f"{ns}_get-sum", {"a": 4, "b": 2}))
    until(lambda: _cancelled(real, tool), "the gateway cancelled the call")


def _cancelled(real: Served, tool: str) -> list[Any]:
    canonical = tool.replace("_", ".", 1)
    return [line for line in real.lines() if line.get("target") == canonical and line.get("outcome") == "cancelled"]


@pytest.mark.parametrize("ns", EVERYTHING)
async def test_everything_resource_list_change_is_forwarded(real: Served, ns: str) -> None:
    async with _client(real, "2026-07-28", sampling_callback=_sample) as client:
        async with client.listen(resources_list_changed=True) as events:
            arguments = {"name": f"{ns}.txt.gz", "data": "data:text/plain,hi", "outputType": "resourceLink"}
            await client.call_tool(f"{ns}_gzip-file-as-resource", arguments)
            async with asyncio.timeout(10):
                assert type(await anext(aiter(events))).__name__ == "ResourcesListChanged"


async def test_files_are_listed_read_and_written(real: Served, era: str, docs: Path) -> None:
    async with _capable_client(real, era) as client:
        assert (
            _text(await client.call_tool("files_read_text_file", {"path": f"{docs}/hello.txt"})) == "hello from a file"
        )
        arguments = {"path": f"{docs}/{era}.txt", "content": "ü"}
        # The tool is annotated as destructive, so the call needs approval, which the answer of `_elicit` does not give.
        refused = await client.call_tool("files_write_file", arguments)
        assert _text(refused) == "The user declined this call."
        await client.call_tool("files_write_file", arguments, meta={"approved": True})
        assert (docs / f"{era}.txt").read_text() == "ü"
        assert "hello.txt" in _text(await client.call_tool("files_list_directory", {"path": str(docs)}))
        outside = await client.call_tool("files_read_text_file", {"path": os.devnull})
        assert outside.is_error


async def test_memory_server_keeps_state_between_calls(real: Served, era: str) -> None:
    async with _client(real, era) as client:
        entity = {"name": f"Ada {era}", "entityType": "person", "observations": ["likes engines"]}
        await client.call_tool("memory_create_entities", {"entities": [entity]})
        found = await client.call_tool("memory_search_nodes", {"query": f"Ada {era}"})
        assert found.structured_content["entities"] == [entity]


async def test_fastmcp_is_served_with_progress_logs_and_elicitation(real: Served, era: str) -> None:
    steps: list[float] = []
    lines: list[Any] = []

    async def record_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        lines.append(params.data)

    async with _client(real, era, elicitation_callback=_elicit, logging_callback=logged, log_level="info") as client:
        if era == "legacy":
            await client.set_logging_level("info")
        result = await client.call_tool("fast-http_work", {"steps": 3}, progress_callback=record_progress)
        assert (_text(result), steps) == ("3 steps", [1, 2, 3])
        assert ["did 1" in str(line) for line in lines] == [True, False, False]
        greeted = _text(await client.call_tool("fast-http_greet", {}))
        # FastMCP itself rejects elicitation in the modern era.
        assert greeted == "Hello Ada" if era == "legacy" else "unavailable on 2026-07-28" in greeted
        assert (await client.call_tool("fast-http_point", {"x": 1, "y": 2})).structured_content == {"x": 1, "y": 2}


async def test_fastmcp_resources_templates_and_prompts(real: Served, era: str) -> None:
    async with _client(real, era) as client:
        uris = [each.uri for each in (await client.list_resources()).resources]
        (note,) = (uri for uri in uris if uri.startswith("gatehouse://fast-http/"))
        assert text_of((await client.read_resource(note)).contents[0]) == "a note"
        square = await client.read_resource("gatehouse://fast-http/fast://square/12")
        assert text_of(square.contents[0]) == "144"
        prompt = await client.get_prompt("fast-http_ask", {"topic": "tides"})
        assert text_of(prompt.messages[0].content) == "Tell me of tides."


async def test_fastmcp_runs_as_a_child_process_too(real: Served) -> None:
    async with _client(real, "2026-07-28") as client:
        assert (await client.call_tool("fast-stdio_point", {"x": 1, "y": 2})).structured_content == {"x": 1, "y": 2}
