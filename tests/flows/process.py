"""Runs the `gatehouse` command in its own process and folder, as an operator does."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = Path(sys.prefix) / "bin" / "gatehouse"
MODERN: Final = "2026-07-28"
HANDSHAKE: Final = "2025-11-25"
FILE: Final = "gatehouse.yaml"
TIMEOUT: Final = 30.0
"""Maximum seconds to wait for a condition: twenty times the CPU time of a start."""

CORE: Final[Json] = {"core": {"module": "backends.core"}}
"""The smallest backend."""
_ADDRESS: Final = re.compile(r"serves (http://\S+)/mcp")


def environment(**more: str) -> dict[str, str]:
    """This process's environment without Gatehouse settings, with the repository on the import path."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("GATEHOUSE")}
    # Use a bytecode cache: compilation dominates the run time of a command. Some machines forbid it beside the source.
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    bytecode = str(Path(sys.prefix) / "bytecode")
    return {**clean, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **more}


def run(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command until it exits."""
    return subprocess.run(
        [str(COMMAND), *arguments],
        cwd=folder,
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=60,
    )


def until(condition: Callable[[], Any], description: str, timeout: float = TIMEOUT) -> Any:
    """Wait until `condition` returns a true value, and return it. Fail after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {description}"
        time.sleep(0.02)
    return value


def write_settings(folder: Path, **settings: Any) -> Path:
    """Write `gatehouse.yaml` atomically, as an editor does."""
    file = folder / FILE
    fresh = folder / f"{FILE}.new"
    fresh.write_text(yaml.safe_dump({"log": {"format": "json"}, **settings}))
    fresh.replace(file)
    return file


@dataclass(frozen=True)
class Served:
    """A running `gatehouse serve` process that is ready."""

    process: subprocess.Popen[bytes]
    folder: Path
    base: str
    key: str
    log: Path

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def lines(self) -> list[Json]:
        """Every complete log line so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def lines_with(self, text: str) -> list[Json]:
        return [line for line in self.lines() if text in line["message"]]

    def rss(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def cpu(self) -> float:
        """CPU seconds used. Unlike wall time, it measures the cost of a request on a busy machine too."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def post(self, message: Json, key: str | None = None, path: str = "/mcp", **headers: str) -> httpx.Response:
        """Post one message of the handshake era, or of the era that the headers select."""
        sent = {
            "authorization": f"Bearer {self.key if key is None else key}",
            "accept": "application/json, text/event-stream",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return httpx.post(
            self.base + path,
            json={"jsonrpc": "2.0", **message},
            headers=sent,
            timeout=30,
            trust_env=False,
            verify=False,
        )

    def delete(self, session: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.key}", "mcp-session-id": session}
        return httpx.delete(self.url, headers=headers, timeout=30, trust_env=False, verify=False)

    def request(self, method: str, params: Json | None = None, key: str | None = None, path: str = "/mcp") -> Json:
        """Send one request of 2026-07-28 and return the response."""
        return self.post(modern(method, params), key, path, **modern_headers(method, params)).json()

    def call(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        return self.request("tools/call", {"name": tool, "arguments": arguments or {}}, **more)

    def tool_names(self) -> set[str]:
        return {tool["name"] for tool in self.request("tools/list")["result"]["tools"]}

    def initialize(self, key: str | None = None, **capabilities: Any) -> str:
        """Open a session of the handshake era and return its id."""
        params = {
            "protocolVersion": HANDSHAKE,
            "capabilities": capabilities,
            "clientInfo": {"name": "flow", "version": "1"},
        }
        answer = self.post({"id": 0, "method": "initialize", "params": params}, key)
        assert answer.status_code == 200, answer.text
        return answer.headers["mcp-session-id"]


def modern(method: str, params: Json | None = None, id: str | int = 1, **capabilities: Any) -> Json:
    """A request of 2026-07-28 with its envelope."""
    sent = dict(params or {})
    sent["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        **sent.get("_meta", {}),
    }
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": sent}


def modern_headers(method: str, params: Json | None = None) -> dict[str, str]:
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
    name = (params or {}).get("name") or (params or {}).get("uri")
    return headers if name is None else {**headers, "mcp-name": name}


@contextmanager
def starting(folder: Path, *arguments: str, name: str = "serve") -> Iterator[Callable[[], Served]]:
    """Run `gatehouse serve` on a free port with the folder's settings until the block ends.

    Yields a function that waits until the process is ready. `Served.key` is the key printed at the first start, else
    empty.
    """
    output, log = folder / f"{name}.out", folder / f"{name}.log"
    command = [str(COMMAND), "serve", "--port", "0", *arguments]
    with output.open("wb") as out, log.open("wb") as err:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=out, stderr=err)

    def ready() -> Served:
        base = until(lambda: _address(process, output, log), "an address to connect to")
        until(lambda: is_ready(base), "readiness")
        shown = re.search(r"gth_\S+", output.read_text())
        return Served(process, folder, base, shown[0] if shown else "", log)

    try:
        yield ready
    finally:
        stop(process)


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Served]:
    """Like `starting`, but wait until the gateway is ready."""
    with starting(folder, *arguments) as ready:
        yield ready()


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], output: Path, log: Path) -> str | None:
    assert process.poll() is None, (
        f"gatehouse serve exited with {process.returncode}:\n{output.read_text()}{log.read_text()}"
    )
    found = _ADDRESS.search(output.read_text())
    return found[1] if found else None


def is_ready(base: str) -> bool:
    try:
        return httpx.get(f"{base}/readyz", trust_env=False, verify=False).status_code == 200
    except httpx.TransportError:
        return False
