"""The `gatehouse` command as an operator runs it: in processes of its own, in a folder of its own."""

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
PATIENCE: Final = 30.0
"""How long a fact may take to come about on a busy machine."""

CORE: Final[Json] = {"core": {"module": "backends.core"}}
"""The smallest thing to serve."""
_ADDRESS: Final = re.compile(r"serves (http://\S+)/mcp")


def environment(**more: str) -> dict[str, str]:
    """This process's, without what it says of a gateway; the tree is importable."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("GATEHOUSE")}
    # Compiling everything anew would be most of what a command costs; some machines forbid bytecode beside the source.
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    bytecode = str(Path(sys.prefix) / "bytecode")
    return {**clean, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **more}


def run(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [str(COMMAND), *arguments],
        cwd=folder,
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=60,
    )


def until(fact: Callable[[], Any], what: str, within: float = PATIENCE) -> Any:
    """What `fact` returns once it is true. Fails when that takes too long."""
    ends = time.monotonic() + within
    while not (seen := fact()):
        assert time.monotonic() < ends, f"not within {within:g} s: {what}"
        time.sleep(0.02)
    return seen


def write_settings(folder: Path, **settings: Any) -> Path:
    """`gatehouse.yaml` with these settings, in place at once as an editor would put it."""
    file = folder / FILE
    fresh = folder / f"{FILE}.new"
    fresh.write_text(yaml.safe_dump({"log": {"format": "json"}, **settings}))
    fresh.replace(file)
    return file


@dataclass(frozen=True)
class Served:
    """A `gatehouse serve` that answers."""

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
        """Every whole line of its log so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def logged(self, words: str) -> list[Json]:
        return [line for line in self.lines() if words in line["message"]]

    def rss(self) -> int:
        """Resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def cpu(self) -> float:
        """Seconds of processor time it has used: on a busy machine the honest measure of what a request costs."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def post(self, message: Json, key: str | None = None, path: str = "/mcp", **headers: str) -> httpx.Response:
        """One message of the handshake era, or of whichever its headers say."""
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

    def ask(self, method: str, params: Json | None = None, key: str | None = None, path: str = "/mcp") -> Json:
        """The answer to one request of 2026-07-28."""
        return self.post(modern(method, params), key, path, **modern_headers(method, params)).json()

    def call(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, **more)

    def tool_names(self) -> set[str]:
        return {tool["name"] for tool in self.ask("tools/list")["result"]["tools"]}

    def initialize(self, key: str | None = None, **capabilities: Any) -> str:
        """A session of the handshake era."""
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
    given = dict(params or {})
    given["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        **given.get("_meta", {}),
    }
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": given}


def modern_headers(method: str, params: Json | None = None) -> dict[str, str]:
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
    name = (params or {}).get("name") or (params or {}).get("uri")
    return headers if name is None else {**headers, "mcp-name": name}


@contextmanager
def starting(folder: Path, *arguments: str, name: str = "serve") -> Iterator[Callable[[], Served]]:
    """`gatehouse serve` on a free port with the folder's own settings, until the block ends; call it to wait for it.

    `Served.key` is the key it prints at a first start, else empty.
    """
    said, log = folder / f"{name}.out", folder / f"{name}.log"
    command = [str(COMMAND), "serve", "--port", "0", *arguments]
    with said.open("wb") as out, log.open("wb") as err:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=out, stderr=err)

    def ready() -> Served:
        base = until(lambda: _address(process, said, log), "an address to connect to")
        until(lambda: _ready(base), "readiness")
        shown = re.search(r"gth_\S+", said.read_text())
        return Served(process, folder, base, shown[0] if shown else "", log)

    try:
        yield ready
    finally:
        stop(process)


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Served]:
    """The same for one that answers already."""
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


def _address(process: subprocess.Popen[bytes], said: Path, log: Path) -> str | None:
    assert process.poll() is None, f"it ended with {process.returncode}:\n{said.read_text()}{log.read_text()}"
    found = _ADDRESS.search(said.read_text())
    return found[1] if found else None


def _ready(base: str) -> bool:
    try:
        return httpx.get(f"{base}/readyz", trust_env=False, verify=False).status_code == 200
    except httpx.TransportError:
        return False
