"""Serves a gateway on a socket: uvicorn with our protocol, signal handling, and reloading of settings.

Used by `gatehouse serve`, by the demos and by tests.
"""

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
from types import FrameType
from typing import Final

import uvicorn

from gateway.app import Gateway
from gateway.edge.client_address import is_in_networks
from gateway.edge.connections import ConnectionRegistry
from gateway.edge.http_protocol import HttpProtocol, Serve, protocol_class
from gateway.edge.request_parsing import EdgeLimits
from gateway.settings import Settings, SettingsError
from gateway.upstream.health import LoadError

log = logging.getLogger("gatehouse")

WATCH_SECONDS: Final = 1.0
MAX_SOCKET_MESSAGE: Final = 8 * 1024 * 1024
"""Maximum size of a WebSocket message in bytes."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """The listening sockets: for clients and, if `ops_port` is set, for operators."""

    main: socket.socket
    ops: socket.socket | None = None


def listen(settings: Settings) -> socket.socket:
    """Bind the socket for clients. Raises `OSError` if the address is in use or not local."""
    return bind(settings.server.host, settings.server.port)


def bind(host: str, port: int) -> socket.socket:
    """Bind and listen. Raises `OSError` if the address is in use or not local."""
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


async def serve(gateway: Gateway, sockets: Sockets, reload: Callable[[], Settings] | None = None) -> None:
    """Serve until a signal arrives. SIGHUP or a change of the settings file applies the new settings."""
    server = GracefulServer(gateway, build_config(gateway))
    operator_tasks = await _serve_operators(gateway, sockets.ops)
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    watch_tasks: list[asyncio.Task[None]] = []
    if reload is not None:
        loop.add_signal_handler(signal.SIGHUP, changed.set)
        watch_tasks.append(asyncio.create_task(_apply_new_settings(gateway, changed, reload)))
        if gateway.settings.source is not None:
            watch_tasks.append(asyncio.create_task(_watch_file(gateway.settings.source, changed)))
    _tune_garbage_collector()
    try:
        await server.serve(sockets=[sockets.main])
    finally:
        for task in [*watch_tasks, *operator_tasks]:
            task.cancel()
        await asyncio.gather(*watch_tasks, *operator_tasks, return_exceptions=True)


@asynccontextmanager
async def serve_in_process(gateway: Gateway, bound: socket.socket) -> AsyncGenerator[None]:
    """Serve until the block ends, without signal handling: for demos, tests and benchmarks."""
    server = _SecondaryServer(build_config(gateway))
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield
    finally:
        await gateway.drain()
        server.should_exit = True
        await task


class GracefulServer(uvicorn.Server):
    """Shuts down in steps: fail readiness, stop accepting, then let running calls finish."""

    def __init__(self, gateway: Gateway, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._interrupted = False

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on SIGINT and SIGTERM. Replaces uvicorn's, which raises the signal again and so ends the process before
        the gateway is closed."""
        previous = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second interrupt ends the process without waiting for running calls."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        self._interrupted = self._interrupted or sig == signal.SIGINT

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway.start_draining()
        protocol = self.config.http_protocol_class
        if issubclass(protocol, HttpProtocol):
            protocol.closing = True
        for connection in self.server_state.connections:
            if isinstance(connection, HttpProtocol):
                connection.disable_keep_alive()
        if self._gateway.settings.server.drain_grace and not self._interrupted:
            # Load balancers need time to notice; a user who pressed Ctrl-C does not.
            await asyncio.sleep(self._gateway.settings.server.drain_grace)
        await self._gateway.drain()
        await super().shutdown(sockets)


async def _serve_operators(gateway: Gateway, bound: socket.socket | None) -> list[asyncio.Task[None]]:
    """Serve health, metrics, API and console on `ops_port`, if set."""
    if bound is None:
        return []
    served = uvicorn.Config(gateway.operator_app, lifespan="off", access_log=False, log_config=None)
    return [asyncio.create_task(_SecondaryServer(served).serve(sockets=[bound]))]


class _SecondaryServer(uvicorn.Server):
    """A further server of the process; it leaves signals alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _tune_garbage_collector() -> None:
    """Exempt the objects created at start from garbage collection: scanning them costs 10 % of a call.

    Nothing is collected first: that takes 0.1 s and frees some 2,000 objects.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def build_config(gateway: Gateway, serve: Serve | None = None) -> uvicorn.Config:
    """Build uvicorn's configuration. `serve` replaces the gateway's router."""
    server = gateway.settings.server
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
    registry = ConnectionRegistry(exempt=partial(is_in_networks, server.trusted_proxies))
    return uvicorn.Config(
        gateway.asgi,
        http=protocol_class(limits, registry, serve or gateway.router.serve),
        ws="websockets-sansio",
        ws_max_size=MAX_SOCKET_MESSAGE,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=ceil(server.drain_seconds),
    )


async def _watch_file(source: Path, changed: asyncio.Event) -> None:
    """Poll the file once a second, which works on every file system, including a mounted ConfigMap."""
    state = _file_state(source)
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        now = _file_state(source)
        if now != state:
            state = now
            changed.set()


def _file_state(source: Path) -> tuple[int, int] | None:
    try:
        stat = source.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino


async def _apply_new_settings(gateway: Gateway, changed: asyncio.Event, reload: Callable[[], Settings]) -> None:
    while True:
        await changed.wait()
        changed.clear()
        try:
            settings = reload()
        except SettingsError as exc:
            for line in exc.lines:
                log.error("settings: reload rejected, the current settings stay in effect: %s", line)
            continue
        try:
            await gateway.apply(settings)
        except LoadError as exc:
            message = settings.with_origin(exc.setting_path, str(exc))
            log.error("settings: reload rejected, the current settings stay in effect: %s", message)
        else:
            log.info("settings: reloaded")
