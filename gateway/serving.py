"""Serving a gateway on a socket: uvicorn with our protocol, signals, and settings that change while it runs."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import uvicorn

from gateway.app import Gatehouse
from gateway.edge.address import within
from gateway.edge.census import Census
from gateway.edge.limits import EdgeLimits
from gateway.edge.server import protocol_class
from gateway.settings import Settings, SettingsError
from gateway.upstream.load import LoadError

log = logging.getLogger("gatehouse")

WATCH_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 30
BRIDGE_BYTES: Final = 8 * 1024 * 1024


def listen(settings: Settings) -> socket.socket:
    """The bound socket. Raises `OSError` when the address is taken or not ours."""
    server = settings.server
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((server.host, server.port))
        bound.listen(2048)
    except OSError:
        bound.close()
        raise
    return bound


async def serve(house: Gatehouse, bound: socket.socket, reload: Callable[[], Settings] | None = None) -> None:
    """Until a signal stops it. SIGHUP, or a change of the settings file, applies new settings without a restart."""
    server = _Server(house, config(house))
    beside = await _serve_operators(house)
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
        await server.serve(sockets=[bound])
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
        house.drain()
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """Lets the house end its streams before it waits for the connections to finish."""

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
        self._house.drain()
        await super().shutdown(sockets)


async def _serve_operators(house: Gatehouse) -> list[asyncio.Task[None]]:
    """Health, and what else is for operators, on a port of its own where one is set."""
    port = house.settings.server.ops_port
    if port is None:
        return []
    served = uvicorn.Config(
        house.plain, host=house.settings.server.host, port=port, lifespan="off", access_log=False, log_config=None
    )
    return [asyncio.create_task(_Beside(served).serve())]


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
        http=protocol_class(limits, Census(exempt=partial(within, server.trusted_proxies)), house.lane),
        ws="websockets-sansio",
        ws_max_size=BRIDGE_BYTES,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
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
            await house.apply(reload())
        except SettingsError as exc:
            for line in exc.lines:
                log.error("the new settings are not used: %s", line)
        except LoadError as exc:
            log.error("the new settings are not used: %s", exc)
        else:
            log.info("the new settings are in use")
