"""What is measured, and how each is started."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.process import Cores, Server, free_port
from bench.wire import Door, Era

_ROOT = Path(__file__).resolve().parent.parent
_BIN = Path(sys.executable).parent
_ENV = {**os.environ, "PYTHONPATH": str(_ROOT)}


class NotStarted(Exception):
    """A candidate could not be started; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a candidate that was prepared: its command, and the key to call it with."""

    argv: tuple[str, ...]
    key: str | None = None
    behind: tuple[tuple[str, ...], ...] = ()
    """Commands of what it needs behind it; they run on the driver's core and are not measured."""
    env: Mapping[str, str] | None = None
    """Its whole environment, where it must not have ours."""


@dataclass(frozen=True, slots=True)
class Candidate:
    name: str
    title: str
    era: Era
    tool: str
    prepare: Callable[[Path, int], Launch]
    """(an empty folder of its own, the port to serve on) -> how to start it."""
    floor: str = "echo"
    """The candidate that its cost is a multiple of."""
    bound: float | None = None
    """The most that multiple may be."""
    start_limit: float = 30.0
    """Seconds until its first answer."""


@dataclass(frozen=True, slots=True)
class Running:
    """A candidate that was started, and the door to call it by."""

    candidate: Candidate
    server: Server
    door: Door


@contextmanager
def running(candidate: Candidate, folder: Path, cores: Cores) -> Generator[Running]:
    """The candidate, started and, in the end, stopped with all that is behind it."""
    folder.mkdir(parents=True)
    port = free_port()
    launch = candidate.prepare(folder, port)
    with ExitStack() as stack:
        for place, argv in enumerate(launch.behind):
            behind = Server(argv, core=cores.driver, log=folder / f"behind-{place}.log", env=_ENV)
            stack.callback(behind.stop)
        server = Server(launch.argv, core=cores.server, log=folder / "server.log", env=launch.env or _ENV)
        stack.callback(server.stop)
        yield Running(candidate, server, Door(port, candidate.era, candidate.tool, launch.key))


def _echo(folder: Path, port: int) -> Launch:
    return Launch((sys.executable, "-m", "bench.echo_server", str(port)))


def _sdk(folder: Path, port: int) -> Launch:
    return Launch((sys.executable, "-m", "bench.sdk_server", str(port)))


def _gatehouse(folder: Path, port: int) -> Launch:
    return _gateway(folder, port, {"bench": {"module": "bench.echo_module"}})


def upstream(era: Era) -> tuple[int, tuple[str, ...]]:
    """A port, and the command of a server of that era on it."""
    port = free_port()
    return port, (sys.executable, "-m", "bench.upstream_server", era, str(port))


def _forward(era: Era, token: str | None = "bench-token") -> Callable[[Path, int], Launch]:
    def prepare(folder: Path, port: int) -> Launch:
        behind, argv = upstream(era)
        checked = (token,) if token is not None else ()
        forwarder = (sys.executable, "-m", "bench.forward_server", str(port), str(behind), *checked)
        return Launch(forwarder, key=token, behind=(argv,))

    return prepare


def _gatehouse_hop(era: Era) -> Callable[[Path, int], Launch]:
    def prepare(folder: Path, port: int) -> Launch:
        behind, argv = upstream(era)
        entry = {
            "url": f"http://127.0.0.1:{behind}/mcp",
            "allow_private": True,
            # So many are asked for at once, all by one tenant.
            "max_calls": 512,
            "max_calls_per_tenant": 512,
        }
        return replace(_gateway(folder, port, {"bench": entry}), behind=(argv,))

    return prepare


def _gateway(folder: Path, port: int, backends: dict[str, Any]) -> Launch:
    """Everything on: a key, policy, limits too high to be met, the schema check, audit."""
    config = folder / "gatehouse.yaml"
    settings = {
        "server": {
            "host": "127.0.0.1",
            "port": port,
            "public_url": f"http://127.0.0.1:{port}",
            # All of the load comes from one address.
            "max_connections_per_ip": 4096,
        },
        "data_dir": str(folder / "data"),
        "auth": {"mode": "embedded"},
        "tenants": {"default": {"backends": ["*"], "read_only": False}},
        "limits": {"calls": "1000000000/minute"},
        "streams": {"per_principal": 100_000, "per_tenant": 100_000, "per_process": 100_000},
        "backends": backends,
    }
    # JSON is YAML too.
    config.write_text(json.dumps(settings, indent=2))
    gatehouse = str(_BIN / "gatehouse")
    return Launch((gatehouse, "serve", "--config", str(config)), key=_new_key(gatehouse, config))


def _new_key(gatehouse: str, config: Path) -> str:
    argv = [gatehouse, "key", "create", "--config", str(config), "--tenant", "default", "--subject", "bench"]
    try:
        made = subprocess.run(argv, env=_ENV, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NotStarted(f"gatehouse key create could not be run: {exc}") from exc
    if made.returncode != 0:
        said = (made.stderr or made.stdout).strip().splitlines()
        raise NotStarted(f"gatehouse key create failed: {said[-1] if said else f'exit {made.returncode}'}")
    return made.stdout.strip()


_IN_PROCESS_BOUND = 2.8
_HOP_BOUND = 2.5

CANDIDATES: tuple[Candidate, ...] = (
    Candidate("echo", "bare ASGI echo", "modern", "echo", _echo),
    Candidate("sdk", "SDK server", "modern", "echo", _sdk),
    Candidate("gatehouse", "Gatehouse 2026-07-28", "modern", "bench_echo", _gatehouse, bound=_IN_PROCESS_BOUND),
    Candidate(
        "gatehouse-handshake",
        "Gatehouse 2025-11-25",
        "handshake",
        "bench_echo",
        _gatehouse,
        bound=_IN_PROCESS_BOUND,
    ),
    Candidate("forward", "forwarder 2026-07-28", "modern", "bench_echo", _forward("modern"), floor="forward"),
    Candidate("bytes", "the same, bytes only", "modern", "echo", _forward("modern", None), floor="forward"),
    Candidate(
        "gatehouse-hop",
        "Gatehouse, HTTP hop 2026-07-28",
        "modern",
        "bench_echo",
        _gatehouse_hop("modern"),
        floor="forward",
        bound=_HOP_BOUND,
    ),
    Candidate(
        "forward-handshake",
        "forwarder 2025-11-25",
        "handshake",
        "bench_echo",
        _forward("handshake"),
        floor="forward-handshake",
    ),
    Candidate(
        "gatehouse-hop-handshake",
        "Gatehouse, HTTP hop 2025-11-25",
        "handshake",
        "bench_echo",
        _gatehouse_hop("handshake"),
        floor="forward-handshake",
        bound=_HOP_BOUND,
    ),
)
