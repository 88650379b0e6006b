"""uvicorn's httptools protocol with timeouts and limits that ASGI cannot enforce, and the entry of the fast path.

There is no timer per connection: each records when its phase changed, and `ConnectionRegistry` checks all of them twice
a second. `gateway.runner` passes `protocol_class(...)` to uvicorn.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any, ClassVar, Literal, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gateway.edge.connections import ConnectionRegistry
from gateway.edge.error_response import closing_response
from gateway.edge.fast_path import FastPath, FastPathExchange
from gateway.edge.mcp_endpoint import EXTENSION, DisconnectSignal
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
    request_timeout,
)
from gateway.errors import Fault, Kind


def protocol_class(
    limits: EdgeLimits, registry: ConnectionRegistry, fast_path: FastPath | None = None
) -> type[HttpToolsProtocol]:
    """Return the class for uvicorn's `http=`. It puts a `DisconnectSignal` into `scope["extensions"]`."""
    return type("EdgeProtocol", (HttpProtocol,), {"limits": limits, "registry": registry, "fast_path": fast_path})


_Phase = Literal["fresh", "head", "body", "answer", "idle", "over", "upgraded"]
"""What the connection waits for: its first byte, the rest of a head or body, the app, the next request, or its close.

After `over`, received data is discarded; after `upgraded`, another protocol owns the connection.
"""


class HttpProtocol(HttpToolsProtocol):
    """One client connection. Requests that `FastPath` accepts bypass ASGI; all others go to the ASGI app."""

    limits: ClassVar[EdgeLimits]
    registry: ClassVar[ConnectionRegistry]
    fast_path: ClassVar[FastPath | None]
    closing: ClassVar[bool] = False
    """The server is shutting down: responses carry `Connection: close`."""
    parser: httptools.HttpRequestParser

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._phase: _Phase = "fresh"
        self._since = monotonic()
        self._write_paused_at: float | None = None
        """Time at which writing was paused because the client does not read."""
        self._unanswered: deque[tuple[RequestResponseCycle | FastPathExchange, DisconnectSignal]] = deque()
        self._exchange: FastPathExchange | None = None
        """The current request on the fast path."""
        self._last_read_size = 0
        """Size of the last read."""
        self._buffered_bytes = 0
        """Bytes fed since the parser's last callback: an upper bound of what it buffers."""
        self._body_bytes = 0

    # ---- connection

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
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
        self.registry.remove(self)
        self._signal_disconnect()
        super().connection_lost(exc)
        # Break the reference cycle, which would otherwise wait for the garbage collector.
        self._exchange = None
        self.cycle = cast("RequestResponseCycle", None)

    def pause_writing(self) -> None:
        self._write_paused_at = monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_paused_at = None
        super().resume_writing()

    def handle_websocket_upgrade(self) -> None:
        # It stays registered: `connection_lost` goes to the new protocol, so `check` notices the close.
        self._phase = "upgraded"
        super().handle_websocket_upgrade()

    # ---- parser callbacks

    def data_received(self, data: bytes) -> None:
        if self._phase == "over":
            return
        declined = self._feed(data)
        if declined is not None:
            self._decline_upgrade(data[declined:])

    def _feed(self, data: bytes) -> int | None:
        """Feed the parser. Returns the end of a head whose upgrade is not supported, else None."""
        self._last_read_size = len(data)
        self._buffered_bytes += self._last_read_size
        try:
            self.parser.feed_data(data)
            if self._phase == "head" or self._phase == "body":
                self._check_buffered()
        except httptools.HttpParserUpgrade as upgrade:
            if not self._should_upgrade():
                return int(upgrade.args[0])
            self.handle_websocket_upgrade()
        except RequestRejected as rejected:
            self._reject(rejected)
        except httptools.HttpParserError as exc:
            self._reject(exc.__context__ if isinstance(exc.__context__, RequestRejected) else invalid_request(exc))
        return None

    def on_message_begin(self) -> None:
        self._phase, self._since, self._buffered_bytes = "head", monotonic(), 0
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._lowercase_headers()
            if not self._should_upgrade():
                return
        limits, headers = self.limits, self.headers
        # A head that arrived in one small read cannot exceed the limits.
        if self._buffered_bytes or self._last_read_size > limits.max_header_bytes or len(headers) > limits.max_headers:
            check_size(self.url, headers, limits)
        named = fold_headers(headers)
        if len(named) != len(headers) or "host" not in named:
            self._lowercase_headers()
            check_host(self.headers, self.parser.get_http_version())
        if "content-length" in named:
            check_length(named["content-length"], limits)
        if self._is_fast_path(named):
            self._begin_fast_path(named)
            return
        gone, before = DisconnectSignal(), self.cycle
        self._exchange = None
        self._lowercase_headers()
        self._begin_scope(named)
        self.scope["extensions"] = {EXTENSION: gone}  # pyright: ignore[reportGeneralTypeIssues]  # typed for dicts
        super().on_headers_complete()
        self._phase, self._since, self._buffered_bytes, self._body_bytes = "body", monotonic(), 0, 0
        if self.cycle is not before:
            if self.closing:
                self.cycle.keep_alive = False
            self._unanswered.append((self.cycle, gone))
            # The parser reports trailers as headers: keep them apart from those of the request.
            self.headers = []

    def _lowercase_headers(self) -> None:
        """Lower-case the header names, as ASGI requires; the fast path uses the folded dict instead."""
        self.headers = [(name.lower(), value) for name, value in self.headers]

    def _is_fast_path(self, headers: dict[str, str]) -> bool:
        if self.fast_path is None or self._unanswered or self.parser.get_http_version() != "1.1":
            return False
        return self.fast_path.accepts(self.parser.get_method(), self.url, headers)

    def _begin_fast_path(self, headers: dict[str, str]) -> None:
        duplicate = duplicate_routing_header(self.headers, headers)
        keep_alive = self.parser.should_keep_alive() and not self.closing
        verb = self.parser.get_method().decode()
        exchange = FastPathExchange(self, verb, self.url.decode(), headers, duplicate, keep_alive)
        self._exchange = exchange
        self.cycle = exchange  # pyright: ignore[reportAttributeAccessIssue]  # has every attribute uvicorn reads
        self._unanswered.append((exchange, exchange))
        self._phase, self._since, self._buffered_bytes, self._body_bytes = "body", monotonic(), 0, 0
        self.headers = []  # trailers, as above

    @property
    def default_headers(self) -> Sequence[tuple[bytes, bytes]]:
        return self.server_state.default_headers

    def _begin_scope(self, named: dict[str, str]) -> None:
        """Run uvicorn's `on_message_begin`, deferred until the request is known not to take the fast path."""
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url, self.headers, self.scope["headers"] = url, headers, headers
        self.expect_100_continue = named.get("expect", "").lower() == "100-continue"

    def on_body(self, body: bytes) -> None:
        self._buffered_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.max_body_bytes:
            raise RequestRejected(413, body_too_large(self.limits.max_body_bytes))
        if self._exchange is not None:
            self._exchange.append_body(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._phase == "head":
            return  # an unsupported upgrade, handled by _decline_upgrade
        if self._unanswered:
            self._phase = "answer"
        else:
            self._phase, self._since = "idle", monotonic()
        if self._exchange is not None:
            self._run_fast_path(self._exchange)
        else:
            super().on_message_complete()

    def _run_fast_path(self, exchange: FastPathExchange) -> None:
        assert self.fast_path is not None
        exchange.task = task = self.loop.create_task(self.fast_path.run(exchange))
        self.tasks.add(task)  # removed by `finish_exchange`: a done callback would cost a loop iteration

    def finish_exchange(self, exchange: FastPathExchange) -> None:
        """Release the task of a finished exchange."""
        if exchange.task is not None:
            self.tasks.discard(exchange.task)

    def on_response_complete(self) -> None:
        # Replaces uvicorn's, which starts and cancels a keep-alive timer for each request.
        self.server_state.total_requests += 1
        if self._unanswered:
            self._unanswered.popleft()[1].complete()
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._phase == "answer":
            self._phase, self._since = "idle", monotonic()

    def _decline_upgrade(self, rest: bytes) -> None:
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._reject(
                RequestRejected(400, Fault(Kind.UNSUPPORTED, "CONNECT is not supported: this server is not a proxy."))
            )
            return
        head = head_without_upgrade(method, self.url, self.parser.get_http_version(), self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def _check_buffered(self) -> None:
        """Reject a head, or trailers, that exceed the limits before they are complete."""
        if self._buffered_bytes > self.limits.max_header_bytes or len(self.headers) > self.limits.max_headers:
            raise head_too_large(self.limits)

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
        if self._unanswered:
            # The time of an earlier, unfinished response does not count.
            self._since += elapsed
        elif waited > self.limits.header_timeout:
            self._reject(request_timeout("head"))

    def _check_body(self, waited: float, elapsed: float) -> None:
        limits = self.limits
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            # The client is waiting for the gateway.
            self._since += elapsed
        elif waited > limits.body_timeout or (
            waited > limits.body_grace and self._body_bytes < limits.min_body_rate * waited
        ):
            self._reject(request_timeout("body"))

    # ---- closing

    def disable_keep_alive(self) -> None:
        """Close the connection after its current responses."""
        for cycle, _ in self._unanswered:
            cycle.keep_alive = False

    def _reject(self, rejected: RequestRejected) -> None:
        """Send the error response and close; if another response is in progress, only close."""
        cannot_respond = self._cannot_respond()
        self._phase, self._since = "over", monotonic()
        self.registry.refusals[rejected.status] += 1
        self._signal_disconnect()
        if not cannot_respond:
            self.transport.write(closing_response(rejected.status, rejected.fault))
        if self.transport.can_write_eof():
            # Closing with unread data would reset the connection before the client has read the response.
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def _cannot_respond(self) -> bool:
        """Whether an error response now would be read as (part of) the response to another request."""
        if self._phase != "body":
            return bool(self._unanswered)
        return len(self._unanswered) != 1 or self.cycle.response_started

    def _signal_disconnect(self) -> None:
        """Signal the disconnect to every unanswered request; uvicorn signals only the newest."""
        while self._unanswered:
            cycle, gone = self._unanswered.popleft()
            cycle.disconnected = True
            cycle.message_event.set()
            gone.disconnect()
