"""The stdio server: forwards the client's messages to the gateway and its messages back, until the client exits."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Final, cast

import httpx

from gateway.cli.failure import CommandError, print_stderr
from gateway.cli.signin.credential import ClientCredential, ClientRegistration, CredentialRejected, KeyCredential
from gateway.cli.signin.token_store import TokenStore, data_folder
from gateway.cli.signin.user import UserSignIn
from gateway.cli.stdio.endpoint import GatewayEndpoint, modern_version
from gateway.cli.stdio.standard_streams import MAX_LINE, LineTooLong, LineWriter, read_lines
from gateway.contract import Json

_MAX_REQUESTS: Final = 256
"""Maximum number of concurrent requests."""
_GRACE_SECONDS: Final = 30.0
"""Seconds to wait for open responses after the client closed standard input; a signal ends the wait."""
_RECONNECT_DELAYS: Final = (0.1, 1.0, 5.0)
_HEADER_MISMATCH: Final = -32020


def stdio(url: str, token: str | None, registration: ClientRegistration) -> None:
    asyncio.run(_run(url, token, registration))


async def _run(url: str, token: str | None, registration: ClientRegistration) -> None:
    credential: ClientCredential = (
        KeyCredential(token) if token else UserSignIn(url, registration, TokenStore(data_folder() / "sign-ins", url))
    )
    server = StdioServer(GatewayEndpoint(url, credential), LineWriter(sys.stdout.fileno()))
    running = asyncio.ensure_future(server.run(read_lines(sys.stdin.fileno())))
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, running.cancel)
    with suppress(asyncio.CancelledError):
        await running


class StdioServer:
    """Forwards every message unchanged. Each request is a task, so requests do not wait for each other."""

    def __init__(self, endpoint: GatewayEndpoint, out: LineWriter) -> None:
        self._endpoint = endpoint
        self._out = out
        self._requests: dict[str, asyncio.Task[None]] = {}
        self._listens: set[asyncio.Task[None]] = set()
        """`subscriptions/listen` requests, which are answered only when they end."""
        self._background: set[asyncio.Task[None]] = set()
        self._disconnected = asyncio.Event()
        self._reported_statuses: set[int] = set()

    async def run(self, input_lines: AsyncIterator[bytes]) -> None:
        reading = asyncio.ensure_future(self._read(input_lines))
        disconnected = asyncio.ensure_future(self._disconnected.wait())
        self._out.watch_disconnect(self._disconnected.set)
        try:
            await asyncio.wait((reading, disconnected), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                responses = asyncio.gather(*(set(self._requests.values()) - self._listens), return_exceptions=True)
                waits = (responses, disconnected)
                await asyncio.wait(waits, timeout=_GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._shut_down(reading, disconnected)

    async def _shut_down(self, *more: asyncio.Future[Any]) -> None:
        tasks = [*self._requests.values(), *self._background, *more]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(httpx.HTTPError, TimeoutError):
            await self._endpoint.end()
        await self._endpoint.close()

    async def _read(self, input_lines: AsyncIterator[bytes]) -> None:
        try:
            async for line in input_lines:
                await self._handle_line(line)
        except LineTooLong as exc:
            await self._send_error(None, -32600, f"a message is longer than {MAX_LINE} bytes")
            raise CommandError(f"a message is longer than {MAX_LINE} bytes") from exc

    async def _handle_line(self, line: bytes) -> None:
        try:
            decoded: Any = json.loads(line)
        except (ValueError, RecursionError):
            await self._send_error(None, -32700, "not JSON")
            return
        if not isinstance(decoded, dict):
            await self._send_error(None, -32600, "expected one JSON-RPC message")
            return
        message = cast("Json", decoded)
        if "method" in message and message.get("id") is not None:
            await self._request(message, line)
        elif message.get("method") == "notifications/cancelled" and not self._endpoint.session.id:
            # In revision 2026-07-28 a request over HTTP is cancelled by closing it.
            self._cancel(message)
        elif self._endpoint.session.id:
            if len(self._background) >= _MAX_REQUESTS:
                await asyncio.wait(self._background, return_when=asyncio.FIRST_COMPLETED)
            self._start_background(self._notify(message, line))

    async def _request(self, message: Json, raw: bytes) -> None:
        key = json.dumps(message["id"])
        if key in self._requests or len(self._requests) >= _MAX_REQUESTS:
            in_use = key in self._requests
            problem = "this id is in use" if in_use else f"more than {_MAX_REQUESTS} requests are in progress"
            await self._send_error(message["id"], -32600, problem)
            return
        task = asyncio.create_task(self._answer(message, raw))
        self._requests[key] = task
        task.add_done_callback(lambda _: self._requests.pop(key, None))
        if message["method"] == "subscriptions/listen":
            self._listens.add(task)
            task.add_done_callback(self._listens.discard)

    async def _answer(self, message: Json, raw: bytes) -> None:
        try:
            if not await self._forward(message, raw):
                await self._send_error(message["id"], -32000, "the connection ended before the response")
        except CredentialRejected as exc:
            if exc.status not in self._reported_statuses:  # reported once in the client's log
                self._reported_statuses.add(exc.status)
                print_stderr(exc.message)
            modern = modern_version(message) is not None and exc.status
            await self._send_error(message["id"], exc.status if modern else -32000, exc.message)
        except OSError:
            self._disconnected.set()

    async def _forward(self, message: Json, raw: bytes, *, retry: bool = True) -> bool:
        """Forward a request and all messages up to its response. Return whether the response arrived."""
        async with aclosing(self._endpoint.send(message, raw)) as messages:
            async for line in messages:
                received: Json = json.loads(line)
                is_response = "method" not in received and received.get("id") in (message["id"], None)
                if is_response and retry and _is_header_mismatch(message, received):
                    break
                if is_response:
                    self._record_result(message, received)
                await self._out.write_line(line)
                if is_response:
                    return True
            else:
                return False
        await self._load_header_schemas(message)
        return await self._forward(message, raw, retry=False)

    async def _load_header_schemas(self, call: Json) -> None:
        """List the tools to learn which arguments go into headers: the client called a tool before it listed them."""
        params: Json = {"_meta": call["params"]["_meta"]}
        while True:
            listing: Json = {"jsonrpc": "2.0", "id": "gatehouse", "method": "tools/list", "params": params}
            result: Json = {}
            async with aclosing(self._endpoint.send(listing)) as messages:
                async for line in messages:
                    received: Json = json.loads(line)
                    self._record_result(listing, received)
                    result = received.get("result") or result
            if not result.get("nextCursor"):
                return
            params = {**params, "cursor": result["nextCursor"]}

    def _record_result(self, message: Json, response: Json) -> None:
        """Keep the negotiated version and the schemas of tools that need headers."""
        result: Json = response.get("result") or {}
        match message.get("method"):
            case "initialize":
                self._endpoint.session.version = result.get("protocolVersion") or ""
            case "tools/list" if modern_version(message) is not None:
                tools: list[Json] = result.get("tools") or []
                marked = {tool["name"]: tool["inputSchema"] for tool in tools if "x-mcp-header" in json.dumps(tool)}
                self._endpoint.header_schemas |= marked
            case _:
                pass

    async def _notify(self, message: Json, raw: bytes) -> None:
        """Forward a notification, or a response to a request of the gateway."""
        try:
            async for _ in self._endpoint.send(message, raw):
                pass
        except CredentialRejected as exc:
            print_stderr(exc.message)
        if message.get("method") == "notifications/initialized":
            self._start_background(self._listen())

    async def _listen(self) -> None:
        """Forward the session's GET stream; reconnect until the session ends."""
        attempts = 0
        while True:
            try:
                async with aclosing(self._endpoint.listen()) as messages:
                    async for line in messages:
                        attempts = 0
                        await self._out.write_line(line)
            except CredentialRejected as exc:
                if exc.status:
                    return  # no stream supported, or the session ended: the next request reports it
            except OSError:
                self._disconnected.set()
                return
            await asyncio.sleep(_RECONNECT_DELAYS[min(attempts, len(_RECONNECT_DELAYS) - 1)])
            attempts += 1

    def _cancel(self, message: Json) -> None:
        params: Any = message.get("params")
        key = json.dumps(cast("Json", params).get("requestId")) if isinstance(params, dict) else ""
        if (task := self._requests.get(key)) is not None:
            task.cancel()

    def _start_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _send_error(self, id: Any, code: int, message: str) -> None:
        error = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}
        try:
            await self._out.write_line(json.dumps(error, ensure_ascii=False).encode())
        except OSError:
            self._disconnected.set()


def _is_header_mismatch(message: Json, response: Json) -> bool:
    error: Json = response.get("error") or {}
    return message.get("method") == "tools/call" and error.get("code") == _HEADER_MISMATCH
