"""Fixtures for the command tests: a scripted HTTP peer, and the command run in this process or in a subprocess."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gateway.cli.main import app

Json = dict[str, Any]
Answer = tuple[int, str, str]


class Peer:
    """An HTTP server that responds with `answer`; `seen` records the requests."""

    def __init__(self) -> None:
        self.answer: Callable[[Json], Answer] = lambda message: (500, "text/plain", "")
        self.seen: list[tuple[dict[str, str], Json]] = []
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                peer.seen.append(({name.lower(): value for name, value in self.headers.items()}, message))
                status, kind, body = peer.answer(message)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/mcp"

    def results(self, *results: Json) -> None:
        """Answer the next requests with these results, as JSON."""
        remaining = list(results)
        self.answer = lambda message: (200, "application/json", reply(message, remaining.pop(0)))


def reply(message: Json, result: Json) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    thread = threading.Thread(target=peer.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield peer
    peer.server.shutdown()
    thread.join()
    peer.server.server_close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.upper().startswith("GATEHOUSE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", list(sys.path))
    return lambda *arguments, **more: CliRunner().invoke(app, list(arguments), **more)


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command in a subprocess, in an empty folder."""
    root = Path(__file__).parents[3]

    def start(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("GATEHOUSE")}
        return subprocess.run(
            [sys.executable, "-m", "gateway", *arguments],
            cwd=tmp_path,
            env={**clean, "PYTHONPATH": str(root), **environ},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return start


@pytest.fixture
def run_in_thread(run: Callable[..., Result]) -> Callable[..., Awaitable[Result]]:
    """Run the command in a thread, for tests with an event loop."""

    async def start(*arguments: str, **more: Any) -> Result:
        return await asyncio.to_thread(run, *arguments, **more)

    return start
