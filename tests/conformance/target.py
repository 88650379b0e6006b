"""What the suite is pointed at: the SDK's own server, or the gateway behind the proxy."""

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

from tests.conformance.child_process import child
from tests.conformance.proxy import proxy

_ROOT: Final = Path(__file__).parents[2]
_START: Final = 90.0
_SERVER: Final = "conformance"
_NOT_READY: Final = 503
LOG: Final = "server.log"
"""What the server under test printed, in the folder it was given."""


class TargetError(Exception):
    """The server under test did not start."""


@asynccontextmanager
async def alone(folder: Path, *era: str) -> AsyncGenerator[str]:
    """The fixture under the SDK's own HTTP server, in both eras or in one; its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    log = folder / LOG
    with log.open("wb") as printed:
        command = (sys.executable, "-m", "tests.conformance.sdk_server", str(port), *era)
        async with child(*command, env=_env(), stdout=printed, stderr=STDOUT) as process:
            await _answering(url, process, log)
            yield url


@asynccontextmanager
async def remote(folder: Path, *era: str) -> AsyncGenerator[str]:
    """The gateway in front of the fixture under the SDK's own HTTP server; the proxy's URL."""
    behind = folder / "behind"
    behind.mkdir()
    async with alone(behind, *era) as url, gateway(folder, {"url": url, "allow_private": True}) as front:
        yield front


@asynccontextmanager
async def gateway(folder: Path, entry: dict[str, object] | None = None) -> AsyncGenerator[str]:
    """The fixture as a backend of the gateway, reached through the proxy with a key of its own; the proxy's URL.

    Without an `entry` it is a module.
    """
    port, front = free_port(), free_port()
    config = folder / "gatehouse.yaml"
    config.write_text(yaml.safe_dump(_settings(folder, port, front, entry or {"module": "tests.conformance.fixture"})))
    command = str(Path(sys.prefix) / "bin" / "gatehouse")
    log = folder / LOG
    with log.open("wb") as printed:
        async with child(
            command, "serve", "--config", str(config), env=_env(), stdout=printed, stderr=STDOUT
        ) as process:
            await _answering(f"http://127.0.0.1:{port}/readyz", process, log)
            key = await _key(command, config)
            async with proxy(front, port, f"Bearer {key}"):
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


async def _key(command: str, config: Path) -> str:
    who = ("--tenant", "default", "--subject", "conformance")
    async with child(
        command, "key", "create", "--config", str(config), *who, env=_env(), stdout=PIPE, stderr=PIPE
    ) as process:
        key, complaint = await process.communicate()
    if process.returncode:
        raise TargetError(f"No key was made:\n{complaint.decode(errors='replace')}")
    return key.decode().strip()


async def _answering(url: str, process: Process, log: Path) -> None:
    """Wait for any answer but a 503. Raises `TargetError` when the process ends first or takes too long."""
    try:
        async with asyncio.timeout(_START), httpx.AsyncClient(trust_env=False) as client:
            while process.returncode is None:
                try:
                    if (await client.get(url)).status_code != _NOT_READY:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise TargetError(f"No answer from {url} within {_START:g} s:\n{tail(log)}") from None
    raise TargetError(f"The server ended with {process.returncode}:\n{tail(log)}")


def _env() -> dict[str, str]:
    # The fixture is imported from the tree, which an installed command does not have on its path.
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
