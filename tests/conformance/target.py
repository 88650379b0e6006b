"""The servers under test: the SDK's server, or the gateway behind the authorizing proxy."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import yaml

from tests.conformance.child_process import child_process
from tests.conformance.proxy import authorizing_proxy

_ROOT: Final = Path(__file__).parents[2]
_START_TIMEOUT: Final = 90.0
_SERVER: Final = "conformance"
_NOT_READY: Final = 503
LOG: Final = "server.log"
"""Name of the file, in the target's folder, with the output of the server under test."""


class TargetError(Exception):
    """The server under test did not start."""


@asynccontextmanager
async def sdk_server(folder: Path, *era: str) -> AsyncGenerator[str]:
    """Start the fixture under the SDK's HTTP server, in both eras or in one, and yield its URL."""
    async with fixture_server(folder, "tests.conformance.sdk_server", *era) as url:
        yield url


@asynccontextmanager
async def fixture_server(folder: Path, module: str, *arguments: str) -> AsyncGenerator[str]:
    """Start a module that serves MCP on the port in its first argument, and yield its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    log = folder / LOG
    with log.open("wb") as printed:
        command = (sys.executable, "-m", module, str(port), *arguments)
        async with child_process(*command, env=_env(), stdout=printed, stderr=STDOUT) as process:
            await _wait_until_ready(url, process, log)
            yield url


@asynccontextmanager
async def gateway_over_sdk_server(folder: Path, *era: str) -> AsyncGenerator[str]:
    """Start the gateway with the SDK's server as a remote backend and yield the URL of the proxy."""
    behind = folder / "behind"
    behind.mkdir()
    async with sdk_server(behind, *era) as url, gateway_server(folder, {"url": url, "allow_private": True}) as front:
        yield front


@asynccontextmanager
async def gateway_server(folder: Path, entry: dict[str, object] | None = None) -> AsyncGenerator[str]:
    """Start a gateway with the fixture as its backend, behind the authorizing proxy, and yield the URL of the proxy.

    `entry` is the backend's settings entry; by default the fixture is loaded as a module.
    """
    port, front = free_port(), free_port()
    config = folder / "gatehouse.yaml"
    config.write_text(yaml.safe_dump(_settings(folder, port, front, entry or {"module": "tests.conformance.fixture"})))
    command = str(Path(sys.prefix) / "bin" / "gatehouse")
    log = folder / LOG
    with log.open("wb") as printed:
        async with child_process(
            command, "serve", "--config", str(config), env=_env(), stdout=printed, stderr=STDOUT
        ) as process:
            await _wait_until_ready(f"http://127.0.0.1:{port}/readyz", process, log)
            key = await _create_key(command, config)
            async with authorizing_proxy(front, port, f"Bearer {key}"):
                yield f"http://127.0.0.1:{front}/mcp/{_SERVER}"


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _settings(folder: Path, port: int, front: int, entry: dict[str, object]) -> dict[str, object]:
    return {
        "server": {"host": "127.0.0.1", "port": port, "public_url": f"http://127.0.0.1:{front}"},
        "data_dir": str(folder / "data"),
        "backends": {"fixture": entry},
        "servers": {_SERVER: {"backends": ["fixture"], "names": "bare"}},
        "limits": {"calls": "1000000/minute"},
    }


async def _create_key(command: str, config: Path) -> str:
    identity = ("--tenant", "default", "--subject", "conformance")
    async with child_process(
        command, "key", "create", "--config", str(config), *identity, env=_env(), stdout=PIPE, stderr=PIPE
    ) as process:
        key, error = await process.communicate()
    if process.returncode:
        raise TargetError(f"The API key could not be created:\n{error.decode(errors='replace')}")
    return key.decode().strip()


async def _wait_until_ready(url: str, process: Process, log: Path) -> None:
    """Wait for any response other than 503. Raises `TargetError` when the process exits first or the wait times out."""
    try:
        async with asyncio.timeout(_START_TIMEOUT), httpx.AsyncClient(trust_env=False) as client:
            while process.returncode is None:
                try:
                    if (await client.get(url)).status_code != _NOT_READY:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise TargetError(f"No response from {url} within {_START_TIMEOUT:g} s:\n{tail(log)}") from None
    raise TargetError(f"The server exited with code {process.returncode}:\n{tail(log)}")


def _env() -> dict[str, str]:
    # The fixture is imported from the source tree, which is not on the path of an installed command.
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
