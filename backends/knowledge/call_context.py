"""The context of one client request: its caller, its actor, and access to the tenant's memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext

from backends.knowledge.notifications import ChangeNotifier
from backends.knowledge.options import Options
from backends.knowledge.search.engines import index_for
from backends.knowledge.unit_of_work import UnitOfWork
from gateway.contract import Caller, Host


class MemoryService:
    """State shared by all calls of one server: host services, options and subscriptions."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.notifier = ChangeNotifier()

    @property
    def options(self) -> Options:
        return self.host.options

    @asynccontextmanager
    async def open(self, caller: Caller, actor: str) -> AsyncGenerator[UnitOfWork]:
        """Open a unit of work for the caller's tenant. It commits on success and rolls back on error."""
        async with self.host.store(caller).transaction() as connection:
            options = self.options
            unit = UnitOfWork(connection, index_for(connection.dialect.name), actor, options.max_bytes, options.meaning)
            yield unit
            await unit.end_writing()


@dataclass(frozen=True, slots=True)
class CallContext:
    """The caller and actor of one request."""

    service: MemoryService
    ctx: ServerRequestContext[Any, Any]
    caller: Caller
    actor: str

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[UnitOfWork]:
        """Open a unit of work as `MemoryService.open` does, and notify subscribers after its commit."""
        async with self.service.open(self.caller, self.actor) as unit:
            yield unit
        await self.service.notifier.notify(
            self.caller.tenant, self.ctx.session, self.ctx.request_id or 0, unit.recorded
        )


def open_call(service: MemoryService, ctx: ServerRequestContext[Any, Any]) -> CallContext:
    """Create the context of the current call. The actor is the `actor` of its `_meta`, or else the caller."""
    current = service.host.current_call()
    actor = current.meta.get("actor")
    if not (isinstance(actor, str) and 0 < len(actor) <= 200):
        actor = current.caller.subject
    return CallContext(service, ctx, current.caller, actor)
