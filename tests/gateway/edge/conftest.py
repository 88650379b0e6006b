"""A real uvicorn server with the edge's HTTP protocol class, on a free port."""

import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp

from gateway.edge.asgi import run_asgi
from gateway.edge.connections import ConnectionRegistry
from gateway.edge.http_protocol import protocol_class
from gateway.edge.request_parsing import EdgeLimits
from tests.gateway.edge.peer import RunningServer, Serve


class _Running:
    def __init__(self, app: ASGIApp, limits: EdgeLimits, send_buffer: int | None = None, **options: Any) -> None:
        connections = ConnectionRegistry(tick=0.05)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        if send_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        config = uvicorn.Config(
            app,
            http=protocol_class(limits, connections, partial(run_asgi, app)),
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=1,
            **options,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()
        self.server = RunningServer(self._socket.getsockname()[1], connections)

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True

    def join(self) -> None:
        self._thread.join(10)
        self._socket.close()


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """`serve(app, limits)` starts a server. The same app with the same limits reuses the server.

    All servers are stopped together at the end of the module, because each takes a while.
    """
    running: dict[tuple[ASGIApp, EdgeLimits], _Running] = {}

    def start(app: ASGIApp, limits: EdgeLimits, **options: Any) -> RunningServer:
        key = (app, limits)
        if key not in running:
            running[key] = _Running(app, limits, loop=request.param, **options)
        return running[key].server

    yield start
    for server in running.values():
        server.stop()
    for server in running.values():
        server.join()
