"""A value that is built at its first use, for parts that a start does not need.

Used for the plain HTTP routes and by shipped modules, whose tool definitions are needed at once and whose
implementation is not: together they would double the time and the memory of a start.
"""

import asyncio
import importlib
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """Calls `build` once, after an import of `modules` that does not block the event loop."""

    def __init__(self, build: Callable[[], T], *modules: str) -> None:
        self._build = build
        self._modules = modules
        self._importing: asyncio.Future[None] | None = None
        self.built: T | None = None
        """The value; None before its first use."""

    async def get(self) -> T:
        """Return the value; the first call builds it."""
        if self.built is None:
            if self._importing is None:
                # In a thread: importing takes tenths of a second, and other calls go on meanwhile.
                self._importing = asyncio.ensure_future(asyncio.to_thread(self._import))
            await asyncio.shield(self._importing)
        return self.build()

    def build(self) -> T:
        """Return the value; the first call builds it at once, imports included."""
        if self.built is None:
            self.built = self._build()
        return self.built

    def _import(self) -> None:
        for module in self._modules:
            importlib.import_module(module)
