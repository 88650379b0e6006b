"""A `Link` whose server is a function of the test's, with one process or address for everybody."""

from collections.abc import Awaitable, Callable, Hashable, Mapping

from gateway.contract import Call, Caller, ClientProfile, Json
from gateway.upstream.conversation import MessageHandler
from gateway.upstream.lists import ChangeListener
from gateway.upstream.remote import Era, IsolatedSessions, Transport

Carry = Callable[[Call], Awaitable[Json]]


class FarLink:
    transport: Transport = "http"
    address: tuple[str, int] | None = None
    own: IsolatedSessions | None = None
    known: frozenset[Era] | None = frozenset({"modern"})

    def __init__(self, carry: Carry) -> None:
        self._carry = carry

    def whose(self, call: Call) -> Hashable:
        return None

    async def eras(self) -> frozenset[Era]:
        return frozenset({"modern"})

    def doubt(self) -> None:
        """It stays what it is."""

    async def carry(self, call: Call, era: Era, params: Json, talk: MessageHandler, trace: Mapping[str, str]) -> Json:
        return await self._carry(call)

    async def hello(self) -> Json:
        return {}

    async def ask(self, method: str, params: Json) -> Json:
        return {}

    async def listen(self, hearing: MessageHandler) -> None:
        """It never changes."""

    def audience(self, caller: Caller) -> str | None:
        return None

    def party(self, caller: Caller, client: ClientProfile) -> Hashable:
        return caller.principal

    async def hear(self, caller: Caller, client: ClientProfile, uris: frozenset[str], hearing: ChangeListener) -> None:
        """There is nothing to hear."""

    async def close(self) -> None:
        """It holds nothing."""
