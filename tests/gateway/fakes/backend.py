"""A backend whose lists and answers a test decides, and the way back to a client."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from gateway.contract import (
    BackendLists,
    Call,
    Caller,
    IsolatedLists,
    Json,
    ListChange,
    Manifest,
    ResourceInterest,
)
from tests.gateway.fakes.callers import ECHO

Answer = Callable[[Call], Awaitable[Json]]


class FakeWire:
    """A `Wire` that keeps what was said, and answers what it is asked from `answers`."""

    def __init__(self, answers: dict[str, Json] | None = None) -> None:
        self.waited = 0.0
        self.said: list[tuple[str, Json]] = []
        self.asked: list[Mapping[str, Json]] = []
        self.hung_up = False
        self._answers = answers or {}

    async def notify(self, method: str, params: Json) -> None:
        self.said.append((method, params))

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        self.asked.append(requests)
        return {key: self._answers[request["method"]] for key, request in requests.items()}

    async def hang_up(self) -> None:
        self.hung_up = True


class FakeBackend:
    """A `Backend` whose lists and answers the test decides."""

    isolated_lists: IsolatedLists | None = None

    def __init__(
        self,
        namespace: str = "lab",
        answer: Answer | None = None,
        *,
        manifest: Manifest | None = None,
        trusted: bool = True,
        **offer: Any,
    ) -> None:
        self.namespace = namespace
        self.manifest = manifest or Manifest(effects={"echo": 0})
        self.trusted = trusted
        self.capabilities: Json = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}
        self.offered = BackendLists(**{"tools": (ECHO,), "capabilities": self.capabilities, **offer})
        self.calls: list[Call] = []
        self.watches: list[frozenset[str]] = []
        self.offers = 0
        self._answer = answer or echo
        self._listeners: list[Callable[[ListChange], None]] = []

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        self.offers += 1
        return self.offered

    async def send(self, call: Call) -> Json:
        self.calls.append(call)
        return await self._answer(call)

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        self._listeners.append(listener)

    def say(self, change: ListChange) -> None:
        for listener in self._listeners:
            listener(change)

    async def set_subscriptions(self, wants: Sequence[ResourceInterest]) -> None:
        self.watches.append(frozenset().union(*(each.uris for each in wants)))

    async def close(self) -> None:
        pass


async def echo(call: Call) -> Json:
    return {"content": [{"type": "text", "text": "hello"}], "structuredContent": {"got": call.arguments}}
