"""What a module gets: its `Home`, the call in progress, and spans for pieces of its work."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Final, Protocol, Self

import httpx
from msgspec.structs import replace

from gateway.contract import Bridge, Bus, Caller, Here, Json, Piece, Refusal, Store
from gateway.telemetry.piece import Done
from gateway.telemetry.sampling import below

HERE: Final[ContextVar[Here]] = ContextVar("here")

Invoke = Callable[[Caller, str, Json, Json], Awaitable[Json]]


class Shelf(Protocol):
    """Where stores come from."""

    def store(self, tenant: str, name: str, migrations: Path | None) -> Store: ...

    async def tenants(self, name: str) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What every module's home shares."""

    stores: Shelf
    files: Path
    bus: Bus
    http: httpx.AsyncClient
    loopback: bool
    bridge: Callable[[str], Bridge]
    """The bridge of a backend, by namespace."""
    invoke: Invoke
    knows: Callable[[Caller, str], bool]
    good: Callable[[Caller], Awaitable[bool]]
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    opened: Callable[[], Awaitable[Any]]
    """Returns once everything is served."""
    worked: Callable[[Done], None]
    """Is told of every piece of work that ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleHome:
    """`gateway.contract.Home`, for one entry of `backends:`."""

    namespace: str
    options: Any
    bridge: Bridge
    store_name: str
    migrations: Path | None
    house: House
    refusals: list[Callable[[Refusal], None]] = field(default_factory=list[Callable[[Refusal], None]])

    @property
    def bus(self) -> Bus:
        return self.house.bus

    @property
    def http(self) -> httpx.AsyncClient:
        return self.house.http

    @property
    def loopback(self) -> bool:
        return self.house.loopback

    def here(self) -> Here:
        return HERE.get()

    def span(self, name: str, about: Mapping[str, str | int | float | bool] | None = None) -> Piece:
        return WorkSpan(self.namespace, name, HERE.get(), about or {}, self.house.worked)

    def store(self, caller: Caller) -> Store:
        return self.house.stores.store(caller.tenant, self.store_name, self.migrations)

    async def tenants(self) -> tuple[str, ...]:
        await self.house.opened()
        return await self.house.stores.tenants(self.store_name)

    def folder(self, caller: Caller) -> Path:
        folder = self.house.files / caller.tenant
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = folder / self.namespace
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    async def invoke(self, caller: Caller, tool: str, arguments: Json, meta: Json) -> Json:
        return await self.house.invoke(caller, tool, arguments, meta)

    def knows(self, caller: Caller, tool: str) -> bool:
        return self.house.knows(caller, tool)

    async def good(self, caller: Caller) -> bool:
        return await self.house.good(caller)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.house.spawn(work)

    def on_refusal(self, told: Callable[[Refusal], None]) -> None:
        self.refusals.append(told)


class WorkSpan:
    """`gateway.contract.Piece`."""

    def __init__(
        self, namespace: str, name: str, here: Here, about: Mapping[str, Any], told: Callable[[Done], None]
    ) -> None:
        self._namespace = namespace
        self._name = name
        self._about = about
        self._told = told
        self.place = below(here.place)
        self._here = replace(here, place=self.place)
        self._started = 0
        self._before: Token[Here] | None = None

    def __enter__(self) -> Self:
        self._started = perf_counter_ns()
        self._before = HERE.set(self._here)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        assert self._before is not None
        HERE.reset(self._before)
        ended = perf_counter_ns()
        self._told(Done(self._namespace, self._name, self._here, self.place, self._started, ended, self._about, exc))
