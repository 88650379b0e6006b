"""JSON-RPC over one process's pipes: many requests under way, each answered by its id."""

import asyncio
import itertools
from contextlib import suppress
from typing import Any, Final, cast

from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.remote import Era, envelope, speaks_modern
from gateway.upstream.stdio.process import Process, Program
from gateway.upstream.talk import Nobody, Talk

PROBE_SECONDS: Final = 2.0
"""An older server may stay silent at a method it does not know: then it is greeted the old way."""
HELLO_SECONDS: Final = 30.0
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
_NOBODY: Final = Nobody()


class Pipe:
    """One process, opened in the era it speaks. `alone` says that all its callers are one: what it says without
    naming a call may be told to whichever of them is there."""

    def __init__(self, program: Program, info: Json, *, alone: bool) -> None:
        self._program = program
        self._name = program.namespace
        self._info = info
        self._alone = alone
        self._process: Process | None = None
        self._ids = itertools.count(1)
        self._open: dict[int, tuple[asyncio.Future[Json], Talk]] = {}
        self._hearing: Talk = _NOBODY
        self._aside: set[asyncio.Task[None]] = set()
        self.era: Era = "modern"
        self.greeting: Json = {}
        self.dead = False
        self.gone = asyncio.Event()

    async def start(self, capabilities: Json, known: Era | None) -> None:
        """Run the process and find out what it speaks, unless that is known."""
        self._process = await Process.start(self._program, self._heard, self._ended)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                await self._open_up(capabilities, known)
        except TimeoutError as exc:
            await self.stop()
            raise Fault(Kind.UNAVAILABLE, f"{self._name} does not answer.") from exc
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        self.dead = True
        self.gone.set()
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    def hear(self, hearing: Talk) -> None:
        """Who is told of what concerns no call."""
        self._hearing = hearing

    async def request(self, method: str, params: Json, talk: Talk) -> Json:
        answer = await self._send(method, params, talk)
        try:
            return await answer
        except asyncio.CancelledError:
            id = next((id for id, (open_, _) in self._open.items() if open_ is answer), None)
            self._spawn(self._tell("notifications/cancelled", {"requestId": id}))
            raise

    # ---- the opening ----

    async def _open_up(self, capabilities: Json, known: Era | None) -> None:
        """Ask in the newest revision; a server that is slow, or silent at what it does not know, is greeted as well.

        Whichever it answers first decides: it may only have been busy starting.
        """
        discovered: asyncio.Future[Json] | None = None
        if known != "handshake":
            discovered = await self._send("server/discover", {"_meta": envelope(self._info)}, _NOBODY)
            await asyncio.wait({discovered}, timeout=PROBE_SECONDS)
            if _good(discovered) and speaks_modern(discovered.result()):
                self.era, self.greeting = "modern", discovered.result()
                return
        params: Json = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": capabilities,
            "clientInfo": self._info,
        }
        greeted = await self._send("initialize", params, _NOBODY)
        waiting = {greeted} if discovered is None or discovered.done() else {greeted, discovered}
        while waiting and not _good(greeted):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if discovered is not None and _good(discovered) and speaks_modern(discovered.result()):
                greeted.add_done_callback(_good)  # looked at, so that nobody misses its refusal
                self.era, self.greeting = "modern", discovered.result()
                return
        self._check_version(greeted.result())
        self.era, self.greeting = "handshake", greeted.result()
        await self._tell("notifications/initialized", {})

    def _check_version(self, greeting: Json) -> None:
        if greeting.get("protocolVersion") not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise Fault(Kind.UNAVAILABLE, f"{self._name} speaks no protocol version that the gateway knows.")

    async def _send(self, method: str, params: Json, talk: Talk) -> "asyncio.Future[Json]":
        process, id = self._process, next(self._ids)
        if process is None or self.dead:
            raise self._stopped()
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._open[id] = (answer, talk)
        answer.add_done_callback(lambda _: self._open.pop(id, None))
        await process.write({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return answer

    # ---- what it says ----

    def _heard(self, message: Json) -> None:
        method, id = message.get("method"), message.get("id")
        if isinstance(method, str):
            params: Any = message.get("params")
            known = cast("Json", params) if isinstance(params, dict) else {}
            if id is None:
                self._notified(method, known)
            else:
                self._spawn(self._answer(id, method, known))
            return
        waiting = self._open.get(id) if isinstance(id, int) else None
        if waiting is not None and not waiting[0].done():
            _settle(waiting[0], message, self._name)

    def _notified(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            # Every call's token is its own: only the one it belongs to takes it.
            told = [talk for _, talk in self._open.values()]
        elif method == "notifications/message":
            told = [talk for talk in (self._only(),) if talk is not None]
        else:
            meta: Any = params.get("_meta")
            stream = cast("Json", meta).get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
            waiting = self._open.get(stream) if isinstance(stream, int) else None
            told = [waiting[1] if waiting else self._hearing]
        for talk in told:
            self._spawn(talk.notified(method, params))

    def _only(self) -> Talk | None:
        """The call that a message without a name must belong to; None when it could be another's."""
        talks = [talk for _, talk in self._open.values() if not isinstance(talk, Nobody)]
        if len(talks) == 1 or (talks and self._alone):
            return talks[-1]
        return None

    async def _answer(self, id: Any, method: str, params: Json) -> None:
        talk = self._only() or _NOBODY
        answer: Json = {"jsonrpc": "2.0", "id": id}
        try:
            answer["result"] = await talk.asked(method, params)
        except ForeignError as exc:
            answer["error"] = {"code": exc.code, "message": exc.message}
        if self._process is not None:
            await self._process.write(answer)

    async def _tell(self, method: str, params: Json) -> None:
        if self._process is not None:
            await self._process.write({"jsonrpc": "2.0", "method": method, "params": params})

    def _ended(self) -> None:
        self.dead = True
        self.gone.set()
        for answer, _ in list(self._open.values()):
            if not answer.done():
                answer.set_exception(self._stopped())

    def _stopped(self) -> Fault:
        return Fault(Kind.UNAVAILABLE, f"{self._name} has stopped.")

    def _spawn(self, work: Any) -> None:
        async def run() -> None:
            with suppress(Fault):
                await work

        task = asyncio.create_task(run())
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)


def _good(answer: "asyncio.Future[Json]") -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None


def _settle(answer: "asyncio.Future[Json]", message: Json, name: str) -> None:
    error: Any = message.get("error")
    result: Any = message.get("result")
    if isinstance(error, dict):
        known = cast("Json", error)
        code: Any = known.get("code")
        words = str(known.get("message", ""))
        answer.set_exception(ForeignError(code if isinstance(code, int) else -32603, words, known.get("data")))
    elif isinstance(result, dict):
        answer.set_result(cast("Json", result))
    else:
        answer.set_exception(Fault(Kind.UNAVAILABLE, f"{name} answered something else than it was asked."))
