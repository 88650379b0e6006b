"""The way to a server that runs as a child process: one process for everybody, for each tenant, or for each user."""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Literal

from gateway.contract import Call, Caller, ClientProfile, Json
from gateway.errors import Fault, ForeignError
from gateway.upstream.channel_pool import ChannelPool, Whose
from gateway.upstream.concurrency import SingleFlight, StartLimiter
from gateway.upstream.conversation import ABLE, MessageHandler, NullMessageHandler, abilities
from gateway.upstream.jsonrpc_channel import DuplexStream, JsonRpcChannel
from gateway.upstream.lists import ChangeListener
from gateway.upstream.remote import Era, Transport, era_for, listening
from gateway.upstream.stdio.isolated_processes import ChannelListSource, IsolatedProcesses, ProcessKey
from gateway.upstream.stdio.process import ChildProcess, ChildProgram

Isolation = Literal["shared", "tenant", "user"]

MAX_PROCESSES: Final = 32
_NOBODY: Final = NullMessageHandler()
_LISTING: Final[Whose] = ()
"""The process that lists are read from; when shared, everybody's."""


class StdioTransport:
    """`gateway.upstream.remote.Link`. A process is started when first needed, and again when it has ended."""

    transport: Transport = "stdio"
    address: tuple[str, int] | None = None

    def __init__(
        self, program: ChildProgram, isolation: Isolation, info: Json, max_processes: int = MAX_PROCESSES
    ) -> None:
        async def connect(heard: Callable[[Json], None], ended: Callable[[], None]) -> DuplexStream:
            return await ChildProcess.start(program, heard, ended)

        self._program = program
        self._info = info
        self._make = lambda: JsonRpcChannel(program.namespace, connect, info, alone=isolation == "user")
        self._pipes = ChannelPool(program.namespace, self._make, max_processes, StartLimiter(), self._opened)
        self.own = IsolatedProcesses(isolation, self._pipes, self._for, info) if isolation != "shared" else None
        self._probing = SingleFlight(self._probe)
        self._listing_era: Era | None = None
        self.known: frozenset[Era] | None = None

    async def eras(self) -> frozenset[Era]:
        return self.known if self.known is not None else await self._probing()

    async def _probe(self) -> frozenset[Era]:
        """A process speaks the era it was opened in: whether it could speak the other, a second one tells."""
        era = (await self._listing()).era
        found: set[Era] = {era}
        if era == "modern":
            other = self._make()
            try:
                await other.start({}, "handshake")
                found.add(other.era)
                await other.stop()
            except (Fault, ForeignError):
                pass
        self.known = known = frozenset(found)
        return known

    def doubt(self) -> None:
        """What a program speaks does not change while it is the same program."""

    async def hello(self) -> Json:
        return (await self._listing()).greeting

    async def ask(self, method: str, params: Json) -> Json:
        return await ChannelListSource(await self._listing(), self._info).ask(method, params)

    async def carry(self, call: Call, era: Era, params: Json, talk: MessageHandler, trace: Mapping[str, str]) -> Json:
        client = call.client
        pipe = await self._pipe(self.whose(call), era, client.capabilities)
        if self.own is None:
            return await pipe.request(call.method, params, _Muted(talk))
        await pipe.speak_up(client.log_level)
        return await pipe.request(call.method, params, talk)

    async def listen(self, hearing: MessageHandler) -> None:
        pipe = await self._listing()
        pipe.hear(hearing)
        if pipe.era == "modern":
            await pipe.request("subscriptions/listen", listening(self._info), hearing)
            return
        await pipe.gone.wait()

    def audience(self, caller: Caller) -> str | None:
        return self.own.whose(caller) if self.own is not None else None

    def party(self, caller: Caller, client: ClientProfile) -> Hashable:
        return self.audience(caller), client.modern, abilities(client.capabilities)

    async def hear(self, caller: Caller, client: ClientProfile, uris: frozenset[str], hearing: ChangeListener) -> None:
        era = era_for(client, await self.eras())
        pipe = await self._pipe(self.audience(caller) or "", era, client.capabilities)
        if pipe.era == "modern":
            await pipe.request("subscriptions/listen", listening(self._info, uris), hearing)
        else:
            await pipe.watch(uris, hearing)

    async def close(self) -> None:
        await self._pipes.close()

    def whose(self, call: Call) -> str:
        return self.own.whose(call.caller) if self.own is not None else ""

    async def _for(self, caller: Caller, client: ClientProfile) -> JsonRpcChannel:
        """The process that this client's calls go to."""
        assert self.own is not None
        return await self._pipe(self.own.whose(caller), era_for(client, await self.eras()), client.capabilities)

    async def _pipe(self, whose: str, era: Era, capabilities: Json) -> JsonRpcChannel:
        if not whose and era == self._listing_era:
            return await self._listing()
        # A shared process cannot tell whom it asks: it is given nothing to ask for.
        able = capabilities if whose else {}
        key = ProcessKey(whose, era, abilities(able) if era == "handshake" else frozenset())
        return await self._pipes.get(key, able, era)

    def _opened(self, key: Whose, pipe: JsonRpcChannel) -> None:
        if self.own is not None and isinstance(key, ProcessKey):
            self.own.follow(key, pipe)

    async def _listing(self) -> JsonRpcChannel:
        able = ABLE if self.own is not None else {}
        pipe = await self._pipes.get(_LISTING, able, self._listing_era)
        self._listing_era = pipe.era
        return pipe


class _Muted:
    """A call on a shared process: its progress is its own, its questions and log lines could be anybody's."""

    def __init__(self, talk: MessageHandler) -> None:
        self._talk = talk
        self.token = talk.token
        self.sent = talk.sent

    async def notified(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            await self._talk.notified(method, params)

    async def asked(self, method: str, params: Json) -> Json:
        return await _NOBODY.asked(method, params)

    async def hung_up(self) -> None:
        """A pipe does not hang up."""
