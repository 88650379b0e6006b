"""Serving a gateway on a socket: uvicorn with our protocol, signals, and settings that change while it runs."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final

import uvicorn

from gateway.app import Gatehouse
from gateway.edge.client_address import within
from gateway.edge.connections import ConnectionRegistry
from gateway.edge.request_limits import EdgeLimits
from gateway.edge.server import HttpProtocol, protocol_class
from gateway.settings import Settings, SettingsError
from gateway.upstream.health import LoadError

log = logging.getLogger("gatehouse")

WATCH_SECONDS: Final = 1.0
BRIDGE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sockets:
    """Where we listen: for clients and, where they have a port of their own, for operators."""

    main: socket.socket
    ops: socket.socket | None = None


def listen(settings: Settings) -> socket.socket:
    """The socket for clients. Raises `OSError` when the address is taken or not ours."""
    return listen_at(settings.server.host, settings.server.port)


def listen_at(host: str, port: int) -> socket.socket:
    """The bound socket. Raises `OSError` when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(2048)
    except OSError:
        bound.close()
        raise
    return bound


async def serve(house: Gatehouse, sockets: Sockets, reload: Callable[[], Settings] | None = None) -> None:
    """Until a signal stops it. SIGHUP, or a change of the settings file, applies new settings without a restart."""
    server = GracefulServer(house, config(house))
    beside = await _serve_operators(house, sockets.ops)
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    watching: list[asyncio.Task[None]] = []
    if reload is not None:
        loop.add_signal_handler(signal.SIGHUP, changed.set)
        watching.append(asyncio.create_task(_apply_changes(house, changed, reload)))
        if house.settings.source is not None:
            watching.append(asyncio.create_task(_watch(house.settings.source, changed)))
    _calm_collector()
    try:
        await server.serve(sockets=[sockets.main])
    finally:
        for task in [*watching, *beside]:
            task.cancel()
        await asyncio.gather(*watching, *beside, return_exceptions=True)


@asynccontextmanager
async def beside(house: Gatehouse, bound: socket.socket) -> AsyncGenerator[None]:
    """Serve within a process that has work and signals of its own, until the block ends."""
    server = _Beside(config(house))
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield
    finally:
        await house.drain()
        server.should_exit = True
        await task


class GracefulServer(uvicorn.Server):
    """Leaves in steps: readiness fails, then nobody new is let in, then what is under way gets its time."""

    def __init__(self, house: Gatehouse, served: uvicorn.Config) -> None:
        super().__init__(served)
        self._house = house

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        with super().capture_signals():
            yield
            # uvicorn would send itself the signal again, and so end the process before the house is closed.
            self._captured_signals.clear()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._house.leave()
        protocol = self.config.http_protocol_class
        if issubclass(protocol, HttpProtocol):
            protocol.closing = True
        for connection in self.server_state.connections:
            if isinstance(connection, HttpProtocol):
                connection.leaving()
        if self._house.settings.server.drain_grace and signal.SIGINT not in self._captured_signals:
            # Balancers need a moment to notice; whoever pressed Ctrl-C does not.
            await asyncio.sleep(self._house.settings.server.drain_grace)
        await self._house.drain()
        await super().shutdown(sockets)


async def _serve_operators(house: Gatehouse, bound: socket.socket | None) -> list[asyncio.Task[None]]:
    """Health, and what else is for operators, on a port of its own where one is set."""
    if bound is None:
        return []
    served = uvicorn.Config(house.ops, lifespan="off", access_log=False, log_config=None)
    return [asyncio.create_task(_Beside(served).serve(sockets=[bound]))]


class _Beside(uvicorn.Server):
    """A second server of the process: the first one minds the signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _calm_collector() -> None:
    """What was loaded at the start lives for ever; looking through it again and again is a tenth of a call's cost."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def config(house: Gatehouse) -> uvicorn.Config:
    server = house.settings.server
    limits = EdgeLimits(
        header_timeout=server.header_timeout,
        body_timeout=server.body_timeout,
        min_body_rate=server.min_body_rate,
        idle_timeout=server.idle_timeout,
        write_timeout=server.write_timeout,
        max_header_bytes=server.max_header_bytes,
        max_headers=server.max_headers,
        max_body_bytes=server.max_body_bytes,
        max_connections=server.max_connections,
        max_connections_per_address=server.max_connections_per_ip,
    )
    return uvicorn.Config(
        house.asgi,
        http=protocol_class(limits, ConnectionRegistry(exempt=partial(within, server.trusted_proxies)), house.lane),
        ws="websockets-sansio",
        ws_max_size=BRIDGE_BYTES,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=ceil(server.drain_seconds),
    )


async def _watch(source: Path, changed: asyncio.Event) -> None:
    """A stat each second: works on any file system, a mounted ConfigMap included."""
    seen = _stamp(source)
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        now = _stamp(source)
        if now != seen:
            seen = now
            changed.set()


def _stamp(source: Path) -> tuple[int, int] | None:
    try:
        stat = source.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


async def _apply_changes(house: Gatehouse, changed: asyncio.Event, reload: Callable[[], Settings]) -> None:
    while True:
        await changed.wait()
        changed.clear()
        try:
            settings = reload()
        except SettingsError as exc:
            for line in exc.lines:
                log.error("the new settings are not used: %s", line)
            continue
        try:
            await house.apply(settings)
        except LoadError as exc:
            log.error("the new settings are not used: %s", settings.placed(exc.at, str(exc)))
        else:
            log.info("the new settings are in use")
