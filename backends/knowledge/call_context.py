"""The context of one client request: its caller, its actor, and access to the tenant's memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mcp.server.context import ServerRequestContext

from backends.knowledge.notifications import ChangeNotifier
from backends.knowledge.options import Options
from backends.knowledge.search.engines import index_for
from backends.knowledge.semantic.service import SemanticService
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Caller, Host, Json


class MemoryService:
    """State shared by all calls of one server: host services, options, subscriptions and the semantic index."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.notifier = ChangeNotifier()
        self._catching_up: set[str] = set()
        self.semantic = SemanticService.create(self.options)

    @property
    def options(self) -> Options:
        return self.host.options

    @asynccontextmanager
    async def open(self, caller: Caller, actor: str) -> AsyncGenerator[UnitOfWork]:
        """Open a unit of work for the caller's tenant. It commits on success and rolls back on error."""
        async with self.host.store(caller).transaction() as connection:
            options = self.options
            built_in = self.semantic.for_tenant(caller.tenant) if self.semantic is not None else None
            unit = UnitOfWork(
                connection,
                index_for(connection.dialect.name),
                actor,
                options.max_bytes,
                semantic=built_in or options.meaning,
                fuse_ranks=built_in is not None,
                languages=options.languages,
            )
            yield unit
            await unit.end_writing()

    async def prepare_search(self, caller: Caller) -> None:
        """Bring the tenant's vectors up to date before a search; what takes long continues in the background."""
        if self.semantic is None:
            return
        unit = partial(self.open, caller, caller.subject)
        if await self.semantic.catch_up(caller.tenant, unit):
            self.host.spawn(self._catch_up_all(caller))

    def index_in_background(self, caller: Caller) -> None:
        """Compute the vectors of new entries before the next search needs them. The first search loads the model."""
        if self.semantic is not None and self.semantic.is_loaded:
            self.host.spawn(self._catch_up_all(caller))

    async def _catch_up_all(self, caller: Caller) -> None:
        if self.semantic is None or caller.tenant in self._catching_up:
            return
        self._catching_up.add(caller.tenant)
        try:
            while await self.semantic.catch_up(caller.tenant, partial(self.open, caller, caller.subject)):
                pass
        finally:
            self._catching_up.discard(caller.tenant)


class _RollBack(Exception):
    """Ends a unit of work without its commit."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """The caller and actor of one request."""

    service: MemoryService
    ctx: ServerRequestContext[Any, Any]
    caller: Caller
    actor: str
    meta: Json
    unit: UnitOfWork | None = None
    """The unit of work that the whole call shares; None if each step opens its own."""
    is_preview: bool = False
    """Whether the shared unit of work is rolled back at the end of the call."""

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[UnitOfWork]:
        """Open a unit of work as `MemoryService.open` does, and notify subscribers after its commit. Yields the shared
        unit if the call has one."""
        if self.unit is not None:
            yield self.unit
            return
        async with self.service.open(self.caller, self.actor) as unit:
            yield unit
        if unit.recorded:
            self.service.index_in_background(self.caller)
        await self.service.notifier.notify(
            self.caller.tenant, self.ctx.session, self.ctx.request_id or 0, unit.recorded
        )

    @asynccontextmanager
    async def share_unit(self) -> AsyncGenerator[tuple["CallContext", UnitOfWork]]:
        """Run all steps of the call in one unit of work, which commits at the end of the block."""
        async with self.open() as unit:
            yield replace(self, unit=unit), unit

    @asynccontextmanager
    async def preview(self) -> AsyncGenerator[tuple["CallContext", UnitOfWork]]:
        """Run all steps of the call in one unit of work and roll it back at the end of the block."""
        try:
            async with self.service.open(self.caller, self.actor) as unit:
                yield replace(self, unit=unit, is_preview=True), unit
                raise _RollBack
        except _RollBack:
            pass


def open_call(service: MemoryService, ctx: ServerRequestContext[Any, Any]) -> CallContext:
    """Create the context of the current call. The actor is the `actor` of its `_meta`, or else the caller."""
    current = service.host.current_call()
    actor = current.meta.get("actor")
    if not (isinstance(actor, str) and 0 < len(actor) <= 200):
        actor = current.caller.subject
    return CallContext(service, ctx, current.caller, actor, current.meta)
