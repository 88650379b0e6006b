"""The host API for modules: `ModuleHost` implements `gateway.contract.Host` for one entry of `backends:`."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Final, Protocol, Self

import httpx
from msgspec.structs import replace

from gateway.contract import (
    Bus,
    Caller,
    CurrentCall,
    Json,
    ModuleRoute,
    Peers,
    RefusedCall,
    Store,
    ToolTraits,
    WorkSpan,
)
from gateway.contract.trace_position import child_position
from gateway.telemetry.work_span import FinishedWork

CURRENT_CALL: Final[ContextVar[CurrentCall]] = ContextVar("current_call")

Invoke = Callable[[Caller, str, Json, Json], Awaitable[Json]]


class StoreProvider(Protocol):
    """Opens the stores of modules."""

    def store(self, tenant: str, name: str, migrations: Path | None) -> Store: ...

    async def tenants(self, name: str) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostServices:
    """The services that all module hosts share."""

    stores: StoreProvider
    files: Path
    bus: Bus
    http: httpx.AsyncClient
    loopback: bool
    peers: Callable[[str, str], Peers]
    """Returns the peers of a backend, by namespace and by what messages call a peer."""
    invoke: Invoke
    has_tool: Callable[[Caller, str], bool]
    find_tool: Callable[[Caller, str], ToolTraits | None]
    is_authorized: Callable[[Caller], Awaitable[bool]]
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    ready: Callable[[], Awaitable[Any]]
    """Returns once all backends are loaded."""
    record_work: Callable[[FinishedWork], None]
    """Called for every work span that ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleHost:
    """`gateway.contract.Host` for one entry of `backends:`."""

    namespace: str
    options: Any
    peers: Peers
    store_name: str
    migrations: Path | None
    services: HostServices
    refusals: list[Callable[[RefusedCall], None]] = field(default_factory=list[Callable[[RefusedCall], None]])
    routes: list[ModuleRoute] = field(default_factory=list[ModuleRoute])

    @property
    def bus(self) -> Bus:
        return self.services.bus

    @property
    def http(self) -> httpx.AsyncClient:
        return self.services.http

    @property
    def loopback(self) -> bool:
        return self.services.loopback

    def current_call(self) -> CurrentCall:
        return CURRENT_CALL.get()

    def span(self, name: str, attributes: Mapping[str, str | int | float | bool] | None = None) -> WorkSpan:
        return ModuleWorkSpan(self.namespace, name, CURRENT_CALL.get(), attributes or {}, self.services.record_work)

    def store(self, caller: Caller) -> Store:
        return self.services.stores.store(caller.tenant, self.store_name, self.migrations)

    async def tenants(self) -> tuple[str, ...]:
        await self.services.ready()
        return await self.services.stores.tenants(self.store_name)

    def folder(self, caller: Caller) -> Path:
        folder = self.services.files / caller.tenant
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = folder / self.namespace
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    async def invoke(self, caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        return await self.services.invoke(caller, tool, arguments, meta)

    def has_tool(self, caller: Caller, tool: str) -> bool:
        return self.services.has_tool(caller, tool)

    def find_tool(self, caller: Caller, tool: str) -> ToolTraits | None:
        return self.services.find_tool(caller, tool)

    async def is_authorized(self, caller: Caller) -> bool:
        return await self.services.is_authorized(caller)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.services.spawn(work)

    def add_routes(self, *routes: ModuleRoute) -> None:
        self.routes.extend(routes)

    def on_refusal(self, listener: Callable[[RefusedCall], None]) -> None:
        self.refusals.append(listener)


class ModuleWorkSpan:
    """`gateway.contract.WorkSpan`: within the block, the current call has this span's position."""

    def __init__(
        self,
        namespace: str,
        name: str,
        current_call: CurrentCall,
        attributes: Mapping[str, Any],
        on_finish: Callable[[FinishedWork], None],
    ) -> None:
        self._namespace = namespace
        self._name = name
        self._attributes = attributes
        self._on_finish = on_finish
        self.position = child_position(current_call.position)
        self._current_call = replace(current_call, position=self.position)
        self._started = 0
        self._reset_token: Token[CurrentCall] | None = None

    def __enter__(self) -> Self:
        self._started = perf_counter_ns()
        self._reset_token = CURRENT_CALL.set(self._current_call)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._reset_token is not None
        CURRENT_CALL.reset(self._reset_token)
        ended = perf_counter_ns()
        self._on_finish(
            FinishedWork(
                self._namespace,
                self._name,
                self._current_call,
                self.position,
                self._started,
                ended,
                self._attributes,
                exc,
            )
        )
