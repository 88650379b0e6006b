"""One call of a tool: who acts, and the tenant's memory opened for it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext

from backends.knowledge.notifications import Announcer
from backends.knowledge.options import Options
from backends.knowledge.search.engines import index_for
from backends.knowledge.unit_of_work import Book
from gateway.contract import Caller, Host


class Library:
    """What the calls of one server share."""

    def __init__(self, home: Host) -> None:
        self.home = home
        self.announcer = Announcer()

    @property
    def options(self) -> Options:
        return self.home.options

    @asynccontextmanager
    async def open(self, caller: Caller, actor: str) -> AsyncGenerator[Book]:
        """One transaction of the caller's tenant: all of it is kept, or nothing."""
        async with self.home.store(caller).transaction() as connection:
            options = self.options
            book = Book(connection, index_for(connection.dialect.name), actor, options.max_bytes, options.meaning)
            yield book
            await book.end_writing()


@dataclass(frozen=True, slots=True)
class Visit:
    library: Library
    ctx: ServerRequestContext[Any, Any]
    caller: Caller
    actor: str

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Book]:
        """As `Library.open`; once it is kept, subscribers are told."""
        async with self.library.open(self.caller, self.actor) as book:
            yield book
        await self.library.announcer.tell(self.caller.tenant, self.ctx.session, self.ctx.request_id or 0, book.written)


def visit(library: Library, ctx: ServerRequestContext[Any, Any]) -> Visit:
    here = library.home.current_call()
    named = here.meta.get("actor")
    actor = named if isinstance(named, str) and 0 < len(named) <= 200 else here.caller.subject
    return Visit(library, ctx, here.caller, actor)
