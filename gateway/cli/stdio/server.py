"""Between a client's lines and a gateway's endpoint, for as long as the client is there."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Final, cast

import httpx

from gateway.cli.failure import CommandError, say
from gateway.cli.signin.credential import ClientCredential, ClientRegistration, CredentialRejected, KeyCredential
from gateway.cli.signin.token_store import TokenStore, data_folder
from gateway.cli.signin.user import UserSignIn
from gateway.cli.stdio.endpoint import GatewayEndpoint, version_of
from gateway.cli.stdio.standard_streams import MAX_LINE, LineTooLong, LineWriter, lines
from gateway.contract import Json

_MOST: Final = 256
"""Requests under way at once."""
_GRACE: Final = 30.0
"""Seconds that answers still have when the client has stopped writing; one in a hurry sends a signal."""
_AGAIN: Final = (0.1, 1.0, 5.0)
_HEADER_MISMATCH: Final = -32020


def stdio(url: str, token: str | None, program: ClientRegistration) -> None:
    asyncio.run(_until_it_ends(url, token, program))


async def _until_it_ends(url: str, token: str | None, program: ClientRegistration) -> None:
    credential: ClientCredential = (
        KeyCredential(token) if token else UserSignIn(url, program, TokenStore(data_folder() / "sign-ins", url))
    )
    server = StdioServer(GatewayEndpoint(url, credential), LineWriter(sys.stdout.fileno()))
    running = asyncio.ensure_future(server.run(lines(sys.stdin.fileno())))
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, running.cancel)
    with suppress(asyncio.CancelledError):
        await running


class StdioServer:
    """Every message is passed on as it is; each request is a task, so that none waits for another."""

    def __init__(self, endpoint: GatewayEndpoint, out: LineWriter) -> None:
        self._endpoint = endpoint
        self._out = out
        self._requests: dict[str, asyncio.Task[None]] = {}
        self._endless: set[asyncio.Task[None]] = set()
        """Those that are answered only when they end."""
        self._others: set[asyncio.Task[None]] = set()
        self._gone = asyncio.Event()
        self._refused: set[int] = set()

    async def run(self, given: AsyncIterator[bytes]) -> None:
        reading = asyncio.ensure_future(self._read(given))
        gone = asyncio.ensure_future(self._gone.wait())
        self._out.watch(self._gone.set)
        try:
            await asyncio.wait((reading, gone), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                answers = asyncio.gather(*(set(self._requests.values()) - self._endless), return_exceptions=True)
                await asyncio.wait((answers, gone), timeout=_GRACE, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._leave(reading, gone)

    async def _leave(self, *more: asyncio.Future[Any]) -> None:
        left = [*self._requests.values(), *self._others, *more]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        with suppress(httpx.HTTPError, TimeoutError):
            await self._endpoint.end()
        await self._endpoint.close()

    async def _read(self, given: AsyncIterator[bytes]) -> None:
        try:
            async for line in given:
                await self._take(line)
        except LineTooLong as exc:
            await self._fail(None, -32600, f"a message is longer than {MAX_LINE} bytes")
            raise CommandError(f"a message is longer than {MAX_LINE} bytes") from exc

    async def _take(self, line: bytes) -> None:
        try:
            message: Any = json.loads(line)
        except (ValueError, RecursionError):
            await self._fail(None, -32700, "not JSON")
            return
        if not isinstance(message, dict):
            await self._fail(None, -32600, "expected one JSON-RPC message")
            return
        told = cast("Json", message)
        if "method" in told and told.get("id") is not None:
            await self._request(told, line)
        elif told.get("method") == "notifications/cancelled" and not self._endpoint.session.id:
            # In 2026-07-28 over HTTP, to end the exchange is to cancel it.
            self._cancel(told)
        elif self._endpoint.session.id:
            if len(self._others) >= _MOST:
                await asyncio.wait(self._others, return_when=asyncio.FIRST_COMPLETED)
            self._beside(self._notify(told, line))

    async def _request(self, message: Json, raw: bytes) -> None:
        key = json.dumps(message["id"])
        if key in self._requests or len(self._requests) >= _MOST:
            words = "this id is in use" if key in self._requests else f"more than {_MOST} requests are under way"
            await self._fail(message["id"], -32600, words)
            return
        task = asyncio.create_task(self._answer(message, raw))
        self._requests[key] = task
        task.add_done_callback(lambda _: self._requests.pop(key, None))
        if message["method"] == "subscriptions/listen":
            self._endless.add(task)
            task.add_done_callback(self._endless.discard)

    async def _answer(self, message: Json, raw: bytes) -> None:
        try:
            if not await self._passed(message, raw):
                await self._fail(message["id"], -32000, "the connection ended before the answer")
        except CredentialRejected as exc:
            if exc.status not in self._refused:  # once in the client's log is enough
                self._refused.add(exc.status)
                say(exc.words)
            modern = version_of(message) is not None and exc.status
            await self._fail(message["id"], exc.status if modern else -32000, exc.words)
        except OSError:
            self._gone.set()

    async def _passed(self, message: Json, raw: bytes, *, again: bool = True) -> bool:
        """Whether the answer came; what comes before it is passed on too."""
        async with aclosing(self._endpoint.send(message, raw)) as told:
            async for said in told:
                found: Json = json.loads(said)
                mine = "method" not in found and found.get("id") in (message["id"], None)
                if mine and again and _headers_lack(message, found):
                    break
                if mine:
                    self._remember(message, found)
                await self._out.line(said)
                if mine:
                    return True
            else:
                return False
        await self._learn(message)
        return await self._passed(message, raw, again=False)

    async def _learn(self, call: Json) -> None:
        """Which arguments the gateway wants in headers: the client called before it listed."""
        params: Json = {"_meta": call["params"]["_meta"]}
        while True:
            listing: Json = {"jsonrpc": "2.0", "id": "gatehouse", "method": "tools/list", "params": params}
            result: Json = {}
            async with aclosing(self._endpoint.send(listing)) as told:
                async for said in told:
                    found: Json = json.loads(said)
                    self._remember(listing, found)
                    result = found.get("result") or result
            if not result.get("nextCursor"):
                return
            params = {**params, "cursor": result["nextCursor"]}

    def _remember(self, message: Json, found: Json) -> None:
        result: Json = found.get("result") or {}
        match message.get("method"):
            case "initialize":
                self._endpoint.session.version = result.get("protocolVersion") or ""
            case "tools/list" if version_of(message) is not None:
                tools: list[Json] = result.get("tools") or []
                marked = {tool["name"]: tool["inputSchema"] for tool in tools if "x-mcp-header" in json.dumps(tool)}
                self._endpoint.mirrored |= marked
            case _:
                pass

    async def _notify(self, message: Json, raw: bytes) -> None:
        """What wants no answer: notifications, and answers to what the gateway asked."""
        try:
            async for _ in self._endpoint.send(message, raw):
                pass
        except CredentialRejected as exc:
            say(exc.words)
        if message.get("method") == "notifications/initialized":
            self._beside(self._listen())

    async def _listen(self) -> None:
        """What a session is told beside its requests; begun again when it breaks, until the session is over."""
        tries = 0
        while True:
            try:
                async with aclosing(self._endpoint.listen()) as told:
                    async for said in told:
                        tries = 0
                        await self._out.line(said)
            except CredentialRejected as exc:
                if exc.status:
                    return  # no stream here, or no session any more: the next request says so
            except OSError:
                self._gone.set()
                return
            await asyncio.sleep(_AGAIN[min(tries, len(_AGAIN) - 1)])
            tries += 1

    def _cancel(self, message: Json) -> None:
        params: Any = message.get("params")
        wanted = json.dumps(cast("Json", params).get("requestId")) if isinstance(params, dict) else ""
        if (task := self._requests.get(wanted)) is not None:
            task.cancel()

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _fail(self, id: Any, code: int, words: str) -> None:
        error = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": words}}
        try:
            await self._out.line(json.dumps(error, ensure_ascii=False).encode())
        except OSError:
            self._gone.set()


def _headers_lack(message: Json, found: Json) -> bool:
    error: Json = found.get("error") or {}
    return message.get("method") == "tools/call" and error.get("code") == _HEADER_MISMATCH
