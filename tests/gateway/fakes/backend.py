"""A fake backend with configurable lists and answers, and a fake wire."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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
    """A `Wire` that records notifications and requests, and answers requests from `answers` by method."""

    def __init__(self, answers: dict[str, Json] | None = None) -> None:
        self.waited = 0.0
        self.notifications: list[tuple[str, Json]] = []
        self.requests: list[Mapping[str, Json]] = []
        self.response_ended = False
        self._answers = answers or {}

    async def notify(self, method: str, params: Json) -> None:
        self.notifications.append((method, params))

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        self.requests.append(requests)
        return {key: self._answers[request["method"]] for key, request in requests.items()}

    def pause(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def end_response(self) -> None:
        self.response_ended = True


class FakeBackend:
    """A `Backend` that returns the lists and answers of the test and records calls and subscriptions."""

    isolated_lists: IsolatedLists | None = None

    def __init__(
        self,
        namespace: str = "lab",
        answer: Answer | None = None,
        *,
        manifest: Manifest | None = None,
        trusted: bool = True,
        **lists: Any,
    ) -> None:
        self.namespace = namespace
        self.manifest = manifest or Manifest(effects={"echo": 0})
        self.trusted = trusted
        self.capabilities: Json = {"tools": {}, "resources": {"subscribe": True}, "prompts": {}, "completions": {}}
        self.lists = BackendLists(**{"tools": (ECHO,), "capabilities": self.capabilities, **lists})
        self.calls: list[Call] = []
        self.subscriptions: list[frozenset[str]] = []
        self.fetch_count = 0
        self._answer = answer or echo
        self._listeners: list[Callable[[ListChange], None]] = []

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        self.fetch_count += 1
        return self.lists

    async def send(self, call: Call) -> Json:
        self.calls.append(call)
        return await self._answer(call)

    def task_session(self, call: Call) -> str:
        return ""

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        self._listeners.append(listener)

    def emit_change(self, change: ListChange) -> None:
        for listener in self._listeners:
            listener(change)

    async def set_subscriptions(self, interests: Sequence[ResourceInterest]) -> None:
        self.subscriptions.append(frozenset().union(*(each.uris for each in interests)))

    async def close(self) -> None:
        pass


async def echo(call: Call) -> Json:
    return {"content": [{"type": "text", "text": "hello"}], "structuredContent": {"got": call.arguments}}
