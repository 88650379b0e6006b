"""What ASGI cannot see: uvicorn's httptools protocol, made to bound its clients' time, heads, bodies and number.

No timer per connection: it notes when its phase changed, and the census asks each connection twice a second.
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
from gateway.edge.disconnect import EXTENSION, DisconnectSignal
from gateway.edge.error_response import last_words
from gateway.edge.fast_path import FastPath, FastPathExchange
from gateway.edge.headers import fold, repeated_routing_header
from gateway.edge.request_limits import (
    EdgeLimits,
    RequestRejected,
    body_too_large,
    check_host,
    check_length,
    check_size,
    head_too_large,
    late,
    plain_head,
    unreadable,
)
from gateway.errors import Fault, Kind


def protocol_class(
    limits: EdgeLimits, census: ConnectionRegistry, lane: FastPath | None = None
) -> type[HttpToolsProtocol]:
    """For uvicorn's `http=`. In each request's scope, `extensions["gatehouse.gone"]` is a `Gone`."""
    return type("EdgeProtocol", (HttpProtocol,), {"limits": limits, "census": census, "lane": lane})


_Phase = Literal["fresh", "head", "body", "answer", "idle", "over", "upgraded"]
"""What the connection waits for: its first byte, the rest of a head or of a body, the app, the next request, its end.

Once it is `over`, what still arrives is thrown away; once `upgraded`, another protocol has it.
"""


class HttpProtocol(HttpToolsProtocol):
    limits: ClassVar[EdgeLimits]
    census: ClassVar[ConnectionRegistry]
    lane: ClassVar[FastPath | None]
    closing: ClassVar[bool] = False
    """The server is about to stop: answers say that they are their connection's last."""
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
        self._stuck: float | None = None
        """Since when the client has not read what was written."""
        self._unanswered: deque[tuple[RequestResponseCycle | FastPathExchange, DisconnectSignal]] = deque()
        self._exchange: FastPathExchange | None = None
        """The request that takes the direct lane now."""
        self._read = 0
        """Size of the last read."""
        self._held = 0
        """Bytes read since the parser last gave something away: at most so much does it keep."""
        self._body_bytes = 0

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio leaves it out for a socket that was bound beforehand, and then each answer waits 40 ms for an ACK.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.census.admit(self, self.client[0] if self.client else "", self.limits):
            return
        self._phase = "over"
        self.census.refusals[503] += 1
        transport.write(last_words(503, Fault(Kind.UNAVAILABLE, "Too many connections.", retry_after=1)))
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = "over"
        self.census.leave(self)
        self._lose_client()
        super().connection_lost(exc)
        # They know each other, and would stay until the collector comes.
        self._exchange = None
        self.cycle = cast("RequestResponseCycle", None)

    def pause_writing(self) -> None:
        self._stuck = monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck = None
        super().resume_writing()

    def handle_websocket_upgrade(self) -> None:
        # It stays in the census: connection_lost will go to the new protocol, so `check` sees when it is closed.
        self._phase = "upgraded"
        super().handle_websocket_upgrade()

    # ---- bytes and what the parser makes of them

    def data_received(self, data: bytes) -> None:
        if self._phase == "over":
            return
        declined = self._feed(data)
        if declined is not None:
            self._decline_upgrade(data[declined:])

    def _feed(self, data: bytes) -> int | None:
        """Where in the data a head ended whose upgrade nobody offers; None as a rule."""
        self._read = len(data)
        self._held += self._read
        try:
            self.parser.feed_data(data)
            if self._phase == "head" or self._phase == "body":
                self._bound_unfinished()
        except httptools.HttpParserUpgrade as upgrade:
            if not self._should_upgrade():
                return int(upgrade.args[0])
            self.handle_websocket_upgrade()
        except RequestRejected as refused:
            self._refuse(refused)
        except httptools.HttpParserError as exc:
            self._refuse(exc.__context__ if isinstance(exc.__context__, RequestRejected) else unreadable(exc))
        return None

    def on_message_begin(self) -> None:
        self._phase, self._since, self._held = "head", monotonic(), 0
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._lower_names()
            if not self._should_upgrade():
                return
        limits, headers = self.limits, self.headers
        # A head that came in one small read needs no adding up.
        if self._held or self._read > limits.max_header_bytes or len(headers) > limits.max_headers:
            check_size(self.url, headers, limits)
        named = fold(headers)
        if len(named) != len(headers) or "host" not in named:
            self._lower_names()
            check_host(self.headers, self.parser.get_http_version())
        if "content-length" in named:
            check_length(named["content-length"], limits)
        if self._may_take_lane(named):
            self._take_lane(named)
            return
        gone, before = DisconnectSignal(), self.cycle
        self._exchange = None
        self._lower_names()
        self._begin_scope(named)
        self.scope["extensions"] = {EXTENSION: gone}  # pyright: ignore[reportGeneralTypeIssues]  # typed for dicts
        super().on_headers_complete()
        self._phase, self._since, self._held, self._body_bytes = "body", monotonic(), 0, 0
        if self.cycle is not before:
            if self.closing:
                self.cycle.keep_alive = False
            self._unanswered.append((self.cycle, gone))
            # The parser reports trailers as headers: they must not join those the app was given.
            self.headers = []

    def _lower_names(self) -> None:
        """As ASGI, and uvicorn, have them; the direct lane reads the folded ones."""
        self.headers = [(name.lower(), value) for name, value in self.headers]

    def _may_take_lane(self, named: dict[str, str]) -> bool:
        if self.lane is None or self._unanswered or self.parser.get_http_version() != "1.1":
            return False
        return self.lane.takes(self.parser.get_method(), self.url, named)

    def _take_lane(self, named: dict[str, str]) -> None:
        duplicate = repeated_routing_header(self.headers, named)
        keep_alive = self.parser.should_keep_alive() and not self.closing
        verb = self.parser.get_method().decode()
        exchange = FastPathExchange(self, verb, self.url.decode(), named, duplicate, keep_alive)
        self._exchange = exchange
        self.cycle = exchange  # pyright: ignore[reportAttributeAccessIssue]  # all of it that is ever asked for
        self._unanswered.append((exchange, exchange))
        self._phase, self._since, self._held, self._body_bytes = "body", monotonic(), 0, 0
        self.headers = []  # as below, for trailers

    @property
    def stamps(self) -> Sequence[tuple[bytes, bytes]]:
        return self.server_state.default_headers

    def _begin_scope(self, named: dict[str, str]) -> None:
        """What uvicorn does when a message begins, put off until it is known to be needed."""
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url, self.headers, self.scope["headers"] = url, headers, headers
        self.expect_100_continue = named.get("expect", "").lower() == "100-continue"

    def on_body(self, body: bytes) -> None:
        self._held = 0
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.max_body_bytes:
            raise RequestRejected(413, body_too_large(self.limits.max_body_bytes))
        if self._exchange is not None:
            self._exchange.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._phase == "head":
            return  # an upgrade that is about to be declined
        if self._unanswered:
            self._phase = "answer"
        else:
            self._phase, self._since = "idle", monotonic()
        if self._exchange is not None:
            self._run_lane(self._exchange)
        else:
            super().on_message_complete()

    def _run_lane(self, exchange: FastPathExchange) -> None:
        assert self.lane is not None
        exchange.task = task = self.loop.create_task(self.lane.run(exchange))
        self.tasks.add(task)  # and `leave` takes it out again: a callback would be another turn of the loop

    def leave(self, exchange: FastPathExchange) -> None:
        """Nothing more will be done for it."""
        if exchange.task is not None:
            self.tasks.discard(exchange.task)

    def on_response_complete(self) -> None:
        # Not uvicorn's own, which sets and cancels a keep-alive timer for each request.
        self.server_state.total_requests += 1
        if self._unanswered:
            self._unanswered.popleft()[1].answered()
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
            self._refuse(RequestRejected(400, Fault(Kind.UNSUPPORTED, "This is no proxy.")))
            return
        head = plain_head(method, self.url, self.parser.get_http_version(), self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + rest)

    def _bound_unfinished(self) -> None:
        """Bound what the parser keeps of a head, or of trailers, that will not end."""
        if self._held > self.limits.max_header_bytes or len(self.headers) > self.limits.max_headers:
            raise head_too_large(self.limits)

    # ---- time

    def check(self, now: float, elapsed: float) -> None:
        """Called by the census, `elapsed` seconds after the last time."""
        limits, waited = self.limits, now - self._since
        if self._phase == "upgraded":
            if self.transport.is_closing():
                self.census.leave(self)
        elif self._unread(now):
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

    def _unread(self, now: float) -> bool:
        """Whether the client has for too long not read what was written; a closed transport still waits for it."""
        if self._stuck is None and self.transport.is_closing():
            self._stuck = now
        return self._stuck is not None and now - self._stuck > self.limits.write_timeout

    def _check_head(self, waited: float, elapsed: float) -> None:
        if self._unanswered:
            # An earlier answer on this connection is ours to finish first.
            self._since += elapsed
        elif waited > self.limits.header_timeout:
            self._refuse(late("head"))

    def _check_body(self, waited: float, elapsed: float) -> None:
        limits = self.limits
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            # The client waits for us.
            self._since += elapsed
        elif waited > limits.body_timeout or (
            waited > limits.body_grace and self._body_bytes < limits.min_body_rate * waited
        ):
            self._refuse(late("body"))

    # ---- the end

    def leaving(self) -> None:
        """What is under way is the connection's last."""
        for cycle, _ in self._unanswered:
            cycle.keep_alive = False

    def _refuse(self, refused: RequestRejected) -> None:
        """Answer in place of the app and hang up; where an answer is already under way, only hang up."""
        silent = self._must_be_silent()
        self._phase, self._since = "over", monotonic()
        self.census.refusals[refused.status] += 1
        self._lose_client()
        if not silent:
            self.transport.write(last_words(refused.status, refused.fault))
        if self.transport.can_write_eof():
            # Closed with bytes unread, TCP would reset the connection before the client has read the answer.
            self.transport.write_eof()
            self.flow.resume_reading()
        else:
            self.transport.close()

    def _must_be_silent(self) -> bool:
        """Whether a refusal now would be taken for the answer to another request, or for part of one."""
        if self._phase != "body":
            return bool(self._unanswered)
        return len(self._unanswered) != 1 or self.cycle.response_started

    def _lose_client(self) -> None:
        """Let every request that is not answered know: uvicorn would tell only the newest."""
        while self._unanswered:
            cycle, gone = self._unanswered.popleft()
            cycle.disconnected = True
            cycle.message_event.set()
            gone.lost()
