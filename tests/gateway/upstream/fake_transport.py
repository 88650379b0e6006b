"""An `UpstreamTransport` whose server is a function of the test, with one failure domain for all calls."""

from collections.abc import Awaitable, Callable, Hashable, Mapping

from gateway.contract import Call, Caller, ClientProfile, DefinitionGuard, Json
from gateway.upstream.conversation import MessageHandler
from gateway.upstream.lists import ChangeListener
from gateway.upstream.remote import Era, IsolatedSessions, TransportKind

Serve = Callable[[Call], Awaitable[Json]]


class FakeTransport:
    kind: TransportKind = "http"
    address: tuple[str, int] | None = None
    isolated: IsolatedSessions | None = None
    known_eras: frozenset[Era] | None = frozenset({"modern"})

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.probes = 0
        self.probe_failure: Exception | None = None

    def failure_domain(self, call: Call) -> Hashable:
        return None

    def task_session(self, call: Call) -> str:
        return ""

    def guard_definitions(self, guard: DefinitionGuard) -> None:
        """The tests of guards use real transports."""

    async def probe(self) -> None:
        self.probes += 1
        if self.probe_failure is not None:
            raise self.probe_failure

    async def eras(self, caller: object = None) -> frozenset[Era]:
        return frozenset({"modern"})

    def invalidate_eras(self) -> None:
        """The eras never change."""

    async def send(self, call: Call, era: Era, params: Json, handler: MessageHandler, trace: Mapping[str, str]) -> Json:
        return await self._serve(call)

    async def discover(self) -> Json:
        return {}

    async def request(self, method: str, params: Json) -> Json:
        return {}

    async def listen(self, handler: MessageHandler) -> None:
        """The lists never change."""

    def session_owner(self, caller: Caller) -> str | None:
        return None

    def subscription_key(self, caller: Caller, client: ClientProfile) -> Hashable:
        return caller.principal

    async def subscribe(
        self, caller: Caller, client: ClientProfile, uris: frozenset[str], listener: ChangeListener
    ) -> None:
        """There are no updates."""

    async def close(self) -> None:
        """Holds no resources."""
