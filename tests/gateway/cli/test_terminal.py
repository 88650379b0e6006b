"""Terminal output of commands: colours, progress bars and shell completion."""

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import Result

from gateway.cli.main import SECTIONS
from gateway.cli.mcp_client import McpClient
from gateway.cli.output import count, open_output
from gateway.cli.progress import DELAY_SECONDS, ProgressBar
from tests.gateway.cli.conftest import Peer, reply

Run = Callable[..., Result]


@pytest.mark.parametrize("arguments", ["--help", "check", "doctor", "key list", "policy", "audit list"])
def test_output_is_not_coloured_without_a_terminal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    (tmp_path / "gatehouse.yaml").write_text("server: {port: 0}\nbackends: {core: {module: backends.core}}\n")
    ended = run(*arguments.split())
    assert ended.stdout
    assert "\x1b" not in ended.stdout + ended.stderr


def test_no_color_turns_colours_off_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.delenv("NO_COLOR", raising=False)
    open_output().print("[red]denied[/red]")
    assert capsys.readouterr().out == "\x1b[31mdenied\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    open_output().print("[red]denied[/red]")
    assert capsys.readouterr().out == "denied\n"


def test_piped_table_is_not_cut(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    label = "the key of the nightly job that copies tickets between the two trackers, " + "x" * 100
    assert run("key", "create", "--subject", "nightly", "--label", label).exit_code == 0
    assert label in run("key", "list").stdout


@pytest.mark.parametrize(("number", "text"), [(0, "0 tools"), (1, "1 tool"), (2, "2 tools")])
def test_numbers_have_the_right_noun(number: int, text: str) -> None:
    assert count(number, "tool") == text


def test_help_lists_the_commands_by_task(run: Run) -> None:
    shown = run("--help").stdout
    headings = [shown.index(f" {section} ") for section in SECTIONS]
    assert headings == sorted(headings)
    assert headings[2] < shown.index(" key ") < headings[3] < shown.index(" doctor ")


def _terminal() -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, force_terminal=True, width=80), output


def test_progress_bar_appears_after_a_second_and_is_erased() -> None:
    console, output = _terminal()
    with ProgressBar("checking", 4, console) as progress_bar:
        progress_bar._bar._started -= DELAY_SECONDS  # type: ignore[union-attr]  # as if started a second ago
        progress_bar.step("ports")
        progress_bar._bar.refresh()  # type: ignore[union-attr]
    assert "checking: ports" in output.getvalue()
    assert output.getvalue().rstrip().endswith("\x1b[2K")  # the line is erased


def test_progress_bar_does_not_appear_within_a_second() -> None:
    console, output = _terminal()
    with ProgressBar("checking", 4, console) as progress_bar:
        progress_bar.step("ports")
        progress_bar._bar.refresh()  # type: ignore[union-attr]
    assert "checking" not in output.getvalue()


def test_call_reports_progress_notifications(peer: Peer) -> None:
    def stream(message: dict[str, Any]) -> tuple[int, str, str]:
        token = message["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 2, "total": 5, "message": "half"}
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        return 200, "text/event-stream", f"data: {note}\n\ndata: {reply(message, {'content': []})}\n\n"

    peer.answer = stream
    reported: list[tuple[float, float | None, str]] = []
    with McpClient(peer.url, None) as client:
        assert client.call("slow", {}, lambda *progress: reported.append(progress)) == {"content": []}
    assert reported == [(2, 5, "half")]


def test_shell_completes_commands_and_clients(
    command: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    environ = {"COMP_WORDS": "gatehouse connect cur", "COMP_CWORD": "2", "_GATEHOUSE_COMPLETE": "complete_bash"}
    assert command(**environ).stdout.split() == ["cursor"]
