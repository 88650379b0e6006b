"""The startup message on a terminal: nothing that the backends print scrolls it away."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.flows.process import COMMAND, TIMEOUT, environment, is_ready, until

NOISE = "noise of the child process"
SERVER = f"""
import sys
print("{NOISE}", file=sys.stderr, flush=True)
from mcp.server import MCPServer
server = MCPServer("noisy")
server.run()
"""


def test_stderr_of_a_child_process_goes_to_the_log_file_and_not_over_the_startup_message(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(SERVER)
    (tmp_path / "gatehouse.yaml").write_text(
        f"server: {{port: 0}}\nbackends: {{noisy: {{command: {sys.executable}, args: [noisy.py], cwd: {tmp_path}}}}}\n"
    )
    log = tmp_path / ".gatehouse" / "logs" / "backends.log"
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [str(COMMAND), "serve"],
        cwd=tmp_path,
        env=environment(TERM="dumb"),
        stdout=terminal,
        stderr=terminal,
        stdin=terminal,
    )
    os.close(terminal)
    try:
        shown = read_until(screen, "Press Ctrl-C to stop.")
        base = re.search(r"serves (http://[^/]+)/mcp", shown)
        assert base is not None
        until(lambda: is_ready(base[1]), "an answer of the gateway")
        until(lambda: log.exists() and NOISE in log.read_text(), "the child's line in the log file")
        process.send_signal(signal.SIGTERM)
        shown += read_rest(screen)
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    assert "Sign in" in shown
    assert "logs/backends.log" in shown
    assert NOISE not in shown


def read_until(screen: int, text: str) -> str:
    shown, deadline = "", time.monotonic() + TIMEOUT
    while text not in shown:
        assert time.monotonic() < deadline, shown
        ready, _, _ = select.select([screen], [], [], 1.0)
        if ready:
            shown += os.read(screen, 65536).decode(errors="replace")
    return shown


def read_rest(screen: int) -> str:
    shown = ""
    while True:
        try:
            part = os.read(screen, 65536)
        except OSError:  # the process has ended
            return shown
        if not part:
            return shown
        shown += part.decode(errors="replace")
