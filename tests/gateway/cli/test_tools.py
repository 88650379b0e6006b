"""`gatehouse tools` and `call` against a scripted peer and against a server of the MCP SDK."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn
from mcp.server import MCPServer
from mcp.shared.inbound import encode_header_value
from typer.testing import Result

from gateway.cli.mcp_client import header_value

from .conftest import Json, Peer, reply

Run = Callable[..., Result]
TEXT: Json = {"resultType": "complete", "content": [{"type": "text", "text": "hello"}], "isError": False}


def test_call_is_one_post_with_the_headers_and_meta_of_the_newest_revision(run: Run, peer: Peer) -> None:
    peer.results(TEXT)
    result = run("call", "core_ping", '{"a": 1}', "--url", peer.url, "--token", "gth_x")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello\n", "")
    ((headers, message),) = peer.seen
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "core_ping")
    assert headers["authorization"] == "Bearer gth_x"
    assert headers["accept"] == "application/json, text/event-stream"
    meta = message["params"].pop("_meta")
    assert message["params"] == {"name": "core_ping", "arguments": {"a": 1}}
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}


def test_url_and_token_are_read_from_the_environment(run: Run, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_URL", peer.url)
    monkeypatch.setenv("GATEHOUSE_TOKEN", "gth_env")
    peer.results(TEXT)
    assert run("call", "x").exit_code == 0
    assert peer.seen[0][0]["authorization"] == "Bearer gth_env"


def test_response_in_an_event_stream_is_read_after_notifications(run: Run, peer: Peer) -> None:
    def stream(message: Json) -> tuple[int, str, str]:
        progress = '{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'
        first, second = json.dumps(json.loads(reply(message, TEXT)), indent=1).split("\n", 1)
        data = "\n".join(f"data: {line}" for line in (first, *second.split("\n")))
        return 200, "text/event-stream", f": hi\n\nevent: message\ndata: {progress}\n\nevent: message\n{data}\n\n"

    peer.answer = stream
    assert run("call", "x", "--url", peer.url).stdout == "hello\n"


def test_json_shows_the_complete_result(run: Run, peer: Peer) -> None:
    peer.results(TEXT)
    assert json.loads(run("call", "x", "--json", "--url", peer.url).stdout) == TEXT


def test_failed_call_prints_its_text_and_exits_with_5(run: Run, peer: Peer) -> None:
    peer.results({**TEXT, "isError": True})
    result = run("call", "x", "--url", peer.url)
    assert (result.exit_code, result.stdout) == (5, "hello\n")
    assert result.stderr == "gatehouse: x failed; see the result above\n"


def test_protocol_error_is_one_line_and_exits_with_5(run: Run, peer: Peer) -> None:
    error = {"code": -32602, "message": "Unknown tool: x", "data": {"kind": "not_found"}}
    peer.answer = lambda message: (
        400,
        "application/json",
        json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}),
    )
    result = run("call", "x", "--url", peer.url)
    assert (result.exit_code, result.stdout) == (5, "")
    assert result.stderr == "gatehouse: Unknown tool: x (code -32602)\n"
    assert json.loads(run("call", "x", "--url", peer.url, "--json").stdout) == {"error": error}


def test_tool_that_requires_input_is_reported(run: Run, peer: Peer) -> None:
    peer.results({"resultType": "input_required", "inputRequests": {}})
    result = run("call", "x", "--url", peer.url)
    assert result.exit_code == 1
    assert "use an MCP client" in result.stderr


@pytest.mark.parametrize(("token", "hint"), [((), "give --token"), (("--token", "t"), "rejected the token")])
def test_unauthenticated_call_explains_how_to_get_a_key_and_exits_with_3(
    run: Run, peer: Peer, token: tuple[str, ...], hint: str
) -> None:
    peer.answer = lambda message: (401, "application/json", "{}")
    result = run("tools", "--url", peer.url, *token)
    assert (result.exit_code, result.stdout) == (3, "")
    assert hint in result.stderr
    assert "gatehouse key create" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_unreachable_server_suggests_serve_and_exits_with_4(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/mcp"
    result = run("tools", "--url", url)
    assert result.exit_code == 4
    assert result.stderr.startswith(f"gatehouse: cannot reach {url}: ")
    assert "gatehouse serve" in result.stderr
    assert run("tools", "--url", "nonsense").exit_code == 4


def test_server_without_mcp_is_reported_and_exits_with_4(run: Run, peer: Peer) -> None:
    for answer in (
        (404, "text/html", "<p>"),
        (200, "application/json", "[]"),
        (200, "text/event-stream", "data: x\n\n"),
    ):
        peer.answer = lambda message, answer=answer: answer
        result = run("tools", "--url", peer.url)
        assert result.exit_code == 4
        assert f"is not an MCP endpoint (HTTP {answer[0]})" in result.stderr


@pytest.mark.parametrize("arguments", ["{", "[1]", "5"])
def test_invalid_arguments_are_rejected_before_a_request(run: Run, peer: Peer, arguments: str) -> None:
    result = run("call", "x", arguments, "--url", peer.url)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert peer.seen == []


def test_tools_of_all_pages_are_listed_with_their_effect(run: Run, peer: Peer) -> None:
    pages: list[Json] = [
        {"tools": [{"name": "a_read", "annotations": {"readOnlyHint": True}, "description": "First.\nMore."}],
         "nextCursor": "2"},
        {"tools": [{"name": "b_write"}]},
    ]  # fmt: skip
    peer.results(*pages, *pages)
    rows = [line.split() for line in run("tools", "--url", peer.url).stdout.splitlines()]
    assert rows == [["tool", "effect", "description"], ["a_read", "read", "First."], ["b_write", "write"]]
    assert [message["params"].get("cursor") for _, message in peer.seen] == [None, "2"]
    shown = json.loads(run("tools", "--json", "--url", peer.url).stdout)
    assert [tool["name"] for tool in shown] == ["a_read", "b_write"]


def test_narrow_terminal_truncates_the_description_not_the_name(
    run: Run, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    peer.results({"tools": [{"name": "project_workspace_stats", "description": "Count " + "and count " * 20}]})
    rows = run("tools", "--url", peer.url).stdout.splitlines()
    assert len(rows) == 2
    assert rows[1].startswith("project_workspace_stats  write   Count and count")


def test_piped_list_is_neither_cut_nor_padded_to_the_width_of_a_terminal(run: Run, peer: Peer) -> None:
    description = "Count " + "and count " * 20
    peer.results({"tools": [{"name": "count", "description": description}]})
    rows = run("tools", "--url", peer.url).stdout.splitlines()
    assert rows[1] == f"count  write   {description.strip()}"
    assert len(rows[0]) == len(rows[1])


@pytest.mark.parametrize("name", ["plain", " edge ", "ünïcode", "tab\t", "=?base64?eA==?=", ""])
def test_header_encoding_of_names_matches_the_sdk(name: str) -> None:
    assert header_value(name) == encode_header_value(name)


@pytest.fixture
def sdk_url() -> Iterator[str]:
    server = MCPServer("lab")

    @server.tool()
    def double(number: int) -> str:
        """Twice the number."""
        if number == 13:
            raise ValueError("unlucky")
        return str(2 * number)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(server.streamable_http_app(), log_level="error")
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        running.should_exit = True
        thread.join()


def test_tools_of_an_sdk_server_are_listed_and_called(run: Run, sdk_url: str) -> None:
    assert [tool["name"] for tool in json.loads(run("tools", "--json", "--url", sdk_url).stdout)] == ["double"]
    assert run("call", "double", '{"number": 21}', "--url", sdk_url).stdout == "42\n"
    assert run("call", "double", '{"number": 13}', "--url", sdk_url).exit_code == 5


def test_default_url_comes_from_the_settings(run: Run, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE__SERVER__PORT", str(peer.server.server_address[1]))
    peer.results(TEXT)
    assert run("call", "core_ping").stdout == "hello\n"


def test_default_url_comes_from_the_settings_file_of_the_config_option(run: Run, peer: Peer, tmp_path: Path) -> None:
    address = peer.url.removesuffix("/mcp")
    far = "backends: {far: {url: 'https://x.example', headers: {A: '${NOT_SET_HERE}'}}}\n"
    (tmp_path / "other.yaml").write_text(f"server: {{public_url: '{address}'}}\n{far}")
    peer.results(TEXT)
    assert run("call", "core_ping", "--config", "other.yaml").stdout == "hello\n"


def test_errors_are_printed_with_a_suggested_fix(run: Run, peer: Peer) -> None:
    def answer(error: Json) -> None:
        peer.answer = lambda message: (
            200,
            "application/json",
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}),
        )

    answer({"code": -32602, "message": "Unknown tool: nope", "data": {"kind": "not_found", "stage": "resolve"}})
    assert "list the tools you may call with `gatehouse tools`" in run("call", "nope", "--url", peer.url).stderr
    answer({"code": -32043, "message": "No.", "data": {"kind": "denied", "suggested_fix": "ask the operator"}})
    assert run("call", "nope", "--url", peer.url).stderr.splitlines()[-1] == "gatehouse: ask the operator"
    content = {"ok": False, "error": {"kind": "denied", "suggested_fix": "open it first"}}
    peer.results({**TEXT, "isError": True, "structuredContent": content})
    assert run("call", "x", "--url", peer.url).stderr.splitlines()[-1] == "gatehouse: open it first"
