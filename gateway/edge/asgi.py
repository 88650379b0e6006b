"""The two adapters between `HttpExchange` and ASGI.

`run_asgi` serves a request of our HTTP protocol by an ASGI app: everything but the MCP endpoint. `AsgiExchange`
presents an ASGI request to the MCP endpoint, as `HttpExchange` does: for unusual targets such as `/mcp?x`, and for
other servers.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.utils import get_local_addr, is_ssl

from gateway.contract import Caller
from gateway.edge.http_exchange import DisconnectSignal, HttpExchange
from gateway.edge.request_parsing import duplicate_routing_header, fold_headers, invalid_request
from gateway.edge.stream_expiry import StreamExpiry

ON_DISCONNECT: Final = "gatehouse.on_disconnect"
"""Key in `scope["extensions"]`: `HttpExchange.on_disconnect` of the request."""
_END: Final[Message] = {"type": "http.response.body", "body": b""}


async def run_asgi(app: ASGIApp, exchange: HttpExchange) -> None:
    """Serve the request by an ASGI app."""
    try:
        scope = _scope(exchange)
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError) as exc:
        exchange.fail(400, invalid_request(exc).fault)
        return
    await app(scope, exchange.receive, _AsgiResponse(exchange).send)
    if not exchange.response_complete and not exchange.disconnected:
        raise RuntimeError("The ASGI app returned without completing its response.")


def _scope(exchange: HttpExchange) -> Scope:
    url = httptools.parse_url(exchange.target)
    raw_path = url.path or b"/"
    path = raw_path.decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": exchange.version,
        "server": get_local_addr(exchange.transport),
        "client": exchange.peer,
        "scheme": "https" if is_ssl(exchange.transport) else "http",
        "method": exchange.method,
        "root_path": "",
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": url.query or b"",
        "headers": [(name.lower(), value) for name, value in exchange.raw_headers],
        "state": {},
        "extensions": {ON_DISCONNECT: exchange.on_disconnect},
    }


class _AsgiResponse:
    """ASGI's `send` for an exchange."""

    def __init__(self, exchange: HttpExchange) -> None:
        self._exchange = exchange

    async def send(self, message: Message) -> None:
        exchange = self._exchange
        if message["type"] == "http.response.start":
            headers = [(name.lower(), value) for name, value in message.get("headers", ())]
            for name, value in headers:
                _check_header(name, value)
                if name == b"connection" and b"close" in value.lower():
                    exchange.keep_alive = False
            await exchange.open([each for each in headers if each[0] != b"connection"], message["status"])
        elif message["type"] == "http.response.body":
            await exchange.write(message.get("body", b""))
            if not message.get("more_body", False):
                await exchange.close()
        else:
            raise RuntimeError(f"The ASGI app sent a message of unknown type {message['type']!r}.")


def _check_header(name: bytes, value: bytes) -> None:
    """Raise `RuntimeError` for a header that would end early and start another one."""
    if any(byte < 33 or byte in b':\x7f"' for byte in name) or any(byte in value for byte in (b"\r", b"\n", b"\0")):
        raise RuntimeError(f"The ASGI app sent an invalid header {name!r}.")


class AsgiExchange(DisconnectSignal):
    """An ASGI request to the MCP endpoint. Implements `gateway.edge.mcp_endpoint.McpExchange`."""

    received_body = None

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope["headers"]
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = fold_headers(raw)
        self.duplicate_header = duplicate_routing_header(raw, self.headers)
        self.peer: tuple[str, int] | None = scope["client"]
        self.receive = receive
        self._send = send
        self._task = asyncio.current_task()
        self._expiry: tuple[Caller, StreamExpiry] | None = None
        self._ending: asyncio.Task[None] | None = None
        extensions: Mapping[str, Any] = scope.get("extensions") or {}
        register: Callable[[Callable[[], None]], None] | None = extensions.get(ON_DISCONNECT)
        if register is not None:
            register(self.disconnect)

    def expire_with(self, caller: Caller, stream_expiry: StreamExpiry) -> None:
        self._expiry = (caller, stream_expiry)

    async def send(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        length = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
        await self._send({"type": "http.response.body", "body": body})
        self.complete()

    async def open(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(headers)})
        if self._expiry is not None:
            caller, stream_expiry = self._expiry
            stream_expiry.add(caller, self)
            self.on_disconnect(lambda: stream_expiry.remove(self))

    async def write(self, chunk: bytes) -> None:
        if chunk and not self.response_complete:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def close(self) -> None:
        if not self.response_complete:
            self.complete()
            if self._expiry is not None:
                self._expiry[1].remove(self)
            await self._send(_END)

    def end(self, *, stop: bool) -> None:
        if self.response_complete:
            return
        # Started before the callbacks run, so that it is sent before the app returns.
        self._ending = asyncio.ensure_future(self._finish())
        self.disconnect()
        self.complete()
        if stop and self._task is not None and not self._task.cancelling():
            self._ending.add_done_callback(lambda _: self.cancel())

    async def _finish(self) -> None:
        await self._send(_END)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
