"""The way to a server that runs as a child process: one process for everybody, for each tenant, or for each user."""

import asyncio
from collections import OrderedDict
from typing import Final, Literal

from gateway.contract import Call, Json
from gateway.errors import Fault, ForeignError
from gateway.upstream.remote import Era, envelope, wanted
from gateway.upstream.stdio.pipe import Pipe
from gateway.upstream.stdio.process import Program
from gateway.upstream.talk import Nobody, Talk

Isolation = Literal["shared", "tenant", "user"]
Whose = tuple[str, ...]

MAX_PROCESSES: Final = 32
_NOBODY: Final = Nobody()
_LISTING: Final[Whose] = ()
"""The process that lists are read from; when shared, everybody's."""


class StdioLink:
    """`gateway.upstream.remote.Link`. A process is started when first needed, and again when it has ended."""

    def __init__(self, program: Program, isolation: Isolation, info: Json) -> None:
        self._program = program
        self._isolation: Isolation = isolation
        self._info = info
        self._pipes: OrderedDict[Whose, Pipe] = OrderedDict()
        self._starting = asyncio.Lock()
        self._probing = asyncio.Lock()
        self._eras: frozenset[Era] | None = None

    async def eras(self) -> frozenset[Era]:
        if self._eras is None:
            async with self._probing:
                if self._eras is None:
                    self._eras = await self._probe()
        return self._eras

    async def _probe(self) -> frozenset[Era]:
        """A process speaks the era it was opened in: whether it could speak the other, a second one tells."""
        era = (await self._pipe(_LISTING, {})).era
        if era == "handshake":
            return frozenset({era})
        other = Pipe(self._program, self._info, alone=False)
        try:
            await other.start({}, "handshake")
        except (Fault, ForeignError):
            return frozenset({era})
        await other.stop()
        return frozenset({era, other.era})

    def doubt(self) -> None:
        """What a program speaks does not change while it is the same program."""

    async def hello(self) -> Json:
        return (await self._pipe(_LISTING, {})).greeting

    async def ask(self, method: str, params: Json) -> Json:
        pipe = await self._pipe(_LISTING, {})
        if pipe.era == "modern":
            params = {**params, "_meta": envelope(self._info)}
        return await pipe.request(method, params, _NOBODY)

    async def carry(self, call: Call, era: Era, params: Json, talk: Talk) -> Json:
        whose = self._whose(call)
        # A shared process cannot tell whom it asks: it is given nothing to ask for.
        capabilities = call.client.capabilities if self._isolation != "shared" else {}
        pipe = await self._pipe((era, *whose) if era == "handshake" else whose, capabilities, era)
        return await pipe.request(call.method, params, talk if self._isolation != "shared" else _Muted(talk))

    async def listen(self, hearing: Talk, uris: frozenset[str]) -> None:
        pipe = await self._pipe(_LISTING, {})
        pipe.hear(hearing)
        if pipe.era == "modern":
            params: Json = {"notifications": wanted(uris), "_meta": envelope(self._info)}
            await pipe.request("subscriptions/listen", params, hearing)
            return
        await pipe.gone.wait()

    async def watch(self, added: frozenset[str], gone: frozenset[str]) -> bool:
        if "modern" in await self.eras():
            return False
        for method, uris in (("resources/subscribe", added), ("resources/unsubscribe", gone)):
            for uri in uris:
                await self.ask(method, {"uri": uri})
        return True

    async def close(self) -> None:
        pipes = list(self._pipes.values())
        self._pipes.clear()
        await asyncio.gather(*(pipe.stop() for pipe in pipes))

    def _whose(self, call: Call) -> Whose:
        match self._isolation:
            case "shared":
                return _LISTING
            case "tenant":
                return (call.caller.tenant,)
            case "user":
                return (call.caller.tenant, call.caller.principal)

    async def _pipe(self, whose: Whose, capabilities: Json, era: Era | None = None) -> Pipe:
        pipe = self._pipes.get(whose)
        if pipe is not None and not pipe.dead:
            self._pipes.move_to_end(whose)
            return pipe
        async with self._starting:
            pipe = self._pipes.get(whose)
            if pipe is None or pipe.dead:
                if pipe is not None:
                    await pipe.stop()
                pipe = Pipe(self._program, self._info, alone=self._isolation == "user")
                await pipe.start(capabilities, era)
                self._pipes[whose] = pipe
                await self._make_room()
        return pipe

    async def _make_room(self) -> None:
        while len(self._pipes) > MAX_PROCESSES:
            _, oldest = self._pipes.popitem(last=False)
            await oldest.stop()


class _Muted:
    """A call on a shared process: its progress is its own, its questions and log lines could be anybody's."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    async def notified(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            await self._talk.notified(method, params)

    async def asked(self, method: str, params: Json) -> Json:
        return await _NOBODY.asked(method, params)

    async def hung_up(self) -> None:
        """A pipe does not hang up."""
