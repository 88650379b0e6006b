"""The candidates of the benchmark and how to start each of them."""

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
from bench.wire import Endpoint, Era

_ROOT = Path(__file__).resolve().parent.parent
_BIN = Path(sys.executable).parent
_ENV = {**os.environ, "PYTHONPATH": str(_ROOT)}


class StartError(Exception):
    """A candidate could not be started. The message is a one-line reason."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command of a prepared candidate and the API key for calling it."""

    argv: tuple[str, ...]
    key: str | None = None
    upstreams: tuple[tuple[str, ...], ...] = ()
    """Commands of the upstream servers it needs; they run on the driver's core and are not measured."""
    env: Mapping[str, str] | None = None
    """The complete environment, if it must not inherit ours."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server to measure, its baseline and its bound."""

    name: str
    title: str
    era: Era
    tool: str
    prepare: Callable[[Path, int], Launch]
    """Takes an empty folder and the port to serve on; returns how to start the candidate."""
    baseline: str = "echo"
    """The candidate that its CPU cost is compared with."""
    bound: float | None = None
    """Maximum CPU cost as a multiple of the baseline's."""
    start_limit: float = 30.0
    """Maximum seconds until its first response."""


@dataclass(frozen=True, slots=True)
class RunningCandidate:
    """A started candidate and its endpoint."""

    candidate: Candidate
    server: Server
    endpoint: Endpoint


@contextmanager
def start_candidate(candidate: Candidate, folder: Path, cores: Cores) -> Generator[RunningCandidate]:
    """Start the candidate with its upstream servers, and stop all of them at the end."""
    folder.mkdir(parents=True)
    port = free_port()
    launch = candidate.prepare(folder, port)
    with ExitStack() as stack:
        for index, argv in enumerate(launch.upstreams):
            upstream = Server(argv, core=cores.driver, log=folder / f"upstream-{index}.log", env=_ENV)
            stack.callback(upstream.stop)
        server = Server(launch.argv, core=cores.server, log=folder / "server.log", env=launch.env or _ENV)
        stack.callback(server.stop)
        yield RunningCandidate(candidate, server, Endpoint(port, candidate.era, candidate.tool, launch.key))


def _echo(folder: Path, port: int) -> Launch:
    return Launch((sys.executable, "-m", "bench.echo_server", str(port)))


def _sdk(folder: Path, port: int) -> Launch:
    return Launch((sys.executable, "-m", "bench.sdk_server", str(port)))


def _gatehouse(folder: Path, port: int) -> Launch:
    return _gateway(folder, port, {"bench": {"module": "bench.echo_module"}})


def upstream_command(era: Era) -> tuple[int, tuple[str, ...]]:
    """Return a free port and the command that starts an upstream server of the era on it."""
    port = free_port()
    return port, (sys.executable, "-m", "bench.upstream_server", era, str(port))


def _forward(era: Era, token: str | None = "bench-token") -> Callable[[Path, int], Launch]:
    def prepare(folder: Path, port: int) -> Launch:
        upstream_port, argv = upstream_command(era)
        token_arguments = (token,) if token is not None else ()
        forwarder = (sys.executable, "-m", "bench.forward_server", str(port), str(upstream_port), *token_arguments)
        return Launch(forwarder, key=token, upstreams=(argv,))

    return prepare


def _gatehouse_hop(era: Era) -> Callable[[Path, int], Launch]:
    def prepare(folder: Path, port: int) -> Launch:
        upstream_port, argv = upstream_command(era)
        entry = {
            "url": f"http://127.0.0.1:{upstream_port}/mcp",
            "allow_private": True,
            # The highest concurrency of the benchmark, all by one tenant.
            "max_calls": 512,
            "max_calls_per_tenant": 512,
        }
        return replace(_gateway(folder, port, {"bench": entry}), upstreams=(argv,))

    return prepare


def _gateway(folder: Path, port: int, backends: dict[str, Any], **more: Any) -> Launch:
    """Prepare a gateway with all stages enabled: API key, policy, unreachable limits, schema validation, audit."""
    config = folder / "gatehouse.yaml"
    settings = {
        "server": {
            "host": "127.0.0.1",
            "port": port,
            "public_url": f"http://127.0.0.1:{port}",
            # All load comes from one IP address.
            "max_connections_per_ip": 4096,
        },
        "data_dir": str(folder / "data"),
        "auth": {"mode": "embedded"},
        "tenants": {"default": {"backends": ["*"], "read_only": False}},
        "limits": {"calls": "1000000000/minute"},
        "streams": {"per_principal": 100_000, "per_tenant": 100_000, "per_process": 100_000},
        "backends": backends,
        **more,
    }
    # JSON is valid YAML.
    config.write_text(json.dumps(settings, indent=2))
    gatehouse = str(_BIN / "gatehouse")
    return Launch((gatehouse, "serve", "--config", str(config)), key=_new_key(gatehouse, config))


def _new_key(gatehouse: str, config: Path) -> str:
    argv = [gatehouse, "key", "create", "--config", str(config), "--tenant", "default", "--subject", "bench"]
    try:
        completed = subprocess.run(argv, env=_ENV, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise StartError(f"could not run gatehouse key create: {exc}") from exc
    if completed.returncode != 0:
        output = (completed.stderr or completed.stdout).strip().splitlines()
        raise StartError(f"gatehouse key create failed: {output[-1] if output else f'exit {completed.returncode}'}")
    return completed.stdout.strip()


def _gatehouse_unlimited(folder: Path, port: int) -> Launch:
    """A hop whose limits are all above the load of `bench.tail`."""
    upstream_port, argv = upstream_command("modern")
    entry = {
        "url": f"http://127.0.0.1:{upstream_port}/mcp",
        "allow_private": True,
        "max_calls": 1024,
        "max_calls_per_tenant": 1024,
        "effects": {"echo": 0},
    }
    shares = {"per_tenant": 1024, "per_principal": 1024, "waiting": 1024}
    return replace(_gateway(folder, port, {"bench": entry}, shares=shares), upstreams=(argv,))


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
    Candidate("forward", "forwarder 2026-07-28", "modern", "bench_echo", _forward("modern"), baseline="forward"),
    Candidate("bytes", "the same, bytes only", "modern", "echo", _forward("modern", None), baseline="forward"),
    Candidate(
        "gatehouse-hop",
        "Gatehouse, HTTP hop 2026-07-28",
        "modern",
        "bench_echo",
        _gatehouse_hop("modern"),
        baseline="forward",
        bound=_HOP_BOUND,
    ),
    Candidate(
        "forward-handshake",
        "forwarder 2025-11-25",
        "handshake",
        "bench_echo",
        _forward("handshake"),
        baseline="forward-handshake",
    ),
    Candidate(
        "gatehouse-hop-handshake",
        "Gatehouse, HTTP hop 2025-11-25",
        "handshake",
        "bench_echo",
        _gatehouse_hop("handshake"),
        baseline="forward-handshake",
        bound=_HOP_BOUND,
    ),
)

TAIL: tuple[Candidate, ...] = (
    Candidate("forward", "forwarder", "modern", "bench_echo", _forward("modern")),
    Candidate("gatehouse-tail", "Gatehouse", "modern", "bench_echo", _gatehouse_unlimited, bound=5.0),
)
"""The candidates of `bench.tail`; the bound limits the slowest call as a multiple of the median."""
