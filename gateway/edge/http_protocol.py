"""The gateway's HTTP/1.1 server protocol: one client connection, parsed by httptools, with timeouts and limits.

uvicorn accepts the connections and shuts them down; `gateway.runner` passes `protocol_class(...)` to it. A protocol of
our own, because ASGI costs as much per call as the rest of the edge and cannot enforce these limits. There is no timer
per connection: each records when its phase changed, and `ConnectionRegistry` checks all of them twice a second.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, ClassVar, Final, Literal

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.server import ServerState

from gateway.edge.connections import ConnectionRegistry
from gateway.edge.error_response import closing_response
from gateway.edge.http_exchange import HttpExchange
from gateway.edge.request_parsing import (
    EdgeLimits,
    RequestRejected,
    body_too_large,
    check_host,
    check_length,
    check_size,
    duplicate_routing_header,
    fold_headers,
    head_too_large,
    head_without_upgrade,
    invalid_request,
    is_websocket_upgrade,
    request_timeout,
)
from gateway.errors import Fault, Kind

Serve = Callable[[HttpExchange], Awaitable[None]]
"""Serves one request; `HttpExchange.run` turns its exceptions into responses."""

_MAX_LENGTH_DIGITS: Final = 5
"""Maximum digits of Content-Length for a body that is buffered before the request is served."""


def protocol_class(limits: EdgeLimits, registry: ConnectionRegistry, serve: Serve) -> type[asyncio.Protocol]:
    """Return the class for uvicorn's `http=`."""
    members = {"limits": limits, "registry": registry, "serve": staticmethod(serve)}
    return type("EdgeProtocol", (HttpProtocol,), members)


_Phase = Literal["fresh", "head", "body", "answer", "idle", "over", "upgraded"]
"""What the connection waits for: its first byte, the rest of a head or body, the app, the next request, or its close.

After `over`, received data is discarded; after `upgraded`, another protocol owns the connection.
"""


class HttpProtocol(asyncio.Protocol):
    """One client connection. Requests are served one at a time, in order."""

    limits: ClassVar[EdgeLimits]
    registry: ClassVar[ConnectionRegistry]
    serve: ClassVar[Serve]  # a static method
    closing: ClassVar[bool] = False
    """The server is shutting down: responses carry `Connection: close`."""

    transport: asyncio.Transport
    flow: FlowControl
    client: tuple[str, int] | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """The arguments are those that uvicorn passes to every HTTP protocol."""
        self.config = config
        self.server_state = server_state
        self.app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = self._new_parser()
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._phase: _Phase = "fresh"
        self._since = monotonic()
        self._write_paused_at: float | None = None
        """Time at which writing was paused because the client does not read."""
        self._exchanges: deque[HttpExchange] = deque()
        """Unanswered requests. The first is being served, the others wait for it."""
        self._last_read_size = 0
        self._buffered_bytes = 0
        """Bytes fed since the parser's last callback: an upper bound of what it buffers."""
        self._body_bytes = 0

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # A request that closes the connection is answered even if more bytes follow it.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # ---- connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.server_state.connections.add(self)  # pyright: ignore[reportArgumentType]  # typed for uvicorn's own
        self.transport = transport
        self.flow = FlowControl(transport)
        self.client = get_remote_addr(transport)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio does not set it for sockets bound beforehand; without it each response waits 40 ms for an ACK.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.registry.admit(self, self.client[0] if self.client else "", self.limits):
            return
        self._phase = "over"
        self.registry.refusals[503] += 1
        transport.write(closing_response(503, Fault(Kind.UNAVAILABLE, "Too many connections.", retry_after=1)))
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = "over"
        self.server_state.connections.discard(self)  # pyright: ignore[reportArgumentType]
        self.registry.remove(self)
        self._disconnect_all()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        # Break the reference cycle, which would otherwise wait for the garbage collector.
        del self._parser

    def shutdown(self) -> None:
        """Close the connection, after the response in progress; called by uvicorn."""
        if self._exchanges:
            self.disable_keep_alive()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        self._write_paused_at = monotonic()
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self._write_paused_at = None
        self.flow.resume_writing()

    # ---- requests

    def data_received(self, data: bytes) -> None:
        while data and self._phase != "over":
            self._last_read_size = len(data)
            self._buffered_bytes += self._last_read_size
            try:
                self._parser.feed_data(data)
                if self._phase == "head" or self._phase == "body":
                    self._check_buffered()
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = self._upgrade(data[int(upgrade.args[0]) :])
            except RequestRejected as rejected:
                self._reject(rejected)
            except httptools.HttpParserError as exc:
                self._reject(exc.__context__ if isinstance(exc.__context__, RequestRejected) else invalid_request(exc))

    def on_message_begin(self) -> None:
        self._phase, self._since, self._buffered_bytes = "head", monotonic(), 0
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser, limits, raw = self._parser, self.limits, self._headers
        upgrade = parser.should_upgrade()  # feed_data raises HttpParserUpgrade after this callback
        if upgrade and not self._is_supported_upgrade():
            return
        # A head that arrived in one small read cannot exceed the limits.
        if self._buffered_bytes or self._last_read_size > limits.max_header_bytes or len(raw) > limits.max_headers:
            check_size(self._url, raw, limits)
        headers, version = fold_headers(raw), parser.get_http_version()
        if len(headers) != len(raw) or "host" not in headers:
            check_host(raw, version)
        length = headers.get("content-length")
        if length is not None:
            check_length(length, limits)
        if upgrade:
            return
        exchange = HttpExchange(
            self,
            parser.get_method().decode(),
            self._url,
            version,
            headers,
            raw,
            duplicate_routing_header(raw, headers),
            version != "1.0" and parser.should_keep_alive() and not self.closing,
        )
        self._exchanges.append(exchange)
        self._phase, self._since, self._buffered_bytes, self._body_bytes = "body", monotonic(), 0, 0
        self._headers = []  # the parser reports trailers as headers
        if len(self._exchanges) > 1:
            self.flow.pause_reading()  # until the earlier requests are answered
        if "expect" in headers and headers["expect"].lower() == "100-continue":
            exchange.awaits_continue = True
        elif length is not None and len(length) <= _MAX_LENGTH_DIGITS:
            return  # served when the body has arrived
        if len(self._exchanges) == 1:
            self._start(exchange)

    def on_body(self, body: bytes) -> None:
        self._buffered_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.max_body_bytes:
            raise RequestRejected(413, body_too_large(self.limits.max_body_bytes))
        if self._exchanges:  # it may have been answered before its body arrived
            self._exchanges[-1].append_body(body)

    def on_message_complete(self) -> None:
        if self._phase != "body":
            return  # an upgrade
        if not self._exchanges:
            self._phase, self._since = "idle", monotonic()
            return
        self._phase = "answer"
        exchange = self._exchanges[-1]
        exchange.body_received = True
        if exchange.task is not None:
            exchange.wake()
        elif len(self._exchanges) == 1:
            self._start(exchange)

    def _start(self, exchange: HttpExchange) -> None:
        exchange.task = task = self._loop.create_task(exchange.run(type(self).serve))
        self.server_state.tasks.add(task)

    def exchange_finished(self, exchange: HttpExchange) -> None:
        # Called by the task itself: a done callback would cost an iteration of the event loop.
        if exchange.task is not None:
            self.server_state.tasks.discard(exchange.task)

    def exchange_complete(self, exchange: HttpExchange) -> None:
        self.server_state.total_requests += 1
        if self._exchanges and self._exchanges[0] is exchange:
            self._exchanges.popleft()
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self._exchanges:
            self._start(self._exchanges[0])
        elif self._phase == "answer":
            self._phase, self._since = "idle", monotonic()

    def _check_buffered(self) -> None:
        """Reject a head, or trailers, that exceed the limits before they are complete."""
        if self._buffered_bytes > self.limits.max_header_bytes or len(self._headers) > self.limits.max_headers:
            raise head_too_large(self.limits)

    # ---- upgrades

    def _is_supported_upgrade(self) -> bool:
        return self.config.ws_protocol_class is not None and is_websocket_upgrade(self._headers)

    def _upgrade_to_websocket(self) -> None:
        """Hand the connection to uvicorn's WebSocket protocol.

        It stays registered: `connection_lost` goes to the new protocol, so `check` notices the close.
        """
        self._phase = "upgraded"
        self.server_state.connections.discard(self)  # pyright: ignore[reportArgumentType]
        assert self.config.ws_protocol_class is not None
        lines = [b"%s %s HTTP/1.1" % (self._parser.get_method(), self._url)]
        lines += [name.lower() + b": " + value for name, value in self._headers]
        websocket: Any = self.config.ws_protocol_class(
            config=self.config,  # pyright: ignore[reportCallIssue]  # typed as a bare asyncio.Protocol
            server_state=self.server_state,  # pyright: ignore[reportCallIssue]
            app_state=self.app_state,  # pyright: ignore[reportCallIssue]
        )
        websocket.connection_made(self.transport)
        websocket.data_received(b"\r\n".join([*lines, b"", b""]))
        self.transport.set_protocol(websocket)

    def _upgrade(self, rest: bytes) -> bytes:
        """Upgrade to WebSocket. For any other upgrade return the request without it, to be parsed as a plain one."""
        if self._is_supported_upgrade():
            self._upgrade_to_websocket()
            return b""
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._reject(
                RequestRejected(400, Fault(Kind.UNSUPPORTED, "CONNECT is not supported: this server is not a proxy."))
            )
            return b""
        head = head_without_upgrade(method, self._url, self._parser.get_http_version(), self._headers)
        self._parser = self._new_parser()
        return head + rest

    # ---- timeouts

    def check(self, now: float, elapsed: float) -> None:
        """Apply the timeouts; called by the registry, `elapsed` seconds after the previous check."""
        limits, waited = self.limits, now - self._since
        if self._phase == "upgraded":
            if self.transport.is_closing():
                self.registry.remove(self)
        elif self._is_write_stalled(now):
            self.transport.abort()
        elif self._phase == "body":
            self._check_body(waited, elapsed)
        elif self._phase == "head":
            self._check_head(waited, elapsed)
        elif (self._phase == "idle" and waited > limits.idle_timeout) or (
            self._phase == "fresh" and waited > limits.header_timeout
        ):
            self.transport.close()
        elif self._phase == "over" and waited > limits.linger:
            self.transport.abort()

    def _is_write_stalled(self, now: float) -> bool:
        """Whether the client has not read for longer than `write_timeout`, also while the transport is closing."""
        if self._write_paused_at is None and self.transport.is_closing():
            self._write_paused_at = now
        return self._write_paused_at is not None and now - self._write_paused_at > self.limits.write_timeout

    def _check_head(self, waited: float, elapsed: float) -> None:
        if self._exchanges:
            # The time of an earlier, unfinished response does not count.
            self._since += elapsed
        elif waited > self.limits.header_timeout:
            self._reject(request_timeout("head"))

    def _check_body(self, waited: float, elapsed: float) -> None:
        limits = self.limits
        if self.flow.read_paused or (self._exchanges and self._exchanges[-1].awaits_continue):
            # The client is waiting for the gateway.
            self._since += elapsed
        elif waited > limits.body_timeout or (
            waited > limits.body_grace and self._body_bytes < limits.min_body_rate * waited
        ):
            self._reject(request_timeout("body"))

    # ---- closing

    def disable_keep_alive(self) -> None:
        """Close the connection after its current responses."""
        for exchange in self._exchanges:
            exchange.keep_alive = False

    def _reject(self, rejected: RequestRejected) -> None:
        """Send the error response and close; if another response is in progress, only close."""
        cannot_respond = self._cannot_respond()
        self._phase, self._since = "over", monotonic()
        self.registry.refusals[rejected.status] += 1
        self._disconnect_all()
        if not cannot_respond:
            as_rpc = rejected.status == 413 and self._url.startswith(b"/mcp")
            self.transport.write(closing_response(rejected.status, rejected.fault, as_rpc=as_rpc))
        if self.transport.can_write_eof():
            # Closing with unread data would reset the connection before the client has read the response.
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def _cannot_respond(self) -> bool:
        """Whether an error response now would be read as (part of) the response to another request."""
        if self._phase != "body":
            return bool(self._exchanges)
        return len(self._exchanges) != 1 or self._exchanges[0].response_started

    def _disconnect_all(self) -> None:
        while self._exchanges:
            self._exchanges.popleft().disconnect()
