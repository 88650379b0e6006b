"""`gatehouse stdio` without a key, in a subprocess: signs the user in and stores the tokens."""

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.flows.process import ROOT, environment
from tests.peers.sign_in_browser import BROWSER

BACKENDS = {"lab": {"module": "tests.flows.fixtures.writer"}}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
LOOK = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "lab_look", "_meta": META}}


def _look(url: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run one call through the bridge."""
    command = [sys.executable, "-m", "gateway", "stdio", "--url", url]
    line = json.dumps(LOOK) + "\n"
    return subprocess.run(
        command, cwd=ROOT, env=environment(**environ), input=line, capture_output=True, text=True, timeout=60
    )


async def test_stdio_without_a_key_signs_in_and_refreshes_without_printing_tokens(start: Any, tmp_path: Path) -> None:
    async with start(backends=BACKENDS) as gateway:
        code = await gateway.app.identity.create_sign_in_code()
        user = {"XDG_DATA_HOME": str(tmp_path / "user")}
        first = await asyncio.to_thread(_look, gateway.url, **user, BROWSER=BROWSER, VISITOR_CODE=code)
        (file,) = (tmp_path / "user" / "gatehouse" / "sign-ins").glob("*.json")
        before = json.loads(file.read_bytes())
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        # Simulates an expired token while no user is present.
        file.write_text(json.dumps(before | {"access_token": "expired", "stale_at": 1.0}))
        second = await asyncio.to_thread(_look, gateway.url, **user, BROWSER="false")
        after = json.loads(file.read_bytes())
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for ended in (first, second):
        (answer,) = map(json.loads, ended.stdout.splitlines())
        assert answer["result"]["content"][0]["text"] == "looked"
        assert ended.returncode == 0
    assert first.stderr.startswith("gatehouse: to sign in, visit http://127.0.0.1:")
    assert (first.stderr.count("\n"), second.stderr) == (1, "")
    assert after["refresh_token"] != before["refresh_token"]
    for token in ("access_token", "refresh_token"):
        assert before[token] not in first.stdout + first.stderr
        assert after[token] not in second.stdout + second.stderr


def test_failed_sign_in_suggests_a_key_and_prints_no_sdk_output(tmp_path: Path) -> None:
    """A server that rejects requests and does not support OAuth."""
    script = (
        "import http.server as h\n"
        "class Rejecting(h.BaseHTTPRequestHandler):\n"
        "    def do_POST(self): self.send_response(401 if self.path == '/mcp' else 404); self.end_headers()\n"
        "    def do_GET(self): self.send_response(404); self.end_headers()\n"
        "    def log_message(self, *_): pass\n"
        "server = h.HTTPServer(('127.0.0.1', 0), Rejecting)\n"
        "print(server.server_address[1], flush=True)\n"
        "server.serve_forever()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as server_process:
        try:
            assert server_process.stdout is not None
            port = server_process.stdout.readline().strip()
            ended = _look(f"http://127.0.0.1:{port}/mcp", XDG_DATA_HOME=str(tmp_path), BROWSER="false")
        finally:
            server_process.kill()
    error = json.loads(ended.stdout)["error"]
    assert error["code"] == 401
    assert (
        "it rejects dynamic client registration; give --client-id. Try again, or set GATEHOUSE_TOKEN"
        in error["message"]
    )
    assert ended.stderr == f"gatehouse: {error['message']}\n"


def test_start_with_a_key_does_not_import_the_sdk() -> None:
    script = "import gateway.cli.stdio.server, sys; print(sorted(m for m in sys.modules if m.startswith('mcp.')))"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr
