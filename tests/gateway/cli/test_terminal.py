"""What the command does for people at a terminal, and leaves out where nobody looks."""

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import Result

from gateway.cli.mcp_client import McpClient
from gateway.cli.progress import PATIENCE, ProgressBar
from tests.gateway.cli.conftest import Peer, reply

Run = Callable[..., Result]


@pytest.mark.parametrize("arguments", ["--help", "check", "doctor", "key list", "policy", "audit list"])
def test_nothing_is_coloured_where_nobody_looks(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    (tmp_path / "gatehouse.yaml").write_text("server: {port: 0}\nbackends: {core: {module: backends.core}}\n")
    ended = run(*arguments.split())
    assert ended.stdout
    assert "\x1b" not in ended.stdout + ended.stderr


def _terminal() -> tuple[Console, io.StringIO]:
    paper = io.StringIO()
    return Console(file=paper, force_terminal=True, width=80), paper


def test_what_lasts_longer_than_a_second_shows_a_bar_and_leaves_nothing_behind() -> None:
    console, paper = _terminal()
    with ProgressBar("looking", 4, console) as waiting:
        waiting._bar._began -= PATIENCE  # type: ignore[union-attr]  # a second ago
        waiting.step("ports")
        waiting._bar.refresh()  # type: ignore[union-attr]
    assert "looking: ports" in paper.getvalue()
    assert paper.getvalue().rstrip().endswith("\x1b[2K")  # the line is wiped


def test_what_is_over_at_once_shows_nothing() -> None:
    console, paper = _terminal()
    with ProgressBar("looking", 4, console) as waiting:
        waiting.step("ports")
        waiting._bar.refresh()  # type: ignore[union-attr]
    assert "looking" not in paper.getvalue()


def test_a_call_is_told_how_far_its_tool_is(peer: Peer) -> None:
    def stream(message: dict[str, Any]) -> tuple[int, str, str]:
        token = message["params"]["_meta"]["progressToken"]
        told = {"progressToken": token, "progress": 2, "total": 5, "message": "half"}
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
        return 200, "text/event-stream", f"data: {note}\n\ndata: {reply(message, {'content': []})}\n\n"

    peer.answer = stream
    seen: list[tuple[float, float | None, str]] = []
    with McpClient(peer.url, None) as client:
        assert client.call("slow", {}, lambda *said: seen.append(said)) == {"content": []}
    assert seen == [(2, 5, "half")]


def test_the_shell_can_complete_commands_and_clients(
    command: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    asking = {"COMP_WORDS": "gatehouse connect cur", "COMP_CWORD": "2", "_GATEHOUSE_COMPLETE": "complete_bash"}
    assert command(**asking).stdout.split() == ["cursor"]
